"""Kernels on matrices: rotations and permutations."""

from __future__ import annotations

from math import prod
from typing import Any

from meanmap import checks
from meanmap.arrays import Array, Points, matmul_into, namespace
from meanmap.kernels.base import Comparison, Kernel
from meanmap.kernels.features import FeatureMap, Flat


class Trace(Kernel):
    """tr(AᵀB) on matrices: rotations, permutations (Song et al. 2009, sections 5 and 7).

    Its features are the matrix's entries. On orthogonal matrices it is bounded. It has no constant,
    so that a conditional regresses through the origin: `Trace() + 1` adds one.

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

    def _check(self, points: Any, name: str) -> Points:
        return checks.matrices(points, name)

    def _against(self, B: Points) -> Comparison:
        b = _flat(B)
        return lambda A, columns, out: matmul_into(_flat(A), b[columns].T, out)

    def _diagonal(self, A: Points) -> Array:
        a = _flat(A)
        return namespace(a).sum(a * a, axis=1)

    def feature_map(self, points: Points) -> FeatureMap:
        return Flat(prod(points.shape[1:]))


def _flat(A: Array) -> Array:
    return namespace(A).reshape(A, (A.shape[0], -1))
