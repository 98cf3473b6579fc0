"""Pictures of results. Draws what it is given and computes nothing; matplotlib only inside."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8a8a8a"  # told apart by colour-blind eyes too
MAP = "cividis"
COLOURS = (BLUE, ORANGE, "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "black")
STYLES = ("-", "--", ":", "-.")


def axes(ax: Any = None) -> Any:
    """The axes to draw on, new ones if none are given."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'meanmap[plot]'") from error
    return plt.subplots(figsize=(6, 4), layout="constrained")[1]


def curve(
    x: np.ndarray, values: np.ndarray, atoms: np.ndarray, ax: Any = None, **style: Any
) -> Any:
    """A function of one variable, with a rug of the atoms under it."""
    ax = axes(ax)
    ax.plot(x, values, **{"color": BLUE, **style})
    ax.plot(atoms, np.full(len(atoms), min(0.0, float(np.min(values)))), "|", color=GREY, alpha=0.5)
    ax.set(xlabel="x", ylabel="e(x)")
    return ax


def contours(
    x: np.ndarray,
    y: np.ndarray,
    values: np.ndarray,
    atoms: np.ndarray,
    ax: Any = None,
    **style: Any,
) -> Any:
    """A function of two variables, with the atoms over it."""
    ax = axes(ax)
    drawn = ax.contourf(x, y, values, **{"levels": 12, "cmap": MAP, **style})
    ax.plot(atoms[:, 0], atoms[:, 1], ".", color="white", markersize=2, alpha=0.5)
    ax.figure.colorbar(drawn, ax=ax, label="e(x)")
    ax.set(xlabel="x₁", ylabel="x₂")
    return ax


def eigenvalues(values: np.ndarray, ax: Any = None, **style: Any) -> Any:
    """Numbers in the complex plane, with the unit circle."""
    ax = axes(ax)
    turn = np.linspace(0, 2 * np.pi, 200)
    ax.plot(np.cos(turn), np.sin(turn), color=GREY, linewidth=1)
    ax.plot(np.real(values), np.imag(values), "o", **{"color": BLUE, "markersize": 4, **style})
    ax.set(xlabel="real part", ylabel="imaginary part", aspect="equal")
    return ax


def bars(labels: np.ndarray, values: np.ndarray, name: str, ax: Any = None, **style: Any) -> Any:
    """One bar a label."""
    ax = axes(ax)
    ax.bar([str(label) for label in labels], values, **{"color": BLUE, **style})
    ax.set(ylabel=name)
    return ax


def image(
    rows: np.ndarray, columns: np.ndarray, values: np.ndarray, ax: Any = None, **style: Any
) -> Any:
    """A table of values as a map: rows upwards if they are numbers, labels where they are not."""
    ax = axes(ax)
    numeric = [side.dtype.kind in "fiu" for side in (rows, columns)]
    y = rows if numeric[0] else np.arange(len(rows))
    x = columns if numeric[1] else np.arange(len(columns))
    drawn = ax.pcolormesh(x, y, values, **{"cmap": MAP, "shading": "nearest", **style})
    if not numeric[0]:
        ax.set_yticks(y, [str(label) for label in rows])
    if not numeric[1]:
        ax.set_xticks(x, [str(label) for label in columns])
    ax.figure.colorbar(drawn, ax=ax)
    ax.set(xlabel="second variable", ylabel="first variable")
    return ax


def panels(given: Any, count: int) -> list[Any]:
    """Axes to draw on: those given, or `count` new ones side by side."""
    if given is not None:
        return list(np.ravel(np.asarray(given, dtype=object)))
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'meanmap[plot]'") from error
    return list(np.ravel(plt.subplots(1, count, figsize=(5 * count, 4), layout="constrained")[1]))


def null(
    values: np.ndarray,
    density: np.ndarray | None,
    statistic: float,
    pvalue: float,
    ax: Any = None,
) -> Any:
    """A null distribution, draws or a density, with the observed statistic."""
    ax = axes(ax)
    if density is None:
        ax.hist(values, bins=40, density=True, color=GREY, alpha=0.6, label="if nothing is there")
    else:
        ax.fill_between(values, density, color=GREY, alpha=0.6, label="if nothing is there")
    ax.axvline(statistic, color=ORANGE, linewidth=2, label=f"observed, p = {pvalue:.3g}")
    ax.set(xlabel="statistic", ylabel="density", yticks=[])
    ax.legend(loc="upper center")
    return ax


def against(x: np.ndarray, y: np.ndarray, names: tuple[str, str], ax: Any = None) -> Any:
    """Two variables, a point a row."""
    ax = axes(ax)
    ax.plot(x, y, ".", color=BLUE, markersize=3, alpha=0.6)
    ax.set(xlabel=names[0], ylabel=names[1])
    return ax


