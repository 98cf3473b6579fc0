"""A kernel whose strongest directions are toned down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meanmap import checks
from meanmap.arrays import Array, Points, asarray, float_like, namespace
from meanmap.kernels.algebra import Around
from meanmap.kernels.protocol import Comparison, Kernel


class Whitened(Around):
    """k(x, x') - f(x)·f(x'), with f(x) = Aᵀ k(P, x) the kernel's strongest directions on a sample.

    Where a few directions carry most of a kernel's variance, a distance sees little else. In the
    inner product with (C + λI)⁻¹ all directions of variance above λ count alike, as in Hotelling's
    T²; with a delta kernel and small λ the squared distance is Pearson's χ². Up to the factor λ
    that kernel is k less s/(s + λ) times its part along each eigenfunction of variance s, and
    eigenfunctions are sums of k(p, ·) over landmarks p. No direction is lost altogether. Made by
    the tests of two samples and of independence, on their own data.

    Parameters
    ----------
    kernel : Kernel, resolved
    landmarks : points P
    factor : array A, a row a landmark, a column a direction

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.kernels import Gaussian
    >>> from meanmap.kernels.domains.whitened import Whitened
    >>> k = Whitened(Gaussian(1.0), np.zeros((1, 1)), np.array([[0.5]]))
    >>> k(np.array([[0.0], [3.0]])).round(3)
    array([[0.75 , 0.008],
           [0.008, 1.   ]])
    """

    def __init__(self, kernel: Kernel, landmarks: Points, factor: Array) -> None:
        self.kernel = kernel
        self.landmarks = landmarks
        self.factor = factor

    def __repr__(self) -> str:
        return f"Whitened({self.kernel!r}, {self.factor.shape[1]} directions)"

    @property
    def plain(self) -> Kernel:
        """The kernel before it was whitened, whose functions are easier to read."""
        return self.kernel

    def _directions(self, like: Points) -> Callable[[Points], Array]:
        """f of every point, one row per point, for points of the kind of `like`."""
        landmarks = checks.same_kind(self.landmarks, like, "landmarks")
        factor = asarray(self.factor, float_like(like))
        return lambda points: self.kernel.gram_times(points, landmarks, factor)

    def against(self, B: Points) -> Comparison:
        plain, directions = self.kernel.against(B), self._directions(B)
        right = directions(B).T

        def compare(A: Points, columns: Any, out: Any) -> Array:
            tile = plain(A, columns, out)
            tile -= directions(A) @ right[:, columns]
            return tile

        return compare

    def squared_norms(self, A: Points) -> Array:
        f = self._directions(A)(A)
        return self.kernel.squared_norms(A) - namespace(f).sum(f * f, axis=1)
