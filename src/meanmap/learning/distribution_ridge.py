"""Regression on distributions with squared errors."""

from __future__ import annotations

from typing import Any, Self

from sklearn.base import RegressorMixin

from meanmap.arrays import Array, in_kind
from meanmap.conditional import ConditionalEmbedding
from meanmap.kernels import Linear
from meanmap.learning.distributions import DistributionEstimator
from meanmap.learning.support_measures import bag_numbers, r2


class DistributionRidge(RegressorMixin, DistributionEstimator):
    """A number (or several) for every distribution: ridge regression on their embeddings.

    Distribution regression in two stages (Szabó, Sriperumbudur, Póczos and Gretton 2016): bags are
    embedded, and their embeddings regressed on. It is the conditional embedding of y given a bag,
    centred, so that the regularisation is chosen by leaving every bag out once, in closed form, and
    `model_` knows the whole of it.

    Parameters
    ----------
    kernel, level2, bandwidth2, point_basis : as of `SupportMeasureClassifier`
    regularization : "auto", a schedule's name or float
        λ, on the operator's scale (for n bags `K + nλI`); "auto" takes the least leave-one-out
        error. As of `ConditionalEmbedding`.
    basis : PivotedCholesky, Nystroem or None
        How bags get coordinates. None is exact to 1e-10 for up to 2,000 bags.

    Attributes
    ----------
    model_ : the ConditionalEmbedding of y given a bag
    kernel_ : the kernel of the second level, all bandwidths resolved
    regularization_ : λ
    leave_one_out_ : the errors behind an automatic λ, or None
    point_space_ : the coordinates of embeddings, where there is a `point_basis`

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.learning import DistributionRidge
    >>> rng = np.random.default_rng(0)
    >>> y = rng.uniform(0.5, 2, size=80)
    >>> X = [rng.normal(scale=s, size=(200, 1)) for s in y]
    >>> model = DistributionRidge().fit(X[:60], y[:60])
    >>> model.score(X[60:], y[60:]) > 0.9
    True
    """

    def __init__(
        self,
        kernel: Any = None,
        level2: Any = "gaussian",
        *,
        bandwidth2: float | str = "median",
        regularization: float | str = "auto",
        basis: Any = None,
        point_basis: Any = None,
    ) -> None:
        self.kernel = kernel
        self.level2 = level2
        self.bandwidth2 = bandwidth2
        self.regularization = regularization
        self.basis = basis
        self.point_basis = point_basis

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to bags and their numbers, (n,) or (n, q); a bag of weight zero is left out."""
        y = bag_numbers(y, several=True)
        read = self._read(X, y, sample_weight)
        model = ConditionalEmbedding(
            read.kernel, Linear(), self.regularization, basis=(self.basis, None), centered=True
        ).fit(read.examples, read.y, sample_weight=read.weights)
        self._remember(read, model.kernel_x_)
        self.model_ = model
        self.regularization_ = model.regularization_
        self.leave_one_out_ = model.leave_one_out_
        return self

    def predict(self, X: Any) -> Array:
        """The number of every bag, shaped like y."""
        examples = self._again(X)
        return in_kind(self.model_.predict(examples), X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of the numbers, 1 at best."""
        return r2(self.predict(X), y, sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
