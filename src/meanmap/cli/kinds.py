"""The kinds of columns: numbers, dates, labels, and those that are left out unless named."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from meanmap.checks import LARGEST
from meanmap.exceptions import warn

DAY = 86_400
DIGITS = r"[+-]?[0-9]+(?:\.[0-9]*)?"
TEXTS = ("ID", "free text")
TEXT = 20  # distinct texts beyond which a column that rarely repeats is not taken for labels
COUNTER = 25  # rows from which whole numbers that rise by one are taken for row numbers
ID = re.compile(r"(?i:(?:.*[_\W])?(?:id|uuid|guid)|index|rownames?|row|nr|no|#)|.*[a-z]I[dD]")
CURRENCY = r"(?:[A-Z]{0,2}[$€£¥₹]|USD|EUR|GBP|CHF|JPY|CNY|INR|AUD|CAD|SEK|NOK|DKK|PLN|kr|%)"
#: ISO dates, then the usual forms; the first that all values have counts.
ISO = r"\d{4}-\d{2}(?:-\d{2}(?:[T ].*)?)?"
DAYS = ["%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y", "%d.%m.%y", "%m/%d/%y"]
DAYS += ["%d/%m/%y", "%d-%b-%Y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d. %B %Y"]
TIMES = ["", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p"]
FORMS = [day + time for time in TIMES for day in DAYS]


def kind_of(name: str, values: Any, column: str) -> str:
    """The kind of one column, or an error if it is unclear.

    "number", "number, decimal commas", "date", "date, %d.%m.%Y", "label", or what cannot be used:
    "ID", "free text", "complex numbers", "dict values".
    """
    import pandas as pd

    present = values.reset_index(drop=True).dropna()
    if not len(present):
        raise ValueError(f"{name}: column {column!r} is empty. Name the columns to use.")
    if pd.api.types.is_bool_dtype(values) or set(map(type, present[:100])) == {bool}:
        return "label"
    if pd.api.types.is_complex_dtype(values):
        return "complex numbers"
    if pd.api.types.is_numeric_dtype(values):
        days = pd.api.types.is_integer_dtype(values) and present.between(19000101, 21001231).all()
        days = days and parse(present.astype(str), "date, %Y%m%d").notna().all()
        return "date, %Y%m%d" if days else "number"
    if pd.api.types.is_datetime64_any_dtype(values):
        return "date"
    odd = [value for value in present[:100] if isinstance(value, dict | set | list | bytes)]
    if odd:
        return f"{type(odd[0]).__name__} values"
    text = present.astype(str).str.strip()
    kind = number_form(text)
    numbers = parse(text, kind).notna()
    if numbers.all():
        return kind
    if numbers.mean() > 0.5:
        row = numbers.index[~numbers][0]
        raise ValueError(
            f"{name}: column {column!r} holds {text[row]!r:.60} in row {row + 1}, and "
            "numbers elsewhere. Fix it, say --na if it means missing, or name the column in "
            "--labels."
        )
    different = text.nunique()
    repeats = different <= TEXT or different <= 0.5 * len(text)
    found = date_form(text)
    if found or repeats:
        return found or "label"
    return "free text" if text.str.contains(" ").mean() > 0.5 else "ID"


def refuse_kind(name: str, values: Any, column: str, kind: str) -> None:
    """Refuse a column that was asked for and is neither a number, a date nor a label."""
    if kind in TEXTS:
        row = values.first_valid_index()
        raise ValueError(
            f"{name}: column {column!r} looks like an ID or free text, such as "
            f"{str(values[row])!r:.60} in row {row + 1}; numbers or labels are needed. Name the "
            "columns to use, or this one in --labels."
        )
    supported = "numbers, text and dates are supported. Leave it out."
    raise ValueError(f"{name}: column {column!r} holds {kind}; {supported}")


def reason_to_leave_out(values: Any, column: str, kind: str) -> str:
    """Why a column is not used unless it is named: it is a date, an ID or free text; or ""."""
    import pandas as pd

    plain = kind.partition(",")[0]
    if plain not in ("number", "label"):
        return plain
    present = values.dropna()
    whole = not pd.api.types.is_float_dtype(values) or (present % 1 == 0).all()
    unique = present.nunique()
    named = ID.fullmatch(column) and whole and (unique == len(present) or unique > TEXT)
    rises = pd.api.types.is_integer_dtype(values) and len(present) > COUNTER
    return "ID" if named or (rises and (present.diff()[1:] == 1).all()) else ""


def convert_column(name: str, values: Any, kind: str, column: str, start: int) -> Any:
    """A column by its kind: floats or text, missing where the file has nothing."""
    import pandas as pd

    values = values.reset_index(drop=True)
    present = values.notna()
    plain = kind.partition(",")[0]
    if plain not in ("number", "date", "label"):
        refuse_kind(name, values, column, kind)
    if plain == "label":
        out = pd.Series(np.full(len(values), None, dtype=object))
        out[present] = [as_label(value) for value in values[present]]
        return out
    out = pd.Series(np.full(len(values), np.nan))
    if plain == "number" and pd.api.types.is_numeric_dtype(values):
        out[present] = values[present].astype("float64")
    else:
        text = values[present].map(as_label).str.strip()
        found = parse(text, kind)
        if found.isna().any():  # the file may have another form than that of the training rows
            other = date_form(text) if plain == "date" else number_form(text)
            found = parse(text, other or kind)
        out[present] = found
    wrong = present & ~(out.abs() <= LARGEST)
    if not wrong.any():
        return out
    row = int(wrong.to_numpy().argmax())
    what = str(values[row])
    if np.isnan(out[row]):
        problem = f"{what!r:.60} in row {start + row + 1}, which is not a {plain}"
    else:
        short = what if len(what) <= 20 else f"{what[:10]}… ({len(what)} characters)"
        short = "an infinite number" if "inf" in what.lower() else short
        problem = f"{short} in row {start + row + 1}, too large to compute with; the limit is "
        problem += f"{LARGEST:g}"
    raise ValueError(
        f"{name}: column {column!r} holds {problem}. Fix it, or leave the field empty."
    )


def as_label(value: Any) -> str:
    """A value as a label: whole numbers without the decimal point that missing values add."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


