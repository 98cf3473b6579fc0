"""Methods of inference without a likelihood, learned from simulations of a task, then asked.

Each is a function of a task, a number of simulations, how many draws an answer has, and a random
generator. It returns a function from an observation to candidates: by name, what gives the draws.
Most have one candidate. Peers that leave choices to their user have one for every choice, and the
best is taken in hindsight, which no user can do better.
"""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from meanmap.likelihood_free import KernelABC
from meanmap_experiments.likelihood_free_peers import pyabc_smc, regression_adjusted, rejection_abc
from meanmap_experiments.tasks import Task

PLAIN = ""  # the only candidate of a method that leaves nothing to choose
#: Of Silverman's bandwidth: a peer's draws are smoothed, for repeated ones are easily told apart.
WIDTHS = {"as they are": 0.0, "smoothed by half": 0.5, "smoothed": 1.0}


@dataclass(frozen=True)
class Amount:
    """How much is done, and the choices there are."""

    draws: int = 1000  # of each posterior
    kept: tuple[int, ...] = (10, 20, 50, 100, 200, 500)  # that rejection accepts
    adjusted: tuple[int, ...] = (50, 100, 200, 500, 1000, 2000)  # and with a regression
    flow: str = "nsf"  # the benchmark's choice, better than sbi's default on two moons
    epochs: int | None = None  # of training at most; None is sbi's early stopping alone


class Refused(Exception):
    """A second round that could not be simulated; the answer of the first stands."""

    def __init__(self, draws: np.ndarray) -> None:
        super().__init__()
        self.draws = draws


Ask = Callable[[], np.ndarray]
Learned = Callable[[np.ndarray], dict[str, Ask]]  # from an observation to candidates


def kernel(plan: Amount, task: Task, size: int, rng: np.random.Generator) -> Learned:
    """One fit for all observations."""
    seed = int(rng.integers(2**31))
    model = KernelABC(task.simulate, task.prior, random_state=seed, progress=False).fit(size)
    return lambda y: {PLAIN: lambda: np.asarray(model.posterior(y).sample(plan.draws, rng))}


