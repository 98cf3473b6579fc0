"""Pictures of reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from meanmap import plots

if TYPE_CHECKING:
    from meanmap.report.answers import Picture
    from meanmap.report.findings import ColumnShift

SHOWN = 20  # columns in a picture
ACROSS = 3  # panels side by side


def draw_shift(columns: tuple[ColumnShift, ...], level: float, axes: Any = None) -> Any:
    """Columns by effect, and the column with the largest effect in both samples."""
    places = plots.panels(axes, 2)
    effects(columns[:SHOWN], len(columns), level, places[0])
    if len(places) > 1:
        draw_column(columns[0], places[1])
    return np.array(places[:2], dtype=object)


def effects(columns: tuple[ColumnShift, ...], total: int, level: float, ax: Any) -> None:
    """One bar per column, the largest first; columns that differ have another colour."""
    at = np.arange(len(columns))
    for differ, colour, name in (
        (True, plots.ORANGE, f"differs at the {level:g} level"),
        (False, plots.GREY, "no significant difference"),
    ):
        chosen = [i for i, c in enumerate(columns) if (c.adjusted <= level) == differ]
        if chosen:
            ax.barh(at[chosen], [columns[i].effect for i in chosen], color=colour, label=name)
    ax.set_yticks(at, [shorten(str(column.name)) for column in columns])
    ax.set_ylim(len(columns) - 0.4, -0.6)
    few = "" if total == len(columns) else f" (the {len(columns)} largest of {total} columns)"
    ax.set(xlabel="effect: 0 equal, 1 nothing in common" + few, xlim=(0, None))
    above = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 2, "borderaxespad": 0.2}
    ax.legend(frameon=False, fontsize="small", **above)


def draw_column(column: ColumnShift, ax: Any) -> None:
    """A column in both samples, with the witness function."""
    at, witness = column.witness
    train, test = column.samples
    if not len(at):
        ax.set_axis_off()
        return
    ax.set_title(f"{shorten(str(column.name))}: where the test sample has more", fontsize="medium")
    if train.ndim == 1 or len(at) <= 10:
        both = [part.reshape(len(part)) for part in (train, test)]
        shares = [np.array([np.mean(part == value) for value in at]) for part in both]
        order = np.argsort(-np.abs(shares[0] - shares[1]), kind="stable")[:12]
        order = np.sort(order)
        place = np.arange(len(order))
        for k, (share, colour, name) in enumerate(
            zip(shares, (plots.BLUE, plots.ORANGE), ("train", "test"), strict=True)
        ):
            ax.bar(place + 0.4 * k - 0.2, share[order], 0.4, color=colour, label=name)
        labels = [f"{v:g}" if at.dtype.kind == "f" else shorten(str(v), 12) for v in at[order]]
        crowded = sum(map(len, labels)) > 40
        ax.set_xticks(
            place, labels, rotation=45 if crowded else 0, ha="right" if crowded else "center"
        )
        ax.set(ylabel="share")
        ax.legend(frameon=False)
        return
    # numbers far from all others are left out of the grid, and of the histograms
    first, second = (part[(part >= at[0]) & (part <= at[-1])] for part in (train, test))
    plots.witness_curve(at, witness, first, second, ax, names=("train", "test"))
    ax.set(xlabel=shorten(str(column.name)), ylabel="witness: above 0, more of test")


def shorten(text: str, most: int = 28) -> str:
    """A name that fits next to a bar, with dollar signs escaped for matplotlib."""
    text = text if len(text) <= most else text[: most - 1] + "…"
    return text.replace("$", r"\$")


def draw_pictures(pictures: Sequence[Picture]) -> Any:
    """Pictures in one figure without a window, at most three panels side by side."""
    from matplotlib.figure import Figure

    rows = [(one, at) for one in pictures for at in range(0, one.panels, ACROSS)]
    wide = max(min(one.panels, ACROSS) for one in pictures)
    size = (5.8 if wide == 1 else 4.6 * wide, 3.9 * len(rows))
    drawn = Figure(figsize=size, layout="constrained")
    places: dict[int, list[Any]] = {}
    for piece, (one, at) in zip(drawn.subfigures(len(rows), 1, squeeze=False), rows, strict=True):
        made = plots.sheets(piece[0], 1, min(ACROSS, one.panels - at))
        places.setdefault(id(one), []).extend(np.ravel(made))
    for one in pictures:
        one.draw(places[id(one)])
    return drawn
