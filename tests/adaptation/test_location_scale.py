"""Rows moved and stretched: the objective and its gradient, what is recovered, laws, bad input."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import approx_fprime
from scipy.stats import multivariate_normal, norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from meanmap import DataWarning, LocationScaleShift, load, save
from meanmap.adaptation.alignment import (
    Alignment,
    descend,
    moments_start,
    starts,
    stratified_rows,
    upright,
)
from meanmap.adaptation.alignment_likelihood import (
    freedom,
    likeliest_kernels,
    penalized_likelihood,
    row_log_likelihoods,
)
from meanmap.kernels import Delta, Gaussian, Laplace, NGrams
from oracles import class_weights_by_grid, location_scale_objective

matplotlib.use("Agg")

MEANS = np.array([[0.0, 0.0], [3.0, 1.0], [0.0, 3.0]])
SPREADS = np.array([[0.6, 0.8], [0.7, 0.5], [0.5, 0.6]])
SCALES = np.array([[1.3, 0.7], [0.8, 1.4], [1.2, 1.0]])
LOCATIONS = np.array([[0.5, -0.4], [-0.5, 0.6], [0.4, 0.8]])


def three_classes(n: int, m: int, seed: int, shares: Any = (0.2, 0.5, 0.3)) -> tuple:
    """Training rows with classes, and test rows of another instrument with theirs."""
    rng = np.random.default_rng(seed)
    y, u = rng.choice(3, n, p=[0.4, 0.3, 0.3]), rng.choice(3, m, p=shares)
    X = MEANS[y] + SPREADS[y] * rng.normal(size=(n, 2))
    T = MEANS[u] + SPREADS[u] * rng.normal(size=(m, 2))
    return X, y, T * SCALES[u] + LOCATIONS[u], u


def small_problem(ridge: float | None, numbers: bool = False) -> Alignment:
    rng = np.random.default_rng(4)
    y = rng.integers(2, size=25)
    Z = 2.0 * y[:, None] + rng.normal(size=(25, 2))
    T = 2.0 * rng.integers(2, size=(20, 1)) + 1.3 * rng.normal(size=(20, 2)) + 0.4
    F = np.column_stack([np.ones(25), np.eye(2)[y]])
    if numbers:
        t = y + rng.uniform(size=25)
        F = np.column_stack([np.ones(25), np.sin(t), np.cos(t)])
    shrinkage = 0.01 if numbers else 0.0
    return Alignment(Z, F, T, np.full(2, 1.2), 0.03, ridge, 10.0, shrinkage)


# --- the objective --------------------------------------------------------------------------------


def test_the_objective_is_that_of_the_dense_formula() -> None:
    problem = small_problem(None)
    problem = replace(problem, F=problem.F[:, 1:])  # a row a class, as the paper writes them
    parameters = np.random.default_rng(0).normal(size=(2, 2, 2)) * 0.3
    y = problem.F[:, 1].astype(int)
    means = np.array([problem.Z[y == c].mean(axis=0) for c in (0, 1)])
    W, B = 1 + parameters[0], parameters[1]
    moved = means[y] + (problem.Z - means[y]) * W[y] + B[y]
    assert_allclose(problem.move(parameters.ravel()), moved, rtol=1e-12)
    dense = location_scale_objective(moved, problem.T, np.full(25, 1 / 25), 1.2, W, B, 0.03)
    value = problem.value(parameters.ravel())[0] + problem.square()
    assert_allclose(value, dense, rtol=1e-12)


@pytest.mark.parametrize("numbers", [False, True], ids=["classes", "numbers"])
@pytest.mark.parametrize("ridge", [None, 1e-3, 0.1])
def test_the_gradient_is_that_of_finite_differences(ridge: float | None, numbers: bool) -> None:
    """Also where β is found anew at each point: the envelope theorem."""
    problem = small_problem(ridge, numbers)
    rng = np.random.default_rng(1)
    for _ in range(3):
        parameters = 0.4 * rng.normal(size=int(np.prod(problem.shape)))
        by_hand = problem.value(parameters)[1]
        measured = approx_fprime(parameters, lambda p: problem.value(p)[0], 1e-6)
        assert_allclose(by_hand, measured, atol=2e-6)


def test_the_weights_of_classes_are_those_of_a_grid() -> None:
    problem = small_problem(1e-9)
    y = problem.F[:, 2].astype(int)
    share = np.mean(problem.weights_at(np.zeros(12), problem.F) * y)
    assert_allclose(share, class_weights_by_grid(problem.Z, y, problem.T, 1.2), atol=1e-3)
    K, towards = problem.gram(problem.Z, problem.Z), problem.gram(problem.Z, problem.T).mean(axis=1)
    beta, alpha = problem.weights(K, towards)
    assert_allclose(alpha, beta / 25, atol=1e-12)  # for classes the regression is the mean


def test_starts_and_descents() -> None:
    problem = small_problem(1e-6)
    first, second, *_ = starts(problem, 4, np.random.default_rng(0))
    assert not first.any()
    assert_allclose(second, moments_start(problem))
    there = problem.move(second)
    assert_allclose(there.mean(axis=0), problem.T.mean(axis=0), atol=1e-10)
    assert_allclose(there.std(axis=0), problem.T.std(axis=0), rtol=1e-10)
    found = descend(problem, first, 200)
    assert found.converged
    assert (np.diff(found.history) <= 1e-12).all()
    assert found.value <= min(problem.value(start)[0] for start in (first, second))
    assert abs(problem.value(found.parameters)[1]).max() < 1e-4


def test_mirror_images_are_turned_back() -> None:
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(30, 1))
    problem = Alignment(
        np.vstack([Z, -Z]), np.ones((60, 1)), rng.normal(size=(50, 1)), np.ones(1), 1e-3, None, 60.0
    )
    assert_allclose(upright(problem, np.array([-2.0, 0.0])), [0.0, 0.0], atol=1e-12)
    assert_allclose(upright(problem, np.array([0.2, 0.1])), [0.2, 0.1])


def test_parts_of_rows_hold_each_group_in_its_share() -> None:
    groups = np.repeat([0, 1, 2], [500, 300, 200])
    rows = stratified_rows(groups, 100, np.random.default_rng(0))
    assert len(np.unique(rows)) == 100
    assert abs(np.bincount(groups[rows]) - [50, 30, 20]).max() <= 1
    assert len(stratified_rows(groups, 1000, np.random.default_rng(0))) == 1000


def test_an_alignment_of_one_drift_moves_all_rows_alike() -> None:
    problem = replace(small_problem(1e-3), reach=1)
    G, H = np.array([[0.3, -0.2]]), np.array([[0.5, 0.1]])
    parameters = np.stack([G, H]).ravel()
    mean = problem.Z.mean(axis=0)
    assert_allclose(problem.move(parameters), mean + (problem.Z - mean) * (1 + G) + H)
    measured = approx_fprime(parameters, lambda p: problem.value(p)[0], 1e-6)
    assert_allclose(problem.value(parameters)[1], measured, atol=2e-6)


def test_likelihoods_are_those_of_normal_kernels() -> None:
    problem = small_problem(None)
    y = problem.F[:, 2].astype(int)
    parameters = np.zeros(12)
    total = 0.01 * multivariate_normal([0, 0], 4 * np.eye(2)).pdf(problem.T) * 2 * np.pi
    for c in (0, 1):
        centres, h = likeliest_kernels(problem.Z[y == c])
        assert_allclose(centres.var(axis=0) + h**2, problem.Z[y == c].var(axis=0))
        for z in centres:
            total += 0.99 / 25 * norm(z, h).pdf(problem.T).prod(axis=1) * 2 * np.pi
    assert_allclose(row_log_likelihoods(problem, parameters, y), np.log(total), rtol=1e-10)
    assert_allclose(freedom(problem.F, 0.0), 2)  # of three features one is the sum of the others
    cost = 2 * 2 * 2 * (1 + 20 / 25) / 2 * np.log(20)
    assert_allclose(penalized_likelihood(problem, parameters, y), np.log(total).sum() - cost)


# --- what is recovered ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recovered() -> tuple[LocationScaleShift, tuple]:
    data = three_classes(3000, 3000, 11)
    model = LocationScaleShift(max_samples=3000, n_init=1, random_state=0)
    return model.fit(data[0], data[1], X_test=data[2]), data


@pytest.mark.slow
def test_known_scales_and_locations_are_recovered_within_five_per_cent(recovered: tuple) -> None:
    model, (X, y, T, u) = recovered
    assert np.linalg.norm(model.scale_ - SCALES) < 0.05 * np.linalg.norm(SCALES)
    # B in the middle of each class, where it is told apart from W
    middle = MEANS * model.scale_ + model.location_
    truth = MEANS * SCALES + LOCATIONS
    assert abs((middle - truth) / T.std(axis=0)).max() < 0.05
    assert_allclose(model.proportions_, np.bincount(u) / len(u), atol=0.03)
    assert model.converged_
    assert model.distance_ < 0.1 * model.distance_before_
    assert_allclose(model.history_[-1], model.objective_, rtol=1e-9)


@pytest.mark.slow
def test_a_classifier_of_moved_rows_is_right_more_often(recovered: tuple) -> None:
    model, (X, y, T, u) = recovered
    plain = LogisticRegression().fit(X, y).score(T, u)
    moved = LogisticRegression().fit(model.X_new_, y, sample_weight=model.weights_).score(T, u)
    assert moved > plain + 0.05
    assert moved > 0.94


def test_without_target_shift_weights_are_one() -> None:
    X, y, T, _ = three_classes(600, 600, 3, (0.4, 0.3, 0.3))
    model = LocationScaleShift(target_shift=False, random_state=0).fit(X, y, X_test=T)
    assert (model.weights_ == 1).all()
    assert_allclose(model.proportions_, model.proportions_train_)
    assert np.linalg.norm(model.scale_ - SCALES) < 0.2 * np.linalg.norm(SCALES)


@pytest.mark.slow
def test_whether_proportions_changed_is_found_out() -> None:
    """One drift of all rows, with the proportions of training and with others."""
    for seed, shares, differ in ((3, (0.4, 0.3, 0.3), False), (4, (0.1, 0.3, 0.6), True)):
        X, y, _, _ = three_classes(400, 2, seed)
        rng = np.random.default_rng(seed)
        u = rng.choice(3, 400, p=shares)
        T = (MEANS[u] + SPREADS[u] * rng.normal(size=(400, 2))) * [0.7, 1.3] + [1.0, -0.5]
        model = LocationScaleShift(n_init=2, random_state=0).fit(X, y, X_test=T)
        assert model.one_drift_
        assert model.target_shift_ == differ
        assert_allclose(model.scale_, np.tile([0.7, 1.3], (3, 1)), rtol=0.12)
        assert_allclose(model.proportions_, shares, atol=0.08)


@pytest.mark.slow
def test_drifts_by_class_are_told_from_one_drift() -> None:
    X, y, T, _ = three_classes(400, 400, 6)
    model = LocationScaleShift(n_init=2, random_state=0).fit(X, y, X_test=T)
    assert not model.one_drift_
    assert model.target_shift_


def test_nothing_happens_where_nothing_has_shifted() -> None:
    X, y, *_ = three_classes(400, 2, 5)
    model = LocationScaleShift(random_state=0).fit(X, y, X_test=X)
    assert_allclose(model.scale_, 1, atol=1e-3)
    assert_allclose(model.X_new_, X, atol=1e-3)
    assert_allclose(model.weights_, 1, atol=1e-3)


def test_smooth_functions_of_numbers() -> None:
    rng = np.random.default_rng(0)
    y, u = rng.uniform(-2, 2, 500), 4 * rng.beta(3, 2, 500) - 2

    def seen(t: np.ndarray) -> np.ndarray:
        curve = np.column_stack([t, np.sin(1.5 * t), 0.3 * t**2])
        return curve + 0.3 * rng.normal(size=(len(t), 3))

    def again(x: np.ndarray, t: np.ndarray) -> np.ndarray:
        w = np.column_stack([1.2 + 0.2 * np.tanh(t), 1 + 0.3 * np.sin(t), 0.8 + 0 * t])
        return x * w + np.column_stack([0.5 + 0.1 * t, 0.2 * np.cos(t) - 0.3, 0.4 + 0 * t])

    X, T = seen(y), again(seen(u), u)
    model = LocationScaleShift(n_init=2, random_state=0).fit(X, y, X_test=T)
    truth = again(X, y)
    before, after = (np.sqrt(((rows - truth) ** 2).mean()) for rows in (X, model.X_new_))
    assert after < 0.4 * before
    assert abs(np.average(y, weights=model.weights_) - u.mean()) < 0.15  # 0.4 without weights
    assert_allclose(model.weights_.mean(), 1, atol=1e-8)
    assert model.scale_.shape == model.location_.shape == X.shape
    assert not hasattr(model, "classes_")
    assert_allclose(model.transform(X[:5], y[:5]), model.X_new_[:5], rtol=1e-8)


# --- laws -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_units_do_not_matter() -> None:
    X, y, T, _ = three_classes(150, 160, 7)
    factor, offset = np.array([1000.0, 0.01]), np.array([-300.0, 5.0])
    one = LocationScaleShift(random_state=0).fit(X, y, X_test=T)
    two = LocationScaleShift(random_state=0).fit(X * factor + offset, y, X_test=T * factor + offset)
    assert_allclose(two.scale_, one.scale_, rtol=1e-4)
    assert_allclose(two.X_new_, one.X_new_ * factor + offset, rtol=1e-3, atol=1e-3)
    assert_allclose(two.weights_, one.weights_, rtol=1e-3)


@pytest.mark.slow
def test_names_of_classes_do_not_matter() -> None:
    X, y, T, _ = three_classes(150, 150, 8)
    names = np.array(["ash", "beech", "cedar"])
    one = LocationScaleShift(random_state=0).fit(X, y, X_test=T)
    two = LocationScaleShift(random_state=0).fit(X, names[y], X_test=T)
    assert list(two.classes_) == list(names)
    assert_allclose(two.scale_, one.scale_, rtol=1e-6)
    assert_allclose(two.transform(X, names[y]), two.X_new_, rtol=1e-10)


def test_rows_are_moved_by_the_line_of_their_class() -> None:
    X, y, T, _ = three_classes(200, 150, 9)
    model = LocationScaleShift(random_state=0).fit(X, y, X_test=T)
    assert_allclose(X * model.scale_[y] + model.location_[y], model.X_new_, rtol=1e-10)
    assert_allclose(model.proportions_.sum(), 1, atol=1e-8)
    assert_allclose(np.bincount(y, model.weights_) / len(y), model.proportions_)


@pytest.mark.slow
def test_a_part_of_the_rows_stands_for_all() -> None:
    X, y, T, _ = three_classes(2000, 1500, 10)
    model = LocationScaleShift(max_samples=400, random_state=0).fit(X, y, X_test=T)
    again = LocationScaleShift(max_samples=400, random_state=0).fit(X, y, X_test=T)
    assert_allclose(model.X_new_, again.X_new_, rtol=0, atol=0)  # seeded
    assert model.X_new_.shape == X.shape
    assert_allclose(model.weights_.mean(), 1, atol=1e-8)
    assert np.linalg.norm(model.scale_ - SCALES) < 0.2 * np.linalg.norm(SCALES)


@pytest.mark.slow
def test_more_regularization_moves_less() -> None:
    X, y, T, _ = three_classes(150, 150, 12)
    norms = []
    for penalty in (1e-4, 1e-2, 1.0, 1e3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            model = LocationScaleShift(regularization=penalty, random_state=0).fit(X, y, X_test=T)
        norms.append(np.abs(model.X_new_ - X).mean())
    assert norms == sorted(norms, reverse=True)
    assert norms[-1] < 1e-3


# --- scikit-learn, files, pictures ----------------------------------------------------------------


class OnItself(LocationScaleShift):
    """For scikit-learn's checks, which know of no test rows."""

    def fit(self, X: Any, y: Any = None, *, X_test: Any = None) -> OnItself:
        return super().fit(X, y, X_test=X if X_test is None else X_test)

    @property
    def transform(self) -> Any:  # takes targets, which the checks would not pass
        raise AttributeError


