"""`condition`: what a column will be, given others."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from meanmap.cli import streams
from meanmap.cli.comparing import SAMPLE, gap
from meanmap.cli.outputs import plain
from meanmap.cli.streams import Answers, Levels, shares
from meanmap.cli.tables import Coding, Rows, Table, cell, constants, point, told
from meanmap.report.answers import Answer, Picture


def condition(
    name: str,
    given: Sequence[str],
    predict: Sequence[str],
    at: Sequence[str],
    *,
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    labels: Sequence[str] = (),
    scale: bool = True,
    seed: int = 0,
    stream: bool | None = None,
    progress: bool | None = None,
) -> tuple[Answer, dict[str, Any]]:
    """The distribution of columns given others, at some points; and the table of answers."""
    levels = tuple(quantiles)
    if not levels or not all(0 < q < 1 for q in levels):
        raise ValueError("--quantiles must lie between 0 and 1: 0.05,0.5,0.95 for instance.")
    table = Table.of(name, labels)
    known, asked = table.named(given, "--given"), table.named(predict, "--predict")
    both = [column for column in asked if column in known]
    if both:
        raise ValueError(f"column {both[0]!r} is both given and predicted. Name it once.")
    names = [*known, *asked]
    in_batches = table.large if stream is None else stream
    if in_batches:
        rows = table.sample(names, SAMPLE, seed)
        words = gap(table, rows.total)
    else:
        rows = table.rows(names)
        words = rows.gap
    rows.enough(5)
    mixed = [column for column in asked if rows.kinds[column] == "label"]
    if mixed and len(asked) > 1:
        raise ValueError(f"--predict: {mixed[0]!r} is a label. Predict it by itself.")
    coding, target = Coding.of([rows], known, scale), Coding.of([rows], asked, False)
    query = queries(at, known, rows)
    if in_batches:
        model, answers = streams.streamed(table, rows, coding, asked, levels, progress)
    else:
        model, answers = whole(rows, coding, target, levels)
    columns: dict[str, Any] = {column: query.frame[column].to_numpy() for column in known}
    columns |= answers(coding(query))
    values: dict[str, Any] = {
        **nested(columns, known, asked, bool(mixed), levels),
        "regularization": model.regularization_,
        "kernel": [repr(model.kernel_x_), repr(model.kernel_y_)],
        "notes": told([words, *rows.far, *constants([rows], names)]),
    }
    settings = {
        "regularization": f"{model.regularization_:.3g}",
        "kernels": f"{model.kernel_x_!r} and {model.kernel_y_!r}",
        "columns": str(coding),
        "rows": "in batches" if in_batches else "at once",
    }
    shown = tuple(tuple(cell(v) for v in row) for row in zip(*columns.values(), strict=True))
    answer = Answer(
        f"{', '.join(asked)} given {', '.join(known)}",
        headline(columns, known, asked, bool(mixed), levels),
        plain(values),
        tuple(columns),
        shown,
        (picture(rows, columns, known, asked, bool(mixed), levels, answers),),
        (rows.source,),
        settings,
    )
    return answer, columns


def queries(at: Sequence[str], known: list[str], rows: Rows) -> Rows:
    """Where to answer: points in words, or rows of files."""
    import pandas as pd

    parts = []
    for words in at:
        named = None if Path(words).is_file() or words == "-" else point(words, known)
        if named is None and "=" not in words:
            table = Table.of(words, [c for c in known if rows.kinds[c] == "label"])
            found = table.rows(table.named(known, "--at"), rows.kinds)
            found.enough(1)
            parts.append(found.frame)
            continue
        assert named is not None
        for column in known:
            if rows.kinds[column] == "label":
                seen = set(rows.frame[column])
                if named[column] not in seen:
                    some = ", ".join(sorted(seen)[:10])
                    raise ValueError(
                        f"--at: {column} is never {named[column]!r} in {rows.name}. There are: "
                        f"{some}."
                    )
        frame = pd.DataFrame({column: [named[column]] for column in known})
        parts.append(
            pd.DataFrame(
                {c: value(frame[c], rows.kinds[c], c) for c in known},
            )
        )
    whole_query = pd.concat(parts, ignore_index=True)
    return Rows("--at", whole_query, {c: rows.kinds[c] for c in known}, len(whole_query))


def value(column: Any, kind: str, name: str) -> Any:
    """A value of --at by its column's kind."""
    from meanmap.cli.formats import is_number
    from meanmap.cli.kinds import days

    text = column.iloc[0]
    if kind == "number" and not (is_number(text) and np.isfinite(float(text))):
        raise ValueError(f"--at: {name}={text} is no number, and {name} holds numbers.")
    if kind == "number":
        return column.astype(float)
    if kind == "date":
        found = days(column)
        if isinstance(found, str):
            raise ValueError(f"--at: {name}={text} is no date like 2024-12-31.")
        return found
    return column


