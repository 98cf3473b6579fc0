"""Learning the edges of a graph: a space for every node, two conditional embeddings for every edge.

The values of several nodes, or of one node in several rows, may be learned from together: a
variable's values are cells, cell = place of the node · rows + row. `EdgeLearner` pairs the cells at
both ends of an edge and fits P(t | s) both ways. `TreeLearner` adds learned scales, and families of
parents; `FieldLearner` adds templates, and samples or grids that represent many values.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import (
    Array,
    Points,
    asarray,
    concatenate,
    float_like,
    in_one_precision,
    take,
    to_numpy,
)
from meanmap.conditional import ConditionalEmbedding
from meanmap.decoding.densities import scales
from meanmap.exceptions import SettingWarning, quiet, warn
from meanmap.frames import column_names, in_order
from meanmap.graphical.answers import AnswerLearner
from meanmap.graphical.field import RandomField
from meanmap.graphical.layout import TreeLayout
from meanmap.graphical.messages import Network
from meanmap.graphical.nodes import Node
from meanmap.graphical.potentials import Link, Potentials
from meanmap.graphical.scales import edge_kernel, family_kernel, fine_targets, narrowest_kernel
from meanmap.graphical.supports import FEWEST, FINE, CellSupport, GridSupport, Support
from meanmap.graphical.tables import Variable, column_values, read_variable, rows_in_both
from meanmap.kernels import Kernel, TensorProduct
from meanmap.linalg import Spectrum
from meanmap.rules import positive_part
from meanmap.spaces import Space
from meanmap.spaces.space import fit_space

LEAST = 1e-3  # times the mean of a message: smaller values are indistinguishable from zero
MANY = 500  # rows that resolve half the median distance
MOST = 20_000  # pairs that an operator is learned from
LOOKED = 5000  # values that the bandwidth of a density is chosen on

Edges = dict[tuple[Any, Any], ConditionalEmbedding]
Kernels = Mapping[Any, Kernel | None]
Positions = tuple[np.ndarray, np.ndarray]  # of the values at the two ends of an edge, pair by pair


@dataclass(frozen=True)
class EdgeLearner:
    """What learning a tree and learning a field have in common."""

    regularization: float | str | Mapping[int, float | str]  # for a field: of each template
    basis: Any
    least: float  # the smallest value of a message
    weights: np.ndarray  # of the rows of the table

    def weigh(self, found: Variable, at: Any = slice(None)) -> np.ndarray:
        """The weights of some values of a variable."""
        return self.weights[found.rows[at] % len(self.weights)]

    def fit_node(self, found: Variable) -> Node:
        """A variable with coordinates; the weights of its values are made to sum to one."""
        like = float_like(found.points)
        w = checks.sample_weights(self.weigh(found), found.points, like)
        space, coordinates = fit_space(found.kernel, self.basis, found.points, w)
        return Node(space, found.points, coordinates, w)

    def pair_values(
        self, edge: str, a: Variable, b: Variable, joined: np.ndarray | None = None
    ) -> Positions:
        """The positions of values in one row at both ends of an edge.

        `joined` (edges, 2) are the places of nodes that edges of one template join.
        """
        joined = np.zeros((1, 2), dtype=int) if joined is None else joined
        joined = joined[np.argsort(joined[:, 0], kind="stable")]
        n = len(self.weights)
        place, row = np.divmod(a.rows, n)
        first = np.asarray(np.searchsorted(joined[:, 0], place))
        many = np.asarray(np.searchsorted(joined[:, 0], place, side="right")) - first
        i = np.repeat(np.arange(len(place)), many)  # a node may have several such edges
        step = np.arange(len(i)) - np.repeat(np.cumsum(many) - many, many)
        wanted = joined[first[i] + step, 1] * n + row[i]
        j = np.minimum(np.searchsorted(b.rows, wanted), len(b.rows) - 1)
        here = b.rows[j] == wanted
        if here.sum() < 2:
            raise ValueError(
                f"{edge}: expected at least two rows with values at both ends, got {here.sum()} "
                f"of {n * len(joined)}. Fill in values, or leave the edge out."
            )
        return i[here], j[here]

    def fit_edge(
        self,
        s: Node,
        t: Node,
        points: tuple[Points, Points],
        weights: np.ndarray,
        template: int = 0,
    ) -> ConditionalEmbedding:
        """P(t | s) between two nodes, from paired points (those of s first)."""
        x, y = in_one_precision(*points)
        if not weights.all():  # rows of weight zero are left out
            x, y = (take(part, weights > 0) for part in (x, y))
        w = asarray(weights[weights > 0] / weights.sum(), float_like(x))
        given, spaces = self.regularization, (s.space, t.space)
        lam = given[template] if isinstance(given, Mapping) else given
        kernels = s.space.kernel_, t.space.kernel_
        return ConditionalEmbedding(*kernels, lam, spaces, centered=False).fit_checked(x, y, w)


# --- trees --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TreeLearner(EdgeLearner):
    """How the edges of a tree are learned."""

    layout: TreeLayout

    def learn(self, table: dict[Any, Any], kernels: Kernels) -> tuple[Network, Edges]:
        """The network, and P(t | s) for both directions of every edge."""
        layout = self.layout
        found = self.learn_scales(self.variables(table, kernels))
        nodes = {v: self.fit_node(found[v]) for v in (*layout.variables, *layout.families)}
        pairs: dict[Any, Positions] = {}
        for a, b in layout.edges:
            at = self.pair_values(f"edge {a!r} – {b!r}", found[a], found[b])
            pairs[a, b], pairs[b, a] = at, at[::-1]
        edges: Edges = {}
        places: dict[tuple[Any, Any], np.ndarray] = {}
        moved: set[Any] = set()  # nodes whose distribution is not that of their rows

        def join(v: Any, before: Any) -> None:
            """The edge between a node and what it is given, both ways."""
            importance = self.weigh(found[v], pairs[v, before][0])
            if before in moved:
                importance = to_numpy(nodes[before].weights)[pairs[v, before][1]]
            for t, s in ((v, before), (before, v)):
                mine, other = pairs[t, s]
                points = take(found[s].points, other), take(found[t].points, mine)
                nested = layout.is_nested(t, s)  # a parent is a function of all parents
                with quiet(SettingWarning) if nested else nullcontext():
                    edges[t, s] = self.fit_edge(nodes[s], nodes[t], points, importance)
                rows = mine[importance > 0]
                if len(rows) < len(found[t].rows):
                    places[t, s] = rows

        for v in layout.order():
            before = layout.given[v]
            if before is None:
                continue
            if before in layout.families:
                nodes[before] = self.independent(v, nodes, found)
                moved.add(before)
                for parent in layout.parents(v):
                    join(parent, before)
            join(v, before)
            if before in moved:  # so is what follows from it: the sum rule
                m = edges[v, before].operator_.matrix @ nodes[before].mean
                nodes[v] = reweight_node(nodes[v], m, edges[before, v].regularization_)
                moved.add(v)
        operators = {pair: model.operator_ for pair, model in edges.items()}
        opened = {s: one.open for s, one in found.items() if one.open is not None}
        assert not isinstance(self.regularization, Mapping)
        learner = AnswerLearner(opened, self.regularization, self.basis)
        return Network(layout, nodes, operators, self.least, learner, places), edges

    def variables(self, table: dict[Any, Any], kernels: Kernels) -> dict[Any, Variable]:
        """The columns as points, and each family's as tuples of them."""
        found: dict[Any, Variable] = {}
        for name in self.layout.variables:
            one = read_variable(table[name], kernels[name], str(name))
            found[name] = replace(one, kernel=one.kernel.resolve(one.points, self.weigh(one)))
        for family, parents in self.layout.families.items():
            parts = [found[parent] for parent in parents]
            rows = parts[0].rows
            for part in parts[1:]:
                rows = np.intersect1d(rows, part.rows, assume_unique=True)
            if not len(rows):
                raise ValueError(
                    f"the parents of {family[1]!r}, {', '.join(map(repr, parents))}: no row has "
                    "values of all of them."
                )
            product = TensorProduct(*(part.kernel for part in parts))
            points = tuple(part.at(rows) for part in parts)
            found[family] = Variable(product, points, rows, family_kernel(parts))
        return found

    def learn_scales(self, found: dict[Any, Variable]) -> dict[Any, Variable]:
        """The variables with kernels as fine as their edges ask for."""
        families, weights = self.layout.families, self.weights
        kernels: dict[Any, Kernel] = {}

        def ask(s: Any, t: Any, opened: Kernel) -> Kernel | None:
            both = rows_in_both(found[s], found[t])
            both = both[weights[both] > 0]
            w = weights[both] / weights[both].sum()
            targets = fine_targets(found[t], found[t].at(both), w)
            return edge_kernel(opened, found[s].at(both), targets, w)

        for s in (*families, *self.layout.variables):
            opened = found[s].open
            if opened is None:
                continue
            tried = [ask(s, t, opened) for t in self.layout.relatives(s)]
            for family, members in families.items():
                if s in members and family in kernels:
                    tried.append(kernels[family].parts[members.index(s)])
            learned = [kernel for kernel in tried if kernel is not None]
            # products need more detail; between parents and families it makes beliefs too narrow
            if learned and not families and len(found[s].rows) >= MANY:
                learned.append(found[s].kernel.rescaled(0.5))
            if learned:
                kernels[s] = narrowest_kernel(learned)
        return {s: replace(one, kernel=kernels.get(s, one.kernel)) for s, one in found.items()}

    def independent(self, child: Any, nodes: dict[Any, Node], found: dict[Any, Variable]) -> Node:
        """A family's node with weights under which its members are independent.

        Before their child is seen parents are independent; in a sample they are not quite. The
        product of their distributions is a prior on the family, known by its values at the rows,
        and becomes weights on them.
        """
        family = self.layout.given[child]
        node = nodes[family]
        both = rows_in_both(found[family], found[child])
        points = found[family].at(both), found[child].at(both)
        edge = self.fit_edge(node, nodes[child], points, self.weights[both])
        values = None
        for parent, part in zip(self.layout.parents(child), node.points, strict=True):
            one = nodes[parent]
            mean = one.embedding(one.weights)(part)
            values = mean if values is None else values * mean
        m = node.inverse(0.0) @ (node.coordinates.T @ (node.weights * values))
        return reweight_node(node, m, edge.regularization_)


