"""The simulators: dynamics as the papers write them, moments, seeds, bad parameters."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from meanmap.kernels.domains.matrices import read_permutations
from meanmap_experiments.systems import (
    NOISES,
    OSCILLATION,
    QUIET_OSCILLATION,
    QUIET_ROTATION,
    ROTATION,
    Circle,
    Identities,
    Rotation,
    System,
)

CLOCK = replace(OSCILLATION, reading="clock")
SYSTEMS: list[System] = [
    ROTATION,
    OSCILLATION,
    CLOCK,
    QUIET_OSCILLATION,
    *(Circle(noise) for noise in NOISES),
    Identities(),
]


@pytest.mark.parametrize("system", SYSTEMS, ids=repr)
def test_shapes_and_seeds(system: System) -> None:
    shape = (5, 5) if isinstance(system, Identities) else (2,)
    states, observations = system.simulate(7, rng=3)
    assert states.shape == (7, *shape) and observations.shape == (7, system.observed)
    many = system.simulate(7, rng=3, runs=4)
    assert many[0].shape == (4, 7, *shape) and many[1].shape == (4, 7, system.observed)
    again = system.simulate(7, rng=np.random.default_rng(3), runs=4)
    other = system.simulate(7, rng=4, runs=4)
    for k in (0, 1):
        assert_array_equal(many[k], again[k])
    assert np.abs(many[1] - other[1]).max() > 0.1
    assert np.abs(many[1][0] - many[1][1]).max() > 0.1  # runs are not copies of each other


def test_papers_settings() -> None:
    assert (ROTATION.increment, ROTATION.swing) == (0.3, 0.0)
    assert (OSCILLATION.increment, OSCILLATION.swing, OSCILLATION.waves) == (0.4, 0.4, 8)
    for system in (ROTATION, OSCILLATION):
        assert (system.process_noise, system.observation_noise) == (0.2, 0.2)
    for system in (QUIET_ROTATION, QUIET_OSCILLATION):
        assert system.process_noise == 0
        assert_allclose(system.observation_covariance, 0.08 * np.eye(2))


@pytest.mark.parametrize("system", [ROTATION, OSCILLATION])
def test_markov_reading_restarts_from_the_noisy_angle(system: Rotation) -> None:
    states, observations = system.simulate(400, rng=0, runs=50)
    theta = np.arctan2(states[:, :-1, 1], states[:, :-1, 0]) + system.increment
    radius = 1 + system.swing * np.sin(system.waves * theta)
    mean = np.stack([radius * np.cos(theta), radius * np.sin(theta)], axis=-1)
    noise = states[:, 1:] - mean
    assert_allclose(noise.std(axis=(0, 1)), 0.2, rtol=0.03)  # s.e. .5%
    assert_allclose(noise.mean(axis=(0, 1)), 0, atol=0.01)  # s.e. .0014
    assert_allclose((observations - states).std(axis=(0, 1)), 0.2, rtol=0.03)


def test_clock_reading_advances_whatever_the_noise() -> None:
    states, _ = CLOCK.simulate(300, rng=0, runs=60)
    # the first angle that explains a run best explains it up to independent noise
    grid = np.linspace(0, 2 * np.pi, 2000, endpoint=False)
    for run in states[:5]:
        curves = CLOCK.curve(grid[:, None] + 0.4 * np.arange(300))
        errors = ((curves - run) ** 2).sum(axis=2)
        best = errors.mean(axis=1).argmin()
        assert errors[best].mean() == pytest.approx(2 * 0.04, rel=0.35)  # s.e. 6%
        noise = run - curves[best]
        assert abs(np.sum(noise[1:] * noise[:-1]) / np.sum(noise**2)) < 0.25  # s.e. .04


def test_without_process_noise_both_readings_are_one_orbit() -> None:
    for system in (QUIET_ROTATION, QUIET_OSCILLATION):
        for reading in ("markov", "clock"):
            states, observations = replace(system, reading=reading).simulate(500, rng=1)
            first = math.atan2(states[0, 1], states[0, 0])
            assert_allclose(
                states, system.curve(first + system.increment * np.arange(500)), atol=1e-9
            )
            assert np.var(observations - states) == pytest.approx(0.08, rel=0.3)  # s.e. 4.5%


@pytest.mark.parametrize("system", [ROTATION, OSCILLATION, Circle("i"), Circle("iii")])
def test_jacobian_is_the_derivative(system: Any) -> None:
    h = 1e-6
    for x in np.random.default_rng(0).normal(size=(20, 2)) + 0.1:
        columns = [
            (system.transition(x + h * e) - system.transition(x - h * e)) / (2 * h)
            for e in np.eye(2)
        ]
        assert_allclose(system.jacobian(x), np.stack(columns, axis=1), rtol=1e-5, atol=1e-5)
    assert np.isfinite(system.jacobian(np.zeros(2))).all()


@pytest.mark.parametrize("system", [ROTATION, OSCILLATION, Circle("ii")])
def test_first_state_has_the_moments_it_says(system: Any) -> None:
    x = system.initial(200_000, np.random.default_rng(0))
    assert_allclose(x.mean(axis=0), 0, atol=0.012)  # s.e. .0017
    assert_allclose(np.cov(x.T), system.initial_covariance, atol=0.012)


@pytest.mark.parametrize("noise", NOISES)
def test_circle_noise_has_the_moments_it_says(noise: str) -> None:
    circle = Circle(noise)
    states, observations = circle.simulate(31, rng=0, runs=4000)
    assert_allclose((states[:, 0] ** 2).sum(axis=1), 1)
    xi = (states[:, 1:] - states[:, :-1] @ circle.matrix.T).reshape(-1, 2)
    eta = (observations - states).reshape(-1, 2)
    assert_allclose(xi.mean(axis=0), circle.process_mean, atol=0.007)  # s.e. ≤ .001
    assert_allclose(np.cov(xi.T), circle.process_covariance, atol=0.006)
    assert_allclose(np.cov(eta.T), circle.observation_covariance, atol=0.004)
    assert_allclose(eta.mean(axis=0), 0, atol=0.007)


def test_circle_turns_by_its_angle() -> None:
    circle = Circle()
    assert circle.cycle == 31
    assert_allclose(np.linalg.matrix_power(circle.matrix, 5), Circle(angle=1.0).matrix)
    # iii is skewed and never negative; iv has two humps and a common sign
    xi = Circle("iii").step(np.zeros((1000, 2)), np.random.default_rng(0))
    assert xi.min() >= 0
    xi = Circle("iv").step(np.zeros((10_000, 2)), np.random.default_rng(0))
    assert np.corrcoef(xi.T)[0, 1] == pytest.approx(0.8, abs=0.03)


def test_identities_swap_neighbours() -> None:
    system = Identities(objects=6, mixing=0.3)
    states, sightings = system.simulate(2000, rng=0)
    read_permutations(states, "states")
    orders = states.argmax(axis=2)
    changed = orders[1:] != orders[:-1]
    moves = changed.sum(axis=1)
    assert set(moves) == {0, 2}
    assert (moves == 2).mean() == pytest.approx(0.3, abs=0.06)  # s.e. .01
    first = changed[moves == 2].argmax(axis=1)
    assert_array_equal(changed[moves == 2].nonzero()[1].reshape(-1, 2), first[:, None] + [0, 1])
    assert set(first) == set(range(5))
    noise = sightings - states.reshape(2000, 36)
    assert noise.std() == pytest.approx(0.8, rel=0.02)  # s.e. .3%


def test_identities_start_uniform() -> None:
    orders = Identities(objects=3).initial(60_000, np.random.default_rng(0))
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert_allclose(counts / 60_000, 1 / 6, atol=0.01)  # s.e. .0015


def test_likelihoods_are_gaussian_up_to_a_constant() -> None:
    rng = np.random.default_rng(0)
    system = Identities(objects=4)
    orders, y = system.initial(10, rng), rng.normal(size=16)
    tables = np.eye(4)[orders].reshape(10, 16)
    expected = -((y - tables) ** 2).sum(axis=1) / (2 * 0.8**2)
    assert_allclose(np.ptp(system.log_likelihood(y, orders) - expected), 0, atol=1e-12)
    weights = rng.dirichlet(np.ones(10))
    assert_allclose(system.average(weights, orders), (weights @ tables).reshape(4, 4))
    x, y = rng.normal(size=(10, 2)), rng.normal(size=2)
    expected = -((y - x) ** 2).sum(axis=1) / (2 * 0.2**2)
    assert_allclose(ROTATION.log_likelihood(y, x), expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rotation(increment=math.nan), "increment must be a finite number"),
        (lambda: Rotation(swing=1.0), "swing must be below 1"),
        (lambda: Rotation(swing=-0.1), "swing must be a number ≥ 0"),
        (lambda: Rotation(waves=2), "waves must be a whole number ≥ 3"),
        (lambda: Rotation(process_noise=-1), "process_noise must be a number ≥ 0"),
        (lambda: Rotation(observation_noise=0), "observation_noise must be positive"),
        (lambda: Rotation(reading="markow"), "reading must be one of 'markov', 'clock'"),
        (lambda: Circle("v"), "noise must be one of 'i', 'ii', 'iii', 'iv'"),
        (lambda: Circle(angle=0), "angle must be positive"),
        (lambda: Circle(angle=4.0), "angle must not exceed π"),
        (lambda: Identities(objects=1), "objects must be a whole number ≥ 2"),
        (lambda: Identities(mixing=1.5), "mixing must not exceed 1"),
        (lambda: Identities(observation_noise=-1), "observation_noise must be positive"),
        (lambda: ROTATION.simulate(0), "n must be a whole number ≥ 1"),
        (lambda: ROTATION.simulate(5, runs=0), "runs must be a whole number ≥ 1"),
        (lambda: ROTATION.simulate(5, rng="seed"), "rng must be None, a seed"),
    ],
)
def test_bad_parameters(make: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_parameters_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        ROTATION.swing = 0.1  # type: ignore[misc]
