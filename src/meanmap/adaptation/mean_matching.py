"""Weights that make a training sample look like a test sample."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from meanmap import checks, plots
from meanmap.adaptation.weight_programme import (
    WeightProgramme,
    WeightSolution,
    default_bound,
    enough_ridge,
    solve_dual,
    solve_without_ridge,
)
from meanmap.arrays import (
    Array,
    Points,
    concatenate,
    count,
    in_kind,
    is_chunked,
    one_blas_thread,
    take,
    to_numpy,
)
from meanmap.conditional.selection import effective_size
from meanmap.exceptions import DataWarning, warn
from meanmap.frames import remember_columns
from meanmap.kernels import Delta, Kernel
from meanmap.kernels.defaults import as_kernel, as_target
from meanmap.spaces import Basis, PivotedCholesky, Space
from meanmap.spaces.space import fit_space_quietly
from meanmap.statistics.gates import looks_like_classes
from meanmap.streams.chunks import answer_chunks, sample_rows

SHARES = 10.0 ** np.arange(1.0, -5.5, -0.5)  # ρ that "auto" tries, in units of the mean of k(x, x)
FACTORS = (0.3, 0.6, 1.0, 2.0)  # multiples of the median that are tried where no kernel is given
LEVELS = (0.5, 0.75, 0.9)  # ν that "auto" tries, in units of the largest mean of k(x, test row)
STRONG = 5  # ρ that it tries them with: with less of a ridge a few rows would have all weight
FOLDS = 4
PATIENCE = 3  # consecutive ρ without improvement
SEARCHED = 400  # rows of each sample that a search looks at
RANK = 1000  # coordinates at most; what they miss is below any ρ that is of use
LARGE, LARGE_RANK = 10_000, 500  # rows of both together beyond which there are fewer
MANY = 10_000  # rows beyond which a threaded BLAS pays
FORMS = ((0.0, 0.0), (np.inf, 0.0), *((np.inf, level) for level in LEVELS))  # ε and level
FEW = 10  # an effective size that is called too small, and as a share:
SCARCE = 0.05
MOST = 0.25  # of the rows, above which it never is


class KernelMeanMatching(BaseEstimator):
    """Weights of training rows such that their embedding is that of the test rows.

    For covariate shift: P(x) differs between training and test, P(y|x) does not. Weights β minimise
    ‖Σ βᵢ φ(xᵢ)/n - μ_test‖² + ρ Σ βᵢ²/n for 0 ≤ βᵢ ≤ B and |mean β - 1| ≤ ε (Huang et al. 2007;
    Gretton et al. 2009, eq. 8.12, which has ρ = 0), and so estimate the ratio of densities. They go
    as `sample_weight` into any estimator; `Reweighted` does both.

    Parameters
    ----------
    kernel : Kernel, callable or None
        None chooses for the kind of points; for vectors a Gaussian, its bandwidth chosen with ρ.
    ridge : "auto" or float
        ρ, on the kernel's scale. "auto" takes what fits the ratio of densities best on rows held
        out. 0 is the textbook form, whose weights follow the noise of both samples.
    bound : "auto" or float
        B, the largest weight; "auto" is √n, between 10 and 1000.
    slack : "auto" or float
        ε; "auto" is one standard error of the mean of the weights. With ρ "auto" too, weights
        without the constraint, divided by their mean, are tried as well: far from all test rows
        they go to 0, where ridge and constraint together leave a constant. With a kernel of your
        own they are also tried with a penalty ν Σ βᵢ/n, since a wide kernel sees test rows from
        far away.
    basis : a basis or None
        Coordinates of both samples together; None is pivoted Cholesky of rank 1,000 at most, and
        500 beyond 10,000 rows.
    max_iter : int
        Steps of the solver.
    random_state : int, Generator or None
        Of the rows that a search looks at, if there are more than 400.

    Collections of Dask are weighted by what a sample of 20,000 rows of each tells; `weights_` is
    then an array of Dask that computes nothing yet.

    Attributes
    ----------
    weights_ : β, about one on average
    effective_size_ : how many rows of the test distribution would say as much
        1/(1/s + b), s = (Σβ)²/Σβ² for the noise of the weights and b for their bias: the squared
        distance that is left, beyond what chance leaves, in units of a row's variance. It is s
        where the weighted rows match, and near 0 where test rows lie far from all training rows.
    distance_, distance_before_ : ‖Σ βᵢ φ(xᵢ)/n - μ_test‖, and for equal weights
    kernel_, ridge_, bound_, slack_ : what was used; ε is infinite without the constraint
    level_ : ν, in units of the largest mean of k(xᵢ, t) over the test rows t; 0 for no penalty
    held_out_ : the bandwidths' multiples, ρ, scores, ε (0 or ∞) and levels that "auto" looked at,
        or None
    n_iter_ : steps of the solver

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import KernelMeanMatching
    >>> rng = np.random.default_rng(0)
    >>> X, T = rng.normal(size=(500, 1)), rng.normal(0.8, 0.6, size=(500, 1))
    >>> matching = KernelMeanMatching(random_state=0).fit(X, X_test=T)
    >>> ratio = np.exp((X**2 - ((X - 0.8) / 0.6) ** 2) / 2).ravel() / 0.6
    >>> float(np.corrcoef(matching.weights_, ratio)[0, 1].round(1))
    1.0
    >>> (
    ...     X.mean().round(1),
    ...     np.average(X[:, 0], weights=matching.weights_).round(1),
    ...     T.mean().round(1),
    ... )
    (np.float64(-0.0), np.float64(0.7), np.float64(0.8))
    """

    def __init__(
        self,
        kernel: Any = None,
        ridge: float | str = "auto",
        bound: float | str = "auto",
        slack: float | str = "auto",
        *,
        basis: Basis | None = None,
        max_iter: int = 100,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.ridge = ridge
        self.bound = bound
        self.slack = slack
        self.basis = basis
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, X_test: Any = None) -> Self:
        """Find the weights of the rows of X; y is not looked at."""
        require_test_rows(X_test, "fit(X, X_test=T)")
        if is_chunked(X, X_test):
            return self._fit_chunks(X, X_test)
        ridge, given_bound, given_slack, most_steps = self._check_parameters()
        kernel = as_kernel(self.kernel, X, "X")
        train = kernel.check(X, "X")
        test = kernel.check(X_test, "X_test", train, "X")
        n = count(train)
        bound = given_bound if given_bound is not None else default_bound(n)
        slack = given_slack if given_slack is not None else 0.0
        check_bound(bound, slack)
        held_out, level = None, 0.0
        if ridge is None:
            kernel, share, best_slack, level, held_out = search_matching(
                kernel,
                self.kernel is None,
                (train, test),
                bound,
                self._forms(given_slack),
                checks.random_generator(self.random_state, "random_state"),
            )
            slack = best_slack if given_slack is None else given_slack
        both = concatenate([train, test])
        kernel = kernel.resolve(both)
        space, psi = fit_host_space(kernel, both, self._basis(count(both), ridge == 0))
        psi, psi_test = psi[:n], psi[n:]
        mean = psi_test.mean(axis=0)
        if ridge is None:
            ridge = share * float((psi**2).sum(axis=1).mean())
        programme = matching_programme(psi, mean, ridge, bound, slack, level)
        found = solve_weights(programme, most_steps)
        if given_slack is None and (slack == 0 or not found.beta.any()):
            # as far from 1 as chance would bring the mean
            slack, level = min(float(found.beta.std()) / n**0.5, 0.5), 0.0
            programme = matching_programme(psi, mean, ridge, bound, slack)
            found = solve_weights(programme, most_steps)

        require_weight(found.beta, ridge)
        if getattr(train, "ndim", 0) == 2:  # nothing is set before everything has worked
            remember_columns(self, X)
        self.kernel_, self.space_ = space.kernel_, space
        self.ridge_, self.bound_, self.slack_, self.level_ = ridge, bound, slack, level
        self._programme, self._solution = programme, found
        weights = self._scale(found.beta)
        self.weights_ = in_kind(weights, train)
        self.held_out_, self.n_iter_ = held_out, found.steps
        self.effective_size_ = equivalent_size(weights / weights.sum(), psi, psi_test)
        self.distance_ = float(np.linalg.norm(weights @ psi / n - mean))
        self.distance_before_ = float(np.linalg.norm(psi.mean(axis=0) - mean))
        self._warn(found)
        return self

    def _check_parameters(self) -> tuple[float | None, float | None, float | None, int]:
        """ρ, B and ε, None for "auto", and the steps at most."""
        ridge = checks.number_or_auto(self.ridge, "ridge", checks.not_negative, "0.01")
        if ridge is not None:
            enough_ridge(ridge, "Use 0 for none.")
        bound = checks.number_or_auto(self.bound, "bound", checks.positive, "100")
        slack = checks.number_or_auto(self.slack, "slack", checks.not_negative, "0.1")
        return ridge, bound, slack, checks.whole(self.max_iter, "max_iter", 1, "Use 100.")

    def _forms(self, given_slack: float | None) -> tuple[tuple[float, float], ...]:
        """ε and levels to try: where the kernel may be narrower, that is the better cut."""
        if given_slack is not None:
            return FORMS[:1]
        return FORMS[:2] if self.kernel is None else FORMS

    def _basis(self, rows: int, without_ridge: bool) -> Basis:
        if self.basis is not None:
            return self.basis
        rank = RANK if rows <= LARGE else LARGE_RANK
        return PivotedCholesky(1e-10 if without_ridge else 1e-5, max_rank=rank)

    def _fit_chunks(self, X: Any, X_test: Any) -> Self:
        """The weights as a function, from samples of both; those of chunks are not computed yet."""
        model = copy(self).fit(sample_rows(X), X_test=sample_rows(X_test))
        if is_chunked(X):
            model.weights_ = model.weights(X)
        self.__dict__.update(model.__dict__)
        return self

    def _warn(self, found: WeightSolution) -> None:
        if not found.converged:
            warn(
                f"the weights are {found.gap:.2g} from the best objective after {found.steps} "
                "steps. Raise max_iter, or ridge.",
                ConvergenceWarning,
            )
        n = len(found.beta)
        if self.effective_size_ < min(max(FEW, SCARCE * n), MOST * n):
            left = self.distance_ / self.distance_before_
            warn(
                f"the {n} training rows with these weights say no more than about "
                f"{self.effective_size_:.2g} rows of the test distribution would (largest weight "
                f"{float(self.weights_.max()):.3g}; {left:.0%} of the distance between the samples "
                "is left). A weighted estimate will be noisy, biased or both: look for training "
                "rows where the test rows are, or lower ridge if you chose it.",
                DataWarning,
            )

    def weights(self, X: Any) -> Array:
        """β of other rows: the estimated ratio of the densities of test and training there."""
        if is_chunked(X):
            return answer_chunks(
                X, self.weights, self._ratio(take(self.space_.example_, slice(0, 1)))
            )
        return in_kind(self._ratio(X), X)

    def _ratio(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "weights_")
        if self.ridge_ == 0:
            raise ValueError(
                "with ridge=0 weights belong to training rows alone and are not a function. "
                'Fit with ridge="auto" or a positive number.'
            )
        psi = to_numpy(self.space_.coordinates(self.kernel_.check(X, "X", self.space_.example_)))
        return self._scale(self._programme.elsewhere(self._solution, psi))

    def _scale(self, beta: np.ndarray) -> np.ndarray:
        """β for a mean of one over training, where no constraint has seen to it."""
        return beta if self.slack_ < np.inf else over_mean(beta, self._solution, self.bound_)

    def ratio_score(self, X: Any, X_test: Any) -> float:
        """How well β fits the ratio of densities: E_test[β] - E_train[β²]/2, larger is better.

        Half of it, up to a constant, is minus the squared error of β on average over training
        (Kanamori, Hido and Sugiyama 2009, eq. 3). Equal weights have 1/2.
        """
        return -fit_of_ratio(self._ratio(X), self._ratio(X_test))

    def plot(self, ax: Any = None) -> Any:
        """The weights, largest first."""
        check_is_fitted(self, "weights_")
        largest = np.sort(to_numpy(self.weights_))[::-1]
        return plots.ranking(largest, "weight", ax, "training row, the largest weight first")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "weights_")


def read_target(y: Any, kernel: Any) -> tuple[Kernel, Points, bool]:
    """The kernel on y, checked targets, and whether they were a 1-D array of numbers."""
    if kernel is None and looks_like_classes(y):
        kernel = Delta()
    target, flat = as_target(y, kernel)
    kernel = as_kernel(kernel, target, "y")
    return kernel, kernel.check(target, "y"), flat


def require_test_rows(X_test: Any, call: str) -> None:
    """Refuse to fit without the rows that training rows are to look like."""
    if X_test is None:
        raise ValueError(
            f"{call} needs the rows that training rows are to look like, got X_test=None. Their "
            "targets are not needed."
        )


def fit_host_space(kernel: Kernel, points: Points, basis: Basis) -> tuple[Space, np.ndarray]:
    """A space and the points' coordinates on the host, without a warning about what they miss."""
    space, psi = fit_space_quietly(kernel, basis, points)
    return space, to_numpy(psi)


