"""How large an effect is: numbers between 0 and 1, with intervals.

Every one is the squared length of a mean over the mean of squared lengths, in the kernel's space:
0 where the null hypothesis is true, 1 where all rows say the same. Estimates leave out pairs of a
row with itself, which would be a bias; intervals are those of the jackknife, which leaves out one
row after the other and is exact algebra on sums over rows of Gram matrices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import norm

from meanmap.arrays import Points, concatenate, count, spans, take
from meanmap.kernels import Kernel
from meanmap.statistics.centring import Centred
from meanmap.statistics.distance import row_by_row
from meanmap.statistics.moments import Moments
from meanmap.statistics.stein import SteinSample
from meanmap.statistics.tiles import diagonal_of, on_host

LEVEL = 0.95
ROWS = 5000  # of each sample; of more, so many drawn at random: the interval allows for it
JOINT_ROWS = 2000  # where every variable has a Gram matrix in memory, row by row
AT_ONCE = 1 << 20  # elements of a Gram matrix that are held at a time
DISTANCE = "normalised MMD"
CORRELATION = "kernel distance correlation"


@dataclass(frozen=True)
class EffectSize:
    """How large an effect is, on a scale from 0 to 1, with a confidence interval.

    Attributes
    ----------
    name : str
        What it is: "normalised MMD" is MMD² over the mean squared distance of a point of X and one
        of Y in the kernel's space, "kernel distance correlation" is HSIC over the root of the
        product of both variables' own (with the energy kernel, the squared distance correlation).
    value : float
        The estimate, without bias to first order, cut off at 0 and 1.
    interval : (float, float)
        Where the true value lies with probability `level`, approximately: from the jackknife. Not
        a number where there are too few rows to say.
    level : float
    rows : int
        How many rows it was computed from, all samples together.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import two_sample_test
    >>> rng = np.random.default_rng(0)
    >>> result = two_sample_test(rng.normal(size=(200, 2)), rng.normal(1, 1, size=(200, 2)), rng=0)
    >>> result.effect
    normalised MMD = .24, 95% CI [.19, .30]
    """

    name: str
    value: float
    interval: tuple[float, float]
    level: float = LEVEL
    rows: int = 0

    @classmethod
    def of(cls, name: str, value: float, error: float, rows: int) -> EffectSize:
        """From an estimate and its standard error.

        The variance of a small effect grows with it. As Wilson's (1927) interval of a share, this
        one holds the effects θ for which |value - θ| ≤ z √variance(θ), with a variance in
        proportion to θ + error that is the error's square at the estimate.
        """
        z, start = float(norm.ppf(0.5 + LEVEL / 2)), max(value, 0.0)
        growth = z**2 * float(safe_ratio(error**2, start + error))
        middle = value + growth / 2
        half = math.sqrt(max(middle**2 - value**2 + growth * error, 0.0))
        low, high = (min(max(edge, 0.0), 1.0) for edge in (middle - half, middle + half))
        if math.isnan(error):
            low = high = math.nan
        return cls(name, min(max(value, 0.0), 1.0), (low, high), rows=rows)

    def to_dict(self) -> dict[str, Any]:
        """The figures under plain names, for JSON."""
        low, high = (None if math.isnan(edge) else edge for edge in self.interval)
        return {
            "name": self.name, "value": self.value, "low": low, "high": high,
            "level": self.level, "rows": self.rows,
        }  # fmt: skip

    def __str__(self) -> str:
        text = f"{self.name} = {show_share(self.value)}"
        if math.isnan(self.interval[0]):
            return text
        low, high = map(show_share, self.interval)
        return f"{text}, {self.level:.0%} CI [{low}, {high}]"

    def __repr__(self) -> str:
        return str(self)


def show_share(value: float) -> str:
    """A number between 0 and 1 to two digits that count, without the 0 before the point."""
    digits = 2 if value >= 0.1 or value < 5e-5 else min(1 - math.floor(math.log10(value)), 4)
    text = f"{value:.{digits}f}"
    return text.removeprefix("0") if text.startswith("0.") else text


def jackknife_error(*groups: np.ndarray) -> float:
    """The standard error of an estimate from those without each row, one group per sample.

    Rows of one sample are exchangeable among themselves (Arvesen 1969).
    """
    if min(map(len, groups)) < 2 or not all(np.isfinite(g).all() for g in groups):
        return math.nan
    return float(sum((len(g) - 1) * np.var(g) for g in groups) ** 0.5)


def choose_rows(n: int, most: int) -> np.ndarray:
    """All rows, or so many drawn at random, always the same."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, most, replace=False))


