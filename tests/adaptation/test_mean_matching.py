"""Weights by kernel mean matching, the programme behind them, and estimators fitted with them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import oracles as o
from meanmap import DataWarning, KernelMeanMatching, TargetShift, load, save
from meanmap.adaptation import Reweighted
from meanmap.adaptation.mean_matching import matching_programme
from meanmap.adaptation.weight_programme import WeightProgramme, solve_dual, solve_without_ridge
from meanmap.kernels import Columns, Gaussian, Linear, NGrams


def shifted(seed: int = 0, n: int = 60, d: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), 0.6 + 0.7 * rng.normal(size=(n, d))


def ratio(X: np.ndarray) -> np.ndarray:
    """Of the densities behind `shifted`."""
    return np.exp((X**2 - ((X - 0.6) / 0.7) ** 2).sum(axis=1) / 2) / 0.7 ** X.shape[1]


# --- the programme --------------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [1e-1, 1e-3])
@pytest.mark.parametrize(("bound", "slack"), [(100.0, 0.05), (1.5, 0.0), (3.0, 0.3)])
def test_weights_are_those_of_the_printed_programme(
    ridge: float, bound: float, slack: float
) -> None:
    X, T = shifted(n=40)
    kernel = Gaussian(1.0)
    model = KernelMeanMatching(kernel, ridge, bound, slack).fit(X, X_test=T)
    K, kappa, square = kernel(X), kernel(X, T).mean(axis=1), kernel(T).mean()
    truth = o.mean_matching_weights(K, kappa, bound, slack, ridge)
    values = [
        o.mean_matching_objective(K, kappa, square, beta, ridge) for beta in (model.weights_, truth)
    ]
    assert values[0] <= values[1] + 1e-7
    assert_allclose(model.weights_, truth, atol=5e-3)
    assert model.weights_.min() >= 0
    assert model.weights_.max() <= bound * (1 + 1e-12)
    assert abs(model.weights_.mean() - 1) <= slack + 1e-9


def test_the_textbook_form_has_no_ridge() -> None:
    X, T = shifted(n=40)
    kernel = Gaussian(1.0)
    model = KernelMeanMatching(kernel, 0, 10.0, 0.05).fit(X, X_test=T)
    K, kappa, square = kernel(X), kernel(X, T).mean(axis=1), kernel(T).mean()
    truth = o.mean_matching_weights(K, kappa, 10.0, 0.05, 0.0)
    ours, best = (
        o.mean_matching_objective(K, kappa, square, beta, 0.0) for beta in (model.weights_, truth)
    )
    assert ours <= best + 1e-9
    with pytest.raises(ValueError, match="ridge=0 weights belong to training rows"):
        model.weights(T)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 12),
    st.integers(1, 5),
    st.floats(1e-4, 10),
    st.floats(1, 20),
    st.floats(0, 0.5),
)
def test_the_gap_is_certified(
    seed: int, n: int, r: int, ridge: float, most: float, slack: float
) -> None:
    rng = np.random.default_rng(seed)
    psi, w = rng.normal(size=(n, r)), rng.dirichlet(np.ones(n))
    programme = WeightProgramme(psi, w, 2 * rng.normal(size=r), ridge, most, 1 - slack, 1 + slack)
    found = solve_dual(programme)
    assert found.converged
    assert 1 - slack - 1e-7 <= w @ found.beta <= 1 + slack + 1e-7
    value = programme.objective(found.beta)
    for _ in range(20):  # no feasible weights are better by more than the gap
        other = np.clip(found.beta + rng.normal(size=n) * rng.choice([0.01, 0.1, 1]), 0, most)
        other = np.clip(other * (1 / max(w @ other, 1e-9)), 0, most)
        if abs(w @ other - 1) <= slack:
            assert programme.objective(other) >= value - max(found.gap, 0) - 1e-9


def test_the_plain_programme_is_certified_too() -> None:
    rng = np.random.default_rng(0)
    psi = rng.normal(size=(50, 6))
    programme = WeightProgramme(psi, np.full(50, 0.02), rng.normal(size=6) / 3, 0.0, 5.0, 0.9, 1.1)
    found = solve_without_ridge(programme)
    assert found.converged
    assert 0.9 - 1e-9 <= found.beta.mean() <= 1.1 + 1e-9


# --- the weights ----------------------------------------------------------------------------------


def test_weights_follow_the_ratio_of_densities() -> None:
    X, T = shifted(n=1000)
    model = KernelMeanMatching(random_state=0).fit(X, X_test=T)
    assert np.corrcoef(model.weights_, ratio(X))[0, 1] > 0.9
    assert model.distance_ < model.distance_before_ / 3
    assert model.effective_size_ == pytest.approx(
        model.weights_.sum() ** 2 / (model.weights_**2).sum()
    )
    new, _ = shifted(1, 500)
    assert np.corrcoef(model.weights(new), ratio(new))[0, 1] > 0.9
    assert_allclose(model.weights(X), model.weights_, atol=1e-5)
    assert model.ratio_score(X, T) > 0.5  # that of equal weights
    # the textbook form follows the noise instead
    plain = KernelMeanMatching(model.kernel_, 0).fit(X, X_test=T)
    assert np.corrcoef(plain.weights_, ratio(X))[0, 1] < 0.9


def test_without_a_shift_weights_are_about_one() -> None:
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(400, 2)), rng.normal(size=(400, 2))
    model = KernelMeanMatching(random_state=0).fit(X, X_test=T)
    assert model.effective_size_ > 300
    same = KernelMeanMatching(ridge=1e-2).fit(X, X_test=X)
    assert_allclose(same.weights_, 1, atol=1e-5)


def test_rows_far_from_the_test_rows_have_no_weight() -> None:
    rng = np.random.default_rng(1)
    X, T = 0.5 + 0.5 * rng.normal(size=(400, 1)), 0.3 * rng.normal(size=(400, 1))
    far = X[:, 0] > 1.5  # five deviations of the test rows
    free = KernelMeanMatching(random_state=0).fit(X, X_test=T)
    held = KernelMeanMatching(slack=0.01, random_state=0).fit(X, X_test=T)
    assert free.slack_ == np.inf
    assert free.weights_.mean() == pytest.approx(1)
    assert_allclose(free.weights(X), free.weights_, atol=1e-5)
    assert free.weights_[far].max() < 0.01 < 0.05 < held.weights_[far].min()
    # the better of the two on rows held out, of which the second was not asked about
    assert set(free.held_out_[:, 3]) == {0, np.inf}
    assert free.held_out_[:, 2].min() < held.held_out_[:, 2].min()
    assert_allclose(held.held_out_, free.held_out_[free.held_out_[:, 3] == 0])


@pytest.mark.parametrize("gamma", [0.1, 1.0])
def test_a_wide_kernel_leaves_no_weight_far_away(gamma: float) -> None:
    """The test of adapt's KMM: half of the rows are like the test rows, half are a unit away."""
    rng = np.random.RandomState(0)
    X = np.concatenate([0.1 * rng.randn(50), 0.1 * rng.randn(50) + 1])[:, None]
    T = 0.1 * rng.randn(100, 1)
    y = np.where(X[:, 0] < 0.5, 0.2 * X[:, 0], 10.0)
    model = KernelMeanMatching(Gaussian((2 * gamma) ** -0.5), random_state=0).fit(X, X_test=T)
    line = LinearRegression(fit_intercept=False).fit(X, y, sample_weight=model.weights_)
    assert line.coef_[0] == pytest.approx(0.2, abs=0.1)  # was 8.1 and 7.3
    assert model.level_ > 0
    assert_allclose(model.weights(X), model.weights_, atol=1e-6)


