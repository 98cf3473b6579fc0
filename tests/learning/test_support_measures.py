"""Learners on distributions: laws, SVMs on points, every kind of bag, files, and bad input."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC, SVR

from meanmap import (
    ConditionalEmbedding,
    SupportMeasureClassifier,
    SupportMeasureRegressor,
    embed,
    load,
    save,
)
from meanmap.kernels import (
    Delta,
    Expected,
    Gaussian,
    Laplace,
    Linear,
    NGrams,
    Normal,
    OnEmbeddings,
    Polynomial,
    Weighted,
)
from meanmap.learning import DistributionRidge
from meanmap.spaces import Explicit, Nystroem, PivotedCholesky, RandomFourier

MODELS = [SupportMeasureClassifier, SupportMeasureRegressor, DistributionRidge]
each_model = pytest.mark.parametrize("model", MODELS)


def problem(n: int = 60, seed: int = 0, classes: int = 2) -> tuple[list[np.ndarray], np.ndarray]:
    """Bags of equal means, whose spread is their class."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    return [rng.normal(scale=1 + 1.5 * c, size=(rng.integers(9, 15), 2)) for c in y], y


# --- what it equals -------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["ovr", "ovo"])
@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("rows", ["table", "bags", "normals"])
def test_points_make_it_a_support_vector_machine(shape: str, classes: int, rows: str) -> None:
    rng = np.random.default_rng(classes)
    X, Q = rng.normal(size=(80, 3)), rng.normal(size=(30, 3))
    y = np.array(list("abcd"))[(rng.integers(0, classes, size=80))]
    options: dict[str, Any] = {"C": 3.0, "decision_function_shape": shape, "tol": 1e-10}
    svc = SVC(kernel="rbf", gamma=1 / (2 * 1.3**2), **options).fit(X, y)
    as_bags = {
        "table": lambda Z: Z,
        "bags": lambda Z: [z[None] for z in Z],
        "normals": lambda Z: [Normal(z, 0.0) for z in Z],
    }[rows]
    model = SupportMeasureClassifier(Gaussian(1.3), "linear", **options).fit(as_bags(X), y)
    assert_allclose(model.decision_function(as_bags(Q)), svc.decision_function(Q), atol=1e-8)
    assert_array_equal(model.predict(as_bags(Q)), svc.predict(Q))
    assert_array_equal(model.support_, svc.support_)
    assert_allclose(model.dual_coef_, svc.dual_coef_, atol=1e-8)
    assert_array_equal(model.n_support_, svc.n_support_)
    assert_array_equal(model.classes_, svc.classes_)
    assert model.n_features_in_ == 3


def test_points_make_it_support_vector_regression() -> None:
    rng = np.random.default_rng(1)
    X, Q = rng.normal(size=(60, 2)), rng.normal(size=(20, 2))
    y, w = np.sin(X[:, 0]) + X[:, 1], rng.uniform(0, 2, size=60)
    svr = SVR(kernel="rbf", gamma=0.5, C=2.0, epsilon=0.05, tol=1e-10).fit(X, y, sample_weight=w)
    model = SupportMeasureRegressor(Gaussian(1.0), "linear", C=2.0, epsilon=0.05, tol=1e-10)
    model.fit(X, y, sample_weight=w)
    assert_allclose(model.predict(Q), svr.predict(Q), atol=1e-8)
    assert_allclose(model.dual_coef_, svr.dual_coef_, atol=1e-8)
    assert_array_equal(model.support_, svr.support_)


