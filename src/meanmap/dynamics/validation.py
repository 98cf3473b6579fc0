"""Half-split validation: learn from one half, filter the other, compare means with the truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from meanmap import checks, plots
from meanmap.arrays import Array, Points, asarray, namespace, take, to_numpy, warn
from meanmap.dynamics.sequences import Steps, pad_sequences
from meanmap.dynamics.training import Placed, Training, comparison_values, steps_of
from meanmap.kernels import Chordal, Kernel
from meanmap.kernels.bandwidths import column_scales
from meanmap.kernels.domains.matrices import are_rotations, nearest_rotations
from meanmap.progress import progress_bar

FACTORS = (0.5, 1.0)  # multiples of the median bandwidth
LEAST = 20  # steps below which a half has nothing to say
MOST = 4000  # steps that candidates are compared on: more of them would tell little more


@dataclass(frozen=True, eq=False)
class Validation:
    """Every candidate with its mean squared error on the half that it had not seen.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import AdditiveFilter
    >>> rng = np.random.default_rng(0)
    >>> angle = np.cumsum(rng.normal(0.3, 0.1, size=200))
    >>> states = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    >>> seen = states + 0.2 * rng.normal(size=states.shape)
    >>> found = AdditiveFilter(progress=False).fit(states, seen).validation_
    >>> found.best["regularization"] in (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
    True
    """

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
        return plots.ranking(order, "mean squared error on the other half", ax)

    def __repr__(self) -> str:
        chosen = ", ".join(f"{name}={_short(value)}" for name, value in self.best.items())
        return f"Validation({len(self.errors)} candidates; {chosen}: error {self.least:.4g})"


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else repr(value)


@dataclass(frozen=True)
class Contest:
    """What candidates do on the half that they have not seen, and what they are judged by.

    States that are numbers are compared as they are, those of several columns each on a scale of
    its own (`column_scales`, over their root mean square), rotations after the mean is turned into
    the nearest one, and others by their coordinates in a fixed reference kernel, so that no
    candidate is judged by a measure of its own.
    """

    steps: Steps
    controls: Points | None
    values: Array  # of the training states, (n, q)
    truth: Array  # of the test states
    scale: Array  # of each column of the states, by which its errors are measured
    side: int  # of rotations; 0 where states are none

    @classmethod
    def of(cls, placed: Placed, test: Training) -> Contest:
        """The test half in the coordinates of the training half's observations."""
        train, kernel = placed.training, placed.sample.kernel
        values, truth = comparison_values(train, test, kernel)
        points, seen = test.observations, [np.ones(n, dtype=bool) for n in test.states.lengths]
        steps = steps_of(
            placed.observations, list(zip(points.parts(), seen, strict=True)), points.single
        )
        controls = None
        if test.controls is not None:
            controls = pad_sequences(test.controls[0].parts(), max(test.states.lengths))
        states = train.states.points
        matrices = not isinstance(states, tuple) and states.ndim == 3
        rotations = matrices and are_rotations(to_numpy(states))
        scale = np.ones(values.shape[1])
        if not isinstance(states, tuple) and states.ndim == 2 and states.shape[1] > 1:
            scale = column_scales(to_numpy(values).astype(np.float64))
            scale = scale / np.mean(scale**2) ** 0.5
        side = states.shape[-1] if rotations else 0
        return cls(steps, controls, values, truth, asarray(scale, values), side)

    def error(self, means: Array | None) -> float:
        """The mean squared error of means (b, steps, q)."""
        assert means is not None
        inside = np.arange(means.shape[1])[None, :] < np.array(self.steps.lengths)[:, None]
        found = take(namespace(means).reshape(means, (-1, means.shape[-1])), inside.ravel())
        if self.side:
            turned = nearest_rotations(to_numpy(found).reshape(-1, self.side, self.side))
            found = asarray(turned.reshape(len(turned), -1), found)
        xp = namespace(found)
        errors = (found - self.truth) / self.scale
        return float(to_numpy(xp.mean(xp.sum(errors * errors, axis=1))))


def kernel_candidates(given: Any, default: Kernel, factors: Any) -> list[Kernel]:
    """The kernels to try: the one given, or the default at multiples of the median distance."""
    if given is not None:
        return [default]
    kernels: list[Kernel] = []
    multiples = factors if factors is not None else FACTORS
    if default.domain == "matrices":  # a mean matrix says little of where a rotation is
        multiples = factors if factors is not None else (0.25, *FACTORS)
        kernels = [Chordal(f"{f!s}*median") for f in multiples if not isinstance(f, Kernel)]
    for factor in multiples:
        if isinstance(factor, Kernel):
            kernels.append(factor)
        elif default.has_bandwidth:
            kernels.append(default.rescaled(factor))
    return kernels or [default]


def read_grid(grid: dict[str, Any] | None, known: list[str]) -> dict[str, Any]:
    """A grid of candidates as a user gave it: known names, a list for each."""
    grid = {} if grid is None else dict(grid)
    for name, values in grid.items():
        checks.option(name, "a key of grid", known)
        if not isinstance(values, list | tuple | np.ndarray) or len(values) == 0:
            raise ValueError(f"grid[{name!r}] must be a list of candidates, got {values!r:.60}.")
    return grid


def choose_settings(
    validation: Any,
    training: Training,
    kernels: tuple[list[Kernel], ...],
    settings: dict[str, list[Any]],
    trial: Callable[..., np.ndarray],
    n_jobs: int | None,
    progress: bool | None,
    names: tuple[str, ...] = ("kernel_state", "kernel_observation"),
) -> Validation | None:
    """The search that `validation` asks for; None where there is nothing to choose, or no way."""
    folds = number_of_folds(validation)
    choices = [len(part) for part in (*kernels, *settings.values())]
    if not folds or max(choices) == 1 or training.size < LEAST:
        return None
    found = search_settings(training, kernels, settings, trial, n_jobs, progress, names, folds)
    if np.isfinite(found.least):
        return found
    warn(
        "no candidate of the validation could be computed on a part of the data; the closed-form "
        "choices are used instead."
    )
    return None


def search_settings(
    training: Training,
    kernels: tuple[list[Kernel], ...],
    settings: dict[str, list[Any]],
    trial: Callable[..., np.ndarray],
    n_jobs: int | None,
    progress: bool | None,
    names: tuple[str, ...],
    folds: int,
) -> Validation:
    """Try every candidate on every fold.

    `trial(train, test, *kernels, settings)` returns one error for each combination of the settings,
    in the order of `itertools.product`; `names` are those of the kernels.
    """
    parts = training.some(MOST).folds(folds)
    jobs = [(train, test, *chosen) for chosen in product(*kernels) for train, test in parts]
    errors = []
    with progress_bar(len(jobs), "validation", progress, "fit") as done:
        tries = (delayed(_trial_errors)(trial, *job, settings) for job in jobs)
        for result in Parallel(n_jobs=n_jobs, return_as="generator")(tries):
            errors.append(result)
            done(1)
    combined = np.stack(errors).reshape(-1, folds, errors[0].size).mean(axis=1).ravel()
    combined = np.where(np.isfinite(combined), combined, np.inf)
    candidates = [
        dict(zip(names, chosen, strict=True)) | dict(zip(settings, values, strict=True))
        for chosen in product(*kernels)
        for values in product(*settings.values())
    ]
    return Validation(candidates, combined)


def _trial_errors(trial: Callable[..., np.ndarray], *arguments: Any) -> np.ndarray:
    """The errors of a trial, infinite where a candidate cannot be computed."""
    settings: dict[str, list[Any]] = arguments[-1]
    size = int(np.prod([len(values) for values in settings.values()], dtype=int))
    try:
        return trial(*arguments)
    except (ValueError, ArithmeticError, np.linalg.LinAlgError):
        return np.full(size, np.inf)


def number_of_folds(validation: Any) -> int:
    """How many parts a training sample falls into for validation; 0 is none."""
    if validation is None:
        return 0
    if isinstance(validation, str):
        checks.option(validation, "validation", ["half"])
        return 2
    return checks.whole(validation, "validation", 2, 'Use "half", a number of folds, or None.')
