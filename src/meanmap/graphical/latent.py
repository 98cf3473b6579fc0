"""A hidden variable, learned from its neighbours.

Neighbours of a hidden node depend on each other only through it, so the operators between them have
the rank of its number of states (Song, Parikh and Xing 2011). The rows' coordinates in the leading
singular subspaces of these operators are clustered into as many groups as there are states. The
groups are then improved as a mixture whose components are products of density estimates (Benaglia,
Chauveau and Hunter 2009). The model is learned from every row once per state, weighted by the
probability of the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import networkx as nx
import numpy as np
from sklearn.cluster import KMeans

from meanmap import checks
from meanmap.arrays import in_kind, is_array, one_blas_thread, take, to_numpy
from meanmap.decoding.densities import density, scales
from meanmap.graphical.tables import Variable, in_one_library, read_variable
from meanmap.spaces import PivotedCholesky
from meanmap.spaces.space import fit_space

STATES = "states"  # the attribute of a hidden node: its number of states
ITERATIONS, STEADY = 100, 1e-4
RIDGE = 1e-2  # share of the trace that whitening adds
SMALL = 1e-300


def hidden_node(graph: nx.Graph, table: Mapping[Any, Any]) -> tuple[Any, int] | None:
    """The hidden node and its number of states, or None; all others need a column."""
    hidden = [v for v, about in graph.nodes(data=True) if STATES in about and v not in table]
    if len(hidden) > 1:
        raise ValueError(
            f"graph: expected one hidden node at most, got {', '.join(map(repr, hidden))}. Give "
            "the others a column."
        )
    absent = [name for name in graph.nodes if name not in table and name not in hidden]
    if absent:
        raise ValueError(
            f"data: there is no column for {', '.join(map(repr, absent))}; its columns are "
            f"{', '.join(map(repr, table))}. A hidden node needs its number of states: "
            f"graph.nodes[{absent[0]!r}]['states'] = 3."
        )
    if not hidden:
        return None
    name, remedy = hidden[0], "It is the number of states of the hidden node."
    return name, checks.whole(graph.nodes[name][STATES], f"{name!r}: {STATES}", 2, remedy)


def views_of(graph: nx.Graph, hidden: Any) -> list[Any]:
    """The neighbours of a hidden node."""
    views = list(nx.Graph(graph).neighbors(hidden))
    if len(views) < 2:
        raise ValueError(
            f"{hidden!r} is hidden and has {len(views)} neighbours. Two are needed to learn it, "
            "three to identify its states."
        )
    return views


def responsibilities(
    table: Mapping[Any, Any],
    kernels: Mapping[Any, Any],
    views: list[Any],
    states: int,
    weights: np.ndarray,
) -> np.ndarray:
    """The probability of each state in each row, (n, k); the rows' weights sum to one."""
    found = {name: read_variable(table[name], kernels.get(name), str(name)) for name in views}
    n = len(weights)
    if n < states:
        raise ValueError(f"data: {states} states need at least {states} rows, got {n}.")
    R = initial_states(found, weights, states)
    alike = {name: labels_of(one) for name, one in found.items() if not one.kernel.on_vectors}
    for _ in range(ITERATIONS):
        logs = np.log(np.maximum(weights @ R, SMALL)) * np.ones((n, 1))
        for name, one in found.items():
            counted = weights[one.rows, None] * R[one.rows]
            likely = components(one, counted, alike.get(name))
            logs[one.rows] += np.log(np.maximum(likely, SMALL))
        logs -= logs.max(axis=1, keepdims=True)
        new = np.exp(logs)
        new /= new.sum(axis=1, keepdims=True)
        change = float(weights @ np.abs(new - R).mean(axis=1))
        R = new
        if change < STEADY:
            break
    # the most frequent state first, whatever the numbers of the groups
    return R[:, np.argsort(-(weights @ R), kind="stable")]


def initial_states(found: Mapping[Any, Variable], weights: np.ndarray, states: int) -> np.ndarray:
    """Rows clustered by what the views have in common, each in one state."""
    n = len(weights)
    centred = {name: view_rows(one, n) for name, one in found.items()}
    parts = []
    for name, psi in centred.items():
        others = np.hstack([rows for other, rows in centred.items() if other != name])
        left, right = whitening(psi), whitening(others)
        U, s, _ = np.linalg.svd(left.T @ (psi.T @ others / n) @ right, full_matrices=False)
        rank = min(states - 1, len(s)) or 1
        parts.append(psi @ (left @ U[:, :rank]) * s[:rank])
    features = np.hstack(parts)
    groups = KMeans(states, n_init=10, random_state=0)
    with one_blas_thread():  # k-means would set a limit by itself
        labels = groups.fit_predict(features, sample_weight=n * weights)
    return np.eye(states)[labels]


def view_rows(one: Variable, n: int) -> np.ndarray:
    """Centred coordinates of a view, (n, r), zero where it is missing."""
    kernel = one.kernel.resolve(one.points)
    psi = to_numpy(fit_space(kernel, PivotedCholesky(1e-3, 100), one.points)[1])
    rows = np.zeros((n, psi.shape[1]))
    rows[one.rows] = psi - psi.mean(axis=0)
    return rows


def whitening(rows: np.ndarray) -> np.ndarray:
    """`(C + ridge)^(-1/2)` of rows of coordinates."""
    values, vectors = np.linalg.eigh(rows.T @ rows / len(rows))
    return vectors / np.sqrt(np.maximum(values, 0) + RIDGE * max(values.sum(), SMALL))


def labels_of(one: Variable) -> np.ndarray:
    """Coordinates of values other than numbers; those of labels are equal or orthogonal."""
    kernel = one.kernel.resolve(one.points)
    return to_numpy(fit_space(kernel, None, one.points)[1])


def components(one: Variable, R: np.ndarray, psi: np.ndarray | None) -> np.ndarray:
    """The density of each row's number in each state, leaving out the row itself.

    For labels, given by their coordinates, the probability.
    """
    columns = []
    for weights in R.T:
        total = max(float(weights.sum()), SMALL)
        p = weights / total
        if psi is None:
            h = scales(one.points, p)
            peak = 1 / np.prod([width * (2 * np.pi) ** 0.5 for width in h])
            at = to_numpy(density(one.points, p, one.points, h))
            values = (at - p * peak) / np.maximum(1 - p, 1e-12)
        else:
            values = psi @ (psi.T @ p)
        columns.append(values)
    return np.stack(columns, axis=1)


def fill_in_states(
    table: Mapping[Any, Any], name: Any, R: np.ndarray, weights: np.ndarray
) -> tuple[dict[Any, Any], np.ndarray]:
    """Every row once for each state of the hidden node, and the weights."""
    n, k = R.shape
    rows = np.repeat(np.arange(n), k)
    more = {column: take_cells(values, rows) for column, values in table.items()}
    some = next((values for values in table.values() if is_array(values)), None)
    more[name] = in_kind(np.tile(np.arange(k), n), some)
    more = in_one_library(more)
    return more, (weights[:, None] * R).ravel()


def take_cells(values: Any, rows: np.ndarray) -> Any:
    """Some cells of a column of any kind."""
    if hasattr(values, "iloc"):
        return values.iloc[rows]
    return take(values, rows) if is_array(values) else np.asarray(values)[rows]
