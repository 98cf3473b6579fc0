"""Finite feature maps, which kernels that have one hand to the `Explicit` basis."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement
from math import comb, factorial, prod, sqrt

import numpy as np

from meanmap.arrays import (
    Array,
    Points,
    asarray,
    count,
    float_like,
    full,
    namespace,
    take,
    to_numpy,
)


class FeatureMap:
    """ψ with k(x, x') = ψ(x)·ψ(x'): callable on points, of a known `rank`."""

    rank: int

    def __call__(self, points: Points) -> Array:
        raise TypeError(f"{type(self).__name__} has no features.")


@dataclass(frozen=True)
class Flat(FeatureMap):
    """ψ(x) = vec(x): the linear kernel on vectors, the trace kernel on matrices."""

    rank: int

    def __call__(self, points: Points) -> Array:
        return namespace(points).reshape(points, (points.shape[0], -1))


@dataclass(frozen=True)
class Ones(FeatureMap):
    """ψ(x) = √c, the constant kernel."""

    value: float
    rank: int = 1

    def __call__(self, points: Points) -> Array:
        return full((count(points), 1), sqrt(self.value), float_like(points))


def equal(A: Array, B: Array) -> Array:
    """Which points of A equal which of B; rows are equal if every entry is."""
    if A.ndim == 1:
        return A[:, None] == B[None, :]
    out = A[:, None, 0] == B[None, :, 0]
    for column in range(1, A.shape[1]):
        out &= A[:, None, column] == B[None, :, column]
    return out


class OneHot(FeatureMap):
    """ψ(x) = e_x over the categories seen at fit; a category never seen has no coordinates."""

    def __init__(self, points: Points) -> None:
        rows = to_numpy(points)
        self.categories = np.unique(rows, axis=0 if rows.ndim > 1 else None)
        self.rank = len(self.categories)

    def __call__(self, points: Points) -> Array:
        if isinstance(points, np.ndarray):
            return equal(points, self.categories).astype(np.float64)
        xp, like = namespace(points), float_like(points)
        return xp.astype(equal(points, asarray(self.categories, points)), like.dtype)


class Monomials(FeatureMap):
    """The features of (⟨x, x'⟩ + c)^p: every monomial of degree ≤ p (exactly p if c = 0)."""

    def __init__(self, dimension: int, degree: int, offset: float) -> None:
        self.dimension, self.degree, self.offset = dimension, degree, offset
        variables = dimension + (1 if offset else 0)
        self.rank = comb(variables + degree - 1, degree)

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        """Which coordinates each monomial multiplies, and its coefficient √(p!/Πe!)."""
        variables = self.dimension + (1 if self.offset else 0)
        terms = list(combinations_with_replacement(range(variables), self.degree))
        counts = [[term.count(v) for v in set(term)] for term in terms]
        coefficients = [sqrt(factorial(self.degree) / prod(map(factorial, c))) for c in counts]
        return np.array(terms, dtype=int).reshape(len(terms), self.degree), np.array(coefficients)

    def __call__(self, points: Points) -> Array:
        xp = namespace(points)
        terms, coefficients = self._table
        if self.offset:  # the offset is one more coordinate, √c
            column = sqrt(self.offset) * xp.ones_like(points[:, :1])
            points = xp.concat([points, column], axis=1)
        out = asarray(coefficients, points)[None, :]
        for position in range(self.degree):
            out = out * take(points.T, terms[:, position]).T
        return out * xp.ones_like(points[:, :1])


@dataclass(frozen=True)
class Stacked(FeatureMap):
    """(ψ₁(x), ψ₂(x), …): the features of a sum of kernels."""

    parts: tuple[FeatureMap, ...]

    @property
    def rank(self) -> int:  # type: ignore[override]
        return sum(part.rank for part in self.parts)

    def __call__(self, points: Points) -> Array:
        columns = [part(points) for part in self.parts]
        return namespace(*columns).concat(columns, axis=1)


@dataclass(frozen=True)
class Crossed(FeatureMap):
    """ψ₁(x) ⊗ ψ₂(x) ⊗ …: a product of kernels, or a tensor product when points are tuples."""

    parts: tuple[FeatureMap, ...]
    on_pairs: bool = False

    @property
    def rank(self) -> int:  # type: ignore[override]
        return prod(part.rank for part in self.parts)

    def __call__(self, points: Points) -> Array:
        inputs = points if self.on_pairs else (points,) * len(self.parts)
        first, *others = (part(p) for part, p in zip(self.parts, inputs, strict=True))
        xp = namespace(first)
        for factor in others:  # the Kronecker product of matching rows
            first = xp.reshape(first[:, :, None] * factor[:, None, :], (first.shape[0], -1))
        return first
