"""Causal functions with Gram matrices of all rows, one formula after the other."""

from __future__ import annotations

from typing import Any

import numpy as np


def factor_gram(factor: Any, A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """1 + Σ w a b + h p(√(Σ v (a - b)²)) pair by pair, p a Gaussian or Matérn's of order 5/2."""
    out = np.empty((len(A), len(B)))
    for i, a in enumerate(A):
        for j, b in enumerate(B):
            r = float(np.sqrt((factor.sharpness * (a - b) ** 2).sum()))
            smooth, rough = (
                np.exp(-(r**2) / 2),
                (1 + 5**0.5 * r + 5 * r**2 / 3) * np.exp(-(5**0.5) * r),
            )
            bump = factor.height * (rough if factor.rough else smooth)
            out[i, j] = 1 + (factor.linear * a * b).sum() + bump
    return out


def dense_dose_response(
    factors: tuple[Any, Any],
    t: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    eta: float,
    at: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Singh, Xu and Gretton (2024), Theorem 3: K_t ∘ (the mean of K_x) (K_T ∘ K_X + ηI)⁻¹ y.

    And the posterior covariance of these means, over the variance of the noise.
    """
    one, two = factors
    K_T, K_X = factor_gram(one, t, t), factor_gram(two, x, x)
    A = K_T * K_X + eta * np.eye(len(y))
    k = factor_gram(one, at, t) * K_X.mean(axis=0)
    mean = y.mean() + k @ np.linalg.solve(A, y - y.mean())
    own = factor_gram(one, at, at) * K_X.mean()
    return mean, (own - k @ np.linalg.solve(A, k.T)) / eta


def left_out_smoother(psi: np.ndarray, regularization: float) -> np.ndarray:
    """Weights of all other rows in each row's ridge regression with a free constant, one by one."""
    n = len(psi)
    H = np.zeros((n, n))
    for i in range(n):
        others = np.delete(np.arange(n), i)
        P = np.column_stack([psi[others], np.ones(n - 1)])
        penalty = n * regularization * np.eye(P.shape[1])
        penalty[-1, -1] = 0.0
        weights = np.linalg.solve(P.T @ P + penalty, P.T)
        H[i, others] = np.append(psi[i], 1.0) @ weights
    return H


def dense_instrumental_regression(
    factor: Any, H: np.ndarray, t: np.ndarray, y: np.ndarray, eta: float, at: np.ndarray
) -> np.ndarray:
    """Singh, Sahani and Gretton (2019), eq. 5: K_t Hᵀ (H K Hᵀ + ηI)⁻¹ y."""
    K = factor_gram(factor, t, t)
    a = np.linalg.solve(H @ K @ H.T + eta * np.eye(len(y)), y - y.mean())
    return y.mean() + factor_gram(factor, at, t) @ H.T @ a
