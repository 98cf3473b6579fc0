"""P(output | parameters), learned from simulations, and the posteriors that follow from it.

The output of a simulator is often a smooth function of the parameters and noise that hardly depends
on them, whatever the posterior looks like: two modes, a crescent, a sharp edge. The conditional
embedding of outputs given parameters has the function, and the size of the noise where that varies;
what it leaves of the simulations, over that size, is a sample of the noise, whose density is a
mixture of normal distributions. The number of its parts is the one of the least left-out score. The
posterior is then the prior times this likelihood (a synthetic likelihood, Wood 2010; learned at all
parameters at once, as by Papamakarios, Sterratt and Murray 2019 with networks).

Columns of outputs are taken as they are, or their roots or logarithms, on whichever scale the
differences between neighbours vary least. Whole numbers are spread over the unit around each, so
that a count which is always zero has noise, and the error of its regression says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.spatial import cKDTree

from meanmap.arrays import to_numpy
from meanmap.conditional import ConditionalEmbedding
from meanmap.conditional.noise import NoiseMixture
from meanmap.conditional.ranges import TargetScale, or_one
from meanmap.conditional.shape import ResidualShape, scales_of, takes_few_values
from meanmap.kernels import Kernel
from meanmap.likelihood_free.priors import NormalMap, in_box
from meanmap.likelihood_free.screening import dependent_columns
from meanmap.likelihood_free.tempering import Population, temper
from meanmap.spaces import PivotedCholesky, Space

FEWEST = 100  # simulations that a likelihood is learned from
MOST, SCREENED = 30, 1000  # outputs that one is learned of, and that these are chosen from
CLEARLY = 0.1  # of a log density, that another scale of an output must gain
COUNT = 0.5  # added to counts before the root is taken
BASIS = (PivotedCholesky(1e-8, 1000), None)  # of parameters, and of what is regressed on them
POOL = 20_000  # draws of the prior that every posterior starts from
SHARE = 0.5  # of the draws asked for, the effective size at which those of the prior will do
LEAST = -1e8  # of a log likelihood
ROWS = 2500  # that correlations are learned from
PAIRED = 12  # outputs whose correlations may vary
WIDE = 10.0  # variances, at which products of noise are clipped
SINGULAR = 0.02  # eigenvalue of a correlation matrix, at least
SURE = 3.0  # standard errors that correlations which vary must gain


@dataclass(frozen=True, eq=False)
class Expansion:
    """A function `Σ_j k(x, p_j) c_j + middle`, without the solve that coordinates need."""

    kernel: Kernel
    landmarks: np.ndarray  # (r, d)
    coefficients: np.ndarray  # (r, q)
    middle: np.ndarray  # (q,)

    @classmethod
    def of(cls, space: Space, image: np.ndarray, middle: Any) -> Expansion:
        """From coordinates ψ(x) = L⁻¹ k(P, x): `ψ(x)·image` (r, q)."""
        known = space.map_.landmarks
        assert known is not None
        landmarks, L = (to_numpy(part) for part in known)
        coefficients = solve_triangular(L, image, lower=True, trans=1)
        middle = np.zeros(image.shape[1]) if middle is None else to_numpy(middle)
        return cls(space.kernel_, landmarks, coefficients, middle)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return self.kernel.gram_matrix(x, self.landmarks) @ self.coefficients + self.middle


@dataclass(frozen=True, eq=False)
class OutputScale:
    """Outputs as they are, or their logarithms, or their roots, column by column."""

    kept: np.ndarray  # the columns that are of use
    logs: np.ndarray  # (p,), which of these
    roots: np.ndarray
    middle: np.ndarray  # (p,), of the outputs on their scales
    spread: np.ndarray

    @classmethod
    def fit(cls, theta: np.ndarray, outputs: np.ndarray) -> tuple[OutputScale, np.ndarray]:
        """The scale, and the outputs on it, whole numbers spread over the unit around each."""
        whole = (outputs == np.round(outputs)).all(axis=0)
        around = np.random.default_rng(0).uniform(-0.5, 0.5, size=outputs.shape)
        scale = cls.of(theta, outputs)
        return scale, scale.forward(outputs + np.where(whole, around, 0.0))

    @classmethod
    def of(cls, theta: np.ndarray, outputs: np.ndarray) -> OutputScale:
        """The scale on which nearest neighbours differ least, for a normal difference."""
        kept = useful_columns(theta, outputs)
        p = len(kept)
        z = (theta - theta.mean(axis=0)) / or_one(theta.std(axis=0))
        near = cKDTree(z).query(z, k=2)[1][:, 1]
        logs, roots = np.zeros(p, dtype=bool), np.zeros(p, dtype=bool)
        for j, y in enumerate(outputs[:, kept].T):
            if y.min() < 0:
                continue
            score = {"plain": log_spread(y, near)}
            score["root"] = log_spread(np.sqrt(y + COUNT), near) + log_mean(2 * np.sqrt(y + COUNT))
            if y.min() > 0:
                score["log"] = log_spread(np.log(y), near) + log_mean(y)
            best = min(score, key=lambda name: score[name])
            if score[best] < score["plain"] - CLEARLY:
                logs[j], roots[j] = best == "log", best == "root"
        found = cls(kept, logs, roots, np.zeros(p), np.ones(p))
        u = found.forward(outputs)
        return cls(kept, logs, roots, u.mean(axis=0), or_one(u.std(axis=0)))

    def forward(self, y: np.ndarray) -> np.ndarray:
        """Outputs (n, p) on their scales, standardised."""
        y, least = y[:, self.kept], np.finfo(float).tiny
        u = np.where(self.logs, np.log(np.where(self.logs, np.maximum(y, least), 1.0)), y)
        u = np.where(self.roots, np.sqrt(np.where(self.roots, np.maximum(y + COUNT, 0), 1.0)), u)
        return np.asarray((u - self.middle) / self.spread)


def log_spread(values: np.ndarray, near: np.ndarray) -> float:
    """The logarithm of the deviation of differences between neighbours."""
    difference = values - values[near]
    return 0.5 * float(np.log(np.maximum((difference**2).mean(), np.finfo(float).tiny)))


def log_mean(values: np.ndarray) -> float:
    """What a change of scale with the slope 1/values adds to minus the log density."""
    return float(np.log(values).mean())


@dataclass(frozen=True, eq=False)
class Correlation:
    """Correlations of the noise as functions of the parameters: regressions of its products."""

    products: Expansion  # (p (p - 1)/2) of them
    p: int

    @classmethod
    def of(cls, x: np.ndarray, noise: np.ndarray) -> tuple[Correlation, np.ndarray] | None:
        """With some of the noise (n, p) decorrelated; None if left-out rows are not better for it.

        Judged by the log density of normal noise with these correlations, against fixed ones.
        """
        n, p = noise.shape
        if not 1 < p <= PAIRED:
            return None
        some = np.linspace(0, n - 1, min(n, ROWS)).astype(int)
        x, noise, upper = x[some], noise[some], np.triu_indices(p, 1)
        values = np.clip(noise[:, upper[0]] * noise[:, upper[1]], -WIDE, WIDE)
        operator = ConditionalEmbedding(basis=BASIS).fit(x, values).operator_
        found = cls(expansion_of(operator, values), p)
        left_out = to_numpy(operator.leave_one_out(values))
        (root, sizes), (fixed, same) = (
            inverse_roots(C) for C in (found.matrices(left_out), np.corrcoef(noise.T)[None])
        )
        varying, plain = ((own @ noise[:, :, None])[:, :, 0] for own in (root, fixed))
        gain = 0.5 * (plain**2 - varying**2).sum(axis=1) + same - sizes
        if gain.mean() < SURE * gain.std() / np.sqrt(len(gain)):
            return None
        return found, varying

    def matrices(self, products: np.ndarray) -> np.ndarray:
        """Correlation matrices (n, p, p) from their upper triangles (n, ·)."""
        found = np.zeros((len(products), self.p, self.p))
        i, j = np.triu_indices(self.p, 1)
        found[:, i, j] = found[:, j, i] = products
        found[:, range(self.p), range(self.p)] = 1.0
        return found

    def roots(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`C(x)^(-1/2)` (n, p, p) and `log √det C(x)` (n,)."""
        return inverse_roots(self.matrices(self.products(x)))


