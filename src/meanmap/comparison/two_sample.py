"""Do two samples come from one distribution?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Points, concatenate, count, is_chunked, take
from meanmap.comparison import bins, blocks, limits, nulls, ordering
from meanmap.comparison.candidates import Candidates, optimize_kernel, shared_combination
from meanmap.comparison.contrasts import Contrasts
from meanmap.comparison.exchanges import Exchange, Multipliers, StreamedExchange, Swaps
from meanmap.comparison.flips import PairFlips, own_differences, pair_bins
from meanmap.comparison.methods import NullMethod, Request
from meanmap.comparison.results import DIFFERENT, NormalNull, TestResult, row_groups, tie_scale
from meanmap.comparison.running import RunningTwoSampleTest, require_sums
from meanmap.comparison.sources import Outcome, Source
from meanmap.comparison.witness import Difference
from meanmap.kernels import Kernel
from meanmap.spaces import Basis
from meanmap.spaces.space import fit_space_moments
from meanmap.statistics import distance
from meanmap.statistics.centring import Centred
from meanmap.statistics.gates import constant_notes, near_origin, read_two_samples
from meanmap.statistics.tiles import Family, gram_moments, on_host

Cut = tuple[bins.Layout, tuple[str, ...]]  # bins of points, and what to say of them
ALIKE = "the two samples are more alike than chance allows"


@row_groups(False)
def two_sample_test(
    X: Any,
    Y: Any,
    kernel: Any = None,
    null: Any = "permutation",
    n_permutations: int = 999,
    rng: Any = None,
    *,
    estimator: str = "U",
    basis: Basis | None = None,
) -> TestResult:
    """Test whether two samples come from one distribution, by their maximum mean discrepancy.

    Parameters
    ----------
    X, Y : samples of one kind of points, of any sizes from 2
        Collections of Dask are tested in coordinates, see `RunningTwoSampleTest`.
    kernel : None, Kernel, callable, list, Collection, "median", "collection" or "optimized"
        None is "collection" for rows of numbers: contrasts of location and spread by ranks,
        of shape by Gaussians of two widths, and of clusters by Gaussians as wide as the nearest
        fifth and fiftieth of the points are far. Together they lose little against the best of
        them, and the level is exact. Labels get a whitened delta kernel, other points
        their default kernel. "median" is one Gaussian at the median distance. A list of kernels
        makes one statistic likewise; `Collection` says how. "optimized" picks the width with the
        most power on half of the data, and tests on the other half.
    null : word or null object
        How the null distribution is found. A word is short for the object with its defaults.

        =============== ================================= ======================================
        word            object                            level
        =============== ================================= ======================================
        "permutation"   `Permutation(bins)`               exact
        "full"          `Full()`                          exact
        "block"         `Block(length)`                   approximate, for time series
        "wild"          `Wild(length)`                    approximate, for time series
        "gamma"         `Gamma()`                         approximate, no draws
        "spectral"      `Spectral()`                      approximate, for large samples
        "sequential"    `Sequential(null, stop)`          that of the null it wraps
        –               `Groups(labels)`                  exact, for clusters of rows
        –               `WildGroups(labels)`              approximate, for clusters of rows
        "paired"        `PairedRows(bins)`                exact, for paired samples
        =============== ================================= ======================================

        The linear, block and incomplete estimators have "permutation", `Swap()`, which exchanges
        xᵢ with yᵢ and is exact, and the first two have "normal", `NormalLimit()`, their limit.
        Progress bars, memory limits and the alternative are settings of these objects:
        `null=Permutation(alternative="less")`.
    n_permutations : int
        How many permutations, weights or draws. If there are fewer distinct exchanges, each is used
        once.
    rng : int, numpy Generator or None
    estimator : {"U", "V", "linear", "block", "incomplete"}
        See `mmd`.
    basis : PivotedCholesky, Nystroem, RandomFourier, Explicit or None
        Compute in coordinates, in O((n + m) r): for millions of points. One kernel only.

    Returns
    -------
    TestResult
        Unpacks to statistic, pvalue; `.witness(x)` says where the samples differ, `.plot()` draws.
        If rows look ordered, as those of a time series do, and the null takes them for
        exchangeable, there is a note, and a warning if p ≤ 0.05.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import two_sample_test
    >>> from meanmap.comparison import Block
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(200, 2)), 1.4 * rng.normal(size=(250, 2))
    >>> result = two_sample_test(X, Y, rng=0)
    >>> result.pvalue
    0.001
    >>> statistic, pvalue = two_sample_test(X, rng.normal(size=(250, 2)), rng=0)
    >>> pvalue > 0.05
    True
    >>> two_sample_test(X, Y, null=Block(10), rng=0).pvalue < 0.05  # rows in the order of time
    True
    """
    if is_chunked(X, Y):
        require_sums(null, kernel)
        return RunningTwoSampleTest(kernel, basis).partial_fit(X, Y).result()
    checks.option(estimator, "estimator", distance.ESTIMATORS)
    table, sequential = TABLES[estimator]
    asked = Request.read(
        table, null, n_permutations, rng, sequential=sequential, estimator=estimator, basis=basis
    )
    samples = TwoSamples.read(X, Y, kernel, asked)
    found = asked.method.find(samples, asked)
    alternative = asked.null.alternative
    paired = isinstance(asked.null, nulls.PairedRows)
    many, best = len(samples.kernels), samples.kernels[found.best]
    statistics = f"{many} MMDs combined ({samples.combine})" if many > 1 else "MMD"
    if samples.contrasts is not None:
        strongest = samples.contrasts.names[found.best]
        statistics = f"{len(samples.contrasts.kinds)} contrasts combined ({samples.combine}), "
        statistics += f"the strongest that of {strongest}"
    estimate = f"{asked.method.estimator or estimator} estimate"
    result = TestResult.of(
        found,
        f"Two-sample test by {statistics}, {estimate}",
        alternative,
        kernel=best,
        hypothesis=DIFFERENT if alternative != "less" else ALIKE,
        sizes={"n": samples.n, "m": samples.m},
        notes=(*samples.ordered, *samples.notes, *found.notes),
        explanation=Difference(best.plain, samples.X, samples.Y, samples.plain, paired),
    )
    ordering.warn_if_significant(samples.ordered, result.pvalue)
    return result


@dataclass(frozen=True, eq=False)
class TwoSamples:
    """Two checked samples, and kernels that were resolved on both together."""

    X: Points
    Y: Points
    pooled: Points  # both, near the origin: what is computed from
    kernels: list[Kernel]
    contrasts: Contrasts | None  # what the default compares, a kernel each
    combine: str
    ordered: list[str]  # what to say if the rows look ordered
    notes: list[str]
    plain: Kernel  # the first as given, which the effect is measured by

    @classmethod
    def read(cls, X: Any, Y: Any, kernel: Any, asked: Request) -> TwoSamples:
        """The arguments of the test, checked once."""
        method = asked.method
        single = not method.several or asked.basis is not None or asked.stop is not None
        candidates = Candidates.of(kernel, X, single, "X")
        stay = method.stays and asked.basis is None and candidates.rule != "optimized"
        X, Y = read_two_samples(X, Y, candidates.kernels[0], stay=stay)
        ordered = ordering.note_on_samples([("X", X), ("Y", Y)]) if method.exchangeable else []
        notes = []
        paired = isinstance(asked.null, nulls.PairedRows)
        if paired and (count(X) != count(Y) or candidates.rule == "optimized"):
            raise ValueError(
                "null=PairedRows() takes row i of X with row i of Y and needs as many of both; "
                f"got {count(X)} and {count(Y)}, kernel={kernel!r:.40}. Leave out null= for "
                'separate samples; kernel="optimized" splits them and cannot be used.'
            )
        if candidates.rule == "optimized":
            chosen, X, Y = optimize_kernel(X, Y, asked.rng)
            candidates = Candidates((chosen,))
            notes.append("The kernel was chosen on the other half of the data.")
        pooled = concatenate([X, Y])
        kernels = candidates.resolve(pooled, asked.rng)
        notes += constant_notes(pooled, kernels[0], "both samples")
        (pooled,) = near_origin(kernels, pooled)
        contrasts = None
        if candidates.rule == "collection":
            contrasts = Contrasts.of(kernels[0], on_host(pooled), asked.rng)
            kernels = kernels if contrasts is None else contrasts.kernels()
        combine = shared_combination(candidates)
        plain = candidates.kernels[0]
        return cls(X, Y, pooled, kernels, contrasts, combine, ordered, notes, plain)

    @property
    def n(self) -> int:
        """Points of X."""
        return count(self.X)

    @property
    def m(self) -> int:
        """Points of Y."""
        return count(self.Y)

    def simulate(self, asked: Request, source: Source) -> Outcome:
        """The statistic of a source and draws of it."""
        source.weights = None if self.contrasts is None else self.contrasts.weights
        return asked.simulate(source, self.combine)

    def limit(self, basis: Basis | None) -> limits.Limit:
        """The "V" estimate, and its mean and variance under permutations."""
        n, m, kernel, pooled = self.n, self.m, self.kernels[0], self.pooled
        a = np.repeat([1 / n, -1 / m], [n, m])
        kernel = Centred.of(kernel, pooled) if basis is None else kernel
        sums = gram_moments(kernel, pooled, a, basis)
        of_points = limits.CentredMoments.of_sums(
            n + m, sums.squares, sums.rows, sums.diagonal, sums.rounding
        )
        moments = limits.permutation_moments(of_points, limits.CentredMoments.of_labels(n, m))
        scale = tie_scale(float(np.mean(sums.diagonal)) / len(sums.diagonal), sums.rounding)
        return limits.Limit(sums.quadratic, scale, *moments)

    def spectrum(self, basis: Basis | None) -> np.ndarray:
        """The weights of the chi-squares in the limit."""
        return limits.eigenvalues(self.kernels[0], self.pooled, basis)


# --- exchanges of points, bins and blocks ---------------------------------------------------------


def _cut_bins(samples: TwoSamples, asked: Request) -> Cut:
    """Random bins of points."""
    size = bins.bin_size(samples.n, samples.m, asked.null.bins)
    return bins.random_bins(samples.n, samples.m, size, asked.rng), ()


def _cut_points(samples: TwoSamples, asked: Request) -> Cut:
    """Single points."""
    return bins.random_bins(samples.n, samples.m, 1, asked.rng), ()


def _cut_blocks(samples: TwoSamples, asked: Request) -> Cut:
    """Stretches of rows that follow each other."""
    kernel = samples.kernels[0].plain
    length, notes = blocks.length_for_samples(asked.null.length, kernel, samples.X, samples.Y)
    return bins.consecutive_bins(samples.n, samples.m, length), tuple(notes)


def _cut_groups(samples: TwoSamples, asked: Request) -> Cut:
    """Clusters of rows."""
    given, n, m = asked.null.labels, samples.n, samples.m
    if isinstance(given, tuple) and len(given) == 2:
        of_x, of_y = (checks.labels(part, "groups") for part in given)
    else:
        both = checks.labels(given, "groups")
        of_x, of_y = both[:n], both[n:]
    if of_x.shape != (n,) or of_y.shape != (m,):
        raise ValueError(
            f"groups: expected {n + m} labels, {n} for X and then {m} for Y (or a pair of arrays); "
            f"got {len(of_x) + len(of_y)}."
        )
    return bins.clusters(of_x, of_y), ()


def _exchange(
    samples: TwoSamples, asked: Request, cut: Callable[..., Cut], kind: str = "permutation"
) -> Outcome:
    """Parts of the samples change places."""
    layout, notes = cut(samples, asked)
    source: Source
    if asked.basis is None and samples.contrasts is None and layout.bins > bins.MOST:
        source = StreamedExchange(
            Family(samples.kernels), samples.pooled, layout, asked.estimator, kind,
            asked.null.memory, asked.null.progress,
        )  # fmt: skip
    else:
        gram = _binned_gram(samples, asked, layout)
        source = Exchange(gram, layout, asked.estimator, kind)
    found = samples.simulate(asked, source)
    return replace(found, notes=(*notes, *found.notes))


def _weigh(samples: TwoSamples, asked: Request, cut: Callable[..., Cut]) -> Outcome:
    """Parts of the samples get random weights."""
    layout, notes = cut(samples, asked)
    gram = _binned_gram(samples, asked, layout)
    found = samples.simulate(asked, Multipliers(gram, layout, asked.estimator))
    return replace(found, notes=(*notes, *found.notes))


def _binned_gram(samples: TwoSamples, asked: Request, layout: bins.Layout) -> bins.Binned:
    """Sums between every two bins, exact or in coordinates."""
    gram: bins.Binned
    pooled, contrasts = samples.pooled, samples.contrasts
    if contrasts is not None:
        features = partial(contrasts.for_each_block, progress=asked.null.progress)
        gram = bins.BinnedFeatures.of(contrasts.ranks, features, layout, contrasts.apart)
    elif asked.basis is None:
        gram = bins.BinnedGram.of(Family(samples.kernels), pooled, layout, asked.null.progress)
    else:
        kernel, N = samples.kernels[0], samples.n + samples.m
        weights, ones = np.full(N, 1 / N), np.ones((N, 1))
        space, _, _ = fit_space_moments(kernel, asked.basis, pooled, weights, ones)

        def for_each_block(work: bins.Features) -> None:
            space.map_.for_each_block(pooled, lambda thread, at, psi: work(thread, at, [psi]))

        gram = bins.BinnedFeatures.of([space.rank_], for_each_block, layout)
    return gram.centred(layout)


def _flip_pairs(samples: TwoSamples, asked: Request) -> Outcome:
    """The points of a pair change places."""
    layout = pair_bins(samples.n, asked.null.bins, asked.rng)
    own = None
    if asked.estimator == "U" and samples.contrasts is None:
        parts = slice(0, samples.n), slice(samples.n, None)
        own = own_differences(samples.kernels, *(take(samples.pooled, part) for part in parts))
    return samples.simulate(asked, PairFlips(_binned_gram(samples, asked, layout), layout, own))


# --- estimates of some pairs ----------------------------------------------------------------------


def _swap_pairs(samples: TwoSamples, asked: Request) -> Outcome:
    """Every xᵢ changes places with yᵢ, or not."""
    return samples.simulate(asked, Swaps(_terms(samples, asked)))


def _normal_limit(samples: TwoSamples, asked: Request) -> Outcome:
    """The normal limit of a mean of independent values, each exact to its rounding."""
    terms = _terms(samples, asked)
    values = terms.values.reshape(terms.blocks, -1).mean(axis=1)
    if len(values) < 2:
        raise ValueError(
            'null="normal": there is a single term here and so no spread to judge it by; it needs '
            'more points. Use null="permutation".'
        )
    variance = float(np.var(values, ddof=1))
    spread = variance / len(values) if variance > terms.rounding**2 else 0.0
    return Outcome(float(terms.values.mean()), NormalNull("normal", 0.0, spread))


def _terms(samples: TwoSamples, asked: Request) -> distance.Terms:
    A = take(samples.pooled, slice(0, samples.n))
    B = take(samples.pooled, slice(samples.n, None))
    return distance.pair_terms(samples.kernels[0], A, B, asked.estimator)


#: For the estimates over all pairs: those that are drawn, and so may be drawn one after another.
DRAWN = {
    "permutation": NullMethod(nulls.Permutation, partial(_exchange, cut=_cut_bins)),
    "full": NullMethod(nulls.Full, partial(_exchange, cut=_cut_points)),
    "block": NullMethod(
        nulls.Block,
        partial(_exchange, cut=_cut_blocks, kind="block permutation"),
        exchangeable=False,
    ),
    "wild": NullMethod(nulls.Wild, partial(_weigh, cut=_cut_blocks), exchangeable=False),
    "groups": NullMethod(nulls.Groups, partial(_exchange, cut=_cut_groups), exchangeable=False),
    "wild groups": NullMethod(
        nulls.WildGroups, partial(_weigh, cut=_cut_groups), exchangeable=False
    ),
    "paired": NullMethod(
        nulls.PairedRows, _flip_pairs, basis=False, exchangeable=False, stays=False
    ),
}
NULLS = {
    **DRAWN,
    "gamma": NullMethod(nulls.Gamma, limits.gamma_limit, estimator="V", several=False),
    "spectral": NullMethod(
        nulls.Spectral, limits.spectral_limit, estimator="V", several=False, stays=False
    ),
}
#: For those over some of them.
SWAPS = {
    "permutation": NullMethod(nulls.Swap, _swap_pairs, basis=False, several=False, stays=False)
}
LIMITS = {
    "normal": NullMethod(nulls.NormalLimit, _normal_limit, basis=False, several=False, stays=False)
}
#: By the estimator: the nulls, and those of them that may be sequential.
TABLES = {
    **dict.fromkeys(("U", "V"), (NULLS, DRAWN)),
    **dict.fromkeys(("linear", "block"), (SWAPS | LIMITS, SWAPS)),
    "incomplete": (SWAPS, SWAPS),
}
