"""Bases agree: error falls with rank, samplings do what they promise, features converge."""

from __future__ import annotations

import dataclasses
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.linear_model import Ridge

import test_conformance as conformance
from meanmap import ApproximationWarning, ConditionalEmbedding, embed
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
from meanmap.spaces import Explicit, Nystroem, PivotedCholesky, RandomFourier, Space
from meanmap.spaces.space import fit_space, fit_space_moments
from optional_packages import require
from test_recipes import run

SAMPLINGS = ["uniform", "kmeans", "leverage", "rpcholesky"]


def sample(seed: int, n: int, d: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d))


def relative_residual(kernel: Kernel, points: Any, Z: np.ndarray, w: Any = None) -> float:
    """Σ wᵢ (k(xᵢ, xᵢ) - ‖ψ(xᵢ)‖²) / Σ wᵢ k(xᵢ, xᵢ), by its definition."""
    diagonal = np.diag(kernel(points))
    w = np.ones(len(diagonal)) if w is None else np.asarray(w)
    return float(w @ (diagonal - (Z**2).sum(axis=1)) / (w @ diagonal))


def greedy_residual(K: np.ndarray, rank: int) -> float:
    """What is left of the trace when the largest residual is always taken next."""
    L, residual = np.zeros((len(K), 0)), np.diag(K).copy()
    for _ in range(rank):
        p = int(np.argmax(residual))
        column = (K[:, p] - L @ L[p]) / np.sqrt(residual[p])
        L = np.column_stack([L, column])
        residual = np.maximum(residual - column**2, 0.0)
    return float(residual.sum() / np.trace(K))


# --- Nyström is the projection on its landmarks --------------------------------------------------


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("kernel", [Gaussian(1.0), Laplace((1.0, 2.0)), Polynomial(3)], ids=repr)
def test_nystroem_is_the_projection_on_its_landmarks(kernel: Kernel, sampling: str) -> None:
    X, Q = sample(0, 300), sample(1, 40)
    space = Space(kernel, Nystroem(30, sampling, random_state=0))
    Z = space.fit_transform(X)
    P = space.map_.points
    assert Z.shape == (300, space.rank_) and space.rank_ == len(P) <= 30
    # k(x, P) k(P, P)⁺ k(P, x'), in the obvious way
    inverse = np.linalg.pinv(kernel(P), rcond=1e-13, hermitian=True)
    scale = kernel(X).max()
    assert_allclose(Z @ Z.T, kernel(X, P) @ inverse @ kernel(P, X), atol=1e-8 * scale)
    assert_allclose(space.transform(X), Z, atol=1e-9 * np.sqrt(scale))
    at = space.transform(Q)
    assert_allclose(at @ Z.T, kernel(Q, P) @ inverse @ kernel(P, X), atol=1e-8 * scale)
    assert space.residual_ == pytest.approx(relative_residual(kernel, X, Z), abs=1e-12)


