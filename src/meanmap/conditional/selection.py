"""Choosing regularisation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from meanmap import plots
from meanmap.arrays import (
    TILE,
    Array,
    asarray,
    epsilon,
    in_precision,
    namespace,
    spans,
    take,
    to_double,
    to_numpy,
)
from meanmap.exceptions import SettingWarning, warn
from meanmap.kernels import Kernel
from meanmap.kernels.defaults import reference_kernel
from meanmap.linalg import Inverse, Spectrum, covariance, evaluate, ridge_inverse, with_constant
from meanmap.rules import BayesMethod, PriorOnSample, answer_weights
from meanmap.spaces.space import fit_space

GRID = np.logspace(-8, 1, 28)  # times the mean of k(x, x)
NESTED = 512  # up to this rank all coordinates take part in choosing a regularisation
ROUNDED = 1e-25  # an error of targets that do not vary
FALLING = 1e-2  # of an error: what it falls by from one λ to the next if it has not settled
DISTINCT = 0.1  # share of different rows below which equal rows are not taken for copies
DIFFERENT = 0.05  # equal rows with different targets, for one pair of copies, that are too many
BUDGET = 5e10  # floating-point operations that the grid may cost before rows are sampled


@dataclass(frozen=True)
class LeaveOneOut:
    """Errors over a grid of regularisations, of leaving one out or of another validation."""

    grid: np.ndarray
    errors: np.ndarray

    @property
    def best(self) -> float:
        """The regularisation of the least error."""
        return float(self.grid[int(np.argmin(self.errors))])

    @property
    def least(self) -> float:
        """The least error itself."""
        return float(np.min(self.errors))

    @property
    def edge(self) -> str:
        """ "smallest" or "largest" if the least error is there and errors still fall, else ""."""
        best, e = int(np.argmin(self.errors)), self.errors
        if len(e) < 2 or best not in (0, len(e) - 1) or e.max() < ROUNDED:
            return ""
        inner = e[1] if best == 0 else e[-2]
        falling = inner - e[best] > FALLING * abs(e[best])
        return ("smallest" if best == 0 else "largest") if falling else ""

    def warn_at_edge(self) -> None:
        """Say that the regularisation of least error is the first or the last that was tried."""
        if not self.edge:
            return
        remedy = (
            "Y may be a function of X without noise, the kernel on X may be too wide, or rows may "
            "be nearly repeated"
            if self.edge == "smallest"
            else "X may tell nothing of Y"
        )
        warn(
            f"leave-one-out chose the {self.edge} regularisation that it tried, {self.best:.3g}, "
            f"where errors still fall: {remedy}. Pass regularization= to choose another.",
            SettingWarning,
        )

    def plot(self, ax: Any = None) -> Any:
        """Draw the errors over the grid, with the regularisation that was chosen."""
        return plots.validation_curve(self.grid, self.errors, self.best, ax)


FACTORS = (0.15, 0.3, 0.5, 0.75, 1.0, 1.5, 2.5)  # multiples of the median that "loo" tries


def search_size(n: int) -> int:
    """How many of n rows a search over bandwidths looks at."""
    return min(n, max(200, min(1000, n // 2)))


def bandwidth_candidates(kernel: Kernel) -> list[Kernel]:
    """The kernel with `bandwidth="loo"` replaced by multiples of the median."""
    open_names = [
        name
        for name, value in kernel.get_params().items()
        if name.split("__")[-1] == "bandwidth" and isinstance(value, str) and value == "loo"
    ]
    if not open_names:
        return [kernel]
    return [
        clone(kernel).set_params(**{name: f"{factor}*median" for name in open_names})
        for factor in FACTORS
    ]


class RegressionSample(NamedTuple):
    """Rows to regress on, their targets, both in coordinates, weights, and k(yᵢ, yᵢ).

    In single precision the rows are all that is: sums over them and what is solved for are double.
    """

    rows: Array  # (n, r)
    targets: Array  # (n, s)
    weights: Array
    norms: Array

    def take(self, index: Any) -> RegressionSample:
        """Some of the pairs."""
        return RegressionSample(*(take(part, index) for part in self))

    def centre_targets(self, mean: Array) -> RegressionSample:
        """The same with targets less their mean, and the squared norms of what is left."""
        norms = self.norms - 2 * (self.targets @ mean) + mean @ mean
        return self._replace(targets=self.targets - mean, norms=norms)


def leave_one_out(
    spectrum: Spectrum,
    sample: RegressionSample,
    centered: bool | None = False,
    grid: np.ndarray | None = None,
    cross: Array | None = None,
    mu: Array | None = None,
) -> LeaveOneOut:
    """Σ wᵢ ‖φ(yᵢ) - μ̂₋ᵢ(xᵢ)‖² for every λ of a grid, from one eigendecomposition.

    The conditional embedding is a ridge regression of φ(y) on ψ(x) (Song et al. 2013, section 3.2),
    so that leaving i out divides its residual by 1 - hᵢ, hᵢ = wᵢ ψᵢᵀ (C + λI)⁻¹ ψᵢ (the others keep
    their weights). The loss is measured in the target's own space, which is the same for all λ.

    With `centered` true both sides of the sample are centred; if it is None targets alone are, and
    `mu` is the mean of the rows. Rows that are equal on both sides are one row with their weights
    added, else the copies of a row that is left out would answer for it. Where the grid would cost
    too much, evenly spaced rows stand for all; where `cross`, C_YX, is given they do already.
    """
    xp = namespace(sample.rows)
    r, s = sample.rows.shape[1], sample.targets.shape[1]
    if grid is None:
        scale = float(xp.sum(spectrum.values)) or 1.0
        grid = scale * np.maximum(GRID, epsilon(spectrum.values))
    if cross is None:
        cross = to_double(sample.targets.T @ (sample.weights[:, None] * sample.rows))
    A = spectrum.vectors.T @ cross.T  # Vᵀ C_XY
    mass = None if mu is None else spectrum.vectors.T @ to_double(mu)
    sample = merge_equal_rows(sample)
    number = max(500, int(BUDGET / (2.0 * max(r * s, 1) * len(grid))))
    if number < len(sample.rows):
        sample = sample.take(np.linspace(0, len(sample.rows) - 1, number).astype(int))
    sample = RegressionSample(*map(to_double, sample))
    targets, w = sample.targets, sample.weights
    Z = sample.rows @ spectrum.vectors
    squares = Z * Z
    outside = sample.norms - xp.sum(targets * targets, axis=1)  # what the coordinates of Y miss
    outside = xp.where(outside > 0, outside, xp.zeros_like(outside))
    values = xp.where(spectrum.values > spectrum.cutoff, spectrum.values, 0 * spectrum.values)
    share = (w / (1 - xp.where(w < 1, w, 0 * w)))[:, None]
    errors = []
    # many values of λ at once where the sample is small: what is summed then costs least
    for some in spans(len(grid), max(1, TILE // max(max(targets.shape[0], r) * s, 1))):
        f = values + asarray(grid[some], values)[:, None]
        f = xp.where(f > 0, 1 / xp.where(f > 0, f, xp.ones_like(f)), xp.zeros_like(f))
        residual = targets - Z @ (f[:, :, None] * A)
        if mass is not None:  # the mean that is restored loses row i too
            missing = 1 - (f * mass) @ Z.T
            residual = residual + share * missing[:, :, None] * targets
        left = 1 - w * (f @ squares.T + (1.0 if centered else 0.0))
        left = xp.where(left > 1e-14, left, asarray(1e-14, left))
        squared = xp.sum(residual * residual, axis=2) / (left * left) + outside
        errors.append(to_numpy(squared @ w) / float(xp.sum(w)))
    return LeaveOneOut(np.asarray(grid, dtype=float), np.concatenate(errors).astype(float))


def merge_equal_rows(sample: RegressionSample) -> RegressionSample:
    """The pairs with copies merged: once each, with the sum of their weights."""
    x, y = (to_numpy(part).astype(np.float64) for part in sample[:2])
    group = copy_groups(x, y, epsilon(sample.rows))
    if group is None:
        return sample
    total = np.bincount(group, to_numpy(sample.weights).astype(np.float64))
    first = np.unique(group, return_index=True)[1]
    back = np.argsort(first)  # in the order of the rows
    return sample.take(first[back])._replace(weights=asarray(total[back], sample.weights))


def copy_groups(x: np.ndarray, y: np.ndarray, rounding: float) -> np.ndarray | None:
    """A number for each pair (x, y) that its copies share; None if there are no copies.

    Equal pairs are copies where equal rows nearly always have equal targets, as after drawing with
    replacement, or equal targets nearly always belong to equal rows. Otherwise, or where pairs take
    few values, they are draws of their own, as among labels and rounded numbers.
    """
    n, precision = len(x), 1e-10 if rounding < 1e-12 else 1e-5
    order, same_x = _equal_neighbours(x, np.zeros(n), precision)
    if not same_x.any():
        return None
    group = np.empty(n)
    group[order] = np.concatenate([[0], np.cumsum(~same_x)])
    order, same = _equal_neighbours(y, group, precision)
    if not same.any() or same.sum() > (1 - DISTINCT) * n:
        return None
    copied = (
        same_x.sum() <= (1 - DISTINCT) * n and same_x.sum() - same.sum() <= DIFFERENT * same.sum()
    )
    if not copied:
        ties = _equal_neighbours(y, np.zeros(n), precision)[1].sum()
        if ties - same.sum() > DIFFERENT * same.sum():
            return None
    found = np.empty(n, dtype=int)
    found[order] = np.concatenate([[0], np.cumsum(~same)])
    return found


def _equal_neighbours(
    points: np.ndarray, group: np.ndarray, precision: float
) -> tuple[np.ndarray, np.ndarray]:
    """An order in which equal points of a group are neighbours, and which neighbours are equal."""
    d = points.shape[1]
    keys = points @ np.random.default_rng(0).normal(size=d)
    order = np.lexsort((keys, group))
    tolerance = precision * float(abs(points).max(initial=0.0))
    same = (np.diff(group[order]) == 0) & (np.diff(keys[order]) <= 10 * d * tolerance)
    near = np.flatnonzero(same)
    gaps = abs(points[order[near]] - points[order[near + 1]]).max(axis=1, initial=0.0)
    same[near] = gaps <= tolerance
    return order, same


class Solved(NamedTuple):
    """A regularised inverse, with what was chosen for it."""

    solver: Inverse  # (C_XX + λI)⁻¹
    regularization: float  # λ
    errors: LeaveOneOut | None  # behind an automatic λ
    weights: Array  # of the sample

    @property
    def inverse(self) -> Array:
        """`(C_XX + λI)⁻¹` as a matrix, in the sample's precision."""
        return in_precision(self.solver.matrix, self.weights)


