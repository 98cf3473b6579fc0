"""Elements of a reproducing kernel Hilbert space: algebra and geometry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import numpy as np

from meanmap import checks
from meanmap.arrays import (
    Array,
    Points,
    asarray,
    concatenate,
    float_like,
    is_floating,
    namespace,
    same_library,
    take,
    weighted_sum,
)
from meanmap.embeddings.evaluation import Certified, evaluate_atoms, evaluate_coordinates
from meanmap.embeddings.values import FactoredWeights, function_values, leaves, root
from meanmap.kernels import Kernel
from meanmap.kernels.algebra import match_columns, require_same_kernel
from meanmap.spaces import Space

LazyCoordinates = Array | Callable[[], Array] | None


class Element:
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
        return type(self)(**{**self.made_of(), **changed})

    def on_atoms(self, *made_of: Any) -> Any:
        """An element like this one on other atoms: space, kernel, atoms, weights, coordinates."""
        return type(self)(*made_of)

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
            return evaluate_coordinates(self.space, self.coordinates, points)
        return evaluate_atoms(self, points)

    @cached_property
    def certified(self) -> Certified | None:
        """Coordinates that are proven to stand for the atoms; None if there are none."""
        return Certified.of(self.kernel, self.atoms, self.weights)

    def inner(self, other: Element) -> Array:
        """`⟨e, other⟩`, one number for each pair of a batch."""
        other = _matching(self, other)
        vectors = _vectors(self, other)
        if vectors is not None:
            mine, theirs = vectors
            return namespace(mine).sum(mine * theirs, axis=-1)[()]
        values = self.evaluate(other.atoms)
        return namespace(values).sum(values * other.weights, axis=-1)[()]

    def as_vector(self) -> tuple[tuple[Space, ...], Callable[[], Array]] | None:
        """The spaces whose coordinates this element *is*, and those; None for a sum over atoms."""
        return ((self._space,), lambda: self.coordinates) if self._by_coordinates else None

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
        if isinstance(self._weights, FactoredWeights):
            xp = namespace(values)
            flat = xp.reshape(values, (values.shape[0], -1))
            total = self._weights.apply(flat)
            return xp.reshape(total, (*self._weights.shape[:-1], *values.shape[1:]))[()]
        return weighted_sum(self.weights, values)[()]


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
    mine, theirs = a.as_vector(), b.as_vector()
    if mine is None or theirs is None or len(mine[0]) != len(theirs[0]):
        return None
    if any(one is not other for one, other in zip(mine[0], theirs[0], strict=True)):
        return None
    return mine[1](), theirs[1]()


def _multiply(element: Element, factor: Any) -> Array:
    return element.coordinates * factor


def _same_array_kind(a: Array, b: Array) -> bool:
    return same_library(a, b) and (a.dtype == b.dtype or not is_floating(a))
