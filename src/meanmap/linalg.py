"""Symmetric operators: factorised once, solved for any regularisation.

Rank and jitter are decided here and nowhere else. An operator on a reproducing kernel Hilbert space
is a symmetric matrix in coordinates; its eigendecomposition serves every regularisation, the
pseudo-inverse and the leave-one-out error at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.linalg

from meanmap.arrays import (
    Array,
    assign,
    device,
    eigh,
    epsilon,
    in_precision,
    namespace,
    one_blas_thread,
    solve_triangular,
    spans,
    to_double,
    transpose,
    widest,
)
from meanmap.exceptions import SettingWarning, warn

STRETCH = 1024  # rows whose products are summed in single precision
STEPS = 100  # of Newton's method
ARMIJO = 1e-4  # of the decrease that the slope promises must be seen
SHORTEST = 1e-9  # step that is tried


def too_large() -> ValueError:
    """The error for an operator that overflows."""
    return ValueError(
        "the kernel's values are so large that the operator overflows. Rescale the data (divide "
        "by the standard deviation), or use a bounded kernel such as Gaussian()."
    )


def symmetric_part(matrix: Array) -> Array:
    """The symmetric part, so that rounding does not leave a symmetric solver with two answers."""
    return (matrix + matrix.T) / 2


@dataclass(frozen=True)
class Spectrum:
    """The eigendecomposition `C = V diag(s) Vᵀ` of a symmetric operator.

    An operator in single precision is decomposed in double: then what is rounding in its spectrum
    is that of its entries alone, and does not grow with their number.
    """

    values: Array
    vectors: Array

    @classmethod
    def of(cls, matrix: Array) -> Spectrum:
        """Factorise a symmetric matrix."""
        xp = namespace(matrix)
        if not bool(xp.all(xp.isfinite(matrix))):
            raise too_large()
        with one_blas_thread():  # two threads can take many times as long
            return cls(*eigh(symmetric_part(matrix)))

    @property
    def cutoff(self) -> float:
        """Below this an eigenvalue is rounding: of the operator, and of its decomposition."""
        if self.values.shape[0] == 0:
            return 0.0
        xp = namespace(self.values)
        top, of_double = float(xp.max(abs(self.values))), float(np.finfo(np.float64).eps)
        return 32 * top * max(self.values.shape[0] * of_double, epsilon(self.values))

    def inverse(self, regularization: float, squared: bool = False, rounding: float = 0.0) -> Array:
        """`(C + λI)⁻¹`, or `(C² + λI)⁻¹ C`; at λ = 0 the pseudo-inverse of either.

        `rounding` is what C lost before it was decomposed, of its largest eigenvalue.
        """
        xp = namespace(self.values)
        s = self.values
        if regularization == 0:
            kept = abs(s) > max(self.cutoff, 32 * rounding * float(xp.max(abs(s))))
            f = xp.where(kept, 1 / xp.where(kept, s, xp.ones_like(s)), xp.zeros_like(s))
        else:
            f = s / (s * s + regularization) if squared else 1 / (s + regularization)
        return (self.vectors * f) @ self.vectors.T

    def ridge(self, regularization: float) -> Array:
        """`inverse` with a λ that is `sufficient`."""
        return self.inverse(self.sufficient(regularization))

    def sufficient(self, regularization: float, squared: bool = False) -> float:
        """A λ that `inverse` can work with: this one, or a larger one with a warning.

        If `C + λI` is singular to working precision λ grows tenfold until it is not, as Fukumizu,
        Song and Gretton (2013, Figure 1) advise.
        """
        if regularization == 0 or self.values.shape[0] == 0:
            return regularization
        xp = namespace(self.values)
        grown, least = regularization, float(xp.min(self.values))
        bar = self.cutoff
        if squared:
            least, bar = float(xp.min(self.values * self.values)), bar * bar
        if not math.isfinite(bar) or not math.isfinite(regularization):
            raise too_large()
        while least + grown <= bar:
            grown *= 10
        if grown > regularization:
            warn(
                f"the operator is singular to working precision at regularization="
                f"{regularization:.3g}; it was raised to {grown:.3g}. "
                "Pass that or a larger value to silence this.",
                SettingWarning,
            )
        return grown


class Inverse:
    """A regularised inverse H, as the matrix that it is.

    It is in double precision, in which it is also applied: its numbers are as large as 1/λ, and
    what they multiply nearly cancels. Rows and answers have a precision of their own.
    """

    def __init__(self, matrix: Array) -> None:
        self.matrix = matrix
        self.size = int(matrix.shape[0])

    def apply(self, rows: Array) -> Array:
        """`rows H`, of rows (…, r)."""
        return in_precision(in_precision(rows, self.matrix) @ self.matrix, rows)

    def forms(self, rows: Array) -> Array:
        """`ψᵀHψ` of every row ψ."""
        wide = in_precision(rows, self.matrix)
        found = namespace(rows).einsum("ij,ij->i", wide @ self.matrix, wide)
        return in_precision(found, rows)


class RidgeInverse(Inverse):
    """`(C + λI)⁻¹` as the Cholesky factor of C + λI, computed when it is first asked for.

    Triangular solves with it take half the time of products with the matrix, and those who never
    multiply by the matrix are spared its computation.
    """

    def __init__(self, size: int, factor: Array | partial[Array]) -> None:
        self.size = size
        self._factor = factor

    @property
    def factor(self) -> Array:
        """L, lower triangular, with `C + λI = LLᵀ`."""
        factor = self._factor = evaluate(self._factor)
        return factor

    @cached_property
    def matrix(self) -> Array:  # type: ignore[override]  # computed when it is asked for
        L = self.factor
        if isinstance(L, np.ndarray) and self.size:
            (potri,) = scipy.linalg.get_lapack_funcs(("potri",), (L,))
            half = potri(L, lower=True)[0]
            return half + np.tril(half, -1).T
        one = namespace(L).eye(self.size, dtype=L.dtype, device=device(L))
        root = solve_triangular(L, one)
        return root.T @ root

    def apply(self, rows: Array) -> Array:
        wide = in_precision(rows, self.factor)
        return in_precision(transpose(solve_cholesky(self.factor, transpose(wide))), rows)

    def forms(self, rows: Array) -> Array:
        solved = solve_triangular(self.factor, in_precision(rows, self.factor).T)
        return in_precision(namespace(rows).einsum("ij,ij->j", solved, solved), rows)


def evaluate(value: Array | partial[Array]) -> Array:
    """A value that may have waited to be asked for."""
    return value() if isinstance(value, partial) else value


def covariance(rows: Array, weights: Array, room: np.ndarray | None = None) -> Array:
    """`rowsᵀ diag(w) rows`, of weights that are not negative; `room` is a buffer for NumPy.

    The product of a matrix with itself takes half the time of another one, and is symmetric.
    Products in single precision are summed in double.
    """
    root = namespace(rows).sqrt(weights)[:, None]
    root = root * rows if room is None else np.multiply(root, rows, out=room)
    return sum_squares(root)


def sum_squares(rows: Array) -> Array:
    """`rowsᵀ rows`, in double precision."""
    if rows.dtype == widest(rows):
        return rows.T @ rows
    step = max(STRETCH, rows.shape[1])
    parts = (to_double(rows[some].T @ rows[some]) for some in spans(rows.shape[0], step))
    return sum(parts, 0 * to_double(rows[:1].T @ rows[:1]))


def cholesky_factor(matrix: Array) -> Array:
    """L, lower triangular, with `LLᵀ` a symmetric matrix without other references.

    One triangle of the matrix is read.
    """
    if isinstance(matrix, np.ndarray):
        # the transpose is the matrix in the order that LAPACK works in, and L's that of BLAS
        return scipy.linalg.cholesky(matrix.T, lower=True, overwrite_a=True, check_finite=False)
    return namespace(matrix).linalg.cholesky(matrix)


def solve_cholesky(factor: Array, right: Array) -> Array:
    """`(LLᵀ)⁻¹ b`."""
    return solve_triangular(factor, solve_triangular(factor, right), transpose=True)


def ridge_factor(matrix: Array | partial[Array], regularization: float) -> Array:
    """The Cholesky factor of C + λI."""
    C = matrix() if isinstance(matrix, partial) else matrix + 0  # a copy of what others hold
    each = np.arange(C.shape[0])
    C = assign(C, (each, each), namespace(C).linalg.diagonal(C) + regularization)
    return cholesky_factor(C)


def ridge_inverse(
    matrix: Array | partial[Array], regularization: float, diagonal: Array, rounding: float = 0.0
) -> RidgeInverse | None:
    """`(C + λI)⁻¹` by Cholesky, faster than by eigenvalues; None if λ is too small for it.

    C may be computed later; its diagonal says what λ it needs, and that C is known to `rounding`.
    """
    size, trace = diagonal.shape[0], float(namespace(diagonal).sum(diagonal))
    if not regularization > max(32 * size * epsilon(diagonal), rounding / 4) * trace:
        return None
    return RidgeInverse(size, partial(ridge_factor, matrix, regularization))


def solve_ridge(matrix: Array, regularization: float, right: Array, squared: bool = False) -> Array:
    """`(C + λI)⁻¹ b`, or `(C² + λI)⁻¹ C b`, for a symmetric C that is solved with only once.

    By Cholesky where λ is large enough for it, else by eigenvalues.
    """
    xp = namespace(matrix)
    size = matrix.shape[0]
    C = symmetric_part(matrix)
    scale = float(xp.max(xp.sum(abs(C), axis=1))) if size else 0.0  # ≥ the largest eigenvalue
    if not math.isfinite(scale):
        raise too_large()
    scale = scale * scale if squared else scale
    definite = squared or bool(xp.all(xp.linalg.diagonal(C) >= 0))
    if definite and regularization > 1e3 * size * epsilon(matrix) * scale:
        L = ridge_factor(C @ C if squared else C, regularization)
        return solve_cholesky(L, C @ right if squared else right)
    spectrum = Spectrum.of(C)
    return spectrum.inverse(spectrum.sufficient(regularization, squared), squared) @ right


def newton_descent(
    look: Callable[[Array], tuple[float, Any]],
    gradient: Callable[[Array, Any], Array],
    solve: Callable[[Array, Any], Array],
    start: Array,
    goal: float,
) -> Any:
    """Minimise a convex function by Newton's method with line search.

    `look(x)` returns the value at x and whatever else is known there. `gradient(x, there)` and
    `solve(gradient, there)`, the inverse Hessian times the gradient, are computed from the latter;
    that of the minimum is returned.
    """
    x, (value, there) = start, look(start)
    for _ in range(STEPS):
        slope = gradient(x, there)
        if float(slope @ slope) ** 0.5 <= goal:
            break
        step, length = solve(slope, there), 1.0
        down = float(slope @ step)
        while length > SHORTEST:
            lower, after = look(x - length * step)
            if lower <= value - ARMIJO * length * down:
                break
            length /= 2
        else:  # no progress but rounding
            break
        x, value, there = x - length * step, lower, after
    return there


def with_constant(H: Array, mu: Array) -> Array:
    """The inverse of [[C + λI, μ], [μᵀ, 1]] from that of the centred C + λI.

    The constant is one more coordinate that is not regularised, which is centring with the mean
    restored.
    """
    xp = namespace(H)
    right, below = (H @ mu)[:, None], (mu @ H)[None, :]
    corner = xp.reshape(1 + mu @ H @ mu, (1, 1))
    return xp.concat([xp.concat([H, -right], axis=1), xp.concat([-below, corner], axis=1)])
