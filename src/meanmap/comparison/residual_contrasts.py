"""What residuals given Z are asked: do they go together, and in what way.

The residuals of every column are brought to one scale along Z and to normal scores, so that neither
tails nor a noise that grows with Z decide. Their *line* is the scores themselves, their *shape* a
few coordinates of a Gaussian kernel on them, without the line. A contrast is the squared length of
Σ u(x) ⊗ v(y) ⊗ w(z), u and v lines or shapes less their regressions on Z, and w constant, linear or
curved. Under the null hypothesis it is that of the same sum with random signs on the noise of X.
Several contrasts make one statistic as several kernels do (`sources.combine_kernels`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from meanmap.arrays import spans
from meanmap.comparison.effects import EffectSize, residual_effect
from meanmap.comparison.plain_columns import (
    CLIP,
    FAR,
    PlainColumns,
    join_columns,
    normal_scores,
    standardize,
)
from meanmap.comparison.residuals import DETERMINED, Ridge
from meanmap.comparison.results import GammaNull
from meanmap.comparison.smoothers import Regressors, Smoothed
from meanmap.comparison.sources import Outcome, Source, simulate
from meanmap.kernels import Gaussian
from meanmap.kernels.bandwidths import median_distance
from meanmap.linalg import Spectrum
from meanmap.spaces import PivotedCholesky
from meanmap.spaces.space import fit_space_quietly

SHAPES = 3  # coordinates of the shape of residuals
CURVES = 6  # coordinates of a kernel on Z, by which contrasts change along it
LINES, LEADING = 24, 3  # coordinates of a line, where it is alone, and beside others
WIDE = PivotedCholesky(tol=1e-3, max_rank=40)  # coordinates of the kernels on residuals and on Z
MEDIAN_OF = 250  # rows that a width is taken from
CERTAIN = 1e-7  # of the variance of a target: what a regression must leave of it
SCALED = 0.97  # of the error of a constant: that of a scale that is worth dividing by
RANGE = 1.5  # of the logarithm of a scale, in each direction
SMALLEST = 0.05  # of the mean squared residual: what is added before logarithms are taken
CAP = 3.0  # robust standard deviations: an error beyond counts no more
BINS = 4096  # sums of rows that get one sign together, where there are more rows
AT_ONCE = 1 << 22  # random signs that are held


@dataclass(frozen=True)
class Contrast:
    """Products of parts of X, Y and Z that are one question, and its weight among others."""

    name: str
    weight: float
    terms: tuple[tuple[str, str, str], ...]


#: The weights were chosen at n = 100 with noise that is shared, shared with a sign that depends on
#: Z, shared in size, and of a mean that depends on the size of the other, around other curves than
#: those that power is reported on.
CONTRASTS = (
    Contrast("their residuals rise together", 5.0, (("line", "line", "all"),)),
    Contrast("their residuals rise together more for larger Z", 1.0, (("lead", "lead", "line"),)),
    Contrast("their residuals rise together for some Z", 1.0, (("lead", "lead", "curve"),)),
    Contrast("the size of their residuals goes together", 1.0, (("shape", "shape", "all"),)),
    Contrast(
        "one's residual changes with the size of the other's",
        1.0,
        (("lead", "shape", "all"), ("shape", "lead", "all")),
    ),
    Contrast(
        "the shapes of their residuals change together along Z",
        0.5,
        (("shape", "shape", "few"), ("lead", "shape", "few"), ("shape", "lead", "few")),
    ),
)


@dataclass(frozen=True, eq=False)
class ResidualSide:
    """One variable regressed on Z: its residuals as a line and as a shape."""

    ridge: Ridge  # the regression
    smoother: str  # in words
    guide: np.ndarray  # the columns that were regressed
    where: np.ndarray  # Z, as rows whose distances say what is near
    parts: dict[str, np.ndarray]  # residuals
    of_shape: Ridge  # the regression of the shape

    def regression(self, part: str) -> Ridge:
        """That of a part."""
        return self.of_shape if part == "shape" else self.ridge

    def noise(self, part: str) -> np.ndarray:
        """Residuals of their full size, those of leaving one out."""
        return self.parts[part] / self.regression(part).kept

    @property
    def determined(self) -> bool:
        """Whether the regression leaves nothing that could depend."""
        left = float(np.sum(self.ridge.residuals(self.guide) ** 2))
        return left <= max(DETERMINED, CERTAIN**2) * float(np.sum(self.guide**2))


class Given:
    """A conditioning variable: every variable that is regressed on it is regressed here."""

    def __init__(self, columns: PlainColumns) -> None:
        self.columns = columns
        self.regressors = Regressors(columns)

    @cached_property
    def where(self) -> np.ndarray:
        """Rows whose distances say what is near."""
        return join_columns(self.columns.standard, self.columns.indicators)

    @cached_property
    def bends(self) -> dict[str, np.ndarray]:
        """What contrasts are multiplied by."""
        n = len(self.columns)
        line = join_columns(self.columns.scores, self.columns.indicators)
        line = unit_rows(leading_rows(line - line.mean(axis=0), LINES // 2))
        curve = unit_rows(leading_rows(curve_rows(line), CURVES)) if line.shape[1] else line
        few = unit_rows(join_columns(leading_rows(line, LEADING), leading_rows(curve, LEADING)))
        return {"all": np.ones((n, 1)), "line": line, "curve": curve, "few": few}

    def _smooth(self, variable: PlainColumns) -> tuple[Smoothed, np.ndarray, np.ndarray]:
        """A variable's regression, its targets and their noise.

        Numbers with heavy tails are regressed as they are, as the tails may be those of Z, and cut
        off, so that a few do not decide everything; the better regression is kept.
        """
        tried = []
        for clip in (CLIP, FAR) if variable.tails.shape[1] else (FAR,):
            targets = variable.targets(clip)
            smoothed = self.regressors.smooth(targets)
            noise = smoothed.ridge.residuals(targets) / smoothed.ridge.kept
            units = variable.targets(FAR)
            tried.append((capped_error(units, targets - noise), smoothed, targets, noise))
        return min(tried, key=lambda one: one[0])[1:]

    def side(self, variable: PlainColumns) -> ResidualSide:
        """A variable regressed on this one."""
        smoothed, targets, noise = self._smooth(variable)
        ridge = smoothed.ridge
        numbers = variable.units.shape[1]
        if numbers:
            scaled = noise[:, :numbers] / self._scales(noise[:, :numbers], smoothed)
            line = join_columns(normal_scores(scaled), noise[:, numbers:])
            shape = unit_rows(leading_rows(curve_rows(line), SHAPES))
        else:
            line, shape = noise, np.empty((len(noise), 0))
        line = unit_rows(line - line.mean(axis=0))
        parts = {
            "line": leading_rows(line, LINES),
            "lead": leading_rows(line, LEADING),
            "shape": shape,
        }
        # a shape may change with Z where a mean does not
        of_shape = self.regressors.smooth_alike(shape, smoothed) if shape.shape[1] else ridge
        left = {
            name: (of_shape if name == "shape" else ridge).residuals(rows)
            for name, rows in parts.items()
        }
        return ResidualSide(ridge, smoothed.name, targets, self.where, left, of_shape)

    def _scales(self, noise: np.ndarray, smoothed: Smoothed) -> np.ndarray:
        """The size of noise as it changes with Z, where it is seen to; leaving one row out."""
        squared = noise**2
        logs = np.log(squared + SMALLEST * squared.mean(axis=0) + np.finfo(float).tiny)
        scales = np.ones_like(noise)
        for j in range(noise.shape[1]):
            one = logs[:, [j]]
            ridge = self.regressors.smooth_alike(one, smoothed)
            if ridge.error < SCALED * float(one.var()):
                predicted = one - ridge.residuals(one) / ridge.kept
                half = np.clip((predicted - predicted.mean()) / 2, -RANGE, RANGE)
                scales[:, j] = np.exp(half[:, 0])
        return scales


def capped_error(units: np.ndarray, predicted: np.ndarray) -> float:
    """The mean squared error, of which far ones are no more than a few deviations."""
    away = abs(units - np.median(units - predicted, axis=0) - predicted)
    return float(np.mean(np.minimum(away, CAP) ** 2))


def curve_rows(line: np.ndarray) -> np.ndarray:
    """Coordinates of a Gaussian kernel on rows, without what is linear in them."""
    rows = standardize(line)
    some = rows[np.linspace(0, len(rows) - 1, min(len(rows), MEDIAN_OF)).astype(int)]
    kernel = Gaussian(median_distance(some))
    found = np.asarray(fit_space_quietly(kernel, WIDE, rows)[1], dtype=np.float64)
    found = found - found.mean(axis=0)
    directions = np.linalg.qr(rows)[0]
    return found - directions @ (directions.T @ found)


def leading_rows(rows: np.ndarray, most: int) -> np.ndarray:
    """Centred rows, along their first directions where they have more."""
    if rows.shape[1] <= most:
        return rows
    return rows @ Spectrum.of(rows.T @ rows / len(rows)).vectors[:, ::-1][:, :most]


def unit_rows(rows: np.ndarray) -> np.ndarray:
    """Rows of mean squared length one; those that do not vary are left out."""
    size = float(np.mean(np.sum(rows * rows, axis=1)))
    return rows / np.sqrt(size) if size > 1e-20 else rows[:, :0]


def row_products(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """aᵢ ⊗ bᵢ as rows."""
    return (A[:, :, None] * B[:, None, :]).reshape(len(A), -1)


class ResidualContrasts(Source):
    """The contrasts of two sides, observed and with random multipliers on the noise of X."""

    def __init__(self, x: ResidualSide, y: ResidualSide, given: Given, kind: str) -> None:
        self.kind = kind
        bends = given.bends
        weighed: dict[tuple[bool, str, str], tuple[np.ndarray, np.ndarray]] = {}
        self._values: list[float] = []
        self._terms: list[np.ndarray] = []
        self.contrasts: list[Contrast] = []
        for contrast in CONTRASTS:
            value, products = 0.0, []
            for u, v, w in contrast.terms:
                if not x.parts[u].shape[1] * y.parts[v].shape[1] * bends[w].shape[1]:
                    continue
                key = u == "shape", v, w
                if key not in weighed:
                    rows = row_products(y.parts[v], bends[w])
                    # the sum is linear in X's noise: its transpose, applied to the other factor
                    weighed[key] = rows, x.regression(u).residuals(rows)
                rows, through = weighed[key]
                value += float(np.sum((x.parts[u].T @ rows) ** 2))
                products.append(row_products(x.noise(u), through))
            if products:
                self.contrasts.append(contrast)
                self._values.append(value / len(through))
                self._terms.append(np.hstack(products) / len(through) ** 0.5)
        self.weights = np.array([contrast.weight for contrast in self.contrasts])
        self.scales = np.array([float(np.sum(rows * rows)) for rows in self._terms])

    def observed(self) -> np.ndarray:
        return np.array(self._values)

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        rows = self._binned(rng)
        starts = np.cumsum([0, *(terms.shape[1] for terms in self._terms)])[:-1]
        out = np.empty((len(self._terms), count))
        for part in spans(count, max(16, AT_ONCE // len(rows))):
            size = part.stop - part.start, len(rows)
            if self.kind == "simulated":
                sums = rng.normal(size=size) @ rows
            else:  # ±1 is twice a random bit, less one
                sums = 2 * (random_bits(size, rng) @ rows) - rows.sum(axis=0)
            out[:, part] = np.add.reduceat(sums * sums, starts, axis=1).T
        return out

    def _binned(self, rng: np.random.Generator) -> np.ndarray:
        """All terms; where there are very many rows, their sums over random bins."""
        rows = np.hstack(self._terms)
        if len(rows) <= BINS:
            return rows
        edges = np.linspace(0, len(rows), BINS + 1).astype(int)[:-1]
        return np.add.reduceat(rows[rng.permutation(len(rows))], edges, axis=0)

    def gamma(self) -> Outcome:
        """The weighted sum of all, each over its mean, and a gamma distribution of its moments."""
        useful = self.scales > 0
        shares = np.where(useful, self.weights / np.where(useful, self.scales, 1.0), 0.0)
        rows = np.hstack([w**0.5 * terms for w, terms in zip(shares, self._terms, strict=True)])
        mean, squares = float(np.sum(rows * rows)), float(np.sum((rows.T @ rows) ** 2))
        value = float(shares @ self.observed())
        return Outcome(value, GammaNull("gamma", mean, 2 * squares))


def random_bits(size: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Random zeros and ones."""
    drawn = np.frombuffer(rng.bytes(size[0] * (-(-size[1] // 8))), dtype=np.uint8)
    bits = np.unpackbits(drawn.reshape(size[0], -1), axis=1, count=size[1])
    return bits.astype(np.float64)


KINDS = {"wild": "wild bootstrap", "simulation": "simulated"}


def judge_residuals(
    x: ResidualSide, y: ResidualSide, given: Given, null: str, draws: int, rng: np.random.Generator
) -> tuple[Outcome, str]:
    """The statistic with its null distribution, and what stands out most, in words."""
    source = ResidualContrasts(x, y, given, KINDS.get(null, ""))
    if null == "gamma":
        return source.gamma(), ""
    found = simulate(source, draws, rng)
    return found, source.contrasts[found.best].name


def residual_effect_of(x: ResidualSide, y: ResidualSide) -> EffectSize:
    """How far two variables go together beyond what Z explains."""
    sides = (join_columns(side.parts["line"], side.parts["shape"]) for side in (x, y))
    return residual_effect(*sides)


def leading_residuals(x: ResidualSide, y: ResidualSide) -> tuple[np.ndarray, np.ndarray]:
    """The residuals of both along the directions in which their lines covary most."""
    a, b = x.parts["line"], y.parts["line"]
    left, _, right = np.linalg.svd(a.T @ b, full_matrices=False)
    return a @ left[:, 0], b @ right[0]
