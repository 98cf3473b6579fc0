"""`condition`: the distribution of columns given others."""

# Without `from __future__ import annotations`: typer reads annotations.

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import typer

from meanmap.cli.app import Findings
from meanmap.cli.comparing import SAMPLE
from meanmap.cli.formats import DATABASE, open_input
from meanmap.cli.kinds import date_form, number_form, parse
from meanmap.cli.options import File, InBatches, OutputOptions, Scale, TableOptions, check_share
from meanmap.cli.tables import (
    Coding,
    Table,
    TableRows,
    answer_table,
    data_notes,
    read_point,
    show_cell,
    show_column,
)
from meanmap.report.answers import Answer, Picture

Levels = tuple[float, ...]
Answers = Callable[[Any], dict[str, Any]]

RANK = 300  # coordinates of the columns that are given, in batches
AT_ONCE = 20_000_000  # weights of answers in memory at a time


def condition(
    file: File,
    given: Annotated[list[str], typer.Option(metavar="A,B", help="Columns to condition on.")],
    predict: Annotated[
        list[str], typer.Option(metavar="Y", help="Numeric columns, or one column of labels.")
    ],
    at: Annotated[
        list[str],
        typer.Option(metavar="QUERY", help='A point, "a=1,b=2", or a file. Can be repeated.'),
    ],
    *,
    quantiles: Annotated[
        str, typer.Option(metavar="Q,Q", help="Quantiles, between 0 and 1.")
    ] = "0.05,0.5,0.95",
    scale: Scale = True,
    stream: InBatches = None,
    options: TableOptions,
    files: OutputOptions,
) -> Findings:
    """Predict the distribution of columns given others.

    \b
    For example:
      meanmap condition @summer --given temperature --predict ice_cream --at temperature=25
      meanmap condition @flowers-train --given length,width --predict species --at @flowers-test
    """
    levels = read_quantiles(quantiles)
    table = Table.of(file, options)
    known, asked = table.named(given, "--given"), table.named(predict, "--predict")
    in_batches = table.large if stream is None else stream
    rows = training_rows(table, known, asked, in_batches, files.seed)
    coding = Coding.of([rows], known, scale)
    query = read_queries(at, known, rows, options)
    marks, notes = mark_rows(query, known, rows)
    answered = marks == ""
    notes = data_notes([rows], [*known, *asked], notes)
    model = learn(table, rows, coding, asked, in_batches, files)
    answers = answers_of(model, rows, asked, levels)
    columns = answer_columns(query, marks, lambda part: answers(coding(part)))
    shown = {c: show_column(part, rows.kinds.get(c, "")) for c, part in columns.items()}
    answer_of = Conditional(columns, shown, known, asked, rows.kinds[asked[0]] == "label", levels)
    kernels = [repr(model.kernel_x_), repr(model.kernel_y_)]
    settings = {"regularization": f"{model.regularization_:.3g}", "kernels": " and ".join(kernels)}
    settings |= {"columns": str(coding), "rows": "in batches" if in_batches else "at once"}
    answer = Answer(
        f"{', '.join(asked)} given {', '.join(known)}",
        answer_of.headline(answered),
        {**answer_of.nested(), "regularization": model.regularization_, "kernel": kernels},
        (answer_table(shown),),
        (answer_of.picture(rows, answers),),
        (rows.source,),
        settings,
        tuple(notes),
    )
    return Findings([answer], columns=shown)


def read_quantiles(words: str) -> Levels:
    """Numbers between 0 and 1, separated by commas."""
    try:
        levels = tuple(float(q) for q in words.split(","))
    except ValueError:
        raise ValueError(f"--quantiles must be numbers, got {words!r}.") from None
    for level in levels:
        check_share(level, "--quantiles", 0.5)
    return levels


def training_rows(
    table: Table, known: list[str], asked: list[str], in_batches: bool, seed: int
) -> TableRows:
    """The rows to learn from, a sample of a large file."""
    for column in asked:
        if column in known:
            raise ValueError(f"column {column!r} is both given and predicted. Name it once.")
    names = [*known, *asked]
    rows = table.sample(names, SAMPLE, seed) if in_batches else table.rows(names)
    rows.enough(5)
    mixed = [column for column in asked if rows.kinds[column] == "label"]
    if mixed and len(asked) > 1:
        raise ValueError(f"--predict: {mixed[0]!r} is a label. Predict it by itself.")
    return rows


