"""HSIC and related measures: closed forms, loops, peers, laws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from meanmap import embed, hsic
from meanmap.kernels import (
    Columns,
    Delta,
    Energy,
    Gaussian,
    Laplace,
    Linear,
    NGrams,
    Precomputed,
    Trace,
)
from meanmap.spaces import Explicit, PivotedCholesky
from meanmap.statistics import dependence, joint, joint_hsic, tiles
from optional_packages import require
from oracles.kernels import gaussian, laplace
from oracles.statistics import (
    distance_covariance_squared,
    hsic_estimate,
    joint_minus_product_norm,
    table_hsic,
)

ESTIMATORS = ["U", "V", "normalized"]


def pairs(n: int = 20, seed: int = 0, d: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X[:, :1] ** 2 + 0.5 * rng.normal(size=(n, 1))


def grams(X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return gaussian(X, X, 0.9), laplace(Y, Y, 0.7)


# --- loops ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("n", [4, 5, 20])
def test_hsic_is_the_loop(estimator: str, n: int) -> None:
    X, Y = pairs(n)
    expected = hsic_estimate(*grams(X, Y), estimator)
    assert_allclose(hsic(X, Y, Gaussian(0.9), Laplace(0.7), estimator), expected, atol=1e-13)


def test_quadruples_one_by_one() -> None:
    # the oracle itself against the definition: all quadruples of distinct rows
    from itertools import permutations

    K, L = grams(*pairs(6))
    every = [
        K[i, j] * (L[i, j] + L[q, r] - 2 * L[i, q]) for i, j, q, r in permutations(range(6), 4)
    ]
    assert_allclose(hsic_estimate(K, L, "U"), np.mean(every), atol=1e-14)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_tiles_make_no_difference(monkeypatch: pytest.MonkeyPatch, estimator: str) -> None:
    X, Y = pairs(53)
    whole = hsic(X, Y, Gaussian(0.9), Laplace(0.7), estimator)
    monkeypatch.setattr(tiles, "SIDE", 8)
    assert_allclose(hsic(X, Y, Gaussian(0.9), Laplace(0.7), estimator), whole, atol=1e-14)


def test_more_rows_than_a_tile_has() -> None:
    X, Y = pairs(1100)
    K, L = Gaussian(0.9)(X), Laplace(0.7)(Y)
    K, L = (k - k.mean(axis=0) - k.mean(axis=1)[:, None] + k.mean() for k in (K, L))
    assert_allclose(hsic(X, Y, Gaussian(0.9), Laplace(0.7), "V"), np.mean(K * L), atol=1e-13)


def test_v_is_the_norm_of_the_centred_operator() -> None:
    X, Y = pairs(40)
    joint = embed((X, Y), (Gaussian(0.9), Laplace(0.7)), basis=PivotedCholesky(1e-13))
    expected = joint.norm(centered=True) ** 2
    assert_allclose(hsic(X, Y, Gaussian(0.9), Laplace(0.7), "V"), expected, rtol=1e-7)


# --- closed forms ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "counts",
    [[[3, 1], [2, 4]], [[5, 0], [0, 5]], [[2, 4], [3, 6]], [[1, 2, 3], [4, 0, 2]]],
    ids=str,
)
def test_tables_under_delta_kernels(counts: list[list[int]]) -> None:
    table = np.array(counts)
    x, y = (np.repeat(index.ravel(), table.ravel()) for index in np.indices(table.shape))
    P = table / table.sum()
    found = hsic(x, y, Delta(), Delta(), "V")
    assert_allclose(found, table_hsic(P), atol=1e-15)
    if table.shape == (2, 2):  # all four differences have one size
        determinant = P[0, 0] * P[1, 1] - P[0, 1] * P[1, 0]
        assert_allclose(found, 4 * determinant**2, atol=1e-15)
        # and "normalized" is the squared phi coefficient
        scale = np.prod(P.sum(axis=0)) * np.prod(P.sum(axis=1))
        phi = hsic(x, y, Delta(), Delta(), "normalized")
        assert_allclose(phi, determinant**2 / scale, atol=1e-14)


def test_linear_kernels_give_the_squared_covariance() -> None:
    X, Y = pairs(30)
    C = np.cov(X.T, Y.T, ddof=0)[:2, 2:]
    assert_allclose(hsic(X, Y, Linear(), Linear(), "V"), (C**2).sum(), rtol=1e-11)
    x, y = X[:, :1], Y
    r = np.corrcoef(x[:, 0], y[:, 0])[0, 1]
    assert_allclose(hsic(x, y, Linear(), Linear(), "normalized"), r**2, rtol=1e-11)


def test_energy_kernels_give_the_distance_covariance() -> None:
    X, Y = pairs(30)
    expected = distance_covariance_squared(X, Y)
    assert_allclose(4 * hsic(X, Y, Energy(), Energy(), "V"), expected, atol=1e-10, rtol=0)
    correlation = expected / np.sqrt(
        distance_covariance_squared(X, X) * distance_covariance_squared(Y, Y)
    )
    assert_allclose(hsic(X, Y, Energy(), Energy(), "normalized"), correlation, atol=1e-10, rtol=0)


def test_u_is_unbiased() -> None:
    # 300 samples of eight rows; the mean must lie within six standard errors of the truth, which is
    # 0 for independent rows and the table's own HSIC for the rest
    rng = np.random.default_rng(0)
    values = [hsic(*rng.normal(size=(2, 8, 1)), Gaussian(1.0), Gaussian(1.0)) for _ in range(300)]
    assert abs(np.mean(values)) < 6 * np.std(values) / 300**0.5
    P = np.array([[0.4, 0.1], [0.2, 0.3]])
    cells = [rng.choice(4, size=8, p=P.ravel()) for _ in range(300)]
    values = [hsic(c // 2, c % 2, Delta(), Delta()) for c in cells]
    assert abs(np.mean(values) - table_hsic(P)) < 6 * np.std(values) / 300**0.5


# --- peers ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_agrees_with_dcor() -> None:
    dcor = require("dcor")
    X, Y = pairs(40)
    # constants between: dCov² = 4 HSIC for both estimators, dCor² = HSIC normalised
    for theirs, ours in (
        (dcor.distance_covariance_sqr(X, Y), 4 * hsic(X, Y, Energy(), Energy(), "V")),
        (dcor.u_distance_covariance_sqr(X, Y), 4 * hsic(X, Y, Energy(), Energy(), "U")),
        (dcor.distance_correlation_sqr(X, Y), hsic(X, Y, Energy(), Energy(), "normalized")),
    ):
        assert_allclose(ours, theirs, atol=1e-8, rtol=0)


def test_agrees_with_hyppo() -> None:
    hyppo = require("hyppo.independence")
    X, Y = pairs(40)
    k = Gaussian(0.9)
    gamma = 1 / (2 * 0.9**2)
    # constant between: 1. hyppo's HSIC is normalised, by the estimator of its numerator; where that
    # is the biased one it is the square root of ours
    theirs = hyppo.Hsic(bias=True, gamma=gamma).statistic(X, Y)
    assert_allclose(hsic(X, Y, k, k, "normalized"), theirs**2, atol=1e-8, rtol=0)
    theirs = hyppo.Hsic(bias=False, gamma=gamma).statistic(X, Y)
    ours = hsic(X, Y, k, k) / np.sqrt(hsic(X, X, k, k) * hsic(Y, Y, k, k))
    assert_allclose(ours, theirs, atol=1e-8, rtol=0)
    theirs = hyppo.Dcorr(bias=True).statistic(X, Y)
    assert_allclose(hsic(X, Y, Energy(), Energy(), "normalized"), theirs**2, atol=1e-8, rtol=0)


# --- coordinates ----------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_coordinates_agree(estimator: str) -> None:
    X, Y = pairs(60)
    kx, ky = Gaussian(1.2), Gaussian(0.9)
    exact = hsic(X, Y, kx, ky, estimator)
    fine = PivotedCholesky(1e-13)
    assert_allclose(hsic(X, Y, kx, ky, estimator, basis=fine), exact, atol=1e-8)
    # a basis for one variable, and none for the other
    assert_allclose(hsic(X, Y, kx, ky, estimator, basis=(fine, None)), exact, atol=1e-6)
    found = hsic(X, Y, Linear(), Linear(), estimator, basis=Explicit())
    assert_allclose(found, hsic(X, Y, Linear(), Linear(), estimator), rtol=1e-9)


# --- several variables ----------------------------------------------------------------------------


def test_joint_hsic_of_two_is_hsic() -> None:
    X, Y = pairs(30)
    kernels = [Gaussian(0.9), Laplace(0.7)]
    expected = hsic(X, Y, *kernels, "V")
    assert_allclose(joint_hsic(X, Y, kernels=kernels), expected, atol=1e-14)


def test_joint_hsic_is_the_dense_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = pairs(30)
    Z = np.random.default_rng(3).normal(size=(30, 1))
    kernels = [Gaussian(0.9), Laplace(0.7), Gaussian(1.5)]
    K = [gaussian(X, X, 0.9), laplace(Y, Y, 0.7), gaussian(Z, Z, 1.5)]
    expected = joint_minus_product_norm(K) ** 2
    assert_allclose(joint_hsic(X, Y, Z, kernels=kernels), expected, atol=1e-14)
    monkeypatch.setattr(joint, "TILE", 100)  # three rows at a time
    monkeypatch.setattr(dependence, "memory_limit", lambda value: 100)
    assert_allclose(joint_hsic(X, Y, Z, kernels=kernels), expected, atol=1e-14)


def test_joint_hsic_sees_what_no_pair_shows() -> None:
    a, b = np.indices((2, 2)).reshape(2, 4).repeat(5, axis=1)
    coins = [v.astype(str) for v in (a, b, a ^ b)]
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert abs(hsic(coins[first], coins[second], estimator="V")) < 1e-15
    # P is 1/4 on four of eight cells, the product 1/8 on all
    assert_allclose(joint_hsic(*coins), 8 / 64, rtol=1e-14)


# --- kinds of points ------------------------------------------------------------------------------


def test_precision_of_float32() -> None:
    X, Y = pairs(600, d=5)
    single = X.astype(np.float32), Y.astype(np.float32)
    for estimator in ESTIMATORS:
        exact = hsic(X, Y, Gaussian(2.0), Gaussian(1.0), estimator)
        found = hsic(*single, Gaussian(2.0), Gaussian(1.0), estimator)
        assert_allclose(found, exact, rtol=0.01, err_msg=estimator)
    exact = joint_hsic(X, Y, kernels=[Gaussian(2.0), Gaussian(1.0)])
    assert_allclose(joint_hsic(*single, kernels=[Gaussian(2.0), Gaussian(1.0)]), exact, rtol=0.01)


def test_kinds_of_points() -> None:
    X, Y = pairs(20)
    value = hsic(X, Y)
    assert_allclose(hsic(pd.DataFrame(X, columns=["a", "b"]), Y.tolist()), value, rtol=1e-14)

    words = ["tea", "tree", "eat", "trees", "rest"] * 4
    K = NGrams(2)(words)
    expected = hsic_estimate(K, gaussian(Y, Y, 0.5))
    assert_allclose(hsic(words, Y, NGrams(2), Gaussian(0.5)), expected, atol=1e-12)

    mixed = pd.DataFrame({"x": X[:, 0], "c": np.where(X[:, 1] > 0, "u", "v")})
    tuples = (X[:, :1], mixed["c"].to_numpy().astype(str))
    columns = Columns({"x": Gaussian(), "c": Delta()})
    assert_allclose(hsic(mixed, Y, columns), hsic(tuples, Y), rtol=1e-12)
    assert hsic(mixed, Y, estimator="normalized") <= 1

    turns = np.stack([[[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]] for a in X[:, 0]])
    expected = hsic(turns.reshape(20, 4), Y, Linear(), Gaussian(0.5))
    assert_allclose(hsic(turns, Y, Trace(), Gaussian(0.5)), expected, rtol=1e-12)

    gram = Precomputed(gaussian(X, X, 0.9))
    expected = hsic(X, Y, Gaussian(0.9), Gaussian(0.5))
    assert_allclose(hsic(np.arange(20), Y, gram, Gaussian(0.5)), expected, atol=1e-14)


def test_tensors_in() -> None:
    torch = require("torch")
    X, Y = pairs()
    value = hsic(torch.tensor(X), torch.tensor(Y))
    assert isinstance(value, float)
    assert_allclose(value, hsic(X, Y), rtol=1e-12)
    assert_allclose(joint_hsic(torch.tensor(X), Y), joint_hsic(X, Y), rtol=1e-12)


# --- laws -----------------------------------------------------------------------------------------

kernel = st.sampled_from([Gaussian(0.8), Laplace(1.1), Energy(), Linear()])
law = settings(max_examples=25, deadline=None, derandomize=True)
sizes = st.integers(4, 15)
seeds = st.integers(0, 1000)


@law
@given(kernel, kernel, sizes, seeds)
def test_law_symmetric(kx: Any, ky: Any, n: int, seed: int) -> None:
    X, Y = pairs(n, seed)
    for estimator in ESTIMATORS:
        found = hsic(Y, X, ky, kx, estimator)
        assert_allclose(found, hsic(X, Y, kx, ky, estimator), atol=1e-11)


@law
@given(kernel, kernel, sizes, seeds)
def test_law_v_is_not_negative_and_normalized_at_most_one(
    kx: Any, ky: Any, n: int, seed: int
) -> None:
    X, Y = pairs(n, seed)
    assert hsic(X, Y, kx, ky, "V") >= -1e-13
    assert -1e-12 <= hsic(X, Y, kx, ky, "normalized") <= 1 + 1e-12
    assert_allclose(hsic(X, X, kx, kx, "normalized"), 1.0, atol=1e-9)


@law
@given(kernel, kernel, sizes, seeds)
def test_law_order_of_rows_makes_no_difference(kx: Any, ky: Any, n: int, seed: int) -> None:
    X, Y = pairs(n, seed)
    order = np.random.default_rng(seed).permutation(n)
    for estimator in ESTIMATORS:
        moved = hsic(X[order], Y[order], kx, ky, estimator)
        assert_allclose(moved, hsic(X, Y, kx, ky, estimator), atol=1e-11)
    moved = joint_hsic(X[order], Y[order], X[order, :1], kernels=[kx, ky, kx])
    assert_allclose(moved, joint_hsic(X, Y, X[:, :1], kernels=[kx, ky, kx]), atol=1e-10)


@law
@given(kernel, kernel, sizes, seeds, st.floats(-20, 20))
def test_law_translation(kx: Any, ky: Any, n: int, seed: int, by: float) -> None:
    # the linear kernel too: centring takes the means off
    X, Y = pairs(n, seed)
    for estimator in ESTIMATORS:
        moved = hsic(X + by, Y, kx, ky, estimator)
        assert_allclose(moved, hsic(X, Y, kx, ky, estimator), rtol=1e-7, atol=1e-9)


@law
@given(kernel, sizes, seeds)
def test_law_a_constant_depends_on_nothing(k: Any, n: int, seed: int) -> None:
    X, _ = pairs(n, seed)
    constant = np.full((n, 1), 0.1)
    for estimator in ("U", "V"):
        assert abs(hsic(constant, X, k, k, estimator)) < 1e-12
    assert abs(hsic(constant, X, k, k, "normalized")) < 1e-6
    assert abs(joint_hsic(constant, X[:, :1], kernels=[k, k])) < 1e-12


# --- bad input ------------------------------------------------------------------------------------


def test_a_constant_in_single_precision() -> None:
    constant = np.full((30, 1), 0.1, dtype=np.float32)
    Y = np.random.default_rng(0).normal(size=(30, 1)).astype(np.float32)
    for k in (Gaussian(1.0), Energy(), Linear()):
        assert abs(hsic(constant, Y, k, k, "normalized")) < 1e-2, k
        assert abs(hsic(constant, constant, k, k, "normalized")) < 1e-2, k


def test_too_few_rows() -> None:
    X, Y = pairs()
    with pytest.raises(ValueError, match="X and Y: expected at least 4 points, got 3"):
        hsic(X[:3], Y[:3])
    assert hsic(X[:2], Y[:2], estimator="V") >= 0
    with pytest.raises(ValueError, match="X and Y: expected at least 2 points, got 1"):
        hsic(X[:1], Y[:1], estimator="V")
    with pytest.raises(ValueError, match="variable 1 and variable 2: expected at least 2 points"):
        joint_hsic(X[:1], Y[:1])


def test_bad_arguments() -> None:
    X, Y = pairs()
    with pytest.raises(ValueError, match="estimator must be one of 'U', 'V', 'normalized'"):
        hsic(X, Y, estimator="linear")
    with pytest.raises(ValueError, match="X has 20, Y has 19"):
        hsic(X, Y[:19])
    with pytest.raises(ValueError, match=r"basis: expected one, or a tuple \(x, y\), got 3"):
        hsic(X, Y, basis=(None, None, None))
    with pytest.raises(ValueError, match="Y contains NaN or infinity in 20 of 20 rows"):
        hsic(X, Y * np.nan)
    with pytest.raises(ValueError, match="two or more variables, got 1"):
        joint_hsic(X)
    with pytest.raises(ValueError, match="kernels: expected a list of 2, one per variable, got a"):
        joint_hsic(X, Y, kernels=(Gaussian(),) * 3)
    with pytest.raises(
        ValueError, match="kernels: expected a list of 2, one per variable, got Gau"
    ):
        joint_hsic(X, Y, kernels=Gaussian())
    with pytest.raises(ValueError, match="variable 1 has 20, variable 2 has 20, variable 3 has 3"):
        joint_hsic(X, Y, X[:3])
