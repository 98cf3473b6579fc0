"""Weights for new rows, invariant components, location-scale shift.

Invariant components: Muandet, Balduzzi and Schölkopf (2013).
"""

from __future__ import annotations

import numpy as np

from oracles.learning import centred_gram


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
