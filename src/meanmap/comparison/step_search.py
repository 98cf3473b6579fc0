"""Jumps in single columns, found one after the other: steps that no smooth curve follows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MOST = 40  # steps that are looked for
LEAST = 4  # rows on each side of a step
SURPRISE = 2.0  # times the logarithm of how many steps there could be: what one must explain
HEIGHT = 2.0  # of a step as a column, so that it is hardly shrunk beside the others


@dataclass(frozen=True, eq=False)
class ColumnSteps:
    """Columns and thresholds: rows are indicators of being above."""

    columns: np.ndarray
    thresholds: np.ndarray

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return HEIGHT * (values[:, self.columns] > self.thresholds)

    def __len__(self) -> int:
        return len(self.columns)


def find_steps(values: np.ndarray, targets: np.ndarray, beside: np.ndarray) -> ColumnSteps:
    """ColumnSteps in columns of values that explain the targets best, beside other rows.

    One at a time (orthogonal matching pursuit), each the best of all thresholds of all columns,
    until one explains no more than chance would: the least squares gain of a step in noise is a
    chi-square variable, and the largest of many about twice the logarithm of their number.
    """
    n, d = values.shape
    order = np.argsort(values, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    possible = np.diff(ordered, axis=0) > 0
    possible[: LEAST - 1] = possible[n - LEAST :] = False
    if not possible.any():
        return ColumnSteps(np.empty(0, dtype=int), np.empty(0))
    bar = SURPRISE * np.log(possible.sum()) + targets.shape[1]
    above = np.arange(1, n)[:, None]
    known = np.hstack([np.ones((n, 1)), beside])
    vectors, sizes, _ = np.linalg.svd(known, full_matrices=False)
    Q = vectors[:, sizes > 1e-8 * sizes[0]]
    left = targets - Q @ (Q.T @ targets)
    # ‖(I - QQᵀ) s‖² of every step s
    free = np.repeat(above * 1.0, d, axis=1)
    for q in Q.T:
        free -= np.cumsum(q[order], axis=0)[:-1] ** 2
    columns, thresholds = [], []
    for _ in range(min(MOST, n // 5)):
        along = sum(np.cumsum(t[order], axis=0)[:-1] ** 2 for t in left.T)
        gain = np.where(possible & (free > 1e-3 * np.minimum(above, n - above)), along, 0.0)
        gain /= np.maximum(free, 1e-300)
        k, j = np.unravel_index(int(np.argmax(gain)), gain.shape)
        spare = n - Q.shape[1] - 1
        noise = float(np.sum(left * left)) - gain[k, j]
        if spare < n // 3 or gain[k, j] * spare * targets.shape[1] <= bar * noise:
            break
        columns.append(int(j))
        thresholds.append((ordered[k, j] + ordered[k + 1, j]) / 2)
        step = (values[:, j] > thresholds[-1]) * 1.0
        q = step - Q @ (Q.T @ step)
        q -= Q @ (Q.T @ q)
        q /= np.linalg.norm(q)
        Q = np.hstack([Q, q[:, None]])
        left -= q[:, None] * (q @ left)
        free -= np.cumsum(q[order], axis=0)[:-1] ** 2
        possible[max(k - 1, 0) : k + 2, j] = False
    return ColumnSteps(np.array(columns, dtype=int), np.array(thresholds))
