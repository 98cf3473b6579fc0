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
    epsilon,
    float_like,
    in_precision,
    namespace,
    one_blas_thread,
    take,
    to_numpy,
)
from meanmap.conditional.predictive import Predictive
from meanmap.conditional.selection import copy_groups
from meanmap.conditional.shape import (
    ROWS,
    AnswerShape,
    LeftOutRows,
    LevelShape,
    choose_shape,
    takes_few_values,
)
from meanmap.conditional.trust import ALONE, Trust
from meanmap.embeddings import Embedding, embed
from meanmap.embeddings.element import (
    Deferred,
    FactoredWeights,
    as_rows,
    function_values,
    numeric,
    row_blocks,
)
from meanmap.embeddings.single import embedding_of
from meanmap.exceptions import DataWarning, quiet
from meanmap.linalg import Inverse
from meanmap.protocols import ForUsers
from meanmap.spaces import Space

ENOUGH = 0.5  # of a query's mass, below which the marginal makes up for what is missing


@dataclass(frozen=True)
class Side:
    """One side of a paired sample: its points, their space and their coordinates there."""

    space: Space
    points: Points
    known: Any  # their coordinates; Deferred if too many to keep, None if the space only projects

    @property
    def coordinates(self) -> Array:
        """ψ of every point, one row per point."""
        return self.space.coordinates(self.points) if self.known is None else as_rows(self.known)


@dataclass(frozen=True, eq=False)
class Observed:
    """Rows of both sides, and the weight that each has in the operator."""

    x: Points  # of the source
    y: Points  # of the target
    weights: Array


