"""What features are to predict: labels, numbers, or anything that has a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Points, count, take
from meanmap.frames import is_frame
from meanmap.kernels import Delta, Gaussian, Kernel
from meanmap.kernels.defaults import as_kernel, as_target
from meanmap.kernels.domains.columns import all_numbers
from meanmap.spaces import Basis
from meanmap.statistics.columns import column_moments
from meanmap.statistics.dependence import coordinates
from meanmap.statistics.tiles import on_host

FURTHEST = 1e6  # deviations from the mean of a column


@dataclass(frozen=True)
class Target:
    """What is to be predicted: points, their resolved kernel, and a factor a row.

    With factors g the kernel is g(y) l(y, y') g(y'): classes are balanced by 1/√n_y.
    """

    kernel: Kernel
    points: Points
    factors: np.ndarray

    def gram(self, rows: np.ndarray) -> np.ndarray:
        """The Gram matrix of some of the rows."""
        points, g = take(self.points, rows), self.factors[rows]
        L = np.asarray(self.kernel.gram_matrix(points, points), dtype=np.float64)
        return g[:, None] * L * g[None, :]

    def coordinates(self, rows: np.ndarray, basis: Basis | None = None) -> np.ndarray:
        """ψ of some of the rows, whose products are the Gram matrix."""
        psi = coordinates(self.kernel, take(self.points, rows), basis, centred=False)
        return self.factors[rows][:, None] * psi


def target_of(y: Any, kernel: Any) -> Target:
    """The target with its kernel; without one, labels or numbers by their type."""
    found = plain_target(y) if kernel is None else None
    if found is not None:
        return found
    points, _ = as_target(y, kernel)
    kernel = as_kernel(kernel, points, "y")
    checked = on_host(kernel.check(points, "y"))
    return Target(kernel.resolve(checked), checked, np.ones(count(checked)))


def plain_target(y: Any) -> Target | None:
    """Labels or numbers; None for targets that bring or need a kernel."""
    structured = isinstance(y, tuple) or (isinstance(y, list) and y and hasattr(y[0], "adj"))
    if structured or (is_frame(y) and not all_numbers(y)):
        return None
    array = on_host(checks.any_points(y, "y"))
    array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if array.ndim < 3 and array.dtype.kind in ("f" if array.ndim == 1 else "fiub"):
        return number_target(array)
    return label_target(checks.labels(array, "y")) if array.ndim == 1 else None


def number_target(array: Any) -> Target:
    """Numbers, columns on unit deviation, with a Gaussian kernel."""
    points = checks.vectors(array[:, None] if array.ndim == 1 else array, "y")
    x, varies = scale_columns(np.asarray(on_host(points), dtype=np.float64), True)
    if not varies.any():
        raise ValueError("y is the same in every row: nothing depends on what does not vary.")
    return Target(Gaussian().resolve(x), x, np.ones(len(x)))


def label_target(labels: np.ndarray) -> Target:
    """Labels with l(y, y') = 1/n_y where they are equal, else 0 (Song et al. 2012, section 5)."""
    classes, which, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    if len(classes) == 1:
        raise ValueError(
            f"y holds one class, {classes[0]!r}, in every row: nothing depends on what does not "
            "vary. Expected two or more."
        )
    if 2 * len(classes) > len(labels) and len(labels) > 4:
        raise ValueError(
            f"y holds {len(classes)} different labels in {len(labels)} rows, hardly any of them "
            "twice. Numbers go in as floating point, y.astype(float); other targets with a "
            "kernel that knows when they are similar, target_kernel=kernels.NGrams() for text."
        )
    return Target(Delta(), labels, 1 / np.sqrt(sizes[which]))


def scale_columns(points: np.ndarray, scale: bool) -> tuple[np.ndarray, np.ndarray]:
    """Columns less their mean and over their deviation, and which of them vary at all.

    At `FURTHEST` deviations a number is as far as one can be: beyond, the others would be rounded.
    """
    mean, deviation = column_moments(points)
    middle = points - mean
    # of a constant the mean may be off by rounding
    varies = (np.ptp(points, axis=0) > 0) & (deviation > 0)
    if not scale:
        return np.where(varies, points, 0.0), varies
    z = np.clip(middle / np.where(varies, deviation, 1.0), -FURTHEST, FURTHEST)
    return np.where(varies, z, 0.0), varies
