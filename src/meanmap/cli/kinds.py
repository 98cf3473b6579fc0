"""What the columns of a table are taken for: numbers, dates or labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meanmap.checks import LARGEST
from meanmap.cli.formats import first_line, suggest_name

DAY = 86_400
DATES = r"\d{4}-\d{2}-\d{2}(?:[T ].*)?"
TEXT = 20  # different texts that hardly repeat, from which on they are no labels


def kinds_of(
    name: str, frame: Any, columns: Sequence[str], labels: Sequence[str]
) -> dict[str, str]:
    """What each column is taken for; `labels` are labels whatever they hold."""
    there = list(frame.columns)
    for column in labels:
        if column not in there:
            raise ValueError(
                f"{name} has no column {column!r} (--labels).{suggest_name(column, there)}"
            )
    return {c: "label" if c in labels else kind_of(name, frame[c], c) for c in columns}


def kind_of(name: str, values: Any, column: str) -> str:
    """ "number", "date" or "label", or an error where it cannot be told."""
    import pandas as pd

    present = values.dropna()
    if not len(present):
        raise ValueError(f"{name}: column {column!r} is empty. Name the other columns.")
    if pd.api.types.is_bool_dtype(values) or set(map(type, present[:100])) == {bool}:
        return "label"
    if pd.api.types.is_numeric_dtype(values):
        if pd.api.types.is_complex_dtype(values):
            raise ValueError(f"{name}: column {column!r} holds complex numbers.")
        return "number"
    if pd.api.types.is_datetime64_any_dtype(values):
        return "date"
    if any(isinstance(value, dict | set | bytes) for value in present[:100]):
        raise ValueError(
            f"{name}: column {column!r} holds {type(present.iloc[0]).__name__} values; "
            "numbers, text and dates are understood. Leave it out."
        )
    text = present.astype(str)
    numbers = pd.to_numeric(text, errors="coerce").notna()
    if numbers.all():
        return "number"
    if numbers.mean() > 0.5:
        row = numbers.index[~numbers][0]
        raise ValueError(
            f"{name}: column {column!r} holds {text[row]!r:.60} in row {row + 1}, and "
            "numbers elsewhere. Mend it, or name the column in --labels."
        )
    if text.str.fullmatch(DATES).all() and not isinstance(days(text), str):
        return "date"
    different = text.nunique()
    if different > TEXT and different > 0.5 * len(text):
        raise ValueError(
            f"{name}: column {column!r} is text that hardly repeats, like "
            f"{text.iloc[0]!r:.60} in row {text.index[0] + 1}, where numbers or labels are "
            "needed. Name the other columns, or this one in --labels."
        )
    return "label"


def convert_column(name: str, values: Any, kind: str, column: str, start: int) -> Any:
    """A column by its kind: floats, or text; missing where it is missing."""
    import pandas as pd

    values = values.reset_index(drop=True)
    present = values.notna()
    if kind == "label":
        out = pd.Series(np.full(len(values), None, dtype=object))
        out[present] = [as_label(value) for value in values[present]]
        return out
    if kind == "date":
        found = days(values[present])
        if isinstance(found, str):
            raise ValueError(f"{name}: column {column!r} holds a date that is none: {found}.")
        out = pd.Series(np.full(len(values), np.nan))
        out[present] = found
        return out
    if values.dtype == object or not pd.api.types.is_numeric_dtype(values):
        values = pd.to_numeric(values.where(present).astype(object), errors="coerce")
    out = values.astype("float64")
    wrong = np.flatnonzero((present & out.isna()).to_numpy() | np.isinf(out.to_numpy()))
    if len(wrong):
        row = int(wrong[0])
        what = "an infinite number" if np.isinf(out.iloc[row]) else "no number"
        raise ValueError(
            f"{name}: column {column!r} holds {what} in row {start + row + 1}. Mend it, "
            "or leave the field empty."
        )
    large = np.flatnonzero(np.abs(out.to_numpy()) > LARGEST)
    if len(large):
        row = int(large[0])
        raise ValueError(
            f"{name}: column {column!r} holds {out.iloc[row]:.3g} in row {start + row + 1}, too "
            f"large to compute with; at most {LARGEST:g} is taken. Fix it, or leave the field "
            "empty."
        )
    return out


def as_label(value: Any) -> str:
    """A value as a label: whole numbers without the point that gaps give them."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def days(values: Any) -> Any:
    """Dates as days since 1970, or what is wrong with them."""
    import pandas as pd

    try:
        times = pd.to_datetime(values, utc=True, format=None if is_time(values) else "ISO8601")
    except (ValueError, OverflowError) as error:
        return first_line(error)
    return (times - pd.Timestamp(0, tz="UTC")).dt.total_seconds() / DAY


def is_time(values: Any) -> bool:
    import pandas as pd

    return bool(pd.api.types.is_datetime64_any_dtype(values))
