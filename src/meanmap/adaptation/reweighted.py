"""An estimator that is fitted with weights, so that it suits new rows."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn import config_context
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from meanmap import checks
from meanmap.adaptation.mean_matching import KernelMeanMatching
from meanmap.arrays import host_array, in_kind, to_numpy


def _has(name: str) -> Any:
    def check(self: Reweighted) -> bool:
        getattr(self.estimator_ if hasattr(self, "estimator_") else self.estimator, name)
        return True

    return available_if(check)


class Reweighted(MetaEstimatorMixin, BaseEstimator):
    """A scikit-learn estimator fitted to training rows that are weighted to look like test rows.

    Parameters
    ----------
    estimator : an estimator whose fit takes `sample_weight`, or a pipeline whose last step does
    weights : KernelMeanMatching, TargetShift or None
        What finds the weights: anything with `fit(X, y, X_test=T)` and then `weights_`. None is
        `KernelMeanMatching()`.

    Attributes
    ----------
    estimator_, weights_ : the fitted estimator, and what found the weights

    Examples
    --------
    A straight line through a curve is to serve where the test rows are.

    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from meanmap import KernelMeanMatching
    >>> from meanmap.adaptation import Reweighted
    >>> rng = np.random.default_rng(0)
    >>> X, T = rng.normal(size=(400, 1)), rng.normal(1.5, 0.3, size=(400, 1))
    >>> y = X[:, 0] ** 2 + 0.1 * rng.normal(size=400)
    >>> line = Reweighted(LinearRegression(), KernelMeanMatching(random_state=0))
    >>> error = abs(line.fit(X, y, X_test=T).predict(T) - T[:, 0] ** 2).mean()
    >>> plain = abs(LinearRegression().fit(X, y).predict(T) - T[:, 0] ** 2).mean()
    >>> bool(error < plain / 5)
    True
    """

    def __init__(self, estimator: Any, weights: Any = None) -> None:
        self.estimator = estimator
        self.weights = weights

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        X_test: Any = None,
        sample_weight: Any = None,
        **fit_params: Any,
    ) -> Self:
        """Find the weights of the training rows, then fit the estimator with them.

        `sample_weight` are weights that the rows have of themselves; they multiply those found.
        """
        name = "sample_weight"
        last = self.estimator
        while isinstance(last, Pipeline):
            step, last = last.steps[-1]
            name = f"{step}__{name}"
        if not has_fit_parameter(last, "sample_weight"):
            raise TypeError(
                f"{type(last).__name__}.fit takes no sample_weight, so that weights cannot reach "
                "it. Use an estimator that does, or draw rows by the weights."
            )
        weights = clone(self.weights) if self.weights is not None else KernelMeanMatching()
        weights.fit(X, y, X_test=X_test)
        given = to_numpy(weights.weights_)
        for own in (sample_weight, fit_params.pop(name, None)):  # of the rows themselves
            if own is not None:
                checks.sample_weights(own, given, np.empty(0))  # none negative, not all zero
                given = given * to_numpy(checks.numbers(own, "sample_weight"))
        # the weights go to the last step, whatever routing the outside world has asked for
        with config_context(enable_metadata_routing=False):
            estimator = clone(self.estimator)
            estimator.fit(host_array(X), host_array(y), **{name: given}, **fit_params)
        self.weights_, self.estimator_ = weights, estimator
        return self

    def predict(self, X: Any) -> Any:
        """As the estimator."""
        check_is_fitted(self, "estimator_")
        return in_kind(self.estimator_.predict(host_array(X)), X)

    @_has("predict_proba")
    def predict_proba(self, X: Any) -> Any:
        """As the estimator."""
        check_is_fitted(self, "estimator_")
        return in_kind(self.estimator_.predict_proba(host_array(X)), X)

    @_has("decision_function")
    def decision_function(self, X: Any) -> Any:
        """As the estimator."""
        check_is_fitted(self, "estimator_")
        return in_kind(self.estimator_.decision_function(host_array(X)), X)

    @_has("transform")
    def transform(self, X: Any) -> Any:
        """As the estimator."""
        check_is_fitted(self, "estimator_")
        return in_kind(self.estimator_.transform(host_array(X)), X)

    @_has("score")
    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """As the estimator."""
        check_is_fitted(self, "estimator_")
        params = {} if sample_weight is None else {"sample_weight": host_array(sample_weight)}
        with config_context(enable_metadata_routing=False):
            return float(self.estimator_.score(host_array(X), host_array(y), **params))

    @property
    def classes_(self) -> Any:
        """The classes of a classifier."""
        return self.estimator_.classes_

    @property
    def n_features_in_(self) -> int:
        """The number of columns that the estimator has seen."""
        return int(self.estimator_.n_features_in_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimator_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.target_tags = inner.target_tags
        return tags
