"""Closed forms: Gaussians under the Gaussian kernel, one bandwidth or one per column."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from oracles.kernels import gaussian
from oracles.linalg import Array


def _kernel_covariance(bandwidth: ArrayLike, dimension: int) -> Array:
    """``Sigma`` in ``k(x, x') = exp(-(x - x')^T Sigma^-1 (x - x') / 2)``."""
    return np.diag(np.broadcast_to(np.asarray(bandwidth, float) ** 2, (dimension,)))


def gaussian_embedding(
    x: ArrayLike, mean: ArrayLike, covariance: ArrayLike, bandwidth: ArrayLike
) -> Array:
    """Mean embedding of N(m, S) under the Gaussian kernel at the rows of x (000, eq. 1).

    ``E[k(x, X)]``, a Gaussian integral:
    ``|Sigma|^1/2 |Sigma + S|^-1/2 exp(-(x - m)^T (Sigma + S)^-1 (x - m) / 2)``.
    """
    m, S = np.atleast_1d(np.asarray(mean, float)), np.atleast_2d(np.asarray(covariance, float))
    Sigma = _kernel_covariance(bandwidth, len(m))
    scale = np.sqrt(np.linalg.det(Sigma) / np.linalg.det(Sigma + S))
    difference = np.asarray(x, float) - m
    return scale * np.exp(
        -np.sum(difference * np.linalg.solve(Sigma + S, difference.T).T, axis=1) / 2
    )


def gaussian_inner(
    mean_1: ArrayLike,
    covariance_1: ArrayLike,
    mean_2: ArrayLike,
    covariance_2: ArrayLike,
    bandwidth: ArrayLike,
) -> float:
    """``<mu_P, mu_Q>`` of two Gaussians under the Gaussian kernel (000, eq. 1).

    ``E[k(X, Y)]`` for independent X, Y depends on X - Y ~ N(m1 - m2, S1 + S2) alone.
    """
    S = np.atleast_2d(np.asarray(covariance_1, float)) + np.asarray(covariance_2, float)
    point = np.atleast_2d(np.asarray(mean_1, float))
    return float(gaussian_embedding(point, mean_2, S, bandwidth)[0])


def gaussian_mmd_squared(
    mean_1: ArrayLike,
    covariance_1: ArrayLike,
    mean_2: ArrayLike,
    covariance_2: ArrayLike,
    bandwidth: ArrayLike,
) -> float:
    """Squared distance of the embeddings of two Gaussians (000, section 2.1)."""
    return (
        gaussian_inner(mean_1, covariance_1, mean_1, covariance_1, bandwidth)
        + gaussian_inner(mean_2, covariance_2, mean_2, covariance_2, bandwidth)
        - 2 * gaussian_inner(mean_1, covariance_1, mean_2, covariance_2, bandwidth)
    )


def distance_to_gaussian_squared(
    points: Array,
    weights: Array,
    mean: ArrayLike,
    covariance: ArrayLike,
    bandwidth: ArrayLike,
) -> float:
    """``||sum w_i k(x_i, .) - mu_N(m, S)||^2``: a weighted sample's distance to the truth."""
    weights = np.asarray(weights, float)
    return float(
        weights @ gaussian(points, points, bandwidth) @ weights
        - 2 * weights @ gaussian_embedding(points, mean, covariance, bandwidth)
        + gaussian_inner(mean, covariance, mean, covariance, bandwidth)
    )


def linear_gaussian_conditional_embedding(
    y: ArrayLike,
    x: ArrayLike,
    A: ArrayLike,
    b: ArrayLike,
    S: ArrayLike,
    bandwidth: ArrayLike,
) -> Array:
    """``mu_Y|x`` of P(Y|x) = N(A x + b, S), at the rows of y, for one x (000, eq. 6)."""
    return gaussian_embedding(y, np.asarray(A, float) @ np.asarray(x, float) + b, S, bandwidth)


def linear_gaussian_predictive(
    A: ArrayLike, b: ArrayLike, S: ArrayLike, prior_mean: ArrayLike, prior_covariance: ArrayLike
) -> tuple[Array, Array]:
    """Mean and covariance of Q(Y) for P(Y|x) = N(A x + b, S), X ~ N(m, C): the sum rule's truth."""
    A, C = np.asarray(A, float), np.asarray(prior_covariance, float)
    return A @ np.asarray(prior_mean, float) + b, A @ C @ A.T + S


def linear_gaussian_joint(
    A: ArrayLike, b: ArrayLike, S: ArrayLike, prior_mean: ArrayLike, prior_covariance: ArrayLike
) -> tuple[Array, Array]:
    """Mean and covariance of Q(X, Y), X first: the chain rule's truth."""
    A, C = np.asarray(A, float), np.asarray(prior_covariance, float)
    mean_y, S_y = linear_gaussian_predictive(A, b, S, prior_mean, C)
    return np.concatenate([prior_mean, mean_y]), np.block([[C, C @ A.T], [A @ C, S_y]])


def linear_gaussian_posterior(
    y: ArrayLike,
    A: ArrayLike,
    b: ArrayLike,
    S: ArrayLike,
    prior_mean: ArrayLike,
    prior_covariance: ArrayLike,
) -> tuple[Array, Array]:
    """Mean and covariance of Q(X|y), Bayes' rule's truth; several rows of y give rows of means."""
    A, C = np.asarray(A, float), np.asarray(prior_covariance, float)
    mean_y, S_y = linear_gaussian_predictive(A, b, S, prior_mean, C)
    gain = C @ A.T @ np.linalg.inv(S_y)
    mean = np.asarray(prior_mean, float) + (np.asarray(y, float) - mean_y) @ gain.T
    return mean, C - gain @ A @ C


def gaussian_conditional(
    mean: ArrayLike, covariance: ArrayLike, dimension_x: int
) -> tuple[Array, Array, Array]:
    """``A, b, S`` with P(Y|x) = N(A x + b, S) where (X, Y) ~ N(mean, covariance) (002, 5.1)."""
    mean, V = np.asarray(mean, float), np.asarray(covariance, float)
    d = dimension_x
    A = V[d:, :d] @ np.linalg.inv(V[:d, :d])
    return A, mean[d:] - A @ mean[:d], V[d:, d:] - A @ V[:d, d:]
