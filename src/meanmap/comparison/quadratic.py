"""Quadratic forms zᵀMz in a Hadamard product M = (AAᵀ) ∘ (BBᵀ), which is never stored.

The null distribution of a sum Σᵢ aᵢ ⊗ bᵢ of products with mean zero, once each is multiplied by
a random zᵢ: ‖Σᵢ zᵢ aᵢ ⊗ bᵢ‖² = zᵀMz. There are two ways to sum it, over tiles of M, O(n²(p + q)),
and over the products aᵢ ⊗ bᵢ, O(n(pq)²) or O(npq) a draw; the cheaper one is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from meanmap.arrays import TILE, for_each_thread, spans
from meanmap.comparison.methods import NullMethod
from meanmap.comparison.nulls import ResidualGamma, ResidualNormals, ResidualSigns
from meanmap.comparison.results import Draws, GammaNull, Null
from meanmap.statistics.tiles import Buffers, ThreadSums, for_each_tile

TOGETHER = 1 << 25  # multipliers zᵢ that are held at once
PRODUCTS = 1 << 12  # up to so many products aᵢ ⊗ bᵢ their r × r moments are held


@dataclass(frozen=True, eq=False)
class Hadamard:
    """M = (AAᵀ) ∘ (BBᵀ) for rows A (n × p) and B (n × q)."""

    A: np.ndarray
    B: np.ndarray

    @property
    def diagonal(self) -> np.ndarray:
        """Mᵢᵢ = ‖aᵢ‖² ‖bᵢ‖²."""
        A, B = self.A, self.B
        return np.einsum("ij,ij->i", A, A) * np.einsum("ij,ij->i", B, B)

    @cached_property
    def trace(self) -> float:
        """The mean of zᵀMz for independent z of variance one."""
        return float(self.diagonal.sum())

    @property
    def _sizes(self) -> tuple[int, int, int]:
        return len(self.A), self.A.shape[1], self.B.shape[1]

    @cached_property
    def squares(self) -> float:
        """‖M‖²: half the variance of zᵀMz for normal z."""
        n, p, q = self._sizes
        if p * q <= PRODUCTS and p * q * p * q <= n * (p + q) / 2:
            return self._squares_of_products()
        return self._squares_of_tiles()

    def _squares_of_tiles(self) -> float:
        sums, buffers = ThreadSums((1,)), Buffers(self.A, 2)

        def work(thread: int, rows: slice, columns: slice) -> None:
            flat = self._tile(buffers, thread, rows, columns).ravel()
            sums.of(thread)[0] += (1 if rows == columns else 2) * (flat @ flat)

        for_each_tile(len(self.A), work)
        return float(sums.total()[0][0])

    def _squares_of_products(self) -> float:
        size = self.A.shape[1] * self.B.shape[1]
        sums = ThreadSums((size, size))

        def work(thread: int, block: slice) -> None:
            rows = self._products(block)
            sums.of(thread)[0] += rows.T @ rows

        self._for_each_block(work)
        return float(np.sum(sums.total()[0] ** 2))

    def _tile(self, buffers: Buffers, thread: int, rows: slice, columns: slice) -> np.ndarray:
        left, right = buffers.of(thread, rows, columns)
        np.matmul(self.A[rows], self.A[columns].T, out=left)
        np.matmul(self.B[rows], self.B[columns].T, out=right)
        left *= right
        return left

    def _products(self, block: slice) -> np.ndarray:
        """aᵢ ⊗ bᵢ as rows."""
        a, b = self.A[block], self.B[block]
        return (a[:, :, None] * b[:, None, :]).reshape(len(a), -1)

    def _for_each_block(self, work: object) -> None:
        n, p, q = self._sizes
        blocks = list(spans(n, max(64, TILE // max(p * q, 1))))

        def share(thread: int, of: int) -> None:
            for block in blocks[thread::of]:
                work(thread, block)  # type: ignore[operator]

        if len(blocks) == 1:
            share(0, 1)
        else:
            for_each_thread(share)

    # --- draws --------------------------------------------------------------------------------

    def draws(self, how_many: int, multipliers: str, rng: np.random.Generator) -> np.ndarray:
        """zᵀMz for random z: "normal", or "signs", which leave Σ Mᵢᵢ as it is."""
        n, p, q = self._sizes
        by_products = 2 * p * q * how_many <= n * (p + q + how_many)
        out = []
        for part in spans(how_many, max(32, TOGETHER // n)):
            size = n, part.stop - part.start
            if multipliers == "signs":
                z = 2.0 * rng.integers(0, 2, size=size, dtype=np.int8) - 1
            else:
                z = rng.normal(size=size)
            out.append(self._by_products(z) if by_products else self._by_tiles(z))
        return np.concatenate(out)

    def _by_products(self, z: np.ndarray) -> np.ndarray:
        sums = ThreadSums((self.A.shape[1] * self.B.shape[1], z.shape[1]))

        def work(thread: int, block: slice) -> None:
            sums.of(thread)[0] += self._products(block).T @ z[block]

        self._for_each_block(work)
        total = sums.total()[0]
        return np.einsum("ij,ij->j", total, total)

    def _by_tiles(self, z: np.ndarray) -> np.ndarray:
        sums, buffers = ThreadSums((z.shape[1],)), Buffers(self.A, 2)

        def work(thread: int, rows: slice, columns: slice) -> None:
            tile = self._tile(buffers, thread, rows, columns)
            form = np.einsum("ij,ij->j", z[rows], tile @ z[columns])
            sums.of(thread)[0] += (1 if rows == columns else 2) * form

        for_each_tile(len(self.A), work)
        return sums.total()[0]

    def gamma(self, how_many: int, rng: np.random.Generator, scale: float = 1.0) -> Null:
        """A gamma distribution with the moments of `scale` zᵀMz for normal z."""
        return GammaNull("gamma", scale * self.trace, 2 * scale**2 * self.squares)

    def signs(self, how_many: int, rng: np.random.Generator, scale: float = 1.0) -> Null:
        """Draws of `scale` zᵀMz with random signs z."""
        values = scale * self.draws(how_many, "signs", rng)
        return Draws("wild bootstrap", values, scale * self.trace)

    def normals(self, how_many: int, rng: np.random.Generator, scale: float = 1.0) -> Null:
        """Draws of `scale` zᵀMz with normal z."""
        return Draws("simulated", scale * self.draws(how_many, "normal", rng), scale * self.trace)


#: Of a form in the noise that regressions leave.
FORM_NULLS = {
    "wild": NullMethod(ResidualSigns, Hadamard.signs),
    "gamma": NullMethod(ResidualGamma, Hadamard.gamma),
    "simulation": NullMethod(ResidualNormals, Hadamard.normals),
}
