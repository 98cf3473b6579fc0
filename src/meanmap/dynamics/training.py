"""Training sequences, their coordinates, and their halves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import (
    Array,
    Points,
    assign,
    concatenate,
    device,
    float_like,
    namespace,
    take,
    to_numpy,
)
from meanmap.dynamics.motion import Sample
from meanmap.dynamics.sequences import Sequences, Steps
from meanmap.embeddings import numeric
from meanmap.kernels import Kernel
from meanmap.pairs import placed, reference_kernel
from meanmap.spaces import Space

LOST = 1e-3  # an observation whose support is below this says nothing: the step is a prediction


@dataclass(frozen=True)
class Training:
    """Sequences of states with their observations, and controls if there are any."""

    states: Sequences
    observations: Sequences
    controls: tuple[Sequences, Kernel] | None

    def part(self, rows: list[np.ndarray]) -> Training:
        """Some stretches of rows, each a sequence of its own."""
        index = np.concatenate(rows)
        lengths = tuple(len(row) for row in rows)

        def of(sequences: Sequences) -> Sequences:
            return Sequences(take(sequences.points, index), lengths, len(rows) == 1)

        controls = None
        if self.controls is not None:
            controls = of(self.controls[0]), self.controls[1]
        return Training(of(self.states), of(self.observations), controls)

    def halves(self) -> list[tuple[Training, Training]]:
        """Two ways to learn from one half and test on the other (Fukumizu et al. 2013, 5.3).

        Several sequences are dealt out in turn; a single one is cut in two.
        """
        ends = self.states.ends
        rows = [np.arange(end - n, end) for end, n in zip(ends, self.states.lengths, strict=True)]
        if len(rows) == 1:
            middle = len(rows[0]) // 2
            one, other = [rows[0][:middle]], [rows[0][middle:]]
        else:
            one, other = rows[::2], rows[1::2]
        parts = self.part(one), self.part(other)
        return [(parts[0], parts[1]), (parts[1], parts[0])]

    @property
    def size(self) -> int:
        """How many steps there are."""
        return sum(self.states.lengths)

    def placed(
        self, kernel_state: Kernel, kernel_observation: Kernel, bases: tuple[Any, Any]
    ) -> Placed:
        """The training sample in coordinates."""
        sides = []
        pairs = (kernel_state, self.states.points), (kernel_observation, self.observations.points)
        for (kernel, points), basis in zip(pairs, bases, strict=True):
            w = checks.weights(None, points, float_like(points))
            sides.append(placed(kernel.resolve(points, w), basis, points, w))
        (space, psi), (observed, phi) = sides
        return Placed(self, Sample(space, self.states.points, psi), observed, phi)

    def targets(self, kernel: Kernel) -> tuple[Array, Space | None]:
        """What a candidate's means are compared in: states as numbers, else a fixed kernel's ψ."""
        points = self.states.points
        try:
            values = numeric(points)
            return namespace(values).reshape(values, (values.shape[0], -1)), None
        except (TypeError, AttributeError):
            pass
        reference = reference_kernel(kernel, points).resolve(points)
        space = Space(reference)
        uniform = checks.weights(None, points, float_like(points))
        return space._place(reference, points, uniform), space


@dataclass(frozen=True)
class Placed:
    """A training sample in the coordinates of its two spaces."""

    training: Training
    sample: Sample
    observations: Space
    phi: Array  # (n, r_o)

    @cached_property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        return self.training.states.transitions()

    @property
    def controls(self) -> tuple[Points, Kernel] | None:
        given = self.training.controls
        return None if given is None else (given[0].points, given[1])


def steps_of(space: Space, parts: list[tuple[Points | None, np.ndarray]], single: bool) -> Steps:
    """Observations in coordinates, padded to one length; `parts` are what was seen, and when.

    An observation far from all training observations says nothing, and counts as not seen.
    """
    lengths = tuple(len(seen) for _, seen in parts)
    b, length = len(parts), max(lengths)
    like = float_like(space._sample)
    xp = namespace(like)
    seen = np.zeros((b, length), dtype=bool)
    for i, (_, there) in enumerate(parts):
        seen[i, : lengths[i]] = there
    support = np.full((b, length), np.nan)
    features = xp.zeros((b * length, space.rank_), dtype=like.dtype, device=device(like))
    points = [points for points, there in parts if points is not None and there.any()]
    if points:
        everything = concatenate(points) if len(points) > 1 else points[0]
        psi = space._transform(everything)
        features = assign(features, np.flatnonzero(seen.ravel()), psi)
        near: Any = 1.0
        if space._coordinates.projects:
            near = to_numpy(space._support(everything, psi))
        support[seen] = near
    seen &= ~(support < LOST)
    return Steps(xp.reshape(features, (b, length, -1)), seen, support, lengths, single)
