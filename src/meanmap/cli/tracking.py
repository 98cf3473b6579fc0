"""`filter`: hidden states, step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from meanmap.cli.comparing import two_tables
from meanmap.cli.outputs import plain_values
from meanmap.cli.tables import Coding, cell, constants, print_notes
from meanmap.report.answers import Answer, Picture

SHOWN_PANELS = 6


def track(
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
    tables = two_tables(train, new, ())
    states, seen = tables[0].named(state, "--state"), tables[0].named(observe, "--observe")
    both = [column for column in states if column in seen]
    if both:
        raise ValueError(f"column {both[0]!r} is both state and observed. Name it once.")
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
    hidden, views = known.numbers(states), known.numbers(seen)
    codings = [Coding.of([known], part, scale) for part in (states, seen)]
    by = [
        np.array([1.0 if coding.scale is None else coding.scale[c] for c in coding.columns])
        for coding in codings
    ]
    model = KernelBayesFilter(progress=progress).fit(hidden / by[0], views / by[1])
    steps = fresh.numbers(seen).copy()
    # a step counts as unseen where any of its columns is
    steps[np.isnan(steps).any(axis=1)] = np.nan
    found = model.smooth(steps / by[1]) if smooth else model.filter(steps / by[1])
    mean, std = np.asarray(found.mean) * by[0], np.asarray(found.std) * by[0]
    low, high = (np.asarray(end) * by[0] for end in found.interval(level))
    out: dict[str, Any] = {"step": np.arange(1, len(steps) + 1)}
    for i, column in enumerate(states):
        out[f"{column} mean"], out[f"{column} std"] = mean[:, i], std[:, i]
        out[f"{column} lower"], out[f"{column} upper"] = low[:, i], high[:, i]
    unseen = int(np.isnan(steps[:, 0]).sum())
    actual = fresh.frame[states].to_numpy(dtype=float) if len(columns) > len(seen) else None
    error = rms(mean, actual)
    notes = [f"{unseen} of {len(steps)} steps were not observed."] if unseen else []
    notes += print_notes([*known.far, *fresh.far, *constants([known], [*states, *seen])])
    values: dict[str, Any] = {
        "mean": parts(mean, states),
        "std": parts(std, states),
        "lower": parts(low, states),
        "upper": parts(high, states),
        "level": level,
        "kind": found.kind,
        "log_evidence": None if smooth else float(np.sum(np.asarray(found.log_evidence))),
        "error": error,
        "kernel": [repr(model.kernel_state_), repr(model.kernel_observation_)],
        "notes": notes,
    }
    answer = Answer(
        f"{', '.join(states)} from {', '.join(seen)}, step by step",
        track_headline(mean, std, states, len(steps), smooth, error),
        plain_values(values),
        tuple(out),
        tuple(tuple(cell(v) for v in row) for row in zip(*out.values(), strict=True)),
        (track_picture(mean, low, high, actual, states, f"{found.kind}, {level:.0%} interval"),),
        (known.source, fresh.source),
        {
            "filter": "KernelBayesFilter, settings by validation on the training sequence",
            "level": f"{level:g}",
            "columns": " | ".join(dict.fromkeys(map(str, codings))),
        },
    )
    return answer, out


def parts(array: np.ndarray, names: Sequence[str]) -> dict[str, np.ndarray]:
    return {name: array[:, i] for i, name in enumerate(names)}


def rms(mean: np.ndarray, truth: np.ndarray | None) -> float | None:
    """The root mean square error where the truth is known."""
    if truth is None or np.isnan(truth).all():
        return None
    squares = ((mean - truth) ** 2).sum(axis=1)
    return math.sqrt(float(np.nanmean(squares)))


def track_headline(
    mean: np.ndarray,
    std: np.ndarray,
    states: Sequence[str],
    steps: int,
    smooth: bool,
    error: float | None,
) -> str:
    ends = zip(states, mean[-1], std[-1], strict=True)
    last = ", ".join(f"{name} = {cell(m)} ± {cell(s)}" for name, m, s in ends)
    kind = "smoothed" if smooth else "filtered"
    known = "" if error is None else f" Root mean square error against the file's own: {error:.3g}."
    return f"{steps} steps {kind}; after the last one {last}.{known}"


def track_picture(
    mean: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    truth: np.ndarray | None,
    states: Sequence[str],
    name: str,
) -> Picture:
    """The states over time."""
    from meanmap import plots

    shown = min(len(states), SHOWN_PANELS)

    def draw(axes: list[Any]) -> None:
        plots.tracks(mean, low, high, truth, name, axes)
        for ax, column in zip(axes, states, strict=False):
            ax.set(ylabel=column, xlabel="step")

    words = f"{', '.join(states)} at each step: mean and interval ({name})."
    return Picture(draw, words, shown)
