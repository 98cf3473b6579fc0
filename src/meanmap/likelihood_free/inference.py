"""A simulator and a prior in, posteriors for any observation out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from meanmap import checks
from meanmap.arrays import is_array, to_numpy
from meanmap.conditional.fitting import check_regularization
from meanmap.embeddings import Embedding, embed
from meanmap.exceptions import DataWarning, warn
from meanmap.frames import column_order, reorder_columns
from meanmap.likelihood_free.posteriors import PosteriorModel
from meanmap.likelihood_free.priors import Prior, in_box, prior_of
from meanmap.likelihood_free.results import Calibration, Origin, Posterior, PredictiveCheck
from meanmap.likelihood_free.simulation import (
    CALIBRATION,
    CHECK,
    DRAWS,
    OTHER,
    Batch,
    Runner,
    Seeds,
    Simulations,
)
from meanmap.persistence import LeftOut
from meanmap.rules import bayes_method

MARGIN, EDGE = 0.25, 0.001  # the box of a round: quantiles of the posterior, and more on each side
INSIDE = 0.98  # of a posterior, that a round's box must hold to answer for it
FEWEST = 50  # simulations in a box, that it can answer with
FEW = 10  # an effective size below which the mean is uncertain by a third of a deviation, or more


class KernelABC(BaseEstimator):
    """Bayesian inference with a simulator in the place of a likelihood.

    Draws parameters from the prior, simulates an output for each, and learns the conditional
    distribution of the parameters given the output as an operator: one fit answers every
    observation (Fukumizu, Song and Gretton 2013, section 4.4). Where the prior is the one that was
    drawn from, the posterior is the conditional embedding (eq. 19); another prior asked for
    afterwards goes through kernel Bayes' rule, without new simulations.

    Probabilities come from draws: of the prior times a likelihood that is learned from the
    simulations, or of residuals around the mean of eq. 19. Simulations that are left out choose. A
    likelihood needs a prior that is normal or of independent parameters, and kernels and λ that are
    not given.

    Parameters
    ----------
    simulator : callable
        `simulator(theta, rng)`, rng a NumPy Generator: all draws at once, theta (n, d), a row of
        output each; with `vectorized=False` one draw (d,) at a time, in parallel.
    prior : frozen scipy.stats distribution, dict of them by name, callable or array
        A callable is called as `prior(n, rng)`; an array is a sample of draws.
    kernel_x, kernel_y : Kernel or None
        On parameters and on outputs. None is a Gaussian with a bandwidth for each column, in
        proportion to its spread; for outputs the leave-one-out error chooses the factor.
    summary : callable or None
        From the simulator's output (a batch, if vectorised) to numbers, one row per draw.
        Observations are then such summaries.
    vectorized : bool
    random_state : int, Generator or None
    regularization : float or "auto"
        λ of eq. 19, on the operator's scale; "auto" by leave-one-out.
    n_jobs : int or None
        Processes for a simulator that is not vectorised.
    progress : bool or None
        Show a progress bar; None on a terminal only.

    Attributes
    ----------
    theta_, outputs_ : the draws and what the simulator made of them
    n_failed_ : draws whose simulation failed, which are left out
    weights_ : their weights, equal unless there were several rounds
    names_ : the parameters' names
    model_ : P(parameters | output), a ConditionalEmbedding

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import stats
    >>> from meanmap import KernelABC
    >>> def simulator(theta, rng):  # ten noisy measurements, of which the mean and spread are kept
    ...     x = rng.normal(theta[:, :1], theta[:, 1:], size=(len(theta), 10))
    ...     return np.column_stack([x.mean(axis=1), x.std(axis=1)])
    >>> prior = {"mean": stats.norm(0, 2), "noise": stats.uniform(0.5, 2.0)}
    >>> model = KernelABC(simulator, prior, random_state=0).fit(2000)
    >>> posterior = model.posterior([1.0, 1.0])
    >>> posterior.mean().round(1)
    array([1. , 1.1])
    >>> low, high = posterior.interval(0.9)
    >>> bool(low[0] < 1.0 < high[0])
    True
    """

    _functions: ClassVar[tuple[str, ...]] = ("simulator", "prior", "summary", "_made_by")
    _simulations: Simulations
    _made_by: tuple[Any, ...]  # prior, summary and simulator of the simulations
    _complete: bool  # whether the last fit was
    _rounds: int = 1  # how many of the rounds of simulations were learned from
    _learned: PosteriorModel
    _shape_of_output: tuple[int, ...] | None
    _other: tuple[Any, str, Any, PosteriorModel] | None  # the last other prior, and its answers
    names_: tuple[str, ...]
    _named: bool
    model_: Any
    weights_: np.ndarray
    _regions: list[tuple[np.ndarray, np.ndarray | None, PosteriorModel]]  # box, observation, answer

    def __init__(
        self,
        simulator: Callable[..., Any],
        prior: Any,
        *,
        kernel_x: Any = None,
        kernel_y: Any = None,
        summary: Callable[[Any], Any] | None = None,
        vectorized: bool = True,
        random_state: Any = None,
        regularization: float | str = "auto",
        n_jobs: int | None = None,
        progress: bool | None = None,
    ) -> None:
        self.simulator = simulator
        self.prior = prior
        self.kernel_x = kernel_x
        self.kernel_y = kernel_y
        self.summary = summary
        self.vectorized = vectorized
        self.random_state = random_state
        self.regularization = regularization
        self.n_jobs = n_jobs
        self.progress = progress

    # --- simulating ---------------------------------------------------------------------------

    def fit(self, n: int = 1000) -> Self:
        """Simulate until there are n simulations in all, and learn from them.

        Simulations are kept: a second call goes on where the first ended, also after an error, with
        the draws that one call would have made. Another prior, summary or (after a fit that was
        completed) simulator begins anew.
        """
        n = checks.whole(n, "n", 2, "It is the number of simulations; a thousand is a beginning.")
        self._start()
        self._simulations.extend(self._runner(), n, 0, self.progress)
        self._learn()
        return self

    def refine(self, y: Any, n: int) -> Self:
        """Simulate n times more, where the posterior of an observation is.

        Draws come from the prior truncated to a box around the posterior. Weights by the share of
        each round in what is drawn at a point make all simulations a sample of the prior again, so
        that the posterior for any observation remains right. An observation whose posterior lies
        in the box is answered by the simulations in it, which resolve it more finely.

        Examples
        --------
        >>> from scipy import stats
        >>> from meanmap import KernelABC
        >>> def simulator(theta, rng):
        ...     return theta + 0.1 * rng.normal(size=theta.shape)
        >>> model = KernelABC(simulator, {"place": stats.norm()}, random_state=0).fit(500)
        >>> posterior = model.refine([1.0], 500).posterior([1.0])
        >>> len(model.theta_), posterior.mean().round(1), posterior.std().round(1)
        (1000, array([1.]), array([0.1]))
        """
        check_is_fitted(self, "model_")
        n = checks.whole(n, "n", 1, "It is the number of further simulations.")
        rows, single = self._read_observation(to_numpy(y) if is_array(y) else y)
        if not single:
            raise ValueError("y: expected one observation to refine for, got several.")
        self._warn_outside(rows, single)
        posterior = self._answer(rows, single)
        self._start()
        low, high = posterior.quantile([EDGE, 1 - EDGE])
        margin = MARGIN * np.maximum(high - low, 1e-12)
        box = np.stack([low - margin, high + margin])
        done, goal = self._simulations, len(self.theta_) + n
        turn = len(done.boxes) - 1
        if turn >= self._rounds and np.array_equal(np.asarray(done.asked[turn]), rows):
            goal = len(self.weights_) + n  # the last call was interrupted: complete its round
        else:
            turn = done.add_round(box, rows)
        done.extend(self._runner(), goal, turn, self.progress)
        self._learn()
        return self

    @property
    def theta_(self) -> np.ndarray:
        """The draws, as far as they were simulated."""
        return self._begun().theta

    @property
    def outputs_(self) -> np.ndarray:
        """What the simulator made of them."""
        return self._begun().outputs

    @property
    def n_failed_(self) -> int:
        """How many draws failed and were left out."""
        return self._begun().n_failed

    def _begun(self) -> Simulations:
        if not hasattr(self, "_simulations"):
            raise AttributeError("nothing is simulated yet: call fit(n).")
        return self._simulations

    def _start(self) -> None:
        """Everything ready to simulate: anew, or where it was left."""
        if not callable(self.simulator):
            raise TypeError(
                f"simulator: expected a function simulator(theta, rng), got "
                f"{checks.describe(self.simulator)}."
            )
        if self.summary is not None and not callable(self.summary):
            raise TypeError(
                f"summary: expected a function of the simulator's output, got "
                f"{checks.describe(self.summary)}."
            )
        made_by = (self.prior, self.summary, self.simulator)
        if isinstance(getattr(self, "_made_by", None), LeftOut):
            # read from a file: what is given now is taken for what there was
            self._given_again()
            self._made_by, self._complete = made_by, False
            return
        if hasattr(self, "_simulations"):
            # a simulator that was replaced after an error counts as the same one, fixed
            same = zip(self._made_by[: 3 if self._complete else 2], made_by, strict=False)
            if all(before is now for before, now in same):
                self._made_by, self._complete = made_by, False
                return
        prior = prior_of(self.prior)
        rng = checks.random_generator(self.random_state, "random_state")
        seeds = Seeds(int(rng.integers(2**63)))
        d = prior.rows(0, 1, lambda i: seeds(DRAWS, 0, i)).shape[1]
        names = prior.names or tuple(f"θ{i + 1}" for i in range(d))
        self.__dict__.update(
            _simulations=Simulations(seeds, prior, d),
            names_=names,
            _named=prior.names is not None,
            _made_by=made_by,
            _complete=False,
        )

    def _given_again(self) -> None:
        """Refuse to simulate, after reading a file, before its functions are given again."""
        for function in (self.simulator, self.summary):
            if isinstance(function, LeftOut):
                function()
        if isinstance(self._simulations.prior, LeftOut):
            self._simulations.prior = prior_of(self.prior)

    def _runner(self) -> Runner:
        return Runner(self.simulator, self.vectorized, self.summary, self.n_jobs)

    # --- learning -----------------------------------------------------------------------------

    def _learn(self) -> None:
        """One answer for all of the prior, and one for the box of every further round."""
        done = self._simulations
        theta, outputs, weights = done.theta, done.outputs, done.weights()
        low, high = (np.broadcast_to(end, (done.d,)) for end in done.prior.support)
        regularization = check_regularization(self.regularization)
        settings = ((low, high), self.kernel_x, self.kernel_y, regularization)
        learned = PosteriorModel.of(theta, outputs, weights, *settings)
        # kernels and λ of one's own choosing are those of the regression on outputs
        usual = self.kernel_x is None and self.kernel_y is None and regularization == "auto"
        prior = done.prior.normal_map() if usual else None
        learned = learned.try_likelihood(outputs, prior)
        regions = []
        for box, y in zip(done.boxes[1:], done.asked[1:], strict=True):
            assert box is not None
            near = in_box(theta, *box)
            if near.sum() < FEWEST or not np.ptp(outputs[near], axis=0).any():
                continue
            share = weights[near] / weights[near].sum()
            region = PosteriorModel.of(theta[near], outputs[near], share, *settings)
            regions.append((box, y, region.try_likelihood(outputs[near], prior, box)))
        # one assignment: an interrupt leaves the old answers or the new
        self.__dict__.update(
            _learned=learned,
            _regions=regions,
            _shape_of_output=done.shape,
            _other=None,
            model_=learned.model,
            weights_=weights,
            _rounds=len(done.boxes),
            _complete=True,
        )

    # --- posteriors ---------------------------------------------------------------------------

    def posterior(
        self,
        y: Any,
        prior: Any = None,
        method: str = "nonnegative",
        regularization: float | str | None = None,
    ) -> Posterior:
        """The posterior of the parameters given an observation.

        Parameters
        ----------
        y : one observation as the simulator (or the summary) would give it, or rows of them
            Several at once are answered by all simulations together, whatever was refined.
        prior : as of the class, an Embedding, or None
            Another prior than the one that was drawn from: by kernel Bayes' rule, where it has
            support among the draws. Names of parameters must be the same.
        method, regularization : of `bayes_rule`, for another prior

        Examples
        --------
        >>> from scipy import stats
        >>> from meanmap import KernelABC
        >>> def simulator(theta, rng):
        ...     return theta + 0.5 * rng.normal(size=theta.shape)
        >>> model = KernelABC(simulator, {"place": stats.norm()}, random_state=0).fit(1000)
        >>> model.posterior([1.0]).mean().round(1)  # the truth is 0.80
        array([0.8])
        >>> model.posterior([1.0], prior=stats.norm(-0.5, 0.7)).mean().round(1)  # 0.49
        array([0.5])
        """
        check_is_fitted(self, "model_")
        bayes_method(method)
        rows, single = self._read_observation(y)
        outside = self._warn_outside(rows, single)
        if prior is not None:
            other = self._under(prior, method, regularization)
            found = other.posterior(rows, single, self.names_, y)
        else:
            found = self._answer(rows, single, y)
        self._warn_few(found, outside)
        return found.with_origin(self._origin(rows, prior))

    def _answer(self, rows: np.ndarray, single: bool, asked: Any = None) -> Posterior:
        """The posterior under the prior that was drawn from, by the finest region that has it."""
        found = self._learned.posterior(rows, single, self.names_, asked)
        if single:
            for box, asked, region in self._regions:
                mine = asked is not None and np.array_equal(rows, asked)
                if mine or found.share(*box) >= INSIDE:
                    found = region.posterior(rows, single, self.names_, asked)
        return found

    def _origin(self, rows: np.ndarray, prior: Any) -> Origin:
        """What goes with posteriors of observations (b, p)."""
        shape = self._shape_of_output
        assert shape is not None

        def draw(n: int, rng: np.random.Generator) -> np.ndarray:
            if isinstance(prior, Embedding):
                return to_numpy(prior.sample(n, rng)).reshape(n, -1)
            return self._draws_of(self.prior if prior is None else prior, n, rng)

        def simulate(draws: np.ndarray, rng: np.random.Generator) -> np.ndarray:
            self._given_again()
            runs = self._runner().run(draws, Seeds(int(rng.integers(2**63))), (CHECK,), 0, shape)
            found = np.full((len(draws), int(np.prod(shape))), np.nan)
            found[runs.kept] = runs.outputs
            return found.reshape(-1, *shape)

        away = any(isinstance(part, LeftOut) for part in (self.simulator, self.summary, self.prior))
        return Origin(rows.reshape(-1, *shape), *((None, None) if away else (draw, simulate)))

    def _warn_outside(self, rows: np.ndarray, single: bool) -> np.ndarray:
        """Which observations lie outside the simulations, with a warning if any does."""
        outside = self._learned.regression.outside(rows)
        if outside.any():
            which = "y lies" if single else f"{int(outside.sum())} of {len(rows)} observations lie"
            warn(
                f"{which} outside the simulations: none is like it, so that the posterior there is "
                "not informed by any. Is the observation right, and what was done to it the same "
                "as in the simulator?",
                DataWarning,
            )
        return outside

    def _warn_few(self, found: Posterior, outside: np.ndarray) -> None:
        """Say where too few simulations speak for a posterior, unless none does."""
        sizes = np.atleast_1d(found.effective_size)
        few = (sizes < FEW) & ~outside
        if found.by_likelihood or not few.any():
            return
        least, n = max(float(sizes[few].min()), 1.0), len(self.theta_)
        which = f"the posterior rests on about {least:.2g} of {n} simulations"
        if len(few) > 1:
            which = (
                f"{few.sum()} of {len(few)} posteriors rest on fewer than {FEW} of {n} simulations "
                f"(the least on about {least:.2g})"
            )
        warn(
            f"{which}: chance moves its mean by {least**-0.5:.1f} of its standard deviations, and "
            "intervals with it. Simulate more: fit(n) with a larger n continues, refine(y, n) "
            "simulates where the posterior of y is.",
            DataWarning,
        )

    def _read_observation(self, y: Any) -> tuple[np.ndarray, bool]:
        """Observations as rows, and whether it was one."""
        shape = self._shape_of_output
        assert shape is not None
        size = int(np.prod(shape))
        try:
            array = np.asarray(to_numpy(checks.plain(y, "y")))
            if array.dtype.kind == "c":
                raise TypeError("complex numbers")
            array = array.astype(np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"y: expected numbers, as the simulator gives ({error}).") from error
        if not array.size:
            raise ValueError(f"y is empty: expected an observation, got {checks.describe(array)}.")
        single = array.shape in (shape, (size,)) or (array.ndim == 0 and size == 1)
        if not single and array.shape[1:] not in (shape, (size,)):
            like = f"{size} numbers" if len(shape) == 1 else f"a table {shape}"
            source = "simulator" if self.summary is None else "summary"
            raise ValueError(
                f"y: expected an observation as the {source} gives it, {like}, or rows of "
                f"them; got {checks.describe(array)}."
            )
        checks.finite(array, "y")
        return array.reshape(-1, size), single

    def _under(self, prior: Any, method: str, regularization: Any) -> PosteriorModel:
        """What another prior makes of the simulations; the last one is remembered."""
        given: Any = prior
        if not isinstance(prior, Embedding):
            n = max(2000, len(self._learned.theta))
            given = self._draws_of(prior, n, self._simulations.seeds.generator(OTHER))
        if isinstance(given, Embedding) and self._named:
            order = column_order(self.names_, given.kernel.names, "prior", "the first prior")
            if order is not None:
                given = embed(given.atoms[:, order], weights=given.weights)
        if isinstance(given, Embedding) and not isinstance(given.atoms, np.ndarray):
            given = embed(to_numpy(given.atoms), given.kernel, to_numpy(given.weights))
        points = given.atoms if isinstance(given, Embedding) else given
        if points.ndim != 2 or points.shape[1] != len(self.names_):
            raise ValueError(
                f"prior: expected {len(self.names_)} parameters, {', '.join(self.names_)}, got "
                f"{checks.describe(points)}."
            )
        if self._other is not None:
            before, *settings, found = self._other
            same = given is before
            if isinstance(given, np.ndarray) and isinstance(before, np.ndarray):
                same = np.array_equal(given, before)
            if same and settings == [method, regularization]:
                return found
        found = self._learned.under(given, method, regularization)
        self._other = (given, method, regularization, found)
        return found

    def _draws_of(self, value: Any, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draws of a prior, its parameters in the order of this model's."""
        prior: Prior = prior_of(value)
        draws = prior.sample(n, rng)
        mine = self.names_
        if prior.names is not None and self._named:
            draws = reorder_columns(
                draws, column_order(mine, prior.names, "prior", "the first prior")
            )
        return draws

    # --- trust --------------------------------------------------------------------------------

    def calibrate(self, n: int = 200) -> Calibration:
        """Simulation-based calibration with n new draws: ranks and coverage.

        Examples
        --------
        >>> import numpy as np
        >>> from scipy import stats
        >>> from meanmap import KernelABC
        >>> def simulator(theta, rng):
        ...     return theta + 0.5 * rng.normal(size=theta.shape)
        >>> model = KernelABC(simulator, {"place": stats.norm()}, random_state=0).fit(1000)
        >>> bool(0.85 < model.calibrate(400).coverage(0.9)[0] < 0.95)
        True
        """
        check_is_fitted(self, "model_")
        n = checks.whole(n, "n", 10, "It is the number of new simulations.")
        self._given_again()
        runs = self._simulate(self._simulations.prior.sample, n, CALIBRATION)
        ranks = self._learned.ranks(runs.outputs, runs.survivors)
        return Calibration(ranks, self.names_)

    def check(self, y: Any, n: int = 200) -> PredictiveCheck:
        """A posterior predictive check: n simulations with draws from the posterior of y.

        Examples
        --------
        >>> from scipy import stats
        >>> from meanmap import KernelABC
        >>> def simulator(theta, rng):
        ...     return theta + 0.1 * rng.normal(size=theta.shape)
        >>> model = KernelABC(simulator, {"place": stats.norm()}, random_state=0).fit(500)
        >>> bool(model.check([1.0]).pvalues[0] > 0.1)
        True
        """
        posterior = self.posterior(to_numpy(y) if is_array(y) else y)
        if posterior.is_batch:
            raise ValueError("y: expected one observation to check, got several.")
        n = checks.whole(n, "n", 10, "It is the number of new simulations.")
        self._given_again()
        runs = self._simulate(posterior.sample, n, CHECK)
        return PredictiveCheck(runs.outputs, self._read_observation(y)[0][0])

    def _simulate(self, sample: Callable[..., Any], n: int, purpose: int) -> Batch:
        """Simulations with n draws of a distribution, from random numbers of their own."""
        seeds = self._simulations.seeds
        draws = sample(n, seeds.generator(purpose, 0))
        runs = self._runner().run(draws, seeds, (purpose, 1), 0, self._shape_of_output)
        if not len(runs.kept):
            raise ValueError(f"simulator: all {n} draws failed; the first {runs.reason}.")
        return runs

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")
