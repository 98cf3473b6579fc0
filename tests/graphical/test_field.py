"""Which nodes are alike, which edges share a potential, and what is learned once for them."""

from __future__ import annotations

from datetime import date
from enum import Enum
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import oracles
from meanmap import BeliefPropagation
from meanmap.graphical.field import RandomField, field_of
from meanmap.kernels import Delta, Gaussian, Laplace
from oracles import Array


def groups(field: RandomField) -> set[frozenset[Any]]:
    return {frozenset(field.nodes[v] for v in members) for members in field.members}


def table_model(graph: Any, data: Any, weights: Any = None, **options: Any) -> BeliefPropagation:
    options = {"tolerance": 1e-13, "max_samples": 10**5, "reweighting": 1.0, **options}
    return BeliefPropagation(graph, Delta(), 0, **options).fit(data, weights)


def probabilities(found: Any, node: Any, k: int) -> Array:
    return np.asarray(found.belief(node)(np.arange(k)))


# --- who is like whom -----------------------------------------------------------------------------


def test_an_edge_without_a_template_is_one_of_its_own() -> None:
    field = field_of(nx.cycle_graph("abcd"))
    assert groups(field) == {frozenset(name) for name in "abcd"}
    assert len(field.names) == 4
    assert all(isinstance(name, str) for name in field.names)


def test_an_edge_reads_from_the_earlier_node() -> None:
    graph = nx.Graph()
    graph.add_nodes_from("cab")
    graph.add_edges_from([("a", "c"), ("b", "a"), ("b", "c")])
    field = field_of(graph)
    pairs = {(field.nodes[a], field.nodes[b]) for a, b in field.edges}
    assert pairs == {("c", "a"), ("a", "b"), ("c", "b")}


def test_an_edge_of_a_directed_graph_reads_as_it_points() -> None:
    field = field_of(nx.DiGraph([("a", "b"), ("c", "b"), ("c", "a")]))
    pairs = {(field.nodes[a], field.nodes[b]) for a, b in field.edges}
    assert pairs == {("a", "b"), ("c", "b"), ("c", "a")}


def test_ends_of_a_template_are_alike() -> None:
    graph = nx.Graph()
    graph.add_edge("a", "x", template=1)
    graph.add_edge("b", "y", template=1)
    graph.add_edge("c", "y", template=2)
    field = field_of(graph)
    # c is after y in the graph: y is the first end of template 2
    assert groups(field) == {frozenset("ab"), frozenset("xy"), frozenset("c")}


def test_a_chain_of_one_template_is_of_one_kind() -> None:
    graph = nx.path_graph(5)
    nx.set_edge_attributes(graph, "step", "template")
    assert groups(field_of(graph)) == {frozenset(range(5))}


def test_nodes_with_a_template_of_their_own_are_alike() -> None:
    graph = nx.path_graph(6)
    for i in range(6):
        graph.nodes[i]["template"] = i % 2
    field = field_of(graph)
    assert groups(field) == {frozenset([0, 2, 4]), frozenset([1, 3, 5])}
    assert len(field.names) == 5  # the edges are still apart


def test_an_edge_and_a_node_may_have_templates_of_one_name() -> None:
    graph = nx.Graph()
    graph.add_edge("a", "b", template="t")
    graph.add_node("c", template="t")
    assert groups(field_of(graph)) == {frozenset("a"), frozenset("b"), frozenset("c")}


class Colour(Enum):
    RED = 1
    BLUE = 2


@pytest.mark.parametrize(
    "names",
    [
        (0, 1),
        (-1, -2),
        ("", "x"),
        ((0, 1), (1, 0)),
        (frozenset("ab"), frozenset("a")),
        (Colour.RED, Colour.BLUE),
        (date(2020, 1, 1), date(2021, 1, 1)),
        (False, True),
        (0.5, "0.5"),
        (np.int64(3), "a"),
        (("edge", ("a", "b")), "edge"),
    ],
    ids=[str(i) for i in range(11)],
)
def test_names_of_templates_of_any_kind(names: tuple[Any, Any]) -> None:
    graph = nx.Graph()
    graph.add_nodes_from("abcdxyzu")
    for i, (a, b) in enumerate(["ax", "by", "cz", "du"]):
        graph.add_edge(a, b, template=names[i % 2])
    found = field_of(graph)
    assert groups(found) == {frozenset("ac"), frozenset("bd"), frozenset("xz"), frozenset("yu")}


