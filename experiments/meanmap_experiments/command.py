"""The command line: `make reproduce NAME=…`, or `python -m meanmap_experiments NAME…`."""

# Without `from __future__ import annotations`: typer reads annotations.

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import meanmap_experiments as experiments
from meanmap import cli
from meanmap.cli import screen
from meanmap.cli.app import as_command, plain_typer
from meanmap.cli.options import FileOptions
from meanmap.cli.outputs import figure_bytes, write_all
from meanmap.exceptions import warn
from meanmap_experiments.pages import experiments_page

PROGRAM = "meanmap_experiments"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, and leave with its exit code."""
    sys.exit(call(arguments))


def call(arguments: Sequence[str] | None = None) -> int:
    """Run the command line: its exit code."""
    return cli.call(arguments, build_application, PROGRAM)


def build_application(arguments: Sequence[str] = ()) -> Any:
    """The typer application: one command."""
    app = plain_typer()
    app.command()(as_command(reproduce, arguments))
    return app


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help='Experiments, or "all"; none lists them.')
    ] = None,
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Half a minute or less each.")] = False,
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="Processes that share the runs; -1 all cores.")
    ] = None,
    files: FileOptions,
) -> int:
    """Run experiments of the papers, the published figures beside ours.

    \b
    For example:
      make reproduce
      make reproduce NAME=identities ARGS=--quick
    """
    if not names:
        screen.say(list_experiments(files.json))
        return 0
    chosen = experiment_names(names, jobs)
    if files.plot is not None and len(chosen) > 1:
        raise ValueError("--plot draws one experiment. Name one, or use --report for all.")
    found, left_out = [], {}
    runs = run_experiments(chosen, quick, files.seed, jobs, files.quiet, some=names == ["all"])
    for name, outcome, reason in runs:
        if outcome is None:
            left_out[name] = reason
            continue
        found.append(outcome)
        if not files.json and files.report is None:
            screen.say(f"{outcome}\n")
    contents = experiment_files(found, left_out, files)
    write_all(contents, files.force)
    if files.json:
        screen.say(json.dumps([outcome.to_dict() for outcome in found], indent=2))
        return 0
    if files.report is not None:
        for outcome in found:
            screen.say(f"{outcome}\n")
    screen.list_written(contents)
    return 0


def experiment_names(names: Sequence[str], jobs: int | None) -> list[str]:
    """The names of the experiments to run, checked."""
    if jobs == 0:
        raise ValueError("--jobs must not be 0: give a number of processes, or -1 for all.")
    return list(experiments.names()) if list(names) == ["all"] else experiments.known(names)


def list_experiments(as_json: bool) -> str:
    """The experiments that there are, a line each."""
    if as_json:
        return json.dumps(experiments.EXPERIMENTS, indent=2)
    width = max(map(len, experiments.names()))
    lines = [f"{name:<{width}}  {experiments.describe(name)}" for name in experiments.names()]
    return "\n".join(["Experiments: make reproduce NAME=... [ARGS=--quick]", *lines])


def run_experiments(
    names: Sequence[str], quick: bool, seed: int, jobs: int | None, quiet: bool, some: bool
) -> Iterator[tuple[str, Any, str]]:
    """Run experiments: the name, and what was found or why it could not be run.

    `some` goes on where a package is missing that one of them needs.
    """
    hidden = {"progress": False} if quiet else {}
    for name in names:
        try:
            found = experiments.run(name, quick=quick, seed=seed, n_jobs=jobs, **hidden)
        except ImportError as error:
            if not some:
                raise
            warn(f"{name} is left out: {error}", UserWarning)
            yield name, None, str(error)
        else:
            yield name, found, ""


def experiment_files(
    outcomes: Sequence[Any], left_out: Mapping[str, str], where: FileOptions
) -> dict[Path, bytes]:
    """The page and the picture of experiments."""
    contents: dict[Path, bytes] = {}
    if where.report is not None:
        contents[where.report] = experiments_page(outcomes, left_out).encode()
    if where.plot is not None:
        axes = np.ravel(np.asarray(outcomes[0].plot(), dtype=object))
        contents[where.plot] = figure_bytes(axes[0].get_figure(root=True), where.plot)
    return contents
