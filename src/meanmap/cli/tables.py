"""Tables as the commands want them: columns by name, their kinds, and rows without gaps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meanmap.cli.formats import (
    BATCH,
    Input,
    amount,
    available_memory,
    frames,
    open_input,
    suggest_name,
)
from meanmap.cli.kinds import convert_column, kinds_of
from meanmap.exceptions import warn
from meanmap.report.answers import DataSource
from meanmap.statistics.columns import column_moments, far_cells

VERY_FAR = 1e6  # times the middle deviation of a column: such a number is asked about
LARGE = 256_000_000  # bytes of a file from which on it is read in batches


@dataclass(frozen=True, eq=False)
class TableRows:
    """Rows of a table: columns that are numbers, dates as numbers of days, or labels.

    Attributes
    ----------
    name : of the table
    frame : pandas DataFrame of the columns in use, rows with a missing value left out
    kinds : mapping of a column to "number", "date" or "label"
    total : int
        Rows of the table.
    """

    name: str
    frame: Any
    kinds: dict[str, str]
    total: int

    @property
    def dropped(self) -> int:
        """Rows that were left out."""
        return self.total - len(self.frame)

    @property
    def source(self) -> DataSource:
        return DataSource(self.name, self.total, dict(self.kinds))

    @property
    def gap(self) -> str:
        """What there is to say of rows that were left out."""
        if not self.dropped:
            return ""
        return f"{self.name}: {self.dropped} of {self.total} rows have missing values: left out."

    @property
    def far(self) -> list[str]:
        """What there is to say of numbers that lie very far from all others of their column."""
        plain = [column for column, kind in self.kinds.items() if kind != "label"]
        if not plain or not len(self.frame):
            return []
        known = self.frame[plain].dropna()
        values = known.to_numpy(dtype=float)
        cells = far_cells(values, VERY_FAR) if len(values) else np.zeros((0, len(plain)))
        out = []
        for column, numbers, cell in zip(plain, values.T, cells.T, strict=True):
            rows = np.flatnonzero(cell)
            if len(rows):
                more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
                out.append(
                    f"{self.name}: column {column!r} holds {numbers[rows[0]]:.4g} in row "
                    f"{known.index[rows[0]] + 1}{more}, over a million times as far from "
                    "the median as other values. Is it right?"
                )
        return out

    def numbers(self, columns: Sequence[str]) -> np.ndarray:
        """Columns that must be numbers."""
        for column in columns:
            if self.kinds[column] == "label":
                raise ValueError(
                    f"{self.name}: column {column!r} must hold numbers; row "
                    f"{self.frame.index[0] + 1} holds {self.frame[column].iloc[0]!r}. Name other "
                    "columns, or mend it."
                )
        return self.frame[list(columns)].to_numpy(dtype=float)

    def enough(self, least: int) -> None:
        """Refuse tables with too few rows."""
        if len(self.frame) < least:
            left = f" are left of {self.total}" if self.dropped else ""
            raise ValueError(
                f"{self.name}: {len(self.frame)} rows{left}; at least {least} are needed. Give "
                "more rows."
            )


@dataclass(frozen=True, eq=False)
class Coding:
    """Columns as points: rows of numbers, or a single column of labels.

    Several numbers are divided by their standard deviations. Beside others a label gets an
    indicator for each of its values, of a size that makes two random rows differ as much by it as
    by a number.
    """

    columns: list[str]
    scale: dict[str, float] | None
    labels: dict[str, tuple[np.ndarray, float]]

    @classmethod
    def of(cls, parts: Sequence[TableRows], columns: Sequence[str], wanted: bool = True) -> Coding:
        """From all rows that there are, or a sample of them."""
        columns = list(columns)
        kinds = parts[0].kinds
        plain = [column for column in columns if kinds[column] != "label"]
        scale = None
        if wanted and plain and len(columns) > 1:
            values = np.concatenate([one.frame[plain].to_numpy(dtype=float) for one in parts])
            spread = column_moments(values)[1]
            spread[~(spread > 0)] = 1.0
            scale = dict(zip(plain, map(float, spread), strict=True))
        labels = {}
        for column in columns:
            if kinds[column] == "label" and len(columns) > 1:
                words = np.concatenate([one.frame[column].to_numpy(dtype=str) for one in parts])
                values, counts = np.unique(words, return_counts=True)
                share = counts / counts.sum()
                differ = 1 - float(share @ share)
                labels[column] = values, differ**-0.5 if differ > 1e-12 else 0.0
        return cls(columns, scale, labels)

    def __call__(self, rows: TableRows) -> Any:
        """The points of some rows."""
        if len(self.columns) == 1 and rows.kinds[self.columns[0]] == "label":
            return rows.frame[self.columns[0]].to_numpy(dtype=str)
        parts = []
        for column in self.columns:
            if column in self.labels:
                values, size = self.labels[column]
                words = rows.frame[column].to_numpy(dtype=str)
                parts.append(size * (words[:, None] == values[None, :]))
                continue
            numbers = rows.frame[[column]].to_numpy(dtype=float)
            parts.append(numbers if self.scale is None else numbers / self.scale[column])
        return np.hstack(parts)

    def named(self, rows: TableRows) -> Any:
        """The points of some rows with the names of their columns; labels as they are."""
        import pandas as pd

        points = self(rows)
        if points.ndim == 1:
            return points
        names: list[str] = []
        for column in self.columns:
            held = self.labels[column][0] if column in self.labels else ()
            names += [f"{column}={value}" for value in held] or [column]
        return pd.DataFrame(points, columns=names)

    def __str__(self) -> str:
        words = []
        if self.scale is not None:
            by = ", ".join(f"{column} {value:.3g}" for column, value in self.scale.items())
            words.append(f"divided by their standard deviations ({by})")
        if self.labels:
            words.append(f"labels as indicators ({', '.join(self.labels)})")
        return "; ".join(words) or "as they are"


@dataclass(eq=False)
class Table:
    """A file whose columns are asked for by name."""

    input: Input
    labels: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, labels: Sequence[str] = ()) -> Table:
        """Open a file; `labels` are columns to take for labels, whatever they hold."""
        return cls(open_input(name), list(labels))

    @property
    def name(self) -> str:
        return self.input.name

    @property
    def large(self) -> bool:
        """Whether it is better read in batches."""
        return self.input.size > LARGE

    def columns(self) -> tuple[list[str], dict[str, list[str]]]:
        """The columns' names, and those of each vector, from the first rows."""
        frame, vectors = next(frames(self.input, BATCH))
        return list(frame.columns), vectors

    def named(self, asked: Sequence[str] | None, option: str = "") -> list[str]:
        """The columns that were asked for, all of them for None; the nearest name if not there."""
        there, vectors = self.columns()
        if asked is None:
            return there
        found: list[str] = []
        for word in asked:
            for name in [word] if word in there or word in vectors else split_names(word):
                if name not in there and name not in vectors:
                    known = suggest_name(name, [*there, *vectors])
                    where = f" ({option})" if option else ""
                    raise ValueError(f"{self.name} has no column {name!r}{where}.{known}")
                found += vectors.get(name, [name])
        if not found:
            raise ValueError(f"{option or 'columns'}: name at least one column of {self.name}.")
        return list(dict.fromkeys(found))

    def rows(
        self,
        columns: Sequence[str],
        kinds: dict[str, str] | None = None,
        gaps: Sequence[str] = (),
    ) -> TableRows:
        """All rows; columns in `gaps` may have missing values."""
        need, free = self.input.memory, available_memory()
        if need > free:
            raise ValueError(
                f"{self.name} needs about {amount(need)} of memory, and {amount(free)} are free. "
                "Give fewer rows or columns."
            )
        frame, _ = next(frames(self.input))
        self.need_rows(frame)
        kinds = kinds or kinds_of(self.name, frame, columns, self.labels)
        return self.clean(frame, kinds, list(columns), 0, gaps)

    def batches(
        self, columns: Sequence[str], kinds: dict[str, str] | None = None
    ) -> Iterator[TableRows]:
        """Rows in batches, the kinds of the columns being those of the first."""
        start = 0
        for frame, _ in frames(self.input, BATCH):
            if start == 0:
                self.need_rows(frame)
                kinds = kinds or kinds_of(self.name, frame, columns, self.labels)
            assert kinds is not None
            yield self.clean(frame, kinds, list(columns), start, ())
            start += len(frame)

    def sample(
        self, columns: Sequence[str], size: int, seed: int, kinds: dict[str, str] | None = None
    ) -> TableRows:
        """So many rows drawn from the whole file at random, in one pass; `total` counts all."""
        import pandas as pd

        # a stream of its own: that of the plain seed may have drawn the data, and would sort them
        rng = np.random.default_rng([seed, 0x6D656D])
        kept, keys, total, clean = None, np.empty(0), 0, 0
        for rows in self.batches(columns, kinds):
            kinds = rows.kinds
            total += rows.total
            clean += len(rows.frame)
            frame = rows.frame if kept is None else pd.concat([kept, rows.frame])
            keys = np.concatenate([keys, rng.random(len(rows.frame))])
            if len(keys) > size:
                order = np.sort(np.argpartition(keys, size)[:size])
                frame, keys = frame.iloc[order], keys[order]
            kept = frame
        assert kept is not None and kinds is not None
        found = TableRows(self.name, kept, kinds, total)
        self.missing = total - clean
        return found

    missing: int = 0  # rows with missing values that `sample` met

    def need_rows(self, frame: Any) -> None:
        if not len(frame):
            raise ValueError(f"{self.name} has columns and no rows. Give a table with rows.")

    def clean(
        self, frame: Any, kinds: dict[str, str], columns: list[str], start: int, gaps: Sequence[str]
    ) -> TableRows:
        """The columns, each by its kind, without rows that have missing values."""
        import pandas as pd

        missing = [column for column in columns if column not in frame.columns]
        if missing:
            raise ValueError(f"{self.name} has no column {missing[0]!r}.")
        parts = {c: convert_column(self.name, frame[c], kinds[c], c, start) for c in columns}
        out = pd.DataFrame(parts)
        out.index = out.index + start
        needed = [column for column in columns if column not in gaps]
        kept = out.dropna(subset=needed) if needed else out
        return TableRows(self.name, kept, {c: kinds[c] for c in columns}, len(frame))