def test_links_are_templates_in_both_directions() -> None:
    graph = nx.Graph()
    graph.add_nodes_from("abxy")
    graph.add_edge("x", "a", template="t")
    graph.add_edge("b", "y", template="t")
    field = field_of(graph)
    for link in (0, 1):
        t, s = field.ends(link)
        sources, targets = (end[field.links == link] for end in (field.sources, field.targets))
        assert {field.kind[v] for v in sources} == {t}
        assert {field.kind[v] for v in targets} == {s}
        names = {(field.nodes[a], field.nodes[b]) for a, b in zip(sources, targets, strict=True)}
        assert names == ({("a", "x"), ("b", "y")} if link == 0 else {("x", "a"), ("y", "b")})


@settings(max_examples=50, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), p=st.integers(1, 9), t=st.integers(1, 4), directed=st.booleans())
def test_kinds_are_what_templates_make_alike(seed: int, p: int, t: int, directed: bool) -> None:
    """Against an obvious union of sets."""
    rng = np.random.default_rng(seed)
    graph = nx.gnp_random_graph(p, 0.3, seed=seed)
    order = rng.permutation(p).tolist()
    mixed = nx.DiGraph() if directed else nx.Graph()
    mixed.add_nodes_from(order)
    mixed.add_edges_from(graph.edges)
    for a, b in mixed.edges:
        mixed[a][b]["template"] = [None, *"abcd"][rng.integers(t + 1)]
    for v in mixed:
        if rng.random() < 0.2:
            mixed.nodes[v]["template"] = int(rng.integers(2))
    alike = {v: {v} for v in order}

    def join(a: int, b: int) -> None:
        both = alike[a] | alike[b]
        for v in both:
            alike[v] = both

    ends: dict[Any, int] = {}
    for a, b, template in mixed.edges(data="template"):
        if not directed and order.index(a) > order.index(b):
            a, b = b, a
        if template is not None:
            join(a, ends.setdefault((template, 0), a))
            join(b, ends.setdefault((template, 1), b))
    for v, template in mixed.nodes(data="template"):
        if template is not None:
            join(v, ends.setdefault(("node", template), v))
    field = field_of(mixed)
    assert groups(field) == {frozenset(found) for found in alike.values()}
    # kinds are numbered as they first appear, and places within them are right
    assert list(dict.fromkeys(field.kind.tolist())) == list(range(len(field.members)))
    for v in range(p):
        assert field.members[field.kind[v]][field.local[v]] == v


def test_levels_are_distances_from_the_first_of_a_component() -> None:
    graph = nx.cycle_graph(5)
    graph.add_edge(6, 7)
    field = field_of(graph)
    everybody = np.ones(7, dtype=bool)
    levels = [{field.nodes[v] for v in level} for level in field.levels(everybody)]
    assert levels == [{0, 6}, {1, 4, 7}, {2, 3}]
    without = everybody.copy()
    without[0] = False
    levels = [{field.nodes[v] for v in level} for level in field.levels(without)]
    assert levels == [{1, 6}, {2, 7}, {3}, {4}]
    assert field.levels(~everybody) == []


# --- what is learned once -------------------------------------------------------------------------


def labels(n: int, p: int, k: int, seed: int = 0) -> Array:
    """Columns of a chain whose neighbours are alike more often than not, and never certainly."""
    rng = np.random.default_rng(seed)
    rows = np.empty((n, p), dtype=int)
    rows[:, 0] = rng.integers(k, size=n)
    for j in range(1, p):
        step = (rows[:, j - 1] + (rng.random(n) < 0.4)) % k  # stays or goes one up: asymmetric
        rows[:, j] = np.where(rng.random(n) < 0.25, rng.integers(k, size=n), step)
    return rows


