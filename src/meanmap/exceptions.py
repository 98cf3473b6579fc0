"""The warnings of the package, and the one function that issues them.

`warn` points at the line of the caller's own code. Warnings that concern only other parts of
the package are hidden from users by `quiet`, or collected by `record`. Both act on the running
thread alone: the filters of `warnings`, which all threads share, are never changed.

Solvers that stop early raise scikit-learn's `ConvergenceWarning`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType


class ApproximationWarning(UserWarning):
    """The result is less accurate than was asked for.

    The coordinates of a kernel were cut off at a rank that leaves a visible error, or an
    accelerator multiplies with fewer digits than its arrays hold. The message gives the error that
    is left and the setting to change: a larger rank, a wider bandwidth, another precision. If the
    error is small enough for your purpose, the result can be used as it is.
    """


class DataWarning(UserWarning):
    """The data do not support the answer, or support it only weakly.

    A query lies outside the training data, a prior contradicts an observation, few simulations
    resemble an observation, or rows that a test takes to be independent are not. The answer is
    computed all the same, but it is extrapolated, or rests on few rows. Check the query; if it is
    right, collect more data near it.
    """


class SettingWarning(UserWarning):
    """A setting does not suit the data: it was changed, or it is at the end of its range.

    A regularisation had to grow before an operator could be inverted, the best value of a search
    is the first or the last that was tried, or a kernel lacks a function that the method needs. The
    message names the setting and a value to try.
    """


#: Frames that are skipped in the search for the caller's line: ours, and those between us and it.
_PLUMBING = frozenset({"meanmap", "sklearn", "joblib", "functools", "contextlib"})

_silenced: ContextVar[tuple[type[Warning], ...]] = ContextVar("silenced", default=())
_recorded: ContextVar[list[Warning] | None] = ContextVar("recorded", default=None)


def warn(message: str | Warning, category: type[Warning]) -> None:
    """Warn at the line that called this package, however deep inside it we are."""
    warning = message if isinstance(message, Warning) else category(message)
    if isinstance(warning, _silenced.get()):
        return
    heard = _recorded.get()
    if heard is not None:
        heard.append(warning)
        return
    frame = sys._getframe(1)
    while frame.f_back is not None and _name_of(frame).partition(".")[0] in _PLUMBING:
        frame = frame.f_back
    warnings.warn_explicit(
        warning,
        type(warning),
        frame.f_code.co_filename,
        frame.f_lineno,
        _name_of(frame),
        frame.f_globals.setdefault("__warningregistry__", {}),
    )


def _name_of(frame: FrameType) -> str:
    """The module that a frame runs in."""
    return frame.f_globals.get("__name__") or "<unknown>"


@contextmanager
def quiet(*categories: type[Warning]) -> Iterator[None]:
    """Leave out our own warnings of these categories, or all of them if none is named.

    Examples
    --------
    >>> with quiet(DataWarning):
    ...     warn("far from the data", DataWarning)

    """
    token = _silenced.set((*_silenced.get(), *(categories or (Warning,))))
    try:
        yield
    finally:
        _silenced.reset(token)


@contextmanager
def record() -> Iterator[list[Warning]]:
    """Collect our own warnings in a list instead of issuing them.

    Examples
    --------
    >>> with record() as found:
    ...     warn("far from the data", DataWarning)
    >>> found
    [DataWarning('far from the data')]

    """
    found: list[Warning] = []
    token = _recorded.set(found)
    try:
        yield found
    finally:
        _recorded.reset(token)
