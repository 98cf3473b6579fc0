"""Dose responses: against Gram matrices, and what they promise."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import check_grad
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import meanmap as mm
import oracles
from meanmap.causal import DoseResponse
from meanmap.causal.surfaces import MarginalLikelihood, VariableLikelihood
from meanmap.exceptions import DataWarning

GRID = np.linspace(-1, 1, 5)


def rows(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A treatment that depends on the first covariate; the average outcome at t is t + t²."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    t = 0.6 * x[:, 0] + 0.8 * rng.normal(size=n)
    return t, t + t**2 + 1.5 * x[:, 0] + t * x[:, 1] + 0.5 * rng.normal(size=n), x


@pytest.fixture(scope="module")
def model() -> DoseResponse:
    return DoseResponse(random_state=0).fit(*rows(250))


# --- against oracles ------------------------------------------------------------------------------


def test_means_and_covariances_are_those_of_gram_matrices(model: DoseResponse) -> None:
    r = model.response_
    t, x = r.variables
    at = model.codings_["treatment"].read(GRID, "t")
    factors = r.kernel.variables
    mean, covariance = oracles.dense_dose_response(factors, t, x, r.outcome, r.noise_ratio, at)
    curve = model.effect(GRID)
    assert_allclose(curve.mean, mean, rtol=1e-5, atol=1e-6)
    # with equal noise at all rows, the noise's part and that of smoothing add up to the posterior
    Z = r.inverse @ r.coordinates(r.grams(0, at) * r.grams(1, x).mean(axis=0)).T
    found = Z.T @ (r.rows.T @ r.rows) @ Z + r.noise_ratio * Z.T @ Z
    assert_allclose(found, covariance, rtol=1e-3, atol=1e-6)


def test_residuals_are_those_of_fits_without_the_row(model: DoseResponse) -> None:
    r = model.response_
    y = r.outcome - r.centre
    for i in (0, 17, 200):
        others = np.delete(np.arange(len(y)), i)
        P = r.rows[others]
        a = np.linalg.solve(P.T @ P + r.noise_ratio * np.eye(P.shape[1]), P.T @ y[others])
        assert_allclose(r.residuals[i], y[i] - r.rows[i] @ a, rtol=1e-8)


def test_the_likelihood_has_the_gradient_that_it_says() -> None:
    rng = np.random.default_rng(1)
    t, y, x = rows(25)
    H = 0.1 * rng.random((25, 25))
    variables = [VariableLikelihood(t[:, None], H), VariableLikelihood(x)]
    loss = MarginalLikelihood(variables, y)
    place = loss.start + 0.3 * rng.normal(size=len(loss.start))
    error = check_grad(lambda v: loss(v)[0], lambda v: loss(v)[1], place)
    assert error < 1e-4 * np.linalg.norm(loss(place)[1]) + 1e-5


def test_the_noise_is_the_likeliest_of_the_grid(model: DoseResponse) -> None:
    r = model.response_
    K = r.rows @ r.rows.T
    y = (r.outcome - r.centre) / r.scale

    def value(eta: float) -> float:
        A = K + eta * np.eye(len(y))
        return len(y) * np.log(y @ np.linalg.solve(A, y)) + np.linalg.slogdet(A)[1]

    best = value(r.noise_ratio)
    assert all(best <= value(r.noise_ratio * c) + 1e-6 for c in (0.3, 0.8, 1.25, 3.0))


def test_derivatives_are_those_of_the_curve(model: DoseResponse) -> None:
    slope = model.effect(GRID, derivative=True)
    step = 1e-4
    ahead, back = model.effect(GRID + step).mean, model.effect(GRID - step).mean
    assert_allclose(slope.mean, (ahead - back) / (2 * step), rtol=1e-4, atol=1e-5)
    assert abs(slope.mean - (1 + 2 * GRID))[1:-1].max() < 1.0


# --- what it promises -----------------------------------------------------------------------------


def test_it_finds_the_curve_and_a_regression_on_the_treatment_does_not(model: DoseResponse) -> None:
    curve = model.effect(GRID)
    truth = GRID + GRID**2
    assert abs(curve.mean - truth).max() < 0.5
    assert (curve.support > 0.9).all()
    low, high = curve.interval()
    wide = curve.interval(simultaneous=True)
    assert (wide[0] < low).all() and (wide[1] > high).all()


def test_averages_over_parts_and_other_populations_add_up(model: DoseResponse) -> None:
    t, _, x = rows(250)
    mask = x[:, 0] > 0
    parts = [model.effect(GRID, subgroup=part).mean for part in (mask, ~mask)]
    whole = model.effect(GRID).mean
    assert_allclose(mask.mean() * parts[0] + (~mask).mean() * parts[1], whole, rtol=1e-9)
    assert_allclose(model.effect(GRID, population=x[mask]).mean, parts[0], rtol=1e-9)
    # those who got more have more of the first covariate, which is worth 1.5 each
    more = model.effect([0.0], treated=1.0).mean - model.effect([0.0], treated=-1.0).mean
    assert abs(more[0] - 1.5 * 2 * 0.6) < 0.9


def test_labels_as_treatment_and_mixed_frames_as_covariates() -> None:
    rng = np.random.default_rng(2)
    n = 300
    frame = pd.DataFrame({"age": rng.normal(50, 10, n), "town": rng.choice(["a", "b", "c"], n)})
    drug = np.where(rng.random(n) < 0.3 + 0.4 * (frame["town"] == "a"), "new", "old")
    y = (drug == "new") * 2.0 + 3.0 * (frame["town"] == "a") + frame["age"] / 10
    y = pd.Series(y + 0.3 * rng.normal(size=n), name="score")
    fitted = DoseResponse(random_state=0).fit(pd.Series(drug, name="drug"), y, frame)
    effect = fitted.effect(["old", "new"]).difference()
    assert fitted.levels_ and fitted.names_ == ("drug", "score")
    assert abs(effect.mean[1] - 2) < 5 * effect.standard_error[1] < 1
    assert effect.pvalue()[1] < 1e-6
    shuffled = frame[["town", "age"]].iloc[:50]
    assert_allclose(
        fitted.effect(["new"], population=shuffled).mean,
        fitted.effect(["new"], population=frame.iloc[:50]).mean,
    )
    with pytest.raises(ValueError, match="'none' was not among"):
        fitted.effect(["none"])
    assert abs(fitted.row_effects("new", "old").mean.mean() - 2) < 0.3


def test_the_counterfactual_distribution_has_the_right_quantiles() -> None:
    rng = np.random.default_rng(3)
    n = 800
    x = rng.normal(size=n)
    t = x + rng.normal(size=n)
    y = t + 2 * x + (0.3 + 0.5 * (t > 0)) * rng.normal(size=n)
    law = DoseResponse(random_state=0).fit(t, y, x).distribution(1.0)
    deviation = (4 + 0.8**2) ** 0.5
    assert abs(law.mean()[0] - 1) < 0.4 and abs(law.std()[0] - deviation) < 0.4
    assert abs(law.quantile(0.9)[0] - (1 + 1.2816 * deviation)) < 0.7
    assert abs(law.expect(lambda v: (v[:, 0] > 1).astype(float)) - 0.5) < 0.12


@pytest.mark.slow
def test_intervals_cover() -> None:
    """Of 40 samples, at five treatments each: 95% intervals, pooled."""
    truth, inside = GRID + GRID**2, []
    for seed in range(40):
        low, high = DoseResponse(random_state=0).fit(*rows(200, 100 + seed)).effect(GRID).interval()
        inside.append((low <= truth) & (truth <= high))
    # with coverage of 95% and samples whose five answers stand or fall together, fewer than 75%
    # have a chance below one in a million
    assert np.mean(inside) > 0.75


# --- wrong designs --------------------------------------------------------------------------------


def test_no_overlap_warns_with_a_figure() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=300)
    t = (x > 0).astype(float)
    fitted = DoseResponse(random_state=0).fit(t, t + x + 0.1 * rng.normal(size=300), x)
    with pytest.warns(DataWarning, match=r"only \d+% of the rows"):
        fitted.effect([0.0, 1.0])
    assert fitted.overlap([0.0, 1.0]).support.max() < 0.8


def test_a_treatment_that_is_a_function_of_covariates_warns() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(200, 2))
    with pytest.warns(DataWarning, match="predict 9|predict 100"):
        DoseResponse(random_state=0).fit(np.sin(x[:, 0]), x[:, 1], x)


def test_a_good_design_does_not_warn(model: DoseResponse) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DoseResponse(random_state=0).fit(*rows(250)).effect(GRID)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.effect(GRID, treated=0.0, subgroup=np.ones(250, bool)), "pass one of"),
        (lambda m: m.effect(GRID, subgroup=np.ones(3, bool)), "a mask of 250"),
        (lambda m: m.effect([[1.0, 2.0]]), "features"),
        (lambda m: m.distribution([0.0, 1.0]), "one treatment"),
        (lambda m: m.row_effects([0.0, 1.0], 0.0), "one treatment each"),
        (lambda m: m.effect(GRID).difference(9), "grid has 5"),
    ],
)
def test_errors_say_what_is_wrong(model: DoseResponse, call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(model)


def test_bad_input_is_refused() -> None:
    t, y, x = rows(50)
    with pytest.raises(NotFittedError):
        DoseResponse().effect(GRID)
    with pytest.raises(ValueError, match="inconsistent"):
        DoseResponse().fit(t[:40], y, x)
    with pytest.raises(ValueError, match="one number per row"):
        DoseResponse().fit(t, x, x)
    with pytest.raises(ValueError, match="NaN"):
        DoseResponse().fit(t, np.where(t > 0, np.nan, y), x)
    with pytest.raises(ValueError, match="at least 10"):
        DoseResponse().fit(t[:5], y[:5], x[:5])


# --- as an estimator ------------------------------------------------------------------------------


def test_it_can_be_cloned_seeded_and_saved(model: DoseResponse, tmp_path: Any) -> None:
    again = clone(model).fit(*rows(250))
    assert_array_equal(again.effect(GRID).mean, model.effect(GRID).mean)
    assert clone(model).set_params(debiased=True).debiased is True
    mm.save(model, tmp_path / "model.zip")
    loaded = mm.load(tmp_path / "model.zip")
    assert_allclose(loaded.effect(GRID).mean, model.effect(GRID).mean, rtol=1e-12)


def test_debiasing_returns_what_too_much_smoothing_takes(model: DoseResponse) -> None:
    t, y, x = rows(250)
    drug = (t > 0).astype(float)
    y = 2 * drug + x[:, 0]
    plain = DoseResponse(regularization=1.0, debiased=False, random_state=0).fit(drug, y, x)
    repaired = clone(plain).set_params(debiased=True).fit(drug, y, x)
    errors = [abs(m.effect([0.0, 1.0]).difference().mean[1] - 2) for m in (plain, repaired)]
    assert errors[1] < errors[0] / 2


def test_curves_have_pictures_frames_and_words(model: DoseResponse) -> None:
    curve = model.effect(GRID)
    assert list(curve.to_frame().columns) == [
        "treatment", "mean", "standard_error", "low", "high", "support",
    ]  # fmt: skip
    assert curve.to_dict()["mean"] == curve.mean.tolist() and len(curve) == 5
    assert "at treatment -1" in curve.sentence() and "5 of 5" not in repr(curve)
    assert curve.plot() is not None and model.overlap(GRID).plot() is not None
    assert model.effect([0.0, 1.0]).plot() is not None
    assert "of rows have similar rows" in repr(model.overlap(GRID))
    difference = curve.difference(2)
    assert difference.mean[2] == 0 and difference.standard_error[2] < 1e-9
