"""Conditional distributions from files that are read in batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap.cli.tables import Coding, Table, TableRows

Levels = tuple[float, ...]
Answers = Callable[[Any], dict[str, Any]]

RANK = 300  # coordinates of the columns that are given
THRESHOLDS = 200  # values at which the distribution function is estimated


def model_in_batches(
    table: Table,
    sample: TableRows,
    coding: Coding,
    asked: list[str],
    levels: Levels,
    progress: bool | None,
) -> tuple[Any, Answers]:
    """A model of a file in batches, and a function that gives its answers at points.

    Kernels, coordinates and λ come from a model of a sample of the file. All rows then give the
    conditional expectations of the residuals from that model's mean, of their squares, and of
    whether they are below each of many thresholds.
    """
    from meanmap import ConditionalEmbedding
    from meanmap.kernels import Linear
    from meanmap.spaces import Explicit, PivotedCholesky
    from meanmap.streams import feed

    basis = PivotedCholesky(1e-6, max_rank=RANK)
    target = Coding.of([sample], asked, False)
    first = ConditionalEmbedding(basis=(basis, None)).fit(coding(sample), target(sample))
    functions = Functions.of(sample, asked, coding(sample), first)
    model = ConditionalEmbedding(
        first.kernel_x_, Linear(), first.regularization_, (first.space_x_, Explicit())
    )
    batches = table.batches([*coding.columns, *asked], sample.kinds)
    parts = ((rows, coding(rows)) for rows in batches if len(rows.frame))
    feed(model, ((points, functions(rows, points)) for rows, points in parts), progress=progress)

    def answers(points: Any) -> dict[str, Any]:
        return functions.answers(points, np.asarray(model.predict(points)), levels)

    return first, answers


@dataclass(frozen=True, eq=False)
class Functions:
    """Functions of columns whose expectations determine their distribution.

    `thresholds` are those of each column's residuals, or its labels.
    """

    base: Any
    thresholds: dict[str, np.ndarray]
    of_labels: bool

    @classmethod
    def of(cls, sample: TableRows, asked: list[str], points: Any, base: Any) -> Functions:
        """From a sample and its model."""
        if sample.kinds[asked[0]] == "label":
            labels = np.unique(sample.frame[asked[0]].to_numpy(dtype=str))
            return cls(None, {asked[0]: labels}, True)
        off = sample.frame[asked].to_numpy(dtype=float) - np.asarray(base.predict(points))
        grid = np.linspace(0, 1, THRESHOLDS)
        at = {c: np.unique(np.quantile(off[:, i], grid)) for i, c in enumerate(asked)}
        return cls(base, at, False)

    def __call__(self, rows: TableRows, points: Any) -> np.ndarray:
        """The values of the functions, one row per row; the first is 1."""
        parts = [np.ones((len(rows.frame), 1))]
        if self.of_labels:
            ((column, labels),) = self.thresholds.items()
            words = rows.frame[column].to_numpy(dtype=str)
            return np.hstack([*parts, (words[:, None] == labels[None, :]).astype(float)])
        base = np.asarray(self.base.predict(points))
        for i, (column, at) in enumerate(self.thresholds.items()):
            off = rows.frame[[column]].to_numpy(dtype=float) - base[:, i : i + 1]
            parts += [off, off * off, (off <= at[None, :]).astype(float)]
        return np.hstack(parts)

    def answers(self, points: Any, expected: np.ndarray, levels: Levels) -> dict[str, Any]:
        """The figures of the columns at points, from expectations."""
        mass = expected[:, :1]
        # nothing is known where the weights of the rows sum to zero
        values = expected[:, 1:] / np.where(mass > 1e-6, mass, np.nan)
        if self.of_labels:
            ((column, labels),) = self.thresholds.items()
            return probability_columns(column, labels, values)
        base = np.asarray(self.base.predict(points))
        out: dict[str, Any] = {}
        for i, (column, at) in enumerate(self.thresholds.items()):
            first, second, below = values[:, 0], values[:, 1], values[:, 2 : 2 + len(at)]
            values = values[:, 2 + len(at) :]
            out[f"{column} mean"] = base[:, i] + first
            variance = second - first**2  # an estimate, unknown where it is not positive
            out[f"{column} std"] = np.sqrt(np.where(variance > 0, variance, np.nan))
            # estimated probabilities need not be monotone: the mean of two monotone versions
            rising = np.maximum.accumulate(below, axis=1)
            falling = np.minimum.accumulate(below[:, ::-1], axis=1)[:, ::-1]
            shape = np.clip((rising + falling) / 2, 0.0, 1.0)
            for q in levels:
                ends = np.array([np.interp(q, row, at) for row in shape])
                out[f"{column} {q:g}"] = base[:, i] + ends
        return out


def probability_columns(asked: str, labels: np.ndarray, values: np.ndarray) -> dict[str, Any]:
    """The probability of each label, and the most likely one."""
    found = np.maximum(np.nan_to_num(np.asarray(values)), 0.0)
    total = found.sum(axis=1, keepdims=True)
    found = np.where(total > 0, found / np.where(total > 0, total, 1), 1 / len(labels))
    out: dict[str, Any] = {f"{asked} mode": labels[found.argmax(axis=1)]}
    return out | {f"P({asked}={label})": found[:, i] for i, label in enumerate(labels)}
