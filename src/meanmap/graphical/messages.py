"""Exact inference on a tree: every message once, from the evidence to the node in question.

A message `m_ts` is a function of x_s: the density of the evidence beyond t given x_s, divided by
its density overall (Song, Fukumizu and Gretton 2013, section 5.1). `meanmap.graphical.potentials`
says how messages are sent along an edge, and `meanmap.graphical.passing` sends them. On a tree
three things are exact that are not available on loops: sides without evidence are not in the
schedule; a single message is passed on by the operator alone, without a product on the rows; and
where all evidence lies beyond one neighbour, the belief is that neighbour's, pushed through the
operator of the edge (the sum rule).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from meanmap.arrays import Array, Points, asarray, at_least, count, namespace, take, to_numpy
from meanmap.conditional.operator import ConditionalOperator
from meanmap.embeddings import Embedding
from meanmap.exceptions import DataWarning, warn
from meanmap.graphical.answers import AnswerLearner, EdgeLikelihood, NodeBelief, has_densities
from meanmap.graphical.field import Route
from meanmap.graphical.layout import TreeLayout
from meanmap.graphical.nodes import Node
from meanmap.graphical.passing import MessageBatch, Spoken, update
from meanmap.graphical.potentials import MessageRules, OperatorLink
from meanmap.graphical.schedules import exact

CONFLICT = 0.05  # evidence less likely than this share of independent evidence contradicts itself
NOTHING = 1e-12  # below this no value fits the evidence


@dataclass(frozen=True, eq=False)
class Network(MessageRules):
    """What was learned of a tree: a node per variable, two operators per edge."""

    layout: TreeLayout
    nodes: dict[Any, Node]
    operators: dict[tuple[Any, Any], ConditionalOperator]  # (t, s): P(t | s), for messages
    least: float  # the smallest value of a message, whose mean is 1: estimates may be negative
    learner: AnswerLearner | None = None
    #: The positions of the rows of P(t | s) among those of t, where some are missing.
    places: dict[tuple[Any, Any], np.ndarray] | None = None

    @cached_property
    def links(self) -> dict[tuple[Any, Any], OperatorLink]:
        """What sends messages, by (t, s)."""
        places = self.places or {}
        return {
            (t, s): OperatorLink(operator, self.operators[s, t], places.get((t, s)))
            for (t, s), operator in self.operators.items()
        }

    def target(self, link: tuple[Any, Any]) -> Any:
        return link[1]

    def usual_regularization(self, name: Any) -> float:
        """The usual λ of regressions on a node, 0 without any."""
        members = self.layout.families.get(name, ())
        others = [t for t in self.layout.neighbours[name] if t not in members]
        found = [self.operators[t, name].regularization or 0.0 for t in others]
        return float(np.median(found)) if found else 0.0

    def answer(self, t: Any, s: Any) -> ConditionalOperator | None:
        """P(t | s) for answers at points of s; its kernel is learned on first use.

        None where the kernel on s was named, and for parents together given their child.
        """
        if (t, s) not in self._answers:
            apart = t not in self.layout.families and not self.layout.is_nested(t, s)
            learner = self.learner if apart else None
            learned = None if learner is None else learner.learn(s, self.operators[t, s])
            self._answers[t, s] = learned
        return self._answers[t, s]

    def likelihood(self, t: Any, s: Any) -> EdgeLikelihood | None:
        """The density of x_t given the rows of s, where P(t | s) was learned."""
        if (t, s) not in self._likelihoods:
            found, points = self.answer(t, s), self.nodes[s].points
            known = found is not None and has_densities(found)
            self._likelihoods[t, s] = EdgeLikelihood(found, points) if found and known else None
        return self._likelihoods[t, s]

    @cached_property
    def _answers(self) -> dict[Any, ConditionalOperator | None]:
        return {}

    @cached_property
    def _likelihoods(self) -> dict[Any, EdgeLikelihood | None]:
        return {}

    @cached_property
    def numbers(self) -> dict[Any, int]:
        """A number for every node."""
        return {name: i for i, name in enumerate(self.nodes)}


@dataclass(eq=False)
class Inference:
    """Messages under evidence, computed on demand and kept. A batch has one row per query."""

    network: Network
    evidence: dict[Any, Array]  # coordinates of the points, (b, r) or (1, r)
    names: dict[Any, bytes]  # the evidence's points as keys
    known: dict[Any, Array]  # messages, values and means, shared by all queries of a model
    points: dict[Any, Points] = field(default_factory=dict)  # the evidence itself
    _beyond: dict[Any, list[Any]] = field(default_factory=dict)  # neighbours that bring evidence
    _keys: dict[Any, int] = field(default_factory=dict)  # what each node's message depends on

    def is_silent(self, name: Any) -> bool:
        """Whether evidence lies so far outside the data that it says nothing."""
        return np.array_equal(
            to_numpy(self.evidence[name][0]), to_numpy(self.network.nodes[name].mean)
        )

    def belief(self, q: Any) -> Embedding:
        """The distribution of a node given the evidence, a batch."""
        sources, node = self._gather(q), self.network.nodes[q]
        if not sources:
            return node.embedding(node.weights)
        t = sources[0]
        if len(sources) == 1 and not self._is_cut(t, q):
            answer = self.network.answer(q, t) if t in self.points else None
            if answer is not None:
                return NodeBelief.of_answer(answer, self.points[t])
            return self.network.operators[q, t].embedding(self._mean(t))
        weights = self._weights(q)
        return node.embedding(weights, weights @ node.coordinates)

    def messages(self, q: Any, apart: Any) -> list[Array]:
        """The messages to a node from every neighbour with evidence but one."""
        sources = [t for t in self._gather(q) if t != apart]
        self._send([MessageBatch(t, q) for t in sources])
        return [self.known["message", self._keys[t]] for t in sources]

    def suitability(self, messages: list[Array], psi: Array, rows: np.ndarray) -> np.ndarray:
        """The product of messages at coordinates psi; `rows` are the queries they belong to."""
        product = np.ones(len(rows))
        for beta in messages:
            beta = take(beta, rows if beta.shape[0] > 1 else np.zeros_like(rows))
            values = to_numpy(namespace(psi).sum(beta * psi, axis=1))
            product = product * np.maximum(values, self.network.least)
        return product

    # --- the exact schedule -------------------------------------------------------------------

    def _gather(self, q: Any) -> list[Any]:
        """The neighbours of q beyond which there is evidence; the same for all other nodes."""
        layout = self.network.layout
        beyond: dict[Any, list[Any]] = {}
        keys: dict[Any, int] = {}
        for t, s in layout.towards(q):
            here = beyond.setdefault(t, [])
            parents = layout.families.get(t, ())
            # parents say nothing about each other until evidence on their child
            if t in self.evidence or (s in parents and t[1] not in here):
                here.clear()
            if s is None or not (here or t in self.evidence):
                continue
            beyond.setdefault(s, []).append(t)
            # by number: names may have equal hashes, as -1 and -2 do
            where = self.network.numbers[t], self.network.numbers[s]
            keys[t] = hash((*where, self.names.get(t), tuple(keys[u] for u in here)))
        self._beyond, self._keys = beyond, keys
        return beyond[q]

    def _send(self, wanted: list[MessageBatch]) -> None:
        """Send some messages, and before them all that they need."""
        known, keys = self.known, self._keys

        def put(s: Any, t: Any, beta: Array) -> None:
            known["message", keys[t]] = beta

        schedule = exact(wanted, self._needs, lambda batch: ("message", keys[batch[0]]) in known)
        update(self.network, schedule, self._speak, put)

    def _needs(self, batch: MessageBatch) -> list[MessageBatch]:
        """The messages that the sender of a message needs."""
        return [] if batch[0] in self.evidence else self._factors_of(batch[0])

    def _factors_of(self, t: Any) -> list[MessageBatch]:
        """The messages that the product at t is made of."""
        found = []
        for u in self._beyond[t]:
            if not self._is_valued(u, t):
                found.append(MessageBatch(u, t))
            elif self._is_cut(u, t) and not self._is_heard(u[1], u):
                found.append(
                    MessageBatch(u[1], u)
                )  # of the child, by which a family's values are known
        return found

    def _speak(self, batch: MessageBatch) -> list[Spoken]:
        """What t says to s: the points it is known to be, a message it has heard, or a product."""
        t, s = batch
        routes = [Route(batch, None, s, t)]
        if t in self.evidence:
            return [("points", self.evidence[t], routes)]
        beyond = self._beyond[t]
        if len(beyond) == 1 and not self._is_valued(beyond[0], t):
            return [("message", self.known["message", self._keys[beyond[0]]], routes)]
        return [("product", self._product(t), routes)]

    def _mean(self, t: Any) -> Array:
        """The embedding of t given the evidence beyond it, (b, r_t)."""
        known, keys, path = self.known, self._keys, [t]
        while t not in self.evidence and ("mean", keys[t]) not in known:
            if len(self._beyond[t]) > 1:
                known["mean", keys[t]] = self._weights(t) @ self.network.nodes[t].coordinates
            else:
                t = self._beyond[t][0]
                path.append(t)
        m = self.evidence[t] if t in self.evidence else known["mean", keys[t]]
        while len(path) > 1:
            u = path.pop()
            t = path[-1]
            m = m @ self.network.operators[t, u].matrix.T
            known["mean", keys[t]] = m
        return m

    def _is_valued(self, t: Any, s: Any) -> bool:
        """Whether the message from t is known by its values at the rows of s."""
        return self._is_heard(t, s) or self._is_cut(t, s)

    def _is_heard(self, t: Any, s: Any) -> bool:
        """Whether evidence at t has a density given the rows of s."""
        return t in self.points and self.network.likelihood(t, s) is not None

    def _is_cut(self, t: Any, s: Any) -> bool:
        """Whether t is a family of s, and all other members are known points."""
        members = self.network.layout.families.get(t, ())
        return s in members and all(u in self.points for u in members if u != s)

    # --- on the rows of a node ----------------------------------------------------------------

    def _factors(self, t: Any) -> list[Array]:
        """The messages to t at its rows, (b, n) each."""
        known, rows, least = self.known, self.network.nodes[t].coordinates.T, self.network.least
        found = []
        for u in self._beyond[t]:
            key = "values", self._keys[u]
            if not self._is_valued(u, t):
                found.append(at_least(known["message", self._keys[u]] @ rows, least))
                continue
            if key not in known:
                known[key] = at_least(self._values_at_rows(u, t), least)
            found.append(known[key])
        return found

    def _product(self, t: Any) -> Array:
        """The product of the messages to t at its rows, (b, n)."""
        first, *others = self._factors(t)
        for factor in others:
            first = first * factor
        return first

    def _values_at_rows(self, u: Any, t: Any) -> Array:
        """A message that is known by its values at the rows of t, (b, n), of mean one."""
        node, likelihood = self.network.nodes[t], self.network.likelihood
        if self._is_cut(u, t):
            values = self._family_values(u, t)
        else:
            density = likelihood(u, t)
            assert density is not None
            values = density(self.points[u])
        mean = values @ to_numpy(node.weights)
        nothing = mean <= np.finfo(float).tiny  # far outside the data
        mean = np.where(nothing, 1.0, mean)[:, None]
        return asarray(np.where(nothing[:, None], 1.0, values / mean), node.coordinates)

    def _family_values(self, family: Any, t: Any) -> np.ndarray:
        """What the child says about each row of a parent, the other parents being known: (b, n)."""
        network, child = self.network, family[1]
        node, members = network.nodes[t], network.layout.families[family]
        heard = network.likelihood(child, family) if child in self.points else None
        beta = self.known["message", self._keys[child]] if heard is None else None
        seen = self.points[child] if beta is None else beta
        known = {u: self.points[u] for u in members if u != t}
        found = []
        for i in range(max(map(count, (seen, *known.values())))):
            same = np.full(count(node.points), i)
            points = tuple(
                take(known[u], same % count(known[u])) if u in known else node.points
                for u in members
            )
            at = i % count(seen)
            if heard is not None:
                z = take(seen, np.array([at]))
                found.append(replace(heard, points=points)(z)[0])
            else:
                psi = network.nodes[family].coordinates_of(points)
                found.append(to_numpy(psi @ seen[at]))
        return np.stack(found)

    def _weights(self, q: Any) -> Array:
        """The weights of a node's rows given the messages of several neighbours, (b, n)."""
        self._send(self._factors_of(q))
        node = self.network.nodes[q]
        weights = node.weights * self._product(q)
        xp = namespace(weights)
        total = xp.sum(weights, axis=1)
        warn_of_conflict(q, to_numpy(total))
        none = total <= NOTHING
        if bool(xp.any(none)):
            first, *others = self._factors(q)
            weights = xp.where(none[:, None], node.weights * sum(others, first), weights)
            total = xp.sum(weights, axis=1)
        return weights / xp.where(total > 0, total, xp.ones_like(total))[:, None]


def warn_of_conflict(name: Any, ratio: np.ndarray) -> None:
    """Warn where evidence on different sides of a node contradicts itself.

    The ratio is the density of the evidence together over that of independent evidence. If the
    model holds it is below ε in at most a share ε of all rows.
    """
    against = ratio < CONFLICT
    if not against.any():
        return
    least = float(ratio.min())
    answered = " Where no value fits, the answer is the mean over the sides."
    warn(
        f"the evidence on different sides of {name!r} conflicts in {int(against.sum())} of "
        f"{len(ratio)} queries: together it is {least:.2g} times as likely as if its parts were "
        f"independent, and few rows are below {CONFLICT}." + (answered if least <= NOTHING else ""),
        DataWarning,
    )