def reweight_node(node: Node, m: Array, regularization: float) -> Node:
    """A node with the weights on its rows that an embedding m amounts to, negative parts cut.

    `u = w ∘ Ψ (C + λI)⁻¹ m`, as a prior in the sum rule.
    """
    u = node.weights * (node.coordinates @ (node.inverse(regularization) @ m))
    return replace(node, weights=positive_part(u))


# --- fields with templates ----------------------------------------------------------------------


@dataclass(frozen=True)
class FieldLearner(EdgeLearner):
    """How a field is learned: every kind of nodes and every template once."""

    field: RandomField
    max_samples: int
    rng: np.random.Generator

    def learn(self, table: Mapping[Any, Any], kernels: Kernels) -> Potentials:
        """Everything, from one column per node."""
        field = self.field
        values = [self.values(k, table, kernels) for k in range(len(field.members))]
        pairs = []
        for template, name in enumerate(field.names):
            a, b = field.ends(2 * template)
            joined = field.local[field.edges[field.template == template]]
            pairs.append(self.pair_values(name, values[a], values[b], joined))
        spaces = [self.fit_node(self.some_of(one)).space for one in values]
        supports = [self.support(k, values[k], spaces[k], pairs) for k in range(len(values))]
        nodes = [self.node(*each) for each in zip(values, spaces, supports, strict=True)]
        links: list[Link] = []
        for template, ends in enumerate(pairs):
            links += self.links(template, ends, values, supports, nodes)
        flat = [one.flat for one in values]
        widths = {
            k: self.width(self.some_of(values[k], LOOKED))
            for k, support in enumerate(supports)
            if isinstance(support, GridSupport) and len(support.grid) > 1
        }
        return Potentials(field, nodes, links, flat, self.least, widths)

    def some(self, n: int, most: int = MOST) -> np.ndarray:
        """Numbers below n, in order; a random part if there are more than `most`."""
        return np.arange(n) if n <= most else np.sort(self.rng.choice(n, most, replace=False))

    def some_of(self, values: Variable, most: int = MOST) -> Variable:
        """Some values of a variable."""
        some = self.some(len(values.rows), most)
        return replace(values, points=take(values.points, some), rows=values.rows[some])

    # --- kinds --------------------------------------------------------------------------------

    def values(self, kind: int, table: Mapping[Any, Any], kernels: Kernels) -> Variable:
        """The values of a kind, in all cells that have one and a weight."""
        field, n = self.field, len(self.weights)
        names = [field.nodes[v] for v in field.members[kind]]
        known = [i for i, name in enumerate(names) if name in table]
        if not known:
            remedy = "Add a column, or give its edges the template of edges with data."
            raise ValueError(f"data: there is no column for {field.called(kind)}. {remedy}")
        kernel = shared_kernel(names, kernels)
        label = str(names[known[0]])
        stacked = stack_columns([table[names[i]] for i in known], [names[i] for i in known])
        found = read_variable(stacked, kernel, label)
        place, row = np.asarray(known)[found.rows // n], found.rows % n
        here = self.weights[row] > 0
        if not here.any():
            raise ValueError(f"{label}: all rows in which it has a value have weight zero.")
        if found.open is not None and here.sum() >= MANY:  # products of many need more detail
            found = replace(found, kernel=found.kernel.rescaled(0.5))
        kernel = found.kernel.bind(table[names[known[0]]], label)
        cells = (place * n + row)[here]
        found = replace(found, kernel=kernel, points=take(found.points, here), rows=cells)
        some = self.some_of(found)
        return replace(found, kernel=kernel.resolve(some.points, self.weigh(some)))

    def support(self, kind: int, values: Variable, space: Space, pairs: list[Positions]) -> Support:
        """The values that represent a kind."""
        if values.open is not None and values.points.shape[1] == 1:
            size = min(self.max_samples, max(FEWEST, FINE * space.rank_))
            if size < len(values.rows):
                return GridSupport.of(values.points, self.weigh(values), size)
        return CellSupport(self.cells(kind, values, pairs))

    def cells(self, kind: int, values: Variable, pairs: list[Positions]) -> np.ndarray:
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

    def width(self, values: Variable) -> np.ndarray:
        """The bandwidth of a density estimate of a kind's values."""
        w = self.weigh(values)
        return scales(values.points, w / w.sum())

    def node(self, values: Variable, space: Space, support: Support) -> Node:
        """A kind's space and the values that represent it."""
        points = support.points(values.points)
        rows = space.coordinates(points)
        found = Node(space, points, rows, asarray(support.weights(self.weigh(values)), rows))
        warn_without_constant(found)
        return found

    # --- templates ----------------------------------------------------------------------------

    def links(
        self,
        template: int,
        pairs: Positions,
        values: list[Variable],
        supports: list[Support],
        nodes: list[Node],
    ) -> list[Link]:
        """A template's two links."""
        ends = self.field.ends(2 * template)

        def fit(some: np.ndarray, t: int) -> ConditionalEmbedding:
            """P(t | s) from some of the pairs, t and s being 0 and 1 or the other way round."""
            s = 1 - t
            w = self.weigh(values[ends[t]], pairs[t][some])
            x, y = (take(values[ends[e]].points, pairs[e][some]) for e in (s, t))
            return self.fit_edge(nodes[ends[s]], nodes[ends[t]], (x, y), w, template)

        every = self.some(len(pairs[0]))
        whole = [fit(every, t) for t in (0, 1)]
        found = []
        for t, model in enumerate(whole):
            support, some = supports[ends[t]], every
            direct = whole[1 - t].operator_.inverse @ model.operator_.matrix
            mine = support.rows_of(pairs[t][every])
            if len(mine) < len(every):
                some = support.rows_of(pairs[t])
                model = fit(some, t)
            spread = support.gather(model.operator_.row_images, pairs[t][some])
            found.append(Link(spread, direct, model.regularization_))
        return found


def warn_without_constant(node: Node) -> None:
    """Warn of a kernel without constants: messages are scaled by their mean."""
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
    """The columns of nodes of one kind, one below the other."""
    first = column_names(columns[0])
    of = f"data[{names[0]!r}]"
    pairs = zip(columns, names, strict=True)
    columns = [in_order(c, first, f"data[{name!r}]", of) for c, name in pairs]
    pairs = zip(columns, names, strict=True)
    plain = [checks.plain(column_values(c), f"data[{name!r}]") for c, name in pairs]
    shapes = [tuple(c.shape[1:]) for c in plain]
    kinds = ["labels" if getattr(c.dtype, "kind", "f") in "OSU" else "numbers" for c in plain]
    for name, shape, kind in zip(names, shapes, kinds, strict=True):
        both = f"data: nodes {names[0]!r} and {name!r} are at the same end of a template, but"
        remedy = "Give their edges different templates."
        if shape != shapes[0]:
            raise ValueError(
                f"{both} a value of the first has shape {shapes[0]}, and of the second {shape}. "
                + remedy
            )
        if kind != kinds[0]:
            raise TypeError(f"{both} the first has {kinds[0]}, and the second {kind}. {remedy}")
    return plain[0] if len(plain) == 1 else concatenate(plain)


def shared_kernel(names: list[Any], kernels: Kernels) -> Kernel | None:
    """The kernel of nodes of one kind."""
    given = [(name, kernels[name]) for name in names if kernels[name] is not None]
    odd = next((name for name, kernel in given if kernel != given[0][1]), None)
    if odd is not None:
        raise ValueError(
            f"kernel: nodes {given[0][0]!r} and {odd!r} are at the same end of a template, and so "
            "have one kernel; got two."
        )
    return given[0][1] if given else None
