"""Coordinates: ψ(x)·ψ(x') is the kernel, the residual is what is said, and errors are bounded."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from meanmap import ApproximationWarning, spaces
from meanmap.kernels import (
    Constant,
    Delta,
    Function,
    Gaussian,
    Kernel,
    Laplace,
    Linear,
    Matern,
    Polynomial,
    Precomputed,
    RationalQuadratic,
    Trace,
)
from meanmap.spaces import Explicit, PivotedCholesky, Space


def sample(seed: int, n: int, d: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d))


GRAM = Laplace(1.0)(sample(9, 25))
MATRICES = np.random.default_rng(8).normal(size=(40, 3, 3))
WORDS = np.array(["ash", "beech", "cedar"])[np.random.default_rng(7).integers(0, 3, size=40)]

# name: a resolved kernel and a sample
KERNELS: dict[str, tuple[Kernel, Any]] = {
    "gaussian": (Gaussian(1.5), sample(0, 120)),
    "laplace": (Laplace(1.0), sample(1, 60)),
    "matern": (Matern(2.5, 1.0), sample(2, 60)),
    "rational-quadratic": (RationalQuadratic(1.0, 1.0), sample(3, 60)),
    "polynomial": (Polynomial(3), sample(4, 60)),
    "linear": (Linear(), sample(5, 60, 4)),
    "sum": (Gaussian(2.0) + 1, sample(6, 60)),
    "delta": (Delta(), WORDS),
    "trace": (Trace(), MATRICES),
    "precomputed": (Precomputed(GRAM), np.arange(25)),
    "function": (Function(lambda x, y: np.exp(-abs(x - y).max())), sample(7, 20, 1)),
    "pair": (Gaussian(1.5) @ Delta(), (sample(8, 40), WORDS)),
}


@pytest.fixture(params=KERNELS)
def case(request: pytest.FixtureRequest) -> tuple[Kernel, Any]:
    return KERNELS[request.param]


def relative_residual(kernel: Kernel, points: Any, Z: np.ndarray, w: Any = None) -> float:
    """Σ wᵢ (k(xᵢ, xᵢ) - ‖ψ(xᵢ)‖²) / Σ wᵢ k(xᵢ, xᵢ), by its definition."""
    diagonal = np.diag(kernel(points))
    w = np.ones(len(diagonal)) if w is None else np.asarray(w)
    return float(w @ (diagonal - (Z**2).sum(axis=1)) / (w @ diagonal))


def greedy(K: np.ndarray, tol: float, max_rank: int | None = None) -> np.ndarray:
    """Pivoted incomplete Cholesky as the textbooks have it: a column at a time, largest first."""
    n = len(K)
    L, residual = np.zeros((n, 0)), np.diag(K).copy()
    total = residual.sum()
    while residual.sum() > tol * total and L.shape[1] < (max_rank or n):
        p = int(np.argmax(residual))
        column = (K[:, p] - L @ L[p]) / np.sqrt(residual[p])
        L = np.column_stack([L, column])
        residual = np.maximum(residual - column**2, 0.0)
    return L


# --- pivoted Cholesky on its sample --------------------------------------------------------------


@pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-10])
def test_coordinates_give_the_kernel_on_the_sample(case: tuple[Kernel, Any], tol: float) -> None:
    kernel, points = case
    space = Space(kernel, PivotedCholesky(tol=tol))
    Z = space.fit_transform(points)
    K = kernel(points)
    assert Z.shape == (len(K), space.rank_)
    assert space.residual_ <= tol
    # each residual is at most their sum, and |K - ZZᵀ|ᵢⱼ at most the root of two residuals
    bound = space.residual_ * np.trace(K) + 1e-12 * K.max()
    assert abs(K - Z @ Z.T).max() <= bound


@pytest.mark.parametrize("tol", [1e-1, 1e-3, 1e-6])
def test_residual_is_the_relative_residual_trace(case: tuple[Kernel, Any], tol: float) -> None:
    kernel, points = case
    space = Space(kernel, PivotedCholesky(tol=tol))
    Z = space.fit_transform(points)
    truth = relative_residual(kernel, points, Z)
    assert space.residual_ == pytest.approx(truth, rel=1e-6, abs=1e-13)


@pytest.mark.parametrize("tol", [1e-3, 1e-10])
def test_transforming_the_sample_again_gives_the_same_coordinates(
    case: tuple[Kernel, Any], tol: float
) -> None:
    kernel, points = case
    space = Space(kernel, PivotedCholesky(tol=tol))
    Z = space.fit_transform(points)
    # a coordinate is a residual over the root of its pivot's: rounding grows as 1/√tol
    assert_allclose(space.transform(points), Z, atol=1e-9 * np.sqrt(kernel(points).max()) + 1e-10)


def test_residual_falls_and_rank_grows_with_the_tolerance() -> None:
    X = sample(0, 200)
    K = Gaussian(1.0)(X)
    ranks, errors = [], []
    for tol in (1e-1, 1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12):
        space = Space(Gaussian(1.0), PivotedCholesky(tol=tol)).fit(X)
        ranks.append(space.rank_)
        Z = space.transform(X)
        errors.append(abs(K - Z @ Z.T).max())
    assert ranks == sorted(ranks)
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-9


def test_tolerance_zero_goes_to_the_numerical_rank() -> None:
    X = sample(1, 40)
    space = Space(Gaussian(1.0), PivotedCholesky(tol=0)).fit(X)
    Z = space.transform(X)
    assert space.rank_ <= 40
    assert_allclose(Z @ Z.T, Gaussian(1.0)(X), atol=1e-13)


@pytest.mark.parametrize("n", [300, 900])
@pytest.mark.parametrize("tol", [1e-10, 0.03])
def test_of_full_rank_pivots_have_no_later_coordinates(n: int, tol: float) -> None:
    """L is triangular to rounding, and K = ΨΨᵀ but for the residual."""
    X, kernel = sample(2, n, 10), Gaussian(2.0)
    space = Space(kernel, PivotedCholesky(tol))
    Z = space.fit_points(X)
    K, L = kernel(X), space.map_.factor
    assert (space.rank_ == n) == (tol < 0.01)
    assert_allclose(L, np.tril(L), atol=1e-14)
    assert_allclose(L @ L.T, kernel(space.map_.points), atol=1e-13)
    assert_allclose(space.transform(X), Z, atol=1e-11)
    left = (K - Z @ Z.T).diagonal()
    assert left.min() > -1e-13
    assert_allclose(left.mean(), space.residual_, atol=1e-13)
    assert abs(K - Z @ Z.T).max() <= left.max() + 1e-13


# --- off the sample ------------------------------------------------------------------------------


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-8])
@pytest.mark.parametrize("kernel", [Gaussian(1.0), Laplace(1.0), Polynomial(3)], ids=repr)
def test_error_off_the_sample_is_bounded_by_the_residuals(kernel: Kernel, tol: float) -> None:
    """|k(x, x') - ψ(x)·ψ(x')| ≤ √(r(x) r(x')) with r(x) = k(x, x) - ‖ψ(x)‖² ≥ 0."""
    X, Q = sample(2, 150), 1.5 * sample(3, 80)
    space = Space(kernel, PivotedCholesky(tol=tol)).fit(X)
    Z, K = space.transform(Q), kernel(Q)
    r = np.diag(K) - (Z**2).sum(axis=1)
    noise = 1e-10 * K.max()
    assert r.min() >= -noise
    error = abs(K - Z @ Z.T)
    assert (error <= np.sqrt(np.outer(np.maximum(r, 0), np.maximum(r, 0))) + noise).all()


def test_inside_the_sample_the_error_off_it_is_of_order_root_tol() -> None:
    X, Q = sample(4, 500), 0.7 * sample(5, 100)
    for tol in (1e-4, 1e-8, 1e-12):
        Z = Space(Gaussian(1.5), PivotedCholesky(tol=tol)).fit(X).transform(Q)
        assert abs(Gaussian(1.5)(Q) - Z @ Z.T).max() <= np.sqrt(tol)


def test_coordinates_are_a_projection() -> None:
    """‖ψ(x)‖² ≤ k(x, x): equal on the pivots' span, nothing far away."""
    X = sample(6, 50)
    space = Space(Gaussian(1.0), PivotedCholesky(tol=1e-8)).fit(X)
    far = space.transform(np.array([[100.0, 100.0]]))
    assert_array_equal(far, np.zeros_like(far))
    assert_allclose(space.support(X), 1.0, atol=1e-5)
    assert space.support([100.0, 100.0]) == 0.0
    grid = space.support(3 * sample(7, 200))
    assert grid.min() >= 0
    assert grid.max() <= 1 + 1e-9


# --- the rank ------------------------------------------------------------------------------------


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-6, 1e-8, 1e-10])
@pytest.mark.parametrize("kernel", [Gaussian(1.0), Gaussian(3.0), Matern(2.5, 2.0)], ids=repr)
def test_rank_is_that_of_the_greedy_version(kernel: Kernel, tol: float) -> None:
    X = sample(8, 300)
    rank = Space(kernel, PivotedCholesky(tol=tol)).fit(X).rank_
    assert rank <= 1.2 * greedy(kernel(X), tol).shape[1] + 3


