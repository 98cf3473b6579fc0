"""Half-split validation: learn from one half, filter the other, compare beliefs with the truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy.special import ndtr, ndtri

from meanmap import checks, plots
from meanmap.arrays import Array, Points, asarray, namespace, to_numpy
from meanmap.dynamics.sequences import Steps, pad_sequences
from meanmap.dynamics.track import Track
from meanmap.dynamics.training import EmbeddedTraining, Training, comparison_values, steps_of
from meanmap.exceptions import SettingWarning, warn
from meanmap.kernels import Chordal, Kernel
from meanmap.kernels.bandwidths import column_scales
from meanmap.kernels.domains.matrices import are_rotations, nearest_rotations
from meanmap.progress import progress_bar
from meanmap.rules import CONFLICT

FACTORS = (0.5, 1.0)  # multiples of the median bandwidth
SURE = 1e-3  # of a column's scale: the least deviation that a belief is judged with
SWINGS = 0.01  # of the median variance: less counts as none
LEVEL = 0.9  # of the intervals that deviations are calibrated for
MOST_STRETCHED = 10.0
PIECES = 5  # that are left out one by one to calibrate: they leave more to learn from than halves
SHORT = 400  # steps of a single recording, below which halves of it have little in common
PIECE, LONG = 10, 50  # steps of the pieces that are left out, of a short recording and a long one
CHANCE = 0.05  # of the logarithm of a stretch, with a few hundred steps
LEAST = 20  # steps below which a half has nothing to say
MOST = 4000  # steps that candidates are compared on: more of them would tell little more


@dataclass(frozen=True, eq=False)
class Validation:
    """Every candidate with its error on the half that it had not seen.

    Of numbers the error is the continuous ranked probability score of the belief, taken as a normal
    distribution whose deviation is calibrated, averaged over columns on scales of their own; of
    rotations it is the distance of the one nearest to the mean, and of other states the squared
    error of the mean in a fixed reference kernel. `moments` is the error of the method "moments",
    and `regression` that of the state's conditional given its observation alone, where they were
    tried.

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
    moments: float | None = None
    regression: float | None = None

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
        return plots.ranking(order, "error on the other half", ax)

    def __repr__(self) -> str:
        chosen = ", ".join(f"{name}={_short(value)}" for name, value in self.best.items())
        rivals = {"by moments": self.moments, "by regression": self.regression}
        others = "".join(f"; {k} {v:.4g}" for k, v in rivals.items() if v is not None)
        count = len(self.errors)
        return f"Validation({count} candidates; {chosen}: error {self.least:.4g}{others})"


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else repr(value)


