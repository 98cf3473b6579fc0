"""One self-contained HTML page: nothing is loaded, legible on light and on dark screens.

The parts of a page are made here, from words that are escaped; `html_page` puts them together.
"""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any


@cache
def resource(name: str) -> str:
    """A file of this package: the style or the script of pages."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8").strip()


def policy(script: str) -> str:
    """What a browser may do for the page: load nothing, and run no script but this one.

    Named by its hash, so that a script which got in by way of somebody's data would not run.
    """
    rules = ["default-src 'none'", "style-src 'unsafe-inline'", "img-src data:"]
    rules += ["base-uri 'none'", "form-action 'none'"]
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
        rules.append(f"script-src 'sha256-{digest}'")
    return "; ".join(rules)


def html_page(title: str, parts: Iterable[str], interactive: bool = False) -> str:
    """A whole page of parts, which the functions below make; the script only if `interactive`."""
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


def write(text: str, path: Any) -> None:
    """Write a page to a file."""
    Path(path).write_text(text, encoding="utf-8")


def heading(text: str, level: int = 2, name: str = "") -> str:
    """A heading; with a name, links lead to it."""
    place = f' id="{escape(name)}"' if name else ""
    return f"<h{level}{place}>{escape(text)}</h{level}>"


def paragraph(text: str, lead: bool = False, quiet: bool = False) -> str:
    """A paragraph; `lead` makes it stand out, `quiet` stand back."""
    kind = ' class="lead"' if lead else ' class="quiet"' if quiet else ""
    return f"<p{kind}>{escape(text)}</p>"


def code(text: str) -> str:
    return f"<pre><code>{escape(text)}</code></pre>"


def command(text: str) -> str:
    """What to type, with a button that copies it; the button is there where scripts run."""
    button = '<button type="button" class="copy" hidden>Copy</button>'
    return f'<div class="command">{code(text)}{button}</div>'


def details(summary: str, parts: Iterable[str]) -> str:
    """Parts that are shown when they are asked for."""
    inside = "\n".join(parts)
    return f"<details><summary>{escape(summary)}</summary>\n{inside}\n</details>"


def contents(links: Sequence[tuple[str, str]]) -> str:
    """Links to headings: pairs of a heading's name and its words."""
    items = "\n".join(f'<li><a href="#{escape(n)}">{escape(words)}</a></li>' for n, words in links)
    return f'<nav aria-label="Contents">\n<ol>\n{items}\n</ol>\n</nav>'


def html_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    caption: str = "",
    numbers: Sequence[int] = (),
    marked: Sequence[int] = (),
) -> str:
    """A table of words; columns of `numbers` stand to the right, `marked` rows in bold.

    Where no column has a name, the first one names the rows. A long table scrolls in a frame.
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
TALL = 30  # rows from which on a table scrolls in a frame


def html_pairs(values: Mapping[str, str], caption: str = "") -> str:
    """Names and what they stand for, a row each."""
    return html_table((), [(str(name), str(words)) for name, words in values.items()], caption)


def html_figure(drawn: Any, description: str) -> str:
    """A matplotlib figure as a picture inside the page, with its description in words."""
    buffer = io.BytesIO()
    drawn.savefig(buffer, format="png", dpi=110, facecolor="white")
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    words = escape(description, quote=True)
    return (
        f'<figure><img alt="{words}" src="data:image/png;base64,{data}">'
        f"<figcaption>{words}</figcaption></figure>"
    )
