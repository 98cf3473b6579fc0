"""Kernels on bags: samples, weighted samples and normal distributions that stand for themselves."""

from __future__ import annotations

from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Array, Points, for_each_thread, is_array, spans, take, to_numpy
from meanmap.frames import is_frame
from meanmap.kernels.algebra import match_columns
from meanmap.kernels.bandwidths import median_factor, weighted_median
from meanmap.kernels.domains.normals import CLOSED, Normal, compare_groups, has_closed_form
from meanmap.kernels.domains.objects import ObjectKernel, read_objects
from meanmap.kernels.domains.packed_bags import (
    Pack,
    Weighted,
    blocks,
    example_of,
    is_embedding,
    ranges,
    resolve_inner,
)
from meanmap.kernels.features import FeatureMap, Flat
from meanmap.kernels.protocol import ALL, Comparison, Kernel
from meanmap.kernels.radial import Radial
from meanmap.kernels.vectors import Gaussian, Linear

MEMORY = 1 << 21  # kernel values between points in memory at a time
BLOCKS = 16  # stretches of rows that a symmetric Gram matrix is computed in
MEDIAN = 300  # bags among which a median distance is taken


class BagKernel(ObjectKernel):
    """A kernel on bags of an inner kernel's points."""

    kernel: Kernel
    domain = "bags"

    @property
    def parts(self) -> tuple[Kernel, ...]:  # type: ignore[override]
        """The kernel between points."""
        return (self.point_kernel,)

    @property
    def point_kernel(self) -> Kernel:  # type: ignore[override]
        """The kernel between the points of a bag."""
        if not isinstance(self.kernel, Kernel):
            name = type(self).__name__
            raise TypeError(
                f"{name} takes a kernel on the points of the bags, got {self.kernel!r}. Use "
                f"{name}(Gaussian()), for example."
            )
        return self.kernel

    def read_points(self, points: Any, name: str) -> Points:
        return self.check(points, name)

    def bind(self, points: Any, name: str = "points") -> Kernel:
        many = isinstance(points, list) or checks.holds_objects(points)
        frame = next((bag for bag in points if is_frame(bag)), None) if many else None
        inner = self.point_kernel
        inner = inner if frame is None else inner.bind(frame, f"{name}[0]")
        return self if inner is self.point_kernel else self.replace(kernel=inner)

    @property
    def names(self) -> tuple[Any, ...] | None:
        """The columns of the bags' points, or None."""
        return self.point_kernel.names

    def check(
        self, points: Any, name: str = "points", like: Points = None, like_name: str = "the sample"
    ) -> Points:
        if is_embedding(points):
            if not points.is_batch:
                raise TypeError(f"{name}: expected a list of bags, got one. Pass [{name}].")
            points = list(points)
        if is_array(points) and not checks.holds_objects(points):
            points = list(checks.any_points(points, name))  # bags of one size
        bags = read_objects(points, name, "bags, each of them a sample")
        first = None if like is None else like[0]
        seen: dict[int, Any] = {}  # points that bags share stay shared
        for i, bag in enumerate(bags):
            bags[i] = self._bag(bag, f"{name}[{i}]", first, like_name, seen)
            if first is None:
                first, like_name = bags[i], f"{name}[0]"
        return bags

    def _bag(self, bag: Any, name: str, like: Any, like_name: str, seen: dict[int, Any]) -> Any:
        """One bag that passed the gate, of the kind of another."""
        if isinstance(bag, Normal):
            return self._normal(bag, name, like, like_name)
        if is_embedding(bag):
            if bag.is_batch:
                raise TypeError(
                    f"{name}: a bag is one embedding, got a batch of {len(bag)}. Pass the batch by "
                    "itself, or a list of single embeddings."
                )
            atoms = match_columns(bag.atoms, bag.kernel, self.point_kernel, name)
            bag = Weighted(atoms, bag.weights)
        if not isinstance(bag, Weighted):
            example = None if like is None else example_of(like)
            return self.point_kernel.check(bag, name, example, like_name)
        points = seen.get(id(bag.points))
        if points is None:
            points = seen[id(bag.points)] = self._components(
                bag.points, f"{name}.points", like, like_name
            )
        weights = checks.weights(bag.weights, points, np.empty(0), f"{name}.weights")
        return Weighted(points, to_numpy(weights))

    def _components(self, parts: Any, name: str, like: Any, like_name: str) -> Any:
        """The points of a weighted bag, or its normal distributions."""
        many = isinstance(parts, list) or (checks.holds_objects(parts) and parts.ndim > 0)
        if many and len(parts) and isinstance(parts[0], Normal):
            parts = read_objects(parts, name, "Normals")
            for i, part in enumerate(parts):
                if not isinstance(part, Normal):
                    raise TypeError(
                        f"{name}[{i}]: expected a Normal like the first, got "
                        f"{checks.describe(part)}. A point is Normal(x, 0.0)."
                    )
                self._normal(part, f"{name}[{i}]", like, like_name)
                like, like_name = (part, f"{name}[0]") if like is None else (like, like_name)
            return parts
        if isinstance(parts, Normal):
            raise TypeError(
                f"{name}: expected points or a list of Normals, got one. Pass [normal]."
            )
        return self.point_kernel.check(
            parts, name, None if like is None else example_of(like), like_name
        )

    def _normal(self, bag: Normal, name: str, like: Any, like_name: str) -> Normal:
        if not has_closed_form(self.point_kernel):
            raise TypeError(
                f"{name}: the expectation of {self.point_kernel!r} under a Normal has no closed "
                f"form here; {CLOSED} have one. Use one of these, or draw a sample in its place: "
                "normal.sample(1000, rng)."
            )
        if like is not None:
            checks.same_kind(bag.mean[None], example_of(like), name, like_name)
        return bag

    def is_point(self, x: Any, like: Points) -> bool:
        if isinstance(x, Normal | Weighted):
            return True
        if is_embedding(x):
            return not x.is_batch
        example = example_of(like[0])
        if is_array(x):
            plain = not checks.holds_objects(x) and not isinstance(example, tuple)
            return plain and x.ndim == example.ndim
        if not isinstance(x, list) or isinstance(example, tuple):
            return isinstance(x, tuple)
        depth, item = 0, x
        while isinstance(item, list) and item:
            depth, item = depth + 1, item[0]
        if isinstance(item, Normal | Weighted) or is_embedding(item):
            return False
        return depth + np.ndim(item) == example.ndim


