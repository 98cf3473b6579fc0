"""Depth from one picture by kernel belief propagation and by bins, each half by the other.

A shorter run than `make reproduce NAME=depth`: the pictures of each half are predicted by what
those of the other teach, with powers and λ that do best on a third of these. Errors of log-depth,
their differences from those of bins picture by picture, and seconds of inference on one thread.

    python benchmarks/depth_halves.py [--size full] [--pictures 72]
"""

from __future__ import annotations

import argparse
from itertools import product

import numpy as np

from meanmap_experiments.depth import SIZES, ensure
from meanmap_experiments.depth.methods import DISCRETE, REWEIGHTING, Lesson, Setting
from meanmap_experiments.depth.prediction import FULL, error, halves

EDGES, LOOKS, TRUSTS = (0.03, 0.1), (0.1, 0.5), (0.2, 1.0)
VALIDATED = 4  # pictures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=list(SIZES), default="full")
    parser.add_argument("--pictures", type=int, default=72)
    options = parser.parse_args()
    ensure(options.size)
    methods = (*REWEIGHTING, DISCRETE)
    errors: dict[str, list[float]] = {method: [] for method in methods}
    seconds: dict[str, list[float]] = {method: [] for method in methods}
    parts = [part[part < SIZES[options.size].scenes] for part in halves(FULL, 0)]
    for tests, other in (parts, parts[::-1]):
        held, train = other[::3], np.setdiff1d(other, other[::3])
        scores: dict[str, dict[tuple[float, ...], float]] = {method: {} for method in methods}
        for edges, look in product(EDGES, LOOKS):
            lesson = Lesson(options.size, train, edges, look)
            for method, trust in product(methods, TRUSTS):
                setting = Setting(trust=trust)
                found = [
                    error(lesson, k, lesson.answer(method, k, setting).depths)
                    for k in held[:VALIDATED]
                ]
                scores[method][edges, look, trust] = float(np.mean(found))
        best = {method: min(found, key=found.__getitem__) for method, found in scores.items()}
        print("chosen (λ of edges, λ of features, trust):", best, flush=True)
        for edges, look in sorted({choice[:2] for choice in best.values()}):
            lesson = Lesson(options.size, np.sort(other), edges, look)
            for k in tests[: options.pictures // 2]:
                for method in methods:
                    if best[method][:2] == (edges, look):
                        answer = lesson.answer(method, int(k), Setting(trust=best[method][2]))
                        errors[method].append(error(lesson, k, answer.depths))
                        seconds[method].append(answer.seconds)
    bins = np.array(errors[DISCRETE])
    for method in methods:
        less = bins - errors[method]
        print(
            f"{method:26} error {np.mean(errors[method]):.3f}, less than bins {less.mean():.3f} ± "
            f"{less.std(ddof=1) / len(less) ** 0.5:.3f}, seconds {np.median(seconds[method]):.2f}"
        )


if __name__ == "__main__":
    main()
