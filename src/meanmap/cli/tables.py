"""Tables as the commands need them: columns by name, their kinds, and complete rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from meanmap.cli.formats import Input, amount, available_memory, open_input, suggest_name
from meanmap.cli.kinds import ID, TEXTS, convert_column, date_form, kind_of, reason_to_leave_out
from meanmap.cli.options import TableOptions
from meanmap.cli.readers import BATCH, frames
from meanmap.exceptions import warn
from meanmap.report.answers import AnswerTable, DataSource
from meanmap.report.samples import missing_columns
from meanmap.statistics.columns import column_moments, far_cells, label_indicators

PLAIN = TableOptions()
VERY_FAR = 1e6  # times the median deviation of a column: such a number is questioned
LARGE = 256_000_000  # bytes beyond which a file is read in batches

Names = Sequence[str]
Kinds = dict[str, str]


@dataclass(frozen=True, eq=False)
class TableRows:
    """Rows of a table: columns that are numbers, dates as numbers of days, or labels.

    Attributes
    ----------
    name : of the table
    frame : pandas DataFrame of the columns in use, without rows that have missing values
    kinds : mapping of a column to "number", "date" or "label"
    total : int
        Rows of the table.
    dropped : int
        How many of them have missing values.
    more : notes on the table
    """

    name: str
    frame: Any
    kinds: dict[str, str]
    total: int
    dropped: int = 0
    more: tuple[str, ...] = ()

    @property
    def source(self) -> DataSource:
        return DataSource(self.name, self.total, dict(self.kinds))

    @property
    def notes(self) -> list[str]:
        """Rows that were left out, and numbers that are very far from all others."""
        out = list(self.more)
        if self.dropped:
            out.append(
                f"{self.name}: {self.dropped} of {self.total} rows have missing values and are "
                "left out."
            )
        plain = [column for column, kind in self.kinds.items() if kind != "label"]
        known = self.frame[plain].dropna()
        if not plain or not len(known):
            return out
        values = known.to_numpy(dtype=float)
        far = far_cells(values, VERY_FAR)
        for column, numbers, cell in zip(plain, values.T, far.T, strict=True):
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
                    "columns, or fix it."
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

    Several numbers are divided by their standard deviations. A label among other columns becomes
    one indicator per value, scaled so that two random rows differ as much by it as by a number.
    """

    columns: list[str]
    scale: dict[str, float] | None
    labels: dict[str, tuple[np.ndarray, float]]

    @classmethod
    def of(cls, parts: Sequence[TableRows], columns: Sequence[str], wanted: bool = True) -> Coding:
        """From all rows, or a sample of them."""
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
                labels[column] = label_indicators(words)
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
    """A file whose columns are asked for by name; `labels` are labels whatever they hold."""

    input: Input
    labels: list[str] = field(default_factory=list)
    more: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, options: TableOptions = PLAIN) -> Table:
        """Open a file."""
        words = [one for part in options.labels or () for one in split_names(part)]
        return cls(open_input(name, options), words)

    @property
    def name(self) -> str:
        return self.input.name

    @property
    def large(self) -> bool:
        """Whether it is better read in batches."""
        return self.input.size > LARGE

    @cached_property
    def head(self) -> tuple[Any, dict[str, list[str]], bool]:
        """The first rows, the columns of each vector, and whether these are all rows."""
        pieces = frames(self.input, BATCH)
        first = next(pieces, None)
        if first is None or not len(first[0]):
            raise ValueError(f"{self.name} has columns but no rows. Give a table with rows.")
        frame, vectors = first
        whole = next(pieces, None) is None
        excluded = self.input.options.exclude
        if excluded:
            there = list(frame.columns)
            frame = frame.drop(columns=match(self.name, excluded, "--exclude", there, vectors))
        return frame, vectors, whole

    def pieces(self, batch: int | None = None) -> Iterator[Any]:
        """The table in one piece or in batches; a small one is read only once."""
        frame, _, whole = self.head
        return iter([frame]) if whole else (one for one, _ in frames(self.input, batch))

    def kinds_of(self, frame: Any, columns: Names) -> dict[str, str]:
        """The kind of each column; those in --labels are labels whatever they hold."""
        labels = self.named(self.labels, "--labels") if self.labels else []
        return {c: "label" if c in labels else kind_of(self.name, frame[c], c) for c in columns}

    def left_out(self, columns: Names) -> dict[str, str]:
        """Which columns are used only if they are named, and why: IDs, dates and free text."""
        labels, frame = self.named(self.labels, "--labels") if self.labels else [], self.head[0]
        kinds = self.kinds_of(frame, [c for c in columns if c not in labels])
        found = {c: reason_to_leave_out(frame[c], c, kind) for c, kind in kinds.items()}
        return {column: reason for column, reason in found.items() if reason}

    def chosen(self, asked: Names | None, option: str, but: Names = ()) -> list[str]:
        """The columns that were asked for, by default those that are of use in general."""
        return chosen_columns([self], asked, option, but)[0]

    def ids(self, known: Names) -> Any:
        """What tells rows apart beside the columns in use: an index, IDs, dates, a first column."""
        import pandas as pd

        frame = next(self.pieces())
        out = {} if frame.index.name is None else {"row": frame.index.astype(str)}
        for column in (one for one in self.named(None) if one not in known):
            values, text = frame[column], frame[column].dropna().astype(str)
            form = "" if pd.api.types.is_numeric_dtype(values) else date_form(text)
            if form:
                out[column] = show_column(convert_column(self.name, values, form, column, 0), form)
            elif ID.fullmatch(column) or (column == frame.columns[0] and text.is_unique):
                out[column] = values.astype("string").to_numpy(dtype=object)
        return pd.DataFrame(out, index=range(len(frame)))

    def has(self, column: str) -> bool:
        return column in self.head[0].columns

    def named(self, asked: Sequence[str] | None, option: str = "") -> list[str]:
        """The columns that were asked for, all of them for None; an error if one is missing."""
        there, vectors = list(self.head[0].columns), self.head[1]
        if asked is None:
            return there
        return match(self.name, asked, option, there, vectors)

    def rows(self, columns: Names, kinds: Kinds | None = None, gaps: Names = ()) -> TableRows:
        """All rows; columns in `gaps` may have missing values."""
        need, free = self.input.memory, available_memory()
        if need > free:
            raise ValueError(
                f"{self.name} needs about {amount(need)} of memory, and {amount(free)} are free. "
                "Give fewer rows or columns."
            )
        frame = next(self.pieces())
        kinds = kinds or self.kinds_of(frame, columns)
        return replace(clean_rows(self.name, frame, kinds, columns, 0, gaps), more=self.more)

    def batches(self, columns: Names, kinds: Kinds | None = None) -> Iterator[TableRows]:
        """Rows in batches; the kinds of the columns are those in the first batch."""
        start = 0
        for frame in self.pieces(BATCH):
            kinds = kinds or self.kinds_of(frame, columns)
            yield clean_rows(self.name, frame, kinds, columns, start)
            start += len(frame)

    def sample(self, columns: Sequence[str], size: int, seed: int) -> TableRows:
        """Draw `size` rows at random from the whole file in one pass; `total` counts all."""
        import pandas as pd

        # a stream of its own: that of the plain seed may have drawn the data, and would sort them
        rng = np.random.default_rng([seed, 0x6D656D])
        kept, keys, total, dropped = None, np.empty(0), 0, 0
        for rows in self.batches(columns):
            total += rows.total
            dropped += rows.dropped
            frame = rows.frame if kept is None else pd.concat([kept, rows.frame])
            keys = np.concatenate([keys, rng.random(len(rows.frame))])
            if len(keys) > size:
                order = np.sort(np.argpartition(keys, size)[:size])
                frame, keys = frame.iloc[order], keys[order]
            kept = frame
        return TableRows(self.name, kept, rows.kinds, total, dropped, self.more)


