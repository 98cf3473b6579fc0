"""Relations between answers: another unit, origin or order of rows changes nothing.

`questions.py` asks something of every public name. Its data lie on a grid of 2⁻²⁰, so that an
offset of 2³⁰ and factors of 2^±200 change no digit of them. An answer that is in the units of the
data, or has an entry per row, is brought back to those that it had; what is drawn at random
depends on the order of rows, and is left out where that changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


def on_grid(values: np.ndarray) -> np.ndarray:
    """Rounded to multiples of 2⁻²⁰."""
    return np.round(values * 2**20) / 2**20


@dataclass(frozen=True)
class Change:
    """A relation: rows, or targets, in other units, or in another order."""

    factor: float = 1.0
    offset: float = 0.0
    targets: bool = False
    mixed: bool = False

    def put(self, values: Any) -> Any:
        """Values in the other units."""
        return values * self.factor + self.offset


SCALED, MOVED, MIXED = "units of the rows", "origin of the rows", "order of the rows"
TARGETS_SCALED, TARGETS_MOVED = "units of the targets", "origin of the targets"

RELATIONS: dict[str, tuple[str, Change]] = {
    "rows times 2^200": (SCALED, Change(2.0**200)),
    "rows times 2^-200": (SCALED, Change(2.0**-200)),
    "rows 2^30 away": (MOVED, Change(offset=2.0**30)),
    "rows in another order": (MIXED, Change(mixed=True)),
    "targets times 2^200": (TARGETS_SCALED, Change(2.0**200, targets=True)),
    "targets times 2^-200": (TARGETS_SCALED, Change(2.0**-200, targets=True)),
    "targets 2^30 away": (TARGETS_MOVED, Change(offset=2.0**30, targets=True)),
}


class Data:
    """Rows X and Z of one variable, targets y of X's rows, and ways back from their units."""

    def __init__(self, given: tuple[Any, Any, Any], change: Change, seed: int, applied: bool):
        self._seed, self._mixes = seed, change.mixed
        now = change if applied else Change()
        self._rows = Change() if now.targets else now
        self._targets = now if now.targets else Change()
        X, Z, y = given
        self.X, self.Z = self.row_units(self.mix(X)), self.row_units(Z)
        self.y = self.target_units(self.mix(y))

    @property
    def Y(self) -> Any:
        """The targets as a column."""
        return self.y[:, None]

    @property
    def columns(self) -> dict[str, Any]:
        """A table of both."""
        return {"a": self.X[:, 0], "b": self.X[:, 1], "c": self.y}

    # --- from the units of the grid ---------------------------------------------------------------

    def row_units(self, values: Any) -> Any:
        """Values in the units of the rows; a list of them likewise."""
        if isinstance(values, list):
            return [self._rows.put(part) for part in values]
        return self._rows.put(values) if self._rows != Change(mixed=True) else values

    def target_units(self, values: Any) -> Any:
        """Values in the units of the targets."""
        return self._targets.put(values) if self._targets != Change() else values

    def mix(self, values: Any) -> Any:
        """Rows, or a list of samples, in the order of X's rows."""
        if not self._rows_are_mixed():
            return values
        order = self._order(len(values))
        return [values[i] for i in order] if isinstance(values, list) else values[order]

    def _rows_are_mixed(self) -> bool:
        return self._rows.mixed if hasattr(self, "_rows") else False

    def _order(self, n: int) -> np.ndarray:
        return np.random.default_rng(self._seed).permutation(n)

    # --- and back ---------------------------------------------------------------------------------

    def points(self, found: Any) -> Any:
        """Points among the rows: a mean, a quantile."""
        return (np.asarray(found) - self._rows.offset) / self._rows.factor

    def lengths(self, found: Any, power: int = 1) -> Any:
        """Lengths between rows: a spread; with a power, areas, or densities for a negative one."""
        return np.asarray(found) * self._rows.factor**-power

    def target_points(self, found: Any) -> Any:
        """Points among the targets."""
        return (np.asarray(found) - self._targets.offset) / self._targets.factor

    def target_lengths(self, found: Any, power: int = 1) -> Any:
        """Lengths between targets."""
        return np.asarray(found) * self._targets.factor**-power

    def by_row(self, found: Any) -> Any:
        """One entry per row of X (or sample), in the order of the grid."""
        found = np.asarray(found)
        return found[np.argsort(self._order(len(found)))] if self._rows.mixed else found

    def drawn(self, *found: Any) -> Any:
        """What is drawn row by row: nothing to compare where rows change places."""
        return None if self._mixes else found


def together(labels: np.ndarray) -> np.ndarray:
    """Which pairs have one label: names of clusters say nothing."""
    return labels[:, None] == labels[None]


def tested(result: Any, d: Data) -> Any:
    """What a test says; its p-value comes from draws of rows."""
    return result.statistic, d.drawn(result.pvalue)
