"""The candidates: round Gaussians in coordinates of their own, and their embeddings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

from meanmap.arrays import spans
from meanmap.kernels import Gaussian

BLOCK = 1 << 22  # log-densities in memory at a time


@dataclass(frozen=True)
class RoundFrame:
    """`z = Uᵀ B⁻¹ (x - m)`: a candidate of covariance BBᵀ is round there, the kernel diagonal."""

    centre: np.ndarray  # m
    factor: np.ndarray  # B, lower triangular
    rotation: np.ndarray  # U

    @classmethod
    def of(cls, centre: np.ndarray, factor: np.ndarray, sigma: np.ndarray | None) -> RoundFrame:
        """For a kernel of bandwidths σ, one per column; None is one that is round in z as well."""
        d = len(centre)
        if sigma is None:
            return cls(centre, factor, np.eye(d))
        scaled = factor / sigma[:, None]
        return cls(centre, factor, np.linalg.eigh(scaled.T @ scaled)[1])

    def bandwidths(self, sigma: np.ndarray) -> np.ndarray:
        """The kernel's bandwidths along the axes of z."""
        return 1 / np.linalg.norm((self.factor @ self.rotation) / sigma[:, None], axis=0)

    @property
    def log_volume(self) -> float:
        """log |det B|, by which log-densities of x are less than those of z."""
        return float(np.log(np.diagonal(self.factor)).sum())

    def to(self, X: np.ndarray) -> np.ndarray:
        """z of rows x."""
        return solve_triangular(self.factor, (X - self.centre).T, lower=True).T @ self.rotation

    def back(self, Z: np.ndarray) -> np.ndarray:
        """x of rows z."""
        return Z @ self.rotation.T @ self.factor.T + self.centre


@dataclass(frozen=True)
class NormalCandidates:
    """`N(c, h²I)` for every centre c at the first width h, then for every centre at the next."""

    centres: np.ndarray  # (c, d)
    widths: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.centres) * len(self.widths)

    @property
    def means(self) -> np.ndarray:
        """The centre of every candidate."""
        return np.tile(self.centres, (len(self.widths), 1))

    @property
    def deviations(self) -> np.ndarray:
        """The width of every candidate."""
        return np.repeat(self.widths, len(self.centres))

    def gram(self, sigma: np.ndarray) -> np.ndarray:
        """`⟨μⱼ, μₖ⟩`: a Gaussian kernel between Gaussians is one of variance σ² + hⱼ² + hₖ²."""
        blocks = [
            [expected_kernel(self.centres, a**2 + b**2, self.centres, sigma) for b in self.widths]
            for a in self.widths
        ]
        return np.block(blocks)

    def inner(self, Z: np.ndarray, weights: np.ndarray, sigma: np.ndarray) -> np.ndarray:
        """`⟨μ̂, μₖ⟩` of weighted points: (m,), or (m, q) for q columns of weights."""
        return np.concatenate(
            [expected_kernel(self.centres, h**2, Z, sigma, weights) for h in self.widths]
        )

    def logs(self, Z: np.ndarray) -> np.ndarray:
        """The log-density of every candidate at every point: (n, m)."""
        d = Z.shape[1]
        squares = cdist(Z, self.centres, "sqeuclidean")
        parts = [
            -squares / (2 * h * h) - d * np.log(h) - d / 2 * np.log(2 * np.pi) for h in self.widths
        ]
        return np.concatenate(parts, axis=1)

    def density(self, Z: np.ndarray, proportions: np.ndarray) -> np.ndarray:
        """The mixture's log-density, without underflow however far from the candidates."""
        kept = proportions > 0
        log_alpha = np.log(proportions[kept])
        out = np.empty(len(Z))
        for block in spans(len(Z), max(1, BLOCK // len(self))):
            out[block] = logsumexp(self.logs(Z[block])[:, kept] + log_alpha, axis=1)
        return out


def gaussian_of(bandwidths: np.ndarray) -> Gaussian:
    """The kernel with these bandwidths, one per column."""
    return Gaussian(tuple(float(sigma) for sigma in bandwidths))


def expected_kernel(
    A: np.ndarray,
    variance: float,
    B: np.ndarray,
    sigma: np.ndarray,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """`E k(a + u, b)` for u ~ N(0, variance), a matrix; times weights of the b where given."""
    wide = np.sqrt(sigma**2 + variance)
    kernel = gaussian_of(wide)
    values = kernel.gram_matrix(A, B) if weights is None else kernel.gram_times(A, B, weights)
    return float(np.prod(sigma / wide)) * values
