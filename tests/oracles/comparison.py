"""Conditional tests: dense formulas with n x n inverses."""

from __future__ import annotations

import numpy as np

from oracles.conditional import conditional_weights
from oracles.linalg import Array


def kci_residual_maker(Kz: Array, lam: float) -> Array:
    """Zhang et al. (2011), eq. 10: ``R = eps (H Kz H + eps I)^-1 H``, with ``eps = n lam``."""
    n = len(Kz)
    H = np.eye(n) - np.ones((n, n)) / n
    return n * lam * np.linalg.inv(H @ Kz @ H + n * lam * np.eye(n)) @ H


def kci(Kx: Array, Ky: Array, Kz: Array, lam: float) -> tuple[float, float, float]:
    """Zhang et al. (2011), eq. 13 and Proposition 5: the statistic, its null's mean and variance.

    ``Kx`` is the Gram matrix of (X, Z). The null is ``sum_k lambda_k z_k^2 / n`` with the
    eigenvalues of ``w w^T``, whose rows are the products of the residuals' eigen-coordinates: of
    the Hadamard product of the two residual Gram matrices.
    """
    n = len(Kz)
    R = kci_residual_maker(Kz, lam)
    left, right = R @ Kx @ R.T, R @ Ky @ R.T
    eigenvalues = np.linalg.eigvalsh(left * right)
    statistic = np.trace(left @ right) / n
    return float(statistic), float(eigenvalues.sum() / n), float(2 * (eigenvalues**2).sum() / n**2)


def kci_refitted(Kx: Array, Ky: Array, Kz: Array, lam: float) -> Array:
    """``M`` of the null ``z^T M z`` for noise on X's side that passes through both regressions.

    The statistic is ``n^-1 ||Phi_x^T R R Phi_y||^2``. The noise of X's side is estimated by
    residuals divided by the share ``R_ii`` of it that each keeps.
    """
    R = kci_residual_maker(Kz, lam)
    D = np.diag(1 / np.diag(R))
    noise = D @ R @ Kx @ R.T @ D
    through = R @ R @ Ky @ R.T @ R.T
    return noise * through


def conditional_mmd(
    K1: Array, k1: Array, L1: Array, K2: Array, k2: Array, L2: Array, L12: Array, lam: float
) -> Array:
    """Park and Muandet (2020), section 4.1: ``||mu_1(x) - mu_2(x)||^2`` at queries, (q,).

    ``K_j`` and ``L_j`` are the Gram matrices of sample j, ``k_j`` its X against the queries, and
    ``L12`` compares the two samples' Y.
    """
    a, b = conditional_weights(K1, k1, lam), conditional_weights(K2, k2, lam)
    return np.array(
        [u @ L1 @ u - 2 * u @ L12 @ v + v @ L2 @ v for u, v in zip(a.T, b.T, strict=True)]
    )


def hscic(K: Array, L: Array, G: Array, g_z: Array, lam: float) -> Array:
    """Park and Muandet (2020), section 5.1: HSCIC at queries, (q,).

    ``K``, ``L`` and ``G`` are the Gram matrices of X, Y and Z, ``g_z`` is Z against the queries.
    """
    values = []
    for w in conditional_weights(G, g_z, lam).T:
        joint = w @ (K * L) @ w
        cross = w @ ((K @ w) * (L @ w))
        values.append(joint - 2 * cross + (w @ K @ w) * (w @ L @ w))
    return np.array(values)
