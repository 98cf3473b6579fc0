"""Kernels on sets of points: samples that stand for distributions."""

from __future__ import annotations

from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Array, Points, concatenate, count, is_array, spans, to_numpy
from meanmap.kernels.base import ALL, Comparison, Kernel
from meanmap.kernels.features import FeatureMap
from meanmap.kernels.objects import ObjectKernel

MEMORY = 1 << 21  # kernel values between points in memory at a time


class Expected(ObjectKernel):
    """The expected kernel between samples: the mean of k(x, y) over x in one, y in the other.

    It is the inner product of their embeddings (Smola et al. 2007), so that a learner on samples is
    one on distributions. Points are bags: a list of samples of the inner kernel's points, of any
    sizes. It is linear in a bag's embedding, hence not characteristic on distributions over bags,
    whatever the inner kernel. Bounded where the inner kernel is.

    Parameters
    ----------
    kernel : Kernel
        The kernel between the points of the bags; "median" is resolved on all of them together.

    Examples
    --------
    >>> from meanmap.kernels import Expected, Linear
    >>> bags = [[[0.0], [2.0]], [[3.0], [4.0], [5.0]]]
    >>> Expected(Linear())(bags)  # the products of their means, 1 and 4
    array([[ 1.,  4.],
           [ 4., 16.]])
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    @property
    def bounded(self) -> bool:  # type: ignore[override]
        """Whether k(x, x) stays bounded on the whole domain."""
        return self._inner.bounded

    @property
    def _inner(self) -> Kernel:
        if not isinstance(self.kernel, Kernel):
            raise TypeError(
                f"Expected takes a kernel on the points of the bags, got {self.kernel!r}. Use "
                "Expected(Gaussian()), for example."
            )
        return self.kernel

    def _check(self, points: Any, name: str) -> Points:
        if is_array(points) and not checks.holds_objects(points):
            points = list(points)  # bags of one size
        bags = checks.objects(points, name, "bags, a sample each")
        first: Points | None = None
        for i, bag in enumerate(bags):
            checked = self._inner.check(bag, f"{name}[{i}]", first, f"{name}[0]")
            first = checked if first is None else first
            bags[i] = checked
        return bags

    def check(
        self,
        points: Any,
        name: str = "points",
        like: Points | None = None,
        like_name: str = "the sample",
    ) -> Points:
        bags = self._check(points, name)
        if like is not None:
            for i, bag in enumerate(bags):
                bags[i] = self._inner.check(bag, f"{name}[{i}]", like[0], like_name)
        return bags

    def _is_point(self, x: Any, like: Points) -> bool:
        if is_array(x):
            plain = not checks.holds_objects(x) and not isinstance(like[0], tuple)
            return plain and x.ndim == like[0].ndim
        if not isinstance(x, list) or isinstance(like[0], tuple):
            return isinstance(x, tuple)
        depth, item = 0, x
        while isinstance(item, list) and item:
            depth, item = depth + 1, item[0]
        return depth + np.ndim(item) == like[0].ndim

    def resolve(self, points: Points, weights: Array | None = None) -> Expected:
        sizes = _sizes(points)
        w = None if weights is None else np.repeat(to_numpy(weights) / sizes, sizes)
        return Expected(self._inner.resolve(concatenate(list(points)), w))

    def _against(self, B: Points) -> Comparison:
        sizes_b = _sizes(B)
        starts_b = np.cumsum(sizes_b) - sizes_b
        inner = self._inner._against(concatenate(list(B)))
        order = np.arange(len(B))

        def compare(A: Points, columns: Any, out: Any) -> Array:
            chosen = order[columns]
            answer = np.empty((len(A), len(chosen)))
            for j in _blocks(sizes_b[chosen], MEMORY // 16):
                bags = chosen[j]
                where = _ranges(starts_b[bags], sizes_b[bags])
                for i in _blocks(_sizes(A), max(1, MEMORY // len(where))):
                    values = to_numpy(inner(concatenate(list(A[i])), where, None))
                    answer[i, j] = _means(_means(values, _sizes(A[i]), 0), sizes_b[bags], 1)
            return answer

        return compare

    def _diagonal(self, A: Points) -> Array:
        return np.array([float(to_numpy(self._inner._gram(bag, bag)).mean()) for bag in A])

    def feature_map(self, points: Points) -> FeatureMap | None:
        inner = self._inner.feature_map(concatenate(list(points)))
        return None if inner is None else BagMeans(inner)


class BagMeans(FeatureMap):
    """The mean of the inner kernel's features over a bag."""

    def __init__(self, part: FeatureMap) -> None:
        self.part = part
        self.rank = part.rank

    def __call__(self, points: Points) -> Array:
        parts = [
            _means(to_numpy(self.part(concatenate(list(points[i])))), _sizes(points[i]), 0)
            for i in _blocks(_sizes(points), max(1, MEMORY // max(self.rank, 1)))
        ]
        return np.concatenate(parts)


def _sizes(bags: Points) -> np.ndarray:
    return np.array([count(bag) for bag in bags])


def _blocks(sizes: np.ndarray, most: int) -> list[slice]:
    """Consecutive bags of at most `most` points together, or one bag alone."""
    if int(sizes.sum()) <= most:
        return [ALL] if len(sizes) else []
    size = max(1, most // int(sizes.max()))
    return list(spans(len(sizes), size))


def _ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """start, start + 1, … of every bag, one after the other."""
    ends = np.cumsum(sizes)
    return np.arange(int(ends[-1])) + np.repeat(starts - (ends - sizes), sizes)


def _means(values: np.ndarray, sizes: np.ndarray, axis: int) -> np.ndarray:
    """The mean over consecutive stretches of an axis."""
    sums = np.add.reduceat(values, np.cumsum(sizes) - sizes, axis=axis)
    return sums / (sizes[:, None] if axis == 0 else sizes)
