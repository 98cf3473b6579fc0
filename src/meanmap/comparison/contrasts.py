"""What the default two-sample test compares: kinds of features, found on both samples together.

| contrast | features | sees |
|---|---|---|
| location | normal scores of every column | shifts, as the tests of Student and Wilcoxon |
| spread | the squared length of the normal scores | scales, as the F test |
| location and spread in a column | its normal scores, their squares | changes of few columns |
| shape | a Gaussian at the median distance | smooth differences |
| detail | a Gaussian at an eighth of it | fine ones |
| local, near | Gaussians as wide as a fifth and a fiftieth of all points are near | clusters |

Each is whitened: with C the covariance of its features, means are compared in the inner product
with (C + λI)⁻¹, in which directions of variance above λ count alike. Everything is found from the
pooled points, and so does not depend on which sample a point belongs to: permutations stay exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import ndtri

from meanmap.arrays import Points, one_blas_thread, share_blocks, solve_triangular, spans
from meanmap.comparison.bins import Features
from meanmap.kernels import Gaussian, Kernel
from meanmap.linalg import covariance, ridge_factor
from meanmap.progress import progress_bar

REFERENCES = 1000  # points that distances are measured to
LANDMARKS = 300  # of them, those that functions are sums over
FITTED = 4000  # points that covariances are estimated on
BLOCK = 2048  # points at a time

#: Ridges, as shares of a contrast's whole variance.
RIDGES = {
    "location": 0.1,
    "spread": 0.0,
    "shape": 0.1,
    "detail": 0.03,
    "local": 0.03,
    "near": 0.01,
}
#: Widths of Gaussians in medians of the distance, and as shares of the points that are as near.
WIDTHS = {"shape": 1.0, "detail": 0.125}
SHARES = {"local": 0.2, "near": 0.02}
SPREAD_RIDGE = 0.02
#: Prior weights of wide and of fine contrasts. Fine ones get up to `MOST_FINE` of the whole, in
#: proportion to the points: a fiftieth of too few says nothing. Among many columns a common change
#: of scale is plain to see, and so less is set aside for it. Chosen on the settings of MMD-FUSE
#: (Biggs et al. 2023), five alternatives of benchmarks/power.py, t and F tests; 400 runs each.
WIDE = {"location": 5.0, "spread": 3.0, "shape": 2.0}
FINE = {"detail": 2.0, "local": 1.0, "near": 3.0}
#: Those of single columns, where there are several, shared among them.
BY_COLUMN = {"location in": 2.0, "spread in": 1.0}
MOST_COLUMNS = 2000
MOST_FINE, ENOUGH = 0.8, 1000


def contrast_weights(n: int, d: int) -> dict[str, float]:
    """The weight of every kind of contrast among n points of d columns, 1 in total."""
    fine = MOST_FINE * min(1.0, n / ENOUGH)
    wide = WIDE | {"spread": WIDE["spread"] / np.sqrt(d)}
    wide |= BY_COLUMN if 1 < d <= MOST_COLUMNS else {}
    parts = ((wide, 1 - fine), (FINE, fine))
    return {
        name: share * weight / sum(part.values())
        for part, share in parts
        for name, weight in part.items()
    }


class NormalScores:
    """Φ⁻¹(rank / (n + 1)) of every column; tied points share the mean of their ranks."""

    def __init__(self, points: np.ndarray) -> None:
        self._columns = np.sort(points, axis=0)

    def __call__(self, points: np.ndarray) -> np.ndarray:
        out = np.empty(points.shape)
        for j, column in enumerate(self._columns.T):
            below = np.searchsorted(column, points[:, j], "left")
            above = np.searchsorted(column, points[:, j], "right")
            out[:, j] = (below + above + 1) / 2
        return ndtri(out / (len(self._columns) + 1))


@dataclass(frozen=True, eq=False)
class References:
    """Some of the points, in units of the kernel's bandwidth, and how far their neighbours are."""

    points: np.ndarray
    ranks: tuple[int, ...]  # which neighbour says how wide a local Gaussian is
    least: float  # the square of a distance that counts as none

    @classmethod
    def of(cls, points: np.ndarray) -> References:
        n = len(points)
        ranks = tuple(min(max(round(share * n), 1), n - 1) for share in SHARES.values())
        apart = cdist(points, points, "sqeuclidean")
        positive = apart[apart > 0]
        return cls(points, ranks, float(positive.min()) / 4 if positive.size else 1.0)

    @property
    def landmarks(self) -> int:
        """How many of them, the first ones, functions are sums over."""
        return min(LANDMARKS, len(self.points))

    @cached_property
    def widths(self) -> list[np.ndarray]:
        """The squared local widths at the landmarks."""
        return self.local_widths(self.distances(self.points[: self.landmarks]))

    def distances(self, points: np.ndarray) -> np.ndarray:
        """Squared distances of points to all references."""
        return cdist(points, self.points, "sqeuclidean")

    def local_widths(self, distances: np.ndarray) -> list[np.ndarray]:
        """The squared distance to the neighbour of each rank."""
        ordered = np.partition(distances, self.ranks, axis=1)
        return [np.maximum(ordered[:, rank], self.least) for rank in self.ranks]

    def compare(self, points: np.ndarray) -> dict[str, np.ndarray]:
        """The Gaussians of every width between points and landmarks.

        Where the width changes from s to s' the Gaussian of Gibbs (1997) is
        (2ss'/(s² + s'²))^{d/2} exp(-‖x - x'‖²/(s² + s'²)).
        """
        distances = self.distances(points)
        D, d = distances[:, : self.landmarks], points.shape[1]
        found = {name: np.exp(D / (-2 * width**2)) for name, width in WIDTHS.items()}
        here = self.local_widths(distances)
        for name, a, b in zip(SHARES, here, self.widths, strict=True):
            both = a[:, None] + b
            height = np.exp((d / 4) * (np.log(4 * a)[:, None] + np.log(b) - 2 * np.log(both)))
            found[name] = height * np.exp(-D / both)
        return found


