"""The maximum mean discrepancy: closed forms, loops, peers, laws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from meanmap import embed, mmd
from meanmap.kernels import (
    Columns,
    Delta,
    Energy,
    Gaussian,
    Laplace,
    Linear,
    Matern,
    NGrams,
    Polynomial,
    Precomputed,
    Trace,
)
from meanmap.spaces import Explicit, Nystroem, PivotedCholesky, RandomFourier
from meanmap.statistics import tiles
from meanmap.statistics.distance import pair_terms, row_by_row
from optional_packages import require
from oracles.kernels import gaussian, laplace
from oracles.normals import gaussian_mmd_squared
from oracles.statistics import energy_distance, mmd_estimate

ESTIMATORS = ["U", "V", "linear", "block", "incomplete"]


def samples(n: int = 23, m: int = 17, d: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), 1.3 * rng.normal(size=(m, d)) + 0.4


def labels(n: int, m: int) -> np.ndarray:
    return np.repeat([1, 0], [n, m])


# --- loops ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("sizes", [(2, 2), (3, 5), (23, 17), (16, 16)], ids=str)
def test_mmd_is_the_loop_over_pairs(estimator: str, sizes: tuple[int, int]) -> None:
    X, Y = samples(*sizes)
    K = gaussian(np.vstack([X, Y]), np.vstack([X, Y]), 0.9)
    expected = mmd_estimate(K, labels(*sizes), estimator)
    assert_allclose(mmd(X, Y, Gaussian(0.9), estimator), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("size", [1, 2, 5, 16, 40])
def test_sizes_of_blocks_and_of_partners(size: int) -> None:
    X, Y = samples(16, 19)
    K = gaussian(np.vstack([X, Y]), np.vstack([X, Y]), 0.9)
    expected = mmd_estimate(K, labels(16, 19), "incomplete", min(size, 15))
    assert_allclose(mmd(X, Y, Gaussian(0.9), "incomplete", size=size), expected, atol=1e-13)
    if size >= 2:
        expected = mmd_estimate(K, labels(16, 19), "block", min(size, 16))
        assert_allclose(mmd(X, Y, Gaussian(0.9), "block", size=size), expected, atol=1e-13)


def test_all_partners_are_the_whole_u_statistic_of_h() -> None:
    X, Y = samples(12, 12)
    whole = mmd(X, Y, Gaussian(0.9), "block", size=12)
    assert_allclose(mmd(X, Y, Gaussian(0.9), "incomplete", size=11), whole, atol=1e-13)


def test_terms_are_many_and_average_to_the_estimate() -> None:
    X, Y = samples(16, 19)
    for estimator, many in (("linear", 8), ("block", 24), ("incomplete", 15 + 14 + 13 + 12)):
        found = pair_terms(Gaussian(0.9), X, Y, estimator).values
        assert found.shape == (many,)
        assert_allclose(found.mean(), mmd(X, Y, Gaussian(0.9), estimator), atol=1e-15)


def test_row_by_row_is_the_diagonal() -> None:
    X, Y = samples(200, 200)
    assert_allclose(row_by_row(Laplace(0.7), X, Y), np.diag(laplace(X, Y, 0.7)), atol=1e-14)


def test_v_is_the_squared_distance_of_the_embeddings() -> None:
    X, Y = samples()
    distance = embed(X, Matern(2.5, 0.8)).distance(embed(Y, Matern(2.5, 0.8)))
    assert_allclose(mmd(X, Y, Matern(2.5, 0.8), "V"), distance**2, rtol=1e-10)


def test_the_bandwidth_is_resolved_on_both_samples_together() -> None:
    X, Y = samples()
    pooled = Gaussian("scaled median").resolve(np.vstack([X, Y]))
    assert mmd(X, Y) == mmd(X, Y, pooled)
    assert_allclose(mmd(X, Y), mmd(Y, X), rtol=1e-12)


@pytest.mark.parametrize("estimator", ["U", "V"])
def test_tiles_make_no_difference(monkeypatch: pytest.MonkeyPatch, estimator: str) -> None:
    X, Y = samples(61, 47)
    whole = mmd(X, Y, Gaussian(0.9), estimator)
    assert_allclose(
        whole,
        mmd_estimate(
            gaussian(np.vstack([X, Y]), np.vstack([X, Y]), 0.9), labels(61, 47), estimator
        ),
        atol=1e-13,
    )
    monkeypatch.setattr(tiles, "SIDE", 7)
    assert_allclose(mmd(X, Y, Gaussian(0.9), estimator), whole, atol=1e-14)


def test_more_points_than_a_tile_has_rows() -> None:
    X, Y = samples(1100, 700, seed=3)
    K = [Gaussian(0.9)(A, B) for A, B in ((X, X), (Y, Y), (X, Y))]
    off = [(k.sum() - np.trace(k)) / (len(k) * (len(k) - 1)) for k in K[:2]]
    assert_allclose(mmd(X, Y, Gaussian(0.9)), sum(off) - 2 * K[2].mean(), atol=1e-13)


# --- closed forms ---------------------------------------------------------------------------------


def test_the_expectation_under_gaussians() -> None:
    # U is unbiased; the bar is six standard errors of the mean over 400 runs
    rng = np.random.default_rng(0)
    truth = gaussian_mmd_squared([0.0, 0.0], np.eye(2), [0.5, 0.0], 2 * np.eye(2), 1.0)
    values = np.array(
        [
            mmd(
                rng.normal(size=(60, 2)),
                [0.5, 0.0] + 2**0.5 * rng.normal(size=(80, 2)),
                Gaussian(1.0),
            )
            for _ in range(400)
        ]
    )
    error = values.std() / 20
    assert abs(values.mean() - truth) < 6 * error
    assert error < 0.1 * truth


def test_many_points_reach_the_closed_form() -> None:
    rng = np.random.default_rng(1)
    truth = gaussian_mmd_squared([0.0], [[1.0]], [1.0], [[0.25]], 0.7)
    X, Y = rng.normal(size=(2000, 1)), 1.0 + 0.5 * rng.normal(size=(2000, 1))
    for estimator, bar in (("U", 0.02), ("V", 0.02), ("linear", 0.1), ("incomplete", 0.03)):
        assert abs(mmd(X, Y, Gaussian(0.7), estimator) - truth) < bar, estimator


def test_energy_distance_is_twice_the_squared_mmd() -> None:
    X, Y = samples(31, 18, 3)
    assert_allclose(2 * mmd(X, Y, Energy(), "V"), energy_distance(X, Y), atol=1e-10, rtol=0)
    # wherever the origin lies
    moved = 2 * mmd(X, Y, Energy((3.0, -1.0, 2.0)), "V")
    assert_allclose(moved, energy_distance(X, Y), atol=1e-10, rtol=0)


def test_linear_kernel_is_the_distance_of_the_means() -> None:
    X, Y = samples(d=3)
    gap = X.mean(axis=0) - Y.mean(axis=0)
    assert_allclose(mmd(X, Y, Linear(), "V"), gap @ gap, rtol=1e-12)
    # "U" takes off what the means' own noise adds
    noise = sum(part.var(axis=0, ddof=1).sum() / len(part) for part in (X, Y))
    assert_allclose(mmd(X, Y, Linear(), "U"), gap @ gap - noise, rtol=1e-12)


def test_delta_kernel_is_the_distance_of_the_tables() -> None:
    X, Y = np.array(list("aabbbc")), np.array(list("abccc"))
    p, q = np.array([2, 3, 1]) / 6, np.array([1, 1, 3]) / 5
    assert_allclose(mmd(X, Y, estimator="V"), ((p - q) ** 2).sum(), rtol=1e-14)


# --- peers ----------------------------------------------------------------------------------------


def test_agrees_with_dcor() -> None:
    dcor = require("dcor")
    X, Y = samples(40, 30, 3)
    # constant between: dcor's energy distance is 2 MMD²
    assert_allclose(2 * mmd(X, Y, Energy(), "V"), dcor.energy_distance(X, Y), atol=1e-8, rtol=0)


def test_agrees_with_hyppo() -> None:
    hyppo = require("hyppo.ksample")
    X, Y = samples(40, 30, 3)
    # between the two: hyppo multiplies the root of a distance covariance by c = (n + m)⁴/2n²m²,
    # which makes √(c E) of the energy distance E = 2 MMD²
    c = 70**4 / (2 * 40**2 * 30**2)
    theirs = hyppo.Energy(bias=True).statistic(X, Y)
    assert_allclose(2 * mmd(X, Y, Energy(), "V"), theirs**2 / c, atol=1e-8, rtol=0)


# --- coordinates ----------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ["U", "V"])
def test_coordinates_agree(estimator: str) -> None:
    X, Y = samples(60, 50)
    exact = mmd(X, Y, Gaussian(1.0), estimator)
    found = mmd(X, Y, Gaussian(1.0), estimator, basis=PivotedCholesky(1e-13))
    assert_allclose(found, exact, atol=1e-9)
    assert_allclose(
        mmd(X, Y, Polynomial(3), estimator, basis=Explicit()),
        mmd(X, Y, Polynomial(3), estimator),
        rtol=1e-9,
    )
    # features: the mean error of 2,000 frequencies is about 1/√2000 of a pair, less of a mean
    features = mmd(X, Y, Gaussian(1.0), estimator, basis=RandomFourier(2000, random_state=0))
    assert abs(features - exact) < 0.02


def test_the_error_falls_with_rank() -> None:
    X, Y = samples(150, 150)
    exact = mmd(X, Y, Gaussian(0.5), "V")
    errors = [
        abs(mmd(X, Y, Gaussian(0.5), "V", basis=Nystroem(r, random_state=0)) - exact)
        for r in (5, 40, 300)
    ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-9


# --- kinds of points ------------------------------------------------------------------------------


def test_precision_of_float32() -> None:
    X, Y = samples(300, 200, 5)
    for estimator in ("U", "V"):
        exact = mmd(X, Y, Gaussian(2.0), estimator)
        single = mmd(X.astype(np.float32), Y.astype(np.float32), Gaussian(2.0), estimator)
        assert abs(single - exact) < 2e-6, estimator


def test_frames_labels_strings_matrices_tuples_indices() -> None:
    X, Y = samples()
    value = mmd(X, Y)
    columns = ["a", "b"]
    assert mmd(pd.DataFrame(X, columns=columns), pd.DataFrame(Y, columns=columns)) == value
    assert_allclose(mmd(X.tolist(), Y.tolist()), value, rtol=1e-14)

    words = ["tea", "tree", "trees", "eat"], ["rest", "trees", "stress"]
    K = NGrams(2)(words[0] + words[1])
    expected = mmd_estimate(K, labels(4, 3))
    assert_allclose(mmd(*words, kernel=NGrams(2)), expected, atol=1e-13)

    mixed = pd.DataFrame({"x": X[:, 0], "c": np.where(X[:, 1] > 0, "u", "v")})
    other = pd.DataFrame({"x": Y[:, 0], "c": np.where(Y[:, 1] > 0, "u", "v")})
    pairs = tuple(
        (table["x"].to_numpy()[:, None], table["c"].to_numpy().astype(str))
        for table in (mixed, other)
    )
    columns = Columns({"x": Gaussian(), "c": Delta()})
    assert_allclose(mmd(mixed, other, columns), mmd(*pairs), rtol=1e-12)

    turns = np.stack([[[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]] for a in X[:, 0]])
    assert_allclose(
        mmd(turns[:10], turns[10:], Trace(), "V"),
        ((turns[:10].mean(axis=0) - turns[10:].mean(axis=0)) ** 2).sum(),
        rtol=1e-12,
    )

    pooled = np.vstack([X, Y])
    gram = Precomputed(gaussian(pooled, pooled, 0.9))
    indices = np.arange(len(X)), np.arange(len(X), len(pooled))
    assert_allclose(mmd(*indices, kernel=gram), mmd(X, Y, Gaussian(0.9)), atol=1e-14)


def test_tensors_in() -> None:
    torch = require("torch")
    X, Y = samples()
    value = mmd(torch.tensor(X), torch.tensor(Y))
    assert isinstance(value, float)
    assert_allclose(value, mmd(X, Y), rtol=1e-12)
    assert_allclose(mmd(torch.tensor(X), Y), mmd(X, Y), rtol=1e-12)


def test_a_function_is_a_kernel() -> None:
    X, Y = samples(6, 5)
    assert_allclose(mmd(X, Y, lambda x, y: float(x @ y)), mmd(X, Y, Linear()), rtol=1e-12)


# --- laws -----------------------------------------------------------------------------------------

KERNELS = [Gaussian(0.8), Laplace(1.1), Energy(), Matern(1.5, 0.6)]
kernel = st.sampled_from(KERNELS)
shapes = st.tuples(st.integers(2, 12), st.integers(2, 12), st.integers(1, 3))
law = settings(max_examples=25, deadline=None, derandomize=True)


def drawn(shape: tuple[int, int, int], seed: int) -> tuple[np.ndarray, np.ndarray]:
    n, m, d = shape
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.standard_t(3, size=(m, d))


@law
@given(kernel, shapes, st.integers(0, 1000))
def test_law_symmetric(k: Any, shape: tuple[int, int, int], seed: int) -> None:
    X, Y = drawn(shape, seed)
    for estimator in ("U", "V"):
        assert_allclose(mmd(X, Y, k, estimator), mmd(Y, X, k, estimator), atol=1e-12)


@law
@given(kernel, shapes, st.integers(0, 1000))
def test_law_v_is_not_negative_and_zero_for_one_sample(
    k: Any, shape: tuple[int, int, int], seed: int
) -> None:
    X, Y = drawn(shape, seed)
    assert mmd(X, Y, k, "V") >= -1e-13
    assert abs(mmd(X, X[::-1], k, "V")) < 1e-12
    # the same distribution from copies of its points
    assert abs(mmd(X, np.vstack([X, X]), k, "V")) < 1e-12


@law
@given(kernel, shapes, st.integers(0, 1000))
def test_law_order_makes_no_difference(k: Any, shape: tuple[int, int, int], seed: int) -> None:
    X, Y = drawn(shape, seed)
    rng = np.random.default_rng(seed)
    for estimator in ("U", "V"):
        moved = mmd(rng.permutation(X), rng.permutation(Y), k, estimator)
        assert_allclose(moved, mmd(X, Y, k, estimator), atol=1e-12)


@law
@given(kernel, shapes, st.integers(0, 1000), st.floats(-50, 50))
def test_law_translation(k: Any, shape: tuple[int, int, int], seed: int, by: float) -> None:
    X, Y = drawn(shape, seed)
    for estimator in ("U", "V"):
        moved = mmd(X + by, Y + by, k, estimator)
        assert_allclose(moved, mmd(X, Y, k, estimator), atol=1e-9)


@law
@given(shapes, st.integers(0, 1000), st.floats(0.01, 100))
def test_law_energy_scales(shape: tuple[int, int, int], seed: int, by: float) -> None:
    X, Y = drawn(shape, seed)
    assert_allclose(mmd(by * X, by * Y, Energy()), by * mmd(X, Y, Energy()), rtol=1e-9, atol=1e-9)


@law
@given(shapes, st.integers(0, 1000), st.floats(0.1, 10))
def test_law_linear_in_the_kernel(shape: tuple[int, int, int], seed: int, by: float) -> None:
    X, Y = drawn(shape, seed)
    both = by * Gaussian(1.0) + Laplace(0.5)
    expected = by * mmd(X, Y, Gaussian(1.0)) + mmd(X, Y, Laplace(0.5))
    assert_allclose(mmd(X, Y, both), expected, atol=1e-12)


# --- bad input ------------------------------------------------------------------------------------


def test_one_point_has_no_unbiased_estimate_but_a_distance() -> None:
    X, Y = samples()
    for estimator in ("U", "linear", "block", "incomplete"):
        with pytest.raises(ValueError, match="Y: expected at least 2 points, got 1"):
            mmd(X, Y[:1], estimator=estimator)
    assert_allclose(mmd([[0.0]], [[1.0]], Gaussian(1.0), "V"), 2 - 2 * np.exp(-0.5), rtol=1e-14)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"estimator": "W"}, "estimator must be one of 'U', 'V'"),
        ({"estimator": "block", "size": 1}, "size must be a whole number ≥ 2"),
        ({"estimator": "incomplete", "size": 0}, "size must be a whole number ≥ 1"),
        ({"estimator": "linear", "basis": PivotedCholesky()}, "no form in coordinates"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        mmd(*samples(), **arguments)


def test_bad_samples() -> None:
    X, Y = samples()
    with pytest.raises(ValueError, match="Y has 3 features, but X has 2"):
        mmd(X, np.ones((5, 3)))
    bad = Y.copy()
    bad[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"Y contains NaN or infinity in 1 of 17 rows .* row 3"):
        mmd(X, bad)
    with pytest.raises(ValueError, match="X is empty"):
        mmd(X[:0], Y)
    with pytest.raises(TypeError, match="expected a kernel"):
        mmd(X, Y, 3.0)
    with pytest.raises(ValueError, match="shape"):
        mmd(np.array(["a", "b"]), np.array([["a", "b"]]), Delta())
