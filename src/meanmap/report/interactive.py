"""Matplotlib figures as interactive drawings inside a page, for the mouse and the keyboard.

The drawing is matplotlib's own SVG. Next to it, as JSON, are the names of its series, their values
and their positions, which `page.js` shows under the pointer. Without scripts the drawing is static.
"""

from __future__ import annotations

import json
import re
from html import escape
from typing import Any

from meanmap.plots.series import Series
from meanmap.plots.svg import UNITS, finish_svg, trace_figure


def interactive_figure(drawn: Any, description: str, name: str) -> str:
    """A matplotlib figure for a page.

    Parameters
    ----------
    drawn : matplotlib Figure
    description : str
        What the figure shows; the alternative text.
    name : str
        Of the figure in the page, a prefix of all names inside the drawing: letters, digits and
        dashes.
    """
    if not re.fullmatch(r"[A-Za-z][\w-]*", name):
        raise ValueError(f"name: expected a letter, then letters, digits, - and _, got {name!r}.")
    series, root = trace_figure(drawn, name)
    width, height = (float(side) * UNITS for side in drawn.get_size_inches())
    document = finish_svg(root, series, description, name, (width, height))
    data = {"size": [round(width, 2), round(height, 2)], "series": [one.plain() for one in series]}
    # a `<` in a label could end the script element
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # a wide drawing scrolls on a phone; a small one is not enlarged on a large screen
    wide = width > 500
    room = f"--least:{0.78 * width:.0f}px" if wide else f"--most:{1.7 * width:.0f}px"
    return (
        f'<figure class="chart" id="{name}" style="{room}">\n'
        f"{controls(series)}\n"
        f'<div class="canvas">{document}</div>\n'
        f'<p class="unseen" aria-live="polite"></p>\n'
        f"<figcaption>{escape(full_sentence(description))}"
        '<span class="hint" hidden> Point at it for values. After a click, the wheel zooms, '
        "dragging moves, and arrow keys step from point to point.</span></figcaption>\n"
        f'<script type="application/json">{text.replace("<", chr(92) + "u003c")}</script>\n'
        "</figure>"
    )


def full_sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def controls(series: list[Series]) -> str:
    """Buttons that show and hide series, and zoom; shown if scripts run."""
    colours: dict[str, str] = {}
    for one in series:
        if one.label and one.ids:
            colours.setdefault(one.label, one.colour)
    toggles = "".join(
        f'<button type="button" aria-pressed="true" data-series="{escape(label)}" '
        f'style="--swatch:{colour}">{escape(label)}</button>'
        for label, colour in colours.items()
    )
    zoom = "".join(
        f'<button type="button" data-zoom="{what}" aria-label="{words}">{sign}</button>'
        for what, words, sign in (
            ("in", "Zoom in", "+"),
            ("out", "Zoom out", "−"),
            ("reset", "Reset the zoom", "Reset"),
        )
    )
    return f'<div class="controls" hidden>{toggles}<span class="zoom">{zoom}</span></div>'
