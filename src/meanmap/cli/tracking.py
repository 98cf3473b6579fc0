"""`filter`: hidden states, step by step."""

# Without `from __future__ import annotations`: typer reads annotations.

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import typer

from meanmap.cli.app import Findings
from meanmap.cli.conditioning import probabilities_of, probability_columns
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
    states, seen, known, fresh, ids = read_track(train, new, state, observe, options)
    codings = [Coding.of([known], part, scale) for part in (states, seen)]
    of_labels = known.kinds[states[0]] == "label"
    # a step counts as unobserved if any of its columns is missing
    missing = fresh.frame[seen].isna().any(axis=1).to_numpy()
    steps = codings[1](fresh)
    steps = steps.astype(object) if steps.ndim == 1 else steps
    steps[missing] = None
    model = KernelBayesFilter(progress=files.progress).fit(*(one(known) for one in codings))
    found = model.smooth(steps) if smooth else model.filter(steps)
    columns: dict[str, Any] = {"step": np.arange(1, len(steps) + 1), **ids}
    if of_labels:
        shown, values, picture, last = label_track(found, known, states[0], fresh)
    else:
        shown, values, picture, last = number_track(found, codings[0], level, fresh)
    notes = [f"{missing.sum()} of {len(steps)} steps were not observed."] * bool(missing.any())
    notes += data_notes([known], [*states, *seen], fresh.notes)
    columns |= shown
    answer = Answer(
        f"{', '.join(states)} from {', '.join(seen)}, step by step",
        f"{len(steps)} steps {found.kind}; after the last one {last}",
        {**values, "level": level, **track_values(model, found), "ids": ids},
        (answer_table(columns),),
        (picture,),
        (known.source, fresh.source),
        {
            "filter": "KernelBayesFilter, settings by validation on the training sequence",
            "level": f"{level:g}",
            "columns": " | ".join(dict.fromkeys(map(str, codings))),
        },
        tuple(notes),
    )
    return Findings([answer], columns=columns)


Parts = tuple[dict[str, Any], dict[str, Any], Picture, str]


def label_track(found: Any, known: TableRows, state: str, fresh: TableRows) -> Parts:
    """The probabilities of labels: columns, values, a picture and the last step in words."""
    from meanmap import plots

    labels = np.unique(known.frame[state].to_numpy(dtype=str))
    shown = probability_columns(state, labels, np.asarray(found.beliefs(labels)))
    mode = shown[f"{state} mode"]
    share = probabilities_of(shown, state)
    values: dict[str, Any] = {"mode": {state: mode}, "probability": share, "error": None}
    words = f"{state} is {mode[-1]} with probability {share[mode[-1]][-1]:.2f}."
    if state in fresh.kinds:
        truth = fresh.frame[state]
        values["error"] = float((truth != mode)[truth.notna()].mean())
        words += f" {values['error']:.1%} of the steps are wrong."
    picture = Picture(
        lambda axes: plots.shares(share, state, axes[0], "step"),
        f"The probability of each {state} at each step.",
    )
    return shown, values, picture, words


def number_track(found: Any, coding: Coding, level: float, fresh: TableRows) -> Parts:
    """Means and intervals of numbers: the same."""
    states = coding.columns
    by = np.array([1.0 if coding.scale is None else coding.scale[c] for c in states])
    low, high = found.interval(level)
    figures = {"mean": found.mean, "std": found.std, "lower": low, "upper": high}
    figures = {name: np.asarray(one) * by for name, one in figures.items()}
    known = states[0] in fresh.kinds
    actual = fresh.frame[states].to_numpy(dtype=float) if known else None
    error = rms(figures["mean"], actual)
    ends = zip(states, figures["mean"][-1], figures["std"][-1], strict=True)
    words = ", ".join(f"{name} = {show_cell(m)} ± {show_cell(s)}" for name, m, s in ends)
    words += "." if error is None else f". The root mean square error is {error:.3g}."
    values = {name: dict(zip(states, one.T, strict=True)) for name, one in figures.items()}
    shown = {f"{c} {k}": one[:, i] for i, c in enumerate(states) for k, one in figures.items()}
    picture = track_picture(figures, actual, states, f"{found.kind}, {level:.0%} interval")
    return shown, {**values, "error": error}, picture, words


def track_values(model: Any, found: Any) -> dict[str, Any]:
    """The figures of a whole sequence, for programs."""
    evidence = found.log_evidence if found.kind == "filtered" else np.nan
    return {
        "kind": found.kind,
        "log_evidence": float(np.sum(np.asarray(evidence))),
        "kernel": [repr(model.kernel_state_), repr(model.kernel_observation_)],
    }


def read_track(
    train: str, new: str, state: Sequence[str], observe: Sequence[str], options: TableOptions
) -> tuple[list[str], list[str], TableRows, TableRows, dict[str, Any]]:
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
    words = [column for column in states if known.kinds[column] == "label"]
    if words and len(states) > 1:
        raise ValueError(f"--state: {words[0]!r} is a label. Estimate it by itself.")
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
    return states, seen, known, fresh, dict(tables[1].ids(columns).items())


def rms(mean: np.ndarray, truth: np.ndarray | None) -> float | None:
    """The root mean square error if the truth is known."""
    if truth is None or np.isnan(truth).all():
        return None
    squares = ((mean - truth) ** 2).sum(axis=1)
    return math.sqrt(float(np.nanmean(squares)))


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
