"""`DriftMonitor` beside alibi-detect's online MMD detector, at one expected run length.

    python benchmarks/monitoring_drift.py [--runs 40] [--lengths 20]

in an environment with meanmap and alibi-detect[torch]. Both get the same references of 1,000 rows,
the same streams, row by row, and are asked for a run length of 1,000. The peer needs the size of a
window, for which several values are tried. Streams drift after 200 rows; runs with an alarm before
that are left out of the delays. Delays that have not ended after 1,000 rows count as 1,000. Run
lengths without drift are over `--lengths` references with a stream each, of 3,000 rows at most.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from meanmap.monitoring import DriftMonitor

LENGTH, REFERENCE, BEFORE, LONGEST = 1000, 1000, 200, 1000
WINDOWS = (10, 50)
CHANGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean .5 in one column": lambda x: x + 0.5 * (np.arange(x.shape[1]) == 0),
    "mean .5 in every column": lambda x: x + 0.5,
    "mean 1.5 in one column": lambda x: x + 1.5 * (np.arange(x.shape[1]) == 0),
    "scale 1.5": lambda x: 1.5 * x,
    "scale .5": lambda x: 0.5 * x,
    "all columns equal": lambda x: np.repeat(x[:, :1], x.shape[1], axis=1),
}


class Ours:
    name = "meanmap"

    def __init__(self, reference: np.ndarray) -> None:
        self.monitor = DriftMonitor(reference, LENGTH)

    def reset(self) -> None:
        self.monitor.restart()

    def step(self, row: np.ndarray) -> bool:
        return self.monitor.update(row[None]).drift_detected


class Alibi:
    def __init__(self, reference: np.ndarray, window: int) -> None:
        from alibi_detect.cd import MMDDriftOnline

        self.name = f"alibi-detect, window {window}"
        self.monitor = MMDDriftOnline(
            reference.astype(np.float32),
            LENGTH,
            window,
            backend="pytorch",
            n_bootstraps=2000,
            verbose=False,
            device="cpu",
        )

    def reset(self) -> None:
        self.monitor.reset_state()

    def step(self, row: np.ndarray) -> bool:
        return bool(self.monitor.predict(row.astype(np.float32))["data"]["is_drift"])


def first_alarm(detector: Any, rows: np.ndarray) -> int:
    detector.reset()
    for t, row in enumerate(rows):
        if detector.step(row):
            return t + 1
    return len(rows) + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--lengths", type=int, default=20)
    parser.add_argument("--dimension", type=int, default=3)
    parser.add_argument("--partial", action="store_true", help="print after every reference")
    asked = parser.parse_args()
    delays: dict[tuple[str, str], list[int]] = {}
    lengths: dict[str, list[int]] = {}
    seconds: dict[str, list[float]] = {}
    references = max(1, asked.lengths)
    for seed in range(references):
        rng = np.random.default_rng(seed)
        reference = rng.normal(size=(REFERENCE, asked.dimension))
        detectors: list[Any] = [Ours(reference)]
        detectors += [Alibi(reference, window) for window in WINDOWS]
        calm = rng.normal(size=(3 * LENGTH, asked.dimension))
        for one in detectors:
            start = time.perf_counter()
            found = first_alarm(one, calm)
            seconds.setdefault(one.name, []).append((time.perf_counter() - start) / found)
            lengths.setdefault(one.name, []).append(found)
        for change, alter in CHANGES.items():
            for _ in range(max(1, asked.runs // references)):
                rows = rng.normal(size=(BEFORE + LONGEST, asked.dimension))
                rows[BEFORE:] = alter(rows[BEFORE:])
                for one in detectors:
                    found = first_alarm(one, rows)
                    if found > BEFORE:
                        delay = min(found - BEFORE, LONGEST)
                        delays.setdefault((change, one.name), []).append(delay)
        print(f"{seed + 1} of {references} references", file=sys.stderr, flush=True)
        if asked.partial or seed + 1 == references:
            show(lengths, seconds, delays)


def show(lengths: Any, seconds: Any, delays: Any) -> None:
    """Print what was found so far, a JSON object per line."""
    for name, found in lengths.items():
        ended = [length for length in found if length <= 3 * LENGTH]
        mean = sum(min(length, 3 * LENGTH) for length in found) / max(len(ended), 1)
        row = {"detector": name, "run length": round(mean), "asked": LENGTH, "streams": len(found)}
        print(json.dumps({**row, "milliseconds a step": round(1e3 * min(seconds[name]), 3)}))
    for (change, name), values in delays.items():
        row = {"change": change, "detector": name, "mean delay": round(float(np.mean(values)), 1)}
        print(json.dumps({**row, "median": float(np.median(values)), "runs": len(values)}))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
