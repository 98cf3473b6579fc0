"""The point whose feature is nearest to an embedding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment, minimize

from meanmap.arrays import (
    Array,
    Points,
    asarray,
    count,
    namespace,
    one_blas_thread,
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
ORTHOGONAL = 1e-5  # a matrix with ‖RᵀR - I‖ below this counts as a rotation


def preimage(kernel: Kernel, atoms: Points, weights: Array) -> Points:
    """The point whose feature is nearest to each embedding: argmin_y -2 βᵀk(·, y) + k(y, y).

    Posterior decoding of Song, Fukumizu and Gretton (2013, eq. 26). `weights` is (b, n); the answer
    has b points. Where it searches depends on the kernel:

    | kernel | `mode_search` | over |
    |---|---|---|
    | smooth radial ones: Gaussian, Matérn 3/2 and 5/2, ... | "fixed point" | R^d, several starts |
    | linear | "mean" | R^d, in closed form |
    | polynomial, and others with a gradient everywhere | "gradient" | R^d, by L-BFGS |
    | trace, atoms all permutations | "orthogonal" | permutations, by linear assignment |
    | trace, atoms all rotations | "orthogonal" | SO(n), by one singular value decomposition |
    | chordal, atoms all rotations | "rotations" | SO(n), by a fixed point of such decompositions |
    | any other | "atoms" | the atoms |
    """
    kernel = kernel.core
    by_default = "gradient" if kernel.smooth and kernel.on_vectors else "atoms"
    with one_blas_thread():
        return SEARCHES[kernel.mode_search or by_default](kernel, atoms, weights)


def mean_mode(kernel: Kernel, atoms: Array, weights: Array) -> Array:
    """Where k is ⟨x, y⟩: -2⟨m, y⟩ + ‖y‖² is least at y = m."""
    return weights @ atoms


def best_atom(kernel: Kernel, atoms: Points, weights: Array) -> Points:
    """The atom that decodes each embedding best."""
    return best(kernel, atoms, transpose(kernel.gram_times(atoms, atoms, weights.T)))


def best(kernel: Kernel, points: Points, values: Array) -> Points:
    """The points that decode each embedding best, given its values (b, m) at all of them."""
    score = 2 * values - kernel.squared_norms(points)[None, :]
    return take(points, to_numpy(namespace(score).argmax(score, axis=1)))


# --- matrices -------------------------------------------------------------------------------------


def are_permutations(A: np.ndarray) -> bool:
    """Whether all matrices are permutation matrices."""
    if A.shape[1] != A.shape[2]:
        return False
    ones = A == 1
    whole = bool((ones | (A == 0)).all())
    return whole and bool((ones.sum(axis=1) == 1).all() and (ones.sum(axis=2) == 1).all())


def are_rotations(A: np.ndarray) -> bool:
    """Whether all matrices are orthogonal with determinant 1."""
    if A.shape[1] != A.shape[2]:
        return False
    rest = np.swapaxes(A, 1, 2) @ A - np.eye(A.shape[1])
    return bool(abs(rest).max(initial=0.0) < ORTHOGONAL and (np.linalg.det(A) > 0).all())


def orthogonal_mode(kernel: Kernel, atoms: Array, weights: Array) -> Array:
    """Over permutations or rotations, whichever the atoms are; else among the atoms."""
    A, w = to_numpy(atoms), to_numpy(weights)
    if are_permutations(A):
        return asarray(permutation_mode(A, w), atoms)
    if are_rotations(A):
        return asarray(rotation_mode(A, w), atoms)
    return best_atom(kernel, atoms, weights)


def permutation_mode(A: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """argmax tr(MᵀP) over permutations, M = Σ βᵢ Aᵢ: an assignment problem."""
    out = np.zeros((len(weights), *A.shape[1:]), dtype=A.dtype)
    for place, M in zip(out, np.tensordot(weights, A, 1), strict=True):
        place[linear_sum_assignment(M, maximize=True)] = 1
    return out


def rotation_mode(A: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """argmax tr(MᵀR) over SO(n) for M = Σ βᵢ Aᵢ."""
    return nearest_rotations(np.tensordot(weights, A, 1))


def nearest_rotations(M: np.ndarray) -> np.ndarray:
    """argmax tr(MᵀR) over SO(n): with M = USVᵀ it is U diag(1, …, ±1) Vᵀ."""
    U, _, Vt = np.linalg.svd(M)
    flip = np.sign(np.linalg.det(U) * np.linalg.det(Vt))
    U[:, :, -1] *= flip[:, None]  # the least singular value pays for the determinant
    return U @ Vt


def chordal_mode(kernel: Kernel, atoms: Array, weights: Array) -> Array:
    """The multi-start fixed point R ← argmax tr(M(R)ᵀR'), M(R) = Σ βᵢ k(Aᵢ, R) Aᵢ, over SO(n).

    On rotations e(R) is a sum of exponentials of tr(AᵢᵀR), convex where βᵢ ≥ 0, so that a step
    never loses; where negative weights make it lose, a start stays.
    """
    A, w = to_numpy(atoms), to_numpy(weights)
    if not are_rotations(A):
        return best_atom(kernel, atoms, weights)
    compare = kernel.against(atoms)
    starts = [rotation_mode(A, w)[:, None], to_numpy(_best_atoms(kernel, atoms, weights))]
    x = np.concatenate(starts, axis=1)
    owner = np.repeat(np.arange(len(w)), x.shape[1])

    def look(x: np.ndarray, owner: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pull = to_numpy(compare(asarray(x, atoms), ALL, None)) * w[owner]
        return pull.sum(axis=1), nearest_rotations(np.tensordot(pull, A, 1))

    x = x.reshape(-1, *A.shape[1:])
    value, target = look(x, owner)
    moving = np.arange(len(x))
    for _ in range(ITERATIONS):
        moving = moving[abs(target[moving] - x[moving]).max(axis=(1, 2)) > 1e-10]
        if len(moving) == 0:
            break
        trial = target[moving]
        trial_value, trial_target = look(trial, owner[moving])
        better = trial_value >= value[moving]
        moving = moving[better]
        x[moving], value[moving] = trial[better], trial_value[better]
        target[moving] = trial_target[better]
    found = value.reshape(len(w), -1).argmax(axis=1) + np.arange(len(w)) * (len(x) // len(w))
    return asarray(x[found], atoms)


# --- vectors --------------------------------------------------------------------------------------


def radial_mode(kernel: Any, atoms: Array, weights: Array) -> Array:
    """The multi-start fixed point x ← Σ ρᵢ k'ᵢ xᵢ / Σ ρᵢ k'ᵢ, a batch at a time.

    k' is the slope of the kernel as a function of -‖x - xᵢ‖²/2σ². For the Gaussian k' = k, and this
    is the fixed point of Fukumizu, Song and Gretton (2013, section 4.1).
    """
    xp = namespace(atoms)
    size = max(1, MEMORY // max(1, STARTS * count(atoms)))
    parts = [
        _fixed_point(kernel, atoms, weights[i : i + size]) for i in range(0, len(weights), size)
    ]
    return xp.concat(parts)


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


#: The searches by the name that a kernel declares as its `mode_search`.
SEARCHES: dict[str, Callable[[Any, Points, Array], Points]] = {
    "fixed point": radial_mode,
    "mean": mean_mode,
    "gradient": smooth_mode,
    "orthogonal": orthogonal_mode,
    "rotations": chordal_mode,
    "atoms": best_atom,
}
