"""Kernel thinning and compression against the papers' algorithms, and against random points."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from meanmap import embed, mmd
from meanmap.kernels import Delta, Gaussian, Laplace, Linear, NGrams, Precomputed
from meanmap.statistics import Compression, compress, thinning
from oracles.density import kernel_halving, kernel_swap

matplotlib.use("Agg")


@pytest.mark.parametrize("n", [2, 10, 64])
@pytest.mark.parametrize("failure", [0.5, 1e-4])
def test_the_walk_is_kernel_halving(n: int, failure: float) -> None:
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 2))
    X[n // 2 :] = np.round(X[n // 2 :])  # some are equal
    kernel = Gaussian(1.0)
    F = thinning.differences(kernel, X)
    f = np.eye(n)[0::2] - np.eye(n)[1::2]
    assert_allclose(F, f @ kernel(X) @ f.T, atol=1e-12)
    uniform = rng.random((3, n // 2))
    signs = thinning.walk(np.stack([F] * 3), uniform, failure)
    for row, u in zip(signs, uniform, strict=True):
        left, _ = kernel_halving(kernel(X), u, failure)
        assert_array_equal(np.where(row > 0, np.arange(0, n, 2), np.arange(1, n, 2)), left)


def test_halves_of_many_blocks_are_those_of_each() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(96, 3))
    blocks = rng.permutation(96).reshape(6, 16)
    left, right = thinning.halve(Laplace(1.0), X, blocks, np.random.default_rng(1), 0.01)
    uniform = np.random.default_rng(1).random((6, 8))
    for i, block in enumerate(blocks):
        one, other = kernel_halving(Laplace(1.0)(X[block]), uniform[i], 0.01)
        assert_array_equal(left[i], block[one])
        assert_array_equal(right[i], block[other])


def test_a_pass_of_swaps_is_the_papers() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 2))
    w = rng.exponential(size=40)
    w /= w.sum()
    K = Gaussian(1.0)(X)
    start = rng.integers(40, size=6)
    found = start
    for _ in range(thinning.PASSES):
        found = np.array(kernel_swap(K, w, list(found)))
    assert_array_equal(thinning.swap_points(Gaussian(1.0), X, K @ w, start), found)


@pytest.mark.parametrize(
    "p",
    [3, 4, 5, 6, pytest.param(7, marks=pytest.mark.slow), pytest.param(8, marks=pytest.mark.slow)],
)
def test_thinned_points_are_nearer_than_random_ones(p: int) -> None:
    rng = np.random.default_rng(p)
    X = np.concatenate([rng.normal(size=(4**p // 2, 2)), rng.normal(3, 0.5, (4**p // 2, 2))])
    few = compress(X, kernel=Gaussian(1.5), rng=0)
    assert len(few) == 2**p
    e = embed(X, few.kernel)
    random = min(
        float(e.distance(embed(X[rng.integers(len(X), size=len(few))], few.kernel)))
        for _ in range(5)
    )
    standard = float(e.distance(embed(X[:: len(X) // len(few)], few.kernel)))
    # from 1/6 of the best of five at 64 points to 1/40 at 65,536
    assert np.sqrt(few.mmd) < 0.4 * min(random, standard)


def test_the_distance_falls_faster_than_that_of_random_points() -> None:
    X = np.random.default_rng(0).normal(size=(4096, 3))
    sizes = np.array([16, 64, 256])
    roots = [compress(X, int(n), Gaussian(2.0), rng=1).mmd ** 0.5 for n in sizes]
    slope = np.polyfit(np.log(sizes), np.log(roots), 1)[0]
    assert slope < -0.7  # -0.5 for random points


@pytest.mark.parametrize("method", ["thinning", "herding", "random"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_record_tells_its_distance(method: str, weighted: bool) -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(300, 2))
    w = rng.exponential(size=300) if weighted else None
    few = compress(X, 20, weights=w, method=method, rng=3)
    assert isinstance(few, Compression)
    assert_array_equal(few.points, X[few.indices])
    assert_allclose(few.weights, 1 / 20)
    sample = embed(X, few.kernel, None if w is None else w / w.sum())
    assert_allclose(few.mmd, sample.distance(embed(few.points, few.kernel)) ** 2, atol=1e-12)
    assert_allclose(few.mmd, sample.distance(few.embedding()) ** 2, atol=1e-12)
    if not weighted:
        assert_allclose(few.mmd, mmd(X, few.points, few.kernel, "V"), atol=1e-12)
    assert "20 of 300 points" in repr(few) and method in repr(few)
    again = compress(X, 20, weights=w, method=method, rng=3)
    assert_array_equal(few.indices, again.indices)


def test_weights_of_the_sample_count() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(400, 1))
    w = np.exp(-((X[:, 0] - 1) ** 2))
    few = compress(X, 30, Gaussian(1.0), weights=w, rng=0)
    draws = [compress(X, 30, Gaussian(1.0), w, "random", rng=s).mmd for s in range(10)]
    assert few.mmd < 0.1 * min(draws)
    only = compress(X, 4, Gaussian(1.0), weights=np.where(np.arange(400) < 5, 1.0, 0.0), rng=0)
    assert only.indices.max() < 5


def test_better_weights_bring_points_nearer() -> None:
    X = np.random.default_rng(4).normal(size=(500, 2))
    plain, better = (compress(X, 15, reweight=r, rng=0) for r in (False, True))
    assert_array_equal(plain.indices, better.indices)
    assert better.mmd < plain.mmd
    assert_allclose(better.weights.sum(), 1.0)
    assert better.weights.min() >= 0


@settings(max_examples=30, deadline=None)
@given(
    size=st.integers(1, 150),
    share=st.floats(0.01, 1.0),
    method=st.sampled_from(["thinning", "herding", "random"]),
    ties=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_any_number_of_any_points(
    size: int, share: float, method: str, ties: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(size, 2))
    X = np.round(X) if ties else X
    n = max(1, int(share * size))
    few = compress(X, n, weights=rng.exponential(size=size), method=method, rng=seed)
    assert len(few) == n == len(few.points)
    assert few.indices.min() >= 0 and few.indices.max() < size
    assert few.mmd >= 0


@pytest.mark.parametrize("n", [4097, 1025, 3])
def test_more_points_than_are_halved_at_once(n: int) -> None:
    X = np.random.default_rng(0).normal(size=(6001, 1))
    few = compress(X, n, Gaussian(1.0), rng=0)
    assert len(few) == n
    random = compress(X, n, Gaussian(1.0), method="random", rng=1)
    assert few.mmd < random.mmd / 10


def test_other_kinds_of_points() -> None:
    rng = np.random.default_rng(5)
    labels = rng.choice(list("abc"), size=300, p=[0.5, 0.3, 0.2])
    few = compress(labels, 10, Delta(), rng=0)
    found = dict(zip(*np.unique(few.points, return_counts=True), strict=True))
    assert found == {"a": 5, "b": 3, "c": 2} or few.mmd < 5e-3
    words = np.array(["rain", "train", "fog", "frog"] * 10)
    assert len(compress(words, 4, NGrams(2), rng=0)) == 4
    pairs = (rng.normal(size=(100, 2)), labels[:100])
    assert compress(pairs, 9, rng=0).points[1].shape == (9,)
    K = Gaussian(1.0)(pairs[0])
    direct, given_ = compress(pairs[0], 9, Gaussian(1.0), rng=1), None
    given_ = compress(np.arange(100), 9, Precomputed(K), rng=1)
    assert_array_equal(direct.indices, given_.indices)
    assert compress(pairs[0], 9, Linear(), rng=1).mmd < 1e-3
    frame32 = compress(pairs[0].astype(np.float32), 9, Gaussian(1.0), rng=1)
    assert frame32.mmd == pytest.approx(direct.mmd, abs=1e-4)


def test_all_points_equal_and_all_points_taken() -> None:
    same = compress(np.zeros((50, 2)), rng=0)
    assert len(same) == 7 and same.mmd == pytest.approx(0.0, abs=1e-12)
    X = np.random.default_rng(0).normal(size=(20, 1))
    assert compress(X, 20, rng=0).mmd == pytest.approx(0.0, abs=1e-12)
    assert len(compress(X[:1], rng=0)) == 1


def test_pictures() -> None:
    import matplotlib.pyplot as plt

    rng = np.random.default_rng(6)
    for d in (1, 2):
        ax = compress(rng.normal(size=(200, d)), rng=0).plot()
        assert "of 200 points" in ax.get_title()
    plt.close("all")
    with pytest.raises(ValueError, match="one or two coordinates"):
        compress(rng.normal(size=(50, 3)), rng=0).plot()
    with pytest.raises(ValueError, match="one or two coordinates"):
        compress(np.array(list("aabb")), 2, rng=0).plot()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n": 11}, ValueError, "at most the number of points, 10; got 11"),
        ({"n": 0}, ValueError, "whole number ≥ 1"),
        ({"n": 2.5}, ValueError, "whole number ≥ 1"),
        ({"method": "best"}, ValueError, "method must be one of 'thinning', 'herding', 'random'"),
        ({"weights": -np.ones(10)}, ValueError, "weights must not be negative"),
        ({"weights": np.zeros(10)}, ValueError, "zero everywhere"),
        ({"weights": np.ones(9)}, ValueError, "one weight per point"),
        ({"kernel": "gauss"}, TypeError, "expected a kernel"),
        ({"rng": "seed"}, TypeError, "rng must be"),
    ],
)
def test_bad_input(arguments: dict[str, Any], error: type, message: str) -> None:
    X = np.random.default_rng(0).normal(size=(10, 2))
    with pytest.raises(error, match=message):
        compress(X, **arguments)


def test_bad_points() -> None:
    with pytest.raises(ValueError, match="NaN"):
        compress(np.array([[0.0], [np.nan]]))
    with pytest.raises(ValueError, match="empty"):
        compress(np.empty((0, 2)))