@pytest.mark.parametrize("classes", [2, 3])
def test_small_normal_distributions_are_a_wider_kernel(classes: int) -> None:
    """N(xᵢ, s²I) and variance σ²: an SVM with σ² + 2s², the factor taken up by C.

    A test point without spread sees σ² + s² instead. The diagonal: two equal examples are not one
    distribution drawn twice, so that k(x, x) is the factor too, as for every other pair.
    """
    rng = np.random.default_rng(2)
    X, Q = rng.normal(size=(70, 3)), rng.normal(size=(20, 3))
    y = rng.integers(0, classes, size=70)
    sigma2, s2 = 1.2, 0.3
    wide = sigma2 + 2 * s2
    factor = (sigma2 / wide) ** 1.5
    model = SupportMeasureClassifier(Gaussian(sigma2**0.5), "linear", C=2.0 / factor, tol=1e-8)
    model.fit([Normal(x, s2) for x in X], y)
    svc = SVC(kernel="rbf", gamma=1 / (2 * wide), C=2.0, tol=1e-8).fit(X, y)
    queries = [Normal(q, s2) for q in Q]
    assert_allclose(model.decision_function(queries), svc.decision_function(Q), atol=1e-6)
    gram = model.kernel_([Normal(x, s2) for x in X])
    assert_allclose(np.diag(gram), factor)
    # with the diagonal of points, k(x, x) = 1, it is another machine: that of jitter that is shared
    np.fill_diagonal(gram, 1.0)
    other = SVC(kernel="precomputed", C=2.0 / factor, tol=1e-8).fit(gram, y)
    ridge = factor * Gaussian(wide**0.5)(X) + (1 - factor) * np.eye(70)
    same = SVC(kernel="precomputed", C=2.0 / factor, tol=1e-8).fit(ridge, y)
    assert_allclose(other.dual_coef_, same.dual_coef_, atol=1e-7)


@pytest.mark.parametrize("model", [SupportMeasureClassifier(C=5.0), SupportMeasureRegressor()])
@pytest.mark.parametrize("level2", ["linear", "gaussian"])
@pytest.mark.parametrize("classes", [2, 3])
def test_coordinates_of_full_rank_are_the_gram_matrix(
    model: Any, level2: str, classes: int
) -> None:
    X, y = problem(60, 3, classes)
    Q = problem(20, 4)[0]
    exact = clone(model).set_params(level2=level2, tol=1e-8).fit(X, y)
    ask = "decision_function" if hasattr(model, "decision_function") else "predict"
    for low in (
        {"basis": PivotedCholesky(1e-14)},
        {"basis": Nystroem(60)},
        {"point_basis": PivotedCholesky(1e-14)},
        {"point_basis": PivotedCholesky(1e-14), "basis": PivotedCholesky(1e-14)},
    ):
        other = clone(exact).set_params(**low).fit(X, y)
        assert_allclose(getattr(other, ask)(Q), getattr(exact, ask)(Q), atol=2e-4)
        assert_array_equal(other.predict(Q) > 0.5, exact.predict(Q) > 0.5)
        assert (other.space_ is None) == ("basis" not in low)
        assert (other.point_space_ is None) == ("point_basis" not in low)
        assert hasattr(other, "coef_") == ("basis" in low)


def test_explicit_points() -> None:
    X, y = problem(40)
    exact = SupportMeasureRegressor(Polynomial(2), "linear", tol=1e-8, C=0.01).fit(X, y)
    low = clone(exact).set_params(point_basis=Explicit()).fit(X, y)
    assert_allclose(low.predict(X), exact.predict(X), atol=1e-5)
    assert low.point_space_.rank_ == 6


def test_ridge_is_kernel_ridge_regression() -> None:
    X, y = problem(50)
    Q = problem(15, 5)[0]
    model = DistributionRidge(Gaussian(1.0), Gaussian(0.4), regularization=1e-3).fit(X, y)
    kernel = OnEmbeddings(Gaussian(1.0), Gaussian(0.4))
    assert model.kernel_ == kernel
    K, k = kernel(X), kernel(Q, X)
    H = np.eye(50) - 1 / 50
    ridge = KernelRidge(alpha=50 * 1e-3, kernel="precomputed").fit(H @ K @ H, y - y.mean())
    truth = y.mean() + ridge.predict((k - K.mean(axis=0)) @ H)
    assert_allclose(model.predict(Q), truth, atol=1e-6)
    both = DistributionRidge(regularization=1e-3).fit(X, np.stack([y, -y], axis=1))
    assert both.predict(Q).shape == (15, 2)
    automatic = DistributionRidge().fit(X, y)
    assert automatic.regularization_ == automatic.leave_one_out_.best
    low = DistributionRidge(point_basis=PivotedCholesky(1e-13)).fit(X, y)
    assert_allclose(low.predict(Q), automatic.predict(Q), atol=1e-5)
    assert isinstance(automatic.model_, ConditionalEmbedding)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(MODELS))
