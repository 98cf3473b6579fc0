"""Weights for a sample whose targets are distributed differently from those of new rows."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from meanmap import checks, plots
from meanmap.adaptation.mean_matching import (
    RANK,
    fit_host_space,
    read_target,
    require_test_rows,
)
from meanmap.adaptation.target_mixtures import (
    Classes,
    Mixture,
    MixtureFit,
    Ridges,
    TargetPredictor,
    predict_targets,
    target_images,
)
from meanmap.adaptation.weight_programme import WeightSolution, default_bound, enough_ridge
from meanmap.arrays import Array, Points, concatenate, in_kind, is_chunked, to_numpy
from meanmap.conditional.selection import effective_size
from meanmap.embeddings import Embedding, embed
from meanmap.exceptions import DataWarning, warn
from meanmap.frames import remember_columns
from meanmap.kernels import Kernel
from meanmap.kernels.defaults import as_kernel, as_target
from meanmap.spaces import Basis, PivotedCholesky, Space
from meanmap.statistics.columns import positive_ratio
from meanmap.statistics.gates import require_target
from meanmap.statistics.tiles import on_host
from meanmap.streams.chunks import Chunks, answer_chunks, sample_rows

METRICS = ("predictive", "embedding")
FAR = 0.5  # of ‖μ_test - μ_train‖ left, above which no change of targets explains the test rows


class TargetShift(BaseEstimator):
    """Weights β(y) of training rows such that mixing P(x|y) by them gives the test rows.

    For target shift: P(y) differs between training and test, P(x|y) does not. β minimises
    ‖C_X|Y E[β(y)φ(y)] - μ_test‖² + ρ E[β²] for 0 ≤ β ≤ B, E[β] = 1 (Zhang, Schölkopf, Muandet and
    Wang 2013, eq. 5). No target of the test rows is needed. For classes β has one value each, and
    P_test(y) is read off; for numbers it is a smooth function of y, since the embedding of P(x|y)
    is one. From four classes on β is drawn towards one, by the share of its squared distance that
    noise explains (James and Stein 1961): where nothing has shifted little is changed.

    Parameters
    ----------
    kernel_x, kernel_y : Kernel, callable or None
        None chooses: for X by the kind of points; for y `Delta()` where it is text, truth values or
        whole numbers. Floating-point targets are numbers.
    metric : {"predictive", "embedding"}
        What distances are measured in: all that the kernel sees of x, as in the paper, or what x
        tells of y, E[φ(y)|x], for training rows by leaving each out. The second has the same
        answer with endless data, and much less noise where x has many dimensions.
    regularization : "auto", a schedule's name or float
        λ of the conditional embeddings of X given numbers y, and of y given X.
    ridge : "auto" or float
        ρ, on the kernel's scale. "auto" takes what comes nearest to test rows held out.
    bound : "auto" or float
        B; "auto" is √n between 10 and 1000, and none for classes.
    basis : a basis or None
        Coordinates of the training and test rows together.
    n_bootstrap : int
        Resamples of both samples that `interval` rests on; 0 for none. For numbers test rows are
        drawn from the training rows by their weights, each resample has its own regressions (of y
        on x up to some hundred rows), and its own ρ if that was searched for.
    random_state : int, Generator or None

    Attributes
    ----------
    weights_ : β(yᵢ), one on average
    effective_size_ : (Σβ)²/Σβ²
    classes_, proportions_, proportions_train_ : for classes, P_test(y) and P_train(y)
    distribution_ : the embedding of P_test(y)
    distance_, distance_before_ : of the mixture to the test rows, and for equal weights
    draws_ : bootstrap draws, of the proportions before β is drawn towards one, or of the mean of y
        under P_test, less the bias that they show, and wider by it
    kernel_x_, kernel_y_, ridge_, bound_ : what was used

    Examples
    --------
    A class is rare among the labelled rows, and common among the unlabelled ones.

    >>> import numpy as np
    >>> from meanmap import TargetShift
    >>> rng = np.random.default_rng(0)
    >>> y, unseen = rng.random(600) < 0.1, rng.random(600) < 0.6
    >>> X = 1.5 * y[:, None] + rng.normal(size=(600, 2))
    >>> T = 1.5 * unseen[:, None] + rng.normal(size=(600, 2))
    >>> shift = TargetShift(random_state=0).fit(X, y, X_test=T)
    >>> [float(p) for p in shift.proportions_.round(1)]
    [0.4, 0.6]
    """

    def __init__(
        self,
        kernel_x: Any = None,
        kernel_y: Any = None,
        metric: str = "predictive",
        regularization: float | str = "auto",
        ridge: float | str = "auto",
        bound: float | str = "auto",
        *,
        basis: Basis | None = None,
        n_bootstrap: int = 200,
        random_state: Any = None,
    ) -> None:
        self.kernel_x = kernel_x
        self.kernel_y = kernel_y
        self.metric = metric
        self.regularization = regularization
        self.ridge = ridge
        self.bound = bound
        self.basis = basis
        self.n_bootstrap = n_bootstrap
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, X_test: Any = None) -> Self:
        """Find the weights from labelled training rows and unlabelled test rows."""
        require_target(y, "weights are a function of it; KernelMeanMatching needs none")
        require_test_rows(X_test, "fit(X, y, X_test=T)")
        if is_chunked(X, y, X_test):
            return self._fit_chunks(X, y, X_test)
        ridge = self._given_ridge()
        checks.option(self.metric, "metric", METRICS)
        draws = checks.whole(self.n_bootstrap, "n_bootstrap", 0, "Use 0 for no intervals.")
        rng = checks.random_generator(self.random_state, "random_state")
        kernel_x = as_kernel(self.kernel_x, X, "X")
        train = kernel_x.check(X, "X")
        test = kernel_x.check(X_test, "X_test", train, "X")
        kernel_y, asked, flat = read_target(y, self.kernel_y)
        train, test, targets = (on_host(part) for part in (train, test, asked))
        n = checks.same_length([("X", train), ("y", targets)])
        both = concatenate([train, test])
        basis = self.basis if self.basis is not None else PivotedCholesky(1e-5, max_rank=RANK)
        space, psi = fit_host_space(kernel_x.resolve(both), both, basis)
        kernel_y = kernel_y.resolve(targets)
        Z, predictor = self._features(psi, space, train, targets, kernel_y)
        mixture = target_images(Z[:n], targets, kernel_y, self.regularization)
        bound = self._bound(n, mixture)
        scale = float((Z**2).sum(axis=1).mean())
        ridges = mixture.ridges(Z[n:], scale, bound, rng) if ridge is None else Ridges.single(ridge)
        ridge, mean = ridges.best(), Z[n:].mean(axis=0)
        plain = mixture.solve(mean, ridge, bound)
        found = mixture.shrink(plain, Z[n:], ridge)
        fit = MixtureFit(found, Z[n:], ridges, bound, predictor)
        drawn = mixture.draws(draws if mixture.has_mean else 0, fit, rng)
        if getattr(train, "ndim", 0) == 2:  # nothing is set before everything has worked
            remember_columns(self, X)
        self.kernel_x_, self.kernel_y_ = space.kernel_, kernel_y
        self.ridge_, self.bound_, self._mix, self._solution = ridge, bound, mixture, found
        self._flat = flat
        weights = found.beta[mixture.row]
        self.weights_ = in_kind(weights, X)
        self.effective_size_ = effective_size(weights / weights.sum())
        self.distance_, self.distance_before_ = (
            float(np.linalg.norm(p @ mixture.images - mean))
            for p in (mixture.w * found.beta, mixture.w)
        )
        self.draws_ = drawn
        if isinstance(mixture, Classes):
            self._keep_classes(mixture, found, plain)
        asked = asked if isinstance(asked, tuple) else in_kind(asked, X)
        self.distribution_: Embedding = embed(asked, kernel_y, weights / n)
        self._warn(found, Z[n:])
        return self

    def _features(
        self, psi: np.ndarray, space: Space, train: Points, targets: Points, kernel_y: Kernel
    ) -> tuple[np.ndarray, TargetPredictor | None]:
        """What distances are measured in, and the regression behind it."""
        if self.metric == "embedding":
            return psi, None
        return predict_targets(psi, space, train, targets, kernel_y, self.regularization)

    def _given_ridge(self) -> float | None:
        """ρ, None for "auto"."""
        ridge = checks.number_or_auto(self.ridge, "ridge", checks.positive, "1e-3")
        remedy = 'Use "auto" or a number like 1e-3.'
        return None if ridge is None else enough_ridge(ridge, remedy)

    def _keep_classes(self, mixture: Classes, found: WeightSolution, plain: WeightSolution) -> None:
        self.classes_ = mixture.classes
        self.proportions_train_ = mixture.w
        self.proportions_ = mixture.w * found.beta
        self._moved = mixture.w * (found.beta - plain.beta)

    def _fit_chunks(self, X: Any, y: Any, X_test: Any) -> Self:
        """From a sample of all; the weights of chunks are not computed yet."""
        rows = Chunks.of(X=X, y=y).sample() if is_chunked(X, y) else (X, y)
        model = copy(self).fit(*rows, X_test=sample_rows(X_test))
        if is_chunked(y):
            model.weights_ = model.weights(y)
        self.__dict__.update(model.__dict__)
        return self

    def _bound(self, n: int, mixture: Mixture) -> float:
        bound = checks.number_or_auto(self.bound, "bound", checks.positive, "100")
        if bound is None:
            return float(n) if isinstance(mixture, Classes) else default_bound(n)
        if bound < 1:
            raise ValueError(f"bound={bound:g} cannot be met: weights below 1 have no mean of 1.")
        return bound

    def _warn(self, found: WeightSolution, test: np.ndarray) -> None:
        if not found.converged:
            warn(
                f"the weights are {found.gap:.2g} from the best objective after {found.steps} "
                "steps. Raise ridge.",
                ConvergenceWarning,
            )
        if self.distance_ > FAR * self.distance_before_ and self._noticeable(test):
            warn(
                "no change of the targets' distribution makes the training rows look like the test "
                f"rows: of a distance of {self.distance_before_:.3g} {self.distance_:.3g} is left. "
                "P(x|y) may differ too (LocationScaleShift), or P(y|x) stay (KernelMeanMatching).",
                DataWarning,
            )

    def _noticeable(self, test: np.ndarray) -> bool:
        """Whether what is left is more than two samples' noise would leave."""
        noise = float(test.var(axis=0).sum()) * (1 / len(test) + 1 / self.effective_size_)
        return self.distance_ > 4 * noise**0.5

    def weights(self, y: Any) -> Array:
        """β at other targets; for a class that was not seen an error."""
        check_is_fitted(self, "weights_")
        if is_chunked(y):
            return answer_chunks(y, self.weights, np.ones(1))
        target = as_target(y, self.kernel_y_)[0] if self._flat else y
        points = self.kernel_y_.check(target, "y", self._mix.targets, "the training targets")
        return in_kind(self._mix.elsewhere(self._solution, points, self.ridge_, self.bound_), y)

    def adjust(self, probabilities: Any) -> Array:
        """P_test(y|x) ∝ P_train(y|x) β(y), from a classifier's probabilities.

        Columns are in the order of `classes_`. A classifier that is fitted to the training rows as
        they are need not be fitted again (Saerens, Latinne and Decaestecker 2002), nor lose rows to
        small weights; but its probabilities must be calibrated.
        """
        check_is_fitted(self, "weights_")
        if not hasattr(self, "classes_"):
            raise ValueError("adjust is for classes, and y was numbers. Use weights(y) for these.")
        given = to_numpy(checks.numbers(probabilities, "probabilities"))
        table = np.asarray(given, dtype=float)
        if table.ndim != 2 or table.shape[1] != len(self.classes_) or not (table >= 0).all():
            raise ValueError(
                f"probabilities: expected rows of {len(self.classes_)} numbers ≥ 0, as "
                f"predict_proba gives them, got shape {table.shape}."
            )
        scaled = table * self._solution.beta
        total = scaled.sum(axis=1, keepdims=True)
        return in_kind(positive_ratio(scaled, total, self.proportions_), probabilities)

    def interval(self, level: float = 0.9) -> np.ndarray:
        """Bootstrap intervals, rows (low, high): of each class's proportion, or of E_test[y].

        Those of proportions lie about the shrunk ones but are as wide as those about the others,
        since a part of the error is a bias; so they cover more (Hwang and Casella 1982).
        """
        check_is_fitted(self, "weights_")
        if not 0 < checks.number(level, "level") < 1:
            raise ValueError(f"level must be between 0 and 1, got {level!r}. Use 0.9 for 90%.")
        if not self._mix.has_mean:
            raise ValueError(
                "y does not consist of numbers, so it has no mean. Use distribution_, the "
                "embedding of its distribution among the test rows, or weights_."
            )
        if not len(self.draws_):
            raise ValueError("n_bootstrap=0 leaves no draws to make an interval of. Use 200.")
        tails = (1 - level) / 2, (1 + level) / 2
        low, high = np.quantile(self.draws_, tails, axis=0)
        if hasattr(self, "classes_"):
            low = np.where(low > 0, low + self._moved, 0.0)  # a class may still be gone
            low, high = low.clip(min=0), (high + self._moved).clip(max=1)
        return np.stack([low, high], axis=1)

    def plot(self, ax: Any = None) -> Any:
        """Weights against targets; for classes the proportions before and after."""
        check_is_fitted(self, "weights_")
        if hasattr(self, "classes_"):
            span = self.interval() if len(self.draws_) else None
            return plots.proportions(
                self.classes_, self.proportions_train_, self.proportions_, span, ax
            )
        values = to_numpy(self._mix.targets)
        return plots.against(
            values.reshape(len(values), -1)[:, 0], to_numpy(self.weights_), ("y", "β"), ax
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "weights_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags
