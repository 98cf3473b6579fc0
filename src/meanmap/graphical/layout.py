"""The tree along which messages are sent.

An undirected tree, and a directed tree whose nodes have one parent each, is used as it is. If a
node has several parents, a family is put between them: a node for all parents together, with the
product of their kernels. A polytree becomes a tree of variables and families.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import networkx as nx

from meanmap import checks

Name = Hashable


def family_of(child: Name) -> tuple[str, Name]:
    """The name of the family of a node's parents."""
    return "parents of", child


@dataclass(frozen=True, eq=False)
class TreeLayout:
    """Nodes, their neighbours, and a parent (or family) for each node but the roots."""

    variables: tuple[Name, ...]
    families: dict[Any, tuple[Name, ...]]  # the members of each
    neighbours: dict[Any, tuple[Any, ...]]
    given: dict[Name, Any]  # the parent of a variable: a variable, a family or None

    @property
    def edges(self) -> list[tuple[Any, Any]]:
        seen: set[Any] = set()
        found = []
        for a, others in self.neighbours.items():
            seen.add(a)
            found += [(a, b) for b in others if b not in seen]
        return found

    def order(self) -> list[Name]:
        """The variables, each after its parents."""
        done: dict[Name, None] = {}
        waiting = deque(self.variables)
        while waiting:
            node = waiting.popleft()
            if all(parent in done for parent in self.parents(node)):
                done[node] = None
            else:
                waiting.append(node)
        return list(done)

    def parents(self, node: Name) -> tuple[Name, ...]:
        """The parents of a variable."""
        before = self.given[node]
        return self.families.get(before, (() if before is None else (before,)))

    def is_nested(self, a: Any, b: Any) -> bool:
        """Whether one of two nodes is a member of the other, a family."""
        return a in self.families.get(b, ()) or b in self.families.get(a, ())

    def relatives(self, node: Any) -> tuple[Any, ...]:
        """The nodes that the scales of a node's kernel are learned from.

        Its neighbours; for a family and its members, the child.
        """
        if node in self.families:
            return (node[1],)
        return tuple(other for other in self.neighbours[node] if not self.is_nested(node, other))

    def outwards(self, first: Iterable[Name]) -> dict[Name, tuple[Name, ...]]:
        """The variables in the order of drawing, each with those that it is drawn given.

        From the first ones to their neighbours, and so on; if a node has several parents, from
        parents to children.
        """
        if self.families:
            return {name: self.parents(name) for name in self.order()}
        found: dict[Name, tuple[Name, ...]] = {}
        for root in (*first, *self.variables):
            for here, before in [] if root in found else self.towards(root)[::-1]:
                found[here] = () if before is None else (before,)
        return found

    def towards(self, root: Any) -> list[tuple[Any, Any | None]]:
        """Every node with its neighbour on the way to the root, the farthest first."""
        found: list[tuple[Any, Any | None]] = [(root, None)]
        for node, before in found:  # the list grows while it is read
            found += [(other, node) for other in self.neighbours[node] if other != before]
        return found[::-1]


def check_graph(graph: Any, accepted: bool, remedy: str) -> None:
    """Refuse other objects than graphs, graphs without nodes, and self-loops."""
    if not accepted:
        raise TypeError(
            f"graph: expected a networkx Graph or DiGraph, got {checks.describe(graph)}. Write "
            f"edges as nx.Graph([('a', 'b'), ...]); {remedy}"
        )
    if not graph.number_of_nodes():
        raise ValueError("graph has no nodes.")
    for a, _ in nx.selfloop_edges(graph):
        raise ValueError(f"graph: node {a!r} is joined to itself. Remove the loop.")


def layout_of(graph: Any) -> TreeLayout:
    """The layout of a networkx Graph or DiGraph without cycles."""
    check_graph(graph, isinstance(graph, nx.Graph), "None learns a tree from the data.")
    plain = nx.Graph(graph.to_undirected() if graph.is_directed() else graph)
    if graph.is_directed() and not nx.is_directed_acyclic_graph(graph):
        a, b, *_ = nx.find_cycle(graph)[0]
        raise ValueError(
            f"graph: expected a tree, found a cycle through {a!r} and {b!r}. Remove an edge."
        )
    if not nx.is_forest(plain):
        cycle = nx.find_cycle(plain)
        around = " – ".join(repr(edge[0]) for edge in cycle)
        raise ValueError(
            f"graph: expected a tree, found the cycle {around} – {cycle[0][0]!r}. Remove an edge."
        )
    variables = tuple(graph.nodes)
    if graph.is_directed():
        return directed_layout(variables, {v: tuple(graph.predecessors(v)) for v in variables})
    return undirected_layout(variables, plain)


def undirected_layout(variables: tuple[Name, ...], graph: Any) -> TreeLayout:
    """The parent of a node is its neighbour towards the first node of its component."""
    given: dict[Name, Any] = {}
    for node in variables:
        if node not in given:
            given[node] = None
            given.update(nx.bfs_predecessors(graph, node))
    neighbours = {node: tuple(graph.neighbors(node)) for node in variables}
    return TreeLayout(variables, {}, neighbours, given)


def directed_layout(
    variables: tuple[Name, ...], parents: dict[Name, tuple[Name, ...]]
) -> TreeLayout:
    """The parent of a node with several parents is their family."""
    given: dict[Name, Any] = {}
    families: dict[Any, tuple[Name, ...]] = {}
    joined: dict[Any, list[Any]] = {node: [] for node in variables}

    def join(pairs: Iterable[tuple[Any, Any]]) -> None:
        for a, b in pairs:
            joined.setdefault(a, []).append(b)
            joined.setdefault(b, []).append(a)

    for node in variables:
        before = parents[node]
        if len(before) > 1:
            family = family_of(node)
            families[family] = before
            given[node] = family
            join([(family, node), *((family, parent) for parent in before)])
        else:
            given[node] = before[0] if before else None
            join((parent, node) for parent in before)
    neighbours = {node: tuple(others) for node, others in joined.items()}
    return TreeLayout(variables, families, neighbours, given)
