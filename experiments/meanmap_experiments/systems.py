"""State-space systems of the papers' filter experiments, as seeded simulators.

Each is a frozen dataclass. `simulate` draws states and observations; the other methods say what a
competitor that is given the true dynamics may know: how the first state is distributed, how a state
moves on, how likely an observation is.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap import checks

READINGS = ("markov", "clock")
NOISES = ("i", "ii", "iii", "iv")


class System(ABC):
    """A hidden Markov process and its noisy observations."""

    @abstractmethod
    def initial(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """n draws of the first state."""

    @abstractmethod
    def step(self, states: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """For each state a draw of the next one."""

    @abstractmethod
    def observe(self, states: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """For each state a draw of its observation."""

    @abstractmethod
    def log_likelihood(self, observation: np.ndarray, states: np.ndarray) -> np.ndarray:
        """log p(observation | state) for each state, up to a constant."""

    @property
    @abstractmethod
    def observed(self) -> int:
        """The number of coordinates of an observation."""

    def average(self, weights: np.ndarray, states: np.ndarray) -> np.ndarray:
        """The weighted mean of states."""
        return weights @ states

    def simulate(
        self, n: int, rng: Any = None, runs: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """States and observations of n steps.

        Parameters
        ----------
        n : int
        rng : int, numpy Generator or None
        runs : int or None
            The number of independent runs, the first axis of both results; None is one run without
            that axis.
        """
        n = checks.whole(n, "n", 1, "It is the number of steps.")
        count = 1 if runs is None else checks.whole(runs, "runs", 1, "None makes a single run.")
        states, observations = self._draw(n, count, checks.random_generator(rng))
        return (states[0], observations[0]) if runs is None else (states, observations)

    def _draw(self, n: int, runs: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """States (runs, n, …) and observations (runs, n, d)."""
        path = [self.initial(runs, rng)]
        for _ in range(n - 1):
            path.append(self.step(path[-1], rng))
        states = np.stack(path, axis=1)
        return states, self.observe(states, rng)


class Planar(System):
    """A system in the plane whose states are seen under isotropic Gaussian noise.

    With the moments and the derivative that Kalman filters ask for.
    """

    observed = 2

    @property
    @abstractmethod
    def process_covariance(self) -> np.ndarray:
        """The covariance of the next state given the present one."""

    @property
    @abstractmethod
    def observation_covariance(self) -> np.ndarray:
        """The covariance of an observation given its state."""

    @property
    @abstractmethod
    def initial_covariance(self) -> np.ndarray:
        """The covariance of the first state, whose mean is 0."""

    @abstractmethod
    def transition(self, states: np.ndarray) -> np.ndarray:
        """The mean of the next state, for states (…, 2)."""

    @abstractmethod
    def jacobian(self, state: np.ndarray) -> np.ndarray:
        """The 2 × 2 derivative of `transition` at one state."""

    def observe(self, states: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        deviation = math.sqrt(self.observation_covariance[0, 0])
        return states + deviation * rng.normal(size=states.shape)

    def log_likelihood(self, observation: np.ndarray, states: np.ndarray) -> np.ndarray:
        difference = observation - states
        variance = self.observation_covariance[0, 0]
        return -0.5 * (difference * difference).sum(axis=-1) / variance


@dataclass(frozen=True)
class Rotation(Planar):
    """Rotation, or with `swing` an oscillating one, of Fukumizu, Song and Gretton (2013, 5.3).

    x' = (1 + b sin Mθ')(cos θ', sin θ') + ζ, θ' = θ + η, and the observation is x' + ξ. The first
    angle is uniform on the circle.

    Parameters
    ----------
    increment : float, η
    swing : float in [0, 1), b
    waves : int, M, at least 3 (so that the first state has mean 0 and an isotropic covariance)
    process_noise, observation_noise : float
        Standard deviations of ζ and ξ in each coordinate.
    reading : {"markov", "clock"}
        Which θ is meant. "markov": the angle of the noisy state, so that the states are a Markov
        chain. "clock": the angle advances by η whatever the noise, as the formula is printed; the
        noise of the states is then independent from step to step. `transition`, `jacobian` and
        `step` are those of the Markov chain in both: what a filter on the plane can know.

    Examples
    --------
    >>> states, observations = ROTATION.simulate(200, rng=0)
    >>> states.shape, observations.shape
    ((200, 2), (200, 2))
    >>> ROTATION.simulate(200, rng=0, runs=30)[0].shape
    (30, 200, 2)
    """

    increment: float = 0.3
    swing: float = 0.0
    waves: int = 8
    process_noise: float = 0.2
    observation_noise: float = 0.2
    reading: str = "markov"

    def __post_init__(self) -> None:
        checks.number(self.increment, "increment")
        if checks.not_negative(self.swing, "swing", "Rotation without it is swing=0.") >= 1:
            raise ValueError(
                f"swing must be below 1, got {self.swing!r}: the radius 1 + swing sin Mθ has to "
                "stay positive."
            )
        checks.whole(self.waves, "waves", 3, "It is the number of oscillations a turn.")
        checks.not_negative(self.process_noise, "process_noise", "Pass 0 for no noise.")
        checks.positive(self.observation_noise, "observation_noise", "The papers have 0.2.")
        checks.option(self.reading, "reading", READINGS)

    def curve(self, angles: np.ndarray) -> np.ndarray:
        """(1 + b sin Mθ)(cos θ, sin θ) for each angle θ."""
        b, M, theta = self.swing, self.waves, np.asarray(angles, dtype=float)
        radius = 1 + b * np.sin(M * theta)
        return np.stack([radius * np.cos(theta), radius * np.sin(theta)], axis=-1)

    def transition(self, states: np.ndarray) -> np.ndarray:
        u, v = states[..., 0], states[..., 1]
        return self.curve(np.arctan2(v, u) + self.increment)

    def jacobian(self, state: np.ndarray) -> np.ndarray:
        b, M, (u, v) = self.swing, self.waves, state
        theta = math.atan2(v, u) + self.increment
        c, s = math.cos(theta), math.sin(theta)
        radius, slope = 1 + b * math.sin(M * theta), b * M * math.cos(M * theta)
        along = np.array([slope * c - radius * s, slope * s + radius * c])  # d curve / dθ
        # dθ/dx = (-v, u)/|x|²; 0 at the origin, which has no angle
        turn = np.array([-v, u]) / max(u * u + v * v, np.finfo(float).tiny)
        return np.outer(along, turn)

    @property
    def process_covariance(self) -> np.ndarray:
        return self.process_noise**2 * np.eye(2)

    @property
    def observation_covariance(self) -> np.ndarray:
        return self.observation_noise**2 * np.eye(2)

    @property
    def initial_covariance(self) -> np.ndarray:
        # E radius² / 2 in each coordinate; the average over θ leaves nothing else where M > 2
        b = self.swing
        return ((1 + b * b / 2) / 2 + self.process_noise**2) * np.eye(2)

    def initial(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return self._blurred(self.curve(rng.uniform(0, 2 * np.pi, size=n)), rng)

    def step(self, states: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return self._blurred(self.transition(states), rng)

    def _blurred(self, means: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if self.process_noise == 0:
            return means
        return means + self.process_noise * rng.normal(size=means.shape)

    def _draw(self, n: int, runs: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        if self.reading == "markov":
            return super()._draw(n, runs, rng)
        first = rng.uniform(0, 2 * np.pi, size=(runs, 1))
        states = self._blurred(self.curve(first + self.increment * np.arange(n)), rng)
        return states, self.observe(states, rng)


ROTATION = Rotation()  # (a)
OSCILLATION = Rotation(increment=0.4, swing=0.4)  # (b)
# Song, Fukumizu and Gretton (2013, Figure 8): observations of variance .08, states without noise.
# The angle is printed there as arctan(|v|/|u|); without noise it is the clock in either reading.
QUIET_ROTATION = Rotation(process_noise=0.0, observation_noise=math.sqrt(0.08))
QUIET_OSCILLATION = Rotation(
    increment=0.4, swing=0.4, process_noise=0.0, observation_noise=math.sqrt(0.08)
)


@dataclass(frozen=True)
class Circle(Planar):
    """A particle on a circle under noise i–iv, of Song, Huang, Smola and Fukumizu (2009, 7).

    s' = R s + ξ with R a turn by θ, and the observation is s' + η: the printed observation matrix
    is garbled and read as the identity. The first state is uniform on the unit circle. θ is 0.2
    instead of the printed 0.02, at which 2ⁿ steps stay on a fraction of one cycle.

    Parameters
    ----------
    noise : {"i", "ii", "iii", "iv"}
        The noise of (state, observation): i (N(0, .01 I), N(0, .1 I)); ii (N(0, .1 I),
        N(0, .01 I)); iii (Γ(1, 1/3) in each coordinate, N(0, .1 I)), of mean 1/3; iv (an even
        mixture of N(±.2, .01 I), the sign common to both coordinates, N(0, .01 I)).
    angle : float, θ

    Examples
    --------
    >>> circle = Circle("iii")
    >>> states, _ = circle.simulate(circle.cycle, rng=0, runs=64)  # 64 cycles
    >>> states.shape
    (64, 31, 2)
    """

    noise: str = "i"
    angle: float = 0.2

    def __post_init__(self) -> None:
        checks.option(self.noise, "noise", NOISES)
        angle = checks.positive(self.angle, "angle", "The turn of one step in radians, say 0.2.")
        if angle > np.pi:
            raise ValueError(f"angle must not exceed π, got {angle!r}. The papers' is 0.02.")

    @property
    def cycle(self) -> int:
        """The number of whole steps in a turn."""
        return int(2 * np.pi / self.angle)

    @property
    def matrix(self) -> np.ndarray:
        """The turn R of one step."""
        c, s = math.cos(self.angle), math.sin(self.angle)
        return np.array([[c, s], [-s, c]])

    @property
    def process_mean(self) -> np.ndarray:
        """E ξ."""
        return np.full(2, 1 / 3 if self.noise == "iii" else 0.0)

    @property
    def process_covariance(self) -> np.ndarray:
        ones = np.ones((2, 2))
        return {
            "i": 0.01 * np.eye(2),
            "ii": 0.1 * np.eye(2),
            "iii": np.eye(2) / 9,
            "iv": 0.01 * np.eye(2) + 0.04 * ones,
        }[self.noise]

    @property
    def observation_covariance(self) -> np.ndarray:
        return (0.1 if self.noise in ("i", "iii") else 0.01) * np.eye(2)

    @property
    def initial_covariance(self) -> np.ndarray:
        return 0.5 * np.eye(2)

    def transition(self, states: np.ndarray) -> np.ndarray:
        return states @ self.matrix.T + self.process_mean

    def jacobian(self, state: np.ndarray) -> np.ndarray:
        return self.matrix

    def initial(self, n: int, rng: np.random.Generator) -> np.ndarray:
        angles = rng.uniform(0, 2 * np.pi, size=n)
        return np.stack([np.cos(angles), np.sin(angles)], axis=-1)

    def step(self, states: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return states @ self.matrix.T + self._process_noise(states.shape, rng)

    def _process_noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        if self.noise == "iii":
            return rng.gamma(1.0, 1 / 3, size=shape)
        if self.noise == "iv":
            sign = rng.choice([-1.0, 1.0], size=(*shape[:-1], 1))
            return 0.2 * sign + 0.1 * rng.normal(size=shape)
        return math.sqrt(self.process_covariance[0, 0]) * rng.normal(size=shape)


@dataclass(frozen=True)
class Identities(System):
    """Who is on which track: hidden permutations, after Song et al. (2009, 5).

    At each step, with probability `mixing`, two neighbouring tracks come close and swap identities.
    A sighting is a k × k table of appearance scores, the permutation matrix under Gaussian noise.
    The first permutation is uniform, which is the stationary law.

    Parameters
    ----------
    objects : int, k
    mixing : float in [0, 1]
    observation_noise : float
        The standard deviation of each score.

    Examples
    --------
    >>> states, sightings = Identities(objects=5).simulate(100, rng=0)
    >>> states.shape, sightings.shape
    ((100, 5, 5), (100, 25))

    Inside, a permutation is a row of k numbers: track i has identity `order[i]`.
    """

    objects: int = 5
    mixing: float = 0.3
    observation_noise: float = 0.8

    def __post_init__(self) -> None:
        checks.whole(self.objects, "objects", 2, "One object cannot be mistaken.")
        if checks.not_negative(self.mixing, "mixing", "It is a probability.") > 1:
            raise ValueError(f"mixing must not exceed 1, got {self.mixing!r}: it is a probability.")
        checks.positive(self.observation_noise, "observation_noise", "0.6 to 1 is ambiguous.")

    @property
    def observed(self) -> int:
        return self.objects**2

    def initial(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.permuted(np.tile(np.arange(self.objects), (n, 1)), axis=1)

    def step(self, states: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        orders, rows = states.copy(), np.flatnonzero(rng.random(len(states)) < self.mixing)
        i = rng.integers(self.objects - 1, size=len(rows))
        orders[rows, i], orders[rows, i + 1] = states[rows, i + 1], states[rows, i]
        return orders

    def observe(self, states: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        scores = np.eye(self.objects)[states].reshape(*states.shape[:-1], self.observed)
        return scores + self.observation_noise * rng.normal(size=scores.shape)

    def log_likelihood(self, observation: np.ndarray, states: np.ndarray) -> np.ndarray:
        # ‖y - π‖² = ‖y‖² + k - 2⟨y, π⟩
        scores = observation.reshape(self.objects, self.objects)
        return scores[np.arange(self.objects), states].sum(axis=-1) / self.observation_noise**2

    def average(self, weights: np.ndarray, states: np.ndarray) -> np.ndarray:
        k = self.objects
        return np.stack([np.bincount(states[:, i], weights, minlength=k) for i in range(k)])

    def _draw(self, n: int, runs: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        orders, observations = super()._draw(n, runs, rng)
        return np.eye(self.objects)[orders], observations
