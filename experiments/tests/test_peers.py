"""The competitors: textbook identities, agreement with each other, bad input."""

from __future__ import annotations

import builtins
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from meanmap_experiments import peers
from meanmap_experiments.peers import (
    bootstrap_particles,
    exact_identities,
    extended_kalman,
    kalman,
    phase_filter,
    unscented_kalman,
)
from meanmap_experiments.systems import (
    NOISES,
    OSCILLATION,
    QUIET_OSCILLATION,
    ROTATION,
    Circle,
    Identities,
)
from optional_packages import require

CLOCK = replace(OSCILLATION, reading="clock")


@pytest.fixture
def filterpy() -> Any:
    return require("filterpy")


@pytest.fixture
def particles() -> Any:
    return require("particles")


def error(means: np.ndarray, states: np.ndarray) -> float:
    """Mean squared error, summed over the coordinates of a state."""
    axes = tuple(range(2, states.ndim))
    return float(((means - states) ** 2).sum(axis=axes).mean())


# --- linear systems: Kalman's answer is known ---------------------------------------------------


def conditional_mean(circle: Circle, y: np.ndarray) -> np.ndarray:
    """E[x_n | y_1 … y_n] from the joint Gaussian of all states and observations."""
    n, F, Q = len(y), circle.matrix, circle.process_covariance
    mean, blocks = [np.zeros(2)], [circle.initial_covariance]
    for _ in range(n - 1):
        mean.append(F @ mean[-1] + circle.process_mean)
        blocks.append(F @ blocks[-1] @ F.T + Q)
    C = np.empty((2 * n, 2 * n))
    for s in range(n):
        for t in range(s, n):
            cross = np.linalg.matrix_power(F, t - s) @ blocks[s]  # cov(x_t, x_s)
            C[2 * t : 2 * t + 2, 2 * s : 2 * s + 2] = cross
            C[2 * s : 2 * s + 2, 2 * t : 2 * t + 2] = cross.T
    m = np.concatenate(mean)
    noise = np.kron(np.eye(n), circle.observation_covariance)
    return m[-2:] + C[-2:] @ np.linalg.solve(C + noise, y.ravel() - m)


@pytest.mark.parametrize("noise", NOISES)
def test_kalman_is_gaussian_conditioning(noise: str) -> None:
    circle = Circle(noise)
    _, y = circle.simulate(12, rng=0)
    assert_allclose(kalman(circle, y)[-1], conditional_mean(circle, y), rtol=1e-9)


@pytest.mark.parametrize("noise", ["i", "iii", "iv"])
def test_extended_and_unscented_are_kalman_on_a_linear_system(noise: str, filterpy: Any) -> None:
    circle = Circle(noise)
    _, y = circle.simulate(31, rng=0, runs=3)
    expected = kalman(circle, y)
    assert_allclose(extended_kalman(circle, y), expected, atol=1e-10)
    assert_allclose(unscented_kalman(circle, y), expected, atol=1e-10)
    # weights near ±1e6 cost digits
    assert_allclose(unscented_kalman(circle, y, alpha=1e-3), expected, atol=1e-6)


def test_particles_approach_kalman_on_a_linear_system() -> None:
    # the first state is on the unit circle and no Gaussian, which steps of noise ii make good
    circle = Circle("ii")
    _, y = circle.simulate(31, rng=0, runs=4)
    difference = bootstrap_particles(circle, y, 10_000, rng=0)[:, 5:] - kalman(circle, y)[:, 5:]
    assert np.sqrt((difference**2).mean()) < 0.01  # against a posterior deviation of .096


def test_wrong_moments_cost() -> None:
    circle = Circle("iii")
    states, y = circle.simulate(31, rng=0, runs=200)
    true = error(kalman(circle, y), states) ** 0.5
    zero = error(kalman(circle, y, process_mean=0.0), states) ** 0.5
    assert true == pytest.approx(0.358, abs=0.02)  # .3583 over 2,000 runs; s.e. .003
    assert zero == pytest.approx(0.44, abs=0.025)
    circle = Circle("iv")
    states, y = circle.simulate(31, rng=0, runs=200)
    true = error(kalman(circle, y), states) ** 0.5
    narrow = error(kalman(circle, y, process_covariance=0.01 * np.eye(2)), states) ** 0.5
    assert true == pytest.approx(0.124, abs=0.007)  # .1238 over 2,000 runs; s.e. .001
    assert narrow == pytest.approx(0.16, abs=0.01)


