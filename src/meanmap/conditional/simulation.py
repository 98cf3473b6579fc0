"""Bayes' rule by simulation: P(X|Y) fitted to pairs whose x are the prior's and y follow P(Y|x).

The chain rule puts the joint distribution on the prior's own atoms: `Σ αⱼ δ(xⱼ) P(Y|xⱼ)`. One draw
of each P(Y|xⱼ), by residuals, makes it a sample, and a conditional fitted to that sample is the
posterior: nothing has to be weighed, so that a prior may be as narrow as it likes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meanmap.arrays import Array, Points, asarray, count, float_like, take, to_numpy, warn
from meanmap.conditional.beliefs import smooth_draws_of
from meanmap.conditional.fitting import Pairs, fit_pairs
from meanmap.conditional.operator import ConditionalOperator
from meanmap.conditional.shape import takes_few_values
from meanmap.embeddings import Embedding
from meanmap.kernels import Kernel
from meanmap.linalg import ConflictWarning

LEAST, MOST = 1000, 5000  # pairs that are simulated
OUTSIDE = 0.1  # of a prior, that may lie outside the training points without a word


def simulated_posterior(
    forward: ConditionalOperator,
    prior: Embedding,
    kernels: tuple[Kernel, Kernel],
    bases: tuple[Any, Any],
    regularization: float | str,
    centered: bool | None,
) -> ConditionalOperator:
    """P(X|Y) under a prior, given P(Y|X) whose answers scatter.

    Parameters
    ----------
    forward : P(Y|X)
    prior : Embedding on X, with atoms of the sample's kind
    kernels, bases : on Y and on X
    regularization : λ of P(X|Y), or "auto"
    centered : what is centred
    """
    rng = np.random.default_rng(0)
    x, w = prior_draws(prior, forward.source.kernel_, rng)
    features = forward.quiet_features(x)
    outside = forward.outside(x, features)
    if float(to_numpy(w)[outside].sum()) > OUTSIDE:
        warn(
            f"the training sample cannot represent the prior: {to_numpy(w)[outside].sum():.0%} of "
            "it lies outside the training points, where P(Y|x) is extrapolated. Fit on more points "
            "where the prior lies.",
            ConflictWarning,
        )
    means = to_numpy(forward.mean_of(features)).astype(np.float64)
    drawn = forward.require_shape().at(x, means, forward.told(features)).draw(rng)
    y = asarray(drawn, float_like(forward.atoms))
    return fit_pairs(Pairs(y, x, *kernels, bases, w), regularization, centered).operator


def prior_draws(prior: Embedding, kernel: Kernel, rng: np.random.Generator) -> tuple[Points, Array]:
    """Points with weights ≥ 0 that stand for a prior: its atoms, if they are neither few nor many.

    Few numbers are drawn from a smooth density, since copies of a point would tell of each other.
    """
    atoms, alpha = prior.atoms, to_numpy(prior.weights).astype(np.float64)
    if (alpha < 0).any():
        points, p = next(iter(prior.beliefs()))
        atoms, alpha = points, to_numpy(p).astype(np.float64)
    p = alpha / alpha.sum()
    n = count(atoms)
    kept = np.flatnonzero(p > 0)
    if LEAST <= len(kept) <= MOST:
        return take(atoms, kept), asarray(p[kept], float_like(atoms))
    size = min(max(len(kept), LEAST), MOST)
    levels = (np.arange(size) + 0.5) / size
    chosen = np.searchsorted(np.cumsum(p)[: n - 1], levels)
    points, w = take(atoms, chosen), asarray(np.full(size, 1 / size), float_like(atoms))
    numbers = kernel.on_vectors and not isinstance(atoms, tuple)
    if len(kept) >= LEAST or not numbers:
        return points, w
    host = to_numpy(atoms).astype(np.float64)
    if takes_few_values(host):
        return points, w
    return asarray(smooth_draws_of(host, p, size, rng, None), float_like(atoms)), w
