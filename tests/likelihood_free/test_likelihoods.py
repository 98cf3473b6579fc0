"""Learned likelihoods: priors as maps of normal numbers, tempered draws, noise, and posteriors."""

from __future__ import annotations

import pickle
import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import meanmap
from meanmap import ConditionalEmbedding, DataWarning, KernelABC
from meanmap.likelihood_free import posteriors
from meanmap.likelihood_free.likelihoods import (
    Correlation,
    LikelihoodPosterior,
    NoiseMixture,
    OutputLaw,
    OutputScale,
    expansion_of,
)
from meanmap.likelihood_free.posteriors import PosteriorModel, too_narrow
from meanmap.likelihood_free.priors import prior_of
from meanmap.likelihood_free.screening import dependent_columns
from meanmap.likelihood_free.tempering import Population, temper

PRIORS: dict[str, Any] = {
    "normal": stats.norm(1.0, 2.0),
    "uniform": stats.uniform(-1, 3),
    "gamma": stats.gamma(2.0),
    "lognormal": stats.lognorm(0.5),
}


# --- priors as functions of normal numbers --------------------------------------------------------


def test_normal_numbers_become_draws_of_the_prior() -> None:
    found = prior_of(PRIORS).normal_map()
    assert found is not None
    theta = found.points(np.random.default_rng(0).normal(size=(5000, 4)))
    for column, part in zip(theta.T, PRIORS.values(), strict=True):
        assert stats.kstest(column, part.cdf).pvalue > 1e-6


def test_whole_numbers_stay_whole() -> None:
    prior = stats.poisson(3.0)
    found = prior_of(prior).normal_map()
    assert found is not None and found.whole.all()
    theta = found.points(np.random.default_rng(0).normal(size=(20_000, 1)))[:, 0]
    assert_array_equal(theta, np.round(theta))
    for k in range(8):
        assert_allclose((theta == k).mean(), prior.pmf(k), atol=0.02)  # five standard errors


def test_a_normal_prior_of_several_numbers() -> None:
    C = np.array([[2.0, 1.2], [1.2, 1.0]])
    found = prior_of(stats.multivariate_normal([1.0, -1.0], C)).normal_map()
    assert found is not None
    theta = found.points(np.random.default_rng(0).normal(size=(50_000, 2)))
    assert_allclose(theta.mean(axis=0), [1.0, -1.0], atol=0.04)
    assert_allclose(np.cov(theta.T), C, atol=0.08)


@pytest.mark.parametrize("value", [lambda n, rng: rng.normal(size=(n, 2)), np.zeros((5, 2))])
def test_a_prior_known_by_draws_has_no_map(value: Any) -> None:
    assert prior_of(value).normal_map() is None


@pytest.mark.parametrize("prior", [PRIORS, stats.multivariate_normal(np.zeros(4))])
def test_draws_in_a_box(prior: Any) -> None:
    found = prior_of(prior).normal_map()
    assert found is not None
    box = np.array([[0.0, 0.0, 0.5, 0.5], [1.0, 1.0, 1.5, 2.0]])
    theta = found.points(found.draw(2000, box, np.random.default_rng(0)))
    assert (theta > box[0] - 1e-6).all() and (theta < box[1] + 1e-6).all()
    if prior is PRIORS:  # as the prior is within it
        part = stats.truncnorm(-0.5, 0.0, loc=1.0, scale=2.0)
        assert stats.kstest(theta[:, 0], part.cdf).pvalue > 1e-6


# --- tempered draws -------------------------------------------------------------------------------


def draw(log_likelihood: Any, d: int, n: int = 4000) -> np.ndarray:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(20_000, d))
    return temper(Population(z, log_likelihood(z)), log_likelihood, n, rng)


def test_draws_of_a_normal_posterior() -> None:
    """Prior N(0, I), likelihood N(y - Az, s²): precision I + AᵀA/s²."""
    A, s, y = np.array([[1.0, 0.5], [0.0, 1.0], [1.0, -1.0]]), 0.05, np.array([1.5, -1.0, 2.0])
    found = draw(lambda z: -0.5 * ((y - z @ A.T) ** 2).sum(axis=1) / s**2, 2)
    C = np.linalg.inv(np.eye(2) + A.T @ A / s**2)
    unit = np.sqrt(np.diag(C))
    # chains of a population are dependent: a few times the error of independent draws
    assert_allclose((found.mean(axis=0) - C @ A.T @ y / s**2) / unit, 0.0, atol=0.15)
    assert_allclose(np.cov(found.T) / np.outer(unit, unit), C / np.outer(unit, unit), atol=0.2)


