"""Sequences that are not kept: what the additive filter needs of them are sums over their steps."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg

from meanmap.arrays import Array, Points, asarray, concatenate, count, namespace, take, to_numpy
from meanmap.conditional import ConditionalEmbedding
from meanmap.decoding.quantiles import middle
from meanmap.dynamics.evidence import Decoder, Evidence, LinearEvidence, MixtureEvidence
from meanmap.dynamics.stationary import StationaryOperators
from meanmap.dynamics.transition import STEADY, Belief, Control, Sample, Transition
from meanmap.linalg import Spectrum, with_constant
from meanmap.spaces import Space
from meanmap.streams.sums import require_same_space, value_columns

DEPENDENT = 1e-8  # of its norm: what is left of a column that those before it span


def state_numbers(points: Points, psi: Array) -> Array:
    """The states' numbers, (n, q); q = 0 for labels."""
    columns = [asarray(part, psi) for part in value_columns(points)]
    return namespace(psi).concat([psi[:, :0], *columns], axis=1)


def state_features(points: Points, psi: Array, reference: Array) -> Array:
    """1, the states' numbers about a reference, their squares and ψ.

    A belief's means of these are known exactly.
    """
    xp = namespace(psi)
    off = state_numbers(points, psi) - reference
    return xp.concat([xp.ones_like(psi[:, :1]), off, off * off, psi], axis=1)


def join_observation(source: Array, features: Array, centered: bool) -> Array:
    """ω = (s, o'), its constant last if there is one."""
    xp = namespace(source)
    if not centered:
        return xp.concat([source, features], axis=-1)
    return xp.concat([source[..., :-1], features, source[..., -1:]], axis=-1)


def source_part(omega: Array, features: int, centered: bool) -> Array:
    """The columns of s in those of ω."""
    end = omega.shape[1] - features - centered
    if not centered:
        return omega[:, :end]
    return namespace(omega).concat([omega[:, :end], omega[:, -1:]], axis=1)


@dataclass(frozen=True)
class StepSums:
    """Sums over all steps, and over all transitions."""

    steps: Array  # Σ v vᵀ of v = (ψ(s), ψ(o))
    states: Array  # Σ of `state_features`
    squares: Array  # Σ ω ωᵀ
    cross: Array  # Σ of the successors' `state_features` times ωᵀ
    moves: float
    #: What numbers are taken about; None is 0.
    reference: Array | None = None

    def __add__(self, other: StepSums) -> StepSums:
        other = other.about(self.reference)
        return StepSums(
            self.steps + other.steps,
            self.states + other.states,
            self.squares + other.squares,
            self.cross + other.cross,
            self.moves + other.moves,
            self.reference,
        )

    @classmethod
    def of(
        cls,
        steps: Array,
        sample: Sample,
        omega: Array,
        second: np.ndarray,
        reference: Array | None = None,
    ) -> StepSums:
        """Of a sample of states whose successors are the rows `second`."""
        if reference is None:
            reference = middle(state_numbers(sample.atoms, sample.psi))
        told = state_features(sample.atoms, sample.psi, reference)
        xp = namespace(told)
        after = take(told, second)
        sums = xp.sum(told, axis=0), omega.T @ omega, after.T @ omega
        return cls(steps, *sums, float(len(second)), reference)

    def about(self, reference: Array | None) -> StepSums:
        """The same sums, of numbers about another reference: (y - c)² = ((y - b) + (b - c))²."""
        if self.reference is reference or reference is None:
            return self
        q, xp = reference.shape[0], namespace(reference)
        own = xp.zeros_like(reference) if self.reference is None else self.reference
        step = own - reference

        def moved(sums: Array) -> Array:
            by = step if sums.ndim == 1 else step[:, None]
            one, first, second = sums[:1], sums[1 : q + 1], sums[q + 1 : 2 * q + 1]
            parts = [one, first + by * one, second + by * (2 * first + by * one)]
            return xp.concat([*parts, sums[2 * q + 1 :]])

        states, cross = moved(self.states), moved(self.cross)
        return replace(self, states=states, cross=cross, reference=reference)


def steady_mass(mass: Array, second_moment: Array, mean: Array) -> Array | None:
    """The functional `mass`, unless what it says of the sample varies too much to be one."""
    variance = float(mass @ second_moment @ mass) - float(mass @ mean) ** 2
    return mass if max(variance, 0.0) ** 0.5 < STEADY else None


def centred_ridge(squares: Array, mean: Array, regularization: float) -> Array:
    """`(C + λI)⁻¹` where the last coordinate is a constant, which is not regularised."""
    mu = mean[:-1]
    centred = Spectrum.of(squares[:-1, :-1] - mu[:, None] * mu[None, :])
    return with_constant(centred.ridge(regularization), mu)


class Balance:
    """The least weights on atoms under which their descriptions have given means.

    The first columns, of numbers and their squares, are met to rounding; ψ up to directions that
    hardly any atom has.
    """

    def __init__(self, told: Array) -> None:
        self._like = told
        host = to_numpy(told)
        sizes = np.linalg.norm(host, axis=0)
        columns = host / np.where(sizes > 0, sizes, 1.0)
        (R,) = scipy.linalg.qr(columns, mode="r")[:1]
        own = np.zeros(len(sizes))
        own[: min(R.shape)] = abs(np.diagonal(R))
        self._kept = np.flatnonzero((own > DEPENDENT) & (sizes > 0))
        self._sizes = sizes[self._kept]
        self._Q, self._R = scipy.linalg.qr(columns[:, self._kept], mode="economic")

    def weights(self, means: Array) -> Array:
        """A column of weights for each column of means."""
        asked = (to_numpy(means)[self._kept].T / self._sizes).T
        solved = scipy.linalg.solve_triangular(self._R, asked, trans="T")
        return asarray(self._Q @ solved, self._like)


