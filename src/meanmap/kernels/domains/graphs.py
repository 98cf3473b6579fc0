"""Kernels on graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from numbers import Integral, Real
from typing import Any

from meanmap import checks
from meanmap.arrays import Array, Points
from meanmap.kernels.domains.objects import CountKernel
from meanmap.kernels.protocol import Kernel


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

    def __init__(
        self, iterations: int = 3, label: str | None = "label", normalized: bool = True
    ) -> None:
        self.iterations = iterations
        self.label = label
        self.normalized = normalized

    def read_points(self, points: Any, name: str) -> Points:
        return checks.graphs(points, name, self.label)

    def _is_point(self, x: Any, like: Points) -> bool:
        return hasattr(x, "nodes") and hasattr(x, "adj")

    def resolve(self, points: Points, weights: Array | None = None) -> Kernel:
        self._rounds()
        return super().resolve(points, weights)

    def _rounds(self) -> int:
        return checks.whole(self.iterations, "iterations", 0, "Try 3.")

    def _parts(self, point: Any) -> Mapping[str, int]:
        if self.label is None:
            labels = {node: digest(0, str(degree)) for node, degree in point.degree()}
        else:
            attributes = point.nodes(data=self.label)
            labels = {node: digest(0, _text(value)) for node, value in attributes}
        counts = Counter(labels.values())
        around = [point.succ, point.pred] if point.is_directed() else [point.adj]
        for iteration in range(1, self._rounds() + 1):
            labels = {
                node: digest(
                    iteration,
                    own,
                    *(_joined(labels[other] for other in step[node]) for step in around),
                )
                for node, own in labels.items()
            }
            counts.update(labels.values())
        return counts


def digest(iteration: int, *texts: str) -> str:
    """A short name for a label: the same in every graph, process and file."""
    return blake2b("|".join((str(iteration), *texts)).encode(), digest_size=12).hexdigest()


def _joined(labels: Iterable[str]) -> str:
    return ",".join(sorted(labels))


def _text(label: Any) -> str:
    """A label as text: numbers that are equal (1, 1.0, True) have one, "1" has another."""
    if isinstance(label, Real):
        number = int(label) if isinstance(label, Integral) else float(label)
        return f"number {int(number) if number == number // 1 else number!r}"
    return f"{type(label).__name__ if not isinstance(label, str) else 'str'} {label}"
