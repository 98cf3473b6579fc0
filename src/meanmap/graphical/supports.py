"""The values that represent a variable of a random field.

Products of messages are computed at these values. Single numbers without a named kernel have a
grid, as fine as the kernel resolves: half of it at quantiles of the data, half evenly spaced.
Between its values messages are interpolated linearly, so that every row of the data is used. Other
variables are represented by a random sample of their values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from meanmap.arrays import Array, Points, asarray, assign, namespace, take, to_numpy

FINE = 4  # values of a grid for each coordinate of the kernel
FEWEST = 50  # the smallest grid


@dataclass(frozen=True, eq=False)
class CellSupport:
    """Some of the values themselves."""

    cells: np.ndarray  # their numbers, in order

    def points(self, values: Points) -> Points:
        """The values that represent all."""
        return take(values, self.cells)

    def weights(self, weights: np.ndarray) -> np.ndarray:
        """Their weights, of sum one, given those of all values."""
        chosen = weights[self.cells]
        return np.asarray(chosen / chosen.sum())

    def rows_of(self, at: np.ndarray) -> np.ndarray:
        """The pairs whose value is one of them, given the numbers of the pairs' values."""
        return np.flatnonzero(self.cells[self._place(at)] == at)

    def gather(self, parts: Array, at: np.ndarray) -> Array:
        """The sum of the rows that belong to each value."""
        return sum_cells(parts, self._place(at), len(self.cells))

    def _place(self, at: np.ndarray) -> np.ndarray:
        return np.minimum(np.searchsorted(self.cells, at), len(self.cells) - 1)


@dataclass(frozen=True, eq=False)
class GridSupport:
    """A grid of numbers, with linear interpolation between them."""

    grid: np.ndarray  # (m,)
    left: np.ndarray  # (n,), the grid point before each value
    share: np.ndarray  # (n,), how far it is towards the next, from 0 to 1

    @classmethod
    def of(cls, values: Points, weights: np.ndarray, size: int) -> GridSupport:
        """A grid of about `size` values, from the smallest value to the largest."""
        x = to_numpy(values).astype(np.float64)[:, 0]
        order = np.argsort(x, kind="stable")
        F = np.cumsum(weights[order])
        levels = np.linspace(0, F[-1], -(-size // 2))
        at = np.minimum(np.searchsorted(F, levels), len(x) - 1)
        even = np.linspace(x.min(), x.max(), size // 2)
        grid = np.unique(np.concatenate([x[order][at], even]))
        left = np.clip(np.searchsorted(grid, x, side="right") - 1, 0, max(len(grid) - 2, 0))
        step = np.diff(grid)[left] if len(grid) > 1 else np.ones_like(x)
        return cls(grid, left, (x - grid[left]) / step)

    def points(self, values: Points) -> Points:
        """The values that represent all."""
        return asarray(self.grid[:, None], values)

    def weights(self, weights: np.ndarray) -> np.ndarray:
        """Their weights, of sum one, given those of all values."""
        found = self._lines(np.arange(len(self.left))) @ weights
        return np.asarray(found / found.sum())

    def rows_of(self, at: np.ndarray) -> np.ndarray:
        """All pairs."""
        return np.arange(len(at))

    def gather(self, parts: Array, at: np.ndarray) -> Array:
        """The sum of the rows, each shared between the neighbours of its value on the grid."""
        return asarray(self._lines(at) @ to_numpy(parts), parts)

    def _lines(self, at: np.ndarray) -> Any:
        """The share of each value of the grid in the values with these numbers, (m, len(at))."""
        left, share, columns = self.left[at], self.share[at], np.arange(len(at))
        right = np.minimum(left + 1, len(self.grid) - 1)
        rows = np.concatenate([left, right])
        both = np.concatenate([1 - share, share]), (rows, np.concatenate([columns, columns]))
        return csr_array(both, shape=(len(self.grid), len(at)))


def sum_cells(parts: Array, at: np.ndarray, m: int) -> Array:
    """The sum of the rows that belong to each cell, zero for an empty cell."""
    if len(at) == m and (at == np.arange(m)).all():
        return parts
    if not len(at):
        return asarray(np.zeros((m, parts.shape[1])), parts)
    order = np.argsort(at, kind="stable")
    cells, first, many = np.unique(at[order], return_index=True, return_counts=True)
    found = namespace(parts).zeros_like(take(parts, np.zeros(m, dtype=int)))
    for k in range(int(many.max())):
        has = many > k
        rows = asarray(cells[has], parts, dtype=namespace(parts).int64)
        found = assign(found, rows, found[rows] + take(parts, order[first[has] + k]))
    return found


Support = CellSupport | GridSupport