def test_a_shared_edge_is_that_of_the_pooled_rows() -> None:
    """Four edges of one template and one edge on all their rows say the same."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(4, 30))
    y = np.sin(2 * x) + 0.3 * rng.normal(size=(4, 30))
    graph = nx.Graph()
    for i in range(4):
        graph.add_edge(("x", i), ("y", i), template="t")
    data = {("x", i): x[i] for i in range(4)} | {("y", i): y[i] for i in range(4)}
    shared = BeliefPropagation(graph, Laplace(1.0), 0.01).fit(data)
    pooled = BeliefPropagation(nx.path_graph(["x", "y"]), Laplace(1.0), 0.01)
    pooled.fit({"x": x.ravel(), "y": y.ravel()})
    found = shared.run({("x", 0): 0.5, ("y", 1): 0.2})
    forth, back = pooled.run({"x": 0.5}), pooled.run({"y": 0.2})
    at = np.linspace(-1, 1, 7)[:, None]
    assert_allclose(found.belief(("y", 0))(at), forth.belief("y")(at), rtol=1e-8)
    assert_allclose(found.belief(("x", 1))(at), back.belief("x")(at), rtol=1e-8)
    nothing = pooled.run()
    assert_allclose(found.belief(("x", 2))(at), nothing.belief("x")(at), rtol=1e-6)
    assert len(shared.potentials_.links) == len(pooled.potentials_.links) == 2
    assert_allclose(found.density(("y", 0), at), forth.density("y", at), rtol=1e-8)


def pooled_tables(
    graph: Any, data: dict[Any, Array], k: int, w: Any = None
) -> tuple[dict[tuple[Any, Any], Array], dict[Any, Array]]:
    """Tables of the edges and nodes, averages over all that a template or a kind makes alike."""
    field = field_of(graph)
    n = len(next(iter(data.values())))
    w = np.full(n, 1 / n) if w is None else np.asarray(w) / np.sum(w)
    empty = np.full(n, -1)
    tables: dict[tuple[Any, Any], Array] = {}
    by_template: dict[int, Array] = {}
    for (a, b), template in zip(field.edges, field.template, strict=True):
        first, second = data.get(field.nodes[a], empty), data.get(field.nodes[b], empty)
        here = (first >= 0) & (second >= 0)
        table = np.zeros((k, k))
        np.add.at(table, (first[here], second[here]), w[here])
        by_template[template] = by_template.get(template, 0) + table
    for (a, b), template in zip(field.edges, field.template, strict=True):
        table = by_template[template]
        tables[field.nodes[a], field.nodes[b]] = table / table.sum()
    marginals = {}
    for kind, members in enumerate(field.members):
        total = np.zeros(k)
        for v in members:
            column = data.get(field.nodes[v], empty)
            np.add.at(total, column[column >= 0], w[column >= 0])
        for v in np.flatnonzero(field.kind == kind):
            marginals[field.nodes[v]] = total / total.sum()
    return tables, {name: marginals[name] for name in field.nodes}


def agrees_with_tables(
    graph: Any, data: dict[Any, Array], k: int, evidence: dict[Any, int], w: Any = None
) -> None:
    tables, marginals = pooled_tables(graph, data, k, w)
    _, expected = oracles.loopy_discrete_messages(tables, marginals, evidence, 300, 0.3)
    columns = {
        name: np.where(column < 0, None, column) if (column < 0).any() else column
        for name, column in data.items()
    }
    model = table_model(graph, columns, w, damping=0.3)
    for schedule in ("synchronous", "sequential", "residual"):
        found = model.set_params(schedule=schedule).run(evidence, 300)
        assert found.converged
        for name, belief in expected.items():
            assert_allclose(probabilities(found, name, k), belief, atol=1e-10)


def grid(rows: int, columns: int, homogeneous: bool) -> Any:
    """Down and right; in a homogeneous one everywhere alike, else row by row."""
    graph = nx.grid_2d_graph(rows, columns)
    for a, b in graph.edges:
        down = a[1] == b[1]
        graph[a][b]["template"] = down if homogeneous else (down, min(a, b)[0])
    return graph


@pytest.mark.parametrize("homogeneous", [True, False])
def test_grids_whose_edges_are_alike(homogeneous: bool) -> None:
    graph = grid(3, 3, homogeneous)
    rows = labels(120, 9, 3)
    data = {place: rows[:, i] for i, place in enumerate(graph.nodes)}
    field = field_of(graph)
    assert len(field.members) == (1 if homogeneous else 3)
    agrees_with_tables(graph, data, 3, {(0, 0): 2, (2, 1): 0})


def test_an_asymmetric_relation_between_nodes_of_one_kind() -> None:
    """Labels go up along the chain: seen in the middle, its two sides differ."""
    graph = nx.path_graph(5)
    nx.set_edge_attributes(graph, "step", "template")
    rng = np.random.default_rng(0)
    start = rng.integers(4, size=300)
    data = {i: (start + i) % 4 for i in range(5)}
    found = table_model(graph, data).run({2: 1})
    for i in range(5):
        if i != 2:
            assert_allclose(probabilities(found, i, 4)[(1 + i - 2) % 4], 1, atol=1e-10)
    agrees_with_tables(graph, dict(enumerate(labels(300, 5, 3).T)), 3, {1: 0, 3: 2})


def test_a_cycle_that_turns_round() -> None:
    """The closing edge of a cycle reads from the first node to the last, against the others."""
    graph = nx.cycle_graph(4)
    nx.set_edge_attributes(graph, "t", "template")
    agrees_with_tables(graph, dict(enumerate(labels(300, 4, 3).T)), 3, {0: 1})
    directed = nx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 0)])
    nx.set_edge_attributes(directed, "t", "template")
    agrees_with_tables(directed, dict(enumerate(labels(300, 4, 3).T)), 3, {0: 1})


@pytest.mark.parametrize("first", ["hub", "leaf"])
def test_a_hub_whose_edges_have_one_template(first: str) -> None:
    rows = labels(300, 5, 3)
    rng = np.random.default_rng(3)
    hub = rows[:, 0]
    data = {"hub": hub}
    for i in range(4):
        moved = (hub + (rng.random(300) < 0.3 + 0.1 * i)) % 3
        data[i] = np.where(rng.random(300) < 0.2, rng.integers(3, size=300), moved)
    graph = nx.Graph()
    graph.add_nodes_from(["hub", *range(4)] if first == "hub" else [*range(4), "hub"])
    graph.add_edges_from(("hub", i, {"template": "spoke"}) for i in range(4))
    assert len(field_of(graph).members) == 2
    agrees_with_tables(graph, data, 3, {0: 1, 3: 2})
    agrees_with_tables(graph, data, 3, {"hub": 1})
    # and with a rim: nodes of one kind joined among themselves
    graph.add_edges_from((i, i + 1, {"template": "rim"}) for i in range(3))
    agrees_with_tables(graph, data, 3, {0: 1})


def test_two_templates_between_the_same_kinds() -> None:
    graph = nx.DiGraph()
    for i in range(3):
        graph.add_edge(("x", i), ("y", i), template="own")
        graph.add_edge(("x", i), ("y", (i + 1) % 3), template="next")
        graph.add_edge(("y", i), ("x", (i + 2) % 3), template="back")
    with pytest.raises(ValueError, match="joined twice|twice"):
        field_of(graph)
    graph.remove_edges_from([(("y", i), ("x", (i + 2) % 3)) for i in range(3)])
    rows = labels(300, 6, 3, seed=7)
    data = {name: rows[:, i] for i, name in enumerate(sorted(graph.nodes))}
    agrees_with_tables(graph, data, 3, {("x", 0): 1, ("y", 2): 0})


def test_nodes_without_data_are_like_others() -> None:
    """A chain of three is learned, one of seven is asked."""
    rows = labels(300, 3, 3)
    graph = nx.path_graph(7)
    nx.set_edge_attributes(graph, "t", "template")
    data = {1: rows[:, 0], 2: rows[:, 1], 3: rows[:, 2]}
    agrees_with_tables(graph, data, 3, {0: 1, 6: 2})
    agrees_with_tables(graph, data, 3, {2: 0})


def test_nodes_without_data_but_with_a_template() -> None:
    rows = labels(200, 2, 3)
    graph = nx.Graph([("a", "b")])
    graph.nodes["a"]["template"] = "t"
    graph.add_node("alone", template="t")
    found = table_model(graph, {"a": rows[:, 0], "b": rows[:, 1]}).run({"b": 1})
    frequencies = np.bincount(rows[:, 0], minlength=3) / 200
    assert_allclose(probabilities(found, "alone", 3), frequencies, atol=1e-10)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    p=st.integers(2, 6),
    t=st.integers(1, 3),
    directed=st.booleans(),
    gaps=st.sampled_from([0.0, 0.2]),
    weighted=st.booleans(),
)
def test_random_templates_equal_pooled_tables(
    seed: int, p: int, t: int, directed: bool, gaps: float, weighted: bool
) -> None:
    """Any graph, any sharing, missing values, weights: all three schedules."""
    rng = np.random.default_rng(seed)
    k, n = 2, 120
    plain = nx.gnp_random_graph(p, 0.5, seed=seed)
    graph = nx.DiGraph() if directed else nx.Graph()
    graph.add_nodes_from(rng.permutation(p).tolist())
    for a, b in plain.edges:
        ends = (a, b) if rng.random() < 0.5 else (b, a)
        graph.add_edge(*ends, template=[None, "a", "b"][rng.integers(t)])
    rows = labels(n, p, k, seed)
    rows = np.where(rng.random((n, p)) < gaps, -1, rows)
    weights = rng.integers(0, 4, size=n) if weighted else None
    evidence = {int(rng.integers(p)): int(rng.integers(k))}
    agrees_with_tables(graph, dict(enumerate(rows.T)), k, evidence, weights)


# --- weights, gaps, samples -----------------------------------------------------------------------


def lattice(n: int, seed: int = 0) -> tuple[Any, dict[Any, Array]]:
    """Numbers on a square with a diagonal; two of its edges are alike."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n)
    b, d = (np.sin(a) + 0.4 * rng.normal(size=n) for _ in range(2))
    c = b + d + 0.4 * rng.normal(size=n)
    graph = nx.Graph([("a", "b"), ("a", "d"), ("b", "c"), ("d", "c"), ("a", "c")])
    graph["a"]["b"]["template"] = graph["a"]["d"]["template"] = "same"
    return graph, {"a": a, "b": b, "c": c, "d": d}


