"""How well Bayes' rule follows a prior that is narrow, or that contradicts the observation.

X is N(0, 2²) and Y = X + N(0, 1), in one or more independent columns, with another prior on X. The
exact posterior is known. Errors are averaged over observations and seeds: of the mean in units of
the true standard deviation, and of the standard deviation relative to the true one.

    python benchmarks/priors.py [--sizes 300 1000] [--seeds 5] [--methods ratio importance]
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import dataclass

import numpy as np

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

    def truth(self) -> tuple[np.ndarray, np.ndarray]:
        """The exact posterior means and standard deviations at each observation."""
        y, means = np.array(self.at)[:, None], np.array(self.means)
        total = self.std**2 + NOISE**2
        odds = np.exp(-((y - means) ** 2) / (2 * total))
        odds /= odds.sum(axis=1, keepdims=True)
        centres = means + self.std**2 / total * (y - means)
        mean = (odds * centres).sum(axis=1)
        square = (odds * centres**2).sum(axis=1) + self.std**2 * NOISE**2 / total
        return mean, np.sqrt(square - mean**2)


CASES = (
    Case("narrow", (1.0,), 0.2, (-1.0, 1.0, 3.0)),
    Case("mild conflict", (-2.0,), 0.5, (2.0,)),
    Case("conflict", (-4.0,), 0.5, (4.0,)),
    Case("marginal", (0.0,), 2.0, (-2.0, 0.0, 2.0)),
    Case("moderate", (1.0,), 1.0, (-1.0, 1.0, 3.0)),
    Case("two modes", (-2.0, 2.0), 0.5, (-1.0, 0.0, 1.0)),
    Case("narrow, d = 2", (1.0,), 0.4, (-1.0, 1.0, 3.0), 2),
    Case("moderate, d = 2", (1.0,), 1.0, (-1.0, 1.0, 3.0), 2),
    Case("mild conflict, d = 2", (-2.0,), 0.5, (1.0,), 2),
    Case("moderate, d = 4", (1.0,), 1.0, (-1.0, 1.0, 3.0), 4),
    Case("two modes, d = 4", (-1.0, 1.0), 0.7, (-1.0, 0.0, 1.0), 4),
)


def errors(case: Case, n: int, seed: int, method: str) -> tuple[float, float, float]:
    """Errors of the mean and of the standard deviation, and the seconds that Bayes' rule took."""
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
        seconds = time.perf_counter() - start
        found = answer.mean(), answer.std()
    return (
        float((abs(found[0] - mean) / std).mean()),
        float((abs(found[1] - std) / std).mean()),
        seconds,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[300, 1000, 3000, 10_000])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=["default", "importance", "squared"])
    parser.add_argument("--cases", nargs="+", default=[case.name for case in CASES])
    options = parser.parse_args()
    for case in CASES:
        if case.name not in options.cases:
            continue
        for method in options.methods:
            for n in options.sizes:
                found = [errors(case, n, seed, method) for seed in range(options.seeds)]
                mean, std, seconds = np.mean(found, axis=0)
                print(
                    f"{case.name:21} {method:11} n = {n:6}: mean {mean:5.2f}, std {std:5.2f}, "
                    f"{1e3 * seconds:5.0f} ms",
                    flush=True,
                )


if __name__ == "__main__":
    main()
