"""Beliefs by their means and covariances, carried through what was learned of a system.

The transition P(s'|s) and the observation P(o|s) are learned as `ConditionalEmbedding` learns: a
scale for each column of the state and λ by leave-one-out, and the noise from what the means leave
of the rows, each by a mean that has not seen its row. Both depend on the state alone, so that rows
next to each other in time tell nothing of each other's noise. A belief's mean and covariance pass
through the learned means at a few points around it, as in the unscented Kalman filter (Julier and
Uhlmann 1997; with learned functions Ko and Fox 2009). On a linear Gaussian system that is the
Kalman filter with estimated matrices, and smoothing that of Rauch, Tung and Striebel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from meanmap.arrays import Points, one_blas_thread, to_numpy
from meanmap.conditional import ConditionalEmbedding
from meanmap.conditional.operator import ConditionalOperator
from meanmap.conditional.ranges import or_one
from meanmap.dynamics.belief_shapes import covariance_roots
from meanmap.dynamics.training import Training
from meanmap.kernels import Linear

SPREAD = 3.0  # points lie √3 deviations out: their fourth moment is then that of a normal
SHARPEST = 1e-9  # of the variance of all states, that a belief's is at least
LOST_TRACK = 10.0  # log density ratio by which observations tell that a belief is wrong
SIMILAR = 0.02  # of squared errors, that a function with a trend may lose to one without
DOUBT = 2.0  # standard errors, that it may lose besides
WIDE = 2.0  # times the variance of all training states: more than a belief can have
MANY = 64  # columns of observations, above which a covariance is not learned


@dataclass(frozen=True, eq=False)
class LearnedFunction:
    """E[y|x], and the covariance of y about it, which grows where rows are few.

    A linear function may be taken off y before the rest is learned: outside the rows the mean then
    goes on along it, and returns to the mean of all rows otherwise.
    """

    operator: ConditionalOperator
    trend: np.ndarray | None  # (1 + c, k), of 1 and x
    units: tuple[np.ndarray, np.ndarray]  # of x and y, in which everything was learned
    noise: np.ndarray  # (k, k), of left-out rows
    usual: float  # what the covariance is multiplied with at the rows, before it is scaled
    middles: tuple[Any, Any] = (0.0, 0.0)  # of x and y, from which they are measured

    @classmethod
    def learn(
        cls, x: np.ndarray, y: np.ndarray, like: LearnedFunction | None = None
    ) -> LearnedFunction:
        """From pairs; with the kernel of another function, and the λ that fewer rows ask for.

        There is a trend unless the errors of left-out rows speak against it.
        """
        if like is not None:
            return cls._fit(x, y, like.trend is not None, like.operator)[0]
        (straight, left), (plain, own) = (cls._fit(x, y, trend) for trend in (True, False))
        # the logarithm of the ratio of squared errors, summed over columns, and its standard error
        sizes = left.mean(axis=0), own.mean(axis=0)
        worse = float(np.log(sizes[0] / sizes[1]).sum())
        chance = (left / sizes[0] - own / sizes[1]).sum(axis=1).std() / len(x) ** 0.5
        return straight if worse <= SIMILAR * y.shape[1] + DOUBT * chance else plain

    @classmethod
    def _fit(
        cls, x: np.ndarray, y: np.ndarray, with_trend: bool, like: ConditionalOperator | None = None
    ) -> tuple[LearnedFunction, np.ndarray]:
        """The function, and the squared errors (n, k) of left-out rows."""
        units, middles = zip(
            *((or_one(v.std(axis=0)), v.mean(axis=0)) for v in (x, y)), strict=True
        )
        x, y = ((v - m) / u for v, m, u in zip((x, y), middles, units, strict=True))
        trend, rest, own = None, y, np.zeros(len(x))
        if with_trend:
            trend, own = least_squares(add_constant(x), y)
            rest = y - add_constant(x) @ trend
        model = ConditionalEmbedding(kernel_y=Linear())
        if like is not None:
            assert like.regularization is not None
            lam = like.regularization * like.scale.shape[0] / len(x)
            model = ConditionalEmbedding(like.source.kernel_, Linear(), lam)
        operator = model.fit(x, rest).operator_
        errors = (rest - operator.leave_one_out(rest)) / (1 - np.minimum(own, 0.9))[:, None]
        v = missing_knowledge(operator, x, operator.rows)
        left_out = v / np.maximum(1 - v, 1e-3)  # each row by the others
        usual = float(np.mean(1 + left_out))
        noise = errors.T @ errors / len(x) + SHARPEST * np.eye(y.shape[1])
        found = cls(operator, trend, units, noise * np.outer(units[1], units[1]), usual, middles)
        return found, errors**2 + SHARPEST

    def at(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means (m, k), and what the noise's covariance is multiplied with (m,)."""
        x = (x - self.middles[0]) / self.units[0]
        features = self.operator.quiet_features(x)
        mean = np.asarray(self.operator.mean_of(features))
        if self.trend is not None:
            mean = mean + add_constant(x) @ self.trend
        growth = (1 + missing_knowledge(self.operator, x, features)) / self.usual
        return mean * self.units[1] + self.middles[1], growth


