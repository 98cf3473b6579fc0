"""The kernel test of conditional independence (KCI) with chosen kernels.

Features of (X, Z) and of Y are regressed on Z (Zhang, Peters, Janzing and Schölkopf 2011); the null
distribution accounts for what the regressions do to noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from meanmap import checks, plots
from meanmap.arrays import Points, count, take
from meanmap.comparison.column_effects import InWords
from meanmap.comparison.effects import EffectSize, residual_effect
from meanmap.comparison.fit_quality import (
    ConditionalTestResult,
    FitQuality,
    quality_notes,
    warn_if_missed,
)
from meanmap.comparison.methods import NullMethod, Request
from meanmap.comparison.nulls import ResidualSplit
from meanmap.comparison.quadratic import FORM_NULLS, Hadamard
from meanmap.comparison.residual_test import (
    DEPENDENT_GIVEN,
    constant_note,
    degenerate_result,
    determined_note,
)
from meanmap.comparison.residuals import (
    Conditioned,
    Conditioning,
    fit_regressors,
    resolve_on_some,
    varies,
)
from meanmap.comparison.results import TestResult
from meanmap.comparison.sources import Outcome
from meanmap.kernels import Gaussian, Kernel, TensorProduct
from meanmap.spaces import Space
from meanmap.statistics.centring import center_kernel

KCI = "Conditional independence test (KCI)"
WIDER = 2.0  # how much wider than the regression's a default kernel on Z is beside X
VISIBLE = 1e-3  # a residual trace that a reader should know of

# the residuals of both sides, the form that their product has under the null, the regressions
Residuals = tuple[np.ndarray, np.ndarray, Hadamard, tuple[Conditioned, Conditioned]]

NULLS = {**FORM_NULLS, "split": NullMethod(ResidualSplit, Hadamard.signs)}


class KernelRegressions:
    """The test of features of chosen kernels (KCI), step by step."""

    def __init__(
        self,
        kernels: tuple[Kernel, ...],
        points: tuple[Points, ...],
        bases: tuple[Any, ...],
        chosen: bool,
        asked: Request,
    ) -> None:
        (kx, ky, kz), (X, Y, Z) = kernels, points
        self.points, self.n, self.asked = points, count(X), asked
        self.conditioning = Conditioning.of(Z, kz, bases[2], chosen=chosen)
        kernels = resolve_on_some(kx, X), resolve_on_some(ky, Y), self.conditioning.kernel
        self.kernels = kernels
        self.space_y, self.rows_y = fit_regressors(kernels[1], Y, bases[1])
        self.guides = fit_regressors(kernels[0], X, bases[0])[1], self.rows_y
        # what is constant in X's kernel would be functions of Z alone
        beside = center_kernel(kernels[0], X) if bases[0] is None else kernels[0]
        self.pair = PointPair.of(beside, kernels[2], X, Z, widen=not chosen)
        self.space_x, self.rows_x = fit_regressors(self.pair.kernel, self.pair(X, Z), bases[0])

    @cached_property
    def _solved(self) -> tuple[Outcome, tuple[Conditioned, Conditioned]]:
        rows = self.conditioning, self.rows_x, self.rows_y, self.guides
        return ResidualTest(*rows, self.asked).solve()

    @property
    def explanation(self) -> ConditionalDependence:
        """Where X and Y go together given Z."""
        like = tuple(take(points, slice(0, 1)) for points in self.points)
        spaces = self.space_x, self.space_y
        return ConditionalDependence(self.kernels, like, self.pair, spaces, self._solved[1])

    def result(self) -> TestResult:
        """What the test found."""
        words = KCI, DEPENDENT_GIVEN
        for name, rows in zip("XY", self.guides, strict=True):
            if not varies(rows):
                note = constant_note(name)
                return degenerate_result(note, self.kernels, *words, {"n": self.n})
        found, sides = self._solved
        for name, side in zip("XY", sides, strict=True):
            if side.determined():
                note = determined_note(name)
                return degenerate_result(note, self.kernels, *words, {"n": self.n})
        quality = {name: FitQuality.of(side) for name, side in zip("XY", sides, strict=True)}
        pvalue = found.null.pvalue(found.statistic)
        warn_if_missed(quality, pvalue)
        notes = regression_notes(sides, (self.space_x, self.space_y))
        return ConditionalTestResult.of(
            found,
            KCI,
            kernel=self.kernels,
            hypothesis=words[1],
            sizes={"n": self.n},
            notes=(*quality_notes(quality), *notes),
            fit_quality=quality,
            explanation=self.explanation,
        )


def regression_notes(sides: tuple[Conditioned, ...], spaces: tuple[Space, ...]) -> tuple[str, ...]:
    """What a reader should know of the regressions."""
    x, y = (f"{side.ridge.regularization:.2g}" for side in sides)
    notes = [f"Regularisation {x} and {y}."]
    missing = max(space.residual_ * space.map_.projects for space in spaces)
    if missing > VISIBLE:
        notes.append(f"The coordinates miss up to {missing:.1%} of a kernel's trace.")
    return tuple(notes)


@dataclass(frozen=True, eq=False)
class PointPair:
    """X beside Z, to see dependence that changes with Z: a kernel on both, and their points."""

    kernel: Kernel
    together: bool  # as columns of one array

    @classmethod
    def of(cls, kx: Kernel, kz: Kernel, X: Points, Z: Points, widen: bool) -> PointPair:
        """The product of the two kernels; that of two Gaussians is one on all columns."""
        if kx.power != 2 or kz.power != 2:
            return cls(TensorProduct(kx, kz), False)
        kz = widen_kernel(kz, widen)
        a, b = (np.broadcast_to(k.bandwidth, p.shape[1]) for k, p in ((kx, X), (kz, Z)))
        return cls(Gaussian(tuple(float(s) for s in (*a, *b))), True)

    def __call__(self, X: Points, Z: Points) -> Points:
        return np.concatenate([X, Z], axis=1) if self.together else (X, Z)


@dataclass(frozen=True, eq=False)
class ResidualTest:
    """Two sets of rows whose residuals after a regression on Z should be uncorrelated."""

    conditioning: Conditioning
    rows_x: np.ndarray
    rows_y: np.ndarray
    guides: tuple[np.ndarray, np.ndarray]  # rows of X and of Y that metrics are learned from
    asked: Request

    def solve(self) -> tuple[Outcome, tuple[Conditioned, Conditioned]]:
        """The statistic with its null distribution, and the regressions of both sides."""
        R_x, R_y, form, sides = self._halves() if self.asked.null.halves else self._all_rows()
        n, find = len(R_x), self.asked.method.find
        found = find(form, self.asked.draws, self.asked.rng, 1 / n)
        return Outcome(float(np.sum((R_x.T @ R_y) ** 2)) / n, found), sides

    def _regressions(self, part: np.ndarray | None = None) -> tuple[Conditioned, Conditioned]:
        """Both sides regressed on Z, on some of the rows."""
        where = self.conditioning if part is None else self.conditioning.part(part)
        rows, given = slice(None) if part is None else part, self.asked.null.regularization
        x = where.regress(self.rows_x[rows], self.guides[0][rows], given)
        y = where.regress(self.rows_y[rows], self.guides[1][rows], given)
        return x, y

    def _all_rows(self) -> Residuals:
        """Regressions and test on all rows."""
        x, y = self._regressions()
        R_x, R_y = x.residuals(), y.residuals()
        if not self.asked.null.refit:
            return R_x, R_y, Hadamard(R_x, R_y), (x, y)
        # ‖Φ_xᵀ S_x S_y Φ_y‖² is linear in the noise of X's side
        return R_x, R_y, Hadamard(x.noise(), x.ridge.residuals(R_y)), (x, y)

    def _halves(self) -> Residuals:
        """Regressions on one half of the rows, the test on the other (Pogodin et al. 2024)."""
        order = self.asked.rng.permutation(len(self.rows_x))
        train, test = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
        x, y = self._regressions(train)
        at = take(self.conditioning.points, test)
        R_x, R_y = x.left(at, self.rows_x[test]), y.left(at, self.rows_y[test])
        noise, through = R_x, R_y
        if self.asked.null.refit:  # noise of the half regressed is in the residuals of the other
            back = -x.ridge.returned(x.place(at), R_y)
            noise, through = np.concatenate([x.noise(), R_x]), np.concatenate([back, R_y])
        return R_x, R_y, Hadamard(noise, through), (x, y)


@dataclass(frozen=True, eq=False, repr=False)
class ConditionalDependence(InWords):
    """⟨φ(x, z) - E[φ|z], C (φ(y) - E[φ|z])⟩, with C the covariance of the residuals.

    Positive where x and y go together, beyond what z explains, as they do in the sample.
    """

    kernels: tuple[Kernel, ...]
    like: tuple[Points, ...]  # what a point of X, Y and Z looks like
    pair: PointPair
    spaces: tuple[Space, Space]
    sides: tuple[Conditioned, Conditioned]

    @cached_property
    def _residuals(self) -> tuple[np.ndarray, np.ndarray]:
        x, y = self.sides
        return x.residuals(), y.residuals()

    def __call__(self, x: Any, y: Any, z: Any) -> Any:
        named = zip(self.kernels, (x, y, z), self.like, "xyz", strict=True)
        (x, single), (y, _), (z, _) = (k.rows(p, like, name) for k, p, like, name in named)
        checks.same_length([("x", x), ("y", y), ("z", z)])
        a = self.sides[0].left(z, self.spaces[0].coordinates(self.pair(x, z)))
        b = self.sides[1].left(z, self.spaces[1].coordinates(y))
        R_x, R_y = self._residuals
        value = np.einsum("ij,ij->i", a @ (R_x.T @ R_y / len(R_x)), b)
        return value[0] if single else value

    def effect(self) -> EffectSize:
        """How far X and Y go together beyond what Z explains."""
        return residual_effect(*self._residuals)

    def plot(self, ax: Any) -> Any:
        """The residuals along the two directions that covary most."""
        R_x, R_y = self._residuals
        left, _, right = np.linalg.svd(R_x.T @ R_y, full_matrices=False)
        names = "residual of X given Z", "residual of Y given Z"
        return plots.against(R_x @ left[:, 0], R_y @ right[0], names, ax)


def widen_kernel(kernel: Kernel, default: bool) -> Kernel:
    """A default Gaussian for what stands beside the regression's: wider, as `WIDER` says."""
    return kernel.rescaled(WIDER) if default and kernel.power == 2 else kernel
