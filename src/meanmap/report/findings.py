"""Which columns differ, how much and where."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meanmap.arrays import Points, concatenate, take
from meanmap.comparison import conditional_two_sample_test, two_sample_test
from meanmap.kernels import Gaussian, Kernel
from meanmap.report.samples import ColumnPair, Samples, Targets, rank_columns, row_coordinates
from meanmap.statistics.columns import column_moments, far_cells
from meanmap.statistics.weighted import mean_at, relative_distance

GRID = 200
FEW = 10  # distinct numbers that are described one by one


@dataclass(frozen=True)
class Finding:
    """A test, with its p-value alone and corrected for all tests of the report (Holm)."""

    name: str
    pvalue: float
    adjusted: float


@dataclass(frozen=True)
class ColumnShift:
    """How a column differs between training and test.

    Attributes
    ----------
    name : its name
    pvalue, adjusted : of a two-sample test, alone and corrected for all tests (Holm)
    effect : ‖μ_train - μ_test‖ / √(‖μ_train‖² + ‖μ_test‖²), from 0 (equal) to 1 (disjoint)
    difference : mean of test minus mean of training, in standard deviations of training; NaN for
        labels
    spread : ratio of the standard deviations of test and training; NaN for labels
    where : where the test sample has more and where less, in words
    """

    name: Any
    pvalue: float
    adjusted: float
    effect: float
    difference: float
    spread: float
    where: str
    #: For a picture: where the witness was evaluated, μ_test - μ_train there, and both samples.
    witness: tuple[np.ndarray, np.ndarray] = field(repr=False, compare=False)
    samples: tuple[np.ndarray, np.ndarray] = field(repr=False, compare=False)


@dataclass(frozen=True)
class DependenceShift:
    """How the dependence between columns differs, with equal marginal distributions.

    Numbers are replaced by ranks within their own sample. The p-value is conservative.
    """

    pvalue: float
    effect: float
    #: The two columns whose rank correlation changed most, and the correlations; None without any.
    pair: tuple[Any, Any] | None
    correlations: tuple[float, float]
    left_out: tuple[Any, ...]

    @property
    def change(self) -> str:
        """The correlation that changed most, in words."""
        if self.pair is None:
            return ""
        names, (before, after) = " and ".join(map(str, self.pair)), self.correlations
        return f", most in the rank correlation of {names}: {before:.2f} → {after:.2f}"


def describe_column(column: ColumnPair, pvalue: float, adjusted: float) -> ColumnShift:
    """The figures of a column."""
    both = concatenate([column.train, column.test])
    kernel = column.kernel.resolve(both)
    effect = relative_distance(kernel, column.train, column.test)
    difference = spread = math.nan
    at, values = np.empty(0), np.empty(0)
    where = ""
    if column.is_number:
        a, b = column.train[:, 0], column.test[:, 0]
        # without numbers far from all others, which would stretch the grid
        (mean, own), (other, beside) = (column_moments(part[:, None]) for part in (a, b))
        scale = float(own[0]) or float(both.std())
        if scale > 0:
            difference, spread = float((other - mean)[0] / scale), float(beside[0] / scale)
        distinct = np.unique(both[~far_cells(both)])
        few = len(distinct) <= FEW
        at = distinct if few else np.linspace(distinct[0], distinct[-1], GRID)
        values = difference_at(kernel, at[:, None], column)
        where = share_changes(a, b, distinct) if few else bumps(at, values)
    elif column.is_label:
        at = np.unique(both)
        values = difference_at(kernel, at, column)
        where = share_changes(column.train, column.test, at)
    return ColumnShift(
        column.name,
        pvalue,
        adjusted,
        effect,
        difference,
        spread,
        where,
        (at, values),
        (np.asarray(column.train), np.asarray(column.test)),
    )


def difference_at(kernel: Kernel, at: Points, column: ColumnPair) -> np.ndarray:
    """The witness function μ_test - μ_train: above 0 where the test sample has more."""
    return mean_at(kernel, at, column.test) - mean_at(kernel, at, column.train)


def bumps(at: np.ndarray, values: np.ndarray) -> str:
    """Where the witness function is largest and least, with the range of half the height."""
    words = []
    for sign, name in ((1, "more"), (-1, "less")):
        w = sign * values
        top = int(np.argmax(w))
        if w[top] <= 0:
            continue
        low = high = top
        while low > 0 and w[low - 1] > w[top] / 2:
            low -= 1
        while high < len(w) - 1 and w[high + 1] > w[top] / 2:
            high += 1
        # enough digits to tell the ends apart
        size = float(np.abs(at[[low, top, high]]).max())
        width = max(float(at[high] - at[low]), 1e-15 * size, 1e-300)
        digits = max(2, 1 + math.ceil(math.log10(size / width + 1)))
        if 1 <= size < 1e6:
            digits = max(digits, 1 + math.floor(math.log10(size)))  # not in scientific notation
        show = [f"{value:.{digits}g}" for value in at[[top, low, high]]]
        words.append(f"{name} around {show[0]} ({show[1]} to {show[2]})")
    return ", ".join(words)


def share_changes(train: np.ndarray, test: np.ndarray, values: np.ndarray) -> str:
    """The value whose share grew most, and the one whose share fell most."""
    shares = []
    for part in (train, test):
        place = np.minimum(np.searchsorted(values, part), len(values) - 1)
        found = place[values[place] == part]  # numbers far from all others are not among the values
        shares.append(np.bincount(found, minlength=len(values)) / len(part))
    before, after = shares
    change = after - before
    words = []
    for i, name in ((int(np.argmax(change)), "more"), (int(np.argmin(change)), "less")):
        if change[i] != 0:
            value = f"{values[i]:g}" if values.dtype.kind == "f" else str(values[i])
            words.append(f"{name} {value} ({before[i]:.0%} → {after[i]:.0%})")
    return ", ".join(words)


def conditional_pvalue(
    samples: Samples, targets: Targets, draws: int, rng: np.random.Generator, reverse: bool = False
) -> float:
    """The p-value of a test that P(y|x) is the same in both samples; `reverse` for P(x|y)."""
    y = targets.field
    x, T = samples.train, take(samples.test, targets.labelled)
    x_side, y_side = (x, T, samples.kernel), (y.train, y.test, targets.kernel)
    (A1, A2, kernel_a), (B1, B2, kernel_b) = (y_side, x_side) if reverse else (x_side, y_side)
    return conditional_two_sample_test(
        A1, B1, A2, B2, (kernel_a, kernel_b), n_permutations=draws, rng=rng
    ).pvalue


def dependence(
    fields: tuple[ColumnPair, ...], differ: set[Any], draws: int, rng: np.random.Generator
) -> DependenceShift | None:
    """Whether the dependence between columns differs; without labels that differ themselves."""
    kept = tuple(f for f in fields if f.is_number or (f.is_label and f.name not in differ))
    if len(kept) < 2:
        return None
    level = rank_columns(kept, rng)
    train, test = row_coordinates(level)
    result = two_sample_test(train, test, n_permutations=draws, rng=rng)
    kernel = Gaussian().resolve(np.concatenate([train, test]))
    numbers = [f for f in level if f.is_number and np.ptp(f.train) > 0 and np.ptp(f.test) > 0]
    pair, correlations = None, (math.nan, math.nan)
    if len(numbers) > 1:
        before, after = (
            np.corrcoef(np.hstack([getattr(f, part) for f in numbers]).T)
            for part in ("train", "test")
        )
        i, j = np.unravel_index(int(np.argmax(np.abs(np.triu(after - before, 1)))), before.shape)
        pair = numbers[i].name, numbers[j].name
        correlations = float(before[i, j]), float(after[i, j])
    left_out = tuple(f.name for f in fields if f not in kept)
    effect = relative_distance(kernel, train, test)
    return DependenceShift(result.pvalue, effect, pair, correlations, left_out)


def extremes(kernel: Kernel, train: Points, test: Points) -> tuple[str, str]:
    """The rows most typical of test alone and of training alone, in words."""
    both = concatenate([train, test])
    witness = mean_at(kernel, both, test) - mean_at(kernel, both, train)
    found = []
    for i in (int(np.argmax(witness)), int(np.argmin(witness))):
        row = take(both, slice(i, i + 1))
        value = tuple(part[0] for part in row) if isinstance(row, tuple) else row[0]
        text = repr(str(value)) if isinstance(value, str) else str(value)
        found.append(text if len(text) <= 60 else text[:57] + "…")
    return found[0], found[1]
