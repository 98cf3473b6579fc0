"""Small numbers for statistics of differences: kernels about their mean.

MMD and HSIC stay the same when functions of one point are added to a kernel, k(x, x') + f(x) +
f(x'). Such a part can be larger than all that matters by many orders: a linear kernel far from the
origin, a Gaussian far wider than the data. Then sums of the kernel as it is are mostly rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meanmap.arrays import (
    Array,
    Points,
    asarray,
    count,
    epsilon,
    float_like,
    namespace,
    take,
)
from meanmap.kernels import Kernel
from meanmap.kernels.algebra import Around
from meanmap.kernels.protocol import ALL, Comparison
from meanmap.statistics.gates import middle_of, movable, near_origin
from meanmap.statistics.tiles import ROUNDINGS, diagonal_of

REFERENCES = 16  # points whose mean a kernel is centred at
SOME = 100  # points on which it is judged whether a kernel needs to be centred
EASY = 0.1  # of a kernel's size: variance above which it does not
SHARE = 32  # of the points, where kernels may be dear: one in so many is a reference


class Centred(Around):
    """⟨k(x, ·) - m, k(x', ·) - m⟩, with m the mean of k(r, ·) over a few reference points r.

    Parameters
    ----------
    kernel : Kernel, resolved
    references : points r, or None to leave the kernel as it is
    rounding : float
        By how much rounding may change an element of the Gram matrix.
    """

    def __init__(self, kernel: Kernel, references: Points | None, rounding: float) -> None:
        self.kernel = kernel
        self.references = references
        self.rounding = rounding

    @classmethod
    def at_mean(cls, kernel: Kernel, points: Points) -> Centred:
        """A kernel centred at some of the points."""
        n = count(points)
        m = min(n, REFERENCES if kernel.on_vectors else max(1, min(REFERENCES, n // SHARE)))
        references = take(points, np.linspace(0, n - 1, m).astype(int))
        (small,) = near_origin([kernel], points)
        size = float(np.mean(np.abs(diagonal_of(kernel, small))))
        return cls(kernel, references, ROUNDINGS * epsilon(float_like(points)) * size)

    @classmethod
    def of(cls, kernel: Kernel, points: Points) -> Centred:
        """The same where it makes numbers smaller.

        Where most of a kernel's size is variance already, centring would gain a digit at most.
        """
        if isinstance(kernel, Centred):
            return kernel
        found = cls.at_mean(kernel, points)
        some = take(points, np.linspace(0, count(points) - 1, min(SOME, count(points))).astype(int))
        whole, variance = (float(np.mean(np.abs(diagonal_of(k, some)))) for k in (kernel, found))
        return cls(kernel, None, found.rounding) if variance > EASY * whole else found

    def __repr__(self) -> str:
        return repr(self.kernel)

    def _heights(self, references: Points) -> Callable[[Points], Array]:
        """A function of points: what is taken off their rows and columns."""
        m, near = count(references), self.kernel.against(references)
        weights = asarray(np.full(m, 1 / m), float_like(references))
        middle = weights @ (near(references, ALL, None) @ weights)
        return lambda points: near(points, ALL, None) @ weights - middle / 2

    def _moved(self, points: Points) -> Points:
        """The points, seen from the references' mean where only differences count."""
        if self.references is None or not movable([self.kernel]):
            return points
        return points - middle_of(self.references)

    def against(self, B: Points) -> Comparison:
        centre = self.centre(B)
        if centre is None:
            return self.kernel.against(B)
        plain, moved = self.kernel.against(self._moved(B)), self._moved
        return lambda A, columns, out: centre(plain(moved(A), columns, out), A, columns)

    def centre(self, B: Points) -> Callable[[Array, Points, Any], Array] | None:
        """A function that centres tiles of the kernel itself, (tile, A, columns), in place."""
        if self.references is None:
            return None
        heights, moved = self._heights(self._moved(self.references)), self._moved
        right = heights(moved(B))

        def take_off(tile: Array, A: Points, columns: Any) -> Array:
            tile -= heights(moved(A))[:, None]
            tile -= right[columns][None, :]
            return tile

        return take_off

    def squared_norms(self, A: Points) -> Array:
        if self.references is None:
            return self.kernel.squared_norms(A)
        xp, moved = namespace(float_like(A)), self._moved(A)
        heights = self._heights(self._moved(self.references))
        values = self.kernel.squared_norms(moved) - 2 * heights(moved)
        # what is left of a point at the mean is rounding
        return xp.where(values > self.rounding, values, xp.zeros_like(values))


def center_kernel(kernel: Kernel, points: Points) -> Kernel:
    """The kernel about the mean of the points; itself where its numbers are small already."""
    found = Centred.of(kernel, points)
    return kernel if found.references is None else found
