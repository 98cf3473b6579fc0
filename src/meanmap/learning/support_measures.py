"""Support vector machines whose examples are distributions."""

from __future__ import annotations

from itertools import combinations
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, r2_score
from sklearn.svm import SVC, SVR
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from meanmap import checks
from meanmap.arrays import Array, host_array, in_kind, take, to_numpy
from meanmap.exceptions import warn
from meanmap.learning.distributions import DistributionEstimator
from meanmap.spaces.space import fit_space
from meanmap.statistics.gates import require_target

STEPS, PER_BAG = 1_000_000, 100  # of LIBSVM, the larger of the two: nothing can interrupt it


class SupportMeasures(DistributionEstimator):
    """The dual on a Gram matrix of bags, or on their coordinates."""

    C: float
    tol: float
    max_iter: int

    def _solve(self, machine: Any, X: Any, y: np.ndarray, sample_weight: Any) -> Any:
        """The machine fitted; what it needs to predict is kept."""
        read = self._read(X, y, sample_weight)
        checks.positive(self.C, "C", "It weighs errors against the margin; try 1.")
        weights, space = None, None
        if sample_weight is not None:
            weights = np.asarray(host_array(sample_weight), dtype=float)[read.rows]
        examples, w = read.examples, read.weights
        if self.basis is None:
            kernel, gram = read.kernel.resolve_gram(examples, w)
            self._run(machine.set_params(kernel="precomputed"), gram, read.y, weights)
        else:
            kernel = read.kernel.resolve(examples, w)
            space, coordinates = fit_space(kernel, self.basis, examples, w)
            self._run(machine.set_params(kernel="linear"), coordinates, read.y, weights)
        # nothing is kept before everything has worked
        self._remember(read, kernel)
        self.space_ = space
        self.support_ = read.rows[machine.support_]
        self.dual_coef_ = machine.dual_coef_
        self.intercept_ = machine.intercept_
        self.n_iter_ = int(np.max(machine.n_iter_))
        self._support = take(examples, machine.support_) if space is None else None
        if space is not None:
            self.coef_ = machine.coef_
        elif hasattr(self, "coef_"):
            del self.coef_
        return machine

    def _run(self, machine: Any, rows: Any, y: np.ndarray, weights: np.ndarray | None) -> None:
        """Fit the machine in a bounded number of steps; warn if they were not enough."""
        most = max(STEPS, PER_BAG * len(y)) if self.max_iter == -1 else self.max_iter
        machine.set_params(max_iter=most).fit(rows, y, sample_weight=weights)
        if machine.fit_status_:
            warn(
                f"the support vector machine had not converged after max_iter={most} steps. "
                f"Errors may cost too much to be traded against the margin: lower C (now "
                f"{self.C:g}) or sample_weight, which multiplies it; or raise tol or max_iter.",
                ConvergenceWarning,
            )

    def _values(self, X: Any, coefficients: np.ndarray) -> np.ndarray:
        """`Σ cᵢ k(x, xᵢ)` over support bags, or `⟨c, ψ(x)⟩`, for every row c of coefficients."""
        examples = self._again(X)
        if self.space_ is not None:
            return to_numpy(self.space_.coordinates(examples)) @ coefficients.T
        if not coefficients.shape[1]:  # no errors beyond epsilon: no bag supports anything
            return np.zeros((len(examples), len(coefficients)))
        return to_numpy(self.kernel_.gram_times(examples, self._support, coefficients.T))


