"""How much variables depend on each other: the Hilbert-Schmidt independence criterion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Points, count, is_chunked, take, to_numpy
from meanmap.kernels import Kernel
from meanmap.spaces import Basis, Space
from meanmap.spaces.space import fit_space
from meanmap.statistics import moments
from meanmap.statistics.centring import Centred
from meanmap.statistics.gates import one_each, read_paired_samples, require_points
from meanmap.statistics.joint import JointGrams
from meanmap.statistics.moments import ROUNDING
from meanmap.statistics.tiles import (
    Buffers,
    ThreadSums,
    about_mean,
    add_row_sums,
    diagonal_of,
    for_each_tile,
    memory_limit,
    pass_over,
    product_sum,
)

ESTIMATORS = ("U", "V", "normalized")
OneBasis = Basis | Space | None


def hsic(
    X: Any,
    Y: Any,
    kernel_x: Any = None,
    kernel_y: Any = None,
    estimator: str = "U",
    *,
    basis: OneBasis | tuple[OneBasis, OneBasis] = None,
) -> float:
    """The Hilbert-Schmidt independence criterion ‖C_XY - μ_X ⊗ μ_Y‖² of paired rows.

    Parameters
    ----------
    X, Y : samples of n points each, of any kinds; row i of one goes with row i of the other
        Collections of Dask are read chunk by chunk, in coordinates.
    kernel_x, kernel_y : Kernel, callable or None
        None chooses for the kind of points.
    estimator : {"U", "V", "normalized"}
        "V" is the squared norm of the empirical operator, tr(KHLH)/n² (Gretton et al. 2005); "U"
        is unbiased and can be negative (Song et al. 2012, eq. 5; n ≥ 4). "normalized" divides "V"
        by √(HSIC(X, X) HSIC(Y, Y)): 1 where Y is X, 0 for independence.
    basis : a basis, a fitted Space, a pair of them, or None
        Compute in coordinates instead of exactly, in O(n(r_x² + r_y²)) time. None is exact, but for
        collections of Dask: then coordinates are fitted to a sample, by pivoted Cholesky to 1e-6
        and no more than 500; where these miss more, a warning says so.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import hsic
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(500, 1))
    >>> Y = np.sin(2 * X) + 0.3 * rng.normal(size=(500, 1))
    >>> hsic(X, Y) > 10 * abs(hsic(X, rng.permutation(Y)))
    True

    With energy kernels four times the "V" estimate is the squared distance covariance, and
    "normalized" the squared distance correlation, of Székely, Rizzo and Bakirov (2007).
    """
    checks.option(estimator, "estimator", ESTIMATORS)
    least = 4 if estimator == "U" else 2
    bases = one_each(basis, "basis", "xy")
    if is_chunked(X, Y):
        _, found = moments.sum_pairs(X, Y, (kernel_x, kernel_y), bases)
        require_points(found.x.n, "X and Y", least)
        return moments.hsic_of(found, estimator)
    given = [
        moments.kernel_of_space(*pair) for pair in zip((kernel_x, kernel_y), bases, strict=True)
    ]
    named = [("X", X, given[0]), ("Y", Y, given[1])]
    kernels, (X, Y) = read_paired_samples(named, least, stay=basis is None)
    kx, ky = kernels[0].resolve(X), kernels[1].resolve(Y)
    sums = hsic_sums(kx, ky, X, Y) if basis is None else coordinate_sums(kx, ky, X, Y, basis)
    return sums.estimate(estimator)


@dataclass(frozen=True)
class HsicSums:
    """The sums over two Gram matrices from which HSIC, related statistics and null moments follow.

    Those of kernels that were centred at some points are small numbers, where those of the kernels
    themselves could lose all that matters to rounding.
    """

    n: int
    xy: float  # Σ KL, K the Gram matrix of X and L that of Y
    xx: float  # Σ K²
    yy: float
    rows_x: np.ndarray  # row sums of K
    rows_y: np.ndarray
    diagonal_x: np.ndarray
    diagonal_y: np.ndarray
    #: By how much rounding may change an element of either matrix.
    rounding: tuple[float, float] = (0.0, 0.0)

    @property
    def sizes(self) -> tuple[float, float]:
        """Those of the two matrices, centred: the root of the mean square of their elements."""
        x = centred_product(self.xx, self.rows_x, self.rows_x)
        y = centred_product(self.yy, self.rows_y, self.rows_y)
        return max(x, 0.0) ** 0.5 / self.n, max(y, 0.0) ** 0.5 / self.n

    def estimate(self, estimator: str) -> float:
        """HSIC by one of the estimators."""
        n = self.n
        if estimator == "U":
            # Song et al. (2012, eq. 5), with the diagonals left out
            x, y = self.rows_x - self.diagonal_x, self.rows_y - self.diagonal_y
            xy = self.xy - self.diagonal_x @ self.diagonal_y
            constant = x.sum() * y.sum() / ((n - 1) * (n - 2))
            return float((xy + constant - 2 / (n - 2) * (x @ y)) / (n * (n - 3)))
        value = centred_product(self.xy, self.rows_x, self.rows_y) / n**2
        if estimator == "V":
            return float(value)
        size_x = centred_product(self.xx, self.rows_x, self.rows_x)
        size_y = centred_product(self.yy, self.rows_y, self.rows_y)
        for size, whole, rounding in zip(
            (size_x, size_y), (self.xx, self.yy), self.rounding, strict=True
        ):
            if size <= ROUNDING * whole + (n * rounding) ** 2:
                return 0.0  # a constant depends on nothing
        return float(value * n**2 / (size_x * size_y) ** 0.5)


def centred_product(ab: float, a: np.ndarray, b: np.ndarray) -> float:
    """Σ AB with both matrices centred, from Σ AB and the row sums."""
    n = len(a)
    return float(ab - 2 / n * (a @ b) + a.sum() * b.sum() / n**2)


def hsic_sums(kx: Kernel, ky: Kernel, X: Points, Y: Points) -> HsicSums:
    """One pass over both Gram matrices, of centred kernels, tile by tile."""
    x, y = Centred.of(kx, X), Centred.of(ky, Y)
    return pass_over(X, lambda side: _exact_sums(x, y, X, Y, side))


def _exact_sums(kx: Centred, ky: Centred, X: Points, Y: Points, side: int) -> HsicSums:
    n = count(X)
    compare_x, compare_y = kx.against(X), ky.against(Y)
    room_x, room_y = Buffers(X), Buffers(Y)
    sums = ThreadSums((1,), (1,), (1,), (n,), (n,), like=X)

    def work(thread: int, rows: slice, columns: slice) -> None:
        xy, xx, yy, rows_x, rows_y = sums.of(thread)
        K = compare_x(take(X, rows), columns, room_x.of(thread, rows, columns)[0])
        L = compare_y(take(Y, rows), columns, room_y.of(thread, rows, columns)[0])
        twice = 1 if rows == columns else 2
        for sum_, A, B in ((xy, K, L), (xx, K, K), (yy, L, L)):
            sum_ += twice * product_sum(A, B)
        add_row_sums(rows_x, K, rows, columns)
        add_row_sums(rows_y, L, rows, columns)

    for_each_tile(n, work, side)
    (xy,), (xx,), (yy,), rows_x, rows_y = sums.total()
    return HsicSums(
        n=n,
        xy=float(xy),
        xx=float(xx),
        yy=float(yy),
        rows_x=rows_x,
        rows_y=rows_y,
        diagonal_x=diagonal_of(kx, X),
        diagonal_y=diagonal_of(ky, Y),
        rounding=(kx.rounding, ky.rounding),
    )


def coordinates(
    kernel: Kernel, points: Points, basis: OneBasis, centred: bool = True
) -> np.ndarray:
    """The sample in coordinates, its mean taken off."""
    _, psi = fit_space(kernel, basis, points)
    return psi - psi.mean(axis=0) if centred else psi


def centred_coordinates(
    kernel: Kernel, points: Points, basis: OneBasis
) -> tuple[np.ndarray, float]:
    """The sample in coordinates, its mean taken off, and the rounding in their inner products."""
    psi = to_numpy(coordinates(kernel, points, basis, centred=False))
    return about_mean(psi)


def coordinate_sums(
    kx: Kernel,
    ky: Kernel,
    X: Points,
    Y: Points,
    basis: Any,
) -> HsicSums:
    """The same sums from coordinates, in O(n(r_x² + r_y²))."""
    basis_x, basis_y = one_each(basis, "basis", "xy")
    A, rounding_x = centred_coordinates(kx, X, basis_x)
    B, rounding_y = centred_coordinates(ky, Y, basis_y)
    return HsicSums(
        n=len(A),
        xy=float(np.sum((A.T @ B) ** 2)),
        xx=float(np.sum((A.T @ A) ** 2)),
        yy=float(np.sum((B.T @ B) ** 2)),
        rows_x=A @ A.sum(axis=0),
        rows_y=B @ B.sum(axis=0),
        diagonal_x=np.sum(A * A, axis=1),
        diagonal_y=np.sum(B * B, axis=1),
        rounding=(rounding_x, rounding_y),
    )


def joint_hsic(*variables: Any, kernels: Any = None) -> float:
    """The joint dependence of several variables, ‖μ_{X₁…X_d} - μ_{X₁} ⊗ … ⊗ μ_{X_d}‖².

    dHSIC of Pfister et al. (2018, definition 2.1; the "V" estimate): 0 if and only if all of them
    are independent together, which is more than pair by pair. With two variables it is `hsic`.

    Parameters
    ----------
    *variables : samples of n points each, of any kinds
    kernels : list of Kernel, one per variable, or None

    Examples
    --------
    Three coins of which any two are independent, and all three are not:

    >>> import numpy as np
    >>> from meanmap import hsic
    >>> from meanmap.statistics import joint_hsic
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.integers(2, size=(2, 1000))
    >>> c = a ^ b
    >>> joint_hsic(*(v.astype(str) for v in (a, b, c))) > 0.1
    True
    >>> hsic(a.astype(str), c.astype(str), estimator="V") < 0.01
    True
    """
    chosen, samples = read_several_samples(variables, kernels)
    resolved = [kernel.resolve(points) for kernel, points in zip(chosen, samples, strict=True)]
    return JointGrams(resolved, samples, memory_limit(None)).value()


def read_several_samples(
    variables: Any, kernels: Any, name: str = "kernels"
) -> tuple[list[Kernel], list[Points]]:
    """Two or more variables of one length, each with its kernel."""
    if len(variables) < 2:
        raise ValueError(
            f"expected two or more variables, got {len(variables)}. Pass them one by one: "
            "joint_hsic(X, Y, Z)."
        )
    if kernels is None:
        kernels = [None] * len(variables)
    if not isinstance(kernels, list | tuple) or len(kernels) != len(variables):
        raise ValueError(
            f"{name}: expected a list of {len(variables)}, one per variable, got "
            f"{checks.describe(kernels)}."
        )
    named = [
        (f"variable {i + 1}", points, kernel)
        for i, (points, kernel) in enumerate(zip(variables, kernels, strict=True))
    ]
    return read_paired_samples(named, 2)
