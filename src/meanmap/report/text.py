"""Tables in plain text."""

from __future__ import annotations

import math


def number_text(value: float, form: str = ".2f") -> str:
    """A number in words, nothing for NaN."""
    return "" if math.isnan(value) else format(value, form)


def align_columns(rows: list[list[str]]) -> list[str]:
    """Rows of words as lines whose columns stand below each other."""
    widths = [max(len(row[j]) for row in rows) for j in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
