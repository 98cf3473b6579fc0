"""Posteriors P(X|Y) under a prior, as operators.

Where prior and observation conflict, a posterior's weights cancel and their normalised mean is
anything. Two cheap signs say where to look: the mass, which should be about one, and the embedding
of Y under the prior at y, relative to its average ‖m_W‖². Neither means anything under a kernel
without constants, such as the trace kernel, where mass is not determined.
"""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any

import numpy as np

from meanmap.arrays import Array, Points, asarray, assign, namespace, take, to_numpy
from meanmap.conditional.operator import ConditionalOperator, Functional, as_embedding
from meanmap.conditional.trust import Trust
from meanmap.embeddings import Embedding, embedding_of, row_blocks
from meanmap.linalg import ConflictWarning, Spectrum
from meanmap.rules import CONFLICT, cancelling, positive_part

HALF = 0.5  # of its mass: a posterior that has less is completed by the prior
UNLIKELY = 0.03  # an observation with less evidence than this is unlikely under the prior
CANCELLED = 0.9  # κ below which weights cancel for an observation that is unlikely
LEVERAGE = 1 / 8  # an answer rests on eight rows of average weight, at least
TYPICAL = 3.0  # times the average leverage, which is never too much
OUTLYING = 3.0  # times the leverage of nearly all rows: the prior does not predict such a query


class PosteriorOperator(ConditionalOperator):
    """A posterior by Bayes' rule: P(X|Y) for a prior on X.

    Bayes' rule divides by the evidence: so do answers, by the mass of their weights as long as
    that is more than a half. Where less is left the prior makes up the rest, and where the weights
    cancel their positive part is used.
    """

    computed = (*ConditionalOperator.computed, "_has_mass", "_typical")

    def __init__(self, *arguments: Any, marginal: Array, **options: Any) -> None:
        super().__init__(*arguments, **options)
        #: The embedding of Y under the prior, in coordinates.
        self.marginal = marginal

    @cached_property
    def _has_mass(self) -> bool:
        return float(self.marginal @ self.mass) > 0.5

    @cached_property
    def _typical(self) -> Array | None:
        """The functional `y ↦ m_W(y)/‖m_W‖²`, or None where it cannot tell what is typical."""
        if not self.source.kernel_.bounded:
            return None
        return self.marginal / (self.marginal @ self.marginal)

    def _suspicious(self, features: Array) -> Array:
        """Which weights may cancel."""
        if not self._has_mass:
            return namespace(features).zeros_like(features[..., 0]) > 0
        suspicious = features @ self.mass < CONFLICT
        if self._typical is not None:
            suspicious = suspicious | (features @ self._typical < UNLIKELY)
        return suspicious

    def _normalized(self, features: Array) -> Array:
        """Features over the mass that they have, or a half."""
        if self.rest is None or not self._has_mass:
            return features
        xp = namespace(features)
        mass = features @ self.mass
        return features / xp.where(mass > HALF, mass, 0 * mass + HALF)[..., None]

    def _safe_weights(self, features: Array) -> Array:
        """Weights, replaced by their normalised positive part where they cancel."""
        known = self._normalized(features)
        ones = namespace(known).ones_like(known[..., 0])
        return self._without_conflict(self.factored_weights(known, ones).dense(), features)

    def _without_conflict(self, weights: Array, features: Array) -> Array:
        """The normalised positive part of weights where they cancel, with a warning.

        They cancel where κ = Σw/Σ|w| < 0.2, or κ < 0.9 for an observation that the prior makes
        unlikely.
        """
        xp = namespace(weights)
        least: Any = CONFLICT
        if self._typical is not None:
            evidence = features @ self._typical
            ones = xp.ones_like(weights[..., 0])
            least = xp.where(evidence < UNLIKELY, CANCELLED * ones, CONFLICT * ones)
        conflict = cancelling(weights, least)
        if not bool(xp.any(conflict)):
            return weights
        cancelled = to_numpy(conflict)
        try:
            part = positive_part(xp.where(conflict[..., None], weights, xp.ones_like(weights)))
        except ValueError as error:
            raise ValueError(
                "the posterior has no positive weight at all: prior and observation have nothing "
                "in common. Widen the prior or the bandwidth, or raise the regularisation."
            ) from error
        warnings.warn(
            f"prior and observation conflict in {int(cancelled.sum())} of {cancelled.size} "
            "queries: the posterior weights cancel, so their positive part is used. The training "
            "sample has hardly any point that suits both; draw more there, or widen the prior.",
            ConflictWarning,
            stacklevel=6,
        )
        return xp.where(conflict[..., None], part, weights)

    def answer(self, features: Array) -> Embedding:
        if not bool(namespace(features).any(self._suspicious(features))):
            return self.embedding(self._normalized(features))
        weights = self._safe_weights(features)
        exact = self._known_coordinates is not None
        coordinates = weights @ self.target_rows if exact else None
        return embedding_of(self.target, self.target.kernel_, self.atoms, weights, coordinates)

    def evaluate(self, functional: Functional, features: Array) -> Array:
        """The values of a functional; where weights cancel, what is left of them says it."""
        values = super().evaluate(functional, self._normalized(features))
        suspicious = to_numpy(self._suspicious(features))
        if suspicious.any():
            weights = self._safe_weights(take(features, suspicious))
            values = assign(values, suspicious, weights @ functional.values)
        return values


