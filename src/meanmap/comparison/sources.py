"""Statistics that are drawn under the null, and how several kernels make one statistic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import for_each_thread
from meanmap.comparison.results import TIE, Draws, Null
from meanmap.progress import progress_bar

AT_ONCE = 80  # draws of a sequential test between two looks


def read_draws(value: Any) -> int:
    """The number of permutations."""
    remedy = "The least p-value is 1/(1 + n_permutations): 999 is usual, and 99 can reject at 1%."
    return checks.whole(value, "n_permutations", 1, remedy)


@dataclass(frozen=True)
class Outcome:
    """A statistic and its null distribution."""

    statistic: float
    null: Null
    best: int = 0  # the kernel that stands out most
    notes: tuple[str, ...] = ()


# --- one statistic of several kernels -------------------------------------------------------------


def combine_kernels(
    values: np.ndarray, scales: np.ndarray, handicaps: np.ndarray, how: str
) -> np.ndarray:
    """One statistic per column from those of several kernels, one per row; one column is observed.

    Whatever is symmetric in the columns keeps a permutation test exact, so each row may be
    standardised by its own mean and deviation over all of them. Rows that hardly vary (a constant
    variable, a kernel so narrow that all points are strangers) say nothing.

    "max" is the largest standardised value, less its kernel's handicap. "fuse" is the soft maximum
    of MMD-FUSE (Biggs, Schrab and Gretton 2023). "min-p" is the smallest p-value of any kernel, as
    MMDAgg and HSICAgg (Schrab et al. 2023) take it, all levels found from one set of permutations.
    """
    spread = values.std(axis=1)
    useful = (spread > 10 * TIE * scales) & np.isfinite(handicaps)
    if not useful.any():
        return np.zeros(values.shape[1])
    values = values[useful]
    z = (values - values.mean(axis=1, keepdims=True)) / spread[useful, None]
    if how == "max":
        return (z - handicaps[useful, None]).max(axis=0)
    if how == "fuse":
        top = z.max(axis=0)
        return top + np.log(np.mean(np.exp(z - top), axis=0))
    # how many columns reach this one, its near-ties included
    order = np.sort(z, axis=1)
    reached = [
        len(row) - np.searchsorted(row, value - TIE, side="left")
        for row, value in zip(order, z, strict=True)
    ]
    return -np.log(np.min(reached, axis=0) / z.shape[1])


def strongest(values: np.ndarray, scales: np.ndarray, handicaps: np.ndarray) -> int:
    """The kernel whose observed value, in the first column, stands out most."""
    spread = values.std(axis=1)
    useful = spread > 10 * TIE * scales
    above = values[:, 0] - values.mean(axis=1)
    return int(np.argmax(np.where(useful, above / np.where(useful, spread, 1.0), 0) - handicaps))


# --- drawing --------------------------------------------------------------------------------------


class Source:
    """A statistic under one or several kernels, observed and under random permutations."""

    #: How the null is drawn, in a word or two.
    kind: str
    #: The size of the sums that rounding acts on, one per kernel.
    scales: np.ndarray
    #: What each kernel must be ahead of the others by.
    handicaps: np.ndarray | None = None
    #: How many distinct arrangements of the data there are, where they are few enough to be drawn.
    arrangements: int | None = None
    #: Whether to show how far it is.
    progress: bool | None = False

    def observed(self) -> np.ndarray:
        """The statistic of the data, one per kernel."""
        raise TypeError(f"{type(self).__name__} observes nothing.")

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """`count` statistics under the null, one row per kernel.

        Fewer only if there are no more distinct arrangements of the data.
        """
        raise TypeError(f"{type(self).__name__} draws nothing.")

    def draw_each(
        self, orders: list[Any], value: Callable[[Any], Any], threads: bool = True
    ) -> np.ndarray:
        """The statistics of every order of the rows, the orders shared out among the threads."""
        out = np.empty((len(self.scales), len(orders)))

        def work(thread: int, of: int) -> None:
            for j in range(thread, len(orders), of):
                out[:, j] = value(orders[j])
                done(1)

        with progress_bar(len(orders), "Permutations", self.progress) as done:
            if threads:
                for_each_thread(work)
            else:
                work(0, 1)
        return out


def simulate(
    source: Source,
    draws: int,
    rng: np.random.Generator,
    combine: str = "max",
    stop: int | None = None,
) -> Outcome:
    """The statistic, its null distribution as draws, and which kernel stands out most.

    With `stop`, drawing ends once so many draws of the one kernel have reached the statistic.
    """
    observed = source.observed()
    if stop is not None and (source.arrangements is None or source.arrangements - 1 > draws):
        value = float(observed[0])
        null = _draw_until(source, value, draws, stop, rng)
        return Outcome(value, null, notes=draw_notes(null, draws, stop))
    table = np.concatenate([observed[:, None], source.draw(draws, rng)], axis=1)
    if len(table) == 1:
        values, scale, best = table[0], float(source.scales[0]), 0
    else:
        handicaps = np.zeros(len(table)) if source.handicaps is None else source.handicaps
        values, scale = combine_kernels(table, source.scales, handicaps, combine), 1.0
        best = strongest(table, source.scales, handicaps)
    null = Draws(source.kind, values[1:], scale)
    return Outcome(float(values[0]), null, best, draw_notes(null, draws))


def _draw_until(
    source: Source, observed: float, most: int, stop: int, rng: np.random.Generator
) -> Draws:
    """Draw until `stop` values reach the observed one, or `most` are drawn.

    The p-value is then `stop` over the number drawn, which is exact too (Besag and Clifford 1991).
    """
    scale = float(source.scales[0])
    slack = TIE * max(abs(observed), scale)
    values: list[float] = []
    reached = 0
    while len(values) < most:
        for value in source.draw(min(AT_ONCE, most - len(values)), rng)[0]:
            values.append(float(value))
            reached += bool(value >= observed - slack)
            if reached == stop:
                return Draws(source.kind, np.array(values), scale, stopped=True)
    return Draws(source.kind, np.array(values), scale)


def draw_notes(found: Draws, asked: int, stop: int | None = None) -> tuple[str, ...]:
    """What a reader should know of the draws: that they ended early, or that there are few."""
    if found.stopped:
        return (f"Stopped after {len(found)} draws, when {stop} had reached the statistic.",)
    if len(found) < asked:
        least = 1 / (1 + len(found))
        return (
            f"There are only {len(found) + 1} distinct arrangements of so few points, all used: no "
            f"p-value can be below {least:.3g}.",
        )
    return ()
