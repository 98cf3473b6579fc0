"""From atoms and weights back to points."""

from __future__ import annotations

import numpy as np

from meanmap.arrays import Array, Points, asarray, count, namespace, take, to_numpy
from meanmap.kernels import Gaussian, Kernel, Scaled

STARTS = 8  # fixed-point iterations are started from this many points
ITERATIONS = 200
MEMORY = 1 << 22  # numbers in one block of the iteration


def mode(kernel: Kernel, atoms: Points, weights: Array) -> Points:
    """The point whose feature is nearest to each embedding: argmin_y -2 βᵀk(·, y) + k(y, y).

    Posterior decoding of Song, Fukumizu and Gretton (2013, eq. 26). For a Gaussian kernel over all
    of R^d, by the batched fixed point of Fukumizu, Song and Gretton (2013, section 4.1) from
    several starts; for other kernels over the atoms. `weights` is (b, n); the answer has b points.
    """
    while isinstance(kernel, Scaled):  # a factor does not move the optimum
        kernel = kernel.kernel
    if isinstance(kernel, Gaussian):
        return gaussian_mode(kernel, atoms, weights)
    return take(atoms, best_atoms(kernel, atoms, weights))


def best_atoms(kernel: Kernel, atoms: Points, weights: Array) -> np.ndarray:
    """The index of the atom that decodes each embedding best."""
    values = kernel._matmul(atoms, atoms, weights.T)
    score = 2 * values - kernel._diagonal(atoms)[:, None]
    return to_numpy(namespace(score).argmax(score, axis=0))


def gaussian_mode(kernel: Gaussian, atoms: Array, weights: Array) -> Array:
    """The multi-start fixed point x ← Σ ρᵢ k(xᵢ, x) xᵢ / Σ ρᵢ k(xᵢ, x), a batch at a time."""
    xp = namespace(atoms)
    size = max(1, MEMORY // max(1, STARTS * count(atoms)))
    parts = [
        _fixed_point(kernel, atoms, weights[i : i + size]) for i in range(0, len(weights), size)
    ]
    return xp.concat(parts)


def _fixed_point(kernel: Gaussian, atoms: Array, weights: Array) -> Array:
    xp = namespace(atoms)
    b, d = weights.shape[0], atoms.shape[1]
    x = _starts(atoms, weights)  # (b, starts, d)
    starts = x.shape[1]
    best, best_value = x[:, 0, :], xp.full((b,), -np.inf, dtype=atoms.dtype)
    rows = xp.arange(b)
    moving = True
    for _ in range(ITERATIONS):
        gram = xp.reshape(kernel(xp.reshape(x, (b * starts, d)), atoms), (b, starts, -1))
        rho = gram * weights[:, None, :]
        value = xp.sum(rho, axis=2)  # e(x), and the denominator of the step
        top = xp.argmax(value, axis=1)
        improved = value[rows, top] > best_value
        best = xp.where(improved[:, None], x[rows, top], best)
        best_value = xp.where(improved, value[rows, top], best_value)
        if not moving:
            break
        # where negative weights cancel the denominator the step would be lost: stay
        safe = value > 1e-12 * xp.sum(abs(rho), axis=2)
        step = (rho @ atoms) / xp.where(safe, value, xp.ones_like(value))[:, :, None]
        new = xp.where(safe[:, :, None], step, x)
        shift = float(xp.max(abs(kernel.scaled(xp.reshape(new - x, (b * starts, d))))))
        x, moving = new, shift > 1e-9
    return best


def _starts(atoms: Array, weights: Array) -> Array:
    """The weighted mean and the atoms that weigh most."""
    xp = namespace(atoms)
    host = to_numpy(weights)
    order = np.argsort(-host, axis=1)[:, : STARTS - 1]
    heavy = xp.stack([take(atoms, row) for row in order])
    total = host.sum(axis=1, keepdims=True)
    usable = total > 1e-12 * abs(host).sum(axis=1, keepdims=True)
    shares = np.where(usable, host / np.where(usable, total, 1.0), 1.0 / host.shape[1])
    means = asarray(shares, atoms) @ atoms
    return xp.concat([means[:, None, :], heavy], axis=1)
