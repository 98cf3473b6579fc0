"""Sums over the transitions of a process, in coordinates, and kept apart in folds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from meanmap.arrays import Array, Points, concatenate, count, namespace, spans, take, to_numpy
from meanmap.dynamics.transition import number_rows
from meanmap.spaces import Space

FOLDS = 10  # parts that the sums are kept in: choices and errors are computed from them
TURNS = 4  # stretches of time per fold, so that every fold sees all phases of a slow process
BLOCK = 1 << 13  # transitions whose coordinates are in memory at a time


@dataclass(frozen=True)
class Transitions:
    """Pairs (x, y) of states a lag apart: rows of a record, or two samples row by row."""

    points: Points
    before: np.ndarray  # the row of x
    after: np.ndarray  # the row of y

    @classmethod
    def within(cls, points: Points, lengths: tuple[int, ...], lag: int) -> Transitions:
        """Those of sequences that stand one after the other."""
        ends = np.repeat(np.cumsum(lengths), lengths)
        before = np.flatnonzero(np.arange(len(ends)) + lag < ends)
        return cls(points, before, before + lag)

    @classmethod
    def between(cls, x: Points, y: Points) -> Transitions:
        """Those from each row of a sample to the same row of another."""
        n = count(x)
        return cls(concatenate([x, y]), np.arange(n), np.arange(n) + n)

    def __len__(self) -> int:
        return len(self.before)

    def some(self, most: int) -> Transitions:
        """So many of them at most, evenly spread."""
        if len(self) <= most:
            return self
        kept = np.unique(np.linspace(0, len(self) - 1, most).astype(int))
        rows, places = np.unique(
            np.concatenate([self.before[kept], self.after[kept]]), return_inverse=True
        )
        before, after = places.reshape(2, -1)
        return Transitions(take(self.points, rows), before, after)

    def first_points(self) -> Points:
        """The states x."""
        return take(self.points, self.before)

    def coordinates(self, space: Space) -> Iterator[tuple[slice, Array, Array, Points]]:
        """Stretches of transitions with ψ(x), ψ(y), and y itself."""
        for block in spans(len(self), BLOCK):
            before, after = self.before[block], self.after[block]
            low, high = int(before[0]), int(after[-1]) + 1
            if high - low <= 2 * len(before):  # a stretch of a record: each row once
                psi = space.coordinates(take(self.points, slice(low, high)))
                x, y = take(psi, before - low), take(psi, after - low)
            else:
                x = space.coordinates(take(self.points, before))
                y = space.coordinates(take(self.points, after))
            yield block, x, y, take(self.points, after)


@dataclass(frozen=True)
class TransitionSums:
    """`Σψ(x)ψ(x)ᵀ`, `Σψ(x)ψ(y)ᵀ`, `Σψ(y)ψ(y)ᵀ` and first sums of the transitions in each fold.

    `values` holds y as numbers: `Σψ(x)yᵀ`, with `Σyᵀ` in the last row; no columns for labels.
    """

    counts: np.ndarray  # (FOLDS,)
    xx: np.ndarray  # (FOLDS, r, r)
    xy: np.ndarray
    yy: np.ndarray
    x: np.ndarray  # (FOLDS, r)
    y: np.ndarray
    values: np.ndarray  # (r + 1, q)

    def __add__(self, other: TransitionSums) -> TransitionSums:
        return TransitionSums(
            self.counts + other.counts,
            self.xx + other.xx,
            self.xy + other.xy,
            self.yy + other.yy,
            self.x + other.x,
            self.y + other.y,
            self.values + other.values,
        )

    @classmethod
    def over(
        cls, space: Space, transitions: Transitions, stretch: int, start: int = 0
    ) -> TransitionSums:
        """The sums over transitions, of which `start` others went before.

        Stretches of so many are dealt to the folds in turn.
        """
        r = space.rank_
        counts = np.zeros(FOLDS)
        xx, xy, yy = np.zeros((3, FOLDS, r, r))
        sx, sy = np.zeros((2, FOLDS, r))
        values = np.zeros((r + 1, 0))
        for block, x, y, points in transitions.coordinates(space):
            numbers = number_rows(points)
            if numbers is not None:
                sums = np.vstack([host(x.T @ numbers), host(namespace(x).sum(numbers, axis=0))])
                values = sums if values.shape[1] == 0 else values + sums
            fold = (start + np.arange(block.start, block.stop)) // stretch % FOLDS
            for k in np.unique(fold):
                rows = np.flatnonzero(fold == k)
                a, b = (x, y) if len(rows) == len(fold) else (take(x, rows), take(y, rows))
                counts[k] += len(rows)
                xx[k] += host(a.T @ a)
                xy[k] += host(a.T @ b)
                yy[k] += host(b.T @ b)
                sx[k] += host(namespace(a).sum(a, axis=0))
                sy[k] += host(namespace(b).sum(b, axis=0))
        return cls(counts, xx, xy, yy, sx, sy, values)

    @property
    def total(self) -> int:
        """How many transitions there are."""
        return int(self.counts.sum())

    def moments(self, folds: np.ndarray, reversible: bool) -> TransitionMoments:
        """Means and covariances over some of the folds.

        Those of a reversible process are symmetric in time: every transition counts in both
        directions.
        """
        n = self.counts[folds].sum()
        parts = (self.xx, self.xy, self.yy, self.x, self.y)
        xx, xy, yy, x, y = (part[folds].sum(axis=0) / n for part in parts)
        found = TransitionMoments(x, y, xx, xy, yy)
        return found.symmetric() if reversible else found


def stretch_length(transitions: int) -> int:
    """How many transitions in a row go to one fold."""
    return max(1, transitions // (TURNS * FOLDS))


@dataclass(frozen=True)
class TransitionMoments:
    """E[ψ(x)], E[ψ(y)], E[ψ(x)ψ(x)ᵀ], E[ψ(x)ψ(y)ᵀ] and E[ψ(y)ψ(y)ᵀ]."""

    x: np.ndarray
    y: np.ndarray
    xx: np.ndarray
    xy: np.ndarray
    yy: np.ndarray

    def symmetric(self) -> TransitionMoments:
        """Every transition in both directions."""
        mean, both = (self.x + self.y) / 2, (self.xx + self.yy) / 2
        return TransitionMoments(mean, mean, both, (self.xy + self.xy.T) / 2, both)

    def about(self, x: np.ndarray, y: np.ndarray) -> TransitionMoments:
        """TransitionMoments of ψ(x) and ψ(y) after these are taken off."""
        return TransitionMoments(
            self.x - x,
            self.y - y,
            shift_product(self.xx, self.x, self.x, x, x),
            shift_product(self.xy, self.x, self.y, x, y),
            shift_product(self.yy, self.y, self.y, y, y),
        )


def shift_product(
    product: np.ndarray, a: np.ndarray, b: np.ndarray, u: np.ndarray, v: np.ndarray
) -> np.ndarray:
    """E[(A - u)(B - v)ᵀ] from E[ABᵀ], E[A] and E[B]."""
    return product - np.outer(a, v) - np.outer(u, b) + np.outer(u, v)


def host(array: Array) -> np.ndarray:
    """Sums as NumPy's doubles."""
    return to_numpy(array).astype(np.float64)
