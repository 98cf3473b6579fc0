"""Beliefs that weigh the training states, as they are collected step by step."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from meanmap.arrays import Array, namespace
from meanmap.decoding.quantiles import middle, variance
from meanmap.dynamics.evidence import Evidence, PendingEvidence
from meanmap.dynamics.sequences import Steps
from meanmap.dynamics.track import Track
from meanmap.dynamics.transition import Belief, Sample
from meanmap.embeddings import FactoredWeights, numeric
from meanmap.rules import CONFLICT

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
            same = all(
                isinstance(w, FactoredWeights) and w.rows is weights[0].rows for w in weights
            )
            if same:
                vector = xp.concat([w.vector for w in weights])
                whole._weights = [FactoredWeights(weights[0].scale, weights[0].rows, vector)]
            else:
                dense = [w.dense() if isinstance(w, FactoredWeights) else w for w in weights]
                whole._weights = [xp.concat(dense)]
        return whole

    def add(self, belief: Belief, predicted: Array | None) -> None:
        if predicted is not None:
            self._predicted.append(predicted)
        if self.keep or isinstance(belief.weights, FactoredWeights):
            self._beliefs.append(belief)
            return
        self.flush()
        self._coordinates.append(belief.coordinates)
        if self.columns is not None:
            moments = belief.weights @ self.columns
            self._moments.append(self._sound(moments, belief.weights)[:, None])

    def flush(self) -> None:
        """Take the moments of what was collected, and let go of the weights unless wanted."""
        if not self._beliefs:
            return
        xp = namespace(self._beliefs[0].coordinates)
        self._coordinates += [belief.coordinates for belief in self._beliefs]
        weights = stack_weights([belief.weights for belief in self._beliefs], xp)
        columns = self.columns
        if columns is not None:
            factored = isinstance(weights, FactoredWeights)
            moments = weights.apply(columns) if factored else weights @ columns
            self._moments.append(self._sound(moments, weights))
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
        parts = self.sample.atoms
        parts = parts if isinstance(parts, tuple) else (parts,)
        try:
            flat = [numeric(part) for part in parts]
        except TypeError:
            return None
        xp = namespace(flat[0])
        rows = xp.concat([xp.reshape(part, (part.shape[0], -1)) for part in flat], axis=1)
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
        parts = [w.dense() if isinstance(w, FactoredWeights) else w for w in self._weights]
        return namespace(parts[0]).concat(parts, axis=1)

    def belief(self, t: int) -> Belief:
        """The beliefs of step t."""
        return Belief(self.coordinates[:, t], self.weights()[:, t])

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
        self._weights = [
            FactoredWeights(w.scale, w.rows, again(w.vector))
            if isinstance(w, FactoredWeights)
            else again(w)
            for w in self._weights
        ]

    def reverse(self) -> None:
        """Turn time round."""
        self._stacked = None
        self._coordinates = self._coordinates[::-1]
        self._moments = [namespace(m).flip(m, axis=1) for m in self._moments]
        self._weights = [_flip_time(w) for w in self._weights]

    def track_of(self, kind: str, steps: Steps, evidence: Evidence | None) -> Track:
        """The record of filtered observations, with how likely they were."""
        assert evidence is not None
        xp = namespace(self._predicted[0])
        pending = PendingEvidence(evidence, xp.stack(self._predicted, axis=1), steps)
        found = self.track(kind, steps.lengths, steps.single)
        return replace(found, log_evidence_=pending, support_=steps.support)

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
        return Track(
            kind,
            self.sample.space,
            self.sample.atoms,
            self.coordinates,
            self.weights(),
            first,
            None,
            None,
            None,
            lengths,
            single,
            spread=spread,
        )


def flat_weights(history: BeliefHistory, total: int) -> Any:
    """The weights of all beliefs, (total, n)."""
    weights = history.weights()
    if isinstance(weights, FactoredWeights):
        vector = weights.vector
        flat = namespace(vector).reshape(vector, (total, -1))
        return FactoredWeights(weights.scale, weights.rows, flat)
    return namespace(weights).reshape(weights, (total, -1))


def stack_weights(weights: list[Any], xp: Any) -> Any:
    """Weights of several steps, (b, steps, n)."""
    factored = [w for w in weights if isinstance(w, FactoredWeights)]
    if len(factored) == len(weights) and all(w.rows is factored[0].rows for w in factored):
        vector = xp.stack([w.vector for w in factored], axis=1)
        return FactoredWeights(factored[0].scale, factored[0].rows, vector)
    return xp.stack([w.dense() if isinstance(w, FactoredWeights) else w for w in weights], axis=1)


def _flip_time(weights: Any) -> Any:
    if isinstance(weights, FactoredWeights):
        flipped = namespace(weights.vector).flip(weights.vector, axis=1)
        return FactoredWeights(weights.scale, weights.rows, flipped)
    return namespace(weights).flip(weights, axis=1)
