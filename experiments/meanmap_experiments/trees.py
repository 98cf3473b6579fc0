"""Chains and trees against the truth: linear, bent and branching edges, and tables.

The models are small and known, so every conditional distribution is known too: in closed form where
edges are linear and Gaussian, by sums over a fine grid where they are not, by enumeration where
variables are labels. A kernel model with its defaults is compared with a Gaussian tree, which for
linear edges is the right family, and with trees on binned variables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import networkx as nx
import numpy as np
from scipy.stats import norm

from meanmap.graphical import KernelGraphicalModel
from meanmap.kernels import Delta
from meanmap_experiments.networks import MODELS, Binned, Columns, Grid, Model, Normal
from meanmap_experiments.results import Claim, Curves, Figure, Outcome, Table, ahead, paired
from meanmap_experiments.runs import each

KERNEL, GAUSSIAN = "kernel tree", "Gaussian tree"
BINNED = {"binned tree, 10 bins": 10, "binned tree, 20 bins": 20}
BLIND = "the marginal, evidence ignored"
TOLERANCE = 1e-6  # of probabilities of labels
FORMS = {  # of the discrete models: parents of each node
    "chain": {"A": (), "B": ("A",), "C": ("B",), "D": ("C",), "E": ("D",)},
    "tree": {"A": (), "B": ("A",), "C": ("A",), "D": ("B",), "E": ("B",), "F": ("C",)},
    "polytree": {"A": (), "B": (), "C": ("A", "B"), "D": ("C",), "E": ("C",)},
}


@dataclass(frozen=True)
class Plan:
    """How much is done."""

    sizes: tuple[int, ...] = (200, 500, 1000, 2000)
    runs: int = 20
    tests: int = 50  # rows whose values are evidence, a run
    cells: int = 400  # of the grid of the truth
    tables: int = 20  # discrete models of each form
    rows: int = 500  # the discrete models are learned from


FULL = Plan()
QUICK = Plan(sizes=(200, 500, 1000), runs=4, tests=20, cells=250, tables=4)


def run(
    quick: bool = False,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: bool | None = None,
    plan: Plan | None = None,
) -> Outcome:
    """Conditional distributions on chains and trees whose truth is known.

    Parameters
    ----------
    quick, seed, n_jobs, progress : as in `meanmap_experiments.run`
    plan : Plan or None
        How much is done, if neither the quick nor the full experiment.

    Examples
    --------
    >>> plan = Plan(sizes=(50,), runs=1, tests=3, cells=50, tables=1, rows=100)
    >>> run(plan=plan).name
    'trees'
    """
    plan = plan or (QUICK if quick else FULL)
    jobs = [
        (plan, name, n, i, seed)
        for n in sorted(plan.sizes, reverse=True)  # the longest first
        for name in MODELS
        for i in range(plan.runs)
    ]
    errors: Errors = {}
    for (_, name, n, *_), found in zip(
        jobs, each(one_run, jobs, "trees", n_jobs, progress), strict=True
    ):
        for key, value in found.items():
            errors.setdefault((name, n, *key), []).append(value)
    discrete = [(plan, form, i, seed) for form in FORMS for i in range(plan.tables)]
    gaps: Gaps = {}
    for (_, form, *_), pair in zip(
        discrete, each(discrete_run, discrete, "tables", n_jobs, progress), strict=True
    ):
        gaps.setdefault(form, []).append(pair)
    most = max(plan.sizes)
    linear = [model for model in MODELS.values() if model.linear]
    bent = [model for model in MODELS.values() if not model.linear]
    return Outcome(
        name="trees",
        title="Chains and trees against the truth",
        citation="models after Song, Fukumizu and Gretton (2013), section 5.1; no paper's figures",
        settings={
            **{name: model.words for name, model in MODELS.items()},
            "evidence": f"values at some nodes of {plan.tests} rows that the model itself drew; "
            "all other nodes are asked for",
            "truth": "the joint covariance where edges are linear; sums over a grid of "
            f"{plan.cells} values a node where they are not",
            "errors": "of means and deviations: root mean square over rows and nodes asked for, in "
            "units of each node's deviation; of densities: total variation, averaged; "
            f"{plan.runs} runs",
            KERNEL: "KernelGraphicalModel with its defaults, given the graph",
            GAUSSIAN: "given the graph, covariances of maximum likelihood along its edges: where "
            "edges are linear, the right family",
            "binned trees": "given the graph, bins of equal frequency, tables of maximum "
            "likelihood; a bin's density is flat and its mean that of its values",
            "labels": f"{plan.tables} random models of each form, three labels per node, learned "
            f"from {plan.rows} rows: delta kernels and regularization=0 against enumeration of "
            "the tables of maximum likelihood" + pgmpy_words(),
        },
        tables=(
            by_size(plan, errors, "means", (*linear, *bent)),
            by_size(plan, errors, "deviations", tuple(linear)),
            by_size(plan, errors, "densities", tuple(bent)),
            *(by_evidence(model, most, errors, "means") for model in linear),
            *(by_evidence(model, most, errors, "densities") for model in bent),
            label_table(gaps),
        ),
        verdict=verdict(plan, errors, gaps),
        quick=quick,
        seed=seed,
        picture=picture(plan, errors),
    )


# --- runs of numbers ------------------------------------------------------------------------------

Errors = dict[tuple[str, int, str, str, str], list[float]]  # model, n, measure, method, evidence
ALL = "all"  # evidence sets together


@dataclass(frozen=True, eq=False)
class Fitted:
    """What was learned from a sample."""

    kernel: KernelGraphicalModel
    normal: Normal
    binned: dict[str, Binned]


def one_run(
    plan: Plan, name: str, n: int, index: int, seed: int
) -> dict[tuple[str, str, str], float]:
    """Errors by measure, method and evidence; a measure's root mean square for all evidence."""
    model = MODELS[name]
    rng = np.random.default_rng((seed, list(MODELS).index(name), index))
    tests = model.sample(plan.tests, rng)
    data = model.sample(n, rng)
    fitted = Fitted(
        KernelGraphicalModel(nx.DiGraph(list(model.edges))).fit(data),
        Normal.tree(data, model.edges),
        {m: Binned.fitted(data, model.edges, bins) for m, bins in BINNED.items()},
    )
    score = linear_errors if model.linear else bent_errors
    squares: dict[tuple[str, str, str], list[float]] = {}
    for names in model.evidence:
        evidence = {node: tests[node] for node in names}
        for node in model.names:
            if node in names:
                continue
            found = score(plan, model, fitted, node, evidence)
            for (measure, method), value in found.items():
                for where in (said(names), ALL):
                    squares.setdefault((measure, method, where), []).append(value)
    return {
        key: float(np.mean(values) if key[0] == "densities" else np.sqrt(np.mean(values)))
        for key, values in squares.items()
    }


