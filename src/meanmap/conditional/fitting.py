"""P(Y|X) from pairs: they are read, and given spaces, λ and an operator.

Searches and models that hold checked points fit here; `ConditionalEmbedding.fit` reads its input
and does the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from meanmap import checks
from meanmap.arrays import (
    Array,
    Points,
    asarray,
    count,
    float_like,
    in_one_precision,
    in_precision,
    namespace,
    one_blas_thread,
    take,
    to_double,
    to_numpy,
)
from meanmap.conditional.beliefs import LeftOutScores
from meanmap.conditional.learning import (
    LANDMARKS,
    MANY,
    ROWS,
    LeaveOneOutLoss,
    LikelihoodLoss,
    ScaleSearch,
    distinct_rows,
    law_targets,
    standardize_targets,
)
from meanmap.conditional.operator import ALONE, ConditionalOperator, Functional, Observed, Side
from meanmap.conditional.selection import (
    SCHEDULES,
    LeaveOneOut,
    RegressionSample,
    Solved,
    bandwidth_candidates,
    effective_size,
    inverse_from_moments,
    regularized_inverse,
    search_size,
)
from meanmap.conditional.shape import LeftOutRows, choose_shape, takes_few_values
from meanmap.embeddings.element import Deferred, numeric
from meanmap.kernels import Kernel
from meanmap.kernels.bandwidths import median_distance
from meanmap.kernels.defaults import as_target
from meanmap.spaces import PivotedCholesky, Space
from meanmap.spaces.space import fit_space, fit_space_moments, fit_space_quietly, read_points
from meanmap.streams.sums import value_columns

SMALL = 256  # up to this rank one BLAS thread is faster than several
LARGE = 1 << 23  # coordinates of a sample that are more than this are not kept
LEARNED_GRID = np.logspace(-7, 1, 25)  # λ with a learned kernel, whose scales make up for less
COMPARED = 1500  # rows on which scales that are learned in two ways are compared
FEWEST = 20  # rows, below which learned scales stay at the median
BETTER = 0.01  # of a score, or its standard error: what scales learned from laws must gain
NARROW = 0.25  # of the median distance: scales learned from the mean that may be chance
EQUAL = 2e-3  # of a score, that those learned from distributions may then lose
FINE = 0.01  # of λ: the relative trace that the coordinates of a learned kernel may miss
LOOKED = 2000  # rows that λ is chosen on, of a sample that is not kept


class Pairs(NamedTuple):
    """Two samples that belong together, row by row, with their kernels and weights."""

    x: Points
    y: Points
    kernel_x: Kernel
    kernel_y: Kernel
    bases: tuple[Any, Any]
    w: Array
    flat: bool = False  # y was a 1-D array of numbers
    total: float = 1.0  # of the weights, before they were scaled to one
    known: tuple[Array | None, Array | None] = (None, None)  # coordinates in spaces that are bases

    @property
    def numbers(self) -> bool:
        """Whether y is rows of numbers, whose mean is regressed."""
        return self.kernel_y.on_vectors and not isinstance(self.y, tuple)

    def host_numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """y and the weights on the host, in double precision."""
        y = to_numpy(self.y).astype(np.float64) if self.numbers else np.empty((len(self.w), 0))
        return y, to_numpy(self.w).astype(np.float64)

    def side(self, which: int, kernel: Kernel, index: Any, weights: Array) -> Side:
        """Some rows of one variable, with a space fitted to them unless the basis is one."""
        points, basis, known = take(self[which], index), self.bases[which], self.known[which]
        if known is not None:
            return Side(basis, points, take(known, index))
        space, psi = fit_space(kernel.resolve(points, weights), basis, points, weights)
        return Side(space, points, psi)


def read_pairs(
    X: Any, Y: Any, kernel_x: Any, kernel_y: Any, basis: Any, sample_weight: Any, usual: Any = None
) -> Pairs:
    """Pairs of any kinds that passed the gate; rows of weight zero are left out.

    `usual` is the kernel on X where there is neither a kernel nor a fitted space.
    """
    bases = basis if isinstance(basis, tuple) else (basis, basis)
    if len(bases) != 2:
        raise ValueError(f"basis: expected one basis or a pair (x, y), got {len(bases)}.")
    if kernel_x is None and not isinstance(bases[0], Space):
        kernel_x = usual
    x, kernel_x = read_points(X, kernel_x, bases[0], "X")
    target, flat = as_target(Y, kernel_y)
    y, kernel_y = read_points(target, kernel_y, bases[1], "y")
    x, y = in_one_precision(x, y)
    n = checks.same_length([("X", x), ("y", y)])
    w = checks.sample_weights(sample_weight, x, float_like(x))
    keep = to_numpy(w) > 0
    if not keep.all():
        x, y, w = (take(part, keep) for part in (x, y, w))
    total = checks.total_weight(sample_weight, n)
    return Pairs(x, y, kernel_x, kernel_y, bases, w, flat, total)


@dataclass(frozen=True)
class FittedConditional:
    """A conditional in coordinates, with the sample that it was fitted to."""

    x: Side
    y: Side
    weights: Array
    regularization: float  # λ
    errors: LeaveOneOut | None  # behind an automatic λ
    operator: ConditionalOperator
    learned: bool  # whether the scales of X's kernel were


def check_regularization(value: float | str) -> float | str:
    """λ: "auto", the name of a schedule, or a number ≥ 0."""
    if isinstance(value, str):
        return checks.option(value, "regularization", ["auto", *SCHEDULES])
    return checks.not_negative(value, "regularization", 'Use "auto" or a number like 1e-3.')


def centering(asked: bool | None, kernel: Kernel) -> bool | None:
    """What is centred: nothing (False), targets (None), or both sides (True)."""
    return True if asked is None and not kernel.bounded else asked


def fit_pairs(
    pairs: Pairs, regularization: float | str = "auto", centered: bool | None = None
) -> FittedConditional:
    """The conditional of y given x, as `ConditionalEmbedding` describes it."""
    w = pairs.w
    centered = centering(centered, pairs.kernel_x)
    if isinstance(regularization, str) and regularization != "auto":
        regularization = SCHEDULES[regularization][0](effective_size(w))
    y = pairs.side(1, pairs.kernel_y, slice(None), w)
    norms = y.space.kernel_.squared_norms(pairs.y)
    sample = RegressionSample(pairs.w, y.known, w, norms)
    given: float | str | np.ndarray = regularization
    enough = False
    if pairs.known[0] is None and pairs.kernel_x.learns:
        pairs, enough = learn_kernel(pairs, y, regularization)
        if enough and isinstance(regularization, str):
            given = LEARNED_GRID
        if enough and centered is not False:
            sample = mean_targets(pairs, sample)

    def solve(kernel: Kernel, index: np.ndarray | slice, search: bool) -> tuple[Side, Solved]:
        some = sample.take(index)
        v = some.weights / namespace(w).sum(some.weights)
        x = pairs.side(0, kernel, index, v)
        some = some._replace(rows=x.known, weights=v)
        with one_blas_thread(x.space.rank_ < SMALL):
            nested = x.space.map_.nested
            return x, regularized_inverse(some, given, centered, nested, search)

    kernel_x, basis, tried = pairs.kernel_x, pairs.bases[0], bandwidth_candidates(pairs.kernel_x)
    if len(tried) > 1:
        # half of the rows tell as much of the bandwidth, at a fraction of the cost
        part = np.linspace(0, len(w) - 1, search_size(len(w))).astype(int)
        errors = [solve(kernel, part, True)[1].errors for kernel in tried]
        kernel_x = tried[int(np.argmin([loo.least for loo in errors if loo is not None]))]
    if basis is not None and basis.streams and basis.known_rank * count(pairs.x) > LARGE:
        operator: ConditionalOperator
        x, solved, operator = fit_large(
            pairs, kernel_x.resolve(pairs.x, w), y, norms, regularization, centered
        )
    else:
        x, solved = solve(kernel_x, slice(None), False)
        xp, rows = namespace(x.known), x.known
        operator = ConditionalOperator(
            x.space,
            y,
            xp.concat([rows, xp.ones_like(rows[:, :1])], axis=1) if centered else rows,
            w,
            solved.solver,
            regularization=solved.regularization,
            rest=w if centered is None else None,
            seen=Observed(pairs.x, y.points, w),
        )
    return FittedConditional(x, y, w, solved.regularization, solved.errors, operator, enough)


# --- learned kernels ------------------------------------------------------------------------------


def learn_kernel(pairs: Pairs, y: Side, regularization: float | str) -> tuple[Pairs, bool]:
    """The pairs with scales of the kernel on x by leave-one-out, and whether these were learned.

    Of numbers y, scales are learned from the mean and from the distribution, and the answers of
    both compared by the ranked probability score of rows that are left out. Where the smoothness
    is open, a rougher kernel must make the mean likelier. Coordinates of x are as
    fine as λ asks for, unless there is a basis. Few rows leave the scales at the median distance.
    """
    n = count(pairs.x)
    index = np.linspace(0, n - 1, min(n, MANY)).astype(int)
    some = pairs._replace(x=take(pairs.x, index), y=take(pairs.y, index), w=take(pairs.w, index))
    scales = pairs.kernel_x.open_scales(some.x, some.w)
    assert scales is not None
    values, w = some.host_numbers()
    if not pairs.numbers:
        values = to_numpy(take(y.coordinates, index))
    rows, w = distinct_rows(scales.columns, values, w)
    if len(rows) < FEWEST:
        return pairs._replace(kernel_x=median_kernel(pairs.kernel_x, some.x, some.w)), False
    scales, values = scales.take(rows), values[rows]
    given = None if isinstance(regularization, str) else regularization
    kinds: list[tuple[Any, np.ndarray]]
    if pairs.numbers:
        kinds = [
            (LikelihoodLoss, standardize_targets(values, w)),
            (LeaveOneOutLoss, law_targets(values, w)),
        ][int(takes_few_values(values)) :]
    else:
        kinds = [(LeaveOneOutLoss, values - w @ values)]
    with one_blas_thread():
        unit = median_distance(scales.columns[:ROWS], w[:ROWS])
        searches = [ScaleSearch(kind, scales, T, w, unit, given) for kind, T in kinds]
        found = [(search, search.run()) for search in searches]
        search, place = found[0]
        if len(found) > 1:
            search, place = found[0] = search.run_rougher(place)
            mean, law = (scale_scores(*each, values) for each in found)
            narrow = search.scales_at(place).max() < NARROW * search.unit
            worse, error = law.excess(mean)
            if worse < (EQUAL * mean.mean if narrow else -min(error, BETTER * mean.mean)):
                search, place = found[1]
        place = search.refine(place)
    # a small sample is given exact coordinates, which cost nothing
    tol = (
        1e-10 if len(rows) < ROWS else float(np.clip(FINE * np.exp(round(place[-1])), 1e-10, 1e-4))
    )
    basis = PivotedCholesky(tol) if pairs.bases[0] is None else pairs.bases[0]
    kernel = search.scales.kernel(search.scales_at(place))
    return pairs._replace(kernel_x=kernel, bases=(basis, pairs.bases[1])), True


def median_kernel(kernel: Kernel, points: Points, w: Array) -> Kernel:
    """The kernel with the median distance as the scale of every column."""
    scales = kernel.open_scales(points, w)
    assert scales is not None
    columns, v = scales.columns, to_numpy(w).astype(np.float64)
    found: Kernel = scales.kernel(np.full(scales.size, median_distance(columns, v)))
    return found


def mean_targets(pairs: Pairs, sample: RegressionSample) -> RegressionSample:
    """Numbers y as targets themselves, unless probabilities of a few values are regressed."""
    y, w = pairs.host_numbers()
    if not pairs.numbers or takes_few_values(y):
        return sample
    z = asarray(standardize_targets(y, w), sample.targets)
    return sample._replace(targets=z, norms=namespace(z).sum(z * z, axis=1))


def scale_scores(search: ScaleSearch, place: np.ndarray, y: np.ndarray) -> LeftOutScores:
    """The ranked probability scores of rows that are left out, in a few coordinates."""
    x = search.scales.divided(search.scales_at(place))[:COMPARED]
    w, kernel = search.weights[:COMPARED], search.scales.unit
    w = w / w.sum()
    _, psi = fit_space_quietly(kernel, PivotedCholesky(1e-6, LANDMARKS), x, w)
    y = y[:COMPARED]
    given = "auto" if search.regularization is None else search.regularization
    T = standardize_targets(y, w)
    sample = RegressionSample(psi, T, w, (T * T).sum(axis=1))
    solver = regularized_inverse(sample, given, None, True).solver
    z = y - w @ y
    fitted = psi @ solver.apply((w[:, None] * z).T @ psi).T
    left = np.maximum(1 - w * solver.forms(psi), ALONE)[:, None]
    missing = 1 - psi @ solver.apply(w @ psi)
    others = 1 - np.where(w < 1, w, 0.0)
    error = z - fitted + (missing * w / others)[:, None] * z
    evidence = LeftOutRows.of(kernel, x, y, error / left, w)
    # scales that are learned from distributions are meant for their spread as well
    return choose_shape(evidence, learn=search.kind is LikelihoodLoss)[1]


# --- samples whose coordinates are too many to keep -----------------------------------------------


class StreamedOperator(ConditionalOperator):
    """A conditional known by sums over rows that are gone, or too many to keep.

    Where they are gone its atoms span the target's space; the means come from sums of their own.
    """

    def __init__(self, *arguments: Any, sums: OperatorSums, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._sums = sums

    @cached_property
    def mass(self) -> Array:
        mu = self._sums.x
        return self._solve(self.with_constant(mu, mu[0] * 0 + 1))

    @cached_property
    def _rest_coordinates(self) -> Array:
        return in_precision(self._sums.y, self.scale)

    @cached_property
    def matrix(self) -> Array:
        return self._solve(self._sums.cross)

    def _solve(self, sums: Array) -> Array:
        """Sums times H: both are double, what comes of them has the precision of the rows."""
        return in_precision(self.solver.apply(sums), self.scale)

    @cached_property
    def _means(self) -> list[Functional]:
        parts = self.atoms if isinstance(self.atoms, tuple) else (self.atoms,)
        middles: Sequence[Array | None] = [None] * len(parts)
        if self._sums.middles is not None:
            middles = [in_precision(middle, self.scale) for middle in self._sums.middles]
        return [
            Functional(self, numeric(part), self._solve(sums), middle)
            for part, sums, middle in zip(parts, self._sums.moments, middles, strict=True)
        ]


@dataclass(frozen=True)
class OperatorSums:
    """Sums over rows, over the total weight, as a conditional uses them."""

    x: Array  # μ = Σ w ψ(x)
    y: Array  # ν = Σ w φ(y)
    cross: Array  # C_YX; with an intercept its last column is ν
    moments: list[Array]  # Σ w (y - c) ψ(x)ᵀ for each variable of Y
    middles: list[Array] | None  # c, the mean of y; None where it is 0

    @classmethod
    def of(
        cls,
        means: tuple[Array, Array],
        cross: Array,
        moments: list[Array],
        middles: Sequence[Array],
        centered: bool | None,
    ) -> OperatorSums:
        """From sums of y itself, which are taken about its mean unless nothing is centred."""
        mu, nu = means
        xp = namespace(cross)
        if centered is False:
            return cls(mu, nu, cross, moments, None)
        found = [m - c[:, None] * mu[None, :] for m, c in zip(moments, middles, strict=True)]
        if centered:
            cross = xp.concat([cross, nu[:, None]], axis=1)
            found = [xp.concat([m, xp.zeros_like(m[:, :1])], axis=1) for m in found]
        return cls(mu, nu, cross, found, list(middles))


def fit_large(
    pairs: Pairs,
    kernel: Kernel,
    y: Side,
    norms: Array,
    regularization: float | str,
    centered: bool | None,
) -> tuple[Side, Solved, StreamedOperator]:
    """The fit without the sample's coordinates on X, which would be too many to keep."""
    w, psi_y = pairs.w, y.known
    xp = namespace(psi_y)
    columns = [psi_y, xp.ones_like(psi_y[:, :1]), *value_columns(pairs.y)]
    ends = np.cumsum([column.shape[1] for column in columns])
    values = xp.concat(columns, axis=1)
    space, C, B = fit_space_moments(kernel, pairs.bases[0], pairs.x, w, values)
    cross, mu, nu = B[: ends[0]], B[ends[0]], w @ psi_y
    size = min(count(pairs.x), LOOKED if isinstance(regularization, str) else 1)
    some = np.linspace(0, count(pairs.x) - 1, size).astype(int)
    rows = space.coordinates(take(pairs.x, some))
    sample = RegressionSample(rows, *(take(part, some) for part in (psi_y, w, norms)))
    nested = space.map_.nested
    solved = inverse_from_moments(C, cross, (mu, nu), sample, regularization, centered, nested)
    moments = [B[i:j] for i, j in pairwise(ends[1:])]
    middles = [to_double(w @ column) for column in columns[2:]]
    operator = StreamedOperator(
        space,
        y,
        Deferred(space, pairs.x, bool(centered)),
        w,
        solved.solver,
        sums=OperatorSums.of((mu, to_double(nu)), cross, moments, middles, centered),
        regularization=solved.regularization,
        rest=w if centered is None else None,
        seen=Observed(pairs.x, y.points, w),
    )
    return Side(space, pairs.x, Deferred(space, pairs.x)), solved, operator
