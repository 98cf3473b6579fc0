"""The shape of a posterior: draws of the right spread around the conditional mean.

The weights of eq. 19 (Fukumizu, Song and Gretton 2013) give the mean far better than they give
probabilities. As for any conditional distribution (`meanmap.conditional.shape`), residuals of the
mean are put around its value at the observation,

    θ*ᵢ = m(y) + rᵢ s(y)/s(yᵢ), with weight wᵢ κ(y - yᵢ),

m and s by the conditional operator, each residual by an operator that has not seen its row.
Parameters with a bounded prior are moved on a logarithmic or logistic scale, and stay in the range
of the prior's draws. How local κ is, held-out rows decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from meanmap import decoding
from meanmap.arrays import to_numpy
from meanmap.conditional.operator import ConditionalOperator, Functional
from meanmap.conditional.ranges import TargetScale, or_one
from meanmap.conditional.shape import (
    Judge,
    LeftOutRows,
    ResidualsAt,
    ResidualShape,
    ShapeAt,
    log_sizes,
    nearness,
    scales_of,
    squared_distances,
)
from meanmap.kernels import Linear

SHARES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)  # of the simulations, that are near an observation
HELD, JUDGED = 500, 20_000  # rows that choose the share, of those that they choose among
DRAWS, NEAREST = 256, 4  # a posterior is judged by the distance of the truth to its fourth draw
SURE = 2.0  # standard errors
ENOUGH = 0.5  # of a query's mass, below which the prior makes up for what is missing
LEAST = 0.05  # of a query's mass, that is divided by
SPACING = 1.25  # times the largest distance between simulations, beyond which y lies outside
NEIGHBOUR = 2  # the one whose distance says how far a repeated draw may move
LOOKED = 1000  # simulations that say how far they are apart


def columns_spread(points: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """A scale for each column that a few extreme values do not decide; 0 for constant columns."""
    found = []
    for column in points.T:
        if column.max() == column.min():
            found.append(0.0)
            continue
        w = np.full(len(column), 1 / len(column)) if weights is None else weights
        order = np.argsort(column)
        middle = np.cumsum(w[order]) - w[order] / 2
        low, high = np.interp([0.25, 0.75], middle / w.sum(), column[order])
        mean = w @ column / w.sum()
        deviation = np.sqrt(w @ (column - mean) ** 2 / w.sum())
        found.append((high - low) / 1.349 if high > low else deviation)
    return np.array(found)


@dataclass(frozen=True, eq=False)
class Regression:
    """The conditional mean and scale of the parameters as functions of the output."""

    answer: Functional  # of y: sums Σv over centred θ, centred u and ones, log s
    centre: np.ndarray  # the prior's mean, and that on the scale
    centre_u: np.ndarray
    middle: np.ndarray  # (p,), of the outputs
    spread: np.ndarray
    shape: ResidualShape

    @classmethod
    def of(
        cls,
        operator: ConditionalOperator,
        theta: np.ndarray,
        outputs: np.ndarray,
        weights: np.ndarray,
        support: tuple[np.ndarray, np.ndarray],
        ends: np.ndarray,
    ) -> Regression:
        """From P(θ | output) in the form of kernel ridge regression."""
        scale = TargetScale.between(theta, support, ends)
        u = scale.forward(theta)
        centre, centre_u = weights @ theta, weights @ u
        first = centre_parameters(u, centre_u)
        errors = u - mean_from_sums(to_numpy(operator.leave_one_out(first)), centre_u, ENOUGH)
        logs = log_sizes(errors, weights)
        scales = scales_of(to_numpy(operator.leave_one_out(logs)))
        columns = np.column_stack([theta - centre, first, logs])
        middle, spread = np.median(outputs, axis=0), or_one(columns_spread(outputs, weights))
        places = (outputs - middle) / spread
        evidence = LeftOutRows(Linear(), places, theta, errors, weights, scale)
        _, share, _ = DRAWN.choose(evidence, (scales,))
        shape = ResidualShape(evidence, scales, None, share)
        answer = operator.functional(lambda _: columns)
        return cls(answer, centre, centre_u, middle, spread, shape)

    def features(self, y: np.ndarray) -> Any:
        """Observations (b, p) as the operator wants them."""
        operator = self.answer.operator
        source = operator.source
        return operator.features(source.kernel_.check(y, "y", source.example_))

    def shapes(self, y: np.ndarray, features: Any) -> tuple[np.ndarray, ShapeAt]:
        """The posteriors' means (b, d) and shapes at observations (b, p), also as features."""
        d = len(self.centre)
        sums, on_scale, logs = np.split(to_numpy(self.answer.of(features)), [d, 2 * d + 1], axis=1)
        mass = on_scale[:, -1:]
        centres = mean_from_sums(on_scale, self.centre_u, LEAST)
        trust = np.clip(mass[:, 0] / ENOUGH, 0.0, 1.0)
        shape = self.shape.around(self.places(y), centres, scales_of(logs), trust)
        return self.mean_of(np.hstack([sums, mass])), shape

    def centres(self, features: Any) -> np.ndarray:
        """The posteriors' means (b, d) on the scale."""
        d = len(self.centre)
        sums = to_numpy(self.answer.of(features))[:, d : 2 * d + 1]
        return mean_from_sums(sums, self.centre_u, LEAST)

    def mean_of(self, sums: np.ndarray) -> np.ndarray:
        """The mean of an embedding, from its sums over `centre_parameters(θ, centre)`."""
        scale = self.shape.evidence.scale
        return np.clip(mean_from_sums(sums, self.centre, ENOUGH), scale.bottom, scale.top)

    def places(self, y: np.ndarray) -> np.ndarray:
        """Outputs (b, p), standardised."""
        return (y - self.middle) / self.spread

    @cached_property
    def _tree(self) -> tuple[cKDTree, float]:
        """The simulations by place, and the largest distance of one to its nearest neighbour."""
        places = self.shape.evidence.x
        some = np.linspace(0, len(places) - 1, min(len(places), LOOKED)).astype(int)
        tree = cKDTree(places)
        return tree, float(tree.query(places[some], k=2)[0][:, 1].max())

    def outside(self, y: np.ndarray) -> np.ndarray:
        """Which observations (b, p) no simulation is like."""
        tree, spacing = self._tree
        return tree.query(self.places(y))[0] > SPACING * spacing


