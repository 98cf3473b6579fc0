"""Bets against a null hypothesis, from features that were computed before.

A null hypothesis says that what is observed could as well have been arranged otherwise: x and y
swapped, or the values of Y given to other rows of a group. The observed arrangement gets the
probability q that a model learned on the past gives it among all m arrangements; betting on it
multiplies wealth by m q, whose mean is at most 1 under the null hypothesis whatever the model says.

The model is logistic, its log-odds linear in the features, and it is learned by online Newton steps
(Hazan, Agarwal and Kale 2007). It bets less where it is unsure, by MacKay's approximation (1992) of
the average over a normal distribution of weights; what it divides by is the same for every
arrangement, so that the bet stays fair.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from math import factorial, log, pi
from typing import Any, Protocol, Self

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import expit

GROUP = 4  # rows among which the values of Y are rearranged: 3/4 of what all rows could tell
ARRANGEMENTS = np.array(list(permutations(range(GROUP))))  # the observed one first
LEAST_SLOPE = 0.02  # of the logistic curve: steps stay bounded where the model is certain


class Bettor(Protocol):
    """A model that bets on arrangements, and learns from those that were observed."""

    def bet(self, features: Any) -> np.ndarray:
        """The log of what wealth is multiplied by, one value per unit."""

    def learn(self, features: Any) -> Self:
        """The model after these units."""

    def evaluate(self, features: Any) -> np.ndarray:
        """What it has learned, as a function of points."""


@dataclass(frozen=True, eq=False)
class SwapBettor:
    """Bets on which of two points came from X: log-odds θ·z with z = ψ(x) - ψ(y)."""

    theta: np.ndarray
    curvature: np.ndarray
    root: np.ndarray  # L⁻¹ with curvature = L Lᵀ

    @classmethod
    def start(cls, size: int, width: float) -> SwapBettor:
        """Before anything was seen: weights of standard deviation `width`."""
        eye = np.eye(size)
        return cls(np.zeros(size), eye / width**2, eye * width)

    def bet(self, features: np.ndarray) -> np.ndarray:
        spread = np.sum((features @ self.root.T) ** 2, axis=1)
        odds = features @ self.theta / np.sqrt(1 + pi / 8 * spread)
        return log(2.0) - np.logaddexp(0.0, -odds)

    def learn(self, features: np.ndarray) -> SwapBettor:
        p = expit(features @ self.theta)
        slope = np.maximum(p * (1 - p), LEAST_SLOPE)
        curvature = self.curvature + (features * slope[:, None]).T @ features
        lower = np.linalg.cholesky(curvature)
        root = solve_triangular(lower, np.eye(len(lower)), lower=True, check_finite=False)
        step = root.T @ (root @ (features.T @ (1 - p)))
        return SwapBettor(self.theta + step, curvature, root)

    def evaluate(self, features: np.ndarray) -> np.ndarray:
        """The witness, an estimate of log p_X/p_Y up to a constant."""
        return features @ self.theta


@dataclass(frozen=True, eq=False)
class MatchBettor:
    """Bets on which y belongs to which x among GROUP rows: log-odds Σ ψ(x)ᵀ Θ ψ(y).

    The curvature is that of independent variables, the product of their two scatter matrices; it is
    diagonal in their eigenvectors.
    """

    theta: np.ndarray
    scatters: tuple[np.ndarray, np.ndarray]
    axes: tuple[np.ndarray, np.ndarray]
    curvature: np.ndarray  # its diagonal, in the coordinates of the axes
    groups: int
    width: float

    @classmethod
    def start(cls, size_x: int, size_y: int, width: float) -> MatchBettor:
        """Before anything was seen: weights of standard deviation `width`."""
        eyes, shape = (np.eye(size_x), np.eye(size_y)), (size_x, size_y)
        scatters = 0 * eyes[0], 0 * eyes[1]
        return cls(np.zeros(shape), scatters, eyes, np.full(shape, width**-2.0), 0, width)

    def bet(self, features: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        phi, psi = map(_centre_groups, features)
        a, b = (
            ((part @ axis) ** 2).sum(axis=1)
            for part, axis in zip((phi, psi), self.axes, strict=True)
        )
        # the variance of the log-odds over arrangements, averaged over the weights
        spread = np.sum((a @ (1 / self.curvature)) * b, axis=1) / (GROUP - 1)
        scores = self._scores(phi, psi) / np.sqrt(1 + pi / 2 * spread)[:, None]
        return log(factorial(GROUP)) + scores[:, 0] - log_sum(scores, 1)

    def learn(self, features: tuple[np.ndarray, np.ndarray]) -> MatchBettor:
        phi, psi = map(_centre_groups, features)
        scores = self._scores(phi, psi)
        q = np.exp(scores - log_sum(scores, 1)[:, None])
        surprise = np.eye(GROUP) - np.tensordot(q, _MATRICES, 1)
        gradient = np.tensordot(phi, surprise @ psi, ((0, 1), (0, 1)))
        parts = zip(self.scatters, (phi, psi), strict=True)
        first, second = (old + np.tensordot(new, new, ((0, 1), (0, 1))) for old, new in parts)
        (a, u), (b, v) = np.linalg.eigh(first), np.linalg.eigh(second)
        groups = self.groups + len(phi)
        both = np.outer(np.maximum(a, 0), np.maximum(b, 0))
        curvature = both / (groups * (GROUP - 1)) + self.width**-2.0
        theta = self.theta + u @ ((u.T @ gradient @ v) / curvature) @ v.T
        return MatchBettor(theta, (first, second), (u, v), curvature, groups, self.width)

    def evaluate(self, features: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """The witness, an estimate of log p(x, y) up to functions of x and of y."""
        x, y = features
        return np.sum((x @ self.theta) * y, axis=1)

    def _scores(self, phi: np.ndarray, psi: np.ndarray) -> np.ndarray:
        """The log-odds of every arrangement of every group, up to a constant per group."""
        table = phi @ self.theta @ psi.transpose(0, 2, 1)
        return table[:, np.arange(GROUP), ARRANGEMENTS].sum(axis=2)


_MATRICES = np.eye(GROUP)[ARRANGEMENTS]


def _centre_groups(features: np.ndarray) -> np.ndarray:
    grouped = features.reshape(-1, GROUP, features.shape[1])
    return grouped - grouped.mean(axis=1, keepdims=True)


def log_sum(values: np.ndarray, axis: int) -> np.ndarray:
    """The log of the sum of exponentials; SciPy's own takes ten times as long on few."""
    most = values.max(axis=axis, keepdims=True)
    return np.log(np.exp(values - most).sum(axis=axis)) + np.squeeze(most, axis)
