"""Similarities of labels: what structure the clusters of a clustering are to have."""

from __future__ import annotations

from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import is_array, to_numpy
from meanmap.kernels import Kernel
from meanmap.kernels.domains.matrices import read_matrices
from meanmap.linalg import symmetric_part

STRUCTURES = ("chain", "ring")
_REMEDY = (
    'Pass None (each like itself), "chain", "ring", a matrix (k, k), a networkx graph or a '
    "kernel of meanmap.kernels."
)


def label_features(structure: Any, k: int) -> np.ndarray:
    """Features F of k labels, one row per label; A = FFᵀ is their Gram matrix.

    Labels on a graph are as similar as heat that starts at one is found at the other; labels that
    are the leaves of a rooted tree by the number of edges that they share on their way from the
    root (Song, Smola, Gretton and Borgwardt 2007), one feature per edge.
    """
    if structure is None:
        return np.eye(k)
    if isinstance(structure, str):
        checks.option(structure, "label_kernel", STRUCTURES)
        return _structure_features(structure, k)
    if hasattr(structure, "adj"):
        return _from_graph(structure, k)
    if isinstance(structure, Kernel):
        points = np.arange(k, dtype=float)[:, None] if structure.on_vectors else np.arange(k)
        points = structure.check(points, "the labels")
        return _label_root(to_numpy(structure.resolve(points)(points)), k)
    if is_array(structure) or isinstance(structure, list):
        return _label_root(to_numpy(read_matrices([structure], "label_kernel"))[0], k)
    raise TypeError(f"label_kernel: got {structure!r:.60}. {_REMEDY}")


def _label_root(matrix: np.ndarray, k: int) -> np.ndarray:
    """The root of a symmetric positive semi-definite matrix of k rows."""
    A = np.asarray(matrix, dtype=np.float64)
    if A.shape != (k, k):
        raise ValueError(
            f"label_kernel: expected a matrix of shape ({k}, {k}), a row and a column for each of "
            f"n_clusters={k} labels, got shape {A.shape}. Change one of the two."
        )
    scale = float(abs(A).max())
    if not np.allclose(A, A.T, rtol=0, atol=1e-10 * scale):
        raise ValueError("label_kernel is not symmetric. Pass (A + A.T) / 2 if that is meant.")
    s, V = np.linalg.eigh(symmetric_part(A))
    least = float(s[0])
    if least < -1e-8 * max(scale, 1e-300):
        raise ValueError(
            f"label_kernel is not positive semi-definite: its least eigenvalue is {least:.3g}. "
            f"Similarities of labels must be a kernel; A + {-least:.2g} * np.eye({k}) is one."
        )
    return symmetric_part((V * np.sqrt(np.maximum(s, 0.0))) @ V.T)


def _structure_features(structure: str, k: int) -> np.ndarray:
    weights = np.zeros((k, k))
    at = np.arange(k - 1)
    weights[at, at + 1] = weights[at + 1, at] = 1.0
    if structure == "ring" and k > 2:
        weights[0, -1] = weights[-1, 0] = 1.0
    return heat(weights)


def heat(weights: np.ndarray) -> np.ndarray:
    """exp(-tL/2) of a graph's Laplacian L: where heat from each label is after a while.

    t is a tenth of the time in which the slowest difference between labels decays e-fold: near
    labels are alike, the far ends of the graph are not, however many labels there are. (Of longer
    times the ends of a chain take most of the points, with shorter ones long chains can fold.)
    """
    s, V = np.linalg.eigh(np.diag(weights.sum(axis=1)) - weights)
    above = s[s > 1e-9 * max(float(s[-1]), 1e-300)]
    if not above.size:  # no edges: nothing is alike
        return np.eye(len(weights))
    return np.maximum(symmetric_part((V * np.exp(-s / (20 * above[0]))) @ V.T), 0.0)


def _from_graph(graph: Any, k: int) -> np.ndarray:
    import networkx as nx

    leaves = []
    if graph.is_directed():
        if len(graph) == 0 or not nx.is_arborescence(graph):
            raise ValueError(
                "label_kernel: a directed graph stands for a rooted tree, whose edges lead from "
                "one root to the leaves, which are the labels. This one is not such a tree; pass "
                "graph.to_undirected() for labels that are its nodes."
            )
        leaves = [node for node in graph.nodes if graph.out_degree(node) == 0]
    places = leaves or list(graph.nodes)
    if len(places) != k:
        what = "leaves" if leaves else "nodes"
        raise ValueError(
            f"label_kernel: the graph has {len(places)} {what}, but n_clusters={k}. Labels are "
            f"the {what}: set n_clusters={len(places)}, or change the graph."
        )
    if not leaves:
        weights = np.asarray(nx.to_numpy_array(graph, weight="weight"), dtype=np.float64)
        np.fill_diagonal(weights, 0.0)
        if not np.isfinite(weights).all() or (weights < 0).any():
            raise ValueError(
                "label_kernel: the graph's edges have weights that are negative or not finite. "
                "Weights say how alike two labels are; edges without a weight count as 1."
            )
        return heat(weights)
    below = [nx.descendants(graph, node) | {node} for node in graph if graph.in_degree(node)]
    return np.array([[float(leaf in nodes) for nodes in below] for leaf in places])


__all__ = ["heat", "label_features"]
