"""Does a sample come from this density? A test that needs the density's score alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap import checks, plots
from meanmap.arrays import Array, concatenate, one_blas_thread, spans, to_numpy
from meanmap.comparison.blocks import autocorrelation_time, check_blocks, lagged_products
from meanmap.comparison.column_effects import ColumnEffects, InWords
from meanmap.comparison.effects import EffectSize, choose_rows, stein_effect
from meanmap.comparison.methods import NullMethod, Request
from meanmap.comparison.nulls import Sampler, Signs, SignsLimit, Simulation, WeightedBlocks
from meanmap.comparison.results import Draws, TestResult, row_groups
from meanmap.comparison.sources import combine_kernels, read_draws, strongest
from meanmap.exceptions import DataWarning, warn
from meanmap.kernels import Gaussian, Kernel, RationalQuadratic
from meanmap.kernels.bandwidths import (
    chosen_bandwidth,
    column_scales,
    multiply_bandwidth,
    parse_bandwidth,
)
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
MOVED = 1000  # points at which it is found how they should move
WIDTHS = (2.0, 1.0, 0.5, 0.25)  # of the Gaussians, as multiples of the median distance


@row_groups(True)
def goodness_of_fit_test(
    X: Any,
    score: Any,
    kernel: Any = None,
    null: Any = None,
    n_permutations: int = 999,
    rng: Any = None,
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
    null : word, null object or None
        How the null distribution is found. A word is short for the object with its defaults.

        ============= =============================== ==========================================
        word          object                          level
        ============= =============================== ==========================================
        "parametric"  `Simulation(sampler, refit)`    exact at any n; needs a sampler
        "wild"        `Signs(bins)`                   right for large n and light tails
        "spectral"    `SignsLimit(bins)`              right for large n and light tails
        "block"       `WeightedBlocks(length)`        approximate, for Markov chains
        ============= =============================== ==========================================

        Where a few points have almost all of the squared score (of a gamma density near 0, say),
        all but the first reject too often, at any n, and a warning says so. None is "parametric"
        for distributions of scipy.stats, which bring their sampler, up to some hundred rows (999
        samples of 700 rows take half a minute), and "wild" otherwise.
    n_permutations : int
        How many draws of the null distribution: p = (1 + #{draws ≥ statistic}) / (1 + #draws).
    rng : int, numpy Generator or None

    Returns
    -------
    TestResult
        `.witness(x)` says how points at x should move to fit the density better, shape (m, d).

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import stats
    >>> from meanmap import goodness_of_fit_test
    >>> from meanmap.comparison import Simulation
    >>> X = np.random.default_rng(0).standard_t(3, size=(500, 1))
    >>> goodness_of_fit_test(X, stats.norm(scale=X.std()), rng=0).pvalue
    0.001
    >>> goodness_of_fit_test(X, stats.t(3), rng=0).pvalue > 0.05
    True

    The score is enough, and the level is exact with a sampler:

    >>> null = Simulation(lambda n, rng: rng.normal(size=(n, 1)))
    >>> result = goodness_of_fit_test(X[:30], lambda x: -x, null=null, n_permutations=99, rng=0)
    >>> result.method
    'Goodness-of-fit test: kernel Stein discrepancy (U), 99 simulated samples'
    """
    given = _kernels(kernel)
    sample = SteinSample.gate(X, score, given[0], scaled=kernel is None)
    kernels = [stein_kernel(k, sample.given).bind(X, "X") for k in given]
    sampler = sampler_of(score, sample.points.shape[1])
    if null is None:
        cost = read_draws(n_permutations) * len(kernels) * len(sample.points) ** 2
        null = "parametric" if sampler is not None and cost <= AFFORDABLE else "wild"
    asked = Request.read(NULLS, null, n_permutations, rng)
    resolved = _resolve_each(kernels, sample.points)
    problem = SteinProblem(sample, kernels, resolved, kernel is None, score, sampler)
    found = asked.method.find(problem, asked)
    statistic, law, best = found.combine()
    notes = found.notes
    if len(kernels) > 1:
        words = f"Discrepancy under the kernel that stands out most, of {len(kernels)}"
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
    sampler: Sampler | None  # the density's own


