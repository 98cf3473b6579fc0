"""Posteriors with names, calibrations, predictive checks: figures, pictures, files."""

from __future__ import annotations

import dataclasses
import pickle
import sys
import warnings
from functools import cache
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import meanmap
from meanmap import DataWarning, Embedding, KernelABC
from meanmap.likelihood_free import Calibration, Posterior, PredictiveCheck
from optional_packages import require

NAMES = ("mean", "noise")


def simulator(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    x = rng.normal(theta[:, :1], theta[:, 1:], size=(len(theta), 10))
    return np.column_stack([x.mean(axis=1), x.std(axis=1)])


@cache
def model() -> KernelABC:
    prior = {"mean": stats.norm(0, 2), "noise": stats.uniform(0.5, 2.0)}
    return KernelABC(simulator, prior, random_state=0).fit(500)


@cache
def one() -> Posterior:
    return model().posterior([1.0, 1.0])


@cache
def several() -> Posterior:
    return model().posterior([[1.0, 1.0], [0.0, 2.0], [-1.0, 1.5]])


@pytest.fixture(autouse=True)
def close_figures() -> Any:
    yield
    plt.close("all")


# --- how many simulations speak for it ------------------------------------------------------------


@pytest.mark.slow
def test_the_effective_size_is_that_of_the_weights() -> None:
    w = one().weights
    assert one().effective_size == pytest.approx(w.sum() ** 2 / (w**2).sum())
    assert_allclose(several().effective_size, [p.effective_size for p in several()])
    assert 10 < one().effective_size < 500
    assert "by a likelihood learned from 500 simulations" in repr(one())


@pytest.mark.parametrize("n", [3, 10])
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_too_few_simulations_warn(n: int, shift: float) -> None:
    def noisy(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return shift + theta + 0.5 * rng.normal(size=theta.shape)

    fitted = KernelABC(noisy, stats.norm(), random_state=0).fit(n)
    with pytest.warns(DataWarning, match=f"of {n} simulations: chance moves its mean"):
        found = fitted.posterior([shift + 0.3])
    assert found.effective_size < 10
    y = shift + np.array([[-0.3], [0.3]])
    with pytest.warns(DataWarning, match="2 of 2 posteriors rest on fewer than 10"):
        fitted.posterior(y)
    with pytest.warns(DataWarning, match="chance moves its mean"):  # with another prior too
        fitted.posterior([shift + 0.3], prior=stats.norm(0.0, 0.8))


@pytest.mark.slow
def test_enough_simulations_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model().posterior([1.0, 1.0])
        few = KernelABC(simulator, model().prior, random_state=0).fit(20)
        few.refine([1.0, 1.0], 400).posterior([1.0, 1.0])  # which is the remedy


# --- names ----------------------------------------------------------------------------------------


def test_names_stay() -> None:
    assert one().names == several().names == NAMES
    kept = {
        "index": several()[1],
        "slice": several()[:2],
        "normalized": one().normalized(),
        "normalized batch": several().normalized()[0],
        "projected": one().project(),
        "scaled": 2.0 * one(),
        "divided": one() / 2,
        "negative": -one(),
    }
    for how, posterior in kept.items():
        assert isinstance(posterior, Posterior), how
        assert posterior.names == NAMES, how
    for posterior in several():
        assert posterior.names == NAMES


def test_a_projected_posterior_is_summarised() -> None:
    assert set(one().project().summary()) == set(NAMES)


def test_renaming_makes_another_posterior() -> None:
    """Results are immutable."""
    posterior = model().posterior([1.0, 1.0])
    other = posterior.rename(("a", "b"))
    assert other.names == ("a", "b")
    assert posterior.names == NAMES
    assert_array_equal(other.weights, posterior.weights)


def test_a_posterior_is_an_embedding() -> None:
    plain = model().model_.given([1.0, 1.0])
    assert isinstance(one(), Embedding)
    assert_array_equal(one().weights, plain.weights)
    points, p = next(one().beliefs())
    assert one().by_likelihood
    assert_allclose(one().mean(), p @ points)
    assert_allclose(one().mean(), plain.mean(), atol=0.5 * one().std().max())
    assert_array_equal(one().coordinates, plain.coordinates)
    assert float(one().distance(plain)) < 1e-7
    assert "Posterior" in repr(one())


# --- figures --------------------------------------------------------------------------------------


def test_a_summary_by_name() -> None:
    summary = one().summary(0.8)
    assert list(summary) == list(NAMES)
    low, high = one().interval(0.8)
    for j, name in enumerate(NAMES):
        row = summary[name]
        assert set(row) == {"mean", "std", "low", "high"}
        assert all(type(value) is float for value in row.values())
        assert row["mean"] == one().mean()[j] and row["std"] == one().std()[j]
        assert (row["low"], row["high"]) == (low[j], high[j])
    assert one().summary() == one().summary(0.9)


@pytest.mark.parametrize("count", [2, 3])
def test_a_summary_is_of_one_posterior(count: int) -> None:
    with pytest.raises((TypeError, ValueError), match="batch"):
        several()[:count].summary()


@pytest.mark.parametrize("level", [0, 1, 90, -0.1])
def test_levels_are_probabilities(level: float) -> None:
    with pytest.raises(ValueError, match="level"):
        one().summary(level)
    with pytest.raises(ValueError, match="level"):
        Calibration(np.full((10, 1), 0.5), ("a",)).coverage(level)


def test_samples_are_draws_of_parameters() -> None:
    draws = one().sample(500, rng=0)
    assert draws.shape == (500, 2)
    assert_array_equal(draws, one().sample(500, rng=0))
    low, high = model().theta_.min(axis=0), model().theta_.max(axis=0)
    assert ((draws >= low) & (draws <= high)).all()


def test_samples_are_of_many_atoms() -> None:
    """A corner plot, a predictive check and ArviZ need a distribution, not a dozen points."""
    draws = one().sample(1000, rng=0)
    assert len(np.unique(draws, axis=0)) > 30
    # and in each coordinate they are distributed as the quantiles say
    low, high = one().interval(0.9)
    for j in range(2):
        share = ((low[j] <= draws[:, j]) & (draws[:, j] <= high[j])).mean()
        assert 0.8 < share < 0.97


def test_for_arviz() -> None:
    require("arviz")
    data = one().to_arviz(200, rng=0)
    draws = one().sample(200, rng=0)
    for j, name in enumerate(NAMES):
        found = np.asarray(data["posterior"][name])
        assert found.shape == (1, 200)  # chains, draws
        assert_array_equal(found[0], draws[:, j])


def test_arviz_has_the_prior_the_observation_and_new_simulations() -> None:
    require("arviz")
    data = one().to_arviz(2000, rng=0)
    assert_array_equal(np.asarray(data["observed_data"]["y"]), [1.0, 1.0])
    prior = np.asarray(data["prior"]["mean"])
    assert prior.shape == (1, 2000)
    assert_allclose(prior.std(), 2.0, atol=0.2)  # six standard errors
    simulated = np.asarray(data["posterior_predictive"]["y"])
    assert simulated.shape == (1, 2000, 2)
    # simulated with the posterior's draws, one each
    drawn = np.asarray(data["posterior"]["mean"])[0]
    assert np.corrcoef(drawn, simulated[0, :, 0])[0, 1] > 0.4
    assert "posterior_predictive" not in one().to_arviz(50, predictive=False)


def test_arviz_has_simulations_that_failed_as_nan() -> None:
    require("arviz")

    def failing(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.where(theta > 1, np.nan, theta + rng.normal(size=theta.shape))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        posterior = KernelABC(failing, stats.norm(), random_state=0).fit(300).posterior([0.5])
    data = posterior.to_arviz(200, rng=0)
    drawn, simulated = (
        np.asarray(data[g][v])[0] for g, v in (("posterior", "θ1"), ("posterior_predictive", "y"))
    )
    assert_array_equal(np.isnan(simulated[:, 0]), drawn > 1)


def test_a_posterior_from_a_file_has_no_simulator_for_arviz() -> None:
    require("arviz")
    again = pickle.loads(pickle.dumps(one()))
    data = again.to_arviz(50, rng=0)
    assert_array_equal(np.asarray(data["observed_data"]["y"]), [1.0, 1.0])
    assert "prior" not in data and "posterior_predictive" not in data


def test_without_arviz_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match="pip install"):
        one().to_arviz(10)


# --- calibration ----------------------------------------------------------------------------------


def test_coverage_counts_ranks() -> None:
    ranks = np.array([[0.0], [0.04], [0.06], [0.5], [0.94], [0.96], [1.0], [0.3]])
    found = Calibration(ranks, ("a",))
    assert_allclose(found.coverage(0.9), 4 / 8)
    assert_allclose(found.coverage(0.5), 2 / 8)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000), runs=st.integers(10, 200), d=st.integers(1, 3))
