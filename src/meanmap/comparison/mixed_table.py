"""A table of numbers and labels, some of them missing."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Self

import numpy as np

from meanmap import checks
from meanmap.arrays import is_array, to_numpy
from meanmap.comparison.plain_columns import PlainColumns
from meanmap.frames import is_frame, list_names


@dataclass(frozen=True, eq=False)
class MixedTable:
    """Columns by name: numbers (n,) or labels (n,), and which rows of each are known."""

    names: tuple[Any, ...]
    columns: tuple[np.ndarray, ...]
    known: np.ndarray  # (n, d)

    @classmethod
    def of(cls, data: Any, labels: Iterable[Any]) -> Self:
        """A frame, or an array of which the columns have numbers; `labels` are codes of labels."""
        if is_frame(data):
            names = tuple(data.columns)
            values = [data[name] for name in names]
        else:
            array = to_numpy(data) if is_array(data) else np.asarray(data)
            if array.ndim != 2:
                raise ValueError(
                    f"data: expected a frame or an array (n, d), got {checks.describe(data)}."
                )
            names, values = tuple(range(array.shape[1])), list(array.T)
        if len(set(names)) < len(names):
            raise ValueError("data: columns appear twice. Rename them.")
        table = cls(names, (), np.empty((0, 0)))
        coded = {table.number(name) for name in labels}
        read = [read_column(v, names[j], j in coded) for j, v in enumerate(values)]
        if not read or not len(read[0][0]):
            raise ValueError(f"data is empty: expected rows and columns, got {len(names)} columns.")
        known = np.stack([there for _, there in read], axis=1)
        return cls(names, tuple(column for column, _ in read), known)

    def number(self, name: Any) -> int:
        """The place of a column, given by its name or by that place."""
        if isinstance(name, np.generic):
            name = name.item()
        if isinstance(name, Hashable) and name in self.names:
            return self.names.index(name)
        if isinstance(name, int) and not isinstance(name, bool) and 0 <= name < len(self.names):
            return name
        raise ValueError(
            f"{name!r} is not a column of the table. Its columns are "
            f"{list_names([repr(known) for known in self.names])}."
        )

    def numbers(self, names: Any) -> tuple[int, ...]:
        """The places of one or several columns, in ascending order."""
        several = isinstance(names, Sequence | set | frozenset | np.ndarray) and not (
            isinstance(names, str) or (isinstance(names, tuple) and names in self.names)
        )
        return tuple(sorted({self.number(name) for name in (names if several else [names])}))

    def part(self, places: Sequence[int], rows: np.ndarray | slice) -> PlainColumns:
        """Some columns, of some rows."""
        chosen = [self.columns[j][rows] for j in places]
        n = int(np.count_nonzero(rows)) if isinstance(rows, np.ndarray) else len(self.known)
        numbers = [column[:, None] for column in chosen if column.dtype.kind == "f"]
        words = tuple(column for column in chosen if column.dtype.kind != "f")
        return PlainColumns(np.hstack([np.empty((n, 0)), *numbers]), words)


def read_column(values: Any, name: Any, coded: bool) -> tuple[np.ndarray, np.ndarray]:
    """A column as numbers or as codes of labels, and which of its rows are known."""
    array = values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)
    known = ~checks.missing_rows(array)
    held = array[known]
    numeric = array.dtype.kind in "fiu" or (
        array.dtype.kind == "O"
        and len(held) > 0
        and all(isinstance(v, Real) and not isinstance(v, bool | np.bool_) for v in held)
    )
    if numeric and not coded:
        column = np.full(len(array), np.nan)
        column[known] = held.astype(np.float64)
        if not np.isfinite(column[known]).all():
            raise ValueError(f"column {name!r} contains infinite values. Drop or replace them.")
        return column, known
    if array.dtype.kind not in "fiubUSOT":
        raise TypeError(
            f"column {name!r} holds {array.dtype}: expected numbers or labels. Convert it to one "
            "of them."
        )
    codes = np.zeros(len(array), dtype=np.int64)
    words = held.astype(str) if held.dtype.kind == "O" else held
    codes[known] = np.unique(words, return_inverse=True)[1]
    return codes, known
