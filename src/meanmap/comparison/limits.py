"""Limits of a statistic: its moments over all permutations, and weighted chi-squares."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap.arrays import Points, count
from meanmap.comparison.methods import Request
from meanmap.comparison.results import TIE, Draws, GammaNull
from meanmap.comparison.sources import Outcome
from meanmap.kernels import Kernel
from meanmap.linalg import Spectrum
from meanmap.spaces import Basis, PivotedCholesky
from meanmap.spaces.space import fit_space_quietly
from meanmap.statistics.centring import Centred

TERMS = 4000  # weighted chi-squares that are drawn one by one
SMALLEST = 1e-6  # residual trace at which the spectrum of a kernel is complete enough


@dataclass(frozen=True)
class Limit:
    """A statistic, the scale of ties, and its mean and variance over all permutations."""

    statistic: float
    scale: float
    mean: float
    variance: float


def gamma_limit(problem: Any, asked: Request) -> Outcome:
    """A gamma distribution of the moments over all permutations."""
    found = problem.limit(asked.basis)
    null = gamma_null((found.mean, found.variance), found.scale)
    return Outcome(max(found.statistic, 0.0), null)


def spectral_limit(problem: Any, asked: Request) -> Outcome:
    """Draws of weighted chi-squares."""
    found = problem.limit(asked.basis)
    weights = problem.spectrum(asked.basis)
    draws = weighted_chi_squares(weights, found.mean, asked.draws, asked.rng)
    return Outcome(max(found.statistic, 0.0), Draws("spectral", draws, found.scale))


# --- moments of a permuted statistic --------------------------------------------------------------


def permutation_moments(a: CentredMoments, b: CentredMoments) -> tuple[float, float]:
    """The mean and variance of Σᵢⱼ Aᵢⱼ B_π(i)π(j) over all permutations π, A and B centred.

    Kazi-Aoual, Hitier, Sabatier and Lebreton (1995, Computational Statistics and Data Analysis 20).
    """
    n = a.n
    mean = a.trace * b.trace / (n - 1)
    if n < 4:
        return mean, 0.0
    first = ((n - 1) * a.squares - a.trace**2) * ((n - 1) * b.squares - b.trace**2)
    second = math.prod(
        [n * (n + 1) * c.diagonal - (n - 1) * (c.trace**2 + 2 * c.squares) for c in (a, b)]
    )
    variance = 2 * first / ((n - 1) ** 2 * (n + 1) * (n - 2))
    variance += second / ((n + 1) * n * (n - 1) * (n - 2) * (n - 3))
    return float(mean), max(float(variance), 0.0)


@dataclass(frozen=True)
class CentredMoments:
    """Tr A, Tr A² and Σ Aᵢᵢ² of a centred Gram matrix of n points."""

    n: int
    trace: float
    squares: float
    diagonal: float

    @classmethod
    def of_sums(
        cls, n: int, squares: float, rows: np.ndarray, diagonal: np.ndarray, rounding: float = 0.0
    ) -> CentredMoments:
        """From Σ K², the rows' sums and the diagonal of a Gram matrix.

        `rounding` is what its elements may be off by.
        """
        total = rows.sum()
        centred = diagonal - 2 / n * rows + total / n**2
        if centred.sum() <= TIE * np.abs(diagonal).sum() + n * rounding:
            return cls(n, 0.0, 0.0, 0.0)  # what is left of a constant is rounding
        squares = float(squares - 2 / n * (rows @ rows) + total**2 / n**2)
        return cls(n, float(centred.sum()), squares, float(centred @ centred))

    @classmethod
    def of_labels(cls, n: int, m: int) -> CentredMoments:
        """Those of aaᵀ, a = 1/n on one sample and -1/m on the other: MMD is Σ K aaᵀ."""
        one = 1 / n + 1 / m
        return cls(n + m, one, one**2, 1 / n**3 + 1 / m**3)


def gamma_null(moments: tuple[float, float], scale: float) -> GammaNull:
    """The gamma distribution of these moments, those of a constant statistic being zero."""
    mean, variance = moments
    if variance <= (TIE * scale) ** 2:
        return GammaNull("gamma", mean, 0.0)
    return GammaNull("gamma", mean, variance)


# --- weighted chi-squares -------------------------------------------------------------------------


def eigenvalues(kernel: Kernel, points: Points, basis: Basis | None) -> np.ndarray:
    """Those of the centred covariance operator that count, the largest first."""
    n = count(points)
    if basis is None:
        kernel, basis = Centred.at_mean(kernel, points), PivotedCholesky(tol=SMALLEST)
    _, psi = fit_space_quietly(kernel, basis, points)
    psi = psi - psi.mean(axis=0)
    values = Spectrum.of(psi.T @ psi / n).values[::-1]
    return np.maximum(values, 0.0)


def weighted_chi_squares(
    weights: np.ndarray, mean: float, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Draws of Σ wᵢ zᵢ², scaled to a known mean; what is beyond the largest weights by its mean."""
    weights = np.sort(weights)[::-1]
    total = weights.sum()
    if total <= 0:
        return np.zeros(draws)
    top, rest = weights[:TERMS], weights[TERMS:].sum()
    values = np.array([top @ rng.chisquare(1.0, size=len(top)) for _ in range(draws)])
    return (values + rest) * (mean / total)