def test_a_ridge_about_a_negative_number_is_a_penalty_of_the_mean() -> None:
    X, T = shifted(n=30)
    K, kappa = Gaussian(2.0)(X), Gaussian(2.0)(X, T).mean(axis=1)
    root = np.linalg.cholesky(K + 1e-12 * np.eye(30))
    mean = np.linalg.solve(root, kappa)
    ridge, level = 0.3, 0.75
    programme = matching_programme(root, mean, ridge, 10.0, np.inf, level)
    beta, nu = solve_dual(programme).beta, level * kappa.max()
    # by coordinates, one after the other: what is not matched yet, less ν, over ρ and k(x, x)/n
    slow = np.zeros(30)
    for _ in range(500):
        for i in range(30):
            rest = kappa[i] - (K[i] @ slow - K[i, i] * slow[i]) / 30
            slow[i] = np.clip((rest - nu) / (ridge + K[i, i] / 30), 0, 10)
    assert 0 < (slow == 0).sum() < 30
    assert_allclose(beta, slow, atol=1e-6)


@pytest.mark.parametrize("slack", [0.0, 0.02])
def test_a_given_slack_is_kept_to(slack: float) -> None:
    X, T = shifted(3, n=200)
    model = KernelMeanMatching(slack=slack, random_state=0).fit(X, X_test=T)
    assert model.slack_ == slack
    assert abs(model.weights_.mean() - 1) <= slack + 1e-9


