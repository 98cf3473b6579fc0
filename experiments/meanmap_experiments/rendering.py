"""Pictures by POV-Ray, and files of arrays with their checksums: what rendered data sets share."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

__all__ = [
    "CHECKSUMS",
    "INSTALL",
    "checksums",
    "find_povray",
    "read_picture",
    "read_verified",
    "run_povray",
    "save_arrays",
    "sha256",
]

CHECKSUMS = "SHA256SUMS"

INSTALL = (
    "Install POV-Ray 3.7 or later (Debian, Ubuntu: apt-get install povray; macOS: brew install "
    "povray; else www.povray.org), with `povray` on the PATH."
)


# --- the renderer ---------------------------------------------------------------------------------


def find_povray() -> str:
    """Where the program is; an error that says how to install it, if it is nowhere."""
    program = shutil.which("povray")
    if program is None:
        raise RuntimeError(f"rendering needs the program `povray`, none was found. {INSTALL}")
    return program


def run_povray(program: str, folder: Path, options: Sequence[str]) -> None:
    """Run POV-Ray in a folder, in one thread and without a display."""
    # One thread: radiosity, for one, depends on the order in which samples are taken.
    command = [program, *options, "+WT1", "-D", "-P"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")
    if done.returncode:
        said = "\n".join(done.stderr.strip().splitlines()[-10:])
        raise RuntimeError(
            f"POV-Ray stopped with exit status {done.returncode}:\n{said}\n{INSTALL}"
        )


def read_picture(file: Path, height: int, width: int) -> np.ndarray:
    """A picture of the size that was asked for, from a binary PPM of 8 bits a colour."""
    if not file.is_file():
        raise RuntimeError(f"expected POV-Ray to write {file.name}, it did not. {INSTALL}")
    data, wanted = file.read_bytes(), 3 * height * width
    if not data.startswith(b"P6") or not wanted < len(data) < wanted + 1000:  # a header in front
        raise RuntimeError(
            f"expected a binary PPM of {height} × {width} pixels, POV-Ray wrote {len(data)} "
            f"bytes that begin with {data[:2]!r}. {INSTALL}"
        )
    return np.frombuffer(data[-wanted:], np.uint8).reshape(height, width, 3)


# --- files ----------------------------------------------------------------------------------------


def save_arrays(folder: Path, name: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a file that `numpy.load` reads and note its checksum in the folder's list."""
    # What numpy.savez writes, but packed by LZMA: a quarter smaller. Under another name until it is
    # whole, so that whoever is interrupted leaves no half file.
    unfinished = folder / f"{name}.part"
    with zipfile.ZipFile(unfinished, "w") as archive:
        for key, array in arrays.items():
            # A member made so has a fixed date: the same arrays give the same checksum.
            member = zipfile.ZipInfo(f"{key}.npy")
            member.compress_type = zipfile.ZIP_LZMA
            with archive.open(member, "w") as file:
                np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
    os.replace(unfinished, folder / name)
    noted = checksums(folder) | {name: sha256((folder / name).read_bytes())}
    lines = (f"{digest}  {file}\n" for file, digest in sorted(noted.items()))
    (folder / CHECKSUMS).write_text("".join(lines), encoding="ascii")


def read_verified(folder: Path, name: str, remedy: str) -> bytes:
    """The bytes of a file, if they are those whose checksum was noted; else an error and remedy."""
    path = folder / name
    expected = checksums(folder).get(name)
    if expected is None or not path.is_file():
        missing = path if not path.is_file() else f"a line for {name} in {folder / CHECKSUMS}"
        raise FileNotFoundError(f"expected {missing}, found none. {remedy}")
    data = path.read_bytes()
    if (came := sha256(data)) != expected:
        raise ValueError(f"{path} is damaged: SHA-256 {expected} expected, {came} came. {remedy}")
    return data


def checksums(folder: Path) -> dict[str, str]:
    """File name to SHA-256, as the folder's list (which `sha256sum --check` reads) has it."""
    path = folder / CHECKSUMS
    if not path.is_file():
        return {}
    pairs = (line.split() for line in path.read_text(encoding="ascii").splitlines())
    return {name: digest for digest, name in pairs}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
