"""Directions of X that keep all it says of Y."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.linalg
from scipy.optimize import minimize
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from meanmap import checks, plots
from meanmap.arrays import Array, in_kind, take, to_numpy
from meanmap.conditional import ConditionalEmbedding
from meanmap.exceptions import warn
from meanmap.frames import remember_columns, seen_columns
from meanmap.kernels import Gaussian, Kernel
from meanmap.kernels.defaults import as_target
from meanmap.spaces.space import fit_space, read_points
from meanmap.statistics.columns import column_moments
from meanmap.statistics.gates import require_target, require_two_rows
from meanmap.statistics.tiles import on_host

METHODS = ("kdr", "gradient")
ROUNDS = 2  # of optimisation, each with bandwidth and λ anew


class KernelDimensionReduction(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A projection BᵀX such that Y is independent of X given it, whatever the dependence is.

    "kdr" minimises tr[G_Y (G_BᵀX + nλI)⁻¹] over orthonormal B, the trace of the conditional
    covariance operator of Y given BᵀX (Fukumizu, Bach and Jordan 2009, eq. 19), from several
    starts. "gradient" takes the leading directions of the gradients of E[φ(Y)|x] (Fukumizu and Leng
    2014), without a search; it is also one of the starts. No model of the regression is assumed,
    nor that X is elliptical, as sliced inverse regression does.

    Parameters
    ----------
    n_components : int
        The dimension of the projection.
    target_kernel : Kernel, callable or None
        None chooses for the kind of Y. A 1-D numeric Y is a target of numbers; for classes pass
        `kernels.Delta()`.
    bandwidth : as of `kernels.Gaussian`
        Of the Gaussian kernel on projections; "median" is that of the projected sample.
    regularization : "auto" or float
        λ; "auto" takes the least leave-one-out error of φ(Y) from the projection.
    method : {"kdr", "gradient"}
    n_init : int
        Starts of the search: the gradients' directions, then random ones.
    max_iter : int
        Of one search.
    max_samples : int
        Rows that the search looks at, drawn at random if there are more: it costs their cube.
    random_state : int, Generator or None

    Attributes
    ----------
    components_ : (n_components, d), the directions in units of X; columns are put on unit deviation
        before a search, and directions are orthonormal there
    objective_ : the trace that was reached, as a share of tr[G_Y]/(nλ)
    bandwidth_, regularization_ : of the last round
    mean_ : of X
    n_iter_ : steps of the search that ended best

    Examples
    --------
    Y depends on one direction of ten, and not monotonically.

    >>> import numpy as np
    >>> from meanmap.learning import KernelDimensionReduction
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 10))
    >>> y = (X[:, 0] + X[:, 1]) ** 2 + 0.1 * rng.normal(size=200)
    >>> model = KernelDimensionReduction(1, random_state=0).fit(X, y)
    >>> direction = model.components_[0] / np.linalg.norm(model.components_[0])
    >>> bool(abs(direction[:2].sum()) / 2**0.5 > 0.98)
    True
    """

    def __init__(
        self,
        n_components: int = 2,
        target_kernel: Any = None,
        bandwidth: Any = "median",
        regularization: float | str = "auto",
        method: str = "kdr",
        *,
        n_init: int = 4,
        max_iter: int = 100,
        max_samples: int = 1000,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.target_kernel = target_kernel
        self.bandwidth = bandwidth
        self.regularization = regularization
        self.method = method
        self.n_init = n_init
        self.max_iter = max_iter
        self.max_samples = max_samples
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the projection."""
        require_target(y, "directions are those that say most about it; KernelPCA needs none")
        checks.option(self.method, "method", METHODS)
        for name in ("n_components", "n_init", "max_iter", "max_samples"):
            checks.whole(getattr(self, name), name, 1, "Use 1 or more.")
        checks.number_or_auto(self.regularization, "regularization", checks.positive, "1e-3")
        table = to_numpy(checks.vectors(X, "X")).astype(float)
        target, _ = as_target(y, self.target_kernel)
        points, kernel = read_points(target, self.target_kernel, None, "y")
        points = on_host(points)
        n = checks.same_length([("X", table), ("y", points)])
        require_two_rows(n, "directions are those in which rows differ")
        if self.n_components > table.shape[1]:
            raise ValueError(
                f"n_components={self.n_components}, but X has {table.shape[1]} feature(s). Ask for "
                "as many or fewer."
            )
        rng = checks.random_generator(self.random_state, "random_state")
        if n > self.max_samples:
            rows = np.sort(rng.choice(n, self.max_samples, replace=False))
            part, points = table[rows], take(points, rows)
        else:
            part = table
        mean, deviation = column_moments(table)
        scale = np.where(deviation > 1e-12 * np.abs(mean), deviation, np.inf)
        problem = ReductionProblem((part - mean) / scale, points, kernel, self)
        B, steps = (problem.gradients(), 1) if self.method == "gradient" else problem.search(rng)
        objective, _ = problem.trace(B, *(settings := problem.settings(B)))
        remember_columns(self, X)
        self.mean_, self.components_ = mean, (B / scale[:, None]).T
        self.bandwidth_, self.regularization_ = settings
        self.objective_, self.n_iter_ = objective, steps
        return self

    def transform(self, X: Any) -> Array:
        """The projection of rows, from the mean."""
        check_is_fitted(self, "components_")
        table = to_numpy(checks.vectors(seen_columns(self, X), "X")).astype(float)
        if table.shape[1] != len(self.mean_):
            raise ValueError(
                f"X has {table.shape[1]} features, but {type(self).__name__} is expecting "
                f"{len(self.mean_)} features as input. Reshape your data to (m, {len(self.mean_)})."
            )
        return in_kind((table - self.mean_) @ self.components_.T, X)

    def plot(self, X: Any, y: Any = None, ax: Any = None) -> Any:
        """Draw the projection of rows on two directions, coloured by y, or on one, against y."""
        return plots.places(to_numpy(self.transform(X)), y, ("direction 1", "direction 2"), ax)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "components_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


@dataclass
class ReductionProblem:
    """Rows of unit deviation, and targets as coordinates that are centred."""

    X: np.ndarray
    Y: Any
    kernel: Kernel
    given: KernelDimensionReduction

    def __post_init__(self) -> None:
        self.kernel = self.kernel.resolve(self.Y)
        psi = to_numpy(fit_space(self.kernel, None, self.Y)[1])
        self.phi = psi - psi.mean(axis=0)  # φ φᵀ is the centred Gram matrix G_Y
        self.total = float((self.phi**2).sum())

    def settings(self, B: np.ndarray) -> tuple[float, float]:
        """Bandwidth and λ at a projection."""
        Z = self.X @ B
        bandwidth = float(Gaussian(self.given.bandwidth).resolve(Z).bandwidth)
        if not isinstance(self.given.regularization, str):
            return bandwidth, float(self.given.regularization)
        model = ConditionalEmbedding(Gaussian(bandwidth), self.kernel, centered=True)
        return bandwidth, max(model.fit(Z, self.Y).regularization_, 1e-8)

    def trace(
        self, B: np.ndarray, bandwidth: float, regularization: float
    ) -> tuple[float, np.ndarray]:
        """nλ tr[G_Y (G_Z + nλI)⁻¹] / tr G_Y for Z = XB, and its gradient in B."""
        n = len(self.X)
        Z = self.X @ B
        squares = (Z**2).sum(axis=1)
        distances = np.maximum(squares[:, None] + squares - 2 * Z @ Z.T, 0)
        K = np.exp(distances / (-2 * bandwidth**2))
        rows = K.mean(axis=0)
        G = K - rows - rows[:, None] + rows.mean()
        G[np.diag_indices(n)] += n * regularization
        try:
            factor = scipy.linalg.cho_factor(G, lower=True, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError as error:
            raise ValueError(
                f"regularization={regularization:.3g} is lost in rounding. Use 1e-8 or more."
            ) from error
        solved = scipy.linalg.cho_solve(factor, self.phi, check_finite=False)
        scale = n * regularization / self.total if self.total > 0 else 0.0
        value = scale * float((self.phi * solved).sum())
        # d tr = -Σ W ∘ dG with W = (G + nλI)⁻¹ G_Y (G + nλI)⁻¹, which is centred as φ is
        S = (solved @ solved.T) * K
        # dK = -K ∘ (z_i - z_j)·(dz_i - dz_j)/σ²
        pulled = S.sum(axis=1)[:, None] * Z - S @ Z
        return value, (2 * scale / bandwidth**2) * (self.X.T @ pulled)

    def search(self, rng: np.random.Generator) -> tuple[np.ndarray, int]:
        """The best projection of several searches, and the steps to it."""
        d, m = self.X.shape[1], self.given.n_components
        starts = [self.gradients()]
        starts += [np.linalg.qr(rng.normal(size=(d, m)))[0] for _ in range(self.given.n_init - 1)]
        ends, settled, taken = [], [], []
        for start in starts:
            B, done, steps = start, True, 0
            for _ in range(ROUNDS):
                B, done, more = self.descend(B)
                steps += more
            ends.append(B)
            settled.append(done)
            taken.append(steps)
        # all compared with one bandwidth and λ, that of the first
        common = self.settings(ends[0])
        values = [self.trace(B, *common)[0] for B in ends]
        best = int(np.argmin(values))
        if not settled[best]:
            warn(
                f"the search stopped after max_iter={self.given.max_iter} steps before it settled. "
                "Raise max_iter, or lower n_components.",
                ConvergenceWarning,
            )
        return ends[best], max(taken[best], 1)

    def descend(self, B: np.ndarray) -> tuple[np.ndarray, bool, int]:
        """A minimum near B with bandwidth and λ of B; whether it settled, and its steps."""
        settings = self.settings(B)
        shape = B.shape

        def value(flat: np.ndarray) -> tuple[float, np.ndarray]:
            # any A with span of B: the trace depends on the span alone, so that its gradient in A
            # is (I - BBᵀ) ∂/∂B R⁻ᵀ for A = BR
            Q, R = np.linalg.qr(flat.reshape(shape))
            f, gradient = self.trace(Q, *settings)
            gradient -= Q @ (Q.T @ gradient)
            return f, scipy.linalg.solve_triangular(R, gradient.T).T.ravel()

        found = minimize(
            value,
            B.ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": self.given.max_iter, "ftol": 1e-8, "gtol": 1e-7},
        )
        return np.linalg.qr(found.x.reshape(shape))[0], found.status != 1, int(found.nit)

    def gradients(self) -> np.ndarray:
        """Leading directions of the gradients of E[φ(Y)|x] (Fukumizu and Leng 2014, eq. 10)."""
        n, d = self.X.shape
        bandwidth, regularization = self.settings(np.eye(d))
        K = Gaussian(bandwidth)(self.X)
        A = K + n * regularization * np.eye(n)
        try:
            coefficients = scipy.linalg.solve(A, self.phi, assume_a="pos")
        except np.linalg.LinAlgError as error:
            raise ValueError(
                f"regularization={regularization:g} is too small for these rows: their Gram matrix "
                "is singular. Use a larger one, for example 1e-3."
            ) from error
        # ∂/∂x Σ_j a_j k(x_j, x) at x_i: Σ_j a_j K_ij (x_j - x_i)/σ², a matrix of d × r a row
        M = np.zeros((d, d))
        for i in range(n):
            J = (self.X - self.X[i]).T @ (K[i][:, None] * coefficients)
            M += J @ J.T
        values, vectors = scipy.linalg.eigh(M, subset_by_index=(d - self.given.n_components, d - 1))
        return vectors[:, ::-1]
