"""Pages of answers: what was found, on which data, and how to get it again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from html import escape

import meanmap
from meanmap.report import html, interactive, pictures
from meanmap.report.answers import Answer, AnswerTable, DataSource

MANY = 12  # columns beyond which the list of columns is folded
MOST_ROWS = 1000  # of a table in a page
MOST_JSON = 200_000  # characters


def answers_page(answers: Sequence[Answer], title: str) -> str:
    """One self-contained page of answers, each with its tables, figures, settings and data.

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
    """Everything about an answer, under headings of a level."""
    parts = [html.paragraph(answer.headline, lead=True)]
    for i, picture in enumerate(answer.pictures, start=1):
        with suppress(ImportError):  # without matplotlib the page has no pictures
            drawn = pictures.draw_pictures([picture])
            name = f"a{number}-{i}"
            parts.append(interactive.interactive_figure(drawn, picture.description, name))
    for table in answer.tables:
        parts += [html.heading(table.title, level), answer_table_part(table)]
        left = len(table.rows) - MOST_ROWS
        if left > 0:
            parts.append(html.paragraph(f"… and {count_words(left, 'row')} more.", quiet=True))
    if answer.notes:
        parts += [html.heading("Notes", level), *map(html.paragraph, answer.notes)]
    if answer.settings:
        parts += [html.heading("Settings", level), html.html_pairs(answer.settings)]
    if answer.sources:
        parts += [html.heading("Data", level), *map(source_words, answer.sources)]
    if answer.command:
        parts += [html.heading("Run it again", level), html.command(answer.command)]
    if answer.values:
        text = json.dumps(answer.values, indent=2, ensure_ascii=False)
        if len(text) <= MOST_JSON:  # more would be too long for a page
            parts.append(html.details("The same as JSON", [html.code(text)]))
    return parts


def source_words(source: DataSource) -> str:
    """A table that was read: its shape, and the kinds of its columns."""
    columns, rows = len(source.columns), source.rows
    words = f"{source.name}: {count_words(rows, 'row')}, {count_words(columns, 'column')}"
    if not columns:
        return html.paragraph(words)
    kinds = [(str(name), str(kind)) for name, kind in source.columns.items()]
    if columns <= MANY:
        return html.html_table(("column", "kind"), kinds, words)
    return html.details(words, [html.html_table(("column", "kind"), kinds)])


def count_words(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def answer_table_part(table: AnswerTable) -> str:
    rows = table.rows[:MOST_ROWS]
    return html.html_table(table.header, rows, table.caption, table.number_columns, table.marked)


def footer() -> str:
    return f"<footer><p>Made with meanmap {escape(meanmap.__version__)}.</p></footer>"