def test_laws(seed: int, model: Any) -> None:
    """Order within a bag, weights 1/m, points repeated: the same distribution, the same answer."""
    rng = np.random.default_rng(seed)
    X, y = problem(24, seed)
    Q = problem(6, seed + 1)[0]
    options = {"regularization": 1e-2} if model is DistributionRidge else {"tol": 1e-9}
    truth = model(**options).fit(X, y).predict(Q)
    times = [rng.integers(1, 3, size=len(x)) for x in X]
    repeated = [np.repeat(x, t, axis=0) for x, t in zip(X, times, strict=True)]
    weighted = [Weighted(x, t / t.sum()) for x, t in zip(X, times, strict=True)]
    same: list[Any] = [[rng.permutation(x) for x in X], [Weighted(x) for x in X]]
    for bags in same:
        assert_allclose(model(**options).fit(bags, y).predict(Q), truth, atol=1e-6)
    first, second = (model(**options).fit(bags, y).predict(Q) for bags in (repeated, weighted))
    assert_allclose(first, second, atol=1e-6)


def test_weights_are_repetition() -> None:
    X, y = problem(30, 6)
    w = np.random.default_rng(0).integers(0, 3, size=30)
    again = [x for x, times in zip(X, w, strict=True) for _ in range(times)]
    for model in (SupportMeasureClassifier(tol=1e-10), SupportMeasureRegressor(tol=1e-10)):
        one = clone(model).fit(X, y, sample_weight=w)
        two = clone(model).fit(again, np.repeat(y, w))
        ask = "decision_function" if hasattr(one, "decision_function") else "predict"
        assert_allclose(getattr(one, ask)(X), getattr(two, ask)(X), atol=1e-6)
        assert set(one.support_) <= set(np.flatnonzero(w))


# --- every kind of bag ----------------------------------------------------------------------------


def test_kinds_of_bags() -> None:
    rng = np.random.default_rng(7)
    y = np.arange(40) % 2
    stack = rng.normal(size=(40, 12, 2)) * (1 + 2 * y)[:, None, None]
    frames = [pd.DataFrame(x, columns=["height", "weight"]) for x in stack]
    k = Gaussian(1.5)
    points = stack.reshape(-1, 2)
    weights = np.kron(np.eye(40), np.full(12, 1 / 12))
    kinds: dict[str, Any] = {
        "stack": stack,
        "list": list(stack),
        "nested": stack.tolist(),
        "objects": np.array([None, *stack], dtype=object)[1:],
        "frames": frames,
        "embeddings": [embed(x, kernel=k) for x in stack],
        "batch": embed(points, kernel=k, weights=weights),
        "float32": stack.astype(np.float32),
    }
    truth = None
    for name, bags in kinds.items():
        model = SupportMeasureClassifier(None if name in ("embeddings", "batch") else k)
        values = model.fit(bags, y).decision_function(bags)
        truth = values if truth is None else truth
        assert_allclose(values, truth, atol=1e-3 if name == "float32" else 1e-9, err_msg=name)
        assert model.n_features_in_ == 2
        assert model.kernel_.kernel == k
    named = SupportMeasureClassifier(k).fit(frames, y)
    assert_array_equal(named.feature_names_in_, ["height", "weight"])
    assert_allclose(named.decision_function(kinds["embeddings"]), truth, atol=1e-9)


def test_mixed_bags_and_signed_weights() -> None:
    X, y = problem(40)
    mixed: list[Any] = list(X)
    mixed[0] = Normal([0.0, 0.0], 1.0)
    mixed[1] = Weighted(X[1], np.linspace(-0.01, 0.2, len(X[1])))
    mixed[2] = embed(X[2], kernel=Gaussian(3.0))
    model = SupportMeasureClassifier().fit(mixed, y)
    assert model.score(mixed, y) > 0.9
    assert model.predict([Normal([0.0, 0.0], 0.8), Normal([0.0, 0.0], np.eye(2) * 5)]).tolist() == [
        0,
        1,
    ]
    low = clone(model).set_params(point_basis=PivotedCholesky(1e-10)).fit(mixed, y)
    assert_allclose(low.decision_function(mixed), model.decision_function(mixed), atol=0.01)


