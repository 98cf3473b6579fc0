"""Do two samples come from one distribution?"""

from __future__ import annotations

from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Points, concatenate, count, take
from meanmap.comparison import bins, blocks, nulls, ordering
from meanmap.comparison.candidates import Candidates, optimized
from meanmap.comparison.exchanges import Exchange, Multipliers, StreamedExchange, Swaps
from meanmap.comparison.results import (
    ALTERNATIVES,
    DIFFERENT,
    Draws,
    Normal,
    Null,
    TestResult,
    describe,
    tie_scale,
)
from meanmap.comparison.running import RunningTwoSampleTest, in_sums
from meanmap.comparison.witness import Difference
from meanmap.kernels import Kernel
from meanmap.spaces import Basis
from meanmap.spaces.space import fit_space_moments
from meanmap.statistics import distance
from meanmap.statistics.centring import Centred, near_origin
from meanmap.statistics.gates import constant_notes, two_samples
from meanmap.statistics.tiles import Family, gram_moments, memory_limit
from meanmap.streams.chunks import is_chunked

NULLS = ("permutation", "full", "block", "wild", "gamma", "spectral", "normal")
ALIKE = "the two samples are more alike than chance allows"


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
        in_sums(null, ("permutation", "gamma"), kernel, alternative, (block_length, groups, n_bins))
        return RunningTwoSampleTest(kernel, basis).partial_fit(X, Y).result()
    checks.option(null, "null", NULLS)
    checks.option(alternative, "alternative", ALTERNATIVES)
    checks.option(combine, "combine", nulls.COMBINATIONS)
    checks.option(estimator, "estimator", distance.ESTIMATORS)
    nulls.one_sided(sequential, alternative)
    draws = nulls.how_many(n_permutations)
    rng = checks.random_generator(rng)
    memory = memory_limit(max_memory)
    averaged = estimator not in ("U", "V")
    if averaged and null not in ("permutation", "normal"):
        raise ValueError(
            f'estimator="{estimator}" goes with null="permutation" (or "normal"), not {null!r}.'
        )
    unused = {"block_length": block_length, "groups": groups, "n_bins": n_bins}
    if averaged:
        nulls.refuse(unused | {"basis": basis}, f'estimator="{estimator}"')
    elif null in ("normal", "gamma", "spectral"):
        nulls.refuse(unused, f'null="{null}"')
    if null == "normal" and estimator not in ("linear", "block"):
        raise ValueError(
            'null="normal" goes with estimator="linear" or "block", whose limit is normal; '
            f'estimator={estimator!r} has another. Use null="permutation".'
        )
    simple = averaged or null in ("gamma", "spectral") or basis is not None or sequential
    candidates = Candidates.of(kernel, X, simple, "X")
    exact = not averaged and basis is None and null != "spectral"
    stay = exact and candidates.rule != "optimized"
    _, X, Y = two_samples(X, Y, candidates.kernels[0], stay=stay)
    whole = null not in ("block", "wild") and groups is None
    ordered = ordering.note_on_samples([("X", X), ("Y", Y)]) if whole else []
    notes = [*ordered]
    if candidates.rule == "optimized":
        chosen, X, Y = optimized(X, Y, rng)
        candidates = Candidates((chosen,))
        notes.append("The kernel was chosen on the other half of the data.")
    n, m, pooled = count(X), count(Y), concatenate([X, Y])
    kernels = candidates.resolved(pooled, rng)
    notes += constant_notes(pooled, kernels[0], "both samples")
    # what is computed from; the points themselves are shown
    (pooled,) = near_origin(kernels, pooled)

    best = 0
    found: Null
    if averaged:
        A, B = take(pooled, slice(0, n)), take(pooled, slice(n, None))
        terms = distance.terms(kernels[0], A, B, estimator)
        statistic, found, _ = nulls.simulated(Swaps(terms), draws, rng, combine, sequential)
        if null == "normal":
            found = _normal(terms.values.reshape(terms.blocks, -1).mean(axis=1), terms.rounding)
    elif null in ("gamma", "spectral"):
        estimator = "V"
        statistic, found = _limit(null, kernels[0], pooled, (n, m), draws, basis, rng)
    else:
        length = None
        if null in ("block", "wild") and groups is None:
            kernel = kernels[0].plain
            length, said = blocks.length_for_samples(block_length, kernel, X, Y)
            notes += said
        elif block_length is not None:
            why = "groups=" if groups is not None else f"null={null!r}"
            raise ValueError(f'block_length= goes with null="block" or "wild", not {why}.')
        layout = _layout(null, n, m, n_bins, length, groups, rng)
        source = _source(null, kernels, pooled, layout, estimator, basis, memory, progress)
        source.handicaps = candidates.handicaps
        statistic, found, best = nulls.simulated(source, draws, rng, combine, sequential)
        notes += nulls.remarks(found, draws)
    statistics = f"the strongest of {len(kernels)} MMDs ({combine})" if len(kernels) > 1 else "MMD"
    pvalue = found.pvalue(statistic, alternative)
    ordering.warn_if_significant(ordered, pvalue)
    return TestResult(
        statistic=statistic,
        pvalue=pvalue,
        null=found,
        kernel=kernels[best],
        method=f"Two-sample test by {statistics}, {estimator} estimate, {describe(found)}",
        hypothesis=DIFFERENT if alternative != "less" else ALIKE,
        sizes={"n": n, "m": m},
        notes=tuple(notes),
        explanation=Difference(kernels[best].plain, X, Y),
    )