def require_weight(beta: np.ndarray, ridge: float) -> None:
    """Refuse weights that are all zero."""
    if not beta.sum() > 0:
        raise ValueError(
            f"ridge={ridge:g} and the bound leave no row any weight. Use a smaller ridge, and a "
            "bound of 1 or more."
        )


def check_bound(bound: float, slack: float) -> None:
    """Refuse a bound below the least mean."""
    if bound < 1 - slack:
        raise ValueError(
            f"bound={bound:g} with slack={slack:g} cannot be met: weights of at most "
            f"{bound:g} have no mean of {1 - slack:g}. Use a bound of 1 or more."
        )


def matching_programme(
    psi: np.ndarray, mean: np.ndarray, ridge: float, bound: float, slack: float, level: float = 0.0
) -> WeightProgramme:
    """The programme for equal rows; ε = ∞ means no constraint, for which 0 ≤ mean β ≤ B will do.

    A ridge about β₀ = -ν/ρ is one about 0 and a penalty ν mean β, under which the weight of a row
    is 0 unless the part of the embedding that is not matched yet is above ν there.
    """
    least, most = (1 - slack, 1 + slack) if slack < np.inf else (0.0, bound)
    centre = -level * max(float((psi @ mean).max()), 0.0) / ridge if level else 0.0
    w = np.full(len(psi), 1 / len(psi))
    return WeightProgramme(psi, w, mean, ridge, bound, least, most, centre)


