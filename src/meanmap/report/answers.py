"""What one piece of work found, ready to be shown: as a table, as JSON, as a picture, as a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure that is drawn when somebody asks for it.

    Attributes
    ----------
    draw : callable
        Takes a list of `panels` axes.
    description : str
        What there is to see, in words; the alternative text of the picture.
    panels : int
    """

    draw: Callable[[list[Any]], Any]
    description: str
    panels: int = 1


@dataclass(frozen=True, eq=False)
class DataSource:
    """A table that was read: where from, how large, and what its columns were taken for.

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
class Answer:
    """What one piece of work found.

    Attributes
    ----------
    title : str
    headline : str
        The finding in words, a sentence or two.
    values : mapping
        Fields for programs, named as the attributes of the result in Python: plain numbers,
        strings, lists and mappings, None for what is not finite.
    header, rows : the table for people; cells are words
    pictures : of the result
    sources : the tables that it stands on
    settings : mapping of a setting's name to its value, both in words
    command : str
        What to type to find it again.
    """

    title: str
    headline: str
    values: Mapping[str, Any]
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    pictures: tuple[Picture, ...] = ()
    sources: tuple[DataSource, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
