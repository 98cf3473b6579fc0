"""A kernel's own finite features as coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from meanmap.arrays import Array, Points
from meanmap.kernels import Kernel
from meanmap.kernels.features import FeatureMap
from meanmap.spaces.bases import Basis, Coordinates


@dataclass(frozen=True)
class Features(Coordinates):
    """Coordinates that are the kernel's own features: exact everywhere."""

    feature_map: FeatureMap
    residual: float = 0.0

    @property
    def rank(self) -> int:  # type: ignore[override]
        return self.feature_map.rank

    def transform(self, points: Points) -> Array:
        return self.feature_map(points)


@dataclass(frozen=True)
class Explicit(Basis):
    """The kernel's own finite features: one-hot, vec(R), monomials. Exact.

    Examples
    --------
    >>> from meanmap.kernels import Delta
    >>> from meanmap.spaces import Explicit, Space
    >>> Space(Delta(), Explicit()).fit_transform(["b", "a", "b"])
    array([[0., 1.],
           [1., 0.],
           [0., 1.]])
    """

    exact: ClassVar[bool] = True

    def fit(self, kernel: Kernel, points: Points, weights: Array) -> tuple[Coordinates, Array]:
        feature_map = kernel.feature_map(points)
        if feature_map is None:
            raise TypeError(
                f"{kernel!r} has no finite features of its own, which Explicit() needs. "
                "Use basis=PivotedCholesky(), or None to let the library choose."
            )
        return Features(feature_map), feature_map(points)