def solve_weights(programme: WeightProgramme, max_iter: int) -> WeightSolution:
    """The weights, with or without a ridge."""
    with one_blas_thread(len(programme.w) < MANY):  # small products, that threads only slow down
        if programme.ridge == 0:
            return solve_without_ridge(programme, max_iter=max_iter)
        return solve_dual(programme, max_iter=max_iter)


def equivalent_size(w: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    """How many rows of the test distribution have a mean embedding as near to it as `Σ wᵢ ψ(xᵢ)`.

    The squared distance of n rows' mean is c/n on average, c the trace of their covariance. Here it
    is c/s with s = 1/Σw² for the noise of the weights, and a bias, of which the squared distance to
    the test rows is an estimate once the noise of both is taken off.
    """
    m, size = len(test), effective_size(w)
    of_train, of_test = (float(np.var(part, axis=0).sum()) for part in (train, test))
    c = max(of_train, of_test * m / max(m - 1, 1), np.finfo(float).tiny)
    left = float(((w @ train - test.mean(axis=0)) ** 2).sum())
    bias = max(left - c / m - c / size, 0.0)
    return 1 / (1 / size + bias / c)


def search_matching(
    kernel: Kernel,
    free: bool,
    samples: tuple[Points, Points],
    bound: float,
    forms: tuple[tuple[float, float], ...],
    rng: np.random.Generator,
) -> tuple[Kernel, float, float, float, np.ndarray]:
    """The kernel, ρ, ε and level that fit the ratio best on rows held out, and all scores."""
    train, test = (
        take(part, np.sort(rng.choice(count(part), min(count(part), SEARCHED), replace=False)))
        for part in samples
    )
    folds = [np.arange(count(part)) % FOLDS for part in (train, test)]
    for fold in folds:
        rng.shuffle(fold)
    both = concatenate([train, test])
    candidates: list[tuple[float, Kernel]] = [(1.0, kernel)]
    if free and kernel.radial:
        candidates = [(f, kernel.rescaled(f)) for f in FACTORS]
    table = []
    for factor, candidate in candidates:
        basis = PivotedCholesky(1e-4, max_rank=SEARCHED)
        _, psi = fit_host_space(candidate.resolve(both), both, basis)
        parts = psi[: len(folds[0])], psi[len(folds[0]) :]
        for form in forms:
            scores = np.mean([_path(parts, folds, k, bound, form) for k in range(FOLDS)], axis=0)
            table += [(factor, *at, *form) for at in zip(SHARES, scores, strict=False)]
    held_out = np.array(table)
    best = held_out[int(np.argmin(held_out[:, 2]))]
    chosen = next(candidate for factor, candidate in candidates if factor == best[0])
    return chosen, float(best[1]), float(best[3]), float(best[4]), held_out


def _path(
    parts: tuple[np.ndarray, np.ndarray],
    folds: list[np.ndarray],
    held: int,
    bound: float,
    form: tuple[float, float],
) -> list[float]:
    """How badly weights without a fold fit the ratio on it, for every ρ from the largest on."""
    (train, test), (of_train, of_test) = parts, folds
    scale = float((train**2).sum(axis=1).mean())
    psi, mean = train[of_train != held], test[of_test != held]
    shares = SHARES[:STRONG] if form[1] else SHARES
    if not len(psi) or not len(mean) or not (of_train == held).any() or not (of_test == held).any():
        return [0.0] * len(shares)  # too few rows to hold any out
    scores: list[float] = []
    dual = None
    for share in shares:
        if len(scores) > PATIENCE and min(scores[-PATIENCE:]) > min(scores):
            scores.append(scores[-1])  # it only gets worse from here, and slower
            continue
        programme = matching_programme(psi, mean.mean(axis=0), share * scale, bound, *form)
        found = solve_dual(programme, dual, tolerance=1e-5, max_iter=30)
        dual = found.dual
        beta = (
            over_mean(programme.elsewhere(found, rows), found, bound)
            for rows in (train[of_train == held], test[of_test == held])
        )
        scores.append(fit_of_ratio(*beta))
    return scores


def over_mean(beta: np.ndarray, found: WeightSolution, bound: float) -> np.ndarray:
    """β for a mean of one on the rows of the programme."""
    return np.minimum(beta / max(float(found.beta.mean()), np.finfo(float).tiny), bound)


def fit_of_ratio(on_train: np.ndarray, on_test: np.ndarray) -> float:
    """E_train[β²]/2 - E_test[β], least where β is the ratio (Kanamori et al. 2009, eq. 3)."""
    return float((on_train**2).mean() / 2 - on_test.mean())
