"""Are posteriors from a simulator calibrated? In 1, 3 and 10 parameters, at large and small noise.

Parameters are standard normal, outputs are parameters with noise of deviation σ. After 1,000
simulations the ranks of new parameters in their own posteriors should be uniform (Talts et al.
2018): the p-value is Kolmogorov's of each parameter, the least of d times d. The standard deviation
is compared with the exact one, σ/√(1 + σ²).

    python benchmarks/simulator_calibration.py --runs 1000
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from scipy import stats

TABLE = Path(__file__).parent / "results" / "simulator_calibration.md"
CASES = [(d, noise) for d in (1, 3, 10) for noise in (0.5, 0.1)]


def measure(d: int, noise: float, n: int, runs: int, seed: int) -> str:
    from meanmap import KernelABC

    def simulator(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return theta + noise * rng.normal(size=theta.shape)

    start = time.perf_counter()
    prior = {f"θ{i + 1}": stats.norm() for i in range(d)}
    model = KernelABC(simulator, prior, random_state=seed, progress=False).fit(n)
    found = model.calibrate(runs)
    p = min(1.0, d * min(stats.kstest(ranks, "uniform").pvalue for ranks in found.ranks.T))
    rng = np.random.default_rng(seed + 1)
    some = simulator(rng.normal(size=(50, d)), rng)
    ratio = model.posterior(some).std() / (noise / np.sqrt(1 + noise**2))
    cover = found.coverage(0.9)
    return (
        f"| {d} | {noise} | {p:.3f} | {cover.min():.3f}–{cover.max():.3f} | "
        f"{np.median(ratio):.2f} | {time.perf_counter() - start:.0f} s |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--parameters", type=int, nargs="*", default=[1, 3, 10])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="write the table to benchmarks/results")
    options = parser.parse_args()
    lines = [
        "| parameters | noise | p-value | 90% intervals hold | std / exact | seconds |",
        "|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    for d, noise in CASES:
        if d not in options.parameters:
            continue
        lines.append(measure(d, noise, options.simulations, options.runs, options.seed))
        print(lines[-1], flush=True)
        if options.keep:
            TABLE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
