"""The range of targets: ends, whole numbers, and a scale on which residuals are added."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit, logit

NATURAL = 0.05  # deviations between 0 or 1 and the nearest target, if that is an end of the range
SEVERAL = 20  # whole numbers of more values than these are moved as others are, and rounded
EDGE = 1e-9  # of the width between two ends


@dataclass(frozen=True, eq=False)
class TargetScale:
    """Between targets and a scale on which residuals are added: log, logit, or as they are."""

    low: np.ndarray  # (k,), the ends of the scale, infinite where targets are taken as they are
    high: np.ndarray
    bottom: np.ndarray  # (k,), which no point leaves
    top: np.ndarray
    whole: np.ndarray  # (k,), columns that are rounded
    few: np.ndarray  # (k,), columns that are not moved
    reflects: bool = False  # at the ends, instead of stopping there

    @classmethod
    def natural(cls, y: np.ndarray) -> TargetScale:
        """Targets as they are, which end at 0, or at 0 and 1, if those seen nearly reach them."""
        low, high, spread = y.min(axis=0), y.max(axis=0), or_one(y.std(axis=0))
        near = (low >= 0) & (low < NATURAL * spread)
        bottom = np.where(near, 0.0, -np.inf)
        top = np.where(near & (high <= 1) & (high > 1 - NATURAL * spread), 1.0, np.inf)
        endless, none = np.full(len(low), np.inf), np.zeros(len(low), dtype=bool)
        return cls(-endless, endless, bottom, top, (y == np.round(y)).all(axis=0), none)

    @classmethod
    def between(
        cls, y: np.ndarray, support: tuple[np.ndarray, np.ndarray], ends: np.ndarray
    ) -> TargetScale:
        """Of a known support, and ends (2, k) that points are reflected at.

        Whole numbers of few values are not moved at all.
        """
        whole = (y == np.round(y)).all(axis=0)
        few = whole & [len(np.unique(column)) <= SEVERAL for column in y.T]
        low, high = np.where(whole, -np.inf, support[0]), np.where(whole, np.inf, support[1])
        return cls(low, high, ends[0], ends[1], whole & ~few, few, True)

    @cached_property
    def plain(self) -> bool:
        """Whether points are those of the scale, but for the ends and rounding."""
        ends = np.isfinite(self.low) | np.isfinite(self.high)
        return not (self.reflects or ends.any() or self.few.any())

    def forward(self, y: np.ndarray) -> np.ndarray:
        """From targets (n, k) to the scale."""
        columns = []
        for x, a, b in zip(y.T, self.low, self.high, strict=True):
            if np.isfinite(a) and np.isfinite(b):
                columns.append(logit(np.clip((x - a) / (b - a), EDGE, 1 - EDGE)))
            elif np.isfinite(a):
                columns.append(np.log(np.maximum(x - a, np.finfo(float).tiny)))
            elif np.isfinite(b):
                columns.append(-np.log(np.maximum(b - x, np.finfo(float).tiny)))
            else:
                columns.append(x)
        return np.column_stack(columns)

    def backward(self, u: np.ndarray) -> np.ndarray:
        """From the scale to targets."""
        columns = []
        for x, a, b in zip(u.T, self.low, self.high, strict=True):
            if np.isfinite(a) and np.isfinite(b):
                columns.append(a + (b - a) * expit(x))
            elif np.isfinite(a):
                columns.append(a + np.exp(x))
            elif np.isfinite(b):
                columns.append(b - np.exp(-x))
            else:
                columns.append(x)
        return np.column_stack(columns)

    def within(self, y: np.ndarray) -> np.ndarray:
        """Points (..., k) brought into the range of the targets."""
        if self.reflects:
            y = np.where(y < self.bottom, 2 * self.bottom - y, y)
            y = np.where(y > self.top, 2 * self.top - y, y)
        y = np.clip(y, self.bottom, self.top)
        return np.where(self.whole, np.round(y), y) if self.whole.any() else y

    def points(self, u: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Points of the range from those of the scale; columns of few values keep their own."""
        y = self.within(self.backward(u))
        return np.where(self.few, own, y) if self.few.any() else y


def or_one(scale: np.ndarray) -> np.ndarray:
    """A scale to divide by: 1 for what does not vary."""
    return np.where(scale > 0, scale, 1.0)
