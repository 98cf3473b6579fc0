"""A variable of a graphical model: its space and its values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from meanmap.arrays import Array, Points, asarray, to_numpy
from meanmap.conditional.operator import ConditionalOperator, Side
from meanmap.decoding.densities import scales
from meanmap.embeddings import Embedding
from meanmap.embeddings.single import embedding_of
from meanmap.linalg import Spectrum
from meanmap.spaces import Space


@dataclass(frozen=True, eq=False)
class Node:
    """A variable, or a family: its space, its values, and their coordinates."""

    space: Space
    points: Points
    coordinates: Array  # (n, r)
    weights: Array

    @cached_property
    def mean(self) -> Array:
        """The embedding of its distribution, (r,)."""
        return self.weights @ self.coordinates

    @cached_property
    def covariance(self) -> Array:
        """Its operator, `Ψᵀ diag(w) Ψ`."""
        return self.coordinates.T @ (self.weights[:, None] * self.coordinates)

    @cached_property
    def spectrum(self) -> Spectrum:
        """Of its covariance operator."""
        return Spectrum.of(self.covariance)

    @cached_property
    def widths(self) -> np.ndarray:
        """The bandwidths of a density estimate of numbers."""
        return scales(self.points, to_numpy(self.weights))

    def inverse(self, regularization: float) -> Array:
        """`(C + λI)⁻¹` of its covariance operator, with λ as large as rounding needs."""
        return self.spectrum.inverse(self.spectrum.sufficient(regularization))

    def reach(self, regularization: float) -> ConditionalOperator:
        """A regression on the node at this λ, which knows what lies outside the data."""
        if regularization not in self._reaches:
            lam = self.spectrum.sufficient(regularization)
            self._reaches[regularization] = ConditionalOperator(
                self.space,
                Side(self.space, self.points, self.coordinates),
                self.coordinates,
                self.weights,
                self.spectrum.inverse(lam),
                regularization=lam,
            )
        return self._reaches[regularization]

    @cached_property
    def _reaches(self) -> dict[float, ConditionalOperator]:
        return {}

    def coordinates_of(self, points: Points) -> Array:
        """ψ of points, one row each."""
        return asarray(self.space.coordinates(points), self.coordinates)

    def embedding(self, weights: Array, coordinates: Array | None = None) -> Embedding:
        return embedding_of(self.space, self.space.kernel_, self.points, weights, coordinates)
