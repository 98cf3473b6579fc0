"""The papers' misprints, as printed: uniform weights, lam on the operator's scale."""

from __future__ import annotations

import numpy as np

from oracles.linalg import Array
from oracles.operators import operator_conditional, operator_joint


def printed_002_eq11(K: Array, K_prior: Array, alpha: Array, lam: float) -> Array:
    """002, eq. 11 and Figure 1, as printed: ``(G_X / n + eps I)^-1 m``; it is n times too large."""
    n = len(K)
    return np.linalg.solve(K / n + lam * np.eye(n), K_prior @ alpha)


def printed_002_bayes(
    K: Array, G: Array, K_prior: Array, alpha: Array, k_y: Array, lam: float, delta: float
) -> Array:
    """002, Figure 1, as printed: eq. 13 with the mu of :func:`printed_002_eq11`."""
    Lambda = np.diag(printed_002_eq11(K, K_prior, alpha, lam))
    LG = Lambda @ G
    return LG @ np.linalg.solve(LG @ LG + delta * np.eye(len(G)), Lambda @ k_y)


def printed_002_alpha1(G: Array, k_y: Array, lam: float) -> Array:
    """002, section 4.3, as printed: ``T (G_Y + T eps I)^-1 k_y``; the factor T is wrong."""
    T = len(G)
    return T * np.linalg.solve(G + T * lam * np.eye(T), k_y)


def printed_000_eq23(
    K: Array, G: Array, K_prior: Array, alpha: Array, k_y: Array, lam: float, delta: float
) -> Array:
    """000, eq. 23, as printed: ``Lambda^T ((D K)^2 + lambda~ I)^-1 K D K_:x`` in its letters."""
    n = len(K)
    Lambda = np.linalg.solve(K + n * lam * np.eye(n), K_prior @ np.diag(alpha))
    D = np.diag(np.linalg.solve(K + n * lam * np.eye(n), K_prior @ alpha))
    DG = D @ G
    return Lambda.T @ np.linalg.solve(DG @ DG + delta * np.eye(n), G @ D @ k_y)


def printed_003_bayes(
    K: Array, G: Array, K_prior: Array, alpha: Array, k_y: Array, delta: float
) -> Array:
    """003's Bayes rule as printed: lambda~ also where lambda belongs, and 000's eq. 23 copied.

    003 regularises ``G + lambda~ I`` with the lambda~ (here ``delta``) meant for the square.
    """
    return printed_000_eq23(K, G, K_prior, alpha, k_y, delta / len(K), delta)


def printed_003_mmd(K_aa: Array, K_bb: Array, K_ab: Array) -> float:
    """003's empirical MMD as printed: one double sum to n and m over all three kernels.

    ``1/(nm) sum_{i<=n} sum_{j<=m} [k(x_i, x_j) + k(y_i, y_j) - 2 k(x_i, y_j)]`` indexes past the
    end of a sample (``IndexError``) unless n = m.
    """
    n, m = K_ab.shape
    total = 0.0
    for i in range(n):
        for j in range(m):
            total += K_aa[i, j] + K_bb[i, j] - 2 * K_ab[i, j]
    return total / (n * m)


def printed_001_theorem5(K: Array, k_x: Array, lam: float) -> Array:
    """001, Theorem 5, as printed: ``(H K + lam m I)^-1 H k_x``; the weights sum to zero."""
    m = len(K)
    H = np.eye(m) - np.ones((m, m)) / m
    return np.linalg.solve(H @ K + lam * m * np.eye(m), H @ k_x)


def printed_001_theorem9(
    K: Array, U: Array, transfer: Array, beta: Array, u_o: Array, lam: float
) -> Array:
    """001, Theorem 9, as printed: ``(H K + H U + lam m I)^-1 H (G beta + u_o)``; sums to zero.

    ``K`` is the Gram of s^t, ``U`` of o^(t+1), ``transfer`` that of s^t (rows) against s^(t+1).
    It is Theorem 5 for the summed kernel; corrected,
    ``centred_conditional_weights(K + U, transfer @ beta + u_o, lam)``.
    """
    m = len(K)
    H = np.eye(m) - np.ones((m, m)) / m
    return np.linalg.solve(H @ K + H @ U + lam * m * np.eye(m), H @ (transfer @ beta + u_o))


def printed_004_conditional(PX: Array, PY: Array, lam: float) -> Array:
    """004, section 4.1, as printed: ``C_XX (C_YX + lam I)^-1``; the factors are swapped."""
    C_YX = operator_joint([PY, PX])
    return operator_joint([PX, PX]) @ np.linalg.inv(C_YX + lam * np.eye(len(C_YX)))


def printed_004_chain(PX: Array, PY: Array) -> Array:
    """004, section 2.1, as printed: ``C_YX = C_X|Y C_YY``; the right-hand side is ``C_XY``."""
    return operator_conditional(PY, PX, 0.0) @ operator_joint([PY, PY])
