"""Ways to find a null distribution, as small objects that hold their settings.

Every test takes `null` as a word, `null="block"`, or as one of these objects, `null=Block(10)`. The
word is short for the object with its default settings. The table of a test, `NULLS`, says which
words and objects it takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from meanmap import checks
from meanmap.comparison.results import ALTERNATIVES
from meanmap.statistics.tiles import memory_limit

__all__ = [
    "Block", "Full", "Gamma", "Groups", "NormalLimit", "PairedRows", "Permutation", "ResidualGamma",
    "ResidualNormals", "ResidualSigns", "ResidualSplit", "Sequential", "Signs", "SignsLimit",
    "Simulation", "Spectral", "Swap", "WeightedBlocks", "Wild", "WildGroups",
]  # fmt: skip

Sampler = Callable[[int, np.random.Generator], Any]


def check_length(length: Any) -> None:
    """ "auto", or a number of rows."""
    if isinstance(length, str):
        checks.option(length, "length", ("auto",))
    else:
        checks.whole(length, "length", 1, 'Use "auto" to have it chosen from the data.')


def require_labels(labels: Any) -> None:
    """Refuse groups without labels."""
    if labels is None:
        raise ValueError("Groups needs the group of every row: pass null=Groups(labels).")


def check_ridge(value: Any) -> None:
    """ "auto", or a number."""
    if isinstance(value, str):
        checks.option(value, "regularization", ["auto"])
    else:
        checks.not_negative(value, "regularization", 'Use "auto" or a number like 1e-3.')


#: What every setting must be, by its name.
CHECKS: dict[str, Callable[[Any], Any]] = {
    "alternative": lambda value: checks.option(value, "alternative", ALTERNATIVES),
    "bins": lambda value: value is None or checks.whole(value, "bins", 2, "512 are usual."),
    "labels": require_labels,
    "length": check_length,
    "max_memory": memory_limit,
    "regularization": check_ridge,
    "stop": lambda value: checks.whole(value, "stop", 1, "20 is usual."),
}


class NullSettings:
    """A null distribution's settings, checked when they are made."""

    def __post_init__(self) -> None:
        for name, check in CHECKS.items():
            if hasattr(self, name):
                check(getattr(self, name))


@dataclass(frozen=True, kw_only=True)
class Tail(NullSettings):
    """A null distribution of which either tail, or both, may count."""

    alternative: str = "greater"


@dataclass(frozen=True, kw_only=True)
class Rearrangement(Tail):
    """A null distribution found by rearranging the data many times."""

    max_memory: Any = None
    progress: bool | None = False

    @property
    def memory(self) -> int:
        """Bytes that may be used, found out when the test runs."""
        return memory_limit(self.max_memory)


@dataclass(frozen=True)
class Permutation(Rearrangement):
    """Rearrange random bins of points: exact, and cheap for any number of points.

    **Level**: exact at any sample size if the rows are exchangeable, as independent rows are.
    Points are gathered in random bins, and whole bins are exchanged between the samples, or shifted
    against the other variable (Domingo-Enrich, Dwivedi and Mackey 2025). Such rearrangements are a
    group of permutations, which is all that exactness needs.
    **Cost**: one pass over the Gram matrix; a permutation then costs the same for any n.

    Parameters
    ----------
    bins : int or None
        How many bins. By default 512 or a few more for two samples, and max(512, n_permutations +
        1) for independence; single points where there are fewer.
    alternative : {"greater", "less", "two-sided"}
    max_memory : int, str like "500MB", or None
        Memory for permuted labels, used above 2,048 bins; a quarter of the free memory by default.
    progress : bool
        Whether to show a progress bar.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import two_sample_test
    >>> from meanmap.comparison import Permutation
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(400, 1)), rng.normal(0.5, 1.0, size=(400, 1))
    >>> two_sample_test(X, Y, null=Permutation(bins=100), rng=0).pvalue
    0.001
    """

    bins: int | None = None


