"""Regressions on the columns of Z: which rows they are made on is chosen by leave-one-out.

Two regressions that miss the same part of what X and Y owe to Z are taken for dependence, and no
single kernel on Z learns everything: one that looks in all directions alike needs very many rows
for a sum of functions of single columns, and a sum of functions of columns never learns a product.
So a few are tried, each with all λ at once,

- a straight line;
- a sum of curves, one per column, of several widths;
- a sum of rough curves, for steps and corners;
- a Gaussian kernel on all columns in a learned metric, as wide as it is good;
- the best of the curves and the latter together;
- jumps in single columns, found one after the other, beside the best of these,

and the least leave-one-out error of the targets decides. Each is a linear smoother, so that a null
distribution can account for what it does to noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular

from meanmap.arrays import one_blas_thread
from meanmap.comparison.plain_columns import PlainColumns, join_columns
from meanmap.comparison.residuals import Ridge
from meanmap.comparison.step_search import find_steps
from meanmap.kernels import Gaussian, Kernel, Laplace
from meanmap.kernels.bandwidths import median_distance
from meanmap.linalg import Spectrum

GRID = np.logspace(-10, 1, 23)  # λ, relative to the variance of the rows
ALONE = 1e-3  # the least share of its own noise in a residual, where errors are compared
FREE = 0.4  # the least share of its own noise that a regression leaves on average
LOOKED = 500, 1500  # rows that smoothers are chosen on: of few, and of very many
WIDTHS = (1.0, 0.5, 0.25, 0.12)  # of the curves, in standard deviations
NARROWEST = 3  # of these widths, where there are several columns
SMOOTH_KNOTS, ROUGH_KNOTS = (8, 60), (60, 24)  # over the width; at most / of one column, of several
FULL_WIDTHS, LANDMARKS, STEPS = (1.2, 0.6), 80, 3  # of the kernel on all columns
KEPT = 1e-3  # of the squared gradient: what every direction keeps
JITTER = 1e-6


@dataclass(frozen=True, eq=False)
class RidgePath:
    """A regression on rows for every λ, from one decomposition."""

    center: np.ndarray
    basis: np.ndarray  # centred rows times this are orthonormal columns
    directions: np.ndarray  # these columns, n × k
    values: np.ndarray  # the spectrum, k

    @classmethod
    def of(cls, rows: np.ndarray) -> RidgePath:
        n, r = rows.shape
        center = rows.mean(axis=0)
        centred = rows - center
        if not r:
            return cls(center, np.empty((0, 0)), np.empty((n, 0)), np.empty(0))
        wide = r > n
        spectrum = Spectrum.of((centred @ centred.T if wide else centred.T @ centred) / n)
        kept = spectrum.values > max(spectrum.cutoff, 0.0)
        values, vectors = spectrum.values[kept], spectrum.vectors[:, kept]
        if wide:
            return cls(center, centred.T @ vectors / (n * values), vectors, values)
        basis = vectors / np.sqrt(n * values)
        return cls(center, basis, centred @ basis, values)

    def fit(self, targets: np.ndarray) -> Ridge:
        """The ridge of the least leave-one-out error, among those that leave most noise free."""
        n, U, s = len(self.directions), self.directions, self.values
        T = targets - targets.mean(axis=0)
        along = T.T @ U  # a row per target
        lambdas = GRID * (float(s.sum()) or 1.0)
        gains = s[:, None] / (s[:, None] + lambdas)
        own = 1 - 1 / n - (U * U) @ gains  # a column per λ
        errors = np.zeros(len(lambdas))
        for target, part in zip(T.T, along, strict=True):
            left = target[:, None] - U @ (gains * part[:, None])
            left /= np.maximum(own, ALONE)
            errors += np.einsum("ij,ij->j", left, left)
        allowed = own.mean(axis=0) >= min(FREE, 1 - 2 / n)
        allowed[-1] = True
        errors[~allowed] = np.inf
        best = int(np.argmin(errors))
        error = float(errors[best]) / n
        return Ridge(self.center, self.basis, U, gains[:, best], float(lambdas[best]), error)


@dataclass(frozen=True, eq=False)
class Smoother:
    """Rows to regress on, made of any columns of the same kind: `rows(columns)`."""

    name: str
    rows: Callable[[PlainColumns], np.ndarray]


@dataclass(frozen=True, eq=False)
class Smoothed:
    """Targets regressed on columns."""

    name: str
    path: RidgePath
    ridge: Ridge


@dataclass(frozen=True, eq=False)
class Regressors:
    """The columns of Z, and some of their rows, on which smoothers are compared."""

    columns: PlainColumns

    @cached_property
    def _some(self) -> tuple[PlainColumns, np.ndarray]:
        """The columns as they are among few rows, which rows, and their plain smoothers."""
        n = len(self.columns)
        size = min(n, max(LOOKED[0], min(LOOKED[1], n // 50)))
        rows = np.linspace(0, n - 1, size).astype(int)
        if size == n:
            return self.columns, rows
        whole = self.columns
        part = PlainColumns(whole.numbers[rows], tuple(words[rows] for words in whole.labels))
        # in the units of all rows
        for name in ("standard", "tails", "scores", "indicators"):
            part.__dict__[name] = getattr(whole, name)[rows]
        return part, rows

    @cached_property
    def _plain(self) -> list[tuple[Smoother, RidgePath]]:
        """Smoothers that do not look at the targets, decomposed once for all of them."""
        some = self._some[0]
        smoothers = [Smoother("a line", straight_rows), *curves(some)]
        return [(each, RidgePath.of(each.rows(some))) for each in smoothers]

    @cached_property
    def _on_all(self) -> dict[str, RidgePath]:
        return {}

    def smooth(self, targets: np.ndarray) -> Smoothed:
        """The targets regressed on the columns, by the smoother of the least error."""
        with one_blas_thread():
            some, rows = self._some
            tried = [(each, path, path.fit(targets[rows])) for each, path in self._plain]
            best = min(tried, key=lambda one: one[2].error)
            for candidates in (self._joint, self._stepped) if targets.any() else ():
                for smoother in candidates(some, targets[rows], best[0]):
                    path = RidgePath.of(smoother.rows(some))
                    tried.append((smoother, path, path.fit(targets[rows])))
                best = min(tried, key=lambda one: one[2].error)
            smoother, path, ridge = best
            if len(rows) < len(targets):
                path = self._path(smoother)
                ridge = path.fit(targets)
            return Smoothed(smoother.name, path, ridge)

    def smooth_alike(self, targets: np.ndarray, beside: Smoothed) -> Ridge:
        """Targets regressed by curves, or by the smoother that was chosen for others."""
        with one_blas_thread():
            rows = self._some[1]
            tried = [(path.fit(targets[rows]), each) for each, path in self._plain]
            ridge, smoother = min(tried, key=lambda one: one[0].error)
            if len(rows) < len(targets):
                ridge = self._path(smoother).fit(targets)
            other = beside.path.fit(targets)
            return other if other.error < ridge.error else ridge

    def _joint(
        self, some: PlainColumns, targets: np.ndarray, curve: Smoother
    ) -> Iterator[Smoother]:
        """A kernel on all columns, alone and beside the best curves."""
        if some.scores.shape[1] + len(some.labels) < 2:
            return
        features = learn_joint(joint_columns(some), targets)

        def joint(columns: PlainColumns) -> np.ndarray:
            return join_columns(straight_rows(columns), features(joint_columns(columns)))

        def together(columns: PlainColumns) -> np.ndarray:
            return join_columns(curve.rows(columns), features(joint_columns(columns)))

        yield Smoother("a function of all columns", joint)
        if curve.name != "a line":
            yield Smoother(f"{curve.name} and a function of all columns", together)

    def _stepped(
        self, some: PlainColumns, targets: np.ndarray, best: Smoother
    ) -> Iterator[Smoother]:
        """Jumps in single columns, beside a line and beside the best so far."""
        if not some.scores.shape[1]:
            return
        steps = find_steps(some.scores, targets, straight_rows(some))
        if not len(steps):
            return
        line = self._plain[0][0]
        for smoother in (line,) if best.name == line.name else (line, best):

            def rows(columns: PlainColumns, beside: Smoother = smoother) -> np.ndarray:
                return join_columns(beside.rows(columns), steps(columns.scores))

            yield Smoother(f"{smoother.name} and {len(steps)} steps", rows)

    def _path(self, smoother: Smoother) -> RidgePath:
        """The smoother on all rows; plain ones are kept."""
        known = {each.name for each, _ in self._plain}
        if smoother.name not in known:
            return RidgePath.of(smoother.rows(self.columns))
        if smoother.name not in self._on_all:
            self._on_all[smoother.name] = RidgePath.of(smoother.rows(self.columns))
        return self._on_all[smoother.name]


def straight_rows(columns: PlainColumns) -> np.ndarray:
    """The columns themselves, each of variance one over their number."""
    rows = join_columns(columns.standard, columns.tails, columns.indicators)
    return rows / max(columns.standard.shape[1] + len(columns.labels), 1) ** 0.5


def joint_columns(columns: PlainColumns) -> np.ndarray:
    """What a kernel on all columns compares."""
    return join_columns(columns.scores, columns.indicators)


def curves(columns: PlainColumns) -> list[Smoother]:
    """Sums of a curve per column: smooth ones of several widths, and rough ones."""
    d = columns.scores.shape[1]
    if not d:
        return []
    n, several = len(columns), int(d > 1)
    found: list[tuple[str, Kernel, int]] = [
        (f"curves of width {width}", Gaussian(width), int(np.clip(SMOOTH_KNOTS[0] / width, 10, 60)))
        for width in (WIDTHS[:NARROWEST] if several else WIDTHS)
    ]
    found.append(("rough curves", Laplace(1.0), ROUGH_KNOTS[several]))
    return [
        Smoother(name, with_line(additive_features(columns.scores, kernel, min(knots, n))))
        for name, kernel, knots in found
    ]


def with_line(
    features: Callable[[np.ndarray], np.ndarray],
) -> Callable[[PlainColumns], np.ndarray]:
    """Features of the scores beside the columns themselves."""
    return lambda columns: join_columns(straight_rows(columns), features(columns.scores))


def additive_features(
    scores: np.ndarray, kernel: Kernel, knots: int
) -> Callable[[np.ndarray], np.ndarray]:
    """Coordinates of a sum of kernels, one per column, each on knots at the column's quantiles."""
    levels = (np.arange(knots) + 0.5) / knots
    each = []
    for column in scores.T:
        at = np.unique(np.quantile(column, levels))[:, None]
        each.append((at, factor_landmarks(kernel, at)))
    size = len(each) ** -0.5

    def features(values: np.ndarray) -> np.ndarray:
        parts = [
            size * solve_triangular(L, kernel.gram_matrix(at, values[:, [j]]), lower=True).T
            for j, (at, L) in enumerate(each)
        ]
        return np.hstack(parts)

    return features


