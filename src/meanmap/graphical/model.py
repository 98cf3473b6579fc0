"""Graphical models over variables of any kind: chains, trees and polytrees."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from meanmap import checks, plots
from meanmap.arrays import Array, Points, count, in_kind, namespace, take, to_numpy
from meanmap.conditional.fitting import check_regularization
from meanmap.conditional.predictive import Predictive
from meanmap.decoding.densities import density
from meanmap.embeddings import Embedding, JointEmbedding, embed
from meanmap.frames import in_order
from meanmap.graphical import latent
from meanmap.graphical.answers import NodeBelief
from meanmap.graphical.beliefs import describe_belief
from meanmap.graphical.draws import PairEmbedding, draw_rows, positive_weights
from meanmap.graphical.edges import LEAST, TreeLearner
from meanmap.graphical.evidence import tree_coordinates, tree_points
from meanmap.graphical.layout import layout_of
from meanmap.graphical.messages import Inference, Network
from meanmap.graphical.structure import chow_liu_tree
from meanmap.graphical.tables import (
    column_values,
    is_missing,
    kernels_of,
    number_column,
    read_columns,
    row_weights,
    table_length,
)
from meanmap.kernels import Delta, Kernel

KEPT = 4096  # messages kept between queries
SMALLEST = 1e-12  # probability that a logarithm is taken of
BLOCK = 256  # queries at a time


class KernelGraphicalModel(BaseEstimator):
    """A tree of variables in which every edge is a conditional embedding.

    The conditional tables of a graphical model become operators, and inference by message passing
    multiplies them (Song, Fukumizu and Gretton 2013, section 5.1). Variables may be of any kind and
    depend on each other in any way; no parametric family is assumed. A query costs a few products
    of small matrices per edge.

    Parameters
    ----------
    graph : networkx.Graph, networkx.DiGraph or None
        Nodes are the columns of the data. A tree or forest; in a DiGraph nodes may have several
        parents (a polytree); their conditional then uses a product of kernels. None learns a tree
        (`chow_liu_tree`).
    kernel : Kernel, dict from node to Kernel, or None
        None chooses by column: for numbers a Gaussian whose scales are learned edge by edge, with
        answers by residuals as in `ConditionalEmbedding`; for labels a delta kernel. With a named
        kernel, the messages and answers of a node are those of the papers.
    regularization : float or "auto"
        λ of every edge's conditional; "auto" chooses it by leave-one-out, edge by edge. 0 is the
        pseudo-inverse: with delta kernels, inference on the tables of frequencies is then exact.
    basis : a basis or None
        How the nodes' spaces get their coordinates.

    Notes
    -----
    One node may be hidden: it has no column, and its number of states is an attribute of the node,
    `graph.nodes["type"]["states"] = 3`. It is learned from its neighbours; with three or more of
    them its states are identified up to their order. The most frequent state comes first.

    Attributes
    ----------
    graph_ : the graph, as given or as learned
    states_ : the probabilities (n, k) of a hidden node's states in each row, or None
    nodes_ : the variables, in order
    edges_ : dict from (t, s) to the fitted ConditionalEmbedding P(t | s)
        The parents of a node together are named ("parents of", node).

    Examples
    --------
    >>> import networkx as nx
    >>> import numpy as np
    >>> from meanmap import KernelGraphicalModel
    >>> rng = np.random.default_rng(0)
    >>> a = rng.normal(size=500)
    >>> b = np.sin(a) + 0.3 * rng.normal(size=500)
    >>> c = b**2 + 0.3 * rng.normal(size=500)
    >>> model = KernelGraphicalModel(nx.DiGraph([("a", "b"), ("b", "c")]))
    >>> model = model.fit({"a": a, "b": b, "c": c})
    >>> model.marginal("c", evidence={"a": 1.5}).mean().round(1)  # E[b² | a] = sin² 1.5 + 0.09
    array([1.1])
    >>> low, high = model.marginal("b", evidence={"a": 0.0, "c": 1.0}).interval(0.9)
    >>> bool(low[0] < -0.4 and high[0] > 0.4)  # either sign will do
    True
    """

    network_: Network

    def __init__(
        self,
        graph: Any = None,
        kernel: Any = None,
        regularization: float | str = "auto",
        basis: Any = None,
    ) -> None:
        self.graph = graph
        self.kernel = kernel
        self.regularization = regularization
        self.basis = basis

    # --- fitting ------------------------------------------------------------------------------

    def fit(self, data: Any, sample_weight: Any = None) -> Self:
        """Learn every edge from the rows in which both its variables have a value.

        Parameters
        ----------
        data : DataFrame, dict of arrays, or array with named fields
            One column per node. NaN and None are missing values.
        sample_weight : array (n,) or None
            How much each row counts.
        """
        table = read_columns(data)
        weights = row_weights(sample_weight, table)
        graph = self.graph
        if graph is None:
            graph = chow_liu_tree(table, self.kernel, weights)
        layout = layout_of(graph)
        hidden, states = latent.hidden_node(graph, table), None
        kernels = kernels_of(self.kernel, layout.variables)
        if hidden is not None:
            name, k = hidden
            views = latent.views_of(graph, name)
            states = latent.responsibilities(table, kernels, views, k, weights)
            table, weights = latent.fill_in_states(table, name, states, weights)
            kernels[name] = Delta()
        lam = check_regularization(self.regularization)
        learner = TreeLearner(lam, self.basis, LEAST if lam else 0.0, weights, layout)
        network, edges = learner.learn(table, kernels)
        # nothing is set before everything has worked
        self.graph_, self.nodes_, self.edges_ = graph, layout.variables, edges
        self.states_ = states
        self._states = hidden
        self.network_ = network
        self._known: dict[Any, Array] = {}
        return self

    # --- queries ------------------------------------------------------------------------------

    def marginal(self, node: Any, evidence: Mapping[Any, Any] | None = None) -> Embedding:
        """The distribution of a node, given points at others.

        Parameters
        ----------
        node : a node of the graph
        evidence : dict from node to a point
            Several points per node, the same number for each, give a batch of answers.

        Returns
        -------
        Embedding
            With its mean, quantiles, mode, samples and expectations of functions.

        Examples
        --------
        >>> import networkx as nx
        >>> import numpy as np
        >>> from meanmap import KernelGraphicalModel
        >>> rng = np.random.default_rng(0)
        >>> a = rng.normal(size=500)
        >>> data = {"a": a, "b": a + 0.5 * rng.normal(size=500)}
        >>> model = KernelGraphicalModel(nx.path_graph(["a", "b"])).fit(data)
        >>> model.marginal("b", {"a": 1.0}).mean().round(1)
        array([1.])
        >>> model.marginal("a", {"b": [-1.0, 0.0, 1.0]}).mean()[:, 0].round(1)  # 0.8 b
        array([-0.8,  0. ,  0.8])
        """
        return self._marginal(node, evidence)

    def _marginal(
        self, node: Any, evidence: Mapping[Any, Any] | None, quiet: bool = False
    ) -> Embedding:
        """The same; `quiet` switches off warnings about evidence outside the data."""
        self._known_node(node)
        inference, b, single = self._inference(evidence, quiet)
        if node in inference.evidence:
            points = inference.points[node]
            kernel = self.network_.nodes[node].space.kernel_
            weights = np.eye(b) if count(points) == b else np.ones((b, 1))
            return embed(points, kernel=kernel, weights=weights[0] if single else weights)
        found = inference.belief(node)
        if single:
            return found[0] if found.is_batch else found
        return found if found.is_batch and len(found) == b else repeat_embedding(found, b)

    def joint(self, a: Any, b: Any, evidence: Mapping[Any, Any] | None = None) -> JointEmbedding:
        """The joint distribution of two nodes, adjacent or not, given points at others.

        For a chain, `C_AD = C_AA C_B|Aᵀ C_C|Bᵀ C_D|Cᵀ`: each atom of the first node is paired with
        the distribution of the second given it. Its value at a pair of points is `φ_aᵀ C_AD φ_d`.

        Examples
        --------
        >>> import networkx as nx
        >>> import numpy as np
        >>> from meanmap import KernelGraphicalModel
        >>> rng = np.random.default_rng(0)
        >>> a = rng.normal(size=500)
        >>> data = {"a": a, "b": a + 0.5 * rng.normal(size=500)}
        >>> model = KernelGraphicalModel(nx.path_graph(["a", "b"])).fit(data)
        >>> together = model.joint("a", "b")
        >>> near, apart = together(([[0.0], [0.0]], [[0.0], [2.0]]))
        >>> bool(near > 5 * apart)
        True
        """
        self._known_node(a)
        self._known_node(b)
        inference = self._inference(evidence)[0]
        given = dict(evidence or {})
        if a == b or a in given or b in given:
            raise ValueError(
                f"joint: expected two nodes without evidence, got {a!r} and {b!r} with evidence on "
                f"{sorted(map(repr, given))}."
            )
        first = self.marginal(a, given)
        if first.is_batch:
            raise ValueError("joint: expected one point per node as evidence, got several.")
        answers = self._marginal(b, {**given, a: first.atoms}, quiet=True)
        return PairEmbedding(first, answers, inference, (a, b))

    def expect(
        self,
        f: Callable[[Points], Array],
        node: Any,
        evidence: Mapping[Any, Any] | None = None,
    ) -> Array:
        """`E[f(X) | evidence]`; f is called with all atoms of the node at once."""
        found = self.marginal(node, evidence)
        return (found if isinstance(found, NodeBelief) else found.normalized()).expect(f)

    def most_probable(self, node: Any, evidence: Mapping[Any, Any] | None = None) -> Points:
        """The mode of a node's distribution given the evidence."""
        return self.marginal(node, evidence).mode()

    def sample(self, n: int, rng: Any = None, evidence: Mapping[Any, Any] | None = None) -> Any:
        """n rows drawn from the model, a dict of arrays; observed nodes keep their value.

        Each variable is drawn given its neighbour. A number is drawn from the conditional's answer
        by residuals and moved to the nearest value in its column; a label by its probability.

        Examples
        --------
        >>> import networkx as nx
        >>> import numpy as np
        >>> from meanmap import KernelGraphicalModel
        >>> rng = np.random.default_rng(0)
        >>> a = rng.normal(size=500)
        >>> data = {"a": a, "b": a + 0.5 * rng.normal(size=500)}
        >>> model = KernelGraphicalModel(nx.path_graph(["a", "b"])).fit(data)
        >>> rows = model.sample(200, rng=0)
        >>> rows["a"].shape, bool(np.corrcoef(rows["a"], rows["b"])[0, 1] > 0.7)
        ((200,), True)
        """
        check_is_fitted(self, "network_")
        n, random = checks.whole(n), checks.random_generator(rng)
        inference, _, single = self._inference(evidence)
        if not single:
            raise ValueError("sample: expected one point per node as evidence, got several.")
        drawn = draw_rows(inference, n, random, self.nodes_)
        return {name: flatten_column(values) for name, values in drawn.items()}

    def impute(self, data: Any) -> dict[Any, Array]:
        """The columns with missing values filled in: numbers by means, labels by modes.

        Examples
        --------
        >>> import networkx as nx
        >>> import numpy as np
        >>> from meanmap import KernelGraphicalModel
        >>> rng = np.random.default_rng(0)
        >>> a = rng.normal(size=500)
        >>> data = {"a": a, "b": a + 0.5 * rng.normal(size=500)}
        >>> model = KernelGraphicalModel(nx.path_graph(["a", "b"])).fit(data)
        >>> model.impute({"a": [1.0, -1.0], "b": [np.nan, -1.0]})["b"].round(1)
        array([ 1., -1.])
        """
        check_is_fitted(self, "network_")
        table = read_columns(data)
        n = table_length(table)
        if self._states is not None and self._states[0] not in table:
            table[self._states[0]] = np.full(n, None)
        filled, here = {}, {}
        for name in self.nodes_:
            if name not in table:
                raise ValueError(f"data: there is no column for {name!r}.")
            numbers_ = self.network_.nodes[name].space.kernel_.on_vectors
            names = self.network_.nodes[name].space.kernel_.names
            table[name] = in_order(table[name], names, f"data[{name!r}]")
            cells = to_numpy(checks.plain(table[name], f"data[{name!r}]"))
            cells = number_column(cells, f"data[{name!r}]") if numbers_ else cells
            filled[name] = np.array(cells, dtype=float if numbers_ else object)
            if numbers_:
                filled[name] = filled[name].reshape(np.shape(table[name]))
            here[name] = present_cells(filled[name])
        patterns = np.stack([here[name] for name in self.nodes_], axis=1)
        for pattern in np.unique(patterns, axis=0):
            rows = np.flatnonzero((patterns == pattern).all(axis=1))
            known = [name for name, there in zip(self.nodes_, pattern, strict=True) if there]
            lacking = [name for name in self.nodes_ if name not in known]
            for block in np.array_split(rows, -(-len(rows) // BLOCK)):
                given = {name: as_column(filled[name][block]) for name in known}
                for name in lacking:
                    belief = self.marginal(name, given)
                    values = belief.mean() if belief.kernel.on_vectors else belief.mode()
                    # without evidence there is one belief for all rows
                    filled[name][block] = np.resize(to_numpy(values), filled[name][block].shape)
        return {
            name: in_kind(
                np.array(values.tolist()) if values.dtype == object else values, table[name]
            )
            for name, values in filled.items()
        }

    def plot(self, evidence: Mapping[Any, Any] | None = None, ax: Any = None) -> Any:
        """Draw the tree, with the belief at every node given the evidence.

        Numbers are shown by mean and standard deviation, others by their most probable value.
        """
        check_is_fitted(self, "network_")
        inference, _, single = self._inference(evidence)
        if not single:
            raise ValueError("plot: expected one point per node as evidence, got several.")
        labels = {
            name: describe_belief(name, self.marginal(name, evidence), name in inference.evidence)
            for name in self.nodes_
        }
        return plots.tree(self.graph_, labels, set(inference.evidence), ax)

    # --- how likely ---------------------------------------------------------------------------

    def log_density(self, data: Any) -> Array:
        """The log density of rows without missing values, factor by factor.

        `Σ log p(x | parents)`, where each factor is the density of the conditional's answer by
        residuals; if the parents' kernels were named, a density estimate with the conditional's
        positive weights; for labels a probability. Unlike a density estimate of whole rows it does
        not suffer from the number of variables, as each factor has only a few.

        Examples
        --------
        >>> import networkx as nx
        >>> import numpy as np
        >>> from meanmap import KernelGraphicalModel
        >>> rng = np.random.default_rng(0)
        >>> a = rng.normal(size=500)
        >>> data = {"a": a, "b": a + 0.5 * rng.normal(size=500)}
        >>> model = KernelGraphicalModel(nx.path_graph(["a", "b"])).fit(data)
        >>> likely, odd = model.log_density({"a": [0.0, 0.0], "b": [0.0, 2.0]})
        >>> bool(likely > odd + 2)
        True
        """
        check_is_fitted(self, "network_")
        return in_kind(
            self._logs(read_columns(data)), self.network_.nodes[self.nodes_[0]].coordinates
        )

    def _logs(self, table: dict[Any, Any]) -> np.ndarray:
        """The log density of rows, as a NumPy array."""
        if self._states is not None and self._states[0] not in table:
            name, k = self._states
            n = table_length(table)
            parts = [self._logs({**table, name: np.full(n, h)}) for h in range(k)]
            return np.logaddexp.reduce(parts, axis=0)
        layout = self.network_.layout
        absent = [name for name in self.nodes_ if name not in table]
        if absent:
            raise ValueError(f"data: there is no column for {', '.join(map(repr, absent))}.")
        points = {name: self._points(name, table[name]) for name in self.nodes_}
        total = np.zeros(table_length(table))
        for name in self.nodes_:
            for start in range(0, len(total), BLOCK):
                rows = np.arange(start, min(start + BLOCK, len(total)))
                at = tuple(take(points[parent], rows) for parent in layout.parents(name))
                total[rows] += np.log(self._factor(name, take(points[name], rows), at))
        return total

    def _factor(self, name: Any, values: Points, given: tuple[Points, ...]) -> np.ndarray:
        """The density (of labels the probability) of values given those of the parents."""
        node, before = self.network_.nodes[name], self.network_.layout.given[name]
        atoms = node.points
        weights = np.broadcast_to(to_numpy(node.weights), (count(values), count(atoms)))
        if before is not None:
            answer = self.network_.answer(name, before) or self.network_.operators[name, before]
            at = given if len(given) > 1 else given[0]
            found = answer.answer_at(at, answer.quiet_features(at))
            learned = self.network_.answer(name, before) is not None
            if learned and isinstance(found, Predictive) and columns_vary(atoms).all():
                logs = found.shape.log_densities(to_numpy(values).astype(np.float64))
                return np.maximum(np.exp(logs), SMALLEST)
            weights, atoms = to_numpy(found.weights), answer.atoms
        return row_likelihoods(node.space.kernel_, atoms, positive_weights(weights), values)

    def score(self, data: Any) -> float:
        """The mean log density of rows, for comparing models on the same data."""
        check_is_fitted(self, "network_")
        return float(self._logs(read_columns(data)).mean())

    # --- gates --------------------------------------------------------------------------------

    def _known_node(self, node: Any) -> None:
        check_is_fitted(self, "network_")
        if not isinstance(node, Hashable) or node not in set(self.network_.layout.variables):
            raise ValueError(
                f"there is no node {node!r}; the nodes are {', '.join(map(repr, self.nodes_))}."
            )

    def _points(self, name: Any, values: Any) -> Points:
        node = self.network_.nodes[name]
        kernel = node.space.kernel_
        called = f"data[{name!r}]"
        cells = column_values(in_order(values, kernel.names, called))
        points = number_column(cells, called) if kernel.on_vectors else cells
        return kernel.check(points, called, node.space.example_)

    def _inference(
        self, evidence: Mapping[Any, Any] | None, quiet: bool = False
    ) -> tuple[Inference, int, bool]:
        """Inference under checked evidence, the number of queries, and whether it is one."""
        check_is_fitted(self, "network_")
        if evidence is not None and not isinstance(evidence, Mapping):
            raise TypeError(
                f"evidence: expected a dict from node to a point, got {checks.describe(evidence)}."
            )
        for name in evidence or {}:
            self._known_node(name)
        points, several = tree_points(self.network_, evidence or {})
        coordinates = tree_coordinates(self.network_, points, quiet)
        marks = {name: to_numpy(rows).tobytes() for name, rows in coordinates.items()}
        if len(self._known) > KEPT:
            self._known.clear()
        known = self._known if several is None else {}
        inference = Inference(self.network_, coordinates, marks, known, points)
        return inference, several or 1, several is None

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "network_")


def row_likelihoods(kernel: Kernel, atoms: Points, p: np.ndarray, points: Points) -> np.ndarray:
    """The density (of numbers) or probability of each point under its own weights on the atoms."""
    if kernel.on_vectors:
        # a column that never varies has no density: its value is certain
        kept = columns_vary(atoms)
        same = (to_numpy(points) == to_numpy(atoms)[0])[:, ~kept].all(axis=1)
        if not kept.any():
            return np.maximum(same.astype(float), SMALLEST)
        if not kept.all():
            atoms, points = atoms[:, kept], points[:, kept]
        each = (density(atoms, row, take(points, slice(i, i + 1))) for i, row in enumerate(p))
        return np.maximum(same * np.array([float(value[0]) for value in each]), SMALLEST)
    return np.maximum((p * to_numpy(kernel(points, atoms))).sum(axis=1), SMALLEST)


def columns_vary(points: Points) -> np.ndarray:
    """Which columns of numbers have different values."""
    host = to_numpy(points)
    return np.asarray(host.min(axis=0) < host.max(axis=0))


def repeat_embedding(belief: Embedding, b: int) -> Embedding:
    """One belief b times, as a batch."""
    if isinstance(belief, Predictive):
        return belief[np.zeros(b, dtype=int)]
    one = belief[0] if belief.is_batch else belief
    xp = namespace(one.weights)
    weights = xp.broadcast_to(one.weights, (b, one.weights.shape[0]))
    return one.with_weights(weights)


def present_cells(values: np.ndarray) -> np.ndarray:
    """Which cells of a column have a value."""
    if values.dtype.kind == "f":
        return ~np.isnan(values.reshape(len(values), -1)).any(axis=1)
    return np.array([not is_missing(value) for value in values], dtype=bool)


def as_column(values: np.ndarray) -> np.ndarray:
    """Cells as points: one number per row, labels unchanged."""
    if values.dtype == object:
        return np.array(values.tolist())
    return values[:, None] if values.ndim == 1 else values


def flatten_column(values: Array) -> Array:
    """Numbers of one coordinate as a flat column."""
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
