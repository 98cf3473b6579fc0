"""Kernel Bayes' rule against densities and importance weights: the pieces, and a small run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from meanmap_experiments import Figure, Outcome, bayes
from meanmap_experiments.bayes import (
    BEST,
    BEST_FINE,
    COARSE,
    DENSITY,
    FINE,
    IMPORTANCE,
    KERNEL,
    LSCV_FINE,
    MEDIAN,
    NONNEGATIVE,
    PRIOR,
    REACH,
    LinearGaussian,
    Plan,
)
from oracles.kernels import gaussian
from oracles.likelihood_free import kde_importance_mean, least_squares_cross_validation
from oracles.normals import gaussian_conditional, linear_gaussian_posterior
from oracles.rules import bayes_squared_b, marginal_discrepancy

SMALL = Plan(dimensions=(2, 8), n=100, runs=4, tests=100, sizes=(50, 100, 200), folds=2)


def row(outcome: Outcome, table: int, name: str) -> list[Figure]:
    (cells,) = [cells for cells in outcome.tables[table].rows if cells[0] == name]
    return list(cells[1:])  # type: ignore[arg-type]


# --- the model ------------------------------------------------------------------------------------


def test_the_model_is_the_papers() -> None:
    rng = np.random.default_rng(0)
    model = LinearGaussian.drawn(3, rng)
    V, d = model.V, 3
    assert np.linalg.eigvalsh(V).min() >= 2
    y = model.observations(5, rng)
    B, b, S = gaussian_conditional(np.r_[np.zeros(d), np.ones(d)], V, d)
    exact, _ = linear_gaussian_posterior(y, B, b, S, np.zeros(d), V[:d, :d] / 2)
    assert_allclose(model.posterior_mean(y), exact, atol=1e-10)


def test_samples_have_the_models_moments() -> None:
    rng = np.random.default_rng(1)
    model = LinearGaussian.drawn(2, rng)
    n, d, V = 200_000, 2, model.V
    X, Y = model.joint(n, rng)
    U = model.prior(n, rng)
    scale = np.abs(V).max()
    for points, mean, covariance in (
        (np.concatenate([X, Y], axis=1), [0, 0, 1, 1], V),
        (U, [0, 0], V[:d, :d] / 2),
        (model.observations(n, rng), [0, 0], V[d:, d:]),
        # under P itself, X and its simulated Y are the joint sample again
        (np.concatenate([X, model.simulate(X, rng)], axis=1), [0, 0, 1, 1], V),
    ):
        assert_allclose(points.mean(axis=0), mean, atol=6 * np.sqrt(scale / n))
        assert_allclose(np.cov(points.T), covariance, atol=10 * scale / np.sqrt(n))


# --- densities ------------------------------------------------------------------------------------


@pytest.mark.parametrize("h", [0.5, 2.0])
def test_density_means(h: float) -> None:
    rng = np.random.default_rng(2)
    model = LinearGaussian.drawn(2, rng)
    X, Y = model.joint(15, rng)
    U, y = model.prior(12, rng), model.observations(4, rng)
    (means,) = bayes.density_means(X, Y, U, y, [h])
    expected = [kde_importance_mean(X, Y, U, h, value) for value in y]
    assert_allclose(means, expected, rtol=1e-9, atol=1e-9)


def test_density_means_survive_underflow() -> None:
    """A kernel so narrow that every product underflows: the nearest pair takes all the weight."""
    X, Y = np.array([[0.0], [10.0]]), np.array([[0.0], [10.0]])
    U = np.array([[0.1], [0.2], [9.0]])
    (mean,) = bayes.density_means(X, Y, U, np.array([[9.5]]), [0.05])
    assert_allclose(mean, [[9.0]])
    X, Y = np.array([[0.0], [1.0]]), np.array([[0.0], [50.0]])
    U = np.array([[0.1], [0.2]])  # both near the pair that y = 49 is far from
    (mean,) = bayes.density_means(X, Y, U, np.array([[49.0]]), [0.02])
    # log p̂(y|u) is the larger of -49²/2h² and (-(1-u)² + u²)/2h² - 1/2h²: the second, and u = 0.2
    assert_allclose(mean, [[0.2]])


def test_least_squares_width() -> None:
    rng = np.random.default_rng(3)
    for d in (1, 3):
        Z = rng.normal(size=(40, d))
        grid = (0.1, 0.2, 0.4, 0.8, 1.6)
        values = [least_squares_cross_validation(Z, h) for h in grid]
        assert bayes.least_squares_width(Z, grid) == grid[int(np.argmin(values))]
    # in 128 dimensions densities underflow, and the choice remains inside the grid
    Z = 10 * rng.normal(size=(100, 128))
    assert FINE[0] < bayes.least_squares_width(Z, FINE) < FINE[-1]


def test_the_grids() -> None:
    assert COARSE == (2, 4, 6, 8, 10, 12, 14, 16, 18, 20)
    assert FINE[0] == 0.25 and FINE[-1] == 32 and 2.0 in FINE


# --- kernel Bayes' rule ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "epsilon", "delta"), [(MEDIAN, 1e-2, 1e-4), (bayes.MEDIAN_N, 1e-4, 2e-4)]
)
def test_the_papers_settings(method: str, epsilon: float, delta: float) -> None:
    rng = np.random.default_rng(4)
    model = LinearGaussian.drawn(4, rng)
    n = 100
    X, Y = model.joint(n, rng)
    U, y = model.prior(n, rng), Y[:10] * 0.5
    x, z = (float(np.median(_pairs(points))) for points in (X, Y))
    weights = bayes_squared_b(
        gaussian(X, X, x),
        gaussian(Y, Y, z),
        gaussian(X, U, x),
        np.full(n, 1 / n),
        gaussian(Y, y, z),
        epsilon,
        delta,
    )
    assert_allclose(bayes.kernel_means(method, X, Y, U, y, 2), weights.T @ X, atol=1e-5)


def _pairs(points: np.ndarray) -> np.ndarray:
    i, j = np.triu_indices(len(points), k=1)
    return np.linalg.norm(points[i] - points[j], axis=1)


def test_cross_validation_is_the_papers_in_a_reference_kernel() -> None:
    rng = np.random.default_rng(5)
    model = LinearGaussian.drawn(2, rng)
    X, Y = model.joint(60, rng)
    epsilon, delta, folds = 1e-2, 1e-4, 3
    x, z = (float(np.median(_pairs(points))) for points in (X, Y))
    parts = [np.flatnonzero(np.arange(60) % folds == fold) for fold in range(folds)]
    reference = gaussian(X, X, x)

    def discrepancy(sigma_x: float, sigma_y: float) -> float:
        K, G = gaussian(X, X, sigma_x), gaussian(Y, Y, sigma_y)
        return marginal_discrepancy(K, G, parts, epsilon, delta, reference)

    sigma_x = min((f * x for f in bayes.FACTORS), key=lambda s: discrepancy(s, z))
    sigma_y = min((f * z for f in bayes.FACTORS), key=lambda s: discrepancy(sigma_x, s))
    found = bayes.cross_validated(X, Y, epsilon, delta, folds)
    assert_allclose([kernel.bandwidth for kernel in found], [sigma_x, sigma_y])


# --- the experiment -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return bayes.run(plan=SMALL, seed=1, progress=False)


@pytest.mark.slow
def test_a_small_run(outcome: Outcome) -> None:
    errors, ratios, widths, sizes = outcome.tables
    assert errors.headings == ("method", "d = 2", "d = 8")
    assert [cells[0] for cells in errors.rows] == [*KERNEL, *DENSITY, PRIOR]
    for cells in errors.rows:
        assert all(isinstance(cell, Figure) and cell.runs == SMALL.runs for cell in cells[1:])
    assert sizes.headings == ("method", "n = 50", "n = 100", "n = 200")
    # with seeds 0 to 5: 0.30 to 0.38 of the best density estimate at d = 8, n = 100
    ours, best, prior = (row(outcome, 0, m)[1].mean for m in (IMPORTANCE, BEST_FINE, PRIOR))
    assert ours < 0.7 * best < 0.7 * prior
    for default, clipped in zip(
        *(row(outcome, 0, m) for m in (NONNEGATIVE, IMPORTANCE)), strict=True
    ):
        assert default.mean < 1.1 * clipped.mean
    few, _, many = row(outcome, 3, IMPORTANCE)
    assert many.mean < 0.8 * few.mean
    # the paper's grid is too coarse at d = 2
    assert row(outcome, 0, BEST_FINE)[0].mean < 0.9 * row(outcome, 0, BEST)[0].mean
    (two, eight) = row(outcome, 2, BEST_FINE)
    assert two < 2 <= eight  # type: ignore[operator]


@pytest.mark.slow
def test_ratios_are_to_the_best_density_estimate(outcome: Outcome) -> None:
    least = min(row(outcome, 0, method)[1].mean for method in DENSITY)
    found = row(outcome, 1, IMPORTANCE)[1]
    assert found == pytest.approx(row(outcome, 0, IMPORTANCE)[1].mean / least)
    assert row(outcome, 1, "at most") == [None, REACH[8]]


def test_the_verdict_follows_the_figures() -> None:
    plan = Plan(dimensions=(2, 8), n=10, sizes=())

    def errors(ours: float, fine: float) -> bayes.Errors:
        level = {m: 1.0 for m in (*DENSITY, PRIOR)} | {m: ours for m in KERNEL}
        level[LSCV_FINE] = fine
        spread = np.array([0.99, 1.01, 1.0])
        return {(d, 10, m): list(v * spread) for d in plan.dimensions for m, v in level.items()}

    lines = bayes.verdict(plan, errors(0.3, 1.0))
    assert "0.30 at d = 8; at most 0.35 holds at every d" in lines[0].text
    assert "below it by paired differences" in lines[4].text
    assert lines[0].holds is True and lines[4].holds is True
    lines = bayes.verdict(plan, errors(0.3, 0.3))
    assert "1.00 at d = 8; at most 0.35 does not hold at d = 8" in lines[0].text
    assert "level with it by paired differences" in lines[4].text
    assert lines[0].holds is False and lines[4].holds is None
    lines = bayes.verdict(plan, errors(0.4, 0.3))
    assert "above it by paired differences" in lines[4].text
    assert lines[4].holds is False
    assert "outperforms" in str(lines[-1].published) and lines[-1].holds is None


def test_the_same_seed_gives_the_same_figures() -> None:
    plan = replace(SMALL, tests=10)
    first, again, other = (bayes.one_run(plan, 2, 50, 0, seed)[0] for seed in (2, 2, 3))
    assert first == again
    assert first != other


@pytest.mark.slow
def test_it_reads_and_draws(outcome: Outcome) -> None:
    assert "importance-weighted" in repr(outcome)
    assert outcome.to_json()
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="pip install 'meanmap[plot]'")
    outcome.plot()
    pyplot.close("all")


@pytest.mark.slow
def test_quick_run() -> None:
    outcome = bayes.run(quick=True, progress=False)
    assert outcome.quick and outcome.tables and outcome.verdict
