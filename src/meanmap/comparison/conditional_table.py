"""Many tests of conditional independence on one table, as a causal search makes them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np

from meanmap import checks
from meanmap.comparison.fit_quality import FitQuality
from meanmap.comparison.methods import Request
from meanmap.comparison.mixed_table import MixedTable
from meanmap.comparison.quadratic import FORM_NULLS
from meanmap.comparison.residual_contrasts import Given, ResidualSide
from meanmap.comparison.residual_test import (
    DEPENDENT_GIVEN,
    METHOD,
    ResidualPair,
    compare_residuals,
    constant_note,
    degenerate_result,
    determined_note,
)
from meanmap.comparison.results import TestResult

MISSING = ("pairwise", "complete", "error")
LEAST = 5  # rows without which no regression leaves residuals
ROOM = 4e8  # bytes that regressions may take
FEWEST = 32  # of them that are kept all the same
RESULTS = 1 << 16  # p-values that are kept

Value = TypeVar("Value")


class Recent:
    """The most recently used values, no more than a number of them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._values: OrderedDict[Hashable, Any] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key, made if it is not there."""
        value = self._values.pop(key, None)  # put back as the latest; other threads make it again
        value = make() if value is None else value
        self._values[key] = value
        while len(self._values) > self.most:
            self._values.pop(next(iter(self._values)), None)
        return value

    def __len__(self) -> int:
        return len(self._values)


class ConditionalIndependence:
    """Tests of conditional independence between the columns of one table.

    The test is that of `conditional_independence_test` with its defaults. The table is read once,
    and a regression of columns on others is made once, whichever tests need it. An answer depends
    on the table and the seed alone: not on the order of the calls, and not on which of two columns
    is named first.

    Parameters
    ----------
    data : frame, or array (n, d)
        Columns of numbers, and of labels: words, categories, truth values.
    labels : sequence of columns
        Columns of numbers that are codes of labels.
    missing : {"pairwise", "complete", "error"}
        What to do with missing values. "pairwise" takes, for each test, the rows in which all its
        columns are known; "complete" takes the rows that are complete, the same ones for all
        tests. Both are right if what is missing does not depend on what it would have been.
    null : {"wild", "gamma", "simulation"}
        How the null distribution is found.
    n_permutations : int
        How many draws; the least p-value is 1/(1 + n_permutations).
    random_state : int

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from meanmap.comparison import ConditionalIndependence
    >>> rng = np.random.default_rng(0)
    >>> rain = rng.gamma(2.0, size=300)
    >>> table = pd.DataFrame(
    ...     {
    ...         "rain": rain,
    ...         "ground": np.where(rain + 0.5 * rng.normal(size=300) > 1.5, "wet", "dry"),
    ...         "umbrellas": np.sqrt(rain) + 0.2 * rng.normal(size=300),
    ...     }
    ... )
    >>> test = ConditionalIndependence(table)
    >>> test.pvalue("ground", "umbrellas")
    0.001
    >>> test.pvalue("ground", "umbrellas", given=["rain"]) > 0.05
    True
    >>> test("rain", 2, given=["ground"]).rejects()  # columns by name or by number
    True
    """

    def __init__(
        self,
        data: Any,
        *,
        labels: Any = (),
        missing: str = "pairwise",
        null: str = "wild",
        n_permutations: int = 999,
        random_state: int = 0,
    ) -> None:
        asked = Request.read(FORM_NULLS, null, n_permutations, None)
        self.n_permutations, self._null = asked.draws, asked.null
        self.missing = checks.option(missing, "missing", MISSING)
        self.random_state = checks.whole(random_state, "random_state", 0)
        self._table = MixedTable.of(data, labels)
        known = self._table.known
        if missing == "error" and not known.all():
            raise ValueError(
                f"data has missing values in {int((~known.all(axis=1)).sum())} rows. Drop them, or "
                'pass missing="pairwise" or missing="complete".'
            )
        self._complete: np.ndarray = np.all(known, axis=0)
        most = max(FEWEST, int(ROOM / (8 * 40 * len(known))))
        self._sides, self._given = Recent(4 * most), Recent(most // 4)
        self._results = Recent(RESULTS)

    @property
    def column_names(self) -> tuple[Any, ...]:
        """The names of the columns."""
        return self._table.names

    def __call__(self, i: Any, j: Any, given: Any = ()) -> TestResult:
        """Test columns i and j given others; each is a column by name or number, or several.

        Returns
        -------
        ConditionalTestResult
            As of `conditional_independence_test`; `.sizes` says how many rows were used.
        """
        places = self._places(i, j, given)
        rows, key = self._rows(sorted({*places[0], *places[1], *places[2]}))
        n = int(rows.sum()) if isinstance(rows, np.ndarray) else len(self._table.known)
        if n < LEAST:
            raise ValueError(
                f"expected at least {LEAST} rows in which all columns are known, got {n}. "
                "Leave out columns with many missing values, or impute them."
            )
        words = METHOD, DEPENDENT_GIVEN, {"n": n}
        for name, which in zip("XY", places[:2], strict=True):
            if not self._table.part(which, rows).varies:
                return degenerate_result(constant_note(name), None, *words)
        conditions = self._given.get((places[2], key), lambda: self._conditions(places[2], rows))
        found = [self._side(which, places[2], rows, key, conditions) for which in places[:2]]
        for name, (side, _) in zip("XY", found, strict=True):
            if side.determined:
                return degenerate_result(determined_note(name), None, *words)
        (x, of_x), (y, of_y) = found
        seed = [self.random_state, *(number for part in places for number in (*part, 1 << 31))]
        rng = np.random.default_rng(seed)
        return compare_residuals(
            ResidualPair((x, y)), (of_x, of_y), conditions, self._null, self.n_permutations, rng
        )

    def pvalue(self, i: Any, j: Any, given: Any = ()) -> float:
        """The p-value alone, which is kept."""
        return self._results.get(self._places(i, j, given), lambda: float(self(i, j, given).pvalue))

    def _places(self, i: Any, j: Any, given: Any) -> tuple[tuple[int, ...], ...]:
        """Columns by number, the smaller of both variables first."""
        x, y = sorted([self._table.numbers(i), self._table.numbers(j)])
        z = self._table.numbers(given)
        if not x or not y or {*x} & {*y} or ({*x} | {*y}) & {*z}:
            raise ValueError(
                f"expected different columns for both variables and the conditions, got {i!r}, "
                f"{j!r} and {given!r}."
            )
        return x, y, z

    def _rows(self, places: list[int]) -> tuple[np.ndarray | slice, bytes]:
        """The rows in which these columns are known, and a key for them."""
        if self.missing == "complete":
            places = list(range(len(self._complete)))
        if bool(self._complete[places].all()):
            return slice(None), b""
        rows: np.ndarray = np.all(self._table.known[:, places], axis=1)
        return rows, np.packbits(rows).tobytes()

    def _conditions(self, places: tuple[int, ...], rows: np.ndarray | slice) -> Given:
        return Given(self._table.part(places, rows))

    def _side(
        self,
        which: tuple[int, ...],
        places: tuple[int, ...],
        rows: np.ndarray | slice,
        key: bytes,
        conditions: Given,
    ) -> tuple[ResidualSide, FitQuality]:
        """Columns regressed on others, and how well."""

        def make() -> tuple[ResidualSide, FitQuality]:
            side = conditions.side(self._table.part(which, rows))
            return side, FitQuality.of(side)

        return self._sides.get((which, places, key), make)

    def __repr__(self) -> str:
        n, d = self._table.known.shape
        return f"{type(self).__name__}({n:,} rows of {d} columns, {len(self._results)} p-values)"
