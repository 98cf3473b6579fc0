"""Choosing a bandwidth."""

from __future__ import annotations

import numpy as np

from meanmap.arrays import Array, to_numpy

SUBSAMPLE = 1000


def median_factor(text: str) -> float:
    """The multiple in "median" or "0.5*median"."""
    if text == "loo":
        raise ValueError(
            'bandwidth="loo" is chosen by ConditionalEmbedding, for the kernel on X; elsewhere use '
            '"median", a multiple like "0.5*median", or a number.'
        )
    number, star, word = text.rpartition("*")
    try:
        factor = float(number) if star else 1.0
    except ValueError:
        factor = -1.0
    if word.strip() != "median" or not 0 < factor < float("inf"):
        raise ValueError(
            f"bandwidth must be 'median', a multiple like '0.5*median', a positive number or one "
            f"number a column; got {text!r}."
        )
    return factor


def median_distance(points: Array, weights: Array | None = None) -> float:
    """The median distance between two different points of a (weighted) sample.

    Above 1,000 points a fixed subsample stands for all. Pairs of equal points are left out, so that
    the answer is never 0 on tied data and a point of weight 2 counts as the same point twice; if
    all points are equal there is no scale to find and the answer is 1.
    """
    x = to_numpy(points).astype(np.float64)
    x = x.reshape(len(x), -1)
    scale = float(abs(x).max(initial=0.0)) or 1.0
    if not 1e-100 < scale < 1e100:  # squares would vanish
        return scale * median_distance(x / scale, weights) if np.ptp(x) > 0 else 1.0
    w = np.ones(len(x)) if weights is None else to_numpy(weights).astype(np.float64)
    x, w = x[w > 0], w[w > 0]
    if len(x) > SUBSAMPLE:
        chosen = np.sort(np.random.default_rng(0).choice(len(x), SUBSAMPLE, replace=False))
        x, w = x[chosen], w[chosen]
    if len(x) < 2:
        return 1.0
    i, j = np.triu_indices(len(x), k=1)
    x = x - np.median(x, axis=0)
    norms = (x * x).sum(axis=1)
    squared = np.maximum(norms[:, None] + norms[None, :] - 2 * x @ x.T, 0.0)[i, j]
    # differences of large numbers: what may be a tie is measured again, directly
    close = np.flatnonzero(squared <= 1e-10 * max(float(norms.max(initial=0.0)), 1e-300))
    squared[close] = ((x[i[close]] - x[j[close]]) ** 2).sum(axis=1)
    w = w / w.max()
    pair = w[i] * w[j]
    kept = squared > 0
    if not kept.any():
        return 1.0
    distances, pair = np.sqrt(squared[kept]), pair[kept]
    if np.ptp(pair) <= 1e-12 * pair.max():
        return float(np.median(distances))
    order = np.argsort(distances)
    return float(_weighted_median(distances[order], pair[order]))


def _weighted_median(values: np.ndarray, weights: np.ndarray) -> float:
    """The median of sorted values that count `weights` times each, as `np.median` would."""
    cumulative = np.cumsum(weights)
    half = cumulative[-1] / 2
    low = np.searchsorted(cumulative, half * (1 - 1e-12))
    high = np.searchsorted(cumulative, half * (1 + 1e-12), side="left")
    return float((values[low] + values[min(high, len(values) - 1)]) / 2)