def test_coverage_grows_with_the_level(seed: int, runs: int, d: int) -> None:
    ranks = np.random.default_rng(seed).integers(0, 201, size=(runs, d)) / 200
    found = Calibration(ranks, tuple("abc"[:d]))
    shares = np.stack([found.coverage(level) for level in (0.1, 0.5, 0.8, 0.9, 0.99)])
    assert (np.diff(shares, axis=0) >= 0).all()
    assert ((shares >= 0) & (shares <= 1)).all()
    mirrored = Calibration(1 - ranks, found.names)
    for level in (0.5, 0.77, 0.93):
        assert_allclose(mirrored.coverage(level), found.coverage(level), atol=1.01 / runs)


def test_uniform_ranks_cover_as_they_should() -> None:
    ranks = ((np.arange(1000) + 0.5) / 1000)[:, None]
    for level in (0.2, 0.5, 0.9):
        assert_allclose(Calibration(ranks, ("a",)).coverage(level), level, atol=2e-3)


@pytest.mark.slow
def test_a_calibration_explains_itself() -> None:
    found = model().calibrate(50)
    assert found.names == NAMES
    text = repr(found)
    assert "50 runs" in text and "mean" in text and "noise" in text and "%" in text
    assert_array_equal(found.ranks, model().calibrate(50).ranks)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.names = ("a",)  # type: ignore[misc]


