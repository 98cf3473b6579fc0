"""The engine that sends messages.

A schedule is a list of batches of messages, and `update` sends them, one batch after the other, on
trees and on graphs with loops. What a node says to a neighbour is made of what all others have said
to it (Song, Fukumizu and Gretton 2013, eq. 27 and 30); `meanmap.graphical.schedules` says who sends
when.

`Passing` keeps the messages of a field in arrays, so that all nodes of a kind send at once. Every
hidden node has a slot for each hidden neighbour, which holds the neighbour's message to it, and the
message back to that neighbour is made of the product of all other slots. If there are many
neighbours, products are rescaled as they grow, so that they do not underflow. The messages of a
tree, kept from one query to the next, are in `meanmap.graphical.messages`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

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
from meanmap.graphical.field import NONE, Route, Wiring
from meanmap.graphical.potentials import MessageRules, Potentials, Said, divide_or

BLOCK = 1 << 17  # values of messages in memory at a time

State = list[Array]  # for each kind the messages to its nodes, (nodes, slots, r)


class MessageBatch(NamedTuple):
    """Messages that are sent together."""

    sender: Any  # a node of a tree, or a kind of nodes of a field
    part: Any  # the neighbour that receives; or some nodes of the kind, to all their neighbours


Spoken = tuple[Said, Array, Iterable[Route]]  # what is sent, made of what, and where it goes
Put = Callable[[Any, Any, Array], None]  # stores messages: the receiving kind, where, and what


def update(
    rules: MessageRules,
    schedule: Iterable[MessageBatch],
    speak: Callable[[MessageBatch], Iterable[Spoken]],
    put: Put,
    scaled: bool = True,
) -> None:
    """Send the messages of a schedule, one batch after the other.

    `speak` says what the senders of a batch make their messages of, and `put` stores the messages.
    """
    for batch in schedule:
        for said, values, routes in speak(batch):
            for link, nodes, kind, at in routes:
                some = values if nodes is None else take(values, nodes)
                put(kind, at, rules.send(link, some, said, scaled))


@dataclass(frozen=True, eq=False)
class Alone:
    """Evidence on the hidden nodes of a kind: the product of all factors that do not change."""

    logs: Array  # logarithm of the product at the sample, (nodes, m)
    factor: Array  # the product, scaled to a maximum of 1
    peak: np.ndarray  # the sum of the factors' largest logarithms, (nodes,)
    count: np.ndarray  # the number of factors, (nodes,)


@dataclass(frozen=True, eq=False)
class Passing:
    """Algorithm VI on a wiring, with the evidence on single nodes."""

    potentials: Potentials
    wiring: Wiring
    alone: list[Alone]  # for each kind the evidence on its nodes
    power: list[np.ndarray] | None = None  # of the messages, (nodes, slots); None if all are 1

    def start(self) -> State:
        """The first messages, which carry no evidence."""
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

    def powers(self, kind: int, nodes: Any) -> np.ndarray | None:
        """The power of each message to some nodes, 0 without a message; None if all have 1."""
        here = self.wiring.link[kind][nodes] != NONE
        if self.power is not None:
            return np.where(here, self.power[kind][nodes], 0.0)
        return None if here.all() else here.astype(float)

    def update(
        self, state: State, schedule: Iterable[MessageBatch], put: Put, scaled: bool = True
    ) -> None:
        """Send the messages of a schedule, made of those in a state."""
        update(self.potentials, schedule, partial(self.speak, state), put, scaled)

    def speak(self, state: State, batch: MessageBatch) -> Iterator[Spoken]:
        """The products of the messages to nodes of a kind, slot by slot."""
        kind, nodes = batch
        routes, empty = self.wiring.routes(kind, nodes, self._one)
        if not routes:
            return
        rows = self.potentials.nodes[kind].coordinates
        xp = namespace(rows)
        beta = xp.permute_dims(take(state[kind], nodes), (1, 0, 2))  # slots first
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
            powers = self._even[kind]
            if powers is None:
                powers = [asarray(p, V)[:, None] for p in self.power[kind][nodes].T]
            products = products_with_powers(first, factors, powers, deep)
        for slot, P in products:
            yield "product", P, routes[slot]

    @cached_property
    def _one(self) -> Array:
        return asarray(1.0, self.potentials.nodes[0].coordinates)

    @property
    def _least(self) -> float:
        """The smallest value of a message; positive if messages are divided by."""
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
    def _deep(self) -> int:
        """Products of more factors than this are rescaled, so that they do not underflow."""
        return 40 if self.potentials.tiny < 1e-100 else 5

    def blocks(self) -> list[MessageBatch]:
        """All hidden nodes, some of a kind at a time."""
        found = []
        for kind, link in enumerate(self.wiring.link):
            m = self.potentials.nodes[kind].coordinates.shape[0]
            step = max(1, BLOCK // (m * max(link.shape[1], 1)))
            found += [
                MessageBatch(kind, slice(start, start + step))
                for start in range(0, link.shape[0], step)
            ]
        return found

    def each_block(self, work: Callable[[list[MessageBatch]], None]) -> None:
        """Call a function with shares of all blocks of hidden nodes, with NumPy on all threads."""
        blocks = self.blocks()

        def share(thread: int, of: int) -> None:
            work(blocks[thread::of])

        if isinstance(self.potentials.nodes[0].coordinates, np.ndarray):
            for_each_thread(share)
        else:
            share(0, 1)

    def all_sent(self, state: State) -> State:
        """All messages at once, as a new state."""
        fresh = [namespace(beta).zeros_like(beta) for beta in state]

        def put(kind: int, at: Any, beta: Array) -> None:
            fresh[kind] = assign(fresh[kind], at, beta)

        self.each_block(lambda blocks: self.update(state, blocks, put, scaled=False))
        return [self._of_mean_one(kind, beta) for kind, beta in enumerate(fresh)]

    def _of_mean_one(self, kind: int, beta: Array) -> Array:
        """All messages to a kind scaled at once; as `MessageRules.scale` does along one link."""
        mean = (beta @ self.potentials.nodes[kind].mean)[..., None]
        if isinstance(mean, np.ndarray) and mean.min(initial=1.0) > 0:
            beta /= mean
            return beta
        return divide_or(beta, mean, self._nothing[kind])

    def change(self, kind: int, old: Array, new: Array) -> np.ndarray:
        """How much messages (..., r) to a kind have changed, as functions of its values (L₂)."""
        if not new.shape[0] or not new.shape[-2]:
            return np.zeros(new.shape[:-1])
        return np.sqrt(np.maximum(to_numpy(self._squares(kind, new - old)), 0.0))

    def _squares(self, kind: int, difference: Array) -> Array:
        covariance = self.potentials.nodes[kind].covariance
        return namespace(difference).sum((difference @ covariance) * difference, axis=-1)

    def round(self, state: State, damping: float) -> State:
        """All messages at once, damped, and the largest squared change of each kind."""
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
        """Log of the product of all messages to each hidden node at its sample, (nodes, m).

        And how much they conflict, (nodes,): the mean over messages of the difference between the
        largest log value of a message and its log value where the product is largest.
        """
        found = [namespace(alone.logs).zeros_like(alone.logs) for alone in self.alone]
        strain = [np.zeros(len(alone.count)) for alone in self.alone]

        def work(blocks: list[MessageBatch]) -> None:
            for kind, nodes in blocks:
                alone, rows = self.alone[kind], self.potentials.nodes[kind].coordinates
                # (nodes, slots, m), and of the whole product
                L = self.potentials.logarithms(take(state[kind], nodes), rows)
                xp, power = namespace(L), self.powers(kind, nodes)
                if power is not None:
                    L = L * asarray(power, L)[:, :, None]
                S = take(alone.logs, nodes) + xp.sum(L, axis=1)
                found[kind] = assign(found[kind], nodes, S)
                best = to_numpy(xp.max(L, axis=-1)).sum(axis=1) + alone.peak[nodes]
                count = (self.wiring.link[kind][nodes] != NONE).sum(axis=1) + alone.count[nodes]
                lost = best - to_numpy(xp.max(S, axis=-1))
                strain[kind][nodes] = lost / np.maximum(count, 1)

        self.each_block(work)
        return found, strain


def damp_messages(old: Array, new: Array, damping: float) -> Array:
    """The new messages, mixed with a share of the old ones."""
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
            P = P * after  # `first` must not be overwritten
        yield slot, P
        if slot:
            factor = factors[slot]
            if after is not None:
                factor *= after
            after = rescale_rows(factor, deep)


def products_with_powers(
    first: Array, factors: list[Array], powers: float | list[Array], deep: bool
) -> Iterator[tuple[int, Array]]:
    """For each factor the product of all to their powers, over itself.

    Messages of tree-reweighted belief propagation (Wainwright, Jaakkola and Willsky 2005), whose
    potentials on edges are the data's to the power of one over theirs. If all powers are equal, the
    power of the product is faster.
    """
    if isinstance(powers, list):
        raised = [factor**power for factor, power in zip(factors, powers, strict=True)]
        product = multiply_all([first, *raised], deep)
    else:
        product = first * multiply_all(factors, deep) ** powers
    for slot, factor in enumerate(factors):
        yield slot, product / factor


def multiply_all(factors: list[Array], deep: bool) -> Array:
    """The product of arrays, rescaled if there are many."""
    product = factors[0]
    for factor in factors[1:]:
        product = rescale_rows(product * factor, deep)
    return product


def rescale_rows(values: Array, needed: bool) -> Array:
    """Rows whose largest value is one."""
    if not needed:
        return values
    xp = namespace(values)
    top = xp.max(values, axis=1, keepdims=True)
    return values / xp.where(top > 0, top, xp.ones_like(top))
