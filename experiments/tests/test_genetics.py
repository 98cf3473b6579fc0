"""Histories of populations: statistics against genotypes, and a run on reduced sizes."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import meanmap_experiments as experiments
from meanmap_experiments import Figure, genetics, histories
from meanmap_experiments.genetics import (
    ADJUSTED,
    HISTORIES,
    KERNEL,
    METHODS,
    PYABC,
    REJECTION,
    Plan,
    Scores,
)
from optional_packages import require

SMALL = Plan(
    models=("growth",),
    budgets=(80, 160),
    runs=2,
    tests=6,
    alone=1,
    alone_budgets=(160,),
    kept=(5, 20),
    adjusted=(5, 30, 60, 500),
)


# --- what is seen ---------------------------------------------------------------------------------


def genotypes(sequences: object) -> np.ndarray:
    """Alleles (sites, samples), of sites with two alleles in the sample."""
    table = sequences.genotype_matrix()  # type: ignore[attr-defined]
    found = np.array([row != row[0] for row in table], dtype=int)
    return found[(found.sum(axis=1) > 0)]


def differences(a: np.ndarray, b: np.ndarray, same: bool) -> float:
    """The mean number of sites at which two sequences, one of each set, differ."""
    pairs = [(i, j) for i in range(a.shape[1]) for j in range(b.shape[1]) if not (same and i == j)]
    return float(np.mean([(a[:, i] != b[:, j]).sum() for i, j in pairs]))


def test_statistics_of_growth() -> None:
    require("msprime")
    history = HISTORIES["growth"]
    sequences = history.simulate(np.array([4.0, -4.0]), np.random.default_rng(0))
    table = genotypes(sequences)
    found = history.summary(sequences)
    minor = np.minimum(table.sum(axis=1), 40 - table.sum(axis=1))
    edges = [(1, 1), (2, 2), (3, 5), (6, 10)]
    shares = [((minor >= a) & (minor <= b)).mean() for a, b in edges]
    assert_allclose(found[0], np.log1p(len(table)))
    assert_allclose(found[1], np.log1p(differences(table, table, same=True)))
    assert found[2] < 0  # growth leaves rare alleles
    assert_allclose(found[3:], shares)


def test_statistics_of_a_split() -> None:
    require("msprime")
    history = HISTORIES["split"]
    sequences = history.simulate(np.array([3.3, 4.0, 3.9]), np.random.default_rng(2))
    table = genotypes(sequences)
    a, b = table[:, :20], table[:, 20:]
    within = [differences(a, a, same=True), differences(b, b, same=True)]
    between = differences(a, b, same=False)
    in_a, in_b = (x.any(axis=1) & ~x.all(axis=1) for x in (a, b))
    sites = [(in_a & in_b).sum(), (in_a & ~in_b).sum(), (~in_a & in_b).sum()]
    found = history.summary(sequences)
    assert_allclose(found[:2], np.log1p(within))
    assert_allclose(found[4:6], [np.log1p(between), 1 - np.mean(within) / between])
    assert_allclose(found[6:9], np.log1p(sites))
    assert_allclose(found[9], np.log1p((~in_a & ~in_b).sum()))


@pytest.mark.parametrize("name", list(HISTORIES))
def test_simulators(name: str) -> None:
    """Statistics are finite at the prior's corners, and the seed decides."""
    require("msprime")
    history = HISTORIES[name]
    assert list(history.prior) == list(history.names)
    for theta in (np.array(history.low), np.array(history.high)):
        first, again, other = (
            history.observe(theta, np.random.default_rng(seed)) for seed in (1, 1, 2)
        )
        assert np.isfinite(first).all()
        assert_array_equal(first, again)
        assert (first != other).any()
    draws = np.array([history.draw(np.random.default_rng(s)) for s in range(50)])
    assert ((draws >= history.low) & (draws <= history.high)).all()
    assert_allclose(history.scale, [part.std() for part in history.prior.values()])


def test_sequences_in_which_nothing_varies() -> None:
    msprime = require("msprime")
    two = msprime.Demography.isolated_model([100, 100])
    two.add_population(name="C", initial_size=100)
    two.add_population_split(time=10, derived=["pop_0", "pop_1"], ancestral="C")
    one = msprime.sim_ancestry(20, population_size=100, random_seed=1)
    both = msprime.sim_ancestry({"pop_0": 10, "pop_1": 10}, demography=two, random_seed=1)
    assert_array_equal(histories.growth_statistics(one), np.zeros(7))
    assert_array_equal(histories.split_statistics(both), np.zeros(10))


# --- scores and what is said of them --------------------------------------------------------------


def test_scores_of_an_answer() -> None:
    history = HISTORIES["growth"]
    truth = np.array([4.0, -4.0])
    draws = truth + history.scale * np.array([[-1.0, 1.0], [1.0, 3.0]])
    weights = np.array([0.5, 0.5])
    mean, low, high = genetics.described(draws, weights)
    found = genetics.scored(history, truth, draws, weights, (mean, low, high))
    assert_allclose(found["error"], [0.0, 4.0], atol=1e-12)
    assert_array_equal(found["covered"], [1.0, 0.0])
    assert_allclose(found["crps"], [0.5, 1.5])
    many = genetics.scored(
        history, truth, np.repeat(draws, 300, axis=0), np.full(600, 1 / 600), (mean, low, high)
    )
    assert_allclose(many["energy"], found["energy"], rtol=0.15)  # of 500 of them, drawn at random


