"""Axes to draw on, and the colours of all pictures."""

from __future__ import annotations

from typing import Any

import numpy as np

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8a8a8a"  # told apart by colour-blind eyes too
MAP = "cividis"
COLOURS = (BLUE, ORANGE, "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "black")
STYLES = ("-", "--", ":", "-.")


def sheets(figure: Any, rows: int = 1, columns: int = 1, **options: Any) -> Any:
    """New axes of a matplotlib figure, as its `subplots` has them.

    They keep a record of what is drawn on them (`meanmap.plots.sheet`), which pages read.
    """
    from meanmap.plots.sheet import Sheet

    return figure.subplots(rows, columns, subplot_kw={"axes_class": Sheet}, **options)


def new_sheets(
    rows: int, columns: int, size: tuple[float, float], layout: str = "constrained", **options: Any
) -> Any:
    """Axes of a new figure, `size` in inches."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'meanmap[plot]'") from error
    return sheets(plt.figure(figsize=size, layout=layout), rows, columns, **options)


def require_axes(ax: Any) -> Any:
    """What was given, if one can draw on it."""
    if not hasattr(ax, "plot") or not hasattr(ax, "figure"):
        raise TypeError(
            f"ax: expected axes of matplotlib, got {type(ax).__name__}. Pass those of "
            "plt.subplots(), or None for new ones."
        )
    return ax


def axes(ax: Any = None) -> Any:
    """The axes to draw on, new ones if none are given."""
    return new_sheets(1, 1, (6, 4)) if ax is None else require_axes(ax)


def panels(given: Any, count: int) -> list[Any]:
    """Axes to draw on: those given, or `count` new ones side by side."""
    if given is not None:
        return list(map(require_axes, np.ravel(np.asarray(given, dtype=object))))
    return list(np.ravel(new_sheets(1, count, (5 * count, 4))))


def stacked_axes(given: Any, count: int) -> list[Any]:
    """Axes one above the other with a common time: those given, or new ones."""
    if given is not None:
        found = list(map(require_axes, np.ravel(np.asarray(given, dtype=object))))
        if len(found) < count:
            raise ValueError(f"ax: expected {count} axes, one per coordinate, got {len(found)}.")
        return found
    return list(np.ravel(new_sheets(count, 1, (8, 1.0 + 1.5 * count), sharex=True)))
