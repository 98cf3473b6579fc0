"""Points of a variable drawn given the value of a neighbour.

The weights of a conditional embedding are as wide as its kernel, so that values drawn with them
depend on each other less than those of the data, and less with every edge. Numbers are drawn as
`m(x) + R` instead: the conditional mean at x, and the residual of a row near x. What is near adapts
to the data, so that the spread and the shape of the residuals may depend on x.
Labels are drawn with the probabilities that the embedding gives to each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from meanmap import checks, decoding
from meanmap.arrays import Array, Points, asarray, concatenate, namespace, take, to_numpy
from meanmap.conditional.operator import ConditionalOperator
from meanmap.embeddings import Embedding, GridEmbedding
from meanmap.graphical.messages import Inference, warn_of_conflict
from meanmap.graphical.nodes import as_coordinates

NEAR = 0.5  # residuals of the n**NEAR nearest rows; 0.4 to 0.7 are alike on eight laws, n ≤ 1000
EQUAL = 1e-12  # of the largest squared distance: rounding
DIGITS = 9  # to which coordinates of equal labels agree
BLOCK = 256  # rows at a time

Weigh = Callable[[Points, np.ndarray], np.ndarray]  # of points, each with the number of its row


def draw_rows(
    inference: Inference, n: int, rng: np.random.Generator, wanted: Sequence[Any]
) -> dict[Any, Points]:
    """n points of each wanted variable given the evidence, one point a node, row by row.

    From the evidence outwards, each variable given the neighbour that was drawn before it; without
    evidence from the first that is wanted.
    """
    network, layout = inference.network, inference.network.layout
    speaking = [name for name in inference.evidence if not inference.is_silent(name)]
    order = layout.outwards([*speaking, *wanted])
    drawn = {name: take(at, np.zeros(n, dtype=int)) for name, at in inference.points.items()}
    needed = set(wanted)
    for name in reversed(order):
        if name in needed and name not in drawn:
            needed.update(order[name])
    coordinates = dict(inference.evidence)
    conditionals: dict[Any, LocalConditional] = {}
    for name in order:
        if name in drawn or name not in needed:
            continue
        near = next(
            (t for t in layout.neighbours[name] if t in coordinates and t in speaking), None
        )
        if near is not None:
            pair = network.operators[name, near], network.operators[near, name]
            conditionals[name] = LocalConditional(*pair)
        parts = []
        for start in range(0, n, BLOCK):
            rows = np.arange(start, min(start + BLOCK, n))
            some = {t: psi if len(psi) == 1 else take(psi, rows) for t, psi in coordinates.items()}
            part = Inference(network, some, {}, {}, {})
            if near is None:
                parts.append(draw_belief(part, name, len(rows), rng))
            else:
                found, ratio = draw_given(part, conditionals[name], name, near, len(rows), rng)
                parts.append(found)
                if near in inference.evidence and start == 0:
                    warn_of_conflict(name, ratio[:1])
        drawn[name] = concatenate(parts)
        speaking.append(name)
        coordinates[name] = as_coordinates(network.nodes[name], drawn[name])
        for family, members in layout.families.items():
            if name in members and all(member in drawn for member in members):
                points = tuple(drawn[member] for member in members)
                coordinates[family] = as_coordinates(network.nodes[family], points)
                speaking.append(family)
    return {name: drawn[name] for name in wanted}


def draw_belief(inference: Inference, name: Any, n: int, rng: np.random.Generator) -> Points:
    """n values of a variable of which no neighbour is known: from its weights' positive part."""
    belief = inference.belief(name)
    p = positive_weights(belief.weights if belief.is_batch else belief.weights[None, :])
    index = decoding.draw(p, n, rng)[0] if len(p) == 1 else decoding.draw(p, 1, rng)[:, 0]
    return take(belief.atoms, index)


def draw_given(
    inference: Inference,
    conditional: LocalConditional,
    name: Any,
    near: Any,
    n: int,
    rng: np.random.Generator,
) -> tuple[Points, np.ndarray]:
    """n values of a variable given a neighbour's, and what evidence on other sides says.

    And how likely that evidence is given the neighbour, over how likely it is at all.
    """
    psi = inference.evidence[near]
    psi = namespace(psi).broadcast_to(psi, (n, psi.shape[1]))
    messages = inference.messages(name, near)

    def weigh(points: Points, rows: np.ndarray) -> np.ndarray:
        there = as_coordinates(inference.network.nodes[name], points)
        return inference.suitability(messages, there, rows)

    return conditional.draw(psi, rng, weigh if messages else None)


def positive_weights(weights: Any) -> np.ndarray:
    """The positive part of weights, normalised row by row; equal where nothing is positive."""
    p = np.maximum(to_numpy(weights).astype(np.float64), 0.0)
    total = p.sum(axis=1, keepdims=True)
    return np.where(total > 0, p / np.where(total > 0, total, 1.0), 1 / p.shape[1])


