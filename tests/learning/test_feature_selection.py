"""Features chosen by dependence: against the papers' formulas, and on problems with an answer."""

from __future__ import annotations

import warnings
from typing import Any

import matplotlib
import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

import oracles
from meanmap import HSICSelector, hsic, load, save
from meanmap.conditional.selection import GRID
from meanmap.kernels import (
    Delta,
    Gaussian,
    Laplace,
    Linear,
    Matern,
    NGrams,
    Polynomial,
    RationalQuadratic,
    WeisfeilerLehman,
)
from meanmap.learning import hsic_lasso as lasso
from meanmap.learning.subset_dependence import Subsets, hsic_matrix, powers_needed
from meanmap.learning.subset_regression import LeftOutErrors
from meanmap.learning.targets import Target, label_target, number_target, scale_columns, target_of
from meanmap.spaces import Nystroem, PivotedCholesky, RandomFourier
from meanmap_experiments.selecting import PROBLEMS

matplotlib.use("Agg")
QUIET = {"progress": False, "random_state": 0}


def xor(n: int, noise: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(seed).normal(size=(n, noise + 2))
    return X, (X[:, 0] * X[:, 1] > 0).astype(int)


def subsets(
    X: np.ndarray,
    target: Target,
    kernel: Any = None,
    estimator: str = "U",
    blocks: int = 1,
    basis: Any = None,
) -> Subsets:
    rows = np.arange(len(X))
    kernel = Gaussian("0.7*median") if kernel is None else kernel
    return Subsets(
        X, kernel, target, estimator, np.array_split(rows, blocks), basis, rows, lambda n: None
    )


@pytest.fixture(scope="module")
def small() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(24, 6))
    X[:, 3] = rng.exponential(size=24) ** 2  # a heavy tail
    labels = rng.integers(3, size=24)
    return X, labels, np.sin(2 * X[:, 0]) + X[:, 1] ** 2


# --- the criterion against the papers ------------------------------------------------------------


@pytest.mark.parametrize("estimator", ["U", "V"])
def test_hsic_is_a_sum_over_the_gram_matrix(small: Any, estimator: str) -> None:
    X, labels, _ = small
    K, L = oracles.gaussian(X, X, 2.0), oracles.balanced_labels(labels)
    value = (K * hsic_matrix(L, estimator)).sum()
    assert_allclose(value, oracles.hsic_estimate(K, L, estimator), rtol=1e-10)
    if estimator == "U":
        assert_allclose(value, oracles.unbiased_hsic(K, L), rtol=1e-10)


def test_labels_are_balanced_by_class(small: Any) -> None:
    labels = small[1]
    target = label_target(labels)
    rows = np.arange(24)
    assert_allclose(target.gram(rows), oracles.balanced_labels(labels), atol=1e-15)
    phi = target.coordinates(rows)
    assert_allclose(phi @ phi.T, oracles.balanced_labels(labels), atol=1e-14)


@pytest.mark.parametrize(
    "kernel",
    [
        Gaussian("0.7*median"),
        Gaussian(0.2),  # beyond the powers: each column directly
        Laplace(),
        Matern(2.5),
        RationalQuadratic(),
        Linear(),
        Polynomial(3),
        Gaussian() + Linear(),
    ],
    ids=repr,
)
@pytest.mark.parametrize("estimator", ["U", "V"])
@pytest.mark.parametrize("blocks", [1, 2])
def test_one_column_less_and_one_more(small: Any, kernel: Any, estimator: str, blocks: int) -> None:
    """Sums that lose and gain a part are the sets measured from their start."""
    X, labels, _ = small
    target = label_target(labels)
    s = subsets(X, target, kernel, estimator, blocks)
    S = np.arange(6)
    resolved = s.resolve(S)

    def one(columns: np.ndarray, k: Any) -> float:
        parts = [
            oracles.hsic_estimate(
                np.asarray(k(X[np.ix_(rows, columns)])), target.gram(rows), estimator
            )
            for rows in s.blocks
        ]
        return float(np.mean(parts))

    without = [one(np.delete(S, j), resolved) for j in S]
    assert_allclose(s.without(S, resolved), without, rtol=1e-9, atol=1e-13)
    assert_allclose(s.of(S, resolved), one(S, resolved), rtol=1e-9, atol=1e-13)
    more = [one(np.array([4, 1, j]), kernel.resolve(X[:, [4, 1, j]])) for j in (0, 2, 3)]
    found = s.with_each(np.array([4, 1]), np.array([0, 2, 3]))
    assert_allclose(found, more, rtol=1e-9, atol=1e-13)


