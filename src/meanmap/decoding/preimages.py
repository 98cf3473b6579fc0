"""The point whose feature is nearest to an embedding."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import minimize

from meanmap.arrays import (
    Array,
    Points,
    asarray,
    count,
    namespace,
    one_blas_thread,
    spans,
    take,
    to_numpy,
    transpose,
)
from meanmap.kernels import Kernel
from meanmap.kernels.protocol import ALL, Comparison

STARTS = 8  # searches are started from this many points
CANDIDATES = 64  # the heaviest atoms, among which the starts are the best
ITERATIONS = 200
MEMORY = 1 << 22  # numbers in one block of the iteration


def preimage(kernel: Kernel, atoms: Points, weights: Array) -> Points:
    """The point whose feature is nearest to each embedding: argmin_y -2 βᵀk(·, y) + k(y, y).

    Posterior decoding of Song, Fukumizu and Gretton (2013, eq. 26). `weights` is (b, n); the answer
    has b points. Where it searches depends on the kernel:

    | kernel | over |
    |---|---|
    | with a `preimage` method: linear, trace, chordal | as that says |
    | smooth radial ones: Gaussian, Matérn 3/2 and 5/2, ... | R^d, by a fixed point |
    | polynomial, and others with a gradient everywhere | R^d, by L-BFGS |
    | any other | the atoms |
    """
    kernel = kernel.core
    with one_blas_thread():
        own = kernel.preimage(atoms, weights, lambda: _best_atoms(kernel, atoms, weights))
        if own is not None:
            return own
        if not kernel.smooth or not kernel.on_vectors:
            return best_atom(kernel, atoms, weights)
        return (radial_mode if kernel.radial else smooth_mode)(kernel, atoms, weights)


def best_atom(kernel: Kernel, atoms: Points, weights: Array) -> Points:
    """The atom that decodes each embedding best."""
    return best(kernel, atoms, transpose(kernel.gram_times(atoms, atoms, weights.T)))


def best(kernel: Kernel, points: Points, values: Array) -> Points:
    """The points that decode each embedding best, given its values (b, m) at all of them."""
    score = 2 * values - kernel.squared_norms(points)[None, :]
    return take(points, to_numpy(namespace(score).argmax(score, axis=1)))


def radial_mode(kernel: Any, atoms: Array, weights: Array) -> Array:
    """The multi-start fixed point x ← Σ ρᵢ k'ᵢ xᵢ / Σ ρᵢ k'ᵢ, a batch at a time.

    k' is the slope of the kernel as a function of -‖x - xᵢ‖²/2σ². For the Gaussian k' = k, and this
    is the fixed point of Fukumizu, Song and Gretton (2013, section 4.1).
    """
    xp = namespace(atoms)
    size = max(1, MEMORY // max(1, STARTS * count(atoms)))
    blocks = spans(len(weights), size)
    return xp.concat([_fixed_point(kernel, atoms, weights[block]) for block in blocks])


def _fixed_point(kernel: Any, atoms: Array, weights: Array) -> Array:
    """Each start climbs e(x); the fixed point is a step up its gradient, halved if it overshoots.

    With positive weights a full step never overshoots; negative ones can make it. Starts that have
    arrived are left out of the next round.
    """
    xp = namespace(atoms)
    b, d = weights.shape[0], atoms.shape[1]
    starts = _starts(kernel, atoms, weights)  # (b, starts, d)
    owner = np.repeat(np.arange(b), starts.shape[1])
    compare = kernel.against(atoms)
    slopes = None if kernel.power == 2 else kernel.slopes(atoms)
    tiny = 1e-12 * to_numpy(xp.sum(abs(weights), axis=1))

    def look(x: np.ndarray, owner: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        at, rho = asarray(x, atoms), take(weights, owner)
        pull = compare(at, ALL, None) * rho
        value = to_numpy(xp.sum(pull, axis=1))  # e(x)
        pull = pull if slopes is None else slopes(at, ALL, None) * rho
        total = to_numpy(xp.sum(pull, axis=1))
        # where negative weights cancel the denominator there is no step: stay
        safe = total > tiny[owner]
        target = to_numpy(pull @ atoms) / np.where(safe, total, 1.0)[:, None]
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


def _starts(kernel: Kernel, atoms: Array, weights: Array) -> Array:
    """The weighted mean, and the best among the atoms that weigh most."""
    host = to_numpy(weights)
    total = host.sum(axis=1, keepdims=True)
    usable = total > 1e-12 * abs(host).sum(axis=1, keepdims=True)
    shares = np.where(usable, host / np.where(usable, total, 1.0), 1.0 / host.shape[1])
    means = asarray(shares, atoms) @ atoms
    return namespace(atoms).concat([means[:, None, :], _best_atoms(kernel, atoms, weights)], axis=1)


def _best_atoms(kernel: Kernel, atoms: Array, weights: Array) -> Array:
    """The best among the atoms that weigh most, shape (b, STARTS - 1, …)."""
    heavy = np.argsort(-to_numpy(weights), axis=1)[:, :CANDIDATES]
    chosen = []
    for row, w in zip(heavy, weights, strict=True):
        points = take(atoms, row)
        score = 2 * kernel.gram_times(points, atoms, w) - kernel.squared_norms(points)
        chosen.append(take(points, np.argsort(-to_numpy(score))[: STARTS - 1]))
    return namespace(atoms).stack(chosen)


def smooth_mode(kernel: Kernel, atoms: Array, weights: Array) -> Array:
    """L-BFGS on eq. 26 from several starts, with the kernel's gradient."""
    atom = best_atom(kernel, atoms, weights)
    starts = namespace(atoms).concat([atom[:, None, :], _starts(kernel, atoms, weights)], axis=1)
    compare = kernel.against(atoms)
    found = []
    for w, places in zip(weights, to_numpy(starts).astype(np.float64), strict=True):
        look = partial(_objective, kernel, compare, atoms, w)
        ends = [minimize(look, x, jac=True, method="L-BFGS-B").x for x in places]
        ends = [places[0], *(end for end in ends if np.isfinite(end).all())]
        values = np.array([look(x)[0] for x in ends])
        found.append(ends[int(np.where(np.isnan(values), np.inf, values).argmin())])
    return asarray(np.stack(found), atoms)


def _objective(
    kernel: Kernel, compare: Comparison, atoms: Array, w: Array, x: np.ndarray
) -> tuple[float, np.ndarray]:
    """Eq. 26 and its gradient at x."""
    at = asarray(x[None, :], atoms)
    value = kernel.squared_norms(at)[0] - 2 * (compare(at, ALL, None)[0] @ w)
    # k is symmetric: the derivative of k(x, x) is twice that in its first argument
    slope = kernel.gradients(at, at)[0, 0] - w @ kernel.gradients(at, atoms)[0]
    return float(value), 2 * to_numpy(slope).astype(np.float64)
