"""Rows in an order that means something get a note."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.signal
import scipy.stats

from meanmap import independence_test, joint_independence_test, two_sample_test
from meanmap.comparison import Block, Groups, Wild
from meanmap.comparison.ordering import looks_ordered

FEW: dict[str, Any] = {"n_permutations": 19, "rng": 0}


def series(rng: np.random.Generator, n: int, memory: float) -> np.ndarray:
    noise = rng.normal(size=n + 200)
    return scipy.signal.lfilter([1.0], [1.0, -memory], noise)[200:, None]


LAWS: dict[str, Any] = {
    "normal": lambda rng, n: rng.normal(size=(n, 3)),
    "heavy tails": lambda rng, n: rng.standard_cauchy((n, 1)),
    "coin": lambda rng, n: (rng.random((n, 1)) < 0.5).astype(float),
    "rare": lambda rng, n: (rng.random((n, 2)) < 0.05).astype(float),
    "whole numbers": lambda rng, n: np.round(0.5 * rng.normal(size=(n, 2))),
    "labels": lambda rng, n: rng.choice(list("abcd"), n, p=[0.6, 0.3, 0.07, 0.03]),
    "constant": lambda rng, n: np.ones((n, 1)),
}


@pytest.mark.parametrize("law", LAWS)
def test_exchangeable_rows_are_not_called_ordered(law: str) -> None:
    # measured at less than 1 in 1000; in rows that are permuted the order means nothing
    rng = np.random.default_rng(0)
    alarms = sum(looks_ordered(LAWS[law](rng, n)) for n in (20, 60, 200) for _ in range(200))
    assert alarms <= scipy.stats.binom.isf(1e-7, 600, 1e-3)


def test_series_and_trends_and_sorted_rows_are_ordered() -> None:
    rng = np.random.default_rng(1)
    n = 200
    noise = rng.normal(size=(n, 1))
    assert looks_ordered(series(rng, n, 0.7))
    assert sum(looks_ordered(series(rng, n, 0.5)) for _ in range(20)) == 20
    assert looks_ordered(np.linspace(0, 3, n)[:, None] + noise)  # a trend in noise
    assert looks_ordered(-np.linspace(0, 3, n)[:, None] + noise)
    assert looks_ordered(np.sort(noise, axis=0))
    assert looks_ordered(np.sort(rng.choice(list("abc"), n)))
    assert looks_ordered(np.hstack([rng.normal(size=(n, 9)), series(rng, n, 0.9)]))
    assert looks_ordered((noise, np.repeat(["u", "v"], n // 2)))
    assert looks_ordered(np.cumsum(rng.normal(size=(200_000, 1)), axis=0))


def test_unrelated_trends_do_not_depend_without_a_word() -> None:
    rng = np.random.default_rng(2)
    time = np.linspace(0, 3, 150)[:, None]
    X, Y = (time + 0.5 * rng.normal(size=time.shape) for _ in range(2))
    with pytest.warns(UserWarning, match="Rows look ordered: neighbouring rows of X, Y") as caught:
        result = independence_test(X, Y, **FEW)
    assert caught[0].filename == __file__
    assert "Rows look ordered" in " ".join(repr(result).split())
    with pytest.warns(UserWarning, match="Rows look ordered"):
        assert joint_independence_test(X, Y, Y[::-1], **FEW).notes
    with pytest.warns(UserWarning, match="neighbouring rows of X, Y"):
        assert two_sample_test(X[:75], X[75:], **FEW).notes


def test_frames_are_looked_at_too() -> None:
    rng = np.random.default_rng(3)
    t = np.linspace(0, 5, 120)
    frame = pd.DataFrame({"a": t + rng.normal(size=120), "b": np.where(t > 2.5, "late", "early")})
    with pytest.warns(UserWarning, match="Rows look ordered"):
        independence_test(frame, t[:, None] + rng.normal(size=(120, 1)), **FEW)


def test_no_note_where_one_variable_is_exchangeable_or_order_is_allowed_for() -> None:
    rng = np.random.default_rng(4)
    X, Y = series(rng, 200, 0.9), series(rng, 200, 0.9)
    groups = np.arange(200) // 20
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [
            independence_test(np.sort(X, axis=0), rng.normal(size=(200, 1)), **FEW),
            independence_test(X, Y, null=Wild(20), **FEW),
            independence_test(X, Y, null=Groups(groups), **FEW),
            two_sample_test(X, Y + 9, null=Block(20), **FEW),
            two_sample_test(X, Y + 9, null=Groups((groups, groups + 20)), **FEW),
            two_sample_test(*rng.normal(size=(2, 200, 1)), **FEW),
        ]
    assert not any("ordered" in note for result in found for note in result.notes)


def test_a_note_without_a_warning_where_nothing_is_claimed() -> None:
    rng = np.random.default_rng(5)
    X = np.sort(rng.normal(size=(100, 1)), axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = two_sample_test(X, X + 1e-9, **FEW)
    assert result.pvalue > 0.05 and "Rows look ordered" in result.notes[0]
