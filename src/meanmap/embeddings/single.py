"""The embedding of a distribution."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from numbers import Real
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from meanmap import checks, decoding, plots
from meanmap.arrays import (
    Array,
    Points,
    asarray,
    assign,
    concatenate,
    count,
    filled,
    float_like,
    is_array,
    is_floating,
    namespace,
    one_blas_thread,
    same_library,
    spans,
    take,
    to_numpy,
    transposed,
    weighted_sum,
)
from meanmap.decoding import quantiles, sampling
from meanmap.embeddings.values import (
    FactoredWeights,
    each_part,
    function_values,
    middle,
    numeric,
    root,
    variance,
)
from meanmap.kernels import Kernel
from meanmap.kernels.algebra import match_columns, require_same_kernel
from meanmap.spaces import PivotedCholesky, Space
from meanmap.spaces.space import fit_space, fit_space_quietly

if TYPE_CHECKING:
    from meanmap.embeddings.joint import JointEmbedding

EXACT = 1 << 26  # kernel values that e(x) computes one by one rather than through coordinates
CERTAIN = 1e-7  # the error, relative to sup k, up to which coordinates stand for the atoms
BLOCK = 1 << 12  # points whose coordinates are in memory at a time


class Embedding:
    """An element of a reproducing kernel Hilbert space: atoms and weights, `Σ wᵢ k(xᵢ, ·)`.

    Made by `embed`, by conditioning (`ConditionalEmbedding.given`) and by the rules. A batch of
    embeddings on the same atoms has weights (b, n), and adds that leading axis to every answer.

    Attributes
    ----------
    kernel : the kernel, its bandwidth resolved
    atoms, weights : the points and their weights, which may be negative
    space, coordinates : the element in coordinates, computed when first asked for

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import embed
    >>> e = embed(np.random.default_rng(0).normal(size=(500, 1)))
    >>> e.mean().round(1), e.std().round(1)
    (array([-0.]), array([1.]))
    >>> low, high = e.interval(0.9)
    >>> bool(low[0] < -1.4 and high[0] > 1.4)
    True
    """

    __array_ufunc__ = None  # a NumPy array times an embedding is the embedding's to refuse

    def __init__(
        self,
        space: Space,
        kernel: Kernel,
        atoms: Points,
        weights: Array | FactoredWeights,
        coordinates: Array | Callable[[], Array] | None = None,
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
        if callable(self._coordinates):
            self._coordinates = self._coordinates()
        if self._coordinates is None:
            if hasattr(self._space, "kernel_"):
                self._coordinates = self._space.mean_coordinates(self.atoms, self.weights)
            else:
                self._coordinates = self.weights @ self._place()
        return self._coordinates

    def _place(self) -> Array:
        return self._space.fit_points(self.atoms)

    @property
    def is_batch(self) -> bool:
        """Whether this is a batch of embeddings."""
        return self._weights.ndim == 2

    # --- algebra ------------------------------------------------------------------------------

    def matched(self, other: Embedding) -> Embedding:
        """`other` with atoms that can be compared with these: same kernel, kind and library."""
        if not isinstance(other, Embedding):
            raise TypeError(
                f"expected an embedding, got {checks.describe(other)}. Embed the points first: "
                "embed(points, kernel=this.kernel)."
            )
        require_same_kernel(self.kernel, other.kernel)
        if self.is_batch and other.is_batch and len(self) != len(other):
            raise ValueError(
                f"a batch of {len(self)} embeddings does not go with a batch of {len(other)}; "
                "batches are matched one by one, or with a single embedding."
            )
        return other.moved_to(self.kernel, self._like_point)

    def moved_to(self, kernel: Kernel, like: Points) -> Embedding:
        """This embedding with atoms of the library and precision of `like`."""
        name, point = "the other embedding's atoms", self._like_point
        ordered = match_columns(point, self.kernel, kernel, name)
        checked = kernel.check(ordered, name, like, "this one")
        pairs = zip(_leaves(point), _leaves(checked), strict=True)
        if ordered is point and all(_same_array_kind(before, after) for before, after in pairs):
            return self
        atoms = self.atoms_for(kernel, name, like)
        weights = asarray(self.weights, float_like(atoms))
        # in another order the columns are those of the other kernel, and no longer of this one
        kept = self.kernel if ordered is point else kernel
        return type(self)(Space(kept, self._space.basis), kept, atoms, weights, None)

    def atoms_for(self, kernel: Kernel, name: str, like: Points) -> Points:
        """The atoms as points of another kernel: of the kind of `like`, columns matched by name."""
        return kernel.check(match_columns(self.atoms, self.kernel, kernel, name), name, like)

    @property
    def _like_point(self) -> Points:
        """One atom, which tells what all of them look like."""
        return take(self._atoms, slice(0, 1))

    def _combined(self, other: Embedding, sign: float) -> Embedding:
        other = self.matched(other)
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
            return self._made(self._space, atoms, weights, coordinates)
        space = self._space if shared else Space(self.kernel, self._space.basis)
        return self._made(space, atoms, weights)

    def _made(
        self, space: Space, atoms: Points, weights: Array, coordinates: Array | None = None
    ) -> Embedding:
        """An embedding of the same kernel on other atoms."""
        return Embedding(space, self.kernel, atoms, weights, coordinates)

    def __add__(self, other: Embedding) -> Embedding:
        return self._combined(other, 1.0) if isinstance(other, Embedding) else NotImplemented

    def __sub__(self, other: Embedding) -> Embedding:
        return self._combined(other, -1.0) if isinstance(other, Embedding) else NotImplemented

    def __mul__(self, factor: float) -> Self:
        if isinstance(factor, Embedding):
            return NotImplemented
        number = checks.number(factor, "an embedding's factor")
        coordinates = partial(_scaled, self, number) if self._by_coordinates else None
        return self._like(number * self.weights, coordinates)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Self:
        number = checks.number(divisor, "an embedding's divisor")
        if number == 0:
            raise ValueError("an embedding's divisor must not be 0.")
        return self * (1 / number)

    def __neg__(self) -> Self:
        return self * -1.0

    def _like(
        self,
        weights: Array | FactoredWeights,
        coordinates: Array | Callable[[], Array] | None,
    ) -> Self:
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
                self.coordinates @ self.space.coordinates(take(points, block)).T for block in blocks
            ]
            return namespace(parts[0]).concat(parts, axis=-1)
        if count(points) * count(self.atoms) <= EXACT or self._evaluator is None:
            return transposed(self.kernel.gram_times(points, self.atoms, transposed(self.weights)))
        return self._certified(points)

    def _certified(self, points: Points) -> Array:
        """`e(x)` through coordinates where they are proven good enough, else from the atoms.

        With P the projection on the span of some pivots, the error |⟨m - Pm, k_x - Pk_x⟩| is at
        most `Σ|wᵢ| r(xᵢ) · r(x)`, r(x)² = k(x, x) - ‖ψ(x)‖², and r comes with ψ.
        """
        assert self._evaluator is not None
        space, m, missed = self._evaluator
        xp = namespace(m)
        scale = float(xp.max(xp.sum(abs(self.weights), axis=-1) * self._peak))
        values = []
        for block in spans(count(points), BLOCK):
            part = take(points, block)
            psi, rest = _coordinates_and_rest(space, part)
            value = m @ psi.T
            doubtful = to_numpy(missed * rest > CERTAIN * scale)
            if doubtful.any():
                far = take(part, doubtful)
                exact = self.kernel.gram_times(far, self.atoms, transposed(self.weights))
                value = assign(value, (..., doubtful), transposed(exact))
            values.append(value)
        return xp.concat(values, axis=-1)

    @cached_property
    def _peak(self) -> float:
        """The largest k(xᵢ, xᵢ)."""
        return float(namespace(self.weights).max(self.kernel.squared_norms(self.atoms)))

    @cached_property
    def _evaluator(self) -> tuple[Space, Array, float] | None:
        """Coordinates that are good to `CERTAIN`, the element in them, and what they miss of it.

        None if there are no such coordinates of a moderate rank. The pivots come from a part of
        the atoms, and all the atoms are streamed past them, so that memory does not grow with the
        sample.
        """
        n = count(self.atoms)
        chosen = np.linspace(0, n - 1, min(n, 2 * BLOCK)).astype(int)
        # a hundredth of what is needed on average leaves room for points at the sample's edge
        rank = min(BLOCK // 2, int(2 * n**0.5))  # beyond it the atoms themselves are faster
        basis = PivotedCholesky(CERTAIN / 100, rank)
        space, _ = fit_space_quietly(self.kernel, basis, take(self.atoms, chosen))
        if space.residual_ > CERTAIN / 100:
            return None
        missed = 0.0
        for block in spans(n, BLOCK):
            rest = _coordinates_and_rest(space, take(self.atoms, block))[1]
            total = abs(self.weights[..., block]) @ rest
            missed = missed + total
        return (
            space,
            space.mean_coordinates(self.atoms, self.weights),
            float(namespace(total).max(missed)),
        )

    def inner(self, other: Embedding) -> Array:
        """`⟨e, other⟩`, one number for each pair of a batch."""
        other = self.matched(other)
        if self._shares_coordinates(other):
            mine, theirs = self._vector(), other._vector()
            return namespace(mine).sum(mine * theirs, axis=-1)[()]
        values = self._evaluate(other.atoms)
        return namespace(values).sum(values * other.weights, axis=-1)[()]

    def _shares_coordinates(self, other: Embedding) -> bool:
        return self._space is other._space and self._by_coordinates and other._by_coordinates

    def _shares_atoms(self, other: Embedding) -> bool:
        return other._atoms is self._atoms

    def _vector(self) -> Array:
        """Coordinates to take inner products in with an embedding that shares them."""
        return self.coordinates

    def norm(self) -> Array:
        """`‖e‖` in the space's norm."""
        return root(self.inner(self))

    def distance(self, other: Embedding) -> Array:
        """`‖e - other‖`, the maximum mean discrepancy of two distributions."""
        other = self.matched(other)
        if self._shares_coordinates(other):
            difference = self._vector() - other._vector()
            return root(namespace(difference).sum(difference * difference, axis=-1)[()])
        if self._shares_atoms(other) and other._shares_atoms(self):
            return (self - other).norm()
        squares = self.inner(self) + other.inner(other)
        return root(squares - 2 * self.inner(other))

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
        """The sum of the weights, 1 for a probability."""
        like = float_like(self.atoms)
        return self._total(filled(count(self.atoms), 1.0, like))

    def normalized(self) -> Self:
        """The same with weights that sum to one; a total ≤ 0 is refused."""
        mass = asarray(self.mass, float_like(self.atoms))
        xp = namespace(mass)
        if bool(xp.any(mass < 1e-3)):  # a small total may be rounding where weights cancel
            mass = xp.where(mass > 1e-12 * xp.sum(abs(self.weights), axis=-1), mass, 0 * mass)
        if bool(xp.any(mass <= 1 / checks.LARGEST)):
            raise ValueError(
                f"the weights sum to {float(xp.min(mass)):.3g}, so they cannot be "
                "normalised to a probability. The query may lie far from the data (see .support), "
                "or this is a difference of embeddings; .expect(f) works on raw weights."
            )
        share = 1 / mass[..., None]
        coordinates = partial(_scaled, self, share) if self._by_coordinates else None
        if isinstance(self._weights, FactoredWeights):
            return self._like(self._weights.multiplied(1 / mass), coordinates)
        return self._like(self.weights * share, coordinates)

    def mean(self) -> Array:
        """The mean of the points, by weights normalised to one."""
        p = self.normalized()

        def average(part: Array) -> Array:
            values = numeric(part)
            centre = middle(values)  # rounding of the weights' sum would be multiplied by it
            return (p._total(values - centre) + centre)[()]

        return each_part(p.atoms, average)

    def moment(self, function: Callable[[Array], Array]) -> Any:
        """`Σ wᵢ f(xᵢ)` of the atoms, of each variable by itself where they are tuples."""
        return each_part(self.atoms, lambda part: self._total(function(part)))

    def std(self) -> Array:
        """The standard deviation of each coordinate, by weights normalised to one.

        Negative weights can make a variance negative, which says nothing; there it is that of the
        distribution function made monotone, as quantiles are.
        """
        p = self.normalized()

        def deviation(part: Array) -> Array:
            values = numeric(part)
            xp = namespace(values)
            flat = xp.reshape(values - middle(values), (values.shape[0], -1))
            first, second = p._total(flat), p._total(flat * flat)
            found = root(variance(first, second, p._weights, flat))
            return xp.reshape(found, (*found.shape[:-1], *values.shape[1:]))[()]

        return each_part(p.atoms, deviation)

    def quantile(self, q: Any) -> Any:
        """Quantiles of each coordinate, by weights normalised to one.

        They are values of atoms, as with `np.quantile(..., method="inverted_cdf")`. Where weights
        are negative the distribution function is made one again: isotonic regression, clipped to
        [0, 1]. As in NumPy an array q comes first: its shape, then the batch, then the point's own.

        Examples
        --------
        >>> import numpy as np
        >>> from meanmap import embed
        >>> e = embed(np.arange(1.0, 101.0)[:, None], weights=np.full(100, 0.01))
        >>> e.quantile(0.5), e.quantile([0.05, 0.95]).shape
        (array([50.]), (2, 1))
        """
        levels = quantiles.probabilities(q)

        def of(distribution: quantiles.Distribution) -> Array:
            values = distribution.quantile(levels.ravel())
            batch = values.shape[1:] if self.is_batch else values.shape[2:]
            return namespace(values).reshape(values, (*levels.shape, *batch))[()]

        return each_part(self._distribution, of)

    @cached_property
    def _distribution(self) -> Any:
        """The distribution function of every coordinate, sorted and made monotone once."""
        each_part(self.atoms, quantiles.orderable)
        weights = to_numpy(self.normalized()._weight_rows).astype(np.float64)
        weights = weights / weights.sum(axis=1, keepdims=True)
        return each_part(self.atoms, lambda part: quantiles.Distribution(part, weights))

    def interval(self, level: float = 0.9) -> tuple[Any, Any]:
        """The central credible interval of each coordinate: its lower and its upper end.

        Examples
        --------
        >>> import numpy as np
        >>> from meanmap import embed
        >>> low, high = embed(np.random.default_rng(0).normal(size=(2000, 1))).interval(0.9)
        >>> low.round(1), high.round(1)  # the truth is ±1.64
        (array([-1.6]), array([1.6]))
        """
        tail = (1 - quantiles.level(level)) / 2
        return self.quantile(tail), self.quantile(1 - tail)

    @property
    def _weight_rows(self) -> Array:
        """The weights as a batch, (b, n) or (1, n)."""
        return self.weights if self.is_batch else self.weights[None, :]

    @cached_property
    def _probabilities(self) -> np.ndarray:
        """Probabilities (b, n) on the atoms, with the mean and the deviation of the weights."""
        weights = to_numpy(self.normalized()._weight_rows).astype(np.float64)
        weights = weights / weights.sum(axis=1, keepdims=True)
        if not (weights < 0).any():
            return weights
        values = _columns(self.atoms, count(self.atoms))
        mean, deviation = (_columns(part, len(weights)) for part in (self.mean(), self.std()))
        return decoding.probabilities(weights, values, mean, deviation)

    def mode(self, candidates: Any = None) -> Points:
        """The likeliest point.

        Of vectors it is where `density` is highest, at a bandwidth chosen for the density and not
        at the kernel's own, under which two clusters may have their peak between them. Of other
        points it is the `preimage`: the likeliest label, a permutation, a rotation. `candidates`,
        points of your own (a grid, strings), are searched instead where given.

        Examples
        --------
        >>> import numpy as np
        >>> from meanmap import embed
        >>> rng = np.random.default_rng(0)
        >>> clusters = rng.choice([-5.0, 5.0], p=[0.4, 0.6], size=(500, 1))
        >>> embed(clusters + rng.normal(size=(500, 1))).mode().round()
        array([5.])
        """
        if not self.kernel.on_vectors or self._has_no_mass:
            return self.preimage(candidates)
        points = None
        if candidates is not None:
            points = self.kernel.check(candidates, "candidates", self._like_point, "the atoms")
        with one_blas_thread():
            rows = [
                decoding.highest(to_numpy(atoms), p, None if points is None else to_numpy(points))
                for atoms, p in self._beliefs()
            ]
        found = asarray(np.stack(rows), float_like(self.atoms))
        return found if self.is_batch else found[0]

    def _beliefs(self) -> Iterator[tuple[Array, np.ndarray]]:
        """Atoms and their probabilities, of each belief."""
        return ((self.atoms, row) for row in self._probabilities)

    @property
    def _has_no_mass(self) -> bool:
        """Whether the weights are those of no distribution, as of a difference of two."""
        total = to_numpy(asarray(self.mass, float_like(self.atoms)))
        size = abs(to_numpy(self._weight_rows)).sum(axis=1)
        return bool((total <= np.maximum(1e-12 * size, 1 / checks.LARGEST)).any())

    def preimage(self, candidates: Any = None) -> Points:
        """The point whose feature is nearest to the embedding (Song et al. 2013, eq. 26).

        Over all of R^d for smooth kernels on vectors; over the permutations, or the rotations
        SO(n), for the trace kernel on such atoms (and the chordal one on rotations); for other
        kernels over the atoms. `candidates`, points of your own (a grid, strings), are searched
        instead where given. Of vectors it lies where most weight is within the kernel's bandwidth,
        which need not be a likely point: see `mode`.

        Examples
        --------
        >>> import numpy as np
        >>> from meanmap import embed
        >>> from meanmap.kernels import Trace
        >>> shifts = [np.eye(4)[[1, 0, 2, 3]], np.eye(4)[[0, 2, 1, 3]], np.eye(4)[[0, 1, 3, 2]]]
        >>> embed(np.stack(shifts), kernel=Trace()).preimage()  # none of the three
        array([[1., 0., 0., 0.],
               [0., 1., 0., 0.],
               [0., 0., 1., 0.],
               [0., 0., 0., 1.]])
        """
        if candidates is not None:
            points = self.kernel.check(candidates, "candidates", self._like_point, "the atoms")
            values = self._evaluate(points)
            values = values if self.is_batch else values[None, :]
            points = decoding.best(self.kernel, points, values)
        else:
            points = decoding.preimage(self.kernel, self.atoms, self._weight_rows)
        return points if self.is_batch else each_part(points, lambda part: part[0])

    def project(self) -> Self:
        """The nearest probability on the same atoms, in the norm of the space.

        Weights p ≥ 0 that sum to one and make `‖Σ pᵢ k(xᵢ, ·) - e‖` least, to a certified duality
        gap of 1e-10 sup k, that is, within about 1e-5 √(sup k) in norm.

        Examples
        --------
        >>> import numpy as np
        >>> from meanmap import embed
        >>> e = embed(np.array([[0.0], [0.1], [2.0]]), weights=[1.2, -0.4, 0.2])
        >>> e.project().weights.round(2)
        array([0.8, 0. , 0.2])
        """
        weights = to_numpy(self._weight_rows).astype(np.float64)
        wrong = (weights < 0).any(axis=1) | (abs(weights.sum(axis=1) - 1) > 1e-12)
        if not wrong.any():
            return self
        host, targets = (to_numpy(part).astype(np.float64) for part in self._placed())
        p = weights.copy()
        with one_blas_thread():
            for i in np.flatnonzero(wrong):
                p[i] = decoding.nearest_probability(host, targets[i], weights[i])
        return self._like(asarray(p if self.is_batch else p[0], self.weights), None)

    def _placed(self) -> tuple[Array, Array]:
        """ψ of the atoms, and the elements (b, r), in coordinates that know these atoms."""
        space = self.space
        rows = space.coordinates(self.atoms)
        xp = namespace(rows)
        size = self.kernel.squared_norms(self.atoms)
        missed = float(xp.sum(size - xp.sum(rows * rows, axis=1)) / xp.sum(size))
        if missed > max(1e-6, 10 * space.residual_):  # coordinates of some other sample
            _, rows = fit_space(self.kernel, space.basis_, self.atoms)
        elif self._by_coordinates:
            return rows, self.coordinates if self.is_batch else self.coordinates[None, :]
        return rows, self._weight_rows @ rows

    def sample(self, n: int, rng: Any = None) -> Points:
        """Draw n atoms with replacement.

        Of numbers, the probabilities are the weights; where some are negative, those nearest to
        their positive part with the same `mean()` and `std()`. Of other points they are those of
        `project()`. `rng` is a seed or a NumPy Generator. A batch gives (b, n, …).

        Examples
        --------
        >>> from meanmap import embed
        >>> embed(["a", "b", "b", "b"]).sample(5, rng=0)
        array(['b', 'b', 'a', 'a', 'b'], dtype='<U1')
        """
        n, random = checks.whole(n), checks.random_generator(rng)
        if all(is_array(part) and is_floating(part) for part in _leaves(self.atoms)):
            p = self._probabilities
        else:
            p = to_numpy(self.project()._weight_rows).astype(np.float64)
        index = sampling.draw(p, n, random)
        return take(self.atoms, index if self.is_batch else index[0])

    def herd(self, n: int) -> Points:
        """n atoms, with repetition, whose plain average is near to the embedding: kernel herding.

        Deterministic, and each next point mends what the ones before it missed (Chen, Welling and
        Smola 2010), so that the distance falls faster than that of a random sample.

        Examples
        --------
        >>> import numpy as np
        >>> from meanmap import embed
        >>> e = embed(np.random.default_rng(0).normal(size=(500, 2)))
        >>> herd, draw = (embed(X, kernel=e.kernel) for X in (e.herd(20), e.sample(20, rng=0)))
        >>> bool(e.distance(herd) < e.distance(draw) / 2)
        True
        """
        n, e = checks.whole(n), self.normalized()
        values = e._evaluate(e.atoms)
        values = values if e.is_batch else values[None, :]
        index = decoding.herd(e.kernel, e.atoms, values, n)
        return take(e.atoms, index if e.is_batch else index[0])

    def density(self, x: Any, bandwidth: Any = None) -> Array:
        """A density estimate at the points x: (m,), or (b, m) for a batch.

        Gaussians on the atoms, with the probabilities of `sample` and a bandwidth of their own, a
        number or one per column. None chooses each column's by cross-validated likelihood, no wider
        than Silverman's rule. It integrates to one, unlike `e(x)`.

        Examples
        --------
        >>> import numpy as np
        >>> from meanmap import embed
        >>> e = embed(np.random.default_rng(0).normal(size=(2000, 1)))
        >>> e.density([0.0]).round(1), e.density([1.0]).round(2)  # the truth is 0.40 and 0.24
        (np.float64(0.4), np.float64(0.24))
        """
        if not self.kernel.on_vectors:
            raise TypeError(
                f"a density needs points with coordinates, rows of (n, d); these are "
                f"{checks.describe(self.atoms)} under {self.kernel!r}. The probability of a label "
                "is e(label) under a delta kernel."
            )
        points, single = self.kernel.rows(x, self.atoms)
        rows = [decoding.density(atoms, p, points, bandwidth) for atoms, p in self._beliefs()]
        values = namespace(rows[0]).stack(rows) if self.is_batch else rows[0]
        return values[..., 0] if single else values

    def support(self, x: Any) -> Array:
        """`‖ψ(x)‖²/k(x, x)`: 1 where the atoms surround x, near 0 far from all of them."""
        return self.space.support(x)

    def error_bound(self, delta: float = 0.05) -> float:
        """What `‖μ̂ - μ‖` exceeds with probability at most δ, for an independent sample.

        The concentration bound of the kernel mean, `(2/n) √tr K + √(sup k · log(2/δ) / 2n)`, with
        `Σ wᵢ²` for 1/n where weights differ. It asks for a bounded kernel and weights that were not
        learned from the points.

        Examples
        --------
        >>> import numpy as np
        >>> from meanmap import embed
        >>> round(embed(np.random.default_rng(0).normal(size=(10_000, 3))).error_bound(), 3)
        0.034
        """
        if not isinstance(delta, Real) or not 0 < delta < 1:
            raise ValueError(f"delta must lie between 0 and 1, got {delta!r}.")
        if not self.kernel.bounded:
            raise ValueError(
                f"the bound holds for bounded kernels; {self.kernel!r} is not. Use Gaussian()."
            )
        if self.is_batch:
            raise TypeError("this is a batch of embeddings; ask one of them: e[0].error_bound().")
        w, diagonal = to_numpy(self.weights), to_numpy(self.kernel.squared_norms(self.atoms))
        spread = 0.5 * float(diagonal.max()) * float(w @ w) * np.log(2 / delta)
        return float(2 * np.sqrt((w * w) @ diagonal) + np.sqrt(spread))

    def covariance(self) -> JointEmbedding:
        """The (uncentred) covariance operator `Σ wᵢ k(xᵢ, ·) ⊗ k(xᵢ, ·)`, as a joint embedding."""
        from meanmap.embeddings.joint import JointEmbedding

        kernel, spaces = self.kernel @ self.kernel, (self.space, self.space)
        atoms = (self.atoms, self.atoms)
        return JointEmbedding(Space(kernel), kernel, atoms, self.weights, spaces=spaces)

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
            np.linspace(*plot_range(column), 200 if host.shape[1] == 1 else 60) for column in host.T
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


