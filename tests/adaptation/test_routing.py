"""Domains, test rows and weights through pipelines and searches, by scikit-learn's routing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut, cross_validate
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from meanmap import InvariantComponents, KernelMeanMatching, LocationScaleShift, TargetShift
from meanmap.adaptation import Reweighted
from meanmap.kernels import Gaussian

Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
MATCHING = KernelMeanMatching(Gaussian(1.0), ridge=0.05)
EVERYTHING: Any = {"error_score": "raise", "return_estimator": True}


@pytest.fixture(autouse=True)
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.fixture(scope="module")
def rows() -> Rows:
    """X, y, domains and test rows; the third column is an offset of the domain."""
    rng = np.random.default_rng(0)
    domains, y = np.repeat(range(4), 30), rng.integers(2, size=120)
    X = rng.normal(size=(120, 3))
    X[:, 0] += 2.5 * y
    X[:, 2] += 4.0 * domains
    return X, y, domains, rng.normal(1.0, 0.8, size=(50, 3)) + [0, 0, 6]


def weighted(estimator: Any = None, weights: Any = MATCHING) -> Reweighted:
    model = Reweighted(LogisticRegression() if estimator is None else estimator, weights)
    return model.set_fit_request(X_test=True)


def components(**request: Any) -> InvariantComponents:
    return InvariantComponents(1, Gaussian(3.0), trade_off=1.0).set_fit_request(**request)


# --- domains --------------------------------------------------------------------------------------


def test_groups_of_a_split_are_domains(rows: Rows) -> None:
    X, y, domains, _ = rows
    pipeline = make_pipeline(
        StandardScaler(), components(domains="groups"), KNeighborsClassifier(5)
    )
    found = cross_validate(
        pipeline, X, y, cv=LeaveOneGroupOut(), params={"groups": domains}, **EVERYTHING
    )
    for left, fold in enumerate(found["estimator"]):  # each has seen the other domains
        assert fold[1].domains_.tolist() == [d for d in range(4) if d != left]
        seen = domains != left
        alone = InvariantComponents(1, Gaussian(3.0), trade_off=1.0)
        scaled = StandardScaler().fit(X[seen])
        alone.fit(scaled.transform(X[seen]), y[seen], domains=domains[seen])
        assert_allclose(fold[1].components_, alone.components_, atol=1e-9)


def test_domains_beside_weights_and_a_search(rows: Rows) -> None:
    X, y, domains, _ = rows
    last = LogisticRegression().set_fit_request(sample_weight=True)
    pipeline = make_pipeline(components(domains=True), last)
    search = GridSearchCV(
        pipeline,
        {"invariantcomponents__n_components": [1, 2], "logisticregression__C": [1.0]},
        scoring=make_scorer(accuracy_score).set_score_request(sample_weight=True),
        cv=LeaveOneGroupOut(),
        error_score="raise",
    )
    w = np.where(y == 1, 3.0, 1.0)
    search.fit(X, y, groups=domains, domains=domains, sample_weight=w)
    best = search.best_estimator_
    assert best[0].domains_.tolist() == list(range(4))
    by_hand = LogisticRegression().fit(best[0].transform(X), y, sample_weight=w)
    assert_allclose(best[1].coef_, by_hand.coef_, atol=1e-9)


def test_domains_that_nobody_asked_for(rows: Rows) -> None:
    X, y, domains, _ = rows
    pipeline = make_pipeline(InvariantComponents(1), KNeighborsClassifier(5))
    with pytest.raises(UnsetMetadataPassedError, match="domains"):
        pipeline.fit(X, y, domains=domains)


# --- test rows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [KernelMeanMatching, TargetShift, LocationScaleShift, Reweighted])
def test_test_rows_can_be_asked_for(cls: Any) -> None:
    model = cls(LogisticRegression()) if cls is Reweighted else cls()
    assert model.set_fit_request(X_test=True).get_metadata_routing().fit.requests["X_test"] is True


@pytest.mark.parametrize(
    "weights", [MATCHING, TargetShift(n_bootstrap=0)], ids=["matching", "target shift"]
)
def test_test_rows_in_every_fold(rows: Rows, weights: Any) -> None:
    X, y, domains, T = rows
    found = cross_validate(
        weighted(weights=weights),
        X,
        y,
        cv=LeaveOneGroupOut(),
        params={"groups": domains, "X_test": T},
        **EVERYTHING,
    )
    for left, fold in enumerate(found["estimator"]):
        seen = domains != left
        alone = sklearn.clone(weights).fit(X[seen], y[seen], X_test=T)
        assert_allclose(fold.weights_.weights_, alone.weights_, atol=1e-9)


def test_test_rows_in_a_search(rows: Rows) -> None:
    X, y, _, T = rows
    grid = {"estimator__C": [0.01, 1.0], "weights__ridge": [0.05, 0.5]}
    search = GridSearchCV(weighted(), grid, cv=3, error_score="raise").fit(X, y, X_test=T)
    assert set(search.best_params_) == set(grid)
    assert search.best_estimator_.weights_.weights_.shape == (120,)


def test_test_rows_go_through_the_steps_before(rows: Rows) -> None:
    """A pipeline sends metadata as they are, unless transform_input says otherwise."""
    X, y, _, T = rows
    pipeline = make_pipeline(StandardScaler(), weighted(), transform_input=["X_test"])
    pipeline.fit(X, y, X_test=T)
    scaled = StandardScaler().fit(X)
    alone = Reweighted(LogisticRegression(), MATCHING)
    alone.fit(scaled.transform(X), y, X_test=scaled.transform(T))
    assert_allclose(pipeline[1].weights_.weights_, alone.weights_.weights_, atol=1e-9)
    assert_allclose(pipeline.predict_proba(T), alone.predict_proba(scaled.transform(T)), atol=1e-9)


def test_a_pipeline_that_ends_reweighted_has_a_score(rows: Rows) -> None:
    X, y, _, T = rows
    pipeline = make_pipeline(StandardScaler(), weighted(), transform_input=["X_test"])
    pipeline.fit(X, y, X_test=T)
    assert pipeline.score(X, y) == np.mean(pipeline.predict(X) == y)


def test_components_and_then_weights(rows: Rows) -> None:
    X, y, domains, T = rows
    pipeline = Pipeline(
        [("components", components(domains="groups")), ("model", weighted())],
        transform_input=["X_test"],
    )
    pipeline.fit(X, y, groups=domains, X_test=T)
    assert pipeline[1].n_features_in_ == 1
    assert pipeline.predict(T).shape == (50,)


# --- weights --------------------------------------------------------------------------------------


def test_a_pipeline_is_weighted_at_its_last_step(rows: Rows) -> None:
    X, y, _, T = rows
    model = weighted(make_pipeline(StandardScaler(), LogisticRegression())).fit(X, y, X_test=T)
    scaled = StandardScaler().fit_transform(X)
    by_hand = LogisticRegression().fit(scaled, y, sample_weight=model.weights_.weights_)
    assert_allclose(model.estimator_[1].coef_, by_hand.coef_, atol=1e-9)
    assert model.score(X, y) == np.mean(model.predict(X) == y)


def test_weights_of_the_rows_themselves(rows: Rows) -> None:
    X, y, _, T = rows
    w = np.where(y == 1, 3.0, 1.0)
    model = weighted().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
    found = cross_validate(
        model, X, y, cv=2, params={"X_test": T, "sample_weight": w}, **EVERYTHING
    )
    assert found["test_score"].shape == (2,)
    alone = Reweighted(LogisticRegression(), MATCHING).fit(X, y, X_test=T, sample_weight=w)
    by_hand = LogisticRegression().fit(X, y, sample_weight=w * alone.weights_.weights_)
    assert_allclose(alone.estimator_.coef_, by_hand.coef_, atol=1e-9)
    assert alone.score(X, y, sample_weight=w) == by_hand.score(X, y, sample_weight=w)
