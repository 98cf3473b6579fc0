"""Filtering by one operator that takes the belief and the observation side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from meanmap import checks
from meanmap.arrays import Array, Points, device, namespace, take, to_numpy
from meanmap.conditional.selection import RegressionSample, regularized_inverse
from meanmap.dynamics.base import StateFilter, open_setting
from meanmap.dynamics.model import Model
from meanmap.dynamics.motion import STEADY, Belief, Motion
from meanmap.dynamics.tallies import SequenceSums, Tally, join_observation
from meanmap.dynamics.training import Placed
from meanmap.embeddings import FactoredWeights
from meanmap.rules import CONFLICT

LAMBDAS = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1]


@dataclass(frozen=True)
class AdditiveModel(Model):
    """`μ' = T₁ μ + T₂ ψ(o)` (Song, Huang, Smola and Fukumizu 2009, eq. 11).

    (T₁, T₂) is `C_s'ω (C_ωω + λI)⁻¹` with ω = (s, o') and the sum of the two kernels. Centred, ω
    has a constant besides, which is not regularised.
    """

    matrix: Array  # (T₁, T₂), r_s × |ω|
    inverse: Array  # (C_ωω + λI)⁻¹
    rows: Array  # ω of the transitions, beside the states that they led to
    mass: Array | None  # the functional of ω that gives an update's mass; None if there is none
    centered: bool
    regularization: float
    steps: Array  # Σ v vᵀ of v = (ψ(s), ψ(o))

    begins_before = True  # Algorithm 2: the first belief is about the state before

    @property
    def regularizations(self) -> tuple[float, float]:
        return self.regularization, self.regularization

    def update(self, belief: Belief, predicted: Belief, source: Array, lifted: Array) -> Belief:
        omega = join_observation(source, lifted, self.centered)
        updated = Belief(omega @ self.matrix.T, self._weights(omega @ self.inverse.T))
        if self.mass is None:
            return self.sample.bounded(updated)
        xp = namespace(omega)
        total = omega @ self.mass
        usable = total > CONFLICT
        total = xp.where(usable, total, xp.ones_like(total))[:, None]
        vector = updated.weights.vector / total
        updated = Belief(updated.coordinates / total, self._weights(vector))
        return self.sample.bounded(updated, usable)

    def advance(self, belief: Belief, source: Array) -> Belief:
        pushed = self.motion.push(source)
        if not isinstance(pushed.weights, FactoredWeights):
            return pushed
        xp, size = namespace(source), (source.shape[0], self.observations.rank_)
        nothing = xp.zeros(size, dtype=source.dtype, device=device(source))
        vector = join_observation(pushed.weights.vector, nothing, self.centered)
        return Belief(pushed.coordinates, self._weights(vector))

    def _weights(self, vector: Array) -> FactoredWeights:
        return FactoredWeights(self.motion.scale, self.rows, vector)


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
    centered : bool
        Centre the features and add the mean back (Theorem 9 has a centring matrix, but leaves the
        mean out).
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
    _stream: SequenceSums | None

    def __init__(
        self,
        kernel_state: Any = None,
        kernel_observation: Any = None,
        *,
        kernel_control: Any = None,
        centered: bool = False,
        initial: Any = "uniform",
        regularization: float | str = "auto",
        basis: Any = None,
        validation: str | int | None = "half",
        grid: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        progress: bool | None = None,
    ) -> None:
        self.kernel_state = kernel_state
        self.kernel_observation = kernel_observation
        self.kernel_control = kernel_control
        self.centered = centered
        self.initial = initial
        self.regularization = regularization
        self.basis = basis
        self.validation = validation
        self.grid = grid
        self.n_jobs = n_jobs
        self.progress = progress

    def _settings(self) -> dict[str, list[Any]]:
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
        placed = training.placed(*kernels[:2], (stream.states, stream.observations))
        first, second = placed.pairs
        before: Points = take(placed.sample.atoms, first)
        if training.controls is not None:
            before = (before, take(training.controls[0].points, first))
            source = stream.conditional.space_x_.coordinates(before)
        else:
            source = take(placed.sample.psi, first)
        xp, features = namespace(source), take(placed.phi, second)
        omega = xp.concat([source, features], axis=1)
        omega = xp.concat([omega, xp.ones_like(omega[:, :1])], axis=1) if self.centered else omega
        reference = stream.tally.reference
        tally = Tally.of(placed.steps, placed.sample, omega, second, reference)
        self._keep(stream.with_sequences(tally, before, take(placed.sample.atoms, second)))
        return self

    def merge(self, other: AdditiveFilter) -> Self:
        """Add what another filter of the same spaces and λ has seen."""
        if not isinstance(other, AdditiveFilter):
            raise TypeError(f"expected an AdditiveFilter, got {checks.describe(other)}.")
        for model in (self, other):
            check_is_fitted(model)
        if bool(self.centered) != bool(other.centered):
            raise ValueError("one filter is centered and the other is not. Give both the same.")
        self._keep(self._as_sums().merge(other._as_sums()))
        return self

    def _as_sums(self) -> SequenceSums:
        """What was seen as sums; a fit on rows becomes one."""
        if self._stream is not None:
            return self._stream
        model: AdditiveModel = self._model
        motion, sample = model.motion, model.sample
        tally = Tally.of(model.steps, sample, take(model.rows, motion.second), motion.second)
        spaces = sample.space, model.observations
        decoder = getattr(model.evidence, "decoder", None)
        return SequenceSums(
            tally, motion.conditional, *spaces, motion.control, model.regularization, decoder
        )

    def _keep(self, stream: SequenceSums) -> None:
        self._stream, self._current = stream, None
        self.transition_ = stream.conditional

    def _renewed(self) -> AdditiveModel:
        assert self._stream is not None
        stream = self._stream
        found = stream.parts()
        return AdditiveModel(
            found.sample,
            found.motion,
            stream.observations,
            found.evidence,
            found.matrix,
            found.inverse,
            found.rows,
            found.mass,
            bool(self.centered),
            stream.regularization,
            stream.tally.steps,
        )

    def _learned(self, placed: Placed, settings: dict[str, Any]) -> AdditiveModel:
        given = settings["regularization"]
        sample, centered = placed.sample, bool(self.centered)
        motion = Motion.learned(sample, *placed.pairs, given, centered, placed.controls)
        operator = motion.conditional.operator_
        w = operator.scale
        after = take(sample.psi, motion.second)
        source = operator.rows[:, :-1] if centered else operator.rows
        xp = namespace(source)
        plain = xp.concat([source, take(placed.phi, motion.second)], axis=1)
        norms = sample.kernel.squared_norms(take(sample.atoms, motion.second))
        rows = RegressionSample(plain, after, w, norms)
        found = regularized_inverse(rows, given, centered, nested=False)
        inverse, regularization = found.inverse, found.regularization
        omega = xp.concat([plain, xp.ones_like(plain[:, :1])], axis=1) if centered else plain
        image = (w[:, None] * omega) @ inverse
        mass = xp.sum(image, axis=0)
        # a bounded kernel on vectors knows constants, even where λ is so large that mass wavers
        constants = sample.kernel.on_vectors and sample.kernel.bounded
        steady = constants or np.std(to_numpy(omega @ mass)) < STEADY
        return AdditiveModel(
            sample,
            motion,
            placed.observations,
            None,
            after.T @ image,
            inverse,
            motion.beside_successors(omega),
            mass if steady else None,
            centered,
            regularization,
            placed.steps,
        )

    def _fitted(self, model: Any) -> None:
        self.regularization_ = model.regularization
        self._stream = None
