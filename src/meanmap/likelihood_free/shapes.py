"""The shape of a posterior: draws of the right spread around the conditional mean.

The weights of eq. 19 (Fukumizu, Song and Gretton 2013) give expectations of smooth functions, above
all the mean, far better than they give probabilities: they are negative in part, and as wide as
the kernel. What the mean leaves of the parameters, `rᵢ = θᵢ - m(yᵢ)`, is a sample of the noise
around it; simulations like the observation say how it is distributed there:

    θ*ᵢ = m(y) + rᵢ s(y)/s(yᵢ), with weight wᵢ κ(y - yᵢ),

m and s by the conditional operator, each residual by an operator that has not seen its row. That is
the regression adjustment of approximate Bayesian computation (Beaumont, Zhang and Balding 2002; for
changing scales Blum and François 2010) with the operator as the regression. Parameters with a
bounded prior are moved on a logarithmic or logistic scale. How local κ is, held-out rows decide.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import expit, logit

from meanmap.arrays import to_numpy
from meanmap.conditional.operator import ConditionalOperator, Functional
from meanmap.decoding import sampling

SHARES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # of the simulations, that are near an observation
FEWEST = 20  # simulations that are near, at least
HELD = 500  # rows that choose the share
DRAWS, NEAREST = 256, 4  # a posterior is judged by the distance of the truth to its fourth draw
SURE = 2.0  # standard errors
ENOUGH = 0.5  # of a query's mass, below which the prior makes up for what is missing
LEAST = 0.05  # of a query's mass, that is divided by
TINY = 1e-3  # of the median residual: what a logarithm is taken of, at least
WIDEST = 2.0  # a residual grows or shrinks by at most e²
NEGLIGIBLE = 1e-6  # of the largest weight
SPACING = 1.25  # times the largest distance between simulations, beyond which y lies outside
SEVERAL = 20  # whole numbers of more values than these are moved as others are, and rounded
NEIGHBOUR = 2  # the one whose distance says how far a repeated draw may move
EDGE = 1e-9  # of a bounded prior's width
HUGE = 1e300


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


def or_one(scale: np.ndarray) -> np.ndarray:
    """A scale to divide by: 1 for what does not vary."""
    return np.where(scale > 0, scale, 1.0)


@dataclass(frozen=True, eq=False)
class ParameterScale:
    """Between the parameters and a scale without ends: log, logit, or as they are."""

    low: np.ndarray  # (d,), -inf where there is no end
    high: np.ndarray

    def forward(self, theta: np.ndarray) -> np.ndarray:
        columns = []
        for x, a, b in zip(theta.T, self.low, self.high, strict=True):
            if np.isfinite(a) and np.isfinite(b):
                columns.append(logit(np.clip((x - a) / (b - a), EDGE, 1 - EDGE)))
            elif np.isfinite(a):
                columns.append(np.log(np.maximum(x - a, np.finfo(float).tiny)))
            elif np.isfinite(b):
                columns.append(-np.log(np.maximum(b - x, np.finfo(float).tiny)))
            else:
                columns.append(x)
        return np.column_stack(columns)

    def backward(self, u: np.ndarray) -> np.ndarray:
        columns = []
        for x, a, b in zip(u.T, self.low, self.high, strict=True):
            if np.isfinite(a) and np.isfinite(b):
                columns.append(a + (b - a) * expit(x))
            elif np.isfinite(a):
                columns.append(a + np.exp(x))
            elif np.isfinite(b):
                columns.append(b - np.exp(-x))
            else:
                columns.append(x)
        return np.column_stack(columns)


@dataclass(frozen=True, eq=False)
class Residuals:
    """Simulations, and what the conditional mean leaves of their parameters."""

    theta: np.ndarray  # (n, d)
    residuals: np.ndarray  # (n, d), on the scale
    log_scales: np.ndarray  # (n, d), log s(yᵢ)
    outputs: np.ndarray  # (n, p)
    spread: np.ndarray  # (p,)
    weights: np.ndarray  # (n,)
    scale: ParameterScale
    ends: np.ndarray  # (2, d), the range of the prior's draws, which no draw leaves
    share: float = 1.0

    @cached_property
    def places(self) -> np.ndarray:
        """The outputs, standardised."""
        return self.outputs / self.spread

    @cached_property
    def _whole(self) -> tuple[np.ndarray, np.ndarray]:
        """Columns of whole numbers: of few values, not to be moved, and those to be rounded."""
        whole = (self.theta == np.round(self.theta)).all(axis=0)
        few = np.array([len(np.unique(column)) <= SEVERAL for column in self.theta.T])
        return whole & few, whole & ~few

    def squares(self, y: np.ndarray) -> np.ndarray:
        """The squared distances of all simulations to an observation."""
        with np.errstate(over="ignore"):
            return np.minimum(((self.places - y / self.spread) ** 2).sum(axis=1), HUGE)

    def nearness(self, squares: np.ndarray, share: float) -> np.ndarray:
        """Weights of the simulations by their squared distances to an observation."""
        among = squares[self.weights > 0]  # a prior may leave no weight on the nearest ones
        k = max(int(share * len(among)), FEWEST)
        if k >= len(among):
            return self.weights
        radius = float(np.partition(among, k)[k])
        if radius == 0:
            near = self.weights * (squares == 0)
        else:  # half the radius is one deviation
            near = self.weights * np.exp(-2 * np.minimum(squares / radius, 1e3))
        return near / near.sum()

    def moved(self, rows: Any, centre: np.ndarray, log_scale: np.ndarray) -> np.ndarray:
        """The residuals of some rows put around a centre, as wide as the scale says."""
        growth = np.clip(log_scale - self.log_scales[rows], -WIDEST, WIDEST)
        return self.returned(centre + self.residuals[rows] * np.exp(growth), rows)

    def returned(self, u: np.ndarray, rows: Any) -> np.ndarray:
        """From the scale back to parameters, within the prior's range."""
        few, many = self._whole
        low, high = self.ends
        draws = self.scale.backward(u)
        draws = np.where(draws < low, 2 * low - draws, draws)  # reflected at the ends
        draws = np.clip(np.where(draws > high, 2 * high - draws, draws), low, high)
        draws = np.where(many, np.round(draws), draws)
        return np.where(few, self.theta[rows], draws)

    @cached_property
    def _tree(self) -> tuple[cKDTree, float]:
        """The simulations by place, and the largest distance of one to its nearest neighbour."""
        some = np.linspace(0, len(self.places) - 1, min(len(self.places), 1000)).astype(int)
        tree = cKDTree(self.places)
        return tree, float(tree.query(self.places[some], k=2)[0][:, 1].max())

    def outside(self, y: np.ndarray) -> np.ndarray:
        """Which observations (b, p) no simulation is like."""
        tree, spacing = self._tree
        return tree.query(y / self.spread)[0] > SPACING * spacing


