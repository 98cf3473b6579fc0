"""Training rows moved and stretched until they look like test rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from meanmap import checks, plots
from meanmap.adaptation.alignment import (
    EXPLORED,
    Alignment,
    Descent,
    anneal,
    descend,
    starts,
    stratified_rows,
    upright,
)
from meanmap.adaptation.alignment_likelihood import penalized_likelihood
from meanmap.adaptation.mean_matching import (
    fit_host_space,
    read_target,
    require_test_rows,
)
from meanmap.adaptation.target_mixtures import classes_of
from meanmap.adaptation.weight_programme import default_bound
from meanmap.arrays import Array, Points, count, in_kind, take, to_numpy
from meanmap.conditional import ConditionalEmbedding
from meanmap.conditional.selection import effective_size
from meanmap.exceptions import DataWarning, warn
from meanmap.frames import column_names, in_order, remember_columns, seen_columns
from meanmap.kernels import Gaussian, Kernel
from meanmap.kernels.defaults import as_target
from meanmap.spaces import PivotedCholesky, Space
from meanmap.statistics.columns import column_moments
from meanmap.statistics.gates import require_target, require_two_rows
from meanmap.statistics.tiles import on_host

BANDWIDTH = "0.4*scaled median"  # narrower than the median: widths of classes are to be told apart
SHARE = 0.1  # λ of "auto", in units of the noise of both samples, 1/n + 1/m; a column for classes
CLASSES_RIDGE, RIDGE = 1e-6, 1e-4  # ρ of β: one number per class, or a function
RANK = 30  # features of numbers y at most
RARE = 0.02  # a share of the test rows that is too small to tell a scale from
Rows = tuple[np.ndarray, np.ndarray]  # of the training and of the test sample
FAR, UNLIKELY = 0.5, 4.0  # what is left of a distance, and in units of noise, that is too much


class LocationScaleShift(BaseEstimator):
    """Training rows whose location and scale, given y, are changed to look like the test rows.

    For location-scale shift: P(x|y) differs between training and test as if each feature had been
    multiplied and moved, X_test = X ⊙ W(y) + B(y). W and B minimise the distance of embeddings
    ‖μ[X ⊙ W + B] - μ_test‖² + λ(‖W - 1‖² + ‖B‖²) (Zhang, Schölkopf, Muandet and Wang 2013,
    section 4); with `target_shift` together with weights β(y), as P(y) may differ too (section 5).
    No target of the test rows is needed. W and B are the same for all y, or for classes have a row
    each, and for numbers are smooth functions of y. Which it is, and whether P(y) differs, is found
    out by the likelihood of the test rows. A model trained on `X_new_`, y and `weights_` fits them.

    Parameters
    ----------
    kernel_x : Gaussian or None
        On the rows, each column divided by its deviation among the test rows. None is
        `Gaussian("0.4*scaled median")`.
    kernel_y : Kernel, callable or None
        None is `Delta()` if y looks like classes to scikit-learn (text, booleans, few whole
        numbers), else as for numbers.
    target_shift : "auto" or bool
        Whether P(y) differs too. "auto" finds out: P(y) is kept unless other proportions make the
        test rows likelier by more than their freedom does (Schwarz 1978). With a `regularization`
        of your own nothing is compared: W and B depend on y, and "auto" is True.
    regularization : "auto" or float
        λ, in units of the kernel. "auto" is (1/n + 1/m)/10 for n training and m test rows, divided
        by the number of columns for classes.
    n_init : int
        Searches: the first starts with all rows where they are, the second with means and
        deviations of all rows together matched, the others at random about these. Each goes from
        wide kernels to the one given.
    max_iter : int
        Steps of L-BFGS in each stage of a search.
    max_samples : int
        Rows of each sample that the search looks at; time grows with the square.
    random_state : int, Generator or None
        Of rows left out, and of starts.

    Attributes
    ----------
    scale_, location_ : W and B, one row per class; for other y one row per training row
    X_new_ : X ⊙ W + B, the training rows as the test would have them
    weights_ : β(yᵢ), one on average; ones where P(y) is kept
    target_shift_ : whether P(y) was found, or said, to differ
    one_drift_ : whether W and B are the same for all y
    classes_, proportions_, proportions_train_ : for classes, P_test(y) and P_train(y)
    effective_size_ : (Σβ)²/Σβ²
    distance_, distance_before_ : to the test rows' embedding, and with nothing changed
    objective_, history_ : what was minimised, in the end, and step by step in the last stage
    n_iter_, converged_ : steps of the search that was best, and whether it settled
    kernel_x_, kernel_y_, regularization_ : what was used

    Examples
    --------
    An instrument is exchanged: its readings have another gain and offset for each kind of sample.

    >>> import numpy as np
    >>> from meanmap import LocationScaleShift
    >>> rng = np.random.default_rng(2)
    >>> y, unseen = rng.integers(2, size=(2, 1000))
    >>> X = 5.0 * y[:, None] + rng.normal(size=(1000, 1))
    >>> T = 5.0 * unseen[:, None] + rng.normal(size=(1000, 1))
    >>> T[unseen == 1] = 2.0 * T[unseen == 1] - 3.0
    >>> shift = LocationScaleShift(random_state=0).fit(X, y, X_test=T)
    >>> shift.scale_.round()
    array([[1.],
           [2.]])
    >>> shift.transform([[4.0]], [1]).round()
    array([[5.]])
    """

    def __init__(
        self,
        kernel_x: Any = None,
        kernel_y: Any = None,
        *,
        target_shift: bool | str = "auto",
        regularization: float | str = "auto",
        n_init: int = 3,
        max_iter: int = 200,
        max_samples: int = 1000,
        random_state: Any = None,
    ) -> None:
        self.kernel_x = kernel_x
        self.kernel_y = kernel_y
        self.target_shift = target_shift
        self.regularization = regularization
        self.n_init = n_init
        self.max_iter = max_iter
        self.max_samples = max_samples
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, X_test: Any = None) -> Self:
        """Find W and B, and weights, from labelled training rows and unlabelled test rows."""
        require_target(y, "scale and location are functions of it; KernelMeanMatching needs none")
        require_test_rows(X_test, "fit(X, y, X_test=T)")
        self._check_parameters()
        kernel_x = as_gaussian(self.kernel_x)
        train, test = read_both(X, X_test)
        kernel_y, targets, flat = read_target(y, self.kernel_y)
        targets = on_host(targets)
        checks.same_length([("X", train), ("y", targets)])
        rng = checks.random_generator(self.random_state, "random_state")
        units = test.mean(axis=0), deviations(test, train)
        Z, T = ((rows - units[0]) / units[1] for rows in (train, test))
        checks.finite(Z, "X, in standard deviations of X_test,")
        F, space, classes, groups = features(kernel_y, targets)
        kernel_x = kernel_x.resolve(T)
        seen = stratified_rows(groups, self.max_samples, rng)
        looked = stratified_rows(np.zeros(len(T)), self.max_samples, rng)
        most, shrinkage = float(len(Z)), 0.0
        if classes is None:
            model = ConditionalEmbedding(space.kernel_, kernel_x).fit(take(targets, seen), Z[seen])
            most, shrinkage = default_bound(len(Z)), model.regularization_
        penalty = self._penalty(len(seen), len(looked), Z.shape[1], classes is not None)
        problem = Alignment(
            Z[seen],
            F[seen],
            T[looked],
            kernel_x.bandwidth * np.ones(Z.shape[1]),
            penalty,
            RIDGE if classes is None else CLASSES_RIDGE,
            most,
            shrinkage,
        )
        problem, found = self._choose(problem, groups[seen], rng)

        remember_columns(self, X)
        self.kernel_x_, self.kernel_y_, self._space = kernel_x, space.kernel_, space
        self._flat, self._units, self._gamma = flat, units, problem.projection @ problem.Z
        self._parameters = found.parameters.reshape(problem.shape)
        self._keep_search(problem, found)
        weights = problem.weights_at(found.parameters, F)
        self.weights_ = in_kind(weights, X)
        self.effective_size_ = effective_size(weights / weights.sum())
        scale, location = self._line(F)
        self.X_new_ = in_kind(train * scale + location, X)
        self._targets = targets
        self.scale_, self.location_ = scale, location
        if classes is not None:
            self._keep_classes(classes, groups, weights)
        self._warn(found, len(seen), len(looked))
        return self

    def _keep_search(self, problem: Alignment, found: Descent) -> None:
        self.regularization_ = problem.penalty
        self.n_iter_, self.converged_ = max(found.steps, 1), found.converged
        constant = problem.square()
        self.objective_, self.history_ = found.value + constant, found.history + constant
        self.distance_ = problem.distance(found.parameters)
        self.distance_before_ = problem.distance(0 * found.parameters, weighted=False)

    def _keep_classes(self, classes: np.ndarray, groups: np.ndarray, weights: np.ndarray) -> None:
        """Scales and locations with one row per class, and the classes' proportions."""
        first = np.unique(groups, return_index=True)[1]
        self.scale_, self.location_ = self.scale_[first], self.location_[first]
        self.classes_ = classes
        self.proportions_train_ = np.bincount(groups) / len(groups)
        self.proportions_ = np.bincount(groups, weights) / len(groups)

    def _check_parameters(self) -> None:
        if self.target_shift != "auto" and not isinstance(self.target_shift, bool | np.bool_):
            raise ValueError(
                f'target_shift must be True or False, or "auto", got {self.target_shift!r}.'
            )
        for name, least in (("n_init", 1), ("max_iter", 1), ("max_samples", 2)):
            checks.whole(getattr(self, name), name, least, f"Use {least} or more.")
        checks.number_or_auto(self.regularization, "regularization", checks.not_negative, "1e-4")

    def _penalty(self, n: int, m: int, columns: int, classes: bool) -> float:
        if isinstance(self.regularization, str):
            return SHARE * (1 / n + 1 / m) / (columns if classes else 1)
        return float(self.regularization)

    def _choose(
        self, problem: Alignment, groups: np.ndarray, rng: np.random.Generator
    ) -> tuple[Alignment, Descent]:
        """The model under which the test rows are likeliest for its freedom, and its search."""
        some = (
            stratified_rows(groups, EXPLORED, rng),
            stratified_rows(np.zeros(len(problem.T)), EXPLORED, rng),
        )
        chosen = isinstance(self.regularization, str)
        drifts = (True, False) if chosen else (False,)
        shifts: tuple[bool, ...] = (False, True) if chosen else (True,)
        if self.target_shift != "auto":
            shifts = (bool(self.target_shift),)
        found: list[tuple[bool, bool, Alignment, Descent]] = []
        for one in drifts:
            free = replace(problem, reach=1 if one else None)
            first = starts(free, self.n_init, rng)
            kept = self._ends(replace(free, ridge=None), some, first)
            for shift in shifts:
                model = free if shift else replace(free, ridge=None)
                found.append((one, shift, model, self._search(model, some, first, kept)))
        scores = [penalized_likelihood(model, end.parameters, groups) for *_, model, end in found]
        self.one_drift_, self.target_shift_, model, end = found[int(np.argmax(scores))]
        return model, end

    def _ends(self, problem: Alignment, some: Rows, first: list[np.ndarray]) -> list[Descent]:
        """Where searches on a part of the rows end."""
        part = problem.part(*some)
        return [anneal(part, at, self.max_iter) for at in first]

    def _search(
        self, problem: Alignment, some: Rows, first: list[np.ndarray], kept: list[Descent]
    ) -> Descent:
        """The best of several searches on a part of the rows, and on from there with all."""
        ends = kept
        if problem.ridge is not None:
            # while β is free a class can give its rows to another one, and then never comes back to
            # them: so searches start where those with β = 1 ended as well
            part = problem.part(*some)
            ends = [descend(part, end.parameters, self.max_iter) for end in kept[:2]]
            ends += self._ends(problem, some, first)
        best = min(ends, key=lambda end: problem.value(end.parameters)[0])
        found, start = best, upright(problem, best.parameters)
        if start is not best.parameters or problem.part(*some).size != problem.size:
            found = descend(problem, start, self.max_iter)
            turned = upright(problem, found.parameters)
            if turned is not found.parameters:
                found = descend(problem, turned, self.max_iter)
            found = replace(found, steps=best.steps + found.steps)
        return found

    def _line(self, F: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """W and B in the units of X for rows with features F."""
        G, H = self._parameters
        F = F[:, : len(G)]
        mean, deviation = self._units
        scale = 1 + F @ G
        # z' = c + (z - c)w + b for z = (x - mean)/deviation
        location = (F @ self._gamma) * (1 - scale) + F @ H
        return scale, location * deviation + mean * (1 - scale)

    def _warn(self, found: Descent, n: int, m: int) -> None:
        if not found.converged:
            warn(
                f"the search stopped after {found.steps} steps before it settled "
                f"({found.status}). Raise max_iter (now {self.max_iter}), or regularization.",
                ConvergenceWarning,
            )
        noise = (1 / min(n, self.effective_size_) + 1 / m) ** 0.5
        if self.distance_ > max(FAR * self.distance_before_, UNLIKELY * noise):
            warn(
                "no change of location and scale makes the training rows look like the test rows: "
                f"of a distance of {self.distance_before_:.3g} {self.distance_:.3g} is left, where "
                f"chance would leave about {noise:.2g}. Look at X_new_ beside X_test before you "
                "use it.",
                DataWarning,
            )
        few = max(RARE, 2 / m)
        if hasattr(self, "classes_") and (self.proportions_ < few).any():
            rare = [repr(c) for c in self.classes_[self.proportions_ < few].tolist()]
            warn(
                f"of class {', '.join(rare)} there are hardly any test rows "
                f"({self.proportions_.min():.1%} of them): its scale and location rest on next to "
                "nothing.",
                DataWarning,
            )

    def transform(self, X: Any, y: Any) -> Array:
        """X ⊙ W(y) + B(y): other rows of the training kind, as the test would have them."""
        check_is_fitted(self, "scale_")
        checks.vectors(X, "X")
        table = _float_rows(seen_columns(self, X), "X")
        checks.same_kind(table, self.X_new_, "X", "the training sample")
        points = as_target(y, self.kernel_y_)[0] if self._flat else y
        points = self.kernel_y_.check(points, "y", self._targets, "the training targets")
        checks.same_length([("X", table), ("y", points)])
        if hasattr(self, "classes_"):
            values = to_numpy(points)
            new = ~np.isin(values, self.classes_)
            if new.any():
                known = ", ".join(map(repr, self.classes_.tolist()))
                raise ValueError(
                    f"y: {values[new].tolist()[0]!r} is not a class of the training rows, so it "
                    f"has no scale and location. Known are {known}."
                )
        scale, location = self._line(
            coordinates_with_constant(to_numpy(self._space.coordinates(points)))
        )
        return in_kind(table * scale + location, X)

    def plot(self, ax: Any = None) -> Any:
        """Scales and locations by feature, for classes; for numbers against y. Two axes."""
        check_is_fitted(self, "scale_")
        columns = [str(v) for v in getattr(self, "feature_names_in_", range(self.n_features_in_))]
        # where the mean of the test rows would go, so that no column's origin matters
        location = (self.location_ + self._units[0] * (self.scale_ - 1)) / self._units[1]
        if hasattr(self, "classes_"):
            labels = [str(label) for label in self.classes_]
            return plots.scale_and_location(
                np.array(columns), self.scale_, location, labels, ("feature", "class"), ax
            )
        if isinstance(self._targets, tuple) or to_numpy(self._targets).dtype.kind not in "fiu":
            raise ValueError(
                "plot draws scales and locations of classes, or against numbers; y is neither. "
                "Look at scale_ and location_, which have one row per training row."
            )
        values = to_numpy(self._targets)
        y = values.reshape(len(values), -1)[:, 0]
        order = np.argsort(y, kind="stable")
        return plots.scale_and_location(
            y[order], self.scale_[order].T, location[order].T, columns, ("y", "feature"), ax
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "scale_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def as_gaussian(kernel: Any) -> Any:
    """The kernel on rows, whose gradient is at hand."""
    if kernel is None:
        return Gaussian(BANDWIDTH)
    if getattr(kernel, "power", None) != 2:
        raise TypeError(
            f"kernel_x: expected kernels.Gaussian(bandwidth), whose gradient moves the rows, got "
            f"{kernel!r:.60}."
        )
    return kernel


def features(
    kernel: Kernel, targets: Points
) -> tuple[np.ndarray, Space, np.ndarray | None, np.ndarray]:
    """Features of targets with their space, and the classes and each row's, if there are any."""
    n, labels = count(targets), classes_of(kernel, targets)
    if labels is not None:
        space, psi = fit_host_space(kernel.resolve(targets), targets, PivotedCholesky(1e-10))
        return coordinates_with_constant(psi), space, *labels
    basis = PivotedCholesky(1e-4, max_rank=RANK)
    space, psi = fit_host_space(kernel.resolve(targets), targets, basis)
    return coordinates_with_constant(psi), space, None, np.zeros(n, dtype=int)


def coordinates_with_constant(psi: np.ndarray) -> np.ndarray:
    """Coordinates of the kernel 1 + l: what all targets share costs less than what does not."""
    return np.column_stack([np.ones(len(psi)), psi])


def deviations(test: np.ndarray, train: np.ndarray) -> np.ndarray:
    """The unit of each column: its deviation in the test, or else in training, or else 1."""
    units = np.ones(test.shape[1])
    for rows in (train, test):
        mean, deviation = column_moments(rows)
        varies = deviation > 1e-12 * np.abs(mean)
        units = np.where(varies, deviation, units)
    return units


def read_both(X: Any, X_test: Any) -> tuple[np.ndarray, np.ndarray]:
    """Rows of both samples, checked, in floats."""
    X_test = in_order(X_test, column_names(X), "X_test", "X")
    train, test = _float_rows(X, "X"), _float_rows(X_test, "X_test")
    checks.same_kind(test, train, "X_test", "X")
    require_two_rows(len(train), "a scale cannot be estimated from one row of X")
    require_two_rows(len(test), "a scale cannot be estimated from one row of X_test")
    return train, test


def _float_rows(X: Any, name: str) -> np.ndarray:
    return to_numpy(checks.vectors(X, name)).astype(np.float64)
