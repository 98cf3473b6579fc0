"""Spread: a standard deviation does not depend on where the sample lies."""

from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest

from meanmap import (
    AdditiveFilter,
    BeliefPropagation,
    ConditionalEmbedding,
    KernelABC,
    KernelBayesFilter,
    KernelGraphicalModel,
    SpectralFilter,
    embed,
)
from meanmap.dynamics.sequence_sums import StepSums
from meanmap.spaces import PivotedCholesky
from meanmap.streams import RunningEmbedding

CASES: dict[str, Callable[[Any], Any]] = {}


def grid(values: np.ndarray) -> np.ndarray:
    """Values rounded to multiples of 2⁻⁷, which offsets up to 1e8 do not round again."""
    return np.round(values * 128) / 128


def sample(seed: int = 0) -> tuple[np.ndarray, ...]:
    """X, Y of a regression; states and observations of a series."""
    r = np.random.default_rng(seed)
    X = grid(r.normal(size=(200, 1)))
    Y = grid(np.sin(X) + 0.2 * r.normal(size=X.shape))
    S = grid(0.5 * np.cumsum(r.normal(size=X.shape), axis=0) % 6)
    return X, Y, S, grid(S + 0.3 * r.normal(size=X.shape))


def case(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    CASES[function.__name__] = function
    return function


@case
def embedding(move: Any) -> Any:
    return embed(move(sample()[1]))


@case
def matrices(move: Any) -> Any:
    return embed(move(sample()[1]).reshape(50, 2, 2))


@case
def joint_embedding(move: Any) -> Any:
    X, Y, *_ = sample()
    return embed((move(X), move(Y)))


@case
def batch_on_a_running_embedding(move: Any) -> Any:
    stream = RunningEmbedding(basis=PivotedCholesky(1e-6))
    for rows in np.array_split(sample()[1], 3):
        stream.partial_fit(move(rows))
    return stream.embedding_


@case
def conditional(move: Any) -> Any:
    X, Y, *_ = sample()
    return ConditionalEmbedding().fit(move(X, 0.0), move(Y)).given(move(X[:9], 0.0))


@case
def conditional_of_a_stream(move: Any) -> Any:
    X, Y, *_ = sample()
    model = ConditionalEmbedding(basis=PivotedCholesky(1e-6))
    for rows in np.array_split(np.arange(200), 3):
        model.partial_fit(move(X[rows], 0.0), move(Y[rows]))
    return model.given(move(X[:9], 0.0))


@case
def sum_rule(move: Any) -> Any:
    X, Y, *_ = sample()
    return ConditionalEmbedding().fit(move(X, 0.0), move(Y)).push(move(X[:30], 0.0))


@case
def chain_rule(move: Any) -> Any:
    X, Y, *_ = sample()
    return ConditionalEmbedding().fit(move(X, 0.0), move(Y)).joint(move(X[:30], 0.0)).marginal(1)


def posterior(move: Any, method: str) -> Any:
    X, Y, *_ = sample()
    # with less regularisation weights in single precision vary by a percent, wherever X lies
    model = ConditionalEmbedding(regularization=0.01).fit(move(X), move(Y, 0.0))
    under = model.posterior(move(X[:100]), method=method, regularization=0.01)
    return under.given(move(Y[:5], 0.0))


@case
def posterior_by_importance(move: Any) -> Any:
    return posterior(move, "importance")


@case
def posterior_squared(move: Any) -> Any:
    return posterior(move, "squared")


@case
def posterior_reweighted(move: Any) -> Any:
    return posterior(move, "reweighted")


def series(model: Any, move: Any) -> tuple[Any, Any]:
    *_, states, seen = sample()
    return model.fit(move(states), move(seen, 0.0)), move(seen[:20], 0.0)


@case
def bayes_filter(move: Any) -> Any:
    model, seen = series(KernelBayesFilter(validation=None), move)
    return model.filter(seen)


@case
def bayes_filter_without_beliefs(move: Any) -> Any:
    model, seen = series(KernelBayesFilter(validation=None), move)
    return model.filter(seen, beliefs=False)


@case
def bayes_smoother(move: Any) -> Any:
    model, seen = series(KernelBayesFilter(validation=None), move)
    return model.smooth(seen)


@case
def live_belief(move: Any) -> Any:
    model, seen = series(KernelBayesFilter(validation=None), move)
    return model.start().step(seen[0])


@case
def additive_filter(move: Any) -> Any:
    model, seen = series(AdditiveFilter(validation=None, regularization=0.01), move)
    return model.filter(seen)


@case
def additive_forecast(move: Any) -> Any:
    model, seen = series(AdditiveFilter(validation=None), move)
    return model.predict(seen, 3)


@case
def additive_filter_of_a_stream(move: Any) -> Any:
    *_, states, seen = sample()
    basis = PivotedCholesky(1e-4)  # what is left off the first batch depends on rounding
    model = AdditiveFilter(validation=None, regularization=1e-2, basis=basis)
    for rows in np.array_split(np.arange(200), 3):
        model.partial_fit(move(states[rows]), move(seen[rows], 0.0))
    return model.filter(move(seen[:20], 0.0))


@case
def spectral_filter(move: Any) -> Any:
    seen = move(sample()[3])
    return SpectralFilter(validation=None).fit(seen).predict(seen[:20], 2)


@case
def tree(move: Any) -> Any:
    X, Y, *_ = sample()
    model = KernelGraphicalModel(nx.path_graph(["a", "b"]))
    return model.fit({"a": move(X, 0.0), "b": move(Y)}).marginal("b", {"a": 0.5})


@case
def beliefs_of_a_graph(move: Any) -> Any:
    X, Y, *_ = sample()
    model = BeliefPropagation(nx.path_graph(["a", "b"]))
    return model.fit({"a": move(X, 0.0), "b": move(Y)}).run({"a": 0.5}).belief("b")


def deviations(found: Any) -> np.ndarray:
    std = found.std() if callable(found.std) else found.std
    parts = std if isinstance(std, tuple) else (std,)
    return np.concatenate([np.ravel(part) for part in parts])


def mean(found: Any) -> np.ndarray:
    mean = found.mean() if callable(found.mean) else found.mean
    parts = mean if isinstance(mean, tuple) else (mean,)
    return np.concatenate([np.ravel(part) for part in parts])


def moved_by(offset: float, dtype: type) -> Callable[..., np.ndarray]:
    return lambda rows, by=offset: (rows + by).astype(dtype)


@pytest.mark.parametrize("offset", [1e6, 1e7, 1e8])
@pytest.mark.parametrize("name", CASES)
def test_spread_does_not_depend_on_where_the_sample_lies(name: str, offset: float) -> None:
    here, there = (CASES[name](moved_by(by, np.float64)) for by in (0.0, offset))
    np.testing.assert_allclose(deviations(there), deviations(here), rtol=1e-8)
    np.testing.assert_allclose(mean(there) - offset, mean(here), atol=4e-16 * offset + 1e-8)


@pytest.mark.parametrize("name", CASES)
def test_spread_in_single_precision(name: str) -> None:
    here, there = (CASES[name](moved_by(by, np.float32)) for by in (0.0, 1e4))
    np.testing.assert_allclose(deviations(there), deviations(here), rtol=1e-3)


def test_spread_of_seconds_since_1970() -> None:
    r = np.random.default_rng(0)
    noise = r.normal(size=(300, 1))
    assert embed(1.7e9 + noise).std() == pytest.approx(noise.std(), rel=1e-6)
    single = (1e4 + noise).astype(np.float32)
    assert embed(single).std() == pytest.approx(single.astype(float).std(), rel=1e-5)


def test_a_wild_row_without_weight_does_not_blur_the_others() -> None:
    points = np.arange(101.0)[:, None]
    points[50] = 1e12
    weights = np.where(points[:, 0] < 1e3, 0.01, 0.0)
    expected = np.std(np.delete(points[:, 0], 50))
    assert embed(points, weights=weights).std() == pytest.approx(expected, rel=1e-12)


def test_spread_of_simulations_does_not_depend_on_where_they_lie() -> None:
    def found(offset: float) -> Any:
        def prior(n: int, rng: np.random.Generator) -> np.ndarray:
            return offset + grid(rng.normal(size=(n, 1)))

        def simulator(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
            return theta - offset + grid(0.5 * rng.normal(size=theta.shape))

        return KernelABC(simulator, prior, random_state=0).fit(500).posterior([[0.5]])

    here, there = found(0.0), found(1e8)
    np.testing.assert_allclose(there.std(), here.std(), rtol=1e-6)


def test_tallies_about_different_references_add_up() -> None:
    r = np.random.default_rng(0)
    told = r.normal(size=(50, 2))

    def step_sums(rows: np.ndarray, reference: float) -> StepSums:
        off = rows[:, :1] - reference
        described = np.hstack([np.ones_like(off), off, off * off, rows[:, 1:]])
        sums = described.sum(axis=0), rows.T @ rows, described.T @ rows
        return StepSums(rows.T @ rows, *sums, float(len(rows)), np.array([reference]))

    whole = step_sums(told, 1.0)
    parts = step_sums(told[:20], 1.0) + step_sums(told[20:], -2.0)
    np.testing.assert_allclose(parts.states, whole.states, atol=1e-12)
    np.testing.assert_allclose(parts.cross, whole.cross, atol=1e-12)
