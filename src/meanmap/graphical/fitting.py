"""Learning a tree: a space for every node, two conditional embeddings for every edge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Points, float_like, to_numpy
from meanmap.conditional import ConditionalEmbedding
from meanmap.graphical.latent import hidden_node
from meanmap.graphical.layout import Family, Layout
from meanmap.graphical.messages import Network, Node
from meanmap.graphical.tables import Variable, rows_in_both, table_length, variable
from meanmap.kernels import Kernel, TensorProduct
from meanmap.linalg import Spectrum
from meanmap.rules import positive_part
from meanmap.spaces import Space

Edges = dict[tuple[Any, Any], ConditionalEmbedding]


@dataclass(frozen=True)
class Learner:
    """How the edges of a layout are learned."""

    layout: Layout
    regularization: float | str
    basis: Any

    def learn(
        self, table: dict[Any, Any], kernels: Mapping[Any, Kernel | None], weights: np.ndarray
    ) -> tuple[Network, Edges]:
        """The network, and P(t | s) for both directions of every edge."""
        layout = self.layout
        found = self.variables(table, kernels)
        nodes: dict[Any, Node] = {}
        for name in (*layout.variables, *layout.families):
            nodes[name] = placed(found[name], weights[found[name].rows], self.basis)
        pairs = {edge: rows_of(edge, found, table) for edge in layout.edges}
        for family in layout.families:
            nodes[family] = self.independent(family, nodes, found, weights)
        edges: Edges = {}
        for (a, b), both in pairs.items():
            importance = weights[both]
            for family in (a, b):
                if isinstance(family, Family):
                    at = np.searchsorted(found[family].rows, both)
                    importance = to_numpy(nodes[family].weights)[at]
            for t, s in ((a, b), (b, a)):
                points = found[s].at(both), found[t].at(both)
                edges[t, s] = self.edge(nodes[s], nodes[t], points, importance)
        operators = {pair: model.operator_ for pair, model in edges.items()}
        return Network(layout, nodes, operators), edges

    def variables(
        self, table: dict[Any, Any], kernels: Mapping[Any, Kernel | None]
    ) -> dict[Any, Variable]:
        """The columns as points, and each family's as tuples of them."""
        found: dict[Any, Variable] = {}
        for name in self.layout.variables:
            one = variable(table[name], kernels[name], str(name))
            found[name] = Variable(one.kernel.resolve(one.points), one.points, one.rows)
        for family in self.layout.families:
            parts = [found[parent] for parent in family.parents]
            rows = parts[0].rows
            for part in parts[1:]:
                rows = np.intersect1d(rows, part.rows, assume_unique=True)
            if not len(rows):
                raise ValueError(f"{family!r}: no row has values of all of them.")
            kernel = TensorProduct(*(part.kernel for part in parts))
            found[family] = Variable(kernel, tuple(part.at(rows) for part in parts), rows)
        return found

    def edge(
        self, s: Node, t: Node, points: tuple[Points, Points], weights: np.ndarray
    ) -> ConditionalEmbedding:
        """P(t | s) from paired points."""
        x, y = s.space, t.space
        model = ConditionalEmbedding(x.kernel_, y.kernel_, self.regularization, (x, y))
        return model.fit(*points, weights)

    def independent(
        self,
        family: Family,
        nodes: dict[Any, Node],
        found: dict[Any, Variable],
        weights: np.ndarray,
    ) -> Node:
        """A family's node with weights under which its members are independent.

        Parents of one child are, before it is seen, and in a sample not quite. The product of their
        distributions is a prior on the family, and becomes weights on the rows as in the sum rule,
        `u = w ∘ Ψ (C + λI)⁻¹ m`, their negative part cut; m is known by its values at the rows.
        """
        node = nodes[family]
        both = rows_in_both(found[family], found[family.child])
        points = found[family].at(both), found[family.child].at(both)
        lam = self.edge(node, nodes[family.child], points, weights[both]).regularization_
        values = None
        for parent, part in zip(family.parents, node.points, strict=True):
            one = nodes[parent]
            mean = one.embedding(one.weights)(part)
            values = mean if values is None else values * mean
        psi, w = node.coordinates, node.weights
        spectrum = Spectrum.of(psi.T @ (w[:, None] * psi))
        least = spectrum.sufficient(0.0)
        m = spectrum.inverse(least) @ (psi.T @ (w * values))
        u = w * (psi @ (spectrum.inverse(spectrum.sufficient(lam)) @ m))
        return replace(node, weights=positive_part(u))


def hidden_among(graph: Any, table: dict[Any, Any]) -> tuple[Any, int] | None:
    """The hidden node, if there is one, with what it is learned from at hand."""
    hidden = hidden_node(graph, table)
    known = {*table, *([hidden[0]] if hidden else [])}
    absent = [name for name in graph.nodes if name not in known]
    if absent:
        raise ValueError(
            f"data: there is no column for {', '.join(map(repr, absent))}; its columns are "
            f"{', '.join(map(repr, table))}. A hidden node says how many states it has: "
            f"graph.nodes[{absent[0]!r}]['states'] = 3."
        )
    return hidden


def placed(found: Variable, weights: np.ndarray, basis: Any) -> Node:
    """A variable with coordinates; its rows' weights are made to sum to one."""
    w = checks.sample_weights(weights, found.points, float_like(found.points))
    kernel = found.kernel.resolve(found.points)
    space = Space(kernel, basis)
    coordinates = space._place(kernel, found.points, w)
    return Node(space, found.points, coordinates, w)


def rows_of(edge: tuple[Any, Any], found: dict[Any, Variable], table: dict[Any, Any]) -> np.ndarray:
    """The rows that an edge is learned from."""
    a, b = edge
    both = rows_in_both(found[a], found[b])
    if len(both) < 2:
        raise ValueError(
            f"edge {a!r} – {b!r}: expected at least two rows with both values, got {len(both)} of "
            f"{table_length(table)}. Fill in values, or leave the edge out."
        )
    return both


def kernels_of(given: Any, names: tuple[Any, ...]) -> dict[Any, Kernel | None]:
    """A kernel for each node, None for the default."""
    if isinstance(given, Mapping):
        unknown = [name for name in given if name not in names]
        if unknown:
            raise ValueError(
                f"kernel: there is no node {', '.join(map(repr, unknown))}; the nodes are "
                f"{', '.join(map(repr, names))}."
            )
        kernels = {name: given.get(name) for name in names}
    else:
        kernels = dict.fromkeys(names, given)
    for name, kernel in kernels.items():
        if kernel is not None and not isinstance(kernel, Kernel):
            raise TypeError(f"kernel: expected a Kernel for {name!r}, got {kernel!r:.60}.")
    return kernels
