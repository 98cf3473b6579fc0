"""Kernels whose scales are still to be chosen, as points that have columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap.arrays import Array, Points, to_numpy
from meanmap.kernels.bandwidths import column_scales


@dataclass(frozen=True)
class OpenScales:
    """A sample whose kernel is a profile of `Σ (xᵢ - xᵢ')²/σᵢ²`, with scales σ to be chosen.

    Several columns may share a scale: those that code the labels of one variable do.
    """

    columns: np.ndarray  # (n, c), of about the same size
    groups: np.ndarray  # (c,), which scale each column has
    unit: Any  # the radial kernel that compares columns over their scales
    kernel: Callable[[np.ndarray], Any]  # the kernel with the scales of all groups

    def divided(self, scales: np.ndarray) -> np.ndarray:
        """The columns over the scales of their groups."""
        return self.columns / scales[self.groups]

    @property
    def size(self) -> int:
        """The number of scales."""
        return int(self.groups.max(initial=-1)) + 1


def scaled_columns(points: Points, weights: Array | None) -> tuple[np.ndarray, np.ndarray]:
    """Columns of numbers about their middle, each over a robust scale of its own, and those."""
    x = to_numpy(points).astype(np.float64)
    scales = column_scales(x, None if weights is None else to_numpy(weights).astype(np.float64))
    return (x - np.median(x, axis=0)) / scales, scales


def label_columns(points: Points) -> np.ndarray:
    """Labels as columns in which two different ones are at distance 1."""
    labels = np.unique(to_numpy(points), return_inverse=True)[1].ravel()
    return np.eye(labels.max(initial=0) + 1)[labels] / 2**0.5