def test_rank_of_an_exactly_low_rank_kernel() -> None:
    X = sample(9, 200)
    for kernel, rank in [(Polynomial(2), 6), (Linear(), 2), (Constant(2.0), 1), (Linear() + 1, 3)]:
        space = Space(kernel, PivotedCholesky()).fit(X)
        assert space.rank_ == rank
        assert space.residual_ < 1e-12


def test_a_capped_rank_warns_and_beats_greedy() -> None:
    """Far below the numerical rank greedy pivoting chases outliers; drawn pivots do not."""
    X = np.random.default_rng(10).standard_t(3, size=(1500, 2))
    kernel = Gaussian(0.4)
    with pytest.warns(ApproximationWarning, match="rank 60 leaves"):
        space = Space(kernel, PivotedCholesky(max_rank=60)).fit(X)
    assert space.rank_ == 60
    L = greedy(kernel(X), 0.0, max_rank=60)
    of_greedy = relative_residual(kernel, X, L)
    assert space.residual_ == pytest.approx(
        relative_residual(kernel, X, space.transform(X)), rel=1e-6
    )
    assert space.residual_ < 0.75 * of_greedy


def test_the_warning_names_the_error_and_the_remedy() -> None:
    with pytest.warns(ApproximationWarning) as caught:
        space = Space(Gaussian(0.1), PivotedCholesky(max_rank=5)).fit(sample(11, 100))
    text = str(caught[0].message)
    assert f"{space.residual_:.2g}" in text
    assert "max_rank" in text
    assert "tol=" in text


