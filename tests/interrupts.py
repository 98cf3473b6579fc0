"""Interrupt a call at any line of the package, as Ctrl-C may."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import meanmap

PACKAGE = str(Path(meanmap.__file__).parent)


def interrupt_at(line: int, call: Callable[[], Any]) -> bool:
    """Raise KeyboardInterrupt in a call before its n-th line in the package, counted from 0.

    Returns whether the call was interrupted; False means that it ended in fewer lines.
    """
    left = line

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False
