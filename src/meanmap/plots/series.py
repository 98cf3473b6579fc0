"""What a figure shows: the series on its sheets, their values and positions.

A `Sheet` of `meanmap.plots.sheet` keeps a record of what it draws; nothing is guessed from the
drawing. On other axes, series have their names from the legend and no values.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from meanmap.plots.sheet import Mark

MOST = 1000  # points of a series that respond to the mouse; more are thinned
DIGITS = 6  # significant digits of values


@dataclass(eq=False)
class Series:
    """A part of a figure that has a name or values.

    Attributes
    ----------
    label : str
        As in the legend, "" for none.
    names : of the horizontal and of the vertical axis
    colour : str
    artists, entries : what matplotlib draws for it, in the axes and in their legend
    ax, mark : the sheet and its record, None without values
    ids, faded : names of the artists and of the entries in a page
    points : for JSON: the position and values of each point, and the box of a bar or a cell
    """

    label: str
    names: tuple[str, str]
    colour: str
    artists: list[Any]
    ax: Any = None
    mark: Mark | None = None
    entries: list[Any] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    faded: list[str] = field(default_factory=list)
    points: list[dict[str, Any]] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many points are drawn."""
        return 0 if self.mark is None else self.mark.count

    def place(self, height: float) -> None:
        """Find values and positions of the points in the figure as drawn now."""
        if self.mark is None or not len(self.mark.points):
            return
        mark, n = self.mark, len(self.mark.points)
        kept = np.arange(n) if n <= MOST else np.linspace(0, n - 1, MOST).astype(int)
        to_pixels = {"x": self.ax.get_xaxis_transform, "y": self.ax.get_yaxis_transform}
        transform = to_pixels[mark.level]() if mark.level else self.ax.transData
        at = transform.transform(mark.points[kept])
        at[:, 1] = height - at[:, 1]
        there = np.isfinite(at).all(axis=1)
        values = read_values(self.ax, mark, kept)
        pixels = at.round(1).tolist()
        self.points = [{"p": pixels[i], "v": values[i]} for i in np.flatnonzero(there)]
        if mark.boxes is None:
            return
        corners = transform.transform(mark.boxes[kept][there].reshape(-1, 2)).reshape(-1, 2, 2)
        corners[..., 1] = height - corners[..., 1]
        boxes = np.hstack([corners.min(axis=1), corners.max(axis=1)]).round(1).tolist()
        for point, box in zip(self.points, boxes, strict=True):
            point["b"] = box

    def plain(self) -> dict[str, Any]:
        """As JSON knows it."""
        return {
            "label": self.label,
            "axes": list(self.names),
            "ids": self.ids,
            "faded": self.faded,
            "points": self.points,
        }


def figure_series(figure: Any) -> list[Series]:
    """All series of a figure, axes by axes."""
    out: list[Series] = []
    for ax in figure.axes:
        if ax.get_label() == "<colorbar>" or not ax.get_visible():
            continue
        out += axes_series(ax)
        add_legend(ax, out)
    return out


def axes_series(ax: Any) -> Iterator[Series]:
    """Series that were recorded, and those that only have a name in the legend."""
    names = axis_names(ax)
    taken: set[int] = set()
    for mark in sorted(getattr(ax, "marks", ()), key=lambda mark: mark.order):
        first, label = mark.artists[0], mark.label
        taken.update(map(id, (*mark.artists, *mark.names)))
        shown = first.axes is not None and first.get_visible()
        if shown and (label or not mark.level):  # a level without a name is an axis of its own
            colour = "currentColor" if mark.heights is not None else colour_of(first)
            yield Series(label, names, colour, mark.artists, ax, mark)
    for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
        artists = list(handle) if isinstance(handle, tuple) else [handle]
        if not any(id(artist) in taken for artist in artists) and artists[0].get_visible():
            yield Series(label, names, colour_of(artists[0]), artists)


def add_legend(ax: Any, series: list[Series]) -> None:
    """Connect entries of the legend with their series."""
    box = ax.get_legend()
    if box is None:
        return
    for text, handle in zip(box.get_texts(), box.legend_handles, strict=False):
        for one in series:
            if one.label and one.label == text.get_text():
                one.entries += [part for part in (text, handle) if hasattr(part, "get_gid")]
                break


def read_values(ax: Any, mark: Mark, kept: np.ndarray) -> list[list[float | str]]:
    """The horizontal and the vertical value of each point, and perhaps a remark."""
    x, y = mark.values or mark.points.T
    columns = [read_axis(ax, side, part[kept]) for side, part in (("x", x), ("y", y))]
    if mark.spans:  # bins of a histogram
        read = zip(kept, columns[mark.along], strict=True)
        columns[mark.along] = [w if isinstance(w, str) else mark.spans[i] for i, w in read]
    if mark.level:
        columns[1 if mark.level == "x" else 0] = [""] * len(kept)
    rows: list[list[float | str]] = [list(pair) for pair in zip(*columns, strict=True)]
    remarks = [mark.remarks[i] for i in kept] if mark.remarks else []
    if mark.heights is not None:
        bar = getattr(mark.artists[0], "colorbar", None)
        unit = (bar.ax.get_ylabel() or bar.ax.get_xlabel()) if bar is not None else ""
        remarks = [f"{unit or 'value'}: {value:.4g}" for value in mark.heights[kept]]
    for row, remark in zip(rows, remarks, strict=False):
        row += [remark] if remark else []
    return rows


def read_axis(ax: Any, side: str, numbers: np.ndarray) -> list[float | str]:
    """Numbers, or the labels of their ticks."""
    read: list[float | str] = [
        float(f"{v:.{DIGITS}g}") if np.isfinite(v) else str(v) for v in numbers.tolist()
    ]
    group = getattr(ax, f"get_shared_{side}_axes")().get_siblings(ax)
    words: dict[float, str] = {}
    for one in (*group, ax):
        words |= getattr(one, "words", {}).get(side, {})
    if words:
        at = np.sort(list(words))
        gap = np.diff(at).min() if len(at) > 1 else 1.0
        away = np.abs(at[None, :] - numbers[:, None])
        for i, j in enumerate(away.argmin(axis=1)):
            if away[i, j] <= 0.5 * gap:
                read[i] = words[float(at[j])] or read[i]
    return read


def colour_of(artist: Any) -> str:
    """The main colour of an artist, for its button."""
    from matplotlib.colors import to_hex

    for name in ("get_color", "get_facecolor", "get_edgecolor"):
        value = getattr(artist, name, str)()
        if name != "get_color" and np.ndim(value) == 2:
            value = value[0] if len(value) else ""
        if not (isinstance(value, str) and value == "none"):
            with suppress(ValueError):
                return str(to_hex(value))
    return "currentColor"


def axis_names(ax: Any) -> tuple[str, str]:
    """The labels of the axes, including shared ones."""
    names = []
    for kind in ("x", "y"):
        group = getattr(ax, f"get_shared_{kind}_axes")().get_siblings(ax)
        words = [getattr(one, f"get_{kind}label")() for one in (ax, *group)]
        names.append(next((word for word in words if word), ""))
    return names[0], names[1]
