"""Do two samples come from one distribution?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Points, concatenate, count, is_chunked, take
from meanmap.comparison import bins, blocks, nulls, ordering
from meanmap.comparison.candidates import Candidates, optimize_kernel
from meanmap.comparison.exchanges import Exchange, Multipliers, StreamedExchange, Swaps
from meanmap.comparison.nulls import NullMethod, Outcome, Settings
from meanmap.comparison.results import (
    DIFFERENT,
    Draws,
    NormalNull,
    TestResult,
    describe_null,
    row_groups,
    tie_scale,
)
from meanmap.comparison.running import RunningTwoSampleTest, require_sums
from meanmap.comparison.witness import Difference
from meanmap.kernels import Kernel
from meanmap.spaces import Basis
from meanmap.spaces.space import fit_space_moments
from meanmap.statistics import distance
from meanmap.statistics.centring import Centred
from meanmap.statistics.gates import constant_notes, near_origin, read_two_samples
from meanmap.statistics.tiles import Family, GramMoments, gram_moments

ALIKE = "the two samples are more alike than chance allows"


@row_groups(False)
def two_sample_test(
    X: Any,
    Y: Any,
    kernel: Any = None,
    null: str = "permutation",
    n_permutations: int = 999,
    rng: Any = None,
    *,
    estimator: str = "U",
    combine: str = "max",
    n_bins: int | None = None,
    block_length: int | str | None = None,
    groups: Any = None,
    basis: Basis | None = None,
    alternative: str = "greater",
    sequential: bool = False,
    max_memory: Any = None,
    progress: bool = False,
) -> TestResult:
    """Test whether two samples come from one distribution, by their maximum mean discrepancy.

    Parameters
    ----------
    X, Y : samples of one kind of points, of any sizes from 2
        Collections of Dask are tested in coordinates, see `RunningTwoSampleTest`.
    kernel : None, Kernel, callable, list of Kernel, "median", "collection" or "optimized"
        None is "collection" for rows of numbers: a Gaussian at the median distance, whitened so
        that several directions count, and two narrow ones, which together lose little against the
        best of them and hold the level exactly. Labels get a whitened delta kernel, other points
        their default kernel. "median" is one Gaussian at the median distance. A list is
        combined likewise. "optimized" picks a width on half of the data for power, and tests on the
        other half.
    null : {"permutation", "full", "block", "wild", "gamma", "spectral", "normal"}
        "permutation" exchanges random bins of points between the samples and "full" single points:
        both are exact at any size. "block" exchanges stretches of `block_length` rows and "wild"
        gives them random weights (Chwialkowski et al. 2014), for time series. "gamma" fits the
        first two moments over all permutations and "spectral" draws from the limit distribution:
        both approximate, and of the "V" estimate. The linear, block and incomplete estimators
        exchange xᵢ with yᵢ, which is exact, or take their limit with "normal" (the first two).
    n_permutations : int
        How many permutations, signs or draws. If all distinct exchanges are fewer, each is used
        once.
    rng : int, numpy Generator or None
    estimator : {"U", "V", "linear", "block", "incomplete"}
        See `mmd`.
    combine : {"max", "fuse", "min-p"}
        How several kernels make one statistic: the largest in standard deviations of its own
        permutations, the soft maximum of MMD-FUSE, or the least p-value of MMDAgg.
    n_bins : int or None
        Bins for null="permutation", of both samples together; 512 or a little more by default.
    block_length : int, "auto" or None
        Rows that belong together, for "block" and "wild", where None is "auto": chosen from the
        memory of the series, with a warning if they are short for it.
    groups : labels of shape (n + m,), those of X first, or a pair (of X, of Y)
        Clusters: whole clusters are exchanged (with null="permutation").
    basis : PivotedCholesky, Nystroem, RandomFourier, Explicit or None
        Compute in coordinates, in O((n + m) r): for millions of points. One kernel only.
    alternative : {"greater", "less", "two-sided"}
        "greater": the samples differ. "less": they are more alike than chance allows.
    sequential : bool
        Stop once 20 permuted statistics have reached the observed one (Besag and Clifford 1991).
        One kernel only.
    max_memory : int, str like "500MB", or None
        What "full" may use for permutations; a quarter of the free memory by default. The rest
        works in tiles of a few megabytes.
    progress : bool
        Show a progress bar.

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
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(200, 2)), 1.4 * rng.normal(size=(250, 2))
    >>> result = two_sample_test(X, Y, rng=0)
    >>> result.pvalue
    0.001
    >>> statistic, pvalue = two_sample_test(X, rng.normal(size=(250, 2)), rng=0)
    >>> pvalue > 0.05
    True
    """
    if is_chunked(X, Y):
        require_sums(null, kernel, alternative, (block_length, groups, n_bins))
        return RunningTwoSampleTest(kernel, basis).partial_fit(X, Y).result()
    asked = Settings.read(
        {**NULLS, **SWAP_NULLS}, distance.ESTIMATORS, null=null, n_permutations=n_permutations,
        rng=rng, estimator=estimator, combine=combine, n_bins=n_bins, block_length=block_length,
        groups=groups, basis=basis, alternative=alternative, sequential=sequential,
        max_memory=max_memory, progress=progress,
    )  # fmt: skip
    method = _method_for_samples(asked)
    samples = TwoSamples.read(X, Y, kernel, asked, method)
    found = method.find(samples, asked)
    pvalue = found.null.pvalue(found.statistic, alternative)
    ordering.warn_if_significant(samples.ordered, pvalue)
    many, best = len(samples.kernels), samples.kernels[found.best]
    statistics = f"the strongest of {many} MMDs ({combine})" if many > 1 else "MMD"
    estimate = f"{method.estimator or estimator} estimate"
    return TestResult(
        statistic=found.statistic,
        pvalue=pvalue,
        null=found.null,
        kernel=best,
        method=f"Two-sample test by {statistics}, {estimate}, {describe_null(found.null)}",
        hypothesis=DIFFERENT if alternative != "less" else ALIKE,
        sizes={"n": samples.n, "m": samples.m},
        notes=(*samples.ordered, *samples.notes, *found.notes),
        explanation=Difference(best.plain, samples.X, samples.Y),
    )


def _method_for_samples(asked: Settings) -> NullMethod:
    """The null that was asked for, of those for the estimate that was."""
    table = NULLS if asked.estimator in ("U", "V") else SWAP_NULLS
    if table is SWAP_NULLS and asked.null not in table:
        raise ValueError(
            f'estimator="{asked.estimator}" goes with null="permutation" (or "normal"), not '
            f"{asked.null!r}."
        )
    if asked.null == "normal" and asked.estimator not in ("linear", "block"):
        raise ValueError(
            'null="normal" goes with estimator="linear" or "block", whose limit is normal; '
            f'estimator={asked.estimator!r} has another. Use null="permutation".'
        )
    return nulls.choose_method(asked, table)


@dataclass(frozen=True, eq=False)
class TwoSamples:
    """Two checked samples, and kernels that were resolved on both together."""

    X: Points
    Y: Points
    pooled: Points  # both, near the origin: what is computed from
    kernels: list[Kernel]
    handicaps: np.ndarray
    ordered: list[str]  # what to say if the rows look ordered
    notes: list[str]

    @classmethod
    def read(cls, X: Any, Y: Any, kernel: Any, asked: Settings, method: NullMethod) -> TwoSamples:
        """The arguments of the test, checked once."""
        single = not method.several or asked.basis is not None or asked.sequential
        candidates = Candidates.of(kernel, X, single, "X")
        stay = method.stays and asked.basis is None and candidates.rule != "optimized"
        X, Y = read_two_samples(X, Y, candidates.kernels[0], stay=stay)
        exchangeable = method.exchangeable and asked.groups is None
        ordered = ordering.note_on_samples([("X", X), ("Y", Y)]) if exchangeable else []
        notes = []
        if candidates.rule == "optimized":
            chosen, X, Y = optimize_kernel(X, Y, asked.rng)
            candidates = Candidates((chosen,))
            notes.append("The kernel was chosen on the other half of the data.")
        pooled = concatenate([X, Y])
        kernels = candidates.resolve(pooled, asked.rng)
        notes += constant_notes(pooled, kernels[0], "both samples")
        (pooled,) = near_origin(kernels, pooled)
        return cls(X, Y, pooled, kernels, candidates.handicaps, ordered, notes)

    @property
    def n(self) -> int:
        """Points of X."""
        return count(self.X)

    @property
    def m(self) -> int:
        """Points of Y."""
        return count(self.Y)

    def simulate(self, asked: Settings, source: nulls.Source) -> Outcome:
        """The statistic of a source and draws of it."""
        source.handicaps = self.handicaps
        return nulls.simulate(source, asked.draws, asked.rng, asked.combine, asked.sequential)

    def permutation_moments(self, basis: Basis | None) -> tuple[GramMoments, tuple[float, float]]:
        """What the "V" estimate is made of, and its mean and variance under permutations."""
        n, m, kernel, pooled = self.n, self.m, self.kernels[0], self.pooled
        a = np.repeat([1 / n, -1 / m], [n, m])
        kernel = Centred.of(kernel, pooled) if basis is None else kernel
        sums = gram_moments(kernel, pooled, a, basis)
        of_points = nulls.CentredMoments.of_sums(
            n + m, sums.squares, sums.rows, sums.diagonal, sums.rounding
        )
        of_labels = nulls.CentredMoments.of_labels(n, m)
        return sums, nulls.permutation_moments(of_points, of_labels)


# --- exchanges of points, bins and blocks ---------------------------------------------------------


def _exchange_points(samples: TwoSamples, asked: Settings) -> Outcome:
    """Random bins change places, single points or whole clusters."""
    n, m = samples.n, samples.m
    if asked.groups is not None:
        layout = bins.clusters(*_read_groups(asked.groups, n, m))
    else:
        size = 1 if asked.null == "full" else bins.bin_size(n, m, asked.n_bins)
        layout = bins.random_bins(n, m, size, asked.rng)
    return _exchange(samples, asked, layout, "permutation")


def _exchange_blocks(samples: TwoSamples, asked: Settings) -> Outcome:
    """Stretches of rows that follow each other change places."""
    layout, notes = _cut_blocks(samples, asked)
    found = _exchange(samples, asked, layout, "block permutation")
    return replace(found, notes=(*notes, *found.notes))


def _weigh_blocks(samples: TwoSamples, asked: Settings) -> Outcome:
    """Stretches of rows, or clusters, get random weights."""
    notes: list[str] = []
    if asked.groups is None:
        layout, notes = _cut_blocks(samples, asked)
    elif asked.block_length is None:
        layout = bins.clusters(*_read_groups(asked.groups, samples.n, samples.m))
    else:
        raise ValueError('block_length= goes with null="block" or "wild", not groups=.')
    gram = _binned_gram(samples, asked, layout)
    found = samples.simulate(asked, Multipliers(gram, layout, asked.estimator))
    return replace(found, notes=(*notes, *found.notes))


def _cut_blocks(samples: TwoSamples, asked: Settings) -> tuple[bins.Layout, list[str]]:
    kernel = samples.kernels[0].plain
    length, notes = blocks.length_for_samples(asked.block_length, kernel, samples.X, samples.Y)
    return bins.consecutive_bins(samples.n, samples.m, length), notes


def _exchange(samples: TwoSamples, asked: Settings, layout: bins.Layout, kind: str) -> Outcome:
    source: nulls.Source
    if asked.basis is None and layout.bins > bins.MOST:
        source = StreamedExchange(
            Family(samples.kernels), samples.pooled, layout, asked.estimator, kind, asked.memory,
            asked.progress,
        )  # fmt: skip
    else:
        gram = _binned_gram(samples, asked, layout)
        source = Exchange(gram, layout, asked.estimator, kind)
    return samples.simulate(asked, source)


def _binned_gram(samples: TwoSamples, asked: Settings, layout: bins.Layout) -> bins.BinnedGram:
    """Sums between every two bins, exact or in coordinates."""
    if asked.basis is None:
        family = Family(samples.kernels)
        gram = bins.BinnedGram.of(family, samples.pooled, layout, asked.progress)
    else:
        kernel, N = samples.kernels[0], samples.n + samples.m
        weights, ones = np.full(N, 1 / N), np.ones((N, 1))
        space, _, _ = fit_space_moments(kernel, asked.basis, samples.pooled, weights, ones)
        gram = bins.BinnedGram.in_coordinates(space, samples.pooled, layout)
    return gram.centred(layout)


def _read_groups(groups: Any, n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """The groups of X's rows and of Y's."""
    if isinstance(groups, tuple) and len(groups) == 2:
        of_x, of_y = (checks.labels(part, "groups") for part in groups)
    else:
        both = checks.labels(groups, "groups")
        of_x, of_y = both[:n], both[n:]
    if of_x.shape != (n,) or of_y.shape != (m,):
        raise ValueError(
            f"groups: expected {n + m} labels, {n} for X and then {m} for Y (or a pair of arrays); "
            f"got {len(of_x) + len(of_y)}."
        )
    return of_x, of_y


# --- limits ---------------------------------------------------------------------------------------


def _mmd_gamma(samples: TwoSamples, asked: Settings) -> Outcome:
    """A gamma distribution of the moments over all permutations."""
    sums, moments = samples.permutation_moments(asked.basis)
    null = nulls.gamma_null(moments, _tie_scale(sums))
    return Outcome(max(sums.quadratic, 0.0), null)


def _mmd_spectral(samples: TwoSamples, asked: Settings) -> Outcome:
    """Draws of weighted chi-squares."""
    sums, (mean, _) = samples.permutation_moments(asked.basis)
    weights = nulls.eigenvalues(samples.kernels[0], samples.pooled, asked.basis)
    draws = nulls.weighted_chi_squares(weights, mean, asked.draws, asked.rng)
    return Outcome(max(sums.quadratic, 0.0), Draws("spectral", draws, _tie_scale(sums)))


def _tie_scale(sums: GramMoments) -> float:
    return tie_scale(float(np.mean(sums.diagonal)) / len(sums.diagonal), sums.rounding)


# --- estimates of some pairs ----------------------------------------------------------------------


def _swap_pairs(samples: TwoSamples, asked: Settings) -> Outcome:
    """Every xᵢ changes places with yᵢ, or not."""
    return samples.simulate(asked, Swaps(_terms(samples, asked)))


def _normal_limit(samples: TwoSamples, asked: Settings) -> Outcome:
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


def _terms(samples: TwoSamples, asked: Settings) -> distance.Terms:
    A = take(samples.pooled, slice(0, samples.n))
    B = take(samples.pooled, slice(samples.n, None))
    return distance.pair_terms(samples.kernels[0], A, B, asked.estimator)


ROWS = ("n_bins", "groups", "basis")
#: For the estimates over all pairs.
NULLS = {
    "permutation": NullMethod(_exchange_points, takes=ROWS),
    "full": NullMethod(_exchange_points, takes=("n_bins", "basis")),
    "block": NullMethod(
        _exchange_blocks, takes=("n_bins", "block_length", "basis"), exchangeable=False
    ),
    "wild": NullMethod(_weigh_blocks, takes=(*ROWS, "block_length"), exchangeable=False),
    "gamma": NullMethod(_mmd_gamma, estimator="V", takes=("basis",), several=False),
    "spectral": NullMethod(
        _mmd_spectral, estimator="V", takes=("basis",), several=False, stays=False
    ),
}
#: For those over some of them.
SWAP_NULLS = {
    "permutation": NullMethod(_swap_pairs, several=False, stays=False),
    "normal": NullMethod(_normal_limit, several=False, stays=False),
}
