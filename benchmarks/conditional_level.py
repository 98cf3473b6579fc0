"""Level and power of the conditional tests, beside causal-learn's KCI.

1,000 runs a model at n = 100 (400 of the alternatives), the same data for everybody: run i draws
its data from seed i. No test of conditional independence holds its level against every null (Shah
and Peters 2020), so the models have names: linear, post-nonlinear and heteroscedastic, with one and
five columns of Z, of which X and Y use the sum. The bar: nowhere above the upper end of the 99.9%
binomial interval.

    python benchmarks/conditional_level.py                  # ours against the p-values on file
    python benchmarks/conditional_level.py --runs 200       # sooner
    python benchmarks/conditional_level.py --peer           # the peer again, in its environment
"""

from __future__ import annotations

import argparse
import functools
import subprocess
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from harness import RESULTS, environment, line, say

N, RUNS, POWER_RUNS, DRAWS, JOBS = 100, 1_000, 400, 499, 2
LEVELS = (0.05, 0.01)
STORE = RESULTS / "conditional_peer.npz"
REQUIREMENTS = ("causal-learn==0.1.4.8", "threadpoolctl")
Sample = tuple[np.ndarray, ...]


# --- conditional independence ---------------------------------------------------------------------

SHAPES = (lambda u: u, lambda u: u**3, np.tanh, np.cos, lambda u: np.exp(-abs(u)))


def noise(rng: np.random.Generator, Z: np.ndarray, kind: str, effect: float) -> Sample:
    """The noise of X and of Y, shared or linked by a sign that changes with Z where asked."""
    x, y = rng.normal(size=(2, len(Z)))
    if kind == "shared noise":
        both = rng.normal(size=len(Z))
        x, y = (np.sqrt(1 - effect) * e + np.sqrt(effect) * both for e in (x, y))
    elif kind == "changing sign":
        y = np.sqrt(1 - effect) * y + np.sqrt(effect) * x * np.sign(Z[:, 0])
    return x, y


def linear(rng: np.random.Generator, s: np.ndarray, x: np.ndarray, y: np.ndarray) -> Sample:
    """X = s + noise and Y = s + noise, s the scaled sum of Z's columns."""
    return s + x, s + y


def post_nonlinear(rng: np.random.Generator, s: np.ndarray, x: np.ndarray, y: np.ndarray) -> Sample:
    """g(f(s) + noise), f and g drawn anew in every run, as Zhang et al. (2011) and others do."""
    g, f, k, h = (SHAPES[i] for i in rng.integers(0, len(SHAPES), 4))

    def standard(v: np.ndarray) -> np.ndarray:
        return (v - v.mean()) / max(v.std(), 1e-12)

    return g(standard(f(s)) + 0.7 * x), k(standard(h(s)) + 0.7 * y)


def heteroscedastic(
    rng: np.random.Generator, s: np.ndarray, x: np.ndarray, y: np.ndarray
) -> Sample:
    """Noise that grows with |s|, in both, around a line and a wave."""
    return s + (0.3 + abs(s)) * x, np.sin(2 * s) + (0.3 + abs(s)) * y


MODELS = {f.__name__.replace("_", "-"): f for f in (linear, post_nonlinear, heteroscedastic)}


def triple(model: str, d: int, kind: str, effect: float, seed: int) -> Sample:
    """X, Y and Z of one run."""
    rng = np.random.default_rng([seed, d, N])
    Z = rng.normal(size=(N, d))
    s = Z.sum(axis=1) / np.sqrt(d)
    X, Y = MODELS[model](rng, s, *noise(rng, Z, kind, effect))
    return X[:, None], Y[:, None], Z


# --- two samples ----------------------------------------------------------------------------------

CURVES = {
    "linear": lambda rng, s: s + rng.normal(size=len(s)),
    "wave": lambda rng, s: np.sin(2 * s) + 0.5 * rng.normal(size=len(s)),
    "heteroscedastic": lambda rng, s: s + (0.3 + abs(s)) * rng.normal(size=len(s)),
    "skew": lambda rng, s: s - np.log(1 - rng.random(len(s))),
}


