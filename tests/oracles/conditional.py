"""Conditional weights, and the choice of their regularisation."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from oracles.linalg import Array, pseudo_inverse, sample_weights


def conditional_weights(K: Array, k_x: Array, lam: float, w: ArrayLike | None = None) -> Array:
    """Weights beta(x) on the y_i of the conditional embedding (000, eq. 11; 001, Theorem 5).

    Uncentred: ``mu_Y|x = C_YX (C_XX + lam I)^-1 phi(x)``. With ``C_XX = sum w_i phi_i (x) phi_i``,
    ``beta = (W K + lam I)^-1 W k_x``, which is ``(K + n lam I)^-1 k_x`` for uniform weights.
    """
    n = len(K)
    w = sample_weights(w, n)
    if lam == 0:
        # C_YX C_XX^+ = Phi W^1/2 (W^1/2 K W^1/2)^+ W^1/2 Upsilon^T
        root = np.diag(np.sqrt(w))
        return root @ pseudo_inverse(root @ K @ root) @ root @ k_x
    W = np.diag(w)
    return np.linalg.solve(W @ K + lam * np.eye(n), W @ k_x)


def centred_conditional_weights(
    K: Array, k_x: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """Weights of the centred estimator of 001, Theorem 5, with the mean restored.

    ``mu_Y + C_YX (C_XX + lam I)^-1 (phi(x) - mu_X)``, covariances centred. As printed, the theorem
    leaves out ``mu_Y`` and ``mu_X``, and its weights sum to zero; these sum to one. For uniform
    weights ``1/n + (H K + n lam I)^-1 H (k_x - K 1/n)`` with ``H = I - 11^T/n``. In general ``H/n``
    becomes ``V = W - w w^T``.
    """
    n = len(K)
    w = sample_weights(w, n)
    query = (np.asarray(k_x, float).T - K @ w).T  # inner products of the sample with phi(x) - mu_X
    mean = w if query.ndim == 1 else w[:, None]
    if lam == 0:
        P = np.eye(n) - np.outer(w, np.ones(n))  # Phi P is Phi with its mean taken off
        root = P @ np.diag(np.sqrt(w))
        return mean + root @ pseudo_inverse(root.T @ K @ root) @ root.T @ query
    V = np.diag(w) - np.outer(w, w)
    return mean + np.linalg.solve(V @ K + lam * np.eye(n), V @ query)


def completed_conditional_weights(
    K: Array, k_x: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """Weights of the regression of ``phi(y) - mu_Y`` on ``phi(x)``, with ``mu_Y`` added back.

    ``mu_Y + (C_YX - mu_Y mu_X^T) (C_XX + lam I)^-1 phi(x)``: what the plain weights lack of a mass
    of one goes to the sample.
    """
    w = sample_weights(w, len(K))
    beta = conditional_weights(K, k_x, lam, w)
    missing = 1 - beta.sum(axis=0)
    return beta + (w * missing if beta.ndim == 1 else np.outer(w, missing))


ESTIMATORS = {
    False: conditional_weights,
    True: centred_conditional_weights,
    None: completed_conditional_weights,
}


def leave_one_out_error(
    K: Array, L: Array, lam: float, w: ArrayLike | None = None, centred: bool | None = False
) -> float:
    """Leave-one-out error of the operator-valued ridge regression, by refitting n times.

    The regression is 000's (section 3.2, after eq. 11; 002, section 3.1): minimise over C
    ``sum_j w_j ||psi(y_j) - C phi(x_j)||^2 + lam ||C||^2``. Leaving i out deletes its term and
    changes nothing else: the others keep their weights (1/n, not 1/(n-1)) and lam, so that the
    system solved is ``K_-i + n lam I`` with the same n. This is the scale on which the closed form
    ``||psi(y_i) - mu_Y|x_i||^2 / (1 - S_ii)^2``, ``S_ij = beta_j(x_i)``, is exact. Dividing the
    objective by ``1 - w_i`` shows it to be the ordinary estimator with weights ``w / (1 - w_i)``
    and regularisation ``lam / (1 - w_i)``, which is how it is computed here. ``centred=True``
    adds the intercept of the centred estimator, None centres psi(y) alone.

    ``L`` is the Gram matrix of Y in which the loss is measured (one fixed reference kernel).
    Returns ``sum_i w_i loss_i``, the mean for uniform weights.
    """
    n = len(K)
    w = sample_weights(w, n)
    estimator = ESTIMATORS[centred]
    total = 0.0
    for i in range(n):
        rest = np.delete(np.arange(n), i)
        scale = 1.0 - w[i]
        K_rest = K[np.ix_(rest, rest)]
        beta = estimator(K_rest, K[rest, i], lam / scale, w[rest] / scale)
        loss = L[i, i] - 2 * beta @ L[rest, i] + beta @ L[np.ix_(rest, rest)] @ beta
        total += w[i] * loss
    return float(total)
