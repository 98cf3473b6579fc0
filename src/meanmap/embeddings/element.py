"""Elements of a reproducing kernel Hilbert space: algebra and geometry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import numpy as np

from meanmap import checks
from meanmap.arrays import (
    Array,
    Points,
    asarray,
    assign,
    concatenate,
    count,
    first_array,
    float_like,
    is_array,
    is_floating,
    leaves,
    namespace,
    same_library,
    spans,
    take,
    to_numpy,
    transpose,
    weighted_sum,
)
from meanmap.decoding.quantiles import refuse_labels
from meanmap.kernels import Kernel
from meanmap.kernels.algebra import match_columns, require_same_kernel
from meanmap.protocols import ForUsers
from meanmap.spaces import PivotedCholesky, Space
from meanmap.spaces.space import fit_space_quietly

EXACT = 1 << 26  # kernel values that e(x) computes one by one rather than through coordinates
CERTAIN = 1e-7  # the error, relative to sup k, up to which coordinates stand for the atoms
BLOCK = 1 << 12  # points whose coordinates are in memory at a time

LazyCoordinates = Array | Callable[[], Array] | None


class Element(ForUsers):
    """`Σ wᵢ k(xᵢ, ·)`: atoms and weights first, coordinates second.

    What an element is as a distribution, `Embedding` answers.
    """

    #: Whether the atoms are stored, and not computed when they are asked for.
    written_out: ClassVar[bool] = True

    __array_ufunc__ = None  # a NumPy array times an embedding is the embedding's to refuse

    def __init__(
        self,
        space: Space,
        kernel: Kernel,
        atoms: Points,
        weights: Array | FactoredWeights,
        coordinates: LazyCoordinates = None,
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
        if not self._space.is_fitted:
            self._space.fit_points(self.atoms)
        return self._space

    @property
    def coordinates(self) -> Array:
        """`m = Σ wᵢ ψ(xᵢ)`, shape (r,) or (b, r)."""
        if callable(self._coordinates):
            self._coordinates = self._coordinates()
        if self._coordinates is None:
            if self._space.is_fitted:
                self._coordinates = self._space.mean_coordinates(self.atoms, self.weights)
            else:
                self._coordinates = self.weights @ self._space.fit_points(self.atoms)
        return self._coordinates

    @property
    def is_batch(self) -> bool:
        """Whether this is a batch of embeddings."""
        return self._weights.ndim == 2

    @property
    def example(self) -> Points:
        """One atom, which tells what all of them look like."""
        return take(self._atoms, slice(0, 1))

    def made_of(self) -> dict[str, Any]:
        """The arguments that this element is made from."""
        coordinates = self._coordinates if self._by_coordinates else None
        return {
            "space": self._space,
            "kernel": self.kernel,
            "atoms": self.atoms,
            "weights": self._weights,
            "coordinates": coordinates,
        }

    def with_weights(
        self, weights: Array | FactoredWeights, coordinates: LazyCoordinates = None
    ) -> Self:
        """Other weights on the same atoms; coordinates if the element was computed in them."""
        changed = {"weights": weights, "coordinates": coordinates}
        return self.on_atoms(**{**self.made_of(), **changed})

    def on_atoms(self, *made_of: Any, **named: Any) -> Any:
        """An element like this one made of another space, kernel, atoms, weights, coordinates."""
        return type(self)(*made_of, **named)

    def in_space(self, space: Space, name: str = "the prior's atoms") -> Array:
        """Its coordinates in a fitted space, its atoms embedded there where it lives elsewhere."""
        if self._space is space:
            return self.coordinates
        atoms = self.atoms_for(space.kernel_, name, space.example_)
        return space.mean_coordinates(atoms, asarray(self.weights, float_like(space.example_)))

    def atoms_for(self, kernel: Kernel, name: str, like: Points) -> Points:
        """The atoms as points of another kernel: of the kind of `like`, columns matched by name."""
        return kernel.check(match_columns(self.atoms, self.kernel, kernel, name), name, like)

    # --- algebra ------------------------------------------------------------------------------

    def __add__(self, other: Element) -> Any:
        return _add(self, other, 1.0) if isinstance(other, Element) else NotImplemented

    def __sub__(self, other: Element) -> Any:
        return _add(self, other, -1.0) if isinstance(other, Element) else NotImplemented

    def __mul__(self, factor: float) -> Self:
        if isinstance(factor, Element):
            return NotImplemented
        number = checks.number(factor, "an embedding's factor")
        return self.with_weights(number * self.weights, self.scaled_coordinates(number))

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Self:
        number = checks.number(divisor, "an embedding's divisor")
        if number == 0:
            raise ValueError("an embedding's divisor must not be 0.")
        return self * (1 / number)

    def __neg__(self) -> Self:
        return self * -1.0

    def scaled_coordinates(self, factor: Any) -> LazyCoordinates:
        """The coordinates of a multiple, computed when needed; None for a sum over atoms."""
        return partial(_multiply, self, factor) if self._by_coordinates else None

    def __len__(self) -> int:
        if not self.is_batch:
            raise TypeError("this is one embedding, not a batch; its atoms are in .atoms.")
        return int(self._weights.shape[0])

    def __getitem__(self, index: Any) -> Self:
        len(self)
        coordinates = self.coordinates[index] if self._by_coordinates else None
        return self.with_weights(self._weights[index], coordinates)

    def __iter__(self) -> Iterator[Self]:
        return (self[i] for i in range(len(self)))

    # --- functions and geometry ---------------------------------------------------------------

    def __call__(self, x: Any) -> Array:
        """The embedding as a function, `e(x) = Σ wᵢ k(xᵢ, x)`: shape (m,) or (b, m).

        For a Gaussian kernel it is proportional to a kernel density estimate.
        """
        points, single = self.kernel.rows(x, self.atoms)
        values = self.evaluate(points)
        return values[..., 0] if single else values

    def evaluate(self, points: Points) -> Array:
        """`e(x)` at points that passed the gate, (m,) or (b, m)."""
        if self._by_coordinates:
            m, blocks = self.coordinates, spans(count(points), 1 << 14)
            parts = [m @ self.space.coordinates(take(points, block)).T for block in blocks]
            return namespace(m).concat(parts, axis=-1)
        atoms, weights = self.atoms, self.weights
        if count(points) * count(atoms) <= EXACT or self.certified is None:
            return transpose(self.kernel.gram_times(points, atoms, transpose(weights)))
        return self.certified.evaluate(points, atoms, weights)

    @cached_property
    def certified(self) -> Certified | None:
        """Coordinates that are proven to stand for the atoms, or None if none were found."""
        return Certified.of(self.kernel, self.atoms, self.weights)

    def inner(self, other: Element) -> Array:
        """`⟨e, other⟩`, one number for each pair of a batch."""
        other = _matching(self, other)
        left, right = _vectors(self, other) or (self.evaluate(other.atoms), other.weights)
        return namespace(left).sum(left * right, axis=-1)[()]

    @property
    def vector_spaces(self) -> tuple[Space, ...] | None:
        """The spaces whose coordinates this element *is*; None for a sum over atoms."""
        return (self._space,) if self._by_coordinates else None

    def as_vector(self) -> Array:
        """Its coordinates in those spaces, (r,) or (b, r)."""
        return self.coordinates

    def norm(self) -> Array:
        """`‖e‖` in the space's norm."""
        return root(self.inner(self))

    def distance(self, other: Element) -> Array:
        """`‖e - other‖`, the maximum mean discrepancy of two distributions."""
        other = _matching(self, other)
        vectors = _vectors(self, other)
        if vectors is not None:
            difference = vectors[0] - vectors[1]
            return root(namespace(difference).sum(difference * difference, axis=-1)[()])
        if self._atoms is other._atoms and self.written_out:
            return (self - other).norm()
        squares = self.inner(self) + other.inner(other)
        return root(squares - 2 * self.inner(other))

    def expect(self, f: Callable[[Points], Array] | Element) -> Array:
        """`Σ wᵢ f(xᵢ)`: raw and linear, weights as they are.

        `f` takes all the atoms at once, shape (n, …), and returns one value (or row) for each; an
        embedding stands for the function that it is.
        """
        if isinstance(f, Element):
            return self.inner(f)
        return self.total(function_values(f, self.atoms))

    def total(self, values: Array) -> Array:
        """`Σ wᵢ valuesᵢ` for values at the atoms, of any shape."""
        return weighted_sum(self.made_of()["weights"], values)[()]