def assert_same(one: Any, other: Any, nodes: Any, rtol: float = 1e-7) -> None:
    at = np.linspace(-2, 2, 9)[:, None]
    for node in nodes:
        assert_allclose(one.belief(node)(at), other.belief(node)(at), rtol=rtol, atol=1e-12)


@pytest.mark.parametrize("gaps", [False, True])
def test_a_weight_of_two_is_a_row_twice_and_none_a_row_left_out(gaps: bool) -> None:
    graph, data = lattice(40)
    rng = np.random.default_rng(1)
    if gaps:
        data = {k: np.where(rng.random(40) < 0.2, np.nan, v) for k, v in data.items()}
    weights = rng.integers(0, 3, size=40)
    twice = {name: np.repeat(column, weights) for name, column in data.items()}
    options: dict[str, Any] = {"kernel": Laplace(1.0), "regularization": 0.01}
    weighted = BeliefPropagation(graph, **options).fit(data, weights)
    repeated = BeliefPropagation(graph, **options).fit(twice)
    for evidence in ({}, {"a": 0.5}, {"b": 0.3, "c": 0.8}):
        one, other = weighted.run(evidence, 200), repeated.run(evidence, 200)
        assert_same(one, other, set(data) - set(evidence))
        assert one.iterations == other.iterations