# --- predictive checks ----------------------------------------------------------------------------


def test_pvalues_by_hand() -> None:
    simulated = np.arange(99.0)[:, None] * [1.0, 1.0, 1.0]
    check = PredictiveCheck(simulated, np.array([49.0, -5.0, 97.5]))
    # 1 + 50 of 100 on either side; none below and one more; one above and one more
    assert_allclose(check.pvalues, [1.0, 0.02, 0.04])


@settings(max_examples=50, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000), n=st.integers(10, 100), shift=st.floats(-5, 5))
def test_pvalues_are_two_sided(seed: int, n: int, shift: float) -> None:
    simulated = np.random.default_rng(seed).normal(size=(n, 2)).round(1)
    observed = np.array([shift, 0.0])
    p = PredictiveCheck(simulated, observed).pvalues
    assert ((p > 0) & (p <= 1)).all()
    assert_allclose(PredictiveCheck(-simulated, -observed).pvalues, p)
    assert_allclose(PredictiveCheck(3 * simulated + 1, 3 * observed + 1).pvalues, p, atol=0.2)


@pytest.mark.slow
def test_a_check_explains_itself() -> None:
    check = model().check([1.0, 1.0], 50)
    assert check.simulated.shape == (50, 2)
    text = repr(check)
    assert "50 simulations of 2 outputs" in text and "p-value" in text
    assert_array_equal(check.simulated, model().check([1.0, 1.0], 50).simulated)
    with pytest.raises(dataclasses.FrozenInstanceError):
        check.observed = np.zeros(2)  # type: ignore[misc]


# --- pictures -------------------------------------------------------------------------------------


