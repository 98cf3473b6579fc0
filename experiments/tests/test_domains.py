"""The experiment on domains not seen, on a tiny plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from meanmap_experiments import domains
from meanmap_experiments.domains import METHODS, POOLED, PRINCIPAL, SUPERVISED, Plan, sample

TINY = Plan(
    runs=1,
    data=("offsets", "turned digits"),
    domains=4,
    rows=25,
    bandwidths=(2.0,),
    multiples=(1.0,),
    components=(2, 5),
    machines=(10.0,),
)


def test_tiny_run() -> None:
    outcome = domains.run(plan=TINY)
    offsets, digits = outcome.tables
    assert offsets.column("method") == METHODS
    accuracy = dict(zip(METHODS, offsets.column("accuracy"), strict=True))
    worst = dict(zip(METHODS, offsets.column("worst domain"), strict=True))
    for method in METHODS:
        assert 0 <= worst[method].mean <= accuracy[method].mean <= 1  # type: ignore[union-attr]
    assert accuracy[SUPERVISED].mean > 0.65  # type: ignore[union-attr]
    assert all(cell.mean > 0.2 for cell in digits.column("accuracy"))  # type: ignore[union-attr]
    assert len(outcome.verdict) == 4
    assert PRINCIPAL in outcome.verdict[0].text
    assert POOLED in outcome.verdict[0].text
    assert outcome.plot().get_ylabel() == "accuracy"


def test_processes_change_nothing() -> None:
    plan = replace(TINY, data=("offsets",), domains=3, rows=15, components=(2,))
    alone, shared = (domains.run(plan=plan, n_jobs=jobs) for jobs in (1, 2))
    assert alone.to_dict()["tables"] == shared.to_dict()["tables"]


def test_data() -> None:
    rng = np.random.default_rng(0)
    for name, columns, classes in (
        ("offsets", 5, 2),
        ("turned clouds", 5, 2),
        ("turned digits", 64, 10),
    ):
        X, y, d = sample(name, TINY, rng)
        assert X.shape == (100, columns)
        assert len(np.unique(y)) == classes
        assert np.bincount(d).tolist() == [25] * 4
    X, _, d = sample("offsets", TINY, rng)
    means = np.stack([X[d == i].mean(axis=0) for i in range(4)])
    assert means[:, 2:4].std(axis=0).min() > means[:, 4].std()
