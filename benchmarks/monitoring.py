"""Sequential tests and drift monitors: level, delay, power, run length and speed.

    python benchmarks/monitoring.py [level] [delay] [power] [bound] [speed] [drift] [--streams N]
        [--jobs N] [--tests two-sample independence conditional] [--sizes 50 100 …]

Laws and settings were fixed before the runs; everything runs with default settings.

| part | what is measured |
|---|---|
| level | 10,000 rows without any effect, a look after each: how many are ever rejected at .05 |
| delay | N(0, I₃) against a shift of the mean by 1: rows of each sample until rejection |
| power | rejections at any time, by `stop()`, with a `horizon` at the end; of a fixed-n test |
| bound | what a bettor could reach who knew the features and the size of a shift |
| speed | a million pairs of rows in batches of 1,000: seconds, and peak memory |
| drift | `DriftMonitor`: run length without drift, over references of 1,000 rows |

The largest wealth so far is updated row by row within each batch, so that one call with 10,000 rows
stands for 10,000 looks; `tests/monitoring` checks that batches do not change the answer.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from scipy import stats

from meanmap import independence_test, two_sample_test
from meanmap.monitoring import (
    DriftMonitor,
    SequentialConditionalTest,
    SequentialIndependenceTest,
    SequentialTwoSampleTest,
)

ROWS = 10_000
Sampler = Callable[[np.random.Generator, int], Any]


# --- laws -----------------------------------------------------------------------------------------


def normal(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(n, 3))


def heavy(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.standard_cauchy(size=(n, 2))


def tied(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.poisson(1.0, size=(n, 2)).astype(float)


def words(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.choice(np.array(list("abcde")), n, p=[0.5, 0.2, 0.15, 0.1, 0.05])


LAWS: dict[str, Sampler] = {"normal": normal, "heavy": heavy, "ties": tied, "labels": words}


def two_samples(law: str, rng: np.random.Generator, n: int) -> tuple[Any, ...]:
    return LAWS[law](rng, n), LAWS[law](rng, n)


def confounded(law: str, rng: np.random.Generator, n: int) -> tuple[Any, ...]:
    """X and Y that depend on Z and, given Z, not on each other."""
    z = rng.normal(size=(n, 1))
    if law == "labels":
        high = rng.random((2, n)) < 1 / (1 + np.exp(-2 * z[:, 0]))
        return (*np.where(high, "high", "low"), z)
    noise = {
        "normal": rng.normal(size=(2, n, 1)),
        "heavy": rng.standard_t(2, size=(2, n, 1)),
        "ties": rng.poisson(1.0, size=(2, n, 1)).astype(float),
    }[law]
    return np.sin(z) + 0.5 * noise[0], np.abs(z) + 0.5 * noise[1], z


TESTS: dict[str, tuple[Any, Any]] = {
    "two-sample": (SequentialTwoSampleTest, two_samples),
    "independence": (SequentialIndependenceTest, two_samples),
    "conditional": (SequentialConditionalTest, confounded),
}


def shifted(by: float, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X, Y = normal(rng, n), normal(rng, n)
    Y[:, 0] += by
    return X, Y


def shifted_everywhere(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    return normal(rng, n), normal(rng, n) + 1.0


def wider(by: float, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    return normal(rng, n), by * normal(rng, n)


def two_humps(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    side = rng.choice([-1.0, 1.0], size=(n, 1))
    return rng.normal(size=(n, 1)), 0.8 * side + 0.6 * rng.normal(size=(n, 1))


def correlated(by: float, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(n, 1))
    return X, by * X + np.sqrt(1 - by**2) * rng.normal(size=(n, 1))


def parabola(noise: float, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(n, 1))
    return X, X**2 + noise * rng.normal(size=(n, 1))


POWER: list[tuple[str, Any, Sampler]] = [
    ("mean .3 in one of 3", SequentialTwoSampleTest, partial(shifted, 0.3)),
    ("scale 1.3, d = 3", SequentialTwoSampleTest, partial(wider, 1.3)),
    ("two humps", SequentialTwoSampleTest, two_humps),
    ("correlation .3", SequentialIndependenceTest, partial(correlated, 0.3)),
    ("parabola, noise 4", SequentialIndependenceTest, partial(parabola, 4.0)),
]
SIZES = (50, 100, 200, 400, 800)


# --- what is measured -----------------------------------------------------------------------------


def ever_rejects(test: str, law: str, seed: int) -> float:
    made, sample = TESTS[test]
    rng = np.random.default_rng([seed, len(test), len(law)])
    return float(made().update(*sample(law, rng, ROWS)).pvalue)


def rows_to_reject(sample: Sampler, seed: int) -> int:
    rng = np.random.default_rng([1, seed])
    X, Y = sample(rng, 2000)
    test = SequentialTwoSampleTest()
    for i in range(len(X)):
        if test.update(X[i : i + 1], Y[i : i + 1]).rejects:
            return i + 1
    return len(X)


def power_at(case: int, n: int, seed: int) -> tuple[bool, ...]:
    _, made, sample = POWER[case]
    X, Y = sample(np.random.default_rng([2, case, n, seed]), n)
    fixed = two_sample_test if made is SequentialTwoSampleTest else independence_test
    test = made()
    before, after = test.update(X, Y).rejects, test.stop(rng=seed).rejects
    declared = made(horizon=n, random_state=seed).update(X, Y).rejects
    return before, after, declared, bool(fixed(X, Y, n_permutations=199, rng=seed).pvalue <= 0.05)


def run_length(law: str, asked: int, seed: int) -> tuple[int, int]:
    """Alarms and rows of a stream without drift, thirty times as long as asked for."""
    rng = np.random.default_rng([3, len(law), asked, seed])
    monitor, alarms = DriftMonitor(LAWS[law](rng, 1000), asked, random_state=seed), 0
    for _ in range(30):
        alarms += len(monitor.update(LAWS[law](rng, asked)).alarms)
    return alarms, 30 * asked


def each(work: Callable[[int], Any], count: int, jobs: int) -> list[Any]:
    """The work for every seed, by several processes."""
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(work, range(count), chunksize=max(1, count // (8 * jobs))))


def level(asked: argparse.Namespace) -> Iterable[dict[str, Any]]:
    for test in asked.tests:
        for law in LAWS:
            p = np.array(each(partial(ever_rejects, test, law), asked.streams, asked.jobs))
            yield {
                "test": test,
                "law": law,
                "streams": asked.streams,
                "ever": float(np.mean(p <= 0.05)),
            }


def delay(asked: argparse.Namespace) -> Iterable[dict[str, Any]]:
    cases = {"1 in one column": partial(shifted, 1.0), "1 in every column": shifted_everywhere}
    for name, sample in cases.items():
        rows = each(partial(rows_to_reject, sample), min(asked.streams, 200), asked.jobs)
        middle, most = np.quantile(rows, [0.5, 0.9])
        yield {"shift": name, "median pairs": middle, "median rows": 2 * middle, "90%": most}


def power(asked: argparse.Namespace) -> Iterable[dict[str, Any]]:
    for case, (name, _, _) in enumerate(POWER):
        for n in asked.sizes:
            found = each(partial(power_at, case, n), min(asked.streams, 200), asked.jobs)
            any_time, stopped, declared, fixed = np.mean(found, axis=0)
            row = {"law": name, "n": n, "any time": any_time, "stopped": stopped}
            ratio = declared / max(fixed, 1e-9)
            yield {**row, "horizon": declared, "fixed n": fixed, "horizon / fixed": ratio}


def bound(asked: argparse.Namespace) -> Iterable[dict[str, Any]]:
    """Normal mixtures for a drifting Brownian motion, each with its best width for the end."""
    rng, steps, d = np.random.default_rng(4), 200, 4
    times = np.arange(1, steps + 1) / steps
    for drift in (2.3, 3.0, 3.6):
        noise = rng.normal(size=(4000, steps, d)) / np.sqrt(steps)
        squares = (np.cumsum(noise + drift / steps * np.eye(d)[0], axis=1) ** 2).sum(axis=2)
        powers = []
        for s in (0.5, 1, 1.5, 2.25, 3.5, 5, 9):  # the variance of the prior, in units of 1/n
            logs = 0.5 * (s * squares / (1 + s * times) - d * np.log(1 + s * times))
            powers.append(np.mean(logs.max(axis=1) >= np.log(20)))
        fixed = stats.ncx2.sf(stats.chi2.isf(0.05, d), d, drift**2)
        yield {"drift": drift, "any time": float(max(powers)), "fixed n": float(fixed)}


def speed(asked: argparse.Namespace) -> Iterable[dict[str, Any]]:
    for name in asked.tests:
        rng, test = np.random.default_rng(0), TESTS[name][0]()
        start = time.perf_counter()
        for _ in range(1000):
            test.update(*TESTS[name][1]("normal", rng, 1000))
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        yield {"test": name, "pairs": 1_000_000, "seconds": seconds, "peak MB": peak}
    rng = np.random.default_rng(0)
    monitor = DriftMonitor(rng.normal(size=(1000, 3)))
    start = time.perf_counter()
    for _ in range(1000):
        monitor.update(rng.normal(size=(1000, 3)))
    yield {"test": "drift", "rows": 1_000_000, "seconds": time.perf_counter() - start}


def drift(asked: argparse.Namespace) -> Iterable[dict[str, Any]]:
    for law in LAWS:
        for length in (1000, 10_000):
            found = each(partial(run_length, law, length), min(asked.streams, 24), asked.jobs)
            alarms, rows = np.array(found, float).T
            yield {
                "law": law,
                "asked": length,
                "mean over references": float(np.mean(rows / np.maximum(alarms, 0.5))),
                "rows per alarm": float(rows.sum() / alarms.sum()),
                "alarms": int(alarms.sum()),
            }


PARTS = {
    "level": level,
    "delay": delay,
    "power": power,
    "bound": bound,
    "speed": speed,
    "drift": drift,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=list(PARTS))
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tests", nargs="*", choices=list(TESTS), default=list(TESTS))
    parser.add_argument("--sizes", nargs="*", type=int, default=list(SIZES))
    asked = parser.parse_args()
    for part in asked.parts:
        for row in PARTS[part](asked):
            rounded = {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}
            print(json.dumps({"part": part, **rounded}))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
