"""Pivoted incomplete Cholesky: the default coordinates, on any domain.

With pivots P and the Cholesky factor L of their Gram matrix, ψ(x) = L⁻¹ k(P, x): the projection of
k(x, ·) on the span of the pivots, written in an orthonormal basis. The pivots are drawn in blocks,
so that almost all the work is matrix products, and only the columns pivoted on are ever computed.
A small sample is factorised whole by LAPACK, the largest residual first.

Pivots are drawn in proportion to what is not yet explained (randomly pivoted Cholesky, Chen,
Epperly, Tropp and Webber 2023), from a fixed seed. To reach a tolerance this needs as many as
always taking the largest residual does; where the rank is capped it leaves several times less.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import scipy.linalg

from meanmap import checks
from meanmap.arrays import (
    TILE,
    Array,
    Points,
    asarray,
    assign,
    count,
    device,
    each_part,
    epsilon,
    first_array,
    float_like,
    in_precision,
    matmul_into,
    namespace,
    one_blas_thread,
    share_blocks,
    solve_triangular,
    spans,
    take,
    to_double,
    to_numpy,
    transpose,
    view_as,
    widest,
)
from meanmap.exceptions import ApproximationWarning, warn
from meanmap.kernels import Kernel
from meanmap.kernels.protocol import ALL, Comparison
from meanmap.linalg import symmetric_part
from meanmap.spaces.bases import Basis, Coordinates, Work, weighted_moments

MAX_RANK = 2000
CANDIDATES = 128, 256  # points among which a block of pivots is drawn, at first and at most

ROUNDING = 1e-12  # of the trace: what a landmark must add to be worth a coordinate

# What rounding may cost, of the kernel's size, where a solve is put off. In single precision, where
# coordinates are rounded as much, sums by bounds of this size were as good as those of solved rows.
DELAYED, DELAYED_SINGLE = 1e-11, 3e-4

EXACT = 4096  # points in single precision, up to which landmarks give exact coordinates

SMALL = 256  # points whose whole Gram matrix costs less than a block of pivots
FINER = 0.1  # of the tolerance, which costs nothing there: answers depend less on the pivots

LENIENCE = 8  # how much likelier a pivot is kept than in single draws


@dataclass(frozen=True)
class Pivots(Coordinates):
    """Coordinates on the span of k(p, ·) over pivots p."""

    kernel: Kernel
    points: Points  # the pivots
    factor: Array  # L, lower triangular, with k(P, P) = LLᵀ
    residual: float
    nested: ClassVar[bool] = True

    @property
    def rank(self) -> int:  # type: ignore[override]
        return int(self.factor.shape[0])

    @property
    def landmarks(self) -> tuple[Points, Array]:
        return self.points, self.factor

    def transform(self, points: Points) -> Array:
        if count(points) * self.rank <= 8 * TILE:
            return self._block(points)
        if isinstance(self.factor, np.ndarray):
            rows = np.empty((self.rank, count(points)), dtype=self.factor.dtype)

            def keep(thread: int, block: slice, psi: np.ndarray) -> None:
                rows[:, block] = psi.T

            self.for_each_block(points, keep)
            return rows.T
        blocks = spans(count(points), max(1, 8 * TILE // self.rank))
        return namespace(self.factor).concat([self._block(take(points, i)) for i in blocks])

    def _block(self, points: Points) -> Array:
        gram = self._compare(points, ALL, None)
        return solve_triangular(self.factor, gram.T, overwrite=True).T

    def for_each_block(self, points: Points, work: Work, solved: int | None = None) -> None:
        """As it is for all coordinates; those beyond `solved` are left as they are before L⁻¹."""
        r, L = self.rank, self.factor
        solved = r if solved is None else solved
        if not isinstance(L, np.ndarray) or r == 0:
            super().for_each_block(points, work)
            return
        blocks, compare = self.blocks(points), self.kernel.against(points)

        def transform(thread: int, some: list[slice]) -> None:
            # fresh memory would cost more than what is computed in it
            buffer = np.empty(r * blocks[0].stop, dtype=L.dtype)
            known = np.empty(min(r, CANDIDATES[0]) * blocks[0].stop, dtype=L.dtype)
            for block in some:
                width = block.stop - block.start
                rows = compare(self.points, block, view_as(buffer, r, width))
                # L⁻¹ by blocks: products let go of the interpreter lock, a solve does not
                for J in spans(r, CANDIDATES[0]):
                    k = min(J.start, solved)
                    if k:
                        into = view_as(known, J.stop - J.start, width)
                        rows[J] -= np.matmul(L[J, :k], rows[:k], out=into)
                    if J.start < solved:
                        rows[J] = solve_triangular(L[J, J], rows[J], overwrite=True)
                work(thread, block, rows.T)

        with one_blas_thread():
            share_blocks(transform, blocks, len(blocks) > 1)

    def moments(self, points: Points, weights: Array, values: Array) -> tuple[Array, Array]:
        # Half the work of ψ is L⁻¹, for every point. Past the first few pivots L⁻¹ can wait until
        # the sums are taken, and then costs no more than the sums of a single block.
        k, L = self._must_solve, self.factor
        each = self.for_each_block if k == self.rank else partial(self.for_each_block, solved=k)
        C, B = weighted_moments(each, points, weights, values)
        if k < self.rank:
            later, first = slice(k, None), slice(0, k)
            B[:, later] = solve_triangular(L[later, later], B[:, later].T).T
            C[later] = solve_triangular(L[later, later], C[later])
            C[first, later] = C[later, first].T
            C[later, later] = solve_triangular(L[later, later], C[later, later].T)
            C[later, later] = symmetric_part(C[later, later])
        return C, B

    @cached_property
    def _must_solve(self) -> int:
        """How many coordinates must be solved for before they are summed, for sums to `DELAYED`.

        With S the residual kernel among the pivots beyond k, rounding leaves ε ‖S‖²/(r - k) in sums
        of its rows, and `L⁻¹ · L⁻ᵀ` magnifies that by ‖L⁻¹‖²: a lot for k = 0, where it is the
        textbook's normal equations, and little once the first pivots took the large part of S.
        """
        r, L = self.rank, self.factor
        if not isinstance(L, np.ndarray) or r <= 2 * CANDIDATES[0]:
            return r
        solve = partial(scipy.linalg.solve_triangular, L, lower=True, check_finite=False)
        magnified = largest_square(lambda v: solve(solve(v), trans=1), r)
        largest = float(np.square(L).sum(axis=1).max())  # k(p, p)
        bound = (DELAYED_SINGLE if L.dtype == np.float32 else DELAYED) * largest
        k = CANDIDATES[0]
        while 2 * k <= r:
            S = largest_square(lambda v, T=L[k:, k:]: T @ (v @ T), r - k)  # type: ignore[misc]
            # the norms are estimates from below, 30 is for that
            if 30 * epsilon(L) * S * S / (r - k) * magnified <= bound:
                return k
            k *= 2
        return r

    @cached_property
    def _compare(self) -> Comparison:
        return self.kernel.against(self.points)

    def __getstate__(self) -> dict[str, object]:
        cached = ("_compare", "_must_solve")
        return {name: value for name, value in self.__dict__.items() if name not in cached}

    def mean(self, points: Points, weights: Array) -> Array:
        # L⁻¹ Σ wᵢ k(P, xᵢ): one solve for the sum instead of one for each point
        blocks = spans(count(points), max(1, 4 * TILE // max(self.rank, 1)))
        parts = [weights[..., i] @ self._compare(take(points, i), ALL, None) for i in blocks]
        return transpose(solve_triangular(self.factor, transpose(sum(parts[1:], parts[0]))))


@dataclass(frozen=True)
class RoundedPivots(Coordinates):
    """Coordinates of points in single precision, computed in double and rounded at the end.

    What a smooth kernel has beyond the first few pivots is smaller than the rounding of k in single
    precision: computed from such k it would be noise, or left out where λ is as small.
    """

    wide: Pivots
    points: Points  # the pivots in single precision
    residual: float
    nested: ClassVar[bool] = True

    @property
    def rank(self) -> int:  # type: ignore[override]
        return self.wide.rank

    @property
    def landmarks(self) -> tuple[Points, Array]:
        return self.points, in_precision(self.wide.factor, float_like(self.points))

    def transform(self, points: Points) -> Array:
        return in_precision(self.wide.transform(each_part(points, to_double)), float_like(points))


@dataclass(frozen=True)
class PivotedCholesky(Basis):
    """Pivoted incomplete Cholesky to a tolerance on the residual trace.

    Parameters
    ----------
    tol : float
        Stop when Σ wᵢ (k(xᵢ, xᵢ) - ‖ψ(xᵢ)‖²) ≤ tol · Σ wᵢ k(xᵢ, xᵢ). On the sample the kernel is
        then exact to `tol`; off it the error of k(x, x') is at most √(residual(x) residual(x')).
    max_rank : int or None
        The largest rank; None is min(n, 2000). Where that stops short of `tol` a warning says what
        error is left.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.kernels import Gaussian
    >>> from meanmap.spaces import PivotedCholesky, Space
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> space = Space(Gaussian(2.0), PivotedCholesky(tol=1e-12)).fit(X)
    >>> Z = space.transform(X)
    >>> bool(abs(Z @ Z.T - Gaussian(2.0)(X)).max() < 1e-9), space.rank_ < 150
    (True, True)
    """

    tol: float = 1e-10
    max_rank: int | None = None

    @property
    def tolerance(self) -> float:
        return self.tol

    def fit(self, kernel: Kernel, points: Points, weights: Array) -> tuple[Coordinates, Array]:
        checks.not_negative(self.tol, "tol", "It bounds the relative residual trace; try 1e-10.")
        n = count(points)
        cap = MAX_RANK if self.max_rank is None else checks.whole(self.max_rank, "max_rank")
        with one_blas_thread():
            fitted, coordinates = fit_pivots(kernel, points, weights, self.tol, min(n, cap))
        left = fitted.residual
        if fitted.rank == cap < n and left > self.tol:
            warn(
                f"rank {cap} leaves {left:.2g} of the kernel's trace on {n} points "
                f"(asked for {self.tol:.2g}). Raise max_rank, widen the bandwidth, or pass "
                f"basis=PivotedCholesky(tol={left:.1g}) to accept it.",
                ApproximationWarning,
            )
        return fitted, coordinates


def largest_square(apply: Callable[[np.ndarray], np.ndarray], size: int) -> float:
    """About the norm of a positive operator, by a few steps of power iteration."""
    v = np.random.default_rng(0).normal(size=size)
    for _ in range(3):
        v = apply(v / np.linalg.norm(v))
    return float(np.linalg.norm(v))


def pivot_factor(rows: Array, chosen: np.ndarray) -> Array:
    """L, the coordinates of the pivots themselves, in the order of memory that BLAS takes."""
    if isinstance(rows, np.ndarray):
        return np.take(rows, chosen, axis=1).T  # twice as fast as an index
    return take(rows.T, chosen)


def span_landmarks(kernel: Kernel, landmarks: Points, number: int) -> Coordinates:
    """Coordinates of so many points on the span of landmarks; what they miss is not known yet.

    In single precision many points get coordinates by kernel values of that precision. What they
    round off is left out of the span, whose factor is found in double.

    Landmarks that the others already span, to rounding, are left out: the rank is decided by the
    same factorisation as everywhere, run among the landmarks.
    """
    like, wide = float_like(landmarks), each_part(landmarks, to_double)
    exact = like.dtype == widest(like) or number <= EXACT
    floor = ROUNDING if exact else epsilon(like)
    P, L = None, wide
    if isinstance(first_array(landmarks), np.ndarray):
        gram = kernel.gram_matrix(wide, wide)
        with contextlib.suppress(np.linalg.LinAlgError):
            L = np.linalg.cholesky(gram)
            if (L.diagonal() ** 2).min() > max(1e3 * ROUNDING, floor) * gram.diagonal().max():
                P = wide  # plainly independent, and faster
    if P is None:
        even, least = checks.weights(None, wide, float_like(wide)), 0.0 if exact else floor
        fitted, _ = fit_pivots(kernel, wide, even, ROUNDING, count(wide), least=least)
        P, L = fitted.landmarks  # type: ignore[misc]
    if exact:
        return round_pivots(Pivots(kernel, P, L, math.nan), landmarks)
    return Pivots(kernel, in_precision(P, landmarks), in_precision(L, like), math.nan)


def round_pivots(fitted: Pivots, like: Points) -> Coordinates:
    """Coordinates in double, for points in the precision of others."""
    if float_like(like).dtype == fitted.factor.dtype:
        return fitted
    return RoundedPivots(fitted, in_precision(fitted.points, like), fitted.residual)


def fit_pivots(
    kernel: Kernel,
    points: Points,
    weights: Array,
    tol: float,
    max_rank: int,
    rng: np.random.Generator | None = None,
    least: float = 0.0,
) -> tuple[Coordinates, Array]:
    """Coordinates on pivots drawn from a weighted sample, and the sample's own, found in double.

    The pivots are drawn with `rng`; None is a fixed seed, and for a small sample the largest
    residuals. Residuals below `least`, of the largest k(x, x), are left out, as is rounding.
    """
    w, wide = to_numpy(weights).astype(np.float64), each_part(points, to_double)
    least = max(least, 8 * epsilon(float_like(wide)))
    if rng is None and count(points) <= min(max_rank, SMALL):
        fitted, psi = factorize_gram(kernel, wide, w, tol, least)
    else:
        draw = rng or np.random.default_rng(0)
        fitted, psi = draw_pivots(kernel, wide, w, tol, max_rank, draw, least)
    return round_pivots(fitted, points), in_precision(psi, float_like(points))


def draw_pivots(
    kernel: Kernel,
    points: Points,
    w: np.ndarray,
    tol: float,
    max_rank: int,
    rng: np.random.Generator,
    least: float,
) -> tuple[Pivots, Array]:
    """The same by blocks of pivots, drawn in proportion to what is left to explain."""
    n, like = count(points), float_like(points)
    xp = namespace(like)
    compare = kernel.against(points)
    residual = to_numpy(kernel.squared_norms(points)).astype(np.float64).copy()
    total, largest = float(w @ residual), float(residual.max(initial=0.0))
    floor = least * largest  # below this a residual is rounding
    rows = xp.zeros((min(max_rank, 64), n), dtype=like.dtype, device=device(like))
    pivots = np.empty(0, dtype=int)
    width = CANDIDATES[0]

    while len(pivots) < max_rank and float(w @ residual) > tol * total:
        k = len(pivots)
        candidates = draw_by_residual(np.where(residual > floor, residual, 0.0), width, rng)
        if len(candidates) == 0:
            break
        # the residual kernel among the candidates, and the pivots among them
        block = to_numpy(compare(take(points, candidates), candidates, None)).astype(np.float64)
        if k:
            known = to_numpy(rows[:k, candidates]).astype(np.float64)
            block -= known.T @ known
        order, L = choose_pivots(block, residual[candidates], floor, rng)
        new, L = candidates[order[: max_rank - k]], L[: max_rank - k, : max_rank - k]
        if k + len(new) > rows.shape[0]:
            rows = enlarge(rows, k, k + len(new), max_rank)
        left = float(w @ residual)
        there, L = take(points, new), asarray(L, like)
        rows, explained = extend(rows, pivots, new, there, compare, L, residual, w)
        # known at the pivots themselves, where in single precision all else may cancel to zero
        rows = assign(rows, np.ix_(np.arange(k, k + len(new)), new), L.T)
        enough = np.flatnonzero(left - np.cumsum(explained) <= tol * total)
        keep = int(enough[0]) + 1 if len(enough) else len(new)  # the tolerance may be met midway
        if keep < len(new):
            for row in range(k + keep, k + len(new)):
                residual += to_numpy(rows[row]) ** 2
        pivots = np.concatenate([pivots, new[:keep]])
        residual[pivots] = 0.0
        # candidates that crowd together are wasted, candidates far apart are all taken
        if len(new) > len(candidates) // 4:
            width = min(2 * width, CANDIDATES[1])
    if isinstance(rows, np.ndarray):
        rows.resize((len(pivots), n), refcheck=False)  # gives back what was not needed
    rows = rows[: len(pivots)]
    left = float(w @ residual) / total if total > 0 else 0.0
    return Pivots(kernel, take(points, pivots), pivot_factor(rows, pivots), left), rows.T


def factorize_gram(
    kernel: Kernel, points: Points, w: np.ndarray, tol: float, least: float
) -> tuple[Pivots, Array]:
    """The same for a small sample, from its whole Gram matrix."""
    like = float_like(points)
    gram = to_numpy(kernel.gram_matrix(points, points)).astype(np.float64)
    residual = gram.diagonal().copy()
    total, floor = float(w @ residual), least * float(residual.max(initial=0.0))
    L, order, rank, _ = scipy.linalg.lapack.dpstrf(gram, tol=floor, lower=True)
    order, L = order - 1, np.tril(L[:, :rank])
    explained = np.cumsum(np.append(0.0, w[order] @ (L * L)))
    enough = np.flatnonzero(total - explained <= FINER * tol * total)
    rank = int(enough[0]) if len(enough) else rank
    rows, pivots = np.zeros((rank, len(w))), order[:rank]
    rows[:, order] = L[:, :rank].T
    residual = np.maximum(residual - (rows * rows).sum(axis=0), 0.0)
    residual[pivots] = 0.0
    left = float(w @ residual) / total if total > 0 else 0.0
    rows = asarray(rows, like)
    return Pivots(kernel, take(points, pivots), pivot_factor(rows, pivots), left), rows.T


def enlarge(rows: Array, filled: int, size: int, limit: int) -> Array:
    """Room for at least `size` rows, and for `limit` at most; the first `filled` are kept.

    NumPy's memory grows where it is (the system moves pages, not numbers), so that a large sample
    is never held twice; elsewhere room doubles.
    """
    if isinstance(rows, np.ndarray):
        rows.resize((size, rows.shape[1]), refcheck=False)  # there are no other views
        return rows
    size = min(limit, max(2 * rows.shape[0], size))
    larger = namespace(rows).empty((size, rows.shape[1]), dtype=rows.dtype, device=device(rows))
    return assign(larger, slice(0, filled), rows[:filled])


def draw_by_residual(residual: np.ndarray, width: int, rng: np.random.Generator) -> np.ndarray:
    """Points drawn in proportion to their residual, in the order of the draw, none twice."""
    cumulative = np.cumsum(residual)
    if cumulative[-1] <= 0:
        return np.empty(0, dtype=int)
    drawn = np.searchsorted(cumulative, rng.uniform(0, cumulative[-1], size=width), side="right")
    _, first = np.unique(np.minimum(drawn, len(residual) - 1), return_index=True)
    return drawn[np.sort(first)]


def choose_pivots(
    block: np.ndarray, before: np.ndarray, floor: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Pivots among the candidates, and the Cholesky factor of their residual kernel.

    A candidate was drawn by its residual at the start of the block. Kept with probability r, the
    share of it that is left, the block would have the law of single draws (Epperly, Tropp and
    Webber 2024); kept with `LENIENCE · r` it needs half as many blocks, and the same rank.
    """
    size = len(block)
    chances = rng.uniform(size=size)
    L, failed = scipy.linalg.lapack.dpotrf(block, lower=True)
    alone = L.diagonal() ** 2  # of each, what those before it leave
    if not failed and (alone > np.maximum(floor, chances * before / LENIENCE)).all():
        return np.arange(size), L  # all of them, as where the rank is the sample's
    columns = np.zeros((size, size))
    residual = block.diagonal().copy()
    order: list[int] = []
    for pivot in range(size):
        if residual[pivot] <= floor or chances[pivot] * before[pivot] > LENIENCE * residual[pivot]:
            continue
        step = len(order)
        column = block[:, pivot] - columns[:, :step] @ columns[pivot, :step]
        column /= np.sqrt(residual[pivot])
        columns[:, step] = column
        residual -= column * column
        order.append(pivot)
    if not order:  # rounding says there is nothing left among the candidates
        order, columns[0, 0] = [0], np.sqrt(max(before[0], floor))
    chosen = np.array(order)
    return chosen, np.tril(columns[chosen, : len(order)])


