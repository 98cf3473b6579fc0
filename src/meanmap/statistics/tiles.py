"""Gram matrices read tile by tile, never stored: what every exact statistic is summed from.

On the host tiles fit a core's cache and threads share them out, each with its own sums. Points on
an accelerator stay there, and so do tiles, larger ones, and sums, in double precision whatever the
tiles' is.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from numbers import Real
from typing import Any

import numpy as np

from meanmap import checks, fused
from meanmap.arrays import (
    DEVICE_SIDE,
    Array,
    Points,
    asarray,
    count,
    epsilon,
    float_like,
    for_each_thread,
    in_blocks,
    is_floating,
    namespace,
    on_accelerator,
    spans,
    take,
    to_library,
    to_numpy,
)
from meanmap.kernels import Kernel
from meanmap.progress import progress_bar
from meanmap.spaces import Basis
from meanmap.spaces.space import fit_space

MOST_SQUARINGS = 10
ROUNDINGS = 64  # epsilons of a kernel's mean size that an element of its Gram matrix may be off by
FEW = 8  # columns of labels that are summed in double precision
SIDE = 512  # rows and columns of a tile, which fits a core's cache

# (rows, columns, buffer) → the tile of every kernel in turn; each is overwritten by the next
Tiles = Callable[[Points, Any, Any], Iterator[tuple[int, Array]]]


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
        plan = self._plan()
        steps: list[tuple[int, Any, int, Any]] = []
        for at, (i, squarings) in enumerate(plan):
            kernel = self.kernels[i]
            alone = squarings == 0 and not (at + 1 < len(plan) and plan[at + 1][1])
            if alone or not hasattr(kernel, "centre"):
                steps.append((i, kernel.against(B) if squarings == 0 else None, squarings, None))
            else:  # squares are those of the kernel before it is centred
                compare = kernel.kernel.against(B) if squarings == 0 else None
                steps.append((i, compare, squarings, kernel.centre(B)))

        def tiles(A: Points, columns: Any, buffer: Any) -> Iterator[tuple[int, Array]]:
            tile = buffer
            for i, compare, squarings, centre in steps:
                if compare is not None:
                    tile = compare(A, columns, buffer)
                for _ in range(squarings):
                    tile *= tile
                yield i, tile if centre is None else centre(tile + 0, A, columns)

        return tiles

    def _plan(self) -> list[tuple[int, int]]:
        """Kernels in an order that squares, with how often the tile before is to be squared."""
        ladders: dict[tuple[Any, ...], list[tuple[float, int]]] = {}
        plan: list[tuple[int, int]] = []
        for i, given in enumerate(self.kernels):
            kernel = given.kernel if hasattr(given, "centre") else given
            power = kernel.power
            bandwidth = getattr(kernel, "bandwidth", None)
            widths = (bandwidth,) if isinstance(bandwidth, Real) else bandwidth
            if power is None or not isinstance(widths, tuple):
                plan.append((i, 0))
                continue
            level = -power * math.log2(float(widths[0]))
            # one per column: in the same proportions
            shape = tuple(float(f"{width / widths[0]:.9g}") for width in widths)
            key = (power, round(level % 1.0, 9) % 1.0, shape)
            ladders.setdefault(key, []).append((level, i))
        for ladder in ladders.values():
            ladder.sort()
            befores = [level for level, _ in ladder]
            for before, (level, i) in zip([befores[0], *befores], ladder, strict=False):
                # each squaring doubles the rounding; 0, as for a repeated kernel, is afresh
                squarings = round(level - before)
                plan.append((i, squarings if squarings <= MOST_SQUARINGS else 0))
        return plan

    def diagonals(self, points: Points) -> np.ndarray:
        """k(x, x) of every point, one row per kernel."""
        return np.stack([diagonal_of(k, points) for k in self.kernels])


class KeptFamily:
    """The Gram matrices of a family on one sample, whose points are row numbers."""

    def __init__(self, family: Family, points: Points) -> None:
        n = count(points)
        self._grams = np.empty((len(family), n, n))
        for i, tile in family.against(points)(points, slice(0, n), None):
            self._grams[i] = tile
        self._diagonals = family.diagonals(points)

    def __len__(self) -> int:
        return len(self._grams)

    def against(self, B: np.ndarray) -> Tiles:
        """As that of a family, for rows and columns by number."""

        def tiles(A: np.ndarray, columns: Any, buffer: Any) -> Iterator[tuple[int, Array]]:
            for i, gram in enumerate(self._grams):
                yield i, gram[A[:, None], B[columns]]

        return tiles

    def diagonals(self, points: np.ndarray) -> np.ndarray:
        """k(x, x) of the points with these row numbers, one row per kernel."""
        return self._diagonals[:, points]


def diagonal_of(kernel: Kernel, points: Points) -> np.ndarray:
    """k(x, x) of every point, on the host in double precision."""
    return to_numpy(kernel.squared_norms(points)).astype(np.float64, copy=False)


def for_each_tile(
    n: int,
    work: Callable[[int, slice, slice], None],
    side: int = SIDE,
    progress: bool | None = False,
) -> None:
    """Call `work(thread, rows, columns)` for the tiles on and above the diagonal of n × n.

    Tiles larger than a core's cache are an accelerator's, and come one after the other.
    """
    strips = list(spans(n, side))

    def share(thread: int, of: int) -> None:
        pairs = ((p, q) for i, p in enumerate(strips) for q in strips[i:])
        for p, q in islice(pairs, thread, None, of):
            work(thread, p, q)
            done(1)

    with progress_bar(len(strips) * (len(strips) + 1) // 2, "Gram matrix", progress) as done:
        if len(strips) == 1 or side > SIDE:
            share(0, 1)
        else:
            for_each_thread(share)


def pass_over(points: Points, work: Callable[[int], Any]) -> Any:
    """`work(side)` with the side of tiles that suits where the points live."""
    return in_blocks(work, DEVICE_SIDE) if on_accelerator(points) else work(SIDE)


class ThreadSums:
    """One accumulator a thread, in double precision, added up in the order of the threads."""

    def __init__(self, *shapes: tuple[int, ...], like: Points | None = None) -> None:
        self._shapes = shapes
        self._like = None if like is None or not on_accelerator(like) else float_like(like)
        self._parts: dict[int, list[Any]] = {}

    def of(self, thread: int) -> list[Any]:
        """This thread's accumulators."""
        if thread not in self._parts:
            self._parts[thread] = [self._zeros(shape) for shape in self._shapes]
        return self._parts[thread]

    def _zeros(self, shape: tuple[int, ...]) -> Any:
        zeros = np.zeros(shape)
        if self._like is None:
            return zeros
        return asarray(zeros, self._like, namespace(self._like).float64)

    def total(self) -> list[np.ndarray]:
        """The sums over threads, on the host."""
        first, *others = (self._parts[thread] for thread in sorted(self._parts))
        for other in others:
            for mine, theirs in zip(first, other, strict=True):
                mine += theirs
        return [to_numpy(part) for part in first]


