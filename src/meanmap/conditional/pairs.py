"""Paired samples on their way into a model."""

from __future__ import annotations

from numbers import Integral
from typing import Any, NamedTuple

from meanmap import checks
from meanmap.arrays import (
    Array,
    Points,
    float_like,
    is_floating,
    namespace,
    take,
    to_library,
    to_numpy,
    widest,
)
from meanmap.kernels import Delta, Kernel, TensorProduct, as_kernel, as_target, default_kernel
from meanmap.spaces import Space


def gate(points: Any, kernel: Any, basis: Any, name: str) -> tuple[Points, Kernel]:
    """Points that passed their kernel's gate, and the kernel."""
    if isinstance(basis, Space) and hasattr(basis, "kernel_") and kernel is None:
        kernel = basis.kernel_
    kernel = as_kernel(kernel, points, name)
    like = basis.example_ if isinstance(basis, Space) and hasattr(basis, "kernel_") else None
    return kernel.check(points, name, like, "the fitted space"), kernel


class Pairs(NamedTuple):
    """Two samples that belong together, row by row, with their kernels and weights."""

    x: Points
    y: Points
    kernel_x: Kernel
    kernel_y: Kernel
    bases: tuple[Any, Any]
    w: Array
    flat: bool  # y was a 1-D array of numbers
    given: int  # rows that came, those of weight zero among them


def read_pairs(
    X: Any, Y: Any, kernel_x: Any, kernel_y: Any, basis: Any, sample_weight: Any
) -> Pairs:
    """Pairs of any kinds that passed the gate; rows of weight zero are left out."""
    bases = basis if isinstance(basis, tuple) else (basis, basis)
    if len(bases) != 2:
        raise ValueError(f"basis: expected one basis or a pair (x, y), got {len(bases)}.")
    x, kernel_x = gate(X, kernel_x, bases[0], "X")
    target, flat = as_target(Y, kernel_y)
    y, kernel_y = gate(target, kernel_y, bases[1], "y")
    x, y = alike(x, y)
    n = checks.same_length([("X", x), ("y", y)])
    w = checks.sample_weights(sample_weight, x, float_like(x))
    keep = to_numpy(w) > 0
    if not keep.all():
        x, y, w = (take(part, keep) for part in (x, y, w))
    return Pairs(x, y, kernel_x, kernel_y, bases, w, flat, n)


def alike(points_x: Points, points_y: Points) -> tuple[Points, Points]:
    """Both sides in X's array library, and in one precision."""
    points_y = to_library(points_y, points_x)
    x, y = float_like(points_x), float_like(points_y)
    if x.dtype == y.dtype:
        return points_x, points_y
    return double(points_x), double(points_y)


def double(points: Points) -> Points:
    """Floating points in double precision."""
    if isinstance(points, tuple):
        return tuple(double(part) for part in points)
    xp = namespace(points)
    return xp.astype(points, widest(points)) if is_floating(points) else points


def reference_kernel(kernel: Kernel, points: Points) -> Kernel:
    """A kernel to measure losses in that does not depend on the model's choice of one.

    The default for the kind of points; for labels and indices, which have none, the model's own.
    """
    if isinstance(kernel, TensorProduct):
        pairs = zip(kernel.kernels, points, strict=True)
        return TensorProduct(*(reference_kernel(part, p) for part, p in pairs))
    return kernel if points.ndim == 1 else default_kernel(points, "y")


def looks_like_classes(y: Any) -> bool:
    """Whether a target is classes: one column of text, truth values or whole numbers.

    Floating-point numbers are numbers, whatever their values.
    """
    if checks.holds_objects(y) and not all(isinstance(v, str | Integral) for v in y.flat):
        return False
    if isinstance(y, tuple):
        return False
    array = checks.any_points(y, "y")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    return array.ndim == 1 and not is_floating(array)


def read_target(y: Any, kernel: Any) -> tuple[Kernel, Points, bool]:
    """The kernel on y, checked targets, and whether they were a 1-D array of numbers."""
    if kernel is None and looks_like_classes(y):
        kernel = Delta()
    target, flat = as_target(y, kernel)
    kernel = as_kernel(kernel, target, "y")
    return kernel, kernel.check(target, "y"), flat
