"""Conditional distributions as linear operators.

Every conditional of this library has one form. With a sample's coordinates `rows` on the side we
condition on, weights `scale` and a regularised inverse `H`, the weights of the answer on its atoms
are `scale ∘ rows H ψ(x)`:

| operator | scale | rows | H |
|---|---|---|---|
| conditional P(Y|X) | w | Ψ_X | (C_XX + λI)⁻¹ |
| posterior (b), squared | u | Ψ_Y | (C_WW² + δI)⁻¹ C_WW |
| posterior (a), squared | α | Ψ̃ (C_XX + λI)⁻¹ C_XY | the same |
| posterior, importance | u₊ | Ψ_Y | (C_WW + δI)⁻¹ |

The reweighted posterior is not linear in ψ(y) and has a class of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

from meanmap.arrays import (
    Array,
    Points,
    asarray,
    count,
    float_like,
    namespace,
    one_blas_thread,
    to_numpy,
)
from meanmap.embeddings import (
    Embedding,
    FactoredWeights,
    embed,
    embedding_of,
    function_values,
    numeric,
)
from meanmap.kernels import Kernel
from meanmap.linalg import ConflictWarning
from meanmap.spaces import Space

FAR = 0.05  # a query whose support is below this lies far from the data
CONFLICT = 0.2  # κ = Σw/Σ|w| below which a posterior's weights cancel


class ConditionalOperator:
    """A conditional distribution P(target | source), immutable: query it, or push through it.

    `ConditionalEmbedding.posterior(prior)` returns one: P(X|Y) under the prior.

    Attributes
    ----------
    source, target : the spaces it maps between
    atoms : the points that carry the answers' weights
    matrix : the operator in coordinates, r_target × r_source

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import ConditionalEmbedding, embed
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 1))
    >>> Y = X + 0.5 * rng.normal(size=(500, 1))
    >>> posterior = ConditionalEmbedding().fit(X, Y).posterior(embed(X))
    >>> posterior.given([1.0]).mean().round(1)  # the truth is 0.8
    array([0.8])
    >>> tail = posterior.functional(lambda x: x[:, 0] > 1.0)  # P(X > 1 | y), cached for every y
    >>> bool(tail([2.0]) > tail([0.0]))
    True
    """

    def __init__(
        self,
        source: Space,
        target: Space,
        atoms: Points,
        coordinates: Array | None,
        rows: Array,
        scale: Array,
        inverse: Array,
        *,
        intercept: bool = False,
        guarded: bool = True,
    ) -> None:
        self.source = source
        self.target = target
        self.atoms = atoms
        # ψ of the atoms, if the target's space was fitted to them; None if it only projects them,
        # so that answers are atoms first
        self._known_coordinates = coordinates
        self._rows = rows
        self._scale = scale
        self._inverse = inverse
        self._intercept = intercept  # one more coordinate, constantly 1, that is not regularised
        self._guarded = guarded  # answers are probabilities: watch for weights that cancel

    # --- the operator -------------------------------------------------------------------------

    @cached_property
    def _coordinates(self) -> Array:
        known = self._known_coordinates
        return self.target._transform(self.atoms) if known is None else known

    @cached_property
    def matrix(self) -> Array:
        """The operator in coordinates; with an intercept its last column is the constant's."""
        return self._image(self._coordinates)

    def _image(self, values: Array) -> Array:
        """`valuesᵀ diag(scale) rows H`: any function of the atoms, as one of the query."""
        return (values.T @ (self._scale[:, None] * self._rows)) @ self._inverse

    @cached_property
    def _mass(self) -> Array:
        return (self._scale @ self._rows) @ self._inverse

    @cached_property
    def _means(self) -> list[Functional]:
        """The functionals of the points themselves, one for each variable."""
        parts = self.atoms if isinstance(self.atoms, tuple) else (self.atoms,)
        return [self._functional(numeric(part)) for part in parts]

    # --- queries ------------------------------------------------------------------------------

    def _features(self, points: Points) -> Array:
        coordinates = self.source._transform(points)
        self._warn_if_far(points, coordinates)
        return self._with_intercept(coordinates, None)

    def _with_intercept(self, coordinates: Array, mass: Array | None) -> Array:
        if not self._intercept:
            return coordinates
        xp = namespace(coordinates)
        one = xp.ones_like(coordinates[..., :1])
        return xp.concat([coordinates, one if mass is None else one * mass[..., None]], axis=-1)

    def _warn_if_far(self, points: Points, coordinates: Array) -> None:
        support = self.source._support(points, coordinates)
        far = to_numpy(support < FAR)
        if far.any():
            warnings.warn(
                f"{int(far.sum())} of {len(far)} query points lie far from the data (support "
                f"{float(to_numpy(support).min()):.2g}): the answer there is not informed by any "
                "sample.",
                ConflictWarning,
                stacklevel=5,
            )

    def _rows_of(self, x: Any) -> tuple[Array, bool]:
        points, single = self.source.kernel_.rows(x, self.source._sample)
        return self._features(points), single

    def _points_of(self, x: Any) -> Array:
        return self._features(self.source.kernel_.check(x, "X", self.source._sample))

    def given(self, x: Any) -> Embedding:
        """The embedding of the conditional distribution at x.

        Rows of points give a batch of embeddings, a single point gives one.
        """
        with one_blas_thread():
            features, single = self._rows_of(x)
            return self._answer(features[0] if single else features)

    def _answer(self, features: Array) -> Embedding:
        answer = self._embedding(features)
        if self._guarded:
            mass = features @ self._mass
            if bool(namespace(mass).any(mass < CONFLICT)):
                return self._guard(answer, mass)
        return answer

    def _embedding(self, features: Array) -> Embedding:
        """The element with these features of the source, its coordinates left until needed."""
        weights = FactoredWeights(self._scale, self._rows, features @ self._inverse.T)
        exact = self._known_coordinates is not None
        coordinates = partial(self._target_coordinates, features, weights) if exact else None
        return embedding_of(self.target, self.target.kernel_, self.atoms, weights, coordinates)

    def _target_coordinates(self, features: Array, weights: FactoredWeights) -> Array:
        few = features.ndim == 1 or features.shape[0] < self._coordinates.shape[1] // 8
        if few and "matrix" not in self.__dict__:  # the operator costs more than a few answers
            return weights.dense() @ self._coordinates
        return features @ self.matrix.T

    def _guard(self, answer: Embedding, mass: Array) -> Embedding:
        """Replace weights that cancel (κ < 0.2) by their positive part, with a warning."""
        weights = answer.weights
        xp = namespace(weights)
        clipped, conflict = settle(weights)
        if not bool(xp.any(conflict)):
            return answer
        warn_of_conflict(int(to_numpy(conflict).sum()), to_numpy(mass).size)
        kept = xp.where(conflict[..., None], clipped, weights)
        coordinates = None if self._known_coordinates is None else kept @ self._coordinates
        return embedding_of(self.target, self.target.kernel_, self.atoms, kept, coordinates)

    def weights(self, x: Any) -> Array:
        """The weights on the atoms at each x, shape (m, n); (n,) at a single point."""
        return self.given(x).weights

    def predict(self, X: Any) -> Array:
        """The conditional mean at each row of X, shaped like the atoms (raw weights)."""
        with one_blas_thread():
            features = self._points_of(X)
            means = tuple(functional.of(features) for functional in self._means)
            return means if isinstance(self.atoms, tuple) else means[0]

    def expect(self, f: Callable[[Points], Array] | Embedding, x: Any) -> Array:
        """`E[f | x]` for any function of the atoms, or an embedding: raw weights, linear in f."""
        return self.given(x).expect(f) if isinstance(f, Embedding) else self.functional(f)(x)

    def functional(self, f: Callable[[Points], Array]) -> Functional:
        """`x ↦ E[f | x]` with `f_Xᵀ R` cached, so that a new x costs one inner product.

        Fukumizu, Song and Gretton (2013, section 4.1).
        """
        return self._functional(function_values(f, self.atoms))

    def _functional(self, values: Array) -> Functional:
        flat = namespace(values).reshape(values, (values.shape[0], -1))
        return Functional(self, self._image(flat), values.shape[1:])

    # --- distributions in, distributions out --------------------------------------------------

    def source_coordinates(self, prior: Any) -> Array:
        """A prior's coordinates in the source space (its atoms re-embedded where need be)."""
        prior = as_embedding(prior, self.source)
        if prior._space is self.source:
            coordinates = prior.coordinates
        else:
            like = self.source._sample
            atoms = self.source.kernel_.check(prior.atoms, "the prior's atoms", like)
            coordinates = self.source._mean(atoms, asarray(prior.weights, float_like(like)))
        mass = asarray(prior.mass, coordinates) if self._intercept else None
        return self._with_intercept(coordinates, mass)

    def push(self, prior: Any) -> Embedding:
        """The distribution of the target when the source is distributed as the prior: sum rule."""
        with one_blas_thread():
            return self._embedding(self.source_coordinates(prior))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({count(self.atoms)} atoms, from {self.source.kernel_!r} "
            f"(rank {self.source.rank_}) to {self.target.kernel_!r} (rank {self.target.rank_}))"
        )