def test_bags_of_other_things() -> None:
    rng = np.random.default_rng(8)
    y = np.arange(40) % 2
    letters = [rng.choice(list("abc"), size=20, p=[0.6, 0.2, 0.2] if c else None) for c in y]
    model = SupportMeasureClassifier(Delta(), "linear", C=100).fit(letters, y)
    assert model.score(letters, y) > 0.85
    assert not hasattr(model, "n_features_in_")
    texts = [["".join(rng.choice(list("ab"), size=8)) + "cc" * c for _ in range(5)] for c in y]
    assert SupportMeasureClassifier(NGrams(2)).fit(texts, y).score(texts, y) == 1.0
    frames = [
        pd.DataFrame({"x": rng.normal(size=9), "kind": rng.choice(list("ab"), size=9)}) for _ in y
    ]
    for frame, c in zip(frames, y, strict=True):
        frame["kind"] = frame["kind"] if c else "a"
    assert SupportMeasureClassifier().fit(frames, y).score(frames, y) == 1.0
    table = pd.DataFrame({"x": rng.normal(size=40), "kind": np.array(["a", "b"])[y]})
    rows = SupportMeasureClassifier(C=10).fit(table, y)
    assert rows.score(table, y) == 1.0
    assert_array_equal(rows.feature_names_in_, ["x", "kind"])


@pytest.mark.parametrize(
    "level2",
    [
        Laplace(),
        Laplace(0.5),
        OnEmbeddings(Gaussian(1.0), Gaussian(0.5)),
        Expected(Laplace(1.0)),
        Expected(Gaussian(1.0)) * Expected(Gaussian(1.0)) + Expected(Linear()),
    ],
    ids=repr,
)
def test_kernels_of_the_second_level(level2: Any) -> None:
    X, y = problem(60)
    model = SupportMeasureClassifier(level2=level2, C=100).fit(X[:40], y[:40])
    assert model.score(X[40:], y[40:]) > 0.7
    if isinstance(level2, Laplace):
        assert model.kernel_.profile == Laplace(model.kernel_.profile.bandwidth)


# --- scikit-learn's tools, files ------------------------------------------------------------------


def test_scikit_learns_tools() -> None:
    X, y = problem(60)
    train, test, y_train, y_test = train_test_split(X, y, random_state=0)
    grid = {
        "kernel__bandwidth": [0.5, 2.0],
        "bandwidth2": ["0.5*median", "median"],
        "C": [0.1, 10.0],
    }
    search = GridSearchCV(SupportMeasureClassifier(Gaussian()), grid, cv=3, error_score="raise")
    assert search.fit(train, y_train).score(test, y_test) > 0.9
    normals = [Normal(x.mean(axis=0), np.cov(x.T)) for x in X]
    batch = embed(np.concatenate(X), weights=np.eye(60).repeat([len(x) for x in X], axis=1) / 12)
    for bags in (X, normals, batch):
        scores = cross_val_score(SupportMeasureClassifier(), bags, y, cv=3, error_score="raise")
        assert scores.min() > 0.8
    assert cross_val_score(DistributionRidge(), X, y, cv=3).min() > 0.5
    scaled = make_pipeline(
        FunctionTransformer(lambda bags: [x / 2 for x in bags]), SupportMeasureClassifier()
    )
    assert scaled.fit(train, y_train).score(test, y_test) > 0.9
    calibrated = CalibratedClassifierCV(SupportMeasureClassifier(), cv=3, ensemble=False)
    assert calibrated.fit(X, y).predict_proba(X).shape == (60, 2)
    assert repr(SupportMeasureClassifier(C=2.0)) == "SupportMeasureClassifier(C=2.0)"
    balanced = SupportMeasureClassifier(class_weight="balanced").fit(X[:45], np.sort(y)[:45])
    assert set(balanced.predict(X)) <= {0, 1}


