"""Maps of points that keep near distances and otherwise follow side information."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.optimize import minimize
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from meanmap import checks, plots
from meanmap.arrays import Array, in_kind, one_blas_thread, to_numpy
from meanmap.exceptions import warn
from meanmap.frames import remember_columns, seen_columns
from meanmap.kernels import Kernel
from meanmap.kernels.defaults import as_target
from meanmap.learning.neighbour_graph import Distinct, NeighbourGraph, reconstruction_weights
from meanmap.learning.unfolding_programme import UnfoldingProgramme
from meanmap.spaces.space import fit_space, read_points
from meanmap.statistics.columns import column_signs
from meanmap.statistics.gates import read_random_state
from meanmap.statistics.tiles import on_host

FULL = 300  # up to this many points every kernel matrix is considered
METHODS = ("auto", "full", "laplacian")
SOLVERS = ("auto", "cvxpy", "factors")


class ColoredUnfolding(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Colored maximum variance unfolding: a map that keeps near distances and depends on y.

    MUHSIC of Song, Smola, Borgwardt and Gretton (2008): the kernel matrix K of the map maximises
    its dependence `tr(KHLH)` with the Gram matrix L of side information, while distances of
    neighbours stay as they are. Without side information it is the maximum variance unfolding of
    Weinberger and Saul (2004).

    Parameters
    ----------
    n_components : int
        Coordinates of the map.
    n_neighbors : int
        Of each point, whose distances are kept; all others where there are fewer.
    kernel : Kernel, callable or None
        Of the side information y. None chooses for the kind; numbers are numbers: for classes
        pass `kernels.Delta()`.
    stiffness : float or None
        How hard distances are kept: squared ones give way by about 1/(2 stiffness) of their mean.
        Soft maps suit data that does not fit into so few coordinates, stiff ones sheets that only
        have to be unrolled. None keeps distances exactly, by the full method only.
    method : {"auto", "full", "laplacian"}
        "full" considers every K. "laplacian" those that are smooth on the neighbour graph, QAQᵀ
        with the bottom eigenvectors Q of its Laplacian (Weinberger, Sha, Zhu and Saul 2007).
        "auto" is full up to 300 points.
    n_eigenvectors : int
        Of the Laplacian, for that method.
    refine : bool
        Whether that method lets the points settle in the end, in n_components dimensions: better
        distances where the data has as many, worse neighbours where it has more.
    solver : {"auto", "cvxpy", "factors"}
        "cvxpy" solves the programme by interior points, "factors" by gradients over a factor of K;
        "auto" takes the first for up to 25 unknown rows. Either answer is checked by the bound of
        the dual programme.
    tol : float
        The relative gap to that bound which counts as solved.
    max_iter : int or None
        Steps of the solver.
    random_state : int, RandomState or None

    Attributes
    ----------
    embedding_ : array of shape (n, n_components)
    factors_ : array of shape (n, rank)
        K is `factors_ @ factors_.T`, columns by falling size. The embedding is the first of them,
        unless it was refined.
    objective_ : float
        HSIC of K and the side information, tr(KHLH)/n²; without y the variance over n.
    stress_ : float
        How badly the map keeps distances: √(Σ(δ - d)²/Σd²) over neighbours.
    status_, gap_ : what the solver came to: "optimal" if the gap is within `tol`
    kernel_ : the kernel of y, its bandwidth resolved, or None
    edges_ : array of shape (e, 2), the pairs of distinct rows whose distances are kept
    n_iter_, method_ : steps taken, and by which method

    Examples
    --------
    A strip of paper, curled up; side information says where on the strip points lie:

    >>> import numpy as np
    >>> from meanmap import ColoredUnfolding
    >>> t = np.linspace(0, 5, 60)
    >>> X = np.stack([np.cos(t), np.sin(t)], axis=1)
    >>> model = ColoredUnfolding(n_components=1, n_neighbors=3, random_state=0).fit(X, t)
    >>> bool(abs(np.corrcoef(model.embedding_[:, 0], t)[0, 1]) > 0.999)
    True
    >>> model.status_
    'optimal'
    """

    def __init__(
        self,
        n_components: int = 2,
        n_neighbors: int = 10,
        kernel: Any = None,
        *,
        stiffness: float | None = 1.0,
        method: str = "auto",
        n_eigenvectors: int = 20,
        refine: bool = False,
        solver: str = "auto",
        tol: float = 1e-3,
        max_iter: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.kernel = kernel
        self.stiffness = stiffness
        self.method = method
        self.n_eigenvectors = n_eigenvectors
        self.refine = refine
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Unfold the rows of X towards the side information y."""
        self._check_settings()
        points = np.asarray(to_numpy(checks.vectors(X, "X")), dtype=np.float64)
        n = len(points)
        if n < 3:
            raise ValueError(f"an unfolding needs at least 3 points, got n_samples={n}.")
        side, kernel = self._side(y, n)
        some = Distinct.of(points)
        side = side.gather(some)
        if len(some.rows) < 3:
            raise ValueError(
                f"X has {len(some.rows)} distinct rows; an unfolding needs at least 3."
            )
        with one_blas_thread():
            places, factors = self._unfold(some, side)
        remember_columns(self, X)
        self.embedding_, self.factors_ = in_kind(places, X), in_kind(factors, X)
        self.kernel_ = kernel
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Array:
        """Unfold the rows of X and return the map."""
        return self.fit(X, y).embedding_

    def transform(self, X: Any) -> Array:
        """Places of new points: between their neighbours among the rows fitted to.

        Each is the combination of its neighbours that best gives the point itself, as in locally
        linear embedding; side information of new points is not used.
        """
        check_is_fitted(self)
        if getattr(X, "ndim", 0) == 2:
            X = seen_columns(self, X)
        points = checks.same_kind(checks.vectors(X, "X"), self._rows, "X", "the sample")
        near, w = reconstruction_weights(
            self._rows, np.asarray(to_numpy(points), dtype=np.float64), self._near
        )
        return in_kind(np.einsum("nk,nkc->nc", w, self._places[near]), X)

    def plot(self, y: Any = None, ax: Any = None) -> Any:
        """Draw the map of the rows fitted to, coloured by labels or numbers y."""
        check_is_fitted(self)
        return plots.places(to_numpy(self.embedding_), y, ("coordinate 1", "coordinate 2"), ax)

    # --- parts of a fit -----------------------------------------------------------------------

    def _check_settings(self) -> None:
        checks.whole(self.n_components, "n_components", 1, "It is the number of coordinates.")
        checks.whole(self.n_neighbors, "n_neighbors", 1, "It is the number of neighbours.")
        checks.whole(self.n_eigenvectors, "n_eigenvectors", 1, "Twenty are usual.")
        checks.option(self.method, "method", METHODS)
        checks.option(self.solver, "solver", SOLVERS)
        checks.positive(self.tol, "tol", "A thousandth is usual.")
        if self.stiffness is not None:
            nu = checks.positive(self.stiffness, "stiffness", "None keeps distances exactly.")
            if not 1e-30 <= nu <= 1e30:
                raise ValueError(
                    f"stiffness must lie between 1e-30 and 1e30, got {nu!r}. None keeps distances "
                    "exactly."
                )
        elif self.method == "laplacian":
            raise ValueError(
                "stiffness=None keeps distances exactly, which smooth maps cannot: "
                'method="laplacian" needs a number such as 1.0; or use method="full".'
            )
        if self.max_iter is not None:
            checks.whole(self.max_iter, "max_iter", 1, "None leaves it to the solver.")

    def _side(self, y: Any, n: int) -> tuple[_Side, Kernel | None]:
        """Side information in coordinates, its mean taken off."""
        if y is None:
            return _Side(n, None, np.ones(n)), None
        _all_known(y)
        target, _ = as_target(y, self.kernel)
        points, kernel = read_points(target, self.kernel, None, "y")
        points = on_host(points)
        checks.same_length([("X", np.empty((n, 1))), ("y", points)])
        kernel = kernel.resolve(points)
        _, psi = fit_space(kernel, None, points)
        psi = np.asarray(to_numpy(psi), dtype=np.float64)
        centred = psi - psi.mean(axis=0)
        if np.sum(centred**2) <= 1e-12 * max(np.sum(psi**2), 1e-300):
            raise ValueError(
                "y is the same for all rows (one class), so that nothing can depend on it. Pass "
                "y=None for plain maximum variance unfolding."
            )
        return _Side(n, centred, np.ones(n)), kernel

    def _unfold(self, some: Distinct, side: _Side) -> tuple[np.ndarray, np.ndarray]:
        """Find the map; the places of all rows, and the factors of K."""
        rng = read_random_state(self.random_state)
        m = len(some.rows)
        near = min(self.n_neighbors, m - 1)
        graph = NeighbourGraph.of(some.rows, near)
        method = self.method
        if method == "auto":
            method = "full" if m <= FULL or self.stiffness is None else "laplacian"
        size = m - 1 if method == "full" else min(self.n_eigenvectors, m - 1)
        s, Q = graph.smooth(size, rng)
        B = Q / np.sqrt(s)  # then Σ bₑbₑᵀ = I
        unit = float(graph.squares.mean())
        if unit < checks.SMALLEST:
            raise ValueError(
                "X: the squares of distances between neighbours vanish in rounding. Divide X by "
                "its scale first."
            )
        C = B.T @ side.apply(B)
        pull = float(np.linalg.eigvalsh(C)[-1])  # the tension that would hold if all were alike
        stiffness = None if self.stiffness is None else float(self.stiffness)
        programme = UnfoldingProgramme(
            C / pull, graph.differences @ B, graph.squares / unit, stiffness
        )
        found = programme.solve(self.solver, self.tol, self.max_iter, rng)
        if found.status != "optimal":
            kept = f", distances kept to {found.violation:.2g}" if self.stiffness is None else ""
            warn(
                f"the semidefinite programme was not solved to tol={self.tol}: status "
                f"{found.status!r}, a relative gap of {found.gap:.2g} to the bound of the dual"
                f"{kept}, after {found.iterations} steps. Raise max_iter or tol"
                + (", or give stiffness a number." if self.stiffness is None else "."),
                ConvergenceWarning,
            )
        factors = _principal(B @ found.factor * np.sqrt(unit), some.counts)
        places = _pad_columns(factors, self.n_components)
        if method == "laplacian" and self.refine:
            places = self._settle(places, graph, side, pull, unit)
            places = _pad_columns(_principal(places, some.counts), self.n_components)
        self.objective_ = float(np.sum(factors * side.apply(factors))) / side.n**2
        self.stress_ = graph.stress(places)
        self.status_, self.gap_, self.n_iter_ = found.status, found.gap, found.iterations
        self.edges_, self.method_ = graph.edges, method
        self._rows, self._places, self._near = some.rows, places, near
        self._n_features_out = self.n_components
        return places[some.place], factors[some.place]

    def _settle(
        self, Y: np.ndarray, graph: NeighbourGraph, side: _Side, pull: float, unit: float
    ) -> np.ndarray:
        """The same objective over the points of the map (Weinberger et al. 2007, section 3)."""
        D, d2, nu = graph.differences, graph.squares / unit, self.stiffness
        assert nu is not None
        Dt = D.T.tocsr()

        def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
            Y = flat.reshape(graph.n, -1)
            Z, LY = D @ Y, side.apply(Y) / pull
            off = np.sum(Z * Z, axis=1) - d2
            value = nu * off @ off - np.sum(Y * LY)
            slope = 4 * nu * (Dt @ (off[:, None] * Z)) - 2 * LY
            return float(value) / len(d2), slope.ravel() / len(d2)

        options = {"maxiter": 500, "maxcor": 20}
        start = (Y / np.sqrt(unit)).ravel()
        found = minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
        return found.x.reshape(Y.shape) * np.sqrt(unit)


@dataclass(frozen=True)
class _Side:
    """HLH of n rows, gathered where rows of X are equal; coordinates None stand for L = I."""

    n: int
    coordinates: np.ndarray | None
    counts: np.ndarray

    def gather(self, some: Distinct) -> _Side:
        if self.coordinates is None:
            return _Side(self.n, None, some.counts.astype(float))
        sums = np.zeros((len(some.rows), self.coordinates.shape[1]))
        np.add.at(sums, some.place, self.coordinates)
        return _Side(self.n, sums, some.counts.astype(float))

    def apply(self, Y: np.ndarray) -> np.ndarray:
        if self.coordinates is not None:
            return self.coordinates @ (self.coordinates.T @ Y)
        return self.counts[:, None] * (Y - self.counts @ Y / self.n)


def _all_known(y: Any) -> None:
    """Refuse side information that some rows do not have."""
    if isinstance(y, tuple):
        for part in y:
            _all_known(part)
        return
    array = y.to_numpy() if hasattr(y, "to_numpy") else y
    if not isinstance(array, np.ndarray | list):
        return
    try:
        array = np.asarray(array)
    except ValueError:
        return  # rows of several lengths: the kernel's gate has its own words
    if array.ndim not in (1, 2) or not len(array):
        return
    missing = checks.missing_rows(array)
    if missing.any():
        raise ValueError(
            f"y has no value in {int(missing.sum())} of {len(array)} rows (NaN or None; the first "
            f"is row {int(np.flatnonzero(missing)[0])}). Fit to the rows that have one, and place "
            "the others with transform(X)."
        )


def _principal(factors: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Factors of the same K, centred, as its principal coordinates: columns by falling size."""
    centred = factors - counts @ factors / counts.sum()
    U, s, _ = np.linalg.svd(centred * np.sqrt(counts)[:, None], full_matrices=False)
    kept = s > 1e-7 * max(float(s[0]), 1e-300)
    Y = (U * s)[:, kept] / np.sqrt(counts)[:, None]
    return Y * column_signs(Y)


def _pad_columns(Y: np.ndarray, c: int) -> np.ndarray:
    """c columns, zeros where there are fewer."""
    return np.pad(Y[:, :c], ((0, 0), (0, max(0, int(c) - Y.shape[1]))))


__all__ = ["ColoredUnfolding"]
