"""Files of every format: opened, unpacked, and recognised by their first bytes."""

from __future__ import annotations

import difflib
import io
import lzma
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

from meanmap.cli.options import TableOptions
from meanmap.exceptions import warn
from meanmap.statistics.tiles import free_memory

DATA = Path(__file__).parent.parent / "data"  # tables that come with the package, by "@name"
MAGIC = {
    b"PAR1": "Parquet",
    b"ARROW1": "Arrow",
    b"\xff\xff\xff\xff": "Arrow stream",
    b"PK\x03\x04": "npz",
    b"PK\x05\x06": "npz",
    b"\x93NUMPY": "npy",
    b"\xd0\xcf\x11\xe0": "Excel",
    b"SQLite format 3": "SQLite",
}
SHEETS = {"[Content_Types].xml", "mimetype"}  # of which a spreadsheet has one
PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"(\xb5/\xfd": "zstd", b"\xfd7zXZ": "xz"}
JSON = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:\{\s*["}]|\[\s*[][{"\d.tfn-])')
LINES = re.compile(rb"\}\s*\n\s*\{")  # between objects of JSON lines, and nowhere in JSON
WIDE = (b"\xff\xfe", b"\xfe\xff")  # the first bytes of UTF-16
HEAD = 1 << 16  # bytes that show the format of text
DATABASE = re.compile(r"(?:sqlite|duckdb):///([^?]+)(?:\?(table|query)=(.+))?", re.S)
#: Bytes in memory per byte of the file while pandas reads it, measured and rounded up
GROWTH = {"Parquet": 2, "npz": 2, "npy": 2, "Excel": 5, "JSON": 8, "JSON lines": 8, "DuckDB": 10}


@dataclass(frozen=True, eq=False)
class Input:
    """An open file and its format, recognised by its first bytes; `options` say how to read it."""

    name: str
    stream: BinaryIO
    kind: str
    size: int
    options: TableOptions

    def open(self) -> BinaryIO:
        """A copy of the stream at its beginning, which readers may close."""
        copy = os.fdopen(os.dup(self.stream.fileno()), "rb")
        copy.seek(0)
        return copy

    @property
    def memory(self) -> int:
        """About how many bytes it takes in memory."""
        size = self.size
        if self.kind in ("npz", "Excel") and zipfile.is_zipfile(self.open()):
            with reading(self), zipfile.ZipFile(self.open()) as archive:
                size = sum(part.file_size for part in archive.infolist())
        elif self.kind == "Parquet":
            with reading(self):
                from pyarrow.parquet import ParquetFile

                about = ParquetFile(self.open()).metadata
                groups = range(about.num_row_groups)
                size = sum(about.row_group(i).total_byte_size for i in groups)
        return GROWTH.get(self.kind, 3) * size

    @cached_property
    def encoding(self) -> str:
        """The encoding of a text file: UTF-8, or what else can be read; that is reported."""
        with self.open() as stream:
            wide = "utf-16" if stream.read(2) in WIDE else ""
        if self.options.encoding or wide:
            return self.options.encoding or wide
        for encoding in ("utf-8-sig", "cp1252", "latin-1"):
            with io.TextIOWrapper(self.open(), encoding=encoding) as text:
                try:
                    while text.read(1 << 20):
                        pass
                except UnicodeDecodeError:
                    continue
            break
        if encoding != "utf-8-sig":
            warn(
                f"{self.name} is not in UTF-8 and is read as {encoding} (Western European). If "
                "letters look wrong, name its encoding, such as --encoding cp1251.",
                UserWarning,
            )
        return encoding


def open_input(name: str, options: TableOptions) -> Input:
    """Open a file, standard input for "-", a table of the package ("@name"), or a database."""
    url = DATABASE.fullmatch(name)
    stream = spool(sys.stdin.buffer) if name == "-" else file(url[1] if url else name)
    if not stream.seekable():
        stream = spool(stream)
    name = "standard input" if name == "-" else name
    stream, kind = recognize(name, stream)
    if url and kind not in ("SQLite", "DuckDB"):
        raise ValueError(f"{url[1]} is not a database. Leave out {name.partition('///')[0]}///.")
    return Input(name, stream, kind, stream.seek(0, os.SEEK_END), options)


def recognize(name: str, stream: BinaryIO, packed: str = "") -> tuple[BinaryIO, str]:
    """A stream, unpacked if it is compressed, and its format."""
    import pyarrow

    stream.seek(0)
    first = stream.read(HEAD)
    if not first:
        raise ValueError(f"{name} is empty. Give a table with a header and rows.")
    kind = next((kind for magic, kind in (MAGIC | PACKED).items() if first.startswith(magic)), "")
    names = archive_names(stream)
    stream.seek(0)
    if kind == "npz" and (SHEETS & set(names) or name.lower().endswith((".xlsx", ".ods"))):
        kind = "Excel"
    elif kind == "npz" and [Path(one).suffix for one in names] == [".csv"]:
        kind = "zip"
    if kind in ("zip", *PACKED.values()):
        try:
            if packed:
                raise OSError(f"{packed} in {kind}")
            if kind == "zip":
                return recognize(name, spool(zipfile.ZipFile(stream).open(names[0])), "zip")
            unpack = {"xz": lzma.LZMAFile}.get(kind, pyarrow.CompressedInputStream)
            return recognize(name, spool(unpack(stream, *[kind] * (kind != "xz"))), kind)
        except (OSError, EOFError, lzma.LZMAError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{name} is compressed with {kind} and cannot be read: {first_line(error)}. "
                "Decompress it."
            ) from None
    if not kind and JSON.match(first):
        kind = "JSON lines" if first.lstrip()[:1] != b"[" and LINES.search(first) else "JSON"
    return stream, "DuckDB" if first[8:12] == b"DUCK" else kind or "text"


def archive_names(stream: BinaryIO) -> list[str]:
    """The files in a zip archive; none where it is damaged, which its reader reports."""
    try:
        return zipfile.ZipFile(stream).namelist()
    except Exception:  # damage shows in many ways
        return []


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
    if stream is sys.stdin.buffer and stream.isatty():
        raise ValueError("standard input is a terminal. Pipe a table into it, or name a file.")
    copy = tempfile.TemporaryFile()  # noqa: SIM115
    room = shutil.disk_usage(tempfile.gettempdir()).free // 2
    while block := stream.read(1 << 20):
        copy.write(block)
        if copy.tell() > room:
            raise ValueError(f"more than {amount(room)} come out of a file or pipe: too much here.")
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
        other = re.search(r"duckdb|xlrd|odfpy", str(error))
        package = other[0] if other else "'meanmap[cli]'"
        words = f"{source.name}: {first_line(error)}; reading it needs pip install {package}"
        raise ImportError(words) from error
    except KnownProblem:
        raise
    except MemoryError:
        raise ValueError(
            f"{source.name} does not fit into memory: it needs about {amount(source.memory)}. "
            "Give fewer rows or columns."
        ) from None
    except UnicodeError:
        raise ValueError(
            f"{source.name} is not text in {source.encoding}. Give its own --encoding, or save it "
            "as CSV in UTF-8."
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
