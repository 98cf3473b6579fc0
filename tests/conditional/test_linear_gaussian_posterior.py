"""The linear-Gaussian posterior of Fukumizu, Song and Gretton (2013, section 5.1)."""

from __future__ import annotations

import numpy as np
import pytest

from meanmap import ConditionalEmbedding, embed
from oracles.normals import gaussian_conditional, linear_gaussian_posterior

Array = np.ndarray


class Problem:
    """(X, Y) ~ N(0, V) with V = AᵀA + 2I, the prior on X ~ N(0, V_XX / 2)."""

    def __init__(self, d: int, n: int, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        A = rng.normal(size=(2 * d, 2 * d))
        V = A.T @ A + 2 * np.eye(2 * d)
        Z = rng.multivariate_normal(np.zeros(2 * d), V, size=n)
        self.d, self.X, self.Y = d, Z[:, :d], Z[:, d:]
        self.B, _, self.S = gaussian_conditional(np.zeros(2 * d), V, d)
        self.P = V[:d, :d] / 2
        self.prior = rng.multivariate_normal(np.zeros(d), self.P, size=n)

    def draw(self, m: int) -> tuple[Array, Array]:
        """x from the prior, y from the likelihood."""
        x = self.rng.multivariate_normal(np.zeros(self.d), self.P, size=m)
        noise = self.rng.multivariate_normal(np.zeros(self.d), self.S, size=m)
        return x, x @ self.B.T + noise

    def truth(self, y: Array) -> Array:
        zero = np.zeros(self.d)
        means = [linear_gaussian_posterior(v, self.B, zero, self.S, zero, self.P)[0] for v in y]
        return np.array(means)


def error(posterior, y: Array, truth: Array) -> float:
    return float(((posterior.given(y).mean() - truth) ** 2).sum(axis=1).mean())


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 8, 32])
@pytest.mark.filterwarnings("ignore::meanmap.DataWarning")
def test_the_librarys_own_settings_are_no_worse_than_the_best_fixed_ones(d: int) -> None:
    """Against the squared rule with the median bandwidth, ε = 1e-2, δ = 1e-4, in the same runs.

    The mean of the paired ratios is at most 1 within two standard errors.
    """
    ratios = []
    for seed in range(20):
        problem = Problem(d, 200, seed)
        _, y = problem.draw(200)
        truth, prior = problem.truth(y), embed(problem.prior)
        own = ConditionalEmbedding().fit(problem.X, problem.Y).posterior(prior)
        fixed = ConditionalEmbedding(regularization=1e-2).fit(problem.X, problem.Y)
        fixed = fixed.posterior(prior, "squared", 1e-4)
        ratios.append(error(own, y, truth) / error(fixed, y, truth))
    mean, deviation = np.mean(ratios), np.std(ratios, ddof=1) / np.sqrt(len(ratios))
    assert mean <= 1 + 2 * deviation


@pytest.mark.slow
def test_error_falls_with_the_sample() -> None:
    errors = []
    for n in (100, 400, 1600):
        runs = []
        for seed in range(6):
            problem = Problem(2, n, seed)
            _, y = problem.draw(200)
            posterior = ConditionalEmbedding().fit(problem.X, problem.Y).posterior(problem.prior)
            runs.append(error(posterior, y, problem.truth(y)))
        errors.append(np.mean(runs))
    assert errors[2] < errors[1] < errors[0]
    assert errors[2] < 0.5 * errors[0]


@pytest.mark.slow
def test_credible_intervals_cover() -> None:
    """90% intervals, coordinate by coordinate, over 2,000 draws: between 85 and 95%."""
    inside, total = np.zeros(2), 0
    for seed in range(10):
        problem = Problem(2, 1000, seed)
        x, y = problem.draw(200)
        posterior = ConditionalEmbedding().fit(problem.X, problem.Y).posterior(problem.prior)
        low, high = posterior.given(y).interval(0.9)
        inside += ((low <= x) & (x <= high)).sum(axis=0)
        total += len(x)
    coverage = inside / total
    assert ((coverage >= 0.85) & (coverage <= 0.95)).all(), coverage
