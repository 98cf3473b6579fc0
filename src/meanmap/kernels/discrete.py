"""Kernels on discrete sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Array, Points, apply, device, filled, float_like, namespace, to_numpy
from meanmap.kernels.bandwidths import SCALED, median_distance, median_factor
from meanmap.kernels.features import (
    FeatureMap,
    OneHot,
    OneHotColumns,
    Ones,
    Scaling,
    Stacked,
)
from meanmap.kernels.protocol import Comparison, Kernel


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

    Parameters
    ----------
    other : float, at least 0 and below 1
        The value for two different labels, 0 by default. In a product with other kernels, as of the
        columns of a table, rows that differ in a label alone are then still alike.
        "scaled median" chooses it on the sample as if the label were a column of numbers, together
        with the other columns where `Columns` multiplies several.

    Examples
    --------
    >>> from meanmap.kernels import Delta
    >>> Delta()(["sun", "rain"], ["rain", "rain", "sun"])
    array([[0., 0., 1.],
           [1., 1., 0.]])
    """

    characteristic = "discrete sets"
    universal = "discrete sets"

    def __init__(self, other: Any = 0.0) -> None:
        self.other = other

    def __repr__(self) -> str:
        return super().__repr__() if isinstance(self.other, str) or self.other else "Delta()"

    def resolve(self, points: Points, weights: Array | None = None) -> Delta:
        if not isinstance(self.other, str):
            return Delta(self._value())
        return self.at_distance(1.0)  # of two different labels

    def at_distance(self, sigma: float) -> Delta:
        """Two different labels compared as a Gaussian of width σ compares points at distance 1."""
        return Delta(float(np.exp(-0.5 / (median_factor(self.other, SCALED) * sigma) ** 2)))

    def _value(self) -> float:
        if isinstance(self.other, str):
            median_factor(self.other, SCALED)
            raise ValueError(
                f"other={self.other!r} has to be chosen on data first: use kernel.resolve(points), "
                "or the kernel of a fitted model."
            )
        value = checks.not_negative(self.other, "other", "0 compares labels as equal or not.")
        if value >= 1:
            raise ValueError(f"other must be below 1, the value for equal labels; got {value!r}.")
        return value

    def read_points(self, points: Any, name: str) -> Points:
        return checks.labels(points, name)

    def against(self, B: Points) -> Comparison:
        like = float_like(B)
        xp, other = namespace(like), self._value()

        def compare(A: Points, columns: Any, out: Any) -> Array:
            found = xp.astype(equal(A, B[columns]), like.dtype)
            return found * (1 - other) + other if other else found

        return compare

    def squared_norms(self, A: Points) -> Array:
        like = float_like(A)
        return filled(A.shape[0], 1.0, like)

    def feature_map(self, points: Points) -> FeatureMap:
        other = self._value()
        if not other:
            return OneHot(points)
        return Stacked((Scaling(OneHot(points), 1 - other), Ones(other)))


def count_bandwidth(value: Any, median: Callable[[], float] | None = None) -> float:
    """The bandwidth of a kernel exp(-count/bandwidth), chosen on data where asked to."""
    if isinstance(value, str):
        factor = median_factor(value)
        if median is None:
            raise ValueError(
                f"bandwidth={value!r} has to be chosen on data first: use kernel.resolve(points), "
                "or the kernel of a fitted model."
            )
        return factor * median()
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

    def __init__(self, bandwidth: Any = "median", form: str = "exponential") -> None:
        self.bandwidth = bandwidth
        self.form = form

    @property
    def characteristic(self) -> str | None:  # type: ignore[override]
        """Where embeddings determine distributions."""
        return None if self._agreement() else "rows of finitely many categories"

    @property
    def universal(self) -> str | None:  # type: ignore[override]
        """Where the space holds every function."""
        return self.characteristic

    def _agreement(self) -> bool:
        return checks.option(self.form, "form", ["exponential", "agreement"]) == "agreement"

    def read_points(self, points: Any, name: str) -> Points:
        return checks.labels(points, name)

    def resolve(self, points: Points, weights: Array | None = None) -> Hamming:
        if self._agreement():
            return Hamming(self.bandwidth, self.form)

        def median() -> float:
            # rows as one-hot vectors: ‖·‖² is twice the number of columns that differ
            table = _table(to_numpy(points))
            codes = [np.unique(column, return_inverse=True)[1] for column in table.T]
            hot = [code[:, None] == np.arange(code.max() + 1) for code in codes]
            return median_distance(np.concatenate(hot, axis=1), weights) ** 2 / 2

        return Hamming(count_bandwidth(self.bandwidth, median), self.form)

    def against(self, B: Points) -> Comparison:
        b, like = _table(B), float_like(B)
        agreement, d = self._agreement(), b.shape[1]
        rate = 0.0 if agreement else -1 / count_bandwidth(self.bandwidth)
        xp = namespace(like)

        def compare(A: Points, columns: Any, out: Any) -> Array:
            a, there = _table(A), b[columns]
            shape = a.shape[0], there.shape[0]
            differ = xp.zeros(shape, dtype=like.dtype, device=device(like))
            for c in range(d):
                differ += xp.astype(a[:, None, c] != there[None, :, c], like.dtype)
            if agreement:
                differ *= -1 / d
                differ += 1
                return differ
            differ *= rate
            return apply("exp", differ)

        return compare

    def squared_norms(self, A: Points) -> Array:
        like = float_like(A)
        return filled(A.shape[0], 1.0, like)

    def feature_map(self, points: Points) -> FeatureMap | None:
        return OneHotColumns(_table(points)) if self._agreement() else None


def _table(points: Array) -> Array:
    """Labels as rows."""
    return points if points.ndim == 2 else points[:, None]
