"""What an experiment found: immutable records, published figures beside ours."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meanmap import plots

PUBLISHED = "published"
NOTHING = "–"  # shown where there is no figure


@dataclass(frozen=True)
class Figure:
    """A mean over runs with its standard error.

    Examples
    --------
    >>> figure = Figure.of([0.101, 0.104, 0.098, 0.105])
    >>> figure
    0.1020 ± 0.0016
    >>> figure.runs
    4
    """

    mean: float
    standard_error: float
    runs: int

    @classmethod
    def of(cls, values: Any) -> Figure:
        """From one value per run. The standard error of a single run is NaN."""
        x = np.asarray(values, dtype=float).ravel()
        if x.size == 0:
            raise ValueError("a figure needs the value of at least one run, got none.")
        error = float(x.std(ddof=1) / math.sqrt(x.size)) if x.size > 1 else math.nan
        return cls(float(x.mean()), error, int(x.size))

    def __str__(self) -> str:
        if not math.isfinite(self.standard_error) or not math.isfinite(self.mean):
            return number(self.mean)
        # to the second digit of the standard error
        place = -math.floor(math.log10(self.standard_error)) + 1 if self.standard_error > 0 else 3
        digits = min(max(place, 0), 6)
        return f"{self.mean:.{digits}f} ± {self.standard_error:.{digits}f}"

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """As plain numbers, None for what is not finite."""
        return {
            "mean": finite(self.mean),
            "standard_error": finite(self.standard_error),
            "runs": self.runs,
        }


Cell = str | int | float | Figure | None


@dataclass(frozen=True)
class Table:
    """Figures in rows and columns; where a paper has a figure for a row, it stands last.

    Examples
    --------
    >>> rows = [("kernel", Figure(0.11, 0.004, 30)), ("Kalman", Figure(0.55, 0.02, 30))]
    >>> Table("Camera", ("filter", "error"), rows, published=(0.146, 0.557))
    Camera
    filter  error            published
    kernel  0.1100 ± 0.0040      0.146
    Kalman  0.550 ± 0.020        0.557
    """

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    published: tuple[Cell, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "headings", tuple(self.headings))
        object.__setattr__(self, "rows", tuple(tuple(row) for row in self.rows))
        object.__setattr__(self, "published", tuple(self.published))
        for row in self.rows:
            if len(row) != len(self.headings):
                raise ValueError(
                    f"table {self.title!r}: a row has {len(row)} cells under {len(self.headings)} "
                    f"headings: {row!r:.80}. Use None where there is no figure."
                )
        if self.published and len(self.published) != len(self.rows):
            raise ValueError(
                f"table {self.title!r}: {len(self.published)} published figures for "
                f"{len(self.rows)} rows. Use None for a row that has none."
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """All headings, that of the published figures last."""
        return (*self.headings, PUBLISHED) if self.published else self.headings

    @property
    def cells(self) -> tuple[tuple[Cell, ...], ...]:
        """All rows, with their published figures last."""
        if not self.published:
            return self.rows
        return tuple((*row, figure) for row, figure in zip(self.rows, self.published, strict=True))

    def column(self, heading: str) -> tuple[Cell, ...]:
        """The cells under a heading."""
        at = self.columns.index(heading)
        return tuple(row[at] for row in self.cells)

    def __str__(self) -> str:
        text = [[shown(cell) for cell in row] for row in self.cells]
        numeric = [
            bool(self.cells) and all(isinstance(row[i], int | float | None) for row in self.cells)
            for i in range(len(self.columns))
        ]
        widths = [
            max(len(line[i]) for line in [self.columns, *text]) for i in range(len(self.columns))
        ]

        def line(cells: Iterable[str]) -> str:
            parts = zip(cells, widths, numeric, strict=True)
            return "  ".join(f"{c:>{w}}" if right else f"{c:<{w}}" for c, w, right in parts)

        lines = [self.title, line(self.columns), *map(line, text)]
        return "\n".join(part.rstrip() for part in lines)

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """As lists, each figure a dict with `mean`, `standard_error` and `runs`."""
        rows = [[plain(cell) for cell in row] for row in self.cells]
        return {"title": self.title, "columns": list(self.columns), "rows": rows}


@dataclass(frozen=True)
class Claim:
    """A line of a verdict.

    Attributes
    ----------
    text : str
        The line, as it is read.
    holds : bool or None
        Whether what was claimed holds, or no rival does better; None for figures only, and where
        the figures cannot tell.
    ours : figure or None
        What was measured here.
    published : figure, words or None
        What the paper has.

    Examples
    --------
    >>> claim = Claim("Error 0.11, at most 0.13: holds.", holds=True, ours=0.11)
    >>> print(claim)
    Error 0.11, at most 0.13: holds.
    >>> claim.holds
    True
    """

    text: str
    holds: bool | None = None
    ours: Cell = None
    published: Cell = None

    @classmethod
    def quote(cls, words: str) -> Claim:
        """What a paper says, with which our figures are to be compared."""
        return cls(f"Published: {words}", published=words)

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """As JSON knows it."""
        return {
            "text": self.text,
            "holds": self.holds,
            "ours": plain(self.ours),
            "published": plain(self.published),
        }


def paired(ours: Any, theirs: Any) -> tuple[str, float, float]:
    """Below, above or level with, by the paired difference and two standard errors of it."""
    gap = Figure.of(np.subtract(ours, theirs))
    if not abs(gap.mean) > 2 * gap.standard_error:
        return "level with", gap.mean, gap.standard_error
    return "below" if gap.mean < 0 else "above", gap.mean, gap.standard_error


def ahead(comparisons: Iterable[str], better: str = "above") -> bool | None:
    """Whether a method is ahead of its rivals, by the words of `paired` against each.

    False if one of them is ahead of it, None if none can be told apart from it.

    Examples
    --------
    >>> ahead(["above", "level with"]), ahead(["above", "below"]), ahead(["level with"])
    (True, False, None)
    """
    apart = [how == better for how in comparisons if how != "level with"]
    return all(apart) if apart else None


@dataclass(frozen=True, eq=False, repr=False)
class Outcome:
    """What an experiment found.

    Attributes
    ----------
    name, title : str
    citation : str
        The paper, as people know it.
    settings : dict of str to str
        What was done, in words.
    tables : tuple of Table
    verdict : tuple of Claim
        What holds and what does not, a line each.
    quick, seed : how it was run
    seconds : float
    picture : callable or None
        Draws on axes, or on new ones for None, and returns them.
    """

    name: str
    title: str
    citation: str
    settings: dict[str, str]
    tables: tuple[Table, ...]
    verdict: tuple[Claim, ...]
    quick: bool = False
    seed: int = 0
    seconds: float = math.nan
    picture: Callable[[Any], Any] | None = field(default=None)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", tuple(self.tables))
        object.__setattr__(self, "verdict", tuple(self.verdict))

    @property
    def holds(self) -> bool | None:
        """Whether everything that was claimed holds; None if there are figures only."""
        tried = [claim.holds for claim in self.verdict if claim.holds is not None]
        return all(tried) if tried else None

    def plot(self, ax: Any = None) -> Any:
        """Draw the experiment's picture, on matplotlib axes or on new ones, which are returned."""
        if self.picture is None:
            raise TypeError(f"the experiment {self.name!r} has no picture; its tables say it all.")
        return self.picture(ax)

    def __str__(self) -> str:
        title = f"{self.title} (quick)" if self.quick else self.title
        width = max(map(len, self.settings), default=0)
        settings = [f"{name:<{width}}  {words}" for name, words in self.settings.items()]
        verdict = [f"- {claim}" for claim in self.verdict]
        took = "" if math.isnan(self.seconds) else f", {self.seconds:.1f} s"
        blocks = [
            [title, self.citation],
            settings,
            *([str(table)] for table in self.tables),
            ["What holds and what does not:", *verdict] if verdict else [],
            [f"seed {self.seed}{took}"],
        ]
        return "\n\n".join("\n".join(block) for block in blocks if block)

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """Everything but the picture, as dicts, lists, text and numbers."""
        return {
            "name": self.name,
            "title": self.title,
            "citation": self.citation,
            "settings": dict(self.settings),
            "tables": [table.to_dict() for table in self.tables],
            "verdict": [claim.to_dict() for claim in self.verdict],
            "quick": self.quick,
            "seed": self.seed,
            "seconds": finite(self.seconds),
        }

    def to_json(self, indent: int | None = 2) -> str:
        """`to_dict` as JSON text; what is not finite is null."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True)
class Curves:
    """A picture: figures against a number, one curve per method, with bars of two standard errors.

    Each curve is a name, the numbers, and the figures there; a curve of one point is drawn as a
    level across.
    """

    title: str
    xlabel: str
    ylabel: str
    curves: tuple[tuple[str, tuple[float, ...], tuple[Figure, ...]], ...]
    logx: bool = False
    logy: bool = False

    def __call__(self, ax: Any = None) -> Any:
        """Draw, and return the axes."""
        ax = plots.axes(ax)
        for i, (name, x, figures) in enumerate(self.curves):
            means = [figure.mean for figure in figures]
            style = {"color": COLOURS[i % len(COLOURS)], "label": name}
            if len(x) == 1:
                ax.axhline(means[0], linestyle=DASHES[i % len(DASHES)], **style)
                continue
            bars = [2 * figure.standard_error for figure in figures]
            ax.errorbar(x, means, bars, marker=MARKS[i % len(MARKS)], capsize=2, **style)
        ax.set(title=self.title, xlabel=self.xlabel, ylabel=self.ylabel)
        if self.logx:
            ax.set_xscale("log", base=2)
        if self.logy:
            ax.set_yscale("log")
        ax.legend(fontsize="small")
        return ax


def against_seconds(
    ax: Any, points: Iterable[tuple[str, float, Figure]], filled: Container[str]
) -> None:
    """A point a method: figures with bars of two standard errors, against seconds."""
    for i, (name, seconds, figure) in enumerate(points):
        ax.errorbar(
            seconds,
            figure.mean,
            2 * figure.standard_error,
            linestyle="",
            marker=MARKS[i % len(MARKS)],
            color=COLOURS[i % len(COLOURS)],
            fillstyle="full" if name in filled else "none",
            capsize=2,
            label=name,
        )
    ax.set_xscale("log")
    ax.set(xlabel="seconds of inference")


# Okabe and Ito's colours, told apart by colour-blind eyes too; marks and dashes say it again
COLOURS = (plots.BLUE, plots.ORANGE, "#009e73", "#cc79a7", "#56b4e9", "#e69f00", plots.GREY)
MARKS = "osD^v<>"
DASHES = ("--", ":", "-.")


def shown(cell: Cell) -> str:
    """A cell as text."""
    if cell is None:
        return NOTHING
    return number(cell) if isinstance(cell, float) else str(cell)


def number(value: float) -> str:
    """A number to three digits that count."""
    return f"{value:.3g}" if math.isfinite(value) else NOTHING


def plain(cell: Cell) -> Any:
    """A cell as JSON knows it."""
    if isinstance(cell, Figure):
        return cell.to_dict()
    return finite(cell) if isinstance(cell, float) else cell


def finite(value: float) -> float | None:
    """A number that JSON can hold, or None."""
    return float(value) if math.isfinite(value) else None
