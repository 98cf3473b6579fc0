"""The sequential test of conditional independence: bets by a slow oracle, level, power, batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import meanmap
from meanmap.monitoring import SequentialConditionalTest, SequentialTwoSampleTest
from meanmap.monitoring.conditional import BOUND, CAUTION, LEAST, RUIN, STAKE, ProductBettor


def confounded(rng: np.random.Generator, n: int, direct: float = 0.0) -> tuple[Any, Any, Any]:
    Z = rng.normal(size=(n, 1))
    X = np.sin(Z) + 0.5 * rng.normal(size=(n, 1))
    return X, np.abs(Z) + direct * X + 0.5 * rng.normal(size=(n, 1)), Z


def slow_bets(blocks: list[tuple[np.ndarray, ...]], shrink: float) -> float:
    """The log wealth of `ProductBettor` after blocks, the first of which is not bet on."""
    rows: list[tuple[np.ndarray, ...]] = []
    residuals: list[tuple[np.ndarray, np.ndarray]] = []
    log_wealth, total, squares = 0.0, 0.0, CAUTION

    def regress(part: int) -> np.ndarray:
        zeta = np.array([row[2] for row in rows])
        values = np.array([row[part] for row in rows])
        ridge = np.diag([LEAST] + [1.0] * (zeta.shape[1] - 1))
        return np.linalg.solve(ridge + zeta.T @ zeta, zeta.T @ values)

    for number, block in enumerate(blocks):
        new = list(zip(*block, strict=True))
        if number:
            weights = regress(0), regress(1)
            a, b = (np.array([r[i] for r in residuals]) for i in (0, 1))
            A, B = a.T @ a, b.T @ b
            left = A + (shrink * np.trace(A) + 1e-12) * np.eye(len(A))
            right = B + (shrink * np.trace(B) + 1e-12) * np.eye(len(B))
            theta = np.linalg.inv(left) @ (a.T @ b) @ np.linalg.inv(right)
            A, B = (part / len(rows) + LEAST * np.eye(len(part)) for part in (A, B))
            size = np.sqrt(np.sum((A @ theta @ B) * theta))
            stake = min(max(total / squares, 0), STAKE)
            gains = []
            for x, y, z in new:
                left_over = x - z @ weights[0], y - z @ weights[1]
                gains.append(left_over[0] @ theta @ left_over[1] / (BOUND * size))
                residuals.append(left_over)
            log_wealth += sum(np.log(1 + max(stake * g, -RUIN)) for g in gains)
            total, squares = total + np.sum(gains), squares + np.sum(np.square(gains))
            rows += new
        else:
            rows += new
            weights = regress(0), regress(1)
            residuals += [(x - z @ weights[0], y - z @ weights[1]) for x, y, z in new]
    return float(log_wealth)


def test_bets_follow_the_formulas() -> None:
    rng = np.random.default_rng(0)
    blocks = []
    for n in (30, 5, 11, 20):
        X, Y = rng.normal(size=(n, 2)), rng.normal(size=(n, 3))
        blocks.append((X, Y + X[:, :1], np.hstack([np.ones((n, 1)), rng.normal(size=(n, 2))])))
    bettor, log_wealth = ProductBettor.start((2, 3, 3), 0.1).learn(blocks[0]), 0.0
    for block in blocks[1:]:
        log_wealth += bettor.bet(block).sum()
        bettor = bettor.learn(block)
    assert log_wealth != 0
    assert_allclose(log_wealth, slow_bets(blocks, 0.1), rtol=1e-8)


def test_level_and_power() -> None:
    rng = np.random.default_rng(0)
    null = [SequentialConditionalTest().update(*confounded(rng, 600)).pvalue for _ in range(15)]
    assert np.sum(np.array(null) <= 0.3) <= stats.binom.isf(1e-6, 15, 0.3)
    assert SequentialConditionalTest().update(*confounded(rng, 1500, 0.5)).rejects


@pytest.mark.slow
def test_level_of_many_streams() -> None:
    rng = np.random.default_rng(1)
    null = [SequentialConditionalTest().update(*confounded(rng, 2000)).pvalue for _ in range(200)]
    assert np.sum(np.array(null) <= 0.05) <= stats.binom.isf(1e-6, 200, 0.05)


def test_skewed_residuals_win_nothing() -> None:
    """Their products have mean zero, which they would not have if they were cut off."""
    rng, n = np.random.default_rng(6), 100_000
    one = np.ones((n, 1))
    skewed = rng.exponential(size=(2, n, 1)) ** 2 - 2
    bettor = ProductBettor.start((1, 1, 1), 0.1).learn((skewed[0], -skewed[0], one))
    gains = bettor.evaluate((skewed[0], skewed[1], one))
    assert abs(gains.mean()) < 5.5 * gains.std() / np.sqrt(n)
    # a loss is one of all wealth at most
    sure = replace(bettor, gains=(1e6, 1.0))
    assert_allclose(sure.bet((skewed[0], skewed[0], one)).min(), np.log(1 - RUIN))


def test_labels_and_dependence_by_way_of_z_alone() -> None:
    rng = np.random.default_rng(2)
    Z = rng.normal(size=(1500, 1))
    x, y = (np.where(rng.random(1500) < 1 / (1 + np.exp(-2 * Z[:, 0])), "a", "b") for _ in "xy")
    assert not SequentialConditionalTest(alpha=0.001).update(x, y, Z).rejects
    copied = np.where(rng.random(1500) < 0.4, x, y)
    assert SequentialConditionalTest().update(x, copied, Z).rejects


def test_batches_and_files(tmp_path: Any) -> None:
    parts = confounded(np.random.default_rng(3), 500, 0.2)
    once, test = SequentialConditionalTest().update(*parts), SequentialConditionalTest()
    for start, stop in ((0, 150), (150, 230), (230, 231), (231, 500)):
        found = test.update(*(part[start:stop] for part in parts))
        meanmap.save(test, tmp_path / "test.npz")
        test = meanmap.load(tmp_path / "test.npz")
    assert_allclose(found.log_evalue, once.log_evalue, rtol=1e-7, atol=1e-9)
    assert found.sizes == {"rows": 300, "waiting": 0}


@pytest.mark.parametrize("flat", ["X", "XY", "XYZ", "start"])
def test_constants_are_no_evidence(flat: str) -> None:
    rng = np.random.default_rng(7)
    parts = {name: rng.normal(size=(400, 2)) for name in "XYZ"}
    for name in flat if flat != "start" else "XYZ":
        parts[name][: 210 if flat == "start" else None] = 3.0
    found = SequentialConditionalTest().update(**parts)
    assert np.isfinite(found.log_evalues).all() and found.pvalue > 1e-6
    if flat != "start":
        assert found.log_evalue < 1e-3


def test_one_huge_value_does_not_blind() -> None:
    X, Y, Z = confounded(np.random.default_rng(8), 1200, 0.5)
    X[20] = Y[300] = Z[310] = 1e70
    found = SequentialConditionalTest().update(X, Y, Z)
    assert found.rejects and np.isfinite(found.log_evalues).all()


def test_bad_batches_change_nothing() -> None:
    X, Y, Z = confounded(np.random.default_rng(4), 300)
    test = SequentialConditionalTest()
    before = test.update(X, Y, Z).to_dict()
    for rows, words in (
        ((X, Y, np.nan * Z), "Z"),
        ((X, Y[:5], Z), "X 300 and Y 5 and Z 300"),
        ((X, Y, np.hstack([Z, Z])), "features"),
    ):
        with pytest.raises(ValueError, match=words):
            test.update(*rows)
    assert test.result().to_dict() == before


def test_a_known_law_of_x_given_z_is_tested_exactly() -> None:
    rng = np.random.default_rng(5)
    X, Y, Z = confounded(rng, 600, 1.0)
    drawn = np.sin(Z) + 0.5 * rng.normal(size=Z.shape)
    assert SequentialTwoSampleTest().update((X, Y, Z), (drawn, Y, Z)).rejects
