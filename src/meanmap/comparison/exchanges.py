"""MMD when points, or bins of them, are exchanged between two samples."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np

from meanmap.arrays import Points, take
from meanmap.comparison.bins import BinnedGram, Layout, pair_sums
from meanmap.comparison.nulls import Source
from meanmap.statistics.distance import Terms, from_sums
from meanmap.statistics.tiles import Buffers, Family, Sums, for_each_tile


class Exchange(Source):
    """Random exchanges of bins, from the sums between every two of them."""

    def __init__(self, gram: BinnedGram, layout: Layout, estimator: str, kind: str) -> None:
        self.kind = kind
        self._gram, self._layout, self._estimator = gram, layout, estimator
        self.scales = np.abs(gram.sums).sum(axis=(1, 2)) / layout.sizes.sum() ** 2
        self.arrangements = ways(layout)

    def observed(self) -> np.ndarray:
        return self._values(self._layout.labels[:, None])[:, 0]

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        return self._values(relabelled(self._layout, count, rng).astype(np.float64))

    def _values(self, labels: np.ndarray) -> np.ndarray:
        return exchanged(
            *pair_sums(self._gram, labels),
            totals=self._gram.sums.sum(axis=(1, 2)),
            diagonals=self._gram.diagonal,
            sizes=self._layout.sizes,
            labels=labels,
            estimator=self._estimator,
        )


def exchanged(
    quadratic: np.ndarray,
    linear: np.ndarray,
    totals: np.ndarray,
    diagonals: np.ndarray,
    sizes: np.ndarray,
    labels: np.ndarray,
    estimator: str,
) -> np.ndarray:
    """MMD of every labelling, from aᵀGa and gᵀa with a the bins that count as X."""
    n = sizes @ labels
    dx = diagonals @ labels
    total, dy = totals[:, None], diagonals.sum(axis=1)[:, None] - dx
    return from_sums(
        xx=quadratic,
        yy=total - 2 * linear + quadratic,
        xy=linear - quadratic,
        dx=dx,
        dy=dy,
        n=n,
        m=sizes.sum() - n,
        estimator=estimator,
    )


def ways(layout: Layout) -> int:
    """How many distinct exchanges there are."""
    return comb(layout.movable, int(layout.labels[: layout.movable].sum()))


def relabelled(layout: Layout, count: int, rng: np.random.Generator) -> np.ndarray:
    """Which bins count as X, a column an exchange: random ones, or all others if they are fewer."""
    labels = layout.labels.astype(np.uint8)
    moved = labels[: layout.movable]
    ones = int(moved.sum())
    if ways(layout) - 1 <= count:
        columns = np.repeat(labels[:, None], ways(layout), axis=1)
        columns[: layout.movable] = 0
        for j, chosen in enumerate(combinations(range(len(moved)), ones)):
            columns[list(chosen), j] = 1
        same = (columns[: layout.movable] == moved[:, None]).all(axis=0)
        return columns[:, ~same]
    columns = np.repeat(labels[:, None], count, axis=1)
    columns[: layout.movable] = rng.permuted(np.tile(moved, (count, 1)), axis=1).T
    return columns


class StreamedExchange(Source):
    """The same where the sums between bins would be too many to be kept.

    aᵀKa is summed tile by tile for a batch of exchanges at a time; how many fit in memory changes
    the number of passes, and nothing else.
    """

    def __init__(
        self,
        family: Family,
        points: Points,
        layout: Layout,
        estimator: str,
        kind: str,
        memory: int,
        progress: bool = False,
    ) -> None:
        self.kind = kind
        self._family, self._layout = family, layout
        self._points = layout.arranged(points)
        self._bins = layout.bin_of_each
        self._estimator, self._memory, self._progress = estimator, memory, progress
        values = family.diagonals(self._points)
        self._diagonals = np.stack([np.bincount(self._bins, weights=row) for row in values])
        self._rows: np.ndarray | None = None
        self._first = self._pass(layout.labels[:, None].astype(np.uint8))
        assert self._rows is not None
        self.scales = np.abs(self._rows).sum(axis=1) / len(self._bins) ** 2

    def observed(self) -> np.ndarray:
        return self._first[:, 0]

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        batch = int(max(1, min(count, self._memory // (4 * len(self._bins)))))
        parts, left = [], count
        while left > 0:
            parts.append(self._pass(relabelled(self._layout, min(batch, left), rng)))
            left -= batch
        return np.concatenate(parts, axis=1)

    def _pass(self, labels: np.ndarray) -> np.ndarray:
        """MMD of every labelling of the bins; the first pass finds the rows' sums as well."""
        family, points, n = self._family, self._points, len(self._bins)
        tiles, buffers = family.against(points), Buffers(points)
        sums = Sums((len(family), labels.shape[1]), (len(family), n))

        def work(thread: int, rows: slice, columns: slice) -> None:
            quadratic, row_sums = sums.of(thread)
            (buffer,) = buffers.of(thread, rows, columns)
            here = labels[self._bins[rows]].astype(np.float64)
            there = labels[self._bins[columns]].astype(np.float64)
            for i, tile in tiles(take(points, rows), columns, buffer):
                part = np.sum(here * (tile @ there), axis=0)
                quadratic[i] += part if rows == columns else 2 * part
                row_sums[i, rows] += tile.sum(axis=1)
                if rows != columns:
                    row_sums[i, columns] += tile.sum(axis=0)

        for_each_tile(n, work, progress=self._progress)
        quadratic, row_sums = sums.total()
        if self._rows is None:
            self._rows = np.stack([np.bincount(self._bins, weights=row) for row in row_sums])
        return exchanged(
            quadratic,
            self._rows @ labels,
            totals=self._rows.sum(axis=1),
            diagonals=self._diagonals,
            sizes=self._layout.sizes,
            labels=labels,
            estimator=self._estimator,
        )


