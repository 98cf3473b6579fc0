"""What is learned of a graph, and how messages are sent along its edges.

The product P of the messages to a node t is known at the sample of t. An edge sends on

    m_ts(x_s) = E[P(X_t) | x_s],

the conditional embedding of t given s applied to P (Song, Fukumizu and Gretton 2013, eq. 30 and
Algorithm VI): coefficients β of a function of x_s. An observed x_t sends `(C_tt + λI)⁻¹ ψ(x_t)`, a
delta over the density of X_t, through the same operator. Every message is scaled to mean one.
Trees and graphs with loops share these rules; they differ in the order of sending.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from meanmap.arrays import Array, apply, at_least, epsilon, namespace, take
from meanmap.conditional.operator import ConditionalOperator
from meanmap.graphical.field import RandomField
from meanmap.graphical.nodes import Node

Said = Literal["product", "points", "message"]  # what a message is made of
TYPICAL = 1e-3  # λ for a node without neighbours


@dataclass(frozen=True, eq=False)
class Link:
    """How messages go along a template, from nodes t of one kind to nodes s of another."""

    spread: Array  # (m_t, r_s)
    direct: Array  # (r_t, r_s)
    regularization: float  # λ of P(t | s)

    def of_product(self, product: Array) -> Array:
        """The message of a product (b, m_t) at the sample of t."""
        return product @ self.spread

    def of_points(self, psi: Array) -> Array:
        """The message of observed points of t, in coordinates: their density given x_s over their
        density overall."""
        return psi @ self.direct

    def of_nothing(self) -> Array:
        """E[1 | x_s]."""
        return namespace(self.spread).sum(self.spread, axis=0)


@dataclass(frozen=True, eq=False)
class OperatorLink:
    """The same with the operators themselves, for a tree, which sends few messages at a time."""

    operator: ConditionalOperator  # P(t | s)
    back: ConditionalOperator  # P(s | t)
    places: np.ndarray | None  # positions of the operator's rows among those of t; None for all

    def of_product(self, product: Array) -> Array:
        values = product.T
        return self.operator.image(values if self.places is None else take(values, self.places))

    def of_points(self, psi: Array) -> Array:
        return (psi @ self.back.inverse) @ self.operator.matrix

    def of_message(self, beta: Array) -> Array:
        """A single message passed on, which needs no product on the sample."""
        return beta @ self.operator.matrix

    def of_nothing(self) -> Array:
        return self.operator.mass


class MessageRules(ABC):
    """What is done with messages, on trees and on graphs with loops alike.

    A message has mean one over the distribution of the node that receives it.
    """

    nodes: Any  # a Node for every node or kind of nodes
    links: Any  # an edge in one direction
    least: float  # the smallest value of a message: estimates of small ones may be negative

    @abstractmethod
    def target(self, link: Any) -> Any:
        """The node, or kind of nodes, that receives what goes along a link."""

    def send(self, link: Any, values: Array, said: Said = "product", scaled: bool = True) -> Array:
        """The messages (b, r_s) along a link.

        They are made of products of messages (b, n_t) at the sample, of observed points (b, r_t) in
        coordinates, or of single messages (b, r_t), which need no product on the sample.
        """
        beta = getattr(self.links[link], f"of_{said}")(values)
        return self.scale(beta, link) if scaled else beta

    def nothing(self, link: Any) -> Array:
        """The message along a link when nothing is known, of mean one."""
        beta = self.links[link].of_nothing()
        return beta / (beta @ self.nodes[self.target(link)].mean)

    def scale(self, beta: Array, link: Any) -> Array:
        """Messages of mean one; one whose mean is not positive is noise, and says nothing."""
        mean = (beta @ self.nodes[self.target(link)].mean)[:, None]
        return beta / mean if mean.min() > 0 else divide_or(beta, mean, self.nothing(link))


def divide_or(beta: Array, mean: Array, other: Array) -> Array:
    """Messages over their means; others in place of those whose mean is not positive."""
    xp, good = namespace(beta), mean > 0
    return xp.where(good, beta / xp.where(good, mean, xp.ones_like(mean)), other)


@dataclass(frozen=True, eq=False)
class Potentials(MessageRules):
    """What was learned of a random field."""

    field: RandomField
    nodes: list[Node]  # one per kind
    links: list[Link]  # two per template
    flat: list[bool]  # whether a kind's values are single numbers
    least: float
    #: The widths of density estimates, for kinds that are represented by a grid.
    widths: dict[int, np.ndarray] | None = None

    def target(self, link: int) -> int:
        return self.field.ends(link)[1]

    @cached_property
    def tiny(self) -> float:
        """A number whose logarithm replaces that of zero."""
        return 1e-300 if epsilon(self.nodes[0].coordinates) < 1e-10 else 1e-30

    @cached_property
    def usual_regularizations(self) -> list[float]:
        """The usual λ of regressions on a node of each kind."""
        known: list[list[float]] = [[] for _ in self.nodes]
        for i, link in enumerate(self.links):
            known[self.target(i)].append(link.regularization)
        typical = TYPICAL if self.least else 0.0
        return [float(np.median(some)) if some else typical for some in known]

    def logarithms(self, beta: Array, rows: Array) -> Array:
        """log m(x) of messages (..., r) at rows of coordinates, (..., n).

        Values are cut off at `least`.
        """
        xp = namespace(beta)
        shape = beta.shape
        values = xp.reshape(beta, (-1, shape[-1])) @ rows.T
        logs = apply("log", at_least(values, max(self.least, self.tiny)))
        return xp.reshape(logs, (*shape[:-1], rows.shape[0]))