def two_tables(a: str, b: str, labels: Sequence[str]) -> tuple[Table, Table]:
    """Two files; standard input is one of them at most."""
    if a == b == "-":
        raise ValueError("standard input can be one of the two files only. Name the other.")
    return Table.of(a, labels), Table.of(b, labels)


def skipped_rows_note(table: Table, total: int) -> str:
    """What there is to say of rows that a pass over a file left out."""
    if not table.missing:
        return ""
    return f"{table.name}: {table.missing} of {total} rows have missing values: left out."


def constants(parts: Sequence[TableRows], columns: Sequence[str]) -> list[str]:
    """What there is to say of columns that hold one value in all rows."""
    out = []
    for column in columns:
        values = {value for rows in parts for value in rows.frame[column].unique()[:2]}
        if len(values) == 1:
            out.append(
                f"column {column!r} holds {cell(values.pop())} in every row and tells nothing."
            )
    return out


def cell(value: Any) -> str:
    """A value in words."""
    if isinstance(value, float | np.floating):
        return f"{value:.4g}" if np.isfinite(value) else "–"
    return "–" if value is None else str(value)


def print_notes(words: Iterable[str]) -> list[str]:
    """What there is to say, said on standard error as well."""
    said = [one for one in words if one]
    for one in said:
        warn(one, UserWarning)
    return said