@parametrize_with_checks([OnItself(max_iter=20, n_init=1)])
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def test_frames_clones_files_and_pictures(tmp_path: Path) -> None:
    X, y, T, _ = three_classes(120, 120, 13)
    frame = pd.DataFrame(X, columns=["width", "height"])
    model = LocationScaleShift(n_init=1, random_state=0)
    model.fit(frame, y, X_test=pd.DataFrame(T, columns=frame.columns))
    assert list(model.feature_names_in_) == ["width", "height"]
    assert not hasattr(clone(model), "scale_")
    save(model, tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    assert_allclose(again.transform(frame, y), model.transform(frame, y), rtol=0, atol=0)
    left, right = model.plot()
    assert left.get_ylabel() == "scale"
    assert [text.get_text() for text in right.get_legend().get_texts()] == ["0", "1", "2"]
    numbers = LocationScaleShift(n_init=1, max_iter=50, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        numbers.fit(X, X[:, 0] / 2 + np.sin(X[:, 1]), X_test=T)
    assert numbers.plot()[0].get_xlabel() == "y"
    save(numbers, tmp_path / "numbers.npz")
    assert_allclose(load(tmp_path / "numbers.npz").X_new_, numbers.X_new_)


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"regularization": -1.0}, "regularization must be a number ≥ 0"),
        ({"regularization": "none"}, "regularization must be one of 'auto'"),
        ({"n_init": 0}, "n_init must be a whole number ≥ 1"),
        ({"max_iter": 1.5}, "max_iter must be a whole number"),
        ({"max_samples": 1}, "max_samples must be a whole number ≥ 2"),
        ({"target_shift": "yes"}, "target_shift must be True or False"),
        ({"kernel_x": Laplace()}, "kernel_x: expected kernels.Gaussian"),
        ({"kernel_x": Gaussian((1.0, 2.0, 3.0))}, "3"),
    ],
)
def test_parameters_are_checked(parameters: dict, message: str) -> None:
    X, y, T, _ = three_classes(20, 20, 0)
    with pytest.raises((ValueError, TypeError), match=message):
        LocationScaleShift(**parameters).fit(X, y, X_test=T)


