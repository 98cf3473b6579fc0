"""What a sequential test says after each batch."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from typing import Any

import numpy as np

from meanmap import plots
from meanmap.arrays import Points
from meanmap.kernels import Kernel
from meanmap.monitoring.views import FeatureView
from meanmap.monitoring.wealth import Wealth

LARGEST_LOG = 690.0  # exp of more overflows


@dataclass(frozen=True, eq=False)
class Gate:
    """Reads points of one stream."""

    kernel: Kernel
    example: Points

    def check(self, points: Any, name: str) -> Points:
        """Points like those of the stream, or an error."""
        return self.kernel.check(points, name, self.example, "the stream")


@dataclass(frozen=True, eq=False, repr=False)
class Witness:
    """The function that evidence was found with: the mean of all bettors', by their wealth.

    For two samples it estimates log p_X(x)/p_Y(x) up to a constant, so that it is larger where X
    has more mass; for pairs log p(x, y) up to functions of x and of y, larger where they go
    together.
    """

    gates: tuple[Gate, ...]
    views: tuple[tuple[FeatureView, ...], ...]  # of each variable
    wealth: Wealth

    def __call__(self, *points: Any) -> np.ndarray:
        """The witness at points, of each variable as many."""
        if len(points) != len(self.gates):
            raise TypeError(f"expected {len(self.gates)} arrays of points, got {len(points)}.")
        names = "XY" if len(points) > 1 else ["points"]
        read = [gate.check(p, n) for gate, p, n in zip(self.gates, points, names, strict=True)]
        sides = [
            [view.coordinates(p) for view in own] for own, p in zip(self.views, read, strict=True)
        ]
        shown = sides[0] if len(sides) == 1 else list(zip(*sides, strict=True))
        pairs = zip(self.wealth.shares, self.wealth.bettors, strict=True)
        return np.sum([share * bettor.evaluate(shown[i]) for share, (i, bettor) in pairs], axis=0)


@dataclass(frozen=True, eq=False, repr=False)
class SequentialResult:
    """The evidence so far: right at any time, however often one looks.

    Attributes
    ----------
    name : str
        Of the test.
    log_evalue : float
        The logarithm of `evalue`, which is the wealth of someone who started with 1 and bet against
        the null hypothesis. `evalue` itself stops at 1e299.
    pvalue : float
        1 over the largest e-value so far. P(ever ≤ α) ≤ α under the null hypothesis.
    alpha : float
    rejects : bool
        Whether `pvalue` is at most alpha. Once it is, it stays so.
    sizes : dict
        Rows that were bet on, and rows that wait for others.
    times, log_evalues : arrays
        The path of the evidence, at up to 1,024 places: numbers of rows, and logs of e-values.
    witness : function of points, or None
        What the evidence was found with, once there have been bets; see `Witness`.
    share : float
        The part of alpha that the bets have: 1, or less if the test has a horizon.

    Examples
    --------
    See `SequentialTwoSampleTest`.
    """

    name: str
    log_evalue: float
    pvalue: float
    alpha: float
    sizes: dict[str, int]
    times: np.ndarray
    log_evalues: np.ndarray
    witness: Witness | None = None
    share: float = 1.0

    @property
    def evalue(self) -> float:
        """The evidence against the null hypothesis now; its mean is at most 1 if it is true."""
        return exp(min(self.log_evalue, LARGEST_LOG))

    @property
    def rejects(self) -> bool:
        """Whether the null hypothesis is rejected at level alpha, now or at an earlier time."""
        return self.pvalue <= self.alpha

    def to_dict(self) -> dict[str, Any]:
        """The figures under plain names, for JSON."""
        return {
            "test": self.name,
            "evalue": self.evalue,
            "log_evalue": self.log_evalue,
            "pvalue": self.pvalue,
            "rejects": self.rejects,
            "alpha": self.alpha,
            **self.sizes,
        }

    def plot(self, ax: Any = None) -> Any:
        """The evidence over time, and the line that rejects: 1/alpha if the bets have all of it."""
        least = 1 / (self.alpha * self.share)
        line = log(least) / log(10), f"{'1/α' if self.share == 1 else 'limit'} = {least:g}"
        return plots.evidence_path(self.times, self.log_evalues / log(10), line, ax)

    def __repr__(self) -> str:
        verdict = "rejects" if self.rejects else "does not reject"
        sizes = ", ".join(f"{name}={value:,}" for name, value in self.sizes.items())
        return (
            f"{self.name}: {verdict} at the {self.alpha:g} level, anytime-valid p = "
            f"{self.pvalue:.3g}, e-value {self.evalue:.3g} ({sizes})"
        )
