"""Models whose exact answers are known, and trees of known families that learn them.

Chains and trees with linear, bent and branching edges; inference on a fine grid; the tree of a
Gaussian, and one of bins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import networkx as nx
import numpy as np
from scipy.stats import norm

Columns = Mapping[Any, np.ndarray]

# --- models ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Edge:
    """y given x: with probability `shares[k]` a normal around `curves[k](x)`."""

    curves: tuple[Callable[[np.ndarray], np.ndarray], ...]
    shares: tuple[float, ...]
    noise: float

    def draw(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        branch = rng.choice(len(self.shares), size=len(x), p=self.shares)
        centres = np.stack([curve(x) for curve in self.curves])
        return centres[branch, np.arange(len(x))] + self.noise * rng.normal(size=len(x))

    def density(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """p(y|x) for every pair, (len(x), len(y))."""
        parts = zip(self.shares, self.curves, strict=True)
        return np.asarray(
            sum(s * norm.pdf(y[None, :], curve(x)[:, None], self.noise) for s, curve in parts)
        )


@dataclass(frozen=True, eq=False)
class Model:
    """A directed tree; the root is normal, or uniform on an interval around zero.

    Examples
    --------
    >>> sample = MODELS["banana chain"].sample(1000, np.random.default_rng(0))
    >>> bool(abs(sample["A"]).max() < 1.2)
    True
    """

    name: str
    words: str
    edges: dict[tuple[str, str], Edge]  # (parent, child), parents first
    evidence: tuple[tuple[str, ...], ...]
    span: tuple[float, float]  # of the grid
    slopes: tuple[float, ...] = ()  # of linear edges
    uniform: float = 0.0  # half the interval of a uniform root

    @property
    def linear(self) -> bool:
        return bool(self.slopes)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(node for edge in self.edges for node in edge))

    @property
    def parents(self) -> dict[str, str]:
        return {child: parent for parent, child in self.edges}

    def sample(self, n: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """n rows."""
        root = self.names[0]
        u = self.uniform
        found = {root: rng.uniform(-u, u, size=n) if u else rng.normal(size=n)}
        for (parent, child), edge in self.edges.items():
            found[child] = edge.draw(found[parent], rng)
        return found

    def root_density(self, x: np.ndarray) -> np.ndarray:
        u = self.uniform
        return np.where(abs(x) <= u, 1 / (2 * u), 0.0) if u else np.asarray(norm.pdf(x))

    @cached_property
    def joint(self) -> Normal:
        """The joint distribution of a linear model."""
        names = self.names
        B, D = np.zeros((len(names), len(names))), np.ones(len(names))
        for (parent, child), slope in zip(self.edges, self.slopes, strict=True):
            B[names.index(child), names.index(parent)] = slope
            D[names.index(child)] = self.edges[parent, child].noise ** 2
        root = np.linalg.solve(np.eye(len(names)) - B, np.diag(np.sqrt(D)))
        return Normal(names, np.zeros(len(names)), root @ root.T)


def linear(name: str, edges: dict[tuple[str, str], float], *evidence: tuple[str, ...]) -> Model:
    """Linear edges whose nodes all have a deviation of one."""
    made = {
        pair: Edge((lambda x, a=a: a * x,), (1.0,), float(np.sqrt(1 - a * a)))  # type: ignore[misc]
        for pair, a in edges.items()
    }
    slopes = ", ".join(f"{a:g}" for a in edges.values())
    words = f"{arrows(edges)}; linear and Gaussian with slopes {slopes}, deviations all 1"
    return Model(name, words, made, evidence, (-6.0, 6.0), tuple(edges.values()))


def arrows(edges: Any) -> str:
    return ", ".join(f"{parent} → {child}" for parent, child in edges)


BENT = Edge((lambda x: x**2 - 1,), (1.0,), 0.2)
FORKED = Edge((lambda x: 0.6 * x + 1, lambda x: -0.6 * x - 1), (0.6, 0.4), 0.4)
STEPS = (("A", "B"), ("B", "C"), ("C", "D"))
SPREAD = (("A", "B"), ("A", "C"), ("B", "D"), ("B", "E"))
MODELS = {
    model.name: model
    for model in (
        linear("linear chain", dict.fromkeys(STEPS, 0.8), ("A",), ("D",), ("A", "D"), ("B", "D")),
        linear(
            "linear tree",
            {
                ("A", "B"): 0.8,
                ("A", "C"): -0.8,
                ("B", "D"): 0.9,
                ("B", "E"): 0.7,
                ("C", "F"): -0.9,
                ("C", "G"): 0.7,
            },
            ("D",),
            ("A", "D"),
            ("D", "G"),
            ("D", "E", "F", "G"),
        ),
        Model(
            "banana chain",
            f"{arrows(STEPS)}; A uniform on ±1.2, each next one x² - 1 + noise of deviation 0.2",
            dict.fromkeys(STEPS, BENT),
            (("A",), ("D",), ("A", "D"), ("B", "D")),
            (-2.5, 4.5),
            uniform=1.2,
        ),
        Model(
            "branching tree",
            f"{arrows(SPREAD)}; A standard normal, a child 0.6x + 1 with probability 0.6, "
            "-0.6x - 1 otherwise, with noise of deviation 0.4",
            dict.fromkeys(SPREAD, FORKED),
            (("A",), ("D",), ("C", "D"), ("C", "D", "E")),
            (-6.0, 6.0),
        ),
    )
}


# --- inference on tables --------------------------------------------------------------------------


def belief(
    node: Any,
    parents: Mapping[Any, Any],
    start: Callable[[Any], np.ndarray],
    table: Callable[[Any], np.ndarray],
) -> np.ndarray:
    """A node's distribution by sums and products on a directed tree, not normalised.

    `start` has the root's probabilities and ones for the others; `table(child)` is (parent, child).
    Evidence is a table with a single row or column.
    """

    def beyond(t: Any, s: Any) -> np.ndarray:
        values = start(t)
        for child, parent in parents.items():
            if parent == t and child != s:
                values = values * (table(child) @ beyond(child, t))
        if t in parents and parents[t] != s:
            values = values * (beyond(parents[t], t) @ table(t))
        return values

    return beyond(node, None)


@dataclass(frozen=True, eq=False)
class Grid:
    """The truth of a model, by sums over a grid; evidence need not lie on it."""

    model: Model
    cells: int

    @cached_property
    def points(self) -> np.ndarray:
        low, high = self.model.span
        width = (high - low) / self.cells
        return low + width * (np.arange(self.cells) + 0.5)

    @property
    def width(self) -> float:
        return float(self.points[1] - self.points[0])

    @cached_property
    def _whole(self) -> dict[Edge, np.ndarray]:
        edges = set(self.model.edges.values())
        return {edge: edge.density(self.points, self.points) for edge in edges}

    def density(self, node: str, evidence: Mapping[str, float]) -> np.ndarray:
        """p(node | evidence) at the points."""
        parents = self.model.parents
        at = {name: np.array([value]) for name, value in evidence.items()}

        def start(name: str) -> np.ndarray:
            x = at.get(name, self.points)
            return np.ones(len(x)) if name in parents else self.model.root_density(x)

        def table(child: str) -> np.ndarray:
            parent = parents[child]
            edge = self.model.edges[parent, child]
            if parent not in at and child not in at:
                return self._whole[edge]
            return edge.density(at.get(parent, self.points), at.get(child, self.points))

        p = belief(node, parents, start, table)
        return p / (p.sum() * self.width)


# --- trees of known families ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Normal:
    """A joint normal distribution of named numbers.

    Examples
    --------
    >>> joint = Normal(("a", "b"), np.zeros(2), np.array([[1.0, 0.5], [0.5, 1.0]]))
    >>> mean, deviation = joint.given("b", {"a": np.array([2.0])})
    >>> mean, round(deviation, 3)
    (array([1.]), 0.866)
    """

    names: tuple[Any, ...]
    mean: np.ndarray
    covariance: np.ndarray

    @classmethod
    def tree(cls, data: Columns, edges: Any) -> Normal:
        """Maximum likelihood among the normal distributions of a tree.

        Variances and the covariances along edges are those of the data; a node goes with those
        farther away by way of its neighbour.
        """
        names = tuple(data)
        X = np.column_stack([data[name] for name in names])
        S = np.cov(X.T, bias=True)
        C = np.diag(np.diag(S))
        graph = nx.Graph(list(edges))
        graph.add_nodes_from(names)
        for part in nx.connected_components(graph):
            first = next(iter(part))
            seen = [names.index(first)]
            for before, node in nx.bfs_edges(graph, first):
                p, c = names.index(before), names.index(node)
                C[c, seen] = C[seen, c] = S[c, p] / S[p, p] * C[p, seen]
                seen.append(c)
        return cls(names, X.mean(axis=0), C)

    def given(self, node: Any, evidence: Columns) -> tuple[np.ndarray, float]:
        """A node's mean for each row of evidence, and its deviation, the same for all."""
        q, e = self.names.index(node), [self.names.index(name) for name in evidence]
        V = self.covariance
        gain = np.linalg.solve(V[np.ix_(e, e)], V[e, q])
        values = np.column_stack([evidence[name] for name in evidence])
        variance = V[q, q] - gain @ V[e, q]
        return self.mean[q] + (values - self.mean[e]) @ gain, float(np.sqrt(variance))

    def log_density(self, data: Columns) -> np.ndarray:
        """Of every row."""
        X = np.column_stack([data[name] for name in self.names]) - self.mean
        L = np.linalg.cholesky(self.covariance)
        Z = np.linalg.solve(L, X.T)
        constant = np.log(np.diag(L)).sum() + len(L) * np.log(2 * np.pi) / 2
        return -(Z * Z).sum(axis=0) / 2 - constant


