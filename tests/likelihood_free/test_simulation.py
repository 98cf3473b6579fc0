"""Running simulators: shapes, seeds, failures."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from meanmap import DataWarning, KernelABC

PRIOR = stats.norm()


def noisy(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A number and noise: works on one draw and on all of them."""
    return theta + 0.5 * rng.normal(size=theta.shape)


def failing_above(threshold: float) -> Callable[..., np.ndarray]:
    def simulator(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.where(theta > threshold, np.nan, noisy(theta, rng))

    return simulator


def raising_above(threshold: float) -> Callable[..., np.ndarray]:
    def simulator(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if theta[0] > threshold:
            raise RuntimeError("no such population")
        return noisy(theta, rng)

    return simulator


def fitted(simulator: Any, n: int = 200, prior: Any = PRIOR, **options: Any) -> KernelABC:
    return KernelABC(simulator, prior, **({"random_state": 0} | options)).fit(n)


# --- at once and one by one -----------------------------------------------------------------------


def test_a_simulator_sees_all_draws_at_once_or_one() -> None:
    seen = []

    def spy(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        assert isinstance(rng, np.random.Generator)
        seen.append(theta.shape)
        return noisy(theta, rng)

    fitted(spy, 50, stats.multivariate_normal([0, 0]))
    assert seen == [(50, 2)]
    seen.clear()
    fitted(spy, 50, stats.multivariate_normal([0, 0]), vectorized=False)
    assert seen == [(2,)] * 50


@pytest.mark.slow
def test_both_ways_give_the_same_kind_of_answers() -> None:
    models = [fitted(noisy, 1000, vectorized=v) for v in (True, False)]
    for model in models:
        assert model.theta_.shape == model.outputs_.shape == (1000, 1)
        # truth 0.8 and 0.447
        posterior = model.posterior([1.0])
        assert_allclose(posterior.mean(), 0.8, atol=0.12)
        assert_allclose(posterior.std(), 0.447, atol=0.1)


def of_two(a: float, b: float) -> float:
    return a + b


@pytest.mark.parametrize(
    "simulator",
    [
        lambda theta, rng: of_two(*theta),
        lambda theta, rng: [x + y for x, y in [theta]],
    ],
)
def test_a_simulator_of_one_draw_is_told_from_one_of_all(simulator: Any) -> None:
    prior = stats.multivariate_normal([0, 0])
    with pytest.raises(ValueError, match=r"single draw.*pass vectorized=False"):
        fitted(simulator, 100, prior)
    assert fitted(simulator, 100, prior, vectorized=False).outputs_.shape == (100, 1)


def test_a_simulator_that_fails_on_one_draw_too_has_its_own_error() -> None:
    def broken(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        raise TypeError("no such model")

    with pytest.raises(TypeError, match="no such model"):
        fitted(broken)


def test_one_by_one_every_draw_has_noise_of_its_own() -> None:
    model = fitted(noisy, 300, vectorized=False)
    noise = (model.outputs_ - model.theta_)[:, 0] / 0.5
    assert len(np.unique(noise)) == 300
    assert stats.kstest(noise, "norm").pvalue > 1e-4
    assert abs(np.corrcoef(noise, model.theta_[:, 0])[0, 1]) < 0.3


def test_two_processes_give_the_numbers_of_one() -> None:
    one, two = (fitted(noisy, 60, vectorized=False, n_jobs=jobs) for jobs in (1, 2))
    assert_array_equal(one.theta_, two.theta_)
    assert_array_equal(one.outputs_, two.outputs_)
    assert_array_equal(one.posterior([0.3]).weights, two.posterior([0.3]).weights)


@pytest.mark.parametrize("vectorized", [True, False])
def test_a_seed_is_honoured(vectorized: bool) -> None:
    runs = [fitted(noisy, 80, vectorized=vectorized, random_state=s) for s in (3, 3, 4)]
    assert_array_equal(runs[0].theta_, runs[1].theta_)
    assert_array_equal(runs[0].outputs_, runs[1].outputs_)
    assert (runs[0].theta_ != runs[2].theta_).all()
    generators = [
        fitted(noisy, 80, vectorized=vectorized, random_state=np.random.default_rng(3))
        for _ in range(2)
    ]
    assert_array_equal(generators[0].outputs_, generators[1].outputs_)


def test_without_a_seed_runs_differ() -> None:
    runs = [fitted(noisy, 20, random_state=None) for _ in range(2)]
    assert (runs[0].theta_ != runs[1].theta_).any()


@pytest.mark.parametrize("vectorized", [True, False])
def test_a_simulator_may_work_on_its_argument(vectorized: bool) -> None:
    def in_place(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        theta += 0.5 * rng.normal(size=theta.shape)
        return theta

    mine, plain = (fitted(s, 100, vectorized=vectorized) for s in (in_place, noisy))
    assert_array_equal(mine.theta_, plain.theta_)
    assert_array_equal(mine.outputs_, plain.outputs_)


@pytest.mark.slow
def test_outputs_of_one_number_may_be_flat() -> None:
    flat = fitted(lambda theta, rng: noisy(theta, rng)[:, 0])
    assert_array_equal(flat.outputs_, fitted(noisy).outputs_)
    single = fitted(lambda theta, rng: float(noisy(theta, rng)[0]), vectorized=False)
    assert_array_equal(single.outputs_, fitted(noisy, vectorized=False).outputs_)
    assert_array_equal(single.posterior(0.5).weights, single.posterior([0.5]).weights)


@pytest.mark.slow
@pytest.mark.parametrize("vectorized", [True, False])
def test_outputs_that_are_tables_are_observed_as_tables(vectorized: bool) -> None:
    def simulator(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return theta[..., None] + rng.normal(size=(*theta.shape[:-1], 2, 3))

    model = fitted(simulator, 300, vectorized=vectorized)
    assert model.outputs_.shape == (300, 6)
    y = np.arange(6.0).reshape(2, 3) / 6
    expected = model.posterior(y.ravel()).mean()
    assert_allclose(model.posterior(y).mean(), expected)  # as the simulator would give it


# --- summaries ------------------------------------------------------------------------------------


def replicates(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return theta + rng.normal(size=(*theta.shape[:-1], 50))


@pytest.mark.slow
def test_a_summary_of_all_outputs_at_once() -> None:
    seen = []

    def summary(raw: np.ndarray) -> np.ndarray:
        seen.append(raw.shape)
        return np.column_stack([raw.mean(axis=1), raw.std(axis=1)])

    model = fitted(replicates, 1000, summary=summary)
    assert seen == [(1000, 50)]
    assert model.outputs_.shape == (1000, 2)
    posterior = model.posterior([1.0, 1.0])  # truth 0.98 and 0.14
    assert_allclose(posterior.mean(), 0.98, atol=0.1)


def test_a_summary_of_each_output() -> None:
    lengths: set[int] = set()

    def ragged(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        n = int(rng.integers(30, 60))
        lengths.add(n)
        return theta + rng.normal(size=n)

    model = fitted(ragged, 200, vectorized=False, summary=lambda x: (x.mean(), x.std()))
    assert len(lengths) > 10
    assert model.outputs_.shape == (200, 2)


# --- failures -------------------------------------------------------------------------------------


def fails_more_often_for_large(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Fails with probability Φ(θ - 1): works on one draw and on all of them."""
    failed = rng.random(theta.shape) < stats.norm.cdf(theta - 1)
    return np.where(failed, np.nan, noisy(theta, rng))


@pytest.mark.parametrize("vectorized", [True, False])
def test_every_draw_is_simulated_once(vectorized: bool) -> None:
    seen: list[np.ndarray] = []

    def spy(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        seen.append(np.atleast_2d(theta).copy())
        return fails_more_often_for_large(theta, rng)

    with pytest.warns(DataWarning, match="draws failed and were left out"):
        model = fitted(spy, 200, vectorized=vectorized)
    draws = np.concatenate(seen)
    assert len(np.unique(draws)) == len(draws) == 200 + model.n_failed_
    assert model.n_failed_ > 0


@pytest.mark.slow
@pytest.mark.parametrize("vectorized", [True, False])
def test_failures_that_depend_on_the_draw_do_not_bias_the_draws(vectorized: bool) -> None:
    with pytest.warns(DataWarning, match="draws failed and were left out"):
        model = fitted(fails_more_often_for_large, 4000, vectorized=vectorized)
    # E[θ | success] with P(success | θ) = Φ(1 - θ): -φ(1/√2)/(√2 Φ(1/√2)); with three tries -0.12
    a = 1 / np.sqrt(2)
    expected = -stats.norm.pdf(a) / (np.sqrt(2) * stats.norm.cdf(a))
    error = model.theta_.std() / np.sqrt(4000)
    assert abs(model.theta_.mean() - expected) < 5.5 * error  # -0.29; by chance below 1e-7


@pytest.mark.parametrize("vectorized", [True, False])
def test_failures_are_left_out_with_a_count(vectorized: bool) -> None:
    with pytest.warns(DataWarning, match=r"\d+ of \d+ draws failed.*NaN") as caught:
        model = fitted(failing_above(1.5), 400, vectorized=vectorized)
    assert len(model.theta_) == len(model.outputs_) == 400
    assert model.theta_.max() <= 1.5
    assert np.isfinite(model.outputs_).all()
    # the count is right: draws are those of the seed, and 1.5 decides
    lost, tried = map(int, re.findall(r"(\d+) of (\d+)", str(caught[0].message))[0])
    assert tried - lost == 400
    assert model.n_failed_ == lost
    assert 10 <= lost <= 55  # 29 on average, five standard deviations


@pytest.mark.parametrize("failing", [failing_above(0.67), raising_above(0.67)])
def test_a_quarter_of_failures_is_survived(failing: Any) -> None:
    # whatever the seed: the last few draws are no reason to refuse
    vectorized = failing.__qualname__.startswith("failing")
    for seed in range(12):
        with pytest.warns(DataWarning, match="draws failed and were left out"):
            model = fitted(failing, 40, vectorized=vectorized, random_state=seed)
        assert len(model.theta_) == 40


def test_a_simulator_that_raises_is_named_with_the_draw() -> None:
    with pytest.raises(ValueError, match="RuntimeError: no such population") as refusal:
        fitted(raising_above(-0.7), 200, vectorized=False)
    assert len(re.findall(r"draw \d+, \[(-?\d+\.\d+)\]", str(refusal.value))) == 1
    draw = float(re.findall(r"draw \d+, \[(-?\d+\.\d+)\]", str(refusal.value))[0])
    assert draw > -0.7


@pytest.mark.parametrize("vectorized", [True, False])
def test_most_outputs_nan_is_refused_with_the_draw(vectorized: bool) -> None:
    with pytest.raises(ValueError, match=r"draw \d+, \[-?\d.*NaN"):
        fitted(failing_above(-0.7), 200, vectorized=vectorized)


def test_the_draw_at_fault_is_numbered_among_all_draws() -> None:
    calls = 0

    def fails_later(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        nonlocal calls
        calls += 1
        return noisy(theta, rng) if calls == 1 else np.full(theta.shape, np.nan)

    with pytest.raises(ValueError, match=r"draw 1[ ,]?000\b"):
        fitted(fails_later, 1500)


def test_infinite_outputs_fail_too() -> None:
    with pytest.warns(DataWarning, match="infinite"):
        model = fitted(lambda t, rng: np.where(t > 1.5, np.inf, noisy(t, rng)))
    assert np.isfinite(model.outputs_).all()


def test_an_error_of_a_vectorised_simulator_comes_through() -> None:
    def broken(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        raise KeyError("growth")

    with pytest.raises((KeyError, ValueError), match="growth"):
        fitted(broken)


@pytest.mark.parametrize(
    ("output", "says"),
    [
        (lambda t: [[0.0] * (1 + i % 2) for i in range(len(t))], "different lengths.*summary"),
        (lambda t: np.ones((len(t), 2)), "all outputs are the same"),
        (lambda t: t[:-1], "expected 200 rows, got 199"),
        (lambda t: t.T, "expected 200 rows, got 1"),
        (lambda t: ["text"] * len(t), "simulator: expected an array of numbers"),
        (lambda t: None, "simulator: .*expected"),
        (lambda t: 1.0, "simulator: .*expected"),
        (lambda t: np.empty((0, 2)), "expected 200 rows, got 0"),
        (lambda t: np.empty((len(t), 0)), "simulator: .*(no numbers|nothing|0 numbers|no columns)"),
        (lambda t: {"mean": t}, "simulator: expected an array of numbers"),
        (lambda t: t + 1j, "simulator: .*omplex"),
    ],
    ids=[
        "ragged", "constant", "too few rows", "transposed", "text", "None", "a number", "no rows",
        "no columns", "dict", "complex",
    ],
)  # fmt: skip
def test_outputs_that_are_none_are_refused(output: Any, says: str) -> None:
    with pytest.raises((ValueError, TypeError), match=says):
        fitted(lambda theta, rng: output(theta))


@pytest.mark.parametrize(
    ("output", "says"),
    [
        (lambda t: "text", r"draw 0, \[.*(text|string)"),
        (lambda t: None, r"draw 0, \["),
        (lambda t: [], r"draw 0, \[.*nothing"),
        (lambda t: np.full(3, 2.0), "all outputs are the same"),
        (lambda t: np.zeros(1 if t[0] < 1 else 2), r"draw \d+, \[.*gave [12] numbers"),
        (lambda t: [[1.0], [1.0, 2.0]], r"draw 0, \["),
    ],
    ids=["text", "None", "nothing", "constant", "ragged", "ragged within"],
)
def test_single_outputs_that_are_none_are_refused(output: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        fitted(lambda theta, rng: output(theta), vectorized=False)


def test_one_by_one_for_a_vectorised_simulator_is_suggested() -> None:
    def one(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.array([theta[0] + theta[1], rng.normal()])  # of a single draw

    with pytest.raises(ValueError, match="vectorized=False"):
        fitted(lambda theta, rng: np.zeros(2), prior=stats.multivariate_normal([0, 0]))
    assert len(fitted(one, 20, stats.multivariate_normal([0, 0]), vectorized=False).theta_) == 20


def test_a_constant_column_among_others_does_no_harm() -> None:
    plain = fitted(noisy, 300)
    more = fitted(lambda t, rng: np.column_stack([noisy(t, rng), np.full(len(t), 7.0)]), 300)
    assert_allclose(more.posterior([0.5, 7.0]).mean(), plain.posterior([0.5]).mean(), atol=1e-6)


def test_outputs_that_are_mostly_the_same() -> None:
    def rare(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return rng.poisson(0.05 * np.exp(theta))  # nineteen in twenty are zero

    model = fitted(rare, 1000)
    means = model.posterior([[0.0], [1.0], [2.0]]).mean()[:, 0]
    assert means[0] < means[1] < means[2]


# --- the simulator itself -------------------------------------------------------------------------


def test_a_simulator_is_a_function() -> None:
    with pytest.raises(TypeError, match="simulator: expected a function"):
        KernelABC("simulate", PRIOR).fit(10)  # type: ignore[arg-type]


def test_a_progress_bar_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    fitted(noisy, 20, vectorized=False, progress=False)
    assert capsys.readouterr().err == ""
    fitted(noisy, 20, vectorized=False, progress=True)
    assert "simulations" in capsys.readouterr().err
