"""Competitors of KernelABC and scores of draws, against loops and closed forms."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from meanmap_experiments.likelihood_free_peers import (
    crps,
    deviations,
    energy_score,
    nearest,
    pyabc_smc,
    regression_adjusted,
    rejection_abc,
)
from optional_packages import require

Simulations = tuple[np.ndarray, np.ndarray]


@pytest.fixture
def simulations() -> Simulations:
    """θ ~ N(0, I₂), outputs θ₁ + θ₂, θ₁ - θ₂ and θ₂, with noise of deviation 0.5."""
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(4000, 2))
    return theta, theta @ LOADINGS.T + 0.5 * rng.normal(size=(4000, 3))


LOADINGS = np.array([[1.0, 1.0], [1.0, -1.0], [0.0, 1.0]])
SEEN = np.array([0.8, -0.2, 0.5])


def exact() -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the posterior for SEEN."""
    covariance = np.linalg.inv(np.eye(2) + LOADINGS.T @ LOADINGS / 0.25)
    return covariance @ LOADINGS.T @ SEEN / 0.25, covariance


# --- rejection ------------------------------------------------------------------------------------


def test_rejection_keeps_the_nearest(simulations: Simulations) -> None:
    theta, outputs = simulations
    scale = np.array([1.0, 2.0, 3.0])
    distances = [sum(((row[k] - SEEN[k]) / scale[k]) ** 2 for k in range(3)) for row in outputs]
    best = sorted(range(len(theta)), key=lambda i: distances[i])[:7]
    assert_array_equal(rejection_abc(theta, outputs, SEEN, 7, scale), theta[best])


def test_outputs_are_made_comparable(simulations: Simulations) -> None:
    theta, outputs = simulations
    units = np.array([1e-3, 1.0, 1e4])
    assert_array_equal(
        rejection_abc(theta, outputs, SEEN, 20),
        rejection_abc(theta, outputs * units, SEEN * units, 20),
    )


def test_deviations() -> None:
    outputs = np.column_stack([[1.0, 2.0, 4.0, 9.0, 2.0], [0, 0, 0, 0, 5.0], [3.0] * 5])
    # medians 2 and 0; a column of which most are equal goes by its standard deviation
    assert_allclose(deviations(outputs), [1.0, 2.0, 1.0])


def test_the_first_left_out() -> None:
    outputs = np.array([[0.0], [1.0], [3.0]])
    order, distance, beyond = nearest(outputs, [0.0], 2, scale=[1.0])
    assert_array_equal(order, [0, 1])
    assert_array_equal(distance, [0.0, 1.0])
    assert beyond == 3.0
    assert nearest(outputs, [0.0], 3, scale=[1.0])[2] > 3.0


