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
| posterior, nonnegative | p | Ψ_Y | (C_WW + δI)⁻¹, δ raised where ψ(y) has too much leverage |

The reweighted posterior is not linear in ψ(y) and has a class of its own.

These weights need not sum to one: little of them is left far from the data. An operator that was
given `rest`, the weights of the target's marginal, adds what is missing of it,
`β(x) + (1 - Σβ(x)) rest`, which is the regression of φ(y) - μ on ψ(x) with the mean μ restored.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np

from meanmap.arrays import (
    Array,
    Points,
    asarray,
    assign,
    count,
    namespace,
    one_blas_thread,
    take,
    to_numpy,
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
from meanmap.kernels import Kernel
from meanmap.linalg import ConflictWarning
from meanmap.spaces import Space

#: What an operator computes when it is first asked, and does not save.
COMPUTED = (
    "_coordinates",
    "_mass",
    "_means",
    "_has_mass",
    "_typical",
    "_widest",
    "_usual_leverage",
    "_rest_coordinates",
)
FAR = 0.05  # a query whose support is below this lies far from the data
OUTSIDE = 4.0  # times the variance of answers at training points: beyond them
HALF = 0.5  # of its mass: a posterior that has less is completed by the prior
UNSURE = 0.05  # what the mass of weights differs from one by, at least, outside the data
LITTLE = 1 / 3  # of the usual mass: outside the data
LOOKED = 2000  # training rows at most that the largest variance is taken from
CONFLICT = 0.2  # κ = Σw/Σ|w| below which a posterior's weights cancel
ALONE = 1e-6  # 1 - hᵢ of a row that alone decides the answer at its own point
LEVERAGE = 1 / 8  # an answer rests on eight rows of average weight, at least
TYPICAL = 3.0  # times the average leverage, which is never too much
OUTLYING = 3.0  # times the leverage of nearly all rows: the prior does not predict such a query
UNLIKELY = 0.03  # an observation with less evidence than this is unlikely under the prior


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

    # what operators in files of earlier versions do not say
    _regularization: float | None = None
    _rest: Array | None = None

    def __init__(
        self,
        source: Space,
        target: Space,
        atoms: Points,
        coordinates: Array | None,
        rows: Any,
        scale: Array,
        inverse: Array,
        *,
        intercept: bool = False,
        marginal: Array | None = None,
        regularization: float | None = None,
        rest: Array | None = None,
    ) -> None:
        self.source = source
        self.target = target
        self.atoms = atoms
        # ψ of the atoms, if the target's space was fitted to them; None if it only projects them,
        # so that answers are atoms first
        self._known_coordinates = coordinates
        self._known_rows = rows
        self._scale = scale
        self._inverse = inverse
        self._intercept = intercept  # one more coordinate, constantly 1, that is not regularised
        self._marginal = marginal  # of a posterior: the embedding of the source under the prior
        # λ where rows are the sample's and H is its (C + λI)⁻¹, else None
        self._regularization = regularization
        self._rest = rest  # weights that sum to one, which the mass that is missing goes to

    def __getstate__(self) -> dict[str, Any]:
        # what is soon computed again is left out; the matrix stays, because without it a few
        # answers are computed another way, which rounds differently
        return {name: value for name, value in self.__dict__.items() if name not in COMPUTED}

    # --- the operator -------------------------------------------------------------------------

    @cached_property
    def _coordinates(self) -> Array:
        known = self._known_coordinates
        return self.target.coordinates(self.atoms) if known is None else known

    @property
    def _rows(self) -> Array:
        return as_rows(self._known_rows)

    @property
    def scale(self) -> Array:
        """The weights of the sample's rows, `scale ∘ rows H ψ(x)` those of the atoms at x."""
        return self._scale

    @property
    def inverse(self) -> Array:
        """H, for a conditional `(C_XX + λI)⁻¹`."""
        return self._inverse

    @property
    def target_rows(self) -> Array:
        """The coordinates of the atoms, a row each."""
        return self._coordinates

    @cached_property
    def matrix(self) -> Array:
        """The operator in coordinates; with an intercept its last column is the constant's."""
        return self.image(self._coordinates)

    def image(self, values: Array) -> Array:
        """Coefficients (q, r) of `x ↦ E[f | x]`, `valuesᵀ diag(scale) rows H`, for f (n, q)."""
        if isinstance(self._known_rows, Deferred):
            return self._known_rows.weighted(self._scale, values) @ self._inverse
        return (values.T @ (self._scale[:, None] * self._known_rows)) @ self._inverse

    @property
    def row_images(self) -> Array:
        """`diag(scale) rows H`, (n, r): `image(values)` is `valuesᵀ` times it."""
        return (self._scale[:, None] * self._rows) @ self._inverse

    @cached_property
    def _mass(self) -> Array:
        return self.image(namespace(self._scale).ones_like(self._scale)[:, None])[0]

    @cached_property
    def _means(self) -> list[Functional]:
        """The functionals of the points themselves, one for each variable."""
        parts = self.atoms if isinstance(self.atoms, tuple) else (self.atoms,)
        return [self._functional(numeric(part)) for part in parts]

    # --- queries ------------------------------------------------------------------------------

    def _features(self, points: Points) -> Array:
        features = self._with_intercept(self.source.coordinates(points), None)
        self._warn_if_far(points, features)
        return self._limited(features)

    def _limited(self, features: Array) -> Array:
        """Features of queries, those that ask for too much replaced."""
        return features

    def _with_intercept(self, coordinates: Array, mass: Array | None) -> Array:
        if not self._intercept:
            return coordinates
        xp = namespace(coordinates)
        one = xp.ones_like(coordinates[..., :1])
        return xp.concat([coordinates, one if mass is None else one * mass[..., None]], axis=-1)

    def _beyond(
        self, points: Points, features: Array, variance: float, usual_mass: float
    ) -> np.ndarray:
        """Where the variance of an answer, in units of the noise, is unusually large.

        `ψᵀHψ + (k(x, x) - ‖ψ‖²)/λ` is that of a Gaussian process with noise λ: small among the
        data, up to k(x, x)/λ far away. The mass of the weights, which is about one among the data
        and costs far less, says where it has to be computed; where λ is so large that the variance
        has no room to grow, a third of the usual mass says enough.
        """
        xp, bar = namespace(features), OUTSIDE * variance
        missed = xp.zeros_like(features[:, 0])
        if self.source.map_.projects and self._regularization:
            missed = self._missed(features, self.source.kernel_.squared_norms(points))
        found = to_numpy(missed)
        looked, little = np.ones(len(found), dtype=bool), np.zeros(len(found), dtype=bool)
        if not self._intercept:
            mass = to_numpy(features @ self._mass)
            if self.source.kernel_.bounded:  # else mass is not determined
                little = mass < LITTLE * usual_mass
            looked = (abs(mass - 1) > UNSURE) & (found <= bar)
        if looked.any():
            f = take(features, looked)
            found = np.maximum(found, 0.0)
            found[looked] += to_numpy(xp.sum((f @ self._inverse) * f, axis=1))
        return (found > bar) | little

    def _missed(self, features: Array, diagonal: Array) -> Array:
        """`(k(x, x) - ‖ψ‖²)/λ`: what the coordinates do not show of a variance."""
        psi = features[:, : self.source.rank_]
        missed = diagonal - namespace(psi).sum(psi * psi, axis=1)
        return missed / self._regularization if self._regularization else missed

    @cached_property
    def _widest(self) -> tuple[float, float] | None:
        """The variance that 99 of 100 training points have at most, and their median mass.

        Each by the other rows: `v/(1 - wv)` is what is left of H when one of them is taken away. A
        basis that is coarse misses as much of them as of new points; so that points without any
        support still stand out, this counts up to what those have. None where it is not known.
        """
        if self._regularization is None:
            return None
        n = self._scale.shape[0]
        some = np.linspace(0, n - 1, min(n, LOOKED)).astype(int)
        scale = to_numpy(take(self._scale, some))
        some = some[scale > 1e-6 * max(float(scale.max()), 0.0)]
        if not len(some):
            return None
        known = self._known_rows
        if isinstance(known, Deferred):
            psi = self.source.coordinates(take(known.points, some))
            rows = self._with_intercept(psi, None)
        else:
            rows = take(known, some)
        v = to_numpy(namespace(rows).sum((rows @ self._inverse) * rows, axis=1))
        left = np.maximum(1 - to_numpy(take(self._scale, some)) * v, ALONE)
        mass = np.ones(1) if self._intercept else to_numpy(rows @ self._mass)
        widest = float(np.quantile(v / left, 0.99))
        if self.source.map_.projects and self._regularization:
            missed, alone = self._missed_at(some, rows)
            coarse = float(np.quantile(v / left + missed, 0.99))
            widest = max(widest, min(coarse, alone / OUTSIDE))
        return widest, float(np.median(mass))

    def _missed_at(self, some: np.ndarray, rows: Array) -> tuple[np.ndarray, float]:
        """What coordinates miss of training rows, and of a point that has no support."""
        kernel, known = self.source.kernel_, self._known_rows
        if isinstance(known, Deferred):
            diagonal = kernel.squared_norms(take(known.points, some))
        elif kernel.bounded:  # only coordinates are kept; nearly all of these have one value
            diagonal = kernel.squared_norms(self.source.example_) + 0 * rows[:, 0]
        else:
            psi = rows[:, : self.source.rank_]
            size = namespace(psi).sum(psi * psi, axis=1)
            diagonal = size / (1 - min(self.source.residual_, 0.5))
        missed = np.maximum(to_numpy(self._missed(rows, diagonal)), 0.0)
        usual = float(np.median(to_numpy(diagonal)))
        return missed, (1 - FAR) * usual / (self._regularization or 1.0)

    def _warn_if_far(self, points: Points, features: Array) -> None:
        far = None
        if self._widest is not None:
            far = self._beyond(points, features, *self._widest)
        if self._regularization in (None, 0.0) and self.source.map_.projects:
            psi = features[:, : self.source.rank_]
            size = namespace(psi).sum(psi * psi, axis=1)
            alone = to_numpy(size < FAR * self.source.kernel_.squared_norms(points))
            far = alone if far is None else far | alone
        if far is not None and far.any():
            back = "" if self._rest is None else ", and returns to the marginal distribution"
            warnings.warn(
                f"{int(far.sum())} of {len(far)} query points lie outside the data: the answer "
                f"there is extrapolated{back}. Training rows say little about it: the variance of "
                "the answer is far larger than at training points, or hardly any weight is left.",
                ConflictWarning,
                stacklevel=5,
            )

    def _rows_of(self, x: Any) -> tuple[Array, bool]:
        points, single = self.source.kernel_.rows(x, self.source.example_)
        return self._features(points), single

    def _points_of(self, x: Any) -> Array:
        return self._features(self.source.kernel_.check(x, "X", self.source.example_))

    def given(self, x: Any) -> Embedding:
        """The embedding of the conditional distribution at x.

        Rows of points give a batch of embeddings, a single point gives one.
        """
        points, single = self.source.kernel_.rows(x, self.source.example_)
        with one_blas_thread(not single):
            features = self._features(points)
            return self._answer(features[0] if single else features)

    def _answer(self, features: Array) -> Embedding:
        if not bool(namespace(features).any(self._suspicious(features))):
            return self._embedding(self._normalized(features))
        weights = self._settled(features)
        exact = self._known_coordinates is not None
        coordinates = weights @ self._coordinates if exact else None
        return embedding_of(self.target, self.target.kernel_, self.atoms, weights, coordinates)

    # Where prior and observation conflict, a posterior's weights cancel and their normalised mean
    # is anything. Two cheap signs say where to look: the mass, which should be about one, and the
    # embedding of Y under the prior at y, relative to its average ‖m_W‖². Neither means anything
    # under a kernel without constants, such as the trace kernel, where mass is not determined.

    @cached_property
    def _has_mass(self) -> bool:
        return self._marginal is not None and float(self._marginal @ self._mass) > 0.5

    @cached_property
    def _typical(self) -> Array | None:
        """The functional `y ↦ m_W(y)/‖m_W‖²`, or None where it cannot tell what is typical."""
        if self._marginal is None or not self.source.kernel_.bounded:
            return None
        return self._marginal / (self._marginal @ self._marginal)

    def _evidence(self, features: Array) -> Array:
        """How typical y is under the prior, on average 1."""
        if self._typical is None:
            return namespace(features).ones_like(features[..., 0])
        return features @ self._typical

    def _suspicious(self, features: Array) -> Array:
        if not self._has_mass:
            return namespace(features).zeros_like(features[..., 0]) > 0
        suspicious = features @ self._mass < CONFLICT
        if self._typical is not None:
            suspicious = suspicious | (features @ self._typical < UNLIKELY)
        return suspicious

    def _normalized(self, features: Array) -> Array:
        """Features of queries to a posterior over their mass, as long as that is more than a half.

        Bayes' rule divides by the evidence. Where little mass is left the prior makes up the rest.
        """
        if self._rest is None or self._marginal is None or not self._has_mass:
            return features
        xp = namespace(features)
        mass = features @ self._mass
        return features / xp.where(mass > HALF, mass, 0 * mass + HALF)[..., None]

    def _factored(self, features: Array, mass: Array) -> FactoredWeights:
        """The weights on the atoms for features of the source, whose mass is 1 for a point."""
        missing = None if self._rest is None else mass - features @ self._mass
        vector = features @ self._inverse.T
        return FactoredWeights(self._scale, self._known_rows, vector, self._rest, missing)

    def _settled(self, features: Array) -> Array:
        """Weights, replaced by their normalised positive part where they cancel."""
        xp = namespace(features)
        known = self._normalized(features)
        weights = self._factored(known, xp.ones_like(known[..., 0])).dense()
        clipped, conflict = settle(weights, self._evidence(features))
        return xp.where(conflict[..., None], clipped, weights)

    def _embedding(self, features: Array, mass: Array | None = None) -> Embedding:
        """The element with these features of the source, its coordinates left until needed."""
        mass = namespace(features).ones_like(features[..., 0]) if mass is None else mass
        weights = self._factored(features, mass)
        exact = self._known_coordinates is not None
        coordinates = partial(self._target_coordinates, features, weights) if exact else None
        return embedding_of(self.target, self.target.kernel_, self.atoms, weights, coordinates)

    def _target_coordinates(self, features: Array, weights: FactoredWeights) -> Array:
        few = features.ndim == 1 or features.shape[0] < self._coordinates.shape[1] // 8
        kept = not isinstance(self._known_rows, Deferred)
        if (
            few and kept and "matrix" not in self.__dict__
        ):  # the operator costs more than a few answers
            return weights.dense() @ self._coordinates
        coordinates = features @ self.matrix.T
        if self._rest is None or weights.missing is None:
            return coordinates
        return coordinates + weights.missing[..., None] * self._rest_coordinates

    @cached_property
    def _rest_coordinates(self) -> Array:
        """The target's marginal in coordinates."""
        assert self._rest is not None
        return self._rest @ self._coordinates

    def weights(self, x: Any) -> Array:
        """The weights on the atoms at each x, shape (m, n); (n,) at a single point."""
        return self.given(x).weights

    def predict(self, X: Any) -> Array:
        """The conditional mean at each row of X, shaped like the atoms: that of `given`."""
        with one_blas_thread():
            features = self._points_of(X)
            means = tuple(functional.of(features) for functional in self._means)
            return means if isinstance(self.atoms, tuple) else means[0]

    def expect(self, f: Callable[[Points], Array] | Embedding, x: Any) -> Array:
        """`E[f | x]` for any function of the atoms, or an embedding; linear in f."""
        return self.given(x).expect(f) if isinstance(f, Embedding) else self.functional(f)(x)

    def functional(self, f: Callable[[Points], Array]) -> Functional:
        """`x ↦ E[f | x]` with `f_Xᵀ R` cached, so that a new x costs one inner product.

        Fukumizu, Song and Gretton (2013, section 4.1).
        """
        return self._functional(function_values(f, self.atoms))

    def _functional(self, values: Array) -> Functional:
        return Functional(self, values)

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
        if self._regularization is None:
            raise TypeError(
                "leave_one_out is known for conditionals fitted to rows, and for posteriors by "
                '"nonnegative" or "importance"; this one is not a ridge regression on rows that '
                "are kept."
            )
        centre = self._middle(values)
        image = self.image(values if centre is None else values - centre)
        parts = []
        for block, rows in row_blocks(self._known_rows):
            h = self._scale[block] * namespace(rows).sum((rows @ self._inverse) * rows, axis=1)
            left = 1 - h
            left = namespace(rows).where(left > ALONE, left, asarray(ALONE, left))[:, None]
            f = values[block]
            fitted = rows @ image.T if centre is None else centre + rows @ image.T
            error = f - fitted
            if self._rest is not None:  # the mean that is restored loses row i too
                p, missing = self._rest[block], 1 - rows @ self._mass
                others = 1 - namespace(p).where(p < 1, p, 0 * p)  # a row alone has none
                error = error + (missing * p / others)[:, None] * (f - centre)
            parts.append(f - error / left)
        return namespace(parts[0]).concat(parts)

    def _middle(self, values: Array) -> Array | None:
        """The mean of values (n, q) under the target's marginal where weights sum to one.

        Sums are taken of what differs from it: that rounds less, and needs no mass to be added.
        """
        if self._rest is not None:
            return self._rest @ values
        if not self._intercept:
            return None
        return (self._scale @ values) / namespace(values).sum(self._scale)

    def sample_weights(self, rows: Array, scale: Array, prior: Any) -> Array:
        """A prior as weights `scale ∘ rows H m_π` on a sample, given its coordinates (002, eq. 11).

        The factor n that the paper prints is left out: with it the operator form (12) fails.
        """
        h = self._inverse @ self.source_coordinates(prior)
        return scale * (self._with_intercept(rows, None) @ h)

    # --- distributions in, distributions out --------------------------------------------------

    def source_coordinates(self, prior: Any) -> Array:
        """A prior's coordinates in the source space (its atoms re-embedded where need be)."""
        prior = as_embedding(prior, self.source)
        coordinates = prior.in_space(self.source)
        mass = asarray(prior.mass, coordinates) if self._intercept else None
        return self._with_intercept(coordinates, mass)

    def push(self, prior: Any) -> Embedding:
        """The distribution of the target when the source is distributed as the prior: sum rule."""
        with one_blas_thread():
            prior = as_embedding(prior, self.source)
            coordinates = self.source_coordinates(prior)
            return self._embedding(coordinates, asarray(prior.mass, coordinates))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({count(self.atoms)} atoms, from {self.source.kernel_!r} "
            f"(rank {self.source.rank_}) to {self.target.kernel_!r} (rank {self.target.rank_}))"
        )


class Functional:
    """`x ↦ E[f | x]`, linear in ψ(x): one inner product a query."""

    _middle: Array | None = None

    def __init__(
        self,
        operator: ConditionalOperator,
        values: Array,
        image: Array | None = None,
        middle: Array | None = None,
    ) -> None:
        self._operator = operator
        self._values = namespace(values).reshape(values, (values.shape[0], -1))
        self._shape = values.shape[1:]
        self._middle = operator._middle(self._values) if middle is None else middle
        if image is None:
            centred = self._values if self._middle is None else self._values - self._middle
            image = operator.image(centred)
        self._image = image

    def __call__(self, x: Any) -> Array:
        features, single = self._operator._rows_of(x)
        values = self.of(features)
        return values[0] if single else values

    def of(self, features: Array) -> Array:
        """The value at rows of features; where weights cancel, what is left of them says it."""
        operator, xp = self._operator, namespace(features)
        values = operator._normalized(features) @ self._image.T
        values = values if self._middle is None else values + self._middle
        suspicious = to_numpy(operator._suspicious(features))
        if suspicious.any():
            weights = operator._settled(take(features, suspicious))
            values = assign(values, suspicious, weights @ self._values)
        return xp.reshape(values, (values.shape[0], *self._shape))


class StreamedOperator(ConditionalOperator):
    """A conditional known by sums over rows that are gone, or too many to keep.

    Where they are gone its atoms span the target's space; the means come from sums of their own.
    """

    _middles: list[Array] | None = None

    def __init__(
        self,
        *arguments: Any,
        cross: Array,
        moments: list[Array],
        middles: list[Array] | None,
        means: tuple[Array, Array],
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._cross = cross  # C_YX
        # Σ w (y - c) ψ(x)ᵀ over the total weight for each variable, and c, its mean; or c is 0
        self._moments = moments
        self._middles = middles
        self._marginals = means  # Σ w ψ(x) and Σ w φ(y), over the total weight

    @cached_property
    def _mass(self) -> Array:
        mu = self._marginals[0]
        return self._with_intercept(mu, mu[0] * 0 + 1) @ self._inverse

    @cached_property
    def _rest_coordinates(self) -> Array:
        return self._marginals[1]

    @cached_property
    def matrix(self) -> Array:
        return self._cross @ self._inverse

    @cached_property
    def _means(self) -> list[Functional]:
        parts = self.atoms if isinstance(self.atoms, tuple) else (self.atoms,)
        middles = self._middles if self._middles is not None else [None] * len(parts)
        return [
            Functional(self, numeric(part), sums @ self._inverse, middle)
            for part, sums, middle in zip(parts, self._moments, middles, strict=True)
        ]


class PosteriorOperator(ConditionalOperator):
    """A posterior whose answers never rest on a few rows: outlying y are regularised more.

    The variance of an answer grows with the leverage `ψ(y)ᵀ (C_WW + δI)⁻¹ ψ(y) Σp²`, which is 1
    where a single row of average weight decides. Where y is far from what the prior predicts, and
    its leverage is more than 1/8 and than three times the average, δ is raised for this y until it
    is not. Since `(C_WW + δ'I)⁻¹ ψ(y)` is `(C_WW + δI)⁻¹` of another vector, this changes the
    features of such y and nothing else.
    """

    _widest = None  # leverage says where an answer is extrapolated

    def __init__(
        self, *arguments: Any, spectrum: Any, regularization: float, **options: Any
    ) -> None:
        super().__init__(*arguments, regularization=regularization, **options)
        self._spectrum = spectrum  # of C_WW
        self._delta = regularization

    def _limited(self, features: Array) -> Array:
        limited, leverage = self._with_less_leverage(features)
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
            to_numpy(namespace(rows).sum((rows @ self._inverse) * rows, axis=1))
            for _, rows in row_blocks(self._known_rows)
        ]
        leverage, p = np.concatenate(parts), to_numpy(self._scale)
        order = np.argsort(leverage)
        at = int(np.searchsorted(np.cumsum(p[order]), 0.99 * p.sum()))
        return float(leverage[order][min(at, len(p) - 1)] * (p @ p))

    def _with_less_leverage(self, features: Array) -> tuple[Array, Array]:
        """Features whose leverage is bounded, and the leverage that they had before."""
        xp, s = namespace(features), self._spectrum.values
        s = xp.where(s > 0, s, xp.zeros_like(s))
        if self._delta == 0 or s.shape[0] == 0:
            return features, xp.zeros_like(features[:, 0])
        share = float(xp.sum(self._scale * self._scale))  # one over the effective number of rows
        most = max(LEVERAGE, TYPICAL * share * float(xp.sum(s / (s + self._delta))))
        z = features @ self._spectrum.vectors
        leverage = share * xp.sum(z * z / (s + self._delta), axis=1)
        high = to_numpy(leverage > most)
        if not high.any():
            return features, leverage
        z, before = take(z, high), take(features, high)
        low = xp.zeros_like(z[:, :1]) + self._delta
        top = low + share * xp.sum(z * z, axis=1)[:, None] / most  # where it is certainly less
        for _ in range(50):
            delta = xp.sqrt(low * top)
            more = share * xp.sum(z * z / (s + delta), axis=1)[:, None] > most
            low, top = xp.where(more, delta, low), xp.where(more, top, delta)
        after = (z * ((s + self._delta) / (s + top))) @ self._spectrum.vectors.T
        mass, now = before @ self._mass, after @ self._mass  # the total mass stays as it was
        known = (mass > 0) & (now > 0)
        one = xp.ones_like(now)
        after = after * xp.where(known, mass / xp.where(known, now, one), one)[:, None]
        return assign(features, high, after), leverage

    def source_coordinates(self, prior: Any) -> Array:
        """A mixture of observations, those that ask for too much replaced as in `given`."""
        prior = as_embedding(prior, self.source)
        like = self.source.example_
        atoms = self.source.kernel_.check(prior.atoms, "the prior's atoms", like)
        features = self._with_less_leverage(self.source.coordinates(atoms))[0]
        return asarray(prior.weights, features) @ features


class ReweightedOperator(ConditionalOperator):
    """The posterior with weights `β(y) ∘ (u₊/w)^τ`, normalised, β(y) the plain conditional weights.

    Nothing is factorised for a new prior. The normalisation makes it nonlinear in ψ(y), so that it
    is queried point by point, and pushes a distribution by querying at its atoms.
    """

    def __init__(self, plain: ConditionalOperator, ratio: Array, marginal: Array) -> None:
        super().__init__(
            plain.source,
            plain.target,
            plain.atoms,
            plain._coordinates,
            plain._known_rows,
            plain._scale,
            plain._inverse,
            marginal=marginal,
        )
        self._ratio = ratio

    def _suspicious(self, features: Array) -> Array:
        """Everywhere: the weights have to be normalised, so they are computed anyway."""
        return namespace(features).zeros_like(features[..., 0]) == 0

    def _settled(self, features: Array) -> Array:
        xp = namespace(features)
        weights = self._factored(features, xp.ones_like(features[..., 0])).dense() * self._ratio
        clipped, conflict = settle(weights, self._evidence(features))
        total = xp.where(conflict, xp.ones_like(weights[..., 0]), xp.sum(weights, axis=-1))
        return xp.where(conflict[..., None], clipped, weights / total[..., None])

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
        answers = self._answer(self._features(atoms))
        alpha = asarray(prior.weights, answers.weights)
        return embedding_of(
            self.target,
            self.target.kernel_,
            self.atoms,
            alpha @ answers.weights,
            alpha @ answers.coordinates,
        )


def settle(weights: Array, evidence: Array) -> tuple[Array, Array]:
    """The normalised positive part of weights, and where they cancel so that it is needed.

    That is where κ = Σw/Σ|w| < 0.2, or κ < 0.9 for an observation that the prior makes unlikely.
    """
    xp = namespace(weights)
    mass, size = xp.sum(weights, axis=-1), xp.sum(abs(weights), axis=-1)
    conflict = (mass < CONFLICT * size) | ((evidence < UNLIKELY) & (mass < 0.9 * size))
    positive = xp.where(weights > 0, weights, xp.zeros_like(weights))
    total = xp.sum(positive, axis=-1)
    conflict = conflict | (size <= 0)
    if bool(xp.any(conflict & (total <= 0))):
        raise ValueError(
            "the posterior has no positive weight at all: prior and observation have nothing in "
            "common. Widen the prior or the bandwidth, or raise the regularisation."
        )
    if bool(xp.any(conflict)):
        cancelled = to_numpy(conflict)
        warnings.warn(
            f"prior and observation conflict in {int(cancelled.sum())} of {cancelled.size} "
            "queries: the posterior weights cancel, so their positive part is used. The training "
            "sample has hardly any point that suits both; draw more there, or widen the prior.",
            ConflictWarning,
            stacklevel=5,
        )
    safe = xp.where(total > 0, total, xp.ones_like(total))
    return positive / safe[..., None], conflict


def as_embedding(prior: Any, space: Space) -> Embedding:
    """A prior: an embedding, or a plain sample that stands for one."""
    if isinstance(prior, Embedding):
        return prior
    kernel: Kernel = space.kernel_
    return embed(kernel.check(prior, "prior", space.example_), basis=space)