def read_queries(
    at: Sequence[str], known: list[str], rows: TableRows, options: TableOptions
) -> TableRows:
    """Where to answer: points in words, or rows of files."""
    import pandas as pd

    labels = [column for column in known if rows.kinds[column] == "label"]
    parts = []
    for words in at:
        there = words == "-" or os.path.isfile(words) or DATABASE.fullmatch(words)
        if there and words.partition("=")[0].strip() in known and "=" in words:
            raise ValueError(
                f"--at: {words!r} is a file and a point. Write ./{words} for the file."
            )
        if there or "=" not in words:
            table = Table(open_input(words, options), list(labels))
            found = table.rows(table.named(known, "--at"), rows.kinds, gaps=known)
            found.enough(1)
            parts.append(table.ids(known).join(found.frame))
            continue
        point = read_point(words, known)
        for column in labels:
            seen = set(rows.frame[column])
            if point[column] not in seen:
                some = ", ".join(sorted(seen)[:10])
                raise ValueError(
                    f"--at: {column} is never {point[column]!r} in {rows.name}. There are: {some}."
                )
        values = {c: [query_value(point[c], rows.kinds[c], c)] for c in known}
        parts.append(pd.DataFrame(values))
    whole = pd.concat(parts, ignore_index=True)
    ids = whole.drop(columns=known)
    whole = ids.where(ids.notna(), "").join(whole[known])
    return TableRows("--at", whole, {c: rows.kinds[c] for c in known}, len(whole))


def mark_rows(query: TableRows, known: list[str], rows: TableRows) -> tuple[np.ndarray, list[str]]:
    """Why each row of --at cannot be answered, "" if it can, and notes on these rows."""
    frame = query.frame[known]
    marks = np.full(len(frame), "", dtype=object)
    for column in known:
        gap = frame[column].isna().to_numpy()
        marks[gap] = [f"{mark}, {column}".removeprefix(", ") for mark in marks[gap]]
    marks[marks != ""] += " missing"
    counts = {"have missing values": int((marks != "").sum())}
    for column in known:
        if rows.kinds[column] == "label":
            new = (marks == "") & ~frame[column].isin(set(rows.frame[column])).to_numpy()
            some = ", ".join(map(repr, dict.fromkeys(frame[column][new].tolist()[:5])))
            counts[f"hold a {column} that {rows.name} never has ({some})"] = int(new.sum())
            marks[new] = f"unknown {column}"
    notes = [
        f"{size} of {len(frame)} rows of --at {words}; their answers are left blank."
        for words, size in counts.items()
        if size
    ]
    if (marks != "").all():
        raise ValueError(" ".join(["--at has no row to answer.", *notes]))
    return marks, notes


def answer_columns(query: TableRows, marks: np.ndarray, answers: Answers) -> dict[str, Any]:
    """The columns of --at, its answers, and a note on rows without one if there are such."""
    import pandas as pd

    columns: dict[str, Any] = {column: query.frame[column].to_numpy() for column in query.frame}
    part = TableRows(query.name, query.frame[marks == ""], query.kinds, query.total)
    found = pd.DataFrame(answers(part), np.flatnonzero(marks == ""))
    columns |= {key: one.to_numpy() for key, one in found.reindex(range(len(marks))).items()}
    return columns if (marks == "").all() else {**columns, "note": marks}


def query_value(text: str, kind: str, name: str) -> float | str:
    """A value of --at by the kind of its column."""
    import pandas as pd

    if kind == "label":
        return text
    given, date = pd.Series([text]), kind.startswith("date")
    form = (date_form if date else number_form)(given)
    found = float(parse(given, form or kind)[0])
    if np.isfinite(found):
        return found
    where = f"--at: {name}={text if len(text) <= 20 else text[:10] + '…'} is not a"
    words = "number" if np.isnan(found) else "finite number"
    remedy = "date such as 2024-12-31" if date else f"{words}, and {name} holds numbers"
    raise ValueError(f"{where} {remedy}.")


