"""Wealth over time: the mean of what several bettors make of one unit each.

Each bettor's wealth is a martingale under the null hypothesis, and so is their mean. By Ville's
inequality (1939) it ever reaches 1/α with probability α at most, however long one looks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meanmap.monitoring.bets import Bettor, log_sum

KEPT = 512  # places of the path that are kept
EVERY = 16  # bettors learn after each 1/16 of what they have seen, and …
MOST = 512  # … at least after so many units


@dataclass(frozen=True, eq=False)
class Path:
    """A function of time, at no more than 2 KEPT evenly spaced places."""

    values: np.ndarray
    stride: int = 1

    def extend(self, before: int, values: np.ndarray) -> Path:
        """With the values at times before + 1, before + 2, …"""
        stride, kept = self.stride, self.values
        first = -(before + 1) % stride
        kept = np.concatenate([kept, values[first::stride]])
        while len(kept) > 2 * KEPT:
            kept, stride = kept[1::2], 2 * stride
        return Path(kept, stride)

    @property
    def times(self) -> np.ndarray:
        """When the function had these values."""
        return self.stride * np.arange(1, len(self.values) + 1)


@dataclass(frozen=True, eq=False)
class Wealth:
    """What several bettors have, in logarithms; units are pairs of rows, or groups of pairs."""

    bettors: tuple[tuple[int, Bettor], ...]  # with the view that each looks at
    logs: np.ndarray
    waiting: tuple[Any, ...] = ()  # features of every view, bet on and not yet learned from
    units: int = 0
    learned: int = 0  # units that were learned from
    best: float = 0.0  # the largest log of the mean wealth so far
    path: Path = Path(np.zeros(0))

    @classmethod
    def start(cls, bettors: Sequence[tuple[int, Bettor]]) -> Wealth:
        """One unit in all."""
        return cls(tuple(bettors), np.zeros(len(bettors)))

    @property
    def log_mean(self) -> float:
        """The log of the mean wealth, which is the e-value."""
        return float(log_sum(self.logs, 0) - np.log(len(self.logs)))

    @property
    def shares(self) -> np.ndarray:
        """What each bettor has of all wealth."""
        return np.exp(self.logs - log_sum(self.logs, 0))

    def advance(self, views: list[Any], count: int) -> Wealth:
        """After bets on so many more units, in their order, given the features of every view.

        The answer does not depend on how units are cut into calls.
        """
        now, at = self, 0
        while at < count:
            due = now.learned + min(max(now.learned // EVERY, 1), MOST)
            stop = min(at + due - now.units, count)
            now = now._bet([_cut_units(view, at, stop, count) for view in views], stop - at)
            at = stop
            if now.units == due:
                now = now._learn()
        return now

    def _bet(self, views: list[Any], count: int) -> Wealth:
        gains = np.array([bettor.bet(views[i]) for i, bettor in self.bettors])
        logs = self.logs[:, None] + np.cumsum(gains, axis=1)
        mean = log_sum(logs, 0) - np.log(len(logs))
        held = tuple(map(_append, self.waiting, views)) if self.waiting else tuple(views)
        return replace(
            self,
            logs=logs[:, -1],
            waiting=held,
            units=self.units + count,
            best=max(self.best, float(mean.max())),
            path=self.path.extend(self.units, mean),
        )

    def _learn(self) -> Wealth:
        bettors = tuple((i, bettor.learn(self.waiting[i])) for i, bettor in self.bettors)
        return replace(self, bettors=bettors, waiting=(), learned=self.units)


def _cut_units(view: Any, start: int, stop: int, count: int) -> Any:
    """Some units of a view's features; a unit may be several rows."""
    return _each(lambda part: part[len(part) // count * start : len(part) // count * stop], view)


def _append(*views: Any) -> Any:
    return _each(lambda *parts: np.concatenate(parts), *views)


def _each(function: Callable[..., np.ndarray], *views: Any) -> Any:
    return tuple(map(function, *views)) if isinstance(views[0], tuple) else function(*views)
