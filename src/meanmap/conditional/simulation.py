"""Bayes' rule by simulation: P(X|Y) fitted to pairs whose x are the prior's and y follow P(Y|x).

The chain rule puts the joint distribution on the prior's own atoms: `Σ αⱼ δ(xⱼ) P(Y|xⱼ)`. One draw
of each P(Y|xⱼ), by residuals, makes it a sample, and a conditional fitted to that sample is the
posterior: nothing has to be weighed, so that a prior may be as narrow as it likes.

Where prior and observation conflict no pair is like the observation, and a regression would return
to the prior. There the atoms are weighed by their likelihood instead, `αⱼ p(y|xⱼ)`, the density of
residuals being a mixture of normal distributions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from meanmap.arrays import (
    Array,
    Points,
    asarray,
    assign,
    count,
    float_like,
    namespace,
    take,
    to_numpy,
)
from meanmap.conditional.beliefs import smooth_draws_of
from meanmap.conditional.fitting import Pairs, fit_pairs
from meanmap.conditional.noise import NoiseMixture
from meanmap.conditional.operator import ConditionalOperator, Functional, Side
from meanmap.conditional.predictive import Predictive
from meanmap.conditional.ranges import or_one
from meanmap.conditional.shape import ResidualShape, ShapeAt, scales_of, takes_few_values
from meanmap.embeddings import Embedding
from meanmap.embeddings.single import embedding_of
from meanmap.exceptions import DataWarning, warn
from meanmap.kernels import Kernel

LEAST, ENOUGH, MOST = 1000, 2000, 5000  # pairs that are simulated; two for each atom until enough
OUTSIDE = 0.1  # share of a prior that may lie outside the training points without a warning
SURE = 2.0  # standard errors that further parts of a density must gain: tails are what counts here
RESIDUALS, COLUMNS = 100, 30  # the fewest rows and most columns that a likelihood is learned from


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
            DataWarning,
        )
    means = to_numpy(forward.mean_of(features)).astype(np.float64)
    shape = forward.require_shape()
    drawn = shape.at(x, means, forward.told(features)).draw(rng)
    y = asarray(drawn, float_like(forward.atoms))
    found = fit_pairs(Pairs(y, x, *kernels, bases, w), regularization, centered).operator
    likelihood = AtomLikelihood.of(shape, x, means, w)
    return found if likelihood is None else SimulatedPosterior(found, likelihood)


@dataclass(frozen=True, eq=False)
class AtomLikelihood:
    """P(y|x) at the atoms of a prior."""

    weights: np.ndarray  # (m,), of the atoms
    means: np.ndarray  # (m, k), of y
    scales: np.ndarray  # (m, k)
    residuals: np.ndarray  # (n, k), over their scales

    @classmethod
    def of(cls, shape: Any, x: Points, means: np.ndarray, w: Array) -> AtomLikelihood | None:
        """From the shape of P(y|x); None if that has no residuals, or too few."""
        if not isinstance(shape, ResidualShape) or means.shape[1] > COLUMNS:
            return None
        if len(shape.residuals) < RESIDUALS:
            return None
        scales = np.ones_like(means) if shape.log_scale is None else scales_of(shape.log_scale(x))
        return cls(to_numpy(w).astype(np.float64), means, scales, shape.residuals)

    @cached_property
    def noise(self) -> tuple[NoiseMixture, np.ndarray]:
        """The density of the residuals, in units (k,) of their own."""
        unit = or_one(self.residuals.std(axis=0))
        return NoiseMixture.of(self.residuals / unit, SURE), unit

    def posterior_weights(self, y: np.ndarray) -> np.ndarray:
        """The weights (b, m) of the atoms given observations (b, k), by Bayes' rule."""
        if not len(y):  # the mixture is fitted when it is needed
            return np.empty((0, len(self.weights)))
        noise, unit = self.noise
        scales = self.scales * unit
        sizes = np.log(scales).sum(axis=1)
        found = np.empty((len(y), len(sizes)))
        for p, row in zip(found, y, strict=True):
            logs = noise.log_density((row - self.means) / scales) - sizes
            p[:] = self.weights * np.exp(logs - logs.max())
            p /= p.sum()
        return found


