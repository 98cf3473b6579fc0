"""Outcomes over treatments."""

from __future__ import annotations

from typing import Any

import numpy as np

from meanmap.plots.canvas import BLUE, GREY, axes


def causal_curve(
    at: np.ndarray,
    mean: np.ndarray,
    bands: tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
    level: float,
    names: tuple[str, str],
    ax: Any = None,
) -> Any:
    """A mean with intervals at each treatment and a band for all, or points with whiskers."""
    ax = axes(ax)
    (low, high), (lowest, highest) = bands
    if at.dtype.kind in "fiu" and len(at) > 2:
        order = np.argsort(at)
        x = at[order]
        for ends, alpha, name in (
            ((lowest, highest), 0.15, f"{level:.0%} band of the whole curve"),
            ((low, high), 0.25, f"{level:.0%} interval at each treatment"),
        ):
            ax.fill_between(
                x, ends[0][order], ends[1][order], color=BLUE, alpha=alpha, linewidth=0, label=name
            )
        ax.plot(x, mean[order], color=BLUE, linewidth=1.8)
        ax.legend(fontsize="small")
    else:
        places = np.arange(len(at))
        ax.vlines(places, low, high, color=GREY, linewidth=2)
        ax.plot(places, mean, "o", color=BLUE)
        ax.set_xticks(places, [str(name) for name in at])
        ax.set_xlim(-0.5, len(at) - 0.5)
    ax.set(xlabel=names[0], ylabel=names[1])
    return ax


def support_curve(at: np.ndarray, support: np.ndarray, name: str, ax: Any = None) -> Any:
    """The share of rows with support at each treatment."""
    ax = axes(ax)
    if at.dtype.kind in "fiu" and len(at) > 2:
        order = np.argsort(at)
        ax.plot(at[order], support[order], color=BLUE, linewidth=1.8)
    else:
        ax.bar([str(label) for label in at], support, color=BLUE)
    ax.axhline(1.0, color=GREY, linewidth=1)
    ax.set(xlabel=name, ylabel="share of rows with similar treated rows", ylim=(0, 1.05))
    return ax
