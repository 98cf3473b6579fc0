"""Conditionals by sums over rows: batches, chunks of Dask, and samples too large for memory.

In coordinates everything that a conditional needs is a sum over rows. What needs rows themselves
gets a small random sample of them, and the answers' weights stand on points that span the space of
Y.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Array, count, float_like, namespace, take, to_numpy
from meanmap.conditional.operator import ConditionalOperator, Functional, Side
from meanmap.conditional.pairs import Pairs
from meanmap.conditional.selection import RegressionSample, Solved, inverse_from_moments
from meanmap.embeddings import Deferred, numeric
from meanmap.kernels import Kernel
from meanmap.linalg import Spectrum, with_constant
from meanmap.spaces import Space
from meanmap.spaces.space import fit_space_moments
from meanmap.streams.chunks import Chunks
from meanmap.streams.sums import RowSummary, SpanningPoints, summarize_chunk, value_columns

LOOKED = 2000  # rows that λ is chosen on


class StreamedOperator(ConditionalOperator):
    """A conditional known by sums over rows that are gone, or too many to keep.

    Where they are gone its atoms span the target's space; the means come from sums of their own.
    """

    def __init__(self, *arguments: Any, sums: OperatorSums, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._sums = sums

    @cached_property
    def mass(self) -> Array:
        mu = self._sums.x
        return self.with_constant(mu, mu[0] * 0 + 1) @ self.inverse

    @cached_property
    def _rest_coordinates(self) -> Array:
        return self._sums.y

    @cached_property
    def matrix(self) -> Array:
        return self._sums.cross @ self.inverse

    @cached_property
    def _means(self) -> list[Functional]:
        parts = self.atoms if isinstance(self.atoms, tuple) else (self.atoms,)
        middles = self._sums.middles or [None] * len(parts)
        return [
            Functional(self, numeric(part), sums @ self.inverse, middle)
            for part, sums, middle in zip(parts, self._sums.moments, middles, strict=True)
        ]


@dataclass(frozen=True)
class OperatorSums:
    """Sums over rows, over the total weight, as a conditional uses them."""

    x: Array  # μ = Σ w ψ(x)
    y: Array  # ν = Σ w φ(y)
    cross: Array  # C_YX; with an intercept its last column is ν
    moments: list[Array]  # Σ w (y - c) ψ(x)ᵀ for each variable of Y
    middles: list[Array] | None  # c, the mean of y; None where it is 0

    @classmethod
    def of(
        cls,
        means: tuple[Array, Array],
        cross: Array,
        moments: list[Array],
        middles: Sequence[Array],
        centered: bool | None,
    ) -> OperatorSums:
        """From sums of y itself, which are taken about its mean unless nothing is centred."""
        mu, nu = means
        xp = namespace(cross)
        if centered is False:
            return cls(mu, nu, cross, moments, None)
        found = [m - c[:, None] * mu[None, :] for m, c in zip(moments, middles, strict=True)]
        if centered:
            cross = xp.concat([cross, nu[:, None]], axis=1)
            found = [xp.concat([m, xp.zeros_like(m[:, :1])], axis=1) for m in found]
        return cls(mu, nu, cross, found, list(middles))


def fit_large(
    pairs: Pairs,
    kernel: Kernel,
    y: Side,
    norms: Array,
    regularization: float | str,
    centered: bool | None,
) -> tuple[Side, Solved, StreamedOperator]:
    """The fit without the sample's coordinates on X, which would be too many to keep."""
    w, psi_y = pairs.w, y.known
    xp = namespace(psi_y)
    columns = [psi_y, xp.ones_like(psi_y[:, :1]), *value_columns(pairs.y)]
    ends = np.cumsum([column.shape[1] for column in columns])
    values = xp.concat(columns, axis=1)
    space, C, B = fit_space_moments(kernel, pairs.bases[0], pairs.x, w, values)
    cross, mu, nu = B[: ends[0]], B[ends[0]], w @ psi_y
    size = min(count(pairs.x), LOOKED if isinstance(regularization, str) else 1)
    some = np.linspace(0, count(pairs.x) - 1, size).astype(int)
    rows = space.coordinates(take(pairs.x, some))
    sample = RegressionSample(rows, *(take(part, some) for part in (psi_y, w, norms)))
    nested = space.map_.nested
    solved = inverse_from_moments(C, cross, (mu, nu), sample, regularization, centered, nested)
    moments = [B[i:j] for i, j in pairwise(ends[1:])]
    middles = [w @ column for column in columns[2:]]
    operator = StreamedOperator(
        space,
        y,
        Deferred(space, pairs.x, bool(centered)),
        w,
        solved.inverse,
        sums=OperatorSums.of((mu, nu), cross, moments, middles, centered),
        regularization=solved.regularization,
        rest=w if centered is None else None,
    )
    return Side(space, pairs.x, Deferred(space, pairs.x)), solved, operator