def test_no_warning_where_the_tolerance_is_met() -> None:
    X = sample(12, 100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Space(Gaussian(1.0), PivotedCholesky(tol=1e-3, max_rank=60)).fit(X)
        Space(Gaussian(0.1)).fit(X)  # all n pivots: the rank is not capped
        Space(Linear(), PivotedCholesky(max_rank=2)).fit(X)


def test_the_default_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meanmap.spaces.cholesky.MAX_RANK", 30)
    with pytest.warns(ApproximationWarning, match="rank 30"):
        assert Space(Gaussian(0.1), PivotedCholesky()).fit(sample(13, 100)).rank_ == 30
    assert Space(Gaussian(0.1), PivotedCholesky()).fit(sample(13, 20)).rank_ <= 20


def test_fitting_is_deterministic_and_leaves_the_global_generator_alone() -> None:
    X = sample(14, 300)
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    first, second = (Space(Gaussian(0.5)).fit_transform(X) for _ in range(2))
    assert_array_equal(first, second)
    assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


@pytest.mark.parametrize("tile", [64, 1 << 12])
def test_small_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch, tile: int) -> None:
    X, Q = sample(15, 1500), sample(16, 700)
    whole = Space(Gaussian(1.0)).fit(X)
    expected = whole.transform(Q)
    monkeypatch.setattr("meanmap.spaces.cholesky.TILE", tile)
    blocked = Space(Gaussian(1.0)).fit(X)
    assert blocked.rank_ == whole.rank_
    Z = blocked.transform(Q)
    assert_allclose(Z @ Z.T, expected @ expected.T, atol=1e-8)
    assert_allclose(whole.transform(Q), expected, atol=1e-9)


def test_threads_change_nothing() -> None:
    X = sample(17, 3000)
    with threadpool_limits(1):
        one = Space(Gaussian(1.0), PivotedCholesky(tol=1e-6)).fit(X)
    with threadpool_limits(2):
        two = Space(Gaussian(1.0), PivotedCholesky(tol=1e-6)).fit(X)
    assert one.rank_ == two.rank_
    assert_allclose(one.transform(X[:50]), two.transform(X[:50]), atol=1e-8)


# --- weights -------------------------------------------------------------------------------------


def test_residual_counts_the_weights() -> None:
    X, w = sample(18, 150), np.random.default_rng(0).exponential(size=150)
    space = Space(Gaussian(0.5), PivotedCholesky(tol=1e-3))
    Z = space.fit_transform(X, sample_weight=w)
    truth = relative_residual(Gaussian(0.5), X, Z, w)
    assert space.residual_ == pytest.approx(truth, rel=1e-6)
    assert space.residual_ <= 1e-3


