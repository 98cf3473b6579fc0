"""Distributions as examples: the gate for bags, and the kernel that compares them.

A bag is a sample, a weighted sample, an embedding or a normal distribution; a plain row is a bag of
one point. What the learners share is here: reading bags, the kernel of the second level, and
coordinates for the embeddings of many bags.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from meanmap import checks
from meanmap.arrays import Array, Points, count, is_array, take, to_numpy
from meanmap.frames import in_order, remember_columns, require_table, seen_columns
from meanmap.kernels import Expected, Gaussian, Kernel, Normal, OnEmbeddings, Weighted
from meanmap.kernels.defaults import as_kernel
from meanmap.kernels.domains.columns import all_numbers
from meanmap.kernels.domains.packed_bags import Pack, example_of, is_embedding
from meanmap.spaces import Basis, Nystroem, Space
from meanmap.spaces.space import fit_space

POINTS = 20_000  # points among which those that span a space of bags are chosen


def is_bag(item: Any) -> bool:
    """Whether this is a bag by its kind, or by having more than one axis."""
    kinds = isinstance(item, Normal | Weighted) or is_embedding(item) or hasattr(item, "columns")
    return kinds or depth(item) > 1


def depth(item: Any) -> int:
    """How many axes: of an array, or of lists in lists."""
    if isinstance(item, list | tuple):
        return 1 + (depth(item[0]) if item else 0)
    return int(getattr(item, "ndim", 0))


def as_bags(X: Any, kernel: Any, name: str) -> tuple[Any, bool]:
    """X as bags, and whether its rows were points by themselves, bags of one.

    `kernel` is the one between points: a list of 1-D items is rows where points are vectors, and
    bags where they are labels or strings.
    """
    if isinstance(X, Normal | Weighted) or (is_embedding(X) and not X.is_batch):
        raise TypeError(f"{name}: expected a list of bags, got one, {X!r:.60}. Pass [{name}].")
    if is_embedding(X):
        return list(X), False
    on_vectors = kernel is None or bool(getattr(kernel, "on_vectors", True))
    if (isinstance(X, list) or (is_array(X) and X.ndim)) and len(X) == 0:
        raise ValueError(
            f"Found array with 0 sample(s) while a minimum of 1 is required: {name} has no bags."
        )
    many = isinstance(X, list) or (checks.holds_objects(X) and X.ndim == 1)
    if many and (not on_vectors or any(is_bag(item) for item in X)):
        return X, False
    if is_array(X) and not many and X.ndim > 2:
        return X, False
    if hasattr(X, "iloc") and not all_numbers(X):
        return [X.iloc[i : i + 1] for i in range(len(X))], False  # rows that are not vectors
    if on_vectors:
        lengths = {len(row) for row in X if hasattr(row, "__len__")} if many else set()
        if len(lengths) > 1:
            raise ValueError(
                f"{name}: expected a list of bags, a 2D array of points each, but its items are "
                f"sequences of {min(lengths)} to {max(lengths)} numbers. Bags of numbers are "
                f"[np.reshape(x, (-1, 1)) for x in {name}]; rows must have one length."
            )
        require_table(X, name)
        return checks.vectors(X, name)[:, None], True
    rows = checks.any_points(X, name)
    if rows.ndim == 1:
        raise ValueError(
            f"{name}: expected a list of bags, one array of points each, got "
            f"{checks.describe(rows)}. Points by themselves are bags of one: "
            f"[{name}[i : i + 1] for i in range(len({name}))]."
        )
    return rows[:, None], True


@dataclass(frozen=True, eq=False)
class ReadBags:
    """Bags that were read; those of weight zero are left out."""

    bags: Points
    y: np.ndarray
    weights: np.ndarray  # which sum to one
    rows: np.ndarray  # where the bags were among all
    examples: Points  # what is compared: bags, or with a `point_basis` vectors in a space
    kernel: Kernel  # between examples, not yet resolved
    space: Space | None
    shown: Any  # what shows the columns: the table, or the first bag as it came


class DistributionEstimator(BaseEstimator):
    """What learners on distributions share: parameters, the gate, and the second level."""

    kernel: Any
    level2: Any
    bandwidth2: Any
    basis: Any
    point_basis: Any

    def _read(self, X: Any, y: np.ndarray, weights: Any) -> ReadBags:
        """The bags of positive weight, their targets, and the kernel between them."""
        between_points = self.level2.point_kernel if isinstance(self.level2, Kernel) else None
        if between_points is not None and self.kernel is not None:
            raise ValueError(
                f"kernel={self.kernel!r} and level2={self.level2!r} both name the kernel between "
                "points. Leave kernel=None where level2 is a kernel on bags."
            )
        bags, table = as_bags(X, self.kernel if between_points is None else between_points, "X")
        kernel = self._second(bags)
        checked = kernel.check(bags, "X")
        w = to_numpy(checks.sample_weights(weights, checked, np.empty(0)))
        check_consistent_length(checked, y)
        there = np.flatnonzero(w > 0)
        kept, w = take(checked, there), w[there]
        examples, kernel, space = self._embed(kernel, kept, w)
        shown = X if table else bags[0]
        return ReadBags(kept, y[there], w, there, examples, kernel, space, shown)

    def _second(self, bags: Any) -> Kernel:
        """The kernel between bags."""
        if isinstance(self.level2, Kernel) and not self.level2.radial:
            return self.level2.bind(bags, "X")
        inner = self._point_kernel(bags)
        if isinstance(self.level2, Kernel):
            return OnEmbeddings(inner, self.level2)
        checks.option(self.level2, "level2", ["linear", "gaussian"])
        if self.level2 == "linear":
            return Expected(inner)
        return OnEmbeddings(inner, Gaussian(self.bandwidth2))

    def _point_kernel(self, bags: Any) -> Kernel:
        """The kernel between points: the user's, that of all embeddings, or one for the points."""
        first = bags[0]
        if self.kernel is None and all(is_embedding(bag) for bag in bags):
            for i, bag in enumerate(bags):
                if bag.kernel != first.kernel:
                    raise ValueError(
                        f"X[{i}] is an embedding by {bag.kernel!r}, X[0] one by {first.kernel!r}. "
                        "Embed all with one kernel, or pass kernel= to use their atoms and weights "
                        "with it."
                    )
            return first.kernel
        if is_embedding(first):
            first = first.atoms
        elif isinstance(first, Weighted):
            first = first.points
        normal = isinstance(first, Normal) or (
            isinstance(first, list) and len(first) and isinstance(first[0], Normal)
        )
        if normal and self.kernel is None:
            return Gaussian("scaled median")
        return as_kernel(self.kernel, first, "X[0]")

    def _embed(
        self, kernel: Kernel, bags: Points, w: np.ndarray
    ) -> tuple[Points, Kernel, Space | None]:
        """What is compared, by which kernel: bags, or with a `point_basis` vectors in a space."""
        if self.point_basis is None:
            return bags, kernel, None
        between = kernel.between_embeddings
        if between is None or kernel.point_kernel is None:
            raise ValueError(
                f"point_basis gives coordinates to embeddings, which level2={kernel!r} does not "
                'compare by. Use level2="gaussian" or "linear", or basis= for the bags.'
            )
        expected = Expected(kernel.point_kernel).resolve(bags, w)
        space, vectors = embeddings_space(expected, self.point_basis, bags, w)
        return vectors, between, space

    def _remember(self, read: ReadBags, kernel: Kernel) -> None:
        """Keep what it takes to read new bags: kernels, one of the bags, columns and names."""
        bags, space, shown = read.bags, read.space, read.shown
        if hasattr(shown, "columns") or depth(shown) == 2:
            remember_columns(self, shown)
        else:
            for name in ("n_features_in_", "feature_names_in_"):
                if hasattr(self, name):
                    delattr(self, name)
            example = example_of(bags[0])
            if not isinstance(example, tuple) and example.ndim == 2:
                self.n_features_in_ = int(example.shape[1])
        self.kernel_ = kernel
        self.point_space_ = space
        self._bag_kernel: Kernel = kernel if space is None else space.kernel_
        self._like = take(bags, slice(0, 1))

    def _again(self, X: Any) -> Points:
        """What the kernel of the second level compares, for new bags."""
        check_is_fitted(self)
        kernel = self._bag_kernel
        X = in_order(X, getattr(self, "feature_names_in_", None), "X", "the training data")
        bags, table = as_bags(X, kernel.point_kernel, "X")
        if table or hasattr(bags[0], "columns"):
            seen_columns(self, X if table else bags[0], "X" if table else "X[0]")
        checked = self._bag_kernel.check(bags, "X", self._like)
        space = self.point_space_
        return checked if space is None else space.coordinates(checked)


