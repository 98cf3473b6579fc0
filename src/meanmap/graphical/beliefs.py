"""Beliefs: the result of belief propagation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import networkx as nx
import numpy as np

from meanmap import checks, plots
from meanmap.arrays import Array, Points, asarray, in_kind, namespace, take, to_numpy
from meanmap.decoding.densities import density
from meanmap.embeddings import Embedding, embed
from meanmap.frames import in_order
from meanmap.graphical.evidence import FieldEvidence
from meanmap.graphical.passing import Passing, State

SHOWN = 40  # the largest graph that is drawn with labels


def describe_belief(name: Any, belief: Embedding, seen: bool) -> str:
    """A node's name and belief: mean and deviation of numbers, the mode of other values."""
    if not belief.kernel.on_vectors:
        mode = to_numpy(belief.mode())
        words = f"{np.ravel(mode)[0] if seen else mode}"
    elif np.size(mean := to_numpy(belief.mean())) > 1:
        words = ", ".join(f"{x:.3g}" for x in np.ravel(mean))
    elif seen:
        words = f"{float(belief.mean()[0]):.3g}"
    else:
        words = f"{float(belief.mean()[0]):.3g} ± {float(belief.std()[0]):.3g}"
    return f"{name}\n{words}"


@dataclass(frozen=True, eq=False, repr=False)
class Beliefs:
    """The beliefs of all nodes.

    Attributes
    ----------
    converged : bool
        Whether the messages stopped changing.
    residuals : array (iterations,)
        The largest change of a message in each iteration, as a share of its size.
    iterations : int
    mean, std, mode : dict from node
        Of `belief(node)`, for all nodes at once. Only `mode` includes nodes that are not numbers.

    Examples
    --------
    >>> import networkx as nx
    >>> import numpy as np
    >>> from meanmap import BeliefPropagation
    >>> a = np.random.default_rng(0).normal(size=200)
    >>> table = {"a": a, "b": a + 0.1, "c": a - 0.1}
    >>> model = BeliefPropagation(nx.cycle_graph(["a", "b", "c"]), random_state=0).fit(table)
    >>> found = model.run({"a": 1.0})
    >>> bool(abs(found.mean["b"] - 1.1) < 0.2)
    True
    """

    passing: Passing
    known: FieldEvidence
    state: State
    products: list[Array]
    converged: bool
    residuals: np.ndarray

    @property
    def _field(self) -> Any:
        return self.known.potentials.field

    @property
    def iterations(self) -> int:
        return len(self.residuals)

    def belief(self, node: Any) -> Embedding:
        """The distribution of a node: its mean, quantiles, mode, samples, expectations.

        Examples
        --------
        >>> import networkx as nx
        >>> import numpy as np
        >>> from meanmap import BeliefPropagation
        >>> rng = np.random.default_rng(0)
        >>> a = rng.normal(size=500)
        >>> data = {"a": a, "b": a**2 + 0.1 * rng.normal(size=500)}
        >>> model = BeliefPropagation(nx.path_graph(["a", "b"])).fit(data)
        >>> low, high = model.run({"b": 1.0}).belief("a").quantile([0.25, 0.75])[:, 0]
        >>> bool(low < -0.7 and high > 0.7)  # either sign
        True
        """
        v = self._place(node)
        kind = int(self._field.kind[v])
        if not self.known.hidden[v]:
            nodes, points, _ = self.known.observed[kind]
            at = int(np.flatnonzero(nodes == v)[0])
            return embed(take(points, slice(at, at + 1)), kernel=self._node(kind).space.kernel_)
        return self._batches[kind][self._local(kind, v)]

    def _place(self, node: Any) -> int:
        if node not in self._field.place:
            raise ValueError(f"there is no node {node!r} among {len(self._field.nodes)}.")
        return int(self._field.place[node])

    def _node(self, kind: int) -> Any:
        return self.known.potentials.nodes[kind]

    @cached_property
    def _batches(self) -> dict[int, Embedding]:
        """For each kind the beliefs of its hidden nodes, `p(x) Π m(x)` at its sample."""
        found = {}
        for kind, S in enumerate(self.products):
            if not S.shape[0]:
                continue
            xp, node = namespace(S), self._node(kind)
            weights = node.weights * xp.exp(S - xp.max(S, axis=1, keepdims=True))
            weights = weights / xp.sum(weights, axis=1, keepdims=True)
            found[kind] = node.embedding(weights)
        return found

    def _by_node(
        self,
        of_beliefs: Callable[[Embedding], Any],
        of_points: Callable[[Points], Any],
        labels: bool = False,
    ) -> dict[Any, Any]:
        """A value for every node, from its belief or its observed point."""
        values: dict[int, Any] = {}

        def put(nodes: np.ndarray, found: Any, kind: int) -> None:
            if self.known.potentials.flat[kind] and getattr(found, "ndim", 0) == 2:
                found = found[:, 0]
            values.update(zip(nodes.tolist(), found, strict=True))

        for kind, beliefs in self._batches.items():
            if labels or beliefs.kernel.on_vectors:
                put(self.passing.wiring.hidden[kind], of_beliefs(beliefs), kind)
        for kind, (nodes, points, _) in self.known.observed.items():
            if labels or self._node(kind).space.kernel_.on_vectors:
                put(nodes, of_points(points), kind)
        return {self._field.nodes[v]: values[v] for v in sorted(values)}

    @cached_property
    def mean(self) -> dict[Any, Any]:
        return self._by_node(lambda e: e.mean(), lambda points: points)

    @cached_property
    def std(self) -> dict[Any, Any]:
        return self._by_node(lambda e: e.std(), lambda points: 0 * points)

    @cached_property
    def mode(self) -> dict[Any, Any]:
        return self._by_node(lambda e: e.mode(), lambda points: points, labels=True)

    def interval(self, level: float = 0.9) -> dict[Any, tuple[Any, Any]]:
        """For each node the ends of the interval that holds this share of its belief."""
        low = self._by_node(lambda e: e.interval(level)[0], lambda points: points)
        high = self._by_node(lambda e: e.interval(level)[1], lambda points: points)
        return {node: (low[node], high[node]) for node in low}

    def density(self, node: Any, x: Any) -> Array:
        """The density (of labels the probability) of a hidden node at points x.

        `p(x) Π m(x)` with a kernel density estimate of the marginal p (Song et al. 2013, 5.1.2).

        Examples
        --------
        >>> import networkx as nx
        >>> import numpy as np
        >>> from meanmap import BeliefPropagation
        >>> rng = np.random.default_rng(0)
        >>> a = rng.normal(size=500)
        >>> data = {"a": a, "b": a**2 + 0.1 * rng.normal(size=500)}
        >>> found = BeliefPropagation(nx.path_graph(["a", "b"])).fit(data).run({"b": 1.0})
        >>> left, middle, right = found.density("a", [[-1.0], [0.0], [1.0]])
        >>> bool(middle < 0.3 * min(left, right))
        True
        """
        v = self._place(node)
        if not self.known.hidden[v]:
            raise ValueError(f"{node!r} is observed: its belief is a point, without a density.")
        kind = int(self._field.kind[v])
        learned = self._node(kind)
        kernel = learned.space.kernel_
        points, _ = kernel.rows(in_order(x, kernel.names, "x"), learned.space.example_, "x")
        top = namespace(learned.weights).max(self.products[kind][self._local(kind, v)])
        weights = to_numpy(learned.weights)

        def product(at: Points) -> Array:
            logs = self._product(v, at) - top
            return namespace(logs).exp(logs)

        if not kernel.on_vectors:
            whole = weights @ to_numpy(product(learned.points))
            return learned.embedding(learned.weights)(points) * product(points) / whole
        learned_widths = (self.known.potentials.widths or {}).get(kind)
        h = learned.widths if learned_widths is None else learned_widths
        # the integral, from 2d points around each point of the sample, normalises the density
        d = len(h)
        whole = 0.0
        for j, width in enumerate(h):
            step = np.zeros((1, d))
            step[0, j] = width * d**0.5
            for side in (-1, 1):
                moved = learned.points + asarray(side * step, learned.points)
                whole += float(weights @ to_numpy(product(moved))) / (2 * d)
        return density(learned.points, weights, points, h) * product(points) / whole

    def _local(self, kind: int, v: int) -> int:
        """The place of a hidden node among those of its kind."""
        return int(np.searchsorted(self.passing.wiring.hidden[kind], v))

    def _product(self, v: int, points: Points) -> Array:
        """log of everything known of a hidden node, at any of its values.

        Between and beyond the points of the sample, a message is at most its maximum on them.
        """
        kind = int(self._field.kind[v])
        i, node, potentials = self._local(kind, v), self._node(kind), self.known.potentials
        psi = node.coordinates_of(points)
        xp = namespace(psi)
        slots = np.flatnonzero(self.passing.wiring.link[kind][i] >= 0)
        beta, power = self.known.heard(v)
        beta = xp.concat([beta, take(self.state[kind][i], slots)])
        own = self.passing.powers(kind, np.array([i]))
        own = np.ones(len(slots)) if own is None else own[0, slots]
        power = asarray(np.concatenate([power, own]), psi)
        most = xp.max(potentials.logarithms(beta, node.coordinates), axis=1, keepdims=True)
        logs = potentials.logarithms(beta, psi)
        total = power @ xp.where(logs < most, logs, most)
        return total + self.known.likelihood(v, points)

    # --- for people ---------------------------------------------------------------------------

    def array(self, what: str | Mapping[Any, Any] = "mean") -> Array:
        """`mean`, `std` or `mode` of nodes that are positions (i, j), as an array (rows, columns).

        Or any values by node: `array({node: high - low for node, (low, high) in
        found.interval().items()})`.

        Examples
        --------
        >>> import networkx as nx
        >>> import numpy as np
        >>> from meanmap import BeliefPropagation
        >>> rng = np.random.default_rng(0)
        >>> fields = np.cumsum(rng.normal(size=(300, 2, 3)), axis=2)
        >>> model = BeliefPropagation(nx.grid_2d_graph(2, 3)).fit(fields)
        >>> model.run({(0, 0): 1.0}).array("mean").shape
        (2, 3)
        """
        if isinstance(what, Mapping):
            values, what = dict(what), "value"
        else:
            values = getattr(self, checks.option(what, "what", ["mean", "std", "mode"]))
        places = [place for place in self._places if place in values]
        if not places:
            raise TypeError(
                f"array: no nodes with a {what} are positions (i, j). Labels only have a mode; for "
                "nodes of other names use the dict .mean, .std or .mode."
            )
        plain = np.array([to_numpy(values[place]) for place in places])
        size = tuple(np.max(places, axis=0) + 1)
        gaps = len(places) < size[0] * size[1] and plain.dtype.kind != "f"
        dtype, nothing = (object, None) if gaps else (plain.dtype, plain.flat[0])
        nothing = np.nan if plain.dtype.kind == "f" else nothing
        found = np.full((*size, *plain.shape[1:]), nothing, dtype)
        found[tuple(np.transpose(places))] = plain
        return in_kind(found, values[places[0]])

    @property
    def _places(self) -> list[Any]:
        """The nodes that are pairs of whole numbers; none, if they do not count from 0."""
        pairs = [
            name
            for name in self._field.nodes
            if isinstance(name, tuple)
            and len(name) == 2
            and all(isinstance(i, int | np.integer) for i in name)
        ]
        return pairs if all(min(pair) >= 0 for pair in pairs) else []

    def _is_number(self, node: Any) -> bool:
        kind = int(self._field.kind[self._place(node)])
        return self.known.potentials.flat[kind] and self._node(kind).space.kernel_.on_vectors

    def plot(self, what: str | None = None, ax: Any = None) -> Any:
        """Draw the beliefs: a grid as maps of means and deviations, other graphs with labels.

        Parameters
        ----------
        what : "mean", "std", "mode", "residuals" or None
            What to draw; None draws mean and deviation of a grid side by side.
        ax : matplotlib axes, two of them for None
        """
        if what is not None:
            checks.option(what, "what", ["mean", "std", "mode", "residuals"])
        if what == "residuals":
            return plots.residuals(self.residuals, ax)
        if self._places and all(self._is_number(place) for place in self._places):
            names = ("mean", "std") if what is None else (what,)
            return plots.maps([(name, to_numpy(self.array(name))) for name in names], ax)
        nodes = self._field.nodes
        if len(nodes) > SHOWN:
            raise ValueError(
                f"plot: a graph of {len(nodes)} nodes is too large to draw; only grids with "
                "nodes (i, j) are drawn as maps. Use .mean and .std, or belief(node)."
            )
        labels = {
            name: describe_belief(name, self.belief(name), not self.known.hidden[v])
            for v, name in enumerate(nodes)
        }
        graph = nx.Graph([(nodes[a], nodes[b]) for a, b in self._field.edges])
        graph.add_nodes_from(nodes)
        seen = {name for v, name in enumerate(nodes) if not self.known.hidden[v]}
        return plots.tree(graph, labels, seen, ax)

    def __repr__(self) -> str:
        nodes, seen = len(self._field.nodes), int((~self.known.hidden).sum())
        how = "converged" if self.converged else "not converged"
        return (
            f"Beliefs of {nodes} nodes, {seen} of them observed: {how} after {self.iterations} "
            f"iterations, residual {self.residuals[-1]:.2g}"
        )
