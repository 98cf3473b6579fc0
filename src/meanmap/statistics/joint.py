"""dHSIC of several variables, as sums that do not cancel.

With h the row means of a Gram matrix K and c their mean, dHSIC is the mean over i, j of
Πₖ K(i, j) - Πₖ h(i) - Πₖ h(j) + Πₖ c (Pfister et al. 2018). Far from the origin, or with a kernel
wider than the data, that is a small difference of large products. So D(i, j), which is all of it,
is built up variable by variable from the centred matrix K̃ = K - h(i) - h(j) + c and u = h - c.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations

import numpy as np

from meanmap.arrays import TILE, Points, count, spans, take
from meanmap.kernels import Kernel
from meanmap.statistics.tiles import ROUNDINGS, diagonal_of

PRECISE = 1e-9  # of dHSIC's terms: up to this rounding of the products is too small to matter


class JointGrams:
    """The Gram matrices of several variables, kept where they fit into `memory` bytes."""

    def __init__(self, kernels: list[Kernel], samples: list[Points], memory: int) -> None:
        self._kernels, self._samples = kernels, samples
        self.n, self.variables = count(samples[0]), len(samples)
        pairs = list(zip(kernels, samples, strict=True))
        self._grams = None
        if 8 * self.n**2 * (self.variables + 2) <= memory:
            self._grams = [np.asarray(k.gram_matrix(p, p)) for k, p in pairs]
        self._h = self._row_means([np.zeros(self.n)] * self.variables)
        self._c = [float(h.mean()) for h in self._h]
        self.size, self.slack, products = self._sizes([diagonal_of(k, p) for k, p in pairs])
        # what is taken off rows and columns, in two steps; None where products are exact enough
        self._heights = None
        if products > PRECISE * self.size:
            heights = [h - c / 2 for h, c in zip(self._h, self._c, strict=True)]
            # once more: what rounding left of the means would be multiplied by large numbers
            left = [e - e.mean() / 2 for e in self._row_means(heights)]
            self._heights = [np.stack(both) for both in zip(heights, left, strict=True)]

    def _row_means(self, heights: list[np.ndarray]) -> list[np.ndarray]:
        """The mean of every row of K - t(i) - t(j), one array per variable."""
        found = []
        for k, t in enumerate(heights):
            rows = [(K() - t[i, None] - t).mean(axis=1) for i, K in self._stretches(k, None)]
            found.append(np.concatenate(rows))
        return found

    def _stretches(
        self, variable: int, order: np.ndarray | None
    ) -> Iterator[tuple[slice, Callable[[], np.ndarray]]]:
        """A Gram matrix with its rows and columns in some order, in stretches of whole rows.

        Each is a function that computes it, so that few are in memory at a time.
        """
        if self._grams is not None:
            K = self._grams[variable]
            yield slice(0, self.n), lambda: K if order is None else K[order][:, order]
            return
        points = self._samples[variable]
        points = points if order is None else take(points, order)
        compare = self._kernels[variable].against(points)
        for block in spans(self.n, max(1, TILE // self.n)):
            yield block, partial(compare, take(points, block), slice(None), None)

    def _sizes(self, diagonals: list[np.ndarray]) -> tuple[float, float, float]:
        """The size of dHSIC's terms; what rounding does to it, and to products as they are."""
        whole = np.array([np.mean(np.abs(diagonal)) for diagonal in diagonals])
        traces = [d.mean() - c for d, c in zip(diagonals, self._c, strict=True)]
        spread = np.maximum(traces, 0.0)
        rounding = ROUNDINGS * np.finfo(float).eps * whole
        size = slack = 0.0
        for k, m in combinations(range(self.variables), 2):
            others = float(np.prod(np.delete(whole, [k, m])))
            size += others * spread[k] * spread[m]
            slack += others * (spread[k] * rounding[m] + rounding[k] * (spread[m] + rounding[m]))
        return size, slack, float(ROUNDINGS * np.finfo(float).eps * np.prod(whole))

    def value(self, orders: Sequence[np.ndarray | None] | None = None) -> float:
        """dHSIC with the rows of every variable in an order, None being their own."""
        orders = [None] * self.variables if orders is None else orders
        if self._heights is not None:
            return self._built_up(self._heights, orders)
        total = 0.0
        for parts in zip(*map(self._stretches, range(self.variables), orders), strict=True):
            product = parts[0][1]()
            for _, K in parts[1:]:
                product = product * K()
            total += float(product.sum())
        moved = [h if order is None else h[order] for h, order in zip(self._h, orders, strict=True)]
        return total / self.n**2 + float(np.prod(self._c) - 2 * np.prod(moved, axis=0).mean())

    def _built_up(self, heights: list[np.ndarray], orders: Sequence[np.ndarray | None]) -> float:
        at = [slice(None) if order is None else order for order in orders]
        t = [mine[:, order] for mine, order in zip(heights, at, strict=True)]
        u = [h[order] - c for h, c, order in zip(self._h, self._c, at, strict=True)]
        total = 0.0
        for parts in zip(*map(self._stretches, range(self.variables), orders), strict=True):
            i = parts[0][0]
            G = [K() - h[i, None] - h for (_, K), (h, _) in zip(parts, t, strict=True)]
            G = [K - e[i, None] - e for K, (_, e) in zip(G, t, strict=True)]
            D, a, C = G[0], u[0], self._c[0]
            for centred, v, c in zip(G[1:], u[1:], self._c[1:], strict=True):
                # a is Πh - Πc so far and C is Πc, for rows i and all columns
                D = (D + a[i, None] + a + C) * centred + D * (v[i, None] + v + c)
                D += a[i, None] * v + v[i, None] * a
                a, C = a * (v + c) + C * v, C * c
            total += float(D.sum())
        return total / self.n**2
