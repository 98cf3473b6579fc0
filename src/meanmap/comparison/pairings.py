"""HSIC when the rows of Y change places against those of X."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from meanmap.arrays import (
    Points,
    count,
    for_each_thread,
    on_accelerator,
    one_blas_thread,
    spans,
    take,
)
from meanmap.comparison import shifts
from meanmap.comparison.results import product_scale
from meanmap.comparison.sources import Source
from meanmap.kernels import Kernel
from meanmap.progress import progress_bar
from meanmap.statistics import dependence
from meanmap.statistics.gates import one_each
from meanmap.statistics.tiles import Buffers, Family, KeptFamily, ThreadSums, for_each_tile

KEPT = 1024  # rows up to which Gram matrices are kept, 8 MiB each, for one round after the other
GATHERED = 1 << 18  # elements of a permuted matrix at a time, 2 MiB: what a core's cache holds


class Shifts(Source):
    """Cyclic shifts of Y's bins against X's, in as many random orders as are needed."""

    kind = "permutation"

    def __init__(
        self,
        families: tuple[Family, Family],
        X: Points,
        Y: Points,
        estimator: str,
        order: Callable[[np.random.Generator], shifts.Rows],
        rng: np.random.Generator,
    ) -> None:
        self._estimator, self._order, self._rows = estimator, order, order(rng)
        self._families: tuple[Any, Any] = families
        self._X, self._Y = X, Y
        self._roundings = tuple(roundings(family) for family in families)
        self._first: np.ndarray | None = None
        n = count(X)
        if n <= KEPT and not on_accelerator(X):  # every round is then a matter of indices
            self._families = KeptFamily(families[0], X), KeptFamily(families[1], Y)
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
        families: tuple[Family, Family],
        X: Points,
        Y: Points,
        estimator: str,
        memory: int,
        order: Callable[[np.random.Generator], np.ndarray] | None = None,
    ) -> None:
        self._families, self._X, self._Y, self._estimator = families, X, Y, estimator
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
        out = np.empty((len(self.scales), count))

        def work(thread: int, of: int) -> None:
            for j in range(thread, count, of):
                out[:, j] = self._permuted(orders[j])
                done(1)

        with progress_bar(count, "Permutations", self.progress) as done:
            if self._kept:
                for_each_thread(work)
            else:
                work(0, 1)  # the passes over the Gram matrices share out their tiles themselves
        return out

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
        out = np.empty((1, count))

        def work(thread: int, of: int) -> None:
            for j in range(thread, count, of):
                out[0, j] = self._value(self._B[orders[j]])
                done(1)

        with progress_bar(count, "Permutations", self.progress) as done:
            for_each_thread(work)
        return out

    def _value(self, B: np.ndarray) -> float:
        return float(np.sum((self._A.T @ B) ** 2)) / len(B) ** 2


class SignedBlocks(Source):
    """The wild bootstrap: random signs on bins of rows of the centred matrices' product.

    Chwialkowski, Sejdinovic and Gretton (2014), with signs that are constant over a bin. Signs
    change nothing on the diagonal, which is most of what "V" adds to "U", and so both have one
    p-value: the draws of "V" are those of "U", moved and scaled as the observed statistic is.
    """

    kind = "wild bootstrap"

    def __init__(
        self,
        families: tuple[Family, Family],
        X: Points,
        Y: Points,
        estimator: str,
        size: int,
    ) -> None:
        self._n = n = count(X)
        kx, ky = families[0].kernels[0], families[1].kernels[0]
        sums = dependence.hsic_sums(kx, ky, X, Y)
        self._gram = self._products(kx, ky, X, Y, sums, np.arange(n) // size)
        self._pairs = n * n if estimator == "V" else n * (n - 3)
        self._observed = sums.estimate(estimator)
        self._rest = self._observed - float(self._gram.sum()) / self._pairs
        self.scales = np.array([product_scale(sums.sizes, sums.rounding)])

    def _products(
        self,
        kx: Kernel,
        ky: Kernel,
        X: Points,
        Y: Points,
        sums: dependence.HsicSums,
        bins: np.ndarray,
    ) -> np.ndarray:
        """Σ K̃ᵢⱼ L̃ᵢⱼ over the rows of every two bins, diagonals left out.

        U-centred (Székely and Rizzo 2014): with the usual centring the products off the diagonal
        have a mean that signs would not reproduce.
        """
        compare_x, compare_y = kx.against(X), ky.against(Y)
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
