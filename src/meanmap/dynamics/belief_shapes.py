"""How beliefs answer questions about probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import multivariate_normal, qmc

from meanmap.arrays import to_numpy
from meanmap.conditional.predictive import Predictive
from meanmap.conditional.shape import ShapeAt
from meanmap.embeddings import Embedding

POINTS = 512  # that a normal distribution is drawn as
ROUNDING = 1e-12  # added to a correlation before it is factorised
TAIL = 1e-12  # the least probability that a quantile is asked for


@dataclass(frozen=True, eq=False)
class NormalShape(ShapeAt):
    """Normal distributions of b beliefs."""

    mean: np.ndarray  # (b, d)
    covariance: np.ndarray  # (b, d, d)

    @property
    def scale(self) -> np.ndarray:
        """Standard deviations (b, d)."""
        return np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2))

    def __len__(self) -> int:
        return len(self.mean)

    def __getitem__(self, rows: Any) -> NormalShape:
        return NormalShape(self.mean[rows], self.covariance[rows])

    def belief(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        cloud = normal_cloud(self.mean.shape[1])
        root = covariance_roots(self.covariance[i : i + 1])[0]
        return self.mean[i] + cloud @ root.T, np.full(len(cloud), 1 / len(cloud))

    def std(self) -> np.ndarray:
        return self.scale

    def quantile(self, levels: np.ndarray) -> np.ndarray:
        z = ndtri(np.clip(levels, TAIL, 1 - TAIL))[:, None, None]
        return self.mean + self.scale * z

    def density(self, i: int, y: np.ndarray, bandwidth: Any) -> np.ndarray:
        law = multivariate_normal(self.mean[i], self.covariance[i], allow_singular=True)
        return np.atleast_1d(law.pdf(y))


@dataclass(frozen=True, eq=False)
class StretchedShape(ShapeAt):
    """Weighted points of b beliefs, moved away from their means or towards them."""

    beliefs: Embedding  # a batch
    stretch: float

    def __len__(self) -> int:
        return len(self.beliefs)

    def __getitem__(self, rows: Any) -> StretchedShape:
        return StretchedShape(self.beliefs[np.arange(len(self))[rows]], self.stretch)

    def belief(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        points, p = next(iter(self.beliefs[i].beliefs()))
        host, p = to_numpy(points).astype(np.float64), np.asarray(to_numpy(p), dtype=np.float64)
        centre = p @ host
        return centre + self.stretch * (host - centre), p

    def std(self) -> np.ndarray:
        return self.stretch * to_numpy(self.beliefs.std()).astype(np.float64)

    def quantile(self, levels: np.ndarray) -> np.ndarray:
        mean = to_numpy(self.beliefs.mean()).astype(np.float64)
        found = to_numpy(self.beliefs.quantile(levels)).astype(np.float64)
        return np.asarray(mean + self.stretch * (found - mean))


def stretch_beliefs(beliefs: Embedding, stretch: float) -> Embedding:
    """A batch of beliefs, whose probabilities are read from stretched points."""
    points = beliefs.atoms
    if stretch == 1 or isinstance(points, tuple) or points.ndim != 2:
        return beliefs
    if not beliefs.kernel.on_vectors:
        return beliefs
    return Predictive.of(beliefs, partial(known_shape, StretchedShape(beliefs, stretch)))


def covariance_roots(covariance: np.ndarray) -> np.ndarray:
    """L with `LLᵀ = P` of covariances (b, d, d), the same in all units of the columns."""
    scale = np.sqrt(np.maximum(np.diagonal(covariance, axis1=1, axis2=2), np.finfo(float).tiny))
    correlation = covariance / (scale[:, :, None] * scale[:, None, :])
    try:
        root = np.linalg.cholesky(correlation + ROUNDING * np.eye(scale.shape[1]))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(correlation)
        root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    return np.asarray(scale[:, :, None] * root)


@lru_cache(maxsize=8)
def normal_cloud(size: int) -> np.ndarray:
    """Points spread as a standard normal, with its mean and covariance."""
    uniform = qmc.Sobol(size, rng=0).random(POINTS)
    z = ndtri(np.clip(uniform, 1 / POINTS**2, 1 - 1 / POINTS**2))
    z -= z.mean(axis=0)
    values, vectors = np.linalg.eigh(z.T @ z / POINTS)
    return np.asarray(z @ (vectors / np.sqrt(values)) @ vectors.T)


def known_shape(shape: ShapeAt, means: np.ndarray) -> ShapeAt:
    """A shape that does not wait for means."""
    return shape
