"""From atoms and weights back to points."""

from __future__ import annotations

import numpy as np

from meanmap.arrays import Array, Points, asarray, count, namespace, take, to_numpy
from meanmap.kernels import Gaussian, Kernel, Scaled

STARTS = 8  # fixed-point iterations are started from this many points
CANDIDATES = 64  # the heaviest atoms, among which the starts are the best
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
    """Each start climbs e(x); the fixed point is a step up its gradient, halved if it overshoots.

    With positive weights a full step never overshoots; negative ones can make it.
    """
    xp = namespace(atoms)
    b, d = weights.shape[0], atoms.shape[1]
    x = _starts(kernel, atoms, weights)  # (b, starts, d)
    starts = x.shape[1]

    def look(x: Array) -> tuple[Array, Array]:
        gram = kernel(xp.reshape(x, (b * starts, d)), atoms)
        rho = xp.reshape(gram, (b, starts, -1)) * weights[:, None, :]
        value = xp.sum(rho, axis=2)  # e(x), and the denominator of the step
        # where negative weights cancel the denominator there is no step: stay
        safe = value > 1e-12 * xp.sum(abs(rho), axis=2)
        target = (rho @ atoms) / xp.where(safe, value, xp.ones_like(value))[:, :, None]
        return value, xp.where(safe[:, :, None], target, x) - x

    value, step = look(x)
    length = xp.ones_like(value)
    for _ in range(ITERATIONS):
        moved = abs(kernel.scaled(xp.reshape(length[:, :, None] * step, (b * starts, d))))
        if float(xp.max(moved)) < 1e-9:
            break
        trial = x + length[:, :, None] * step
        trial_value, trial_step = look(trial)
        better = trial_value >= value
        x = xp.where(better[:, :, None], trial, x)
        step = xp.where(better[:, :, None], trial_step, step)
        value = xp.where(better, trial_value, value)
        length = xp.where(better, xp.ones_like(length), length / 2)
    top = xp.argmax(value, axis=1)
    return x[xp.arange(b), top]


def _starts(kernel: Gaussian, atoms: Array, weights: Array) -> Array:
    """The weighted mean, and the best among the atoms that weigh most."""
    xp = namespace(atoms)
    host = to_numpy(weights)
    heavy = np.argsort(-host, axis=1)[:, :CANDIDATES]
    chosen = []
    for row, w in zip(heavy, weights, strict=True):
        values = to_numpy(kernel._matmul(take(atoms, row), atoms, w))
        chosen.append(take(atoms, row[np.argsort(-values)[: STARTS - 1]]))
    total = host.sum(axis=1, keepdims=True)
    usable = total > 1e-12 * abs(host).sum(axis=1, keepdims=True)
    shares = np.where(usable, host / np.where(usable, total, 1.0), 1.0 / host.shape[1])
    means = asarray(shares, atoms) @ atoms
    return xp.concat([means[:, None, :], xp.stack(chosen)], axis=1)