def regularized_inverse(
    sample: RegressionSample,
    given: float | str | np.ndarray,
    centered: bool | None,
    nested: bool,
    search: bool = False,
) -> Solved:
    """`(C_XX + λI)⁻¹`, λ, and the leave-one-out errors where something is chosen by them.

    `given` is λ, a grid to choose it from, or "auto" for the usual grid.

    `centered` true centres both sides and gives the inverse with a constant; None centres targets.
    `search` asks for the error of a given λ too, to compare kernels by it; `nested` says that the
    first coordinates by themselves are a coarser space, as those of pivots are.
    """
    w = sample.weights
    mu = w @ sample.rows
    if centered is not False:
        sample = sample.centre_targets(w @ sample.targets)
    if centered:
        sample = sample._replace(rows=sample.rows - mu)
    C = partial(covariance, sample.rows, w)
    diagonal = namespace(w).einsum("i,ij,ij->j", w, sample.rows, sample.rows)
    diagonal, mu = to_double(diagonal), to_double(mu)
    return _solve(C, diagonal, None, mu, sample, given, centered, nested, search)


def inverse_from_moments(
    C: Array,
    cross: Array,
    means: tuple[Array, Array],
    sample: RegressionSample,
    given: float | str,
    centered: bool | None,
    nested: bool,
) -> Solved:
    """As `regularized_inverse`, from `C_XX`, `C_YX` and both means, and a sample of the rows."""
    mu, nu = map(to_double, means)
    if centered is not False:
        cross = cross - nu[:, None] * mu[None, :]
        sample = sample.centre_targets(means[1])
    if centered:
        C = C - mu[:, None] * mu[None, :]
        sample = sample._replace(rows=sample.rows - in_precision(mu, sample.rows))
    diagonal = namespace(C).linalg.diagonal(C)
    return _solve(C, diagonal, cross, mu, sample, given, centered, nested, False)


