"""A filter whose beliefs are means and covariances: see `meanmap.dynamics.system`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from meanmap.arrays import Array, Points, asarray, each_part, one_blas_thread, take, to_numpy
from meanmap.conditional.operator import as_embedding
from meanmap.conditional.predictive import Predictive
from meanmap.dynamics.belief_shapes import NormalShape, known_shape
from meanmap.dynamics.evidence import LEAST, NoiseScale, distances
from meanmap.dynamics.model import Model
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
from meanmap.embeddings import Embedding, embedding_of
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
        assert steps.values is not None
        return steps.values[:, t]

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
        belief, history = None, MomentHistory(self, [], keep)
        with one_blas_thread():
            for t in range(steps.seen.shape[1]):
                now = None if controls is None or t == 0 else take_controls_at(controls, t - 1)
                belief, expected = self.step(
                    belief, prior, self.seen_at(steps, t), steps.seen[:, t], now
                )
                history.beliefs.append(belief)
                history.expected.append(expected)
        return history

    def forecast(self, belief: Any, count: int, controls: Points | None, first: Any = None) -> Any:
        history = MomentHistory(self, [], True)
        with one_blas_thread():
            for k in range(count):
                now = None if controls is None else take_controls_at(controls, k)
                if k > 0 or first is None:
                    belief = self.system.predict(belief, host_controls(now))[0]
                history.beliefs.append(belief)
        return history

    def forecast_from(self, belief: Any, prior: Any, count: int, controls: Points | None) -> Any:
        first = None
        if belief is None:
            belief = first = self.system.marginal if prior is None else prior
        return self.forecast(belief, count, controls, first)

    def forecast_every(self, history: Any, controls: list[Points | None]) -> Any:
        b, length = len(history.beliefs[0].mean), len(history.beliefs)
        belief = history.flat()
        with one_blas_thread():
            for now in controls:
                belief = self.system.predict(belief, host_controls(now))[0]
        means = belief.mean.reshape(b, length, -1)
        spreads = belief.covariance.reshape(b, length, *belief.covariance.shape[1:])
        found = [MomentBelief(means[:, t], spreads[:, t]) for t in range(length)]
        return MomentHistory(self, found, True)

    def smooth(
        self, history: Any, lengths: tuple[int, ...], controls: Points | None, transfer: str | None
    ) -> Any:
        """Rauch, Tung and Striebel's recursion, back through filtered beliefs."""
        last, found = np.array(lengths) - 1, []
        later: MomentBelief | None = None
        with one_blas_thread():
            for t in range(len(history.beliefs) - 1, -1, -1):
                belief = history.beliefs[t]
                if later is None:
                    later = belief
                else:
                    now = None if controls is None else take_controls_at(controls, t)
                    predicted, cross = self.system.predict(belief, host_controls(now))
                    gain = gain_of(predicted.covariance, cross)
                    off = later.mean - predicted.mean
                    spread = later.covariance - predicted.covariance
                    covariance = belief.covariance + gain @ spread @ gain.swapaxes(1, 2)
                    back = MomentBelief(
                        belief.mean + np.einsum("bde,be->bd", gain, off),
                        self.system.sound(symmetric(covariance)),
                    )
                    later = belief.where(last <= t, back)
                found.append(later)
        return MomentHistory(self, found[::-1], True)

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
        return Predictive.of(found, partial(known_shape, shape))

    def log_evidence(self, expected: Any, features: Any, values: Any, unseen: Any) -> np.ndarray:
        return self._evidence.log(expected, values)

    @cached_property
    def _evidence(self) -> MomentEvidence:
        return MomentEvidence.of(self.system)


def host_controls(controls: Points | None) -> np.ndarray | None:
    return None if controls is None else columns_of(controls)


