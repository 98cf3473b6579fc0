"""`filter`: hidden states, step by step."""

# Without `from __future__ import annotations`: typer reads annotations.

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import typer

from meanmap.cli.app import Findings
from meanmap.cli.options import OutputOptions, Scale, TableOptions, Train, check_share
from meanmap.cli.tables import Coding, TableRows, answer_table, data_notes, open_tables, show_cell
from meanmap.report.answers import Answer, Picture

SHOWN_PANELS = 6


def track(
    train: Train,
    new: Annotated[str, typer.Argument(metavar="NEW", help="A sequence of observations.")],
    state: Annotated[list[str], typer.Option(metavar="A,B", help="Columns to estimate.")],
    observe: Annotated[list[str], typer.Option(metavar="C,D", help="Columns that are observed.")],
    *,
    level: Annotated[float, typer.Option(help="Probability of the intervals.")] = 0.9,
    smooth: Annotated[bool, typer.Option("--smooth", help="Use later observations too.")] = False,
    scale: Scale = True,
    options: TableOptions,
    files: OutputOptions,
) -> Findings:
    """Estimate hidden states step by step from observations.

    The model is learned from TRAIN, a sequence with known states. Rows are in order of time; an
    empty field in NEW is a step without an observation.

    \b
    For example:
      meanmap filter @path-train @path-new --state x,y --observe seen_x,seen_y
    """
    from meanmap import KernelBayesFilter

    check_share(level, "--level", 0.9)
    states, seen, known, fresh = read_track(train, new, state, observe, options)
    codings = [Coding.of([known], part, scale) for part in (states, seen)]
    by = [divisors(coding) for coding in codings]
    hidden, views = known.numbers(states) / by[0], known.numbers(seen) / by[1]
    steps = fresh.numbers(seen) / by[1]
    # a step counts as unobserved if any of its columns is missing
    steps[np.isnan(steps).any(axis=1)] = np.nan
    model = KernelBayesFilter(progress=files.progress).fit(hidden, views)
    found = model.smooth(steps) if smooth else model.filter(steps)
    low, high = found.interval(level)
    figures = {"mean": found.mean, "std": found.std, "lower": low, "upper": high}
    figures = {name: np.asarray(one) * by[0] for name, one in figures.items()}
    unseen = int(np.isnan(steps[:, 0]).sum())
    notes = [f"{unseen} of {len(steps)} steps were not observed."] * bool(unseen)
    notes += data_notes([known], [*states, *seen], fresh.notes)
    actual = fresh.frame[states].to_numpy(dtype=float) if states[0] in fresh.kinds else None
    error = rms(figures["mean"], actual)
    columns: dict[str, Any] = {"step": np.arange(1, len(steps) + 1)}
    for i, column in enumerate(states):
        columns |= {f"{column} {name}": one[:, i] for name, one in figures.items()}
    values = {name: dict(zip(states, one.T, strict=True)) for name, one in figures.items()}
    answer = Answer(
        f"{', '.join(states)} from {', '.join(seen)}, step by step",
        track_headline(figures, states, found.kind, error),
        {**values, "level": level, "error": error, **track_values(model, found)},
        (answer_table(columns),),
        (track_picture(figures, actual, states, f"{found.kind}, {level:.0%} interval"),),
        (known.source, fresh.source),
        {
            "filter": "KernelBayesFilter, settings by validation on the training sequence",
            "level": f"{level:g}",
            "columns": " | ".join(dict.fromkeys(map(str, codings))),
        },
        tuple(notes),
    )
    return Findings([answer], columns=columns)


def track_values(model: Any, found: Any) -> dict[str, Any]:
    """The figures of a whole sequence, for programs."""
    filtered = found.kind == "filtered"
    return {
        "kind": found.kind,
        "log_evidence": float(np.sum(np.asarray(found.log_evidence))) if filtered else None,
        "kernel": [repr(model.kernel_state_), repr(model.kernel_observation_)],
    }


def divisors(coding: Coding) -> np.ndarray:
    """What each column is divided by."""
    return np.array([1.0 if coding.scale is None else coding.scale[c] for c in coding.columns])


def read_track(
    train: str, new: str, state: Sequence[str], observe: Sequence[str], options: TableOptions
) -> tuple[list[str], list[str], TableRows, TableRows]:
    """Names of states and observations, the sequence to learn from, and the new one.

    The new one includes its states if the file has all of them.
    """
    tables = open_tables((train, new), options)
    states, seen = tables[0].named(state, "--state"), tables[0].named(observe, "--observe")
    for column in states:
        if column in seen:
            raise ValueError(f"column {column!r} is both state and observed. Name it once.")
    known = tables[0].rows([*states, *seen])
    known.enough(10)
    if known.dropped:
        raise ValueError(
            f"{known.name}: {known.dropped} rows have missing values, but a filter learns from "
            "consecutive steps. Fill them in, or cut the sequence there."
        )
    tables[1].named(observe, "--observe")
    truth = states if all(map(tables[1].has, states)) else []
    columns = [*seen, *truth]
    fresh = tables[1].rows(columns, {c: known.kinds[c] for c in columns}, gaps=columns)
    fresh.enough(1)
    return states, seen, known, fresh


def rms(mean: np.ndarray, truth: np.ndarray | None) -> float | None:
    """The root mean square error if the truth is known."""
    if truth is None or np.isnan(truth).all():
        return None
    squares = ((mean - truth) ** 2).sum(axis=1)
    return math.sqrt(float(np.nanmean(squares)))


def track_headline(
    figures: dict[str, np.ndarray], states: Sequence[str], kind: str, error: float | None
) -> str:
    """The last state in words, and the error if it is known."""
    ends = zip(states, figures["mean"][-1], figures["std"][-1], strict=True)
    last = ", ".join(f"{name} = {show_cell(m)} ± {show_cell(s)}" for name, m, s in ends)
    known = "" if error is None else f" The root mean square error is {error:.3g}."
    return f"{len(figures['mean'])} steps {kind}; after the last one {last}.{known}"


def track_picture(
    figures: dict[str, np.ndarray], truth: np.ndarray | None, states: Sequence[str], name: str
) -> Picture:
    """The states over time."""
    from meanmap import plots

    def draw(axes: list[Any]) -> None:
        plots.tracks(figures["mean"], figures["lower"], figures["upper"], truth, name, axes)
        for ax, column in zip(axes, states, strict=False):
            ax.set(ylabel=column, xlabel="step")

    words = f"{', '.join(states)} at each step: mean and interval ({name})."
    return Picture(draw, words, min(len(states), SHOWN_PANELS))
