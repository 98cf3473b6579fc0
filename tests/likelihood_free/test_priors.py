"""Whatever parameters can be drawn from: distributions, dicts, functions, samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from meanmap.likelihood_free.priors import prior_of

SAMPLE = np.random.default_rng(0).normal(size=(300, 2))


def function(n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(n, 2))


PRIORS: dict[str, tuple[Any, int, tuple[str, ...] | None]] = {
    "norm": (stats.norm(1, 2), 1, None),
    "uniform": (stats.uniform(), 1, None),
    "poisson": (stats.poisson(3), 1, None),
    "multivariate normal": (stats.multivariate_normal([0, 1]), 2, None),
    "multivariate normal of one": (stats.multivariate_normal([0.5], [[2.0]]), 1, None),
    "multivariate t": (stats.multivariate_t([0, 1, 2]), 3, None),
    "dirichlet": (stats.dirichlet([1, 2, 3]), 3, None),
    "dict": ({"a": stats.norm(), "b": stats.gamma(2)}, 2, ("a", "b")),
    "dict of one": ({"rate": stats.expon()}, 1, ("rate",)),
    "dict, names no text": ({1: stats.norm(), 2: stats.norm()}, 2, ("1", "2")),
    "function": (function, 2, None),
    "function of one number": (lambda n, rng: rng.normal(size=n), 1, None),
    "function of whole numbers": (lambda n, rng: rng.integers(5, size=(n, 2)), 2, None),
    "array": (SAMPLE, 2, None),
    "array of one column": (SAMPLE[:, 0], 1, None),
    "list": (SAMPLE.tolist(), 2, None),
    "list of numbers": ([1.0, 2.0, 3.0], 1, None),
    "data frame": (pd.DataFrame(SAMPLE, columns=["size", "growth"]), 2, ("size", "growth")),
    "series": (pd.Series(SAMPLE[:, 0]), 1, None),
}
every = pytest.mark.parametrize("name", PRIORS)


@every
@pytest.mark.parametrize("n", [1, 2, 3, 300, 301])
def test_draws_are_rows(name: str, n: int) -> None:
    value, d, names = PRIORS[name]
    prior = prior_of(value)
    assert prior.names == names
    draws = prior.sample(n, np.random.default_rng(1))
    assert draws.shape == (n, d) and draws.dtype == np.float64
    assert np.isfinite(draws).all()


@every
def test_a_seed_is_honoured(name: str) -> None:
    prior = prior_of(PRIORS[name][0])
    first, again = (prior.sample(50, np.random.default_rng(7)) for _ in range(2))
    assert_array_equal(first, again)
    assert (prior.sample(50, np.random.default_rng(8)) != first).any()


def test_a_prior_is_its_own() -> None:
    prior = prior_of(stats.norm())
    assert prior_of(prior) is prior


def test_a_dict_draws_independent_columns() -> None:
    parts = {"a": stats.norm(5, 0.1), "b": stats.norm(-5, 0.1), "c": stats.uniform(0, 1)}
    draws = prior_of(parts).sample(4000, np.random.default_rng(0))
    assert_allclose(draws.mean(axis=0), [5, -5, 0.5], atol=0.03)  # five standard errors
    assert abs(np.corrcoef(draws.T) - np.eye(3)).max() < 0.1  # six


def test_an_array_asked_for_as_a_whole_comes_whole() -> None:
    found = prior_of(SAMPLE).sample(300, np.random.default_rng(0))
    assert_array_equal(found[np.argsort(found[:, 0])], SAMPLE[np.argsort(SAMPLE[:, 0])])


def test_an_array_is_drawn_from_evenly() -> None:
    draws = prior_of(SAMPLE).sample(5000, np.random.default_rng(0))
    rows = {tuple(row) for row in SAMPLE}
    assert {tuple(row) for row in draws} <= rows
    assert_allclose(draws.mean(axis=0), SAMPLE.mean(axis=0), atol=0.09)  # six standard errors


def test_what_is_drawn_can_be_changed_without_harm() -> None:
    mine = SAMPLE.copy()
    prior_of(mine).sample(300, np.random.default_rng(0))[:] = 0
    assert_array_equal(mine, SAMPLE)


# --- truncated to a box ---------------------------------------------------------------------------


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    low=st.floats(-2, 1), width=st.floats(0.5, 3), n=st.integers(1, 300), seed=st.integers(0, 99)
)
def test_truncated_draws_lie_in_the_box(low: float, width: float, n: int, seed: int) -> None:
    box = np.array([low, -np.inf]), np.array([low + width, np.inf])
    draws = prior_of(stats.multivariate_normal([0, 0])).within(*box)
    found = draws.sample(n, np.random.default_rng(seed))
    assert found.shape == (n, 2)
    assert ((found >= box[0]) & (found <= box[1])).all()


def test_truncated_draws_are_those_of_the_truncated_prior() -> None:
    prior = prior_of({"a": stats.norm(), "b": stats.uniform()})
    inside = prior.within(np.array([0.5, 0.2]), np.array([2.0, 0.4]))
    assert inside.names == ("a", "b")
    draws = inside.sample(4000, np.random.default_rng(0))
    truth = stats.truncnorm(0.5, 2.0)
    assert stats.kstest(draws[:, 0], truth.cdf).pvalue > 1e-4
    assert stats.kstest(draws[:, 1], stats.uniform(0.2, 0.2).cdf).pvalue > 1e-4


def test_a_truncated_sample_in_order_is_drawn_from_evenly() -> None:
    grid = np.linspace(0, 1, 1000)
    inside = prior_of(grid).within(np.array([0.2]), np.array([0.8]))  # 600 of the 1,000
    draws = inside.sample(1000, np.random.default_rng(0))
    assert stats.kstest(draws[:, 0], stats.uniform(0.2, 0.6).cdf).pvalue > 1e-4


def test_a_box_that_the_prior_never_reaches_is_refused() -> None:
    box = np.array([3.0]), np.array([4.0])
    for value in (stats.uniform(), lambda n, rng: rng.random(n), np.linspace(0, 1, 50)):
        with pytest.raises(ValueError, match=r"prior.*(only 0|none|no draw) lie"):
            prior_of(value).within(*box).sample(10, np.random.default_rng(0))


# --- invalid priors -------------------------------------------------------------------------------


class WithoutSampler:
    def pdf(self, x: float) -> float:
        return 1.0


@pytest.mark.parametrize("value", [None, 3, "normal", WithoutSampler()])
def test_a_prior_without_a_sampler_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=r"prior: expected .*scipy\.stats"):
        prior_of(value)


@pytest.mark.parametrize(
    ("value", "error", "says"),
    [
        ({}, ValueError, "empty"),
        ({"a": stats.norm(), "b": 3.0}, TypeError, r"prior\['b'\].*rvs"),
        ({"a": stats.norm(), "b": [1, 2]}, TypeError, r"prior\['b'\]"),
        (np.array([[1.0, np.nan]]), ValueError, "prior.*NaN"),
        (np.array(["a", "b"]), (TypeError, ValueError), "prior"),
        (np.empty((0, 2)), ValueError, "prior"),
        (np.zeros((3, 2, 2)), ValueError, "prior"),
    ],
)
def test_what_cannot_be_a_prior_is_refused(value: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        prior_of(value)


@pytest.mark.parametrize(
    ("draw", "error", "says"),
    [
        (lambda n, rng: rng.normal(size=(n + 1, 2)), ValueError, "asked for 20 draws"),
        (lambda n, rng: rng.normal(size=(n, 2, 2)), ValueError, "asked for 20 draws"),
        (lambda n, rng: 1.0, ValueError, "asked for 20 draws"),
        (lambda n, rng: None, (TypeError, ValueError), "prior"),
        (lambda n, rng: np.array(["a"] * n), TypeError, "prior.*numbers"),
        (lambda n, rng: np.r_[np.zeros(7), np.nan, np.zeros(n - 8)], ValueError, "draw 7"),
    ],
)
def test_draws_that_are_none_are_refused(draw: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        prior_of(draw).sample(20, np.random.default_rng(0))


def test_a_vector_in_a_dict_is_refused() -> None:
    prior = prior_of({"a": stats.norm(), "both": stats.multivariate_normal([0, 0])})
    with pytest.raises(ValueError, match=r"prior\['both'\]"):
        prior.sample(10, np.random.default_rng(0))


def test_a_list_of_priors_is_answered_with_a_dict() -> None:
    with pytest.raises(TypeError, match=r"a dict of distributions by name, got a list of 2\. Name"):
        prior_of([stats.norm(), stats.uniform()])
    with pytest.raises(TypeError, match=r'prior=\{"theta1": …\}'):
        prior_of((lambda n, rng: rng.normal(size=n),))
    assert prior_of([[0.0], [1.0]]) is not None  # draws
