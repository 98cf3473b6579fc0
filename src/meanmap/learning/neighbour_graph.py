"""Graphs of near points: edges, their Laplacian, and places for new points between neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import eigsh
from scipy.spatial import KDTree  # that of scikit-learn sets warning filters
from sklearn.metrics import pairwise_distances_argmin_min

from meanmap.exceptions import SettingWarning, warn

DENSE = 1000  # up to this size all eigenvectors are found at once


@dataclass(frozen=True)
class Distinct:
    """Rows without repetition: `rows[place]` are all of them, `counts` how often each occurs."""

    rows: np.ndarray
    place: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, X: np.ndarray) -> Distinct:
        _, first, place, counts = np.unique(
            X, axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        order = np.argsort(first)  # as they came, not sorted
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return cls(X[first[order]], back[place.ravel()], counts[order])


@dataclass(frozen=True)
class NeighbourGraph:
    """Edges (i, j), i < j, of near points, with the squared distances along them."""

    n: int
    edges: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, X: np.ndarray, n_neighbors: int) -> NeighbourGraph:
        """Each point with its nearest others; parts that do not hang together are joined."""
        near = KDTree(X).query(X, np.arange(2, n_neighbors + 2))[1]  # the first is the point itself
        start = np.repeat(np.arange(len(X)), n_neighbors)
        pairs = np.sort(np.stack([start, near.ravel()], axis=1), axis=1)
        edges, parts = _join_parts(X, np.unique(pairs, axis=0))
        if parts > 1:
            warn(
                f"the graph of {n_neighbors} nearest neighbours falls into {parts} parts, between "
                f"which no distance is known; it was joined by {parts - 1} edges between the "
                "nearest points of two parts. Raise n_neighbors to avoid this.",
                SettingWarning,
            )
        gaps = X[edges[:, 0]] - X[edges[:, 1]]
        return cls(len(X), edges, np.einsum("ij,ij->i", gaps, gaps))

    @property
    def differences(self) -> csr_array:
        """D with (DY)ₑ = Yᵢ - Yⱼ along every edge."""
        e = len(self.edges)
        at = np.repeat(np.arange(e), 2)
        return csr_array((np.tile([1.0, -1.0], e), (at, self.edges.ravel())), shape=(e, self.n))

    def smooth(self, m: int, rng: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
        """The m least eigenvalues of the Laplacian above zero, and their eigenvectors."""
        D = self.differences
        L = (D.T @ D).tocsc()
        if self.n <= DENSE or 4 * m > self.n:
            s, Q = scipy.linalg.eigh(L.toarray(), subset_by_index=(1, m))
            return s, Q
        level = 1e-3 * len(self.edges) / self.n**2  # just below zero, where L is not singular
        s, Q = eigsh(L, m + 1, sigma=-level, v0=rng.uniform(size=self.n))
        order = np.argsort(s)[1:]
        return s[order], Q[:, order]

    def stress(self, Y: np.ndarray) -> float:
        """√(Σ(δ - d)²/Σd²) over the edges, d distances of the points and δ of Y."""
        d = np.sqrt(self.squares)
        found = np.linalg.norm(Y[self.edges[:, 0]] - Y[self.edges[:, 1]], axis=1)
        return float(np.linalg.norm(found - d) / np.linalg.norm(d))


def _join_parts(X: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, int]:
    """The edges with as few more as make one part of all points, and how many parts there were."""
    n = len(X)
    graph = csr_array((np.ones(len(edges)), edges.T), shape=(n, n))
    parts, part = connected_components(graph, directed=False)
    bridges = []
    for _ in range(parts - 1):
        names, sizes = np.unique(part, return_counts=True)
        inside = part == names[sizes.argmin()]
        here, there = np.flatnonzero(inside), np.flatnonzero(~inside)
        nearest, distance = pairwise_distances_argmin_min(X[here], X[there])
        at = int(distance.argmin())
        i, j = int(here[at]), int(there[nearest[at]])
        bridges.append(sorted((i, j)))
        part[inside] = part[j]
    return np.concatenate([edges, np.array(bridges, dtype=edges.dtype).reshape(-1, 2)]), parts


def reconstruction_weights(
    rows: np.ndarray, X: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """For each point its k nearest rows and weights, sum one, that place it between them.

    Weights are those that best reconstruct the point (Saul and Roweis 2003, section 4.1); a point
    that is a row gets all its weight there.
    """
    near = KDTree(rows).query(X, np.arange(1, k + 1))[1]
    gaps = rows[near] - X[:, None]
    C = np.einsum("nid,njd->nij", gaps, gaps)
    trace = np.trace(C, axis1=1, axis2=2)
    there = np.all(gaps[:, 0] == 0, axis=1) | (trace <= 0)
    C = C + np.where(there, 1.0, 1e-3 * trace)[:, None, None] * np.eye(k)
    w = np.linalg.solve(C, np.ones((len(X), k, 1)))[:, :, 0]
    w /= w.sum(axis=1, keepdims=True)
    w[there] = np.eye(k)[0]
    return near, w


__all__ = ["Distinct", "NeighbourGraph", "reconstruction_weights"]
