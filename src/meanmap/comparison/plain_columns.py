"""Numbers and labels as columns that regressions are made on, and as their targets.

A test of conditional independence does not change if a column is replaced by an increasing function
of it. So numbers become normal scores where they bend a curve, and nothing hangs on their tails.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

from meanmap.arrays import Points
from meanmap.kernels.bandwidths import column_scales
from meanmap.statistics.columns import label_indicators

CLIP, FAR = 4.0, 1e3  # robust standard deviations at which numbers are cut off, if at all
DECILES = 2.563  # standard deviations from the first to the ninth decile of a normal column
LEVELS = 20  # labels of a column that are told apart; rarer ones are one
FLAT = 1e-12  # of a column's size: what varies less is constant


@dataclass(frozen=True, eq=False)
class PlainColumns:
    """The columns of some points: numbers, and labels."""

    numbers: np.ndarray  # (n, d)
    labels: tuple[np.ndarray, ...]  # (n,) each

    @classmethod
    def of(cls, points: Points) -> Self | None:
        """Checked points as columns; None for graphs, matrices and whatever else has none."""
        numbers, labels = [], []
        for part in points if isinstance(points, tuple) else (points,):
            kind = getattr(getattr(part, "dtype", None), "kind", "")
            if getattr(part, "ndim", 0) == 1 and kind in "USObTiu":
                labels.append(np.asarray(part))
            elif getattr(part, "ndim", 0) == 2 and kind in "fiub":
                numbers.append(np.asarray(part, dtype=np.float64))
            elif getattr(part, "ndim", 0) == 2 and kind in "US":
                labels.extend(np.asarray(part).T)
            else:
                return None
        n = len((*numbers, *labels)[0])
        return cls(np.hstack([np.empty((n, 0)), *numbers]), tuple(labels))

    def __len__(self) -> int:
        return len(self.numbers)

    @cached_property
    def units(self) -> np.ndarray:
        """The numbers less their median, in robust standard deviations."""
        if not self.numbers.shape[1]:
            return self.numbers
        away = self.numbers - np.median(self.numbers, axis=0)
        return np.clip(away * (DECILES / column_scales(self.numbers)), -FAR, FAR)

    @cached_property
    def standard(self) -> np.ndarray:
        """The numbers of mean zero and variance one, cut off where they are far."""
        return standardize(np.clip(self.units, -CLIP, CLIP))

    @cached_property
    def tails(self) -> np.ndarray:
        """The numbers as they are, of those columns that are cut off in `standard`."""
        heavy = (abs(self.units) > CLIP).any(axis=0)
        return standardize(self.units[:, heavy])

    @cached_property
    def scores(self) -> np.ndarray:
        """The numbers' normal scores."""
        return normal_scores(self.numbers)

    @cached_property
    def indicators(self) -> np.ndarray:
        """Indicators of labels: a column of labels weighs as much as one of numbers."""
        return np.hstack([np.empty((len(self), 0)), *(indicate(words) for words in self.labels)])

    @property
    def varies(self) -> bool:
        """Whether the rows are not all one."""
        return bool(self.standard.any() or self.indicators.any())

    def targets(self, clip: float) -> np.ndarray:
        """What a regression explains: numbers in robust units, cut off, and indicators."""
        centred = np.clip(self.units, -clip, clip)
        return join_columns(centred - centred.mean(axis=0), self.indicators)


def standardize(columns: np.ndarray) -> np.ndarray:
    """Columns of mean zero and variance one; constant ones become zero."""
    centred = columns - columns.mean(axis=0)
    spread = centred.std(axis=0)
    flat = spread <= FLAT * abs(columns).max(axis=0, initial=0.0)
    return np.where(flat, 0.0, centred / np.where(flat, 1.0, spread))


def normal_scores(columns: np.ndarray) -> np.ndarray:
    """Each column by its ranks, as normal as that is possible; ties share their rank."""
    if not columns.size:
        return columns
    return standardize(ndtri(rankdata(columns, axis=0) / (len(columns) + 1)))


def indicate(words: np.ndarray) -> np.ndarray:
    """Centred indicators of labels, in mean square 1 altogether; none for a constant column."""
    values, places, counts = np.unique(words, return_inverse=True, return_counts=True)
    if len(values) > LEVELS:
        order = np.argsort(-counts, kind="stable")
        number = np.empty(len(values), dtype=int)
        number[order] = np.minimum(np.arange(len(values)), LEVELS - 1)
        places, values = number[places], values[:LEVELS]
    if len(values) == 1:
        return np.empty((len(words), 0))
    found = (places[:, None] == np.arange(len(values))).astype(np.float64)
    height = label_indicators(places)[1]
    found = height * (found - found.mean(axis=0))
    # two labels are one column; of more, all are kept, so that their order is of no account
    return np.sqrt(2.0) * found[:, 1:] if len(values) == 2 else found


def join_columns(*parts: Any) -> np.ndarray:
    """Arrays of columns side by side."""
    return (
        np.hstack([part for part in parts if part.shape[1]])
        if any(part.shape[1] for part in parts)
        else parts[0][:, :0]
    )
