"""Graphical models: enumeration, joint Gaussians, dense messages.

On graphs with loops: 000 eq. 27-30, message by message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from oracles.linalg import Array, sample_weights


def graphical_chain_weights(
    K_A: Array, K_B: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """``C_AC`` of the chain A - B - C (004, section 4.3): weights on pairs ``(a_i, c_j)``.

    ``C_AA C_B|A^T C_C|B^T``; for uniform weights
    ``K_A (K_A + n lam I)^-1 K_B (K_B + n lam I)^-1 / n``.
    """
    n = len(K_A)
    W = np.diag(sample_weights(w, n))
    first = np.linalg.solve(W @ K_A + lam * np.eye(n), W)  # C_B|A^T = Phi_A first Phi_B^T
    second = np.linalg.solve(W @ K_B + lam * np.eye(n), W)
    return W @ K_A @ first @ K_B @ second


def network_joint(
    data: dict[Any, Array],
    parents: dict[Any, tuple[Any, ...]],
    states: dict[Any, int],
    w: ArrayLike | None = None,
) -> Array:
    """``P(x_1, ..., x_p) = prod_i P(x_i | parents)`` with tables of frequencies, every cell.

    Columns are whole numbers 0, 1, ...; the axes are in the order of ``states``. A table's row for
    parents that no row of the data has is zero.
    """
    names = list(states)
    weights = sample_weights(w, len(data[names[0]]))
    joint = np.ones([states[name] for name in names])
    for name, before in parents.items():
        table = np.zeros([states[parent] for parent in before] + [states[name]])
        for i, weight in enumerate(weights):
            table[tuple(int(data[one][i]) for one in (*before, name))] += weight
        total = table.sum(axis=-1, keepdims=True)
        table = np.divide(table, total, out=np.zeros_like(table), where=total > 0)
        for cell in np.ndindex(*joint.shape):
            joint[cell] *= table[tuple(cell[names.index(one)] for one in (*before, name))]
    return joint


def network_marginal(
    joint: Array, names: Sequence[Any], query: Sequence[Any], evidence: dict[Any, int]
) -> Array:
    """``P(query | evidence)`` by summation of a joint table, axes in the order of the query."""
    names = list(names)
    table = np.zeros([joint.shape[names.index(name)] for name in query])
    for cell in np.ndindex(*joint.shape):
        if all(cell[names.index(name)] == value for name, value in evidence.items()):
            table[tuple(cell[names.index(name)] for name in query)] += joint[cell]
    return table / table.sum()


def linear_gaussian_network(slopes: Array, noise: ArrayLike) -> Array:
    """The covariance of ``x = B x + e``, ``e_i ~ N(0, noise_i^2)``: ``(I-B)^-1 D (I-B)^-T``.

    ``slopes[i, j]`` is how x_j enters x_i.
    """
    inverse = np.linalg.inv(np.eye(len(slopes)) - slopes)
    return inverse @ np.diag(np.asarray(noise, float) ** 2) @ inverse.T


def kernel_belief(
    edges: Sequence[tuple[Any, Any]],
    grams: dict[Any, Array],
    evidence: dict[Any, Array],
    query: Any,
    lam: float,
) -> Array:
    """A node's weights on the rows given evidence in a tree: kernel belief propagation, dense.

    Messages are those of Algorithm VI of 000, ``beta_ts = (K_s + n lam I)^-1 (prod K_t beta_ut)``,
    ``evidence[t]`` is ``k(rows, x_t)``. Evidence enters the product as the function
    ``(C_tt + lam I)^-1 phi(x_t)`` at the rows, ``n (K_t + n lam I)^-1 k_t``: a delta over the
    density. A product of several factors, and only that, has their values (of mean 1) cut at 1e-3.

    Where evidence is beyond one neighbour t alone, the belief is that of t pushed forward,
    ``(K_t + n lam I)^-1 K_t alpha_t`` (the sum rule); for evidence ``(K_t + n lam I)^-1 k_t``.
    """
    n = len(next(iter(grams.values())))
    neighbours: dict[Any, list[Any]] = {name: [] for name in grams}
    for a, b in edges:
        neighbours[a].append(b)
        neighbours[b].append(a)

    def ridge(node: Any, values: Array) -> Array:
        return np.linalg.solve(grams[node] + n * lam * np.eye(n), values)

    def sources(t: Any, s: Any) -> list[Any]:
        """Neighbours of t but s with evidence there or beyond."""
        others = [u for u in neighbours[t] if u != s]
        return [u for u in others if u in evidence or sources(u, t)]

    def product(t: Any, s: Any) -> Array:
        values = [grams[t] @ message(u, t) for u in sources(t, s)]
        return values[0] if len(values) == 1 else np.prod(np.maximum(values, 1e-3), axis=0)

    def message(t: Any, s: Any) -> Array:
        values = n * ridge(t, evidence[t]) if t in evidence else product(t, s)
        beta = ridge(s, values)
        return beta / (grams[s] @ beta).mean()

    def belief(q: Any, s: Any) -> Array:
        beyond = sources(q, s)
        if not beyond:
            return np.full(n, 1 / n)
        if len(beyond) > 1:
            weights = product(q, s)
            return weights / weights.sum()
        t = beyond[0]
        return ridge(t, evidence[t] if t in evidence else grams[t] @ belief(t, q))

    return belief(query, None)


Messages = dict[tuple[Any, Any], Array]


def _neighbours(pairs: Sequence[tuple[Any, Any]], names: Sequence[Any]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {name: [] for name in names}
    for a, b in pairs:
        found[a].append(b)
        found[b].append(a)
    return found


def loopy_kernel_messages(
    edges: Sequence[tuple[Any, Any]],
    grams: dict[Any, Array],
    observed: dict[Any, Array],
    lam: float,
    iterations: int,
    damping: float = 0.0,
    likelihoods: dict[Any, Array] | None = None,
    w: ArrayLike | None = None,
) -> tuple[Messages, dict[Any, Array]]:
    """Algorithm VI of 000 as it stands: messages (t, s) at the rows, and beliefs as weights.

    ``beta_ts = (K_s + n lam I)^-1 prod_u K_t beta_ut`` (eq. 30), all messages at once, each made to
    have (weighted) mean one over the rows, its values cut at 1e-3 where a product is formed. The
    first messages are those of a product of nothing. ``observed[t]`` is ``k(rows, x_t)``: such a
    node says ``(K_s + n lam I)^-1 n (K_t + n lam I)^-1 k_t`` and hears nothing.
    ``likelihoods[t]`` are values at the rows that enter every product at t. With weights ``n``
    is ``diag(1/w)``. Damping is a share of the old message that stays.
    """
    names = list(grams)
    n = len(grams[names[0]])
    w = sample_weights(w, n)
    neighbours = _neighbours(edges, names)
    likelihoods = likelihoods or {}

    def ridge(s: Any, values: Array) -> Array:
        beta = np.linalg.solve(grams[s] + lam * np.diag(1 / w), values)
        m = grams[s] @ beta
        return m / (w @ m)

    def product(state: Messages, t: Any, s: Any) -> Array:
        values = np.array(likelihoods.get(t, np.ones(n)), float)
        for u in neighbours[t]:
            if u != s:
                values = values * np.maximum(state[u, t], 1e-3)
        return values

    state: Messages = {}
    for t in names:
        for s in neighbours[t]:
            if t in observed:
                delta = np.linalg.solve(grams[t] @ np.diag(w) + lam * np.eye(n), observed[t])
                state[t, s] = ridge(s, delta)
            else:
                state[t, s] = ridge(s, np.ones(n))
    for _ in range(iterations):
        fresh = {}
        for t, s in state:
            if t in observed:
                fresh[t, s] = state[t, s]
            else:
                sent = ridge(s, product(state, t, s))
                fresh[t, s] = (1 - damping) * sent + damping * state[t, s]
        state = fresh
    beliefs = {}
    for s in names:
        if s not in observed:
            weights = w * product(state, s, None)
            beliefs[s] = weights / weights.sum()
    return state, beliefs


def pair_frequencies(
    a: ArrayLike, b: ArrayLike, states: tuple[int, int], w: ArrayLike | None = None
) -> Array:
    """``P(x_a, x_b)`` of two columns of whole numbers, rows with a negative one left out."""
    a, b = np.asarray(a), np.asarray(b)
    table = np.zeros(states)
    for i, weight in enumerate(sample_weights(w, len(a))):
        if a[i] >= 0 and b[i] >= 0:
            table[int(a[i]), int(b[i])] += weight
    return table / table.sum()


def loopy_discrete_messages(
    tables: dict[tuple[Any, Any], Array],
    marginals: dict[Any, Array],
    observed: dict[Any, int],
    iterations: int,
    damping: float = 0.0,
    likelihoods: dict[Any, Array] | None = None,
    power: float = 1.0,
) -> tuple[Messages, dict[Any, Array]]:
    """Loopy belief propagation on tables ``P(x_a, x_b)`` of the edges, all messages at once.

    ``m_ts(x_s) = sum_t P(x_t | x_s) f(x_t) prod_u m_ut(x_t)`` (eq. 27 with the edge potential
    ``P(x_s, x_t)/(P(x_s) P(x_t))``), of mean one under the marginal of s; observed
    nodes say ``P(x_t, x_s)/(P(x_t) P(x_s))``. A belief is ``P(x_s) f(x_s) prod_u m_us(x_s)``.

    With a power ``rho`` it is the tree-reweighted kind (Wainwright, Jaakkola and Willsky 2005, eq.
    39) with edge potentials ``(P(x_s, x_t)/(P(x_s) P(x_t)))^rho``: messages between hidden nodes
    have that power, and the one that came from s has ``rho - 1``.
    """
    neighbours = _neighbours(list(tables), list(marginals))
    likelihoods = likelihoods or {}

    def joint(t: Any, s: Any) -> Array:
        return tables[t, s] if (t, s) in tables else tables[s, t].T

    def send(t: Any, s: Any, values: Array) -> Array:
        P = joint(t, s)
        m = np.zeros(P.shape[1])
        for x_s in range(P.shape[1]):
            for x_t in range(P.shape[0]):
                m[x_s] += P[x_t, x_s] / P[:, x_s].sum() * values[x_t]
        return m / (marginals[s] @ m)

    def product(state: Messages, t: Any, s: Any) -> Array:
        values = np.array(likelihoods.get(t, np.ones(len(marginals[t]))), float)
        for u in neighbours[t]:
            if u in observed:
                values = values * state[u, t]
            elif u != s:
                values = values * state[u, t] ** power
            else:
                values = values * state[u, t] ** (power - 1)
        return values

    state: Messages = {}
    for t in marginals:
        for s in neighbours[t]:
            if t in observed:
                delta = np.zeros(len(marginals[t]))
                delta[observed[t]] = 1 / joint(t, s).sum(axis=1)[observed[t]]
                state[t, s] = send(t, s, delta)
            else:
                state[t, s] = np.ones(len(marginals[s]))
    for _ in range(iterations):
        fresh = {}
        for t, s in state:
            if t in observed:
                fresh[t, s] = state[t, s]
            else:
                sent = send(t, s, product(state, t, s))
                fresh[t, s] = (1 - damping) * sent + damping * state[t, s]
        state = fresh
    beliefs = {}
    for s in marginals:
        if s not in observed:
            belief = marginals[s] * product(state, s, None)
            beliefs[s] = belief / belief.sum()
    return state, beliefs


def pairwise_joint(tables: dict[tuple[Any, Any], Array], marginals: dict[Any, Array]) -> Array:
    """``prod_s P(x_s) prod_st P(x_s, x_t)/(P(x_s) P(x_t))``, every cell: on a tree the joint."""
    names = list(marginals)
    joint = np.ones([len(marginals[name]) for name in names])
    for cell in np.ndindex(*joint.shape):
        for name, value in zip(names, cell, strict=True):
            joint[cell] *= marginals[name][value]
        for (a, b), table in tables.items():
            x, y = cell[names.index(a)], cell[names.index(b)]
            joint[cell] *= table[x, y] / (table.sum(axis=1)[x] * table.sum(axis=0)[y])
    return joint / joint.sum()
