"""Interrupt a call at a chosen line of the package, as Ctrl-C would."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from typing import Any

import meanmap

PACKAGE = str(Path(meanmap.__file__).parent)


@contextmanager
def at_each_line(act: Callable[[], None]) -> Iterator[None]:
    """Call `act` before every line of the package that is executed."""

    def trace(frame: Any, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            act()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def count_lines(call: Callable[[], Any]) -> int:
    """How many lines of the package a call executes."""
    lines = 0

    def act() -> None:
        nonlocal lines
        lines += 1

    with at_each_line(act):
        copy_context().run(call)
    return lines


def interrupt_at(k: int, call: Callable[[], Any]) -> bool:
    """Raise KeyboardInterrupt before the k-th line of a call, from 1; whether it came so far."""
    lines = 0

    def act() -> None:
        nonlocal lines
        lines += 1
        if lines == k:
            raise KeyboardInterrupt

    try:
        with at_each_line(act):
            # an interrupt while a context is left may skip what it restores: here nothing stays
            copy_context().run(call)
    except KeyboardInterrupt:
        return True
    return False


def some_lines(count: int, most: int = 60, end: int = 40) -> list[int]:
    """The last lines of a call, where its state changes, and a spread of those before."""
    early = range(1, max(count - end, 0) + 1, max(1, -(-count // most)))
    return [*early, *range(max(count - end, 0) + 1, count + 1)]
