"""MMD of paired samples when the two points of a pair change places."""

from __future__ import annotations

import numpy as np

from meanmap.arrays import Points, concatenate
from meanmap.comparison.bins import Binned, Layout, clusters
from meanmap.comparison.sources import Source
from meanmap.kernels import Kernel
from meanmap.statistics.centring import Centred
from meanmap.statistics.distance import row_by_row
from meanmap.statistics.tiles import diagonal_of

MOST = 1024  # bins of pairs: each has one sign
AT_ONCE = 1 << 21  # signs that are drawn at a time


def pair_bins(n: int, most: int | None, rng: np.random.Generator) -> Layout:
    """Random bins of pairs; X's points of a bin make up one, Y's another."""
    s = min(n, most or MOST)
    where = rng.permutation(np.arange(n) % s)
    return clusters(where, s + where)


class PairFlips(Source):
    """Random signs of pairs, or of random bins of them.

    With h(i, j) = k(xᵢ, xⱼ) + k(yᵢ, yⱼ) - k(xᵢ, yⱼ) - k(xⱼ, yᵢ), MMD is the mean of h over pairs
    (i ≠ j for "U"), and exchanging xᵢ with yᵢ turns h(i, ·) into its negative. Where both points of
    a pair have one distribution in either order, all signs are equally likely. h(i, i) stays the
    same, so that "V" and "U" agree on what is unusual.

    Parameters
    ----------
    gram : Binned, of bins from `pair_bins`
    layout : Layout
    own : (kernels,) the sum of h(i, i), which "U" leaves out; None for "V"
    """

    kind = "pair exchange"

    def __init__(self, gram: Binned, layout: Layout, own: np.ndarray | None) -> None:
        n = int(layout.sizes.sum()) // 2
        self._gram, self._pairs = gram, n * n if own is None else n * (n - 1)
        self._off = np.zeros((1, 1)) if own is None else own[:, None]
        # bins are in order of their size, those of X before those of Y of the same size
        self._bins_of_x = np.flatnonzero(layout.labels == 1)
        self._bins_of_y = np.flatnonzero(layout.labels == 0)
        self.scales = gram.tie_scales(layout)
        s = len(self._bins_of_x)
        self.arrangements = 2 ** (s - 1) if s < 64 else None  # all signs turned change nothing

    def observed(self) -> np.ndarray:
        return self._values(np.ones((len(self._bins_of_x), 1)))[:, 0]

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        s = len(self._bins_of_x)
        if self.arrangements is not None and self.arrangements - 1 <= count:
            numbers = np.arange(1, self.arrangements)
            return self._values(1.0 - 2.0 * ((numbers >> np.arange(s)[:, None]) & 1))
        step = max(1, AT_ONCE // s)
        sizes = [min(step, count - start) for start in range(0, count, step)]
        parts = [self._values(2.0 * rng.integers(2, size=(size, s)).T - 1) for size in sizes]
        return np.concatenate(parts, axis=1)

    def _values(self, signs: np.ndarray) -> np.ndarray:
        weights = np.empty((2 * len(signs), signs.shape[1]))
        weights[self._bins_of_x], weights[self._bins_of_y] = signs, -signs
        return (self._gram.pair_sums(weights) - self._off) / self._pairs


def own_differences(kernels: list[Kernel], X: Points, Y: Points) -> np.ndarray:
    """Σ h(i, i) of every kernel."""
    both = concatenate([X, Y])
    centred = [Centred.of(kernel, both) for kernel in kernels]
    own = [diagonal_of(k, both).sum() - 2 * row_by_row(k, X, Y).sum() for k in centred]
    return np.array(own, dtype=float)
