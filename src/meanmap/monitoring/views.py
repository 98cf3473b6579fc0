"""What a monitor looks at: features of points, chosen on a first batch of rows.

A view is a handful of features. Which features a test bets on must not depend on which row belongs
to which sample, so that every choice here is a symmetric function of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from meanmap.arrays import Points, take, to_numpy
from meanmap.exceptions import ApproximationWarning, quiet
from meanmap.kernels import Kernel
from meanmap.kernels.bandwidths import column_scales
from meanmap.spaces import Basis, PivotedCholesky, Space
from meanmap.spaces.space import fit_space
from meanmap.statistics.tiles import on_host

DECILES = 2.563  # standard deviations of a normal distribution from the first to the ninth decile
BOUND = 3.0  # what a squashed standardised value never reaches
CROSSED = 6  # columns whose products are features, beside their squares
BASIS = PivotedCholesky(1e-3, max_rank=40)
PART_BASIS = PivotedCholesky(1e-2, max_rank=6)


class PointFeatures(Protocol):
    """A function of points."""

    def coordinates(self, points: Points) -> Any:
        """PointFeatures, one row per point."""


@dataclass(frozen=True, eq=False)
class ColumnMoments:
    """Columns on a common scale, far values pulled in; and their size, or squares and products."""

    middle: np.ndarray
    scale: np.ndarray
    products: bool

    @classmethod
    def of(cls, points: Points, products: bool) -> ColumnMoments:
        """On the scale of these points."""
        x = _as_floats(points)
        return cls(np.median(x, axis=0), column_scales(x) / DECILES, products)

    def coordinates(self, points: Points) -> np.ndarray:
        s = _squash(points, self.middle, self.scale)
        d = s.shape[1]
        if not self.products:
            size = (np.mean(s * s, axis=1, keepdims=True) - 1) * np.sqrt(d / 4)  # of variance ½
            return np.hstack([s, size])
        i, j = np.triu_indices(d) if d <= CROSSED else (np.arange(d), np.arange(d))
        return np.hstack([s, s[:, i] * s[:, j] / np.sqrt(2.0)])


@dataclass(frozen=True, eq=False)
class ColumnWaves:
    """A column on its scale, its square, and two waves that see peaks and gaps."""

    middle: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, points: Points) -> ColumnWaves:
        """On the scale of these points."""
        x = _as_floats(points)
        return cls(np.median(x, axis=0), column_scales(x) / DECILES)

    def coordinates(self, points: Points) -> np.ndarray:
        s = _squash(points, self.middle, self.scale)
        return np.concatenate([s, s * s / np.sqrt(2.0), np.cos(2 * s), np.sin(2 * s)], axis=1)


@dataclass(frozen=True)
class OneVariable:
    """One variable of several."""

    index: int

    def of(self, points: Points) -> Points:
        """Its values."""
        return points[self.index]


@dataclass(frozen=True)
class Column(OneVariable):
    """One column of vectors."""

    def of(self, points: Points) -> Points:
        return points[:, self.index : self.index + 1]


@dataclass(frozen=True, eq=False)
class PartFeatures:
    """Features of one variable of several."""

    part: OneVariable
    features: PointFeatures

    def coordinates(self, points: Points) -> Any:
        return self.features.coordinates(self.part.of(points))


@dataclass(frozen=True, eq=False)
class FeatureView:
    """Features that are bet on together, and how large their weights may be expected to be."""

    name: str
    features: tuple[PointFeatures, ...]
    widths: tuple[float, ...]

    def coordinates(self, points: Points) -> np.ndarray:
        """The features of points, one row per point."""
        parts = [np.asarray(to_numpy(f.coordinates(points)), float) for f in self.features]
        return parts[0] if len(parts) == 1 else np.hstack(parts)


def choose_views(
    kernel: Kernel, basis: Basis | Space | None, points: Points, mixed: bool
) -> tuple[FeatureView, ...]:
    """Views of checked points, widths and landmarks from these.

    `mixed` adds moments and other bandwidths to the kernel's own features; else those are all.
    """
    points = canonical_order(kernel, on_host(points))
    with quiet(ApproximationWarning):
        if basis is not None or not mixed:
            own = _space(kernel.resolve(points), points, basis or BASIS)
            return (FeatureView("kernel", (own,), (2.0, 0.5)),)
        views = []
        if kernel.on_vectors:
            views.append(FeatureView("means", (ColumnMoments.of(points, False),), (1.0, 0.3)))
            views.append(FeatureView("moments", (ColumnMoments.of(points, True),), (0.4,)))
        elif kernel.factors:
            views.append(FeatureView("columns", _by_column(kernel, points), (1.0, 0.3)))
        if kernel.has_bandwidth:
            fine = kernel.rescaled(0.5).resolve(points)
            views.append(FeatureView("fine kernel", (_space(fine, points, BASIS),), (2.0, 0.5)))
        own = _space(kernel.resolve(points), points, BASIS)
        views.append(FeatureView("kernel", (own,), (2.0, 0.5)))
    return tuple(views)


def column_features(kernel: Kernel, values: Points, part: OneVariable) -> PartFeatures:
    """Features of one variable, given its values: of numbers waves, else some of its kernel."""
    if kernel.on_vectors:
        return PartFeatures(part, ColumnWaves.of(values))
    return PartFeatures(part, _space(kernel.resolve(values), values, PART_BASIS))


def _by_column(kernel: Kernel, points: Points) -> tuple[PointFeatures, ...]:
    parts = enumerate(zip(kernel.factors, points, strict=True))
    return tuple(column_features(own, values, OneVariable(i)) for i, (own, values) in parts)


def _space(kernel: Kernel, points: Points, basis: Basis | Space) -> Space:
    return fit_space(kernel, basis, points)[0]


def canonical_order(kernel: Kernel, points: Points) -> Points:
    """The points in an order that does not depend on the one they have.

    By the sum of their similarities to all: pivots and ties then tell nothing of the order of rows.
    """
    resolved = kernel.resolve(points)
    gram = to_numpy(resolved.gram_matrix(points, points))
    return take(points, np.argsort(np.sum(gram, axis=1).round(9), kind="stable"))


def _squash(points: Points, middle: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Columns on their scales, between -BOUND and BOUND."""
    u = (_as_floats(points) - middle) / scale
    return u / np.hypot(1.0, u / BOUND)


def _as_floats(points: Points) -> np.ndarray:
    return to_numpy(points).astype(float)
