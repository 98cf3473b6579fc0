"""Random Fourier features: coordinates that are the same for every sample.

A kernel of x - x' is the mean of cos(ω·(x - x')) over its spectral measure (Bochner), and so the
inner product of cosines and sines at frequencies drawn from it (Rahimi and Recht 2007).
Frequencies whose directions are orthogonal, d at a time, leave a smaller error (Yu et al. 2016).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from meanmap import checks
from meanmap.arrays import (
    TILE,
    Array,
    Points,
    asarray,
    assign,
    count,
    device,
    namespace,
    spans,
    take,
    to_numpy,
)
from meanmap.kernels import Kernel
from meanmap.spaces.bases import Basis, Coordinates

PAIRS_OF = 256  # points whose pairs tell the error


@dataclass(frozen=True)
class Waves(Coordinates):
    """ψ(x) = (cos ωx, sin ωx)/√h over h frequencies."""

    frequencies: Array  # d × h
    residual: float
    projects: ClassVar[bool] = False

    @property
    def rank(self) -> int:  # type: ignore[override]
        return 2 * int(self.frequencies.shape[1])

    def transform(self, points: Points) -> Array:
        xp, omega = namespace(points), self.frequencies
        n, h = points.shape[0], omega.shape[1]
        out = xp.empty((n, 2 * h), dtype=omega.dtype, device=device(omega))
        for block in spans(n, max(1, TILE // h)):
            phase = points[block] @ omega
            out = assign(out, (block, slice(0, h)), xp.cos(phase))
            out = assign(out, (block, slice(h, 2 * h)), xp.sin(phase))
        out *= 1 / math.sqrt(h)
        return out


@dataclass(frozen=True)
class RandomFourier(Basis):
    """Random Fourier features with orthogonal directions: approximate, with an error of 1/√n.

    For `Gaussian`, `Laplace` and `Matern` kernels, whatever their bandwidth. The features depend on
    the kernel and the seed alone, not on the sample, so that samples that come in parts share them.
    They are not a projection: `residual_` is the mean of |k(x, x') - ψ(x)·ψ(x')| over pairs of the
    sample, as measured, and there is no bound for a single pair.

    Parameters
    ----------
    n : int
        How many features, an even number: a cosine and a sine for each frequency.
    random_state : int, generator or None
        The seed of the frequencies.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.kernels import Gaussian
    >>> from meanmap.spaces import RandomFourier, Space
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> space = Space(Gaussian(2.0), RandomFourier(1000, random_state=0)).fit(X)
    >>> Z = space.transform(X)
    >>> bool(abs(Z @ Z.T - Gaussian(2.0)(X)).mean() < 0.05), space.residual_ < 0.05
    (True, True)
    """

    n: int
    random_state: Any = None
    streams: ClassVar[bool] = True

    @property
    def known_rank(self) -> int:
        return self.n

    def prepare(self, kernel: Kernel, points: Points, weights: Array) -> Waves:
        remedy = "It counts a cosine and a sine for each frequency; try 1000."
        n = checks.whole(self.n, "n", 2, remedy)
        if n % 2:
            raise ValueError(f"n must be even, got {n}. {remedy}")
        rng = checks.random_generator(self.random_state, "random_state")
        d = 0 if isinstance(points, tuple) else points.shape[-1]
        omega = kernel.sample_frequencies(d, n // 2, rng)  # refuses kernels without a spectrum
        fitted = Waves(asarray(omega, points), math.nan)
        return replace(fitted, residual=mean_error(kernel, fitted, points))


def mean_error(kernel: Kernel, fitted: Waves, points: Points) -> float:
    """The mean of |k - ψψ'| over pairs of different points, evenly spaced in the sample."""
    n = count(points)
    if n < 2:
        return 0.0
    X = take(points, np.linspace(0, n - 1, min(n, PAIRS_OF)).astype(int))
    psi = fitted.transform(X)
    error = abs(to_numpy(kernel.gram_matrix(X, X) - psi @ psi.T))
    return float(error[np.triu_indices(len(error), 1)].mean())