def _leaves(points: Points) -> list[Array]:
    """The arrays that points consist of."""
    return [leaf for p in points for leaf in _leaves(p)] if isinstance(points, tuple) else [points]


def _columns(points: Points, rows: int) -> np.ndarray:
    """Points that are numbers, (rows, …) each, side by side as columns."""
    parts = [to_numpy(part).reshape(rows, -1) for part in _leaves(points)]
    return np.concatenate(parts, axis=1).astype(np.float64)


def _same_array_kind(a: Array, b: Array) -> bool:
    return same_library(a, b) and (a.dtype == b.dtype or not is_floating(a))


def _coordinates_and_rest(space: Space, points: Points) -> tuple[Array, Array]:
    """ψ(x), and the length √(k(x, x) - ‖ψ(x)‖²) of what it misses."""
    psi = space.coordinates(points)
    xp = namespace(psi)
    return psi, root(space.kernel_.squared_norms(points) - xp.sum(psi * psi, axis=1))


def _scaled(embedding: Embedding, factor: Array) -> Array:
    """The coordinates of a multiple, computed when needed."""
    return embedding.coordinates * factor


def plot_range(column: np.ndarray) -> tuple[float, float]:
    """An axis that shows a sample with a margin around it."""
    low, high = float(column.min()), float(column.max())
    margin = 0.15 * (high - low) or 1.0
    return low - margin, high + margin
