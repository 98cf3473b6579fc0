"""Readers of every format, as frames of pandas, at once or in batches."""

from __future__ import annotations

import csv
import io
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from meanmap.cli.formats import DATABASE, HEAD, WIDE, Input, KnownProblem, reading, suggest_name
from meanmap.exceptions import warn

BATCH = 20_000  # rows in memory at a time when a file is read in batches
SEPARATORS = ",\t;|"


def frames(source: Input, batch: int | None = None) -> Iterator[tuple[Any, dict[str, list[str]]]]:
    """The table in one piece, or in batches of `batch` rows, and the columns of each vector.

    Columns are as in the file; `vectors` names the columns that a vector was split into.
    """
    readers = {"text": texts, "npz": archives, "npy": archives, "Excel": sheet_cells}
    readers |= {"JSON": records, "JSON lines": records, "SQLite": queries, "DuckDB": queries}
    words = source.options.missing
    missing: list[Any] = [*words, *(float(one) for one in words if is_number(one))]
    with reading(source):
        for frame in readers.get(source.kind, arrows)(source, batch):
            frame = frame.mask(frame.isin(missing)) if missing else frame
            yield split_vectors(source, frame)


def texts(source: Input, batch: int | None) -> Iterator[Any]:
    """CSV, TSV, or text with another separator, found from the first line."""
    import pandas as pd

    with source.open() as stream:
        head = stream.read(HEAD)
    if b"\0" in head and not (source.options.encoding or head.startswith(WIDE)):
        raise KnownProblem(
            f"{source.name} is a binary file, but not Parquet, Arrow or npz, nor Excel or a "
            "database. Save it as one of these, or as CSV."
        )
    encoding = source.encoding
    with io.TextIOWrapper(source.open(), encoding=encoding, newline="") as lines:
        first = next((line for line in lines if line.strip()), None)
        if first is None:
            raise KnownProblem(f"{source.name} is empty. Give a table with a header and rows.")
        separator = separator_of(source.name, first)
        # a name in quotes may go on over several lines
        reader = csv.reader(chain([first], lines), delimiter=separator, skipinitialspace=True)
        names = next(reader)
    decimal = decimal_of(head.decode(encoding, errors="ignore"), separator)
    named = has_header(source, [name.replace(decimal, ".") for name in names], names)
    if named:
        once(source.name, names)
    options: dict[str, Any] = {"sep": separator, "encoding": encoding, "decimal": decimal}
    options |= {"skipinitialspace": True, "low_memory": False, "na_values": source.options.missing}
    names = names if named else [f"x{i}" for i in range(len(names))]
    options |= {"header": 0} if named else {"header": None, "names": names}
    pieces = pd.read_csv(source.open(), chunksize=batch, **options)
    for frame in [pieces] if batch is None else pieces:
        if not isinstance(frame.index, pd.RangeIndex):
            raise KnownProblem(
                f"{source.name}: rows have more fields than the {len(names)} of the first line. "
                "Give every column a name."
            )
        yield frame


def decimal_of(head: str, separator: str) -> str:
    """The decimal sign of whole fields; commas before three digits are decimal after a ";"."""
    fields = [field.strip('" ') for field in re.split(rf"[{re.escape(separator)}\r\n]", head)]
    commas = [field for field in fields if re.fullmatch(r"-?\d+,\d+", field)]
    if separator == "," or not commas or any(re.fullmatch(r"-?\d+\.\d+", f) for f in fields):
        return "."
    plain = separator == ";" or not all(re.fullmatch(r"-?\d{1,3},\d{3}", f) for f in commas)
    return "," if plain else "."


