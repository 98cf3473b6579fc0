"""How well regressions on a conditioning variable did, and what more there was to learn.

Points that are near in Z share what Z explains, whatever the shape of it: half the mean squared
difference of near neighbours estimates the noise (Devroye, Schäfer, Györfi and Walk 2003). Where a
regression leaves clearly more than that on both sides, its leftovers look like dependence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.spatial import cKDTree

from meanmap.comparison.residuals import Ridge
from meanmap.comparison.results import TestResult
from meanmap.exceptions import DataWarning, warn

QUERIES = 2000  # points whose neighbours are looked up, at most
TINY = 1e-9  # of the spread of a column
FAR = 0.5  # times the usual distance of two rows: neighbours beyond share too little
MISSED = 3.0  # standard errors of what both regressions left, above which they missed something


class Regressed(Protocol):
    """A variable that was regressed on another."""

    @property
    def ridge(self) -> Ridge:
        """The regression."""

    @property
    def guide(self) -> np.ndarray:
        """Rows of the variable."""

    @property
    def where(self) -> np.ndarray:
        """The other variable, as rows whose distances say what is near."""


@dataclass(frozen=True)
class FitQuality:
    """How well a variable was regressed on Z, in the space of its kernel.

    Attributes
    ----------
    r2 : float
        The share of its variance that the regression explains, leaving one row out.
    reachable : float
        The share that differences of nearest neighbours in Z leave to be explained: a lower bound,
        too low where neighbours are far, as with many columns.
    missed : float
        What the regression left above the neighbours' noise, in standard errors.
    distance : float
        Of nearest neighbours in Z, relative to that of any two rows (root mean squares).

    Examples
    --------
    >>> from meanmap.comparison import FitQuality
    >>> FitQuality(r2=0.45, reachable=0.84, missed=6.0).reachable
    0.84
    """

    r2: float
    reachable: float
    missed: float
    distance: float = 0.0

    @classmethod
    def of(cls, side: Regressed) -> FitQuality:
        """That of one side of a conditional test."""
        rows = side.guide
        n = len(rows)
        variance = float(np.mean(np.sum((rows - rows.mean(axis=0)) ** 2, axis=1)))
        left = np.sum((side.ridge.residuals(rows) / side.ridge.kept) ** 2, axis=1)
        some = np.linspace(0, n - 1, min(n, QUERIES)).astype(int)
        # equal rows, as labels are, have any of their equals for a neighbour
        apart = TINY * np.random.default_rng(0).random((n, 1))
        where = np.hstack([side.where, apart])
        found = cKDTree(where).query(where[some], k=2)[1]
        nearest = np.where(found[:, 0] == some, found[:, 1], found[:, 0])  # not itself
        apart = np.mean(np.sum((side.where[some] - side.where[nearest]) ** 2, axis=1))
        usual = 2 * np.sum(side.where.var(axis=0))
        noise = np.sum((rows[some] - rows[nearest]) ** 2, axis=1) / 2
        gap = left[some] - noise
        error = max(float(gap.std()) / len(gap) ** 0.5, 1e-300)
        return cls(
            r2=1 - float(left.mean()) / variance,
            reachable=1 - float(noise.mean()) / variance,
            missed=float(gap.mean()) / error,
            distance=float(np.sqrt(apart / usual)) if usual > 0 else 0.0,
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ConditionalTestResult(TestResult):
    """What a test of conditional independence found, and how far it can be trusted.

    Attributes
    ----------
    fit_quality : dict of str to FitQuality
        How well X and Y were regressed on Z: `result.fit_quality["X"].r2`.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import conditional_independence_test
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(200, 1))
    >>> X, Y = (Z + 0.5 * rng.normal(size=(200, 1)) for _ in range(2))
    >>> result = conditional_independence_test(X, Y, Z, rng=0)
    >>> result.learned, bool(result.fit_quality["X"].r2 > 0.5)
    (True, True)
    """

    fit_quality: dict[str, FitQuality]

    @property
    def learned(self) -> bool:
        """Whether the regressions explain about as much as near neighbours say is there."""
        return has_learned(self.fit_quality)

    @property
    def checked(self) -> bool:
        """Whether near neighbours in Z are near enough to check the regressions."""
        return max(each.distance for each in self.fit_quality.values()) <= FAR

    def _verdict(self) -> str:
        if self.pvalue > 0.05 or (self.learned and self.checked):
            return super()._verdict()
        if self.learned:
            return (
                f"evidence that {self.hypothesis}, if the regressions on Z learned all that X and "
                "Y owe to it"
            )
        return (
            f"no evidence that {self.hypothesis}, since the regressions on Z did not learn all "
            "that X and Y owe to it"
        )


def has_learned(quality: dict[str, FitQuality]) -> bool:
    """Whether no two regressions left clearly more than noise.

    Both must, as leftovers of one variable alone go with nothing.
    """
    missed = [each.missed for each in quality.values()]
    return min(missed) <= 0 or sum(missed) / len(missed) ** 0.5 <= MISSED


MISSED_NOTE = (
    "Near neighbours in Z share more than the regressions found, in X and in Y: what they left "
    "looks like dependence. A small p-value may say no more than that; use more rows, or a "
    "kernel of Z that follows finer steps."
)


FAR_NOTE = (
    "Rows that are nearest in Z are far apart: they cannot say whether the regressions learned all "
    "that there is."
)


def quality_notes(quality: dict[str, FitQuality]) -> list[str]:
    """What a reader should know of the regressions."""
    notes = [
        f"Z explains {each.r2:.0%} of {name} (near neighbours: {each.reachable:.0%})."
        for name, each in quality.items()
    ]
    if max(each.distance for each in quality.values()) > FAR:
        notes.append(FAR_NOTE)
    return notes if has_learned(quality) else [*notes, MISSED_NOTE]


def warn_if_missed(quality: dict[str, FitQuality], pvalue: float) -> None:
    """A warning where a rejection rests on what regressions missed."""
    if pvalue <= 0.05 and not has_learned(quality):
        warn(f"conditional_independence_test: {MISSED_NOTE}", DataWarning)
