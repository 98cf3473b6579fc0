"""Tests of streams: sums in coordinates are all that is kept of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from meanmap import checks
from meanmap.arrays import Points, concatenate, count, spans, take, to_numpy
from meanmap.chunks import SAMPLE, Chunks, is_chunked
from meanmap.comparison import nulls
from meanmap.comparison.results import DEPENDENT, DIFFERENT, TestResult, describe
from meanmap.kernels import Kernel, as_kernel
from meanmap.pairs import placed
from meanmap.spaces import Basis, PivotedCholesky, Space
from meanmap.statistics.gates import enough
from meanmap.statistics.tiles import on_host
from meanmap.sums import BLOCK, require_same_space

RANK = 500  # coordinates at most, where no basis is given
NOTE = "Permutations of all rows are approximated by the first two moments of the statistic."


@dataclass(frozen=True)
class Moments:
    """Sums over rows of powers of ψ, of which the moments of a permuted statistic are made."""

    n: int
    first: np.ndarray  # Σ ψ
    second: np.ndarray  # Σ ψψᵀ
    third: np.ndarray  # Σ ‖ψ‖²ψ
    fourth: float  # Σ ‖ψ‖⁴

    @classmethod
    def of(cls, psi: np.ndarray) -> Moments:
        """Of rows of coordinates."""
        sizes = np.einsum("ij,ij->i", psi, psi)
        return cls(len(psi), psi.sum(axis=0), psi.T @ psi, sizes @ psi, float(sizes @ sizes))

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            self.n + other.n,
            self.first + other.first,
            self.second + other.second,
            self.third + other.third,
            self.fourth + other.fourth,
        )

    @property
    def mean(self) -> np.ndarray:
        """The embedding."""
        return self.first / self.n

    @property
    def covariance(self) -> np.ndarray:
        """Σ (ψ - μ)(ψ - μ)ᵀ."""
        return self.second - np.outer(self.first, self.mean)

    def centred(self) -> nulls.CentredMoments:
        """Those of the centred Gram matrix in coordinates."""
        C, mu = self.covariance, self.mean
        trace, whole = float(np.trace(C)), float(np.trace(self.second))
        if trace <= nulls.TIE * whole:
            return nulls.CentredMoments(self.n, 0.0, 0.0, 0.0)
        size = float(mu @ mu)
        # Σ (‖ψ‖² - 2ψ·μ + ‖μ‖²)², multiplied out
        diagonal = self.fourth - 4 * float(self.third @ mu) + 2 * size * whole
        diagonal += 4 * float(mu @ self.second @ mu) - 3 * self.n * size**2
        return nulls.CentredMoments(self.n, trace, float(np.sum(C * C)), diagonal)


@dataclass(frozen=True)
class Paired:
    """The moments of two variables, and Σ ψ_X ψ_Yᵀ."""

    x: Moments
    y: Moments
    cross: np.ndarray

    def __add__(self, other: Paired) -> Paired:
        return Paired(self.x + other.x, self.y + other.y, self.cross + other.cross)


def moments_over(space: Space, points: Points) -> Moments:
    """The moments of a batch, a block at a time."""
    blocks = spans(count(points), BLOCK)
    parts = [Moments.of(to_numpy(space._transform(take(points, block)))) for block in blocks]
    return sum(parts[1:], parts[0])


def paired_over(space_x: Space, space_y: Space, X: Points, Y: Points) -> Paired:
    """The same of pairs."""
    parts = []
    for block in spans(count(X), BLOCK):
        psi = to_numpy(space_x._transform(take(X, block)))
        phi = to_numpy(space_y._transform(take(Y, block)))
        parts.append(Paired(Moments.of(psi), Moments.of(phi), psi.T @ phi))
    return sum(parts[1:], parts[0])


def _of_chunk(number: int, rows: tuple[Any, ...], space: Space) -> Moments:
    return moments_over(space, on_host(space.kernel_.check(rows[0], "rows", space._sample)))


def _of_paired_chunk(number: int, rows: tuple[Any, ...], spaces: tuple[Space, Space]) -> Paired:
    X, Y = (
        on_host(space.kernel_.check(part, name, space._sample))
        for space, part, name in zip(spaces, rows, ("X", "Y"), strict=True)
    )
    checks.same_length([("X", X), ("Y", Y)])
    return paired_over(*spaces, X, Y)


def in_sums(
    null: str, known: tuple[str, ...], kernel: Any, alternative: str, unused: tuple[Any, ...]
) -> None:
    """Refuse what a test of rows that are not in memory cannot do."""
    many = isinstance(kernel, str | list)
    if null not in known or many or alternative != "greater" or any(v is not None for v in unused):
        raise ValueError(
            "rows in chunks are tested by sums over them: one kernel, alternative='greater', and "
            "the moments over all permutations. Leave the other settings out, or call .compute() "
            "on a sample of the rows."
        )


def fitted(kernel: Kernel, basis: Any, points: Points) -> Space:
    """Coordinates fitted to a sample, or those that were given, of the same kernel."""
    basis = basis if basis is not None else PivotedCholesky(1e-6, max_rank=RANK)
    return placed(kernel, basis, points, np.full(count(points), 1 / count(points)))[0]


class RunningTwoSampleTest(BaseEstimator):
    """A two-sample test of streams: do the rows of X and of Y come from one distribution?

    MMD in coordinates that the first batches fix, against a gamma distribution with the mean and
    the variance that it has over all permutations (approximate, for the "V" estimate). Rows come in
    batches, in collections of Dask, or both, and are not kept.

    Parameters
    ----------
    kernel : Kernel, callable or None
    basis : a basis, a fitted Space, or None
        To merge two streams give both the same fitted Space.

    Attributes
    ----------
    space_ : the coordinates
    sizes_ : rows of X and of Y so far

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.comparison import RunningTwoSampleTest
    >>> rng = np.random.default_rng(0)
    >>> stream = RunningTwoSampleTest()
    >>> for _ in range(10):
    ...     X, Y = rng.normal(size=(500, 2)), rng.normal(0.1, 1, size=(400, 2))
    ...     stream = stream.partial_fit(X, Y)
    >>> stream.sizes_
    (5000, 4000)
    >>> stream.result().pvalue < 0.001
    True
    """

    space_: Space
    _sums: tuple[Moments, Moments]

    def __init__(self, kernel: Any = None, basis: Basis | Space | None = None) -> None:
        self.kernel = kernel
        self.basis = basis

    def fit(self, X: Any, Y: Any) -> Self:
        """Start anew with these rows."""
        self.space_, self._sums = self._begun(X, Y)
        return self

    def partial_fit(self, X: Any = None, Y: Any = None) -> Self:
        """Add rows to either sample, or to both; the first time there must be some of both."""
        if not hasattr(self, "space_"):
            if X is None or Y is None:
                raise ValueError("the first batch needs rows of X and of Y, to fit a space to.")
            return self.fit(X, Y)
        new = [None if part is None else self._read(self.space_, part) for part in (X, Y)]
        x, y = self._sums
        self._sums = x if new[0] is None else x + new[0], y if new[1] is None else y + new[1]
        return self

    def _begun(self, X: Any, Y: Any) -> tuple[Space, tuple[Moments, Moments]]:
        rows = [Chunks.of(rows=v).sample(SAMPLE // 2)[0] if is_chunked(v) else v for v in (X, Y)]
        kernel = self._given(rows[0])
        first = on_host(kernel.check(rows[0], "X"))
        pooled = concatenate([first, on_host(kernel.check(rows[1], "Y", first, "X"))])
        space = fitted(kernel.resolve(pooled), self.basis, pooled)
        return space, (self._read(space, X), self._read(space, Y))

    def _given(self, X: Any) -> Kernel:
        if self.kernel is None and isinstance(self.basis, Space):
            return self.basis.kernel_
        return as_kernel(self.kernel, X, "X")

    @staticmethod
    def _read(space: Space, rows: Any) -> Moments:
        if is_chunked(rows):
            return Chunks.of(rows=rows).reduce(_of_chunk, space)
        return _of_chunk(0, (rows,), space)

    def merge(self, other: RunningTwoSampleTest) -> Self:
        """Add what another stream has seen, given the same coordinates."""
        if not isinstance(other, RunningTwoSampleTest):
            raise TypeError(f"expected a RunningTwoSampleTest, got {type(other).__name__}.")
        for stream in (self, other):
            check_is_fitted(stream, "space_")
        require_same_space(self.space_, other.space_, "the rows")
        self._sums = self._sums[0] + other._sums[0], self._sums[1] + other._sums[1]
        return self

    @property
    def sizes_(self) -> tuple[int, int]:
        """How many rows of X and of Y there were."""
        check_is_fitted(self, "space_")
        return self._sums[0].n, self._sums[1].n

    def mmd(self, estimator: str = "V") -> float:
        """The squared maximum mean discrepancy so far, by the "V" or the "U" estimate."""
        check_is_fitted(self, "space_")
        x, y = self._sums
        if estimator == "V":
            difference = x.mean - y.mean
            return float(difference @ difference)
        if estimator != "U":
            raise ValueError(f'estimator: a stream has "V" and "U", got {estimator!r}.')
        own = [
            (float(part.first @ part.first) - float(np.trace(part.second)))
            / max(part.n * (part.n - 1), 1)
            for part in (x, y)
        ]
        return own[0] + own[1] - 2 * float(x.mean @ y.mean)

    def result(self) -> TestResult:
        """The test of all rows so far."""
        check_is_fitted(self, "space_")
        (x, y), (n, m) = self._sums, self.sizes_
        for name, size in (("X", n), ("Y", m)):
            enough(size, name, 2)
        pooled = x + y
        mean, variance = nulls.permutation_moments(
            pooled.centred(), nulls.CentredMoments.of_labels(n, m)
        )
        scale = float(np.trace(pooled.second)) / pooled.n
        statistic = self.mmd()
        found = nulls.gamma_null((mean, variance), scale)
        return TestResult(
            statistic=statistic,
            pvalue=found.pvalue(statistic),
            null=found,
            kernel=self.space_.kernel_,
            method=f"Two-sample test of streams by MMD in coordinates, {describe(found)}",
            hypothesis=DIFFERENT,
            sizes={"n": n, "m": m},
            notes=(NOTE,),
        )


class RunningIndependenceTest(BaseEstimator):
    """An independence test of a stream of pairs, by HSIC in coordinates.

    As `RunningTwoSampleTest`: sums are kept, the null is a gamma distribution with the moments over
    all permutations of the rows of Y.

    Parameters
    ----------
    kernel_x, kernel_y : Kernel, callable or None
    basis : a pair of bases or fitted Spaces, one for both, or None

    Attributes
    ----------
    space_x_, space_y_ : the coordinates
    n_ : pairs so far

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.comparison import RunningIndependenceTest
    >>> rng = np.random.default_rng(0)
    >>> stream = RunningIndependenceTest()
    >>> for _ in range(10):
    ...     X = rng.normal(size=(300, 1))
    ...     stream = stream.partial_fit(X, X**2 + rng.normal(size=(300, 1)))
    >>> stream.n_, stream.result().pvalue < 0.001
    (3000, True)
    """

    space_x_: Space
    space_y_: Space
    _sums: Paired

    def __init__(self, kernel_x: Any = None, kernel_y: Any = None, basis: Any = None) -> None:
        self.kernel_x = kernel_x
        self.kernel_y = kernel_y
        self.basis = basis

    def partial_fit(self, X: Any, Y: Any) -> Self:
        """Add pairs, rows at the same place."""
        if not hasattr(self, "space_x_"):
            return self.fit(X, Y)
        self._sums = self._sums + self._read((self.space_x_, self.space_y_), X, Y)
        return self

    def fit(self, X: Any, Y: Any) -> Self:
        """Start anew with these pairs."""
        rows = Chunks.of(X=X, Y=Y).sample() if is_chunked(X, Y) else (X, Y)
        bases = self.basis if isinstance(self.basis, tuple) else (self.basis, self.basis)
        spaces = []
        for given, basis, part, name in zip(
            (self.kernel_x, self.kernel_y), bases, rows, ("X", "Y"), strict=True
        ):
            known = basis.kernel_ if given is None and isinstance(basis, Space) else given
            kernel = as_kernel(known, part, name)
            points = on_host(kernel.check(part, name))
            spaces.append(fitted(kernel.resolve(points), basis, points))
        pair = spaces[0], spaces[1]
        found = self._read(pair, X, Y)
        (self.space_x_, self.space_y_), self._sums = pair, found
        return self

    @staticmethod
    def _read(spaces: tuple[Space, Space], X: Any, Y: Any) -> Paired:
        if is_chunked(X, Y):
            return Chunks.of(X=X, Y=Y).reduce(_of_paired_chunk, spaces)
        return _of_paired_chunk(0, (X, Y), spaces)

    def merge(self, other: RunningIndependenceTest) -> Self:
        """Add what another stream has seen, given the same coordinates."""
        if not isinstance(other, RunningIndependenceTest):
            raise TypeError(f"expected a RunningIndependenceTest, got {type(other).__name__}.")
        for stream in (self, other):
            check_is_fitted(stream, "space_x_")
        require_same_space(self.space_x_, other.space_x_, "X")
        require_same_space(self.space_y_, other.space_y_, "Y")
        self._sums = self._sums + other._sums
        return self

    @property
    def n_(self) -> int:
        """How many pairs there were."""
        check_is_fitted(self, "space_x_")
        return self._sums.x.n

    def hsic(self) -> float:
        """‖C_XY - μ_X ⊗ μ_Y‖² so far, the "V" estimate."""
        check_is_fitted(self, "space_x_")
        x, y = self._sums.x, self._sums.y
        difference = self._sums.cross / x.n - np.outer(x.mean, y.mean)
        return float(np.sum(difference * difference))

    def result(self) -> TestResult:
        """The test of all pairs so far."""
        n = self.n_
        enough(n, "X and Y", 2)
        x, y = self._sums.x, self._sums.y
        mean, variance = nulls.permutation_moments(x.centred(), y.centred())
        mean, variance = mean / n**2, variance / n**4
        scale = float(np.linalg.norm(x.second) * np.linalg.norm(y.second)) / n**2
        statistic = self.hsic()
        found = nulls.gamma_null((mean, variance), scale)
        return TestResult(
            statistic=statistic,
            pvalue=found.pvalue(statistic),
            null=found,
            kernel=(self.space_x_.kernel_, self.space_y_.kernel_),
            method=f"Independence test of a stream by HSIC in coordinates, {describe(found)}",
            hypothesis=DEPENDENT,
            sizes={"n": n},
            notes=(NOTE,),
        )
