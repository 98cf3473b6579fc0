"""Competitors of the filters: what can be done by those who are given the true dynamics.

Each takes a system and its observations, (n, d) or (runs, n, d), and returns the means of the
filtered beliefs, with the same leading axes. The belief before the first observation is the law of
the system's first state, for Kalman filters the Gaussian of its mean and covariance.

The extended and the unscented Kalman filter are filterpy's, from 2.0: the unscented one of 1.4.5
does not draw its sigma points anew after adding the process noise, and differs from the Kalman
filter even on a linear system. The bootstrap particle filter is written here, because the package
`particles` (0.4) requires NumPy below 2; where that package is installed all the same,
`library="particles"` runs it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from scipy.special import softmax

from meanmap import checks
from meanmap_experiments.systems import Circle, Identities, Planar, Rotation, System

LIBRARIES = ("numpy", "particles")
MOST_OBJECTS = 8  # 8! tables of 64 numbers take 21 MB, 9! of 81 would take 235


def extended_kalman(system: Planar, observations: np.ndarray) -> np.ndarray:
    """The extended Kalman filter of filterpy, with the system's transition and its Jacobian."""
    kalman_filters = _filterpy()

    class Filter(kalman_filters.ExtendedKalmanFilter):  # type: ignore[name-defined]
        x: np.ndarray

        def predict_x(self, u: Any = 0) -> None:
            self.x = system.transition(self.x)

    def one(y: np.ndarray) -> np.ndarray:
        ekf = Filter(dim_x=2, dim_z=2)
        ekf.x, ekf.P = np.zeros(2), system.initial_covariance
        ekf.Q, ekf.R = system.process_covariance, system.observation_covariance
        means = []
        for t, row in enumerate(y):
            if t:
                ekf.F = system.jacobian(ekf.x)
                ekf.predict()
            ekf.update(row, lambda x: np.eye(2), lambda x: x)
            means.append(ekf.x)
        return np.array(means)

    return _each(one, system, observations)


def unscented_kalman(
    system: Planar, observations: np.ndarray, alpha: float = 1.0, kappa: float = 1.0
) -> np.ndarray:
    """The unscented Kalman filter of filterpy, β = 2.

    Parameters
    ----------
    system : Planar
    observations : (n, 2) or (runs, n, 2)
    alpha : float
        The spread of the sigma points: 1 puts them √(2 + κ) standard deviations out, 1e-3 next to
        the mean, where they see what a derivative sees.
    kappa : float
        3 - d by Julier and Uhlmann's rule, which is 1 in the plane.
    """
    alpha = checks.positive(alpha, "alpha", "1 is well spread, 1e-3 narrow.")
    kalman_filters = _filterpy()

    def one(y: np.ndarray) -> np.ndarray:
        points = kalman_filters.MerweScaledSigmaPoints(
            2, alpha=alpha, beta=2.0, kappa=checks.number(kappa, "kappa"), sqrt_method=_root
        )
        ukf = kalman_filters.UnscentedKalmanFilter(
            2, 2, 1.0, hx=lambda x: x, fx=lambda x, dt: system.transition(x), points=points
        )
        ukf.x, ukf.P = np.zeros(2), system.initial_covariance
        ukf.Q, ukf.R = system.process_covariance, system.observation_covariance
        ukf.sigmas_f = points.sigma_points(ukf.x, ukf.P)  # the first state is not predicted
        means = []
        for t, row in enumerate(y):
            if t:
                ukf.predict()
            ukf.update(row)
            means.append(ukf.x)
        return np.array(means)

    return _each(one, system, observations)


def _root(P: np.ndarray) -> np.ndarray:
    """U with UᵀU = P: Cholesky's, and where rounding has left P singular, an eigenvector root."""
    try:
        return np.linalg.cholesky(P).T
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh((P + P.T) / 2)
        return np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T


