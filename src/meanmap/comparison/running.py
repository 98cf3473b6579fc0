"""Tests of streams: sums in coordinates are all that is kept of the rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from meanmap.comparison import limits
from meanmap.comparison.candidates import Collection
from meanmap.comparison.column_effects import InWords
from meanmap.comparison.effects import CORRELATION, EffectSize, effect_of_moments
from meanmap.comparison.nulls import Gamma, Permutation
from meanmap.comparison.results import DEPENDENT, DIFFERENT, TestResult, product_scale, tie_scale
from meanmap.comparison.sources import Outcome
from meanmap.exceptions import DataWarning, warn
from meanmap.spaces import Basis, Space
from meanmap.statistics import moments
from meanmap.statistics.gates import one_each, require_points
from meanmap.statistics.moments import Moments, Paired, hsic_of, mmd_of, moments_of, paired_of
from meanmap.streams.sums import require_same_space

LOOKS = (
    "This is look {count} at a growing stream. Each p-value is right for a single look: with 40 "
    "looks, three in ten streams without any effect have p ≤ 0.05 at one of them. Decide "
    "beforehand how many rows to wait for, compare p with the level divided by the number of looks "
    "planned, or use the sequential tests of meanmap.monitoring, which may be looked at any time."
)
NOTE = "Permutations of all rows are approximated by the first two moments of the statistic."


def centred_moments(sums: Moments) -> limits.CentredMoments:
    """The moments of the centred Gram matrix in coordinates."""
    C, mu = sums.covariance, sums.mean
    trace, whole = float(np.trace(C)), float(np.trace(sums.second))
    if trace <= sums.n * sums.rounding:
        return limits.CentredMoments(sums.n, 0.0, 0.0, 0.0)
    size = float(mu @ mu)
    # Σ (‖ψ‖² - 2ψ·μ + ‖μ‖²)², multiplied out
    diagonal = sums.fourth - 4 * float(sums.third @ mu) + 2 * size * whole
    diagonal += 4 * float(mu @ sums.second @ mu) - 3 * sums.n * size**2
    return limits.CentredMoments(sums.n, trace, float(np.sum(C * C)), diagonal)


def require_sums(null: Any, kernel: Any) -> None:
    """Refuse what a test of rows that are not in memory cannot do."""
    simple = null in ("permutation", "gamma", Permutation(), Gamma())
    if not simple or isinstance(kernel, str | list | Collection):
        raise ValueError(
            "rows in chunks are tested by sums over them: with one kernel per variable, and with "
            'null="gamma" as it is. Leave other settings out, or call .compute() on some rows.'
        )


class Looks:
    """Counts how often a stream was tested, as its p-value holds for one look only."""

    _looks: int = 0
    _looked_at: tuple[int, ...] = ()

    def _look(self, sizes: tuple[int, ...]) -> list[str]:
        """A warning and a note from the second look on; looking again at the same rows is free."""
        if sizes != self._looked_at:
            self._looks, self._looked_at = self._looks + 1, sizes
            if self._looks > 1:
                warn(LOOKS.format(count=self._looks), DataWarning)
        return [LOOKS.format(count=self._looks)] if self._looks > 1 else []

    def _set(self, looks: int, **state: Any) -> Self:
        """New sums, and how often there was a look at rows of them, in one assignment."""
        self.__dict__.update(state, _looks=looks, _looked_at=())
        return self


class RunningTwoSampleTest(Looks, BaseEstimator):
    """A two-sample test of streams: do the rows of X and of Y come from one distribution?

    MMD in coordinates that the first batches fix, against a gamma distribution with the mean and
    the variance that it has over all permutations (approximate, for the "V" estimate). Rows come in
    batches, in collections of Dask, or both, and are not kept.

    **For one look**, at a number of rows that was decided on beforehand. Asking for a `result`
    after every batch until one is significant rejects far too often: three in ten streams without
    any effect, with 40 looks. From the second look on there is a warning. To look at any time use
    `meanmap.monitoring.SequentialTwoSampleTest`.

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
        space, sums = moments.sum_two_samples(X, Y, self.kernel, self.basis)
        return self._set(0, space_=space, _sums=sums)

    def partial_fit(self, X: Any = None, Y: Any = None) -> Self:
        """Add rows to either sample, or to both; the first time there must be some of both."""
        if not hasattr(self, "space_"):
            if X is None or Y is None:
                raise ValueError("the first batch needs rows of X and of Y, to fit a space to.")
            return self.fit(X, Y)
        new = [None if part is None else moments_of(self.space_, part) for part in (X, Y)]
        x, y = self._sums
        self._sums = x if new[0] is None else x + new[0], y if new[1] is None else y + new[1]
        return self

    def merge(self, other: RunningTwoSampleTest) -> Self:
        """Add what another stream has seen, given the same coordinates."""
        if not isinstance(other, RunningTwoSampleTest):
            raise TypeError(f"expected a RunningTwoSampleTest, got {type(other).__name__}.")
        for stream in (self, other):
            check_is_fitted(stream, "space_")
        require_same_space(self.space_, other.space_, "the rows")
        sums = self._sums[0] + other._sums[0], self._sums[1] + other._sums[1]
        # looks at either of two streams were looks at rows of both together
        return self._set(self._looks + other._looks, _sums=sums)

    @property
    def sizes_(self) -> tuple[int, int]:
        """How many rows of X and of Y there were."""
        check_is_fitted(self, "space_")
        return self._sums[0].n, self._sums[1].n

    def mmd(self, estimator: str = "V") -> float:
        """The squared maximum mean discrepancy so far, by the "V" or the "U" estimate."""
        check_is_fitted(self, "space_")
        return mmd_of(*self._sums, estimator)

    def result(self) -> TestResult:
        """The test of all rows so far, with a warning if there were looks at fewer of them."""
        check_is_fitted(self, "space_")
        (x, y), (n, m) = self._sums, self.sizes_
        for name, size in (("X", n), ("Y", m)):
            require_points(size, name, 2)
        pooled = x + y
        mean, variance = limits.permutation_moments(
            centred_moments(pooled), limits.CentredMoments.of_labels(n, m)
        )
        scale = tie_scale(float(np.trace(pooled.covariance)) / pooled.n**2, pooled.rounding)
        return TestResult.of(
            Outcome(self.mmd(), limits.gamma_null((mean, variance), scale)),
            "Two-sample test of streams by MMD in coordinates",
            kernel=self.space_.kernel_,
            hypothesis=DIFFERENT,
            sizes={"n": n, "m": m},
            notes=(NOTE, *self._look((n, m))),
            explanation=StreamedEffect(partial(effect_of_moments, x, y)),
        )