@dataclass(frozen=True, eq=False)
class Regression:
    """The conditional mean and scale of the parameters as functions of the output."""

    answer: Functional  # of y: sums Σv over centred θ, centred u and ones, log s
    centre: np.ndarray  # the prior's mean, and that on the scale
    centre_u: np.ndarray
    residuals: Residuals

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
        whole = (theta == np.round(theta)).all(axis=0)
        scale = ParameterScale(
            np.where(whole, -np.inf, support[0]), np.where(whole, np.inf, support[1])
        )
        u = scale.forward(theta)
        centre, centre_u = weights @ theta, weights @ u
        first = centre_parameters(u, centre_u)
        means = mean_from_sums(to_numpy(operator.leave_one_out(first)), centre_u, ENOUGH)
        residuals = u - means
        size = np.abs(residuals)
        logs = np.log(np.maximum(size, TINY * or_one(np.median(size, axis=0))))
        logs = logs - weights @ logs
        log_scales = to_numpy(operator.leave_one_out(logs))
        columns = np.column_stack([theta - centre, first, logs])
        spread = or_one(columns_spread(outputs, weights))
        parts = (theta, residuals, log_scales, outputs, spread, weights)
        found = Residuals(*parts, scale, ends)
        found = replace(found, share=best_share(found, means))
        return cls(operator.functional(lambda _: columns), centre, centre_u, found)

    def __call__(self, y: np.ndarray) -> Shape:
        """The shapes of the posteriors at observations (b, p)."""
        return self.shapes(y, self.features(y))

    def features(self, y: np.ndarray) -> Any:
        """Observations (b, p) as the operator wants them."""
        operator = self.answer.operator
        source = operator.source
        return operator.features(source.kernel_.check(y, "y", source.example_))

    def shapes(self, y: np.ndarray, features: Any) -> Shape:
        """The shapes of the posteriors at observations (b, p), also given as features."""
        d = len(self.centre)
        sums, on_scale, log_scales = np.split(
            to_numpy(self.answer.of(features)), [d, 2 * d + 1], axis=1
        )
        mass = on_scale[:, -1:]
        means = mean_from_sums(np.hstack([sums, mass]), self.centre, ENOUGH)
        centres = mean_from_sums(on_scale, self.centre_u, LEAST)
        trust = np.clip(mass[:, 0] / ENOUGH, 0.0, 1.0)
        return Shape(self.residuals, y, self.within(means), centres, log_scales, trust)

    def mean_of(self, sums: np.ndarray) -> np.ndarray:
        """The mean of an embedding, from its sums over `centre_parameters(θ, centre)`."""
        return self.within(mean_from_sums(sums, self.centre, ENOUGH))

    def within(self, means: np.ndarray) -> np.ndarray:
        return np.clip(means, *self.residuals.ends)