@dataclass(frozen=True)
class Contest:
    """What candidates do on the half that they have not seen, and what they are judged by.

    States that are numbers are judged by the belief's mean and standard deviation, each column on a
    scale of its own (`column_scales`), rotations after the mean is turned into the nearest one, and
    others by their coordinates in a fixed reference kernel, so that no candidate is judged by a
    measure of its own.
    """

    steps: Steps
    controls: Points | None
    values: Array  # of the training states, (n, q): 1, numbers and their squares
    truth: np.ndarray  # of the test states
    scale: np.ndarray  # of each column of the states, by which its errors are measured
    middle: np.ndarray | None  # that squares are taken about; None where states are not numbers
    side: int  # of rotations; 0 for other states
    bounded: bool  # whether weights are normalised before a mean is taken

    @classmethod
    def of(cls, embedded: EmbeddedTraining, test: Training) -> Contest:
        """The test half in the coordinates of the training half's observations."""
        train, kernel = embedded.training, embedded.sample.kernel
        values, truth = comparison_values(train, test, kernel)
        points, seen = test.observations, [np.ones(n, dtype=bool) for n in test.states.lengths]
        steps = steps_of(
            embedded.observations, list(zip(points.parts(), seen, strict=True)), points.single
        )
        controls = None
        if test.controls is not None:
            controls = pad_sequences(test.controls[0].parts(), max(test.states.lengths))
        states = train.states.points
        matrices = not isinstance(states, tuple) and states.ndim == 3
        rotations = matrices and are_rotations(to_numpy(states))
        numbers = train.targets(kernel)[1] is None
        scale, middle = np.ones(values.shape[1]), None
        if numbers:
            scale = column_scales(to_numpy(values).astype(np.float64))
            middle = to_numpy(values).astype(np.float64).mean(axis=0)
            xp, away = namespace(values), values - asarray(middle, values)
            values = xp.concat([xp.ones_like(away[:, :1]), away, away * away], axis=1)
        side = states.shape[-1] if rotations else 0
        host = to_numpy(truth).astype(np.float64)
        bounded = kernel.on_vectors and kernel.bounded
        return cls(steps, controls, values, host, scale, middle, side, bounded)

    def error(self, found: Array | None, alike: bool = False) -> float:
        """The error of expectations (b, steps, q) of `values`.

        Deviations that are `alike` at all steps are those of the errors.
        """
        assert found is not None
        rows = self._inside(to_numpy(found).astype(np.float64))
        if self.middle is None:
            return float(((rows - self.truth) ** 2).sum(axis=1).mean())
        q = len(self.middle)
        mass = np.where(rows[:, :1] > CONFLICT, rows[:, :1], 1.0) if self.bounded else 1.0
        away = rows[:, 1 : q + 1] / mass
        if self.side:  # entries of a matrix say little of the spread of rotations
            off = self._errors(away + self.middle, np.ones_like(away))[0] * self.scale
            return float(np.sqrt((off**2).sum(axis=1)).mean())
        variances = rows[:, q + 1 :] / mass - away * away
        if alike:
            squares = (away + self.middle - self.truth) ** 2
            variances = np.broadcast_to(squares.mean(axis=0), away.shape)
        return self.score(away + self.middle, variances)

    def _inside(self, found: np.ndarray) -> np.ndarray:
        """The steps of all sequences, one after another."""
        inside = np.arange(found.shape[1])[None, :] < np.array(self.steps.lengths)[:, None]
        return found.reshape(-1, found.shape[-1])[inside.ravel()]

    def _halves(self, moments: Any) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances of all steps, from those (b, steps, 2q) of beliefs."""
        rows = self._inside(to_numpy(moments).astype(np.float64))
        q = rows.shape[1] // 2
        return rows[:, :q], rows[:, q:]

    def score(self, means: np.ndarray, variances: np.ndarray) -> float:
        """The ranked probability score of normal beliefs (m, q), their deviations stretched."""
        off, deviations = self._errors(means, variances)
        return ranked_score(off, deviations * stretch_of(off, deviations))

    def stretch(self, moments: np.ndarray, share: float) -> float:
        """What deviations have to be multiplied with, of means and variances (b, steps, 2q).

        90% intervals then hold so large a share of the true states.
        """
        return stretch_of(*self._errors(*self._halves(moments)), share)

    def stretch_of_track(self, track: Track, share: float) -> float:
        """What 90% intervals of beliefs are to be stretched by to hold such a share of true states.

        1 where the mass of a belief is not known, as under kernels without constants: such beliefs
        have no intervals.
        """
        if not all((to_numpy(batch.mass) > CONFLICT).all() for batch in track.beliefs):
            return 1.0
        shape = (len(self.steps.lengths), max(self.steps.lengths), -1)
        ends = (track.mean, *track.interval(LEVEL))
        mean, low, high = (
            self._inside(to_numpy(part).astype(np.float64).reshape(shape)) for part in ends
        )
        above, below = self.truth - mean, mean - self.truth
        least = SURE * self.scale
        needed = np.maximum(
            above / np.maximum(high - mean, least), below / np.maximum(mean - low, least)
        )
        return bounded_stretch(float(np.quantile(needed, share)))

    def squares(self, moments: Any) -> float:
        """The mean squared error of means and variances (b, steps, 2q)."""
        return float((self._errors(*self._halves(moments))[0] ** 2).mean())

    def score_moments(self, moments: np.ndarray) -> float:
        """The score of means and variances (b, steps, 2q)."""
        return self.score(*self._halves(moments))

    def _errors(self, means: np.ndarray, variances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Errors and deviations over the scales of the columns."""
        if self.side:
            turned = nearest_rotations(means.reshape(-1, self.side, self.side))
            means = turned.reshape(len(turned), -1)
        # weights that swing may have any variance; that of the other steps says more
        usual = np.median(variances, axis=0)
        variances = np.where(variances > SWINGS * usual, variances, usual)
        deviations = np.sqrt(np.maximum(variances, (SURE * self.scale) ** 2))
        return (means - self.truth) / self.scale, deviations / self.scale