@dataclass(frozen=True)
class ConditionalStream:
    """What a conditional keeps of rows that are gone: the same spaces and λ for every batch."""

    spaces: tuple[Space, Space]
    regularization: float
    centered: bool | None
    frame: SpanningPoints  # points that span the space of Y
    seen: RowSummary | None = None

    @classmethod
    def of(cls, x: Side, y: Side, regularization: float, centered: bool | None) -> Any:
        """An empty stream in the spaces of a fit."""
        frame = SpanningPoints.of(y.space, y.points)
        return cls((x.space, y.space), regularization, centered, frame)

    def with_rows(self, x: Side, y: Side, weights: Array) -> ConditionalStream:
        """The rows of a fit added, each with the weight that it came with."""
        return self + RowSummary.of(x.points, y.points, to_numpy(weights), self.spaces, seed=0)

    def with_chunks(self, chunks: Chunks, kernel_y: Any) -> ConditionalStream:
        """Every chunk of a collection added."""
        return self + chunks.reduce(summarize_chunk, *self.spaces, kernel_y, self.batches)

    @property
    def batches(self) -> int:
        """How many batches there were."""
        return 0 if self.seen is None else self.seen.batches

    def __add__(self, new: RowSummary) -> ConditionalStream:
        seen = new if self.seen is None else self.seen + new
        return replace(self, seen=seen, frame=self.frame.extend(self.spaces[1], new.rows.points[1]))

    def merge(self, other: ConditionalStream) -> ConditionalStream:
        """What another stream in the same spaces has seen added."""
        assert other.seen is not None
        frame = self.frame.extend(self.spaces[1], other.frame.points)
        return replace(self, frame=frame) + other.seen

    def sides(self) -> tuple[Side, Side, Array]:
        """Some of the rows, for rules that need rows, and their equal weights."""
        assert self.seen is not None
        x, y = (
            Side(space, points, space.coordinates(points))
            for space, points in zip(self.spaces, self.seen.rows.points, strict=True)
        )
        return x, y, checks.weights(None, x.points, float_like(x.points))

    def operator(self) -> StreamedOperator:
        """The conditional of all rows so far."""
        assert self.seen is not None
        seen = self.seen.sums
        xp, total = namespace(seen.xx), seen.total
        mu, nu = seen.x / total, seen.y / total
        sums = OperatorSums.of(
            (mu, nu),
            seen.yx / total,
            [m[:, :-1] / total for m in seen.moments],
            [m[:, -1] / total for m in seen.moments],
            self.centered,
        )
        C_XX = seen.xx / total - (mu[:, None] * mu[None, :] if self.centered else 0)
        spectrum = Spectrum.of(C_XX)
        H = spectrum.inverse(spectrum.sufficient(self.regularization))
        rows = self.frame.weights(sums.cross)
        return StreamedOperator(
            self.spaces[0],
            Side(self.spaces[1], self.frame.points, self.frame.coordinates),
            rows,
            xp.ones_like(rows[:, 0]),
            with_constant(H, mu) if self.centered else H,
            sums=sums,
            rest=self.frame.weights(nu[:, None])[:, 0] if self.centered is None else None,
        )
