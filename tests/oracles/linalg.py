"""Weights, inverses and shapes that the other oracles share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]  # float64 throughout, except labels

# Relative cut below which an eigenvalue counts as zero where regularisation is 0.
RANK_TOLERANCE = 1e-10


def sample_weights(w: ArrayLike | None, n: int) -> Array:
    """Return the sample's weights, uniform where none are given."""
    if w is None:
        return np.full(n, 1.0 / n)
    w = np.asarray(w, float)
    if w.shape != (n,) or not np.isclose(w.sum(), 1.0):
        raise ValueError(f"weights must have shape ({n},) and sum to one, got {w.shape}, {w.sum()}")
    return w


def pseudo_inverse(matrix: Array) -> Array:
    """Pseudo-inverse of a symmetric matrix."""
    return np.linalg.pinv(matrix, RANK_TOLERANCE, hermitian=True)


def regularised_inverse(C: Array, lam: float) -> Array:
    """``(C + lam I)^-1`` of a symmetric operator; its pseudo-inverse where ``lam`` is 0."""
    return pseudo_inverse(C) if lam == 0 else np.linalg.inv(C + lam * np.eye(len(C)))


def root_of_squared(squared: Any) -> float:
    """Square root of a squared norm that rounding may have left just below zero."""
    return float(np.sqrt(np.maximum(squared, 0.0)))


def as_columns(weights: Array) -> Array:
    """Return weights as (n, q) whatever their shape."""
    return weights[:, None] if weights.ndim == 1 else weights
