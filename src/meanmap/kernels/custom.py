"""Kernels that users bring: a function, or a Gram matrix that was computed elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Array, Points, asarray, count, float_like, is_array, namespace, take
from meanmap.kernels.base import Comparison, Kernel


class Function(Kernel):
    """A positive definite function of your own.

    Parameters
    ----------
    function : callable
        `function(x, y)` → number for two points; with `vectorized=True`, `function(A, B)` → the
        (n, m) Gram matrix of two sets of points.
    vectorized : bool
        Which of the two it is.

    Examples
    --------
    >>> from meanmap.kernels import Function
    >>> overlap = Function(lambda x, y: min(x[0], y[0]))
    >>> overlap([[1.0], [3.0]])
    array([[1., 1.],
           [1., 3.]])
    """

    def __init__(self, function: Callable[..., Any], vectorized: bool = False) -> None:
        self.function = function
        self.vectorized = vectorized

    def _check(self, points: Any, name: str) -> Points:
        return checks.any_points(points, name)

    def _against(self, B: Points) -> Comparison:
        like = float_like(B)
        return lambda A, columns, out: self._values(A, take(B, columns), like)

    def _values(self, A: Points, B: Points, like: Array) -> Array:
        if self.vectorized:
            values = self.function(A, B)
            values = values if is_array(values) else np.asarray(values)
        else:
            values = np.array([float(self.function(a, b)) for a in A for b in B])
            values = values.reshape(count(A), count(B))
        if values.shape != (count(A), count(B)):
            raise ValueError(
                f"the kernel function returned shape {tuple(values.shape)} for {count(A)} and "
                f"{count(B)} points; expected ({count(A)}, {count(B)})."
            )
        values = asarray(values, like)
        if not bool(namespace(values).all(namespace(values).isfinite(values))):
            raise ValueError("the kernel function returned NaN or infinity for some points.")
        return values

    def _diagonal(self, A: Points) -> Array:
        like = float_like(A)
        rows = [take(A, slice(i, i + 1)) for i in range(count(A))]
        values = [float(self._values(row, row, like)[0, 0]) for row in rows]
        return asarray(values, like)


class Precomputed(Kernel):
    """A Gram matrix computed elsewhere; points are integer indices into it.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import embed
    >>> from meanmap.kernels import Precomputed
    >>> kernel = Precomputed(np.array([[1.0, 0.5], [0.5, 1.0]]))
    >>> float(embed(np.array([0, 1]), kernel=kernel).norm() ** 2)
    0.75
    """

    def __init__(self, gram: Array) -> None:
        self.gram = gram

    def resolve(self, points: Points, weights: Array | None = None) -> Kernel:
        self._matrix()
        return super().resolve(points, weights)

    def _matrix(self) -> np.ndarray:
        gram = np.asarray(self.gram, dtype=np.float64)
        if gram.ndim != 2 or gram.shape[0] != gram.shape[1]:
            raise ValueError(f"gram must be a square matrix, got shape {gram.shape}.")
        if not np.isfinite(gram).all():
            raise ValueError("gram contains NaN or infinity.")
        if abs(gram - gram.T).max(initial=0.0) > 1e-8 * max(abs(gram).max(initial=0.0), 1e-300):
            raise ValueError(
                "gram must be symmetric: k(x, x') = k(x', x). Use (gram + gram.T) / 2."
            )
        return gram

    def _check(self, points: Any, name: str) -> Points:
        return checks.indices(points, len(self.gram), name)

    def _against(self, B: Points) -> Comparison:
        gram = asarray(self.gram, float_like(B))
        return lambda A, columns, out: gram[A][:, take(B, columns)]

    def _diagonal(self, A: Points) -> Array:
        return asarray(self.gram, float_like(A))[A, A]
