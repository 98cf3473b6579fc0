"""The file on disk: written whole or not at all, read with suspicion."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
import secrets
import stat
import time
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from meanmap import checks
from meanmap.persistence.classes import (
    AGAIN,
    DISTRUST,
    MANIFEST,
    PACKAGE,
    Refused,
    array_name,
    own_version,
)
from meanmap.persistence.reading import Reader, show_node
from meanmap.persistence.writing import encode

FORMAT = 1
MAX_BYTES = 4 << 30  # what `load` takes unless told otherwise
MAX_MANIFEST = 1 << 28
#: What a manifest takes in memory when it is read, at most: numbers and text grow tenfold, every
#: list or dict has a head; and how much is allowed whatever `max_bytes` is.
GROWTH, HEAD, SMALL = 10, 320, 1 << 26
STALE = 3600  # seconds after which an incomplete file is deleted


def save(obj: Any, path: str | os.PathLike[str]) -> None:
    """Write a kernel, space, embedding, conditional or any other object of meanmap to a file.

    The file holds data only, no code: a kernel that is a Python function is refused. It appears
    under its name when it is complete; if anything goes wrong nothing is written, and a file that
    was there stays as it was. The same object gives the same bytes.

    Parameters
    ----------
    obj : object of meanmap, or lists, tuples and dicts of them, of arrays and of plain values
        Arrays of every plain dtype, of NumPy and other libraries (from their device, without
        gradients); what an object refers to twice is stored once.
    path : file name
        Used as it is; no ending is added. `.npz` suits: `numpy.load` shows the arrays.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from meanmap import ConditionalEmbedding
    >>> from meanmap.persistence import load, save
    >>> X = np.linspace(0, 3, 50)[:, None]
    >>> model = ConditionalEmbedding().fit(X, np.sin(X))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.npz")
    ...     save(model, path)
    ...     again = load(path)
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    target = _target(path)
    writer, root = encode(obj)
    manifest = {
        "format": PACKAGE,
        "version": FORMAT,
        "written by": own_version(),
        "root": root,
        "nodes": writer.nodes,
    }
    text = json.dumps(manifest, separators=(",", ":"), allow_nan=False).encode()
    if len(text) > MAX_MANIFEST:
        raise ValueError(
            f"obj holds {len(text):,} bytes of text, names and lists beside its arrays; a file "
            f"takes {MAX_MANIFEST:,}. Keep numbers and labels in NumPy arrays instead of lists."
        )
    if _memory_needed(text) > MAX_BYTES:
        raise ValueError(
            "obj holds too many lists, dicts and other objects for a file that can be read in "
            f"{MAX_BYTES:,} bytes of memory. Keep numbers and labels in NumPy arrays instead."
        )
    _remove_stale(target)
    _write(target, text, writer.arrays)


def fingerprint(obj: Any) -> str:
    """A short text that is the same for equal objects and, to all intents, for no others.

    Parameters
    ----------
    obj : anything that `save` takes

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.kernels import Gaussian
    >>> from meanmap.persistence import fingerprint
    >>> fingerprint(Gaussian(1.0)) == fingerprint(Gaussian(1.0))
    True
    >>> fingerprint(np.zeros(3)) == fingerprint(np.ones(3))
    False
    """
    writer, root = encode(obj)
    digest = hashlib.sha256(json.dumps([root, writer.nodes], allow_nan=False).encode())
    for array in writer.arrays:
        digest.update(f"{array.dtype.str}{array.shape}{array.flags.c_contiguous}".encode())
        digest.update(array.tobytes("A"))
    return digest.hexdigest()


