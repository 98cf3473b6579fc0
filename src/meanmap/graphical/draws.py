"""Draw rows from a tree: each variable given the value of a neighbour.

The weights of a conditional embedding are as wide as its kernel: values drawn with them would
depend on each other less than in the data, and less with every edge. Numbers are drawn from the
conditional's answers by residuals instead (`meanmap.conditional.shape`), and moved to the nearest
value in their column. Labels are drawn by the probabilities that the embedding gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from meanmap import checks, decoding
from meanmap.arrays import Points, asarray, concatenate, count, take, to_numpy
from meanmap.conditional.operator import ConditionalOperator
from meanmap.conditional.shape import ShapeAt
from meanmap.embeddings import Embedding, GridEmbedding
from meanmap.graphical.messages import Inference, warn_of_conflict
from meanmap.rules import positive_part

DIGITS = 9  # coordinates of equal labels agree to so many
BLOCK = 256  # rows at a time

Weigh = Callable[[Points, np.ndarray], np.ndarray]  # of points, each with the number of its row


def draw_rows(
    inference: Inference, n: int, rng: np.random.Generator, wanted: Sequence[Any]
) -> dict[Any, Points]:
    """n points of each wanted variable given the evidence, which is one point per node.

    Variables are drawn from the evidence outwards, each given the neighbour drawn before it;
    without evidence, starting with the first wanted one.
    """
    network, layout = inference.network, inference.network.layout
    speaking = [name for name in inference.evidence if not inference.is_silent(name)]
    order = layout.outwards([*(name for name in speaking if name not in layout.families), *wanted])
    drawn = dict(inference.points)
    needed = set(wanted)
    for name in reversed(order):
        if name in needed and name not in drawn:
            needed.update(order[name])
    coordinates = dict(inference.evidence)
    for name in order:
        if name in drawn or name not in needed:
            continue
        near = next((t for t in layout.neighbours[name] if t in drawn and t in speaking), None)
        conditional = None
        if near is not None:
            learned = network.answer(name, near)
            conditional = DrawnConditional(learned or network.operators[name, near])
        parts = []
        for start in range(0, n, BLOCK):
            rows = np.arange(start, min(start + BLOCK, n))
            psi, points = (
                {t: rows_of(at, rows) for t, at in known.items()} for known in (coordinates, drawn)
            )
            part = Inference(network, psi, {}, {}, points)
            if conditional is None:
                parts.append(draw_belief(part, name, len(rows), rng))
            else:
                found, ratio = draw_given(part, conditional, name, near, len(rows), rng)
                parts.append(found)
                if near in inference.evidence and start == 0:
                    warn_of_conflict(name, ratio[:1])
        drawn[name] = concatenate(parts)
        speaking.append(name)
        coordinates[name] = network.nodes[name].coordinates_of(drawn[name])
        for family, members in layout.families.items():
            if name in members and all(member in drawn for member in members):
                drawn[family] = tuple(rows_of(drawn[member], np.arange(n)) for member in members)
                coordinates[family] = network.nodes[family].coordinates_of(drawn[family])
                speaking.append(family)
    return {name: rows_of(drawn[name], np.arange(n)) for name in wanted}


def rows_of(points: Points, rows: np.ndarray) -> Points:
    """Some rows; evidence has a single one, which is repeated."""
    return take(points, rows if count(points) > 1 else np.zeros_like(rows))


def draw_belief(inference: Inference, name: Any, n: int, rng: np.random.Generator) -> Points:
    """n values of a variable without known neighbours, by its weights' positive part."""
    belief = inference.belief(name)
    p = positive_weights(belief.weights if belief.is_batch else belief.weights[None, :])
    index = decoding.draw(p, n, rng)[0] if len(p) == 1 else decoding.draw(p, 1, rng)[:, 0]
    return take(belief.atoms, index)


def draw_given(
    inference: Inference,
    conditional: DrawnConditional,
    name: Any,
    near: Any,
    n: int,
    rng: np.random.Generator,
) -> tuple[Points, np.ndarray]:
    """n values of a variable given a neighbour's values and evidence on other sides.

    Also returns how likely that evidence is given the neighbour, relative to how likely it is
    overall.
    """
    messages = inference.messages(name, near)

    def weigh(points: Points, rows: np.ndarray) -> np.ndarray:
        there = inference.network.nodes[name].coordinates_of(points)
        return inference.suitability(messages, there, rows)

    return conditional.draw(inference.points[near], rng, weigh if messages else None)


def positive_weights(weights: Any) -> np.ndarray:
    """The positive part of weights, normalised row by row; uniform if none is positive."""
    p = to_numpy(weights).astype(np.float64)
    return positive_part(p, np.zeros_like(p))


