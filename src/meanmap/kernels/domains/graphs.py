"""Kernels on graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from numbers import Integral, Real
from typing import Any, Self

import numpy as np

from meanmap import checks
from meanmap.arrays import Array, Points
from meanmap.kernels.domains.objects import CountKernel, read_objects


class WeisfeilerLehman(CountKernel):
    """The Weisfeiler-Lehman subtree kernel on networkx graphs (Shervashidze et al. 2011).

    In every iteration a node's label is joined with those of its neighbours; the features count how
    often each label occurs, in all iterations from 0. Graphs that the Weisfeiler-Lehman test cannot
    tell apart have equal features, so the kernel is not characteristic. In a directed graph
    successors and predecessors are told apart. An empty graph has k = 0, with itself too.

    Parameters
    ----------
    iterations : int
        How far around a node its label looks; 0 counts the labels themselves.
    label : str or None
        The node attribute that holds the label; None takes the node's degree.
    normalized : bool
        Whether to divide by the counts' lengths, so that k(x, x) = 1 whatever a graph's size.

    Examples
    --------
    >>> import networkx as nx
    >>> from meanmap.kernels import WeisfeilerLehman
    >>> graphs = [nx.cycle_graph(4), nx.cycle_graph(8), nx.star_graph(3)]
    >>> WeisfeilerLehman(iterations=1, label=None)(graphs).round(2)
    array([[1., 1., 0.],
           [1., 1., 0.],
           [0., 0., 1.]])
    """

    domain = "graphs"

    def __init__(
        self, iterations: int = 3, label: str | None = "label", normalized: bool = True
    ) -> None:
        self.iterations = iterations
        self.label = label
        self.normalized = normalized

    def read_points(self, points: Any, name: str) -> Points:
        return read_graphs(points, name, self.label)

    def is_point(self, x: Any, like: Points) -> bool:
        return hasattr(x, "nodes") and hasattr(x, "adj")

    def resolve(self, points: Points, weights: Array | None = None) -> Self:
        return self.replace(iterations=checks.whole(self.iterations, "iterations", 0, "Try 3."))

    def count_parts(self, point: Any) -> Mapping[str, int]:
        if self.label is None:
            labels = {node: digest(0, str(degree)) for node, degree in point.degree()}
        else:
            attributes = point.nodes(data=self.label)
            labels = {node: digest(0, _text(value)) for node, value in attributes}
        counts = Counter(labels.values())
        around = [point.succ, point.pred] if point.is_directed() else [point.adj]
        for iteration in range(1, self.iterations + 1):
            labels = {
                node: digest(
                    iteration,
                    own,
                    *(_join(labels[other] for other in step[node]) for step in around),
                )
                for node, own in labels.items()
            }
            counts.update(labels.values())
        return counts


def digest(iteration: int, *texts: str) -> str:
    """A short name for a label: the same in every graph, process and file."""
    return blake2b("|".join((str(iteration), *texts)).encode(), digest_size=12).hexdigest()


def _join(labels: Iterable[str]) -> str:
    return ",".join(sorted(labels))


def _text(label: Any) -> str:
    """A label as text: numbers that are equal (1, 1.0, True) have one, "1" has another."""
    if isinstance(label, Real):
        number = int(label) if isinstance(label, Integral) else float(label)
        return f"number {int(number) if number == number // 1 else number!r}"
    return f"{type(label).__name__ if not isinstance(label, str) else 'str'} {label}"


def read_graphs(value: Any, name: str, label: str | None) -> np.ndarray:
    """Points that are networkx graphs, whose nodes have the attribute `label` if one is named."""
    from networkx import Graph

    if isinstance(value, Graph):
        raise TypeError(f"{name}: expected a list of graphs, got one. Pass [{name}].")
    array = read_objects(value, name, "networkx graphs")
    for i, graph in enumerate(array):
        if not isinstance(graph, Graph):
            raise TypeError(
                f"{name}[{i}]: expected a networkx graph, got {checks.describe(graph)}. Make one "
                "of an adjacency matrix with networkx.from_numpy_array(matrix)."
            )
        if label is None:
            continue
        for node, attributes in graph.nodes(data=True):
            found = attributes.get(label)
            if found is None or found != found:
                raise ValueError(
                    f"{name}[{i}]: node {node!r} of the graph has no {label!r}. Give every node "
                    f"one with networkx.set_node_attributes(graph, labels, {label!r}), name "
                    "another attribute with WeisfeilerLehman(label=...), or label nodes by their "
                    "degree with WeisfeilerLehman(label=None)."
                )
    return array
