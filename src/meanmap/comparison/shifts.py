"""HSIC of all cyclic shifts at once.

Under independence the rows of Y may be permuted. With the rows in random order, the cyclic shifts
of Y against X are a group of permutations, so that a test by shifts is exact. Several random
orders, each with all its shifts, are exchangeable blocks, and exact too. Σ K(i, j) L(i+t, j+t) over
all i, j is, for every wrapped diagonal of the two matrices, a circular correlation: the Fourier
transform gives all n shifts in O(n² log n), the price of a few permutations.

Rows are gathered in bins (of one row where n is small), and bins are shifted: matrices are met one
s × s piece at a time and never kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
import scipy.fft

from meanmap.arrays import (
    TILE,
    Array,
    Points,
    count,
    device,
    for_each_thread,
    namespace,
    on_accelerator,
    spans,
    take,
    to_numpy,
)
from meanmap.progress import progress_bar
from meanmap.statistics.tiles import (
    Family,
    ThreadSums,
    Tiles,
    add_row_sums,
    beside,
    in_double,
    product_sum,
)

CHUNK = 64  # diagonals that are transformed at a time


@dataclass(frozen=True)
class Rows:
    """Rows in s bins of b: `grid[j, i]` is the j-th row of bin i; `rest` belongs to none."""

    grid: np.ndarray
    rest: np.ndarray

    @property
    def bins(self) -> int:
        """How many can be shifted."""
        return self.grid.shape[1]

    def flat(self) -> np.ndarray:
        """All rows, layer after layer, the rest at the end."""
        return np.concatenate([self.grid.ravel(), self.rest])


def random_rows(n: int, least: int, rng: np.random.Generator) -> Rows:
    """At least `least` bins (n at most) of random rows."""
    size = max(1, n // max(least, 1))
    return _rows(rng.permutation(n), size, consecutive=False)


def consecutive_rows(
    n: int, size: int, rng: np.random.Generator, given: np.ndarray | None = None
) -> Rows:
    """Bins of `size` rows that follow each other, in the given order, the bins in random order."""
    order = exchanged_blocks(n, size, rng)
    return _rows(order if given is None else given[order], size, consecutive=True)


def exchanged_blocks(n: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """Rows with their stretches of `size` in random order, what is left over at the end."""
    whole = n // size
    order = (rng.permutation(whole)[:, None] * size + np.arange(size)).ravel()
    return np.concatenate([order, np.arange(whole * size, n)])


def _rows(order: np.ndarray, size: int, consecutive: bool) -> Rows:
    whole = len(order) // size * size
    bins = order[:whole]
    grid = bins.reshape(-1, size).T if consecutive else bins.reshape(size, -1)
    return Rows(grid, order[whole:])


@dataclass(frozen=True)
class ShiftedSums:
    """What HSIC needs of every shift: Σ KL, and Σ of products of rows' sums and diagonals.

    `xy[i, j, t]` is for kernel i of X, kernel j of Y and shift t; `rows`, `diagonals` likewise.
    """

    n: int
    xy: np.ndarray  # Σ K L
    x: np.ndarray  # the root of the mean square of centred K, a kernel of X each
    y: np.ndarray
    rows: np.ndarray  # Σᵢ of the products of the rows' sums
    rows_off: np.ndarray  # the same without the diagonals
    diagonals: np.ndarray  # Σᵢ Kᵢᵢ Lᵢᵢ
    totals: tuple[np.ndarray, np.ndarray]  # ΣK and ΣL, one per kernel
    totals_off: tuple[np.ndarray, np.ndarray]

    def hsic(self, estimator: str) -> np.ndarray:
        """HSIC of every pair of kernels and every shift."""
        n = self.n
        if estimator == "U":  # Song et al. (2012, eq. 5)
            constant = np.outer(*self.totals_off) / ((n - 1) * (n - 2))
            value = self.xy - self.diagonals + constant[..., None] - 2 / (n - 2) * self.rows_off
            return value / (n * (n - 3))
        constant = np.outer(*self.totals) / n**2
        return (self.xy - 2 / n * self.rows + constant[..., None]) / n**2


def shifted_sums(
    families: tuple[Family, Family],
    X: Points,
    Y: Points,
    rows_x: Rows,
    rows_y: Rows,
    progress: bool | None = False,
) -> ShiftedSums:
    """One pass over both Gram matrices for all shifts of Y's bins against X's."""
    n, s, size = count(X), rows_x.bins, len(rows_x.grid)
    points = [take(X, rows_x.flat()), take(Y, rows_y.flat())]
    shape = (len(families[0]), len(families[1]), s // 2 + 1)
    spectrum = beside(np.zeros(shape, dtype=complex), X)
    constant = beside(np.zeros(shape[:2]), X)
    row_sums = [beside(np.zeros((len(family), n)), X) for family in families]
    squares = [beside(np.zeros(len(family)), X) for family in families]
    readers = [family.against(p) for family, p in zip(families, points, strict=True)]
    read = _read_piece_there if on_accelerator(X) else _read_piece

    work = list(_layer_pairs(s, size, n))
    with progress_bar(len(work), "Gram matrices", progress) as done:
        for first, second, moving in work:
            pieces = [
                read(reader, len(family), part, (first, second), sums, square, moving)
                for reader, family, part, sums, square in zip(
                    readers, families, points, row_sums, squares, strict=True
                )
            ]
            if moving is None:  # the rest against itself stays as it is
                K, L = pieces
                for a, b in product(range(len(K)), range(len(L))):
                    constant[a, b] += product_sum(K[a], L[b])
            else:
                _correlate(pieces, spectrum, symmetric=first == second)
            done(1)

    spectrum, constant = to_numpy(spectrum), to_numpy(constant)
    row_sums, squares = [[to_numpy(v) for v in values] for values in (row_sums, squares)]
    xy = scipy.fft.irfft(spectrum, n=s, axis=2) + constant[..., None]
    diagonals = [family.diagonals(part) for family, part in zip(families, points, strict=True)]
    off = [sums - diagonal for sums, diagonal in zip(row_sums, diagonals, strict=True)]
    return ShiftedSums(
        n=n,
        xy=xy,
        x=_centred_sizes(squares[0], row_sums[0]),
        y=_centred_sizes(squares[1], row_sums[1]),
        rows=_shifted_products(row_sums, rows_x),
        rows_off=_shifted_products(off, rows_x),
        diagonals=_shifted_products(diagonals, rows_x),
        totals=(row_sums[0].sum(axis=1), row_sums[1].sum(axis=1)),
        totals_off=(off[0].sum(axis=1), off[1].sum(axis=1)),
    )


def _centred_sizes(squares: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The root of the mean square of centred matrices, from Σ K² and the rows' sums."""
    n = rows.shape[1]
    centred = squares - 2 / n * np.sum(rows**2, axis=1) + rows.sum(axis=1) ** 2 / n**2
    return np.sqrt(np.maximum(centred, 0.0)) / n


