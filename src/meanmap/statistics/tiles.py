"""Gram matrices read tile by tile, never stored: what every exact statistic is summed from."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from numbers import Real
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import (
    Array,
    Points,
    count,
    float_like,
    for_each_thread,
    spans,
    take,
    to_library,
)
from meanmap.kernels import Gaussian, Kernel, Laplace
from meanmap.progress import progress_bar
from meanmap.spaces import Basis, Space

MOST_SQUARINGS = 10
SIDE = 512  # rows and columns of a tile, which fits a core's cache

# (rows, columns, buffers) → the tile of every kernel in turn; each is overwritten by the next
Tiles = Callable[[Points, Any, np.ndarray], Iterator[tuple[int, Array]]]


def on_host(points: Points) -> Points:
    """Points as NumPy arrays, numbers in double precision: small differences of sums count here."""
    if isinstance(points, tuple):
        return tuple(on_host(part) for part in points)
    host = to_library(points, np.empty(0))
    return host.astype(np.float64) if host.dtype == np.float32 else host


class Family:
    """Resolved kernels on one variable, compared tile by tile.

    exp(-r²/2σ²) squared is the same kernel at σ/√2, and exp(-r/σ) squared that at σ/2: bandwidths
    that are such powers of each other cost one exponential and a product each.
    """

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self.kernels = tuple(kernels)

    def __len__(self) -> int:
        return len(self.kernels)

    def against(self, B: Points) -> Tiles:
        """A function that compares any points with B, prepared once."""
        steps = [
            (i, self.kernels[i]._against(B) if squarings == 0 else None, squarings)
            for i, squarings in self._plan()
        ]

        def tiles(A: Points, columns: Any, buffer: np.ndarray) -> Iterator[tuple[int, Array]]:
            tile = buffer
            for i, compare, squarings in steps:
                if compare is not None:
                    tile = compare(A, columns, buffer)
                for _ in range(squarings):
                    tile = np.multiply(tile, tile, out=tile)
                yield i, tile

        return tiles

    def _plan(self) -> list[tuple[int, int]]:
        """Kernels in an order that squares, with how often the tile before is to be squared."""
        ladders: dict[tuple[type, float], list[tuple[float, int]]] = {}
        plan: list[tuple[int, int]] = []
        for i, kernel in enumerate(self.kernels):
            power = {Gaussian: 2.0, Laplace: 1.0}.get(type(kernel))
            bandwidth = getattr(kernel, "bandwidth", None)
            if power is None or not isinstance(bandwidth, Real):
                plan.append((i, 0))
                continue
            level = -power * math.log2(float(bandwidth))
            ladders.setdefault((type(kernel), round(level % 1.0, 9) % 1.0), []).append((level, i))
        for ladder in ladders.values():
            ladder.sort()
            befores = [level for level, _ in ladder]
            for before, (level, i) in zip([befores[0], *befores], ladder, strict=False):
                # each squaring doubles the rounding; 0, as for a repeated kernel, is afresh
                squarings = round(level - before)
                plan.append((i, squarings if squarings <= MOST_SQUARINGS else 0))
        return plan

    def diagonals(self, points: Points) -> np.ndarray:
        """k(x, x) of every point, a row a kernel."""
        return np.stack([np.asarray(k._diagonal(points)) for k in self.kernels])


def for_each_tile(
    n: int,
    work: Callable[[int, slice, slice], None],
    side: int = SIDE,
    progress: bool = False,
) -> None:
    """Call `work(thread, rows, columns)` for the tiles on and above the diagonal of n × n."""
    strips = list(spans(n, side))

    def share(thread: int, of: int) -> None:
        pairs = ((p, q) for i, p in enumerate(strips) for q in strips[i:])
        for p, q in islice(pairs, thread, None, of):
            work(thread, p, q)
            done(1)

    with progress_bar(len(strips) * (len(strips) + 1) // 2, "Gram matrix", progress) as done:
        if len(strips) == 1:
            share(0, 1)
        else:
            for_each_thread(share)


class Sums:
    """One accumulator a thread, added up in the order of the threads."""

    def __init__(self, *shapes: tuple[int, ...]) -> None:
        self._shapes = shapes
        self._parts: dict[int, list[np.ndarray]] = {}

    def of(self, thread: int) -> list[np.ndarray]:
        """This thread's accumulators."""
        if thread not in self._parts:
            self._parts[thread] = [np.zeros(shape) for shape in self._shapes]
        return self._parts[thread]

    def total(self) -> list[np.ndarray]:
        """The sums over threads."""
        first, *others = (self._parts[thread] for thread in sorted(self._parts))
        for other in others:
            for mine, theirs in zip(first, other, strict=True):
                mine += theirs
        return first


