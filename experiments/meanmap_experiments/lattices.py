"""Lattices with potentials of many modes, and their truth: exact on three columns, by long Gibbs
sampling on a torus."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import networkx as nx
import numpy as np
from scipy.sparse import csr_array

from meanmap_experiments.fields import (
    Bins,
    Densities,
    Field,
    Jumps,
    Tabulated,
    Template,
    scaled,
)

SPAN = 6.0  # values lie between -SPAN and SPAN
NOTHING, SIGNED, FOLDED = range(3)


@dataclass(frozen=True, eq=False)
class Sightings:
    """What is seen at the nodes: nothing, the value or its size without the sign, with noise."""

    kinds: np.ndarray
    seen: np.ndarray
    noise: float = 0.3

    @classmethod
    def of(cls, values: np.ndarray, rng: np.random.Generator) -> Sightings:
        kinds = rng.choice(3, size=values.shape, p=(0.3, 0.4, 0.3))
        clean = np.where(kinds == FOLDED, abs(values), values)
        return cls(kinds, clean + cls.noise * rng.normal(size=values.shape))

    def __call__(self, nodes: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Log-likelihoods, as a field's unary potential."""
        kinds, seen = self.kinds[nodes][:, None], self.seen[nodes][:, None]
        apart = np.where(kinds == FOLDED, abs(values), values) - seen
        return np.where(kinds == NOTHING, 0.0, -0.5 * (apart / self.noise) ** 2)

    def callables(self, names: list[Any]) -> dict[Any, Callable[[np.ndarray], np.ndarray]]:
        """A likelihood function of points (m, 1) for each node where something is seen."""

        def likelihood(i: int) -> Callable[[np.ndarray], np.ndarray]:
            return lambda points: np.exp(self(np.array([i]), np.asarray(points).reshape(1, -1))[0])

        return {name: likelihood(i) for i, name in enumerate(names) if self.kinds[i] != NOTHING}


