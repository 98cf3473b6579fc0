"""A density from an embedding, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils.validation import check_is_fitted

from meanmap import checks, decoding, plots
from meanmap.arrays import Array, float_like, in_kind, is_array, one_blas_thread, to_numpy
from meanmap.density.base_proportions import log_base
from meanmap.density.candidates import NormalCandidates, RoundFrame
from meanmap.density.centres import centres_of, herding_order
from meanmap.density.gaussian_mixtures import GaussianFit, stack_fits
from meanmap.density.inputs import distance, distinct_points, frame_of, probability_weights, square
from meanmap.density.mixture_programme import (
    DECREMENT,
    Entropy,
    MixtureSolution,
    Quadratic,
    Regularizer,
    Span,
    by_cvxpy,
    effective_count,
    solve_constrained,
    warn_if_unsolved,
)
from meanmap.density.selection import (
    PENALTIES,
    SHARES,
    Choice,
    DistinctSample,
    fold_numbers,
    held_out_likelihoods,
    held_out_plain,
)
from meanmap.embeddings import Embedding
from meanmap.frames import column_names, remember_columns, seen_columns

METHODS = ("auto", "programme", "herding", "plain")
REGULARIZERS = ("entropy", "kl", "quadratic")
CENTRES = ("points", "thinned", "herded", "grid")
SCALINGS = ("covariance", "columns")
SOME = 80  # centres in cross-validation, at most
RATIO = 2.0  # the kernel's bandwidth over the candidates', where neither is given
SEARCHED = 1e-8  # Newton's decrement squared in cross-validation
DUST = 1e-10  # smaller proportions are left out


class EmbeddingDensity(DensityMixin, BaseEstimator):
    """A density whose embedding is near to that of a sample, and that is else as even as can be.

    By default it is averaged with mixtures of a few Gaussians, in the proportions that make points
    held out likeliest.

    `p = Σ αₖ pₖ` mixes candidate Gaussians pₖ. Among the proportions with `‖μ̂ - μ[p]‖ ≤ ε` those
    are taken whose entropy is greatest, or that are nearest to a base density (Song, Zhang, Smola,
    Gretton and Schölkopf 2008; Dudík and Schapire 2006). Under a Gaussian kernel the embedding of a
    Gaussian is known in closed form, so that nothing is approximated but the density itself.

    Parameters
    ----------
    kernel : Gaussian or None
        The kernel of the embedding. None is a Gaussian twice as wide as the candidates; for an
        `Embedding` of a Gaussian kernel, its own.
    candidates : {"points", "thinned", "herded", "grid"} or array of shape (c, d)
        Where candidates are centred: on points of the sample (all, or some at random), on some that
        were chosen by kernel thinning or herding, on a grid (up to three dimensions), or where you
        say.
    n_candidates : int
        At most how many centres. For `method="herding"` the number of components.
    bandwidth : "auto", float or one per column
        The candidates' standard deviation. "auto" tries multiples of Silverman's rule.
    scales : sequence of float
        Every centre has a candidate of each of these multiples of the bandwidth: narrow ones for
        the peaks, wide ones for the tails.
    scaling : {"covariance", "columns"}
        With an automatic bandwidth candidates have the covariance of the sample, in small, or its
        columns' deviations.
    regularizer : {"entropy", "kl", "quadratic"}
        Greatest entropy; least divergence from `base`; least `‖α‖²`, with which many proportions
        are exactly 0. The entropy is that of the mixture if candidates do not overlap,
        `-Σ αₖ log αₖ + Σ αₖ H(pₖ)`, a bound if they do.
    base : None, array of proportions, or a density with `logpdf` or `score_samples`
        For `regularizer="kl"`; None is the normal distribution with the sample's moments.
    epsilon : "auto" or float
        How near the embeddings must be. "auto" takes the ε under which points held out are
        likeliest, together with the bandwidth: five folds. Points that are equal share a fold.
    method : {"auto", "programme", "herding", "plain"}
        "programme" is the one above. "auto" adds mixtures of up to twelve Gaussians with
        covariances of their own, fitted by EM, each with the share that makes points held out
        likeliest (stacking: Smyth and Wolpert 1999); it is the programme alone for weights of both
        signs, another regularizer, or a given `bandwidth` or `epsilon`. "herding" puts equal
        proportions on herded points; "plain" the weights themselves (cut at 0) on all points, that
        is, kernel density estimation.
    solver : {"dual", "cvxpy"}
        Newton's method on the dual, or the programme as it stands, through cvxpy and its solver
        CLARABEL.
    random_state : int, RandomState or None
        For the folds, and candidates "points" and "thinned".

    Attributes
    ----------
    proportions_, components_ : array (k,), (k, d)
        What the mixture consists of: proportions and means.
    covariances_ : array (k, d, d)
        The components' covariances.
    deviations_ : array (c,)
        The scales of the candidates in use, which are the first c components: the covariance is
        that number squared times `covariance_`. The other components were fitted.
    covariance_, bandwidth_ : array (d, d), (d,)
        The covariance of a candidate at scale 1, and its columns' standard deviations.
    kernel_covariance_ : array (d, d)
        Σ of the kernel `exp(-(x - x')ᵀ Σ⁻¹ (x - x')/2)`.
    distance_ : float
        `‖μ̂ - μ[p]‖`; where the constraint is active it is ε.
    n_effective_ : float
        The number of equal proportions with the same entropy.
    choice_ : Choice or None
        Widths and penalties that were tried, with the log-likelihood of points held out.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import EmbeddingDensity
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(-2, 0.4, (150, 1)), rng.normal(1, 1.0, (150, 1))])
    >>> p = EmbeddingDensity(random_state=0).fit(X)
    >>> np.exp(p.score_samples([[-2.0], [1.0]])).round(1)  # the truth is 0.5 and 0.2
    array([0.5, 0.2])
    >>> p.sample(2, random_state=0).shape
    (2, 1)
    """

    _fits: GaussianFit | None = None  # of models that were saved before there were any

    def __init__(
        self,
        kernel: Any = None,
        candidates: Any = "points",
        n_candidates: int = 200,
        bandwidth: Any = "auto",
        scales: Sequence[float] = (0.5, 1.0, 2.0),
        scaling: str = "covariance",
        regularizer: str = "entropy",
        base: Any = None,
        epsilon: float | str = "auto",
        method: str = "auto",
        solver: str = "dual",
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.candidates = candidates
        self.n_candidates = n_candidates
        self.bandwidth = bandwidth
        self.scales = scales
        self.scaling = scaling
        self.regularizer = regularizer
        self.base = base
        self.epsilon = epsilon
        self.method = method
        self.solver = solver
        self.random_state = random_state

    # --- fitting ------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to rows of numbers, or to an embedding of such: weighted, of any sign.

        Equal rows are one of their total weight; rows of weight 0 are left out.
        """
        self._check_settings()
        points, w, sigma = distinct_points(X, sample_weight, self.kernel)
        rng = checks.random_generator(self.random_state, "random_state")
        p = w if (w >= 0).all() else probability_weights(points, w, sigma)
        frame, unit = frame_of(points, p, sigma, self.bandwidth, self.scaling)
        sample = DistinctSample(
            frame.to(points), w, p, fold_numbers(len(points), rng), column_names(X)
        )
        share, fits = 1.0, None
        with one_blas_thread():
            made = self._programme if self._matches else self._simple
            candidates, solution, choice = made(sample, frame, unit, sigma, rng)
            h = candidates.widths[0] / self._scales[0]
            if self._joins(w) and choice is not None and choice.logs is not None:
                share, fits = stack_fits(points, sample, choice.logs - frame.log_volume, rng)
            at = self._sigma(frame, sigma, h)
            far = distance(sample, candidates, share * solution.proportions, fits, frame, at)
        # nothing is set before everything has worked
        if not isinstance(X, Embedding):
            remember_columns(self, X)
        self.n_features_in_ = points.shape[1]
        kept = share * solution.proportions > DUST
        alpha = share * solution.proportions[kept] / max(solution.proportions[kept].sum(), DUST)
        self.deviations_ = candidates.deviations[kept] / h
        self._frame, self._width, self._means = frame, h, candidates.means[kept]
        self.proportions_, self.components_, self._fits = alpha, frame.back(self._means), fits
        if fits is not None:
            self.proportions_ = np.concatenate([alpha, fits.proportions])
            self.components_ = np.concatenate([self.components_, fits.means])
        self.covariance_ = h * h * (frame.factor @ frame.factor.T)
        self.bandwidth_ = np.sqrt(np.diagonal(self.covariance_))
        turned = frame.factor @ frame.rotation * self._sigma(frame, sigma, h)
        self.kernel_covariance_ = turned @ turned.T
        self.distance_, self.penalty_, self.choice_ = far, float(solution.penalty), choice
        self._points = points
        rows = X.atoms if isinstance(X, Embedding) else X
        self._asked = float_like(rows) if is_array(rows) else points[:0]  # of what kind samples are
        return self

    def _check_settings(self) -> None:
        checks.option(self.method, "method", METHODS)
        checks.option(self.regularizer, "regularizer", REGULARIZERS)
        checks.option(self.scaling, "scaling", SCALINGS)
        checks.option(self.solver, "solver", ("dual", "cvxpy"))
        checks.whole(self.n_candidates, "n_candidates", 1, "It is the number of centres.")
        if isinstance(self.candidates, str):
            checks.option(self.candidates, "candidates", CENTRES)
        if isinstance(self.epsilon, str):
            checks.option(self.epsilon, "epsilon", ("auto",))
        else:
            checks.positive(self.epsilon, "epsilon", "It is a distance of embeddings, or 'auto'.")
        remedy = "Scales are multiples of the bandwidth, for example (0.5, 1, 2)."
        if np.ndim(self.scales) != 1 or len(self.scales) == 0:
            raise ValueError(f"scales: expected some numbers, got {self.scales!r}. {remedy}")
        for scale in self.scales:
            checks.positive(scale, "scales", remedy)
        if self.base is not None and self.regularizer != "kl":
            raise ValueError(f"base goes with regularizer='kl', not {self.regularizer!r}.")

    @property
    def _matches(self) -> bool:
        return self.method in ("auto", "programme")

    def _joins(self, w: np.ndarray) -> bool:
        """Whether mixtures join the programme's density: where no part of it was asked for."""
        free = self.method == "auto" and self._automatic and isinstance(self.epsilon, str)
        return free and self.regularizer == "entropy" and bool((w >= 0).all())

    @property
    def _scales(self) -> tuple[float, ...]:
        """The scales in use: only the programme can tell several apart."""
        return tuple(map(float, self.scales)) if self._matches else (1.0,)

    @property
    def _automatic(self) -> bool:
        return isinstance(self.bandwidth, str)

    @staticmethod
    def _sigma(frame: RoundFrame, sigma: np.ndarray | None, h: float) -> np.ndarray:
        """The kernel's bandwidths in the frame, for candidates of width h."""
        d = len(frame.centre)
        return np.full(d, RATIO * h) if sigma is None else frame.bandwidths(sigma)

    # --- methods ------------------------------------------------------------------------------

    def _programme(
        self,
        sample: DistinctSample,
        frame: RoundFrame,
        unit: float,
        sigma: np.ndarray | None,
        rng: np.random.Generator,
    ) -> tuple[NormalCandidates, MixtureSolution, Choice | None]:
        centres, index = centres_of(self.candidates, self.n_candidates, sample, frame, sigma, rng)
        mean = sample.weights @ sample.points
        gap = sample.points - mean
        moments = mean, (gap.T * sample.weights) @ gap + 1e-9 * np.eye(len(mean))

        def regularizer(candidates: NormalCandidates, kept: Any, rough: bool = True) -> Regularizer:
            decrement = SEARCHED if rough else DECREMENT
            if self.regularizer == "quadratic":
                return Quadratic(len(np.arange(len(candidates))[kept]), decrement)
            logs = log_base(self.regularizer, self.base, candidates, frame, moments)[kept]
            return Entropy(logs, decrement)

        epsilon = None if isinstance(self.epsilon, str) else float(self.epsilon)
        widths = [share * unit for share in SHARES] if self._automatic else [unit]
        h, penalty, choice = widths[0], 1.0, None
        if len(sample.points) > 1 and (len(widths) > 1 or epsilon is None):
            # some of the candidates tell as much of both, at a fraction of the cost
            fixed = self.base is not None and np.ndim(self.base) == 1  # proportions of them all
            most = len(centres) if fixed else min(len(centres), SOME)
            some = np.linspace(0, len(centres) - 1, most).astype(int)
            choice = held_out_likelihoods(
                sample,
                centres[some],
                None if index is None else index[some],
                widths,
                self._scales,
                lambda h: self._sigma(frame, sigma, h),
                regularizer,
                PENALTIES,
                epsilon,
            )
            h, penalty = choice.best
        candidates = NormalCandidates(centres, tuple(h * s for s in self._scales))
        at = self._sigma(frame, sigma, h)
        b = candidates.inner(sample.points, sample.target, at)
        match = Span.of(candidates.gram(at)).match(b, square(sample, at))
        chosen = regularizer(candidates, slice(None), rough=False)
        penalty /= sample.size
        if self.solver == "cvxpy":
            solution = by_cvxpy(match, chosen, epsilon, penalty)
        elif epsilon is None:
            solution = chosen.solve(match, penalty)
        else:
            solution = solve_constrained(match, chosen, epsilon)
        return candidates, warn_if_unsolved(solution), choice

    def _simple(
        self,
        sample: DistinctSample,
        frame: RoundFrame,
        unit: float,
        sigma: np.ndarray | None,
        rng: np.random.Generator,
    ) -> tuple[NormalCandidates, MixtureSolution, Choice | None]:
        """Proportions that no programme chose, and the likeliest width for them."""
        if self.method == "plain":
            index, p = np.arange(len(sample.points)), np.maximum(sample.target, 0.0)
        else:
            herd = herding_order(sample, frame, sigma, self.n_candidates)
            index, times = np.unique(herd, return_counts=True)
            p = times.astype(np.float64)
        p = p / p.sum()
        centres, h, choice = sample.points[index], unit, None
        if self._automatic:
            choice = held_out_plain(sample, centres, p, index, [s * unit for s in SHARES])
            h = choice.best[0]
        return NormalCandidates(centres, (h,)), MixtureSolution(p, np.nan), choice

    # --- what it says -------------------------------------------------------------------------

    @property
    def n_effective_(self) -> float:
        """The number of equal proportions with the same entropy."""
        check_is_fitted(self)
        return effective_count(self.proportions_)

    @property
    def covariances_(self) -> np.ndarray:
        """The components' covariances."""
        check_is_fitted(self)
        own = self.deviations_[:, None, None] ** 2 * self.covariance_
        return own if self._fits is None else np.concatenate([own, self._fits.covariances])

    def score_samples(self, X: Any) -> Array:
        """The log-density at every row."""
        return in_kind(self._logs(X), X)

    def _logs(self, X: Any) -> np.ndarray:
        """The log-density at every row, on the host."""
        check_is_fitted(self)
        X = seen_columns(self, X)
        points = to_numpy(checks.vectors(X, "X")).astype(np.float64)
        checks.same_kind(points, self.components_, "X", "EmbeddingDensity's sample")
        Z = self._frame.to(points)
        logs = np.full(len(Z), -np.inf)
        widths = self._width * self.deviations_
        alpha = self.proportions_[: len(widths)]
        for h in np.unique(widths):
            at = widths == h
            part = NormalCandidates(self._means[at], (float(h),)).density(Z, alpha[at])
            logs = np.logaddexp(logs, part)
        logs -= self._frame.log_volume
        return logs if self._fits is None else np.logaddexp(logs, self._fits.density(points))

    def score(self, X: Any, y: Any = None) -> float:
        """The total log-likelihood of the rows, as scikit-learn's `KernelDensity`."""
        return float(self._logs(X).sum())

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """Rows drawn from the density, in the kind of array that it was fitted to."""
        check_is_fitted(self)
        n = checks.whole(n_samples, "n_samples")
        rng = checks.random_generator(random_state, "random_state")
        chosen = decoding.draw(self.proportions_[None, :], n, rng)[0]
        noise = rng.standard_normal((n, self._means.shape[1]))
        k = len(self._means)
        some = chosen < k
        X = np.empty_like(noise)
        Z = self._means[chosen[some]]
        Z = Z + self._width * self.deviations_[chosen[some], None] * noise[some]
        X[some] = self._frame.back(Z)
        if self._fits is not None:
            X[~some] = self._fits.place(chosen[~some] - k, noise[~some])
        return in_kind(X, self._asked)

    def plot(self, ax: Any = None, **style: Any) -> Any:
        """Draw the density: a curve in one dimension, contours in two."""
        check_is_fitted(self)
        points = self._points
        if points.shape[1] > 2:
            raise ValueError(
                f"plot draws densities of one or two columns, this has {points.shape[1]}. Fit it "
                "to two of them, or look at .sample(n)."
            )
        axes, grid = plots.grid(points, (400, 100))
        logs = self.score_samples(grid.reshape(-1, len(axes))).reshape(grid.shape[:-1])
        return plots.landscape(axes, np.exp(logs), points, ax, name="density", **style)
