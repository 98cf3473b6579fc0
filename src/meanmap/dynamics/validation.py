"""Half-split validation: learn from one half, filter the other, compare means with the truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone

from meanmap import plots
from meanmap.dynamics.training import Training
from meanmap.kernels import Chordal, Kernel, Trace
from meanmap.progress import progress_bar

FACTORS = (0.5, 1.0)  # multiples of the median bandwidth
LEAST = 20  # steps below which a half has nothing to say


@dataclass(frozen=True, eq=False)
class Validation:
    """Every candidate with its mean squared error on the half that it had not seen."""

    candidates: list[dict[str, Any]]
    errors: np.ndarray

    @property
    def best(self) -> dict[str, Any]:
        """The settings of least error."""
        return self.candidates[int(np.argmin(self.errors))]

    @property
    def least(self) -> float:
        """The least error."""
        return float(np.min(self.errors))

    def plot(self, ax: Any = None) -> Any:
        """Draw the errors of all candidates, the best first."""
        order = np.sort(self.errors)
        order = order[np.isfinite(order)]
        return plots.ranked(order, "mean squared error on the other half", ax)

    def __repr__(self) -> str:
        chosen = ", ".join(f"{name}={_short(value)}" for name, value in self.best.items())
        return f"Validation({len(self.errors)} candidates; {chosen}: error {self.least:.4g})"


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else repr(value)


def kernel_candidates(given: Any, default: Kernel, factors: Any) -> list[Kernel]:
    """The kernels to try: the one given, or the default at multiples of the median distance."""
    if given is not None:
        return [default]
    kernels: list[Kernel] = []
    multiples = factors if factors is not None else FACTORS
    if isinstance(default, Trace):  # a mean matrix says little of where a rotation is
        kernels = [Chordal(f"{f!s}*median") for f in multiples if not isinstance(f, Kernel)]
        default = Trace()
    names = [name for name, value in default.get_params().items() if _is_median(name, value)]
    for factor in multiples:
        if isinstance(factor, Kernel):
            kernels.append(factor)
        elif names:
            kernels.append(clone(default).set_params(**dict.fromkeys(names, f"{factor}*median")))
    return kernels or [default]


def _is_median(name: str, value: Any) -> bool:
    return name.split("__")[-1] == "bandwidth" and isinstance(value, str) and value == "median"


def search(
    training: Training,
    kernels: tuple[list[Kernel], list[Kernel]],
    settings: dict[str, list[Any]],
    trial: Callable[..., np.ndarray],
    n_jobs: int | None,
    progress: bool | None,
) -> Validation:
    """Try every candidate on both halves.

    `trial(train, test, kernel_state, kernel_observation, settings)` returns one error for each
    combination of the settings, in the order of `itertools.product`.
    """
    jobs = [
        (train, test, state, observation)
        for state, observation in product(*kernels)
        for train, test in training.halves()
    ]
    errors = []
    with progress_bar(len(jobs), "validation", progress, "fit") as done:
        tries = (delayed(_survived)(trial, *job, settings) for job in jobs)
        for result in Parallel(n_jobs=n_jobs, return_as="generator")(tries):
            errors.append(result)
            done(1)
    combined = np.stack(errors).reshape(-1, 2, errors[0].size).mean(axis=1).ravel()
    combined = np.where(np.isfinite(combined), combined, np.inf)
    candidates = [
        {"kernel_state": state, "kernel_observation": observation}
        | dict(zip(settings, values, strict=True))
        for state, observation in product(*kernels)
        for values in product(*settings.values())
    ]
    return Validation(candidates, combined)


def _survived(trial: Callable[..., np.ndarray], *arguments: Any) -> np.ndarray:
    """The errors of a trial, infinite where a candidate cannot be computed."""
    settings: dict[str, list[Any]] = arguments[-1]
    size = int(np.prod([len(values) for values in settings.values()], dtype=int))
    try:
        return trial(*arguments)
    except (ValueError, ArithmeticError, np.linalg.LinAlgError):
        return np.full(size, np.inf)
