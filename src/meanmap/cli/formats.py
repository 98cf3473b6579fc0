"""Files of every format as frames of pandas, at once or in batches."""

from __future__ import annotations

import csv
import difflib
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from meanmap.statistics.tiles import free_memory

DATA = Path(__file__).parent.parent / "data"  # tables that the package ships, by "@name"
BATCH = 20_000  # rows in memory at once, where a file is read in batches
HEAD = 1 << 16
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
#: Bytes in memory for a byte of the file: what pandas takes while it reads, measured and rounded up
GROWTH = {"text": 3, "Parquet": 2, "Arrow": 3, "Arrow stream": 3, "npz": 2, "npy": 2}


@dataclass(frozen=True, eq=False)
class Input:
    """A file that was opened, and what its first bytes say that it is."""

    name: str
    stream: BinaryIO
    kind: str
    size: int

    def open(self) -> BinaryIO:
        """From the beginning; readers close what they get."""
        copy = os.fdopen(os.dup(self.stream.fileno()), "rb")
        copy.seek(0)
        return copy

    @property
    def memory(self) -> int:
        """Bytes that it takes in memory, about."""
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


def open_input(name: str) -> Input:
    """A file, standard input for "-", or a table of the package's for "@name"."""
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
            raise ValueError(
                f"{name} is compressed with {kind}. Decompress it into a pipe and '-'."
            )
    kind = next((kind for magic, kind in MAGIC.items() if first.startswith(magic)), "text")
    return Input(name, stream, kind, size)


def file(name: str) -> BinaryIO:
    """A file on disk, or one of the package's."""
    if name.startswith("@"):
        path = DATA / f"{name[1:]}.csv"
        if not path.is_file() or path.parent != DATA:
            there = ["@" + one.stem for one in sorted(DATA.glob("*.csv"))]
            raise ValueError(f"there is no table {name}.{suggest_name(name, there)}")
        return path.open("rb")
    path = Path(name)
    try:
        if path.is_dir():
            raise ValueError(f"{name} is a folder. Name a file in it.")
        return path.open("rb")
    except FileNotFoundError:
        folder = path.parent if path.parent.is_dir() else Path()
        there = [one.name for one in folder.iterdir() if one.is_file()]
        near = difflib.get_close_matches(path.name, there, n=1, cutoff=0.7)
        more = f" Did you mean {folder / near[0]}?" if near else " Check its name and folder."
        raise ValueError(f"there is no file {name}.{more}") from None
    except OSError as error:
        raise ValueError(f"{name} cannot be read: {error.strerror}.") from None
    except ValueError as error:  # a folder, or a name with a zero byte
        raise ValueError(str(error)) from None


def spool(stream: Any) -> BinaryIO:
    """What comes through a pipe, in a temporary file: it is read more than once."""
    if stream.isatty():
        raise ValueError("standard input is a terminal. Pipe a table into it, or name a file.")
    copy = tempfile.TemporaryFile()  # noqa: SIM115
    shutil.copyfileobj(stream, copy)
    return copy


def suggest_name(name: str, there: list[str]) -> str:
    """The nearest name, and those that there are."""
    near = difflib.get_close_matches(name, there, n=1, cutoff=0.5)
    shown = ", ".join(there[:20]) + (", …" if len(there) > 20 else "")
    return (f" Did you mean {near[0]!r}?" if near else "") + f" There are: {shown or 'none'}."


@contextmanager
def reading(source: Input) -> Iterator[None]:
    """Turn whatever a reader says of a broken file into one sentence."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f"{error}; reading tables needs pip install 'meanmap[cli]'") from error
    except Mended:
        raise
    except MemoryError:
        raise ValueError(
            f"{source.name} does not fit into memory: it needs about {amount(source.memory)}. "
            "Give fewer rows or columns."
        ) from None
    except UnicodeDecodeError:
        raise ValueError(
            f"{source.name} is no table: neither text in UTF-8 nor Parquet, Arrow or npz. Save it "
            "as one of these."
        ) from None
    except Exception as error:  # a broken file makes every reader fail in ways of its own
        words = first_line(error)
        fields = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", words)
        if fields is not None:
            expected, line, found = fields.groups()
            words = f"line {line} has {found} fields where the others have {expected}"
        kind = "a table" if source.kind == "text" else f"{source.kind} data"
        raise ValueError(
            f"{source.name} cannot be read as {kind}, it seems broken: {words}. Mend or export it "
            "anew."
        ) from None


class Mended(ValueError):
    """A problem that has its words already."""


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
    """Bytes that a program can have now, what the system keeps for speed included."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        return 1024 * int(text.partition("MemAvailable:")[2].split()[0])
    except (OSError, IndexError, ValueError):
        return free_memory()


# --- frames ---------------------------------------------------------------------------------------


def frames(source: Input, batch: int | None = None) -> Iterator[tuple[Any, dict[str, list[str]]]]:
    """The table in one piece, or in batches of so many rows, and the columns of each vector.

    Columns are as the file has them; `vectors` names the columns that a vector was split into.
    """
    readers: dict[str, Callable[[Input, int | None], Iterator[Any]]] = {
        "text": texts,
        "Parquet": parquets,
        "Arrow": arrows,
        "Arrow stream": arrow_streams,
        "npz": archives,
        "npy": archives,
    }
    with reading(source):
        for frame in readers[source.kind](source, batch):
            yield split_vectors(source, frame)


