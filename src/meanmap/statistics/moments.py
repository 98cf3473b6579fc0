"""MMD and HSIC of rows that are not in memory: sums in coordinates are all that is kept of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Points, concatenate, count, is_chunked, spans, take, to_numpy
from meanmap.kernels import Kernel
from meanmap.kernels.defaults import as_kernel
from meanmap.spaces import PivotedCholesky, Space
from meanmap.spaces.space import fit_space
from meanmap.statistics.centring import center_kernel
from meanmap.statistics.tiles import ROUNDINGS, on_host
from meanmap.streams.chunks import SAMPLE, Chunks
from meanmap.streams.sums import BLOCK

RANK = 500  # coordinates at most, where no basis is given
ROUNDING = 1e-12  # of a sum, below which its centred part is only rounding


@dataclass(frozen=True)
class Moments:
    """Sums over rows of powers of ψ, of which the moments of a permuted statistic are made."""

    n: int
    first: np.ndarray  # Σ ψ
    second: np.ndarray  # Σ ψψᵀ
    third: np.ndarray  # Σ ‖ψ‖²ψ
    fourth: float  # Σ ‖ψ‖⁴

    @classmethod
    def of(cls, psi: np.ndarray) -> Moments:
        """Of rows of coordinates."""
        sizes = squared_lengths(psi)
        return cls(len(psi), psi.sum(axis=0), psi.T @ psi, sizes @ psi, float(sizes @ sizes))

    @classmethod
    def over(cls, space: Space, points: Points) -> Moments:
        """Of a batch, a block at a time."""
        blocks = spans(count(points), BLOCK)
        parts = [cls.of(to_numpy(space.coordinates(take(points, block)))) for block in blocks]
        return sum(parts[1:], parts[0])

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            self.n + other.n,
            self.first + other.first,
            self.second + other.second,
            self.third + other.third,
            self.fourth + other.fourth,
        )

    @property
    def mean(self) -> np.ndarray:
        """The embedding."""
        return self.first / self.n

    @property
    def covariance(self) -> np.ndarray:
        """Σ (ψ - μ)(ψ - μ)ᵀ."""
        return self.second - np.outer(self.first, self.mean)

    @property
    def rounding(self) -> float:
        """By how much rounding may change the inner product of two centred rows."""
        return ROUNDINGS * float(np.finfo(float).eps * np.trace(self.second)) / self.n

    @property
    def own(self) -> float:
        """The mean of k over pairs of different rows."""
        total = float(self.first @ self.first) - float(np.trace(self.second))
        return total / max(self.n * (self.n - 1), 1)


@dataclass(frozen=True)
class Paired:
    """The moments of two variables, and sums of products of theirs."""

    x: Moments
    y: Moments
    cross: np.ndarray  # Σ ψ_X ψ_Yᵀ
    third_x: np.ndarray  # Σ ‖ψ_Y‖² ψ_X
    third_y: np.ndarray  # Σ ‖ψ_X‖² ψ_Y
    fourth: float  # Σ ‖ψ_X‖²‖ψ_Y‖²

    @classmethod
    def of(cls, psi: np.ndarray, phi: np.ndarray) -> Paired:
        """Of rows of coordinates."""
        x, y = squared_lengths(psi), squared_lengths(phi)
        moments = Moments.of(psi), Moments.of(phi)
        return cls(*moments, psi.T @ phi, y @ psi, x @ phi, float(x @ y))

    @classmethod
    def over(cls, spaces: tuple[Space, Space], X: Points, Y: Points) -> Paired:
        """Of a batch of pairs, a block at a time."""
        parts = []
        for block in spans(count(X), BLOCK):
            pairs = zip(spaces, (X, Y), strict=True)
            psi, phi = (to_numpy(space.coordinates(take(part, block))) for space, part in pairs)
            parts.append(cls.of(psi, phi))
        return sum(parts[1:], parts[0])

    def __add__(self, other: Paired) -> Paired:
        return Paired(
            self.x + other.x,
            self.y + other.y,
            self.cross + other.cross,
            self.third_x + other.third_x,
            self.third_y + other.third_y,
            self.fourth + other.fourth,
        )


def squared_lengths(psi: np.ndarray) -> np.ndarray:
    """‖ψ‖² of every row."""
    return np.einsum("ij,ij->i", psi, psi)


# --- statistics -----------------------------------------------------------------------------------


def mmd_of(x: Moments, y: Moments, estimator: str) -> float:
    """‖μ_X - μ_Y‖², by the "V" or the "U" estimate."""
    checks.option(estimator, "estimator", ("U", "V"))
    if estimator == "V":
        difference = x.mean - y.mean
        return float(difference @ difference)
    return x.own + y.own - 2 * float(x.mean @ y.mean)


def hsic_of(sums: Paired, estimator: str) -> float:
    """‖C_XY - μ_X ⊗ μ_Y‖², by the estimates of `hsic`."""
    checks.option(estimator, "estimator", ("U", "V", "normalized"))
    n, x, y = sums.x.n, sums.x, sums.y
    if estimator == "U":
        return _unbiased_hsic(sums)
    difference = sums.cross / n - np.outer(x.mean, y.mean)
    value = float(np.sum(difference * difference))
    if estimator == "V":
        return value
    size_x, size_y = (float(np.linalg.norm(part.covariance)) for part in (x, y))
    for part, size in ((x, size_x), (y, size_y)):
        if size**2 <= ROUNDING * float(np.sum(part.second**2)):
            return 0.0  # a constant depends on nothing
    return value * n**2 / (size_x * size_y)


def _unbiased_hsic(sums: Paired) -> float:
    """Song et al. (2012, eq. 5), every sum over rows multiplied out."""
    n, a, b = sums.x.n, sums.x.first, sums.y.first
    # K and L without their diagonals: Σ KL, Σ K, Σ L, and Σᵢ (Σⱼ Kᵢⱼ)(Σⱼ Lᵢⱼ)
    both = float(np.sum(sums.cross**2)) - sums.fourth
    x, y = (float(p.first @ p.first) - float(np.trace(p.second)) for p in (sums.x, sums.y))
    rows = float(a @ sums.cross @ b) - float(sums.third_x @ a) - float(sums.third_y @ b)
    rows += sums.fourth
    return (both + x * y / ((n - 1) * (n - 2)) - 2 / (n - 2) * rows) / (n * (n - 3))


# --- reading --------------------------------------------------------------------------------------


def fit_coordinates(kernel: Kernel, basis: Any, points: Points) -> Space:
    """Coordinates fitted to a sample, or those that were given, of the same kernel."""
    if basis is None:  # distances are the same, and the tolerance is not spent on what is constant
        kernel, basis = center_kernel(kernel, points), PivotedCholesky(1e-6, max_rank=RANK)
    return fit_space(kernel, basis, points)[0]


def kernel_of_space(kernel: Any, basis: Any) -> Any:
    """The kernel as given, or that of a space that was given."""
    return basis.kernel_ if kernel is None and hasattr(basis, "kernel_") else kernel


def sum_two_samples(
    X: Any, Y: Any, kernel: Any, basis: Any
) -> tuple[Space, tuple[Moments, Moments]]:
    """A space fitted to rows of both samples, or to a part of those in chunks, and their sums."""
    rows = [Chunks.of(rows=v).sample(SAMPLE // 2)[0] if is_chunked(v) else v for v in (X, Y)]
    kernel = as_kernel(kernel_of_space(kernel, basis), rows[0], "X")
    first = on_host(kernel.check(rows[0], "X"))
    pooled = concatenate([first, on_host(kernel.check(rows[1], "Y", first, "X"))])
    space = fit_coordinates(kernel.resolve(pooled), basis, pooled)
    return space, (moments_of(space, X), moments_of(space, Y))


def moments_of(space: Space, rows: Any) -> Moments:
    """The sums over rows, in chunks or not."""
    if is_chunked(rows):
        return Chunks.of(rows=rows).reduce(_of_chunk, space)
    return _of_chunk(0, (rows,), space)


def _of_chunk(number: int, rows: tuple[Any, ...], space: Space) -> Moments:
    return Moments.over(space, on_host(space.kernel_.check(rows[0], "rows", space.example_)))


def sum_pairs(
    X: Any, Y: Any, kernels: tuple[Any, Any], bases: tuple[Any, Any]
) -> tuple[tuple[Space, Space], Paired]:
    """The same of paired rows: two spaces and one set of sums."""
    rows = Chunks.of(X=X, Y=Y).sample() if is_chunked(X, Y) else (X, Y)
    spaces = []
    for given, basis, part, name in zip(kernels, bases, rows, ("X", "Y"), strict=True):
        kernel = as_kernel(kernel_of_space(given, basis), part, name)
        points = on_host(kernel.check(part, name))
        spaces.append(fit_coordinates(kernel.resolve(points), basis, points))
    both = spaces[0], spaces[1]
    return both, paired_of(both, X, Y)


def paired_of(spaces: tuple[Space, Space], X: Any, Y: Any) -> Paired:
    """The sums over pairs, in chunks or not."""
    if is_chunked(X, Y):
        return Chunks.of(X=X, Y=Y).reduce(_of_paired_chunk, spaces)
    return _of_paired_chunk(0, (X, Y), spaces)


def _of_paired_chunk(number: int, rows: tuple[Any, ...], spaces: tuple[Space, Space]) -> Paired:
    X, Y = (
        on_host(space.kernel_.check(part, name, space.example_))
        for space, part, name in zip(spaces, rows, ("X", "Y"), strict=True)
    )
    checks.same_length([("X", X), ("Y", Y)])
    return Paired.over(spaces, X, Y)