def test_draws_of_two_sharp_modes() -> None:
    def log_likelihood(z: np.ndarray) -> np.ndarray:
        near, far = (((z - centre) ** 2).sum(axis=1) / 2e-3 for centre in (1.0, -1.0))
        return np.logaddexp(np.log(0.3) - near, np.log(0.7) - far)

    found = draw(log_likelihood, 2)
    right = found[:, 0] > 0
    assert_allclose(right.mean(), 0.3, atol=0.1)
    assert_allclose(found[right].mean(axis=0), 1.0, atol=0.02)
    assert_allclose(found[~right].std(axis=0), np.sqrt(1e-3), rtol=0.2)


# --- the law of outputs ---------------------------------------------------------------------------


def test_an_expansion_is_the_conditional_mean() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    y = np.column_stack([np.sin(x[:, 0]), x[:, 1] ** 2]) + 0.1 * rng.normal(size=(300, 2))
    model = ConditionalEmbedding().fit(x, y)
    new = rng.normal(size=(20, 2))
    assert_allclose(expansion_of(model.operator_, y)(new), model.predict(new), atol=1e-6)


def test_the_density_of_a_mixture() -> None:
    rng = np.random.default_rng(0)
    wide = rng.random(2000) < 0.5
    noise = np.where(wide[:, None], 1.0, 0.1) * rng.normal(size=(2000, 2))
    found = NoiseMixture.of(noise)
    assert 2 <= len(found.logs) <= 4
    at = rng.normal(size=(50, 2)) * 0.5
    by_hand = sum(
        np.exp(log) * stats.multivariate_normal(m, np.linalg.inv(F @ F.T)).pdf(at)
        for log, m, F in zip(found.logs, found.means, found.factors, strict=True)
    )
    assert_allclose(found.log_density(at), np.log(by_hand), rtol=1e-9, atol=1e-9)
    parts = [stats.multivariate_normal([0, 0], s**2 * np.eye(2)).pdf(at) for s in (1.0, 0.1)]
    assert_allclose(found.log_density(at), np.log(np.mean(parts, axis=0)), atol=0.5)


def test_scales_of_outputs() -> None:
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(500, 1))
    noise = rng.normal(size=500)
    columns = [
        np.exp(2 * theta[:, 0] + 0.1 * noise),  # a logarithm
        rng.poisson(100 * np.exp(theta[:, 0])),  # a root
        theta[:, 0] + 0.1 * noise,  # as it is
        np.full(500, 3.0),  # says nothing
    ]
    outputs = np.column_stack(columns).astype(float)
    found = OutputScale.of(theta, outputs)
    assert_array_equal(found.kept, [0, 1, 2])
    assert_array_equal(found.logs, [True, False, False])
    assert not found.roots[2]
    u = found.forward(outputs)
    assert_allclose(u.mean(axis=0), 0.0, atol=1e-9)
    assert_allclose(u.std(axis=0), 1.0, rtol=1e-9)
    assert np.isfinite(found.forward(np.array([[-1.0, -1.0, 0.0, 0.0]]))).all()


def test_correlations_that_vary() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(2000, 1))
    rho = np.tanh(x[:, 0])
    first, second = rng.normal(size=(2, 2000))
    noise = np.column_stack([first, rho * first + np.sqrt(1 - rho**2) * second])
    found = Correlation.of(x, noise)
    assert found is not None
    law, white = found
    at = np.array([[-1.5], [0.0], [1.5]])
    assert_allclose(law.products(at)[:, 0], np.tanh(at[:, 0]), atol=0.15)
    right = x[:, 0] > 1
    assert np.corrcoef(noise[right].T)[0, 1] > 0.8
    assert abs(np.corrcoef(white[right].T)[0, 1]) < 0.5
    # C^(-1/2) and log √det of a matrix written out
    roots, sizes = law.roots(at)
    C = np.array([[1.0, law.products(at)[2, 0]], [law.products(at)[2, 0], 1.0]])
    assert_allclose(roots[2] @ C @ roots[2], np.eye(2), atol=1e-9)
    assert_allclose(sizes[2], 0.5 * np.log(np.linalg.det(C)))
    fixed = np.column_stack([first, 0.5 * first + second])
    assert Correlation.of(x, fixed) is None