def witness_curve(
    x: np.ndarray, values: np.ndarray, first: np.ndarray, second: np.ndarray, ax: Any = None
) -> Any:
    """The witness of two samples of numbers, with both samples as histograms behind it."""
    ax = axes(ax)
    behind = ax.twinx()
    edges = np.histogram_bin_edges(np.concatenate([first, second]), bins=40)
    for sample, colour, name in ((first, BLUE, "X"), (second, ORANGE, "Y")):
        behind.hist(sample, bins=edges, density=True, color=colour, alpha=0.3, label=name)
    behind.set(yticks=[])
    behind.legend(loc="upper right")
    ax.plot(x, values, color="black")
    ax.axhline(0, color=GREY, linewidth=1)
    ax.set(xlabel="x", ylabel="witness: X more above 0")
    ax.set_zorder(behind.get_zorder() + 1)
    ax.patch.set_visible(False)
    return ax


def witness_map(
    x: np.ndarray,
    y: np.ndarray,
    values: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    ax: Any = None,
) -> Any:
    """The witness of two samples in the plane, with their points."""
    ax = _diverging(x, y, values, "witness: X more above 0", ax)
    for sample, colour, name in ((first, BLUE, "X"), (second, ORANGE, "Y")):
        ax.plot(sample[:, 0], sample[:, 1], ".", color=colour, markersize=2, alpha=0.6, label=name)
    ax.legend(loc="upper right", markerscale=4)
    ax.set(xlabel="x₁", ylabel="x₂")
    return ax


def dependence_map(
    x: np.ndarray, y: np.ndarray, values: np.ndarray, points: np.ndarray, ax: Any = None
) -> Any:
    """Where two numbers go together more (or less) often than independence allows."""
    ax = _diverging(x, y, values, "more often than independent above 0", ax)
    ax.plot(points[:, 0], points[:, 1], ".", color="black", markersize=2, alpha=0.5)
    ax.set(xlabel="x", ylabel="y")
    return ax


def _diverging(x: np.ndarray, y: np.ndarray, values: np.ndarray, name: str, ax: Any) -> Any:
    ax = axes(ax)
    top = float(np.max(np.abs(values))) or 1.0
    levels = np.linspace(-top, top, 15)
    drawn = ax.contourf(x, y, values, levels=levels, cmap="RdBu", alpha=0.8)
    ax.figure.colorbar(drawn, ax=ax, label=name)
    return ax


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
    places = stacked(ax, shown)
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


def stacked(given: Any, count: int) -> list[Any]:
    """Axes one above the other with a common time: those given, or new ones."""
    if given is not None:
        found = list(np.ravel(np.asarray(given, dtype=object)))
        if len(found) < count:
            raise ValueError(f"ax: expected {count} axes, one a coordinate, got {len(found)}.")
        return found
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'meanmap[plot]'") from error
    size = (8, 1.0 + 1.5 * count)
    rows = plt.subplots(count, 1, figsize=size, sharex=True, layout="constrained")[1]
    return list(np.ravel(rows))


def probabilities(labels: np.ndarray, table: np.ndarray, truth: Any, ax: Any = None) -> Any:
    """The probability of each label over time, a row a label, with the true ones marked."""
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


def ranked(values: np.ndarray, name: str, ax: Any = None) -> Any:
    """Sorted values, a point each."""
    ax = axes(ax)
    ax.plot(np.arange(1, len(values) + 1), values, ".", color=BLUE, markersize=4)
    ax.set(xlabel="candidate, the best first", ylabel=name)
    return ax


def corner(draws: np.ndarray, names: list[str], truth: np.ndarray | None, ax: Any = None) -> Any:
    """A grid of panels: each parameter on the diagonal, pairs of them below it.

    Dark is what 90% of the draws are (the likeliest, for a pair), the contour inside holds 50%.
    Columns share their ranges; a parameter of a few whole numbers gets a bar for each.
    """
    d = draws.shape[1]
    if ax is None:
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError("plots need matplotlib: pip install 'meanmap[plot]'") from error
        size = min(1.2 + 2.2 * d, 12)
        ax = plt.subplots(d, d, figsize=(size, size), squeeze=False, layout="constrained")[1]
    grid = np.asarray(ax, dtype=object).reshape(d, d)
    known = [None] * d if truth is None else list(truth)
    edges = [_edges(column, true) for column, true in zip(draws.T, known, strict=True)]
    for i, j in np.ndindex(d, d):
        place: Any = grid[i, j]
        if j > i:
            place.set_axis_off()
            continue
        if i == j:
            _marginal(place, draws[:, i], edges[i])
        else:
            _pair(place, draws[:, [j, i]], (edges[j], edges[i]))
        if truth is not None:
            place.axvline(truth[j], color=ORANGE, linewidth=1.2)
            if i != j:
                place.axhline(truth[i], color=ORANGE, linewidth=1.2)
                place.plot(truth[j], truth[i], "o", color=ORANGE, markersize=5)
        place.set_xlim(edges[j][0], edges[j][-1])
        place.locator_params(nbins=4)
        place.tick_params(labelbottom=i == d - 1, labelleft=j == 0 and i > 0)
        if i == j:
            place.set_yticks([])
        if i == d - 1:
            place.set_xlabel(names[j])
        if j == 0 and i > 0:
            place.set_ylabel(names[i])
    return grid


