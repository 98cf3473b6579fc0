"""The joint independence test: brute force, level, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from numpy.testing import assert_allclose
from threadpoolctl import threadpool_limits

from meanmap import joint_independence_test
from meanmap.comparison import Full, Permutation, Sequential
from meanmap.kernels import Gaussian, Laplace, NGrams
from meanmap.spaces import Nystroem, PivotedCholesky, RandomFourier
from meanmap.statistics import joint_hsic
from optional_packages import require
from oracles.kernels import gaussian, laplace
from oracles.statistics import joint_minus_product_norm

FAILURE = 1e-6
KERNELS = [Gaussian(0.9), Laplace(0.7), Gaussian(1.5)]


def triple(n: int = 20, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, n, 1))
    return [x, y, x * y + 0.5 * rng.normal(size=(n, 1))]


def coins(n: int, rng: np.random.Generator) -> list[np.ndarray]:
    a, b = rng.integers(2, size=(2, n))
    return [v.astype(str) for v in (a, b, a ^ b)]


def grams(parts: list[np.ndarray]) -> list[np.ndarray]:
    x, y, z = parts
    return [gaussian(x, x, 0.9), laplace(y, y, 0.7), gaussian(z, z, 1.5)]


def test_permutations_are_those_of_the_rows() -> None:
    parts = triple()
    result = joint_independence_test(*parts, kernel=KERNELS, n_permutations=12, rng=5)
    K = grams(parts)
    rng = np.random.default_rng(5)
    expected = []
    for _ in range(12):
        orders = [np.arange(20), rng.permutation(20), rng.permutation(20)]
        moved = [k[np.ix_(order, order)] for k, order in zip(K, orders, strict=True)]
        expected.append(joint_minus_product_norm(moved) ** 2)
    assert_allclose(result.statistic, joint_minus_product_norm(K) ** 2, atol=1e-14)
    assert_allclose(result.null.values, expected, atol=1e-14)
    reached = np.sum(result.null.values >= result.statistic)
    assert_allclose(result.pvalue, (1 + reached) / 13)
    assert result.kernel == tuple(KERNELS)
    assert "3 variables" in result.method


@pytest.mark.parametrize("memory", [1, "1KB", "1GB"])
def test_memory_changes_nothing(memory: Any) -> None:
    parts = triple()
    kept = joint_independence_test(*parts, n_permutations=30, rng=5)
    null = Full(max_memory=memory)
    again = joint_independence_test(*parts, null=null, n_permutations=30, rng=5)
    assert again.pvalue == kept.pvalue
    assert_allclose(again.null.values, kept.null.values, atol=1e-13)


def test_threads_change_nothing() -> None:
    answers = set()
    for threads in (1, 2):
        with threadpool_limits(limits=threads, user_api="blas"):
            answers.add(joint_independence_test(*triple(60), n_permutations=50, rng=1).pvalue)
    assert len(answers) == 1


@pytest.mark.parametrize("basis", [PivotedCholesky(1e-12), Nystroem(60)], ids=str)
def test_coordinates_give_nearly_the_same_test(basis: Any) -> None:
    parts = triple(60)
    wide = [Gaussian(3.0)] * 3
    exact = joint_independence_test(*parts, kernel=wide, n_permutations=99, rng=5)
    found = joint_independence_test(*parts, kernel=wide, n_permutations=99, rng=5, basis=basis)
    assert_allclose(found.statistic, exact.statistic, rtol=0.02)
    assert abs(found.pvalue - exact.pvalue) < 0.05


def test_coordinates_do_not_favour_the_rows_as_they_are() -> None:
    # landmarks among the observed rows would see these rows better than permuted ones
    rng = np.random.default_rng(0)
    narrow = [Gaussian(0.3)] * 3
    rejected = 0
    for _ in range(60):
        parts = [rng.normal(size=(25, 1)) for _ in range(3)]
        rejected += joint_independence_test(
            *parts, kernel=narrow, n_permutations=39, rng=rng, basis=PivotedCholesky()
        ).rejects()
    assert rejected <= scipy.stats.binom.ppf(1 - FAILURE, 60, 0.05)


def test_float32_agrees_within_monte_carlo_error() -> None:
    parts = triple(60)
    double = joint_independence_test(*parts, rng=5, n_permutations=199)
    single = joint_independence_test(
        *(part.astype(np.float32) for part in parts), rng=5, n_permutations=199
    )
    assert abs(single.pvalue - double.pvalue) <= 0.02


def test_what_no_pair_shows() -> None:
    result = joint_independence_test(*coins(80, np.random.default_rng(0)), rng=0)
    assert result.pvalue == 0.001
    assert "the variables depend on each other" in " ".join(repr(result).split())


def test_level() -> None:
    rng = np.random.default_rng(3)
    low, high = scipy.stats.binom.ppf([FAILURE / 4, 1 - FAILURE / 4], 300, 0.05)
    for settings in ({}, {"basis": PivotedCholesky(1e-6)}, {"null": "sequential"}):
        rejected = 0
        for _ in range(300):
            parts = [rng.normal(size=(20, 1)) for _ in range(3)]
            result = joint_independence_test(*parts, n_permutations=39, rng=rng, **settings)
            rejected += result.rejects()
        assert low <= rejected <= high, settings


def test_ties_make_it_conservative() -> None:
    rng = np.random.default_rng(3)
    rejected = sum(
        joint_independence_test(
            *rng.integers(2, size=(3, 20)).astype(str), n_permutations=39, rng=rng
        ).rejects()
        for _ in range(300)
    )
    assert rejected <= scipy.stats.binom.ppf(1 - FAILURE, 300, 0.05)


def test_sequential_testing() -> None:
    rng = np.random.default_rng(0)
    null = joint_independence_test(*rng.normal(size=(3, 30, 1)), rng=0, null="sequential")
    assert null.null.stopped and null.pvalue == 20 / len(null.null)
    x = rng.normal(size=(30, 1))
    clear = joint_independence_test(x, x, x, rng=0, null=Sequential())
    assert clear.pvalue == 0.001
    with pytest.raises(ValueError, match="sequential"):
        joint_independence_test(x, x, x, null=Sequential(Full(alternative="less")))


def test_points_of_several_kinds() -> None:
    rng = np.random.default_rng(0)
    half = np.repeat([0, 1], 15)
    words = ["".join(rng.choice(list(("aab", "abb")[h]), 8)) for h in half]
    frame = pd.DataFrame({"a": rng.normal(size=30), "b": rng.choice(["u", "v"], 30)})
    numbers = half[:, None] + 0.3 * rng.normal(size=(30, 1))
    kernels = [NGrams(2), None, None]
    result = joint_independence_test(words, frame, numbers, kernel=kernels, rng=0)
    assert result.pvalue < 0.05
    expected = joint_hsic(words, frame, numbers, kernels=kernels)
    assert_allclose(result.statistic, expected, rtol=1e-10)
    torch = require("torch")
    mixed = joint_independence_test(words, frame, torch.tensor(numbers), kernel=kernels, rng=0)
    assert mixed.pvalue == result.pvalue


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_constants(dtype: Any) -> None:
    constant = np.full((15, 1), 0.1, dtype=dtype)
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(15, 1)).astype(dtype)
    assert joint_independence_test(constant, Y, rng=0).pvalue == 1.0
    assert joint_independence_test(constant, constant, constant, rng=0).pvalue == 1.0
    # a constant beside two that depend on each other changes nothing
    assert joint_independence_test(constant, Y, Y, rng=0).pvalue < 0.01


def test_two_variables() -> None:
    x, _, z = triple()
    result = joint_independence_test(x, z, rng=0, n_permutations=9)
    assert_allclose(result.statistic, joint_hsic(x, z), atol=1e-14)
    with pytest.raises(TypeError, match="no witness"):
        result.witness(x, z)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"n_permutations": 0}, "n_permutations must be a whole number ≥ 1"),
        ({"null": "block"}, "null must be one of 'permutation', 'sequential'"),
        ({"null": Permutation()}, r"an object of Full, Sequential; got Permutation\("),
        ({"kernel": [Gaussian()]}, "kernel: expected a list of 3, one per variable"),
        ({"kernel": []}, "kernel: expected a list of 3, one per variable"),
        ({"rng": -1}, "rng"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_bad_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        joint_independence_test(*triple(), **arguments)


def test_bad_samples() -> None:
    x, y, z = triple()
    with pytest.raises((TypeError, ValueError), match="Nystroem"):
        joint_independence_test(x, y, z, basis=RandomFourier(10))
    with pytest.raises(ValueError, match="two or more variables, got 1"):
        joint_independence_test(x)
    with pytest.raises(ValueError, match="variable 3 has 19"):
        joint_independence_test(x, y, z[:19])
    with pytest.raises(ValueError, match="expected at least 2 points, got 1"):
        joint_independence_test(x[:1], y[:1], z[:1])
    with pytest.raises(ValueError, match="variable 2 contains NaN"):
        joint_independence_test(x, y * np.nan, z)
