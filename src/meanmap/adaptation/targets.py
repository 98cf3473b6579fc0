"""Weights for a sample whose targets are distributed otherwise than those to come."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import scipy.linalg
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from meanmap import checks, plots
from meanmap.adaptation.matching import RANK, placed
from meanmap.adaptation.programme import Programme, Solution, solve
from meanmap.arrays import Points, concatenate, count, to_numpy
from meanmap.conditional import ConditionalEmbedding
from meanmap.decoding.sampling import generator
from meanmap.embeddings import Embedding, embed
from meanmap.kernels import Delta, Kernel, Linear, as_kernel
from meanmap.linalg import ConflictWarning
from meanmap.pairs import as_target, read_target
from meanmap.selection import effective_size
from meanmap.spaces import Basis, PivotedCholesky, Space

METRICS = ("predictive", "embedding")
SHARES = 10.0 ** np.arange(0.0, -6.5, -0.5)  # ρ that "auto" tries, in units of the mean of k(x, x)
CLASSES_SHARE = 1e-6  # ρ for classes, whose weights are few
ROUNDS = 8  # random halves that a search for ρ holds out
SEARCHED = 1000
FAR = 0.5  # of ‖μ_test - μ_train‖ left, above which no change of targets explains the test rows


class TargetShift(BaseEstimator):
    """Weights β(y) of training rows such that mixing P(x|y) by them gives the test rows.

    For target shift: P(y) differs between training and test, P(x|y) does not. β minimises
    ‖C_X|Y E[β(y)φ(y)] - μ_test‖² + ρ E[β²] for 0 ≤ β ≤ B, E[β] = 1 (Zhang, Schölkopf, Muandet and
    Wang 2013, eq. 5). No target of the test rows is needed. For classes β has one value each, and
    P_test(y) is read off; for numbers it is a smooth function of y, since the embedding of P(x|y)
    is one.

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
        Resamples of both samples that `interval` rests on; 0 for none.
    random_state : int, Generator or None

    Attributes
    ----------
    weights_ : β(yᵢ), one on average
    effective_size_ : (Σβ)²/Σβ²
    classes_, proportions_, proportions_train_ : for classes, P_test(y) and P_train(y)
    distribution_ : the embedding of P_test(y)
    distance_, distance_before_ : of the mixture to the test rows, and for equal weights
    draws_ : bootstrap draws, of the proportions or of the mean of y under P_test
    kernel_x_, kernel_y_, ridge_, bound_ : what was used

    Examples
    --------
    A class is rare where there are labels, and common where there are none.

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
        if y is None:
            raise ValueError(
                "This estimator requires y to be passed, but the target y is None: the weights "
                "are a function of it. KernelMeanMatching needs none."
            )
        if X_test is None:
            raise ValueError(
                "fit(X, y, X_test=T) needs rows without targets whose targets are asked about, got "
                "X_test=None."
            )
        ridge: Any = self.ridge
        if isinstance(ridge, str):
            checks.option(ridge, "ridge", ["auto"])
        else:
            ridge = checks.positive(ridge, "ridge", 'Use "auto" or a number like 1e-3.')
        checks.option(self.metric, "metric", METRICS)
        draws = checks.whole(self.n_bootstrap, "n_bootstrap", 0, "Use 0 for no intervals.")
        rng = generator(self.random_state)
        kernel_x = as_kernel(self.kernel_x, X, "X")
        train = kernel_x.check(X, "X")
        test = kernel_x.check(X_test, "X_test", train, "X")
        kernel_y, targets, flat = read_target(y, self.kernel_y)
        n = checks.same_length([("X", train), ("y", targets)])
        both = concatenate([train, test])
        basis = self.basis if self.basis is not None else PivotedCholesky(1e-5, max_rank=RANK)
        space, psi = placed(kernel_x.resolve(both), both, basis)
        kernel_y = kernel_y.resolve(targets)
        if self.metric == "predictive":
            Z = predicted(psi, space, train, targets, kernel_y, self.regularization)
        else:
            Z = psi
        mixture = mixed(Z[:n], targets, kernel_y, self.regularization)
        bound = self._bound(n, mixture)
        scale = float((Z**2).sum(axis=1).mean())
        if ridge == "auto":
            ridge = scale * mixture.share(Z[n:], scale, bound, rng)
        mean = Z[n:].mean(axis=0)
        found = mixture.solved(mean, ridge, bound)
        resampled = [mixture.resampled(Z[n:], ridge, bound, rng) for _ in range(draws)]
        if getattr(train, "ndim", 0) == 2:  # nothing is set before everything has worked
            validate_data(self, X=X, reset=True, skip_check_array=True)
        self.kernel_x_, self.kernel_y_ = space.kernel_, kernel_y
        self.ridge_, self.bound_, self._mix, self._solution = ridge, bound, mixture, found
        self._flat = flat
        self.weights_ = found.beta[mixture.row]
        self.effective_size_ = effective_size(self.weights_ / self.weights_.sum())
        self.distance_ = float(np.linalg.norm((mixture.w * found.beta) @ mixture.images - mean))
        self.distance_before_ = float(np.linalg.norm(mixture.w @ mixture.images - mean))
        self.draws_ = np.array(resampled)
        if isinstance(mixture, Classes):
            self.classes_ = mixture.classes
            self.proportions_train_ = mixture.w
            self.proportions_ = mixture.w * found.beta
        self.distribution_: Embedding = embed(targets, kernel_y, self.weights_ / n)
        self._warn(found, Z[n:])
        return self

    def _bound(self, n: int, mixture: Mixture) -> float:
        if not isinstance(self.bound, str):
            bound = checks.positive(self.bound, "bound", 'Use "auto" or a number like 100.')
            if bound < 1:
                raise ValueError(
                    f"bound={bound:g} cannot be met: weights below 1 have no mean of 1."
                )
            return bound
        checks.option(self.bound, "bound", ["auto"])
        return float(n) if isinstance(mixture, Classes) else min(max(n**0.5, 10.0), 1000.0)

    def _warn(self, found: Solution, test: np.ndarray) -> None:
        if not found.converged:
            warnings.warn(
                f"the weights are {found.gap:.2g} from the best objective after {found.steps} "
                "steps. Raise ridge.",
                ConvergenceWarning,
                stacklevel=3,
            )
        if self.distance_ > FAR * self.distance_before_ and self._noticeable(test):
            warnings.warn(
                "no change of the targets' distribution makes the training rows look like the test "
                f"rows: of a distance of {self.distance_before_:.3g} {self.distance_:.3g} is left. "
                "P(x|y) may differ too (LocationScaleShift), or P(y|x) stay (KernelMeanMatching).",
                ConflictWarning,
                stacklevel=3,
            )

    def _noticeable(self, test: np.ndarray) -> bool:
        """Whether what is left is more than two samples' noise would leave."""
        noise = float(test.var(axis=0).sum()) * (1 / len(test) + 1 / self.effective_size_)
        return self.distance_ > 4 * noise**0.5

    def weights(self, y: Any) -> np.ndarray:
        """β at other targets; for a class that was not seen an error."""
        check_is_fitted(self, "weights_")
        target = as_target(y, self.kernel_y_)[0] if self._flat else y
        points = self.kernel_y_.check(target, "y", self._mix.targets, "the training targets")
        return self._mix.elsewhere(self._solution, points, self.ridge_, self.bound_)

    def adjust(self, probabilities: Any) -> np.ndarray:
        """P_test(y|x) ∝ P_train(y|x) β(y), from a classifier's probabilities.

        Columns are in the order of `classes_`. A classifier that is fitted to the training rows as
        they are need not be fitted again (Saerens, Latinne and Decaestecker 2002), nor lose rows to
        small weights; but its probabilities must be calibrated.
        """
        check_is_fitted(self, "weights_")
        if not hasattr(self, "classes_"):
            raise ValueError("adjust is for classes, and y was numbers. Use weights(y) for these.")
        table = np.asarray(probabilities, dtype=float)
        if table.ndim != 2 or table.shape[1] != len(self.classes_) or not (table >= 0).all():
            raise ValueError(
                f"probabilities: expected rows of {len(self.classes_)} numbers ≥ 0, as "
                f"predict_proba gives them, got shape {table.shape}."
            )
        scaled = table * self._solution.beta
        total = scaled.sum(axis=1, keepdims=True)
        return np.where(total > 0, scaled / np.where(total > 0, total, 1.0), self.proportions_)

    def interval(self, level: float = 0.9) -> np.ndarray:
        """Bootstrap intervals, rows (low, high): of each class's proportion, or of E_test[y]."""
        check_is_fitted(self, "weights_")
        if not 0 < checks.number(level, "level") < 1:
            raise ValueError(f"level must be between 0 and 1, got {level!r}. Use 0.9 for 90%.")
        if not len(self.draws_):
            raise ValueError("n_bootstrap=0 leaves no draws to make an interval of. Use 200.")
        tails = (1 - level) / 2, (1 + level) / 2
        return np.quantile(self.draws_, tails, axis=0).T

    def plot(self, ax: Any = None) -> Any:
        """Weights against targets; for classes the proportions before and after."""
        check_is_fitted(self, "weights_")
        if hasattr(self, "classes_"):
            span = self.interval() if len(self.draws_) else None
            return plots.proportions(
                self.classes_, self.proportions_train_, self.proportions_, span, ax
            )
        values = to_numpy(self._mix.targets)
        return plots.against(values.reshape(len(values), -1)[:, 0], self.weights_, ("y", "β"), ax)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "weights_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