def learn(
    table: Table, rows: TableRows, coding: Coding, asked: list[str], in_batches: bool, files: Any
) -> Any:
    """A model of all rows; in batches, with the kernels, coordinates and λ of a sample of them."""
    from meanmap import ConditionalEmbedding
    from meanmap.spaces import PivotedCholesky
    from meanmap.streams import feed

    target = Coding.of([rows], asked, False)
    basis = (PivotedCholesky(1e-6, max_rank=RANK), None) if in_batches else None
    model = ConditionalEmbedding(basis=basis).fit(coding(rows), target(rows))
    if not in_batches:
        return model
    spaces = model.space_x_, model.space_y_
    model = ConditionalEmbedding(model.kernel_x_, model.kernel_y_, model.regularization_, spaces)
    batches = table.batches([*coding.columns, *asked], rows.kinds)
    pairs = ((coding(part), target(part)) for part in batches if len(part.frame))
    feed(model, pairs, progress=files.progress)
    return model


def answers_of(model: Any, rows: TableRows, asked: list[str], levels: Levels) -> Answers:
    """A function that gives the answers of a model at points."""
    if rows.kinds[asked[0]] != "label":
        return lambda points: number_answers(model, points, asked, levels)
    labels = np.unique(rows.frame[asked[0]].to_numpy(dtype=str))
    return lambda points: probability_columns(asked[0], labels, model.given(points)(labels))


# --- answers --------------------------------------------------------------------------------------


