"""Where candidates are centred."""

from __future__ import annotations

from typing import Any

import numpy as np

from meanmap import checks, decoding
from meanmap.arrays import to_numpy
from meanmap.density.candidates import RoundFrame, gaussian_of
from meanmap.density.selection import DistinctSample
from meanmap.frames import in_order
from meanmap.kernels import Gaussian
from meanmap.statistics.thinning import thin_sample

GRID = 3  # dimensions in which a grid is worth its points


def centres_of(
    asked: Any,
    most: int,
    sample: DistinctSample,
    frame: RoundFrame,
    sigma: np.ndarray | None,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Centres in the frame, and which points of the sample they are."""
    Z, p = sample.points, sample.weights
    d = Z.shape[1]
    if not isinstance(asked, str):
        asked = in_order(asked, sample.names, "candidates", "X")
        points = to_numpy(checks.vectors(asked, "candidates")).astype(np.float64)
        checks.same_kind(points, Z, "candidates", "X")
        return frame.to(np.unique(points, axis=0)), None
    if asked == "grid":
        if d > GRID:
            raise ValueError(
                f"candidates='grid' is for up to {GRID} columns, X has {d}. Use 'points' or "
                "'thinned'."
            )
        side = max(1, int(most ** (1 / d) + 1e-9))
        axes = [np.linspace(column.min(), column.max(), side) for column in Z.T]
        return np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, d), None
    c = min(most, int((p > 0).sum()))
    if c == len(Z):
        index = np.arange(c)
    elif asked == "points":
        index = np.sort(rng.choice(len(Z), c, replace=False, p=p))
    elif asked == "thinned":
        index = np.unique(thin_sample(round_kernel(frame, sigma, Z), Z, p, c, rng))
    else:
        index = np.unique(herding_order(sample, frame, sigma, c))
    return Z[index], index


def round_kernel(frame: RoundFrame, sigma: np.ndarray | None, Z: np.ndarray) -> Gaussian:
    """The kernel in the frame; at the median distance without bandwidths σ."""
    if sigma is None:
        return Gaussian().resolve(Z)
    return gaussian_of(frame.bandwidths(sigma))


def herding_order(
    sample: DistinctSample, frame: RoundFrame, sigma: np.ndarray | None, n: int
) -> np.ndarray:
    """Which points herding takes, with repetition."""
    kernel = round_kernel(frame, sigma, sample.points)
    values = kernel.gram_times(sample.points, sample.points, sample.target)
    return decoding.herd(kernel, sample.points, values[None, :], n)[0]
