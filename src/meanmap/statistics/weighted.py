"""How far weighted samples are apart, what each row adds to that, and nearest neighbours."""

from __future__ import annotations

import math

import numpy as np

from meanmap.arrays import Points, count, take
from meanmap.kernels import Kernel


def mean_at(
    kernel: Kernel, at: Points, sample: Points, weights: np.ndarray | None = None
) -> np.ndarray:
    """The (weighted) mean embedding of a sample, evaluated at points."""
    n = count(sample)
    w = np.full(n, 1 / n) if weights is None else weights
    return np.asarray(kernel.matmul(at, sample, w[:, None]))[:, 0]


def squared_distance(
    kernel: Kernel, rows: Points, others: Points, weights: np.ndarray | None = None
) -> float:
    """The unbiased MMD², with weights on the rows that sum to one."""
    n, m = count(rows), count(others)
    w = np.full(n, 1 / n) if weights is None else weights

    def within(points: Points, w: np.ndarray) -> float:
        total = float(w @ mean_at(kernel, points, points, w))
        own = float(w**2 @ kernel.diagonal(points))
        rest = 1 - float(w @ w)
        return (total - own) / rest if rest > 1e-12 else total

    cross = float(w @ mean_at(kernel, rows, others))
    return within(rows, w) + within(others, np.full(m, 1 / m)) - 2 * cross


def relative_distance(kernel: Kernel, train: Points, test: Points) -> float:
    """‖μ - ν‖ / √(‖μ‖² + ‖ν‖²), with the unbiased distance, cut off at 0."""
    total = sum(float(mean_at(kernel, part, part).mean()) for part in (train, test))
    if total <= 0:
        return math.nan
    left = squared_distance(kernel, train, test)
    return math.sqrt(min(max(left, 0.0) / total, 1.0))


def distance_and_influence(
    kernel: Kernel, rows: Points, test: Points, w: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """MMD² of weighted rows and test rows, and what each row adds to it, to first order.

    With μ = Σ wᵢ φ(xᵢ) and ν the embedding of the test rows, the derivative of ‖μ - ν‖² is
    2nwᵢ⟨φ(xᵢ) - μ, μ - ν⟩ in the i-th row and 2⟨φ(t) - ν, ν - μ⟩ in a test row t. The variance of
    their differences is that of the difference of two distances on the same rows.
    """
    # the values of μ - ν
    on_rows, on_test = (
        mean_at(kernel, at, rows, w) - mean_at(kernel, at, test) for at in (rows, test)
    )
    at_rows = 2 * len(w) * w * (on_rows - w @ on_rows)
    at_test = -2 * (on_test - on_test.mean())
    return squared_distance(kernel, rows, test, w), at_rows, at_test


def nearest_distances(kernel: Kernel, points: Points, others: Points, same: bool) -> np.ndarray:
    """‖φ(x) - φ(x')‖² to the nearest of other points; `same` leaves out the point itself."""
    diagonal = np.asarray(kernel.diagonal(others))
    own = np.asarray(kernel.diagonal(points))
    out = np.empty(count(points))
    for start in range(0, len(out), 500):
        block = slice(start, min(start + 500, len(out)))
        gram = np.asarray(kernel(take(points, block), others))
        distance = own[block, None] + diagonal - 2 * gram
        if same:
            distance[np.arange(len(gram)), np.arange(block.start, block.stop)] = np.inf
        out[block] = distance.min(axis=1)
    return out
