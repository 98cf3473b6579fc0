"""Null distributions, and how several kernels make one statistic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Points, count
from meanmap.comparison.results import ALTERNATIVES, TIE, Draws, GammaNull, Null
from meanmap.kernels import Kernel
from meanmap.linalg import Spectrum
from meanmap.spaces import Basis, PivotedCholesky
from meanmap.spaces.space import fit_space_quietly
from meanmap.statistics.centring import Centred
from meanmap.statistics.tiles import memory_limit

COMBINATIONS = ("max", "fuse", "min-p")
STOP = 20  # permutations that reach the observed statistic, after which sequential testing ends
TERMS = 4000  # weighted chi-squares that are drawn one by one
SMALLEST = 1e-6  # residual trace at which the spectrum of a kernel is complete enough


def read_draws(value: Any) -> int:
    """The number of permutations."""
    return checks.whole(
        value,
        "n_permutations",
        1,
        "The p-value cannot be below 1/(1 + n_permutations): 999 is usual, 99 the least that "
        "can reject at 1%.",
    )


def refuse(unused: dict[str, Any], why: str) -> None:
    """Refuse settings that would be ignored."""
    for name, value in unused.items():
        if value is not None:
            raise ValueError(f"{name}= does not go with {why}; leave it out.")


def require_one_sided(sequential: bool, alternative: str) -> None:
    """Refuse a sequential test of anything but large statistics."""
    if sequential and alternative != "greater":
        raise ValueError(
            "sequential=True stops when enough permuted statistics reach the observed one, which "
            f'suits alternative="greater" only; got {alternative!r}.'
        )


# --- a table of nulls -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a test was asked for, checked once: everything below takes it as it is."""

    null: str
    estimator: str
    combine: str
    draws: int
    rng: np.random.Generator
    alternative: str
    sequential: bool
    n_bins: int | None
    block_length: Any
    groups: Any
    basis: Any
    memory: int
    progress: bool

    @classmethod
    def read(
        cls,
        nulls: Iterable[str],
        estimators: Sequence[str],
        *,
        n_permutations: Any,
        rng: Any,
        max_memory: Any,
        **asked: Any,
    ) -> Settings:
        """The arguments of a test, or an error that lists what there is."""
        checks.option(asked["null"], "null", tuple(nulls))
        checks.option(asked["alternative"], "alternative", ALTERNATIVES)
        checks.option(asked["combine"], "combine", COMBINATIONS)
        checks.option(asked["estimator"], "estimator", estimators)
        require_one_sided(asked["sequential"], asked["alternative"])
        if asked["n_bins"] is not None:
            checks.whole(asked["n_bins"], "n_bins", 2, "512 are usual.")
        return cls(
            draws=read_draws(n_permutations),
            rng=checks.random_generator(rng),
            memory=memory_limit(max_memory),
            **asked,
        )


@dataclass(frozen=True)
class Outcome:
    """A statistic and its null distribution."""

    statistic: float
    null: Null
    best: int = 0  # the kernel that stands out most
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class NullMethod:
    """One way to find the null distribution of a test: a row of the test's table of nulls."""

    #: From what the test was asked for, checked, to the statistic and its null.
    find: Callable[..., Any]
    #: The estimate whose null it is, whichever was asked for; None where it is for any.
    estimator: str | None = None
    #: The settings that it heeds, of those that not every null does.
    takes: tuple[str, ...] = ()
    #: Whether several kernels may be combined.
    several: bool = True
    #: Whether any order of the rows is as likely as theirs, if the null hypothesis is true.
    exchangeable: bool = True
    #: Whether points of an accelerator may stay there.
    stays: bool = True


def choose_method(asked: Settings, table: dict[str, NullMethod]) -> NullMethod:
    """The null that was asked for; refuses settings that it would ignore."""
    chosen = table[asked.null]
    for name in ("block_length", "groups", "n_bins", "basis"):
        if getattr(asked, name) is None or name in chosen.takes:
            continue
        fitting = " or ".join(f'"{word}"' for word, method in table.items() if name in method.takes)
        where = "permutations and limits" if name == "basis" else f"null={fitting}"
        raise ValueError(
            f'{name}= goes with {where}, not null="{asked.null}".'
            if fitting
            else f'{name}= does not go with estimator="{asked.estimator}"; leave it out.'
        )
    return chosen


# --- one statistic of several kernels -------------------------------------------------------------


