"""Quantiles, scores, deviations and densities of points with weights ≥ 0."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meanmap import decoding
from meanmap.conditional.ranges import or_one
from meanmap.decoding import quantiles

ROUNDING = 1e-9  # of a correlation, added before it is factorised
TINY = 1e-3  # of the median residual, or of their spread: what a scale is at least


def interpolated_quantiles(
    values: np.ndarray, weights: np.ndarray, levels: np.ndarray
) -> np.ndarray:
    """Quantiles (levels, b) of sorted values (n,) with weights (b, n), linear between them."""
    F = np.cumsum(weights, axis=1)
    F -= weights / 2
    return np.stack([np.interp(levels, row, values) for row in F], axis=1)


def ranked_scores(values: np.ndarray, weights: np.ndarray, z: np.ndarray) -> np.ndarray:
    """`∫ (F(t) - 1(z ≤ t))² dt` for each z, F that of sorted values (n,) with weights (b, n)."""
    F = np.cumsum(weights, axis=1)[:, :-1]
    off = F - (values[:-1] >= z[:, None])
    off *= off
    at = np.clip(z, values[0], values[-1])
    # between two values the indicator changes within the step
    i = np.clip(np.searchsorted(values, at, side="right") - 1, 0, max(len(values) - 2, 0))
    found = off @ np.diff(values) + abs(z - at)
    if len(values) > 1:
        rows = np.arange(len(z))
        part = F[np.minimum(rows, len(F) - 1), i]
        step, before = values[i + 1] - values[i], at - values[i]
        inside = part**2 * before + (1 - part) ** 2 * (step - before)
        found += inside - off[rows, i] * step
    return found


def belief_quantiles(belief: tuple[np.ndarray, np.ndarray], levels: np.ndarray) -> np.ndarray:
    """Quantiles (levels, k) of points with weights."""
    points, p = belief
    return np.asarray(quantiles.Distribution(points, p[None, :]).quantile(levels)[:, 0])


def belief_scores(belief: tuple[np.ndarray, np.ndarray], y: np.ndarray) -> np.ndarray:
    """Ranked probability scores (k,) of an outcome."""
    points, p = belief
    orders = np.argsort(points, axis=0, kind="stable")
    return np.array(
        [
            ranked_scores(column[order], p[None, order], y[j : j + 1])[0]
            for j, (column, order) in enumerate(zip(points.T, orders.T, strict=True))
        ]
    )


def smooth_draws_of(
    points: np.ndarray, p: np.ndarray, n: int, rng: np.random.Generator, width: np.ndarray | None
) -> np.ndarray:
    """n draws (n, k) from a smooth density with the mean and covariance of points with weights.

    A point that is drawn moves by noise of the width that its density is estimated with, correlated
    as the points are, and towards the mean by as much as keeps the covariance (Silverman 1986,
    section 6.4).
    """
    chosen = points[np.minimum(np.searchsorted(np.cumsum(p), rng.random(n)), len(p) - 1)]
    width = decoding.widths(points, p) if width is None else width
    mean = p @ points
    away = points - mean
    covariance = (p[:, None] * away).T @ away
    deviation = or_one(np.sqrt(np.diag(covariance)))
    share = np.minimum(width / deviation, 1.0)
    correlation = covariance / np.outer(deviation, deviation)
    factor = np.linalg.cholesky(correlation + ROUNDING * np.eye(len(correlation)))
    noise = rng.normal(size=chosen.shape) @ factor.T
    return np.asarray(mean + np.sqrt(1 - share**2) * (chosen - mean) + share * deviation * noise)


def column_deviations(points: np.ndarray, p: np.ndarray) -> np.ndarray:
    """The standard deviation of each column."""
    return np.sqrt(p @ (points - p @ points) ** 2)


def residual_density(
    residuals: np.ndarray, weights_and_width: tuple[np.ndarray, np.ndarray], z: np.ndarray
) -> np.ndarray:
    """A density of residuals (n, k) at points z (m, k).

    Gaussians on the residuals; a new one lies beyond all n of them with a probability of about
    1/(n + 1), which a wide Cauchy density stands for.
    """
    p, h = weights_and_width
    spread = or_one(np.sqrt(p @ (residuals - p @ residuals) ** 2))
    h = np.where(h > 0, h, TINY * spread)
    inner = np.asarray(decoding.density(residuals, p, z, h))
    beyond = 1 / (1 + 1 / float(p @ p))
    wide = 1 / (np.pi * spread * (1 + ((z - p @ residuals) / spread) ** 2))
    return (1 - beyond) * inner + beyond * wide.prod(axis=1)


class LeftOutScores(NamedTuple):
    """Scores of rows that are left out, least is best."""

    values: np.ndarray  # (b,)
    weights: np.ndarray  # (b,), of sum 1

    @property
    def mean(self) -> float:
        return float(self.weights @ self.values)

    def excess(self, other: LeftOutScores) -> tuple[float, float]:
        """How much worse they are than others of the same rows, and the standard error of that."""
        worse = self.values - other.values
        excess = float(self.weights @ worse)
        return excess, float(np.sqrt(self.weights**2 @ (worse - excess) ** 2))