class Buffers:
    """Room for tiles on the host, one lot a thread, in the points' precision."""

    def __init__(self, like: Points, how_many: int = 1) -> None:
        self._elsewhere = on_accelerator(like)
        self._dtype = float_like(like).dtype
        self._count, self._size = how_many, min(SIDE, count(like)) ** 2
        self._parts: dict[int, list[np.ndarray]] = {}

    def of(self, thread: int, rows: slice, columns: slice) -> list[Any]:
        """This thread's buffers, in the shape of a tile; an accelerator has its own ways."""
        if self._elsewhere:
            return [None] * self._count
        if thread not in self._parts:
            self._parts[thread] = [
                np.empty(self._size, dtype=self._dtype) for _ in range(self._count)
            ]
        shape = (rows.stop - rows.start, columns.stop - columns.start)
        return [flat[: shape[0] * shape[1]].reshape(shape) for flat in self._parts[thread]]


def total(tile: Array, axis: int | None = None) -> Array:
    """The sum of a tile, or of its rows or columns, in double precision."""
    if isinstance(tile, np.ndarray):
        return tile.sum(axis=axis, dtype=np.float64)
    xp = namespace(tile)
    return xp.sum(tile, axis=axis, dtype=xp.float64)


def product_sum(A: Array, B: Array) -> Array:
    """Σ AB of two tiles."""
    if isinstance(A, np.ndarray):
        return A.ravel() @ B.ravel()
    return total(A * B)


def labelled_sums(tile: Array, here: Array, there: Array) -> Array:
    """aᵀ(tile)b for pairs of columns a, b of 0 and 1 (as small integers)."""
    if isinstance(tile, np.ndarray):
        return np.sum(here * (tile @ there.astype(np.float64)), axis=0)
    xp = namespace(tile)
    if here.shape[1] <= FEW or not (fused.on_cuda(tile) and is_single(tile)):
        columns = in_double(tile) @ xp.astype(there, xp.float64)
        return total(columns * here, 0)
    centre = xp.mean(tile)
    tile = tile - centre
    scale = xp.clip(xp.max(abs(tile)), 1e-30, None)
    columns = fused.times_labels(fused.halves(tile / scale), fused.stacked_labels(there))
    return total(columns * here, 0) * scale + total(here, 0) * total(there, 0) * centre


