"""`bench` and `demo`: the library at work on its own examples."""

# Without `from __future__ import annotations`: typer reads annotations.

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import PIPE
from typing import Annotated, Any

import typer

import meanmap
from meanmap.cli import FAILED
from meanmap.cli.app import Findings
from meanmap.cli.formats import suggest_name
from meanmap.cli.options import PageOptions, PictureOptions
from meanmap.cli.screen import say
from meanmap.report.answers import Answer, AnswerTable, Picture

# --- bench ----------------------------------------------------------------------------------------


def bench(
    names: Annotated[
        list[str] | None, typer.Argument(help="Benchmarks. Default: all of them.")
    ] = None,
    *,
    listed: Annotated[bool, typer.Option("--list", help="List the benchmarks.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with status 1 unless every bar holds.")
    ] = False,
    files: PageOptions,
) -> Findings | int:
    """Compare the speed of meanmap with its peers.

    Runs on this machine, and needs the source tree.

    \b
    For example:
      meanmap bench --list
    """
    code, answers = run_benchmarks(names or [], listed, check, files.json)
    code = FAILED if code else 0
    if answers and (files.json or files.report is not None):
        return Findings(answers, "Benchmarks", as_list=True, code=code)
    return code


def benchmarks() -> Path:
    """The folder of the benchmarks in the source tree."""
    for root in (Path(meanmap.__file__).resolve().parents[2], Path.cwd()):
        folder = root / "benchmarks"
        if (folder / "run.py").is_file() and (root / "src" / "meanmap").is_dir():
            return folder
    raise ValueError(
        "the benchmarks are part of the source tree, not of the installed package. Clone the "
        "repository and run meanmap bench inside it."
    )


def run_benchmarks(
    names: Sequence[str], listed: bool, check: bool, hidden: bool
) -> tuple[int, list[Answer]]:
    """Run benchmarks, each in its own interpreter; the exit status, and what they found."""
    folder = benchmarks()
    script = [sys.executable, str(folder / "run.py")]
    if names:
        text = subprocess.run([*script, "--list"], stdout=PIPE, text=True, check=True).stdout
        there = [line.split()[0] for line in text.splitlines()]
        for name in names:
            if name not in there:
                raise ValueError(f"there is no benchmark {name!r}.{suggest_name(name, there)}")
    options = [*(["--list"] if listed else []), *(["--check"] if check else [])]
    command = [*script, *options, *names]
    lines = []
    with subprocess.Popen(command, stdout=PIPE, text=True) as job:
        assert job.stdout is not None
        for line in job.stdout:
            lines.append(line)
            if not hidden:
                say(line.rstrip("\n"))
    if listed or job.returncode not in (0, 1):
        return job.returncode, []
    written = re.findall(r"[\w-]+\.md", "".join(lines))
    stem = Path(written[-1]).stem if written else ("-".join(names) or "latest")
    data = json.loads((folder / "results" / f"{stem}.json").read_text(encoding="utf-8"))
    return job.returncode, [bench_answer(one) for one in data["benchmarks"]]


def bench_answer(found: dict[str, Any]) -> Answer:
    """A benchmark as an answer."""
    held = [row["holds"] for row in found["rows"] if row["bar"]]
    rows = tuple(
        (
            row["work"],
            row["peer_name"],
            "–" if row["ratio"] is None else f"{row['ratio']:.3g}×",
            row["bar"],
            {True: "holds", False: "does not hold", None: ""}[row["holds"]],
        )
        for row in found["rows"]
    )
    words = f"{held.count(True)} of {len(held)} bars hold."
    title = f"{found['name']}: {found.get('title', '')}"
    table = AnswerTable(("work", "peer", "ratio", "bar", ""), rows)
    return Answer(title, words, found, (table,))


# --- demo -----------------------------------------------------------------------------------------


def demo(files: PictureOptions) -> Findings:
    """Show what meanmap does, next to the truth, in ten seconds.

    \b
    For example:
      meanmap demo
    """
    return Findings(demo_answers(), "A demonstration of meanmap", as_list=True)


def demo_answers() -> list[Answer]:
    """The parts of the demo, one answer each."""
    import numpy as np

    from meanmap import demo as shown

    answers = []
    for part in (make(np.random.default_rng(shown.SEED)) for make in shown.PARTS):
        lines = demo_cells(part.lines[1:])
        table = AnswerTable(("",) * max(map(len, lines), default=1), lines)
        pictures = () if part.draw is None else (demo_picture(part),)
        values = {"title": part.title, "lines": list(part.lines)}
        answers.append(Answer(part.title, part.lines[0], values, (table,) * bool(lines), pictures))
    return answers


def demo_cells(lines: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Lines of the demo as cells: a label of 36 characters, then columns."""
    cells = [(line[:36].strip(), *re.split(r"\s{2,}", line[36:].strip())) for line in lines]
    width = max(map(len, cells), default=1)
    return tuple(row + ("",) * (width - len(row)) for row in cells)


def demo_picture(part: Any) -> Picture:
    name = part.title.split("   ")[0].capitalize()

    def draw(axes: list[Any]) -> None:
        part.draw(axes[0])
        if axes[0].get_legend_handles_labels()[1]:
            axes[0].legend(fontsize="small", frameon=False)

    return Picture(draw, f"{name}: {part.lines[0]}")
