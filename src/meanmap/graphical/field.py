"""A random field on a graph with loops: kinds of nodes, and templates of edges.

Edges with equal `template` attributes share a potential. Their first ends are then of one kind,
with one distribution, and so are their second ends. Each kind and each template is learned once,
and its messages are sent together. A wiring says which node sends to which: slots of nodes, and
routes between them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
from networkx.utils import UnionFind

from meanmap.arrays import Array, device, namespace
from meanmap.graphical.layout import check_graph

Name = Hashable
NONE = -1  # marks an empty slot: a node with fewer neighbours than others of its kind


@dataclass(frozen=True, eq=False)
class RandomField:
    """Nodes by kind, and each edge twice, once for each direction of messages.

    A link is a template in one direction; link 2e + 1 is the reverse of link 2e.
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
        """The templates as text."""
        return [f"{word} {' – '.join(map(repr, which))}" for word, which in self.keys]

    @cached_property
    def members(self) -> list[np.ndarray]:
        """The nodes of each kind."""
        order = np.argsort(self.kind, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.kind))[:-1])

    @cached_property
    def local(self) -> np.ndarray:
        """The position of each node among those of its kind."""
        return self.places(self.members)

    def places(self, groups: list[np.ndarray]) -> np.ndarray:
        """The position of each node in its group; NONE if it is in none."""
        found = np.full(len(self.nodes), NONE)
        for nodes in groups:
            found[nodes] = np.arange(len(nodes))
        return found

    @cached_property
    def sources(self) -> np.ndarray:
        """The sender of every message; the two messages of an edge are neighbours."""
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

    def wiring(self, hidden: np.ndarray) -> Wiring:
        """The wiring among hidden nodes; the last one is kept for repeated runs."""
        key = hidden.tobytes()
        if key not in self._wirings:
            self._wirings.clear()
            self._wirings[key] = Wiring.of(self, hidden)
        return self._wirings[key]

    @cached_property
    def _wirings(self) -> dict[bytes, Wiring]:
        return {}

    def called(self, kind: int) -> str:
        """A kind as text: the name of its first node."""
        members = self.members[kind]
        name = repr(self.nodes[members[0]])
        return name if len(members) == 1 else f"{name} and the {len(members) - 1} nodes like it"

    def levels(self, hidden: np.ndarray) -> list[np.ndarray]:
        """The hidden nodes by their distance from the first of their component."""
        graph = nx.Graph()
        graph.add_nodes_from(np.flatnonzero(hidden).tolist())
        graph.add_edges_from(self.edges[hidden[self.edges].all(axis=1)].tolist())
        first = [min(part) for part in nx.connected_components(graph)]
        return [np.sort(level) for level in nx.bfs_layers(graph, first)]


def field_of(graph: Any) -> RandomField:
    """The field of a networkx Graph or DiGraph."""
    simple = isinstance(graph, nx.Graph) and not graph.is_multigraph()
    check_graph(graph, simple, "a grid is nx.grid_2d_graph(rows, columns).")
    nodes = tuple(graph.nodes)
    place = {name: i for i, name in enumerate(nodes)}
    pairs, templates = [], []
    for a, b, template in graph.edges(data="template"):
        if graph.is_directed() and graph.has_edge(b, a):
            raise ValueError(f"graph: {a!r} and {b!r} are joined twice. Remove one of the edges.")
        hashable(template, f"edge {a!r} – {b!r}")
        ends = place[a], place[b]
        pairs.append(ends if graph.is_directed() else (min(ends), max(ends)))
        # an edge without a template has one of its own
        alone = "edge", (a, b)
        templates.append(alone if template is None else ("template", (template,)))
    known = {key: i for i, key in enumerate(dict.fromkeys(templates))}
    edges = np.array(pairs, dtype=int).reshape(-1, 2)
    template = np.array([known[key] for key in templates], dtype=int)
    return RandomField(nodes, kinds(graph, nodes, edges, template), edges, template, tuple(known))


def kinds(graph: Any, nodes: tuple[Name, ...], edges: np.ndarray, template: np.ndarray) -> Any:
    """The kind of each node: shared by nodes at the same end of a template, or of one template."""
    groups = UnionFind(range(len(nodes)))
    for (a, b), one in zip(edges.tolist(), template.tolist(), strict=True):
        groups.union(a, ("first", one))
        groups.union(b, ("second", one))
    for v, name in enumerate(nodes):
        own = graph.nodes[name].get("template")
        hashable(own, f"node {name!r}")
        if own is not None:
            groups.union(v, ("node", own))
    found = [groups[v] for v in range(len(nodes))]
    # numbered in the order of their first nodes
    number = {group: i for i, group in enumerate(dict.fromkeys(found))}
    return np.array([number[group] for group in found])


def hashable(template: Any, where: str) -> None:
    """Refuse a template that is not hashable."""
    try:
        hash(template)
    except TypeError as error:
        raise TypeError(
            f"graph: {where} has the template {template!r:.40}; expected a hashable "
            "name, such as text, a number or a tuple of them."
        ) from error


# --- which node sends to which ------------------------------------------------------------------


class Route(NamedTuple):
    """Some nodes of a kind that send along one link, and the slots that receive it."""

    link: Any
    nodes: Any  # a slice or an array; None for all
    kind: Any  # of the receiving nodes
    at: Any  # the receiving nodes and their slots; the sender in a tree