class Signs(Source):
    """The wild bootstrap: bins of rows get random signs, centred in each sample.

    Chwialkowski, Sejdinovic and Gretton (2014), with signs that are constant over a bin.
    """

    kind = "wild bootstrap"

    def __init__(self, gram: BinnedGram, layout: Layout) -> None:
        self._gram, self._layout = gram, layout
        sizes, labels = layout.sizes, layout.labels
        self._n = float(sizes @ labels), float(sizes @ (1 - labels))
        self.scales = np.abs(gram.sums).sum(axis=(1, 2)) / sizes.sum() ** 2

    def observed(self) -> np.ndarray:
        n, m = self._n
        labels = self._layout.labels
        return pair_sums(self._gram, (labels / n - (1 - labels) / m)[:, None])[0][:, 0]

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        sizes, labels, (n, m) = self._layout.sizes, self._layout.labels, self._n
        signs = rng.choice([-1.0, 1.0], size=(count, len(labels))).T
        weights = np.zeros_like(signs)
        for inside, total in ((labels, n), (1 - labels, m)):
            centred = signs - (sizes * inside) @ signs / total
            s = max(int(np.count_nonzero(inside)), 2)
            weights += inside[:, None] * centred * (s / (s - 1)) ** 0.5 / total
        return pair_sums(self._gram, weights)[0]


class Swaps(Source):
    """Random exchanges of xᵢ with yᵢ in an estimate that is a mean of some h(i, j).

    Each gives its terms h(i, j) the sign εᵢεⱼ; under the null hypothesis all are equally likely,
    so that the test is exact.
    """

    kind = "swap"

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self.scales = np.array([np.mean(np.abs(terms.values))])

    def observed(self) -> np.ndarray:
        return np.array([self._terms.values.mean()])

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        first, second, values = self._terms.first, self._terms.second, self._terms.values
        out = np.empty((1, count))
        for draw in range(count):
            signs = rng.choice(np.array([-1, 1], dtype=np.int8), size=int(second.max()) + 1)
            out[0, draw] = np.mean(values * (signs[first] * signs[second]))
        return out
