"""Operators of a process from all of its transitions at once, with Gram matrices."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from meanmap.kernels import Kernel


def exact_features(kernel: Kernel, points: np.ndarray) -> np.ndarray:
    """Φ with ΦΦᵀ the Gram matrix of all points."""
    s, V = np.linalg.eigh(kernel(points))
    kept = s > 1e-13 * s[-1]
    return V[:, kept] * np.sqrt(s[kept])


def transfer_eigenvalues(
    kernel: Kernel, x: np.ndarray, y: np.ndarray, method: str, rank: int, lam: float
) -> np.ndarray:
    """Eigenvalues by square roots of matrices and least squares on the rows, by magnitude."""
    n = len(x)
    phi = exact_features(kernel, np.vstack([x, y]))
    a, b = phi[:n] - phi[:n].mean(axis=0), phi[n:] - phi[n:].mean(axis=0)
    ridge = a.T @ a / n + lam * np.eye(phi.shape[1])
    cross = a.T @ b / n
    if method == "ridge":
        return by_magnitude(np.append(np.linalg.eigvals(np.linalg.inv(ridge) @ cross), 1.0))
    if method == "principal":
        U = np.linalg.eigh(ridge)[1][:, ::-1][:, : rank - 1]
    else:
        root = np.linalg.inv(scipy.linalg.sqrtm(ridge).real)
        U = root @ np.linalg.svd(root @ cross)[0][:, : rank - 1]
    before = np.hstack([np.ones((n, 1)), phi[:n] @ U])
    after = np.hstack([np.ones((n, 1)), phi[n:] @ U])
    return by_magnitude(np.linalg.eigvals(np.linalg.lstsq(before, after, rcond=None)[0]))


def by_magnitude(values: np.ndarray) -> np.ndarray:
    """The largest first."""
    return values[np.argsort(-abs(values))]


def vamp_score(h: np.ndarray, ratio: np.ndarray) -> float:
    """`2 E[h(x, y)] - E E[h(x, y')²]` of values at pairs, and at all pairs of rows."""
    return float(2 * h.mean() - (ratio**2).mean())