class CautiousPosterior(PosteriorOperator):
    """A posterior whose answers never rest on a few rows: outlying y are regularised more.

    The variance of an answer grows with the leverage `ψ(y)ᵀ (C_WW + δI)⁻¹ ψ(y) Σp²`, which is 1
    where a single row of average weight decides. Where y is far from what the prior predicts, and
    its leverage is more than 1/8 and than three times the average, δ is raised for this y until it
    is not. Since `(C_WW + δ'I)⁻¹ ψ(y)` is `(C_WW + δI)⁻¹` of another vector, this changes the
    features of such y and nothing else.
    """

    computed = (*PosteriorOperator.computed, "_usual_leverage")
    _trust = Trust(None)  # leverage says where an answer is extrapolated

    def __init__(self, *arguments: Any, spectrum: Spectrum, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._spectrum = spectrum  # of C_WW

    def features(self, points: Points) -> Array:
        limited, leverage = self._limit_leverage(super().features(points))
        alone = to_numpy(leverage > 1)
        if alone.any():
            alone = to_numpy(leverage > max(1.0, OUTLYING * self._usual_leverage))
        if alone.any():
            warnings.warn(
                f"prior and observation conflict in {int(alone.sum())} of {alone.size} queries: "
                "the observation is far from what the prior predicts, and the answer is mostly "
                "smoothing. Draw more training points that suit both, or widen the prior.",
                ConflictWarning,
                stacklevel=4,
            )
        return limited

    @cached_property
    def _usual_leverage(self) -> float:
        """What 99% of the rows have at most, counted by their weights under the prior."""
        parts = [
            to_numpy(namespace(rows).sum((rows @ self.inverse) * rows, axis=1))
            for _, rows in row_blocks(self.known_rows)
        ]
        leverage, p = np.concatenate(parts), to_numpy(self.scale)
        order = np.argsort(leverage)
        at = int(np.searchsorted(np.cumsum(p[order]), 0.99 * p.sum()))
        return float(leverage[order][min(at, len(p) - 1)] * (p @ p))

    def _limit_leverage(self, features: Array) -> tuple[Array, Array]:
        """Features whose leverage is bounded, and the leverage that they had before."""
        xp, s, least = namespace(features), self._spectrum.values, self.regularization
        s = xp.where(s > 0, s, xp.zeros_like(s))
        if not least or s.shape[0] == 0:
            return features, xp.zeros_like(features[:, 0])
        share = float(xp.sum(self.scale * self.scale))  # one over the effective number of rows
        most = max(LEVERAGE, TYPICAL * share * float(xp.sum(s / (s + least))))
        z = features @ self._spectrum.vectors
        leverage = share * xp.sum(z * z / (s + least), axis=1)
        high = to_numpy(leverage > most)
        if not high.any():
            return features, leverage
        z, before = take(z, high), take(features, high)
        low = xp.zeros_like(z[:, :1]) + least
        top = low + share * xp.sum(z * z, axis=1)[:, None] / most  # where it is certainly less
        for _ in range(50):
            delta = xp.sqrt(low * top)
            more = share * xp.sum(z * z / (s + delta), axis=1)[:, None] > most
            low, top = xp.where(more, delta, low), xp.where(more, top, delta)
        after = (z * ((s + least) / (s + top))) @ self._spectrum.vectors.T
        mass, now = before @ self.mass, after @ self.mass  # the total mass stays as it was
        known = (mass > 0) & (now > 0)
        one = xp.ones_like(now)
        after = after * xp.where(known, mass / xp.where(known, now, one), one)[:, None]
        return assign(features, high, after), leverage

    def source_coordinates(self, prior: Any) -> Array:
        """A mixture of observations, those that ask for too much replaced as in `given`."""
        prior = as_embedding(prior, self.source)
        like = self.source.example_
        atoms = self.source.kernel_.check(prior.atoms, "the prior's atoms", like)
        features = self._limit_leverage(self.source.coordinates(atoms))[0]
        return asarray(prior.weights, features) @ features


class ReweightedPosterior(PosteriorOperator):
    """The posterior with weights `β(y) ∘ ρ`, normalised, β(y) the plain conditional weights.

    Nothing is factorised for a new prior. The normalisation makes it nonlinear in ψ(y), so that it
    is queried point by point, and pushes a distribution by querying at its atoms.
    """

    def __init__(self, *arguments: Any, ratio: Array, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._ratio = ratio  # ρ

    def _suspicious(self, features: Array) -> Array:
        """Everywhere: the weights have to be normalised, so they are computed anyway."""
        return namespace(features).zeros_like(features[..., 0]) == 0

    def _safe_weights(self, features: Array) -> Array:
        xp = namespace(features)
        ones = xp.ones_like(features[..., 0])
        weights = self.factored_weights(features, ones).dense() * self._ratio
        weights = self._without_conflict(weights, features)
        return weights / xp.sum(weights, axis=-1)[..., None]

    @property
    def matrix(self) -> Array:
        raise TypeError(
            "the reweighted posterior is normalised for every observation, so it is not a linear "
            'operator and has no matrix; method="nonnegative" has one.'
        )

    def push(self, prior: Any) -> Embedding:
        prior = as_embedding(prior, self.source)
        like = self.source.example_
        atoms = prior.atoms_for(self.source.kernel_, "the prior's atoms", like)
        answers = self.answer(self.features(atoms))
        alpha = asarray(prior.weights, answers.weights)
        return embedding_of(
            self.target,
            self.target.kernel_,
            self.atoms,
            alpha @ answers.weights,
            alpha @ answers.coordinates,
        )
