"""Level and power of conditional independence tests, beside those of causal-learn.

The laws are in `independence_laws.py`; run i of a law draws its data from seed i, the same data for
every test. A test holds its level in a cell if it rejects no more nulls than the upper end of a 99%
binomial interval around 5%.

    python benchmarks/independence_level.py                             # n = 200, 1 and 5 columns
    python benchmarks/independence_level.py --sizes 100,500 --columns 2,10 --only ours
    python benchmarks/independence_level.py --only ours --laws steps,sine --runs 1000
    python benchmarks/independence_level.py --graphs 20                 # PC on random graphs
    python benchmarks/independence_level.py --time                      # seconds

FastKCI takes seconds a test, and runs where `--only` names it. Peers that are not installed are
left out: `pip install causal-learn==0.1.4.8`. The whole table goes to `results/independence.md`.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from harness import RESULTS, line
from independence_laws import ALTERNATIVES, NULLS, Sample
from scipy import stats

LEVEL = 0.05


def numbers(points: Any) -> np.ndarray:
    """What peers take: labels as codes."""
    if hasattr(points, "columns"):
        return np.hstack([numbers(points[name].to_numpy()) for name in points])
    array = np.asarray(points)
    if array.dtype.kind in "OUST":
        return np.unique(array, return_inverse=True)[1][:, None].astype(float)
    return array.reshape(len(array), -1).astype(float)


def ours(X: Any, Y: Any, Z: Any, seed: int) -> tuple[float, bool]:
    """The p-value, and whether the result says that the regressions learned what there is."""
    from meanmap import conditional_independence_test

    result = conditional_independence_test(X, Y, Z, rng=seed)
    return result.pvalue, getattr(result, "learned", True)


def partial_correlation(X: Any, Y: Any, Z: Any, seed: int) -> tuple[float, bool]:
    """Fisher's z test."""
    x, y, z = numbers(X)[:, 0], numbers(Y)[:, 0], numbers(Z)
    z = np.column_stack([np.ones(len(z)), z])
    a, b = (v - z @ np.linalg.lstsq(z, v, rcond=None)[0] for v in (x, y))
    r = np.clip(a @ b / np.sqrt((a @ a) * (b @ b)), -1 + 1e-12, 1 - 1e-12)
    return float(2 * stats.norm.sf(abs(np.arctanh(r)) * np.sqrt(len(x) - z.shape[1] - 2))), True


def causal_learn(make: Callable[[], Any]) -> Callable[..., tuple[float, bool]]:
    """A test of causal-learn with its defaults."""

    def test(X: Any, Y: Any, Z: Any, seed: int) -> tuple[float, bool]:
        np.random.seed(seed)  # noqa: NPY002 - the peer draws from this one
        found = make().compute_pvalue(numbers(X), numbers(Y), numbers(Z))
        return float(np.ravel(found[0])[0]), True

    return test


def tests() -> dict[str, Callable[..., tuple[float, bool]]]:
    """Ours first."""
    found = {"ours": ours, "partial correlation": partial_correlation}
    if importlib.util.find_spec("causallearn"):
        from causallearn.utils.FastKCI.FastKCI import FastKCI_CInd
        from causallearn.utils.KCI.KCI import KCI_CInd
        from causallearn.utils.RCIT.RCIT import RCIT

        makers = {"KCI": KCI_CInd, "FastKCI": FastKCI_CInd, "RCIT": RCIT}
        found |= {name: causal_learn(make) for name, make in makers.items()}
    return found


def draw(law: str, n: int, d: int, seed: int) -> Sample:
    """The data of one run."""
    return (NULLS | ALTERNATIVES)[law](n, d, np.random.default_rng([seed, n, d]))


def one_run(law: str, n: int, d: int, names: list[str], seed: int) -> dict[str, tuple[float, bool]]:
    """Of all tests on one data set; no p-value counts as no rejection."""
    from joblib import parallel_config
    from threadpoolctl import threadpool_limits

    warnings.simplefilter("ignore")
    data, every, found = draw(law, n, d, seed), tests(), {}
    with threadpool_limits(1), parallel_config(backend="sequential"):
        for name in names:
            try:
                found[name] = every[name](*data, seed)
            except (ValueError, ArithmeticError, IndexError):  # shown as one that never rejects
                found[name] = np.nan, True
    return found


