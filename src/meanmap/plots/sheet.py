"""Axes that keep a record of what is drawn on them, for pages that answer to the mouse.

Imported when something is drawn, since it needs matplotlib.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import numpy as np
from matplotlib.axes import Axes

BARS, ERRORS, LINES, AREAS, IMAGES = range(5)  # the order of series in a page


@dataclass(eq=False)
class Mark:
    """What one call drew.

    Attributes
    ----------
    order : int
        `BARS`, `ERRORS`, `LINES`, `AREAS` or `IMAGES`.
    artists : list
        What matplotlib made of it.
    names : list
        Artists of which the first with a label names it.
    points : array (n, 2)
        Where each point is, in the units of the axes.
    boxes : array (n, 4) or None
        Two corners of each bar or cell.
    values : a pair of arrays
        What the axes say of each point, if not `points`.
    along : 0 if bars stand on the horizontal axis, 1 if on the vertical one
    spans : the ends of each bin of a histogram, in words
    remarks : an interval or so for each point, in words
    heights : numbers that stand for the colours of cells
    level : "x" or "y" for a line across the axes at one value, else ""
    count : points that are drawn
    """

    order: int
    artists: list[Any]
    names: list[Any]
    points: np.ndarray
    boxes: np.ndarray | None = None
    values: tuple[np.ndarray, np.ndarray] | None = None
    along: int = 0
    spans: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    heights: np.ndarray | None = None
    level: str = ""
    count: int = 0

    @property
    def label(self) -> str:
        """As in the legend, "" for none; may be given after it was drawn."""
        words = (str(artist.get_label() or "") for artist in self.names)
        return next((word for word in words if word and not word.startswith("_")), "")


def record_call(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that draws and notes it down, unless another such method has called it."""

    @wraps(method)
    def draw(sheet: Sheet, *args: Any, **options: Any) -> Any:
        plain = getattr(super(Sheet, sheet), method.__name__)
        if sheet.busy or "transform" in options or "data" in options:
            return plain(*args, **options)
        sheet.busy = True
        try:
            drawn = plain(*args, **options)
        finally:
            sheet.busy = False
        method(sheet, drawn, *args, **options)
        return drawn

    return draw


