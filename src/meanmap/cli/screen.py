"""What people see: tables on the terminal, notes and errors on standard error."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from meanmap.report.answers import Answer

WIDE = 120  # letters of a line where there is no terminal
ROWS = 30  # rows of a table that are shown


def say(text: str) -> None:
    """Print; a reader who has gone (`| head`) is no trouble."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        leave_pipe()
    except OSError as error:
        leave_pipe()
        raise OSError(f"cannot write to standard output: {error.strerror}.") from error


def leave_pipe() -> None:
    """Send what is still to be printed to nowhere, so that Python's end is quiet as well."""
    import os

    sys.stdout = open(os.devnull, "w")  # noqa: SIM115


def tell(kind: str, message: str) -> None:
    """One line on standard error."""
    print(f"meanmap: {kind}" + " ".join(message.split()), file=sys.stderr, flush=True)


@contextmanager
def warnings_as_notes(quiet: bool) -> Iterator[None]:
    """Warnings as single lines, each once; none of other packages' own affairs."""
    told: set[str] = set()

    def show(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
        ours = category.__module__.startswith("meanmap") or category is UserWarning
        ours = ours or category.__name__ == "ConvergenceWarning"
        text = str(message)
        if ours and not quiet and text not in told:
            told.add(text)
            tell("note: ", text)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for category in (DeprecationWarning, PendingDeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", category)
        warnings.showwarning = show
        yield


def answer_text(answer: Answer) -> str:
    """An answer as text: the finding, the table, the data."""
    import rich.box
    import rich.console
    import rich.table
    from rich.text import Text

    console = rich.console.Console(highlight=False)
    if not console.is_terminal:
        console = rich.console.Console(highlight=False, width=WIDE, no_color=True)
    with console.capture() as captured:
        if answer.title:
            console.print(Text(answer.title, style="bold"))
        console.print(Text(answer.headline))
        if answer.rows:
            headed = any(answer.header)
            table = rich.table.Table(
                box=rich.box.SIMPLE_HEAD if headed else None,
                show_header=headed,
                padding=(0, 2, 0, 0),
                pad_edge=False,
            )
            for i, name in enumerate(answer.header):
                table.add_column(
                    Text(name), justify="right" if holds_numbers(answer, i) else "left"
                )
            for row in answer.rows[:ROWS]:
                table.add_row(*map(Text, row))
            if not headed:
                console.print()
            console.print(table)
            if len(answer.rows) > ROWS:
                console.print(f"… and {len(answer.rows) - ROWS} more rows; --json has them all.")
        if answer.sources and not (answer.rows and any(answer.header)):
            console.print()
        for source in answer.sources:
            kinds = ", ".join(f"{name} ({kind})" for name, kind in source.columns.items())
            console.print(Text(f"{source.name}: {source.rows:,} rows; {kinds}"))
    lines = [line.rstrip() for line in captured.get().splitlines()]
    return "\n".join(lines).rstrip() + "\n"


def holds_numbers(answer: Answer, column: int) -> bool:
    """Whether a column of the table holds numbers, which stand to the right."""
    cells = [row[column] for row in answer.rows if row[column]]
    named = bool(answer.header[column]) and bool(cells)
    return named and all(cell[0] in "-+.0123456789–" for cell in cells)
