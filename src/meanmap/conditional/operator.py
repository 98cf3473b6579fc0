"""Conditional distributions as linear operators.

With a sample's coordinates `rows` on the side we condition on, weights `scale` and a regularised
inverse `H`, the weights of the answer on its atoms are `scale ∘ rows H ψ(x)`: see `meanmap.rules`.

These weights need not sum to one: little of them is left far from the data. An operator that was
given `rest`, the weights of the target's marginal, adds what is missing of it,
`β(x) + (1 - Σβ(x)) rest`, which is the regression of φ(y) - μ on ψ(x) with the mean μ restored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from meanmap.arrays import (
    Array,
    Points,
    asarray,
    count,
    namespace,
    one_blas_thread,
    take,
    to_numpy,
    warn,
)
from meanmap.embeddings import (
    Deferred,
    Embedding,
    FactoredWeights,
    as_rows,
    embed,
    embedding_of,
    function_values,
    numeric,
    row_blocks,
)
from meanmap.linalg import ConflictWarning
from meanmap.rules import answer_weights
from meanmap.spaces import Space

FAR = 0.05  # a query whose support is below this lies far from the data
OUTSIDE = 4.0  # times the variance of answers at training points: beyond them
UNSURE = 0.05  # what the mass of weights differs from one by, at least, outside the data
LITTLE = 1 / 3  # of the usual mass: outside the data
LOOKED = 2000  # training rows at most that the largest variance is taken from
ALONE = 1e-6  # 1 - hᵢ of a row that alone decides the answer at its own point


@dataclass(frozen=True)
class Side:
    """One side of a paired sample: its points, their space and their coordinates there."""

    space: Space
    points: Points
    known: Any  # their coordinates; Deferred if too many to keep, None if the space only projects

    @property
    def coordinates(self) -> Array:
        """ψ of every point, a row each."""
        return self.space.coordinates(self.points) if self.known is None else as_rows(self.known)


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
        target: Side,
        rows: Any,
        scale: Array,
        inverse: Array,
        *,
        regularization: float | None = None,
        rest: Array | None = None,
    ) -> None:
        self.source = source
        self.target = target.space
        self.atoms = target.points
        #: The coordinates of the sample on the source's side, an array or `Deferred`.
        self.known_rows = rows
        #: The weights of those rows.
        self.scale = scale
        #: H; with an intercept it has one more coordinate, constantly 1, that is not regularised.
        self.inverse = inverse
        #: λ where `rows` are the sample's and H is its (C + λI)⁻¹, else None.
        self.regularization = regularization
        #: Weights that sum to one, which the mass that is missing goes to, or None.
        self.rest = rest
        # None where the target's space only projects the atoms, so that answers are atoms first
        self._known_coordinates = target.known

    #: What is computed when first asked for, and not saved. The matrix is: without it a few answers
    #: are computed another way, which rounds differently.
    computed: ClassVar[tuple[str, ...]] = (
        "target_rows",
        "mass",
        "_means",
        "_trust",
        "_rest_coordinates",
    )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in self.computed}

    # --- the operator -------------------------------------------------------------------------

    @property
    def intercept(self) -> bool:
        """Whether there is a coordinate that is constantly 1."""
        return self.inverse.shape[0] > self.source.rank_

    @property
    def rows(self) -> Array:
        """The coordinates of the sample on the source's side."""
        return as_rows(self.known_rows)

    @cached_property
    def target_rows(self) -> Array:
        """The coordinates of the atoms, a row each."""
        return Side(self.target, self.atoms, self._known_coordinates).coordinates

    @cached_property
    def matrix(self) -> Array:
        """The operator in coordinates; with an intercept its last column is the constant's."""
        return self.image(self.target_rows)

    def image(self, values: Array) -> Array:
        """Coefficients (q, r) of `x ↦ E[f | x]`, `valuesᵀ diag(scale) rows H`, for f (n, q)."""
        if isinstance(self.known_rows, Deferred):
            return self.known_rows.weighted(self.scale, values) @ self.inverse
        return (values.T @ (self.scale[:, None] * self.known_rows)) @ self.inverse

    @property
    def row_images(self) -> Array:
        """`diag(scale) rows H`, (n, r): `image(values)` is `valuesᵀ` times it."""
        return (self.scale[:, None] * self.rows) @ self.inverse

    @cached_property
    def mass(self) -> Array:
        """The functional that gives the sum of the weights, before any is added."""
        return self.image(namespace(self.scale).ones_like(self.scale)[:, None])[0]

    def with_constant(self, coordinates: Array, mass: Array | None = None) -> Array:
        """Coordinates of the source, with the constant one that an intercept takes."""
        if not self.intercept:
            return coordinates
        xp = namespace(coordinates)
        one = xp.ones_like(coordinates[..., :1])
        return xp.concat([coordinates, one if mass is None else one * mass[..., None]], axis=-1)

    # --- queries ------------------------------------------------------------------------------

    @cached_property
    def _trust(self) -> Trust:
        return Trust.of(self)

    def features(self, points: Points) -> Array:
        """Features of checked queries; a warning says where they lie outside the data."""
        features = self.with_constant(self.source.coordinates(points))
        self._trust.warn_outside(self, points, features)
        return features

    def given(self, x: Any) -> Embedding:
        """The embedding of the conditional distribution at x.

        Rows of points give a batch of embeddings, a single point gives one.
        """
        points, single = self.source.kernel_.rows(x, self.source.example_)
        with one_blas_thread(not single):
            features = self.features(points)
            return self.answer(features[0] if single else features)

    def answer(self, features: Array) -> Embedding:
        """The answers to features of queries."""
        return self.embedding(features)

    def embedding(self, features: Array, mass: Array | None = None) -> Embedding:
        """The elements that features of the source map to, linearly; a point's mass is 1."""
        mass = namespace(features).ones_like(features[..., 0]) if mass is None else mass
        weights = self.factored_weights(features, mass)
        exact = self._known_coordinates is not None
        coordinates = partial(self._target_coordinates, features, weights) if exact else None
        return embedding_of(self.target, self.target.kernel_, self.atoms, weights, coordinates)

    def factored_weights(self, features: Array, mass: Array) -> FactoredWeights:
        """The weights on the atoms for features of the source."""
        missing = None if self.rest is None else mass - features @ self.mass
        vector = features @ self.inverse.T
        return FactoredWeights(self.scale, self.known_rows, vector, self.rest, missing)

    def _target_coordinates(self, features: Array, weights: FactoredWeights) -> Array:
        few = features.ndim == 1 or features.shape[0] < self.target_rows.shape[1] // 8
        kept = not isinstance(self.known_rows, Deferred)
        if few and kept and "matrix" not in vars(self):
            return weights.dense() @ self.target_rows  # the matrix costs more than a few answers
        coordinates = features @ self.matrix.T
        if self.rest is None or weights.missing is None:
            return coordinates
        return coordinates + weights.missing[..., None] * self._rest_coordinates

    @cached_property
    def _rest_coordinates(self) -> Array:
        """The target's marginal in coordinates."""
        assert self.rest is not None
        return self.rest @ self.target_rows

    def weights(self, x: Any) -> Array:
        """The weights on the atoms at each x, shape (m, n); (n,) at a single point."""
        return self.given(x).weights

    def predict(self, X: Any) -> Array:
        """The conditional mean at each row of X, shaped like the atoms: that of `given`."""
        with one_blas_thread():
            features = self.features(self.source.kernel_.check(X, "X", self.source.example_))
            means = tuple(functional.of(features) for functional in self._means)
            return means if isinstance(self.atoms, tuple) else means[0]

    @cached_property
    def _means(self) -> list[Functional]:
        """The functionals of the points themselves, one for each variable."""
        parts = self.atoms if isinstance(self.atoms, tuple) else (self.atoms,)
        return [Functional(self, numeric(part)) for part in parts]

    def expect(self, f: Callable[[Points], Array] | Embedding, x: Any) -> Array:
        """`E[f | x]` for any function of the atoms, or an embedding; linear in f."""
        return self.given(x).expect(f) if isinstance(f, Embedding) else self.functional(f)(x)

    def functional(self, f: Callable[[Points], Array]) -> Functional:
        """`x ↦ E[f | x]` with `f_Xᵀ R` cached, so that a new x costs one inner product.

        Fukumizu, Song and Gretton (2013, section 4.1).
        """
        return Functional(self, function_values(f, self.atoms))

    def evaluate(self, functional: Functional, features: Array) -> Array:
        """The values (m, q) of a functional at features of queries."""
        values = features @ functional.image.T
        return values if functional.middle is None else values + functional.middle

    def middle(self, values: Array) -> Array | None:
        """The mean of values (n, q) under the target's marginal where weights sum to one.

        Sums are taken of what differs from it: that rounds less, and needs no mass to be added.
        """
        if self.rest is not None:
            return self.rest @ values
        if not self.intercept:
            return None
        return (self.scale @ values) / namespace(values).sum(self.scale)

    def leave_one_out(self, values: Array) -> Array:
        """`E[f | xᵢ]` at the sample's own points, each answered by the other rows: (n, q).

        `values` (n, q) is f at the atoms. `(f̂ᵢ - hᵢ fᵢ)/(1 - hᵢ)` with the leverage
        `hᵢ = scaleᵢ rowᵢᵀ H rowᵢ` is what ridge regression without row i gives, λ the same.

        Examples
        --------
        >>> import numpy as np
        >>> from meanmap import ConditionalEmbedding
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-3, 3, size=(300, 1))
        >>> y = np.sin(X) + 0.2 * rng.normal(size=(300, 1))
        >>> errors = y - ConditionalEmbedding().fit(X, y).operator_.leave_one_out(y)
        >>> round(float(errors.std()), 1)  # that of the noise
        0.2
        """
        if self.regularization is None:
            raise TypeError(
                "leave_one_out is known for conditionals fitted to rows, and for posteriors by "
                '"nonnegative" or "importance"; this one is not a ridge regression on rows that '
                "are kept."
            )
        centre = self.middle(values)
        image = self.image(values if centre is None else values - centre)
        parts = []
        for block, rows in row_blocks(self.known_rows):
            h = self.scale[block] * namespace(rows).sum((rows @ self.inverse) * rows, axis=1)
            left = 1 - h
            left = namespace(rows).where(left > ALONE, left, asarray(ALONE, left))[:, None]
            f = values[block]
            fitted = rows @ image.T if centre is None else centre + rows @ image.T
            error = f - fitted
            if self.rest is not None:  # the mean that is restored loses row i too
                p, missing = self.rest[block], 1 - rows @ self.mass
                others = 1 - namespace(p).where(p < 1, p, 0 * p)  # a row alone has none
                error = error + (missing * p / others)[:, None] * (f - centre)
            parts.append(f - error / left)
        return namespace(parts[0]).concat(parts)

    # --- distributions in, distributions out --------------------------------------------------

    def source_coordinates(self, prior: Any) -> Array:
        """A prior's coordinates in the source space (its atoms re-embedded where need be)."""
        prior = as_embedding(prior, self.source)
        coordinates = prior.in_space(self.source)
        mass = asarray(prior.mass, coordinates) if self.intercept else None
        return self.with_constant(coordinates, mass)

    def sample_weights(self, rows: Array, scale: Array, prior: Any) -> Array:
        """A prior as weights `scale ∘ rows H m_π` on a sample, given its coordinates."""
        m = self.source_coordinates(prior)
        return answer_weights(scale, self.with_constant(rows), self.inverse, m)

    def push(self, prior: Any) -> Embedding:
        """The distribution of the target when the source is distributed as the prior: sum rule."""
        with one_blas_thread():
            prior = as_embedding(prior, self.source)
            coordinates = self.source_coordinates(prior)
            return self.embedding(coordinates, asarray(prior.mass, coordinates))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({count(self.atoms)} atoms, from {self.source.kernel_!r} "
            f"(rank {self.source.rank_}) to {self.target.kernel_!r} (rank {self.target.rank_}))"
        )


