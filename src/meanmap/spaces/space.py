"""A kernel given coordinates."""

from __future__ import annotations

from typing import Any, Self

from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from meanmap import checks
from meanmap.arrays import Array, Points, count, epsilon, float_like, namespace, take, to_numpy
from meanmap.exceptions import ApproximationWarning, quiet
from meanmap.frames import remember_columns, seen_columns
from meanmap.kernels import Kernel
from meanmap.kernels.algebra import require_same_kernel
from meanmap.kernels.defaults import as_kernel
from meanmap.protocols import ForUsers
from meanmap.spaces.bases import Basis, Coordinates, Explicit
from meanmap.spaces.cholesky import MAX_RANK, PivotedCholesky


class Space(ForUsers, TransformerMixin, BaseEstimator):
    """A kernel with coordinates: ψ with k(x, x') = ψ(x)·ψ(x'), fitted to a sample.

    Parameters
    ----------
    kernel : Kernel, callable or None
        None chooses one for the kind of points.
    basis : PivotedCholesky, Nystroem, RandomFourier, Explicit or None
        None takes the kernel's own features where it has few, else pivoted Cholesky to tolerance,
        of rank min(n, 2000) at most: no array is larger than n × rank.

    Attributes
    ----------
    kernel_ : the kernel with its bandwidth resolved
    basis_ : the basis that was used
    rank_ : the number of coordinates
    residual_ : the part of the kernel's trace on the sample that the coordinates miss; for
        RandomFourier, which is not a projection, the mean error of k over pairs of the sample

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.spaces import Space
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> space = Space().fit(X)
    >>> space.kernel_
    Gaussian(bandwidth=(1.62213, 1.67812))
    >>> space.transform(X[:5]).shape == (5, space.rank_)
    True
    """

    def __init__(self, kernel: Any = None, basis: Basis | None = None) -> None:
        self.kernel = kernel
        self.basis = basis

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Choose coordinates on a sample."""
        self._fit(X, sample_weight)
        return self

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Array:
        """Choose coordinates on a sample and return the sample's own."""
        return self._fit(X, sample_weight)

    def _fit(self, X: Any, sample_weight: Any) -> Array:
        kernel = as_kernel(self.kernel, X, "X")
        points = kernel.check(X, "X")
        weights = checks.sample_weights(sample_weight, points, float_like(points))
        kept, kept_weights = points, weights
        keep = to_numpy(weights) > 0  # a zero weight means the row is not there
        if not keep.all():
            kept, kept_weights = take(points, keep), take(weights, keep)
        kernel = kernel.resolve(kept, kept_weights)
        coordinates = self.fit_points(kept, kept_weights, kernel, X)
        return coordinates if keep.all() else self.map_.transform(points)

    def fit_points(
        self, points: Points, weights: Array | None = None, kernel: Any = None, asked: Any = None
    ) -> Array:
        """Fit to points that passed the gate of a resolved kernel; return their coordinates.

        None weighs all points alike. `fit_space` makes a space and does this. The columns of
        `asked`, the points as they came, are remembered once everything has worked.
        """
        kernel = self.kernel if kernel is None else kernel
        basis = self._basis(kernel, points)
        if weights is None:
            weights = checks.weights(None, points, float_like(points))
        fitted, coordinates = basis.fit(kernel, points, weights)
        if asked is not None and getattr(points, "ndim", 0) == 2:
            remember_columns(self, asked)
        self._keep(kernel, points, basis, fitted)
        return coordinates

    def _basis(self, kernel: Kernel, points: Points) -> Basis:
        return choose_basis(kernel, points) if self.basis is None else _require_basis(self.basis)

    def _keep(self, kernel: Kernel, points: Points, basis: Basis, fitted: Coordinates) -> None:
        self.kernel_ = kernel
        self.basis_ = basis
        self.map_: Coordinates = fitted
        self.example_ = take(points, slice(0, 1))  # what a point looks like
        self.rank_ = fitted.rank
        self.residual_ = fitted.residual

    def transform(self, X: Any) -> Array:
        """ψ of every point, one row per point."""
        check_is_fitted(self, "kernel_")
        if hasattr(self, "n_features_in_") and getattr(X, "ndim", 0) == 2:
            X = seen_columns(self, X)
        return self.coordinates(self.kernel_.check(X, "X", self.example_))

    def coordinates(self, points: Points) -> Array:
        return self.map_.transform(points)

    def mean_coordinates(self, points: Points, weights: Array) -> Array:
        return self.map_.mean(points, weights)

    def error_bound(self, x: Any, x2: Any = None) -> Array:
        """The largest error that ψ(x)·ψ(x') can have as a value of k(x, x').

        Coordinates are k(x, ·) projected on a subspace. They miss k(x, x) - ‖ψ(x)‖² =: residual(x)
        of it, and by Cauchy and Schwarz |k(x, x') - ψ(x)·ψ(x')| ≤ √(residual(x) residual(x')), up
        to rounding.

        Parameters
        ----------
        x : points, or a single one
        x2 : points, a single one, or None
            None is x' = x, point by point.

        Returns
        -------
        array of shape (m,), or (m, m2) for every pair; a single point has no axis

        Examples
        --------
        >>> import numpy as np
        >>> from meanmap.kernels import Gaussian
        >>> from meanmap.spaces import Nystroem, Space
        >>> X = np.random.default_rng(0).normal(size=(500, 2))
        >>> space = Space(Gaussian(1.0), Nystroem(60, random_state=0)).fit(X)
        >>> error = Gaussian(1.0)(X) - space.transform(X) @ space.transform(X).T
        >>> bool((abs(error) <= space.error_bound(X, X)).all())
        True
        >>> bool(space.error_bound([0.0, 0.0]) < 0.01 < 0.9 < space.error_bound([9.0, 9.0]))
        True
        """
        self._must_project("error_bound")
        left = self._missed(x, "x")
        if x2 is None:
            return left
        right = self._missed(x2, "x2")
        every = (..., *(None,) * right.ndim)  # a point of x with each of x2
        return (left[every] ** 0.5 * right**0.5)[()]

    def _missed(self, x: Any, name: str) -> Array:
        """k(x, x) - ‖ψ(x)‖², rounding added: (m,), or () for a single point."""
        points, single = self.kernel_.rows(x, self.example_, name)
        coordinates = self.coordinates(points)
        xp = namespace(coordinates)
        diagonal = self.kernel_.squared_norms(points)
        missed = diagonal - xp.sum(coordinates * coordinates, axis=1)
        rounding = (8 + self.rank_) * epsilon(coordinates) * abs(diagonal)
        missed = xp.where(missed > 0, missed, xp.zeros_like(missed)) + rounding
        return missed[0] if single else missed

    def _must_project(self, name: str) -> None:
        check_is_fitted(self, "kernel_")
        if not self.map_.projects:
            raise TypeError(
                f"{name} needs coordinates that are a projection, which {self.basis_!r} does not "
                f"give: ‖ψ(x)‖² is k(x, x) everywhere. residual_ ({self.residual_:.2g}) is their "
                "mean error; basis=Nystroem(n) gives a projection."
            )

    def support(self, x: Any) -> Array:
        """‖ψ(x)‖²/k(x, x): 1 where the sample surrounds x, near 0 far from all of it."""
        self._must_project("support")
        points, single = self.kernel_.rows(x, self.example_)
        values = self.support_of(points, self.coordinates(points))
        return values[0] if single else values

    def support_of(self, points: Points, coordinates: Array) -> Array:
        xp = namespace(coordinates)
        size = xp.sum(coordinates * coordinates, axis=1)
        diagonal = self.kernel_.squared_norms(points)
        tiny = diagonal <= 0
        return xp.where(
            tiny, xp.ones_like(size), size / xp.where(tiny, xp.ones_like(size), diagonal)
        )

    @property
    def is_fitted(self) -> bool:
        """Whether it has coordinates."""
        return hasattr(self, "kernel_")

    @property
    def known_rank(self) -> int:
        """The rank, 0 before it is fitted: a fitted space stands for a basis."""
        return self.rank_ if self.is_fitted else 0

    @property
    def streams(self) -> bool:
        """Whether coordinates are read block by block: those of a fitted space can be."""
        return self.is_fitted

    def __repr__(self) -> str:
        if not self.is_fitted:
            return f"Space(kernel={self.kernel!r}, basis={self.basis!r})"
        return (
            f"Space({self.kernel_!r}, {self.basis_!r}: rank {self.rank_}, "
            f"{'residual' if self.map_.projects else 'mean error'} {self.residual_:.2g})"
        )


