"""The methods of Bayes' rule are objects in one table: a new one is a class and a line."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import meanmap as mm
from meanmap.conditional.calculus import prior_weights
from meanmap.conditional.selection import marginal_consistency
from meanmap.rules import (
    METHODS,
    BayesMethod,
    ImportanceMethod,
    PriorOnSample,
    answer_weights,
    bayes_method,
    cancelling,
    normalize_weights,
    positive_part,
)


class Tempered(ImportanceMethod):
    """Importance weighting with a prior whose density ratio is raised to the power 1/2."""

    def density_ratio(self, prior: PriorOnSample) -> np.ndarray:
        rho = super().density_ratio(prior) ** 0.5
        return rho / (rho @ prior.weights)[..., None]


@pytest.fixture
def tempered(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(METHODS, "tempered", Tempered)
    return "tempered"


def pairs(n: int = 200) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 1))
    return X, X + 0.5 * rng.normal(size=(n, 1)), rng


def test_a_new_method_answers_bayes_rule(tempered: str) -> None:
    X, Y, rng = pairs()
    model = mm.ConditionalEmbedding("median", "median").fit(X, Y)
    prior = mm.embed(rng.normal(1.0, 0.5, size=(200, 1)), kernel=model.kernel_x_)
    found = mm.bayes_rule(model, prior, tempered, regularization=1e-2)
    # the same by hand, with dense matrices: C_ZW (C_WW + δI)⁻¹ under the tempered prior
    w, Phi = model.weights_, model.sides()[1].coordinates
    rho = np.maximum(prior_weights(model, prior) / w, 0) ** 0.5
    p = w * rho / (w @ rho)
    H = np.linalg.inv(Phi.T @ (p[:, None] * Phi) + 1e-2 * np.eye(Phi.shape[1]))
    expected = answer_weights(p, Phi, H, model.space_y_.transform([[0.3]]))
    assert_allclose(found.scale, p, atol=1e-12)
    assert_allclose(found.given([[0.3]]).mean(), expected @ X / expected.sum(), atol=1e-8)
    plain = mm.bayes_rule(model, prior, "importance", regularization=1e-2)
    assert abs(found.given([0.3]).mean() - plain.given([0.3]).mean()) > 0.01


def test_a_new_method_runs_in_a_filter(tempered: str) -> None:
    rng = np.random.default_rng(0)
    states = np.cumsum(rng.normal(size=(120, 1)), axis=0) % 5
    observations = states + 0.3 * rng.normal(size=states.shape)
    settings = {"regularization": 1e-3, "posterior_regularization": 1e-3, "validation": None}
    tracks = [
        mm.KernelBayesFilter(method=method, **settings)
        .fit(states[:80], observations[:80])
        .filter(observations[80:])
        .mean
        for method in (tempered, "importance")
    ]
    assert np.isfinite(tracks[0]).all()
    assert abs(tracks[0] - tracks[1]).max() > 1e-3
    assert np.mean((tracks[0] - states[80:]) ** 2) < 2 * np.mean((tracks[1] - states[80:]) ** 2)


def test_a_new_method_serves_a_simulator(tempered: str) -> None:
    def simulator(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return theta + 0.5 * rng.normal(size=theta.shape)

    model = mm.KernelABC(simulator, stats.norm(0, 2), random_state=0).fit(300)
    prior = stats.norm(1.0, 0.7)
    found = model.posterior([1.0], prior, tempered)
    assert abs(float(found.mean()[0]) - 1.0) < 0.3
    assert found.mean()[0] != model.posterior([1.0], prior, "importance").mean()[0]


def test_a_new_method_has_a_regularisation(tempered: str) -> None:
    X, Y, _ = pairs(60)
    model = mm.ConditionalEmbedding("median", "median", regularization=1e-2).fit(X, Y)
    assert model.posterior_regularization(tempered) > 0
    chosen = marginal_consistency(*model.sides(), model.weights_, 1e-2, bayes_method(tempered))
    assert np.isfinite(chosen.errors).all()
    assert model.posterior_regularization(tempered, "marginal") == chosen.best


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_everywhere(method: str) -> None:
    X, Y, rng = pairs(80)
    model = mm.ConditionalEmbedding().fit(X, Y)
    assert np.isfinite(model.posterior(X[:40], method).given([0.2]).mean()).all()
    assert model.posterior_regularization(method, "marginal") > 0
    settings = {"regularization": 1e-3, "posterior_regularization": 1e-3, "validation": None}
    states = np.cumsum(rng.normal(size=(80, 1)), axis=0) % 5
    track = mm.KernelBayesFilter(method=method, **settings).fit(states, states + 0.1)
    assert np.isfinite(track.filter(states[:20] + 0.1).mean).all()


def test_an_unknown_method_is_refused_everywhere(tempered: str) -> None:
    X, Y, _ = pairs(60)
    model = mm.ConditionalEmbedding().fit(X, Y)
    simulated = mm.KernelABC(lambda theta, rng: theta, stats.norm(), random_state=0).fit(60)
    calls = [
        lambda: mm.bayes_rule(model, X, "square"),
        lambda: model.posterior_regularization("square"),
        lambda: mm.KernelBayesFilter(method="square").fit(X, Y),
        lambda: simulated.posterior([0.0], method="square"),
        lambda: mm.likelihood_free.bayes_update(X, (X, Y), [0.0], method="square"),
    ]
    listed = "'nonnegative', 'importance', 'squared', 'reweighted', 'tempered'; got 'square'"
    for call in calls:
        with pytest.raises(ValueError, match=listed):
            call()


def test_a_method_that_does_not_say_how_a_prior_is_weighed() -> None:
    with pytest.raises(TypeError, match="does not say how a prior is weighed"):
        BayesMethod().density_ratio(PriorOnSample(*map(np.ones, ((1,), (3, 1), 3)), 0.1))


# --- weights that are a distribution --------------------------------------------------------------


def test_positive_part() -> None:
    weights = np.array([[0.5, -0.25, 0.5], [-1.0, -2.0, 0.0], [np.nan, 2.0, 6.0]])
    with pytest.raises(ValueError, match="no positive weight on the training sample"):
        positive_part(weights)
    found = positive_part(weights, np.array([0.0, 3.0, 1.0]))
    assert_allclose(found, [[0.5, 0.0, 0.5], [0.0, 0.75, 0.25], [0.0, 0.25, 0.75]])
    found = positive_part(weights[1], np.array([-1.0, -1.0, -1.0]))
    assert_allclose(found, np.full(3, 1 / 3))


def test_weights_that_cancel() -> None:
    weights = np.array([[1.0, -0.5], [1.0, -0.9], [0.0, 0.0], [np.inf, 1.0]])
    assert_array_equal(cancelling(weights), [False, True, True, True])
    assert_array_equal(cancelling(weights[:2], 0.01), [False, False])
    found = normalize_weights(weights[:3], np.array([3.0, 1.0]))
    assert_allclose(found, [[2.0, -1.0], [1.0, 0.0], [0.75, 0.25]])
    assert_allclose(normalize_weights(weights[1:2], np.ones(2), lambda: 0.01), [[10.0, -9.0]])


def test_priors_of_a_batch_are_weighed_one_by_one() -> None:
    rng = np.random.default_rng(0)
    rows, w = rng.normal(size=(30, 4)), np.full(30, 1 / 30)
    m = np.stack([rows[:10].mean(axis=0), rows[10:].mean(axis=0)])
    for method in METHODS:
        rule = bayes_method(method)
        batch = rule.density_ratio(PriorOnSample(m, rows, w, 0.01, otherwise=w))
        for i in range(2):
            alone = rule.density_ratio(PriorOnSample(m[i], rows, w, 0.01, otherwise=w))
            assert_allclose(batch[i], alone, atol=1e-9)
