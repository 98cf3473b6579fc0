"""Pages of answers: what was found, on what, and how to find it again."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape

import meanmap
from meanmap.report import html, interactive, pictures
from meanmap.report.answers import Answer, DataSource

MANY = 12  # columns of a table of which more are folded away
MOST_ROWS = 1000  # of a table in a page
MOST_JSON = 200_000  # characters


def answers_page(answers: Sequence[Answer], title: str) -> str:
    """One self-contained page of answers, each with its table, figures, settings and data.

    Examples
    --------
    >>> from meanmap.report.answers import Answer
    >>> found = Answer("Two samples", "No difference is seen.", {"pvalue": 0.4}, command="demo")
    >>> answers_page([found], "Two samples").startswith("<!DOCTYPE html>")
    True
    """
    answers = list(answers)
    alone = len(answers) == 1
    parts = []
    if not alone:
        links = [(f"answer-{i}", one.title) for i, one in enumerate(answers, start=1)]
        parts.append(html.contents(links))
    for i, answer in enumerate(answers, start=1):
        if not alone or answer.title != title:
            parts.append(html.heading(answer.title, 2, f"answer-{i}"))
        parts += answer_parts(answer, i, 2 if alone and answer.title == title else 3)
    return html.html_page(title, [*parts, footer()], interactive=True)


def answer_parts(answer: Answer, number: int, level: int) -> list[str]:
    """All that there is to say of an answer, under headings of a level."""
    parts = [html.paragraph(answer.headline, lead=True)]
    for i, picture in enumerate(answer.pictures, start=1):
        drawn = pictures.draw_picture(picture)
        if drawn is not None:
            parts.append(
                interactive.interactive_figure(drawn, picture.description, f"a{number}-{i}")
            )
    if answer.rows:
        parts.append(html.heading("Numbers", level))
        rows = answer.rows[:MOST_ROWS]
        parts.append(html.html_table(answer.header, rows, numbers=number_columns(rows)))
        left = len(answer.rows) - len(rows)
        if left:
            parts.append(html.paragraph(f"… and {count_words(left, 'row')} more.", quiet=True))
    if answer.settings:
        parts += [html.heading("Settings", level), html.html_pairs(answer.settings)]
    if answer.sources:
        parts += [html.heading("Data", level), *map(source_words, answer.sources)]
    if answer.command:
        parts += [html.heading("Run it again", level), html.command(answer.command)]
    if answer.values:
        text = json.dumps(answer.values, indent=2, ensure_ascii=False, default=str)
        if len(text) <= MOST_JSON:  # more is not read in a page
            parts.append(html.details("The same for programs, as JSON", [html.code(text)]))
    return parts


def source_words(source: DataSource) -> str:
    """A table that was read: its shape, and what its columns were taken for."""
    columns, rows = len(source.columns), source.rows
    words = f"{source.name}: {count_words(rows, 'row')}, {count_words(columns, 'column')}"
    if not columns:
        return html.paragraph(words)
    kinds = [(str(name), str(kind)) for name, kind in source.columns.items()]
    if columns <= MANY:
        return html.html_table(("column", "taken for"), kinds, words)
    return html.details(words, [html.html_table(("column", "taken for"), kinds)])


def count_words(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def number_columns(rows: Sequence[Sequence[str]]) -> list[int]:
    """The columns that hold numbers, or nothing."""
    width = min(map(len, rows), default=0)
    columns = ([str(row[j]).strip() for row in rows] for j in range(width))
    return [j for j, cells in enumerate(columns) if any(cells) and all(map(looks_numeric, cells))]


def looks_numeric(cell: str) -> bool:
    return re.fullmatch(r"(?:[<>≤≥=~]? ?[-+−]?[\d,.]+(?:e[-+]?\d+)?[%*]?)?|nan|–", cell) is not None


def footer() -> str:
    return f"<footer><p>Made with meanmap {escape(meanmap.__version__)}.</p></footer>"