def kalman(
    system: Circle,
    observations: np.ndarray,
    process_mean: float | np.ndarray | None = None,
    process_covariance: np.ndarray | None = None,
) -> np.ndarray:
    """The Kalman filter, with the true moments of the process noise or with assumed ones.

    Examples
    --------
    >>> from meanmap_experiments.systems import Circle
    >>> circle = Circle("iii")
    >>> states, observations = circle.simulate(31, rng=0, runs=50)
    >>> means = kalman(circle, observations)
    >>> zero_mean = kalman(circle, observations, process_mean=0.0)
    >>> bool(np.mean((means - states) ** 2) < np.mean((zero_mean - states) ** 2))
    True
    """
    y = _checked(system, observations)
    m = system.process_mean if process_mean is None else np.broadcast_to(process_mean, 2)
    Q = system.process_covariance if process_covariance is None else process_covariance
    if np.shape(Q) != (2, 2):
        raise ValueError(
            f"process_covariance must be a 2 × 2 matrix, got shape {np.shape(Q)}. Give a variance "
            "q in each coordinate as q * np.eye(2)."
        )
    F, R = system.matrix, system.observation_covariance
    x, P = np.zeros_like(y[..., 0, :]), system.initial_covariance
    means = np.empty_like(y)
    for t in range(y.shape[-2]):
        if t:
            x, P = x @ F.T + m, F @ P @ F.T + Q
        # P and R are symmetric: K = P (P + R)⁻¹, the same gain in every run
        K = np.linalg.solve(P + R, P).T
        x = x + (y[..., t, :] - x) @ K.T
        P = P - K @ P
        means[..., t, :] = x
    return means


def phase_filter(system: Rotation, observations: np.ndarray, points: int = 4096) -> np.ndarray:
    """The exact filter of the "clock" reading, on a grid of first angles.

    There the one unknown besides noise is the first angle. Given it, observations are independent,
    y ~ N(curve(θ_t), (σ_h² + σ_o²) I), and a state's mean is the average of curve and observation
    weighted by the other's variance. It is the bound for every filter on such data, and without
    process noise in either reading.
    """
    if system.reading != "clock" and system.process_noise > 0:
        raise ValueError(
            "phase_filter is exact for reading='clock' or process_noise=0; "
            f"got reading={system.reading!r}, process_noise={system.process_noise!r}. Use "
            "bootstrap_particles for the Markov chain."
        )
    count = checks.whole(points, "points", 16, "It is the number of angles on the grid.")
    hidden, seen = system.process_noise**2, system.observation_noise**2
    first = 2 * np.pi * np.arange(count) / count

    def one(y: np.ndarray) -> np.ndarray:
        log_weights, means = np.zeros(count), np.empty_like(y)
        for t, row in enumerate(y):
            curve = system.curve(first + t * system.increment)
            log_weights -= 0.5 * ((row - curve) ** 2).sum(axis=1) / (hidden + seen)
            centre = softmax(log_weights) @ curve
            means[t] = (seen * centre + hidden * row) / (hidden + seen)
        return means

    return _each(one, system, observations)


def bootstrap_particles(
    system: System,
    observations: np.ndarray,
    n_particles: int = 10_000,
    rng: Any = None,
    library: str = "numpy",
) -> np.ndarray:
    """The bootstrap particle filter: particles move by the system and are weighted by likelihood.

    Resampling is systematic, whenever the effective number falls below half. For `Identities` the
    particles are permutations, and a mean is a doubly stochastic k × k matrix.

    Parameters
    ----------
    system : System
    observations : (n, d) or (runs, n, d)
    n_particles : int
    rng : int, numpy Generator or None
    library : {"numpy", "particles"}
        Who runs it: this module, or the package `particles`.

    Examples
    --------
    >>> from meanmap_experiments.systems import OSCILLATION
    >>> _, observations = OSCILLATION.simulate(20, rng=0)
    >>> bootstrap_particles(OSCILLATION, observations, 1000, rng=0).shape
    (20, 2)
    """
    size = checks.whole(n_particles, "n_particles", 2, "10,000 is plenty for these systems.")
    checks.option(library, "library", LIBRARIES)
    random = checks.random_generator(rng)
    run = _numpy_particles if library == "numpy" else _package_particles()
    return _each(lambda y: run(system, y, size, random), system, observations)


def _numpy_particles(
    system: System, y: np.ndarray, size: int, rng: np.random.Generator
) -> np.ndarray:
    x, log_weights, means = system.initial(size, rng), np.zeros(size), []
    for t, row in enumerate(y):
        if t:
            w = softmax(log_weights)
            if 0.5 * size * (w @ w) > 1:  # 1/Σw² below half
                x, log_weights = x[_systematic(w, rng)], np.zeros(size)
            x = system.step(x, rng)
        log_weights = log_weights + system.log_likelihood(row, x)
        means.append(system.average(softmax(log_weights), x))
    return np.array(means)


