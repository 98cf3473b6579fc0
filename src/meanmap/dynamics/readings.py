"""How beliefs answer questions about probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import multivariate_normal, qmc

from meanmap.conditional.shape import ShapeAt

POINTS = 512  # that a normal distribution is drawn as
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
        values, vectors = np.linalg.eigh(self.covariance[i])
        root = np.sqrt(np.maximum(values, 0.0)) * vectors
        return self.mean[i] + cloud @ root.T, np.full(len(cloud), 1 / len(cloud))

    def std(self) -> np.ndarray:
        return self.scale

    def quantile(self, levels: np.ndarray) -> np.ndarray:
        z = ndtri(np.clip(levels, TAIL, 1 - TAIL))[:, None, None]
        return self.mean + self.scale * z

    def density(self, i: int, y: np.ndarray, bandwidth: Any) -> np.ndarray:
        law = multivariate_normal(self.mean[i], self.covariance[i], allow_singular=True)
        return np.atleast_1d(law.pdf(y))


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