@dataclass(frozen=True, eq=False)
class Wiring:
    """Which hidden node sends to which: for each kind tables (nodes, slots)."""

    hidden: list[np.ndarray]  # the nodes of each kind, as numbers of the field
    link: list[np.ndarray]  # of the message that a slot sends; NONE if there is no neighbour
    to: list[np.ndarray]  # (nodes, slots, 3): the receiving kind, node of it, and slot
    edge: list[np.ndarray]  # the edge of the field that a slot is

    @classmethod
    def of(cls, field: RandomField, hidden: np.ndarray) -> Wiring:
        """The wiring of a field whose other nodes are observed."""
        inside = np.repeat(hidden[field.edges].all(axis=1), 2)
        nodes = [members[hidden[members]] for members in field.members]
        local = field.places(nodes)
        message = np.flatnonzero(inside)
        of_kind = [message[field.kind[field.targets[message]] == k] for k in range(len(nodes))]
        slot = np.full(len(field.targets), NONE)
        for mine in of_kind:
            slot[mine] = slots_of(field.targets[mine], field.links[mine ^ 1])
        link, to, edge = [], [], []
        for members, mine in zip(nodes, of_kind, strict=True):
            shape = len(members), int(slot[mine].max(initial=NONE)) + 1
            out = np.full(shape, NONE)
            where = np.full((*shape, 3), NONE)
            at = local[field.targets[mine]], slot[mine]
            back = mine ^ 1  # the message the other way
            out[at] = field.links[back]
            other = field.targets[back]
            where[at] = np.stack([field.kind[other], local[other], slot[back]], axis=-1)
            link.append(out)
            to.append(where)
            edge.append(np.full(shape, NONE))
            edge[-1][at] = mine // 2
        return cls(nodes, link, to, edge)

    def routes(self, kind: int, nodes: Any, like: Array) -> tuple[list[list[Route]], Any]:
        """For every slot of some nodes of a kind where it leads; and which slots lead nowhere.

        For a slice of nodes, which is kept, indices are arrays on the device of `like`.
        """
        key = None
        if isinstance(nodes, slice):
            key = kind, nodes.start, nodes.stop, type(like), device(like)
        if key in self._routes:
            return self._routes[key]
        links, to = self.link[kind][nodes], self.to[kind][nodes]
        like = links if key is None else like
        found: list[list[Route]] = []
        for slot in range(links.shape[1]):
            column = links[:, slot]
            found.append([])
            for link in np.unique(column[column != NONE]):
                at = np.flatnonzero(column == link)
                s, node, there = to[at, slot].T
                one = (there == there[0]).all()
                into = (span(node), int(there[0])) if one else (node, there)
                placed = index_beside((span(at), into), like)
                found[-1].append(Route(int(link), placed[0], int(s[0]), placed[1]))
        empty = np.nonzero(links.T == NONE)
        answer = found, (index_beside(empty, like) if len(empty[0]) else None)
        if key is not None:
            self._routes[key] = answer
        return answer

    @cached_property
    def _routes(self) -> dict[Any, tuple[list[list[Route]], Any]]:
        return {}

    def appearances(self, field: RandomField) -> list[np.ndarray]:
        """How often an edge between hidden nodes is in a spanning tree, as tables like `link`.

        The average over the edges of a biconnected component: 1 for a bridge, about a half in a
        grid.
        """
        if self._appearances:
            return self._appearances
        edges = np.unique(np.concatenate([e[e != NONE] for e in self.edge]))
        of = np.ones(len(field.edges))
        number = {(int(a), int(b)): e for e, (a, b) in zip(edges, field.edges[edges], strict=True)}
        graph = nx.Graph(list(number))
        for part in nx.biconnected_component_edges(graph):
            nodes = {v for pair in part for v in pair}
            for a, b in part:
                of[number.get((a, b), number.get((b, a)))] = (len(nodes) - 1) / len(part)
        self._appearances.extend(np.where(e != NONE, of[e], 1.0) for e in self.edge)
        return self._appearances

    @cached_property
    def _appearances(self) -> list[np.ndarray]:
        return []

    @cached_property
    def messages(self) -> np.ndarray:
        """Every message as (kind, node, slot) of its receiver."""
        parts = [
            np.column_stack([np.full(len(i), kind), i, j])
            for kind, (i, j) in enumerate(np.nonzero(link != NONE) for link in self.link)
        ]
        return np.concatenate(parts) if parts else np.empty((0, 3), dtype=int)


def slots_of(targets: np.ndarray, links: np.ndarray) -> np.ndarray:
    """A slot for each message to nodes of a kind, no two of a node in one.

    All messages of a slot use one link, unless that would leave most slots empty.
    """
    if not len(targets):
        return targets

    def rank(*keys: np.ndarray) -> np.ndarray:
        """The position of each among those with equal keys."""
        order = np.lexsort(keys[::-1])
        same = np.ones(len(order), dtype=bool)
        same[1:] = np.logical_or.reduce([key[order][1:] != key[order][:-1] for key in keys])
        first = np.maximum.accumulate(np.where(same, np.arange(len(order)), 0))
        found = np.empty(len(order), dtype=int)
        found[order] = np.arange(len(order)) - first
        return found

    plain, among = rank(targets), rank(targets, links)
    known, which = np.unique(links, return_inverse=True)
    most = np.zeros(len(known), dtype=int)
    np.maximum.at(most, which, among + 1)
    if most.sum() > 1.5 * (plain.max() + 1):
        return plain
    return (np.cumsum(most) - most)[which] + among


def index_beside(index: Any, like: Array) -> Any:
    """An index whose arrays are on the device of another array."""
    if isinstance(index, tuple):
        return tuple(index_beside(part, like) for part in index)
    if not isinstance(index, np.ndarray) or isinstance(like, np.ndarray):
        return index
    return namespace(like).asarray(index, device=device(like))


def span(at: np.ndarray) -> Any:
    """Consecutive numbers as a slice, which makes no copy; others unchanged."""
    whole = bool((np.diff(at) == 1).all())
    return slice(int(at[0]), int(at[-1]) + 1) if whole else at