def said(names: tuple[str, ...]) -> str:
    return ", ".join(names)


def linear_errors(
    plan: Plan, model: Model, fitted: Fitted, node: str, evidence: Columns
) -> dict[tuple[str, str], float]:
    """Mean squared errors of means and of deviations against the closed form."""
    mean, deviation = model.joint.given(node, evidence)
    kernel = fitted.kernel.marginal(node, evidence)
    answers: dict[str, tuple[Any, Any]] = {
        KERNEL: (np.asarray(kernel.mean())[:, 0], np.asarray(kernel.std())[:, 0]),
        GAUSSIAN: fitted.normal.given(node, evidence),
        BLIND: (np.zeros(len(mean)), 1.0),
    }
    found = {}
    for method, (means, deviations) in answers.items():
        found["means", method] = float(np.mean((means - mean) ** 2))
        found["deviations", method] = float(np.mean((deviations - deviation) ** 2))
    return found


def bent_errors(
    plan: Plan, model: Model, fitted: Fitted, node: str, evidence: Columns
) -> dict[tuple[str, str], float]:
    """Mean squared errors of means, in the node's variance, and total variation of densities."""
    grid = GRIDS.setdefault((model.name, plan.cells), Grid(model, plan.cells))
    x, width = grid.points, grid.width
    rows = [dict(zip(evidence, row, strict=True)) for row in zip(*evidence.values(), strict=True)]
    truth = np.array([grid.density(node, row) for row in rows])
    marginal = grid.density(node, {})
    level = float(width * marginal @ x)
    variance = float(width * marginal @ (x - level) ** 2)
    kernel = fitted.kernel.marginal(node, evidence)
    centre, deviation = fitted.normal.given(node, evidence)
    answers: dict[str, tuple[np.ndarray, np.ndarray]] = {
        KERNEL: (np.asarray(kernel.mean())[:, 0], np.asarray(kernel.density(x[:, None]))),
        GAUSSIAN: (centre, np.asarray(norm.pdf(x, centre[:, None], deviation))),
        BLIND: (np.full(len(rows), level), np.broadcast_to(marginal, truth.shape)),
    }
    for method, tables in fitted.binned.items():
        answers[method] = tables.mean(node, evidence), tables.density(node, evidence, x)
    found = {}
    means = width * truth @ x
    for method, (centres, densities) in answers.items():
        found["means", method] = float(np.mean((centres - means) ** 2) / variance)
        # what the estimate has outside the grid, where the truth has nothing, counts as well
        outside = np.maximum(1 - width * densities.sum(axis=1), 0.0)
        distance = (width * abs(densities - truth).sum(axis=1) + outside) / 2
        found["densities", method] = float(distance.mean())
    return found