class Expected(BagKernel):
    """The expected kernel between distributions: E k(x, y), x drawn from one, y from the other.

    It is the inner product of their embeddings (Smola et al. 2007), so that a learner on samples is
    one on distributions. Points are bags: a list of samples of the inner kernel's points, of any
    sizes, over which the mean is taken; of `Weighted` samples and embeddings, whose weights count;
    of `Normal` distributions, in closed form for Gaussian, linear and polynomial kernels (Muandet,
    Fukumizu, Dinuzzo and Schölkopf 2012); or of all of these. It is linear in a bag's embedding,
    hence not characteristic on distributions over bags, whatever the inner kernel: `OnEmbeddings`
    is not. Bounded where the inner kernel is (and weights are those of probabilities).

    Parameters
    ----------
    kernel : Kernel
        The kernel between the points of the bags; "median" is resolved on all of them together.

    Examples
    --------
    >>> from meanmap.kernels import Expected, Linear, Normal, Polynomial
    >>> bags = [[[0.0], [2.0]], [[3.0], [4.0], [5.0]]]
    >>> Expected(Linear())(bags)  # the products of their means, 1 and 4
    array([[ 1.,  4.],
           [ 4., 16.]])
    >>> Expected(Polynomial(2))([Normal([1.0], 0.5)], bags).round(1)  # E (x y + 1)²
    array([[ 6., 34.]])
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    @property
    def bounded(self) -> bool:  # type: ignore[override]
        """Whether k(x, x) stays bounded on the whole domain."""
        return self.point_kernel.bounded

    def resolve(self, points: Points, weights: Array | None = None) -> Expected:
        return self.replace(kernel=resolve_inner(self.point_kernel, points, weights))

    @property
    def between_embeddings(self) -> Kernel:  # type: ignore[override]
        """Linear: E k(x, y) is the inner product of embeddings."""
        return Linear()

    def against(self, B: Points) -> Comparison:
        b = Pack(B)
        starts = np.cumsum(b.sizes) - b.sizes
        inner = self.kernel.against(b.points) if b.plain else None
        order = np.arange(len(B))

        def compare(A: Points, columns: Any, out: Any) -> Array:
            chosen = order[columns]
            answer = np.empty((len(A), len(chosen)))
            whole = Pack(A)
            room = MEMORY // whole.count if whole.shared else MEMORY // 16
            for j in [ALL] if b.shared else blocks(b.sizes[chosen], max(1, room)):
                part = Pack(B[chosen[j]], b.shared)
                where = ALL if b.shared else ranges(starts[chosen[j]], part.sizes)
                most = max(1, MEMORY // part.count)
                for i in [ALL] if whole.shared else blocks(whole.sizes, most):
                    a = whole if i == ALL else Pack(A[i])
                    if inner is not None and a.plain:
                        values = to_numpy(inner(a.points, where, None))
                    else:
                        values = compare_groups(self.kernel, a.groups, part.groups)
                    answer[i, j] = part.averages(a.averages(values, 0), 1)
            return answer

        return compare

    def gram_matrix(self, A: Points, B: Points) -> Array:
        if A is not B or len(A) < 2:
            return super().gram_matrix(A, B)
        # half of a symmetric matrix, the other mirrored
        compare, n = self.against(B), len(A)
        out = np.empty((n, n))
        rows = list(spans(n, -(-n // BLOCKS)))

        def work(thread: int, of: int) -> None:
            for i in rows[thread::of]:
                out[i, i.start :] = compare(A[i], slice(i.start, n), None)

        for_each_thread(work)
        for i in rows:
            out[i.start :, i] = out[i, i.start :].T
            out[i, i] = (out[i, i] + out[i, i].T) / 2
        return out

    def squared_norms(self, A: Points) -> Array:
        if Pack(A).shared:
            return self.gram_matrix(A, A).diagonal()
        inner, out = self.kernel, np.empty(len(A))
        for i in range(len(A)):
            bag = Pack(A[i : i + 1])
            gram = (
                to_numpy(inner.gram_matrix(bag.points, bag.points))
                if bag.plain
                else compare_groups(inner, bag.groups, bag.groups)
            )
            out[i] = bag.weights @ gram @ bag.weights
        return out

    def feature_map(self, points: Points) -> FeatureMap | None:
        pack = Pack(points)
        if not pack.plain and not isinstance(self.point_kernel, Linear):
            return None
        example = pack.points if pack.plain else example_of(points[0])
        inner = self.point_kernel.feature_map(example)
        return None if inner is None else BagMeans(inner)


class OnEmbeddings(BagKernel):
    """A radial kernel of the distance between embeddings: exp(-‖μ_P - μ_Q‖²/2τ²).

    Nonlinear in the distributions, so that a learner sees more of them than their means in a
    feature space (Christmann and Steinwart 2010; Muandet et al. 2012). Universal on the
    distributions over a compact set where the inner kernel is characteristic. Points are bags, as
    those of `Expected`.

    Parameters
    ----------
    kernel : Kernel
        The kernel between the points of the bags, whose embeddings are compared.
    profile : Gaussian, Laplace, Matern or RationalQuadratic
        The function of the distance, its bandwidth τ. "median" is the median distance between the
        embeddings of two bags, among 300 at most. Each is positive definite on any Hilbert space
        (Szabó, Sriperumbudur, Póczos and Gretton 2016, Table 1).

    Examples
    --------
    >>> from meanmap.kernels import Gaussian, Normal, OnEmbeddings
    >>> kernel = OnEmbeddings(Gaussian(1.0), Gaussian(0.5))
    >>> kernel([Normal([0.0], 1.0), Normal([0.0], 4.0)]).round(3)  # equal means, other spreads
    array([[1.   , 0.828],
           [0.828, 1.   ]])
    """

    def __init__(self, kernel: Kernel, profile: Kernel | None = None) -> None:
        self.kernel = kernel
        self.profile = profile

    @property
    def characteristic(self) -> str | None:  # type: ignore[override]
        """Where embeddings determine distributions, of distributions here."""
        found = self.point_kernel.characteristic
        return None if found is None else f"distributions over compact parts of {found}"

    @property
    def universal(self) -> str | None:  # type: ignore[override]
        """Where the space is dense in the continuous functions."""
        return self.characteristic

    @property
    def parts(self) -> tuple[Kernel, ...]:  # type: ignore[override]
        """The kernel between points, and the function of the distance."""
        return self.point_kernel, self.between_embeddings

    @property
    def between_embeddings(self) -> Radial:  # type: ignore[override]
        """The function of the distance between embeddings, as a kernel on vectors."""
        profile = Gaussian() if self.profile is None else self.profile
        if not isinstance(profile, Radial) or not profile.radial:
            raise TypeError(
                "profile: expected a radial kernel, Gaussian(), Laplace(), Matern() or "
                f"RationalQuadratic(), got {profile!r}."
            )
        if np.ndim(profile.bandwidth):
            raise ValueError(
                f"profile: embeddings have no columns; one bandwidth is needed, got {profile!r}."
            )
        return profile

    def resolve(self, points: Points, weights: Array | None = None) -> OnEmbeddings:
        expected = Expected(resolve_inner(self.point_kernel, points, weights))
        return self._with_profile(expected, points, weights)

    def _with_profile(
        self, expected: Expected, points: Points, weights: Array | None, gram: Array | None = None
    ) -> OnEmbeddings:
        """With the inner kernel of `expected`, and a number for a median."""
        profile = self.between_embeddings
        if isinstance(profile.bandwidth, str):
            factor = median_factor(profile.bandwidth)
            profile = profile.with_bandwidth(factor * _median(expected, points, weights, gram))
        return self.replace(kernel=expected.kernel, profile=profile.resolve(np.zeros((1, 1))))

    def resolve_gram(self, points: Points, weights: Array | None) -> tuple[OnEmbeddings, Array]:
        """The resolved kernel and the Gram matrix of the bags, which are compared only once."""
        expected = Expected(resolve_inner(self.point_kernel, points, weights))
        gram = expected.gram_matrix(points, points)
        kernel = self._with_profile(expected, points, weights, gram)
        return kernel, kernel._of(gram, gram.diagonal(), gram.diagonal(), True)

    def _of(self, gram: Array, left: Array, right: Array, same: bool = False) -> Array:
        """The kernel from inner products of embeddings and their squared norms."""
        squared = left[:, None] + right[None, :] - 2 * gram
        if same:
            np.fill_diagonal(squared, 0.0)
        np.maximum(squared, 0.0, out=squared)
        return self.between_embeddings.of_sum(squared)

    def against(self, B: Points) -> Comparison:
        expected = Expected(self.kernel)
        compare_bags, norms = expected.against(B), expected.squared_norms(B)

        def compare(A: Points, columns: Any, out: Any) -> Array:
            gram = compare_bags(A, columns, None)
            return self._of(gram, expected.squared_norms(A), norms[columns])

        return compare

    def gram_matrix(self, A: Points, B: Points) -> Array:
        if A is not B:
            return super().gram_matrix(A, B)
        gram = Expected(self.kernel).gram_matrix(A, A)
        return self._of(gram, gram.diagonal(), gram.diagonal(), True)

    def squared_norms(self, A: Points) -> Array:
        return np.ones(len(A))


class BagMeans(FeatureMap):
    """The mean of the inner kernel's features over a bag."""

    def __init__(self, part: FeatureMap) -> None:
        self.part = part
        self.rank = part.rank

    def __call__(self, points: Points) -> Array:
        parts = []
        for i in blocks(Pack(points).sizes, max(1, MEMORY // max(self.rank, 1))):
            pack = Pack(points[i], shared=False)
            if not pack.plain and not isinstance(self.part, Flat):
                raise TypeError(
                    "explicit features are means over points, and a Normal has no points. Use "
                    "basis=PivotedCholesky(), or draw samples: normal.sample(1000, rng)."
                )
            parts.append(pack.averages(to_numpy(self.part(pack.centres)), 0))
        return np.concatenate(parts)


def _median(expected: Expected, bags: Points, weights: Array | None, gram: Array | None) -> float:
    """The median distance between the embeddings of two different bags."""
    w = np.ones(len(bags)) if weights is None else to_numpy(weights).astype(np.float64)
    chosen = np.flatnonzero(w > 0)
    if len(chosen) > MEDIAN:
        chosen = np.sort(np.random.default_rng(0).choice(chosen, MEDIAN, replace=False))
    some = take(bags, chosen)
    K = expected.gram_matrix(some, some) if gram is None else gram[np.ix_(chosen, chosen)]
    i, j = np.triu_indices(len(chosen), k=1)
    norms = K.diagonal()
    squared = norms[i] + norms[j] - 2 * K[i, j]
    kept = squared > 1e-13 * max(float(norms.max(initial=0.0)), 1e-300)  # else the same bag
    if not kept.any():
        return 1.0
    pair = (w[chosen][i] * w[chosen][j])[kept]
    distances = np.sqrt(squared[kept])
    order = np.argsort(distances)
    return weighted_median(distances[order], pair[order])
