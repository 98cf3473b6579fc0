"""A filter whose beliefs are means and covariances: see `meanmap.dynamics.system`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from meanmap.arrays import Array, Points, asarray, one_blas_thread, take, to_numpy
from meanmap.conditional.operator import as_embedding
from meanmap.conditional.predictive import Predictive
from meanmap.conditional.ranges import or_one
from meanmap.dynamics.belief_shapes import NormalShape, known_shape
from meanmap.dynamics.evidence import LEAST, NoiseScale, log_mean_density
from meanmap.dynamics.history import add_evidence
from meanmap.dynamics.model import Model, take_step
from meanmap.dynamics.sequences import ControlGate, Steps
from meanmap.dynamics.system import (
    LearnedSystem,
    MomentBelief,
    SigmaPoints,
    columns_of,
    gain_of,
    normal_log,
    singular_parts,
    symmetric,
)
from meanmap.dynamics.track import Track
from meanmap.dynamics.transition import SHARP, Sample
from meanmap.embeddings import Embedding
from meanmap.embeddings.single import embedding_of
from meanmap.rules import PriorOnSample


@dataclass(frozen=True)
class MomentModel(Model):
    """Predict and condition by the moments of beliefs.

    On the training states a belief is written with weights that have its mean and its deviations.
    """

    system: LearnedSystem
    plain: Model  # by weights, of which operators and spaces are asked for

    @property
    def regularizations(self) -> tuple[float, float]:
        return self.plain.regularizations

    @property
    def control_gate(self) -> ControlGate:
        return self.plain.control_gate

    # --- steps --------------------------------------------------------------------------------

    def seen_at(self, steps: Steps, t: int) -> Any:
        # where nothing was observed, all that counts is the number of sequences
        return steps.features[:, t] if steps.values is None else steps.values[:, t]

    def step(
        self, belief: Any, prior: Any, lifted: Any, seen: np.ndarray, controls: Points | None
    ) -> tuple[Any, Any]:
        """The beliefs after one more step, and what was expected to be seen."""
        if belief is None:
            predicted = (self.system.marginal if prior is None else prior).repeat(len(lifted))
        else:
            predicted = self.system.predict(belief, host_controls(controls))[0]
        if not seen.any():
            expected = self.system.points.carry(self.system.observation, predicted)[0]
            return predicted, expected
        updated, expected = self.system.condition(predicted, lifted)
        return (updated if seen.all() else updated.where(seen, predicted)), expected

    def run(
        self, steps: Steps, controls: Points | None, prior: Any, keep: bool, values: Any = None
    ) -> Any:
        """Go through sequences step by step, all of them at once."""
        belief, history = None, MomentHistory(self, keep)
        with one_blas_thread():
            for t in range(steps.seen.shape[1]):
                seen, now = self.seen_at(steps, t), take_step(controls, t - 1)
                belief, expected = self.step(belief, prior, seen, steps.seen[:, t], now)
                history.add(belief, expected)
        return history

    def push(self, belief: Any, controls: Points | None) -> Any:
        return self.system.predict(belief, host_controls(controls))[0]

    def new_history(self, length: int) -> Any:
        return MomentHistory(self, True)

    def smooth_step(
        self, belief: Any, later: Any, controls: Points | None, transfer: str | None
    ) -> Any:
        """Rauch, Tung and Striebel's recursion."""
        predicted, cross = self.system.predict(belief, host_controls(controls))
        gain = gain_of(predicted.covariance, cross)
        off, spread = later.mean - predicted.mean, later.covariance - predicted.covariance
        covariance = belief.covariance + gain @ spread @ gain.swapaxes(1, 2)
        return MomentBelief(
            belief.mean + np.einsum("bde,be->bd", gain, off),
            self.system.sound(symmetric(covariance)),
        )

    # --- beliefs as others see them -----------------------------------------------------------

    def prior_belief(self, prior: Any) -> MomentBelief:
        """The moments of a prior that was given."""
        m = as_embedding(prior, self.sample.space).normalized()
        mean = np.asarray(to_numpy(m.mean()), dtype=np.float64).reshape(1, -1)
        points, p = next(iter(m.beliefs()))
        away = columns_of(points) - mean
        covariance = (np.asarray(to_numpy(p))[:, None] * away).T @ away
        return MomentBelief(mean, self.system.sound(covariance[None]))

    @property
    def whole(self) -> MomentBelief:
        return self.system.marginal

    @cached_property
    def _writer(self) -> Writer:
        return Writer.of(self.sample, self.system.states)

    def write(self, belief: MomentBelief) -> tuple[Array, Array]:
        """Coordinates and weights of beliefs on the training states."""
        return self._writer.write(belief, self.system.points)

    def coordinates_of(self, belief: MomentBelief) -> Array:
        """Coordinates of beliefs, without their weights."""
        return self._writer.embed(belief, self.system.points)

    def shape_of(self, belief: MomentBelief) -> NormalShape:
        """How beliefs answer: the spread is that of errors in validation."""
        return NormalShape(belief.mean, belief.covariance * self.stretch**2)

    def finish(self, track: Track) -> Track:
        return track

    def read(self, belief: Any) -> Embedding:
        coordinates, weights = self.write(belief)
        sample, shape = self.sample, self.shape_of(belief)
        found = embedding_of(sample.space, sample.kernel, sample.atoms, weights[0], coordinates[0])
        return Predictive.of(found, partial(known_shape, shape), belief.mean[0])