def sheet_cells(source: Input, batch: int | None) -> Iterator[Any]:
    """A sheet of an Excel or OpenDocument file, from its first row that is not empty."""
    import pandas as pd

    with pd.ExcelFile(source.open()) as book:
        there, asked = [str(name) for name in book.sheet_names], source.options.sheet
        if asked is not None and asked not in there:
            known = suggest_name(asked, there)
            raise KnownProblem(f"{source.name} has no sheet {asked!r} (--sheet).{known}")
        if asked is None and len(there) > 1:
            words = f"the first of the sheets {', '.join(there[:10])} is read; see --sheet."
            warn(f"{source.name}: {words}", UserWarning)
        cells = pd.read_excel(book, sheet_name=asked or 0, header=None)
    cells = cells.dropna(how="all").dropna(how="all", axis=1)
    if not len(cells):
        raise KnownProblem(f"{source.name} is empty. Give a table with a header and rows.")
    names = ["" if name != name else str(name) for name in cells.iloc[0]]
    named = has_header(source, names, names)
    names = [name or "Unnamed: 0" if named else f"x{i}" for i, name in enumerate(names)]
    once(source.name, names)
    yield from slices(cells.set_axis(names, axis=1)[int(named) :].infer_objects(), batch)


def records(source: Input, batch: int | None) -> Iterator[Any]:
    """Objects of JSON, or of JSON lines."""
    import pandas as pd

    lines = source.kind == "JSON lines"
    options: Any = {"dtype": False, "encoding": source.encoding, "lines": lines}
    found = pd.read_json(source.open(), chunksize=batch if lines else None, **options)
    names = None
    for frame in found if lines and batch else slices(found, batch):
        names = frame.columns if names is None else names
        yield frame.reindex(columns=names)


def queries(source: Input, batch: int | None) -> Iterator[Any]:
    """A table of an SQLite or DuckDB file, or the answer to a query; nothing is written."""
    import pandas as pd

    url = DATABASE.fullmatch(source.name)
    path, what, asked = url.groups() if url else (source.name, None, None)
    if source.kind == "SQLite":
        base: Any = sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True)
    else:
        import duckdb

        base = duckdb.connect(path, read_only=True)
    listed = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name"
    with closing(base):
        there = [name for (name,) in base.execute(listed).fetchall()]
        if what != "query":
            asked = asked or (there[0] if len(there) == 1 else "")
            if asked not in there:
                form = f"{source.kind.lower()}:///{path}?table="
                raise KnownProblem(
                    f"{source.name} needs a table, {form}NAME.{suggest_name(asked, there)}"
                )
            asked = 'SELECT * FROM "{}"'.format(asked.replace('"', '""'))
        found = base.execute(asked)
        names = [column[0] for column in found.description]
        once(source.name, names)
        yield pd.DataFrame(found.fetchmany(batch) if batch else found.fetchall(), columns=names)
        while batch and (rows := found.fetchmany(batch)):
            yield pd.DataFrame(rows, columns=names)


def slices(frame: Any, batch: int | None) -> Iterator[Any]:
    """A frame in batches of rows."""
    size = max(len(frame), 1)
    for start in range(0, size, batch or size):
        yield frame.iloc[start : start + (batch or size)].reset_index(drop=True)


def has_header(source: Input, cells: list[str], shown: list[str]) -> bool:
    """Whether a first line names the columns: unless it holds numbers only. Doubts are reported."""
    if source.options.header is not None:
        return source.options.header
    numbers = [words for cell, words in zip(cells, shown, strict=True) if is_number(cell)]
    line = f"{source.name}: the first line ({', '.join(shown[:5])}{', …' * (len(shown) > 5)})"
    if len(numbers) == len(cells):
        last = f" to x{len(cells) - 1}" if len(cells) > 2 else ", x1" * (len(cells) - 1)
        warn(
            f"{line} holds numbers only and is read as data; the columns are named x0{last}. "
            "Use --header if it holds their names.",
            UserWarning,
        )
    elif numbers:
        warn(
            f"{line} is read as the names of the columns, though {numbers[0]!r} is a number. "
            "Use --no-header if it is data.",
            UserWarning,
        )
    return len(numbers) < len(cells)