# --- text as numbers ------------------------------------------------------------------------------


def parse(text: Any, kind: str) -> Any:
    """Text as numbers, dates as days since 1970; NaN where it does not have the form of a kind."""
    import pandas as pd

    plain, _, form = kind.partition(", ")
    if plain == "date":
        times = pd.to_datetime(text, format=form or "ISO8601", errors="coerce", utc=True)
        return (times - pd.Timestamp(0, tz="UTC")).dt.total_seconds() / DAY
    if form:
        return grouped_numbers(text, True)
    found = pd.to_numeric(text, errors="coerce").astype("float64")
    # pandas before version 3 gives up on numbers that are too long
    long = found.isna() & text.str.fullmatch(DIGITS)
    found[long] = [float(value) for value in text[long]]
    rest = found.isna()
    if rest.any():
        found[rest] = grouped_numbers(text[rest], False)
    return found


def grouped_numbers(text: Any, commas: bool) -> Any:
    """Amounts such as "$1,234.50", "(12)", "7 %" and, with decimal commas, "1.234,50 EUR"."""
    import pandas as pd

    body, (group, decimal) = without_currency(text), ".," if commas else ",."
    form = rf"[-+]?(?:\d+|\d{{1,3}}(?:[{group}]\d{{3}})+)?(?:[{decimal}]\d*)?"
    body = body.where(body.str.fullmatch(form))
    body = body.str.replace(group, "", regex=False).str.replace(decimal, ".", regex=False)
    return pd.to_numeric(body, errors="coerce").astype("float64")


def without_currency(text: Any) -> Any:
    """Amounts without currencies, percent signs, spaces between groups, and brackets for minus."""
    for old, new in (
        ("−", "-"),
        (rf"^([(\s]*[-+]?)\s*{CURRENCY}\s*", r"\1"),
        (rf"\s*{CURRENCY}(\s*\)?)$", r"\1"),
        (r"^\(\s*(.*?)\s*\)$", r"-\1"),
        (r"(?<=\d)[\s'’](?=\d{3}(?!\d))", ""),
    ):
        text = text.str.replace(old, new, regex=True)
    return text


def number_form(text: Any) -> str:
    """The kind of numbers in text: with decimal commas if some of them can be nothing else."""
    body = without_currency(text[text.str.contains(",", regex=False)])
    commas = body.str.fullmatch(r"[-+]?(?:\d*|\d{1,3}(?:\.\d{3})+),\d+")
    commas &= ~body.str.fullmatch(r"[-+]?[1-9]\d{0,2},\d{3}")
    points = body.str.fullmatch(r"[-+]?\d{1,3}(?:,\d{3})+\.\d*")
    return "number, decimal commas" if commas.any() and not points.any() else "number"


def date_form(text: Any) -> str:
    """The kind of dates that all texts have the form of, or ""."""
    if len(text) and text.str.fullmatch(ISO).all() and parse(text, "date").notna().all():
        return "date"
    few = text.drop_duplicates()[:50]
    if few.empty or not few.str.contains(r"\d").all():
        return ""
    for form in (f"date, {form}" for form in FORMS):
        if parse(few, form).notna().all() and parse(text, form).notna().all():
            if "%m/%d" in form and parse(text, form.replace("%m/%d", "%d/%m")).notna().all():
                words = f"{text.iloc[0]!r} and other dates are read as month/day; they could be "
                warn(f"{words}day/month. Dates such as 2024-12-31 are always clear.", UserWarning)
            return form
    return ""