@dataclass(frozen=True, eq=False)
class LocalConditional:
    """P(t | s) to draw from, given the operators of an edge both ways."""

    operator: ConditionalOperator  # P(t | s)
    reverse: ConditionalOperator  # P(s | t), of the same rows

    def draw(
        self, psi: Array, rng: np.random.Generator, weigh: Weigh | None = None
    ) -> tuple[Points, np.ndarray]:
        """A point of t for each row of coordinates of s.

        `weigh` says how well points suit what else is known of t in their rows, on average 1; its
        mean in each row is returned, too.
        """
        numbers = self.operator.target.kernel_.on_vectors
        p = self._nearness(psi) if numbers else self._probabilities(psi)
        ratio = np.ones(len(p))
        if weigh is not None:
            i, j = np.nonzero(p)
            suits = np.zeros_like(p)
            suits[i, j] = p[i, j] * weigh(self._candidates(psi, i, j), i)
            ratio = suits.sum(axis=1) / p.sum(axis=1)
            p = np.where(ratio[:, None] > 0, suits, p)
        j = decoding.draw(p, 1, rng)[:, 0]
        return self._candidates(psi, np.arange(len(j)), j), ratio

    def _candidates(self, psi: Array, i: np.ndarray, j: np.ndarray) -> Points:
        """What row j of the data says of t given row i of psi."""
        operator = self.operator
        if not operator.target.kernel_.on_vectors:
            return take(operator.atoms, j)
        centre, image, residuals = self._regression
        found = (centre + to_numpy(psi @ image.T))[i] + residuals[j]
        for k, column in enumerate(to_numpy(operator.atoms).T):
            found[:, k] = nearest_values(np.unique(column), found[:, k])
        return asarray(found, operator.atoms)

    @cached_property
    def _regression(self) -> tuple[np.ndarray, Array, np.ndarray]:
        """The mean of t, the coefficients of m(x) less that, and the residual of each row.

        The residual over √(1 - h), h the row's leverage: it has the variance of the noise, where
        the residual of the fit has less and that of leave-one-out more.
        """
        operator = self.operator
        values = to_numpy(operator.atoms).astype(np.float64)
        w = to_numpy(operator.scale).astype(np.float64)
        centre = w @ values / w.sum()
        about = asarray(values - centre, operator.scale)
        image = operator.image(about)
        inside = values - centre - to_numpy(self.reverse.target_rows @ image.T)
        outside = values - centre - to_numpy(operator.leave_one_out(about))
        return centre, image, np.sign(outside) * np.sqrt(np.abs(inside * outside))

    def _nearness(self, psi: Array) -> np.ndarray:
        """How near each row's value of s is, from 0 beyond the nearest few: Epanechnikov's kernel.

        Distances are the kernel's. Where more rows are equal than the few, all those count.
        """
        rows = to_numpy(self.reverse.target_rows).astype(np.float64)
        w, x = to_numpy(self.operator.scale).astype(np.float64), to_numpy(psi).astype(np.float64)
        norms = (rows * rows).sum(axis=1)
        squares = norms + (x * x).sum(axis=1)[:, None] - 2 * x @ rows.T
        squares = np.where(w > 0, np.maximum(squares, 0.0), np.inf)
        few = min(int(np.ceil((w > 0).sum() ** NEAR)), len(w) - 1)
        radius = np.partition(squares, few, axis=1)[:, few : few + 1]
        equal = EQUAL * norms.max()
        near = np.where(
            radius > equal,
            np.maximum(1 - squares / np.maximum(radius, equal), 0.0),
            squares <= equal,
        )
        near = near * w
        return np.where(near.sum(axis=1, keepdims=True) > 0, near, np.maximum(w, 0.0))

    def _probabilities(self, psi: Array) -> np.ndarray:
        """The probability of each row's label: weights may cancel among equal ones only."""
        weights = to_numpy(psi @ self.operator.row_images.T).astype(np.float64)
        order, starts = self._labels
        p = np.zeros_like(weights)
        p[:, order[starts]] = np.maximum(np.add.reduceat(weights[:, order], starts, axis=1), 0.0)
        w = np.maximum(to_numpy(self.operator.scale), 0.0)
        return np.where(p.sum(axis=1, keepdims=True) > 0, p, w)

    @cached_property
    def _labels(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows sorted by their labels, and where each label begins."""
        rows = np.round(to_numpy(self.operator.target_rows).astype(np.float64), DIGITS) + 0.0
        group = np.unique(rows, axis=0, return_inverse=True)[1].ravel()
        order = np.argsort(group, kind="stable")
        return order, np.flatnonzero(np.diff(group[order], prepend=-1))


def nearest_values(known: np.ndarray, values: np.ndarray) -> np.ndarray:
    """For each value the nearest of some sorted ones."""
    above = np.minimum(np.searchsorted(known, values), len(known) - 1)
    low, high = known[np.maximum(above - 1, 0)], known[above]
    return np.where(values - low < high - values, low, high)


class PairEmbedding(GridEmbedding):
    """The joint embedding of two nodes, whose pairs are drawn along the tree between them."""

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
