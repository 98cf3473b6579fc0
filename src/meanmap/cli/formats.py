"""Files of every format as frames of pandas, at once or in batches."""

from __future__ import annotations

import csv
import difflib
import io
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from meanmap.exceptions import warn
from meanmap.statistics.tiles import free_memory

DATA = Path(__file__).parent.parent / "data"  # tables that come with the package, by "@name"
BATCH = 20_000  # rows in memory at a time when a file is read in batches
HEAD = 1 << 16  # bytes that show whether a file is binary and which decimal point it has
SEPARATORS = ",\t;|"
MAGIC = {
    b"PAR1": "Parquet",
    b"ARROW1": "Arrow",
    b"\xff\xff\xff\xff": "Arrow stream",
    b"PK\x03\x04": "npz",
    b"PK\x05\x06": "npz",
    b"\x93NUMPY": "npy",
}
OTHERS = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"(\xb5/\xfd": "zstd"}
#: Bytes in memory per byte of the file while pandas reads it, measured and rounded up
GROWTH = {"text": 3, "Parquet": 2, "Arrow": 3, "Arrow stream": 3, "npz": 2, "npy": 2}


@dataclass(frozen=True, eq=False)
class Input:
    """An open file and its format, recognised by its first bytes.

    `header` is whether the first line of a text file names the columns, None to find out.
    """

    name: str
    stream: BinaryIO
    kind: str
    size: int
    header: bool | None = None

    def open(self) -> BinaryIO:
        """A copy of the stream at its beginning, which readers may close."""
        copy = os.fdopen(os.dup(self.stream.fileno()), "rb")
        copy.seek(0)
        return copy

    @property
    def memory(self) -> int:
        """About how many bytes it takes in memory."""
        size = self.size
        if self.kind == "npz":
            with reading(self), zipfile.ZipFile(self.open()) as archive:
                size = sum(part.file_size for part in archive.infolist())
        elif self.kind == "Parquet":
            with reading(self):
                about = parquet(self).metadata
                groups = range(about.num_row_groups)
                size = sum(about.row_group(i).total_byte_size for i in groups)
        return GROWTH[self.kind] * size


def open_input(name: str, header: bool | None = None) -> Input:
    """Open a file, standard input for "-", or a table that comes with the package for "@name"."""
    stream = spool(sys.stdin.buffer) if name == "-" else file(name)
    if not stream.seekable():
        stream = spool(stream)
    name = "standard input" if name == "-" else name
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    first = stream.read(8)
    stream.seek(0)
    if size == 0:
        raise ValueError(f"{name} is empty. Give a table with a header and rows.")
    for magic, kind in OTHERS.items():
        if first.startswith(magic):
            raise ValueError(f"{name} is compressed with {kind}. Decompress it, or pipe it to '-'.")
    kind = next((kind for magic, kind in MAGIC.items() if first.startswith(magic)), "text")
    return Input(name, stream, kind, size, header)


def file(name: str) -> BinaryIO:
    """A file on disk, or one that comes with the package."""
    if name.startswith("@"):
        path = DATA / f"{name[1:]}.csv"
        if not path.is_file() or path.parent != DATA:
            there = ["@" + one.stem for one in sorted(DATA.glob("*.csv"))]
            raise ValueError(f"there is no table {name}.{suggest_name(name, there)}")
        return path.open("rb")
    path = Path(name)
    if path.is_dir():
        raise ValueError(f"{name} is a folder. Name a file in it.")
    try:
        return path.open("rb")
    except FileNotFoundError:
        folder = path.parent if path.parent.is_dir() else Path()
        there = [one.name for one in folder.iterdir() if one.is_file()]
        near = difflib.get_close_matches(path.name, there, n=1, cutoff=0.7)
        more = f" Did you mean {folder / near[0]}?" if near else " Check its name and folder."
        raise ValueError(f"there is no file {name}.{more}") from None
    except OSError as error:
        raise ValueError(f"{name} cannot be read: {error.strerror}.") from None


def spool(stream: Any) -> BinaryIO:
    """Copy a pipe to a temporary file: it is read more than once."""
    if stream.isatty():
        raise ValueError("standard input is a terminal. Pipe a table into it, or name a file.")
    copy = tempfile.TemporaryFile()  # noqa: SIM115
    shutil.copyfileobj(stream, copy)
    return copy


def suggest_name(name: str, there: list[str]) -> str:
    """The most similar name, and the names there are."""
    near = difflib.get_close_matches(name, there, n=1, cutoff=0.5)
    shown = ", ".join(there[:20]) + (", …" if len(there) > 20 else "")
    return (f" Did you mean {near[0]!r}?" if near else "") + f" There are: {shown or 'none'}."


@contextmanager
def reading(source: Input) -> Iterator[None]:
    """Turn whatever a reader says about a broken file into one sentence."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f"{error}; reading tables needs pip install 'meanmap[cli]'") from error
    except KnownProblem:
        raise
    except MemoryError:
        raise ValueError(
            f"{source.name} does not fit into memory: it needs about {amount(source.memory)}. "
            "Give fewer rows or columns."
        ) from None
    except UnicodeDecodeError:
        raise ValueError(
            f"{source.name} is not a table: neither text in UTF-8 nor Parquet, Arrow or npz. Save "
            "it in one of these formats."
        ) from None
    except Exception as error:  # a broken file makes every reader fail in ways of its own
        words = first_line(error)
        fields = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", words)
        if fields is not None:
            expected, line, found = fields.groups()
            words = f"line {line} has {found} fields where the others have {expected}"
        kind = "a table" if source.kind == "text" else f"{source.kind} data"
        raise ValueError(
            f"{source.name} cannot be read as {kind}, it seems broken: {words}. Fix it or export "
            "it again."
        ) from None


class KnownProblem(ValueError):
    """A problem whose message is final."""


def first_line(error: BaseException) -> str:
    """The first line of an error's text, without a full stop, and not too long."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:160].rstrip(". ")