def study(options: argparse.Namespace) -> None:
    """A row per law and size: percent rejected at 5%, and of ours those that claim evidence."""
    chosen = options.only or [name for name in tests() if name != "FastKCI"]
    names = [name for name in tests() if name in chosen]
    head = ["law", "n", "columns of Z", *names, "ours, claimed as evidence"]
    table = [line(head), line(["---"] * len(head))]
    print("\n".join(table), flush=True)
    bar = stats.binom.ppf(0.995, options.runs, LEVEL) / options.runs
    with ProcessPoolExecutor(options.processes) as pool:
        for law in options.laws or [*NULLS, *ALTERNATIVES]:
            for n in options.sizes:
                for d in options.columns:
                    work = functools.partial(one_run, law, n, d, names)
                    runs = list(pool.map(work, range(options.runs), chunksize=5))
                    cells = []
                    for name in names:
                        share = float(np.mean([run[name][0] <= LEVEL for run in runs]))
                        text = f"{100 * share:.1f}"
                        cells.append(f"**{text}**" if law in NULLS and share > bar else text)
                    claimed = [p <= LEVEL and learned for p, learned in (r["ours"] for r in runs)]
                    cells.append(f"{100 * float(np.mean(claimed)):.1f}" if "ours" in names else "")
                    table.append(line([law, str(n), str(d), *cells]))
                    print(table[-1], flush=True)
    if not (options.laws or options.only):  # only the whole table is saved
        (RESULTS / "independence.md").write_text("\n".join(table) + "\n", encoding="utf-8")


# --- graphs ---------------------------------------------------------------------------------------


def random_graph(d: int, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A sparse graph with nonlinear mechanisms, parents first, and rows drawn from it.

    Edges with probability 2/(d - 1), that is two for each column on average; a column is a sum of
    one of five functions of each parent, with noise. Columns are standardised and shuffled.
    """
    rng = np.random.default_rng(seed)
    curves = (np.sin, np.tanh, abs, lambda v: v, lambda v: np.exp(-(v**2)))
    edges = np.triu(rng.random((d, d)) < 2 / (d - 1), 1)
    data = np.empty((n, d))
    for j in range(d):
        value = 0.6 * rng.normal(size=n)
        for i in np.flatnonzero(edges[:, j]):
            part = curves[rng.integers(len(curves))](1.5 * data[:, i])
            value += (part - part.mean()) / part.std()
        data[:, j] = (value - value.mean()) / value.std()
    order = rng.permutation(d)
    return edges[np.ix_(order, order)], data[:, order]


def hamming(graph: Any, edges: np.ndarray) -> int:
    """Structural Hamming distance of a search's graph and the true one's equivalence class."""
    from causallearn.graph.GraphClass import CausalGraph  # noqa: F401 - its matrices are these
    from causallearn.graph.SHD import SHD
    from causallearn.utils.DAG2CPDAG import dag2cpdag

    return int(SHD(dag2cpdag(as_graph(edges, graph)), graph).get_shd())


def as_graph(edges: np.ndarray, like: Any) -> Any:
    """The true graph with the nodes of another."""
    from causallearn.graph.Dag import Dag

    nodes = like.get_nodes()
    dag = Dag(nodes)
    for i, j in np.argwhere(edges):
        dag.add_directed_edge(nodes[i], nodes[j])
    return dag


def compare_graphs(how_many: int, d: int, n: int, names: list[str]) -> None:
    """PC with each test: the distance to the truth, and seconds."""
    from causallearn.search.ConstraintBased.PC import pc
    from threadpoolctl import threadpool_limits

    from meanmap.causal_discovery import register_causal_learn

    register_causal_learn()
    print(line(["graph", "edges", *(f"{name}: SHD, s" for name in names)]), flush=True)
    total: dict[str, list[float]] = {name: [] for name in names}
    for seed in range(how_many):
        edges, data = random_graph(d, n, seed)
        cells = []
        for name in names:
            np.random.seed(seed)  # noqa: NPY002 - the peer draws from this one
            start = time.perf_counter()
            with threadpool_limits(2):
                graph = pc(data, 0.05, name, show_progress=False).G
            shd = hamming(graph, edges)
            total[name].append(shd)
            cells.append(f"{shd}, {time.perf_counter() - start:.1f}")
        print(line([str(seed), str(int(edges.sum())), *cells]), flush=True)
    print(line(["mean", "", *(f"{np.mean(total[name]):.2f}" for name in names)]), flush=True)


def show_times() -> None:
    """Seconds of a test with its defaults, the best of three."""
    from meanmap import conditional_independence_test

    for n, d in ((200, 1), (1_000, 1), (1_000, 5), (2_000, 3), (100_000, 1), (100_000, 3)):
        data, best = draw("sine", n, d, 0), np.inf
        for _ in range(3 if n < 10_000 else 2):
            start = time.perf_counter()
            conditional_independence_test(*data, rng=0)
            best = min(best, time.perf_counter() - start)
        print(f"n = {n:,}, {d} columns of Z: {best:.3f} s", flush=True)


def main() -> None:
    def whole(text: str) -> list[int]:
        return [int(part) for part in text.split(",")]

    def words(text: str) -> list[str]:
        return text.split(",")

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=whole, default=[200])
    parser.add_argument("--columns", type=whole, default=[1, 5])
    parser.add_argument("--laws", type=words, default=[])
    parser.add_argument("--only", type=words, default=[])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--graphs", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--time", action="store_true")
    options = parser.parse_args()
    if options.time:
        show_times()
    elif options.graphs:
        names = options.only or ["meanmap", "fisherz", "kci"]
        compare_graphs(options.graphs, options.nodes, options.rows, names)
    else:
        study(options)


if __name__ == "__main__":
    main()
