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
    count,
    float_like,
    in_one_precision,
    namespace,
    one_blas_thread,
    take,
    to_numpy,
)
from meanmap.conditional.operator import ConditionalOperator, Functional, Side
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
from meanmap.embeddings import Deferred, numeric
from meanmap.kernels import Kernel, as_target
from meanmap.spaces.space import fit_space, fit_space_moments, read_points
from meanmap.streams.sums import value_columns

SMALL = 256  # up to this rank one BLAS thread is faster than several
LARGE = 1 << 23  # coordinates of a sample that are more than this are not kept
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

    def side(self, which: int, kernel: Kernel, index: Any, weights: Array) -> Side:
        """Some rows of one variable, with a space fitted to them unless the basis is one."""
        points, basis, known = take(self[which], index), self.bases[which], self.known[which]
        if known is not None:
            return Side(basis, points, take(known, index))
        space, psi = fit_space(kernel.resolve(points, weights), basis, points, weights)
        return Side(space, points, psi)


def read_pairs(
    X: Any, Y: Any, kernel_x: Any, kernel_y: Any, basis: Any, sample_weight: Any
) -> Pairs:
    """Pairs of any kinds that passed the gate; rows of weight zero are left out."""
    bases = basis if isinstance(basis, tuple) else (basis, basis)
    if len(bases) != 2:
        raise ValueError(f"basis: expected one basis or a pair (x, y), got {len(bases)}.")
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
    psi_y, norms = y.known, y.space.kernel_.squared_norms(pairs.y)

    def solve(kernel: Kernel, index: np.ndarray | slice, search: bool) -> tuple[Side, Solved]:
        targets, v, k = (take(part, index) for part in (psi_y, w, norms))
        v = v / namespace(v).sum(v)
        x = pairs.side(0, kernel, index, v)
        sample, nested = RegressionSample(x.known, targets, v, k), x.space.map_.nested
        with one_blas_thread(x.space.rank_ < SMALL):
            solved = regularized_inverse(sample, regularization, centered, nested, search)
        return x, solved

    kernel_x, tried = pairs.kernel_x, bandwidth_candidates(pairs.kernel_x)
    if len(tried) > 1:
        # half of the rows tell as much of the bandwidth, at a fraction of the cost
        some = np.linspace(0, len(w) - 1, search_size(len(w))).astype(int)
        errors = [solve(kernel, some, True)[1].errors for kernel in tried]
        kernel_x = tried[int(np.argmin([loo.least for loo in errors if loo is not None]))]
    basis = pairs.bases[0]
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
            solved.inverse,
            regularization=solved.regularization,
            rest=w if centered is None else None,
        )
    return FittedConditional(x, y, w, solved.regularization, solved.errors, operator)


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
        return self.with_constant(mu, mu[0] * 0 + 1) @ self.inverse

    @cached_property
    def _rest_coordinates(self) -> Array:
        return self._sums.y

    @cached_property
    def matrix(self) -> Array:
        return self._sums.cross @ self.inverse

    @cached_property
    def _means(self) -> list[Functional]:
        parts = self.atoms if isinstance(self.atoms, tuple) else (self.atoms,)
        middles = self._sums.middles or [None] * len(parts)
        return [
            Functional(self, numeric(part), sums @ self.inverse, middle)
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
    middles = [w @ column for column in columns[2:]]
    operator = StreamedOperator(
        space,
        y,
        Deferred(space, pairs.x, bool(centered)),
        w,
        solved.inverse,
        sums=OperatorSums.of((mu, nu), cross, moments, middles, centered),
        regularization=solved.regularization,
        rest=w if centered is None else None,
    )
    return Side(space, pairs.x, Deferred(space, pairs.x)), solved, operator
