"""Statistics that are sums over rows: add a batch, merge two streams, keep nothing else.

In coordinates an embedding and a covariance operator are sums, so that batches add up to what one
pass over all rows would give. Rules that need rows themselves get a small weighted sample of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.linalg
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from meanmap import checks
from meanmap.arrays import (
    Array,
    Points,
    asarray,
    concatenate,
    count,
    float_like,
    namespace,
    solve_triangular,
    spans,
    take,
    to_numpy,
)
from meanmap.embeddings import Embedding, embedding_of, numeric
from meanmap.kernels import Kernel, TensorProduct, as_kernel
from meanmap.linalg import Spectrum
from meanmap.spaces import Space
from meanmap.spaces.cholesky import Pivots

BLOCK = 1 << 13  # rows whose coordinates are in memory at a time
RESERVOIR = 2000  # rows that a stream keeps


@dataclass(frozen=True)
class Sums:
    """`Σ w ψ_X ψ_Xᵀ`, `Σ w ψ_Y ψ_Xᵀ`, the sums of ψ and of y themselves, and the total weight."""

    total: float
    xx: Array
    yx: Array
    x: Array
    y: Array
    moments: list[Array]  # Σ w y (ψ_X, 1)ᵀ for each numeric variable of Y

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            self.total + other.total,
            self.xx + other.xx,
            self.yx + other.yx,
            self.x + other.x,
            self.y + other.y,
            [a + b for a, b in zip(self.moments, other.moments, strict=True)],
        )

    @classmethod
    def over(
        cls, space_x: Space, space_y: Space, X: Points, Y: Points, weights: np.ndarray | None
    ) -> Sums:
        """The sums over the rows of a batch, a block at a time."""
        n = count(X)
        parts = []
        for block in spans(n, BLOCK):
            x, y = take(X, block), take(Y, block)
            psi_x, psi_y = space_x._transform(x), space_y._transform(y)
            w = np.ones(count(x)) if weights is None else weights[block]
            w = asarray(w, psi_x)
            weighted = w[:, None] * psi_x
            moments = [
                namespace(v).concat([v.T @ weighted, (v.T @ w)[:, None]], axis=1)
                for v in value_columns(y)
            ]
            parts.append(
                cls(
                    float(namespace(w).sum(w)),
                    psi_x.T @ weighted,
                    psi_y.T @ weighted,
                    w @ psi_x,
                    w @ psi_y,
                    moments,
                )
            )
        return sum(parts[1:], parts[0])


def value_columns(points: Points) -> list[Array]:
    """Numeric points as rows of numbers, one array a variable; empty where there are no numbers."""
    parts = points if isinstance(points, tuple) else (points,)
    if any(isinstance(p, np.ndarray) and p.dtype.kind not in "fiub" for p in parts):
        return []
    return [namespace(p).reshape(numeric(p), (p.shape[0], -1)) for p in parts]


@dataclass(frozen=True)
class Frame:
    """Points whose features span a space: any element of it is a sum over them."""

    points: Points
    coordinates: Array

    @classmethod
    def of(cls, space: Space, points: Points) -> Frame:
        """The pivots of a space; for other coordinates, as many of the points as span it."""
        fitted = space._coordinates
        if isinstance(fitted, Pivots):
            return cls(fitted.points, fitted.factor)
        psi = space._transform(points)
        rank = min(psi.shape)
        _, order = scipy.linalg.qr(to_numpy(psi).T, mode="r", pivoting=True)
        chosen = np.sort(order[:rank])
        return cls(take(points, chosen), take(psi, chosen))

    def weights(self, coordinates: Array) -> Array:
        """Weights on the points, a column for each column of coordinates."""
        F = self.coordinates
        rows, rank = F.shape
        lower = rows == rank and not bool(np.triu(to_numpy(F), 1).any())
        if lower:
            return solve_triangular(F, coordinates, transpose=True)
        return F @ (Spectrum.of(F.T @ F).inverse(0) @ coordinates)


@dataclass(frozen=True)
class Reservoir:
    """A weighted random sample of all rows so far (Efraimidis and Spirakis 2006)."""

    points: tuple[Points, ...]
    keys: np.ndarray

    @classmethod
    def of(cls, points: tuple[Points, ...], weights: np.ndarray | None, seed: int) -> Reservoir:
        """The rows of one batch, each with a key whose largest values are kept."""
        n = count(points[0])
        w = np.ones(n) if weights is None else weights
        draws = np.random.default_rng(seed).uniform(size=n)
        keys = np.where(w > 0, np.log(draws) / np.where(w > 0, w, 1.0), -np.inf)
        return cls(points, keys).trimmed()

    def trimmed(self) -> Reservoir:
        if len(self.keys) <= RESERVOIR:
            return self
        kept = np.sort(np.argsort(-self.keys)[:RESERVOIR])
        return Reservoir(take(self.points, kept), self.keys[kept])

    def __add__(self, other: Reservoir) -> Reservoir:
        points = concatenate([self.points, other.points])
        return Reservoir(points, np.concatenate([self.keys, other.keys])).trimmed()


def same_space(a: Space, b: Space) -> bool:
    """Whether two spaces have the same kernel and the same coordinates."""
    if a is b:
        return True
    mine, theirs = a._coordinates, b._coordinates
    if a.kernel_ != b.kernel_ or a.rank_ != b.rank_ or type(mine) is not type(theirs):
        return False
    if isinstance(mine, Pivots) and isinstance(theirs, Pivots):
        return bool(np.array_equal(to_numpy(mine.factor), to_numpy(theirs.factor)))
    probe = a._sample
    return bool(np.array_equal(to_numpy(a._transform(probe)), to_numpy(b._transform(probe))))


def require_same_space(a: Space, b: Space, name: str) -> None:
    """Refuse to merge streams whose coordinates differ."""
    if not same_space(a, b):
        raise ValueError(
            f"the two streams have different coordinates for {name}: {a!r} and {b!r}. Fit one "
            "Space to a sample and give it to both as basis=."
        )


def raw_total(sample_weight: Any, n: int) -> float:
    """The weight of a sample before it was scaled to one."""
    if sample_weight is None:
        return float(n)
    return float(np.sum(to_numpy(checks.plain(sample_weight, "sample_weight"))))


class RunningEmbedding(BaseEstimator):
    """The embedding (or covariance operator) of a stream, batch by batch.

    Parameters
    ----------
    kernel : Kernel or None
    basis : a basis, a fitted Space, a tuple of them for pairs, or None
        Chosen on the first batch, then kept. To merge two streams give both the same fitted Space.

    Attributes
    ----------
    embedding_ : the Embedding so far, on points that span its space
    total_ : the weight seen

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import embed
    >>> from meanmap.spaces import PivotedCholesky
    >>> from meanmap.streams import RunningEmbedding
    >>> X = np.random.default_rng(0).normal(size=(3000, 2))
    >>> stream = RunningEmbedding(basis=PivotedCholesky(tol=1e-8))
    >>> for batch in np.array_split(X, 10):
    ...     stream = stream.partial_fit(batch)
    >>> whole = embed(X, basis=stream.space_)
    >>> bool(abs(stream.embedding_.coordinates - whole.coordinates).max() < 1e-10)
    True
    """

    kernel_: Kernel
    total_: float
    _sum: Array

    def __init__(self, kernel: Any = None, basis: Any = None) -> None:
        self.kernel = kernel
        self.basis = basis

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Start anew with this batch."""
        fresh = clone(self).partial_fit(X, sample_weight=sample_weight)
        self.__dict__.update(fresh.__dict__)
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Add a batch: points, or a tuple of samples for a covariance operator."""
        if not hasattr(self, "total_"):
            kernel = as_kernel(self._given_kernel(), X, "X")
            points = kernel.check(X, "X")
        else:
            kernel = self.kernel_
            points = kernel.check(X, "X", self._frame_points())
        w = checks.sample_weights(sample_weight, points, float_like(points))
        total = raw_total(sample_weight, count(points))
        if hasattr(self, "total_"):
            self._sum = self._sum + total * self._sum_over(points, w)
            self.total_ += total
            return self
        resolved = kernel.resolve(points, w)
        spaces = self._placed(resolved, points, w)
        frames = tuple(
            Frame.of(space, part) for space, part in zip(spaces, _parts(points), strict=True)
        )
        self.kernel_, self.spaces_, self._frames = resolved, spaces, frames
        self._sum = total * self._sum_over(points, w)
        self.total_ = total
        return self

    def _given_kernel(self) -> Any:
        bases = self.basis if isinstance(self.basis, tuple) else (self.basis,)
        if self.kernel is None and all(isinstance(b, Space) for b in bases):
            kernels = [b.kernel_ for b in bases]
            return kernels[0] if len(kernels) == 1 else TensorProduct(*kernels)
        return self.kernel

    def _placed(self, kernel: Kernel, points: Points, w: Array) -> tuple[Space, ...]:
        parts = _parts(points)
        kernels = kernel.kernels if isinstance(kernel, TensorProduct) else (kernel,)
        bases = self.basis if isinstance(self.basis, tuple) else (self.basis,) * len(parts)
        spaces = []
        for k, basis, part in zip(kernels, bases, parts, strict=True):
            if isinstance(basis, Space):
                spaces.append(basis)
                continue
            space = Space(k, basis)
            space._place(k, part, w)
            spaces.append(space)
        return tuple(spaces)

    def _frame_points(self) -> Points:
        points = tuple(frame.points for frame in self._frames)
        return points if len(points) > 1 else points[0]

    def _sum_over(self, points: Points, w: Array) -> Array:
        parts = _parts(points)
        if len(parts) == 1:
            return self.spaces_[0]._mean(points, w)
        blocks = spans(count(points), BLOCK)
        sums = [self._joint(tuple(take(part, i) for part in parts), w[i]) for i in blocks]
        return sum(sums[1:], sums[0])

    def _joint(self, parts: tuple[Points, ...], w: Array) -> Array:
        psi = [space._transform(part) for space, part in zip(self.spaces_, parts, strict=True)]
        if len(psi) != 2:
            raise ValueError(f"a stream of {len(psi)} variables; one or two are supported.")
        return psi[0].T @ (w[:, None] * psi[1])

    def merge(self, other: RunningEmbedding) -> Self:
        """Add what another stream has seen, given the same coordinates."""
        check_is_fitted(self, "total_")
        check_is_fitted(other, "total_")
        for i, (mine, theirs) in enumerate(zip(self.spaces_, other.spaces_, strict=True)):
            require_same_space(mine, theirs, f"variable {i}")
        self._sum = self._sum + other._sum
        self.total_ += other.total_
        return self

    @property
    def space_(self) -> Space:
        """The space of a single variable."""
        check_is_fitted(self, "total_")
        return self.spaces_[0]

    @property
    def operator_(self) -> Array:
        """The (uncentred) covariance operator `C_XY` of a pair."""
        check_is_fitted(self, "total_")
        return self._sum / self.total_

    @property
    def embedding_(self) -> Embedding:
        """The embedding so far."""
        check_is_fitted(self, "total_")
        if len(self.spaces_) > 1:
            raise TypeError("a stream of pairs is an operator; see .operator_.")
        coordinates = self._sum / self.total_
        weights = self._frames[0].weights(coordinates)
        return embedding_of(self.space_, self.kernel_, self._frames[0].points, weights, coordinates)


def _parts(points: Points) -> tuple[Points, ...]:
    return points if isinstance(points, tuple) else (points,)
