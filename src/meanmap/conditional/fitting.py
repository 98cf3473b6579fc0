"""P(Y|X) from pairs that were checked: spaces, λ, and the operator.

Searches and models that hold checked points fit here; `ConditionalEmbedding.fit` reads its input
and does the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanmap import checks
from meanmap.arrays import Array, count, namespace, one_blas_thread, take
from meanmap.conditional.operator import ConditionalOperator, Side
from meanmap.conditional.pairs import Pairs
from meanmap.conditional.selection import (
    SCHEDULES,
    LeaveOneOut,
    RegressionSample,
    Solved,
    bandwidth_candidates,
    effective_size,
    regularized_inverse,
    search_size,
)
from meanmap.conditional.streaming import fit_large
from meanmap.kernels import Kernel
from meanmap.spaces.space import fit_space

SMALL = 256  # up to this rank one BLAS thread is faster than several
LARGE = 1 << 23  # coordinates of a sample that are more than this are not kept


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
    kernel_y = pairs.kernel_y.resolve(pairs.y, w)
    space_y, psi_y = fit_space(kernel_y, pairs.bases[1], pairs.y, w)
    y, norms = Side(space_y, pairs.y, psi_y), kernel_y.squared_norms(pairs.y)

    def solve(kernel: Kernel, index: np.ndarray | slice, search: bool) -> tuple[Side, Solved]:
        points, targets, v, k = (take(part, index) for part in (pairs.x, psi_y, w, norms))
        v = v / namespace(v).sum(v)
        space, psi = fit_space(kernel.resolve(points, v), pairs.bases[0], points, v)
        nested = space.map_.nested
        sample = RegressionSample(psi, targets, v, k)
        with one_blas_thread(psi.shape[1] < SMALL):
            solved = regularized_inverse(sample, regularization, centered, nested, search)
        return Side(space, points, psi), solved

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
