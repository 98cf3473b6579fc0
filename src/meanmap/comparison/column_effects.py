"""Which columns an effect is in: the effect size of every column by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap import plots
from meanmap.arrays import Points, take
from meanmap.comparison.effects import (
    EffectSize,
    SampleSums,
    choose_rows,
    dependence_effect,
    effect_of_sums,
)
from meanmap.kernels import Kernel
from meanmap.kernels.defaults import as_kernel
from meanmap.statistics.tiles import on_host

ROWS = 1000  # that the dependence of single columns is found from
ENERGY = "energy coefficient"


class InWords:
    """An explanation that is shown in words: how large the effect is, where, and how to use it."""

    def __repr__(self) -> str:
        find = {name: getattr(self, name, None) for name in ("effect", "columns", "plot")}
        effect = find["effect"]
        words = [f"{type(self).__name__}: {effect()}." if effect else f"{type(self).__name__}."]
        if find["columns"]:
            shares = find["columns"]().shares
            most = [f"{name} ({share:.0%})" for name, share in shares.items() if share][:3]
            words.append(f"By column: {', '.join(most)}." if most and len(shares) > 1 else "")
        uses = ["call it at points"] if callable(self) else []
        uses += [f".{name}()" for name, method in find.items() if method is not None]
        return " ".join(filter(None, [*words, f"For more: {', '.join(uses)}."]))


@dataclass(frozen=True, eq=False)
class ColumnEffects(Mapping[Any, EffectSize]):
    """The effect in every column by itself, the largest first: a mapping from names to effects.

    What columns have in their joint distribution alone is in none of them: an effect of the test
    that is larger than all of these is one of dependence between columns.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from meanmap import two_sample_test
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame(rng.normal(size=(200, 2)), columns=["age", "height"])
    >>> Y = X.assign(age=X["age"] + 1)
    >>> two_sample_test(X, Y, rng=0).columns()
    age     energy coefficient = .20, 95% CI [.14, .27]  (share 1.00)
    height  energy coefficient = .00, 95% CI [.00, .00]  (share 0.00)
    """

    effects: dict[Any, EffectSize]

    @classmethod
    def of(cls, effects: dict[Any, EffectSize]) -> ColumnEffects:
        """In order of their size."""
        order = sorted(effects, key=lambda name: -effects[name].value)
        return cls({name: effects[name] for name in order})

    @property
    def shares(self) -> dict[Any, float]:
        """What part of the sum of all effects each column has."""
        total = sum(effect.value for effect in self.effects.values()) or 1.0
        return {name: effect.value / total for name, effect in self.effects.items()}

    def __getitem__(self, name: Any) -> EffectSize:
        return self.effects[name]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.effects)

    def __len__(self) -> int:
        return len(self.effects)

    def to_frame(self) -> Any:
        """A pandas frame, one row per column."""
        import pandas as pd

        rows = {
            name: {"effect": e.value, "low": e.interval[0], "high": e.interval[1]}
            for name, e in self.effects.items()
        }
        frame = pd.DataFrame.from_dict(rows, orient="index")
        frame.index.name = "column"
        return frame.assign(share=list(self.shares.values()))

    def plot(self, ax: Any = None) -> Any:
        """Effects with their intervals, one per column."""
        values = np.array([e.value for e in self.effects.values()])
        edges = np.array([e.interval for e in self.effects.values()])
        name = next(iter(self.effects.values())).name
        return plots.interval_chart([str(n) for n in self.effects], values, edges, name, ax)

    def __repr__(self) -> str:
        width = max(len(str(name)) for name in self.effects)
        shares = self.shares
        return "\n".join(
            f"{name!s:{width}}  {effect}  (share {shares[name]:.2f})"
            for name, effect in self.effects.items()
        )


def split_columns(points: Points, names: tuple[Any, ...] | None) -> dict[Any, Any]:
    """Every column as a sample by itself: numbers (n, 1), labels (n,)."""
    parts: Any = on_host(points)
    if not isinstance(parts, tuple):
        if parts.ndim not in (1, 2) or parts.dtype.kind == "O":
            raise TypeError("columns() is for rows of numbers or labels; these points have none.")
        parts = (parts,) if parts.ndim == 1 else tuple(np.split(parts, parts.shape[1], axis=1))
    known = names if names is not None and len(names) == len(parts) else range(len(parts))
    return dict(zip(known, parts, strict=True))


def column_differences(X: Points, Y: Points, names: tuple[Any, ...] | None) -> ColumnEffects:
    """The energy coefficient of every column: 2E|X-Y| - E|X-X'| - E|Y-Y'| over 2E|X-Y|.

    Numbers are sorted and labels counted, so that it takes n log n. Two different labels are at
    distance 1.
    """
    x, y = split_columns(X, names), split_columns(Y, names)
    return ColumnEffects.of({name: _difference(x[name], y[name]) for name in x})


def _difference(x: np.ndarray, y: np.ndarray) -> EffectSize:
    numbers = x.ndim == 2 and x.dtype.kind in "fiu"
    sums = summed_distances if numbers else counted_differences
    x, y = x.reshape(len(x), -1)[:, 0], y.reshape(len(y), -1)[:, 0]
    # minus a distance is a kernel, up to functions of one point
    first, second = (
        SampleSums(-sums(a, a), -sums(a, b), np.zeros(len(a))) for a, b in ((x, y), (y, x))
    )
    return effect_of_sums(first, second, ENERGY)


def summed_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Σⱼ |aᵢ - bⱼ| for every i, from sorted numbers."""
    middle = float(np.mean(b))
    a, b = a - middle, np.sort(b - middle)
    below = np.searchsorted(b, a)
    sums = np.concatenate([[0.0], np.cumsum(b)])
    return a * (2 * below - len(b)) + sums[-1] - 2 * sums[below]


def counted_differences(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """How many of b differ from aᵢ, for every i."""
    values, counts = np.unique(b, return_counts=True)
    at = np.minimum(np.searchsorted(values, a), len(values) - 1)
    return len(b) - np.where(values[at] == a, counts[at], 0).astype(float)


def column_dependences(
    kernels: tuple[Kernel, Kernel], X: Points, Y: Points
) -> dict[Any, EffectSize]:
    """How far every column of X depends on Y, on 1,000 rows at most."""
    rows = choose_rows(len(X[0]) if isinstance(X, tuple) else X.shape[0], ROWS)
    X, Y = take(X, rows), on_host(take(Y, rows))
    found = {}
    for name, column in split_columns(X, kernels[0].names).items():
        kernel = as_kernel(None, column, str(name)).resolve(column)
        found[name] = dependence_effect(kernel, kernels[1], column, Y)
    return found