class Sheet(Axes):
    """Axes with `marks`, one for each call that drew numbers, and `words` at their ticks."""

    busy = False

    def clear(self) -> None:
        """Remove everything, the record too; matplotlib calls this first."""
        self.marks: list[Mark] = []
        self.words: dict[str, dict[float, str]] = {"x": {}, "y": {}}
        super().clear()

    def _make_twin_axes(self, *args: Any, **options: Any) -> Any:
        """Twins keep a record as well."""
        options.setdefault("axes_class", type(self))
        return super()._make_twin_axes(*args, **options)  # type: ignore[misc]

    def set_xticks(self, ticks: Any, labels: Any = None, **options: Any) -> Any:
        """As matplotlib's, with the labels kept."""
        self._keep_words("x", ticks, labels)
        return super().set_xticks(ticks, labels, **options)

    def set_yticks(self, ticks: Any, labels: Any = None, **options: Any) -> Any:
        """As matplotlib's, with the labels kept."""
        self._keep_words("y", ticks, labels)
        return super().set_yticks(ticks, labels, **options)

    def _keep_words(self, side: str, ticks: Any, labels: Any) -> None:
        if labels is not None:
            places = np.asarray(ticks, dtype=float)
            words = [str(word).replace("\n", " ").replace(r"\$", "$") for word in labels]
            self.words[side] = dict(zip(places.tolist(), words, strict=True))

    def _numbers(self, side: str, given: Any) -> np.ndarray:
        """Numbers of what was given along an axis; names and days are kept as words."""
        convert = self.convert_xunits if side == "x" else self.convert_yunits
        raw = np.ma.asarray(given).ravel()
        if raw.dtype.kind in "fiub":
            return np.ma.filled(raw.astype(float), np.nan)
        places = np.asarray(convert(raw.data), dtype=float)
        self.words[side].update(zip(places.tolist(), map(str, raw), strict=True))
        return places

    @record_call
    def plot(self, lines: list[Any], *_: Any, **__: Any) -> None:
        """Lines and points."""
        for line in lines:
            sides = zip("xy", line.get_data(orig=True), strict=True)
            x, y = (self._numbers(side, given) for side, given in sides)
            points = np.column_stack([x, y])
            if np.isfinite(points).all(axis=1).any():
                self.marks.append(
                    Mark(LINES, [line], [line], points, count=drawing_size(line, len(x)))
                )

    @record_call
    def scatter(self, artist: Any, x: Any, y: Any, *_: Any, **__: Any) -> None:
        """Points."""
        points = np.column_stack([self._numbers("x", x), self._numbers("y", y)])
        self.marks.append(Mark(AREAS, [artist], [artist], points, count=len(points)))

    @record_call
    def axhline(self, line: Any, y: float = 0, xmin: float = 0, xmax: float = 1, **_: Any) -> None:
        """A level across."""
        self._add_level("y", line, [xmin, float(y)], [xmax, float(y)])

    @record_call
    def axvline(self, line: Any, x: float = 0, ymin: float = 0, ymax: float = 1, **_: Any) -> None:
        """A level upwards."""
        self._add_level("x", line, [float(x), ymin], [float(x), ymax])

    def _add_level(self, side: str, line: Any, low: list[float], high: list[float]) -> None:
        box = np.array([[*low, *high]], dtype=float)
        points = (box[:, :2] + box[:, 2:]) / 2
        self.marks.append(Mark(LINES, [line], [line], points, box, level=side, count=1))

    @record_call
    def errorbar(
        self, drawn: Any, x: Any, y: Any, yerr: Any = None, xerr: Any = None, *_: Any, **__: Any
    ) -> None:
        """Points with intervals, which are written as "low to high"."""
        line, caps, stems = drawn.lines
        artists = [part for part in (line, *caps, *stems) if part is not None]
        places = np.column_stack([self._numbers("x", x), self._numbers("y", y)])
        whiskers = (places[:, 0], xerr) if xerr is not None else (places[:, 1], yerr)
        mark = Mark(ERRORS, artists, [drawn], places, remarks=intervals(*whiskers))
        if line is None:  # bars alone
            mark = Mark(ERRORS, artists, [drawn], places[:0])
        else:
            mark.count = drawing_size(line, len(places))
        self.marks.append(mark)

    @record_call
    def bar(
        self, drawn: Any, x: Any, height: Any, width: Any = 0.8, bottom: Any = None, **given: Any
    ) -> None:
        """Bars upwards, also those of a histogram."""
        start = self._numbers("x", x) - (0 if given.get("align") == "edge" else 0.5) * width
        self._add_bars(drawn, 0, start, start + width, bottom, height, given.get("yerr"))

    @record_call
    def barh(
        self, drawn: Any, y: Any, width: Any, height: Any = 0.8, left: Any = None, **given: Any
    ) -> None:
        """Bars to the right."""
        start = self._numbers("y", y) - (0 if given.get("align") == "edge" else 0.5) * height
        self._add_bars(drawn, 1, start, start + height, left, width, given.get("xerr"))

    def _add_bars(
        self, drawn: Any, side: int, low: Any, high: Any, base: Any, length: Any, error: Any
    ) -> None:
        """Bars that stand on axis `side`, from `low` to `high`, whose lengths are the values."""
        low, high, base, length = np.broadcast_arrays(
            low, high, 0.0 if base is None else base, np.asarray(length, dtype=float)
        )
        artists, middle, ends = list(drawn.patches), (low + high) / 2, base + length
        if drawn.errorbar is not None:
            artists += [part for group in drawn.errorbar.lines[1:] for part in group or ()]
        touching = len(low) > 1 and np.allclose(low[1:], high[:-1])
        columns = [(middle, ends), (low, base), (high, ends), (middle, length)]
        points, first, second, values = ([a, b][:: -1 if side else 1] for a, b in columns)
        self.marks.append(
            Mark(
                BARS,
                artists,
                [drawn, *drawn.patches[:1]],
                np.column_stack(points),
                np.column_stack([*first, *second]),
                (values[0], values[1]),
                side,
                [f"{a:.4g} to {b:.4g}" for a, b in zip(low, high, strict=True)] if touching else [],
                intervals(ends, error),
                count=len(low),
            )
        )

    @record_call
    def pcolormesh(self, artist: Any, *_: Any, **__: Any) -> None:
        """Cells of a coloured table."""
        corners = np.asarray(artist.get_coordinates(), dtype=float)
        heights: np.ndarray = np.ma.filled(
            np.ma.asarray(artist.get_array(), dtype=float), np.nan
        ).ravel()
        low, high = corners[:-1, :-1].reshape(-1, 2), corners[1:, 1:].reshape(-1, 2)
        if len(low) == len(heights):  # else colours at the corners, or given as such
            self._add_cells(AREAS, artist, low, high, heights)

    @record_call
    def imshow(self, artist: Any, table: Any, *_: Any, **__: Any) -> None:
        """Pixels of a picture that stand for numbers."""
        heights: np.ndarray = np.ma.filled(np.ma.asarray(table, dtype=float), np.nan)
        if heights.ndim != 2:
            return
        left, right, bottom, top = artist.get_extent()
        rows, columns = heights.shape
        x, y = np.linspace(left, right, columns + 1), np.linspace(bottom, top, rows + 1)
        y = y[::-1] if artist.origin == "upper" else y
        i, j = np.divmod(np.arange(heights.size), columns)
        low, high = np.column_stack([x[j], y[i]]), np.column_stack([x[j + 1], y[i + 1]])
        self._add_cells(IMAGES, artist, low, high, heights.ravel())

    def _add_cells(
        self, order: int, artist: Any, low: np.ndarray, high: np.ndarray, heights: np.ndarray
    ) -> None:
        boxes, count = np.hstack([low, high]), len(heights)
        middle = (low + high) / 2
        mark = Mark(order, [artist], [artist], middle, boxes, heights=heights, count=count)
        self.marks.append(mark)


def drawing_size(line: Any, n: int) -> int:
    """How much there is to draw: a line without marks is a single path."""
    return n if line.get_marker() not in ("None", None, "", " ") else n // 10


def intervals(centres: Sequence[float] | np.ndarray, error: Any) -> list[str]:
    """What error bars say, in words; nothing without them."""
    if error is None:
        return []
    spread = np.broadcast_to(np.asarray(error, dtype=float), (2, len(centres)))
    ends = zip(centres - spread[0], centres + spread[1], strict=True)
    return [f"{a:.4g} to {b:.4g}" if np.isfinite(a + b) else "" for a, b in ends]
