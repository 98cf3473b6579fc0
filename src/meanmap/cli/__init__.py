"""The command line: `meanmap COMMAND`, or `python -m meanmap.cli COMMAND`.

Exit status: 0; 1 for wrong usage, a file that cannot be read or written, or a missing optional
package, with one line on standard error that says what to do; 3 if a test rejects (or a monitor
raises an alarm) and `--exit-code`
was given; 130 after Ctrl-C. MEANMAP_DEBUG=1 shows tracebacks.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

FAILED = 1
REJECTED = 3
INTERRUPTED = 130  # what shells report for Ctrl-C
STOPPED = "interrupted; nothing was written."


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    # before anything heavy is imported; where a shell has Ctrl-C ignored, that stays so
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, stop_at_once)
    sys.exit(call(arguments))


def stop_at_once(*_: Any) -> None:
    """Exit while there is nothing to clean up: an import does not always survive an exception."""
    os.write(2, f"meanmap: {STOPPED}\n".encode())
    os._exit(INTERRUPTED)


@contextmanager
def interrupts_raised() -> Iterator[None]:
    """During the work Ctrl-C is an exception, so that temporary files go; after it nothing."""
    ours = signal.getsignal(signal.SIGINT) is stop_at_once
    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def call(
    arguments: Sequence[str] | None = None,
    load: Callable[[Sequence[str]], Any] | None = None,
    program: str = "meanmap",
) -> int:
    """Run the command line and return its exit status.

    `load` makes another application than meanmap's own from the arguments, `program` is its name.
    """
    from meanmap.cli import screen

    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        app = (load or load_application)(arguments)
    except ImportError as error:
        screen.tell(f"the command line needs typer and rich ({error}): pip install 'meanmap[cli]'")
        return FAILED
    try:
        with (
            interrupts_raised(),
            screen.warnings_as_notes("--quiet" in arguments or "-q" in arguments),
        ):
            code = app(arguments, prog_name=program, standalone_mode=False)
    except SystemExit as end:  # after --show-completion
        code = end.code
    except BrokenPipeError:
        screen.leave_pipe()
        code = 0
    except BaseException as error:
        # some versions of typer bring their own copy of click: its errors are known by their names
        if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort":
            code = INTERRUPTED
        elif hasattr(error, "format_message"):
            screen.tell(f"{error.format_message()} See {program} --help.")
            return FAILED
        elif os.environ.get("MEANMAP_DEBUG") or not isinstance(error, Exception):
            raise
        else:
            screen.tell(error_message(error))
            return FAILED
    if code == INTERRUPTED:
        screen.tell(STOPPED)
    return code if isinstance(code, int) else 0


def error_message(error: Exception) -> str:
    """What to say about an error: the message if the user can act on it, else that it is a bug."""
    if isinstance(error, MemoryError):
        return "there is not enough memory for this. Use fewer rows or columns."
    if isinstance(error, ValueError | OSError | ImportError):
        return str(error)
    what = f"{type(error).__name__}: {error}"
    return f"this is a bug: {what}. Run with MEANMAP_DEBUG=1 for the traceback."


def load_application(arguments: Sequence[str] = ()) -> Any:
    """The commands as a typer application; imported here, since typer is optional."""
    import rich  # noqa: F401
    import typer  # noqa: F401

    from meanmap.cli.app import build_application

    return build_application(arguments)
