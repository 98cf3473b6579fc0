"""What a matplotlib figure shows: its lines, points, bars and cells, with names, values, places."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

MOST = 1000  # points of a series that answer to the mouse; more are thinned
DIGITS = 6  # of a value that are kept

Value = float | str
Places = Callable[[], np.ndarray]


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
    values : of each point: horizontal, vertical and perhaps a remark
    places, boxes : functions that give each point's place in pixels, (n, 2), and for bars, cells
        and levels the corners of what stands for it, (n, 4)
    count : points that are drawn
    """

    label: str
    names: tuple[str, str]
    colour: str
    artists: list[Any]
    values: list[tuple[Any, ...]] = field(default_factory=list)
    places: Places | None = None
    boxes: Places | None = None
    count: int = 0
    entries: list[Any] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    faded: list[str] = field(default_factory=list)
    points: list[dict[str, Any]] = field(default_factory=list)

    def place(self, height: float) -> None:
        """Find the places of the points, with the figure as it is drawn now."""
        if self.places is None or not self.values:
            return
        at = np.asarray(self.places(), dtype=float)
        boxes = None if self.boxes is None else np.asarray(self.boxes(), dtype=float)
        for i in even_indices(len(self.values)):
            if not np.isfinite(at[i]).all():
                continue
            point: dict[str, Any] = {
                "p": [round(float(at[i, 0]), 1), round(height - float(at[i, 1]), 1)],
                "v": [plain_value(value) for value in self.values[i]],
            }
            if boxes is not None:
                x0, y0, x1, y1 = (float(side) for side in boxes[i])
                sides = [min(x0, x1), height - max(y0, y1), max(x0, x1), height - min(y0, y1)]
                point["b"] = [round(side, 1) for side in sides]
            self.points.append(point)

    def plain(self) -> dict[str, Any]:
        """As JSON knows it."""
        return {
            "label": self.label,
            "axes": list(self.names),
            "ids": self.ids,
            "faded": self.faded,
            "points": self.points,
        }


def even_indices(n: int) -> list[int]:
    """Indices of at most MOST of n points, evenly."""
    return list(range(n)) if n <= MOST else np.linspace(0, n - 1, MOST).astype(int).tolist()


def plain_value(value: Any) -> Value:
    if isinstance(value, str):
        return value
    number = float(value)
    return float(f"{number:.{DIGITS}g}") if math.isfinite(number) else str(number)


# --- finding them ---------------------------------------------------------------------------------


def figure_series(figure: Any) -> list[Series]:
    """All series of a figure, those of each axes in the order in which they were added."""
    out: list[Series] = []
    for ax in figure.axes:
        if ax.get_label() == "<colorbar>" or not ax.get_visible():
            continue
        out += of_axes(ax)
        legend(ax, out)
    return out


def of_axes(ax: Any) -> Iterator[Series]:
    taken: set[int] = set()
    parts: list[Series] = []
    # bars first: their whiskers are a container of their own as well
    for container in sorted(ax.containers, key=lambda c: not hasattr(c, "patches")):
        one = (
            bar_series(ax, container)
            if hasattr(container, "patches")
            else error_bars(ax, container)
        )
        if one is not None and not any(id(artist) in taken for artist in one.artists):
            taken.update(map(id, one.artists))
            parts.append(one)
    for artist in (*ax.lines, *ax.collections, *ax.images, *ax.patches):
        if id(artist) in taken or not artist.get_visible():
            continue
        one = of_artist(ax, artist)
        if one is not None:
            parts.append(one)
    yield from parts


def of_artist(ax: Any, artist: Any) -> Series | None:
    """A single artist; None for what has neither a name nor values."""
    if artist in ax.lines:
        return line(ax, artist)
    if hasattr(artist, "get_coordinates"):
        return mesh(ax, artist)
    if artist in ax.images:
        return image_series(ax, artist)
    if artist in ax.collections and type(artist).__name__ == "PathCollection":
        return scatter(ax, artist)
    label = artist_name(artist)
    return Series(label, axis_names(ax), colour(artist), [artist]) if label else None


def legend(ax: Any, series: list[Series]) -> None:
    """Entries of a legend fade with what they name."""
    box = ax.get_legend()
    if box is None:
        return
    for text, handle in zip(box.get_texts(), box.legend_handles, strict=False):
        for one in series:
            if one.label and one.label == text.get_text():
                one.entries += [part for part in (text, handle) if hasattr(part, "get_gid")]
                break


