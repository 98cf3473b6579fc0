"""A random field on a graph with loops: which nodes are alike, and which edges share a potential.

Edges with equal `template` attributes have one potential, so that their first ends are of one kind,
with one distribution, and their second ends too. What is learned is learned once for a kind or a
template, and all their messages move together.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import networkx as nx
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from meanmap import checks

Name = Hashable
NONE = -1  # where a node has fewer neighbours than others of its kind


@dataclass(frozen=True, eq=False)
class RandomField:
    """Nodes by kind, and each edge twice, as the links that messages travel along.

    A link is a template in one direction; link 2e + 1 is link 2e the other way.
    """

    nodes: tuple[Name, ...]
    kind: np.ndarray  # of each node
    edges: np.ndarray  # (number of edges, 2), from the first end to the second
    template: np.ndarray  # of each edge
    keys: tuple[tuple[str, tuple[Any, ...]], ...]  # of the templates: a name, or an edge's ends

    @cached_property
    def place(self) -> dict[Name, int]:
        """The number of each node."""
        return {name: i for i, name in enumerate(self.nodes)}

    @cached_property
    def names(self) -> list[str]:
        """The templates in words."""
        return [f"{word} {' – '.join(map(repr, which))}" for word, which in self.keys]

    @cached_property
    def members(self) -> list[np.ndarray]:
        """The nodes of each kind."""
        order = np.argsort(self.kind, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.kind))[:-1])

    @cached_property
    def local(self) -> np.ndarray:
        """The place of each node among those of its kind."""
        found = np.empty(len(self.nodes), dtype=int)
        for members in self.members:
            found[members] = np.arange(len(members))
        return found

    @cached_property
    def sources(self) -> np.ndarray:
        """Of every message, an edge's two one after the other."""
        return self.edges.ravel()

    @cached_property
    def targets(self) -> np.ndarray:
        return self.edges[:, ::-1].ravel()

    @cached_property
    def links(self) -> np.ndarray:
        """The link of every message."""
        return (2 * self.template[:, None] + np.arange(2)).ravel()

    def ends(self, link: int) -> tuple[int, int]:
        """The kinds that a link joins."""
        a, b = self.edges[self._first[link // 2]]
        t, s = (b, a) if link % 2 else (a, b)
        return int(self.kind[t]), int(self.kind[s])

    @cached_property
    def _first(self) -> np.ndarray:
        """An edge of every template."""
        return np.unique(self.template, return_index=True)[1]

    def called(self, kind: int) -> str:
        """A kind in words: the name of its first node."""
        members = self.members[kind]
        name = repr(self.nodes[members[0]])
        return name if len(members) == 1 else f"{name} and the {len(members) - 1} nodes like it"

    def levels(self, hidden: np.ndarray) -> list[np.ndarray]:
        """The hidden nodes by their distance from the first of their component."""
        among = hidden[self.edges].all(axis=1)
        neighbours: list[list[int]] = [[] for _ in self.nodes]
        for a, b in self.edges[among]:
            neighbours[a].append(int(b))
            neighbours[b].append(int(a))
        depth = np.full(len(self.nodes), NONE)
        for root in np.flatnonzero(hidden):
            if depth[root] != NONE:
                continue
            level, d = [int(root)], 0
            while level:
                depth[level] = d
                level = list({b for a in level for b in neighbours[a] if depth[b] == NONE})
                d += 1
        return [np.flatnonzero(depth == d) for d in range(depth.max() + 1)]


def field_of(graph: Any) -> RandomField:
    """The field of a networkx Graph, or of a DiGraph whose edges read as they point."""
    if not isinstance(graph, nx.Graph) or graph.is_multigraph():
        raise TypeError(
            f"graph: expected a networkx Graph or DiGraph, got {checks.describe(graph)}. Edges go "
            "as nx.Graph([('a', 'b'), ...]), those of a grid as nx.grid_2d_graph(rows, columns)."
        )
    if not graph.number_of_nodes():
        raise ValueError("graph has no nodes.")
    nodes = tuple(graph.nodes)
    place = {name: i for i, name in enumerate(nodes)}
    pairs, templates = [], []
    for a, b, template in graph.edges(data="template"):
        if a == b:
            raise ValueError(f"graph: node {a!r} is joined to itself. Remove the loop.")
        if graph.is_directed() and graph.has_edge(b, a):
            raise ValueError(f"graph: {a!r} and {b!r} are joined twice. Remove one of the edges.")
        hashable(template, f"edge {a!r} – {b!r}")
        ends = place[a], place[b]
        pairs.append(ends if graph.is_directed() else (min(ends), max(ends)))
        # an edge without a template is one of its own
        alone = "edge", (a, b)
        templates.append(alone if template is None else ("template", (template,)))
    known = {key: i for i, key in enumerate(dict.fromkeys(templates))}
    edges = np.array(pairs, dtype=int).reshape(-1, 2)
    template = np.array([known[key] for key in templates], dtype=int)
    return RandomField(nodes, kinds(graph, nodes, edges, template), edges, template, tuple(known))


def kinds(graph: Any, nodes: tuple[Name, ...], edges: np.ndarray, template: np.ndarray) -> Any:
    """Which nodes are alike: those at the same end of a template, or with one themselves."""
    N = len(nodes)
    given = [graph.nodes[name].get("template") for name in nodes]
    for name, one in zip(nodes, given, strict=True):
        hashable(one, f"node {name!r}")
    groups: dict[Any, int] = {name: i for i, name in enumerate(dict.fromkeys(given))}
    own = np.array([groups[name] for name in given])
    has = np.array([name is not None for name in given])
    # nodes are joined with a hub for each of what makes them alike
    hubs = [2 * template, 2 * template + 1, 2 * (template.max(initial=-1) + 1) + own[has]]
    ends = [edges[:, 0], edges[:, 1], np.flatnonzero(has)]
    left, right = np.concatenate(ends), N + np.concatenate(hubs)
    size = N + int(max(right.max(initial=N - 1) - N + 1, 0))
    joined = coo_array((np.ones(len(left)), (left, right)), shape=(size, size))
    found = connected_components(joined, directed=False)[1][:N]
    # numbered as they first appear
    first, inverse = np.unique(found, return_index=True, return_inverse=True)[1:]
    rank = np.empty(len(first), dtype=int)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def hashable(template: Any, where: str) -> None:
    """Refuse a template that cannot be told from others."""
    try:
        hash(template)
    except TypeError as error:
        raise TypeError(
            f"graph: {where} has the template {template!r:.40}; expected a name that can be "
            "looked up, such as text, a number or a tuple of them."
        ) from error