def test_large_tiles_and_outliers() -> None:
    """More rows than a tile, a column with a far outlier, and a wide one."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 5))
    X[0, 2] = 26.0
    s = subsets(X, label_target(X[:, 0] > 0))
    S = np.arange(5)
    kernel = s.resolve(S)
    direct = [s.of(np.delete(S, j), kernel) for j in S]
    assert_allclose(s.without(S, kernel), direct, rtol=1e-10)
    assert_allclose(s._change(np.arange(700), S, S, [kernel], -1.0), direct, rtol=1e-10)


def test_far_outliers_do_not_overflow() -> None:
    X = np.random.default_rng(0).normal(size=(60, 3))
    X[:2, 1] = 1e6, -1e6
    s = subsets(X, label_target(X[:, 0] > 0), Gaussian(1.0))
    assert np.isfinite(s.without(np.arange(3), Gaussian(1.0))).all()


@given(st.floats(0, 3))
@settings(max_examples=30, deadline=None)
def test_powers_make_up_the_exponential(size: float) -> None:
    p = powers_needed(size)
    terms = np.cumprod(np.concatenate([[1.0], -size / np.arange(1, p)]))
    assert abs(terms.sum() - np.exp(-size)) < 1e-13


@pytest.mark.parametrize("estimator", ["U", "V"])
@pytest.mark.parametrize("kind", ["labels", "numbers"])
def test_low_rank_equals_dense_at_full_rank(small: Any, estimator: str, kind: str) -> None:
    X, labels, y = small
    target = label_target(labels) if kind == "labels" else number_target(y)
    S, others = np.arange(4), np.array([4, 5])
    dense = subsets(X, target, estimator=estimator)
    kernel = dense.resolve(S)
    for basis in (PivotedCholesky(1e-14), Nystroem(24, random_state=0)):
        thin = subsets(X, target, estimator=estimator, basis=basis)
        assert_allclose(thin.without(S, kernel), dense.without(S, kernel), rtol=1e-9, atol=1e-10)
        assert_allclose(thin.of(S, kernel), dense.of(S, kernel), rtol=1e-9, atol=1e-10)
        assert_allclose(
            thin.with_each(S, others), dense.with_each(S, others), rtol=1e-9, atol=1e-10
        )


def test_low_rank_gets_better_with_rank() -> None:
    X, y = xor(300, 3)
    target, S = label_target(y), np.arange(5)
    dense = subsets(X, target)
    kernel = dense.resolve(S)
    truth = dense.without(S, kernel)
    errors = [
        abs(subsets(X, target, basis=Nystroem(m, random_state=1)).without(S, kernel) - truth).max()
        for m in (20, 100, 290)
    ]
    assert errors[2] < errors[1] < errors[0]
    assert errors[2] < 1e-3 * abs(truth).max()


def test_blocks_are_unbiased() -> None:
    """The mean over many deals of blocks is the statistic of all rows."""
    X, y = xor(120, 2)
    target, S = label_target(y), np.arange(4)
    kernel = Gaussian(1.5)
    whole = subsets(X, target, kernel)
    rng = np.random.default_rng(0)
    found = []
    for _ in range(200):
        rows = np.array_split(rng.permutation(120), 4)
        s = Subsets(X, kernel, target, "U", rows, None, np.arange(120), lambda n: None)
        found.append(s.without(S, kernel))
    error = np.std(found, axis=0) / 200**0.5
    assert (abs(np.mean(found, axis=0) - whole.without(S, kernel)) < 6 * error).all()


# --- the searches against the papers -------------------------------------------------------------


@pytest.mark.parametrize("kind", ["labels", "numbers"])
def test_backward_is_bahsic(small: Any, kind: str) -> None:
    X, labels, y = small
    y = labels if kind == "labels" else y
    x = scale_columns(X, True)[0]
    L = (
        oracles.balanced_labels(labels)
        if kind == "labels"
        else oracles.gaussian(y[:, None], y[:, None], oracles.median_of_distances(y[:, None]))
    )
    order, values = oracles.bahsic(x, L, 0.7)
    found = HSICSelector(2, method="backward", step=1, **QUIET).fit(X, y)
    assert_array_equal(np.argsort(found.ranking_), order[::-1])
    # what is left without the worst, from the loss without it
    last = found.path_.dependence[:-1] - found.scores_[order[:-1]]
    assert_allclose(last, values, rtol=1e-9)
    assert_array_equal(found.path_.n_features, [6, 5, 4, 3, 2, 1])


@pytest.mark.parametrize("kind", ["labels", "numbers"])
def test_forward_is_fohsic(small: Any, kind: str) -> None:
    X, labels, y = small
    x = scale_columns(X, True)[0]
    sigma = oracles.median_of_distances(y[:, None])
    L = (
        oracles.balanced_labels(labels)
        if kind == "labels"
        else oracles.gaussian(y[:, None], y[:, None], sigma)
    )
    order, values = oracles.fohsic(x, L, 0.7, 4)
    found = HSICSelector(4, method="forward", **QUIET).fit(X, labels if kind == "labels" else y)
    assert_array_equal(np.argsort(found.ranking_)[:4], order)
    assert_allclose(found.path_.dependence, values, rtol=1e-9)
    assert set(np.flatnonzero(found.support_)) == set(order)


def test_the_path_is_hsic_of_the_set(small: Any) -> None:
    X, labels, y = small
    settings: dict[str, Any] = {"step": 1, "scale": False, "target_kernel": Gaussian()}
    found = HSICSelector(3, method="backward", **settings, **QUIET).fit(X, y)
    S = found.get_support(indices=True)
    expected = hsic(X[:, S], y[:, None], Gaussian("0.7*median"))
    assert_allclose(found.path_.dependence[3], expected, rtol=1e-9)
    assert found.kernel_ == Gaussian("0.7*median").resolve(X[:, S])
    assert found.target_kernel_ == Gaussian().resolve(y[:, None])


def test_lasso_is_the_lasso_of_gram_matrices(small: Any) -> None:
    X, labels, _ = small
    x = scale_columns(X, True)[0]
    grams = [
        oracles.gaussian(x[:, [j]], x[:, [j]], 0.7 * oracles.median_of_distances(x[:, [j]]))
        for j in range(6)
    ]
    G, c = oracles.hsic_lasso_products(grams, oracles.balanced_labels(labels))
    kernel, rows = Gaussian("0.7*median"), [np.arange(24)]
    found = lasso.inner_products(x, kernel, label_target(labels), rows, None, *rows, lambda n: None)
    assert_allclose(found[0], G, atol=1e-5)
    assert_allclose(found[1], c, atol=1e-5)
    fine = PivotedCholesky(1e-14)
    exact = lasso.inner_products(x, kernel, label_target(labels), rows, fine, *rows, lambda n: None)
    assert_allclose(exact[0], G, atol=1e-11)
    for k in (1, 3):
        solution = lasso.lasso_path(G, c, k)
        assert (solution.coefficients > 0).sum() == k
        expected = oracles.nonnegative_lasso(G, c, solution.regularization)
        assert_allclose(solution.coefficients, expected, atol=1e-9)
        assert solution.violation < 1e-9
    chosen = HSICSelector(3, method="lasso", **QUIET).fit(X, labels)
    expected = lasso.lasso_path(G, c, 3).coefficients
    assert_array_equal(chosen.support_, expected > 0)
    assert_allclose(chosen.scores_, expected, atol=1e-5)


# --- problems with an answer ---------------------------------------------------------------------


@pytest.mark.slow
def test_xor_is_found_backward_with_bandwidths_that_follow() -> None:
    """With the bandwidth of all features two of them are too close to tell apart."""
    fixed_at_start, found = 0, 0
    for seed in range(5):
        X, y = xor(400, 60, seed)
        found += bool(HSICSelector(2, method="backward", **QUIET).fit(X, y).support_[:2].all())
        sigma = Gaussian().resolve(scale_columns(X, True)[0]).bandwidth
        stuck = HSICSelector(2, Gaussian(sigma), method="backward", **QUIET).fit(X, y)
        fixed_at_start += bool(stuck.support_[:2].all())
    assert found == 5
    assert fixed_at_start <= 3


def test_several_classes() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 22))
    ring, angle = rng.integers(3, size=400), rng.uniform(0, 2 * np.pi, 400)
    radius = 1 + ring + 0.1 * rng.normal(size=400)
    X[:, 5], X[:, 7] = radius * np.cos(angle), radius * np.sin(angle)
    names = np.array(["in", "middle", "out"])[ring]
    for method in ("backward", "forward", "lasso"):
        found = HSICSelector(2, method=method, **QUIET).fit(X, names)
        assert_array_equal(found.get_support(indices=True), [5, 7])


def test_numbers() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(500, 23))
    y = np.sin(2 * X[:, 3]) + X[:, 8] ** 2 + X[:, 20] + 0.2 * rng.normal(size=500)
    for method in ("backward", "forward", "lasso"):
        found = HSICSelector(3, method=method, **QUIET).fit(X, y)
        assert_array_equal(found.get_support(indices=True), [3, 8, 20])


def test_several_numbers_of_different_units() -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(300, 10))
    Y = np.column_stack([X[:, 1] ** 2, 1e4 * np.tanh(X[:, 6])])
    found = HSICSelector(2, **QUIET).fit(X, Y)
    assert_array_equal(found.get_support(indices=True), [1, 6])
    again = HSICSelector(2, **QUIET).fit(X, pd.DataFrame(Y * [1, 1e-4]))
    assert_array_equal(again.ranking_, found.ranking_)


@pytest.mark.slow
def test_strings_and_graphs_as_targets() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(120, 12))
    texts = [("ab" if v > 0 else "ba") * 3 + "xyz"[i % 3] * (i % 5) for i, v in enumerate(X[:, 4])]
    found = HSICSelector(1, target_kernel=NGrams(3), **QUIET).fit(X, texts)
    assert_array_equal(found.get_support(indices=True), [4])
    rings = [nx.cycle_graph(6) if v > 0 else nx.star_graph(5) for v in X[:, 9]]
    kernel = WeisfeilerLehman(label=None)
    found = HSICSelector(1, target_kernel=kernel, **QUIET).fit(X, rings)
    assert_array_equal(found.get_support(indices=True), [9])


def test_mixed_target_frame() -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(200, 8))
    y = pd.DataFrame({"kind": np.where(X[:, 2] > 0, "a", "b"), "size": X[:, 5] ** 2})
    assert_array_equal(HSICSelector(2, **QUIET).fit(X, y).get_support(indices=True), [2, 5])


@pytest.mark.parametrize("method", ["backward", "forward", "lasso"])
def test_constant_columns_come_last(method: str) -> None:
    X, y = xor(200, 4)
    X = np.column_stack([np.full(200, 7.3), X, np.zeros(200)])
    y = (X[:, 1] > 0).astype(int)
    found = HSICSelector(1, method=method, **QUIET).fit(X, y)
    assert found.ranking_[1] == 1
    assert set(found.ranking_[[0, 7]]) == {7, 8}
    assert_array_equal(found.scores_[[0, 7]], 0)
    all_of_them = HSICSelector(8, method=method, **QUIET)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the lasso has no coefficient for all
        assert all_of_them.fit(X, y).support_.all()


@pytest.mark.parametrize("method", ["backward", "forward", "lasso"])
def test_only_constant_columns(method: str) -> None:
    found = HSICSelector(1, method=method, **QUIET).fit(np.ones((20, 3)), np.arange(20) % 2)
    assert_array_equal(found.support_, [True, False, False])


def test_duplicates_are_kept_backward_and_left_out_by_the_lasso() -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(300, 8))
    X[:, 3] = X[:, 1]
    y = X[:, 1] + 0.5 * X[:, 6] ** 2
    both = HSICSelector(2, method="backward", **QUIET).fit(X, y).get_support(indices=True)
    assert_array_equal(both, [1, 3])
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        apart = HSICSelector(2, method="lasso", **QUIET).fit(X, y).get_support(indices=True)
    assert 6 in apart and len({1, 3} & set(apart)) == 1


def test_equal_columns_are_ranked_in_their_order() -> None:
    x = np.random.default_rng(0).normal(size=(30, 1))
    X = np.repeat(x, 4, axis=1)
    for method in ("backward", "forward"):
        found = HSICSelector(2, method=method, step=1, **QUIET).fit(X, x[:, 0] > 0)
        assert_array_equal(found.ranking_, [1, 2, 3, 4])


def test_auto_takes_what_predicts_best() -> None:
    X, y = xor(300, 12)
    for method in ("auto", "backward"):
        found = HSICSelector("auto", method=method, **QUIET).fit(X, y)
        assert_array_equal(found.get_support(indices=True), [0, 1])


# --- errors of rows left out ----------------------------------------------------------------------


def test_errors_are_those_of_regressions_without_each_row() -> None:
    """By fitting again without every row, for every λ; the others keep their weights."""
    rng = np.random.default_rng(0)
    n = 15
    X, y = rng.normal(size=(n, 3)), rng.normal(size=n)
    target, rows = target_of(y, Gaussian(1.0)), rng.permutation(n)
    errors = LeftOutErrors(X[rows], Gaussian(1.5), target, rows, PivotedCholesky(1e-14))
    columns = [0, 2]
    K = oracles.gaussian(X[rows][:, columns], X[rows][:, columns], 1.5)
    psi, phi = (np.linalg.cholesky(G + 1e-13 * np.eye(n)) for G in (K, target.gram(rows)))
    phi = phi - phi.mean(axis=0)
    scale = np.trace(np.cov(psi.T, bias=True))
    least = np.inf
    for lam in scale * GRID:
        total = 0.0
        for i in range(n):
            kept = np.arange(n) != i
            A, B = psi[kept], phi[kept]
            mean = A.mean(axis=0)
            C = (A - mean).T @ (A - mean) / n + lam * np.eye(n)
            W = np.linalg.solve(C, (A - mean).T @ (B - B.mean(axis=0)) / n)
            total += ((phi[i] - B.mean(axis=0) - (psi[i] - mean) @ W) ** 2).sum()
        least = min(least, total / n)
    assert errors.at(columns, 0) == pytest.approx(least / (phi**2).sum(axis=1).mean(), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_weak_columns_are_found_too(seed: int) -> None:
    """Friedman's function, of whose five columns backward elimination misses one or two."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(300, 30))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3]
    y = y + 5 * X[:, 4] + rng.normal(size=300)
    found = HSICSelector(5, **QUIET).fit(X, y)
    assert_array_equal(found.get_support(indices=True), range(5))
    assert (found.scores_[:5] > found.scores_[5:].max()).all()
    assert found.path_.dependence[-1] > 0.5
    assert not HSICSelector(5, method="backward", **QUIET).fit(X, y).support_[:5].all()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [500, 505])