class SimulatedPosterior(ConditionalOperator):
    """P(X|Y) fitted to simulated pairs, with a likelihood for observations that none of them is at.

    Features of such an observation have the observation itself in further columns, which are NaN
    for all others.
    """

    def __init__(self, fitted: ConditionalOperator, likelihood: AtomLikelihood) -> None:
        side = Side(fitted.target, fitted.atoms, fitted.target_rows)
        rows, scale, solver = fitted.known_rows, fitted.scale, fitted.solver
        lam, rest, seen = fitted.regularization, fitted.rest, fitted.seen
        super().__init__(
            fitted.source, side, rows, scale, solver, regularization=lam, rest=rest, seen=seen
        )
        self._likelihood = likelihood

    def features(self, points: Points) -> Array:
        known = self.quiet_features(points)
        outside = self.outside(points, known)
        usual = np.inf if self._trust.variance is None else self._trust.variance
        far = outside | (to_numpy(self.solver.forms(known)) > usual)
        if outside.any():
            warn(
                f"prior and observation conflict in {outside.sum()} of {len(far)} queries: hardly "
                "any observation that the prior predicts is like them, and the answer follows the "
                "tails of the noise. Draw more training points that suit both, or widen the prior.",
                DataWarning,
            )
        y = np.where(far[:, None], to_numpy(points).astype(np.float64), np.nan)
        return namespace(known).concat([known, asarray(y, known)], axis=1)

    def _parts(self, features: Array) -> tuple[Array, np.ndarray, np.ndarray]:
        """Features (b, r), which observations (b,) are far, and the atoms' weights for these."""
        known, y = features[..., : self.solver.size], features[..., self.solver.size :]
        y = np.atleast_2d(to_numpy(y).astype(np.float64))
        far = np.isfinite(y).all(axis=1) & (y.shape[1] > 0)
        return known, far, self._likelihood.posterior_weights(y[far])

    def answer(self, features: Array) -> Embedding:
        known, far, p = self._parts(features)
        found = self.embedding(known)
        if not far.any():
            return found
        xp, weights = namespace(known), found.weights
        weights = assign(xp.reshape(weights, (len(far), -1)), far, asarray(p, weights))
        weights = weights if found.is_batch else weights[0]
        coordinates = weights @ self.target_rows
        return embedding_of(self.target, self.target.kernel_, self.atoms, weights, coordinates)

    def evaluate(self, functional: Functional, features: Array) -> Array:
        known, far, p = self._parts(features)
        values = super().evaluate(functional, known)
        return assign(values, far, asarray(p, values) @ functional.values) if far.any() else values

    def told(self, features: Array) -> np.ndarray:
        return super().told(features[..., : self.solver.size])

    def answer_at(self, points: Points, features: Array, single: bool = False) -> Embedding:
        found, (_, far, p) = super().answer_at(points, features, single), self._parts(features)
        if not (far.any() and isinstance(found, Predictive)):
            return found
        atoms, trust = to_numpy(self.atoms).astype(np.float64), self.told(features)
        known = dict(zip(np.flatnonzero(far).tolist(), p, strict=True))
        shape = self.require_shape()
        return Predictive.of(
            found, lambda means: PartlyWeighedAt(shape.at(points, means, trust), atoms, known)
        )


@dataclass(frozen=True, eq=False)
class PartlyWeighedAt(ShapeAt):
    """Distributions of which some are weights of the prior's atoms."""

    inner: ShapeAt
    atoms: np.ndarray  # (m, k)
    known: dict[int, np.ndarray]  # weights (m,) of the atoms, by query

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, rows: Any) -> PartlyWeighedAt:
        chosen = np.atleast_1d(np.arange(len(self))[rows]).tolist()
        known = {i: self.known[j] for i, j in enumerate(chosen) if j in self.known}
        return PartlyWeighedAt(self.inner[chosen], self.atoms, known)

    def belief(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        return (self.atoms, self.known[i]) if i in self.known else self.inner.belief(i)


def prior_draws(prior: Embedding, kernel: Kernel, rng: np.random.Generator) -> tuple[Points, Array]:
    """Points with weights ≥ 0 that stand for a prior: its atoms, if they are neither few nor many.

    Fewer numbers than are wanted are drawn from a smooth density, since copies of a point would
    tell of each other.
    """
    atoms, alpha = prior.atoms, to_numpy(prior.weights).astype(np.float64)
    if (alpha < 0).any():
        points, p = next(iter(prior.beliefs()))
        atoms, alpha = points, to_numpy(p).astype(np.float64)
    p = alpha / alpha.sum()
    n, kept = count(atoms), np.flatnonzero(p > 0)
    numbers = kernel.on_vectors and not isinstance(atoms, tuple)
    host = to_numpy(atoms).astype(np.float64) if numbers else None
    smooth = host is not None and not takes_few_values(host)
    size = max(len(kept), min(2 * len(kept), ENOUGH)) if smooth else len(kept)
    size = min(max(size, LEAST), MOST)
    if size == len(kept):
        return take(atoms, kept), asarray(p[kept], float_like(atoms))
    w = asarray(np.full(size, 1 / size), float_like(atoms))
    if host is not None and smooth and size > len(kept):
        return asarray(smooth_draws_of(host, p, size, rng, None), float_like(atoms)), w
    levels = (np.arange(size) + 0.5) / size
    return take(atoms, np.searchsorted(np.cumsum(p)[: n - 1], levels)), w
