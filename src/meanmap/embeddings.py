"""Distributions as points of a reproducing kernel Hilbert space."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from meanmap import checks, decoding, plots
from meanmap.arrays import (
    TILE,
    Array,
    Points,
    asarray,
    concatenate,
    count,
    first_array,
    float_like,
    is_array,
    namespace,
    spans,
    take,
    to_numpy,
    weighted_sum,
)
from meanmap.kernels import Kernel, TensorProduct, as_kernel
from meanmap.spaces import Basis, Space

EXACT = 1 << 26  # kernel values that e(x) computes one by one rather than through coordinates
CERTAIN = 1e-8  # the error, relative to sup k, up to which coordinates stand for the atoms


@dataclass(frozen=True)
class FactoredWeights:
    """Weights `scale ∘ (rows · vector)`, kept as factors: n × r and r numbers, never n × batch."""

    scale: Array
    rows: Array
    vector: Array  # (r,) or (b, r)

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.vector.shape[:-1], self.scale.shape[0])

    @property
    def ndim(self) -> int:
        return int(self.vector.ndim)

    def dense(self) -> Array:
        return self.scale * (self.vector @ self.rows.T)

    def apply(self, values: Array) -> Array:
        """`Σᵢ wᵢ valuesᵢ` for values (n, q)."""
        return self.vector @ (self.rows.T @ (self.scale[:, None] * values))

    def __getitem__(self, index: Any) -> FactoredWeights:
        return FactoredWeights(self.scale, self.rows, self.vector[index])


def embed(
    points: Any, kernel: Any = None, weights: Any = None, basis: Basis | None = None
) -> Embedding:
    """The mean map of a (weighted) sample: `Σ wᵢ k(xᵢ, ·)`.

    Parameters
    ----------
    points : array of rows, labels, matrices, or a tuple of samples
        A tuple (X, Y) gives the joint embedding of the pair.
    kernel : Kernel, callable or None
        None chooses for the kind of points: a Gaussian at the median distance for rows of numbers,
        a delta kernel for labels. To compare two samples give both the same one:
        `embed(B, kernel=embed(A).kernel)`.
    weights : array of shape (n,) or (b, n), or None
        None is 1/n each. They are used as they are, signs included; (b, n) is a batch of b
        embeddings on the same points.
    basis : PivotedCholesky, Explicit, a fitted Space, or None
        How coordinates are chosen, if they are needed.

    Returns
    -------
    Embedding or JointEmbedding

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import embed
    >>> rng = np.random.default_rng(0)
    >>> P = embed(rng.normal(0.0, 1.0, size=(400, 2)))
    >>> Q = embed(rng.normal(0.5, 1.0, size=(400, 2)), kernel=P.kernel)
    >>> R = embed(rng.normal(0.0, 1.0, size=(400, 2)), kernel=P.kernel)
    >>> bool(P.distance(Q) > 3 * P.distance(R))
    True
    >>> P.expect(lambda x: x[:, 0] ** 2).round(1)
    np.float64(1.0)
    """
    space = basis if isinstance(basis, Space) else None
    if space is not None and not hasattr(space, "kernel_"):
        raise ValueError("basis: the Space is not fitted; fit it to a sample first.")
    if kernel is None and space is not None:
        kernel = space.kernel_
    kernel = as_kernel(kernel, points, "points")
    points = kernel.check(points, "points")
    like = float_like(points)
    n = count(points)
    if weights is None:
        weights = checks.weights(None, points, like)
    else:
        weights = weights if is_array(weights) else np.asarray(weights)
        rows = [checks.weights(row, points, like) for row in weights] if weights.ndim == 2 else None
        if rows is not None and not rows:
            raise ValueError(f"weights: expected shape ({n},) or (b, {n}), got no rows.")
        weights = (
            namespace(like).stack(rows)
            if rows is not None
            else checks.weights(weights, points, like)
        )
    if space is None:
        kernel = kernel.resolve(points, abs(weights) if weights.ndim == 1 else None)
        space = Space(kernel, basis)
    else:
        same_kernel(space.kernel_, kernel)
        kernel = space.kernel_
    return embedding_of(space, kernel, points, weights)


def embedding_of(
    space: Space,
    kernel: Kernel,
    atoms: Points,
    weights: Array | FactoredWeights,
    coordinates: Array | None = None,
) -> Embedding:
    """The embedding with these atoms: a joint one if they are tuples."""
    kind = JointEmbedding if isinstance(atoms, tuple) else Embedding
    return kind(space, kernel, atoms, weights, coordinates)


def same_kernel(mine: Kernel, other: Kernel) -> None:
    """Refuse to mix embeddings of different kernels."""
    if mine != other:
        raise ValueError(
            f"the embeddings have different kernels, {mine!r} and {other!r}, so they live in "
            "different spaces. Embed both with one: embed(Y, kernel=P.kernel)."
        )


class Embedding:
    """An element of a reproducing kernel Hilbert space: atoms and weights, `Σ wᵢ k(xᵢ, ·)`.

    Made by `embed`, by conditioning (`ConditionalEmbedding.given`) and by the rules. A batch of
    embeddings on the same atoms has weights (b, n), and adds that leading axis to every answer.

    Attributes
    ----------
    kernel : the kernel, its bandwidth resolved
    atoms, weights : the points and their weights, which may be negative
    space, coordinates : the element in coordinates, computed when first asked for
    """

    def __init__(
        self,
        space: Space,
        kernel: Kernel,
        atoms: Points,
        weights: Array | FactoredWeights,
        coordinates: Array | None = None,
    ) -> None:
        self._space = space
        self.kernel = kernel
        self._atoms = atoms
        self._weights = weights
        # an element that was computed in coordinates *is* those; one made of a sample is its atoms
        self._by_coordinates = coordinates is not None
        self._coordinates = coordinates

    # --- what it is made of -------------------------------------------------------------------

    @property
    def atoms(self) -> Points:
        return self._atoms

    @property
    def weights(self) -> Array:
        if isinstance(self._weights, FactoredWeights):
            self._weights = self._weights.dense()
        return self._weights

    @property
    def space(self) -> Space:
        if not hasattr(self._space, "kernel_"):
            self._place()
        return self._space

    @property
    def coordinates(self) -> Array:
        """`m = Σ wᵢ ψ(xᵢ)`, shape (r,) or (b, r)."""
        if self._coordinates is None:
            if hasattr(self._space, "kernel_"):
                parts = [
                    self.weights[..., block] @ self._space._transform(take(self.atoms, block))
                    for block in spans(count(self.atoms), 1 << 14)
                ]
                self._coordinates = sum(parts[1:], parts[0])
            else:
                self._coordinates = self.weights @ self._place()
        return self._coordinates

    def _place(self) -> Array:
        uniform = checks.weights(None, self.atoms, float_like(self.atoms))
        return self._space._place(self.kernel, self.atoms, uniform)

    @property
    def is_batch(self) -> bool:
        """Whether this is a batch of embeddings."""
        return self._weights.ndim == 2

    # --- algebra ------------------------------------------------------------------------------

    def _combined(self, other: Embedding, sign: float) -> Embedding:
        same_kernel(self.kernel, other.kernel)
        if other._atoms is self._atoms:
            atoms, weights = self.atoms, self.weights + sign * other.weights
        else:
            atoms = concatenate([self.atoms, other.atoms])
            left, right = self.weights, sign * other.weights
            xp = namespace(left)
            batch = np.broadcast_shapes(left.shape[:-1], right.shape[:-1])
            left = xp.broadcast_to(left, (*batch, left.shape[-1]))
            right = xp.broadcast_to(right, (*batch, right.shape[-1]))
            weights = xp.concat([left, right], axis=-1)
        shared = self._space is other._space and hasattr(self._space, "kernel_")
        if shared and self._by_coordinates and other._by_coordinates:
            coordinates = self.coordinates + sign * other.coordinates
            return embedding_of(self._space, self.kernel, atoms, weights, coordinates)
        space = self._space if shared else Space(self.kernel, self._space.basis)
        return embedding_of(space, self.kernel, atoms, weights)

    def __add__(self, other: Embedding) -> Embedding:
        return self._combined(other, 1.0) if isinstance(other, Embedding) else NotImplemented

    def __sub__(self, other: Embedding) -> Embedding:
        return self._combined(other, -1.0) if isinstance(other, Embedding) else NotImplemented

    def __mul__(self, factor: float) -> Self:
        if isinstance(factor, Embedding):
            return NotImplemented
        number = checks.number(factor, "an embedding's factor")
        coordinates = number * self.coordinates if self._by_coordinates else None
        return self._like(number * self.weights, coordinates)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Self:
        return self * (1 / checks.number(divisor, "an embedding's divisor"))

    def __neg__(self) -> Self:
        return self * -1.0

    def _like(self, weights: Array | FactoredWeights, coordinates: Array | None) -> Self:
        """Other weights on the same atoms."""
        return type(self)(self._space, self.kernel, self._atoms, weights, coordinates)

    def __len__(self) -> int:
        if not self.is_batch:
            raise TypeError("this is one embedding, not a batch; its atoms are in .atoms.")
        return int(self._weights.shape[0])

    def __getitem__(self, index: Any) -> Self:
        len(self)
        coordinates = self.coordinates[index] if self._by_coordinates else None
        return self._like(self._weights[index], coordinates)

    def __iter__(self) -> Iterator[Self]:
        return (self[i] for i in range(len(self)))

    # --- functions and geometry ---------------------------------------------------------------

    def __call__(self, x: Any) -> Array:
        """The embedding as a function, `e(x) = Σ wᵢ k(xᵢ, x)`: shape (m,) or (b, m).

        For a Gaussian kernel it is proportional to a kernel density estimate.
        """
        points, single = self.kernel.rows(x, self.atoms)
        values = self._evaluate(points)
        return values[..., 0] if single else values

    def _evaluate(self, points: Points) -> Array:
        if self._by_coordinates:
            blocks = list(spans(count(points), 1 << 14))
            parts = [
                self.coordinates @ self.space._transform(take(points, block)).T for block in blocks
            ]
            return namespace(parts[0]).concat(parts, axis=-1)
        if count(points) * count(self.atoms) <= EXACT:
            return self.kernel._matmul(points, self.atoms, self.weights.T).T
        return self._certified(points)

    def _certified(self, points: Points) -> Array:
        """`e(x)` through coordinates where they are proven good enough, else from the atoms.

        The error |⟨m - Pm, k_x - Pk_x⟩| is at most √(residual(m) residual(x)), and both residuals
        are known: k(x, x) - ‖ψ(x)‖² comes with ψ(x).
        """
        m, space = self.coordinates, self.space
        xp = namespace(m)
        weight = float(xp.max(xp.sum(abs(self.weights), axis=-1)))
        trace = space.residual_ * float(xp.mean(self.kernel._diagonal(self.atoms)))
        peak = float(xp.max(abs(self.weights))) * count(self.atoms)
        residual_m = (weight * peak * trace) ** 0.5  # ‖m - Pm‖ ≤ √(Σ|w| · Σ|w| residual)
        values = []
        for block in spans(count(points), max(1, 4 * TILE // max(space.rank_, 1))):
            part = take(points, block)
            coordinates = space._transform(part)
            diagonal = self.kernel._diagonal(part)
            residual = diagonal - xp.sum(coordinates * coordinates, axis=1)
            bound = residual_m * xp.where(residual > 0, residual, xp.zeros_like(residual)) ** 0.5
            value = m @ coordinates.T
            doubtful = to_numpy(bound > CERTAIN * weight * xp.max(diagonal))
            if doubtful.any():
                exact = self.kernel._matmul(take(part, doubtful), self.atoms, self.weights.T).T
                value = to_numpy(value).copy() if not is_array(value) else value
                value[..., doubtful] = exact
            values.append(value)
        return xp.concat(values, axis=-1)

    def inner(self, other: Embedding) -> Array:
        """`⟨e, other⟩`, one number for each pair of a batch."""
        same_kernel(self.kernel, other.kernel)
        if self._shares_coordinates(other):
            mine, theirs = self._vector(), other._vector()
            return namespace(mine).sum(mine * theirs, axis=-1)[()]
        values = self._evaluate(other.atoms)
        return namespace(values).sum(values * other.weights, axis=-1)[()]

    def _shares_coordinates(self, other: Embedding) -> bool:
        return self._space is other._space and self._by_coordinates and other._by_coordinates

    def _vector(self) -> Array:
        """Coordinates to take inner products in with an embedding that shares them."""
        return self.coordinates

    def norm(self) -> Array:
        """`‖e‖` in the space's norm."""
        return _root(self.inner(self))

    def distance(self, other: Embedding) -> Array:
        """`‖e - other‖`, the maximum mean discrepancy of two distributions."""
        same_kernel(self.kernel, other.kernel)
        if self._shares_coordinates(other):
            difference = self._vector() - other._vector()
            return _root(namespace(difference).sum(difference * difference, axis=-1)[()])
        if other._atoms is self._atoms:
            return (self - other).norm()
        squares = self.inner(self) + other.inner(other)
        return _root(squares - 2 * self.inner(other))

    def expect(self, f: Callable[[Points], Array] | Embedding) -> Array:
        """`Σ wᵢ f(xᵢ)`: raw and linear, weights as they are.

        `f` takes all the atoms at once, shape (n, …), and returns one value (or row) for each; an
        embedding stands for the function that it is.
        """
        if isinstance(f, Embedding):
            return self.inner(f)
        return self._total(self._values(f))

    def _values(self, f: Callable[[Points], Array]) -> Array:
        return function_values(f, self.atoms)

    def _total(self, values: Array) -> Array:
        """`Σ wᵢ valuesᵢ` for values of any shape."""
        if isinstance(self._weights, FactoredWeights):
            xp = namespace(values)
            flat = xp.reshape(values, (values.shape[0], -1))
            total = self._weights.apply(flat)
            return xp.reshape(total, (*self._weights.shape[:-1], *values.shape[1:]))[()]
        return weighted_sum(self._weights, values)[()]

    @property
    def mass(self) -> Array:
        """The sum of the weights: 1 for a probability."""
        like = float_like(self.atoms)
        return self._total(namespace(like).ones(count(self.atoms), dtype=like.dtype))

    def normalized(self) -> Self:
        """The same with weights that sum to one; a total ≤ 0 is refused."""
        mass = asarray(self.mass, float_like(self.atoms))
        if bool(namespace(mass).any(mass <= 0)):
            raise ValueError(
                f"the weights sum to {float(namespace(mass).min(mass)):.3g}, so they cannot be "
                "normalised to a probability. The query may lie far from the data (see .support), "
                "or this is a difference of embeddings; .expect(f) works on raw weights."
            )
        share = 1 / mass[..., None]
        coordinates = self.coordinates * share if self._by_coordinates else None
        if isinstance(self._weights, FactoredWeights):
            scaled = FactoredWeights(
                self._weights.scale, self._weights.rows, self._weights.vector * share
            )
            return self._like(scaled, coordinates)
        return self._like(self.weights * share, coordinates)

    def mean(self) -> Array:
        """The mean of the points, by weights normalised to one."""
        return self.normalized().moment(numeric)

    def moment(self, function: Callable[[Array], Array]) -> Any:
        """`Σ wᵢ f(xᵢ)` of the atoms, of each variable by itself where they are tuples."""
        return _each(self.atoms, lambda part: self._total(function(part)))

    def std(self) -> Array:
        """The standard deviation of each coordinate, by weights normalised to one.

        Negative weights can make a variance negative; it is floored at 0.
        """
        p = self.normalized()

        def deviation(part: Array) -> Array:
            values = numeric(part)
            first, second = p._total(values), p._total(values * values)
            return _root(second - first * first)

        return _each(p.atoms, deviation)

    def mode(self) -> Points:
        """The point whose feature is nearest to the embedding (Song et al. 2013, eq. 26).

        For a Gaussian kernel over all of R^d; for other kernels over the atoms.
        """
        xp = namespace(first_array(self.weights))
        weights = self.weights if self.is_batch else xp.reshape(self.weights, (1, -1))
        points = decoding.mode(self.kernel, self.atoms, weights)
        return points if self.is_batch else _each(points, lambda part: part[0])

    def support(self, x: Any) -> Array:
        """`‖ψ(x)‖²/k(x, x)`: 1 where the atoms surround x, near 0 far from all of them."""
        return self.space.support(x)

    def covariance(self) -> JointEmbedding:
        """The (uncentred) covariance operator `Σ wᵢ k(xᵢ, ·) ⊗ k(xᵢ, ·)`, as a joint embedding."""
        kernel = TensorProduct(self.kernel, self.kernel)
        return JointEmbedding(
            Space(kernel),
            kernel,
            (self.atoms, self.atoms),
            self.weights,
            spaces=(self.space, self.space),
        )

    def plot(self, ax: Any = None, **style: Any) -> Any:
        """Draw the embedding: a curve in one dimension, contours in two, bars for labels."""
        if self.is_batch:
            raise TypeError("this is a batch of embeddings; plot one of them: e[0].plot().")
        atoms = self.atoms
        if isinstance(atoms, np.ndarray) and atoms.ndim == 1:
            labels = np.unique(atoms)
            return plots.bars(labels, self(labels), "probability", ax, **style)
        host = to_numpy(atoms) if not isinstance(atoms, tuple) else None
        if host is None or host.ndim != 2 or host.shape[1] > 2:
            raise ValueError(
                f"plot draws points with one or two coordinates, or labels; these are "
                f"{checks.describe(atoms)}. Use .mean(), .std() and .mode()."
            )
        axes = [
            np.linspace(*_range(column), 200 if host.shape[1] == 1 else 60) for column in host.T
        ]
        if host.shape[1] == 1:
            values = to_numpy(self(asarray(axes[0][:, None], atoms)))
            return plots.curve(axes[0], values, host[:, 0], ax, **style)
        grid = np.stack(np.meshgrid(*axes), axis=-1)
        values = to_numpy(self(asarray(grid.reshape(-1, 2), atoms))).reshape(grid.shape[:2])
        return plots.contours(axes[0], axes[1], values, host, ax, **style)

    def __repr__(self) -> str:
        name = f"{type(self).__name__}"
        batch = f"batch of {len(self)}, " if self.is_batch else ""
        return f"{name}({batch}{count(self.atoms)} atoms, {self.kernel!r})"