def _systematic(weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Indices in proportion to weights: one uniform draw, then equal strides."""
    size = len(weights)
    edges = np.cumsum(weights)
    strides = (np.arange(size) + rng.random()) / size
    return np.minimum(np.searchsorted(edges, strides * edges[-1]), size - 1)


def _package_particles() -> Callable[..., np.ndarray]:
    """The same filter run by the package `particles`."""
    try:
        import particles
    except ImportError as error:
        raise ImportError(
            "library='particles' needs that package, whose release 0.4 asks for NumPy below 2 and "
            "yet runs with NumPy 2: pip install numba joblib; pip install --no-deps particles. "
            "library='numpy' needs nothing."
        ) from error

    class Model(particles.FeynmanKac):
        def __init__(self, system: System, y: np.ndarray, rng: np.random.Generator) -> None:
            super().__init__(len(y))
            self.system, self.y, self.rng = system, y, rng

        def M0(self, N: int) -> np.ndarray:
            return self.system.initial(N, self.rng)

        def M(self, t: int, xp: np.ndarray) -> np.ndarray:
            return self.system.step(xp, self.rng)

        def logG(self, t: int, xp: np.ndarray, x: np.ndarray) -> np.ndarray:
            return self.system.log_likelihood(self.y[t], x)

    def run(system: System, y: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
        model = Model(system, y, rng)
        with _global_seed(int(rng.integers(2**31))):
            smc = particles.SMC(fk=model, N=size, resampling="systematic", collect="off")
            return np.array([system.average(smc.W, smc.X) for _ in smc])

    return run


@contextmanager
def _global_seed(seed: int) -> Iterator[None]:
    """`particles` resamples by NumPy's global state: seeded here, and left as it was."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


def exact_identities(system: Identities, observations: np.ndarray) -> np.ndarray:
    """The exact filter over all k! permutations: the bound for every filter of identities.

    Returns the posterior means, (n, k, k) or (runs, n, k, k).

    Examples
    --------
    >>> from meanmap_experiments.systems import Identities
    >>> system = Identities(objects=4)
    >>> _, sightings = system.simulate(30, rng=0)
    >>> means = exact_identities(system, sightings)
    >>> means.shape, bool(np.allclose(means.sum(axis=-1), 1))
    ((30, 4, 4), True)
    """
    k = system.objects
    if k > MOST_OBJECTS:
        raise ValueError(
            f"the exact filter holds all k! permutations, k ≤ {MOST_OBJECTS}; got k = {k}. Use "
            "bootstrap_particles."
        )
    orders = np.array(list(itertools.permutations(range(k))))  # sorted, as their codes are
    tables = np.eye(k)[orders].reshape(len(orders), k * k)
    digits = k ** np.arange(k)[::-1]
    swapped = []
    for i in range(k - 1):
        swap = np.arange(k)
        swap[[i, i + 1]] = i + 1, i
        swapped.append(np.searchsorted(orders @ digits, orders[:, swap] @ digits))
    stay, move = 1 - system.mixing, system.mixing / (k - 1)

    def one(y: np.ndarray) -> np.ndarray:
        p, means = np.full(len(orders), 1 / len(orders)), np.empty((len(y), k, k))
        for t, row in enumerate(y):
            if t:
                p = stay * p + move * sum(p[index] for index in swapped)
            scores = tables @ (row / system.observation_noise**2)
            p = p * np.exp(scores - scores.max())
            p /= p.sum()
            means[t] = (p @ tables).reshape(k, k)
        return means

    return _each(one, system, observations)


def _filterpy() -> Any:
    try:
        from filterpy import kalman as filters
    except ImportError as error:
        raise ImportError(
            "extended and unscented Kalman filters need filterpy: pip install filterpy"
        ) from error
    return filters


def _checked(system: System, observations: Any) -> np.ndarray:
    """Observations as finite floats, (n, d) or (runs, n, d)."""
    y = np.asarray(observations, dtype=float)
    if y.ndim not in (2, 3) or y.shape[-1] != system.observed or 0 in y.shape:
        raise ValueError(
            f"observations must be (n, {system.observed}) or (runs, n, {system.observed}) for "
            f"{type(system).__name__}, got {checks.describe(y)}."
        )
    if not np.isfinite(y).all():
        raise ValueError(
            "observations contain NaN or infinity: these competitors take complete series."
        )
    return y


def _each(one: Callable[[np.ndarray], np.ndarray], system: System, observations: Any) -> np.ndarray:
    """One run after another."""
    y = _checked(system, observations)
    return one(y) if y.ndim == 2 else np.stack([one(run) for run in y])
