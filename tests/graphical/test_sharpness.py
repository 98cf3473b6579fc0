"""Default models answer by residuals: conditionals, densities of evidence, grids of numbers."""

from __future__ import annotations

from functools import cache
from typing import Any

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm

from meanmap import BeliefPropagation, ConditionalEmbedding, DataWarning, KernelGraphicalModel
from meanmap.graphical.answers import EdgeLikelihood, has_densities
from meanmap.graphical.scales import edge_kernel, narrowest_kernel
from meanmap.graphical.supports import CellSupport, GridSupport
from meanmap.kernels import Delta, Gaussian

FAMILY = nx.DiGraph([("x", "z"), ("y", "z")])
NOISE = 0.3


@cache
def family(n: int = 800) -> tuple[KernelGraphicalModel, dict[str, np.ndarray]]:
    """Two parents and their sum with noise, and rows that were held out."""
    rng = np.random.default_rng(0)
    x, y, e = rng.normal(size=(3, n + 100))
    rows = {"x": x, "y": y, "z": x + y + NOISE * e}
    model = KernelGraphicalModel(FAMILY).fit({name: c[:n] for name, c in rows.items()})
    return model, {name: c[n:] for name, c in rows.items()}


# --- parents --------------------------------------------------------------------------------------


def test_a_child_given_both_parents_is_as_wide_as_the_truth() -> None:
    model, tests = family()
    inside = np.hypot(tests["x"], tests["y"]) < 2.5
    given = {name: tests[name][inside] for name in "xy"}
    found = model.marginal("z", given)
    assert_allclose(found.std()[:, 0].mean() / NOISE, 1, atol=0.1)
    errors = found.mean()[:, 0] - given["x"] - given["y"]
    assert np.sqrt((errors**2).mean()) < 0.3 * NOISE
    low, high = found.interval(0.9)
    law = norm(given["x"] + given["y"], NOISE)
    assert 0.85 < (law.cdf(high[:, 0]) - law.cdf(low[:, 0])).mean() < 0.95


def test_a_parent_is_explained_away() -> None:
    """p(x | y, z) is normal with mean (z - y)/(1 + s²) and variance s²/(1 + s²)."""
    model, tests = family()
    found = model.marginal("x", {"y": tests["y"], "z": tests["z"]})
    share = 1 / (1 + NOISE**2)
    mean, deviation = share * (tests["z"] - tests["y"]), NOISE * share**0.5
    assert_allclose(found.std()[:, 0].mean() / deviation, 1, atol=0.2)
    usual = abs(mean) < 2
    errors = (found.mean()[:, 0] - mean)[usual] / deviation
    assert np.sqrt((errors**2).mean()) < 0.4


def test_one_set_of_parents_for_many_children_and_the_other_way_round() -> None:
    model, tests = family()
    z = tests["z"][:4]
    many = model.marginal("x", {"y": 0.3, "z": z})
    each = [model.marginal("x", {"y": 0.3, "z": value}) for value in z]
    assert_allclose(many.mean()[:, 0], [one.mean()[0] for one in each], rtol=1e-8)
    many = model.marginal("z", {"x": z, "y": 0.3})
    each = [model.marginal("z", {"x": value, "y": 0.3}) for value in z]
    assert_allclose(many.mean()[:, 0], [one.mean()[0] for one in each], rtol=1e-6)
    assert_allclose(many.std()[:, 0], [one.std()[0] for one in each], rtol=1e-6)


def test_parents_that_are_unusual_together_are_said() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=500)
    y = x + 0.1 * rng.normal(size=500)  # never far from each other
    model = KernelGraphicalModel(FAMILY).fit({"x": x, "y": y, "z": x + y})
    with pytest.warns(DataWarning, match="'x' and 'y' lies outside the data"):
        model.marginal("z", {"x": 1.5, "y": -1.5})


# --- densities ------------------------------------------------------------------------------------