def extend(
    rows: Array,
    old: np.ndarray,
    new: np.ndarray,
    pivots: Points,
    compare: Comparison,
    L: Array,
    residual: np.ndarray,
    w: np.ndarray,
) -> tuple[Array, np.ndarray]:
    """Add what the new pivots explain, L⁻¹ (K[new] - rows[:, new]ᵀ rows), and shrink the residual.

    Returns the rows, and how much of the weighted trace each new one explains. Column by column of
    the sample this is independent, so that threads share it and each stretch stays in a core's
    cache from the kernel to the residual. Old pivots are explained: once they are many, their
    columns are left at zero, so that a factor of full rank costs no more than one without pivots.
    """
    n, b, k = len(residual), len(new), len(old)
    known = rows[:k, new].T if k else None
    step = max(256, TILE // b) if isinstance(rows, np.ndarray) else n
    slices = step == n or 4 * k <= n
    blocks: list[Any] = list(spans(n, step))
    if not slices:
        free = np.delete(np.arange(n), old)
        blocks = [free[part] for part in spans(len(free), step)]
    explained = np.zeros((len(blocks), b))

    def stretch(block: int, first: Array | None, second: Array | None) -> Array:
        columns = blocks[block]
        added = compare(pivots, columns, first)
        if known is not None:
            there = rows[:k, columns] if slices else np.take(rows[:k], columns, axis=1)
            added -= matmul_into(known, there, second)
        added = solve_triangular(L, added, overwrite=True)
        squares = np.square(to_numpy(added), out=second)
        explained[block] = squares @ w[columns]
        residual[columns] = np.maximum(residual[columns] - squares.sum(axis=0), 0.0)
        return added

    if not isinstance(rows, np.ndarray):
        return assign(rows, slice(k, k + b), stretch(0, None, None)), explained[0]

    def work(thread: int, numbers: list[int]) -> None:
        # fresh memory would cost more than what is computed in it
        buffers = np.empty((2, b * len(residual[blocks[0]])), dtype=rows.dtype)
        for block in numbers:
            width = len(residual[blocks[block]])
            first, second = (view_as(buffer, b, width) for buffer in buffers)
            rows[k : k + b, blocks[block]] = stretch(block, first, second)

    share_blocks(work, list(range(len(blocks))), len(blocks) > 4)
    return rows, explained.sum(axis=0)
