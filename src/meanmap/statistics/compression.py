"""A few points that stand for many."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from meanmap import checks, decoding, plots
from meanmap.arrays import Points, count, in_kind, one_blas_thread, take, to_numpy
from meanmap.embeddings import Embedding, embed
from meanmap.kernels import Kernel
from meanmap.kernels.defaults import as_kernel
from meanmap.linalg import Spectrum
from meanmap.statistics.centring import center_kernel
from meanmap.statistics.thinning import thin_sample
from meanmap.statistics.tiles import gram_sums, on_host

METHODS = ("thinning", "herding", "random")
RANK = 1e-12  # eigenvalues below this share of the largest are rounding


@dataclass(frozen=True, eq=False, repr=False)
class Compression:
    """Some points of a sample, and how near their embedding is to the sample's.

    Attributes
    ----------
    points, indices : the points, and which they are of the sample; one may be there twice
    weights : array (n,)
        Equal ones, unless they were chosen as well.
    kernel : the kernel, resolved
    method : str
    mmd : float
        `‖μ_sample - μ_points‖²`, as `mmd(sample, points, kernel, "V")`; computed when first asked
        for, from all pairs of points of the sample.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.statistics import compress
    >>> few = compress(np.random.default_rng(0).normal(size=(1000, 2)), 20, rng=0)
    >>> few.points.shape, round(float(few.weights.sum()), 6)
    ((20, 2), 1.0)
    """

    points: Points
    indices: np.ndarray
    weights: np.ndarray
    kernel: Kernel
    method: str
    sample: Points = field()
    sample_weights: np.ndarray = field()

    @cached_property
    def mmd(self) -> float:
        w, v = self.sample_weights, to_numpy(self.weights)
        points = on_host(self.points)
        kernel = center_kernel(self.kernel, self.sample)  # the same distance, of smaller embeddings
        # few points' sums as a weighted Gram matrix; the sample's own never stored
        if np.ptp(w) == 0:
            own = gram_sums(kernel, self.sample) / len(w) ** 2
        else:
            own = float(w @ to_numpy(kernel.gram_times(self.sample, self.sample, w)))
        across = float(v @ to_numpy(kernel.gram_times(points, self.sample, w)))
        inside = float(v @ to_numpy(kernel.gram_times(points, points, v)))
        return max(own - 2 * across + inside, 0.0)

    def __len__(self) -> int:
        return len(self.indices)

    def embedding(self) -> Embedding:
        """The embedding of the points."""
        return embed(self.points, self.kernel, self.weights)

    def plot(self, ax: Any = None) -> Any:
        """The points over the sample: rows of one or two coordinates."""
        host = None if isinstance(self.sample, tuple) else to_numpy(self.sample)
        if host is None or host.ndim != 2 or host.shape[1] > 2 or host.dtype.kind not in "fiu":
            raise ValueError(
                "plot draws points with one or two coordinates; these are "
                f"{checks.describe(self.sample)}."
            )
        ax = plots.axes(ax)
        flat = host.shape[1] == 1
        few = host[to_numpy(self.indices)]
        size = 20 * len(self) * to_numpy(self.weights)
        if flat:
            ax.hist(host[:, 0], bins=50, weights=self.sample_weights, color=plots.GREY, alpha=0.6)
            ax.scatter(
                few[:, 0], np.zeros(len(few)), size, color=plots.ORANGE, marker="|", zorder=3
            )
            ax.set(xlabel="x", ylabel="share of the sample")
        else:
            ax.plot(host[:, 0], host[:, 1], ".", color=plots.GREY, markersize=2, alpha=0.4)
            ax.scatter(few[:, 0], few[:, 1], size, color=plots.ORANGE, zorder=3)
            ax.set(xlabel="x₁", ylabel="x₂")
        ax.set_title(f"{len(self)} of {len(host):,} points, MMD {self.mmd**0.5:.2g}")
        return ax

    def __repr__(self) -> str:
        return (
            f"Compression({len(self)} of {count(self.sample)} points by {self.method}, "
            f"mmd={self.mmd:.3g}, {self.kernel!r})"
        )


def compress(
    points: Any,
    n: int | None = None,
    kernel: Any = None,
    weights: Any = None,
    method: str = "thinning",
    *,
    reweight: bool = False,
    rng: Any = None,
) -> Compression:
    """A few points of a sample whose embedding is near to that of all.

    Parameters
    ----------
    points : a sample of any kind of points
    n : int or None
        How many to take; None is √size, rounded.
    kernel : Kernel, callable or None
        In whose space it is to be near. None chooses for the kind of points.
    weights : array or None
        Of the sample, not negative; None is equal.
    method : {"thinning", "herding", "random"}
        Kernel thinning (Dwivedi and Mackey 2024): the sample is halved again and again, each pair
        of points split between the halves such that their embeddings stay together, and in the
        end points are swapped for better ones. Above some thousand points they are halved in blocks
        that grow (Shetty, Dwivedi and Mackey 2022), so that time grows little faster than the
        sample. "herding" takes points one by one, each where the ones before it left the greatest
        gap (Chen, Welling and Smola 2010), from all pairs of points. "random" draws them.
    reweight : bool
        Give the points the weights, not negative and of total one, that bring them nearest.
    rng : None, seed or Generator

    Returns
    -------
    Compression : with `.points .indices .weights .mmd .plot()`

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.statistics import compress
    >>> X = np.random.default_rng(0).normal(size=(4096, 2))
    >>> few = compress(X, rng=0)
    >>> few.points.shape
    (64, 2)
    >>> bool(few.mmd < compress(X, 64, few.kernel, method="random", rng=0).mmd / 100)
    True

    Any kernel does, as on strings:

    >>> from meanmap.kernels import NGrams
    >>> words = np.array(["rain", "rains", "train", "fog", "frog", "foggy"])
    >>> sorted(compress(words, 2, NGrams(2), rng=0).points.tolist())
    ['fog', 'rain']
    """
    checks.option(method, "method", METHODS)
    kernel = as_kernel(kernel, points, "points")
    checked = kernel.check(points, "points")
    sample = on_host(checked)
    size = count(sample)
    w = to_numpy(checks.sample_weights(weights, sample, np.empty(0), "weights"))
    m = max(1, round(size**0.5)) if n is None else checks.whole(n)
    if m > size:
        raise ValueError(
            f"n must be at most the number of points, {size}; got {m}. A compression takes some of "
            "the points; embed(points).sample(n) draws any number."
        )
    kernel = kernel.resolve(sample, w)
    random = checks.random_generator(rng)
    with one_blas_thread():
        if method == "thinning":
            index = thin_sample(kernel, sample, w, m, random)
        elif method == "herding":
            values = to_numpy(kernel.gram_times(sample, sample, w))
            index = decoding.herd(kernel, sample, values[None, :], m)[0]
        else:
            index = decoding.draw(w[None, :], m, random)[0]
        index = np.sort(index)
        v = np.full(m, 1 / m)
        if reweight:
            v = _nearest_weights(kernel, sample, w, index)
    chosen = take(checked, index)
    parts = in_kind(index, chosen), in_kind(v, chosen)
    return Compression(chosen, *parts, kernel, method, sample, w)


def _nearest_weights(
    kernel: Kernel, sample: Points, w: np.ndarray, index: np.ndarray
) -> np.ndarray:
    """The nearest probability on the points chosen, in coordinates of their span."""
    once, back, times = np.unique(index, return_inverse=True, return_counts=True)
    few = take(sample, once)
    spectrum = Spectrum.of(to_numpy(kernel.gram_matrix(few, few)).astype(np.float64))
    kept = spectrum.values > RANK * spectrum.values[-1]
    vectors, roots = spectrum.vectors[:, kept], np.sqrt(spectrum.values[kept])
    target = (to_numpy(kernel.gram_times(few, sample, w)) @ vectors) / roots
    v = decoding.nearest_probability(vectors * roots, target, times / times.sum())
    return (v / times)[back]
