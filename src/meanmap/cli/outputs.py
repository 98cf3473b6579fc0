"""Files that are written: never over another without --force, and never in part."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from meanmap.cli.readers import is_number
from meanmap.cli.screen import JSON_ESCAPED
from meanmap.report.answers import Answer, plain_values

ENDINGS = {
    "--report": (".html", ".htm"),
    "--plot": (".png", ".svg", ".pdf"),
    "--output": (".csv", ".tsv", ".parquet", ".feather", ".arrow", ".npz"),
}
FORMULA = tuple("=+-@\t\r\n")  # what a cell begins with that a spreadsheet would run


def check_outputs(paths: Mapping[str, Path], force: bool) -> None:
    """Refuse before the work what could not be written after it; paths by option."""
    for option, path in paths.items():
        if path.suffix.lower() not in ENDINGS[option]:
            raise ValueError(f"{option} {path}: the name must end in {', '.join(ENDINGS[option])}.")
        check_writable(path, force)
    if len({path.resolve() for path in paths.values()}) < len(paths):
        raise ValueError("two outputs have the same name. Give each its own.")
    if "--plot" in paths and importlib.util.find_spec("matplotlib") is None:
        raise ImportError("--plot needs matplotlib: pip install 'meanmap[plot]'")


def check_writable(path: Path, force: bool) -> None:
    """Refuse a file that exists, or a folder that does not."""
    folder = path.parent
    if not folder.is_dir():
        raise ValueError(f"cannot write {path}: there is no folder {folder}. Create it first.")
    if path.is_dir() or (path.exists() and not path.is_file()):
        raise ValueError(f"cannot write {path}: it is not a regular file. Choose another name.")
    if path.exists() and not force:
        raise ValueError(f"{path} already exists. Choose another name, or use --force.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"cannot write {path}: no permission to write in {folder}.")


def write_all(contents: Mapping[Path, bytes], force: bool) -> None:
    """Write all files or none: under temporary names beside the targets, then renamed."""
    made: list[tuple[Path, Path]] = []
    path = None
    try:
        for path, data in contents.items():
            target = path.resolve()
            beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
            made.append((beside, target))
            with open(beside, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        for beside, target in made:
            path = target
            check_writable(target, force)
            os.replace(beside, target)
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror}. Nothing was written.") from error
    finally:
        for beside, _ in made:
            beside.unlink(missing_ok=True)


# --- contents -------------------------------------------------------------------------------------


def picture_bytes(answers: Sequence[Answer], path: Path) -> bytes:
    """All pictures of the answers, stacked."""
    from meanmap.report.pictures import draw_pictures

    pictures = [picture for answer in answers for picture in answer.pictures]
    if not pictures:
        raise ValueError(f"there is nothing to draw for {path}. Leave out --plot.")
    return figure_bytes(draw_pictures(pictures), path)


def figure_bytes(figure: Any, path: Path) -> bytes:
    """A figure in the format of the path."""
    buffer = io.BytesIO()
    kind = path.suffix.lower()[1:]
    # without a date the same answer gives the same file
    nothing = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    figure.savefig(buffer, format=kind, dpi=140, metadata=nothing)
    return buffer.getvalue()


def table_bytes(columns: Mapping[str, Any], path: Path) -> bytes:
    """A table in the format of the path."""
    import pandas as pd

    frame, buffer = pd.DataFrame(dict(columns)), io.BytesIO()
    kind = path.suffix.lower()
    if kind in (".csv", ".tsv"):
        text = frame.select_dtypes(exclude=["number", "bool"])
        frame = frame.assign(**{name: text[name].map(as_text_cell) for name in text})
        frame = frame.rename(columns=as_text_cell)
        # pandas does not quote a carriage return by itself, and it would start a new row
        plain = not text.map(lambda value: "\r" in str(value)).to_numpy().any()
        quoting = csv.QUOTE_MINIMAL if plain else csv.QUOTE_NONNUMERIC
        separator = "\t" if kind == ".tsv" else ","
        frame.to_csv(buffer, sep=separator, index=False, quoting=quoting)
    elif kind == ".parquet":
        frame.to_parquet(buffer, index=False)
    elif kind == ".npz":
        arrays: dict[str, Any] = {name: npz_array(frame[name]) for name in frame}
        np.savez(buffer, **arrays)
    else:
        frame.to_feather(buffer)
    return buffer.getvalue()


def as_text_cell(value: Any) -> Any:
    """Text that a spreadsheet would run as a formula behind an apostrophe, as OWASP advises."""
    runs = isinstance(value, str) and value.startswith(FORMULA) and not is_number(value)
    return f"'{value}" if runs else value


def npz_array(column: Any) -> np.ndarray:
    """A column as NumPy stores it: numbers, or text with "" for missing values."""
    array = column.to_numpy()
    if array.dtype.kind in "fiub":
        return array
    return np.where(column.isna(), "", array).astype(str)


def as_json(answer: Answer) -> dict[str, Any]:
    """An answer for programs: its values, and where they come from."""
    extra = {
        "notes": answer.notes,
        "title": answer.title,
        "headline": answer.headline,
        "settings": answer.settings,
        "sources": [vars(one) for one in answer.sources],
        "command": answer.command,
    }
    own = {key: value for key, value in extra.items() if key not in answer.values}
    return {**answer.values, **plain_values(own)}


def json_text(value: Any) -> str:
    """As JSON, which has no NaN."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    return text.translate(JSON_ESCAPED)
