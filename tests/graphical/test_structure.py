"""Trees learned from tables."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import oracles
from meanmap import KernelGraphicalModel
from meanmap.graphical import chow_liu_tree
from meanmap.kernels import Delta, Gaussian, Linear
from oracles import Array


def edges(graph: Any) -> set[frozenset[Any]]:
    return {frozenset(edge) for edge in graph.edges}


def drawn(graph: Any, n: int, seed: int, links: Any) -> dict[Any, Array]:
    """Columns along a directed tree, each a function of its parent and noise."""
    rng = np.random.default_rng(seed)
    data: dict[Any, Array] = {}
    for i, node in enumerate(nx.topological_sort(graph)):
        before = list(graph.predecessors(node))
        noise = rng.normal(size=n)
        data[node] = links[i % len(links)](data[before[0]]) + 0.4 * noise if before else noise
    return {name: data[name] for name in rng.permutation(list(data))}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "graph",
    [
        nx.DiGraph(nx.utils.pairwise("abcdef")),
        nx.DiGraph([("a", leaf) for leaf in "bcdef"]),
        nx.DiGraph([("a", "b"), ("a", "c"), ("b", "d"), ("b", "e"), ("c", "f")]),
    ],
    ids=["chain", "star", "tree"],
)
def test_trees_of_numbers(graph: Any, seed: int) -> None:
    links = [lambda x: x, lambda x: 1.5 * np.tanh(x), lambda x: -x]
    data = drawn(graph, 500, seed, links)
    found = chow_liu_tree(data)
    assert edges(found) == edges(graph)
    assert all(0 < weight <= 1 for _, _, weight in found.edges(data="weight"))


@pytest.mark.parametrize("seed", range(3))
def test_a_tree_of_numbers_and_labels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 500
    kind = rng.choice(["red", "green", "blue"], size=n)
    size = np.select([kind == "red", kind == "green"], [-2.0, 2.0]) + 0.5 * rng.normal(size=n)
    # noisy enough to say less about the kind than the size does: edge weights do not measure
    # information, and a clean (s, s²) would separate three kinds better than s
    pair = np.c_[size, size**2] + rng.normal(size=(n, 2))
    small = np.where(size + 0.3 * rng.normal(size=n) > 1, "large", "small")
    flag = rng.random(n) < np.where(small == "large", 0.9, 0.1)
    data = {"kind": kind, "size": size, "pair": pair, "small": small, "flag": flag}
    truth = {frozenset(e) for e in (("kind", "size"), ("size", "pair"), ("small", "flag"))}
    found = edges(chow_liu_tree(data))
    assert truth <= found and len(found) == 4
    frame = pd.DataFrame({name: data[name] for name in ("kind", "size", "small", "flag")})
    assert frozenset(("small", "flag")) in edges(chow_liu_tree(frame))


def test_the_weight_is_normalised_hsic() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=40)
    b = a**2 + 0.3 * rng.normal(size=40)
    found = chow_liu_tree({"a": a, "b": b}, Gaussian(1.0))["a"]["b"]["weight"]
    K, L = (oracles.gaussian(x[:, None], x[:, None], 1.0) for x in (a, b))
    expected = oracles.hsic(K, L) / np.sqrt(oracles.hsic(K, K) * oracles.hsic(L, L))
    assert_allclose(found, expected, rtol=1e-6)


def test_the_kernel_matters() -> None:
    """A square is not seen by a linear kernel."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    data = {"x": x, "square": x**2 + 0.1 * rng.normal(size=400), "near": x + rng.normal(size=400)}
    assert frozenset(("x", "square")) in edges(chow_liu_tree(data))
    blind = chow_liu_tree(data, {"x": Linear(), "square": Linear(), "near": Linear()})
    assert edges(blind) != edges(chow_liu_tree(data)) or blind["x"]["square"]["weight"] < 0.05


def test_constants_are_no_hindrance() -> None:
    data = drawn(nx.DiGraph(nx.utils.pairwise("abcd")), 300, 0, [lambda x: x])
    data = {"one": np.ones(300), "same": np.full(300, "x"), **data}
    found = chow_liu_tree(data)
    assert {frozenset(pair) for pair in ("ab", "bc", "cd")} <= edges(found)
    for a, b, weight in found.edges(data="weight"):
        assert {a, b} <= set("abcd") or weight == pytest.approx(0, abs=1e-10)
    model = KernelGraphicalModel(regularization=0.01).fit(data)
    assert_allclose(model.marginal("one", {"a": 0.5}).mean(), [1.0])
    assert model.most_probable("same", {"a": 0.5}) == "x"


def test_missing_values_leave_rows_out() -> None:
    data = drawn(nx.DiGraph(nx.utils.pairwise("abcd")), 400, 1, [lambda x: x])
    rng = np.random.default_rng(0)
    holes = {k: np.where(rng.random(400) < 0.3, np.nan, v) for k, v in data.items()}
    found = chow_liu_tree(holes)
    assert edges(found) == {frozenset(pair) for pair in ("ab", "bc", "cd")}
    never = {**data, "a": np.r_[data["a"][:200], np.full(200, np.nan)]}
    never["d"] = np.r_[np.full(200, np.nan), data["d"][200:]]  # a and d never together
    assert frozenset("ad") not in edges(chow_liu_tree(never))


def test_columns_that_are_never_together_stay_apart() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 40))
    a[:20], b[20:] = np.nan, np.nan
    found = chow_liu_tree({"a": a, "b": b})
    assert set(found.nodes) == {"a", "b"} and not found.edges
    model = KernelGraphicalModel(regularization=0.01).fit({"a": a, "b": b})
    assert_allclose(model.marginal("a", {"b": b[0]}).mean(), [np.nanmean(a)])


def test_one_column_is_a_tree() -> None:
    found = chow_liu_tree({"a": np.arange(5.0)})
    assert list(found.nodes) == ["a"] and not found.edges
    model = KernelGraphicalModel().fit({"a": np.arange(5.0)})
    assert_allclose(model.marginal("a").mean(), [2.0])
    assert set(model.sample(9, rng=0)["a"]) <= set(range(5))


@pytest.mark.slow
def test_a_model_without_a_graph_learns_one() -> None:
    data = drawn(nx.DiGraph(nx.utils.pairwise("abcd")), 300, 2, [lambda x: x])
    model = KernelGraphicalModel(regularization=0.01).fit(data)
    assert model.graph is None
    assert edges(model.graph_) == edges(chow_liu_tree(data))
    again = KernelGraphicalModel(model.graph_, regularization=0.01).fit(data)
    evidence = {"a": 0.4, "d": -0.2}
    assert_allclose(model.marginal("b", evidence).mean(), again.marginal("b", evidence).mean())


def test_a_learned_graph_does_not_count_rows_of_no_weight() -> None:
    """a is b and c is d in the rows that count; a is d and c is b in many that do not."""
    rng = np.random.default_rng(0)
    a, c = rng.integers(2, size=(2, 500))
    counts = np.arange(500) < 100
    data = {"a": a, "b": np.where(counts, a, c), "c": c, "d": np.where(counts, c, a)}
    model = KernelGraphicalModel(kernel=Delta(), regularization=0).fit(data, counts.astype(float))
    assert {frozenset("ab"), frozenset("cd")} <= edges(model.graph_)
    assert_allclose(model.marginal("b", {"a": 1})(np.array([0, 1])), [0, 1], atol=1e-10)
