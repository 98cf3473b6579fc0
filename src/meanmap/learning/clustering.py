"""Clusters as labels that depend on the points as much as they can."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from meanmap import checks, plots
from meanmap.arrays import (
    Array,
    Points,
    count,
    float_like,
    in_kind,
    one_blas_thread,
    take,
    to_numpy,
)
from meanmap.exceptions import quiet, warn
from meanmap.frames import remember_columns, seen_columns
from meanmap.kernels import Delta, Kernel
from meanmap.learning.cluster_search import Ascent, BySize, Objective, Plain, ascend, start, sums
from meanmap.learning.label_kernels import label_features
from meanmap.spaces import PivotedCholesky
from meanmap.spaces.space import choose_basis, fit_space, read_points
from meanmap.statistics import hsic
from meanmap.statistics.gates import read_random_state

SMALL = 256  # up to this rank one BLAS thread is faster than several
LARGE = 2000  # of more points than this a millionth of the kernel's trace is let go
FACTORS = (0.5, 1.0, 2.0, 4.0)  # multiples of the default bandwidth that are tried
SEARCHED, STARTS = 400, 4  # points that the choice of one looks at, and starts for each


class HSICClustering(ClusterMixin, BaseEstimator):
    """Clustering by dependence: labels with the largest HSIC with the points.

    CLUHSIC of Song, Smola, Gretton and Borgwardt (2007): the labels y that maximise
    `tr(HKH ΠAΠᵀ)/n²`, K the Gram matrix of the points, A that of the labels, Π who has which. The
    kernel says which points are alike, the label kernel which labels are: without one it is
    k-means in the kernel's space (k-means itself with `Linear()`); with a chain or a ring near
    clusters get near labels, so that they come out in order.

    Parameters
    ----------
    n_clusters : int
        The number of labels.
    kernel : Kernel, callable or None
        None chooses for the kind of points. For vectors it is a Gaussian; without a label kernel
        its bandwidth is a half to four times the usual one, whichever has the largest normalised
        HSIC of points and labels (on 400 points if there are more).
    label_kernel : None, "chain", "ring", matrix (k, k), networkx graph or Kernel
        How alike the labels 0 … k - 1 are. None: each like itself only. A graph's nodes are the
        labels, alike where heat goes from one to the other; of a rooted tree (a DiGraph) the
        leaves are, alike by how long their ways from the root run together. A kernel compares
        the numbers 0 … k - 1.
    normalized : bool
        Divide by the sizes of clusters, as k-means does: with features F of the labels, A = FFᵀ,
        `ΠAΠᵀ` becomes `ΠF diag(1/|F|ᵀW) FᵀΠᵀ`, W the clusters' weights. Large clusters then do not
        pay for themselves. If not, it is HSIC with the label kernel as it stands, which tends to
        leave labels unused.
    basis : a basis or None
        How the kernel gets coordinates; None is exact to rounding, beyond 2000 points to a
        millionth of the kernel's trace. `Nystroem(n)` for very many points.
    n_init : int
        Starts: one from principal coordinates, the others at random. The best is kept.
    max_iter : int
        Sweeps over all points a start may take.
    tol : float
        Stop when a sweep adds less than this share of the objective; 0 goes on until no point
        wants another label.
    random_state : int, RandomState or None

    Attributes
    ----------
    labels_ : NumPy array of int, shape (n,)
    objective_ : float
        HSIC of points and labels, `Σ A_cd S_c·S_d` with S_c the sum of `wᵢψ(xᵢ)`, centred, over
        the cluster, and weights that sum to one. Normalised and without a label kernel it is the
        variance between clusters.
    history_ : the objective at the start and after every sweep; it never falls
    n_iter_ : sweeps of the best start
    label_kernel_ : the Gram matrix of the labels
    kernel_, space_ : the kernel, its bandwidth resolved, and its space

    Examples
    --------
    Two rings, one in the other:

    >>> import numpy as np
    >>> from meanmap import HSICClustering
    >>> from meanmap.kernels import Gaussian
    >>> turn = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    >>> ring = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    >>> model = HSICClustering(2, Gaussian(0.7), random_state=0).fit(
    ...     np.concatenate([ring, 4 * ring])
    ... )
    >>> len(set(model.labels_[:60])), len(set(model.labels_))
    (1, 2)

    Points on a ring, with labels in the order of the angle:

    >>> model = HSICClustering(6, label_kernel="ring", random_state=0).fit(ring)
    >>> steps = np.diff(model.labels_) % 6
    >>> bool(np.isin(steps, [0, 1]).all() or np.isin(steps, [0, 5]).all())
    True
    """

    def __init__(
        self,
        n_clusters: int = 8,
        kernel: Any = None,
        label_kernel: Any = None,
        *,
        normalized: bool = True,
        basis: Any = None,
        n_init: int = 10,
        max_iter: int = 300,
        tol: float = 0.0,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.kernel = kernel
        self.label_kernel = label_kernel
        self.normalized = normalized
        self.basis = basis
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Find labels; y is ignored. A row of weight zero is labelled, but has no say."""
        k = checks.whole(self.n_clusters, "n_clusters", 1, "It is the number of labels.")
        checks.whole(self.n_init, "n_init", 1, "It is the number of starts.")
        checks.whole(self.max_iter, "max_iter", 1, "It is the number of sweeps of a start.")
        checks.not_negative(self.tol, "tol", "0 goes on until no point moves.")
        F = label_features(self.label_kernel, k)
        points, kernel = read_points(X, self.kernel, self.basis, "X")
        w = checks.sample_weights(sample_weight, points, float_like(points))
        keep = to_numpy(w) > 0
        kept, v = (points, w) if keep.all() else (take(points, keep), take(w, keep))
        if count(kept) < k:
            raise ValueError(
                f"n_samples={count(kept)} should be >= n_clusters={k}: there are fewer points than "
                "labels. Ask for fewer clusters."
            )
        kernel = kernel.resolve(kept, v)
        if self.kernel is None and self.label_kernel is None and self.normalized and k > 1:
            kernel = self._choose_bandwidth(kernel, kept, k)
        space, psi = fit_space(kernel, self._basis(kernel, kept), kept, v)
        Z, v = np.asarray(to_numpy(psi), dtype=np.float64), np.asarray(to_numpy(v), dtype=float)
        mean = v @ Z
        Z = Z - mean
        objective: Objective = BySize(F) if self.normalized else Plain(F)
        rng = read_random_state(self.random_state)
        with one_blas_thread(Z.shape[1] < SMALL):
            best = self._best(Z, v, objective, rng)
        S, W = sums(Z, v, best.labels, k)
        self._warn(best, Z, W)

        # nothing is set before everything has worked
        if not isinstance(points, tuple) and points.ndim == 2:
            remember_columns(self, X)
        self.kernel_, self.space_ = space.kernel_, space
        self.objective_, self.history_ = best.history[-1], np.array(best.history)
        self.n_iter_ = len(best.history) - 1
        self.label_kernel_ = F @ F.T
        self._features, self._by_size = F, bool(self.normalized)
        self._mean = mean
        self._slopes, levels = objective.tangent(S, W)
        self._levels = np.where(W > 0, levels, -np.inf)  # unused labels are never predicted
        if keep.all():
            self.labels_ = best.labels
        else:
            self.labels_ = self._nearest(points)
            self.labels_[keep] = best.labels
        return self

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> Array:
        """Find labels and return them, in the kind of array that X is."""
        return in_kind(self.fit(X, y, sample_weight).labels_, X)

    def _basis(self, kernel: Kernel, points: Points) -> Any:
        if self.basis is not None or count(points) <= LARGE:
            return self.basis
        return choose_basis(kernel, points, PivotedCholesky(tol=1e-6))

    def _choose_bandwidth(self, kernel: Kernel, points: Points, k: int) -> Kernel:
        """The default kernel with the bandwidth whose labels depend on the points most.

        At the usual bandwidth a large cluster is spread out in the kernel's space, and parting it
        pays more than telling a small one.
        """
        if not kernel.radial or count(points) <= k:
            return kernel
        n = count(points)
        rng = np.random.default_rng(0)
        some = np.sort(rng.choice(n, min(n, max(SEARCHED, 4 * k)), replace=False))
        rows = to_numpy(take(points, some))
        best, score = kernel, -np.inf
        for factor in FACTORS:
            candidate = kernel.rescaled(factor)
            found = HSICClustering(k, candidate, n_init=STARTS, random_state=0)
            with quiet():
                labels = found.fit(rows).labels_
                value = float(hsic(rows, labels, candidate, Delta(), estimator="normalized"))
            if value > score:
                best, score = candidate, value
        return best

    def _best(self, Z: np.ndarray, w: np.ndarray, objective: Objective, rng: Any) -> Ascent:
        best: Ascent | None = None
        for turn in range(self.n_init):
            labels = start(Z, w, objective, turn, rng)
            found = ascend(Z, w, labels, objective, self.max_iter, self.tol)
            if best is None or found.history[-1] > best.history[-1] * (1 + 1e-12):
                best = found
        assert best is not None
        return best

    def _warn(self, best: Ascent, Z: np.ndarray, W: np.ndarray) -> None:
        if not best.converged:
            warn(
                f"points still change their labels after max_iter={self.max_iter} sweeps; the last "
                f"one raised the objective from {best.history[-2]:.6g} to {best.history[-1]:.6g}. "
                "Raise max_iter, or tol to stop at small gains.",
                ConvergenceWarning,
            )
        if self.normalized and self.label_kernel is None and (W <= 0).any():
            distinct = len(np.unique(Z, axis=0))
            warn(
                f"only {int((W > 0).sum())} of n_clusters={len(W)} labels are used: the number of "
                f"distinct points is {distinct}. Ask for fewer clusters.",
                ConvergenceWarning,
            )

    def predict(self, X: Any) -> Array:
        """The labels of new points: those with which the dependence would grow most.

        For k-means that is the nearest centre; at the points fitted to, `labels_`.
        """
        points = self._points(X)
        return in_kind(self._nearest(points), points)

    def plot(self, X: Any, ax: Any = None) -> Any:
        """Draw rows in the two directions of the space in which they vary most, by their labels."""
        Z = np.asarray(to_numpy(self.space_.coordinates(self._points(X))), dtype=np.float64)
        U, s, _ = np.linalg.svd(Z - Z.mean(axis=0), full_matrices=False)
        names = ("principal coordinate 1", "principal coordinate 2")
        return plots.places((U * s)[:, :2], self._assign(Z), names, ax)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """HSIC of points and their predicted labels, larger is better; y is ignored.

        On the points fitted to it is `objective_`. It compares labels for one kernel, not kernels.
        """
        points = self._points(X)
        w = to_numpy(checks.sample_weights(sample_weight, points, float_like(points)))
        Z = np.asarray(to_numpy(self.space_.coordinates(points)), dtype=np.float64)
        labels = self._assign(Z)
        objective = (BySize if self._by_size else Plain)(self._features)
        return objective.value(*sums(Z - w @ Z, w, labels, len(self._slopes)))

    def _points(self, X: Any) -> Points:
        check_is_fitted(self)
        if hasattr(self, "n_features_in_") and getattr(X, "ndim", 0) == 2:
            X = seen_columns(self, X)
        return self.kernel_.check(X, "X", self.space_.example_)

    def _nearest(self, points: Points) -> np.ndarray:
        return self._assign(np.asarray(to_numpy(self.space_.coordinates(points)), dtype=float))

    def _assign(self, Z: np.ndarray) -> np.ndarray:
        return np.argmax((Z - self._mean) @ self._slopes.T + self._levels, axis=1)


__all__ = ["HSICClustering"]