def _edges(column: np.ndarray, truth: float | None) -> np.ndarray:
    """Edges of bins: one bin a value for a few whole numbers, else 40 from end to end."""
    values = np.unique(column)
    if len(values) <= 20 and (values == np.round(values)).all():
        return np.arange(values[0] - 0.5, values[-1] + 1)
    shown = np.quantile(column, [0.001, 0.999])
    if truth is not None:
        shown = np.array([min(shown[0], truth), max(shown[1], truth)])
    margin = 0.05 * (shown[1] - shown[0]) or 0.5
    return np.linspace(shown[0] - margin, shown[1] + margin, 41)


def _marginal(place: Any, column: np.ndarray, edges: np.ndarray) -> None:
    """A histogram, dark in the central 90%."""
    low, high = np.quantile(column, [0.05, 0.95])
    bars = place.hist(column, edges, density=True, color=BLUE)[2]
    for bar in bars:
        middle = bar.get_x() + bar.get_width() / 2
        bar.set_alpha(0.75 if low <= middle <= high else 0.3)


def _pair(place: Any, draws: np.ndarray, edges: tuple[np.ndarray, np.ndarray]) -> None:
    """Where the draws of two parameters lie: the regions of 50% and 90%, and draws outside."""
    counts = np.histogram2d(draws[:, 0], draws[:, 1], edges)[0].T
    place.set_ylim(edges[1][0], edges[1][-1])
    if min(counts.shape) < 40:  # whole numbers: a table
        place.pcolormesh(*edges, counts, cmap="Blues")
        return
    smooth = gaussian_filter(counts, 1.5, mode="constant")
    heights = np.sort(smooth.ravel())[::-1]
    mass = np.cumsum(heights) / heights.sum()
    outer, inner = (float(heights[np.searchsorted(mass, share)]) for share in (0.9, 0.5))
    across, up = ((e[1:] + e[:-1]) / 2 for e in edges)
    dots = {"color": BLUE, "markersize": 2, "markeredgewidth": 0, "alpha": 0.3, "zorder": 0.5}
    place.plot(draws[:, 0], draws[:, 1], ".", **dots)
    if 0 < outer < inner < heights[0]:
        levels = [outer, inner, float(heights[0])]
        place.contourf(across, up, smooth, levels, colors=["#9ecae1", "#4292c6"])
        place.contour(across, up, smooth, levels[:2], colors=BLUE, linewidths=0.8)


def coverage(
    levels: np.ndarray, curves: np.ndarray, names: list[str], runs: int, ax: Any = None
) -> Any:
    """How often intervals hold the truth, against what they promise; chance shaded."""
    ax = axes(ax)
    band = 2 * np.sqrt(levels * (1 - levels) / runs)
    ax.fill_between(levels, levels - band, levels + band, color=GREY, alpha=0.3, linewidth=0)
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=1)
    for i, (name, curve) in enumerate(zip(names, curves.T, strict=True)):
        style = {"color": COLOURS[i % len(COLOURS)], "linestyle": STYLES[i // len(COLOURS) % 4]}
        ax.plot(levels, curve, linewidth=1.5, label=name, **style)
    ax.set(xlabel="credible level", ylabel="share of runs that hold the truth", aspect="equal")
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ax.legend(loc="upper left", fontsize="small", frameon=False)
    return ax


def predictive(simulated: np.ndarray, observed: np.ndarray, ax: Any = None) -> Any:
    """The spread of every output in simulations, with the observed values, all standardised."""
    ax = axes(ax)
    centre, scale = simulated.mean(axis=0), simulated.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    place = np.arange(len(observed))
    ends = np.quantile((simulated - centre) / scale, [0.05, 0.25, 0.75, 0.95], axis=0)
    width = float(np.clip(200 / len(observed), 2, 10))
    thick = {"color": BLUE, "linewidth": width}
    ax.vlines(place, ends[0], ends[3], alpha=0.3, label="90% of simulations", **thick)
    ax.vlines(place, ends[1], ends[2], alpha=0.6, label="50%", **thick)
    ax.plot(place, (observed - centre) / scale, "o", color=ORANGE, label="observed", zorder=3)
    ax.set(xlabel="output", ylabel="standard deviations from the mean")
    ax.set_xlim(-0.6, len(observed) - 0.4)
    if len(observed) <= 20:
        ax.set_xticks(place)
    above = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": 3, "frameon": False}
    ax.legend(fontsize="small", **above)
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
    """Two panels, scales and locations at x, a row of each a label; x may be names."""
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