def test_a_column_lost_in_noise_is_found_beside_the_others(seed: int) -> None:
    """Friedman's third column, which neither search ranks near the top with 200 rows."""
    X, y, k = PROBLEMS["Friedman"](200, np.random.default_rng((seed, 200)))
    found = HSICSelector(k, random_state=seed, progress=False).fit(X, y)
    assert_array_equal(found.get_support(indices=True), range(k))
    assert found.scores_[:k].min() > 0
    lasso = HSICSelector(k, method="lasso", random_state=seed, progress=False).fit(X, y)
    assert not lasso.support_[:k].all()


@pytest.mark.slow
def test_auto_agrees_with_a_regression() -> None:
    """Where one column is not enough for a model that is fitted afterwards, auto takes more."""
    X, y = load_diabetes(return_X_y=True)
    found = HSICSelector("auto", **QUIET).fit(X, y)
    one = HSICSelector(1, **QUIET).fit(X, y)
    model = make_pipeline(StandardScaler(), SVR(C=100, gamma=0.03))
    scores = [cross_val_score(model, s.transform(X), y).mean() for s in (one, found)]
    assert found.n_features_ > 1
    assert scores[1] > scores[0] + 0.05


def test_blocks_and_coordinates_find_the_same() -> None:
    X, y = xor(900, 10)
    exact = HSICSelector(2, method="backward", block_size=None, **QUIET).fit(X, y)
    blocks = HSICSelector(2, method="backward", block_size=300, **QUIET).fit(X, y)
    thin = HSICSelector(2, method="backward", step=4, basis=Nystroem(300), **QUIET).fit(X, y)
    for found in (exact, blocks, thin):
        assert_array_equal(found.get_support(indices=True), [0, 1])
    few = HSICSelector(2, method="backward", step=4, basis=RandomFourier(400), **QUIET).fit(
        X[:, :5], y
    )
    assert_array_equal(few.get_support(indices=True), [0, 1])


