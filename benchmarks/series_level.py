"""Level of the tests of time series: how often they reject where there is nothing to find.

Autoregressions xₜ = φ xₜ₋₁ + noise: two independent series for the independence test, two
independent series of one law for the two-sample test. Default settings, block lengths chosen from
the data.

    python benchmarks/series_level.py              # everything, two processes
    python benchmarks/series_level.py --runs 100   # a look
"""

from __future__ import annotations

import argparse
import functools
import warnings
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from harness import RESULTS, line, say
from scipy.signal import lfilter
from threadpoolctl import threadpool_limits

from meanmap import independence_test, two_sample_test

RUNS, DRAWS, WARM_UP = 250, 99, 300
MEMORIES = (0.0, 0.5, 0.8, 0.9)
SIZES = (150, 400)
NULLS = ("permutation", "block", "wild")
TESTS = {"two samples": two_sample_test, "independence": independence_test}


def series(rng: np.random.Generator, n: int, memory: float) -> np.ndarray:
    """A stationary autoregression of n rows."""
    return lfilter([1.0], [1.0, -memory], rng.normal(size=n + WARM_UP))[WARM_UP:, None]


def pvalues(test: str, n: int, memory: float, seed: int) -> list[float]:
    """One run: every null on the same two series."""
    rng = np.random.default_rng([n, int(100 * memory), seed])
    X, Y = series(rng, n, memory), series(rng, n, memory)
    settings: dict[str, Any] = {"n_permutations": DRAWS, "rng": seed}
    with warnings.catch_warnings(), threadpool_limits(limits=1):
        warnings.simplefilter("ignore")
        return [TESTS[test](X, Y, null=null, **settings).pvalue for null in NULLS]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Level of the tests of time series.")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"per row ({RUNS})")
    parser.add_argument("--processes", type=int, default=2, help="(2)")
    options = parser.parse_args()
    head = ["test", "rows per series", "memory φ", *(f"`{null}`" for null in NULLS)]
    lines = [line(head), line(["---"] * len(head))]
    with ProcessPoolExecutor(options.processes) as pool:
        for test in TESTS:
            for n in SIZES:
                for memory in MEMORIES:
                    run = functools.partial(pvalues, test, n, memory)
                    p = np.array(list(pool.map(run, range(options.runs), chunksize=10)))
                    rates = [f"{100 * rate:.1f}" for rate in np.mean(p <= 0.05, axis=0)]
                    lines.append(line([test, str(n), f"{memory:g}", *rates]))
                    say(lines[-1])
    text = "\n".join(
        [
            f"Rejections at the 0.05 level in percent, {options.runs:,} runs per row.",
            "",
            *lines,
            "",
        ]
    )
    print(text)
    if options.runs >= RUNS:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "series.md").write_text(text)


if __name__ == "__main__":
    main()