def test_a_row_of_weight_zero_is_not_there() -> None:
    X, w = sample(19, 80), np.ones(80)
    X[60:] += 1000.0  # would dominate the median
    w[60:] = 0
    with_zeros = Space(None, PivotedCholesky()).fit(X, sample_weight=w)
    without = Space(None, PivotedCholesky()).fit(X[:60])
    assert with_zeros.kernel_ == without.kernel_
    assert with_zeros.rank_ == without.rank_
    assert_allclose(with_zeros.transform(X[:60]), without.transform(X[:60]), atol=1e-9)
    Z = Space(None, PivotedCholesky()).fit_transform(X, sample_weight=w)
    assert Z.shape[0] == 80
    assert_allclose(Z[60:], 0.0, atol=1e-12)


def test_weights_equal_repetition() -> None:
    X, w = sample(20, 40), np.random.default_rng(1).integers(1, 4, size=40)
    weighted = Space().fit(X, sample_weight=w)
    repeated = Space().fit(np.repeat(X, w, axis=0))
    assert weighted.kernel_.bandwidth == pytest.approx(repeated.kernel_.bandwidth, rel=1e-12)
    Z, R = weighted.transform(X), repeated.transform(X)
    assert_allclose(Z @ Z.T, R @ R.T, atol=1e-8)


# --- explicit features ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["polynomial", "linear", "delta", "trace"])
def test_explicit_coordinates_are_exact_everywhere(name: str) -> None:
    kernel, points = KERNELS[name]
    space = Space(kernel, Explicit()).fit(points[:20])
    Z = space.transform(points)
    assert space.residual_ == 0.0
    assert Z.shape == (len(points), space.rank_)
    assert_allclose(Z @ Z.T, kernel(points), rtol=1e-11, atol=1e-11)


def test_explicit_delta_is_one_hot_in_sorted_order() -> None:
    space = Space(Delta(), Explicit()).fit(["b", "c", "a", "b"])
    assert_array_equal(space.transform(["a", "b", "c"]), np.eye(3))
    assert_array_equal(space.transform(["never seen"]), np.zeros((1, 3)))
    rows = Space(Delta(), Explicit()).fit([[1, 0], [0, 1], [1, 0]])
    assert_array_equal(rows.transform([[0, 1], [1, 0], [1, 1]]), [[1, 0], [0, 1], [0, 0]])


def test_explicit_refuses_kernels_without_features() -> None:
    with pytest.raises(TypeError, match=r"Gaussian.*no finite features.*PivotedCholesky"):
        Space(Gaussian(1.0), Explicit()).fit(sample(0, 5))


@pytest.mark.parametrize(
    ("kernel", "points", "basis"),
    [
        (None, sample(0, 30), PivotedCholesky),
        (None, WORDS, Explicit),
        (None, MATRICES, Explicit),
        (Linear(), sample(0, 30), Explicit),
        (Polynomial(2), sample(0, 30), Explicit),
        (Polynomial(5), sample(0, 70, 20), PivotedCholesky),  # 53,130 monomials
        (Gaussian() + 1, sample(0, 30), PivotedCholesky),
    ],
)
def test_the_basis_that_is_chosen(kernel: Any, points: Any, basis: type) -> None:
    space = Space(kernel).fit(points)
    assert isinstance(space.basis_, basis)
    assert space.basis is None


def test_bases_agree_where_both_apply() -> None:
    for name in ("polynomial", "linear", "delta", "trace"):
        kernel, points = KERNELS[name]
        Z = Space(kernel, Explicit()).fit_transform(points)
        C = Space(kernel, PivotedCholesky(1e-12)).fit_transform(points)
        assert_allclose(Z @ Z.T, C @ C.T, rtol=1e-8, atol=1e-8)