def scores(error: float, energy: float, n: int = 3) -> list[Scores]:
    row = {"error": np.full(2, error), "crps": np.full(2, energy), "energy": np.array(energy)}
    return [row | {"covered": np.ones(2)}] * n


def test_the_best_tolerance_of_each_score() -> None:
    bank = {
        (KERNEL, 100, 0): scores(0.2, 0.3),
        (REJECTION, 100, 10): scores(0.5, 0.7),
        (REJECTION, 100, 20): scores(0.4, 0.8),
    }
    found = genetics.gathered([bank, bank])
    assert set(found) == {(KERNEL, 100), (REJECTION, 100)}
    best = found[REJECTION, 100]
    assert genetics.overall(best, "error").mean == pytest.approx(0.4)
    assert genetics.overall(best, "energy").mean == pytest.approx(0.7)
    assert best[0]["kept"][0] == 10


def test_who_is_ahead() -> None:
    ours = [0.10, 0.12, 0.11, 0.10, 0.13]
    theirs = [0.20, 0.21, 0.19, 0.22, 0.20]
    found = {
        (KERNEL, 100): [scores(e, 0.5)[0] | {"error": np.full((3, 2), e)} for e in ours],
        (REJECTION, 100): [scores(e, 0.5)[0] | {"error": np.full((3, 2), e)} for e in theirs],
    }
    ratio, sign = genetics.compare(found, REJECTION, 100, "error", None)
    assert (ratio, sign) == (pytest.approx(0.56 / 1.02), -1)
    few = {key: runs[:2] for key, runs in found.items()}
    assert genetics.compare(few, REJECTION, 100, "error", None)[1] == 0
    line = genetics.told(REJECTION, [100, 300], [(0.5, -1), (1.2, 1)], runs=5)
    assert "0.50, 1.20 × that of rejection with 100, 300 simulations" in line
    assert "less by over two standard errors with 100; more by" in line
    assert "no difference" in genetics.told(REJECTION, [100], [(1.0, 0)], runs=5)
    assert "too few runs" in genetics.told(REJECTION, [100], [(1.0, 0)], runs=2)


@pytest.mark.parametrize("package", ["msprime", "pyabc"])
def test_what_to_install(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match="pip install msprime pyabc"):
        genetics.run(plan=SMALL, progress=False)


# --- a run ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def outcome() -> experiments.Outcome:
    for package in ("msprime", "pyabc"):
        require(package)
    return genetics.run(seed=1, plan=SMALL, progress=False)


def test_a_small_run(outcome: experiments.Outcome) -> None:
    error, energy, coverage, parameters, cost, one = outcome.tables
    assert error.headings == ("method", "n = 80", "n = 160")
    for table in (error, energy, coverage):
        assert table.column("method") == METHODS
        rows = {row[0]: row[1:] for row in table.rows}
        assert rows[PYABC][0] is None
        for figure in (*rows[KERNEL], *rows[REJECTION], *rows[ADJUSTED], rows[PYABC][1]):
            assert isinstance(figure, Figure)
            assert figure.runs == SMALL.runs
    ours = {row[0]: row[2] for row in error.rows}[KERNEL]
    assert ours.mean < 0.5  # type: ignore[union-attr]  # 1 knows no more than the prior
    assert len(parameters.rows) == 2 * len(METHODS)
    assert dict(zip(METHODS, cost.column("anew each time"), strict=True))[PYABC] == 160
    assert one.rows[0][0] == "truth"


def test_it_reads_and_draws(outcome: experiments.Outcome) -> None:
    assert len(outcome.verdict) == 7
    assert all(claim.text.startswith("growth: ") for claim in outcome.verdict)
    assert outcome.to_json()
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="pip install 'meanmap[plot]'")
    outcome.plot()
    pyplot.close("all")


def test_the_same_seed_gives_the_same_figures() -> None:
    require("msprime")
    tiny = replace(SMALL, budgets=(60,), tests=2)
    first, again, other = (genetics.one_run(tiny, "growth", 0, seed) for seed in (2, 2, 3))
    assert first.keys() == again.keys()
    measured = {"seconds", "fitting", "simulating"}
    for key, rows in first.items():
        for one, two in zip(rows, again[key], strict=True):
            for what in one.keys() - measured:
                assert_array_equal(one[what], two[what])
    assert (first[KERNEL, 60, 0][0]["mean"] != other[KERNEL, 60, 0][0]["mean"]).any()


@pytest.mark.slow
def test_quick() -> None:
    for package in ("msprime", "pyabc"):
        require(package)
    found = genetics.run(quick=True, progress=False)
    error = {row[0]: row[-1] for row in found.tables[0].rows}
    assert error[KERNEL].mean < 0.9 * error[REJECTION].mean  # type: ignore[union-attr]
