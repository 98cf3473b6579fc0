"""A filter on a live stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from meanmap import checks
from meanmap.arrays import Points, concatenate, count, is_array, is_floating
from meanmap.dynamics.evidence import NEVER
from meanmap.dynamics.model import warn_of_far
from meanmap.dynamics.sequences import ControlGate, Steps, observed_steps
from meanmap.dynamics.track import Track
from meanmap.dynamics.training import steps_of
from meanmap.embeddings import Embedding
from meanmap.spaces import Space

AT_ONCE = 64  # steps whose evidence is computed together


class LiveModel(Protocol):
    """What a stream asks of a model that was learned."""

    @property
    def observations(self) -> Space: ...

    @property
    def control_gate(self) -> ControlGate: ...

    @property
    def lost(self) -> float: ...

    def seen_at(self, steps: Steps, t: int) -> Any:
        """The observations of step t, as `step` takes them."""

    def step(
        self, belief: Any, prior: Any, lifted: Any, seen: np.ndarray, controls: Points | None
    ) -> tuple[Any, Any]:
        """The belief after one more step, and what was predicted for it."""

    def forecast_from(self, belief: Any, prior: Any, count: int, controls: Points | None) -> Any:
        """Beliefs 1, 2, … steps ahead."""

    def log_evidence(self, predicted: Any, features: Any, values: Any, unseen: Any) -> np.ndarray:
        """How likely observations were, given what was predicted."""

    def finish(self, track: Track) -> Track:
        """The record as it is read."""

    def read(self, belief: Any) -> Embedding:
        """A belief as a user sees it."""


@dataclass(frozen=True, eq=False)
class StreamState:
    """Everything that a step changes, in one piece."""

    belief: Any = None
    steps: int = 0
    unseen: int = NEVER  # steps since the last observation
    log_evidence: float = 0.0
    #: The arguments of `log_evidence` of later steps: many at once cost hardly more than one.
    pending: tuple[tuple[Any, ...], ...] = ()


class Stream:
    """The belief of a filter while observations come in one by one.

    Made by a filter's `.start()`. A step that fails or is interrupted leaves the stream as it was.

    Attributes
    ----------
    belief : the embedding of the state's distribution now; None before the first step
    steps : how many steps it has taken
    log_evidence : the sum of log D(o) over the observations so far

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import AdditiveFilter
    >>> rng = np.random.default_rng(0)
    >>> angle = np.cumsum(rng.normal(0.3, 0.1, size=300))
    >>> states = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    >>> seen = states + 0.2 * rng.normal(size=states.shape)
    >>> live = AdditiveFilter(validation=None).fit(states[:290], seen[:290]).start()
    >>> for row in seen[290:]:
    ...     belief = live.step(row)
    >>> bool(np.linalg.norm(belief.mean() - states[-1]) < 0.4)
    True
    """

    def __init__(self, kind: str, model: LiveModel, prior: Any) -> None:
        self.kind = kind  # of the filter
        self._model, self._prior = model, prior
        self._state = StreamState()

    @property
    def steps(self) -> int:
        """How many steps were taken."""
        return self._state.steps

    @property
    def log_evidence(self) -> float:
        """The sum of log D(o) over the observations so far."""
        return self._state.log_evidence + self._logs(self._state.pending)

    def _logs(self, pending: tuple[tuple[Any, ...], ...]) -> float:
        """The sum of log D(o) over observations."""
        if not pending:
            return 0.0
        parts = (_join_rows(part) for part in zip(*pending, strict=True))
        return float(self._model.log_evidence(*parts).sum())

    @property
    def belief(self) -> Embedding | None:
        """The distribution of the state now."""
        belief = self._state.belief
        return None if belief is None else self._model.read(belief)

    def step(self, observation: Any = None, control: Any = None) -> Embedding:
        """Go one step on and take an observation in; None or NaN is an unobserved step.

        `control` is what acted since the step before, for filters fitted with controls.
        """
        model, now = self._model, self._state
        space = model.observations
        points: Points | None = None
        if not _is_unobserved(observation):
            points, _ = space.kernel_.rows(observation, space.example_, "observation")
            if count(points) != 1:
                raise ValueError(
                    f"observation: expected one, got {count(points)} rows. A stream takes them one "
                    "by one; .filter takes a sequence."
                )
        steps = steps_of(space, [(points, np.array([points is not None]))], True, model.lost)
        given = model.control_gate.read_one(control, now.belief is None)
        warn_of_far(steps.support, model.lost)
        belief, predicted = model.step(
            now.belief, self._prior, model.seen_at(steps, 0), steps.seen[:, 0], given
        )
        log, pending = now.log_evidence, now.pending
        if points is not None:
            values = None if steps.values is None else steps.values[:, 0]
            unseen = np.array([now.unseen])
            pending = (*pending, (predicted, steps.features[:, 0], values, unseen))
        if len(pending) >= AT_ONCE:
            log, pending = log + self._logs(pending), ()
        answer = model.read(belief)
        gap = 0 if steps.seen[0, 0] else now.unseen + 1
        # one assignment, once everything has worked: an interrupt leaves the state before or after
        self._state = StreamState(belief, now.steps + 1, gap, log, pending)
        return answer

    def predict(self, steps: int, controls: Any = None) -> Track:
        """The distribution of the state 1, 2, … steps from now."""
        ahead = checks.whole(steps, "steps", 1, "It is how many steps ahead to look.")
        given = self._model.control_gate.read_sequences(controls, (0,), ahead)
        found = self._model.forecast_from(self._state.belief, self._prior, ahead, given)
        return self._model.finish(found.track("predicted", (ahead,), True))

    def __repr__(self) -> str:
        return f"Stream({self.kind}, {self.steps} steps, log evidence {self.log_evidence:.4g})"


def _join_rows(parts: tuple[Any, ...]) -> Any:
    """What is known of several steps, a row each."""
    first = parts[0]
    if first is None:
        return None
    return concatenate(parts) if is_array(first) else first.join(parts)


def _is_unobserved(observation: Any) -> bool:
    """Whether one observation is missing altogether."""
    if observation is None:
        return True
    if isinstance(observation, tuple):
        return all(_is_unobserved(part) for part in observation)
    if isinstance(observation, str) or hasattr(observation, "adj"):
        return False
    numbers = checks.plain(observation, "observation")
    if not is_array(numbers) or numbers.dtype == object or not is_floating(numbers):
        return False
    return not observed_steps(numbers[None], "observation")[1].any()
