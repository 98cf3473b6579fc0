"""`monitor`: rows as they come, compared with a reference."""

# Without `from __future__ import annotations`: typer reads annotations.

import csv
import json
import sys
import time
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import typer

from meanmap.cli import REJECTED, screen
from meanmap.cli.formats import file
from meanmap.cli.options import Columns, PageOptions, TableOptions
from meanmap.cli.outputs import write_all
from meanmap.cli.readers import decimal_of, separator_of
from meanmap.cli.tables import Table, TableRows, clean_rows, match, print_notes
from meanmap.report.answers import Answer, AnswerTable, Picture

PAUSE = 0.2  # seconds between looks at a file that has not grown
REFRESH = 10  # batches after which the page is written again, besides every alarm


def monitor(
    reference: Annotated[str, typer.Argument(metavar="REFERENCE", help="Rows without drift.")],
    *,
    follow: Annotated[
        str, typer.Option(metavar="FILE", help="The stream. Default: standard input.")
    ] = "-",
    columns: Columns = None,
    run_length: Annotated[
        int, typer.Option(min=20, help="Mean number of rows from one false alarm to the next.")
    ] = 10_000,
    batch: Annotated[int, typer.Option(min=1, help="Rows to a line of output, at most.")] = 100,
    wait: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="How long to wait for new rows.")
    ] = 0.0,
    stop: Annotated[bool, typer.Option("--stop", help="Stop at the first alarm.")] = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with status 3 if there was an alarm.")
    ] = False,
    table: TableOptions,
    files: PageOptions,
) -> int:
    """Raise an alarm when rows no longer look like a reference.

    Prints a line per batch, with --json a JSON object per line. A page (--report) is written again
    at each alarm. With --wait a file is followed while it grows.

    \b
    For example:
      meanmap monitor @before --follow @after --run-length 1000
    """
    from meanmap.monitoring import DriftMonitor

    known = Table.of(reference, table)
    rows = known.rows(known.chosen(columns, "--columns"))
    rows.enough(50)
    if not files.quiet:
        print_notes(rows.notes)
    watch = DriftMonitor(rows.frame.reset_index(drop=True), run_length)
    if follow == "-" or wait:
        stream = follow_lines(follow, rows.kinds, batch, wait, table)
    else:
        stream = read_batches(Table.of(follow, table), rows.kinds, batch)
    found, alarms, last = None, 0, -1
    for number, part in enumerate(stream):
        if not len(part.frame):
            continue
        found = watch.update(part.frame.reset_index(drop=True))
        alarms += len(found.alarms)
        say_batch(found, part, files)
        last = number % REFRESH
        if found.alarms or last == 0:
            write_page(found, (rows, follow), run_length, files)
        if stop and found.alarms:
            break
    if found is not None and last != 0:
        write_page(found, (rows, follow), run_length, files)
    return REJECTED if exit_code and alarms else 0


def say_batch(found: Any, part: TableRows, files: PageOptions) -> None:
    """A line for a batch, and one for each alarm."""
    if files.json:
        screen.say(json.dumps({**found.to_dict(), "left_out": part.dropped}))
        return
    left = f", {part.dropped} left out: missing values" if part.dropped else ""
    screen.say(f"row {found.rows:,}: score {found.score:.2f}{left}")
    for alarm in found.alarms:
        screen.say(f"  {alarm.sentence()}")


def write_page(
    found: Any, sources: tuple[TableRows, str], run_length: int, files: PageOptions
) -> None:
    """The page, over that of an earlier batch."""
    if files.report is None:
        return
    from meanmap.report.pages import answers_page

    rows, stream = sources
    stream = "standard input" if stream == "-" else stream
    table = AnswerTable(
        ("alarm at row", "change from row", "score", "columns"),
        tuple(
            (f"{a.row:,}", f"{a.change:,}", f"{a.score:.2f}", ", ".join(a.changed) or "–")
            for a in reversed(found.recent)
        ),
    )
    alarms = found.recent[-1].sentence() if found.recent else "No drift so far."
    answer = Answer(
        f"{stream} beside {rows.name}",
        f"{found.rows:,} rows, {len(found.recent)} alarms. {alarms}",
        found.to_dict(),
        (table,) if found.recent else (),
        (Picture(lambda axes: found.plot(axes[0]), "The distance from the reference over time."),),
        (rows.source,),
        {"rows between false alarms": f"{run_length:,}", "written": time.strftime("%F %T")},
    )
    write_all({files.report: answers_page([answer], answer.title).encode()}, True)


# --- rows -----------------------------------------------------------------------------------------


def read_batches(table: Table, kinds: dict[str, str], batch: int) -> Iterator[TableRows]:
    """A file as it is, so many rows at a time."""
    columns, start = table.named(list(kinds)), 0
    for frame in table.pieces(max(batch, 1 << 14)):
        for first in range(0, len(frame), batch):
            part = frame.iloc[first : first + batch]
            yield clean_rows(table.name, part, kinds, columns, start)
            start += len(part)


def follow_lines(
    name: str, kinds: dict[str, str], batch: int, wait: float, options: TableOptions
) -> Iterator[TableRows]:
    """Lines of a CSV file or of standard input as they come, whole ones only."""
    import pandas as pd

    shown = "standard input" if name == "-" else name
    lines = arriving_lines(name, batch, wait, options.encoding or "utf-8-sig")
    names: list[str] | None = list(kinds) if options.header is False else None
    separator, start = "", 0
    for block in lines:
        separator = separator or separator_of(shown, block[0])
        cells = list(csv.reader(block, delimiter=separator, skipinitialspace=True))
        if names is None:
            names, cells = cells[0], cells[1:]
            match(shown, list(kinds), "the columns of the reference", names, {})
        for i, row in enumerate(cells):
            if len(row) != len(names):
                raise ValueError(
                    f"{shown}: row {start + i + 1} has {len(row)} fields where {len(names)} are "
                    "expected. Fix it, or leave fields empty."
                )
        if not cells:
            continue
        frame = pd.DataFrame(cells, columns=names).replace(["", *options.missing], np.nan)
        if decimal_of("\n".join(block), separator) == ",":
            kinds = {c: f"{k}, decimal commas" if k == "number" else k for c, k in kinds.items()}
        yield clean_rows(shown, frame, kinds, list(kinds), start)
        start += len(cells)


def arriving_lines(name: str, most: int, wait: float, encoding: str) -> Iterator[list[str]]:
    """Complete lines, up to so many at a time, until none has come for `wait` seconds."""
    stream: Any = sys.stdin.buffer if name == "-" else file(name)
    rest, held, quiet_since = b"", [], time.monotonic()
    size = 1  # the first line comes alone: it has the names of the columns
    while True:
        line = stream.readline()
        rest += line
        if rest.endswith(b"\n"):
            held.append(rest.decode(encoding, "backslashreplace").rstrip("\r\n"))
            rest, quiet_since = b"", time.monotonic()
            if len(held) < size:
                continue
        if held and any(held):
            yield [one for one in held if one]
            size = most
        held = []
        if line:
            continue
        if name == "-" or time.monotonic() - quiet_since >= wait:
            if rest:
                yield [rest.decode(encoding, "backslashreplace")]
            return
        time.sleep(PAUSE)
