"""The HSIC lasso: the target's Gram matrix as a sparse, non-negative sum of the columns' own.

Yamada, Jitkrittum, Sigal, Xing and Sugiyama (2014): min ½‖L̄ - Σⱼ αⱼ K̄ⱼ‖² + λ Σⱼ αⱼ over α ≥ 0, the
Gram matrices centred and of norm one. Only their inner products are needed, and those come from
coordinates: a column's Gram matrix has a rank of some tens, whatever n is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from meanmap.arrays import spans
from meanmap.exceptions import warn
from meanmap.kernels import Kernel
from meanmap.learning.targets import Target
from meanmap.spaces import Basis, PivotedCholesky
from meanmap.statistics.dependence import ROUNDING, coordinates

BASIS = PivotedCholesky(tol=1e-6)
TINY = 1e-12  # λ below which everything is in that ever will be
SAME = 1e-9  # below this a column moves as the active ones do: it repeats them
TOLERANCE = 1e-6  # of the optimality conditions, for Gram matrices of norm one
STRIP = 1 << 22  # coordinates that are compared at once


@dataclass(frozen=True)
class LassoPoint:
    """A point of the lasso's path: coefficients, λ, the order of entry, gradients, the path."""

    coefficients: np.ndarray
    regularization: float
    entered: np.ndarray
    gradient: np.ndarray
    counts: np.ndarray
    regularizations: np.ndarray
    violation: float


def inner_products(
    X: np.ndarray,
    kernel: Kernel,
    target: Target,
    blocks: list[np.ndarray],
    basis: Basis | None,
    some: np.ndarray,
    done: Callable[[int], Any],
) -> tuple[np.ndarray, np.ndarray]:
    """⟨K̄ⱼ, K̄ₖ⟩ and ⟨K̄ⱼ, L̄⟩, summed over blocks; bandwidths are chosen on some of the rows."""
    n, d = X.shape
    basis = BASIS if basis is None else basis
    kernels = [kernel.resolve(X[some, j : j + 1]) for j in range(d)]
    G, c, size = np.zeros((d, d)), np.zeros(d), 0.0
    for rows in blocks:
        phi = target.coordinates(rows)
        phi = phi - phi.mean(axis=0)
        size += float(np.sum((phi.T @ phi) ** 2))
        psi = [coordinates(kernels[j], X[rows, j : j + 1], basis) for j in range(d)]
        c += [float(np.sum((a.T @ phi) ** 2)) for a in psi]
        ends = np.concatenate([[0], np.cumsum([a.shape[1] for a in psi])])
        flat = np.concatenate(psi, axis=1)
        # ⟨HK_jH, HK_kH⟩ = ‖ψ_jᵀ ψ_k‖²: squares of products, summed over the ranks of both
        for strip in spans(d, max(1, STRIP // max(1, int(ends[-1])) // 32)):
            first, last = strip.start, strip.stop
            cross = flat[:, ends[first] : ends[last]].T @ flat[:, ends[first] :]
            cross *= cross
            sums = np.add.reduceat(cross, ends[first:-1] - ends[first], axis=1)
            G[strip, first:] += np.add.reduceat(sums, ends[first:last] - ends[first], axis=0)
            done(last - first)
    G = np.triu(G) + np.triu(G, 1).T
    norms = np.sqrt(np.diag(G))
    least = ROUNDING * max(1.0, float(norms.max(initial=0.0)))
    norms = np.where(norms > least, norms, np.inf)  # what does not vary explains nothing
    G = G / norms[:, None] / norms[None, :]
    return G, c / norms / max(size**0.5, 1e-300)


def lasso_path(G: np.ndarray, c: np.ndarray, k: int) -> LassoPoint:
    """The first point of the path with k columns, or the last one if it never has so many.

    Between two events α = G_AA⁻¹(c_A - λ1) on the active columns A, and λ falls until a column
    joins (its gradient reaches λ), one leaves (its coefficient reaches 0) or λ is 0: the least
    angle regression of Efron et al. (2004), kept non-negative. Repeats of active columns never
    join.
    """
    d = len(c)
    alpha, active = np.zeros(d), [int(np.argmax(c))]
    lam = max(float(c.max()), 0.0)
    entered = np.full(d, 8 * d)
    counts, lams = [0], [lam]
    for turn in range(8 * d):
        if lam <= TINY or not active:
            break
        entered[active] = np.minimum(entered[active], turn)
        slope = np.linalg.lstsq(G[np.ix_(active, active)], np.ones(len(active)))[0]
        rate, gradient = G[:, active] @ slope, c - G @ alpha
        idle = np.ones(d, dtype=bool)
        idle[active] = False
        joining = np.flatnonzero(idle & (rate < 1 - SAME))
        joins = np.maximum(lam - gradient[joining], 0.0) / (1 - rate[joining])
        leaving = np.flatnonzero(slope < 0)
        leaves = -alpha[active][leaving] / slope[leaving]
        fall = min(lam, joins.min(initial=np.inf), leaves.min(initial=np.inf))
        alpha[active] = np.maximum(alpha[active] + fall * slope, 0.0)
        lam -= fall
        out = leaving[leaves <= fall] if len(leaves) else leaving
        for i in sorted(out, reverse=True):
            alpha[active.pop(int(i))] = 0.0
        counts.append(int((alpha > 0).sum()))
        lams.append(lam)
        if counts[-1] >= k:
            break  # the next column has a coefficient of zero here
        if len(joins) and joins.min() <= fall:
            active.append(int(joining[np.argmin(joins)]))
    return check_optimality(G, c, alpha, lam, entered, counts, lams)


def check_optimality(
    G: np.ndarray,
    c: np.ndarray,
    alpha: np.ndarray,
    lam: float,
    entered: np.ndarray,
    counts: list[int],
    lams: list[float],
) -> LassoPoint:
    """The solution, with how far it is from the conditions that an optimum meets."""
    gradient, active = c - G @ alpha, alpha > 0
    violation = max(
        float(np.max(np.abs(gradient[active] - lam), initial=0.0)),
        float(np.max(gradient - lam, initial=0.0)),
    )
    if violation > TOLERANCE:
        warn(
            f"the HSIC lasso did not converge: at λ = {lam:.3g} its optimality conditions are "
            f"missed by {violation:.1g}, where {TOLERANCE:g} is allowed. Columns that are nearly "
            'equal are the usual cause: drop repeated ones, or use method="backward".',
            ConvergenceWarning,
        )
    return LassoPoint(alpha, lam, entered, gradient, np.array(counts), np.array(lams), violation)
