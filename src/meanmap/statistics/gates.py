"""What the statistics are computed from: checked samples and resolved kernels."""

from __future__ import annotations

from typing import Any

from meanmap import checks
from meanmap.arrays import Points, concatenate, count
from meanmap.kernels import Kernel, as_kernel
from meanmap.statistics.tiles import on_host


def two_samples(X: Any, Y: Any, kernel: Any, least: int = 2) -> tuple[Kernel, Points, Points]:
    """The kernel as given, and two samples of its domain with at least `least` points each."""
    kernel = as_kernel(kernel, X, "X")
    X = on_host(kernel.check(X, "X"))
    Y = on_host(kernel.check(Y, "Y", X, "X"))
    for name, points in (("X", X), ("Y", Y)):
        enough(count(points), name, least)
    return kernel, X, Y


def resolved(kernel: Kernel, X: Points, Y: Points) -> Kernel:
    """The kernel resolved on both samples together, so that exchanging points changes nothing."""
    return kernel.resolve(concatenate([X, Y]))


def paired_samples(
    named: list[tuple[str, Any, Any]], least: int
) -> tuple[list[Kernel], list[Points]]:
    """For (name, points, kernel) a variable: the kernels, and samples of one length."""
    kernels, samples = [], []
    for name, points, kernel in named:
        kernel = as_kernel(kernel, points, name)
        kernels.append(kernel)
        samples.append(on_host(kernel.check(points, name)))
    names = [name for name, _, _ in named]
    n = checks.same_length(list(zip(names, samples, strict=True)))
    enough(n, " and ".join([", ".join(names[:-1]), names[-1]]), least)
    return kernels, samples


def enough(n: int, name: str, least: int) -> None:
    """Refuse a sample that is too small to say anything."""
    if n < least:
        raise ValueError(
            f"{name}: expected at least {least} points, got {n}. A distribution cannot be told "
            "from fewer; collect more, or compare single points with kernel(x, y)."
        )
