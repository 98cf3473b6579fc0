"""Kernels on matrices: rotations and permutations."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Array, Points, apply, asarray, device, filled, matmul_into, namespace
from meanmap.kernels.bandwidths import median_distance
from meanmap.kernels.discrete import count_bandwidth
from meanmap.kernels.features import FeatureMap, Flat
from meanmap.kernels.protocol import Comparison, Kernel
from meanmap.kernels.vectors import Gaussian


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

    bounded = False

    def read_points(self, points: Any, name: str) -> Points:
        return checks.matrices(points, name)

    def against(self, B: Points) -> Comparison:
        b = _flat(B)
        return lambda A, columns, out: matmul_into(_flat(A), b[columns].T, out)

    def squared_norms(self, A: Points) -> Array:
        a = _flat(A)
        return namespace(a).sum(a * a, axis=1)

    def feature_map(self, points: Points) -> FeatureMap:
        return Flat(prod(points.shape[1:]))


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

    characteristic = "matrices of one shape, rotations among them"
    universal = "matrices of one shape, rotations among them"

    def __init__(self, bandwidth: Any = "median") -> None:
        self.bandwidth = bandwidth

    def read_points(self, points: Any, name: str) -> Points:
        return checks.matrices(points, name)

    def resolve(self, points: Points, weights: Array | None = None) -> Chordal:
        return Chordal(Gaussian(self.bandwidth).resolve(_flat(points), weights).bandwidth)

    def against(self, B: Points) -> Comparison:
        compare = Gaussian(self.bandwidth).against(_flat(B))
        return lambda A, columns, out: compare(_flat(A), columns, out)

    def squared_norms(self, A: Points) -> Array:
        return filled(A.shape[0], 1.0, A)


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

    characteristic = "permutations of p items"
    universal = "permutations of p items"

    def __init__(self, bandwidth: Any = "median") -> None:
        self.bandwidth = bandwidth

    def read_points(self, points: Any, name: str) -> Points:
        return checks.permutations(points, name)

    def resolve(self, points: Points, weights: Array | None = None) -> Mallows:
        def median() -> float:
            # signs of the pairs' orders: ‖·‖² is four times the number of pairs that differ
            return median_distance(_orders(points), weights) ** 2 / 4

        return Mallows(count_bandwidth(self.bandwidth, median))

    def against(self, B: Points) -> Comparison:
        b, sigma = _orders(B), count_bandwidth(self.bandwidth)

        def compare(A: Points, columns: Any, out: Any) -> Array:
            # of m pairs, (m - ⟨signs, signs'⟩)/2 differ
            same = matmul_into(_orders(A), b[columns].T, out)
            same -= b.shape[1]
            same /= 2 * sigma
            return apply("exp", same)

        return compare

    def squared_norms(self, A: Points) -> Array:
        return filled(A.shape[0], 1.0, A)


def _orders(A: Array) -> Array:
    """Of every pair of items i < j, whether j comes after i: +1 or -1."""
    xp = namespace(A)
    p = A.shape[1]
    place = A @ asarray(np.arange(float(p)), A)  # row i of the matrix says where item i goes
    i, j = (xp.asarray(index, device=device(A)) for index in np.triu_indices(p, k=1))
    return xp.sign(xp.take(place, j, axis=1) - xp.take(place, i, axis=1))


def _flat(A: Array) -> Array:
    return namespace(A).reshape(A, (A.shape[0], -1))