def centre_parameters(theta: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """Parameters less the prior's mean, and a column of ones."""
    return np.column_stack([theta - centre, np.ones(len(theta))])


def mean_from_sums(sums: np.ndarray, centre: np.ndarray, least: float) -> np.ndarray:
    """`Σvθ/Σv` of sums over `centre_parameters`; below the least mass the prior's mean fills up."""
    return centre + sums[:, :-1] / np.maximum(sums[:, -1:], least)


def best_share(residuals: Residuals, means: np.ndarray) -> float:
    """The largest share of near simulations under which held-out parameters are likeliest.

    By the log of the distance to the k-th nearest of so many draws: up to a constant, and the
    dimension as a factor, the log score of a nearest-neighbour estimate of the density.
    """
    n = len(means)
    shares = [share for share in SHARES if share * n >= FEWEST or share == 1.0]
    rows = np.linspace(0, n - 1, min(n, HELD)).astype(int)
    unit = or_one(columns_spread(residuals.theta, residuals.weights))
    levels = (np.arange(DRAWS) + 0.5) / DRAWS
    scores = np.empty((len(rows), len(shares)))
    for i, row in enumerate(rows):
        squares = residuals.squares(residuals.outputs[row])
        squares[row] = HUGE
        for j, share in enumerate(shares):
            near = residuals.nearness(squares, share).copy()
            near[row] = 0.0
            F = np.cumsum(near)
            chosen = np.searchsorted(F, levels * F[-1])
            draws = residuals.moved(chosen, means[row], residuals.log_scales[row])
            scores[i, j] = log_distance((draws - residuals.theta[row]) / unit)
    weights = residuals.weights[rows] / residuals.weights[rows].sum()
    best = int(np.argmin(weights @ scores))
    # the widest of those that are as good, for all that can be told: its draws are the most
    worse = scores - scores[:, [best]]
    excess = weights @ worse
    error = np.sqrt(weights**2 @ (worse - excess) ** 2)
    return max(share for share, e, s in zip(shares, excess, error, strict=True) if e <= SURE * s)


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


@dataclass(frozen=True, eq=False)
class Shape:
    """The shapes of b posteriors."""

    residuals: Residuals
    y: np.ndarray  # (b, p)
    means: np.ndarray  # (b, d)
    centres: np.ndarray  # (b, d), on the scale
    log_scales: np.ndarray  # (b, d)
    trust: np.ndarray  # (b,), the rest is the prior's

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: Any) -> Shape:
        parts = (self.y, self.means, self.centres, self.log_scales, self.trust)
        return Shape(self.residuals, *(part[rows] for part in parts))

    def _rows(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """The simulations that speak for the i-th posterior, with their weights."""
        source = self.residuals
        weights = source.nearness(source.squares(self.y[i]), source.share)
        rows = np.flatnonzero(weights > NEGLIGIBLE * weights.max())
        return rows, weights[rows] / weights[rows].sum()

    def draws(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """The i-th posterior as points (m, d) with weights ≥ 0."""
        rows, weights = self._rows(i)
        points = self.residuals.moved(rows, self.centres[i], self.log_scales[i])
        if self.trust[i] == 1:
            return points, weights
        rest = (1 - self.trust[i]) * self.residuals.weights
        points = np.concatenate([points, self.residuals.theta])
        return points, np.concatenate([self.trust[i] * weights, rest])

    def sample(self, i: int, n: int, rng: np.random.Generator) -> np.ndarray:
        """n draws from the i-th posterior, (n, d).

        A point that is drawn stands for its surroundings: it moves by about as much as its second
        neighbour is away, so that repeated draws differ.
        """
        points, weights = self.draws(i)
        chosen = sampling.draw(weights[None, :], n, rng)[0]
        if len(points) <= NEIGHBOUR:
            return points[chosen]
        u = self.residuals.scale.forward(points)
        average = weights @ u
        unit = or_one(np.sqrt(weights @ (u - average) ** 2))
        away = cKDTree(u / unit).query(u[chosen] / unit, k=NEIGHBOUR + 1)[0][:, -1:]
        noise = unit * away * rng.normal(size=(n, u.shape[1])) / np.sqrt(u.shape[1])
        moved = self.residuals.returned(u[chosen] + noise, slice(0, 1))
        few, _ = self.residuals._whole
        return np.where(few, points[chosen], moved)
