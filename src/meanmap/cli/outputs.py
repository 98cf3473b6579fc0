"""Files that are written: never over another without --force, never by halves."""

from __future__ import annotations

import importlib.util
import io
import json
import math
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from meanmap.report.answers import Answer

PICTURES = (".png", ".svg", ".pdf")
TABLES = (".csv", ".tsv", ".parquet", ".feather", ".arrow", ".npz")
PAGES = (".html", ".htm")


@dataclass(frozen=True)
class Outputs:
    """Where an answer goes, beside the screen."""

    as_json: bool = False
    report: Path | None = None
    plot: Path | None = None
    output: Path | None = None
    force: bool = False
    quiet: bool = False

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Outputs:
        """From the options of a command, by their names in its signature."""
        named = {one.name: values[one.name] for one in fields(cls) if one.name in values}
        return cls(as_json=values["json"], **named)

    def check(self) -> None:
        """Refuse before the work what could not be written after it."""
        named = {"--report": self.report, "--plot": self.plot, "--output": self.output}
        given = {option: path for option, path in named.items() if path is not None}
        endings = {"--report": PAGES, "--plot": PICTURES, "--output": TABLES}
        for option, path in given.items():
            if path.suffix.lower() not in endings[option]:
                raise ValueError(
                    f"{option} {path}: the name must end in {', '.join(endings[option])}."
                )
            writable(path, self.force)
        if len({path.resolve() for path in given.values()}) < len(given):
            raise ValueError("two outputs have the same name. Name two files.")
        if self.plot is not None and importlib.util.find_spec("matplotlib") is None:
            raise ImportError("--plot needs matplotlib: pip install 'meanmap[plot]'")

    def write(self, contents: Mapping[Path | None, bytes]) -> None:
        """Write files, all of them or none."""
        write_all({path: data for path, data in contents.items() if path is not None}, self.force)


def writable(path: Path, force: bool) -> None:
    """Refuse a file that is there, or a folder that is not."""
    folder = path.parent
    if not folder.is_dir():
        raise ValueError(f"cannot write {path}: there is no folder {folder}. Make it first.")
    if path.is_dir() or (path.exists() and not path.is_file()):
        raise ValueError(f"cannot write {path}: it is no plain file. Name another.")
    if path.exists() and not force:
        raise ValueError(f"{path} is there already. Name another file, or give --force.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"cannot write {path}: no permission to write in {folder}.")


def write_all(contents: Mapping[Path, bytes], force: bool) -> None:
    """Write to temporary files beside the targets, then rename; on any trouble leave nothing."""
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
            writable(target, force)
            os.replace(beside, target)
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror}. Nothing was written.") from error
    finally:
        for beside, _ in made:
            beside.unlink(missing_ok=True)


# --- contents -------------------------------------------------------------------------------------


def picture_bytes(answers: Sequence[Answer], path: Path) -> bytes:
    """All pictures of the answers, one above the other."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = [picture for answer in answers for picture in answer.pictures]
    if not drawn:
        raise ValueError(f"there is nothing to draw in {path}. Leave --plot out.")
    rows = [(one, at) for one in drawn for at in range(0, one.panels, 3)]
    figure = Figure(figsize=(9, 3.6 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)  # needs no window
    pieces = np.ravel(figure.subfigures(len(rows), 1, squeeze=False))
    places: dict[int, list[Any]] = {}
    for piece, (one, at) in zip(pieces, rows, strict=True):
        across = min(3, one.panels - at)
        places.setdefault(id(one), []).extend(np.ravel(piece.subplots(1, across)))
    for one in drawn:
        one.draw(places[id(one)])
    return figure_bytes(figure, path)


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
        frame.to_csv(buffer, sep="\t" if kind == ".tsv" else ",", index=False)
    elif kind == ".parquet":
        frame.to_parquet(buffer, index=False)
    elif kind == ".npz":
        arrays = {name: frame[name].to_numpy() for name in frame}
        arrays = {
            k: np.where(frame[k].isna(), "", a) if a.dtype == object else a
            for k, a in arrays.items()
        }
        text = {k: a.astype(str) for k, a in arrays.items() if a.dtype.kind not in "fiub"}
        np.savez(buffer, **{**arrays, **text})
    else:
        frame.to_feather(buffer)
    return buffer.getvalue()


def as_json(answer: Answer) -> dict[str, Any]:
    """An answer for programs: its values, and where they come from."""
    sources = [
        {"name": one.name, "rows": one.rows, "columns": dict(one.columns)} for one in answer.sources
    ]
    extra = {
        "title": answer.title,
        "headline": answer.headline,
        "settings": dict(answer.settings),
        "sources": sources,
        "command": answer.command,
    }
    found = plain_values(
        {**answer.values, **{k: v for k, v in extra.items() if k not in answer.values}}
    )
    assert isinstance(found, dict)
    return found


def json_text(value: Any) -> str:
    """As JSON, which knows no NaN."""
    return json.dumps(plain_values(value), indent=2, ensure_ascii=False, allow_nan=False)


def plain_values(value: Any) -> Any:
    """Anything as numbers, text, lists and dicts; None for what is not finite."""
    if isinstance(value, Mapping):
        return {str(key): plain_values(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        return plain_values(value.tolist())
    if isinstance(value, list | tuple):
        return [plain_values(one) for one in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, str) else str(value)
