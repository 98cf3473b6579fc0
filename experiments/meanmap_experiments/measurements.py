"""Tables of measurements: a tree learned, held-out rows judged, hidden values filled in.

Two tables that come with scikit-learn, both chosen before any result was seen: diabetes (Efron and
others 2004: ten measurements of 442 patients and the progress of the disease) and wine (Forina and
others 1988: thirteen of 178 wines). A kernel tree with its defaults is compared with a Gaussian
tree and with trees of binned columns, each with a structure of its own making.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

import networkx as nx
import numpy as np

from meanmap import plots
from meanmap.graphical import KernelGraphicalModel, chow_liu_tree
from meanmap_experiments.networks import Binned, Normal, binned
from meanmap_experiments.results import COLOURS, Claim, Figure, Outcome, Table, ahead, paired
from meanmap_experiments.runs import each

KERNEL, BORROWED = "kernel tree", "kernel tree, the Gaussian tree's edges"
GAUSSIAN, LEVEL = "Gaussian tree", "the columns' means"
BINNED = {f"binned tree, {bins} bins": bins for bins in (3, 5, 10)}
APART = "Gaussian columns, independent"
PEERS = (GAUSSIAN, *BINNED)
LIKELY = (KERNEL, BORROWED, *PEERS, APART)
FILLED = (KERNEL, BORROWED, *PEERS, LEVEL)

Columns = Mapping[Any, np.ndarray]


@dataclass(frozen=True)
class Plan:
    """How much is done."""

    splits: int = 10
    tables: tuple[str, ...] = ("diabetes", "wine")
    held: float = 0.25  # the share of rows held out


FULL = Plan()
QUICK = Plan(splits=4)

Scores = dict[tuple[str, str, str], list[float]]  # by table, measure and method, one per split


def run(
    quick: bool = False,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: bool | None = None,
    plan: Plan | None = None,
) -> Outcome:
    """Trees learned from measurements.

    Parameters
    ----------
    quick, seed, n_jobs, progress : as in `meanmap_experiments.run`
    plan : Plan or None
        How much is done, if neither the quick nor the full experiment.

    Examples
    --------
    >>> run(plan=Plan(splits=1, tables=("wine",))).name
    'measurements'
    """
    plan = plan or (QUICK if quick else FULL)
    jobs = [(plan, name, i, seed) for name in plan.tables for i in range(plan.splits)]
    scores: Scores = {}
    shared: dict[str, list[float]] = {}
    for (_, name, *_), (found, same) in zip(
        jobs, each(one_split, jobs, "measurements", n_jobs, progress), strict=True
    ):
        shared.setdefault(name, []).append(same)
        for (measure, method), value in found.items():
            scores.setdefault((name, measure, method), []).append(value)
    return Outcome(
        name="measurements",
        title="Tables of measurements: held-out rows and hidden values",
        citation="data of the scikit-learn package; no paper's experiment",
        settings={
            **{name: words(name) for name in plan.tables},
            "splits": f"{plan.splits} at random, {plan.held:.0%} of the rows held out; columns "
            "less the mean and over the deviation of the rows learned from",
            "log density": "the mean over held-out rows, of all columns together",
            "hidden values": "one value a held-out row, its column at random and the same for all "
            "methods; root mean squared error in deviations of the column",
            KERNEL: "KernelGraphicalModel with its defaults: chow_liu_tree by normalised HSIC",
            GAUSSIAN: "Chow and Liu's tree by Gaussian mutual information, maximum likelihood",
            "binned trees": "bins of equal frequency, Chow and Liu's tree by the mutual "
            "information of the tables, one added to every cell; density = probability / width; "
            "values beyond the bins count as in the outermost",
        },
        tables=(
            score_table(plan, scores, "log density", LIKELY, "Log density of held-out rows"),
            score_table(plan, scores, "error", FILLED, "Error of hidden values (deviations)"),
            *(edge_table(name) for name in plan.tables),
        ),
        verdict=verdict(plan, scores, shared),
        quick=quick,
        seed=seed,
        picture=picture(plan, scores),
    )


# --- data -----------------------------------------------------------------------------------------


@cache
def measured(name: str) -> dict[str, np.ndarray]:
    """The columns of numbers of a table: labels (sex, class) are left out."""
    from sklearn import datasets

    if name == "diabetes":
        found = datasets.load_diabetes(scaled=False)
        columns = dict(zip(found.feature_names, found.data.T, strict=True))
        columns.pop("sex")
        columns["progress"] = found.target.astype(float)
        return columns
    found = datasets.load_wine()
    return dict(zip(found.feature_names, found.data.T, strict=True))


def words(name: str) -> str:
    columns = measured(name)
    left = "sex" if name == "diabetes" else "the kind of wine"
    n = len(next(iter(columns.values())))
    return f"{n} rows, {len(columns)} columns of numbers ({left}, a label, is left out)"


# --- structures -----------------------------------------------------------------------------------


def directed(graph: Any) -> list[tuple[Any, Any]]:
    """A tree's edges from parent to child."""
    return list(nx.bfs_edges(graph, next(iter(graph.nodes))))