def move_atoms(element: Element, kernel: Kernel, like: Points) -> Any:
    """The element with atoms of the library and precision of `like`."""
    name, point = "the other embedding's atoms", element.example
    ordered = match_columns(point, element.kernel, kernel, name)
    checked = kernel.check(ordered, name, like, "this one")
    pairs = zip(leaves(point), leaves(checked), strict=True)
    if ordered is point and all(_same_array_kind(before, after) for before, after in pairs):
        return element
    atoms = element.atoms_for(kernel, name, like)
    weights = asarray(element.weights, float_like(atoms))
    # in another order the columns are those of the other kernel, and no longer of this one
    kept = element.kernel if ordered is point else kernel
    return element.on_atoms(Space(kept, element._space.basis), kept, atoms, weights)


def _add(element: Element, other: Element, sign: float) -> Any:
    other = _matching(element, other)
    if other._atoms is element._atoms:
        atoms, weights = element.atoms, element.weights + sign * other.weights
    else:
        atoms = concatenate([element.atoms, other.atoms])
        left, right = element.weights, sign * other.weights
        xp = namespace(left)
        batch = np.broadcast_shapes(left.shape[:-1], right.shape[:-1])
        rows = [xp.broadcast_to(part, (*batch, part.shape[-1])) for part in (left, right)]
        weights = xp.concat(rows, axis=-1)
    shared = element._space is other._space and element._space.is_fitted
    coordinates = None
    if shared and element._by_coordinates and other._by_coordinates:
        coordinates = element.coordinates + sign * other.coordinates
    space = element._space if shared else Space(element.kernel, element._space.basis)
    return element.on_atoms(space, element.kernel, atoms, weights, coordinates)


