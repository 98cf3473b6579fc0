"""The look at the horizon: a slow oracle, its level, its power, batches, files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import meanmap
from meanmap.monitoring import SequentialIndependenceTest, SequentialTwoSampleTest
from meanmap.monitoring.horizon import BETS, PLAIN, WHITENED, combine_ranks, rank_pairs

TESTS = [SequentialTwoSampleTest, SequentialIndependenceTest]


def slow_rank(pairs: list[Any], length: int, draws: int, rng: np.random.Generator) -> float:
    """The p-value of all pairs of features, every sum written out."""
    n = len(pairs[0][0])
    keys = rng.random((draws + 1, n))
    orders = [list(range(n))]
    for key in keys[1:]:
        order: list[int] = []
        for start in range(0, n, length):
            rows = range(start, min(start + length, n))
            order += sorted(rows, key=key.__getitem__)
        orders.append(order)
    shares = []
    for (X, Y), ridge in [(pairs[0], PLAIN), *((pair, WHITENED) for pair in pairs)]:
        sides = []
        for part in (X, Y):
            part = np.vstack(
                [
                    part[i : i + length] - part[i : i + length].mean(axis=0)
                    for i in range(0, n, length)
                ]
            )
            scatter = part.T @ part
            most = np.linalg.norm(scatter, 2)
            root = np.linalg.cholesky(scatter + ridge * most * np.eye(len(scatter)))
            sides.append(np.linalg.solve(root, part.T).T)
        x, y = sides
        T = [sum(np.outer(x[i], y[p[i]]) for i in range(n)) for p in orders]
        lengths = [float(np.sum(t**2)) for t in T]
        lengths = [round(a / max(lengths), 9) for a in lengths]
        shares.append([np.mean([b >= a for b in lengths]) for a in lengths])
    total = [sum(1 / share[b] for share in shares) for b in range(draws + 1)]
    return float(np.mean([t >= total[0] - 1e-9 for t in total]))


def test_ranks_follow_the_formulas() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(22, 3))
    pairs = [(X, X[:, :2] + 2 * rng.normal(size=(22, 2))), (X[:, :1], rng.normal(size=(22, 1)))]
    once, again = np.random.default_rng(3), np.random.default_rng(3)
    found = rank_pairs(lambda part: [(x[part], y[part]) for x, y in pairs], 22, 5, 60, once)
    assert_allclose(found, slow_rank(pairs, 5, 60, again))


def test_ties_count_against_rejection() -> None:
    assert combine_ranks([np.ones(50)]) == 1.0
    assert combine_ranks([np.zeros(50), np.ones(50)]) == 1.0
    one = np.arange(50.0)[::-1]
    assert_allclose(combine_ranks([one]), 0.02)
    assert_allclose(combine_ranks([one, one]), 0.02)


@pytest.mark.parametrize("made", TESTS)
def test_level_of_the_look(made: Any) -> None:
    rng, streams, found = np.random.default_rng(1), 60, []
    for seed in range(streams):
        test = made(horizon=24, warm_up=8, alpha=0.3, random_state=seed)
        found.append(test.update(rng.poisson(1, size=(24, 1)), rng.poisson(1, size=(24, 1))).pvalue)
    assert np.sum(np.array(found) <= 0.3) <= stats.binom.isf(1e-6, streams, 0.3)


def test_both_parts_share_alpha() -> None:
    rng = np.random.default_rng(2)
    X, Y = rng.normal(size=(60, 2)), rng.normal(2, 1, size=(60, 2))
    alone, test = SequentialTwoSampleTest(), SequentialTwoSampleTest(horizon=60)
    for stop in (30, 59):
        start = 0 if stop == 30 else 30
        bets, found = (one.update(X[start:stop], Y[start:stop]) for one in (alone, test))
        assert_allclose(found.pvalue, min(bets.pvalue / BETS, 1))
        assert found.log_evalue == bets.log_evalue and found.share == BETS
    weak = 0.1 * Y + 0.9 * X  # too little for bets
    test = SequentialTwoSampleTest(horizon=60)
    before = test.update(weak[:59], X[:59][::-1])
    found = test.update(weak[59:], X[:1])
    looked = test.__dict__["_progress"].looked
    assert found.pvalue == min(before.pvalue, looked / (1 - BETS))
    assert test.__dict__["_progress"].kept is None
    after = test.update(X, X[::-1])
    assert after.pvalue <= found.pvalue and after.sizes["pairs"] == 120
    assert test.__dict__["_progress"].looked == looked


def test_a_look_finds_more_than_bets() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(120, 1))
    shifted = rng.normal(0.75, 1, size=(120, 1))
    go_together = 0.55 * X + rng.normal(size=(120, 1))
    for made, Y in ((SequentialTwoSampleTest, shifted), (SequentialIndependenceTest, go_together)):
        test = made(horizon=120)
        found = test.update(X, Y)
        assert found.rejects and test.__dict__["_progress"].looked <= 0.02
    line = (
        SequentialTwoSampleTest(horizon=120).update(X, shifted).plot().get_legend_handles_labels()
    )
    assert any("100" in label for label in line[1])


@pytest.mark.parametrize("made", TESTS)
def test_batches_and_files(made: Any, tmp_path: Any) -> None:
    rng = np.random.default_rng(4)
    X, Y = rng.normal(size=(90, 2)), rng.normal(0.2, 1, size=(90, 2))
    once, test = made(horizon=50).update(X, Y), made(horizon=50)
    for start, stop in ((0, 7), (7, 33), (33, 34), (34, 47), (47, 90)):
        found = test.update(X[start:stop], Y[start:stop])
        meanmap.save(test, tmp_path / "test.npz")
        test = meanmap.load(tmp_path / "test.npz")
    assert_allclose(found.pvalue, once.pvalue, rtol=1e-7)


def test_labels_and_errors() -> None:
    rng = np.random.default_rng(5)
    words = rng.choice(np.array(list("abc")), 150)
    other = rng.choice(np.array(list("abc")), 150, p=[0.7, 0.2, 0.1])
    assert SequentialTwoSampleTest(horizon=150).update(words, other).rejects
    mixed = np.where(rng.random(150) < 0.6, words, other)
    assert SequentialIndependenceTest(horizon=150).update(words, mixed).rejects
    with pytest.raises(ValueError, match="horizon must be a whole number ≥ 20"):
        SequentialTwoSampleTest(horizon=10).update(words, other)
