"""Columns of a table: their units, their signs, ratios between them."""

from __future__ import annotations

import numpy as np

from meanmap.arrays import Array, asarray, to_numpy

FAR = 100.0  # times the middle deviation: a number beyond says nothing of the unit of its column


def column_signs(scores: Array) -> Array:
    """1 or -1 a column, such that times it the largest entry is positive and answers repeat."""
    table = to_numpy(scores)
    if not table.size:
        return asarray(np.ones(table.shape[1]), scores)
    largest = table[np.abs(table).argmax(axis=0), np.arange(table.shape[1])]
    return asarray(np.where(largest < 0, -1.0, 1.0), scores)


def positive_ratio(
    top: np.ndarray, bottom: np.ndarray, otherwise: float | np.ndarray
) -> np.ndarray:
    """`top / bottom` where that is positive, something else elsewhere."""
    there = bottom > 0
    return np.where(there, top / np.where(there, bottom, 1.0), otherwise)


def far_cells(columns: np.ndarray, limit: float = FAR) -> np.ndarray:
    """Which numbers lie so many times the middle deviation from the median of their column.

    The middle deviation is the median of those that are not 0, so that a column of many ties and a
    few other values has a scale.
    """
    away = np.abs(columns - np.median(columns, axis=0))
    suspects = np.flatnonzero(away.max(axis=0) > limit * np.median(away, axis=0))
    far = np.zeros(columns.shape, dtype=bool)
    for j in suspects:
        others = away[away[:, j] > 0, j]
        if len(others):
            far[:, j] = away[:, j] > limit * np.median(others)
    return far


def label_indicators(words: np.ndarray) -> tuple[np.ndarray, float]:
    """The distinct labels, and the height of indicators by which two random rows differ by 2.

    In mean square, as they do in a column of numbers of unit variance.
    """
    values, counts = np.unique(words, return_counts=True)
    share = counts / counts.sum()
    differ = 1 - float(share @ share)
    return values, differ**-0.5 if differ > 1e-12 else 0.0


def column_moments(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column, without numbers that lie far from all others.

    A single wrong number, such as 1e30 for a missing one, would otherwise be the deviation of its
    column, in units of which nothing else is left of the column.
    """
    far = far_cells(columns)
    if not far.any():
        return columns.mean(axis=0), columns.std(axis=0)
    kept = np.where(far, np.nan, columns)
    return np.nanmean(kept, axis=0), np.nanstd(kept, axis=0)


def random_ranks(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Ranks between 0 and 1, with ties in random order."""
    order = np.lexsort((rng.random(len(values)), values))
    ranks = np.empty(len(values))
    ranks[order] = (np.arange(len(values)) + 0.5) / len(values)
    return ranks
