"""Probabilities on atoms in the place of weights of either sign, and points drawn from them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from meanmap.arrays import Array, Points, take, to_numpy
from meanmap.kernels import Kernel
from meanmap.kernels.protocol import ALL
from meanmap.linalg import newton_descent

Solver = Callable[[np.ndarray], np.ndarray]

COLUMNS = 8  # of points up to which the mean and deviation of each is met, else their size
SLACK = 1e-4  # of a deviation: how far moments may be missed, that there is always an answer
ENOUGH = 1e-7  # a gradient below this is 0

GAP = 1e-12  # the duality gap to reach, relative to sup k
DUST = 1e-11  # mass that is not worth an atom: it moves the answer by less than 2e-11 √(sup k)
ITERATIONS = 60


def probabilities(
    weights: np.ndarray, values: np.ndarray, mean: np.ndarray, deviation: np.ndarray
) -> np.ndarray:
    """Probabilities (b, n) near to weights of either sign, with given moments.

    The positive part of weights that swing is far too wide, and the nearest probability in the norm
    of a space lies on a handful of atoms. Between them is the positive part times
    `exp(Σ aⱼ xⱼ + bⱼ xⱼ²)`, of all probabilities with these means and deviations (b, q) the
    nearest to it in relative entropy. `values` are the atoms' numbers (n, q).
    """
    out = np.maximum(weights, 0.0)
    for i in np.flatnonzero((weights < 0).any(axis=1)):
        there = np.flatnonzero((out[i] > 0) & np.isfinite(values).all(axis=1))
        unit = np.where(deviation[i] > 0, deviation[i], 1.0)
        moves = deviation[i] > 0
        if there.size and moves.any():
            z = ((values[there] - mean[i]) / unit)[:, moves]
            out[i, there] = tilt(out[i, there], z)
    return out / out.sum(axis=1, keepdims=True)


def tilt(p: np.ndarray, z: np.ndarray) -> np.ndarray:
    """The p' nearest to p in relative entropy with mean 0 and variance 1 of each column of z.

    Newton's method on the dual, `log Σ pᵢ exp(θ·tᵢ) + SLACK ‖θ‖²/2` with t = (z, z² - 1), from
    where it would be least if p were a Gaussian.
    """
    p = p / p.sum()
    d = z.shape[1]
    if d > COLUMNS:
        t, start = (z * z).mean(axis=1)[:, None] - 1, np.zeros(1)
    else:
        t = np.concatenate([z, z * z - 1], axis=1)
        m = p @ z
        v = np.maximum(p @ (z - m) ** 2, 1e-12)
        start = np.concatenate([-m / v, (1 / v - 1) / 2])
    log = np.log(p)

    def look(theta: np.ndarray) -> tuple[float, np.ndarray]:
        exponent = log + t @ theta
        top = float(exponent.max())
        found = np.exp(exponent - top)
        total = float(found.sum())
        return top + np.log(total) + SLACK / 2 * float(theta @ theta), found / total

    def solve(gradient: np.ndarray, found: np.ndarray) -> np.ndarray:
        off = t - found @ t
        H = (off * found[:, None]).T @ off
        H[np.diag_indices_from(H)] += SLACK
        return np.linalg.solve(H, gradient)

    theta = min(np.zeros(t.shape[1]), start, key=lambda theta: look(theta)[0])
    return newton_descent(look, lambda x, found: found @ t + SLACK * x, solve, theta, ENOUGH)


# --- the nearest in the norm of the space ---------------------------------------------------------


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


# --- points ---------------------------------------------------------------------------------------


def draw(probabilities: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Indices drawn with replacement, shape (b, n), from probabilities (b, atoms)."""
    uniform = rng.random((len(probabilities), n))
    edges = np.cumsum(probabilities, axis=1)
    edges /= edges[:, -1:]
    return np.stack(
        [np.searchsorted(e, u, side="right") for e, u in zip(edges, uniform, strict=True)]
    )


def herd(kernel: Kernel, atoms: Points, values: Array, n: int) -> np.ndarray:
    """Atoms whose plain average stays as near to e as each next atom can bring it: (b, n) indices.

    The next one is argmax_x (t + 1) e(x) - Σ_{s ≤ t} k(x, x_s) - k(x, x)/2. Where k(x, x) is
    constant that is kernel herding (Chen, Welling and Smola 2010). `values` is e at the atoms.
    """
    e = to_numpy(values).astype(np.float64)
    compare = kernel.against(atoms)
    taken = np.broadcast_to(to_numpy(kernel.squared_norms(atoms)) / 2, e.shape).copy()
    out = np.empty((len(e), n), dtype=int)
    for t in range(n):
        out[:, t] = (((t + 1) * e) - taken).argmax(axis=1)
        chosen, back = np.unique(out[:, t], return_inverse=True)
        taken += to_numpy(compare(take(atoms, chosen), ALL, None))[back]
    return out