class JointEmbedding(Embedding):
    """The embedding of a pair (or triple): the cross-covariance operator `C_XY` in coordinates.

    Song, Fukumizu and Gretton (2013, eqs. 2 and 5). It is an embedding under the tensor product of
    the kernels, with tuples (X, Y) as atoms, and an operator between the two spaces.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import embed
    >>> from meanmap.kernels import Delta
    >>> weather, mood = (
    ...     np.array(["rain", "rain", "sun", "sun"]),
    ...     np.array(["bad", "bad", "bad", "good"]),
    ... )
    >>> embed((weather, mood), kernel=Delta() @ Delta()).operator()
    array([[0.5 , 0.  ],
           [0.25, 0.25]])
    """

    def __init__(
        self,
        space: Space,
        kernel: Kernel,
        atoms: Points,
        weights: Any,
        coordinates: Array | None = None,
        spaces: tuple[Space, ...] | None = None,
        parts: tuple[Array, ...] | None = None,
    ) -> None:
        super().__init__(space, kernel, atoms, weights, coordinates)
        self._spaces = spaces
        self._parts = parts

    def _like(self, weights: Array | FactoredWeights, coordinates: Array | None) -> Self:
        return type(self)(
            self._space, self.kernel, self._atoms, weights, coordinates, self._spaces, self._parts
        )

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernel of each variable."""
        if not isinstance(self.kernel, TensorProduct):
            raise TypeError(f"expected a tensor product of kernels, got {self.kernel!r}.")
        return self.kernel.kernels

    @property
    def spaces(self) -> tuple[Space, ...]:
        """The space of each variable."""
        self._coordinate_rows()
        assert self._spaces is not None
        return self._spaces

    def _coordinate_rows(self) -> tuple[Array, ...]:
        """ψ of every atom, variable by variable."""
        if self._parts is None:
            if self._spaces is None:
                basis = self._space.basis
                spaces = tuple(Space(kernel, basis) for kernel in self.kernels)
                uniform = checks.weights(None, self.atoms, float_like(self.atoms))
                triples = zip(spaces, self.kernels, self.atoms, strict=True)
                self._parts = tuple(space._place(k, part, uniform) for space, k, part in triples)
                self._spaces = spaces
            else:
                pairs = zip(self._spaces, self.atoms, strict=True)
                self._parts = tuple(space._transform(part) for space, part in pairs)
        return self._parts

    def _shares_coordinates(self, other: Embedding) -> bool:
        if not isinstance(other, JointEmbedding) or self._spaces is None or other._spaces is None:
            return super()._shares_coordinates(other)
        pairs = zip(self._spaces, other._spaces, strict=True)
        return all(mine is theirs for mine, theirs in pairs)

    def _vector(self) -> Array:
        operator = self.operator()
        batch = operator.shape[:1] if self.is_batch else ()
        return namespace(operator).reshape(operator, (*batch, -1))

    def operator(self, centered: bool = False) -> Array:
        """`C_XY = Σ wᵢ ψ(xᵢ) ⊗ ψ(yᵢ)`, shape (r_x, r_y) or (r_x, r_y, r_z); a batch leads.

        Centred, `Σ wᵢ (ψ(xᵢ) - μ_X) ⊗ (ψ(yᵢ) - μ_Y)` (Song et al. 2009, eq. 3), the mean taken with
        the same weights.
        """
        parts = list(self._coordinate_rows())
        if not self.is_batch:
            return self._operator(parts, self.weights, centered)
        xp = namespace(*parts)
        return xp.stack([self._operator(parts, w, centered) for w in self.weights])

    def _operator(self, parts: list[Array], w: Array, centered: bool) -> Array:
        if centered:
            parts = [part - w @ part for part in parts]
        if len(parts) == 2:
            return parts[0].T @ (w[:, None] * parts[1])
        first = (w[:, None] * parts[0]).T
        for part in parts[1:-1]:
            first = first[..., None, :] * part.T
        return first @ parts[-1]

    def norm(self, centered: bool = False) -> Array:
        """The Hilbert-Schmidt norm `‖C_XY‖`; centred, the square root of HSIC."""
        if not centered:
            return super().norm()
        operator = self.operator(centered=True)
        xp = namespace(operator)
        axes = tuple(range(1 if self.is_batch else 0, operator.ndim))
        return _root(xp.sum(operator * operator, axis=axes))

    def marginal(self, variable: int) -> Embedding:
        """The embedding of one of the variables."""
        atoms, spaces = self.atoms[variable], self._spaces
        kernel = self.kernels[variable]
        space = Space(kernel, self._space.basis) if spaces is None else spaces[variable]
        return embedding_of(space, kernel, atoms, self._weights)

    def plot(self, ax: Any = None, **style: Any) -> Any:
        """Draw the joint embedding of two scalar variables, or of two labels, as a map."""
        if self.is_batch or len(self.kernels) != 2:
            raise TypeError("plot draws one joint embedding of two variables.")
        axes = []
        for part in map(to_numpy, self.atoms):
            if part.ndim == 1:
                axes.append(np.unique(part))
            elif part.shape[1:] == (1,):
                axes.append(np.linspace(*_range(part[:, 0]), 60))
            else:
                raise ValueError("plot draws scalar variables or labels; reduce the others first.")
        first, second = axes
        i, j = (index.ravel() for index in np.indices((len(first), len(second))))
        queries = tuple(
            asarray(axis[index][:, None], part) if part.ndim > 1 else axis[index]
            for axis, index, part in zip(axes, (i, j), self.atoms, strict=True)
        )
        values = to_numpy(self(queries)).reshape(len(first), len(second))
        return plots.image(first, second, values, ax, **style)


class GridEmbedding(JointEmbedding):
    """A joint embedding on all pairs (x̃ⱼ, yᵢ) of two sets of atoms, which chain rule (a) gives.

    It is an operator first; the pairs are written out only when somebody asks for atoms.
    """

    def __init__(self, first: Embedding, answers: Embedding, space: Space) -> None:
        self.kernel = TensorProduct(space.kernel_, answers.kernel)
        self._space = Space(self.kernel)
        self._spaces: tuple[Space, ...] = (space, answers.space)
        self._by_coordinates = False
        self._coordinates = None
        self._first, self._answers = first, answers

    is_batch = False

    @property
    def spaces(self) -> tuple[Space, ...]:
        return self._spaces

    @cached_property
    def _pairs(self) -> tuple[np.ndarray, ...]:
        shape = count(self._first.atoms), count(self._answers.atoms)
        return tuple(index.ravel() for index in np.indices(shape))

    @cached_property
    def _atoms(self) -> Points:
        first, second = self._pairs
        return take(self._first.atoms, first), take(self._answers.atoms, second)

    @cached_property
    def _weights(self) -> Array:  # type: ignore[override]
        table = self._first.weights[:, None] * self._answers.weights
        return namespace(table).reshape(table, (-1,))

    @cached_property
    def _parts(self) -> tuple[Array, ...]:  # type: ignore[override]
        return tuple(
            space._transform(part) for space, part in zip(self._spaces, self._atoms, strict=True)
        )

    def operator(self, centered: bool = False) -> Array:
        if centered:
            return super().operator(centered=True)
        psi = self._spaces[0]._transform(self._first.atoms)
        return psi.T @ (self._first.weights[:, None] * self._answers.coordinates)

    def _evaluate(self, points: Points) -> Array:
        first, second = (s._transform(part) for s, part in zip(self._spaces, points, strict=True))
        return namespace(first).sum((first @ self.operator()) * second, axis=1)


def _each(points: Points, function: Callable[[Array], Array]) -> Any:
    """Apply a function to points, part by part where they are tuples."""
    if isinstance(points, tuple):
        return tuple(_each(part, function) for part in points)
    return function(points)


def numeric(points: Array) -> Array:
    """Points as numbers, for moments."""
    if isinstance(points, np.ndarray) and points.dtype.kind not in "fiub":
        raise TypeError(
            f"labels of type {points.dtype} have no mean; use .mode(), or .expect(f) with a "
            "function of the labels."
        )
    return asarray(points, float_like(points))


def _root(value: Array) -> Array:
    """√ of a square that rounding may have made negative."""
    if not is_array(value):
        return np.sqrt(max(value, 0.0))
    xp = namespace(value)
    return xp.where(value > 0, value, xp.zeros_like(value)) ** 0.5


def _range(column: np.ndarray) -> tuple[float, float]:
    low, high = float(column.min()), float(column.max())
    margin = 0.15 * (high - low) or 1.0
    return low - margin, high + margin


def function_values(f: Callable[[Points], Array], atoms: Points) -> Array:
    """`f` at all the atoms, checked: one value (or row) for each."""
    if not callable(f):
        raise TypeError(f"expected a function of the points, got {checks.describe(f)}.")
    values = f(atoms)
    like = float_like(atoms)
    values = asarray(values if is_array(values) else np.asarray(values), like)
    if values.ndim == 0 or values.shape[0] != count(atoms):
        raise ValueError(
            f"the function returned shape {tuple(values.shape)} for {count(atoms)} points; it gets "
            "all points at once and must return one value (or row) for each: use array operations, "
            "or np.vectorize."
        )
    return values
