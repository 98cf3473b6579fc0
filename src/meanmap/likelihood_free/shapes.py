"""The shape of a posterior: draws of the right spread around the conditional mean.

The weights of eq. 19 (Fukumizu, Song and Gretton 2013) give expectations of smooth functions, above
all the mean, far better than they give probabilities: they are negative in part, and as wide as
the kernel. What the mean leaves of the parameters, `rᵢ = θᵢ - m(yᵢ)`, is a sample of the noise
around it; simulations like the observation say how it is distributed there:

    θ*ᵢ = m(y) + rᵢ s(y)/s(yᵢ), with weight wᵢ κ(y - yᵢ),

m and s by the conditional operator, each residual by an operator that has not seen its row. That is
the regression adjustment of approximate Bayesian computation (Beaumont, Zhang and Balding 2002; for
changing scales Blum and François 2010) with the operator as the regression. How local κ is, the
energy score of held-out rows decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from meanmap.arrays import to_numpy
from meanmap.operators import ConditionalOperator

SHARES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # of the simulations, that are near an observation
FEWEST = 20  # simulations that are near, at least
HELD = 500  # rows that choose the share
DRAWS = 64  # draws that a posterior is judged by
ENOUGH = 0.5  # of a query's mass, below which the prior's mean makes up for what is missing
TINY = 1e-3  # of the median residual: what a logarithm is taken of, at least
WIDEST = 2.0  # a residual grows or shrinks by at most e²
NEGLIGIBLE = 1e-6  # of the largest weight
SPACING = 1.25  # times the largest distance between simulations, beyond which y lies outside


def columns_spread(points: np.ndarray) -> np.ndarray:
    """A scale for each column that a few extreme values do not decide; 0 for constant columns."""
    low, high = np.quantile(points, [0.25, 0.75], axis=0)
    robust = (high - low) / 1.349
    return np.where(robust > 0, robust, points.std(axis=0))


def or_one(scale: np.ndarray) -> np.ndarray:
    """A scale to divide by: 1 for what does not vary."""
    return np.where(scale > 0, scale, 1.0)


@dataclass(frozen=True, eq=False)
class Residuals:
    """Simulations, and what the conditional mean leaves of their parameters."""

    theta: np.ndarray  # (n, d)
    residuals: np.ndarray  # (n, d)
    log_scales: np.ndarray  # (n, d), log s(yᵢ)
    outputs: np.ndarray  # (n, p)
    spread: np.ndarray  # (p,)
    weights: np.ndarray  # (n,)
    share: float = 1.0

    @cached_property
    def places(self) -> np.ndarray:
        """The outputs, standardised."""
        return self.outputs / self.spread

    @cached_property
    def _ends(self) -> tuple[np.ndarray, np.ndarray]:
        """No draw leaves the range of the prior's draws."""
        return self.theta.min(axis=0), self.theta.max(axis=0)

    @cached_property
    def _whole(self) -> np.ndarray:
        """Columns of whole numbers, such as counts or the number of a model: not to be moved."""
        return (self.theta == np.round(self.theta)).all(axis=0)

    def nearness(self, squares: np.ndarray, share: float) -> np.ndarray:
        """Weights of the simulations by their squared distances to an observation."""
        n = len(squares)
        k = max(int(share * n), FEWEST)
        if k >= n:
            return self.weights
        radius = max(float(np.partition(squares, k)[k]), np.finfo(float).tiny)
        near = self.weights * np.exp(-2 * squares / radius)  # half the radius is one deviation
        return near / near.sum()

    def moved(self, rows: Any, mean: np.ndarray, log_scale: np.ndarray) -> np.ndarray:
        """The residuals of some rows put around a mean, as wide as the scale says."""
        growth = np.clip(log_scale - self.log_scales[rows], -WIDEST, WIDEST)
        draws = mean + self.residuals[rows] * np.exp(growth)
        low, high = self._ends
        draws = np.where(draws < low, 2 * low - draws, draws)  # reflected at the ends
        draws = np.where(draws > high, 2 * high - draws, draws)
        return np.where(self._whole, self.theta[rows], np.clip(draws, low, high))

    def draws(
        self, y: np.ndarray, mean: np.ndarray, log_scale: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The posterior of an observation as points (m, d) with weights ≥ 0."""
        squares = ((self.places - y / self.spread) ** 2).sum(axis=1)
        weights = self.nearness(squares, self.share)
        rows = np.flatnonzero(weights > NEGLIGIBLE * weights.max())
        return self.moved(rows, mean, log_scale), weights[rows] / weights[rows].sum()

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

    answer: Callable[[Any], Any]  # y (b, p) -> (b, 2d + 1): Σvθ, Σv, log s, all less their averages
    centre: np.ndarray
    residuals: Residuals

    @classmethod
    def of(
        cls,
        operator: ConditionalOperator,
        theta: np.ndarray,
        outputs: np.ndarray,
        weights: np.ndarray,
        share: float | None = None,
    ) -> Regression:
        """From P(θ | output) in the form of kernel ridge regression; None chooses the share."""
        centre = weights @ theta
        first = centred(theta, centre)
        means = mean(to_numpy(operator.leave_one_out(first)), centre)
        residuals = theta - means
        size = np.abs(residuals)
        floor = TINY * or_one(np.median(size, axis=0))
        logs = np.log(np.maximum(size, floor))
        level = weights @ logs
        log_scales = to_numpy(operator.leave_one_out(logs - level))
        answer = operator.functional(lambda _: np.column_stack([first, logs - level]))
        spread = or_one(columns_spread(outputs))
        found = Residuals(theta, residuals, log_scales, outputs, spread, weights, share or 1.0)
        if share is None:
            chosen = least_score(found, means)
            found = Residuals(theta, residuals, log_scales, outputs, spread, weights, chosen)
        return cls(answer, centre, found)

    def __call__(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means (b, d) and log scales (b, d) at observations (b, p)."""
        d = len(self.centre)
        found = to_numpy(self.answer(y))
        return mean(found[:, : d + 1], self.centre), found[:, d + 1 :]


def centred(theta: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """Parameters less the prior's mean, and a column of ones."""
    return np.column_stack([theta - centre, np.ones(len(theta))])


def mean(sums: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """`Σvθ/Σv` of sums over `centred`; the prior's mean makes up for mass that is missing."""
    return centre + sums[:, :-1] / np.maximum(sums[:, -1:], ENOUGH)


def least_score(residuals: Residuals, means: np.ndarray) -> float:
    """The share of near simulations with the least energy score over some of the rows."""
    n = len(means)
    shares = [share for share in SHARES if share * n >= FEWEST or share == 1.0]
    rows = np.linspace(0, n - 1, min(n, HELD)).astype(int)
    unit = or_one(columns_spread(residuals.theta))
    levels = (np.arange(DRAWS) + 0.5) / DRAWS
    totals = np.zeros(len(shares))
    for row in rows:
        squares = ((residuals.places - residuals.places[row]) ** 2).sum(axis=1)
        squares[row] = np.inf
        for j, share in enumerate(shares):
            near = residuals.nearness(squares, share).copy()
            near[row] = 0.0
            F = np.cumsum(near)
            chosen = np.searchsorted(F, levels * F[-1])
            draws = residuals.moved(chosen, means[row], residuals.log_scales[row])
            score = energy_score(draws / unit, residuals.theta[row] / unit)
            totals[j] += residuals.weights[row] * score
    return shares[int(np.argmin(totals))]


def energy_score(draws: np.ndarray, truth: np.ndarray) -> float:
    """`E‖D - t‖ - ½ E‖D - D'‖` of draws (m, d): least, on average, for draws of t's own law."""
    squares = (draws * draws).sum(axis=1)
    between = squares[:, None] + squares[None, :] - 2 * draws @ draws.T
    apart = np.sqrt(np.maximum(between, 0.0)).sum() / (len(draws) * max(len(draws) - 1, 1))
    return float(np.sqrt(((draws - truth) ** 2).sum(axis=1)).mean() - apart / 2)


@dataclass(frozen=True, eq=False)
class Shape:
    """The shapes of b posteriors."""

    residuals: Residuals
    y: np.ndarray  # (b, p)
    means: np.ndarray  # (b, d)
    log_scales: np.ndarray  # (b, d)

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: Any) -> Shape:
        return Shape(self.residuals, self.y[rows], self.means[rows], self.log_scales[rows])

    def draws(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """The i-th posterior as points (m, d) with weights ≥ 0."""
        return self.residuals.draws(self.y[i], self.means[i], self.log_scales[i])
