"""Draws of a posterior whose likelihood is known, under a standard normal prior.

A population of draws of the prior is brought to the posterior in steps: the likelihood is raised to
powers that grow up to one, each as far as half of the population keeps its weight; draws are then
resampled by weight and moved by Markov steps along differences of other draws, which keep the law
and jump between modes (Del Moral, Doucet and Jasra 2006; ter Braak 2006).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

SMALLER = 4  # times fewer draws on the way than at the end
FEWEST = 256  # draws on the way
MOVES, LAST = 5, 15  # Markov steps at each power, and at the last
JUMPS = 0.15  # of the steps, along a whole difference
SHORT = 0.3  # of the usual length: half of the other steps
JITTER = 1e-4  # added to each step
STEPS = 100  # powers, at most


@dataclass
class Population:
    """Draws (n, d) in normal coordinates, with the logarithms (n,) of their likelihoods."""

    z: np.ndarray
    logs: np.ndarray

    def next_power(self, power: float, least: float) -> float:
        """The largest power up to one, at which the effective size is not less."""

        def enough(at: float) -> bool:
            p = np.exp((at - power) * (self.logs - self.logs.max()))
            return bool(p.sum() ** 2 >= least * (p @ p))

        if enough(1.0):
            return 1.0
        low, high = power, 1.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if enough(middle) else (low, middle)
        return high

    def resample(self, change: float, n: int, rng: np.random.Generator) -> Population:
        """n draws by weights `likelihood^change`, in random order."""
        F = np.cumsum(np.exp(change * (self.logs - self.logs.max())))
        levels = (np.arange(n) + rng.random()) / n * F[-1]
        rows = rng.permutation(np.searchsorted(F[:-1], levels))
        return Population(self.z[rows], self.logs[rows])

    def move(
        self,
        log_likelihood: Callable[[np.ndarray], np.ndarray],
        power: float,
        rng: np.random.Generator,
    ) -> None:
        """A Markov step of one half of the draws along differences of the other, then of that."""
        d = self.z.shape[1]
        for half in (0, 1):
            own, others = np.arange(half, len(self.z), 2), self.z[1 - half :: 2]
            i, j = rng.integers(len(others), size=(2, len(own)))
            length = 2.38 / np.sqrt(2 * d) * rng.choice([SHORT, 1.0], size=len(own))
            length = np.where(rng.random(len(own)) < JUMPS, 1.0, length)[:, None]
            z = self.z[own] + length * (others[i] - others[j])
            z += JITTER * rng.normal(size=z.shape)
            logs = log_likelihood(z)
            prior = 0.5 * ((self.z[own] ** 2).sum(axis=1) - (z**2).sum(axis=1))
            gain = power * (logs - self.logs[own]) + prior
            taken = np.log(rng.random(len(own))) < gain
            self.z[own[taken]], self.logs[own[taken]] = z[taken], logs[taken]


def temper(
    start: Population,
    log_likelihood: Callable[[np.ndarray], np.ndarray],
    n: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """n draws (n, d) of the posterior, from draws of the prior."""
    few = max(FEWEST, n // SMALLER)
    now, power = start, 0.0
    for _ in range(STEPS):
        after = now.next_power(power, few / 2)
        last = after == 1
        now, power = now.resample(after - power, n if last else few, rng), after
        for _ in range(LAST if last else MOVES):
            now.move(log_likelihood, power, rng)
        if last:
            break
    return now.z
