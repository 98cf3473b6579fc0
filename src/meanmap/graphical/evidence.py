"""Evidence: observed points, likelihoods, and beliefs of others, checked and in coordinates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from meanmap import frames
from meanmap.arrays import (
    Array,
    Points,
    apply,
    asarray,
    at_least,
    concatenate,
    count,
    namespace,
    take,
    to_numpy,
)
from meanmap.conditional.trust import FAR
from meanmap.embeddings import Embedding
from meanmap.embeddings.element import function_values
from meanmap.exceptions import DataWarning, warn
from meanmap.graphical.field import Wiring
from meanmap.graphical.messages import Network
from meanmap.graphical.nodes import Node
from meanmap.graphical.passing import Alone
from meanmap.graphical.potentials import Potentials
from meanmap.graphical.supports import sum_cells
from meanmap.kernels import Kernel

SILENT = 1e-4  # evidence with less support than this says nothing

Function = Callable[[Points], Any]


# --- points -------------------------------------------------------------------------------------


def in_node_order(node: Node, name: Any, value: Any) -> Any:
    """A frame, or one row of it, with columns in the order of the node's."""
    names, called = node.space.kernel_.names, f"evidence[{name!r}]"
    return frames.row_in_order(frames.in_order(value, names, called, "the data"), names, called)


def evidence_points(node: Node, name: Any, value: Any) -> tuple[Points, bool]:
    """One or several points of a node, and whether it was one."""
    if not np.isscalar(value):
        value = in_node_order(node, name, value)
    return node.space.kernel_.rows(value, node.space.example_, f"evidence[{name!r}]")


def evidence_coordinates(
    node: Node, names: list[str], points: Points, regularization: float
) -> Array:
    """Evidence in coordinates, with a warning if it lies outside the data (none without names).

    λ is that of regressions on the node. Far outside, where its coordinates are rounding errors,
    evidence says nothing: the node's own distribution takes its place.
    """
    kernel, psi = node.space.kernel_, node.coordinates_of(points)
    xp = namespace(psi)
    share = xp.sum(psi * psi, axis=1) / kernel.squared_norms(points)
    projects = node.space.map_.projects
    far = to_numpy(share) < FAR if projects else np.zeros(count(points), dtype=bool)
    if not names:
        far = far & False
    elif regularization > 0 and has_numbers(kernel, points):
        far = far | node.reach(regularization).outside(points, psi)
    if far.any():
        warn_outside_data(names[int(far.argmax()) if len(names) > 1 else 0])
    return xp.where((share < SILENT)[:, None], node.mean, psi) if projects else psi


def has_numbers(kernel: Kernel, points: Points) -> bool:
    """Whether points are numbers, or tuples with numbers among them."""
    if isinstance(points, tuple):
        return any(part.ndim == 2 for part in points)
    return kernel.on_vectors


def warn_outside_data(name: str) -> None:
    """Warn that the evidence on a node lies outside the data."""
    warn(
        f"evidence on {name} lies outside the data: conclusions from it are extrapolated, and far "
        "outside it has no effect. Check the value, or fit on data that cover it.",
        DataWarning,
    )


def tree_points(
    network: Network, evidence: Mapping[Any, Any]
) -> tuple[dict[Any, Points], int | None]:
    """The points observed at nodes of a tree, and how many queries they are; None for one.

    Parents that are all observed are a point of their family, too.
    """
    found, sizes = {}, {}
    for name, value in evidence.items():
        found[name], single = evidence_points(network.nodes[name], name, value)
        if not single:
            sizes[name] = count(found[name])
    if len(set(sizes.values())) > 1:
        raise ValueError(
            f"evidence: expected the same number of points for each node, got {sizes}."
        )
    for family, members in network.layout.families.items():
        if all(name in found for name in members):
            counts = [count(found[name]) for name in members]
            rows = [np.resize(np.arange(size), max(counts)) for size in counts]
            found[family] = tuple(take(found[u], at) for u, at in zip(members, rows, strict=True))
    return found, next(iter(sizes.values()), None)


def tree_coordinates(
    network: Network, points: Mapping[Any, Points], quiet: bool
) -> dict[Any, Array]:
    """Observed points of a tree in coordinates; `quiet` about those outside the data."""
    found = {}
    for name, at in points.items():
        members = network.layout.families.get(name, ())
        called = [] if quiet else [" and ".join(map(repr, members)) or repr(name)]
        lam = network.usual_regularization(name)
        found[name] = evidence_coordinates(network.nodes[name], called, at, lam)
    return found