class RunningIndependenceTest(Looks, BaseEstimator):
    """An independence test of a stream of pairs, by HSIC in coordinates.

    As `RunningTwoSampleTest`: sums are kept, the null is a gamma distribution with the moments over
    all permutations of the rows of Y, and the p-value is **for one look**. To look at any time use
    `meanmap.monitoring.SequentialIndependenceTest`.

    Parameters
    ----------
    kernel : one for both variables, or a tuple (x, y)
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

    def __init__(self, kernel: Any = None, basis: Any = None) -> None:
        self.kernel = kernel
        self.basis = basis

    def partial_fit(self, X: Any, Y: Any) -> Self:
        """Add pairs, rows at the same place."""
        if not hasattr(self, "space_x_"):
            return self.fit(X, Y)
        self._sums = self._sums + paired_of((self.space_x_, self.space_y_), X, Y)
        return self

    def fit(self, X: Any, Y: Any) -> Self:
        """Start anew with these pairs."""
        kernels, bases = one_each(self.kernel, "kernel", "xy"), one_each(self.basis, "basis", "xy")
        (x, y), sums = moments.sum_pairs(X, Y, kernels, bases)
        return self._set(0, space_x_=x, space_y_=y, _sums=sums)

    def merge(self, other: RunningIndependenceTest) -> Self:
        """Add what another stream has seen, given the same coordinates."""
        if not isinstance(other, RunningIndependenceTest):
            raise TypeError(f"expected a RunningIndependenceTest, got {type(other).__name__}.")
        for stream in (self, other):
            check_is_fitted(stream, "space_x_")
        require_same_space(self.space_x_, other.space_x_, "X")
        require_same_space(self.space_y_, other.space_y_, "Y")
        return self._set(self._looks + other._looks, _sums=self._sums + other._sums)

    @property
    def n_(self) -> int:
        """How many pairs there were."""
        check_is_fitted(self, "space_x_")
        return self._sums.x.n

    def hsic(self, estimator: str = "V") -> float:
        """‖C_XY - μ_X ⊗ μ_Y‖² so far, by the "V", the "U" or the "normalized" estimate."""
        check_is_fitted(self, "space_x_")
        if estimator == "U":
            require_points(self.n_, "X and Y", 4)
        return hsic_of(self._sums, estimator)

    def result(self) -> TestResult:
        """The test of all pairs so far, with a warning if there were looks at fewer of them."""
        n = self.n_
        require_points(n, "X and Y", 2)
        x, y = self._sums.x, self._sums.y
        mean, variance = limits.permutation_moments(centred_moments(x), centred_moments(y))
        mean, variance = mean / n**2, variance / n**4
        sizes = np.linalg.norm(x.covariance) / n, np.linalg.norm(y.covariance) / n
        scale = product_scale(sizes, (x.rounding, y.rounding))
        return TestResult.of(
            Outcome(self.hsic(), limits.gamma_null((mean, variance), scale)),
            "Independence test of a stream by HSIC in coordinates",
            kernel=(self.space_x_.kernel_, self.space_y_.kernel_),
            hypothesis=DEPENDENT,
            sizes={"n": n},
            notes=(NOTE, *self._look((n,))),
            explanation=StreamedEffect(partial(_effect_of_pairs, self._sums)),
        )


@dataclass(frozen=True, eq=False, repr=False)
class StreamedEffect(InWords):
    """How large an effect is, from sums over rows that are gone."""

    effect: Callable[[], EffectSize]


def _effect_of_pairs(sums: Paired) -> EffectSize:
    """The ratio of sums; its interval would need products of four rows."""
    value = hsic_of(sums, "normalized")
    return EffectSize(CORRELATION, min(max(value, 0.0), 1.0), (math.nan, math.nan), rows=sums.x.n)
