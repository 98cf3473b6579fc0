"""Mixtures of a few Gaussians of any shape, by EM, and how several densities share one answer.

The programme's candidates all have one shape. Where the data are a few clusters, or many columns
depend on each other in ways that change from place to place, components with covariances of their
own say more. They are fitted for several numbers of components, with covariances drawn towards
what the components share, or towards independent columns; which of these densities is good for how
much is decided by points held out (stacking: Smyth and Wolpert 1999).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp
from sklearn.cluster import KMeans

from meanmap.arrays import spans
from meanmap.density.candidates import BLOCK, RoundFrame
from meanmap.density.selection import DistinctSample

COUNTS = (1, 2, 3, 4, 6, 8, 12)  # components that are tried
ROWS = 2000  # points at most that mixtures are compared on
ALL = 20_000  # and that one is fitted to
EACH = 5  # effective points a component, at least
STEPS = 100  # of EM
GAIN = 1e-3  # of the mean log-likelihood, below which EM ends
FLOOR = 1e-4  # added to the variances of columns, in units of theirs
STARTS = 2  # of k-means
SHARE = 0.02  # of a density in the answer, below which it is left out
ROUNDS = 500  # of the iteration for the shares


class Shrinkage(NamedTuple):
    """How strongly covariances are drawn, in points, and to what."""

    points: float
    diagonal: bool  # a component's own variances, without correlations; else what all share


@dataclass(frozen=True)
class GaussianFit:
    """`Σ πₖ N(mₖ, LₖLₖᵀ)`, where the proportions may sum to less than one."""

    proportions: np.ndarray  # (k,)
    means: np.ndarray  # (k, d)
    factors: np.ndarray  # (k, d, d) lower triangular

    def logs(self, Z: np.ndarray) -> np.ndarray:
        """`log πₖ N(z; mₖ, LₖLₖᵀ)`, one row per point."""
        d = Z.shape[1]
        scaled = np.linalg.solve(self.factors, (Z - self.means[:, None, :]).swapaxes(1, 2))
        volumes = np.log(np.diagonal(self.factors, axis1=1, axis2=2)).sum(axis=1)
        constants = np.log(self.proportions) - volumes - d / 2 * np.log(2 * np.pi)
        return np.asarray((constants[:, None] - (scaled**2).sum(axis=1) / 2).T)

    def density(self, Z: np.ndarray) -> np.ndarray:
        """The log-density, in blocks of points."""
        out = np.empty(len(Z))
        for block in spans(len(Z), max(1, BLOCK // self.means.size)):
            out[block] = logsumexp(self.logs(Z[block]), axis=1)
        return out

    @property
    def covariances(self) -> np.ndarray:
        """`LₖLₖᵀ`."""
        return np.asarray(self.factors @ self.factors.swapaxes(1, 2))

    def covariances_in(self, frame: RoundFrame) -> np.ndarray:
        """The covariances in coordinates of a frame."""
        turned = np.linalg.solve(frame.factor @ frame.rotation, self.factors)
        return np.asarray(turned @ turned.swapaxes(1, 2))

    def place(self, which: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Points of the components named, from standard normal noise."""
        return self.means[which] + np.einsum("nij,nj->ni", self.factors[which], noise)


def shrinkages(d: int) -> tuple[Shrinkage, ...]:
    """Covariances nearly free, half drawn to independent columns, and all of the way."""
    free = Shrinkage(2.0, False)
    return (free,) if d == 1 else (free, Shrinkage(2.0 * d, True), Shrinkage(np.inf, True))


def fit_components(
    Z: np.ndarray, w: np.ndarray, size: float, start: np.ndarray, shrinkage: Shrinkage
) -> GaussianFit:
    """The mixture by EM from the components' shares of every point, (n, k).

    Weights w sum to one and are worth `size` points. With n points in a component of scatter W its
    covariance is `(W + νS)/(n + ν)`, for S that of all components together or the diagonal of its
    own, ν points of shrinkage.
    """
    shares, before = start, -np.inf
    for _ in range(STEPS):
        found = maximise(Z, w, size, shares, shrinkage)
        logs = found.logs(Z)
        totals = logsumexp(logs, axis=1)
        now = float(w @ totals)
        if now - before < GAIN:
            break
        shares, before = np.exp(logs - totals[:, None]), now
    return found