def test_blocks_of_the_lasso() -> None:
    rng = np.random.default_rng(6)
    X = rng.normal(size=(600, 12))
    y = np.abs(X[:, 2]) + X[:, 7]
    for size in (None, 150):
        found = HSICSelector(2, method="lasso", block_size=size, **QUIET).fit(X, y)
        assert_array_equal(found.get_support(indices=True), [2, 7])


# --- as a tool of scikit-learn --------------------------------------------------------------------


def test_numbers_of_features() -> None:
    X, y = xor(60, 6)
    for asked, expected in ((None, 4), (3, 3), (0.25, 2), (1.0, 8), (np.int64(5), 5)):
        found = HSICSelector(asked, **QUIET).fit(X, y)
        assert found.support_.sum() == expected == found.n_features_
        assert sorted(found.ranking_) == list(range(1, 9))
        assert_array_equal(found.support_, found.ranking_ <= expected)


def test_transform_and_back() -> None:
    X, y = xor(80, 4)
    found = HSICSelector(2, **QUIET).fit(X, y)
    Z = found.transform(X)
    assert_array_equal(Z, X[:, found.support_])
    back = found.inverse_transform(Z)
    assert_array_equal(back[:, found.support_], Z)
    assert_array_equal(back[:, ~found.support_], 0)
    with pytest.raises(NotFittedError):
        HSICSelector().transform(X)