def clean_rows(
    name: str, frame: Any, kinds: Kinds, columns: Names, start: int, gaps: Names = ()
) -> TableRows:
    """Rows of a table that begin at row `start`: columns by kind, none of them missing a value."""
    import pandas as pd

    parts = {c: convert_column(name, frame[c], kinds[c], c, start) for c in columns}
    out = pd.DataFrame(parts)
    out.index = out.index + start
    needed = [column for column in columns if column not in gaps]
    kept = out.dropna(subset=needed) if needed else out
    own = {column: kinds[column] for column in columns}
    return TableRows(name, kept, own, len(frame), len(frame) - len(kept))


def match(
    name: str, asked: Names, option: str, there: Names, vectors: Mapping[str, list[str]]
) -> list[str]:
    """The columns of a table that were asked for; an error if one is missing."""
    found: list[str] = []
    for word in asked:
        for one in [word] if word in there or word in vectors else split_names(word):
            if one not in there and one not in vectors:
                known = suggest_name(one, [*there, *vectors])
                where = f" ({option})" if option else ""
                raise ValueError(f"{name} has no column {one!r}{where}.{known}")
            found += vectors.get(one, [one])
    if not found:
        raise ValueError(f"{option or 'columns'}: name at least one column of {name}.")
    return list(dict.fromkeys(found))


