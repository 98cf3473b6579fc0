"""Chains, trees, dimensions and tables of measurements: the pieces, and small runs."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal, norm

from meanmap_experiments import Figure, Outcome, dimension, measurements, trees
from meanmap_experiments.networks import MODELS, Binned, Grid, Normal, binned
from meanmap_experiments.trees import Labels
from optional_packages import require

TREES = trees.Plan(sizes=(100, 400), runs=2, tests=8, cells=120, tables=2)
DIMENSION = dimension.Plan(dimensions=(3, 12), sizes=(150,), runs=3, tests=100)
MEASUREMENTS = measurements.Plan(splits=2, tables=("wine",))


# --- the truth ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["linear chain", "linear tree"])
def test_sums_over_a_grid_are_the_closed_form(name: str) -> None:
    model = MODELS[name]
    grid = Grid(model, 300)
    row = {node: values[0] for node, values in model.sample(1, np.random.default_rng(0)).items()}
    for names in model.evidence:
        for node in set(model.names) - set(names):
            mean, deviation = model.joint.given(node, {n: np.array([row[n]]) for n in names})
            found = grid.density(node, {n: row[n] for n in names})
            assert_allclose(found, norm.pdf(grid.points, mean[0], deviation), atol=1e-6)


@pytest.mark.parametrize("name", list(MODELS))
def test_samples_follow_the_grids_marginals(name: str) -> None:
    model = MODELS[name]
    sample = model.sample(40_000, np.random.default_rng(1))
    grid = Grid(model, 400)
    for node in model.names:
        p = grid.density(node, {}) * grid.width
        mean = p @ grid.points
        deviation = np.sqrt(p @ (grid.points - mean) ** 2)
        assert abs(sample[node].mean() - mean) < 6 * deviation / 200
        assert_allclose(sample[node].std(), deviation, rtol=0.05)
        inside = (sample[node] > grid.points[0]) & (sample[node] < grid.points[-1])
        assert inside.all()


def test_linear_models_have_unit_deviations() -> None:
    for name in ("linear chain", "linear tree"):
        assert_allclose(np.diag(MODELS[name].joint.covariance), 1)
    joint = MODELS["linear tree"].joint
    at = joint.names.index
    assert_allclose(joint.covariance[at("D"), at("F")], 0.9 * 0.8 * -0.8 * -0.9)


# --- peers ----------------------------------------------------------------------------------------


def test_gaussian_tree_is_maximum_likelihood() -> None:
    """Along edges its covariances are the sample's; off them, what the path says."""
    model = MODELS["linear chain"]
    data = model.sample(300, np.random.default_rng(2))
    found = Normal.tree(data, model.edges)
    S = np.cov(np.column_stack(list(data.values())).T, bias=True)
    V = found.covariance
    for i in range(4):
        assert_allclose(V[i, i], S[i, i])
    for i in range(3):
        assert_allclose(V[i, i + 1], S[i, i + 1])
    assert_allclose(V[0, 2], S[0, 1] * S[1, 2] / S[1, 1])
    rows = np.column_stack(list(data.values()))[:5]
    expected = multivariate_normal(found.mean, V).logpdf(rows)
    assert_allclose(found.log_density({n: x[:5] for n, x in data.items()}), expected)


def test_binned_tree_is_enumeration_of_its_tables() -> None:
    rng = np.random.default_rng(3)
    model = MODELS["branching tree"]
    data = model.sample(500, rng)
    tree = Binned.fitted(data, model.edges, 4, smoothing=1.0)
    # the joint table, node after node
    joint = np.einsum(
        "a,ab,ac,bd,be->abcde", tree.marginals["A"], *(tree.tables[n] for n in "BCDE")
    )
    row = {n: x[:1] for n, x in data.items()}
    at = {n: int(binned(x, tree.edges[n])[0]) for n, x in row.items()}
    p = joint[:, :, at["C"], at["D"], :].sum(axis=2)
    expected = p.sum(axis=0) / p.sum()
    evidence = {"C": row["C"], "D": row["D"]}
    assert_allclose(tree.given("B", evidence)[0], expected)
    assert_allclose(tree.mean("B", evidence)[0], expected @ tree.centres["B"])
    widths = np.prod([np.diff(tree.edges[n])[at[n]] for n in "ABCDE"])
    assert_allclose(tree.log_density(row), np.log(joint[tuple(at.values())] / widths))
    x = np.linspace(tree.edges["B"][0], tree.edges["B"][-1], 20_001)
    density = tree.density("B", evidence, x)
    assert_allclose(np.trapezoid(density, x), 1, atol=1e-3)
    assert tree.density("B", evidence, np.array([1e3])) == 0


