"""Evidence on its way into a graphical model: points of a node, and how much they say."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np

from meanmap import checks, frames
from meanmap.arrays import Array, Points, is_array, namespace, to_numpy
from meanmap.graphical.messages import Node
from meanmap.linalg import ConflictWarning

FAR = 0.05  # evidence with a support below this lies outside the data
NOTHING = 1e-4  # and below this says nothing
PACKAGE = __name__.partition(".")[0] + "."


def by_name(node: Node, name: Any, value: Any) -> Any:
    """A frame, or one row of it, with the node's columns in their order."""
    names, called = node.space.kernel_.names, f"evidence[{name!r}]"
    return frames.row_in_order(frames.in_order(value, names, called, "the data"), names, called)


def points_of(node: Node, name: Any, value: Any) -> tuple[Points, bool]:
    """A point of a node, or several, and whether it was one."""
    kernel, like = node.space.kernel_, node.space._sample
    if not np.isscalar(value):
        value = checks.plain(by_name(node, name, value), f"evidence[{name!r}]")
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


def informative(node: Node, names: list[Any], points: Points, psi: Array) -> Array:
    """Evidence in coordinates; with a warning where it lies outside the data.

    Far outside, where its coordinates are rounding errors, it says nothing: the node's own
    distribution stands in its place.
    """
    if not node.space._coordinates.projects:
        return psi
    xp = namespace(psi)
    share = xp.sum(psi * psi, axis=1) / node.space.kernel_._diagonal(points)
    worst = int(to_numpy(share).argmin())
    outside(names[worst if len(names) > 1 else 0], float(share[worst]))
    return xp.where((share < NOTHING)[:, None], node.mean, psi)


def outside(name: Any, share: float) -> None:
    """Warn where the data hold little of the evidence on a node."""
    if share < FAR:
        warnings.warn(
            f"evidence on {name!r} lies outside the data (its support is {share:.2g}, below "
            f"{FAR}): what follows from it is not informed by any row.",
            ConflictWarning,
            stacklevel=depth_of_caller(),
        )


def depth_of_caller() -> int:
    """The stack level of whoever called this package: where a warning belongs."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(PACKAGE):
        level, frame = level + 1, frame.f_back
    return level
