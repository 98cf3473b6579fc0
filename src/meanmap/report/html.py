"""One self-contained HTML page that loads nothing, legible on light and on dark screens.

The functions here make the parts of a page from text, which they escape; `html_page` joins them.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from importlib import resources


@cache
def resource(name: str) -> str:
    """A file of this package: the style or the script of pages."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8").strip()


def policy(script: str) -> str:
    """What a browser may do for the page: load nothing, and run this script only.

    The script is named by its hash, so that a script hidden in the data would not run.
    """
    rules = ["default-src 'none'", "style-src 'unsafe-inline'", "img-src data:"]
    rules += ["base-uri 'none'", "form-action 'none'"]
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
        rules.append(f"script-src 'sha256-{digest}'")
    return "; ".join(rules)


def html_page(title: str, parts: Iterable[str], interactive: bool = False) -> str:
    """A whole page from parts, which the functions below make; with a script if `interactive`."""
    script = f"\n{resource('page.js')}\n" if interactive else ""
    lines = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy(script)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>\n<style>\n{resource('page.css')}\n</style>\n</head>",
        '<body>\n<a class="skip" href="#content">Skip to the content</a>',
        f'<main id="content">\n<h1>{escape(title)}</h1>',
        *parts,
        "</main>",
        f"<script>{script}</script>" if script else "",
        "</body>\n</html>",
    ]
    return "\n".join(line for line in lines if line) + "\n"


def heading(text: str, level: int = 2, name: str = "") -> str:
    """A heading; with a name, links lead to it."""
    place = f' id="{escape(name)}"' if name else ""
    return f"<h{level}{place}>{escape(text)}</h{level}>"


def paragraph(text: str, lead: bool = False, quiet: bool = False) -> str:
    """A paragraph; `lead` emphasises it, `quiet` does the opposite."""
    kind = ' class="lead"' if lead else ' class="quiet"' if quiet else ""
    return f"<p{kind}>{escape(text)}</p>"


def code(text: str) -> str:
    return f"<pre><code>{escape(text)}</code></pre>"


def command(text: str) -> str:
    """What to type, with a button that copies it, which is shown if scripts run."""
    button = '<button type="button" class="copy" hidden>Copy</button>'
    return f'<div class="command">{code(text)}{button}</div>'


def details(summary: str, parts: Iterable[str]) -> str:
    """Parts that are shown on demand."""
    inside = "\n".join(parts)
    return f"<details><summary>{escape(summary)}</summary>\n{inside}\n</details>"


def contents(links: Sequence[tuple[str, str]]) -> str:
    """Links to headings: pairs of a heading's name and its text."""
    items = "\n".join(f'<li><a href="#{escape(n)}">{escape(words)}</a></li>' for n, words in links)
    return f'<nav aria-label="Contents">\n<ol>\n{items}\n</ol>\n</nav>'


def html_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    caption: str = "",
    numbers: Sequence[int] = (),
    marked: Sequence[int] = (),
) -> str:
    """A table of text; columns of `numbers` are aligned to the right, `marked` rows are bold.

    If no column has a name, the first one names the rows. A long table scrolls in a frame.
    """
    named = any(header)
    tall = ' tall" tabindex="0" role="region" aria-label="Table' if len(rows) > TALL else ""
    lines = [f'<div class="wide{tall}"><table>']
    if caption:
        lines.append(f"<caption>{escape(caption)}</caption>")
    if named:
        cells = "".join(
            f'<th scope="col"{NUMBER if j in numbers else ""}>{escape(name)}</th>'
            if name
            else "<td></td>"
            for j, name in enumerate(header)
        )
        lines.append(f"<thead><tr>{cells}</tr></thead>")
    lines.append("<tbody>")
    for i, row in enumerate(rows):
        cells = "".join(
            f'<th scope="row">{escape(cell)}</th>'
            if j == 0 and not named
            else f"<td{NUMBER if j in numbers else ''}>{escape(cell)}</td>"
            for j, cell in enumerate(row)
        )
        lines.append(f'<tr class="marked">{cells}</tr>' if i in marked else f"<tr>{cells}</tr>")
    return "\n".join([*lines, "</tbody>", "</table></div>"])


NUMBER = ' class="number"'
TALL = 30  # rows beyond which a table scrolls in a frame


def html_pairs(values: Mapping[str, str], caption: str = "") -> str:
    """Names and their values, one row each."""
    return html_table((), [(str(name), str(words)) for name, words in values.items()], caption)