@pytest.mark.parametrize(
    "basis", [Nystroem(40, random_state=0), Nystroem(40, "leverage", random_state=0)], ids=str
)
def test_residual_counts_weights(basis: Nystroem) -> None:
    X, w = sample(0, 200), np.random.default_rng(1).exponential(size=200)
    space = Space(Gaussian(0.7), basis).fit(X, sample_weight=w)
    truth = relative_residual(Gaussian(0.7), X, space.transform(X), w)
    assert space.residual_ == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize(
    ("kernel", "points"),
    [
        (Delta(), np.array(["ash", "beech", "cedar"])[np.arange(60) % 3]),
        (Trace(), np.random.default_rng(0).normal(size=(40, 3, 3))),
        (Precomputed(Laplace(1.0)(sample(0, 50))), np.arange(50)),
        (Function(lambda x, y: np.exp(-abs(x - y).max())), sample(1, 30, 1)),
        (Gaussian(1.5) @ Delta(), (sample(2, 60), np.arange(60) % 3)),
        (Gaussian(1.5) + 1, sample(3, 60)),
        (Constant(2.0), sample(4, 20)),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("sampling", ["uniform", "leverage", "rpcholesky"])
def test_nystroem_works_on_every_domain(kernel: Kernel, points: Any, sampling: str) -> None:
    space = Space(kernel, Nystroem(20, sampling, random_state=0))
    Z = space.fit_transform(points)
    truth = relative_residual(kernel, points, Z)
    assert space.residual_ == pytest.approx(truth, abs=1e-12)
    error = abs(kernel(points) - Z @ Z.T)
    assert (error <= space.error_bound(points, points) + 1e-12).all()


def test_as_many_landmarks_as_points_are_exact() -> None:
    X = sample(0, 80)
    for sampling in ("uniform", "leverage", "rpcholesky"):
        Z = Space(Laplace(1.0), Nystroem(80, sampling, random_state=0)).fit_transform(X)
        assert_allclose(Z @ Z.T, Laplace(1.0)(X), atol=1e-10)


def test_landmarks_that_others_span_are_dropped() -> None:
    X = np.repeat(sample(0, 25), 8, axis=0)
    space = Space(Laplace(1.0), Nystroem(200, random_state=0)).fit(X)
    assert space.rank_ == 25 and space.residual_ < 1e-12
    near = np.concatenate([X[::8], X[::8] + 1e-9])
    space = Space(Gaussian(1.0), Nystroem(landmarks=near)).fit(X)
    assert space.rank_ == 25
    assert Space(Linear(), Nystroem(50, random_state=0)).fit(sample(1, 60, 4)).rank_ == 4
    assert np.isfinite(space.transform(sample(2, 30))).all()


def test_large_samples_are_computed_in_blocks() -> None:
    X = sample(0, 9_000, 3)
    P = X[:700]
    space = Space(Laplace(2.0), Nystroem(landmarks=P))
    Z = space.fit_transform(X)
    L = np.linalg.cholesky(Laplace(2.0)(P))
    some = np.r_[0:50, 5_000:5_050, 8_950:9_000]
    K = np.linalg.solve(L, Laplace(2.0)(P, X[some]))
    assert_allclose(Z[some] @ Z[some].T, K.T @ K, atol=1e-11)
    assert space.residual_ == pytest.approx(1 - (Z**2).sum() / 9_000, abs=1e-12)


# --- rank and error ------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_error_falls_with_the_number_of_landmarks(sampling: str) -> None:
    X, kernel = sample(0, 400, 3), Gaussian(1.5)
    K = kernel(X)
    residuals, errors = [], []
    for m in (10, 30, 90, 270):
        space = Space(kernel, Nystroem(m, sampling, random_state=0))
        Z = space.fit_transform(X)
        residuals.append(space.residual_)
        errors.append(abs(K - Z @ Z.T).mean())
    # a tripled number of landmarks leaves well below half
    assert all(b < 0.6 * a for a, b in zip(residuals, residuals[1:], strict=False))
    assert all(b < 0.6 * a for a, b in zip(errors, errors[1:], strict=False))


def test_bases_agree_on_a_distance() -> None:
    X, Y = sample(0, 300), sample(1, 300) + 0.5
    kernel = Gaussian(1.5)
    K = kernel(np.concatenate([X, Y]))
    v = np.repeat([1 / 300, -1 / 300], 300)
    truth = float(np.sqrt(v @ K @ v))
    for basis, bar in [
        (PivotedCholesky(), 1e-5),
        (Nystroem(100, random_state=0), 1e-4),
        (Nystroem(100, "kmeans", random_state=0), 1e-4),
        (Nystroem(100, "leverage", random_state=0), 1e-4),
        (Nystroem(100, "rpcholesky", random_state=0), 1e-4),
        (RandomFourier(4000, random_state=0), 0.05),
    ]:
        space = Space(kernel, basis).fit(np.concatenate([X, Y]))
        difference = space.transform(X).mean(axis=0) - space.transform(Y).mean(axis=0)
        assert np.linalg.norm(difference) == pytest.approx(truth, rel=bar), basis
        assert embed(X, kernel, basis=space).distance(
            embed(Y, kernel, basis=space)
        ) == pytest.approx(truth, rel=bar)


def test_randomly_pivoted_cholesky_beats_greedy_pivoting_when_capped() -> None:
    # greedy pivoting runs after outliers, which the bulk of the sample does not need
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = np.concatenate([rng.normal(size=(900, 5)), 8 * rng.normal(size=(100, 5))])
        kernel = Gaussian(2.0)
        greedy = greedy_residual(kernel(X), 60)
        for basis in (
            PivotedCholesky(max_rank=60, tol=1e-2),
            Nystroem(60, "rpcholesky", random_state=seed),
        ):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ApproximationWarning)  # capped on purpose
                space = Space(kernel, basis).fit(X)
            assert space.rank_ == 60
            assert space.residual_ < 0.5 * greedy


@pytest.mark.parametrize("tol", [1e-12, 1e-6, 1e-2, 1.0])
@pytest.mark.parametrize("kernel", [Gaussian(1.0), Laplace(0.5), Linear() + 1, Delta()], ids=repr)
def test_a_small_sample_is_factorised_within_its_tolerance(kernel: Kernel, tol: float) -> None:
    """Largest residual first, as plain Python does it; copies and weights included."""
    rng = np.random.default_rng(0)
    discrete = kernel.discrete
    X = rng.integers(5, size=60) if discrete else rng.normal(size=(60, 2)).round(1)
    X = np.concatenate([X, X[:20]])
    w = rng.dirichlet(np.ones(80))
    space, psi = fit_space(kernel, PivotedCholesky(tol), X, w)
    left = kernel(X) - psi @ psi.T
    total = w @ np.diag(kernel(X))
    assert w @ np.diag(left) <= max(tol, 1e-13) * total
    assert space.residual_ == pytest.approx(w @ np.diag(left) / total, abs=1e-14)
    assert_allclose(space.coordinates(X), psi, atol=1e-6)
    residual, rank = kernel(X).copy(), 0
    while w @ np.diag(residual) > max(0.1 * tol, 1e-14) * total:
        i = int(np.argmax(np.diag(residual)))
        residual -= np.outer(residual[i], residual[i]) / residual[i, i]
        rank += 1
    assert abs(space.rank_ - rank) <= 1  # ties and rounding may decide on the last


def test_leverage_finds_a_small_group() -> None:
    # a dense cluster of 2,950 points and 50 scattered ones: uniform landmarks miss most of those
    rng = np.random.default_rng(0)
    X = np.concatenate([0.3 * rng.normal(size=(2_950, 2)), rng.uniform(5, 30, size=(50, 2))])
    kernel = Gaussian(1.0)
    missed: dict[str, list[float]] = {"uniform": [], "leverage": []}
    for seed in range(5):
        for sampling, values in missed.items():
            values.append(
                Space(kernel, Nystroem(100, sampling, random_state=seed)).fit(X).residual_
            )
    assert max(missed["leverage"]) < 0.6 * min(missed["uniform"])


def test_uniform_landmarks_follow_the_weights() -> None:
    X = np.concatenate([sample(0, 500), sample(1, 500) + 20])
    w = np.repeat([1.0, 1e-9], 500)
    space = Space(Gaussian(1.0), Nystroem(40, random_state=0)).fit(X, sample_weight=w)
    assert (space.map_.points < 10).all()


# --- landmarks, seeds, refusals ------------------------------------------------------------------


def test_given_landmarks_are_honoured() -> None:
    X, P = sample(0, 100), np.array([[0.0, 0.0], [1.0, 1.0], [-2.0, 0.5]])
    space = Space(Gaussian(1.0), Nystroem(landmarks=P)).fit(X)
    assert space.rank_ == 3
    found = space.map_.points
    assert_array_equal(found[np.lexsort(found.T)], P[np.lexsort(P.T)])
    at = space.transform(P)
    assert_allclose(at @ at.T, Gaussian(1.0)(P), atol=1e-12)
    words = Space(Delta(), Nystroem(landmarks=["ash", "oak"])).fit(["ash", "elm", "ash"])
    assert_allclose((words.transform(["ash", "elm", "oak"]) ** 2).sum(axis=1), [1, 0, 1])
    # more of them than points, a first batch for example, are the user's own choice
    assert Space(Gaussian(1.0), Nystroem(landmarks=X)).fit(X[:5]).rank_ > 50


def test_kmeans_takes_one_bandwidth_a_column() -> None:
    X = sample(0, 500) * [1.0, 1000.0]
    kernel = Gaussian((1.0, 1000.0))
    same = Gaussian(1.0)
    wide = Space(kernel, Nystroem(40, "kmeans", random_state=0)).fit(X)
    plain = Space(same, Nystroem(40, "kmeans", random_state=0)).fit(X / [1.0, 1000.0])
    assert wide.residual_ == pytest.approx(plain.residual_, rel=1e-6)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_seeds_are_honoured(sampling: str) -> None:
    X = sample(0, 300)

    def fitted(seed: Any) -> np.ndarray:
        return Space(Gaussian(1.0), Nystroem(20, sampling, random_state=seed)).fit_transform(X)

    assert_array_equal(fitted(3), fitted(3))
    assert not np.array_equal(fitted(3), fitted(4))
    assert_array_equal(fitted(np.random.RandomState(5)), fitted(np.random.RandomState(5)))
    assert_array_equal(fitted(np.random.default_rng(5)), fitted(np.random.default_rng(5)))
    assert fitted(None).shape[0] == 300


@pytest.mark.parametrize(
    ("kernel", "points", "basis", "error", "words"),
    [
        (Gaussian(1.0), sample(0, 20), Nystroem(21), ValueError, "21 landmarks.*20 points"),
        (Gaussian(1.0), sample(0, 20), Nystroem(), ValueError, "number of landmarks"),
        (Gaussian(1.0), sample(0, 20), Nystroem(0), ValueError, "whole number ≥ 1"),
        (Gaussian(1.0), sample(0, 20), Nystroem(2.5), ValueError, "whole number"),
        (Gaussian(1.0), sample(0, 20), Nystroem(5, "random"), ValueError, "'leverage'"),
        (Gaussian(1.0), sample(0, 20), Nystroem(5, random_state="a"), ValueError, "random_state"),
        (Gaussian(1.0), sample(0, 20), Nystroem(5, landmarks=sample(1, 4)), ValueError, "4 land"),
        (Gaussian(1.0), sample(0, 20), Nystroem(landmarks=sample(1, 4, 3)), ValueError, "features"),
        (Delta(), np.arange(20), Nystroem(5, "kmeans"), TypeError, "takes vectors"),
        (
            Gaussian(1.0) @ Delta(),
            (sample(0, 9), np.arange(9)),
            Nystroem(5, "kmeans"),
            TypeError,
            "vectors",
        ),
        (Delta(), np.arange(20), RandomFourier(10), TypeError, "Gaussian, Laplace and Matern"),
        (RationalQuadratic(1.0, 1.0), sample(0, 20), RandomFourier(10), TypeError, "Nystroem"),
        (Gaussian(1.0), sample(0, 20), RandomFourier(11), ValueError, "even"),
        (Gaussian(1.0), sample(0, 20), RandomFourier(0), ValueError, "whole number ≥ 2"),
    ],
)
def test_what_cannot_work_is_refused_in_words(
    kernel: Kernel, points: Any, basis: Any, error: type[Exception], words: str
) -> None:
    space = Space(kernel, basis)
    with pytest.raises(error, match=words):
        space.fit(points)
    assert not hasattr(space, "kernel_")


# --- Fourier features ----------------------------------------------------------------------------

SPECTRAL = [
    Gaussian(1.5),
    Gaussian((0.7, 2.0, 4.0)),
    Laplace(2.0),
    Matern(0.5, 2.0),
    Matern(1.5, (1.0, 2.0, 3.0)),
    Matern(2.5, 1.0),
]


@pytest.mark.parametrize("kernel", SPECTRAL, ids=repr)
def test_fourier_features_are_unbiased(kernel: Kernel) -> None:
    X = sample(0, 60, 3)
    Z = Space(kernel, RandomFourier(40_000, random_state=0)).fit_transform(X)
    # the standard error of a mean of 20,000 cosines is at most 0.0071 · √½
    assert abs(Z @ Z.T - kernel(X)).max() < 0.03
    assert_allclose((Z**2).sum(axis=1), 1.0, atol=1e-12)


@pytest.mark.parametrize("kernel", [Gaussian(1.5), Laplace(2.0), Matern(1.5, 2.0)], ids=repr)
def test_fourier_features_converge_at_the_root_of_their_number(kernel: Kernel) -> None:
    X = sample(0, 100, 4)
    K = kernel(X)
    sizes = [64, 256, 1024, 4096]
    errors = []
    for n in sizes:
        parts = []
        for seed in range(12):
            Z = Space(kernel, RandomFourier(n, random_state=seed)).fit_transform(X)
            parts.append(np.sqrt(np.mean((Z @ Z.T - K) ** 2)))
        errors.append(np.mean(parts))
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert -0.6 < slope < -0.4


def test_orthogonal_directions_leave_less_than_independent_ones() -> None:
    d, h = 16, 64
    X, kernel = sample(0, 80, d), Gaussian(4.0)
    K, ours, plain = kernel(X), [], []
    for seed in range(20):
        Z = Space(kernel, RandomFourier(2 * h, random_state=seed)).fit_transform(X)
        ours.append(((Z @ Z.T - K) ** 2).mean())
        W = np.random.default_rng(seed).normal(size=(d, h)) / 4.0
        Z = np.hstack([np.cos(X @ W), np.sin(X @ W)]) / np.sqrt(h)
        plain.append(((Z @ Z.T - K) ** 2).mean())
    assert np.mean(ours) < 0.8 * np.mean(plain)


def test_fourier_residual_is_the_mean_error() -> None:
    X = sample(0, 200, 3)
    space = Space(Laplace(2.0), RandomFourier(500, random_state=0))
    Z = space.fit_transform(X)
    error = abs(Z @ Z.T - Laplace(2.0)(X))[np.triu_indices(200, 1)]
    assert space.residual_ == pytest.approx(error.mean(), rel=1e-9)
    assert "mean error" in repr(space) and "rank 500" in repr(space)
    large = Space(Laplace(2.0), RandomFourier(500, random_state=0)).fit(sample(1, 3_000, 3))
    assert large.residual_ == pytest.approx(space.residual_, rel=0.3)
    for name in ("error_bound", "support"):
        with pytest.raises(TypeError, match="projection"):
            getattr(space, name)(X)


def test_fourier_features_do_not_depend_on_the_sample() -> None:
    first = Space(Gaussian(1.0), RandomFourier(50, random_state=0)).fit(sample(0, 30))
    second = Space(Gaussian(1.0), RandomFourier(50, random_state=0)).fit(sample(1, 1) + 9)
    assert second.residual_ == 0.0  # one point has no pairs
    Q = sample(2, 10)
    assert_array_equal(first.transform(Q), second.transform(Q))
    other = Space(Gaussian(1.0), RandomFourier(50, random_state=1)).fit(sample(0, 30))
    assert not np.array_equal(first.transform(Q), other.transform(Q))


# --- the error bound -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "basis",
    [PivotedCholesky(1e-3), Nystroem(20, random_state=0), Nystroem(20, "kmeans", random_state=0)],
    ids=repr,
)
def test_error_bound_holds_everywhere(basis: Any) -> None:
    kernel, X, Q = Gaussian(1.0), sample(0, 200), 2 * sample(1, 100)
    space = Space(kernel, basis).fit(X)
    error = abs(kernel(Q, X) - space.transform(Q) @ space.transform(X).T)
    bound = space.error_bound(Q, X)
    assert bound.shape == (100, 200) and (error <= bound).all()
    own = space.error_bound(Q)
    assert_allclose(np.sqrt(own[:, None] * space.error_bound(X)), bound, rtol=1e-9)
    far = int(np.argmax(space.error_bound(X)))  # at a landmark there is nothing but rounding
    assert_allclose(space.error_bound(Q, X[far]), bound[:, far], rtol=1e-9)
    assert_allclose(space.error_bound(Q[2], X[far]), bound[2, far], rtol=1e-9)
    assert np.ndim(space.error_bound(Q[2])) == 0
    # attained on the diagonal, where the bound is the residual itself
    z = space.transform(Q)
    assert_allclose(own, 1 - (z**2).sum(axis=1), atol=1e-12)