def safe_ratio(top: Any, bottom: Any) -> np.ndarray:
    """`top / bottom`, 0 where nothing varies."""
    top, bottom = np.broadcast_arrays(np.asarray(top, float), np.asarray(bottom, float))
    there = bottom > 0
    return np.where(there, top / np.where(there, bottom, 1.0), 0.0)


# --- two samples ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SampleSums:
    """Sums of a kernel's values over the points of both samples, a number per row of one."""

    within: np.ndarray  # over the other rows of its own sample
    across: np.ndarray  # over the rows of the other sample
    diagonal: np.ndarray


def difference_effect(kernel: Kernel, X: Points, Y: Points, paired: bool = False) -> EffectSize:
    """‖μ_X - μ_Y‖² / E‖φ(X) - φ(Y)‖²; the energy coefficient, if the kernel is that of energy.

    Where rows are `paired` they are left out in pairs, and no point is compared with its partner.
    """
    X, Y = (on_host(take(part, choose_rows(count(part), ROWS))) for part in (X, Y))
    pooled, n = concatenate([X, Y]), count(X)
    centred = Centred.of(kernel, pooled)
    ones = np.zeros((count(pooled), 2))
    ones[:n, 0] = ones[n:, 1] = 1.0
    sums = np.asarray(centred.gram_times(pooled, pooled, ones))
    diagonal = diagonal_of(centred, pooled)
    x = SampleSums(sums[:n, 0] - diagonal[:n], sums[:n, 1], diagonal[:n])
    y = SampleSums(sums[n:, 1] - diagonal[n:], sums[n:, 0], diagonal[n:])
    if not paired:
        return effect_of_sums(x, y)
    own = row_by_row(centred, X, Y)
    return effect_of_pairs(replace(x, across=x.across - own), replace(y, across=y.across - own))


def effect_of_sums(x: SampleSums, y: SampleSums, name: str = DISTANCE) -> EffectSize:
    """The same from sums over rows, and its jackknife."""
    n, m = len(x.within), len(y.within)
    own_x, own_y, both = x.within.sum(), y.within.sum(), x.across.sum()
    dx, dy = x.diagonal.sum(), y.diagonal.sum()

    def ratio(n: int, m: int, xx: Any, yy: Any, xy: Any, dx: Any, dy: Any) -> np.ndarray:
        cross = 2 * xy / (n * m)
        within = xx / max(n * (n - 1), 1) + yy / max(m * (m - 1), 1)
        return safe_ratio(within - cross, dx / n + dy / m - cross)

    value = float(ratio(n, m, own_x, own_y, both, dx, dy))
    error = math.nan
    if min(n, m) > 2:
        without_x = ratio(n - 1, m, own_x - 2 * x.within, own_y, both - x.across,
                          dx - x.diagonal, dy)  # fmt: skip
        without_y = ratio(n, m - 1, own_x, own_y - 2 * y.within, both - y.across,
                          dx, dy - y.diagonal)  # fmt: skip
        error = jackknife_error(without_x, without_y)
    return EffectSize.of(name, value, error, n + m)


def effect_of_pairs(x: SampleSums, y: SampleSums) -> EffectSize:
    """The same for pairs of points."""
    n = len(x.within)
    within, across = x.within + y.within, x.across + y.across
    diagonal = x.diagonal + y.diagonal

    def ratio(n: int, within: Any, across: Any, diagonal: Any) -> np.ndarray:
        within, across = (part / max(n * (n - 1), 1) for part in (within, across))
        return safe_ratio(within - across, diagonal / n - across)

    value = float(ratio(n, within.sum(), across.sum(), diagonal.sum()))
    error = math.nan
    if n > 2:
        without = [part.sum() - twice * part
                   for part, twice in ((within, 2), (across, 2), (diagonal, 1))]  # fmt: skip
        error = jackknife_error(ratio(n - 1, *without))
    return EffectSize.of(DISTANCE, value, error, 2 * n)


