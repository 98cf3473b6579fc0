"""Matplotlib figures as interactive drawings inside a page, for the mouse and the keyboard.

The drawing is matplotlib's own SVG. Next to it, as JSON, are the names of its series, their values
and their positions, which `page.js` shows under the pointer. Without scripts the drawing is static.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any
from xml.etree import ElementTree

from meanmap.report.charts import Series, figure_series

LARGE = 3000  # points of an artist beyond which it is drawn as pixels
SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"
SHARP = 150  # pixels per inch of what is drawn as pixels
UNITS = 72  # of an SVG, per inch


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


# --- from matplotlib to SVG -----------------------------------------------------------------------


def trace_figure(drawn: Any, name: str) -> tuple[list[Series], ElementTree.Element]:
    """The series of a figure with their positions in its SVG, and the SVG."""
    import matplotlib

    series = figure_series(drawn)
    buffer = io.BytesIO()
    quiet = {"svg.fonttype": "none", "svg.hashsalt": "meanmap"}
    with matplotlib.rc_context(quiet), tag_artists(drawn, series):
        drawn.savefig(buffer, format="svg", dpi=SHARP, metadata={"Date": None}, facecolor="white")
        drawn.set_dpi(UNITS)  # positions in the units of the SVG; drawing has made the layout
        height = float(drawn.get_figheight()) * UNITS
        for one in series:
            one.place(height)
    root = ElementTree.fromstring(buffer.getvalue())
    name_images(root, drawn, series)
    for one in series:
        one.ids = [f"{name}-{part}" for part in one.ids]
        one.faded = [f"{name}-{part}" for part in one.faded]
    return series, root


@contextmanager
def tag_artists(drawn: Any, series: list[Series]) -> Iterator[None]:
    """Name artists for the SVG and draw large ones as pixels; undone afterwards."""
    before: list[tuple[Any, Any, Any]] = []
    dpi, merged = drawn.dpi, drawn.suppressComposite
    for i, one in enumerate(series):
        for kind, artists, ids in (("s", one.artists, one.ids), ("l", one.entries, one.faded)):
            for j, artist in enumerate(artists):
                before.append((artist, artist.get_gid(), artist.get_rasterized()))
                ids.append(f"{kind}{i}-{j}")
                artist.set_gid(ids[-1])
                if kind == "s" and one.count > LARGE:
                    artist.set_rasterized(True)
    drawn.suppressComposite = True  # one image each, so that they can be hidden one by one
    try:
        yield
    finally:
        drawn.suppressComposite = merged
        drawn.set_dpi(dpi)
        for artist, gid, rasterized in before:
            artist.set_gid(gid)
            artist.set_rasterized(rasterized)


def name_images(root: ElementTree.Element, drawn: Any, series: list[Series]) -> None:
    """Give images the names of their artists, which matplotlib leaves out.

    They are matched by the order of drawing, and left unnamed if that is ambiguous.
    """
    groups = {group.get("id"): group for group in root.iter(f"{SVG}g")}
    names = {id(a): s.ids[j] for s in series for j, a in enumerate(s.artists) if s.count > LARGE}
    for i, ax in enumerate(drawn.axes, start=1):
        group = groups.get(ax.get_gid() or f"axes_{i}")
        if group is None:
            continue
        order = sorted(ax.get_children(), key=lambda artist: artist.get_zorder())
        wanted = [names[id(a)] for a in order if id(a) in names and a.get_visible()]
        known = {name for one in series for name in one.ids}
        images = [e for e in group.iter(f"{SVG}image") if e.get("id") not in known]
        if len(wanted) == len(images):
            for image, name in zip(images, wanted, strict=True):
                image.set("id", name)


def finish_svg(
    root: ElementTree.Element,
    series: list[Series],
    description: str,
    name: str,
    size: tuple[float, float],
) -> str:
    """The SVG as a part of a page: unique names, alternative text, no metadata."""
    for parent in root.iter():
        for child in list(parent):
            if child.tag in (f"{SVG}metadata", f"{SVG}style") or not isinstance(child.tag, str):
                parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.removeprefix(SVG)
        link = element.attrib.pop(LINK, None)
        if link is not None:
            element.set("href", link)
        for key, value in list(element.attrib.items()):
            if key == "id":
                element.set(key, f"{name}-{value}")
            elif key == "href" and value.startswith("#"):
                element.set(key, f"#{name}-{value[1:]}")
            elif "url(#" in value:
                element.set(key, value.replace("url(#", f"url(#{name}-"))
            if key.startswith("{"):  # attributes of other namespaces
                del element.attrib[key]
    root.attrib.clear()
    root.set("viewBox", f"0 0 {size[0]:g} {size[1]:g}")
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title {name}-desc")
    for at, (tag, words) in enumerate((("title", description), ("desc", series_in_words(series)))):
        part = ElementTree.Element(tag, {"id": f"{name}-{tag}"})
        part.text = words
        root.insert(at, part)
    return ElementTree.tostring(root, encoding="unicode")


def series_in_words(series: list[Series]) -> str:
    """The series of a drawing in words, for screen readers."""
    names = list(dict.fromkeys(one.label for one in series if one.label))
    axes = list(dict.fromkeys(one.names for one in series if any(one.names)))
    words = [f"{y or 'values'} against {x}" if x else y for x, y in axes]
    said = [f"Shown: {'; '.join(words)}." if words else ""]
    said.append(f"Series: {', '.join(names)}." if names else "")
    return " ".join(filter(None, said)) or "A drawing."
