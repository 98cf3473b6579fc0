"""Forecasts of measured series: each forecaster by itself, and a run on few candidates."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from meanmap_experiments import Figure, series
from meanmap_experiments.series import AIC, KERNELS, LEVEL, METHODS, PERSISTENCE, Plan, Series
from optional_packages import require

TINY = Plan(
    delays=(3,),
    bandwidths=(1.0,),
    regularizations=(1e-4,),
    posteriors=(1e-3,),
    powers=(0.0,),
    orders=9,
)


@pytest.fixture
def statsmodels() -> Any:
    return require("statsmodels")


def wave(n: int = 120, period: int = 10) -> Series:
    x = np.sin(2 * np.pi * np.arange(n) / period)
    return Series("wave", "m", x, 80, period, (1, 3), "a wave without noise")


def test_delays_have_the_newest_first() -> None:
    assert_array_equal(series.delayed(np.arange(5.0), 3), [[2, 1, 0], [3, 2, 1], [4, 3, 2]])


@pytest.mark.parametrize("method", [*KERNELS, "one cycle ago"])
def test_a_wave_is_forecast(method: str) -> None:
    errors, _ = series.assessed(TINY, wave(), method)
    assert errors.shape == (120 - 3 - 79, 2)
    assert np.sqrt(errors.mean()) < 0.15  # the wave's own deviation is 0.7


def test_naive_forecasts() -> None:
    x = np.arange(10.0)
    plain = Series("line", "m", x, 6, 4, (1, 2), "a line")
    naive = {m: next(iter(series.candidates(TINY, plain, m).values())) for m in METHODS[-3:]}
    assert_array_equal(naive[PERSISTENCE](x, 6, (1, 2))[0], [5, 5])
    assert_array_equal(naive["one cycle ago"](x, 6, (1, 2, 5))[0], [2, 3, 2])
    assert_array_equal(naive[LEVEL](x, 6, (1, 2))[0], [2.5, 2.5])
    errors = series.squared_errors(naive[PERSISTENCE], x, 6, (1, 2))
    assert_array_equal(errors, [[1, 4]] * 3)  # origins 5, 6, 7: the last with both horizons


def test_autoregression_is_that_of_statsmodels(statsmodels: Any) -> None:
    from statsmodels.tsa.ar_model import AutoReg

    x = np.random.default_rng(0).normal(size=200).cumsum()
    ours = series.autoregression(3)(x, 150, (1, 2, 5))
    theirs = AutoReg(x[:150], 3).fit().predict(150, 154)
    assert_allclose(ours[0], theirs[[0, 1, 4]])
    moved = AutoReg(x[:150], 3).fit().append(x[150:170]).predict(170, 174)
    assert_allclose(ours[20], moved[[0, 1, 4]])


@pytest.mark.filterwarnings("ignore")  # the changed values lie far from all others
def test_forecasts_do_not_look_ahead(statsmodels: Any) -> None:
    """What follows an origin does not change what was forecast there."""
    given = wave()
    x = given.values + 0.1 * np.random.default_rng(0).normal(size=len(given.values))
    changed = x.copy()
    changed[100:] = 5.0
    for method in METHODS:
        for forecaster in list(series.candidates(TINY, given, method).values())[:3]:
            before = forecaster(x, 80, (1, 3))[:21]  # origins 79 to 99
            after = forecaster(changed, 80, (1, 3))[:21]
            assert_allclose(before, after, atol=1e-8)


def test_blocks_and_roots() -> None:
    errors = np.arange(25.0)[:, None]
    parts = series.blocks(wave(), errors)
    assert_allclose(parts[:, 0], [4.5, 17.0])  # the last five join the second block
    figure = series.rooted(np.array([4.0, 4.0, 4.0]))
    assert (figure.mean, figure.standard_error, figure.runs) == (2, 0, 3)


def test_data(statsmodels: Any) -> None:
    spots, sea = series.sunspots(), series.temperatures()
    assert (len(spots.values), spots.learning) == (309, 221)
    assert (len(sea.values), sea.learning) == (732, 480)
    assert_allclose(sea.known.reshape(-1, 12).mean(axis=0), 0, atol=1e-12)


def test_a_small_run(statsmodels: Any) -> None:
    outcome = series.run(plan=TINY, progress=False)
    errors = [table for table in outcome.tables if table.title.startswith("Error")]
    assert len(errors) == 2
    for table in errors:
        figures = {row[0]: row[1] for row in table.rows}
        assert set(figures) == set(METHODS)
        for method in (*KERNELS, AIC):
            figure, mean = figures[method], figures[LEVEL]
            assert isinstance(figure, Figure) and isinstance(mean, Figure)
            assert figure.mean < 0.7 * mean.mean  # one step ahead there is much to know
    assert "sunspots" in repr(outcome)
    assert outcome.to_json()


def test_without_statsmodels(monkeypatch: pytest.MonkeyPatch) -> None:
    found = builtins.__import__

    def absent(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "statsmodels":
            raise ImportError("No module named 'statsmodels'")
        return found(name, *rest)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ImportError, match="pip install statsmodels"):
        series.run(plan=TINY, progress=False)


@pytest.mark.slow
def test_quick(statsmodels: Any) -> None:
    outcome = series.run(quick=True, progress=False)
    assert outcome.quick
    assert outcome.verdict