@dataclass(frozen=True)
class Full(Rearrangement):
    """Permute single points, one permutation at a time: the textbook permutation test.

    **Level**: exact at any sample size if the rows are exchangeable. **Power**: about that of
    `Permutation`, whose bins lose next to nothing. **Cost**: O(n²) per permutation.

    Parameters
    ----------
    alternative : {"greater", "less", "two-sided"}
    max_memory : int, str like "500MB", or None
        For independence, Gram matrices are kept if they fit, and computed again for every
        permutation otherwise; for two samples, the memory for permuted labels. A quarter of the
        free memory by default.
    progress : bool
        Whether to show a progress bar.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import independence_test
    >>> from meanmap.comparison import Full
    >>> X = np.random.default_rng(0).normal(size=(50, 1))
    >>> independence_test(X, X**2, null=Full(max_memory="1GB"), rng=0).pvalue
    0.001
    """


@dataclass(frozen=True)
class Block(Rearrangement):
    """Rearrange blocks of consecutive rows, for time series.

    **Level**: approximate for stationary series, and exact if the blocks are independent of each
    other. What neighbouring rows have to do with each other is kept within a block.
    **Cost**: as `Permutation`, whose bins the blocks are.

    Parameters
    ----------
    length : int or "auto"
        Rows per block. "auto" chooses it from the autocorrelation of the series, with a warning
        if these are too short for it.
    alternative : {"greater", "less", "two-sided"}
    max_memory : int, str like "500MB", or None
    progress : bool

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import independence_test
    >>> from meanmap.comparison import Block
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(2, 300, 1)).cumsum(axis=1)  # two unrelated random walks
    >>> independence_test(X, Y, null=Block(50), rng=0).pvalue > 0.05
    True
    """

    length: int | str = "auto"


@dataclass(frozen=True)
class Wild(Tail):
    """The wild bootstrap: random weights on blocks of consecutive rows, for time series.

    **Level**: approximate for long stationary series (Chwialkowski, Sejdinovic and Gretton 2014).
    **Cost**: as `Permutation`. `Block` has about the same level and power.

    Parameters
    ----------
    length : int or "auto"
        Rows per block, as in `Block`.
    alternative : {"greater", "less", "two-sided"}
    progress : bool

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import two_sample_test
    >>> from meanmap.comparison import Wild
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(100, 1)), rng.normal(2.0, 1.0, size=(100, 1))
    >>> two_sample_test(X, Y, null=Wild(length=5), rng=0).pvalue
    0.001
    """

    length: int | str = "auto"
    progress: bool | None = False


@dataclass(frozen=True, eq=False)
class Groups(Rearrangement):
    """Rearrange whole groups of rows, such as the measurements of one patient.

    **Level**: exact if the groups are exchangeable; rows of one group may depend on each other in
    any way. For two samples every group lies in one of them. For independence all groups have the
    same number of rows. **Cost**: as `Permutation`.

    Parameters
    ----------
    labels : the group of every row
        For two samples those of X and then those of Y, shape (n + m,), or a pair of arrays; for
        independence shape (n,).
    alternative : {"greater", "less", "two-sided"}
    max_memory : int, str like "500MB", or None
    progress : bool

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import two_sample_test
    >>> from meanmap.comparison import Groups
    >>> rng = np.random.default_rng(0)
    >>> patients = np.repeat(np.arange(12), 5)
    >>> X, Y = (rng.normal(size=(12, 1))[patients] for _ in range(2))  # five equal rows each
    >>> null = Groups((patients, 12 + patients))
    >>> two_sample_test(X, Y, null=null, rng=0).pvalue > 0.05
    True
    """

    labels: Any = None


@dataclass(frozen=True, eq=False)
class WildGroups(Tail):
    """Random weights on whole groups of rows, for two samples.

    **Level**: approximate, for many independent groups; `Groups` is exact if they are exchangeable.
    **Cost**: as `Permutation`.

    Parameters
    ----------
    labels : those of X and then those of Y, shape (n + m,), or a pair of arrays
    alternative : {"greater", "less", "two-sided"}
    progress : bool

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import two_sample_test
    >>> from meanmap.comparison import WildGroups
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(60, 1)), rng.normal(3.0, 1.0, size=(60, 1))
    >>> two_sample_test(X, Y, null=WildGroups(np.arange(120) // 4), rng=0).pvalue
    0.001
    """

    labels: Any = None
    progress: bool | None = False


