"""scikit-learn's own checks, and its tools at work: pipelines, searches, scores, clones, frames."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone, is_regressor
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import r2_score
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    cross_val_predict,
    cross_val_score,
    cross_validate,
)
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted

from meanmap import (
    ColoredUnfolding,
    ConditionalEmbedding,
    DataWarning,
    EmbeddingDensity,
    HSICClustering,
    HSICSelector,
    SupportMeasureClassifier,
    SupportMeasureRegressor,
)
from meanmap.kernels import Delta, Gaussian, Laplace, Linear, Matern, Polynomial
from meanmap.learning import DistributionRidge, KernelCCA, KernelDimensionReduction, KernelPCA
from meanmap.spaces import Explicit, PivotedCholesky, Space

WEIGHTS = "check_sample_weight_equivalence_on_dense_data"
SOLVER = (
    "LIBSVM stops within tol=1e-3 of the optimum, at another place for other rows, as "
    "scikit-learn's SVC and SVR do. With tol=1e-10 the check passes."
)
EXCEPTIONS = {
    "KernelCCA()": {
        WEIGHTS: 'regularization="auto" holds rows out. With a fixed λ the check passes.',
    },
    "SupportMeasureClassifier()": {WEIGHTS: SOLVER},
    "SupportMeasureRegressor()": {WEIGHTS: SOLVER},
    "HSICClustering()": {
        WEIGHTS: (
            "starts are drawn at random, and other rows draw other ones, as in scikit-learn's "
            "KMeans; the objective of the same labels is the same, which has a test of its own."
        ),
    },
    "Space()": {
        WEIGHTS: (
            "coordinates are those of the pivots drawn, which differ when rows are repeated; the "
            "kernel that they reproduce does not. With explicit features the check passes."
        ),
    },
}

ESTIMATORS = [
    EmbeddingDensity(n_candidates=30, random_state=0),
    EmbeddingDensity(method="herding", n_candidates=20),
    EmbeddingDensity(method="plain"),
    ConditionalEmbedding(),
    ConditionalEmbedding(regularization=1e-3),
    ConditionalEmbedding(Laplace(), Linear(), regularization=1e-2, centered=True),
    Space(),
    Space(Linear(), Explicit()),
    HSICClustering(),
    ColoredUnfolding(),
    HSICSelector(),
    HSICSelector(method="forward"),
    HSICSelector(method="lasso"),
    KernelPCA(2),
    KernelCCA(),
    KernelCCA(regularization=1e-2),
    KernelDimensionReduction(1, n_init=1, random_state=0),
    KernelDimensionReduction(1, method="gradient"),
    SupportMeasureClassifier(),
    SupportMeasureClassifier(Gaussian(1.0), "linear", basis=PivotedCholesky(), tol=1e-10),
    SupportMeasureRegressor(),
    SupportMeasureRegressor(Gaussian(2.0), bandwidth2=0.5, tol=1e-10),
    DistributionRidge(),
    DistributionRidge(level2="linear", point_basis=PivotedCholesky(1e-13), regularization=1e-2),
]


def exceptions(estimator: Any) -> dict[str, str]:
    """The checks that an estimator is known to fail, with the reason."""
    return EXCEPTIONS.get(f"{type(estimator).__name__}()", {}) if is_default(estimator) else {}


def is_default(estimator: Any) -> bool:
    return estimator.get_params(deep=False) == type(estimator)().get_params(deep=False)


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=exceptions)
def test_scikit_learns_own_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checks fit absurd data on purpose
        check(estimator)


def test_weights_are_repetition_in_the_kernel_that_a_space_reproduces() -> None:
    """What stands behind the exception above."""
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(25, 2)), rng.integers(0, 4, size=25)
    weighted = Space(Gaussian(), PivotedCholesky(1e-13)).fit(X, sample_weight=w)
    repeated = Space(Gaussian(), PivotedCholesky(1e-13)).fit(np.repeat(X, w, axis=0))
    Q = X[w > 0]
    Z, R = weighted.transform(Q), repeated.transform(Q)
    assert_allclose(Z @ Z.T, R @ R.T, rtol=1e-7, atol=1e-9)


# --- data ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    X = rng.uniform(-3, 3, size=(120, 2))
    return X, np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=120)


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    """A warning is a fault, unless it says that held-out points lie far from the others."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DataWarning)
        yield