def least_squares(design: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients (c, k) of least norm, and the leverage (n,) of each row."""
    U, s, Vt = singular_parts(design)
    return Vt.T @ ((U.T @ y) / s[:, None]), (U * U).sum(axis=1)


def singular_parts(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """U, s and Vᵀ of columns, without what is rounding."""
    U, s, Vt = np.linalg.svd(columns, full_matrices=False)
    kept = s > len(columns) * np.finfo(float).eps * s[0]
    return U[:, kept], s[kept], Vt[kept]


def add_constant(x: np.ndarray) -> np.ndarray:
    """1 beside the columns."""
    return np.hstack([np.ones((len(x), 1)), x])


def missing_knowledge(
    operator: ConditionalOperator, x: np.ndarray, features: np.ndarray
) -> np.ndarray:
    """The variance of the mean at x over that of the noise, as of a Gaussian process."""
    psi = features[:, : operator.source.rank_]
    missed = operator.source.kernel_.squared_norms(x) - (psi * psi).sum(axis=1)
    assert operator.regularization is not None
    least = max(operator.regularization, np.finfo(float).tiny)
    found = operator.solver.forms(features) + np.maximum(missed, 0.0) / least
    return np.asarray(found / operator.scale.shape[0])


@dataclass(frozen=True, eq=False)
class MomentBelief:
    """Beliefs of b sequences."""

    mean: np.ndarray  # (b, d)
    covariance: np.ndarray  # (b, d, d)
    deficit: Any = 0.0  # (b,), by how much no memory would have foretold better of late, ≥ 0

    def __getitem__(self, rows: Any) -> MomentBelief:
        """Some of the beliefs, without what they remember."""
        return MomentBelief(self.mean[rows], self.covariance[rows])

    @staticmethod
    def join(parts: Sequence[MomentBelief]) -> MomentBelief:
        """Beliefs one after the other, without what they remember."""
        columns = zip(*((part.mean, part.covariance) for part in parts), strict=True)
        return MomentBelief(*map(np.concatenate, columns))

    def where(self, mask: np.ndarray, other: MomentBelief) -> MomentBelief:
        """These beliefs where the mask holds, the other ones elsewhere."""
        return MomentBelief(
            np.where(mask[:, None], self.mean, other.mean),
            np.where(mask[:, None, None], self.covariance, other.covariance),
            np.where(mask, self.deficit, other.deficit),
        )

    def repeat(self, times: int) -> MomentBelief:
        """One belief for each of several sequences."""
        shape = self.mean.shape[1:]
        return MomentBelief(
            np.broadcast_to(self.mean, (times, *shape)),
            np.broadcast_to(self.covariance, (times, *shape, *shape)),
        )


@dataclass(frozen=True)
class SigmaPoints:
    """Points with weights that have the mean and the covariance of a belief."""

    size: int  # d

    @cached_property
    def scale(self) -> float:
        return max(SPREAD, float(self.size))  # so that no weight is negative

    @cached_property
    def weights(self) -> np.ndarray:
        """Of the mean itself, and of the points around it."""
        w = np.full(2 * self.size + 1, 1 / (2 * self.scale))
        w[0] = 1 - self.size / self.scale
        return w

    @cached_property
    def second(self) -> np.ndarray:
        """The weights of squares; the first is larger by 2, which is right for a normal."""
        w = self.weights.copy()
        w[0] += 2.0
        return w

    def around(self, belief: MomentBelief) -> np.ndarray:
        """(b, 2d + 1, d)."""
        root = np.sqrt(self.scale) * covariance_roots(belief.covariance)
        out, x = root.swapaxes(1, 2), belief.mean[:, None]
        return np.concatenate([x, x + out, x - out], axis=1)

    def carry(
        self, function: LearnedFunction, belief: MomentBelief, beside: np.ndarray | None = None
    ) -> tuple[MomentBelief, np.ndarray]:
        """The law of y where x is distributed as the belief, and the covariance of x and y.

        `beside` (b, c) are more columns of x, which are known.
        """
        points = self.around(belief)
        b, p, d = points.shape
        x = points.reshape(b * p, d)
        if beside is not None:
            x = np.hstack([x, np.repeat(beside, p, axis=0)])
        found, growth = function.at(x)
        y = found.reshape(b, p, -1)
        mean = np.einsum("p,bpk->bk", self.weights, y)
        away, off = points - belief.mean[:, None], y - mean[:, None]
        weighted = self.second[:, None] * off
        noise = (growth.reshape(b, p) @ self.weights)[:, None, None] * function.noise
        covariance = off.swapaxes(1, 2) @ weighted + noise
        return MomentBelief(mean, covariance), away.swapaxes(1, 2) @ weighted


def normal_log(values: np.ndarray, law: MomentBelief) -> np.ndarray:
    """The log density of values (b, k), but for a constant."""
    off = values - law.mean
    S = np.broadcast_to(law.covariance, (len(off), *law.covariance.shape[1:]))
    squares = (off * np.linalg.solve(S, off[..., None])[..., 0]).sum(axis=1)
    return np.asarray(-0.5 * (squares + np.linalg.slogdet(S)[1]))


def gain_of(spread: np.ndarray, cross: np.ndarray) -> np.ndarray:
    """`cross spread⁻¹`, of symmetric positive matrices (b, k, k)."""
    return np.linalg.solve(spread, cross.swapaxes(1, 2)).swapaxes(1, 2)


def symmetric(matrices: np.ndarray) -> np.ndarray:
    """Rounding makes a covariance unsymmetric."""
    return (matrices + matrices.swapaxes(1, 2)) / 2


@dataclass(frozen=True, eq=False)
class LearnedSystem:
    """The transition and the observation of a system, learned from its states."""

    transition: LearnedFunction
    observation: LearnedFunction
    states: np.ndarray  # (n, d), of the training

    @classmethod
    def learn(cls, training: Training, like: LearnedSystem | None = None) -> LearnedSystem:
        """From recorded sequences; kernels as those of another system."""
        s, o = columns_of(training.states.points), columns_of(training.observations.points)
        first, second = training.states.transitions()
        before = s[first]
        if training.controls is not None:
            before = np.hstack([before, columns_of(training.controls[0].points)[first]])
        known = (None, None) if like is None else (like.transition, like.observation)
        with one_blas_thread():
            transition = LearnedFunction.learn(before, s[second], known[0])
            return cls(transition, LearnedFunction.learn(s, o, known[1]), s)

    @property
    def size(self) -> int:
        return int(self.states.shape[1])

    @cached_property
    def points(self) -> SigmaPoints:
        return SigmaPoints(self.size)

    @cached_property
    def marginal(self) -> MomentBelief:
        """All training states alike."""
        away = self.states - self.states.mean(axis=0)
        covariance = away.T @ away / len(away) + np.diag(self.least)
        return MomentBelief(self.states.mean(axis=0)[None], covariance[None])

    @cached_property
    def least(self) -> np.ndarray:
        """Variances that a belief has at least."""
        return SHARPEST * or_one(self.states.var(axis=0))

    def predict(
        self, belief: MomentBelief, controls: np.ndarray | None
    ) -> tuple[MomentBelief, np.ndarray]:
        """One step later, and the covariance of the two states.

        A belief that has become wider than all training states knows less than they do, and they
        take its place.
        """
        predicted, cross = self.points.carry(self.transition, belief, controls)
        predicted = replace(predicted, deficit=np.broadcast_to(belief.deficit, len(cross)))
        variances = np.diagonal(predicted.covariance, axis1=1, axis2=2)
        wide: Any = (variances > WIDE * np.diagonal(self.marginal.covariance[0])).any(axis=1)
        if wide.any():
            predicted = self.marginal.repeat(len(cross)).where(wide, predicted)
            cross = np.where(wide[:, None, None], 0.0, cross)
        return predicted, cross

    def condition(
        self, belief: MomentBelief, values: np.ndarray
    ) -> tuple[MomentBelief, MomentBelief]:
        """The belief after observations (b, k), and what was expected of them.

        A belief that has come off its track foretells worse than all training states alike would:
        where that has gone on until they are e¹⁰ times as likely, they take its place.
        """
        expected, cross = self.points.carry(self.observation, belief)
        usual, across = self._unconditional
        worse = normal_log(values, usual) - normal_log(values, expected)
        deficit = np.maximum(np.broadcast_to(belief.deficit, worse.shape) + worse, 0.0)
        lost = np.reshape(deficit > LOST_TRACK, -1)
        if lost.any():
            belief = self.marginal.repeat(len(values)).where(lost, belief)
            expected = usual.repeat(len(values)).where(lost, expected)
            cross = np.where(lost[:, None, None], across, cross)
        gain = gain_of(expected.covariance, cross)
        mean = belief.mean + np.einsum("bdk,bk->bd", gain, values - expected.mean)
        covariance = symmetric(belief.covariance - gain @ cross.swapaxes(1, 2))
        deficit = np.where(lost, 0.0, deficit)
        return MomentBelief(mean, self.sound(covariance), deficit), expected

    @cached_property
    def _unconditional(self) -> tuple[MomentBelief, np.ndarray]:
        """What is observed of all training states alike, by its moments."""
        return self.points.carry(self.observation, self.marginal)

    def sound(self, covariance: np.ndarray) -> np.ndarray:
        """Covariances with no variance below the least."""
        diagonal = np.arange(self.size)
        low = covariance[:, diagonal, diagonal] < self.least
        if not low.any():
            return covariance
        unit = np.sqrt(np.outer(self.least, self.least))
        values, vectors = np.linalg.eigh(covariance / unit)
        return unit * ((vectors * np.maximum(values, 1.0)[:, None, :]) @ vectors.swapaxes(1, 2))


def columns_of(points: Points) -> np.ndarray:
    """Rows of numbers on the host, in double precision."""
    return np.asarray(to_numpy(points), dtype=np.float64).reshape(len(points), -1)


def has_moments(training: Training, kernels: Any) -> bool:
    """Whether states and observations are vectors, whose covariances can be learned."""
    sides = [training.states.points, training.observations.points]
    if training.controls is not None:
        sides.append(training.controls[0].points)
        kernels = [*kernels, training.controls[1]]
    for kernel, points in zip(kernels, sides, strict=True):
        if isinstance(points, tuple) or not kernel.on_vectors or points.ndim != 2:
            return False
        if points.shape[1] > MANY:
            return False
    return True
