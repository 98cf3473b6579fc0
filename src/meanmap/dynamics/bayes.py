"""Filtering by kernel Bayes' rule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import (
    Array,
    Points,
    asarray,
    matmul_into,
    namespace,
    take,
)
from meanmap.conditional import ConditionalEmbedding
from meanmap.conditional.fitting import fit_pairs, read_pairs
from meanmap.dynamics.base import (
    TRANSFERS,
    StateFilter,
    open_setting,
)
from meanmap.dynamics.model import Model
from meanmap.dynamics.moments import MomentEvidence, MomentModel
from meanmap.dynamics.system import MANY, LearnedSystem, has_moments
from meanmap.dynamics.training import EmbeddedTraining, Training
from meanmap.dynamics.transition import Belief, Transition
from meanmap.dynamics.validation import (
    LEAST,
    MOST,
    PIECES,
    Contest,
    Validation,
    join_stretches,
    share_to_hold,
    training_folds,
)
from meanmap.kernels import Kernel
from meanmap.kernels.bandwidths import LEARNED
from meanmap.rules import (
    CONFLICT,
    METHODS,
    BayesMethod,
    PriorOnSample,
    bayes_method,
    normalize_weights,
)
from meanmap.spaces import Space

AUTO, MOMENTS, WEIGHTS = "auto", "moments", "reweighted"
CHANCE = 1.0  # over √n, of a score: what the best of some hundred candidates owes to chance
#: Over n, of a score: what dynamics have to gain over regression on pictures and other long rows.
#: Pieces of a path lie between frames that are like them, which flatters its dynamics: on 100 and
#: 200 frames of the camera, filters that gained up to 33% in pieces lost up to 44% on other frames
FEW = 80.0
# what validation tries
EPSILONS = [1e-5, 1e-4, 1e-3, 1e-2]
DELTAS = [1e-7, 1e-5, 1e-4, 1e-3, 1e-2]
SQUARED = [1e-8, 1e-6, 1e-4]
POWERS = [0.0, 0.25, 0.5, 0.75, 1.0]


@dataclass(frozen=True)
class BayesModel(Model):
    """Predict by the transition, then condition by kernel Bayes' rule.

    With a predicted belief m, `u = w ∘ Ψ_S (C_SS + εI)⁻¹ m` is the prior on the training pairs
    (Fukumizu, Song and Gretton 2013, eq. 17), and the posterior's weights are on the same pairs
    (eq. 18).
    """

    points: Points  # the training observations
    phi: Array  # ψ of the training observations, (n, r_o)
    ratio: Array  # Ψ_S (C_SS + εI)⁻¹: a belief's density ratio u/w on the sample
    inverse: Array  # (C_OO + δI)⁻¹
    w: Array
    rule: BayesMethod
    transfer: str
    delta: float
    epsilon: float
    known: bool = False  # whether observations come as their β(o), as they do in validation
    rest: bool = False  # whether what β(o) lacks of one is that of all training states alike

    @property
    def lost(self) -> float:
        return 0.0 if self.rest else super().lost  # a regression answers with the average there

    @property
    def regularizations(self) -> tuple[float, float]:
        delta = self.delta**0.5 if self.rule.squared else self.delta
        return self.epsilon, delta  # on the scales of C_SS and C_OO

    def lift(self, features: Array, buffer: Array | None = None) -> Array:
        if self.rule.adaptive or self.known:
            return features
        return self._plain(features, buffer)

    @cached_property
    def _lifter(self) -> Array:
        return self.inverse @ (self.w[:, None] * self.phi).T

    def _plain(self, features: Array, buffer: Array | None = None) -> Array:
        """`β(o) = w ∘ Φ (C_OO + δI)⁻¹ ψ(o)`, the weights of the plain conditional P(s|o)."""
        if self.rest:
            beta = features @ self._lifter
            return beta + (1 - namespace(beta).sum(beta, axis=-1))[..., None] * self.w
        if buffer is None or buffer.dtype != features.dtype:
            return features @ self._lifter
        shape = features.shape[0], self._lifter.shape[1]
        return matmul_into(features, self._lifter, buffer[: shape[0] * shape[1]].reshape(shape))

    def start(self, prior: Belief, lifted: Array, known: bool) -> Belief:
        if known:
            return self.condition(prior, lifted)
        # the first belief of Fukumizu, Song and Gretton (2013, 4.3), without its factor T
        beta = self._plain(lifted) if self.rule.adaptive else lifted
        return self._belief(normalize_weights(beta, prior.dense(), least_share(beta)))

    def update(self, belief: Belief, predicted: Belief, source: Array, lifted: Array) -> Belief:
        if self.transfer == "one-step":
            predicted = self._move_to_successors(belief)
        return self.condition(predicted, lifted)

    def _move_to_successors(self, belief: Belief) -> Belief:
        """Every atom becomes its successor (Song, Fukumizu and Gretton 2013, eq. 35).

        Over several steps without an observation this would follow single training paths instead
        of the transition, so that predictions are made by the operator.
        """
        successors = take(belief.dense().T, self.transition.first)
        moved = self.transition.beside_successors(successors).T
        moved = normalize_weights(moved, namespace(moved).broadcast_to(self.w, moved.shape))
        return Belief(moved @ self.sample.psi, moved)

    def condition(self, predicted: Belief, lifted: Array) -> Belief:
        """Kernel Bayes' rule for every sequence, the predicted belief as the prior."""
        m = predicted.coordinates
        ratio = m @ self.ratio.T
        prior = PriorOnSample(m, self.sample.psi, self.w, self.epsilon, ratio, self.w)
        rho = self.rule.density_ratio(prior)
        least: Any = CONFLICT
        if self.rule.adaptive:
            weights = self.rule.weights(self.phi, self.w * rho, self.delta, lifted)
        else:
            weights, least = rho * lifted, partial(least_share, lifted)
        return self._belief(normalize_weights(weights, ratio, least))

    def _belief(self, weights: Array) -> Belief:
        return self.sample.keep_bounded(Belief(weights @ self.sample.psi, weights))