def test_bases_are_frozen_specifications() -> None:
    assert PivotedCholesky(1e-6) == PivotedCholesky(tol=1e-6) != PivotedCholesky()
    assert Explicit() == Explicit() != PivotedCholesky()
    assert len({PivotedCholesky(), PivotedCholesky(), Explicit()}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        PivotedCholesky().tol = 1.0  # type: ignore[misc]


# --- precision and degenerate samples ------------------------------------------------------------


def test_float32() -> None:
    X = sample(21, 300)
    space = Space(Gaussian(1.5), PivotedCholesky(tol=1e-6)).fit(X.astype(np.float32))
    Z = space.transform(X.astype(np.float32))
    assert Z.dtype == np.float32
    assert_allclose(Z @ Z.T, Gaussian(1.5)(X), atol=2e-4)
    assert space.residual_ <= 1e-6
    # a tolerance beyond the precision stops where only rounding is left
    beyond = Space(Gaussian(1.5), PivotedCholesky(tol=0)).fit(X.astype(np.float32))
    assert beyond.rank_ < 150
    Z = beyond.transform(X.astype(np.float32))
    assert np.isfinite(Z).all()
    assert_allclose(Z @ Z.T, Gaussian(1.5)(X), atol=1e-3)


def test_duplicated_points_count_once() -> None:
    X = np.repeat(sample(22, 12), 10, axis=0)
    space = Space(Laplace(1.0)).fit(X)
    assert space.rank_ == 12
    Z = space.transform(X)
    assert_allclose(Z @ Z.T, Laplace(1.0)(X), atol=1e-10)


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("kernel", [None, Gaussian(), Polynomial(2), Linear() + 1], ids=repr)
def test_one_or_two_points(kernel: Any, n: int) -> None:
    X = sample(23, n)
    space = Space(kernel, PivotedCholesky()).fit(X)
    assert space.rank_ <= n
    Z = space.transform(X)
    assert_allclose(Z @ Z.T, space.kernel_(X), atol=1e-12)


def test_constant_columns() -> None:
    X = np.column_stack([np.ones(30), sample(24, 30)[:, 0], np.zeros(30)])
    Z = Space().fit(X).transform(X)
    assert np.isfinite(Z).all()
    assert Space().fit(np.ones((30, 2))).rank_ == 1


def test_the_zero_kernel_has_no_coordinates() -> None:
    X = np.zeros((5, 3))
    space = Space(Linear(), PivotedCholesky()).fit(X)
    assert space.rank_ == 0
    assert space.residual_ == 0.0
    assert space.transform(np.ones((4, 3))).shape == (4, 0)
    assert Space(Function(lambda x, y: 0.0)).fit(X).transform(X).shape == (5, 0)


# --- the transformer -----------------------------------------------------------------------------


def test_before_fit() -> None:
    for ask in (Space().transform, Space().support):
        with pytest.raises(NotFittedError, match="not fitted"):
            ask(sample(0, 3))


def test_fitted_attributes() -> None:
    X = sample(25, 50)
    space = Space().fit(X)
    assert isinstance(space.kernel_, Gaussian)
    assert len(space.kernel_.bandwidth) == 2  # one for each column
    assert space.kernel is None  # parameters are never changed
    assert space.n_features_in_ == 2
    assert f"rank {space.rank_}" in repr(space)


def test_space_and_ridge_are_kernel_ridge_regression() -> None:
    X, y = sample(26, 150), np.sin(sample(26, 150)[:, 0])
    model = make_pipeline(
        StandardScaler(),
        Space(Gaussian(1.0), PivotedCholesky(tol=1e-13)),
        Ridge(alpha=0.1, fit_intercept=False),
    ).fit(X, y)
    Z = StandardScaler().fit_transform(X)
    truth = KernelRidge(alpha=0.1, kernel="rbf", gamma=0.5).fit(Z, y).predict(Z)
    assert_allclose(model.predict(X), truth, atol=1e-6)
    assert model[:-1].fit_transform(X, y).shape == (150, model[1].rank_)


def test_wrong_points_at_transform() -> None:
    space = Space().fit(sample(27, 10))
    with pytest.raises(ValueError, match=r"3 features.*2 features"):
        space.transform(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="Reshape your data"):
        space.transform(np.zeros(2))
    with pytest.raises(ValueError, match="NaN"):
        space.transform(np.full((1, 2), np.nan))


@pytest.mark.parametrize(
    ("basis", "error", "message"),
    [
        (PivotedCholesky(tol=-1.0), ValueError, "tol must be a number ≥ 0, got -1.0.*1e-10"),
        (PivotedCholesky(tol=float("nan")), ValueError, "tol"),
        (PivotedCholesky(max_rank=0), ValueError, "max_rank must be a whole number ≥ 1.*got 0"),
        (PivotedCholesky(max_rank=2.5), ValueError, "max_rank"),  # type: ignore[arg-type]
        ("cholesky", TypeError, "expected PivotedCholesky.*got 'cholesky'"),
        (PivotedCholesky, TypeError, "basis"),
    ],
)
def test_bad_bases(basis: Any, error: type[Exception], message: str) -> None:
    space = Space(Gaussian(1.0), basis)
    with pytest.raises(error, match=message):
        space.fit(sample(28, 10))
    assert not [name for name in vars(space) if name.endswith("_")]


def test_public_names() -> None:
    assert set(spaces.__all__) >= {"Space", "PivotedCholesky", "Explicit", "Nystroem"}
