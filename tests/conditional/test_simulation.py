"""Bayes' rule by simulated pairs: against conjugate posteriors, and at the edges."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from meanmap import ConditionalEmbedding, DataWarning, bayes_rule, embed, load, save
from meanmap.conditional.beliefs import smooth_draws_of
from meanmap.kernels import Delta, Gaussian

Array = np.ndarray


def linear_model(n: int, d: int, seed: int = 0) -> tuple[Array, Array, np.random.Generator]:
    """X ~ N(0, 4I), Y = X + N(0, I)."""
    rng = np.random.default_rng(seed)
    X = 2 * rng.normal(size=(n, d))
    return X, X + rng.normal(size=(n, d)), rng


def conjugate(y: Array, mean: Array, std: float) -> tuple[Array, float]:
    """The posterior's mean and deviation under the prior N(mean, std² I)."""
    gain = std**2 / (std**2 + 1)
    return mean + gain * (y - mean), (gain**0.5)


# --- draws ----------------------------------------------------------------------------------------


def test_smooth_draws_keep_mean_and_covariance() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(50, 3)) @ rng.normal(size=(3, 3))
    p = rng.dirichlet(np.ones(50))
    draws = smooth_draws_of(points, p, 200_000, rng, None)
    away = points - p @ points
    covariance = away.T @ (p[:, None] * away)
    scale = np.sqrt(np.diag(covariance))
    # six standard errors of 200,000 draws, whose kurtosis is at most 9 here
    assert (abs(draws.mean(axis=0) - p @ points) < 6 * scale / 200_000**0.5).all()
    assert (abs(np.cov(draws.T) - covariance) < 0.03 * np.outer(scale, scale)).all()
    assert len(np.unique(draws[:, 0])) == 200_000


def test_without_width_draws_are_the_points() -> None:
    points = np.arange(4.0)[:, None]
    p, rng = np.array([0.0, 0.5, 0.5, 0.0]), np.random.default_rng(0)
    draws = smooth_draws_of(points, p, 100, rng, np.zeros(1))
    assert set(draws[:, 0].round(12)) == {1.0, 2.0}


# --- posteriors -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 5])
def test_narrow_priors_have_the_exact_posterior(d: int) -> None:
    X, Y, rng = linear_model(1000, d)
    mean = 0.5 * np.eye(d)[0]
    prior = mean + 0.3 * rng.normal(size=(1000, d))
    y = mean + 0.3 * rng.normal(size=(200, d)) + rng.normal(size=(200, d))
    found = ConditionalEmbedding().fit(X, Y).posterior(prior)
    exact, std = conjugate(y, mean, 0.3)
    answer = found.given(y)
    assert np.sqrt((((answer.mean() - exact) / std) ** 2).mean()) < 0.2
    assert_allclose(np.exp(np.log(answer.std() / std).mean()), 1.0, atol=0.08)
    low, high = answer.interval(0.9)
    law = stats.norm(exact, std)
    assert 0.86 < (law.cdf(high) - law.cdf(low)).mean() < 0.94


@pytest.mark.filterwarnings("ignore::meanmap.DataWarning")
@pytest.mark.parametrize(("d", "y"), [(1, 2.0), (3, 0.5)])
def test_observations_that_the_prior_makes_unlikely(d: int, y: float) -> None:
    """3.6 deviations from what the prior predicts: the mean was one deviation off, and more."""
    X, Y, rng = linear_model(1000, d)
    prior = -2 + 0.5 * rng.normal(size=(1000, d))
    found = ConditionalEmbedding().fit(X, Y).posterior(prior)
    queries = np.vstack([np.full(d, y), np.full(d, -2.0)])  # the second is likely
    exact, std = conjugate(queries, np.full(d, -2.0), 0.5)
    answer = found.given(queries)
    assert (abs(answer.mean() - exact) < 0.6 * std).all()
    assert_allclose(answer.std(), std, rtol=0.35)
    # all ways to ask agree, for one observation and for several
    assert_allclose(found.predict(queries), answer.mean(), rtol=1e-9)
    assert_allclose(found.expect(lambda x: x, queries), answer.mean(), rtol=1e-9)
    assert_allclose(found.given(queries[0]).mean(), answer[0].mean(), rtol=1e-9)
    assert_allclose(found.given(queries[0]).std(), answer[0].std(), rtol=1e-9)
    assert (answer.weights[0] >= 0).all()
    assert_allclose(answer[0].coordinates, answer.weights[0] @ found.target_rows)
    low, high = answer.interval(0.9)
    law = stats.norm(exact, std)
    assert (law.cdf(high) - law.cdf(low) > 0.7).all()


@pytest.mark.slow
def test_an_observation_far_from_the_prior_is_said() -> None:
    X, Y, rng = linear_model(500, 1)
    found = ConditionalEmbedding().fit(X, Y).posterior(-4 + 0.5 * rng.normal(size=(500, 1)))
    with pytest.warns(DataWarning, match="conflict in 1 of 2 queries"):
        answer = found.given([[4.0], [-4.0]])
    assert answer.mean()[0] > -3.2  # the truth is -2.4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found.given([-4.0])


@pytest.mark.filterwarnings("ignore::meanmap.DataWarning")
def test_posteriors_in_conflict_survive_files(tmp_path: Path) -> None:
    X, Y, rng = linear_model(300, 1)
    found = ConditionalEmbedding().fit(X, Y).posterior(-2 + 0.5 * rng.normal(size=(300, 1)))
    before = found.given([[2.0], [-2.0]])
    save(found, tmp_path / "posterior.mm")
    for again in (load(tmp_path / "posterior.mm"), pickle.loads(pickle.dumps(found))):
        after = again.given([[2.0], [-2.0]])
        assert_array_equal(after.mean(), before.mean())
        assert_array_equal(after.quantile([0.1, 0.9]), before.quantile([0.1, 0.9]))


