"""Functions of one and two variables, null distributions, witnesses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from meanmap.plots.canvas import BLUE, COLOURS, GREY, MAP, ORANGE, axes

SHOWN_NAMES = 40  # rows of a table up to which each has its name


def axis_range(column: np.ndarray) -> tuple[float, float]:
    """An axis that shows a sample with a margin around it."""
    low, high = float(column.min()), float(column.max())
    margin = 0.15 * (high - low) or 1.0
    return low - margin, high + margin


def grid(sample: np.ndarray, steps: tuple[int, int]) -> tuple[list[np.ndarray], np.ndarray]:
    """Axes around a sample of one or two columns, and the points (…, d) of their grid.

    `steps` are those of one axis where it is alone, and where there are two.
    """
    axes = [np.linspace(*axis_range(column), steps[sample.shape[1] - 1]) for column in sample.T]
    return axes, np.stack(np.meshgrid(*axes), axis=-1)


def function(atoms: Any, values: Callable[[Any], np.ndarray], ax: Any = None, **style: Any) -> Any:
    """A function of points like the atoms: bars for labels, a curve, contours, a map of pairs."""
    if isinstance(atoms, tuple):
        return _function_of_pairs(atoms, values, ax, **style)
    if atoms.ndim == 1:
        labels = np.unique(atoms)
        return bars(labels, values(labels), "probability", ax, **style)
    if atoms.ndim != 2 or atoms.shape[1] > 2:
        raise ValueError(
            "plot draws points with one or two coordinates, or labels; these are an array of shape "
            f"{atoms.shape}. Use .mean(), .std() and .mode()."
        )
    axes, places = grid(atoms, (200, 60))
    heights = values(places.reshape(-1, len(axes))).reshape(places.shape[:-1])
    return landscape(axes, heights, atoms, ax, **style)


def _function_of_pairs(
    atoms: tuple[Any, ...], values: Callable[[Any], np.ndarray], ax: Any, **style: Any
) -> Any:
    """A map of a function of two scalar variables, or of two labels."""
    if len(atoms) != 2:
        raise TypeError("plot draws one joint embedding of two variables.")
    sides = []
    for part in atoms:
        if part.ndim == 1:
            sides.append(np.unique(part))
        elif part.shape[1:] == (1,):
            sides.append(np.linspace(*axis_range(part[:, 0]), 60))
        else:
            raise ValueError("plot draws scalar variables or labels; reduce the others first.")
    first, second = sides
    indices = (index.ravel() for index in np.indices((len(first), len(second))))
    places = tuple(
        side[index][:, None] if part.ndim > 1 else side[index]
        for side, index, part in zip(sides, indices, atoms, strict=True)
    )
    return image(first, second, values(places).reshape(len(first), len(second)), ax, **style)


def landscape(
    axes: list[np.ndarray], values: np.ndarray, sample: np.ndarray, ax: Any = None, **style: Any
) -> Any:
    """A function on a `grid`: a curve in one dimension, contours in two."""
    if len(axes) == 1:
        return curve(axes[0], values, sample[:, 0], ax, **style)
    return contours(axes[0], axes[1], values, sample, ax, **style)


def curve(
    x: np.ndarray,
    values: np.ndarray,
    atoms: np.ndarray,
    ax: Any = None,
    *,
    name: str = "e(x)",
    **style: Any,
) -> Any:
    """A function of one variable, with a rug of the atoms under it."""
    ax = axes(ax)
    ax.plot(x, values, **{"color": BLUE, **style})
    ax.plot(atoms, np.full(len(atoms), min(0.0, float(np.min(values)))), "|", color=GREY, alpha=0.5)
    ax.set(xlabel="x", ylabel=name)
    return ax


def contours(
    x: np.ndarray,
    y: np.ndarray,
    values: np.ndarray,
    atoms: np.ndarray,
    ax: Any = None,
    *,
    name: str = "e(x)",
    **style: Any,
) -> Any:
    """A function of two variables, with the atoms over it."""
    ax = axes(ax)
    drawn = ax.contourf(x, y, values, **{"levels": 12, "cmap": MAP, **style})
    ax.plot(atoms[:, 0], atoms[:, 1], ".", color="white", markersize=2, alpha=0.5)
    ax.figure.colorbar(drawn, ax=ax, label=name)
    ax.set(xlabel="x₁", ylabel="x₂")
    return ax


def complex_plane(values: np.ndarray, ax: Any = None, **style: Any) -> Any:
    """Numbers in the complex plane, with the unit circle."""
    ax = axes(ax)
    turn = np.linspace(0, 2 * np.pi, 200)
    ax.plot(np.cos(turn), np.sin(turn), color=GREY, linewidth=1)
    ax.plot(np.real(values), np.imag(values), "o", **{"color": BLUE, "markersize": 4, **style})
    ax.set(xlabel="real part", ylabel="imaginary part", aspect="equal")
    return ax


def bars(labels: np.ndarray, values: np.ndarray, name: str, ax: Any = None, **style: Any) -> Any:
    """One bar per label."""
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
        ax.hist(values, bins=40, density=True, color=GREY, alpha=0.6, label="null hypothesis")
    else:
        ax.fill_between(values, density, color=GREY, alpha=0.6, label="null hypothesis")
    ax.axvline(statistic, color=ORANGE, linewidth=2, label=f"observed, p = {pvalue:.3g}")
    ax.set(xlabel="statistic", ylabel="density", yticks=[])
    ax.legend(loc="upper center")
    return ax


def label_axes(ax: Any, names: Any) -> Any:
    """Names of columns at the axes, x and then y; those that are empty change nothing."""
    for set_label, name in zip((ax.set_xlabel, ax.set_ylabel), names, strict=False):
        if str(name):
            set_label(str(name))
    return ax


def interval_chart(
    names: list[str], values: np.ndarray, edges: np.ndarray, title: str, ax: Any = None
) -> Any:
    """Values with intervals, one per name, the first above."""
    ax = axes(ax)
    at = np.arange(len(values))[::-1]
    ax.hlines(at, edges[:, 0], edges[:, 1], color=GREY, linewidth=2)
    ax.plot(values, at, "o", color=BLUE)
    ax.set_yticks(at, names)
    ax.set(xlabel=title, xlim=(0, None))
    return ax


def matrix(
    values: np.ndarray, names: list[str], title: str, marks: Any = None, ax: Any = None
) -> Any:
    """A square table with names on both sides, the first row above; `marks` are words in cells."""
    ax = axes(ax)
    n = len(values)
    drawn = ax.imshow(values, cmap=MAP, interpolation="nearest", vmin=0)
    ax.figure.colorbar(drawn, ax=ax, label=title)
    if n <= SHOWN_NAMES:
        ax.set_xticks(range(n), names, rotation=90)
        ax.set_yticks(range(n), names)
    else:
        ax.set(xticks=[], yticks=[])
    if marks is not None and n <= SHOWN_NAMES:
        dark = values < 0.6 * np.nanmax(values) if n else values
        for (i, j), word in np.ndenumerate(marks):
            ax.text(j, i, word, ha="center", va="center", fontsize="small",
                    color="white" if dark[i, j] else "black")  # fmt: skip
    return ax


def against(x: np.ndarray, y: np.ndarray, names: tuple[str, str], ax: Any = None) -> Any:
    """Two variables, a point a row."""
    ax = axes(ax)
    ax.plot(x, y, ".", color=BLUE, markersize=3, alpha=0.6)
    ax.set(xlabel=names[0], ylabel=names[1])
    return ax


def witness_curve(
    x: np.ndarray,
    values: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    ax: Any = None,
    names: tuple[str, str] = ("X", "Y"),
) -> Any:
    """The witness of two samples of numbers, with both samples as histograms behind it."""
    ax = axes(ax)
    behind = ax.twinx()
    edges = np.histogram_bin_edges(np.concatenate([first, second]), bins=40)
    for sample, colour, name in ((first, BLUE, names[0]), (second, ORANGE, names[1])):
        behind.hist(sample, bins=edges, density=True, color=colour, alpha=0.3, label=name)
    behind.set(yticks=[], ylabel="density")
    behind.yaxis.label.set_visible(False)  # not to be read off, but said where pages are pointed at
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


def shares(probabilities: Mapping[str, Any], name: str, ax: Any, along: str = "query point") -> Any:
    """Stacked bars of the probabilities of labels, one bar per point."""
    at = np.arange(1, len(next(iter(probabilities.values()))) + 1)
    bottom = np.zeros(len(at))
    for i, (label, share) in enumerate(probabilities.items()):
        ax.bar(at, share, 0.9, bottom, color=COLOURS[i % len(COLOURS)], label=label)
        bottom = bottom + share
    ax.set(xlabel=along, ylabel="probability", ylim=(0, 1))
    if len(at) <= 12:
        ax.set_xticks(at)
    ax.legend(title=name, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return ax