def _solve(
    C: Array | partial[Array],
    diagonal: Array,
    cross: Array | None,
    mu: Array,
    sample: RegressionSample,
    given: float | str | np.ndarray,
    centered: bool | None,
    nested: bool,
    search: bool,
) -> Solved:
    loo = spectrum = None
    if search or isinstance(given, str | np.ndarray):
        C = evaluate(C)
        r = leading(diagonal) if nested else len(diagonal)
        spectrum = Spectrum.of(C[:r, :r])
        grid = None if isinstance(given, str) else np.atleast_1d(given)
        known = None if cross is None else cross[:, :r]
        mean = mu[:r] if centered is None else None
        part = sample._replace(rows=sample.rows[:, :r])
        loo = leave_one_out(spectrum, part, centered, grid, known, mean)
        given = loo.best
        spectrum = spectrum if r == len(diagonal) else None
    rounding = epsilon(sample.rows)
    H: Inverse | None = ridge_inverse(C, given, diagonal, rounding) if spectrum is None else None
    if H is None:
        spectrum = Spectrum.of(evaluate(C)) if spectrum is None else spectrum
        given = spectrum.sufficient(given)
        H = Inverse(spectrum.inverse(given, rounding=rounding))
    if centered:
        H = Inverse(with_constant(H.matrix, mu))
    return Solved(H, float(given), loo, sample.weights)


