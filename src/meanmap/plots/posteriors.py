"""Posteriors of simulators' parameters, and whether to trust them."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter

from meanmap.plots.canvas import BLUE, COLOURS, GREY, ORANGE, STYLES, axes, new_sheets


def corner(draws: np.ndarray, names: list[str], truth: np.ndarray | None, ax: Any = None) -> Any:
    """A grid of panels: each parameter on the diagonal, pairs of them below it.

    Dark is what 90% of the draws are (the likeliest, for a pair), the contour inside holds 50%.
    Columns share their ranges; a parameter of a few whole numbers gets a bar for each.
    """
    d = draws.shape[1]
    if ax is None:
        size = min(1.2 + 2.2 * d, 12)
        ax = new_sheets(d, d, (size, size), squeeze=False)
    grid = np.asarray(ax, dtype=object).reshape(d, d)
    known = [None] * d if truth is None else list(truth)
    edges = [_edges(column, true) for column, true in zip(draws.T, known, strict=True)]
    for i, j in np.ndindex(d, d):
        place: Any = grid[i, j]
        if j > i:
            place.set_axis_off()
            continue
        if i == j:
            _marginal(place, draws[:, i], edges[i])
        else:
            _pair(place, draws[:, [j, i]], (edges[j], edges[i]))
        if truth is not None:
            place.axvline(truth[j], color=ORANGE, linewidth=1.2)
            if i != j:
                place.axhline(truth[i], color=ORANGE, linewidth=1.2)
                place.plot(truth[j], truth[i], "o", color=ORANGE, markersize=5)
        place.set_xlim(edges[j][0], edges[j][-1])
        place.locator_params(nbins=4)
        place.tick_params(labelbottom=i == d - 1, labelleft=j == 0 and i > 0)
        if i == j:
            place.set_yticks([])
        if i == d - 1:
            place.set_xlabel(names[j])
        if j == 0 and i > 0:
            place.set_ylabel(names[i])
    return grid


def _edges(column: np.ndarray, truth: float | None) -> np.ndarray:
    """Edges of bins: one bin a value for a few whole numbers, else 40 from end to end."""
    values = np.unique(column)
    if len(values) <= 20 and (values == np.round(values)).all():
        return np.arange(values[0] - 0.5, values[-1] + 1)
    shown = np.quantile(column, [0.001, 0.999])
    if truth is not None:
        shown = np.array([min(shown[0], truth), max(shown[1], truth)])
    margin = 0.05 * (shown[1] - shown[0]) or 0.5
    return np.linspace(shown[0] - margin, shown[1] + margin, 41)


def _marginal(place: Any, column: np.ndarray, edges: np.ndarray) -> None:
    """A histogram, dark in the central 90%."""
    low, high = np.quantile(column, [0.05, 0.95])
    bars = place.hist(column, edges, density=True, color=BLUE)[2]
    for bar in bars:
        middle = bar.get_x() + bar.get_width() / 2
        bar.set_alpha(0.75 if low <= middle <= high else 0.3)


def _pair(place: Any, draws: np.ndarray, edges: tuple[np.ndarray, np.ndarray]) -> None:
    """Where the draws of two parameters lie: the regions of 50% and 90%, and draws outside."""
    counts = np.histogram2d(draws[:, 0], draws[:, 1], edges)[0].T
    place.set_ylim(edges[1][0], edges[1][-1])
    if min(counts.shape) < 40:  # whole numbers: a table
        place.pcolormesh(*edges, counts, cmap="Blues")
        return
    smooth = gaussian_filter(counts, 1.5, mode="constant")
    heights = np.sort(smooth.ravel())[::-1]
    mass = np.cumsum(heights) / heights.sum()
    outer, inner = (float(heights[np.searchsorted(mass, share)]) for share in (0.9, 0.5))
    across, up = ((e[1:] + e[:-1]) / 2 for e in edges)
    dots = {"color": BLUE, "markersize": 2, "markeredgewidth": 0, "alpha": 0.3, "zorder": 0.5}
    place.plot(draws[:, 0], draws[:, 1], ".", **dots)
    if 0 < outer < inner < heights[0]:
        levels = [outer, inner, float(heights[0])]
        place.contourf(across, up, smooth, levels, colors=["#9ecae1", "#4292c6"])
        place.contour(across, up, smooth, levels[:2], colors=BLUE, linewidths=0.8)


def coverage(
    levels: np.ndarray, curves: np.ndarray, names: list[str], runs: int, ax: Any = None
) -> Any:
    """How often intervals hold the truth, against what they promise; chance shaded."""
    ax = axes(ax)
    band = 2 * np.sqrt(levels * (1 - levels) / runs)
    ax.fill_between(levels, levels - band, levels + band, color=GREY, alpha=0.3, linewidth=0)
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=1)
    for i, (name, curve) in enumerate(zip(names, curves.T, strict=True)):
        style = {"color": COLOURS[i % len(COLOURS)], "linestyle": STYLES[i // len(COLOURS) % 4]}
        ax.plot(levels, curve, linewidth=1.5, label=name, **style)
    ax.set(xlabel="credible level", ylabel="share of runs that hold the truth", aspect="equal")
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ax.legend(loc="upper left", fontsize="small", frameon=False)
    return ax


def predictive(simulated: np.ndarray, observed: np.ndarray, ax: Any = None) -> Any:
    """The spread of every output in simulations, with the observed values, all standardised."""
    ax = axes(ax)
    centre, scale = simulated.mean(axis=0), simulated.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    place = np.arange(len(observed))
    ends = np.quantile((simulated - centre) / scale, [0.05, 0.25, 0.75, 0.95], axis=0)
    width = float(np.clip(200 / len(observed), 2, 10))
    thick = {"color": BLUE, "linewidth": width}
    ax.vlines(place, ends[0], ends[3], alpha=0.3, label="90% of simulations", **thick)
    ax.vlines(place, ends[1], ends[2], alpha=0.6, label="50%", **thick)
    ax.plot(place, (observed - centre) / scale, "o", color=ORANGE, label="observed", zorder=3)
    ax.set(xlabel="output", ylabel="standard deviations from the mean")
    ax.set_xlim(-0.6, len(observed) - 0.4)
    if len(observed) <= 20:
        ax.set_xticks(place)
    above = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": 3, "frameon": False}
    ax.legend(fontsize="small", **above)
    return ax