@dataclass(frozen=True, eq=False)
class Mixture:
    """Images of P(x|y) for values of y, their weights in training, and each row's value."""

    images: np.ndarray  # (values, r)
    w: np.ndarray
    row: np.ndarray  # (n,) the value of a training row
    targets: Points

    def solved(self, mean: np.ndarray, ridge: float, bound: float) -> Solution:
        return solve(Programme(self.images, self.w, mean, ridge, bound, 1.0, 1.0))


@dataclass(frozen=True, eq=False)
class Classes(Mixture):
    """One value a class."""

    classes: np.ndarray
    features: np.ndarray  # of the training rows

    def share(
        self, test: np.ndarray, scale: float, bound: float, rng: np.random.Generator
    ) -> float:
        return CLASSES_SHARE

    def resampled(
        self, test: np.ndarray, ridge: float, bound: float, rng: np.random.Generator
    ) -> np.ndarray:
        """Proportions from both samples drawn again, training rows within their classes."""
        drawn = np.empty(len(self.row), dtype=int)
        for value in range(len(self.classes)):
            members = np.flatnonzero(self.row == value)
            drawn[members] = rng.choice(members, len(members))
        again = replace(self, images=class_means(self.features[drawn], self.row, self.w))
        return self.w * again.solved(drawn_mean(test, rng), ridge, bound).beta

    def elsewhere(self, found: Solution, y: Points, ridge: float, bound: float) -> np.ndarray:
        values = to_numpy(y)
        at = np.searchsorted(self.classes, values).clip(max=len(self.classes) - 1)
        new = self.classes[at] != values
        if new.any():
            known = ", ".join(map(repr, self.classes[:6].tolist()))
            raise ValueError(
                f"y: {values[new].tolist()[0]!r} is no class of the training rows ({known}…), so "
                "that it has no weight."
            )
        return found.beta[at]


