"""Kernels on discrete sets."""

from __future__ import annotations

from typing import Any

from meanmap import checks
from meanmap.arrays import Array, Points, float_like, namespace
from meanmap.kernels.base import Comparison, Kernel
from meanmap.kernels.features import FeatureMap, OneHot


def equal(A: Array, B: Array) -> Array:
    """Which points of A equal which of B; rows are equal if every entry is."""
    if A.ndim == 1:
        return A[:, None] == B[None, :]
    out = A[:, None, 0] == B[None, :, 0]
    for column in range(1, A.shape[1]):
        out &= A[:, None, column] == B[None, :, column]
    return out


class Delta(Kernel):
    """1 if two labels are equal, else 0: bounded, characteristic and universal on a discrete set.

    An embedding is then the vector of probabilities, an operator the probability table (Song et
    al. 2013, eqs. 3 and 9). Points are labels of shape (n,), or rows (n, d) compared as a whole.

    Examples
    --------
    >>> from meanmap.kernels import Delta
    >>> Delta()(["sun", "rain"], ["rain", "rain", "sun"])
    array([[0., 0., 1.],
           [1., 1., 0.]])
    """

    def _check(self, points: Any, name: str) -> Points:
        return checks.labels(points, name)

    def _against(self, B: Points) -> Comparison:
        like = float_like(B)
        xp = namespace(like)
        return lambda A, columns, out: xp.astype(equal(A, B[columns]), like.dtype)

    def _diagonal(self, A: Points) -> Array:
        like = float_like(A)
        return namespace(like).ones(A.shape[0], dtype=like.dtype)

    def feature_map(self, points: Points) -> FeatureMap:
        return OneHot(points)
