"""Operators of the additive filter, learned for beliefs: against the stationary Kalman filter."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import solve_discrete_are

from meanmap import AdditiveFilter
from meanmap.dynamics.stationary import StationaryOperators, solve_positive
from meanmap.kernels import Gaussian

A = 0.9 * np.array([[np.cos(0.4), -np.sin(0.4)], [np.sin(0.4), np.cos(0.4)]])
C = np.array([[1.0, 0.3]])
Q, R = (1 - 0.81) * np.eye(2), np.array([[0.5]])  # the stationary covariance is I


def kalman() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The operators on the mean and on the observation, and the gain of the smoother."""
    ahead = solve_discrete_are(A.T, C.T, Q, R)
    K = np.linalg.solve(C @ ahead @ C.T + R, C @ ahead).T
    P = ahead - K @ C @ ahead
    return (np.eye(2) - K @ C) @ A, K, np.linalg.solve(ahead, A @ P).T


@pytest.mark.parametrize("centered", [False, True])
def test_linear_features_give_the_stationary_kalman_filter(centered: bool) -> None:
    """From the moments of states and observations alone, about a mean that is not zero."""
    past, K, gain = kalman()
    S = np.block([[np.eye(2), A.T @ C.T], [C @ A, C @ C.T + R]])
    X = np.hstack([A, C.T])
    if centered:
        mean, after = np.array([3.0, -2.0, 1.0]), np.array([3.0, -2.0])
        S = np.block([[S + np.outer(mean, mean), mean[:, None]], [mean[None, :], np.ones((1, 1))]])
        X = np.hstack([X + np.outer(after, mean), after[:, None]])
    found = StationaryOperators.of(S, X, 1e-9, centered)
    T = X @ found.inverse
    assert_allclose(T[:, :2], past, atol=2e-3)
    assert_allclose(T[:, 2:3], K, atol=2e-3)
    if centered:  # the belief that all states are alike, and what is usually seen, change nothing
        assert_allclose(T @ np.append(mean, 1.0), after, atol=1e-6)
    # the gain is regularised by a hundredth of the largest eigenvalue
    assert_allclose(found.gain, gain, atol=0.02)


def test_moments_that_are_not_positive_are_solved_with() -> None:
    indefinite = np.array([[1.0, 2.0], [2.0, 1.0]])
    found = solve_positive(indefinite, 1e-3, np.eye(2))
    values = np.linalg.eigvalsh(found)
    assert values.min() > 0
    assert values.max() <= 1 / 1e-3 * (1 + 1e-9)
    positive = np.diag([1.0, 2.0])
    assert_allclose(solve_positive(positive, 1.0, np.eye(2)), np.diag([1 / 2, 1 / 3]))


def simulate(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    states = [rng.normal(size=2)]
    for _ in range(n - 1):
        states.append(A @ states[-1] + np.sqrt(Q[0, 0]) * rng.normal(size=2))
    s = np.array(states)
    return s, s @ C.T + np.sqrt(R[0, 0]) * rng.normal(size=(n, 1))


@pytest.mark.slow
def test_the_default_is_near_kalmans_and_smoothing_helps() -> None:
    """The paper's operators, learned from states, have 1.2 to 1.6 times Kalman's error here."""
    past, K, _ = kalman()
    model = AdditiveFilter(progress=False).fit(*simulate(400, 0))
    states, seen = simulate(1000, 10)
    x, exact = np.zeros(2), []
    for y in seen:
        x = past @ x + K @ y
        exact.append(x)
    filtered, smoothed, best = (
        float(((mean - states) ** 2).mean())
        for mean in (model.filter(seen).mean, model.smooth(seen).mean, np.array(exact))
    )
    assert filtered < 1.15 * best
    assert smoothed < 0.95 * filtered


def test_given_settings_mean_the_papers_operators() -> None:
    states, seen = simulate(80, 0)
    kernels = Gaussian(2.0), Gaussian(2.0)
    given = {"regularization": 1e-3, "validation": None}
    plain = AdditiveFilter(*kernels, **given).fit(states, seen)
    paper = AdditiveFilter(*kernels, learn_from="states", **given).fit(states, seen)
    beliefs = AdditiveFilter(*kernels, learn_from="beliefs", **given).fit(states, seen)
    assert_allclose(plain.filter(seen).mean, paper.filter(seen).mean, atol=1e-12)
    assert np.abs(beliefs.filter(seen).mean - paper.filter(seen).mean).max() > 0.01
    with pytest.raises(ValueError, match="learn_from"):
        AdditiveFilter(learn_from="memory").fit(states, seen)
    with pytest.raises(ValueError, match="controls"):
        AdditiveFilter(*kernels, learn_from="beliefs", **given).fit(states, seen, seen)


def test_more_sequences_give_the_operators_of_all_of_them() -> None:
    first, second = simulate(100, 0), simulate(80, 1)
    given = {"regularization": 1e-3, "validation": None, "learn_from": "beliefs"}
    start = AdditiveFilter(Gaussian(2.0), Gaussian(2.0), **given).fit(*first)
    space, seen = start._model.sample.space, start._model.observations
    whole = AdditiveFilter(Gaussian(2.0), Gaussian(2.0), basis=(space, seen), **given)
    whole.fit([first[0], second[0]], [first[1], second[1]])
    parts = start.partial_fit(*second)
    new = simulate(50, 2)[1]
    assert_allclose(parts.filter(new).mean, whole.filter(new).mean, atol=1e-5)