@dataclass(frozen=True, eq=False)
class Numbers(Mixture):
    """One value a training row, between which the images are smooth."""

    model: ConditionalEmbedding  # of the features given y

    def share(
        self, test: np.ndarray, scale: float, bound: float, rng: np.random.Generator
    ) -> float:
        """ρ, as a share, whose mixture comes nearest to test rows that it has not seen."""
        errors = np.zeros((ROUNDS, len(SHARES)))
        rows = rng.permutation(len(self.w))[:SEARCHED]
        images, w = self.images[rows], np.full(len(rows), 1 / len(rows))
        for one in errors if len(test) > 1 else ():
            halves = np.array_split(rng.permutation(len(test)), 2)
            seen, unseen = (test[half].mean(axis=0) for half in halves)
            dual = None
            for i, share in enumerate(SHARES):
                programme = Programme(images, w, seen, share * scale, bound, 1.0, 1.0)
                found = solve(programme, dual, tolerance=1e-6, max_iter=30)
                dual = found.dual
                one[i] = ((((w * found.beta) @ images) - unseen) ** 2).sum()
        # the largest that is not told apart from the best: halves are noisy
        worse = errors - errors[:, [int(np.argmin(errors.mean(axis=0)))]]
        doubt = worse.std(axis=0, ddof=1) / ROUNDS**0.5
        return float(SHARES[int(np.argmax(worse.mean(axis=0) <= doubt))])

    def resampled(
        self, test: np.ndarray, ridge: float, bound: float, rng: np.random.Generator
    ) -> np.ndarray:
        """The mean of y from both samples drawn again."""
        n = len(self.w)
        again = replace(self, w=rng.multinomial(n, self.w) / n)
        found = again.solved(drawn_mean(test, rng), ridge, bound)
        return (again.w * found.beta) @ to_numpy(self.targets).reshape(n, -1)

    def elsewhere(self, found: Solution, y: Points, ridge: float, bound: float) -> np.ndarray:
        images = np.asarray(self.model.predict(y))
        programme = Programme(self.images, self.w, images[0], ridge, bound, 1.0, 1.0)
        return programme.elsewhere(found, images)