def labelled_gram(
    family: Family, points: Points, labels: Array, rows: bool = False, progress: bool | None = False
) -> tuple[np.ndarray, np.ndarray]:
    """aᵀKa for every column a of 0 and 1, and the rows' sums if asked for, one row per kernel.

    On CUDA a Gram matrix in single precision is cut into two halves of 11 bits each, whose products
    with 0 and 1 tensor cores take at the speed of half precision, see `fused.times_labels`.
    """
    profiles = [getattr(kernel, "fused_profile", None) for kernel in family.kernels]
    halved = not rows and None not in profiles and fused.fits(points, points) and is_single(points)
    if halved and labels.shape[1] > FEW:
        return pass_over(
            points, lambda side: _labelled_in_halves(family, points, labels, side, progress)
        )
    return pass_over(
        points, lambda side: _labelled_in_tiles(family, points, labels, rows, side, progress)
    )


def is_single(points: Points) -> bool:
    """Whether points are numbers in single precision, alone or among others."""
    if isinstance(points, tuple):
        return any(is_single(part) for part in points)
    return is_floating(points) and bool(points.dtype == namespace(points).float32)


def _labelled_in_tiles(
    family: Family, points: Points, labels: Array, with_rows: bool, side: int, progress: bool | None
) -> tuple[np.ndarray, np.ndarray]:
    n = count(points)
    tiles, buffers = family.against(points), Buffers(points)
    sums = ThreadSums((len(family), labels.shape[1]), (len(family), n), like=points)

    def work(thread: int, rows: slice, columns: slice) -> None:
        quadratic, row_sums = sums.of(thread)
        (buffer,) = buffers.of(thread, rows, columns)
        for i, tile in tiles(take(points, rows), columns, buffer):
            part = labelled_sums(tile, labels[rows], labels[columns])
            quadratic[i] += part if rows == columns else 2 * part
            if with_rows:
                add_row_sums(row_sums[i], tile, rows, columns)

    for_each_tile(n, work, side, progress)
    quadratic, row_sums = sums.total()
    return quadratic, row_sums


def _labelled_in_halves(
    family: Family, points: Points, labels: Array, side: int, progress: bool | None
) -> tuple[np.ndarray, np.ndarray]:
    n = count(points)
    scaled = [kernel.scaled(points) for kernel in family.kernels]
    centres = [_typical(kernel, points) for kernel in family.kernels]
    sums = ThreadSums((len(family), labels.shape[1]), like=points)
    stacked = {span.start: fused.stacked_labels(labels[span]) for span in spans(n, side)}

    def work(thread: int, rows: slice, columns: slice) -> None:
        (quadratic,) = sums.of(thread)
        for i, (kernel, at) in enumerate(zip(family.kernels, scaled, strict=True)):
            both = fused.gram_halves(str(kernel.fused_profile), at[rows], at[columns], centres[i])
            products = fused.times_labels(both, stacked[columns.start])
            part = fused.labelled_columns(products, labels[rows])
            quadratic[i] += part if rows == columns else 2 * part

    for_each_tile(n, work, side, progress)
    ones = over_labels(np.ones((1, n)), labels)
    quadratic = sums.total()[0] + np.array(centres)[:, None] * ones**2
    return quadratic, np.zeros((len(family), n))


