"""Bayesian computation without a likelihood: rejection, ranks, and a small run."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from meanmap.kernels.bandwidths import median_distance
from meanmap_experiments import Claim, Figure, Outcome, abc
from meanmap_experiments.abc import (
    COND,
    COUNTS,
    INTERVALS,
    KBR,
    KERNEL,
    MEANS,
    OWN,
    REJECTION,
    SHARES,
    Plan,
)
from meanmap_experiments.bayes import LinearGaussian
from oracles.conditional import conditional_weights
from oracles.kernels import gaussian
from oracles.likelihood_free import incomplete_cholesky_ranks, rejection_mean
from oracles.rules import bayes_squared_b

SMALL = Plan((2, 3), (200, 400), (2000,), runs=3, tests=40, timed=3, ranks=(100,), factored=2)
TABLES = ("error", "error", "far", "far", "seconds", "seconds", "coverage", "answers", "ranks")


def simulated(d: int, n: int, seed: int) -> tuple[LinearGaussian, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    model = LinearGaussian.drawn(d, rng)
    return model, *abc.simulations(model, n, rng)


def tables(outcome: Outcome, kind: str) -> list:
    pairs = zip(TABLES, outcome.tables, strict=True)
    return [table for name, table in pairs if name == kind]


# --- rejection ------------------------------------------------------------------------------------


def test_accepted_mean() -> None:
    _, theta, outputs = simulated(2, 300, 0)
    for y in outputs[:5]:
        expected = rejection_mean(theta, outputs, y, 2.0)
        assert_allclose(abc.accepted_mean(theta, outputs, y, 2.0), expected)
    # nothing within reach: the nearest
    y = outputs[7] + 1e-6
    assert_array_equal(abc.accepted_mean(theta, outputs, y, 1e-9), theta[7])
    assert_allclose(
        abc.rejection(theta, outputs, outputs[:3], 2.0),
        [rejection_mean(theta, outputs, y, 2.0) for y in outputs[:3]],
    )


def test_all_tolerances_at_once() -> None:
    _, theta, outputs = simulated(3, 400, 1)
    y = np.ones(3)
    fixed = np.array(SHARES) * median_distance(outputs)
    means = abc.all_means(theta, outputs, y, fixed)
    assert means.shape == (len(COUNTS) + len(SHARES), 3)
    distances = np.sort(np.linalg.norm(outputs - y, axis=1))
    for i, count in enumerate(COUNTS):
        tolerance = distances[count - 1 : count + 1].mean() if count < 400 else np.inf
        assert_allclose(means[i], rejection_mean(theta, outputs, y, tolerance))
    for tolerance, mean in zip(fixed, means[len(COUNTS) :], strict=True):
        assert_allclose(mean, abc.accepted_mean(theta, outputs, y, tolerance))
    assert abc.tolerance_words(2, 400) == "the nearest 5"
    assert abc.tolerance_words(len(COUNTS) + len(SHARES) - 1, 400) == "1.00 × median"


# --- ranks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 4])
def test_greedy_ranks(d: int) -> None:
    x = np.random.default_rng(d).normal(size=(80, d))
    expected = incomplete_cholesky_ranks(gaussian(x, x, 1.5), 1e-3)
    assert abc.greedy_ranks(x, 1.5) == expected


def test_a_factor_that_does_not_stop() -> None:
    x = np.random.default_rng(0).normal(size=(100, 5))
    largest, trace = abc.greedy_ranks(x, 0.5, longest=20)
    assert largest is None and trace is None
    assert abc.mean_rank((10, 13)) == 12
    assert abc.mean_rank((10, None)) == "> 2,500"
    # every point far from all others: no rank below n, and n itself is one
    assert abc.greedy_ranks(100.0 * np.arange(5.0)[:, None], 1.0) == (5, 5)


def test_ranks_of_the_papers_model() -> None:
    """At d = 2, n = 200 the paper has "around 30"."""
    stops = np.array([abc.factor_ranks(2, 200, i, 0) for i in range(3)]).mean(axis=0)
    assert ((stops[[0, 2]] > 20) & (stops[[0, 2]] < 33)).all()
    assert ((stops[[1, 3]] > 28) & (stops[[1, 3]] < 45)).all()


# --- the paper's settings -------------------------------------------------------------------------


def test_conditional_mean_is_equation_19() -> None:
    model, theta, outputs = simulated(2, 150, 3)
    n, y = 150, model.simulate(theta[:8], np.random.default_rng(0))
    scale = median_distance(outputs)
    G, k = gaussian(outputs, outputs, scale), gaussian(outputs, y, scale)
    weights = conditional_weights(G, k, 0.01 / n**0.5)
    # what incomplete Cholesky leaves, a residual trace of 0.001, is all the difference
    assert_allclose(abc.conditional(theta, outputs)(y), weights.T @ theta, atol=0.02)


def test_rule_is_kernel_bayes() -> None:
    model, theta, outputs = simulated(2, 150, 4)
    n, y = 150, model.simulate(theta[:8], np.random.default_rng(0))
    x, z = median_distance(theta), median_distance(outputs)
    K, G, k = (
        gaussian(theta, theta, x),
        gaussian(outputs, outputs, z),
        gaussian(outputs, y, z),
    )
    weights = bayes_squared_b(K, G, K, np.full(n, 1 / n), k, 0.01 / n, 0.02 / n)
    assert_allclose(abc.rule(theta, outputs)(y), weights.T @ theta, atol=0.02)


# --- the experiment -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return abc.run(plan=SMALL, seed=1, progress=False)


def test_a_small_run(outcome: Outcome) -> None:
    for table in tables(outcome, "error"):
        assert table.headings == ("method", "n = 200", "n = 400")
        found = {row[0]: row[1:] for row in table.rows}
        assert list(found) == [*KERNEL, REJECTION]
        for figures in found.values():
            assert all(isinstance(f, Figure) and f.runs == SMALL.runs for f in figures)
        for ours, theirs in zip(found[OWN], found[REJECTION], strict=True):
            assert ours.mean < theirs.mean
    for table in tables(outcome, "far"):
        assert [row[0] for row in table.rows] == ["200", "400", "2,000"]
        errors = [row[1].mean for row in table.rows]
        assert errors[2] < errors[0]
    for table in tables(outcome, "seconds"):
        rejection = table.rows[-1]
        assert rejection[0] == REJECTION and None not in rejection
        assert table.rows[0][-1] is None  # kernels stop at the last size
    (coverage,) = tables(outcome, "coverage")
    shares = [figure.mean for row in coverage.rows for figure in row[1:]]
    assert all(0.75 < share <= 1 for share in shares)
    (answers,) = tables(outcome, "answers")
    assert [row[0] for row in answers.rows] == [MEANS, INTERVALS]
    (ranks,) = tables(outcome, "ranks")
    for row in ranks.rows:
        assert row[1] < row[2] and row[3] < row[4]  # the trace asks for more than the largest


def test_everything_but_seconds_repeats() -> None:
    plan = replace(SMALL, sizes=(100,), budgets=(500,), tests=10)
    first, again, other = (abc.one_run(plan, 2, 0, seed) for seed in (5, 5, 6))
    assert first.errors == again.errors
    assert first.covered == again.covered
    assert_array_equal(first.trials[500], again.trials[500])
    assert first.errors != other.errors


def test_the_verdict_follows_the_figures() -> None:
    plan = Plan(dimensions=(2,), sizes=(500, 2000), budgets=(10_000,))
    level = {OWN: 0.01, KBR: 0.03, COND: 0.02}
    errors = {(2, m, n): [e, e] for m, e in level.items() for n in plan.sizes}
    errors |= {(2, REJECTION, n): [e, e] for n, e in ((500, 0.2), (2000, 0.1), (10_000, 0.008))}
    seconds = {(2, OWN, n): [1.0] for n in plan.sizes}
    seconds |= {(2, REJECTION, n): [0.2] for n in (*plan.sizes, *plan.budgets)}
    covered = {(2, OWN, n): [0.9] for n in plan.sizes}
    answers = {(2, MEANS): [5.0]}

    def verdict() -> tuple[Claim, ...]:
        return abc.verdict(plan, errors, seconds, covered, answers)

    def said() -> str:
        return "\n".join(claim.text for claim in verdict())

    text = said()
    assert "0.05, 0.10 at n = 500, 2,000; below it at every budget." in text
    assert f"{OWN} 0.0100 (reached); {KBR} 0.0300 (not reached); {COND} 0.0200 (reached)" in text
    assert "takes rejection 10,000 simulations and 0.2 s" in text
    assert "quicker where one simulation costs 1e+02 µs more" in text  # 0.8 s over 8,000
    assert "within 85% to 95% everywhere" in text
    assert "at most 5 ms, within 20 ms" in text
    assert "is better than KBR at d = 2, n = 500; d = 2, n = 2,000" in text
    assert [claim.holds for claim in verdict()] == [True, False, None, True, True, None, None]
    assert "the best results" in str(verdict()[-1].published)

    errors[2, OWN, 500] = [0.3, 0.3]
    errors[2, REJECTION, 10_000] = [0.02, 0.02]
    errors[2, COND, 500] = errors[2, COND, 2000] = [0.5, 0.5]
    covered[2, OWN, 2000] = [0.97]
    answers[2, MEANS] = [30.0]
    text = said()
    assert "not below it at n = 500." in text
    assert "is not reached by rejection with 10,000, which gives 0.02 against 0.01" in text
    assert "hold 90.0% to 97.0%; outside 85% to 95% at d = 2, n = 2,000" in text
    assert "at most 30 ms, beyond 20 ms" in text
    assert "is better than KBR at no budget" in text
    assert [claim.holds for claim in verdict()] == [False, False, None, False, False, None, None]


def test_it_reads_and_draws(outcome: Outcome) -> None:
    assert "rejection" in repr(outcome)
    assert outcome.to_json()
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="pip install 'meanmap[plot]'")
    grid = outcome.plot()
    assert grid.shape == (2, 2)
    assert [ax.get_xlabel() for ax in grid[0]] == ["simulations", "seconds for 3 observations"]
    assert outcome.plot(pyplot.subplots(2, 2)[1]).shape == (2, 2)
    pyplot.close("all")


def test_the_name_hides_nothing() -> None:
    """A module called abc beside the script that is run does not take the standard one's place."""
    folder = str(Path(abc.__file__).parent)
    code = f"import sys; sys.path.insert(0, {folder!r}); from abc import ABC; import numbers"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_quick_run() -> None:
    outcome = abc.run(quick=True, progress=False)
    assert outcome.quick and outcome.tables and outcome.verdict
