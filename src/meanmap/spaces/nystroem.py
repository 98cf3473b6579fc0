"""Nyström coordinates: a sample seen from a few landmarks, on any domain.

With landmarks P and the Cholesky factor L of their Gram matrix, ψ(x) = L⁻¹ k(P, x), as for pivoted
Cholesky; only the choice of P differs. Fitting reads n·m kernel values and keeps n·r numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import (
    TILE,
    Array,
    Points,
    asarray,
    count,
    one_blas_thread,
    spans,
    take,
    to_numpy,
)
from meanmap.kernels import Kernel
from meanmap.kernels.protocol import ALL, same_value
from meanmap.linalg import symmetric_part
from meanmap.spaces.bases import Basis, Coordinates
from meanmap.spaces.cholesky import ROUNDING, fit_pivots, span_landmarks

SAMPLINGS = ("uniform", "kmeans", "leverage", "rpcholesky")


@dataclass(frozen=True, eq=False)
class Nystroem(Basis):
    """Coordinates from n landmarks: approximate, at the cost of n·m kernel values.

    Parameters
    ----------
    n : int
        How many landmarks; not needed where they are given. Landmarks that the others already span
        are dropped, so that the rank may be smaller.
    sampling : "uniform", "kmeans", "leverage" or "rpcholesky"
        Landmarks are points drawn from the sample: each as likely as its weight; by approximate
        ridge leverage scores, which find small groups (Alaoui and Mahoney 2015); or in proportion
        to what is not yet explained (Chen, Epperly, Tropp and Webber 2023), as `PivotedCholesky`
        does. "kmeans" takes cluster centres instead, of vectors only (Zhang, Tsang and Kwok 2008).
    landmarks : points or None
        Your own landmarks, of the kernel's domain; they need not be in the sample.
    random_state : int, generator or None
        The seed of the draw.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.kernels import Gaussian
    >>> from meanmap.spaces import Nystroem, Space
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> Space(Gaussian(2.0), Nystroem(50, random_state=0)).fit(X).residual_ < 1e-3
    True
    >>> grid = np.stack(np.meshgrid(np.linspace(-3, 3, 6), np.linspace(-3, 3, 6)), -1)
    >>> space = Space(Gaussian(2.0), Nystroem(landmarks=grid.reshape(36, 2))).fit(X)
    >>> space.rank_
    36
    """

    n: int | None = None
    sampling: str = "uniform"
    landmarks: Any = None
    random_state: Any = None

    @property
    def streams(self) -> bool:  # type: ignore[override]
        return self.sampling != "rpcholesky" or self.landmarks is not None

    @property
    def known_rank(self) -> int:
        if self.landmarks is None:
            return self.n or 0
        own = self.landmarks
        return len(own) if isinstance(own, list) else count(own)

    def fit(self, kernel: Kernel, points: Points, weights: Array) -> tuple[Coordinates, Array]:
        if self.streams:
            return super().fit(kernel, points, weights)
        with one_blas_thread():
            return fit_pivots(kernel, points, weights, ROUNDING, *self._draw(points))

    def prepare(self, kernel: Kernel, points: Points, weights: Array) -> Coordinates:
        with one_blas_thread():
            return span_landmarks(kernel, self._landmarks(kernel, points, weights), count(points))

    def _landmarks(self, kernel: Kernel, points: Points, weights: Array) -> Points:
        checks.option(self.sampling, "sampling", SAMPLINGS)
        if self.landmarks is not None:
            landmarks = kernel.check(self.landmarks, "landmarks", points)
            given = count(landmarks)
            if self.n not in (None, given):
                raise ValueError(
                    f"Nystroem: n={self.n!r}, but {given} landmarks were given. Leave n out."
                )
            return landmarks
        m, rng = self._draw(points)
        if self.sampling == "kmeans":
            return centres(kernel, points, weights, m, rng)
        chances = abs(to_numpy(weights).astype(np.float64))
        chances = chances / chances.sum()
        if self.sampling == "leverage":
            chances = leverage(kernel, points, chances, m, rng)
        return take(points, without_replacement(chances, m, rng))

    def _draw(self, points: Points) -> tuple[int, np.random.Generator]:
        """How many landmarks to draw, and what to draw them with."""
        remedy = "It is the number of landmarks; Nystroem(landmarks=points) takes your own."
        m, there = checks.whole(self.n, "n", 1, remedy), count(points)
        if m > there:
            raise ValueError(
                f"Nystroem: {m} landmarks were asked for, but the sample has {there} points. Ask "
                f"for {there} at most, or use PivotedCholesky(), which finds the rank by itself."
            )
        return m, checks.random_generator(self.random_state, "random_state")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Nystroem) and same_value(vars(self), vars(other))

    def __hash__(self) -> int:
        return hash((self.n, self.sampling))

    def __repr__(self) -> str:
        if self.landmarks is not None:
            return f"Nystroem(landmarks=<{self.known_rank} points>)"
        seed = "" if self.random_state is None else f", random_state={self.random_state!r}"
        return f"Nystroem({self.n!r}, sampling={self.sampling!r}{seed})"


def without_replacement(chances: np.ndarray, m: int, rng: np.random.Generator) -> np.ndarray:
    """m different indices, each as likely as its chance, in the order of the sample."""
    # the smallest of exponential times: a draw without replacement (Efraimidis and Spirakis 2006)
    times = rng.exponential(size=len(chances)) / np.maximum(chances, 1e-300)
    return np.sort(np.argpartition(times, m - 1)[:m])


def leverage(
    kernel: Kernel, points: Points, w: np.ndarray, m: int, rng: np.random.Generator
) -> np.ndarray:
    """Chances by approximate ridge leverage scores `wᵢ ψᵢᵀ (C + λI)⁻¹ ψᵢ`.

    C is seen through a uniform sketch S of m points, `Σ_S ψψᵀ/m`, so that the score is
    `wᵢ (k(xᵢ, xᵢ) - k_iS (K_SS + mλI)⁻¹ k_Si)/λ` (Musco and Musco 2017): large where the sketch
    explains little. λ is their ridge for m landmarks: with s = m/(4 log m), the trace beyond the
    first s eigenvalues, over s.
    """
    n = len(w)
    sketch = without_replacement(w, m, rng)
    S = take(points, sketch)
    compare = kernel.against(S)
    gram = compare(S, ALL, None)
    # drawn by weight, each point of the sketch stands for 1/m of the mass
    values, vectors = np.linalg.eigh(symmetric_part(to_numpy(gram).astype(np.float64)) / m)
    values = np.maximum(values, 0.0)
    s = max(1, int(m / (4 * np.log(max(m, 2)))))
    ridge = max(values[:-s].sum() / s, np.finfo(float).eps * values.sum(), 1e-300)
    turn = asarray(vectors / np.sqrt(m * (values + ridge)), gram)
    scores = np.empty(n)
    for block in spans(n, max(1, 4 * TILE // m)):
        part = take(points, block)
        seen = to_numpy(compare(part, ALL, None) @ turn)
        scores[block] = to_numpy(kernel.squared_norms(part)) - (seen * seen).sum(axis=1)
    scores = np.minimum(w * np.maximum(scores, 0.0) / ridge, 1.0)
    # a share drawn by weight alone guards against what the sketch got wrong
    return 0.9 * scores / max(scores.sum(), 1e-300) + 0.1 * w


def centres(
    kernel: Kernel, points: Points, weights: Array, m: int, rng: np.random.Generator
) -> Array:
    """Cluster centres of vectors, by mini-batch k-means in units of the bandwidths."""
    if isinstance(points, tuple) or not kernel.on_vectors:
        raise TypeError(
            f'sampling="kmeans" averages points, which takes vectors; {kernel!r} compares points '
            'of another kind. Use sampling="leverage", "rpcholesky" or "uniform".'
        )
    from sklearn.cluster import MiniBatchKMeans

    X = to_numpy(points).astype(np.float64)
    sigma = getattr(kernel, "bandwidth", 1.0)
    units = np.asarray(sigma, dtype=float) if np.size(sigma) > 1 else np.ones(1)
    means = MiniBatchKMeans(
        m, random_state=int(rng.integers(2**31)), n_init=1, batch_size=max(1024, 2 * m)
    )
    middle = np.median(X, axis=0)  # far from the origin squares would lose all digits
    means.fit((X - middle) / units, sample_weight=abs(to_numpy(weights)))
    return asarray(means.cluster_centers_ * units + middle, points)
