"""`filter`: hidden states, step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from meanmap.cli.outputs import plain_values
from meanmap.cli.tables import Coding, TableRows, cell, constants, print_notes, two_tables
from meanmap.report.answers import Answer, Picture

if TYPE_CHECKING:
    from meanmap import KernelBayesFilter
    from meanmap.dynamics import Track

SHOWN_PANELS = 6


def track_states(
    train: str,
    new: str,
    state: Sequence[str],
    observe: Sequence[str],
    *,
    level: float = 0.9,
    smooth: bool = False,
    scale: bool = True,
    progress: bool | None = None,
) -> tuple[Answer, dict[str, Any]]:
    """The state at each step of a new sequence, from a sequence where it was seen."""
    from meanmap import KernelBayesFilter

    if not 0 < level < 1:
        raise ValueError(f"--level must lie between 0 and 1, got {level:g}. Try 0.9.")
    states, seen, known, fresh = read_track(train, new, state, observe)
    hidden, views = known.numbers(states), known.numbers(seen)
    codings = [Coding.of([known], part, scale) for part in (states, seen)]
    steps = fresh.numbers(seen).copy()
    # a step counts as unseen where any of its columns is
    steps[np.isnan(steps).any(axis=1)] = np.nan
    by = [divisors(coding) for coding in codings]
    model = KernelBayesFilter(progress=progress).fit(hidden / by[0], views / by[1])
    found = model.smooth(steps / by[1]) if smooth else model.filter(steps / by[1])
    low, high = found.interval(level)
    figures = {"mean": found.mean, "std": found.std, "lower": low, "upper": high}
    figures = {name: np.asarray(one) * by[0] for name, one in figures.items()}
    unseen = int(np.isnan(steps[:, 0]).sum())
    notes = [f"{unseen} of {len(steps)} steps were not observed."] * bool(unseen)
    notes += print_notes([*known.far, *fresh.far, *constants([known], [*states, *seen])])
    actual = fresh.frame[states].to_numpy(dtype=float) if states[0] in fresh.kinds else None
    error = rms(figures["mean"], actual)
    values: dict[str, Any] = {name: parts(one, states) for name, one in figures.items()}
    values |= {"level": level, **track_values(model, found, error), "notes": notes}
    settings = {
        "filter": "KernelBayesFilter, settings by validation on the training sequence",
        "level": f"{level:g}",
        "columns": " | ".join(dict.fromkeys(map(str, codings))),
    }
    out = track_columns(figures, states)
    answer = Answer(
        f"{', '.join(states)} from {', '.join(seen)}, step by step",
        track_headline(figures, states, smooth, error),
        plain_values(values),
        tuple(out),
        tuple(tuple(cell(v) for v in row) for row in zip(*out.values(), strict=True)),
        (track_picture(figures, actual, states, f"{found.kind}, {level:.0%} interval"),),
        (known.source, fresh.source),
        settings,
    )
    return answer, out


def track_values(model: KernelBayesFilter, found: Track, error: float | None) -> dict[str, Any]:
    """The figures of a whole sequence, for programs."""
    filtered = found.kind == "filtered"
    return {
        "kind": found.kind,
        "log_evidence": float(np.sum(np.asarray(found.log_evidence))) if filtered else None,
        "error": error,
        "kernel": [repr(model.kernel_state_), repr(model.kernel_observation_)],
    }


def divisors(coding: Coding) -> np.ndarray:
    """What each column is divided by."""
    return np.array([1.0 if coding.scale is None else coding.scale[c] for c in coding.columns])


def track_columns(figures: dict[str, np.ndarray], states: Sequence[str]) -> dict[str, Any]:
    """The table of answers: the step, then every figure of every state."""
    out: dict[str, Any] = {"step": np.arange(1, len(figures["mean"]) + 1)}
    for i, column in enumerate(states):
        out |= {f"{column} {name}": one[:, i] for name, one in figures.items()}
    return out


def read_track(
    train: str, new: str, state: Sequence[str], observe: Sequence[str]
) -> tuple[list[str], list[str], TableRows, TableRows]:
    """Names of states and observations, the sequence to learn from, and the new one.

    The new one has its states as well if the file has all of them.
    """
    tables = two_tables(train, new, ())
    states, seen = tables[0].named(state, "--state"), tables[0].named(observe, "--observe")
    for column in states:
        if column in seen:
            raise ValueError(f"column {column!r} is both state and observed. Name it once.")
    known = tables[0].rows([*states, *seen])
    known.enough(10)
    if known.dropped:
        raise ValueError(
            f"{known.name}: {known.dropped} rows have missing values, and a filter learns from "
            "steps that follow one another. Fill them, or cut the sequence there."
        )
    tables[1].named(observe, "--observe")
    truth = [column for column in states if column in tables[1].columns()[0]]
    columns = seen + (truth if len(truth) == len(states) else [])
    fresh = tables[1].rows(columns, {c: known.kinds[c] for c in columns}, gaps=columns)
    fresh.enough(1)
    return states, seen, known, fresh


def parts(array: np.ndarray, names: Sequence[str]) -> dict[str, np.ndarray]:
    return {name: array[:, i] for i, name in enumerate(names)}


def rms(mean: np.ndarray, truth: np.ndarray | None) -> float | None:
    """The root mean square error where the truth is known."""
    if truth is None or np.isnan(truth).all():
        return None
    squares = ((mean - truth) ** 2).sum(axis=1)
    return math.sqrt(float(np.nanmean(squares)))


def track_headline(
    figures: dict[str, np.ndarray], states: Sequence[str], smooth: bool, error: float | None
) -> str:
    steps = len(figures["mean"])
    ends = zip(states, figures["mean"][-1], figures["std"][-1], strict=True)
    last = ", ".join(f"{name} = {cell(m)} ± {cell(s)}" for name, m, s in ends)
    kind = "smoothed" if smooth else "filtered"
    known = "" if error is None else f" Root mean square error against the file's own: {error:.3g}."
    return f"{steps} steps {kind}; after the last one {last}.{known}"


def track_picture(
    figures: dict[str, np.ndarray],
    truth: np.ndarray | None,
    states: Sequence[str],
    name: str,
) -> Picture:
    """The states over time."""
    from meanmap import plots

    shown = min(len(states), SHOWN_PANELS)

    def draw(axes: list[Any]) -> None:
        ends = figures["lower"], figures["upper"]
        plots.tracks(figures["mean"], *ends, truth, name, axes)
        for ax, column in zip(axes, states, strict=False):
            ax.set(ylabel=column, xlabel="step")

    words = f"{', '.join(states)} at each step: mean and interval ({name})."
    return Picture(draw, words, shown)