# --- fields -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FieldEvidence:
    """Checked evidence on a field: observed points, likelihood functions, given beliefs."""

    potentials: Potentials
    observed: dict[int, tuple[np.ndarray, Points, Array]]  # of a kind: nodes, points, coordinates
    trust: float  # the power of messages of observed nodes
    functions: dict[int, Function]  # by node
    beliefs: dict[int, Array]  # by node: the message equivalent to a given belief

    @classmethod
    def of(cls, potentials: Potentials, evidence: Mapping[Any, Any], trust: float) -> FieldEvidence:
        """From a dict by node whose names were checked."""
        field = potentials.field
        points: dict[int, list[tuple[int, Any]]] = {}
        functions: dict[int, Function] = {}
        beliefs: dict[int, Array] = {}
        for name, value in evidence.items():
            v = field.place[name]
            kind = int(field.kind[v])
            if isinstance(value, Embedding):
                beliefs[v] = belief_message(potentials, kind, name, value)
            elif callable(value):
                likelihood_values(value, potentials.nodes[kind].points, name)
                functions[v] = value
            else:
                points.setdefault(kind, []).append((v, value))
        observed = {}
        for kind, pairs in points.items():
            observed[kind] = observed_points(potentials, kind, pairs)
        return cls(potentials, observed, trust, functions, beliefs)

    @cached_property
    def hidden(self) -> np.ndarray:
        """Whether a node is not observed."""
        found = np.ones(len(self.potentials.field.nodes), dtype=bool)
        for nodes, _, _ in self.observed.values():
            found[nodes] = False
        return found

    @cached_property
    def messages(self) -> dict[int, tuple[np.ndarray, Array, np.ndarray]]:
        """Messages that do not change: for each kind hidden nodes, their messages and powers.

        They come from observed neighbours and from given beliefs.
        """
        field = self.potentials.field
        parts: dict[int, list[tuple[np.ndarray, Array, np.ndarray]]] = {}
        goes = ~self.hidden[field.sources] & self.hidden[field.targets]
        row = field.places([nodes for nodes, _, _ in self.observed.values()])
        for link in np.unique(field.links[goes]):
            message = np.flatnonzero(goes & (field.links == link))
            t, s = field.ends(int(link))
            psi = take(self.observed[t][2], row[field.sources[message]])
            beta = self.potentials.send(int(link), psi, "points")
            power = np.full(len(message), self.trust)
            parts.setdefault(s, []).append((field.targets[message], beta, power))
        for v, beta in self.beliefs.items():
            one = np.array([v]), beta[None, :], np.ones(1)
            parts.setdefault(int(field.kind[v]), []).append(one)
        found = {}
        for kind, several in parts.items():
            to, betas, powers = zip(*several, strict=True)
            beta = namespace(betas[0]).concat(list(betas))
            found[kind] = np.concatenate(to), beta, np.concatenate(powers)
        return found

    def alone(self, wiring: Wiring) -> list[Alone]:
        """For each kind the product of evidence on every hidden node."""
        field, found = self.potentials.field, []
        local = field.places(wiring.hidden)
        for kind, nodes in enumerate(wiring.hidden):
            node = self.potentials.nodes[kind]
            logs = asarray(np.zeros((0, count(node.points))), node.coordinates)
            to = np.zeros(0, dtype=int)
            if kind in self.messages:
                to, beta, power = self.messages[kind]
                logs = self.potentials.logarithms(beta, node.coordinates)
                logs = logs * asarray(power, logs)[:, None]
            functions = [v for v in self.functions if field.kind[v] == kind]
            if functions:
                more = [self.likelihood(v, node.points)[None, :] for v in functions]
                logs = namespace(logs).concat([logs, *more])
                to = np.concatenate([to, functions])
            at = local[to]
            peak, many = np.zeros(len(nodes)), np.bincount(at, minlength=len(nodes))
            if len(at):
                np.add.at(peak, at, to_numpy(namespace(logs).max(logs, axis=1)))
            logs = sum_cells(logs, at, len(nodes))
            top = namespace(logs).max(logs, axis=1, keepdims=True)
            found.append(Alone(logs, namespace(logs).exp(logs - top), peak, many))
        return found

    def likelihood(self, v: int, points: Points) -> Array:
        """Log of a node's likelihood at points, divided by its mean on the sample; 0 if none."""
        field = self.potentials.field
        node, name = self.potentials.nodes[int(field.kind[v])], field.nodes[v]
        if v not in self.functions:
            return asarray(np.zeros(count(points)), node.coordinates)
        scale = node.weights @ likelihood_values(self.functions[v], node.points, name)
        values = function_values(self.functions[v], points) / scale
        return apply("log", at_least(values, self.potentials.tiny))

    def heard(self, v: int) -> tuple[Array, np.ndarray]:
        """The messages to one node that do not change, and their powers."""
        kind = int(self.potentials.field.kind[v])
        if kind not in self.messages:
            return self.potentials.nodes[kind].coordinates[:0], np.zeros(0)
        to, beta, power = self.messages[kind]
        mine = np.flatnonzero(to == v)
        return take(beta, mine), power[mine]


