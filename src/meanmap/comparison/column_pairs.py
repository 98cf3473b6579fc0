"""Which columns of a table depend on each other: all pairs, with one set of permutations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from itertools import combinations
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from meanmap import checks, plots
from meanmap.arrays import one_blas_thread, to_numpy
from meanmap.comparison.column_effects import split_columns
from meanmap.comparison.corrections import read_correction
from meanmap.comparison.effects import CORRELATION, safe_ratio
from meanmap.comparison.results import TIE, fill_lines, probability, show_pvalue
from meanmap.comparison.sources import read_draws
from meanmap.kernels import Kernel
from meanmap.kernels.defaults import as_kernel
from meanmap.spaces import PivotedCholesky
from meanmap.statistics.dependence import centred_coordinates
from meanmap.statistics.gates import require_points

RANK = 100  # coordinates of a column at most
TOLERANCE = 1e-6  # of a column's kernel that its coordinates may miss
STRONGEST = 5  # pairs that are named
HOW = {
    "holm": "after Holm's correction",
    "fdr": "after the correction for the false discovery rate",
    None: "without correction",
}


@dataclass(frozen=True, eq=False, repr=False)
class DependenceMatrix:
    """What there is between every two columns of a table.

    Attributes
    ----------
    names : tuple
        Of the columns.
    statistics, effects, pvalues, adjusted : arrays, one row and one column per column of the table
        HSIC ("V"), the kernel distance correlation (bias-corrected, from 0 to 1), p-values by
        permutations, and those corrected for all pairs. On the diagonal 1 (effects) and not a
        number.
    correction : str or None
    n, n_permutations : int

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.comparison import dependence_matrix
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 3))
    >>> X[:, 2] = X[:, 0] ** 2
    >>> found = dependence_matrix(X, rng=0)
    >>> found.pairs()
    [(0, 2)]
    >>> bool(found.adjusted[0, 2] <= 0.01)
    True
    """

    names: tuple[Any, ...]
    statistics: np.ndarray
    effects: np.ndarray
    pvalues: np.ndarray
    adjusted: np.ndarray
    correction: str | None
    n: int
    n_permutations: int

    def to_frame(self, what: str | None = None) -> Any:
        """A pandas frame with a row per pair, the most dependent first.

        With `what`, "effects", "pvalues", "adjusted" or "statistics", that square table.
        """
        import pandas as pd

        if what is not None:
            checks.option(what, "what", ("effects", "pvalues", "adjusted", "statistics"))
            return pd.DataFrame(getattr(self, what), index=self.names, columns=self.names)
        rows = [
            (self.names[i], self.names[j], self.effects[i, j], self.statistics[i, j],
             self.pvalues[i, j], self.adjusted[i, j])
            for i, j in self._pairs()
        ]  # fmt: skip
        columns = ["first", "second", "effect", "statistic", "pvalue", "adjusted"]
        return pd.DataFrame(rows, columns=columns)

    def to_dict(self) -> dict[str, Any]:
        """The figures of all pairs under plain names, for JSON."""
        return {
            "columns": [str(name) for name in self.names],
            "n": self.n,
            "n_permutations": self.n_permutations,
            "correction": self.correction,
            "pairs": self.to_frame().astype({"first": str, "second": str}).to_dict("records"),
        }

    def sentence(self, level: float = 0.05) -> str:
        """The result as a sentence that can go into a paper."""
        found, total = self.pairs(level), len(self.names) * (len(self.names) - 1) // 2
        return (
            f"Permutation tests by HSIC of all {total:,} pairs of {len(self.names)} columns "
            f"(n = {self.n:,}, {self.n_permutations:,} permutations) found that {len(found)} "
            f"depend on each other at the {level:g} level "
            f"{HOW[self.correction]}."
        )

    def _repr_html_(self) -> str:
        """The effects as a table, for notebooks; pairs at the 0.05 level are bold."""
        order = self.order()
        names = [escape(str(self.names[i])) for i in order]
        rows = [f"<tr><th></th>{''.join(f'<th>{name}</th>' for name in names)}</tr>"]
        for i, name in zip(order, names, strict=True):
            shown = [f"{self.effects[i, j]:.2f}" for j in order]
            strong = [
                f"<b>{s}</b>" if self.adjusted[i, j] <= 0.05 else s
                for s, j in zip(shown, order, strict=True)
            ]
            cells = "".join(f"<td>{cell}</td>" for cell in strong)
            rows.append(f"<tr><th>{name}</th>{cells}</tr>")
        return f"<div><p>{escape(self.sentence())}</p><table>{''.join(rows)}</table></div>"

    def pairs(self, level: float = 0.05) -> list[tuple[Any, Any]]:
        """The pairs of columns that depend on each other, at this level after the correction."""
        level = probability(level, "level")
        return [
            (self.names[i], self.names[j]) for i, j in self._pairs() if self.adjusted[i, j] <= level
        ]

    def _pairs(self) -> list[tuple[int, int]]:
        """All pairs by number, the most dependent first."""
        every = combinations(range(len(self.names)), 2)
        return sorted(every, key=lambda p: (self.adjusted[p], self.pvalues[p], -self.effects[p]))

    def order(self) -> np.ndarray:
        """The columns by number, in an order that puts dependent ones side by side."""
        return clustered_order(1 - self.effects)

    def plot(self, ax: Any = None, level: float = 0.05) -> Any:
        """The effects as a matrix, clustered; pairs at this level after the correction have *."""
        level, order = probability(level, "level"), self.order()
        marks = np.where(self.adjusted <= level, "*", "")[np.ix_(order, order)]
        names = [str(self.names[i]) for i in order]
        effects = self.effects[np.ix_(order, order)]
        return plots.matrix(effects, names, CORRELATION, marks, ax)

    def __repr__(self) -> str:
        found, total = self.pairs(), len(self.names) * (len(self.names) - 1) // 2
        text = (
            f"Dependence of {len(self.names)} columns (n = {self.n:,}, {self.n_permutations:,} "
            f"permutations): {len(found)} of {total} pairs depend on each other at the 0.05 level "
            f"{HOW[self.correction]}."
        )
        lines = [
            f"  {self.names[i]} and {self.names[j]}: {self.effects[i, j]:.2f}, p = "
            f"{show_pvalue(self.adjusted[i, j])}"
            for i, j in self._pairs()[: min(STRONGEST, len(found))]
        ]
        return "\n".join([fill_lines(text), *lines])


def clustered_order(distances: np.ndarray) -> np.ndarray:
    """An order in which near ones are neighbours, by average linkage with the leaves turned."""
    if len(distances) < 3:
        return np.arange(len(distances))
    symmetric = np.maximum((distances + distances.T) / 2, 0.0)
    np.fill_diagonal(symmetric, 0.0)
    flat = squareform(symmetric, checks=False)
    return leaves_list(linkage(flat, "average", optimal_ordering=len(distances) <= RANK))


def dependence_matrix(
    data: Any,
    kernel: Any = None,
    correction: str | None = "holm",
    n_permutations: int = 999,
    rng: Any = None,
) -> DependenceMatrix:
    """Test all pairs of columns of a table for dependence.

    Every column gets its coordinates once, and every permutation of all columns at once is one
    matrix product for all pairs. Each pair sees random permutations of its own, so that its p-value
    is exact.

    Parameters
    ----------
    data : frame, with columns of numbers and of labels, or array (n, d)
    kernel : Kernel, dict from columns to kernels, or None
        None is a Gaussian at the median distance for numbers, a delta kernel for labels.
    correction : {"holm", "fdr", None}
        "holm" bounds the chance of any false discovery among all pairs, "fdr" the expected share
        of false ones among the discoveries (Benjamini and Hochberg 1995).
    n_permutations : int
        The least p-value is 1/(1 + n_permutations), before the correction. For d columns Holm's
        correction multiplies it by d(d - 1)/2: take more for many columns, or "fdr".
    rng : int, numpy Generator or None

    Returns
    -------
    DependenceMatrix
        `.effects`, `.pvalues`, `.adjusted`, `.pairs()`, `.to_frame()`, `.plot()`.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from meanmap.comparison import dependence_matrix
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame(rng.normal(size=(200, 3)), columns=["a", "b", "c"])
    >>> table["d"] = table["a"] ** 2  # uncorrelated, and dependent
    >>> table["sign"] = np.where(table["b"] > 0, "positive", "negative")
    >>> dependence_matrix(table, rng=0)
    Dependence of 5 columns (n = 200, 999 permutations): 2 of 10 pairs depend on
    each other at the 0.05 level after Holm's correction.
      b and sign: 0.73, p = 0.01
      a and d: 0.40, p = 0.01
    """
    adjust = read_correction(correction)
    draws, rng = read_draws(n_permutations), checks.random_generator(rng)
    columns = read_table_columns(data)
    names, n = tuple(columns), len(next(iter(columns.values())))
    require_points(n, "data", 4)
    parts, roundings = [], []
    for name, column in columns.items():
        chosen = column_kernel(kernel, name, column)
        psi, rounding = centred_coordinates(chosen, column, PivotedCholesky(TOLERANCE, RANK))
        parts.append(to_numpy(psi))
        roundings.append(rounding)
    table = ColumnCoordinates(parts)
    observed = table.products()
    slack = TIE * np.maximum(observed, 0.0) + table.slack(np.array(roundings))
    reached = np.ones(observed.shape)
    with one_blas_thread(n < 2000):
        for _ in range(draws):
            reached += table.products(rng) >= observed - slack
    pvalues = reached / (1 + draws)
    first, second = np.triu_indices(len(names), 1)
    adjusted = np.full(pvalues.shape, np.nan)
    adjusted[first, second] = adjusted[second, first] = adjust(pvalues[first, second])
    np.fill_diagonal(pvalues, np.nan)
    # of columns (a, b) only one side of the diagonal was read: make the other the same
    pvalues[second, first] = pvalues[first, second]
    effects = table.correlations(observed)
    return DependenceMatrix(
        names, observed / n**2, effects, pvalues, adjusted, correction, n, draws
    )


def read_table_columns(data: Any) -> dict[Any, np.ndarray]:
    """The columns of a checked table, of which there must be two or more."""
    kernel = as_kernel(None, data, "data")
    columns = split_columns(kernel.check(data, "data"), kernel.bind(data).names)
    if len(columns) < 2:
        raise ValueError(
            f"data: expected a table with two or more columns, got {len(columns)}. Pass a frame or "
            "an array (n, d); two separate variables go into independence_test(X, Y)."
        )
    return columns


def column_kernel(kernel: Any, name: Any, column: np.ndarray) -> Kernel:
    """The kernel of one column, resolved on it."""
    given = kernel.get(name) if isinstance(kernel, Mapping) else kernel
    return as_kernel(given, column, str(name)).resolve(column)


class ColumnCoordinates:
    """The columns of a table in coordinates of mean 0, side by side."""

    def __init__(self, parts: list[np.ndarray]) -> None:
        self._parts = parts
        self._starts = np.cumsum([0, *(part.shape[1] for part in parts)])[:-1]
        self._stacked = np.concatenate(parts, axis=1)
        self._diagonals = np.stack([np.sum(part * part, axis=1) for part in parts])

    def products(self, rng: np.random.Generator | None = None) -> np.ndarray:
        """‖Ψ_aᵀΨ_b‖² for all columns a and b, the rows of each permuted by itself if asked for."""
        if rng is None:
            moved = self._stacked
        else:
            moved = np.empty_like(self._stacked)
            for start, part in zip(self._starts, self._parts, strict=True):
                part.take(rng.permutation(len(part)), 0, moved[:, start : start + part.shape[1]])
        squares = (moved.T @ moved) ** 2
        return np.add.reduceat(np.add.reduceat(squares, self._starts, 0), self._starts, 1)

    def slack(self, roundings: np.ndarray) -> np.ndarray:
        """By how much rounding may change the products."""
        n = len(self._stacked)
        sizes = np.sqrt(np.diagonal(self.products())) / n
        outer = np.outer(sizes, roundings)
        return n**2 * (outer + outer.T + np.outer(roundings, roundings))

    def correlations(self, products: np.ndarray) -> np.ndarray:
        """The bias-corrected kernel distance correlation of all pairs, cut off at 0 and 1.

        Song et al. (2012, eq. 5) with centred rows, whose sums without the diagonal are minus it.
        """
        n, d = len(self._stacked), self._diagonals
        both, totals = d @ d.T, d.sum(axis=1)
        constant = np.outer(totals, totals) / ((n - 1) * (n - 2))
        hsic = products - both + constant - 2 / (n - 2) * both
        own = np.sqrt(np.maximum(np.diagonal(hsic), 0.0))
        found = np.clip(safe_ratio(hsic, np.outer(own, own)), 0.0, 1.0)
        np.fill_diagonal(found, 1.0)
        return found
