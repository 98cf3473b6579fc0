"""How far a sample is from a density known by its score: the kernel Stein discrepancy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Array, spans, to_numpy
from meanmap.kernels import Kernel, RationalQuadratic
from meanmap.kernels.bandwidths import column_scales
from meanmap.kernels.defaults import as_kernel
from meanmap.statistics.gates import require_points
from meanmap.statistics.scores import score_values
from meanmap.statistics.tiles import ThreadSums, for_each_tile

ESTIMATORS = ("U", "V")
SIDE = 256  # a tile has half a dozen companions, which fit a core's cache together


def stein_discrepancy(X: Any, score: Any, kernel: Any = None, estimator: str = "U") -> float:
    """The squared kernel Stein discrepancy of a sample to a density.

    The density is known by its score ∇log p alone: no normalising constant, no sample of it. With
    ξ(x) = k(x, ·) ∇log p(x) + ∇ₓk(x, ·), an element of the space whose mean under p is 0, it is
    ‖E ξ(X)‖² (Liu, Lee and Jordan 2016; Chwialkowski, Strathmann and Gretton 2016).

    Parameters
    ----------
    X : (n, d) array, the sample
    score : callable, (n, d) array or a distribution of scipy.stats
        A function from points (n, d) to the gradients of log p there, (n, d); those gradients at X;
        or a continuous distribution. A univariate one stands for independent columns.
        The density must vanish at the ends of its support.
    kernel : Kernel or None
        A smooth one on vectors. None is `RationalQuadratic(alpha=0.5)`, the inverse multiquadric,
        at the median distance, columns divided by a robust scale first: with it, unlike a
        Gaussian, a discrepancy that goes to 0 implies convergence in distribution for d ≥ 3 too
        (Gorham and Mackey 2017).
    estimator : {"U", "V"}
        "V" is the squared norm of the sample's mean; "U" leaves out the pairs of a point with
        itself and is unbiased, so that it can be negative.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import stats
    >>> from meanmap.statistics import stein_discrepancy
    >>> X = np.random.default_rng(0).normal(size=(1000, 1))
    >>> abs(stein_discrepancy(X, lambda x: -x)) < 0.005
    True
    >>> round(stein_discrepancy(X, stats.norm(loc=0.5)), 2)
    0.21
    """
    checks.option(estimator, "estimator", ESTIMATORS)
    least = 2 if estimator == "U" else 1
    sample = SteinSample.gate(X, score, kernel, least)
    sums = stein_sums(sample.kernel.resolve(sample.points), sample.points, sample.scores)
    return sums.estimate(estimator)


@dataclass(frozen=True, eq=False)
class SteinSample:
    """A checked sample, its scores, and the kernel as given."""

    #: As the caller gave them, for the score function; then on the host in double precision.
    given: Array
    points: np.ndarray  # in the units below
    scores: np.ndarray
    kernel: Kernel
    units: np.ndarray  # of the columns

    @classmethod
    def gate(
        cls, X: Any, score: Any, kernel: Any = None, least: int = 2, scaled: bool | None = None
    ) -> SteinSample:
        """The sample and its scores, or an error; columns in units of their own where `scaled`.

        None scales them if there is no kernel, which would say what is near.
        """
        given = checks.vectors(X, "X")
        require_points(given.shape[0], "X", least)
        scaled = kernel is None if scaled is None else scaled
        kernel = stein_kernel(kernel, given).bind(X, "X")
        scores = score_values(score, given)
        points = to_numpy(given).astype(np.float64)
        units = stein_units(points) if scaled else np.ones(points.shape[1])
        return cls(given, points / units, scores * units, kernel, units)


def stein_units(points: np.ndarray) -> np.ndarray:
    """Units for the columns, so that none counts for more because of its own unit.

    Points over them and scores times them are those of the density in the new units. On average,
    in logarithms, they are 1.
    """
    scales = column_scales(points)
    return scales / np.exp(np.mean(np.log(scales)))


def stein_kernel(kernel: Any, points: Array) -> Kernel:
    """A kernel that a Stein kernel can be made of."""
    chosen = RationalQuadratic(alpha=0.5) if kernel is None else as_kernel(kernel, points, "X")
    chosen.check(points, "X")
    few = to_numpy(points)[:1].astype(np.float64)
    chosen.resolve(few).stein_against(few, np.zeros_like(few))  # refuses kernels with kinks
    return chosen


@dataclass(frozen=True, eq=False)
class SteinSums:
    """Sums of the Stein kernel: over pairs of bins of points, and over its diagonal."""

    n: int
    bins: np.ndarray  # G, (s, s): the sum of h over the points of two bins
    trace: float

    def estimate(self, estimator: str) -> float:
        """The discrepancy by one of the estimators."""
        total = float(self.bins.sum())
        if estimator == "V":
            return total / self.n**2
        return (total - self.trace) / (self.n * (self.n - 1))


def stein_sums(
    kernel: Kernel, X: np.ndarray, S: np.ndarray, starts: np.ndarray | None = None
) -> SteinSums:
    """One pass over the Stein kernel, tile by tile; `starts` says where bins of rows begin."""
    n = len(X)
    starts = np.zeros(1, dtype=int) if starts is None else starts
    compare = kernel.stein_against(X, S)
    sums = ThreadSums((len(starts), len(starts)), (1,))

    def inside(rows: slice) -> tuple[slice, np.ndarray]:
        """The bins that a tile meets, and where they begin in it."""
        first = int(np.searchsorted(starts, rows.start, side="right")) - 1
        last = int(np.searchsorted(starts, rows.stop, side="left"))
        return slice(first, last), np.maximum(starts[first:last] - rows.start, 0)

    def work(thread: int, rows: slice, columns: slice) -> None:
        G, trace = sums.of(thread)
        tile = compare(X[rows], S[rows], columns)
        (p, at_p), (q, at_q) = inside(rows), inside(columns)
        if rows == columns:
            trace += np.trace(tile)
        if max(len(at_p), len(at_q)) == 1:
            part = np.full((1, 1), tile.sum())
        else:
            part = np.add.reduceat(np.add.reduceat(tile, at_q, axis=1), at_p, axis=0)
        G[p, q] += part
        if rows != columns:
            G[q, p] += part.T

    strips = list(spans(n, SIDE))
    if len(strips) > 4:
        for_each_tile(n, work, SIDE)
    else:  # too little to pay for threads, which simulations would start again and again
        for i, rows in enumerate(strips):
            for columns in strips[i:]:
                work(0, rows, columns)
    G, trace = sums.total()
    return SteinSums(n, G, float(trace[0]))


def stein_field(kernel: Kernel, X: np.ndarray, S: np.ndarray, at: np.ndarray) -> np.ndarray:
    """E ξ(X) at points, (m, d): how points should move to come nearer to the density.

    The mean over the sample of k(x, v) ∇log p(x) + ∇ₓk(x, v) is the velocity of Stein variational
    gradient descent (Liu and Wang 2016).
    """
    out = kernel.gram_times(at, X, S)
    for rows in spans(len(X), max(1, (1 << 20) // at.size)):
        out += kernel.gradients(X[rows], at).sum(axis=0)
    return out / len(X)