def quadruple(model: str, d: int, kind: str, effect: float, seed: int) -> Sample:
    """Two samples of N/2 pairs, the second's X shifted by 0.7 standard deviations."""
    rng = np.random.default_rng([seed, d, N])
    first, second = rng.normal(size=(N // 2, d)), rng.normal(size=(N // 2, d)) + 0.7 / np.sqrt(d)
    y1, y2 = (CURVES[model](rng, X.sum(axis=1) / np.sqrt(d)) for X in (first, second))
    if kind == "mean":
        y2 = y2 + effect
    elif kind == "crossing":
        y2 = y2 + effect * np.sign(second[:, 0] - 0.35 / np.sqrt(d))
    elif kind == "variance":
        y2 = y2 + effect * rng.normal(size=len(y2))
    return first, y1[:, None], second, y2[:, None]


# --- what is studied ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Data of one kind: under the null where `kind` is empty."""

    data: str  # "triple" or "quadruple"
    model: str
    d: int
    kind: str = ""
    effect: float = 0.0

    def draw(self, seed: int) -> Sample:
        make = triple if self.data == "triple" else quadruple
        return make(self.model, self.d, self.kind, self.effect, seed)


INDEPENDENCE = [Case("triple", model, d) for model in MODELS for d in (1, 5)]
DEPENDENCE = [
    Case("triple", model, d, kind, effect)
    for model in ("linear", "heteroscedastic")
    for d in (1, 5)
    for kind, effect in (("shared noise", 0.3), ("changing sign", 0.4))
]
SAME = [Case("quadruple", model, d) for model in CURVES for d in (1, 5)]
DIFFERENT = [
    Case("quadruple", model, d, kind, effect)
    for model in ("linear", "heteroscedastic")
    for d in (1, 5)
    for kind, effect in (("mean", 0.7), ("crossing", 0.7), ("variance", 1.5))
]


def independence_tests() -> dict[str, Callable[..., Any]]:
    """Ours, the default first."""
    from meanmap import conditional_independence_test as test
    from meanmap.comparison import ResidualGamma
    from meanmap.kernels import Gaussian

    nulls = ("wild", "gamma", "simulation", "split")
    ours = {
        f"ours, {null}": functools.partial(test, null=null, n_permutations=DRAWS) for null in nulls
    }
    plain = functools.partial(test, kernel=(None, None, Gaussian()), n_permutations=DRAWS)
    paper = functools.partial(plain, null=ResidualGamma(1e-3 / N, refit=False))
    return ours | {"ours, wild, no metric": plain, "as Zhang et al. 2011, gamma": paper}


def two_sample_tests() -> dict[str, Callable[..., Any]]:
    """Ours, the default first."""
    from meanmap import conditional_two_sample_test as test
    from meanmap.comparison import counterfactual_effect as effect

    nulls = ("wild", "gamma")
    tests = {
        f"two samples, {n}": functools.partial(test, null=n, n_permutations=DRAWS) for n in nulls
    }
    effects = {
        f"effect, {n}": functools.partial(effect, null=n, n_permutations=DRAWS) for n in nulls
    }
    return tests | effects


def pvalues(case: Case, seed: int) -> dict[str, float]:
    """Of all our tests on one data set."""
    tests = independence_tests() if case.data == "triple" else two_sample_tests()
    data = case.draw(seed)
    return {name: test(*data, rng=seed).pvalue for name, test in tests.items()}


def peer_pvalues(case: Case, seed: int) -> dict[str, float]:
    """Of causal-learn's test with its defaults, and with its other width and null."""
    from causallearn.utils.KCI.KCI import KCI_CInd

    warnings.simplefilter("ignore")
    np.random.seed(seed)  # noqa: NPY002 - the peer draws from this one
    settings = {
        "causal-learn KCI, gamma": {},
        "causal-learn KCI, spectral": {"approx": False},
        "causal-learn KCI, median width": {"est_width": "median"},
    }
    data = case.draw(seed)
    return {k: float(KCI_CInd(**v).compute_pvalue(*data)[0]) for k, v in settings.items()}


def one_thread() -> None:
    """Processes share the cores: one BLAS thread each."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)


def studied(
    cases: list[Case],
    runs: int,
    work: Callable[[Case, int], dict[str, float]],
    processes: int,
) -> dict[str, np.ndarray]:
    """P-values by case and test, a run each."""
    found = {}
    with ProcessPoolExecutor(processes, initializer=one_thread) as pool:
        for case in cases:
            say(f"{case.model}, {case.d} columns, {case.kind or 'null'}")
            seeds = range(min(runs, POWER_RUNS) if case.kind else runs)
            each = list(pool.map(functools.partial(work, case), seeds, chunksize=10))
            for test in each[0]:
                found[f"{key(case)}|{test}"] = np.array([one[test] for one in each])
    return found


def key(case: Case) -> str:
    return "|".join(str(value) for value in asdict(case).values())


def upper_end(level: float, runs: int) -> float:
    """Of the 99.9% binomial interval."""
    from scipy.stats import binom

    return float(binom.ppf(0.9995, runs, level) / runs)


def rows(runs: int = RUNS, processes: int = JOBS) -> list[dict[str, Any]]:
    """One row per case and test: how often it rejects, and whether the level holds."""
    cases = INDEPENDENCE + DEPENDENCE + SAME + DIFFERENT
    found = studied(cases, runs, pvalues, processes)
    if STORE.exists():
        with np.load(STORE) as stored:
            found |= {name: stored[name] for name in stored.files}
    table = []
    for case in cases:
        names = [name for name in found if name.startswith(key(case) + "|")]
        for name in names:
            p = found[name]
            share = {level: float(np.mean(p <= level)) for level in LEVELS}
            bars = {level: upper_end(level, len(p)) for level in LEVELS}
            holds = None if case.kind else all(share[a] <= bars[a] for a in LEVELS)
            table.append(
                {
                    **asdict(case),
                    "test": name.rsplit("|", 1)[1],
                    "runs": len(p),
                    "rejected": share,
                    "bar": bars,
                    "holds": holds,
                }
            )
    return table


def markdown(table: list[dict[str, Any]]) -> str:
    """A table a question: level and power of both kinds of test."""
    parts = []
    for data, null, title in (
        ("triple", True, "Level given Z: share rejected at 5% / 1%, in percent"),
        ("triple", False, "Power given Z"),
        ("quadruple", True, "Level of two samples under a shift of X"),
        ("quadruple", False, "Power of two samples"),
    ):
        some = [row for row in table if row["data"] == data and (not row["kind"]) == null]
        columns = list(dict.fromkeys((r["model"], r["d"], r["kind"]) for r in some))
        tests = list(dict.fromkeys(row["test"] for row in some))
        cells = {(r["test"], (r["model"], r["d"], r["kind"])): r for r in some}
        head = [f"{model}, {d}{', ' + kind if kind else ''}" for model, d, kind in columns]
        parts += [f"## {title}", "", line(["test", *head]), line(["---"] * (len(head) + 1))]
        for test in tests:
            shown = [show(cells.get((test, column))) for column in columns]
            parts.append(line([test, *shown]))
        parts.append("")
    return "\n".join(parts)


def show(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    text = " / ".join(f"{100 * share:.1f}" for share in row["rejected"].values())
    return f"**{text}**" if row["holds"] is False else text


def claims(how_many: int, spread: float, n: int, runs: int) -> tuple[float, float]:
    """Shares of rejected nulls, and of those claimed as evidence: X and Y are one step function."""
    from meanmap import conditional_independence_test as test

    rejected, claimed = [], []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        Z = rng.uniform(size=(n, 1))
        step = np.floor(how_many * Z) % 2
        X, Y = (step + spread * rng.normal(size=(n, 1)) for _ in range(2))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = test(X, Y, Z, n_permutations=99, rng=seed)
        rejected.append(result.rejects())
        claimed.append(result.rejects() and result.learned)
    return float(np.mean(rejected)), float(np.mean(claimed))


def show_claims(runs: int) -> None:
    """A table of nulls that no regression on these points learns."""
    print(line(["steps", "noise", "n", "rejected", "claimed"]))
    for how_many, spread, n in ((2, 0.1, 100), (4, 0.1, 100), (8, 0.1, 100), (8, 0.3, 300)):
        found = claims(how_many, spread, n, runs)
        print(line([str(how_many), str(spread), str(n), *(f"{100 * v:.0f}%" for v in found)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", action="store_true", help="nulls that regressions do not learn")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--processes", type=int, default=JOBS)
    parser.add_argument("--peer", action="store_true", help="run the peer, and keep its p-values")
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.steps:
        show_claims(min(arguments.runs, 100))
    elif arguments.store:  # in the peer's environment
        found = studied(
            INDEPENDENCE + DEPENDENCE, arguments.runs, peer_pvalues, arguments.processes
        )
        np.savez_compressed(arguments.store, **found)
    elif arguments.peer:
        python = environment("conditional", *REQUIREMENTS)
        command = [str(python), __file__, "--store", str(STORE), "--runs", str(arguments.runs)]
        subprocess.run(command, check=True)
    else:
        text = markdown(rows(arguments.runs, arguments.processes))
        print(text)
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "conditional.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