@dataclass(frozen=True, eq=False)
class Lattice:
    """Nodes with two modes; neighbours that are equal or differ by a step, up to noise.

    Examples
    --------
    >>> lattice = Lattice.drawn(3, 3, False, np.random.default_rng(0))
    >>> lattice.graph.number_of_edges(), len(lattice.templates)
    (12, 12)
    """

    rows: int
    columns: int
    closed: bool  # a torus: the last neighbours the first, and every node is like any other
    across: Jumps
    down: Jumps
    centres: np.ndarray  # (nodes, 2), of the modes
    shares: np.ndarray  # (nodes,), of the first
    spread: float

    @classmethod
    def drawn(
        cls,
        rows: int,
        columns: int,
        closed: bool,
        rng: np.random.Generator,
        noise: tuple[float, float] = (0.45, 0.6),
    ) -> Lattice:
        """A random one; on a torus the nodes' potentials are all the same."""

        def jumps() -> Jumps:
            aside, step = rng.uniform(0.25, 0.33), rng.uniform(1.6, 2.4)
            shares = (aside, 1 - 2 * aside, aside)
            return Jumps(shares, (-step, 0.0, step), rng.uniform(*noise))

        n = rows * columns
        across, down = jumps(), jumps()
        kinds = 1 if closed else n
        centres = rng.uniform(1.2, 2.0, size=(kinds, 2)) * np.array([-1.0, 1.0])
        shares = rng.uniform(0.35, 0.65, size=kinds)
        centres, shares = (np.broadcast_to(x, (n, *x.shape[1:])) for x in (centres, shares))
        return cls(rows, columns, closed, across, down, centres, shares, 1.0)

    @property
    def count(self) -> int:
        return self.rows * self.columns

    def known(self, nodes: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Logarithms of the nodes' potentials."""
        parts = [
            np.log(share)[:, None]
            - 0.5 * ((values - self.centres[nodes, i][:, None]) / self.spread) ** 2
            for i, share in enumerate((self.shares[nodes], 1 - self.shares[nodes]))
        ]
        return np.logaddexp(*parts)

    @cached_property
    def names(self) -> list[tuple[int, int]]:
        return [(i, j) for i in range(self.rows) for j in range(self.columns)]

    @cached_property
    def templates(self) -> tuple[Template, ...]:
        """A template for each edge, or two on a torus: across and down."""
        at = np.arange(self.count).reshape(self.rows, self.columns)
        if self.closed:
            ends = [(at, np.roll(at, -1, axis=axis)) for axis in (1, 0)]
        else:
            ends = [(at[:, :-1], at[:, 1:]), (at[:-1], at[1:])]
        whole = [
            Template(a.ravel(), b.ravel(), potential)
            for (a, b), potential in zip(ends, (self.across, self.down), strict=True)
        ]
        if self.closed:
            return tuple(whole)
        return tuple(
            Template(t.tails[[i]], t.heads[[i]], t.potential)
            for t in whole
            for i in range(len(t.tails))
        )

    @property
    def graph(self) -> Any:
        """With the number of its template on every edge."""
        graph = nx.Graph()
        graph.add_nodes_from(self.names)
        for number, template in enumerate(self.templates):
            for a, b in zip(template.tails, template.heads, strict=True):
                graph.add_edge(self.names[a], self.names[b], template=number)
        return graph

    @property
    def field(self) -> Field:
        """With the true potentials."""
        return Field(self.count, self.templates, self.known, -SPAN, SPAN)

    def learned(self, potentials: list[Any], prior: Densities) -> Field:
        """With other potentials, one a template."""
        templates = tuple(
            replace(template, potential=potential)
            for template, potential in zip(self.templates, potentials, strict=True)
        )
        return Field(self.count, templates, prior, -SPAN, SPAN)

    def pairs(self, data: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """The values at both ends, a template each; data is (rows, nodes)."""
        return [(data[:, t.tails].ravel(), data[:, t.heads].ravel()) for t in self.templates]

    def samples(self, data: np.ndarray) -> list[np.ndarray]:
        """The values of each group of like nodes."""
        return [data.ravel()] if self.closed else list(data.T)

    @property
    def group(self) -> np.ndarray:
        """The group that each node is of."""
        return np.zeros(self.count, dtype=np.intp) if self.closed else np.arange(self.count)


@dataclass(frozen=True, eq=False)
class Truth:
    """Probabilities of cells: at every node, and of pairs, a template each."""

    bins: Bins
    nodes: np.ndarray
    pairs: list[np.ndarray]
    doubt: float = 0.0  # total variation between halves of a sample

    @property
    def mean(self) -> np.ndarray:
        return self.nodes @ self.bins.centres

    @property
    def deviation(self) -> np.ndarray:
        return np.sqrt(self.nodes @ self.bins.centres**2 - self.mean**2)

    def field(self, lattice: Lattice) -> Field:
        """With potentials p(s, t) / (p(s) p(t)) and p(s): the limit of learning from data."""
        prior = Densities(self.bins, self.nodes / self.bins.widths, np.arange(lattice.count))
        return lattice.learned([Tabulated.ratio(self.bins, p) for p in self.pairs], prior)


# --- three columns --------------------------------------------------------------------------------


class Strip:
    """A lattice of three columns, summed out a node at a time over cells.

    A node's neighbours among those before it in reading order are at most the last three, so sums
    over three nodes at once are enough; they cost the cells' number to the fourth power a node.
    """

    def __init__(self, lattice: Lattice, bins: Bins, evidence: Sightings | None = None) -> None:
        if lattice.columns != 3 or lattice.closed:
            raise ValueError(
                f"exact sums are for open lattices of 3 columns, got {lattice.columns} columns"
                f"{' closed to a torus' if lattice.closed else ''}. Use `Gibbs`."
            )
        self.lattice, self.bins = lattice, bins
        x = bins.centres
        self._u = scaled(lattice.field.everywhere(x, evidence))
        self._h = lattice.across.values(x[:, None], x[None, :])
        self._v = lattice.down.values(x[:, None], x[None, :])

    def _next(self, n: int) -> np.ndarray:
        """What comes with node n but its edge from above: (left neighbour, node)."""
        return self._u[n] * (self._h if n % 3 else np.ones_like(self._h))

    @cached_property
    def _forward(self) -> dict[int, np.ndarray]:
        """Sums over all before, at nodes n - 2, n - 1 and n."""
        u, h = self._u, self._h
        F = u[0][:, None, None] * (h * u[1])[:, :, None] * (h * u[2])[None]
        found = {2: F / F.sum()}
        for n in range(3, self.lattice.count):
            G = np.tensordot(self._v.T, found[n - 1], axes=1)  # over the node above: (d, b, c)
            G = np.moveaxis(G, 0, 2) * self._next(n)[None]
            found[n] = G / G.sum()
        return found

    def sample(self, m: int, rng: np.random.Generator) -> np.ndarray:
        """Independent draws, (m, nodes), anywhere in their cells: the last three nodes, then
        backwards one by one."""
        n, k = self.lattice.count, len(self.bins)
        last = self._forward[n - 1]
        flat = np.searchsorted(np.cumsum(last), rng.random(m) * last.sum())
        at = np.empty((m, n), dtype=np.intp)
        at[:, n - 3 :] = np.column_stack(np.unravel_index(np.minimum(flat, k**3 - 1), last.shape))
        for i in range(n - 1, 2, -1):
            b, c, d = at[:, i - 2], at[:, i - 1], at[:, i]
            p = np.cumsum(self._forward[i - 1][:, b, c].T * self._v[:, d].T, axis=1)
            at[:, i - 3] = (p < rng.random((m, 1)) * p[:, -1:]).sum(axis=1)
        return self.bins.edges[at] + self.bins.widths[0] * rng.random((m, n))

    def truth(self, pairs: bool = False) -> Truth:
        """Marginals of all nodes, and of all pairs if asked for."""
        n, k = self.lattice.count, len(self.bins)
        after = np.ones((k, k, k))
        nodes = np.empty((n, k))
        found: dict[tuple[int, int], np.ndarray] = {}
        for i in range(n - 1, 1, -1):
            joint = self._forward[i] * after
            joint /= joint.sum()
            nodes[i] = joint.sum(axis=(0, 1))
            if i == 2:
                nodes[0], nodes[1] = joint.sum(axis=(1, 2)), joint.sum(axis=(0, 2))
                found[0, 1], found[1, 2] = joint.sum(axis=2), joint.sum(axis=0)
                break
            if i % 3:
                found[i - 1, i] = joint.sum(axis=0)
            ahead = after * self._next(i)[None]  # (b, c, d)
            if pairs:
                both = self._forward[i - 1].reshape(k, -1) @ ahead.reshape(-1, k) * self._v
                found[i - 3, i] = both / both.sum()
            after = np.moveaxis(np.tensordot(ahead, self._v.T, axes=1), 2, 0)  # (a, b, c)
            after /= after.max()
        ends = [(int(t.tails[0]), int(t.heads[0])) for t in self.lattice.templates]
        return Truth(self.bins, nodes, [found[end] for end in ends] if pairs else [])


# --- a torus --------------------------------------------------------------------------------------


class Gibbs:
    """Chains on the cells of a torus, the nodes of one colour of its chessboard at a time."""

    def __init__(
        self,
        lattice: Lattice,
        bins: Bins,
        chains: int,
        rng: np.random.Generator,
        evidence: Sightings | None = None,
    ) -> None:
        if not lattice.closed or lattice.rows % 2 or lattice.columns % 2:
            raise ValueError(
                "colours alternate on a torus with even numbers of rows and columns, got "
                f"{lattice.rows} x {lattice.columns}{'' if lattice.closed else ', open'}."
            )
        self.lattice, self.bins, self.rng = lattice, bins, rng
        n = lattice.count
        self._u = scaled(lattice.field.everywhere(bins.centres, evidence))
        self._tables = [
            Tabulated.of(potential, bins).table for potential in (lattice.across, lattice.down)
        ]
        at = np.arange(n).reshape(lattice.rows, lattice.columns)
        self._beyond = [np.roll(at, -1, axis=axis).ravel() for axis in (1, 0)]
        self._back = [np.roll(at, 1, axis=axis).ravel() for axis in (1, 0)]
        colour = np.add.outer(np.arange(lattice.rows), np.arange(lattice.columns)).ravel() % 2
        self._colours = [np.flatnonzero(colour == i) for i in (0, 1)]
        start = np.cumsum(self._u / self._u.sum(axis=1, keepdims=True), axis=1)
        self.state = (start < rng.random((chains, n, 1))).sum(axis=2)  # from the nodes alone

    def _draw(self, nodes: np.ndarray) -> np.ndarray:
        """Draw the nodes of a colour; their conditional probabilities, (chains, nodes, cells)."""
        k, chains = len(self.bins), len(self.state)
        p = np.broadcast_to(self._u[nodes], (chains, len(nodes), k)).copy()
        for table, beyond, back in zip(self._tables, self._beyond, self._back, strict=True):
            p *= table.T[self.state[:, beyond[nodes]]]
            p *= table[self.state[:, back[nodes]]]
        below = np.cumsum(p, axis=2)
        draw = self.rng.random((chains, len(nodes), 1)) * below[:, :, -1:]
        self.state[:, nodes] = np.minimum((below < draw).sum(axis=2), k - 1)
        return p / below[:, :, -1:]

    def sweep(self, times: int) -> None:
        """Draw every node that many times."""
        for _ in range(times):
            for nodes in self._colours:
                self._draw(nodes)

    def marginals(self, times: int) -> Truth:
        """Averages of conditional probabilities over as many sweeps."""
        k = len(self.bins)
        halves = np.zeros((2, self.lattice.count, k))
        pairs = [np.zeros((k, k)) for _ in self._tables]
        for _ in range(times):
            for nodes in self._colours:
                p = self._draw(nodes)
                for i in (0, 1):
                    halves[i, nodes] += p[i::2].sum(axis=0)
                # neighbours are of the other colour: still where they were
                for total, beyond, back in zip(pairs, self._beyond, self._back, strict=True):
                    total += gathered(self.state[:, beyond[nodes]], p, k).T
                    total += gathered(self.state[:, back[nodes]], p, k)
        halves /= halves.sum(axis=2, keepdims=True)
        doubt = float(abs(halves[0] - halves[1]).sum(axis=1).mean() / 2)
        return Truth(self.bins, halves.mean(axis=0), [p / p.sum() for p in pairs], doubt)

    def sample(self) -> np.ndarray:
        """Where the chains are now, (chains, nodes), anywhere in their cells."""
        return self.bins.edges[self.state] + self.bins.widths[0] * self.rng.random(self.state.shape)


def gathered(at: np.ndarray, p: np.ndarray, k: int) -> np.ndarray:
    """Rows of p summed by where their neighbour is, (k, k)."""
    n = at.size
    places = csr_array((np.ones(n), (at.ravel(), np.arange(n))), shape=(k, n))
    return np.asarray(places @ p.reshape(n, k))
