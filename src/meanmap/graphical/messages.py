"""Messages on a tree: what evidence on one side says of a node.

A message `m_ts` is a function of x_s: the density of the evidence beyond t given x_s, over its
density altogether (Song, Fukumizu and Gretton 2013, section 5.1). In coordinates of s it is a
vector β, and

    m_ts(x_s) = E[Π_u m_ut(X_t) | x_s],

the conditional embedding of t given s applied to a product of messages (Algorithm VI). Where there
is one factor the operator's transpose does it, r_s × r_t; only a product has to be formed on the
rows. Evidence x_t is the message `(C_tt + λI)⁻¹ ψ(x_t)`, a delta over the density of X_t. Where all
evidence lies beyond one neighbour a belief is that neighbour's, pushed through the operator of the
edge: the sum rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from meanmap.arrays import Array, Points, asarray, count, namespace, take, to_numpy
from meanmap.conditional.fitting import Pairs, fit_pairs
from meanmap.conditional.operator import ConditionalOperator
from meanmap.conditional.predictive import Predictive
from meanmap.embeddings import Embedding
from meanmap.embeddings.element import function_values
from meanmap.exceptions import DataWarning, warn
from meanmap.graphical.layout import TreeLayout
from meanmap.graphical.likelihoods import EdgeLikelihood, speaks
from meanmap.graphical.nodes import Node, as_coordinates
from meanmap.kernels import Kernel

CONFLICT = 0.05  # evidence less likely than this share of independent evidence contradicts itself
NOTHING = 1e-12  # and below this no value suits it


@dataclass(frozen=True, eq=False)
class AnswerLearner:
    """How conditionals are learned for answers at points."""

    kernels: dict[Any, Kernel]  # with scales to be learned, of nodes that were not given any
    regularization: float | str
    basis: Any

    def learn(self, s: Any, operator: ConditionalOperator) -> ConditionalOperator | None:
        """The conditional of an operator's rows given s; None if its kernel was named."""
        if s not in self.kernels or operator.seen is None:
            return None
        rows, target = operator.seen, operator.target
        pairs = Pairs(
            rows.x, rows.y, self.kernels[s], target.kernel_, (self.basis, target), rows.weights
        )
        return fit_pairs(pairs, self.regularization).operator