def texts(source: Input, batch: int | None) -> Iterator[Any]:
    """CSV, TSV, or text with another separator that the first line shows."""
    import pandas as pd

    with source.open() as stream:
        head = stream.read(HEAD)
    wide = head.startswith((b"\xff\xfe", b"\xfe\xff"))
    if b"\0" in head and not wide:
        raise Mended(
            f"{source.name} is binary and none of Parquet, Arrow and npz. Save it as one of these, "
            "or as CSV."
        )
    encoding = "utf-16" if wide else "utf-8-sig"
    # the last line of the head may end in the middle of a letter
    sample = head.decode(encoding, errors="ignore" if len(head) == HEAD else "strict")
    lines = [line for line in sample.splitlines() if line.strip()]
    if not lines:
        raise Mended(f"{source.name} is empty. Give a table with a header and rows.")
    separator = separator_of(source.name, lines[0])
    names = next(csv.reader([lines[0]], delimiter=separator, skipinitialspace=True))
    plain = all(is_number(name) for name in names)
    decimal = "." if separator == "," or not re.search(r"\d,\d", sample) else ","
    if not plain:
        once(source.name, names)
    options: dict[str, Any] = {
        "sep": separator,
        "encoding": encoding,
        "skipinitialspace": True,
        "decimal": decimal,
        "header": None if plain else 0,
    }
    if plain:
        options["names"] = [f"x{i}" for i in range(len(names))]
    if batch is None:
        pieces: Any = [pd.read_csv(source.open(), low_memory=False, **options)]
    else:
        pieces = pd.read_csv(source.open(), chunksize=batch, **options)
    for frame in pieces:
        if not isinstance(frame.index, pd.RangeIndex):
            raise Mended(
                f"{source.name}: rows have more fields than the {len(names)} of the first line. "
                "Give every column a name."
            )
        yield frame


def separator_of(name: str, line: str) -> str:
    """What stands between the fields of a line."""
    if name.endswith((".tsv", ".tab")):
        return "\t"
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
    """Refuse columns that appear twice."""
    twice = [column for column, times in Counter(columns).items() if times > 1]
    if twice:
        raise Mended(f"{name}: columns appear twice: {', '.join(twice[:5])}. Rename them.")


def parquet(source: Input) -> Any:
    """The file as pyarrow has it."""
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(source.open())


def parquets(source: Input, batch: int | None) -> Iterator[Any]:
    found = parquet(source)
    once(source.name, found.schema_arrow.names)
    if batch is None:
        yield found.read().to_pandas(ignore_metadata=True)
        return
    for piece in found.iter_batches(batch_size=batch):
        yield arrow_table(piece).to_pandas(ignore_metadata=True)


def arrows(source: Input, batch: int | None) -> Iterator[Any]:
    import pyarrow.ipc

    found = pyarrow.ipc.open_file(source.open())
    once(source.name, found.schema.names)
    if batch is None:
        yield found.read_all().to_pandas(ignore_metadata=True)
        return
    for i in range(found.num_record_batches):
        yield from pieces_of(found.get_batch(i), batch)


def arrow_streams(source: Input, batch: int | None) -> Iterator[Any]:
    import pyarrow.ipc

    found = pyarrow.ipc.open_stream(source.open())
    once(source.name, found.schema.names)
    if batch is None:
        yield found.read_all().to_pandas(ignore_metadata=True)
        return
    for piece in found:
        yield from pieces_of(piece, batch)


def arrow_table(piece: Any) -> Any:
    import pyarrow

    return pyarrow.Table.from_batches([piece])


def pieces_of(piece: Any, batch: int) -> Iterator[Any]:
    """A record batch, which may be large, in frames of so many rows."""
    for start in range(0, max(piece.num_rows, 1), batch):
        yield arrow_table(piece.slice(start, batch)).to_pandas(ignore_metadata=True)


def archives(source: Input, batch: int | None) -> Iterator[Any]:
    """Arrays of NumPy, which have one length; those of more axes become vectors."""
    import pandas as pd

    found: Any = np.load(source.open(), allow_pickle=False)
    arrays = {"x": found} if isinstance(found, np.ndarray) else {k: found[k] for k in found.files}
    lengths = {name: len(a) if a.ndim else None for name, a in arrays.items()}
    if not arrays or len(set(lengths.values())) > 1 or None in lengths.values():
        shown = ", ".join(f"{name} {a.shape}" for name, a in arrays.items()) or "none"
        raise Mended(f"{source.name}: arrays must have one row each a row; there are {shown}.")
    columns = {}
    for name, array in arrays.items():
        if array.dtype.kind == "S":
            array = np.char.decode(array, "utf-8")
        if array.dtype.kind not in "fiubUM":
            raise Mended(
                f"{source.name}: array {name!r} holds {array.dtype}; numbers, text and dates are "
                "understood."
            )
        columns[name] = array if array.ndim == 1 else list(array.reshape(len(array), -1))
    frame = pd.DataFrame(columns)
    for start in range(0, len(frame), batch or max(len(frame), 1)):
        yield frame.iloc[start : start + (batch or len(frame))].reset_index(drop=True)
    if not len(frame):
        yield frame


def split_vectors(source: Input, frame: Any) -> tuple[Any, dict[str, list[str]]]:
    """Vectors as columns of their own; a column of row numbers, which has no name, left out."""
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
            raise Mended(f"{source.name}: column {column!r} holds vectors of different lengths.")
        vectors[column] = [f"{column}_{i}" for i in range(size)]
        stacked = np.array([np.asarray(v) for v in values]).reshape(len(values), size)
        parts.append(pd.DataFrame(stacked, columns=vectors[column], index=frame.index))
    if vectors:
        frame = pd.concat(parts, axis=1)
        once(source.name, list(frame.columns))
    return frame, vectors


def row_numbers(column: str) -> bool:
    """Whether a first column is the index of pandas, written along."""
    return column == "Unnamed: 0" or column.startswith("__index_level_")
