"""HSIC when the rows of Y change places against those of X."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meanmap.arrays import Points, count, on_accelerator, one_blas_thread, spans, take
from meanmap.comparison import shifts
from meanmap.comparison.results import product_scale
from meanmap.comparison.sources import Source
from meanmap.kernels import Kernel
from meanmap.statistics import dependence
from meanmap.statistics.gates import one_each
from meanmap.statistics.tiles import Buffers, Family, KeptFamily, ThreadSums, for_each_tile

KEPT = 1024  # rows up to which Gram matrices are kept, 8 MiB each, for one round after the other
GATHERED = 1 << 18  # elements of a permuted matrix at a time, 2 MiB: what a core's cache holds


@dataclass(frozen=True, eq=False)
class PairedPoints:
    """Paired rows with the kernels of both sides, and the estimate of HSIC that is asked for."""

    families: tuple[Family, Family]
    X: Points
    Y: Points
    estimator: str


class Shifts(Source):
    """Cyclic shifts of Y's bins against X's, in as many random orders as are needed."""

    kind = "permutation"

    def __init__(
        self,
        data: PairedPoints,
        order: Callable[[np.random.Generator], shifts.Rows],
        rng: np.random.Generator,
    ) -> None:
        self._estimator, self._order, self._rows = data.estimator, order, order(rng)
        self._families: tuple[Any, Any] = data.families
        self._X, self._Y = data.X, data.Y
        self._roundings = tuple(roundings(family) for family in data.families)
        self._first: np.ndarray | None = None
        n = count(data.X)
        if n <= KEPT and not on_accelerator(data.X):  # every round is then a matter of indices
            x, y = data.families
            self._families = KeptFamily(x, data.X), KeptFamily(y, data.Y)
            self._X = self._Y = np.arange(n)

    def _round(self, rows: shifts.Rows) -> np.ndarray:
        sums = shifts.shifted_sums(
            self._families, self._X, self._Y, self._rows, rows, self.progress
        )
        x, y = self._roundings
        self.scales = product_scale((sums.x[:, None], sums.y), (x[:, None], y)).ravel()
        return sums.hsic(self._estimator).reshape(-1, self._rows.bins)

    def observed(self) -> np.ndarray:
        self._first = self._round(self._rows)
        return self._first[:, 0]

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        assert self._first is not None
        parts = [self._first[:, 1:]]
        while sum(part.shape[1] for part in parts) < count:
            parts.append(self._round(self._order(rng)))
        drawn = np.concatenate(parts, axis=1)
        # Under the null hypothesis the observed statistic is equally likely to have any rank among
        # all of these, and therefore also among some of them that are chosen at random.
        return drawn[:, np.sort(rng.choice(drawn.shape[1], count, replace=False))]


class Permutations(Source):
    """Random permutations of rows, one at a time; `order` draws one."""

    kind = "permutation"

    def __init__(
        self,
        data: PairedPoints,
        memory: int,
        order: Callable[[np.random.Generator], np.ndarray] | None = None,
    ) -> None:
        families, X, Y = data.families, data.X, data.Y
        self._families, self._X, self._Y, self._estimator = families, X, Y, data.estimator
        self._order = order or (lambda rng: rng.permutation(count(X)))
        self._sums = [
            [dependence.hsic_sums(kx, ky, X, Y) for ky in families[1].kernels]
            for kx in families[0].kernels
        ]
        self.scales = np.array(
            [product_scale(s.sizes, s.rounding) for row in self._sums for s in row]
        )
        n = count(X)
        self._kept = 8 * n * n * (len(families[0]) + len(families[1])) <= memory
        if self._kept:
            self._grams = [
                [kept_gram(kernel, points) for kernel in family.kernels]
                for family, points in ((families[0], X), (families[1], Y))
            ]

    def observed(self) -> np.ndarray:
        return np.array([s.estimate(self._estimator) for row in self._sums for s in row])

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        orders = [self._order(rng) for _ in range(count)]
        # passes over Gram matrices that are not kept share out their tiles themselves
        return self.draw_each(orders, self._permuted, threads=self._kept)

    def _permuted(self, order: np.ndarray) -> np.ndarray:
        xy = self._gathered(order) if self._kept else self._computed(order)
        found = np.empty(xy.shape)
        for (i, j), value in np.ndenumerate(xy):
            sums = self._sums[i][j]
            rows, diagonal = sums.rows_y[order], sums.diagonal_y[order]
            moved = replace(sums, xy=float(value), rows_y=rows, diagonal_y=diagonal)
            found[i, j] = moved.estimate(self._estimator)
        return found.ravel()

    def _gathered(self, order: np.ndarray) -> np.ndarray:
        """Σ KL of every pair of kernels, Y's rows in this order, from the matrices that are kept.

        A block of rows at a time, in a cache: a permuted copy of a whole matrix would go through
        memory four times, and take ten times as long as this.
        """
        xy = np.zeros((len(self._families[0]), len(self._families[1])))
        for rows in spans(len(order), rows_at_once(len(order))):
            for j, gram in enumerate(self._grams[1]):
                # gathered once for all kernels of X
                L = gram[order[rows]].take(order, axis=1)
                for i, K in enumerate(self._grams[0]):
                    xy[i, j] += np.vdot(K[rows], L)
        return xy

    def _computed(self, order: np.ndarray) -> np.ndarray:
        """The same from kernel values that are computed again, tile by tile."""
        Y = take(self._Y, order)
        return np.array(
            [
                [dependence.hsic_sums(kx, ky, self._X, Y).xy for ky in self._families[1].kernels]
                for kx in self._families[0].kernels
            ]
        )


def kept_gram(kernel: Kernel, points: Points) -> np.ndarray:
    """The Gram matrix of all points, computed by blocks of rows: whole temporaries take longer."""
    n = count(points)
    gram = np.empty((n, n))
    for rows in spans(n, rows_at_once(n)):
        gram[rows] = kernel.gram_matrix(take(points, rows), points)
    return gram


def rows_at_once(n: int) -> int:
    """Rows of an n × n matrix that are gathered at once, at most GATHERED elements of it."""
    return max(1, GATHERED // n)


class CoordinatePermutations(Source):
    """Random permutations of rows in coordinates: HSIC is ‖Ψ_Xᵀ Ψ_Y‖²/n², both centred."""

    kind = "permutation"

    def __init__(self, kernels: tuple[Kernel, Kernel], X: Points, Y: Points, basis: Any) -> None:
        bases = one_each(basis, "basis", "xy")
        (self._A, x), (self._B, y) = (
            dependence.centred_coordinates(kernel, points, one)
            for kernel, points, one in zip(kernels, (X, Y), bases, strict=True)
        )
        a, b = (np.linalg.norm(part.T @ part) / len(part) for part in (self._A, self._B))
        self.scales = np.array([product_scale((a, b), (x, y))])

    def observed(self) -> np.ndarray:
        return np.array([self._value(self._B)])

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        orders = [rng.permutation(len(self._A)) for _ in range(count)]
        return self.draw_each(orders, lambda order: self._value(self._B[order]))

    def _value(self, B: np.ndarray) -> float:
        return float(np.sum((self._A.T @ B) ** 2)) / len(B) ** 2


class SignedBlocks(Source):
    """The wild bootstrap: random signs on bins of rows of the centred matrices' product.

    Chwialkowski, Sejdinovic and Gretton (2014), with signs that are constant over a bin. Signs
    change nothing on the diagonal, which is most of what "V" adds to "U", and so both have one
    p-value: the draws of "V" are those of "U", moved and scaled as the observed statistic is.
    """

    kind = "wild bootstrap"

    def __init__(self, data: PairedPoints, size: int) -> None:
        self._n = n = count(data.X)
        kx, ky = (family.kernels[0] for family in data.families)
        sums = dependence.hsic_sums(kx, ky, data.X, data.Y)
        self._gram = self._products((kx, ky), data, sums, np.arange(n) // size)
        self._pairs = n * n if data.estimator == "V" else n * (n - 3)
        self._observed = sums.estimate(data.estimator)
        self._rest = self._observed - float(self._gram.sum()) / self._pairs
        self.scales = np.array([product_scale(sums.sizes, sums.rounding)])

    def _products(
        self,
        kernels: tuple[Kernel, Kernel],
        data: PairedPoints,
        sums: dependence.HsicSums,
        bins: np.ndarray,
    ) -> np.ndarray:
        """Σ K̃ᵢⱼ L̃ᵢⱼ over the rows of every two bins, diagonals left out.

        U-centred (Székely and Rizzo 2014): with the usual centring the products off the diagonal
        have a mean that signs would not reproduce.
        """
        X, Y = data.X, data.Y
        compare_x, compare_y = kernels[0].against(X), kernels[1].against(Y)
        room_x, room_y = Buffers(X), Buffers(Y)
        total = ThreadSums((bins[-1] + 1, bins[-1] + 1))
        centres = [
            _u_centre(rows - diagonal)
            for rows, diagonal in (
                (sums.rows_x, sums.diagonal_x),
                (sums.rows_y, sums.diagonal_y),
            )
        ]

        def work(thread: int, rows: slice, columns: slice) -> None:
            K = compare_x(take(X, rows), columns, room_x.of(thread, rows, columns)[0])
            L = compare_y(take(Y, rows), columns, room_y.of(thread, rows, columns)[0])
            K, L = (
                tile - centre[rows, None] - centre[columns]
                for tile, centre in zip((K, L), centres, strict=True)
            )
            K *= L
            if rows == columns:
                np.fill_diagonal(K, 0.0)
            for axis, span in ((0, rows), (1, columns)):
                starts = np.flatnonzero(np.diff(bins[span], prepend=-1))
                K = np.add.reduceat(K, starts, axis=axis)
            here = slice(bins[rows.start], bins[rows.stop - 1] + 1)
            there = slice(bins[columns.start], bins[columns.stop - 1] + 1)
            (gram,) = total.of(thread)
            gram[here, there] += K
            if rows != columns:
                gram[there, here] += K.T

        for_each_tile(self._n, work)
        return total.total()[0]

    def observed(self) -> np.ndarray:
        return np.array([self._observed])

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        signs = rng.choice([-1.0, 1.0], size=(count, len(self._gram))).T
        with one_blas_thread(len(signs) < 1000):
            values = np.sum(signs * (self._gram @ signs), axis=0)
        return values[None] / self._pairs + self._rest


def roundings(family: Family) -> np.ndarray:
    """By how much rounding may change an element of each kernel's Gram matrix."""
    return np.array([getattr(kernel, "rounding", 0.0) for kernel in family.kernels])


def _u_centre(rows: np.ndarray) -> np.ndarray:
    """What is taken off each row and column of a matrix without its diagonal to U-centre it."""
    n = len(rows)
    return rows / (n - 2) - rows.sum() / (2 * (n - 1) * (n - 2))