@pytest.mark.slow
def test_two_modes_of_a_prior_stay_two() -> None:
    X, Y, rng = linear_model(1000, 2)
    prior = rng.choice([-1.5, 1.5], size=(1000, 1)) * [1.0, 0.0] + 0.3 * rng.normal(size=(1000, 2))
    answer = ConditionalEmbedding().fit(X, Y).posterior(prior).given([0.0, 0.0])
    density = answer.density([[-1.5, 0.0], [0.0, 0.0], [1.5, 0.0]])
    assert density[[0, 2]].min() > 5 * density[1]


def test_broad_priors_weigh_the_training_pairs() -> None:
    X, Y, rng = linear_model(400, 1)
    model = ConditionalEmbedding().fit(X, Y)
    prior = 2 * rng.normal(size=(400, 1))
    weighed = model.posterior(prior, "nonnegative").given([1.0])
    assert_allclose(model.posterior(prior).given([1.0]).weights, weighed.weights)
    drawn = bayes_rule(model, prior, "simulated").given([1.0])
    assert_allclose(drawn.mean(), weighed.mean(), atol=0.25)
    assert drawn.atoms.shape == (1000, 1)


@pytest.mark.slow
def test_units_and_origin_do_not_matter() -> None:
    X, Y, rng = linear_model(300, 2)
    prior = 0.2 * rng.normal(size=(300, 2))
    answers = [
        ConditionalEmbedding().fit(a * X + b, Y).posterior(a * prior + b).given([[0.0, 1.0]])
        for a, b in ((1.0, 0.0), (1e-3, 0.0), (50.0, 1e3))
    ]
    for answer, (a, b) in zip(answers, ((1.0, 0.0), (1e-3, 0.0), (50.0, 1e3)), strict=True):
        assert_allclose((answer.mean() - b) / a, answers[0].mean(), atol=1e-3)
        assert_allclose(answer.std() / a, answers[0].std(), rtol=1e-2)


# --- edges ----------------------------------------------------------------------------------------


def test_a_prior_of_one_point_or_few_values() -> None:
    X, Y, _ = linear_model(400, 1)
    model = ConditionalEmbedding().fit(X, Y)
    certain = model.posterior(np.array([[1.0]])).given([0.0])
    assert_allclose(certain.mean(), 1.0)
    assert_allclose(certain.std(), 0.0, atol=1e-12)
    two = model.posterior(np.array([[-1.0], [1.0]])).given([1.0])
    # P(1 | y = 1) = 1/(1 + e⁻²)
    assert_allclose(two.expect(lambda x: x[:, 0] > 0), 1 / (1 + np.exp(-2.0)), atol=0.05)
    assert set(np.unique(two.sample(100, rng=0))) == {-1.0, 1.0}


def test_a_prior_with_negative_weights() -> None:
    X, Y, rng = linear_model(400, 1)
    model = ConditionalEmbedding().fit(X, Y)
    atoms = rng.normal(0.0, 0.3, size=(200, 1))
    weights = np.r_[np.full(199, 1.05 / 199), -0.05]
    found = bayes_rule(model, embed(atoms, model.kernel_x_, weights), "simulated").given([0.5])
    exact, std = conjugate(np.array([0.5]), np.zeros(1), 0.3)
    assert abs(found.mean() - exact) < std
    assert 0.6 * std < found.std() < 1.6 * std


@pytest.mark.slow
def test_the_same_prior_gives_the_same_answer() -> None:
    X, Y, _ = linear_model(300, 2)
    model = ConditionalEmbedding().fit(X, Y)
    first, second = (model.posterior(X[:50] / 10, "simulated").given(Y[:3]).mean() for _ in "ab")
    assert_allclose(first, second, rtol=0)


def test_a_prior_outside_the_data_is_said() -> None:
    X, Y, rng = linear_model(300, 1)
    with pytest.warns(DataWarning, match="cannot represent the prior: 100% of it"):
        ConditionalEmbedding().fit(X, Y).posterior(30 + 0.1 * rng.normal(size=(200, 1)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ConditionalEmbedding().fit(X, Y).posterior(0.1 * rng.normal(size=(200, 1)))


@pytest.mark.parametrize(("targets", "regularization"), [("labels", None), ("numbers", "marginal")])
def test_what_cannot_be_simulated_is_refused(targets: str, regularization: Any) -> None:
    X, Y, _ = linear_model(60, 1)
    model = ConditionalEmbedding()
    if targets == "labels":
        model.fit(X, np.where(Y[:, 0] > 0, "a", "b"))
        assert model.posterior(X[:5]).given("a").mean().shape == (1,)  # by weights
    else:
        model.fit(X, Y)
    with pytest.raises(ValueError, match='use method="nonnegative"'):
        bayes_rule(model, X, "simulated", regularization)


def test_labels_of_x_and_given_kernels() -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, size=600)
    Y = X[:, None] + 0.5 * rng.normal(size=(600, 1))
    model = ConditionalEmbedding(Delta(), Gaussian(0.3)).fit(X, Y)
    prior = embed(np.array([0, 2]), Delta(), [0.9, 0.1])
    found = bayes_rule(model, prior).given([[1.0]])
    assert_allclose(found.expect(lambda x: x == 2), 0.1, atol=0.1)
