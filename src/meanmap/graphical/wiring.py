"""Who sends to whom on a graph with loops: slots of nodes, and the routes between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import networkx as nx
import numpy as np

from meanmap.graphical.field import NONE, RandomField


@dataclass(frozen=True, eq=False)
class Route:
    """Some nodes of a kind that speak along one link, and where what they say comes in."""

    link: int
    nodes: Any  # a slice or an array
    kind: int  # they speak to nodes of this
    at: tuple[Any, Any]  # and these, in these slots


@dataclass(frozen=True, eq=False)
class Wiring:
    """Who sends to whom, among the hidden nodes: for each kind tables (nodes, slots)."""

    hidden: list[np.ndarray]  # the nodes of each kind, as numbers of the field
    link: list[np.ndarray]  # what goes out goes along this link; NONE where there is no neighbour
    to: list[np.ndarray]  # (nodes, slots, 3): to this kind, this node of it, this slot
    edge: list[np.ndarray]  # the edge of the field that a slot is

    @classmethod
    def of(cls, field: RandomField, hidden: np.ndarray) -> Wiring:
        """The wiring of a field whose other nodes are observed."""
        inside = np.repeat(hidden[field.edges].all(axis=1), 2)
        nodes = [members[hidden[members]] for members in field.members]
        local = np.full(len(field.nodes), NONE)
        for members in nodes:
            local[members] = np.arange(len(members))
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

    @cached_property
    def padded(self) -> list[bool]:
        """Whether some nodes of a kind have fewer neighbours than others."""
        return [bool((link == NONE).any()) for link in self.link]

    def routes(self, kind: int, nodes: Any) -> tuple[list[list[Route]], Any]:
        """For every slot of some nodes of a kind where it leads; and which slots lead nowhere."""
        known = (kind, nodes.start, nodes.stop) if isinstance(nodes, slice) else None
        if known is not None and known in self._routes:
            return self._routes[known]
        links, to = self.link[kind][nodes], self.to[kind][nodes]
        found: list[list[Route]] = []
        for slot in range(links.shape[1]):
            column = links[:, slot]
            found.append([])
            for link in np.unique(column[column != NONE]):
                at = np.flatnonzero(column == link)
                s, node, there = to[at, slot].T
                one = (there == there[0]).all()
                into = (span(node), int(there[0])) if one else (node, there)
                found[-1].append(Route(int(link), span(at), int(s[0]), into))
        empty = np.nonzero(links.T == NONE)
        answer = found, (empty if len(empty[0]) else None)
        if known is not None:
            self._routes[known] = answer
        return answer

    @cached_property
    def _routes(self) -> dict[Any, tuple[list[list[Route]], Any]]:
        return {}

    def appearances(self, field: RandomField) -> list[np.ndarray]:
        """How often an edge between hidden nodes is in a spanning tree, as tables like `link`.

        On average over the edges of a part without bridges and joints: 1 for a bridge, about a
        half in a grid.
        """
        edges = np.unique(np.concatenate([e[e != NONE] for e in self.edge]))
        of = np.ones(len(field.edges))
        number = {(int(a), int(b)): e for e, (a, b) in zip(edges, field.edges[edges], strict=True)}
        graph = nx.Graph(list(number))
        for part in nx.biconnected_component_edges(graph):
            nodes = {v for pair in part for v in pair}
            for a, b in part:
                of[number.get((a, b), number.get((b, a)))] = (len(nodes) - 1) / len(part)
        return [np.where(e != NONE, of[e], 1.0) for e in self.edge]

    @cached_property
    def messages(self) -> np.ndarray:
        """Every message as (kind, node, slot) of where it comes in."""
        parts = [
            np.column_stack([np.full(len(i), kind), i, j])
            for kind, (i, j) in enumerate(np.nonzero(link != NONE) for link in self.link)
        ]
        return np.concatenate(parts) if parts else np.empty((0, 3), dtype=int)


def slots_of(targets: np.ndarray, links: np.ndarray) -> np.ndarray:
    """A slot for each message to nodes of a kind, no two of a node in one.

    All of a slot answer along one link, where that does not leave most slots empty.
    """
    if not len(targets):
        return targets

    def rank(*keys: np.ndarray) -> np.ndarray:
        """The place of each among those with equal keys."""
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


def span(at: np.ndarray) -> Any:
    """Numbers as a slice, where they follow each other: no copy is made then."""
    whole = bool((np.diff(at) == 1).all())
    return slice(int(at[0]), int(at[-1]) + 1) if whole else at
