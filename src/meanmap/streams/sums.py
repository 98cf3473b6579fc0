"""What is kept of rows in place of them: sums, points that span a space, a small random sample.

In coordinates an embedding and a covariance operator are sums, so that batches add up to what one
pass over all rows would give. Rules that need rows themselves get the sample.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg

from meanmap import checks
from meanmap.arrays import (
    Array,
    Points,
    asarray,
    concatenate,
    count,
    first_array,
    float_like,
    in_precision,
    is_array,
    namespace,
    solve_triangular,
    spans,
    take,
    to_double,
    to_float,
    to_numpy,
)
from meanmap.embeddings.element import numeric
from meanmap.kernels import Kernel
from meanmap.kernels.defaults import as_target
from meanmap.linalg import Spectrum
from meanmap.spaces import Space

BLOCK = 1 << 13  # rows whose coordinates are in memory at a time
RESERVOIR = 2000  # rows that a stream keeps


@dataclass(frozen=True)
class RowSums:
    """`Σ w ψ_X ψ_Xᵀ`, `Σ w ψ_Y ψ_Xᵀ`, the sums of ψ and of y themselves, and the total weight."""

    total: float
    xx: Array
    yx: Array
    x: Array
    y: Array
    moments: list[Array]  # Σ w y (ψ_X, 1)ᵀ for each numeric variable of Y

    def __add__(self, other: RowSums) -> RowSums:
        return RowSums(
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
    ) -> RowSums:
        """The sums over the rows of a batch, a block at a time."""
        n = count(X)
        parts = []
        for block in spans(n, BLOCK):
            x, y = take(X, block), take(Y, block)
            psi_x, psi_y = space_x.coordinates(x), space_y.coordinates(y)
            w = np.ones(count(x)) if weights is None else weights[block]
            w = asarray(w, psi_x)
            weighted = w[:, None] * psi_x
            moments = [
                namespace(v).concat([v.T @ weighted, (v.T @ w)[:, None]], axis=1)
                for v in value_columns(y)
            ]
            sums = psi_x.T @ weighted, psi_y.T @ weighted, w @ psi_x, w @ psi_y
            # those of a block have the precision of the rows, their sum is double
            xx, yx, a, b = map(to_double, sums)
            total = float(namespace(w).sum(w))
            parts.append(cls(total, xx, yx, a, b, [to_double(part) for part in moments]))
        return sum(parts[1:], parts[0])


def value_columns(points: Points) -> list[Array]:
    """Numeric points as rows of numbers, one array per variable; empty if nothing is numeric."""
    parts = points if isinstance(points, tuple) else (points,)
    if any(isinstance(p, np.ndarray) and p.dtype.kind not in "fiub" for p in parts):
        return []
    return [namespace(p).reshape(numeric(p), (p.shape[0], -1)) for p in parts]


@dataclass(frozen=True)
class SpanningPoints:
    """Points whose features span a space: any element of it is a sum over them."""

    points: Points
    coordinates: Array

    @classmethod
    def of(cls, space: Space, points: Points) -> SpanningPoints:
        """The pivots of a space; for other coordinates, as many of the points as it takes."""
        fitted = space.map_
        if fitted.landmarks is not None:
            return cls(*fitted.landmarks)
        return cls._spanning(points, space.coordinates(points))

    @classmethod
    def _spanning(cls, points: Points, psi: Array) -> SpanningPoints:
        R, order = scipy.linalg.qr(to_numpy(psi).T, mode="r", pivoting=True)
        sizes = abs(np.diagonal(R))
        needed = int((sizes > 1e-10 * max(sizes.max(initial=0.0), 1e-300)).sum())
        chosen = np.sort(order[: max(needed, 1)])
        return cls(take(points, chosen), take(psi, chosen))

    def extend(self, space: Space, points: Points) -> SpanningPoints:
        """This frame, with some of the points added while it does not span the whole space."""
        if self.coordinates.shape[0] >= space.rank_:
            return self
        psi = namespace(self.coordinates).concat([self.coordinates, space.coordinates(points)])
        return self._spanning(concatenate([self.points, points]), psi)

    def weights(self, coordinates: Array) -> Array:
        """Weights on the points, a column for each column of coordinates."""
        F = self.coordinates
        coordinates = in_precision(coordinates, F)
        host = to_numpy(F)
        square = host.shape[0] == host.shape[1]
        if square and not np.triu(host, 1).any() and (np.diagonal(host) != 0).all():
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
        draws = np.random.default_rng([seed, n, _fingerprint(points[0])]).uniform(size=n)
        with np.errstate(over="ignore"):  # a row that weighs next to nothing has the key -inf
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


@dataclass(frozen=True)
class RowSummary:
    """What a conditional keeps of the rows that it has seen."""

    sums: RowSums
    rows: Reservoir
    batches: int = 1

    @classmethod
    def of(cls, X: Points, Y: Points, w: Any, spaces: tuple[Space, Space], seed: int) -> RowSummary:
        """Of one batch of checked rows."""
        return cls(RowSums.over(*spaces, X, Y, w), Reservoir.of((X, Y), w, seed))

    def __add__(self, other: RowSummary) -> RowSummary:
        return RowSummary(
            self.sums + other.sums, self.rows + other.rows, self.batches + other.batches
        )


def summarize_rows(
    X: Any, Y: Any, sample_weight: Any, space_x: Space, space_y: Space, kernel_y: Any, seed: int
) -> RowSummary:
    """What is kept of a batch of rows, of the kind that the spaces were fitted to."""
    points_x = space_x.kernel_.check(X, "X", space_x.example_)
    points_y = space_y.kernel_.check(as_target(Y, kernel_y)[0], "y", space_y.example_)
    checks.same_length([("X", points_x), ("y", points_y)])
    checks.sample_weights(sample_weight, points_x, float_like(points_x))
    w = None if sample_weight is None else to_numpy(to_float(checks.plain(sample_weight, "w")))
    return RowSummary.of(points_x, points_y, w, (space_x, space_y), seed)


def summarize_chunk(number: int, rows: tuple[Any, ...], *reader: Any) -> RowSummary:
    """The same of a chunk, whose rows may have weights beside them."""
    X, Y, *weights = rows
    space_x, space_y, kernel_y, seed = reader
    w = weights[0] if weights else None
    return summarize_rows(X, Y, w, space_x, space_y, kernel_y, seed + number)


def _fingerprint(points: Points) -> int:
    """A number that differs from batch to batch, so that streams draw apart before they merge."""
    array = to_numpy(first_array(points))
    return 0 if array.dtype.kind == "O" else zlib.crc32(np.ascontiguousarray(array).tobytes())


def same_space(a: Space, b: Space) -> bool:
    """Whether two spaces have the same kernel and the same coordinates."""
    return a is b or (a.kernel_ == b.kernel_ and same_state(a.map_, b.map_))


def same_state(a: Any, b: Any) -> bool:
    """Whether two values are built alike, arrays and nested objects included."""
    if a is b:
        return True
    if is_array(a) and is_array(b):
        return bool(np.array_equal(to_numpy(a), to_numpy(b)))
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same_state(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        pairs = zip(a, b, strict=False)
        return len(a) == len(b) and all(same_state(x, y) for x, y in pairs)
    if (
        isinstance(a, Kernel)
        or not hasattr(a, "__dict__")
        or callable(getattr(a, "__wrapped__", 0))
    ):
        return bool(a == b)
    mine, theirs = (_essence(value) for value in (a, b))
    return same_state(mine, theirs) if mine or theirs else bool(a == b)


def _essence(value: Any) -> dict[str, Any]:
    """What an object is made of, without what it has computed for later."""
    cached = {
        name
        for kind in type(value).__mro__
        for name, item in vars(kind).items()
        if isinstance(item, cached_property)
    }
    return {name: item for name, item in vars(value).items() if name not in cached}


def require_same_space(a: Space, b: Space, name: str) -> None:
    """Refuse to merge streams whose coordinates differ."""
    if not same_space(a, b):
        raise ValueError(
            f"the two streams have different coordinates for {name}: {a!r} and {b!r}. Fit one "
            "Space to a sample and give it to both as basis=."
        )
