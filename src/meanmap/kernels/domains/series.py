"""Kernels on time series."""

from __future__ import annotations

from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Array, Points, is_array, spans, to_numpy
from meanmap.kernels.bandwidths import multiply_bandwidth, resolve_bandwidth
from meanmap.kernels.domains.objects import ObjectKernel, read_objects
from meanmap.kernels.protocol import Comparison

MEMORY = 1 << 21  # numbers in one block of local similarities


class GlobalAlignment(ObjectKernel):
    """All alignments of two time series, each the product of its local similarities.

    k(x, y) = Σ_π Π κ(x_π₁(i), y_π₂(i)) over all ways π to walk both series to their ends, with
    κ = g/(2 - g), g a Gaussian: with that κ it is positive definite (Cuturi 2011). Normalised, so
    that k(x, x) = 1: bounded. Points are a list of arrays (length,) or (length, d), of any lengths,
    or an array (n, length) or (n, length, d).

    Parameters
    ----------
    bandwidth : "median", float or one float a coordinate
        σ of the Gaussian. "median" is the median distance between two steps of any series times the
        root of the median length, Cuturi's rule; "0.5*median" is half of it.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.kernels import GlobalAlignment
    >>> t = np.linspace(0, 6, 40)
    >>> waves = [np.sin(t), np.sin(t[:30] + 0.3), np.cos(2 * t)]
    >>> K = GlobalAlignment(bandwidth=2.0)(waves)
    >>> bool(K[0, 1] > K[0, 2]), K.diagonal().round(6)
    (True, array([1., 1., 1.]))
    """

    domain = "series"
    choices = ("bandwidth",)

    def __init__(self, bandwidth: Any = "median") -> None:
        self.bandwidth = bandwidth

    def read_points(self, points: Any, name: str) -> Points:
        return read_series(points, name)

    def check(
        self, points: Any, name: str = "points", like: Points = None, like_name: str = "the sample"
    ) -> Points:
        points = super().check(points, name, like, like_name)
        if like is not None and points[0].shape[1] != like[0].shape[1]:
            raise ValueError(
                f"{name}: the series have {points[0].shape[1]} coordinates a step, but {like_name} "
                f"has {like[0].shape[1]}. Lengths may differ, coordinates may not."
            )
        return points

    def is_point(self, x: Any, like: Points) -> bool:
        if isinstance(x, list):
            return bool(x) and all(np.ndim(item) == 0 for item in x)
        if not is_array(x) or checks.holds_objects(x):
            return False
        d = like[0].shape[1]
        return x.ndim == 1 or (x.ndim == 2 and x.shape[1] == d)

    def resolve(self, points: Points, weights: Array | None = None) -> GlobalAlignment:
        steps = np.concatenate(list(points))
        lengths = np.array([len(point) for point in points])
        w = None if weights is None else np.repeat(to_numpy(weights) / lengths, lengths)
        sigma = resolve_bandwidth(self.bandwidth, steps, w)
        if isinstance(self.bandwidth, str):
            sigma = multiply_bandwidth(sigma, float(np.median(lengths)) ** 0.5)
        return self.replace(bandwidth=sigma)

    def _padded(self, points: Points) -> tuple[np.ndarray, np.ndarray]:
        """The series over σ in one array (n, longest, d), and their lengths."""
        lengths = np.array([len(point) for point in points])
        padded = np.zeros((len(points), int(lengths.max()), points[0].shape[1]))
        for row, point in zip(padded, points, strict=True):
            row[: len(point)] = point
        return padded / np.asarray(self.bandwidth), lengths

    def against(self, B: Points) -> Comparison:
        b, ends_b = self._padded(B)
        own_b = _own(b, ends_b)

        def compare(A: Points, columns: Any, out: Any) -> Array:
            a, ends_a = self._padded(A)
            own_a = _own(a, ends_a)
            there, ends_there = b[columns], ends_b[columns]
            logs = np.empty((len(a), len(there)))
            cells = a.shape[1] * there.shape[1]
            width = max(1, min(len(there), MEMORY // cells))
            height = max(1, MEMORY // (cells * width))
            for i in spans(len(a), height):
                for j in spans(len(there), width):
                    logs[i, j] = _pairs(a[i], ends_a[i], there[j], ends_there[j])
            logs -= own_a[:, None] / 2
            logs -= own_b[columns][None, :] / 2
            return np.exp(logs, out=logs)

        return compare

    def squared_norms(self, A: Points) -> Array:
        return np.ones(len(A))


def _local(squared: np.ndarray) -> np.ndarray:
    """log κ = log g - log(2 - g), with g = exp(-‖·‖²/2)."""
    exponent = np.maximum(squared, 0.0) / -2
    return exponent - np.log1p(-np.expm1(exponent))


def _pairs(a: np.ndarray, ends_a: np.ndarray, b: np.ndarray, ends_b: np.ndarray) -> np.ndarray:
    """log k of every series of a with every one of b, not normalised."""
    n, m = len(a), len(b)
    x, y = a.reshape(-1, a.shape[2]), b.reshape(-1, b.shape[2])
    squared = (x * x).sum(axis=1)[:, None] + (y * y).sum(axis=1) - 2 * x @ y.T
    steps = _local(squared).reshape(n, a.shape[1], m, b.shape[1]).transpose(1, 3, 0, 2)
    ends = np.repeat(ends_a, m), np.tile(ends_b, n)
    return _alignments(steps.reshape(a.shape[1], b.shape[1], n * m), *ends).reshape(n, m)


def _own(a: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """log k of every series with itself, not normalised."""
    out = np.empty(len(a))
    for i in spans(len(a), max(1, MEMORY // a.shape[1] ** 2)):
        x = a[i]
        norms = (x * x).sum(axis=2)
        squared = norms[:, :, None] + norms[:, None, :] - 2 * x @ x.transpose(0, 2, 1)
        out[i] = _alignments(_local(squared).transpose(1, 2, 0), ends[i], ends[i])
    return out


def _alignments(local: np.ndarray, ends_a: np.ndarray, ends_b: np.ndarray) -> np.ndarray:
    """log Σ over alignments, for many pairs at once; local is log κ, shape (steps, steps, pairs).

    M[i, j] = κ[i, j] (M[i-1, j-1] + M[i-1, j] + M[i, j-1]) in logarithms (Cuturi 2011), one
    antidiagonal i + j = d after the other. What is padded comes after a pair's end and never
    reaches it.
    """
    rows, columns, pairs = local.shape
    answer = np.empty(pairs)
    # row i + 1 of an antidiagonal holds its cell (i, d - i)
    before, last = (np.full((rows + 1, pairs), -np.inf) for _ in range(2))
    for d in range(rows + columns - 1):
        first, end = max(0, d - columns + 1), min(rows, d + 1)
        i = np.arange(first, end)
        cells = local[i, d - i]
        if d:
            ways = before[first:end], last[first:end], last[first + 1 : end + 1]
            top = np.maximum(np.maximum(ways[0], ways[1]), ways[2])
            cells += top
            cells += np.log(sum(np.exp(way - top) for way in ways))
        current = np.full((rows + 1, pairs), -np.inf)
        current[first + 1 : end + 1] = cells
        done = np.flatnonzero(ends_a + ends_b - 2 == d)
        answer[done] = current[ends_a[done], done]
        before, last = last, current
    return answer


def read_series(value: Any, name: str) -> np.ndarray:
    """Points that are time series, of any lengths: a 1-D array of float arrays (length, d)."""
    if is_array(value) and not checks.holds_objects(value):
        if value.ndim not in (2, 3):
            raise ValueError(
                f"{name}: expected a list of time series, or an array (n, length) or (n, length, "
                f"d); got {checks.describe(value)}. One series is [{name}]."
            )
        value = list(checks.numbers(value, name))
    array = read_objects(value, name, "time series")
    for i, item in enumerate(array):
        one = np.asarray(to_numpy(checks.numbers(item, f"{name}[{i}]")), dtype=np.float64)
        one = one[:, None] if one.ndim == 1 else one
        if one.ndim != 2 or 0 in one.shape:
            raise ValueError(
                f"{name}[{i}]: expected a time series of shape (length,) or (length, d), got "
                f"{checks.describe(item)}."
            )
        array[i] = one
        if one.shape[1] != array[0].shape[1]:
            raise ValueError(
                f"{name}[{i}] has {one.shape[1]} coordinates a step, but {name}[0] has "
                f"{array[0].shape[1]}. Lengths may differ, coordinates may not."
            )
    return array
