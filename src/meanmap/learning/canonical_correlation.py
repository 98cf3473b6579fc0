"""What two views of the same things have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from meanmap import checks, plots
from meanmap.arrays import Array, Points, count, namespace, take, to_numpy
from meanmap.conditional.fitting import read_pairs
from meanmap.conditional.selection import search_size
from meanmap.frames import remember_columns, seen_columns
from meanmap.kernels import Kernel
from meanmap.kernels.defaults import as_target
from meanmap.linalg import Spectrum
from meanmap.spaces import Basis
from meanmap.spaces.space import fit_space
from meanmap.statistics.columns import column_signs, positive_ratio
from meanmap.statistics.gates import require_target, require_two_rows

SHARES = 10.0 ** np.arange(-6.0, 0.5, 0.5)  # λ that "auto" tries, in units of the mean of k(x, x)
FOLDS = 5


class KernelCCA(TransformerMixin, BaseEstimator):
    """Canonical correlation of two views: functions f(x) and g(y) that are most alike.

    The leading singular functions of (C_XX + λI)^(-1/2) C_XY (C_YY + λI)^(-1/2), the normalised
    cross-covariance operator (Bach and Jordan 2002; Fukumizu, Bach and Gretton 2007, eq. 9). With
    linear kernels and a small λ it is the canonical correlation of text books.

    Parameters
    ----------
    n_components : int
        How many pairs of functions.
    kernel_x, kernel_y : Kernel, callable or None
        None chooses for the kind of points. A 1-D numeric Y is one column of numbers.
    regularization : "auto" or float
        λ > 0, on the operators' scale, for both views. Without it any two views would correlate
        perfectly. "auto" takes the largest correlation on rows held out, in five folds.
    basis : a basis, a pair of them (x, y), or None
        How the spaces get their coordinates.

    Attributes
    ----------
    correlations_ : singular values of the regularised operator, below the sample's correlations
    x_directions_, y_directions_ : the functions in the spaces' coordinates, one per column
    regularization_ : λ
    held_out_ : λ that "auto" tried and the mean held-out correlation of each, or None
    space_x_, space_y_, mean_x_, mean_y_ : spaces, and the embeddings of both samples

    Examples
    --------
    Two views share an angle that no linear function of them shows.

    >>> import numpy as np
    >>> from meanmap.learning import KernelCCA
    >>> rng = np.random.default_rng(0)
    >>> angle = rng.uniform(0, 2 * np.pi, size=400)
    >>> X = np.column_stack([np.cos(angle), np.sin(angle)]) + 0.1 * rng.normal(size=(400, 2))
    >>> Y = np.column_stack([np.cos(2 * angle), np.sin(2 * angle)]) + 0.1 * rng.normal(
    ...     size=(400, 2)
    ... )
    >>> float(abs(np.corrcoef(X.T, Y.T)[:2, 2:]).max().round(1))
    0.1
    >>> model = KernelCCA(2).fit(X[:300], Y[:300])
    >>> model.score(X[300:], Y[300:]) > 0.9  # on rows that it has not seen
    True
    """

    def __init__(
        self,
        n_components: int = 1,
        kernel_x: Any = None,
        kernel_y: Any = None,
        regularization: float | str = "auto",
        basis: Basis | tuple[Basis | None, Basis | None] | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel_x = kernel_x
        self.kernel_y = kernel_y
        self.regularization = regularization
        self.basis = basis

    def fit(self, X: Any, Y: Any = None, sample_weight: Any = None, *, y: Any = None) -> Self:
        """Find the functions on pairs (xᵢ, yᵢ), rows at the same place."""
        Y = Y if Y is not None else y
        require_target(Y, "fit(X, Y) takes two views of the same rows")
        most = checks.whole(self.n_components, "n_components", 1, "Use 1 for the leading pair.")
        given = checks.number_or_auto(
            self.regularization, "regularization", checks.positive, "1e-3"
        )
        pairs = read_pairs(X, Y, self.kernel_x, self.kernel_y, self.basis, sample_weight)
        points_x, points_y, kernel_x, kernel_y, bases, w, flat, *_ = pairs
        require_two_rows(count(points_x), "correlation needs rows that differ")
        views = (View(kernel_x, points_x, bases[0]), View(kernel_y, points_y, bases[1]))
        tried = None
        if given is None:
            tried = held_out_correlations(views, w, most)
            given = float(tried[int(np.argmax(tried[:, 1])), 0])
        (space_x, psi_x), (space_y, psi_y) = (view.coordinates(w) for view in views)
        found = Operators.of(psi_x, psi_y, w).correlate(given, most)
        sign = column_signs((psi_x - found.mean_x) @ found.x)
        if getattr(points_x, "ndim", 0) == 2:  # nothing is set before everything has worked
            remember_columns(self, X)
        self.space_x_, self.space_y_, self._flat = space_x, space_y, flat
        self.kernel_x_, self.kernel_y_ = space_x.kernel_, space_y.kernel_
        self.mean_x_, self.mean_y_ = found.mean_x, found.mean_y
        self.x_directions_, self.y_directions_ = sign * found.x, sign * found.y
        self.correlations_, self.regularization_, self.held_out_ = found.correlations, given, tried
        return self

    def transform(self, X: Any, Y: Any = None) -> Any:
        """f of every row of X; with Y the pair of f at X and g at Y."""
        check_is_fitted(self, "x_directions_")
        if hasattr(self, "n_features_in_") and getattr(X, "ndim", 0) == 2:
            X = seen_columns(self, X)
        scores = (self.space_x_.transform(X) - self.mean_x_) @ self.x_directions_
        if Y is None:
            return scores
        target = as_target(Y, self.kernel_y_)[0] if self._flat else Y
        return scores, (self.space_y_.transform(target) - self.mean_y_) @ self.y_directions_

    def fit_transform(
        self, X: Any, Y: Any = None, sample_weight: Any = None, *, y: Any = None
    ) -> Any:
        """Fit, and return both views' scores; f alone where Y goes by its lower-case name."""
        self.fit(X, Y, sample_weight, y=y)
        return self.transform(X) if Y is None else self.transform(X, Y)

    def score(self, X: Any, Y: Any = None, *, y: Any = None) -> float:
        """The mean correlation of f(x) and g(y) over the pairs of functions, on these rows."""
        Y = Y if Y is not None else y
        if Y is None:
            raise ValueError("score(X, Y) correlates two views of the same rows, but Y is None.")
        f, g = self.transform(X, Y)
        return float(np.mean(correlations(to_numpy(f), to_numpy(g))))

    def plot(self, X: Any, Y: Any, ax: Any = None) -> Any:
        """Draw the first pair of functions, f(x) against g(y), on these rows."""
        f, g = (to_numpy(scores)[:, 0] for scores in self.transform(X, Y))
        ax = plots.against(f, g, ("f(x)", "g(y)"), ax)
        ax.set(title=f"correlation {correlations(f[:, None], g[:, None])[0]:.2f}")
        return ax

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the scores of X."""
        check_is_fitted(self, "x_directions_")
        size = self.x_directions_.shape[1]
        return np.array([f"kernelcca{i}" for i in range(size)], dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "x_directions_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


@dataclass(frozen=True)
class View:
    """One side of the pairs."""

    kernel: Kernel
    points: Points
    basis: Any

    def rows(self, index: np.ndarray) -> View:
        return View(self.kernel, take(self.points, index), self.basis)

    def coordinates(self, w: Array) -> tuple[Any, Array]:
        return fit_space(self.kernel.resolve(self.points, w), self.basis, self.points, w)


@dataclass(frozen=True)
class CorrelatedFunctions:
    """Pairs of functions in coordinates, and the means that they are taken from."""

    mean_x: Array
    mean_y: Array
    x: Array  # (r_x, components)
    y: Array
    correlations: Array


@dataclass(frozen=True)
class Operators:
    """Centred covariance operators, factorised once for every λ."""

    mean_x: Array
    mean_y: Array
    x: Spectrum
    y: Spectrum
    cross: Array  # C_XY between the eigenvectors of both

    @classmethod
    def of(cls, psi_x: Array, psi_y: Array, w: Array) -> Operators:
        mean_x, mean_y = w @ psi_x, w @ psi_y
        cx, cy = psi_x - mean_x, psi_y - mean_y
        x, y = Spectrum.of((cx.T * w) @ cx), Spectrum.of((cy.T * w) @ cy)
        return cls(mean_x, mean_y, x, y, ((cx @ x.vectors).T * w) @ (cy @ y.vectors))

    def correlate(self, regularization: float, most: int) -> CorrelatedFunctions:
        """Singular functions of the normalised operator."""
        xp = namespace(self.cross)
        # λ stands on eigenvalues, of which rounding may leave some a little below zero
        dx, dy = (
            1 / xp.sqrt(xp.where(s > 0, s, xp.zeros_like(s)) + regularization)
            for s in (self.x.values, self.y.values)
        )
        size = min(self.cross.shape)
        if most > size:
            raise ValueError(
                f"n_components={most}, but the smaller of the two spaces has {size} coordinate(s). "
                "Ask for fewer, or use a kernel with more features, such as Gaussian()."
            )
        U, s, Vh = xp.linalg.svd(dx[:, None] * self.cross * dy, full_matrices=False)
        f = self.x.vectors @ (dx[:, None] * U[:, :most])
        g = self.y.vectors @ (dy[:, None] * Vh[:most, :].T)
        return CorrelatedFunctions(self.mean_x, self.mean_y, f, g, s[:most])


def held_out_correlations(views: tuple[View, View], w: Array, most: int) -> np.ndarray:
    """λ, and the mean correlation on rows held out: a table of two columns."""
    n = count(views[0].points)
    # random folds from a fixed seed, for rows may be sorted
    order = np.random.default_rng(0).permutation(n)[: search_size(n)]
    folds = np.array_split(order, min(FOLDS, len(order)))
    part = take(w, order) / namespace(w).sum(take(w, order))
    coordinates = [view.rows(order).coordinates(part)[1] for view in views]
    place = np.empty(n, dtype=int)
    place[order] = np.arange(len(order))
    scale = max(float((part @ (psi**2)).sum()) for psi in coordinates)
    lambdas = SHARES * (scale if scale > 0 else 1.0)
    totals = np.zeros(len(lambdas))
    for fold in folds:
        held = place[fold]
        train = np.setdiff1d(np.arange(len(order)), held)
        if len(train) < 2 or len(held) < 2:
            continue  # too few rows to correlate
        psi_x, psi_y, v = (take(a, train) for a in (*coordinates, part))
        operators = Operators.of(psi_x, psi_y, v / namespace(v).sum(v))
        test_x, test_y = (take(a, held) for a in coordinates)
        for i, regularization in enumerate(lambdas):
            found = operators.correlate(float(regularization), most)
            f, g = (test_x - found.mean_x) @ found.x, (test_y - found.mean_y) @ found.y
            totals[i] += float(np.mean(correlations(to_numpy(f), to_numpy(g))))
    return np.column_stack([lambdas, totals / len(folds)])


def correlations(f: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Of each column of f with the same column of g; 0 where one of them is constant."""
    f, g = f - f.mean(axis=0), g - g.mean(axis=0)
    size = np.sqrt((f**2).sum(axis=0) * (g**2).sum(axis=0))
    return positive_ratio((f * g).sum(axis=0), size, 0.0)
