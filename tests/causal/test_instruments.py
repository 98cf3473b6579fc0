"""Regression by an instrument: against Gram matrices, and what it promises."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import meanmap as mm
import oracles
from meanmap.causal import InstrumentalRegression
from meanmap.exceptions import DataWarning

GRID = np.linspace(-1.5, 1.5, 7)


def rows(n: int, seed: int = 0, strength: float = 1.0) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    z, hidden, noise = rng.normal(size=(3, n))
    t = strength * z + 0.7 * hidden
    return t, np.tanh(2 * t) - 1.5 * hidden + 0.2 * noise, z


@pytest.fixture(scope="module")
def model() -> InstrumentalRegression:
    return InstrumentalRegression(random_state=0).fit(*rows(300))


def test_means_are_those_of_gram_matrices(model: InstrumentalRegression) -> None:
    r = model.response_
    (t,), stage = r.variables, r.smoother
    assert stage is not None
    H = oracles.left_out_smoother(stage.space.coordinates(stage.z), stage.regularization)
    assert_allclose(stage.left_out(np.eye(len(t))), H, atol=1e-7)
    at = model.codings_["treatment"].read(GRID, "t")
    factor = r.kernel.variables[0]
    dense = oracles.dense_instrumental_regression(factor, H, t, r.outcome, r.noise_ratio, at)
    assert_allclose(model.predict(GRID), dense, rtol=1e-5, atol=1e-5)


def test_it_finds_the_structural_function(model: InstrumentalRegression) -> None:
    t, y, z = rows(300)
    error = abs(model.predict(GRID) - np.tanh(2 * GRID)).mean()
    plain = mm.ConditionalEmbedding().fit(t[:, None], y).predict(GRID[:, None])
    assert error < 0.3 < abs(plain - np.tanh(2 * GRID)).mean()


def test_covariates_enter_as_they_are() -> None:
    rng = np.random.default_rng(1)
    n = 500
    t, _, z = rows(n)
    frame = pd.DataFrame({"size": rng.normal(size=n), "kind": rng.choice(["a", "b"], n)})
    hidden = (t - z) / 0.7
    y = t * (1 + (frame["kind"] == "b")) + frame["size"] - 1.5 * hidden + 0.2 * rng.normal(size=n)
    model = InstrumentalRegression(random_state=0).fit(t, y, z, frame)
    new = pd.DataFrame({"kind": ["a", "a", "b", "b"], "size": np.zeros(4)})
    curve = model.effect(np.array([-1.0, 1.0, -1.0, 1.0]), new)
    for i, truth in ((0, 2.0), (2, 4.0)):
        C = curve.covariance[i : i + 2, i : i + 2]
        error = (C[0, 0] + C[1, 1] - 2 * C[0, 1]) ** 0.5
        assert abs(curve.mean[i + 1] - curve.mean[i] - truth) < 5 * error < 5
    average = model.effect([-1.0, 1.0]).difference().mean[1]
    assert abs(average - 3) < 0.8
    with pytest.raises(ValueError, match="one row per treatment"):
        model.predict(GRID, new)


def test_a_weak_instrument_warns_with_a_figure() -> None:
    with pytest.warns(DataWarning, match=r"F = \d+\.\d, it predicts"):
        weak = InstrumentalRegression(random_state=0).fit(*rows(200, strength=0.02))
    assert weak.strength_.f_statistic < 10
    strong = InstrumentalRegression(random_state=0).fit(*rows(200))
    assert strong.strength_.f_statistic > 30 and strong.strength_.partial > 0.5


def test_it_can_be_cloned_seeded_and_saved(model: InstrumentalRegression, tmp_path: object) -> None:
    again = clone(model).fit(*rows(300))
    assert_array_equal(again.predict(GRID), model.predict(GRID))
    path = f"{tmp_path}/model.zip"
    mm.save(model, path)
    assert_allclose(mm.load(path).predict(GRID), model.predict(GRID), rtol=1e-10)


def test_without_covariates_none_are_taken(model: InstrumentalRegression) -> None:
    with pytest.raises(ValueError, match="without any"):
        model.predict(GRID, GRID[:, None])


@pytest.mark.slow
def test_many_rows_take_random_landmarks() -> None:
    model = InstrumentalRegression(random_state=0).fit(*rows(6000))
    assert abs(model.predict(GRID) - np.tanh(2 * GRID)).mean() < 0.15