@dataclass(frozen=True, eq=False)
class Binned:
    """A directed tree of binned variables; within a bin the density is flat."""

    parents: dict[Any, Any]
    edges: dict[Any, np.ndarray]  # of the bins
    centres: dict[Any, np.ndarray]  # the mean of the values in each bin
    marginals: dict[Any, np.ndarray]
    tables: dict[Any, np.ndarray]  # (bins of the parent, bins of the child)

    @classmethod
    def fitted(cls, data: Columns, edges: Any, bins: int, smoothing: float = 0.0) -> Binned:
        """Bins of equal frequency; tables of counts, plus `smoothing` a cell."""
        parents = {child: parent for parent, child in edges}
        places = {
            name: np.unique(np.quantile(x, np.linspace(0, 1, bins + 1))) for name, x in data.items()
        }
        index = {name: binned(x, places[name]) for name, x in data.items()}
        centres, marginals, tables = {}, {}, {}
        for name, x in data.items():
            k = len(places[name]) - 1
            counts = np.bincount(index[name], minlength=k)
            middles = (places[name][:-1] + places[name][1:]) / 2
            sums = np.bincount(index[name], x, minlength=k)
            centres[name] = np.where(counts > 0, sums / np.maximum(counts, 1), middles)
            marginals[name] = (counts + smoothing) / (counts + smoothing).sum()
        for child, parent in parents.items():
            pairs = np.full((len(marginals[parent]), len(marginals[child])), smoothing)
            np.add.at(pairs, (index[parent], index[child]), 1.0)
            pairs[pairs.sum(axis=1) == 0] = marginals[child]
            tables[child] = pairs / pairs.sum(axis=1, keepdims=True)
        return cls(parents, places, centres, marginals, tables)

    def given(self, node: Any, evidence: Columns) -> np.ndarray:
        """Probabilities of a node's bins for each row of evidence, (b, bins).

        Where the tables say that the evidence cannot be, those without it.
        """
        places = {name: binned(x, self.edges[name]) for name, x in evidence.items()}
        parents = self.parents
        found = []
        for i in range(len(next(iter(places.values())))):
            at = {name: bins[i : i + 1] for name, bins in places.items()}

            def start(name: Any, at: dict[Any, np.ndarray] = at) -> np.ndarray:
                p = self.marginals[name]
                p = np.ones(len(p)) if name in parents else p
                return p[at[name]] if name in at else p

            def table(child: Any, at: dict[Any, np.ndarray] = at) -> np.ndarray:
                p = self.tables[child]
                p = p[at[parents[child]]] if parents[child] in at else p
                return p[:, at[child]] if child in at else p

            p = belief(node, parents, start, table)
            found.append(p / p.sum() if p.sum() > 0 else self.marginals[node])
        return np.array(found)

    def mean(self, node: Any, evidence: Columns) -> np.ndarray:
        return self.given(node, evidence) @ self.centres[node]

    def density(self, node: Any, evidence: Columns, points: np.ndarray) -> np.ndarray:
        """At the points for each row of evidence, zero outside the bins."""
        edges = self.edges[node]
        inside = (points >= edges[0]) & (points <= edges[-1])
        heights = self.given(node, evidence) / np.diff(edges)
        return np.where(inside, heights[:, binned(points, edges)], 0.0)

    def log_density(self, data: Columns) -> np.ndarray:
        """Of every row; what lies outside the bins counts as in the outermost."""
        places = {name: binned(x, self.edges[name]) for name, x in data.items()}
        with np.errstate(divide="ignore"):
            total = 0.0
            for name, at in places.items():
                p = self.marginals[name][at]
                if name in self.parents:
                    p = self.tables[name][places[self.parents[name]], at]
                total = total + np.log(p / np.diff(self.edges[name])[at])
        return np.asarray(total)


def binned(x: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The bin that each value is in, the outermost for what lies outside."""
    return np.searchsorted(edges[1:-1], x, side="right")
