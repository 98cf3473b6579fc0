"""Learning a tree: a space for every node, two conditional embeddings for every edge."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meanmap.arrays import Points, to_numpy
from meanmap.conditional import ConditionalEmbedding
from meanmap.exceptions import SettingWarning, quiet
from meanmap.graphical.latent import hidden_node
from meanmap.graphical.layout import TreeLayout
from meanmap.graphical.messages import AnswerLearner, Network
from meanmap.graphical.nodes import (
    LEAST,
    MANY,
    Node,
    fit_edge,
    fit_node,
    reweight_node,
    weigh_pairs,
)
from meanmap.graphical.scales import edge_kernel, family_kernel, fine_targets, narrowest_kernel
from meanmap.graphical.tables import Variable, read_variable, rows_in_both, table_length
from meanmap.kernels import Kernel, TensorProduct

Edges = dict[tuple[Any, Any], ConditionalEmbedding]


@dataclass(frozen=True)
class Learner:
    """How the edges of a layout are learned."""

    layout: TreeLayout
    regularization: float | str
    basis: Any

    def learn(
        self, table: dict[Any, Any], kernels: Mapping[Any, Kernel | None], weights: np.ndarray
    ) -> tuple[Network, Edges]:
        """The network, and P(t | s) for both directions of every edge."""
        layout = self.layout
        found = self.learn_scales(self.variables(table, kernels, weights), weights)
        nodes: dict[Any, Node] = {}
        for name in (*layout.variables, *layout.families):
            nodes[name] = fit_node(found[name], weights[found[name].rows], self.basis)
        pairs: dict[Any, np.ndarray] = {}
        for a, b in layout.edges:
            pairs[a, b] = pairs[b, a] = edge_rows((a, b), found, table)
        edges: Edges = {}
        places: dict[tuple[Any, Any], np.ndarray] = {}
        moved: set[Any] = set()  # nodes whose distribution is not that of their rows

        def join(v: Any, before: Any) -> None:
            """The edge between a node and what it is given, both ways."""
            both = pairs[v, before]
            importance = weights[both]
            if before in moved:
                at = np.searchsorted(found[before].rows, both)
                importance = to_numpy(nodes[before].weights)[at]
            for t, s in ((v, before), (before, v)):
                points = found[s].at(both), found[t].at(both)
                nested = layout.is_nested(t, s)  # a parent is a function of all parents
                with quiet(SettingWarning) if nested else nullcontext():
                    edges[t, s] = self.edge(nodes[s], nodes[t], points, importance)
                rows = both[importance > 0]
                if len(rows) < len(found[t].rows):
                    places[t, s] = np.searchsorted(found[t].rows, rows)

        for v in layout.order():
            before = layout.given[v]
            if before is None:
                continue
            if before in layout.families:
                nodes[before] = self.independent(v, nodes, found, weights)
                moved.add(before)
                for parent in layout.parents(v):
                    join(parent, before)
            join(v, before)
            if before in moved:  # so is what follows from it: the sum rule
                m = edges[v, before].operator_.matrix @ nodes[before].mean
                nodes[v] = reweight_node(nodes[v], m, edges[before, v].regularization_)
                moved.add(v)
        operators = {pair: model.operator_ for pair, model in edges.items()}
        least = 0.0 if self.regularization == 0 else LEAST
        opened = {s: one.open for s, one in found.items() if one.open is not None}
        learner = AnswerLearner(opened, self.regularization, self.basis)
        return Network(layout, nodes, operators, least, learner, places), edges

    def variables(
        self, table: dict[Any, Any], kernels: Mapping[Any, Kernel | None], weights: np.ndarray
    ) -> dict[Any, Variable]:
        """The columns as points, and each family's as tuples of them."""
        found: dict[Any, Variable] = {}
        for name in self.layout.variables:
            one = read_variable(table[name], kernels[name], str(name))
            found[name] = replace(one, kernel=one.kernel.resolve(one.points, weights[one.rows]))
        for family, parents in self.layout.families.items():
            parts = [found[parent] for parent in parents]
            rows = parts[0].rows
            for part in parts[1:]:
                rows = np.intersect1d(rows, part.rows, assume_unique=True)
            if not len(rows):
                raise ValueError(
                    f"the parents of {family[1]!r}, {', '.join(map(repr, parents))}: no row has "
                    "values of all of them."
                )
            product = TensorProduct(*(part.kernel for part in parts))
            points = tuple(part.at(rows) for part in parts)
            found[family] = Variable(product, points, rows, family_kernel(parts))
        return found

    def learn_scales(self, found: dict[Any, Variable], weights: np.ndarray) -> dict[Any, Variable]:
        """The variables with kernels as fine as their edges ask for."""
        families = self.layout.families
        kernels: dict[Any, Kernel] = {}

        def ask(s: Any, t: Any, opened: Kernel) -> Kernel | None:
            both = rows_in_both(found[s], found[t])
            both = both[weights[both] > 0]
            w = weights[both] / weights[both].sum()
            targets = fine_targets(found[t], found[t].at(both), w)
            return edge_kernel(opened, found[s].at(both), targets, w)

        for s in (*families, *self.layout.variables):
            opened = found[s].open
            if opened is None:
                continue
            tried = [ask(s, t, opened) for t in self.layout.relatives(s)]
            for family, members in families.items():
                if s in members and family in kernels:
                    tried.append(kernels[family].parts[members.index(s)])
            learned = [kernel for kernel in tried if kernel is not None]
            # products need more detail; between parents and families it makes beliefs too narrow
            if learned and not families and len(found[s].rows) >= MANY:
                learned.append(found[s].kernel.rescaled(0.5))
            if learned:
                kernels[s] = narrowest_kernel(learned)
        return {s: replace(one, kernel=kernels.get(s, one.kernel)) for s, one in found.items()}

    def edge(
        self, s: Node, t: Node, points: tuple[Points, Points], weights: np.ndarray
    ) -> ConditionalEmbedding:
        """P(t | s) from paired points, as an estimator that can be asked by itself."""
        kernels, spaces = (s.space.kernel_, t.space.kernel_), (s.space, t.space)
        model = ConditionalEmbedding(*kernels, self.regularization, spaces, centered=False)
        return model.fit_checked(*weigh_pairs(points, weights))

    def independent(
        self,
        child: Any,
        nodes: dict[Any, Node],
        found: dict[Any, Variable],
        weights: np.ndarray,
    ) -> Node:
        """A family's node with weights under which its members are independent.

        Parents of one child are, before it is seen, and in a sample not quite. The product of their
        distributions is a prior on the family, known by its values at the rows, and becomes
        weights on them.
        """
        family = self.layout.given[child]
        node = nodes[family]
        both = rows_in_both(found[family], found[child])
        points = found[family].at(both), found[child].at(both)
        spaces = node.space, nodes[child].space
        lam = fit_edge(*spaces, self.regularization, points, weights[both]).regularization
        values = None
        for parent, part in zip(self.layout.parents(child), node.points, strict=True):
            one = nodes[parent]
            mean = one.embedding(one.weights)(part)
            values = mean if values is None else values * mean
        spectrum = node.spectrum
        m = spectrum.ridge(0.0) @ (node.coordinates.T @ (node.weights * values))
        return reweight_node(node, m, lam)


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


def edge_rows(
    edge: tuple[Any, Any], found: dict[Any, Variable], table: dict[Any, Any]
) -> np.ndarray:
    """The rows that an edge is learned from."""
    a, b = edge
    both = rows_in_both(found[a], found[b])
    if len(both) < 2:
        raise ValueError(
            f"edge {a!r} – {b!r}: expected at least two rows with both values, got {len(both)} of "
            f"{table_length(table)}. Fill in values, or leave the edge out."
        )
    return both
