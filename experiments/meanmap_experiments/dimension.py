"""The curse of dimension: a density factor by factor, and all at once.

An embedding evaluated at a point is a kernel density estimate without its constant, and such
estimates of many variables together need more data than there will ever be; a graphical model has
factors of two variables each (lecture notes on kernel graphical models, section 3.2). Here a
nonlinear chain, whose density is known, is learned from the same rows by both. That the factors
matter more than the operators is tried as well: density estimates of pairs and of single variables,
put together along the same chain. The bandwidth by validation was added after the defaults had been
seen to do worse than those: conditionals at the median distance have much negative weight here.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import networkx as nx
import numpy as np
from scipy.stats import norm

from meanmap.graphical import KernelGraphicalModel
from meanmap.kernels import Gaussian
from meanmap_experiments.bayes import squared_distances
from meanmap_experiments.results import Claim, Curves, Figure, Outcome, Table, ahead, paired
from meanmap_experiments.runs import each

KERNEL, VALIDATED = "kernel chain", "kernel chain, bandwidth by validation"
PAIRS = "density estimates of pairs, along the chain"
WHOLE = "density estimate of all variables"
NORMAL = "normal distribution of all variables"
METHODS = (KERNEL, VALIDATED, PAIRS, WHOLE, NORMAL)
WIDTHS = tuple(float(h) for h in 2 ** np.arange(-5, 1.01, 0.25))  # in deviations of a column
FACTORS = (1.0, 0.5, 0.25, 0.125)  # times the median: bandwidths of the kernel chain that are tried
NOISE = 0.5
LEFT, HELD = 500, 200  # rows left out in turn, and rows held out to validate


@dataclass(frozen=True)
class Plan:
    """How much is done."""

    dimensions: tuple[int, ...] = (5, 10, 20)
    sizes: tuple[int, ...] = (500, 2000)
    runs: int = 8
    tests: int = 500  # held-out rows


FULL = Plan()
QUICK = Plan(sizes=(500,), runs=3, tests=200)

Scores = dict[tuple[int, int, str], list[tuple[float, float, float]]]  # by dimension, n, method


def run(
    quick: bool = False,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: bool | None = None,
    plan: Plan | None = None,
) -> Outcome:
    """The log density of a nonlinear chain of 5, 10 and 20 variables.

    Parameters
    ----------
    quick, seed, n_jobs, progress : as in `meanmap_experiments.run`
    plan : Plan or None
        How much is done, if neither the quick nor the full experiment.

    Examples
    --------
    >>> run(plan=Plan(dimensions=(3,), sizes=(50,), runs=2, tests=20)).name
    'dimension'
    """
    plan = plan or (QUICK if quick else FULL)
    jobs = [
        (plan, d, n, i, seed) for d in plan.dimensions for n in plan.sizes for i in range(plan.runs)
    ]
    jobs.sort(key=lambda job: -job[1] * job[2])  # the longest first
    scores: Scores = {}
    for (_, d, n, *_), found in zip(
        jobs, each(one_run, jobs, "dimension", n_jobs, progress), strict=True
    ):
        for method, triple in found.items():
            scores.setdefault((d, n, method), []).append(triple)
    tables = []
    for n in plan.sizes:
        tables += [
            table(plan, scores, n, 0, "Log density of held-out rows", TRUTH),
            table(plan, scores, n, 1, "Divergence from the truth a variable"),
            table(plan, scores, n, 2, "Root mean squared error of the log density"),
        ]
    return Outcome(
        name="dimension",
        title="Densities of many variables, by factors and at once",
        citation="after lecture notes on kernel graphical models, section 3.2; no figures there",
        settings={
            "model": "a chain: X₁ ~ N(0, 1), each next one 1.5 sin(1.5x) + noise of deviation "
            f"{NOISE:g}; its density is known",
            "data": f"{plan.runs} runs, {plan.tests:,} held-out rows",
            KERNEL: "KernelGraphicalModel.log_density with its defaults, given the graph",
            VALIDATED: "Gaussian kernels, one factor of the median distance for all variables: of "
            f"{', '.join(f'{f:g}' for f in FACTORS)} that under which a quarter of the rows "
            f"(at most {HELD}) is likeliest given the others",
            PAIRS: "p(x₁) Π p(xₜ, xₜ₊₁)/p(xₜ), Gaussian kernels, each estimate's bandwidth by its "
            "own leave-one-out likelihood",
            WHOLE: "Gaussian kernels on columns of deviation one, the bandwidth by leave-one-out "
            f"likelihood of {LEFT} rows from {len(WIDTHS)} values, {WIDTHS[0]:g} to {WIDTHS[-1]:g}",
            NORMAL: "maximum likelihood, any covariance",
            "divergence": "mean of log p - log p̂ over held-out rows (Kullback and Leibler), over "
            "the number of variables",
        },
        tables=tuple(tables),
        verdict=verdict(plan, scores),
        quick=quick,
        seed=seed,
        picture=picture(plan, scores),
    )


# --- the chain ------------------------------------------------------------------------------------


def step(x: np.ndarray) -> np.ndarray:
    return 1.5 * np.sin(1.5 * x)


def sample(d: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """n rows of d variables."""
    X = rng.normal(size=(n, d))
    for t in range(1, d):
        X[:, t] = step(X[:, t - 1]) + NOISE * X[:, t]
    return X


def true_log_density(X: np.ndarray) -> np.ndarray:
    """Of every row.

    Examples
    --------
    >>> true_log_density(np.zeros((1, 2))).round(3)  # -log 2π + log 2
    array([-1.145])
    """
    following = norm.logpdf(X[:, 1:], step(X[:, :-1]), NOISE).sum(axis=1)
    return np.asarray(norm.logpdf(X[:, 0]) + following)


# --- density estimates ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Density:
    """A Gaussian kernel density estimate on columns brought to a deviation of one."""

    points: np.ndarray
    scale: np.ndarray
    width: float

    @classmethod
    def fitted(cls, X: np.ndarray) -> Density:
        """The bandwidth under which rows are likeliest given all others."""
        scale = X.std(axis=0)
        Z = X / scale
        rows = np.arange(min(LEFT, len(Z)))
        squares = squared_distances(Z[rows], Z)
        squares[rows, rows] = np.inf
        likelihoods = [log_sums(squares, h).mean() - Z.shape[1] * np.log(h) for h in WIDTHS]
        return cls(Z, scale, WIDTHS[int(np.argmax(likelihoods))])

    def log_density(self, X: np.ndarray) -> np.ndarray:
        """Of every row."""
        n, d = self.points.shape
        constant = np.log(n) + d * np.log(self.width) + d * np.log(2 * np.pi) / 2
        squares = squared_distances(X / self.scale, self.points)
        return log_sums(squares, self.width) - constant - np.log(self.scale).sum()


def log_sums(squares: np.ndarray, h: float) -> np.ndarray:
    """log Σⱼ exp(-dᵢⱼ²/2h²) of each row."""
    least = squares.min(axis=1, keepdims=True)
    sums = np.exp((least - squares) / (2 * h * h)).sum(axis=1)
    return np.asarray(np.log(sums) - least[:, 0] / (2 * h * h))


def along_the_chain(X: np.ndarray, tests: np.ndarray) -> np.ndarray:
    """log p(x₁) + Σ log p(xₜ, xₜ₊₁)/p(xₜ), the pair's estimate over its own marginal."""
    total = Density.fitted(X[:, :1]).log_density(tests[:, :1])
    for t in range(X.shape[1] - 1):
        pair = Density.fitted(X[:, t : t + 2])
        # the marginal of the pair's estimate, so that the quotient is a density of xₜ₊₁
        first = Density(pair.points[:, :1], pair.scale[:1], pair.width)
        total = total + pair.log_density(tests[:, t : t + 2])
        total = total - first.log_density(tests[:, t : t + 1])
    return np.asarray(total)


