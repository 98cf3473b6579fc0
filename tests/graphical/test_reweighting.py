"""Tree-reweighted belief propagation, and evidence that is trusted less."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import oracles
from meanmap import BeliefPropagation, SettingWarning
from meanmap.graphical.field import Wiring, field_of
from meanmap.graphical.passing import products_with_powers
from meanmap.kernels import Delta, Gaussian, Linear


def labels(graph: nx.Graph, n: int, k: int, seed: int) -> dict:
    """Neighbouring labels are often equal."""
    rng = np.random.default_rng(seed)
    data = {v: rng.integers(k, size=n) for v in graph}
    for _ in range(2):
        for a, b in graph.edges:
            data[b] = np.where(rng.random(n) < 0.4, data[a], data[b])
    for v in graph:  # every pair is seen
        data[v][: k * k] = np.repeat(np.arange(k), k) if hash(v) % 2 else np.tile(np.arange(k), k)
    return data


def appearances(graph: nx.Graph) -> dict:
    """How often each edge counts, by its ends."""
    field = field_of(graph)
    wiring = Wiring.of(field, np.ones(len(field.nodes), dtype=bool))
    tables = wiring.appearances(field)
    found = {}
    for kind, edge in enumerate(wiring.edge):
        for i, j in zip(*np.nonzero(edge >= 0), strict=True):
            a, b = field.edges[edge[i, j]]
            found[field.nodes[a], field.nodes[b]] = float(tables[kind][i, j])
    return found


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    power=st.sampled_from([0.3, 0.5, 0.8]),
    damping=st.sampled_from([0.0, 0.4]),
    iterations=st.integers(1, 6),
)
def test_tables_of_frequencies(seed: int, power: float, damping: float, iterations: int) -> None:
    graph = nx.grid_2d_graph(2, 3)
    data, k = labels(graph, 80, 2, seed), 2
    marginals = {v: np.bincount(data[v], minlength=k) / 80 for v in graph}
    tables = {(a, b): oracles.pair_frequencies(data[a], data[b], (k, k)) for a, b in graph.edges}
    observed = {(0, 0): 1}
    likelihood = {(1, 2): np.array([0.2, 0.7])}
    model = BeliefPropagation(
        graph, Delta(), 0, reweighting=power, damping=damping, tolerance=1e-300
    ).fit(data)
    with pytest.warns(UserWarning):
        found = model.run(
            {**observed, (1, 2): lambda x: np.where(x == 1, 0.7, 0.2)}, max_iterations=iterations
        )
    _, beliefs = oracles.loopy_discrete_messages(
        tables, marginals, observed, iterations, damping, likelihood, power
    )
    for v, p in beliefs.items():
        assert_allclose(found.belief(v)(np.arange(k)), p, atol=1e-10)
        assert_allclose(found.density(v, np.arange(k)), p, atol=1e-10)


def test_without_evidence_the_marginals_stay() -> None:
    graph = nx.grid_2d_graph(3, 3)
    data = labels(graph, 300, 3, 1)
    found = BeliefPropagation(graph, Delta(), 0, reweighting="trees").fit(data).run()
    assert found.converged
    for v in graph:
        assert_allclose(found.belief(v)(np.arange(3)), np.bincount(data[v]) / 300, atol=1e-10)


@pytest.mark.parametrize("schedule", ["synchronous", "sequential", "residual"])
def test_all_schedules_have_one_fixed_point(schedule: str) -> None:
    graph = nx.grid_2d_graph(3, 3)
    data = labels(graph, 300, 3, 2)
    options = {"reweighting": "trees", "tolerance": 1e-10}
    first = BeliefPropagation(graph, Delta(), 0, **options).fit(data)
    other = BeliefPropagation(graph, Delta(), 0, schedule=schedule, **options).fit(data)
    evidence = {(0, 0): 2, (2, 1): 0}
    a, b = (model.run(evidence, max_iterations=300) for model in (first, other))
    assert a.converged and b.converged
    for v in graph:
        assert_allclose(a.belief(v)(np.arange(3)), b.belief(v)(np.arange(3)), atol=1e-7)


def test_on_a_tree_nothing_is_reweighted() -> None:
    tree = nx.balanced_tree(2, 2)
    rng = np.random.default_rng(0)
    data = {v: rng.normal(size=200) for v in tree}
    for a, b in nx.bfs_edges(tree, 0):
        data[b] = data[a] + 0.5 * data[b]
    runs = [
        BeliefPropagation(tree, Gaussian(1.0), 0.01, reweighting=power).fit(data).run({3: 1.0})
        for power in (1.0, "trees")
    ]
    for v in tree:
        assert runs[0].mean[v] == runs[1].mean[v]


def test_how_often_edges_are_in_a_tree() -> None:
    grid = nx.grid_2d_graph(4, 5)
    assert_allclose(list(appearances(grid).values()), 19 / 31)
    both = nx.cycle_graph(4)
    nx.add_path(both, [3, 4, 5])  # two bridges
    nx.add_cycle(both, [5, 6, 7])  # and a joint
    found = appearances(both)
    expected = {**dict.fromkeys([(0, 1), (1, 2), (2, 3), (0, 3)], 3 / 4), (3, 4): 1.0, (4, 5): 1.0}
    expected |= dict.fromkeys([(5, 6), (6, 7), (5, 7)], 2 / 3)
    assert found == pytest.approx(expected)


def test_observed_nodes_cut_loops() -> None:
    """A cycle with a node seen is a chain: nothing is left to reweight."""
    ring = nx.cycle_graph(5)
    data = labels(ring, 200, 2, 3)
    a, b = (
        BeliefPropagation(ring, Delta(), 0, reweighting=power).fit(data).run({0: 1})
        for power in (1.0, "trees")
    )
    for v in range(1, 5):
        assert_allclose(a.belief(v)([0, 1]), b.belief(v)([0, 1]), atol=1e-12)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_reweighted_beliefs_are_less_sure_on_a_coupled_grid() -> None:
    rng = np.random.default_rng(0)
    smooth = np.cumsum(np.cumsum(rng.normal(size=(300, 5, 5)), axis=1), axis=2) / 5
    smooth += rng.normal(size=(300, 1, 1))
    grid = nx.grid_2d_graph(5, 5)
    sure = BeliefPropagation(grid, None, 0.01, reweighting=1).fit(smooth[1:])
    evidence = {
        v: (lambda y: lambda x: np.exp(-0.5 * ((x[:, 0] - y) / 0.5) ** 2))(smooth[(0, *v)])
        for v in grid
    }
    plain = sure.run(evidence, 30).array("std").mean()
    halfway = sure.set_params(reweighting="halfway").run(evidence, 30).array("std").mean()
    trees = sure.set_params(reweighting="trees").run(evidence, 30).array("std").mean()
    assert trees > 1.1 * plain
    assert plain < halfway < trees


def test_the_default_counts_edges_halfway_between_once_and_their_share_of_trees() -> None:
    """On a ring of four an edge is in three of four spanning trees: 7/8; on a tree, once."""
    ring = nx.cycle_graph(4)
    data = labels(ring, 80, 2, 3)
    found = BeliefPropagation(ring, Delta(), 0, tolerance=1e-12).fit(data).run({0: 1})
    counted = BeliefPropagation(nx.path_graph(4), Delta(), 0, tolerance=1e-12).fit(data)
    marginals = {v: np.bincount(data[v], minlength=2) / 80 for v in ring}
    tables = {(a, b): oracles.pair_frequencies(data[a], data[b], (2, 2)) for a, b in ring.edges}
    # what is seen at 0 cuts the ring: the other nodes are a chain
    _, beliefs = oracles.loopy_discrete_messages(tables, marginals, {0: 1}, 50)
    for v, p in beliefs.items():
        assert_allclose(found.belief(v)(np.arange(2)), p, atol=1e-10)
    likelihood = {0: np.array([0.2, 0.7])}
    found = BeliefPropagation(ring, Delta(), 0, tolerance=1e-12).fit(data)
    told = found.run({0: lambda x: np.where(x == 1, 0.7, 0.2)}, 200)
    _, beliefs = oracles.loopy_discrete_messages(tables, marginals, {}, 200, 0.0, likelihood, 7 / 8)
    for v, p in beliefs.items():
        assert_allclose(told.belief(v)(np.arange(2)), p, atol=1e-9)
    chain = counted.run({0: lambda x: np.where(x == 1, 0.7, 0.2)})
    plain = counted.set_params(reweighting=1).run({0: lambda x: np.where(x == 1, 0.7, 0.2)})
    for v in (1, 2, 3):
        assert_allclose(chain.belief(v).weights, plain.belief(v).weights, atol=1e-12)


@pytest.mark.parametrize("deep", [False, True])
def test_equal_powers_at_once_are_equal_powers_one_by_one(deep: bool) -> None:
    rng = np.random.default_rng(0)
    first, factors = rng.random((5, 7)), list(rng.random((4, 5, 7)) + 0.1)
    powers = [np.full((5, 1), 0.6)] * 4
    one = dict(products_with_powers(first, list(factors), 0.6, deep))
    each = dict(products_with_powers(first, list(factors), powers, deep))
    for slot in range(4):
        scale = (one[slot] / each[slot])[:, :1]  # up to scale, row by row
        assert_allclose(one[slot], each[slot] * scale, rtol=1e-12)


def test_trust_is_a_power_of_what_the_observed_say() -> None:
    rng = np.random.default_rng(0)
    a = rng.integers(2, size=400)
    data = {"a": a, "b": np.where(rng.random(400) < 0.8, a, 1 - a)}
    model = BeliefPropagation(nx.path_graph(["a", "b"]), Delta(), 0).fit(data)
    prior = np.bincount(a) / 400
    joint = np.array([[np.mean((a == i) & (data["b"] == j)) for j in (0, 1)] for i in (0, 1)])
    ratio = joint[:, 1] / (prior * joint[:, 1].sum())
    for trust in (1.0, 0.5, 0.1):
        found = model.set_params(trust=trust).run({"b": 1})
        p = prior * ratio**trust
        assert_allclose(found.belief("a")([0, 1]), p / p.sum(), atol=1e-10)
        assert_allclose(found.density("a", np.array([0, 1])), p / p.sum(), atol=1e-10)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"reweighting": "forest"}, ValueError, "reweighting.*'trees'.*forest"),
        ({"reweighting": 0.0}, ValueError, "reweighting.*0"),
        ({"reweighting": 1.5}, ValueError, r"reweighting.*\(0, 1\].*1.5"),
        ({"trust": 0}, ValueError, "trust"),
        ({"trust": 2.0}, ValueError, r"trust.*\(0, 1\].*2.0"),
        ({"trust": "much"}, (TypeError, ValueError), "trust"),
        ({"regularization": {"nowhere": 0.1}}, ValueError, "no template 'nowhere'"),
    ],
)
def test_bad_settings(options: dict, error: type, says: str) -> None:
    data = {"a": np.arange(9.0), "b": np.arange(9.0)}
    with pytest.raises(error, match=says):
        BeliefPropagation(nx.path_graph(["a", "b"]), **options).fit(data)


def test_regularization_by_template() -> None:
    rng = np.random.default_rng(0)
    graph = nx.Graph()
    graph.add_edge("a", "b", template="near")
    graph.add_edge("b", "c")
    data = {v: rng.normal(size=50) for v in "abc"}
    given = {"near": 0.3, ("b", "c"): 0.02}
    links = BeliefPropagation(graph, regularization=given).fit(data).potentials_.links
    assert [link.regularization for link in links] == [0.3, 0.3, 0.02, 0.02]


def test_a_kernel_without_constants_is_told() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    data = {"x": x - x.mean(axis=0), "y": x[:, 0] + rng.normal(size=300)}
    graph = nx.path_graph(["x", "y"])
    with pytest.warns(SettingWarning, match=r"Linear\(\) has no constant.*Linear\(\) \+ 1"):
        BeliefPropagation(graph, {"x": Linear()}).fit(data)
    found = BeliefPropagation(graph, {"x": Linear() + 1}).fit(data).run({"x": [1.5, 0.0]})
    assert 0.8 < found.mean["y"] < 2.2


def test_any_values_as_an_array() -> None:
    rng = np.random.default_rng(0)
    data = rng.normal(size=(100, 2, 2))
    found = BeliefPropagation(nx.grid_2d_graph(2, 2)).fit(data).run({(0, 0): 1.0})
    width = found.array({v: high - low for v, (low, high) in found.interval(0.5).items()})
    assert width.shape == (2, 2) and width[0, 0] == 0 and (width.ravel()[1:] > 0.5).all()
