"""Bases: frozen specifications of how a kernel is given coordinates.

`basis.fit(kernel, points, weights)` returns `Coordinates`, the fitted feature map ψ, together with
the coordinates of the points themselves, which every basis has at hand when it is fitted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from meanmap.arrays import (
    TILE,
    Array,
    Points,
    count,
    first_array,
    for_each_thread,
    namespace,
    spans,
    take,
)
from meanmap.kernels import Kernel

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

    def transform(self, points: Points) -> Array:
        """ψ of every point, a row each."""
        raise TypeError(f"{type(self).__name__} has no coordinates.")

    def mean(self, points: Points, weights: Array) -> Array:
        """`Σ wᵢ ψ(xᵢ)`, without keeping ψ of every point: shape (r,) or (b, r)."""
        blocks = spans(count(points), max(1, 4 * TILE // max(self.rank, 1)))
        parts = [weights[..., block] @ self.transform(take(points, block)) for block in blocks]
        return sum(parts[1:], parts[0])

    def _blocks(self, points: Points) -> list[slice]:
        """Stretches of a sample, long enough that r × r sums cost little beside their products."""
        return list(spans(count(points), max(4 * TILE // max(self.rank, 1), self.rank)))

    def for_each_block(self, points: Points, work: Work) -> None:
        """Call `work(thread, block, ψ of the block)` for every stretch of a sample, a row a point.

        Threads may share the stretches, and what `work` is handed is overwritten afterwards.
        """
        blocks = self._blocks(points)

        def share(thread: int, of: int) -> None:
            for block in blocks[thread::of]:
                work(thread, block, self.transform(take(points, block)))

        if len(blocks) > 1 and isinstance(first_array(points), np.ndarray):
            for_each_thread(share)
        else:
            share(0, 1)

    def moments(self, points: Points, weights: Array, values: Array) -> tuple[Array, Array]:
        """`Σ wᵢ ψᵢ ψᵢᵀ` and `Σ wᵢ vᵢ ψᵢᵀ`, without keeping ψ of every point; weights ≥ 0."""
        return summed(self.for_each_block, points, weights, values)


def summed(
    for_each_block: Callable[[Points, Work], None],
    points: Points,
    weights: Array,
    values: Array,
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
        squared, crossed = psi.T @ psi, there.T @ psi
        if thread in sums:
            C, B = sums[thread]
            squared += C
            crossed += B
        sums[thread] = squared, crossed

    for_each_block(points, work)
    (C, B), *others = sums.values()
    for squared, crossed in others:
        C += squared
        B += crossed
    if even:
        C *= scale
        B *= scale
    return C, B


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

    def fit(self, kernel: Kernel, points: Points, weights: Array) -> tuple[Coordinates, Array]:
        """The feature map fitted to a weighted sample, and the sample's coordinates."""
        raise TypeError(f"{type(self).__name__} is no basis; use spaces.PivotedCholesky().")

    def fit_moments(
        self, kernel: Kernel, points: Points, weights: Array, values: Array
    ) -> tuple[Coordinates, Array, Array]:
        """The feature map with the sample's `moments` in place of its coordinates.

        A basis that does not need the coordinates of the whole sample at once does not keep them:
        memory is then r × r, whatever the size of the sample.
        """
        fitted, coordinates = self.fit(kernel, points, weights)

        def rows(points: Points, work: Work) -> None:
            for block in fitted._blocks(points):
                work(0, block, coordinates[block])

        return fitted, *summed(rows, points, weights, values)


def generator(random_state: Any) -> np.random.Generator:
    """A NumPy generator from a seed, a generator, scikit-learn's kind of state, or None."""
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(2**31)
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"random_state must be a whole number ≥ 0, a NumPy generator or None; got "
            f"{random_state!r:.60}."
        ) from error


def whole(value: Any, name: str, least: int, remedy: str) -> int:
    """A whole number, at least `least`."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number ≥ {least}, got {value!r}. {remedy}")
    return int(value)
