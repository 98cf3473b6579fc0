"""What the statistics are computed from: checked samples and resolved kernels."""

from __future__ import annotations

from typing import Any

from meanmap import checks
from meanmap.arrays import Points, concatenate, count, on_accelerator
from meanmap.kernels import Kernel, as_kernel
from meanmap.statistics.tiles import on_host


def two_samples(
    X: Any, Y: Any, kernel: Any, least: int = 2, stay: bool = False
) -> tuple[Kernel, Points, Points]:
    """The kernel as given, and two samples of its domain with at least `least` points each.

    Those of an accelerator come to the host unless they may `stay`.
    """
    kernel = as_kernel(kernel, X, "X")
    X = kernel.check(X, "X")
    X, Y = settled([X, kernel.check(Y, "Y", X, "X")], stay)
    for name, points in (("X", X), ("Y", Y)):
        enough(count(points), name, least)
    return kernel, X, Y


def settled(samples: list[Points], stay: bool) -> list[Points]:
    """The samples on the host, or all where they are on an accelerator."""
    if stay and all(on_accelerator(points) for points in samples):
        return samples
    return [on_host(points) for points in samples]


def resolved(kernel: Kernel, X: Points, Y: Points) -> Kernel:
    """The kernel resolved on both samples together, so that exchanging points changes nothing."""
    return kernel.resolve(concatenate([X, Y]))


def paired_samples(
    named: list[tuple[str, Any, Any]], least: int, stay: bool = False
) -> tuple[list[Kernel], list[Points]]:
    """For (name, points, kernel) a variable: the kernels, and samples of one length.

    Those of an accelerator come to the host unless they may `stay` and all live there.
    """
    kernels, samples = [], []
    for name, points, kernel in named:
        kernel = as_kernel(kernel, points, name)
        kernels.append(kernel)
        samples.append(kernel.check(points, name))
    samples = settled(samples, stay)
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
