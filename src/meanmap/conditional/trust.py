"""Queries outside the data: what rows can tell of an answer there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from meanmap.arrays import Array, Points, namespace, take, to_numpy
from meanmap.embeddings.element import Deferred
from meanmap.exceptions import DataWarning, warn

if TYPE_CHECKING:
    from meanmap.conditional.operator import ConditionalOperator

FAR = 0.05  # a query whose support is below this lies far from the data
OUTSIDE = 4.0  # times the variance of answers at training points: beyond them
UNSURE = 0.05  # what the mass of weights differs from one by, at least, outside the data
LITTLE = 1 / 3  # of the usual mass: outside the data
LOOKED = 2000  # training rows at most that the largest variance is taken from
ALONE = 1e-6  # 1 - hᵢ of a row that alone decides the answer at its own point


@dataclass(frozen=True)
class Trust:
    """What is usual at the training points of a ridge regression.

    The variance of an answer in units of the noise, `ψᵀHψ + (k(x, x) - ‖ψ‖²)/λ`, is that of a
    Gaussian process with noise λ: small among the data, up to k(x, x)/λ far away.
    """

    variance: float | None  # that 99 of 100 training points have at most; None if not known
    mass: float = 1.0  # the median mass of their weights

    @classmethod
    def of(cls, operator: ConditionalOperator) -> Trust:
        """Each training point as the other rows see it.

        `v/(1 - wv)` is what is left of H when one of them is taken away. A basis that is coarse
        misses as much of them as of new points; so that points without any support still stand
        out, this counts up to what those have.
        """
        if operator.regularization is None:
            return cls(None)
        n = operator.scale.shape[0]
        some = np.linspace(0, n - 1, min(n, LOOKED)).astype(int)
        scale = to_numpy(take(operator.scale, some))
        some = some[scale > 1e-6 * max(float(scale.max()), 0.0)]
        if not len(some):
            return cls(None)
        known = operator.known_rows
        if isinstance(known, Deferred):
            rows = operator.with_constant(operator.source.coordinates(take(known.points, some)))
        else:
            rows = take(known, some)
        v = to_numpy(operator.solver.forms(rows))
        left = np.maximum(1 - to_numpy(take(operator.scale, some)) * v, ALONE)
        mass = np.ones(1)
        if not operator.intercept:
            mass = np.maximum(1 - (1 - to_numpy(rows @ operator.mass)) / left, FAR)
        widest = float(np.quantile(v / left, 0.99))
        if operator.source.map_.projects and operator.regularization:
            missed, alone = _missed_at(operator, some, rows)
            coarse = float(np.quantile(v / left + missed, 0.99))
            widest = max(widest, min(coarse, alone / OUTSIDE))
        return cls(widest, float(np.median(mass)))

    def outside(
        self, operator: ConditionalOperator, points: Points, features: Array
    ) -> np.ndarray | None:
        """Which queries lie outside the data: the variance of the answer is unusually large.

        The mass of the weights, which is about one among the data and costs far less, says where
        the variance has to be computed; where λ is so large that the variance has no room to grow,
        a third of the usual mass says enough.
        """
        far = None
        if self.variance is not None:
            far = self._beyond(operator, points, features)
        if operator.regularization in (None, 0.0) and operator.source.map_.projects:
            psi = features[:, : operator.source.rank_]
            size = namespace(psi).sum(psi * psi, axis=1)
            alone = to_numpy(size < FAR * operator.source.kernel_.squared_norms(points))
            far = alone if far is None else far | alone
        return far

    def _beyond(self, operator: ConditionalOperator, points: Points, features: Array) -> np.ndarray:
        assert self.variance is not None
        xp, bar = namespace(features), OUTSIDE * self.variance
        missed = xp.zeros_like(features[:, 0])
        if operator.source.map_.projects and operator.regularization:
            missed = _missing_variance(
                operator, features, operator.source.kernel_.squared_norms(points)
            )
        found = to_numpy(missed)
        looked, little = np.ones(len(found), dtype=bool), np.zeros(len(found), dtype=bool)
        if not operator.intercept:
            mass = to_numpy(features @ operator.mass)
            if operator.source.kernel_.bounded:  # else mass is not determined
                little = mass < LITTLE * self.mass
            looked = (abs(mass - 1) > UNSURE) & (found <= bar)
        if looked.any():
            found = np.maximum(found, 0.0)
            found[looked] += to_numpy(operator.solver.forms(take(features, looked)))
        return (found > bar) | little

    def warn_outside(self, operator: ConditionalOperator, points: Points, features: Array) -> None:
        """Warn of queries outside the data."""
        far = self.outside(operator, points, features)
        if far is not None and far.any():
            back = "" if operator.rest is None else ", and returns to the marginal distribution"
            warn(
                f"{int(far.sum())} of {len(far)} query points lie outside the data: the answer "
                f"there is extrapolated{back}. Training rows say little about it: the variance of "
                "the answer is far larger than at training points, or hardly any weight is left.",
                DataWarning,
            )


def _missing_variance(operator: ConditionalOperator, features: Array, diagonal: Array) -> Array:
    """`(k(x, x) - ‖ψ‖²)/λ`: what the coordinates do not show of a variance."""
    psi = features[:, : operator.source.rank_]
    missed = diagonal - namespace(psi).sum(psi * psi, axis=1)
    return missed / operator.regularization if operator.regularization else missed


def _missed_at(
    operator: ConditionalOperator, some: np.ndarray, rows: Array
) -> tuple[np.ndarray, float]:
    """What coordinates miss of training rows, and of a point that has no support."""
    kernel, known = operator.source.kernel_, operator.known_rows
    if isinstance(known, Deferred):
        diagonal = kernel.squared_norms(take(known.points, some))
    elif kernel.bounded:  # only coordinates are kept; nearly all of these have one value
        diagonal = kernel.squared_norms(operator.source.example_) + 0 * rows[:, 0]
    else:
        psi = rows[:, : operator.source.rank_]
        size = namespace(psi).sum(psi * psi, axis=1)
        diagonal = size / (1 - min(operator.source.residual_, 0.5))
    missed = np.maximum(to_numpy(_missing_variance(operator, rows, diagonal)), 0.0)
    usual = float(np.median(to_numpy(diagonal)))
    return missed, (1 - FAR) * usual / (operator.regularization or 1.0)
