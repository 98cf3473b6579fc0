"""Quantiles of beliefs whose weights may be negative."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression

from meanmap.arrays import Array, asarray, float_like, spans, to_numpy

ROUNDING = 1e-12  # probabilities nearer than this are equal
BLOCK = 1 << 22  # heights in memory at a time


@dataclass(frozen=True)
class Distribution:
    """The distribution functions of b beliefs on the same n atoms, coordinate by coordinate.

    `F(t) = Σ wᵢ 1(xᵢ ≤ t)` of weights that sum to one need neither increase nor stay in [0, 1].
    The isotonic regression, clipped, is the distribution function nearest to it in least squares
    over the atoms. (Indicators lie outside the RKHS, so that no consistency is promised.)
    """

    atoms: Array  # (n, ...) as they came
    weights: np.ndarray  # (b, n), rows that sum to one

    def quantile(self, q: np.ndarray) -> Array:
        """The least value with F ≥ q, for every q in turn: shape (len(q), b, ...)."""
        values = to_numpy(self.atoms).reshape(len(self.weights[0]), -1).astype(np.float64)
        out = np.empty((len(q), len(self.weights), values.shape[1]))
        # F of an atom that weighs nothing may be 0: the 0-quantile is the first that weighs
        level = np.maximum(q - ROUNDING, ROUNDING)
        for j, column in enumerate(values.T):
            for rows, points, heights in self._heights(j, column):
                for i, F in zip(range(rows.start, rows.stop), heights, strict=True):
                    out[:, i, j] = points[np.searchsorted(F, level)]
        shape = (*out.shape[:2], *self.atoms.shape[1:])
        return asarray(out.reshape(shape), float_like(self.atoms))

    def _heights(
        self, j: int, column: np.ndarray
    ) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Sorted values of a coordinate, and F there, some beliefs at a time."""
        if len(self.weights) * column.size <= BLOCK:
            known = self.__dict__.setdefault("_known", {})
            if j not in known:
                known[j] = distribution_heights(column, self.weights)
            yield slice(0, len(self.weights)), *known[j]
            return
        for rows in spans(len(self.weights), max(1, BLOCK // column.size)):
            yield rows, *distribution_heights(column, self.weights[rows])


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


def orderable(points: Array) -> Array:
    """Points whose coordinates are numbers, or an error."""
    if isinstance(points, np.ndarray) and points.dtype.kind not in "fiub":
        raise TypeError(
            f"labels of type {points.dtype} have no order and so no quantiles; use .mode(), or "
            ".expect(f) with a function of the labels."
        )
    return points


def read_level(value: Any) -> float:
    """The probability of an interval, inside (0, 1)."""
    ok = isinstance(value, Real) and not isinstance(value, bool)
    if not ok or not 0 < value < 1:
        raise ValueError(
            f"level must lie between 0 and 1, got {value!r:.60}. It is the probability of the "
            "interval: 0.9 leaves 5% on each side."
        )
    return float(value)