def _layer_pairs(s: int, size: int, n: int) -> Iterator[tuple[slice, slice, bool | None]]:
    """Layer against layer, the upper half; the rest against every layer and against itself.

    The third part says what shifts: both sides (True), the second one (False), neither (None).
    """
    layers = [slice(j * s, (j + 1) * s) for j in range(size)]
    for j, first in enumerate(layers):
        for second in layers[j:]:
            yield first, second, True
    if size * s < n:
        rest = slice(size * s, n)
        for layer in layers:
            yield rest, layer, False
        yield rest, rest, None


def _read_piece(
    reader: Tiles,
    kernels: int,
    points: Points,
    piece: tuple[slice, slice],
    row_sums: np.ndarray,
    squares: np.ndarray,
    moving: bool | None,
) -> np.ndarray:
    """A piece of every kernel's Gram matrix, with the axis that shifts in the middle.

    Where both sides shift the last axis is the wrapped diagonal (half of them where the piece is
    symmetric), else it is the row that stays.
    """
    first, second = piece
    height, width = first.stop - first.start, second.stop - second.start
    same = first == second
    kept = (width // 2 + 1 if same else width) if moving else height
    out = np.empty((kernels, height if moving else width, kept))
    sums = ThreadSums((kernels, width), (kernels,))
    blocks = list(spans(height, max(1, TILE // width)))

    def share(thread: int, of: int) -> None:
        columns, square = sums.of(thread)
        for block in blocks[thread::of]:
            rows = slice(first.start + block.start, first.start + block.stop)
            buffer = np.empty((block.stop - block.start, width))
            for i, tile in reader(take(points, rows), second, buffer):
                row_sums[i, rows] += tile.sum(axis=1)
                flat = tile.ravel()
                square[i] += flat @ flat
                if not same:
                    columns[i] += tile.sum(axis=0)
                if moving:
                    _skew(tile, out[i, block], block.start)
                else:
                    out[i, :, block] = tile.T

    if height * width <= 2 * TILE:
        share(0, 1)  # too little to pay for threads
    else:
        for_each_thread(share)
    columns, square = sums.total()
    squares += square * (1 if same else 2)
    if not same:
        row_sums[:, second] += columns
    return out


def _read_piece_there(
    reader: Tiles,
    kernels: int,
    points: Points,
    piece: tuple[slice, slice],
    row_sums: Array,
    squares: Array,
    moving: bool | None,
) -> Array:
    """`_read_piece` on an accelerator: the piece is one tile, skewed by gathering."""
    first, second = piece
    same = first == second
    found = []
    for i, tile in reader(take(points, first), second, None):
        xp = namespace(tile)
        add_row_sums(row_sums[i], tile, first, second)
        squares[i] += (1 if same else 2) * product_sum(tile, tile)
        if moving:
            width = tile.shape[1]
            kept = xp.arange(width // 2 + 1 if same else width, device=device(tile))
            at = (xp.arange(tile.shape[0], device=device(tile))[:, None] + kept[None, :]) % width
            found.append((i, xp.take_along_axis(in_double(tile), at, axis=1)))
        else:
            found.append((i, in_double(tile).T + 0))
    return xp.stack([tile for _, tile in sorted(found, key=lambda pair: pair[0])])


def _skew(tile: np.ndarray, out: np.ndarray, start: int) -> None:
    """out[i, d] = tile[i, start + i + d], wrapped around."""
    twice = np.concatenate([tile, tile], axis=1)[:, start:]
    row, column = twice.strides
    out[:] = np.lib.stride_tricks.as_strided(twice, out.shape, (row + column, column))


def _correlate(pieces: list[np.ndarray], spectrum: np.ndarray, symmetric: bool) -> None:
    """Add the transform of Σ_d Σᵢ K_d(i) L_d(i + t), twice: for the piece and its mirror image."""
    s, kept = pieces[0].shape[1:]
    own = [0, s // 2] if s % 2 == 0 else [0]  # diagonals that are their own mirror images
    if on_accelerator(spectrum):
        xp = namespace(spectrum)
        F, G = (xp.fft.rfft(piece, axis=1) for piece in pieces)
        if symmetric:
            F[:, :, own] *= 0.5
        for i in range(len(F)):
            spectrum[i] += 2 * xp.sum(xp.conj(F[i]) * G, axis=2)
        return
    chunks = list(spans(kept, CHUNK))
    parts: dict[int, np.ndarray] = {}

    def share(thread: int, of: int) -> None:
        mine = parts.setdefault(thread, np.zeros_like(spectrum))
        for chunk in chunks[thread::of]:
            F, G = (scipy.fft.rfft(piece[:, :, chunk], axis=1) for piece in pieces)
            if symmetric:
                F[:, :, [d - chunk.start for d in own if chunk.start <= d < chunk.stop]] *= 0.5
            for i in range(len(F)):
                mine[i] += np.vecdot(F[i], G)

    if kept * s <= TILE:
        share(0, 1)
    else:
        for_each_thread(share)
    for thread in sorted(parts):
        spectrum += 2 * parts[thread]


def _shifted_products(values: list[np.ndarray], rows: Rows) -> np.ndarray:
    """Σᵢ aᵢ bᵢ₊ₜ for every pair of rows of two arrays and every shift t of their bins."""
    (a, b), shape, whole = values, rows.grid.shape, rows.grid.size
    F = scipy.fft.rfft(a[:, :whole].reshape(-1, *shape))
    G = scipy.fft.rfft(b[:, :whole].reshape(-1, *shape))
    moved = scipy.fft.irfft(np.einsum("ajp,bjp->abp", F.conj(), G), n=rows.bins)
    return moved + (a[:, whole:] @ b[:, whole:].T)[..., None]
