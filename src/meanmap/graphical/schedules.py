"""The order in which messages are sent.

A schedule is made of batches of messages, which `passing.update` sends. On a tree it is exact:
every message once, the farthest first. On a graph with loops it is repeated until messages no
longer change: a generator of states, each with the largest change of a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import array_api_compat
import numpy as np

from meanmap.arrays import Array, assign, to_numpy
from meanmap.graphical.field import NONE
from meanmap.graphical.passing import MessageBatch, Passing, State, damp_messages

SHARE = 64  # the residual schedule sends one message in so many at a time


# --- on a tree ----------------------------------------------------------------------------------


def exact(
    wanted: Iterable[MessageBatch],
    needs: Callable[[MessageBatch], Iterable[MessageBatch]],
    is_known: Callable[[MessageBatch], bool],
) -> list[MessageBatch]:
    """The wanted messages and all that they need, the farthest first; none that is known."""
    found: list[MessageBatch] = []
    waiting = list(wanted)
    for batch in waiting:  # the list grows while it is read
        if not is_known(batch):
            found.append(batch)
            waiting += needs(batch)
    return found[::-1]


# --- on a graph with loops ----------------------------------------------------------------------


def synchronous(passing: Passing, state: State, damping: float) -> Iterator[tuple[State, float]]:
    """All messages at once."""
    once: Callable[[State], State] = partial(passing.round, damping=damping)
    again = once if passing.power is not None else Repeated(once)
    while True:
        *state, squares = again(state)
        yield state, float(max(to_numpy(squares).max(), 0.0)) ** 0.5


def sequential(passing: Passing, state: State, damping: float) -> Iterator[tuple[State, float]]:
    """From the farthest nodes to the first and back: on a tree one iteration is enough.

    Nodes at the same distance from the first send together.
    """
    field, wiring = passing.potentials.field, passing.wiring
    local = field.places(wiring.hidden)
    levels = [
        [
            MessageBatch(int(k), local[nodes[field.kind[nodes] == k]])
            for k in np.unique(field.kind[nodes])
        ]
        for nodes in field.levels(local != NONE)
    ]
    schedule = [batch for level in (*levels[::-1], *levels[1:]) for batch in level]
    moved: list[float] = []

    def put(kind: int, at: Any, beta: Array) -> None:
        old = state[kind][at]
        moved.append(passing.change(kind, old, beta).max())
        state[kind] = assign(state[kind], at, damp_messages(old, beta, damping))

    while True:
        moved.clear()
        passing.update(state, schedule, put)
        yield state, float(max(moved, default=0.0))


def residual(passing: Passing, state: State, damping: float) -> Iterator[tuple[State, float]]:
    """Always the messages that would change most; an iteration sends as many as there are.

    One at a time if there are few (Elidan, McGraw and Koller 2006), else a small share of them.
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

    def put(kind: int, at: Any, beta: Array) -> None:
        waiting[kind] = assign(waiting[kind], at, beta)
        moves[number[kind][at]] = passing.change(kind, state[kind][at], beta)

    while True:
        sent_now = 0
        while sent_now < len(messages) and moves.max() > 0:
            chosen = np.argpartition(moves, -some)[-some:]
            told = []
            for kind in np.unique(messages[chosen, 0]).tolist():
                mine = chosen[messages[chosen, 0] == kind]
                at = messages[mine, 1], messages[mine, 2]
                new = damp_messages(state[kind][at], waiting[kind][at], damping)
                moves[mine] = passing.change(kind, new, waiting[kind][at])
                state[kind] = assign(state[kind], at, new)
                told.append(MessageBatch(kind, np.unique(at[0])))
            passing.update(state, told, put)
            sent_now += len(chosen)
        yield state, float(moves.max(initial=0.0))


SCHEDULES: dict[str, Callable[[Passing, State, float], Iterator[tuple[State, float]]]] = {
    "synchronous": synchronous,
    "sequential": sequential,
    "residual": residual,
}


# --- on CUDA ------------------------------------------------------------------------------------


class Repeated:
    """A function that is called many times, with arrays of the same shapes.

    On CUDA thousands of small operations take longer to launch than to run. From the third call on
    they are recorded as one graph and replayed. The function must then stay on the device: its
    control flow may not depend on values in the arrays.
    """

    PLAIN = 2  # calls before recording, which also warm up

    def __init__(self, function: Callable[[State], State]) -> None:
        self._function, self._calls = function, 0
        self._graph: Any = None
        self._given: list[Any] = []
        self._found: list[Any] = []

    def __call__(self, state: list[Any]) -> State:
        self._calls += 1
        recordable = array_api_compat.is_torch_array(state[0]) and state[0].device.type == "cuda"
        if self._calls <= self.PLAIN or not recordable:
            return self._function(state)
        import torch

        if self._graph is None:
            self._given = [part.clone() for part in state]
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.device(state[0].device), torch.cuda.graph(self._graph):
                self._found = self._function(self._given)
        for mine, part in zip(self._given, state, strict=True):
            mine.copy_(part)
        self._graph.replay()
        return [part.clone() for part in self._found]
