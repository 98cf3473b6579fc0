"""From samples to embeddings: that of a distribution, and what it answers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from meanmap import checks, decoding, plots
from meanmap.arrays import (
    Array,
    Points,
    asarray,
    count,
    each_part,
    float_like,
    full,
    is_array,
    is_floating,
    leaves,
    namespace,
    one_blas_thread,
    take,
    to_library,
    to_numpy,
)
from meanmap.decoding import quantiles
from meanmap.embeddings.element import Element, FactoredWeights, LazyCoordinates, numeric, root
from meanmap.kernels import Kernel
from meanmap.kernels.algebra import require_same_kernel
from meanmap.spaces import Basis, Space
from meanmap.spaces.space import fit_space, read_points

if TYPE_CHECKING:
    from meanmap.embeddings.joint import JointEmbedding


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
    points, kernel = read_points(points, kernel, basis, "points", "the space")
    if isinstance(points, tuple):
        points = to_library(points, points)  # all variables in the library of the first
    weights = checks.weights(weights, points, float_like(points), batch=True)
    if space is None:
        kernel = kernel.resolve(points, abs(weights) if weights.ndim == 1 else None)
        space = Space(kernel, basis)
    else:
        require_same_kernel(space.kernel_, kernel)
        kernel = space.kernel_
    return embedding_of(space, kernel, points, weights)


def embedding_of(
    space: Space,
    kernel: Kernel,
    atoms: Points,
    weights: Array | FactoredWeights,
    coordinates: LazyCoordinates = None,
) -> Embedding:
    """The embedding with these atoms: a joint one if they are tuples."""
    from meanmap.embeddings.joint import JointEmbedding

    kind = JointEmbedding if isinstance(atoms, tuple) else Embedding
    return kind(space, kernel, atoms, weights, coordinates)


class Embedding(Element):
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

    @property
    def mass(self) -> Array:
        """The sum of the weights, 1 for a probability."""
        return self.total(full(count(self.atoms), 1.0, float_like(self.atoms)))

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
        weights = self.made_of()["weights"] * share
        return self.with_weights(weights, self.scaled_coordinates(share))

    def mean(self) -> Array:
        """The mean of the points, by weights normalised to one."""
        p = self.normalized()

        def average(part: Array) -> Array:
            values = numeric(part)
            # rounding of the weights' sum would be multiplied by the mean
            centre = quantiles.middle(values)
            return (p.total(values - centre) + centre)[()]

        return each_part(p.atoms, average)

    def std(self) -> Array:
        """The standard deviation of each coordinate, by weights normalised to one.

        Negative weights can make a variance negative, which says nothing; there it is that of the
        distribution function made monotone, as quantiles are.
        """
        p = self.normalized()

        def deviation(part: Array) -> Array:
            values = numeric(part)
            xp = namespace(values)
            flat = xp.reshape(values - quantiles.middle(values), (values.shape[0], -1))
            first, second = p.total(flat), p.total(flat * flat)
            found = root(quantiles.variance(first, second, p.made_of()["weights"], flat))
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
        levels = quantiles.read_levels(q)

        def of(distribution: Any) -> Any:
            values = distribution.quantile(levels.ravel())
            batch = values.shape[1:] if self.is_batch else values.shape[2:]
            return namespace(values).reshape(values, (*levels.shape, *batch))[()]

        return each_part(self._distribution, of)

    @cached_property
    def _distribution(self) -> Any:
        """The distribution function of every coordinate, sorted and made monotone once."""
        each_part(self.atoms, quantiles.refuse_labels)
        weights = self._normalized_rows
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
        tail = (1 - quantiles.read_level(level)) / 2
        return self.quantile(tail), self.quantile(1 - tail)

    @property
    def _weight_rows(self) -> Array:
        """The weights as a batch, (b, n) or (1, n)."""
        return self.weights if self.is_batch else self.weights[None, :]

    @property
    def _normalized_rows(self) -> np.ndarray:
        """The same on the host, in double precision, each row of sum one."""
        weights = to_numpy(self.normalized()._weight_rows).astype(np.float64)
        return weights / weights.sum(axis=1, keepdims=True)

    @cached_property
    def _probabilities(self) -> np.ndarray:
        """Probabilities (b, n) on the atoms, with the mean and the deviation of the weights."""
        weights = self._normalized_rows
        if not (weights < 0).any():
            return weights
        b, n = weights.shape
        parts = (self.atoms, n), (self.mean(), b), (self.std(), b)
        return decoding.probabilities(weights, *(_number_columns(*part) for part in parts))

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
        if not self.kernel.on_vectors or not self.has_mass:
            return self.preimage(candidates)
        among = None if candidates is None else to_numpy(self._read_candidates(candidates))
        with one_blas_thread():
            rows = [decoding.highest(to_numpy(atoms), p, among) for atoms, p in self.beliefs()]
        found = asarray(np.stack(rows), float_like(self.atoms))
        return found if self.is_batch else found[0]

    def _read_candidates(self, candidates: Any) -> Points:
        return self.kernel.check(candidates, "candidates", self.example, "the atoms")

    def beliefs(self) -> Iterator[tuple[Array, np.ndarray]]:
        """Atoms and their probabilities, of each belief."""
        return ((self.atoms, row) for row in self._probabilities)

    @property
    def has_mass(self) -> bool:
        """Whether the weights can be those of a distribution, unlike a difference of two."""
        total = to_numpy(asarray(self.mass, float_like(self.atoms)))
        size = abs(to_numpy(self._weight_rows)).sum(axis=1)
        return bool((total > np.maximum(1e-12 * size, 1 / checks.LARGEST)).all())

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
            points = self._read_candidates(candidates)
            values = self.evaluate(points)
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
        host, targets = (to_numpy(part).astype(np.float64) for part in self._rows_and_targets())
        p = weights.copy()
        with one_blas_thread():
            for i in np.flatnonzero(wrong):
                p[i] = decoding.nearest_probability(host, targets[i], weights[i])
        return self.with_weights(asarray(p if self.is_batch else p[0], self.weights), None)

    def _rows_and_targets(self) -> tuple[Array, Array]:
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
        if all(is_array(part) and is_floating(part) for part in leaves(self.atoms)):
            p = self._probabilities
        else:
            p = to_numpy(self.project()._weight_rows).astype(np.float64)
        index = decoding.draw(p, n, random)
        return take(self.atoms, index if self.is_batch else index[0])

    def herd(self, n: int) -> Points:
        """n atoms, with repetition, whose plain average is near to the embedding: kernel herding.

        Deterministic, and each point corrects the error that the points before it leave (Chen,
        Welling and Smola 2010), so that the distance falls faster than that of a random sample.

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
        values = e.evaluate(e.atoms)
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
        rows = [decoding.density(atoms, p, points, bandwidth) for atoms, p in self.beliefs()]
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
        delta = checks.fraction(delta, "delta")
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
        """Draw it: a curve in one dimension, contours in two, bars for labels, a map of pairs."""
        if self.is_batch:
            raise TypeError("this is a batch of embeddings; plot one of them: e[0].plot().")
        atoms = each_part(self.atoms, to_numpy)
        return plots.function(atoms, lambda points: to_numpy(self(points)), ax, **style)

    def __repr__(self) -> str:
        name = f"{type(self).__name__}"
        batch = f"batch of {len(self)}, " if self.is_batch else ""
        return f"{name}({batch}{count(self.atoms)} atoms, {self.kernel!r})"


def _number_columns(points: Points, rows: int) -> np.ndarray:
    """Points that are numbers, (rows, …) each, side by side as columns."""
    parts = [to_numpy(part).reshape(rows, -1) for part in leaves(points)]
    return np.concatenate(parts, axis=1).astype(np.float64)