def test_samples_are_checked() -> None:
    X, y, T, _ = three_classes(30, 30, 0)
    model = LocationScaleShift(n_init=1)
    with pytest.raises(ValueError, match="KernelMeanMatching needs none"):
        model.fit(X, X_test=T)
    with pytest.raises(ValueError, match="Their targets are not needed"):
        model.fit(X, y)
    with pytest.raises(ValueError, match="cannot be estimated from one row of X_test"):
        model.fit(X, y, X_test=T[:1])
    with pytest.raises(ValueError, match="X_test has 1 features, but X has 2"):
        model.fit(X, y, X_test=T[:, :1])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(X, y[:-1], X_test=T)
    with pytest.raises(ValueError, match="X_test contains NaN"):
        model.fit(X, y, X_test=np.where(T > 2, np.nan, T))
    with pytest.raises(NotFittedError):
        model.transform(X, y)
    model.fit(X, y, X_test=T)
    with pytest.raises(ValueError, match="7 is not a class of the training rows"):
        model.transform(X[:1], [7])
    with pytest.raises(ValueError, match="features"):
        model.transform(X[:, :1], y)


def test_what_does_not_fit_is_said() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 1)), np.repeat(["a", "b"], 100)
    far = np.concatenate([rng.normal(-50, 0.1, 100), rng.normal(50, 0.1, 100), np.zeros(100)])
    with pytest.warns(DataWarning, match="no change of location and scale"):
        LocationScaleShift(regularization=1.0).fit(X, y, X_test=far[:, None])
    with pytest.warns(ConvergenceWarning, match="Raise max_iter"):
        LocationScaleShift(max_iter=1, n_init=1).fit(X, y, X_test=3 * X + 1)