def least_share(weights: Array) -> Array:
    """What κ may not fall below where weights are made of these: a fifth of their own.

    The weights of a regression swing about zero while their sum is as it should be, so that it is
    cancelling more than they do that tells of a conflict.
    """
    xp = namespace(weights)
    size = xp.sum(abs(weights), axis=-1)
    share = xp.sum(weights, axis=-1) / xp.where(size > 0, size, xp.ones_like(size))
    return CONFLICT * xp.where(share > 0, share, xp.ones_like(share))


class KernelBayesFilter(StateFilter):
    """Track a hidden state with unknown dynamics: kernel Bayes filtering.

    From training sequences of states and observations it learns the transition P(s'|s) and the
    observation P(o|s) as operators. Given new observations it predicts by the one and conditions
    by kernel Bayes' rule on the other (Song, Fukumizu and Gretton 2013, Algorithm VII; Fukumizu,
    Song and Gretton 2013, eqs. 16 to 18).

    Parameters
    ----------
    kernel_state, kernel_observation, kernel_control : Kernel, callable or None
        None chooses for the kind of points, and lets validation choose among multiples of the
        median for its bandwidth.
    method : "auto", "moments", "reweighted", "importance", "squared" or "nonnegative"
        How beliefs are conditioned. "moments" carries their means and covariances through the
        learned transition and observation, as the unscented Kalman filter does with known ones; it
        needs vectors. The others are Bayes' rule for weights on the training states, regularised as
        in `bayes_rule`: "reweighted" costs two matrix-vector products per step, and with a
        validated `power` it relies on the dynamics only as far as they help; "squared" is the
        papers'. "auto" takes "moments" unless "reweighted" scores clearly better in validation, and
        "reweighted" without validation or if a setting below (a kernel, a basis, a grid) is given.
    transfer : "two-step" or "one-step"
        Prediction by the transition operator (2013, eq. 17), or by replacing every training state
        with its successor (Algorithm VII, eq. 35).
    initial : "first", "uniform", or a prior: Embedding or a sample of states
        The first belief: the conditional of the state given the first observation, Bayes' rule
        with all training states as the prior, or with the given prior.
    regularization : float or "auto"
        ε of the transition and of the prior's weights.
    posterior_regularization : float or "auto"
        δ of Bayes' rule, on the scale it has in `bayes_rule`.
    power : float or "auto"
        τ of "reweighted": 1 is Bayes' rule, 0 ignores the dynamics.
    basis : a basis, a pair of them (state, observation), or None
    validation : "auto", "half", int or None
        How everything that is "auto" (or a kernel that is None) is chosen. "half" is the papers'
        half-split validation: learn from one half of the training sequences, score the beliefs
        on the other, and the other way round. A number is that of folds, each left out in turn.
        "auto" makes the parts of pieces from all over a single recording, as its halves may have
        little in common: two parts of pieces of 50 steps, or five of pieces of ten where there are
        fewer than 400 steps. Several sequences are dealt out into halves.
        Standard deviations and intervals are then stretched so that they hold what was
        left out. None takes the median bandwidths, the regularisations of least leave-one-out
        error, and τ = 1.
    grid : dict or None
        Candidates instead of the defaults: "state" and "observation" (multiples of the median, or
        kernels), "regularization", "posterior_regularization", "power".
    n_jobs : int or None
        Processes that validate in parallel, as in scikit-learn.
    progress : bool or None
        Show a progress bar; None on a terminal only.

    Attributes
    ----------
    transition_ : P(s'|s), a ConditionalEmbedding
    observation_ : P(o|s), a ConditionalEmbedding
    kernel_state_, kernel_observation_ : the kernels, bandwidths resolved
    method_ : the method that is used
    regularization_, posterior_regularization_, power_ : as they were chosen
    validation_ : a Validation with every candidate's error, or None

    Notes
    -----
    Where all settings are left open and the best beliefs by weights score no better in validation
    than the conditional of the state given its observation alone, that is used: `power_` is 0, and
    the kernel of the observations and λ are those that `ConditionalEmbedding` learns. Far from all
    training observations its answer is the average of the training states.

    Weights may be negative; they are normalised at every step. Where they cancel (κ = Σw/Σ|w| below
    0.2, or for "reweighted" below a fifth of what the plain conditional has) their positive part
    is used, and where nothing is left of that the prediction stands. An
    observation whose support is below 0.001 is passed over. So a belief is always a finite set of
    weights that sum to one, however long the stream.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import KernelBayesFilter
    >>> rng = np.random.default_rng(0)
    >>> angle = np.cumsum(rng.normal(0.3, 0.1, size=600))
    >>> states = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    >>> observations = states + 0.3 * rng.normal(size=states.shape)
    >>> model = KernelBayesFilter().fit(states[:400], observations[:400])
    >>> track = model.filter(observations[400:])
    >>> error = ((track.mean - states[400:]) ** 2).sum(axis=1).mean()
    >>> bool(error < 0.5 * 2 * 0.3**2)  # less than half of the observations' own
    True
    >>> stream = model.start()
    >>> belief = stream.step(observations[400])
    >>> belief.mean().shape
    (2,)
    """

    def __init__(
        self,
        kernel_state: Any = None,
        kernel_observation: Any = None,
        *,
        kernel_control: Any = None,
        method: str = "auto",
        transfer: str = "two-step",
        initial: Any = "first",
        regularization: float | str = "auto",
        posterior_regularization: float | str = "auto",
        power: float | str = "auto",
        basis: Any = None,
        validation: str | int | None = "auto",
        grid: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        progress: bool | None = None,
    ) -> None:
        self.kernel_state = kernel_state
        self.kernel_observation = kernel_observation
        self.kernel_control = kernel_control
        self.method = method
        self.transfer = transfer
        self.initial = initial
        self.regularization = regularization
        self.posterior_regularization = posterior_regularization
        self.power = power
        self.basis = basis
        self.validation = validation
        self.grid = grid
        self.n_jobs = n_jobs
        self.progress = progress

    # --- learning -----------------------------------------------------------------------------

    @property
    def _rule(self) -> str:
        """The method of Bayes' rule that weights are found by."""
        return WEIGHTS if self.method in (AUTO, MOMENTS) else self.method

    def _settings(self) -> dict[str, list[Any]]:
        if self.method not in (AUTO, MOMENTS):
            checks.option(self.method, "method", [AUTO, MOMENTS, *METHODS])
        rule = bayes_method(self._rule)
        checks.option(self.transfer, "transfer", TRANSFERS)
        deltas = SQUARED if rule.squared else DELTAS
        powers = POWERS if rule.tempered else [1.0]
        return {
            "regularization": open_setting(self.regularization, "regularization", EPSILONS),
            "posterior_regularization": open_setting(
                self.posterior_regularization, "posterior_regularization", deltas
            ),
            "power": open_setting(self.power, "power", powers),
        }

    def _learn(self, embedded: EmbeddedTraining, settings: dict[str, Any]) -> BayesModel:
        epsilon, delta = settings["regularization"], settings["posterior_regularization"]
        rule = bayes_method(self._rule, 1.0 if settings["power"] == "auto" else settings["power"])
        if self.transfer == "one-step" and embedded.controls is not None:
            raise ValueError(
                'transfer="one-step" replaces a state by its successor, which happened under '
                'another control. Use transfer="two-step" with controls.'
            )
        sample, phi = embedded.sample, embedded.phi
        transition = Transition.learn(sample, *embedded.pairs, epsilon, False, embedded.controls)
        points = embedded.training.observations.points
        H, epsilon = embedded.state_inverse(epsilon)
        if delta == "auto":
            spaces = sample.space, embedded.observations
            conditional = conditional_of(sample.atoms, points, spaces, epsilon)
            delta = conditional.posterior_regularization(self._rule)
        plain = delta**0.5 if rule.squared else delta  # on the scale of C_OO
        inverse = embedded.reverse_inverse(plain)
        w = checks.weights(None, points, phi)
        ratio = sample.psi @ H
        return BayesModel(
            sample,
            transition,
            embedded.observations,
            None,
            points,
            phi,
            ratio,
            inverse,
            w,
            rule,
            self.transfer,
            delta,
            epsilon,
            rest=settings.get("rest", False),
        )

    def _finish_fit(
        self, training: Training, model: Model, chosen: dict[str, Any], found: Validation | None
    ) -> tuple[Model, Validation | None]:
        """Beliefs by moments, or by regression, if they are asked for or score better."""
        kernels = model.sample.kernel, model.observations.kernel_
        possible = has_moments(training, kernels)
        if self.method == MOMENTS and not possible:
            raise ValueError(
                'method="moments" needs states, observations and controls that are vectors of at '
                'most 64 numbers. Use method="reweighted".'
            )
        by_weights = not possible or self.method not in (AUTO, MOMENTS)
        if by_weights or (self.method == AUTO and (found is None or not self._open)):
            model, chosen, found = self._sensible(training, model, chosen, found)
            return super()._finish_fit(training, model, chosen, found)
        system = LearnedSystem.learn(training)
        spaces = model.sample, model.transition, model.observations
        moments = MomentModel(*spaces, MomentEvidence.of(system), system=system, plain=model)
        if training.size < LEAST or self.validation is None:
            return moments, found
        parts = training_folds(self.validation, training)
        share = share_to_hold(training)
        trials = [self._left_out(parts, moments, share)]
        if len(parts) < PIECES:
            trials.append(self._left_out(training.some(MOST).folds(PIECES), moments, share))
        score = float(np.mean([found for found, _ in trials[0]]))
        spreads = [np.mean(np.log([spread for _, spread in trial])) for trial in trials]
        moments = replace(moments, stretch=join_stretches(np.exp(spreads)))
        if found is None:
            return moments, None
        found = replace(found, moments=score)
        if self.method == MOMENTS or score <= (1 + chance_of(training)) * found.least:
            return moments, found
        model, chosen, found = self._sensible(training, model, chosen, found)
        return self._calibrate(training, model, chosen), found

    def _sensible(
        self, training: Training, model: Model, chosen: dict[str, Any], found: Any
    ) -> tuple[Model, dict[str, Any], Validation | None]:
        """Regression of the state on its observation, unless the dynamics help in validation.

        The kernel of the observations and λ are then those that `ConditionalEmbedding` learns.
        """
        if found is None or not self._open or not bayes_method(self._rule).tempered:
            return model, chosen, found
        kernel, errors = model.sample.kernel, []
        for train, test in training_folds(self.validation, training):
            observed, settings = learn_regression(train, chosen)
            listed = {name: [value] for name, value in settings.items()}
            errors.append(super()._trial(train, test, kernel, observed, listed)[0])
        found = replace(found, regression=float(np.mean(errors)))
        if not found.regression <= (1 + doubt_of(training)) * found.least:
            return model, chosen, found
        observed, chosen = learn_regression(training, chosen)
        embedded = training.embed(kernel, observed, self._bases())
        model = self._learn(embedded, chosen)
        return replace(model, evidence=embedded.evidence(*model.regularizations)), chosen, found

    def _left_out(
        self, parts: list[tuple[Training, Training]], model: MomentModel, share: float
    ) -> list[tuple[float, float]]:
        """Scores of beliefs by moments on parts that were left out, and how far they stretch."""
        kernels, found = (model.sample.kernel, model.observations.kernel_), []
        for train, test in parts:
            embedded = train.embed(*kernels, self._bases())
            part = replace(
                model,
                sample=embedded.sample,
                observations=embedded.observations,
                system=LearnedSystem.learn(train, model.system),
            )
            contest = Contest.of(embedded, test)
            history = part.run(contest.steps, contest.controls, self._prior(part), False)
            moments = history.moments
            found.append((contest.score_moments(moments), contest.stretch(moments, share)))
        return found

    @property
    def _open(self) -> bool:
        """Whether nothing was given that belongs to weights on the training states."""
        kernels = self.kernel_state, self.kernel_observation, self.kernel_control
        given = (*kernels, self.basis, self.grid)
        settings = self.regularization, self.posterior_regularization, self.power
        return not any(part is not None for part in given) and settings == ("auto",) * 3

    def _keep_settings(self, model: Any) -> None:
        by_moments = isinstance(model, MomentModel)
        self.method_ = MOMENTS if by_moments else self._rule
        model = model.plain if by_moments else model
        self.regularization_ = model.transition.conditional.regularization_
        self.posterior_regularization_ = model.delta
        self.power_ = model.rule.power

    @property
    def observation_(self) -> ConditionalEmbedding:
        """P(o|s), a ConditionalEmbedding."""
        if not hasattr(self, "_current"):
            raise AttributeError("this KernelBayesFilter is not fitted yet: call fit.")
        model = self._model
        model = model.plain if isinstance(model, MomentModel) else model
        assert isinstance(model, BayesModel)
        spaces = model.sample.space, model.observations
        return conditional_of(model.sample.atoms, model.points, spaces, model.epsilon)

    def _trial(
        self,
        train: Training,
        test: Training,
        kernel_state: Kernel,
        kernel_observation: Kernel,
        settings: dict[str, list[Any]],
    ) -> np.ndarray:
        if bayes_method(self._rule).adaptive:
            return super()._trial(train, test, kernel_state, kernel_observation, settings)
        # β(o) depends on δ alone, and nothing is factorised for τ: all of these go as one batch
        embedded = train.embed(kernel_state, kernel_observation, self._bases())
        contest = Contest.of(embedded, test)
        epsilons, deltas, powers = settings.values()
        xp, times = namespace(embedded.phi), len(deltas) * len(powers)
        features = contest.steps.features
        n = embedded.phi.shape[0]
        betas = [((features @ embedded.reverse_inverse(d)) @ embedded.phi.T) / n for d in deltas]
        tau = np.tile(np.repeat(np.array(powers), features.shape[0]), len(deltas))[:, None]
        batch = replace(
            contest.steps,
            features=xp.concat([beta for beta in betas for _ in powers]),
            seen=np.concatenate([contest.steps.seen] * times),
        )
        controls = contest.controls
        controls = None if controls is None else xp.concat([controls] * times)
        errors = []
        for epsilon in epsilons:
            first = {"regularization": epsilon, "posterior_regularization": deltas[0], "power": 1.0}
            model = self._learn(embedded, first)
            rule = replace(model.rule, power=asarray(tau, features))
            candidates = replace(model, rule=rule, known=True)
            prior = self._prior(model)
            history = candidates.run(batch, controls, prior, False, contest.values)
            found = history.moments
            assert found is not None
            means = xp.reshape(found, (times, *contest.steps.seen.shape, found.shape[-1]))
            errors += [contest.error(part) for part in means]
        return np.array(errors)


