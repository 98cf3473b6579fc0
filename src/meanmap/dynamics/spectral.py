"""Filtering and forecasting from observations alone: the kernel hidden Markov model."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from meanmap import checks
from meanmap.arrays import namespace, one_blas_thread, take, to_numpy
from meanmap.dynamics.base import ORIGINS, open_setting
from meanmap.dynamics.history import BeliefHistory
from meanmap.dynamics.model import warn_of_far
from meanmap.dynamics.observable_operators import SpectralModel, WindowMoments, middles
from meanmap.dynamics.sequences import Sequences, Steps, read_sequences
from meanmap.dynamics.stream import Stream
from meanmap.dynamics.track import Track
from meanmap.dynamics.training import (
    Training,
    comparison_values,
    fit_candidate,
    read_steps,
    steps_of,
)
from meanmap.dynamics.transition import Sample
from meanmap.dynamics.validation import (
    choose_settings,
    kernel_candidates,
    number_of_folds,
    read_grid,
)
from meanmap.kernels import Kernel
from meanmap.linalg import Spectrum

# what validation tries
FACTORS = [0.25, 0.5, 1.0, 2.0]  # multiples of the median bandwidth
STATES = [2, 3, 5, 8, 12, 20, 30]
LAMBDAS = [1e-4, 1e-3, 1e-2, 1e-1, 1.0]


class SpectralFilter(BaseEstimator):
    """Forecast observations whose hidden state is never seen: a spectral kernel filter.

    Learned from sequences of observations alone, without hidden states: the kernel hidden Markov
    model of Song, Boots, Siddiqi, Gordon and Smola (2010). Its belief is the distribution of the
    next observations in a subspace of N dimensions, which the singular vectors of
    `C_21 = E[φ(o₂) ⊗ φ(o₁)]` span; each observation moves it by an operator that is linear in the
    observation's feature.

    Parameters
    ----------
    kernel : Kernel, callable or None
        Of the observations. None chooses for the kind of points, and lets validation choose among
        multiples of the median for its bandwidth.
    n_states : int or "auto"
        N, the number of hidden states, or of dimensions that stand for them.
    window : int
        How many consecutive observations stand for the past, and for the future. With 1 (the
        paper's) two hidden states are told apart if the next observation does so; what only shows
        over several steps, such as the direction of a movement, needs a longer window.
    regularization : float or "auto"
        λ of conditioning on an observation, on the scale of the operator C_22.
    basis : a basis or None
    validation : "half", int or None
        "half" chooses everything that is "auto" (or a kernel that is None): learn from one half of
        the training sequences, predict each next observation of the other, and the other way round;
        a number is that of folds, each left out in turn. None takes the median bandwidth, as many
        states as there are leading singular vectors along which past and future are correlated,
        and the regularisation of least leave-one-out error.
    grid : dict or None
        Candidates instead of the defaults: "observation" (multiples of the median, or kernels),
        "window", "n_states", "regularization".
    n_jobs : int or None
        Processes that validate in parallel, as in scikit-learn.
    progress : bool or None
        Show a progress bar; None on a terminal only.

    Attributes
    ----------
    kernel_ : the kernel, bandwidth resolved
    n_states_, window_, regularization_ : as they were chosen
    singular_values_ : of C_21, the largest first (of large operators the leading ones)
    validation_ : a Validation with every candidate's error, or None

    Notes
    -----
    A belief is normalised at every step, by its mass `ηᵀ B_o b` with `η = (C_12 U)⁺ μ₁`. That mass
    over the mass from the stationary belief is the density of o given the observations before it
    over that given none: the evidence of labels. That of vectors is the Gaussian density about the
    forecast, over its mean about the forecasts made in training.

    Learned operators do not know that probabilities are positive. Where the mass is below 0.01 of
    the stationary one, so that dividing by it would amplify noise, the belief starts anew from the
    stationary one, takes o in and goes on. Where a belief is longer than the features of all
    training windows, which no distribution is, it is drawn towards the stationary one as far as
    necessary. An observation is passed over if its support is below 0.001, or if even the
    stationary belief gives it no mass. So a belief is finite and of mass one, however long the
    stream.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import SpectralFilter
    >>> rng = np.random.default_rng(0)
    >>> phase = np.cumsum(rng.normal(0.5, 0.05, size=800))
    >>> observations = np.sin(phase)[:, None] + 0.1 * rng.normal(size=(800, 1))
    >>> model = SpectralFilter(window=2).fit(observations[:500])
    >>> track = model.filter(observations[500:])
    >>> error = np.mean((track.mean[:-1] - observations[501:]) ** 2)
    >>> bool(error < 0.5 * np.mean(np.diff(observations[500:], axis=0) ** 2))
    True
    >>> model.predict(observations[500:], steps=5).mean.shape
    (5, 1)
    """

    _model: SpectralModel

    def __init__(
        self,
        kernel: Any = None,
        n_states: int | str = "auto",
        window: int = 1,
        regularization: float | str = "auto",
        basis: Any = None,
        validation: str | int | None = "half",
        grid: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        progress: bool | None = None,
    ) -> None:
        self.kernel = kernel
        self.n_states = n_states
        self.window = window
        self.regularization = regularization
        self.basis = basis
        self.validation = validation
        self.grid = grid
        self.n_jobs = n_jobs
        self.progress = progress

    # --- learning -----------------------------------------------------------------------------

    def fit(self, observations: Any, y: Any = None) -> Self:
        """Learn from a sequence of observations, or from a list of sequences.

        Parameters
        ----------
        observations : a sequence of 2 · window + 1 steps at least, or a list of sequences
        y : ignored
        """
        number_of_folds(self.validation)
        o, kernel = read_sequences(observations, self.kernel, "observations")
        training = Training(o, o, None)  # what is filtered is what is observed
        settings, factors = self._settings()
        middles(o.lengths, max(settings["window"]))
        kernels = kernel_candidates(self.kernel, kernel, factors)
        found = choose_settings(
            self.validation,
            training,
            (kernels,),
            settings,
            self._trial,
            self.n_jobs,
            self.progress,
            names=("kernel",),
        )
        chosen: dict[str, Any]
        if found is None:
            chosen = {name: v[0] if len(v) == 1 else "auto" for name, v in settings.items()}
            chosen["kernel"] = kernel
            chosen["window"] = settings["window"][0]
        else:
            chosen = found.best
        sample = self._sample(o, chosen["kernel"])
        N = chosen["n_states"]
        most = max(STATES) if isinstance(N, str) else N
        moments = WindowMoments.of(sample, o.lengths, chosen["window"], most)
        if N == "auto":
            N = moments.likely_states()
        elif self.n_states == "auto":
            N = min(N, moments.rank)
        elif moments.rank < N:
            raise ValueError(
                f"n_states={N} is more than the rank of C_21, which is {moments.rank} with "
                f"{len(moments.middle)} windows of training observations. Use n_states="
                f'{moments.rank} or less, "auto", a longer window, or more data.'
            )
        model = moments.model(N, chosen["regularization"])

        # nothing is set before everything has worked
        self._model = model
        self.kernel_ = model.sample.kernel
        self.n_states_, self.window_ = model.n_states, model.window
        self.regularization_ = model.regularization
        self.singular_values_ = moments.singular
        self.validation_ = found
        return self

    def _settings(self) -> tuple[dict[str, list[Any]], Any]:
        """Candidates for every setting, and those for the kernel."""
        least = "It is how many observations stand for the past, and for the future."
        window = checks.whole(self.window, "window", 1, least)
        lambdas = open_setting(self.regularization, "regularization", LAMBDAS)
        settings: dict[str, list[Any]] = {
            "window": [window],
            "n_states": _state_candidates(self.n_states),
            "regularization": lambdas,
        }
        grid = read_grid(self.grid, ["observation", *settings])
        settings |= {name: list(grid[name]) for name in settings if name in grid}
        for value in settings["window"]:
            checks.whole(value, "grid['window']", 1, least)
        for value in settings["n_states"]:
            _state_candidates(value)
        return settings, grid.get("observation", FACTORS)

    def _sample(self, o: Sequences, kernel: Kernel) -> Sample:
        space, psi = fit_candidate(kernel, self.basis, o.points)
        return Sample(space, o.points, psi)

    def _trial(
        self, train: Training, test: Training, kernel: Kernel, settings: dict[str, list[Any]]
    ) -> np.ndarray:
        """Errors of predicting each next observation of the other half, for all settings."""
        o = test.observations
        sample = self._sample(train.observations, kernel)
        values, truth = comparison_values(train, test, kernel)
        rows = [slice(end - n, end) for end, n in zip(o.ends, o.lengths, strict=True)]
        parts = [(take(o.points, at), np.ones(at.stop - at.start, dtype=bool)) for at in rows]
        steps = steps_of(sample.space, parts, o.single)
        lambdas, sizes = settings["regularization"], settings["n_states"]
        L, K, b = len(lambdas), len(sizes), len(rows)
        xp = namespace(sample.psi)
        spectrum: Spectrum | None = None
        errors = np.full((len(settings["window"]), K, L), np.inf)
        for i, window in enumerate(settings["window"]):
            moments = WindowMoments.of(sample, train.observations.lengths, window, max(sizes))
            spectrum = Spectrum.of(moments.seen.T @ moments.seen / len(moments.middle))
            inverses = [spectrum.ridge(value) for value in lambdas]
            features = xp.concat([steps.features @ inverse for inverse in inverses])
            models = moments.candidates(sizes)
            E = moments.past.T @ take(values, moments.middle) / len(moments.middle)
            squares, there = np.zeros((K, L)), 0
            states = models.states(features, np.concatenate([steps.seen] * L))
            for t, (_, state) in enumerate(states):
                now = [at for at in rows if t + 1 < at.stop - at.start]
                going = [j for j, at in enumerate(rows) if t + 1 < at.stop - at.start]
                if not going:
                    break
                predicted = xp.reshape(state @ E, (K, L, b, -1))[:, :, going]
                gap = predicted - take(truth, np.array([at.start + t + 1 for at in now]))
                squares += to_numpy(xp.sum(gap * gap, axis=(2, 3)))
                there += len(going)
            usable = np.array(sizes) <= moments.rank
            errors[i, usable] = squares[usable] / max(there, 1)
        return errors.ravel()

    # --- filtering ----------------------------------------------------------------------------

    def filter(self, observations: Any) -> Track:
        """The distribution of the next observation at each step, given those up to it.

        Row t is about observation t + 1; its `log_evidence` is that of observation t, given those
        before it.

        Parameters
        ----------
        observations : a sequence, or a list of sequences (or an array with one more axis)
            A row of NaN (None in a list, a missing label) is an unobserved step.
        """
        steps, history = self._run_filter(observations)
        return history.track_of("predicted", steps, self._model.evidence)

    def predict(self, observations: Any, steps: int, *, origin: str = "last") -> Track:
        """The distribution of the observations after those given.

        Parameters
        ----------
        observations : as in `filter`
        steps : int
            How far ahead.
        origin : "last" or "every"
            "last" gives `steps` beliefs, 1, 2, … steps after the last observation. "every" gives
            one belief for each observation: that of the observation `steps` later.
        """
        ahead = checks.whole(steps, "steps", 1, "It is how many steps ahead to look.")
        checks.option(origin, "origin", ORIGINS)
        read, history = self._run_filter(observations)
        model = self._model
        if origin == "last":
            found = model.forecast(history.last(read.lengths).weights.vector, ahead)
            lengths = (ahead,) * len(read.lengths)
            return found.track("predicted", lengths, read.single)
        b = history.weights().vector
        with one_blas_thread():
            for _ in range(ahead - 1):
                b = model.advance(b)
        found = BeliefHistory(model.sample, True, b.shape[1], None)
        for t in range(b.shape[1]):
            found.add(model.belief(b[:, t]), None)
        found.flush()
        return found.track("predicted", read.lengths, read.single)

    def score(self, observations: Any, y: Any = None) -> float:
        """The mean log evidence of an observation given those before it; larger is better.

        It is relative to the training observations' marginal: 0 is a model that has learned
        nothing of time. Observations far from all training data are very unlikely.
        """
        steps, history = self._run_filter(observations)
        track = history.track_of("predicted", steps, self._model.evidence)
        return float(track.log_evidence_.logs[~np.isnan(steps.support)].mean())

    def start(self) -> Stream:
        """Begin a live stream: `.step(o)` takes one observation and tells of the next."""
        check_is_fitted(self)
        return Stream(type(self).__name__, self._model, None)

    def _run_filter(self, observations: Any) -> tuple[Steps, BeliefHistory]:
        check_is_fitted(self)
        steps = read_steps(self._model.observations, observations)
        warn_of_far(steps.support)
        return steps, self._model.run(steps)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")


def _state_candidates(value: Any) -> list[Any]:
    """The numbers of states to try."""
    if isinstance(value, str):
        checks.option(value, "n_states", ["auto"])
        return list(STATES)
    return [checks.whole(value, "n_states", 1, 'Use "auto" or a number like 10.')]
