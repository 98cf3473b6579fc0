"""What an observed number says of the variable beside it: its density given each value of that.

The density of x_t given x_s is that of the conditional's answer by residuals, for all rows of s at
once: residuals are smoothed on a grid, row by row with the weights that they have there, and what
is observed is looked up. A message is this density over its mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from meanmap import decoding
from meanmap.arrays import Points, to_numpy
from meanmap.conditional.beliefs import TINY
from meanmap.conditional.operator import ConditionalOperator
from meanmap.conditional.ranges import or_one
from meanmap.conditional.shape import FEW, ResidualsAt, ResidualShape, scales_of

STEP = 0.5  # of a bandwidth: cells of the grid
CELLS = 600  # at most
BEYOND = 4.0  # bandwidths that the grid reaches beyond the residuals


def speaks(operator: ConditionalOperator) -> bool:
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
        """The density of residuals over their scale on a grid, a row a point or one for all."""
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
        # as `residual_density`: a new one lies beyond all others once in so many times
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
