"""Invalid fields, evidence and settings: an error or a warning that names the remedy."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from meanmap import BeliefPropagation, DataWarning, embed
from meanmap.kernels import Delta, Gaussian, Laplace
from oracles import Array

TRIANGLE = nx.cycle_graph(list("abc"))
SCHEDULES = ("synchronous", "sequential", "residual")


def table(n: int = 60) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    a = rng.normal(size=n)
    b = a + 0.3 * rng.normal(size=n)
    return {"a": a, "b": b, "c": a + b + 0.3 * rng.normal(size=n)}


@cache
def fitted() -> BeliefPropagation:
    return BeliefPropagation(TRIANGLE, Gaussian(0.7), 0.01).fit(table())


@cache
def fitted_labels() -> BeliefPropagation:
    data = {name: np.where(values > 0, "high", "low") for name, values in table().items()}
    return BeliefPropagation(TRIANGLE, regularization=0).fit(data)


@cache
def fitted_grid(shared: bool = False) -> BeliefPropagation:
    graph = nx.grid_2d_graph(2, 3)
    if shared:
        nx.set_edge_attributes(graph, "t", "template")
    data = np.random.default_rng(0).normal(size=(60, 2, 3)).cumsum(axis=2)
    return BeliefPropagation(graph, Laplace(1.0), 0.02).fit(data)


# --- graphs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("graph", "error", "says"),
    [
        (nx.Graph(["ab", "bb"]), ValueError, "'b' is joined to itself.*Remove"),
        (nx.DiGraph(["ab", "ba"]), ValueError, "'a' and 'b'.*twice.*Remove"),
        (nx.Graph(), ValueError, "no nodes"),
        (nx.MultiGraph(["ab", "ab"]), TypeError, "networkx Graph or DiGraph, got MultiGraph"),
        (nx.MultiDiGraph(["ab"]), TypeError, "got MultiDiGraph"),
        ([("a", "b")], TypeError, "networkx.*got list.*nx.Graph"),
        (None, TypeError, "networkx.*got NoneType"),
        ("abc", TypeError, "networkx"),
        (np.eye(3), TypeError, "networkx.*shape"),
    ],
)
def test_graphs_that_are_none(graph: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        BeliefPropagation(graph).fit(table())


@pytest.mark.parametrize("where", ["edge", "node"])
def test_a_template_that_cannot_be_compared(where: str) -> None:
    graph = nx.Graph(["ab", "bc"])
    if where == "edge":
        graph["a"]["b"]["template"] = ["row", 1]
    else:
        graph.nodes["a"]["template"] = ["row", 1]
    with pytest.raises(TypeError, match="template.*(hash|tuple)"):
        BeliefPropagation(graph).fit(table())


# --- tables ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "error", "says"),
    [
        ({}, ValueError, "no columns"),
        ({"x": [1.0, 2.0]}, ValueError, "'x'.*is a node.*'a', 'b', 'c'"),
        ({"a": table()["a"], "b": table()["b"]}, ValueError, "no column for 'c'.*Add.*template"),
        ({"a": [], "b": [], "c": []}, ValueError, "no rows"),
        ({"a": [1.0], "b": [1.0], "c": [1.0]}, ValueError, "at least two rows.*got 1"),
        ({**table(), "c": [1.0, 2.0]}, ValueError, "different lengths"),
        ({**table(), "c": 1.0}, TypeError, "'c'.*array"),
        ([1, 2, 3], TypeError, "DataFrame.*got list"),
        (None, TypeError, "DataFrame"),
        ("abc", TypeError, "DataFrame"),
        ({**table(), "b": np.full(60, np.nan)}, ValueError, "b.*missing"),
        ({**table(), "b": np.full(60, None)}, ValueError, "b.*missing"),
        ({**table(), "b": np.r_[np.inf, np.zeros(59)]}, ValueError, "b.*infin"),
        ({**table(), "b": pd.date_range("2020", periods=60)}, TypeError, "b.*kernel"),
        (np.zeros((60, 3)), TypeError, r"positions \(i, j\).*node 'a'.*dict"),
        (np.zeros((60, 3, 3)), TypeError, r"positions \(i, j\).*node 'a'.*dict"),
    ],
    ids=str,
)
def test_tables_that_are_none(data: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        BeliefPropagation(TRIANGLE).fit(data)


def test_a_node_without_neighbours_or_data() -> None:
    graph = nx.Graph(["ab"])
    graph.add_node("alone")
    with pytest.raises(ValueError, match="no column for 'alone'"):
        BeliefPropagation(graph).fit(table())


def test_a_kind_without_data_is_named_with_its_number() -> None:
    graph = nx.Graph()
    for i in range(3):
        graph.add_edge("a", ("x", i), template="t")
    with pytest.raises(ValueError, match=r"\('x', 0\) and the 2 nodes like it"):
        BeliefPropagation(graph).fit(table())


def test_an_edge_without_pairs_is_named() -> None:
    data = table()
    data["b"] = np.where(np.arange(60) < 30, data["b"], np.nan)
    data["c"] = np.where(np.arange(60) >= 29, data["c"], np.nan)
    with pytest.raises(ValueError, match="edge 'b' – 'c'.*at least two rows.*got 1.*leave"):
        BeliefPropagation(TRIANGLE).fit(data)
    graph = nx.Graph()
    graph.add_edge("b", "c", template="mine")
    with pytest.raises(ValueError, match="template 'mine'.*at least two rows.*got 1"):
        BeliefPropagation(graph).fit(data)


def test_a_template_without_data_on_any_edge() -> None:
    """Its ends are known from other edges, their relation is not."""
    graph = nx.path_graph(["a", "b", "x", "y"])
    graph["a"]["b"]["template"] = "known"
    for v in ("a", "x"):
        graph.nodes[v]["template"] = "first"
    for v in ("b", "y"):
        graph.nodes[v]["template"] = "second"
    with pytest.raises(ValueError, match="'x'.*'y'|'b'.*'x'"):
        BeliefPropagation(graph).fit({"a": table()["a"], "b": table()["b"]})


@pytest.mark.parametrize("shape", [(60, 2), (60, 1)])
def test_a_template_whose_edges_disagree_in_shape(shape: tuple[int, int]) -> None:
    graph = nx.Graph()
    graph.add_edge("a", "b", template="t")
    graph.add_edge("x", "y", template="t")
    data = {**table(), "x": np.zeros(shape), "y": table()["c"]}
    says = r"'a' and 'x'.*same end of a template.*\(\).*\(\d,\).*different templates"
    with pytest.raises(ValueError, match=says):
        BeliefPropagation(graph).fit(data)


def test_a_template_of_labels_and_numbers() -> None:
    graph = nx.Graph()
    graph.add_edge("a", "b", template="t")
    graph.add_edge("x", "y", template="t")
    data = {**table(), "x": ["u", "v"] * 30, "y": table()["c"]}
    with pytest.raises((TypeError, ValueError), match="'?a'?.*'?x'?.*template"):
        BeliefPropagation(graph).fit(data)


def test_two_kernels_at_one_end_of_a_template() -> None:
    graph = nx.Graph()
    graph.add_edge("a", "b", template="t")
    graph.add_edge("x", "y", template="t")
    data = {**table(), "x": table()["c"], "y": table()["c"]}
    with pytest.raises(ValueError, match="'a' and 'x'.*one kernel; got two"):
        BeliefPropagation(graph, {"a": Gaussian(1.0), "x": Gaussian(2.0)}).fit(data)
    BeliefPropagation(graph, {"a": Gaussian(1.0), "x": Gaussian(1.0)}, 0.01).fit(data)


@pytest.mark.parametrize(
    ("data", "error", "says"),
    [
        (np.zeros((60, 2, 2)), ValueError, r"node \(0, 2\).*not a position.*\(2, 2\)"),
        (np.zeros(60), TypeError, r"\(n, rows, columns\)"),
        (np.zeros((60, 6)), TypeError, r"\(n, rows, columns\)"),
        (np.zeros((0, 2, 3)), ValueError, "row|empty|missing"),
        (np.full((60, 2, 3), np.nan), ValueError, "missing"),
    ],
    ids=str,
)
def test_arrays_that_do_not_fit_a_grid(data: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        BeliefPropagation(nx.grid_2d_graph(2, 3)).fit(data)


def test_places_that_are_negative() -> None:
    graph = nx.Graph([((-1, 0), (0, 0))])
    with pytest.raises(ValueError, match=r"node \(-1, 0\).*not a position"):
        BeliefPropagation(graph).fit(np.zeros((60, 2, 3)))
    rng = np.random.default_rng(0)
    data = {(-1, 0): rng.normal(size=40), (0, 0): rng.normal(size=40)}
    found = BeliefPropagation(graph, regularization=0.01).fit(data).run({(-1, 0): 0.5})
    try:
        picture = found.array()
    except (TypeError, ValueError) as refusal:
        assert "positions" in str(refusal)
    else:  # not one on top of the other
        assert np.isclose(picture, 0.5).sum() == 1
        assert np.isclose(picture, found.mean[0, 0]).sum() == 1


# --- weights --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        (np.ones(59), "59|60"),
        (-np.ones(60), "negative|positive"),
        (np.zeros(60), "zero|sum|positive"),
        (np.full(60, np.nan), "NaN|finite"),
        (np.ones((60, 2)), "shape|one"),
    ],
)
def test_weights_that_are_none(weights: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        BeliefPropagation(TRIANGLE).fit(table(), weights)


def test_a_column_whose_values_have_no_weight_is_named() -> None:
    weights = np.r_[np.zeros(30), np.ones(30)]
    data = table()
    data["b"] = np.where(weights > 0, np.nan, data["b"])
    with pytest.raises(ValueError, match="b.*(weight|missing)"):
        BeliefPropagation(TRIANGLE).fit(data, weights)


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"damping": 1.0}, ValueError, r"damping.*\[0, 1\).*1.0"),
        ({"damping": 2}, ValueError, "damping"),
        ({"damping": -0.1}, ValueError, r"damping.*-0.1.*\[0, 1\)"),
        ({"damping": np.nan}, ValueError, "damping"),
        ({"damping": "half"}, (TypeError, ValueError), "damping.*'?half"),
        ({"damping": None}, (TypeError, ValueError), "damping"),
        ({"schedule": "random"}, ValueError, "schedule.*synchronous.*sequential.*residual.*random"),
        ({"schedule": None}, (TypeError, ValueError), "schedule"),
        ({"tolerance": 0}, ValueError, "tolerance.*1e-3"),
        ({"tolerance": -1.0}, ValueError, "tolerance"),
        ({"tolerance": np.nan}, ValueError, "tolerance"),
        ({"tolerance": "small"}, (TypeError, ValueError), "tolerance"),
        ({"max_samples": 1}, ValueError, "max_samples.*2.*1"),
        ({"max_samples": 0}, ValueError, "max_samples"),
        ({"max_samples": 10.5}, (TypeError, ValueError), "max_samples"),
        ({"regularization": -1.0}, ValueError, "regularization"),
        ({"regularization": "much"}, (TypeError, ValueError), "regularization.*much"),
        ({"regularization": np.nan}, ValueError, "regularization"),
        ({"kernel": "gaussian"}, TypeError, "kernel.*Kernel"),
        ({"kernel": {"a": 1.0}}, TypeError, "kernel.*'a'"),
        ({"kernel": {"z": Gaussian()}}, ValueError, "kernel.*'z'.*'a', 'b', 'c'"),
        ({"random_state": "seed"}, (TypeError, ValueError), "random_state|seed|rng"),
        ({"basis": "nystrom"}, (TypeError, ValueError), "basis"),
    ],
    ids=str,
)
def test_settings_that_are_none(options: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        BeliefPropagation(TRIANGLE, **options).fit(table())


@pytest.mark.parametrize("options", [{"damping": 1.0}, {"schedule": "x"}, {"tolerance": 0}])
def test_settings_changed_after_fitting_are_checked(options: Any) -> None:
    model = BeliefPropagation(TRIANGLE, Gaussian(0.7), 0.01).fit(table()).set_params(**options)
    with pytest.raises(ValueError, match=next(iter(options))):
        model.run()


@pytest.mark.parametrize(
    ("most", "error"),
    [
        (0, ValueError),
        (-3, ValueError),
        (2.5, (TypeError, ValueError)),
        ("many", (TypeError, ValueError)),
    ],
)
def test_numbers_of_iterations_that_are_none(most: Any, error: Any) -> None:
    with pytest.raises(error, match="max_iterations"):
        fitted().run({"a": 0.5}, most)


def test_a_model_that_is_not_fitted() -> None:
    with pytest.raises(NotFittedError):
        BeliefPropagation(TRIANGLE).run({"a": 0.5})


def test_a_failed_fit_leaves_the_old_model() -> None:
    model = BeliefPropagation(TRIANGLE, Gaussian(0.7), 0.01).fit(table())
    before = model.run({"a": 0.5}).mean
    for bad in (
        {**table(), "c": np.full(60, np.nan)},
        {"a": [1.0], "b": [1.0], "c": [1.0]},
        {"a": table()["a"]},
        None,
    ):
        with pytest.raises((TypeError, ValueError)):
            model.fit(bad)
        assert model.run({"a": 0.5}).mean == before
        assert tuple(model.nodes_) == ("a", "b", "c")


# --- evidence -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("evidence", "error", "says"),
    [
        ({"z": 1.0}, ValueError, "no node 'z'.*'a', 'b', 'c'"),
        ([("a", 1.0)], TypeError, "dict.*got list"),
        (1.0, TypeError, "dict.*got float"),
        ("a", TypeError, "dict.*got str"),
        ({"a": None}, ValueError, "'a'.*missing.*Leave out"),
        ({"a": float("nan")}, ValueError, "'a'.*missing"),
        ({"a": np.float32("nan")}, ValueError, "'a'.*(missing|NaN)"),
        ({"a": np.array([np.nan])}, ValueError, "'a'.*(missing|NaN)"),
        ({"b": np.inf}, ValueError, "'b'.*infin"),
        ({"a": "high"}, (TypeError, ValueError), "'a'.*number"),
        ({"a": {}}, (TypeError, ValueError), "'a'"),
        ({"a": [0.1, 0.2]}, ValueError, "'a'.*one point.*2"),
        ({"a": []}, ValueError, "'a'"),
        ({"a": np.zeros((2, 2))}, ValueError, "'a'"),
        ({"a": 1j}, (TypeError, ValueError), "'a'"),
        (np.zeros((2, 3)), TypeError, r"positions \(i, j\).*'a'"),
    ],
    ids=str,
)
def test_evidence_that_is_none(evidence: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        fitted().run(evidence)


@pytest.mark.parametrize(
    ("likelihood", "says"),
    [
        (lambda x: x[:, 0], "'a'.*at least 0.*got -.*exp"),
        (lambda x: -np.ones(len(x)), "'a'.*at least 0"),
        (lambda x: np.zeros(len(x)), "'a'.*positive somewhere.*got 0 at all 60.*shape"),
        (lambda x: np.exp(-1e6 * (x[:, 0] - 40) ** 2), "'a'.*positive somewhere.*underflow"),
        (lambda x: np.full(len(x), np.nan), "'a'.*finite.*nan"),
        (lambda x: np.full(len(x), np.inf), "'a'.*finite.*inf"),
        (lambda x: np.ones((len(x), 2)), r"'a'.*one number for each point.*\(60, 2\)"),
        (lambda x: np.ones((len(x), 1)), r"'a'.*one number for each point.*\(60, 1\)"),
    ],
)
def test_likelihoods_that_are_none(likelihood: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        fitted().run({"a": likelihood})


@pytest.mark.parametrize(
    "likelihood",
    [lambda x: 1.0, lambda x: np.ones(3), lambda x: "high", lambda x: None, lambda x: [1.0, 2.0]],
)
def test_likelihoods_of_another_length_or_kind(likelihood: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="'a'|function|values|points"):
        fitted().run({"a": likelihood})


def test_a_likelihood_that_fails_says_so_itself() -> None:
    def broken(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fitted().run({"a": broken})


@pytest.mark.parametrize(
    ("belief", "says"),
    [
        (embed(np.zeros((3, 2)) + np.arange(3)[:, None], kernel=Gaussian(1.0)), "'a'.*2.*1"),
        (embed(np.array(["u", "v"]), kernel=Delta()), "'a'"),
        (embed([[40.0]], kernel=Gaussian(1.0)), "'a'.*data"),
    ],
)
def test_beliefs_that_do_not_fit(belief: Any, says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        fitted().run({"a": belief})


def test_a_batch_of_beliefs() -> None:
    batch = embed(np.arange(3.0)[:, None], kernel=Gaussian(1.0), weights=np.eye(3)[:2])
    with pytest.raises(ValueError, match="'a'.*one embedding, got 2.*"):
        fitted().run({"a": batch})


@pytest.mark.parametrize("far", [4.5, 6.0, 8.0, 12.0])
def test_a_belief_outside_the_data_is_told_or_refused(far: float) -> None:
    """As an observation there is: what follows from it is not informed by any row."""
    with pytest.warns(DataWarning, match="'a' lies outside the data"):
        fitted().run({"a": far})
    try:
        with pytest.warns(DataWarning, match="'a'"):
            fitted().run({"a": embed([[far]], kernel=Gaussian(0.7))})
    except ValueError as refusal:
        assert "'a'" in str(refusal)


def test_a_belief_of_weight_zero_or_less() -> None:
    weights = np.array([0.5, -0.5])
    nothing = embed(np.array([[0.0], [1.0]]), kernel=Gaussian(0.7), weights=weights)
    with pytest.raises(ValueError, match="'a'|weights"):
        fitted().run({"a": nothing})


def test_the_evidence_that_is_wrong_is_named() -> None:
    """Of several nodes of one kind that one."""
    for shared in (False, True):
        model = fitted_grid(shared)
        with pytest.raises(ValueError, match=r"\(0, 1\)"):
            model.run({(0, 0): 1.0, (0, 1): np.inf})
        with pytest.raises((TypeError, ValueError), match=r"\(0, 1\)"):
            model.run({(0, 0): 1.0, (0, 1): "high"})
        with pytest.raises((TypeError, ValueError), match=r"\(0, 1\)"):
            model.run({(0, 0): 1.0, (0, 1): [1.0, 2.0]})
        with pytest.warns(DataWarning, match=r"\(1, 1\) lies outside"):
            model.run({(0, 0): 1.0, (1, 1): 60.0})


@pytest.mark.parametrize(
    ("evidence", "error", "says"),
    [
        (np.zeros((2, 2)), ValueError, r"evidence.*\(0, 2\).*not a position.*\(2, 2\)"),
        (np.zeros(6), TypeError, r"evidence.*\(rows, columns\)"),
        (np.full((2, 3), "x"), (TypeError, ValueError), r"evidence.*number"),
        (np.full((2, 3), None), None, ""),
        (np.full((2, 3, 2), 0.5), (TypeError, ValueError), "evidence"),
    ],
    ids=str,
)
def test_arrays_of_evidence_that_do_not_fit(evidence: Any, error: Any, says: str) -> None:
    if error is None:  # nothing is known
        assert fitted_grid().run(evidence).mean == fitted_grid().run().mean
        return
    with pytest.raises(error, match=says):
        fitted_grid().run(evidence)


@pytest.mark.parametrize("far", [6.0, 60.0, 1e6, -1e70])
def test_evidence_outside_the_data_is_told_and_the_rest_is_usable(far: float) -> None:
    with pytest.warns(DataWarning, match="'a' lies outside the data") as record:
        found = fitted().run({"a": far})
    told = [w for w in record if w.category is DataWarning]
    assert told[0].filename == __file__  # where the run was asked for
    assert np.isfinite([found.mean["b"], found.std["b"], found.mean["c"]]).all()
    assert found.mean["a"] == far
    low, high = table()["b"].min(), table()["b"].max()
    assert low <= found.mean["b"] <= high


def test_evidence_far_outside_says_nothing() -> None:
    with pytest.warns(DataWarning):
        found = fitted().run({"a": 1e3})
    nothing = fitted().run()
    assert abs(found.mean["b"] - nothing.mean["b"]) < 0.3


def test_a_label_that_never_was() -> None:
    with pytest.warns(DataWarning, match="'a' lies outside the data"):
        found = fitted_labels().run({"a": "middle", "b": "high"})
    expected = fitted_labels().run({"b": "high"})
    names = np.array(["high", "low"])
    # the path over a is cut: c hears of b alone
    assert found.belief("c")(names)[0] > 0.5
    assert abs(found.belief("c")(names).sum() - 1) < 1e-9
    assert found.mode["a"] == "middle"
    assert expected.mode["c"] == "high"


def test_labels_that_contradict_each_other() -> None:
    """Two copies of a label that differ: no value suits both."""
    a = np.array(["high", "low"] * 20)
    model = BeliefPropagation(nx.path_graph(list("abc")), regularization=0)
    model.fit({"a": a, "b": a, "c": a})
    for schedule in SCHEDULES:
        with pytest.warns(DataWarning, match="'b' conflicts"):
            found = model.set_params(schedule=schedule).run({"a": "high", "c": "low"})
        assert np.isfinite(found.belief("b").weights).all()
        assert_allclose(found.belief("b").weights.sum(), 1)


def test_numbers_that_contradict_each_other() -> None:
    """Two copies of a number, seen as far apart as the data reach."""
    rng = np.random.default_rng(0)
    b = rng.normal(size=300)
    data = {"b": b} | {v: b + 0.02 * rng.normal(size=300) for v in "ac"}
    model = BeliefPropagation(nx.path_graph(list("abc")), Gaussian(0.3), 1e-4).fit(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.run({"a": 1.0, "c": 1.0})
        model.run({"a": 0.5, "c": 0.6})
    with pytest.warns(DataWarning, match="'b' conflicts"):
        found = model.run({"a": -2.0, "c": 2.0})
    assert np.isfinite(found.mean["b"])


def test_the_evidence_of_many_that_conflict_is_told_where_it_was_asked() -> None:
    hub = np.arange(40) % 2
    data = {"hub": hub} | dict.fromkeys(range(4), hub)
    model = BeliefPropagation(nx.star_graph(["hub", 0, 1, 2, 3]), Delta(), 0).fit(data)
    with pytest.warns(DataWarning, match="'hub' conflicts") as record:
        found = model.run({0: 0, 1: 1, 2: 1, 3: 1})
    assert [w.filename for w in record if w.category is DataWarning] == [__file__]
    assert np.isfinite(found.belief("hub").weights).all()


# --- questions ------------------------------------------------------------------------------------


def test_questions_that_are_none() -> None:
    found = fitted().run({"a": 0.5})
    with pytest.raises(ValueError, match="no node 'z'"):
        found.belief("z")
    with pytest.raises(ValueError, match="no node 'z'"):
        found.density("z", [0.0])
    with pytest.raises(ValueError, match="'a' is observed"):
        found.density("a", [0.0])
    with pytest.raises(ValueError, match="x"):
        found.density("b", np.zeros((3, 2)))
    with pytest.raises(ValueError, match="x.*NaN"):
        found.density("b", [np.nan])
    with pytest.raises(TypeError, match=r"positions.*\.mean"):
        found.array()
    with pytest.raises(ValueError, match="what.*mean.*std.*mode"):
        fitted_grid().run().array("median")
    with pytest.raises(ValueError, match="what"):
        fitted_grid().run().plot("median")
    for level in (0.0, 1.0, 1.5, -0.1, np.nan):
        with pytest.raises(ValueError, match="level"):
            found.interval(level)


def test_a_picture_of_a_graph_with_another_name_for_what() -> None:
    """A word that means nothing is not passed over."""
    with pytest.raises(ValueError, match="what"):
        fitted().run().plot("median")


def test_a_graph_too_large_to_draw() -> None:
    rng = np.random.default_rng(0)
    graph = nx.star_graph(60)
    nx.set_edge_attributes(graph, "t", "template")
    data = {0: rng.normal(size=30), 1: rng.normal(size=30)}
    found = BeliefPropagation(graph, Laplace(1.0), 0.1).fit(data).run()
    with pytest.raises(ValueError, match=r"61 nodes.*too large.*\.mean"):
        found.plot()


def test_two_rows_are_enough() -> None:
    data = {name: column[:2] for name, column in table().items()}
    found = (
        BeliefPropagation(TRIANGLE, Gaussian(1.0), 0.1).fit(data).run({"a": float(data["a"][0])})
    )
    assert np.isfinite(list(found.mean.values())).all()


def test_columns_that_never_change() -> None:
    data = {**table(), "b": np.full(60, 3.0)}
    for schedule in SCHEDULES:
        model = BeliefPropagation(TRIANGLE, regularization=0.01, schedule=schedule).fit(data)
        found = model.run({"a": 0.5})
        assert_allclose(found.mean["b"], 3.0)
        assert np.isfinite(found.mean["c"])


def test_columns_of_any_scale() -> None:
    for scale in (1e-8, 1e8):
        data = {name: scale * column for name, column in table().items()}
        model = BeliefPropagation(TRIANGLE, regularization=0.01).fit(data)
        expected = BeliefPropagation(TRIANGLE, regularization=0.01).fit(table()).run({"a": 0.5})
        found = model.run({"a": 0.5 * scale})
        for v in "bc":
            assert_allclose(found.mean[v] / scale, expected.mean[v], rtol=1e-5)


def test_a_slow_run_warns_once_and_only_of_that() -> None:
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        fitted().run({"a": 0.5}, 1)
    assert [w.category for w in record] == [ConvergenceWarning]
