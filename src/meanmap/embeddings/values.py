"""Weights on atoms, and the values of functions at atoms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import (
    Array,
    Points,
    asarray,
    assign,
    count,
    first_array,
    float_like,
    is_array,
    namespace,
    spans,
    take,
    to_numpy,
)

HEIGHTS = 1 << 22  # of distribution functions in memory at a time
ROUNDING = 1e-12  # of the square of a range: a variance below is none


@dataclass(frozen=True)
class Deferred:
    """A large sample's coordinates, which nobody keeps: computed a block at a time."""

    space: Any
    points: Points
    intercept: bool = False  # one more coordinate, constantly 1

    def array(self) -> Array:
        """All of them at once."""
        return namespace(first_array(self.points)).concat([rows for _, rows in self.blocks()])

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Stretches of the sample and their coordinates."""
        for block in spans(count(self.points), 1 << 12):
            psi = self.space.coordinates(take(self.points, block))
            if self.intercept:
                xp = namespace(psi)
                psi = xp.concat([psi, xp.ones_like(psi[:, :1])], axis=1)
            yield block, psi

    def weighted(self, scale: Array, values: Array) -> Array:
        """`valuesᵀ diag(scale) rows`."""
        parts = [values[b].T @ (scale[b][:, None] * rows) for b, rows in self.blocks()]
        return sum(parts[1:], parts[0])


def as_rows(rows: Any) -> Array:
    """Coordinates as an array, whether they were kept or not."""
    return rows.array() if isinstance(rows, Deferred) else rows


def row_blocks(rows: Any) -> Iterator[tuple[slice, Array]]:
    """Stretches of a sample and their coordinates: one, where they were kept."""
    return rows.blocks() if isinstance(rows, Deferred) else iter([(slice(None), rows)])


@dataclass(frozen=True)
class FactoredWeights:
    """Weights `scale ∘ (rows · vector)`, kept as factors: n × r and r numbers, never n × batch.

    With `rest`, weights (n,) that sum to one, `missing` times those are added.
    """

    scale: Array
    rows: Any  # an array, or Deferred
    vector: Array  # (r,) or (b, r)
    rest: Array | None = None
    missing: Array | None = None  # () or (b,)

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.vector.shape[:-1], self.scale.shape[0])

    @property
    def ndim(self) -> int:
        return int(self.vector.ndim)

    def dense(self) -> Array:
        weights = self.scale * (self.vector @ as_rows(self.rows).T)
        if self.rest is None or self.missing is None:
            return weights
        return weights + self.missing[..., None] * self.rest

    def apply(self, values: Array) -> Array:
        """`Σᵢ wᵢ valuesᵢ` for values (n, q)."""
        if isinstance(self.rows, Deferred):
            total = self.vector @ self.rows.weighted(self.scale, values).T
        else:
            total = self.vector @ (self.rows.T @ (self.scale[:, None] * values))
        if self.rest is None or self.missing is None:
            return total
        return total + self.missing[..., None] * (self.rest @ values)

    def __getitem__(self, index: Any) -> FactoredWeights:
        missing = None if self.missing is None else self.missing[index]
        return FactoredWeights(self.scale, self.rows, self.vector[index], self.rest, missing)

    def multiplied(self, factor: Array) -> FactoredWeights:
        """These weights times one number, or one for each of the batch."""
        missing = None if self.missing is None else self.missing * factor
        vector = self.vector * factor[..., None]
        return FactoredWeights(self.scale, self.rows, vector, self.rest, missing)


def function_values(f: Callable[[Points], Array], atoms: Points) -> Array:
    """`f` at all the atoms, checked: one value (or row) for each."""
    if not callable(f):
        raise TypeError(f"expected a function of the points, got {checks.describe(f)}.")
    values = f(atoms)
    like = float_like(atoms)
    values = asarray(values if is_array(values) else np.asarray(values), like)
    if values.ndim == 0 or values.shape[0] != count(atoms):
        raise ValueError(
            f"the function returned shape {tuple(values.shape)} for {count(atoms)} points; it gets "
            "all points at once and must return one value (or row) for each: use array operations, "
            "or np.vectorize."
        )
    return values


def numeric(points: Array) -> Array:
    """Points as numbers, for moments."""
    if isinstance(points, np.ndarray) and points.dtype.kind not in "fiub":
        raise TypeError(
            f"labels of type {points.dtype} have no mean; use .mode(), or .expect(f) with a "
            "function of the labels."
        )
    return asarray(points, float_like(points))


def leaves(points: Points) -> list[Array]:
    """The arrays that points consist of."""
    return [leaf for p in points for leaf in leaves(p)] if isinstance(points, tuple) else [points]


def each_part(points: Points, function: Callable[[Array], Array]) -> Any:
    """Apply a function to points, part by part where they are tuples."""
    if isinstance(points, tuple):
        return tuple(each_part(part, function) for part in points)
    return function(points)


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
    variance of 0 would pass for certainty.
    """
    spread = second - first * first
    xp = namespace(spread)
    wrong = spread < 0
    if not bool(xp.any(wrong)):
        return spread
    # only the beliefs that need it are written out
    rows = to_numpy(xp.any(wrong, axis=-1)).nonzero() if spread.ndim > 1 else ()
    some = weights[rows] if rows else weights
    host = to_numpy(some.dense() if isinstance(some, FactoredWeights) else some)
    found = _monotone_variance(host.reshape(-1, host.shape[-1]), to_numpy(values))
    part = asarray(found if rows else found[0], spread)
    if not rows:
        return xp.where(wrong, part, spread)
    there = xp.where(wrong[rows], part, spread[rows])
    return assign(xp.asarray(spread, copy=True), rows, there)


def _monotone_variance(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Variances of beliefs (m, n) in each column of values (n, q), (m, q).

    F of weights that swing need not increase. Half way between the least function above it and the
    greatest below that do increase is nearly the isotonic regression that quantiles are read from,
    and is found for all beliefs at once. The positive part of the weights would be far too wide:
    they swing everywhere.
    """
    out = np.empty((len(weights), values.shape[1]))
    for rows in spans(len(weights), max(1, HEIGHTS // weights.shape[1])):
        some = weights[rows].astype(np.float64)
        some = np.where(some.sum(axis=1, keepdims=True) > 0, some, abs(some))
        for j, column in enumerate(values.T.astype(np.float64)):
            order = np.argsort(column, kind="stable")
            F = np.cumsum(some[:, order], axis=1)
            F /= np.where(F[:, -1:] > 0, F[:, -1:], 1.0)
            above = np.maximum.accumulate(F, axis=1)
            below = np.minimum.accumulate(F[:, ::-1], axis=1)[:, ::-1]
            F = np.clip((above + below) / 2, 0.0, 1.0)
            F[:, -1] = 1.0
            p, x = np.diff(F, axis=1, prepend=0.0), column[order]
            found = _variance_under(p, x)
            # all of F on one value: the weights know less than that
            out[rows, j] = np.where(
                found > 0, found, _variance_under(np.clip(some, 0, None), column)
            )
    return out


def _variance_under(p: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The variance of x (n,) under each row of weights p ≥ 0."""
    p = p / p.sum(axis=1, keepdims=True)
    return np.sum(p * (x - (p @ x)[:, None]) ** 2, axis=1)


def root(value: Array) -> Array:
    """√ of a square that rounding may have made negative."""
    if not is_array(value):
        return np.sqrt(max(value, 0.0))
    xp = namespace(value)
    return xp.where(value < 0, xp.zeros_like(value), value) ** 0.5
