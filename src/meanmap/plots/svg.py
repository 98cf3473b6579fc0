"""Figures as SVG whose series have names, so that a page can point at them.

The drawing is matplotlib's own; large series are drawn as pixels.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree

from meanmap.plots.series import Series, figure_series

LARGE = 3000  # points of an artist beyond which it is drawn as pixels
SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"
SHARP = 150  # pixels per inch of what is drawn as pixels
UNITS = 72  # of an SVG, per inch


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