@pytest.mark.parametrize(
    "options",
    [{}, {"basis": Nystroem(20, random_state=0)}, {"point_basis": PivotedCholesky(1e-8)}],
    ids=str,
)
@each_model
def test_files(model: Any, options: dict[str, Any], tmp_path: Path) -> None:
    X, y = problem(30, classes=3)
    bags: list[Any] = [*X[:-2], Normal([0.0, 0.0], 2.0), Weighted(X[0], np.ones(len(X[0])))]
    fitted = model(**options).fit(bags, y)
    save(fitted, tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    assert_array_equal(again.predict(bags), fitted.predict(bags))
    assert again.get_params(deep=False).keys() == fitted.get_params(deep=False).keys()
    if model is SupportMeasureClassifier:
        assert_array_equal(again.decision_function(bags), fitted.decision_function(bags))


@each_model
def test_fitting_again_forgets(model: Any) -> None:
    X, y = problem(30)
    fitted = model(basis=PivotedCholesky()).fit(
        pd.DataFrame(np.ones((4, 3)) * [[1], [2], [3], [4]], columns=list("abc")), [0, 1, 0, 1]
    )
    assert fitted.n_features_in_ == 3 and hasattr(fitted, "feature_names_in_")
    fitted.set_params(basis=None).fit(X, y)
    assert fitted.n_features_in_ == 2 and not hasattr(fitted, "coef_")
    assert not hasattr(fitted, "feature_names_in_")
    before = fitted.predict(X)
    with pytest.raises(ValueError, match="NaN"):
        fitted.fit(np.full((4, 3), np.nan), [0, 1, 0, 1])
    assert fitted.n_features_in_ == 2
    assert_array_equal(fitted.predict(X), before)


# --- bad input ------------------------------------------------------------------------------------

TWO = np.zeros((3, 2))


@each_model
@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([], "0 sample"),
        ([TWO, np.zeros((0, 2))], r"X\[1\] is empty"),
        ([TWO, np.zeros((3, 1))], r"X\[1\] has 1 features, but X\[0\] has 2"),
        ([TWO, np.array([[np.nan, 1.0]])], r"X\[1\] contains NaN"),
        ([TWO, Normal([0.0])], r"X\[1\] has 1 features"),
        ([TWO, "abc"], r"X\[1\]"),
        ([TWO, None], r"X\[1\]"),
        ([TWO, np.zeros(2)], r"X\[1\] has 1 features, but X\[0\] has 2"),
        ([np.zeros(3), np.zeros(2)], r"np.reshape\(x, \(-1, 1\)\)"),
        (np.zeros(3), "Reshape your data"),
        (Normal([0.0]), r"Pass \[X\]"),
        (embed(TWO), r"Pass \[X\]"),
        ([embed(TWO, Gaussian(1.0)), embed(TWO, Gaussian(2.0))], "Embed all with one kernel"),
        ([Weighted(TWO, [1.0])] * 2, r"X\[0\].weights: expected one weight per point"),
        (
            [pd.DataFrame({"a": [0.0], "b": [1.0]}), pd.DataFrame({"b": [0.0], "c": [1.0]})],
            r"X\[1\] has other columns than .* Missing: 'a'; unexpected: 'c'",
        ),
    ],
)
def test_bags_that_are_none(model: Any, X: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        model().fit(X, [0, 1])


@each_model
def test_new_bags_must_be_alike(model: Any) -> None:
    X, y = problem(20)
    fitted = model().fit(X, y)
    with pytest.raises(ValueError, match=r"X\[0\] has 1 features"):
        fitted.predict([np.zeros((3, 1))])
    with pytest.raises(ValueError, match="X has 3 features, but"):
        fitted.predict(np.zeros((2, 3)))
    with pytest.raises(NotFittedError):
        model().predict(X)
    frames = [pd.DataFrame(x, columns=list("ab")) for x in X]
    fitted = model().fit(frames, y)
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict([frame.rename(columns={"a": "c"}) for frame in frames])
    swapped = [frame[["b", "a"]] for frame in frames]
    expected = fitted.predict(frames)
    assert_allclose(fitted.predict(swapped), expected, rtol=1e-9, atol=1e-12)
    again = model().fit(swapped, y).predict(frames)
    assert_allclose(again, expected, rtol=1e-9, atol=1e-12)


@each_model
def test_targets_that_are_none(model: Any) -> None:
    X, y = problem(20)
    with pytest.raises(ValueError, match="y is None"):
        model().fit(X, None)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model().fit(X, y[:5])
    missing = y.astype(float)
    missing[3] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        model().fit(X, missing)
    with pytest.raises(ValueError, match="must not be negative"):
        model().fit(X, y, sample_weight=np.linspace(-1, 1, 20))
    with pytest.raises(ValueError, match="zero everywhere"):
        model().fit(X, y, sample_weight=np.zeros(20))


def test_one_class() -> None:
    X, y = problem(20)
    with pytest.raises(ValueError, match="number of classes has to be greater than one"):
        SupportMeasureClassifier().fit(X, np.zeros(20))
    with pytest.raises(ValueError, match="number of classes has to be greater than one"):
        SupportMeasureClassifier().fit(X, y, sample_weight=y)  # the other class weighs nothing
    labels = y.astype(object)
    labels[3] = None
    with pytest.raises((TypeError, ValueError)):
        SupportMeasureClassifier().fit(X, labels)


@pytest.mark.parametrize("options", [{}, {"basis": PivotedCholesky()}], ids=str)
@pytest.mark.parametrize("model", MODELS[:2])
def test_a_solver_that_does_not_converge_says_so(model: Any, options: Any) -> None:
    X, y = problem(60, classes=2)
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        model(C=1e4, max_iter=2, **options).fit(X, y)


@pytest.mark.parametrize("model", MODELS[:2])
def test_huge_weights_end_with_a_warning(model: Any) -> None:
    """Weights multiply C: LIBSVM would go on for minutes, and nothing can interrupt it."""
    rng = np.random.default_rng(0)
    X, y = [rng.normal(size=(12, 2)) for _ in range(60)], rng.integers(2, size=60)
    began = time.perf_counter()
    with pytest.warns(ConvergenceWarning, match="max_iter=1000000 steps.*sample_weight"):
        model(level2="linear").fit(X, y, sample_weight=np.full(60, 1e14))
    assert time.perf_counter() - began < 30


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level2": "cubic"}, "level2 must be one of 'linear', 'gaussian'"),
        ({"kernel": Gaussian(), "level2": OnEmbeddings(Gaussian())}, "Leave kernel=None"),
        ({"bandwidth2": "mean"}, "bandwidth must be 'median'"),
        ({"bandwidth2": -1.0}, "bandwidth must be positive"),
        ({"kernel": "rbf"}, "expected a kernel"),
        ({"point_basis": RandomFourier(10)}, "without points that span it"),
        ({"point_basis": 10}, "point_basis: expected"),
        ({"basis": 10}, "basis: expected"),
        (
            {"point_basis": PivotedCholesky(), "level2": 2.0 * Expected(Gaussian())},
            "point_basis gives coordinates to embeddings",
        ),
    ],
)
@each_model
def test_options_that_are_none(model: Any, options: dict[str, Any], message: str) -> None:
    X, y = problem(20)
    with pytest.raises((TypeError, ValueError), match=message):
        model(**options).fit(X, y)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (SupportMeasureClassifier, {"C": 0}, "C must be positive"),
        (SupportMeasureRegressor, {"C": -1}, "C must be positive"),
        (SupportMeasureRegressor, {"epsilon": -1}, "epsilon must be a number ≥ 0"),
        (SupportMeasureClassifier, {"decision_function_shape": "all"}, "must be one of 'ovr'"),
        (DistributionRidge, {"regularization": -1.0}, "regularization"),
    ],
)
def test_numbers_that_are_none(model: Any, options: dict[str, Any], message: str) -> None:
    X, y = problem(20)
    with pytest.raises(ValueError, match=message):
        model(**options).fit(X, y)


def test_kernels_without_closed_form() -> None:
    y = [0, 1]
    with pytest.raises(TypeError, match=r"X\[1\]: .*normal.sample\(1000, rng\)"):
        SupportMeasureClassifier(Laplace(1.0)).fit([np.zeros((2, 1)), Normal([0.0])], y)


def test_nothing_is_warned_of_on_ordinary_data() -> None:
    X, y = load_iris(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert SupportMeasureClassifier().fit(X, y).score(X, y) > 0.95