@dataclass(frozen=True)
class Swap(Tail):
    """Exchange xᵢ with yᵢ at random, for the estimators "linear", "block" and "incomplete".

    **Level**: exact at any sample size. **Cost**: one sum over the terms of the estimate per draw.

    Parameters
    ----------
    alternative : {"greater", "less", "two-sided"}

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import two_sample_test
    >>> from meanmap.comparison import Swap
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(500, 1)), rng.normal(2.0, 1.0, size=(500, 1))
    >>> two_sample_test(X, Y, null=Swap(), estimator="linear", rng=0).pvalue
    0.001
    """


@dataclass(frozen=True)
class PairedRows(Tail):
    """Exchange xᵢ with yᵢ at random: for paired samples, as before and after on the same subjects.

    **Level**: exact at any sample size, however the two points of a pair depend on each other.
    **Cost**: one pass over the Gram matrix; a draw then costs the same for any n.

    Parameters
    ----------
    bins : int or None
        Pairs are gathered in so many random bins, which have one sign each; 1,024 by default,
        single pairs where there are fewer.
    alternative : {"greater", "less", "two-sided"}
    progress : bool

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import two_sample_test
    >>> from meanmap.comparison import PairedRows
    >>> rng = np.random.default_rng(0)
    >>> before = 3 * rng.normal(size=(50, 1))
    >>> after = before + rng.normal(1.0, 1.0, size=(50, 1))
    >>> two_sample_test(before, after, null=PairedRows(), rng=0).pvalue < 0.05
    True
    >>> two_sample_test(before, after, rng=0).pvalue > 0.05  # as if they were other subjects
    True
    """

    bins: int | None = None
    progress: bool | None = field(default=False, kw_only=True)


@dataclass(frozen=True)
class NormalLimit(Tail):
    """The normal limit of the estimators "linear" and "block".

    **Level**: approximate, for large samples. **Cost**: none beyond the estimate; no draws.

    Parameters
    ----------
    alternative : {"greater", "less", "two-sided"}

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import two_sample_test
    >>> from meanmap.comparison import NormalLimit
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(500, 1)), rng.normal(2.0, 1.0, size=(500, 1))
    >>> two_sample_test(X, Y, null=NormalLimit(), estimator="linear").pvalue < 0.001
    True
    """


@dataclass(frozen=True)
class Gamma(Tail):
    """A gamma distribution with the mean and variance that the statistic has over all permutations.

    **Level**: approximate, good around 0.05 and less so in the far tail; for exchangeable rows.
    The moments are exact (Kazi-Aoual et al. 1995). The test is that of the "V" estimate.
    **Cost**: one pass over the Gram matrix; no draws, so that p-values can be very small.

    Parameters
    ----------
    alternative : {"greater", "less", "two-sided"}

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import two_sample_test
    >>> from meanmap.comparison import Gamma
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(500, 1)), rng.normal(2.0, 1.0, size=(500, 1))
    >>> two_sample_test(X, Y, null=Gamma()).pvalue < 1e-6
    True
    """


@dataclass(frozen=True)
class Spectral(Tail):
    """Draws from the limit distribution, a weighted sum of χ² variables.

    **Level**: approximate, for large samples of independent rows (Gretton et al. 2009). The test is
    that of the "V" estimate. **Cost**: the eigenvalues of the covariance in coordinates.

    Parameters
    ----------
    alternative : {"greater", "less", "two-sided"}

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import independence_test
    >>> from meanmap.comparison import Spectral
    >>> X = np.random.default_rng(0).normal(size=(200, 1))
    >>> independence_test(X, X**2, null=Spectral(), rng=0).pvalue
    0.001
    """


