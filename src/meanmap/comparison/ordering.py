"""Do the rows of a sample look as if their order meant something?

Permutations take rows for exchangeable. In a time series neighbouring rows are more alike than
others, and a trend makes the first rows unlike the last. Both are looked for in ranks, column by
column, in O(n log n).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import special
from scipy.stats import rankdata

from meanmap.arrays import Points, count, take, to_numpy
from meanmap.exceptions import DataWarning, warn

ALARM = 5e-4  # the share of exchangeable samples that is taken for ordered, at most
ROWS = 10_000  # that are looked at
COLUMNS = 50  # likewise, and labels of each column of these
FEWEST = 20  # rows, and occasions on which a column leaves its usual value (half as many)


BLOCKS = 'use null="block" or null=Groups(labels), and take out a trend first'
PAIRS = 'test pairs of variables by independence_test with null="block"'


def note_on_samples(samples: Sequence[tuple[str, Points]]) -> list[str]:
    """What there is to say if rows of one or several samples look ordered."""
    ordered = [name for name, points in samples if looks_ordered(points)]
    return [_words(ordered, "the p-value is too small", BLOCKS)] if ordered else []


def note_on_variables(variables: Sequence[tuple[str, Points]], remedy: str = BLOCKS) -> list[str]:
    """The same of variables: one whose rows are exchangeable may be permuted against any other."""
    ordered = [name for name, points in variables if looks_ordered(points)]
    if len(ordered) < 2:
        return []
    return [_words(ordered, "unrelated variables seem to depend on each other", remedy)]


def warn_if_significant(notes: list[str], pvalue: float, level: float = 0.05) -> None:
    """Warn the caller of a test if the order of rows may be what a small p-value is owed to."""
    if notes and pvalue <= level:
        warn(notes[0], DataWarning)


def _words(names: list[str], consequence: str, remedy: str) -> str:
    return (
        f"Rows look ordered: neighbouring rows of {', '.join(names)} are more alike than rows in "
        "random order (a time series, a trend, or a table sorted by a column). If the order is "
        f"that of time or of clusters, {consequence}: {remedy}."
    )


def looks_ordered(points: Points) -> bool:
    """Whether neighbouring rows are more alike than chance allows, or a column has a trend."""
    n = count(points)
    if n < FEWEST:
        return False
    rows = min(n, ROWS)
    near = _scores(take(points, slice(0, rows)))
    far = near if rows == n else _scores(take(points, np.linspace(0, n - 1, rows).astype(int)))
    pvalues = np.concatenate([_neighbours(near), _trend(far)])
    return bool(pvalues.size and pvalues.min() * pvalues.size <= ALARM)


def _neighbours(ranks: np.ndarray) -> np.ndarray:
    """P-values of the lag-one autocorrelation of columns under permutations of their rows.

    It has the mean -1/n and the variance 1/n. Its skewness, that of the column squared and over √n,
    counts where values are rare; kurtosis less one, which is at least as large, bounds it.
    """
    n = len(ranks)
    squares = ranks * ranks
    variance = np.mean(squares, axis=0)
    excess = np.mean(squares * squares, axis=0) / variance**2 - 1
    usual = excess <= 2 * n / FEWEST
    r = np.sum(ranks[1:] * ranks[:-1], axis=0) / (n * variance)
    z = (r + 1 / n) * n**0.5
    # a gamma distribution of this skewness, moved to mean 0 and variance 1
    shape = 4 * n / excess[usual].clip(1e-6) ** 2
    return special.gammaincc(shape, (shape + shape**0.5 * z[usual]).clip(0.0))


def _trend(ranks: np.ndarray) -> np.ndarray:
    """P-values of the rank correlation of columns with the number of the row."""
    n = len(ranks)
    time = np.arange(n) - (n - 1) / 2
    r = time @ ranks / np.sqrt(np.sum(time**2) * np.sum(ranks**2, axis=0))
    return 2 * special.ndtr(-np.abs(r) * (n - 1) ** 0.5)


def _scores(points: Any) -> np.ndarray:
    """Columns of centred ranks; labels have an indicator of each frequent value."""
    parts = [_of_array(part) for part in (points if isinstance(points, tuple) else (points,))]
    scores = np.concatenate(parts, axis=1)
    return scores[:, np.any(scores != 0, axis=0)]


def column_ranks(columns: np.ndarray) -> np.ndarray:
    """The rank of each number in its column, from 1; equal ones share the mean of theirs."""
    ranks, places = np.empty(columns.shape), np.arange(1.0, len(columns) + 1)
    for j, column in enumerate(np.ascontiguousarray(columns.T)):
        order = np.argsort(column)  # where none are equal any sort does, and this one is fast
        ordered = column[order]
        if not (ordered[1:] > ordered[:-1]).all():
            return np.asarray(rankdata(columns, axis=0))
        ranks[order, j] = places
    return ranks


def _of_array(points: Any) -> np.ndarray:
    array = to_numpy(points)
    n = len(array)
    if array.dtype.kind == "f":
        columns = array.reshape(n, -1)
        if columns.shape[1] > COLUMNS:
            chosen = np.linspace(0, columns.shape[1] - 1, COLUMNS).astype(int)
            columns = columns[:, chosen]
        ranks = column_ranks(columns)
        return ranks - ranks.mean(axis=0)
    if array.ndim != 1 or array.dtype.kind not in "biuUS":
        return np.empty((n, 0))
    _, codes, counts = np.unique(array, return_inverse=True, return_counts=True)
    frequent = np.argsort(-counts, kind="stable")[:COLUMNS]
    indicators = (codes[:, None] == frequent[counts[frequent] >= FEWEST / 2]).astype(float)
    return indicators - indicators.mean(axis=0)