def test_rows_of_no_weight_do_not_set_the_bandwidth() -> None:
    graph, data = lattice(80)
    far = {name: np.r_[column, np.full(40, 1e3)] for name, column in data.items()}
    weights = np.r_[np.ones(80), np.zeros(40)]
    one = BeliefPropagation(graph, regularization=0.01).fit(far, weights)
    other = BeliefPropagation(graph, regularization=0.01).fit(data)
    assert_same(one.run({"a": 0.5}), other.run({"a": 0.5}), "bcd")


def test_rows_without_pairs_count_for_their_node_alone() -> None:
    """A value whose neighbour is missing belongs to the marginal, not to the edge."""
    a, b = labels(200, 2, 3).T
    a = np.r_[a, np.full(100, 2)]
    b = np.r_[b, np.full(100, -1)]
    graph = nx.path_graph(2)
    agrees_with_tables(graph, {0: a, 1: b}, 3, {})
    agrees_with_tables(graph, {0: a, 1: b}, 3, {1: 0})
    agrees_with_tables(graph, {0: a, 1: b}, 3, {0: 1})


def test_subsamples_are_seeded() -> None:
    graph, data = lattice(300)

    def means(seed: Any) -> Array:
        model = BeliefPropagation(graph, Gaussian(1.0), 0.01, max_samples=60, random_state=seed)
        return np.array(list(model.fit(data).run({"a": 0.5}).mean.values()))

    assert_array_equal(means(3), means(3))
    assert_array_equal(means(3), means(np.random.default_rng(3)))
    assert np.abs(means(3) - means(4)).max() > 1e-4