@dataclass(frozen=True)
class Sequential(NullSettings):
    """Stop drawing once enough permuted statistics have reached the observed one.

    **Level**: that of the null it wraps; the p-value is then `stop` over the number drawn, which is
    exact too (Besag and Clifford 1991). **Cost**: a clear absence of evidence takes a few dozen
    draws, a small p-value all `n_permutations`. It takes one kernel per variable, and
    `independence_test` permutes rows (or whole blocks and groups) one permutation at a time.

    Parameters
    ----------
    null : word or null object
        What is drawn: "permutation", "full", "block", "wild", Groups(labels), …
    stop : int
        How many permuted statistics must reach the observed one.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import two_sample_test
    >>> from meanmap.comparison import Sequential
    >>> X, Y = np.random.default_rng(0).normal(size=(2, 100, 1))
    >>> result = two_sample_test(X, Y, "median", null=Sequential(), rng=0)
    >>> result.pvalue == 20 / len(result.null), len(result.null) < 200
    (True, True)
    """

    null: Any = "permutation"
    stop: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        alternative = getattr(self.null, "alternative", "greater")
        if alternative != "greater":
            raise ValueError(
                "a sequential test stops when enough permuted statistics reach the observed one, "
                f'which suits alternative="greater" only; got {alternative!r}.'
            )


# --- goodness of fit ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Signs(NullSettings):
    """Random signs on points, or on random bins of them, for goodness of fit.

    **Level**: right for large n, if the rows are independent and the score has light tails
    (Chwialkowski, Strathmann and Gretton 2016); a warning says where a few points have almost all
    of the squared score. **Cost**: one pass over the Stein kernel; a draw then costs the same for
    any n.

    Parameters
    ----------
    bins : int or None
        How many bins; 512 by default, or n if there are fewer rows.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import goodness_of_fit_test
    >>> from meanmap.comparison import Signs
    >>> X = np.random.default_rng(0).normal(1.0, 1.0, size=(300, 1))
    >>> goodness_of_fit_test(X, lambda x: -x, null=Signs(bins=100), rng=0).pvalue
    0.001
    """

    bins: int | None = None


@dataclass(frozen=True)
class SignsLimit(Signs):
    """Draws from the limit that random signs have, a weighted sum of χ² variables.

    **Level** and **cost**: as `Signs`.

    Parameters
    ----------
    bins : int or None
        As in `Signs`.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import goodness_of_fit_test
    >>> from meanmap.comparison import SignsLimit
    >>> X = np.random.default_rng(0).normal(1.0, 1.0, size=(300, 1))
    >>> goodness_of_fit_test(X, lambda x: -x, null=SignsLimit(), rng=0).pvalue
    0.001
    """


@dataclass(frozen=True)
class WeightedBlocks(NullSettings):
    """Random weights on blocks of consecutive rows, for the goodness of fit of a Markov chain.

    **Level**: approximate, for chains of many autocorrelation times and scores of light tails.
    **Cost**: as `Signs`.

    Parameters
    ----------
    length : int or "auto"
        Rows per block; "auto" takes ∛(n(τ - 1)²), with τ the longest autocorrelation time of the
        score's coordinates.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import goodness_of_fit_test
    >>> from meanmap.comparison import WeightedBlocks
    >>> X = np.random.default_rng(0).normal(1.0, 1.0, size=(300, 1))
    >>> goodness_of_fit_test(X, lambda x: -x, null=WeightedBlocks(5), rng=0).pvalue
    0.001
    """

    length: int | str = "auto"


@dataclass(frozen=True)
class Simulation(NullSettings):
    """Samples drawn from the density itself, for goodness of fit.

    **Level**: exact at any sample size; with `refit`, as good as the parametric bootstrap.
    **Cost**: O(n²) per draw: 999 samples of 700 rows take half a minute.

    Parameters
    ----------
    sampler : callable (n, rng) → (n, d) array, or None
        Draws from the density. Distributions of scipy.stats bring their own.
    refit : callable X → score, or None
        For a density that was fitted to X: how to fit it. Every simulated sample is then fitted
        too; without it a test of a fitted density rejects too seldom.
    progress : bool
        Whether to show a progress bar.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import goodness_of_fit_test
    >>> from meanmap.comparison import Simulation
    >>> X = np.random.default_rng(0).normal(1.0, 1.0, size=(40, 1))
    >>> null = Simulation(lambda n, rng: rng.normal(size=(n, 1)))
    >>> goodness_of_fit_test(X, lambda x: -x, null=null, n_permutations=99, rng=0).pvalue
    0.01
    """

    sampler: Sampler | None = None
    refit: Callable[[Any], Any] | None = None
    progress: bool | None = False