def centre_parameters(theta: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """Parameters less the prior's mean, and a column of ones."""
    return np.column_stack([theta - centre, np.ones(len(theta))])


def mean_from_sums(sums: np.ndarray, centre: np.ndarray, least: float) -> np.ndarray:
    """`Σvθ/Σv` of sums over `centre_parameters`; below the least mass the prior's mean fills up."""
    return centre + sums[:, :-1] / np.maximum(sums[:, -1:], least)


def drawn_scores(at: ResidualsAt, y: np.ndarray) -> np.ndarray:
    """Scores (b,) of all columns together, by the log of the distance to the k-th nearest draw.

    Up to a constant, and the dimension as a factor, that is the log score of a nearest-neighbour
    estimate of the density.
    """
    rows = ((at.row(i), partial(at.place, i)) for i in range(len(y)))
    return nearest_draw_scores(rows, at.shape.evidence, y)


def nearest_draw_scores(
    laws: Iterable[tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]],
    evidence: LeftOutRows,
    y: np.ndarray,
) -> np.ndarray:
    """Scores (b,) of the truth y (b, d) under laws: weights, and the points of given numbers."""
    unit = or_one(columns_spread(evidence.y, evidence.weights))
    levels = (np.arange(DRAWS) + 0.5) / DRAWS
    found = []
    for (p, points_of), truth in zip(laws, y, strict=True):
        F = np.cumsum(p)
        draws = points_of(np.searchsorted(F[:-1], levels * F[-1]))
        found.append(log_distance((draws - truth) / unit))
    return np.array(found)


def left_out_scores(shape: ResidualShape, held: np.ndarray) -> np.ndarray:
    """The same scores (b,) of some rows of a shape, each by the others."""
    evidence = shape.evidence
    squares = squared_distances(evidence, evidence.x[held])
    squares[np.arange(len(held)), held] = np.inf
    weights = nearness(squares, evidence.weights, shape.share)
    centres = evidence.scale.forward(evidence.y[held]) - evidence.errors[held]
    at = shape.trusted(evidence.x[held], centres, shape.scales[held], weights)
    return drawn_scores(at, evidence.y[held])


def belief_scores_of(
    beliefs: Sequence[tuple[np.ndarray, np.ndarray]], evidence: LeftOutRows, held: np.ndarray
) -> np.ndarray:
    """The same scores (b,) of points with weights, at some of the rows."""
    laws = ((p, points.__getitem__) for points, p in beliefs)
    return nearest_draw_scores(laws, evidence, evidence.y[held])


@dataclass(frozen=True, eq=False)
class BeliefsAt(ShapeAt):
    """Points with weights, known for each of b queries."""

    points: tuple[np.ndarray, ...]  # (m, d) each
    weights: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, beliefs: Iterable[tuple[np.ndarray, np.ndarray]]) -> BeliefsAt:
        points, weights = zip(*beliefs, strict=True)
        return cls(points, weights)

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, rows: Any) -> BeliefsAt:
        chosen = np.atleast_1d(np.arange(len(self))[rows])
        return BeliefsAt.of(self.belief(int(i)) for i in chosen)

    def belief(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        return self.points[i], self.weights[i]


DRAWN = Judge(drawn_scores, SHARES, HELD, JUDGED, SURE)


def log_distance(away: np.ndarray) -> float:
    """The log of the distance of the k-th nearest draw, given their differences to the truth.

    Where so many draws are the truth itself, as whole numbers may be, their number says how likely
    it is.
    """
    distances = np.sqrt((away * away).sum(axis=1))
    nearest = np.partition(distances, NEAREST - 1)[NEAREST - 1]
    if nearest > 0:
        return float(np.log(nearest))
    return float(-np.log((distances == 0).sum() / NEAREST))


def smooth_draws(
    belief: tuple[np.ndarray, np.ndarray], scale: TargetScale, n: int, rng: np.random.Generator
) -> np.ndarray:
    """n draws (n, d) from points with weights.

    Equal weights: different points, as long as there are any. Else a point that is drawn stands for
    its surroundings: it moves by about as much as its second neighbour is away, so that repeated
    draws differ.
    """
    points, weights = belief
    if n <= len(points) and np.ptp(weights) == 0:
        return points[rng.permutation(len(points))[:n]]
    chosen = decoding.draw(weights[None, :], n, rng)[0]
    if len(points) <= NEIGHBOUR:
        return points[chosen]
    u = scale.forward(points)
    unit = or_one(np.sqrt(weights @ (u - weights @ u) ** 2))
    away = cKDTree(u / unit).query(u[chosen] / unit, k=NEIGHBOUR + 1)[0][:, -1:]
    noise = unit * away * rng.normal(size=(n, u.shape[1])) / np.sqrt(u.shape[1])
    return scale.points(u[chosen] + noise, points[chosen])