def test_the_density_of_outputs_whose_correlation_varies() -> None:
    """It integrates to one, wherever the parameter lies."""
    rng = np.random.default_rng(0)
    theta = rng.uniform(-2, 2, size=(800, 1))
    rho = np.tanh(theta[:, 0])
    first, second = rng.normal(size=(2, 800))
    outputs = np.column_stack([first, rho * first + np.sqrt(1 - rho**2) * second]) + theta
    law = OutputLaw.of(theta, outputs, (np.array([-np.inf]), np.array([np.inf])))
    assert law is not None and law.correlation is not None
    side = np.linspace(-8, 8, 81)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    for at in ([-1.5], [1.5]):
        _, *others = law.moments(np.array([at]))
        rows = [np.repeat(part, len(grid), axis=0) for part in others]
        # one output at many means is as good as many outputs at one mean
        logs = law.log_density(np.zeros(2), (grid, *rows))
        assert np.exp(logs).sum() * (side[1] - side[0]) ** 2 == pytest.approx(1.0, abs=0.02)


@pytest.mark.slow
def test_the_density_of_outputs_is_the_truth() -> None:
    """y = (θ², θ) and noise that grows: against the density written out."""
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(3000, 1))
    mean = np.hstack([theta**2, theta])
    outputs = mean + 0.3 * rng.normal(size=mean.shape)
    law = OutputLaw.of(theta, outputs, (np.array([-np.inf]), np.array([np.inf])))
    assert law is not None
    at = np.linspace(-1.5, 1.5, 25)[:, None]
    y = np.array([1.0, 0.8])
    found = law.log_density(law.outputs.forward(y[None])[0], law.moments(at))
    truth = -0.5 * ((y - np.hstack([at**2, at])) ** 2).sum(axis=1) / 0.09
    near = truth > truth.max() - 5
    difference = found[near] - truth[near]
    assert np.ptp(difference) < 1.0


# --- posteriors -----------------------------------------------------------------------------------


