"""From atoms and weights back to points."""

from __future__ import annotations

import numpy as np

from meanmap.arrays import (
    Array,
    Points,
    asarray,
    count,
    namespace,
    one_blas_thread,
    take,
    to_numpy,
)
from meanmap.kernels import Gaussian, Kernel, Scaled
from meanmap.kernels.base import ALL

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
        with one_blas_thread():
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

    With positive weights a full step never overshoots; negative ones can make it. Starts that have
    arrived are left out of the next round.
    """
    xp = namespace(atoms)
    b, d = weights.shape[0], atoms.shape[1]
    starts = _starts(kernel, atoms, weights)  # (b, starts, d)
    owner = np.repeat(np.arange(b), starts.shape[1])
    compare = kernel._against(atoms)
    tiny = 1e-12 * to_numpy(xp.sum(abs(weights), axis=1))

    def look(x: np.ndarray, owner: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rho = compare(asarray(x, atoms), ALL, None) * take(weights, owner)
        value = to_numpy(xp.sum(rho, axis=1))  # e(x), and the denominator of the step
        # where negative weights cancel the denominator there is no step: stay
        safe = value > tiny[owner]
        target = to_numpy(rho @ atoms) / np.where(safe, value, 1.0)[:, None]
        return value, np.where(safe[:, None], target - x, 0.0)

    # the path of a start is a few numbers: it is kept on the host, whatever library the atoms are
    x = to_numpy(xp.reshape(starts, (-1, d))).copy()
    value, step = look(x, owner)
    length = np.ones(len(x))
    for _ in range(ITERATIONS):
        stride = to_numpy(kernel.scaled(asarray(length[:, None] * step, atoms)))
        moving = np.flatnonzero(abs(stride).max(axis=1) > 1e-9)
        if len(moving) == 0:
            break
        trial = x[moving] + length[moving, None] * step[moving]
        trial_value, trial_step = look(trial, owner[moving])
        better = trial_value >= value[moving]
        to = moving[better]
        x[to], step[to], value[to] = trial[better], trial_step[better], trial_value[better]
        length[to] = 1.0
        length[moving[~better]] /= 2
    best = value.reshape(b, -1).argmax(axis=1) + np.arange(b) * starts.shape[1]
    return asarray(x[best], atoms)


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
