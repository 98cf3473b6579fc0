"""What a conditioning variable leaves: residuals of coordinates after a regression on it.

A ridge regression with a free constant maps rows linearly to their residuals,
S = I - 11ᵀ/n - Q diag(g) Qᵀ with orthonormal Q. So S says exactly what a regression does to noise,
and a null distribution can account for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from meanmap.arrays import Points, count, one_blas_thread, solve_triangular, take
from meanmap.conditional.selection import RegressionSample, leave_one_out, search_size
from meanmap.kernels import Gaussian, Kernel
from meanmap.linalg import Spectrum
from meanmap.spaces import Basis, PivotedCholesky, Space
from meanmap.spaces.space import choose_basis, fit_space, fit_space_quietly
from meanmap.statistics import centring
from meanmap.statistics.columns import column_moments

TOLERANCE = 1e-6  # residual trace of the coordinates: far below what a test can tell
MAX_RANK = 1000  # of the coordinates, unless a basis is given
SKETCH = 64  # columns that stand for all of a target's when a regularisation is chosen
MEDIAN_OF = 250  # rows that a bandwidth is taken from
STEPS = 6  # of learning a metric
FEW = np.logspace(-7, 0, 8)  # regularisations, relative, that tell one width from another
NARROW = 0.6  # of the median distance: the bandwidth while a metric is learned
WIDTHS = (1.0, 0.6, 0.35, 0.2, 0.1, 0.05)  # multiples of the median distance that are tried
COARSE = PivotedCholesky(tol=1e-4, max_rank=200)  # coordinates that a metric is learned in
FLOOR = 1e-4  # of the squared gradient: what every direction of Z keeps
DETERMINED = 1e-18  # of the variance: what rounding leaves
LEAST = 0.05  # the least share of its own noise that a residual is taken to keep


def fit_regressors(
    kernel: Kernel, points: Points, basis: Basis | None, centred: bool = True
) -> tuple[Space, np.ndarray]:
    """A space fitted to points that are regressed on, and their coordinates.

    Centred ones are as good for a regression with a free constant; a part of a kernel that is large
    and constant would use up the tolerance of the coordinates.
    """
    if basis is not None or choose_basis(kernel, points).exact:
        space, rows = fit_space(kernel, basis, points)
        return space, np.asarray(rows, dtype=np.float64)
    kernel = centring.center_kernel(kernel, points) if centred else kernel
    return _coarse(kernel, points, PivotedCholesky(tol=TOLERANCE, max_rank=MAX_RANK))


def _coarse(kernel: Kernel, points: Points, basis: Basis) -> tuple[Space, np.ndarray]:
    space, rows = fit_space_quietly(kernel, basis, points)
    return space, np.asarray(rows, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Ridge:
    """A ridge regression on rows with a free constant, as a map of any targets' rows."""

    center: np.ndarray  # the mean of the rows
    basis: np.ndarray  # r × k: centred rows times this are the orthonormal columns Q
    directions: np.ndarray  # Q, n × k
    gains: np.ndarray  # g = s/(s + λ): how much of a target along q is explained
    regularization: float
    error: float  # leave-one-out error, where it chose the regularisation

    @classmethod
    def of(
        cls,
        rows: np.ndarray,
        targets: np.ndarray,
        given: float | str,
        spectrum: Spectrum | None,
        grid: np.ndarray | None = None,
    ) -> Ridge:
        """Fitted to rows and targets; `spectrum` is that of the rows' covariance, if it is known.

        A regularisation of "auto" has the least leave-one-out error of the targets, over a grid of
        shares of the rows' variance if one is given.
        """
        n = len(rows)
        center = rows.mean(axis=0)
        centred = rows - center
        spectrum = covariance_spectrum(rows) if spectrum is None else spectrum
        error = np.nan
        if isinstance(given, str):
            some = sketch_columns(targets - targets.mean(axis=0))
            norms, w = np.einsum("ij,ij->i", some, some), np.full(n, 1 / n)
            if grid is not None:
                grid = grid * float(spectrum.values.sum())
            sample = RegressionSample(centred, some, w, norms)
            loo = leave_one_out(spectrum, sample, centered=True, grid=grid)
            given, error = loo.best, loo.least
        values, kept = spectrum.values, spectrum.values > max(spectrum.cutoff, 0.0)
        basis = spectrum.vectors[:, kept] / np.sqrt(n * values[kept])
        gains = values[kept] / (values[kept] + given)
        return cls(center, basis, centred @ basis, gains, float(given), float(error))

    def residuals(self, targets: np.ndarray) -> np.ndarray:
        """S times the targets: what the regression on the rows leaves of them."""
        centred = targets - targets.mean(axis=0)
        return centred - self.directions @ (self.gains[:, None] * (self.directions.T @ centred))

    def slopes(self, targets: np.ndarray) -> np.ndarray:
        """The coefficients of the regression, r × s."""
        return self.basis @ (self.gains[:, None] * (self.directions.T @ targets))

    def predict(self, rows: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """The regression of targets, known where it was fitted, at other rows."""
        return targets.mean(axis=0) + (rows - self.center) @ self.slopes(targets)

    def returned(self, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        """The transpose of `predict`: how values at other rows weigh on the targets, n × s."""
        q = (rows - self.center) @ self.basis
        along = self.directions @ (self.gains[:, None] * (q.T @ values))
        return values.sum(axis=0) / len(self.directions) + along

    @property
    def kept(self) -> np.ndarray:
        """Sᵢᵢ: the share of its own noise in each residual, 1 minus its leverage."""
        n = len(self.directions)
        own = 1 - 1 / n - self.directions**2 @ self.gains
        return np.maximum(own, LEAST)[:, None]


def covariance_spectrum(rows: np.ndarray) -> Spectrum:
    """That of the covariance of rows."""
    centred = rows - rows.mean(axis=0)
    return Spectrum.of(centred.T @ centred / len(rows))


def sketch_columns(targets: np.ndarray) -> np.ndarray:
    """Fewer columns with the same inner products of rows, nearly: errors are compared by them."""
    if targets.shape[1] <= SKETCH:
        return targets
    mix = np.random.default_rng(0).normal(size=(targets.shape[1], SKETCH))
    return targets @ (mix / np.sqrt(SKETCH))


# --- the conditioning variable --------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Conditioned:
    """Targets regressed on the conditioning variable, points of which `place` turns into rows."""

    ridge: Ridge
    targets: np.ndarray
    guide: np.ndarray  # rows of the variable itself, which the metric was learned from
    where: np.ndarray  # the conditioning variable, as rows whose distances say what is near
    place: Callable[[Points], np.ndarray]

    def residuals(self) -> np.ndarray:
        """What is left of the targets themselves."""
        return self.ridge.residuals(self.targets)

    def noise(self) -> np.ndarray:
        """The targets' noise: residuals of their full size, those of leaving one out."""
        return self.residuals() / self.ridge.kept

    def determined(self) -> bool:
        """Whether the regression leaves nothing but rounding."""
        total = np.sum((self.targets - self.targets.mean(axis=0)) ** 2)
        return bool(np.sum(self.residuals() ** 2) <= DETERMINED * total)

    def left(self, points: Points, targets: np.ndarray) -> np.ndarray:
        """What the regression leaves of targets at other points."""
        return targets - self.ridge.predict(self.place(points), self.targets)


class Conditioning:
    """A variable to regress on, in coordinates.

    Where no kernel was given for rows of numbers, each side learns a metric and a width of its
    own: a regression is biased where its kernel looks in all directions alike, or is too wide for
    the waves it should follow, and two regressions biased alike are taken for dependence.
    """

    def __init__(self, points: Points, kernel: Kernel, basis: Basis | None, adaptive: bool) -> None:
        self.points = points
        self.kernel = kernel  # resolved
        self.basis = basis
        self.adaptive = adaptive

    @classmethod
    def of(cls, points: Points, kernel: Kernel, basis: Basis | None, chosen: bool) -> Conditioning:
        """With the kernel that a user chose, or with a default one, and then a learned metric."""
        numbers = not isinstance(points, tuple) and points.ndim == 2
        if numbers and not chosen and kernel.radial:
            return cls(points, unit_variance_gaussian(points), basis, True)
        return cls(points, resolve_on_some(kernel, points), basis, False)

    def part(self, rows: np.ndarray) -> Conditioning:
        """The same variable on some of the rows."""
        return Conditioning(take(self.points, rows), self.kernel, self.basis, self.adaptive)

    @cached_property
    def _plain(self) -> tuple[Space, np.ndarray, Spectrum]:
        space, rows = fit_regressors(self.kernel, self.points, self.basis)
        return space, rows, covariance_spectrum(rows)

    def regress(self, targets: np.ndarray, guide: np.ndarray, given: float | str) -> Conditioned:
        """Regress targets on the variable; the metric is learned from `guide`, rows as well."""
        with one_blas_thread(len(targets) < 2000):
            if not self.adaptive:
                space, rows, spectrum = self._plain
                ridge = Ridge.of(rows, targets, given, spectrum)
                return Conditioned(ridge, targets, guide, self._near(rows), space.coordinates)
            middle = column_moments(self.points)[0]  # far from it units would cost digits
            centred = self.points - middle
            metric = learned_metric(centred, guide)
            points = centred @ metric
            space, rows = fit_regressors(learned_width(points, guide), points, self.basis)
            ridge = Ridge.of(rows, targets, given, None)
            near = self._near(rows)  # not in the metric, which was learned from the same rows
            return Conditioned(
                ridge, targets, guide, near, lambda z: space.coordinates((z - middle) @ metric)
            )

    def _near(self, rows: np.ndarray) -> np.ndarray:
        """Rows whose distances say what is near: numbers in units of their spread, or features."""
        numbers = not isinstance(self.points, tuple) and self.points.ndim == 2
        if not numbers or self.points.dtype.kind != "f":
            return rows
        spread = self.points.std(axis=0)
        centred = self.points - column_moments(self.points)[0]
        return centred / np.where(spread > 0, spread, 1.0)


def learned_width(Z: np.ndarray, targets: np.ndarray) -> Kernel:
    """The Gaussian whose regression of the targets on Z has the least leave-one-out error."""
    Z, targets = search_rows(Z, targets)
    median = at_median(Z).bandwidth
    best, least, worse = Gaussian(median), np.inf, 0
    for kernel in (Gaussian(median * width) for width in WIDTHS):
        error = Ridge.of(_coarse(kernel, Z, COARSE)[1], targets, "auto", None, FEW).error
        if error < least:
            best, least, worse = kernel, error, 0
        else:
            worse += 1
        if worse == 2:
            break
    return best


def search_rows(Z: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns enough to choose a metric by."""
    some = np.linspace(0, len(Z) - 1, search_size(len(Z))).astype(int)
    return Z[some], sketch_columns(targets[some])


def learned_metric(Z: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """A linear map of Z after which a Gaussian kernel regresses the targets best, d × d.

    The root of the mean of ∇f(z) ∇f(z)ᵀ over the sample, f the regression in the metric before: the
    directions that the targets depend on are stretched, the others shrunk, and so on for a few
    steps (Fukumizu and Leng 2014; Radhakrishnan et al. 2024). The start gives every column the
    variance one; the step of the least leave-one-out error is kept.
    """
    Z, targets = search_rows(Z, targets)
    spread = column_moments(Z)[1]
    units = np.where(spread > 0, 1 / np.where(spread > 0, spread, 1.0), 0.0)
    metric = np.eye(Z.shape[1])
    if Z.shape[1] == 1:
        return units * metric  # one direction has no other to be weighed against
    Z = Z * units
    best, least = metric, np.inf
    for step in range(STEPS + 1):
        error, gradient = _metric_step(Z @ metric, targets, step < STEPS)
        if error < least:
            best, least = metric, error
        outer = metric @ gradient @ metric.T  # the gradient is that of f(z metric)
        total = float(np.trace(outer))
        if step == STEPS or not total > 0:
            break
        spectrum = Spectrum.of(outer / total)
        lengths = np.sqrt(np.maximum(spectrum.values, 0.0) + FLOOR)
        metric = (spectrum.vectors * lengths) @ spectrum.vectors.T
    return units[:, None] * best


def _metric_step(Z: np.ndarray, targets: np.ndarray, more: bool) -> tuple[float, np.ndarray]:
    """The leave-one-out error of the regression on Z, and Σ ∇f ∇fᵀ over the sample."""
    kernel = at_median(Z, NARROW)
    space, rows = _coarse(kernel, Z, COARSE)
    ridge = Ridge.of(rows, targets, "auto", None)
    d = Z.shape[1]
    if not more:
        return ridge.error, np.zeros((d, d))
    assert space.map_.landmarks is not None
    P, L = space.map_.landmarks
    # f(z) = Σ k(z, p) a_p over pivots p, and ∇k(z, p) = -k(z, p) (z - p)/σ²
    a = solve_triangular(L, ridge.slopes(targets), transpose=True)
    K = kernel.gram_matrix(Z, P)
    values = K @ a
    slopes = np.stack([Z[:, [j]] * values - K @ (P[:, [j]] * a) for j in range(d)])
    flat = slopes.reshape(d, -1)
    return ridge.error, flat @ flat.T


def unit_variance_gaussian(points: np.ndarray) -> Gaussian:
    """A Gaussian for rows of several numbers that are not of one unit.

    At the median distance after every column got the variance one.
    """
    middle, spread = column_moments(points)
    spread = np.where(spread > 0, spread, 1.0)
    bandwidth = at_median((points - middle) / spread).get_params()["bandwidth"]
    return Gaussian(tuple(float(s) * float(bandwidth) for s in spread))


def resolve_on_some(kernel: Kernel, points: Points) -> Kernel:
    """The kernel resolved, on vectors among evenly spaced rows: a test needs no better median."""
    n = count(points)
    if kernel.on_vectors and n > MEDIAN_OF:
        points = take(points, np.linspace(0, n - 1, MEDIAN_OF).astype(int))
    return kernel.resolve(points)


def at_median(points: np.ndarray, factor: float = 1.0) -> Gaussian:
    """A Gaussian at a multiple of the median distance."""
    return cast(Gaussian, resolve_on_some(Gaussian(f"{factor}*median"), points))


def varies(rows: np.ndarray) -> bool:
    """Whether the points are not all one, as far as their kernel can tell."""
    centred = rows - rows.mean(axis=0)
    return bool(np.sum(centred**2) > 1e-20 * max(float(np.sum(rows**2)), 1e-300))
