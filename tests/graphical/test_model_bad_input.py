"""Invalid graphs, tables, evidence and queries: an error that names the remedy."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import NotFittedError

from meanmap import DataWarning, KernelGraphicalModel
from meanmap.graphical import chow_liu_tree
from meanmap.kernels import Delta, Gaussian
from oracles import Array

CHAIN = nx.DiGraph([("a", "b"), ("b", "c")])


def table(n: int = 60) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    a = rng.normal(size=n)
    b = a + 0.3 * rng.normal(size=n)
    return {"a": a, "b": b, "c": b + 0.3 * rng.normal(size=n)}


@cache
def fitted() -> KernelGraphicalModel:
    return KernelGraphicalModel(CHAIN, regularization=0.01).fit(table())


@cache
def fitted_labels() -> KernelGraphicalModel:
    data = {name: np.where(values > 0, "high", "low") for name, values in table().items()}
    return KernelGraphicalModel(CHAIN, regularization=0).fit(data)


# --- graphs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("graph", "error", "says"),
    [
        (nx.Graph(["ab", "bc", "ca"]), ValueError, "cycle.*'[abc]'.*'[abc]'.*'[abc]'"),
        (nx.DiGraph(["ab", "bc", "ca"]), ValueError, "cycle"),
        (nx.DiGraph(["ab", "ac", "bc"]), ValueError, "cycle"),
        (nx.DiGraph(["ab", "ba", "bc"]), ValueError, "cycle|both"),
        (nx.Graph(["ab", "bb"]), ValueError, "'b' is joined to itself"),
        (nx.DiGraph(["aa"]), ValueError, "'a' is joined to itself"),
        (nx.Graph(), ValueError, "no nodes"),
        (nx.Graph(["ab", "bx"]), ValueError, "no column for 'x'.*'a', 'b', 'c'"),
        ([("a", "b")], TypeError, "networkx.*nx.Graph"),
        ("abc", TypeError, "networkx"),
        ({"a": ["b"]}, TypeError, "networkx"),
        (np.eye(3), TypeError, "networkx"),
    ],
)
def test_graphs_that_are_none(graph: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        KernelGraphicalModel(graph).fit(table())


def test_a_multigraph_is_taken_as_its_graph() -> None:
    """Edges twice are edges once, or refused: no other answer."""
    graph = nx.MultiDiGraph([("a", "b"), ("a", "b"), ("b", "c")])
    try:
        model = KernelGraphicalModel(graph, regularization=0.01).fit(table())
    except (ValueError, TypeError) as refusal:
        assert "graph" in str(refusal)
        return
    found = model.marginal("c", {"a": 0.5})
    assert_allclose(found.mean(), fitted().marginal("c", {"a": 0.5}).mean())
    assert_allclose(
        model.marginal("b", {"a": 0.5, "c": 0.1}).mean(),
        fitted().marginal("b", {"a": 0.5, "c": 0.1}).mean(),
    )


# --- tables ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "error", "says"),
    [
        ({}, ValueError, "no columns"),
        (pd.DataFrame(), ValueError, "no columns"),
        ({"a": [], "b": [], "c": []}, ValueError, "empty|no rows|row"),
        (pd.DataFrame(columns=list("abc"), dtype=float), ValueError, "empty|no rows|row"),
        ({"a": [1.0], "b": [1.0], "c": [1.0]}, ValueError, "at least two rows.*got 1"),
        ({**table(), "c": [1.0, 2.0]}, ValueError, "different lengths"),
        ({**table(), "c": 1.0}, (TypeError, ValueError), "'?c'?"),
        ({"a": table()["a"], "b": table()["b"]}, ValueError, "no column for 'c'"),
        (np.zeros((5, 3)), TypeError, "DataFrame.*dict"),
        ([1, 2, 3], TypeError, "DataFrame"),
        (None, TypeError, "DataFrame"),
        ({**table(), "b": np.full(60, np.nan)}, ValueError, "b.*missing"),
        ({**table(), "b": np.full(60, None)}, ValueError, "b.*missing"),
        ({**table(), "b": np.r_[np.inf, np.zeros(59)]}, ValueError, "b.*infin"),
        ({**table(), "b": pd.date_range("2020", periods=60)}, TypeError, "b.*kernel"),
        (
            pd.concat([pd.DataFrame(table()), pd.DataFrame(table())], axis=1),
            ValueError,
            "twice.*a",
        ),
    ],
    ids=str,
)
def test_tables_that_are_none(data: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        KernelGraphicalModel(CHAIN).fit(data)


@pytest.mark.parametrize("complete", [0, 1])
def test_an_edge_without_pairs_is_named(complete: int) -> None:
    data = table()
    data["b"] = np.where(np.arange(60) < 30, data["b"], np.nan)
    data["c"] = np.where(np.arange(60) >= 30 - complete, data["c"], np.nan)
    with pytest.raises(ValueError, match=f"'b' – 'c'.*two rows.*got {complete} of 60"):
        KernelGraphicalModel(CHAIN).fit(data)


def test_parents_that_are_never_together_are_named() -> None:
    data = table()
    data["a"] = np.where(np.arange(60) < 30, data["a"], np.nan)
    data["c"] = np.where(np.arange(60) >= 30, data["c"], np.nan)
    with pytest.raises(ValueError, match="parents of 'b'"):
        KernelGraphicalModel(nx.DiGraph([("a", "b"), ("c", "b")])).fit(data)


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        (np.ones(59), "sample_weight"),
        (-np.ones(60), "negative"),
        (np.zeros(60), "zero"),
        (np.full(60, np.nan), "NaN"),
        ("heavy", "sample_weight"),
    ],
    ids=["short", "negative", "zero", "NaN", "text"],
)
def test_weights_that_are_none(weights: Any, says: str) -> None:
    with pytest.raises((ValueError, TypeError), match=says):
        KernelGraphicalModel(CHAIN).fit(table(), weights)


@pytest.mark.parametrize("graph", [CHAIN, None], ids=["graph", "learned"])
@pytest.mark.parametrize(
    ("kernel", "error", "says"),
    [
        ("rbf", TypeError, "Kernel"),
        (3.0, TypeError, "Kernel"),
        ({"a": "rbf"}, TypeError, "Kernel.*'a'"),
        ({"z": Gaussian()}, ValueError, "no node 'z'"),
        (Gaussian, TypeError, "Kernel"),
    ],
    ids=["text", "number", "in a dict", "unknown node", "class"],
)
def test_kernels_that_are_none(kernel: Any, error: Any, says: str, graph: Any) -> None:
    with pytest.raises(error, match=says):
        KernelGraphicalModel(graph, kernel).fit(table())


@pytest.mark.parametrize("kernel", ["rbf", {"a": 3.0}, {"z": Gaussian()}], ids=str)
def test_kernels_of_a_tree_that_are_none(kernel: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="kernel"):
        chow_liu_tree(table(), kernel)


def test_a_kernel_on_vectors_for_labels() -> None:
    data = {**table(), "b": np.where(table()["b"] > 0, "x", "y")}
    with pytest.raises(TypeError, match="b: expected numbers.*Delta"):
        KernelGraphicalModel(CHAIN, {"b": Gaussian()}).fit(data)


@pytest.mark.parametrize("regularization", [-1.0, "much", np.nan, None], ids=str)
def test_regularization_that_is_none(regularization: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="regularization"):
        KernelGraphicalModel(CHAIN, regularization=regularization).fit(table())


# --- questions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [
        lambda m: m.marginal("a"),
        lambda m: m.joint("a", "b"),
        lambda m: m.expect(np.sin, "a"),
        lambda m: m.most_probable("a"),
        lambda m: m.sample(3),
        lambda m: m.impute(table()),
        lambda m: m.log_density(table()),
        lambda m: m.score(table()),
    ],
)
def test_before_fit(ask: Any) -> None:
    with pytest.raises(NotFittedError):
        ask(KernelGraphicalModel(CHAIN))


@pytest.mark.parametrize(
    ("ask", "error", "says"),
    [
        (lambda m: m.marginal("z"), ValueError, "no node 'z'.*'a', 'b', 'c'"),
        (lambda m: m.marginal(["a"]), (ValueError, TypeError), "node"),
        (lambda m: m.marginal(None), ValueError, "no node None"),
        (lambda m: m.marginal("a", {"z": 1.0}), ValueError, "no node 'z'"),
        (lambda m: m.marginal("a", [("b", 1.0)]), TypeError, "evidence.*dict"),
        (lambda m: m.marginal("a", 1.0), TypeError, "evidence.*dict"),
        (lambda m: m.joint("a", "z"), ValueError, "no node 'z'"),
        (lambda m: m.joint("a", "a"), ValueError, "two nodes.*'a' and 'a'"),
        (lambda m: m.joint("a", "b", {"a": 0.0}), ValueError, "without evidence"),
        (lambda m: m.joint("a", "b", {"c": [0.0, 1.0]}), ValueError, "one point"),
        (lambda m: m.joint("a", "b", {"z": 0.0}), ValueError, "no node 'z'"),
        (lambda m: m.joint("a", "b", [1.0]), TypeError, "evidence.*dict"),
        (lambda m: m.expect(np.sin, "z"), ValueError, "no node 'z'"),
        (lambda m: m.expect("sin", "a"), TypeError, "f"),
        (lambda m: m.most_probable("z"), ValueError, "no node 'z'"),
        (lambda m: m.sample(0), ValueError, "n"),
        (lambda m: m.sample(2.5), (TypeError, ValueError), "n"),
        (lambda m: m.sample(3, rng="seed"), (TypeError, ValueError), "rng|seed"),
        (lambda m: m.sample(3, evidence={"a": [0.0, 1.0]}), ValueError, "one point"),
        (lambda m: m.sample(3, evidence={"z": 0.0}), ValueError, "no node 'z'"),
        (lambda m: m.impute({"a": [0.0], "b": [0.0]}), ValueError, "no column for 'c'"),
        (lambda m: m.impute(np.zeros((3, 3))), TypeError, "DataFrame"),
        (lambda m: m.log_density({"a": [0.0], "b": [0.0]}), ValueError, "no column for 'c'"),
        (
            lambda m: m.log_density({"a": [np.nan], "b": [0.0], "c": [0.0]}),
            ValueError,
            "'a'.*NaN",
        ),
        (
            lambda m: m.log_density({"a": ["x"], "b": [0.0], "c": [0.0]}),
            (TypeError, ValueError),
            "'a'",
        ),
    ],
)
def test_questions_that_are_none(ask: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        ask(fitted())


@pytest.mark.parametrize(
    "value",
    [np.nan, np.inf, [0.0, np.nan], [[1.0, 2.0]], [], "high", None, [[[1.0]]], 1j, {"x": 1.0}],
    ids=str,
)
def test_evidence_that_is_none(value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"evidence\['a'\]"):
        fitted().marginal("c", {"a": value})


def test_evidence_of_different_lengths() -> None:
    with pytest.raises(ValueError, match="same number of points.*'a': 2.*'c': 3"):
        fitted().marginal("b", {"a": [0.0, 1.0], "c": [0.0, 1.0, 2.0]})


@pytest.mark.parametrize("value", [None, np.nan, [["high"]], []], ids=str)
def test_evidence_that_is_no_label(value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"evidence\['a'\]"):
        fitted_labels().marginal("c", {"a": value})


# --- evidence outside the data --------------------------------------------------------------------


def test_evidence_outside_the_data_is_said() -> None:
    with pytest.warns(DataWarning, match="'a' lies outside the data"):
        fitted().marginal("c", {"a": 30.0})
    with pytest.warns(DataWarning, match="'a' lies outside the data"):
        fitted().marginal("c", {"a": [0.0, 30.0]})
    with pytest.warns(DataWarning, match="'a' lies outside the data"):
        fitted_labels().marginal("c", {"a": "middle"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted().marginal("c", {"a": 1.0})
        fitted_labels().marginal("c", {"a": "high"})


def test_the_warning_points_at_the_question() -> None:
    for ask in (
        lambda: fitted().marginal("c", {"a": 30.0}),
        lambda: fitted().sample(2, rng=0, evidence={"c": 30.0}),
    ):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            ask()
        assert said and said[0].filename == __file__


@pytest.mark.filterwarnings("ignore::meanmap.DataWarning")
@pytest.mark.parametrize("far", [30.0, 100.0, 1e6])
def test_evidence_outside_the_data_leaves_the_rest(far: float) -> None:
    """One odd cell: its message is rounding error, and what the others say is answered still."""
    found = fitted().marginal("b", {"a": far, "c": 0.5})
    expected = fitted().marginal("b", {"c": 0.5}).mean()
    assert_allclose(found.mean(), expected, atol=0.3)


@pytest.mark.filterwarnings("ignore::meanmap.DataWarning")
@pytest.mark.parametrize("others", [0.5, np.nan], ids=["known", "missing"])
@pytest.mark.parametrize("far", [30.0, 100.0])
def test_one_odd_cell_does_not_spoil_a_table(far: float, others: float) -> None:
    rows = {"a": [0.1, far, 0.2], "b": [0.1, np.nan, np.nan], "c": [0.1, others, 0.3]}
    filled = fitted().impute(rows)
    assert np.isfinite(filled["b"]).all() and np.isfinite(filled["c"]).all()
    data = table()
    assert data["b"].min() - 1 < filled["b"].min() and filled["b"].max() < data["b"].max() + 1


@pytest.mark.filterwarnings("ignore::meanmap.DataWarning")
def test_a_new_label_leaves_the_rest() -> None:
    names = np.array(["high", "low"])
    found = fitted_labels().marginal("b", {"a": "middle", "c": "high"})
    assert_allclose(found(names), fitted_labels().marginal("b", {"c": "high"})(names), atol=1e-9)


def test_evidence_in_conflict_is_said() -> None:
    data = {"a": [0, 1] * 10, "b": [0, 1] * 10, "c": [0, 1] * 10}
    model = KernelGraphicalModel(CHAIN, Delta(), 0).fit(data)
    with pytest.warns(DataWarning, match="'b'"):
        found = model.marginal("b", {"a": 0, "c": 1})
    assert_allclose(found(np.array([0, 1])), [0.5, 0.5])


# --- small and odd tables -------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 4, 5])
@pytest.mark.parametrize("regularization", ["auto", 0, 0.1])
@pytest.mark.parametrize("graph", [CHAIN, nx.DiGraph([("a", "b"), ("c", "b")])], ids=str)
def test_a_few_rows(n: int, regularization: Any, graph: Any) -> None:
    data = table(n)
    model = KernelGraphicalModel(graph, regularization=regularization).fit(data)
    for evidence in ({}, {"a": data["a"][0]}, {"a": data["a"][0], "c": data["c"][0]}):
        found = model.marginal("b", evidence).mean()
        assert data["b"].min() - 1 <= found[0] <= data["b"].max() + 1
    assert np.isfinite(model.score(data))
    assert model.sample(3, rng=0)["b"].shape == (3,)


@pytest.mark.parametrize("regularization", ["auto", 0, 0.1])
@pytest.mark.parametrize("constant", ["a", "b", "c"])
def test_a_constant_column(constant: str, regularization: Any) -> None:
    data = {**table(), constant: np.full(60, 3.0)}
    model = KernelGraphicalModel(CHAIN, regularization=regularization).fit(data)
    others = [name for name in "abc" if name != constant]
    assert_allclose(model.marginal(constant).mean(), [3.0])
    assert_allclose(model.marginal(constant, {others[0]: 0.1}).mean(), [3.0])
    found = model.marginal(others[0], {constant: 3.0}).mean()
    assert_allclose(found, [data[others[0]].mean()], atol=0.05)
    assert np.isfinite(model.log_density(data)).all()
    assert (model.sample(4, rng=0)[constant] == 3.0).all()


def test_labels_of_one_kind() -> None:
    data = {**table(), "b": np.full(60, "same")}
    model = KernelGraphicalModel(CHAIN, regularization=0.01).fit(data)
    assert model.most_probable("b", {"a": 0.3}) == "same"
    assert_allclose(model.marginal("c", {"b": "same"}).mean(), [data["c"].mean()], atol=0.05)


@pytest.mark.parametrize("regularization", ["auto", 0, 0.1])
def test_rows_many_times(regularization: Any) -> None:
    once = table(5)
    data = {name: np.repeat(values, 12) for name, values in once.items()}
    model = KernelGraphicalModel(CHAIN, regularization=regularization).fit(data)
    for i in range(5):
        found = model.marginal("b", {"a": once["a"][i], "c": once["c"][i]})
        assert np.isfinite(found.mean()).all()
    assert np.isfinite(model.score(once))


def test_units_do_not_matter() -> None:
    data = table()
    model = KernelGraphicalModel(CHAIN).fit(data)
    for unit in (1e-6, 1e6):
        other = KernelGraphicalModel(CHAIN).fit({k: unit * v for k, v in data.items()})
        found = other.marginal("b", {"a": 0.5 * unit, "c": 0.2 * unit}).mean() / unit
        assert_allclose(found, model.marginal("b", {"a": 0.5, "c": 0.2}).mean(), rtol=1e-4)


def test_no_rows_to_judge() -> None:
    empty: dict[str, Any] = {"a": [], "b": [], "c": []}
    with pytest.raises(ValueError, match="empty|no rows|0 sample"):
        fitted().score(empty)