def embeddings_space(kernel: Expected, basis: Any, bags: Points, w: Array) -> tuple[Space, Array]:
    """A space for embeddings of bags, spanned by k(p, ·) over a few of the bags' points p.

    A bag is then a vector, L⁻¹ E k(P, x): n bags of m points take n·m·r kernel values in place of
    (n·m)², and kernels between bags cost no more than between vectors.
    """
    if not isinstance(basis, Basis):
        raise no_spanning_points(basis)
    if not basis.exact:
        basis = Nystroem(landmarks=spanning_points(kernel.kernel, basis, bags))
    return fit_space(kernel, basis, bags, w)


def no_spanning_points(basis: Any) -> TypeError:
    """The error for a basis that no points span."""
    what = "a basis" if isinstance(basis, Basis) else "no basis"
    return TypeError(
        "point_basis: expected PivotedCholesky(), Nystroem(n), Explicit() or None, got "
        f"{basis!r}, {what} without points that span it."
    )


def spanning_points(kernel: Kernel, basis: Basis, bags: Points) -> list[Points]:
    """Points that a basis chooses among those of all bags, each as a bag by itself."""
    points = Pack(bags).centres
    some = np.linspace(0, count(points) - 1, min(count(points), POINTS)).astype(int)
    points = take(points, some)
    chosen = fit_space(kernel, basis, points)[0].map_
    if chosen.landmarks is None:
        raise no_spanning_points(basis)
    return [take(chosen.landmarks[0], slice(i, i + 1)) for i in range(chosen.rank)]
