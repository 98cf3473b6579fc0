"""The dependence of sets of columns on a target, with one column more or one less.

With the target's Gram matrix centred once, HSIC is linear in the Gram matrix of X: Σ KM. Most
kernels are functions of a sum over columns (of squared differences, or of products), so that a
column leaves or joins by one subtraction or addition, and no set is ever measured from its start.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap.arrays import for_each_thread, spans
from meanmap.kernels import Kernel
from meanmap.learning.targets import Target
from meanmap.spaces import Basis
from meanmap.statistics.dependence import HsicSums, coordinates

SIDE = 512  # rows and columns of a tile, which fits a core's cache
FEW = 300  # rows on which a bandwidth is chosen where every candidate has a different one
LARGEST = 3.0  # of x²/σ², up to which a left-out column is expanded in powers
REMAINDER = 1e-14  # what the powers that are left out may come to
STRIP = 64  # columns that are expanded at once


def hsic_matrix(L: np.ndarray, estimator: str) -> np.ndarray:
    """M with HSIC = Σ KM for the Gram matrix K of any other variable."""
    n = len(L)
    if estimator == "V":
        rows = L.mean(axis=1)
        return (L - rows[:, None] - rows[None, :] + rows.mean()) / n**2
    M = L.copy()
    np.fill_diagonal(M, 0.0)
    rows = M.sum(axis=1)
    # Song et al. (2012, eq. 5) with K taken out
    M += rows.sum() / ((n - 1) * (n - 2)) - (rows[:, None] + rows[None, :]) / (n - 2)
    np.fill_diagonal(M, 0.0)
    return M / (n * (n - 3))


# --- kernels that are functions of a sum over columns ---------------------------------------------


def column_sums(kind: str, A: np.ndarray, B: np.ndarray, same: bool) -> np.ndarray:
    """The sum over all columns, of squared differences or of products, for every pair of rows."""
    if kind == "products":
        return A @ B.T
    D = -2 * A @ B.T
    D += (A * A).sum(axis=1)[:, None] + (B * B).sum(axis=1)[None, :]
    if same:
        np.fill_diagonal(D, 0.0)
    return np.maximum(D, 0.0, out=D)


def column_part(kind: str, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> np.ndarray:
    """One column's part of the sum."""
    if kind == "products":
        return np.multiply(a[:, None], b[None, :], out=out)
    np.subtract(a[:, None], b[None, :], out=out)
    return np.multiply(out, out, out=out)


