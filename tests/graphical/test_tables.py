"""Tables: what columns may hold, what may be missing, and how much rows count."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.transform import Rotation
from sklearn.base import clone

from meanmap import ConditionalEmbedding, KernelGraphicalModel
from meanmap.kernels import Chordal, Delta, Gaussian, Trace
from oracles import Array

CHAIN = [("a", "b"), ("b", "c")]


def numbers(n: int = 80, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n)
    b = a + 0.4 * rng.normal(size=n)
    return {"a": a, "b": b, "c": b + 0.4 * rng.normal(size=n)}


def labels(n: int = 200, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    a = rng.integers(2, size=n)
    b = a ^ (rng.random(n) < 0.2)
    c = b ^ (rng.random(n) < 0.2)
    return {name: np.array(["no", "yes"])[v] for name, v in (("a", a), ("b", b), ("c", c))}


def chain(kernel: Any = None, regularization: Any = 0.01) -> KernelGraphicalModel:
    return KernelGraphicalModel(nx.DiGraph(CHAIN), kernel, regularization)


# --- kinds of tables ------------------------------------------------------------------------------


def structured(data: dict[str, Array]) -> Array:
    n = len(next(iter(data.values())))
    out = np.empty(n, dtype=[(name, values.dtype) for name, values in data.items()])
    for name, values in data.items():
        out[name] = values
    return out


@pytest.mark.parametrize(
    "kind",
    [
        pd.DataFrame,
        structured,
        lambda data: {name: values.tolist() for name, values in data.items()},
        lambda data: {name: pd.Series(values, index=range(7, 87)) for name, values in data.items()},
        lambda data: {name: values[:, None] for name, values in data.items()},
        lambda data: pd.DataFrame({"unused": range(80), **data}),
        lambda data: pd.DataFrame(data).convert_dtypes(),
    ],
    ids=["frame", "fields", "lists", "series", "columns", "more columns", "nullable"],
)
def test_a_table_of_any_kind(kind: Any) -> None:
    data = numbers()
    expected, found = chain().fit(data), chain().fit(kind(data))
    for evidence in ({}, {"a": 0.5}, {"a": 0.5, "c": -0.2}):
        assert_allclose(
            found.marginal("b", evidence).mean(), expected.marginal("b", evidence).mean()
        )
    assert_allclose(found.log_density(kind(data)), expected.log_density(data))
    filled = found.impute(kind(data))
    for name in data:
        assert_allclose(filled[name].reshape(-1), data[name])


@pytest.mark.parametrize(
    "kind",
    [
        pd.DataFrame,
        structured,
        lambda data: pd.DataFrame(data).astype("category"),
        lambda data: pd.DataFrame(data).astype("string"),
        lambda data: {name: values.astype(object) for name, values in data.items()},
        lambda data: {name: values.tolist() for name, values in data.items()},
    ],
    ids=["frame", "fields", "category", "string", "objects", "lists"],
)
def test_labels_of_any_kind(kind: Any) -> None:
    data = labels()
    expected, found = chain().fit(data), chain().fit(kind(data))
    names = np.array(["no", "yes"])
    for evidence in ({}, {"a": "yes"}, {"a": "yes", "c": "no"}):
        assert_allclose(
            found.marginal("b", evidence)(names), expected.marginal("b", evidence)(names)
        )
    assert found.most_probable("b", {"a": "yes"}) == "yes"
    assert_allclose(found.log_density(kind(data)), expected.log_density(data))
    assert set(found.sample(20, rng=0)["a"]) <= {"no", "yes"}


def test_columns_of_every_kind_together() -> None:
    """A number, a label, a vector and a rotation in one chain."""
    rng = np.random.default_rng(0)
    n = 300
    angle = rng.uniform(-1, 1, size=n)
    turn = Rotation.from_rotvec(np.outer(angle, [0, 0, 1.0])).as_matrix()
    place = np.c_[np.cos(angle), np.sin(angle)] + 0.05 * rng.normal(size=(n, 2))
    side = np.where(angle > 0, "left", "right")
    data = {"angle": angle, "turn": turn, "place": place, "side": side}
    graph = nx.Graph([("angle", "turn"), ("turn", "place"), ("angle", "side")])
    for kernel in (Trace(), Chordal()):
        model = KernelGraphicalModel(graph, kernel={"turn": kernel}).fit(data)
        found = model.marginal("place", {"angle": 0.5}).mean()
        assert_allclose(found, [np.cos(0.5), np.sin(0.5)], atol=0.1)
        assert model.most_probable("side", {"place": [np.cos(0.6), np.sin(0.6)]}) == "left"
        assert model.most_probable("side", {"turn": turn[angle.argmin()]}) == "right"
        batch = model.marginal("angle", {"turn": turn[:3]})
        assert_allclose(batch.mean()[:, 0], angle[:3], atol=0.2)
        drawn = model.sample(5, rng=0, evidence={"angle": 0.5})
        assert drawn["place"].shape == (5, 2) and drawn["turn"].shape == (5, 3, 3)
        assert (drawn["angle"] == 0.5).all()


def test_vectors_and_rotations_are_filled_in() -> None:
    rng = np.random.default_rng(0)
    angle = rng.uniform(-1, 1, size=200)
    turn = Rotation.from_rotvec(np.outer(angle, [0, 0, 1.0])).as_matrix()
    place = np.c_[np.cos(angle), np.sin(angle)]
    model = KernelGraphicalModel(
        nx.Graph([("angle", "turn"), ("angle", "place")]), kernel={"turn": Chordal()}
    ).fit({"angle": angle, "turn": turn, "place": place})
    holes = place.copy()
    holes[[3, 8]] = np.nan
    filled = model.impute({"angle": angle, "turn": turn, "place": holes})
    assert_allclose(filled["place"][[3, 8]], place[[3, 8]], atol=0.1)
    rest = np.delete(np.arange(200), [3, 8])
    assert_array_equal(filled["place"][rest], place[rest])
    assert_array_equal(filled["turn"], turn)


# --- missing values -------------------------------------------------------------------------------


def with_holes(data: dict[str, Array], seed: int = 1, share: float = 0.2) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    holes = {}
    for name, values in data.items():
        gone = rng.random(len(values)) < share
        holes[name] = values.copy() if values.dtype.kind == "f" else values.astype(object)
        holes[name][gone] = np.nan if values.dtype.kind == "f" else None
    return holes


@pytest.mark.parametrize("make", [numbers, labels])
def test_an_edge_is_learned_from_the_rows_with_both(make: Any) -> None:
    """Each edge is a conditional fitted to its complete pairs, whatever else is missing."""
    holes = with_holes(make())
    kernel = Gaussian(1.0) if make is numbers else Delta()
    model = chain(kernel).fit(holes)
    for (t, s), edge in model.edges_.items():
        both = np.array(pd.notna(holes[s]) & pd.notna(holes[t]))
        x, y = holes[s][both], holes[t][both]
        if make is numbers:
            x, y = x[:, None], y[:, None]
        else:
            x, y = x.astype(str), y.astype(str)
        direct = ConditionalEmbedding(kernel, kernel, 0.01, centered=False).fit(x, y)
        assert both.sum() < len(both)
        assert len(edge.operator_.atoms) == both.sum()
        assert_allclose(edge.operator_.weights(x[:4]), direct.weights(x[:4]), atol=1e-8)
        assert_allclose(model.marginal(t, {s: x[0]}).weights, direct.weights(x[0]), atol=1e-8)
    for name, values in holes.items():  # and a marginal from all there are
        assert len(model.marginal(name).atoms) == pd.notna(values).sum()


@pytest.mark.parametrize("mark", [None, np.nan, pd.NA], ids=["None", "NaN", "NA"])
def test_marks_of_what_is_missing(mark: Any) -> None:
    for make in (numbers, labels):
        data = make()
        holes = {name: values.astype(object) for name, values in data.items()}
        holes["b"][5] = mark
        rest = {name: np.delete(values, 5) for name, values in data.items()}
        kernel = Gaussian(1.0) if make is numbers else Delta()
        found, expected = chain(kernel).fit(pd.DataFrame(holes)), chain(kernel).fit(rest)
        point = 0.3 if make is numbers else "yes"
        assert_allclose(
            found.marginal("b", {"a": point}).weights, expected.marginal("b", {"a": point}).weights,
            atol=1e-9,
        )  # fmt: skip


def test_a_nullable_column() -> None:
    data = numbers()
    frame = pd.DataFrame(data)
    frame["a"] = pd.array(np.round(3 * data["a"]), dtype="Int64")
    frame.loc[3, "a"] = pd.NA
    model = chain().fit(frame)
    filled = model.impute(frame)
    assert len(model.marginal("a").atoms) == 79
    assert_allclose(
        filled["a"][3], model.marginal("a", {"b": data["b"][3], "c": data["c"][3]}).mean()[0]
    )


def test_only_what_is_missing_is_filled_in() -> None:
    data = numbers()
    holes = with_holes(data, share=0.3)
    holes["a"][0] = holes["b"][0] = holes["c"][0] = np.nan
    before = {name: values.copy() for name, values in holes.items()}
    model = chain(Gaussian(1.0)).fit(data)
    filled = model.impute(holes)
    assert list(filled) == ["a", "b", "c"]
    for name, values in holes.items():
        assert_array_equal(values, before[name])
        here = ~np.isnan(values)
        assert_array_equal(filled[name][here], values[here])
        assert np.isfinite(filled[name]).all() and filled[name].shape == values.shape
        for row in np.flatnonzero(~here):
            evidence = {k: v[row] for k, v in holes.items() if not np.isnan(v[row])}
            expected = model.marginal(name, evidence).mean()[0]
            assert_allclose(filled[name][row], expected, atol=1e-9)
    assert_allclose([filled[name][0] for name in "abc"], [data[name].mean() for name in "abc"])


@pytest.mark.slow
def test_numbers_filled_in_are_near_conditional_means() -> None:
    """b between a and c: E[b | a, c] by the joint covariance; the error a third of no guess's."""
    data = numbers(600)
    covariance = np.cov(np.stack([data[name] for name in "acb"]))
    weights = np.linalg.solve(covariance[:2, :2], covariance[:2, 2])
    model = chain().fit(data)
    fresh = numbers(100, seed=9)
    filled = model.impute({**fresh, "b": np.full(100, np.nan)})["b"]
    exact = weights @ np.stack([fresh["a"], fresh["c"]])
    near = (abs(fresh["a"]) < 1.8) & (abs(fresh["c"]) < 1.8)
    assert np.sqrt(((filled - exact)[near] ** 2).mean()) < 0.15
    assert np.sqrt(((filled - fresh["b"])[near] ** 2).mean()) < 0.45


