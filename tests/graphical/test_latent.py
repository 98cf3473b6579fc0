"""A hidden node: learned from the nodes around it."""

from __future__ import annotations

from functools import cache
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from meanmap import KernelGraphicalModel

SHARES = np.array([0.5, 0.3, 0.2])
# the mean of each of four views in each of three states
MEANS = np.array([[-2, 0, 2], [0, 2, -2], [1.5, -1.5, 0], [2, 2, -2]]).T
NOISE = 0.7


def star(views: str = "abcd", states: int = 3) -> nx.Graph:
    graph = nx.Graph([("h", view) for view in views])
    graph.nodes["h"]["states"] = states
    return graph


def mixture(n: int, seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    h = rng.choice(3, n, p=SHARES)
    X = MEANS[h] + NOISE * rng.normal(size=(n, 4))
    return h, dict(zip("abcd", X.T, strict=True))


@cache
def fitted() -> KernelGraphicalModel:
    return KernelGraphicalModel(star()).fit(mixture(600, 0)[1])


def exact_states(evidence: dict[str, float]) -> np.ndarray:
    logs = np.log(SHARES)
    for name, value in evidence.items():
        logs = logs - 0.5 * ((value - MEANS[:, "abcd".index(name)]) / NOISE) ** 2
    p = np.exp(logs - logs.max())
    return p / p.sum()


def test_states_are_found() -> None:
    h, _ = mixture(600, 0)
    R = fitted().states_
    assert R is not None and R.shape == (600, 3)
    assert_allclose(R.sum(axis=1), 1)
    assert (R.argmax(axis=1) == h).mean() > 0.97  # measured: 1.0; the states come by their shares
    assert_allclose(R.mean(axis=0), np.bincount(h) / 600, atol=0.02)
    assert (np.diff(R.sum(axis=0)) <= 0).all()


@pytest.mark.parametrize(
    "evidence", [{"a": -2.0}, {"a": 0.0}, {"a": 0.0, "c": -1.5}, {"a": 1.0, "c": 0.7}]
)
def test_what_follows_through_a_hidden_node(evidence: dict[str, float]) -> None:
    truth = exact_states(evidence)
    belief = fitted().marginal("h", evidence).normalized()
    assert_allclose([float(belief(state)) for state in range(3)], truth, atol=0.08)
    answer = fitted().marginal("d", evidence)
    assert_allclose(answer.mean(), truth @ MEANS[:, 3], atol=0.25)


@pytest.mark.slow
def test_a_hidden_cause_is_better_than_a_tree_without_it() -> None:
    _, new = mixture(300, 5)
    plain = KernelGraphicalModel().fit(mixture(600, 0)[1])
    assert fitted().score(new) > plain.score(new) + 0.3  # measured: 0.6


def test_the_density_sums_over_the_states() -> None:
    _, new = mixture(20, 6)
    parts = [fitted().log_density({**new, "h": np.full(20, h)}) for h in range(3)]
    assert_allclose(fitted().log_density(new), np.logaddexp.reduce(parts, axis=0))


def test_a_chain_with_one_hidden_node() -> None:
    """Two views do not determine the states, but what one view says of the other."""
    graph = nx.path_graph(["a", "h", "c"])
    graph.nodes["h"]["states"] = 3
    data = {name: values for name, values in mixture(800, 1)[1].items() if name in "ac"}
    model = KernelGraphicalModel(graph).fit(data)
    for value in (-2.0, 0.0, 2.0):
        truth = exact_states({"a": value}) @ MEANS[:, 2]
        assert_allclose(model.marginal("c", {"a": value}).mean(), truth, atol=0.35)


def test_a_directed_star_of_labels_and_numbers() -> None:
    h, data = mixture(500, 2)
    rng = np.random.default_rng(3)
    wrong = rng.random(500) < 0.1
    label = np.array(["x", "y", "z"])[np.where(wrong, rng.integers(0, 3, 500), h)]
    frame = pd.DataFrame({"a": data["a"], "c": data["c"], "label": label})
    graph = nx.DiGraph([("h", name) for name in frame])
    graph.nodes["h"]["states"] = 3
    model = KernelGraphicalModel(graph).fit(frame)
    assert model.states_ is not None
    assert (model.states_.argmax(axis=1) == h).mean() > 0.93
    assert model.most_probable("label", {"a": 0.0, "c": -1.5}) == "y"


def test_missing_views_are_left_out() -> None:
    h, data = mixture(600, 4)
    rng = np.random.default_rng(0)
    holes = {name: np.where(rng.random(600) < 0.2, np.nan, x) for name, x in data.items()}
    model = KernelGraphicalModel(star()).fit(holes)
    assert model.states_ is not None
    assert (model.states_.argmax(axis=1) == h).mean() > 0.9


def test_samples_and_imputation_know_the_hidden_node() -> None:
    drawn = fitted().sample(50, rng=0)
    assert set(drawn["h"]) <= {0, 1, 2}
    _, new = mixture(10, 7)
    new["d"][:5] = np.nan
    filled = fitted().impute(new)
    assert filled["h"].shape == (10,)
    assert np.isfinite(filled["d"].astype(float)).all()
    assert_array_equal(filled["d"][5:], new["d"][5:])


def test_the_same_data_give_the_same_states() -> None:
    again = KernelGraphicalModel(star()).fit(mixture(600, 0)[1])
    assert_array_equal(again.states_, fitted().states_)


def test_rows_that_do_not_count_teach_no_states() -> None:
    """A fourth group of weight zero, far from the others, takes no state of its own."""
    h, data = mixture(600, 0)
    far = {
        name: np.r_[x, 9.0 + np.random.default_rng(1).normal(size=200)] for name, x in data.items()
    }
    weights = np.r_[np.ones(600), np.zeros(200)]
    model = KernelGraphicalModel(star()).fit(far, weights)
    assert model.states_ is not None
    assert (model.states_[:600].argmax(axis=1) == h).mean() > 0.97
    assert_allclose(model.marginal("h").weights.sum(), 1)


def refusals() -> list[tuple[Any, dict[str, Any], str]]:
    two = star()
    two.add_edge("a", "g")
    two.nodes["g"]["states"] = 2
    leaf = nx.Graph([("h", "a"), ("a", "b")])
    leaf.nodes["h"]["states"] = 2
    _, data = mixture(50, 0)
    return [
        (two, data, "one hidden node"),
        (leaf, data, "Two are needed"),
        (star(states=1), data, "whole number"),
        (nx.Graph([("h", "a"), ("h", "b")]), data, r"no column for 'h'.*states"),
        (star(states=60), data, "60 states"),
    ]


@pytest.mark.parametrize(("graph", "data", "says"), refusals())
def test_hidden_nodes_that_cannot_be(graph: Any, data: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        KernelGraphicalModel(graph).fit(data)


def test_a_picture_of_a_hidden_cause(tmp_path: Any) -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    ax = fitted().plot({"a": -2.0})
    words = {text.get_text().split("\n")[0]: text.get_text() for text in ax.texts}
    assert set(words) == {"h", *"abcd"}
    assert words["h"].endswith("\n0") and words["a"].endswith("\n-2")
    assert "±" in words["d"]
    ax.figure.savefig(tmp_path / "tree.png")
    plt.close("all")