@dataclass(frozen=True, eq=False)
class DrawnConditional:
    """P(t | s) to draw from."""

    operator: ConditionalOperator

    def draw(
        self, points: Points, rng: np.random.Generator, weigh: Weigh | None = None
    ) -> tuple[Points, np.ndarray]:
        """A point of t for each point of s.

        `weigh` is how well points fit other evidence on t in their rows, 1 on average; its mean in
        each row is returned, too.
        """
        at = self._shape(points)
        if at is not None and weigh is None:
            return self._nearest(at.draw(rng)), np.ones(len(at))
        candidates, p = self._candidates(points, at)
        ratio = np.ones(len(p))
        if weigh is not None:
            i, j = np.nonzero(p)
            suits = np.zeros_like(p)
            suits[i, j] = p[i, j] * weigh(candidates(i, j), i)
            ratio = suits.sum(axis=1) / p.sum(axis=1)
            p = np.where(ratio[:, None] > 0, suits, p)
        j = decoding.draw(p, 1, rng)[:, 0]
        return candidates(np.arange(len(j)), j), ratio

    def _shape(self, points: Points) -> ShapeAt | None:
        """The distributions of numbers at points of s; None if there are only weights."""
        operator = self.operator
        if not operator.scatters:
            return None
        features = operator.quiet_features(points)
        means = to_numpy(operator.mean_of(features)).astype(np.float64)
        return operator.require_shape().at(points, means, operator.told(features))

    def _candidates(
        self, points: Points, at: ShapeAt | None
    ) -> tuple[Callable[[Any, Any], Points], np.ndarray]:
        """The candidates in each row, by row and number, and their probabilities."""
        operator = self.operator
        if at is None:
            p = self._probabilities(operator.quiet_features(points))
            return lambda i, j: take(operator.atoms, j), p
        beliefs = [at.belief(i) for i in range(len(at))]
        p = np.zeros((len(beliefs), max(len(weights) for _, weights in beliefs)))
        values = np.zeros((*p.shape, operator.atoms.shape[1]))
        for i, (own, weights) in enumerate(beliefs):
            p[i, : len(weights)], values[i, : len(weights)] = weights, own
        return lambda i, j: self._nearest(values[i, j]), p

    def _nearest(self, values: np.ndarray) -> Points:
        """Values moved to the nearest ones in their columns."""
        pairs = zip(self._columns, values.T, strict=True)
        found = np.stack([nearest_values(known, column) for known, column in pairs], axis=1)
        return asarray(found, self.operator.atoms)

    @cached_property
    def _columns(self) -> list[np.ndarray]:
        """The distinct values of each column."""
        return [np.unique(column) for column in to_numpy(self.operator.atoms).T]

    def _probabilities(self, features: Any) -> np.ndarray:
        """The probability of each row's value: only weights of equal values are added up."""
        weights = to_numpy(self.operator.answer(features).weights).astype(np.float64)
        order, starts = self._labels
        p = np.zeros_like(weights)
        p[:, order[starts]] = np.maximum(np.add.reduceat(weights[:, order], starts, axis=1), 0.0)
        w = np.maximum(to_numpy(self.operator.scale), 0.0)
        return np.where(p.sum(axis=1, keepdims=True) > 0, p, w)

    @cached_property
    def _labels(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows sorted by value, and the start of each value."""
        rows = np.round(to_numpy(self.operator.target_rows).astype(np.float64), DIGITS) + 0.0
        group = np.unique(rows, axis=0, return_inverse=True)[1].ravel()
        order = np.argsort(group, kind="stable")
        return order, np.flatnonzero(np.diff(group[order], prepend=-1))


def nearest_values(known: np.ndarray, values: np.ndarray) -> np.ndarray:
    """For each value the nearest known one; known values are sorted."""
    above = np.minimum(np.searchsorted(known, values), len(known) - 1)
    low, high = known[np.maximum(above - 1, 0)], known[above]
    return np.where(values - low < high - values, low, high)


class PairEmbedding(GridEmbedding):
    """The joint embedding of two nodes; pairs are drawn along the path between them."""

    def __init__(
        self, first: Embedding, answers: Embedding, inference: Inference, nodes: tuple[Any, Any]
    ) -> None:
        super().__init__(first, answers, inference.network.nodes[nodes[0]].space)
        self._inference, self._nodes = inference, nodes

    def sample(self, n: int, rng: Any = None) -> Points:
        """n pairs of points, drawn as `KernelGraphicalModel.sample` draws rows."""
        n, random = checks.whole(n), checks.random_generator(rng)
        drawn = draw_rows(self._inference, n, random, self._nodes)
        return tuple(drawn[name] for name in self._nodes)
