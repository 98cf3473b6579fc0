"""Symmetric operators: factorised once, solved for any regularisation.

Rank and jitter are decided here and nowhere else. An operator on a reproducing kernel Hilbert space
is a symmetric matrix in coordinates; its eigendecomposition serves every regularisation, the
pseudo-inverse and the leave-one-out error at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from meanmap.arrays import (
    Array,
    asarray,
    device,
    eigh,
    epsilon,
    namespace,
    one_blas_thread,
    solve_triangular,
    to_numpy,
    warn,
)


class RegularizationWarning(UserWarning):
    """A regularisation had to grow before an operator could be inverted."""


class ConflictWarning(UserWarning):
    """Prior and observation contradict each other, or a query lies far from the data."""


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

    def inverse(self, regularization: float, squared: bool = False) -> Array:
        """`(C + λI)⁻¹`, or `(C² + λI)⁻¹ C`; at λ = 0 the pseudo-inverse of either."""
        xp = namespace(self.values)
        s = self.values
        if regularization == 0:
            kept = abs(s) > self.cutoff
            f = xp.where(kept, 1 / xp.where(kept, s, xp.ones_like(s)), xp.zeros_like(s))
        else:
            f = s / (s * s + regularization) if squared else 1 / (s + regularization)
        return (self.vectors * f) @ self.vectors.T

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
                RegularizationWarning,
            )
        return grown


def ridge_inverse(matrix: Array, regularization: float) -> Array | None:
    """`(C + λI)⁻¹` by Cholesky, faster than by eigenvalues; None if λ is too small for it."""
    xp = namespace(matrix)
    size = matrix.shape[0]
    trace = float(xp.sum(xp.linalg.diagonal(matrix)))
    if not regularization > 32 * size * epsilon(matrix) * trace:
        return None
    one = xp.eye(size, dtype=matrix.dtype, device=device(matrix))
    root = solve_triangular(xp.linalg.cholesky(symmetric_part(matrix) + regularization * one), one)
    return root.T @ root


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
        one = xp.eye(size, dtype=matrix.dtype, device=device(matrix))
        A = (C @ C if squared else C) + regularization * one
        L = xp.linalg.cholesky(A)
        known = C @ right if squared else right
        return solve_triangular(L, solve_triangular(L, known), transpose=True)
    spectrum = Spectrum.of(C)
    return spectrum.inverse(spectrum.sufficient(regularization, squared), squared) @ right


def with_constant(H: Array, mu: Array) -> Array:
    """The inverse of [[C + λI, μ], [μᵀ, 1]] from that of the centred C + λI.

    The constant is one more coordinate that is not regularised, which is centring with the mean
    restored.
    """
    xp = namespace(H)
    g = (H @ mu)[:, None]
    corner = xp.reshape(1 + mu @ H @ mu, (1, 1))
    return xp.concat([xp.concat([H, -g], axis=1), xp.concat([-g.T, corner], axis=1)])


def column_signs(scores: Array) -> Array:
    """1 or -1 a column, such that times it the largest entry is positive and answers repeat."""
    table = to_numpy(scores)
    if not table.size:
        return asarray(np.ones(table.shape[1]), scores)
    largest = table[np.abs(table).argmax(axis=0), np.arange(table.shape[1])]
    return asarray(np.where(largest < 0, -1.0, 1.0), scores)


def positive_ratio(
    top: np.ndarray, bottom: np.ndarray, otherwise: float | np.ndarray
) -> np.ndarray:
    """`top / bottom` where that is positive, something else elsewhere."""
    there = bottom > 0
    return np.where(there, top / np.where(there, bottom, 1.0), otherwise)


# --- columns in their units -----------------------------------------------------------------------

FAR = 100.0  # times the middle deviation: a number beyond says nothing of the unit of its column


def far_cells(columns: np.ndarray, limit: float = FAR) -> np.ndarray:
    """Which numbers lie so many times the middle deviation from the median of their column.

    The middle deviation is the median of those that are not 0, so that a column of many ties and a
    few other values has a scale.
    """
    away = np.abs(columns - np.median(columns, axis=0))
    suspects = np.flatnonzero(away.max(axis=0) > limit * np.median(away, axis=0))
    far = np.zeros(columns.shape, dtype=bool)
    for j in suspects:
        others = away[away[:, j] > 0, j]
        if len(others):
            far[:, j] = away[:, j] > limit * np.median(others)
    return far


def column_moments(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column, without numbers that lie far from all others.

    A single wrong number, such as 1e30 for a missing one, would otherwise be the deviation of its
    column, in units of which nothing else is left of the column.
    """
    far = far_cells(columns)
    if not far.any():
        return columns.mean(axis=0), columns.std(axis=0)
    kept = np.where(far, np.nan, columns)
    return np.nanmean(kept, axis=0), np.nanstd(kept, axis=0)
