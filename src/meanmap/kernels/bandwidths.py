"""Choosing a bandwidth, or the scale of each column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Array, Points, epsilon, to_numpy

SUBSAMPLE = 1000
LOOKED = 10_000  # rows from which the scale of a column is found
REMEDY = 'Use bandwidth="median", a positive number, or one number per column.'
MEDIAN, SCALED = RULES = ("median", "scaled median")
LEARNED = "loo"  # scales that a conditional chooses by leave-one-out


def parse_bandwidth(text: str) -> tuple[float, str]:
    """The factor and the rule in "median", "0.5*median" or "0.5*scaled median"."""
    if text == LEARNED:
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
            f"number or one number per column; got {text!r}."
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


def as_bandwidth(widths: np.ndarray) -> float | tuple[float, ...]:
    """The widths of columns as a bandwidth: a number for one column, else a tuple of them."""
    return tuple(map(float, widths)) if len(widths) > 1 else float(widths[0])


def multiply_bandwidth(bandwidth: Any, factor: float) -> Any:
    """A multiple of a bandwidth: of a number, of one number per column, or of a rule's."""
    if isinstance(bandwidth, str):
        own, rule = parse_bandwidth(bandwidth)
        return rule if own * factor == 1 else f"{own * factor!r}*{rule}"
    if np.ndim(bandwidth) > 0:
        return tuple(float(sigma) * factor for sigma in bandwidth)
    return bandwidth * factor


def bandwidth_numbers(
    value: Any, dimension: int, remedy: str = REMEDY
) -> float | tuple[float, ...]:
    """A bandwidth given as a number, or as one number per column, or an error."""
    if value is not None and not np.isscalar(value):
        value = checks.plain(value, "bandwidth")
    if np.ndim(value) == 0:
        number = value.item() if hasattr(value, "item") else value
        return checks.positive(number, "bandwidth", remedy)
    if value.ndim > 1 or np.asarray(value).dtype.kind not in "fiu":
        raise ValueError(f"bandwidth={value!r:.60} is not understood. {remedy}")
    if len(value) != dimension:
        raise ValueError(f"bandwidth has {len(value)} entries for {dimension} columns. {remedy}")
    return tuple(checks.positive(float(number), "bandwidth", remedy) for number in value)


def resolve_bandwidth(
    value: Any, points: Array, weights: Array | None = None
) -> float | tuple[float, ...]:
    """A bandwidth as a number, or one per column, chosen on the points where it is a rule."""
    if isinstance(value, str):
        found = chosen_bandwidth(value, points, weights)
    else:
        found = bandwidth_numbers(value, points.shape[1])
    for sigma in found if isinstance(found, tuple) else (found,):
        if not 1e-150 <= sigma <= 1e150:  # its square and the inverse of that are numbers too
            raise ValueError(
                f"bandwidth={sigma:.3g} must lie between 1e-150 and 1e150. Divide the points by "
                "their scale first."
            )
    return found


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
    return as_bandwidth(factor * median_distance(x / scales, w) * scales)


def column_scales(
    points: np.ndarray, weights: np.ndarray | None = None, precision: float = 2.0**-52
) -> np.ndarray:
    """A robust scale of each column, which multiplying the column multiplies, and no shift changes.

    The range from the first to the ninth decile; for a column with more ties than that, the median
    distance of the other values from the middle one. A constant column has its own size as scale,
    or 1 if that is 0: it tells nothing, and a value that is new to it is compared with its size.
    """
    w = np.ones(len(points)) if weights is None else weights
    rows = some_rows(w, LOOKED)
    if not len(rows):
        return np.ones(points.shape[1])
    scales, low, high = np.zeros((3, points.shape[1]))
    if weights is None:  # without weights no column needs to be sorted
        at = [max(int(np.ceil(q * len(rows) * (1 - 1e-12))), 1) - 1 for q in (0.1, 0.9)]
        low, high = np.partition(points[rows], at, axis=0)[at]
    plain = high - low > 64 * precision * np.maximum(abs(low), abs(high))
    for j, column in enumerate(points.T):
        scale = high[j] - low[j] if plain[j] else _scale(column[rows], w[rows], precision)
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
    x = x - np.median(x, axis=0)
    norms = (x * x).sum(axis=1)
    squared = norms[:, None] + norms - 2 * x @ x.T
    # differences of large numbers: what may be a tie is measured again, directly
    i, j = np.nonzero(squared <= 1e-10 * max(float(norms.max(initial=0.0)), 1e-300))
    squared[i, j] = ((x[i] - x[j]) ** 2).sum(axis=1)
    pairs = np.tri(len(x), k=-1, dtype=bool) & (squared > 0)
    if not pairs.any():
        return 1.0
    distances = np.sqrt(squared[pairs])
    if np.ptp(w) <= 1e-12 * w.max():
        return float(np.median(distances))
    w = w / w.max()
    order = np.argsort(distances)
    return weighted_median(distances[order], (w[:, None] * w)[pairs][order])


def some_rows(weights: np.ndarray, most: int = SUBSAMPLE) -> np.ndarray:
    """Rows of positive weight, a fixed sample of them where they are many."""
    rows = np.flatnonzero(weights > 0)
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng(0).choice(rows, most, replace=False))


def weighted_median(values: np.ndarray, weights: np.ndarray) -> float:
    """The median of sorted values that count `weights` times each, as `np.median` would."""
    cumulative = np.cumsum(weights)
    half = cumulative[-1] / 2
    low = np.searchsorted(cumulative, half * (1 - 1e-12))
    high = np.searchsorted(cumulative, half * (1 + 1e-12), side="left")
    return float((values[low] + values[min(high, len(values) - 1)]) / 2)


# --- scales that a conditional learns -------------------------------------------------------------


@dataclass(frozen=True)
class OpenScales:
    """A sample whose kernel is a profile of `Σ (xᵢ - xᵢ')²/σᵢ²`, with scales σ to be chosen.

    Several columns may share a scale: those that code the labels of one variable do.
    """

    columns: np.ndarray  # (n, c), of about the same size
    groups: np.ndarray  # (c,), which scale each column has
    unit: Any  # the radial kernel that compares columns over their scales
    kernel: Callable[[np.ndarray], Any]  # the kernel with the scales of all groups
    rougher: OpenScales | None = None  # a less smooth kernel, where the smoothness is open as well

    def take(self, rows: np.ndarray) -> OpenScales:
        """Some of the rows."""
        rougher = None if self.rougher is None else self.rougher.take(rows)
        return replace(self, columns=self.columns[rows], rougher=rougher)

    def divided(self, scales: np.ndarray) -> np.ndarray:
        """The columns over the scales of their groups."""
        return self.columns / scales[self.groups]

    @property
    def size(self) -> int:
        """The number of scales."""
        return int(self.groups.max(initial=-1)) + 1


def scaled_columns(points: Points, weights: Array | None) -> tuple[np.ndarray, np.ndarray]:
    """Columns of numbers about their middle, each divided by its robust scale, and the scales."""
    x = to_numpy(points).astype(np.float64)
    scales = column_scales(x, None if weights is None else to_numpy(weights).astype(np.float64))
    return (x - np.median(x, axis=0)) / scales, scales