class ConditionalOperator(ForUsers):
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
        inverse: Array | Inverse,
        *,
        regularization: float | None = None,
        rest: Array | None = None,
        seen: Observed | None = None,
    ) -> None:
        self.source = source
        self.target = target.space
        self.atoms = target.points
        #: The coordinates of the sample on the source's side, an array or `Deferred`.
        self.known_rows = rows
        #: The weights of those rows.
        self.scale = scale
        #: H; with an intercept it has one more coordinate, constantly 1, that is not regularised.
        self.solver = inverse if isinstance(inverse, Inverse) else Inverse(inverse)
        #: λ where `rows` are the sample's and H is its (C + λI)⁻¹, else None.
        self.regularization = regularization
        #: Rows that say how answers scatter about their means, or None.
        self.seen = seen
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
        "shape",
    )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in self.computed}

    # --- the operator -------------------------------------------------------------------------

    @property
    def inverse(self) -> Array:
        """H as a matrix, in the sample's precision."""
        return in_precision(self.solver.matrix, self.scale)

    @property
    def intercept(self) -> bool:
        """Whether there is a coordinate that is constantly 1."""
        return self.solver.size > self.source.rank_

    @property
    def rows(self) -> Array:
        """The coordinates of the sample on the source's side."""
        return as_rows(self.known_rows)

    @cached_property
    def target_rows(self) -> Array:
        """The coordinates of the atoms, one row per atom."""
        return Side(self.target, self.atoms, self._known_coordinates).coordinates

    @cached_property
    def matrix(self) -> Array:
        """The operator in coordinates; with an intercept its last column is the constant's."""
        return self.image(self.target_rows)

    def image(self, values: Array) -> Array:
        """Coefficients (q, r) of `x ↦ E[f | x]`, `valuesᵀ diag(scale) rows H`, for f (n, q)."""
        weighted = self.scale[:, None] * values
        parts = [weighted[block].T @ rows for block, rows in row_blocks(self.known_rows)]
        return self.solver.apply(sum(parts[1:], parts[0]))

    @property
    def row_images(self) -> Array:
        """`diag(scale) rows H`, (n, r): `image(values)` is `valuesᵀ` times it."""
        return self.solver.apply(self.scale[:, None] * self.rows)

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

    def outside(self, points: Points, features: Array) -> np.ndarray:
        """Which checked queries lie outside the data."""
        found = self._trust.outside(self, points, features)
        return np.zeros(count(points), dtype=bool) if found is None else found

    def given(self, x: Any) -> Embedding:
        """The embedding of the conditional distribution at x.

        Rows of points give a batch of embeddings, a single point gives one.
        """
        points, single = self.source.kernel_.rows(x, self.source.example_)
        with one_blas_thread(not single):
            features = self.features(points)
            return self.answer_at(points, features, single)

    def answer_at(self, points: Points, features: Array, single: bool = False) -> Embedding:
        """The answers at checked queries whose features are known; one answer if it is single."""
        answer = self.answer(features[0] if single else features)
        if not self.scatters:
            return answer
        trust = self.told(features)
        return Predictive.of(answer, lambda means: self.require_shape().at(points, means, trust))

    def mean_of(self, features: Array) -> Array:
        """The conditional mean at features of queries, where answers are numbers."""
        return self._means[0].of(features)

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
        vector = self.solver.apply(features)
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

    def predict(self, X: Any) -> Points:
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
        p = self.scale if self.rest is None else self.rest
        parts = []
        for block, rows in row_blocks(self.known_rows):
            fitted = rows @ image.T if centre is None else centre + rows @ image.T
            f = values[block]
            error = self._left_out_errors(rows, self.scale[block], p[block], f - fitted, f, centre)
            parts.append(f - error)
        return namespace(parts[0]).concat(parts)

    def _left_out_errors(
        self, rows: Array, scale: Array, p: Array, error: Array, f: Array, centre: Array | None
    ) -> Array:
        """The errors (n, q) of answers that have not seen their rows, from those that have.

        `scale` are the weights of the rows in the operator, `p` those in the marginal, and `centre`
        the mean of f, None where it is 0.
        """
        xp = namespace(rows)
        left = 1 - scale * self.solver.forms(rows)
        if self.rest is not None:  # the mean that is restored loses the row too
            others = 1 - xp.where(p < 1, p, 0 * p)  # a row alone has none
            missing = 1 - rows @ self.mass
            error = error + (missing * p / others)[:, None] * (f if centre is None else f - centre)
        return error / xp.where(left > ALONE, left, asarray(ALONE, left))[:, None]

    # --- how answers scatter ------------------------------------------------------------------

    @property
    def scatters(self) -> bool:
        """Whether answers have a shape of their own: targets are numbers, and rows are known.

        Given a label they have not: the rows that have it are a sample of the answer.
        """
        if self.seen is None or isinstance(self.atoms, tuple) or self.atoms.ndim != 2:
            return False
        if self.source.kernel_.discrete:
            return False
        return self.target.kernel_.on_vectors and count(self.seen.x) > 2

    @cached_property
    def shape(self) -> AnswerShape | None:
        """How answers scatter about their means; None where nothing is known of it."""
        if not self.scatters:
            return None
        assert self.seen is not None
        y = to_numpy(self.seen.y)
        if self.seen.y is self.atoms and takes_few_values(y):
            values, which = np.unique(y, axis=0, return_inverse=True)
            indicators = asarray(np.eye(len(values))[which.ravel()], float_like(self.atoms))
            functional = Functional(self, indicators)
            return LevelShape(
                values.astype(np.float64),
                lambda x: to_numpy(functional.of(self.quiet_features(x))).astype(np.float64),
            )
        return choose_shape(self.evidence())[0]

    def require_shape(self) -> AnswerShape:
        """The shape of answers that scatter."""
        assert self.shape is not None
        return self.shape

    def told(self, features: Array) -> np.ndarray:
        """What the rows tell of answers, from 0 to 1: all, where half of the usual mass is left."""
        if self.intercept or not self.source.kernel_.bounded:  # mass is not determined
            return np.ones(features.shape[0])
        return np.clip(to_numpy(features @ self.mass) / (ENOUGH * self._trust.mass), 0.0, 1.0)

    def quiet_features(self, points: Points) -> Array:
        """Features of checked points, without a warning about those outside the data."""
        return self.with_constant(self.source.coordinates(points))

    def evidence(self) -> LeftOutRows:
        """Rows with what is left of their targets, each by a mean that has not seen the row.

        A row that occurs several times is left out as a whole, and counts once.
        """
        assert self.seen is not None
        share = to_numpy(self.seen.weights).astype(np.float64)
        index = np.flatnonzero(share > 0)
        index = index[np.linspace(0, len(index) - 1, min(len(index), ROWS)).astype(int)]
        known, x = self.known_rows, take(self.seen.x, index)
        kept = not isinstance(known, Deferred) and self.seen.y is self.atoms
        rows = take(known, index) if kept else self.quiet_features(x)
        with quiet(DataWarning):
            fitted = self._means[0].without_middle().of(rows)
        y, w = take(self.seen.y, index), share[index]
        host = (to_numpy(part).astype(np.float64) for part in (rows, y))
        group = copy_groups(next(host), next(host), epsilon(rows))
        if group is not None:
            first = np.unique(group, return_index=True)[1]
            w = np.bincount(group, w)[group[first]]
            x, y, rows, fitted = (take(part, first) for part in (x, y, rows, fitted))
        y = namespace(rows).astype(y, rows.dtype)
        scale, p = (asarray(part, rows) for part in (w, w / share.sum()))
        centre = self._means[0].middle
        f = y if centre is None else y - centre
        errors = self._left_out_errors(rows, scale, p, f - fitted, f, None)
        errors, y = (to_numpy(part).astype(np.float64) for part in (errors, y))
        return LeftOutRows.of(self.source.kernel_, x, y, errors, w / w.sum())

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
        return scale * (self.solver.apply(m) @ self.with_constant(rows).T)

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
    """`x ↦ E[f | x]`, linear in ψ(x): one inner product per query."""

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

    def without_middle(self) -> Functional:
        """The same of values less their middle, which far from the origin round less."""
        if self.middle is None:
            return self
        return Functional(self.operator, self.values - self.middle, self.image, 0 * self.middle)

    def of(self, features: Array) -> Array:
        """The value at rows of features."""
        values = self.operator.evaluate(self, features)
        return namespace(values).reshape(values, (values.shape[0], *self.shape))


def as_embedding(prior: Any, space: Space) -> Embedding:
    """A prior: an embedding, or a plain sample that stands for one."""
    if isinstance(prior, Embedding):
        return prior
    return embed(space.kernel_.check(prior, "prior", space.example_), basis=space)