def test_names_of_columns() -> None:
    X, y = xor(400, 6)
    frame = pd.DataFrame(X, columns=[f"v{i}" for i in range(8)])
    found = HSICSelector(2, **QUIET).fit(frame, pd.Series(y))
    assert list(found.get_feature_names_out()) == ["v0", "v1"]
    found.set_output(transform="pandas")
    assert list(found.transform(frame).columns) == ["v0", "v1"]


def test_pipeline_and_search() -> None:
    X, y = xor(240, 12)
    pipeline = make_pipeline(HSICSelector(progress=False, random_state=0), SVC(C=10))
    grid = {
        "hsicselector__n_features_to_select": [2, 14],
        "hsicselector__method": ["backward"],
    }
    search = GridSearchCV(pipeline, grid, cv=3).fit(X, y)
    assert search.best_params_["hsicselector__n_features_to_select"] == 2
    assert search.best_score_ > 0.85


def test_clone_repr_and_saving(tmp_path: Any) -> None:
    X, y = xor(100, 4)
    model = HSICSelector(2, Laplace(), Delta(), step=2, random_state=1, progress=False)
    assert clone(model).get_params() == model.get_params()
    assert "kernel=Laplace" in repr(model)
    for method in ("backward", "forward", "lasso"):
        found = clone(model).set_params(method=method).fit(X, y)
        save(found, tmp_path / "model.npz")
        read = load(tmp_path / "model.npz")
        assert_array_equal(read.transform(X), found.transform(X))
        assert_array_equal(read.ranking_, found.ranking_)
        assert repr(read.path_) == repr(found.path_)