class Functional:
    """`x ↦ E[f | x]`, linear in ψ(x): one inner product a query."""

    def __init__(
        self,
        operator: ConditionalOperator,
        values: Array,
        image: Array | None = None,
        middle: Array | None = None,
    ) -> None:
        self.operator = operator
        self.values = namespace(values).reshape(values, (values.shape[0], -1))
        self.shape = values.shape[1:]
        self.middle = operator.middle(self.values) if middle is None else middle
        if image is None:
            centred = self.values if self.middle is None else self.values - self.middle
            image = operator.image(centred)
        self.image = image

    def __call__(self, x: Any) -> Array:
        source = self.operator.source
        points, single = source.kernel_.rows(x, source.example_)
        values = self.of(self.operator.features(points))
        return values[0] if single else values

    def of(self, features: Array) -> Array:
        """The value at rows of features."""
        values = self.operator.evaluate(self, features)
        return namespace(values).reshape(values, (values.shape[0], *self.shape))


# --- queries outside the data ---------------------------------------------------------------------


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
        v = to_numpy(namespace(rows).sum((rows @ operator.inverse) * rows, axis=1))
        left = np.maximum(1 - to_numpy(take(operator.scale, some)) * v, ALONE)
        mass = np.ones(1) if operator.intercept else to_numpy(rows @ operator.mass)
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
            f = take(features, looked)
            found = np.maximum(found, 0.0)
            found[looked] += to_numpy(xp.sum((f @ operator.inverse) * f, axis=1))
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
                ConflictWarning,
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


def as_embedding(prior: Any, space: Space) -> Embedding:
    """A prior: an embedding, or a plain sample that stands for one."""
    if isinstance(prior, Embedding):
        return prior
    return embed(space.kernel_.check(prior, "prior", space.example_), basis=space)