# --- rotation and oscillation ---------------------------------------------------------------------


def test_all_agree_on_the_rotation(filterpy: Any) -> None:
    states, y = ROTATION.simulate(200, rng=0, runs=6)
    errors = {
        "ekf": error(extended_kalman(ROTATION, y), states),
        "wide": error(unscented_kalman(ROTATION, y), states),
        "narrow": error(unscented_kalman(ROTATION, y, alpha=1e-3), states),
        "particles": error(bootstrap_particles(ROTATION, y, 2000, rng=0), states),
    }
    assert max(errors.values()) < 1.03 * min(errors.values()), errors
    assert 0.038 < errors["ekf"] < 0.052  # .0445 over 30 runs


@pytest.mark.parametrize("system", [OSCILLATION, CLOCK], ids=["markov", "clock"])
def test_the_oscillation_tells_them_apart(system: Any, filterpy: Any) -> None:
    states, y = system.simulate(200, rng=0, runs=12)
    ekf = error(extended_kalman(system, y), states)
    narrow = error(unscented_kalman(system, y, alpha=1e-3), states)
    wide = error(unscented_kalman(system, y), states)
    cloud = error(bootstrap_particles(system, y, 1000, rng=0), states)
    assert cloud < wide < narrow < ekf < 2 * 0.04


def test_the_clock_is_known_exactly_in_the_end() -> None:
    states, y = CLOCK.simulate(300, rng=0, runs=20)
    means = phase_filter(CLOCK, y)
    # with the angle known, σ_h²σ_o²/(σ_h² + σ_o²) is left in each coordinate
    assert error(means[:, 50:], states[:, 50:]) == pytest.approx(0.04, rel=0.1)  # s.e. 1.4%


def test_phase_filter_is_bayes_rule_at_one_step() -> None:
    y = np.array([[0.7, 0.9]])
    angles = np.linspace(0, 2 * np.pi, 50_000, endpoint=False)
    curve = CLOCK.curve(angles)
    w = np.exp(-((y - curve) ** 2).sum(axis=1) / (2 * 0.08))
    assert_allclose(phase_filter(CLOCK, y)[0], 0.5 * (w @ curve / w.sum()) + 0.5 * y[0], atol=1e-9)


def test_without_process_noise_nobody_beats_the_exact_filter(filterpy: Any) -> None:
    system = QUIET_OSCILLATION
    states, y = system.simulate(100, rng=0, runs=10)
    exact = error(phase_filter(system, y), states)
    cloud = error(bootstrap_particles(system, y, 5000, rng=0), states)
    wide = unscented_kalman(system, y)  # its covariance becomes singular
    assert np.isfinite(wide).all() and np.isfinite(extended_kalman(system, y)).all()
    assert exact < 1.05 * cloud and cloud < 1.25 * exact
    assert exact < 0.5 * error(wide, states)


# --- particles ------------------------------------------------------------------------------------


def test_systematic_resampling_keeps_proportions() -> None:
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(50))
    counts = np.bincount(peers._systematic(weights, rng), minlength=50)
    assert counts.sum() == 50
    assert (np.abs(counts - 50 * weights) < 1 + 1e-9).all()


def test_particles_repeat_with_their_seed() -> None:
    _, y = OSCILLATION.simulate(10, rng=0, runs=2)
    first = bootstrap_particles(OSCILLATION, y, 100, rng=5)
    assert_array_equal(first, bootstrap_particles(OSCILLATION, y, 100, rng=5))
    assert np.abs(first - bootstrap_particles(OSCILLATION, y, 100, rng=6)).max() > 1e-3
    assert_allclose(bootstrap_particles(OSCILLATION, y[0], 100, rng=5), first[0])


@pytest.mark.parametrize("system", [OSCILLATION, Circle("iii"), Identities(objects=4)], ids=repr)
def test_the_package_particles_agrees(system: Any, particles: Any) -> None:
    _, y = system.simulate(30, rng=0)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    package = bootstrap_particles(system, y, 10_000, rng=0, library="particles")
    assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    assert_array_equal(package, bootstrap_particles(system, y, 10_000, 0, library="particles"))
    own = bootstrap_particles(system, y, 10_000, rng=1)
    again = bootstrap_particles(system, y, 10_000, rng=2)
    between = np.sqrt(((own - again) ** 2).mean())
    assert np.sqrt(((package - own) ** 2).mean()) < 2.5 * between


