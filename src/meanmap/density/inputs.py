"""What a density is fitted to: points, weights, and coordinates for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from meanmap import checks
from meanmap.arrays import to_numpy
from meanmap.decoding.densities import density_bandwidths
from meanmap.density.candidates import NormalCandidates, RoundFrame, expected_kernel, gaussian_of
from meanmap.density.gaussian_mixtures import GaussianFit
from meanmap.density.selection import DistinctSample
from meanmap.embeddings import Embedding, embed


def distinct_points(
    X: Any, sample_weight: Any, kernel: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Different points, their weights of total one, and the kernel's bandwidths if known."""
    if isinstance(X, Embedding):
        points, w = _atoms(X, sample_weight)
        own = X.kernel
        kernel = own if kernel is None and own.power == 2 else kernel
    else:
        points = to_numpy(checks.vectors(X, "X")).astype(np.float64)
        w = to_numpy(checks.sample_weights(sample_weight, points, points))
    if kernel is not None and getattr(kernel, "power", None) != 2:
        raise TypeError(
            f"kernel: expected kernels.Gaussian, under which a Gaussian's embedding is known "
            f"in closed form, or None; got {kernel!r:.60}."
        )
    points, back = np.unique(points[w != 0], axis=0, return_inverse=True)
    w = np.bincount(back.ravel(), w[w != 0], len(points))
    sigma = None
    if kernel is not None:
        number = kernel.resolve(points, abs(w)).bandwidth
        sigma = np.broadcast_to(np.asarray(number, dtype=np.float64), points.shape[1:])
    return points, w, sigma


def frame_of(
    points: np.ndarray,
    p: np.ndarray,
    sigma: np.ndarray | None,
    bandwidth: Any,
    scaling: str,
) -> tuple[RoundFrame, float]:
    """Coordinates in which candidates are round, and the width there to start from."""
    d, size = points.shape[1], 1 / float(p @ p)
    mean = p @ points
    if not isinstance(bandwidth, str):
        factor = np.diag(density_bandwidths(bandwidth, d))
        return RoundFrame.of(mean, factor, sigma), 1.0
    checks.option(bandwidth, "bandwidth", ("auto",))
    centred = points - mean
    covariance = (centred.T * p) @ centred
    deviations = np.sqrt(np.diagonal(covariance))
    flat = np.flatnonzero(~(deviations > 1e-12 * (1e-300 + abs(points).max(axis=0))))
    if len(flat):
        raise ValueError(
            f"column {int(flat[0])} of X is constant ({len(points)} different points, "
            f"n_samples={len(points)}), so it has no density, and no scale to choose a "
            "bandwidth by. Leave the column out, or pass bandwidth=."
        )
    # correlations shrunk as far as so small a sample cannot tell them
    share = 0.0 if scaling == "columns" else size / (size + d)
    correlations = covariance / np.outer(deviations, deviations)
    shrunk = share * correlations + (1 - share) * np.eye(d)
    factor = deviations[:, None] * np.linalg.cholesky(shrunk)
    return RoundFrame.of(mean, factor, sigma), (4 / ((d + 2) * size)) ** (1 / (d + 4))


def _atoms(embedding: Embedding, sample_weight: Any) -> tuple[np.ndarray, np.ndarray]:
    """The points of an embedding, and its weights of total one."""
    if sample_weight is not None:
        raise ValueError("sample_weight goes with points; an embedding has its own weights.")
    if embedding.is_batch:
        raise TypeError("X is a batch of embeddings; fit one density each: fit(X[0]), ...")
    if not embedding.kernel.on_vectors:
        raise TypeError(
            f"a density needs points with coordinates, rows of (n, d); these are "
            f"{checks.describe(embedding.atoms)} under {embedding.kernel!r}."
        )
    points = to_numpy(embedding.atoms).astype(np.float64)
    return points, to_numpy(embedding.normalized().weights).astype(np.float64)


def probability_weights(points: np.ndarray, w: np.ndarray, sigma: np.ndarray | None) -> np.ndarray:
    """The nearest probability on the points, by which a width is chosen for signed weights."""
    kernel = None if sigma is None else gaussian_of(sigma)
    return to_numpy(embed(points, kernel, w).project().weights)


def square(sample: DistinctSample, sigma: np.ndarray) -> float:
    """`‖μ̂‖²`."""
    kernel = gaussian_of(sigma)
    return float(sample.target @ kernel.gram_times(sample.points, sample.points, sample.target))


def distance(
    sample: DistinctSample,
    candidates: NormalCandidates,
    proportions: np.ndarray,
    fits: GaussianFit | None,
    frame: RoundFrame,
    sigma: np.ndarray,
) -> float:
    """`‖μ̂ - μ[p]‖` for candidates in these proportions, and mixtures that have the rest."""
    alpha = proportions
    b = candidates.inner(sample.points, sample.target, sigma)
    parts = alpha.reshape(len(candidates.widths), -1)
    own = 0.0
    for a, left in zip(candidates.widths, parts, strict=True):
        for c, right in zip(candidates.widths, parts, strict=True):
            own += left @ expected_kernel(
                candidates.centres, a**2 + c**2, candidates.centres, sigma, right
            )
    total = square(sample, sigma) - 2 * alpha @ b + own
    if fits is not None:
        means, S = frame.to(fits.means), fits.covariances_in(frame)
        point = np.zeros_like(sigma)
        for p, mean, covariance in zip(fits.proportions, means, S, strict=True):
            others = zip(fits.proportions, means, S, strict=True)
            total += p * sum(
                q * float(normal_kernel(mean, covariance, m, C, sigma)[0]) for q, m, C in others
            )
            seen = normal_kernel(mean, covariance, sample.points, np.diag(point), sigma)
            total -= 2 * p * float(sample.target @ seen)
            for h, part in zip(candidates.widths, parts, strict=True):
                spread = np.diag(point + h * h)
                seen = normal_kernel(mean, covariance, candidates.centres, spread, sigma)
                total += 2 * p * float(part @ seen)
    return float(np.sqrt(max(total, 0.0)))


def normal_kernel(
    mean: np.ndarray, A: np.ndarray, others: np.ndarray, B: np.ndarray, sigma: np.ndarray
) -> np.ndarray:
    """The kernel's mean between `N(mean, A)` and `N(x, B)` for some x: (m,)."""
    factor = np.linalg.cholesky(A + B + np.diag(sigma**2))
    scaled = solve_triangular(factor, (np.atleast_2d(others) - mean).T, lower=True)
    volume = np.log(sigma).sum() - np.log(np.diagonal(factor)).sum()
    return np.asarray(np.exp(volume - (scaled**2).sum(axis=0) / 2))