def take_controls_at(controls: Points, t: int) -> Points:
    """The controls (b, …) of one step."""
    return each_part(controls, lambda part: part[:, t])


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
        middle, unit = states.mean(axis=0), states.std(axis=0)
        unit = np.where(unit > 0, unit, 1.0)
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

    def log(self, expected: MomentBelief, values: np.ndarray) -> np.ndarray:
        W, n = self.scale.whitening, len(self.means)
        mine = normal_log(values, expected) - np.linalg.slogdet(W)[1]
        o = values @ W
        likely = -distances(o, self.means) / 2
        top = likely.max(axis=1)
        whole = np.log(np.exp(likely - top[:, None]).mean(axis=1)) + top
        centre = self.means.mean(axis=0)
        return np.logaddexp(mine, whole + np.log(LEAST)) - self.scale.with_tail(
            whole, o - centre, n
        )


class MomentHistory:
    """Beliefs as they are collected, a step at a time."""

    def __init__(self, model: MomentModel, beliefs: list[MomentBelief], keep: bool) -> None:
        self.model, self.beliefs, self.keep = model, beliefs, keep
        self.expected: list[MomentBelief] = []

    def last(self, lengths: tuple[int, ...]) -> MomentBelief:
        """The last belief of every sequence."""
        rows = list(enumerate(np.array(lengths) - 1))
        return MomentBelief(
            np.stack([self.beliefs[t].mean[i] for i, t in rows]),
            np.stack([self.beliefs[t].covariance[i] for i, t in rows]),
        )

    def flat(self) -> MomentBelief:
        """All beliefs, (b·steps, …)."""
        mean = np.stack([belief.mean for belief in self.beliefs], axis=1)
        spread = np.stack([belief.covariance for belief in self.beliefs], axis=1)
        d = mean.shape[-1]
        return MomentBelief(mean.reshape(-1, d), spread.reshape(-1, d, d))

    @property
    def moments(self) -> np.ndarray:
        """Means and variances, (b, steps, 2d)."""
        flat, b = self.flat(), len(self.beliefs[0].mean)
        variances = np.diagonal(flat.covariance, axis1=1, axis2=2)
        return np.hstack([flat.mean, variances]).reshape(b, len(self.beliefs), -1)

    def track_of(self, kind: str, steps: Steps, evidence: Any) -> Track:
        """The record of filtered observations, with how likely they were."""
        found = self.track(kind, steps.lengths, steps.single)
        pending = PendingMoments(self.model, self.expected, steps)
        return replace(found, log_evidence_=pending, support_=steps.support)

    def track(self, kind: str, lengths: tuple[int, ...], single: bool) -> Track:
        """The record that a user gets."""
        model, flat = self.model, self.flat()
        b, length = len(self.beliefs[0].mean), len(self.beliefs)
        weights = None
        if self.keep:
            coordinates, weights = model.write(flat)
            weights = weights.reshape(b, length, -1)
        else:
            coordinates = model.coordinates_of(flat)
        like = model.sample.psi
        moments, shape = self.moments, model.shape_of(flat)
        d = model.system.size
        return Track(
            kind,
            model.sample.space,
            model.sample.atoms,
            coordinates.reshape(b, length, -1),
            weights,
            asarray(moments[..., :d], like),
            None,
            None,
            None,
            lengths,
            single,
            spread=asarray((shape.scale**2).reshape(b, length, d), like),
            shape=shape,
        )


@dataclass(frozen=True, eq=False)
class PendingMoments:
    """log D of the steps of sequences, computed on first use."""

    model: MomentModel
    expected: list[MomentBelief]
    steps: Steps

    @cached_property
    def logs(self) -> np.ndarray:
        """(b, steps); 0 where nothing was observed."""
        found = np.zeros(self.steps.seen.shape)
        there = ~np.isnan(self.steps.support)
        assert self.steps.values is not None
        for t, expected in enumerate(self.expected):
            rows = there[:, t]
            if rows.any():
                part = MomentBelief(expected.mean[rows], expected.covariance[rows])
                values = self.steps.values[rows, t]
                found[rows, t] = self.model.log_evidence(part, None, values, None)
        return found

    def __getitem__(self, index: Any) -> np.ndarray:
        return self.logs[index]