GRIDS: dict[tuple[str, int], Grid] = {}  # a process makes each once


# --- runs of labels -------------------------------------------------------------------------------

Gaps = dict[str, list[tuple[float, float | None]]]


@dataclass(frozen=True, eq=False)
class Labels:
    """A joint table of labels 0 to k - 1, a factor a node; every query by enumeration."""

    parents: Mapping[str, tuple[str, ...]]
    factors: Mapping[str, np.ndarray]  # (labels of the parents ..., labels of the node)

    @cached_property
    def joint(self) -> np.ndarray:
        """The probability of every combination."""
        letters = {name: chr(ord("a") + i) for i, name in enumerate(self.parents)}
        subscripts = [
            "".join(letters[name] for name in (*before, node))
            for node, before in self.parents.items()
        ]
        formula = f"{','.join(subscripts)}->{''.join(letters.values())}"
        return np.einsum(formula, *(self.factors[node] for node in self.parents))

    @classmethod
    def drawn(cls, form: str, k: int, rng: np.random.Generator) -> Labels:
        """Random tables; no label is rarer than 1/2k, so that any two parents' will be seen."""
        parents = FORMS[form]
        tables = {
            node: (rng.dirichlet(np.ones(k), size=(k,) * len(before)) + 1 / k) / 2
            for node, before in parents.items()
        }
        return cls(parents, tables)

    @classmethod
    def fitted(cls, form: str, k: int, data: Columns) -> Labels:
        """Tables of maximum likelihood: relative frequencies, or uniform without observations."""
        tables = {}
        for node, before in FORMS[form].items():
            counts = np.zeros((k,) * (len(before) + 1))
            np.add.at(counts, tuple(data[name] for name in (*before, node)), 1.0)
            total = counts.sum(axis=-1, keepdims=True)
            tables[node] = np.where(total > 0, counts / np.where(total > 0, total, 1.0), 1 / k)
        return cls(FORMS[form], tables)

    def sample(self, n: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """n rows."""
        drawn = rng.choice(self.joint.size, size=n, p=self.joint.ravel() / self.joint.sum())
        return dict(zip(self.parents, np.unravel_index(drawn, self.joint.shape), strict=True))

    def given(self, node: str, evidence: Mapping[str, int]) -> np.ndarray:
        """The probabilities of a node's labels."""
        names = list(self.parents)
        kept = self.joint[tuple(evidence.get(name, slice(None)) for name in names)]
        rest = [name for name in names if name not in evidence]
        p = kept.sum(axis=tuple(i for i, name in enumerate(rest) if name != node))
        return p / p.sum()


def discrete_run(plan: Plan, form: str, index: int, seed: int) -> tuple[float, float | None]:
    """Largest differences of probabilities to enumeration, and to pgmpy where there is one."""
    k = 3
    rng = np.random.default_rng((seed, 100 + list(FORMS).index(form), index))
    data = Labels.drawn(form, k, rng).sample(plan.rows, rng)
    exact = Labels.fitted(form, k, data)
    parents = FORMS[form]
    names = list(parents)
    graph = nx.DiGraph()
    graph.add_nodes_from(names)
    graph.add_edges_from((parent, node) for node in names for parent in parents[node])
    model = KernelGraphicalModel(graph, Delta(), regularization=0).fit(data)
    peer = pgmpy_answers(graph, data)
    ours, theirs = 0.0, 0.0
    for count in range(len(names)):
        for _ in range(3):
            row = int(rng.integers(plan.rows))  # evidence that was seen, so that it can be
            chosen = rng.permutation(names)[:count].tolist()
            evidence = {name: int(data[name][row]) for name in chosen}
            for node in names:
                if node in evidence:
                    continue
                labels = np.unique(data[node])
                found = np.zeros(k)
                found[labels] = np.asarray(model.marginal(node, evidence)(labels))
                ours = max(ours, float(abs(found - exact.given(node, evidence)).max()))
                if peer is not None:
                    known = np.zeros(k)
                    known[labels] = peer(node, evidence)
                    theirs = max(theirs, float(abs(found - known).max()))
    return ours, None if peer is None else theirs


def pgmpy_answers(
    graph: Any, data: Columns
) -> Callable[[str, Mapping[str, int]], np.ndarray] | None:
    """Variable elimination on tables of maximum likelihood by pgmpy, or None without it."""
    try:
        models = import_module("pgmpy.models")
        inference = import_module("pgmpy.inference")
        frames = import_module("pandas")
    except ImportError:
        return None
    made = getattr(models, "DiscreteBayesianNetwork", None) or models.BayesianNetwork
    network = made(list(graph.edges))
    network.fit(frames.DataFrame(dict(data)))  # maximum likelihood is its default
    engine = inference.VariableElimination(network)

    def answer(node: str, evidence: Mapping[str, int]) -> np.ndarray:
        query = engine.query([node], evidence=dict(evidence), show_progress=False)
        return np.asarray(query.values)

    return answer


def pgmpy_words() -> str:
    try:
        return f", and against pgmpy {import_module('pgmpy').__version__}"
    except ImportError:
        return " (pgmpy is not installed: pip install pgmpy compares with it as well)"


# --- what is reported -----------------------------------------------------------------------------

TITLES = {
    "means": "Error of conditional means",
    "deviations": "Error of conditional deviations",
    "densities": "Total variation of conditional densities",
}


def methods_of(model: Model) -> tuple[str, ...]:
    return (KERNEL, GAUSSIAN, BLIND) if model.linear else (KERNEL, GAUSSIAN, *BINNED, BLIND)


def by_size(plan: Plan, errors: Errors, measure: str, models: tuple[Model, ...]) -> Table:
    rows: list[tuple[Any, ...]] = []
    for model in models:
        for method in methods_of(model):
            figures = [Figure.of(errors[model.name, n, measure, method, ALL]) for n in plan.sizes]
            rows.append((model.name, method, *figures))
    headings = ("model", "method", *(f"n = {n}" for n in plan.sizes))
    return Table(f"{TITLES[measure]}, all evidence together", headings, tuple(rows))


def by_evidence(model: Model, n: int, errors: Errors, measure: str) -> Table:
    places = [said(names) for names in model.evidence]
    rows: list[tuple[Any, ...]] = [
        (method, *(Figure.of(errors[model.name, n, measure, method, where]) for where in places))
        for method in methods_of(model)
    ]
    headings = ("method", *(f"given {where}" for where in places))
    return Table(f"{TITLES[measure]}: {model.name}, n = {n}", headings, tuple(rows))


def label_table(gaps: Gaps) -> Table:
    rows: list[tuple[Any, ...]] = []
    for form, pairs in gaps.items():
        peer = [theirs for _, theirs in pairs if theirs is not None]
        worst = f"{max(ours for ours, _ in pairs):.1e}"
        rows.append((form, len(pairs), worst, f"{max(peer):.1e}" if peer else None))
    title = "Largest difference of a probability of labels"
    return Table(title, ("graph", "models", "to enumeration", "to pgmpy"), tuple(rows))


def slope(sizes: tuple[int, ...], values: list[float]) -> float:
    """The power of n that an error follows, by least squares of logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def verdict(plan: Plan, errors: Errors, gaps: Gaps) -> tuple[Claim, ...]:
    lines = []
    most = max(plan.sizes)
    for model in MODELS.values():
        for measure in ("means", "deviations") if model.linear else ("densities", "means"):

            def runs(method: str, n: int = most, m: Model = model, w: str = measure) -> list[float]:
                return errors[m.name, n, w, method, ALL]

            peers = [method for method in methods_of(model) if method not in (KERNEL, BLIND)]
            best = min(peers, key=lambda method: float(np.mean(runs(method))))
            how, _, _ = paired(runs(KERNEL), runs(best))
            text = (
                f"{model.name}, {measure}, n = {most}: {KERNEL} {np.mean(runs(KERNEL)):.3f}, "
                f"{how} the best peer ({best}, {np.mean(runs(best)):.3f}) by paired differences; "
                f"the evidence ignored, {np.mean(runs(BLIND)):.3f}."
            )
            if len(plan.sizes) > 1:
                powers = [
                    slope(plan.sizes, [float(np.mean(runs(method, n))) for n in plan.sizes])
                    for method in (KERNEL, best)
                ]
                text += f" As n grows: n^{powers[0]:.2f} against n^{powers[1]:.2f}."
            lines.append(Claim(text, ahead([how], "below"), Figure.of(runs(KERNEL))))
    for form, pairs in gaps.items():
        for at, peer in enumerate(("enumeration", "pgmpy")):
            known = [pair[at] for pair in pairs if pair[at] is not None]
            if not known:
                text = f"labels, {form}: not compared with {peer}, which is not installed."
                lines.append(Claim(text))
                continue
            worst = max(float(value or 0.0) for value in known)
            word = "holds" if worst <= TOLERANCE else "does not hold"
            text = (
                f"labels, {form}: with delta kernels and regularization=0 every probability is "
                f"within {worst:.1e} of {peer}'s over {len(known)} models; at most {TOLERANCE:g} "
                f"{word}."
            )
            lines.append(Claim(text, worst <= TOLERANCE, worst))
    return tuple(lines)


def picture(plan: Plan, errors: Errors) -> Curves:
    """Total variation on the last model whose edges are not linear, every method."""
    model = [model for model in MODELS.values() if not model.linear][-1]
    sizes = tuple(map(float, plan.sizes))
    curves = tuple(
        (
            method,
            sizes,
            tuple(Figure.of(errors[model.name, n, "densities", method, ALL]) for n in plan.sizes),
        )
        for method in methods_of(model)
    )
    title = f"Conditional densities, {model.name}"
    return Curves(title, "rows", "total variation", curves, logx=True)
