"""What one piece of work found, ready to be shown: as a table, as JSON, as a picture, as a page."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

NUMBER = re.compile(r"(?:[<>≤≥=~]? ?[-+−]?[\d,.]+(?:e[-+]?\d+)?(?: ?[%*×])?)?|nan|–")


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure that is drawn on demand.

    Attributes
    ----------
    draw : callable
        Takes a list of `panels` axes.
    description : str
        What the picture shows, in words; its alternative text.
    panels : int
    """

    draw: Callable[[list[Any]], Any]
    description: str
    panels: int = 1


@dataclass(frozen=True, eq=False)
class DataSource:
    """A table that was read: its name, its size, and the kinds of its columns.

    Attributes
    ----------
    name : str
    rows : int
    columns : mapping of a column's name to its kind: "number", "label", "vector of 5" …
    """

    name: str
    rows: int
    columns: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class AnswerTable:
    """A table for people; its cells are text.

    Attributes
    ----------
    header : names of the columns; all empty if the first column names the rows
    rows : the cells
    title : str
        The heading above it on a page.
    caption : str
    marked : rows to emphasise
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = "Numbers"
    caption: str = ""
    marked: tuple[int, ...] = ()

    @property
    def number_columns(self) -> list[int]:
        """The columns that hold numbers, which are aligned to the right."""
        columns = [[cell.strip() for cell in column] for column in zip(*self.rows, strict=False)]
        return [j for j, c in enumerate(columns) if any(c) and all(map(NUMBER.fullmatch, c))]


@dataclass(frozen=True, eq=False)
class Answer:
    """What one piece of work found.

    Attributes
    ----------
    title : str
    headline : str
        The finding in words, a sentence or two.
    values : mapping
        Fields for programs, named as the attributes of the result in Python. They become plain
        numbers, strings, lists and mappings, with None for what is not finite.
    tables : the numbers for people
    pictures : of the result
    sources : the tables that it is based on
    settings : mapping of a setting's name to its value, both in words
    notes : what else a reader should know, one sentence per note
    command : str
        What to type to get it again.
    """

    title: str
    headline: str
    values: Mapping[str, Any]
    tables: tuple[AnswerTable, ...] = ()
    pictures: tuple[Picture, ...] = ()
    sources: tuple[DataSource, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    command: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", plain_values(self.values))


def plain_values(value: Any) -> Any:
    """Anything as numbers, text, lists and dicts, with None for what is not finite."""
    if isinstance(value, Mapping):
        return {str(key): plain_values(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        return plain_values(value.tolist())
    if isinstance(value, list | tuple):
        return [plain_values(one) for one in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, str) else str(value)
