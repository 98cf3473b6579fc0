"""Features chosen by dependence: problems, ways to select, and small runs of the experiment."""

from __future__ import annotations

import json
import sys

import matplotlib
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from meanmap_experiments import Outcome, selecting, selectors
from meanmap_experiments.selecting import NOISE, OURS, PEER, PROBLEMS
from optional_packages import require

matplotlib.use("Agg")
SMALL = selectors.Plan(
    cases=(selectors.Case("XOR", 80, 2), selectors.Case("additive", 60, 1)),
    tables=("wine",),
    splits=2,
    sizes=(4, 2),
    trees=5,
)


@pytest.mark.parametrize("name", PROBLEMS)
def test_problems_are_drawn_by_their_seed(name: str) -> None:
    X, y, k = PROBLEMS[name](150, np.random.default_rng(0))
    assert X.shape == (150, k + NOISE) and y.shape == (150,)
    again = PROBLEMS[name](150, np.random.default_rng(0))
    assert_array_equal(X, again[0])
    assert_array_equal(y, again[1])


def test_labels_follow_from_the_right_columns() -> None:
    rng = np.random.default_rng(1)
    X, y, _ = selecting.rings(400, rng)
    off = np.hypot(X[:, 0], X[:, 1]) - 1 - y
    assert abs(off).max() < 6 * 0.15
    X, y, _ = selecting.orange(400, rng)
    size = (X[:, :4] ** 2).sum(axis=1)
    assert ((size[y == 1] > 9) & (size[y == 1] < 16)).all()
    assert y.sum() == 200


def test_elimination_nests() -> None:
    X, y, _ = selecting.nonlinear(120, np.random.default_rng(2))
    found = selecting.eliminated(selecting.forest(y, 5, 0), X, y, (6, 3))
    assert len(found[6]) == 6 and len(found[3]) == 3
    assert set(found[3]) <= set(found[6])


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return selectors.run(plan=SMALL, seed=1)


@pytest.mark.slow
def test_a_small_run(outcome: Outcome) -> None:
    assert outcome.name == "selectors"
    whole, part, wine = outcome.tables
    assert whole.column("problem") == ("XOR, n = 80", "additive, n = 60")
    for name in OURS:
        assert all(0 <= value <= 1 for value in whole.column(name))
        assert all(w <= p for w, p in zip(whole.column(name), part.column(name), strict=True))
    assert set(OURS) < set(wine.column("method"))
    assert 0.5 < wine.rows[0][1].mean <= 1
    assert json.loads(outcome.to_json())["name"] == "selectors"
    lines = [claim.text for claim in outcome.verdict if claim.text.startswith("wine")]
    assert len(lines) == 2
    assert "every column" in lines[0]


def test_the_verdict_reads_the_figures() -> None:
    plan = selectors.Plan(cases=(selectors.Case("XOR", 50, 2),), tables=())
    methods = [*OURS, selecting.MEDIAN, selecting.FIXED]
    good = {("XOR, n = 50", method): [1.0, 1.0] for method in methods}
    bad = {**good, ("XOR, n = 50", selecting.BACKWARD): [0.5, 1.0]}
    found, missed = (selectors.verdict(plan, known, {})[0] for known in (good, bad))
    assert "runs: XOR, n = 50. Not so: nowhere" in found.text and found.holds is True
    assert "runs: nowhere. Not so: XOR, n = 50 (50%" in missed.text and missed.holds is False


def test_numbers_as_a_target() -> None:
    plan = selectors.Plan(sizes=(2,), trees=3)
    found = selectors.one_split(plan, "diabetes", 0, 0)
    assert all(found[2, method] < 1 for method in OURS)
    assert all(0 <= found["probes", method] <= 1 for method in OURS)
    assert found[2, selecting.ALL] > 0.2


def test_the_same_seed_gives_the_same_figures() -> None:
    cases = (selectors.Case("nonlinear", 60, 1),)
    plan = selectors.Plan(cases=cases, tables=("wine",), splits=1, sizes=(2,), trees=3)
    one, two = (selectors.run(plan=plan, seed=1, n_jobs=n) for n in (None, 2))
    for mine, theirs in zip(one.tables, two.tables, strict=True):
        for a, b in zip(mine.rows, theirs.rows, strict=True):
            end = -1 if "seconds" in mine.headings else None
            assert repr(a[:end]) == repr(b[:end])


@pytest.mark.slow
def test_the_picture(outcome: Outcome) -> None:
    ax = outcome.plot()
    assert len(ax.get_legend().get_texts()) >= 7
    matplotlib.pyplot.close(ax.figure)


def test_without_the_peer_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyHSICLasso", None)
    selecting.installed.cache_clear()
    try:
        found = selectors.run(plan=selectors.Plan(cases=(), tables=()))
        assert "pip install pyHSICLasso" in found.verdict[-1].text
        with pytest.raises(ImportError, match="pip install pyHSICLasso"):
            selecting.hsic_lasso_peer(np.zeros((5, 2)), np.zeros(5, dtype=int), 1)
    finally:
        selecting.installed.cache_clear()


def test_the_peer() -> None:
    require("pyHSICLasso")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 10))
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    found = selecting.ranked(PEER, X, (X[:, 3] > 0).astype(int), 1, 0)
    assert_array_equal(found, [3])
    assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
