"""A tree for variables that nobody has a graph of."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import networkx as nx
import numpy as np

from meanmap import checks
from meanmap.arrays import float_like, to_numpy
from meanmap.graphical.tables import columns, rows_in_both, variable
from meanmap.spaces import Space


def chow_liu_tree(data: Any, kernel: Any = None) -> nx.Graph:
    """The tree whose edges have the most dependence, by normalised HSIC.

    Chow and Liu's (1968) maximum spanning tree with the normalised Hilbert-Schmidt criterion
    `‖C_XY‖² / (‖C_XX‖ ‖C_YY‖)` of centred operators in the place of mutual information: for
    variables of any kind. Missing values leave a row out of the pairs that it is missing from.

    Parameters
    ----------
    data : DataFrame, dict of arrays, or array with named fields
    kernel : Kernel, dict from column to Kernel, or None

    Returns
    -------
    networkx.Graph
        With the criterion as the attribute `weight` of each edge.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import chow_liu_tree
    >>> rng = np.random.default_rng(0)
    >>> a = rng.normal(size=300)
    >>> b = a + 0.5 * rng.normal(size=300)
    >>> c = b**2 + 0.5 * rng.normal(size=300)
    >>> sorted(map(sorted, chow_liu_tree({"a": a, "b": b, "c": c}).edges))
    [['a', 'b'], ['b', 'c']]
    """
    table = columns(data)
    kernels = kernel if isinstance(kernel, Mapping) else dict.fromkeys(table, kernel)
    found, coordinates = {}, {}
    for name, values in table.items():
        one = variable(values, kernels.get(name), str(name))
        resolved = one.kernel.resolve(one.points)
        weights = checks.weights(None, one.points, float_like(one.points))
        found[name] = one
        coordinates[name] = to_numpy(Space(resolved)._place(resolved, one.points, weights))
    graph = nx.Graph()
    graph.add_nodes_from(table)
    for a, b in combinations(table, 2):
        both = rows_in_both(found[a], found[b])
        if len(both) < 2:
            continue
        rows = [coordinates[name][np.searchsorted(found[name].rows, both)] for name in (a, b)]
        graph.add_edge(a, b, weight=normalised_hsic(*rows))
    return nx.maximum_spanning_tree(graph)


def normalised_hsic(A: np.ndarray, B: np.ndarray) -> float:
    """`‖C_XY‖² / (‖C_XX‖ ‖C_YY‖)` of centred rows of coordinates; 0 for a constant."""
    A, B = A - A.mean(axis=0), B - B.mean(axis=0)
    scale = np.linalg.norm(A.T @ A) * np.linalg.norm(B.T @ B)
    return float((A.T @ B).ravel() @ (A.T @ B).ravel() / scale) if scale > 0 else 0.0
