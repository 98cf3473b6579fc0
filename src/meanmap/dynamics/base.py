"""What every filter does with sequences."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from meanmap import checks
from meanmap.arrays import (
    Array,
    Points,
    each_part,
    in_one_precision,
    namespace,
    one_blas_thread,
    take,
    to_library,
)
from meanmap.dynamics.history import BeliefHistory
from meanmap.dynamics.model import Model, warn_of_far
from meanmap.dynamics.sequences import (
    Sequences,
    Steps,
    read_sequences,
    require_rotations,
    require_same_lengths,
    require_transition,
)
from meanmap.dynamics.stream import Stream
from meanmap.dynamics.track import Track
from meanmap.dynamics.training import EmbeddedTraining, Training, read_steps
from meanmap.dynamics.validation import (
    FACTORS,
    MOST,
    PIECES,
    Contest,
    Validation,
    choose_settings,
    join_stretches,
    kernel_candidates,
    number_of_folds,
    read_grid,
    share_to_hold,
)
from meanmap.embeddings import Embedding
from meanmap.kernels import Kernel

ORIGINS = ("last", "every")
TRANSFERS = ("two-step", "one-step")
SMOOTHED = 600  # steps of a part at most, that tell whether smoothing helps
SMOOTHINGS = 2  # parts that tell it


class StateFilter(BaseEstimator):
    """A filter learned from sequences of states and observations.

    Subclasses say which settings validation may choose (`_settings`) and how a model is learned
    from a training sample in coordinates (`_learn`).
    """

    kernel_state: Any
    kernel_observation: Any
    kernel_control: Any
    initial: Any
    basis: Any
    validation: str | int | None
    grid: dict[str, Any] | None
    n_jobs: int | None
    progress: bool | None

    _current: Model | None  # None after more sequences came: made again on first use
    _initials: ClassVar[tuple[str, ...]] = ("first", "uniform")
    _factors: ClassVar[tuple[float, ...]] = FACTORS  # of the median bandwidth, that are tried

    # --- what a filter must say ---------------------------------------------------------------

    def _settings(self) -> dict[str, list[Any]]:
        """Candidates for every setting beside the kernels; one that is fixed has a single one."""
        raise TypeError(f"{type(self).__name__} has no settings.")

    def _learn(self, embedded: EmbeddedTraining, settings: dict[str, Any]) -> Model:
        """The model for one choice of settings, where "auto" is the closed-form choice."""
        raise TypeError(f"{type(self).__name__} does not say how to learn.")

    # --- fitting ------------------------------------------------------------------------------

    def fit(self, states: Any, observations: Any, controls: Any = None) -> Self:
        """Learn from a sequence of states with their observations, or from a list of sequences.

        Parameters
        ----------
        states, observations : sequences, row t of each belonging to time t, or lists of them
        controls : a sequence, a list of them, or None
            What was done to the system: row t acts between t and t + 1.
        """
        number_of_folds(self.validation)
        training, kernels = self._training(states, observations, controls)
        settings = self._settings()
        grid = read_grid(self.grid, ["state", "observation", *settings])
        self._check_initial(kernels[0], training.states.points)
        candidates = tuple(
            kernel_candidates(given, kernel, grid.get(name), self._factors)
            for given, kernel, name in zip(
                (self.kernel_state, self.kernel_observation),
                kernels,
                ("state", "observation"),
                strict=True,
            )
        )
        for name, values in grid.items():
            if name in settings:
                settings[name] = [open_setting(v, f"grid[{name!r}]", [])[0] for v in values]
        found = choose_settings(
            self.validation,
            training,
            candidates,
            settings,
            self._trial,
            self.n_jobs,
            self.progress,
        )
        chosen: dict[str, Any]
        if found is None:
            pair = kernels
            chosen = {name: v[0] if len(v) == 1 else "auto" for name, v in settings.items()}
        else:
            chosen = dict(found.best)
            pair = chosen.pop("kernel_state"), chosen.pop("kernel_observation")
        embedded = training.embed(*pair, self._bases())
        model = self._learn(embedded, chosen)
        model = replace(model, evidence=embedded.evidence(*model.regularizations))
        model, found = self._finish_fit(training, model, chosen, found)

        # nothing is set before everything has worked
        self._current = model
        self.kernel_state_ = model.sample.kernel
        self.kernel_observation_ = model.observations.kernel_
        self.transition_ = model.transition.conditional
        self.validation_ = found
        self._control = None if training.controls is None else training.controls[1]
        self._keep_settings(model)
        return self

    def _finish_fit(
        self, training: Training, model: Model, chosen: dict[str, Any], found: Validation | None
    ) -> tuple[Model, Validation | None]:
        """The model that is used, given the one of the settings that were chosen."""
        return (model if found is None else self._calibrate(training, model, chosen)), found

    def _calibrate(self, training: Training, model: Model, chosen: dict[str, Any]) -> Model:
        """The model with the stretch of its deviations, and whether smoothing helps.

        Both are found on the parts that were left out, with the settings that were chosen.
        """
        if isinstance(training.states.points, tuple):
            return model
        kernels, found = (model.sample.kernel, model.observations.kernel_), []
        errors: list[Any] = []
        share = share_to_hold(training)
        folds = max(number_of_folds(self.validation), PIECES)
        for train, test in training.some(MOST).folds(folds):
            embedded = train.embed(*kernels, self._bases())
            contest = Contest.of(embedded, test)
            if contest.middle is None:
                return model
            part = self._learn(embedded, chosen)
            history = part.run(contest.steps, contest.controls, self._prior(part), True)
            found.append(
                contest.stretch_of_track(
                    history.track("filtered", test.states.lengths, False), share
                )
            )
            if len(errors) < SMOOTHINGS and test.size <= SMOOTHED:
                back = part.smooth(history, contest.steps.lengths, contest.controls, None)
                errors.append([contest.squares(p.moments) for p in (history, back)])
        filtered, smoothed = np.array(errors or [[0.0, 0.0]]).sum(axis=0)
        return replace(model, stretch=join_stretches(found), smooths=bool(smoothed <= filtered))

    def _keep_settings(self, model: Any) -> None:
        """Set the attributes that tell what was chosen."""

    @property
    def _model(self) -> Any:
        """What was learned."""
        if self._current is None:
            self._current = self._renew()
        return self._current

    def _renew(self) -> Model:
        """The model of all sequences so far, for a filter that takes more of them."""
        raise TypeError(f"{type(self).__name__} does not say how to learn more.")

    def _bases(self) -> tuple[Any, Any]:
        bases = self.basis if isinstance(self.basis, tuple) else (self.basis, self.basis)
        if len(bases) != 2:
            raise ValueError(
                f"basis: expected one basis or a pair (state, observation), got {len(bases)}."
            )
        return bases

    def _training(
        self,
        states: Any,
        observations: Any,
        controls: Any,
        kernels: tuple[Any, Any, Any] | None = None,
        like: tuple[Any, Any, Any] = (None, None, None),
    ) -> tuple[Training, tuple[Kernel, Kernel]]:
        """Everything through the gate; `kernels` and points `like` these come from a fit before."""
        if kernels is None:
            kernels = self.kernel_state, self.kernel_observation, self.kernel_control
        s, kernel_state = read_sequences(states, kernels[0], "states", like[0])
        o, kernel_observation = read_sequences(observations, kernels[1], "observations", like[1])
        named = [("states", s), ("observations", o)]
        c = None
        if controls is not None:
            rows, kernel = read_sequences(controls, kernels[2], "controls", like[2])
            named.append(("controls", rows))
            c = rows, kernel
        require_same_lengths(named)
        require_transition(s, "states")
        require_rotations(s.points, kernel_state, "states")
        left, right = in_one_precision(s.points, o.points)
        s = Sequences(left, s.lengths, s.single)
        o = Sequences(right, o.lengths, o.single)
        if c is not None:
            c = (
                Sequences(to_library(c[0].points, left), s.lengths, s.single),
                c[1].resolve(c[0].points),
            )
        return Training(s, o, c), (kernel_state, kernel_observation)

    def _trial(
        self,
        train: Training,
        test: Training,
        kernel_state: Kernel,
        kernel_observation: Kernel,
        settings: dict[str, list[Any]],
    ) -> np.ndarray:
        """Errors of all combinations of settings on the other half."""
        embedded = train.embed(kernel_state, kernel_observation, self._bases())
        contest = Contest.of(embedded, test)
        errors = []
        for chosen in product(*settings.values()):
            model = self._learn(embedded, dict(zip(settings, chosen, strict=True)))
            history = model.run(
                contest.steps, contest.controls, self._prior(model), False, contest.values
            )
            errors.append(contest.error(history.moments, model.spreads_alike))
        return np.array(errors)

    # --- filtering ----------------------------------------------------------------------------

    def filter(self, observations: Any, controls: Any = None, *, beliefs: bool = True) -> Track:
        """The distribution of the state at each step, given the observations up to it.

        Parameters
        ----------
        observations : a sequence, or a list of sequences (or an array with one more axis)
            A row of NaN (None in a list, a missing label) is an unobserved step.
        controls : as in `fit`, row t acting between t and t + 1
        beliefs : bool
            Keep the beliefs, steps × atoms numbers; False keeps their means, standard deviations
            and coordinates only.
        """
        steps, history, _ = self._run_filter(observations, controls, 0, beliefs)
        return self._model.finish(history.track_of("filtered", steps, self._model.evidence))

    def smooth(
        self, observations: Any, controls: Any = None, *, transfer: str | None = None
    ) -> Track:
        """The distribution of the state at each step, given all observations, also later ones.

        Back through the filtered beliefs: the transition's posterior under the belief at t, pushed
        through the smoothed belief at t + 1. Where that was worse than filtering in validation, the
        filtered beliefs are returned, unless `transfer` is given.

        Parameters
        ----------
        observations, controls : as in `filter`
        transfer : "one-step", "two-step" or None
            The belief at t as weights on the training transitions: its own ("one-step", what None
            takes without controls), or `u = w ∘ Ψ (C + εI)⁻¹ m`, which is
            `transition_.posterior(belief, "squared").push(later)`.
        """
        if transfer is not None:
            checks.option(transfer, "transfer", TRANSFERS)
        steps, history, given = self._run_filter(observations, controls, 0, True)
        if given is not None and transfer == "one-step":
            raise ValueError(
                'transfer="one-step" takes the training transitions as they are, whatever control '
                'they happened under. Use transfer="two-step" with controls.'
            )
        if transfer is None and not self._model.smooths:
            return self._model.finish(history.track("smoothed", steps.lengths, steps.single))
        smoothed = self._model.smooth(history, steps.lengths, given, transfer)
        return self._model.finish(smoothed.track("smoothed", steps.lengths, steps.single))

    def predict(
        self, observations: Any, steps: int, controls: Any = None, *, origin: str = "last"
    ) -> Track:
        """The distribution of the state in the steps after the observations.

        Parameters
        ----------
        observations : as in `filter`
        steps : int
            How far ahead.
        controls : as in `fit`; here as many rows as there are observations, and `steps` - 1 more
        origin : "last" or "every"
            "last" gives `steps` beliefs, 1, 2, … steps after the last observation. "every" gives
            one belief for each observation: the state `steps` later, from what was known then.
        """
        ahead = checks.whole(steps, "steps", 1, "It is how many steps ahead to look.")
        checks.option(origin, "origin", ORIGINS)
        read, history, given = self._run_filter(observations, controls, ahead - 1, True)
        if origin == "last":
            last = np.array(read.lengths) - 1
            later = None
            if given is not None:
                rows = last[:, None] + np.arange(ahead)[None, :]
                later = take_controls(given, rows)
            found = self._model.forecast(history.last(read.lengths), ahead, later)
            lengths = (ahead,) * len(read.lengths)
            return self._model.finish(found.track("predicted", lengths, read.single))
        b, length = read.seen.shape
        later = [None] * ahead
        if given is not None:
            rows = np.broadcast_to(np.arange(length)[None, :], (b, length))
            later = [each_part(take_controls(given, rows + k), flatten_steps) for k in range(ahead)]
        found = self._model.forecast_every(history, later)
        return self._model.finish(found.track("predicted", read.lengths, read.single))

    def start(self, prior: Any = None) -> Stream:
        """Begin a live stream: `.step(o)` takes one observation at a time.

        `prior` is the belief before the first observation, an Embedding or a sample of states;
        None is what the parameter `initial` says.
        """
        check_is_fitted(self)
        return Stream(type(self).__name__, self._model, self._prior(self._model, prior))

    # --- input --------------------------------------------------------------------------------

    def _run_filter(
        self, observations: Any, controls: Any, ahead: int, keep: bool
    ) -> tuple[Steps, BeliefHistory, Points | None]:
        check_is_fitted(self)
        with one_blas_thread():
            steps = read_steps(self._model.observations, observations, self._model.lost)
        given = self._model.control_gate.read_sequences(controls, steps.lengths, ahead)
        warn_of_far(steps.support, self._model.lost)
        history = self._model.run(steps, given, self._prior(self._model), keep)
        return steps, history, given

    def _check_initial(self, kernel: Kernel, states: Points) -> None:
        """Refuse a first belief that no stream could begin with."""
        prior = self.initial
        if isinstance(prior, str):
            checks.option(prior, "initial", self._initials)
        else:
            like = take(states, slice(0, 1))
            if isinstance(prior, Embedding):
                prior.atoms_for(kernel, "initial", like)
            else:
                kernel.check(prior, "initial", like, "the states")

    def _prior(self, model: Model, prior: Any = None) -> Any:
        """The belief that was given for the first step."""
        prior = self.initial if prior is None else prior
        if isinstance(prior, str):
            checks.option(prior, "initial", self._initials)
            return None if prior == "first" else model.whole
        return model.prior_belief(prior)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_current")


def flatten_steps(part: Array) -> Array:
    """(b, steps, …) as rows."""
    return namespace(part).reshape(part, (part.shape[0] * part.shape[1], *part.shape[2:]))


def take_controls(controls: Points, rows: np.ndarray) -> Points:
    """Controls (b, rows, …) at given rows (b, k) of each sequence; past the end, the last one."""

    def of(part: Array) -> Array:
        return part[np.arange(rows.shape[0])[:, None], np.minimum(rows, part.shape[1] - 1)]

    return each_part(controls, of)


def open_setting(value: Any, name: str, candidates: list[float]) -> list[Any]:
    """A setting's candidates: what the user gave, or the default ones for "auto"."""
    if isinstance(value, str):
        checks.option(value, name, ["auto"])
        return list(candidates)
    return [checks.not_negative(value, name, 'Use "auto" or a number like 1e-3.')]
