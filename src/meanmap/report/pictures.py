"""Pictures of reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meanmap import plots

if TYPE_CHECKING:
    from meanmap.report.answers import Picture
    from meanmap.report.findings import ColumnShift

SHOWN = 20


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
    few = train.ndim == 1 or len(at) <= 10
    if few:
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
    behind = ax.twinx()
    edges = np.linspace(at[0], at[-1], 41)
    for part, colour, name in ((train, plots.BLUE, "train"), (test, plots.ORANGE, "test")):
        behind.hist(part[:, 0], edges, density=True, color=colour, alpha=0.35, label=name)
    behind.set(yticks=[], ylabel="density")
    behind.yaxis.label.set_visible(False)  # pages name it in their tooltips
    behind.set_ylim(0, 1.3 * behind.get_ylim()[1])
    behind.legend(loc="upper right", frameon=False)
    ax.plot(at, witness, color="black", linewidth=1.5)
    ax.axhline(0, color=plots.GREY, linewidth=1)
    ax.set(xlabel=shorten(str(column.name)), ylabel="witness: above 0, more of test")
    ax.set_zorder(behind.get_zorder() + 1)
    ax.patch.set_visible(False)


def shorten(text: str, most: int = 28) -> str:
    """A name that fits next to a bar, with dollar signs escaped for matplotlib."""
    text = text if len(text) <= most else text[: most - 1] + "…"
    return text.replace("$", r"\$")


def draw_picture(picture: Picture) -> Any:
    """A picture of an answer, drawn without a window, or None without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    n = picture.panels
    size = (5.8, 3.9) if n == 1 else (4.6 * n, 3.9)
    drawn = Figure(figsize=size, layout="constrained")
    picture.draw(list(np.ravel(plots.sheets(drawn, 1, n))))
    return drawn


def figure_in_words(drawn: Any) -> str:
    """What a figure shows, from its titles and axes."""
    said = []
    for ax in drawn.axes:
        if ax.get_label() == "<colorbar>" or not (ax.get_xlabel() or ax.get_ylabel()):
            continue
        names = [name for name in (ax.get_ylabel(), ax.get_xlabel()) if name]
        title = f"{ax.get_title()}: " if ax.get_title() else ""
        said.append(title + " against ".join(names))
    return "; ".join(dict.fromkeys(said)) or "a picture"