def normal_log_density(X: np.ndarray, tests: np.ndarray) -> np.ndarray:
    centred = tests - X.mean(axis=0)
    L = np.linalg.cholesky(np.cov(X.T, bias=True))
    Z = np.linalg.solve(L, centred.T)
    constant = np.log(np.diag(L)).sum() + len(L) * np.log(2 * np.pi) / 2
    return np.asarray(-(Z * Z).sum(axis=0) / 2 - constant)


# --- runs -----------------------------------------------------------------------------------------

TRUTH = "the truth"


def one_run(
    plan: Plan, d: int, n: int, index: int, seed: int
) -> dict[str, tuple[float, float, float]]:
    """Mean log density, divergence a variable, and error of the log density, of every method."""
    rng = np.random.default_rng((seed, d, index))
    tests = sample(d, plan.tests, rng)
    X = sample(d, n, rng)
    truth = true_log_density(tests)
    answers = {
        KERNEL: chain(X).log_density(table_of(tests)),
        VALIDATED: chain(X, validated(X)).log_density(table_of(tests)),
        PAIRS: along_the_chain(X, tests),
        WHOLE: Density.fitted(X).log_density(tests),
        NORMAL: normal_log_density(X, tests),
        TRUTH: truth,
    }
    return {
        method: (
            float(values.mean()),
            float((truth - values).mean() / d),
            float(np.sqrt(((truth - values) ** 2).mean())),
        )
        for method, values in answers.items()
    }


