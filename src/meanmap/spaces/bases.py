"""Bases: frozen specifications of how a kernel is given coordinates.

`basis.fit(kernel, points, weights)` returns `Coordinates`, the fitted feature map ψ, together with
the coordinates of the points themselves, which every basis has at hand when it is fitted.
"""

from __future__ import annotations

from dataclasses import dataclass

from meanmap.arrays import Array, Points, count, spans, take
from meanmap.kernels import Kernel


class Coordinates:
    """A fitted feature map ψ with k(x, x') ≈ ψ(x)·ψ(x')."""

    rank: int
    #: Σ wᵢ (k(xᵢ, xᵢ) - ‖ψ(xᵢ)‖²) over Σ wᵢ k(xᵢ, xᵢ), on the sample it was fitted to.
    residual: float

    def transform(self, points: Points) -> Array:
        """ψ of every point, a row each."""
        raise TypeError(f"{type(self).__name__} has no coordinates.")

    def mean(self, points: Points, weights: Array) -> Array:
        """`Σ wᵢ ψ(xᵢ)`, without keeping ψ of every point: shape (r,) or (b, r)."""
        blocks = spans(count(points), 1 << 14)
        parts = [weights[..., block] @ self.transform(take(points, block)) for block in blocks]
        return sum(parts[1:], parts[0])


@dataclass(frozen=True)
class Basis:
    """How a kernel is given coordinates."""

    def fit(self, kernel: Kernel, points: Points, weights: Array) -> tuple[Coordinates, Array]:
        """The feature map fitted to a weighted sample, and the sample's coordinates."""
        raise TypeError(f"{type(self).__name__} is no basis; use spaces.PivotedCholesky().")
