"""Sequential tests: bets against slow oracles, level, power, batches, hostile rows, files."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import meanmap
from meanmap.kernels import Gaussian, NGrams
from meanmap.monitoring import SequentialIndependenceTest, SequentialTwoSampleTest
from meanmap.monitoring.bets import LEAST_SLOPE, MatchBettor, SwapBettor
from meanmap.monitoring.wealth import EVERY, KEPT, MOST, Path, Wealth
from meanmap.spaces import RandomFourier, Space


def most_by_chance(n: int, p: float) -> int:
    """Successes that n trials exceed less than once in a million."""
    return int(stats.binom.isf(1e-6, n, p))


# --- bets -----------------------------------------------------------------------------------------


def slow_swaps(Z: np.ndarray, width: float) -> float:
    """The log wealth of a logistic bettor, row by row, from the formulas."""
    theta, H, log_wealth, held, seen = (
        np.zeros(Z.shape[1]),
        np.eye(Z.shape[1]) / width**2,
        0.0,
        [],
        0,
    )
    for z in Z:
        kappa = 1 / np.sqrt(1 + np.pi / 8 * z @ np.linalg.inv(H) @ z)
        log_wealth += np.log(2 / (1 + np.exp(-kappa * theta @ z)))
        held.append(z)
        if len(held) == min(max(seen // EVERY, 1), MOST):
            gradient = np.zeros_like(theta)
            for row in held:
                p = 1 / (1 + np.exp(-theta @ row))
                H = H + max(p * (1 - p), LEAST_SLOPE) * np.outer(row, row)
                gradient += (1 - p) * row
            theta = theta + np.linalg.solve(H, gradient)
            seen += len(held)
            held = []
    return log_wealth


def slow_matches(X: np.ndarray, Y: np.ndarray, width: float) -> float:
    """The same of groups of four pairs: every arrangement written out."""
    (rx, ry), log_wealth, held, seen = (X.shape[1], Y.shape[1]), 0.0, [], 0
    theta, A, B = np.zeros((rx, ry)), np.zeros((rx, rx)), np.zeros((ry, ry))
    orders = list(permutations(range(4)))
    for start in range(0, len(X), 4):
        x = X[start : start + 4] - X[start : start + 4].mean(axis=0)
        y = Y[start : start + 4] - Y[start : start + 4].mean(axis=0)
        features = [sum(np.outer(x[i], y[p[i]]) for i in range(4)) for p in orders]
        H = np.eye(rx * ry) / width**2 + np.kron(A, B) / max(3 * seen, 1)
        inverse = np.linalg.inv(H)
        spread = np.mean([f.ravel() @ inverse @ f.ravel() for f in features])
        s = np.array([np.sum(theta * f) for f in features])
        k = s / np.sqrt(1 + np.pi / 2 * spread)
        log_wealth += np.log(24 * np.exp(k[0]) / np.exp(k).sum())
        q = np.exp(s) / np.exp(s).sum()
        gradient = features[0] - sum(w * f for w, f in zip(q, features, strict=True))
        held.append((gradient, x.T @ x, y.T @ y))
        if len(held) == min(max(seen // EVERY, 1), MOST):
            seen += len(held)
            A, B = A + sum(h[1] for h in held), B + sum(h[2] for h in held)
            H = np.eye(rx * ry) / width**2 + np.kron(A, B) / (3 * seen)
            step = np.linalg.solve(H, sum(h[0] for h in held).ravel())
            theta, held = theta + step.reshape(rx, ry), []
    return log_wealth


def test_swaps_follow_the_formulas() -> None:
    Z = np.random.default_rng(0).normal(0.3, 1, size=(80, 3))
    wealth = Wealth.start([(0, SwapBettor.start(3, 0.7))]).advance([Z], 80)
    assert_allclose(wealth.log_mean, slow_swaps(Z, 0.7), rtol=1e-9)


def test_matches_follow_the_formulas() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    Y = np.hstack([X[:, :1] + rng.normal(size=(120, 1)), rng.normal(size=(120, 2))])
    wealth = Wealth.start([(0, MatchBettor.start(2, 3, 0.7))]).advance([(X, Y)], 30)
    assert_allclose(wealth.log_mean, slow_matches(X, Y, 0.7), rtol=1e-9)


@pytest.mark.parametrize("swaps", [True, False])
def test_bets_are_fair_over_all_arrangements(swaps: bool) -> None:
    """The mean gain over every arrangement is 1, whatever was learned."""
    rng = np.random.default_rng(0)
    if swaps:
        bettor: Any = SwapBettor.start(3, 1.0).learn(rng.normal(1, 1, size=(9, 3)))
        z = rng.standard_cauchy(size=(1, 3))
        gains = [np.exp(bettor.bet(sign * z)[0]) for sign in (1, -1)]
    else:
        X, Y = rng.normal(size=(40, 3)), rng.normal(size=(40, 2))
        bettor = MatchBettor.start(3, 2, 1.0).learn((X, X[:, :2] + Y))
        x, y = rng.standard_cauchy(size=(4, 3)), rng.standard_cauchy(size=(4, 2))
        gains = [np.exp(bettor.bet((x, y[list(p)]))[0]) for p in permutations(range(4))]
    assert_allclose(np.mean(gains), 1.0, rtol=1e-12)
    assert np.ptp(gains) > 0.01


def test_wealth_is_the_mean_of_the_bettors() -> None:
    Z = np.random.default_rng(0).normal(0.2, 1, size=(50, 2))
    alone = [Wealth.start([(0, SwapBettor.start(2, w))]).advance([Z], 50) for w in (0.1, 1.0)]
    both = Wealth.start([(0, SwapBettor.start(2, w)) for w in (0.1, 1.0)]).advance([Z], 50)
    mean = np.mean([np.exp(one.path.values) for one in alone], axis=0)
    assert_allclose(np.exp(both.path.values), mean, rtol=1e-12)
    assert_allclose(both.best, np.log(max(mean.max(), 1.0)), rtol=1e-12)


def test_path_keeps_few_places() -> None:
    path, values = Path(np.zeros(0)), np.arange(1, 20_001.0)
    for start in range(0, 20_000, 37):
        path = path.extend(start, values[start : start + 37])
    assert len(path.values) <= 2 * KEPT
    assert_allclose(path.values, path.times)


# --- the tests ------------------------------------------------------------------------------------

FRAME = pd.DataFrame(
    {"age": np.random.default_rng(3).normal(50, 9, 400), "city": np.tile(list("abcd"), 100)}
)


def words(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.choice(np.array(list("abc")), n)


def frames(rng: np.random.Generator, n: int) -> pd.DataFrame:
    return FRAME.iloc[rng.integers(0, 400, n)].reset_index(drop=True)


NULLS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "normal": lambda rng, n: rng.normal(size=(n, 2)),
    "heavy": lambda rng, n: rng.standard_cauchy(size=(n, 2)),
    "ties": lambda rng, n: rng.poisson(1.0, size=(n, 2)).astype(float),
    "labels": words,
    "frames": frames,
}
TESTS = [SequentialTwoSampleTest, SequentialIndependenceTest]


@pytest.mark.parametrize("law", list(NULLS))
@pytest.mark.parametrize("made", TESTS)
def test_level_at_every_time(made: Any, law: str) -> None:
    """P(ever p ≤ .3) ≤ .3; a bound far from 0 is the one that errors would break first."""
    rng, streams = np.random.default_rng(0), 15
    pvalues = [
        made().update(NULLS[law](rng, 120), NULLS[law](rng, 120)).pvalue for _ in range(streams)
    ]
    assert np.sum(np.array(pvalues) <= 0.3) <= most_by_chance(streams, 0.3)


@pytest.mark.slow
@pytest.mark.parametrize("law", list(NULLS))
@pytest.mark.parametrize("made", TESTS)
def test_level_of_many_streams(made: Any, law: str) -> None:
    rng, streams = np.random.default_rng(1), 400
    pvalues = [
        made().update(NULLS[law](rng, 1000), NULLS[law](rng, 1000)).pvalue for _ in range(streams)
    ]
    assert np.sum(np.array(pvalues) <= 0.05) <= most_by_chance(streams, 0.05)


def test_a_unit_shift_is_found_early() -> None:
    found = []
    for seed in range(11):
        rng = np.random.default_rng(seed)
        X, Y = rng.normal(size=(120, 3)), rng.normal(size=(120, 3)) + np.array([1.0, 0, 0])
        found.append(SequentialTwoSampleTest().update(X, Y).rejects)
    assert sum(found) >= 10


def test_kinds_of_differences_and_rows() -> None:
    rng = np.random.default_rng(0)
    wide = SequentialTwoSampleTest().update(
        rng.normal(size=(400, 2)), 1.6 * rng.normal(size=(400, 2))
    )
    assert wide.rejects
    other = rng.choice(np.array(list("abc")), 300, p=[0.6, 0.3, 0.1])
    assert SequentialTwoSampleTest().update(words(rng, 300), other).rejects
    moved = frames(rng, 400).assign(city=lambda f: np.where(f.age > 50, "a", f.city))
    assert SequentialTwoSampleTest().update(frames(rng, 400), moved).rejects
    assert SequentialIndependenceTest().update(moved[["age"]], moved["city"]).rejects
    texts = [
        "".join(rng.choice(list("ab"), 8, p=p)) for p in ((0.5, 0.5), (0.8, 0.2)) for _ in range(90)
    ]
    assert SequentialTwoSampleTest(NGrams(2)).update(texts[:90], texts[90:]).rejects
    X = rng.normal(size=(400, 1))
    circle = np.hypot(1.5, X) * rng.choice([-1, 1], (400, 1)) + 0.1 * rng.normal(size=(400, 1))
    assert SequentialIndependenceTest().update(X, circle).rejects


def test_other_bases_and_kernels() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(300, 2)), rng.normal(0.8, 1, size=(300, 2))
    for options in (
        {"kernel": Gaussian(1.0)},
        {"kernel": Gaussian(), "basis": RandomFourier(60, random_state=0)},
        {"basis": Space(Gaussian(1.0), RandomFourier(60, random_state=0)).fit(X)},
    ):
        assert SequentialTwoSampleTest(**options).update(X, Y).rejects


def test_batches_do_not_change_the_answer() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(330, 2)), rng.normal(0.2, 1, size=(330, 2))
    for made in TESTS:
        once = made().update(X, Y)
        parts, at = made(), 0
        for size in (1, 1, 5, 18, 60, 2, 100, 143):
            answer = parts.update(X[at : at + size], Y[at : at + size])
            at += size
        assert_allclose(answer.log_evalue, once.log_evalue, rtol=1e-9, atol=1e-9)
        assert_allclose(answer.pvalue, once.pvalue, rtol=1e-9)
        assert_allclose(answer.log_evalues, once.log_evalues, rtol=1e-9, atol=1e-9)


def test_unequal_numbers_of_rows_wait() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(100, 2)), rng.normal(0.5, 1, size=(100, 2))
    once, parts = SequentialTwoSampleTest().update(X, Y), SequentialTwoSampleTest()
    assert parts.update(X[:70]).sizes == {"pairs": 0, "x_waiting": 70, "y_waiting": 0}
    assert parts.update(Y=Y[:50]).sizes == {"pairs": 50, "x_waiting": 20, "y_waiting": 0}
    found = parts.update(X[70:], Y[50:])
    assert_allclose(found.log_evalue, once.log_evalue, rtol=1e-9)
    assert parts.update().sizes == found.sizes


def test_what_is_bet_on_does_not_depend_on_which_row_is_whose() -> None:
    """Swapping the rows of the first pairs changes the labels alone: same features, other bets."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(20, 2)), rng.normal(size=(20, 2))
    swap = rng.random(20) < 0.5
    U, V = np.where(swap[:, None], Y, X), np.where(swap[:, None], X, Y)
    tests = [SequentialTwoSampleTest(), SequentialTwoSampleTest()]
    witnesses = [
        test.update(*rows).witness for test, rows in zip(tests, [(X, Y), (U, V)], strict=True)
    ]
    for a, b in zip(witnesses[0].views[0], witnesses[1].views[0], strict=True):
        assert_allclose(a.coordinates(X), b.coordinates(X), atol=1e-7)


