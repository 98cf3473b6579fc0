"""Choosing a bandwidth."""

from __future__ import annotations

from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Array, epsilon, to_numpy

SUBSAMPLE = 1000
LOOKED = 10_000  # rows from which the scale of a column is found
MEDIAN, SCALED = RULES = ("median", "scaled median")


def parse_bandwidth(text: str) -> tuple[float, str]:
    """The factor and the rule in "median", "0.5*median" or "0.5*scaled median"."""
    if text == "loo":
        raise ValueError(
            'bandwidth="loo" is chosen by ConditionalEmbedding, for the kernel on X; elsewhere use '
            '"median", a multiple like "0.5*median", or a number.'
        )
    number, star, rule = text.rpartition("*")
    try:
        factor = float(number) if star else 1.0
    except ValueError:
        factor = -1.0
    rule = rule.strip()
    if rule not in RULES or not 0 < factor < float("inf"):
        raise ValueError(
            "bandwidth must be 'median', 'scaled median', a multiple like '0.5*median', a positive "
            f"number or one number a column; got {text!r}."
        )
    return factor, rule


def median_factor(text: str, expected: str = MEDIAN) -> float:
    """The multiple in "median" or "0.5*median", where points have no columns to be scaled."""
    factor, rule = parse_bandwidth(text)
    if rule != expected:
        raise ValueError(
            f"got {text!r} where a number or a multiple of {expected!r} is expected, such as "
            f"'0.5*{expected}'."
        )
    return factor


def multiply_bandwidth(bandwidth: Any, factor: float) -> Any:
    """A multiple of a bandwidth: of a number, of one number per column, or of a rule's."""
    if isinstance(bandwidth, str):
        own, rule = parse_bandwidth(bandwidth)
        return rule if own * factor == 1 else f"{own * factor!r}*{rule}"
    if np.ndim(bandwidth) > 0:
        return tuple(float(sigma) * factor for sigma in bandwidth)
    return bandwidth * factor


def bandwidth_numbers(value: Any, dimension: int) -> float | tuple[float, ...]:
    """A bandwidth given as a number, or as one number per column, or an error."""
    remedy = 'Use bandwidth="median", a positive number, or one number a column.'
    if value is not None and not np.isscalar(value):
        value = checks.plain(value, "bandwidth")
    shape = np.shape(value)
    if shape == ():
        number = value.item() if hasattr(value, "item") else value
        return _refuse_extremes(checks.positive(number, "bandwidth", remedy))
    if len(shape) > 1 or np.asarray(value).dtype.kind not in "fiu":
        raise ValueError(f"bandwidth={value!r:.60} is not understood. {remedy}")
    numbers = tuple(_refuse_extremes(checks.positive(float(v), "bandwidth", remedy)) for v in value)
    if len(numbers) != dimension:
        raise ValueError(f"bandwidth has {len(numbers)} entries for {dimension} columns. {remedy}")
    return numbers


def resolve_bandwidth(
    value: Any, points: Array, weights: Array | None = None
) -> float | tuple[float, ...]:
    """A bandwidth as a number, or one per column, chosen on the points where it is a rule."""
    if not isinstance(value, str):
        return bandwidth_numbers(value, points.shape[1])
    found = chosen_bandwidth(value, points, weights)
    for sigma in found if isinstance(found, tuple) else (found,):
        _refuse_extremes(sigma)
    return found


def _refuse_extremes(bandwidth: float) -> float:
    """A bandwidth whose square and its inverse are numbers too."""
    if not 1e-150 <= bandwidth <= 1e150:
        raise ValueError(
            f"bandwidth={bandwidth:.3g} must lie between 1e-150 and 1e150. Divide the points by "
            "their scale first."
        )
    return bandwidth


def chosen_bandwidth(
    text: str, points: Array, weights: Array | None = None
) -> float | tuple[float, ...]:
    """The bandwidth that a rule finds on a sample; one per column for "scaled median"."""
    factor, rule = parse_bandwidth(text)
    if rule == MEDIAN or points.shape[1] == 1:
        return factor * median_distance(points, weights)
    x = to_numpy(points).astype(np.float64)
    w = None if weights is None else to_numpy(weights).astype(np.float64)
    scales = column_scales(x, w, max(epsilon(points), 2.0**-52))
    sigma = factor * median_distance(x / scales, w)
    return tuple(float(sigma * scale) for scale in scales)


def column_scales(
    points: np.ndarray, weights: np.ndarray | None = None, precision: float = 2.0**-52
) -> np.ndarray:
    """A robust scale of each column, which multiplying the column multiplies, and no shift changes.

    The range from the first to the ninth decile; for a column with more ties than that, the median
    distance of the other values from the middle one. A constant column has its own size as scale,
    or 1 if that is 0: it tells nothing, and a value that is new to it is compared with its size.
    """
    w = np.ones(len(points)) if weights is None else weights
    rows = np.flatnonzero(w > 0)
    if len(rows) > LOOKED:
        rows = np.sort(np.random.default_rng(0).choice(rows, LOOKED, replace=False))
    if not len(rows):
        return np.ones(points.shape[1])
    scales = np.empty(points.shape[1])
    for j, column in enumerate(points.T):
        scale = _scale(column[rows], w[rows], precision)
        if not scale and len(rows) < len(column):
            scale = _scale(column[w > 0], w[w > 0], precision)
        scales[j] = scale or float(abs(column[rows[0]])) or 1.0
    return np.clip(scales, 1e-150, 1e150)


def _scale(column: np.ndarray, w: np.ndarray, precision: float) -> float:
    """The scale of one column, 0 if it is constant up to rounding."""
    order = np.argsort(column, kind="stable")
    x, total = column[order], np.cumsum(w[order])
    low, middle, high = (
        x[min(np.searchsorted(total, q * total[-1] * (1 - 1e-12)), len(x) - 1)]
        for q in (0.1, 0.5, 0.9)
    )
    # rounding is relative to the numbers that are compared: one huge one says nothing of the others
    if high - low > 64 * precision * max(abs(low), abs(high)):
        return float(high - low)
    away = abs(x - middle)
    differs = away > 64 * precision * np.maximum(abs(x), abs(middle))
    away, others = away[differs], w[order][differs]
    if not len(away):
        return 0.0
    order = np.argsort(away, kind="stable")
    return weighted_median(away[order], others[order])


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
    chosen = some_rows(w)
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
    return float(weighted_median(distances[order], pair[order]))


def some_rows(weights: np.ndarray) -> np.ndarray:
    """Rows of positive weight, a fixed sample of them where they are many."""
    rows = np.flatnonzero(weights > 0)
    if len(rows) <= SUBSAMPLE:
        return rows
    return rows[np.sort(np.random.default_rng(0).choice(len(rows), SUBSAMPLE, replace=False))]


def weighted_median(values: np.ndarray, weights: np.ndarray) -> float:
    """The median of sorted values that count `weights` times each, as `np.median` would."""
    cumulative = np.cumsum(weights)
    half = cumulative[-1] / 2
    low = np.searchsorted(cumulative, half * (1 - 1e-12))
    high = np.searchsorted(cumulative, half * (1 + 1e-12), side="left")
    return float((values[low] + values[min(high, len(values) - 1)]) / 2)