def inverse_roots(C: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`C^(-1/2)` and `log √det C` of matrices (n, p, p), no eigenvalue of C too small."""
    values, vectors = np.linalg.eigh(C)
    values = np.maximum(values, SINGULAR)
    root = (vectors / np.sqrt(values)[:, None, :]) @ vectors.transpose(0, 2, 1)
    return root, 0.5 * np.log(values).sum(axis=1)


def expansion_of(operator: Any, values: np.ndarray) -> Expansion:
    """`x ↦ E[values | x]`."""
    functional = operator.functional(lambda _: values)
    return Expansion.of(operator.source, to_numpy(functional.image).T, functional.middle)


@dataclass(frozen=True, eq=False)
class OutputLaw:
    """P(output | parameters): a mean, a scale where it varies, and noise."""

    parameters: TargetScale  # positive ones are taken on a logarithmic scale
    outputs: OutputScale
    mean: Expansion
    log_scale: Expansion | None
    correlation: Correlation | None
    noise: NoiseMixture
    unit: np.ndarray  # (p,), of the noise

    @classmethod
    def of(
        cls, theta: np.ndarray, outputs: np.ndarray, support: tuple[np.ndarray, np.ndarray]
    ) -> OutputLaw | None:
        """From simulations; None if outputs are not what it is made for."""
        if len(theta) < FEWEST:
            return None
        parameters = logarithmic(theta, support)
        x = parameters.forward(theta)
        scale, y = OutputScale.fit(x, outputs)
        if not 0 < len(scale.kept) <= MOST:
            return None
        if any(takes_few_values(column[:, None]) for column in outputs[:, scale.kept].T):
            return None  # noise around a mean is not what makes a few values differ
        model = ConditionalEmbedding(basis=BASIS).fit(x, y)
        operator = model.operator_
        shape = operator.shape
        if not isinstance(shape, ResidualShape) or operator.source.map_.landmarks is None:
            return None
        mean, logs = expansion_of(operator, y), None
        if shape.log_scale is not None:
            logs = Expansion.of(shape.log_scale.space, shape.log_scale.image, None)
        unit = or_one(shape.residuals.std(axis=0))
        noise = shape.residuals / unit
        varying = Correlation.of(to_numpy(shape.evidence.x), noise)
        correlation, noise = (None, noise) if varying is None else varying
        return cls(parameters, scale, mean, logs, correlation, NoiseMixture.of(noise), unit)

    def moments(self, theta: np.ndarray) -> tuple[np.ndarray, ...]:
        """Means, scales and roots of inverse correlations of outputs, at parameters (n, d)."""
        x = self.parameters.forward(theta)
        mean = self.mean(x)
        scale = np.ones_like(mean) if self.log_scale is None else scales_of(self.log_scale(x))
        if self.correlation is None:
            return mean, scale * self.unit
        return mean, scale * self.unit, *self.correlation.roots(x)

    def log_density(self, y: np.ndarray, moments: tuple[np.ndarray, ...]) -> np.ndarray:
        """Of one output (p,) on its scale, at the parameters that the moments are of."""
        mean, scale, *correlation = moments
        noise, sizes = (y - mean) / scale, np.log(scale).sum(axis=1)
        if correlation:
            root, size = correlation
            noise, sizes = (root @ noise[:, :, None])[:, :, 0], sizes + size
        return np.maximum(self.noise.log_density(noise) - sizes, LEAST)


def useful_columns(theta: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """The outputs that vary; if they are many or of few values, those that the parameters change.

    A count that is nearly always zero, whatever the parameters, says nothing.
    """
    kept = np.flatnonzero(np.ptp(outputs, axis=0) > 0)
    looked = np.array([takes_few_values(column[:, None]) for column in outputs[:, kept].T], bool)
    if len(kept) > MOST:
        looked[:] = True
    if len(kept) > SCREENED or not looked.any():
        return kept
    among = np.flatnonzero(looked)
    looked[among[dependent_columns(theta, outputs[:, kept[among]])]] = False
    return kept[~looked]


def logarithmic(theta: np.ndarray, support: tuple[np.ndarray, np.ndarray]) -> TargetScale:
    """Parameters with one end on a logarithmic scale, others as they are."""
    low, high = support
    one = np.isfinite(low) ^ np.isfinite(high)
    ends = np.where(one, low, -np.inf), np.where(one, high, np.inf)
    return TargetScale.between(theta, ends, np.stack([theta.min(axis=0), theta.max(axis=0)]))


@dataclass(frozen=True, eq=False)
class LikelihoodPosterior:
    """Posteriors by a learned likelihood, for any observation."""

    law: OutputLaw
    prior: NormalMap
    box: np.ndarray | None  # [low, high], the parameters that the law is learned for
    power: float = 1.0  # of the likelihood: less, where the law is less certain than it looks

    @cached_property
    def pool(self) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...]]:
        """Draws of the prior: normal coordinates, parameters, and moments of their outputs."""
        z = self.prior.draw(POOL, self.box, np.random.default_rng(0))
        theta = self.prior.points(z)
        return z, theta, self.law.moments(theta)

    def belief(self, y: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """The posterior of an observation (p,): points (m, d), about n of them, and weights."""
        z, theta, moments = self.pool
        y = self.law.outputs.forward(y[None])[0]
        logs = self.power * self.law.log_density(y, moments)
        p = np.exp(logs - logs.max())
        p /= p.sum()
        if 1 / (p @ p) >= SHARE * n and n < POOL / 4:
            kept = np.flatnonzero(p > 1e-6 * p.max())
            return theta[kept], p[kept] / p[kept].sum()

        def log_likelihood(z: np.ndarray) -> np.ndarray:
            theta = self.prior.points(z)
            found = self.power * self.law.log_density(y, self.law.moments(theta))
            if self.box is not None:
                found = np.where(in_box(theta, *self.box), found, LEAST)
            return found

        found = temper(Population(z, logs), log_likelihood, n, np.random.default_rng(0))
        return self.prior.points(found), np.full(len(found), 1 / len(found))
