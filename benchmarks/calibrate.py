"""Level of the tests: how often they reject where there is nothing to find.

1,000 runs of every test and null on data without any effect, n = 100, at α = 0.05 and 0.01. Exact
nulls must reject within the 99.9 % binomial interval on continuous data; approximate ones,
aggregated tests, and every test on tied, mixed or 50-dimensional data must not reject more often
than its upper end.

    python benchmarks/calibrate.py                        # everything, two processes
    python benchmarks/calibrate.py --runs 100             # a look
    python benchmarks/calibrate.py --only independence    # rows whose name has these words
    python benchmarks/calibrate.py --check                # exit with 1 unless every level holds

Results go to `results/calibration.md` and `.json`. Other tests join by adding rows to `registry`.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
import warnings
import zlib
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from harness import RESULTS, line, machine, say
from scipy import stats
from scipy.stats import binom
from threadpoolctl import threadpool_limits

from meanmap import (
    goodness_of_fit_test,
    independence_test,
    joint_independence_test,
    two_sample_test,
)
from meanmap.comparison import (
    Block,
    Collection,
    Groups,
    Permutation,
    Sequential,
    WeightedBlocks,
)
from meanmap.kernels import Energy, RationalQuadratic
from meanmap.spaces import Nystroem, PivotedCholesky

LEVELS = (0.05, 0.01)
RUNS, PROCESSES, CHUNK = 1000, 2, 25
N = 100
B = 199  # p ≤ 0.01 is then a matter of two in 200, so that both levels can be met exactly
INTERVAL = 0.999


@dataclass(frozen=True)
class Row:
    """A test under one null on one kind of data; `pvalue(seed)` is one run of it.

    `exact`: its rate must lie inside the interval. Otherwise it must not lie above.
    """

    test: str
    null: str
    data: str
    pvalue: Callable[[int], float]
    exact: bool

    @property
    def name(self) -> str:
        """What `--only` looks at."""
        return f"{self.test}, {self.null}, {self.data}"


@dataclass(frozen=True)
class Rate:
    """The result of a row."""

    test: str
    null: str
    data: str
    exact: bool
    runs: int
    rates: tuple[float, ...]  # a level each
    intervals: tuple[tuple[float, float], ...]
    holds: bool
    seconds: float  # of one run


# --- data without any effect ----------------------------------------------------------------------


def numbers(rng: np.random.Generator, columns: int = 2) -> np.ndarray:
    """Standard normal rows."""
    return rng.normal(size=(N, columns))


def rounded(rng: np.random.Generator) -> np.ndarray:
    """Normal rows rounded to whole numbers: a few dozen distinct points, many ties."""
    return np.round(numbers(rng))


def mixed(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A number and a category: what a data frame of two such columns becomes."""
    return rng.normal(size=(N, 1)), rng.choice(["u", "v", "w"], N, p=[0.6, 0.3, 0.1])


def wide(rng: np.random.Generator) -> np.ndarray:
    """Normal rows of fifty dimensions."""
    return numbers(rng, 50)


def labels(rng: np.random.Generator) -> np.ndarray:
    """Six categories, from frequent to rare."""
    return rng.choice(list("abcdef"), N, p=[0.4, 0.3, 0.15, 0.08, 0.05, 0.02])


DATA: dict[str, Callable[[np.random.Generator], Any]] = {
    "continuous": numbers,
    "tied": rounded,
    "mixed": mixed,
    "50 dimensions": wide,
    "labels": labels,
}
KINDS = ("continuous", "tied", "mixed", "50 dimensions")


# --- the rows -------------------------------------------------------------------------------------

MEDIAN = {"kernel": "median"}
GROUPS = np.arange(N) // 4

