"""What people see: tables on the terminal, notes and errors on standard error."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from meanmap.report.answers import Answer, AnswerTable

WIDE = 120  # characters per line where there is no terminal
ROWS = 30  # rows of a table that are shown
#: Characters that a terminal obeys, or that reorder what is read: names and cells may hold them.
CONTROLS = {*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
CONTROLS -= set(map(ord, "\n\t"))
ESCAPED = {code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in CONTROLS}
#: The same in JSON, which escapes the others itself.
JSON_ESCAPED = {code: f"\\u{code:04x}" for code in CONTROLS if code >= 0x20}


def say(text: str) -> None:
    """Print; a closed pipe (`| head`) is not an error."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        leave_pipe()
    except OSError as error:
        leave_pipe()
        raise OSError(f"cannot write to standard output: {error.strerror}.") from error


def list_written(paths: Iterable[Any]) -> None:
    """Say which files were written."""
    for path in paths:
        say(f"Written: {path}".translate(ESCAPED))


def leave_pipe() -> None:
    """Discard what is still to be printed, so that Python exits quietly as well."""
    import os

    sys.stdout = open(os.devnull, "w")  # noqa: SIM115


def tell(message: str) -> None:
    """Print one line on standard error."""
    line = " ".join(message.split()).translate(ESCAPED)
    print(f"meanmap: {line}", file=sys.stderr, flush=True)


@contextmanager
def warnings_as_notes(quiet: bool) -> Iterator[None]:
    """Show warnings as single lines, each once, without those about other packages' internals."""
    told: set[str] = set()

    def show(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
        ours = category.__module__.startswith("meanmap") or category is UserWarning
        ours = ours or category.__name__ == "ConvergenceWarning"
        text = str(message)
        if ours and not quiet and text not in told:
            told.add(text)
            tell(f"note: {text}")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for category in (DeprecationWarning, PendingDeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", category)
        warnings.showwarning = show
        yield


def answer_text(answer: Answer) -> str:
    """An answer as text: the finding, the tables, the notes, the data."""
    import rich.console
    from rich.text import Text

    console = rich.console.Console(highlight=False)
    if not console.is_terminal:
        console = rich.console.Console(highlight=False, width=WIDE, no_color=True)

    def line(text: str, style: str = "") -> None:
        console.print(Text(text.translate(ESCAPED), style=style, overflow="fold"))

    with console.capture() as captured:
        if answer.title:
            line(answer.title, "bold")
        line(answer.headline)
        for table in answer.tables:
            line("")
            console.print(screen_table(table))
            if len(table.rows) > ROWS:
                line(f"… and {len(table.rows) - ROWS} more rows; use --json to see them all.")
        if answer.notes:
            line("")
        for note in answer.notes:
            line(f"Note: {note}")
        if answer.sources:
            line("")
        for source in answer.sources:
            kinds = ", ".join(f"{name} ({kind})" for name, kind in source.columns.items())
            line(f"{source.name}: {source.rows:,} rows; {kinds}")
    lines = [line.rstrip() for line in captured.get().splitlines()]
    return "\n".join(lines).rstrip() + "\n"


def screen_table(table: AnswerTable) -> Any:
    """A table for the terminal; cells that do not fit are wrapped, never cut off."""
    import rich.box
    import rich.table
    from rich.text import Text

    headed, numbers = any(table.header), table.number_columns
    drawn = rich.table.Table(
        box=rich.box.SIMPLE_HEAD if headed else None,
        show_header=headed,
        show_edge=False,
        padding=(0, 2, 0, 0),
        pad_edge=False,
    )
    for i, name in enumerate(table.header):
        side = "right" if i in numbers else "left"
        drawn.add_column(Text(name.translate(ESCAPED)), justify=side, overflow="fold")
    for row in table.rows[:ROWS]:
        drawn.add_row(*(Text(cell.translate(ESCAPED)) for cell in row))
    return drawn