def factor_landmarks(kernel: Kernel, landmarks: np.ndarray) -> np.ndarray:
    """L with L Lᵀ the landmarks' kernel matrix."""
    gram = kernel.gram_matrix(landmarks, landmarks)
    return np.linalg.cholesky(gram + JITTER * np.eye(len(gram)))


def learn_joint(points: np.ndarray, targets: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Coordinates of a Gaussian kernel in the metric in which it regresses the targets best.

    The root of the mean of ∇f(z) ∇f(z)ᵀ over the sample, f the regression in the metric before,
    stretches the directions that the targets depend on (Fukumizu and Leng 2014; Radhakrishnan et
    al. 2024). The step of the least leave-one-out error is kept, of all widths.
    """
    n, d = points.shape
    order = np.random.default_rng(0).permutation(n)[:LANDMARKS]
    best: tuple[float, np.ndarray, np.ndarray, Kernel, np.ndarray] | None = None
    for width in FULL_WIDTHS:
        metric = np.eye(d)
        for step in range(STEPS + 1):
            placed = points @ metric
            landmarks = placed[order]
            kernel = Gaussian(width * median_distance(landmarks))
            L = factor_landmarks(kernel, landmarks)
            gram = kernel.gram_matrix(placed, landmarks)
            ridge = RidgePath.of(solve_triangular(L, gram.T, lower=True).T).fit(targets)
            if best is None or ridge.error < best[0]:
                best = ridge.error, metric, landmarks, kernel, L
            if step == STEPS:
                break
            slopes = solve_triangular(L.T, ridge.slopes(targets - targets.mean(axis=0)))
            metric = next_metric(metric, placed, landmarks, gram, slopes)
    assert best is not None
    _, metric, landmarks, kernel, L = best

    def features(values: np.ndarray) -> np.ndarray:
        return solve_triangular(L, kernel.gram_matrix(landmarks, values @ metric), lower=True).T

    return features


def next_metric(
    metric: np.ndarray,
    points: np.ndarray,
    landmarks: np.ndarray,
    gram: np.ndarray,
    slopes: np.ndarray,
) -> np.ndarray:
    """The root of the mean of ∇f ∇fᵀ, from f(z) = Σ k(z, p) a_p and its gradients."""
    d = len(metric)
    outer = np.zeros((d, d))
    for a in slopes.T:
        weighed = gram * a
        gradient = points * weighed.sum(axis=1)[:, None] - weighed @ landmarks
        outer += gradient.T @ gradient
    outer = metric @ outer @ metric.T  # the gradient is that of f(z metric)
    total = float(np.trace(outer))
    if not total > 0:
        return metric
    spectrum = Spectrum.of(outer / total)
    lengths = np.sqrt(np.maximum(spectrum.values, 0.0) + KEPT)
    return np.sqrt(d) * (spectrum.vectors * lengths) @ spectrum.vectors.T
