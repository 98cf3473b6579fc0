"""Slow, obvious truth: the papers' dense formulas in plain NumPy, errata corrected.

Nothing here imports the library. Every function is a direct transcription of an equation, favouring
loops and full matrices over speed, so that it can be checked against the paper by eye. Labels used
in names and docstrings:

* 000: Song, Fukumizu and Gretton (2013), Kernel embeddings of conditional distributions
* 001: Song, Huang, Smola and Fukumizu (2009), Hilbert space embeddings of conditional distributions
* 002: Fukumizu, Song and Gretton (2013), Kernel Bayes' rule
* 003: the encyclopedia article on kernel embeddings of distributions
* 004: the lecture notes on kernel graphical models

Conventions
-----------
One direction throughout, that of 002: the conditional is P(Y|X) and priors are on X, whatever
letters the paper uses. The sample is ``(x_i, y_i)`` with weights ``w_i`` that sum to one
(``w=None``: uniform, ``1/n``); ``W = diag(w)``.

=============  =====================================================================
``K``          Gram matrix of the sample's X, (n, n)
``G``          Gram matrix of the sample's Y, (n, n)
``K_prior``    ``k(x_i, x~_j)``, sample against the prior's atoms, (n, m)
``alpha``      the prior's weights on its atoms, (m,)
``k_x, k_y``   sample against queries, (n,) for one query or (n, q) for several
``lam``        regularisation on the operator's scale: ``C_XX + lam I`` is ``K + n lam I``
``delta``      second regularisation, on the scale of ``C_WW**2`` (squared) or ``C_WW``
=============  =====================================================================

000 writes ``K + lambda I``: its lambda is ``n * lam`` here. Regularisation 0 means pseudo-inverse.
Weights come back with the shape of the query: (n,) or (n, q), one column a query.

Functions called ``operator_*`` take explicit feature matrices instead, one row a point
(``k(x, x') = phi(x) . phi(x')``), and write the operator with sums of outer products: they are what
the Gram forms are checked against. Functions called ``printed_*`` are a paper's formula exactly as
printed where it is wrong, kept so that tests can show that the correction matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
from numpy.typing import ArrayLike, NDArray
from scipy.stats import multivariate_normal

Array = NDArray[Any]  # float64 throughout, except labels

# Relative cut below which an eigenvalue counts as zero where regularisation is 0.
RANK_TOLERANCE = 1e-10


# --------------------------------------------------------------------------------------
# 1. Kernels, by explicit broadcasting of differences
# --------------------------------------------------------------------------------------


def _distances(A: ArrayLike, B: ArrayLike, bandwidth: ArrayLike) -> Array:
    """Return ``||(a - b) / bandwidth||_2`` for every pair; one bandwidth a column is allowed."""
    A, B = np.asarray(A, float), np.asarray(B, float)
    difference = (A[:, None, :] - B[None, :, :]) / np.asarray(bandwidth, float)
    return np.sqrt((difference**2).sum(axis=-1))


def gaussian(A: ArrayLike, B: ArrayLike, bandwidth: ArrayLike) -> Array:
    """Gaussian kernel ``exp(-||a - b||^2 / (2 sigma^2))`` (002, section 4.1)."""
    return np.exp(-(_distances(A, B, bandwidth) ** 2) / 2)


def laplace(A: ArrayLike, B: ArrayLike, bandwidth: ArrayLike) -> Array:
    """Laplace kernel ``exp(-||a - b||_2 / sigma)`` (000, section 2.1), Euclidean norm."""
    return np.exp(-_distances(A, B, bandwidth))


def matern(A: ArrayLike, B: ArrayLike, bandwidth: ArrayLike, nu: float = 1.5) -> Array:
    """Matern kernel for ``nu`` 1/2, 3/2, 5/2 (Rasmussen and Williams 2006, eq. 4.17)."""
    r = _distances(A, B, bandwidth)
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
    return (1 + _distances(A, B, bandwidth) ** 2 / (2 * alpha)) ** -alpha


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


# --------------------------------------------------------------------------------------
# Explicit features: k(x, x') = phi(x) . phi(x'), one row a point
# --------------------------------------------------------------------------------------


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


# --------------------------------------------------------------------------------------
# Helpers
# --------------------------------------------------------------------------------------


def _weights(w: ArrayLike | None, n: int) -> Array:
    """Return the sample's weights, uniform where none are given."""
    if w is None:
        return np.full(n, 1.0 / n)
    w = np.asarray(w, float)
    if w.shape != (n,) or not np.isclose(w.sum(), 1.0):
        raise ValueError(f"weights must have shape ({n},) and sum to one, got {w.shape}, {w.sum()}")
    return w


def _pinv(matrix: Array) -> Array:
    """Pseudo-inverse of a symmetric matrix."""
    return np.linalg.pinv(matrix, RANK_TOLERANCE, hermitian=True)


def _regularised_inverse(C: Array, lam: float) -> Array:
    """``(C + lam I)^-1`` of a symmetric operator; its pseudo-inverse where ``lam`` is 0."""
    return _pinv(C) if lam == 0 else np.linalg.inv(C + lam * np.eye(len(C)))


def _root(squared: Any) -> float:
    """Square root of a squared norm that rounding may have left just below zero."""
    return float(np.sqrt(np.maximum(squared, 0.0)))


def _columns(weights: Array) -> Array:
    """Return weights as (n, q) whatever their shape."""
    return weights[:, None] if weights.ndim == 1 else weights


# --------------------------------------------------------------------------------------
# 2. The rules on Gram matrices
# --------------------------------------------------------------------------------------


def conditional_weights(K: Array, k_x: Array, lam: float, w: ArrayLike | None = None) -> Array:
    """Weights beta(x) on the y_i of the conditional embedding (000, eq. 11; 001, Theorem 5).

    Uncentred: ``mu_Y|x = C_YX (C_XX + lam I)^-1 phi(x)``. With ``C_XX = sum w_i phi_i (x) phi_i``,
    ``beta = (W K + lam I)^-1 W k_x``, which is ``(K + n lam I)^-1 k_x`` for uniform weights.
    """
    n = len(K)
    w = _weights(w, n)
    if lam == 0:
        # C_YX C_XX^+ = Phi W^1/2 (W^1/2 K W^1/2)^+ W^1/2 Upsilon^T
        root = np.diag(np.sqrt(w))
        return root @ _pinv(root @ K @ root) @ root @ k_x
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
    w = _weights(w, n)
    query = (np.asarray(k_x, float).T - K @ w).T  # inner products of the sample with phi(x) - mu_X
    mean = w if query.ndim == 1 else w[:, None]
    if lam == 0:
        P = np.eye(n) - np.outer(w, np.ones(n))  # Phi P is Phi with its mean taken off
        root = P @ np.diag(np.sqrt(w))
        return mean + root @ _pinv(root.T @ K @ root) @ root.T @ query
    V = np.diag(w) - np.outer(w, w)
    return mean + np.linalg.solve(V @ K + lam * np.eye(n), V @ query)