@pytest.mark.parametrize("method", ["backward", "forward", "lasso"])
def test_the_same_seed_gives_the_same_answer(method: str) -> None:
    X, y = xor(500, 8)
    model = HSICSelector(3, method=method, block_size=100, random_state=3, progress=False)
    first = model.fit(X, y)
    scores, ranking = first.scores_, first.ranking_
    model.fit(X, y)
    assert_array_equal(model.scores_, scores)
    assert_array_equal(model.ranking_, ranking)


@pytest.mark.parametrize("method", ["backward", "forward", "lasso"])
def test_units_do_not_matter(method: str) -> None:
    X, y = xor(150, 5)
    units = 10.0 ** np.arange(-3, 4)
    model = HSICSelector(3, method=method, **QUIET)
    assert_array_equal(model.fit(X, y).ranking_, clone(model).fit(X * units + units, y).ranking_)


def test_few_rows() -> None:
    rng = np.random.default_rng(0)
    for n in (4, 5, 7):
        X = rng.normal(size=(n, 3))
        for method in ("backward", "forward", "lasso"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                found = HSICSelector(1, method=method, **QUIET).fit(X, X[:, 0])
            assert found.support_.sum() == 1
    two = HSICSelector(1, estimator="V", **QUIET).fit(rng.normal(size=(2, 2)), [0, 1])
    assert two.support_.sum() == 1


def test_plots() -> None:
    X, y = xor(100, 30)
    for method in ("backward", "forward", "lasso"):
        found = HSICSelector(4, method=method, **QUIET).fit(X, y)
        ax = found.plot()
        assert ax.get_xlabel() == "features in play"
        assert ax.get_ylabel() == found.path_.name
        matplotlib.pyplot.close(ax.figure)
    assert "steps" in repr(found.path_)


@pytest.mark.slow
def test_threads_change_nothing() -> None:
    from threadpoolctl import threadpool_limits

    X, y = xor(200, 20)
    found = []
    for limit in (1, 2):
        with threadpool_limits(limits=limit, user_api="blas"):
            found.append(HSICSelector(2, **QUIET).fit(X, y).scores_)
    assert_allclose(*found, rtol=1e-10)


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_features_to_select": 9}, "n_features_to_select=9, but X has 4 features. Ask for at"),
        ({"n_features_to_select": 0}, "n_features_to_select must be a whole number ≥ 1"),
        ({"n_features_to_select": 1.5}, "is not a share of the features"),
        ({"n_features_to_select": "half"}, "is not understood. Use a whole number"),
        ({"method": "sideways"}, "method must be one of 'auto', 'backward', 'forward', 'lasso'"),
        ({"estimator": "W"}, "estimator must be one of"),
        ({"step": 0}, "step must be a whole number ≥ 1"),
        ({"step": 1.0}, "step=1.0 is not a share"),
        ({"block_size": 3}, "block_size must be a whole number ≥ 8"),
        ({"kernel": Gaussian((1.0, 2.0, 3.0, 4.0))}, "one bandwidth per column does not fit"),
    ],
)
def test_bad_parameters(parameters: dict[str, Any], message: str) -> None:
    X, y = xor(30, 2)
    with pytest.raises(ValueError, match=message):
        HSICSelector(**parameters).fit(X, y)