def test_error_bound_of_exact_coordinates_is_rounding() -> None:
    space = Space(Delta(), Explicit()).fit(["a", "b"])
    assert_allclose(space.error_bound(["a", "b", "c"]), [0, 0, 1], atol=1e-13)


# --- moments, without the coordinates ------------------------------------------------------------


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize(
    "basis",
    [
        Nystroem(50, random_state=0),
        Nystroem(50, "rpcholesky", random_state=0),
        RandomFourier(60, random_state=0),
        PivotedCholesky(1e-4),
    ],
    ids=repr,
)
def test_moments_are_those_of_the_coordinates(basis: Any, even: bool) -> None:
    X, V, kernel = sample(0, 50_000, 2), sample(1, 50_000, 3), Gaussian(1.0)
    w = np.ones(50_000) if even else np.random.default_rng(2).exponential(size=50_000)
    w /= w.sum()
    stored, Z = fit_space(kernel, basis, X, w)
    streamed, C, B = fit_space_moments(kernel, basis, X, w, V)
    assert_allclose(C, Z.T @ (w[:, None] * Z), atol=1e-12)
    assert_allclose(B, V.T @ (w[:, None] * Z), atol=1e-12)
    assert streamed.rank_ == stored.rank_
    assert streamed.residual_ == pytest.approx(stored.residual_, abs=1e-12)
    assert_array_equal(streamed.transform(X[:20]), stored.transform(X[:20]))


