"""Learning a tree from data."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import networkx as nx
import numpy as np

from meanmap.arrays import asarray, float_like, to_numpy
from meanmap.graphical.tables import (
    kernels_of,
    read_columns,
    read_variable,
    row_weights,
    rows_in_both,
)
from meanmap.spaces.space import fit_space

ROUNDING = 1e-12  # coordinates of a constant column differ by less than this


def chow_liu_tree(data: Any, kernel: Any = None, sample_weight: Any = None) -> nx.Graph:
    """The tree whose edges have the most dependence, by normalised HSIC.

    Chow and Liu's (1968) maximum spanning tree with the normalised Hilbert-Schmidt criterion
    `‖C_XY‖² / (‖C_XX‖ ‖C_YY‖)` of centred operators in place of mutual information, for variables
    of any kind. A row is left out of the pairs in which it has a missing value. Unlike mutual
    information, the criterion can be larger between two effects of a cause than between cause and
    effect.

    Parameters
    ----------
    data : DataFrame, dict of arrays, or array with named fields
    kernel : Kernel, dict from column to Kernel, or None
    sample_weight : array (n,) or None

    Returns
    -------
    networkx.Graph
        With the criterion as the attribute `weight` of each edge.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.graphical import chow_liu_tree
    >>> rng = np.random.default_rng(0)
    >>> a = rng.normal(size=300)
    >>> b = a + 0.5 * rng.normal(size=300)
    >>> c = b**2 + 0.5 * rng.normal(size=300)
    >>> sorted(map(sorted, chow_liu_tree({"a": a, "b": b, "c": c}).edges))
    [['a', 'b'], ['b', 'c']]
    """
    table = read_columns(data)
    kernels = kernels_of(kernel, tuple(table))
    weights = row_weights(sample_weight, table)
    found, coordinates = {}, {}
    for name, values in table.items():
        one = read_variable(values, kernels[name], str(name))
        w = weights[one.rows]
        resolved = one.kernel.resolve(one.points, w)
        share = asarray(w / w.sum(), float_like(one.points))
        found[name] = one
        coordinates[name] = to_numpy(fit_space(resolved, None, one.points, share)[1])
    graph = nx.Graph()
    graph.add_nodes_from(table)
    for a, b in combinations(table, 2):
        both = rows_in_both(found[a], found[b])
        if len(both) < 2:
            continue
        A, B = (coordinates[name][np.searchsorted(found[name].rows, both)] for name in (a, b))
        graph.add_edge(a, b, weight=normalised_hsic(A, B, weights[both]))
    return nx.maximum_spanning_tree(graph)


def normalised_hsic(A: np.ndarray, B: np.ndarray, weights: np.ndarray) -> float:
    """`‖C_XY‖² / (‖C_XX‖ ‖C_YY‖)` of centred rows of coordinates; 0 for a constant."""
    w = weights / weights.sum()
    root = np.sqrt(w)[:, None]
    size = np.linalg.norm(A) * np.linalg.norm(B)
    A, B = root * (A - w @ A), root * (B - w @ B)
    if np.linalg.norm(A) * np.linalg.norm(B) <= ROUNDING * size:
        return 0.0
    scale = np.linalg.norm(A.T @ A) * np.linalg.norm(B.T @ B)
    return float(((A.T @ B) ** 2).sum() / scale)
