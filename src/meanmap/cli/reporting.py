"""`shift` and `select`: which columns changed, and which ones matter."""

# Without `from __future__ import annotations`: typer reads annotations.

from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import typer

from meanmap.cli.app import Findings
from meanmap.cli.options import Columns, File, FileOptions, LevelOptions, TableOptions, Train
from meanmap.cli.tables import (
    Table,
    TableRows,
    chosen_columns,
    data_notes,
    open_tables,
    same_kinds,
    shared_columns,
)
from meanmap.report.answers import Answer, AnswerTable, Picture

MOST = 2000  # rows of each file that a report looks at
SCORES = {
    "auto": "by how much the error on rows left out grows without the column",
    "backward": "the dependence (HSIC) that was lost with the column when it was dropped",
    "forward": "the dependence (HSIC) that was gained with the column when it was added",
    "lasso": "the coefficient of the column",
}


def shift(
    train: Train,
    test: Annotated[str, typer.Argument(metavar="TEST", help="The table to compare.")],
    *,
    columns: Columns = None,
    target: Annotated[
        str | None, typer.Option(metavar="Y", help="The column to be predicted.")
    ] = None,
    options: LevelOptions,
    files: FileOptions,
) -> Findings:
    """Find the kind of shift between training and test rows.

    \b
    For example:
      meanmap shift @flowers-train @flowers-test --target species
    """
    from meanmap.report import shift_report

    tables = open_tables((train, test), options)
    names = compared_columns(tables, columns, target)
    goal = [] if target is None else [target]
    known = [goal, goal if all(map(tables[1].has, goal)) else []]
    rows = []
    for table, more in zip(tables, known, strict=True):
        asked = [*names, *more]
        rows.append(table.sample(asked, MOST, files.seed) if table.large else table.rows(asked))
        rows[-1].enough(2)
    same_kinds(*(replace(one, kinds={c: one.kinds[c] for c in names}) for one in rows))
    y, y_test = (
        values_of(one, more[0]) if more else None for one, more in zip(rows, known, strict=True)
    )
    found = shift_report(
        rows[0].frame[names],
        rows[1].frame[names],
        y,
        y_test,
        level=options.alpha,
        rng=files.seed,
        max_samples=MOST,
        progress=files.progress,
    )
    answer = found.answer()
    answer = replace(
        answer,
        sources=tuple(one.source for one in rows),
        settings={**answer.settings, "seed": str(files.seed)},
        notes=(*answer.notes, *data_notes(rows, ())),
    )
    return Findings([answer], exit_code=options.exit_code)


def compared_columns(
    tables: list[Table], columns: list[str] | None, target: str | None
) -> list[str]:
    """The columns that both tables have, without the target."""
    if target is not None:
        tables[0].named([target], "--target")
        if columns is None:  # the test table may have others, and lack the target
            names = chosen_columns(tables, None, "--columns", [target])[0]
            return tables[1].named([column for column in names if column != target])
    names = shared_columns(tables, columns)
    if target in names:
        raise ValueError(
            f"--columns: {target!r} is the target, whose own shift is tested by itself. Name "
            "it in --target only."
        )
    return names


def values_of(rows: TableRows, column: str) -> Any:
    """A column as an array."""
    return rows.frame[column].to_numpy(dtype=str if rows.kinds[column] == "label" else float)


def select(
    file: File,
    target: Annotated[str, typer.Option(metavar="Y", help="The dependent column.")],
    *,
    features: Annotated[
        list[str] | None,
        typer.Option(metavar="A,B", help="Columns to choose from. Default: all others."),
    ] = None,
    count: Annotated[
        str, typer.Option(metavar="N", help="Number of columns to choose, or auto.")
    ] = "auto",
    method: Annotated[str, typer.Option(help="auto, backward, forward or lasso.")] = "auto",
    options: TableOptions,
    files: FileOptions,
) -> Findings:
    """Select the columns that a target depends on most.

    \b
    For example:
      meanmap select @machine --target failed --count 2
    """
    from meanmap import HSICSelector

    table = Table.of(file, options)
    goal, *others = table.named([target], "--target")
    if others:
        raise ValueError(f"--target: name one column, got {1 + len(others)}.")
    names = table.chosen(features, "--features", [goal])
    if features is not None and goal in names:
        raise ValueError(f"--features: {goal!r} is the target. Name it in --target only.")
    names = [column for column in names if column != goal]
    if not names:
        raise ValueError(f"{table.name} has no column besides the target {goal!r}.")
    rows = table.rows([*names, goal])
    rows.enough(5)
    try:
        number = count if count == "auto" else int(count)
    except ValueError:
        raise ValueError(f"--count must be a whole number or auto, got {count!r}.") from None
    selector = HSICSelector(number, method=method, random_state=files.seed, progress=files.progress)
    selector.fit(rows.numbers(names), values_of(rows, goal))
    answer = replace(
        selection_answer(selector, names, goal),
        sources=(rows.source,),
        settings={"method": method, "count": count, "seed": str(files.seed)},
    )
    notes = (*answer.notes, *data_notes([rows], [*names, goal]))
    return Findings([replace(answer, notes=notes)])


def selection_answer(selector: Any, names: list[str], goal: str) -> Answer:
    """A selection in words and numbers."""
    support, scores = selector.support_, selector.scores_
    # what is selected comes first; ranks follow the scores, not the order of the search
    order = np.lexsort((selector.ranking_, -scores, ~support))
    ranking = np.argsort(order) + 1
    chosen = [names[i] for i in order if support[i]]
    columns = {"support": support, "ranking": ranking, "scores": scores}
    values: dict[str, Any] = {
        **{key: dict(zip(names, part.tolist(), strict=True)) for key, part in columns.items()},
        "selected": chosen,
        "n_features": int(selector.n_features_),
    }
    cells = tuple(
        (str(ranking[i]), names[i], f"{scores[i]:.3g}", "selected" if support[i] else "")
        for i in order
    )
    words = f"A score is {SCORES[selector.method]}"
    below = "; below zero, the column does no good" if (scores < 0).any() else ""
    most = f"{', '.join(chosen[:10])}{', …' if len(chosen) > 10 else ''}"
    return Answer(
        f"Columns that {goal} depends on",
        f"{goal} depends most on {most} ({len(chosen)} of {len(names)} columns).",
        values,
        (AnswerTable(("rank", "column", "score", "choice"), cells, "Columns by rank"),),
        (Picture(lambda axes: selector.plot(axes[0]), f"Dependence of {goal} along the search."),),
        notes=(f"{words}{below}.",),
    )