def _require_basis(basis: Any) -> Basis:
    if isinstance(basis, Basis):
        return basis
    raise TypeError(
        "basis: expected PivotedCholesky(), Nystroem(n), RandomFourier(n), Explicit() or None, got "
        f"{basis!r}."
    )


def read_points(
    points: Any, kernel: Any, basis: Any, name: str, like_name: str = "the fitted space"
) -> tuple[Points, Kernel]:
    """Points that passed their kernel's gate, and the kernel: a fitted space in `basis` has one."""
    like = None
    if isinstance(basis, Space):
        if not basis.is_fitted:
            raise ValueError("basis: the Space is not fitted; fit it to a sample first.")
        kernel, like = basis.kernel_ if kernel is None else kernel, basis.example_
    elif basis is not None:
        _require_basis(basis)
    kernel = as_kernel(kernel, points, name)
    return kernel.check(points, name, like, like_name), kernel


def fit_space(
    kernel: Kernel, basis: Basis | Space | None, points: Points, weights: Array | None = None
) -> tuple[Space, Array]:
    """A space fitted to points that passed the gate, and their coordinates in it.

    The kernel is resolved. A fitted space in place of a basis is used as it is; None weighs all
    points alike.
    """
    if isinstance(basis, Space) and basis.is_fitted:
        require_same_kernel(basis.kernel_, kernel)
        return basis, basis.coordinates(points)
    space = Space(kernel, basis)
    return space, space.fit_points(points, weights)


def fit_space_quietly(
    kernel: Kernel, basis: Basis | Space | None, points: Points, weights: Array | None = None
) -> tuple[Space, Array]:
    """As `fit_space`, where it was us who limited the rank: `residual_` says what is missing."""
    with quiet(ApproximationWarning):
        return fit_space(kernel, basis, points, weights)


def fit_space_moments(
    kernel: Kernel, basis: Basis | Space | None, points: Points, weights: Array, values: Array
) -> tuple[Space, Array, Array]:
    """As `fit_space`, with `Σ wψψᵀ` and `Σ w v ψᵀ` in place of ψ of every point."""
    if isinstance(basis, Space) and basis.is_fitted:
        require_same_kernel(basis.kernel_, kernel)
        return basis, *basis.map_.moments(points, weights, values)
    space = Space(kernel, basis)
    used = space._basis(kernel, points)
    fitted, C, B = used.fit_moments(kernel, points, weights, values)
    space._keep(kernel, points, used, fitted)
    return space, C, B


def choose_basis(kernel: Kernel, points: Points, otherwise: Basis | None = None) -> Basis:
    """The kernel's own features where they are few, else pivoted Cholesky to tolerance.

    Or another basis, `otherwise`.
    """
    features = kernel.feature_map(points)
    if features is not None and features.rank <= min(max(count(points), 64), MAX_RANK):
        return Explicit()
    return PivotedCholesky() if otherwise is None else otherwise