def test_a_subsample_is_near_the_whole() -> None:
    graph, data = lattice(400)
    whole = BeliefPropagation(graph, Gaussian(1.0), 1e-3).fit(data)
    part = BeliefPropagation(graph, Gaussian(1.0), 1e-3, max_samples=200, random_state=0).fit(data)
    assert [len(node.points) for node in part.potentials_.nodes] == [200] * 3
    one, other = whole.run({"a": 1.0}), part.run({"a": 1.0})
    for node in "bcd":
        assert abs(one.mean[node] - other.mean[node]) < 0.25  # measured: 0.05


def test_max_samples_of_all_rows_is_all_rows() -> None:
    graph, data = lattice(50)
    one = BeliefPropagation(graph, Laplace(1.0), 0.01, max_samples=50, random_state=0).fit(data)
    all_b = BeliefPropagation(graph, Laplace(1.0), 0.01, max_samples=100).fit(data)
    assert len(one.potentials_.nodes[1].points) == 50  # of the 100 of b and d
    assert_same(one.run({"a": 0.5}), all_b.run({"a": 0.5}), "c", rtol=0.5)
    again = BeliefPropagation(graph, Laplace(1.0), 0.01, max_samples=10**6).fit(data)
    assert_same(again.run({"a": 0.5}), all_b.run({"a": 0.5}), "bcd")


def test_few_samples_of_a_large_kind_still_know_its_edges() -> None:
    """Of 50 nodes that are alike two are joined: the sample has to reach that edge."""
    rng = np.random.default_rng(0)
    graph = nx.Graph()
    graph.add_nodes_from(range(50), template="one")
    graph.add_edge(0, 1)
    data = {i: rng.normal(size=60) for i in range(50)}
    data[1] = data[0] + 0.2 * rng.normal(size=60)
    model = BeliefPropagation(graph, max_samples=20, random_state=0).fit(data)
    assert model.run({0: 1.0}).mean[1] > 0.5


def test_numbers_that_are_alike_have_one_bandwidth() -> None:
    rng = np.random.default_rng(0)
    graph = nx.Graph()
    graph.add_edge("a", "x", template="t")
    graph.add_edge("b", "y", template="t")
    data = {"a": rng.normal(size=50), "b": 5 * rng.normal(size=50)}
    data |= {"x": data["a"] + 1, "y": data["b"] + 1}
    potentials = BeliefPropagation(graph).fit(data).potentials_
    assert len(potentials.nodes) == 2
    both = np.concatenate([data["a"], data["b"]])
    points = potentials.nodes[0].points[:, 0]
    assert points.min() == both.min() and points.max() == both.max()
    assert_allclose(potentials.nodes[0].weights @ points, both.mean(), atol=1e-12)


def test_the_order_of_nodes_changes_nothing() -> None:
    graph, data = lattice(60)
    for a, b in graph.edges:
        graph[a][b].pop("template", None)
    one = BeliefPropagation(graph, Laplace(1.0), 0.01, tolerance=1e-10).fit(data)
    for order in ("dcba", "bdac", "cabd"):
        other = nx.Graph()
        other.add_nodes_from(order)
        other.add_edges_from(graph.edges)
        two = BeliefPropagation(other, Laplace(1.0), 0.01, tolerance=1e-10).fit(data)
        for schedule in ("synchronous", "sequential", "residual"):
            first = one.set_params(schedule=schedule).run({"a": 0.5}, 200)
            second = two.set_params(schedule=schedule).run({"a": 0.5}, 200)
            assert_same(first, second, "bcd")
            assert list(second.mean) == list(order)
