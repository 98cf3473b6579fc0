"""The ten tasks of sbibm (Lueckmann et al. 2021): priors, simulators, observations, references.

Simulators are written in NumPy; observations and reference posteriors are read from the package's
files, without importing it: `pip install --no-deps sbibm==1.1.0`. The noise of the distractors is
stored as an object of Pyro (`pip install --no-deps pyro-ppl pyro-api`, and torch).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

Simulator = Callable[[np.ndarray, np.random.Generator], np.ndarray]


@cache
def package_files() -> Path:
    found = importlib.util.find_spec("sbibm")
    if found is None or found.origin is None:
        raise SystemExit("this needs sbibm: pip install --no-deps sbibm==1.1.0")
    return Path(found.origin).parent / "tasks"


@dataclass(frozen=True)
class Task:
    """A prior, a simulator, and ten observations whose posteriors are known by draws."""

    name: str
    prior: Any
    simulator: Simulator
    folder: str
    variant: str = ""  # of the observations' file

    def _read(self, number: int, file: str) -> np.ndarray:
        path = package_files() / self.folder / "files" / f"num_observation_{number}" / file
        return np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2)

    def observation(self, number: int) -> np.ndarray:
        return self._read(number, f"observation{self.variant}.csv")[0]

    def truth(self, number: int) -> np.ndarray:
        return self._read(number, "true_parameters.csv")[0]

    def reference(self, number: int) -> np.ndarray:
        """10,000 draws of the posterior."""
        return self._read(number, "reference_posterior_samples.csv.bz2")


def box(low: float, high: float, d: int) -> dict[str, Any]:
    return {f"θ{i + 1}": stats.uniform(low, high - low) for i in range(d)}


def gaussian(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return theta + np.sqrt(0.1) * rng.normal(size=theta.shape)


def mixture(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    scale = np.where(rng.random((len(theta), 1)) < 0.5, 1.0, 0.1)
    return theta + scale * rng.normal(size=theta.shape)


def two_moons(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    a = rng.uniform(-np.pi / 2, np.pi / 2, size=len(theta))
    r = rng.normal(0.1, 0.01, size=len(theta))
    moon = np.column_stack([r * np.cos(a) + 0.25, r * np.sin(a)])
    first, second = theta.T
    return moon + np.column_stack([-abs(first + second), second - first]) / np.sqrt(2)


def slcp(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Four points of a bivariate normal distribution."""
    s1, s2, rho = theta[:, 2] ** 2, theta[:, 3] ** 2, np.tanh(theta[:, 4])
    noise = rng.normal(size=(len(theta), 4, 2))
    x = theta[:, None, 0] + s1[:, None] * noise[:, :, 0]
    across = rho[:, None] * noise[:, :, 0] + np.sqrt(1 - rho**2)[:, None] * noise[:, :, 1]
    y = theta[:, None, 1] + s2[:, None] * across
    return np.stack([x, y], axis=2).reshape(len(theta), 8)


