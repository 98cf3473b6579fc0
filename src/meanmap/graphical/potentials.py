"""Learning a random field: a sample for every kind of node, two operators for every template.

A kind's sample are cells, a node's value in a row. The product of messages at a node is known at
those cells, and goes on along a link to the neighbours' values in the same rows (Song, Fukumizu and
Gretton 2013, Algorithm VI): all messages of a link are one matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import (
    Array,
    apply,
    asarray,
    at_least,
    concatenate,
    epsilon,
    is_array,
    namespace,
    take,
    to_numpy,
)
from meanmap.conditional.fitting import FittedConditional
from meanmap.decoding.densities import scales
from meanmap.exceptions import SettingWarning, warn
from meanmap.frames import column_names, in_order
from meanmap.graphical.field import RandomField
from meanmap.graphical.nodes import MANY, Node, fit_edge, fit_node
from meanmap.graphical.supports import FEWEST, FINE, CellSupport, GridSupport, Support
from meanmap.graphical.tables import Variable, read_variable
from meanmap.kernels import Kernel
from meanmap.linalg import Spectrum
from meanmap.spaces import Space

MOST = 20_000  # pairs that an operator is learned from
TYPICAL = 1e-3  # λ for a node without neighbours
LOOKED = 5000  # values that the bandwidth of a density is chosen on


@dataclass(frozen=True, eq=False)
class Link:
    """How messages go along a template, from nodes t of one kind to nodes s of another.

    A product of messages P at the sample of t becomes `P @ spread`, the coefficients of
    `x_s ↦ E[P(X_t) | x_s]` (eq. 30). An observed x_t says `ψ(x_t) @ direct`: the density of x_t
    given x_s over its density altogether.
    """

    spread: Array  # (m_t, r_s)
    direct: Array  # (r_t, r_s)
    regularization: float  # λ of P(t | s)


@dataclass(frozen=True, eq=False)
class Potentials:
    """All that was learned."""

    field: RandomField
    nodes: list[Node]  # one a kind
    links: list[Link]  # two a template
    flat: list[bool]  # whether a kind's values are single numbers
    least: float  # of a message, whose mean is one
    #: The widths of density estimates, of kinds that a grid stands for.
    widths: dict[int, np.ndarray] | None = None

    @cached_property
    def tiny(self) -> float:
        """A number whose logarithm stands for that of zero."""
        return 1e-300 if epsilon(self.nodes[0].coordinates) < 1e-10 else 1e-30

    @cached_property
    def usual_regularizations(self) -> list[float]:
        """The usual λ of regressions on a node of each kind."""
        known: list[list[float]] = [[] for _ in self.nodes]
        for i, link in enumerate(self.links):
            known[self.field.ends(i)[1]].append(link.regularization)
        typical = TYPICAL if self.least else 0.0
        return [float(np.median(some)) if some else typical for some in known]

    def logarithms(self, beta: Array, rows: Array) -> Array:
        """log m(x) of messages (..., r) at rows of coordinates, (..., n).

        A message is at least so much of its mean: estimates of small ones may be negative.
        """
        xp = namespace(beta)
        shape = beta.shape
        values = xp.reshape(beta, (-1, shape[-1])) @ rows.T
        logs = apply("log", at_least(values, max(self.least, self.tiny)))
        return xp.reshape(logs, (*shape[:-1], rows.shape[0]))

    def nothing(self, link: int) -> Array:
        """The message along a link when nothing is known: E[1 | x_s], of mean one."""
        spread = self.links[link].spread
        beta = namespace(spread).sum(spread, axis=0)
        return beta / (beta @ self.nodes[self.field.ends(link)[1]].mean)

    def scaled(self, beta: Array, link: int) -> Array:
        """Messages of mean one; one whose mean is not positive is noise, and says nothing."""
        xp = namespace(beta)
        mean = (beta @ self.nodes[self.field.ends(link)[1]].mean)[:, None]
        good = mean > 0
        if bool(xp.all(good)):
            return beta / mean
        return xp.where(good, beta / xp.where(good, mean, xp.ones_like(mean)), self.nothing(link))


@dataclass(frozen=True)
class FieldLearner:
    """How a field is learned from a table.

    A kind's values are those of all its cells, cell = place of the node · rows + row.
    """

    field: RandomField
    regularization: Callable[[int], float | str]  # of a template
    basis: Any
    max_samples: int
    least: float  # of a message, whose mean is one
    rng: np.random.Generator

    def learn(
        self, table: Mapping[Any, Any], kernels: Mapping[Any, Kernel | None], weights: np.ndarray
    ) -> Potentials:
        """Everything, from a column a node."""
        field = self.field
        values = [self.values(k, table, kernels, weights) for k in range(len(field.members))]
        pairs = [self.pairs(template, values, weights) for template in range(len(field.names))]
        spaces = [self.space(one, weights) for one in values]
        supports = [
            self.support(k, values[k], spaces[k], pairs, weights) for k in range(len(values))
        ]
        parts = zip(values, spaces, supports, strict=True)
        nodes = [self.node(*each, weights) for each in parts]
        links: list[Link] = []
        for template, ends in enumerate(pairs):
            links += self.links(template, ends, values, supports, nodes, weights)
        flat = [single_numbers(field, k, table) for k in range(len(values))]
        widths = {
            k: self.width(values[k], weights)
            for k, support in enumerate(supports)
            if isinstance(support, GridSupport) and len(support.grid) > 1
        }
        return Potentials(field, nodes, links, flat, self.least, widths)

    def some(self, n: int, most: int = MOST) -> np.ndarray:
        """Numbers below n, in order; a random part where they are many."""
        return np.arange(n) if n <= most else np.sort(self.rng.choice(n, most, replace=False))

    # --- kinds --------------------------------------------------------------------------------

    def values(
        self,
        kind: int,
        table: Mapping[Any, Any],
        kernels: Mapping[Any, Kernel | None],
        weights: np.ndarray,
    ) -> Variable:
        """The values of a kind, in all cells that have one and a weight."""
        field, n = self.field, len(weights)
        names = [field.nodes[v] for v in field.members[kind]]
        known = [i for i, name in enumerate(names) if name in table]
        if not known:
            remedy = "Add a column, or give its edges the template of edges with data."
            raise ValueError(f"data: there is no column for {field.called(kind)}. {remedy}")
        kernel = one_kernel(names, kernels)
        label = str(names[known[0]])
        stacked = stack_columns([table[names[i]] for i in known], [names[i] for i in known])
        found = read_variable(stacked, kernel, label)
        place, row = np.asarray(known)[found.rows // n], found.rows % n
        here = weights[row] > 0
        if not here.any():
            raise ValueError(f"{label}: all rows in which it has a value have weight zero.")
        if found.open is not None and here.sum() >= MANY:  # products of many need more detail
            found = replace(found, kernel=found.kernel.rescaled(0.5))
        bound = found.kernel.bind(table[names[known[0]]], label)
        found = replace(found, kernel=bound)
        points, w = take(found.points, here), weights[row[here]]
        some = self.some(len(w))
        resolved = found.kernel.resolve(take(points, some), w[some])
        return Variable(resolved, points, (place * n + row)[here], found.open)

    def support(
        self,
        kind: int,
        values: Variable,
        space: Space,
        pairs: list[tuple[np.ndarray, np.ndarray]],
        weights: np.ndarray,
    ) -> Support:
        """The values that stand for a kind."""
        if values.open is not None and values.points.shape[1] == 1:
            size = min(self.max_samples, max(FEWEST, FINE * space.rank_))
            if size < len(values.rows):
                w = weights[values.rows % len(weights)]
                return GridSupport.of(values.points, w, size)
        return CellSupport(self.cells(kind, values, pairs))

    def cells(
        self, kind: int, values: Variable, pairs: list[tuple[np.ndarray, np.ndarray]]
    ) -> np.ndarray:
        """Values of a kind at random, with enough for every template."""
        m = self.max_samples
        found = self.some(len(values.rows), m)
        if len(found) == len(values.rows):
            return found
        for template, ends in enumerate(pairs):
            for end, at in zip(self.field.ends(2 * template), ends, strict=True):
                if end != kind:
                    continue
                cells = np.unique(at)
                rest = np.setdiff1d(cells, found, assume_unique=True)
                lacking = min(len(cells), max(2, m // 4)) - (len(cells) - len(rest))
                if lacking > 0:
                    found = np.union1d(found, rest[self.some(len(rest), lacking)])
        return found

    def space(self, values: Variable, weights: np.ndarray) -> Space:
        """A kind's space, fitted to its values."""
        some = self.some(len(values.rows))
        cells = Variable(values.kernel, take(values.points, some), values.rows[some])
        return fit_node(cells, weights[cells.rows % len(weights)], self.basis).space

    def width(self, values: Variable, weights: np.ndarray) -> np.ndarray:
        """The bandwidth of a density estimate of a kind's values."""
        some = self.some(len(values.rows), LOOKED)
        w = weights[values.rows[some] % len(weights)]
        return scales(take(values.points, some), w / w.sum())

    def node(self, values: Variable, space: Space, support: Support, weights: np.ndarray) -> Node:
        """A kind's space and the values that stand for it."""
        points = support.points(values.points)
        w = support.weights(weights[values.rows % len(weights)])
        rows = space.coordinates(points)
        found = Node(space, points, rows, asarray(w, rows))
        warn_without_constant(found)
        return found

    # --- templates ----------------------------------------------------------------------------

    def pairs(
        self, template: int, values: list[Variable], weights: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Values at the first ends of a template and at its second ends, row by row."""
        a, b = self.field.ends(2 * template)
        edges = self.field.local[self.field.edges[self.field.template == template]]
        edges = edges[np.argsort(edges[:, 0], kind="stable")]
        n = len(weights)
        place, row = np.divmod(values[a].rows, n)
        first = np.asarray(np.searchsorted(edges[:, 0], place))
        many = np.asarray(np.searchsorted(edges[:, 0], place, side="right")) - first
        i = np.repeat(np.arange(len(place)), many)  # a node may have several such edges
        step = np.arange(len(i)) - np.repeat(np.cumsum(many) - many, many)
        wanted = edges[first[i] + step, 1] * n + row[i]
        known = values[b].rows
        j = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        here = known[j] == wanted
        if here.sum() < 2:
            raise ValueError(
                f"{self.field.names[template]}: expected at least two rows with values at both "
                f"ends, got {here.sum()}. Fill in values, or leave the edge out."
            )
        return i[here], j[here]

    def links(
        self,
        template: int,
        pairs: tuple[np.ndarray, np.ndarray],
        values: list[Variable],
        supports: list[Support],
        nodes: list[Node],
        weights: np.ndarray,
    ) -> list[Link]:
        """A template's two links."""
        ends = self.field.ends(2 * template)
        lam = self.regularization(template)

        def fit(some: np.ndarray, t: int) -> FittedConditional:
            """P(t | s) from some of the pairs, t and s being 0 and 1 or the other way round."""
            s = 1 - t
            w = weights[values[ends[t]].rows[pairs[t][some]] % len(weights)]
            x, y = (take(values[ends[e]].points, pairs[e][some]) for e in (s, t))
            return fit_edge(nodes[ends[s]].space, nodes[ends[t]].space, lam, (x, y), w)

        every = self.some(len(pairs[0]))
        whole = [fit(every, t) for t in (0, 1)]
        found = []
        for t, model in enumerate(whole):
            support, some = supports[ends[t]], every
            direct = whole[1 - t].operator.inverse @ model.operator.matrix
            mine = support.rows_of(pairs[t][every])
            if len(mine) < len(every):
                some = support.rows_of(pairs[t])
                model = fit(some, t)
            spread = support.gather(model.operator.row_images, pairs[t][some])
            found.append(Link(spread, direct, model.regularization))
        return found


def warn_without_constant(node: Node) -> None:
    """Warn of a kernel whose functions are zero on average: what a message is measured by."""
    rows, w = to_numpy(node.coordinates).astype(float), to_numpy(node.weights).astype(float)
    spectrum = Spectrum.of(rows.T @ (w[:, None] * rows))
    mean = w @ rows
    share = float(mean @ (spectrum.inverse(1e-6 * float(spectrum.values[-1])) @ mean))
    if share < 0.5:
        kernel = node.space.kernel_
        warn(
            f"the kernel {kernel!r:.60} has no constant function on the data (the nearest explains "
            f"{share:.0%} of one), so the size of a message is not determined. Add one: "
            f"{kernel!r:.60} + 1.",
            SettingWarning,
        )


def stack_columns(columns: list[Any], names: list[Any]) -> Any:
    """The columns of nodes that are alike one below the other."""
    first = column_names(columns[0])
    of = f"data[{names[0]!r}]"
    pairs = zip(columns, names, strict=True)
    columns = [in_order(c, first, f"data[{name!r}]", of) for c, name in pairs]
    plain = [c.to_numpy() if hasattr(c, "to_numpy") and not is_array(c) else c for c in columns]
    plain = [checks.plain(c, f"data[{name!r}]") for c, name in zip(plain, names, strict=True)]
    shapes = [tuple(c.shape[1:]) for c in plain]
    odd = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
    if odd is not None:
        raise ValueError(
            f"data: nodes {names[0]!r} and {names[odd]!r} are at the same end of a template, but "
            f"a value of the first has shape {shapes[0]} and one of the second {shapes[odd]}. "
            "Give their edges different templates."
        )
    words = [getattr(c.dtype, "kind", "f") in "OSU" for c in plain]
    odd = next((i for i, word in enumerate(words) if word != words[0]), None)
    if odd is not None:
        raise TypeError(
            f"data: nodes {names[0]!r} and {names[odd]!r} are at the same end of a template, but "
            f"one has numbers and the other {plain[odd if words[odd] else 0].dtype}. Give their "
            "edges different templates."
        )
    return plain[0] if len(plain) == 1 else concatenate(plain)


def one_kernel(names: list[Any], kernels: Mapping[Any, Kernel | None]) -> Kernel | None:
    """The kernel of nodes that are alike."""
    given = [(name, kernels[name]) for name in names if kernels[name] is not None]
    odd = next((name for name, kernel in given if kernel != given[0][1]), None)
    if odd is not None:
        raise ValueError(
            f"kernel: nodes {given[0][0]!r} and {odd!r} are at the same end of a template, and so "
            "have one kernel; got two."
        )
    return given[0][1] if given else None


def single_numbers(field: RandomField, kind: int, table: Mapping[Any, Any]) -> bool:
    """Whether the values of a kind came as a flat column."""
    names = (field.nodes[v] for v in field.members[kind])
    column = next(table[name] for name in names if name in table)
    return np.ndim(column) == 1