def test_records() -> None:
    rng = np.random.default_rng(0)
    found = SequentialTwoSampleTest().update(
        rng.normal(size=(90, 1)), rng.normal(2, 1, size=(90, 1))
    )
    assert found.rejects and found.evalue >= 20 and found.pvalue <= 1 / found.evalue * (1 + 1e-9)
    assert "rejects at the 0.05 level" in repr(found)
    figures = found.to_dict()
    assert figures["pairs"] == 90 and figures["rejects"] is True
    assert found.plot().get_xlabel() == "rows"
    left, right = found.witness([[-1.0], [3.0]])
    assert left > right
    X = rng.normal(size=(200, 1))
    together = SequentialIndependenceTest().update(X, X + 0.3 * rng.normal(size=(200, 1))).witness
    same, other = together([[1.0], [1.0]], [[1.0], [-1.0]])
    assert same > other
    with pytest.raises(TypeError, match="expected 2 arrays"):
        together(X)
    nothing = SequentialTwoSampleTest().result()
    assert nothing.evalue == nothing.pvalue == 1.0 and nothing.witness is None
    huge = SequentialTwoSampleTest().update(
        rng.normal(size=(4000, 1)), rng.normal(9, 1, size=(4000, 1))
    )
    assert huge.log_evalue > 690 and np.isfinite(huge.evalue) and huge.pvalue > 0


