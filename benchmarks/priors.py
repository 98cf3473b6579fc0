"""How well Bayes' rule follows a prior that is narrow, or that contradicts the observation.

X is N(0, 2²) and Y = X + N(0, 1), in one or more independent columns, with another prior on X. The
exact posterior is known. Averaged over observations and seeds: the error of the mean in units of
the true standard deviation, the error of the standard deviation relative to the true one, their
ratio, and what the 90% interval covers of the exact posterior.

    python benchmarks/priors.py [--sizes 300 1000] [--seeds 5] [--methods default importance]
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import dataclass

import numpy as np
from scipy import stats

SPREAD, NOISE = 2.0, 1.0  # of X and of Y given X


@dataclass(frozen=True)
class Case:
    """A prior that is a mixture of normals, the same in each of `d` columns, and observations."""

    name: str
    means: tuple[float, ...]
    std: float
    at: tuple[float, ...]
    d: int = 1

    def prior(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.choice(self.means, size=(n, self.d)) + self.std * rng.normal(size=(n, self.d))

    def parts(self) -> tuple[np.ndarray, np.ndarray, float]:
        """The exact posterior at each observation: shares and means of its parts, and their std."""
        y, means = np.array(self.at)[:, None], np.array(self.means)
        total = self.std**2 + NOISE**2
        odds = np.exp(-((y - means) ** 2) / (2 * total))
        odds /= odds.sum(axis=1, keepdims=True)
        centres = means + self.std**2 / total * (y - means)
        return odds, centres, self.std * NOISE / total**0.5

    def truth(self) -> tuple[np.ndarray, np.ndarray]:
        """The exact posterior means and standard deviations at each observation."""
        odds, centres, std = self.parts()
        mean = (odds * centres).sum(axis=1)
        return mean, np.sqrt((odds * centres**2).sum(axis=1) + std**2 - mean**2)

    def probability(self, low: np.ndarray, high: np.ndarray) -> float:
        """What intervals (m, d) hold of the exact posterior, on average."""
        odds, centres, std = self.parts()
        law = stats.norm(centres[:, None, :], std)
        inside = law.cdf(high[:, :, None]) - law.cdf(low[:, :, None])
        return float((odds[:, None, :] * inside).sum(axis=2).mean())


CASES = (
    Case("narrow", (1.0,), 0.2, (-1.0, 1.0, 3.0)),
    Case("mild conflict", (-2.0,), 0.5, (2.0,)),
    Case("conflict", (-4.0,), 0.5, (4.0,)),
    Case("marginal", (0.0,), 2.0, (-2.0, 0.0, 2.0)),
    Case("moderate", (1.0,), 1.0, (-1.0, 1.0, 3.0)),
    Case("two modes", (-2.0, 2.0), 0.5, (-1.0, 0.0, 1.0)),
    Case("broad, d = 2", (0.0,), 2.0, (-2.0, 0.0, 2.0), 2),
    Case("narrow, d = 2", (1.0,), 0.4, (-1.0, 1.0, 3.0), 2),
    Case("moderate, d = 2", (1.0,), 1.0, (-1.0, 1.0, 3.0), 2),
    Case("two modes, d = 2", (-2.0, 2.0), 0.5, (-1.0, 0.0, 1.0), 2),
    Case("mild conflict, d = 2", (-2.0,), 0.5, (1.0,), 2),
    Case("moderate, d = 4", (1.0,), 1.0, (-1.0, 1.0, 3.0), 4),
    Case("two modes, d = 4", (-1.0, 1.0), 0.7, (-1.0, 0.0, 1.0), 4),
    Case("broad, d = 5", (0.0,), 2.0, (-2.0, 0.0, 2.0), 5),
    Case("narrow, d = 5", (1.0,), 0.4, (-1.0, 1.0, 3.0), 5),
    Case("two modes, d = 5", (-1.0, 1.0), 0.5, (-1.0, 0.0, 1.0), 5),
    Case("mild conflict, d = 5", (-1.0,), 0.5, (1.0,), 5),
)


def figures(case: Case, n: int, seed: int, method: str) -> tuple[float, ...]:
    """Errors of mean and standard deviation, the ratio of these, coverage, and seconds."""
    from meanmap import ConditionalEmbedding

    rng = np.random.default_rng((seed, n))
    X = rng.normal(0.0, SPREAD, size=(n, case.d))
    Y = X + rng.normal(0.0, NOISE, size=(n, case.d))
    prior = case.prior(n, rng)
    at = np.repeat(np.array(case.at)[:, None], case.d, axis=1)
    mean, std = (value[:, None] for value in case.truth())
    model = ConditionalEmbedding().fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        options = {} if method == "default" else {"method": method}
        answer = model.posterior(prior, **options).given(at)
        found = answer.mean(), answer.std()
        seconds = time.perf_counter() - start
        covered = case.probability(*answer.interval(0.9))
    return (
        float((abs(found[0] - mean) / std).mean()),
        float((abs(found[1] - std) / std).mean()),
        float(np.exp(np.log(found[1] / std).mean())),
        covered,
        seconds,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[300, 1000, 3000, 10_000])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--methods", nargs="+", default=["default", "nonnegative", "importance"])
    parser.add_argument("--cases", nargs="+", default=[case.name for case in CASES])
    options = parser.parse_args()
    for case in CASES:
        if case.name not in options.cases:
            continue
        for method in options.methods:
            for n in options.sizes:
                seeds = range(options.first, options.first + options.seeds)
                found = [figures(case, n, seed, method) for seed in seeds]
                mean, std, ratio, covered, seconds = np.mean(found, axis=0)
                print(
                    f"{case.name:21} {method:11} n = {n:6}: mean {mean:5.2f}, std {std:5.2f}, "
                    f"ratio {ratio:5.2f}, covers {covered:.2f}, {1e3 * seconds:5.0f} ms",
                    flush=True,
                )


if __name__ == "__main__":
    main()
