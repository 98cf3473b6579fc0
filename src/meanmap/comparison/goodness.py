"""Does a sample come from this density? A test that needs the density's score alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.fft

from meanmap import checks, plots
from meanmap.arrays import Array, concatenate, one_blas_thread, spans, to_numpy
from meanmap.comparison import nulls
from meanmap.comparison.blocks import autocorrelation_time
from meanmap.comparison.nulls import NullMethod
from meanmap.comparison.results import Draws, TestResult, row_groups
from meanmap.exceptions import DataWarning, warn
from meanmap.kernels import Gaussian, Kernel, RationalQuadratic
from meanmap.kernels.bandwidths import chosen_bandwidth, multiply_bandwidth, parse_bandwidth
from meanmap.progress import progress_bar
from meanmap.statistics.scores import sampler_of, score_values
from meanmap.statistics.stein import (
    SteinSample,
    SteinSums,
    stein_field,
    stein_kernel,
    stein_sums,
    stein_units,
)

AFFORDABLE = 5e9 / 2  # kernel values that simulated samples take by default, half a minute
ENOUGH = 10.0  # points that must share the squared score for signs of them to hold the level
SHARE = 6  # of few rows: one in so many is enough; a normal sample has one in three
BINS = 512  # more gain next to no power
TOGETHER = 1 << 15  # simulated points whose scores are found at a time
FEWEST = 8  # blocks of rows that a length chosen for the user leaves
WIDTHS = (2.0, 1.0, 0.5, 0.25)  # of the Gaussians, as multiples of the median distance

Sampler = Callable[[int, np.random.Generator], Any]


@row_groups(True)
def goodness_of_fit_test(
    X: Any,
    score: Any,
    kernel: Any = None,
    null: str | None = None,
    n_permutations: int = 999,
    rng: Any = None,
    *,
    sampler: Sampler | None = None,
    refit: Callable[[Any], Any] | None = None,
    block_length: int | str | None = None,
    n_bins: int | None = None,
    progress: bool = False,
) -> TestResult:
    """Test whether a sample comes from a density that is known by its score ∇log p.

    The statistic is the squared kernel Stein discrepancy, `stein_discrepancy`: no normalising
    constant is needed, and no sample of the density.

    Parameters
    ----------
    X : (n, d) array, the sample
    score : callable, (n, d) array or a distribution of scipy.stats
        A function from points (n, d) to the gradients of log p there, (n, d); those gradients at X;
        or a continuous distribution. The density must vanish at the ends of its support.
    kernel : Kernel, a list of them, or None
        Smooth, on vectors. Of a list the largest discrepancy counts, in standard deviations of
        its own null draws, and the p-value allows for the choice. None is a list: Gaussians at four
        widths, which find more than any one of them, and the inverse multiquadric
        `RationalQuadratic(alpha=0.5)`, which no sample of escaping mass deceives.
    null : {"wild", "spectral", "parametric"} or None
        "parametric" draws samples of the density, which is exact for every n, and needs a
        sampler. "wild" gives random signs to the points, or to bins of them (Chwialkowski,
        Strathmann and Gretton 2016): of the right level for large n if the score has light tails.
        "spectral" draws from the limit, a weighted sum of χ² variables, which asks for the same.
        Where a few points have almost all of the squared score (of a gamma density near 0, say)
        both reject too often, at any n, and a warning says so. None is "parametric" where the
        density can be sampled, with `sampler` or as a distribution of scipy.stats, up to some
        hundred rows (999 samples of 700 rows take half a minute), and "wild" otherwise.
    n_permutations : int
        How many draws of the null distribution: p = (1 + #{draws ≥ statistic}) / (1 + #draws).
    rng : int, numpy Generator or None
    sampler : callable (n, rng) → (n, d) array, or None
        Draws from the density. Distributions of scipy.stats bring their own.
    refit : callable X → score, or None
        For a density that was fitted to X: how to fit it. Every simulated sample is then fitted
        too; without it a test of a fitted density rejects too seldom. With "parametric" only.
    block_length : int, "auto" or None
        For rows in an order in which neighbours depend on each other, as those of a Markov chain:
        how many consecutive rows get one weight. "auto" takes ∛(n(τ - 1)²), with τ the longest
        autocorrelation time of the score's coordinates. With "wild" only.
    n_bins : int or None
        Into how many random bins the points go, 512 by default. One pass over the points leaves a
        matrix of their sums, so that draws cost the same for every n.
    progress : bool
        Whether to show how far "parametric" is.

    Returns
    -------
    TestResult
        `.witness(x)` says how points at x should move to fit the density better, shape (m, d).

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import stats
    >>> from meanmap import goodness_of_fit_test
    >>> X = np.random.default_rng(0).standard_t(3, size=(500, 1))
    >>> goodness_of_fit_test(X, stats.norm(scale=X.std()), rng=0).pvalue
    0.001
    >>> goodness_of_fit_test(X, stats.t(3), rng=0).pvalue > 0.05
    True

    The score is enough, and the level is exact with a sampler:

    >>> def draw(n, rng):
    ...     return rng.normal(size=(n, 1))
    >>> result = goodness_of_fit_test(X[:30], lambda x: -x, n_permutations=99, sampler=draw, rng=0)
    >>> result.method
    'Goodness-of-fit test: kernel Stein discrepancy (U), 99 simulated samples'
    """
    draws, rng = nulls.read_draws(n_permutations), checks.random_generator(rng)
    given = _kernels(kernel)
    sample = SteinSample.gate(X, score, given[0], scaled=kernel is None)
    kernels = [stein_kernel(k, sample.given).bind(X, "X") for k in given]
    settings = {"sampler": sampler, "refit": refit, "block_length": block_length, "n_bins": n_bins}
    null = _choose_null(null, score, sample, settings, draws * len(kernels))
    if null == "parametric" and sampler is None:
        sampler = sampler_of(score, sample.points.shape[1])
    resolved = _resolve_each(kernels, sample.points)
    problem = SteinProblem(
        sample, kernels, resolved, kernel is None, score, sampler, refit, block_length, n_bins,
        draws, rng, progress,
    )  # fmt: skip
    found = NULLS[null].find(problem)
    statistic, law, best = found.combine(null)
    notes = found.notes
    if len(kernels) > 1:
        words = f"Discrepancy under the kernel that speaks loudest, of {len(kernels)}"
        notes = [f"{words}: {found.values[best]:.4g}.", *notes]
    return TestResult(
        statistic=statistic,
        pvalue=law.pvalue(statistic),
        null=law,
        kernel=resolved[best],
        method=f"Goodness-of-fit test: kernel Stein discrepancy ({found.estimator}), {found.kind}",
        hypothesis="the sample does not come from the density",
        sizes={"n": len(sample.points)},
        notes=tuple(notes),
        explanation=SteinWitness(resolved[best], sample),
    )


@dataclass(frozen=True, eq=False)
class SteinProblem:
    """What a test of goodness of fit was asked for, checked once."""

    sample: SteinSample
    kernels: list[Kernel]  # as given
    resolved: list[Kernel]
    scaled: bool  # whether columns are taken in units of their spread
    score: Any
    sampler: Sampler | None
    refit: Callable[[Any], Any] | None
    block_length: int | str | None
    n_bins: int | None
    draws: int
    rng: np.random.Generator
    progress: bool


@dataclass(frozen=True, eq=False)
class SteinOutcome:
    """Discrepancies under every kernel, the size of the sums they are made of, and null draws."""

    values: np.ndarray
    scales: np.ndarray
    table: np.ndarray  # a row a kernel
    estimator: str
    kind: str  # how the draws were made, in words
    notes: list[str]

    @classmethod
    def of(
        cls, sums: list[SteinSums], estimator: str, table: Any, kind: str, notes: list[str]
    ) -> SteinOutcome:
        """From sums over Stein kernels."""
        values = np.array([each.estimate(estimator) for each in sums])
        scales = np.array([np.abs(s.bins).sum() / s.n**2 + s.trace / s.n**2 for s in sums])
        if not scales.max() <= checks.LARGEST**2:
            raise ValueError(
                f"the Stein kernel has values as large as {scales.max():.3g}, whose squares "
                "overflow: rows or scores are of an extreme scale. Divide the rows by their "
                "standard deviation, and multiply the scores by it."
            )
        return cls(values, scales, np.asarray(table), estimator, kind, notes)

    def combine(self, null: str) -> tuple[float, Draws, int]:
        """One statistic of all kernels, its null distribution, and which kernel stands out."""
        table = np.concatenate([self.values[:, None], self.table], axis=1)
        if len(table) == 1:
            return float(table[0, 0]), Draws(null, table[0, 1:], float(self.scales[0])), 0
        even = np.zeros(len(table))
        values = nulls.combine_kernels(table, self.scales, even, "max")
        best = nulls.strongest(table, self.scales, even)
        return float(values[0]), Draws(null, values[1:], 1.0), best


def _kernels(kernel: Any) -> list[Any]:
    if kernel is None:
        return [*map(Gaussian().rescaled, WIDTHS), RationalQuadratic(alpha=0.5)]
    if isinstance(kernel, list | tuple):
        if not kernel:
            raise ValueError("kernel: got an empty list; pass one kernel or more.")
        return list(kernel)
    return [kernel]


def _resolve_each(kernels: list[Kernel], X: np.ndarray) -> list[Kernel]:
    """The kernels with their bandwidths, each rule's found once for all."""
    known: dict[str, Any] = {}
    found = []
    for kernel in kernels:
        bandwidth = getattr(kernel, "bandwidth", None)
        if isinstance(bandwidth, str):
            factor, rule = parse_bandwidth(bandwidth)
            if rule not in known:
                known[rule] = chosen_bandwidth(rule, X)
            kernel = kernel.replace(bandwidth=multiply_bandwidth(known[rule], factor))
        found.append(kernel.resolve(X))
    return found


def _choose_null(
    null: str | None, score: Any, sample: SteinSample, settings: dict[str, Any], statistics: int
) -> str:
    """The null that was asked for; refuses settings that it would ignore.

    None is the exact one where the density can be sampled, and where so many statistics take a
    reasonable time.
    """
    asked = {name for name, value in settings.items() if value is not None}
    own = sampler_of(score, sample.points.shape[1])
    if null is None:
        cheap = own is not None and not asked and statistics * len(sample.points) ** 2 <= AFFORDABLE
        null = "parametric" if cheap or asked & {"sampler", "refit"} else "wild"
    checks.option(null, "null", tuple(NULLS))
    if null == "parametric":
        if own is None and "sampler" not in asked:
            raise ValueError(
                'null="parametric" simulates samples of the density: pass sampler=, a function of '
                "(n, rng) that draws n points."
            )
        if "refit" not in asked and not callable(score) and own is None:
            raise TypeError(
                'score: null="parametric" needs the score at simulated points. Pass a function of '
                "points, not its values at X."
            )
    takes = set(NULLS[null].takes) - ({"n_bins"} if "block_length" in asked else set())
    for name in settings:
        if name in asked - takes:
            raise ValueError(f'{name} goes with another null distribution than null="{null}".')
    return null


# --- random signs ---------------------------------------------------------------------------------


def _sign_bins(problem: SteinProblem) -> SteinOutcome:
    """Draws with random signs of bins, or with weights of blocks of rows.

    Signs change neither Σᵢ h(xᵢ, xᵢ) nor what is between points of one bin, so that "U" and "V"
    give one p-value.
    """
    if problem.block_length is not None:
        return _weigh_rows(problem)
    sums, pairs = _bin_sums(problem)
    signs = problem.rng.choice([-1.0, 1.0], size=(problem.draws, len(sums[0].bins)))
    table = [(_quadratic(signs, each.bins) - each.trace) / pairs for each in sums]
    kind = f"{problem.draws} draws of the wild bootstrap"
    return SteinOutcome.of(sums, "U", table, kind, _doubts(problem))


def _draw_limit(problem: SteinProblem) -> SteinOutcome:
    """Draws of the limit that random signs have.

    zᵀGz with the eigenvalues λ of G is Σ λᵢ zᵢ², for all kernels with one z, so that they go
    together as they should; without G's diagonal, which adds a variance that U has not.
    """
    sums, pairs = _bin_sums(problem)
    z = problem.rng.standard_normal((problem.draws, len(sums[0].bins)))
    table = [_quadratic(z, each.bins - np.diag(np.diagonal(each.bins))) / pairs for each in sums]
    kind = f"{problem.draws} draws of the spectral limit"
    return SteinOutcome.of(sums, "U", table, kind, _doubts(problem))


def _bin_sums(problem: SteinProblem) -> tuple[list[SteinSums], int]:
    """Sums between random bins of points, a kernel each, and how many pairs of points there are."""
    n = len(problem.sample.points)
    bins = BINS
    if problem.n_bins is not None:
        bins = checks.whole(problem.n_bins, "n_bins", 2, f"{BINS} is the default.")
    bins = min(bins, n)
    order, starts = problem.rng.permutation(n), np.arange(bins) * n // bins
    X, S = problem.sample.points[order], problem.sample.scores[order]
    return [stein_sums(kernel, X, S, starts) for kernel in problem.resolved], n * (n - 1)


def _doubts(problem: SteinProblem) -> list[str]:
    """What speaks against a null that takes points for independent and of light tails."""
    return _looks_dependent(problem.sample.scores) + _few_points(problem.sample.scores)


def _quadratic(weights: np.ndarray, G: np.ndarray) -> np.ndarray:
    with one_blas_thread():
        return np.einsum("bs,bs->b", weights @ G, weights)


def _weigh_rows(problem: SteinProblem) -> SteinOutcome:
    """Draws with a normal weight for every block of rows.

    Normal weights and the "V" estimate: signs of a few blocks make too few different draws.
    """
    X, S = problem.sample.points, problem.sample.scores
    n, length = len(X), _length(problem.block_length, S)
    blocks = n // length
    starts = np.arange(blocks) * n // blocks
    sums = [stein_sums(kernel, X, S, starts) for kernel in problem.resolved]
    weights = problem.rng.standard_normal((problem.draws, blocks))
    table = np.array([_quadratic(weights, each.bins) for each in sums]) / n**2
    kind = f"wild bootstrap of blocks of {length} rows, {problem.draws} draws"
    return SteinOutcome.of(sums, "V", table, kind, _few_points(S))


def _length(value: Any, S: np.ndarray) -> int:
    """How long a block is."""
    n = len(S)
    if isinstance(value, str):
        checks.option(value, "block_length", ("auto",))
        time = max(series_memory(column) for column in S.T)
        length = max(1, int(np.ceil((n * (time - 1) ** 2) ** (1 / 3))))
        if n < 40 * time:
            warn(
                f"the {n} rows are worth about {n / time:.0f} independent ones, too few for blocks "
                "of them to hold the level: the test may reject too often. Run the chain for "
                "longer.",
                DataWarning,
            )
        return max(1, min(length, n // FEWEST))
    length = checks.whole(value, "block_length", 1, 'Use "auto" to have it chosen.')
    if length > n // 2:
        raise ValueError(
            f"block_length={length} leaves fewer than two blocks of the {n} rows. Blocks should "
            "be a few autocorrelation times long, and many."
        )
    return length


def series_memory(series: np.ndarray) -> float:
    """The autocorrelation time of a series."""
    n = len(series)
    centred = series - series.mean()
    if n < 4 or not np.any(centred):
        return 1.0
    size = scipy.fft.next_fast_len(2 * n, real=True)
    power = np.abs(scipy.fft.rfft(centred, size)) ** 2
    correlation = scipy.fft.irfft(power, size)[: n // 4 * 2]
    return autocorrelation_time(correlation / correlation[0])


def _few_points(S: np.ndarray) -> list[str]:
    """A note, and a warning, if a few points have almost all of the squared score."""
    scaled = S / (np.abs(S).max() or 1.0)  # squares of the least numbers are zero
    squares = np.sum(scaled * scaled, axis=1)
    total = float(squares.sum())
    effective = total**2 / float(squares @ squares) if total > 0 else math.inf
    if effective >= min(ENOUGH, len(S) / SHARE):
        return []
    note = (
        f"The squared scores are worth those of {effective:.1f} equal points out of {len(S)}: the "
        "level of this null does not hold, and true nulls may be rejected several times too often. "
        'null="parametric" is exact; it needs a distribution of scipy.stats or sampler=.'
    )
    warn(f"goodness_of_fit_test: {note}", DataWarning)
    return [note]


def _looks_dependent(S: np.ndarray) -> list[str]:
    """A note if neighbouring rows are more alike than chance allows."""
    n = len(S)
    centred = S - S.mean(axis=0)
    scale = np.sum(centred**2, axis=0)
    if n < 20 or not (scale > 0).all():
        return []
    correlation = np.sum(centred[1:] * centred[:-1], axis=0) / scale
    most = float(correlation.max())
    # about normal with variance 1/n; heavy tails make it smaller
    if most < 5 / n**0.5:
        return []
    return [
        f"Neighbouring rows look dependent (their scores correlate at {most:.2f}): if the rows are "
        'in the order of a chain or a series, use block_length="auto".'
    ]


# --- simulation -----------------------------------------------------------------------------------


def _simulate_samples(problem: SteinProblem) -> SteinOutcome:
    """The statistics of simulated samples, computed as those of the sample itself."""
    sample, draws, refit = problem.sample, problem.draws, problem.refit
    sums = [stein_sums(k, sample.points, sample.scores) for k in problem.resolved]
    n = len(sample.points)
    table = np.empty((len(problem.kernels), draws))
    # scores of many samples at once: distributions of SciPy take long to be asked
    together = 1 if refit is not None else max(1, TOGETHER // n)
    with one_blas_thread(), progress_bar(draws, "Simulated samples", problem.progress) as done:
        for some in spans(draws, together):
            drawn = [_draw_sample(problem) for _ in range(some.start, some.stop)]
            points = concatenate(drawn)
            values = score_values(problem.score if refit is None else refit(points), points)
            for i, part in enumerate(drawn):
                X, S = to_numpy(part).astype(np.float64), values[i * n : (i + 1) * n]
                # units and bandwidths are found afresh: every sample is treated as the observed one
                units = stein_units(X) if problem.scaled else np.ones(X.shape[1])
                X, S = X / units, S * units
                for j, kernel in enumerate(_resolve_each(problem.kernels, X)):
                    table[j, some.start + i] = stein_sums(kernel, X, S).estimate("U")
                done(1)
    return SteinOutcome.of(sums, "U", table, f"{draws} simulated samples", [])


def _draw_sample(problem: SteinProblem) -> Array:
    """A simulated sample of as many points, of the same kind."""
    n, d = problem.sample.points.shape
    assert problem.sampler is not None
    points = checks.vectors(problem.sampler(n, problem.rng), "the sampler's points")
    if tuple(points.shape) != (n, d):
        raise ValueError(
            f"sampler: expected {n} points of {d} coordinates, shape ({n}, {d}), got "
            f"shape {tuple(points.shape)}."
        )
    return checks.same_kind(points, problem.sample.given, "the sampler's points", "X")


NULLS = {
    "wild": NullMethod(_sign_bins, takes=("block_length", "n_bins")),
    "spectral": NullMethod(_draw_limit, takes=("n_bins",)),
    "parametric": NullMethod(_simulate_samples, takes=("sampler", "refit")),
}


# --- the witness ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SteinWitness:
    """How points should move to come nearer to the density: E k(X, x) ∇log p(X) + ∇k(X, x)."""

    kernel: Kernel
    sample: SteinSample

    def __call__(self, x: Any) -> Array:
        units = self.sample.units
        points, single = self.kernel.rows(x, self.sample.points)
        field = stein_field(self.kernel, self.sample.points, self.sample.scores, points / units)
        field = field * units
        return field[0] if single else field

    @property
    def plot(self) -> Callable[[Any], Any] | None:
        """Draws the field of one or two variables; None for more."""
        return {1: self._curve, 2: self._arrows}.get(self.sample.points.shape[1])

    @property
    def _points(self) -> np.ndarray:
        """The sample in the units that it came in."""
        return self.sample.points * self.sample.units

    def _range(self, column: int) -> tuple[float, float]:
        low, high = np.quantile(self._points[:, column], [0.005, 0.995])
        margin = 0.1 * (high - low) or 1.0
        return low - margin, high + margin

    def _curve(self, ax: Any = None) -> Any:
        at = np.linspace(*self._range(0), 300)
        shown = self._points[:: max(1, len(self._points) // 500), 0]
        shown = shown[(shown >= at[0]) & (shown <= at[-1])]
        ax = plots.curve(at, self(at[:, None])[:, 0], shown, ax, name="witness")
        ax.axhline(0, color=plots.GREY, linewidth=0.8)
        ax.set(title="positive: the density has its mass further right")
        return ax

    def _arrows(self, ax: Any = None) -> Any:
        (x, y) = (np.linspace(*self._range(i), 60) for i in (0, 1))
        grid = np.stack(np.meshgrid(x, y), axis=-1)
        field = self(grid.reshape(-1, 2)).reshape(grid.shape)
        shown = self._points[:: max(1, len(self._points) // 500)]
        inside = [(shown[:, i] >= s[0]) & (shown[:, i] <= s[-1]) for i, s in enumerate((x, y))]
        shown = shown[inside[0] & inside[1]]
        length = np.linalg.norm(field, axis=-1)
        ax = plots.contours(x, y, length, shown, ax, name="length of the witness")
        few = (slice(2, None, 4), slice(2, None, 4))
        ax.quiver(*np.moveaxis(grid[few], -1, 0), *np.moveaxis(field[few], -1, 0), color="white")
        ax.set(title="where the density has more mass")
        return ax
