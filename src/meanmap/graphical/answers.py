"""Answers by residuals on an edge of a tree: P(t | s) where a point of s, or one of t, is known.

Given a point of s the answer is a distribution of t, `NodeBelief`. Given an observed number x_t,
`EdgeLikelihood` is its density given every row of s: residuals are smoothed on a grid, row by row
with the weights they have there, and the observed value is looked up. A message is this density
divided by its mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from meanmap import decoding
from meanmap.arrays import Points, asarray, to_numpy
from meanmap.conditional.beliefs import TINY
from meanmap.conditional.fitting import Pairs, fit_pairs
from meanmap.conditional.operator import ConditionalOperator
from meanmap.conditional.predictive import Predictive
from meanmap.conditional.ranges import or_one
from meanmap.conditional.shape import FEW, ResidualsAt, ResidualShape, scales_of
from meanmap.embeddings import Embedding
from meanmap.embeddings.element import function_values
from meanmap.kernels import Kernel

STEP = 0.5  # of a bandwidth: cells of the grid
CELLS = 600  # at most
BEYOND = 4.0  # bandwidths that the grid reaches beyond the residuals


@dataclass(frozen=True, eq=False)
class AnswerLearner:
    """Learns the conditionals that answer at points, with kernels of their own."""

    kernels: dict[Any, Kernel]  # with scales still to be learned; only nodes without a named kernel
    regularization: float | str
    basis: Any

    def learn(self, s: Any, operator: ConditionalOperator) -> ConditionalOperator | None:
        """The conditional of an operator's rows given s; None if the kernel of s was named."""
        if s not in self.kernels or operator.seen is None:
            return None
        rows, target = operator.seen, operator.target
        bases = self.basis, target
        pairs = Pairs(rows.x, rows.y, self.kernels[s], target.kernel_, bases, rows.weights)
        return fit_pairs(pairs, self.regularization).operator


class NodeBelief(Predictive):
    """The distribution of a node given a point of its neighbour.

    Expectations of functions are taken over its points and probabilities: the kernel was learned
    for the mean, and the operator's weights may be poor for other functions.
    """

    @classmethod
    def of_answer(cls, operator: ConditionalOperator, points: Points) -> Embedding:
        """The answers of a conditional at checked points, a batch."""
        answer = operator.answer_at(points, operator.quiet_features(points))
        return cls.of(answer, lambda _: answer.shape) if isinstance(answer, Predictive) else answer

    def expect(self, f: Any) -> Any:
        """`E[f(X)]` for a function of all points at once; linear for an embedding."""
        if isinstance(f, Embedding):
            return super().expect(f)
        found = []
        for points, p in self.beliefs():
            values = to_numpy(function_values(f, asarray(points, self.kind))).astype(np.float64)
            found.append(np.tensordot(p, values, axes=1))
        return self._answer(np.stack(found))

    def part(self, answer: Embedding, rows: np.ndarray) -> NodeBelief:
        """Some of the distributions, with the weights of `answer`."""
        return NodeBelief.of(answer, lambda _: self.shape[rows])


def has_densities(operator: ConditionalOperator) -> bool:
    """Whether answers are single numbers with residuals, so that values have densities."""
    if not operator.scatters or operator.atoms.shape[1] != 1:
        return False
    return isinstance(operator.shape, ResidualShape)


@dataclass(frozen=True, eq=False)
class EdgeLikelihood:
    """Densities of x_t given values of s, by the answers of P(t | s)."""

    operator: ConditionalOperator
    points: Points  # of s

    @cached_property
    def _at(self) -> tuple[ResidualsAt, np.ndarray]:
        """The answers at the points, and how far each is to be trusted."""
        operator, shape = self.operator, self.operator.shape
        assert isinstance(shape, ResidualShape)
        features = operator.quiet_features(self.points)
        means = to_numpy(operator.mean_of(features)).astype(np.float64)
        own = shape.log_scale
        scales = np.ones_like(means) if own is None else scales_of(own(self.points))
        return shape.trusted(self.points, means, scales), operator.told(features)

    @cached_property
    def _curves(self) -> tuple[np.ndarray, np.ndarray]:
        """The density of scaled residuals on a grid, one row per point, or one for all."""
        at, _ = self._at
        r, W = at.shape.residuals, at.weights
        few = np.linspace(0, len(W) - 1, min(len(W), FEW)).astype(int)
        h = float(np.mean([decoding.widths(r, W[i]) for i in few]))
        mean = W @ r
        spread = or_one(np.sqrt(np.maximum(W @ r**2 - mean**2, 0.0)))
        h = h if h > 0 else TINY * float(np.median(spread))
        low, high = r.min() - BEYOND * h, r.max() + BEYOND * h
        cells = int(np.clip(np.ceil((high - low) / (STEP * h)), 8, CELLS))
        grid = np.linspace(low, high, cells)
        h = max(h, (grid[1] - grid[0]) / 2)
        inner = W @ (np.exp(-0.5 * ((r - grid) / h) ** 2) / (h * (2 * np.pi) ** 0.5))
        # as in `residual_density`: the share of new residuals that lie beyond all known ones
        beyond = 1 / (1 + 1 / (W * W).sum(axis=1, keepdims=True))
        wide = 1 / (np.pi * spread * (1 + ((grid - mean) / spread) ** 2))
        return grid, (1 - beyond) * inner + beyond * wide

    def __call__(self, y: Points) -> np.ndarray:
        """The density (b, n) of each y given each point."""
        (at, trust), (grid, table) = self._at, self._curves
        values = to_numpy(y).astype(np.float64)[:, :1]
        z = (values - at.centres[:, 0]) / at.scales[:, 0]
        place = (z - grid[0]) / (grid[1] - grid[0])
        left = np.clip(np.floor(place), 0, len(grid) - 2).astype(int)
        share = np.clip(place - left, 0.0, 1.0)
        rows = np.zeros(1, dtype=int) if len(table) == 1 else np.arange(len(at.centres))
        found = (1 - share) * table[rows, left] + share * table[rows, left + 1]
        found = found / at.scales[:, 0]
        if (trust < 1).any():
            evidence = at.shape.evidence
            wide = np.asarray(decoding.density(evidence.y, evidence.weights, values))
            found = trust * found + (1 - trust) * wide[:, None]
        return np.asarray(found)
