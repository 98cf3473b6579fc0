"""Points gathered in bins, so that exchanging bins stands for exchanging points.

A permutation test stays exact when only a group of permutations is used, and permutations of equal
bins are one (Domingo-Enrich, Dwivedi and Mackey, "Cheap permutation testing", 2025). One pass over
the Gram matrix leaves Σ k between every two bins; each permutation is then a product with an s × s
matrix, whatever the number of points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import Any

import numpy as np
from scipy.linalg.blas import dtrmm
from scipy.sparse import csr_array

from meanmap.arrays import (
    Array,
    Points,
    for_each_thread,
    namespace,
    on_accelerator,
    one_blas_thread,
    spans,
    take,
)
from meanmap.comparison.results import tie_scale
from meanmap.progress import progress_bar
from meanmap.statistics.tiles import (
    ROUNDINGS,
    SIDE,
    Buffers,
    Family,
    ThreadSums,
    pass_over,
)

BINS = 512  # bins of both samples together: more gain next to no power
FEWEST = 32  # bins that the smaller sample should have
FEW = 64  # columns of weights up to which a plain product is as fast
STRETCH = 1 << 16  # weights that are multiplied at a time
MOST = 2048  # an s × s matrix of these is 32 MiB a kernel

#: Takes the features of some points, one array per kernel: (thread, which points, arrays).
Features = Callable[[int, slice, Sequence[np.ndarray]], None]


@dataclass(frozen=True)
class Strip:
    """Points in a row that make up some layers, all of them of the same bins."""

    points: slice
    bins: slice
    layers: int


@dataclass(frozen=True)
class Layout:
    """Which points make up which bin.

    `layers[j]` holds the j-th point of every bin that has so many; bins are in order of their size,
    so that a layer is a row of the first few bins. The first `movable` bins are exchanged, what is
    left over beside them stays where it is.
    """

    layers: tuple[np.ndarray, ...]
    labels: np.ndarray  # 1 for a bin of X, 0 for one of Y
    movable: int

    @property
    def bins(self) -> int:
        """How many there are."""
        return len(self.labels)

    @property
    def sizes(self) -> np.ndarray:
        """How many points every bin holds."""
        sizes = np.zeros(self.bins)
        for layer in self.layers:
            sizes[: len(layer)] += 1
        return sizes

    @property
    def bin_of_each(self) -> np.ndarray:
        """The bin of every point, in layered order."""
        return np.concatenate([np.arange(len(layer)) for layer in self.layers])

    def strips(self, side: int = SIDE) -> list[Strip]:
        """Stretches of at most `side` points in layered order, each with the bins it goes to."""
        found, start = [], 0
        for width, group in groupby(len(layer) for layer in self.layers):
            layers = sum(1 for _ in group)
            if width > side:
                for j in range(layers):
                    for span in spans(width, side):
                        first = start + j * width + span.start
                        last = start + j * width + span.stop
                        found.append(Strip(slice(first, last), span, 1))
            else:
                for span in spans(layers, side // width):
                    first, last = start + span.start * width, start + span.stop * width
                    height = span.stop - span.start
                    found.append(Strip(slice(first, last), slice(0, width), height))
            start += layers * width
        return found

    def arranged(self, points: Points) -> Points:
        """The points, layer after layer."""
        return take(points, np.concatenate(self.layers))


def bin_size(n: int, m: int, n_bins: int | None = None) -> int:
    """Points a bin, so that there are about `n_bins` and little is left over."""
    total = n + m
    if n_bins is not None:
        size = max(1, total // n_bins)
        return min(size, n, m)
    if total <= 2 * BINS:
        return 1
    largest = min(total // BINS, max(min(n, m) // FEWEST, total // MOST))
    largest = max(1, min(largest, n, m))
    # a little smaller where that divides both samples better
    sizes = range(max(1, (2 * largest + 2) // 3), largest + 1)
    return min(sizes, key=lambda size: ((n % size) / n + (m % size) / m, -size))


def random_bins(n: int, m: int, size: int, rng: np.random.Generator) -> Layout:
    """Bins of `size` random points each, X's and Y's apart."""
    if size == 1:
        return Layout((np.arange(n + m),), np.repeat([1.0, 0.0], [n, m]), n + m)
    return _layout(rng.permutation(n), n + rng.permutation(m), size, consecutive=False)


def consecutive_bins(n: int, m: int, size: int) -> Layout:
    """Bins of `size` rows that follow each other, for samples that are time series."""
    return _layout(np.arange(n), n + np.arange(m), size, consecutive=True)


def _layout(x: np.ndarray, y: np.ndarray, size: int, consecutive: bool) -> Layout:
    parts, left = [], []
    for order in (x, y):
        whole = len(order) // size * size
        bins = order[:whole]
        parts.append(bins.reshape(-1, size).T if consecutive else bins.reshape(size, -1))
        left.append(order[whole:])
    labels = np.repeat([1.0, 0.0], [parts[0].shape[1], parts[1].shape[1]])
    # the longer rest first, so that every layer is a row of the first bins
    rests = sorted(zip(left, (1.0, 0.0), strict=True), key=lambda rest: -len(rest[0]))
    rests = [(rest, label) for rest, label in rests if len(rest)]
    layers = [
        np.concatenate([parts[0][j], parts[1][j], *(rest[j : j + 1] for rest, _ in rests)])
        for j in range(size)
    ]
    fixed = [label for _, label in rests]
    return Layout(tuple(layers), np.concatenate([labels, fixed]), len(labels))


def clusters(of_x: np.ndarray, of_y: np.ndarray) -> Layout:
    """A bin a cluster, whatever its size; every cluster lies in one sample."""
    shared = np.intersect1d(of_x, of_y)
    if shared.size:
        raise ValueError(
            f"groups: {shared.size} groups have rows in both samples (the first is {shared[0]!r}). "
            "Whole groups are exchanged, so each must lie in one sample; give the rows of X and of "
            "Y groups of their own."
        )
    n = len(of_x)
    rows = [np.flatnonzero(of_x == g) for g in np.unique(of_x)]
    labels = [1.0] * len(rows)
    rows += [n + np.flatnonzero(of_y == g) for g in np.unique(of_y)]
    labels += [0.0] * (len(rows) - len(labels))
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
    rows = [rows[i] for i in order]
    layers = [
        np.array([row[j] for row in rows if len(row) > j], dtype=int) for j in range(len(rows[0]))
    ]
    return Layout(tuple(layers), np.array([labels[i] for i in order]), len(rows))


@dataclass(frozen=True)
class BinnedGram:
    """Σ k over the pairs of points of every two bins, one matrix per kernel."""

    sums: np.ndarray  # (kernels, s, s)
    diagonal: np.ndarray  # (kernels, s): Σ k(x, x)
    rounding: np.ndarray | None = None  # (kernels,): what a mean of k may be off by

    @property
    def rows(self) -> np.ndarray:
        """(kernels, s): Σ k over the pairs of a point of a bin with any point."""
        return self.sums.sum(axis=2)

    def centred(self, layout: Layout) -> BinnedGram:
        """Those of k(x, x') - h(x) - h(x'), which has mean 0 over either point: small numbers.

        MMD is the same, as what is taken off depends on one point alone.
        """
        sizes = layout.sizes
        n = float(sizes.sum())
        rows = self.sums.sum(axis=2)
        heights = (rows - rows.sum(axis=1, keepdims=True) * sizes / (2 * n)) / n
        sums = self.sums.copy()
        for G, h in zip(sums, heights, strict=True):
            off = np.outer(h, sizes)
            G -= off
            G -= off.T
        rounding = ROUNDINGS * np.finfo(float).eps * np.abs(self.sums).sum(axis=(1, 2)) / n**2
        return replace(self, sums=sums, diagonal=self.diagonal - 2 * heights, rounding=rounding)

    def tie_scales(self, layout: Layout) -> np.ndarray:
        """The scale of ties between statistics, one per kernel."""
        size = np.abs(self.sums).sum(axis=(1, 2)) / layout.sizes.sum() ** 2
        return tie_scale(size, 0.0 if self.rounding is None else self.rounding)

    @classmethod
    def of(
        cls, family: Family, points: Points, layout: Layout, progress: bool | None = False
    ) -> BinnedGram:
        """One pass over the upper half of the Gram matrix, tile by tile."""
        arranged = layout.arranged(points)
        return pass_over(arranged, lambda side: cls._of(family, arranged, layout, side, progress))

    @classmethod
    def _of(
        cls, family: Family, arranged: Points, layout: Layout, side: int, progress: bool | None
    ) -> BinnedGram:
        strips, s = layout.strips(side), layout.bins
        tiles, buffers = family.against(arranged), Buffers(arranged)
        sums = ThreadSums((len(family), s, s), like=arranged)

        def share(thread: int, of: int) -> None:
            (upper,) = sums.of(thread)
            pairs = ((p, q) for p in range(len(strips)) for q in range(p, len(strips)))
            for p, q in islice(pairs, thread, None, of):
                first, second = strips[p], strips[q]
                (buffer,) = buffers.of(thread, first.points, second.points)
                for i, tile in tiles(take(arranged, first.points), second.points, buffer):
                    summed = _over_layers(tile, first.layers, second.layers)
                    upper[i, first.bins, second.bins] += summed / 2 if p == q else summed
                done(1)

        total = len(strips) * (len(strips) + 1) // 2
        with progress_bar(total, "Gram matrix", progress) as done:
            if len(strips) == 1 or on_accelerator(arranged):
                share(0, 1)
            else:
                for_each_thread(share)
        (upper,) = sums.total()
        upper += upper.swapaxes(1, 2).copy()
        diagonal = np.zeros((len(family), s))
        where = layout.bin_of_each
        for i, values in enumerate(family.diagonals(arranged)):
            diagonal[i] = np.bincount(where, weights=values, minlength=s)
        return cls(upper, diagonal)

    def pair_sums(self, weights: np.ndarray) -> np.ndarray:
        """wᵀGw for columns of weights on bins, one row per kernel."""
        s, columns = weights.shape
        if columns <= FEW:
            return np.stack([np.sum(weights * (G @ weights), axis=0) for G in self.sums])
        quadratic = np.empty((len(self.sums), columns))
        diagonals = np.diagonal(self.sums, axis1=1, axis2=2)
        with one_blas_thread(s < 1000):
            # a stretch at a time: fresh memory would cost as much as the product in it
            for block in spans(columns, max(STRETCH // s, 4 * FEW)):
                w = weights[:, block]
                quadratic[:, block] = -(diagonals @ (w * w))
                for sums, G in zip(quadratic, self.sums, strict=True):
                    # G is symmetric: its upper half counted twice takes half the work
                    product = dtrmm(2.0, G.T, w, lower=1, trans_a=1)
                    product *= w
                    sums[block] += product.sum(axis=0)
        return quadratic


@dataclass(frozen=True)
class BinnedFeatures:
    """Σ ψ over the points of every bin, one matrix per kernel ψ(x)·ψ(x'): in O(n r).

    Of the parts that stand `apart` every column is a kernel, ψⱼ(x)ψⱼ(x').
    """

    parts: tuple[np.ndarray, ...]  # (s, r) each
    diagonal: np.ndarray  # (kernels, s): Σ ‖ψ(x)‖²
    rounding: np.ndarray | None = None  # (kernels,): what a mean of k may be off by
    apart: frozenset[int] = frozenset()

    @classmethod
    def of(
        cls,
        ranks: Sequence[int],
        for_each_block: Callable[[Features], None],
        layout: Layout,
        apart: frozenset[int] = frozenset(),
    ) -> BinnedFeatures:
        """From the features of some points at a time, `ranks` of every part."""
        s = layout.bins
        where = np.empty(int(layout.sizes.sum()), dtype=int)
        where[np.concatenate(layout.layers)] = layout.bin_of_each
        lengths = [(s, r if i in apart else 1) for i, r in enumerate(ranks)]
        sums = ThreadSums(*((s, r) for r in ranks), *lengths)

        def work(thread: int, block: slice, features: Sequence[np.ndarray]) -> None:
            found = sums.of(thread)
            here = where[block]
            into = csr_array((np.ones(len(here)), here, np.arange(len(here) + 1)), (len(here), s)).T
            for i, psi in enumerate(features):
                squares = psi * psi
                found[i] += into @ psi
                found[len(ranks) + i] += into @ (
                    squares if i in apart else squares.sum(axis=1, keepdims=True)
                )

        for_each_block(work)
        total = sums.total()
        diagonal = np.concatenate(total[len(ranks) :], axis=1).T
        return cls(tuple(total[: len(ranks)]), diagonal, None, apart)

    def of_each(
        self, together: Callable[[np.ndarray], np.ndarray], apart: Callable[[np.ndarray], Any]
    ) -> np.ndarray:
        """A row per kernel, from each part: `together` gives one, `apart` one per column."""
        rows = [
            apart(part) if i in self.apart else together(part)[None]
            for i, part in enumerate(self.parts)
        ]
        return np.concatenate(rows)

    def centred(self, layout: Layout) -> BinnedFeatures:
        """Those of ψ less its mean over all points, which changes no distance: small numbers."""
        sizes = layout.sizes
        n = float(sizes.sum())

        def shift(part: np.ndarray) -> np.ndarray:
            mean = part.sum(axis=0) / n
            return (np.multiply.outer(sizes, mean**2) - 2 * part * mean).T

        shifts = self.of_each(lambda part: shift(part).sum(axis=0), shift)
        rounding = ROUNDINGS * np.finfo(float).eps * self.diagonal.sum(axis=1) / n
        parts = tuple(part - np.outer(sizes, part.sum(axis=0) / n) for part in self.parts)
        return BinnedFeatures(parts, self.diagonal + shifts, rounding, self.apart)

    @property
    def sums(self) -> Iterator[np.ndarray]:
        """(s, s) for every kernel: those between every two bins."""
        for i, part in enumerate(self.parts):
            if i in self.apart:
                yield from (np.outer(column, column) for column in part.T)
            else:
                yield part @ part.T

    @property
    def rows(self) -> np.ndarray:
        """(kernels, s): Σ k over the pairs of a point of a bin with any point."""
        return self.of_each(
            lambda part: part @ part.sum(axis=0), lambda part: (part * part.sum(axis=0)).T
        )

    def tie_scales(self, layout: Layout) -> np.ndarray:
        """The scale of ties between statistics, one per kernel."""
        size = np.abs(self.diagonal).sum(axis=1) / layout.sizes.sum() ** 2
        return tie_scale(size, 0.0 if self.rounding is None else self.rounding)

    def pair_sums(self, weights: np.ndarray) -> np.ndarray:
        """wᵀGw for columns of weights on bins, one row per kernel."""

        def squares(part: np.ndarray) -> np.ndarray:
            means = part.T @ weights
            return np.multiply(means, means, out=means)

        with one_blas_thread(len(weights) < 1000):
            return self.of_each(lambda part: squares(part).sum(axis=0), squares)


Binned = BinnedGram | BinnedFeatures


def _over_layers(tile: Array, above: int, beside: int) -> Array:
    """A tile summed over the layers of its rows and of its columns."""
    if above == beside == 1:
        return tile
    xp = namespace(tile)
    rows, columns = tile.shape
    folded = xp.reshape(tile, (above, rows // above, columns))
    # one axis at a time: the first sum leaves little to the second
    once = xp.sum(folded, axis=0, dtype=xp.float64)
    return xp.sum(xp.reshape(once, (rows // above, beside, columns // beside)), axis=1)
