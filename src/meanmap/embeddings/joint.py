"""The embedding of a joint distribution."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from meanmap import checks
from meanmap.arrays import Array, Points, count, each_part, namespace, take, to_numpy
from meanmap.decoding import draw
from meanmap.embeddings.element import Element, LazyCoordinates, root
from meanmap.embeddings.single import Embedding
from meanmap.kernels import Kernel, TensorProduct
from meanmap.spaces import Space
from meanmap.spaces.space import fit_space


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
        coordinates: LazyCoordinates = None,
        spaces: tuple[Space, ...] | None = None,
        parts: tuple[Array, ...] | None = None,
    ) -> None:
        super().__init__(space, kernel, atoms, weights, coordinates)
        self._spaces = spaces
        self._parts = parts

    def made_of(self) -> dict[str, Any]:
        return {**super().made_of(), "spaces": self._spaces, "parts": self._parts}

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernel of each variable."""
        if not self.kernel.factors:
            raise TypeError(f"expected a tensor product of kernels, got {self.kernel!r}.")
        return self.kernel.factors

    @property
    def spaces(self) -> tuple[Space, ...]:
        """The space of each variable."""
        if self._spaces is None:
            self._coordinate_rows()
        assert self._spaces is not None
        return self._spaces

    def _coordinate_rows(self) -> tuple[Array, ...]:
        """ψ of every atom, variable by variable."""
        if self._parts is None:
            if self._spaces is None:
                basis = self._space.basis
                pairs = zip(self.kernels, self.atoms, strict=True)
                fitted = [fit_space(kernel, basis, part) for kernel, part in pairs]
                self._spaces, self._parts = zip(*fitted, strict=True)
            else:
                pairs = zip(self._spaces, self.atoms, strict=True)
                self._parts = tuple(space.coordinates(part) for space, part in pairs)
        return self._parts

    @property
    def vector_spaces(self) -> tuple[Space, ...] | None:
        return self._spaces or super().vector_spaces

    def as_vector(self) -> Array:
        if self._spaces is None:
            return super().as_vector()
        operator = self.operator()
        batch = operator.shape[:1] if self.is_batch else ()
        return namespace(operator).reshape(operator, (*batch, -1))

    def operator(self, centered: bool = False) -> Array:
        """`C_XY = Σ wᵢ ψ(xᵢ) ⊗ ψ(yᵢ)`, shape (r_x, r_y) or (r_x, r_y, r_z); a batch leads.

        Centred, `C_XY - μ_X ⊗ μ_Y` (Song et al. 2009, eqs. 3 and 9), the means taken with the same
        weights; of three variables the central moment `E[(ψ - μ_X) ⊗ (ψ - μ_Y) ⊗ (ψ - μ_Z)]`.
        """
        parts = list(self._coordinate_rows())
        if not self.is_batch:
            return self._operator(parts, self.weights, centered)
        xp = namespace(*parts)
        return xp.stack([self._operator(parts, w, centered) for w in self.weights])

    def _operator(self, parts: list[Array], w: Array, centered: bool) -> Array:
        if not centered:
            return _moment(parts, w)
        xp = namespace(w)
        means = [w @ part for part in parts]
        moment = _moment([part - mean for part, mean in zip(parts, means, strict=True)], w)
        # a probability has mass one; the weights of a conditional need not sum to it
        missing = (-1.0) ** len(parts) * (1 - xp.sum(w))
        product = _moment([mean[None, :] for mean in means], xp.ones_like(w[:1]))
        return moment + missing * product

    def inner(self, other: Element) -> Array:
        # a grid of pairs is better evaluated than written out
        if self.written_out and isinstance(other, Element) and not other.written_out:
            return other.inner(self)
        return super().inner(other)

    def norm(self, centered: bool = False) -> Array:
        """The Hilbert-Schmidt norm `‖C_XY‖`; centred, the square root of HSIC."""
        if not centered:
            return super().norm()
        operator = self.operator(centered=True)
        xp = namespace(operator)
        axes = tuple(range(1 if self.is_batch else 0, operator.ndim))
        return root(xp.sum(operator * operator, axis=axes))

    def marginal(self, variable: int) -> Embedding:
        """The embedding of one of the variables."""
        d = len(self.kernels)
        if not isinstance(variable, int | np.integer) or not -d <= variable < d:
            raise ValueError(
                f"variable must be one of 0 … {d - 1}, in the order of the sample; "
                f"got {variable!r:.40}."
            )
        atoms, spaces = self.atoms[variable], self._spaces
        kernel = self.kernels[variable]
        space = Space(kernel, self._space.basis) if spaces is None else spaces[variable]
        return Embedding(space, kernel, atoms, self.made_of()["weights"])