def whole(rows: Rows, coding: Coding, target: Coding, levels: Levels) -> tuple[Any, Answers]:
    """A model of all rows, and what it answers at points."""
    from meanmap import ConditionalEmbedding

    model = ConditionalEmbedding().fit(coding(rows), target(rows))
    asked = target.columns
    if rows.kinds[asked[0]] == "label":
        labels = np.unique(target(rows))
        return model, lambda points: shares(asked[0], labels, model.given(points)(labels))
    off = target(rows) - np.asarray(model.predict(coding(rows)))
    return model, lambda points: number_answers(model, points, off, asked, levels)


# --- answers --------------------------------------------------------------------------------------


def number_answers(
    model: Any, points: Any, off: np.ndarray, asked: list[str], levels: Levels
) -> dict[str, Any]:
    """Means, deviations and quantiles, a column each.

    The deviation is made of how far rows are from the mean at their own place: small numbers, so
    that rows far away do not matter, whose weights are never quite 0.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # points far away are told of once, below
        sums = [
            np.stack([np.asarray(model.expect(lambda y, f=f: f, points)) for f in values.T], axis=1)
            for values in (off, off * off, np.ones((len(off), 1)))
        ]
    mass = np.where(sums[2] > 1e-6, sums[2], np.nan)
    std = np.sqrt(np.maximum(sums[1] / mass - (sums[0] / mass) ** 2, 0.0))
    beliefs = model.given(points)
    mean = told_of(beliefs, "mean", len(asked))
    ends = [told_of(beliefs, "quantile", len(asked), q) for q in levels]
    out: dict[str, Any] = {}
    for i, column in enumerate(asked):
        out[f"{column} mean"], out[f"{column} std"] = mean[:, i], std[:, i]
        for q, end in zip(levels, ends, strict=True):
            out[f"{column} {q:g}"] = end[:, i]
    return out


def told_of(beliefs: Any, what: str, size: int, *arguments: float) -> np.ndarray:
    """A figure of each belief, a row each; NaN where a point lies so far off that there is none."""
    try:
        return np.asarray(getattr(beliefs, what)(*arguments))
    except ValueError:
        if len(beliefs) == 1:
            return np.full((1, size), np.nan)
    one_by_one = [told_of(beliefs[i : i + 1], what, size, *arguments) for i in range(len(beliefs))]
    return np.concatenate(one_by_one)


def nested(
    columns: dict[str, Any],
    known: list[str],
    asked: list[str],
    of_labels: bool,
    levels: Levels,
) -> dict[str, Any]:
    """The table's columns as programs want them."""
    out: dict[str, Any] = {"given": {column: columns[column] for column in known}}
    if of_labels:
        name = asked[0]
        out["mode"] = {name: columns[f"{name} mode"]}
        head = f"P({name}="
        out["probability"] = {
            key[len(head) : -1]: part for key, part in columns.items() if key.startswith(head)
        }
        return out
    out["mean"] = {column: columns[f"{column} mean"] for column in asked}
    out["std"] = {column: columns[f"{column} std"] for column in asked}
    out["quantile"] = {c: {f"{q:g}": columns[f"{c} {q:g}"] for q in levels} for c in asked}
    return out