@dataclass(frozen=True, eq=False)
class SteinOutcome:
    """Discrepancies under every kernel, the size of the sums they are made of, and null draws."""

    values: np.ndarray
    scales: np.ndarray
    table: np.ndarray  # one row per kernel
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

    def combine(self) -> tuple[float, Draws, int]:
        """One statistic of all kernels, its null distribution, and which kernel stands out."""
        table = np.concatenate([self.values[:, None], self.table], axis=1)
        if len(table) == 1:
            return float(table[0, 0]), Draws(self.kind, table[0, 1:], float(self.scales[0])), 0
        even = np.ones(len(table))
        values = combine_kernels(table, self.scales, even, "max")
        best = strongest(table, self.scales, even)
        return float(values[0]), Draws(self.kind, values[1:], 1.0), best


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


# --- random signs ---------------------------------------------------------------------------------


def _sign_bins(problem: SteinProblem, asked: Request) -> SteinOutcome:
    """Draws with random signs of bins.

    Signs change neither Σᵢ h(xᵢ, xᵢ) nor what is between points of one bin, so that "U" and "V"
    give one p-value.
    """
    sums, pairs = _bin_sums(problem, asked)
    signs = asked.rng.choice([-1.0, 1.0], size=(asked.draws, len(sums[0].bins)))
    table = [(_quadratic(signs, each.bins) - each.trace) / pairs for each in sums]
    kind = f"{asked.draws} draws of the wild bootstrap"
    return SteinOutcome.of(sums, "U", table, kind, _doubts(problem))


def _draw_limit(problem: SteinProblem, asked: Request) -> SteinOutcome:
    """Draws of the limit that random signs have.

    zᵀGz with the eigenvalues λ of G is Σ λᵢ zᵢ², for all kernels with one z, so that they go
    together as they should; without G's diagonal, which adds a variance that U has not.
    """
    sums, pairs = _bin_sums(problem, asked)
    z = asked.rng.standard_normal((asked.draws, len(sums[0].bins)))
    table = [_quadratic(z, each.bins - np.diag(np.diagonal(each.bins))) / pairs for each in sums]
    kind = f"{asked.draws} draws of the spectral limit"
    return SteinOutcome.of(sums, "U", table, kind, _doubts(problem))


def _bin_sums(problem: SteinProblem, asked: Request) -> tuple[list[SteinSums], int]:
    """Sums between random bins of points for each kernel, and the number of pairs of points."""
    n = len(problem.sample.points)
    bins = min(asked.null.bins or BINS, n)
    order, starts = asked.rng.permutation(n), np.arange(bins) * n // bins
    X, S = problem.sample.points[order], problem.sample.scores[order]
    return [stein_sums(kernel, X, S, starts) for kernel in problem.resolved], n * (n - 1)


def _doubts(problem: SteinProblem) -> list[str]:
    """Reasons to doubt a null that assumes independent points and light tails."""
    return _looks_dependent(problem.sample.scores) + _few_points(problem.sample.scores)


def _quadratic(weights: np.ndarray, G: np.ndarray) -> np.ndarray:
    with one_blas_thread():
        return np.einsum("bs,bs->b", weights @ G, weights)


def _weigh_rows(problem: SteinProblem, asked: Request) -> SteinOutcome:
    """Draws with a normal weight for every block of rows.

    Normal weights and the "V" estimate: signs of a few blocks make too few different draws.
    """
    X, S = problem.sample.points, problem.sample.scores
    n, length = len(X), _length(asked.null.length, S)
    blocks = n // length
    starts = np.arange(blocks) * n // blocks
    sums = [stein_sums(kernel, X, S, starts) for kernel in problem.resolved]
    weights = asked.rng.standard_normal((asked.draws, blocks))
    table = np.array([_quadratic(weights, each.bins) for each in sums]) / n**2
    kind = f"wild bootstrap of blocks of {length} rows, {asked.draws} draws"
    return SteinOutcome.of(sums, "V", table, kind, _few_points(S))


