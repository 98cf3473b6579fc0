"""Do two variables depend on each other?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Points, count, is_chunked
from meanmap.comparison import blocks, nulls, ordering, shifts
from meanmap.comparison.candidates import Candidates, paired_handicaps
from meanmap.comparison.nulls import NullMethod, Outcome, Settings
from meanmap.comparison.pairings import CoordinatePermutations, Permutations, Shifts, Signs
from meanmap.comparison.results import (
    DEPENDENT,
    Draws,
    TestResult,
    describe_null,
    product_scale,
    row_groups,
)
from meanmap.comparison.running import RunningIndependenceTest, require_sums
from meanmap.comparison.witness import Dependence
from meanmap.kernels import Kernel
from meanmap.spaces import Basis
from meanmap.statistics import dependence
from meanmap.statistics.centring import Centred
from meanmap.statistics.gates import constant_notes, read_paired_samples
from meanmap.statistics.tiles import Family

APART = "the two variables are less alike than chance allows"
WEIGHTS = 300  # eigenvalues of each variable that the limit distribution is made of
FEW_BLOCKS = 256  # below so many, whole blocks are permuted one permutation at a time
BINS = 512  # bins that are shifted, at least, where there are as many rows


@row_groups(True)
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
            require_sums(null, kernel, alternative, (block_length, groups, n_bins))
        return RunningIndependenceTest(kernel_x, kernel_y, basis).partial_fit(X, Y).result()
    asked = Settings.read(
        NULLS, ("U", "V"), null=null, n_permutations=n_permutations, rng=rng, estimator=estimator,
        combine=combine, n_bins=n_bins, block_length=block_length, groups=groups, basis=basis,
        alternative=alternative, sequential=sequential, max_memory=max_memory, progress=progress,
    )  # fmt: skip
    asked, method = _method_for_pairs(asked)
    pairs = TwoVariables.read(X, Y, (kernel_x, kernel_y), asked, method)
    found = method.find(pairs, asked)
    pvalue = found.null.pvalue(found.statistic, alternative)
    ordering.warn_if_significant(pairs.ordered, pvalue)
    many, best = int(np.isfinite(pairs.handicaps).sum()), pairs.kernels_of(found.best)
    statistics = f"the strongest of {many} HSICs ({combine})" if many > 1 else "HSIC"
    estimate = f"{method.estimator or estimator} estimate"
    return TestResult(
        statistic=found.statistic,
        pvalue=pvalue,
        null=found.null,
        kernel=best,
        method=f"Independence test by {statistics}, {estimate}, {describe_null(found.null)}",
        hypothesis=DEPENDENT if alternative != "less" else APART,
        sizes={"n": pairs.n},
        notes=(*pairs.ordered, *found.notes, *pairs.notes),
        explanation=Dependence((best[0].plain, best[1].plain), pairs.X, pairs.Y),
    )


def _method_for_pairs(asked: Settings) -> tuple[Settings, NullMethod]:
    """The null that was asked for; what draws one by one permutes rows one permutation at a time.

    In coordinates there is the "V" estimate alone, and single rows are permuted.
    """
    if asked.null == "permutation" and asked.sequential and asked.groups is None:
        asked = replace(asked, null="full")
    method = nulls.choose_method(asked, NULLS)
    if asked.basis is not None and method.estimator is None:
        nulls.refuse({"groups": asked.groups, "n_bins": asked.n_bins}, "basis=")
        method = replace(method, find=_permute_coordinates, estimator="V")
    return asked, method


@dataclass(frozen=True, eq=False)
class TwoVariables:
    """Two checked variables, with kernels that were resolved on them."""

    X: Points
    Y: Points
    kernels: tuple[list[Kernel], list[Kernel]]
    handicaps: np.ndarray  # of pairs of kernels, those of Y changing fastest
    ordered: list[str]  # what to say if the rows look ordered
    notes: list[str]

    @classmethod
    def read(
        cls, X: Any, Y: Any, kernels: tuple[Any, Any], asked: Settings, method: NullMethod
    ) -> TwoVariables:
        """The arguments of the test, checked once."""
        single = not method.several or asked.basis is not None or asked.sequential
        x = Candidates.of(kernels[0], X, single, "X")
        y = Candidates.of(kernels[1], Y, single, "Y")
        given = [("X", X, x.kernels[0]), ("Y", Y, y.kernels[0])]
        least = 4 if asked.estimator == "U" or asked.null == "wild" else 2
        _, (X, Y) = read_paired_samples(given, least, method.stays and asked.basis is None)
        for one, name in ((x, "kernel_x"), (y, "kernel_y")):
            if one.rule == "optimized":
                raise ValueError(
                    f'{name}="optimized" is for two samples; use "collection", "median" or a '
                    "kernel."
                )
        kx, ky = x.resolve(X, asked.rng, paired=True), y.resolve(Y, asked.rng, paired=True)
        exchangeable = method.exchangeable and asked.groups is None
        ordered = ordering.note_on_variables([("X", X), ("Y", Y)]) if exchangeable else []
        notes = constant_notes(X, kx[0], "X") + constant_notes(Y, ky[0], "Y")
        return cls(X, Y, (kx, ky), paired_handicaps(x, y), ordered, notes)

    @property
    def n(self) -> int:
        """How many pairs there are."""
        return count(self.X)

    def kernels_of(self, pair: int) -> tuple[Kernel, Kernel]:
        """A pair of kernels by its number."""
        kx, ky = self.kernels
        return kx[pair // len(ky)], ky[pair % len(ky)]

    def families(self) -> tuple[Family, Family]:
        """The kernels about their means, whose numbers are small."""
        (kx, ky), X, Y = self.kernels, self.X, self.Y
        return Family([Centred.of(k, X) for k in kx]), Family([Centred.of(k, Y) for k in ky])

    def simulate(self, asked: Settings, source: nulls.Source) -> Outcome:
        """The statistic of a source and draws of it."""
        source.handicaps, source.progress = self.handicaps, asked.progress
        return nulls.simulate(source, asked.draws, asked.rng, asked.combine, asked.sequential)

    def permutation_moments(self, basis: Any) -> tuple[dependence.HsicSums, tuple[float, float]]:
        """What the "V" estimate is made of, and its mean and variance under permutations."""
        n, (kx, ky) = self.n, self.kernels_of(0)
        if basis is None:
            sums = dependence.hsic_sums(kx, ky, self.X, self.Y)
        else:
            sums = dependence.coordinate_sums(kx, ky, self.X, self.Y, basis)
        of_sums = nulls.CentredMoments.of_sums
        mean, variance = nulls.permutation_moments(
            of_sums(n, sums.xx, sums.rows_x, sums.diagonal_x, sums.rounding[0]),
            of_sums(n, sums.yy, sums.rows_y, sums.diagonal_y, sums.rounding[1]),
        )
        return sums, (mean / n**2, variance / n**4)


# --- permutations ---------------------------------------------------------------------------------


def _shift_rows(pairs: TwoVariables, asked: Settings) -> Outcome:
    """Rows in random order, or whole clusters, are shifted by all shifts at once."""
    n = pairs.n
    if asked.groups is not None:
        order, size = _clusters(asked.groups, n)
        return _move_blocks(pairs, asked, order, size)
    least = asked.n_bins or max(BINS, asked.draws + 1)

    def rows(r: np.random.Generator) -> shifts.Rows:
        return shifts.random_rows(n, least, r)

    return pairs.simulate(asked, Shifts(*_parts(pairs, asked), rows, asked.rng))


def _permute_rows(pairs: TwoVariables, asked: Settings) -> Outcome:
    """Rows are permuted, one permutation at a time."""
    return pairs.simulate(asked, Permutations(*_parts(pairs, asked), asked.memory))


def _permute_coordinates(pairs: TwoVariables, asked: Settings) -> Outcome:
    """The same in coordinates."""
    kernels = pairs.kernels[0][0], pairs.kernels[1][0]
    source = CoordinatePermutations(kernels, pairs.X, pairs.Y, asked.basis)
    return pairs.simulate(asked, source)


def _shift_blocks(pairs: TwoVariables, asked: Settings) -> Outcome:
    """Stretches of rows that follow each other change places."""
    length, notes = _block_length(pairs, asked)
    found = _move_blocks(pairs, asked, np.arange(pairs.n), length, "block permutation")
    return replace(found, notes=(*notes, *found.notes))


def _sign_blocks(pairs: TwoVariables, asked: Settings) -> Outcome:
    """Stretches of rows get random signs."""
    length, notes = _block_length(pairs, asked)
    found = pairs.simulate(asked, Signs(*_parts(pairs, asked), length))
    return replace(found, notes=(*notes, *found.notes))


def _parts(
    pairs: TwoVariables, asked: Settings
) -> tuple[tuple[Family, Family], Points, Points, str]:
    return pairs.families(), pairs.X, pairs.Y, asked.estimator


def _block_length(pairs: TwoVariables, asked: Settings) -> tuple[int, list[str]]:
    first = pairs.kernels[0][0].plain, pairs.kernels[1][0].plain
    return blocks.length_for_pairs(asked.block_length, first, pairs.X, pairs.Y)


def _move_blocks(
    pairs: TwoVariables, asked: Settings, given: np.ndarray, size: int, kind: str = "permutation"
) -> Outcome:
    """Blocks of `size` rows, in the given order, change places as wholes."""
    n, (kx, ky) = pairs.n, pairs.kernels
    fits = 8 * n * n * (len(kx) + len(ky)) <= asked.memory

    # shifts of few blocks come in many rounds of many small pieces: one by one is faster
    def order(r: np.random.Generator) -> np.ndarray:
        moved = np.empty(n, dtype=int)
        moved[given] = given[shifts.exchanged_blocks(n, size, r)]
        return moved

    def rows(r: np.random.Generator) -> shifts.Rows:
        return shifts.consecutive_rows(n, size, r, given)

    source: nulls.Source
    if not asked.sequential and (n // size >= FEW_BLOCKS or not fits):
        source = Shifts(*_parts(pairs, asked), rows, asked.rng)
    else:
        source = Permutations(*_parts(pairs, asked), asked.memory, order)
    source.kind = kind
    return pairs.simulate(asked, source)


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


# --- limits ---------------------------------------------------------------------------------------


def _hsic_gamma(pairs: TwoVariables, asked: Settings) -> Outcome:
    """A gamma distribution of the moments over all permutations."""
    sums, moments = pairs.permutation_moments(asked.basis)
    null = nulls.gamma_null(moments, product_scale(sums.sizes, sums.rounding))
    return Outcome(max(sums.estimate("V"), 0.0), null)


def _hsic_spectral(pairs: TwoVariables, asked: Settings) -> Outcome:
    """Draws of weighted chi-squares."""
    sums, (mean, _) = pairs.permutation_moments(asked.basis)
    bases = dependence.basis_pair(asked.basis)
    of_x, of_y = (
        nulls.eigenvalues(kernels[0], points, basis)[:WEIGHTS]
        for kernels, points, basis in zip(pairs.kernels, (pairs.X, pairs.Y), bases, strict=True)
    )
    weights = np.outer(of_x, of_y).ravel()
    draws = nulls.weighted_chi_squares(weights, mean, asked.draws, asked.rng)
    scale = product_scale(sums.sizes, sums.rounding)
    return Outcome(max(sums.estimate("V"), 0.0), Draws("spectral", draws, scale))


BLOCKS = ("n_bins", "block_length")
NULLS = {
    "permutation": NullMethod(_shift_rows, takes=("n_bins", "groups", "basis")),
    "full": NullMethod(_permute_rows, takes=("n_bins", "basis"), stays=False),
    "block": NullMethod(_shift_blocks, takes=BLOCKS, exchangeable=False, stays=False),
    "wild": NullMethod(_sign_blocks, takes=BLOCKS, several=False, exchangeable=False, stays=False),
    "gamma": NullMethod(_hsic_gamma, estimator="V", takes=("basis",), several=False),
    "spectral": NullMethod(
        _hsic_spectral, estimator="V", takes=("basis",), several=False, stays=False
    ),
}