def load(path: str | os.PathLike[str], *, max_bytes: int | None = MAX_BYTES) -> Any:
    """Read an object that `save` wrote. Nothing in the file is run, whoever made it.

    Arrays come back bit for bit and in the same memory layout, in the library that they were in,
    torch's on CUDA if they were and there is one, others on the library's default device. Where
    the library is not installed they come back as NumPy arrays, with a warning: a model then works
    on NumPy.

    Parameters
    ----------
    path : file name
    max_bytes : int or None
        Files larger than this are refused, and files whose lists, dicts and names would take more
        memory than this (64 MiB of them are always allowed); arrays never take more memory than
        the file's size. None for no limit.

    Raises
    ------
    ValueError
        If the file is not a meanmap file, of a newer format, cut short, damaged, too large, or asks
        for anything but data.

    Examples
    --------
    >>> import os, tempfile
    >>> from meanmap.kernels import Gaussian
    >>> from meanmap.persistence import load, save
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "kernel")
    ...     save(Gaussian(0.5) + 1, path)
    ...     load(path)
    Gaussian(bandwidth=0.5) + 1
    """
    name = _as_path(path)
    if max_bytes is not None:
        remedy = "It is the size of the largest file to read; None for no limit."
        checks.positive(max_bytes, "max_bytes", remedy)
    if not name.exists():
        raise FileNotFoundError(f"there is no file {str(name)!r}. Check the path.")
    if not name.is_file():
        raise ValueError(f"{str(name)!r} is not a regular file. Name one that meanmap.save wrote.")
    with open(name, "rb") as file:
        try:
            return _read_archive(file, math.inf if max_bytes is None else max_bytes)
        except Refused as refused:
            reason = str(refused)
        except MemoryError:
            raise
        except Exception as error:  # whatever a hostile file may provoke, it is the file's fault
            reason = f"is damaged ({type(error).__name__}: {str(error)[:100]}). {AGAIN}"
    raise ValueError(f"{str(name)!r} {reason}")


def _as_path(path: Any) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path: expected a file name, got {checks.describe(path)}.")
    return Path(path)


def _target(path: Any) -> Path:
    """Where to write, links followed; refused if no file can be there."""
    target = Path(os.path.realpath(_as_path(path)))
    if target.is_dir():
        raise IsADirectoryError(
            f"path: expected the name of a file, got the folder {str(path)!r}. Add a name: "
            f"{os.path.join(str(path), 'model.npz')!r}."
        )
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"path: there is no folder {str(target.parent)!r} to write to. Make it first."
        )
    if target.exists() and not target.is_file():
        raise ValueError(f"path: {str(path)!r} is a device or a pipe; expected a file's name.")
    return target