# what it is called, its settings, whether it is exact (None: exact, but aggregated)
TWO_SAMPLE: list[tuple[str, dict[str, Any], bool | None]] = [
    ("permutation, default", {}, None),
    ("permutation, collection (fuse)", {"kernel": Collection(combine="fuse")}, None),
    ("permutation, collection (min-p)", {"kernel": Collection(combine="min-p")}, None),
    ("permutation, median", MEDIAN, True),
    ("permutation, median, V", {**MEDIAN, "estimator": "V"}, True),
    ("permutation, median, 40 bins", {**MEDIAN, "null": Permutation(40)}, True),
    ("permutation, optimized on half", {"kernel": "optimized"}, True),
    ("permutation, clusters of four", {**MEDIAN, "null": Groups((GROUPS, 1000 + GROUPS))}, True),
    ("permutation, Nyström 30", {**MEDIAN, "basis": Nystroem(30, random_state=0)}, True),
    ("sequential, median", {**MEDIAN, "null": Sequential()}, True),
    ("full, median", {**MEDIAN, "null": "full"}, True),
    ("full, default", {"null": "full"}, None),
    ("paired, default", {"null": "paired"}, None),
    ("block of 5, median", {**MEDIAN, "null": Block(5)}, True),
    ("wild, median", {**MEDIAN, "null": "wild"}, False),
    ("gamma, median", {**MEDIAN, "null": "gamma"}, False),
    ("spectral, median", {**MEDIAN, "null": "spectral"}, False),
    ("swaps, linear", {**MEDIAN, "estimator": "linear"}, True),
    ("swaps, block", {**MEDIAN, "estimator": "block"}, True),
    ("swaps, incomplete", {**MEDIAN, "estimator": "incomplete"}, True),
    ("normal, linear", {**MEDIAN, "estimator": "linear", "null": "normal"}, False),
    ("normal, block", {**MEDIAN, "estimator": "block", "null": "normal"}, False),
]
INDEPENDENCE: list[tuple[str, dict[str, Any], bool | None]] = [
    ("permutation, default", {}, None),
    ("permutation, collection (fuse)", {"kernel": Collection(combine="fuse")}, None),
    ("permutation, collection (min-p)", {"kernel": Collection(combine="min-p")}, None),
    ("permutation, median", MEDIAN, True),
    ("permutation, median, V", {**MEDIAN, "estimator": "V"}, True),
    ("permutation, median, 33 bins", {**MEDIAN, "null": Permutation(33)}, True),
    ("permutation, clusters of four", {**MEDIAN, "null": Groups(GROUPS)}, True),
    ("permutation, Cholesky", {**MEDIAN, "basis": PivotedCholesky(1e-6)}, True),
    ("sequential, median", {**MEDIAN, "null": Sequential()}, True),
    ("full, median", {**MEDIAN, "null": "full"}, True),
    ("block of 5, median", {**MEDIAN, "null": Block(5)}, True),
    ("wild, median", {**MEDIAN, "null": "wild"}, False),
    ("gamma, median", {**MEDIAN, "null": "gamma"}, False),
    ("spectral, median", {**MEDIAN, "null": "spectral"}, False),
]
JOINT: list[tuple[str, dict[str, Any], bool | None]] = [
    ("permutation", {}, True),
    ("permutation, Nyström 30", {"basis": Nystroem(30, random_state=0)}, True),
    ("sequential", {"null": Sequential()}, True),
]


GOODNESS: list[tuple[str, dict[str, Any], bool]] = [
    ("wild, default kernels", {}, False),
    ("spectral, default kernels", {"null": "spectral"}, False),
    ("wild, inverse multiquadric", {"kernel": RationalQuadratic(alpha=0.5)}, False),
    ("wild, blocks of 5", {"null": WeightedBlocks(5)}, False),
]


# densities whose scores have heavy tails, and one whose score has not
LAWS = {
    "normal": stats.norm(),
    "Weibull 1.5": stats.weibull_min(1.5),
    "lognormal": stats.lognorm(1.0),
    "gamma 2": stats.gamma(2.0),
}


def rng_of(data: str, seed: int) -> np.random.Generator:
    """The generator of a run: every test meets the same data."""
    return np.random.default_rng([zlib.crc32(data.encode()), seed])


