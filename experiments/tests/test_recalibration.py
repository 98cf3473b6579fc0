"""The experiment on other gains and offsets, on a tiny plan."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from meanmap_experiments import recalibration
from meanmap_experiments.recalibration import (
    CASES,
    CHANGED,
    CLASSES,
    MANY,
    METHODS,
    MOVED,
    NUMBERS,
    ONE,
    SAME,
    TRUTH,
    UNTOUCHED,
    Plan,
    covariance_matched,
    moments,
    planar,
    sample,
)

TINY = Plan(draws=1, classes=(80, 160), numbers=(60,), splits=2, data=("wine",), searches=1)


@pytest.fixture(scope="module")
def outcome() -> recalibration.Outcome:
    return recalibration.run(plan=TINY)


@pytest.mark.slow
def test_tiny_run(outcome: recalibration.Outcome) -> None:
    classes, numbers, wine = outcome.tables
    assert len(classes.rows) == 2 * len(CASES)
    assert len(numbers.rows) == len(CASES)
    assert all(cell.mean > 0 for cell in classes.column("error of W"))  # type: ignore[union-attr]
    assert set(numbers.column("W, with labels")) == {None}
    assert wine.column("training rows") == METHODS
    for case in CASES:
        right = dict(zip(METHODS, wine.column(", ".join(case)), strict=True))
        assert all(0 <= figure.mean <= 1 for figure in right.values())  # type: ignore[union-attr]
        assert right[TRUTH].mean > 0.85  # type: ignore[union-attr]
    assert len(outcome.verdict) == 2 * len(CASES) + len(CASES)
    assert "goes with n to the power" in outcome.verdict[0].text
    assert UNTOUCHED in outcome.verdict[-1].text
    assert MOVED in outcome.verdict[-1].text
    assert outcome.plot().get_ylabel() == "share of drifted rows right"


def test_processes_change_nothing() -> None:
    plan = Plan(draws=1, classes=(60,), numbers=(), splits=1, data=("iris",), searches=1)
    alone, shared = (recalibration.run(plan=plan, n_jobs=jobs) for jobs in (1, 2))
    assert alone.to_dict()["tables"] == shared.to_dict()["tables"]


@pytest.mark.parametrize("kind", [CLASSES, NUMBERS])
@pytest.mark.parametrize(("drift", "share"), CASES)
def test_known_lines(kind: str, drift: str, share: str) -> None:
    X, y, T, hidden, (W, B), middle = planar(kind, drift, share, 4000, np.random.default_rng(0))
    assert X.shape == T.shape == W.shape == B.shape == middle.shape == (4000, 2)
    assert len(y) == len(hidden) == 4000
    assert (len(np.unique(W[:, 0])) == 1) == (drift == ONE)
    back = (T - B) / W - middle  # noise about the middle, nothing else
    assert abs(back.mean(axis=0)).max() < 0.06  # more than four standard errors, 0.8/√4000
    assert (abs(y.mean() - hidden.mean()) > 0.1) == (share == CHANGED)


def test_drifted_measurements() -> None:
    for name, columns, classes in (("wine", 13, 3), ("iris", 4, 3), ("breast cancer", 30, 2)):
        one, many = (sample(name, d, SAME, np.random.default_rng(1)) for d in (ONE, MANY))
        assert one.X.shape[1] == one.T.shape[1] == columns
        assert_allclose(one.X, many.X)
        assert one.gain.shape == many.offset.shape == (classes, columns)
        assert np.ptp(one.gain, axis=0).max() == 0 < np.ptp(many.gain, axis=0).min()
        undone = (many.T - many.offset[many.hidden]) / many.gain[many.hidden]
        same = (one.T - one.offset[one.hidden]) / one.gain[one.hidden]
        assert_allclose(undone, same, rtol=1e-9, atol=1e-9)
        fewer = sample(name, ONE, CHANGED, np.random.default_rng(1))
        left = np.bincount(fewer.hidden) / np.bincount(one.hidden)
        assert_allclose(sorted(left)[0], 0.2, atol=0.03)
        assert max(left) == 1


def test_matched_moments() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)) @ rng.normal(size=(3, 3))
    T = 5 + rng.normal(size=(400, 3)) @ rng.normal(size=(3, 3))
    for there in (moments(X, T), covariance_matched(X, T)):
        assert_allclose(there.mean(axis=0), T.mean(axis=0), atol=1e-9)
    assert_allclose(moments(X, T).std(axis=0), T.std(axis=0), rtol=1e-9)
    gap = np.cov(covariance_matched(X, T).T) - np.cov(T.T)
    assert np.linalg.norm(gap) < 0.1 * np.linalg.norm(np.cov(T.T))  # 0.01 is added to both