X600 = sample(0, 600)
PAIRS = np.concatenate([X600[:300], X600[:300] + 1e-5])  # nearly equal landmarks cost digits


@pytest.mark.parametrize(
    ("kernel", "landmarks", "delayed"),
    [
        (Gaussian(1.5), sample(0, 600, 5), True),
        (Laplace(1.0), X600, True),
        (Gaussian(0.1), PAIRS, False),
    ],
)
def test_moments_put_off_a_solve_only_where_it_costs_no_digits(
    kernel: Kernel, landmarks: np.ndarray, delayed: bool
) -> None:
    X, w = sample(1, 3_000, landmarks.shape[1]), np.full(3_000, 1 / 3_000)
    space, Z = fit_space(kernel, Nystroem(landmarks=landmarks), X, w)
    fitted = space.map_
    C, B = fitted.moments(X, w, X)
    assert space.rank_ > 500
    assert (fitted._must_solve < space.rank_) == delayed
    # no more than the rounding of ψ itself, which L⁻¹ magnifies
    rounding = np.finfo(float).eps * np.linalg.norm(np.linalg.inv(np.tril(fitted.factor)), 2)
    assert_allclose(C, Z.T @ Z / 3_000, rtol=0, atol=rounding)
    assert_allclose(B, X.T @ Z / 3_000, rtol=0, atol=rounding)


