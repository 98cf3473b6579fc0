"""The allowed outcomes of a case: a right answer, or a readable error raised by meanmap."""

from __future__ import annotations

import copy
import linecache
import signal
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
from numpy.testing import assert_allclose

import meanmap
from fuzz.entries import ENTRIES
from fuzz.hostile import FORMS, MILD, twists
from fuzz.kept import KNOWN
from meanmap.arrays import is_array, to_numpy

SECONDS = 20  # after which a case is a hang
OURS = str(Path(meanmap.__file__).parent)
#: What the libraries below say; a user needs a sentence about what was passed.
INTERNAL = (
    "operands could not be broadcast", "did not converge", "out of bounds", "cannot convert",
    "truth value of", "not aligned", "mismatch in its core dimension", "inhomogeneous",
    "not supported between instances", "unsupported operand", "object is not", "has no attribute",
    "unhashable", "ufunc '", "array with a sequence", "must be real number", "could not convert",
    "invalid literal", "infs or NaNs", "cannot reshape", "zero-size array",
)  # fmt: skip


class Fault(AssertionError):
    """Neither a right answer nor an error raised by meanmap."""


class Hang(BaseException):
    """A case that did not come to an end; no `except Exception` stops it."""


@contextmanager
def limited() -> Iterator[None]:
    """At most so many seconds."""

    def stop(*_: Any) -> None:
        raise Hang(f"no answer after {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def line(name: str, argument: str, twist: str, seed: int) -> str:
    """A case as a line of `kept.py`."""
    return f'    ("{name}", "{argument}", "{twist}", {seed}),'


def hostile_value(name: str, argument: str, twist: str, seed: int) -> Any:
    """What a case passes."""
    good = ENTRIES[name].good[argument]
    if twist in FORMS:
        return FORMS[twist].dress(FORMS[twist].plain(good))
    return twists(good)[twist](good, np.random.default_rng(seed))


def judge(name: str, argument: str, twist: str, seed: int) -> str:
    """Run a case; "answered" or "refused", or a `Fault`."""
    try:
        return _judge(name, argument, twist, seed)
    except Fault as fault:
        if any(place in str(fault) for place in KNOWN):
            return "known"
        raise


def _judge(name: str, argument: str, twist: str, seed: int) -> str:
    value = hostile_value(name, argument, twist, seed)
    if twist not in FORMS:
        return outcome(name, argument, value)[0]
    form = FORMS[twist]
    state, found = outcome(name, argument, value)
    known, expected = plainly(name, argument, twist)
    strict = ENTRIES[name].strict and not form.refused
    if state == "refused" and known == "answered" and strict:
        raise Fault(f"a form of good data is refused: {found}")
    if state == "answered" and known == "answered":
        try:
            same(found, expected, ENTRIES[name].rtol)
        except AssertionError as error:
            raise Fault(f"the answer depends on the form: {error}") from None
    return state


@cache
def plainly(name: str, argument: str, twist: str) -> tuple[str, Any]:
    """The outcome for the plain array that a form is one of."""
    return outcome(name, argument, FORMS[twist].plain(ENTRIES[name].good[argument]))


def several_twists(name: str, seed: int) -> dict[str, str]:
    """Which arguments of an entry are hostile in a case, and by which twist: two or more."""
    rng = np.random.default_rng([seed, len(name)])
    good = ENTRIES[name].good
    most = len(good)
    size = int(rng.integers(min(2, most), most + 1))
    chosen = {}
    for argument in sorted(rng.permutation(sorted(good))[:size].tolist()):
        names = list(twists(good[argument]))
        mild = [twist for twist in names if twist.rpartition(": ")[2] in MILD]
        chosen[argument] = str(rng.choice(mild if mild and rng.uniform() < 0.8 else names))
    return chosen


def judge_several(name: str, seed: int) -> str:
    """Run a case with several hostile arguments; "answered" or "refused", or a `Fault`."""
    good = ENTRIES[name].good
    chosen = several_twists(name, seed)
    values = {
        argument: twists(good[argument])[twist](good[argument], np.random.default_rng(seed + i))
        for i, (argument, twist) in enumerate(chosen.items())
    }
    try:
        return outcome_of(name, values)[0]
    except Fault as fault:
        if any(place in str(fault) for place in KNOWN):
            return "known"
        raise


def outcome(name: str, argument: str, value: Any) -> tuple[str, Any]:
    """("answered", arrays) or ("refused", the error's text), or a `Fault`."""
    return outcome_of(name, {argument: value})


def outcome_of(name: str, values: dict[str, Any]) -> tuple[str, Any]:
    """The same for values of several arguments."""
    entry = ENTRIES[name]
    arguments = {**entry.good, **values}
    before = {key: snapshot(each) for key, each in arguments.items()}
    try:
        with warnings.catch_warnings(record=True) as heard, limited():
            warnings.simplefilter("always")
            found = flat(entry.call(SimpleNamespace(**arguments, hostile=tuple(values))))
    except Hang as error:
        raise Fault(str(error)) from error
    except Exception as error:
        return "refused", in_words(error)
    finally:
        for key, each in arguments.items():
            if not unchanged(before[key], each):
                raise Fault(f"{key} was modified")
    for warning in heard:
        if warning.category is RuntimeWarning:
            raise Fault(f"{Path(warning.filename).name}:{warning.lineno}: {warning.message}")
    for array in found:
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise Fault(f"NaN or infinity in the answer: {array!r:.200}")
    return "answered", found


def in_words(error: Exception) -> str:
    """The text of an error that is ours, or scikit-learn's of what it was passed."""
    frames = traceback.extract_tb(error.__traceback__)
    text, kind = str(error), type(error).__name__
    place = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in frames[:-5:-1])
    said = f"{kind}: {text:.300} [{place}]"
    if not isinstance(error, ValueError | TypeError | FileNotFoundError):
        raise Fault(said) from error
    if isinstance(error, np.linalg.LinAlgError | UnicodeError) or not text:
        raise Fault(said) from error
    if any("sklearn" in f.filename and "valid" in f.filename for f in frames):
        return text
    last = frames[-1]
    raised = linecache.getline(last.filename, last.lineno or 0).strip().startswith("raise")
    theirs = "sklearn" in last.filename  # the estimator's own words, of what it was passed
    if not (last.filename.startswith(OURS) or theirs) or not raised:
        raise Fault(said) from error
    if any(text.startswith(words) for words in INTERNAL):
        raise Fault(said) from error
    return text