@dataclass(frozen=True)
class StreamedTransition(Transition):
    """A transition whose training states were not kept, but for a sample of them."""

    onto: Array  # weights on the atoms, a column for each coordinate of the source
    steady: Array | None

    @cached_property
    def sources(self) -> Array:
        before = self.conditional.sides()[0]
        return self.conditional.operator_.with_constant(before.coordinates)

    @cached_property
    def shares(self) -> Array:
        xp = namespace(self.sources)
        return xp.ones_like(self.sources[:, 0]) / self.sources.shape[0]

    @cached_property
    def rows(self) -> Array:
        return self.onto

    @cached_property
    def scale(self) -> Array:
        return namespace(self.onto).ones_like(self.onto[:, 0])

    @cached_property
    def mass(self) -> Array | None:
        return self.steady


@dataclass(frozen=True)
class SequenceSums:
    """Everything that is kept of the sequences seen so far."""

    step_sums: StepSums
    conditional: ConditionalEmbedding  # P(s'|s), with a sample of the transitions
    states: Space
    observations: Space
    control: Control | None
    regularization: float
    decoder: Decoder | None  # of observations that are vectors
    for_beliefs: bool = False  # whether operators are learned for beliefs

    @property
    def centered(self) -> bool:
        """Whether ω has a constant."""
        return bool(self.conditional.centered)

    def with_sequences(self, step_sums: StepSums, before: Points, after: Points) -> SequenceSums:
        """With sums over more sequences, and their transitions."""
        conditional = copy(self.conditional).partial_fit(before, after)
        return replace(self, step_sums=self.step_sums + step_sums, conditional=conditional)

    def merge(self, other: SequenceSums) -> SequenceSums:
        """With all that another stream has seen."""
        require_same_space(self.states, other.states, "the states")
        require_same_space(self.observations, other.observations, "the observations")
        if self.regularization != other.regularization:
            raise ValueError(
                f"the two filters have different regularization_, {self.regularization!r} and "
                f"{other.regularization!r}. Give both the same settings and spaces."
            )
        conditional = copy(self.conditional).merge(copy(other.conditional))
        return replace(self, step_sums=self.step_sums + other.step_sums, conditional=conditional)

    def parts(self) -> dict[str, Any]:
        """An additive model's fields: the operators, and beliefs on a sample of the states."""
        before, after = (side.points for side in self.conditional.sides())
        atoms = concatenate([after, before if self.control is None else before[0]])
        psi = self.states.coordinates(atoms)
        reference = self.step_sums.reference
        reference = middle(state_numbers(atoms, psi)) if reference is None else reference
        step_sums, r = self.step_sums.about(reference), self.states.rank_
        balance = Balance(state_features(atoms, psi, reference))
        whole = step_sums.states / step_sums.states[0]
        marginal = Belief(whole[None, -r:], balance.weights(whole[:, None]).T)
        sample = Sample(self.states, atoms, psi, marginal)
        squares, cross = step_sums.squares / step_sums.moves, step_sums.cross / step_sums.moves
        mean, rows = cross[0], balance.weights(cross)
        inverse, gain = self._operators(squares, cross[-r:], mean)
        return {
            "sample": sample,
            "transition": self._transition(sample, count(after), rows, squares, mean),
            "observations": self.observations,
            "evidence": self._evidence(step_sums, psi),
            "matrix": cross[-r:] @ inverse,
            "inverse": inverse,
            "rows": rows,
            "mass": steady_mass(mean @ inverse, squares, mean),
            "centered": self.centered,
            "regularization": self.regularization,
            "steps": step_sums.steps,
            "gain": gain,
        }

    def _operators(self, squares: Array, cross: Array, mean: Array) -> tuple[Array, Array | None]:
        """The inverse that operators are made of, and the gain of the smoother."""
        lam, centered = self.regularization, self.centered
        if self.for_beliefs:
            stationary = StationaryOperators.of(squares, cross, lam, centered)
            return stationary.inverse, stationary.gain
        return (
            centred_ridge(squares, mean, lam) if centered else Spectrum.of(squares).ridge(lam)
        ), None

    def _transition(
        self, sample: Sample, moves: int, rows: Array, squares: Array, mean: Array
    ) -> StreamedTransition:
        """The transition on a sample whose first atoms are successors of its last ones."""
        features, centered = self.observations.rank_, self.centered
        part = source_part(source_part(squares, features, centered).T, features, centered)
        average = source_part(mean[None, :], features, centered)[0]
        return StreamedTransition(
            self.conditional,
            sample,
            np.arange(moves, count(sample.atoms)),
            np.arange(moves),
            self.control,
            source_part(rows, features, centered),
            steady_mass(average @ self.conditional.operator_.inverse, part, average),
        )

    def _evidence(self, step_sums: StepSums, psi: Array) -> Evidence:
        steps, r = step_sums.steps / step_sums.states[0], self.states.rank_
        H = Spectrum.of(steps[:r, :r]).ridge(self.regularization)
        if self.decoder is not None:
            return MixtureEvidence.of(steps, H, psi, self.decoder)
        seen = Spectrum.of(steps[r:, r:]).ridge(self.regularization)
        return LinearEvidence(seen @ steps[r:, :r] @ H)
