"""Statistics of samples and their permutations, pair by pair.

Stein kernels: Liu, Lee and Jordan (2016); Chwialkowski, Strathmann and Gretton (2016).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from oracles.embeddings import inner_product, pair_norm
from oracles.kernels import scaled_distances
from oracles.linalg import Array, root_of_squared, sample_weights


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


def hsic(K: Array, G: Array, w: ArrayLike | None = None) -> float:
    """``||C_XY - mu_X (x) mu_Y||^2_HS`` (000, section 2.1), biased: ``tr(K H G H) / n^2``.

    Weighted, ``H/n`` becomes ``V = W - w w^T``: ``tr(K V G V)``.
    """
    w = sample_weights(w, len(K))
    V = np.diag(w) - np.outer(w, w)
    return float(np.trace(K @ V @ G @ V))


def joint_minus_product_norm(grams: Sequence[Array], w: ArrayLike | None = None) -> float:
    """``||E[phi (x) psi (x) ...] - mu_X (x) mu_Y (x) ...||`` for any number of variables.

    For two variables the square is :func:`hsic`; for three it is not :func:`joint_norm` centred.
    """
    n = len(grams[0])
    w = sample_weights(w, n)
    joint, cross, product = np.ones((n, n)), np.ones(n), 1.0
    for K in grams:
        joint, cross, product = joint * K, cross * (K @ w), product * float(w @ K @ w)
    return root_of_squared(w @ joint @ w - 2 * w @ cross + product)


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
        D = scaled_distances(A, A, 1.0)
        return D - D.mean(axis=0) - D.mean(axis=1)[:, None] + D.mean()

    return float(np.mean(centred(X) * centred(Y)))


def table_hsic(P: Array) -> float:
    """HSIC of a table of probabilities under delta kernels: ``sum (P(x, y) - P(x) P(y))^2``."""
    return float(((P - np.outer(P.sum(axis=1), P.sum(axis=0))) ** 2).sum())


def conditional_cross_covariance_weights(beta: Array) -> Array:
    """``C_YZ|x`` of 001, eq. 9: weights ``diag(beta) - beta beta^T`` on pairs ``(y_i, z_j)``.

    ``beta`` are the conditional weights at x, taken as they are: they need not sum to one.
    """
    return np.diag(beta) - np.outer(beta, beta)


def conditional_cross_covariance_norm(L: Array, U: Array, beta: Array) -> float:
    """Hilbert-Schmidt norm of ``C_YZ|x`` (001, eq. 9), ``L`` and ``U`` the Grams of Y and Z."""
    return pair_norm(conditional_cross_covariance_weights(beta), L, U)


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
