"""The command line: `meanmap COMMAND`, or `python -m meanmap.cli COMMAND`.

Exit codes: 0; 1 for a wrong argument, a file that cannot be read or written, or an optional package
that is missing, with one line on standard error that says what to do; 3 if a test rejects and
`--exit-code` was given. MEANMAP_DEBUG=1 shows tracebacks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

FAILED = 1
REJECTED = 3
INTERRUPTED = 130  # what newer versions of typer make of Ctrl-C


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, and leave with its exit code."""
    sys.exit(call(arguments))


def call(
    arguments: Sequence[str] | None = None,
    load: Callable[[Sequence[str]], Any] | None = None,
    program: str = "meanmap",
) -> int:
    """Run the command line: its exit code.

    `load` makes another application than meanmap's own of the arguments, `program` is its name.
    """
    from meanmap.cli import screen

    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = bool(os.environ.get("MEANMAP_DEBUG"))
    try:
        app = (load or load_application)(arguments)
    except ImportError as error:
        return report_failure(
            f"the command line needs typer and rich ({error}): pip install 'meanmap[cli]'"
        )
    try:
        with screen.warnings_as_notes("--quiet" in arguments or "-q" in arguments):
            code = app(arguments, prog_name=program, standalone_mode=False)
    except KeyboardInterrupt:
        return report_failure("interrupted; nothing was written.")
    except SystemExit as end:  # after --show-completion
        return end.code if isinstance(end.code, int) else 0
    except Exception as error:
        # typer brings its own copy of click in some versions: a wrong usage is known by its method
        if hasattr(error, "format_message"):
            return report_failure(f"{error.format_message()} See {program} --help.")
        if type(error).__name__ == "Abort":  # Ctrl-C, as click tells it
            return report_failure("interrupted; nothing was written.")
        if debug:
            raise
        if isinstance(error, BrokenPipeError):
            screen.leave_pipe()
            return 0
        return report_failure(words(error))
    if code == INTERRUPTED:
        return report_failure("interrupted; nothing was written.")
    return code if isinstance(code, int) else 0


def words(error: Exception) -> str:
    """What to tell of an error: what the user can mend as it is, anything else as our mistake."""
    if isinstance(error, MemoryError):
        return "there is not enough memory for this. Give fewer rows or columns."
    if isinstance(error, ValueError | OSError | ImportError):
        return str(error)
    what = f"{type(error).__name__}: {error}"
    return f"this is a bug: {what}. Run with MEANMAP_DEBUG=1 for the traceback."


def report_failure(message: str) -> int:
    """One line on standard error; the exit code."""
    print("meanmap: " + " ".join(message.split()), file=sys.stderr)
    return FAILED


def load_application(arguments: Sequence[str] = ()) -> Any:
    """The commands, as a typer application; imported here, since typer is optional."""
    import rich  # noqa: F401
    import typer  # noqa: F401

    from meanmap.cli.app import build_application

    return build_application(arguments)
