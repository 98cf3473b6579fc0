"""Kernels by explicit broadcasting of differences, and explicit features."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from oracles.linalg import Array


def scaled_distances(A: ArrayLike, B: ArrayLike, bandwidth: ArrayLike) -> Array:
    """Return ``||(a - b) / bandwidth||_2`` for every pair; one bandwidth per column is allowed."""
    A, B = np.asarray(A, float), np.asarray(B, float)
    difference = (A[:, None, :] - B[None, :, :]) / np.asarray(bandwidth, float)
    return np.sqrt((difference**2).sum(axis=-1))


def gaussian(A: ArrayLike, B: ArrayLike, bandwidth: ArrayLike) -> Array:
    """Gaussian kernel ``exp(-||a - b||^2 / (2 sigma^2))`` (002, section 4.1)."""
    return np.exp(-(scaled_distances(A, B, bandwidth) ** 2) / 2)


def laplace(A: ArrayLike, B: ArrayLike, bandwidth: ArrayLike) -> Array:
    """Laplace kernel ``exp(-||a - b||_2 / sigma)`` (000, section 2.1), Euclidean norm."""
    return np.exp(-scaled_distances(A, B, bandwidth))


def matern(A: ArrayLike, B: ArrayLike, bandwidth: ArrayLike, nu: float = 1.5) -> Array:
    """Matern kernel for ``nu`` 1/2, 3/2, 5/2 (Rasmussen and Williams 2006, eq. 4.17)."""
    r = scaled_distances(A, B, bandwidth)
    if nu == 0.5:
        return np.exp(-r)
    if nu == 1.5:
        return (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r)
    if nu == 2.5:
        return (1 + np.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-np.sqrt(5) * r)
    raise ValueError(f"nu must be 0.5, 1.5 or 2.5, got {nu}")


def rational_quadratic(
    A: ArrayLike, B: ArrayLike, bandwidth: ArrayLike, alpha: float = 1.0
) -> Array:
    """``(1 + r^2 / (2 alpha sigma^2))^-alpha`` (Rasmussen and Williams 2006, eq. 4.19)."""
    return (1 + scaled_distances(A, B, bandwidth) ** 2 / (2 * alpha)) ** -alpha


def polynomial(A: ArrayLike, B: ArrayLike, degree: int = 2, offset: float = 1.0) -> Array:
    """Polynomial kernel ``(<a, b> + c)^d`` (000, section 2)."""
    A, B = np.asarray(A, float), np.asarray(B, float)
    return ((A[:, None, :] * B[None, :, :]).sum(axis=-1) + offset) ** degree


def linear(A: ArrayLike, B: ArrayLike) -> Array:
    """Linear kernel ``<a, b>`` (001, section 6)."""
    A, B = np.asarray(A, float), np.asarray(B, float)
    return (A[:, None, :] * B[None, :, :]).sum(axis=-1)


def trace(A: ArrayLike, B: ArrayLike) -> Array:
    """Trace kernel ``tr(A^T B)`` on matrices (n, p, p) (001, section 5; 000, section 5.2.3)."""
    A, B = np.asarray(A, float), np.asarray(B, float)
    return (A[:, None, :, :] * B[None, :, :, :]).sum(axis=(-2, -1))


def delta(A: ArrayLike, B: ArrayLike) -> Array:
    """Kronecker delta on labels (n,) or on rows (n, d) (000, eq. 3)."""
    A, B = np.asarray(A), np.asarray(B)
    if A.ndim == 1:
        A, B = A[:, None], B[:, None]
    return (A[:, None, :] == B[None, :, :]).all(axis=-1).astype(float)


def polynomial_features(A: ArrayLike, degree: int = 2, offset: float = 1.0) -> Array:
    """Features of :func:`polynomial`: the ``degree``-fold tensor power of ``(a, sqrt(c))``."""
    A = np.asarray(A, float)
    base = np.column_stack([A, np.full(len(A), np.sqrt(offset))])
    features = np.ones((len(A), 1))
    for _ in range(degree):
        features = np.einsum("ni,nj->nij", features, base).reshape(len(A), -1)
    return features


def delta_features(labels: ArrayLike, categories: ArrayLike) -> Array:
    """One-hot features of :func:`delta` (000, eq. 3): phi(x) is the standard basis vector e_x."""
    return delta(labels, categories)


def trace_features(A: ArrayLike) -> Array:
    """Features of :func:`trace`: the matrices laid out as vectors."""
    A = np.asarray(A, float)
    return A.reshape(len(A), -1)


def empirical_features(gram: ArrayLike) -> Array:
    """Features of any kernel on a finite set of points, from the eigenvectors of its Gram matrix.

    Give the Gram matrix of the sample, the prior's atoms and the queries together, and slice.
    """
    values, vectors = np.linalg.eigh(np.asarray(gram, float))
    return vectors * np.sqrt(np.maximum(values, 0.0))