def amount(size: float) -> str:
    """Bytes in words."""
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"


def available_memory() -> int:
    """Bytes that a program can allocate now, the system's caches included."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        return 1024 * int(text.partition("MemAvailable:")[2].split()[0])
    except (OSError, IndexError, ValueError):
        return free_memory()


# --- frames ---------------------------------------------------------------------------------------


def frames(source: Input, batch: int | None = None) -> Iterator[tuple[Any, dict[str, list[str]]]]:
    """The table in one piece, or in batches of `batch` rows, and the columns of each vector.

    Columns are as in the file; `vectors` names the columns that a vector was split into.
    """
    reader = {"text": texts, "npz": archives, "npy": archives}.get(source.kind, arrows)
    with reading(source):
        for frame in reader(source, batch):
            yield split_vectors(source, frame)


def texts(source: Input, batch: int | None) -> Iterator[Any]:
    """CSV, TSV, or text with another separator, found from the first line."""
    import pandas as pd

    with source.open() as stream:
        head = stream.read(HEAD)
    wide = head.startswith((b"\xff\xfe", b"\xfe\xff"))
    if b"\0" in head and not wide:
        raise KnownProblem(
            f"{source.name} is a binary file, but not Parquet, Arrow or npz. Save it as one of "
            "these, or as CSV."
        )
    encoding = "utf-16" if wide else "utf-8-sig"
    with io.TextIOWrapper(source.open(), encoding=encoding, newline="") as lines:
        first = next((line for line in lines if line.strip()), None)
        if first is None:
            raise KnownProblem(f"{source.name} is empty. Give a table with a header and rows.")
        separator = separator_of(source.name, first)
        # a name in quotes may go on over several lines
        reader = csv.reader(chain([first], lines), delimiter=separator, skipinitialspace=True)
        names = next(reader)
    comma = separator != "," and re.search(r"\d,\d", head.decode(encoding, errors="ignore"))
    decimal = "," if comma else "."
    named = has_header(source, [name.replace(decimal, ".") for name in names], names)
    if named:
        once(source.name, names)
    options: dict[str, Any] = {
        "sep": separator,
        "encoding": encoding,
        "skipinitialspace": True,
        "decimal": decimal,
        "low_memory": False,
        "header": 0 if named else None,
        "names": None if named else [f"x{i}" for i in range(len(names))],
    }
    pieces = pd.read_csv(source.open(), chunksize=batch, **options)
    for frame in [pieces] if batch is None else pieces:
        if not isinstance(frame.index, pd.RangeIndex):
            raise KnownProblem(
                f"{source.name}: rows have more fields than the {len(names)} of the first line. "
                "Give every column a name."
            )
        yield frame


def has_header(source: Input, cells: list[str], shown: list[str]) -> bool:
    """Whether a first line names the columns: unless it holds numbers only. Doubts are reported."""
    if source.header is not None:
        return source.header
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


def parquet(source: Input) -> Any:
    """The file as pyarrow has it."""
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(source.open())


def arrows(source: Input, batch: int | None) -> Iterator[Any]:
    """Parquet and Arrow, files and streams, by their record batches, which may be large."""
    import pyarrow.ipc

    if source.kind == "Parquet":
        found = parquet(source)
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
        rows = batch or max(piece.num_rows, 1)
        for start in range(0, max(piece.num_rows, 1), rows):
            yield piece.slice(start, rows).to_pandas(ignore_metadata=True)


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
    frame = pd.DataFrame(columns)
    size = max(len(frame), 1)
    for start in range(0, size, batch or size):
        yield frame.iloc[start : start + (batch or size)].reset_index(drop=True)


def split_vectors(source: Input, frame: Any) -> tuple[Any, dict[str, list[str]]]:
    """Vectors as separate columns, without the index that pandas writes."""
    import pandas as pd

    frame.columns = [str(column) for column in frame.columns]
    if len(frame.columns) > 1 and row_numbers(frame.columns[0]):
        frame = frame.drop(columns=frame.columns[0])
    vectors: dict[str, list[str]] = {}
    parts = []
    for column in frame.columns:
        values = frame[column]
        first = next(iter(values.dropna()), None) if values.dtype == object else None
        if not isinstance(first, np.ndarray | list):
            parts.append(values)
            continue
        size = len(first)
        if any(not isinstance(v, np.ndarray | list) or len(v) != size for v in values):
            raise KnownProblem(f"{source.name}: column {column!r} holds vectors of unequal length.")
        vectors[column] = [f"{column}_{i}" for i in range(size)]
        stacked = np.array([np.asarray(v) for v in values]).reshape(len(values), size)
        parts.append(pd.DataFrame(stacked, columns=vectors[column], index=frame.index))
    if vectors:
        frame = pd.concat(parts, axis=1)
        once(source.name, list(frame.columns))
    return frame, vectors


def row_numbers(column: str) -> bool:
    """Whether a first column is the index that pandas writes."""
    return column == "Unnamed: 0" or column.startswith("__index_level_")
