"""Rows drawn from a tree depend on each other as those of the data do."""

import tracemalloc
from typing import Any

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from meanmap import KernelGraphicalModel
from meanmap.kernels import Delta

DRAWS = 12_000  # a correlation of 0.66 then has a standard error of 0.005


def pair(rho: float, n: int, seed: int) -> dict[Any, np.ndarray]:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n)
    return {"a": a, "b": rho * a + np.sqrt(1 - rho**2) * rng.normal(size=n)}


def chain(n: int, seed: int, rho: float = 0.9, length: int = 5) -> dict[Any, np.ndarray]:
    """Neighbours with correlation ρ, so that the ends of five have ρ⁴ = 0.66."""
    rng = np.random.default_rng(seed)
    columns = [rng.normal(size=n)]
    while len(columns) < length:
        columns.append(rho * columns[-1] + np.sqrt(1 - rho**2) * rng.normal(size=n))
    return dict(enumerate(columns))


def correlation(rows: dict[Any, np.ndarray], a: Any, b: Any) -> float:
    return float(np.corrcoef(rows[a], rows[b])[0, 1])


@pytest.mark.parametrize("seed", [0, 1])
def test_neighbours_are_as_correlated_as_in_the_data(seed: int) -> None:
    data = pair(0.95, 1000, seed)
    model = KernelGraphicalModel(nx.path_graph(["a", "b"])).fit(data)
    drawn = model.sample(DRAWS, rng=0)
    assert_allclose(correlation(drawn, "a", "b"), correlation(data, "a", "b"), atol=0.03)
    assert_allclose(drawn["b"].std(), data["b"].std(), rtol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_ends_of_a_chain_are_as_correlated_as_in_the_data(seed: int) -> None:
    data = chain(1000, seed)
    model = KernelGraphicalModel(nx.path_graph(5)).fit(data)
    drawn = model.sample(DRAWS, rng=0)
    expected = np.prod([correlation(data, i, i + 1) for i in range(4)])  # they form a chain
    assert_allclose(correlation(drawn, 0, 4), expected, atol=0.03)
    a, b = model.joint(0, 4).sample(DRAWS, rng=0)
    assert_allclose(np.corrcoef(a[:, 0], b[:, 0])[0, 1], expected, atol=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("shift, scale", [(1e6, 1.0), (0.0, 1e-9), (-50.0, 1e4)])
def test_units_do_not_matter(shift: float, scale: float) -> None:
    data = chain(300, 0, length=3)
    moved = {**data, 1: shift + scale * data[1]}
    plain, other = (
        KernelGraphicalModel(nx.path_graph(3)).fit(d).sample(2000, rng=0) for d in (data, moved)
    )
    assert_allclose(correlation(other, 0, 1), correlation(plain, 0, 1), atol=1e-2)
    assert_allclose(correlation(other, 0, 2), correlation(plain, 0, 2), atol=1e-2)


@pytest.mark.slow
def test_pairs_of_distant_nodes_take_little_memory() -> None:
    model = KernelGraphicalModel(nx.path_graph(5)).fit(chain(1000, 0))
    tracemalloc.start()
    a, b = model.joint(0, 4).sample(1000, rng=0)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert a.shape == b.shape == (1000, 1)
    assert most < 100e6


def test_pairs_under_evidence_are_those_of_rows() -> None:
    model = KernelGraphicalModel(nx.path_graph(5)).fit(chain(500, 0))
    a, b = model.joint(1, 4, {2: 1.0}).sample(4000, rng=0)
    # independent given what lies between them, with the means 0.9 and 0.81
    assert abs(np.corrcoef(a[:, 0], b[:, 0])[0, 1]) < 0.15
    assert_allclose([a.mean(), b.mean()], [0.9, 0.81], atol=0.25)


def test_either_sign_stays_either_sign() -> None:
    rng = np.random.default_rng(0)
    a = rng.uniform(1, 2, size=1000)
    data = {"a": a, "b": rng.choice([-1, 1], 1000) * a + 0.1 * rng.normal(size=1000)}
    drawn = KernelGraphicalModel(nx.path_graph(["a", "b"])).fit(data).sample(4000, rng=0)
    off = abs(abs(drawn["b"]) - drawn["a"])
    assert (off < 0.4).mean() > 0.97 and 0.45 < (drawn["b"] > 0).mean() < 0.55


def test_spread_that_depends_on_the_neighbour() -> None:
    rng = np.random.default_rng(0)
    a = rng.uniform(0, 1, size=1000)
    data = {"a": a, "b": (0.1 + a) * rng.normal(size=1000)}
    drawn = KernelGraphicalModel(nx.path_graph(["a", "b"])).fit(data).sample(DRAWS, rng=0)
    low, high = (drawn["b"][abs(drawn["a"] - at) < 0.1].std() for at in (0.2, 0.8))
    assert_allclose([low, high], [0.3, 0.9], rtol=0.2)


def test_counts_stay_counts() -> None:
    rng = np.random.default_rng(0)
    rate = rng.uniform(1, 9, size=400)
    data = {"rate": rate, "count": rng.poisson(rate)}
    drawn = KernelGraphicalModel(nx.path_graph(["rate", "count"])).fit(data).sample(500, rng=0)
    assert set(drawn["count"]) <= set(data["count"]) and set(drawn["rate"]) <= set(data["rate"])


def test_a_label_given_a_number() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=1000)
    data = {"a": a, "sign": np.where(a > 0, "plus", "minus")}
    model = KernelGraphicalModel(nx.path_graph(["a", "sign"])).fit(data)
    drawn = model.sample(DRAWS, rng=0)
    clear = abs(drawn["a"]) > 0.3
    assert ((drawn["sign"] == "plus") == (drawn["a"] > 0))[clear].mean() > 0.97
    assert (model.sample(500, rng=0, evidence={"sign": "plus"})["a"] > 0).mean() > 0.97


def test_a_number_given_a_label_is_one_of_its_rows() -> None:
    label = np.array(["x"] * 30 + ["y"] * 10)
    data = {"label": label, "b": np.r_[np.arange(30), 100.0 + np.arange(10)]}
    model = KernelGraphicalModel(nx.path_graph(["label", "b"]), {"label": Delta()}, 0).fit(data)
    drawn = model.sample(2000, rng=0)
    assert_array_equal(drawn["b"] >= 100, drawn["label"] == "y")


@pytest.mark.slow
def test_a_child_of_two_parents() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 800))
    data = {"a": a, "b": b, "c": a - b + 0.2 * rng.normal(size=800)}
    drawn = KernelGraphicalModel(nx.DiGraph([("a", "c"), ("b", "c")])).fit(data).sample(5000, rng=0)
    assert abs(correlation(drawn, "a", "b")) < 0.1
    assert_allclose(correlation(drawn, "a", "c"), correlation(data, "a", "c"), atol=0.1)
    assert_allclose((drawn["c"] - drawn["a"] + drawn["b"]).std(), 0.2, atol=0.15)


def test_repeated_rows_change_little() -> None:
    data = pair(0.95, 300, 0)
    twice = {name: np.repeat(values, 2) for name, values in data.items()}
    drawn = KernelGraphicalModel(nx.path_graph(["a", "b"])).fit(twice).sample(DRAWS, rng=0)
    assert_allclose(correlation(drawn, "a", "b"), correlation(data, "a", "b"), atol=0.05)


def test_evidence_that_says_nothing_leaves_the_distribution() -> None:
    data = pair(0.95, 300, 0)
    model = KernelGraphicalModel(nx.path_graph(["a", "b"])).fit(data)
    with pytest.warns(match="outside the data"):
        drawn = model.sample(4000, rng=0, evidence={"a": 1e6})
    assert_allclose(drawn["b"].mean(), data["b"].mean(), atol=0.15)
    assert_allclose(drawn["b"].std(), data["b"].std(), rtol=0.1)
