"""Do two variables depend on each other?"""

from __future__ import annotations

from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Points, count
from meanmap.comparison import blocks, nulls, ordering, shifts
from meanmap.comparison.candidates import Candidates, paired_handicaps
from meanmap.comparison.pairings import Coordinates, Permutations, Shifts, Signs
from meanmap.comparison.results import (
    ALTERNATIVES,
    DEPENDENT,
    Draws,
    Null,
    TestResult,
    describe,
    product_scale,
)
from meanmap.comparison.running import RunningIndependenceTest, in_sums
from meanmap.comparison.witness import Dependence
from meanmap.kernels import Kernel
from meanmap.spaces import Basis
from meanmap.statistics import dependence
from meanmap.statistics.centring import Centred
from meanmap.statistics.gates import constant_notes, paired_samples
from meanmap.statistics.tiles import Family, memory_limit
from meanmap.streams.chunks import is_chunked

NULLS = ("permutation", "full", "block", "wild", "gamma", "spectral")
APART = "the two variables are less alike than chance allows"
WEIGHTS = 300  # eigenvalues of each variable that the limit distribution is made of
FEW_BLOCKS = 256  # below so many, whole blocks are permuted one permutation at a time
BINS = 512  # bins that are shifted, at least, where there are as many rows


def independence_test(
    X: Any,
    Y: Any,
    kernel_x: Any = None,
    kernel_y: Any = None,
    null: str = "permutation",
    n_permutations: int = 999,
    rng: Any = None,
    *,
    estimator: str = "U",
    combine: str = "max",
    n_bins: int | None = None,
    block_length: int | str | None = None,
    groups: Any = None,
    basis: Basis | tuple[Basis | None, Basis | None] | None = None,
    alternative: str = "greater",
    sequential: bool = False,
    max_memory: Any = None,
    progress: bool = False,
) -> TestResult:
    """Test whether two variables are independent, by their Hilbert-Schmidt criterion.

    Parameters
    ----------
    X, Y : samples of n points each, of any kinds; row i of one goes with row i of the other
        Collections of Dask are tested in coordinates, see `RunningIndependenceTest`.
    kernel_x, kernel_y : None, Kernel, callable, list of Kernel, "median" or "collection"
        None is "collection" for rows of numbers: the energy kernel, a Gaussian at the median
        distance, whitened so that several directions count, and a narrow one, in pairs for the two
        variables, combined with exact level. Labels get a whitened delta kernel, other points their
        default kernel. "median" is one Gaussian at the median distance. Lists are combined too.
    null : {"permutation", "full", "block", "wild", "gamma", "spectral"}
        "permutation" puts the rows in random order and shifts Y against X, by all shifts at once;
        "full" permutes rows at random, one permutation at a time: both are exact. "block" does the
        former with stretches of `block_length` rows and "wild" gives stretches random signs, for
        time series. "gamma" fits the first two moments over all permutations and "spectral" draws
        from the limit distribution: both approximate, and of the "V" estimate.
    n_permutations : int
        How many permutations, signs or draws. Shifts come in rounds of n (or of the number of
        bins); of those that are computed so many are used, chosen at random.
    rng : int, numpy Generator or None
    estimator : {"U", "V"}
        See `hsic`. With `basis` it is "V". "wild" needs four rows for either.
    combine : {"max", "fuse", "min-p"}
        How several kernels make one statistic: the largest in standard deviations of its own
        permutations, a soft maximum, or the least p-value of HSICAgg.
    n_bins : int or None
        Bins of rows that are shifted with null="permutation"; n_permutations + 1 by default, at
        least 512, or n if there are fewer rows.
    block_length : int, "auto" or None
        Rows that belong together, for "block" and "wild", where None is "auto": chosen from the
        memory of the series, with a warning if they are short for it.
    groups : labels of shape (n,)
        Clusters of one size each: whole clusters of Y change places (with null="permutation").
    basis : a basis, a pair of them, or None
        Compute in coordinates, in O(n r_x r_y) a permutation. One kernel a variable only.
    alternative : {"greater", "less", "two-sided"}
        "greater": dependence. "less": less than chance allows.
    sequential : bool
        Stop once 20 permuted statistics have reached the observed one (Besag and Clifford 1991).
        Rows (or whole blocks) are then permuted one permutation at a time. One kernel a variable
        only.
    max_memory : int, str like "500MB", or None
        Up to which "full" keeps the two Gram matrices; a quarter of the free memory by default.
    progress : bool
        Show a progress bar.

    Returns
    -------
    TestResult
        Unpacks to statistic, pvalue; `.witness(x, y)` says where the variables go together,
        `.plot()` draws. If the rows of both look ordered, as those of time series do, and the null
        takes them for exchangeable, there is a note, and a warning if p ≤ 0.05.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import independence_test
    >>> rng = np.random.default_rng(0)
    >>> angle = rng.uniform(0, 2 * np.pi, size=(200, 1))
    >>> X = np.cos(angle) + 0.2 * rng.normal(size=(200, 1))
    >>> Y = np.sin(angle) + 0.2 * rng.normal(size=(200, 1))  # uncorrelated, and dependent
    >>> independence_test(X, Y, rng=0).pvalue
    0.001
    >>> independence_test(X, rng.permutation(Y), rng=0).pvalue > 0.05
    True
    """
    if is_chunked(X, Y):
        for kernel in (kernel_x, kernel_y):
            others = block_length, groups, n_bins
            in_sums(null, ("permutation", "gamma"), kernel, alternative, others)
        return RunningIndependenceTest(kernel_x, kernel_y, basis).partial_fit(X, Y).result()
    checks.option(null, "null", NULLS)
    checks.option(alternative, "alternative", ALTERNATIVES)
    checks.option(combine, "combine", nulls.COMBINATIONS)
    checks.option(estimator, "estimator", ("U", "V"))
    nulls.one_sided(sequential, alternative)
    draws = nulls.how_many(n_permutations)
    rng = checks.random_generator(rng)
    memory = memory_limit(max_memory)
    if null in ("gamma", "spectral"):
        unused = {"block_length": block_length, "groups": groups, "n_bins": n_bins}
        nulls.refuse(unused, f'null="{null}"')
    elif basis is not None:
        nulls.refuse({"groups": groups, "n_bins": n_bins}, "basis=")
    null = "full" if sequential and null == "permutation" and groups is None else null
    simple = null in ("gamma", "spectral", "wild") or basis is not None or sequential
    candidates = [
        Candidates.of(kernel, points, simple, name)
        for kernel, points, name in ((kernel_x, X, "X"), (kernel_y, Y, "Y"))
    ]
    given = [("X", X, candidates[0].kernels[0]), ("Y", Y, candidates[1].kernels[0])]
    stay = basis is None and null in ("permutation", "gamma")
    least = 4 if estimator == "U" or null == "wild" else 2
    _, (X, Y) = paired_samples(given, least, stay)
    for one, name in zip(candidates, ("kernel_x", "kernel_y"), strict=True):
        if one.rule == "optimized":
            raise ValueError(
                f'{name}="optimized" is for two samples; use "collection", "median" or a kernel.'
            )
    n = count(X)
    kernels_x, kernels_y = (
        one.resolved(points, rng, paired=True)
        for one, points in zip(candidates, (X, Y), strict=True)
    )

    best = 0
    whole = null not in ("block", "wild") and groups is None
    ordered = ordering.note_on_variables([("X", X), ("Y", Y)]) if whole else []
    notes = [*ordered]
    found: Null
    if null in ("gamma", "spectral"):
        estimator = "V"
        statistic, found = _limit(null, kernels_x[0], kernels_y[0], X, Y, draws, basis, rng)
    else:
        families = _family(kernels_x, X, basis), _family(kernels_y, Y, basis)
        estimator = "V" if basis is not None else estimator
        length = None
        if null in ("block", "wild"):
            first = kernels_x[0].plain, kernels_y[0].plain
            length, said = blocks.length_for_pairs(block_length, first, X, Y)
            notes += said
        elif block_length is not None:
            raise ValueError(f'block_length= goes with null="block" or "wild", not {null!r}.')
        source = _source(
            null, families, X, Y, estimator, basis, n_bins, length, groups, draws, memory,
            rng, sequential,
        )  # fmt: skip
        source.handicaps = paired_handicaps(*candidates)
        source.progress = progress
        source.kind = "block permutation" if null == "block" else source.kind
        statistic, found, best = nulls.simulated(source, draws, rng, combine, sequential)
        notes += nulls.remarks(found, draws)
    notes += constant_notes(X, kernels_x[0], "X") + constant_notes(Y, kernels_y[0], "Y")
    many = int(np.isfinite(paired_handicaps(*candidates)).sum())
    statistics = f"the strongest of {many} HSICs ({combine})" if many > 1 else "HSIC"
    chosen = kernels_x[best // len(kernels_y)], kernels_y[best % len(kernels_y)]
    pvalue = found.pvalue(statistic, alternative)
    ordering.warn_if_significant(ordered, pvalue)
    return TestResult(
        statistic=statistic,
        pvalue=pvalue,
        null=found,
        kernel=chosen,
        method=f"Independence test by {statistics}, {estimator} estimate, {describe(found)}",
        hypothesis=DEPENDENT if alternative != "less" else APART,
        sizes={"n": n},
        notes=tuple(notes),
        explanation=Dependence((chosen[0].plain, chosen[1].plain), X, Y),
    )


def _family(kernels: list[Kernel], points: Points, basis: Any) -> Family:
    """Kernels of small numbers; coordinates, where there is a basis, are centred themselves."""
    return Family(kernels if basis is not None else [Centred.of(k, points) for k in kernels])


def _source(
    null: str,
    families: tuple[Family, Family],
    X: Points,
    Y: Points,
    estimator: str,
    basis: Any,
    n_bins: int | None,
    length: int | None,
    groups: Any,
    draws: int,
    memory: int,
    rng: np.random.Generator,
    sequential: bool,
) -> nulls.Source:
    """Where the permuted statistics come from."""
    n = count(X)
    if groups is not None and null != "permutation":
        raise ValueError(f'groups= goes with null="permutation", not {null!r}.')
    if basis is not None:
        if null not in ("permutation", "full"):
            raise ValueError(f'basis= goes with permutations and limits, not null="{null}".')
        return Coordinates(families, X, Y, basis)
    if null == "full":
        return Permutations(families, X, Y, estimator, memory)
    if null == "wild":
        assert length is not None
        return Signs(families, X, Y, estimator, length)
    if length is not None or groups is not None:
        order, size = (np.arange(n), length) if length is not None else _clusters(groups, n)
        return _whole_blocks(families, X, Y, estimator, order, size, memory, rng, sequential)
    if n_bins is not None:
        checks.whole(n_bins, "n_bins", 2, "512 or more give small p-values.")
    least = n_bins or max(BINS, draws + 1)
    return Shifts(families, X, Y, estimator, lambda r: shifts.random_rows(n, least, r), rng)


def _whole_blocks(
    families: tuple[Family, Family],
    X: Points,
    Y: Points,
    estimator: str,
    given: np.ndarray,
    size: int,
    memory: int,
    rng: np.random.Generator,
    one_by_one: bool,
) -> nulls.Source:
    """Blocks of `size` rows, in the given order, that change places as wholes."""
    n = len(given)
    fits = 8 * n * n * (len(families[0]) + len(families[1])) <= memory
    if not one_by_one and (n // size >= FEW_BLOCKS or not fits):
        return Shifts(
            families, X, Y, estimator, lambda r: shifts.consecutive_rows(n, size, r, given), rng
        )

    # shifts of few blocks come in many rounds of many small pieces: one by one is faster
    def order(r: np.random.Generator) -> np.ndarray:
        moved = np.empty(n, dtype=int)
        moved[given] = given[shifts.exchanged_blocks(n, size, r)]
        return moved

    return Permutations(families, X, Y, estimator, memory, order)


def _clusters(groups: Any, n: int) -> tuple[np.ndarray, int]:
    """Rows cluster by cluster, and the size of a cluster."""
    labels = checks.labels(groups, "groups")
    if labels.shape != (n,):
        raise ValueError(f"groups: expected {n} labels, one a row; got shape {labels.shape}.")
    sizes = np.unique(labels, return_counts=True)[1]
    if len(sizes) < 2 or np.ptp(sizes) > 0:
        raise ValueError(
            "groups: whole clusters change places, so there must be two or more of one size; got "
            f"{len(sizes)} with {sizes.min()} to {sizes.max()} rows."
        )
    return np.argsort(labels, kind="stable"), int(sizes[0])


def _limit(
    null: str,
    kx: Kernel,
    ky: Kernel,
    X: Points,
    Y: Points,
    draws: int,
    basis: Any,
    rng: np.random.Generator,
) -> tuple[float, Null]:
    """The V estimate and an approximate null: a gamma distribution, or weighted chi-squares."""
    n = count(X)
    if basis is None:
        sums = dependence.hsic_sums(kx, ky, X, Y)
    else:
        sums = dependence.coordinate_sums(kx, ky, X, Y, basis)
    mean, variance = nulls.permutation_moments(
        nulls.CentredMoments.of_sums(n, sums.xx, sums.rows_x, sums.diagonal_x, sums.rounding[0]),
        nulls.CentredMoments.of_sums(n, sums.yy, sums.rows_y, sums.diagonal_y, sums.rounding[1]),
    )
    mean, variance = mean / n**2, variance / n**4
    scale = product_scale(sums.sizes, sums.rounding)
    statistic = max(sums.estimate("V"), 0.0)
    if null == "gamma":
        return statistic, nulls.gamma_null((mean, variance), scale)
    bases = dependence.both(basis)
    weights = np.outer(
        nulls.eigenvalues(kx, X, bases[0])[:WEIGHTS],
        nulls.eigenvalues(ky, Y, bases[1])[:WEIGHTS],
    ).ravel()
    return statistic, Draws(
        "spectral", nulls.weighted_chi_squares(weights, mean, draws, rng), scale
    )
