"""Series of rows cut into blocks: how long these must be, from the data.

Blocks that are exchanged as wholes (or get one random sign) keep what neighbouring rows have to do
with each other, except across the ends of blocks. Adjacent blocks of L rows of a series with the
autocorrelation time τ = 1 + 2 Σ ρ_k correlate at about (τ - 1)/4L, by which the spread of a mean is
found too small. Exchanges allow for a small number of blocks by themselves, so that blocks should
rather be few and long than many and short.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import scipy.fft

from meanmap.arrays import Points, concatenate, count, take
from meanmap.comparison.bins import MOST
from meanmap.comparison.candidates import orthonormal_functions
from meanmap.exceptions import DataWarning, warn
from meanmap.kernels import Kernel
from meanmap.linalg import Spectrum
from meanmap.statistics.tiles import on_host

LEADING = 3  # principal components of a kernel whose memory is measured
WEAK = 1e-6  # of the largest variance: what is below is rounding
LANDMARKS = 100  # points whose kernel functions the components are sought among
TIMES = 8  # blocks are so many times τ - 1: adjacent ones then correlate at 3%
FEWEST = 5  # blocks of each sample that a length chosen here leaves: 252 ways to exchange them
FEWEST_PAIRS = 6  # blocks of a series of pairs: 720 orders
MOST_CORRECTION = 0.2  # of autocorrelations: in short series more would be made up
NOISE = 8.0  # over √n: where τ - 1 of independent rows is found to lie below, with few exceptions
SHORT = 0.1  # a correlation of adjacent blocks at which a test at 5% rejects 8%


def length_for_samples(given: Any, kernel: Kernel, X: Points, Y: Points) -> tuple[int, list[str]]:
    """Rows per block of two series that are compared, and what there is to say of them."""
    n, m = count(X), count(Y)
    if given != "auto":
        return check_blocks(given, min(n, m)), []
    scores = _components(kernel, [X, Y])
    correlations = [_autocorrelations(parts) for parts in zip(*scores, strict=True)]
    time = max((autocorrelation_time(one) for one in correlations), default=1.0)
    return _choose_length(time, n + m, min(n, m) // FEWEST)


def length_for_pairs(
    given: Any, kernels: tuple[Kernel, Kernel], X: Points, Y: Points
) -> tuple[int, list[str]]:
    """Rows per block of a series of pairs.

    What counts is the memory of products of a function of X with one of Y. If X and Y are
    independent their autocorrelations are products as well.
    """
    n = count(X)
    if given != "auto":
        return check_blocks(given, n), []
    of_x, of_y = (
        [_autocorrelations([part]) for part in _components(kernel, [points])[0]]
        for kernel, points in zip(kernels, (X, Y), strict=True)
    )
    time = max((autocorrelation_time(a * b) for a, b in product(of_x, of_y)), default=1.0)
    return _choose_length(time, n, n // FEWEST_PAIRS)


def check_blocks(length: int, rows: int) -> int:
    """A length as given, if it leaves two blocks or more of the shorter of the series."""
    if 2 * length > rows:
        raise ValueError(
            f"length={length} leaves fewer than two blocks in a series of {rows} rows. Use at most "
            f"{rows // 2}."
        )
    return length


def _choose_length(time: float, total: int, most: int) -> tuple[int, list[str]]:
    """The length for an autocorrelation time; it grows with the rows, as does the number of blocks.

    The cube root is the growth at which the error of a block estimate of variance is least (Künsch
    1989; Politis and White 2004).
    """
    wanted = max(TIMES * (time - 1), (total * (time - 1) ** 2) ** (1 / 3))
    length = max(1, min(max(int(np.ceil(wanted)), total // MOST), most))
    noise = NOISE / total**0.5
    if time - 1 - noise > 4 * length * SHORT:
        warn(
            f"the series are short for their memory: {total} rows are worth about "
            f"{total / time:.0f} independent ones, and blocks of {length} rows still depend on "
            "each other. The test may reject too often; use longer series.",
            DataWarning,
        )
    return length, [
        f"Blocks of {length} rows, chosen from the data: {total} rows are worth about "
        f"{total / time:.0f} independent ones."
    ]


def _components(kernel: Kernel, samples: list[Points]) -> list[np.ndarray]:
    """The samples on the first principal components of the kernel, one row per component.

    Each sample is centred by itself: a difference between the samples does not count as memory.
    """
    sizes = [count(points) for points in samples]
    points = on_host(concatenate(samples) if len(samples) > 1 else samples[0])
    rows = np.linspace(0, sum(sizes) - 1, min(sum(sizes), LANDMARKS)).astype(int)
    landmarks = take(points, rows)
    psi = kernel.gram_times(points, landmarks, orthonormal_functions(kernel, landmarks))
    parts = [part - part.mean(axis=0) for part in np.split(psi, np.cumsum(sizes)[:-1])]
    spectrum = Spectrum.of(sum(psi.T @ psi for psi in parts))
    strong = spectrum.values > WEAK * spectrum.values.max(initial=0.0)
    directions = spectrum.vectors[:, strong][:, ::-1][:, :LEADING]
    return [(psi @ directions).T for psi in parts]


def _autocorrelations(parts: Any) -> np.ndarray:
    """Those of several stretches of one series together, corrected for the means taken off.

    A mean that is taken off makes every autocovariance smaller by the variance of the mean, about
    τ/n.
    """
    longest, total = max(map(len, parts)), sum(map(len, parts))
    lags = max(longest // 2, 2)
    sums = np.zeros(longest)
    for series in parts:
        sums[: len(series)] += lagged_products(series)
    if not sums[0] > 0:
        return np.zeros(lags)
    found = sums[:lags] / sums[0]
    correction = 0.0
    for _ in range(3):
        time = autocorrelation_time(found + correction)
        correction = min(len(parts) * time / total, MOST_CORRECTION)
    return found + correction


def lagged_products(series: np.ndarray) -> np.ndarray:
    """Σₜ xₜ xₜ₊ₖ for every lag k."""
    size = scipy.fft.next_fast_len(2 * len(series), real=True)
    return scipy.fft.irfft(np.abs(scipy.fft.rfft(series, size)) ** 2, size)[: len(series)]


def autocorrelation_time(correlations: np.ndarray) -> float:
    """τ = 1 + 2 Σ ρ_k, as long as sums of pairs of autocorrelations are positive and fall.

    Geyer's (1992) initial monotone sequence.
    """
    pairs = correlations[: len(correlations) // 2 * 2].reshape(-1, 2).sum(axis=1)
    positive = np.cumprod(pairs > 0)
    falling = np.minimum.accumulate(pairs) * positive
    return max(1.0, float(2 * falling.sum() - 1))
