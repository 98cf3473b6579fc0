"""Beliefs that weigh the training states, as they are collected step by step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from meanmap.arrays import Array, namespace, on_accelerator
from meanmap.decoding.quantiles import middle, variance
from meanmap.dynamics.evidence import Evidence, PendingEvidence
from meanmap.dynamics.sequences import Steps
from meanmap.dynamics.track import Track
from meanmap.dynamics.transition import Belief, Sample, dense_weights, number_rows
from meanmap.embeddings.element import FactoredWeights
from meanmap.rules import CONFLICT

AT_ONCE = 1 << 26  # weights in an accelerator's memory at once
WHOLE = 1e-4  # a mass nearer to one than this is one but for rounding


class BeliefHistory:
    """Beliefs as they are collected, a step at a time."""

    def __init__(self, sample: Sample, keep: bool, length: int, values: Array | None) -> None:
        self.sample, self.keep, self.length = sample, keep, length
        self._values = values  # functions of the atoms whose expectations are all that is wanted
        self._beliefs: list[Belief] = []
        self._coordinates: list[Array] = []
        self._weights: list[Any] = []
        self._predicted: list[Array] = []  # coordinates before each step
        self._moments: list[Array] = []
        self._stacked: Array | None = None

    @classmethod
    def join(cls, parts: list[BeliefHistory]) -> BeliefHistory:
        """Passages of some sequences each as one of them all."""
        first = parts[0]
        whole = cls(first.sample, first.keep, first.length, first._values)
        xp = namespace(first._coordinates[0])
        for name in ("_coordinates", "_predicted"):
            rows = zip(*(getattr(part, name) for part in parts), strict=True)
            setattr(whole, name, [xp.concat(list(row)) for row in rows])
        moments = [part.moments for part in parts]
        whole._moments = [] if moments[0] is None else [xp.concat(moments)]
        weights = [part.weights() for part in parts]
        if weights[0] is not None:
            whole._weights = [combine_weights(weights, xp.concat)]
        return whole

    def add(self, belief: Belief, predicted: Array | None) -> None:
        if predicted is not None:
            self._predicted.append(predicted)
        self._beliefs.append(belief)
        if self.keep or isinstance(belief.weights, FactoredWeights):
            return
        # on an accelerator many steps at once: there every operation costs the same
        room = AT_ONCE if on_accelerator(belief.coordinates) else 1
        if len(self._beliefs) * math.prod(belief.weights.shape) >= room:
            self.flush()

    def flush(self) -> None:
        """Take the moments of what was collected, and let go of the weights unless wanted."""
        if not self._beliefs:
            return
        xp = namespace(self._beliefs[0].coordinates)
        self._coordinates += [belief.coordinates for belief in self._beliefs]
        join = partial(xp.stack, axis=1) if len(self._beliefs) > 1 else add_steps
        weights = combine_weights([belief.weights for belief in self._beliefs], join)
        if self.columns is not None:
            self._moments.append(self._sound(weights @ self.columns, weights))
        if self.keep:
            self._weights.append(weights)
        self._beliefs = []

    def _sound(self, moments: Array, weights: Any) -> Array:
        """Means, and variances of which none is negative, from moments about the middle."""
        if self._values is not None or self._states is None:
            return moments
        xp, (states, centre) = namespace(moments), self._states
        q = states.shape[1]
        mass, first, second = moments[..., :1], moments[..., 1 : q + 1], moments[..., q + 1 :]
        one, kernel = xp.ones_like(mass), self.sample.kernel
        share = xp.where(mass > CONFLICT, mass, one)
        spread = variance(first / share, second / share, weights, states)
        if kernel.on_vectors and kernel.bounded:
            mean = first / share + centre
        else:  # without constants the mass is not determined, and the raw sum is the answer
            mean = first + xp.where(abs(mass - 1) < WHOLE, one, mass) * centre
        return xp.concat([mean, spread], axis=-1)

    @cached_property
    def columns(self) -> Array | None:
        """What expectations are taken of: given values, or 1, states and their squares."""
        if self._values is not None:
            return self._values
        if self._states is None:
            return None
        states = self._states[0]
        xp = namespace(states)
        return xp.concat([xp.ones_like(states[:, :1]), states, states * states], axis=1)

    @cached_property
    def _states(self) -> tuple[Array, Array] | None:
        """States as rows of numbers less a point amid them, and that point; None of labels."""
        rows = number_rows(self.sample.atoms)
        if rows is None:
            return None
        centre = middle(rows)
        return rows - centre, centre

    @property
    def coordinates(self) -> Array:
        """(b, steps, r)."""
        if self._stacked is None:
            self._stacked = namespace(self._coordinates[0]).stack(self._coordinates, axis=1)
        return self._stacked

    @property
    def moments(self) -> Array | None:
        """Expectations of given values, or means and variances of states: (b, steps, q)."""
        if not self._moments:
            return None
        return namespace(self._moments[0]).concat(self._moments, axis=1)

    def weights(self) -> Any:
        """(b, steps, n), or None if they were not kept."""
        if not self._weights:
            return None
        if len(self._weights) == 1:
            return self._weights[0]
        parts = [dense_weights(w) for w in self._weights]
        return namespace(parts[0]).concat(parts, axis=1)

    def belief(self, t: int) -> Belief:
        """The beliefs of step t."""
        return Belief(self.coordinates[:, t], self.weights()[:, t])

    @property
    def size(self) -> tuple[int, int]:
        """How many sequences there are, and steps."""
        b, length = self.coordinates.shape[:2]
        return b, length

    def flat(self) -> Belief:
        """The beliefs of all steps, (b·steps, …)."""

        def rows(part: Array) -> Array:
            return namespace(part).reshape(part, (-1, part.shape[-1]))

        return Belief(rows(self.coordinates), map_weights(self.weights(), rows))

    def last(self, lengths: tuple[int, ...]) -> Belief:
        """The last belief of every sequence."""
        at = np.arange(len(lengths)), np.array(lengths) - 1
        return Belief(self.coordinates[at], self.weights()[at])

    def regroup(self, b: int, length: int) -> None:
        """Beliefs of one step, (b·steps, 1, …), as those of b sequences."""
        self.length = length

        def again(part: Array) -> Array:
            return namespace(part).reshape(part, (b, length, part.shape[-1]))

        self._stacked = again(self.coordinates)
        self._moments = [again(part) for part in self._moments]
        self._weights = [map_weights(w, again) for w in self._weights]

    def reverse(self) -> None:
        """Turn time round."""
        self._stacked = None
        self._coordinates = self._coordinates[::-1]
        self._moments = [flip_time(m) for m in self._moments]
        self._weights = [map_weights(w, flip_time) for w in self._weights]

    def track_of(self, kind: str, steps: Steps, evidence: Evidence | None) -> Track:
        """The record of filtered observations, with how likely they were."""
        predicted = namespace(self._predicted[0]).stack(self._predicted, axis=1)
        found = self.track(kind, steps.lengths, steps.single)
        return add_evidence(found, evidence, predicted, steps)

    def track(self, kind: str, lengths: tuple[int, ...], single: bool) -> Track:
        """The record that a user gets."""
        moments = self.moments
        first = spread = None
        if moments is not None:
            atoms = self.sample.atoms
            parts = atoms if isinstance(atoms, tuple) else (atoms,)
            xp, at, columns = namespace(moments), 0, []
            for part in (*parts, *parts):
                size = int(np.prod(part.shape[1:], dtype=int))
                shape = (*moments.shape[:2], *part.shape[1:])
                columns.append(xp.reshape(moments[..., at : at + size], shape))
                at += size
            half = len(parts)
            if isinstance(atoms, tuple):
                first, spread = tuple(columns[:half]), tuple(columns[half:])
            else:
                first, spread = columns
        sample = self.sample
        places = self.coordinates, self.weights()
        return Track(kind, sample.space, sample.atoms, *places, first, spread, lengths, single)


def add_evidence(track: Track, evidence: Evidence | None, predicted: Any, steps: Steps) -> Track:
    """A record with how likely the observations were, computed on first use."""
    assert evidence is not None
    pending = PendingEvidence(evidence, predicted, steps)
    return replace(track, log_evidence_=pending, support_=steps.support)


def map_weights(weights: Any, change: Callable[[Array], Array]) -> Any:
    """Weights with a change of all axes but the last, of the factor that has them if factored."""
    if isinstance(weights, FactoredWeights):
        return FactoredWeights(weights.scale, weights.rows, change(weights.vector))
    return change(weights)


def combine_weights(parts: list[Any], join: Callable[[list[Array]], Array]) -> Any:
    """Several weights as one array, factored if all of them are, with the same rows."""
    first = parts[0]
    if all(isinstance(w, FactoredWeights) and w.rows is first.rows for w in parts):
        return FactoredWeights(first.scale, first.rows, join([w.vector for w in parts]))
    return join([dense_weights(w) for w in parts])


def add_steps(parts: list[Array]) -> Array:
    """The single part (b, …) as the steps of a passage, (b, 1, …)."""
    return parts[0][:, None]


def flip_time(part: Array) -> Array:
    """An array (b, steps, …) with its steps in reverse order."""
    return namespace(part).flip(part, axis=1)
