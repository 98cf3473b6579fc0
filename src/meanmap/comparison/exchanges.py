"""MMD when points, or bins of them, are exchanged between two samples."""

from __future__ import annotations

from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from scipy.stats import chi2

from meanmap.arrays import Points
from meanmap.comparison.bins import STRETCH, Binned, Layout
from meanmap.comparison.results import tie_scale
from meanmap.comparison.sources import Source
from meanmap.statistics.distance import Terms, from_sums
from meanmap.statistics.tiles import (
    ROUNDINGS,
    Family,
    beside,
    in_double,
    is_single,
    labelled_gram,
    over_labels,
)

NEAR = 1e-6  # of a kernel's mean: as near as this single precision cannot tell two statistics apart
MANY = 1 << 24  # labels beyond which permutations would take seconds


class Exchange(Source):
    """Random exchanges of bins, from the sums between every two of them."""

    def __init__(self, gram: Binned, layout: Layout, estimator: str, kind: str) -> None:
        self.kind = kind
        self._gram, self._layout, self._estimator = gram, layout, estimator
        self._rows = gram.rows
        self._totals = self._rows.sum(axis=1)
        self.scales = gram.tie_scales(layout)
        self.arrangements = ways(layout)

    def observed(self) -> np.ndarray:
        return self._values(self._layout.labels[:, None])[:, 0]

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        layout = self._layout
        at_once = ways(layout) - 1 <= count or layout.movable * count > MANY
        # else a stretch at a time, in memory that is used again
        step = count if at_once else max(STRETCH // layout.bins, 256)
        sizes = [min(step, count - start) for start in range(0, count, step)]
        parts = [self._values(draw_labels(layout, size, rng, np.float64)) for size in sizes]
        return np.concatenate(parts, axis=1)

    def _values(self, labels: np.ndarray) -> np.ndarray:
        diagonals, sizes = self._gram.diagonal, self._layout.sizes
        return mmd_of_labels(
            self._gram.pair_sums(labels),
            self._rows @ labels,
            self._totals,
            (diagonals @ labels, diagonals.sum(axis=1)),
            (sizes @ labels, sizes.sum()),
            self._estimator,
        )


def mmd_of_labels(
    quadratic: np.ndarray,
    linear: np.ndarray,
    totals: np.ndarray,
    diagonals: tuple[np.ndarray, np.ndarray],
    sizes: tuple[np.ndarray, float],
    estimator: str,
) -> np.ndarray:
    """MMD of every labelling, from aᵀGa and gᵀa with a the bins that count as X.

    `diagonals` and `sizes` are those of the bins that count as X, for every labelling, and of all.
    """
    (dx, both), (n, every), total = diagonals, sizes, totals[:, None]
    return from_sums(
        xx=quadratic,
        yy=total - 2 * linear + quadratic,
        xy=linear - quadratic,
        dx=dx,
        dy=both[:, None] - dx,
        n=n,
        m=every - n,
        estimator=estimator,
    )


def ways(layout: Layout) -> int:
    """How many distinct exchanges there are."""
    return comb(layout.movable, int(layout.labels[: layout.movable].sum()))


def draw_labels(
    layout: Layout, count: int, rng: np.random.Generator, dtype: Any = np.uint8
) -> np.ndarray:
    """Which bins count as X, a column an exchange: random ones, or all others if they are fewer."""
    labels = layout.labels.astype(dtype)
    moved = labels[: layout.movable]
    ones = int(moved.sum())
    if ways(layout) - 1 <= count:
        columns = np.repeat(labels[:, None], ways(layout), axis=1)
        columns[: layout.movable] = 0
        for j, chosen in enumerate(combinations(range(len(moved)), ones)):
            columns[list(chosen), j] = 1
        same = (columns[: layout.movable] == moved[:, None]).all(axis=0)
        return columns[:, ~same]
    if len(moved) * count > MANY:
        moved_columns = draw_balanced(len(moved), ones, count, rng).astype(dtype, copy=False)
    else:
        rows = np.tile(moved, (count, 1))
        moved_columns = rng.permuted(rows, axis=1, out=rows).T
    if layout.movable == len(labels):
        return moved_columns
    columns = np.repeat(labels[:, None], count, axis=1)
    columns[: layout.movable] = moved_columns
    return columns


def draw_balanced(size: int, ones: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Columns of `size` with so many ones, every such column as likely as any other.

    Independent bits, of which some drawn at random are turned where there are too many or too few:
    ten times as fast as permutations, and no place is preferred at any step.
    """
    if 2 * ones == size:
        bits = rng.integers(256, size=(size, -(-count // 8)), dtype=np.uint8)
        columns = np.unpackbits(bits, axis=1)[:, :count]
    else:
        level = round(2**16 * ones / size)
        columns = (rng.integers(2**16, size=(size, count), dtype=np.uint16) < level).view(np.uint8)
    surplus = columns.sum(axis=0, dtype=np.int64) - ones
    for j in np.flatnonzero(surplus):
        value, left = int(surplus[j] > 0), abs(int(surplus[j]))
        while left:
            at = rng.integers(size, size=4 * left + 16)
            at = at[columns[at, j] == value]
            at = at[np.sort(np.unique(at, return_index=True)[1])][:left]  # in the order drawn
            columns[at, j] = 1 - value
            left -= len(at)
    return columns


class StreamedExchange(Source):
    """The same where the sums between bins would be too many to be kept.

    aᵀKa is summed tile by tile for a batch of exchanges at a time; how many fit in memory changes
    the number of passes, and nothing else. Points in single precision give statistics in it; that
    of the samples as they are, and those too near to be told apart from it, are found in double.
    """

    def __init__(
        self,
        family: Family,
        points: Points,
        layout: Layout,
        estimator: str,
        kind: str,
        memory: int,
        progress: bool | None = False,
    ) -> None:
        self.kind = kind
        self._family, self._layout = family, layout
        self._points = layout.arranged(points)
        self._wide = in_double(self._points) if is_single(self._points) else self._points
        self._bins = layout.bin_of_each
        self._estimator, self._memory, self._progress = estimator, memory, progress
        self._diagonals = family.diagonals(self._wide)
        self._rows: np.ndarray | None = None
        self._near: np.ndarray
        self._first = self._pass(self._wide, layout.labels[:, None].astype(np.uint8))
        assert self._rows is not None
        n = len(self._bins)
        means = np.abs(self._rows).sum(axis=1) / n**2
        # the variance in the kernel's space is no less than a mean of centred values
        size = np.maximum(self._diagonals.sum(axis=1) - self._rows.sum(axis=1) / n, 0.0) / n
        self.scales = tie_scale(size, ROUNDINGS * np.finfo(float).eps * means)
        self._near = NEAR * means[:, None]

    def observed(self) -> np.ndarray:
        return self._first[:, 0]

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        batch = int(max(1, min(count, self._memory // (4 * len(self._bins)))))
        parts, left = [], count
        given = self._layout.labels[:, None].astype(np.uint8)
        while left > 0:
            drawn = draw_labels(self._layout, min(batch, left), rng)
            # columns come in eights, which tensor cores ask for
            spare = np.repeat(given, -(drawn.shape[1] + 1) % 8, axis=1)
            values = self._pass(self._points, np.concatenate([given, drawn, spare], axis=1))
            # what rounding does to all labellings alike it does to the given one too
            values += self._first - values[:, :1]
            values = values[:, 1 : 1 + drawn.shape[1]]
            if self._wide is not self._points:
                near = np.abs(values - self._first) <= self._near
                again = np.flatnonzero(near.any(axis=0))
                if len(again):
                    values[:, again] = self._pass(self._wide, drawn[:, again])
            parts.append(values)
            left -= batch
        return np.concatenate(parts, axis=1)

    def _pass(self, points: Points, labels: np.ndarray) -> np.ndarray:
        """MMD of every labelling of the bins; the first pass finds the rows' sums as well."""
        single = self._layout.bins == len(self._bins)
        of_points = beside(labels if single else labels[self._bins], points)
        quadratic, row_sums = labelled_gram(
            self._family, points, of_points, self._rows is None, self._progress
        )
        if self._rows is None:
            self._rows = row_sums
        return mmd_of_labels(
            quadratic,
            over_labels(self._rows, of_points),
            self._rows.sum(axis=1),
            (over_labels(self._diagonals, of_points), self._diagonals.sum(axis=1)),
            (over_labels(np.ones((1, len(self._bins))), of_points)[0], len(self._bins)),
            self._estimator,
        )


class Multipliers(Source):
    """The wild bootstrap: bins of rows get random normal weights, centred in each sample.

    Chwialkowski, Sejdinovic and Gretton (2014), with weights that are constant over a bin. The
    variance of each direction is estimated from s bins with s - 2 degrees of freedom: the draws
    allow for that as t variables do, with the degrees of freedom of all directions together
    (Satterthwaite 1946). With many bins this changes nothing. The draws are of the "V" estimate,
    less what "V" is above the estimate that was asked for.
    """

    kind = "wild bootstrap"

    def __init__(self, gram: Binned, layout: Layout, estimator: str) -> None:
        self._gram, self._layout = gram, layout
        sizes, labels = layout.sizes, layout.labels
        self._n = n, m = float(sizes @ labels), float(sizes @ (1 - labels))
        self._observed = Exchange(gram, layout, estimator, self.kind).observed()
        whole = labels / n - (1 - labels) / m
        self._above = gram.pair_sums(whole[:, None])[:, 0] - self._observed
        self.scales = gram.tie_scales(layout)
        # weights of the bins are factors ∘ (z - 1 meansᵀz), 1 and means a column per sample
        self._inside = np.stack([labels, 1 - labels], axis=1)
        self._means = sizes[:, None] * self._inside / np.array(self._n)
        s = np.maximum(np.count_nonzero(self._inside, axis=0), 2)
        self._factors = self._inside @ ((s / (s - 1)) ** 0.5 / np.array(self._n))
        directions = np.array([self._directions(G) for G in gram.sums])
        self._freedom = max(len(labels) - 2, 1) * directions[:, None]

    def _directions(self, G: np.ndarray) -> float:
        """(Tr M)²/Tr M² where a draw is zᵀMz: how many directions count."""
        c, means = self._factors, self._means
        H = c[:, None] * G * c
        rows = H @ self._inside
        M = H - rows @ means.T - means @ rows.T + means @ (self._inside.T @ rows) @ means.T
        squares = float(np.vdot(M, M))
        return max(float(np.trace(M)) ** 2 / squares, 1.0) if squares > 0 else 1.0

    def observed(self) -> np.ndarray:
        return self._observed

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        z = rng.standard_normal(size=(count, len(self._factors))).T
        centred = z - self._inside @ (self._means.T @ z)
        values = self._gram.pair_sums(self._factors[:, None] * centred)
        values = values * self._freedom / chi2.ppf(rng.random(count), self._freedom)
        return values - self._above[:, None]


class Swaps(Source):
    """Random exchanges of xᵢ with yᵢ in an estimate that is a mean of some h(i, j).

    Each gives its terms h(i, j) the sign εᵢεⱼ; under the null hypothesis all are equally likely,
    so that the test is exact.
    """

    kind = "swap"

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self.scales = np.array([tie_scale(np.mean(np.abs(terms.values)), terms.rounding)])

    def observed(self) -> np.ndarray:
        return np.array([self._terms.values.mean()])

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        first, second, values = self._terms.first, self._terms.second, self._terms.values
        out = np.empty((1, count))
        for draw in range(count):
            signs = rng.choice(np.array([-1, 1], dtype=np.int8), size=int(second.max()) + 1)
            out[0, draw] = np.mean(values * (signs[first] * signs[second]))
        return out
