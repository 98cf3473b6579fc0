"""Kernels on matrices: rotations and permutations."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from meanmap import checks
from meanmap.arrays import (
    Array,
    Points,
    apply,
    asarray,
    device,
    full,
    matmul_into,
    namespace,
    to_numpy,
)
from meanmap.kernels.bandwidths import median_distance, resolve_bandwidth
from meanmap.kernels.domains.rows import resolve_count_bandwidth
from meanmap.kernels.features import FeatureMap, Flat
from meanmap.kernels.protocol import ALL, Comparison, Kernel
from meanmap.kernels.vectors import Gaussian

ITERATIONS = 200
ORTHOGONAL = 1e-5  # a matrix with ‖RᵀR - I‖ below this counts as a rotation


class Trace(Kernel):
    """tr(AᵀB) on matrices: rotations, permutations (Song et al. 2009, sections 5 and 7).

    Its features are the matrix's entries. On orthogonal matrices it is bounded. It has no constant,
    so that a conditional regresses through the origin: `Trace() + 1` adds one. An embedding is the
    mean matrix, so it is not characteristic; `Chordal` and `Mallows` are.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.kernels import Trace
    >>> identity, swap = np.eye(2), np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> Trace()(np.stack([identity, swap]))
    array([[2., 0.],
           [0., 2.]])
    """

    domain = "matrices"
    bounded = False

    def read_points(self, points: Any, name: str) -> Points:
        return read_matrices(points, name)

    def against(self, B: Points) -> Comparison:
        b = _flat(B)
        return lambda A, columns, out: matmul_into(_flat(A), b[columns].T, out)

    def squared_norms(self, A: Points) -> Array:
        a = _flat(A)
        return namespace(a).sum(a * a, axis=1)

    def feature_map(self, points: Points) -> FeatureMap:
        return Flat(prod(points.shape[1:]))

    def preimage(
        self, atoms: Points, weights: Array, starts: Callable[[], Points]
    ) -> Points | None:
        """argmax tr(MᵀR), M = Σ βᵢ Aᵢ, over permutations or rotations, whichever the atoms are."""
        A, w = to_numpy(atoms), to_numpy(weights)
        if are_permutations(A):
            return asarray(nearest_permutations(np.tensordot(w, A, 1)), atoms)
        if are_rotations(A):
            return asarray(nearest_rotations(np.tensordot(w, A, 1)), atoms)
        return None


class Chordal(Kernel):
    """exp(-‖A - B‖_F²/2σ²), a Gaussian of the chordal distance between matrices.

    Bounded; characteristic and universal on rotations, and on all matrices of one shape.

    Parameters
    ----------
    bandwidth : "median" or float
        σ, in the Frobenius norm: for rotations by an angle θ apart in a plane it is √8 |sin θ/2|.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.kernels import Chordal
    >>> quarter = np.array([[0.0, -1.0], [1.0, 0.0]])
    >>> Chordal(bandwidth=2.0)(np.stack([np.eye(2), quarter])).round(3)  # 2 apart
    array([[1.   , 0.607],
           [0.607, 1.   ]])
    """

    domain = "matrices"
    choices = ("bandwidth",)
    characteristic = universal = "matrices of one shape, rotations among them"

    def __init__(self, bandwidth: Any = "median") -> None:
        self.bandwidth = bandwidth

    def read_points(self, points: Any, name: str) -> Points:
        return read_matrices(points, name)

    def resolve(self, points: Points, weights: Array | None = None) -> Chordal:
        return self.replace(bandwidth=resolve_bandwidth(self.bandwidth, _flat(points), weights))

    def against(self, B: Points) -> Comparison:
        compare = Gaussian(self.bandwidth).against(_flat(B))
        return lambda A, columns, out: compare(_flat(A), columns, out)

    def squared_norms(self, A: Points) -> Array:
        return full(A.shape[0], 1.0, A)

    def preimage(
        self, atoms: Points, weights: Array, starts: Callable[[], Points]
    ) -> Points | None:
        """The multi-start fixed point R ← argmax tr(M(R)ᵀR'), M(R) = Σ βᵢ k(Aᵢ, R) Aᵢ, over SO(n).

        On rotations e(R) is a sum of exponentials of tr(AᵢᵀR), convex where βᵢ ≥ 0, so that a step
        never loses; where negative weights make it lose, a start stays.
        """
        A, w = to_numpy(atoms), to_numpy(weights)
        if not are_rotations(A):
            return None
        compare = self.against(atoms)
        middle = nearest_rotations(np.tensordot(w, A, 1))[:, None]
        x = np.concatenate([middle, to_numpy(starts())], axis=1)
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


class Mallows(Kernel):
    """exp(-τ/σ) of Kendall's τ, the number of pairs that two permutations put in another order.

    Bounded; characteristic and universal on the permutations of p items (Mania et al. 2018). Points
    are permutation matrices (n, p, p): row i has its 1 in the column that item i goes to. (In
    Mallows' model, written exp(-λτ), λ is 1/σ.)

    Parameters
    ----------
    bandwidth : "median" or float
        σ, in pairs. "median" is the median τ between two different permutations of the sample.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.kernels import Mallows
    >>> orders = np.array([[0, 1, 2], [1, 0, 2], [2, 1, 0]])  # τ from the first: 0, 1, 3
    >>> Mallows(bandwidth=1.0)(np.eye(3)[orders])[0].round(3)
    array([1.   , 0.368, 0.05 ])
    """

    domain = "matrices"
    choices = ("bandwidth",)
    characteristic = universal = "permutations of p items"

    def __init__(self, bandwidth: Any = "median") -> None:
        self.bandwidth = bandwidth

    def read_points(self, points: Any, name: str) -> Points:
        return read_permutations(points, name)

    def resolve(self, points: Points, weights: Array | None = None) -> Mallows:
        def median() -> float:
            # signs of the pairs' orders: ‖·‖² is four times the number of pairs that differ
            return median_distance(_orders(points), weights) ** 2 / 4

        return self.replace(bandwidth=resolve_count_bandwidth(self.bandwidth, median))

    def against(self, B: Points) -> Comparison:
        b = _orders(B)

        def compare(A: Points, columns: Any, out: Any) -> Array:
            # of m pairs, (m - ⟨signs, signs'⟩)/2 differ
            same = matmul_into(_orders(A), b[columns].T, out)
            same -= b.shape[1]
            same /= 2 * self.bandwidth
            return apply("exp", same)

        return compare

    def squared_norms(self, A: Points) -> Array:
        return full(A.shape[0], 1.0, A)


def _orders(A: Array) -> Array:
    """Of every pair of items i < j, whether j comes after i: +1 or -1."""
    xp = namespace(A)
    p = A.shape[1]
    place = A @ asarray(np.arange(float(p)), A)  # row i of the matrix says where item i goes
    i, j = (xp.asarray(index, device=device(A)) for index in np.triu_indices(p, k=1))
    return xp.sign(xp.take(place, j, axis=1) - xp.take(place, i, axis=1))


def _flat(A: Array) -> Array:
    return namespace(A).reshape(A, (A.shape[0], -1))


def read_matrices(value: Any, name: str) -> Array:
    """Points that are matrices: a floating array of shape (n, p, q)."""
    array = checks.numbers(value, name)
    if array.ndim != 3:
        raise ValueError(
            f"{name}: expected matrices of shape (n, p, q), got {checks.describe(array)}. "
            f"One matrix is {name}[None]."
        )
    checks.refuse_empty(array, name)
    return array


def read_permutations(value: Any, name: str) -> Array:
    """Points that are permutation matrices: a floating array of shape (n, p, p)."""
    array = read_matrices(value, name)
    host = to_numpy(array)
    binary = ((host == 0) | (host == 1)).all(axis=(1, 2))
    once = (host.sum(axis=1) == 1).all(axis=1)
    square = host.shape[1] == host.shape[2]
    if square:
        once = once & (host.sum(axis=2) == 1).all(axis=1)
    if not square or not (binary & once).all():
        row = int(np.flatnonzero(~(binary & once))[0]) if square else 0
        raise ValueError(
            f"{name}[{row}] is not a permutation matrix: a square matrix of zeros with a single "
            "1 in every row and column. Permutations given as orders (n, p) become matrices by "
            f"np.eye(p)[{name}]."
        )
    return array


# --- the nearest permutation or rotation ----------------------------------------------------------


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


def nearest_permutations(M: np.ndarray) -> np.ndarray:
    """argmax tr(MᵀP) over permutations, an assignment problem each."""
    out = np.zeros_like(M)
    for place, table in zip(out, M, strict=True):
        place[linear_sum_assignment(table, maximize=True)] = 1
    return out


def nearest_rotations(M: np.ndarray) -> np.ndarray:
    """argmax tr(MᵀR) over SO(n): with M = USVᵀ it is U diag(1, …, ±1) Vᵀ."""
    U, _, Vt = np.linalg.svd(M)
    flip = np.sign(np.linalg.det(U) * np.linalg.det(Vt))
    U[:, :, -1] *= flip[:, None]  # the least singular value pays for the determinant
    return U @ Vt