def _typical(kernel: Kernel, points: Points) -> float:
    """About the mean of a Gram matrix, from some rows."""
    some = take(points, slice(None, None, max(1, count(points) // 1000)))
    return float(total(kernel.gram_matrix(some, some))) / count(some) ** 2


def over_labels(values: np.ndarray, labels: Array) -> np.ndarray:
    """Σᵢ vᵢ aᵢ for rows of values and columns of 0 and 1, which may be an accelerator's."""
    xp = namespace(labels)
    there = beside(values, labels)
    parts = [
        there[:, block] @ xp.astype(labels[block], xp.float64)
        for block in spans(labels.shape[0], DEVICE_SIDE)
    ]
    return to_numpy(sum(parts[1:], parts[0]))


def gram_sums(kernel: Kernel, A: Points, B: Points | None = None) -> float:
    """Σᵢⱼ k(aᵢ, bⱼ), or Σᵢⱼ k(aᵢ, aⱼ) by symmetry at half the work."""
    if B is None:
        return pass_over(A, lambda side: _own_sum(kernel, A, side))
    if on_accelerator(A):
        return in_blocks(lambda side: _sum_across(kernel, A, B, side), DEVICE_SIDE)
    ones = np.ones(count(B), dtype=float_like(B).dtype)
    return float(np.sum(kernel.gram_times(A, B, ones), dtype=np.float64))


def _own_sum(kernel: Kernel, A: Points, side: int) -> float:
    compare, sums, buffers = kernel.against(A), ThreadSums((1,), like=A), Buffers(A)

    def work(thread: int, rows: slice, columns: slice) -> None:
        (buffer,) = buffers.of(thread, rows, columns)
        tile = compare(take(A, rows), columns, buffer)
        sums.of(thread)[0] += (1 if rows == columns else 2) * total(tile)

    for_each_tile(count(A), work, side)
    return float(sums.total()[0][0])


def _sum_across(kernel: Kernel, A: Points, B: Points, side: int) -> float:
    compare, sums = kernel.against(B), ThreadSums((1,), like=A)
    for rows in spans(count(A), side):
        for columns in spans(count(B), side):
            sums.of(0)[0] += total(compare(take(A, rows), columns, None))
    return float(sums.total()[0][0])


@dataclass(frozen=True)
class GramMoments:
    """Sums over one Gram matrix: Σ K², its rows' sums, its diagonal, and aᵀKa."""

    squares: float
    rows: np.ndarray
    diagonal: np.ndarray
    quadratic: float
    #: By how much rounding may change an element.
    rounding: float = 0.0


def gram_moments(
    kernel: Kernel, points: Points, a: np.ndarray, basis: Basis | None = None
) -> GramMoments:
    """One pass over a Gram matrix, exact or in coordinates, for weights `a` of total 0."""
    if basis is not None:
        _, psi = fit_space(kernel, basis, points)
        psi, rounding = about_mean(psi)
        squares, mean = float(np.sum((psi.T @ psi) ** 2)), a @ psi
        rows, diagonal = psi @ psi.sum(axis=0), np.sum(psi * psi, axis=1)
        return GramMoments(squares, rows, diagonal, float(mean @ mean), rounding)
    return pass_over(points, lambda side: _exact_moments(kernel, points, a, side))


def about_mean(psi: np.ndarray) -> tuple[np.ndarray, float]:
    """Rows less their mean, and the rounding in their inner products."""
    centred = psi - psi.mean(axis=0)
    off = ROUNDINGS * epsilon(psi) * float(np.linalg.norm(psi))  # of all rows, root of squares
    return centred, off * (float(np.linalg.norm(centred)) + off) / len(psi)


def _exact_moments(kernel: Kernel, points: Points, a: np.ndarray, side: int) -> GramMoments:
    n = count(points)
    compare, buffers = kernel.against(points), Buffers(points)
    sums = ThreadSums((1,), (1,), (n,), like=points)
    weights = beside(a, points)

    def work(thread: int, rows: slice, columns: slice) -> None:
        squares, quadratic, row_sums = sums.of(thread)
        (buffer,) = buffers.of(thread, rows, columns)
        tile = compare(take(points, rows), columns, buffer)
        twice = 1 if rows == columns else 2
        squares += twice * product_sum(tile, tile)
        quadratic += twice * (weights[rows] @ in_double(tile) @ weights[columns])
        add_row_sums(row_sums, tile, rows, columns)

    for_each_tile(n, work, side)
    (squares,), (quadratic,), row_sums = sums.total()
    diagonal, rounding = diagonal_of(kernel, points), getattr(kernel, "rounding", 0.0)
    return GramMoments(float(squares), row_sums, diagonal, float(quadratic), rounding)


def beside(values: np.ndarray, points: Points) -> Array:
    """Numbers of the host where the points live, their precision kept."""
    return to_library(values, points) if on_accelerator(points) else values


def in_double(points: Points) -> Points:
    """Numbers in double precision; non-numeric points are returned unchanged."""
    if isinstance(points, tuple):
        return tuple(in_double(part) for part in points)
    xp = namespace(points)
    return xp.astype(points, xp.float64, copy=False) if is_floating(points) else points


def add_row_sums(sums: Array, tile: Array, rows: slice, columns: slice) -> None:
    """Add a tile, and its mirror image below the diagonal, to the rows' sums of a Gram matrix."""
    sums[rows] += total(tile, 1)
    if rows != columns:
        sums[columns] += total(tile, 0)


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
    if checks.is_finite_number(value) and value > 0:
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