def host_controls(controls: Points | None) -> np.ndarray | None:
    """Controls as rows of numbers."""
    return None if controls is None else columns_of(controls)


@dataclass(frozen=True, eq=False)
class Writer:
    """Beliefs written with weights on the training states: their embedding in the states' space.

    `w ∘ Ψ (C + εI)⁻¹ m` is nearest to it; what that misses of the mass, the mean and the squares is
    added by the smallest weights that have it.
    """

    sample: Sample
    ratio: np.ndarray  # Ψ (C + εI)⁻¹/n, (n, r)
    psi: np.ndarray  # (n, r)
    middle: np.ndarray  # (d,)
    unit: np.ndarray  # (d,)
    columns: np.ndarray  # 1, states and squares, (n, 2d + 1)
    repair: np.ndarray  # (2d + 1, n)

    @classmethod
    def of(cls, sample: Sample, states: np.ndarray) -> Writer:
        psi = np.asarray(to_numpy(sample.psi), dtype=np.float64)
        n, r = psi.shape
        trace = float((psi**2).sum()) / n
        prior = PriorOnSample(np.eye(r), psi, np.full(n, 1 / n), SHARP * trace)
        middle, unit = states.mean(axis=0), or_one(states.std(axis=0))
        z = (states - middle) / unit
        columns = np.hstack([np.ones((n, 1)), z, z * z])
        U, s, Vt = singular_parts(columns)
        return cls(sample, prior.ratio.T / n, psi, middle, unit, columns, (Vt.T / s) @ U.T)

    def embed(self, belief: MomentBelief, points: SigmaPoints) -> Array:
        cloud = points.around(belief)
        b, p, d = cloud.shape
        like = take(self.sample.atoms, slice(0, 1))
        rows = asarray(cloud.reshape(b * p, d), like)
        psi = np.asarray(to_numpy(self.sample.space.coordinates(rows)), dtype=np.float64)
        m = np.einsum("p,bpr->br", points.weights, psi.reshape(b, p, -1))
        return asarray(m, self.sample.psi)

    def write(self, belief: MomentBelief, points: SigmaPoints) -> tuple[Array, Array]:
        m = np.asarray(to_numpy(self.embed(belief, points)), dtype=np.float64)
        weights = m @ self.ratio.T
        mean = (belief.mean - self.middle) / self.unit
        variance = np.diagonal(belief.covariance, axis1=1, axis2=2) / self.unit**2
        wanted = np.hstack([np.ones((len(mean), 1)), mean, mean**2 + variance])
        weights = weights + (wanted - weights @ self.columns) @ self.repair
        like = self.sample.psi
        return asarray(weights @ self.psi, like), asarray(weights, like)