def separator_of(name: str, line: str) -> str:
    """What separates the fields of a line."""
    if name.endswith((".tsv", ".tab")):
        return "\t"
    for one in "\t;|":  # numbers with decimal commas
        cells = next(csv.reader([line], delimiter=one))
        if len(cells) > 1 and all(is_number(cell.replace(",", ".")) for cell in cells):
            return one
    counts = {one: len(next(csv.reader([line], delimiter=one))) for one in SEPARATORS}
    return max(counts, key=lambda one: counts[one])


def is_number(text: str) -> bool:
    """Whether a field is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def once(name: str, columns: list[str]) -> None:
    """Refuse repeated column names."""
    twice = [column for column, times in Counter(columns).items() if times > 1]
    if twice:
        raise KnownProblem(f"{name}: columns appear twice: {', '.join(twice[:5])}. Rename them.")


def arrows(source: Input, batch: int | None) -> Iterator[Any]:
    """Parquet and Arrow, files and streams, by their record batches, which may be large."""
    import pyarrow.ipc
    import pyarrow.parquet

    if source.kind == "Parquet":
        found: Any = pyarrow.parquet.ParquetFile(source.open())
        schema, pieces = found.schema_arrow, found.iter_batches(batch_size=batch or BATCH)
    elif source.kind == "Arrow":
        found = pyarrow.ipc.open_file(source.open())
        schema = found.schema
        pieces = (found.get_batch(i) for i in range(found.num_record_batches))
    else:
        pieces = pyarrow.ipc.open_stream(source.open())
        schema = pieces.schema
    once(source.name, schema.names)
    if batch is None:
        pieces = [pyarrow.Table.from_batches(list(pieces), schema)]
    for piece in pieces:
        yield from slices(piece.to_pandas(ignore_metadata=True), batch)


def archives(source: Input, batch: int | None) -> Iterator[Any]:
    """NumPy arrays of one length; those with more axes become vectors."""
    import pandas as pd

    found: Any = np.load(source.open(), allow_pickle=False)
    arrays = {"x": found} if isinstance(found, np.ndarray) else {k: found[k] for k in found.files}
    lengths = {name: len(a) if a.ndim else None for name, a in arrays.items()}
    if not arrays or len(set(lengths.values())) > 1 or None in lengths.values():
        shown = ", ".join(f"{name} {a.shape}" for name, a in arrays.items()) or "none"
        raise KnownProblem(f"{source.name}: arrays must have equally many rows; found {shown}.")
    columns = {}
    for name, array in arrays.items():
        if array.dtype.kind == "S":
            array = np.char.decode(array, "utf-8")
        if array.dtype.kind not in "fiubUM":
            raise KnownProblem(
                f"{source.name}: array {name!r} holds {array.dtype}; numbers, text and dates are "
                "supported."
            )
        columns[name] = array if array.ndim == 1 else list(array.reshape(len(array), -1))
    yield from slices(pd.DataFrame(columns), batch)


def split_vectors(source: Input, frame: Any) -> tuple[Any, dict[str, list[str]]]:
    """Vectors as separate columns, without the index that pandas writes."""
    import pandas as pd

    frame.columns = [str(column) for column in frame.columns]
    if len(frame.columns) > 1 and re.match(r"Unnamed: 0$|__index_level_", frame.columns[0]):
        frame = frame.set_index(frame.columns[0])
    vectors: dict[str, list[str]] = {}
    parts = []
    for column in frame.columns:
        values = frame[column]
        first = next(iter(values.dropna()), None) if values.dtype == object else None
        size = len(first) if isinstance(first, np.ndarray | list) else 0
        if not size or any(np.ndim(v) == 0 or len(v) != size for v in values):
            parts.append(values)
            continue
        vectors[column] = [f"{column}_{i}" for i in range(size)]
        stacked = np.array([np.asarray(v) for v in values]).reshape(len(values), size)
        parts.append(pd.DataFrame(stacked, columns=vectors[column], index=frame.index))
    if vectors:
        frame = pd.concat(parts, axis=1)
        once(source.name, list(frame.columns))
    return frame, vectors
