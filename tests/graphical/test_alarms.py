"""Evidence outside the data, and evidence that contradicts itself, is answered with a warning."""

import warnings
from functools import cache
from typing import Any

import networkx as nx
import numpy as np
import pytest

from meanmap import BeliefPropagation, DataWarning, KernelGraphicalModel

MODELS = [KernelGraphicalModel, BeliefPropagation]


def ask(model: Any, node: Any, evidence: dict[Any, Any]) -> Any:
    if isinstance(model, BeliefPropagation):
        return model.run(evidence).belief(node)
    return model.marginal(node, evidence)


@cache
def fitted(kind: Any, n: int, noise: float, law: str = "normal", scale: float = 1.0) -> Any:
    rng = np.random.default_rng(0)
    a = {"normal": rng.normal(size=n), "uniform": rng.uniform(-1, 1, size=n)}[law]
    data = {"a": scale * a, "b": a + noise * rng.normal(size=n)}
    return kind(nx.path_graph(["a", "b"])).fit(data)


def warned(model: Any, node: Any, evidence: dict[Any, Any], words: str) -> bool:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        ask(model, node, evidence)
    return any(w.category is DataWarning and words in str(w.message) for w in said)


@pytest.mark.parametrize("noise", [0.01, 0.3, 1.0, 5.0])
@pytest.mark.parametrize("n", [100, 1000])
@pytest.mark.parametrize("kind", MODELS)
def test_evidence_four_deviations_out_is_said(kind: Any, n: int, noise: float) -> None:
    model = fitted(kind, n, noise)
    for far in (-4.5, 4.0, 6.0):
        assert warned(model, "b", {"a": far}, "'a' lies outside the data")
    for near in (-1.5, 0.0, 0.3, 2.0):
        assert not warned(model, "b", {"a": near}, "outside")


@pytest.mark.parametrize("noise", [0.01, 1.0])
@pytest.mark.parametrize("kind", MODELS)
def test_half_a_range_beyond_bounded_data(kind: Any, noise: float) -> None:
    model = fitted(kind, 300, noise, "uniform")
    assert warned(model, "b", {"a": 1.5}, "outside the data")
    assert not warned(model, "b", {"a": 0.95}, "outside the data")


def test_units_of_the_alarm() -> None:
    model = fitted(KernelGraphicalModel, 300, 0.3, "normal", 1e5)
    assert warned(model, "b", {"a": 4.5e5}, "outside the data")
    assert not warned(model, "b", {"a": 1.5e5}, "outside the data")


@pytest.mark.parametrize("noise", [0.01, 1.0])
def test_rows_like_those_of_the_data_are_hardly_ever_outside(noise: float) -> None:
    model = fitted(KernelGraphicalModel, 1000, noise)
    new = np.random.default_rng(1).normal(size=200)
    assert np.mean([warned(model, "b", {"a": x}, "outside") for x in new]) < 0.03


def labels(n: int) -> dict[str, np.ndarray]:
    return {name: np.array(["x", "y"])[np.arange(n) % 2] for name in "abc"}


@pytest.mark.parametrize("n", [20, 1000])
@pytest.mark.parametrize("kind", MODELS)
def test_contradictory_labels_are_said_at_the_default(kind: Any, n: int) -> None:
    model = kind(nx.path_graph(["a", "b", "c"])).fit(labels(n))
    assert warned(model, "b", {"a": "x", "c": "y"}, "conflict")
    assert not warned(model, "b", {"a": "x", "c": "x"}, "conflict")


def numbers(n: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n)
    b = 0.95 * a + 0.3 * rng.normal(size=n)
    return {"a": a, "b": b, "c": 0.95 * b + 0.3 * rng.normal(size=n)}


@pytest.mark.slow
def test_contradictory_numbers_are_said() -> None:
    model = KernelGraphicalModel(nx.path_graph(["a", "b", "c"])).fit(numbers(1000, 0))
    assert warned(model, "b", {"a": 1.5, "c": -1.5}, "conflicts in 1 of 1 queries")
    assert not warned(model, "b", {"a": 1.5, "c": 1.0}, "conflict")
    new = numbers(300, 1)
    each = [{"a": a, "c": c} for a, c in zip(new["a"], new["c"], strict=True)]
    assert np.mean([warned(model, "b", evidence, "conflict") for evidence in each]) < 0.03


@pytest.mark.slow
def test_samples_under_contradictory_evidence_are_said_once() -> None:
    model = KernelGraphicalModel(nx.path_graph(["a", "b", "c"])).fit(numbers(1000, 0))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.sample(600, rng=0, evidence={"a": 1.5, "c": -1.5})
    assert len([w for w in said if "conflicts" in str(w.message)]) == 1
    assert all(w.filename == __file__ for w in said)