@dataclass(frozen=True, eq=False)
class Network:
    """All that was learned: a node for each variable, two operators for each edge."""

    layout: TreeLayout
    nodes: dict[Any, Node]
    operators: dict[tuple[Any, Any], ConditionalOperator]  # (t, s): P(t | s), for messages
    least: float  # of a message, whose mean is 1: estimates of small ones may be negative
    learner: AnswerLearner | None = None  # None in files of versions that had none
    #: The places of the rows of P(t | s) among those of t, where it has not all of them.
    places: dict[tuple[Any, Any], np.ndarray] | None = None

    def answer(self, t: Any, s: Any) -> ConditionalOperator | None:
        """P(t | s) given a point of s, with a kernel that is learned for it when first asked.

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
            known = found is not None and speaks(found)
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


class NodeBelief(Predictive):
    """The distribution of a node given a point of its neighbour.

    Expectations of functions are those of its points and probabilities too: the kernel was learned
    for the mean, and the weights of the operator may say little of other functions.
    """

    @classmethod
    def of_answer(cls, operator: ConditionalOperator, points: Points) -> Embedding:
        """The answers of a conditional at checked points, a batch."""
        answer = operator.answer_at(points, operator.quiet_features(points))
        return cls.of(answer, lambda _: answer.shape) if isinstance(answer, Predictive) else answer

    def expect(self, f: Any) -> Any:
        """`E[f(X)]` for a function of points, all at once; linear for an embedding."""
        if isinstance(f, Embedding):
            return super().expect(f)
        found = []
        for points, p in self.beliefs():
            values = to_numpy(function_values(f, asarray(points, self.kind))).astype(np.float64)
            found.append(np.tensordot(p, values, axes=1))
        return self._answer(np.stack(found))

    def part(self, answer: Embedding, rows: np.ndarray) -> NodeBelief:
        """Some of the distributions, whose weights are those of `answer`."""
        return NodeBelief.of(answer, lambda _: self.shape[rows])


@dataclass(eq=False)
class Inference:
    """Messages under evidence, computed when asked for and kept."""

    network: Network
    evidence: dict[Any, Array]  # coordinates of the points, (b, r) or (1, r)
    names: dict[Any, bytes]  # the evidence's points in a form to recognise them by
    known: dict[Any, Array]  # messages, shared by all questions of a model
    points: dict[Any, Points] = field(default_factory=dict)  # the evidence itself
    _sources: dict[Any, list[Any]] = field(default_factory=dict)

    def is_silent(self, name: Any) -> bool:
        """Whether evidence lies so far outside the data that it says nothing."""
        return np.array_equal(
            to_numpy(self.evidence[name][0]), to_numpy(self.network.nodes[name].mean)
        )

    def belief(self, q: Any) -> Embedding:
        """The distribution of a node given the evidence, a batch."""
        assert q not in self.evidence
        sources, keys = self._gather(q)
        node = self.network.nodes[q]
        if not sources:
            return node.embedding(node.weights)
        if len(sources) == 1 and not self._is_cut(sources[0], q):
            t = sources[0]
            answer = self.network.answer(q, t) if t in self.points else None
            if answer is not None:
                points = self.points[t]
                return NodeBelief.of_answer(answer, points)
            operator = self.network.operators[q, t]
            return operator.embedding(self._cavity(t, q, keys))
        weights = self._product(q, sources, keys)
        return node.embedding(weights, weights @ node.coordinates)

    def messages(self, q: Any, apart: Any) -> list[Array]:
        """The messages to a node from all sides with evidence but one."""
        sources, keys = self._gather(q)
        return [self._message(t, q, keys) for t in sources if t != apart]

    def suitability(self, messages: list[Array], psi: Array, rows: np.ndarray) -> np.ndarray:
        """The product of messages at rows of coordinates, each point with the number of its row."""
        product = np.ones(len(rows))
        for beta in messages:
            beta = take(beta, rows if beta.shape[0] > 1 else np.zeros_like(rows))
            values = to_numpy(namespace(psi).sum(beta * psi, axis=1))
            product = product * np.maximum(values, self.network.least)
        return product

    def _gather(self, q: Any) -> tuple[list[Any], dict[Any, Any]]:
        """Neighbours beyond which there is evidence, and a name for the message of every node.

        Messages from where several meet are made on the way, the farthest first, so that none
        waits for a long row of others.
        """
        families = self.network.layout.families
        keys: dict[Any, Any] = {}
        sources: dict[Any, list[Any]] = {}
        for t, s in self.network.layout.towards(q):
            here = self.evidence.get(t)
            beyond = [] if here is not None else sources.get(t, [])
            if t in families and s in families[t] and t[1] not in beyond:
                beyond = []  # parents say nothing of each other until their child is seen
            if s is None:
                return beyond, keys
            if here is None and not beyond:
                continue
            sources.setdefault(s, []).append(t)
            # by their places: names may have equal hashes, as -1 and -2 have
            where = self.network.numbers[t], self.network.numbers[s]
            keys[t] = hash((*where, self.names.get(t), tuple(keys[u] for u in beyond)))
            self._sources = sources
            if len(beyond) > 1:
                self._message(t, s, keys)
        raise AssertionError("a tree ends at its root")

    def _way(self, what: str, t: Any, s: Any, keys: dict[Any, Any]) -> list[tuple[Any, Any]]:
        """The steps to (t, s) from where something is known: evidence, a meeting, an answer."""
        steps = [(t, s)]
        while (what, keys[t]) not in self.known and t not in self.evidence:
            beyond = self._sources[t]
            if len(beyond) > 1:
                break
            t, s = beyond[0], t
            steps.append((t, s))
        return steps[::-1]

    def _message(self, t: Any, s: Any, keys: dict[Any, Any]) -> Array:
        """The message from t to s: coefficients (b, r_s) of a function of x_s."""
        for a, b in self._way("message", t, s, keys):
            key = ("message", keys[a])
            if key in self.known:
                continue
            operator = self.network.operators[a, b]
            if a in self.evidence:
                inverse = self.network.operators[b, a].inverse
                beta = (self.evidence[a] @ inverse) @ operator.matrix
            elif len(self._sources[a]) == 1 and not self._is_valued(self._sources[a][0], a):
                beta = self.known["message", keys[self._sources[a][0]]] @ operator.matrix
            else:
                product = self._positive(a, self._sources[a], keys)
                places = (self.network.places or {}).get((a, b))
                beta = operator.image(product.T if places is None else take(product.T, places))
            self.known[key] = self._scaled(beta, a, b)
        return self.known["message", keys[t]]

    def _scaled(self, beta: Array, t: Any, s: Any) -> Array:
        """A message of mean one; where its mean is not positive it is noise, and says nothing."""
        xp = namespace(beta)
        mean = (beta @ self.network.nodes[s].mean)[:, None]
        if bool(xp.all(mean > 0)):
            return beta / mean
        operator = self.network.operators[t, s]
        nothing = operator.image(xp.ones_like(operator.target_rows[:, :1]))
        return xp.where(mean > 0, beta / xp.where(mean > 0, mean, xp.ones_like(mean)), nothing)

    def _is_valued(self, t: Any, s: Any) -> bool:
        """Whether the message from t is known by its values at the rows of s."""
        return self._is_heard(t, s) or self._is_cut(t, s)

    def _is_heard(self, t: Any, s: Any) -> bool:
        """Whether evidence at t says something of s by its density."""
        return t in self.points and self.network.likelihood(t, s) is not None

    def _is_cut(self, t: Any, s: Any) -> bool:
        """Whether t is a family of s, and all other members are known points."""
        members = self.network.layout.families.get(t, ())
        return s in members and all(u in self.points for u in members if u != s)

    def _positive(self, t: Any, beyond: list[Any], keys: dict[Any, Any]) -> Array:
        """The product of the messages to t at its rows, (b, n), cut off below."""
        node = self.network.nodes[t]
        xp = namespace(node.coordinates)
        product = None
        for u in beyond:
            values = self._values(u, t, keys)
            least = asarray(self.network.least, values)
            values = xp.where(values > least, values, least)
            product = values if product is None else product * values
        assert product is not None
        return product

    def _values(self, u: Any, t: Any, keys: dict[Any, Any]) -> Array:
        """The message from u at the rows of t, (b, n), of mean one."""
        node = self.network.nodes[t]
        if not self._is_valued(u, t):
            return self._message(u, t, keys) @ node.coordinates.T
        key = ("values", keys[u])
        if key not in self.known:
            if self._is_cut(u, t):
                values = self._cut(u, t, keys)
            else:
                likelihood = self.network.likelihood(u, t)
                assert likelihood is not None
                values = likelihood(self.points[u])
            mean = values @ to_numpy(node.weights)
            nothing = mean <= np.finfo(float).tiny  # far outside the data
            mean = np.where(nothing, 1.0, mean)[:, None]
            values = np.where(nothing[:, None], 1.0, values / mean)
            self.known[key] = asarray(values, node.coordinates)
        return self.known[key]

    def _cut(self, family: Any, t: Any, keys: dict[Any, Any]) -> np.ndarray:
        """What the child says of each row of a parent, the others being known: (b, n)."""
        network, child = self.network, family[1]
        node, members = network.nodes[t], network.layout.families[family]
        heard = network.likelihood(child, family) if child in self.points else None
        beta = self._message(child, family, keys) if heard is None else None
        sizes = [count(self.points[u]) for u in members if u != t]
        sizes.append(count(self.points[child]) if beta is None else beta.shape[0])
        found = []
        for i in range(max(sizes)):
            points = tuple(
                node.points
                if u == t
                else take(self.points[u], np.full(count(node.points), i % count(self.points[u])))
                for u in members
            )
            if heard is not None:
                z = self.points[child]
                z = take(z, np.array([i % count(z)]))
                found.append(replace(heard, points=points)(z)[0])
            elif beta is not None:
                psi = as_coordinates(network.nodes[family], points)
                found.append(to_numpy(psi @ beta[i % beta.shape[0]]))
        return np.stack(found)

    def _product(self, q: Any, beyond: list[Any], keys: dict[Any, Any]) -> Array:
        """A node's weights under messages from several sides, (b, n)."""
        node = self.network.nodes[q]
        weights = node.weights * self._positive(q, beyond, keys)
        xp = namespace(weights)
        total = xp.sum(weights, axis=1)
        warn_of_conflict(q, to_numpy(total))
        none = total <= NOTHING
        if bool(xp.any(none)):
            parts = [self._positive(q, [u], keys) for u in beyond]
            mixed = node.weights * sum(parts[1:], parts[0])
            weights = xp.where(none[:, None], mixed, weights)
            total = xp.sum(weights, axis=1)
        return weights / xp.where(total > 0, total, xp.ones_like(total))[:, None]

    def _cavity(self, t: Any, s: Any, keys: dict[Any, Any]) -> Array:
        """The embedding of t given the evidence that is not beyond s, (b, r_t)."""
        for a, _ in self._way("belief", t, s, keys):
            key = ("belief", keys[a])
            if key in self.known:
                continue
            beyond = self._sources.get(a, [])
            if a in self.evidence:
                self.known[key] = self.evidence[a]
            elif len(beyond) == 1:
                before = self.known["belief", keys[beyond[0]]]
                self.known[key] = before @ self.network.operators[a, beyond[0]].matrix.T
            else:
                weights = self._product(a, beyond, keys)
                self.known[key] = weights @ self.network.nodes[a].coordinates
        return self.known["belief", keys[t]]


def warn_of_conflict(name: Any, ratio: np.ndarray) -> None:
    """Warn where evidence on different sides of a node contradicts itself.

    The ratio is the density of the evidence together over that of independent evidence. If the
    model holds it is below ε in at most a share ε of all rows.
    """
    against = ratio < CONFLICT
    if not against.any():
        return
    least = float(ratio.min())
    answered = " Where no value suits any of it, the mean over the sides is answered."
    warn(
        f"the evidence on different sides of {name!r} conflicts in {int(against.sum())} of "
        f"{len(ratio)} queries: together it is {least:.2g} times as likely as if its parts had "
        f"nothing to do with each other, and below {CONFLICT} few rows are."
        + (answered if least <= NOTHING else ""),
        DataWarning,
    )