def mixed(
    features: np.ndarray, targets: Points, kernel_y: Kernel, regularization: float | str
) -> Classes | Numbers:
    """Images of P(x|y): means of classes, or the conditional mean given numbers."""
    n = len(features)
    if isinstance(kernel_y, Delta) and targets.ndim == 1:
        classes, row = np.unique(to_numpy(targets), return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"y has one class, {classes[0]!r}: there is nothing that could shift. Two or more "
                "are needed."
            )
        share = np.bincount(row, minlength=len(classes)) / n
        images = class_means(features, row, share)
        return Classes(images, share, row, targets, classes, features)
    model = ConditionalEmbedding(kernel_y, Linear(), regularization, centered=True)
    model.fit(targets, features)
    images = np.asarray(model.predict(targets))
    return Numbers(images, np.full(n, 1 / n), np.arange(n), targets, model)


def predicted(
    psi: np.ndarray,
    space: Space,
    train: Points,
    targets: Points,
    kernel_y: Kernel,
    regularization: float | str,
) -> np.ndarray:
    """E[φ(y)|x] of training rows, each from the others, and then of test rows."""
    n = count(train)
    w = np.full(n, 1 / n)
    if isinstance(kernel_y, Delta) and targets.ndim == 1:  # rare classes must be told as well
        _, row, size = np.unique(to_numpy(targets), return_inverse=True, return_counts=True)
        w = 1 / (len(size) * size[row])
    model = ConditionalEmbedding(space.kernel_, kernel_y, regularization, (space, None), True)
    model.fit(train, targets, sample_weight=w)
    phi = to_numpy(model.space_y_.transform(targets))
    centre, mean = w @ psi[:n], w @ phi
    X, Y = psi - centre, phi - mean
    weighted = X[:n].T * w
    C = weighted @ X[:n]
    C[np.diag_indices(len(C))] += max(model.regularization_, 1e-10 * float(np.trace(C)))
    factor = scipy.linalg.cho_factor(C, lower=True)
    answers = X @ scipy.linalg.cho_solve(factor, weighted @ Y)
    # leaving a row out: (ŷ - hy)/(1 - h) with the leverage h, of the constant too
    half = scipy.linalg.solve_triangular(factor[0], X[:n].T, lower=True)
    h = np.minimum(w * ((half**2).sum(axis=0) + 1), 1 - 1e-6)[:, None]
    answers[:n] = (answers[:n] - h * Y) / (1 - h)
    return answers + mean


def drawn_mean(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The mean of as many rows, drawn with replacement."""
    n = len(rows)
    return rng.multinomial(n, np.full(n, 1 / n)) @ rows / n


def class_means(psi: np.ndarray, row: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Mean coordinates of the rows of each class."""
    member = np.arange(len(share))[:, None] == row
    return member @ psi / (share * len(row))[:, None]
