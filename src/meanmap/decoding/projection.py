"""The nearest probability on the atoms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

Solver = Callable[[np.ndarray], np.ndarray]

GAP = 1e-12  # the duality gap to reach, relative to sup k
DUST = 1e-11  # mass that is not worth an atom: it moves the answer by less than 2e-11 √(sup k)
ITERATIONS = 60


def nearest_probability(rows: np.ndarray, target: np.ndarray, start: np.ndarray) -> np.ndarray:
    """argmin ½‖Σ pᵢ ψᵢ - m‖² over p ≥ 0, Σ pᵢ = 1, for one m.

    A primal-dual interior point method. The Hessian ΨΨᵀ has rank r, so that a step costs one r × r
    factorisation of `I + Ψᵀ diag(p/z) Ψ`, and no n × n array is made. Both problems are feasible
    throughout, so pᵀz is the duality gap: where it ends at ε, the answer's distance from m is least
    up to √(2ε).

    Parameters
    ----------
    rows : (n, r), ψ of every atom
    target : (r,), m
    start : (n,), weights to start from
    """
    n = len(rows)
    peak = float((rows * rows).sum(axis=1).max(initial=0.0)) or 1.0
    Psi, m = rows / peak**0.5, target / peak**0.5
    p = np.maximum(start, 0.0)
    p = p / p.sum() if 0 < p.sum() < np.inf else np.full(n, 1 / n)
    p = (p + 1 / n) / 2  # inside
    gradient = Psi @ (p @ Psi - m)
    z = gradient - gradient.min()
    z += max(float(p @ z), 1e-6)  # dual feasible: ΨΨᵀp - Ψm + ν1 = z > 0
    for _ in range(ITERATIONS):
        if not p @ z > GAP:
            break
        try:
            solve = _factorize(Psi, z / p)
        except (LinAlgError, ValueError):
            break  # as far as rounding lets it go
        mu = float(p @ z) / n
        dp, dz = _direction(solve, p, z, -p * z)  # straight at the boundary ...
        step = min(_largest(p, dp), _largest(z, dz))
        ahead = float((p + step * dp) @ (z + step * dz)) / n
        # ... tells how much to centre, and the second-order term (Mehrotra 1992)
        dp, dz = _direction(solve, p, z, (ahead / mu) ** 3 * mu - p * z - dp * dz)
        step = 0.995 * min(_largest(p, dp), _largest(z, dz))
        p = p + step * dp
        p /= p.sum()
        # z from its definition, so that rounding in the solve leaves no dual residual
        gradient = Psi @ (p @ Psi - m)
        z = gradient + np.mean(z + step * dz - gradient)
        if z.min() <= 0:
            z -= z.min()
            z += 1e-3 * max(float(p @ z), GAP)
    return _sparse(p)


def _direction(
    solve: Solver, p: np.ndarray, z: np.ndarray, change: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Newton's step that changes p∘z by `change`, with Σp and dual feasibility kept."""
    u, v = solve(change / p), solve(np.ones(len(p)))
    dp = u - v * (u.sum() / v.sum())
    return dp, (change - z * dp) / p


def _factorize(Psi: np.ndarray, D: np.ndarray) -> Solver:
    """b ↦ (ΨΨᵀ + diag(D))⁻¹ b by Woodbury's identity, refined once."""
    scaled = Psi / D[:, None]
    factor = cho_factor(np.eye(Psi.shape[1]) + Psi.T @ scaled, lower=True)

    def once(b: np.ndarray) -> np.ndarray:
        return b / D - scaled @ cho_solve(factor, scaled.T @ b)

    def solve(b: np.ndarray) -> np.ndarray:
        x = once(b)
        return x + once(b - Psi @ (x @ Psi) - D * x)

    return solve


def _largest(x: np.ndarray, dx: np.ndarray) -> float:
    """The longest step ≤ 1 that keeps x ≥ 0."""
    falling = dx < 0
    return float(min(1.0, (-x[falling] / dx[falling]).min(initial=1.0)))


def _sparse(p: np.ndarray) -> np.ndarray:
    """Weights that only the barrier keeps above 0 put to 0: the least ones, a mass of `DUST`."""
    order = np.argsort(p)
    kept = p.copy()
    kept[order[np.cumsum(p[order]) <= DUST]] = 0.0
    return kept / kept.sum()