def rounds(plan: Amount, task: Task, size: int, rng: np.random.Generator) -> Learned:
    """Half of the simulations from the prior, the others where the posterior is."""
    seed = int(rng.integers(2**31))
    model = KernelABC(task.simulate, task.prior, random_state=seed, progress=False)
    model.fit(size - size // 2)

    def ask(y: np.ndarray) -> np.ndarray:
        refined = copy.deepcopy(model)
        try:
            refined.refine(y, size // 2)
        except ValueError as error:
            raise Refused(np.asarray(model.posterior(y).sample(plan.draws, rng))) from error
        return np.asarray(refined.posterior(y).sample(plan.draws, rng))

    return lambda y: {PLAIN: lambda: ask(y)}


def rejection(plan: Amount, task: Task, size: int, rng: np.random.Generator) -> Learned:
    """The nearest simulations; how many, and how smoothed, is chosen in hindsight."""
    theta = task.sample(size, rng)
    outputs = task.simulate(theta, rng)

    def ask(y: np.ndarray, keep: int, width: float) -> np.ndarray:
        draws = rejection_abc(theta, outputs, y, keep)
        return resampled(task, draws, np.ones(keep), plan.draws, width, rng)

    def answer(y: np.ndarray) -> dict[str, Ask]:
        return choices((k for k in plan.kept if k <= size // 2), partial(ask, y))

    return answer


def adjusted(plan: Amount, task: Task, size: int, rng: np.random.Generator) -> Learned:
    """The nearest simulations moved by a regression; choices in hindsight as for rejection."""
    theta = task.sample(size, rng)
    outputs = task.simulate(theta, rng)
    support = np.array([part.support() for part in task.prior.values()])
    box = support if np.isfinite(support).all() else None

    def ask(y: np.ndarray, keep: int, width: float) -> np.ndarray:
        if box is None:  # positive parameters, on the scale of their logarithms
            moved, weights = regression_adjusted(np.log(theta), outputs, y, keep)
            draws = np.exp(moved)
        else:
            draws, weights = regression_adjusted(theta, outputs, y, keep, box)
        return resampled(task, draws, weights, plan.draws, width, rng)

    def answer(y: np.ndarray) -> dict[str, Ask]:
        enough = (k for k in plan.adjusted if len(y) + 1 < k <= size)
        return choices(enough, partial(ask, y))

    return answer


def sequential(plan: Amount, task: Task, size: int, rng: np.random.Generator) -> Learned:
    """pyABC, for one observation at a time; its population more or less smoothed."""

    def answer(y: np.ndarray) -> dict[str, Ask]:
        def simulate(theta: np.ndarray, r: np.random.Generator) -> np.ndarray:
            return task.simulate(theta[None], r)[0]

        seed = int(rng.integers(2**31))
        draws, weights, _ = pyabc_smc(simulate, task.prior, y, size, seed)

        def ask(width: float) -> np.ndarray:
            return resampled(task, draws, weights, plan.draws, width, rng)

        return {words: partial(ask, width) for words, width in WIDTHS.items()}

    return answer


def neural(plan: Amount, task: Task, size: int, rng: np.random.Generator) -> Learned:
    """Neural posterior estimation: a flow trained once for all observations, on one core."""
    import torch
    from sbi.inference import NPE as Estimator
    from sbi.utils import MultipleIndependent

    torch.set_num_threads(1)
    torch.manual_seed(int(rng.integers(2**31)))
    theta = task.sample(size, rng)
    outputs = task.simulate(theta, rng)
    parts = []
    for part in task.prior.values():
        if part.dist.name == "uniform":
            low, high = (torch.tensor([float(end)]) for end in part.support())
            parts.append(torch.distributions.Uniform(low, high))
        else:  # lognormal
            centre, spread = np.log(part.median()), part.args[0]
            both = torch.tensor([centre]).float(), torch.tensor([spread]).float()
            parts.append(torch.distributions.LogNormal(*both))
    limit = {} if plan.epochs is None else {"max_num_epochs": plan.epochs}
    with contextlib.redirect_stdout(io.StringIO()):
        prior = MultipleIndependent(parts)
        learner = Estimator(prior, plan.flow, show_progress_bars=False, tracker=Untracked())
        learner.append_simulations(tensor(theta), tensor(outputs))
        learner.train(**limit)
        posterior = learner.build_posterior()

    def ask(y: np.ndarray) -> np.ndarray:
        draws = posterior.sample((plan.draws,), x=tensor(y), show_progress_bars=False)
        return np.asarray(draws.numpy(), dtype=float)

    return lambda y: {PLAIN: lambda: ask(y)}


class Untracked:
    """sbi's tracker of training, which would write files."""

    log_dir = None

    def nothing(self, *args: Any, **options: Any) -> None:
        return None

    log_metric = log_metrics = log_params = add_figure = flush = nothing


def tensor(values: np.ndarray) -> Any:
    """As sbi wants numbers: in single precision."""
    import torch

    return torch.as_tensor(values, dtype=torch.float32)


def choices(kept: Iterable[int], ask: Callable[[int, float], np.ndarray]) -> dict[str, Ask]:
    """Candidates: every number of simulations that are kept, and every width of smoothing."""
    return {f"{k:,} kept, {w}": partial(ask, k, width) for k in kept for w, width in WIDTHS.items()}


def resampled(
    task: Task,
    draws: np.ndarray,
    weights: np.ndarray,
    n: int,
    width: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """n draws from a weighted sample, smoothed by so many times Silverman's bandwidth."""
    w = weights / weights.sum()
    found = draws[rng.choice(len(draws), size=n, p=w)]
    if width == 0:
        return found
    d = draws.shape[1]
    centred = draws - w @ draws
    factor = width * (1 / (w @ w) * (d + 2) / 4) ** (-1 / (d + 4))
    values, vectors = np.linalg.eigh(factor**2 * (centred.T * w) @ centred)
    root = vectors * np.sqrt(np.maximum(values, 0))
    left = np.arange(n)  # those without a place inside the prior's support yet
    moved = found.copy()
    for _ in range(100):
        moved[left] = found[left] + rng.normal(size=(len(left), d)) @ root.T
        left = left[~np.isfinite(task.log_prior(moved[left]))]
        if not len(left):
            break
    moved[left] = found[left]
    return moved
