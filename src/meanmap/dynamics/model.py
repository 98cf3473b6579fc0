"""What a filter has learned, and how it goes through sequences: the same for every filter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from meanmap.arrays import (
    Array,
    Points,
    each_part,
    for_each_thread,
    namespace,
    one_blas_thread,
    spans,
    threads,
    warn,
)
from meanmap.conditional.trust import FAR
from meanmap.decoding.quantiles import middle, variance
from meanmap.dynamics.evidence import Evidence, PendingEvidence
from meanmap.dynamics.motion import Belief, Motion, Sample
from meanmap.dynamics.sequences import ControlGate, Steps
from meanmap.dynamics.track import Track
from meanmap.dynamics.training import LOST
from meanmap.embeddings import FactoredWeights, numeric
from meanmap.linalg import ConflictWarning
from meanmap.rules import CONFLICT
from meanmap.spaces import Space

#: δ of smoothing over the square of the mean k(s, s). On rotation and oscillation with 400 training
#: steps the error is least here (.042 and .053, filtered .048 and .059); ten times more or less
#: gives .047 and .057, .047 and .060
BACKWARD = 1e-2
CHUNK = 1 << 19  # weights in memory at once
WHOLE = 1e-4  # a mass nearer to one than this is one but for rounding


@dataclass(frozen=True)
class Model:
    """A filter in coordinates. Subclasses say how a belief takes an observation in."""

    sample: Sample
    motion: Motion
    observations: Space
    evidence: Evidence | None  # None while settings are compared, which does not need it

    #: Whether the first belief is about the state before the first observation.
    begins_before = False

    # --- what a filter must say ---------------------------------------------------------------

    @property
    def regularizations(self) -> tuple[float, float]:
        """Of the states' operator, and of the observations'."""
        raise TypeError(f"{type(self).__name__} does not say how it is regularised.")

    def lifted(self, features: Array, buffer: Array | None = None) -> Array:
        """Observations (m, r_o) as `update` wants them: what can be done for many steps at once.

        The answer may be written into a buffer of m · n numbers, and is read before the next one.
        """
        return features

    def start(self, prior: Belief, lifted: Array, known: bool) -> Belief:
        """The first belief; `known` says that somebody gave the prior."""
        raise TypeError(f"{type(self).__name__} does not say how to begin.")

    def update(self, belief: Belief, predicted: Belief, source: Array, lifted: Array) -> Belief:
        """The belief after an observation, from the belief before and the prediction."""
        raise TypeError(f"{type(self).__name__} does not say how to take in an observation.")

    def advance(self, belief: Belief, source: Array) -> Belief:
        """The belief one step later, with no observation."""
        return self.motion.push(source)

    @property
    def control_gate(self) -> ControlGate:
        """How controls come in."""
        control = self.motion.control
        return ControlGate() if control is None else ControlGate(control.kernel, control.like)

    # --- one step -----------------------------------------------------------------------------

    def step(
        self,
        belief: Belief | None,
        prior: Belief | None,
        lifted: Array,
        seen: np.ndarray,
        controls: Points | None,
    ) -> tuple[Belief, Array]:
        """The beliefs of b sequences after one more step, and the coordinates predicted for it.

        `lifted` are the observations as `update` wants them.
        """
        known = prior is not None
        if belief is None:
            predicted = self.sample.marginal if prior is None else prior
            predicted = repeat_belief(predicted, lifted.shape[0])
            belief = predicted if self.begins_before else None
        if belief is not None:
            source = self.motion.source(belief.coordinates, controls)
            predicted = self.advance(belief, source)
        if not seen.any():
            return predicted, predicted.coordinates
        if belief is None:
            updated = self.start(predicted, lifted, known)
        else:
            updated = self.update(belief, predicted, source, lifted)
        belief = updated if seen.all() else updated.where(seen, predicted)
        return belief, predicted.coordinates

    # --- whole sequences ----------------------------------------------------------------------

    def run(
        self,
        steps: Steps,
        controls: Points | None,
        prior: Belief | None,
        keep: bool,
        values: Array | None = None,
    ) -> Passage:
        """Go through sequences step by step, all of them at once.

        With `values`, functions of the atoms, only their expectations are kept. Many sequences are
        shared out among threads, which NumPy's loops let work side by side.
        """
        b, n = steps.seen.shape[0], self.sample.psi.shape[0]
        host = isinstance(steps.features, np.ndarray)
        alike = values is None and (prior is None or prior.coordinates.shape[0] == 1)
        if not host or not alike or b * n < 1 << 16 or threads() == 1:
            return self._pass(steps, controls, prior, keep, values)
        # what is computed once is computed before the threads ask for it
        self.lifted(steps.features[:1, 0])
        _ = self.motion.rows, self.motion.scale, self.motion.mass, self.motion.matrix
        _ = self.sample.marginal, self.sample.largest
        parts: dict[int, Passage] = {}

        def work(thread: int, of: int) -> None:
            rows = slice(thread * b // of, (thread + 1) * b // of)
            mine = None if controls is None else each_part(controls, lambda part: part[rows])
            parts[thread] = self._pass(steps.rows(rows), mine, prior, keep, values)

        for_each_thread(work)
        return Passage.join([parts[i] for i in sorted(parts)])

    def _pass(
        self,
        steps: Steps,
        controls: Points | None,
        prior: Belief | None,
        keep: bool,
        values: Array | None,
    ) -> Passage:
        """Go through sequences in one thread."""
        (b, length), n = steps.seen.shape, self.sample.psi.shape[0]
        xp = namespace(steps.features)
        passage = Passage(self.sample, keep, length, values)
        belief = None
        size = max(1, CHUNK // (b * n))
        # fresh memory would cost more than what is computed in it
        buffer = (
            np.empty(min(size, length) * b * n) if isinstance(steps.features, np.ndarray) else None
        )
        with one_blas_thread():
            for block in spans(length, size):
                # a step after the other in memory: what `update` reads is then in one piece
                features = xp.moveaxis(steps.features[:, block], 1, 0)
                rows = xp.reshape(features, (-1, features.shape[-1]))
                lifted = self.lifted(rows, buffer)
                for i, t in enumerate(range(block.start, block.stop)):
                    at = slice(i * b, (i + 1) * b)
                    belief, predicted = self.step(
                        belief,
                        prior,
                        lifted[at],
                        steps.seen[:, t],
                        None if controls is None or t == 0 else take_step(controls, t - 1),
                    )
                    passage.add(belief, None if values is not None else predicted)
            passage.flush()
        return passage

    def forecast(
        self, belief: Belief, count: int, controls: Points | None, first: Belief | None = None
    ) -> Passage:
        """Beliefs 1, 2, … steps after the given ones, unless the first of them is known."""
        passage = Passage(self.sample, True, count, None)
        with one_blas_thread():
            for k in range(count):
                now = None if controls is None else take_step(controls, k)
                if k > 0 or first is None:
                    belief = self.advance(belief, self.motion.source(belief.coordinates, now))
                passage.add(belief, None)
            passage.flush()
        return passage

    def forecast_from(
        self, belief: Belief | None, prior: Belief | None, count: int, controls: Points | None
    ) -> Passage:
        """Beliefs 1, 2, … steps after that of a stream, which has none before its first step."""
        first = None
        if belief is None:
            belief = self.sample.marginal if prior is None else prior
            first = None if self.begins_before else belief
        return self.forecast(belief, count, controls, first)

    def smooth(
        self, passage: Passage, lengths: tuple[int, ...], controls: Points | None, transfer: str
    ) -> Passage:
        """Go back through filtered beliefs, from the last of each sequence to the first."""
        out = Passage(self.sample, True, passage.length, None)
        last = np.array(lengths) - 1
        size = float(namespace(self.sample.psi).sum(self.sample.psi**2)) / self.sample.psi.shape[0]
        later: Belief | None = None
        with one_blas_thread():
            for t in range(passage.length - 1, -1, -1):
                belief = passage.belief(t)
                if later is None:
                    later = belief
                else:
                    now = None if controls is None else take_step(controls, t)
                    source = self.motion.source(belief.coordinates, now)
                    u = self.motion.transition_weights(belief, source, transfer)
                    backward = self.motion.smoothed(u, later, BACKWARD * size * size)
                    later = belief.where(last <= t, backward)
                out.add(later, None)
            out.flush()
        out.reverse()
        return out


class Passage:
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
    def join(cls, parts: list[Passage]) -> Passage:
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


def repeat_belief(belief: Belief, times: int) -> Belief:
    """One belief for each of several sequences."""
    if belief.coordinates.shape[0] == times:
        return belief
    xp = namespace(belief.coordinates)
    m, w = belief.coordinates, belief.dense()
    return Belief(
        xp.broadcast_to(m, (times, m.shape[-1])), xp.broadcast_to(w, (times, w.shape[-1]))
    )


def take_step(controls: Points, t: int) -> Points:
    """The controls (b, …) of one step, from (b, steps, …)."""
    return each_part(controls, lambda part: part[:, t])


def warn_of_far(support: np.ndarray) -> None:
    """Say how many observations lie far from the training observations, and what was done."""
    far = support < FAR  # NaN, where nothing was seen, is not
    if not far.any():
        return
    lost = int((support < LOST).sum())
    ignored = f"; {lost} of them say nothing at all and were passed over" if lost else ""
    where = np.argwhere(far)[0]
    place = f"step {where[-1]}" + (f" of sequence {where[0]}" if len(support) > 1 else "")
    warn(
        f"{int(far.sum())} of {int((~np.isnan(support)).sum())} observations lie far from all "
        f"training observations (their support is below {FAR}; the first is {place}){ignored}. "
        "Train on sequences that reach there, or widen the observation kernel.",
        ConflictWarning,
    )
