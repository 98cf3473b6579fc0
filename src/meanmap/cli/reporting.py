"""`shift` and `select`: which columns changed, and which ones matter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meanmap.cli.outputs import plain_values
from meanmap.cli.tables import (
    Table,
    TableRows,
    constants,
    print_notes,
    same_kinds,
    shared_columns,
    skipped_rows_note,
    two_tables,
)
from meanmap.report.answers import Answer, Picture

if TYPE_CHECKING:
    from meanmap import HSICSelector
    from meanmap.report import ShiftReport

MOST = 2000  # rows of each file that a report looks at
#: Figures of a report that programs get, by what they are of.
COLUMN = ("name", "pvalue", "adjusted", "effect", "difference", "spread", "where")
FINDING = ("name", "pvalue", "adjusted")
EXPLANATION = ("name", "explained", "pvalue", "effective_size", "found")


def report_shift(
    train: str,
    test: str,
    columns: Sequence[str] | None = None,
    target: str | None = None,
    *,
    labels: Sequence[str] = (),
    alpha: float = 0.05,
    seed: int = 0,
    progress: bool | None = None,
) -> Answer:
    """Which kind of shift is there from a training to a test file, and what to try."""
    from meanmap.report import shift_report

    if not 0 < alpha < 1:
        raise ValueError(f"--alpha must lie between 0 and 1, got {alpha:g}. Try 0.05.")
    tables = two_tables(train, test, labels)
    there = tables[1].columns()[0]
    names = compared_columns(tables, columns, target)
    both = target is not None and target in there
    own = [names + ([target] if target else []), names + ([target] if both and target else [])]
    rows = [read_rows(table, part, seed) for table, part in zip(tables, own, strict=True)]
    kinds = [TableRows(r.name, r.frame, {c: r.kinds[c] for c in names}, r.total) for r in rows]
    same_kinds(*kinds)
    for one in rows:
        one.enough(2)
    y = values_of(rows[0], target) if target else None
    y_test = values_of(rows[1], target) if both and target else None
    found = shift_report(
        rows[0].frame[names],
        rows[1].frame[names],
        y,
        y_test,
        level=alpha,
        rng=seed,
        max_samples=MOST,
        progress=progress,
    )
    return shift_answer(found, tables, rows, seed)


def compared_columns(
    tables: tuple[Table, Table], columns: Sequence[str] | None, target: str | None
) -> list[str]:
    """The columns that both tables have, without the target."""
    if target is not None:
        tables[0].named([target], "--target")
    if columns is None and target is None:
        return shared_columns(*tables)
    if columns is None:
        names = [c for c in tables[0].named(None) if c != target]
        tables[1].named(names)
        return names
    names = tables[0].named(columns, "--columns")
    tables[1].named(columns, "--columns")
    if target in names:
        raise ValueError(
            f"--columns: {target!r} is the target, whose own shift is tested by itself. Name "
            "it in --target only."
        )
    return names


def values_of(rows: TableRows, column: str) -> Any:
    """A column as an array."""
    return rows.frame[column].to_numpy(dtype=str if rows.kinds[column] == "label" else float)


def read_rows(table: Table, names: list[str], seed: int) -> TableRows:
    """A table, of a large file some rows."""
    return table.sample(names, MOST, seed) if table.large else table.rows(names)


def shift_answer(
    found: ShiftReport, tables: Sequence[Table], rows: Sequence[TableRows], seed: int
) -> Answer:
    """A report as an answer."""
    gaps = [
        skipped_rows_note(table, one.total) if table.large else one.gap
        for table, one in zip(tables, rows, strict=True)
    ]
    notes = [
        *found.remarks(),
        *print_notes([*gaps, *(words for one in rows for words in one.far)]),
    ]
    header, lines, _ = found.tests_table()
    words = "Columns by how much they differ, and where the leading one does."
    draw = Picture(found.plot, words if found.columns else "The test of the rows.", 2)
    return Answer(
        found.title,
        f"{found.verdict} {found.remedy}",
        plain_values({**shift_values(found), "notes": notes}),
        tuple(header),
        tuple(tuple(line) for line in lines),
        (draw,),
        tuple(one.source for one in rows),
        {"level": f"{found.level:g} for all tests together", "seed": str(seed)},
    )


def shift_values(found: ShiftReport) -> dict[str, Any]:
    """The figures of a report, for programs."""

    def part(one: Any, names: Sequence[str]) -> dict[str, Any]:
        return {name: getattr(one, name) for name in names}

    return {
        "kind": found.kind,
        "candidates": list(found.candidates),
        "verdict": found.verdict,
        "remedy": found.remedy,
        "statistic": found.rows.statistic,
        "pvalue": found.overall.pvalue,
        "adjusted": found.overall.adjusted,
        "rejected": found.kind != "no shift",
        "alpha": found.level,
        "effect": found.effect,
        "sizes": list(found.sizes),
        "used": list(found.used),
        "columns": [part(one, COLUMN) for one in found.columns],
        "targets": [part(one, FINDING) for one in found.targets],
        "explanations": [
            {**part(one, EXPLANATION), "holds": one.holds(found.level)}
            for one in found.explanations
        ],
        "outside": None if math.isnan(found.outside) else found.outside,
    }


def select_columns(
    name: str,
    target: str,
    features: Sequence[str] | None = None,
    *,
    count: str = "auto",
    method: str = "auto",
    labels: Sequence[str] = (),
    seed: int = 0,
    progress: bool | None = None,
) -> Answer:
    """Columns on which a target depends most."""
    from meanmap import HSICSelector

    table = Table.of(name, labels)
    (goal,) = one_column(table, target)
    names = table.named(features, "--features")
    if features is not None and goal in names:
        raise ValueError(f"--features: {goal!r} is the target. Name it in --target only.")
    names = [column for column in names if column != goal]
    if not names:
        raise ValueError(f"{table.name} has no column beside the target {goal!r}.")
    rows = table.rows([*names, goal])
    rows.enough(5)
    try:
        number = count if count == "auto" else int(count)
    except ValueError:
        raise ValueError(f"--count must be a whole number or auto, got {count!r}.") from None
    selector = HSICSelector(number, method=method, random_state=seed, progress=progress)
    selector.fit(rows.numbers(names), values_of(rows, goal))
    notes = print_notes([rows.gap, *rows.far, *constants([rows], [*names, goal])])
    settings = {"method": method, "count": count, "seed": str(seed)}
    return replace(
        selection_answer(selector, names, goal, notes), sources=(rows.source,), settings=settings
    )


def selection_answer(
    selector: HSICSelector, names: list[str], goal: str, notes: list[str]
) -> Answer:
    """A selection in words and numbers."""
    order = sorted(range(len(names)), key=lambda i: selector.ranking_[i])
    chosen = [names[i] for i in order if selector.support_[i]]
    values: dict[str, Any] = {
        "support": {names[i]: bool(selector.support_[i]) for i in range(len(names))},
        "ranking": {names[i]: int(selector.ranking_[i]) for i in range(len(names))},
        "scores": {names[i]: float(selector.scores_[i]) for i in range(len(names))},
        "selected": chosen,
        "n_features": int(selector.n_features_),
        "notes": notes,
    }
    lines = tuple(
        (
            str(selector.ranking_[i]),
            names[i],
            f"{selector.scores_[i]:.3g}",
            "selected" if selector.support_[i] else "",
        )
        for i in order
    )
    what = f"{len(chosen)} of {len(names)} columns"
    return Answer(
        f"Columns on which {goal} depends",
        f"{goal} depends most on {', '.join(chosen[:10])}{', …' if len(chosen) > 10 else ''} "
        f"({what}).",
        plain_values(values),
        ("rank", "column", "score", ""),
        lines,
        (Picture(lambda axes: selector.plot(axes[0]), f"Dependence of {goal} along the search."),),
    )


def one_column(table: Table, target: str) -> list[str]:
    """The target, which is one column."""
    found = table.named([target], "--target")
    if len(found) != 1:
        raise ValueError(f"--target: name one column, got {len(found)}.")
    return found
