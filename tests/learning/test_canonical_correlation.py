"""Kernel principal components, canonical correlation and dimension reduction."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.cross_decomposition import CCA
from sklearn.decomposition import KernelPCA as ScikitKernelPCA
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import oracles as o
from meanmap import load, save
from meanmap.kernels import Delta, Gaussian, Linear, NGrams
from meanmap.learning import KernelCCA, KernelDimensionReduction, KernelPCA
from meanmap.learning.dimension_reduction import ReductionProblem
from meanmap.spaces import Nystroem


def sample(seed: int = 0, n: int = 40, d: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d))


def views(seed: int = 0, n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.column_stack([X[:, 0] ** 2, rng.normal(size=n)]) + 0.1 * rng.normal(size=(n, 2))


# --- principal components -------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [Gaussian(1.0), Linear()])
def test_components_are_those_of_the_gram_matrix(kernel: Any) -> None:
    X = sample()
    model = KernelPCA(3, kernel).fit(X)
    values, scores = o.kernel_principal_scores(kernel(X))
    assert_allclose(model.eigenvalues_, values[:3], rtol=1e-8)
    assert_allclose(np.abs(model.transform(X)), np.abs(scores[:, :3]), atol=1e-7)
    assert_allclose(model.fit_transform(X), model.transform(X), atol=1e-10)
    assert_allclose(model.explained_variance_ratio_, values[:3] / values.sum(), rtol=1e-7)


def test_components_agree_with_scikit_learn_at_new_points() -> None:
    X, new = sample(), sample(1)
    ours = KernelPCA(4, Gaussian(1.0)).fit(X).transform(new)
    theirs = ScikitKernelPCA(4, kernel="rbf", gamma=0.5).fit(X).transform(new)
    assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-7)


def test_all_components_keep_all_distances() -> None:
    X = sample(n=20)
    scores = KernelPCA(kernel=Gaussian(1.0)).fit_transform(X)
    assert_allclose(scores @ scores.T, o.centred_gram(Gaussian(1.0)(X)), atol=1e-8)


def test_weights_are_repetitions() -> None:
    X = sample(n=12)
    weights = np.arange(12) % 3
    by_weight = KernelPCA(2, Gaussian(1.0)).fit(X, sample_weight=weights)
    repeated = KernelPCA(2, Gaussian(1.0)).fit(np.repeat(X, weights, axis=0))
    assert_allclose(by_weight.eigenvalues_, repeated.eigenvalues_, rtol=1e-8)
    assert_allclose(np.abs(by_weight.transform(X)), np.abs(repeated.transform(X)), atol=1e-7)


def test_points_come_back_from_their_scores() -> None:
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, size=200)
    X = np.column_stack([np.cos(angle), np.sin(angle)])
    model = KernelPCA(8, Gaussian(1.0)).fit(X)
    noisy = X[:20] * rng.uniform(0.8, 1.2, size=(20, 1))
    cleaned = model.inverse_transform(model.transform(noisy))
    before, after = (np.linalg.norm(points - X[:20], axis=1) for points in (noisy, cleaned))
    assert after.mean() < before.mean() / 2
    exact = KernelPCA(kernel=Gaussian(1.0)).fit(X)
    assert_allclose(exact.inverse_transform(exact.transform(X[:5])), X[:5], atol=1e-3)


def test_the_score_is_the_share_that_is_kept() -> None:
    X = sample()
    assert KernelPCA(kernel=Gaussian(1.0)).fit(X).score(X) == pytest.approx(1, abs=1e-7)
    model = KernelPCA(3, Gaussian(1.0)).fit(X)
    assert model.score(X) == pytest.approx(model.explained_variance_ratio_.sum(), abs=1e-6)


def test_words_have_components() -> None:
    words = ["abab", "abba", "xyxy", "xyyx", "baba", "yxyx"]
    scores = KernelPCA(1, NGrams(2)).fit_transform(words)[:, 0]
    assert (scores[[0, 1, 4]] > 0).all() != (scores[[2, 3, 5]] > 0).all()


@pytest.mark.parametrize(
    ("model", "X", "message"),
    [
        (KernelPCA(0), sample(), "n_components must be a whole number ≥ 1"),
        (KernelPCA(5, Linear()), sample(), "varies in 3 direction"),
        (KernelPCA(1), np.ones((5, 2)), "varies in 0 direction"),
        (KernelPCA(1), [[np.nan, 1.0]], "NaN"),
    ],
)
def test_components_explain_bad_input(model: Any, X: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model.fit(X)
    assert not hasattr(model, "components_")


def test_scores_of_another_shape_are_refused() -> None:
    model = KernelPCA(2, Gaussian(1.0)).fit(sample())
    with pytest.raises(ValueError, match="rows of 2 scores"):
        model.inverse_transform(np.ones((4, 3)))
    with pytest.raises(NotFittedError):
        KernelPCA().transform(sample())


# --- canonical correlation ------------------------------------------------------------------------


@pytest.mark.parametrize("regularization", [1e-3, 0.1])
def test_correlations_are_those_of_the_gram_matrices(regularization: float) -> None:
    X, Y = views()
    kernels = Gaussian(1.0), Gaussian(0.7)
    model = KernelCCA(3, *kernels, regularization).fit(X, Y)
    truth = o.kernel_correlations(kernels[0](X), kernels[1](Y), regularization)
    assert_allclose(model.correlations_, truth[:3], atol=1e-7)


def test_linear_kernels_give_the_correlation_of_text_books() -> None:
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(100, 1))
    X = np.hstack([shared, rng.normal(size=(100, 2))]) @ rng.normal(size=(3, 3))
    Y = np.hstack([shared + 0.5 * rng.normal(size=(100, 1)), rng.normal(size=(100, 1))])
    model = KernelCCA(2, Linear(), Linear(), 1e-10).fit(X, Y)
    f, g = CCA(2, max_iter=5000, tol=1e-12).fit(X, Y).transform(X, Y)
    truth = [abs(np.corrcoef(f[:, i], g[:, i])[0, 1]) for i in range(2)]
    assert_allclose(model.correlations_, truth, atol=1e-6)
    ours = model.transform(X, Y)
    found = [np.corrcoef(ours[0][:, i], ours[1][:, i])[0, 1] for i in range(2)]
    assert_allclose(found, truth, atol=1e-6)


def test_the_square_is_found_and_held_out() -> None:
    X, Y = views(n=400)
    model = KernelCCA().fit(X[:300], Y[:300])
    assert model.score(X[300:], Y[300:]) > 0.9
    assert abs(np.corrcoef(X[:, 0], Y[:, 0])[0, 1]) < 0.3
    assert model.regularization_ in model.held_out_[:, 0]
    assert model.held_out_[:, 1].max() > 0.9


def test_independent_views_do_not_correlate_on_new_rows() -> None:
    X, Y = sample(0, 300), sample(1, 300)
    model = KernelCCA().fit(X[:200], Y[:200])
    assert abs(model.score(X[200:], Y[200:])) < 0.5  # five deviations of a correlation of 100


def test_weights_are_repetitions_of_pairs() -> None:
    X, Y = views(n=20)
    weights = 1 + np.arange(20) % 2
    arguments = (1, Gaussian(1.0), Gaussian(1.0), 0.01)
    by_weight = KernelCCA(*arguments).fit(X, Y, sample_weight=weights)
    repeated = KernelCCA(*arguments).fit(*(np.repeat(v, weights, axis=0) for v in (X, Y)))
    assert_allclose(by_weight.correlations_, repeated.correlations_, atol=1e-7)


def test_views_of_different_kinds() -> None:
    rng = np.random.default_rng(0)
    words = np.array(["abab", "xyxy"])[rng.integers(0, 2, size=40)]
    X = np.where(words == "abab", 1.0, -1.0)[:, None] + 0.1 * rng.normal(size=(40, 1))
    model = KernelCCA(1, None, NGrams(2), 0.01).fit(X, list(words))
    assert model.score(X, list(words)) > 0.95
    low = KernelCCA(1, None, NGrams(2), 0.01, (Nystroem(5, random_state=0), None))
    assert low.fit(X, list(words)).score(X, list(words)) > 0.95


@pytest.mark.parametrize(
    ("model", "Y", "message"),
    [
        (KernelCCA(), None, "requires y to be passed"),
        (KernelCCA(), sample(n=7), "inconsistent numbers of samples"),
        (KernelCCA(regularization=0), sample(), "must be positive"),
        (KernelCCA(regularization="best"), sample(), "regularization"),
        (KernelCCA(5, Linear(), Linear(), 0.1), sample(), "smaller of the two spaces has 3"),
        (KernelCCA(basis=(None,)), sample(), "pair"),
    ],
)
def test_correlation_explains_bad_input(model: Any, Y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model.fit(sample(), Y)
    assert not hasattr(model, "x_directions_")


# --- dimension reduction --------------------------------------------------------------------------


def problem() -> ReductionProblem:
    X = sample(n=30, d=4)
    return ReductionProblem(X, X[:, :1] ** 2, Gaussian(1.0), KernelDimensionReduction(2))


def test_the_trace_is_the_dense_formula() -> None:
    here = problem()
    B = np.linalg.qr(sample(3, 4, 2))[0]
    value, _ = here.trace(B, 0.8, 1e-2)
    K, L = Gaussian(0.8)(here.X @ B), Gaussian(1.0)(here.Y)
    truth = o.dimension_reduction_trace(K, L, 1e-2)
    assert value == pytest.approx(truth * 30 * 1e-2 / np.trace(o.centred_gram(L)), rel=1e-8)


def test_the_gradient_is_that_of_the_trace() -> None:
    here = problem()
    B, step = np.linalg.qr(sample(3, 4, 2))[0], 1e-6
    _, gradient = here.trace(B, 0.8, 1e-2)
    for i, j in np.ndindex(B.shape):
        E = np.zeros_like(B)
        E[i, j] = step
        slope = (here.trace(B + E, 0.8, 1e-2)[0] - here.trace(B - E, 0.8, 1e-2)[0]) / (2 * step)
        assert gradient[i, j] == pytest.approx(slope, abs=1e-7)


@pytest.mark.parametrize(("method", "bar"), [("kdr", 0.25), ("gradient", 0.6)])
def test_two_directions_of_ten_are_found(method: str, bar: float) -> None:
    X = sample(0, 250, 10)
    y = X[:, 0] * X[:, 1] > 0
    model = KernelDimensionReduction(2, Delta(), method=method, random_state=0).fit(X * 7 + 3, y)
    Q = np.linalg.qr(model.components_.T)[0]
    assert np.linalg.norm(Q[2:]) < bar  # what is outside of the two
    assert model.transform(X * 7 + 3).shape == (250, 2)
    again = KernelDimensionReduction(2, Delta(), method=method, random_state=0).fit(X * 7 + 3, y)
    assert_allclose(model.components_, again.components_)


def test_constant_columns_have_no_part_and_many_rows_are_drawn() -> None:
    X = np.hstack([sample(0, 150, 2), np.full((150, 1), 5.0)])
    model = KernelDimensionReduction(1, max_samples=80, n_init=2, random_state=0)
    model.fit(X, X[:, 0])
    assert model.components_[0, 2] == 0
    assert abs(model.components_[0, 0]) > 5 * abs(model.components_[0, 1])


def test_a_search_that_does_not_settle_says_so() -> None:
    X = sample(0, 60, 6)
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        KernelDimensionReduction(2, max_iter=1, n_init=1).fit(X, X[:, 0] * X[:, 1])


@pytest.mark.parametrize(
    ("model", "y", "message"),
    [
        (KernelDimensionReduction(), None, "requires y to be passed"),
        (KernelDimensionReduction(9), np.arange(40.0), "X has 3 feature"),
        (KernelDimensionReduction(method="sir"), np.arange(40.0), "method"),
        (KernelDimensionReduction(regularization=0), np.arange(40.0), "must be positive"),
        (KernelDimensionReduction(), np.arange(7.0), "inconsistent numbers of samples"),
        (KernelDimensionReduction(), np.full(40, np.nan), "NaN"),
    ],
)
def test_reduction_explains_bad_input(model: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model.fit(sample(), y)
    assert not hasattr(model, "components_")


# --- all of them ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [KernelPCA(2), KernelCCA(2, regularization=0.1), KernelDimensionReduction(2, random_state=0)],
    ids=lambda model: type(model).__name__,
)
def test_files_give_back_what_went_in(model: Any, tmp_path: Any) -> None:
    X, Y = views()
    model.fit(X, Y)
    save(model, tmp_path / "model.npz")
    assert_allclose(load(tmp_path / "model.npz").transform(X), model.transform(X), atol=1e-12)


def test_they_stand_in_pipelines_and_searches() -> None:
    X = sample(0, 120, 4)
    y = (X[:, 0] ** 2 + X[:, 1] ** 2 > 1.4).astype(int)
    frame = pd.DataFrame(X, columns=list("abcd"))
    search = GridSearchCV(
        make_pipeline(KernelPCA(10), LogisticRegression()), {"kernelpca__n_components": [2, 20]}
    ).fit(frame, y)
    assert search.best_score_ > 0.7
    names = search.best_estimator_[0].get_feature_names_out()
    assert names[0] == "kernelpca0"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chain = make_pipeline(
            KernelDimensionReduction(2, Delta(), n_init=1, random_state=0),
            KernelPCA(5),
            LogisticRegression(),
        )
        assert chain.fit(X, y).score(X, y) > 0.8
