"""Kernels on rows of labels."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Array, Points, apply, float_like, full, namespace, to_numpy
from meanmap.kernels.bandwidths import median_distance, median_factor
from meanmap.kernels.features import FeatureMap, OneHot
from meanmap.kernels.protocol import Comparison, Kernel


def resolve_count_bandwidth(value: Any, median: Callable[[], float]) -> float:
    """The bandwidth of a kernel exp(-count/bandwidth), chosen on data where asked to."""
    if isinstance(value, str):
        return median_factor(value) * median()
    value = value.item() if hasattr(value, "item") else value
    return checks.positive(value, "bandwidth", 'Use bandwidth="median" or a positive number.')


class Hamming(Kernel):
    """exp(-h/σ) of the number h of columns in which two rows of labels differ.

    Positive definite, bounded, and on finitely many categories characteristic and universal: it is
    a product over the columns of 1 where they agree, exp(-1/σ) where they differ. The other form is
    the share of columns that agree, 1 - h/d, which sees each column by itself and is neither.
    Points are rows (n, d), or labels (n,) as one column.

    Parameters
    ----------
    bandwidth : "median" or float
        σ, in columns. "median" is the median number of columns in which two different rows differ.
    form : "exponential" or "agreement"
        Which of the two; the agreement has no bandwidth.

    Examples
    --------
    >>> from meanmap.kernels import Hamming
    >>> rows = [["red", "round"], ["red", "square"], ["blue", "square"]]
    >>> Hamming(bandwidth=1.0)(rows).round(3)
    array([[1.   , 0.368, 0.135],
           [0.368, 1.   , 0.368],
           [0.135, 0.368, 1.   ]])
    >>> Hamming(form="agreement")(rows)
    array([[1. , 0.5, 0. ],
           [0.5, 1. , 0.5],
           [0. , 0.5, 1. ]])
    """

    domain = "labels"

    def __init__(self, bandwidth: Any = "median", form: str = "exponential") -> None:
        self.bandwidth = bandwidth
        self.form = form

    @property
    def choices(self) -> tuple[str, ...]:  # type: ignore[override]
        """The bandwidth, of the form that has one."""
        return () if self.form == "agreement" else ("bandwidth",)

    @property
    def characteristic(self) -> str | None:  # type: ignore[override]
        """Where embeddings determine distributions."""
        return None if self.form == "agreement" else "rows of finitely many categories"

    @property
    def universal(self) -> str | None:  # type: ignore[override]
        """Where the space holds every function."""
        return self.characteristic

    def read_points(self, points: Any, name: str) -> Points:
        return checks.labels(points, name)

    def resolve(self, points: Points, weights: Array | None = None) -> Hamming:
        if checks.option(self.form, "form", ["exponential", "agreement"]) == "agreement":
            return self.replace()

        def median() -> float:
            # rows as one-hot vectors: ‖·‖² is twice the number of columns that differ
            table = _as_rows(to_numpy(points))
            codes = [np.unique(column, return_inverse=True)[1] for column in table.T]
            hot = [code[:, None] == np.arange(code.max() + 1) for code in codes]
            return median_distance(np.concatenate(hot, axis=1), weights) ** 2 / 2

        return self.replace(bandwidth=resolve_count_bandwidth(self.bandwidth, median))

    def against(self, B: Points) -> Comparison:
        b, like = _as_rows(B), float_like(B)
        d, xp = b.shape[1], namespace(like)

        def compare(A: Points, columns: Any, out: Any) -> Array:
            a, there = _as_rows(A), b[columns]
            differ = full((a.shape[0], there.shape[0]), 0.0, like)
            for c in range(d):
                differ += xp.astype(a[:, None, c] != there[None, :, c], like.dtype)
            if self.form == "agreement":
                differ *= -1 / d
                differ += 1
                return differ
            differ *= -1 / self.bandwidth
            return apply("exp", differ)

        return compare

    def squared_norms(self, A: Points) -> Array:
        return full(A.shape[0], 1.0, float_like(A))

    def feature_map(self, points: Points) -> FeatureMap | None:
        return OneHotColumns(_as_rows(points)) if self.form == "agreement" else None


class OneHotColumns(FeatureMap):
    """The one-hot vectors of every column, side by side, over √d: the share of equal columns."""

    def __init__(self, points: Points) -> None:
        self.columns = [OneHot(points[:, c]) for c in range(points.shape[1])]
        self.rank = sum(column.rank for column in self.columns)

    def __call__(self, points: Points) -> Array:
        table = points if points.ndim == 2 else points[:, None]
        parts = [column(table[:, c]) for c, column in enumerate(self.columns)]
        return namespace(*parts).concat(parts, axis=1) / sqrt(len(parts))


def _as_rows(points: Array) -> Array:
    """Labels as rows."""
    return points if points.ndim == 2 else points[:, None]