class Functional:
    """`x ↦ E[f | x]`, linear in ψ(x): one inner product a query."""

    def __init__(self, operator: ConditionalOperator, image: Array, shape: tuple[int, ...]) -> None:
        self._operator = operator
        self._image = image
        self._shape = shape

    def __call__(self, x: Any) -> Array:
        features, single = self._operator._rows_of(x)
        values = self.of(features)
        return values[0] if single else values

    def of(self, features: Array) -> Array:
        """The value at rows of features."""
        values = features @ self._image.T
        return namespace(values).reshape(values, (values.shape[0], *self._shape))


class ReweightedOperator(ConditionalOperator):
    """The posterior with weights `β(y) ∘ (u₊/w)^τ`, normalised, β(y) the plain conditional weights.

    Nothing is factorised for a new prior. The normalisation makes it nonlinear in ψ(y), so that it
    is queried point by point, and pushes a distribution by querying at its atoms.
    """

    def __init__(self, plain: ConditionalOperator, ratio: Array) -> None:
        super().__init__(
            plain.source,
            plain.target,
            plain.atoms,
            plain._coordinates,
            plain._rows,
            plain._scale,
            plain._inverse,
        )
        self._ratio = ratio

    def _answer(self, features: Array) -> Embedding:
        xp = namespace(features)
        beta = self._scale * ((features @ self._inverse.T) @ self._rows.T)
        weights = beta * self._ratio
        clipped, conflict = settle(weights)
        if bool(xp.any(conflict)):
            warn_of_conflict(int(to_numpy(conflict).sum()), to_numpy(conflict).size)
        total = xp.sum(weights, axis=-1, keepdims=True)
        safe = xp.where(conflict[..., None], xp.ones_like(total), total)
        weights = xp.where(conflict[..., None], clipped, weights / safe)
        coordinates = weights @ self._coordinates
        return embedding_of(self.target, self.target.kernel_, self.atoms, weights, coordinates)

    @property
    def matrix(self) -> Array:
        raise TypeError(
            "the reweighted posterior is normalised for every observation, so it is not a linear "
            'operator and has no matrix; method="importance" has one.'
        )

    def predict(self, X: Any) -> Array:
        with one_blas_thread():
            return self._answer(self._points_of(X)).moment(numeric)

    def functional(self, f: Callable[[Points], Array]) -> Any:
        values = function_values(f, self.atoms)
        return lambda x: self.given(x)._total(values)

    def push(self, prior: Any) -> Embedding:
        prior = as_embedding(prior, self.source)
        like = self.source._sample
        atoms = self.source.kernel_.check(prior.atoms, "the prior's atoms", like)
        answers = self._answer(self._features(atoms))
        alpha = asarray(prior.weights, answers.weights)
        return embedding_of(
            self.target,
            self.target.kernel_,
            self.atoms,
            alpha @ answers.weights,
            alpha @ answers.coordinates,
        )


