"""Conditional kernel density estimation: a baseline to compare conditional embeddings with."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from meanmap import checks
from meanmap.arrays import asarray
from meanmap.kernels import Gaussian
from meanmap.kernels.defaults import as_target


class ConditionalKernelDensity(RegressorMixin, BaseEstimator):
    """The conditional kernel density estimate `Σ k(yᵢ, y) k(xᵢ, x) / Σ k(xᵢ, x)`.

    Song, Fukumizu and Gretton (2013, section 3.2) set it beside the conditional embedding: it has
    difficulty in many dimensions and where p(x) is small, since it estimates a density.

    Parameters
    ----------
    bandwidth_x, bandwidth_y : as of `kernels.Gaussian`
        σ of the Gaussian smoothing; "median", a multiple ("0.3*median") or numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from conditional_kernel_density import ConditionalKernelDensity
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 1))
    >>> model = ConditionalKernelDensity(0.3, 0.3).fit(X, X + 0.1 * rng.normal(size=(500, 1)))
    >>> model.predict([[0.5]]).round(1)
    array([[0.5]])
    """

    def __init__(self, bandwidth_x: Any = "0.3*median", bandwidth_y: Any = "0.3*median") -> None:
        self.bandwidth_x = bandwidth_x
        self.bandwidth_y = bandwidth_y

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Keep the sample and resolve the bandwidths."""
        kernel_x, kernel_y = Gaussian(self.bandwidth_x), Gaussian(self.bandwidth_y)
        points_x = kernel_x.check(X, "X")
        target, flat = as_target(y, kernel_y)
        points_y = kernel_y.check(target, "y")
        checks.same_length([("X", points_x), ("y", points_y)])
        w = checks.sample_weights(sample_weight, points_x, points_x)
        kernel_x, kernel_y = kernel_x.resolve(points_x, w), kernel_y.resolve(points_y, w)
        validate_data(self, X=X, reset=True, skip_check_array=True)
        self.kernel_x_, self.kernel_y_, self.weights_ = kernel_x, kernel_y, w
        self._x, self._y, self._flat = points_x, points_y, flat
        return self

    def weights(self, X: Any) -> np.ndarray:
        """The weights on the sample at each row, positive and summing to one."""
        check_is_fitted(self, "kernel_x_")
        gram = self.kernel_x_(self.kernel_x_.check(X, "X", self._x), self._x) * self.weights_
        total = gram.sum(axis=1, keepdims=True)
        return np.where(total > 0, gram / np.where(total > 0, total, 1.0), self.weights_)

    def predict(self, X: Any) -> np.ndarray:
        """`E[Y|x]`, the Nadaraya–Watson estimate."""
        means = self.weights(X) @ self._y
        return means[:, 0] if self._flat else means

    def density(self, y: Any, X: Any) -> np.ndarray:
        """`p(y|x)`, shape (rows of X, rows of y)."""
        check_is_fitted(self, "kernel_x_")
        points = self.kernel_y_.check(y, "y", self._y)
        sigma = asarray(np.broadcast_to(self.kernel_y_.bandwidth, points.shape[1]), points)
        scale = (2 * np.pi) ** (points.shape[1] / 2) * np.prod(sigma)
        return self.weights(X) @ self.kernel_y_(self._y, points) / scale

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "kernel_x_")