def test_stopping_is_the_last_look() -> None:
    rng = np.random.default_rng(0)
    test = SequentialTwoSampleTest()
    before = test.update(rng.normal(size=(40, 1)), rng.normal(0.5, 1, size=(40, 1)))
    assert (
        test.stop(rng=0).pvalue == test.stop(rng=1).pvalue == test.result().pvalue <= before.pvalue
    )
    with pytest.raises(ValueError, match="Start a new one"):
        test.update(rng.normal(size=(40, 1)))


@pytest.mark.slow
def test_level_of_the_last_look() -> None:
    rng, found = np.random.default_rng(0), []
    for seed in range(1000):
        test = SequentialTwoSampleTest()
        test.update(rng.normal(size=(60, 1)), rng.normal(size=(60, 1)))
        found.append(test.stop(rng=seed).pvalue)
    assert np.sum(np.array(found) <= 0.1) <= most_by_chance(1000, 0.1)


@pytest.mark.parametrize("made", TESTS)
def test_bad_batches_change_nothing(made: Any) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(60, 2)), rng.normal(size=(60, 2))
    test = made()
    before = test.update(X, Y)
    hole = X.copy()
    hole[3, 1] = np.nan
    for rows, words in (
        ((hole, Y), "NaN"),
        ((X, hole), "NaN"),
        ((X[:, :1], Y), "features"),
        ((X, np.array(["a"] * 60)), "Y"),
        ((np.inf * X, Y), "X"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            test.update(*rows)
        assert test.result().to_dict() == before.to_dict()
    again = test.update(X, Y)
    assert_allclose(
        again.log_evalue, made().update(*[np.vstack([p, p]) for p in (X, Y)]).log_evalue
    )


def test_pairs_have_as_many_rows() -> None:
    with pytest.raises(ValueError, match="X 9 and Y 10"):
        SequentialIndependenceTest().update(np.zeros((9, 1)), np.zeros((10, 1)))
    with pytest.raises(ValueError, match="alpha"):
        SequentialTwoSampleTest(alpha=2.0).update(np.zeros((9, 1)))


def test_changed_columns_are_refused() -> None:
    test = SequentialTwoSampleTest()
    test.update(FRAME[:30], FRAME[30:60])
    with pytest.raises(ValueError, match="town"):
        test.update(FRAME[:5].rename(columns={"city": "town"}), FRAME[:5])
    assert test.update(FRAME[["city", "age"]][:5], FRAME[:5]).sizes["pairs"] == 35


@pytest.mark.parametrize("made", TESTS)
def test_adversarial_rows(made: Any) -> None:
    """One huge value and constants neither break the test nor blind it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 1))
    Y = X + 0.5 * rng.normal(size=(400, 1)) + (1.0 if made is SequentialTwoSampleTest else 0.0)
    X[2] = X[50] = 1e70
    assert made().update(X, Y).rejects
    flat = made().update(np.ones((200, 2)), np.ones((200, 2)))
    assert flat.evalue == pytest.approx(1.0) and not flat.rejects


@pytest.mark.parametrize("made", TESTS)
def test_files_resume(made: Any, tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(150, 2)), rng.normal(0.3, 1, size=(150, 2))
    test, twin = made(), made()
    for one in (test, twin):
        one.update(X[:70], Y[:70])
    meanmap.save(test, tmp_path / "test.npz")
    loaded = meanmap.load(tmp_path / "test.npz")
    assert loaded.result().to_dict() == test.result().to_dict()
    found, expected = loaded.update(X[70:], Y[70:]), twin.update(X[70:], Y[70:])
    assert found.to_dict() == expected.to_dict()
    meanmap.save(found, tmp_path / "found.npz")
    assert meanmap.load(tmp_path / "found.npz").to_dict() == found.to_dict()


def test_memory_is_constant() -> None:
    """What is kept after 40,000 rows is no more than after 20,000."""
    rng, test, sizes = np.random.default_rng(0), SequentialTwoSampleTest(), []
    for _ in range(2):
        test.update(rng.normal(size=(20_000, 2)), rng.normal(size=(20_000, 2)))
        wealth = test.__dict__["_progress"].wealth
        sizes.append(sum(view.nbytes for view in wealth.waiting) + wealth.path.values.nbytes)
    assert max(sizes) < 600_000