def chain(X: np.ndarray, factor: float | None = None) -> KernelGraphicalModel:
    """The model with its defaults, or with another factor of the median distance."""
    kernel = None if factor is None else Gaussian(f"{factor}*median")
    return KernelGraphicalModel(nx.path_graph(X.shape[1], nx.DiGraph), kernel).fit(table_of(X))


def validated(X: np.ndarray) -> float:
    """The factor under which some rows are likeliest given the others."""
    held, known = np.split(X, [min(len(X) // 4, HELD)])
    return max(FACTORS, key=lambda factor: chain(known, factor).score(table_of(held)))


def table_of(X: np.ndarray) -> dict[int, np.ndarray]:
    return {t: X[:, t] for t in range(X.shape[1])}


# --- what is reported -----------------------------------------------------------------------------


def values(scores: Scores, d: int, n: int, method: str, at: int) -> list[float]:
    return [triple[at] for triple in scores[d, n, method]]


def table(plan: Plan, scores: Scores, n: int, at: int, title: str, *more: str) -> Table:
    rows: list[tuple[Any, ...]] = [
        (method, *(Figure.of(values(scores, d, n, method, at)) for d in plan.dimensions))
        for method in (*METHODS, *more)
    ]
    headings = ("method", *(f"d = {d}" for d in plan.dimensions))
    return Table(f"{title}, n = {n}", headings, tuple(rows))


def verdict(plan: Plan, scores: Scores) -> tuple[Claim, ...]:
    lines = []
    for n in plan.sizes:
        for method, rival in product((KERNEL, VALIDATED), (WHOLE, PAIRS)):
            words, hows = [], []
            for d in plan.dimensions:
                ours, theirs = (values(scores, d, n, m, 1) for m in (method, rival))
                how, _, _ = paired(ours, theirs)
                words.append(
                    f"{np.mean(ours):.3f} {how} {np.mean(theirs):.3f} at d = {d} "
                    f"({np.mean(ours) / np.mean(theirs):.2f} of it)"
                )
                hows.append(how)
            text = (
                f"n = {n}, divergence a variable, “{method}” against “{rival}”: {'; '.join(words)}."
            )
            lines.append(Claim(text, ahead(hows, "below")))
    if len(plan.dimensions) > 1:
        low, high = min(plan.dimensions), max(plan.dimensions)
        n = max(plan.sizes)
        for method in (KERNEL, VALIDATED, PAIRS, WHOLE):
            a, b = (float(np.mean(values(scores, d, n, method, 1))) for d in (low, high))
            text = (
                f"n = {n}, {method}: from d = {low} to {high} the divergence a variable goes from "
                f"{a:.3f} to {b:.3f}, {b / a:.2f} times."
            )
            lines.append(Claim(text))
    return tuple(lines)


def picture(plan: Plan, scores: Scores) -> Curves:
    n = max(plan.sizes)
    dimensions = tuple(map(float, plan.dimensions))
    curves = tuple(
        (m, dimensions, tuple(Figure.of(values(scores, d, n, m, 1)) for d in plan.dimensions))
        for m in METHODS
    )
    title = f"Densities of a chain, n = {n}"
    return Curves(title, "dimension", "divergence a variable", curves, logx=True, logy=True)