def split_names(words: str) -> list[str]:
    """Names between commas."""
    return [name.strip() for name in words.split(",") if name.strip()]


def shared_columns(first: Table, second: Table) -> list[str]:
    """All columns of two tables, which must be the same."""
    one, other = first.named(None), second.named(None)
    words = []
    for here, there, table in ((one, other, second), (other, one, first)):
        lacking = [name for name in here if name not in there]
        if lacking:
            words.append(f"{table.name} lacks {', '.join(map(repr, lacking[:5]))}")
    if words:
        raise ValueError(
            f"the two files have different columns: {'; '.join(words)}. Use --columns."
        )
    return one


def same_kinds(first: TableRows, second: TableRows) -> None:
    """Refuse a column that is numbers here and labels there."""
    for column, kind in first.kinds.items():
        if second.kinds[column] != kind:
            raise ValueError(
                f"column {column!r} is a {kind} in {first.name} and a {second.kinds[column]} in "
                f"{second.name}. Mend it, or name it in --labels."
            )


def point(words: str, columns: Sequence[str]) -> dict[str, str] | None:
    """A point from "a=1,b=2"; None where it is no such thing."""
    pairs = re.findall(r"\s*([^=,]+?)\s*=\s*([^,]*?)\s*(?:,|$)", words)
    if "=" not in words or not pairs:
        return None
    found = dict(pairs)
    for name in found:
        if name not in columns:
            raise ValueError(
                f"--at: {name!r} is not among --given.{suggest_name(name, list(columns))}"
            )
    for name in columns:
        if name not in found:
            raise ValueError(f"--at: {words!r} lacks {name!r}; give every column of --given.")
    return found