@dataclass(frozen=True, eq=False)
class MomentEvidence:
    """log D of observations: their density given the past, over that of all training states."""

    means: np.ndarray  # E[o|s] at the training states, whitened
    scale: NoiseScale

    @classmethod
    def of(cls, system: LearnedSystem) -> MomentEvidence:
        means, noise = system.observation.at(system.states)[0], system.observation.noise
        away = means - means.mean(axis=0)
        scale = NoiseScale.of(noise, away.T @ away / len(away) + noise, len(means))
        return cls(means @ scale.whitening, scale)

    def log(self, predicted: Any, features: Any, values: Any, unseen: Any) -> np.ndarray:
        W, n = self.scale.whitening, len(self.means)
        mine = normal_log(values, predicted) - np.linalg.slogdet(W)[1]
        o = values @ W
        whole = log_mean_density(o, self.means)
        tail = self.scale.with_tail(whole, o - self.means.mean(axis=0), n)
        return np.asarray(np.logaddexp(mine, whole + np.log(LEAST)) - tail)


class MomentHistory:
    """Beliefs as they are collected, a step at a time."""

    def __init__(self, model: MomentModel, keep: bool) -> None:
        self.model, self.keep = model, keep
        self._beliefs: list[MomentBelief] = []
        self._expected: list[MomentBelief] = []

    def add(self, belief: MomentBelief, expected: MomentBelief | None) -> None:
        self._beliefs.append(belief)
        if expected is not None:
            self._expected.append(expected)

    def flush(self) -> None:
        """Nothing is left to do: moments are what was collected."""

    @property
    def length(self) -> int:
        return len(self._beliefs)

    @property
    def size(self) -> tuple[int, int]:
        """How many sequences there are, and steps."""
        return len(self._beliefs[0].mean), self.length

    def belief(self, t: int) -> MomentBelief:
        """The beliefs of step t."""
        return self._beliefs[t]

    def last(self, lengths: tuple[int, ...]) -> MomentBelief:
        """The last belief of every sequence."""
        return stack_beliefs(self._beliefs)[np.arange(len(lengths)), np.array(lengths) - 1]

    def flat(self) -> MomentBelief:
        """All beliefs, (b·steps, …)."""
        stacked = stack_beliefs(self._beliefs)
        d = stacked.mean.shape[-1]
        return MomentBelief(stacked.mean.reshape(-1, d), stacked.covariance.reshape(-1, d, d))

    def regroup(self, b: int, length: int) -> None:
        """Beliefs of one step, (b·steps, …), as those of b sequences."""
        rows = np.arange(b * length).reshape(b, length)
        self._beliefs = [self._beliefs[0][rows[:, t]] for t in range(length)]

    def reverse(self) -> None:
        """Turn time round."""
        self._beliefs.reverse()

    @property
    def moments(self) -> np.ndarray:
        """Means and variances, (b, steps, 2d)."""
        flat = self.flat()
        variances = np.diagonal(flat.covariance, axis1=1, axis2=2)
        return np.hstack([flat.mean, variances]).reshape(*self.size, -1)

    def track_of(self, kind: str, steps: Steps, evidence: Any) -> Track:
        """The record of filtered observations, with how likely they were."""
        found = self.track(kind, steps.lengths, steps.single)
        return add_evidence(found, evidence, stack_beliefs(self._expected), steps)

    def track(self, kind: str, lengths: tuple[int, ...], single: bool) -> Track:
        """The record that a user gets."""
        model, flat, size = self.model, self.flat(), self.size
        weights = None
        if self.keep:
            coordinates, weights = model.write(flat)
            weights = weights.reshape(*size, -1)
        else:
            coordinates = model.coordinates_of(flat)
        sample, shape = model.sample, model.shape_of(flat)
        mean, spread = (
            asarray(part.reshape(*size, -1), sample.psi) for part in (flat.mean, shape.scale**2)
        )
        return Track(
            kind,
            sample.space,
            sample.atoms,
            coordinates.reshape(*size, -1),
            weights,
            mean,
            spread,
            lengths,
            single,
            shape=shape,
        )


def stack_beliefs(beliefs: list[MomentBelief]) -> MomentBelief:
    """Beliefs of several steps, (b, steps, …)."""
    parts = [(belief.mean, belief.covariance) for belief in beliefs]
    return MomentBelief(*(np.stack(part, axis=1) for part in zip(*parts, strict=True)))
