"""The protocol of bases: how a kernel is given coordinates.

| of a `Basis` | |
|---|---|
| `fit(kernel, points, weights)` | the fitted `Coordinates`, and those of the points, one per row |
| `prepare(kernel, points, weights)` | the `Coordinates` alone, in place of `fit` where possible |
| `fit_moments(kernel, points, weights, values)` | the same with sums in place of the rows |
| `known_rank` | the rank before it is fitted, 0 if it is not known |
| `streams` | whether `fit_moments` reads points block by block and keeps no rows |
| `tolerance` | the residual that it promises on the sample, infinite if it promises none |
| `exact` | whether ψ(x)·ψ(x') is k(x, x') everywhere |

| of `Coordinates` | |
|---|---|
| `rank`, `residual` | how many there are, and the error that was measured on the sample |
| `transform(points)` | ψ of every point, one row per point |
| `mean`, `for_each_block`, `moments` | sums over ψ, for which there may be a faster way |
| `projects` | whether ψ(x) is k(x, ·) projected on a subspace: what it misses bounds its error |
| `nested` | whether the first coordinates alone are a coarser space |
| `landmarks` | points P whose k(p, ·) span the space, and L with k(P, P) = LLᵀ; or None |

A basis must have `fit` or `prepare`, and coordinates `rank`, `residual` and `transform`; the rest
has defaults. Points have passed the kernel's gate and weights sum to one: nothing is checked again
here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from meanmap.arrays import (
    TILE,
    Array,
    Points,
    count,
    first_array,
    namespace,
    share_blocks,
    spans,
    take,
    to_double,
)
from meanmap.kernels import Kernel
from meanmap.kernels.features import FeatureMap

# (thread, block, ψ of the block): what is done with a stretch of a sample's coordinates
Work = Callable[[int, slice, Array], None]


class Coordinates:
    """A fitted feature map ψ with k(x, x') ≈ ψ(x)·ψ(x').

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.kernels import Gaussian
    >>> from meanmap.spaces import PivotedCholesky
    >>> X = np.random.default_rng(0).normal(size=(200, 1))
    >>> found, psi = PivotedCholesky(1e-6).fit(Gaussian(1.0), X, np.full(200, 1 / 200))
    >>> bool(abs(psi @ psi.T - Gaussian(1.0)(X)).max() < 1e-2)
    True
    >>> bool(abs(found.transform(X) - psi).max() < 1e-8)
    True
    """

    rank: int
    #: Σ wᵢ (k(xᵢ, xᵢ) - ‖ψ(xᵢ)‖²) over Σ wᵢ k(xᵢ, xᵢ), on the sample it was fitted to; where ψ is
    #: no projection, the mean of |k(x, x') - ψ(x)·ψ(x')| over pairs of the sample.
    residual: float
    #: Whether ψ(x) is k(x, ·) projected on a subspace, so that what it misses bounds its error.
    projects: ClassVar[bool] = True
    #: Whether the first coordinates alone are a coarser space.
    nested: ClassVar[bool] = False

    @property
    def landmarks(self) -> tuple[Points, Array] | None:
        """Points P whose k(p, ·) span the space, and L with k(P, P) = LLᵀ, lower triangular."""
        return None

    def transform(self, points: Points) -> Array:
        """ψ of every point, one row per point."""
        raise TypeError(f"{type(self).__name__} has no coordinates.")

    def mean(self, points: Points, weights: Array) -> Array:
        """`Σ wᵢ ψ(xᵢ)`, without keeping ψ of every point: shape (r,) or (b, r)."""
        blocks = spans(count(points), max(1, 4 * TILE // max(self.rank, 1)))
        parts = [weights[..., block] @ self.transform(take(points, block)) for block in blocks]
        return sum(parts[1:], parts[0])

    def blocks(self, points: Points) -> list[slice]:
        """Stretches of a sample, long enough that r × r sums cost little beside their products."""
        return list(spans(count(points), max(4 * TILE // max(self.rank, 1), self.rank)))

    def for_each_block(self, points: Points, work: Work) -> None:
        """Call `work(thread, block, ψ of the block)` for every stretch of a sample.

        ψ has one row per point.

        Threads may share the stretches, and what `work` is handed is overwritten afterwards.
        """
        blocks = self.blocks(points)

        def transform(thread: int, blocks: list[slice]) -> None:
            for block in blocks:
                work(thread, block, self.transform(take(points, block)))

        many = len(blocks) > 1 and isinstance(first_array(points), np.ndarray)
        share_blocks(transform, blocks, many)

    def moments(self, points: Points, weights: Array, values: Array) -> tuple[Array, Array]:
        """`Σ wᵢ ψᵢ ψᵢᵀ` and `Σ wᵢ vᵢ ψᵢᵀ`, without keeping ψ of every point; weights ≥ 0."""
        return weighted_moments(self.for_each_block, points, weights, values)


def weighted_moments(
    for_each_block: Callable[[Points, Work], None], points: Points, weights: Array, values: Array
) -> tuple[Array, Array]:
    """`Σ wᵢ ψᵢ ψᵢᵀ`, r × r, and `Σ wᵢ vᵢ ψᵢᵀ`, q × r, over blocks of rows ψᵢ and of values vᵢ."""
    xp = namespace(weights)
    scale = float(xp.max(weights))
    even = bool(xp.all(weights == scale))  # then ψ need not be scaled row by row
    root = xp.sqrt(weights)[:, None]
    sums: dict[int, tuple[Array, Array]] = {}

    def work(thread: int, block: slice, psi: Array) -> None:
        there = values[block]
        if not even:
            psi, there = psi * root[block], there * root[block]
        # in single precision a block is, and their sum is double
        squared, crossed = to_double(psi.T @ psi), to_double(there.T @ psi)
        if thread in sums:
            squared += sums[thread][0]
            crossed += sums[thread][1]
        sums[thread] = squared, crossed

    for_each_block(points, work)
    C, B = (sum(parts[1:], parts[0]) for parts in zip(*sums.values(), strict=True))
    return (scale * C, scale * B) if even else (C, B)


@dataclass(frozen=True)
class Basis:
    """How a kernel is given coordinates.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.spaces import Nystroem, Space
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> Space(basis=Nystroem(20, random_state=0)).fit(X).transform(X[:3]).shape
    (3, 20)
    """

    #: Whether `fit_moments` reads the points block by block, after `prepare`, and keeps no rows.
    streams: ClassVar[bool] = False
    #: Whether ψ(x)·ψ(x') is k(x, x') everywhere.
    exact: ClassVar[bool] = False

    @property
    def tolerance(self) -> float:
        """The residual that it promises on the sample, infinite if it promises none."""
        return 0.0 if self.exact else math.inf

    @property
    def known_rank(self) -> int:
        """The rank before it is fitted, 0 if it is not known."""
        return 0

    def prepare(self, kernel: Kernel, points: Points, weights: Array) -> Coordinates:
        """The feature map for a weighted sample; a residual that is NaN is measured later."""
        raise TypeError(f"{type(self).__name__} is not a basis; use spaces.PivotedCholesky().")

    def fit(self, kernel: Kernel, points: Points, weights: Array) -> tuple[Coordinates, Array]:
        """The feature map fitted to a weighted sample, and the sample's coordinates."""
        fitted = self.prepare(kernel, points, weights)
        psi = fitted.transform(points)
        if math.isnan(fitted.residual):
            squares = weights @ namespace(psi).linalg.vecdot(psi, psi)
            fitted = with_residual(fitted, kernel, points, weights, squares)
        return fitted, psi

    def fit_moments(
        self, kernel: Kernel, points: Points, weights: Array, values: Array
    ) -> tuple[Coordinates, Array, Array]:
        """The feature map with the sample's `moments` in place of its coordinates.

        A basis that does not need the coordinates of the whole sample at once does not keep them:
        memory is then r × r, whatever the size of the sample.
        """
        if self.streams:
            fitted = self.prepare(kernel, points, weights)
            C, B = fitted.moments(points, weights, values)
            if math.isnan(fitted.residual):
                squares = namespace(C).linalg.trace(C)
                fitted = with_residual(fitted, kernel, points, weights, squares)
            return fitted, C, B
        fitted, coordinates = self.fit(kernel, points, weights)

        def rows(points: Points, work: Work) -> None:
            for block in fitted.blocks(points):
                work(0, block, coordinates[block])

        return fitted, *weighted_moments(rows, points, weights, values)