def _matching(mine: Element, other: Element) -> Element:
    """`other` with atoms that can be compared with mine: same kernel, kind and library."""
    if not isinstance(other, Element):
        raise TypeError(
            f"expected an embedding, got {checks.describe(other)}. Embed the points first: "
            "embed(points, kernel=this.kernel)."
        )
    require_same_kernel(mine.kernel, other.kernel)
    if mine.is_batch and other.is_batch and len(mine) != len(other):
        raise ValueError(
            f"a batch of {len(mine)} embeddings does not go with a batch of {len(other)}; "
            "batches are matched one by one, or with a single embedding."
        )
    return move_atoms(other, mine.kernel, mine.example)


def _vectors(a: Element, b: Element) -> tuple[Array, Array] | None:
    """Coordinates to take inner products in, where both elements are those of the same spaces."""
    if a.vector_spaces is None or a.vector_spaces != b.vector_spaces:
        return None
    return a.as_vector(), b.as_vector()


def _multiply(element: Element, factor: Any) -> Array:
    return element.coordinates * factor


def _same_array_kind(a: Array, b: Array) -> bool:
    return same_library(a, b) and (a.dtype == b.dtype or not is_floating(a))


# --- weights on atoms -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Deferred:
    """A large sample's coordinates, which are not kept: computed one block at a time."""

    space: Any
    points: Points
    intercept: bool = False  # one more coordinate, constantly 1

    def array(self) -> Array:
        """All of them at once."""
        return namespace(first_array(self.points)).concat([rows for _, rows in self.blocks()])

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Stretches of the sample and their coordinates."""
        for block in spans(count(self.points), 1 << 12):
            psi = self.space.coordinates(take(self.points, block))
            if self.intercept:
                xp = namespace(psi)
                psi = xp.concat([psi, xp.ones_like(psi[:, :1])], axis=1)
            yield block, psi


def as_rows(rows: Any) -> Array:
    """Coordinates as an array, whether they were kept or not."""
    return rows.array() if isinstance(rows, Deferred) else rows


def row_blocks(rows: Any) -> Iterator[tuple[slice, Array]]:
    """Stretches of a sample and their coordinates: one, where they were kept."""
    return rows.blocks() if isinstance(rows, Deferred) else iter([(slice(None), rows)])


@dataclass(frozen=True)
class FactoredWeights:
    """Weights `scale ∘ (rows · vector)`, kept as factors: n × r and r numbers, never n × batch.

    With `rest`, weights (n,) that sum to one, `missing` times those are added.
    """

    scale: Array
    rows: Any  # an array, or Deferred
    vector: Array  # (r,) or (b, r)
    rest: Array | None = None
    missing: Array | None = None  # () or (b,)

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.vector.shape[:-1], self.scale.shape[0])

    @property
    def ndim(self) -> int:
        return int(self.vector.ndim)

    def dense(self) -> Array:
        weights = self.scale * (self.vector @ as_rows(self.rows).T)
        return weights if self.missing is None else weights + self.missing[..., None] * self.rest

    def apply(self, values: Array) -> Array:
        """`Σᵢ wᵢ valuesᵢ` for values (n, q)."""
        scaled = self.scale[:, None] * values
        parts = [rows.T @ scaled[block] for block, rows in row_blocks(self.rows)]
        total = self.vector @ sum(parts[1:], parts[0])
        if self.missing is None:
            return total
        return total + self.missing[..., None] * (self.rest @ values)

    __matmul__ = apply

    def __getitem__(self, index: Any) -> FactoredWeights:
        missing = None if self.missing is None else self.missing[index]
        return replace(self, vector=self.vector[index], missing=missing)

    def __mul__(self, factor: Array) -> FactoredWeights:
        """These weights times a number (1,), or one for each of a batch (b, 1)."""
        missing = None if self.missing is None else self.missing * factor[..., 0]
        return replace(self, vector=self.vector * factor, missing=missing)


# --- values at points -----------------------------------------------------------------------------


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


def numeric(points: Array) -> Array:
    """Points as numbers, for moments."""
    refuse_labels(points, "mean")
    return asarray(points, float_like(points))


def root(value: Any) -> Any:
    """√ of a square that rounding may have made negative."""
    if not is_array(value):
        return np.sqrt(max(value, 0.0))
    xp = namespace(value)
    return xp.where(value < 0, xp.zeros_like(value), value) ** 0.5


@dataclass(frozen=True)
class Certified:
    """Coordinates of which it is known at every point how well they stand for some atoms.

    With P the projection on the span of some pivots, the error |⟨m - Pm, k_x - Pk_x⟩| is at most
    `Σ|wᵢ| r(xᵢ) · r(x)`, r(x)² = k(x, x) - ‖ψ(x)‖², and r comes with ψ.
    """

    space: Space
    element: Array  # m, (r,) or (b, r)
    missed: float  # Σ|wᵢ| r(xᵢ)
    scale: float  # Σ|wᵢ| times the largest k(xᵢ, xᵢ)

    @classmethod
    def of(cls, kernel: Kernel, atoms: Points, weights: Array) -> Self | None:
        """Coordinates that are good to `CERTAIN`; None if there are none of a moderate rank.

        The pivots come from a part of the atoms, and all the atoms are streamed past them, so that
        memory does not grow with the sample.
        """
        n, xp = count(atoms), namespace(weights)
        chosen = np.linspace(0, n - 1, min(n, 2 * BLOCK)).astype(int)
        # a hundredth of what is needed on average leaves room for points at the sample's edge
        rank = min(BLOCK // 2, int(2 * n**0.5))  # beyond it the atoms themselves are faster
        basis = PivotedCholesky(CERTAIN / 100, rank)
        space, _ = fit_space_quietly(kernel, basis, take(atoms, chosen))
        if space.residual_ > CERTAIN / 100:
            return None
        size = abs(weights)
        blocks = list(spans(n, BLOCK))
        parts = [size[..., b] @ _coordinates_and_rest(space, take(atoms, b))[1] for b in blocks]
        missed = float(xp.max(sum(parts[1:], parts[0])))
        largest = float(xp.max(kernel.squared_norms(atoms)))
        scale = float(xp.max(xp.sum(size, axis=-1) * largest))
        return cls(space, space.mean_coordinates(atoms, weights), missed, scale)

    def evaluate(self, points: Points, atoms: Points, weights: Array) -> Array:
        """`e(x)` through coordinates where they are proven good enough, else from the atoms."""
        values = []
        for block in spans(count(points), BLOCK):
            part = take(points, block)
            psi, rest = _coordinates_and_rest(self.space, part)
            value = self.element @ psi.T
            doubtful = to_numpy(self.missed * rest > CERTAIN * self.scale)
            if doubtful.any():
                far = take(part, doubtful)
                exact = self.space.kernel_.gram_times(far, atoms, transpose(weights))
                value = assign(value, (..., doubtful), transpose(exact))
            values.append(value)
        return namespace(self.element).concat(values, axis=-1)


def _coordinates_and_rest(space: Space, points: Points) -> tuple[Array, Array]:
    """ψ(x), and the length √(k(x, x) - ‖ψ(x)‖²) of what it misses."""
    psi = space.coordinates(points)
    xp = namespace(psi)
    return psi, root(space.kernel_.squared_norms(points) - xp.sum(psi * psi, axis=1))
