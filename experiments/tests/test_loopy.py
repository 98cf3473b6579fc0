"""Loopy lattices: their truth against enumeration, and small runs of the experiment."""

from __future__ import annotations

import json

import matplotlib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from meanmap_experiments import Outcome, loopy
from meanmap_experiments.fields import Bins
from meanmap_experiments.lattices import SPAN, Gibbs, Lattice, Sightings, Strip
from meanmap_experiments.propagation import DiscreteBP

matplotlib.use("Agg")
SMALL = loopy.Plan(
    cases=(
        loopy.Case("3 x 3", 3, 3, False, (60, 200), runs=2, tests=1, cells=40),
        loopy.Case("torus, 4 x 4", 4, 4, True, (20,), runs=2, tests=1, cells=40),
    ),
    chains=10,
    sweeps=20,
    iterations=4,
    particles=30,
    components=4,
    bins=15,
)


def enumerated(lattice: Lattice, bins: Bins, seen: Sightings | None = None) -> np.ndarray:
    """The probability of every combination of cells."""
    n, k, x = lattice.count, len(bins), bins.centres
    local = np.exp(lattice.field.everywhere(x, seen))
    joint = np.ones((k,) * n)
    for i in range(n):
        joint = joint * local[i].reshape([k if j == i else 1 for j in range(n)])
    for template in lattice.templates:
        table = template.potential.values(x[:, None], x[None, :])
        for a, b in zip(template.tails, template.heads, strict=True):
            shape = [k if j in (a, b) else 1 for j in range(n)]
            joint = joint * (table if a < b else table.T).reshape(shape)
    return joint / joint.sum()


def over(joint: np.ndarray, *nodes: int) -> np.ndarray:
    return joint.sum(axis=tuple(i for i in range(joint.ndim) if i not in nodes))


def test_sums_over_three_columns_are_exact() -> None:
    rng = np.random.default_rng(0)
    lattice = Lattice.drawn(3, 3, False, rng)
    bins = Bins.even(-SPAN, SPAN, 5)
    seen = Sightings.of(rng.normal(size=9), rng)
    joint = enumerated(lattice, bins, seen)
    truth = Strip(lattice, bins, seen).truth(pairs=True)
    for i in range(9):
        assert_allclose(truth.nodes[i], over(joint, i), atol=1e-12)
    for template, pair in zip(lattice.templates, truth.pairs, strict=True):
        expected = over(joint, int(template.tails[0]), int(template.heads[0]))
        assert_allclose(pair, expected, atol=1e-12)


def test_draws_from_three_columns_follow_the_truth() -> None:
    rng = np.random.default_rng(1)
    lattice = Lattice.drawn(3, 3, False, rng)
    bins = Bins.even(-SPAN, SPAN, 8)
    strip = Strip(lattice, bins)
    truth, n = strip.truth(pairs=True), 20_000
    sample = strip.sample(n, rng)
    for (a, b), pair in zip(lattice.pairs(sample), truth.pairs, strict=True):
        seen = np.bincount(bins.index(a) * 8 + bins.index(b), minlength=64).reshape(8, 8) / n
        assert_allclose(seen, pair, atol=6 / np.sqrt(n) / 2)  # six standard errors of any cell


def test_chains_on_a_torus_find_the_truth() -> None:
    rng = np.random.default_rng(2)
    lattice = Lattice.drawn(2, 2, True, rng)
    bins = Bins.even(-SPAN, SPAN, 8)
    seen = Sightings.of(rng.normal(size=4), rng)
    joint = enumerated(lattice, bins, seen)
    chains = Gibbs(lattice, bins, 100, rng, seen)
    chains.sweep(50)
    truth = chains.marginals(300)
    for i in range(4):
        assert_allclose(truth.nodes[i], over(joint, i), atol=0.04)
    expected = sum(over(joint, *ends) for ends in ((0, 1), (2, 3)))
    # both directions of a pair are of one template here
    assert_allclose(truth.pairs[0] * 4, expected + expected.T, atol=0.12)
    assert 0 < truth.doubt < 0.1


@pytest.mark.parametrize("shape", [(4, 3, True), (3, 4, False)])
def test_a_lattice_of_the_wrong_shape_says_which_is_right(shape: tuple[int, int, bool]) -> None:
    rng = np.random.default_rng(3)
    lattice, bins = Lattice.drawn(*shape, rng), Bins.even(-SPAN, SPAN, 4)
    with pytest.raises(ValueError, match="3 columns"):
        Strip(lattice, bins)
    with pytest.raises(ValueError, match="even numbers of rows and columns"):
        Gibbs(lattice, bins, 2, rng)


def test_without_evidence_the_data_s_potentials_give_back_the_marginals() -> None:
    lattice = Lattice.drawn(3, 3, False, np.random.default_rng(4))
    bins = Bins.even(-SPAN, SPAN, 40)
    truth = Strip(lattice, bins).truth(pairs=True)
    found = DiscreteBP(truth.field(lattice), bins).run(3)
    assert_allclose(found.mean, truth.mean, atol=1e-8)


def test_sightings_are_likelihoods() -> None:
    rng = np.random.default_rng(5)
    values = rng.normal(size=200)
    seen = Sightings.of(values, rng)
    assert set(seen.kinds) == {0, 1, 2}
    names = list(range(200))
    functions = seen.callables(names)
    assert_array_equal(sorted(functions), np.flatnonzero(seen.kinds))
    x = np.linspace(-2, 2, 5)
    for i, function in list(functions.items())[:10]:
        assert_allclose(function(x[:, None]), np.exp(seen(np.array([i]), x[None])[0]))
        assert_allclose(function(x) == function(-x), seen.kinds[i] == 2 or x == 0)


@pytest.fixture(scope="module")
def small() -> Outcome:
    return loopy.run(plan=SMALL, seed=1)


def test_the_experiment_runs(small: Outcome) -> None:
    assert small.name == "loopy" and len(small.tables) == 6
    for table in (small.tables[0], small.tables[3]):
        assert table.column("method") == (*loopy.LEARNED, *loopy.GIVEN)
        for heading in ("total variation", "error of the mean", "in deviations", "seconds"):
            assert all(0 <= figure.mean < 20 for figure in table.column(heading))  # type: ignore[union-attr]
    assert small.tables[1].headings == ("method", "m = 60", "m = 200")
    assert len(small.verdict) == 21  # three measures of three of ours, and seconds, for two; doubt
    assert "At most 0.13" in small.verdict[0].text and "in deviations" in small.verdict[6].text
    assert json.loads(small.to_json())["name"] == "loopy"


def test_fine_bins_with_the_true_potentials_are_nearest(small: Outcome) -> None:
    table = small.tables[0]
    variation = dict(zip(table.column("method"), table.column("total variation"), strict=True))
    assert variation[loopy.FINE].mean < 0.05  # type: ignore[union-attr]
    assert variation[loopy.FINE].mean < variation[loopy.ALONE].mean  # type: ignore[union-attr]


@pytest.mark.slow
def test_the_experiment_honours_its_seed(small: Outcome) -> None:
    case = SMALL.cases[0]
    first, again = (loopy.one_run(SMALL, case, 0, 1) for _ in range(2))
    timed = ("seconds", "learning")
    for key, value in first.items():
        assert key[0] in timed or again[key] == value
    assert loopy.one_run(SMALL, case, 0, 2)["mean", loopy.FINE, 0] != first["mean", loopy.FINE, 0]


def test_the_picture_has_a_point_a_method(small: Outcome) -> None:
    ax = small.plot()
    assert ax.get_xscale() == "log"
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == [*loopy.LEARNED, *loopy.GIVEN]
