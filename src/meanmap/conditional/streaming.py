"""Conditionals by sums over rows: batches, chunks of Dask, and samples too large for memory.

In coordinates everything that a conditional needs is a sum over rows. What needs rows themselves
gets a small random sample of them, and the answers' weights stand on points that span the space of
Y.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from meanmap import checks
from meanmap.arrays import Array, count, epsilon, float_like, full, namespace, to_numpy
from meanmap.conditional.fitting import OperatorSums, StreamedOperator
from meanmap.conditional.operator import Observed, Side
from meanmap.linalg import Spectrum, with_constant
from meanmap.spaces import Space
from meanmap.streams.chunks import Chunks
from meanmap.streams.sums import RowSummary, SpanningPoints, summarize_chunk


@dataclass(frozen=True)
class ConditionalStream:
    """What a conditional keeps of rows that are gone: the same spaces and λ for every batch."""

    spaces: tuple[Space, Space]
    regularization: float
    centered: bool | None
    frame: SpanningPoints  # points that span the space of Y
    seen: RowSummary | None = None

    @classmethod
    def of(
        cls, x: Side, y: Side, regularization: float, centered: bool | None
    ) -> ConditionalStream:
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
        lam = spectrum.sufficient(self.regularization)
        H = spectrum.inverse(lam, rounding=epsilon(self.frame.coordinates))
        H = with_constant(H, mu) if self.centered else H
        rows = self.frame.weights(sums.cross)
        x, y = self.seen.rows.points
        return StreamedOperator(
            self.spaces[0],
            Side(self.spaces[1], self.frame.points, self.frame.coordinates),
            rows,
            xp.ones_like(rows[:, 0]),
            H,
            sums=sums,
            rest=self.frame.weights(nu[:, None])[:, 0] if self.centered is None else None,
            seen=Observed(x, y, full(count(x), 1 / total, float_like(x))),
        )