# --- the same model, other people's machinery ----------------------------------------------------


def test_conditional_mean_is_ridge_on_nystroem_features() -> None:
    rng = np.random.default_rng(0)
    X, Q = rng.normal(size=(400, 2)), rng.normal(size=(50, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=400)
    kernel, P, lam = Laplace(1.0), X[:40], 1e-4
    model = ConditionalEmbedding(
        kernel, Linear(), lam, basis=(Nystroem(landmarks=P), None), centered=False
    )
    ours = model.fit(X, y).predict(Q)
    # subset of regressors: k_QP (k_PX k_XP + nλ k_PP)⁻¹ k_PX y
    K = kernel(X, P)
    dense = kernel(Q, P) @ np.linalg.solve(K.T @ K + 400 * lam * kernel(P), K.T @ y)
    assert_allclose(ours, dense, atol=1e-10)
    # and scikit-learn's, whose features are k_PP^-1/2 k_PX
    values, vectors = np.linalg.eigh(kernel(P))
    root = (vectors / np.sqrt(values)) @ vectors.T
    ridge = Ridge(alpha=400 * lam, fit_intercept=False).fit(K @ root, y)
    assert_allclose(ours, ridge.predict(kernel(Q, P) @ root), atol=1e-10)


BASES = [
    Nystroem(15, random_state=0),
    Nystroem(15, "kmeans", random_state=0),
    Nystroem(15, "leverage", random_state=0),
    Nystroem(15, "rpcholesky", random_state=0),
    RandomFourier(30, random_state=0),
]


@pytest.mark.parametrize("basis", BASES, ids=repr)
def test_bases_are_frozen_compared_cloned_and_pickled(basis: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        basis.n = 3
    assert basis == dataclasses.replace(basis) and hash(basis) == hash(dataclasses.replace(basis))
    assert basis != dataclasses.replace(basis, n=17)
    space = Space(Gaussian(1.0), basis)
    assert clone(space).basis == basis
    X = sample(0, 60)
    Z = space.fit_transform(X)
    assert_array_equal(clone(space).fit_transform(X), Z)
    again = pickle.loads(pickle.dumps(space))
    assert_array_equal(again.transform(X), space.transform(X))
    assert again.basis_ == basis and again.residual_ == space.residual_


def test_bases_with_landmarks_compare_by_value() -> None:
    P = sample(0, 5)
    assert Nystroem(landmarks=P) == Nystroem(landmarks=P.copy())
    assert Nystroem(landmarks=P) != Nystroem(landmarks=P + 1)
    assert Nystroem(landmarks=P) != Nystroem(5)
    pair = (P, np.arange(5))
    assert Nystroem(landmarks=pair) == Nystroem(landmarks=(P.copy(), np.arange(5)))
    assert Nystroem(5) != PivotedCholesky()
    assert "5 points" in repr(Nystroem(landmarks=P)) + repr(Nystroem(landmarks=list("abcde")))
    space = clone(Space(Gaussian(1.0), Nystroem(landmarks=P)))
    assert space.basis == Nystroem(landmarks=P)


@pytest.mark.parametrize("basis", BASES, ids=repr)
def test_torch_in_torch_out(basis: Any) -> None:
    torch = require("torch")
    X, Q = sample(0, 60), sample(1, 7)
    here = Space(Gaussian(1.0), basis).fit(X)
    there = Space(Gaussian(1.0), basis).fit(torch.asarray(X))
    Z = there.transform(torch.asarray(Q))
    assert isinstance(Z, torch.Tensor) and Z.dtype == torch.float64
    mine = here.transform(Q)
    assert_allclose((Z @ Z.T).numpy(), mine @ mine.T, atol=1e-9)
    assert there.residual_ == pytest.approx(here.residual_, abs=1e-9)
    single = Space(Gaussian(1.0), basis).fit(torch.asarray(X, dtype=torch.float32))
    assert single.transform(torch.asarray(Q, dtype=torch.float32)).dtype == torch.float32
    V = torch.asarray(sample(2, 60, 1))
    w = torch.full((60,), 1 / 60, dtype=torch.float64)
    _, C, B = fit_space_moments(Gaussian(1.0), basis, torch.asarray(X), w, V)
    own = there.transform(torch.asarray(X))
    assert_allclose(C.numpy(), (own.T @ own / 60).numpy(), atol=1e-12)
    assert_allclose(B.numpy(), (V.T @ own / 60).numpy(), atol=1e-12)


@pytest.mark.parametrize("basis", BASES, ids=repr)
def test_single_precision_stays_single(basis: Any) -> None:
    X = sample(0, 60).astype(np.float32)
    Z = Space(Gaussian(1.0), basis).fit_transform(X)
    assert Z.dtype == np.float32
    double = Space(Gaussian(1.0), basis).fit_transform(X.astype(np.float64))
    assert_allclose(Z @ Z.T, double @ double.T, atol=1e-3)


def test_fit_never_makes_an_array_of_every_pair() -> None:
    # n² doubles would be 3.2 GB; the Gram matrix that NumPy would allocate is seen by tracemalloc
    import tracemalloc

    X = sample(0, 20_000, 3)
    for basis in (None, Nystroem(50, random_state=0), RandomFourier(50, random_state=0)):
        tracemalloc.start()
        space = Space(Gaussian(3.0), basis).fit(X)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert space.residual_ < 0.1
        assert peak < 8 * 20_000 * (2 * space.rank_ + 300)


@pytest.mark.parametrize("seed", [3, 7, 10, 21, 22])
def test_in_single_precision_pivots_stay_pivots(seed: int) -> None:
    """With many points at one place what is left at a pivot once cancelled to nothing, or less."""
    rng = np.random.default_rng(seed)
    y = np.minimum(np.exp(rng.normal(0.8, 0.6, size=(1500, 1))), 4.4).astype(np.float32)
    space = Space(Gaussian("0.5*median")).fit(y)
    assert (np.diagonal(space.map_.landmarks[1]) > 0).all()
    psi = space.transform(y[:200])
    assert np.abs(psi @ psi.T - space.kernel_(y[:200])).max() < 1e-3


@pytest.mark.parametrize("kernel", [Gaussian(1.0), Laplace(1.0), Matern(1.5, 1.0)], ids=repr)
def test_waves_are_as_long_as_features(kernel: Kernel) -> None:
    space = Space(kernel, RandomFourier(16, random_state=0)).fit(sample(0, 16))
    assert_allclose((space.transform(sample(1, 9)) ** 2).sum(axis=1), 1.0, rtol=1e-12)


def test_the_basis_of_the_guide_conforms() -> None:
    """CONTRIBUTING.md's basis passes the suite by what it declares, with no change to any test."""
    recipe = run("a basis")
    posed = conformance.Problem("laplace", recipe["FirstRows"](8), "numpy")
    conformance.test_coordinates_miss_what_they_say(posed)
    conformance.test_conditional_in_coordinates(posed)
    conformance.test_streaming(posed)
    conformance.test_streaming_to_these_points(posed)


def test_a_warning_points_at_the_line_that_asked() -> None:
    with pytest.warns(ApproximationWarning) as found:
        Space(Gaussian(0.1), PivotedCholesky(max_rank=2)).fit(sample(0, 50))
    assert found[0].filename == __file__