def test_the_bound_holds_without_the_constraint() -> None:
    rng = np.random.default_rng(1)
    X, T = 0.5 + 0.5 * rng.normal(size=(200, 1)), 0.3 * rng.normal(size=(200, 1))
    model = KernelMeanMatching(bound=1.5, random_state=0).fit(X, X_test=T)
    assert model.weights_.max() <= 1.5
    assert model.weights(T).max() <= 1.5


def test_words_and_mixed_columns() -> None:
    rng = np.random.default_rng(0)
    words = ["ab" * 5] * 30 + ["cd" * 5] * 10
    model = KernelMeanMatching(NGrams(2), 1e-3).fit(words, X_test=["cd" * 5] * 20 + ["ab" * 5] * 20)
    assert_allclose([model.weights_[0], model.weights_[-1]], [2 / 3, 2], atol=0.05)
    frame = pd.DataFrame({"a": rng.normal(size=80), "b": ["x", "y"] * 40})
    test = frame[frame.b == "x"]
    model = KernelMeanMatching(Columns(), 1e-3).fit(frame, X_test=test)
    assert model.weights_[::2].mean() > 1.7 > 0.3 > model.weights_[1::2].mean()


@pytest.mark.parametrize("d", [1, 3, 10])
@pytest.mark.parametrize("away", [5.0, 10.0])
@pytest.mark.parametrize("unit", [1.0, 1e3])
def test_test_rows_far_away_are_said_and_not_counted(d: int, away: float, unit: float) -> None:
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(100, d)), rng.normal(size=(100, d))
    T[:, 0] += away
    with pytest.warns(DataWarning, match="of the distance between the samples is left"):
        model = KernelMeanMatching(random_state=0).fit(unit * X, X_test=unit * T)
    assert model.effective_size_ < 10


def test_a_given_kernel_says_that_supports_do_not_meet() -> None:
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(300, 1)), 8 + rng.normal(size=(300, 1))
    with pytest.warns(DataWarning, match="look for training rows where"):
        model = KernelMeanMatching(Gaussian(0.5), 1e-4).fit(X, X_test=T)
    assert model.effective_size_ < 2


@pytest.mark.parametrize("n", [20, 100, 400])
@pytest.mark.parametrize("d", [1, 10])
def test_samples_of_one_distribution_count_in_full(n: int, d: int) -> None:
    rng = np.random.default_rng(n + d)
    X, T = rng.normal(size=(n, d)), rng.normal(size=(n, d))
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        model = KernelMeanMatching(random_state=0).fit(X, X_test=T)
    assert model.effective_size_ > n / 3


def test_one_test_row_and_few_rows_work() -> None:
    X, _ = shifted()
    model = KernelMeanMatching(Gaussian(1.0)).fit(X, X_test=[[0.5, 0.5]])
    assert model.weights_.mean() == pytest.approx(1, abs=0.5)
    two = KernelMeanMatching().fit([[0.0], [1.0]], X_test=[[1.0], [1.0]])
    assert np.isfinite(two.weights_).all()


def test_a_solver_that_is_stopped_says_so() -> None:
    X, T = shifted(n=200)
    with pytest.warns(ConvergenceWarning, match="from the best objective"):
        KernelMeanMatching(Gaussian(0.3), 1e-6, max_iter=1).fit(X, X_test=T)