def test_density_estimates_integrate_to_one() -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(80, 1)) * 3
    estimate = dimension.Density.fitted(X)
    x = np.linspace(-40, 40, 4001)
    assert_allclose(np.trapezoid(np.exp(estimate.log_density(x[:, None])), x), 1, atol=1e-6)
    held = np.array([[0.5]])
    h = estimate.width * X.std()
    assert_allclose(estimate.log_density(held), np.log(norm.pdf(0.5, X[:, 0], h).mean()))
    # a quotient's factor of the second variable is a density as well
    X = dimension.sample(2, 80, rng)
    rows = np.column_stack([np.full(len(x), 0.3), x])
    joint = np.exp(dimension.along_the_chain(X, rows))
    first = np.exp(dimension.Density.fitted(X[:, :1]).log_density(np.array([[0.3]])))
    assert_allclose(np.trapezoid(joint, x), first[0], rtol=1e-6)


def test_structures() -> None:
    rng = np.random.default_rng(5)
    a = rng.normal(size=400)
    b = a + 0.3 * rng.normal(size=400)
    c = b + 0.3 * rng.normal(size=400)
    data = {"a": a, "c": c, "b": b}
    for edges in (measurements.gaussian_edges(data), measurements.binned_edges(data, 5)):
        assert {frozenset(edge) for edge in edges} == {frozenset("ab"), frozenset("bc")}
        assert nx.is_arborescence(nx.DiGraph(edges))


def test_labels_by_enumeration() -> None:
    rng = np.random.default_rng(6)
    drawn = Labels.drawn("polytree", 3, rng)
    assert_allclose(drawn.joint.sum(), 1)
    data = drawn.sample(400, rng)
    fitted = Labels.fitted("polytree", 3, data)
    here = (data["A"] == 1) & (data["B"] == 0)
    expected = np.bincount(data["C"][here], minlength=3) / here.sum()
    assert_allclose(fitted.given("C", {"A": 1, "B": 0}), expected)
    # before their child is seen the parents are independent
    assert_allclose(fitted.given("A", {"B": 2}), np.bincount(data["A"], minlength=3) / 400)


@pytest.mark.parametrize("form", list(trees.FORMS))
def test_delta_kernels_are_exact(form: str) -> None:
    for index in range(3):
        gaps = trees.discrete_run(TREES, form, index, 0)
        assert max(gap for gap in gaps if gap is not None) <= trees.TOLERANCE


def test_pgmpy_is_enumeration() -> None:
    require("pgmpy")
    rng = np.random.default_rng(7)
    data = Labels.drawn("tree", 3, rng).sample(500, rng)
    graph = nx.DiGraph([(p, node) for node, before in trees.FORMS["tree"].items() for p in before])
    answer = trees.pgmpy_answers(graph, data)
    assert answer is not None
    evidence = {"D": int(data["D"][0]), "F": int(data["F"][0])}
    exact = Labels.fitted("tree", 3, data).given("A", evidence)
    assert_allclose(answer("A", evidence), exact[np.unique(data["A"])], atol=1e-12)


# --- the experiments ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    return {
        "trees": trees.run(plan=TREES, seed=1, progress=False),
        "dimension": dimension.run(plan=DIMENSION, seed=1, progress=False),
        "measurements": measurements.run(plan=MEASUREMENTS, seed=1, progress=False),
    }


def cells(outcome: Outcome, table: int, *start: str) -> list[Figure]:
    """The figures of the row that begins with these words."""
    (row,) = [row for row in outcome.tables[table].rows if row[: len(start)] == start]
    return list(row[len(start) :])  # type: ignore[arg-type]


