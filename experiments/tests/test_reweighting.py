"""The experiment on weights for rows and targets, on a tiny plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from meanmap_experiments import reweighting, shifted_samples
from meanmap_experiments.reweighting import Plan
from meanmap_experiments.shifted_samples import (
    BIASES,
    SHIFTS,
    black_box,
    breast_cancer_split,
    digits_split,
    likeliest,
    numbers_split,
    toy_regression,
)
from meanmap_experiments.weighted_fits import CORRECTIONS, MATCHING, NONE, TEXTBOOK, TRUE

TINY = Plan(
    runs=2,
    biases=("one feature",),
    toys=(100,),
    digits_runs=1,
    shifts=("one class half",),
    noises=(0.0,),
    numbers_runs=2,
    numbers=("bent line",),
    folds=2,
)


def test_tiny_run() -> None:
    outcome = reweighting.run(plan=TINY)
    rows, targets, errors, squared, above, shares, adjusted, refitted, covered = outcome.tables
    assert rows.column("weights") == (MATCHING, TEXTBOOK) * 2
    toy = [row for row in rows.rows if row[0] == "toy, 100 rows"]
    assert toy[0][2].mean > 0.7  # type: ignore[union-attr]
    assert all(cell.mean > 0.6 for cell in targets.column("correlation"))  # type: ignore[union-attr]
    line = dict(zip(errors.headings, errors.rows[-1], strict=True))
    assert line[MATCHING].mean < 0.7 * line[NONE].mean  # type: ignore[union-attr]
    assert line[TRUE].mean < 0.7 * line[NONE].mean  # type: ignore[union-attr]
    assert squared.column("model") == ("line", "kernel ridge")
    assert above.rows[-1][2].mean < -0.3  # type: ignore[union-attr]
    assert above.rows[-1][-1] == "0%"
    found = dict(zip(shares.column("proportions"), shares.column("one class half"), strict=True))
    for method in CORRECTIONS[1:-1]:
        assert found[method].mean < 0.6 < found[NONE].mean  # type: ignore[union-attr]
    for table in (adjusted, refitted):
        assert all(c.mean > 0.85 for c in table.column("one class half"))  # type: ignore[union-attr]
    assert covered.column("one class half")[0].mean > 0.3  # type: ignore[union-attr]
    assert len(outcome.verdict) == 11
    assert "of 3 cases" in outcome.verdict[1].text
    grid = outcome.plot()
    assert grid.shape == (2, 2)
    assert grid[1, 0].get_xlabel() == "L1 error"


def test_processes_change_nothing() -> None:
    plan = replace(TINY, biases=(), shifts=(), numbers=())
    alone, shared = (reweighting.run(plan=plan, n_jobs=jobs) for jobs in (1, 2))
    assert alone.to_dict()["tables"] == shared.to_dict()["tables"]


def test_ratios_are_those_of_the_distributions() -> None:
    """Weighted by the ratio, kept rows stand for all that could have been kept."""
    rng = np.random.default_rng(0)
    for bias in BIASES:
        plain, weighted, ones = [], [], []
        for _ in range(200):
            X, y, T, z, ratio = breast_cancer_split(bias, rng, column=0)
            assert len(X) == len(y) == len(ratio)
            assert len(T) == len(z) == 284
            plain.append(y.mean())
            weighted.append(ratio @ y / len(y))
            ones.append(ratio.mean())
        benign = 357 / 569
        assert abs(np.mean(ones) - 1) < 0.08
        assert abs(np.mean(weighted) - benign) < 0.04 < abs(np.mean(plain) - benign)


def test_toy_has_its_moments() -> None:
    X, y, T, z, ratio = toy_regression(np.random.default_rng(0), 20000)
    assert abs(np.average(X[:, 0], weights=ratio)) < 0.02
    assert abs(np.average(X[:, 0] ** 2, weights=ratio) - 0.09) < 0.01
    assert abs(np.average(y, weights=ratio) - z.mean()) < 0.03
    assert abs(T.std() - 0.3) < 0.01


def test_digits_have_the_proportions() -> None:
    rng = np.random.default_rng(0)
    for shift in SHIFTS:
        X, y, T, z, p = digits_split(shift, rng)
        assert X.shape == (600, 64)
        assert T.shape == (200, 64)
        assert p.sum() == pytest.approx(1)
        assert abs(np.bincount(z, minlength=10) / 200 - p).max() < 0.2
        rows = {row.tobytes() for row in X}
        assert sum(row.tobytes() in rows for row in T) <= 1  # none twice, but for equal pictures
    with pytest.raises(ValueError, match="no shift 'some'"):
        digits_split("some", rng)
    with pytest.raises(ValueError, match="no bias 'some'"):
        breast_cancer_split("some", rng)
    with pytest.raises(ValueError, match="no data 'some'"):
        numbers_split("some", rng)


def test_numbers_have_the_ratio() -> None:
    rng = np.random.default_rng(0)
    for name in shifted_samples.NUMBERS:
        draws = [numbers_split(name, rng) for _ in range(60)]
        means = [np.average(y, weights=ratio) for _, y, _, _, ratio, _ in draws]
        truth = draws[0][-1]
        assert abs(np.mean(means) - truth) < 0.1
        assert abs(np.mean([z.mean() for *_, z, _, _ in draws]) - truth) < 0.1


def test_baselines_on_classes_far_apart() -> None:
    """Where a classifier makes no mistakes both count the test rows."""
    rng = np.random.default_rng(0)
    y, z = np.repeat([0, 1, 2], 20), np.repeat([0, 1, 2], [5, 10, 25])
    X, T = (10.0 * np.eye(3)[v] + rng.normal(size=(len(v), 3)) for v in (y, z))
    model = LogisticRegression()
    assert black_box(model, X, y, T) == pytest.approx([0.125, 0.25, 0.625])
    table = model.fit(X, y).predict_proba(T)
    assert likeliest(table, np.full(3, 1 / 3)) == pytest.approx([0.125, 0.25, 0.625], abs=1e-2)
