"""The unfolding experiment on a tiny plan."""

from __future__ import annotations

import numpy as np
import pytest

from meanmap.kernels import Delta
from meanmap_experiments import names, unfolding
from meanmap_experiments.unfolding import (
    DIGITS,
    METHODS,
    TURNING,
    ColouredPCA,
    Plan,
    asked,
    views,
)

TINY = Plan(runs=1, digits=120, views=80, neighbours=(6, 10), stiffness=(1.0,), folds=2)


@pytest.mark.slow
def test_tiny_run() -> None:
    outcome = unfolding.run(plan=TINY)
    assert outcome.name in names()
    assert [table.column("map") for table in outcome.tables] == [METHODS, METHODS]
    digits, turning = outcome.tables
    for cell in digits.column("accuracy of the class, held out"):
        assert 0.1 < cell.mean <= 1  # type: ignore[union-attr]
    for cell in turning.column("error of the angle (degrees), held out"):
        assert 0 < cell.mean < 90  # type: ignore[union-attr]
    assert len(outcome.verdict) == 5
    again = unfolding.run(plan=TINY, n_jobs=2)
    assert again.to_dict()["tables"] == outcome.to_dict()["tables"]
    assert outcome.plot().get_xlabel() == "trustworthiness"
    assert {DIGITS, TURNING} < set(outcome.settings)


def test_neighbours_are_asked() -> None:
    angle = np.linspace(0, 2 * np.pi, 100, endpoint=False)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    assert -5 < asked(circle, circle) < 0
    shuffled = np.random.default_rng(0).permutation(circle)
    assert asked(circle, shuffled) < -50
    classes = (angle // np.pi).astype(int)
    assert asked(circle, classes) > 0.9
    assert asked(circle[::2], classes[::2], circle[1::2], classes[1::2]) > 0.9


def test_coloured_pca_finds_the_coloured_direction() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=200)
    X = rng.normal(size=(200, 4)) * [5, 1, 1, 1]
    X[:, 2] += 3 * y
    first = ColouredPCA(Delta()).fit(X, y).directions[:, 0]
    assert abs(first[2]) > 0.9
    assert ColouredPCA(Delta()).fit(X, y).transform(X).shape == (200, 2)


def test_views_turn_smoothly() -> None:
    turn = np.linspace(0, 2 * np.pi, 73)
    X = views(turn, np.zeros(73), np.random.default_rng(0), noise=0.0)
    assert X.shape == (73, 400)
    assert np.allclose(X[0], X[-1], atol=1e-6) or np.linalg.norm(X[0] - X[-1]) < 0.3 * np.sqrt(400)
    apart = np.linalg.norm(X - X[0], axis=1)
    assert apart[1] < apart[18:55].min()
    assert X.std() == pytest.approx(1.0, rel=0.1)
