"""Widths and penalties by the likelihood of points held out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap.density.candidates import NormalCandidates
from meanmap.density.mixture_programme import (
    Infeasible,
    Match,
    MixtureSolution,
    Regularizer,
    Span,
    solve_constrained,
)

FOLDS = 5
SHARES = (0.3, 0.5, 0.8, 1.2, 1.7, 2.4)  # of Silverman's width
PENALTIES = (10.0, 1.0, 0.3, 0.1, 0.03, 0.01)  # times the effective size, falling
LOOKED = 2000  # held-out points at which candidates are judged
COARSE = 0.05  # eigenvalues below this share of the penalty are left out
TINY = 1e-300


@dataclass(frozen=True)
class DistinctSample:
    """Points that differ from each other, with weights that sum to one, in the frame."""

    points: np.ndarray  # (n, d)
    target: np.ndarray  # weights of the embedding to be matched, of any sign
    weights: np.ndarray  # its nearest probability, the same where it is one
    folds: np.ndarray  # the fold of every point
    names: tuple[Any, ...] | None = None  # of the columns

    @property
    def size(self) -> float:
        """How many equal weights say as much."""
        return float(1 / (self.weights @ self.weights))

    def training(self) -> np.ndarray:
        """The weights of all folds but one, one column per fold."""
        V = np.where(self.folds[:, None] == np.arange(self.folds.max() + 1), 0.0, 1.0)
        V *= self.weights[:, None]
        return V / V.sum(axis=0)

    def judging_points(self) -> np.ndarray:
        """The points that judge."""
        n = len(self.points)
        return np.linspace(0, n - 1, min(n, LOOKED)).astype(int)


@dataclass(frozen=True)
class Choice:
    """What was tried, and how likely held-out points were: a table of widths by penalties."""

    widths: tuple[float, ...]
    penalties: tuple[float, ...]
    scores: np.ndarray
    logs: np.ndarray | None = None  # the best one's, of every point that judged, in the frame

    @property
    def best(self) -> tuple[float, float]:
        """The width and the penalty (times the effective size) of the highest score."""
        i, j = np.unravel_index(int(np.argmax(self.scores)), self.scores.shape)
        return self.widths[i], self.penalties[j]


def fold_numbers(n: int, rng: np.random.Generator, folds: int = FOLDS) -> np.ndarray:
    """A fold for every point, all of (nearly) one size."""
    return rng.permutation(np.arange(n) % min(folds, n))


def held_out_likelihoods(
    sample: DistinctSample,
    centres: np.ndarray,
    index: np.ndarray | None,
    widths: Sequence[float],
    scales: Sequence[float],
    sigma: Callable[[float], np.ndarray],
    regularizer: Callable[[NormalCandidates, np.ndarray], Regularizer],
    penalties: Sequence[float],
    epsilon: float | None = None,
) -> Choice:
    """The likelihood of each fold under the programme on the others.

    Candidates on points of the fold, which `index` tells, are left out: they would make their own
    points likely. The candidates' span is factorised once per width, for all folds.
    """
    columns = 1 if epsilon is not None else len(penalties)
    scores = np.full((len(widths), columns), -np.inf)
    training, looked = sample.training(), sample.judging_points()
    weights = sample.weights[looked] / sample.weights[looked].sum()
    best = np.zeros(len(looked))
    size = sample.size * (1 - 1 / training.shape[1])
    least = COARSE * min(penalties) / size if epsilon is None else 0.0
    for i, h in enumerate(widths):
        candidates = NormalCandidates(centres, tuple(h * s for s in scales))
        span = Span.of(candidates.gram(sigma(h)), least)
        b = candidates.inner(sample.points, training, sigma(h))
        logs = candidates.logs(sample.points[looked])
        top = logs.max(axis=1)
        heights = np.exp(logs - top[:, None])
        values = np.empty((columns, len(looked)))
        for fold in range(training.shape[1]):
            kept = np.tile(outside_fold(sample, index, fold, len(centres)), len(scales))
            whole = span.match(b[:, fold])
            match = Match(whole.rows[kept], whole.target)
            judge = sample.folds[looked] == fold
            solved: MixtureSolution | None = None
            chosen = regularizer(candidates, kept)
            for j in range(columns):
                if epsilon is None:
                    solved = chosen.solve(match, penalties[j] / size, solved)
                else:
                    try:
                        solved = solve_constrained(match, chosen, epsilon)
                    except Infeasible:
                        values[j, judge] = -np.inf
                        continue
                p = heights[np.ix_(judge, kept)] @ solved.proportions
                values[j, judge] = np.log(p + TINY) + top[judge]
        scores[i] = values @ weights
        if scores[i].max() >= scores.max():
            best = values[int(np.argmax(scores[i]))]
    return Choice(tuple(widths), tuple(penalties[:columns]), scores, best)


def outside_fold(
    sample: DistinctSample, index: np.ndarray | None, fold: int, centres: int
) -> np.ndarray:
    """Which centres are not points of the fold; all of them if every one is."""
    free = np.ones(centres, bool) if index is None else sample.folds[index] != fold
    return free if free.any() else ~free


def held_out_plain(
    sample: DistinctSample,
    centres: np.ndarray,
    weights: np.ndarray,
    index: np.ndarray,
    widths: Sequence[float],
) -> Choice:
    """The likelihood of each fold under weights on the centres outside it."""
    looked = sample.judging_points()
    folds = sample.folds[looked]
    scores = np.zeros((len(widths), 1))
    logs = NormalCandidates(centres, (1.0,)).logs(sample.points[looked])
    apart = sample.folds[index][None, :] != folds[:, None]
    V = np.where(apart, weights, 0.0)
    V /= np.maximum(V.sum(axis=1, keepdims=True), TINY)
    d = centres.shape[1]
    constant = d / 2 * np.log(2 * np.pi)
    for i, h in enumerate(widths):
        at = np.where(V > 0, (logs + constant) / h**2, -np.inf)
        top = at.max(axis=1)
        top = np.where(np.isfinite(top), top, 0.0)  # every centre lies in this fold
        p = (np.exp(at - top[:, None]) * V).sum(axis=1)
        values = np.log(p + TINY) + top - d * np.log(h) - constant
        scores[i] = sample.weights[looked] @ values / sample.weights[looked].sum()
    return Choice(tuple(widths), (0.0,), scores)