def drawn(tmp_path: Any, name: str) -> None:
    path = tmp_path / f"{name}.png"
    plt.gcf().savefig(path)
    assert path.stat().st_size > 3000


def test_a_corner_plot(tmp_path: Any) -> None:
    grid = one().plot(truth=[1.0, 1.0])
    assert grid.shape == (2, 2)
    assert grid[1, 0].get_xlabel() == "mean" and grid[1, 0].get_ylabel() == "noise"
    assert grid[1, 1].get_xlabel() == "noise"
    assert not grid[0, 1].axison
    drawn(tmp_path, "corner")


def test_a_corner_plot_in_panels_of_ones_own() -> None:
    _, mine = plt.subplots(2, 2)
    grid = one().plot(mine)
    assert grid[1, 0] is mine[1, 0]


def test_a_corner_plot_of_one_parameter(tmp_path: Any) -> None:
    single = KernelABC(
        lambda t, rng: t + rng.normal(size=t.shape), {"place": stats.norm()}, random_state=0
    ).fit(200)
    grid = single.posterior([0.5]).plot(truth=0.5)
    assert grid.shape == (1, 1) and grid[0, 0].get_xlabel() == "place"
    _, ax = plt.subplots()
    assert single.posterior([0.5]).plot(ax)[0, 0] is ax
    drawn(tmp_path, "one")


def test_corner_plots_that_cannot_be() -> None:
    with pytest.raises(TypeError, match="batch"):
        several().plot()
    with pytest.raises(ValueError, match="truth"):
        one().plot(truth=[1.0])
    with pytest.raises(ValueError, match="truth"):
        one().plot(truth=[1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="ax"):
        one().plot(plt.subplots()[1])


def test_a_coverage_plot(tmp_path: Any) -> None:
    calibration = model().calibrate(100)
    ax = calibration.plot()
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == list(NAMES)
    levels, shares = ax.get_lines()[-1].get_data()
    at = int(np.argmin(abs(np.asarray(levels) - 0.9)))
    assert_allclose(shares[at], calibration.coverage(float(levels[at]))[1])
    drawn(tmp_path, "coverage")
    mine = plt.subplots()[1]
    assert calibration.plot(mine) is mine


def test_a_predictive_plot(tmp_path: Any) -> None:
    check = model().check([1.0, 1.0], 100)
    ax = check.plot()
    assert {text.get_text() for text in ax.get_legend().get_texts()} >= {"observed"}
    points = next(line for line in ax.get_lines() if line.get_label() == "observed")
    expected = (check.observed - check.simulated.mean(axis=0)) / check.simulated.std(axis=0)
    assert_allclose(points.get_ydata(), expected)
    drawn(tmp_path, "predictive")


# --- files ----------------------------------------------------------------------------------------


def test_posteriors_in_files(tmp_path: Any) -> None:
    path = tmp_path / "posterior.npz"
    for posterior in (one(), several(), several()[1]):
        meanmap.save(posterior, path)
        again = meanmap.load(path)
        assert type(again) is Posterior and again.names == NAMES
        assert_array_equal(again.weights, posterior.weights)
        assert_array_equal(again.mean(), posterior.mean())
        assert_array_equal(again.quantile(0.3), posterior.quantile(0.3))
    meanmap.save(one(), path)
    assert meanmap.load(path).summary() == one().summary()


def test_records_in_files(tmp_path: Any) -> None:
    path = tmp_path / "record.npz"
    calibration, check = model().calibrate(30), model().check([1.0, 1.0], 30)
    meanmap.save([calibration, check], path)
    first, second = meanmap.load(path)
    assert type(first) is Calibration and type(second) is PredictiveCheck
    assert first.names == NAMES and repr(first) == repr(calibration)
    assert_array_equal(first.ranks, calibration.ranks)
    assert_array_equal(second.pvalues, check.pvalues)
    assert_array_equal(second.simulated, check.simulated)


def test_posteriors_pickle() -> None:
    again = pickle.loads(pickle.dumps(several()))
    assert again.names == NAMES
    assert_array_equal(again.mean(), several().mean())