def flat(answer: Any) -> list[np.ndarray]:
    """The arrays and numbers of an answer."""
    if isinstance(answer, tuple | list):
        return [array for part in answer for array in flat(part)]
    if isinstance(answer, dict):
        return [array for part in answer.values() for array in flat(part)]
    return [] if answer is None else [np.asarray(to_numpy(answer) if is_array(answer) else answer)]


def same(found: list[np.ndarray], expected: list[np.ndarray], rtol: float) -> None:
    """Equal answers, up to rounding."""
    assert len(found) == len(expected)
    for here, there in zip(found, expected, strict=True):
        assert here.shape == there.shape, f"shape {here.shape}, not {there.shape}"
        if here.dtype.kind not in "fiub" or there.dtype.kind not in "fiub":
            assert (here == there).all()
            continue
        scale = float(np.max(abs(there), initial=0.0)) if np.isfinite(there).all() else 1.0
        assert_allclose(here, there, rtol=rtol, atol=rtol * scale)


def snapshot(value: Any) -> Any:
    """A copy of what can be changed."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, pd.DataFrame | pd.Series):
        return value.copy(deep=True)
    if isinstance(value, list | tuple):
        return [snapshot(item) for item in value]
    if isinstance(value, dict):
        return {key: snapshot(item) for key, item in value.items()}
    return copy.copy(value) if isinstance(value, set) else value


def unchanged(before: Any, after: Any) -> bool:
    """Whether a value is what it was."""
    if isinstance(after, np.ndarray):
        kept = before.shape == after.shape and before.dtype == after.dtype
        if after.dtype.kind == "O":
            return kept and all(
                a is b or repr(a) == repr(b) for a, b in zip(before.flat, after.flat, strict=True)
            )
        return kept and np.asarray(before).tobytes() == np.asarray(after).tobytes()
    if isinstance(after, pd.DataFrame | pd.Series):
        return bool(before.equals(after)) and bool(before.index.equals(after.index))
    if isinstance(after, list | tuple):
        return len(before) == len(after) and all(map(unchanged, before, after))
    if isinstance(after, dict):
        return list(before) == list(after) and all(unchanged(before[k], after[k]) for k in after)
    return True
