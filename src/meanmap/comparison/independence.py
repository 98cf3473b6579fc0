"""Do two variables depend on each other?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Points, count, is_chunked
from meanmap.comparison import blocks, limits, nulls, ordering, pairings, shifts
from meanmap.comparison.candidates import Candidates, paired_weights, shared_combination
from meanmap.comparison.methods import NullMethod, Request
from meanmap.comparison.results import DEPENDENT, TestResult, product_scale, row_groups
from meanmap.comparison.running import RunningIndependenceTest, require_sums
from meanmap.comparison.sources import Outcome, Source
from meanmap.comparison.witness import Dependence
from meanmap.kernels import Kernel
from meanmap.spaces import Basis
from meanmap.statistics import dependence
from meanmap.statistics.centring import Centred
from meanmap.statistics.gates import constant_notes, one_each, read_paired_samples
from meanmap.statistics.tiles import Family

APART = "the two variables are less alike than chance allows"
WEIGHTS = 300  # eigenvalues of each variable that the limit distribution is made of
FEW_BLOCKS = 256  # below so many, whole blocks are permuted one permutation at a time
BINS = 512  # bins that are shifted, at least, where there are as many rows


@row_groups(True)
def independence_test(
    X: Any,
    Y: Any,
    kernel: Any = None,
    null: Any = "permutation",
    n_permutations: int = 999,
    rng: Any = None,
    *,
    estimator: str = "U",
    basis: Basis | tuple[Basis | None, Basis | None] | None = None,
) -> TestResult:
    """Test whether two variables are independent, by their Hilbert-Schmidt criterion.

    Parameters
    ----------
    X, Y : samples of n points each, of any kinds; row i of one goes with row i of the other
        Collections of Dask are tested in coordinates, see `RunningIndependenceTest`.
    kernel : one for both variables, or a tuple (x, y)
        Each is None, a Kernel, a callable, a list of kernels, a `Collection`, "median" or
        "collection". None is "collection" for rows of numbers: the energy kernel, a broad Gaussian,
        which sees what Pearson's correlation does, one at the median distance, whitened so that
        several directions count, and a narrow one, combined with exact level. Labels get a whitened
        delta kernel, other points their default kernel. "median" is one Gaussian at the median
        distance. The kernels of a list make one statistic likewise; `Collection` says how.
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
        –               `Groups(labels)`                  exact, for clusters of equal size
        =============== ================================= ======================================

        "permutation" puts the rows in random order and shifts Y against X, by all shifts at once;
        "full" permutes rows one permutation at a time. Progress bars, memory limits and the
        alternative are settings of these objects: `null=Permutation(alternative="less")`.
    n_permutations : int
        How many permutations, signs or draws. Shifts come in rounds of n (or of the number of
        bins); so many of those computed are used, chosen at random.
    rng : int, numpy Generator or None
    estimator : {"U", "V"}
        See `hsic`. With `basis` it is "V". "wild" needs four rows for either.
    basis : a basis, a pair of them, or None
        Compute in coordinates, in O(n r_x r_y) per permutation. One kernel per variable only.

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
    kernels = one_each(kernel, "kernel", "xy")
    if is_chunked(X, Y):
        for one in kernels:
            require_sums(null, one)
        return RunningIndependenceTest(kernel, basis).partial_fit(X, Y).result()
    checks.option(estimator, "estimator", ("U", "V"))
    table, sequential = EXACT_TABLES if basis is None else COORDINATE_TABLES
    asked = Request.read(
        table, null, n_permutations, rng, sequential=sequential, estimator=estimator, basis=basis
    )
    pairs = TwoVariables.read(X, Y, kernels, asked)
    found = asked.method.find(pairs, asked)
    alternative = asked.null.alternative
    many, best = int(np.count_nonzero(pairs.weights)), pairs.kernels_of(found.best)
    statistics = f"{many} HSICs combined ({pairs.combine})" if many > 1 else "HSIC"
    estimate = f"{asked.method.estimator or estimator} estimate"
    result = TestResult.of(
        found,
        f"Independence test by {statistics}, {estimate}",
        alternative,
        kernel=best,
        hypothesis=DEPENDENT if alternative != "less" else APART,
        sizes={"n": pairs.n},
        notes=(*pairs.ordered, *found.notes, *pairs.notes),
        explanation=Dependence((best[0].plain, best[1].plain), pairs.X, pairs.Y, pairs.plain),
    )
    ordering.warn_if_significant(pairs.ordered, result.pvalue)
    return result