def test_bad_targets() -> None:
    X, y = xor(30, 2)
    model = HSICSelector()
    cases: list[tuple[Any, str]] = [
        (None, "requires y to be passed"),
        (np.where(np.arange(30) < 3, np.nan, X[:, 0]), "NaN or infinity in 3 of 30 rows"),
        ([None, *y[1:]], "missing labels in 1 rows .the first is row 0.. Give them a label"),
        (np.zeros(30, dtype=int), "y holds one class, .*0.*: nothing depends"),
        (np.zeros(30), "y is the same in every row"),
        (y[:20], "inconsistent numbers of samples"),
        (np.arange(30), "hardly any of them twice. Numbers go in as floating point"),
        ([f"text {i}" for i in range(30)], "target_kernel=kernels.NGrams"),
    ]
    for target, message in cases:
        with pytest.raises(ValueError, match=message):
            model.fit(X, target)
    with pytest.raises(TypeError, match="graphs have no default kernel"):
        model.fit(X, [nx.path_graph(3)] * 30)
    assert not hasattr(model, "support_")


def test_bad_features() -> None:
    X, y = xor(30, 2)
    with pytest.raises(ValueError, match="NaN or infinity in 1 of 30 rows"):
        HSICSelector().fit(np.where(np.arange(120).reshape(30, 4) == 5, np.nan, X), y)
    with pytest.raises(ValueError, match="Reshape your data"):
        HSICSelector().fit(X[:, 0], y)
    with pytest.raises(ValueError, match="expected at least 4 points, got 3"):
        HSICSelector().fit(X[:3], [0, 1, 1])
    with pytest.raises(TypeError, match="pass Gaussian"):
        HSICSelector(kernel=Gaussian).fit(X, y)