def open_tables(names: Names, options: TableOptions) -> list[Table]:
    """Several files, at most one of them standard input."""
    if list(names).count("-") > 1:
        raise ValueError("standard input can be one of the files only. Name the others.")
    return [Table.of(name, options) for name in names]


def data_notes(parts: Sequence[TableRows], columns: Names, more: Names = ()) -> list[str]:
    """Notes on the rows in use, and on columns that are constant; on standard error as well."""
    notes = [*more, *(words for rows in parts for words in rows.notes)]
    for column in columns:
        values = {value for rows in parts for value in rows.frame[column].unique()[:2]}
        if len(values) == 1:
            shown = show_cell(values.pop())
            notes.append(f"column {column!r} holds {shown} in every row and has no effect.")
    return print_notes(notes)


def answer_table(columns: Mapping[str, Any]) -> AnswerTable:
    """Columns of values as a table for people."""
    rows = zip(*columns.values(), strict=True)
    return AnswerTable(tuple(columns), tuple(tuple(map(show_cell, row)) for row in rows))


def show_column(values: Any, kind: str) -> Any:
    """Values as they are, dates as text."""
    import pandas as pd

    if not kind.startswith("date"):
        return values
    days = pd.Series(values, dtype=float)
    dates = (pd.Timestamp(0) + pd.to_timedelta(days, unit="D")).dt.round("s")
    return dates.astype(str).where(days.notna(), None).to_numpy(dtype=object)


def show_cell(value: Any) -> str:
    """A value as text."""
    if isinstance(value, float | np.floating):
        return f"{value:.4g}" if np.isfinite(value) else "–"
    return "–" if value is None else str(value)


def print_notes(words: Iterable[str]) -> list[str]:
    """The notes there are, reported on standard error as well."""
    notes = list(words)
    for one in notes:
        warn(one, UserWarning)
    return notes


def split_names(words: str) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in words.split(",") if name.strip()]


def chosen_columns(
    tables: Sequence[Table], asked: Names | None, option: str, but: Names = ()
) -> list[list[str]]:
    """The columns of each table that were asked for, by default without those of no general use."""
    found = [table.named(asked, option) for table in tables]
    if asked is not None:
        for table, own in zip(tables, found, strict=True):  # text that is named is to be used
            kinds = table.kinds_of(table.head[0], own)
            table.labels += [column for column, kind in kinds.items() if kind in TEXTS]
        return found
    pairs = [table.left_out(own) for table, own in zip(tables, found, strict=True)]
    reasons = {c: why for own in pairs for c, why in own.items() if c not in but}
    if not reasons:
        return found
    words = ", ".join(f"{column} ({why})" for column, why in reasons.items())
    note = f"columns left out: {words}. Use {option} to name those to use."
    tables[0].more = tuple(print_notes([note]))
    left = [[column for column in columns if column not in reasons] for columns in found]
    if not all(left):
        raise ValueError(f"{tables[0].name} has no column to use; {note}")
    return left


def shared_columns(tables: Sequence[Table], asked: Names | None, but: Names = ()) -> list[str]:
    """The columns to compare: those asked for, else all, which must be the same in all tables."""
    columns = chosen_columns(tables, asked, "--columns", but)
    for table, other in zip(tables[1:], columns[1:], strict=True):
        words = missing_columns((columns[0], other), (tables[0].name, table.name))
        if words:
            raise ValueError(f"the files have different columns: {words}. Use --columns.")
    return columns[0]


def same_kinds(first: TableRows, *others: TableRows) -> None:
    """Refuse a column whose kind differs between tables."""
    for other, (column, kind) in product(others, first.kinds.items()):
        kind, found = (one.partition(",")[0] for one in (kind, other.kinds[column]))
        if found != kind:
            raise ValueError(
                f"column {column!r} is a {kind} in {first.name} and a {found} in {other.name}. Fix "
                "it, or name it in --labels."
            )


def read_point(words: str, columns: Sequence[str]) -> dict[str, str]:
    """A point from "a=1,b=2"."""
    found: dict[str, str] = {}
    for part in filter(None, map(str.strip, words.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise ValueError(
                f"--at: {part!r} in {words!r} is not of the form name=value. Give a point such as "
                '"a=1,b=2", or a file.'
            )
        if name not in columns:
            raise ValueError(
                f"--at: {name!r} is not among --given.{suggest_name(name, list(columns))}"
            )
        if name in found:
            raise ValueError(
                f"--at: {words!r} gives {name!r} twice. For several points use the option several "
                f"times: --at {name}={found[name]} --at {part}."
            )
        found[name] = value
    for name in columns:
        if name not in found:
            raise ValueError(f"--at: {words!r} lacks {name!r}; give every column of --given.")
    return found
