"""Regressions on columns: leave-one-out by refitting, and which smoother learns what."""

from __future__ import annotations

import numpy as np
import pytest

from meanmap.comparison.plain_columns import PlainColumns, indicate, normal_scores
from meanmap.comparison.smoothers import Regressors, RidgePath
from meanmap.comparison.step_search import find_steps


def columns(Z: np.ndarray, *labels: np.ndarray) -> PlainColumns:
    return PlainColumns(Z, labels)


@pytest.mark.parametrize("r", [3, 40])
def test_the_error_of_leaving_one_out_is_that_of_refitting(r: int) -> None:
    rng = np.random.default_rng(0)
    n = 25
    rows = rng.normal(size=(n, r)) / r**0.5
    T = np.sin(rows[:, :1] * 3) + 0.3 * rng.normal(size=(n, 2))
    ridge = RidgePath.of(rows).fit(T)
    centred = rows - rows.mean(axis=0)
    H = centred @ np.linalg.solve(
        centred.T @ centred + n * ridge.regularization * np.eye(r), centred.T
    )
    S = np.eye(n) - H - 1 / n
    np.testing.assert_allclose(ridge.residuals(T), S @ T, atol=1e-8)
    np.testing.assert_allclose(ridge.kept[:, 0], np.maximum(np.diag(S), 0.05), atol=1e-8)
    # leaving a row out of the rows about the same mean, with the same λ
    left = []
    for i in range(n):
        rest = np.delete(np.arange(n), i)
        A = np.hstack([np.ones((n, 1)), centred])
        penalty = n * ridge.regularization * np.diag([0.0] + [1.0] * r)
        beta = np.linalg.solve(A[rest].T @ A[rest] + penalty, A[rest].T @ T[rest])
        left.append(np.sum((T[i] - A[i] @ beta) ** 2))
    assert ridge.error == pytest.approx(np.mean(left), rel=1e-6)


def test_no_columns_are_a_mean() -> None:
    T = np.random.default_rng(0).normal(size=(30, 2))
    ridge = RidgePath.of(np.empty((30, 0))).fit(T)
    np.testing.assert_allclose(ridge.residuals(T), T - T.mean(axis=0))


CURVES = {
    "a line": lambda Z: Z.sum(axis=1),
    "curves": lambda Z: np.sin(2 * Z).sum(axis=1),
    "all columns": lambda Z: 2 * Z[:, 0] * Z[:, 1],
    "steps": lambda Z: 2.0 * (Z > 0.3).sum(axis=1),
}


@pytest.mark.parametrize("kind", CURVES)
def test_each_smoother_is_taken_for_what_it_learns(kind: str) -> None:
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(400, 3))
    curve = CURVES[kind](Z)[:, None]
    found = Regressors(columns(Z)).smooth(curve + 0.3 * rng.normal(size=(400, 1)))
    assert kind in found.name
    left = found.ridge.residuals(curve)
    assert np.mean(left**2) < 0.05 * curve.var()


def test_labels_and_numbers() -> None:
    rng = np.random.default_rng(0)
    words, Z = rng.choice(["a", "b", "c"], 300), rng.normal(size=(300, 1))
    curve = np.where(words == "a", np.sin(2 * Z[:, 0]), (words == "b") * 1.0)[:, None]
    found = Regressors(columns(Z, words)).smooth(curve + 0.2 * rng.normal(size=(300, 1)))
    assert np.mean(found.ridge.residuals(curve) ** 2) < 0.1 * curve.var()


def test_smoothers_chosen_on_some_rows_are_fitted_on_all() -> None:
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(3000, 2))
    curve = np.sin(2 * Z).sum(axis=1, keepdims=True)
    regressors = Regressors(columns(Z))
    found = regressors.smooth(curve + 0.5 * rng.normal(size=(3000, 1)))
    assert found.ridge.residuals(curve).shape == (3000, 1)
    assert np.mean(found.ridge.residuals(curve) ** 2) < 0.02 * curve.var()


def brute_force_step(values: np.ndarray, target: np.ndarray, beside: np.ndarray) -> tuple:
    """The threshold of the least residual sum of squares, by refitting all."""
    best = np.inf, -1, 0.0
    for j, column in enumerate(values.T):
        at = np.unique(column)
        for low, high in zip(at[3:-4], at[4:-3], strict=True):
            A = np.column_stack([np.ones(len(column)), beside, column > (low + high) / 2])
            left = target - A @ np.linalg.lstsq(A, target, rcond=None)[0]
            best = min(best, (float(np.sum(left**2)), j, (low + high) / 2))
    return best


def test_the_first_step_is_the_best_of_all() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(60, 2))
    target = 2.0 * (values[:, 1:] > 0.2) + values[:, :1] + 0.3 * rng.normal(size=(60, 1))
    steps = find_steps(values, target, values[:, :1])
    _, column, threshold = brute_force_step(values, target, values[:, :1])
    assert (steps.columns[0], steps.thresholds[0]) == (column, pytest.approx(threshold))


def test_steps_are_not_found_in_noise() -> None:
    counts = []
    for seed in range(50):
        rng = np.random.default_rng(seed)
        values = rng.normal(size=(150, 3))
        counts.append(len(find_steps(values, rng.normal(size=(150, 1)), values)))
    # each of about 430 steps is past the bar with chance under 1/430 times a small factor
    assert np.mean(np.array(counts) > 0) < 0.5


def test_scores_and_indicators() -> None:
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(101, 2))
    np.testing.assert_allclose(normal_scores(np.exp(Z)), normal_scores(Z))
    assert abs(normal_scores(Z).mean()) < 1e-12
    two, three = indicate(np.array(list("abba"))), indicate(np.array(list("abcabc")))
    assert two.shape == (4, 1) and three.shape == (6, 3)
    # two random rows differ by 2 in mean square, as standard normal numbers do
    differ = np.sum((three[:, None] - three[None]) ** 2, axis=2)
    assert np.mean(differ) == pytest.approx(2.0)
    assert indicate(np.array(["a"] * 4)).shape == (4, 0)
    assert indicate(np.arange(100)).shape == (100, 20)
