"""Belief propagation on graphs with loops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from meanmap import checks
from meanmap.arrays import is_array, one_blas_thread, to_numpy
from meanmap.conditional.fitting import check_regularization
from meanmap.exceptions import DataWarning, warn
from meanmap.graphical.beliefs import Beliefs
from meanmap.graphical.edges import LEAST, FieldLearner
from meanmap.graphical.evidence import FieldEvidence
from meanmap.graphical.field import RandomField, Wiring, field_of
from meanmap.graphical.passing import Passing
from meanmap.graphical.potentials import Potentials
from meanmap.graphical.schedules import SCHEDULES
from meanmap.graphical.tables import (
    first_names,
    is_missing,
    kernels_of,
    read_columns,
    require_names,
    row_weights,
)
from meanmap.progress import progress_bar

CONFLICT = 3.0  # mean loss of a message in log value where the product is largest


class BeliefPropagation(BaseEstimator):
    """Belief propagation on any graph: a pairwise Markov random field learned from a sample.

    Messages are functions of a node's value. They are multiplied at the node's sample and passed on
    by a conditional embedding (Song, Fukumizu and Gretton 2013, Algorithm VI). On a tree the
    beliefs are those of `KernelGraphicalModel` with named kernels. On a graph with loops they are
    those of loopy belief propagation, with the data's potentials: `p(x_s)` on a node, and
    `p(x_s, x_t) / (p(x_s) p(x_t))` on an edge.

    Parameters
    ----------
    graph : networkx.Graph or networkx.DiGraph
        Nodes are variables. Edges with equal `template` attributes share a potential, learned from
        the rows of all of them. In a Graph an edge goes from the node that was added first to the
        other, in a DiGraph as it points. Nodes at the same end of a template share a distribution,
        and so do nodes with equal `template` attributes.
    kernel : Kernel, dict from node (or a node's template) to Kernel, or None
        None chooses by column: for numbers a Gaussian whose bandwidth is the median distance, or
        half of it from 500 values on; for labels a delta kernel.
    regularization : float, "auto", or a dict from template to one of them
        λ of the conditionals; "auto" chooses it by leave-one-out, template by template. 0 is the
        pseudo-inverse: with delta kernels this is belief propagation on the tables of frequencies.
        A larger λ weakens the influence of neighbours on each other.
    basis : a basis or None
        How the spaces get their coordinates.
    schedule : "synchronous", "sequential" or "residual"
        All messages at once; node after node, from the ends of the graph and back; or always the
        messages that would change most.
    damping : float in [0, 1)
        The share of the old message that is kept in an update. 0.5 helps if messages oscillate.
    trust : float in (0, 1]
        The power to which messages of observed nodes are raised. 1 is right if observations are
        independent given their neighbours. If they overlap, as neighbouring patches of a picture
        do, the same information is counted several times, and a smaller power is better.
    reweighting : float in (0, 1], "halfway" or "trees"
        How much an edge counts. 1 is belief propagation as in the paper, which is overconfident on
        strongly coupled loops, where a message comes back to its sender and is counted again.
        "trees" weights an edge by how often it is in a spanning tree, about a half in a grid and 1
        in a tree (tree-reweighted belief propagation; Wainwright, Jaakkola and Willsky 2005); it is
        underconfident. "halfway" is the mean of both. A number is used for all edges.
    tolerance : float
        Messages have converged when none changes by more than this share of its size.
    max_samples : int
        The largest number of values that represent a variable. Single numbers without a named
        kernel are represented by a grid as fine as the kernel resolves, other variables by a random
        sample of their values. The cost of an iteration is proportional to it.
    random_state : int, Generator or None
        Seed of that sample.
    progress : bool or None
        Show a progress bar; None shows it on a terminal, for work longer than two seconds.

    Attributes
    ----------
    nodes_ : the variables, in order
    potentials_ : what was learned: a sample for each kind of node, operators for each template

    Examples
    --------
    >>> import networkx as nx
    >>> import numpy as np
    >>> from meanmap import BeliefPropagation
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.normal(size=(2, 500))
    >>> data = {"a": a, "b": b, "c": a + 0.3 * rng.normal(size=500)}
    >>> data["d"] = data["c"] + b + 0.3 * rng.normal(size=500)
    >>> square = nx.Graph([("a", "c"), ("c", "d"), ("d", "b"), ("b", "a")])
    >>> found = BeliefPropagation(square).fit(data).run({"a": 1.0})
    >>> found.converged, round(float(found.mean["c"]), 1)
    (True, 1.0)
    """

    potentials_: Potentials

    def __init__(
        self,
        graph: Any,
        kernel: Any = None,
        regularization: float | str | Mapping[Any, float | str] = "auto",
        basis: Any = None,
        *,
        schedule: str = "synchronous",
        damping: float = 0.0,
        trust: float = 1.0,
        reweighting: float | str = "halfway",
        tolerance: float = 1e-3,
        max_samples: int = 2000,
        random_state: Any = None,
        progress: bool | None = None,
    ) -> None:
        self.graph = graph
        self.kernel = kernel
        self.regularization = regularization
        self.basis = basis
        self.schedule = schedule
        self.damping = damping
        self.trust = trust
        self.reweighting = reweighting
        self.tolerance = tolerance
        self.max_samples = max_samples
        self.random_state = random_state
        self.progress = progress

    def fit(self, data: Any, sample_weight: Any = None) -> Self:
        """Learn every potential from the rows in which both ends have a value.

        Parameters
        ----------
        data : DataFrame, dict of arrays, array with named fields, or array (n, rows, columns)
            One column per node; the last form is for graphs whose nodes are positions (i, j). NaN
            and None are missing values. A node without a column must share a template with one
            that has a column.
        sample_weight : array (n,) or None
            How much each row counts.
        """
        self._settings()
        field = field_of(self.graph)
        table = self._table(data, field)
        learner = FieldLearner(
            self._regularization(field),
            self.basis,
            0.0 if self.regularization == 0 else LEAST,
            row_weights(sample_weight, table),
            field,
            checks.whole(self.max_samples, "max_samples", 2, "A few hundred is enough."),
            checks.random_generator(self.random_state, "random_state"),
        )
        with one_blas_thread():
            potentials = learner.learn(table, self._kernels(field))
        # nothing is set before everything has worked
        self.nodes_ = field.nodes
        self.potentials_ = potentials
        return self

    def run(self, evidence: Any = None, max_iterations: int = 50) -> Beliefs:
        """The beliefs of all nodes given evidence.

        Parameters
        ----------
        evidence : dict from node to evidence on it, or array (rows, columns)
            A point means that the node is observed. A function of points (m, d) that returns m
            values is a likelihood, up to a factor. An Embedding is a belief from elsewhere. In an
            array, for graphs whose nodes are positions (i, j), NaN marks unobserved nodes.
        max_iterations : int
            If messages still change after that many, a warning says by how much.

        Returns
        -------
        Beliefs
            `.belief(node)`, `.mean`, `.std`, `.mode`, `.interval(level)`, `.density(node, x)`,
            `.converged`, `.iterations`, `.residuals`, `.plot()`.

        Examples
        --------
        >>> import networkx as nx
        >>> import numpy as np
        >>> from meanmap import BeliefPropagation
        >>> rng = np.random.default_rng(0)
        >>> steps = np.cumsum(rng.normal(size=(400, 5)), axis=1)
        >>> chain = nx.path_graph(5)
        >>> model = BeliefPropagation(chain, random_state=0).fit(dict(enumerate(steps.T)))
        >>> sensor = lambda x: np.exp(-0.5 * (x[:, 0] - 2.0) ** 2)  # 2 seen with noise of 1
        >>> found = model.run({0: 0.0, 4: sensor})
        >>> round(float(found.mean[4]), 1)  # 4 steps: 2 · 4/5
        1.6
        """
        check_is_fitted(self, "potentials_")
        damping, tolerance = self._settings()
        most = checks.whole(max_iterations, "max_iterations", 1, "50 is often enough.")
        potentials, field = self.potentials_, self.potentials_.field
        known = FieldEvidence.of(potentials, self._evidence(evidence, field), self.trust)
        wiring = field.wiring(known.hidden)
        passing = Passing(potentials, wiring, known.alone(wiring), self._powers(wiring, field))
        state, moved = passing.start(), []
        steps = SCHEDULES[self.schedule](passing, state, damping)
        with one_blas_thread(), progress_bar(most, "belief propagation", self.progress, "it") as on:
            for _ in range(most):
                state, change = next(steps)
                moved.append(change)
                on(1)
                if change <= tolerance:
                    break
            products, strain = passing.products(state)
        converged = moved[-1] <= tolerance
        if not converged:
            remedies = {
                "reweighting='trees'": self.reweighting != "trees",
                "damping=0.5": damping == 0,
                "schedule='residual'": self.schedule != "residual",
                "more iterations": True,
            }
            warn(
                f"belief propagation has not converged: after {most} iterations a message still "
                f"changes by {moved[-1]:.2g} of its size (tolerance {tolerance:g}). The beliefs "
                "are those of the last iteration. Try "
                f"{', or '.join(what for what, new in remedies.items() if new)}.",
                ConvergenceWarning,
            )
        self._warn_of_conflict(wiring, strain)
        return Beliefs(passing, known, state, products, converged, np.array(moved))

    # --- gates --------------------------------------------------------------------------------

    def _settings(self) -> tuple[float, float]:
        checks.option(self.schedule, "schedule", list(SCHEDULES))
        damping = checks.not_negative(self.damping, "damping", "It is a share in [0, 1).")
        if damping >= 1:
            raise ValueError(
                f"damping must be in [0, 1), got {self.damping!r}: with 1 messages never change."
            )
        require_share(self.trust, "trust", "a share in (0, 1]")
        if isinstance(self.reweighting, str):
            checks.option(self.reweighting, "reweighting", ["halfway", "trees"])
        else:
            words = '"halfway", "trees" or a share in (0, 1]'
            require_share(self.reweighting, "reweighting", words)
        remedy = "It is the largest change of a message that counts as converged, such as 1e-3."
        return damping, checks.positive(self.tolerance, "tolerance", remedy)

    def _regularization(self, field: RandomField) -> Any:
        """λ, one for all or a dict from template."""
        given = self.regularization
        if not isinstance(given, Mapping):
            return check_regularization(given)
        named = [which[0] if word == "template" else which for word, which in field.keys]
        require_names(given, named, "regularization", "template")
        checked = {key: check_regularization(value) for key, value in given.items()}
        return {template: checked.get(key, "auto") for template, key in enumerate(named)}

    def _powers(self, wiring: Wiring, field: RandomField) -> list[np.ndarray] | None:
        """The powers of messages, None where all are 1."""
        given = self.reweighting
        if isinstance(given, str):
            found = wiring.appearances(field)
            if given == "halfway":
                found = [(1 + part) / 2 for part in found]
            return None if all((part == 1).all() for part in found) else found
        return None if given == 1 else [np.full(link.shape, float(given)) for link in wiring.link]

    def _warn_of_conflict(self, wiring: Wiring, strain: list[np.ndarray]) -> None:
        most = [float(one.max(initial=0.0)) for one in strain]
        if max(most, default=0.0) <= CONFLICT:
            return
        kind = int(np.argmax(most))
        name = self.nodes_[wiring.hidden[kind][int(strain[kind].argmax())]]
        others = sum(int((one > CONFLICT).sum()) for one in strain) - 1
        more = f" (and around {others} other nodes)" if others else ""
        warn(
            f"the evidence around {name!r}{more} conflicts: no value in the data fits all of it.",
            DataWarning,
        )

    def _table(self, data: Any, field: RandomField) -> dict[Any, Any]:
        """One column per node."""
        if is_array(data) and not getattr(getattr(data, "dtype", None), "names", None):
            require_places(field, data.shape[1:], "data", "(n, rows, columns)")
            if not data.shape[0]:
                raise ValueError(f"data has no rows: shape {tuple(data.shape)}.")
            places: Any = field.nodes
            return {place: data[(slice(None), *place)] for place in places}
        table = read_columns(data)
        if not any(name in table for name in field.nodes):
            raise ValueError(
                f"data: none of its columns ({first_names(table)}) is a node of the graph "
                f"({first_names(field.nodes)})."
            )
        return table

    def _kernels(self, field: RandomField) -> dict[Any, Any]:
        """A kernel for each node, by its name or by its template."""
        given = self.kernel
        if not isinstance(given, Mapping):
            return kernels_of(given, field.nodes)
        own = {name: self.graph.nodes[name].get("template") for name in field.nodes}
        templates = {template for template in own.values() if template is not None}
        require_names(given, [*own, *templates], "kernel", "node and no node's template")
        named = {name: given.get(name, given.get(own[name])) for name in field.nodes}
        return kernels_of(named, field.nodes)

    def _evidence(self, evidence: Any, field: RandomField) -> dict[Any, Any]:
        """Evidence by node."""
        if evidence is None:
            return {}
        if is_array(evidence):
            require_places(field, evidence.shape, "evidence", "(rows, columns)")
            cells: Any = to_numpy(evidence)
            return {name: cells[name] for name in field.nodes if has_value(cells[name])}
        if not isinstance(evidence, Mapping):
            raise TypeError(
                f"evidence: expected a dict from node to evidence on it, got "
                f"{checks.describe(evidence)}."
            )
        require_names(evidence, field.nodes, "evidence")
        empty = [name for name, value in evidence.items() if is_missing(value)]
        if empty:
            raise ValueError(f"evidence[{empty[0]!r}] is missing. Leave out unobserved nodes.")
        return dict(evidence)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "potentials_")


def require_share(value: Any, name: str, expected: str) -> None:
    """Refuse what is not in (0, 1]."""
    if checks.positive(value, name, f"It is {expected}.") > 1:
        raise ValueError(f"{name} must be {expected}, got {value!r}.")


def has_value(cell: Any) -> bool:
    """Whether a place of an array has a value."""
    plain = np.asarray(cell)
    return not (np.isnan(plain).any() if plain.dtype.kind == "f" else is_missing(plain.tolist()))


def require_places(field: RandomField, shape: tuple[int, ...], what: str, form: str) -> None:
    """Refuse an array for a graph whose nodes are not positions in it."""
    name: Any
    for name in field.nodes:
        fits = isinstance(name, tuple) and all(isinstance(i, int | np.integer) for i in name)
        if not fits or len(name) > len(shape):
            raise TypeError(
                f"{what}: an array {form} is for graphs whose nodes are positions (i, j), as in "
                f"nx.grid_2d_graph; this one has the node {name!r}. Use a dict by node."
            )
        if any(not 0 <= i < size for i, size in zip(name, shape, strict=False)):
            raise ValueError(
                f"{what}: the graph has the node {name!r}, which is not a position in an "
                f"array of shape {tuple(shape)} {form}."
            )