def square(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return theta**2 + 0.1 * rng.normal(size=theta.shape)


@cache
def two_roots() -> KernelABC:
    return KernelABC(square, stats.norm(), random_state=0, progress=False).fit(500)


def test_two_roots_are_two_modes() -> None:
    posterior = two_roots().posterior([1.0])
    assert_allclose(posterior.share(-np.inf, 0.0), 0.5, atol=0.1)
    assert posterior.share(-0.7, 0.7) < 0.02
    draws = posterior.sample(2000, rng=0)
    assert len(np.unique(draws)) == 2000
    assert_allclose(abs(draws).mean(), 1.0, atol=0.03)
    assert_allclose(abs(draws).std(), 0.05, atol=0.02)  # 0.1 over the slope, 2
    assert_allclose(posterior.mean(), draws.mean(), atol=0.15)


def test_ranks_are_uniform_with_two_modes() -> None:
    ranks = two_roots().calibrate(300).ranks[:, 0]
    assert stats.kstest(ranks, "uniform").pvalue > 1e-5


def test_kernels_of_ones_own_are_those_of_the_regression() -> None:
    """With a kernel that is given, the mean is that of eq. 19."""
    kernel = meanmap.kernels.Gaussian(0.5)
    model = KernelABC(square, stats.norm(), kernel_y=kernel, random_state=0, progress=False)
    posterior = model.fit(300).posterior([1.0])
    v = posterior.weights
    assert_allclose(posterior.mean(), v @ model.theta_ / v.sum(), atol=1e-8)


def test_many_outputs_are_summarised_first() -> None:
    """Forty noisy copies of a parameter: their mean has the deviation 0.5/√40."""

    def simulator(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return theta + 0.5 * rng.normal(size=(len(theta), 40))

    model = KernelABC(simulator, stats.norm(), random_state=0, progress=False).fit(500)
    y = 1.0 + 0.5 * np.random.default_rng(1).normal(size=40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # few outputs are alike in 40 columns
        posterior = model.posterior(y)
    exact = 0.5 / np.sqrt(40 + 0.25)
    assert_allclose(posterior.mean(), y.sum() / (40 + 0.25), atol=3 * exact)
    assert 0.7 < posterior.std()[0] / exact < 2.0


@pytest.mark.slow
def test_outputs_that_are_noise_are_left_out() -> None:
    """Two numbers that matter among sixty: the posterior is that of the two."""
    told = [7, 31]

    def simulator(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        found = rng.standard_t(2, size=(len(theta), 60))
        found[:, told] = theta + 0.2 * rng.normal(size=(len(theta), 2))
        return found

    model = KernelABC(simulator, stats.norm(), random_state=0, progress=False).fit(500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # few outputs are alike in 60 columns
        posterior = model.posterior(simulator(np.array([[1.0]]), np.random.default_rng(1))[0])
    y = simulator(np.array([[1.0]]), np.random.default_rng(1))[0, told]
    exact = 0.2 / np.sqrt(2 + 0.04)
    assert_allclose(posterior.mean(), y.sum() / (2 + 0.04), atol=exact)
    assert_allclose(posterior.std(), exact, rtol=0.25)


def test_a_count_that_is_nearly_always_zero_does_no_harm() -> None:
    """One simulation in five hundred has another value: a likelihood is learned of the rest."""
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(1000, 1))
    rare = (rng.random((1000, 1)) < 0.002).astype(float)
    assert 0 < rare.sum() < 10
    support = np.array([-np.inf]), np.array([np.inf])
    law = OutputLaw.of(theta, np.hstack([rare, theta + rng.normal(size=(1000, 1))]), support)
    assert law is not None
    assert_array_equal(law.outputs.kept, [1])


@pytest.mark.parametrize("n", [300, 4000])
def test_columns_that_depend_on_parameters(n: int) -> None:
    """By their means, their spreads, or a curve; others are noise, with heavy tails in part."""
    rng = np.random.default_rng(0)
    theta = rng.uniform(-1, 1, size=(n, 3))
    outputs = rng.standard_t(1, size=(n, 40))
    outputs[:, 0] = theta[:, 0] + 0.5 * rng.normal(size=n)
    outputs[:, 5] = np.exp(2 * theta[:, 1]) * rng.normal(size=n)
    outputs[:, 39] = 1e6 * np.cos(3 * theta[:, 2]) + 3e5 * rng.normal(size=n)
    assert_array_equal(dependent_columns(theta, outputs), [0, 5, 39])


def test_a_power_of_the_likelihood_widens_a_posterior() -> None:
    """Of normal noise of deviation 0.1: σ² grows by one over the power."""
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(500, 1))
    support = np.array([-np.inf]), np.array([np.inf])
    law = OutputLaw.of(theta, theta + 0.1 * rng.normal(size=(500, 1)), support)
    prior = prior_of(stats.norm()).normal_map()
    assert law is not None and prior is not None
    for power in (1.0, 0.25):
        points, p = LikelihoodPosterior(law, prior, None, power).belief(np.array([0.3]), 2000)
        deviation = np.sqrt(p @ (points[:, 0] - p @ points[:, 0]) ** 2)
        assert_allclose(deviation, 0.1 / np.sqrt(power + 0.01), rtol=0.15)


@pytest.mark.parametrize(("refused", "power"), [(0, 1.0), (2, 0.5), (4, None)])
def test_a_likelihood_that_is_too_sure_is_taken_with_a_power(
    refused: int, power: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first power whose posteriors are not too narrow; residuals if every power fails."""
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(200, 1))
    outputs, ends = square(theta, rng), (np.array([-np.inf]), np.array([np.inf]))
    model = PosteriorModel.of(theta, outputs, np.full(200, 1 / 200), ends, None, None, "auto")
    answers = iter([True] * refused + [False])
    monkeypatch.setattr(posteriors, "too_narrow", lambda *_: next(answers))
    found = model.try_likelihood(outputs, prior_of(stats.norm()).normal_map()).likelihood
    assert (found.power if found is not None else None) == power


def test_answers_survive_pickle_and_files(tmp_path: Any) -> None:
    model = two_roots()
    before = model.posterior([1.0])
    again = pickle.loads(pickle.dumps(before))
    assert_array_equal(again.sample(50, rng=0), before.sample(50, rng=0))
    path = tmp_path / "model.mm"
    meanmap.save(model, path)
    assert_array_equal(meanmap.load(path).posterior([1.0]).mean(), before.mean())


@pytest.mark.slow
def test_rounds_keep_the_likelihood() -> None:
    model = KernelABC(square, stats.norm(), random_state=0, progress=False).fit(300)
    model.refine([1.0], 200)
    posterior = model.posterior([1.0])
    assert posterior.share(-0.7, 0.7) < 0.05
    assert_allclose(abs(posterior.sample(1000, rng=0)).mean(), 1.0, atol=0.03)


@pytest.mark.slow
def test_intervals_that_are_too_narrow_are_seen() -> None:
    """Intervals of half the width hold 59% of normal parameters; few right ones fail."""
    rng = np.random.default_rng(0)
    p, failed = np.full(400, 1 / 400), 0
    for _ in range(100):
        truth = rng.normal(size=(120, 2))
        wide = [(rng.normal(size=(400, 2)), p)] * 120
        failed += too_narrow(wide, truth)
        assert too_narrow([(points * [1.0, 0.5], p) for points, _ in wide], truth)
    assert failed <= 10  # one in a hundred, and the points' own chance


def test_outputs_of_few_values_have_no_noise_around_a_mean() -> None:
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(300, 1))
    support = np.array([-np.inf]), np.array([np.inf])
    counts = rng.poisson(0.3 * np.exp(theta))
    assert OutputLaw.of(theta, counts.astype(float), support) is None
    assert OutputLaw.of(theta, theta + rng.normal(size=(300, 1)), support) is not None