# --- permutations ---------------------------------------------------------------------------------


def brute_force(system: Identities, y: np.ndarray) -> np.ndarray:
    """The mean of the last permutation, by a sum over all paths."""
    k, n = system.objects, len(y)
    orders = list(itertools.permutations(range(k)))
    size = len(orders)
    T = np.zeros((size, size))
    for a, order in enumerate(orders):
        T[a, a] += 1 - system.mixing
        for i in range(k - 1):
            other = list(order)
            other[i], other[i + 1] = other[i + 1], other[i]
            T[a, orders.index(tuple(other))] += system.mixing / (k - 1)
    tables = [np.eye(k)[list(order)] for order in orders]
    density = np.array(
        [
            [
                stats.norm.pdf(row, table.ravel(), system.observation_noise).prod()
                for table in tables
            ]
            for row in y
        ]
    )
    mean, total = np.zeros((k, k)), 0.0
    for path in itertools.product(range(size), repeat=n):
        p = density[0, path[0]] / size
        for t in range(1, n):
            p *= T[path[t - 1], path[t]] * density[t, path[t]]
        mean, total = mean + p * tables[path[-1]], total + p
    return mean / total


def test_exact_filter_is_the_sum_over_all_paths() -> None:
    system = Identities(objects=3, mixing=0.4)
    _, y = system.simulate(4, rng=0)
    means = exact_identities(system, y)
    for n in (1, 2, 4):
        assert_allclose(means[n - 1], brute_force(system, y[:n]), rtol=1e-10)


def test_particles_over_permutations_approach_the_exact_filter() -> None:
    system = Identities(objects=5)
    states, y = system.simulate(60, rng=0, runs=3)
    exact = exact_identities(system, y)
    cloud = bootstrap_particles(system, y, 5000, rng=0)
    assert exact.shape == cloud.shape == (3, 60, 5, 5)
    for means in (exact, cloud):
        for axis in (-1, -2):
            assert_allclose(means.sum(axis=axis), 1)
    assert np.sqrt(((cloud - exact) ** 2).mean()) < 0.02
    assert error(exact, states) < error(cloud, states) + 0.02
    # the filter knows more than one ambiguous sighting tells
    single = error(np.stack([exact_identities(system, run[:, None])[:, 0] for run in y]), states)
    assert error(exact, states) < 0.6 * single


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda y: kalman(Circle(), y[:, :1]), r"observations must be \(n, 2\)"),
        (lambda y: kalman(Circle(), y[0]), r"observations must be \(n, 2\)"),
        (lambda y: kalman(Circle(), y[:0]), r"observations must be \(n, 2\)"),
        (lambda y: kalman(Circle(), np.where(y > 0, np.nan, y)), "contain NaN"),
        (lambda y: kalman(Circle(), y, process_covariance=np.eye(3)), "2 × 2 matrix"),
        (lambda y: exact_identities(Identities(objects=4), y), r"observations must be \(n, 16\)"),
        (lambda y: exact_identities(Identities(objects=9), y), "k ≤ 8; got k = 9"),
        (lambda y: phase_filter(OSCILLATION, y), "exact for reading='clock'"),
        (lambda y: phase_filter(CLOCK, y, points=2), "points must be a whole number ≥ 16"),
        (lambda y: bootstrap_particles(ROTATION, y, 1), "n_particles must be a whole number ≥ 2"),
        (lambda y: bootstrap_particles(ROTATION, y, library="x"), "library must be one of"),
        (lambda y: unscented_kalman(ROTATION, y, alpha=0.0), "alpha must be positive"),
    ],
)
def test_bad_input(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call(np.random.default_rng(0).normal(size=(5, 2)))


def test_absent_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def absent(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] in ("filterpy", "particles"):
            raise ImportError(name)
        return load(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    y = np.zeros((3, 2))
    with pytest.raises(ImportError, match="pip install filterpy"):
        extended_kalman(ROTATION, y)
    with pytest.raises(ImportError, match="pip install filterpy"):
        unscented_kalman(ROTATION, y)
    with pytest.raises(ImportError, match="--no-deps particles"):
        bootstrap_particles(ROTATION, y, library="particles")
