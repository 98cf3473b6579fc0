"""Results over time, over candidates, over graphs and over classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from meanmap.plots.canvas import (
    BLUE,
    COLOURS,
    GREY,
    MAP,
    ORANGE,
    STYLES,
    axes,
    panels,
    stacked_axes,
)


def tracks(
    mean: np.ndarray,
    low: np.ndarray | None,
    high: np.ndarray | None,
    truth: np.ndarray | None,
    name: str,
    ax: Any = None,
) -> Any:
    """Coordinates over time, one panel each (the first six): mean, interval and the truth."""
    shown = min(mean.shape[1], 6)
    places = stacked_axes(ax, shown)
    steps = np.arange(len(mean))
    for i, place in enumerate(places[:shown]):
        if low is not None and high is not None:
            place.fill_between(steps, low[:, i], high[:, i], color=BLUE, alpha=0.2, linewidth=0)
        if truth is not None:
            place.plot(np.arange(len(truth)), truth[:, i], color=ORANGE, linewidth=1, label="truth")
        place.plot(steps, mean[:, i], color=BLUE, linewidth=1.2, label=name)
        place.set(ylabel=f"s{chr(0x2081 + i)}" if mean.shape[1] > 1 else "state")
    places[shown - 1].set(xlabel="step")
    above = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": 2, "frameon": False}
    places[0].legend(fontsize="small", **above)
    return places[0] if shown == 1 else np.array(places[:shown], dtype=object)


def label_probabilities(labels: np.ndarray, table: np.ndarray, truth: Any, ax: Any = None) -> Any:
    """The probability of each label over time, one row per label, with the true ones marked."""
    ax = axes(ax)
    rows = np.arange(len(labels))
    drawn = ax.pcolormesh(
        np.arange(table.shape[1]), rows, table, cmap=MAP, vmin=0, vmax=1, shading="nearest"
    )
    if truth is not None:
        at = np.searchsorted(labels, np.asarray(truth))
        ax.plot(np.arange(len(at)), at, ".", color=ORANGE, markersize=4, label="truth")
        ax.legend(loc="lower right", bbox_to_anchor=(1, 1), frameon=False)
    ax.set_yticks(rows, [str(label) for label in labels])
    ax.figure.colorbar(drawn, ax=ax, label="probability")
    ax.set(xlabel="step", ylabel="state")
    return ax


def ranking(
    values: np.ndarray, name: str, ax: Any = None, order: str = "candidate, the best first"
) -> Any:
    """Sorted values, one point per value."""
    ax = axes(ax)
    ax.plot(np.arange(1, len(values) + 1), values, ".", color=BLUE, markersize=4)
    ax.set(xlabel=order, ylabel=name)
    return ax


def tree(graph: Any, labels: dict[Any, str], marked: set[Any], ax: Any = None) -> Any:
    """A networkx graph with words at its nodes, those that are known in another colour."""
    import networkx as nx

    ax = axes(ax)
    place = nx.kamada_kawai_layout(nx.Graph(graph), weight=None)
    arrows = {"arrowsize": 14, "node_size": 2500} if graph.is_directed() else {}
    nx.draw_networkx_edges(graph, place, ax=ax, edge_color=GREY, **arrows)
    for node, words in labels.items():
        box = {
            "boxstyle": "round,pad=0.4",
            "facecolor": "#fbe3d0" if node in marked else "#dcebf5",
            "edgecolor": ORANGE if node in marked else BLUE,
        }
        ax.text(*place[node], words, ha="center", va="center", fontsize="small", bbox=box)
    ax.margins(0.15)
    ax.set_axis_off()
    return ax


def maps(pictures: list[tuple[str, np.ndarray]], ax: Any = None) -> Any:
    """Tables of numbers as pictures side by side, the first row above, each with its scale."""
    places = panels(ax, len(pictures))
    for place, (name, values) in zip(places, pictures, strict=False):
        drawn = place.imshow(values, cmap=MAP, interpolation="nearest")
        place.figure.colorbar(drawn, ax=place, shrink=0.8)
        place.set(title=name, xticks=[], yticks=[])
    return places[0] if len(pictures) == 1 else np.array(places, dtype=object)


def residuals(values: np.ndarray, ax: Any = None) -> Any:
    """What still changed in each iteration."""
    ax = axes(ax)
    ax.semilogy(np.arange(1, len(values) + 1), np.maximum(values, 1e-16), "o-", color=BLUE)
    ax.set(xlabel="iteration", ylabel="largest change of a message")
    return ax


def proportions(
    labels: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
    interval: np.ndarray | None,
    ax: Any = None,
) -> Any:
    """Shares of classes in two samples side by side, the second with its intervals."""
    ax = axes(ax)
    at = np.arange(len(labels))
    ax.bar(at - 0.2, before, 0.4, color=GREY, label="training")
    whiskers = None if interval is None else np.abs(interval.T - after)
    ax.bar(at + 0.2, after, 0.4, yerr=whiskers, capsize=3, color=BLUE, label="test, estimated")
    ax.set_xticks(at, [str(label) for label in labels])
    ax.set(ylabel="share", ylim=(0, None))
    ax.legend(frameon=False)
    return ax


def scale_and_location(
    x: np.ndarray,
    scale: np.ndarray,
    location: np.ndarray,
    labels: list[str],
    names: tuple[str, str],
    ax: Any = None,
) -> Any:
    """Two panels, scales and locations at x, with one row per label; x may be names."""
    places = panels(ax, 2)
    named = x.dtype.kind not in "fiu"
    at = np.arange(len(x)) if named else x
    for place, values, level in zip(places, (scale, location), (1.0, 0.0), strict=False):
        place.axhline(level, color=GREY, linewidth=1)
        for i, row in enumerate(values):
            style = "o" if named else STYLES[i // len(COLOURS) % len(STYLES)]
            place.plot(at, row, style, color=COLOURS[i % len(COLOURS)], label=labels[i])
        place.set(xlabel=names[0])
        if named:
            turned = max(map(len, map(str, x))) * len(x) > 30
            place.set_xticks(at, [str(v) for v in x], rotation=90 if turned else 0)
    places[0].set(ylabel="scale")
    places[-1].set(ylabel="location / deviation")
    if 1 < len(labels) <= 12:
        places[-1].legend(title=names[1], frameon=False, fontsize="small")
    return np.array(places, dtype=object)


def evidence_path(
    times: np.ndarray, values: np.ndarray, limit: tuple[float, str], ax: Any = None
) -> Any:
    """Evidence over time as powers of ten, and the line above which it is enough."""
    ax = axes(ax)
    ax.plot(times, values, color=BLUE, linewidth=1.2)
    ax.axhline(limit[0], color=ORANGE, linestyle="--", linewidth=1, label=limit[1])
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.set(xlabel="rows", ylabel="log₁₀ of the e-value")
    ax.legend(loc="upper left", frameon=False)
    return ax


def drift(
    times: np.ndarray,
    scores: np.ndarray,
    threshold: float,
    marks: list[tuple[int, int]],
    ax: Any = None,
) -> Any:
    """A score over time, the threshold of alarms, and from each change to its alarm a band."""
    ax = axes(ax)
    for i, (change, alarm) in enumerate(marks):
        words = {"label": "from the change to the alarm"} if i == 0 else {}
        ax.axvspan(change, alarm, color=ORANGE, alpha=0.25, linewidth=0, **words)
    ax.plot(times, np.maximum(scores, 0), color=BLUE, linewidth=1, label="score")
    ax.axhline(threshold, color=ORANGE, linestyle="--", linewidth=1, label="threshold")
    ax.set(xlabel="row", ylabel="distance from the reference")
    above = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": 3, "frameon": False}
    ax.legend(fontsize="small", **above)
    return ax