def spanning(names: Any, weight: Any) -> list[tuple[Any, Any]]:
    """The edges of the heaviest tree."""
    graph = nx.Graph()
    graph.add_nodes_from(names)
    graph.add_weighted_edges_from((a, b, weight(a, b)) for a, b in combinations(names, 2))
    return directed(nx.maximum_spanning_tree(graph))


def gaussian_edges(data: Columns) -> list[tuple[Any, Any]]:
    """Chow and Liu's tree by `-log(1 - ρ²)/2`."""
    return spanning(
        list(data), lambda a, b: -np.log1p(-(np.corrcoef(data[a], data[b])[0, 1] ** 2)) / 2
    )


def binned_edges(data: Columns, bins: int) -> list[tuple[Any, Any]]:
    """Chow and Liu's tree by the mutual information of tables of frequencies."""
    index = {
        name: binned(x, np.unique(np.quantile(x, np.linspace(0, 1, bins + 1))))
        for name, x in data.items()
    }

    def information(a: Any, b: Any) -> float:
        p = np.zeros((bins, bins))
        np.add.at(p, (index[a], index[b]), 1.0)
        p /= p.sum()
        apart = p.sum(axis=1, keepdims=True) * p.sum(axis=0)
        return float((p[p > 0] * np.log(p[p > 0] / apart[p > 0])).sum())

    return spanning(list(data), information)


# --- runs -----------------------------------------------------------------------------------------


def one_split(
    plan: Plan, name: str, index: int, seed: int
) -> tuple[dict[tuple[str, str], float], float]:
    """Scores by measure and method, and the share of edges that two structures have in common."""
    table = measured(name)
    rng = np.random.default_rng((seed, len(table), index))
    n = len(next(iter(table.values())))
    order = rng.permutation(n)
    held, known = np.split(order, [round(plan.held * n)])
    data, tests = {}, {}
    for column, x in table.items():
        level, scale = x[known].mean(), x[known].std()
        data[column], tests[column] = (x[known] - level) / scale, (x[held] - level) / scale
    hidden = rng.integers(len(table), size=len(held))
    theirs = gaussian_edges(data)
    models: dict[str, Any] = {
        KERNEL: KernelGraphicalModel().fit(data),
        BORROWED: KernelGraphicalModel(nx.Graph(theirs)).fit(data),
        GAUSSIAN: Normal.tree(data, theirs),
        APART: Normal.tree(data, ()),
    }
    for method, bins in BINNED.items():
        models[method] = Binned.fitted(data, binned_edges(data, bins), bins, smoothing=1.0)
    found = {("log density", m): float(models[m].log_density(tests).mean()) for m in LIKELY}
    truth = np.array([tests[column][i] for i, column in enumerate_hidden(table, hidden)])
    for method in FILLED:
        values = np.zeros(len(held)) if method == LEVEL else fill(models[method], tests, hidden)
        found["error", method] = float(np.sqrt(((values - truth) ** 2).mean()))
    own = {frozenset(edge) for edge in models[KERNEL].graph_.edges}
    return found, len(own & {frozenset(edge) for edge in theirs}) / len(own)


def enumerate_hidden(table: Columns, hidden: np.ndarray) -> list[tuple[int, Any]]:
    """Each row with the column that is hidden in it."""
    names = list(table)
    return [(i, names[at]) for i, at in enumerate(hidden)]


