"""The kinds of columns: numbers, dates or labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from meanmap.checks import LARGEST
from meanmap.cli.formats import first_line

DAY = 86_400
DIGITS = r"[+-]?[0-9]+(?:\.[0-9]*)?"
DATES = r"\d{4}-\d{2}-\d{2}(?:[T ].*)?"
TEXT = 20  # distinct texts beyond which a column that rarely repeats is not taken for labels


def kind_of(name: str, values: Any, column: str) -> str:
    """The kind of one column, "number", "date" or "label", or an error if it is unclear."""
    import pandas as pd

    present = values.dropna()
    if not len(present):
        raise ValueError(f"{name}: column {column!r} is empty. Name the columns to use.")
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
            "numbers, text and dates are supported. Leave it out."
        )
    text = present.astype(str)
    numbers = as_numbers(text).notna()
    if numbers.all():
        return "number"
    if numbers.mean() > 0.5:
        row = numbers.index[~numbers][0]
        raise ValueError(
            f"{name}: column {column!r} holds {text[row]!r:.60} in row {row + 1}, and "
            "numbers elsewhere. Fix it, or name the column in --labels."
        )
    if text.str.fullmatch(DATES).all() and not isinstance(days(text), str):
        return "date"
    different = text.nunique()
    if different > TEXT and different > 0.5 * len(text):
        raise ValueError(
            f"{name}: column {column!r} looks like an ID or free text, such as "
            f"{text.iloc[0]!r:.60} in row {text.index[0] + 1}; numbers or labels are needed. Name "
            "the columns to use, or this one in --labels."
        )
    return "label"


def convert_column(name: str, values: Any, kind: str, column: str, start: int) -> Any:
    """A column by its kind: floats or text, missing where the file has nothing."""
    import pandas as pd

    values = values.reset_index(drop=True)
    present = values.notna()
    if kind == "label":
        out = pd.Series(np.full(len(values), None, dtype=object))
        out[present] = [as_label(value) for value in values[present]]
        return out
    out = pd.Series(np.full(len(values), np.nan))
    if kind == "date":
        found = days(values[present])
        if isinstance(found, str):
            raise ValueError(f"{name}: column {column!r} holds an invalid date: {found}.")
        out[present] = found
        return out
    plain = values[present]
    if not pd.api.types.is_numeric_dtype(values):
        plain = as_numbers(plain.astype(str))
    out[present] = plain.astype("float64")
    wrong = present & ~(out.abs() <= LARGEST)
    if not wrong.any():
        return out
    row = int(wrong.to_numpy().argmax())
    what = str(values[row])
    if np.isnan(out[row]):
        problem = f"{what!r:.60} in row {start + row + 1}, which is not a number"
    else:
        short = what if len(what) <= 20 else f"{what[:10]}… ({len(what)} characters)"
        short = "an infinite number" if "inf" in what.lower() else short
        problem = f"{short} in row {start + row + 1}, too large to compute with; the limit is "
        problem += f"{LARGEST:g}"
    raise ValueError(
        f"{name}: column {column!r} holds {problem}. Fix it, or leave the field empty."
    )


def as_numbers(text: Any) -> Any:
    """Text as numbers, NaN where it is not a number; long numbers are at worst infinite."""
    import pandas as pd

    found = pd.to_numeric(text, errors="coerce").astype("float64")
    # pandas before version 3 gives up on numbers that are too long
    long = found.isna() & text.str.fullmatch(DIGITS)
    found[long] = [float(value) for value in text[long]]
    return found


def as_label(value: Any) -> str:
    """A value as a label: whole numbers without the decimal point that missing values add."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def days(values: Any) -> Any:
    """Dates as days since 1970, or a message if one is invalid."""
    import pandas as pd

    try:
        form = None if pd.api.types.is_datetime64_any_dtype(values) else "ISO8601"
        times = pd.to_datetime(values, utc=True, format=form)
    except (ValueError, OverflowError) as error:
        return first_line(error)
    return (times - pd.Timestamp(0, tz="UTC")).dt.total_seconds() / DAY
