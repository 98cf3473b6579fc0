"""One look at all rows, after as many as were declared before the first one.

Bets pay for the freedom to look at any time. Where the end of a stream is known, one look there
costs little: the bets have a share of alpha, this look the rest, and the sum is what was promised.
The look compares cross-moments of features with those after rearrangements of rows in small blocks,
which the null hypothesis allows. Features and directions are chosen on a first block of rows, in a
way that does not depend on their order, so that the p-value is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from meanmap.arrays import spans

BETS = 0.2  # of alpha; the look has the rest
DRAWS = 999  # rearrangements, or …
FINE = 20  # … so many over alpha
WHITENED, PLAIN = 0.03, 1e6  # of the largest variance: how far small directions are left small
DIRECTIONS = 16  # of each variable
ROWS = 1 << 12  # at a time

Pairs = Sequence[tuple[np.ndarray, np.ndarray]]


def rank_pairs(
    features: Callable[[slice], Pairs], rows: int, length: int, draws: int, rng: np.random.Generator
) -> float:
    """The p-value of pairs of features as they are, among rearrangements in blocks of rows."""
    axes: list[list[np.ndarray]] = []
    totals: list[np.ndarray] = []
    for part in spans(rows, max(ROWS // length, 1) * length):
        views = [[_centre_blocks(one, length) for one in pair] for pair in features(part)]
        asked = [(views[0], PLAIN), *((pair, WHITENED) for pair in views)]
        axes = axes or [[find_directions(one, ridge) for one in pair] for pair, ridge in asked]
        labels = np.arange(part.stop - part.start) // length
        orders = np.argsort(labels + rng.random((draws + 1, len(labels))), axis=1)
        orders[0] = np.arange(len(labels))
        sides = [
            [one @ axis for one, axis in zip(pair, own, strict=True)]
            for (pair, _), own in zip(asked, axes, strict=True)
        ]
        found = [np.array([x.T @ y[order] for order in orders]) for x, y in sides]
        totals = [a + b for a, b in zip(totals, found, strict=True)] if totals else found
    return combine_ranks([np.sum(total**2, axis=(1, 2)) for total in totals])


def find_directions(rows: np.ndarray, ridge: float) -> np.ndarray:
    """The largest directions of features, on a common scale as far as the ridge allows."""
    values, axes = np.linalg.eigh(rows.T @ rows)
    values = np.maximum(values[-DIRECTIONS:], 0)
    return axes[:, -DIRECTIONS:] / np.sqrt(values + ridge * max(values[-1], 1e-300))


def combine_ranks(statistics: Sequence[np.ndarray]) -> float:
    """The p-value of the first entry, by the harmonic mean of the p-values of all statistics."""
    total = np.zeros(len(statistics[0]))
    for values in statistics:
        rounded = np.round(values / max(values.max(), 1e-300), 9)  # ties are ties
        total += len(rounded) / (len(rounded) - np.searchsorted(np.sort(rounded), rounded))
    return float(np.mean(total >= total[0] * (1 - 1e-12)))


def _centre_blocks(rows: np.ndarray, length: int) -> np.ndarray:
    starts = np.arange(0, len(rows), length)
    sizes = np.diff(starts, append=len(rows))
    return rows - np.repeat(np.add.reduceat(rows, starts, axis=0) / sizes[:, None], sizes, axis=0)