def effect_of_moments(x: Moments, y: Moments) -> EffectSize:
    """The same from means and covariances in coordinates, with the error of the delta method.

    The lengths of single rows are taken as known, which those of a bounded kernel are.
    """
    delta = x.mean - y.mean
    covariances = [part.covariance / max(part.n - 1, 1) for part in (x, y)]
    traces = [float(np.trace(C)) for C in covariances]
    distance = float(delta @ delta)
    mean = distance - sum(trace / part.n for trace, part in zip(traces, (x, y), strict=True))
    whole = mean + sum(traces)
    value = float(safe_ratio(mean, whole))
    # d(top)/dμ_x = 2δ; the bottom changes with -2 μ_x·μ_y alone
    slopes = 2 * delta + 2 * value * y.mean, -2 * delta + 2 * value * x.mean
    variance = sum(
        float(slope @ C @ slope) / part.n
        for slope, C, part in zip(slopes, covariances, (x, y), strict=True)
    )
    error = float(safe_ratio(max(variance, 0.0) ** 0.5, whole))
    return EffectSize.of(DISTANCE, value, error, x.n + y.n)


# --- variables ------------------------------------------------------------------------------------


def dependence_effect(kx: Kernel, ky: Kernel, X: Points, Y: Points, most: int = ROWS) -> EffectSize:
    """HSIC(X, Y) / √(HSIC(X, X) HSIC(Y, Y)), of U-centred matrices (Székely and Rizzo 2014)."""
    rows = choose_rows(count(X), most)
    X, Y = on_host(take(X, rows)), on_host(take(Y, rows))
    kx, ky = Centred.of(kx, X), Centred.of(ky, Y)
    n, one = count(X), np.ones((count(X), 1))
    if n < 5:
        return EffectSize.of(CORRELATION, 0.0, math.nan, n)
    x, y = (
        np.asarray(kernel.gram_times(points, points, one))[:, 0] - diagonal_of(kernel, points)
        for kernel, points in ((kx, X), (ky, Y))
    )
    products = np.empty((3, n))  # Σⱼ of KL, KK and LL, a number per row
    rests = np.empty((3, n))  # and of the sums over rows that a row takes part in
    compare_x, compare_y = kx.against(X), ky.against(Y)
    for block in spans(n, max(1, AT_ONCE // n)):
        K = np.array(compare_x(take(X, block), slice(0, n), None))
        L = np.array(compare_y(take(Y, block), slice(0, n), None))
        at = np.arange(block.start, block.stop)
        K[at - block.start, at] = L[at - block.start, at] = 0.0
        products[:, block] = [np.einsum("ij,ij->i", *pair) for pair in ((K, L), (K, K), (L, L))]
        rests[:, block] = K @ y + L @ x, 2 * (K @ x), 2 * (L @ y)
    pairs = ((x, y), (x, x), (y, y))
    whole = [_hsic(n, p.sum(), a.sum(), b.sum(), a @ b)
             for p, (a, b) in zip(products, pairs, strict=True)]  # fmt: skip
    without = [
        _hsic(n - 1, p.sum() - 2 * p, a.sum() - 2 * a, b.sum() - 2 * b, a @ b - a * b - r + p)
        for p, r, (a, b) in zip(products, rests, pairs, strict=True)
    ]
    error = jackknife_error(_correlation(*without))
    return EffectSize.of(CORRELATION, float(_correlation(*whole)), error, n)


def _hsic(n: int, xy: Any, x: Any, y: Any, rows: Any) -> Any:
    """Song et al. (2012, eq. 5) from Σ KL, ΣK, ΣL and Σᵢ of the products of the rows' sums."""
    if n < 4:
        return np.full(np.shape(xy), np.nan)
    return (xy + x * y / ((n - 1) * (n - 2)) - 2 / (n - 2) * rows) / (n * (n - 3))


def _correlation(xy: Any, xx: Any, yy: Any) -> np.ndarray:
    return safe_ratio(xy, np.sqrt(np.maximum(xx, 0.0) * np.maximum(yy, 0.0)))


def residual_effect(A: np.ndarray, B: np.ndarray) -> EffectSize:
    """The same for rows in coordinates of mean 0, as the residuals of regressions are.

    How well the regressions were fitted is not in the interval.
    """
    a, b = np.sum(A * A, axis=1), np.sum(B * B, axis=1)
    n = len(A)

    def sums(P: np.ndarray, Q: np.ndarray, p: np.ndarray, q: np.ndarray) -> tuple[Any, Any]:
        """Σ over pairs i ≠ j of the products, and what row i has in it."""
        C = P.T @ Q
        mine = np.einsum("ij,ij->i", P @ C, Q) - p * q
        return float(mine.sum()), mine

    found = [sums(A, B, a, b), sums(A, A, a, a), sums(B, B, b, b)]
    value = float(_correlation(*(total for total, _ in found)))
    without = _correlation(*(total - 2 * mine for total, mine in found))
    return EffectSize.of("partial kernel correlation", value, jackknife_error(without), n)


def joint_effect(kernels: list[Kernel], samples: list[Points]) -> EffectSize:
    """dHSIC over the mean squared distance of a row and one with its variables drawn apart.

    That is the normalised MMD of the joint distribution and the product of the marginals.
    """
    rows = choose_rows(count(samples[0]), JOINT_ROWS)
    samples = [on_host(take(points, rows)) for points in samples]
    n, d = len(rows), len(samples)
    diagonals = np.stack([diagonal_of(k, p) for k, p in zip(kernels, samples, strict=True)])
    grams = [np.asarray(k.gram_matrix(p, p)) for k, p in zip(kernels, samples, strict=True)]
    sums = np.stack([K.sum(axis=1) for K in grams])
    product = np.ones((n, n))
    for K in grams:
        product *= K
    together = product.sum(axis=1)
    # Σ over j ≠ i of Πₖ (the sum of row j without i), a stretch of i at a time
    across = np.empty(n)
    for block in spans(n, max(1, AT_ONCE // n)):
        part = np.ones((block.stop - block.start, n))
        for K, s in zip(grams, sums, strict=True):
            part *= s - K[block]
        at = np.arange(block.start, block.stop)
        across[block] = part.sum(axis=1) - part[at - block.start, at]
    full = diagonals.prod(axis=0)

    def ratio(n: int, joint: Any, cross: Any, totals: Any, diagonal: Any, own: Any) -> Any:
        joint, cross = joint / n**2, cross / n ** (d + 1)
        apart = np.prod(totals / n**2, axis=0)
        spread = diagonal / n + np.prod(own / n, axis=0) - 2 * cross
        return safe_ratio(joint - 2 * cross + apart, spread)

    value = ratio(n, together.sum(), sums.prod(axis=0).sum(), sums.sum(axis=1), full.sum(),
                  diagonals.sum(axis=1))  # fmt: skip
    without = ratio(
        n - 1,
        together.sum() - 2 * together + full,
        across,
        sums.sum(axis=1)[:, None] - 2 * sums + diagonals,
        full.sum() - full,
        diagonals.sum(axis=1)[:, None] - diagonals,
    )
    # pairs of a row with itself are in it: the jackknife takes off the bias
    corrected = n * float(value) - (n - 1) * float(without.mean())
    return EffectSize.of("normalised dHSIC", corrected, jackknife_error(without), n)


def stein_effect(kernel: Kernel, sample: SteinSample) -> EffectSize:
    """‖E ξ(X)‖² / E‖ξ(X)‖², ξ the Stein features: 0 if the sample comes from the density."""
    rows = choose_rows(len(sample.points), ROWS)
    X, S = sample.points[rows], sample.scores[rows]
    compare, n = kernel.stein_against(X, S), len(rows)
    sums, diagonal = np.empty(n), np.empty(n)
    for block in spans(n, max(1, AT_ONCE // n)):
        tile = compare(X[block], S[block], slice(0, n))
        at = np.arange(block.start, block.stop)
        diagonal[block] = tile[at - block.start, at]
        sums[block] = tile.sum(axis=1) - diagonal[block]
    total, trace = sums.sum(), diagonal.sum()
    value = float(safe_ratio(total / (n * (n - 1)), trace / n))
    error = math.nan
    if n > 2:
        without = (total - 2 * sums) / ((n - 1) * (n - 2))
        error = jackknife_error(safe_ratio(without, (trace - diagonal) / (n - 1)))
    return EffectSize.of("normalised Stein discrepancy", value, error, n)
