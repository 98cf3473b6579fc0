"""Messages on a graph with loops, all of a kind at once.

Every hidden node has a slot for each hidden neighbour: what comes in there, and what goes out to
the same neighbour, which is the product of all that came in elsewhere (Song, Fukumizu and Gretton
2013, eq. 27 and 30). Products are sums of logarithms, so that no number of neighbours underflows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import networkx as nx
import numpy as np

from meanmap.arrays import Array, asarray, assign, for_each_thread, namespace, take, to_numpy
from meanmap.graphical.field import NONE, Field
from meanmap.graphical.messages import Node
from meanmap.graphical.potentials import Potentials, raised

BLOCK = 1 << 17  # values of messages that are in memory at a time
SHARE = 64  # of the messages, the part that the residual schedule sends at a time

State = list[Array]  # for each kind the messages that came in, (nodes, slots, r)


@dataclass(frozen=True, eq=False)
class Route:
    """Some nodes of a kind that speak along one link, and where what they say comes in."""

    link: int
    nodes: Any  # a slice or an array
    kind: int
    to_nodes: np.ndarray
    to_slots: np.ndarray


@dataclass(frozen=True, eq=False)
class Wiring:
    """Who sends to whom, among the hidden nodes: for each kind tables (nodes, slots)."""

    hidden: list[np.ndarray]  # the nodes of each kind, as numbers of the field
    link: list[np.ndarray]  # what goes out goes along this link; NONE where there is no neighbour
    to: list[np.ndarray]  # (nodes, slots, 3): to this kind, this node of it, this slot
    edge: list[np.ndarray]  # the edge of the field that a slot is

    @classmethod
    def of(cls, field: Field, hidden: np.ndarray) -> Wiring:
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
                found[-1].append(Route(int(link), span(at), int(s[0]), node, there))
        empty = np.nonzero(links.T == NONE)
        answer = found, (empty if len(empty[0]) else None)
        if known is not None:
            self._routes[known] = answer
        return answer

    @cached_property
    def _routes(self) -> dict[Any, tuple[list[list[Route]], Any]]:
        return {}

    def appearances(self, field: Field) -> list[np.ndarray]:
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


@dataclass(frozen=True, eq=False)
class Alone:
    """What is known of the hidden nodes of a kind, each alone: the product of what says it."""

    logs: Array  # of the product at the sample, (nodes, m)
    factor: Array  # the product, at its best 1
    peak: np.ndarray  # the best values of the factors, multiplied, (nodes,)
    count: np.ndarray  # the number of factors, (nodes,)


@dataclass(frozen=True, eq=False)
class Sent:
    """Messages along one link: where they go, and what they are."""

    kind: int
    node: np.ndarray
    slot: np.ndarray
    beta: Array


@dataclass(frozen=True, eq=False)
class Passing:
    """The rule of Algorithm VI on a wiring, with what is known of single nodes."""

    potentials: Potentials
    wiring: Wiring
    alone: list[Alone]  # for each kind what is known of single nodes
    power: list[np.ndarray] | None = None  # of the messages, (nodes, slots), where it is not 1

    def start(self) -> State:
        """Messages that say nothing."""
        state = []
        for kind, link in enumerate(self.wiring.link):
            node = self.potentials.nodes[kind]
            r = node.coordinates.shape[1]
            beta = asarray(np.zeros((*link.shape, r)), node.coordinates)
            state.append(beta)
        for kind, link in enumerate(self.wiring.link):
            for one in np.unique(link[link != NONE]):
                i, j = np.nonzero(link == one)
                s, node, slot = self.wiring.to[kind][i, j].T
                state[s[0]] = assign(state[s[0]], (node, slot), self.potentials.nothing(int(one)))
        return state

    def come_in(self, state: State, kind: int, nodes: Any) -> tuple[Array, Array]:
        """log of what messages say to nodes of a kind, (n, slots, m), and of all that is known."""
        L = self.potentials.logarithms(
            take(state[kind], nodes), self.potentials.nodes[kind].coordinates
        )
        xp = namespace(L)
        power = self.powers(kind, nodes)
        if power is not None:
            L = L * asarray(power, L)[:, :, None]
        return L, take(self.alone[kind].logs, nodes) + xp.sum(L, axis=1)

    def powers(self, kind: int, nodes: Any) -> np.ndarray | None:
        """The power of each message to some nodes, 0 where there is none; None if all have 1."""
        here = self.wiring.link[kind][nodes] != NONE
        if self.power is not None:
            return np.where(here, self.power[kind][nodes], 0.0)
        return here.astype(float) if self.wiring.padded[kind] else None

    def send(self, state: State, kind: int, nodes: Any, scaled: bool = True) -> Iterator[Sent]:
        """What nodes of a kind say to their neighbours, link by link."""
        routes, empty = self.wiring.routes(kind, nodes)
        if not routes:
            return
        rows = self.potentials.nodes[kind].coordinates
        xp = namespace(rows)
        beta = xp.permute_dims(take(state[kind], nodes), (1, 0, 2))  # a slot's messages together
        slots, n, r = beta.shape
        V = self.potentials.raised(xp.reshape(beta, (slots * n, r)) @ rows.T)
        V = xp.reshape(V, (slots, n, rows.shape[0]))
        if empty is not None:
            V = assign(V, empty, asarray(1.0, V))
        factors = [V[slot] for slot in range(slots)]
        first, deep = take(self.alone[kind].factor, nodes), slots > self._deep
        if self.power is None:
            products = all_but_one(first, factors, deep)
        else:
            powers = [asarray(p, V)[:, None] for p in self.power[kind][nodes].T]
            products = reweighted(first, factors, powers, deep, self.potentials.tiny)
        for slot, P in products:
            for route in routes[slot]:
                new = take(P, route.nodes) @ self.potentials.links[route.link].spread
                if scaled:
                    new = self.potentials.scaled(new, route.link)
                yield Sent(route.kind, route.to_nodes, route.to_slots, new)

    @cached_property
    def _deep(self) -> int:
        """Products of more factors than this are kept from underflow."""
        return 40 if self.potentials.tiny < 1e-100 else 5

    def blocks(self) -> list[tuple[int, slice]]:
        """All hidden nodes, some of a kind at a time."""
        found = []
        for kind, link in enumerate(self.wiring.link):
            m = self.potentials.nodes[kind].coordinates.shape[0]
            step = max(1, BLOCK // (m * max(link.shape[1], 1)))
            found += [(kind, slice(start, start + step)) for start in range(0, link.shape[0], step)]
        return found

    def each_block(self, work: Callable[[int, slice], None]) -> None:
        """Do a thing for all hidden nodes, on all threads where NumPy can."""
        blocks = self.blocks()

        def share(thread: int, of: int) -> None:
            for kind, nodes in blocks[thread::of]:
                work(kind, nodes)

        if isinstance(self.potentials.nodes[0].coordinates, np.ndarray):
            for_each_thread(share)
        else:
            share(0, 1)

    def all_sent(self, state: State) -> State:
        """What everybody says at once, as a new state."""
        fresh = [namespace(beta).zeros_like(beta) for beta in state]

        def work(kind: int, nodes: slice) -> None:
            for sent in self.send(state, kind, nodes, scaled=False):
                fresh[sent.kind] = assign(fresh[sent.kind], (sent.node, sent.slot), sent.beta)

        self.each_block(work)
        return [self._of_mean_one(kind, beta) for kind, beta in enumerate(fresh)]

    def _of_mean_one(self, kind: int, beta: Array) -> Array:
        """All messages to a kind scaled at once; as `Potentials.scaled` does along one link."""
        links = self.wiring.link[kind]
        if not links.size:
            return beta
        xp = namespace(beta)
        mean = beta @ self.potentials.nodes[kind].mean
        for i, j in np.argwhere((to_numpy(mean) <= 0) & (links != NONE)):
            nothing = self.potentials.nothing(int(links[i, j]) ^ 1)  # it came the other way
            beta, mean = assign(beta, (i, j), nothing), assign(mean, (i, j), 1.0)
        return beta / xp.where(mean > 0, mean, xp.ones_like(mean))[..., None]

    def change(self, kind: int, old: Array, new: Array) -> np.ndarray:
        """How far messages (..., r) to a kind have moved, as functions of its values (L₂)."""
        if not new.shape[0] or not new.shape[-2]:
            return np.zeros(new.shape[:-1])
        if kind not in self._covariances:
            self._covariances[kind] = covariance(self.potentials.nodes[kind])
        difference = new - old
        moved = namespace(new).sum((difference @ self._covariances[kind]) * difference, axis=-1)
        return np.sqrt(np.maximum(to_numpy(moved), 0.0))

    @cached_property
    def _covariances(self) -> dict[int, Array]:
        return {}

    def products(self, state: State) -> tuple[list[Array], list[np.ndarray]]:
        """log of everything known of each hidden node at its kind's sample, (nodes, m).

        And how much of it is contradiction, (nodes,): the mean over messages of what each loses of
        its best where the product is best.
        """
        found = [namespace(alone.logs).zeros_like(alone.logs) for alone in self.alone]
        strain = [np.zeros(len(alone.count)) for alone in self.alone]

        def work(kind: int, nodes: slice) -> None:
            L, S = self.come_in(state, kind, nodes)
            found[kind] = assign(found[kind], nodes, S)
            alone, xp = self.alone[kind], namespace(L)
            best = to_numpy(xp.max(L, axis=-1)).sum(axis=1) + alone.peak[nodes]
            count = (self.wiring.link[kind][nodes] != NONE).sum(axis=1) + alone.count[nodes]
            lost = best - to_numpy(xp.max(S, axis=-1))
            strain[kind][nodes] = lost / np.maximum(count, 1)

        self.each_block(work)
        return found, strain


def all_but_one(first: Array, factors: list[Array], deep: bool) -> Iterator[tuple[int, Array]]:
    """For each factor the product of all others, up to scale: the last first.

    From both ends: no factor is divided by, for one may be zero.
    """
    before = [first]
    for factor in factors[:-1]:
        before.append(rescaled(before[-1] * factor, deep))
    after = None
    for slot in reversed(range(len(factors))):
        yield slot, before[slot] if after is None else before[slot] * after
        after = factors[slot] if after is None else rescaled(after * factors[slot], deep)


def reweighted(
    first: Array, factors: list[Array], powers: list[Array], deep: bool, tiny: float
) -> Iterator[tuple[int, Array]]:
    """For each factor the product of all to their powers, over itself.

    Messages of tree-reweighted belief propagation (Wainwright, Jaakkola and Willsky 2005), whose
    potentials on edges are the data's to the power of one over theirs.
    """
    product = first
    for factor, power in zip(factors, powers, strict=True):
        product = rescaled(product * factor**power, deep)
    for slot, factor in enumerate(factors):
        yield slot, product / raised(factor, tiny)


def rescaled(values: Array, needed: bool) -> Array:
    """Rows whose largest value is one."""
    if not needed:
        return values
    xp = namespace(values)
    top = xp.max(values, axis=1, keepdims=True)
    return values / xp.where(top > 0, top, xp.ones_like(top))


def span(at: np.ndarray) -> Any:
    """Numbers in order as a slice, where they leave none out: no copy is made then."""
    whole = len(at) and at[-1] - at[0] + 1 == len(at)
    return slice(int(at[0]), int(at[-1]) + 1) if whole else at


def covariance(node: Node) -> Array:
    """`Ψᵀ diag(w) Ψ`."""
    return node.coordinates.T @ (node.weights[:, None] * node.coordinates)


# --- schedules ------------------------------------------------------------------------------------


def mixed(old: Array, new: Array, damping: float) -> Array:
    return new if damping == 0 else (1 - damping) * new + damping * old


def synchronous(passing: Passing, state: State, damping: float) -> Iterator[tuple[State, float]]:
    """Everybody at once."""
    while True:
        fresh = passing.all_sent(state)
        moved = [
            passing.change(kind, old, new).max(initial=0.0)
            for kind, (old, new) in enumerate(zip(state, fresh, strict=True))
        ]
        pairs = zip(state, fresh, strict=True)
        state = [mixed(old, new, damping) for old, new in pairs]
        yield state, float(max(moved, default=0.0))


def sequential(passing: Passing, state: State, damping: float) -> Iterator[tuple[State, float]]:
    """From the farthest nodes to the first and back, each with the news: on a tree once is enough.

    Nodes as far from the first as each other speak together.
    """
    field, wiring = passing.potentials.field, passing.wiring
    hidden = np.zeros(len(field.nodes), dtype=bool)
    local = np.full(len(field.nodes), NONE)
    for nodes in wiring.hidden:
        hidden[nodes] = True
        local[nodes] = np.arange(len(nodes))
    levels = [
        [(int(k), local[nodes[field.kind[nodes] == k]]) for k in np.unique(field.kind[nodes])]
        for nodes in field.levels(hidden)
    ]
    while True:
        most = 0.0
        for level in (*levels[::-1], *levels[1:]):
            for kind, nodes in level:
                for sent in passing.send(state, kind, nodes):
                    at = sent.node, sent.slot
                    old = state[sent.kind][at]
                    most = max(most, passing.change(sent.kind, old, sent.beta).max())
                    new = mixed(old, sent.beta, damping)
                    state[sent.kind] = assign(state[sent.kind], at, new)
        yield state, float(most)


def residual(passing: Passing, state: State, damping: float) -> Iterator[tuple[State, float]]:
    """Always those messages that would change most; as many as there are make an iteration.

    Of few messages one at a time (Elidan, McGraw and Koller 2006), of many a small share.
    """
    messages = passing.wiring.messages
    some = max(1, len(messages) // SHARE)
    number = [np.full(link.shape, NONE) for link in passing.wiring.link]
    for kind, table in enumerate(number):
        mine = np.flatnonzero(messages[:, 0] == kind)
        table[messages[mine, 1], messages[mine, 2]] = mine
    waiting = passing.all_sent(state)
    moves = np.zeros(len(messages))
    for kind, table in enumerate(number):
        mine = table[table != NONE]
        moves[mine] = passing.change(kind, state[kind], waiting[kind])[table != NONE]
    while True:
        sent_now = 0
        while sent_now < len(messages) and moves.max() > 0:
            chosen = np.argpartition(moves, -some)[-some:]
            for kind in np.unique(messages[chosen, 0]):
                mine = chosen[messages[chosen, 0] == kind]
                at = messages[mine, 1], messages[mine, 2]
                new = mixed(state[kind][at], waiting[kind][at], damping)
                moves[mine] = passing.change(kind, new, waiting[kind][at])
                state[kind] = assign(state[kind], at, new)
            for kind in np.unique(messages[chosen, 0]):
                told = np.unique(messages[chosen[messages[chosen, 0] == kind], 1])
                for sent in passing.send(state, int(kind), told):
                    at = sent.node, sent.slot
                    waiting[sent.kind] = assign(waiting[sent.kind], at, sent.beta)
                    moves[number[sent.kind][at]] = passing.change(
                        sent.kind, state[sent.kind][at], sent.beta
                    )
            sent_now += len(chosen)
        yield state, float(moves.max(initial=0.0))


SCHEDULES: dict[str, Callable[[Passing, State, float], Iterator[tuple[State, float]]]] = {
    "synchronous": synchronous,
    "sequential": sequential,
    "residual": residual,
}