def _layout(
    null: str,
    n: int,
    m: int,
    n_bins: int | None,
    length: int | None,
    groups: Any,
    rng: np.random.Generator,
) -> bins.Layout:
    """Which points are exchanged together."""
    if groups is not None:
        if null not in ("permutation", "wild"):
            raise ValueError(f'groups= goes with null="permutation" or "wild", not {null!r}.')
        return bins.clusters(*_groups(groups, n, m))
    if length is not None:
        return bins.consecutive_bins(n, m, length)
    if n_bins is not None:
        checks.whole(n_bins, "n_bins", 2, "Each sample needs a bin; 512 are plenty.")
    size = 1 if null == "full" else bins.bin_size(n, m, n_bins)
    return bins.random_bins(n, m, size, rng)


def _groups(groups: Any, n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
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


def _source(
    null: str,
    kernels: list[Kernel],
    pooled: Points,
    layout: bins.Layout,
    estimator: str,
    basis: Basis | None,
    memory: int,
    progress: bool,
) -> nulls.Source:
    """Where the permuted statistics come from."""
    family = Family(kernels)
    kind = "block permutation" if null == "block" else "permutation"
    if basis is not None:
        n = count(pooled)
        weights, ones = np.full(n, 1 / n), np.ones((n, 1))
        space, _, _ = fit_space_moments(kernels[0], basis, pooled, weights, ones)
        gram = bins.BinnedGram.in_coordinates(space, pooled, layout).centred(layout)
    elif layout.bins > bins.MOST and null != "wild":
        return StreamedExchange(family, pooled, layout, estimator, kind, memory, progress)
    else:
        gram = bins.BinnedGram.of(family, pooled, layout, progress).centred(layout)
    if null == "wild":
        return Multipliers(gram, layout, estimator)
    return Exchange(gram, layout, estimator, kind)


def _normal(values: np.ndarray, rounding: float) -> Normal:
    """The normal limit of a mean of independent values, each exact to `rounding`."""
    if len(values) < 2:
        raise ValueError(
            'null="normal": there is a single term here and so no spread to judge it by; it needs '
            'more points. Use null="permutation".'
        )
    variance = float(np.var(values, ddof=1))
    return Normal("normal", 0.0, variance / len(values) if variance > rounding**2 else 0.0)


def _limit(
    null: str,
    kernel: Kernel,
    pooled: Points,
    sizes: tuple[int, int],
    draws: int,
    basis: Basis | None,
    rng: np.random.Generator,
) -> tuple[float, Null]:
    """The V estimate and an approximate null: a gamma distribution, or weighted chi-squares."""
    n, m = sizes
    N = n + m
    a = np.repeat([1 / n, -1 / m], [n, m])
    sums = gram_moments(Centred.of(kernel, pooled) if basis is None else kernel, pooled, a, basis)
    mean, variance = nulls.permutation_moments(
        nulls.CentredMoments.of_sums(N, sums.squares, sums.rows, sums.diagonal, sums.rounding),
        nulls.CentredMoments.of_labels(n, m),
    )
    scale = tie_scale(float(np.mean(sums.diagonal)) / N, sums.rounding)
    statistic = max(sums.quadratic, 0.0)
    if null == "gamma":
        return statistic, nulls.gamma_null((mean, variance), scale)
    weights = nulls.eigenvalues(kernel, pooled, basis)
    return statistic, Draws(
        "spectral", nulls.weighted_chi_squares(weights, mean, draws, rng), scale
    )
