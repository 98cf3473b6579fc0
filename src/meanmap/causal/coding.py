"""Variables of any kind as columns of numbers on a common scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Points, take, to_numpy
from meanmap.kernels import Kernel
from meanmap.kernels.bandwidths import MEDIAN
from meanmap.kernels.defaults import as_kernel

INDICATOR = 0.5  # the scale of a column that says whether a row has a label
FEW = 10  # different values up to which a variable is taken for one with levels


@dataclass(frozen=True)
class VariableCoding:
    """How a variable becomes columns: numbers over their deviation, one indicator per label.

    A label of two needs one indicator. New points are checked against the first ones, columns of a
    frame by their names.
    """

    kernel: Kernel  # whose gate reads the points
    example: Points
    levels: tuple[np.ndarray | None, ...]  # labels, None for numbers
    centre: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, value: Any, name: str) -> tuple[VariableCoding, np.ndarray]:
        """The coding of a sample, and its columns."""
        kernel = as_kernel(MEDIAN, value, name)
        points = kernel.check(value, name)
        levels, columns = [], []
        for part in _parts(points):
            host = to_numpy(part)
            labels = host.ndim == 1 or host.dtype.kind not in "fiu"
            found = np.unique(host) if labels else None
            levels.append(found)
            columns.append(_columns(part, found, name))
        raw = np.hstack(columns)
        numeric = np.concatenate(
            [np.full(c.shape[1], found is None) for c, found in zip(columns, levels, strict=True)]
        )
        deviation = raw.std(axis=0)
        varies = deviation > 1e-12 * abs(raw).max(axis=0, initial=0.0)
        scale = np.where(numeric, np.where(varies, deviation, 1.0), INDICATOR)
        coding = cls(kernel, take(points, slice(0, 1)), tuple(levels), raw.mean(axis=0), scale)
        return coding, (raw - coding.centre) / scale

    def read(self, value: Any, name: str) -> np.ndarray:
        """The columns of new points."""
        points = self.kernel.check(value, name, self.example)
        pairs = zip(_parts(points), self.levels, strict=True)
        raw = np.hstack([_columns(part, found, name) for part, found in pairs])
        return (raw - self.centre) / self.scale

    @property
    def names(self) -> tuple[str, ...] | None:
        """The columns of the frame that the variable came in."""
        return None if self.kernel.names is None else tuple(map(str, self.kernel.names))

    @property
    def is_number(self) -> bool:
        """Whether it is one column of numbers."""
        return len(self.levels) == 1 and self.levels[0] is None and len(self.scale) == 1


def _parts(points: Points) -> tuple[Any, ...]:
    return points if isinstance(points, tuple) else (points,)


def _columns(part: Any, levels: np.ndarray | None, name: str) -> np.ndarray:
    host = to_numpy(part)
    if levels is None:
        return host.astype(np.float64)
    unknown = np.setdiff1d(host, levels)
    if len(unknown):
        shown = ", ".join(map(repr, levels[:10].tolist()))
        raise ValueError(
            f"{name}: the label {unknown.tolist()[0]!r} was not among those of the fit ({shown}). "
            "Leave out such rows, or fit on data that have them."
        )
    used = levels[1:] if len(levels) == 2 else levels
    return (host[:, None] == used).astype(np.float64)


def read_outcome(value: Any, name: str = "outcome") -> np.ndarray:
    """One number per row."""
    y = to_numpy(checks.vectors(value, name)).astype(np.float64)
    if y.shape[1] != 1:
        raise ValueError(
            f"{name}: expected one number per row, got {y.shape[1]} columns. Fit one model per "
            "column."
        )
    return y[:, 0]


def has_levels(columns: np.ndarray) -> bool:
    """Whether rows take few values, each of them often."""
    values, counts = np.unique(columns[:, 0] if columns.shape[1] == 1 else columns, axis=0,
                               return_counts=True)  # fmt: skip
    return len(values) <= FEW and int(counts.min()) > 1
