"""The clustering experiment on a tiny plan."""

from __future__ import annotations

import numpy as np
import pytest

from meanmap_experiments import clusters, names
from meanmap_experiments.clusters import (
    KERNEL,
    MEANS,
    Plan,
    grouped,
    in_order,
    ordered_score,
)
from meanmap_experiments.results import Figure

TINY = Plan(
    runs=1, n=70, labels=8, groups=("rings, 1 : 4", "iris"), orders=("noisy circle", "curve")
)


def test_tiny_run() -> None:
    outcome = clusters.run(plan=TINY)
    assert outcome.name in names()
    same, groups, orders = outcome.tables
    assert same.column("least")[1] == 1.0
    found = dict(zip(groups.column("method"), groups.column("rings, 1 : 4"), strict=True))
    assert isinstance(found[KERNEL], Figure)
    assert found[KERNEL].mean == 1.0
    assert found[MEANS].mean < 0.5
    assert orders.column("noisy circle")[0].mean > 0.85  # type: ignore[union-attr]
    assert len(outcome.verdict) == 5
    assert "k-means in 1 of 1 runs" in outcome.verdict[0].text
    again = clusters.run(plan=TINY, n_jobs=2)
    assert again.to_dict()["tables"] == outcome.to_dict()["tables"]
    axes = outcome.plot()
    assert axes.get_ylabel() == "adjusted Rand index"


def test_scores_of_orders() -> None:
    angle = np.linspace(0, 2 * np.pi, 240, endpoint=False)
    labels = (angle / (2 * np.pi) * 12).astype(int)
    for turned in (labels, (labels + 5) % 12, -labels % 12):
        assert ordered_score(turned, angle, 12, True) == pytest.approx(
            np.sin(np.pi / 12) / (np.pi / 12), abs=1e-3
        )
    shuffled = np.random.default_rng(0).permutation(labels)
    assert ordered_score(shuffled, angle, 12, True) < 0.3
    assert ordered_score(11 - labels, angle, 12, False) > 0.99


def test_data() -> None:
    rng = np.random.default_rng(0)
    X, y = grouped("rings, 1 : 3", TINY, rng)
    radius = np.linalg.norm(X, axis=1)
    assert radius[y == 0].max() < 2 < radius[y == 1].min()
    assert grouped("wine", TINY, rng)[0].shape == (142, 13)
    views, angle = in_order("turned digits", TINY, rng)
    assert views.shape == (70, 14 * 14)
    near = np.argsort(abs(np.angle(np.exp(1j * (angle - angle[0])))))
    assert np.linalg.norm(views[near[1]] - views[0]) < np.linalg.norm(views[near[-1]] - views[0])