def combine_kernels(
    values: np.ndarray, scales: np.ndarray, handicaps: np.ndarray, how: str
) -> np.ndarray:
    """One statistic a column of several kernels', a row each, the observed ones among the columns.

    Whatever is symmetric in the columns keeps a permutation test exact, so each row may be
    standardised by its own mean and deviation over all of them. Rows that hardly vary (a constant
    variable, a kernel so narrow that all points are strangers) say nothing.

    "max" is the largest standardised value, less its kernel's handicap. "fuse" is the soft maximum
    of MMD-FUSE (Biggs, Schrab and Gretton 2023). "min-p" is the smallest p-value of any kernel, as
    MMDAgg and HSICAgg (Schrab et al. 2023) take it, all levels found from one set of permutations.
    """
    spread = values.std(axis=1)
    useful = (spread > 10 * TIE * scales) & np.isfinite(handicaps)
    if not useful.any():
        return np.zeros(values.shape[1])
    values = values[useful]
    z = (values - values.mean(axis=1, keepdims=True)) / spread[useful, None]
    if how == "max":
        return (z - handicaps[useful, None]).max(axis=0)
    if how == "fuse":
        top = z.max(axis=0)
        return top + np.log(np.mean(np.exp(z - top), axis=0))
    # how many columns reach this one, its near-ties included
    order = np.sort(z, axis=1)
    reached = [
        len(row) - np.searchsorted(row, value - TIE, side="left")
        for row, value in zip(order, z, strict=True)
    ]
    return -np.log(np.min(reached, axis=0) / z.shape[1])


def strongest(values: np.ndarray, scales: np.ndarray, handicaps: np.ndarray) -> int:
    """The kernel whose observed value, in the first column, stands out most."""
    spread = values.std(axis=1)
    useful = spread > 10 * TIE * scales
    above = values[:, 0] - values.mean(axis=1)
    return int(np.argmax(np.where(useful, above / np.where(useful, spread, 1.0), 0) - handicaps))


# --- moments of a permuted statistic --------------------------------------------------------------


def permutation_moments(a: CentredMoments, b: CentredMoments) -> tuple[float, float]:
    """The mean and variance of Σᵢⱼ Aᵢⱼ B_π(i)π(j) over all permutations π, A and B centred.

    Kazi-Aoual, Hitier, Sabatier and Lebreton (1995, Computational Statistics and Data Analysis 20).
    """
    n = a.n
    mean = a.trace * b.trace / (n - 1)
    if n < 4:
        return mean, 0.0
    first = ((n - 1) * a.squares - a.trace**2) * ((n - 1) * b.squares - b.trace**2)
    second = math.prod(
        [n * (n + 1) * c.diagonal - (n - 1) * (c.trace**2 + 2 * c.squares) for c in (a, b)]
    )
    variance = 2 * first / ((n - 1) ** 2 * (n + 1) * (n - 2))
    variance += second / ((n + 1) * n * (n - 1) * (n - 2) * (n - 3))
    return float(mean), max(float(variance), 0.0)


@dataclass(frozen=True)
class CentredMoments:
    """Tr A, Tr A² and Σ Aᵢᵢ² of a centred Gram matrix of n points."""

    n: int
    trace: float
    squares: float
    diagonal: float

    @classmethod
    def of_sums(
        cls, n: int, squares: float, rows: np.ndarray, diagonal: np.ndarray, rounding: float = 0.0
    ) -> CentredMoments:
        """From Σ K², the rows' sums and the diagonal of a Gram matrix.

        `rounding` is what its elements may be off by.
        """
        total = rows.sum()
        centred = diagonal - 2 / n * rows + total / n**2
        if centred.sum() <= TIE * np.abs(diagonal).sum() + n * rounding:
            return cls(n, 0.0, 0.0, 0.0)  # what is left of a constant is rounding
        squares = float(squares - 2 / n * (rows @ rows) + total**2 / n**2)
        return cls(n, float(centred.sum()), squares, float(centred @ centred))

    @classmethod
    def of_labels(cls, n: int, m: int) -> CentredMoments:
        """Those of aaᵀ, a = 1/n on one sample and -1/m on the other: MMD is Σ K aaᵀ."""
        one = 1 / n + 1 / m
        return cls(n + m, one, one**2, 1 / n**3 + 1 / m**3)


