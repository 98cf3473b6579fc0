"""The operator of an additive filter, for the beliefs that it is applied to.

`μ' = T₁ μ + T₂ ψ(o')` is learned by regression of ψ(s') on ω = (ψ(s), ψ(o')). Beliefs μ are less
sure than states: regression on states counts on the past too much. What regression on beliefs needs
are second moments alone, and the model says them. With `N = E[ψ(s) μᵀ]` and `M = E[μ μᵀ]`, and as
the past acts on what comes by the state only,

    E[ψ(s') μᵀ] = A N,  E[ψ(o') μᵀ] = U N,  A = C_s's (C_ss + λI)⁻¹,  U = C_o's (C_ss + λI)⁻¹.

They give T, and T the moments of the next beliefs, `M' = T E[ω ωᵀ] Tᵀ` and `N' = E[ψ(s') ωᵀ] Tᵀ`.
Started from states (M = N = C_ss), this goes on until nothing changes. With linear kernels it is
Riccati's recursion, and T the stationary Kalman filter. The same moments give the gain of Rauch,
Tung and Striebel's smoother.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanmap.arrays import Array, asarray, to_numpy
from meanmap.linalg import (
    Spectrum,
    ridge_factor,
    solve_cholesky,
    symmetric_part,
    with_constant,
)

ROUNDS = 30  # at most
BACKWARD = 1e-2  # of the largest eigenvalue: λ of the smoother's gain at least
SETTLED = 1e-3  # of the trace of M: how little a round may change


@dataclass(frozen=True)
class StationaryOperators:
    """What a filter needs that is applied to its own beliefs."""

    inverse: Array  # B with `T = E[ψ(s') ωᵀ] B`, of the sample's own ω
    gain: Array  # G of `ν = μ + G (ν' - A μ)`, ν the smoothed beliefs

    @classmethod
    def of(
        cls, squares: Array, cross: Array, regularization: float, centered: bool
    ) -> StationaryOperators:
        """From `E[ω ωᵀ]` and `E[ψ(s') ωᵀ]` of states; centred, the last of ω is a constant."""
        S, X = (np.asarray(to_numpy(part), dtype=np.float64) for part in (squares, cross))
        if centered:
            mean = S[-1, :-1]
            S, X = S[:-1, :-1] - np.outer(mean, mean), X[:, :-1] - np.outer(X[:, -1], mean)
        inverse, gain = solve_stationary(S, X, regularization)
        inverse = with_constant(inverse, mean) if centered else inverse
        return cls(asarray(inverse, squares), asarray(gain, squares))


def solve_stationary(S: np.ndarray, X: np.ndarray, lam: float) -> tuple[np.ndarray, np.ndarray]:
    """The inverse and the gain, from the moments of ω and of ψ(s') with it."""
    r = len(X)
    C_ss, C_os, C_oo = S[:r, :r], S[r:, :r], S[r:, r:]
    both = solve_positive(C_ss, lam, np.vstack([X[:, :r], C_os]).T).T
    A, U = both[:r], both[r:]
    M = N = C_ss
    for _ in range(ROUNDS):
        moments = np.block([[M, (U @ N).T], [U @ N, C_oo]])
        image = np.hstack([A @ N, X[:, r:]])
        T = solve_positive(moments, lam, image.T).T
        size, M, N = np.trace(M), symmetric_part(T @ moments @ T.T), image @ T.T
        if abs(np.trace(M) - size) <= SETTLED * size:
            break
    moments = np.block([[M, (U @ N).T], [U @ N, C_oo]])
    H = solve_positive(moments, lam, np.eye(len(moments)))
    inverse = np.vstack([solve_positive(C_ss, lam, N @ H[:r]), H[r:]])
    # of ψ(s') - A μ, and of ψ(s) - μ with it
    spread = C_ss - A @ (N + N.T - M) @ A.T
    joint = X[:, :r].T - (N + N.T - M) @ A.T
    least = BACKWARD * float(np.linalg.eigvalsh(symmetric_part(spread))[-1])
    gain = solve_positive(spread, max(lam, least), joint.T).T
    return inverse, gain


def solve_positive(matrix: np.ndarray, regularization: float, right: np.ndarray) -> np.ndarray:
    """`(C + λI)⁻¹ b`, for a C that is positive but for what was estimated of it."""
    C = symmetric_part(matrix)
    try:
        return np.asarray(solve_cholesky(ridge_factor(C, regularization), right))
    except np.linalg.LinAlgError:
        spectrum = Spectrum.of(C)
        values = np.maximum(spectrum.values, 0.0)
        values = values + max(regularization, spectrum.cutoff)
        return np.asarray((spectrum.vectors / values) @ (spectrum.vectors.T @ right))
