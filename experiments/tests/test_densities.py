"""Densities against peers: the data, the truth, and a run on a tiny plan."""

from __future__ import annotations

import matplotlib
import numpy as np
import pytest

from meanmap_experiments import Figure, densities
from meanmap_experiments.densities import METHODS, Plan
from meanmap_experiments.geyser import eruptions

matplotlib.use("Agg")

TINY = Plan(
    runs=2,
    n=30,
    dimensions=(1, 2),
    known=("mixture",),
    tables=("geyser",),
    splits=2,
    tests=100,
    most=2,
    held=0.85,
)


@pytest.mark.parametrize("name", densities.FULL.known)
def test_known_densities_integrate_to_one(name: str) -> None:
    x = np.linspace(-40, 40, 1601)
    grid = np.stack(np.meshgrid(x, x), axis=-1).reshape(-1, 2) + 0.01
    with np.errstate(divide="ignore"):
        total = np.exp(densities.log_truth(name, grid)).sum() * (x[1] - x[0]) ** 2
    # the tails of t with 4 degrees reach beyond
    assert total == pytest.approx(1.0, abs=2e-3 if name == "heavy tails" else 1e-3)


@pytest.mark.parametrize("name", densities.FULL.known)
@pytest.mark.parametrize("d", [2, 4])
def test_draws_are_those_of_the_density(name: str, d: int) -> None:
    """E p(X)^-1 1(X in a box) is the box's volume."""
    X = densities.drawn(name, 200_000, d, np.random.default_rng(0))
    low, high = np.quantile(X, 0.3, axis=0), np.quantile(X, 0.6, axis=0)
    if name == "ring":  # inside it there is nothing
        low[:2], high[:2] = (2.5, -1.0), (3.3, 1.0)
    inside = (np.greater(X, low) & np.less(X, high)).all(axis=1)
    values = np.where(inside, np.exp(-densities.log_truth(name, X)), 0.0)
    volume = np.prod(high - low)
    assert values.mean() == pytest.approx(volume, abs=6 * values.std() / 200_000**0.5)


def test_the_geyser_is_that_of_the_books() -> None:
    X = eruptions()
    assert X.shape == (272, 2)
    assert np.corrcoef(X.T)[0, 1] == pytest.approx(0.9008112, abs=1e-7)
    np.testing.assert_allclose(X.mean(axis=0), [3.487783, 70.897059], atol=1e-6)


def test_tables_have_at_most_ten_columns() -> None:
    shapes = [densities.columns(name).shape for name in densities.FULL.tables]
    assert shapes == [(272, 2), (150, 4), (442, 9), (569, 10), (178, 10)]


def test_a_tiny_run() -> None:
    found = densities.run(plan=TINY, seed=1)
    assert found.name == "densities"
    mixture = found.tables[0]
    assert mixture.column("method") == METHODS
    for cell in mixture.column("d = 2"):
        assert isinstance(cell, Figure) and np.isfinite(cell.mean)
    assert any("geyser (272 × 2)" in table.headings for table in found.tables)
    assert len(found.verdict) == 17
    job = (TINY, "mixture", 2, 0, 1)
    assert densities.one(*job) == densities.one(*job)
    ax = found.plot()
    assert len(ax.get_legend().get_texts()) == 7
