"""Power of the default tests: settings that others printed, and homes of classical tests.

Perturbed uniforms and four Gaussians are those of MMD-FUSE (Biggs, Schrab and Gretton 2023), whose
figures for MMD-FUSE and MMDAgg are of 200 runs; perturbed squares those of HSICAgg (100 runs). The
classical tests are computed in the same runs. Level 0.05 everywhere; run i draws from seed i.

    python benchmarks/published.py                    # 500 runs of every cell
    python benchmarks/published.py --runs 100 --only four
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from harness import line
from scipy import stats

ALPHA = 0.05
Sample = tuple[np.ndarray, np.ndarray]
Draw = Callable[[np.random.Generator], Sample]


def bump(t: np.ndarray) -> np.ndarray:
    """One smooth bump on (-1, -1/2) and its negative on (-1/2, 0)."""
    up, down = (t > -1) & (t < -0.5), (t > -0.5) & (t < 0)
    out = np.zeros_like(t)
    out[up] = np.exp(-1 / (1 - (4 * t[up] + 3) ** 2))
    out[down] = -np.exp(-1 / (1 - (4 * t[down] + 1) ** 2))
    return out


def perturbed(rng: np.random.Generator, n: int, d: int, height: float, p: int) -> np.ndarray:
    """Points of [0, 1]^d with density 1 + height Σ θ_j Π G(p x_r - j_r), θ random signs."""
    signs = rng.choice([-1.0, 1.0], size=(p,) * d)
    places = np.arange(1, p + 1)
    found: list[np.ndarray] = []
    while sum(map(len, found)) < n:
        x = rng.random((4 * n, d))
        factors = [bump(p * x[:, r, None] - places) for r in range(d)]
        letters = "abc"[:d]
        terms = ",".join(f"i{letter}" for letter in letters)
        density = 1 + height * np.einsum(f"{letters},{terms}->i", signs, *factors)
        found.append(x[rng.random(4 * n) * (1 + abs(height) * np.exp(-d)) < density])
    return np.concatenate(found)[:n]


def uniforms(rng: np.random.Generator, n: int, d: int, scale: float) -> Sample:
    """A perturbed uniform distribution against the uniform one, p = 2."""
    return perturbed(rng, n, d, np.exp(d) * scale, 2), rng.random((n, d))


def gaussians(rng: np.random.Generator, n: int, deviation: float) -> Sample:
    """Four Gaussians far apart; in the second sample one of them has another deviation."""
    means = np.array([[20.0, 20], [20, -20], [-20, 20], [-20, -20]])
    samples = []
    for spread in (1.0, deviation):
        which = rng.integers(4, size=n)
        samples.append(means[which] + rng.normal(size=(n, 2)) * np.where(which, 1, spread)[:, None])
    return samples[0], samples[1]


def square(rng: np.random.Generator, n: int, p: int, divisor: float) -> Sample:
    """Two coordinates of a perturbed uniform distribution on the square."""
    points = perturbed(rng, n, 2, np.exp(2) / divisor, p)
    return points[:, :1], points[:, 1:]


def shifted(rng: np.random.Generator) -> Sample:
    """Normal numbers, and others half a deviation higher."""
    return rng.normal(size=(50, 1)), rng.normal(0.5, 1, size=(50, 1))


def stretched(rng: np.random.Generator) -> Sample:
    """Normal numbers, and others that spread 1.56 times as far."""
    return rng.normal(size=(50, 1)), 1.56 * rng.normal(size=(50, 1))


def correlated(rng: np.random.Generator) -> Sample:
    """Normal numbers with correlation 0.35."""
    x, z = rng.normal(size=(2, 60, 1))
    return x, 0.35 * x + np.sqrt(1 - 0.35**2) * z


def f_test(x: np.ndarray, y: np.ndarray) -> float:
    """The p-value of the two-sided F test of equal variances."""
    ratio = stats.f(len(x) - 1, len(y) - 1).cdf(x.var(ddof=1) / y.var(ddof=1))
    return float(2 * min(ratio, 1 - ratio))


@dataclass(frozen=True)
class Cell:
    """One setting: its samples, the question, and what others have there."""

    draw: Draw
    others: str = ""
    paired: bool = False
    classical: Callable[[np.ndarray, np.ndarray], float] | None = None


SIZES = (500, 1000, 1500, 2000, 2500, 3000)
CELLS: dict[str, Cell] = {
    "uniforms d=1, .3": Cell(partial(uniforms, n=500, d=1, scale=0.3), "FUSE .505, Agg .605"),
    "uniforms d=1, .4": Cell(partial(uniforms, n=500, d=1, scale=0.4), "FUSE .825, Agg .880"),
    "uniforms d=2, .8": Cell(partial(uniforms, n=500, d=2, scale=0.8), "FUSE .885, Agg .830"),
    **{
        f"uniforms d=2, .4, n={n}": Cell(partial(uniforms, n=n, d=2, scale=0.4), f"FUSE {power}")
        for n, power in zip(SIZES, (".165", ".43", ".69", ".805", ".975", ".99"), strict=True)
    },
    "four Gaussians, 1.6": Cell(partial(gaussians, n=500, deviation=1.6), "FUSE .635, Agg .675"),
    **{
        f"four Gaussians, 1.3, n={n}": Cell(partial(gaussians, n=n, deviation=1.3), f"FUSE {power}")
        for n, power in zip(SIZES, (".18", ".38", ".635", ".765", ".88", ".97"), strict=True)
    },
    "square p=2, n=600": Cell(partial(square, n=600, p=2, divisor=2), "HSICAgg .37", True),
    "square p=2, n=1000": Cell(partial(square, n=1000, p=2, divisor=2), "HSICAgg .75", True),
    "square p=1, n=1000": Cell(partial(square, n=1000, p=1, divisor=3), "HSICAgg .79", True),
    "t test": Cell(shifted, classical=lambda x, y: float(stats.ttest_ind(x, y).pvalue[0])),
    "F test": Cell(stretched, classical=f_test),
    "Pearson": Cell(
        correlated, "", True, lambda x, y: float(stats.pearsonr(x[:, 0], y[:, 0]).pvalue)
    ),
}


def pvalues(name: str, seed: int) -> tuple[float, float]:
    """Ours, and the classical test's (NaN if there is no classical test)."""
    from threadpoolctl import threadpool_limits

    from meanmap import independence_test, two_sample_test

    cell = CELLS[name]
    X, Y = cell.draw(np.random.default_rng(seed))
    with threadpool_limits(1):
        ours = (independence_test if cell.paired else two_sample_test)(X, Y, rng=seed).pvalue
    return ours, np.nan if cell.classical is None else cell.classical(X, Y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", default="", help="cells whose names begin so")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    asked = parser.parse_args()
    print(line(["setting", "meanmap", "± SE", "others"]))
    print(line(["---"] * 4))
    seeds = range(asked.first, asked.first + asked.runs)
    with ProcessPoolExecutor(asked.jobs) as pool:
        for name, cell in CELLS.items():
            if not name.startswith(asked.only):
                continue
            found = np.array(list(pool.map(partial(pvalues, name), seeds, chunksize=4)))
            ours, classical = (found <= ALPHA).mean(axis=0)
            error = np.sqrt(ours * (1 - ours) / asked.runs)
            others = cell.others if cell.classical is None else f"{name} {classical:.3f}"
            print(line([name, f"{ours:.3f}", f"{error:.3f}", others]), flush=True)


if __name__ == "__main__":
    main()
