"""Kernels on discrete sets."""

from __future__ import annotations

from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Array, Points, float_like, full, namespace
from meanmap.kernels.bandwidths import SCALED, median_factor
from meanmap.kernels.features import Crossed, FeatureMap, OneHot, Ones, Stacked, equal
from meanmap.kernels.protocol import Comparison, Kernel


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

    domain = "labels"
    choices = ("other",)
    discrete = True
    characteristic = universal = "discrete sets"

    def __init__(self, other: Any = 0.0) -> None:
        self.other = other

    def __repr__(self) -> str:
        return super().__repr__() if isinstance(self.other, str) or self.other else "Delta()"

    def resolve(self, points: Points, weights: Array | None = None) -> Delta:
        if isinstance(self.other, str):
            return self.at_scale(1.0)  # the distance of two different labels
        value = checks.not_negative(self.other, "other", "0 compares labels as equal or not.")
        if value >= 1:
            raise ValueError(f"other must be below 1, the value for equal labels; got {value!r}.")
        return self.replace(other=value)

    def at_scale(self, sigma: float, scales: np.ndarray | None = None) -> Delta:
        """Two different labels compared as a Gaussian of width σ compares points at distance 1."""
        width = median_factor(self.other, SCALED) * sigma
        return self.replace(other=float(np.exp(-0.5 / width**2)))

    def relevance(self, points: Points) -> list[float]:
        # as a Gaussian would be that compares different labels at distance 1
        return [float(np.sqrt(-2 * np.log(max(self.other, 1e-300))))]

    def read_points(self, points: Any, name: str) -> Points:
        return checks.labels(points, name)

    def against(self, B: Points) -> Comparison:
        like = float_like(B)
        xp, other = namespace(like), self.other

        def compare(A: Points, columns: Any, out: Any) -> Array:
            found = xp.astype(equal(A, B[columns]), like.dtype)
            return found * (1 - other) + other if other else found

        return compare

    def squared_norms(self, A: Points) -> Array:
        return full(A.shape[0], 1.0, float_like(A))

    def feature_map(self, points: Points) -> FeatureMap:
        found, other = OneHot(points), self.other
        return Stacked((Crossed((Ones(1 - other), found)), Ones(other))) if other else found
