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
from meanmap.conditional.selection import RegressionSample, regularized_inverse
from meanmap.dynamics.evidence import (
    Decoder,
    Evidence,
    LinearEvidence,
    MixtureEvidence,
    vector_rows,
)
from meanmap.dynamics.sequences import Sequences, Steps, list_sequences, observed_steps
from meanmap.dynamics.transition import Sample, number_rows
from meanmap.kernels import Kernel
from meanmap.kernels.defaults import reference_kernel
from meanmap.linalg import Spectrum
from meanmap.spaces import Space
from meanmap.spaces.space import fit_space

LOST = 1e-3  # an observation whose support is below this says nothing: the step is a prediction


@dataclass(frozen=True)
class Training:
    """Sequences of states with their observations, and controls if there are any."""

    states: Sequences
    observations: Sequences
    controls: tuple[Sequences, Kernel] | None

    def part(self, rows: list[np.ndarray]) -> Training:
        """Some stretches of rows, each as a separate sequence."""
        index = np.concatenate(rows)
        lengths = tuple(len(row) for row in rows)

        def of(sequences: Sequences) -> Sequences:
            return Sequences(take(sequences.points, index), lengths, len(rows) == 1)

        controls = None
        if self.controls is not None:
            controls = of(self.controls[0]), self.controls[1]
        return Training(of(self.states), of(self.observations), controls)

    def stretches(self) -> list[np.ndarray]:
        """The rows of each sequence."""
        pairs = zip(self.states.ends, self.states.lengths, strict=True)
        return [np.arange(end - n, end) for end, n in pairs]

    def some(self, most: int) -> Training:
        """Evenly chosen sequences of so many steps in all, or the beginning of a single one."""
        if self.size <= most:
            return self
        rows = self.stretches()
        if len(rows) > 1:
            share = max(2, round(len(rows) * most / self.size))
            rows = [rows[i] for i in np.unique(np.linspace(0, len(rows) - 1, share).astype(int))]
        return self.part([row[: max(2, most // len(rows))] for row in rows])

    def folds(self, count: int, piece: int | None = None) -> list[tuple[Training, Training]]:
        """Ways to learn from a part and test on the rest; 2 are halves (Fukumizu et al. 2013, 5.3).

        Several sequences are dealt out in turn; a single one is cut, into pieces of so many steps
        if that is given.
        """
        rows = self.stretches()
        if piece is not None:
            rows = [p for row in rows for p in np.array_split(row, max(1, len(row) // piece))]
        if len(rows) < count:
            rows = [part for row in rows for part in np.array_split(row, count)]
            rows = [part for part in rows if len(part)]
        parts = [rows[i::count] for i in range(count)]
        chosen = []
        for i, test in enumerate(parts):
            rest = [row for j, part in enumerate(parts) if j != i for row in part]
            chosen.append((self.part(sorted(rest, key=lambda row: row[0])), self.part(test)))
        return chosen

    @property
    def size(self) -> int:
        """How many steps there are."""
        return sum(self.states.lengths)

    def embed(
        self, kernel_state: Kernel, kernel_observation: Kernel, bases: tuple[Any, Any]
    ) -> EmbeddedTraining:
        """The training sample in coordinates."""
        sides = []
        pairs = (kernel_state, self.states.points), (kernel_observation, self.observations.points)
        for (kernel, points), basis in zip(pairs, bases, strict=True):
            sides.append(fit_candidate(kernel, basis, points))
        (space, psi), (observed, phi) = sides
        return EmbeddedTraining(self, Sample(space, self.states.points, psi), observed, phi)

    def targets(self, kernel: Kernel) -> tuple[Array, Space | None]:
        """What a candidate's means are compared in: states as numbers, else a fixed kernel's ψ."""
        points = self.states.points
        parts = points if isinstance(points, tuple) else (points,)
        if all(part.ndim > 1 for part in parts):  # 1-D are labels and objects, numbers or not
            numbers = number_rows(points)
            if numbers is not None:
                return numbers, None
        reference = reference_kernel(kernel, points).resolve(points)
        space, psi = fit_space(reference, None, points)
        return psi, space


def fit_candidate(kernel: Kernel, basis: Any, points: Points) -> tuple[Space, Array]:
    """The space of a kernel that is tried, fitted to all points alike.

    The points were checked for the default kernel; a kernel that a user put into a grid may compare
    points of another kind.
    """
    if not kernel.on_vectors or isinstance(points, tuple) or points.ndim != 2:
        kernel.check(points, "points")
    w = checks.weights(None, points, float_like(points))
    return fit_space(kernel.resolve(points, w), basis, points, w)


@dataclass(frozen=True)
class EmbeddedTraining:
    """A training sample in the coordinates of its two spaces."""

    training: Training
    sample: Sample
    observations: Space
    phi: Array  # (n, r_o)

    @cached_property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        return self.training.states.transitions()

    @cached_property
    def steps(self) -> Array:
        """Σ v vᵀ over all steps, of v = (ψ(s), ψ(o))."""
        v = namespace(self.phi).concat([self.sample.psi, self.phi], axis=1)
        return v.T @ v

    @cached_property
    def reverse(self) -> Spectrum:
        """C_OO factorised, for every δ."""
        phi = self.phi
        return Spectrum.of(phi.T @ phi / phi.shape[0])

    def reverse_inverse(self, delta: float) -> Array:
        """`(C_OO + δI)⁻¹`, so that `C_SO (C_OO + δI)⁻¹ ψ(o)` is the plain conditional P(s|o)."""
        if delta not in self._inverses:  # asked for again with every ε that is tried
            self._inverses[delta] = self.reverse.ridge(delta)
        return self._inverses[delta]

    @cached_property
    def _inverses(self) -> dict[float, Array]:
        return {}

    def state_inverse(self, regularization: float | str) -> tuple[Array, float]:
        """`(C_SS + εI)⁻¹` and ε, chosen by leave-one-out for P(o|s) where it is "auto"."""
        psi, points = self.sample.psi, self.training.observations.points
        w = checks.weights(None, points, psi)
        norms = self.observations.kernel_.squared_norms(points)
        nested = self.sample.space.map_.nested
        sample = RegressionSample(psi, self.phi, w, norms)
        found = regularized_inverse(sample, regularization, False, nested)
        return found.inverse, found.regularization

    def evidence(self, epsilon: float, delta: float) -> Evidence:
        """How likely an observation was, given a predicted belief."""
        n, psi = self.phi.shape[0], self.sample.psi
        H = self.state_inverse(epsilon)[0]
        if self.observations.kernel_.on_vectors:
            decoder = Decoder.of(self.training.observations.points, self.phi)
            return MixtureEvidence.of(self.steps / n, H, psi, decoder)
        return LinearEvidence(self.reverse_inverse(delta) @ (self.phi.T @ psi / n) @ H)

    @property
    def controls(self) -> tuple[Points, Kernel] | None:
        given = self.training.controls
        return None if given is None else (given[0].points, given[1])


def steps_of(
    space: Space,
    parts: list[tuple[Points | None, np.ndarray]],
    single: bool,
    lost: float = LOST,
) -> Steps:
    """Observations in coordinates, padded to one length; `parts` are what was seen, and when.

    An observation far from all training observations, of a support below `lost`, says nothing, and
    counts as not seen.
    """
    lengths = tuple(len(seen) for _, seen in parts)
    b, length = len(parts), max(lengths)
    like = float_like(space.example_)
    xp = namespace(like)
    seen = np.zeros((b, length), dtype=bool)
    for i, (_, there) in enumerate(parts):
        seen[i, : lengths[i]] = there
    support = np.full((b, length), np.nan)
    features = xp.zeros((b * length, space.rank_), dtype=like.dtype, device=device(like))
    points = [points for points, there in parts if points is not None and there.any()]
    values = None
    if points:
        everything = concatenate(points) if len(points) > 1 else points[0]
        psi = space.coordinates(everything)
        features = assign(features, np.flatnonzero(seen.ravel()), psi)
        near: Any = 1.0
        if space.map_.projects:
            near = to_numpy(space.support_of(everything, psi))
        support[seen] = near
        if space.kernel_.on_vectors:
            rows = vector_rows(everything)
            values = np.zeros((b, length, rows.shape[1]))
            values[seen] = rows
    seen &= ~(support < lost)
    return Steps(xp.reshape(features, (b, length, -1)), seen, support, lengths, single, values)


def read_steps(space: Space, observations: Any, lost: float = LOST) -> Steps:
    """What a user passed to be filtered, through the gate and in coordinates."""
    kernel, like = space.kernel_, space.example_
    raw, single = list_sequences(observations, kernel, "observations", like)
    if not raw:
        raise ValueError("observations: the list holds no sequence; at least one is needed.")
    parts: list[tuple[Points | None, np.ndarray]] = []
    for i, part in enumerate(raw):
        name = "observations" if single else f"observations[{i}]"
        some, seen = observed_steps(part, name)
        if len(seen) == 0:
            raise ValueError(f"{name} has no steps; at least one is needed.")
        points = kernel.check(some, name, like, "the training data") if seen.any() else None
        parts.append((points, seen))
    if not any(seen.any() for _, seen in parts):
        raise ValueError(
            "observations: every step is missing, so there is nothing to filter. From a prior "
            "alone a stream predicts: start(prior).predict(steps)."
        )
    return steps_of(space, parts, single, lost)


def comparison_values(train: Training, test: Training, kernel: Kernel) -> tuple[Array, Array]:
    """Functions of the training states, (n, q), and their values at the test states."""
    values, space = train.targets(kernel)
    there = test.states.points
    return values, test.targets(kernel)[0] if space is None else space.coordinates(there)