@pytest.mark.parametrize(
    ("keep", "y", "message"),
    [(0, SEEN, "keep"), (5000, SEEN, "at most the 4000"), (5, SEEN[:2], "expected 3 numbers")],
)
def test_bad_input(simulations: Simulations, keep: int, y: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rejection_abc(*simulations, y, keep)


# --- regression adjustment ------------------------------------------------------------------------


def test_regression_by_normal_equations(simulations: Simulations) -> None:
    """θ* = θ - (s - y)ᵀβ, (α, β) the minimum of Σ Kᵢ (θᵢ - α - (sᵢ - y)ᵀβ)²."""
    theta, outputs = simulations
    keep = 200
    draws, weights = regression_adjusted(theta, outputs, SEEN, keep, scale=np.ones(3))
    distance = np.sqrt(((outputs - SEEN) ** 2).sum(axis=1))
    order = np.argsort(distance)
    h = distance[order[keep]]
    A, b = np.zeros((4, 4)), np.zeros((4, 2))
    for i in order[:keep]:
        row = np.array([1.0, *(outputs[i] - SEEN)])
        A += (1 - (distance[i] / h) ** 2) * np.outer(row, row)
        b += (1 - (distance[i] / h) ** 2) * np.outer(row, theta[i])
    beta = np.linalg.solve(A, b)[1:]
    expected = [theta[i] - (outputs[i] - SEEN) @ beta for i in order[:keep]]
    assert_allclose(draws, expected, atol=1e-10)
    kernel = 1 - (distance[order[:keep]] / h) ** 2
    assert_allclose(weights, kernel / kernel.sum())


def test_regression_is_right_on_a_linear_model(simulations: Simulations) -> None:
    """From as many simulations as there are, where rejection would answer with the prior."""
    mean, covariance = exact()
    draws, weights = regression_adjusted(*simulations, SEEN, keep=4000)
    assert_allclose(weights @ draws, mean, atol=0.05)
    assert_allclose(np.cov(draws.T, aweights=weights), covariance, atol=0.03)


def test_adjusted_draws_stay_within_bounds() -> None:
    rng = np.random.default_rng(1)
    theta = rng.uniform([0.0, -1.0], [1.0, 1.0], size=(1000, 2))
    outputs = theta + 0.2 * rng.normal(size=theta.shape)
    bounds = [[0.0, 1.0], [-1.0, 1.0]]
    free, _ = regression_adjusted(theta, outputs, [-0.1, 1.2], 300)
    held, weights = regression_adjusted(theta, outputs, [-0.1, 1.2], 300, bounds)
    assert (free < [0.0, -1.0]).any() or (free > 1.0).any()
    assert (held > [0.0, -1.0]).all() and (held < 1.0).all()
    assert weights.sum() == pytest.approx(1)


def test_regression_with_ties_and_without_noise() -> None:
    theta = np.repeat([[0.0], [1.0]], 10, axis=0)
    draws, weights = regression_adjusted(theta, np.ones((20, 1)), [1.0], keep=5)
    assert_array_equal(draws, theta[:5])  # all equally near, and nothing to regress on
    assert_allclose(weights, 0.2)
    with pytest.raises(ValueError, match="more than 4"):
        regression_adjusted(np.zeros((9, 1)), np.zeros((9, 3)), np.zeros(3), keep=4)


# --- scores ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("truth", [-9.0, 0.3, 9.0])
def test_scores_are_their_double_sums(truth: float) -> None:
    rng = np.random.default_rng(2)
    draws, weights = rng.normal(size=(40, 2)), rng.random(40)
    draws[3] = draws[7]  # equal draws
    t, p = np.array([truth, 0.1]), weights / weights.sum()
    pairs = [(i, j) for i in range(40) for j in range(40)]
    expected = sum(p[i] * abs(draws[i] - t) for i in range(40)) - sum(
        p[i] * p[j] * abs(draws[i] - draws[j]) / 2 for i, j in pairs
    )
    assert_allclose(crps(draws, t, weights), expected)
    together = sum(p[i] * np.linalg.norm(draws[i] - t) for i in range(40)) - sum(
        p[i] * p[j] * np.linalg.norm(draws[i] - draws[j]) / 2 for i, j in pairs
    )
    assert energy_score(draws, t, weights) == pytest.approx(together)


def test_crps_of_a_normal() -> None:
    z, n = 0.7, 20_000
    draws = stats.norm.ppf((np.arange(n) + 0.5) / n)[:, None]
    closed = z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi)
    assert_allclose(crps(draws, [z]), closed, atol=1e-4)
    assert energy_score(draws[::20], [z]) == pytest.approx(closed, abs=2e-3)


def test_scores_of_one_draw_are_distances() -> None:
    assert_allclose(crps([[1.0, 2.0]], [4.0, -2.0]), [3.0, 4.0])
    assert energy_score([[1.0, 2.0]], [4.0, -2.0]) == 5.0
    with pytest.raises(ValueError, match="rows of 1"):
        crps([[1.0, 2.0]], [4.0])


# --- pyABC ----------------------------------------------------------------------------------------

PRIOR = {"a": stats.norm(0, 1), "b": stats.norm(loc=0, scale=1)}


def measured(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return LOADINGS @ theta + 0.5 * rng.normal(size=3)


def test_pyabc() -> None:
    require("pyabc")
    before = np.random.get_state()[1].copy()  # type: ignore[index, union-attr]  # noqa: NPY002
    calls: list[int] = []

    def simulator(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        calls.append(1)
        assert theta.shape == (2,)
        return measured(theta, rng)

    draws, weights, used = pyabc_smc(simulator, PRIOR, SEEN, budget=1200, seed=3)
    assert used == len(calls) <= 1200
    assert draws.shape == (30, 2)
    assert weights.sum() == pytest.approx(1)
    mean, covariance = exact()  # deviations 0.28; the tolerance that is left widens them
    assert_allclose(weights @ draws, mean, atol=0.25)
    assert (np.sqrt(np.diag(np.cov(draws.T, aweights=weights))) < 0.7).all()
    again = pyabc_smc(measured, PRIOR, SEEN, budget=1200, seed=3)
    assert_array_equal(again[0], draws)
    after = np.random.get_state()[1]  # type: ignore[index, union-attr]  # noqa: NPY002
    assert_array_equal(after, before)


def test_pyabc_on_too_small_a_budget() -> None:
    require("pyabc")
    with pytest.raises(ValueError, match="Raise the budget or ask for fewer particles"):
        pyabc_smc(measured, PRIOR, SEEN, budget=100, seed=0, particles=80)


def test_without_pyabc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyabc", None)
    with pytest.raises(ImportError, match="pip install pyabc"):
        pyabc_smc(measured, PRIOR, SEEN, budget=100, seed=0)
