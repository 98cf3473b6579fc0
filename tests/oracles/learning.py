"""Learning on and with embeddings.

* Support measures: Muandet, Fukumizu, Dinuzzo and Schölkopf (2012)
* Clustering by dependence and unfolding
* Feature selection: Song, Smola, Gretton, Bedo and Borgwardt (2012); Yamada et al. (2014)
* Two views and projections
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from oracles.kernels import gaussian
from oracles.linalg import Array


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
    """Algorithm 1, one feature per step: features in order of removal, and the remaining HSIC.

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
    """Algorithm 2, one feature per step, each set with its own median: features, and HSIC."""
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