def chance_of(training: Training) -> float:
    """The share of a score that the best of some hundred candidates owes to chance."""
    return CHANCE / training.size**0.5


def doubt_of(training: Training) -> float:
    """The share of a score that dynamics have to gain over regression."""
    points = training.observations.points
    long = not isinstance(points, tuple) and points.ndim == 2 and points.shape[1] > MANY
    return max(chance_of(training), FEW / training.size if long else 0.0)


def learn_regression(training: Training, chosen: dict[str, Any]) -> tuple[Kernel, dict[str, Any]]:
    """The kernel of the observations and the settings that make a filter a regression."""
    points = training.observations.points, training.states.points
    fitted = fit_pairs(read_pairs(*points, None, None, None, None, usual=LEARNED))
    delta = float(fitted.regularization)
    settings = {"posterior_regularization": delta, "power": 0.0, "rest": True}
    return fitted.x.space.kernel_, chosen | settings


def conditional_of(
    states: Points, observations: Points, spaces: tuple[Space, Space], regularization: float
) -> ConditionalEmbedding:
    """P(o|s) as a model by itself."""
    kernels = spaces[0].kernel_, spaces[1].kernel_
    model = ConditionalEmbedding(*kernels, regularization, spaces, centered=False)
    return model.fit_checked(states, observations)