def test_labels_filled_in_are_the_most_probable() -> None:
    data = labels(400)
    holes = with_holes(data, seed=2)
    model = chain(regularization=0).fit(data)
    filled = model.impute(holes)
    for name, values in holes.items():
        here = np.array([value is not None for value in values])
        assert_array_equal(filled[name][here], data[name][here])
        for row in np.flatnonzero(~here)[:15]:
            evidence = {k: v[row] for k, v in holes.items() if v[row] is not None}
            assert filled[name][row] == model.most_probable(name, evidence)


def test_labels_that_are_numbers_are_filled_in() -> None:
    codes = {name: (values == "yes").astype(int) for name, values in labels().items()}
    model = chain(Delta(), 0).fit(codes)
    holes = {name: values.astype(object) for name, values in codes.items()}
    holes["b"][:4] = None
    filled = model.impute(holes)["b"]
    assert_array_equal(filled[4:], codes["b"][4:])
    assert set(filled) <= {0, 1}
    floats = {name: values.astype(float) for name, values in codes.items()}
    floats["b"][:4] = np.nan
    assert_array_equal(chain(Delta(), 0).fit(floats).impute(floats)["b"][4:], codes["b"][4:])


@pytest.mark.filterwarnings("ignore::meanmap.DataWarning")
def test_a_new_label_is_not_cut_short() -> None:
    model = chain(regularization=0).fit(labels())
    new = {"a": ["undecided", "yes"], "b": ["yes", None], "c": ["no", "no"]}
    filled = model.impute(new)
    assert list(filled["a"]) == ["undecided", "yes"]