@dataclass(frozen=True, eq=False)
class TwoVariables:
    """Two checked variables, with kernels that were resolved on them."""

    X: Points
    Y: Points
    kernels: tuple[list[Kernel], list[Kernel]]
    weights: np.ndarray  # of pairs of kernels, those of Y changing fastest
    combine: str
    ordered: list[str]  # what to say if the rows look ordered
    notes: list[str]
    plain: tuple[Kernel, Kernel]  # the first as given, which the effect is measured by

    @classmethod
    def read(cls, X: Any, Y: Any, kernels: tuple[Any, ...], asked: Request) -> TwoVariables:
        """The arguments of the test, checked once."""
        method = asked.method
        single = not method.several or asked.basis is not None or asked.stop is not None
        x = Candidates.of(kernels[0], X, single, "X")
        y = Candidates.of(kernels[1], Y, single, "Y")
        given = [("X", X, x.kernels[0]), ("Y", Y, y.kernels[0])]
        least = max(method.least, 4 if asked.estimator == "U" else 2)
        _, (X, Y) = read_paired_samples(given, least, method.stays and asked.basis is None)
        if "optimized" in (x.rule, y.rule):
            raise ValueError(
                'kernel="optimized" is for two samples; use "collection", "median" or a kernel.'
            )
        kx, ky = x.resolve(X, asked.rng, paired=True), y.resolve(Y, asked.rng, paired=True)
        ordered = ordering.note_on_variables([("X", X), ("Y", Y)]) if method.exchangeable else []
        notes = constant_notes(X, kx[0], "X") + constant_notes(Y, ky[0], "Y")
        combine, plain = shared_combination(x, y), (x.kernels[0], y.kernels[0])
        return cls(X, Y, (kx, ky), paired_weights(x, y), combine, ordered, notes, plain)

    @property
    def n(self) -> int:
        """How many pairs there are."""
        return count(self.X)

    def kernels_of(self, pair: int) -> tuple[Kernel, Kernel]:
        """A pair of kernels by its number."""
        kx, ky = self.kernels
        return kx[pair // len(ky)], ky[pair % len(ky)]

    def data(self, estimator: str) -> pairings.PairedPoints:
        """The points with the kernels about their means, whose numbers are small."""
        (kx, ky), X, Y = self.kernels, self.X, self.Y
        families = Family([Centred.of(k, X) for k in kx]), Family([Centred.of(k, Y) for k in ky])
        return pairings.PairedPoints(families, X, Y, estimator)

    def simulate(self, asked: Request, source: Source) -> Outcome:
        """The statistic of a source and draws of it."""
        source.weights = self.weights
        return asked.simulate(source, self.combine)

    def limit(self, basis: Any) -> limits.Limit:
        """The "V" estimate, and its mean and variance under permutations."""
        n, (kx, ky) = self.n, self.kernels_of(0)
        if basis is None:
            sums = dependence.hsic_sums(kx, ky, self.X, self.Y)
        else:
            sums = dependence.coordinate_sums(kx, ky, self.X, self.Y, basis)
        of_sums = limits.CentredMoments.of_sums
        mean, variance = limits.permutation_moments(
            of_sums(n, sums.xx, sums.rows_x, sums.diagonal_x, sums.rounding[0]),
            of_sums(n, sums.yy, sums.rows_y, sums.diagonal_y, sums.rounding[1]),
        )
        scale = product_scale(sums.sizes, sums.rounding)
        return limits.Limit(sums.estimate("V"), scale, mean / n**2, variance / n**4)

    def spectrum(self, basis: Any) -> np.ndarray:
        """The weights of the chi-squares in the limit."""
        of_x, of_y = (
            limits.eigenvalues(kernels[0], points, one)[:WEIGHTS]
            for kernels, points, one in zip(
                self.kernels, (self.X, self.Y), one_each(basis, "basis", "xy"), strict=True
            )
        )
        return np.outer(of_x, of_y).ravel()


# --- permutations ---------------------------------------------------------------------------------


def _shift_rows(pairs: TwoVariables, asked: Request) -> Outcome:
    """Rows in random order are shifted by all shifts at once."""
    n, least = pairs.n, asked.null.bins or max(BINS, asked.draws + 1)

    def rows(r: np.random.Generator) -> shifts.Rows:
        return shifts.random_rows(n, least, r)

    return pairs.simulate(asked, pairings.Shifts(pairs.data(asked.estimator), rows, asked.rng))


def _shift_groups(pairs: TwoVariables, asked: Request) -> Outcome:
    """Whole clusters of rows change places."""
    return _move_blocks(pairs, asked, *_clusters(asked.null.labels, pairs.n))


def _permute_rows(pairs: TwoVariables, asked: Request) -> Outcome:
    """Rows are permuted, one permutation at a time."""
    source = pairings.Permutations(pairs.data(asked.estimator), asked.null.memory)
    return pairs.simulate(asked, source)


def _permute_coordinates(pairs: TwoVariables, asked: Request) -> Outcome:
    """The same in coordinates."""
    kernels = pairs.kernels[0][0], pairs.kernels[1][0]
    source = pairings.CoordinatePermutations(kernels, pairs.X, pairs.Y, asked.basis)
    return pairs.simulate(asked, source)


def _shift_blocks(pairs: TwoVariables, asked: Request) -> Outcome:
    """Stretches of rows that follow each other change places."""
    length, notes = _block_length(pairs, asked)
    found = _move_blocks(pairs, asked, np.arange(pairs.n), length, "block permutation")
    return replace(found, notes=(*notes, *found.notes))


def _sign_blocks(pairs: TwoVariables, asked: Request) -> Outcome:
    """Stretches of rows get random signs."""
    length, notes = _block_length(pairs, asked)
    found = pairs.simulate(asked, pairings.SignedBlocks(pairs.data(asked.estimator), length))
    return replace(found, notes=(*notes, *found.notes))


def _block_length(pairs: TwoVariables, asked: Request) -> tuple[int, list[str]]:
    first = pairs.kernels[0][0].plain, pairs.kernels[1][0].plain
    return blocks.length_for_pairs(asked.null.length, first, pairs.X, pairs.Y)


def _move_blocks(
    pairs: TwoVariables, asked: Request, given: np.ndarray, size: int, kind: str = "permutation"
) -> Outcome:
    """Blocks of `size` rows, in the given order, change places as wholes."""
    n, (kx, ky) = pairs.n, pairs.kernels
    fits = 8 * n * n * (len(kx) + len(ky)) <= asked.null.memory

    # shifts of few blocks come in many rounds of many small pieces: one by one is faster
    def order(r: np.random.Generator) -> np.ndarray:
        moved = np.empty(n, dtype=int)
        moved[given] = given[shifts.exchanged_blocks(n, size, r)]
        return moved

    def rows(r: np.random.Generator) -> shifts.Rows:
        return shifts.consecutive_rows(n, size, r, given)

    source: Source
    if asked.stop is None and (n // size >= FEW_BLOCKS or not fits):
        source = pairings.Shifts(pairs.data(asked.estimator), rows, asked.rng)
    else:
        source = pairings.Permutations(pairs.data(asked.estimator), asked.null.memory, order)
    source.kind = kind
    return pairs.simulate(asked, source)


def _clusters(groups: Any, n: int) -> tuple[np.ndarray, int]:
    """Rows cluster by cluster, and the size of a cluster."""
    labels = checks.labels(groups, "groups")
    if labels.shape != (n,):
        raise ValueError(f"groups: expected {n} labels, one per row; got shape {labels.shape}.")
    sizes = np.unique(labels, return_counts=True)[1]
    if len(sizes) < 2 or np.ptp(sizes) > 0:
        raise ValueError(
            "groups: whole clusters change places, so there must be two or more of one size; got "
            f"{len(sizes)} with {sizes.min()} to {sizes.max()} rows."
        )
    return np.argsort(labels, kind="stable"), int(sizes[0])


NULLS = {
    "permutation": NullMethod(nulls.Permutation, _shift_rows),
    "full": NullMethod(nulls.Full, _permute_rows, stays=False),
    "block": NullMethod(nulls.Block, _shift_blocks, basis=False, exchangeable=False, stays=False),
    "wild": NullMethod(
        nulls.Wild,
        _sign_blocks,
        basis=False,
        several=False,
        exchangeable=False,
        stays=False,
        least=4,
    ),
    "groups": NullMethod(nulls.Groups, _shift_groups, basis=False, exchangeable=False),
    "gamma": NullMethod(nulls.Gamma, limits.gamma_limit, estimator="V", several=False),
    "spectral": NullMethod(
        nulls.Spectral, limits.spectral_limit, estimator="V", several=False, stays=False
    ),
}
#: Shifts are drawn all at once: what is drawn one by one permutes rows one permutation at a time.
SEQUENTIAL = {"permutation": NULLS["full"]} | {
    word: NULLS[word] for word in ("full", "block", "wild", "groups")
}
#: In coordinates there is the "V" estimate alone, and single rows are permuted.
COORDINATES = dict.fromkeys(
    ("permutation", "full"), NullMethod(nulls.Full, _permute_coordinates, estimator="V")
)
#: The nulls, and those of them that may be sequential.
EXACT_TABLES = NULLS, SEQUENTIAL
COORDINATE_TABLES = NULLS | COORDINATES, SEQUENTIAL | COORDINATES
