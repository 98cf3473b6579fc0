"""Axes to draw on, and the colours of all pictures."""

from __future__ import annotations

from typing import Any

import numpy as np

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8a8a8a"  # told apart by colour-blind eyes too
MAP = "cividis"
COLOURS = (BLUE, ORANGE, "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "black")
STYLES = ("-", "--", ":", "-.")


def axes(ax: Any = None) -> Any:
    """The axes to draw on, new ones if none are given."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'meanmap[plot]'") from error
    return plt.subplots(figsize=(6, 4), layout="constrained")[1]


def panels(given: Any, count: int) -> list[Any]:
    """Axes to draw on: those given, or `count` new ones side by side."""
    if given is not None:
        return list(np.ravel(np.asarray(given, dtype=object)))
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'meanmap[plot]'") from error
    return list(np.ravel(plt.subplots(1, count, figsize=(5 * count, 4), layout="constrained")[1]))


def stacked_axes(given: Any, count: int) -> list[Any]:
    """Axes one above the other with a common time: those given, or new ones."""
    if given is not None:
        found = list(np.ravel(np.asarray(given, dtype=object)))
        if len(found) < count:
            raise ValueError(f"ax: expected {count} axes, one a coordinate, got {len(found)}.")
        return found
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'meanmap[plot]'") from error
    size = (8, 1.0 + 1.5 * count)
    rows = plt.subplots(count, 1, figsize=size, sharex=True, layout="constrained")[1]
    return list(np.ravel(rows))
