"""Messages on a graph with loops, all of a kind at once.

Every hidden node has a slot for each hidden neighbour: what comes in there, and what goes out to
the same neighbour, which is the product of all that came in elsewhere (Song, Fukumizu and Gretton
2013, eq. 27 and 30). Where neighbours are many, products are scaled as they grow, so that none
underflows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from meanmap.arrays import (
    Array,
    asarray,
    assign,
    at_least,
    for_each_thread,
    namespace,
    take,
    to_numpy,
)
from meanmap.graphical.field import NONE, Wiring, index_beside
from meanmap.graphical.potentials import Potentials

BLOCK = 1 << 17  # values of messages that are in memory at a time

State = list[Array]  # for each kind the messages that came in, (nodes, slots, r)


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
    at: tuple[Any, Any]  # nodes and slots
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
        routes, empty = self.wiring.routes(kind, nodes, self._one)
        if not routes:
            return
        rows = self.potentials.nodes[kind].coordinates
        xp = namespace(rows)
        beta = xp.permute_dims(take(state[kind], nodes), (1, 0, 2))  # a slot's messages together
        slots, n, r = beta.shape
        V = at_least(xp.reshape(beta, (slots * n, r)) @ rows.T, self._least)
        V = xp.reshape(V, (slots, n, rows.shape[0]))
        if empty is not None:
            V = assign(V, empty, self._one)
        factors = [V[slot] for slot in range(slots)]
        first, deep = take(self.alone[kind].factor, nodes), slots > self._deep
        if self.power is None:
            products = all_but_one(first, factors, deep)
        else:
            powers = [asarray(p, V)[:, None] for p in self.power[kind][nodes].T]
            even = self._even[kind]
            if even is None:
                products = products_with_powers(first, factors, powers, deep)
            else:
                products = products_with_power(first, factors, even, deep)
        for slot, P in products:
            for route in routes[slot]:
                new = self.potentials.links[route.link].of_product(take(P, route.nodes))
                if scaled:
                    new = self.potentials.scale(new, route.link)
                yield Sent(route.kind, route.at, new)

    @cached_property
    def _one(self) -> Array:
        return asarray(1.0, self.potentials.nodes[0].coordinates)

    @property
    def _least(self) -> float:
        """The least value of a message; what is divided by is never zero."""
        least = self.potentials.least
        return least if self.power is None else max(least, self.potentials.tiny)

    @cached_property
    def _even(self) -> list[float | None]:
        """For each kind the power of all messages, if it is the same."""
        assert self.power is not None
        parts = [p[link != NONE] for p, link in zip(self.power, self.wiring.link, strict=True)]
        return [float(p[0]) if len(p) and (p == p[0]).all() else None for p in parts]

    @cached_property
    def _nothing(self) -> State:
        return self.start()

    @cached_property
    def _nowhere(self) -> list[Any]:
        """For each kind the slots that lead nowhere."""
        return [index_beside(np.nonzero(link == NONE), self._one) for link in self.wiring.link]

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
                fresh[sent.kind] = assign(fresh[sent.kind], sent.at, sent.beta)

        self.each_block(work)
        return [self._of_mean_one(kind, beta) for kind, beta in enumerate(fresh)]

    def _of_mean_one(self, kind: int, beta: Array) -> Array:
        """All messages to a kind scaled at once; as `MessageRules.scale` does along one link."""
        links = self.wiring.link[kind]
        if not links.size:
            return beta
        mean = beta @ self.potentials.nodes[kind].mean
        if self.wiring.padded[kind]:
            mean = assign(mean, self._nowhere[kind], self._one)
        xp = namespace(mean)
        if isinstance(mean, np.ndarray) and mean.min() > 0:
            beta /= mean[..., None]
            return beta
        good = mean > 0  # one whose mean is not is noise, and says nothing
        mean = xp.where(good, mean, xp.ones_like(mean))[..., None]
        return xp.where(good[..., None], beta / mean, self._nothing[kind])

    def change(self, kind: int, old: Array, new: Array) -> np.ndarray:
        """How far messages (..., r) to a kind have moved, as functions of its values (L₂)."""
        if not new.shape[0] or not new.shape[-2]:
            return np.zeros(new.shape[:-1])
        return np.sqrt(np.maximum(to_numpy(self._squares(kind, new - old)), 0.0))

    def _squares(self, kind: int, difference: Array) -> Array:
        covariance = self.potentials.nodes[kind].covariance
        return namespace(difference).sum((difference @ covariance) * difference, axis=-1)

    def round(self, state: State, damping: float) -> State:
        """What everybody says at once, mixed with what was said, and how far each kind moved."""
        fresh = self.all_sent(state)
        xp = namespace(fresh[0])
        squares = [
            xp.max(self._squares(kind, new - old))
            for kind, (old, new) in enumerate(zip(state, fresh, strict=True))
            if new.shape[0] and new.shape[-2]
        ]
        if damping:
            pairs = zip(state, fresh, strict=True)
            fresh = [damp_messages(old, new, damping) for old, new in pairs]
        moved = xp.stack(squares) if squares else xp.zeros_like(self._one)[None]
        return [*fresh, moved]

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


def damp_messages(old: Array, new: Array, damping: float) -> Array:
    """What is said now with some of what was said before."""
    return new if damping == 0 else (1 - damping) * new + damping * old


def all_but_one(first: Array, factors: list[Array], deep: bool) -> Iterator[tuple[int, Array]]:
    """For each factor the product of all others, up to scale: the last first.

    From both ends: no factor is divided by, for one may be zero. The factors are overwritten.
    """
    before = [first]
    for factor in factors[:-1]:
        before.append(rescale_rows(before[-1] * factor, deep))
    after = None
    for slot in reversed(range(len(factors))):
        P = before.pop()
        if after is not None and slot:
            P *= after
        elif after is not None:
            P = P * after  # `first` is not ours
        yield slot, P
        if slot:
            factor = factors[slot]
            if after is not None:
                factor *= after
            after = rescale_rows(factor, deep)


def products_with_powers(
    first: Array, factors: list[Array], powers: list[Array], deep: bool
) -> Iterator[tuple[int, Array]]:
    """For each factor the product of all to their powers, over itself.

    Messages of tree-reweighted belief propagation (Wainwright, Jaakkola and Willsky 2005), whose
    potentials on edges are the data's to the power of one over theirs.
    """
    product = first
    for factor, power in zip(factors, powers, strict=True):
        product = rescale_rows(product * factor**power, deep)
    for slot, factor in enumerate(factors):
        yield slot, product / factor


def products_with_power(
    first: Array, factors: list[Array], power: float, deep: bool
) -> Iterator[tuple[int, Array]]:
    """The same, where all powers are equal: of the product at once, which is sooner."""
    product = factors[0]
    for factor in factors[1:]:
        product = rescale_rows(product * factor, deep)
    product = first * product**power
    for slot, factor in enumerate(factors):
        yield slot, product / factor


def rescale_rows(values: Array, needed: bool) -> Array:
    """Rows whose largest value is one."""
    if not needed:
        return values
    xp = namespace(values)
    top = xp.max(values, axis=1, keepdims=True)
    return values / xp.where(top > 0, top, xp.ones_like(top))
