"""Quantiles and variances of beliefs whose weights may be negative."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression

from meanmap import checks
from meanmap.arrays import Array, asarray, assign, float_like, namespace, spans, take, to_numpy
from meanmap.decoding.monotone import BLOCK, monotone_variance

ROUNDING = 1e-12  # probabilities nearer than this are equal


@dataclass(frozen=True)
class Distribution:
    """The distribution functions of b beliefs on the same n atoms, coordinate by coordinate.

    `F(t) = Σ wᵢ 1(xᵢ ≤ t)` of weights that sum to one need neither increase nor stay in [0, 1].
    The isotonic regression, clipped, is the distribution function nearest to it in least squares
    over the atoms. (Indicators lie outside the RKHS, so that no consistency is promised.)
    """

    atoms: Array  # (n, ...) as they came
    weights: np.ndarray  # (b, n), rows that sum to one
    known: dict[int, Any] = field(default_factory=dict, repr=False)  # what was sorted already

    def quantile(self, q: np.ndarray) -> Array:
        """The least value with F ≥ q, for every q in turn: shape (len(q), b, ...)."""
        values = to_numpy(self.atoms).reshape(len(self.weights[0]), -1).astype(np.float64)
        out = np.empty((len(q), len(self.weights), values.shape[1]))
        # F of an atom that weighs nothing may be 0: the 0-quantile is the first that weighs
        level = np.maximum(q - ROUNDING, ROUNDING)
        blocks = list(spans(len(self.weights), max(1, BLOCK // len(values))))
        for j, column in enumerate(values.T):
            for rows in blocks:
                found = self.known.get(j) or distribution_heights(column, self.weights[rows])
                if len(blocks) == 1:
                    self.known[j] = found
                for i, F in enumerate(found[1], rows.start):
                    out[:, i, j] = found[0][np.searchsorted(F, level)]
        shape = (*out.shape[:2], *self.atoms.shape[1:])
        return asarray(out.reshape(shape), float_like(self.atoms))


def distribution_heights(column: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different values in order, and the distribution functions (b, u) there."""
    order = np.argsort(column, kind="stable")
    ordered = column[order]
    last = np.append(np.flatnonzero(np.diff(ordered) > 0), len(ordered) - 1)  # of equal values
    F = np.cumsum(weights[:, order], axis=1)[:, last]
    times = np.diff(last, prepend=-1).astype(np.float64)  # how many atoms share a value
    for i in np.flatnonzero((np.diff(F, axis=1) < 0).any(axis=1)):
        F[i] = isotonic_regression(F[i], weights=times).x
    F = np.clip(F, 0.0, 1.0)
    F[:, -1] = 1.0
    return ordered[last], F


def read_levels(q: Any) -> np.ndarray:
    """Numbers in [0, 1], of any shape."""
    try:
        array = np.asarray(to_numpy(q) if hasattr(q, "shape") else q, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"q must be a probability or an array of them, got {q!r:.60}.") from error
    if not ((array >= 0) & (array <= 1)).all():
        wrong = array[~((array >= 0) & (array <= 1))]
        raise ValueError(
            f"q must lie in [0, 1], got {wrong.flat[0]:.6g}. The median is q=0.5; a percentage is "
            "divided by 100."
        )
    return array


def refuse_labels(points: Array, lack: str = "order and so no quantiles") -> None:
    """Refuse points whose coordinates are not numbers."""
    if isinstance(points, np.ndarray) and points.dtype.kind not in "fiub":
        raise TypeError(
            f"labels of type {points.dtype} have no {lack}; use .mode(), or .expect(f) with a "
            "function of the labels."
        )


def read_level(value: Any) -> float:
    """The probability of an interval, inside (0, 1)."""
    remedy = "It is the probability of the interval: 0.9 leaves 5% on each side."
    return checks.fraction(value, "level", remedy)


def middle(values: Array) -> Array:
    """A point amid numbers (n, …): in each column the median of at most 101 rows, one of them.

    A difference of second moments about the origin has no digits left where a sample lies far from
    it, so moments are taken about this point. A mean would follow a single wild row.
    """
    rows = np.linspace(0, values.shape[0] - 1, min(values.shape[0], 101)).astype(int)
    some = np.sort(to_numpy(take(values, rows)), axis=0)
    return asarray(some[(len(some) - 1) // 2], values)


def variance(first: Array, second: Array, weights: Any, values: Array) -> Array:
    """`E x² - (E x)²` in each column, of a distribution near the weights where it is negative.

    `first` and `second` are (…, q), `values` (n, q), all about a point amid them (`middle`). A
    variance of 0 would pass for certainty. Weights are an array, or factors that are `dense()`.
    """
    spread = second - first * first
    xp = namespace(spread)
    wrong = spread < 0
    if not bool(xp.any(wrong)):
        return spread
    # only the beliefs that need it are written out
    rows = to_numpy(xp.any(wrong, axis=-1)).nonzero() if spread.ndim > 1 else ()
    some = weights[rows] if rows else weights
    some = some.dense() if hasattr(some, "dense") else some
    found = monotone_variance(xp.reshape(some, (-1, some.shape[-1])), values)
    part = found if rows else found[0]
    if not rows:
        return xp.where(wrong, part, spread)
    there = xp.where(wrong[rows], part, spread[rows])
    return assign(xp.asarray(spread, copy=True), rows, there)
