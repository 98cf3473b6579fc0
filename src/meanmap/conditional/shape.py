"""The shape of a conditional distribution: residuals put around the conditional mean.

The weights of a conditional embedding give expectations of smooth functions well, above all the
mean, and probabilities badly: they are negative in part, and as wide as the kernel. What the mean
leaves of the training targets, `rᵢ = yᵢ - m₋ᵢ(xᵢ)`, each by a mean that has not seen its row, is a
sample of the noise around it. P(Y|x) is taken to be the law of

    m(x) + s(x) rᵢ/s(xᵢ), with weight wᵢ κ(x, xᵢ),

a regression adjustment (Beaumont, Zhang and Balding 2002; for changing scales Blum and François
2010) with the conditional operator as the regression. `log s` is a ridge regression of `log |rᵢ|`;
whether it is used, and how local κ is, the ranked probability score of left-out rows decides.

Where targets have ends that are known, residuals are added on a logarithmic or logistic scale:
`TargetScale`. Targets that take few values have probabilities instead: those of a
regression of indicators.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from meanmap import decoding
from meanmap.arrays import (
    Points,
    asarray,
    count,
    float_like,
    one_blas_thread,
    take,
    to_numpy,
)
from meanmap.conditional.beliefs import (
    TINY,
    LeftOutScores,
    belief_quantiles,
    belief_scores,
    column_deviations,
    interpolated_quantiles,
    ranked_scores,
    residual_density,
    smooth_draws_of,
)
from meanmap.conditional.learning import (
    LikelihoodLoss,
    ScaleSearch,
    distinct_rows,
    standardize_targets,
)
from meanmap.conditional.ranges import TargetScale, or_one
from meanmap.conditional.selection import RegressionSample, regularized_inverse
from meanmap.decoding import quantiles
from meanmap.kernels import Kernel
from meanmap.kernels.bandwidths import column_scales, median_distance
from meanmap.spaces import PivotedCholesky, Space
from meanmap.spaces.space import fit_space_quietly

ROWS = 5000  # that stand for a larger sample
LEVELS = 10  # different values, up to which probabilities are regressed
SHARES = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02)  # of the rows, that are near a query
FEWEST = 20  # rows that are near, at least
HELD, JUDGED = 500, 2000  # rows that choose, of those that they choose among
COARSE = PivotedCholesky(1e-4, 150)  # coordinates in which scales are regressed
SMALL = 0.1  # of the median residual: what a logarithm is taken of, at least
WIDEST = 3.0  # logarithm of the largest scale over the average one
GROWTH = np.exp(2.0)  # the most that a rescaled residual may grow by
FEW = 10  # queries whose widths of residuals stand for those of all
NEGLIGIBLE = 1e-6  # of the largest weight
BLOCK = 1 << 24  # weights in memory at a time


@dataclass(frozen=True, eq=False)
class LeftOutRows:
    """Rows with what the conditional mean leaves of their targets."""

    kernel: Kernel  # on x
    x: Points
    y: np.ndarray  # (n, k)
    errors: np.ndarray  # (n, k), yᵢ - m₋ᵢ(xᵢ), on the scale
    weights: np.ndarray  # (n,), of sum 1
    scale: TargetScale

    @classmethod
    def of(
        cls, kernel: Kernel, x: Points, y: np.ndarray, errors: np.ndarray, weights: np.ndarray
    ) -> LeftOutRows:
        """Rows whose targets are taken as they are."""
        return cls(kernel, x, y, errors, weights, TargetScale.natural(y))

    def take(self, index: Any) -> LeftOutRows:
        """Some of the rows."""
        x, y, errors, weights = (
            take(part, index) for part in (self.x, self.y, self.errors, self.weights)
        )
        return LeftOutRows(self.kernel, x, y, errors, weights, self.scale)


class AnswerShape(Protocol):
    """How answers are distributed about their means."""

    def at(self, x: Points, centres: np.ndarray, trust: np.ndarray) -> ShapeAt:
        """The distributions at queries, whose means (b, k) are known.

        `trust` (b,) is what the rows can tell of them; the rest is the marginal distribution.
        """


class ShapeAt(ABC):
    """The distributions at b queries, as points with weights ≥ 0."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, rows: Any) -> ShapeAt: ...

    @abstractmethod
    def belief(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """The i-th distribution: points (m, k), and their weights, of sum 1."""

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """A draw (b, k) of each distribution."""
        found = []
        for i in range(len(self)):
            points, p = self.belief(i)
            found.append(points[np.searchsorted(np.cumsum(p)[:-1], rng.random())])
        return np.stack(found)

    def std(self) -> np.ndarray:
        """Standard deviations (b, k)."""
        return np.stack([column_deviations(*self.belief(i)) for i in range(len(self))])

    def quantile(self, levels: np.ndarray) -> np.ndarray:
        """Quantiles (levels, b, k)."""
        found = [belief_quantiles(self.belief(i), levels) for i in range(len(self))]
        return np.stack(found, axis=1)

    def scores(self, y: np.ndarray) -> np.ndarray:
        """Continuous ranked probability scores (b, k) of outcomes y (b, k)."""
        return np.stack([belief_scores(self.belief(i), y[i]) for i in range(len(self))])

    def log_densities(self, y: np.ndarray) -> np.ndarray:
        """The logarithm of the density, or the probability of a value, at outcomes y (b, k)."""
        found = [self.density(i, y[i : i + 1], None)[0] for i in range(len(self))]
        with np.errstate(divide="ignore"):
            return np.log(found)

    def density(self, i: int, y: np.ndarray, bandwidth: Any) -> np.ndarray:
        """The i-th density at points y (m, k)."""
        return np.asarray(decoding.density(*self.belief(i), y, bandwidth))


# --- residuals ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LogScale:
    """The logarithm of the size of residuals as a function of x: a ridge regression."""

    space: Space
    image: np.ndarray  # (r, k)
    left_out: np.ndarray  # (n, k), at the rows, each by the others

    @classmethod
    def of(cls, evidence: LeftOutRows, kernel: Kernel) -> LogScale:
        """With λ by leave-one-out, in coordinates of a few pivots."""
        w = evidence.weights
        targets = log_sizes(evidence.errors, w, SMALL)
        v = asarray(w, float_like(evidence.x))
        space, psi = fit_space_quietly(kernel, COARSE, evidence.x, v)
        rows = to_numpy(psi).astype(np.float64)
        sample = RegressionSample(rows, targets, w, (targets**2).sum(axis=1))
        H = regularized_inverse(sample, "auto", None, True).inverse
        image = H @ (rows.T @ (w[:, None] * targets))
        h = w * ((rows @ H) * rows).sum(axis=1)
        error = (targets - rows @ image) / np.maximum(1 - h, TINY)[:, None]
        return cls(space, image, targets - error)

    def __call__(self, x: Points) -> np.ndarray:
        """Logarithms of the scale (b, k), about their average."""
        return to_numpy(self.space.coordinates(x)).astype(np.float64) @ self.image


def log_sizes(errors: np.ndarray, w: np.ndarray, least: float = TINY) -> np.ndarray:
    """Logarithms of the sizes of residuals about their average, none below a part of the median."""
    size = np.abs(errors)
    logs = np.log(np.maximum(size, least * or_one(np.median(size, axis=0))))
    return np.asarray(logs - w @ logs)


def scales_of(logs: np.ndarray) -> np.ndarray:
    """Scales from logarithms about their average, none of them extreme."""
    return np.asarray(np.exp(np.clip(logs, -WIDEST, WIDEST)))


@dataclass(frozen=True, eq=False)
class ResidualShape:
    """Residuals over their scales, and how near a row must be to speak for a query."""

    evidence: LeftOutRows
    scales: np.ndarray  # (n, k), of the rows
    log_scale: LogScale | None  # None if the scale is the same everywhere, or another's to tell
    share: float  # of the rows, that are near

    @cached_property
    def residuals(self) -> np.ndarray:
        """Residuals over their scales, (n, k)."""
        return self.evidence.errors / self.scales

    @cached_property
    def orders(self) -> list[np.ndarray]:
        """The rows in order of each column of residuals."""
        return [np.argsort(column, kind="stable") for column in self.residuals.T]

    def at(self, x: Points, centres: np.ndarray, trust: np.ndarray) -> ShapeAt:
        """The distributions at queries, whose means (b, k) are known."""
        scales = np.ones_like(centres) if self.log_scale is None else scales_of(self.log_scale(x))
        return self.around(x, centres, scales, trust)

    def around(
        self, x: Points, centres: np.ndarray, scales: np.ndarray, trust: np.ndarray
    ) -> ShapeAt:
        """The distributions at queries, whose means and scales (b, k) are known."""
        found = self.trusted(x, centres, scales)
        return found if (trust == 1).all() else MixedAt(found, trust)

    def trusted(
        self, x: Points, centres: np.ndarray, scales: np.ndarray, weights: np.ndarray | None = None
    ) -> ResidualsAt:
        """The distributions at queries that the rows tell all of, by weights if these are known."""
        kind = PlainResidualsAt if self.evidence.scale.plain else ResidualsAt
        return kind(self, x, centres, scales, weights)


@dataclass(frozen=True, eq=False)
class ResidualsAt(ShapeAt):
    """Residuals put around the means of b queries."""

    shape: ResidualShape
    x: Points
    centres: np.ndarray  # (b, k), on the scale of the targets
    scales: np.ndarray  # (b, k)
    known: np.ndarray | None = None  # weights (b, n) of the rows

    def __len__(self) -> int:
        return len(self.centres)

    def __getitem__(self, rows: Any) -> ResidualsAt:
        parts = (take(self.x, rows), self.centres[rows], self.scales[rows])
        return type(self)(self.shape, *parts, None if self.known is None else self.known[rows])

    @cached_property
    def weights(self) -> np.ndarray:
        """The weights of the rows, (b, n), or (1, n) if all queries have the same."""
        evidence, share = self.shape.evidence, self.shape.share
        if self.known is not None:
            return self.known
        if share == 1:
            return evidence.weights[None, :]
        return nearness(squared_distances(evidence, self.x), evidence.weights, share)

    def row(self, i: int) -> np.ndarray:
        """The weights of the rows in the i-th distribution."""
        many = len(self) * len(self.shape.scales) > BLOCK
        if many and self.known is None and self.shape.share < 1:
            return np.asarray(self[[i]].weights[0])
        return np.asarray(self.weights[min(i, len(self.weights) - 1)])

    def place(self, i: int, rows: Any) -> np.ndarray:
        """The residuals of some rows put around the i-th mean, within the range of targets."""
        evidence = self.shape.evidence
        growth = np.clip(self.scales[i] / self.shape.scales[rows], 1 / GROWTH, GROWTH)
        u = self.centres[i] + growth * evidence.errors[rows]
        return evidence.scale.points(u, evidence.y[rows])

    def belief(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        p = self.row(i)
        rows = np.flatnonzero(p > NEGLIGIBLE * p.max())
        return self.place(i, rows), p[rows] / p[rows].sum()


@dataclass(frozen=True, eq=False)
class PlainResidualsAt(ResidualsAt):
    """Residuals on the targets' own scale, which keep their order around every mean."""

    def place(self, i: int, rows: Any) -> np.ndarray:
        u = self.centres[i] + self.scales[i] * self.shape.residuals[rows]
        return self.shape.evidence.scale.within(u)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """A draw (b, k) of each distribution, of residuals that are smoothed."""
        r, b = self.shape.residuals, len(self)
        if len(self.weights) == 1:
            drawn = smooth_draws_of(r, self.weights[0], b, rng, self._width)
        else:
            # widths cost more than all else: those of a few queries stand for all of them
            few = np.linspace(0, b - 1, min(b, FEW)).astype(int)
            width = np.mean([decoding.widths(r, self.row(i)) for i in few], axis=0)
            drawn = np.concatenate(
                [smooth_draws_of(r, self.row(i), 1, rng, width) for i in range(b)]
            )
        return self.shape.evidence.scale.within(self.centres + self.scales * drawn)

    def std(self) -> np.ndarray:
        first = self.weights @ self.shape.residuals
        second = self.weights @ self.shape.residuals**2
        return self.scales * np.sqrt(np.maximum(second - first**2, 0.0))

    def quantile(self, levels: np.ndarray) -> np.ndarray:
        out = np.empty((len(levels), *self.centres.shape))
        for j, order in enumerate(self.shape.orders):
            e = self.shape.residuals[order, j]
            out[:, :, j] = interpolated_quantiles(e, self.weights[:, order], levels)
        return self.shape.evidence.scale.within(self.centres + self.scales * out)

    def scores(self, y: np.ndarray) -> np.ndarray:
        z = (y - self.centres) / self.scales
        columns = [
            ranked_scores(self.shape.residuals[order, j], self.weights[:, order], z[:, j])
            for j, order in enumerate(self.shape.orders)
        ]
        return self.scales * np.stack(columns, axis=1)

    def density(self, i: int, y: np.ndarray, bandwidth: Any) -> np.ndarray:
        if bandwidth is not None:
            return super().density(i, y, bandwidth)
        z, p = (y - self.centres[i]) / self.scales[i], self.row(i)
        h = self._width if len(self.weights) == 1 else decoding.widths(self.shape.residuals, p)
        return residual_density(self.shape.residuals, (p, h), z) / self.scales[i].prod()

    @cached_property
    def _width(self) -> np.ndarray:
        return decoding.widths(self.shape.residuals, self.weights[0])


@dataclass(frozen=True, eq=False)
class MixedAt(ShapeAt):
    """Mixtures with the marginal distribution, at queries of which the rows tell little."""

    inner: ResidualsAt
    trust: np.ndarray  # (b,)

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, rows: Any) -> MixedAt:
        return MixedAt(self.inner[rows], self.trust[rows])

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        found, evidence = self.inner.draw(rng), self.inner.shape.evidence
        unknown = np.flatnonzero(rng.random(len(self)) > self.trust)
        F = np.cumsum(evidence.weights)[:-1]
        found[unknown] = evidence.y[np.searchsorted(F, rng.random(len(unknown)))]
        return found

    @property
    def doubtful(self) -> list[int]:
        """The queries of which the rows do not tell all."""
        return np.flatnonzero(self.trust < 1).tolist()

    def belief(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        t, evidence = self.trust[i], self.inner.shape.evidence
        if t == 0:
            return evidence.y, evidence.weights
        points, p = self.inner.belief(i)
        if t == 1:
            return points, p
        p = np.concatenate([t * p, (1 - t) * evidence.weights])
        return np.concatenate([points, evidence.y]), p

    def quantile(self, levels: np.ndarray) -> np.ndarray:
        found = self.inner.quantile(levels)
        for i in self.doubtful:
            found[:, i] = belief_quantiles(self.belief(i), levels)
        return found

    def scores(self, y: np.ndarray) -> np.ndarray:
        found = self.inner.scores(y)
        for i in self.doubtful:
            found[i] = belief_scores(self.belief(i), y[i])
        return found

    def std(self) -> np.ndarray:
        found = self.inner.std()
        for i in self.doubtful:
            found[i] = column_deviations(*self.belief(i))
        return found

    def density(self, i: int, y: np.ndarray, bandwidth: Any) -> np.ndarray:
        t, evidence = self.trust[i], self.inner.shape.evidence
        inner = self.inner.density(i, y, bandwidth)
        if t == 1:
            return inner
        wide = np.asarray(decoding.density(evidence.y, evidence.weights, y, bandwidth))
        return t * inner + (1 - t) * wide


@dataclass(frozen=True)
class Judge:
    """How shapes are compared, on rows that are left out."""

    score: Callable[[ResidualsAt, np.ndarray], np.ndarray]  # of targets (b, k): (b,), least is best
    shares: tuple[float, ...] = SHARES
    held: int = HELD
    among: int = JUDGED
    sure: float = 0.5  # standard errors that a simpler choice may be worse by

    def choose(
        self, evidence: LeftOutRows, scales: Sequence[np.ndarray]
    ) -> tuple[int, float, LeftOutScores]:
        """Which scales of the rows, of several choices, the share of near rows, and the scores.

        The simplest choice that is not clearly worse than the best.
        """
        n = count(evidence.x)
        some = np.linspace(0, n - 1, min(n, self.among)).astype(int)
        held = np.linspace(0, len(some) - 1, min(len(some), self.held)).astype(int)
        part = evidence.take(some)
        x, y, v = (take(own, held) for own in (part.x, part.y, part.weights))
        centres = part.scale.forward(y) - part.errors[held]
        squares = squared_distances(part, x)
        squares[np.arange(len(held)), held] = np.inf
        found: dict[tuple[int, float], LeftOutScores] = {}
        shares = [share for share in self.shares if share == 1 or share * len(some) >= FEWEST]
        radii = near_radii(squares, part.weights, shares)
        for share, radius in zip(shares, radii, strict=True):
            near = weights_within(squares, part.weights, radius)
            for i, own in enumerate(scales):
                shape = ResidualShape(part, own[some], None, share)
                at = shape.trusted(x, centres, own[some][held], near)
                found[i, share] = LeftOutScores(self.score(at, y), v / v.sum())
        best = min(found.values(), key=lambda scores: scores.mean)
        for choice in sorted(found, key=lambda choice: (-choice[1], choice[0])):
            excess, error = found[choice].excess(best)
            if excess <= self.sure * error:
                break
        return *choice, found[choice]


def mean_ranked_scores(at: ResidualsAt, y: np.ndarray) -> np.ndarray:
    """Ranked probability scores (b,), over the columns' scales."""
    evidence = at.shape.evidence
    return np.asarray((at.scores(y) / column_scales(evidence.y, evidence.weights)).mean(axis=1))


RANKED = Judge(mean_ranked_scores)


def choose_shape(evidence: LeftOutRows, learn: bool = True) -> tuple[ResidualShape, LeftOutScores]:
    """The shape, and the ranked probability scores of left-out rows under it.

    The size of residuals may depend on other columns than the mean does: unless `learn` is False,
    a regression with its own scales is tried beside one in the kernel of the mean.
    """
    own = learned_scale_kernel(evidence) if learn else None
    kernels = [evidence.kernel] if own is None else [evidence.kernel, own]
    tried = [None, *(LogScale.of(evidence, kernel) for kernel in kernels)]
    scales = [
        np.ones_like(evidence.errors) if log_scale is None else scales_of(log_scale.left_out)
        for log_scale in tried
    ]
    which, share, scores = RANKED.choose(evidence, scales)
    return ResidualShape(evidence, scales[which], tried[which], share), scores


def learned_scale_kernel(evidence: LeftOutRows) -> Kernel | None:
    """The kernel on x with scales learned from the sizes of residuals; None if it has no scales."""
    scales = evidence.kernel.open_scales(
        evidence.x, asarray(evidence.weights, float_like(evidence.x))
    )
    if scales is None:
        return None
    targets = log_sizes(evidence.errors, evidence.weights, SMALL)
    rows, w = distinct_rows(scales.columns, targets, evidence.weights)
    if len(rows) < FEWEST:
        return None
    part = replace(scales, columns=scales.columns[rows])
    T = standardize_targets(targets[rows], w)
    with one_blas_thread():
        search = ScaleSearch(LikelihoodLoss, part, T, w, median_distance(part.columns, w), None)
        return scales.kernel(search.scales_at(search.run()))


def squared_distances(evidence: LeftOutRows, x: Points) -> np.ndarray:
    """Squared distances (b, n) of queries to the rows, in the space of the kernel on x."""
    kernel = evidence.kernel
    own, rows = (to_numpy(kernel.squared_norms(part)) for part in (x, evidence.x))
    squares = to_numpy(kernel.gram_matrix(x, evidence.x)).astype(np.float64)
    squares *= -2
    squares += own[:, None]
    squares += rows
    return np.maximum(squares, 0.0, out=squares)


def near_radii(
    squares: np.ndarray, w: np.ndarray, shares: Sequence[float]
) -> list[np.ndarray | None]:
    """The squared distance (b, 1) of the last row that is near, for each share; None if all are."""
    among = squares if (w > 0).all() else squares[:, w > 0]
    n = among.shape[1]
    counts = [max(int(share * n), FEWEST) for share in shares]
    inner = [k for k in counts if k < n]
    ordered = np.partition(among, inner, axis=1) if inner else among
    return [ordered[:, [k]] if k < n else None for k in counts]


def nearness(squares: np.ndarray, w: np.ndarray, share: float) -> np.ndarray:
    """Weights (b, n) by squared distances, of which the share of near rows has most."""
    return weights_within(squares, w, near_radii(squares, w, (share,))[0])


def weights_within(squares: np.ndarray, w: np.ndarray, radius: np.ndarray | None) -> np.ndarray:
    """Weights (b, n) by squared distances, of which rows within a radius have most."""
    if radius is None:
        near = np.where(np.isfinite(squares), w, 0.0)
    else:
        # half the radius is one deviation
        with np.errstate(over="ignore"):
            near = squares * (-2 / np.maximum(radius, np.finfo(float).tiny))
        near = w * np.exp(np.maximum(near, -300.0, out=near), out=near)
    return near / near.sum(axis=1, keepdims=True)


def takes_few_values(y: np.ndarray) -> bool:
    """Whether targets (n, k) are so few different ones that each has a probability."""
    return len(np.unique(y[: 4 * LEVELS], axis=0)) <= LEVELS and len(np.unique(y, axis=0)) <= LEVELS


# --- few values -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LevelShape:
    """Targets of few values, with their probabilities."""

    values: np.ndarray  # (u, k), in order
    probabilities: Callable[[Points], np.ndarray]  # of x: (b, u)

    def at(self, x: Points, centres: np.ndarray, trust: np.ndarray) -> LevelsAt:
        """The distributions at queries."""
        p = np.maximum(self.probabilities(x), 0.0)
        total = p.sum(axis=1, keepdims=True)
        p = np.where(total > 0, p / or_one(total), 1 / p.shape[1])
        return LevelsAt(self.values, p)


@dataclass(frozen=True, eq=False)
class LevelsAt(ShapeAt):
    """The probabilities of few values at b queries."""

    values: np.ndarray  # (u, k)
    weights: np.ndarray  # (b, u)

    def __len__(self) -> int:
        return len(self.weights)

    def __getitem__(self, rows: Any) -> LevelsAt:
        return LevelsAt(self.values, self.weights[rows])

    def belief(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        return self.values, self.weights[i]

    def quantile(self, levels: np.ndarray) -> np.ndarray:
        return quantiles.Distribution(self.values, self.weights).quantile(levels)

    def scores(self, y: np.ndarray) -> np.ndarray:
        columns = []
        for j, column in enumerate(self.values.T):
            order = np.argsort(column, kind="stable")
            columns.append(ranked_scores(column[order], self.weights[:, order], y[:, j]))
        return np.stack(columns, axis=1)

    def log_densities(self, y: np.ndarray) -> np.ndarray:
        same = (y[:, None, :] == self.values[None, :, :]).all(axis=2)
        with np.errstate(divide="ignore"):
            return np.log((same * self.weights).sum(axis=1))
