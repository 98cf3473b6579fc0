"""Belief propagation on graphs with loops: against dense messages, tables and enumeration."""

from __future__ import annotations

import pickle
import warnings
from functools import cache
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import meanmap
import oracles
from meanmap import BeliefPropagation, DataWarning, KernelGraphicalModel, embed
from meanmap.kernels import Delta, Gaussian, Laplace
from optional_packages import require
from oracles import Array

SCHEDULES = ("synchronous", "sequential", "residual")
LAMBDA = 0.02


def messages_of(found: Any) -> dict[tuple[Any, Any], Array]:
    """The messages among hidden nodes at the targets' samples, by the names of the ends."""
    wiring, potentials = found.passing.wiring, found.known.potentials
    nodes = potentials.field.nodes
    values = {}
    for kind, link in enumerate(wiring.link):
        for i, j in zip(*np.nonzero(link >= 0), strict=True):
            other, at, slot = wiring.to[kind][i, j]
            ends = nodes[wiring.hidden[kind][i]], nodes[wiring.hidden[other][at]]
            values[ends] = potentials.nodes[other].coordinates @ found.state[other][at, slot]
    return values


def quiet(model: BeliefPropagation, evidence: Any = None, most: int = 50) -> Any:
    """A run that need not converge."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.run(evidence, most)


# --- the paper's dense formulas -------------------------------------------------------------------


def numbers(graph: Any, n: int, seed: int = 0) -> dict[Any, Array]:
    """Columns that depend on those of earlier neighbours, each in its own nonlinear way."""
    rng = np.random.default_rng(seed)
    data: dict[Any, Array] = {}
    for i, name in enumerate(graph.nodes):
        before = [data[other] for other in graph[name] if other in data]
        shift = sum((np.sin((1 + i % 3) * column) for column in before), np.zeros(n))
        data[name] = shift + (0.5 if before else 1.0) * rng.normal(size=n)
    return data


GRAPHS = {
    "cycle": nx.cycle_graph(5),
    "grid": nx.grid_2d_graph(3, 3),
    "complete": nx.complete_graph(4),
    "wheel": nx.wheel_graph(5),
    "tail": nx.lollipop_graph(3, 3),
    "pair": nx.path_graph(2),
}


@cache
def dense(name: str, n: int = 45) -> tuple[BeliefPropagation, dict[Any, Array], dict[Any, Array]]:
    graph = GRAPHS[name]
    data = numbers(graph, n)
    model = BeliefPropagation(graph, Laplace(1.0), LAMBDA, tolerance=1e-14, reweighting=1.0)
    model = model.fit(data)
    grams = {v: oracles.laplace(x[:, None], x[:, None], 1.0) for v, x in data.items()}
    return model, data, grams


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize(("iterations", "damping"), [(1, 0.0), (2, 0.3), (7, 0.0), (9, 0.5)])
@pytest.mark.parametrize("known", [0, 1, 2])
def test_messages_are_those_of_algorithm_six(
    name: str, iterations: int, damping: float, known: int
) -> None:
    model, data, grams = dense(name)
    graph = GRAPHS[name]
    points = {v: float(data[v][3]) for v in list(graph.nodes)[1 : 1 + min(known, len(graph) - 1)]}
    k = {
        v: oracles.laplace(data[v][:, None], np.array([[x]]), 1.0)[:, 0] for v, x in points.items()
    }
    last = list(graph.nodes)[-1]
    factors, sensors = {}, {}
    if last not in points:
        factors = {last: np.exp(-((data[last] - 0.5) ** 2))}
        sensors = {last: lambda x: np.exp(-((x[:, 0] - 0.5) ** 2))}
    expected, beliefs = oracles.loopy_kernel_messages(
        list(graph.edges), grams, k, LAMBDA, iterations, damping, factors
    )
    found = quiet(clone_of(model, damping=damping), {**points, **sensors}, iterations)
    sent = messages_of(found)
    assert set(sent) == {(t, s) for t, s in expected if t not in points and s not in points}
    for ends, values in sent.items():
        assert_allclose(values, expected[ends], rtol=1e-6, atol=1e-8)
        assert_allclose(values.mean(), 1, rtol=1e-9)
    for v, weights in beliefs.items():
        assert_allclose(found.belief(v).weights, weights, rtol=1e-6, atol=1e-10)


def clone_of(model: BeliefPropagation, **options: Any) -> BeliefPropagation:
    """The same fitted model with other settings of a run."""
    other = clone(model, safe=False).set_params(**options)
    other.nodes_, other.potentials_ = model.nodes_, model.potentials_
    return other


def test_weights_of_rows_in_dense_messages() -> None:
    graph = GRAPHS["cycle"]
    _, data, grams = dense("cycle")
    w = np.random.default_rng(2).dirichlet(np.ones(45))
    model = BeliefPropagation(graph, Laplace(1.0), LAMBDA, tolerance=1e-14, reweighting=1.0)
    model = model.fit(data, w)
    k = {0: oracles.laplace(data[0][:, None], np.array([[0.4]]), 1.0)[:, 0]}
    expected, beliefs = oracles.loopy_kernel_messages(list(graph.edges), grams, k, LAMBDA, 4, w=w)
    found = quiet(model, {0: 0.4}, 4)
    for ends, values in messages_of(found).items():
        assert_allclose(values, expected[ends], rtol=1e-6, atol=1e-8)
        assert_allclose(w @ values, 1, rtol=1e-9)
    for v, weights in beliefs.items():
        assert_allclose(found.belief(v).weights, weights, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("damping", [0.0, 0.4])
def test_every_schedule_has_the_dense_fixed_point(schedule: str, damping: float) -> None:
    model, data, grams = dense("grid")
    k = {(0, 0): oracles.laplace(data[0, 0][:, None], np.array([[0.8]]), 1.0)[:, 0]}
    edges = list(GRAPHS["grid"].edges)
    _, beliefs = oracles.loopy_kernel_messages(edges, grams, k, LAMBDA, 200, 0.3)
    one = clone_of(model, schedule=schedule, damping=damping, tolerance=1e-11)
    found = one.run({(0, 0): 0.8}, 400)
    assert found.converged
    for v, weights in beliefs.items():
        assert_allclose(found.belief(v).weights, weights, rtol=1e-5, atol=1e-9)


def test_blocks_and_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = nx.grid_2d_graph(4, 4)
    for a, b in graph.edges:
        graph[a][b]["template"] = a[1] == b[1]
    data = numbers(graph, 12)
    model = BeliefPropagation(graph, Laplace(1.0), LAMBDA).fit(data)
    whole = model.run({(1, 1): 0.5}, 100)
    monkeypatch.setattr("meanmap.graphical.passing.BLOCK", 1)
    parts = model.run({(1, 1): 0.5}, 100)
    assert_allclose(parts.residuals, whole.residuals, rtol=1e-8)
    for v in graph:
        assert_allclose(parts.mean[v], whole.mean[v], rtol=1e-10)


# --- tables ---------------------------------------------------------------------------------------


def random_rows(rng: np.random.Generator, graph: Any, n: int, k: int) -> dict[Any, Array]:
    """Labels that depend on neighbours, with every pair of labels likely enough to be seen."""
    data: dict[Any, Array] = {}
    for v in graph:
        column = rng.integers(k, size=n)
        for other in graph[v]:
            if other in data:
                turn = rng.integers(k)
                column = np.where(rng.random(n) < 0.35, (data[other] + turn) % k, column)
        data[v] = column
    return data


def tables_of(graph: Any, data: dict[Any, Array], k: int) -> tuple[Any, dict[Any, Array]]:
    tables = {(a, b): oracles.pair_frequencies(data[a], data[b], (k, k)) for a, b in graph.edges}
    marginals = {v: np.bincount(data[v], minlength=k) / len(data[v]) for v in graph}
    return tables, marginals


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    p=st.integers(2, 6),
    k=st.integers(2, 3),
    dense=st.sampled_from([0.3, 0.6, 1.0]),
    iterations=st.integers(1, 6),
    damping=st.sampled_from([0.0, 0.25, 0.9]),
    known=st.integers(0, 3),
    soft=st.booleans(),
)
def test_random_graphs_are_loopy_propagation_on_tables(
    seed: int,
    p: int,
    k: int,
    dense: float,
    iterations: int,
    damping: float,
    known: int,
    soft: bool,
) -> None:
    """After any number of iterations, message by message."""
    rng = np.random.default_rng(seed)
    graph = nx.gnp_random_graph(p, dense, seed=seed)
    data = random_rows(rng, graph, 150, k)
    tables, marginals = tables_of(graph, data, k)
    observed = {int(v): int(rng.integers(k)) for v in rng.permutation(p)[: min(known, p - 1)]}
    free = [v for v in graph if v not in observed]
    factors = {free[0]: rng.random(k) + 0.05} if soft else {}
    evidence: dict[int, Any] = dict(observed)
    for v, factor in factors.items():
        evidence[v] = factor.__getitem__
    model = BeliefPropagation(
        graph, Delta(), 0, damping=damping, tolerance=1e-300, reweighting=1.0
    ).fit(data)
    found = quiet(model, evidence, iterations)
    iterations = found.iterations  # it stops where nothing moves at all
    sent, beliefs = oracles.loopy_discrete_messages(
        tables, marginals, observed, iterations, damping, factors
    )
    for (t, s), values in messages_of(found).items():
        assert_allclose(values, sent[t, s][data[s]], atol=1e-10)
    for v in free:
        assert_allclose(found.belief(v)(np.arange(k)), beliefs[v], atol=1e-10)


@pytest.mark.parametrize("name", ["cycle", "grid", "complete", "wheel", "tail"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_tables_for_every_schedule(name: str, schedule: str) -> None:
    graph = GRAPHS[name]
    data = random_rows(np.random.default_rng(0), graph, 300, 3)
    tables, marginals = tables_of(graph, data, 3)
    first = next(iter(graph))
    _, beliefs = oracles.loopy_discrete_messages(tables, marginals, {first: 2}, 100)
    model = BeliefPropagation(
        graph, Delta(), 0, schedule=schedule, tolerance=1e-14, reweighting=1.0
    ).fit(data)
    found = model.run({first: 2}, 200)
    for v, belief in beliefs.items():
        assert_allclose(found.belief(v)(np.arange(3)), belief, atol=1e-10)


@pytest.mark.slow
def test_the_residual_schedule_with_several_messages_at_a_time() -> None:
    """A grid of 224 messages, all of one template or none."""
    graph = nx.grid_2d_graph(8, 8)
    data = random_rows(np.random.default_rng(0), graph, 30, 2)
    evidence = {(0, 0): 1, (3, 4): 0, (7, 2): 1}
    for shared in (False, True):
        if shared:
            nx.set_edge_attributes(graph, "t", "template")
        options: dict[str, Any] = {"tolerance": 1e-11, "max_samples": 100, "random_state": 0}
        model = BeliefPropagation(graph, Delta(), 0, **options).fit(data)
        found = [model.set_params(schedule=how).run(evidence, 300) for how in SCHEDULES]
        assert all(one.converged for one in found)
        for v in set(graph) - set(evidence):
            expected = found[0].belief(v)(np.arange(2))
            for one in found[1:]:
                assert_allclose(one.belief(v)(np.arange(2)), expected, atol=1e-9)


def test_impossible_labels_stay_impossible() -> None:
    """Zeros of the tables, on a loop."""
    rng = np.random.default_rng(0)
    a = rng.integers(3, size=300)
    data = {0: a, 1: (a + rng.integers(2, size=300)) % 3, 2: (a + 1) % 3, 3: a}
    graph = nx.cycle_graph(4)
    tables, marginals = tables_of(graph, data, 3)
    _, beliefs = oracles.loopy_discrete_messages(tables, marginals, {0: 1}, 60)
    for schedule in SCHEDULES:
        model = BeliefPropagation(graph, Delta(), 0, schedule=schedule).fit(data)
        found = model.run({0: 1})
        for v, belief in beliefs.items():
            assert_allclose(found.belief(v)(np.arange(3)), belief, atol=1e-10)


# --- trees ----------------------------------------------------------------------------------------


def random_tree(seed: int, p: int) -> Any:
    rng = np.random.default_rng(seed)
    graph = nx.Graph()
    graph.add_nodes_from(rng.permutation(p).tolist())
    graph.add_edges_from((i, int(rng.integers(i))) for i in range(1, p))
    return graph


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), p=st.integers(1, 6), known=st.integers(0, 4))
def test_trees_equal_enumeration(seed: int, p: int, known: int) -> None:
    """One sweep is enough in order, and all schedules agree."""
    rng = np.random.default_rng(seed)
    graph = random_tree(seed, p)
    data = random_rows(rng, graph, 150, 3)
    tables, marginals = tables_of(graph, data, 3)
    joint = oracles.pairwise_joint(tables, marginals)
    evidence = {int(v): int(rng.integers(3)) for v in rng.permutation(p)[: min(known, p - 1)]}
    model = BeliefPropagation(graph, Delta(), 0, tolerance=1e-12).fit(data)
    for schedule in SCHEDULES:
        one = model.set_params(schedule=schedule)
        found = quiet(one, evidence, 1) if schedule == "sequential" else one.run(evidence, 100)
        for v in graph:
            if v not in evidence:
                expected = oracles.network_marginal(joint, list(graph), [v], evidence)
                assert_allclose(found.belief(v)(np.arange(3)), expected, atol=1e-10)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), p=st.integers(2, 7), known=st.integers(0, 4))
def test_flooding_a_tree_converges_to_its_exact_schedule(seed: int, p: int, known: int) -> None:
    """Tables, with any evidence: sides without evidence say nothing in both."""
    rng = np.random.default_rng(seed)
    graph = random_tree(seed, p)
    data = random_rows(rng, graph, 150, 3)
    evidence = {int(v): int(rng.integers(3)) for v in rng.permutation(p)[: min(known, p - 1)]}
    loopy = BeliefPropagation(graph, Delta(), 0, tolerance=1e-12, reweighting=1.0).fit(data)
    exact = KernelGraphicalModel(graph, Delta(), 0).fit(data)
    found = loopy.run(evidence, 100)
    assert found.converged
    for v in set(graph) - set(evidence):
        expected = exact.marginal(v, evidence).normalized()(np.arange(3))
        assert_allclose(found.belief(v)(np.arange(3)), expected, atol=1e-10)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), p=st.integers(3, 7))
def test_flooding_a_tree_of_numbers_converges_to_its_exact_schedule(seed: int, p: int) -> None:
    """With all leaves observed; a ridge shrinks what a side without evidence says on loops."""
    graph = random_tree(seed, p)
    data = numbers(graph, 60, seed)
    leaves = [v for v in graph if graph.degree(v) == 1]
    evidence = {v: float(np.median(data[v])) for v in leaves}
    settings_ = graph, Laplace(2.0), 0.05
    loopy = BeliefPropagation(*settings_, tolerance=1e-12, reweighting=1.0).fit(data)
    exact = KernelGraphicalModel(*settings_).fit(data)
    found = loopy.run(evidence, 100)
    assert found.converged
    for v in set(graph) - set(evidence):
        belief = exact.marginal(v, evidence)
        assert_allclose(found.belief(v).weights, belief.weights, rtol=1e-6, atol=1e-9)


def test_a_second_sweep_over_a_tree_moves_nothing() -> None:
    graph = nx.balanced_tree(2, 3)
    data = numbers(graph, 40)
    model = BeliefPropagation(graph, Laplace(1.0), LAMBDA, schedule="sequential", tolerance=1e-12)
    found = model.fit(data).run({7: 0.3, 14: -0.2})
    assert found.converged and found.iterations == 2
    for schedule in SCHEDULES:
        other = model.set_params(schedule=schedule).run({7: 0.3, 14: -0.2}, 100)
        assert other.converged
        for v in graph:
            assert_allclose(other.mean[v], found.mean[v], rtol=1e-8)


def test_one_sweep_is_enough_from_any_first_node() -> None:
    for first in range(6):
        graph = nx.Graph()
        graph.add_nodes_from([first, *(v for v in range(6) if v != first)])
        graph.add_edges_from(nx.path_graph(6).edges)
        data = random_rows(np.random.default_rng(1), nx.path_graph(6), 200, 2)
        model = BeliefPropagation(graph, Delta(), 0, schedule="sequential", tolerance=1e-12)
        assert model.fit(data).run({0: 1, 4: lambda x: 1.0 + x}).iterations == 2


@pytest.mark.slow
def test_beliefs_on_a_tree_are_near_those_of_a_graphical_model() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=600)
    b = a + 0.5 * rng.normal(size=600)
    c, d = (b + 0.5 * rng.normal(size=600) for _ in range(2))
    data = {"a": a, "b": b, "c": c, "d": d}
    tree = nx.Graph([("a", "b"), ("b", "c"), ("b", "d")])
    loopy = BeliefPropagation(tree).fit(data)
    exact = KernelGraphicalModel(tree).fit(data)
    cases: tuple[dict[str, float], ...] = ({}, {"a": 1.0}, {"c": 0.5, "d": 1.0}, {"a": -1.0})
    for evidence in cases:
        found = loopy.run(evidence)
        for node in set(data) - set(evidence):
            belief = exact.marginal(node, evidence)
            assert abs(found.mean[node] - float(belief.mean()[0])) < 0.1
            assert abs(found.std[node] - float(belief.normalized().std()[0])) < 0.15


def test_a_gaussian_tree_is_that_of_the_closed_form() -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(size=800)
    b = 0.8 * a + 0.6 * rng.normal(size=800)
    c = 0.8 * b + 0.6 * rng.normal(size=800)
    model = BeliefPropagation(nx.path_graph(list("abc"))).fit({"a": a, "b": b, "c": c})
    found = model.run({"a": 1.0, "c": 1.0})
    slope = 2 * 0.8 / 0.36 / (1 + 2 * 0.64 / 0.36)  # of b on a + c, prior N(0, 1), halved
    assert abs(found.mean["b"] - slope) < 0.1
    assert abs(found.std["b"] - (1 + 2 * 0.64 / 0.36) ** -0.5 * 1.0) < 0.15


# --- evidence -------------------------------------------------------------------------------------


@cache
def square() -> tuple[BeliefPropagation, dict[str, Array]]:
    graph = nx.cycle_graph(list("abcd"))
    data = numbers(graph, 200)
    return BeliefPropagation(graph, Gaussian(0.7), 1e-3, reweighting=1.0).fit(data), data


@cache
def labelled() -> tuple[BeliefPropagation, dict[str, Array]]:
    graph = nx.cycle_graph(list("abcd"))
    data = random_rows(np.random.default_rng(4), graph, 300, 3)
    model = BeliefPropagation(graph, Delta(), 0, tolerance=1e-12, reweighting=1.0)
    return model.fit(data), data


def test_a_likelihood_counts_up_to_a_factor() -> None:
    model, _ = square()
    found = [
        model.run({"b": lambda x, c=c: c * np.exp(-2 * (x[:, 0] - 0.4) ** 2)})
        for c in (1.0, 1e-200, 1e200)
    ]
    for other in found[1:]:
        for v in "abcd":
            assert_allclose(other.mean[v], found[0].mean[v], rtol=1e-8)
            assert_allclose(other.density(v, [0.1]), found[0].density(v, [0.1]), rtol=1e-8)


def test_a_flat_likelihood_says_nothing() -> None:
    model, _ = square()
    nothing, flat = model.run(), model.run({"b": lambda x: np.full(len(x), 7.0)})
    for v in "abcd":
        assert_allclose(flat.belief(v).weights, nothing.belief(v).weights, rtol=1e-9)
    assert_array_equal(flat.residuals, nothing.residuals)


def test_a_narrow_likelihood_is_nearly_an_observation() -> None:
    model, _ = labelled()
    seen = model.run({"b": 2})
    told = model.run({"b": lambda x: (x == 2).astype(float)})
    believed = model.run({"b": embed(np.array([2]), kernel=Delta())})
    for v in "acd":
        expected = seen.belief(v)(np.arange(3))
        assert_allclose(told.belief(v)(np.arange(3)), expected, atol=1e-10)
        assert_allclose(believed.belief(v)(np.arange(3)), expected, atol=1e-10)
    for found in (told, believed):
        assert_allclose(found.belief("b")(np.arange(3)), [0, 0, 1], atol=1e-10)


def test_a_belief_of_somebody_else_multiplies() -> None:
    """An embedding q enters as q/p: on a single node the answer is q itself."""
    graph = nx.Graph([("a", "b")])
    data = random_rows(np.random.default_rng(0), graph, 200, 3)
    model = BeliefPropagation(graph, Delta(), 0).fit(data)
    q = embed(np.array([0, 1, 2]), kernel=Delta(), weights=np.array([0.2, 0.5, 0.3]))
    found = model.run({"a": q})
    assert_allclose(found.belief("a")(np.arange(3)), [0.2, 0.5, 0.3], atol=1e-10)
    table = oracles.pair_frequencies(data["a"], data["b"], (3, 3))
    expected = np.array([0.2, 0.5, 0.3]) @ (table / table.sum(axis=1, keepdims=True))
    assert_allclose(found.belief("b")(np.arange(3)), expected, atol=1e-10)


def test_a_belief_on_a_node_without_neighbours_is_taken_as_it_is() -> None:
    data = {"a": np.array([0, 1, 1, 2]), "b": np.array([0, 1, 0, 1])}
    model = BeliefPropagation(nx.empty_graph(["a", "b"]), Delta(), 0).fit(data)
    q = embed(np.array([0, 1, 2]), kernel=Delta(), weights=np.array([0.2, 0.5, 0.3]))
    assert_allclose(model.run({"a": q}).belief("a")(np.arange(3)), [0.2, 0.5, 0.3], atol=1e-10)


def test_the_priors_own_embedding_says_nothing() -> None:
    model, data = labelled()
    nothing, told = model.run(), model.run({"a": embed(data["a"], kernel=Delta())})
    for v in "abcd":
        assert_allclose(told.belief(v)(np.arange(3)), nothing.belief(v)(np.arange(3)), atol=1e-10)
    model, data = square()
    nothing, told = model.run(), model.run({"a": embed(data["a"][:, None])})
    for v in "abcd":
        assert abs(told.mean[v] - nothing.mean[v]) < 0.05


def test_a_soft_point_of_numbers_is_near_an_observation() -> None:
    model, _ = square()
    seen, told = model.run({"a": 0.7}), model.run({"a": embed([[0.7]])})
    assert abs(told.mean["a"] - 0.7) < 0.15
    for v in "bcd":
        assert abs(told.mean[v] - seen.mean[v]) < 0.15


def test_beliefs_of_one_run_are_evidence_of_another() -> None:
    model, _ = square()
    first = model.run({"a": 0.7})
    again = model.run({"b": first.belief("b")})
    assert abs(again.mean["b"] - first.mean["b"]) < 0.3


def test_an_array_of_evidence_is_a_dict() -> None:
    graph = nx.grid_2d_graph(2, 3)
    data = np.random.default_rng(0).normal(size=(60, 2, 3)).cumsum(axis=2)
    model = BeliefPropagation(graph, Laplace(1.0), LAMBDA).fit(data)
    picture = np.full((2, 3), np.nan)
    picture[0, 1], picture[1, 2] = 0.5, -0.3
    one, other = model.run(picture), model.run({(0, 1): 0.5, (1, 2): -0.3})
    assert one.mean == other.mean
    assert_array_equal(one.array(), other.array())
    assert one.array()[0, 1] == 0.5
    frame = pd.DataFrame({place: data[:, place[0], place[1]] for place in graph})
    columns = {place: data[:, place[0], place[1]] for place in graph}
    for same in (frame, columns):
        again = BeliefPropagation(graph, Laplace(1.0), LAMBDA).fit(same)
        assert again.run(picture).mean == one.mean
    empty = model.run(np.full((2, 3), np.nan))
    assert empty.mean == model.run().mean == model.run({}).mean


def test_an_array_of_labels_as_evidence() -> None:
    graph = nx.grid_2d_graph(2, 2)
    rng = np.random.default_rng(0)
    data = rng.choice(["no", "yes"], size=(60, 2, 2))
    model = BeliefPropagation(graph, regularization=0).fit(data)
    expected = model.run({(0, 1): "yes"})
    found = model.run(np.array([[None, "yes"], [np.nan, None]], dtype=object))
    assert found.mode == expected.mode
    full = model.run(np.array([["no", "yes"], ["no", "no"]]))
    assert full.mode[0, 1] == "yes"


def test_an_observed_node_is_what_was_seen() -> None:
    model, _ = square()
    found = model.run({"a": 0.7})
    assert found.mean["a"] == found.mode["a"] == 0.7
    assert found.std["a"] == 0
    assert found.interval(0.9)["a"] == (0.7, 0.7)
    assert_allclose(found.belief("a").mean(), [0.7])
    assert_allclose(found.belief("a").weights, [1.0])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_all_observed_and_all_but_one(schedule: str) -> None:
    model, data = square()
    one = clone_of(model, schedule=schedule)
    row = {v: float(column[5]) for v, column in data.items()}
    found = one.run(row)
    assert found.converged and found.mean == row
    del row["b"]
    found = one.run(row)
    assert found.converged
    assert np.isfinite(found.mean["b"])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_without_evidence_a_tree_keeps_its_marginals(schedule: str) -> None:
    graph = nx.balanced_tree(2, 2)
    data = numbers(graph, 80)
    model = BeliefPropagation(graph, Gaussian(1.0), 1e-4, schedule=schedule).fit(data)
    found = model.run()
    for v in graph:
        assert abs(found.mean[v] - data[v].mean()) < 0.05
        assert abs(found.std[v] - data[v].std()) < 0.1


def test_evidence_does_not_cross_an_observed_node() -> None:
    model, _ = labelled()
    one = model.run({"a": 0, "c": 1, "b": 0})
    other = model.run({"a": 0, "c": 1, "b": 2})
    assert_allclose(one.belief("d")(np.arange(3)), other.belief("d")(np.arange(3)), atol=1e-12)


def test_evidence_is_not_changed_by_a_run() -> None:
    model, _ = square()
    evidence: dict[str, Any] = {"a": np.array([0.5]), "b": embed([[0.1]])}
    before = dict(evidence)
    first = model.run(evidence).mean
    assert evidence == before
    assert model.run(evidence).mean == first  # and the model learned nothing from it


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_runs_do_not_disturb_each_other(schedule: str) -> None:
    model, _ = square()
    one = clone_of(model, schedule=schedule)
    first = one.run({"a": 0.7})
    weights = first.belief("b").weights.copy()
    one.run({"b": -1.0})
    assert_array_equal(first.belief("b").weights, weights)
    assert_array_equal(one.run({"a": 0.7}).belief("b").weights, weights)


# --- graphs of all kinds --------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_fifty_neighbours_do_not_underflow(schedule: str, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    hub = rng.normal(size=200)
    data = {"hub": hub.astype(dtype)}
    for i in range(50):
        data[i] = (hub + 0.5 * rng.normal(size=200)).astype(dtype)
    star = nx.Graph([("hub", i) for i in range(50)])
    for i in range(50):
        star["hub"][i]["template"] = "spoke"
    model = BeliefPropagation(star, Gaussian(0.7), 1e-3, max_samples=200, schedule=schedule)
    model.set_params(random_state=0).fit(data)
    leaves = {i: 1.0 + 0.5 * float(rng.normal()) for i in range(50)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = model.run(leaves)
        told = model.run({i: lambda x: np.exp(-20 * (x[:, 0] - 1) ** 2) for i in range(50)})
    for one in (found, told):
        assert abs(one.mean["hub"] - 1.0) < 0.3
        assert 0 <= one.std["hub"] < 0.3
        assert np.isfinite(list(one.std.values())).all()


def test_fifty_likely_labels_are_certain() -> None:
    hub = np.arange(200) % 2
    rng = np.random.default_rng(0)
    data = {"hub": hub} | {i: hub ^ (rng.random(200) < 0.4) for i in range(50)}
    star = nx.star_graph(["hub", *range(50)])
    model = BeliefPropagation(star, Delta(), 0).fit(data)
    tables, marginals = tables_of(star, {v: x.astype(int) for v, x in data.items()}, 2)
    evidence = {i: 1 if i < 30 else 0 for i in range(50)}
    _, beliefs = oracles.loopy_discrete_messages(tables, marginals, evidence, 1)
    assert_allclose(model.run(evidence).belief("hub")(np.arange(2)), beliefs["hub"], rtol=1e-8)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_an_isolated_node_keeps_its_marginal(schedule: str) -> None:
    graph = nx.cycle_graph(3)
    graph.add_node("alone")
    data = numbers(graph, 60)
    model = BeliefPropagation(graph, Laplace(1.0), LAMBDA, schedule=schedule).fit(data)
    found = model.run({0: 0.5})
    assert_allclose(found.belief("alone").weights, np.full(60, 1 / 60))
    assert_allclose(found.mean["alone"], data["alone"].mean())
    sensor = model.run({"alone": lambda x: np.exp(-(x[:, 0] ** 2))})
    w = np.exp(-(data["alone"] ** 2))
    assert_allclose(sensor.belief("alone").weights, w / w.sum(), rtol=1e-9)
    assert sensor.mean[0] == model.run().mean[0]
    assert model.run({"alone": 0.3}).mean["alone"] == 0.3
    only = BeliefPropagation(nx.empty_graph(["x"]), schedule=schedule).fit({"x": data[0]})
    assert only.run().converged
    assert_allclose(only.run().mean["x"], data[0].mean())


def test_components_do_not_hear_of_each_other() -> None:
    graph = nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(4))
    data = numbers(graph, 60)
    model = BeliefPropagation(graph, Laplace(1.0), LAMBDA, tolerance=1e-12).fit(data)
    alone = BeliefPropagation(nx.cycle_graph(3), Laplace(1.0), LAMBDA, tolerance=1e-12)
    alone.fit({v: data[v] for v in range(3)})
    for schedule in SCHEDULES:
        found = model.set_params(schedule=schedule).run({0: 0.5, 4: 1.0}, 300)
        part = alone.set_params(schedule=schedule).run({0: 0.5}, 300)
        for v in range(1, 3):
            assert_allclose(found.belief(v).weights, part.belief(v).weights, rtol=1e-7)


def test_vectors_beside_labels_beside_numbers() -> None:
    rng = np.random.default_rng(0)
    n = 300
    vector = rng.normal(size=(n, 3))
    number = vector.sum(axis=1) + 0.3 * rng.normal(size=n)
    label = np.where(number + 0.3 * rng.normal(size=n) > 0, "positive", "no")
    graph = nx.cycle_graph(["vector", "number", "label"])
    data = {"vector": vector, "number": number, "label": label}
    for schedule in SCHEDULES:
        model = BeliefPropagation(graph, schedule=schedule).fit(data)
        found = model.run({"label": "positive"})
        assert found.mean["number"] > 0.5
        assert found.mean["vector"].shape == found.std["vector"].shape == (3,)
        assert (found.mean["vector"] > 0).all()
        assert found.mode["label"] == "positive"
        assert list(found.mode) == ["vector", "number", "label"]
        assert list(found.mean) == ["vector", "number"]
        low, high = found.interval(0.8)["vector"]
        assert low.shape == (3,) and (low < high).all()
        seen = model.run({"vector": [1.0, 1.0, 1.0]})
        assert seen.mode["label"] == "positive"
        assert seen.mean["number"] > 1.5
        p = seen.density("label", np.array(["no", "positive"]))
        assert_allclose(p.sum(), 1, rtol=1e-6)
        assert p[1] > 0.8
        assert seen.density("number", [0.0, 1.0]).shape == (2,)
        assert found.density("vector", vector[:4]).shape == (4,)


def test_columns_of_a_frame_and_of_named_fields() -> None:
    _, data = square()
    model = BeliefPropagation(nx.cycle_graph(list("abcd")), Gaussian(0.7), 1e-3)
    expected = square()[0].run({"a": 0.5}).mean
    frame = pd.DataFrame(data)
    assert model.fit(frame).run({"a": 0.5}).mean == expected
    fields = np.rec.fromarrays(list(data.values()), names="a,b,c,d")
    assert model.fit(np.asarray(fields)).run({"a": 0.5}).mean == expected
    assert model.fit({**data, "unused": ["x"] * 200}).run({"a": 0.5}).mean == expected


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_single_precision(schedule: str) -> None:
    model, data = square()
    graph = nx.cycle_graph(list("abcd"))
    half = BeliefPropagation(graph, Gaussian(0.7), 1e-3, schedule=schedule)
    half.fit({v: column.astype(np.float32) for v, column in data.items()})
    for evidence in ({"a": 0.7}, {"b": lambda x: np.exp(-(x[:, 0] ** 2)), "c": 0.2}):
        found = half.run(evidence, 100)
        expected = clone_of(model, schedule=schedule).run(evidence, 100)
        for v in "abcd":
            assert abs(found.mean[v] - expected.mean[v]) < 1e-3 * data[v].std()
            assert found.belief(v).weights.dtype == np.float32 or v in ("a", "c")
            assert np.asarray(found.mean[v]).dtype == np.float32
        assert all(part.dtype == np.float32 for part in found.state)
        assert all(part.dtype == np.float32 for part in found.products)


def test_tensors_in() -> None:
    torch = require("torch")
    graph = nx.cycle_graph(list("abcd"))
    data = numbers(graph, 60)
    plain = BeliefPropagation(graph, Gaussian(0.7), 0.01).fit(data)
    model = BeliefPropagation(graph, Gaussian(0.7), 0.01)
    model.fit({v: torch.tensor(column) for v, column in data.items()})
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {}),
        ({"a": torch.tensor(0.7), "c": embed([[0.1]])}, {"a": 0.7, "c": embed([[0.1]])}),
        (
            {"b": lambda x: torch.exp(-(x[:, 0] ** 2)), "a": 0.7},
            {"b": lambda x: np.exp(-(x[:, 0] ** 2)), "a": 0.7},
        ),
    ]
    at = [-0.5, 0.0, 1.0]
    for schedule in SCHEDULES:
        for tensors, arrays in cases:
            found = model.set_params(schedule=schedule).run(tensors)
            expected = plain.set_params(schedule=schedule).run(arrays)
            for v in "abcd":
                assert_allclose(float(found.mean[v]), expected.mean[v], rtol=1e-6)
                assert_allclose(float(found.std[v]), expected.std[v], rtol=1e-6, atol=1e-9)
            assert_allclose(found.density("d", at), expected.density("d", at), rtol=1e-6)
            assert isinstance(found.mean["d"], torch.Tensor)


# --- convergence ----------------------------------------------------------------------------------


def test_a_run_that_has_not_converged_says_by_how_much_and_is_usable() -> None:
    model, _ = square()
    hasty = clone_of(model, tolerance=1e-9)
    with pytest.warns(ConvergenceWarning, match=r"after 2 iterations.*damping") as record:
        found = hasty.run({"a": 0.7}, 2)
    told = [w for w in record if issubclass(w.category, ConvergenceWarning)]
    assert len(told) == 1
    assert told[0].filename == __file__
    assert f"{found.residuals[-1]:.2g}" in str(told[0].message)
    assert not found.converged
    assert found.iterations == len(found.residuals) == 2
    assert "not converged" in repr(found)
    assert set(found.mean) == set("abcd")
    assert np.isfinite(list(found.mean.values())).all()
    assert found.density("b", [0.0])[0] > 0


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_report_of_a_run_that_has_converged(schedule: str) -> None:
    model, _ = square()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = clone_of(model, schedule=schedule, tolerance=1e-4).run({"a": 0.7})
    assert found.converged is True
    assert found.residuals.shape == (found.iterations,)
    assert found.residuals[-1] <= 1e-4
    assert (found.residuals[:-1] > 1e-4).all()
    text = repr(found)
    assert "converged" in text and "not" not in text
    assert "4 nodes" in text and "1 of them observed" in text
    assert str(found.iterations) in text


def test_damping_keeps_the_fixed_point_and_slows() -> None:
    model, _ = square()
    found = {
        d: clone_of(model, damping=d, tolerance=1e-9).run({"a": 0.7}, 500) for d in (0, 0.3, 0.7)
    }
    assert all(one.converged for one in found.values())
    for d in (0.3, 0.7):
        for v in "bcd":
            assert_allclose(found[d].mean[v], found[0].mean[v], rtol=1e-6)
    assert found[0.7].iterations > found[0.3].iterations


def test_damping_ends_an_oscillation() -> None:
    """Labels of neighbours that mostly differ, where not all can."""
    rng = np.random.default_rng(0)
    a = rng.integers(2, size=(1000, 2))
    pairs = np.where(rng.random(1000) < 0.8, 1 - a[:, 0], a[:, 0])
    graph = nx.complete_graph(5)
    nx.set_edge_attributes(graph, "differ", "template")
    nx.set_node_attributes(graph, "spin", "template")
    model = BeliefPropagation(graph, Delta(), 0, max_samples=10**5)
    model.fit({0: a[:, 0], 1: pairs})
    evidence = {0: lambda x: np.where(x == 1, 0.6, 0.4)}
    with pytest.warns(ConvergenceWarning, match="damping=0.5"):
        model.run(evidence)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        assert model.set_params(damping=0.5).run(evidence, 500).converged


def test_residuals_are_how_far_messages_move() -> None:
    model, _, _ = dense("complete")
    before, after = quiet(model, {0: 0.4}, 3), quiet(model, {0: 0.4}, 4)
    old, new = messages_of(before), messages_of(after)
    moved = max(np.sqrt(np.mean((new[ends] - old[ends]) ** 2)) for ends in new)
    assert_allclose(after.residuals[-1], moved, rtol=1e-6)
    assert_allclose(after.residuals[:3], before.residuals)


def test_the_residual_schedule_needs_no_more_messages() -> None:
    """On a chain told at one end the news travel, and nothing else is sent."""
    graph = nx.path_graph(12)
    data = numbers(graph, 40)
    model = BeliefPropagation(graph, Laplace(1.0), LAMBDA).fit(data)
    slow = model.run({0: 0.5}).iterations
    quick = model.set_params(schedule="residual").run({0: 0.5}).iterations
    assert quick <= slow


# --- what is believed -----------------------------------------------------------------------------


def test_a_density_integrates_to_about_one_and_is_that_of_the_belief() -> None:
    model, _ = square()
    x = np.linspace(-6, 6, 1201)
    for evidence in ({}, {"a": 0.7}, {"a": 0.7, "c": lambda t: np.exp(-(t[:, 0] ** 2))}):
        found = model.run(evidence, 100)
        for v in "bcd":
            p = found.density(v, x)
            assert p.shape == (1201,) and (p >= 0).all()
            total = np.trapezoid(p, x)
            assert abs(total - 1) < 0.1
            mean = np.trapezoid(x * p, x) / total
            assert abs(mean - found.mean[v]) < 0.15
            std = np.sqrt(np.trapezoid((x - mean) ** 2 * p, x) / total)
            assert abs(std - found.std[v]) < 0.2
            assert_array_equal(found.density(v, x[:, None]), p)
            assert_allclose(found.density(v, x[:1]), p[:1])


def test_the_density_of_labels_is_their_probability() -> None:
    model, _ = labelled()
    for evidence in ({"a": 1}, {"a": 1, "c": lambda x: 1.0 + x}):
        found = model.run(evidence)
        for v in "bcd":
            expected = found.belief(v)(np.arange(3))
            assert_allclose(found.density(v, np.arange(3)), expected, atol=1e-10)


def test_means_deviations_modes_and_intervals_of_all_nodes() -> None:
    model, data = square()
    found = model.run({"c": 0.2})
    for values in (found.mean, found.std, found.mode, found.interval(0.5)):
        assert list(values) == list("abcd")
    for v in "abd":
        belief = found.belief(v)
        assert_allclose(found.mean[v], belief.mean()[0], rtol=1e-10)
        assert_allclose(found.std[v], belief.std()[0], rtol=1e-8)
        assert_allclose(found.mode[v], belief.mode()[0], rtol=1e-6)
        assert np.ndim(found.mean[v]) == np.ndim(found.mode[v]) == 0
        narrow, wide = found.interval(0.5)[v], found.interval(0.9)[v]
        assert wide[0] <= narrow[0] <= narrow[1] <= wide[1]
        inside = (data[v] >= wide[0]) & (data[v] <= wide[1])
        assert abs(belief.weights[inside].sum() - 0.9) < 0.06
        assert found.interval()[v] == wide


def test_beliefs_are_probabilities() -> None:
    model, _ = square()
    found = model.run({"a": 0.7})
    for v in "bcd":
        weights = found.belief(v).weights
        assert (weights >= 0).all()
        assert_allclose(weights.sum(), 1)


def test_an_array_of_a_grid() -> None:
    graph = nx.grid_2d_graph(2, 3)
    graph.remove_node((0, 2))
    data = np.random.default_rng(0).normal(size=(60, 2, 3)).cumsum(axis=2)
    model = BeliefPropagation(graph, Laplace(1.0), LAMBDA).fit(data)
    found = model.run({(0, 0): 1.0})
    for what in ("mean", "std", "mode"):
        picture = found.array(what)
        assert picture.shape == (2, 3)
        assert np.isnan(picture[0, 2])
        for place in graph:
            assert picture[place] == getattr(found, what)[place]
    assert_array_equal(found.array(), found.array("mean"))


def test_an_array_of_vectors() -> None:
    graph = nx.grid_2d_graph(2, 2)
    data = np.random.default_rng(0).normal(size=(50, 2, 2, 3)).cumsum(axis=2)
    model = BeliefPropagation(graph, Laplace(1.0), LAMBDA).fit(data)
    found = model.run({(0, 0): [1.0, 0.0, 0.0]})
    assert found.array().shape == (2, 2, 3)
    assert_allclose(found.array()[1, 0], found.mean[1, 0])
    picture = np.full((2, 2, 3), np.nan)
    picture[0, 0] = [1.0, 0.0, 0.0]
    assert_allclose(model.run(picture).array(), found.array())


def label_grid(values: Any) -> Any:
    graph = nx.grid_2d_graph(2, 2)
    rng = np.random.default_rng(0)
    data = np.asarray(values)[rng.integers(2, size=(80, 2, 2))]
    data[:, 1, 1] = values[1]
    model = BeliefPropagation(graph, Delta(), 0).fit(data)
    return model.run({(0, 0): values[0]})


def test_an_array_of_labels_keeps_them_whole() -> None:
    found = label_grid(["ab", "abcdef"])
    picture = found.array("mode")
    assert picture[0, 0] == "ab"
    assert picture[1, 1] == "abcdef"


def test_an_array_of_whole_numbers_as_labels() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture = label_grid([3, 5]).array("mode")
    assert picture[0, 0] == 3 and picture[1, 1] == 5


def test_an_array_of_labels_with_gaps() -> None:
    graph = nx.grid_2d_graph(2, 2)
    graph.remove_node((1, 0))
    data = np.random.default_rng(0).integers(2, size=(80, 2, 2))
    found = BeliefPropagation(graph, Delta(), 0).fit(data).run()
    picture = found.array("mode")
    gap = picture[1, 0]
    assert gap is None or gap != gap or gap in ("", "nan")  # not a number that looks like a label
    assert picture[0, 0] == found.mode[0, 0]


def test_labels_on_a_grid_are_drawn() -> None:
    found = label_grid(["no", "yes"])
    assert found.plot() is not None
    with pytest.raises((TypeError, ValueError), match="mean|label|mode"):
        found.array("mean")
    plt.close("all")


def test_pictures(tmp_path: Any) -> None:
    graph = nx.grid_2d_graph(3, 2)
    data = np.random.default_rng(0).normal(size=(60, 3, 2)).cumsum(axis=2)
    found = BeliefPropagation(graph, Laplace(1.0), LAMBDA).fit(data).run({(0, 0): 1.0})
    both = found.plot()
    assert len(np.ravel(both)) == 2
    for what in ("mean", "std", "mode", "residuals"):
        assert found.plot(what) is not None
    figure, axes = plt.subplots(1, 2)
    found.plot(ax=axes)
    assert axes[0].images or axes[0].collections
    figure.savefig(tmp_path / "grid.png")
    plt.close("all")


def test_a_picture_of_a_small_graph(tmp_path: Any) -> None:
    model, _ = square()
    figure, ax = plt.subplots()
    model.run({"a": 0.7}).plot(ax=ax)
    words = [text.get_text() for text in ax.texts]
    assert any("a" in text and "0.7" in text for text in words)
    assert any("±" in text for text in words)
    figure.savefig(tmp_path / "graph.png")
    labelled()[0].run({"a": 1}).plot()
    plt.close("all")


def test_a_bar_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    model, _ = square()
    clone_of(model, progress=False).run({"a": 0.7})
    model.run({"a": 0.7})  # None, and no terminal
    assert capsys.readouterr().err == ""
    clone_of(model, progress=True).run({"a": 0.7})
    captured = capsys.readouterr()
    assert "belief propagation" in captured.err
    assert captured.out == ""


# --- models as objects ----------------------------------------------------------------------------


def test_parameters_and_clones() -> None:
    graph = nx.cycle_graph(4)
    model = BeliefPropagation(graph, Gaussian(1.0), 0.01, damping=0.2, random_state=3)
    parameters = model.get_params(deep=False)
    assert parameters["damping"] == 0.2 and parameters["schedule"] == "synchronous"
    assert parameters["graph"] is graph
    other = clone(model)
    assert other.get_params(deep=False)["damping"] == 0.2
    assert not hasattr(other, "potentials_")
    model.set_params(schedule="residual")
    assert model.schedule == "residual"
    assert "BeliefPropagation" in repr(model)


def test_fit_returns_the_model_and_names_its_nodes() -> None:
    graph = nx.cycle_graph(list("cab"))
    model = BeliefPropagation(graph, Laplace(1.0), LAMBDA)
    assert model.fit(numbers(graph, 30)) is model
    assert tuple(model.nodes_) == ("c", "a", "b")


def test_a_graph_changed_after_fitting_changes_nothing() -> None:
    graph = nx.cycle_graph(4)
    model = BeliefPropagation(graph, Laplace(1.0), LAMBDA).fit(numbers(graph, 30))
    before = model.run({0: 0.5}).mean
    graph.add_edge(0, 2)
    graph.remove_node(3)
    assert model.run({0: 0.5}).mean == before


@pytest.mark.parametrize("kind", ["numbers", "labels", "grid"])
def test_saved_and_loaded(kind: str, tmp_path: Any) -> None:
    evidence: Any
    if kind == "grid":
        graph = nx.grid_2d_graph(2, 2)
        nx.set_edge_attributes(graph, ("a", 1), "template")
        data = np.random.default_rng(0).normal(size=(40, 2, 2)).cumsum(axis=2)
        model, evidence = BeliefPropagation(graph, Laplace(1.0), LAMBDA).fit(data), {(0, 0): 0.5}
    elif kind == "labels":
        model, evidence = labelled()[0], {"a": 1}
    else:
        model, evidence = square()[0], {"a": 0.5}
    found = model.run(evidence)
    meanmap.save(model, tmp_path / "model.npz")
    again = meanmap.load(tmp_path / "model.npz").run(evidence)
    assert again.mean == found.mean and again.mode == found.mode
    assert_array_equal(again.residuals, found.residuals)
    meanmap.save(found, tmp_path / "beliefs.npz")
    kept = meanmap.load(tmp_path / "beliefs.npz")
    assert kept.mean == found.mean and kept.converged == found.converged
    assert repr(kept) == repr(found)
    thawed = pickle.loads(pickle.dumps(model)).run(evidence)
    assert thawed.mean == found.mean


def test_kernels_by_node_and_by_template() -> None:
    graph = nx.path_graph(4)
    for v in (0, 2):
        graph.nodes[v]["template"] = "even"
    data = numbers(graph, 40)
    kernels = {"even": Gaussian(0.3), 1: Laplace(2.0)}
    model = BeliefPropagation(graph, kernels, LAMBDA).fit(data)
    found = {
        name: model.potentials_.nodes[model.potentials_.field.kind[i]].space.kernel_
        for i, name in enumerate(model.nodes_)
    }
    assert found[0] == found[2] == Gaussian(0.3)
    assert found[1] == Laplace(2.0)
    assert isinstance(found[3], Gaussian)


def test_conflict_is_said_where_it_is() -> None:
    """Neighbours that cannot both be right."""
    rng = np.random.default_rng(0)
    hub = rng.normal(size=300)
    data = {"hub": hub} | {i: hub + 0.02 * rng.normal(size=300) for i in range(20)}
    star = nx.Graph([("hub", i, {"template": "copy"}) for i in range(20)])
    model = BeliefPropagation(star, Gaussian(0.3), 1e-4, max_samples=300, random_state=0).fit(data)
    with pytest.warns(DataWarning, match="'hub' conflicts") as record:
        found = model.run({i: (-2.0 if i % 2 else 2.0) for i in range(20)})
    assert [w.filename for w in record if w.category is DataWarning] == [__file__]
    assert np.isfinite(found.mean["hub"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.run(dict.fromkeys(range(20), 1.0))