def completed_conditional_weights(
    K: Array, k_x: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """Weights of the regression of ``phi(y) - mu_Y`` on ``phi(x)``, with ``mu_Y`` added back.

    ``mu_Y + (C_YX - mu_Y mu_X^T) (C_XX + lam I)^-1 phi(x)``: what the plain weights lack of a mass
    of one goes to the sample.
    """
    w = _weights(w, len(K))
    beta = conditional_weights(K, k_x, lam, w)
    missing = 1 - beta.sum(axis=0)
    return beta + (w * missing if beta.ndim == 1 else np.outer(w, missing))


ESTIMATORS = {
    False: conditional_weights,
    True: centred_conditional_weights,
    None: completed_conditional_weights,
}


def sum_rule_weights(
    K: Array, K_prior: Array, alpha: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """Sum rule (a), 000, Algorithm I, eq. 14; 002, eq. 11 without its factor n.

    Weights ``u = (W K + lam I)^-1 W K_prior alpha``: the embedding of Q(Y) is ``sum u_i psi(y_i)``.
    The same u is the prior expressed on the sample, used by every form (b).
    """
    return conditional_weights(K, K_prior @ np.asarray(alpha, float), lam, w)


def sum_rule_b_weights(
    K: Array, K_prior: Array, alpha: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """Sum rule (b), 000, Algorithm I, eq. 15: weights on pairs ``(y_i, y_j)``, ``diag(u)``, (n, n).

    ``C_WW = sum_ij M_ij psi(y_i) (x) psi(y_j)``.
    """
    return np.diag(sum_rule_weights(K, K_prior, alpha, lam, w))


def chain_rule_a_weights(
    K: Array, K_prior: Array, alpha: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """Chain rule (a), 000, Algorithm II, eq. 18: weights on pairs ``(y_i, x~_j)``, (n, m).

    ``C_YX = C_Y|X C_XX^prior = sum_ij M_ij psi(y_i) (x) phi(x~_j)``; transpose for (X, Y).
    """
    return conditional_weights(K, K_prior, lam, w) @ np.diag(np.asarray(alpha, float))


def chain_rule_b_weights(
    K: Array, K_prior: Array, alpha: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """Chain rule (b), 000, Algorithm II, eq. 19: weights on pairs ``(y_i, x_j)``, ``diag(u)``."""
    return np.diag(sum_rule_weights(K, K_prior, alpha, lam, w))


def _squared_factor(u: Array, G: Array, k_y: Array, delta: float) -> Array:
    """``G ((D G)^2 + delta I)^-1 D k_y``: the function h of 002's Proposition 4 at the y_i."""
    D = np.diag(u)
    if delta == 0:
        # In coordinates: G = L L^T, C_WW = L^T D L, and the query is L^+ k_y.
        values, vectors = np.linalg.eigh(G)
        keep = values > RANK_TOLERANCE * values.max()
        L = vectors[:, keep] * np.sqrt(values[keep])
        return L @ _pinv(L.T @ D @ L) @ np.linalg.pinv(L) @ k_y
    DG = D @ G
    return G @ np.linalg.solve(DG @ DG + delta * np.eye(len(G)), D @ k_y)


def bayes_squared_b(
    K: Array,
    G: Array,
    K_prior: Array,
    alpha: Array,
    k_y: Array,
    lam: float,
    delta: float,
    w: ArrayLike | None = None,
) -> Array:
    """Bayes' rule, squared, form (b): posterior weights on the sample's x_i.

    002, eq. 13, and 000, eq. 24: ``Lambda G ((Lambda G)^2 + delta I)^-1 Lambda k_y`` with
    ``Lambda = diag(u)``, ``u`` from 002's eq. 11 without its factor n. ``k_y = I`` gives the matrix
    ``R_X|Y`` of 002's Figure 1.
    """
    u = sum_rule_weights(K, K_prior, alpha, lam, w)
    return np.diag(u) @ _squared_factor(u, G, k_y, delta)


def bayes_squared_a(
    K: Array,
    G: Array,
    K_prior: Array,
    alpha: Array,
    k_y: Array,
    lam: float,
    delta: float,
    w: ArrayLike | None = None,
) -> Array:
    """Bayes' rule, squared, form (a): posterior weights on the prior's atoms x~_j, (m,) or (m, q).

    000, eq. 23, corrected: ``Lambda^T K ((D K)^2 + lambda~ I)^-1 D K_:x`` in that paper's letters,
    where ``Lambda`` is the matrix of the chain rule (a) and ``D`` the diagonal of the sum rule (b).
    """
    u = sum_rule_weights(K, K_prior, alpha, lam, w)
    Lambda = chain_rule_a_weights(K, K_prior, alpha, lam, w)
    return Lambda.T @ _squared_factor(u, G, k_y, delta)


def positive_part(u: Array) -> Array:
    """``u+ = max(u, 0)`` normalised to sum one (Xu, Chen, Doucet and Gretton 2022)."""
    positive = np.maximum(u, 0.0)
    if positive.sum() <= 0:
        raise ValueError("the prior has no positive weight on the sample")
    return positive / positive.sum()


def bayes_importance(
    K: Array,
    G: Array,
    K_prior: Array,
    alpha: Array,
    k_y: Array,
    lam: float,
    delta: float,
    w: ArrayLike | None = None,
) -> Array:
    """Bayes' rule by importance weighting: posterior weights on the sample's x_i.

    Xu, Chen, Doucet and Gretton (2022), "Importance weighting approach in kernel Bayes' rule", with
    u+ normalised: ``C_ZW (C_WW + delta I)^-1 psi(y)`` with ``C_ZW = Phi D Psi^T``,
    ``C_WW = Psi D Psi^T``, ``D = diag(u+)``. From
    ``D Psi^T (Psi D Psi^T + delta I)^-1 = D (G D + delta I)^-1 Psi^T`` the weights are
    ``u+ o [(G diag(u+) + delta I)^-1 k_y]``.
    """
    u = positive_part(sum_rule_weights(K, K_prior, alpha, lam, w))
    if delta == 0:
        root = np.diag(np.sqrt(u))
        return root @ _pinv(root @ G @ root) @ root @ k_y
    D = np.diag(u)
    return D @ np.linalg.solve(G @ D + delta * np.eye(len(G)), k_y)


def nonnegative_prior_weights(
    K: Array, K_prior: Array, alpha: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """Weights p >= 0 of the least ``||Phi p - mu_pi||^2 + lam sum(p^2 / w)``, normalised.

    Least squares in the features of the sample under the rows ``sqrt(lam / w)``, by the active-set
    method of Lawson and Hanson.
    """
    w = _weights(w, len(K))
    values, vectors = np.linalg.eigh((K + K.T) / 2)
    kept = values > 1e-13 * values.max()
    root = np.sqrt(values[kept])
    system = np.vstack([(vectors[:, kept] * root).T, np.diag(np.sqrt(lam / w))])
    target = np.concatenate([(vectors[:, kept] / root).T @ (K_prior @ alpha), np.zeros(len(K))])
    p, _ = scipy.optimize.nnls(system, target, maxiter=100 * len(K))
    return p / p.sum()


def bayes_nonnegative(
    K: Array,
    G: Array,
    K_prior: Array,
    alpha: Array,
    k_y: Array,
    lam: float,
    delta: float,
    w: ArrayLike | None = None,
) -> Array:
    """Bayes' rule with non-negative prior weights p: posterior weights on the sample's x_i.

    ``p o [Psi^T (Psi diag(p) Psi^T + delta(y) I)^-1 psi(y)]`` in the features of the sample's y.
    The leverage of y is ``psi(y)^T (C_WW + delta I)^-1 psi(y) sum(p^2)``. Where it exceeds both 1/8
    and twice its mean ``tr(C_WW (C_WW + delta I)^-1) sum(p^2)``, ``delta(y)`` is the ridge at which
    it does not, and elsewhere delta. The total of the weights stays that of delta, if both are
    positive. Not in the papers.
    """
    p = nonnegative_prior_weights(K, K_prior, alpha, lam, w)
    values, vectors = np.linalg.eigh((G + G.T) / 2)
    kept = values > 1e-13 * values.max()
    root = np.sqrt(values[kept])
    Psi, queries = vectors[:, kept] * root, (vectors[:, kept] / root).T @ _columns(k_y)
    C, one = Psi.T @ np.diag(p) @ Psi, np.eye(int(kept.sum()))
    share = p @ p
    most = max(1 / 8, 2 * share * np.trace(np.linalg.solve(C + delta * one, C)))

    def leverage(psi: Array, ridge: float) -> float:
        return float(share * psi @ np.linalg.solve(C + ridge * one, psi))

    def weights(psi: Array, ridge: float) -> Array:
        return p * (Psi @ np.linalg.solve(C + ridge * one, psi))

    result = []
    for psi in queries.T:
        plain = found = weights(psi, delta)
        if leverage(psi, delta) > most:
            ridge = scipy.optimize.brentq(
                lambda log, psi=psi: leverage(psi, np.exp(log)) - most,
                np.log(delta),
                np.log(delta + share * psi @ psi / most),
                xtol=1e-13,
            )
            found = weights(psi, np.exp(ridge))
            if plain.sum() > 0 and found.sum() > 0:
                found = found * plain.sum() / found.sum()
        result.append(found)
    return np.stack(result, axis=1).reshape(len(K), *np.shape(k_y)[1:])


def bayes_reweighted(
    K: Array,
    G: Array,
    K_prior: Array,
    alpha: Array,
    k_y: Array,
    lam: float,
    delta: float,
    power: float = 1.0,
    w: ArrayLike | None = None,
    threshold: float = 0.2,
) -> Array:
    """Bayes' rule by reweighting the plain conditional: posterior weights on x_i, summing to one.

    ``beta(y) o (u+ / w)^power``, normalised, where ``beta(y) = (W G + delta I)^-1 W k_y`` are the
    plain conditional weights of P(X|Y) (001, Theorem 5, uncentred): ``delta`` is on the scale of
    ``C_YY``. Not in the papers. Where ``kappa = sum(v) / sum(|v|)`` of the unnormalised weights v
    is below ``threshold``, prior and observation conflict and ``max(beta, 0)`` is used.
    A point of weight zero has ``u = beta = 0`` and keeps weight zero.
    """
    n = len(K)
    w = _weights(w, n)
    u = positive_part(sum_rule_weights(K, K_prior, alpha, lam, w))
    ratio = np.zeros(n)
    for i in range(n):
        if w[i] > 0:
            ratio[i] = (u[i] / w[i]) ** power
    beta = conditional_weights(G, k_y, delta, w)
    result = np.empty(_columns(beta).shape)
    for q, column in enumerate(_columns(beta).T):
        v = column * ratio
        kappa = v.sum() / np.abs(v).sum()
        if kappa < threshold:
            v = np.maximum(column, 0.0) * ratio
        result[:, q] = v / v.sum()
    return result.reshape(beta.shape)


def bayes_average(beta: Array, G_tilde: Array, alpha: Array) -> float:
    """Kernel Bayes average, 000, Algorithm IV, eq. 25: ``E[g]`` for ``g = sum alpha_j k(y_j, .)``.

    ``beta`` are the posterior's weights, ``G_tilde`` the Gram matrix of its atoms (rows) against
    those of the function (columns).
    """
    total = 0.0
    for i in range(len(beta)):
        for j in range(len(alpha)):
            total += beta[i] * G_tilde[i, j] * alpha[j]
    return total


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


def mmd_squared(
    K_aa: Array,
    K_bb: Array,
    K_ab: Array,
    alpha: ArrayLike | None = None,
    beta: ArrayLike | None = None,
) -> float:
    """Squared distance of two embeddings (000, section 2.2), weighted, the two sizes may differ."""
    alpha = np.full(len(K_aa), 1 / len(K_aa)) if alpha is None else np.asarray(alpha, float)
    beta = np.full(len(K_bb), 1 / len(K_bb)) if beta is None else np.asarray(beta, float)
    return (
        inner_product(alpha, K_aa, alpha)
        + inner_product(beta, K_bb, beta)
        - 2 * inner_product(alpha, K_ab, beta)
    )


def rkhs_relative_error(estimate: Array, truth: Array, K: Array) -> float:
    """``||sum (estimate - truth)_i phi_i|| / ||sum truth_i phi_i||``, weights on the same atoms."""
    difference = np.asarray(estimate, float) - truth
    return _root(difference @ K @ difference) / _root(truth @ K @ truth)


def pair_norm(M: Array, K_rows: Array, K_columns: Array) -> float:
    """Norm of ``sum_ij M_ij phi_i (x) psi_j`` (000, eq. 2): ``tr(M^T K_rows M K_columns)^1/2``."""
    squared = np.einsum("ij,ik,kl,jl->", M, K_rows, M, K_columns, optimize=True)
    return _root(squared)


def joint_norm(grams: Sequence[Array], w: ArrayLike | None = None, centred: bool = False) -> float:
    """Norm of the joint embedding of two or more variables (000, eq. 2; 001, eq. 3).

    ``E[phi(X) (x) psi(Y) (x) ...]``; ``centred=True`` takes each variable's mean off first, as the
    cross-covariance of 001 does: for two variables the square is the (biased) HSIC.
    """
    n = len(grams[0])
    w = _weights(w, n)
    P = np.eye(n) - np.outer(w, np.ones(n)) if centred else np.eye(n)
    product = np.ones((n, n))
    for K in grams:
        product = product * (P.T @ K @ P)
    return _root(w @ product @ w)


def hsic(K: Array, G: Array, w: ArrayLike | None = None) -> float:
    """``||C_XY - mu_X (x) mu_Y||^2_HS`` (000, section 2.1), biased: ``tr(K H G H) / n^2``.

    Weighted, ``H/n`` becomes ``V = W - w w^T``: ``tr(K V G V)``.
    """
    w = _weights(w, len(K))
    V = np.diag(w) - np.outer(w, w)
    return float(np.trace(K @ V @ G @ V))


def joint_minus_product_norm(grams: Sequence[Array], w: ArrayLike | None = None) -> float:
    """``||E[phi (x) psi (x) ...] - mu_X (x) mu_Y (x) ...||`` for any number of variables.

    For two variables the square is :func:`hsic`; for three it is not :func:`joint_norm` centred.
    """
    n = len(grams[0])
    w = _weights(w, n)
    joint, cross, product = np.ones((n, n)), np.ones(n), 1.0
    for K in grams:
        joint, cross, product = joint * K, cross * (K @ w), product * float(w @ K @ w)
    return _root(w @ joint @ w - 2 * w @ cross + product)


# --------------------------------------------------------------------------------------
# Statistics of samples and their permutations, pair by pair
# --------------------------------------------------------------------------------------


def mmd_estimate(
    K: Array, labels: ArrayLike, estimator: str = "U", size: int | None = None
) -> float:
    """MMD squared from the Gram matrix of both samples; ``labels`` is 1 on X and 0 on Y.

    Gretton et al. (2012): eq. 5 for "V", eq. 3 for "U". "linear" (their Lemma 14), "block" (Zaremba
    et al. 2013) and "incomplete" (Schrab et al. 2022) are means of
    ``h(i, j) = k(x_i, x_j) + k(y_i, y_j) - k(x_i, y_j) - k(x_j, y_i)`` over some of the pairs.
    """
    labels = np.asarray(labels)
    x, y = np.flatnonzero(labels == 1), np.flatnonzero(labels == 0)
    n, m = len(x), len(y)
    if estimator in ("U", "V"):
        same = estimator == "V"
        xx = sum(K[i, j] for i in x for j in x if same or i != j)
        yy = sum(K[i, j] for i in y for j in y if same or i != j)
        xy = sum(K[i, j] for i in x for j in y)
        pairs_x, pairs_y = (n * n, m * m) if same else (n * (n - 1), m * (m - 1))
        return float(xx / pairs_x + yy / pairs_y - 2 * xy / (n * m))

    def h(i: int, j: int) -> float:
        return K[x[i], x[j]] + K[y[i], y[j]] - K[x[i], y[j]] - K[x[j], y[i]]

    n = min(n, m)
    if estimator == "linear":
        return float(np.mean([h(i, i + 1) for i in range(0, n - 1, 2)]))
    size = max(2, round(n**0.5)) if size is None else size
    if estimator == "block":
        size = min(size, n)
        blocks = [range(b * size, (b + 1) * size) for b in range(n // size)]
        return float(np.mean([np.mean([h(i, j) for i in b for j in b if i != j]) for b in blocks]))
    if estimator == "incomplete":
        return float(np.mean([h(i, i + r) for r in range(1, size + 1) for i in range(n - r)]))
    raise ValueError(f"unknown estimator {estimator!r}")


def hsic_estimate(
    K: Array, L: Array, estimator: str = "U", order: ArrayLike | None = None
) -> float:
    """HSIC with the rows of Y in the given order.

    "U" is the average over all quadruples of distinct rows of ``K_ij (L_ij + L_qr - 2 L_iq)`` (Song
    et al. 2012, section 3), "V" is :func:`hsic`, "normalized" divides that by
    ``(HSIC(X, X) HSIC(Y, Y))^1/2``. Distinct rows by inclusion and exclusion, not by their formula.
    """
    if order is not None:
        L = L[np.ix_(order, order)]
    if estimator == "V":
        return hsic(K, L)
    if estimator == "normalized":
        return hsic(K, L) / np.sqrt(hsic(K, K) * hsic(L, L))
    n = len(K)
    total = 0.0
    for i in range(n):
        for j in range(n):
            if i == j:
                continue
            rest = [q for q in range(n) if q not in (i, j)]
            qr = sum(L[q, r] for q in rest for r in rest if q != r) / ((n - 2) * (n - 3))
            iq = sum(L[i, q] for q in rest) / (n - 2)
            total += K[i, j] * (L[i, j] + qr - 2 * iq)
    return float(total / (n * (n - 1)))


def energy_distance(X: ArrayLike, Y: ArrayLike) -> float:
    """``2 E|X - Y| - E|X - X'| - E|Y - Y'|`` (Szekely and Rizzo 2013), with all pairs."""

    def mean(A: ArrayLike, B: ArrayLike) -> float:
        total = 0.0
        for a in np.asarray(A, float):
            for b in np.asarray(B, float):
                total += float(np.sqrt(((a - b) ** 2).sum()))
        return total / (len(A) * len(B))

    return 2 * mean(X, Y) - mean(X, X) - mean(Y, Y)


def distance_covariance_squared(X: ArrayLike, Y: ArrayLike) -> float:
    """Distance covariance squared (Szekely, Rizzo and Bakirov 2007, definition 4)."""

    def centred(A: ArrayLike) -> Array:
        D = _distances(A, A, 1.0)
        return D - D.mean(axis=0) - D.mean(axis=1)[:, None] + D.mean()

    return float(np.mean(centred(X) * centred(Y)))


def table_hsic(P: Array) -> float:
    """HSIC of a table of probabilities under delta kernels: ``sum (P(x, y) - P(x) P(y))^2``."""
    return float(((P - np.outer(P.sum(axis=1), P.sum(axis=0))) ** 2).sum())


# --------------------------------------------------------------------------------------
# Conditional operators and selection
# --------------------------------------------------------------------------------------


def conditional_cross_covariance_weights(beta: Array) -> Array:
    """``C_YZ|x`` of 001, eq. 9: weights ``diag(beta) - beta beta^T`` on pairs ``(y_i, z_j)``.

    ``beta`` are the conditional weights at x, taken as they are: they need not sum to one.
    """
    return np.diag(beta) - np.outer(beta, beta)


def conditional_cross_covariance_norm(L: Array, U: Array, beta: Array) -> float:
    """Hilbert-Schmidt norm of ``C_YZ|x`` (001, eq. 9), ``L`` and ``U`` the Grams of Y and Z."""
    return pair_norm(conditional_cross_covariance_weights(beta), L, U)


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
    w = _weights(w, n)
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


def marginal_discrepancy(
    K: Array,
    G: Array,
    folds: Sequence[ArrayLike],
    lam: float,
    delta: float,
    reference: Array | None = None,
) -> float:
    """Cross-validation of 002, section 4.2: posteriors averaged over held-out y against P_X.

    With the training marginal as prior, posteriors averaged over y give the marginal back. The
    paper measures ``||average - m_X^[a]||^2`` in the candidate's own space (``reference=None``),
    where it shrinks as the bandwidth grows, whatever the quality; ``reference`` is the Gram matrix
    of X under one fixed kernel instead.
    """
    n = len(K)
    R = K if reference is None else reference
    total = 0.0
    for fold in folds:
        held = np.asarray(fold)
        train = np.setdiff1d(np.arange(n), held)
        K_train, G_train = K[np.ix_(train, train)], G[np.ix_(train, train)]
        prior = np.full(len(train), 1 / len(train))
        posteriors = bayes_squared_b(
            K_train, G_train, K_train, prior, G[np.ix_(train, held)], lam, delta
        )
        total += mmd_squared(
            R[np.ix_(train, train)],
            R[np.ix_(held, held)],
            R[np.ix_(train, held)],
            posteriors.mean(axis=1),
        )
    return total


def initial_filter_weights(G: Array, k_y: Array, lam: float, w: ArrayLike | None = None) -> Array:
    """First belief of 002's filter, section 4.3, without the factor T: ``(G_Y + T eps I)^-1 k_y``.

    It is ``C_XY (C_YY + eps I)^-1 psi(y_1)``, the plain conditional embedding.
    """
    return conditional_weights(G, k_y, lam, w)


def graphical_chain_weights(
    K_A: Array, K_B: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """``C_AC`` of the chain A - B - C (004, section 4.3): weights on pairs ``(a_i, c_j)``.

    ``C_AA C_B|A^T C_C|B^T``; for uniform weights
    ``K_A (K_A + n lam I)^-1 K_B (K_B + n lam I)^-1 / n``.
    """
    n = len(K_A)
    W = np.diag(_weights(w, n))
    first = np.linalg.solve(W @ K_A + lam * np.eye(n), W)  # C_B|A^T = Phi_A first Phi_B^T
    second = np.linalg.solve(W @ K_B + lam * np.eye(n), W)
    return W @ K_A @ first @ K_B @ second


# --------------------------------------------------------------------------------------
# Operators on explicit features (rows are points)
# --------------------------------------------------------------------------------------


def operator_mean(A: Array, w: ArrayLike | None = None) -> Array:
    """Mean embedding ``sum w_i phi(x_i)`` (000, eq. 4). Any weights, not only probabilities."""
    w = np.full(len(A), 1 / len(A)) if w is None else np.asarray(w, float)
    mean = np.zeros(A.shape[1])
    for w_i, a in zip(w, A, strict=True):
        mean += w_i * a
    return mean


def operator_joint(
    features: Sequence[Array], w: ArrayLike | None = None, centred: bool = False
) -> Array:
    """``sum w_i phi(x_i) (x) psi(y_i) (x) ...`` (000, eq. 5), each variable centred first if asked.

    Two feature matrices give ``C_XY`` (r_x, r_y) and three ``C_XYZ`` (r_x, r_y, r_z). Centred, two
    give 001's eq. 3.
    """
    w = np.full(len(features[0]), 1 / len(features[0])) if w is None else np.asarray(w, float)
    parts = [A - operator_mean(A, w) if centred else A for A in features]
    total = np.zeros([A.shape[1] for A in parts])
    for i, w_i in enumerate(w):
        term = np.asarray(w_i)
        for A in parts:
            term = np.multiply.outer(term, A[i])
        total += term
    return total


def operator_conditional(PX: Array, PY: Array, lam: float, w: ArrayLike | None = None) -> Array:
    """``C_Y|X = C_YX (C_XX + lam I)^-1`` (000, eqs. 8, 10; 004, section 4.1, in its right order).

    004 prints ``C_XX (C_YX + lam I)^-1``. Returns (r_y, r_x).
    """
    return operator_joint([PY, PX], w) @ _regularised_inverse(operator_joint([PX, PX], w), lam)


def operator_centred_conditional(
    PX: Array, PY: Array, px: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """``mu_Y + C_YX (C_XX + lam I)^-1 (phi(x) - mu_X)``, centred covariances (001, Theorem 5).

    ``px`` is one row of features (r_x,) or several (q, r_x); returns (r_y,) or (q, r_y).
    """
    C_YX = operator_joint([PY, PX], w, centred=True)
    C_XX = operator_joint([PX, PX], w, centred=True)
    query = px - operator_mean(PX, w)
    return operator_mean(PY, w) + query @ _regularised_inverse(C_XX, lam) @ C_YX.T


def operator_sum_a(
    PX: Array, PY: Array, prior: Array, alpha: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """Sum rule (a): ``C_Y|X mu_prior`` (000, eq. 12). ``prior`` holds the features of its atoms."""
    return operator_conditional(PX, PY, lam, w) @ operator_mean(prior, alpha)


def operator_sum_b(
    PX: Array, PY: Array, prior: Array, alpha: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """Sum rule (b): ``C_(YY)X (C_XX + lam I)^-1 mu_prior`` (000, eq. 13), (r_y, r_y)."""
    inverse = _regularised_inverse(operator_joint([PX, PX], w), lam)
    return operator_joint([PY, PY, PX], w) @ (inverse @ operator_mean(prior, alpha))


def operator_chain_a(
    PX: Array, PY: Array, prior: Array, alpha: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """Chain rule (a): ``C_Y|X C_XX^prior`` (000, eq. 16), (r_y, r_x); transpose for (X, Y)."""
    return operator_conditional(PX, PY, lam, w) @ operator_joint([prior, prior], alpha)


def operator_chain_b(
    PX: Array, PY: Array, prior: Array, alpha: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """Chain rule (b): ``C_(YX)X (C_XX + lam I)^-1 mu_prior`` (000, section 4.2), (r_y, r_x)."""
    inverse = _regularised_inverse(operator_joint([PX, PX], w), lam)
    return operator_joint([PY, PX, PX], w) @ (inverse @ operator_mean(prior, alpha))


def operator_bayes_squared(
    PX: Array,
    PY: Array,
    prior: Array,
    alpha: Array,
    py: Array,
    lam: float,
    delta: float,
    form: str = "b",
    w: ArrayLike | None = None,
) -> Array:
    """``C_ZW (C_WW^2 + delta I)^-1 C_WW psi(y)`` (002, eq. 12; 000, eqs. 21 to 24), in H_X.

    ``C_WW`` is the sum rule (b), ``C_ZW`` the chain rule of ``form``. ``py`` is (r_y,) or (q, r_y);
    returns (r_x,) or (q, r_x).
    """
    chain = operator_chain_a if form == "a" else operator_chain_b
    C_ZW = chain(PX, PY, prior, alpha, lam, w).T
    C_WW = operator_sum_b(PX, PY, prior, alpha, lam, w)
    C_WW = (C_WW + C_WW.T) / 2  # symmetric up to rounding
    if delta == 0:
        inverse = _pinv(C_WW)
    else:
        inverse = np.linalg.solve(C_WW @ C_WW + delta * np.eye(len(C_WW)), C_WW)
    return py @ (C_ZW @ inverse).T


def operator_prior_weights(
    PX: Array, prior: Array, alpha: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """``u_i = w_i <phi(x_i), (C_XX + lam I)^-1 mu_prior>``: the prior as weights on the sample."""
    inverse = _regularised_inverse(operator_joint([PX, PX], w), lam)
    return _weights(w, len(PX)) * (PX @ (inverse @ operator_mean(prior, alpha)))


def operator_bayes_importance(
    PX: Array,
    PY: Array,
    prior: Array,
    alpha: Array,
    py: Array,
    lam: float,
    delta: float,
    w: ArrayLike | None = None,
) -> Array:
    """``C_ZW (C_WW + delta I)^-1 psi(y)`` with u+ (Xu, Chen, Doucet and Gretton 2022), in H_X."""
    u = positive_part(operator_prior_weights(PX, prior, alpha, lam, w))
    C_ZW, C_WW = operator_joint([PX, PY], u), operator_joint([PY, PY], u)
    return py @ (C_ZW @ _regularised_inverse(C_WW, delta)).T


def operator_conditional_cross_covariance(
    PX: Array, PY: Array, PZ: Array, px: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """``C_YZ|x = mu_YZ|x - mu_Y|x (x) mu_Z|x`` (001, eq. 9), (r_y, r_z), at one point x."""
    h = _regularised_inverse(operator_joint([PX, PX], w), lam) @ px
    mu_y, mu_z = operator_joint([PY, PX], w) @ h, operator_joint([PZ, PX], w) @ h
    return operator_joint([PY, PZ, PX], w) @ h - np.outer(mu_y, mu_z)


# --------------------------------------------------------------------------------------
# The papers' misprints, as printed (uniform weights; lam on the operator's scale)
# --------------------------------------------------------------------------------------


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


# --------------------------------------------------------------------------------------
# 3. Exact discrete tables. P is P(x, y), (s_x, s_y); prior is pi(x), (s_x,)
# --------------------------------------------------------------------------------------


def table_marginals(P: Array) -> tuple[Array, Array]:
    """``P(x)`` and ``P(y)``."""
    return P.sum(axis=1), P.sum(axis=0)


def table_conditional(P: Array) -> Array:
    """``P(y|x)``, rows x, (s_x, s_y) (000, eq. 9, which has it transposed)."""
    result = np.empty_like(P)
    for x in range(P.shape[0]):
        result[x] = P[x] / P[x].sum()
    return result


def table_chain(P: Array, prior: Array) -> Array:
    """``Q(x, y) = P(y|x) pi(x)``, (s_x, s_y) (000, eq. 17)."""
    return table_conditional(P) * np.asarray(prior)[:, None]


def table_sum(P: Array, prior: Array) -> Array:
    """``Q(y) = sum_x P(y|x) pi(x)``, (s_y,) (000, section 4.1)."""
    return table_chain(P, prior).sum(axis=0)


def table_bayes(P: Array, prior: Array) -> Array:
    """``Q(x|y) = P(y|x) pi(x) / Q(y)``, (s_x, s_y): columns sum to one (000, section 4.3)."""
    Q = table_chain(P, prior)
    result = np.empty_like(Q)
    for y in range(P.shape[1]):
        result[:, y] = Q[:, y] / Q[:, y].sum()
    return result


def random_table(
    rng: np.random.Generator,
    states_x: int,
    states_y: int,
    minimum: float = 0.01,
    concentration: float = 1.0,
) -> Array:
    """Draw a table P(x, y) whose marginals are all at least ``minimum``.

    A small ``concentration`` gives tables near zero in many cells.
    """
    while True:
        cells = rng.gamma(concentration, size=(states_x, states_y))
        P = cells / cells.sum()
        if min(P.sum(axis=0).min(), P.sum(axis=1).min()) >= minimum:
            return P


def random_prior(rng: np.random.Generator, states: int, minimum: float = 0.01) -> Array:
    """Draw a distribution whose probabilities are all at least ``minimum``."""
    return minimum + (1 - minimum * states) * rng.dirichlet(np.ones(states))


def random_counts(
    rng: np.random.Generator, states_x: int, states_y: int, n: int, minimum: float = 0.01
) -> NDArray[np.int64]:
    """Draw a table of n integer counts whose marginals are all at least ``minimum * n``."""
    while True:
        P = random_table(rng, states_x, states_y, minimum)
        counts = rng.multinomial(n, P.ravel()).reshape(P.shape)
        if min(counts.sum(axis=0).min(), counts.sum(axis=1).min()) >= minimum * n:
            return counts


def table_to_cells(P: Array) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
    """Express a table as weighted cells ``(x, y, w)``, one point a cell that is not zero."""
    x, y = np.nonzero(P)
    return x, y, P[x, y]


def counts_to_sample(
    counts: NDArray[np.int64], rng: np.random.Generator | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Express a table of counts as a sample ``(x, y)`` with exactly these counts.

    Ordered by cell, or shuffled where ``rng`` is given; its table is ``counts / counts.sum()``.
    """
    x, y = np.nonzero(counts)
    x, y = np.repeat(x, counts[x, y]), np.repeat(y, counts[x, y])
    if rng is not None:
        order = rng.permutation(len(x))
        x, y = x[order], y[order]
    return x, y


# --------------------------------------------------------------------------------------
# Stein kernels (Liu, Lee and Jordan 2016; Chwialkowski, Strathmann and Gretton 2016)
# --------------------------------------------------------------------------------------


def stein_kernel_numerical(
    kernel: Any, x: Array, s: Array, y: Array, t: Array, step: float = 1e-4
) -> float:
    """``s.t k + s.grad_y k + t.grad_x k + tr grad_x grad_y k`` by central differences.

    ``kernel(x, y)`` is a function of two points; ``s`` and ``t`` are the scores there.
    """
    total = float(s @ t) * kernel(x, y)
    for j in range(len(x)):
        e = np.zeros(len(x))
        e[j] = step
        total += s[j] * (kernel(x, y + e) - kernel(x, y - e)) / (2 * step)
        total += t[j] * (kernel(x + e, y) - kernel(x - e, y)) / (2 * step)
        mixed = kernel(x + e, y + e) - kernel(x + e, y - e)
        mixed += kernel(x - e, y - e) - kernel(x - e, y + e)
        total += mixed / (4 * step**2)
    return float(total)


def stein_gaussian_dense(X: ArrayLike, S: ArrayLike, bandwidth: float) -> Array:
    """The Stein kernel's matrix for ``k = exp(-|x - y|^2 / (2 bandwidth^2))``, pair by pair."""
    X, S = np.asarray(X, float), np.asarray(S, float)
    n, d = X.shape
    H = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            difference = X[i] - X[j]
            k = np.exp(-(difference @ difference) / (2 * bandwidth**2))
            grad_x = -difference / bandwidth**2 * k
            grad_y = difference / bandwidth**2 * k
            trace = k * (d / bandwidth**2 - difference @ difference / bandwidth**4)
            H[i, j] = S[i] @ S[j] * k + S[i] @ grad_y + S[j] @ grad_x + trace
    return H


def stein_estimate(H: Array, estimator: str) -> float:
    """The U- and V-statistics of a Stein kernel's matrix."""
    n = len(H)
    if estimator == "V":
        return float(H.sum() / n**2)
    return float((H.sum() - np.trace(H)) / (n * (n - 1)))


def stein_normal_population(
    mean: float, deviation: float, bandwidth: float, nodes: int = 80
) -> float:
    """``E h(X, X')`` for X ~ N(mean, deviation^2) against N(0, 1), Gaussian kernel: quadrature.

    ``int int h(x, y) q(x) q(y) dx dy`` by Gauss-Hermite nodes in both variables.
    """
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    x = mean + deviation * z
    H = stein_gaussian_dense(x[:, None], -x[:, None], bandwidth)
    w = w / w.sum()
    return float(w @ H @ w)


# --------------------------------------------------------------------------------------
# 4. Closed forms: Gaussians under the Gaussian kernel, bandwidth a number or one a column
# --------------------------------------------------------------------------------------


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


# --------------------------------------------------------------------------------------
# Conditional tests: dense formulas, n x n inverses
# --------------------------------------------------------------------------------------


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


# --------------------------------------------------------------------------------------
# Filters. The T training states and their observations are one sample (x_i, y_i), all sequences
# laid end to end; state second[i] follows state first[i], in no pair across two sequences. Weights
# are on the T states, (T,) or (steps, T). A test observation is its column k_y against the training
# observations, (T,), or None where it is missing. Every belief and prediction sums to one.
# --------------------------------------------------------------------------------------

Indices = Sequence[int] | NDArray[np.int64]


def on_states(weights: Array, indices: Indices, T: int) -> Array:
    """Weights on the states ``indices``, repeats allowed, as weights on all T; rows are kept."""
    result = np.zeros((*np.shape(weights)[:-1], T))
    for i, index in enumerate(indices):
        result[..., index] += weights[..., i]
    return result


def normalised_weights(v: Array, threshold: float = 0.2) -> Array:
    """``v / sum(v)``; where ``kappa = sum(v) / sum(|v|)`` is below the threshold, of ``max(v, 0)``.

    The guard of :func:`bayes_reweighted`, for the weights of any method. A threshold of 0 leaves
    every positive total alone, however the weights oscillate.
    """
    if v.sum() < threshold * np.abs(v).sum():
        return positive_part(v)
    return v / v.sum()


def filter_prediction(
    K_states: Array,
    first: Indices,
    second: Indices,
    belief: Array,
    eps: float,
    transfer: str = "two-step",
    threshold: float = 0.2,
) -> Array:
    """One step ahead: weights of ``P(x_t+1 | y_1..t)`` on the T states.

    "two-step", 002, section 4.3: ``C_X+1X (C_XX + eps I)^-1 m``, that is
    ``(G_X + n eps I)^-1 G alpha`` on the successors, with the Gram matrix of the n states that have
    one. (002 has a state T + 1, so that each of its T atoms has a successor, and n = T.)

    "one-step", 000, eq. 35, where ``G~ alpha`` has ``G~_ij = k(s_i, s_j+1)``: each atom hands its
    weight to its successor, to several in equal shares. The weight of atoms without a successor is
    dropped, and the rest scaled to the same total.
    """
    first, second, T = np.asarray(first), np.asarray(second), len(K_states)
    if transfer == "two-step":
        K_first = K_states[np.ix_(first, first)]
        moved = sum_rule_weights(K_first, K_states[first], belief, eps)
    elif transfer == "one-step":
        moved = np.array([belief[i] / np.sum(first == i) for i in first])
    else:
        raise ValueError(f"transfer must be 'two-step' or 'one-step', got {transfer!r}")
    return normalised_weights(on_states(moved, second, T), threshold)


def filter_conditioning(
    K_states: Array,
    K_observations: Array,
    prior: Array,
    k_y: Array,
    eps_observation: float,
    delta: float,
    method: str = "squared",
    power: float = 1.0,
    threshold: float = 0.2,
) -> Array:
    """Kernel Bayes' rule with the prediction as prior: weights of ``P(x_t | y_1..t)``.

    "squared" is 002, eq. 18, and 000, eq. 36; "importance" and "reweighted" put another rule in
    its place. ``delta`` is on the scale of ``C_WW^2``, ``C_WW`` and ``C_YY``.
    """
    arguments = (K_states, K_observations, K_states, prior, k_y, eps_observation, delta)
    if method == "squared":
        posterior = bayes_squared_b(*arguments)
    elif method == "importance":
        posterior = bayes_importance(*arguments)
    elif method == "reweighted":
        posterior = bayes_reweighted(*arguments, power, threshold=threshold)
    else:
        raise ValueError(f"unknown method {method!r}")
    return normalised_weights(posterior, threshold)


def kernel_bayes_filter(
    K_states: Array,
    K_observations: Array,
    first: Indices,
    second: Indices,
    columns: Sequence[Array | None],
    eps: float,
    delta: float,
    eps_observation: float | None = None,
    method: str = "squared",
    power: float = 1.0,
    transfer: str = "two-step",
    initial: str | ArrayLike = "first",
    eps_initial: float | None = None,
    threshold: float = 0.2,
) -> tuple[Array, Array]:
    """Kernel Bayes filter (002, eqs. 16 to 18; 000, Algorithm VII): beliefs and predictions.

    Row t of the beliefs, (steps, T), has the weights of ``P(x_t | y_1..t)``, row t of the
    predictions those of ``P(x_t | y_1..t-1)``. ``eps`` regularises the transition,
    ``eps_observation`` the prior's weights on the sample (``None``: the same, as 002 has it).

    ``initial`` is about the first state: "first", 002's ``(G_Y + T eps I)^-1 k_y`` without its
    factor T, where eps is ``eps_initial`` (``None``: ``eps_observation``); "uniform", the
    prediction 1/T conditioned as any other; or the prior's weights on the T states. "first" is the
    plain conditional under the training marginal, so that its prediction is 1/T too.

    ``threshold`` is that of :func:`normalised_weights`, for beliefs and predictions.
    """
    if isinstance(initial, str) and initial not in ("first", "uniform"):
        raise ValueError(f"initial must be 'first', 'uniform' or weights, got {initial!r}")
    T = len(K_states)
    eps_observation = eps if eps_observation is None else eps_observation
    eps_initial = eps_observation if eps_initial is None else eps_initial
    beliefs, predictions = np.empty((len(columns), T)), np.empty((len(columns), T))
    for t, k_y in enumerate(columns):
        if t > 0:
            prior = filter_prediction(
                K_states, first, second, beliefs[t - 1], eps, transfer, threshold
            )
        elif isinstance(initial, str):
            prior = np.full(T, 1 / T)
        else:
            prior = normalised_weights(np.asarray(initial, float), threshold)
        predictions[t] = prior
        if k_y is None:
            beliefs[t] = prior
        elif t == 0 and isinstance(initial, str) and initial == "first":
            start = initial_filter_weights(K_observations, k_y, eps_initial)
            beliefs[t] = normalised_weights(start, threshold)
        else:
            beliefs[t] = filter_conditioning(
                *(K_states, K_observations, prior, k_y, eps_observation, delta),
                method=method,
                power=power,
                threshold=threshold,
            )
    return beliefs, predictions


def filter_smoother(
    K_states: Array,
    first: Indices,
    second: Indices,
    filtered: Array,
    eps: float,
    delta: float,
    method: str = "importance",
    power: float = 1.0,
    threshold: float = 0.2,
) -> Array:
    """Smoothed weights on the T states, (steps, T), from filtered ones.

    ``P(x_t | y_1..n) = int P(x_t | x_t+1, y_1..t) P(x_t+1 | y_1..n) dx_t+1``, and the first factor
    is Bayes' rule for the transition P(x_t+1 | x_t) with the belief ``P(x_t | y_1..t)`` as prior.
    "squared" and "importance" are linear in the query, which is the embedding of the smoothed
    x_t+1. "reweighted" is asked at each atom x_j, and the answers
    ``Gamma_ij = beta_i(x_j) rho_i / sum_i beta_i(x_j) rho_i``, ``rho = (u+ / w)^power``, are mixed
    by the smoothed weights. 002 says in section 4.3 that it can be done, not how.
    """
    first, second, T = np.asarray(first), np.asarray(second), len(K_states)
    K, G = K_states[np.ix_(first, first)], K_states[np.ix_(second, second)]
    smoothed = np.array(filtered, float)
    for t in range(len(smoothed) - 2, -1, -1):
        ahead = smoothed[t + 1]
        arguments = (K, G, K_states[first], np.asarray(filtered[t], float))
        if method == "squared":
            weights = bayes_squared_b(*arguments, K_states[second] @ ahead, eps, delta)
        elif method == "importance":
            weights = bayes_importance(*arguments, K_states[second] @ ahead, eps, delta)
        elif method == "reweighted":
            Gamma = bayes_reweighted(
                *arguments, K_states[second], eps, delta, power, threshold=threshold
            )
            weights = Gamma @ ahead
        else:
            raise ValueError(f"unknown method {method!r}")
        smoothed[t] = normalised_weights(on_states(weights, first, T), threshold)
    return smoothed


def evidence_ratio(
    K_observations: Array, u: Array, k_y: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """``D(y) = <m_W, (C_YY + lam I)^-1 psi(y)>``, about ``q(y) / p(y)``: a number a query.

    ``m_W = sum u_i psi(y_i)`` embeds the predicted Q(Y), C_YY the training marginal P(Y). With
    ``C_YY = Psi W Psi^T`` and ``Psi^T (Psi W Psi^T + lam I)^-1 = (G W + lam I)^-1 Psi^T``,
    ``D = u^T (G W + lam I)^-1 k_y``, which is ``n u^T (G + n lam I)^-1 k_y`` for uniform weights
    and ``sum_i (u_i / w_i) beta_i(y)`` in the conditional weights beta. The part of psi(y)
    orthogonal to the sample does not enter: m_W lies in the sample's span.
    """
    n = len(K_observations)
    w = _weights(w, n)
    if lam == 0:
        return (u / w) @ conditional_weights(K_observations, k_y, 0.0, w)
    return u @ np.linalg.solve(K_observations @ np.diag(w) + lam * np.eye(n), k_y)


def filter_evidence(
    K_states: Array,
    K_observations: Array,
    predictions: Array,
    columns: Sequence[Array | None],
    eps_observation: float,
    lam: float,
    clipped: bool = True,
) -> Array:
    """``D(y_t)`` along a sequence, about ``p(y_t | y_1..t-1) / p(y_t)``, NaN where y_t is missing.

    Its u are the prediction's weights on the sample, u+ where ``clipped``. The sum of logarithms is
    the log-evidence less the sum of ``log p(y_t)``, p the training marginal.
    """
    ratios = np.full(len(columns), np.nan)
    for t, k_y in enumerate(columns):
        if k_y is not None:
            u = sum_rule_weights(K_states, K_states, predictions[t], eps_observation)
            u = positive_part(u) if clipped else u
            ratios[t] = evidence_ratio(K_observations, u, k_y, lam)
    return ratios


def mixture_evidence(
    K_states: Array, observations: Any, predictions: Array, test: Array, eps: float
) -> Array:
    """``log p(y_t | y_1..t-1) / p(y_t)`` by Gaussian likelihoods, 0 where y_t is missing.

    The likelihood of training state i is ``N(y; E[y|s_i], S)``, S the residuals' covariance (its
    off-diagonal part shrunk by ``d/(d + n)``) over the squared share of free degrees. The
    prediction's positive weights on the states are above the line; below it all states and one
    more row, with twice the spread of the observations.
    """
    whole = np.concatenate(observations) if isinstance(observations, list) else observations
    n, d = whole.shape
    centre = whole.mean(axis=0)
    Y = whole - centre
    hat = K_states @ np.linalg.inv(K_states + n * eps * np.eye(n))
    means = hat @ Y
    S = (Y - means).T @ (Y - means) / n / (1 - np.trace(hat) / n) ** 2
    S = np.where(np.eye(d) > 0, S, S * n / (d + n))
    wide = 4 * Y.T @ Y / n
    found = np.zeros(len(test))
    for t, y in enumerate(test):
        if np.isnan(y).any():
            continue
        u = positive_part(sum_rule_weights(K_states, K_states, predictions[t], eps))
        likely = multivariate_normal(np.zeros(d), S).pdf(y - centre - means)
        tail = multivariate_normal(np.zeros(d), wide).pdf(y - centre)
        below = (likely.sum() + tail) / (n + 1)
        found[t] = np.log((u / u.sum() * likely).sum() + 1e-6 * likely.mean()) - np.log(below)
    return found


def additive_filter(
    K_states: Array,
    K_observations: Array,
    first: Indices,
    second: Indices,
    columns: Sequence[Array | None],
    lam: float,
    centred: bool = False,
    lam_transition: float | None = None,
    initial: ArrayLike | None = None,
    threshold: float = 0.0,
) -> tuple[Array, Array]:
    """Additive filter (001, Theorem 9, Algorithms 1 and 2): beliefs and predictions, (steps, m).

    Weights are on the m successors ``second``: :func:`on_states` moves them to the T states.
    Uncentred, ``beta <- (K + U + lam m I)^-1 (G beta + u_o)``; centred, with the mean added back
    (as printed the weights sum to zero),
    ``beta <- 1/m + (H K + H U + lam m I)^-1 H (G beta + u_o - (K + U) 1/m)``. Both are normalised.

    A missing observation leaves the transition alone (Theorem 7): the same with neither U nor u_o
    and ``lam_transition`` (``None``: lam); the predictions are that too. ``initial`` (``None``:
    1/m, as Algorithm 2) is the belief on the successors *before* the first step, about the state
    that precedes the first observation. Regression weights oscillate about zero with a total near
    one, kappa below 0.2 at small lam without any conflict, so that ``threshold`` is 0 here.
    """
    first, second = np.asarray(first), np.asarray(second)
    m = len(first)
    K = K_states[np.ix_(first, first)]  # Upsilon^T Upsilon
    U = K_observations[np.ix_(second, second)]  # Psi^T Psi
    transfer = K_states[np.ix_(first, second)]  # G = Upsilon^T Phi
    lam_transition = lam if lam_transition is None else lam_transition
    estimator = ESTIMATORS[centred]
    beta = np.full(m, 1 / m) if initial is None else np.asarray(initial, float)
    beta = beta / beta.sum()
    beliefs, predictions = np.empty((len(columns), m)), np.empty((len(columns), m))
    for t, k_y in enumerate(columns):
        prediction = estimator(K, transfer @ beta, lam_transition)
        predictions[t] = normalised_weights(prediction, threshold)
        if k_y is None:
            beta = predictions[t]
        else:
            update = estimator(K + U, transfer @ beta + k_y[second], lam)
            beta = normalised_weights(update, threshold)
        beliefs[t] = beta
    return beliefs, predictions


class SpectralPath(NamedTuple):
    """What :func:`spectral_filter` returns; row t knows the observations before t."""

    beliefs: Array  # b_t, (steps + 1, rank)
    predictions: Array  # embedding of P(o_t | o_1..t-1), (steps + 1, r)
    weights: Array  # the same as weights on the middle observations, (steps + 1, n)
    ratios: Array  # P(o_t | o_1..t-1) / P_2(o_t), (steps,), NaN where o_t is missing


def spectral_filter(
    P1: Array,
    P2: Array,
    P3: Array,
    observed: Sequence[Array | None],
    rank: int,
    lam: float,
    w: ArrayLike | None = None,
) -> SpectralPath:
    """Hidden Markov model from observations alone (Song, Boots, Siddiqi, Gordon and Smola 2010).

    ``P1``, ``P2`` and ``P3`` are the features of n triples of consecutive observations, one row a
    triple, ``observed`` those of the test sequence (``None``: missing), ``rank`` the number of
    states N. With ``C_21 = E[phi(o_2) (x) phi(o_1)]`` and U its first N left singular vectors:

    * ``b_1 = U^T mu_1``,
    * ``b_inf = C_21 (U^T C_21)^+``, which takes a belief to the next observation's embedding,
    * ``B_x = (U^T C_3x1) (U^T C_21)^+``, ``C_3x1 = sum_i beta_i(x) phi(o_3i) (x) phi(o_1i)``, beta
      the conditional weights given the middle observation, regularised by ``lam``.

    ``C_3x1`` is the joint of Hsu, Kakade and Zhang (2009) divided by P_2(x), which cancels in
    ``b_t+1 = B_x b_t / (eta^T B_x b_t)``. Their scalar normaliser, ``eta = (C_12 U)^+ mu_1``, gives
    total mass: in a model with states h, ``U^T O h -> 1^T h``. A missing observation is integrated
    out: ``C_31`` for ``C_3x1``. Nothing guards against a normaliser near zero.
    """
    n = len(P1)
    w = _weights(w, n)
    C_21 = operator_joint([P2, P1], w)
    mu_1 = operator_mean(P1, w)
    U = np.linalg.svd(C_21)[0][:, :rank]
    inverse = np.linalg.pinv(U.T @ C_21, RANK_TOLERANCE)  # (r, N)
    eta = np.linalg.pinv(C_21.T @ U, RANK_TOLERANCE) @ mu_1
    beliefs, ratios = [U.T @ mu_1], np.full(len(observed), np.nan)
    for t, x in enumerate(observed):
        beta = w if x is None else conditional_weights(P2 @ P2.T, P2 @ x, lam, w)
        C_3x1 = operator_joint([P3, P1], beta)
        b = U.T @ C_3x1 @ inverse @ beliefs[-1]
        if x is not None:
            ratios[t] = eta @ b
        beliefs.append(b / (eta @ b))
    b = np.array(beliefs)
    weights = (w[:, None] * (P1 @ inverse)) @ b.T  # C_21 = sum_i w_i phi(o_2i) (x) phi(o_1i)
    return SpectralPath(b, b @ (C_21 @ inverse).T, weights.T, ratios)


class HiddenMarkovPath(NamedTuple):
    """What :func:`hmm_forward_backward` returns; rows are times, columns states."""

    filtered: Array  # P(s_t | o_1..t)
    smoothed: Array  # P(s_t | o_1..n)
    predicted: Array  # P(s_t | o_1..t-1)
    ahead: Array  # P(s_t+k | o_1..t)
    log_evidence: float  # log P(o_1..n)


def hmm_forward_backward(
    transition: Array,
    emission: Array,
    initial: Array,
    observations: Sequence[int | None],
    steps: int = 1,
) -> HiddenMarkovPath:
    """Forward-backward algorithm (Rabiner 1989), scaled; ``None`` is a missing observation.

    ``transition[i, j] = P(s_t+1 = j | s_t = i)``, ``emission[i, o] = P(o | i)``, ``initial`` is
    the law of the first state, ``steps`` the k of ``ahead``.
    """
    n, states = len(observations), len(initial)
    likelihood = np.ones((n, states))
    for t, observation in enumerate(observations):
        if observation is not None:
            likelihood[t] = emission[:, observation]
    filtered, predicted = np.empty((n, states)), np.empty((n, states))
    log_evidence = 0.0
    for t in range(n):
        predicted[t] = initial if t == 0 else filtered[t - 1] @ transition
        joint = predicted[t] * likelihood[t]
        filtered[t] = joint / joint.sum()
        log_evidence += float(np.log(joint.sum()))
    backward = np.ones((n, states))  # P(o_t+1..n | s_t), scaled
    for t in range(n - 2, -1, -1):
        backward[t] = transition @ (likelihood[t + 1] * backward[t + 1])
        backward[t] /= backward[t].sum()
    smoothed = filtered * backward
    smoothed /= smoothed.sum(axis=1, keepdims=True)
    ahead = filtered @ np.linalg.matrix_power(transition, steps)
    return HiddenMarkovPath(filtered, smoothed, predicted, ahead, log_evidence)


class KalmanPath(NamedTuple):
    """What :func:`kalman_filter_smoother` returns; means (n, d), covariances (n, d, d)."""

    mean: Array
    covariance: Array
    smoothed_mean: Array
    smoothed_covariance: Array
    predicted_mean: Array
    predicted_covariance: Array
    log_evidence: float


def kalman_filter_smoother(
    A: Array, Q: Array, H: Array, R: Array, m0: Array, P0: Array, ys: Array
) -> KalmanPath:
    """Kalman filter and Rauch-Tung-Striebel smoother (Sarkka 2013, Theorems 4.2 and 8.2).

    ``x_t+1 = A x_t + N(0, Q)``, ``y_t = H x_t + N(0, R)``; N(m0, P0) is the law of the *first*
    state, the one that ``ys[0]`` observes. A row of NaN is a missing observation.
    """
    n, d = len(ys), len(m0)
    mean, covariance = np.empty((n, d)), np.empty((n, d, d))
    predicted_mean, predicted_covariance = np.empty((n, d)), np.empty((n, d, d))
    log_evidence = 0.0
    for t in range(n):
        m, P = (m0, P0) if t == 0 else (A @ mean[t - 1], A @ covariance[t - 1] @ A.T + Q)
        predicted_mean[t], predicted_covariance[t] = m, P
        if not np.isnan(ys[t]).any():
            residual, S = ys[t] - H @ m, H @ P @ H.T + R
            gain = P @ H.T @ np.linalg.inv(S)
            m, P = m + gain @ residual, P - gain @ S @ gain.T
            quadratic = residual @ np.linalg.solve(S, residual)
            log_evidence -= float(quadratic + np.log(np.linalg.det(2 * np.pi * S))) / 2
        mean[t], covariance[t] = m, P
    smoothed_mean, smoothed_covariance = mean.copy(), covariance.copy()
    for t in range(n - 2, -1, -1):
        m, P = predicted_mean[t + 1], predicted_covariance[t + 1]
        gain = covariance[t] @ A.T @ np.linalg.inv(P)
        smoothed_mean[t] += gain @ (smoothed_mean[t + 1] - m)
        smoothed_covariance[t] += gain @ (smoothed_covariance[t + 1] - P) @ gain.T
    return KalmanPath(
        mean,
        covariance,
        smoothed_mean,
        smoothed_covariance,
        predicted_mean,
        predicted_covariance,
        log_evidence,
    )


# --------------------------------------------------------------------------------------
# Bayesian inference by densities and by rejection (002, sections 4.4, 5.1 and 5.2)
# --------------------------------------------------------------------------------------


def normal_density(difference: ArrayLike, h: float) -> float:
    """``K_h(x) = h^-d K(x / h)`` with K the standard normal density on R^d."""
    z = np.asarray(difference, float) / h
    return float(np.exp(-(z @ z) / 2) / ((2 * np.pi) ** (len(z) / 2) * h ** len(z)))


def kde_conditional_density(X: Array, Y: Array, h: float, x: ArrayLike, y: ArrayLike) -> float:
    """002, 5.1: ``p^(y|x) = sum_j K_h(x - X_j) K_h(y - Y_j) / sum_j K_h(x - X_j)``."""
    near = [normal_density(x - Xj, h) for Xj in X]
    return sum(k * normal_density(y - Yj, h) for k, Yj in zip(near, Y, strict=True)) / sum(near)


def kde_importance_mean(X: Array, Y: Array, U: Array, h: float, y: ArrayLike) -> Array:
    """002, 5.1: the mean of the prior's sample U with ``zeta_i = p^(y|U_i) / sum_j p^(y|U_j)``."""
    zeta = np.array([kde_conditional_density(X, Y, h, u, y) for u in U])
    return (zeta / zeta.sum()) @ U


def least_squares_cross_validation(Z: Array, h: float) -> float:
    """``int p^2 - 2/n sum_i p_-i(z_i)`` (Rudemo 1982; Bowman 1984), up to a constant in h the ISE.

    Two normal densities of variance h^2 overlap in one of variance 2 h^2.
    """
    n = len(Z)
    square = sum(normal_density(a - b, np.sqrt(2) * h) for a in Z for b in Z) / n**2
    left_out = [
        sum(normal_density(Z[i] - Z[j], h) for j in range(n) if j != i) / (n - 1) for i in range(n)
    ]
    return float(square - 2 * np.mean(left_out))


def rejection_mean(theta: Array, outputs: Array, y: ArrayLike, tolerance: float) -> Array:
    """002, 4.4, steps (i) to (iv): the mean of the draws with ``D(y, Y_t) < tau``, D Euclidean."""
    accepted = [
        draw
        for draw, output in zip(theta, outputs, strict=True)
        if np.linalg.norm(output - y) < tolerance
    ]
    return np.mean(accepted, axis=0)


def incomplete_cholesky_ranks(K: Array, tol: float) -> tuple[int, int]:
    """Ranks at which greedy pivoting (Fine and Scheinberg 2001) leaves less than ``tol``.

    First by the largest diagonal element of the residual ``K - L L^T``, then by its trace.
    """
    residual = np.array(K, float)
    rank, largest, trace = 0, None, None
    while largest is None or trace is None:
        diagonal = np.diag(residual)
        if largest is None and diagonal.max() < tol:
            largest = rank
        if trace is None and diagonal.sum() < tol:
            trace = rank
        i = int(diagonal.argmax())
        residual = residual - np.outer(residual[:, i], residual[i]) / residual[i, i]
        rank += 1
    return largest, trace


# --------------------------------------------------------------------------------------
# Posteriors of simulations: what the mean leaves, moved
# --------------------------------------------------------------------------------------


def leave_one_out_answers(
    K: Array, F: Array, lam: float, w: ArrayLike | None = None, centred: bool | None = False
) -> Array:
    """``E[f|x_i]`` (n, q) by n refits, each without its row: see `leave_one_out_error`.

    The others keep their weights, which is the ordinary estimator with weights ``w / (1 - w_i)``
    and regularisation ``lam / (1 - w_i)``. ``F`` (n, q) is f at the sample's points.
    """
    n = len(K)
    w = _weights(w, n)
    estimator = ESTIMATORS[centred]
    answers = []
    for i in range(n):
        rest = np.delete(np.arange(n), i)
        scale = 1.0 - w[i]
        K_rest = K[np.ix_(rest, rest)]
        answers.append(estimator(K_rest, K[rest, i], lam / scale, w[rest] / scale) @ F[rest])
    return np.stack(answers)


class Adjustment(NamedTuple):
    """What eq. 19 says of n simulations, each answered without its own row."""

    residuals: Array  # r_i = theta_i - m(y_i), (n, d)
    log_scales: Array  # log s(y_i), (n, d)
    centre: Array  # the prior's mean, (d,)
    logs: Array  # log |r_i|, less its average, (n, d)
    means: Array  # m(y_i), (n, d)


def normalised_mean(v_theta: Array, v_one: Array, centre: Array) -> Array:
    """``sum v_i theta_i / sum v_i``; of mass below 1/2 the prior's mean makes up the rest."""
    mass = np.maximum(v_one, 0.5)[:, None]
    return centre + (v_theta - v_one[:, None] * centre) / mass


def regression_adjustment(
    G: Array, theta: Array, lam: float, w: ArrayLike | None = None
) -> Adjustment:
    """Residuals and scales of the regression adjustment (Beaumont, Zhang and Balding 2002).

    ``m`` is the normalised mean of 002, eq. 19, and ``log s`` its conditional expectation of
    ``log |r|`` (Blum and Francois 2010), |r| at least a thousandth of its median.
    """
    n = len(theta)
    w = _weights(w, n)
    centre = w @ theta
    v_theta = leave_one_out_answers(G, theta, lam, w)
    v_one = leave_one_out_answers(G, np.ones((n, 1)), lam, w)[:, 0]
    means = normalised_mean(v_theta, v_one, centre)
    residuals = theta - means
    median = np.median(abs(residuals), axis=0)
    floor = 1e-3 * np.where(median > 0, median, 1.0)
    logs = np.log(np.maximum(abs(residuals), floor))
    logs = logs - w @ logs
    log_scales = leave_one_out_answers(G, logs, lam, w)
    return Adjustment(residuals, log_scales, centre, logs, means)


def adjusted_draws(
    theta: Array,
    outputs: Array,
    G: Array,
    k_y: Array,
    y: Array,
    lam: float,
    share: float,
    w: ArrayLike | None = None,
) -> tuple[Array, Array]:
    """``theta*_i = m(y) + r_i s(y)/s(y_i)`` with weights ``w_i kappa(y - y_i)``, all n of them.

    kappa is a Gaussian in outputs standardised by their interquartile range, its deviation half
    the distance to the k-th nearest of the simulations, k a share of them and at least 20. A scale
    changes by at most e^2; draws are reflected at the ends of the prior's draws, and columns of
    whole numbers stay as they are.
    """
    n = len(theta)
    w = _weights(w, n)
    found = regression_adjustment(G, theta, lam, w)
    v = conditional_weights(G, k_y, lam, w)
    m = normalised_mean((v @ theta)[None], np.array([v.sum()]), found.centre)[0]
    growth = np.exp(np.clip(v @ found.logs - found.log_scales, -2, 2))
    draws = m + found.residuals * growth
    for j in range(theta.shape[1]):
        low, high = theta[:, j].min(), theta[:, j].max()
        for i in range(n):
            if all(value == int(value) for value in theta[:, j]):
                draws[i, j] = theta[i, j]
            if draws[i, j] < low:
                draws[i, j] = low + (low - draws[i, j])
            if draws[i, j] > high:
                draws[i, j] = high - (draws[i, j] - high)
            draws[i, j] = min(max(draws[i, j], low), high)
    spread = np.empty(outputs.shape[1])
    for j in range(outputs.shape[1]):  # quartiles, each value at the middle of its weight
        order = np.argsort(outputs[:, j])
        middle = np.cumsum(w[order]) - w[order] / 2
        low, high = np.interp([0.25, 0.75], middle, outputs[order, j])
        spread[j] = (high - low) / 1.349
    distances = np.array([np.linalg.norm((row - y) / spread) for row in outputs])
    k = max(int(share * n), 20)
    kappa = (
        np.ones(n) if k >= n else np.exp(-(distances**2) / (2 * (np.sort(distances)[k] / 2) ** 2))
    )
    return draws, w * kappa / (w @ kappa)


# --------------------------------------------------------------------------------------
# Graphical models: enumeration, joint Gaussians, dense messages
# --------------------------------------------------------------------------------------


def network_joint(
    data: dict[Any, Array],
    parents: dict[Any, tuple[Any, ...]],
    states: dict[Any, int],
    w: ArrayLike | None = None,
) -> Array:
    """``P(x_1, ..., x_p) = prod_i P(x_i | parents)`` with tables of frequencies, every cell.

    Columns are whole numbers 0, 1, ...; the axes are in the order of ``states``. A table's row for
    parents that no row of the data has is zero.
    """
    names = list(states)
    weights = _weights(w, len(data[names[0]]))
    joint = np.ones([states[name] for name in names])
    for name, before in parents.items():
        table = np.zeros([states[parent] for parent in before] + [states[name]])
        for i, weight in enumerate(weights):
            table[tuple(int(data[one][i]) for one in (*before, name))] += weight
        total = table.sum(axis=-1, keepdims=True)
        table = np.divide(table, total, out=np.zeros_like(table), where=total > 0)
        for cell in np.ndindex(*joint.shape):
            joint[cell] *= table[tuple(cell[names.index(one)] for one in (*before, name))]
    return joint


def network_marginal(
    joint: Array, names: Sequence[Any], query: Sequence[Any], evidence: dict[Any, int]
) -> Array:
    """``P(query | evidence)`` by summation of a joint table, axes in the order of the query."""
    names = list(names)
    table = np.zeros([joint.shape[names.index(name)] for name in query])
    for cell in np.ndindex(*joint.shape):
        if all(cell[names.index(name)] == value for name, value in evidence.items()):
            table[tuple(cell[names.index(name)] for name in query)] += joint[cell]
    return table / table.sum()


def linear_gaussian_network(slopes: Array, noise: ArrayLike) -> Array:
    """The covariance of ``x = B x + e``, ``e_i ~ N(0, noise_i^2)``: ``(I-B)^-1 D (I-B)^-T``.

    ``slopes[i, j]`` is how x_j enters x_i.
    """
    inverse = np.linalg.inv(np.eye(len(slopes)) - slopes)
    return inverse @ np.diag(np.asarray(noise, float) ** 2) @ inverse.T


def kernel_belief(
    edges: Sequence[tuple[Any, Any]],
    grams: dict[Any, Array],
    evidence: dict[Any, Array],
    query: Any,
    lam: float,
) -> Array:
    """A node's weights on the rows given evidence in a tree: kernel belief propagation, dense.

    Messages are those of Algorithm VI of 000, ``beta_ts = (K_s + n lam I)^-1 (prod K_t beta_ut)``,
    ``evidence[t]`` is ``k(rows, x_t)``. Evidence enters the product as the function
    ``(C_tt + lam I)^-1 phi(x_t)`` at the rows, ``n (K_t + n lam I)^-1 k_t``: a delta over the
    density. A product of several factors, and only that, has their values (of mean 1) cut at 1e-3.

    Where evidence is beyond one neighbour t alone, the belief is that of t pushed forward,
    ``(K_t + n lam I)^-1 K_t alpha_t`` (the sum rule); for evidence ``(K_t + n lam I)^-1 k_t``.
    """
    n = len(next(iter(grams.values())))
    neighbours: dict[Any, list[Any]] = {name: [] for name in grams}
    for a, b in edges:
        neighbours[a].append(b)
        neighbours[b].append(a)

    def ridge(node: Any, values: Array) -> Array:
        return np.linalg.solve(grams[node] + n * lam * np.eye(n), values)

    def sources(t: Any, s: Any) -> list[Any]:
        """Neighbours of t but s with evidence there or beyond."""
        others = [u for u in neighbours[t] if u != s]
        return [u for u in others if u in evidence or sources(u, t)]

    def product(t: Any, s: Any) -> Array:
        values = [grams[t] @ message(u, t) for u in sources(t, s)]
        return values[0] if len(values) == 1 else np.prod(np.maximum(values, 1e-3), axis=0)

    def message(t: Any, s: Any) -> Array:
        values = n * ridge(t, evidence[t]) if t in evidence else product(t, s)
        beta = ridge(s, values)
        return beta / (grams[s] @ beta).mean()

    def belief(q: Any, s: Any) -> Array:
        beyond = sources(q, s)
        if not beyond:
            return np.full(n, 1 / n)
        if len(beyond) > 1:
            weights = product(q, s)
            return weights / weights.sum()
        t = beyond[0]
        return ridge(t, evidence[t] if t in evidence else grams[t] @ belief(t, q))

    return belief(query, None)


# --------------------------------------------------------------------------------------
# Belief propagation on graphs with loops: 000 eq. 27-30, message by message
# --------------------------------------------------------------------------------------

Messages = dict[tuple[Any, Any], Array]


def _neighbours(pairs: Sequence[tuple[Any, Any]], names: Sequence[Any]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {name: [] for name in names}
    for a, b in pairs:
        found[a].append(b)
        found[b].append(a)
    return found


def loopy_kernel_messages(
    edges: Sequence[tuple[Any, Any]],
    grams: dict[Any, Array],
    observed: dict[Any, Array],
    lam: float,
    iterations: int,
    damping: float = 0.0,
    likelihoods: dict[Any, Array] | None = None,
    w: ArrayLike | None = None,
) -> tuple[Messages, dict[Any, Array]]:
    """Algorithm VI of 000 as it stands: messages (t, s) at the rows, and beliefs as weights.

    ``beta_ts = (K_s + n lam I)^-1 prod_u K_t beta_ut`` (eq. 30), all messages at once, each made to
    have (weighted) mean one over the rows, its values cut at 1e-3 where a product is formed. The
    first messages are those of a product of nothing. ``observed[t]`` is ``k(rows, x_t)``: such a
    node says ``(K_s + n lam I)^-1 n (K_t + n lam I)^-1 k_t`` and hears nothing.
    ``likelihoods[t]`` are values at the rows that enter every product at t. With weights ``n``
    is ``diag(1/w)``. Damping is a share of the old message that stays.
    """
    names = list(grams)
    n = len(grams[names[0]])
    w = _weights(w, n)
    neighbours = _neighbours(edges, names)
    likelihoods = likelihoods or {}

    def ridge(s: Any, values: Array) -> Array:
        beta = np.linalg.solve(grams[s] + lam * np.diag(1 / w), values)
        m = grams[s] @ beta
        return m / (w @ m)

    def product(state: Messages, t: Any, s: Any) -> Array:
        values = np.array(likelihoods.get(t, np.ones(n)), float)
        for u in neighbours[t]:
            if u != s:
                values = values * np.maximum(state[u, t], 1e-3)
        return values

    state: Messages = {}
    for t in names:
        for s in neighbours[t]:
            if t in observed:
                delta = np.linalg.solve(grams[t] @ np.diag(w) + lam * np.eye(n), observed[t])
                state[t, s] = ridge(s, delta)
            else:
                state[t, s] = ridge(s, np.ones(n))
    for _ in range(iterations):
        fresh = {}
        for t, s in state:
            if t in observed:
                fresh[t, s] = state[t, s]
            else:
                sent = ridge(s, product(state, t, s))
                fresh[t, s] = (1 - damping) * sent + damping * state[t, s]
        state = fresh
    beliefs = {}
    for s in names:
        if s not in observed:
            weights = w * product(state, s, None)
            beliefs[s] = weights / weights.sum()
    return state, beliefs


def pair_frequencies(
    a: ArrayLike, b: ArrayLike, states: tuple[int, int], w: ArrayLike | None = None
) -> Array:
    """``P(x_a, x_b)`` of two columns of whole numbers, rows with a negative one left out."""
    a, b = np.asarray(a), np.asarray(b)
    table = np.zeros(states)
    for i, weight in enumerate(_weights(w, len(a))):
        if a[i] >= 0 and b[i] >= 0:
            table[int(a[i]), int(b[i])] += weight
    return table / table.sum()


def loopy_discrete_messages(
    tables: dict[tuple[Any, Any], Array],
    marginals: dict[Any, Array],
    observed: dict[Any, int],
    iterations: int,
    damping: float = 0.0,
    likelihoods: dict[Any, Array] | None = None,
    power: float = 1.0,
) -> tuple[Messages, dict[Any, Array]]:
    """Loopy belief propagation on tables ``P(x_a, x_b)`` of the edges, all messages at once.

    ``m_ts(x_s) = sum_t P(x_t | x_s) f(x_t) prod_u m_ut(x_t)`` (eq. 27 with the edge potential
    ``P(x_s, x_t)/(P(x_s) P(x_t))``), of mean one under the marginal of s; observed
    nodes say ``P(x_t, x_s)/(P(x_t) P(x_s))``. A belief is ``P(x_s) f(x_s) prod_u m_us(x_s)``.

    With a power ``rho`` it is the tree-reweighted kind (Wainwright, Jaakkola and Willsky 2005, eq.
    39) with edge potentials ``(P(x_s, x_t)/(P(x_s) P(x_t)))^rho``: messages between hidden nodes
    have that power, and the one that came from s has ``rho - 1``.
    """
    neighbours = _neighbours(list(tables), list(marginals))
    likelihoods = likelihoods or {}

    def joint(t: Any, s: Any) -> Array:
        return tables[t, s] if (t, s) in tables else tables[s, t].T

    def send(t: Any, s: Any, values: Array) -> Array:
        P = joint(t, s)
        m = np.zeros(P.shape[1])
        for x_s in range(P.shape[1]):
            for x_t in range(P.shape[0]):
                m[x_s] += P[x_t, x_s] / P[:, x_s].sum() * values[x_t]
        return m / (marginals[s] @ m)

    def product(state: Messages, t: Any, s: Any) -> Array:
        values = np.array(likelihoods.get(t, np.ones(len(marginals[t]))), float)
        for u in neighbours[t]:
            if u in observed:
                values = values * state[u, t]
            elif u != s:
                values = values * state[u, t] ** power
            else:
                values = values * state[u, t] ** (power - 1)
        return values

    state: Messages = {}
    for t in marginals:
        for s in neighbours[t]:
            if t in observed:
                delta = np.zeros(len(marginals[t]))
                delta[observed[t]] = 1 / joint(t, s).sum(axis=1)[observed[t]]
                state[t, s] = send(t, s, delta)
            else:
                state[t, s] = np.ones(len(marginals[s]))
    for _ in range(iterations):
        fresh = {}
        for t, s in state:
            if t in observed:
                fresh[t, s] = state[t, s]
            else:
                sent = send(t, s, product(state, t, s))
                fresh[t, s] = (1 - damping) * sent + damping * state[t, s]
        state = fresh
    beliefs = {}
    for s in marginals:
        if s not in observed:
            belief = marginals[s] * product(state, s, None)
            beliefs[s] = belief / belief.sum()
    return state, beliefs


def pairwise_joint(tables: dict[tuple[Any, Any], Array], marginals: dict[Any, Array]) -> Array:
    """``prod_s P(x_s) prod_st P(x_s, x_t)/(P(x_s) P(x_t))``, every cell: on a tree the joint."""
    names = list(marginals)
    joint = np.ones([len(marginals[name]) for name in names])
    for cell in np.ndindex(*joint.shape):
        for name, value in zip(names, cell, strict=True):
            joint[cell] *= marginals[name][value]
        for (a, b), table in tables.items():
            x, y = cell[names.index(a)], cell[names.index(b)]
            joint[cell] *= table[x, y] / (table.sum(axis=1)[x] * table.sum(axis=0)[y])
    return joint / joint.sum()


# --- support measures: Muandet, Fukumizu, Dinuzzo and Schölkopf (2012) ----------------------------


def random_covariance(rng: np.random.Generator, d: int) -> Array:
    """A covariance matrix drawn at random."""
    A = rng.normal(size=(d, d))
    return A @ A.T


def quadrature(bag: Any, order: int) -> tuple[Array, Array]:
    """Points and weights whose sums are expectations under a bag, by Gauss and Hermite."""
    if hasattr(bag, "covariance"):
        d = len(bag.mean)
        x, w = np.polynomial.hermite_e.hermegauss(order)
        grid = np.stack([g.ravel() for g in np.meshgrid(*[x] * d)], axis=1)
        weights = np.prod([g.ravel() for g in np.meshgrid(*[w / w.sum()] * d)], axis=0)
        C = np.asarray(bag.covariance)
        C = C if C.ndim == 2 else np.diag(np.broadcast_to(C, d))
        values, vectors = np.linalg.eigh(C)
        return bag.mean + grid @ (vectors * np.sqrt(np.maximum(values, 0))).T, weights
    if hasattr(bag, "weights"):
        if not hasattr(bag.points[0], "covariance"):
            return np.asarray(bag.points), np.asarray(bag.weights)
        parts = [quadrature(part, order) for part in bag.points]
        points = np.concatenate([x for x, _ in parts])
        return points, np.concatenate([c * w for c, (_, w) in zip(bag.weights, parts, strict=True)])
    return np.asarray(bag), np.full(len(bag), 1 / len(bag))


def expected_by_quadrature(kernel: Any, bags: list[Any], order: int) -> Array:
    """``sum_ij w_i v_j k(x_i, y_j)`` for every pair of bags."""
    nodes = [quadrature(bag, order) for bag in bags]
    return np.array([[w @ kernel(x, y) @ v for y, v in nodes] for x, w in nodes])


# --- clustering by dependence and unfolding -------------------------------------------------------


def label_dependence(K: Array, labels: Array, F: Array, normalized: bool) -> float:
    """``tr(H K H Pi A Pi^T)/n^2`` (Song, Smola, Gretton and Borgwardt 2007) with ``A = F F^T``;
    normalised, each feature is divided by the root of its mean size over the points."""
    n, k = len(K), len(F)
    Pi = np.zeros((n, k))
    for i in range(n):
        Pi[i, labels[i]] = 1.0
    features = Pi @ F
    if normalized:
        for q in range(F.shape[1]):
            size = abs(features[:, q]).mean()
            features[:, q] = features[:, q] / np.sqrt(size) if size > 0 else 0.0
    H = np.eye(n) - np.ones((n, n)) / n
    return float(np.trace(H @ K @ H @ features @ features.T)) / n**2


def best_label_dependence(K: Array, F: Array, normalized: bool) -> float:
    """The largest over all labellings."""
    return max(
        label_dependence(K, np.array(labels), F, normalized)
        for labels in np.ndindex(*[len(F)] * len(K))
    )


def colored_unfolding(
    X: Array, L: Array, edges: Array, stiffness: float | None = None
) -> tuple[Array, float]:
    """``max tr(H K H L)`` over centred ``K >= 0`` that keeps ``d_ij^2`` on the edges (Song, Smola,
    Borgwardt and Gretton 2008), entry by entry, by cvxpy; with a stiffness ``nu`` instead of
    equalities ``- nu w sum (K_ii + K_jj - 2 K_ij - d_ij^2)^2 / mean d^2``, ``w`` the least number
    with ``w D^T D >= H L H``. Returns ``K`` and the value ``tr(H K H L)``."""
    import cvxpy as cp
    from scipy.linalg import eigh

    n = len(X)
    H = np.eye(n) - np.ones((n, n)) / n
    K = cp.Variable((n, n), PSD=True)
    squares = [float(np.sum((X[i] - X[j]) ** 2)) for i, j in edges]
    off = [K[i, i] + K[j, j] - 2 * K[i, j] - d2 for (i, j), d2 in zip(edges, squares, strict=True)]
    constraints: list[Any] = [cp.sum(K) == 0]
    value = cp.trace(H @ L @ H @ K)
    aim = value
    if stiffness is None:
        constraints += [gap == 0 for gap in off]
    else:
        laplacian = np.zeros((n, n))
        for i, j in edges:
            laplacian[i, i] += 1
            laplacian[j, j] += 1
            laplacian[i, j] -= 1
            laplacian[j, i] -= 1
        w = eigh((H @ L @ H)[1:, 1:], laplacian[1:, 1:], eigvals_only=True)[-1]
        aim = value - stiffness * w / np.mean(squares) * cp.sum_squares(cp.hstack(off))
    cp.Problem(cp.Maximize(aim), constraints).solve(solver=cp.CLARABEL)
    return np.asarray(K.value), float(value.value)


# --- feature selection: Song, Smola, Gretton, Bedo and Borgwardt (2012); Yamada et al. (2014) -----


def balanced_labels(y: ArrayLike) -> Array:
    """The Gram matrix of labels, ``1 / n_y`` where they are equal, else 0 (2012, section 5)."""
    y = list(np.asarray(y).tolist())
    return np.array([[(1.0 / y.count(a)) if a == b else 0.0 for b in y] for a in y])


def median_of_distances(X: ArrayLike) -> float:
    """The median distance between two different rows, by loops."""
    X = np.asarray(X, float)
    found = [float(np.sqrt(((X[i] - X[j]) ** 2).sum())) for i in range(len(X)) for j in range(i)]
    return float(np.median([r for r in found if r > 0]))


def unbiased_hsic(K: Array, L: Array) -> float:
    """Eq. 5 of Song et al. (2012) as printed, with the diagonals of both matrices set to zero."""
    m = len(K)
    K, L, one = K - np.diag(np.diag(K)), L - np.diag(np.diag(L)), np.ones(m)
    value = np.trace(K @ L)
    value += (one @ K @ one) * (one @ L @ one) / ((m - 1) * (m - 2))
    value -= 2 / (m - 2) * (one @ K @ L @ one)
    return float(value / (m * (m - 3)))


def bahsic(X: Array, L: Array, factor: float) -> tuple[list[int], list[float]]:
    """Algorithm 1 with one feature a step: features in the order of removal, and HSIC left then.

    The bandwidth is ``factor`` times the median on the features still there, anew at each step.
    """
    S = list(range(X.shape[1]))
    order, values = [], []
    while len(S) > 1:
        sigma = factor * median_of_distances(X[:, S])
        left = []
        for j in S:
            rest = [i for i in S if i != j]
            left.append(unbiased_hsic(gaussian(X[:, rest], X[:, rest], sigma), L))
        worst = int(np.argmax(left))
        values.append(left[worst])
        order.append(S.pop(worst))
    return [*order, *S], values


def fohsic(X: Array, L: Array, factor: float, k: int) -> tuple[list[int], list[float]]:
    """Algorithm 2 with one feature a step, each set with its own median: features, and HSIC."""
    S: list[int] = []
    values = []
    while len(S) < k:
        found = {}
        for j in set(range(X.shape[1])) - set(S):
            both = [*S, j]
            sigma = factor * median_of_distances(X[:, both])
            found[j] = unbiased_hsic(gaussian(X[:, both], X[:, both], sigma), L)
        best = max(found, key=lambda j: found[j])
        S.append(best)
        values.append(found[best])
    return S, values


def hsic_lasso_products(grams: Sequence[Array], L: Array) -> tuple[Array, Array]:
    """``<K_j, K_k>`` and ``<K_j, L>``, Gram matrices centred and of norm one (2014, eq. 4)."""

    def normal(K: Array) -> Array:
        H = np.eye(len(K)) - 1 / len(K)
        K = H @ K @ H
        return K / np.sqrt((K**2).sum())

    bars = [normal(K) for K in grams]
    target = normal(L)
    products = np.array([[(a * b).sum() for b in bars] for a in bars])
    return products, np.array([(a * target).sum() for a in bars])


def nonnegative_lasso(G: Array, c: Array, lam: float, sweeps: int = 20000) -> Array:
    """``min a^T G a / 2 - c^T a + lam sum(a)`` over ``a >= 0``, a coordinate at a time."""
    a = np.zeros(len(c))
    for _ in range(sweeps):
        before = a.copy()
        for j in range(len(c)):
            slope = c[j] - lam - G[j] @ a + G[j, j] * a[j]
            a[j] = max(0.0, slope / G[j, j])
        if np.abs(a - before).max() < 1e-15:
            break
    return a


# --- densities from embeddings, and thinning ------------------------------------------------------


def gaussian_embedding_by_quadrature(
    c: float, h: float, x: float, sigma: float, steps: int = 20001
) -> float:
    """E exp(-(u - x)²/2σ²) for u ~ N(c, h²), by the trapezium rule on c ± 12 h."""
    u = np.linspace(c - 12 * h, c + 12 * h, steps)
    p = np.exp(-((u - c) ** 2) / (2 * h * h)) / (h * np.sqrt(2 * np.pi))
    k = np.exp(-((u - x) ** 2) / (2 * sigma * sigma))
    return float(np.sum(p * k) * (u[1] - u[0]))


def density_programme(
    Q: np.ndarray,
    b: np.ndarray,
    square: float,
    epsilon: float,
    log_base: np.ndarray | None = None,
) -> np.ndarray:
    """Song et al. (2008): argmin Σ α log(α/q) (or ‖α‖²/2 without q) on the simplex subject to
    ‖μ̂ - μ[p]‖² = ‖μ̂‖² - 2 bᵀα + αᵀQα ≤ ε², by SLSQP from even proportions. Tiny problems only."""
    from scipy.optimize import minimize

    m = len(b)

    def objective(alpha: np.ndarray) -> float:
        if log_base is None:
            return float(alpha @ alpha / 2)
        a = np.maximum(alpha, 1e-300)
        return float(np.sum(a * (np.log(a) - log_base)))

    far = {
        "type": "ineq",
        "fun": lambda a: 1e3 * (epsilon**2 - square + 2 * b @ a - a @ Q @ a),
    }
    total = {"type": "eq", "fun": lambda a: a.sum() - 1}
    found = minimize(
        objective,
        np.full(m, 1 / m),
        method="SLSQP",
        bounds=[(0, 1)] * m,
        constraints=[far, total],
        options={"maxiter": 1000, "ftol": 1e-15},
    )
    return np.asarray(found.x)


def kernel_halving(K: np.ndarray, uniform: np.ndarray, failure: float) -> tuple[list, list]:
    """Dwivedi and Mackey (2024), kernel halving, as printed: for each pair (x, x') in turn
    f = k(x, ·) - k(x', ·), b = ‖f‖, a = max(b σ √(2 log(2/δ)), b²),
    σ² += b² (1 + (b² - 2a) σ²/a²)₊, α = ⟨ψ, f⟩; x goes left with probability min(1, (1 - α/a)₊/2)
    and ψ becomes ψ + f, else x' does and ψ becomes ψ - f."""
    n = len(K)
    psi = np.zeros(n)  # ψ = Σ psiᵢ k(xᵢ, ·)
    sigma2 = 0.0
    left, right = [], []
    for i in range(n // 2):
        x, y = 2 * i, 2 * i + 1
        f = np.zeros(n)
        f[x], f[y] = 1.0, -1.0
        b2 = f @ K @ f
        a = max(np.sqrt(b2) * np.sqrt(sigma2) * np.sqrt(2 * np.log(2 / failure)), b2)
        if a > 0:
            grown = sigma2 + b2 * max(1 + (b2 - 2 * a) * sigma2 / a**2, 0.0)
            alpha = psi @ K @ f
            chance = min(1.0, max(1 - alpha / a, 0.0) / 2)
        else:
            grown, chance = sigma2, 0.5
        sigma2 = grown
        if uniform[i] <= chance:
            left.append(x)
            right.append(y)
            psi = psi + f
        else:
            left.append(y)
            right.append(x)
            psi = psi - f
    return left, right


def kernel_swap(K: np.ndarray, w: np.ndarray, coreset: list) -> list:
    """Dwivedi and Mackey (2024), KT-SWAP, one pass: each point replaced by the one of all that
    makes ‖Σ wᵢ k(xᵢ, ·) - mean of the coreset‖ least."""
    chosen = list(coreset)
    for i in range(len(chosen)):
        far = []
        for z in range(len(K)):
            v = np.bincount([*chosen[:i], z, *chosen[i + 1 :]], minlength=len(K)) / len(chosen)
            far.append((w - v) @ K @ (w - v))
        chosen[i] = int(np.argmin(far))
    return chosen


# --- two views and projections --------------------------------------------------------------------


def centred_gram(K: np.ndarray) -> np.ndarray:
    """HKH with H = I - 11ᵀ/n."""
    n = len(K)
    H = np.eye(n) - np.ones((n, n)) / n
    return H @ K @ H


def kernel_principal_scores(K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues of HKH/n, largest first, and scores v√(nλ) (Schölkopf, Smola and Müller 1998)."""
    n = len(K)
    values, vectors = np.linalg.eigh(centred_gram(K))
    order = np.argsort(values)[::-1]
    values = np.maximum(values[order], 0)
    return values / n, vectors[:, order] * np.sqrt(values)


def kernel_correlations(K: np.ndarray, L: np.ndarray, regularization: float) -> np.ndarray:
    """Singular values of the normalised cross-covariance operator, from Gram matrices.

    Their squares are the eigenvalues of R_X R_Y, R = G(G + nλI)⁻¹ (Fukumizu, Bach, Gretton 2007).
    """
    n = len(K)
    parts = []
    for gram in (K, L):
        G = centred_gram(gram)
        parts.append(G @ np.linalg.inv(G + n * regularization * np.eye(n)))
    squares = np.sort(np.linalg.eigvals(parts[0] @ parts[1]).real)[::-1]
    return np.sqrt(np.maximum(squares, 0))


def dimension_reduction_trace(K: np.ndarray, L: np.ndarray, regularization: float) -> float:
    """tr[G_Y (G_X + nλI)⁻¹] of two Gram matrices (Fukumizu, Bach and Jordan 2009, eq. 19)."""
    n = len(K)
    inverse = np.linalg.inv(centred_gram(K) + n * regularization * np.eye(n))
    return float(np.trace(centred_gram(L) @ inverse))


# --- weights for rows to come ---------------------------------------------------------------------


def mean_matching_objective(
    K: np.ndarray, kappa: np.ndarray, square: float, beta: np.ndarray, ridge: float
) -> float:
    """‖Σ βᵢφ(xᵢ)/n - μ‖² + ρ Σ βᵢ²/n from Gram matrices (Gretton et al. 2009, eq. 8.12, and a
    ridge): K of training, κᵢ = mean k(xᵢ, t) over test points, square = mean k(t, t')."""
    n = len(beta)
    return float(beta @ K @ beta / n**2 - 2 * beta @ kappa / n + square + ridge * (beta @ beta) / n)


def mean_matching_weights(
    K: np.ndarray, kappa: np.ndarray, bound: float, slack: float, ridge: float
) -> np.ndarray:
    """The quadratic programme as printed, by a general solver: slow, for few rows."""
    from scipy.optimize import minimize

    n = len(K)
    total = {
        "type": "ineq",
        "fun": lambda b: np.array([slack + 1 - b.mean(), b.mean() - 1 + slack]),
    }
    found = minimize(
        lambda b: b @ K @ b / n**2 - 2 * b @ kappa / n + ridge * (b @ b) / n,
        np.ones(n),
        jac=lambda b: 2 * K @ b / n**2 - 2 * kappa / n + 2 * ridge * b / n,
        method="SLSQP",
        bounds=[(0, bound)] * n,
        constraints=[total],
        options={"maxiter": 2000, "ftol": 1e-14},
    )
    return np.asarray(found.x)


def class_proportions(K: np.ndarray, kappa: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """P_test of classes that brings Σ p_c μ_c nearest to μ_test, over a fine grid for two classes
    (Zhang et al. 2013, eq. 5, with delta kernels on y)."""
    names = np.unique(classes)
    assert len(names) == 2
    best, least = None, np.inf
    for p in np.linspace(0, 1, 10_001):
        w = np.where(classes == names[0], p / np.sum(classes == names[0]), 0.0)
        w = w + np.where(classes == names[1], (1 - p) / np.sum(classes == names[1]), 0.0)
        value = w @ K @ w - 2 * w @ kappa
        if value < least:
            best, least = p, value
    return np.array([best, 1 - best])


# --- invariant components: Muandet, Balduzzi and Schölkopf (2013) ---------------------------------


def domain_coefficients(domains: np.ndarray) -> np.ndarray:
    """Q with tr(KQ) the distributional variance: (N - 1)/(N² nᵢ²) for two rows of one domain,
    -1/(N² nᵢ nⱼ) for rows of two."""
    names = list(np.unique(domains))
    N, n = len(names), len(domains)
    size = [int(np.sum(domains == name)) for name in domains]
    Q = np.empty((n, n))
    for a in range(n):
        for b in range(n):
            same = domains[a] == domains[b]
            Q[a, b] = (N - 1 if same else -1) / (N**2 * size[a] * size[b])
    return Q


def invariant_scores(
    K: np.ndarray,
    domains: np.ndarray,
    m: int,
    trade_off: float,
    complexity: float,
    regularization: float,
    P: np.ndarray | None = None,
    form: str = "variance",
) -> np.ndarray:
    """KB of the leading solutions of A B = (tKQK + ηK + nλI) B Γ for a centred K (Algorithm 1).

    A is K²/n ("variance"), P K²/n as printed ("inverse"), or KPK/n ("covariance"), for
    P = L(L + nεI)⁻¹.
    """
    from scipy.linalg import eig, eigh

    n = len(K)
    D = trade_off * K @ domain_coefficients(domains) @ K + complexity * K
    D = D + n * regularization * np.eye(n)
    if form == "inverse":
        assert P is not None
        values, vectors = eig(P @ K @ K / n, D)
        order = np.argsort(-values.real)[:m]
        assert abs(values[order].imag).max() < 1e-9 * abs(values).max()
        return K @ vectors[:, order].real
    A = K @ K / n if form == "variance" else K @ P @ K / n
    _, vectors = eigh((A + A.T) / 2, (D + D.T) / 2)
    return K @ vectors[:, ::-1][:, :m]


def target_smoother(L: np.ndarray, epsilon: float) -> np.ndarray:
    """L(L + nεI)⁻¹ for the centred L."""
    n = len(L)
    G = centred_gram(L)
    return G @ np.linalg.inv(G + n * epsilon * np.eye(n))


def transfer_components(K: np.ndarray, source: np.ndarray, m: int, mu: float) -> np.ndarray:
    """KB for the leading eigenvectors B of (KLK + μI)⁻¹KHK (Pan, Tsang, Kwok and Yang 2011, 3.3),
    L = eeᵀ with e = 1/n₁ in the source and -1/n₂ elsewhere."""
    n = len(K)
    e = np.where(source, 1 / source.sum(), -1 / (~source).sum())
    H = np.eye(n) - np.ones((n, n)) / n
    values, vectors = np.linalg.eig(
        np.linalg.inv(K @ np.outer(e, e) @ K + mu * np.eye(n)) @ K @ H @ K
    )
    order = np.argsort(-values.real)[:m]
    return K @ vectors[:, order].real


def inverse_regression_directions(
    X: np.ndarray, L: np.ndarray, m: int, epsilon: float
) -> np.ndarray:
    """Columns b with Σ_xx b an eigenvector of V(E[X|Y]), for a linear kernel on X (Kim and
    Pavlovic 2011): V = Xᵀ L(L + nεI)⁻¹ X/n."""
    n = len(X)
    X = X - X.mean(axis=0)
    V = X.T @ target_smoother(L, epsilon) @ X / n
    values, vectors = np.linalg.eigh((V + V.T) / 2)
    return np.linalg.solve(X.T @ X / n, vectors[:, ::-1][:, :m])


# --- location-scale shift -------------------------------------------------------------------------


def location_scale_objective(
    X_new: np.ndarray,
    T: np.ndarray,
    alpha: np.ndarray,
    bandwidth: float,
    W: np.ndarray,
    B: np.ndarray,
    penalty: float,
) -> float:
    """‖Σ αᵢ φ(xᵢ) - μ_T‖² + λ(‖W - 1‖² + ‖B‖²), pair by pair (Zhang et al. 2013, section 4)."""

    def k(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.exp(-((a - b) ** 2).sum() / (2 * bandwidth**2)))

    n, m = len(X_new), len(T)
    value = sum(alpha[i] * alpha[j] * k(X_new[i], X_new[j]) for i in range(n) for j in range(n))
    value -= 2 * sum(alpha[i] * k(X_new[i], T[j]) / m for i in range(n) for j in range(m))
    value += sum(k(T[i], T[j]) / m**2 for i in range(m) for j in range(m))
    return value + penalty * float(((W - 1) ** 2).sum() + (B**2).sum())


def class_weights_by_grid(
    X_new: np.ndarray, y: np.ndarray, T: np.ndarray, bandwidth: float, steps: int = 2001
) -> float:
    """The share of class 1 of 0 and 1 whose mixture of class embeddings is nearest to μ_T."""

    def mean_kernel(A: np.ndarray, B: np.ndarray) -> float:
        squares = ((A[:, None] - B[None]) ** 2).sum(axis=2)
        return float(np.exp(-squares / (2 * bandwidth**2)).mean())

    parts = [X_new[y == 0], X_new[y == 1]]
    M = np.array([[mean_kernel(a, b) for b in parts] for a in parts])
    v = np.array([mean_kernel(a, T) for a in parts])
    shares = np.linspace(0, 1, steps)
    values = [np.array([1 - p, p]) @ (M @ np.array([1 - p, p]) - 2 * v) for p in shares]
    return float(shares[int(np.argmin(values))])


# --------------------------------------------------------------------------------------
# Spreads of weights that are no probabilities
# --------------------------------------------------------------------------------------


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