def maximise(
    Z: np.ndarray, w: np.ndarray, size: float, shares: np.ndarray, shrinkage: Shrinkage
) -> GaussianFit:
    """The likeliest mixture for these shares, but for what covariances are drawn towards."""
    R = w[:, None] * shares
    p = np.maximum(R.sum(axis=0), 1e-12)
    means = (R.T @ Z) / p[:, None]
    gaps = Z - means[:, None, :]
    W = (gaps * R.T[:, :, None]).swapaxes(1, 2) @ gaps  # scatter over the size
    pooled = W.sum(axis=0)
    here = np.arange(Z.shape[1])
    if shrinkage.diagonal:
        towards = np.zeros_like(W)
        # two points' worth of what is common keeps the variances of small components
        own = (size * W + 2 * pooled)[:, here, here] / (size * p + 2)[:, None]
        towards[:, here, here] = own
    else:
        towards = np.broadcast_to(pooled, W.shape)
    share = (size * p / (size * p + shrinkage.points))[:, None, None]
    S = share * W / p[:, None, None] + (1 - share) * towards
    S[:, here, here] += FLOOR
    return GaussianFit(p / p.sum(), means, np.linalg.cholesky(S))


def first_shares(Z: np.ndarray, w: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Clusters by k-means."""
    if k == 1:
        return np.ones((len(Z), 1))
    seed = int(rng.integers(2**31))
    labels = KMeans(k, n_init=STARTS, random_state=seed).fit_predict(Z, sample_weight=w)
    return np.eye(k)[labels]


def shares_of_densities(logs: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The proportions in which densities, one per column, make held-out points likeliest.

    Concave, and solved by EM. Small shares are set to 0.
    """
    heights = np.exp(logs - logs.max(axis=1)[:, None])
    theta = np.full(logs.shape[1], 1 / logs.shape[1])
    for _ in range(ROUNDS):
        mixed = heights * theta
        again = w @ (mixed / mixed.sum(axis=1)[:, None]) / w.sum()
        change, theta = float(abs(again - theta).max()), again
        if change < 1e-5:
            break
    theta = np.where(theta >= min(SHARE, theta.max()), theta, 0.0)
    return np.asarray(theta / theta.sum())


def stack_fits(
    points: np.ndarray, sample: DistinctSample, own: np.ndarray, rng: np.random.Generator
) -> tuple[float, GaussianFit | None]:
    """The share of a density, and the mixtures that have the rest.

    `own` is its log at the points that judge, from the others.
    """
    w = sample.weights
    mean = w @ points
    deviation = np.sqrt(w @ (points - mean) ** 2)
    Z = (points - mean) / deviation
    looked = sample.judging_points()
    tried = [k for k in COUNTS if k == 1 or EACH * k <= sample.size * 0.8]
    kinds = [(k, kind) for k in tried for kind in shrinkages(Z.shape[1])]
    logs = held_out_logs(Z, sample, looked, kinds, rng) - np.log(deviation).sum()
    theta = shares_of_densities(np.column_stack([own, logs]), w[looked])
    rows = rows_with_weight(w, ALL, rng)
    v = w[rows] / w[rows].sum()
    starts = {k: first_shares(Z[rows], v, k, rng) for k in tried}
    found = [
        (share, fit_components(Z[rows], v, float(1 / (v @ v)), starts[k], kind))
        for (k, kind), share in zip(kinds, theta[1:], strict=True)
        if share > 0
    ]
    if not found:
        return 1.0, None
    return float(theta[0]), GaussianFit(
        np.concatenate([share * fit.proportions for share, fit in found]),
        np.concatenate([mean + deviation * fit.means for _, fit in found]),
        np.concatenate([deviation[:, None] * fit.factors for _, fit in found]),
    )


def held_out_logs(
    Z: np.ndarray,
    sample: DistinctSample,
    looked: np.ndarray,
    kinds: list[tuple[int, Shrinkage]],
    rng: np.random.Generator,
) -> np.ndarray:
    """Log-densities of points under mixtures fitted without their fold, one column per kind."""
    out = np.empty((len(looked), len(kinds)))
    for fold in range(sample.folds.max() + 1):
        rows = np.flatnonzero(sample.folds != fold)
        rows = rows[rows_with_weight(sample.weights[rows], ROWS, rng)]
        w = sample.weights[rows] / sample.weights[rows].sum()
        judge = sample.folds[looked] == fold
        starts: dict[int, np.ndarray] = {}
        for j, (k, kind) in enumerate(kinds):
            if k not in starts:
                starts[k] = first_shares(Z[rows], w, k, rng)
            found = fit_components(Z[rows], w, float(1 / (w @ w)), starts[k], kind)
            out[judge, j] = logsumexp(found.logs(Z[looked[judge]]), axis=1)
    return out


def rows_with_weight(w: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of positive weight, at most so many of them."""
    rows = np.flatnonzero(w > 0)
    return rows if len(rows) <= most else np.sort(rng.choice(rows, most, replace=False))
