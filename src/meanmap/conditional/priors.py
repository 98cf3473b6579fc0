"""A prior that is narrower than the kernel, matched in a kernel that is as narrow."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from meanmap.arrays import Array, Points, asarray, concatenate, count, namespace, take, to_numpy
from meanmap.conditional.operator import Side
from meanmap.embeddings import Embedding
from meanmap.exceptions import DataWarning, warn
from meanmap.kernels import Kernel
from meanmap.rules import BayesMethod, PriorOnSample
from meanmap.spaces import PivotedCholesky
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
FAITHFUL = 1.5  # how far the spread of what represents a prior may be from the prior's, a factor
OFFSET = 0.75  # ... and its mean, in standard deviations
LEAST = 0.05  # of the sample's spread: no finer prior is asked for
RESIDUAL = 0.5**0.5  # the relative distance of embeddings that is too much, without columns


def fine_density_ratio(
    rule: BayesMethod,
    x: Side,
    w: Array,
    prior: Embedding,
    regularization: float,
) -> Array:
    """ρ at the training points, found in a kernel as narrow as the prior.

    Parameters
    ----------
    rule : the method of Bayes' rule that asks for it
    x : the training sample's side of X
    w : its weights
    prior : Embedding, with atoms of the sample's kind
    regularization : λ
    """
    kernel, points = x.space.kernel_, x.points
    atoms, alpha = prior.atoms, asarray(prior.weights, w)
    narrow = narrowed_kernel(kernel, points, w, atoms, alpha)
    some = None if narrow is None else near_rows(narrow, points, atoms, alpha)
    if some is None and x.space.rank_ <= 2 * RANK:
        some, psi = np.arange(count(points)), x.coordinates
        m = prior.coordinates if prior.space is x.space else x.space.mean_coordinates(atoms, alpha)
    else:
        kernel = kernel if some is None or narrow is None else narrow
        some = np.arange(count(points)) if some is None else some
        psi, m = joint_coordinates(kernel, take(points, some), atoms, alpha)
    v = take(w, some)
    rho = rule.density_ratio(PriorOnSample(m, psi, v, regularization))
    if not x.space.kernel_.on_vectors:
        total = float(namespace(alpha).sum(alpha)) or 1.0
        warn_if_distant((v * rho) @ psi, m / total)
    if count(some) < count(points):
        whole = np.zeros(count(points))
        whole[some] = to_numpy(rho)
        rho = asarray(whole, w)
    if x.space.kernel_.on_vectors:
        found, asked = column_spread(points, w * rho), column_spread(atoms, alpha)
        warn_if_spread_differs(found, asked, column_spread(points, w)[1])
    return rho


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
    own = np.asarray(kernel.get_params(deep=False)["bandwidth"], dtype=float)
    widths = np.atleast_1d(factor * own)
    if (widths >= NARROW * own).all():
        return None
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
    (mean, std), (middle, asked_std) = found, asked
    std, unit = np.maximum(std, LEAST * whole), np.maximum(asked_std, LEAST * whole)
    varies = unit > 0
    if not varies.any():
        return
    ratio = float(np.mean((std[varies] / unit[varies]) ** 2) ** 0.5)
    offset = float(np.mean(np.minimum(abs(mean - middle)[varies] / unit[varies], 1e99) ** 2) ** 0.5)
    if not 1 / FAITHFUL <= ratio <= FAITHFUL or offset > OFFSET:
        warn_not_represented(
            f"what represents it has {ratio:.2g} times its spread, and its mean is {offset:.2g} "
            "standard deviations off"
        )


def warn_if_distant(found: Array, asked: Array) -> None:
    """Warn where the embedding of weights on the sample is far from the prior's."""
    gap, size = float((found - asked) @ (found - asked)), float(asked @ asked)
    if gap > RESIDUAL**2 * size:
        warn_not_represented(f"what represents it is off by {(gap / size) ** 0.5:.0%} of its norm")


def column_spread(points: Any, weights: Any) -> Moments:
    """Mean and standard deviation of every column."""
    x, w = to_numpy(points).astype(float), to_numpy(weights).astype(float)
    w = w / w.sum() if w.sum() > 0 else np.full(len(w), 1 / len(w))
    mean = w @ x
    return mean, np.sqrt(np.maximum(w @ (x - mean) ** 2, 0.0))


def warn_not_represented(what: str) -> None:
    warn(
        f"the training sample cannot represent the prior: {what}. Posteriors follow what "
        "represents it. Fit on more points where the prior lies.",
        DataWarning,
    )