def test_rows_of_a_sharp_chain_have_nearly_their_true_density() -> None:
    rng = np.random.default_rng(0)

    def rows(n: int) -> dict[int, np.ndarray]:
        found = [rng.normal(size=n)]
        for _ in range(3):
            found.append(1.5 * np.sin(1.5 * found[-1]) + 0.3 * rng.normal(size=n))
        return dict(enumerate(found))

    model = KernelGraphicalModel(nx.path_graph(4, nx.DiGraph)).fit(rows(800))
    tests = rows(300)
    truth = norm.logpdf(tests[0])
    for t in range(3):
        truth = truth + norm.logpdf(tests[t + 1], 1.5 * np.sin(1.5 * tests[t]), 0.3)
    # 0.1 at the median distance, 0.04 by density estimates of pairs; measured: 0.013
    assert (truth - model.log_density(tests)).mean() / 4 < 0.03


@pytest.mark.parametrize("law", ["even", "uneven"])
def test_densities_of_evidence_are_those_of_the_answers(law: str) -> None:
    """The slow oracle: each row's answer, one after the other."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(300, 1))
    spread = 0.2 if law == "even" else 0.05 + 0.4 * abs(x)
    y = np.sin(2 * x) + spread * rng.normal(size=x.shape)
    operator = ConditionalEmbedding().fit(x, y).operator_
    assert has_densities(operator)
    at, points = np.array([[-0.5], [0.2], [1.5]]), x[:40]
    found = EdgeLikelihood(operator, points)(at)
    answers = operator.given(points)
    expected = np.stack([answers[i].density(at) for i in range(40)], axis=1)
    assert found.shape == (3, 40)
    # bandwidths are those of a few rows, and residuals on a grid
    assert_allclose(found, expected, rtol=0.25, atol=0.05 * expected.max())


def test_vectors_and_labels_speak_through_their_kernels() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 1))
    assert not has_densities(ConditionalEmbedding().fit(x, rng.normal(size=(100, 2))).operator_)
    labels = np.where(x[:, 0] > 0, "plus", "minus")
    assert not has_densities(ConditionalEmbedding(kernel_y=Delta()).fit(x, labels).operator_)
    assert not has_densities(ConditionalEmbedding().fit(x, np.round(x)).operator_)


@pytest.mark.parametrize("slope", [0.8, 0.95])
def test_a_node_between_two_that_are_known(slope: float) -> None:
    rng = np.random.default_rng(1)
    noise = (1 - slope**2) ** 0.5
    a = rng.normal(size=1000)
    b = slope * a + noise * rng.normal(size=1000)
    c = slope * b + noise * rng.normal(size=1000)
    model = KernelGraphicalModel(nx.path_graph(["a", "b", "c"])).fit(
        {"a": a[:800], "b": b[:800], "c": c[:800]}
    )
    a, c = a[800:], c[800:]
    usual = (abs(a) < 2) & (abs(c) < 2)
    found = model.marginal("b", {"a": a[usual], "c": c[usual]})
    deviation = noise / (1 + slope**2) ** 0.5
    mean = slope / (1 + slope**2) * (a + c)[usual]
    assert_allclose(found.std()[:, 0].mean() / deviation, 1, atol=0.12)
    assert np.sqrt((((found.mean()[:, 0] - mean) / deviation) ** 2).mean()) < 0.3


def test_expectations_of_answers_are_those_of_their_points() -> None:
    """Where the mean tells nothing, the size still does."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=600)
    data = {"x": x, "square": x**2 + 0.1 * rng.normal(size=600)}
    model = KernelGraphicalModel(nx.path_graph(["x", "square"])).fit(data)
    found = model.marginal("x", {"square": [1.44, 0.25]})
    assert_allclose(found.expect(lambda x: abs(x[:, 0])), [1.2, 0.5], atol=0.15)
    assert_allclose(
        model.expect(lambda x: abs(x[:, 0]), "x", {"square": 1.44}),
        found[0].expect(lambda x: abs(x[:, 0])),
    )