def two_samples(data: str, settings: dict[str, Any], seed: int) -> float:
    """One run of the two-sample test."""
    rng = rng_of(data, seed)
    X, Y = DATA[data](rng), DATA[data](rng)
    return two_sample_test(X, Y, n_permutations=B, rng=rng, **settings).pvalue


def two_variables(data: str, settings: dict[str, Any], seed: int) -> float:
    """One run of the independence test."""
    rng = rng_of(data, seed)
    X, Y = DATA[data](rng), DATA[data](rng)
    return independence_test(X, Y, n_permutations=B, rng=rng, **settings).pvalue


def three_variables(data: str, settings: dict[str, Any], seed: int) -> float:
    """One run of the joint independence test."""
    rng = rng_of(data, seed)
    parts = [DATA[data](rng) for _ in range(3)]
    return joint_independence_test(*parts, n_permutations=B, rng=rng, **settings).pvalue


def one_sample(data: str, settings: dict[str, Any], seed: int) -> float:
    """One run of the test of fit to a standard normal distribution, by its score."""
    rng = rng_of(data, seed)
    X = DATA[data](rng)
    return goodness_of_fit_test(X, np.negative, n_permutations=B, rng=rng, **settings).pvalue


def one_law(data: str, settings: dict[str, Any], seed: int) -> float:
    """One run of the test of fit to a distribution of SciPy that the sample comes from."""
    rng = rng_of(data, seed)
    law = LAWS[data]
    X = law.rvs((N, 1), random_state=rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the wild bootstrap does not hold the level
        return goodness_of_fit_test(X, law, n_permutations=B, rng=rng, **settings).pvalue


def registry() -> list[Row]:
    """Every row there is."""
    rows = []
    for test, run, settings in (
        ("two samples", two_samples, TWO_SAMPLE),
        ("independence", two_variables, INDEPENDENCE),
        ("joint independence", three_variables, JOINT),
    ):
        for null, arguments, exact in settings:
            for data in KINDS:
                # only the default combines several kernels for tables
                if data == "mixed" and ("collection" in null or "optimized" in null):
                    continue
                inside = bool(exact) and data == "continuous"
                rows.append(Row(test, null, data, functools.partial(run, data, arguments), inside))
    for test, run in (("two samples", two_samples), ("independence", two_variables)):
        work = functools.partial(run, "labels", {})
        rows.append(Row(test, "permutation, default", "labels", work, False))
    for null, arguments, exact in GOODNESS:
        for data in ("continuous", "50 dimensions"):
            work = functools.partial(one_sample, data, arguments)
            rows.append(Row("goodness of fit", null, data, work, exact and data == "continuous"))
    for data in LAWS:
        rows.append(Row("SciPy", "default", data, functools.partial(one_law, data, {}), True))
    energy = {"kernel": Energy()}
    rows.append(
        Row(
            "two samples",
            "permutation, energy",
            "continuous",
            functools.partial(two_samples, "continuous", energy),
            True,
        )
    )
    return rows


@functools.cache
def by_name() -> dict[str, Row]:
    """The rows, found again in every process."""
    return {row.name: row for row in registry()}


# --- running --------------------------------------------------------------------------------------


def one_thread() -> None:
    """Two levels of parallel work would fight over the cores."""
    threadpool_limits(limits=1)


def chunk(name: str, seeds: range) -> tuple[str, list[float], float]:
    """Some runs of a row, and how long they took."""
    row, start = by_name()[name], time.perf_counter()
    found = [row.pvalue(seed) for seed in seeds]
    return name, found, time.perf_counter() - start


def interval(level: float, runs: int) -> tuple[float, float]:
    """Where a rate lies with probability 99.9 % if the level holds exactly."""
    tail = (1 - INTERVAL) / 2
    low, high = binom.ppf([tail, 1 - tail], runs, level) / runs
    return float(low), float(high)


def rate_of(row: Row, pvalues: list[float], seconds: float) -> Rate:
    """How often a row rejected, and whether that is right."""
    runs = len(pvalues)
    rates = tuple(float(np.mean(np.asarray(pvalues) <= level)) for level in LEVELS)
    intervals = tuple(interval(level, runs) for level in LEVELS)
    holds = all(
        rate <= high and (rate >= low or not row.exact)
        for rate, (low, high) in zip(rates, intervals, strict=True)
    )
    return Rate(
        row.test, row.null, row.data, row.exact, runs, rates, intervals, holds, seconds / runs
    )


def measured(rows: list[Row], runs: int, processes: int) -> list[Rate]:
    """The rates of the rows, in their order."""
    found: dict[str, list[float]] = {row.name: [] for row in rows}
    spent = dict.fromkeys(found, 0.0)
    total, done, start = runs * len(rows), 0, time.perf_counter()
    with ProcessPoolExecutor(processes, initializer=one_thread) as pool:
        jobs = [
            pool.submit(chunk, row.name, range(i, min(i + CHUNK, runs)))
            for i in range(0, runs, CHUNK)
            for row in rows
        ]
        for job in as_completed(jobs):
            name, pvalues, seconds = job.result()
            found[name] += pvalues
            spent[name] += seconds
            done += len(pvalues)
            left = (time.perf_counter() - start) * (total - done) / done
            print(
                f"\r… {done:,} of {total:,} runs, {left / 60:.1f} min left ",
                end="",
                file=sys.stderr,
                flush=True,
            )
    print(file=sys.stderr)
    return [rate_of(row, found[row.name], spent[row.name]) for row in rows]


def markdown(rates: list[Rate]) -> str:
    """The table, and what its columns mean."""
    head = ["test", "null", "data", "at 5 %", "at 1 %", "99.9 % interval at 5 %", "bar", "verdict"]
    lines = [line(head), line(["---"] * len(head))]
    for rate in rates:
        low, high = rate.intervals[0]
        lines.append(
            line(
                [
                    rate.test,
                    rate.null,
                    rate.data,
                    *(f"{100 * value:.1f}" for value in rate.rates),
                    f"{100 * low:.1f} – {100 * high:.1f}",
                    "inside" if rate.exact else "not above",
                    "holds" if rate.holds else "**fails**",
                ]
            )
        )
    failed = sum(not rate.holds for rate in rates)
    runs = rates[0].runs if rates else 0
    said = "all hold" if not failed else f"{failed} do not hold"
    return "\n".join(
        [
            "# Level",
            "",
            f"{len(rates)} rows of {runs:,} runs without any effect, n = {N}, {B} permutations; "
            f"{said}. Rates in percent.",
            "",
            *lines,
            "",
        ]
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Level of the tests.")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"a row ({RUNS})")
    parser.add_argument("--only", nargs="+", default=[], help="rows whose name has these words")
    parser.add_argument("--check", action="store_true", help="exit with 1 unless all hold")
    parser.add_argument("--processes", type=int, default=PROCESSES, help=f"({PROCESSES})")
    parser.add_argument("--list", action="store_true", help="show the rows")
    options = parser.parse_args()
    rows = [row for row in registry() if all(word in row.name for word in options.only)]
    if options.list or not rows:
        print("\n".join(row.name for row in rows) or "No row has these words.")
        return
    start = time.perf_counter()
    rates = measured(rows, options.runs, options.processes)
    elapsed = time.perf_counter() - start
    text = markdown(rates)
    print(text)
    say(f"{elapsed / 60:.1f} minutes")
    if not options.only:  # only the whole table is saved
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "calibration.md").write_text(text)
        report = {
            "levels": LEVELS,
            "n": N,
            "permutations": B,
            "seconds": elapsed,
            "machine": machine(),
            "rows": [asdict(rate) for rate in rates],
        }
        (RESULTS / "calibration.json").write_text(json.dumps(report, indent=1) + "\n")
    if options.check and not all(rate.holds for rate in rates):
        sys.exit(1)


if __name__ == "__main__":
    main()
