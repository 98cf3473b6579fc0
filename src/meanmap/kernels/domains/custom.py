"""Kernels that users bring: a function, scikit-learn's, or a Gram matrix computed elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from meanmap import checks
from meanmap.arrays import (
    Array,
    Points,
    asarray,
    count,
    float_like,
    is_floating,
    namespace,
    take,
    to_numpy,
)
from meanmap.kernels.protocol import Comparison, Kernel


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

    def read_points(self, points: Any, name: str) -> Points:
        return checks.any_points(points, name)

    def against(self, B: Points) -> Comparison:
        like = float_like(B)
        return lambda A, columns, out: self._values(A, take(B, columns), like)

    def _values(self, A: Points, B: Points, like: Array) -> Array:
        if self.vectorized:
            values = checks.plain(self.function(A, B), "what the kernel function returned")
        else:
            values = np.array([float(self.function(a, b)) for a in A for b in B])
            values = values.reshape(count(A), count(B))
        if values.shape != (count(A), count(B)):
            raise ValueError(
                f"the kernel function returned shape {tuple(values.shape)} for {count(A)} and "
                f"{count(B)} points; expected ({count(A)}, {count(B)})."
            )
        xp = namespace(values)
        if is_floating(values) and not bool(xp.all(xp.isfinite(values))):
            raise ValueError("the kernel function returned NaN or infinity for some points.")
        return asarray(checks.numbers(values, "what the kernel function returned"), like)

    def squared_norms(self, A: Points) -> Array:
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

    domain = "indices"

    def resolve(self, points: Points, weights: Array | None = None) -> Self:
        gram = checks.numbers(self.gram, "gram")
        host = to_numpy(gram)
        if abs(host - host.T).max(initial=0.0) > 1e-8 * max(abs(host).max(initial=0.0), 1e-300):
            raise ValueError(
                "gram must be symmetric: k(x, x') = k(x', x). Use (gram + gram.T) / 2."
            )
        return self.replace(gram=gram)

    def read_points(self, points: Any, name: str) -> Points:
        gram = checks.plain(self.gram, "gram")
        if gram.ndim != 2 or gram.shape[0] != gram.shape[1]:
            raise ValueError(f"gram must be a square matrix, got shape {tuple(gram.shape)}.")
        return _read_indices(points, len(gram), name)

    def against(self, B: Points) -> Comparison:
        gram = asarray(self.gram, float_like(B))
        return lambda A, columns, out: gram[A][:, take(B, columns)]

    def squared_norms(self, A: Points) -> Array:
        return asarray(self.gram, float_like(A))[A, A]


def _read_indices(value: Any, size: int, name: str) -> Array:
    """Indices into a Gram matrix of `size` rows: an integer array of shape (n,)."""
    array = checks.any_points(value, name)
    if array.ndim != 1 or not namespace(array).isdtype(array.dtype, "integral"):
        raise TypeError(
            f"{name}: a precomputed kernel takes integer indices into its Gram matrix, of shape "
            f"(n,); got {checks.describe(array)} with dtype {array.dtype}. Use np.arange(n)."
        )
    low, high = int(array.min()), int(array.max())
    if low < 0 or high >= size:
        raise ValueError(
            f"{name}: indices must lie in 0 … {size - 1}, the rows of the Gram matrix; "
            f"got {low} … {high}."
        )
    return array


def is_scikit_learn(kernel: Any) -> bool:
    """Whether it is a kernel of `sklearn.gaussian_process.kernels`, which is not imported here."""
    module = sys.modules.get("sklearn.gaussian_process.kernels")
    return module is not None and isinstance(kernel, module.Kernel)


class ScikitLearn(Kernel):
    """A kernel of `sklearn.gaussian_process.kernels`, with its parameters as they are.

    Wherever a kernel is asked for, scikit-learn's may be passed and is wrapped in this. It is taken
    to be bounded if it is stationary. `WhiteKernel` is noise of a measurement and no function of
    two points: it is refused, and its place is the regularisation.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from meanmap.kernels import Gaussian, ScikitLearn
    >>> X = [[0.0], [1.0], [3.0]]
    >>> bool(abs(ScikitLearn(RBF(2.0))(X) - Gaussian(2.0)(X)).max() < 1e-15)
    True
    """

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    @property
    def bounded(self) -> bool:  # type: ignore[override]
        """Whether k(x, x) stays bounded on the whole domain: where k is stationary."""
        return bool(self._inner().is_stationary())

    @property
    def domain(self) -> str:  # type: ignore[override]
        """Vectors, or whatever scikit-learn's kernel takes."""
        return "vectors" if self._inner().requires_vector_input else "any"

    def _inner(self) -> Any:
        if not is_scikit_learn(self.kernel):
            raise TypeError(
                "ScikitLearn takes a kernel of sklearn.gaussian_process.kernels, got "
                f"{checks.describe(self.kernel)}."
            )
        parts = [self.kernel, *self.kernel.get_params().values()]
        if any(type(part).__name__ == "WhiteKernel" for part in parts):
            raise ValueError(
                f"{self.kernel!r} contains a WhiteKernel, which is noise and no function of two "
                "points. Leave it out; the regularisation takes its place."
            )
        return self.kernel

    def read_points(self, points: Any, name: str) -> Points:
        check = checks.vectors if self.on_vectors else checks.any_points
        return check(points, name)

    def against(self, B: Points) -> Comparison:
        like = float_like(B)

        def compare(A: Points, columns: Any, out: Any) -> Array:
            return asarray(self.kernel(to_numpy(A), to_numpy(take(B, columns))), like)

        return compare

    def squared_norms(self, A: Points) -> Array:
        return asarray(self.kernel.diag(to_numpy(A)), float_like(A))