def with_residual(
    fitted: Any, kernel: Kernel, points: Points, weights: Array, squares: Array
) -> Coordinates:
    """Coordinates that know their residual: what `Σ wᵢ ‖ψ(xᵢ)‖²` lacks of `Σ wᵢ k(xᵢ, xᵢ)`."""
    total = float(weights @ kernel.squared_norms(points))
    missed = max(total - float(squares), 0.0) / total if total > 0 else 0.0
    return replace(fitted, residual=missed)


# --- the kernel's own features --------------------------------------------------------------------


@dataclass(frozen=True)
class Features(Coordinates):
    """Coordinates that are the kernel's own features: exact everywhere."""

    feature_map: FeatureMap
    residual: float = 0.0

    @property
    def rank(self) -> int:  # type: ignore[override]
        return self.feature_map.rank

    def transform(self, points: Points) -> Array:
        return self.feature_map(points)


@dataclass(frozen=True)
class Explicit(Basis):
    """The kernel's own finite features: one-hot, vec(R), monomials. Exact.

    Examples
    --------
    >>> from meanmap.kernels import Delta
    >>> from meanmap.spaces import Explicit, Space
    >>> Space(Delta(), Explicit()).fit_transform(["b", "a", "b"])
    array([[0., 1.],
           [1., 0.],
           [0., 1.]])
    """

    exact: ClassVar[bool] = True

    def prepare(self, kernel: Kernel, points: Points, weights: Array) -> Coordinates:
        feature_map = kernel.feature_map(points)
        if feature_map is None:
            raise TypeError(
                f"{kernel!r} has no finite features, which Explicit() needs. "
                "Use basis=PivotedCholesky(), or None to let the library choose."
            )
        return Features(feature_map)
