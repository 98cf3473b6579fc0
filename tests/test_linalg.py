"""Regularised inverses: by a factor that waits, or as matrices."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from array_libraries import INSTALLED, Library, host
from meanmap import ConditionalEmbedding, load, save
from meanmap.kernels import Gaussian
from meanmap.linalg import Inverse, covariance, newton_descent, ridge_inverse

rng = np.random.default_rng(0)
ROWS, WEIGHTS = rng.normal(size=(60, 12)), rng.dirichlet(np.ones(60))
C = ROWS.T @ np.diag(WEIGHTS) @ ROWS


@pytest.mark.parametrize("name", INSTALLED)
@pytest.mark.parametrize("later", [False, True])
def test_a_factored_inverse_is_the_matrix(name: str, later: bool) -> None:
    of = Library(name).asarray
    rows, weights, C_, some = of((ROWS, WEIGHTS, C, ROWS[:5]))
    diagonal = of(C.diagonal().copy())
    found = ridge_inverse(partial(covariance, rows, weights) if later else C_, 0.1, diagonal)
    assert found is not None
    H = np.linalg.inv(C + 0.1 * np.eye(12))
    assert found.size == 12
    assert_allclose(host(found.apply(some)), ROWS[:5] @ H, atol=1e-12)
    assert_allclose(host(found.forms(some)), ((ROWS[:5] @ H) * ROWS[:5]).sum(1), atol=1e-12)
    assert_allclose(host(found.matrix), H, atol=1e-12)
    assert_allclose(host(Inverse(of(H)).apply(some)), ROWS[:5] @ H, atol=1e-12)
    assert_allclose(host(Inverse(of(H)).forms(some)), host(found.forms(some)))
    assert_allclose(host(C_), C, atol=1e-15)  # left as it was


def test_a_covariance_is_that_of_weighted_rows() -> None:
    assert_allclose(covariance(ROWS, WEIGHTS), C, atol=1e-15)
    assert_allclose(covariance(ROWS, WEIGHTS, np.empty_like(ROWS)), C, atol=1e-15)


def test_a_regularisation_that_rounding_hides_has_no_factor() -> None:
    assert ridge_inverse(C, 1e-15, C.diagonal()) is None


def test_full_rank_is_kernel_ridge() -> None:
    """With as many coordinates as rows: the mean by the papers' n × n system."""
    X = rng.normal(size=(400, 10))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
    Q = rng.normal(size=(50, 10))
    w = rng.uniform(0.5, 2, size=400)
    model = ConditionalEmbedding(Gaussian(2.0), regularization=1e-3).fit(X, y, sample_weight=w)
    assert model.space_x_.rank_ == 400
    p = w / w.sum()
    K, mean = Gaussian(2.0)(X), p @ y
    alpha = np.linalg.solve(K + 1e-3 * np.diag(1 / p), y - mean)
    assert_allclose(model.predict(Q), mean + Gaussian(2.0)(Q, X) @ alpha, atol=1e-10)


def test_kept_before_and_after_the_first_answer(tmp_path: Path) -> None:
    X = rng.normal(size=(50, 2))
    model = ConditionalEmbedding(Gaussian(1.0), regularization=1e-2).fit(X, X[:, 0])
    copied = pickle.loads(pickle.dumps(model))
    save(model, tmp_path / "early")
    answer = model.predict(X)
    save(model, tmp_path / "late")
    for other in (copied, load(tmp_path / "early"), load(tmp_path / "late")):
        assert_allclose(other.predict(X), answer, atol=1e-13)
        assert_allclose(other.weights(X[:3]), model.weights(X[:3]), atol=1e-13)


def test_newtons_method_with_line_search_finds_the_minimum() -> None:
    """Against SciPy's minimiser, from a start where full steps overshoot."""
    centre, start = np.array([3.0, -2.0, 0.5]), np.array([30.0, 40.0, -50.0])

    def look(x: np.ndarray) -> tuple[float, np.ndarray]:
        off = x - centre
        return float(np.sum(np.sqrt(1 + off**2)) + 0.005 * x @ x), x

    def gradient(x: np.ndarray, there: np.ndarray) -> np.ndarray:
        off = there - centre
        return off / np.sqrt(1 + off**2) + 0.01 * x

    def solve(slope: np.ndarray, there: np.ndarray) -> np.ndarray:
        return slope / ((1 + (there - centre) ** 2) ** -1.5 + 0.01)

    found = newton_descent(look, gradient, solve, start, 1e-12)
    truth = minimize(lambda x: look(x)[0], start, tol=1e-12).x
    assert_allclose(found, truth, atol=1e-5)
    assert abs(gradient(found, found)).max() < 1e-11
    assert newton_descent(look, gradient, solve, found, 1e-6) is found
