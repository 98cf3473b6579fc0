"""Evidence on its way into a graphical model: points of a node, and how much they say."""

from __future__ import annotations

from typing import Any

import numpy as np

from meanmap import checks, frames
from meanmap.arrays import Array, Points, count, is_array, namespace, to_numpy, warn
from meanmap.graphical.messages import Node
from meanmap.linalg import ConflictWarning

FAR = 0.05  # evidence with a support below this lies outside the data
NOTHING = 1e-4  # and below this says nothing


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
    """Evidence in coordinates; with a warning where it lies outside the data.

    λ is that of regressions on the node. Far outside, where its coordinates are rounding errors,
    evidence says nothing: the node's own distribution stands in its place.
    """
    kernel, xp = node.space.kernel_, namespace(psi)
    share = xp.sum(psi * psi, axis=1) / kernel.squared_norms(points)
    projects = node.space.map_.projects
    far = to_numpy(share) < FAR if projects else np.zeros(count(points), dtype=bool)
    if kernel.on_vectors and regularization > 0:
        far = far | node.reach(regularization).is_outside(node, points, psi)
    if far.any():
        warn_outside_data(names[int(far.argmax()) if len(names) > 1 else 0])
    return xp.where((share < NOTHING)[:, None], node.mean, psi) if projects else psi


def warn_outside_data(name: Any) -> None:
    """Warn that the evidence on a node lies outside the data."""
    warn(
        f"evidence on {name!r} lies outside the data: what follows from it is extrapolated, and "
        "far outside it says nothing. Check the value, or fit on data that reach so far.",
        ConflictWarning,
    )