def test_named_kernels_are_the_papers() -> None:
    """Weights `(K + nλI)⁻¹ k_x` of the edge itself, and nothing learned."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=60)
    data = {"a": a, "b": a + 0.5 * rng.normal(size=60)}
    model = KernelGraphicalModel(nx.path_graph(["a", "b"]), Gaussian(0.7), 0.01).fit(data)
    K = np.exp(-0.5 * ((a[:, None] - a) / 0.7) ** 2)
    k = np.exp(-0.5 * ((a - 0.4) / 0.7) ** 2)
    expected = np.linalg.solve(K + 60 * 0.01 * np.eye(60), k)
    assert_allclose(model.marginal("b", {"a": 0.4}).weights, expected, atol=1e-6)
    assert model.network_.answer("b", "a") is None


# --- scales ---------------------------------------------------------------------------------------


def test_scales_follow_the_edge() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 1))
    w = np.full(600, 1 / 600)
    slow, fast = (np.hstack([np.cos(f * x), np.sin(f * x)]) for f in (0.5, 8.0))
    found = [edge_kernel(Gaussian("loo"), x, y - w @ y, w) for y in (slow, fast)]
    assert found[1].bandwidth < 0.4 * found[0].bandwidth
    assert narrowest_kernel(found) == found[1]
    assert edge_kernel(Gaussian("loo"), x[:10], slow[:10], w[:10] * 60) is None


def test_of_several_columns_the_least_of_each() -> None:
    one, other = Gaussian((1.0, 5.0)), Gaussian((2.0, 3.0))
    assert narrowest_kernel([one, other]) == Gaussian((1.0, 3.0))


# --- grids ----------------------------------------------------------------------------------------


def test_a_grid_shares_values_out_by_straight_lines() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=200), np.full(50, 2.0)])[:, None]
    w = rng.dirichlet(np.ones(250))
    support = GridSupport.of(x, w, 40)
    grid = support.points(x)[:, 0]
    assert (np.diff(grid) > 0).all() and 2.0 in grid and len(grid) <= 40
    assert_allclose([grid[0], grid[-1]], [x.min(), x.max()])
    assert_allclose(support.weights(w) @ grid, w @ x[:, 0], atol=1e-12)  # lines keep the mean
    at = rng.integers(250, size=70)
    parts = rng.normal(size=(70, 3))
    expected = np.zeros((len(grid), 3))
    for i, row in zip(at, parts, strict=True):  # the oracle: hats at the values of the grid
        hats = np.array([np.interp(x[i, 0], grid, unit) for unit in np.eye(len(grid))])
        expected += hats[:, None] * row
    assert_allclose(support.gather(parts, at), expected, atol=1e-12)


def test_cells_stand_for_themselves() -> None:
    support = CellSupport(np.array([1, 4, 6]))
    x, w = np.arange(8.0)[:, None], np.arange(8.0)
    assert_allclose(support.points(x)[:, 0], [1, 4, 6])
    assert_allclose(support.weights(w), np.array([1, 4, 6]) / 11)
    at = np.array([4, 6, 4, 1, 5])
    assert support.rows_of(at).tolist() == [0, 1, 2, 3]
    found = support.gather(np.eye(4), at[:4])
    assert_allclose(found, [[0, 0, 0, 1], [1, 0, 1, 0], [0, 1, 0, 0]])


def test_a_constant_has_a_grid_of_one() -> None:
    data = {"a": np.full(200, 3.0), "b": np.random.default_rng(0).normal(size=200)}
    found = BeliefPropagation(nx.path_graph(["a", "b"])).fit(data).run({"b": 0.5})
    assert_allclose(found.mean["a"], 3.0)


@pytest.mark.parametrize("reweighting", [1.0, "halfway"])
def test_beliefs_on_a_grid_are_those_of_all_rows(reweighting: Any) -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=1000)
    data = {"a": a, "b": a + 0.5 * rng.normal(size=1000)}
    data |= {name: data["b"] + 0.5 * rng.normal(size=1000) for name in "cd"}
    ring = nx.cycle_graph(list("abcd"))
    median = Gaussian("0.5*median")
    options: dict[str, Any] = {"reweighting": reweighting, "regularization": 0.003}
    by_rows = BeliefPropagation(ring, median, **options).fit(data)  # named: all rows
    by_grid = BeliefPropagation(ring, **options).fit(data)
    assert len(by_rows.potentials_.nodes[0].points) == 1000
    assert len(by_grid.potentials_.nodes[0].points) < 200
    one, other = (
        model.run({"a": 1.0, "d": lambda x: np.exp(-(x[:, 0] ** 2))})
        for model in (by_rows, by_grid)
    )
    for node in "bcd":
        assert_allclose(other.mean[node], one.mean[node], atol=0.01)
        assert_allclose(other.std[node], one.std[node], atol=0.01)
        x = np.linspace(-1, 2, 7)
        assert_allclose(other.density(node, x), one.density(node, x), rtol=0.05, atol=0.02)
