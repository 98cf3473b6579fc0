"""Choice of kernel, λ, rank and symmetry for the operator of a process, by its VAMP score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.dynamics.training import fit_candidate
from meanmap.dynamics.transfer_regression import (
    METHODS,
    STEPS,
    FittedOperator,
    WhitenedTransitions,
    cross_validate,
)
from meanmap.dynamics.transition_sums import (
    FOLDS,
    Transitions,
    TransitionSums,
    stretch_length,
)
from meanmap.dynamics.validation import kernel_candidates
from meanmap.exceptions import ApproximationWarning, quiet
from meanmap.kernels import Kernel
from meanmap.spaces import PivotedCholesky, Space
from meanmap.spaces.space import choose_basis

FACTORS = (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0)  # multiples of the bandwidth that are tried
SEARCH = 10_000  # transitions on which kernels are compared
SPAN = 10_000  # states that the coordinates are chosen on
COARSE = PivotedCholesky(1e-8, 100)  # coordinates while kernels are compared
FINE = PivotedCholesky(1e-8, 300)  # and those of the model
ROUNDING = 1e-14  # of the mean of k(x, x): a smaller variance is due to rounding
MOST = 30  # functions beside the constant that rank="auto" chooses from


@dataclass(frozen=True)
class OperatorSettings:
    """What a user asked for; words stand for a choice."""

    method: str
    rank: int | None
    regularization: float | None
    reversible: bool | None

    @classmethod
    def of(cls, method: Any, rank: Any, regularization: Any, reversible: Any) -> OperatorSettings:
        """The arguments, through the gate."""
        checks.option(method, "method", list(METHODS))
        if isinstance(rank, str):
            checks.option(rank, "rank", ["auto"])
        else:
            rank = checks.whole(rank, "rank", 2, "It counts eigenvalues, the constant's with them.")
        value = regularization
        if isinstance(value, str):
            checks.option(value, "regularization", ["auto"])
        else:
            value = checks.not_negative(value, "regularization", 'Try 1e-4, or "auto".')
        if isinstance(reversible, str):
            checks.option(reversible, "reversible", ["auto"])
        elif not isinstance(reversible, bool | np.bool_):
            raise TypeError(
                f'reversible: expected True, False or "auto", got {checks.describe(reversible)}.'
            )
        return cls(
            method,
            None if isinstance(rank, str) else rank,
            None if isinstance(value, str) else value,
            None if isinstance(reversible, str) else bool(reversible),
        )

    @property
    def most(self) -> int:
        """How many directions are looked at."""
        return MOST if self.rank is None else self.rank - 1


@dataclass(frozen=True)
class OperatorChoice:
    """Settings with their scores on what was left out."""

    reversible: bool
    regularization: float
    directions: int
    scores: np.ndarray  # one for each part that was left out

    @property
    def score(self) -> float:
        """The mean."""
        return float(self.scores.mean())


def choose_operator(sums: TransitionSums, settings: OperatorSettings) -> OperatorChoice:
    """The settings of the best score for given coordinates."""
    every = np.arange(FOLDS)
    size = sums.xx.shape[1]
    most = size if settings.method == "ridge" else min(settings.most, size)
    found = []
    for reversible in [False, True] if settings.reversible is None else [settings.reversible]:
        whole = WhitenedTransitions.of(sums.moments(every, reversible))
        trace = float(np.trace(whole.moments.xx))
        if not trace > ROUNDING * float(np.trace(sums.xx.sum(axis=0))) / sums.total:
            raise ValueError(
                "sequences: to the kernel all states are the same, so nothing can be learned from "
                "them. Pass states that vary, or a kernel with a smaller bandwidth."
            )
        fixed = settings.regularization
        lambdas = trace * STEPS if fixed is None else np.array([fixed])
        scores = cross_validate(sums, settings.method, reversible, lambdas, most)
        if settings.method == "ridge" or settings.rank is not None:
            scores = scores[:, :, -1:]
        with np.errstate(invalid="ignore"):
            mean = scores.mean(axis=0)
        if not np.isfinite(mean).any():  # nothing varies, or too few transitions to leave some out
            i, j = len(lambdas) // 2, 0
        else:
            i, j = divmod(int(np.nanargmax(mean)), mean.shape[1])
        directions = j + 1 if scores.shape[2] > 1 else most
        found.append(OperatorChoice(reversible, float(lambdas[i]), directions, scores[:, i, j]))
    return max(found, key=lambda choice: np.nan_to_num(choice.score, nan=-np.inf))


def choose_process_kernel(
    given: Any, default: Kernel, basis: Any, transitions: Transitions, settings: OperatorSettings
) -> Kernel:
    """The widest kernel whose score is within a standard error of the best."""
    some = transitions.some(SEARCH)
    points = some.first_points()
    candidates = kernel_candidates(given, default.resolve(points), FACTORS)
    kernels = [kernel.resolve(points) for kernel in candidates]
    if len(kernels) == 1:
        return kernels[0]
    choices = []
    for kernel in kernels:
        coarse = choose_basis(kernel, points, COARSE) if basis is None else basis
        with quiet(ApproximationWarning):
            space = fit_candidate(kernel, coarse, points)[0]
        sums = TransitionSums.over(space, some, stretch_length(len(some)))
        choices.append(choose_operator(sums, settings))
    best = max(choices, key=lambda choice: np.nan_to_num(choice.score, nan=-np.inf))
    for kernel, choice in zip(reversed(kernels), reversed(choices), strict=True):
        behind = best.scores - choice.scores
        error = behind.std(ddof=1) / np.sqrt(len(behind)) if len(behind) > 1 else 0.0
        if behind.mean() <= error:
            return kernel
    return kernels[len(kernels) // 2]


def fit_process_space(kernel: Kernel, basis: Any, transitions: Transitions) -> Space:
    """Coordinates on states that are spread over all of the transitions."""
    points = transitions.some(SPAN).first_points()
    if basis is None:
        basis = choose_basis(kernel, points, FINE)
        with quiet(ApproximationWarning):
            return fit_candidate(kernel, basis, points)[0]
    return fit_candidate(kernel, basis, points)[0]


def fit_operator(sums: TransitionSums, choice: OperatorChoice, method: str) -> FittedOperator:
    """The operator of these settings, from all of the transitions."""
    whitened = WhitenedTransitions.of(sums.moments(np.arange(FOLDS), choice.reversible))
    W = whitened.directions(method, choice.regularization, choice.directions)
    return FittedOperator.of(whitened, W, METHODS[method][1])
