"""Kernels on points that are not rows of numbers: strings, graphs, series, bags.

Such points stand in a 1-D NumPy array, one string or object each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from meanmap import checks
from meanmap.arrays import Array, Points, is_array
from meanmap.kernels.features import FeatureMap
from meanmap.kernels.protocol import Comparison, Kernel


class ObjectKernel(Kernel):
    """A kernel on objects in a 1-D array."""

    def is_point(self, x: Any, like: Points) -> bool:
        """Whether `x` is one point rather than a list of them."""
        raise TypeError(f"{type(self).__name__} does not say what one point is.")

    def rows(self, x: Any, like: Points, name: str = "x") -> tuple[Points, bool]:
        single = self.is_point(x, like)
        return self.check([x] if single else x, name, like), single


class CountKernel(ObjectKernel):
    """The inner product of how often each part occurs in two objects, a part being a string.

    Normalised, the cosine of the angle between the counts. An object without parts has no features:
    its k is 0 with everything, with itself too.
    """

    normalized: bool

    def count_parts(self, point: Any) -> Mapping[str, int]:
        """How often each part occurs in a point."""
        raise TypeError(f"{type(self).__name__} does not say what the parts of a point are.")

    @property
    def bounded(self) -> bool:  # type: ignore[override]
        """Whether k(x, x) stays bounded on the whole domain: where counts are normalised."""
        return bool(self.normalized)

    def against(self, B: Points) -> Comparison:
        features = PartCounts.of(self, B)
        b = features.sparse(B)

        def compare(A: Points, columns: Any, out: Any) -> Array:
            return (features.sparse(A) @ b[columns].T).toarray()

        return compare

    def squared_norms(self, A: Points) -> Array:
        squares = [sum(c * c for c in self.count_parts(a).values()) for a in A]
        return np.array([float(s > 0 if self.normalized else s) for s in squares])

    def feature_map(self, points: Points) -> FeatureMap:
        return PartCounts.of(self, points)


class PartCounts(FeatureMap):
    """How often each part that was seen at fit occurs; a part never seen has no coordinate."""

    def __init__(self, kernel: CountKernel, parts: Iterable[str]) -> None:
        self.kernel = kernel
        self.parts = sorted(parts)
        self.rank = len(self.parts)
        self._position = {part: i for i, part in enumerate(self.parts)}

    @classmethod
    def of(cls, kernel: CountKernel, points: Points) -> PartCounts:
        """The features of a sample."""
        seen: set[str] = set()
        for point in points:
            seen.update(kernel.count_parts(point))
        return cls(kernel, seen)

    def sparse(self, points: Points) -> csr_array:
        """The features as a sparse matrix, one row per point."""
        values: list[float] = []
        columns: list[int] = []
        ends = [0]
        for point in points:
            counts = self.kernel.count_parts(point)
            # by the length of all counts: a part never seen still belongs to the point
            square = sum(c * c for c in counts.values()) if self.kernel.normalized else 1
            scale = square**-0.5 if square else 0.0
            for part, number in counts.items():
                position = self._position.get(part)
                if position is not None:
                    columns.append(position)
                    values.append(number * scale)
            ends.append(len(columns))
        shape = (len(points), self.rank)
        return csr_array((np.array(values, dtype=float), np.array(columns, dtype=int), ends), shape)

    def __call__(self, points: Points) -> Array:
        return self.sparse(points).toarray()


def read_objects(value: Any, name: str, what: str) -> np.ndarray:
    """Points that are Python objects: a 1-D NumPy array that leaves each of them as it is."""
    if hasattr(value, "to_numpy") and not is_array(value):  # pandas, polars
        value = value.to_numpy()
    if not isinstance(value, list) and not (checks.holds_objects(value) and value.ndim == 1):
        remedy = "Pass a list with one item per point."
        if isinstance(value, tuple):
            remedy = "Lists hold samples; tuples stand for pairs, with kernels.TensorProduct."
        raise TypeError(
            f"{name}: expected a list of {what}, got {checks.describe(value)}. {remedy}"
        )
    array = np.empty(len(value), dtype=object)
    for i, item in enumerate(value):  # item by item: NumPy would look into each
        array[i] = item
    checks.refuse_empty(array, name)
    return array