def test_a_class_that_is_missing_from_the_test() -> None:
    X, y, T, u = three_classes(400, 600, 15)
    with pytest.warns(DataWarning, match="of class 0 there are hardly any test rows"):
        model = LocationScaleShift(regularization=0.01, random_state=0).fit(X, y, X_test=T[u > 0])
    assert model.proportions_[0] < 0.02


def test_constant_columns_single_rows_and_kernels_on_targets() -> None:
    X, y, T, _ = three_classes(60, 60, 16)
    wide = np.column_stack([X, np.ones(60)])
    labels = y.copy()
    labels[0] = 9  # a class of one row
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        model = LocationScaleShift(n_init=1).fit(
            wide, labels, X_test=np.column_stack([T, np.ones(60)])
        )
    assert np.isfinite(model.X_new_).all()
    assert_allclose(model.X_new_[:, 2], 1, atol=1e-6)
    text = np.array(["a", "b", "c"])[y]
    same = LocationScaleShift(kernel_y=Delta(), n_init=1).fit(X, text, X_test=T)
    assert list(same.classes_) == ["a", "b", "c"]


def test_plots_of_targets_that_are_no_numbers_are_refused_in_words() -> None:
    rng = np.random.default_rng(4)
    words = np.array(["aab", "abb", "bbb", "aaa"])[rng.integers(4, size=60)]
    X = rng.normal(size=(60, 2))
    model = LocationScaleShift(kernel_y=NGrams(2), n_init=1, random_state=0)
    model.fit(X, words, X_test=1.5 * X + 0.3)
    with pytest.raises(ValueError, match="of classes, or against numbers"):
        model.plot()
