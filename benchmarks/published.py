"""Power of the default tests: settings that others printed, and homes of classical tests.

Perturbed uniforms and four Gaussians are those of MMD-FUSE (Biggs, Schrab and Gretton 2023), whose
figures for MMD-FUSE and MMDAgg are of 200 runs; perturbed squares those of HSICAgg (100 runs). The
classical tests are computed in the same runs. The ten cells "further" were chosen after the default
was settled, and run once: beside them stand a classical test where there is one, and our tests with
the kernels that other packages take, a Gaussian at the median distance and the energy kernel.
Level 0.05 everywhere; run i draws from seed i.

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
from harness import RESULTS, line
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


def mixture(rng: np.random.Generator, n: int, share: float, at: float, spread: float) -> Sample:
    """Normal numbers, and others of which a share lies elsewhere."""
    y = np.where(rng.random(n) < share, rng.normal(at, spread, n), rng.normal(size=n))
    return rng.normal(size=(n, 1)), y[:, None]


def peaks(rng: np.random.Generator, n: int) -> Sample:
    """One peak against two, of the same mean and variance."""
    y = 0.9 * rng.choice([-1, 1], n) + np.sqrt(1 - 0.81) * rng.normal(size=n)
    return rng.normal(size=(n, 1)), y[:, None]


def correlation(rng: np.random.Generator, n: int) -> Sample:
    """Two independent normal columns against two with correlation 0.5."""
    z = rng.normal(size=(n, 2))
    return rng.normal(size=(n, 2)), z @ np.array([[1, 0.5], [0, np.sqrt(0.75)]])


def ring(rng: np.random.Generator, n: int) -> Sample:
    """Normal points against points of which a half lies near a ring of the same second moment."""
    angle = rng.uniform(0, 2 * np.pi, n)
    there = np.sqrt(2) * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    mixed = np.where(rng.random((n, 1)) < 0.5, there, rng.normal(size=(n, 2)))
    return rng.normal(size=(n, 2)), mixed


def one_column(rng: np.random.Generator, n: int) -> Sample:
    """Twenty normal columns, one of which spreads 1.8 times as far."""
    return rng.normal(size=(n, 20)), rng.normal(size=(n, 20)) * np.array([1.8] + 19 * [1])


def skewed(rng: np.random.Generator, n: int) -> Sample:
    """Eight normal columns, three of which become skewed, with mean and variance as before."""
    y = rng.normal(size=(n, 8))
    y[:, :3] = rng.gamma(3.0, size=(n, 3)) / np.sqrt(3) - np.sqrt(3)
    return rng.normal(size=(n, 8)), y


def growing(rng: np.random.Generator, n: int) -> Sample:
    """Noise whose spread depends on x."""
    x, z = rng.normal(size=(2, n, 1))
    return x, z * (1 + np.abs(x))


def ripple(rng: np.random.Generator, n: int) -> Sample:
    """One and a half periods of a sine and as much noise."""
    x = rng.random((n, 1))
    return x, np.sin(3 * np.pi * x) + rng.normal(size=(n, 1))


@dataclass(frozen=True)
class Cell:
    """One setting: its samples, the question, and what others have there."""

    draw: Draw
    others: str = ""
    paired: bool = False
    classical: Callable[[np.ndarray, np.ndarray], float] | None = None


def smirnov(x: np.ndarray, y: np.ndarray) -> float:
    """The p-value of the Kolmogorov-Smirnov test."""
    return float(stats.ks_2samp(x[:, 0], y[:, 0]).pvalue)


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
    "spread of one of 20": Cell(partial(one_column, n=150)),
    "t test": Cell(shifted, classical=lambda x, y: float(stats.ttest_ind(x, y).pvalue[0])),
    "F test": Cell(stretched, classical=f_test),
    "Pearson": Cell(
        correlated, "", True, lambda x, y: float(stats.pearsonr(x[:, 0], y[:, 0]).pvalue)
    ),
    "further: normal, Laplace": Cell(
        lambda r: (r.normal(size=(300, 1)), r.laplace(0, 0.5**0.5, (300, 1))), classical=smirnov
    ),
    "further: t(3) shifted by .5": Cell(
        lambda r: (r.standard_t(3, (80, 1)), 0.5 + r.standard_t(3, (80, 1))),
        classical=lambda x, y: float(stats.mannwhitneyu(x[:, 0], y[:, 0]).pvalue),
    ),
    "further: a tenth at 3": Cell(partial(mixture, n=150, share=0.1, at=3, spread=0.5),
                                  classical=smirnov),
    "further: one or two peaks": Cell(partial(peaks, n=80), classical=smirnov),
    "further: counts, Poisson 3 or 3.8": Cell(
        lambda r: (r.poisson(3, (80, 1)) * 1.0, r.poisson(3.8, (80, 1)) * 1.0),
        classical=lambda x, y: float(stats.ttest_ind(x, y).pvalue[0]),
    ),
    "further: correlation .5": Cell(partial(correlation, n=120)),
    "further: half on a ring": Cell(partial(ring, n=100)),
    "further: three of 8 skewed": Cell(partial(skewed, n=150)),
    "further: noise that grows": Cell(partial(growing, n=150), paired=True),
    "further: ripple": Cell(partial(ripple, n=100), paired=True),
}  # fmt: skip


def pvalues(name: str, seed: int) -> list[float]:
    """Ours, with given kernels in further cells, and the classical test's; NaN for none."""
    from threadpoolctl import threadpool_limits

    from meanmap import independence_test, two_sample_test
    from meanmap.kernels import Energy

    cell = CELLS[name]
    X, Y = cell.draw(np.random.default_rng(seed))
    test = independence_test if cell.paired else two_sample_test
    kernels = [None, "median", Energy()] if name.startswith("further") else [None]
    with threadpool_limits(1):
        ours = [test(X, Y, kernel, rng=seed).pvalue for kernel in kernels]
    ours += [np.nan] * (3 - len(ours))
    return [*ours, np.nan if cell.classical is None else cell.classical(X, Y)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", default="", help="cells whose names begin so")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    asked = parser.parse_args()
    table = [line(["setting", "runs", "meanmap", "± SE", "others"]), line(["---"] * 5)]
    print("\n".join(table))
    seeds = range(asked.first, asked.first + asked.runs)
    with ProcessPoolExecutor(asked.jobs) as pool:
        for name, cell in CELLS.items():
            if not name.startswith(asked.only):
                continue
            found = np.array(list(pool.map(partial(pvalues, name), seeds, chunksize=4)))
            ours, *rest = (found <= ALPHA).mean(axis=0)
            error = np.sqrt(ours * (1 - ours) / asked.runs)
            names = ("median", "energy", "classical")
            there = np.isfinite(found).all(axis=0)[1:]
            said = [
                f"{n} {power:.3f}" for n, power, one in zip(names, rest, there, strict=True) if one
            ]
            others = ", ".join([cell.others, *said] if cell.others else said)
            table.append(line([name, str(asked.runs), f"{ours:.3f}", f"{error:.3f}", others]))
            print(table[-1], flush=True)
    if not asked.only:  # only the whole table is saved
        (RESULTS / "published.md").write_text("\n".join(table) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