# --- the criterion --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Subsets:
    """HSIC between sets of columns of X and a target, averaged over blocks of rows.

    Parameters
    ----------
    X : array (n, d), columns on the scale that the kernel is to see
    kernel : Kernel, resolved anew for every set
    target : Target
    estimator : {"U", "V"}
    blocks : list of arrays of rows
    basis : Basis or None
        Coordinates of every set instead of Gram matrices.
    some : array of rows on which bandwidths of candidates are chosen
    """

    X: np.ndarray
    kernel: Kernel
    target: Target
    estimator: str
    blocks: list[np.ndarray]
    basis: Basis | None
    some: np.ndarray
    done: Callable[[int], Any]

    def resolve(self, columns: np.ndarray) -> Kernel:
        """The kernel with parameters for these columns."""
        return self.kernel.resolve(self.X[:, columns])

    def of(self, columns: np.ndarray, kernel: Kernel) -> float:
        """The dependence of one set."""
        if len(columns) == 0:
            return 0.0
        return self._average(lambda rows: np.array([self._one(rows, columns, kernel)]))[0]

    def without(self, columns: np.ndarray, kernel: Kernel) -> np.ndarray:
        """The dependence of the set without each of its columns in turn, with one kernel."""
        if len(columns) == 1:
            found = np.zeros(1)  # nothing depends on nothing
        elif self.basis is not None or kernel.over_columns is None:
            found = self._each([np.delete(columns, i) for i in range(len(columns))], kernel)
        elif kernel.power == 2:
            found = self._average(lambda rows: self._expand(rows, columns, kernel))
        else:
            here = np.arange(len(columns))
            found = self._average(lambda rows: self._change(rows, columns, here, [kernel], -1.0))
        self.done(len(columns))
        return found

    def with_each(self, columns: np.ndarray, others: np.ndarray) -> np.ndarray:
        """The dependence of the set with each of some others, each with its own kernel."""
        sets = [np.append(columns, j) for j in others]
        kernels = [self.kernel.resolve(self.X[np.ix_(self.some, s)]) for s in sets]
        if self.basis is not None or kernels[0].over_columns is None:
            found = self._each(sets, *kernels)
        else:
            both = np.append(columns, others)
            added = np.arange(len(columns), len(both))
            found = self._average(
                lambda rows: self._change(rows, both, added, kernels, 1.0, len(columns))
            )
        self.done(len(others))
        return found

    # --- ways to compute it -------------------------------------------------------------------

    def _average(self, values: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """The mean over blocks, each as large as its rows are many."""
        n = sum(map(len, self.blocks))
        return sum(len(rows) / n * values(rows) for rows in self.blocks)  # type: ignore[return-value]

    def _weights(self, rows: np.ndarray) -> np.ndarray:
        return hsic_matrix(self.target.gram(rows), self.estimator)

    def _one(self, rows: np.ndarray, columns: np.ndarray, kernel: Kernel) -> float:
        x = self.X[np.ix_(rows, columns)]
        if self.basis is None:
            K = np.asarray(kernel.gram_matrix(x, x), dtype=np.float64)
            return float(K.ravel() @ self._weights(rows).ravel())
        A = coordinates(kernel, x, self.basis, centred=False)
        B = self.target.coordinates(rows)
        nothing = math.nan  # only a normalised estimate asks for these
        return HsicSums(
            n=len(A),
            xy=float(np.sum((A.T @ B) ** 2)),
            xx=nothing,
            yy=nothing,
            rows_x=A @ A.sum(axis=0),
            rows_y=B @ B.sum(axis=0),
            diagonal_x=np.sum(A * A, axis=1),
            diagonal_y=np.sum(B * B, axis=1),
        ).estimate(self.estimator)

    def _each(self, sets: list[np.ndarray], *kernels: Kernel) -> np.ndarray:
        """Set by set, for kernels that are not functions of a sum over columns."""
        each = kernels if len(kernels) == len(sets) else kernels * len(sets)
        return np.array([self.of(s, kernel) for s, kernel in zip(sets, each, strict=True)])

    def _change(
        self,
        rows: np.ndarray,
        columns: np.ndarray,
        changing: np.ndarray,
        kernels: list[Kernel],
        sign: float,
        fixed: int | None = None,
    ) -> np.ndarray:
        """Tile by tile: the sum over columns, with the part of each changing column put to it.

        The sum is over the first `fixed` columns, or all.
        """
        x = self.X[np.ix_(rows, columns)]
        kind = kernels[0].over_columns
        assert kind is not None
        x = x - x.mean(axis=0) if kind == "differences" else x
        base, M = x[:, :fixed], self._weights(rows)
        strips = list(spans(len(rows), SIDE))
        found = np.zeros(len(changing))

        def work(thread: int, of: int) -> None:
            mine = range(thread, len(changing), of)
            room = np.empty(SIDE * SIDE)
            for at, p in enumerate(strips):
                for q in strips[at:]:
                    total = column_sums(kind, base[p], base[q], p == q)
                    flat = np.ascontiguousarray(M[p, q]).ravel()
                    twice = 1.0 if p == q else 2.0
                    out = room[: total.size].reshape(total.shape)
                    for i in mine:
                        column = x[:, changing[i]]
                        column_part(kind, column[p], column[q], out)
                        (np.add if sign > 0 else np.subtract)(total, out, out=out)
                        if sign < 0 and kind == "differences":
                            np.maximum(out, 0.0, out=out)  # rounding may leave it below
                        values = kernels[i % len(kernels)].of_sum(out)
                        found[i] += twice * (values.ravel() @ flat)

        for_each_thread(work)
        return found

    def _expand(self, rows: np.ndarray, columns: np.ndarray, kernel: Any) -> np.ndarray:
        """Gaussian kernels, a column left out: matrix products instead of exponentials.

        K without column x is K ∘ exp((x - x')²/2σ²), and with v = exp(x²/2σ²) that factor is
        v v' exp(-xx'/σ²) = v v' Σₚ (-xx'/σ²)ᵖ/p!, a few powers where x is small beside σ, as it is
        while many columns are in play. Columns with far outliers are left out directly.
        """
        x = self.X[np.ix_(rows, columns)]
        x -= x.mean(axis=0)
        sigma = float(kernel.bandwidth)
        W = kernel.of_sum(column_sums("differences", x, x, True))
        W *= self._weights(rows)
        z = (
            x - (x.max(axis=0) + x.min(axis=0)) / 2
        ) / sigma  # shifts leave differences as they are
        powers = np.array([powers_needed(float(m)) for m in (z * z).max(axis=0)])
        found = np.zeros(len(columns))
        small, large = np.flatnonzero(powers > 0), np.flatnonzero(powers == 0)
        small = small[np.argsort(powers[small], kind="stable")]
        strips = [small[s] for s in spans(len(small), STRIP)]

        def work(thread: int, of: int) -> None:
            for strip in strips[thread::of]:
                u = z[:, strip]
                v = np.exp(u * u / 2)
                for p in range(int(powers[strip].max())):
                    if p:
                        v *= u / math.sqrt(p)
                    found[strip] += (-1.0) ** p * np.einsum("ij,ij->j", v, W @ v)

        for_each_thread(work)
        if len(large):
            found[large] = self._change(rows, columns, large, [kernel], -1.0)
        return found


def powers_needed(largest: float) -> int:
    """How many powers of an exponent of this size make up its exponential; 0 if too many.

    Examples
    --------
    >>> powers_needed(0.01), powers_needed(1.0), powers_needed(50.0)
    (6, 17, 0)
    """
    if largest > LARGEST:
        return 0
    term, p = math.exp(largest), 0
    while term > REMAINDER or p < 2:
        p += 1
        term *= largest / p
    return p