# --- tests of residuals ---------------------------------------------------------------------------


@dataclass(frozen=True)
class ResidualSigns(NullSettings):
    """Random signs on the noise that regressions leave: the wild bootstrap of conditional tests.

    **Level**: approximate. It holds if the regressions learn what both sides owe to the
    conditioning variable; no test can promise more (Shah and Peters 2020). **Cost**: two
    regressions, and at most O(n²) per draw.

    Parameters
    ----------
    regularization : "auto" or float
        λ of the regressions, on the operator's scale (K + nλI). "auto" is the least leave-one-out
        error, found for each side.
    basis : a basis, a tuple with one per variable, or None
        How the spaces get their coordinates. Small ones, such as `RandomFourier(100)`, make a test
        in the manner of RCIT (Strobl, Zhang and Visweswaran 2019) for very many rows.
    refit : bool
        Whether the null accounts for what the regression does to noise. Without it, as in Zhang et
        al. (2011), the level is exceeded as soon as there are a few conditioning columns.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import conditional_independence_test
    >>> from meanmap.comparison import ResidualSigns
    >>> rng = np.random.default_rng(0)
    >>> X, Y, Z = rng.normal(size=(3, 100, 1))
    >>> null = ResidualSigns(regularization=1e-2)
    >>> conditional_independence_test(X, Y + X, Z, null=null, rng=0).pvalue
    0.001
    """

    regularization: float | str = "auto"
    basis: Any = None
    refit: bool = True

    #: Whether regressions are fitted to one half of the rows and tested on the other.
    halves: ClassVar[bool] = False


@dataclass(frozen=True)
class ResidualNormals(ResidualSigns):
    """Normal numbers in place of random signs; otherwise as `ResidualSigns`.

    **Level** and **cost**: as `ResidualSigns`; the draws vary a little more.

    Parameters
    ----------
    regularization, basis, refit
        As in `ResidualSigns`.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import conditional_independence_test
    >>> from meanmap.comparison import ResidualNormals
    >>> X, Y, Z = np.random.default_rng(0).normal(size=(3, 100, 1))
    >>> conditional_independence_test(X, Y + X, Z, null=ResidualNormals(), rng=0).pvalue
    0.001
    """


@dataclass(frozen=True)
class ResidualGamma(ResidualSigns):
    """A gamma distribution with the mean and variance of `ResidualNormals`.

    **Level**: as `ResidualSigns`, less accurate in the far tail. **Cost**: the two regressions and
    one pass over n × n; no draws, so that p-values can be very small.

    Parameters
    ----------
    regularization, basis, refit
        As in `ResidualSigns`. `ResidualGamma(refit=False)` is the test of Zhang et al. (2011).

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import conditional_independence_test
    >>> from meanmap.comparison import ResidualGamma
    >>> X, Y, Z = np.random.default_rng(0).normal(size=(3, 100, 1))
    >>> conditional_independence_test(X, Y + X, Z, null=ResidualGamma()).pvalue < 0.001
    True
    """


@dataclass(frozen=True)
class ResidualSplit(ResidualSigns):
    """Regressions on a random half of the rows, random signs on the residuals of the other half.

    **Level**: safer than `ResidualSigns` where regressions overfit (Pogodin et al. 2024).
    **Power**: less, since half of the rows are tested. **Cost**: less.

    Parameters
    ----------
    regularization, basis, refit
        As in `ResidualSigns`.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import conditional_independence_test
    >>> from meanmap.comparison import ResidualSplit
    >>> X, Y, Z = np.random.default_rng(0).normal(size=(3, 200, 1))
    >>> conditional_independence_test(X, Y + X, Z, null=ResidualSplit(), rng=0).pvalue
    0.001
    """

    halves: ClassVar[bool] = True
