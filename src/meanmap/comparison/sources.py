"""Statistics that are drawn under the null, and how several kernels make one statistic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import log_ndtr

from meanmap import checks
from meanmap.arrays import for_each_thread
from meanmap.comparison.results import TIE, Draws, Null
from meanmap.progress import progress_bar

AT_ONCE = 80  # draws of a sequential test between two looks
COMBINATIONS = ("soft", "max", "fuse", "min-p")
SHARPNESS = 0.8  # how near to their maximum several kernels' evidence is combined
NO_DOUBT = 20.0  # evidence beyond which more changes nothing
FEW = 20  # draws, of which none is left out
LEAST = 0.01  # of the whole variance: what is left without the largest counts as so much
SKEWNESS = (0.05, 2.8)  # of a normal variable, nearly, to a chi-square's of one degree of freedom


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
    values: np.ndarray, scales: np.ndarray, weights: np.ndarray, how: str
) -> np.ndarray:
    """One statistic per column from those of several kernels, one per row; one column is observed.

    Whatever is symmetric in the columns keeps a permutation test exact, so each row may be
    standardised by its own mean, deviation and skewness over all of them. Rows that hardly vary (a
    constant variable, a kernel so narrow that all points are strangers) say nothing, and neither
    do those of weight 0.

    With p the p-value of a kernel by its moments, "soft" is the logarithm of Σ w p^-0.8, which is
    near the best of them and counts the others that point the same way. "max" is the largest
    standardised value. "fuse" is the soft maximum of MMD-FUSE (Biggs, Schrab and Gretton 2023).
    "min-p" is the smallest p-value of any kernel, by its rank among the columns, over its weight,
    as MMDAgg and HSICAgg (Schrab et al. 2023) take it.
    """
    spread = values.std(axis=1)
    useful = (spread > 10 * TIE * scales) & (weights > 0)
    if not useful.any():
        return np.zeros(values.shape[1])
    values, weights = values[useful], weights[useful, None] / weights[useful].sum()
    if how == "soft":
        return _soft_maximum(np.log(weights) + SHARPNESS * evidence(values))
    z = (values - values.mean(axis=1, keepdims=True)) / spread[useful, None]
    if how == "max":
        return z.max(axis=0)
    if how == "fuse":
        return _soft_maximum(np.log(weights) + z)
    # how many columns reach this one, its near-ties included
    order = np.sort(z, axis=1)
    reached = [
        len(row) - np.searchsorted(row, value - TIE, side="left")
        for row, value in zip(order, z, strict=True)
    ]
    return -np.log(np.min(reached / weights, axis=0) / (len(z) * z.shape[1]))


def strongest(values: np.ndarray, scales: np.ndarray, weights: np.ndarray) -> int:
    """The kernel whose observed value, in the first column, stands out most.

    Of several that leave no doubt, the one that was thought most likely.
    """
    useful = np.flatnonzero((values.std(axis=1) > 10 * TIE * scales) & (weights > 0))
    if not len(useful):
        return 0
    clear = np.minimum(evidence(values[useful])[:, 0], NO_DOUBT)
    weighed = np.log(weights[useful]) + SHARPNESS * clear
    return int(useful[np.argmax(weighed)])


def evidence(values: np.ndarray) -> np.ndarray:
    """-log p of values that vary, a row per kernel, from the moments of all but its largest.

    The statistics are nearly sums of chi-squares, whose cube roots are nearly normal (Wilson and
    Hilferty 1931). The largest of n would hide itself: it is √n deviations away at most from a mean
    that it takes part in.
    """
    n, c = values.shape[1], values - values.mean(axis=1, keepdims=True)
    c /= c.std(axis=1, keepdims=True)
    top = c.max(axis=1, keepdims=True) if n > FEW else np.zeros((len(c), 1))
    rest = n - 1 if n > FEW else n
    mean = -top / rest
    variance = np.maximum((n - top**2) / rest - mean**2, LEAST)
    third = (np.sum(c**3, axis=1, keepdims=True) - top**3) / rest - 3 * mean * variance - mean**3
    skewness = np.clip(third / variance**1.5, *SKEWNESS)
    z = (c - mean) / np.sqrt(variance)
    # the root is cut where it is so steep that rounding would part ties
    root = np.cbrt(np.maximum(skewness * z / 2 + 1, 0.02))
    return -log_ndtr(-(6 / skewness * (root - 1) + skewness / 6))


def _soft_maximum(rows: np.ndarray) -> np.ndarray:
    """The logarithm of the sum of exponentials, over the rows."""
    top = rows.max(axis=0)
    return top + np.log(np.sum(np.exp(rows - top), axis=0))


# --- drawing --------------------------------------------------------------------------------------


class Source:
    """A statistic under one or several kernels, observed and under random permutations."""

    #: How the null is drawn, in a word or two.
    kind: str
    #: The size of the sums that rounding acts on, one per kernel.
    scales: np.ndarray
    #: How much each kernel is thought likely to see what there is; all alike by default.
    weights: np.ndarray | None = None
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
    combine: str = "soft",
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
        weights = np.ones(len(table)) if source.weights is None else source.weights
        values, scale = combine_kernels(table, source.scales, weights, combine), 1.0
        best = strongest(table, source.scales, weights)
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