def gamma_null(moments: tuple[float, float], scale: float) -> GammaNull:
    """The gamma distribution of these moments, those of a constant statistic being zero."""
    mean, variance = moments
    if variance <= (TIE * scale) ** 2:
        return GammaNull("gamma", mean, 0.0)
    return GammaNull("gamma", mean, variance)


# --- weighted chi-squares -------------------------------------------------------------------------


def eigenvalues(kernel: Kernel, points: Points, basis: Basis | None) -> np.ndarray:
    """Those of the centred covariance operator that count, the largest first."""
    n = count(points)
    if basis is None:
        kernel, basis = Centred.at_mean(kernel, points), PivotedCholesky(tol=SMALLEST)
    _, psi = fit_space_quietly(kernel, basis, points)
    psi = psi - psi.mean(axis=0)
    values = Spectrum.of(psi.T @ psi / n).values[::-1]
    return np.maximum(values, 0.0)


def weighted_chi_squares(
    weights: np.ndarray, mean: float, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Draws of Σ wᵢ zᵢ², scaled to a known mean; what is beyond the largest weights by its mean."""
    weights = np.sort(weights)[::-1]
    total = weights.sum()
    if total <= 0:
        return np.zeros(draws)
    top, rest = weights[:TERMS], weights[TERMS:].sum()
    values = np.array([top @ rng.chisquare(1.0, size=len(top)) for _ in range(draws)])
    return (values + rest) * (mean / total)


# --- drawing --------------------------------------------------------------------------------------


class Source:
    """A statistic under one or several kernels, observed and under random permutations."""

    #: How the null is drawn, in a word or two.
    kind: str
    #: The size of the sums that rounding acts on, a kernel each.
    scales: np.ndarray
    #: What each kernel must be ahead of the others by.
    handicaps: np.ndarray | None = None
    #: How many distinct arrangements of the data there are, where they are few enough to be drawn.
    arrangements: int | None = None
    #: Whether to show how far it is.
    progress: bool = False

    def observed(self) -> np.ndarray:
        """The statistic of the data, a kernel each."""
        raise TypeError(f"{type(self).__name__} observes nothing.")

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """`count` statistics under the null, one row per kernel.

        Fewer only if there are no more distinct arrangements of the data.
        """
        raise TypeError(f"{type(self).__name__} draws nothing.")


def simulate(
    source: Source,
    draws: int,
    rng: np.random.Generator,
    combine: str = "max",
    sequential: bool = False,
) -> Outcome:
    """The statistic, its null distribution as draws, and which kernel stands out most."""
    observed = source.observed()
    if sequential and (source.arrangements is None or source.arrangements - 1 > draws):
        value = float(observed[0])
        null = _sequential(source, value, draws, rng)
        return Outcome(value, null, notes=draw_notes(null, draws))
    table = np.concatenate([observed[:, None], source.draw(draws, rng)], axis=1)
    if len(table) == 1:
        values, scale, best = table[0], float(source.scales[0]), 0
    else:
        handicaps = np.zeros(len(table)) if source.handicaps is None else source.handicaps
        values, scale = combine_kernels(table, source.scales, handicaps, combine), 1.0
        best = strongest(table, source.scales, handicaps)
    null = Draws(source.kind, values[1:], scale)
    return Outcome(float(values[0]), null, best, draw_notes(null, draws))


def _sequential(source: Source, observed: float, most: int, rng: np.random.Generator) -> Draws:
    """Draw until STOP values reach the observed one, or `most` are drawn.

    The p-value is then STOP over the number drawn, which is exact too (Besag and Clifford 1991).
    """
    scale = float(source.scales[0])
    slack = TIE * max(abs(observed), scale)
    values: list[float] = []
    reached = 0
    while len(values) < most:
        for value in source.draw(min(4 * STOP, most - len(values)), rng)[0]:
            values.append(float(value))
            reached += bool(value >= observed - slack)
            if reached == STOP:
                return Draws(source.kind, np.array(values), scale, stopped=True)
    return Draws(source.kind, np.array(values), scale)


def draw_notes(found: Draws, asked: int) -> tuple[str, ...]:
    """What a reader should know of the draws: that they ended early, or that there are few."""
    if found.stopped:
        return (f"Stopped after {len(found)} draws, when {STOP} had reached the statistic.",)
    if len(found) < asked:
        least = 1 / (1 + len(found))
        return (
            f"There are only {len(found) + 1} distinct arrangements of so few points, all used: no "
            f"p-value can be below {least:.3g}.",
        )
    return ()
