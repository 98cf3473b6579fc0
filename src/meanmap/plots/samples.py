"""Samples: rows in a plane, and a conditional distribution over them."""

from __future__ import annotations

from typing import Any

import numpy as np

from meanmap.plots.canvas import BLUE, COLOURS, GREY, MAP, ORANGE, axes

MANY = 2000  # points of which more are thinned
CLASSES = 10  # labels of which more have no colours of their own
MARKS = "osD^v<>pXP"


def even_rows(n: int) -> np.ndarray:
    """Indices of at most MANY of n rows, evenly."""
    return np.unique(np.linspace(0, n - 1, min(n, MANY)).astype(int))


def band(
    x: np.ndarray,
    mean: np.ndarray,
    ends: tuple[np.ndarray, np.ndarray],
    sample: tuple[np.ndarray, np.ndarray],
    level: float,
    ax: Any = None,
) -> Any:
    """A conditional mean with an interval around it, over the sample."""
    ax = axes(ax)
    few = even_rows(len(sample[0]))
    ax.plot(sample[0][few], sample[1][few], ".", color=GREY, markersize=3, label="sample")
    ax.fill_between(
        x, *ends, color=BLUE, alpha=0.25, linewidth=0, label=f"{level:.0%} of y given x"
    )
    ax.plot(x, mean, color=BLUE, linewidth=1.8, label="mean of y given x")
    ax.set(xlabel="x", ylabel="y")
    ax.legend(fontsize="small")
    return ax


def places(
    points: np.ndarray, values: Any = None, names: tuple[str, ...] = (), ax: Any = None
) -> Any:
    """Rows in the plane of their first two columns, coloured by labels or by numbers.

    A single column is drawn against the values, where these are numbers, or else in their order.
    """
    ax = axes(ax)
    few = even_rows(len(points))
    shown = points[few]
    values = None if values is None else np.asarray(values).ravel()[few]
    labels = None if values is None else np.unique(values)
    some = labels is not None and (len(labels) <= CLASSES or labels.dtype.kind not in "fiub")
    named = [*names, "", ""]
    if shown.shape[1] == 1:
        across = not some and values is not None
        shown = np.column_stack([shown[:, 0], values if across else few])
        named, values = [named[0], "value" if across else "row"], None if across else values
    if values is None:
        ax.plot(shown[:, 0], shown[:, 1], ".", color=BLUE, markersize=4)
    elif some and labels is not None:
        for i, label in enumerate(labels[:CLASSES]):
            row = shown[values == label]
            style = {"color": COLOURS[i % len(COLOURS)], "marker": MARKS[i]}
            ax.plot(row[:, 0], row[:, 1], linestyle="", markersize=4, label=str(label), **style)
        other = shown[~np.isin(values, labels[:CLASSES])]
        if len(other):
            ax.plot(other[:, 0], other[:, 1], ".", color=GREY, markersize=3, label="others")
        ax.legend(fontsize="small")
    else:
        drawn = ax.scatter(shown[:, 0], shown[:, 1], s=12, c=values, cmap=MAP)
        ax.figure.colorbar(drawn, ax=ax, label="value")
    ax.set(xlabel=named[0], ylabel=named[1])
    return ax


def validation_curve(grid: np.ndarray, errors: np.ndarray, best: float, ax: Any = None) -> Any:
    """Errors over a grid of regularisations, with the one that was chosen."""
    ax = axes(ax)
    ax.plot(grid, errors, ".-", color=BLUE)
    ax.axvline(best, color=ORANGE, linewidth=1.5, label=f"λ = {best:.3g}")
    ax.set(xlabel="regularisation λ", ylabel="error of rows left out", xscale="log")
    ax.legend()
    return ax
