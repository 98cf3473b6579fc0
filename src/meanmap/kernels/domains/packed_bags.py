"""Bags, one after the other: samples, weighted samples and normal distributions.

Each stands for a distribution, and all of them are mixtures: a sample of points in equal parts, a
weighted one in unequal parts, a normal distribution of itself alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from meanmap import checks
from meanmap.arrays import Array, Points, concatenate, count, spans, to_numpy
from meanmap.kernels.domains.normals import Groups, Normal, group_parts, sigma_points
from meanmap.kernels.protocol import ALL, Kernel

SPREAD = 200  # normal distributions whose sigma points a median distance is taken among


@dataclass(frozen=True, eq=False)
class Weighted:
    """A weighted sample as a bag: the distribution `Σ wᵢ δ(xᵢ)`.

    Weights are used as they are, signs included; an `Embedding` is taken as its atoms and weights.

    Parameters
    ----------
    points : points of the inner kernel, or a list of `Normal` for a mixture of them
    weights : array of shape (n,), or None for 1/n each

    Examples
    --------
    >>> from meanmap.kernels import Expected, Linear, Normal, Weighted
    >>> bags = [Weighted([[0.0], [4.0]], [0.75, 0.25]), [[0.0], [0.0], [0.0], [4.0]]]
    >>> Expected(Linear())(bags)
    array([[1., 1.],
           [1., 1.]])
    >>> mixture = Weighted([Normal([0.0]), Normal([3.0])], [0.5, 0.5])
    >>> Expected(Linear())([mixture], bags)
    array([[1.5, 1.5]])
    """

    points: Any
    weights: Any = None


def is_embedding(bag: Any) -> bool:
    """Whether this is an embedding, of whatever kernel: atoms and weights."""
    return hasattr(bag, "atoms") and hasattr(bag, "weights")


def example_of(bag: Any) -> Points:
    """Points that tell what those of a bag look like."""
    if isinstance(bag, Weighted):
        bag = bag.points if not checks.holds_objects(bag.points) else bag.points[0]
    return bag.mean[None] if isinstance(bag, Normal) else bag


def parts_of(bag: Any) -> list[Any]:
    """A bag as samples and normal distributions."""
    if not isinstance(bag, Weighted):
        return [bag]
    mixture = checks.holds_objects(bag.points) and isinstance(bag.points[0], Normal)
    return list(bag.points) if mixture else [bag.points]


class Pack:
    """Bags that passed the gate, their components one after the other.

    Where all bags weigh the same points, as a batch of embeddings does, these are there only once.
    """

    def __init__(self, bags: Sequence[Any], shared: bool | None = None) -> None:
        self.bags = bags
        first = bags[0]
        if shared is None:
            shared = len(bags) > 1 and all(
                isinstance(bag, Weighted) and bag.points is first.points for bag in bags
            )
        self.shared = shared

    @cached_property
    def parts(self) -> list[Any]:
        bags = self.bags[:1] if self.shared else self.bags
        return [part for bag in bags for part in parts_of(bag)]

    @property
    def count(self) -> int:
        """How many components there are."""
        return int(self.sizes[0] if self.shared else self.sizes.sum())

    @cached_property
    def plain(self) -> bool:
        """Whether all components are points."""
        return not any(isinstance(part, Normal) for part in self.parts)

    @cached_property
    def points(self) -> Points:
        return self.parts[0] if len(self.parts) == 1 else concatenate(self.parts)

    @cached_property
    def centres(self) -> Points:
        """Points, and the means of normal distributions."""
        return (
            self.points
            if self.plain
            else concatenate(
                [np.asarray(to_numpy(example_of(part)), dtype=np.float64) for part in self.parts]
            )
        )

    @cached_property
    def groups(self) -> Groups:
        return group_parts(self.parts)

    @cached_property
    def sizes(self) -> np.ndarray:
        return np.array([size_of(bag) for bag in self.bags])

    @cached_property
    def weighted(self) -> bool:
        """Whether any bag is weighted."""
        return any(isinstance(bag, Weighted) for bag in self.bags)

    @cached_property
    def weights(self) -> np.ndarray:
        """Of every component: 1/n each, or a bag's own."""
        sizes = self.sizes
        if not self.weighted:
            return np.repeat(1 / sizes, sizes)
        each = [
            bag.weights if isinstance(bag, Weighted) else np.full(size, 1 / size)
            for bag, size in zip(self.bags, sizes, strict=True)
        ]
        return np.concatenate(each)

    def averages(self, values: np.ndarray, axis: int) -> np.ndarray:
        """The (weighted) mean over every bag's stretch of an axis."""
        w, sizes = self.weights, self.sizes
        if self.shared:
            rows = w.reshape(len(sizes), -1)
            return rows @ values if axis == 0 else values @ rows.T
        if (sizes == 1).all():
            return values * (w[:, None] if axis == 0 else w) if self.weighted else values
        ends = np.concatenate([[0], np.cumsum(sizes)])
        sums = csr_array((w, np.arange(len(w)), ends), (len(sizes), len(w)))
        return sums @ values if axis == 0 else (sums @ values.T).T


def size_of(bag: Any) -> int:
    if isinstance(bag, Normal):
        return 1
    return count(bag.points) if isinstance(bag, Weighted) else count(bag)


def blocks(sizes: np.ndarray, most: int) -> list[slice]:
    """Consecutive bags of at most `most` points together, or one bag alone."""
    if int(sizes.sum()) <= most:
        return [ALL] if len(sizes) else []
    size = max(1, most // int(sizes.max()))
    return list(spans(len(sizes), size))


def ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """start, start + 1, … of every bag, one after the other."""
    ends = np.cumsum(sizes)
    return np.arange(int(ends[-1])) + np.repeat(starts - (ends - sizes), sizes)


# --- bandwidths -----------------------------------------------------------------------------------


def resolve_inner(kernel: Kernel, bags: Points, weights: Array | None) -> Kernel:
    """The inner kernel resolved on all points, those of a bag sharing the bag's weight.

    Without weights each point of plain samples counts alike. A normal distribution counts by its
    sigma points.
    """
    pack = Pack(bags, shared=False)
    if pack.plain and not pack.weighted:
        sizes = pack.sizes
        w = None if weights is None else np.repeat(to_numpy(weights) / sizes, sizes)
        return kernel.resolve(pack.points, w)
    mass = np.ones(len(bags)) if weights is None else to_numpy(weights)
    shares = abs(pack.weights)
    owners = np.repeat(np.arange(len(bags)), pack.sizes)
    totals = np.bincount(owners, shares, len(bags))
    w = mass[owners] * shares / np.where(totals > 0, totals, 1.0)[owners]
    if pack.plain:
        return kernel.resolve(pack.points, w)
    points, found = [], []
    start, normals, theirs = 0, [], []
    for part in pack.parts:
        if isinstance(part, Normal):
            normals.append(part)
            theirs.append(w[start])
            start += 1
        else:
            points.append(np.asarray(to_numpy(part), dtype=np.float64))
            found.append(w[start : start + len(part)])
            start += len(part)
    chosen = np.linspace(0, len(normals) - 1, min(len(normals), SPREAD)).astype(int)
    sigma, which = sigma_points([normals[i] for i in chosen])
    scale = len(normals) / len(chosen) / (2 * sigma.shape[1])  # some stand for all
    shared = scale * np.asarray(theirs)[chosen][which]
    return kernel.resolve(np.concatenate([*points, sigma]), np.concatenate([*found, shared]))