def line(ax: Any, artist: Any) -> Series | None:
    x, y = (np.asarray(part, dtype=float) for part in artist.get_data(orig=False))
    label = artist_name(artist)
    if not len(x) or not (np.isfinite(x) & np.isfinite(y)).any():
        return None
    over, up = artist.get_transform().contains_branch_seperately(ax.transData)
    transform = artist.get_transform()
    if not (over and up):  # a level across the axes, or nothing that has values
        if not label or not (over or up):
            return None
        ends = pixel_places(transform, np.column_stack([x, y])[[0, -1]])
        value = ("", number_on(ax.yaxis, y[0])) if up else (number_on(ax.xaxis, x[0]), "")
        return Series(
            label,
            axis_names(ax),
            colour(artist),
            [artist],
            [value],
            lambda: ends().mean(axis=0, keepdims=True),
            lambda: ends().reshape(1, 4),
            1,
        )
    values = point_pairs(ax, x, y)
    places = pixel_places(transform, np.column_stack([x, y]))
    return Series(
        label,
        axis_names(ax),
        colour(artist),
        [artist],
        values,
        places,
        count=drawing_size(artist, len(x)),
    )


def drawing_size(artist: Any, n: int) -> int:
    """How much there is to draw: a line without marks is a single path."""
    return n if artist.get_marker() not in ("None", None, "", " ") else n // 10


def scatter(ax: Any, artist: Any) -> Series:
    points: np.ndarray = np.ma.filled(np.ma.asarray(artist.get_offsets(), dtype=float), np.nan)
    values = point_pairs(ax, points[:, 0], points[:, 1])
    places = pixel_places(artist.get_offset_transform(), points)
    return Series(
        artist_name(artist),
        axis_names(ax),
        colour(artist),
        [artist],
        values,
        places,
        count=len(points),
    )


def error_bars(ax: Any, container: Any) -> Series | None:
    """Points with their intervals."""
    data, caps, stems = container.lines
    artists = [part for part in (data, *caps, *stems) if part is not None]
    label = artist_name(container)
    if data is None:
        return Series(label, axis_names(ax), colour(artists[0]), artists) if artists else None
    x, y = (np.asarray(part, dtype=float) for part in data.get_data(orig=False))
    remarks = intervals(stems, len(x))
    values = [
        (*pair, *([remark] if remark else []))
        for pair, remark in zip(point_pairs(ax, x, y), remarks, strict=True)
    ]
    places = pixel_places(data.get_transform(), np.column_stack([x, y]))
    return Series(
        label,
        axis_names(ax),
        colour(data),
        artists,
        values,
        places,
        count=drawing_size(data, len(x)),
    )


def intervals(stems: Any, n: int) -> list[str]:
    """What the stems of error bars say, in words."""
    for stem in stems or ():
        ends = stem.get_segments()
        if len(ends) == n and all(len(end) == 2 for end in ends):
            across = np.ptp([end[:, 0] for end in ends], axis=1).any()
            return [
                "" if np.isnan(end).any() else f"{end[0, column]:.4g} to {end[1, column]:.4g}"
                for end in ends
                for column in (0 if across else 1,)
            ]
    return [""] * n


def bar_series(ax: Any, container: Any) -> Series | None:
    """Bars of numbers or of a histogram, whose values are their lengths."""
    patches = [patch for patch in container.patches if hasattr(patch, "get_height")]
    if not patches:
        label = artist_name(container)
        artists = list(container.patches)
        return Series(label, axis_names(ax), colour(artists[0]), artists) if label else None
    upright = getattr(container, "orientation", "vertical") != "horizontal"
    sides = np.array([[p.get_x(), p.get_y(), p.get_width(), p.get_height()] for p in patches])
    x0, y0, x1, y1 = sides[:, 0], sides[:, 1], sides[:, 0] + sides[:, 2], sides[:, 1] + sides[:, 3]
    whiskers = getattr(container, "errorbar", None)
    remarks = intervals(whiskers.lines[2], len(patches)) if whiskers else [""] * len(patches)
    axis = ax.xaxis if upright else ax.yaxis
    low, high = (x0, x1) if upright else (y0, y1)
    ends = sides[:, 3] if upright else sides[:, 2]
    touching = len(patches) > 1 and np.allclose(low[1:], high[:-1])
    values = []
    for i, remark in enumerate(remarks):
        middle = number_on(axis, (low[i] + high[i]) / 2)
        if touching and not isinstance(middle, str):
            middle = f"{low[i]:.4g} to {high[i]:.4g}"
        pair = (middle, float(ends[i])) if upright else (float(ends[i]), middle)
        values.append((*pair, *([remark] if remark else [])))
    top = np.column_stack([(x0 + x1) / 2, y1] if upright else [x1, (y0 + y1) / 2])
    artists = [*patches]
    if whiskers:
        artists += [p for p in (*whiskers.lines[1], *whiskers.lines[2]) if p is not None]
    corners = [pixel_places(ax.transData, np.column_stack(pair)) for pair in ((x0, y0), (x1, y1))]
    label = artist_name(container) or artist_name(patches[0])
    return Series(
        label,
        axis_names(ax),
        colour(patches[0]),
        artists,
        values,
        pixel_places(ax.transData, top),
        lambda: np.hstack([corner() for corner in corners]),
        len(patches),
    )


