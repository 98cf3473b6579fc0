"""Paired samples on their way into a model."""

from __future__ import annotations

from typing import Any, NamedTuple

from meanmap import checks
from meanmap.arrays import (
    Array,
    Points,
    float_like,
    in_one_precision,
    take,
    to_numpy,
)
from meanmap.kernels import Kernel, as_target
from meanmap.spaces.space import read_points


class Pairs(NamedTuple):
    """Two samples that belong together, row by row, with their kernels and weights."""

    x: Points
    y: Points
    kernel_x: Kernel
    kernel_y: Kernel
    bases: tuple[Any, Any]
    w: Array
    flat: bool = False  # y was a 1-D array of numbers
    total: float = 1.0  # of the weights, before they were scaled to one


def read_pairs(
    X: Any, Y: Any, kernel_x: Any, kernel_y: Any, basis: Any, sample_weight: Any
) -> Pairs:
    """Pairs of any kinds that passed the gate; rows of weight zero are left out."""
    bases = basis if isinstance(basis, tuple) else (basis, basis)
    if len(bases) != 2:
        raise ValueError(f"basis: expected one basis or a pair (x, y), got {len(bases)}.")
    x, kernel_x = read_points(X, kernel_x, bases[0], "X")
    target, flat = as_target(Y, kernel_y)
    y, kernel_y = read_points(target, kernel_y, bases[1], "y")
    x, y = in_one_precision(x, y)
    n = checks.same_length([("X", x), ("y", y)])
    w = checks.sample_weights(sample_weight, x, float_like(x))
    keep = to_numpy(w) > 0
    if not keep.all():
        x, y, w = (take(part, keep) for part in (x, y, w))
    total = checks.total_weight(sample_weight, n)
    return Pairs(x, y, kernel_x, kernel_y, bases, w, flat, total)