def observed_points(
    potentials: Potentials, kind: int, pairs: list[tuple[int, Any]]
) -> tuple[np.ndarray, Points, Array]:
    """The observed nodes of a kind, their points and coordinates."""
    node, field = potentials.nodes[kind], potentials.field
    nodes = np.array([v for v, _ in pairs])
    names = [field.nodes[v] for v in nodes]
    values = [
        in_node_order(node, name, value) for name, (_, value) in zip(names, pairs, strict=True)
    ]
    kernel, like = node.space.kernel_, node.space.example_
    if kernel.on_vectors and all(is_row_of_numbers(value, like.shape[1]) for value in values):
        stacked = np.array([np.ravel(to_numpy(value)) for value in values])
        points = kernel.check(stacked, f"evidence[{names[0]!r}]", like)
    else:  # one by one, so that errors name the node
        each = []
        for name, value in zip(names, values, strict=True):
            found, single = evidence_points(node, name, value)
            if not single:
                raise ValueError(f"evidence[{name!r}]: expected one point, got {count(found)}.")
            each.append(found)
        points = concatenate(each)
    lam, called = potentials.usual_regularizations[kind], [repr(name) for name in names]
    return nodes, points, evidence_coordinates(node, called, points, lam)


def is_row_of_numbers(value: Any, size: int) -> bool:
    """Whether a value is `size` finite numbers."""
    if np.size(value) != size:
        return False
    plain = np.asarray(to_numpy(value))
    return plain.dtype.kind in "fiub" and bool(np.isfinite(plain).all())


def likelihood_values(function: Function, points: Points, name: Any) -> Array:
    """A likelihood at the points of a node, checked."""
    what = f"evidence[{name!r}]: a likelihood has to be"
    try:
        values = function_values(function, points)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{what} a number for each of {count(points)} points: {error}") from error
    plain = to_numpy(values)
    if values.ndim != 1:
        raise ValueError(f"{what} one number for each point, got shape {tuple(values.shape)}.")
    if not np.isfinite(plain).all():
        raise ValueError(f"{what} finite, got {plain[~np.isfinite(plain)][0]}.")
    if plain.min() < 0:
        raise ValueError(f"{what} at least 0, got {plain.min():.3g}. Return exp of a logarithm.")
    if plain.max() == 0:
        raise ValueError(
            f"{what} positive somewhere, got 0 at all {len(plain)} values of the data. It may be "
            "too narrow and fall between them, or too small and underflow. Only its shape matters: "
            "subtract the largest logarithm before exp."
        )
    return values


def belief_message(potentials: Potentials, kind: int, name: Any, belief: Embedding) -> Array:
    """The message of a belief q: `(C + λI)⁻¹ m_q`, its density over that of the data."""
    if belief.is_batch:
        raise ValueError(f"evidence[{name!r}]: expected one embedding, got {len(belief)}.")
    node = potentials.nodes[kind]
    atoms = belief.atoms_for(node.space.kernel_, f"evidence[{name!r}]", node.space.example_)
    weights = asarray(belief.normalized().weights, node.coordinates)
    m = node.space.mean_coordinates(atoms, weights)
    if node.space.map_.projects:
        whole = weights @ node.space.kernel_.gram_times(atoms, atoms, weights)
        if float(m @ m) < FAR * float(whole):
            warn_outside_data(repr(name))
    beta = node.inverse(potentials.usual_regularizations[kind]) @ m
    mean = float(beta @ node.mean)
    if mean <= 0:
        raise ValueError(
            f"evidence[{name!r}]: the belief lies outside the data. Give a likelihood as a "
            "function, or fit on data that cover it."
        )
    return beta / mean