def fill(model: Any, tests: Columns, hidden: np.ndarray) -> np.ndarray:
    """The model's mean of the hidden value of each row, given the others."""
    places = enumerate_hidden(tests, hidden)
    if isinstance(model, KernelGraphicalModel):
        holes = {name: x.copy() for name, x in tests.items()}
        for i, name in places:
            holes[name][i] = np.nan
        filled = model.impute(holes)
        return np.array([filled[name][i] for i, name in places])
    found = np.zeros(len(hidden))
    for at, name in enumerate(tests):
        rows = np.flatnonzero(hidden == at)
        if not len(rows):
            continue
        evidence = {other: x[rows] for other, x in tests.items() if other != name}
        binned_model = isinstance(model, Binned)
        found[rows] = model.mean(name, evidence) if binned_model else model.given(name, evidence)[0]
    return found


# --- what is reported -----------------------------------------------------------------------------


def score_table(
    plan: Plan, scores: Scores, measure: str, methods: tuple[str, ...], title: str
) -> Table:
    rows: list[tuple[Any, ...]] = [
        (method, *(Figure.of(scores[name, measure, method]) for name in plan.tables))
        for method in methods
    ]
    return Table(title, ("method", *plan.tables), tuple(rows))


def edge_table(name: str) -> Table:
    """The kernel tree of all rows, and whether the Gaussian tree has the edge as well."""
    table = measured(name)
    theirs = {frozenset(edge) for edge in gaussian_edges(table)}
    edges = chow_liu_tree(table).edges(data="weight")
    rows: list[tuple[Any, ...]] = [
        (f"{a} – {b}", float(weight), "yes" if frozenset((a, b)) in theirs else "no")
        for a, b, weight in sorted(edges, key=lambda edge: -edge[2])
    ]
    headings = ("edge", "normalised HSIC", "in the Gaussian tree")
    return Table(f"The tree of {name}, from all rows", headings, tuple(rows))


def verdict(plan: Plan, scores: Scores, shared: dict[str, list[float]]) -> tuple[Claim, ...]:
    """By paired differences over splits, which share rows: their standard errors are too small."""
    lines = []
    for name in plan.tables:
        for measure, sign in (("log density", -1.0), ("error", 1.0)):

            def mean(method: str, n: str = name, m: str = measure) -> float:
                return float(np.mean(scores[n, m, method]))

            best = min(PEERS, key=lambda method: sign * mean(method))
            said, hows = [], []
            for rival in dict.fromkeys((best, GAUSSIAN)):
                ours, theirs = (scores[name, measure, method] for method in (KERNEL, rival))
                how, gap, se = paired(ours, theirs)
                word = {"level with": "not told apart from"}.get(how)
                word = word or ("better than" if sign * gap < 0 else "worse than")
                which = "the best peer, " if rival == best else ""
                said.append(f"{word} {which}“{rival}” ({mean(rival):.3f}; {gap:+.3f} ± {se:.3f})")
                hows.append(how)
            borrowed = mean(BORROWED)
            text = (
                f"{name}, {measure}: {KERNEL} {mean(KERNEL):.3f}, {' and '.join(said)}; with the "
                f"Gaussian tree's edges {borrowed:.3f}."
            )
            holds = ahead(hows, "above" if sign < 0 else "below")
            lines.append(Claim(text, holds, mean(KERNEL)))
        text = (
            f"{name}: {np.mean(shared[name]):.0%} of the kernel tree's edges are the Gaussian "
            "tree's too, on average over splits."
        )
        lines.append(Claim(text))
    text = "Splits share rows, so that these standard errors are somewhat too small."
    lines.append(Claim(text))
    return tuple(lines)


def picture(plan: Plan, scores: Scores) -> Callable[[Any], Any]:
    """Errors of hidden values, a group of bars a table."""
    errors = {m: [Figure.of(scores[name, "error", m]) for name in plan.tables] for m in FILLED}

    def draw(ax: Any = None) -> Any:
        ax = plots.axes(ax)
        width = 0.8 / len(errors)
        for i, (method, figures) in enumerate(errors.items()):
            place = [j + (i - (len(errors) - 1) / 2) * width for j in range(len(figures))]
            bars = [2 * figure.standard_error for figure in figures]
            means = [figure.mean for figure in figures]
            colour = COLOURS[i % len(COLOURS)]
            ax.bar(place, means, width, yerr=bars, color=colour, label=method, capsize=2)
        ax.set(title="Hidden values filled in", ylabel="error (deviations)")
        ax.set_xticks(range(len(plan.tables)), plan.tables)
        ax.set_ylim(top=1.6)
        ax.legend(fontsize="small", ncols=2, loc="upper center")
        return ax

    return draw