class Buffers:
    """Room for tiles, one lot a thread, in the points' precision."""

    def __init__(self, like: Points, how_many: int = 1, size: int = SIDE * SIDE) -> None:
        self._dtype = float_like(like).dtype
        self._count, self._size = how_many, size
        self._parts: dict[int, list[np.ndarray]] = {}

    def of(self, thread: int, rows: slice, columns: slice) -> list[np.ndarray]:
        """This thread's buffers, in the shape of a tile."""
        if thread not in self._parts:
            self._parts[thread] = [
                np.empty(self._size, dtype=self._dtype) for _ in range(self._count)
            ]
        shape = (rows.stop - rows.start, columns.stop - columns.start)
        return [flat[: shape[0] * shape[1]].reshape(shape) for flat in self._parts[thread]]


def gram_sums(kernel: Kernel, A: Points, B: Points | None = None) -> float:
    """Σᵢⱼ k(aᵢ, bⱼ), or Σᵢⱼ k(aᵢ, aⱼ) by symmetry at half the work."""
    if B is not None:
        ones = np.ones(count(B), dtype=float_like(B).dtype)
        return float(np.sum(kernel._matmul(A, B, ones), dtype=np.float64))
    compare, sums, buffers = kernel._against(A), Sums((1,)), Buffers(A)

    def work(thread: int, rows: slice, columns: slice) -> None:
        (buffer,) = buffers.of(thread, rows, columns)
        tile = compare(take(A, rows), columns, buffer)
        sums.of(thread)[0] += (1 if rows == columns else 2) * tile.sum(dtype=np.float64)

    for_each_tile(count(A), work)
    return float(sums.total()[0][0])


@dataclass(frozen=True)
class GramMoments:
    """Sums over one Gram matrix: Σ K², its rows' sums, its diagonal, and aᵀKa."""

    squares: float
    rows: np.ndarray
    diagonal: np.ndarray
    quadratic: float


def gram_moments(
    kernel: Kernel, points: Points, a: np.ndarray, basis: Basis | None = None
) -> GramMoments:
    """One pass over a Gram matrix, exact or in coordinates."""
    n = count(points)
    if basis is not None:
        psi = Space(kernel, basis)._place(kernel, points, np.full(n, 1 / n))
        squares, mean = float(np.sum((psi.T @ psi) ** 2)), a @ psi
        rows, diagonal = psi @ psi.sum(axis=0), np.sum(psi * psi, axis=1)
        return GramMoments(squares, rows, diagonal, float(mean @ mean))
    compare, sums, buffers = kernel._against(points), Sums((2,), (n,)), Buffers(points)

    def work(thread: int, rows: slice, columns: slice) -> None:
        scalars, row_sums = sums.of(thread)
        (buffer,) = buffers.of(thread, rows, columns)
        tile = compare(take(points, rows), columns, buffer)
        flat = tile.ravel()
        twice = 1 if rows == columns else 2
        scalars += twice * np.array([flat @ flat, a[rows] @ tile @ a[columns]])
        row_sums[rows] += tile.sum(axis=1)
        if rows != columns:
            row_sums[columns] += tile.sum(axis=0)

    for_each_tile(n, work)
    (squares, quadratic), row_sums = sums.total()
    diagonal = np.asarray(kernel._diagonal(points), dtype=np.float64)
    return GramMoments(float(squares), row_sums, diagonal, float(quadratic))


def memory_limit(value: Any) -> int:
    """Bytes that may be used: a number, a text like "500MB", or None for a quarter of the free."""
    if value is None:
        return free_memory() // 4
    if isinstance(value, str):
        units = {"KB": 1e3, "MB": 1e6, "GB": 1e9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
        text = value.strip().upper().replace(" ", "")
        for unit, factor in units.items():
            head = text.removesuffix(unit)
            if head != text and head.replace(".", "", 1).isdigit():
                return int(float(head) * factor)
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if is_number and checks.is_finite(value) and value > 0:
        return int(value)
    raise ValueError(
        f"max_memory must be a number of bytes or a text like '500MB' or '2GB', got {value!r}."
    )


def free_memory() -> int:
    """Bytes of memory that are free now; 4 GiB where the system does not say."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 4 << 30
