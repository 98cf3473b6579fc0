"""A prior as non-negative weights on a training sample.

    minimise  ‖Σ pᵢ ψ(xᵢ) - m_π‖² + λ Σ pᵢ²/wᵢ   subject to  pᵢ ≥ 0

The solution is `pᵢ = wᵢ max(ψ(xᵢ)·h, 0)`, where h minimises the convex function
`½ Σ wᵢ max(ψ(xᵢ)·h, 0)² + λ/2 ‖h‖² - h·m_π` of one variable per coordinate. Without the constraint
this is the ridge solution of Fukumizu, Song and Gretton (2013, eq. 11), whose negative weights
cancel its tails: cutting them off leaves a prior that is as wide as the kernel. The kernel is that
of X, narrowed where the prior is narrower than the sample.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import clone

from meanmap.arrays import (
    Array,
    Points,
    asarray,
    concatenate,
    count,
    device,
    epsilon,
    namespace,
    solve_triangular,
    take,
    to_numpy,
)
from meanmap.embeddings import Embedding
from meanmap.kernels import Kernel
from meanmap.linalg import ConflictWarning, symmetrized
from meanmap.spaces import PivotedCholesky, Space
from meanmap.spaces.space import fit_space_quietly

Moments = tuple[np.ndarray, np.ndarray]  # mean and standard deviation, one per column

WIDTH = (
    1.5  # a kernel's bandwidth in units of the prior's scale: .5 to 2 do as well on normal priors
)
NARROW = 0.8  # of a bandwidth: a prior that asks for more than this is matched in the kernel of X
RANK = (
    300  # coordinates of a kernel that is narrowed, or of a sample that has more than twice these
)
NEAR = 1e-4  # of the prior's largest value: rows with less are left out
PAIRS = 4000  # distances from which a scale is estimated
STEPS = 100
ARMIJO = 1e-4
HALVINGS = 30
FAITHFUL = 1.5  # how far the spread of what represents a prior may be from the prior's, a factor
OFFSET = 0.75  # ... and its mean, in standard deviations
LEAST = 0.05  # of the sample's spread: no finer prior is asked for
RESIDUAL = 0.5**0.5  # the relative distance of embeddings that is too much, without columns


def nonnegative_weights(
    space: Space, points: Points, rows: Array, w: Array, prior: Embedding, regularization: float
) -> Array:
    """Non-negative weights on a sample that represent a prior: they sum to one.

    Parameters
    ----------
    space : the space of X
    points, rows, w : the sample, its coordinates in the space and its weights
    prior : Embedding, with atoms of the sample's kind
    regularization : λ
    """
    atoms, alpha = prior.atoms, asarray(prior.weights, w)
    narrow = narrowed_kernel(space.kernel_, points, w, atoms, alpha)
    some = None if narrow is None else near_rows(narrow, points, atoms, alpha)
    if some is None and rows.shape[1] <= 2 * RANK:
        some, psi = np.arange(count(points)), rows
        m = prior.coordinates if prior.space is space else space.mean_coordinates(atoms, alpha)
    else:
        kernel = space.kernel_ if some is None or narrow is None else narrow
        some = np.arange(count(points)) if some is None else some
        psi, m = joint_coordinates(kernel, take(points, some), atoms, alpha)
    v = take(w, some)
    h = least_ratio(psi, v, m, regularization)
    ratio = psi @ h
    xp = namespace(ratio)
    kept = v * xp.where(ratio > 0, ratio, xp.zeros_like(ratio))
    total = float(xp.sum(kept))
    if not total > 0:
        raise ValueError(
            "the prior has no positive weight on the training sample: it lies outside the data "
            "that the conditional was fitted to. Fit on points that cover the prior."
        )
    kept = kept / total
    p = kept
    if count(some) < count(points):
        spread = np.zeros(count(points))
        spread[some] = to_numpy(kept)
        p = asarray(spread, w)
    if space.kernel_.on_vectors:
        warn_if_spread_differs(moments(points, p), moments(atoms, alpha), moments(points, w)[1])
    else:
        warn_if_distant(kept @ psi, m / (float(xp.sum(alpha)) or 1.0))
    return p


def least_ratio(psi: Array, w: Array, m: Array, regularization: float) -> Array:
    """h of the least `½ Σ wᵢ max(ψᵢ·h, 0)² + λ/2 ‖h‖² - h·m`: Newton's method, with line search.

    The gradient is piecewise linear, so that a few steps end it: each solves with the covariance of
    the rows whose weight is positive.
    """
    xp, r = namespace(psi), psi.shape[1]
    scale = float(xp.sum(w[:, None] * psi * psi)) or 1.0
    lam = max(float(regularization), 100 * epsilon(psi) * scale)  # 0 is the pseudo-inverse
    one = xp.eye(r, dtype=psi.dtype, device=device(psi))

    def at(h: Array) -> tuple[float, Array]:
        ratio = psi @ h
        ratio = xp.where(ratio > 0, ratio, xp.zeros_like(ratio))
        return float(0.5 * (w @ ratio**2) + 0.5 * lam * (h @ h) - h @ m), ratio

    def newton(gradient: Array, active: np.ndarray) -> Array:
        U, v = take(psi, active), take(w, active)
        scaled = xp.sqrt(v)[:, None] * U
        if scaled.shape[0] < r:  # the smaller of two systems
            small = xp.eye(scaled.shape[0], dtype=psi.dtype, device=device(psi))
            L = xp.linalg.cholesky(symmetrized(scaled @ scaled.T) + lam * small)
            inner = solve_triangular(L, solve_triangular(L, scaled @ gradient), transpose=True)
            return (gradient - scaled.T @ inner) / lam
        L = xp.linalg.cholesky(symmetrized(scaled.T @ scaled) + lam * one)
        return solve_triangular(L, solve_triangular(L, gradient), transpose=True)

    h = newton(m, np.ones(psi.shape[0], dtype=bool))  # the ridge solution
    value, ratio = at(h)
    goal = max(1e-9, 100 * epsilon(psi)) * float(m @ m) ** 0.5
    for _ in range(STEPS):
        gradient = (w * ratio) @ psi + lam * h - m
        if float(gradient @ gradient) ** 0.5 <= goal:
            break
        step = newton(gradient, to_numpy(ratio > 0))
        slope, length = float(gradient @ step), 1.0
        for _ in range(HALVINGS):
            there, ratio_there = at(h - length * step)
            if there <= value - ARMIJO * length * slope:
                break
            length /= 2
        else:  # no progress but rounding
            break
        h, value, ratio = h - length * step, there, ratio_there
    return h


# --- the kernel in which a prior is matched -------------------------------------------------------


def fine_scales(points: Any, weights: Any) -> np.ndarray:
    """The lower quartile of the distances of two points, for each column; 0 if all are equal.

    Of a mixture of two narrow parts it is the scale of a part; a standard deviation is that of
    the whole.
    """
    x, rng = to_numpy(points).astype(float), np.random.default_rng(0)
    share = np.cumsum(abs(to_numpy(weights)))
    draws = np.searchsorted(share, share[-1] * rng.random((2, PAIRS)), side="right")
    i, j = np.minimum(draws, len(x) - 1)
    apart = abs(x[i] - x[j])
    found = [
        float(np.quantile(column[column > 0], 0.25)) if (column > 0).any() else 0.0
        for column in apart.T
    ]
    return np.array(found)


def narrowed_kernel(
    kernel: Kernel, points: Points, w: Array, atoms: Points, alpha: Array
) -> Kernel | None:
    """The kernel with bandwidths that a narrow prior asks for; None where it is narrow enough."""
    if not kernel.on_vectors or "bandwidth" not in kernel.get_params(deep=False):
        return None
    wide, fine = fine_scales(points, w), fine_scales(atoms, alpha)
    asked = np.divide(WIDTH * fine, wide, out=np.ones_like(wide), where=wide > 0)
    factor = np.clip(asked, LEAST, 1.0)
    if factor.min() >= NARROW:
        return None
    widths = factor * np.asarray(kernel.get_params(deep=False)["bandwidth"], dtype=float)
    bandwidth = float(widths[0]) if len(widths) == 1 else tuple(float(v) for v in widths)
    return clone(kernel).set_params(bandwidth=bandwidth)


def near_rows(kernel: Kernel, points: Points, atoms: Points, alpha: Array) -> np.ndarray | None:
    """Which rows have a part in the prior; None where it lies outside of all of them."""
    some = np.linspace(0, count(atoms) - 1, min(count(atoms), 2000)).astype(int)
    size = abs(take(alpha, some))
    values = to_numpy(kernel.gram_times(points, take(atoms, some), size))
    near = np.flatnonzero(values > NEAR * values.max())
    total = float(namespace(size).sum(size))
    return near if values.max() > NEAR * total and len(near) > 1 else None


def joint_coordinates(
    kernel: Kernel, points: Points, atoms: Points, alpha: Array
) -> tuple[Array, Array]:
    """Coordinates of rows, and of the prior, in a space fitted to both of them."""
    both = concatenate([points, atoms])
    basis = PivotedCholesky(1e-11, max_rank=min(RANK, count(both)))
    _, psi = fit_space_quietly(kernel, basis, both)
    n = count(points)
    return psi[:n], alpha @ psi[n:]


# --- whether the prior is represented -------------------------------------------------------------


def warn_if_spread_differs(found: Moments, asked: Moments, whole: np.ndarray) -> None:
    """Warn where weights on the sample have another spread or place than the prior."""
    (mean, std), (asked_mean, asked_std) = found, asked
    std, unit = np.maximum(std, LEAST * whole), np.maximum(asked_std, LEAST * whole)
    varies = unit > 0
    if not varies.any():
        return
    ratio = float(np.mean((std[varies] / unit[varies]) ** 2) ** 0.5)
    offset = float(np.mean(((mean - asked_mean)[varies] / unit[varies]) ** 2) ** 0.5)
    if not 1 / FAITHFUL <= ratio <= FAITHFUL or offset > OFFSET:
        _warn(
            f"what represents it has {ratio:.2g} times its spread, and its mean is {offset:.2g} "
            "standard deviations off"
        )


def warn_if_distant(found: Array, asked: Array) -> None:
    """Warn where the embedding of weights on the sample is far from the prior's."""
    gap, size = float((found - asked) @ (found - asked)), float(asked @ asked)
    if gap > RESIDUAL**2 * size:
        _warn(f"what represents it is off by {(gap / size) ** 0.5:.0%} of its norm")


def moments(points: Any, weights: Any) -> Moments:
    """Mean and standard deviation of every column."""
    x, w = to_numpy(points).astype(float), to_numpy(weights).astype(float)
    w = w / w.sum() if w.sum() > 0 else np.full(len(w), 1 / len(w))
    mean = w @ x
    return mean, np.sqrt(np.maximum(w @ (x - mean) ** 2, 0.0))


def _warn(what: str) -> None:
    warnings.warn(
        f"the training sample cannot represent the prior: {what}. Posteriors follow what "
        "represents it. Fit on more points where the prior lies.",
        ConflictWarning,
        stacklevel=7,
    )