class Contrasts:
    """The features of points in every contrast, whitened, with mean zero over both samples.

    Parameters
    ----------
    kernel : Kernel, resolved on the points: what witnesses are functions of
    points : rows of numbers of both samples
    unit : Gaussian, the kernel of these rows
    names : one per column
    rng : numpy Generator
    """

    @classmethod
    def of(cls, kernel: Kernel, points: Points, rng: np.random.Generator) -> Contrasts | None:
        """None where the points do not vary, or are more than numbers and labels."""
        with one_blas_thread():  # small matrices
            if kernel.radial:
                rows, unit, names = points, kernel, kernel.names or ()
            else:
                opened = kernel.open_scales(points, None)
                if opened is None:
                    return None
                rows, unit = opened.columns, Gaussian("scaled median").resolve(opened.columns)
                named = kernel.names or range(opened.size)
                names = tuple(named[group] for group in opened.groups)
            shown = map(repr, names) if names else (f"column {j}" for j in range(rows.shape[1]))
            found = cls(kernel, rows, unit, tuple(shown), rng)
        return found if found.names else None

    def __init__(
        self,
        kernel: Kernel,
        points: np.ndarray,
        unit: Kernel,
        names: tuple[str, ...],
        rng: np.random.Generator,
    ) -> None:
        n = len(points)
        order = rng.permutation(n)
        fitted = points if n <= FITTED else points[order[:FITTED]]
        self.points, self._kernel, self._scores = points, kernel, NormalScores(points)
        self._unit, self._middle = unit, fitted.mean(axis=0)
        self._references = References.of(self._scale(points[order[:REFERENCES]]))
        self._lengths = _Whitening.of(self._scores(fitted), None, SPREAD_RIDGE)
        grams = self._references.compare(self._references.points[: self._references.landmarks])
        raw = self._raw(fitted)
        self._fitted = raw if n <= FITTED else None
        found = {
            name: _Columns.of(rows)
            if name in BY_COLUMN
            else _Whitening.of(rows, grams.get(name), RIDGES[name])
            for name, rows in raw.items()
        }
        self._maps = {name: one for name, one in found.items() if one is not None}
        weights, rows_of = contrast_weights(*points.shape), []
        for name, one in self._maps.items():
            each = one.kept if isinstance(one, _Columns) else ()
            shown = [f"{name} {names[j]}" for j in each] or [name]
            rows_of += [(name, text, weights[name] / len(shown)) for text in shown]
        self._kind_of_each = [kind for kind, _, _ in rows_of]
        self.names = tuple(shown for _, shown, _ in rows_of)
        self.weights = np.array([weight for _, _, weight in rows_of])

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of contrasts."""
        return tuple(self._maps)

    @property
    def ranks(self) -> list[int]:
        """The number of features of every kind."""
        return [len(one.mean) for one in self._maps.values()]

    @property
    def apart(self) -> frozenset[int]:
        """The kinds of which every feature is a contrast."""
        return frozenset(i for i, name in enumerate(self._maps) if name in BY_COLUMN)

    def for_each_block(self, work: Features, progress: bool | None = False) -> None:
        """Call `work(thread, block, features)` for every stretch of the points."""
        n = len(self.points)

        def share(thread: int, blocks: list[slice]) -> None:
            for block in blocks:
                raw = self._raw(self.points[block]) if self._fitted is None else self._fitted
                with one_blas_thread():
                    features = [one.apply(raw[name]) for name, one in self._maps.items()]
                    work(thread, block, features)
                done(1)

        blocks = list(spans(n, BLOCK if self._fitted is None else n))
        with progress_bar(len(blocks), "Features", progress) as done:
            share_blocks(share, blocks, len(blocks) > 1)

    def kernels(self) -> list[Kernel]:
        """A plain kernel for each contrast, whose witness shows what it sees.

        That of a fiftieth of the points would be too rough to read, and is as wide as a fifth.
        """
        typical = float(np.sqrt(np.median(self._references.widths[0])))
        widths = WIDTHS | dict.fromkeys(SHARES, typical)
        return [self._kernel.rescaled(widths.get(kind, 1.0)) for kind in self._kind_of_each]

    def _scale(self, points: np.ndarray) -> np.ndarray:
        return self._unit.scaled(points - self._middle)

    def _raw(self, points: np.ndarray) -> dict[str, np.ndarray]:
        """The features of every contrast before they are whitened."""
        scores = self._scores(points)
        found = {"location": scores}
        if self._lengths is not None:
            whitened = self._lengths.apply(scores)
            found["spread"] = np.sum(whitened * whitened, axis=1, keepdims=True)
        if 1 < points.shape[1] <= MOST_COLUMNS:
            found |= {"location in": scores, "spread in": scores * scores}
        return found | self._references.compare(self._scale(points))


@dataclass(frozen=True, eq=False)
class _Whitening:
    """ψ(x) = L⁻¹(f(x) - mean), with LLᵀ = C + λG the covariance and G the Gram matrix of f."""

    mean: np.ndarray
    factor: np.ndarray

    @classmethod
    def of(cls, rows: np.ndarray, gram: np.ndarray | None, ridge: float) -> _Whitening | None:
        """None where the rows do not vary. Without a Gram matrix the features are orthonormal."""
        n, r = rows.shape
        mean = rows.mean(axis=0)
        C = covariance(rows - mean, np.full(n, 1 / n))
        # that of a kernel with k(x, x) = 1 is 1 - E k(x, x')
        trace = float(np.trace(C) if gram is None else 1 - mean.mean())
        size = float(np.diagonal(C).mean())
        if not size > 64 * np.finfo(float).eps * float(np.mean(rows * rows)):
            return None
        C += ridge * trace * (np.eye(r) if gram is None else gram)
        return cls(mean, ridge_factor(C, 1e-10 * float(np.diagonal(C).mean())))

    def apply(self, rows: np.ndarray) -> np.ndarray:
        """ψ of points with these features."""
        return solve_triangular(self.factor, (rows - self.mean).T).T


@dataclass(frozen=True, eq=False)
class _Columns:
    """Every column that varies, with mean 0 and variance 1."""

    mean: np.ndarray
    scale: np.ndarray
    kept: np.ndarray  # the numbers of the columns

    @classmethod
    def of(cls, rows: np.ndarray) -> _Columns | None:
        """None where no column varies."""
        mean, scale = rows.mean(axis=0), rows.std(axis=0)
        least = 64 * np.finfo(float).eps * np.sqrt(np.mean(rows * rows, axis=0))
        kept = np.flatnonzero(scale > least)
        return cls(mean[kept], scale[kept], kept) if len(kept) else None

    def apply(self, rows: np.ndarray) -> np.ndarray:
        """The columns of points."""
        return (rows[:, self.kept] - self.mean) / self.scale
