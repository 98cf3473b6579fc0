"""A variable of a graphical model: its space, its values, and evidence on it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from meanmap import checks, frames
from meanmap.arrays import (
    Array,
    Points,
    asarray,
    count,
    float_like,
    in_one_precision,
    is_array,
    namespace,
    take,
    to_numpy,
)
from meanmap.conditional.fitting import FittedConditional, Pairs, fit_pairs
from meanmap.conditional.operator import ConditionalOperator, Side
from meanmap.conditional.trust import FAR
from meanmap.embeddings import Embedding
from meanmap.embeddings.single import embedding_of
from meanmap.exceptions import DataWarning, warn
from meanmap.graphical.tables import Variable
from meanmap.kernels import Kernel
from meanmap.linalg import Spectrum
from meanmap.rules import positive_part
from meanmap.spaces import Space
from meanmap.spaces.space import fit_space

LEAST = 1e-3  # times the mean of a message: less is not told from nothing
MANY = 500  # rows that resolve half the median distance
SILENT = 1e-4  # of support: evidence with less says nothing


@dataclass(frozen=True, eq=False)
class Node:
    """A variable, or a family: its space, its values, and their coordinates."""

    space: Space
    points: Points
    coordinates: Array  # (n, r)
    weights: Array

    @cached_property
    def mean(self) -> Array:
        """The embedding of its distribution, (r,)."""
        return self.weights @ self.coordinates

    @cached_property
    def covariance(self) -> Array:
        """Its operator, `Ψᵀ diag(w) Ψ`."""
        return self.coordinates.T @ (self.weights[:, None] * self.coordinates)

    @cached_property
    def spectrum(self) -> Spectrum:
        """Of its covariance operator."""
        return Spectrum.of(self.covariance)

    def reach(self, regularization: float) -> ConditionalOperator:
        """A regression on the node at this λ, which tells what lies outside its data."""
        if regularization not in self._reaches:
            lam = self.spectrum.sufficient(regularization)
            self._reaches[regularization] = ConditionalOperator(
                self.space,
                Side(self.space, self.points, self.coordinates),
                self.coordinates,
                self.weights,
                self.spectrum.inverse(lam),
                regularization=lam,
            )
        return self._reaches[regularization]

    @cached_property
    def _reaches(self) -> dict[float, ConditionalOperator]:
        return {}

    def embedding(self, weights: Array, coordinates: Array | None = None) -> Embedding:
        return embedding_of(self.space, self.space.kernel_, self.points, weights, coordinates)


def as_coordinates(node: Node, points: Points) -> Array:
    """ψ of points, one row each."""
    return asarray(node.space.coordinates(points), node.coordinates)


# --- learning -----------------------------------------------------------------------------------


def fit_node(found: Variable, weights: np.ndarray, basis: Any) -> Node:
    """A variable with coordinates; its rows' weights are made to sum to one."""
    w = checks.sample_weights(weights, found.points, float_like(found.points))
    space, coordinates = fit_space(found.kernel, basis, found.points, w)
    return Node(space, found.points, coordinates, w)


def fit_edge(
    s: Space,
    t: Space,
    regularization: float | str,
    points: tuple[Points, Points],
    weights: np.ndarray,
) -> FittedConditional:
    """P(t | s) between two spaces, from paired points that were checked (those of s first)."""
    x, y, w = weigh_pairs(points, weights)
    pairs = Pairs(x, y, s.kernel_, t.kernel_, (s, t), w)
    found = fit_pairs(pairs, regularization, centered=False)
    if found.errors is not None:
        found.errors.warn_at_edge()
    return found


def weigh_pairs(points: tuple[Points, Points], weights: np.ndarray) -> tuple[Points, Points, Array]:
    """Pairs of points with weights that sum to one; rows of weight zero are left out."""
    x, y = in_one_precision(*points)
    if not weights.all():
        x, y = (take(part, weights > 0) for part in (x, y))
    return x, y, asarray(weights[weights > 0] / weights.sum(), float_like(x))


def reweight_node(node: Node, m: Array, regularization: float) -> Node:
    """A node with the weights on its rows that an embedding m amounts to, negative parts cut.

    `u = w ∘ Ψ (C + λI)⁻¹ m`, as a prior in the sum rule.
    """
    spectrum = node.spectrum
    H = spectrum.ridge(regularization)
    u = node.weights * (node.coordinates @ (H @ m))
    return replace(node, weights=positive_part(u))


# --- evidence -----------------------------------------------------------------------------------


def in_node_order(node: Node, name: Any, value: Any) -> Any:
    """A frame, or one row of it, with the node's columns in their order."""
    names, called = node.space.kernel_.names, f"evidence[{name!r}]"
    return frames.row_in_order(frames.in_order(value, names, called, "the data"), names, called)


def evidence_points(node: Node, name: Any, value: Any) -> tuple[Points, bool]:
    """A point of a node, or several, and whether it was one."""
    kernel, like = node.space.kernel_, node.space.example_
    if not np.isscalar(value):
        value = checks.plain(in_node_order(node, name, value), f"evidence[{name!r}]")
    if kernel.on_vectors and (np.ndim(value) == 0 or like.shape[1] == 1 and np.ndim(value) == 1):
        # one number, or a list of numbers for a variable of one
        try:
            plain = to_numpy(value) if is_array(value) else value
            flat_value = np.asarray(plain, dtype=float).reshape(-1, 1)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"evidence[{name!r}]: expected a number, got {value!r:.40} ({error})."
            ) from error
        points = kernel.check(flat_value, f"evidence[{name!r}]", like)
        return points, np.ndim(value) == 0 or len(flat_value) == 1
    points, single = kernel.rows(value, like, f"evidence[{name!r}]")
    return points, single


def evidence_coordinates(
    node: Node, names: list[Any], points: Points, psi: Array, regularization: float
) -> Array:
    """Evidence in coordinates; with a warning where it lies outside the data, unless there are no
    names to call it by.

    λ is that of regressions on the node. Far outside, where its coordinates are rounding errors,
    evidence says nothing: the node's own distribution stands in its place.
    """
    kernel, xp = node.space.kernel_, namespace(psi)
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
        f"evidence on {name} lies outside the data: what follows from it is extrapolated, and "
        "far outside it says nothing. Check the value, or fit on data that reach so far.",
        DataWarning,
    )
