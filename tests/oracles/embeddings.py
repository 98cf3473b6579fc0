"""Norms, decoding and spreads of weighted samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from oracles.linalg import Array, root_of_squared, sample_weights


def decoding_objective(beta: Array, g_y: Array, k_yy: float) -> float:
    """Posterior decoding, 000, Algorithm V, eq. 26; 001, eq. 12: ``-2 beta^T G_:y + k(y, y)``.

    It is ``||mu - phi(y)||^2`` less the constant ``||mu||^2``.
    """
    total = float(k_yy)
    for i in range(len(beta)):
        total -= 2.0 * beta[i] * g_y[i]
    return total


def fixed_point_step(X: Array, rho: Array, bandwidth: ArrayLike, x: Array) -> Array:
    """One step of the fixed point for a Gaussian kernel's pre-image (002, section 4.1)."""
    numerator, denominator = np.zeros(X.shape[1]), 0.0
    for X_i, rho_i in zip(X, rho, strict=True):
        k = np.exp(-np.sum(((X_i - x) / np.asarray(bandwidth, float)) ** 2) / 2)
        numerator = numerator + X_i * rho_i * k
        denominator = denominator + rho_i * k
    return numerator / denominator


def fixed_point(
    X: Array, rho: Array, bandwidth: ArrayLike, start: Array, steps: int = 200
) -> Array:
    """Iterate the fixed point of 002, section 4.1, from ``start``."""
    x = np.asarray(start, float)
    for _ in range(steps):
        x = fixed_point_step(X, rho, bandwidth, x)
    return x


def inner_product(alpha: Array, K_ab: Array, beta: Array) -> float:
    """``<sum alpha_i phi(a_i), sum beta_j phi(b_j)>`` by the reproducing property (000, eq. 1)."""
    total = 0.0
    for i in range(len(alpha)):
        for j in range(len(beta)):
            total += alpha[i] * K_ab[i, j] * beta[j]
    return total


def rkhs_relative_error(estimate: Array, truth: Array, K: Array) -> float:
    """``||sum (estimate - truth)_i phi_i|| / ||sum truth_i phi_i||``, weights on the same atoms."""
    difference = np.asarray(estimate, float) - truth
    return root_of_squared(difference @ K @ difference) / root_of_squared(truth @ K @ truth)


def pair_norm(M: Array, K_rows: Array, K_columns: Array) -> float:
    """Norm of ``sum_ij M_ij phi_i (x) psi_j`` (000, eq. 2): ``tr(M^T K_rows M K_columns)^1/2``."""
    squared = np.einsum("ij,ik,kl,jl->", M, K_rows, M, K_columns, optimize=True)
    return root_of_squared(squared)


def joint_norm(grams: Sequence[Array], w: ArrayLike | None = None, centred: bool = False) -> float:
    """Norm of the joint embedding of two or more variables (000, eq. 2; 001, eq. 3).

    ``E[phi(X) (x) psi(Y) (x) ...]``; ``centred=True`` takes each variable's mean off first, as the
    cross-covariance of 001 does: for two variables the square is the (biased) HSIC.
    """
    n = len(grams[0])
    w = sample_weights(w, n)
    P = np.eye(n) - np.outer(w, np.ones(n)) if centred else np.eye(n)
    product = np.ones((n, n))
    for K in grams:
        product = product * (P.T @ K @ P)
    return root_of_squared(w @ product @ w)


def monotone_variance(weights: Array, values: Array) -> float:
    """The variance under F made monotone, half way between its envelopes; one column."""
    n = len(values)
    order = sorted(range(n), key=lambda i: values[i])
    F, total = [], 0.0
    for i in order:
        total += weights[i]
        F.append(total)
    F = [height / total for height in F]
    middle = [(max(F[: i + 1]) + min(F[i:])) / 2 for i in range(n)]
    middle = [min(max(height, 0.0), 1.0) for height in middle]
    middle[-1] = 1.0
    p = np.array([middle[0], *(middle[i] - middle[i - 1] for i in range(1, n))])
    x = np.array([values[i] for i in order])
    found = float(p @ (x - p @ x) ** 2)
    if found > 0:
        return found
    p = np.maximum(weights, 0) / np.maximum(weights, 0).sum()
    return float(p @ (values - p @ values) ** 2)