def _moment(parts: list[Array], w: Array) -> Array:
    """`Σ wᵢ part₁ᵢ ⊗ part₂ᵢ ⊗ …`."""
    if len(parts) == 1:
        return w @ parts[0]
    first = (w[:, None] * parts[0]).T
    for part in parts[1:-1]:
        first = first[..., None, :] * part.T
    return first @ parts[-1]


class GridEmbedding(JointEmbedding):
    """A joint embedding on all pairs (x̃ⱼ, yᵢ) of two sets of atoms, which chain rule (a) gives.

    It is an operator first; the pairs are written out only when atoms are asked for.
    """

    written_out: ClassVar[bool] = False
    is_batch = False
    vector_spaces = None  # its first variable need not lie in the span of the sample

    def __init__(self, first: Embedding, answers: Embedding, space: Space) -> None:
        kernel = TensorProduct(space.kernel_, answers.kernel)
        atoms, spaces = (first.atoms, answers.atoms), (space, answers.space)
        super().__init__(Space(kernel), kernel, atoms, None, spaces=spaces)
        self._first, self._answers = first, answers

    @cached_property
    def atoms(self) -> Points:
        shape = count(self._first.atoms), count(self._answers.atoms)
        pairs = (index.ravel() for index in np.indices(shape))
        return tuple(take(part, index) for part, index in zip(self._atoms, pairs, strict=True))

    @cached_property
    def weights(self) -> Array:
        table = self._first.weights[:, None] * self._answers.weights
        return namespace(table).reshape(table, (-1,))

    def made_of(self) -> dict[str, Any]:
        return {**super().made_of(), "weights": self.weights}

    def on_atoms(self, *made_of: Any, **named: Any) -> JointEmbedding:
        return JointEmbedding(*made_of, **named)

    def operator(self, centered: bool = False) -> Array:
        if centered:
            return super().operator(centered=True)
        return self.spaces[0].coordinates(self._first.atoms).T @ self._rows

    @cached_property
    def _rows(self) -> Array:
        """`αⱼ C_Y|X ψ(x̃ⱼ)`: what stands beside k(x̃ⱼ, ·)."""
        return self._first.weights[:, None] * self._answers.coordinates

    def evaluate(self, points: Points) -> Array:
        # exact in x̃, whose features need not lie in the span of the sample's
        rows = self.kernels[0].gram_times(points[0], self._first.atoms, self._rows)
        return namespace(rows).sum(rows * self.spaces[1].coordinates(points[1]), axis=1)

    def sample(self, n: int, rng: Any = None) -> Points:
        """Draw n pairs: atoms of the first variable, and for each an atom of the second given it.

        As `Embedding.sample` draws them; the pairs are never written out.
        """
        n, random = checks.whole(n), checks.random_generator(rng)
        p = to_numpy(self._first.project().weights).astype(np.float64)
        index = np.sort(draw(p[None, :], n, random)[0])
        chosen, begin, many = np.unique(index, return_index=True, return_counts=True)
        second = self._answers[chosen].sample(int(many.max()), random)  # (atoms, draws, …)
        row = np.repeat(np.arange(len(chosen)), many)
        order = random.permutation(n)
        drawn = each_part(second, lambda part: part[row, np.arange(n) - begin[row]])
        return take(self._first.atoms, index[order]), take(drawn, order)

    def inner(self, other: Element) -> Array:
        if not isinstance(other, GridEmbedding) or other.spaces[1] is not self.spaces[1]:
            return super().inner(other)
        rows = self.kernels[0].gram_times(self._first.atoms, other._first.atoms, other._rows)
        return namespace(rows).sum(rows * self._rows)[()]