def leading(diagonal: Array) -> int:
    """How many of many nested coordinates hold all but 1e-7 of the trace.

    Pivots come with the largest part first. A regularisation is chosen as well with these, and the
    eigenvalues of a third of the rank take a twentieth of the time.
    """
    energy = to_numpy(diagonal)
    if len(energy) <= NESTED:
        return len(energy)
    left = 1 - np.cumsum(energy) / energy.sum()
    return max(NESTED, int(np.searchsorted(-left, -1e-7)) + 1)


# --- schedules: what the papers' theorems ask for as n grows --------------------------------------


def effective_size(w: Array) -> float:
    """1/Σw², the number of equal weights that are as informative."""
    return 1.0 / float(namespace(w).sum(w * w))


# (the conditional's λ or ε, the posterior's δ), for a prior known to n^(-1/2), α = 1/2
SCHEDULES: dict[str, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "song2009": (lambda n: n**-0.5, lambda n: n**-0.5),  # 001, Theorem 6
    "fukumizu2013": (lambda n: n ** (-1 / 3), lambda n: n ** (-4 / 27)),  # 002, Theorem 6
    "fukumizu2013-average": (lambda n: n ** (-1 / 3), lambda n: n ** (-1 / 6)),  # 002, Theorem 7
}
POSTERIOR_SCHEDULES = [name for name in SCHEDULES if name != "song2009"]


# --- marginal consistency -------------------------------------------------------------------------


def marginal_consistency(
    x: Any, y: Any, w: Array, regularization: float, rule: BayesMethod, folds: int = 5
) -> LeaveOneOut:
    """The δ of Bayes' rule under which posteriors average to the marginal of X.

    With the marginal of X as the prior, the posterior averaged over Y is that marginal again.
    Cross-validation over folds (Fukumizu, Song and Gretton 2013, section 4.2), the discrepancy
    measured in one reference kernel, the default one: in the candidates' own spaces the largest
    bandwidth would always win.
    """
    reference = reference_kernel(x.space.kernel_, x.points).resolve(x.points, w)
    points = reference.check(x.points, "X")
    _, psi = fit_space(reference, None, points, w)
    scale = float(namespace(w).sum(w[:, None] * y.coordinates * y.coordinates))
    grid = scale**2 * GRID**2 if rule.squared else scale * GRID
    errors = np.zeros(len(grid))
    fold_of = np.arange(len(w)) % folds
    for fold in range(folds):
        held = fold_of == fold
        if not held.any() or held.all():
            continue
        X, Y, P, v = (take(part, ~held) for part in (x.coordinates, y.coordinates, psi, w))
        v = v / namespace(v).sum(v)
        u = v * rule.density_ratio(PriorOnSample(v @ X, X, v, regularization))
        v_held = take(w, held)
        v_held = v_held / namespace(w).sum(v_held)
        average = v_held @ take(y.coordinates, held)
        truth = v_held @ take(psi, held)
        inverted = u if rule.adaptive else v
        W = Spectrum.of(Y.T @ (inverted[:, None] * Y))
        for i, delta in enumerate(grid):
            weights = answer_weights(u, Y, rule.inverse(W, float(delta)), average)
            if not rule.adaptive:
                weights = weights / namespace(weights).sum(weights)
            gap = weights @ P - truth
            errors[i] += float(gap @ gap)
    return LeaveOneOut(np.asarray(grid), errors / folds)