@pytest.mark.slow
def test_trees_small(outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes["trees"]
    for name in MODELS:
        ours = cells(outcome, 0, name, trees.KERNEL)
        blind = cells(outcome, 0, name, trees.BLIND)
        assert [figure.runs for figure in ours] == [2, 2]
        # seeds 0 to 5: at most 0.33 of it at n = 400
        assert ours[-1].mean < 0.6 * blind[-1].mean
    for name in ("banana chain", "branching tree"):
        ours, theirs = (cells(outcome, 2, name, m)[-1].mean for m in (trees.KERNEL, trees.GAUSSIAN))
        assert ours < 0.8 * theirs  # seeds 0 to 5: at most 0.45
    assert outcome.tables[-1].column("graph") == tuple(trees.FORMS)


@pytest.mark.slow
def test_dimension_small(outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes["dimension"]
    assert outcome.tables[0].headings == ("method", "d = 3", "d = 12")
    ours, whole = (cells(outcome, 1, m)[1].mean for m in (dimension.KERNEL, dimension.WHOLE))
    assert 0 < ours < 0.8 * whole  # seeds 0 to 5: at most 0.46
    truth = cells(outcome, 0, dimension.TRUTH)
    assert all(cells(outcome, 0, m)[1].mean < truth[1].mean for m in dimension.METHODS)


@pytest.mark.slow
def test_measurements_small(outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes["measurements"]
    ours, level = (cells(outcome, 1, m)[0].mean for m in (measurements.KERNEL, measurements.LEVEL))
    assert ours < 0.95 * level  # seeds 0 to 5: at most 0.80
    assert len(outcome.tables[2].rows) == 12


def test_verdicts_follow_the_figures() -> None:
    plan = trees.Plan(sizes=(10, 20), runs=3)
    spread = np.array([0.99, 1.0, 1.01])

    def errors(ours: float) -> trees.Errors:
        return {
            (model.name, n, measure, method, trees.ALL): list(
                (ours if method == trees.KERNEL else 0.5) * spread
            )
            for model in MODELS.values()
            for n in plan.sizes
            for measure in ("means", "deviations", "densities")
            for method in trees.methods_of(model)
        }

    low = trees.verdict(plan, errors(0.1), {"chain": [(1e-12, None)]})
    assert "0.100, below the best peer" in low[0].text and low[0].holds is True
    assert "at most 1e-06 holds" in low[-2].text and "not compared with pgmpy" in low[-1].text
    high = trees.verdict(plan, errors(0.9), {"chain": [(1e-12, 1e-3)]})
    assert "0.900, above the best peer" in high[0].text and high[0].holds is False
    assert "does not hold" in high[-1].text and high[-1].holds is False


def test_a_better_log_density_is_a_larger_one() -> None:
    plan = measurements.Plan(splits=3, tables=("wine",))
    spread = np.array([0.0, 0.01, 0.02])
    scores: measurements.Scores = {}
    for method in {*measurements.LIKELY, *measurements.FILLED}:
        ours = method == measurements.KERNEL
        scores["wine", "log density", method] = list(spread * (1 + ours) - (1 if ours else 2))
        scores["wine", "error", method] = list(spread * (1 + ours) + (1 if ours else 2))
    lines = measurements.verdict(plan, scores, {"wine": [0.5]})
    for claim in lines[:2]:
        assert "better than the best peer" in claim.text and claim.holds is True


@pytest.mark.slow
def test_the_same_seed_gives_the_same_figures() -> None:
    plan = trees.Plan(tests=3, cells=50)
    first, again, other = (trees.one_run(plan, "banana chain", 60, 0, s) for s in (2, 2, 3))
    assert first == again and first != other
    small = dimension.Plan(tests=10)
    first, again, other = (dimension.one_run(small, 3, 50, 0, s) for s in (2, 2, 3))
    assert first == again and first != other
    found = [measurements.one_split(MEASUREMENTS, "wine", 0, s) for s in (2, 2, 3)]
    assert found[0] == found[1] != found[2]


@pytest.mark.slow
def test_they_read_and_draw(outcomes: dict[str, Outcome]) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="pip install 'meanmap[plot]'")
    for name, outcome in outcomes.items():
        assert outcome.name == name and outcome.verdict
        assert "What holds" in repr(outcome) and outcome.to_json()
        outcome.plot()
    pyplot.close("all")


@pytest.mark.slow
@pytest.mark.parametrize("module", [trees, dimension, measurements])
def test_quick_run(module: object) -> None:
    outcome = module.run(quick=True, progress=False)  # type: ignore[attr-defined]
    assert outcome.quick and outcome.tables and outcome.verdict
