"""Searches for the set of features on which a target depends most, and the paths they take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap import plots
from meanmap.learning.subset_dependence import Subsets


@dataclass(frozen=True, eq=False)
class SelectionPath:
    """How the dependence changes with the number of features in play.

    Attributes
    ----------
    n_features : array
        How many features were in play, in the order of the search.
    dependence : array
        HSIC of these features and the target, with the kernel resolved on them; for the lasso the
        penalty λ at which so many have coefficients.
    name : str
        What `dependence` is.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import HSICSelector
    >>> X = np.random.default_rng(0).normal(size=(100, 4))
    >>> path = HSICSelector(2, random_state=0).fit(X, X[:, 1] + X[:, 3] ** 2).path_
    >>> type(path).__name__
    'SelectionPath'
    """

    n_features: np.ndarray
    dependence: np.ndarray
    name: str = "HSIC"

    def __repr__(self) -> str:
        best = int(np.argmax(self.dependence)) if len(self.dependence) else 0
        return (
            f"SelectionPath({len(self.n_features)} steps, {self.n_features.min()} … "
            f"{self.n_features.max()} features; largest {self.name} "
            f"{self.dependence[best]:.3g} at {self.n_features[best]})"
        )

    def plot(self, ax: Any = None, chosen: int | None = None) -> Any:
        """The dependence against the number of features, on matplotlib axes or new ones."""
        ax = plots.axes(ax)
        order = np.argsort(self.n_features, kind="stable")
        ax.plot(self.n_features[order], self.dependence[order], ".-", color=plots.BLUE)
        if chosen is not None:
            ax.axvline(chosen, color=plots.ORANGE, linewidth=1, label=f"{chosen} selected")
            ax.legend()
        ax.set(xlabel="features in play", ylabel=self.name)
        if self.n_features.max() > 20:
            ax.set_xscale("log")
        return ax


def rounds(d: int, k: int | None, step: Callable[[int], int], method: str) -> list[int]:
    """How many sets are judged in each round of a search."""
    found, left = [], d
    if method == "backward":
        while left > 0:
            found.append(left)
            left -= removal_count(left, k, step)
        return found
    while left > 0 and (k is None or d - left < k):
        found.append(left)
        left -= addition_count(d - left, left, k, step)
    return found


def removal_count(left: int, k: int | None, step: Callable[[int], int]) -> int:
    """How many of the features in play go: never past the number asked for in one step."""
    return min(step(left), left - k if k is not None and left > k else left)


def addition_count(chosen: int, left: int, k: int | None, step: Callable[[int], int]) -> int:
    """How many features come to those chosen."""
    return min(step(chosen), left if k is None else min(left, k - chosen))


def eliminate(
    subsets: Subsets, free: np.ndarray, k: int | None, step: Callable[[int], int]
) -> tuple[np.ndarray, np.ndarray, SelectionPath]:
    """BAHSIC (Song et al. 2012, algorithm 1), to the last feature: best first, scores, path."""
    scores = np.zeros(subsets.X.shape[1])
    out: list[int] = []
    S, counts, values = free, [], []
    while len(S):
        kernel = subsets.resolve(S)  # σ ← Ξ
        whole, without = subsets.of(S, kernel), subsets.without(S, kernel)
        scores[S] = whole - without
        counts.append(len(S))
        values.append(whole)
        # those without which most is left; of equals the first to be given stay longest
        worst = np.lexsort((-S, -without))[: removal_count(len(S), k, step)]
        out.extend(S[worst])
        S = np.delete(S, worst)
    return np.array(out[::-1], dtype=int), scores, as_path(counts, values)


def accumulate(
    subsets: Subsets, free: np.ndarray, k: int | None, step: Callable[[int], int]
) -> tuple[np.ndarray, np.ndarray, SelectionPath]:
    """FOHSIC (Song et al. 2012, algorithm 2): best first, those not taken by their last score."""
    scores = np.zeros(subsets.X.shape[1])
    S, rest = np.zeros(0, dtype=int), free
    counts, values, so_far = [], [], 0.0
    limit = len(free) if k is None else min(k, len(free))
    while len(S) < limit:
        gained = subsets.with_each(S, rest)
        scores[rest] = gained - so_far
        order = np.lexsort((rest, -gained))
        taken = order[: addition_count(len(S), len(rest), k, step)]
        S, rest = np.append(S, rest[taken]), rest[np.sort(order[len(taken) :])]
        so_far = subsets.of(S, subsets.kernel.resolve(subsets.X[np.ix_(subsets.some, S)]))
        counts.append(len(S))
        values.append(so_far)
    left = rest[np.lexsort((rest, -scores[rest]))]
    return np.concatenate([S, left]), scores, as_path(counts, values)


def as_path(counts: list[int], values: list[float]) -> SelectionPath:
    return SelectionPath(np.array(counts or [1], dtype=int), np.array(values or [0.0]))