def _length(given: int | str, S: np.ndarray) -> int:
    """How long a block is."""
    n = len(S)
    if given != "auto":
        return check_blocks(int(given), n)
    time = max(series_memory(column) for column in S.T)
    length = max(1, int(np.ceil((n * (time - 1) ** 2) ** (1 / 3))))
    if n < 40 * time:
        warn(
            f"the {n} rows are worth about {n / time:.0f} independent ones, too few for blocks of "
            "them to hold the level: the test may reject too often. Run the chain for longer.",
            DataWarning,
        )
    return max(1, min(length, n // FEWEST))


def series_memory(series: np.ndarray) -> float:
    """The autocorrelation time of a series."""
    n = len(series)
    centred = series - series.mean()
    if n < 4 or not np.any(centred):
        return 1.0
    products = lagged_products(centred)[: n // 4 * 2]
    return autocorrelation_time(products / products[0])


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
        'null="parametric" is exact; it needs a distribution of scipy.stats, or a sampler: '
        "null=Simulation(sampler)."
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
        'in the order of a chain or a series, use null="block".'
    ]


# --- simulation -----------------------------------------------------------------------------------


def _simulate_samples(problem: SteinProblem, asked: Request) -> SteinOutcome:
    """The statistics of simulated samples, computed as those of the sample itself."""
    sample, draws, refit = problem.sample, asked.draws, asked.null.refit
    sampler = _sampler(problem, asked)
    sums = [stein_sums(k, sample.points, sample.scores) for k in problem.resolved]
    n = len(sample.points)
    table = np.empty((len(problem.kernels), draws))
    # scores of many samples at once: distributions of SciPy take long to be asked
    together = 1 if refit is not None else max(1, TOGETHER // n)
    with one_blas_thread(), progress_bar(draws, "Simulated samples", asked.null.progress) as done:
        for some in spans(draws, together):
            drawn = [
                _draw_sample(problem, sampler, asked.rng) for _ in range(some.start, some.stop)
            ]
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


def _sampler(problem: SteinProblem, asked: Request) -> Sampler:
    """Draws from the density, of which the score must be known anywhere."""
    sampler = asked.null.sampler or problem.sampler
    if sampler is None:
        raise ValueError(
            'null="parametric" simulates samples of the density: pass null=Simulation(sampler), a '
            "function of (n, rng) that draws n points."
        )
    if asked.null.refit is None and not callable(problem.score) and problem.sampler is None:
        raise TypeError(
            'score: null="parametric" needs the score at simulated points. Pass a function of '
            "points, not its values at X."
        )
    return sampler


def _draw_sample(problem: SteinProblem, sampler: Sampler, rng: np.random.Generator) -> Array:
    """A simulated sample of as many points, of the same kind."""
    n, d = problem.sample.points.shape
    points = checks.vectors(sampler(n, rng), "the sampler's points")
    if tuple(points.shape) != (n, d):
        raise ValueError(
            f"sampler: expected {n} points of {d} coordinates, shape ({n}, {d}), got "
            f"shape {tuple(points.shape)}."
        )
    return checks.same_kind(points, problem.sample.given, "the sampler's points", "X")


NULLS = {
    "wild": NullMethod(Signs, _sign_bins),
    "spectral": NullMethod(SignsLimit, _draw_limit),
    "block": NullMethod(WeightedBlocks, _weigh_rows),
    "parametric": NullMethod(Simulation, _simulate_samples),
}


# --- the witness ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class SteinWitness(InWords):
    """How points should move to come nearer to the density: E k(X, x) ∇log p(X) + ∇k(X, x)."""

    kernel: Kernel
    sample: SteinSample

    def __call__(self, x: Any) -> Array:
        units = self.sample.units
        points, single = self.kernel.rows(x, self.sample.points)
        field = stein_field(self.kernel, self.sample.points, self.sample.scores, points / units)
        field = field * units
        return field[0] if single else field

    def effect(self) -> EffectSize:
        """How far the sample is from the density."""
        return stein_effect(self.kernel, self.sample)

    def columns(self) -> ColumnEffects:
        """The share of the squared moves that points should make in every column."""
        points, units = self.sample.points, self.sample.units
        some = points[choose_rows(len(points), MOVED)]
        field = stein_field(self.kernel, points, self.sample.scores, some)
        squares = np.mean((field * units) ** 2 / column_scales(points * units) ** 2, axis=0)
        shares = squares / (squares.sum() or 1.0)
        names = self.kernel.names or range(len(shares))
        no_interval = (math.nan, math.nan)
        return ColumnEffects.of(
            {
                name: EffectSize("share of moves", float(share), no_interval, rows=len(some))
                for name, share in zip(names, shares, strict=True)
            }
        )

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
