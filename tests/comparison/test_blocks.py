"""Block lengths chosen from the data, for tests of time series."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.signal
import scipy.stats
from numpy.testing import assert_allclose

from meanmap import independence_test, two_sample_test
from meanmap.comparison import Block, Wild, blocks
from meanmap.kernels import Delta, Gaussian

NULLS = ("block", "wild")
OBJECTS = {"block": Block, "wild": Wild}
MEDIAN: dict[str, Any] = {"kernel": "median"}


def series(rng: np.random.Generator, n: int, memory: float) -> np.ndarray:
    noise = rng.normal(size=n + 300)
    return scipy.signal.lfilter([1.0], [1.0, -memory], noise)[300:, None]


def length(X: Any, Y: Any, kernel: Any = None) -> int:
    kernel = kernel or Gaussian().resolve(np.concatenate([X, Y]))
    return blocks.length_for_samples("auto", kernel, X, Y)[0]


def length_of_pairs(X: np.ndarray, Y: np.ndarray) -> int:
    kernels = Gaussian().resolve(X), Gaussian().resolve(Y)
    return blocks.length_for_pairs("auto", kernels, X, Y)[0]


@pytest.mark.parametrize("memory", [0.0, 0.3, 0.9, 0.99])
def test_the_autocorrelation_time_of_an_autoregression(memory: float) -> None:
    found = blocks.autocorrelation_time(memory ** np.arange(5000.0))
    assert_allclose(found, (1 + memory) / (1 - memory), rtol=1e-9)


def test_negative_autocorrelations_are_no_memory() -> None:
    assert blocks.autocorrelation_time((-0.9) ** np.arange(500.0)) == 1.0


@pytest.mark.slow
def test_blocks_are_longer_the_longer_the_memory() -> None:
    rng = np.random.default_rng(0)
    found = [
        [
            np.median([measure(series(rng, 2000, m), series(rng, 2000, m)) for _ in range(10)])
            for m in (0.0, 0.5, 0.8, 0.9)
        ]
        for measure in (length, length_of_pairs)
    ]
    # 8 (τ - 1) rows, or those of the cube root: 16, 64 and 144 for single series
    assert found[0][0] <= 4 and found[1][0] <= 4
    assert np.all(np.diff(found, axis=1) > 0)
    assert 11 <= found[0][1] <= 40 and 45 <= found[0][2] <= 130 and 100 <= found[0][3] <= 290
    # products of independent series forget twice as fast
    assert np.all(np.array(found[1])[1:] < np.array(found[0])[1:])


def test_units_and_offsets_do_not_matter() -> None:
    rng = np.random.default_rng(1)
    X, Y = series(rng, 300, 0.7), series(rng, 300, 0.7)
    for scale, offset in ((1e-6, 0.0), (1e6, 0.0), (1.0, 1e4)):
        assert length(scale * X + offset, scale * Y + offset) == length(X, Y)
        assert length_of_pairs(scale * X + offset, Y) == length_of_pairs(X, Y)


def test_a_difference_between_samples_is_no_memory() -> None:
    rng = np.random.default_rng(2)
    X, Y = rng.normal(size=(2, 300, 1))
    assert length(X, Y + 50) <= 10


def test_series_of_labels() -> None:
    rng = np.random.default_rng(3)
    slow = np.repeat(rng.choice(["a", "b", "c"], 100), 10)
    mixed = rng.permutation(slow)
    assert length(slow[:500], slow[500:], Delta()) > 5 * length(mixed[:500], mixed[500:], Delta())


def test_a_constant_series_has_no_memory() -> None:
    X = np.ones((40, 1))
    for null in NULLS:
        assert two_sample_test(X, X, null=null, n_permutations=19, rng=0).pvalue == 1.0
        assert independence_test(X, X, null=null, n_permutations=19, rng=0).pvalue == 1.0


def test_the_length_is_reported_and_auto_is_the_default() -> None:
    rng = np.random.default_rng(4)
    X, Y = series(rng, 200, 0.5), series(rng, 200, 0.5)
    for test in (two_sample_test, independence_test):
        for null in NULLS:
            first = test(X, Y, null=null, n_permutations=19, rng=0)
            second = test(X, Y, null=OBJECTS[null]("auto"), n_permutations=19, rng=0)
            assert first.pvalue == second.pvalue
            assert "chosen from the data" in first.notes[0]
            given = test(X, Y, null=OBJECTS[null](9), n_permutations=19, rng=0)
            assert given.notes == ()


def test_series_that_are_short_for_their_memory_warn() -> None:
    rng = np.random.default_rng(5)
    X, Y = series(rng, 60, 0.95), series(rng, 60, 0.95)
    for test in (two_sample_test, independence_test):
        with pytest.warns(UserWarning, match="short for their memory") as caught:
            test(X, Y, null="block", n_permutations=19, rng=0)
        assert caught[0].filename == __file__
    X, Y = rng.normal(size=(2, 60, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for test in (two_sample_test, independence_test):
            test(X, Y, null="block", n_permutations=19, rng=0)


@pytest.mark.slow
@pytest.mark.parametrize("null", NULLS)
def test_a_slow_series_holds_the_level_with_blocks_chosen_from_the_data(null: str) -> None:
    # blocks of ∛n rows rejected half of these
    rng = np.random.default_rng(6)
    runs, rejected = 60, {"two samples": 0, "independence": 0}
    for _ in range(runs):
        X, Y = series(rng, 200, 0.9), series(rng, 200, 0.9)
        settings: dict[str, Any] = {"null": null, "n_permutations": 39, "rng": rng}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rejected["two samples"] += two_sample_test(X, Y, "median", **settings).rejects()
            rejected["independence"] += independence_test(X, Y, **MEDIAN, **settings).rejects()
    # 7% is what was measured for so short a series
    assert max(rejected.values()) <= scipy.stats.binom.isf(1e-6, runs, 0.07), rejected


@pytest.mark.parametrize("null", NULLS)
def test_blocks_chosen_from_the_data_leave_power(null: str) -> None:
    rng = np.random.default_rng(7)
    X, Y = series(rng, 400, 0.5), series(rng, 400, 0.5)
    assert two_sample_test(X, Y + 1.5, null=null, n_permutations=99, rng=0).pvalue <= 0.02
    assert independence_test(X, Y + X, null=null, n_permutations=99, rng=0).pvalue <= 0.02
