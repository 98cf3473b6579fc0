"""Filtering by one operator that takes the belief and the observation side by side."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from sklearn.utils.validation import check_is_fitted

from meanmap import checks
from meanmap.arrays import Array, Points, device, namespace, take
from meanmap.conditional.selection import RegressionSample, regularized_inverse
from meanmap.dynamics.base import StateFilter, open_setting
from meanmap.dynamics.model import Model
from meanmap.dynamics.sequence_sums import SequenceSums, StepSums, join_observation
from meanmap.dynamics.stationary import StationaryOperators
from meanmap.dynamics.training import EmbeddedTraining
from meanmap.dynamics.transition import Belief, Transition, determines_mass
from meanmap.embeddings.element import FactoredWeights
from meanmap.linalg import solve_ridge
from meanmap.rules import CONFLICT

LAMBDAS = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1]
SOURCES = ["auto", "beliefs", "states"]


@dataclass(frozen=True)
class AdditiveModel(Model):
    """`μ' = T₁ μ + T₂ ψ(o)` (Song, Huang, Smola and Fukumizu 2009, eq. 11).

    (T₁, T₂) is `C_s'ω (C_ωω + λI)⁻¹` with ω = (s, o') and the sum of the two kernels. Centred, ω
    has a constant besides, which is not regularised.
    """

    matrix: Array  # (T₁, T₂), r_s × |ω|
    inverse: Array  # (C_ωω + λI)⁻¹
    rows: Array  # ω of the transitions, beside the states that they led to
    mass: Array | None  # the functional of ω that gives an update's mass, if any
    centered: bool
    regularization: float
    steps: Array  # Σ v vᵀ of v = (ψ(s), ψ(o))
    gain: Array | None = None  # of the smoother, where operators were learned for beliefs

    begins_before = True  # Algorithm 2: the first belief is about the state before

    @property
    def regularizations(self) -> tuple[float, float]:
        return self.regularization, self.regularization

    @property
    def spreads_alike(self) -> bool:
        # E[s²] has products of past and observation, which a sum of the two does not know
        return self.gain is not None

    def update(self, belief: Belief, predicted: Belief, source: Array, lifted: Array) -> Belief:
        omega = join_observation(source, lifted, self.centered)
        updated = Belief(omega @ self.matrix.T, self._weights(omega @ self.inverse.T))
        if self.mass is None:
            return self.sample.keep_bounded(updated)
        xp = namespace(omega)
        total = omega @ self.mass
        usable = total > CONFLICT
        total = xp.where(usable, total, xp.ones_like(total))[:, None]
        vector = updated.weights.vector / total
        updated = Belief(updated.coordinates / total, self._weights(vector))
        return self.sample.keep_bounded(updated, usable)

    def advance(self, belief: Belief, source: Array) -> Belief:
        pushed = self.transition.push(source)
        if not isinstance(pushed.weights, FactoredWeights):
            return pushed
        xp, size = namespace(source), (source.shape[0], self.observations.rank_)
        nothing = xp.zeros(size, dtype=source.dtype, device=device(source))
        vector = join_observation(pushed.weights.vector, nothing, self.centered)
        return Belief(pushed.coordinates, self._weights(vector))

    def _weights(self, vector: Array) -> FactoredWeights:
        return FactoredWeights(self.transition.scale, self.rows, vector)

    @cached_property
    def _writer(self) -> Array:
        """`w ∘ Ψ (C_ss + λI)⁻¹`, the weights of coordinates on the training states."""
        psi, n = self.sample.psi, self.sample.psi.shape[0]
        return solve_ridge(psi.T @ psi / n, self.regularization, psi.T).T / n

    def smooth_step(
        self, belief: Belief, later: Belief, controls: Any, transfer: str | None
    ) -> Belief:
        """`ν = μ + G (ν' - A μ)` of filtered beliefs μ."""
        if transfer is not None or self.gain is None:
            return super().smooth_step(belief, later, controls, transfer)
        ahead = self.transition.push(self.transition.source(belief.coordinates, None))
        change = (later.coordinates - ahead.coordinates) @ self.gain.T
        weights = belief.dense() + change @ self._writer.T
        if self.mass is not None:  # by division: weights of a regression may swing
            total = namespace(weights).sum(weights, axis=-1)[..., None]
            weights = weights / namespace(weights).where(total > CONFLICT, total, 1.0)
        return self.sample.keep_bounded(Belief(belief.coordinates + change, weights))


class AdditiveFilter(StateFilter):
    """Track a hidden state with two operators learned once: the additive kernel filter.

    One conditional operator predicts the next state from the state before and the observation of
    the next, with the sum of their kernels. It falls into two, `μ' = T₁ μ + T₂ ψ(o)`, so that a
    step is a matrix-vector product in coordinates, whatever the number of training steps (Song,
    Huang, Smola and Fukumizu 2009, Theorem 9, Algorithms 1 and 2). It predicts, passes over
    missing observations and smooths with the plain transition operator (Theorem 7).

    Parameters
    ----------
    kernel_state, kernel_observation, kernel_control : Kernel, callable or None
        None chooses for the kind of points, and lets validation choose among multiples of the
        median for its bandwidth. With controls, the state's part of ω is the pair of state and
        control.
    learn_from : "auto", "beliefs" or "states"
        What the operators are learned for. The paper regresses the next state on the true state
        before it; a filter applies the operators to beliefs, which are less sure, and then counts
        on the past too much. "beliefs" regresses on what the filter will believe, whose moments
        follow from those of the states: on a linear Gaussian system that is the stationary Kalman
        filter, and smoothing that of Rauch, Tung and Striebel. "auto" is "beliefs" where settings
        are validated and none is given, and the paper's "states" otherwise, or with controls.
    centered : bool or None
        Centre the features and add the mean back (Theorem 9 has a centring matrix, but leaves the
        mean out). None does so where operators are learned for beliefs, which is not stable
        otherwise.
    initial : "uniform", or a prior: Embedding or a sample of states
        The belief about the state before the first observation.
    regularization : float or "auto"
        λ, on the operator's scale.
    basis, validation, grid, n_jobs, progress : as in `KernelBayesFilter`
        The grid's keys are "state", "observation" and "regularization".

    Attributes
    ----------
    transition_ : P(s'|s), a ConditionalEmbedding
    kernel_state_, kernel_observation_, regularization_, validation_ : as they were chosen

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import AdditiveFilter
    >>> rng = np.random.default_rng(0)
    >>> angle = np.cumsum(rng.normal(0.3, 0.1, size=600))
    >>> states = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    >>> observations = states + 0.3 * rng.normal(size=states.shape)
    >>> model = AdditiveFilter().fit(states[:400], observations[:400])
    >>> track = model.filter(observations[400:])
    >>> error = ((track.mean - states[400:]) ** 2).sum(axis=1).mean()
    >>> bool(error < 0.5 * 2 * 0.3**2)  # less than half of the observations' own
    True
    """

    _initials = ("uniform",)
    _factors = (1.0, 2.0, 4.0, 8.0)  # wide kernels follow what is linear
    _stream: SequenceSums | None

    def __init__(
        self,
        kernel_state: Any = None,
        kernel_observation: Any = None,
        *,
        kernel_control: Any = None,
        learn_from: str = "auto",
        centered: bool | None = None,
        initial: Any = "uniform",
        regularization: float | str = "auto",
        basis: Any = None,
        validation: str | int | None = "auto",
        grid: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        progress: bool | None = None,
    ) -> None:
        self.kernel_state = kernel_state
        self.kernel_observation = kernel_observation
        self.kernel_control = kernel_control
        self.learn_from = learn_from
        self.centered = centered
        self.initial = initial
        self.regularization = regularization
        self.basis = basis
        self.validation = validation
        self.grid = grid
        self.n_jobs = n_jobs
        self.progress = progress

    def _settings(self) -> dict[str, list[Any]]:
        checks.option(self.learn_from, "learn_from", SOURCES)
        return {"regularization": open_setting(self.regularization, "regularization", LAMBDAS)}

    # --- more sequences -----------------------------------------------------------------------

    def partial_fit(self, states: Any, observations: Any, controls: Any = None) -> Self:
        """Add sequences; kernels, spaces and λ are those of the first call, which is a `fit`.

        Sums over steps are kept in place of them. Operators, and with them the means and standard
        deviations of beliefs, are those of one fit on all sequences given the same spaces and λ;
        atoms are a random sample of 2,000 transitions, on which quantiles and `smooth` stand.

        Parameters
        ----------
        states, observations, controls : as in `fit`
            Whole sequences: no transition is seen between the last step of one and the next.

        Examples
        --------
        >>> import numpy as np
        >>> from meanmap import AdditiveFilter
        >>> rng = np.random.default_rng(0)
        >>> def runs(length):
        ...     angle = np.cumsum(rng.normal(0.3, 0.1, size=length))
        ...     states = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        ...     return states, states + 0.3 * rng.normal(size=states.shape)
        >>> model = AdditiveFilter().fit(*runs(400))
        >>> for _ in range(5):
        ...     model = model.partial_fit(*runs(400))
        >>> states, observations = runs(200)
        >>> error = ((model.filter(observations).mean - states) ** 2).sum(axis=1).mean()
        >>> bool(error < 0.5 * 2 * 0.3**2)
        True
        """
        if not hasattr(self, "kernel_state_"):
            return self.fit(states, observations, controls)
        stream = self._as_sums()
        if (controls is None) != (self._control is None):
            fitted = "without" if controls is not None else "with"
            raise ValueError(f"controls: the filter was fitted {fitted} them; go on likewise.")
        given = None if stream.control is None else stream.control.like
        like = stream.states.example_, stream.observations.example_, given
        kernels = self.kernel_state_, self.kernel_observation_, self._control
        training, _ = self._training(states, observations, controls, kernels, like)
        embedded = training.embed(*kernels[:2], (stream.states, stream.observations))
        first, second = embedded.pairs
        before: Points = take(embedded.sample.atoms, first)
        if training.controls is not None:
            before = (before, take(training.controls[0].points, first))
            source = stream.conditional.space_x_.coordinates(before)
        else:
            source = take(embedded.sample.psi, first)
        xp, features = namespace(source), take(embedded.phi, second)
        omega = xp.concat([source, features], axis=1)
        if stream.centered:
            omega = xp.concat([omega, xp.ones_like(omega[:, :1])], axis=1)
        reference = stream.step_sums.reference
        step_sums = StepSums.of(embedded.steps, embedded.sample, omega, second, reference)
        self._keep(stream.with_sequences(step_sums, before, take(embedded.sample.atoms, second)))
        return self

    def merge(self, other: AdditiveFilter) -> Self:
        """Add what another filter of the same spaces and λ has seen."""
        if not isinstance(other, AdditiveFilter):
            raise TypeError(f"expected an AdditiveFilter, got {checks.describe(other)}.")
        for model in (self, other):
            check_is_fitted(model)
        mine, theirs = self._as_sums(), other._as_sums()
        if mine.centered != theirs.centered:
            raise ValueError("one filter is centered and the other is not. Give both the same.")
        self._keep(mine.merge(theirs))
        return self

    def _as_sums(self) -> SequenceSums:
        """What was seen as sums; a fit on rows becomes one."""
        if self._stream is not None:
            return self._stream
        model: AdditiveModel = self._model
        transition, sample = model.transition, model.sample
        step_sums = StepSums.of(
            model.steps, sample, take(model.rows, transition.second), transition.second
        )
        spaces = sample.space, model.observations
        decoder = getattr(model.evidence, "decoder", None)
        return SequenceSums(
            step_sums,
            transition.conditional,
            *spaces,
            transition.control,
            model.regularization,
            decoder,
            model.gain is not None,
        )

    def _keep(self, stream: SequenceSums) -> None:
        self.__dict__.update(_stream=stream, _current=None, transition_=stream.conditional)

    def _renew(self) -> AdditiveModel:
        assert self._stream is not None
        return AdditiveModel(**self._stream.parts())

    def _learn(self, embedded: EmbeddedTraining, settings: dict[str, Any]) -> AdditiveModel:
        given = settings["regularization"]
        controlled = embedded.controls is not None
        sample, centered = embedded.sample, self._centres(controlled)
        transition = Transition.learn(sample, *embedded.pairs, given, centered, embedded.controls)
        operator = transition.conditional.operator_
        w = operator.scale
        after = take(sample.psi, transition.second)
        source = operator.rows[:, :-1] if centered else operator.rows
        xp = namespace(source)
        plain = xp.concat([source, take(embedded.phi, transition.second)], axis=1)
        norms = sample.kernel.squared_norms(take(sample.atoms, transition.second))
        rows = RegressionSample(plain, after, w, norms)
        found = regularized_inverse(rows, given, centered, nested=False)
        inverse, regularization = found.inverse, found.regularization
        omega = xp.concat([plain, xp.ones_like(plain[:, :1])], axis=1) if centered else plain
        weighted, gain = w[:, None] * omega, None
        if self._for_beliefs(controlled):
            moments = omega.T @ weighted, after.T @ weighted
            stationary = StationaryOperators.of(*moments, regularization, centered)
            inverse, gain = stationary.inverse, stationary.gain
        image = weighted @ inverse
        mass = xp.sum(image, axis=0)
        known = determines_mass(sample.kernel, omega @ mass)
        return AdditiveModel(
            sample,
            transition,
            embedded.observations,
            None,
            after.T @ image,
            inverse,
            transition.beside_successors(omega),
            mass if known else None,
            centered,
            regularization,
            embedded.steps,
            gain,
        )

    def _centres(self, controlled: bool) -> bool:
        """Whether features are centred."""
        return self._for_beliefs(controlled) if self.centered is None else bool(self.centered)

    def _for_beliefs(self, controlled: bool) -> bool:
        """Whether operators are learned for beliefs."""
        if self.learn_from != "auto" or controlled:
            if self.learn_from == "beliefs" and controlled:
                raise ValueError(
                    'learn_from="beliefs" takes no controls yet. Use learn_from="states".'
                )
            return self.learn_from == "beliefs"
        if self.centered is not None and not self.centered:
            return False
        given = self.kernel_state, self.kernel_observation, self.basis, self.grid
        unset = all(part is None for part in given) and self.regularization == "auto"
        return unset and self.validation is not None

    def _keep_settings(self, model: Any) -> None:
        self.regularization_ = model.regularization
        self._stream = None
