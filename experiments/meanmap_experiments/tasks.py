"""Standard benchmarks of inference without a likelihood (Lueckmann et al. 2021), likelihoods known.

Each task is a prior, a simulator, observations drawn from the prior predictive, and draws from the
exact posterior that answers are compared with: in closed form for two moons, by sequential Monte
Carlo with the likelihood for the others.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import stats
from scipy.integrate import odeint
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, cross_val_score
from sklearn.neural_network import MLPClassifier

FEW = 8  # rows that are sooner solved one by one
Log = Callable[[np.ndarray], np.ndarray]


class Task(ABC):
    """A benchmark: prior, simulator, exact likelihood, observations, reference posteriors.

    Attributes
    ----------
    name, title : str
    prior : dict of frozen scipy.stats distributions by name
    outputs : int
        Numbers that the simulator returns.
    """

    name: str
    title: str
    prior: Mapping[str, Any]
    outputs: int
    number: int  # of its stream of random numbers
    particles = 4000  # of a reference posterior, at least
    sweeps = (4, 120)  # moves of every particle: at each temperature, and at the last

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """n draws from the prior, (n, d)."""
        return np.column_stack([p.rvs(size=n, random_state=rng) for p in self.prior.values()])

    def log_prior(self, theta: np.ndarray) -> np.ndarray:
        """The logarithm of the prior's density, (n,)."""
        columns = zip(self.prior.values(), theta.T, strict=True)
        return np.sum([p.logpdf(column) for p, column in columns], axis=0)

    @abstractmethod
    def simulate(self, theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Outputs (n, p) for parameters (n, d)."""

    @abstractmethod
    def log_likelihood(self, theta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The logarithm of the density of one output under each row of parameters, (n,)."""

    def truth(self, i: int, seed: int = 0) -> np.ndarray:
        """The parameters behind observation i, (d,)."""
        return self._drawn(i, seed)[0]

    def observation(self, i: int, seed: int = 0) -> np.ndarray:
        """Observation i, drawn from the prior predictive distribution, (p,)."""
        return self._drawn(i, seed)[1]

    def reference(self, i: int, n: int, seed: int = 0, repeat: int = 0) -> np.ndarray:
        """n draws from the exact posterior of observation i, (n, d); other ones a repeat."""
        rng = np.random.default_rng((seed, self.number, i, 1 + repeat))
        return self.posterior(self.observation(i, seed), n, rng)

    def posterior(self, y: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
        """n draws from the exact posterior of an observation, (n, d)."""
        start = self.unbounded(self.sample(max(n, self.particles), rng))

        def prior(z: np.ndarray) -> np.ndarray:
            return self.log_prior(self.bounded(z)) + self.log_volume(z)

        def likelihood(z: np.ndarray) -> np.ndarray:
            return self.log_likelihood(self.bounded(z), y)

        draws = self.bounded(tempered(start, prior, likelihood, self.sweeps, rng))
        return self.spread(draws[rng.permutation(len(draws))[:n]], rng)

    # Coordinates in which the posterior is easily explored, and symmetries put back afterwards.

    def unbounded(self, theta: np.ndarray) -> np.ndarray:
        return theta

    def bounded(self, z: np.ndarray) -> np.ndarray:
        return z

    def log_volume(self, z: np.ndarray) -> np.ndarray:
        """log |dθ/dz|, (n,)."""
        return np.zeros(len(z))

    def spread(self, theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return theta

    def _drawn(self, i: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng((seed, self.number, i, 0))
        theta = self.sample(1, rng)
        return theta[0], self.simulate(theta, rng)[0]


class TwoMoons(Task):
    """Two parameters whose posterior is a pair of crescents (Greenberg et al. 2019).

    Examples
    --------
    >>> task = TwoMoons()
    >>> task.observation(0).shape, task.reference(0, 100).shape
    ((2,), (100, 2))
    """

    name, title, outputs, number = "two_moons", "two moons", 2, 1
    prior = {"θ1": stats.uniform(-1, 2), "θ2": stats.uniform(-1, 2)}
    offset, radius, width = 0.25, 0.1, 0.01

    def simulate(self, theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        z = self._turned(theta)
        return self._crescent(len(theta), rng) + np.column_stack([-np.abs(z[:, 0]), z[:, 1]])

    def log_likelihood(self, theta: np.ndarray, y: np.ndarray) -> np.ndarray:
        z = self._turned(theta)
        u, v = y[0] + np.abs(z[:, 0]) - self.offset, y[1] - z[:, 1]
        r = np.maximum(np.hypot(u, v), 1e-300)
        # angle uniform on a half circle, radius normal: density N(r)/(π r) of the point
        density = stats.norm.logpdf(r, self.radius, self.width) - np.log(np.pi * r)
        return np.where(u > 0, density, -np.inf)

    def posterior(self, y: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
        """In closed form: the noise that could have made y, turned back, inside the prior's box."""
        kept = np.empty((0, 2))
        for _ in range(1000):
            p = self._crescent(4 * n, rng)
            z = np.column_stack([p[:, 0] - y[0], y[1] - p[:, 1]])  # |z₁|, z₂
            z = z[z[:, 0] >= 0]
            z[:, 0] *= rng.choice([-1.0, 1.0], size=len(z))  # both signs have made y as well
            theta = self._turned(z, back=True)
            kept = np.concatenate([kept, theta[(np.abs(theta) <= 1).all(axis=1)]])
            if len(kept) >= n:
                return kept[:n]
        raise ValueError(f"no parameters within [-1, 1]² can have made the observation {y}.")

    def _crescent(self, n: int, rng: np.random.Generator) -> np.ndarray:
        angle = rng.uniform(-np.pi / 2, np.pi / 2, n)
        r = rng.normal(self.radius, self.width, n)
        return np.column_stack([r * np.cos(angle) + self.offset, r * np.sin(angle)])

    @staticmethod
    def _turned(theta: np.ndarray, back: bool = False) -> np.ndarray:
        """By -45 degrees, or back."""
        half = np.sqrt(0.5)
        sign = -1.0 if back else 1.0
        first, second = theta.T
        return half * np.column_stack([first + sign * second, second - sign * first])


class Slcp(Task):
    """Simple likelihood, complex posterior: four points of a normal distribution in the plane.

    The five parameters are its mean, the signed roots of its deviations, and its correlation before
    tanh; the posterior has four symmetric modes (Papamakarios, Sterratt and Murray 2019).

    Examples
    --------
    >>> task = Slcp()
    >>> task.observation(0).shape, task.truth(0).shape
    ((8,), (5,))
    """

    name, title, outputs, number = "slcp", "SLCP", 8, 2
    prior = {f"θ{i + 1}": stats.uniform(-3, 6) for i in range(5)}
    points, jitter = 4, 1e-6

    def simulate(self, theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        a, b, c = self._cholesky(theta)
        e = rng.normal(size=(len(theta), self.points, 2))
        x = theta[:, :1] + a[:, None] * e[:, :, 0]
        y = theta[:, 1:2] + b[:, None] * e[:, :, 0] + c[:, None] * e[:, :, 1]
        return np.stack([x, y], axis=2).reshape(len(theta), -1)

    def log_likelihood(self, theta: np.ndarray, y: np.ndarray) -> np.ndarray:
        a, b, c = self._cholesky(theta)
        points = y.reshape(self.points, 2)
        e = (points[:, 0] - theta[:, :1]) / a[:, None]
        f = (points[:, 1] - theta[:, 1:2] - b[:, None] * e) / c[:, None]
        constant = -self.points * (np.log(2 * np.pi) + np.log(a) + np.log(c))
        return constant - 0.5 * ((e * e).sum(axis=1) + (f * f).sum(axis=1))

    def _cholesky(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Lower triangle a, b, c of the root of the covariance."""
        s, t, rho = theta[:, 2] ** 2, theta[:, 3] ** 2, np.tanh(theta[:, 4])
        a = np.sqrt(s * s + self.jitter)
        b = rho * s * t / a
        # t² + ε - b², written without cancellation
        c = np.sqrt(self.jitter + t * t * (self.jitter + s * s / np.cosh(theta[:, 4]) ** 2) / a**2)
        return a, b, c

    def unbounded(self, theta: np.ndarray) -> np.ndarray:
        z = theta.copy()
        z[:, 2:4] = np.log(np.abs(z[:, 2:4]))  # signs do not matter to the likelihood
        return z

    def bounded(self, z: np.ndarray) -> np.ndarray:
        theta = z.copy()
        theta[:, 2:4] = np.exp(np.minimum(z[:, 2:4], 2.0))  # beyond the prior's edge anyway
        return theta

    def log_volume(self, z: np.ndarray) -> np.ndarray:
        return z[:, 2] + z[:, 3]

    def spread(self, theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        theta = theta.copy()
        theta[:, 2:4] *= rng.choice([-1.0, 1.0], size=(len(theta), 2))
        return theta


class LotkaVolterra(Task):
    """Prey and predators over time, from their rates of growth and death, with lognormal noise.

    Numbers of both at ten times, from 30 prey and 1 predator on.

    Examples
    --------
    >>> task = LotkaVolterra()
    >>> task.observation(0).shape, task.truth(0).shape
    ((20,), (4,))
    """

    name, title, outputs, number = "lotka_volterra", "Lotka–Volterra", 20, 3
    prior = {
        name: stats.lognorm(0.5, scale=float(np.exp(centre)))
        for name, centre in (("α", -0.125), ("β", -3.0), ("γ", -0.125), ("δ", -3.0))
    }
    particles, sweeps = 2000, (4, 40)  # a posterior close to normal, a likelihood that takes time
    start, noise = (30.0, 1.0), 0.1
    interval, times = 2.1, 10
    low, high = 1e-10, 1e4  # what is seen is kept within these

    def simulate(self, theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.exp(self._paths(theta) + self.noise * rng.normal(size=(len(theta), self.outputs)))

    def log_likelihood(self, theta: np.ndarray, y: np.ndarray) -> np.ndarray:
        e = (np.log(y) - self._paths(theta)) / self.noise
        constant = -np.log(y).sum() - len(y) * np.log(self.noise * np.sqrt(2 * np.pi))
        return constant - 0.5 * (e * e).sum(axis=1)

    def _paths(self, theta: np.ndarray, steps: int = 84) -> np.ndarray:
        """Logarithms of prey, then predators, at 0, 2.1, …: Runge and Kutta's rule, 4th order."""
        if len(theta) <= FEW:
            paths = np.array([self._path(*row) for row in theta])
            return np.clip(paths, *np.log([self.low, self.high]))
        alpha, beta, gamma, delta = theta.T
        z = np.repeat(np.log(np.array(self.start))[:, None], len(theta), axis=1)
        h = self.interval / steps

        def slope(z: np.ndarray) -> np.ndarray:
            # of the logarithms: d log x = α - β y, d log y = δ x - γ
            e = np.exp(np.minimum(z, 50.0))
            return np.stack([alpha - beta * e[1], delta * e[0] - gamma])

        seen = [z]
        for _ in range(self.times - 1):
            for _ in range(steps):
                k1 = slope(z)
                k2 = slope(z + h / 2 * k1)
                k3 = slope(z + h / 2 * k2)
                k4 = slope(z + h * k3)
                z = z + (h / 6) * (k1 + 2 * k2 + 2 * k3 + k4)
            seen.append(z)
        paths = np.stack(seen, axis=2).transpose(1, 0, 2).reshape(len(theta), -1)
        return np.clip(paths, *np.log([self.low, self.high]))

    def _path(self, alpha: float, beta: float, gamma: float, delta: float) -> np.ndarray:
        """The same for one row, by a solver that chooses its steps."""

        def slope(z: np.ndarray, _: float) -> tuple[float, float]:
            return alpha - beta * math.exp(min(z[1], 50)), delta * math.exp(min(z[0], 50)) - gamma

        times = self.interval * np.arange(self.times)
        return odeint(slope, np.log(np.array(self.start)), times, rtol=1e-6, atol=1e-6).T.ravel()

    def unbounded(self, theta: np.ndarray) -> np.ndarray:
        return np.log(theta)

    def bounded(self, z: np.ndarray) -> np.ndarray:
        return np.exp(np.clip(z, -20.0, 5.0))

    def log_volume(self, z: np.ndarray) -> np.ndarray:
        return z.sum(axis=1)


TASKS: dict[str, Task] = {task.name: task for task in (TwoMoons(), Slcp(), LotkaVolterra())}


def tempered(
    z: np.ndarray,
    log_prior: Log,
    log_likelihood: Log,
    sweeps: tuple[int, int],
    rng: np.random.Generator,
) -> np.ndarray:
    """Particles of the prior, carried to the posterior through powers of the likelihood.

    At each temperature they are resampled and moved: each half by differences of pairs of the other
    half (ter Braak 2006), which finds every mode's scale and leaves the target as it is.
    """
    n, d = z.shape
    prior, likelihood = log_prior(z), log_likelihood(z)
    power = 0.0
    while power < 1.0:
        step = _next_step(likelihood, 1.0 - power)
        power = 1.0 if step >= 1.0 - power else power + step
        weights = np.exp(step * likelihood - logsumexp(step * likelihood))
        chosen = np.searchsorted(np.cumsum(weights), (np.arange(n) + rng.random()) / n)
        chosen = rng.permutation(np.minimum(chosen, n - 1))
        z, prior, likelihood = z[chosen], prior[chosen], likelihood[chosen]
        for _ in range(sweeps[power == 1.0]):
            halves = np.array_split(rng.permutation(n), 2)
            for mine, others in (halves, halves[::-1]):
                a, b = rng.choice(others, size=(2, len(mine)))
                scale = 2.38 / np.sqrt(2 * d) * rng.choice([0.2, 0.5, 1.0], size=(len(mine), 1))
                moved = z[mine] + scale * (z[a] - z[b])
                p = log_prior(moved)
                inside = np.isfinite(p)
                q = np.full(len(mine), -np.inf)
                q[inside] = log_likelihood(moved[inside])
                gain = p - prior[mine] + power * (q - likelihood[mine])
                with np.errstate(invalid="ignore"):
                    taken = np.log(rng.random(len(mine))) < np.where(inside, gain, -np.inf)
                at = mine[taken]
                z[at], prior[at], likelihood[at] = moved[taken], p[taken], q[taken]
    return z


def _next_step(likelihood: np.ndarray, most: float) -> float:
    """How far the power can rise with half of the particles still counting."""

    def left(step: float) -> float:
        w = step * likelihood
        return float(np.exp(2 * logsumexp(w) - logsumexp(2 * w)) / len(w))

    if left(most) >= 0.5:
        return most
    low, high = 0.0, most
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if left(middle) >= 0.5 else (low, middle)
    return max(low, 1e-12)


def c2st(
    X: np.ndarray, Y: np.ndarray, seed: int = 1, folds: int = 5, iterations: int = 1000
) -> float:
    """How well a classifier tells two samples apart: held-out accuracy, 0.5 if not at all.

    As in Lueckmann et al. (2021): columns standardised by X, a network with two hidden layers of
    10 d units each, five folds. Training that has not come to rest ends after so many iterations.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(2, 100, 2))
    >>> 0.3 < c2st(X, Y) < 0.7 < c2st(X, Y + 5)
    True
    """
    points = (np.concatenate([X, Y]) - X.mean(axis=0)) / X.std(axis=0, ddof=1)
    labels = np.repeat([0, 1], [len(X), len(Y)])
    width = 10 * X.shape[1]
    network = MLPClassifier((width, width), max_iter=iterations, random_state=seed)
    split = KFold(folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return float(cross_val_score(network, points, labels, cv=split).mean())