def stretch_of(errors: np.ndarray, deviations: np.ndarray, share: float = LEVEL) -> float:
    """The multiple of the deviations with which such a share of errors is inside of 90% intervals.

    One for all columns: errors next to each other in time are alike, so that they tell little.
    """
    found = float(np.quantile(abs(errors) / deviations, share)) / ndtri((1 + LEVEL) / 2)
    return bounded_stretch(found)


def share_to_hold(training: Training) -> float:
    """The share of left-out states that intervals must cover, to cover 90% of new states.

    Errors within a sequence are alike, so k sequences count as k cases: as in conformal prediction,
    the share is corrected by (k + 1)/k. A single sequence does not allow such a correction.
    """
    k = len(training.states.lengths)
    return LEVEL if k == 1 else min(LEVEL * (1 + 1 / k), (1 + LEVEL) / 2)


def bounded_stretch(found: float) -> float:
    """A stretch that is not extreme."""
    return min(max(found, 1 / MOST_STRETCHED), MOST_STRETCHED)


def join_stretches(found: Any) -> float:
    """One stretch from those of several parts: 1 if they differ from it by no more than chance."""
    log = float(np.mean(np.log(found)))
    return float(np.exp(np.sign(log) * max(abs(log) - CHANCE, 0.0)))


def ranked_score(errors: np.ndarray, deviations: np.ndarray) -> float:
    """The continuous ranked probability score of normal distributions, averaged."""
    z = errors / deviations
    density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    return float((deviations * (z * (2 * ndtr(z) - 1) + 2 * density - np.pi**-0.5)).mean())


def kernel_candidates(
    given: Any, default: Kernel, factors: Any, usual: tuple[float, ...] = FACTORS
) -> list[Kernel]:
    """The kernels to try: the one given, or the default at multiples of the median distance."""
    if given is not None:
        return [default]
    kernels: list[Kernel] = []
    multiples = factors if factors is not None else usual
    if default.domain == "matrices":  # a mean matrix says little of where a rotation is
        multiples = factors if factors is not None else (0.25, *usual)
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
    choices = [len(part) for part in (*kernels, *settings.values())]
    if validation is None or max(choices) == 1 or training.size < LEAST:
        return None
    parts = training_folds(validation, training)
    found = search_settings(parts, kernels, settings, trial, n_jobs, progress, names)
    if np.isfinite(found.least):
        return found
    warn(
        "no candidate of the validation could be computed on a part of the data; the closed-form "
        "choices are used instead.",
        SettingWarning,
    )
    return None


def search_settings(
    parts: list[tuple[Training, Training]],
    kernels: tuple[list[Kernel], ...],
    settings: dict[str, list[Any]],
    trial: Callable[..., np.ndarray],
    n_jobs: int | None,
    progress: bool | None,
    names: tuple[str, ...],
) -> Validation:
    """Try every candidate on every fold.

    `trial(train, test, *kernels, settings)` returns one error for each combination of the settings,
    in the order of `itertools.product`; `names` are those of the kernels.
    """
    jobs = [(train, test, *chosen) for chosen in product(*kernels) for train, test in parts]
    errors = []
    with progress_bar(len(jobs), "validation", progress, "fit") as done:
        tries = (delayed(_trial_errors)(trial, *job, settings) for job in jobs)
        for result in Parallel(n_jobs=n_jobs, return_as="generator")(tries):
            errors.append(result)
            done(1)
    combined = np.stack(errors).reshape(-1, len(parts), errors[0].size).mean(axis=1).ravel()
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
    """How many parts a training sample falls into for validation; 0 without validation."""
    if validation is None:
        return 0
    if isinstance(validation, str):
        checks.option(validation, "validation", ["auto", "half"])
        return 2
    return checks.whole(
        validation, "validation", 2, 'Use "auto", "half", a number of folds, or None.'
    )


def training_folds(validation: Any, training: Training) -> list[tuple[Training, Training]]:
    """What to learn from and what to test on, for every part that is left out in turn.

    The halves of a short recording may show different places, so that neither says anything of
    what was learned from the other: "auto" leaves out short pieces of it, spread over all of it.
    """
    some = training.some(MOST)
    if validation == "auto" and len(training.states.lengths) == 1:
        return some.folds(PIECES, PIECE) if training.size < SHORT else some.folds(2, LONG)
    count = number_of_folds(validation)
    if count > some.size // 2:
        raise ValueError(
            f"validation={count}: expected folds of two steps or more, of {some.size} steps in "
            f'all. Use at most {some.size // 2}, "auto", or None.'
        )
    return some.folds(count)