# --- weights --------------------------------------------------------------------------------------


def same_answers(one: KernelGraphicalModel, two: KernelGraphicalModel, points: Any) -> None:
    a, c = points
    for query, evidence in (("b", {}), ("c", {"a": a}), ("a", {"c": c}), ("b", {"a": a, "c": c})):
        grid = one.marginal(query).atoms[:6]
        found, expected = two.marginal(query, evidence), one.marginal(query, evidence)
        assert_allclose(found(grid), expected(grid), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("make", [numbers, labels])
def test_a_row_of_weight_two_is_the_row_twice(make: Any) -> None:
    data, points = make(), ((0.3, -0.2) if make is numbers else ("yes", "no"))
    kernel = Gaussian(1.0) if make is numbers else Delta()
    n = len(data["a"])
    weights = np.ones(n)
    weights[:20] = 2.0
    twice = {name: np.r_[values, values[:20]] for name, values in data.items()}
    same_answers(chain(kernel).fit(twice), chain(kernel).fit(data, weights), points)
    same_answers(chain(kernel).fit(data), chain(kernel).fit(data, np.full(n, 3.7)), points)


@pytest.mark.parametrize("make", [numbers, labels])
def test_a_row_of_weight_zero_is_absent(make: Any) -> None:
    data, points = make(), ((0.3, -0.2) if make is numbers else ("yes", "no"))
    kernel = Gaussian(1.0) if make is numbers else Delta()
    weights = np.ones(len(data["a"]))
    weights[-20:] = 0.0
    fewer = {name: values[:-20] for name, values in data.items()}
    same_answers(chain(kernel).fit(fewer), chain(kernel).fit(data, weights), points)


def test_the_default_kernel_sees_weights() -> None:
    """Rows that do not count do not widen the median distance either."""
    data = numbers()
    far = {name: np.r_[values, np.linspace(50, 900, 60)] for name, values in data.items()}
    weights = np.r_[np.ones(80), np.zeros(60)]
    same_answers(chain().fit(data), chain().fit(far, weights), (0.3, -0.2))


def test_weights_of_rows_with_holes() -> None:
    holes = with_holes(numbers())
    weights = np.random.default_rng(0).integers(0, 3, size=80)
    rows = np.repeat(np.arange(80), weights)
    repeated = {name: values[rows] for name, values in holes.items()}
    kernel = Gaussian(1.0)
    same_answers(
        chain(kernel).fit(repeated), chain(kernel).fit(holes, weights.astype(float)), (0.3, -0.2)
    )


def test_weights_of_a_polytree() -> None:
    data = labels()
    graph = nx.DiGraph([("a", "b"), ("c", "b")])
    weights = np.random.default_rng(0).integers(1, 4, size=200)
    rows = np.repeat(np.arange(200), weights)
    repeated = {name: values[rows] for name, values in data.items()}
    model = KernelGraphicalModel(graph, Delta(), 0)
    twice, weighted = clone(model).fit(repeated), model.fit(data, weights.astype(float))
    same_answers(twice, weighted, ("yes", "no"))