def number_answers(model: Any, points: Any, asked: list[str], levels: Levels) -> dict[str, Any]:
    """Means, standard deviations and quantiles of `model.given(points)`, one column each."""
    block = max(1, AT_ONCE // len(model.weights_))
    parts = []
    for start in range(0, len(points), block):
        beliefs = model.given(points[start : start + block])
        figures = [belief_figures(beliefs, what, len(asked)) for what in ("mean", "std")]
        figures += [belief_figures(beliefs, "quantile", len(asked), q) for q in levels]
        parts.append(np.stack(figures))
    found = np.concatenate(parts, axis=1)
    names = ["mean", "std", *(f"{q:g}" for q in levels)]
    return {
        f"{column} {name}": found[j, :, i]
        for i, column in enumerate(asked)
        for j, name in enumerate(names)
    }


def belief_figures(beliefs: Any, what: str, size: int, *arguments: float) -> np.ndarray:
    """One figure per belief; NaN for points too far from the data."""
    try:
        return np.asarray(getattr(beliefs, what)(*arguments))
    except ValueError:
        if len(beliefs) == 1:
            return np.full((1, size), np.nan)
    half = len(beliefs) // 2
    parts = beliefs[:half], beliefs[half:]
    return np.concatenate([belief_figures(part, what, size, *arguments) for part in parts])


@dataclass(frozen=True, eq=False)
class Conditional:
    """Answers at points: one column per given column, and per figure of the predicted ones."""

    columns: dict[str, Any]
    shown: dict[str, Any]
    known: list[str]
    asked: list[str]
    of_labels: bool
    levels: Levels

    def figure(self, name: str) -> dict[str, Any]:
        """One figure of each predicted column."""
        return {column: self.columns[f"{column} {name}"] for column in self.asked}

    def nested(self) -> dict[str, Any]:
        """The table's columns as programs need them."""
        out: dict[str, Any] = {"given": {column: self.columns[column] for column in self.known}}
        first = list(self.columns)[: list(self.columns).index(self.known[0])]
        out |= {"ids": {column: self.columns[column] for column in first}} if first else {}
        out |= {"row_notes": self.columns["note"]} if "note" in self.columns else {}
        if self.of_labels:
            shares = probabilities_of(self.columns, self.asked[0])
            return {**out, "mode": self.figure("mode"), "probability": shares}
        levels = {f"{q:g}": self.figure(f"{q:g}") for q in self.levels}
        quantiles = {c: {q: part[c] for q, part in levels.items()} for c in self.asked}
        return {
            **out,
            "mean": self.figure("mean"),
            "std": self.figure("std"),
            "quantile": quantiles,
        }

    def headline(self, answered: np.ndarray) -> str:
        """The first answer in words, and the number of answers."""
        asked, levels = self.asked, self.levels
        many, total = int(answered.sum()), len(answered)
        columns = {key: part[answered] for key, part in self.shown.items()}
        where = ", ".join(f"{column} = {show_cell(columns[column][0])}" for column in self.known)
        if not self.of_labels and np.isnan(columns[f"{asked[0]} mean"][0]):
            return f"Nothing is known about {', '.join(asked)} at {where}: no row is near."
        if self.of_labels:
            found = columns[f"{asked[0]} mode"][0]
            share = columns[f"P({asked[0]}={found})"][0]
            words = [f"{asked[0]} is {found} with probability {share:.2f}"]
        else:
            words = [
                f"{c} is {show_cell(columns[f'{c} mean'][0])} ± {show_cell(columns[f'{c} std'][0])}"
                for c in asked
            ]
            if len(asked) == 1 and len(levels) > 1:
                low, high = min(levels), max(levels)
                ends = [show_cell(columns[f"{asked[0]} {q:g}"][0]) for q in (low, high)]
                words[0] += f", between {ends[0]} and {ends[1]} with probability {high - low:g}"
        there = "is 1 answer" if many == 1 else f"are {many} answers"
        more = f" There {there}{f' for {total} rows' * (many < total)}."
        more = more if total > 1 else ""
        return f"Given {where}: {'; '.join(words)}.{more}"

    def picture(self, rows: TableRows, answers: Answers) -> Picture:
        """A curve if one number is given, otherwise one interval per answer."""
        from meanmap import plots

        target, known, levels = self.asked[0], self.known, self.levels
        if self.of_labels:
            return Picture(
                lambda axes: plots.shares(probabilities_of(self.columns, target), target, axes[0]),
                f"The probability of each {target} at each query point.",
            )
        words = f"The mean of {target} and the interval from its quantile "
        words += f"{min(levels):g} to {max(levels):g}"
        if len(known) == 1 and rows.kinds[known[0]] != "label":
            return Picture(
                lambda axes: self._draw_curve(axes[0], rows, answers),
                f"{words} against {known[0]}, over the rows of {rows.name}.",
            )
        return Picture(self._draw_points, f"{words} at each query point.")

    def _draw_curve(self, ax: Any, rows: TableRows, answers: Answers) -> None:
        from meanmap import plots

        target, known = self.asked[0], self.known[0]
        low, high = min(self.levels), max(self.levels)
        x, y = (rows.frame[column].to_numpy(dtype=float) for column in (known, target))
        grid = np.linspace(float(np.quantile(x, 0.005)), float(np.quantile(x, 0.995)), 80)
        found = answers(grid[:, None])
        ends = found[f"{target} {low:g}"], found[f"{target} {high:g}"]
        plots.band(grid, found[f"{target} mean"], ends, (x, y), high - low, ax)
        self._draw_bars(ax, self.columns[known])
        ax.set(xlabel=known, ylabel=target)
        ax.legend(fontsize="small")

    def _draw_points(self, axes: list[Any]) -> None:
        self._draw_bars(axes[0], np.arange(1, len(self.columns[self.known[0]]) + 1))
        axes[0].set(xlabel="query point", ylabel=self.asked[0])

    def _draw_bars(self, ax: Any, at: Any) -> None:
        target, levels = self.asked[0], (min(self.levels), max(self.levels))
        # the interval is that of the table, whether or not the mean lies in it
        ends = np.array([self.columns[f"{target} {q:g}"] for q in levels])
        reach = (ends[1] - ends[0]) / 2
        ax.errorbar(at, ends[0] + reach, reach, fmt="none", ecolor="#d55e00", capsize=3)
        ax.plot(at, self.columns[f"{target} mean"], "o", color="#d55e00", label="query")


def probability_columns(asked: str, labels: np.ndarray, values: np.ndarray) -> dict[str, Any]:
    """The probability of each label, and the most likely one."""
    found = np.maximum(np.nan_to_num(np.asarray(values)), 0.0)
    total = found.sum(axis=1, keepdims=True)
    found = np.where(total > 0, found / np.where(total > 0, total, 1), 1 / len(labels))
    out: dict[str, Any] = {f"{asked} mode": labels[found.argmax(axis=1)]}
    return out | {f"P({asked}={label})": found[:, i] for i, label in enumerate(labels)}


def probabilities_of(columns: dict[str, Any], target: str) -> dict[str, Any]:
    """The columns of probabilities, by label."""
    head = f"P({target}="
    return {key[len(head) : -1]: part for key, part in columns.items() if key.startswith(head)}