def _write(target: Path, manifest: bytes, arrays: list[np.ndarray]) -> None:
    """All or nothing: a file beside the target that takes its name when it is complete."""
    ours = f"{_machine()}-{os.getpid()}-{secrets.token_hex(8)}"
    beside = target.with_name(f".{target.name[:100]}.{ours}.tmp")
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0)
    handle = os.open(beside, flags, 0o666)  # the user's umask decides
    try:
        with os.fdopen(handle, "w+b") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                archive.writestr(_member(MANIFEST), manifest)
                for index, array in enumerate(arrays):
                    large = array.nbytes > 1 << 30
                    with archive.open(_member(array_name(index)), "w", force_zip64=large) as out:
                        np.lib.format.write_array(out, array, version=(1, 0), allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            os.chmod(beside, stat.S_IMODE(target.stat().st_mode))
        os.replace(beside, target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _machine() -> str:
    """This machine, as names of files have it: processes are numbered by machine."""
    return f"{zlib.crc32(platform.node().encode()):08x}"


def _remove_stale(target: Path) -> None:
    """Remove what a process that was killed while it saved to this target has left behind."""
    start = re.escape(f".{target.name[:100]}.")
    pattern = re.compile(start + r"([0-9a-f]{8})-(\d{1,10})-[0-9a-f]{16}\.tmp")
    with suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            match = pattern.fullmatch(entry.name)
            if match is None or not entry.is_file(follow_symlinks=False):
                continue
            with suppress(OSError):  # gone already, or not ours to remove
                old = time.time() - entry.stat().st_mtime > STALE
                if old or (match[1] == _machine() and not _is_running(int(match[2]))):
                    os.unlink(entry.path)


def _is_running(process: int) -> bool:
    """Whether there is a process of this number; yes where it cannot be known."""
    if os.name != "posix":  # elsewhere the question would end it
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _member(name: str) -> zipfile.ZipInfo:
    """A member with a fixed date, so that the same object gives the same bytes."""
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.external_attr = 0o644 << 16
    info.create_system = 3
    return info


def _memory_needed(text: bytes) -> int:
    """How much memory a manifest may take when it is read, at most."""
    return GROWTH * len(text) + HEAD * (text.count(b"{") + text.count(b"["))


def _read_archive(file: BinaryIO, max_bytes: float) -> Any:
    size = os.fstat(file.fileno()).st_size
    if size > max_bytes:
        raise Refused(
            f"has {size:,} bytes, more than max_bytes={max_bytes:,} allows. If you trust it, use "
            f"meanmap.load(path, max_bytes={size})."
        )
    start = file.read(8)
    if not start.startswith(b"PK\x03\x04"):
        raise Refused(
            f"is not a meanmap file: expected a zip archive with {MANIFEST}, got {_guess(start)}. "
            "Name a file that meanmap.save wrote."
        )
    try:
        archive = zipfile.ZipFile(file)
    except Exception:  # zipfile has many ways to say so
        raise Refused(
            f"is cut short or damaged: expected a complete zip archive, got {size:,} bytes without "
            f"a table of contents. {AGAIN}"
        ) from None
    with archive:
        members = _members(archive, size)
        with archive.open(members.pop(MANIFEST)) as member:
            text = member.read()
        needed = _memory_needed(text)
        if needed > max(max_bytes, SMALL):
            raise Refused(
                f"has {len(text):,} bytes of lists, dicts and names in {MANIFEST}, which may take "
                f"{needed:,} bytes of memory, more than max_bytes={max_bytes:,} allows. If you "
                f"trust it, use meanmap.load(path, max_bytes={needed})."
            )
        manifest = json.loads(text.decode("utf-8"), parse_constant=_no_constant)
        _check_version(manifest)
        return Reader(archive, members, len(text)).root(manifest)


def _guess(start: bytes) -> str:
    """What a file is that is not a zip archive."""
    known = {
        b"\x80": "a pickle (loading one runs code, so meanmap does not)",
        b"\x93NUMPY": "a single .npy array (numpy.load reads it)",
        b"\x89HDF": "an HDF5 file",
        b"\x1f\x8b": "a gzip file (unpack it first)",
        b"PK\x05\x06": "an empty zip archive",
    }
    if not start:
        return "an empty file"
    found = [text for magic, text in known.items() if start.startswith(magic)]
    return found[0] if found else f"something that starts with {start!r}"


def _members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """The archive's members by name, none of which can be larger than the file."""
    members: dict[str, zipfile.ZipInfo] = {}
    total = 0
    for info in archive.infolist():
        if info.filename in members:
            raise Refused(f"holds {info.filename!r:.80} twice. {DISTRUST}")
        if info.filename != MANIFEST and not re.fullmatch(r"arrays/\d{1,9}\.npy", info.filename):
            if MANIFEST not in archive.namelist():
                break
            raise Refused(
                f"holds a member {info.filename!r:.80}; expected {MANIFEST} and arrays/0.npy, "
                f"arrays/1.npy, … only. {DISTRUST}"
            )
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise Refused(
                f"holds {info.filename!r} compressed; meanmap.save does not compress, and what "
                "unfolds is refused. Load it where it was written and save it again."
            )
        total += info.file_size
        members[info.filename] = info
    if MANIFEST not in members:
        raise Refused(
            f"is not a meanmap file: expected a zip archive with {MANIFEST}, got one without (an "
            ".npz of NumPy's own is read with numpy.load). Name a file that meanmap.save wrote."
        )
    if total > size or members[MANIFEST].file_size > MAX_MANIFEST:
        largest = max(info.file_size for info in members.values())
        raise Refused(
            f"declares members of {total:,} bytes (the largest {largest:,}) in a file of {size:,}, "
            f"with at most {MAX_MANIFEST:,} for {MANIFEST}. {DISTRUST}"
        )
    return members


def _no_constant(name: str) -> Any:
    raise Refused(f"has {name} in {MANIFEST}, which is not JSON. {DISTRUST}")


def _check_version(manifest: Any) -> None:
    if not isinstance(manifest, dict) or manifest.get("format") != PACKAGE:
        raise Refused(
            f'is not a meanmap file: expected "format": "{PACKAGE}" in {MANIFEST}, got '
            f"{show_node(manifest)}. Name a file that meanmap.save wrote."
        )
    version = manifest.get("version")
    if type(version) is not int or version != FORMAT:
        newer = type(version) is int and version > FORMAT
        raise Refused(
            f"has format version {version!r:.40}, written by meanmap "
            f"{manifest.get('written by')!r:.40}; this is meanmap {own_version()}, which reads "
            f"version {FORMAT}. "
            + ("Upgrade meanmap to read it." if newer else "There is no such version: " + DISTRUST)
        )