def mesh(ax: Any, artist: Any) -> Series | None:
    """Cells of a coloured table."""
    corners = np.asarray(artist.get_coordinates(), dtype=float)
    table: np.ndarray = np.ma.filled(np.ma.asarray(artist.get_array(), dtype=float), np.nan)
    rows, columns = corners.shape[0] - 1, corners.shape[1] - 1
    if table.size != rows * columns:  # colours at the corners, or given as such
        return None
    low, high = corners[:-1, :-1].reshape(-1, 2), corners[1:, 1:].reshape(-1, 2)
    return cell_series(ax, artist, low, high, table.ravel())


def image_series(ax: Any, artist: Any) -> Series | None:
    """Pixels of a picture that stand for numbers."""
    table: np.ndarray = np.ma.filled(np.ma.asarray(artist.get_array(), dtype=float), np.nan)
    if table.ndim != 2:
        return None
    left, right, bottom, top = artist.get_extent()
    rows, columns = table.shape
    x = np.linspace(left, right, columns + 1)
    y = np.linspace(bottom, top, rows + 1)
    if artist.origin == "upper":
        y = y[::-1]
    i, j = np.divmod(np.arange(table.size), columns)
    low, high = np.column_stack([x[j], y[i]]), np.column_stack([x[j + 1], y[i + 1]])
    return cell_series(ax, artist, low, high, table.ravel())


def cell_series(
    ax: Any, artist: Any, low: np.ndarray, high: np.ndarray, values: np.ndarray
) -> Series:
    middle = (low + high) / 2
    bar = getattr(artist, "colorbar", None)
    unit = (bar.ax.get_ylabel() or bar.ax.get_xlabel()) if bar is not None else ""
    remark = [f"{unit or 'value'}: {value:.4g}" for value in values]
    triples = [
        (*pair, words)
        for pair, words in zip(point_pairs(ax, middle[:, 0], middle[:, 1]), remark, strict=True)
    ]
    corners = [pixel_places(ax.transData, side) for side in (low, high)]
    return Series(
        artist_name(artist),
        axis_names(ax),
        "currentColor",
        [artist],
        triples,
        pixel_places(ax.transData, middle),
        lambda: np.hstack([corner() for corner in corners]),
        len(values),
    )


# --- names, numbers, places -----------------------------------------------------------------------


def pixel_places(transform: Any, points: np.ndarray) -> Places:
    """Places in pixels, computed when they are asked for: a layout may move the axes."""
    return lambda: np.asarray(transform.transform(points))


def artist_name(artist: Any) -> str:
    label = str(artist.get_label() or "")
    return "" if label.startswith("_") else label


def colour(artist: Any) -> str:
    """The colour that an artist is known by, for a button."""
    from matplotlib.colors import to_hex

    for name in ("get_color", "get_facecolor", "get_edgecolor"):
        if not hasattr(artist, name):
            continue
        value = getattr(artist, name)()
        if name != "get_color" and np.ndim(value) == 2:
            value = value[0] if len(value) else "none"
        if isinstance(value, str) and value == "none":
            continue
        try:
            return str(to_hex(value))
        except ValueError:
            continue
    return "currentColor"


def axis_names(ax: Any) -> tuple[str, str]:
    """Words at the axes, also at those that are shared."""
    names = []
    for kind in ("x", "y"):
        group = getattr(ax, f"get_shared_{kind}_axes")().get_siblings(ax)
        words = [getattr(one, f"get_{kind}label")() for one in (ax, *group)]
        names.append(next((word for word in words if word), ""))
    return names[0], names[1]


def point_pairs(ax: Any, x: np.ndarray, y: np.ndarray) -> list[tuple[Any, ...]]:
    kept = set(even_indices(len(x)))  # words for the others are never shown
    return [
        (number_on(ax.xaxis, a), number_on(ax.yaxis, b)) if i in kept else ()
        for i, (a, b) in enumerate(zip(x, y, strict=True))
    ]


def number_on(axis: Any, value: float) -> Any:
    """A number, or the word that stands at its tick, or a date."""
    kind = type(axis.get_major_formatter()).__name__
    if kind in ("FixedFormatter", "StrCategoryFormatter", "FuncFormatter"):
        at = np.asarray(axis.get_majorticklocs(), dtype=float)
        if not len(at):
            return float(value)
        near = int(np.argmin(np.abs(at - value)))
        gap = np.min(np.diff(np.sort(at))) if len(at) > 1 else 1.0
        if abs(at[near] - value) <= 0.5 * gap:
            word = str(axis.get_major_formatter().format_ticks(at)[near])
            return word.replace("\n", " ").replace(r"\$", "$") or float(value)
        return float(value)
    if "Date" in kind:
        return str(axis.get_major_formatter().format_data_short(value))
    return float(value)