def headline(
    columns: dict[str, Any],
    known: list[str],
    asked: list[str],
    of_labels: bool,
    levels: Levels,
) -> str:
    """The first answer in words, and how many there are."""
    where = ", ".join(f"{column} = {cell(columns[column][0])}" for column in known)
    if not of_labels and np.isnan(columns[f"{asked[0]} mean"][0]):
        return f"Nothing is known of {', '.join(asked)} at {where}: no row is near."
    if of_labels:
        found = columns[f"{asked[0]} mode"][0]
        share = columns[f"P({asked[0]}={found})"][0]
        words = [f"{asked[0]} is {found} with probability {share:.2f}"]
    else:
        words = [
            f"{c} is {cell(columns[f'{c} mean'][0])} ± {cell(columns[f'{c} std'][0])}"
            for c in asked
        ]
        if len(asked) == 1 and len(levels) > 1:
            low, high = min(levels), max(levels)
            ends = [cell(columns[f"{asked[0]} {q:g}"][0]) for q in (low, high)]
            words[0] += f", between {ends[0]} and {ends[1]} with probability {high - low:g}"
    many = len(next(iter(columns.values())))
    more = f" There are {many} answers." if many > 1 else ""
    return f"Given {where}: {'; '.join(words)}.{more}"


def picture(
    rows: Rows,
    columns: dict[str, Any],
    known: list[str],
    asked: list[str],
    of_labels: bool,
    levels: Levels,
    answers: Answers,
) -> Picture:
    """Along one number the whole curve; otherwise an answer beside the other."""
    low, high = min(levels), max(levels)
    target = asked[0]
    along = len(known) == 1 and rows.kinds[known[0]] != "label" and not of_labels
    if of_labels:
        return Picture(
            lambda axes: probabilities(axes[0], columns, target),
            f"The probability of each {target} at each point that was asked for.",
        )

    def curve(axes: list[Any]) -> None:
        ax, x = axes[0], rows.frame[known[0]].to_numpy(dtype=float)
        some = slice(0, 2000)
        ax.plot(x[some], rows.frame[target].to_numpy()[some], ".", color="#8a8a8a", markersize=3)
        grid = np.linspace(float(np.quantile(x, 0.005)), float(np.quantile(x, 0.995)), 80)
        found = answers(grid[:, None])
        ends = [found[f"{target} {q:g}"] for q in (low, high)]
        ax.fill_between(grid, *ends, color="#0072b2", alpha=0.2, linewidth=0)
        ax.plot(grid, found[f"{target} mean"], color="#0072b2", label="mean")
        bars(ax, columns[known[0]])
        ax.set(xlabel=known[0], ylabel=target)
        ax.legend(fontsize="small")

    def bars(ax: Any, at: Any) -> None:
        mean = columns[f"{target} mean"]
        ends = np.array([columns[f"{target} {q:g}"] for q in (low, high)])
        reach = np.maximum(np.abs(ends - mean), 0)
        ax.errorbar(at, mean, reach, fmt="o", color="#d55e00", capsize=3, label="asked for")

    def beside(axes: list[Any]) -> None:
        bars(axes[0], np.arange(1, len(columns[known[0]]) + 1))
        axes[0].set(xlabel="point that was asked for", ylabel=target)

    words = f"The mean of {target} and the interval from its quantile {low:g} to {high:g}"
    if along:
        return Picture(curve, f"{words} against {known[0]}, over the rows of {rows.name}.")
    return Picture(beside, f"{words} at each point that was asked for.")


def probabilities(ax: Any, columns: dict[str, Any], target: str) -> None:
    """Stacked bars, one a point."""
    from meanmap.plots import COLOURS

    head = f"P({target}="
    shares = {key[len(head) : -1]: v for key, v in columns.items() if key.startswith(head)}
    at = np.arange(1, len(next(iter(shares.values()))) + 1)
    bottom = np.zeros(len(at))
    for i, (label, share) in enumerate(shares.items()):
        ax.bar(at, share, 0.9, bottom, color=COLOURS[i % len(COLOURS)], label=label)
        bottom = bottom + share
    ax.set(xlabel="point that was asked for", ylabel="probability", ylim=(0, 1))
    if len(at) <= 12:
        ax.set_xticks(at)
    ax.legend(title=target, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