class SupportMeasureClassifier(ClassifierMixin, SupportMeasures):
    """Classes of distributions: a support vector machine on their embeddings.

    A support measure machine (Muandet, Fukumizu, Dinuzzo and Schölkopf 2012). Each example is a
    bag: a sample of points of any size, a weighted one, an embedding, or a `kernels.Normal`. Bags
    of a single point (or the rows of a matrix) make it a support vector machine.

    Parameters
    ----------
    kernel : Kernel or None
        The kernel between points. None is a Gaussian at the median distance between all points
        (of embeddings their own kernel).
    level2 : "gaussian", "linear", a radial kernel, or a kernel on bags
        How embeddings are compared: by a Gaussian of their distance, by their inner product (the
        expected kernel), by another function of their distance such as `Laplace()`, or by a kernel
        on bags of your own.
    bandwidth2 : "median", a multiple like "0.5*median", or float
        Of level2="gaussian": the median is that of distances between embeddings.
    C : float
        What errors cost, against the width of the margin.
    class_weight : "balanced", dict or None
        Factors of C by class.
    basis : Nystroem, PivotedCholesky or None
        None solves the dual on the Gram matrix of the bags. A basis gives bags coordinates and
        solves the same problem on those, without the matrix: for thousands of bags.
    point_basis : PivotedCholesky, Nystroem, Explicit or None
        None compares every point of a bag with every point of another. A basis describes
        embeddings by some of the points: bags become vectors, at a fraction of the cost.
    decision_function_shape : "ovr" or "ovo"
        One column per class, or one per pair of classes.
    tol, max_iter : as of `sklearn.svm.SVC`, where -1 is a million steps, or 100 per bag if more

    Attributes
    ----------
    classes_ : the classes
    kernel_ : the kernel of the second level, all bandwidths resolved
    support_, n_support_ : which bags support the margin, and how many of each class
    dual_coef_, intercept_ : as of `sklearn.svm.SVC`
    space_, coef_ : the coordinates of bags and the weights of these, where there is a basis
    point_space_ : the coordinates of embeddings, where there is a `point_basis`

    Examples
    --------
    Bags of equal means, of which some are wider:

    >>> import numpy as np
    >>> from meanmap import SupportMeasureClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(60) % 2
    >>> X = [rng.normal(scale=1 + wide, size=(rng.integers(20, 40), 2)) for wide in y]
    >>> model = SupportMeasureClassifier().fit(X[:40], y[:40])
    >>> model.score(X[40:], y[40:])
    1.0
    >>> from meanmap.kernels import Normal
    >>> model.predict([Normal([0.0, 0.0], 1.0), Normal([0.0, 0.0], 4.0)])
    array([0, 1])
    """

    def __init__(
        self,
        kernel: Any = None,
        level2: Any = "gaussian",
        *,
        bandwidth2: float | str = "median",
        C: float = 1.0,
        class_weight: Any = None,
        basis: Any = None,
        point_basis: Any = None,
        decision_function_shape: str = "ovr",
        tol: float = 1e-3,
        max_iter: int = -1,
    ) -> None:
        self.kernel = kernel
        self.level2 = level2
        self.bandwidth2 = bandwidth2
        self.C = C
        self.class_weight = class_weight
        self.basis = basis
        self.point_basis = point_basis
        self.decision_function_shape = decision_function_shape
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to bags and their classes; a bag of weight zero is left out."""
        checks.option(self.decision_function_shape, "decision_function_shape", ["ovr", "ovo"])
        y = bag_labels(y)
        machine = SVC(
            C=self.C, class_weight=self.class_weight, tol=self.tol, max_iter=self.max_iter
        )
        machine = self._solve(machine, X, y, sample_weight)
        self.classes_ = machine.classes_
        self.n_support_ = machine.n_support_
        return self

    def decision_function(self, X: Any) -> Array:
        """How far on which side of the margin: shape (n,) for two classes, else (n, columns)."""
        values = self._pairs(X)
        if len(self.classes_) == 2:
            return in_kind(values[:, 0], X)
        if self.decision_function_shape == "ovo":
            return in_kind(values, X)
        votes, sums = self._votes(values)
        # as scikit-learn does: confidences decide between classes with as many votes
        return in_kind(votes + sums / (3 * (abs(sums) + 1)), X)

    def predict(self, X: Any) -> Array:
        """The class of every bag."""
        values = self._pairs(X)
        if len(self.classes_) == 2:
            return in_kind(self.classes_[(values[:, 0] > 0).astype(int)], X)
        return in_kind(self.classes_[self._votes(values)[0].argmax(axis=1)], X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of bags whose class is right."""
        found = to_numpy(self.predict(X))
        return float(accuracy_score(host_array(y), found, sample_weight=host_array(sample_weight)))

    def _pairs(self, X: Any) -> np.ndarray:
        """For every pair of classes, positive where the first of them wins (the second of two)."""
        check_is_fitted(self)
        exact = self.space_ is None
        rows = pair_coefficients(self.dual_coef_, self.n_support_) if exact else self.coef_
        return self._values(X, rows) + self.intercept_

    def _votes(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How many pairs each class wins, and its sum of confidences."""
        classes = len(self.classes_)
        votes, sums = np.zeros((2, len(values), classes))
        for column, (i, j) in enumerate(combinations(range(classes), 2)):
            won = values[:, column] > 0
            votes[won, i] += 1
            votes[~won, j] += 1
            sums[:, i] += values[:, column]
            sums[:, j] -= values[:, column]
        return votes, sums


def pair_coefficients(dual: np.ndarray, n_support: np.ndarray) -> np.ndarray:
    """A row of coefficients of all support bags for every pair of classes.

    Support bags stand class by class; row j - 1 of the dual holds those of class i against j > i,
    row i those of class j against i < j (as LIBSVM has them).
    """
    if len(n_support) == 2:
        return dual
    ends = np.cumsum(n_support)
    of = [slice(end - size, end) for end, size in zip(ends, n_support, strict=True)]
    rows = []
    for i, j in combinations(range(len(n_support)), 2):
        row = np.zeros(dual.shape[1])
        row[of[i]], row[of[j]] = dual[j - 1, of[i]], dual[i, of[j]]
        rows.append(row)
    return np.array(rows)


def bag_labels(y: Any) -> np.ndarray:
    """Classes, one per bag."""
    require_target(y, "fit(X, y) takes a class for every bag")
    y = column_or_1d(host_array(y), warn=True)
    missing = np.flatnonzero(checks.missing_rows(y))
    if len(missing):
        raise ValueError(
            f"Input y contains NaN: {len(missing)} of {len(y)} bags have no class (the first is "
            f"bag {missing[0]}). Leave those bags out."
        )
    check_classification_targets(y)
    return y


def r2(found: Array, y: Any, sample_weight: Any) -> float:
    """R² of numbers found, 1 at best."""
    return float(r2_score(host_array(y), to_numpy(found), sample_weight=host_array(sample_weight)))


def bag_numbers(y: Any, several: bool = False) -> np.ndarray:
    """Targets that are numbers, one per bag (or a row of them)."""
    require_target(y, "fit(X, y) takes a number for every bag")
    y = np.asarray(to_numpy(checks.numbers(y, "y")), dtype=np.float64)
    if y.ndim not in (1, 2) or 0 in y.shape:
        raise ValueError(f"y: expected a number for every bag, got {checks.describe(y)}.")
    return y if several and y.ndim == 2 else column_or_1d(y, warn=True)


class SupportMeasureRegressor(RegressorMixin, SupportMeasures):
    """A number for every distribution: support vector regression on their embeddings.

    Errors up to `epsilon` cost nothing, larger ones in proportion. `DistributionRidge` squares them
    and chooses its regularisation by itself.

    Parameters
    ----------
    kernel, level2, bandwidth2, basis, point_basis : as of `SupportMeasureClassifier`
    C : float
        What errors cost.
    epsilon : float
        The error that costs nothing.
    tol, max_iter : as of `SupportMeasureClassifier`

    Attributes
    ----------
    kernel_, support_, dual_coef_, intercept_, space_, coef_, point_space_ : as of
        `SupportMeasureClassifier`

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import SupportMeasureRegressor
    >>> rng = np.random.default_rng(0)
    >>> y = rng.uniform(0.5, 2, size=80)
    >>> X = [rng.normal(scale=s, size=(200, 1)) for s in y]
    >>> model = SupportMeasureRegressor(C=10).fit(X[:60], y[:60])
    >>> model.score(X[60:], y[60:]) > 0.9
    True
    """

    def __init__(
        self,
        kernel: Any = None,
        level2: Any = "gaussian",
        *,
        bandwidth2: float | str = "median",
        C: float = 1.0,
        epsilon: float = 0.1,
        basis: Any = None,
        point_basis: Any = None,
        tol: float = 1e-3,
        max_iter: int = -1,
    ) -> None:
        self.kernel = kernel
        self.level2 = level2
        self.bandwidth2 = bandwidth2
        self.C = C
        self.epsilon = epsilon
        self.basis = basis
        self.point_basis = point_basis
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to bags and their numbers; a bag of weight zero is left out."""
        y = bag_numbers(y)
        checks.not_negative(self.epsilon, "epsilon", "It is an error that costs nothing.")
        machine = SVR(C=self.C, epsilon=self.epsilon, tol=self.tol, max_iter=self.max_iter)
        self._solve(machine, X, y, sample_weight)
        return self

    def predict(self, X: Any) -> Array:
        """The number of every bag."""
        check_is_fitted(self)
        coefficients = self.dual_coef_ if self.space_ is None else self.coef_
        return in_kind(self._values(X, coefficients)[:, 0] + self.intercept_[0], X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of the numbers, 1 at best."""
        return r2(self.predict(X), y, sample_weight)