# --- what it is ----------------------------------------------------------------------------------


def test_it_is_a_regressor(data: tuple[np.ndarray, np.ndarray]) -> None:
    assert is_regressor(ConditionalEmbedding())
    with pytest.raises(NotFittedError):
        check_is_fitted(ConditionalEmbedding())
    check_is_fitted(ConditionalEmbedding(regularization=1e-2).fit(*data))


def test_linear_targets_are_kernel_ridge_regression(data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = data
    model = ConditionalEmbedding(
        Gaussian(1.0), Linear(), 1e-3, basis=(PivotedCholesky(1e-13), None)
    ).fit(X, y)
    ridge = KernelRidge(alpha=1e-3 * len(X), kernel="rbf", gamma=0.5).fit(X, y - y.mean())
    assert_allclose(model.predict(X), ridge.predict(X) + y.mean(), atol=1e-7)
    assert model.score(X, y) == pytest.approx(ridge.score(X, y - y.mean()), abs=1e-7)


def test_predictions_have_the_shape_of_y(data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = data
    model = ConditionalEmbedding(regularization=1e-2)
    assert model.fit(X, y).predict(X[:5]).shape == (5,)
    assert model.fit(X, y[:, None]).predict(X[:5]).shape == (5, 1)
    assert model.fit(X, X).predict(X[:5]).shape == (5, 2)
    assert model.fit(X, pd.Series(y)).predict(X[:5]).shape == (5,)
    assert model.fit(X, y.tolist()).predict(X[:5].tolist()).shape == (5,)


def test_score_is_r2_and_takes_weights(data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = data
    w = np.random.default_rng(2).exponential(size=120)
    model = ConditionalEmbedding(regularization=1e-3).fit(X[:80], y[:80], sample_weight=w[:80])
    predicted = model.predict(X[80:])
    assert model.score(X[80:], y[80:]) == pytest.approx(r2_score(y[80:], predicted))
    assert model.score(X[80:], y[80:], w[80:]) == pytest.approx(
        r2_score(y[80:], predicted, sample_weight=w[80:])
    )
    assert model.score(X[80:], y[80:]) > 0.9


@pytest.mark.parametrize("labels", [list("abc"), [0, 1, 2]], ids=["words", "integers"])
def test_score_of_labels_is_minus_a_loss(
    data: tuple[np.ndarray, np.ndarray], labels: list[Any]
) -> None:
    X, y = data
    classes = np.array(labels)[np.digitize(y, [-0.5, 0.5])]
    model = ConditionalEmbedding(kernel_y=Delta(), regularization=1e-3).fit(X[:80], classes[:80])
    score = model.score(X[80:], classes[80:])
    if classes.dtype.kind == "U":  # words have no mean: a classifier's score
        assert score == pytest.approx((model.predict(X[80:]) == classes[80:]).mean())
        assert 0.6 < score <= 1
        return
    assert -0.5 < score < 0
    constant = ConditionalEmbedding(
        kernel_x=Gaussian(1e6), kernel_y=Delta(), regularization=1e-6
    ).fit(X[:80], classes[:80])
    assert score > constant.score(X[80:], classes[80:])
    assert -score == pytest.approx(model.loss(X[80:], classes[80:]))


# --- clones and parameters -----------------------------------------------------------------------


def test_clone_keeps_parameters(data: tuple[np.ndarray, np.ndarray]) -> None:
    model = ConditionalEmbedding(
        Gaussian(0.5) + Laplace(),
        Matern(2.5),
        regularization=1e-2,
        basis=(PivotedCholesky(1e-6), PivotedCholesky(1e-8)),
        centered=True,
    )
    before = {**model.get_params()}
    copy = clone(model.fit(*data))
    assert model.get_params() == before
    assert copy.get_params() == before
    assert copy.kernel_x is not model.kernel_x
    assert not hasattr(copy, "operator_")
    assert_allclose(copy.fit(*data).predict(data[0]), model.predict(data[0]), rtol=1e-10)


def test_nested_parameters() -> None:
    model = ConditionalEmbedding(Gaussian(1.0) @ Delta(), Laplace(2.0))
    model.set_params(kernel_x__kernel_0__bandwidth=3.0, kernel_y__bandwidth="median", basis=None)
    assert model.kernel_x == Gaussian(3.0) @ Delta()
    assert model.kernel_y == Laplace()
    with pytest.raises(ValueError, match="Invalid parameter"):
        model.set_params(kernel_x__width=1.0)


def test_fitting_twice_gives_the_same_answer(data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = data
    model = ConditionalEmbedding().fit(X, y)
    first = model.predict(X)
    assert_array_equal(model.fit(X, y).predict(X), first)
    smaller = model.fit(X[:, :1], y)
    assert smaller.n_features_in_ == 1


def test_repr_shows_what_was_changed() -> None:
    assert repr(ConditionalEmbedding()) == "ConditionalEmbedding()"
    assert "kernel_x=Gaussian(bandwidth=2.0)" in repr(ConditionalEmbedding(Gaussian(2.0)))
    assert "kernel_x=" in repr(ConditionalEmbedding(Gaussian(2.0) @ Delta()))


# --- scikit-learn's tools ------------------------------------------------------------------------


def test_pipeline(data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = data
    pipeline = make_pipeline(
        StandardScaler(), ConditionalEmbedding(Gaussian(1.0), regularization=1e-3)
    )
    scaled = StandardScaler().fit_transform(X)
    direct = ConditionalEmbedding(Gaussian(1.0), regularization=1e-3).fit(scaled, y)
    assert_allclose(pipeline.fit(X, y).predict(X), direct.predict(scaled))
    assert pipeline.score(X, y) == pytest.approx(direct.score(scaled, y))


def test_spaces_side_by_side(data: tuple[np.ndarray, np.ndarray]) -> None:
    X, _ = data
    union = FeatureUnion(
        [("smooth", Space(Gaussian(2.0))), ("moments", Space(Polynomial(2), Explicit()))]
    )
    Z = union.fit_transform(X)
    assert_allclose(Z @ Z.T, (Gaussian(2.0) + Polynomial(2))(X), rtol=1e-7, atol=1e-7)


def test_grid_search(data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = data
    grid = {
        "kernel_x__bandwidth": [0.05, 1.0, "median"],
        "regularization": [1e-5, 1e-3, 1.0],
    }
    folds = KFold(3, shuffle=True, random_state=0)
    search = GridSearchCV(ConditionalEmbedding(Gaussian()), grid, cv=folds, error_score="raise")
    search.fit(X, y)
    assert search.best_params_["kernel_x__bandwidth"] != 0.05
    assert search.best_params_["regularization"] != 1.0
    assert search.best_score_ > 0.95
    assert search.best_estimator_.predict(X).shape == (120,)
    # one cell by hand
    scores = [
        ConditionalEmbedding(Gaussian(1.0), regularization=1e-3)
        .fit(X[train], y[train])
        .score(X[test], y[test])
        for train, test in folds.split(X)
    ]
    cell = search.cv_results_["params"].index({"kernel_x__bandwidth": 1.0, "regularization": 1e-3})
    assert search.cv_results_["mean_test_score"][cell] == pytest.approx(np.mean(scores))


def test_grid_search_over_kernels_and_bases(data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = data
    grid = {
        "kernel_x": [Gaussian(), Laplace(), Linear() + 1],
        "basis": [None, PivotedCholesky(1e-6)],
    }
    search = GridSearchCV(
        ConditionalEmbedding(regularization=1e-3), grid, cv=3, error_score="raise"
    ).fit(X, y)
    assert search.best_params_["kernel_x"] != Linear() + 1


def test_grid_search_in_a_pipeline(data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = data
    pipeline = make_pipeline(StandardScaler(), ConditionalEmbedding(Gaussian(), Linear()))
    grid = {"conditionalembedding__kernel_x__bandwidth": [0.01, 1.0]}
    search = GridSearchCV(pipeline, grid, cv=3, error_score="raise").fit(X, y)
    assert search.best_params_ == {"conditionalembedding__kernel_x__bandwidth": 1.0}


def test_cross_validation(data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = data
    model = ConditionalEmbedding(regularization=1e-3)
    scores = cross_val_score(model, X, y, cv=4, error_score="raise")
    assert scores.shape == (4,)
    assert scores.min() > 0.9
    assert cross_val_predict(model, X, y, cv=4).shape == (120,)
    losses = cross_validate(
        model, X, y, cv=3, scoring="neg_mean_absolute_error", return_train_score=True
    )
    assert (losses["train_score"] >= losses["test_score"] - 0.05).all()


@pytest.mark.parametrize("labels", [list("abc"), [0, 1, 2]], ids=["words", "integers"])
def test_cross_validation_of_labels(data: tuple[np.ndarray, np.ndarray], labels: list[Any]) -> None:
    X, y = data
    classes = np.array(labels)[np.digitize(y, [-0.5, 0.5])]
    model = ConditionalEmbedding(kernel_y=Delta(), regularization=1e-3)
    scores = cross_val_score(model, X, classes, cv=KFold(3), error_score="raise")
    assert np.isfinite(scores).all()
    assert (scores > 0.6).all() if classes.dtype.kind == "U" else (scores < 0).all()


def test_wrappers_of_targets(data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = data
    inner = ConditionalEmbedding(regularization=1e-3)
    scaled = TransformedTargetRegressor(inner, transformer=StandardScaler()).fit(X, y)
    assert scaled.score(X, y) > 0.9
    several = MultiOutputRegressor(inner).fit(X, np.stack([y, -y], axis=1))
    assert_allclose(several.predict(X)[:, 0], -several.predict(X)[:, 1], atol=1e-8)


# --- frames --------------------------------------------------------------------------------------


def test_frames_keep_their_names(data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = data
    frame = pd.DataFrame(X, columns=["height", "weight"])
    model = ConditionalEmbedding(regularization=1e-3).fit(frame, y)
    assert_array_equal(model.feature_names_in_, ["height", "weight"])
    assert model.n_features_in_ == 2
    plain = ConditionalEmbedding(regularization=1e-3).fit(X, y)
    assert_allclose(model.predict(frame), plain.predict(X))
    assert not hasattr(plain, "feature_names_in_")
    space = Space().fit(frame)
    assert_array_equal(space.feature_names_in_, ["height", "weight"])
    model.fit(X, y)
    assert not hasattr(model, "feature_names_in_")


def test_frames_with_other_names_are_refused(data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = data
    frame = pd.DataFrame(X, columns=["height", "weight"])
    model = ConditionalEmbedding(regularization=1e-3).fit(frame, y)
    space = Space().fit(frame)
    wrong = frame.rename(columns={"height": "age"})
    with pytest.raises(ValueError, match="feature names .* Missing: 'height'; unexpected: 'age'"):
        model.predict(wrong)
    with pytest.raises(ValueError, match="feature names .* Missing: 'height'; unexpected: 'age'"):
        space.transform(wrong)
    swapped = frame[["weight", "height"]]
    assert_array_equal(model.predict(swapped), model.predict(frame))
    assert_array_equal(space.transform(swapped), space.transform(frame))
    with pytest.warns(UserWarning, match="feature names"):
        model.predict(X)