def settle(weights: Array) -> tuple[Array, Array]:
    """The positive part normalised to one, and where it is needed: κ = Σw/Σ|w| < 0.2."""
    xp = namespace(weights)
    kappa_needed = xp.sum(weights, axis=-1) < CONFLICT * xp.sum(abs(weights), axis=-1)
    positive = xp.where(weights > 0, weights, xp.zeros_like(weights))
    total = xp.sum(positive, axis=-1, keepdims=True)
    none = total <= 0
    if bool(xp.any(none & kappa_needed[..., None])):
        raise ValueError(
            "the posterior has no positive weight at all: prior and observation have nothing in "
            "common. Widen the prior or the bandwidth, or raise the regularisation."
        )
    return positive / xp.where(none, xp.ones_like(total), total), kappa_needed


def warn_of_conflict(conflicts: int, of: int) -> None:
    """Say that prior and observation contradict each other."""
    warnings.warn(
        f"prior and observation conflict in {conflicts} of {of} queries: the posterior weights "
        "cancel (κ < 0.2), so their positive part is used. The training sample has hardly any "
        "point that suits both; draw more there, or widen the prior.",
        ConflictWarning,
        stacklevel=4,
    )


def as_embedding(prior: Any, space: Space) -> Embedding:
    """A prior: an embedding, or a plain sample that stands for one."""
    if isinstance(prior, Embedding):
        return prior
    kernel: Kernel = space.kernel_
    return embed(kernel.check(prior, "prior", space._sample), basis=space)
