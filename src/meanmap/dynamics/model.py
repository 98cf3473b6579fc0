"""What a filter has learned, and how it goes through sequences: the same for every filter."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
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
)
from meanmap.conditional.trust import FAR
from meanmap.dynamics.belief_shapes import stretch_beliefs
from meanmap.dynamics.evidence import Evidence
from meanmap.dynamics.history import BeliefHistory
from meanmap.dynamics.sequences import ControlGate, Steps
from meanmap.dynamics.track import Track
from meanmap.dynamics.training import LOST
from meanmap.dynamics.transition import Belief, Sample, Transition
from meanmap.embeddings import Embedding
from meanmap.embeddings.single import embedding_of
from meanmap.exceptions import DataWarning, warn
from meanmap.spaces import Space

#: δ of smoothing over the square of the mean k(s, s). On rotation and oscillation with 400 training
#: steps the error is least here (.042 and .053, filtered .048 and .059); ten times more or less
#: gives .047 and .057, .047 and .060
BACKWARD = 1e-2
CHUNK = 1 << 19  # weights in memory at once


@dataclass(frozen=True)
class Model:
    """A filter in coordinates. Subclasses say how a belief takes an observation in."""

    sample: Sample
    transition: Transition
    observations: Space
    evidence: Evidence | None  # None while settings are compared, which does not need it
    #: What the deviations of beliefs are multiplied with, found in validation.
    stretch: float = field(default=1.0, kw_only=True)
    #: Whether smoothing did better than filtering in validation.
    smooths: bool = field(default=True, kw_only=True)

    #: Whether the first belief is about the state before the first observation.
    begins_before = False

    @property
    def spreads_alike(self) -> bool:
        """Whether beliefs are taken to be equally sure at all steps when settings are compared."""
        return False

    @property
    def lost(self) -> float:
        """The support below which an observation says nothing, and is passed over."""
        return LOST

    # --- what a filter must say ---------------------------------------------------------------

    @property
    def regularizations(self) -> tuple[float, float]:
        """Of the states' operator, and of the observations'."""
        raise TypeError(f"{type(self).__name__} does not say how it is regularised.")

    def lift(self, features: Array, buffer: Array | None = None) -> Array:
        """Observations (m, r_o) as `update` wants them: what can be done for many steps at once.

        The answer may be written into a buffer of m · n numbers, and is read before the next one.
        """
        return features

    def seen_at(self, steps: Steps, t: int) -> Any:
        """The observations of step t, as `step` takes them."""
        return self.lift(steps.features[:, t])

    def read(self, belief: Any) -> Embedding:
        """The belief of one sequence, as a user sees it."""
        sample = self.sample
        if self.stretch == 1 or not sample.kernel.on_vectors:
            weights, m = belief.weights[0], belief.coordinates[0]
            return embedding_of(sample.space, sample.kernel, sample.atoms, weights, m)
        m, atoms = belief.coordinates, sample.atoms
        batch = embedding_of(sample.space, sample.kernel, atoms, belief.weights, m)
        return stretch_beliefs(batch, self.stretch)[0]

    def finish(self, track: Track) -> Track:
        """The record as it is read: deviations are those of errors in validation."""
        return replace(track, stretch=self.stretch)

    def prior_belief(self, prior: Any) -> Any:
        """A prior that was given, an embedding or a sample of states."""
        return self.sample.belief(prior)

    @property
    def whole(self) -> Any:
        """The belief that all training states are alike."""
        return self.sample.marginal

    def log_evidence(self, predicted: Any, features: Any, values: Any, unseen: Any) -> np.ndarray:
        """log D of observations, given what `step` returned beside the beliefs."""
        assert self.evidence is not None
        return self.evidence.log(predicted, features, values, unseen)

    def start(self, prior: Belief, lifted: Array, known: bool) -> Belief:
        """The first belief; `known` says that the prior was given by the caller."""
        raise TypeError(f"{type(self).__name__} does not say how to begin.")

    def update(self, belief: Belief, predicted: Belief, source: Array, lifted: Array) -> Belief:
        """The belief after an observation, from the belief before and the prediction."""
        raise TypeError(f"{type(self).__name__} does not say how to take in an observation.")

    def advance(self, belief: Belief, source: Array) -> Belief:
        """The belief one step later, with no observation."""
        return self.transition.push(source)

    @property
    def control_gate(self) -> ControlGate:
        """How controls come in."""
        control = self.transition.control
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
            source = self.transition.source(belief.coordinates, controls)
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
    ) -> BeliefHistory:
        """Go through sequences step by step, all of them at once.

        With `values`, functions of the atoms, only their expectations are kept. Many sequences are
        shared out among threads, which NumPy's loops let work side by side.
        """
        b, n = steps.seen.shape[0], self.sample.psi.shape[0]
        host = isinstance(steps.features, np.ndarray)
        alike = values is None and (prior is None or prior.coordinates.shape[0] == 1)
        if not host or not alike or b * n < 1 << 16 or threads() == 1:
            return self._run_thread(steps, controls, prior, keep, values)
        # what is computed once is computed before the threads ask for it
        self.lift(steps.features[:1, 0])
        _ = (
            self.transition.rows,
            self.transition.scale,
            self.transition.mass,
            self.transition.matrix,
        )
        _ = self.sample.marginal, self.sample.largest
        parts: dict[int, BeliefHistory] = {}

        def work(thread: int, of: int) -> None:
            rows = slice(thread * b // of, (thread + 1) * b // of)
            mine = None if controls is None else each_part(controls, lambda part: part[rows])
            parts[thread] = self._run_thread(steps.rows(rows), mine, prior, keep, values)

        for_each_thread(work)
        return BeliefHistory.join([parts[i] for i in sorted(parts)])

    def _run_thread(
        self,
        steps: Steps,
        controls: Points | None,
        prior: Belief | None,
        keep: bool,
        values: Array | None,
    ) -> BeliefHistory:
        """Go through sequences in one thread."""
        (b, length), n = steps.seen.shape, self.sample.psi.shape[0]
        xp = namespace(steps.features)
        history = BeliefHistory(self.sample, keep, length, values)
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
                lifted = self.lift(rows, buffer)
                for i, t in enumerate(range(block.start, block.stop)):
                    at = slice(i * b, (i + 1) * b)
                    belief, predicted = self.step(
                        belief,
                        prior,
                        lifted[at],
                        steps.seen[:, t],
                        take_step(controls, t - 1),
                    )
                    history.add(belief, None if values is not None else predicted)
            history.flush()
        return history

    def push(self, belief: Any, controls: Points | None) -> Any:
        """The beliefs one step later, with no observation."""
        return self.advance(belief, self.transition.source(belief.coordinates, controls))

    def new_history(self, length: int) -> Any:
        """Where the beliefs of so many steps are collected."""
        return BeliefHistory(self.sample, True, length, None)

    def forecast(self, belief: Any, count: int, controls: Points | None, first: Any = None) -> Any:
        """Beliefs 1, 2, … steps after the given ones, unless the first of them is known."""
        history = self.new_history(count)
        with one_blas_thread():
            for k in range(count):
                if k > 0 or first is None:
                    belief = self.push(belief, take_step(controls, k))
                history.add(belief, None)
            history.flush()
        return history

    def forecast_every(self, history: Any, controls: list[Points | None]) -> Any:
        """The beliefs as many steps later as there are controls (b·steps, …) or None."""
        belief, found = history.flat(), self.new_history(1)
        with one_blas_thread():
            for now in controls:
                belief = self.push(belief, now)
            found.add(belief, None)
            found.flush()
        found.regroup(*history.size)
        return found

    def forecast_from(self, belief: Any, prior: Any, count: int, controls: Points | None) -> Any:
        """Beliefs 1, 2, … steps after that of a stream, which has none before its first step."""
        first = None
        if belief is None:
            belief = self.whole if prior is None else prior
            first = None if self.begins_before else belief
        return self.forecast(belief, count, controls, first)

    def smooth(
        self, history: Any, lengths: tuple[int, ...], controls: Points | None, transfer: str | None
    ) -> Any:
        """Go back through filtered beliefs, from the last of each sequence to the first."""
        out = self.new_history(history.length)
        last, later = np.array(lengths) - 1, None
        with one_blas_thread():
            for t in range(history.length - 1, -1, -1):
                belief = history.belief(t)
                if later is None:
                    later = belief
                else:
                    back = self.smooth_step(belief, later, take_step(controls, t), transfer)
                    later = belief.where(last <= t, back)
                out.add(later, None)
            out.flush()
        out.reverse()
        return out

    def smooth_step(
        self, belief: Any, later: Any, controls: Points | None, transfer: str | None
    ) -> Any:
        """The smoothed beliefs of a step, from the filtered ones and the smoothed ones after it."""
        transfer = transfer or ("one-step" if controls is None else "two-step")
        source = self.transition.source(belief.coordinates, controls)
        u = self.transition.transition_weights(belief, source, transfer)
        return self.transition.smooth_back(u, later, self._backward)

    @cached_property
    def _backward(self) -> float:
        """δ of smoothing."""
        psi = self.sample.psi
        size = float(namespace(psi).sum(psi**2)) / psi.shape[0]
        return BACKWARD * size * size


def repeat_belief(belief: Belief, times: int) -> Belief:
    """One belief for each of several sequences."""
    if belief.coordinates.shape[0] == times:
        return belief
    xp = namespace(belief.coordinates)
    m, w = belief.coordinates, belief.dense()
    return Belief(
        xp.broadcast_to(m, (times, m.shape[-1])), xp.broadcast_to(w, (times, w.shape[-1]))
    )


def take_step(controls: Points | None, t: int) -> Points | None:
    """The controls (b, …) that act after step t, from (b, steps, …); before the first, none."""
    return None if controls is None or t < 0 else each_part(controls, lambda part: part[:, t])


def warn_of_far(support: np.ndarray, least: float = LOST) -> None:
    """Say how many observations lie far from the training observations, and what was done."""
    far = support < FAR  # NaN, where nothing was seen, is not
    if not far.any():
        return
    lost = int((support < least).sum())
    ignored = f"; {lost} of them say nothing at all and were passed over" if lost else ""
    where = np.argwhere(far)[0]
    place = f"step {where[-1]}" + (f" of sequence {where[0]}" if len(support) > 1 else "")
    warn(
        f"{int(far.sum())} of {int((~np.isnan(support)).sum())} observations lie far from all "
        f"training observations (their support is below {FAR}; the first is {place}){ignored}. "
        "Train on sequences that reach there, or widen the observation kernel.",
        DataWarning,
    )