@pytest.mark.parametrize(
    ("model", "T", "message"),
    [
        (KernelMeanMatching(), None, "X_test=None"),
        (KernelMeanMatching(), [[1.0]], "2"),
        (KernelMeanMatching(ridge=-1), [[1.0, 2.0]], "ridge must be a number ≥ 0"),
        (KernelMeanMatching(ridge="best"), [[1.0, 2.0]], "ridge"),
        (KernelMeanMatching(bound=0.5, slack=0.1), [[1.0, 2.0]], "have no mean of 0.9"),
        (KernelMeanMatching(), [[np.nan, 2.0]], "NaN"),
    ],
)
def test_bad_input_is_explained(model: Any, T: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(shifted()[0], X_test=T)
    assert not hasattr(model, "weights_")
    with pytest.raises(NotFittedError):
        model.weights([[0.0, 0.0]])


def test_files_and_clones(tmp_path: Any) -> None:
    X, T = shifted()
    model = KernelMeanMatching(random_state=0).fit(X, X_test=T)
    save(model, tmp_path / "weights.npz")
    again = load(tmp_path / "weights.npz")
    assert_allclose(again.weights(T), model.weights(T))
    assert again.slack_ == model.slack_ == np.inf
    assert_allclose(clone(model).fit(X, X_test=T).weights_, model.weights_)
    assert model.plot() is not None


class Matching(KernelMeanMatching):
    """Weights for the training rows themselves, which scikit-learn's checks can ask for."""

    def fit(self, X: Any, y: Any = None, *, X_test: Any = None) -> Any:
        return super().fit(X, y, X_test=X if X_test is None else X_test)


@parametrize_with_checks([Matching(random_state=0)])
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


# --- estimators with weights ----------------------------------------------------------------------


def test_reweighted_estimators() -> None:
    X, T = shifted(n=300)
    y = X[:, 0] ** 2 > 0.5
    model = Reweighted(LogisticRegression(), KernelMeanMatching(random_state=0))
    assert is_classifier(model)
    assert is_regressor(Reweighted(LinearRegression()))
    model.fit(X, y, X_test=T)
    by_hand = LogisticRegression().fit(X, y, sample_weight=model.weights_.weights_)
    assert_allclose(model.decision_function(T), by_hand.decision_function(T))
    assert_allclose(model.predict_proba(T), by_hand.predict_proba(T))
    assert model.score(X, y) == by_hand.score(X, y)
    assert list(model.classes_) == [False, True]
    assert not hasattr(Reweighted(LinearRegression()), "predict_proba")
    piped = Reweighted(
        make_pipeline(StandardScaler(), LogisticRegression()), KernelMeanMatching(random_state=0)
    )
    assert piped.fit(X, y, X_test=T).predict(T).shape == (300,)
    twice = Reweighted(LogisticRegression(), KernelMeanMatching(random_state=0))
    twice.fit(X, y, X_test=T, sample_weight=np.full(300, 2.0))
    double = LogisticRegression().fit(X, y, sample_weight=2 * model.weights_.weights_)
    assert_allclose(twice.decision_function(T), double.decision_function(T))


def test_reweighted_in_a_search() -> None:
    X, T = shifted(n=120)
    y = X[:, 0] > 0.3
    model = Reweighted(RandomForestClassifier(5, random_state=0), KernelMeanMatching(Gaussian(1.0)))
    search = GridSearchCV(model, {"estimator__max_depth": [1, 3], "weights__ridge": [1e-2, 1.0]})
    assert search.fit(X, y, X_test=T).best_score_ > 0.8


def test_by_targets_too() -> None:
    rng = np.random.default_rng(0)
    y = rng.random(400) < 0.2
    X = y[:, None] + rng.normal(size=(400, 2))
    T = 1 + rng.normal(size=(300, 2))
    model = Reweighted(LogisticRegression(), TargetShift(n_bootstrap=0, random_state=0))
    assert model.fit(X, y, X_test=T).predict(T).mean() > 0.8
    assert LogisticRegression().fit(X, y).predict(T).mean() < 0.6


def test_an_estimator_without_weights_is_refused() -> None:
    X, T = shifted()
    with pytest.raises(TypeError, match="KNeighborsClassifier.fit takes no sample_weight"):
        Reweighted(KNeighborsClassifier()).fit(X, X[:, 0] > 0, X_test=T)
    assert Linear()  # kernels without a bandwidth work as well
    model = KernelMeanMatching(Linear(), 1e-3).fit(X, X_test=T)
    assert_allclose(np.average(X, axis=0, weights=model.weights_), T.mean(axis=0), atol=0.1)