def slcp_distractors(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The same eight numbers among 92 that say nothing."""
    import torch

    noise, order = distractors()
    torch.manual_seed(int(rng.integers(2**31)))
    around = noise.sample((len(theta),)).numpy()
    return np.hstack([slcp(theta, rng), around])[:, order]


@cache
def distractors() -> tuple[Any, np.ndarray]:
    import torch

    files = package_files() / "slcp" / "files"
    noise = torch.load(files / "gmm.torch", weights_only=False)
    return noise, torch.load(files / "permutation_idx.torch", weights_only=False).numpy()


@cache
def stimulus() -> tuple[np.ndarray, np.ndarray]:
    """The design matrix (100, 10) and the current (100,) of the Bernoulli GLM."""
    import torch

    files = package_files() / "bernoulli_glm" / "files"
    return tuple(
        torch.load(files / name, weights_only=False).numpy().astype(float)
        for name in ("design_matrix.pt", "stimulus_I.pt")
    )


def spikes(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    design, _ = stimulus()
    p = 1 / (1 + np.exp(-theta @ design.T))
    return (rng.random(p.shape) < p).astype(float)


def spike_summaries(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The number of spikes, and their sums of the current at nine lags."""
    y, (_, current) = spikes(theta, rng), stimulus()
    lags = [y[:, lag:] @ current[: 100 - lag] for lag in range(9)]
    return np.column_stack([y.sum(axis=1), *lags])


def glm_prior() -> Any:
    D = np.eye(9) - np.eye(9, k=-1)
    F = D @ D + np.diag(np.arange(9) / 9) ** 0.5
    precision = np.zeros((10, 10))
    precision[0, 0] = 0.5
    precision[1:, 1:] = F.T @ F
    return stats.multivariate_normal(np.zeros(10), np.linalg.inv(precision))


def runge_kutta(
    slope: Callable[[np.ndarray], np.ndarray], state: np.ndarray, times: np.ndarray, step: float
) -> np.ndarray:
    """States (times, ...) by steps of fourth order, for all draws at once."""
    found = [state]
    for span in np.diff(times):
        count = round(float(span) / step)
        h = span / count
        for _ in range(count):
            a = slope(state)
            b = slope(state + h / 2 * a)
            c = slope(state + h / 2 * b)
            state = state + h / 6 * (a + 2 * b + 2 * c + slope(state + h * c))
        found.append(state)
    return np.stack(found)


def epidemic(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Infected among 1,000 people who are tested, on ten days."""
    N, (b, g) = 1e6, theta.T

    def slope(u: np.ndarray) -> np.ndarray:
        new = b * u[0] * u[1] / N
        return np.stack([-new, new - g * u[1]])

    start = np.stack([np.full(len(theta), N - 1), np.ones(len(theta))])
    infected = runge_kutta(slope, start, 17.0 * np.arange(10), 0.1)[:, 1]
    return rng.binomial(1000, np.clip(infected.T / N, 0, 1)).astype(float)


def predators(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Lotka-Volterra: prey and predators at ten times, in logarithms until the end."""
    a, b, c, d = theta.T

    def slope(u: np.ndarray) -> np.ndarray:
        x, y = np.exp(np.clip(u, -700, 30))
        return np.stack([a - b * y, d * x - c])

    start = np.log(np.stack([np.full(len(theta), 30.0), np.ones(len(theta))]))
    found = runge_kutta(slope, start, 2.1 * np.arange(10), 0.005)
    logs = np.clip(found.transpose(2, 1, 0).reshape(len(theta), 20), np.log(1e-10), np.log(1e4))
    return np.exp(logs + 0.1 * rng.normal(size=logs.shape))


def lognormal(*parts: tuple[float, float]) -> dict[str, Any]:
    return {f"θ{i + 1}": stats.lognorm(s, scale=np.exp(m)) for i, (m, s) in enumerate(parts)}


def tasks() -> dict[str, Task]:
    """All of them, by name."""
    uniform, normal = box(-1, 1, 10), {f"θ{i + 1}": stats.norm(0, np.sqrt(0.1)) for i in range(10)}
    glm, four = glm_prior(), [(-0.125, 0.5), (-3.0, 0.5)] * 2
    two = [(np.log(0.4), 0.5), (np.log(0.125), 0.2)]
    found = [
        Task("two moons", box(-1, 1, 2), two_moons, "two_moons"),
        Task("SLCP", box(-3, 3, 5), slcp, "slcp"),
        Task("SLCP distractors", box(-3, 3, 5), slcp_distractors, "slcp", "_distractors"),
        Task("Gaussian linear", normal, gaussian, "gaussian_linear"),
        Task("Gaussian linear uniform", uniform, gaussian, "gaussian_linear_uniform"),
        Task("Gaussian mixture", box(-10, 10, 2), mixture, "gaussian_mixture"),
        Task("Bernoulli GLM", glm, spike_summaries, "bernoulli_glm"),
        Task("Bernoulli GLM raw", glm, spikes, "bernoulli_glm", "_raw"),
        Task("SIR", lognormal(*two), epidemic, "sir"),
        Task("Lotka-Volterra", lognormal(*four), predators, "lotka_volterra"),
    ]
    return {task.name: task for task in found}
