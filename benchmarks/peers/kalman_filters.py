"""filterpy's Kalman filters with the true model of (b); runs in filterpy's own environment.

`kalman_filters.py --job filters FILE`: FILE has `truth` and `observations`, (runs, n, 2).
Reports for the extended and the unscented filter the seconds a step and the mean squared error.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import filterpy
import numpy as np
from filterpy.kalman import ExtendedKalmanFilter, MerweScaledSigmaPoints, UnscentedKalmanFilter

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness import imported, run_job

INCREMENT, SWING, WAVES = 0.4, 0.4, 8
NOISE = 0.04 * np.eye(2)  # of states and of observations
# the first state is the curve at a uniform angle, and noise: mean 0 and this covariance
FIRST = (1 + SWING**2 / 2) / 2 * np.eye(2) + NOISE
TURNS = 5


def transition(x: np.ndarray, dt: float = 1.0) -> np.ndarray:
    """The oscillation of Fukumizu, Song and Gretton (2013, 5.3), θ the angle of the state."""
    theta = math.atan2(x[1], x[0]) + INCREMENT
    radius = 1 + SWING * math.sin(WAVES * theta)
    return np.array([radius * math.cos(theta), radius * math.sin(theta)])


def jacobian(x: np.ndarray) -> np.ndarray:
    """Its derivative."""
    theta = math.atan2(x[1], x[0]) + INCREMENT
    c, s = math.cos(theta), math.sin(theta)
    radius = 1 + SWING * math.sin(WAVES * theta)
    slope = SWING * WAVES * math.cos(WAVES * theta)
    along = np.array([slope * c - radius * s, slope * s + radius * c])
    return np.outer(along, np.array([-x[1], x[0]]) / max(x @ x, np.finfo(float).tiny))


class Extended(ExtendedKalmanFilter):
    """The extended filter, whose state moves by the transition itself."""

    def predict_x(self, u: Any = 0) -> None:
        self.x = transition(self.x)


def extended(observations: np.ndarray) -> np.ndarray:
    """The means of its beliefs; the first state is not predicted."""
    kalman = Extended(dim_x=2, dim_z=2)
    kalman.x, kalman.P, kalman.Q, kalman.R = np.zeros(2), FIRST, NOISE, NOISE
    means = []
    for t, y in enumerate(observations):
        if t:
            kalman.F = jacobian(kalman.x)
            kalman.predict()
        kalman.update(y, lambda x: np.eye(2), lambda x: x)
        means.append(kalman.x)
    return np.array(means)


def unscented(observations: np.ndarray) -> np.ndarray:
    """The same of the unscented filter; κ = 3 - d, and sigma points √3 deviations out."""
    points = MerweScaledSigmaPoints(2, alpha=1.0, beta=2.0, kappa=1.0)
    kalman = UnscentedKalmanFilter(2, 2, 1.0, hx=lambda x: x, fx=transition, points=points)
    kalman.x, kalman.P, kalman.Q, kalman.R = np.zeros(2), FIRST, NOISE, NOISE
    kalman.sigmas_f = points.sigma_points(kalman.x, kalman.P)
    means = []
    for t, y in enumerate(observations):
        if t:
            kalman.predict()
        kalman.update(y)
        means.append(kalman.x)
    return np.array(means)


def measured(
    run: Callable[[np.ndarray], np.ndarray], truth: np.ndarray, observations: np.ndarray
) -> dict[str, float]:
    """The best seconds a step over turns, and the error over runs."""
    best, errors = float("inf"), []
    for states, seen in zip(truth, observations, strict=True):
        errors.append(((run(seen) - states) ** 2).sum(axis=1).mean())  # warms up as well
    for _ in range(TURNS):
        start = time.perf_counter()
        run(observations[0])
        best = min(best, (time.perf_counter() - start) / len(observations[0]))
    return {"seconds": best, "error": float(np.mean(errors))}


def job(file: str) -> dict[str, Any]:
    imported()
    with np.load(file) as data:
        truth, observations = data["truth"], data["observations"]
    found = {run.__name__: measured(run, truth, observations) for run in (extended, unscented)}
    return {**found, "filterpy": filterpy.__version__}


if __name__ == "__main__":
    run_job(job, sys.argv[3:])
