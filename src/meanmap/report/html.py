"""One self-contained HTML page: no scripts, no links, legible on light and on dark screens."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

STYLE = """
:root { color-scheme: light dark;
  --ink: #1b1b1b; --paper: #ffffff; --line: #c9c9c9; --soft: #f2f5f7; --mark: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --paper: #17191c; --line: #4a4f55; --soft: #22262b; --mark: #56b4e9; } }
body { background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif;
  margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
h1, h2 { line-height: 1.2; }
p.lead { border-left: 4px solid var(--mark); background: var(--soft); padding: .6rem 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; }
caption { text-align: left; padding-bottom: .4rem; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .75rem; text-align: left; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr.marked td { font-weight: 600; }
figure { margin: 1rem 0; }
figure img { background: #ffffff; border-radius: 4px; max-width: 100%; }
pre { background: var(--soft); overflow-x: auto; padding: .6rem 1rem; }
""".strip()


def page(title: str, parts: Iterable[str]) -> str:
    """A whole page of parts, which the functions below make."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n" + "\n".join(parts) + "\n</body>\n</html>\n"
    )


def write(text: str, path: Any) -> None:
    """Write a page to a file."""
    Path(path).write_text(text, encoding="utf-8")


def heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str, lead: bool = False) -> str:
    """A paragraph; `lead` makes it stand out."""
    return f'<p class="lead">{escape(text)}</p>' if lead else f"<p>{escape(text)}</p>"


def code(text: str) -> str:
    return f"<pre><code>{escape(text)}</code></pre>"


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    caption: str = "",
    numbers: Sequence[int] = (),
    marked: Sequence[int] = (),
) -> str:
    """A table of words; columns of `numbers` stand to the right, `marked` rows in bold."""
    lines = ['<div class="wide"><table>']
    if caption:
        lines.append(f"<caption>{escape(caption)}</caption>")
    cells = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    lines.append(f"<thead><tr>{cells}</tr></thead>")
    lines.append("<tbody>")
    for i, row in enumerate(rows):
        cells = "".join(
            f'<td class="number">{escape(cell)}</td>'
            if j in numbers
            else f"<td>{escape(cell)}</td>"
            for j, cell in enumerate(row)
        )
        lines.append(f'<tr class="marked">{cells}</tr>' if i in marked else f"<tr>{cells}</tr>")
    return "\n".join([*lines, "</tbody>", "</table></div>"])


def figure(drawn: Any, description: str) -> str:
    """A matplotlib figure as a picture inside the page, with its description in words."""
    buffer = io.BytesIO()
    drawn.savefig(buffer, format="png", dpi=110, facecolor="white")
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    words = escape(description, quote=True)
    return (
        f'<figure><img alt="{words}" src="data:image/png;base64,{data}">'
        f"<figcaption>{words}</figcaption></figure>"
    )