def test_a_lasso_with_too_few_columns_says_so() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 1))
    X = np.repeat(x, 3, axis=1)
    with pytest.warns(UserWarning, match="gives 1 features a coefficient"):
        found = HSICSelector(2, method="lasso", **QUIET).fit(X, x[:, 0])
    assert found.support_.sum() == 2


def test_a_lasso_that_does_not_converge_says_so() -> None:
    with pytest.warns(ConvergenceWarning, match="did not converge: at λ = 0.1"):
        lasso.check_optimality(
            np.eye(2), np.array([0.6, 0.5]), np.array([0.9, 0.0]), 0.1, np.zeros(2), [1], [0.1]
        )


@given(st.integers(0, 10_000), st.integers(1, 8), st.booleans())
@settings(max_examples=40, deadline=None)
def test_every_point_of_the_lassos_path_is_optimal(seed: int, k: int, repeated: bool) -> None:
    """Also with columns that repeat others, or are sums of them."""
    rng = np.random.default_rng(seed)
    Z = np.abs(rng.normal(size=(6 if repeated else 12, 8)))
    if repeated:
        Z[:, 5] = Z[:, 2]
    Z /= np.sqrt((Z**2).sum(axis=0))
    y = Z @ np.maximum(rng.normal(size=8), 0) + 0.3 * rng.normal(size=len(Z))
    G, c = Z.T @ Z, Z.T @ y
    if c.max() <= 0:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        found = lasso.lasso_path(G, c, k)
    a = found.coefficients

    def loss(v: np.ndarray) -> float:
        return float(v @ G @ v / 2 - c @ v + found.regularization * v.sum())

    assert loss(a) <= loss(oracles.nonnegative_lasso(G, c, found.regularization)) + 1e-8
    assert (a > 0).sum() <= k


def test_targets_by_their_type() -> None:
    n = 12
    some = np.arange(n)
    assert target_of(some % 3, None).kernel == Delta()
    assert target_of((some % 2).astype(bool), None).kernel == Delta()
    assert target_of([["a"], ["b"]] * 6, None).kernel == Delta()
    assert isinstance(target_of(some / 7, None).kernel, Gaussian)
    assert isinstance(target_of(np.eye(n)[:, :3].astype(int), None).kernel, Gaussian)
    assert isinstance(target_of(some / 7, Laplace()).kernel, Laplace)
    plain = target_of(some % 3, Delta())
    assert_array_equal(plain.factors, 1)
