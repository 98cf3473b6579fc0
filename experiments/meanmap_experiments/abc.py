"""Bayesian computation without a likelihood (Fukumizu, Song and Gretton 2013, 5.2).

Kernel Bayes' rule, the conditional mean (eq. 19) and rejection on the Gaussian models of section
5.1, where the exact posterior is known. Parameters are drawn from the prior and observations from
the prior predictive distribution. The paper draws errors against seconds (Figure 3) and prints the
ranks of its incomplete Cholesky factors, not the rule by which they stop: both rules are tried.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap import plots
from meanmap.conditional import ConditionalEmbedding
from meanmap.kernels import Gaussian
from meanmap.kernels.bandwidths import median_distance
from meanmap.likelihood_free import KernelABC
from meanmap.spaces import PivotedCholesky
from meanmap_experiments.bayes import LinearGaussian, squared_distances
from meanmap_experiments.results import Claim, Curves, Figure, Outcome, Table
from meanmap_experiments.runs import each

OWN = "KernelABC, automatic"
KBR, COND = "KBR, ε = 0.01/n, δ = 2ε", "COND, ε = 0.01/√n"
REJECTION = "rejection, best tolerance"
MEANS, INTERVALS = "posterior and its mean", "posterior and its 90% interval"
KERNEL = (OWN, KBR, COND)

COUNTS = tuple(int(c * 10**k) for k in range(5) for c in (1, 2, 5)) + (100_000,)
SHARES = tuple(float(s) for s in np.geomspace(0.02, 1.0, 14))  # of the outputs' median distance

TOLERANCE = 1e-3  # of the paper's incomplete Cholesky
LONGEST = 2500  # columns after which a factor that has not stopped is left
PUBLISHED = {(2, 200): 30, (2, 6000): 50, (6, 200): 180, (6, 6000): 1200}  # ranks, "around"
FLOORS = {2: 0.02, 6: 0.11}  # errors to be reached with 2,000 simulations
AT = 2000
LEVEL, LEAST, MOST = 0.9, 0.85, 0.95  # of credible intervals, and what they have to cover
LIMIT = 20.0  # milliseconds for a new posterior

Key = tuple[int, str, int]  # d, method, simulations
Values = dict[Key, list[float]]


@dataclass(frozen=True)
class Plan:
    """How much is done."""

    dimensions: tuple[int, ...] = (2, 6)
    sizes: tuple[int, ...] = (200, 500, 1000, 2000, 6000)  # simulations for all methods
    budgets: tuple[int, ...] = (10_000, 100_000, 1_000_000)  # and more, for rejection
    runs: int = 20
    tests: int = 100  # observations a run
    timed: int = 10  # of them that seconds are measured with
    ranks: tuple[int, ...] = (200, 6000)  # sizes whose ranks are counted
    factored: int = 3  # runs of that


FULL = Plan()
QUICK = Plan(sizes=(200, 1000), budgets=(10_000, 100_000), runs=3, tests=40, ranks=(200, 1000))


def run(
    quick: bool = False,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: bool | None = None,
    plan: Plan | None = None,
) -> Outcome:
    """Posterior means from simulations, by kernels and by rejection.

    Parameters
    ----------
    quick, seed, n_jobs, progress : as in `meanmap_experiments.run`
    plan : Plan or None
        How much is done, if neither the quick nor the full experiment.

    Examples
    --------
    >>> plan = Plan((2,), (100,), (500,), runs=2, tests=10, timed=2, ranks=(100,), factored=1)
    >>> run(plan=plan).name
    'abc'
    """
    plan = plan or (QUICK if quick else FULL)
    widest_first = sorted(plan.dimensions, reverse=True)
    jobs = [(plan, d, i, seed) for d in widest_first for i in range(plan.runs)]
    found = each(one_run, jobs, "abc", n_jobs, progress)
    errors: Values = {}
    seconds: Values = {}
    covered: Values = {}
    answers: dict[tuple[int, str], list[float]] = {}
    trials: dict[tuple[int, int], list[np.ndarray]] = {}
    for (_, d, *_), result in zip(jobs, found, strict=True):
        for into, values in (
            (errors, result.errors),
            (seconds, result.seconds),
            (covered, result.covered),
        ):
            for (method, n), value in values.items():
                into.setdefault((d, method, n), []).append(value)
        for n, tried in result.trials.items():
            trials.setdefault((d, n), []).append(tried)
        for what, value in result.milliseconds.items():
            answers.setdefault((d, what), []).append(value)
    chosen: dict[tuple[int, int], str] = {}
    for (d, n), rows in trials.items():
        # the tolerance whose mean error over runs is least: in hindsight, in rejection's favour
        at = int(np.mean(rows, axis=0).argmin())
        errors[d, REJECTION, n] = [float(row[at]) for row in rows]
        chosen[d, n] = tolerance_words(at, n)
    pairs = [(d, n) for d in widest_first for n in sorted(plan.ranks, reverse=True)]
    factors = [(d, n, i, seed) for d, n in pairs for i in range(plan.factored)]
    stopped = each(factor_ranks, factors, "ranks", n_jobs, progress)
    ranks: dict[tuple[int, int], list[tuple[int | None, ...]]] = {}
    for (d, n, *_), stops in zip(factors, stopped, strict=True):
        ranks.setdefault((d, n), []).append(stops)
    return Outcome(
        name="abc",
        title="Bayesian computation without a likelihood: kernels and rejection",
        citation="Fukumizu, Song and Gretton (2013), section 5.2 and Figure 3",
        settings={
            "model": "θ ~ N(0, V_XX/2), y ~ N(Bθ + 1, S) of the joint N((0, 1), V), V = AᵀA + 2I "
            "of size 2d, A standard normal in each run",
            "data": f"{plan.runs} runs of {plan.tests} observations from the prior predictive",
            "error": "squared error of the posterior mean, a coordinate",
            "KBR, COND": "the paper's settings, Gaussian kernels at the median distance, "
            f"incomplete Cholesky until the residual trace is below {TOLERANCE:g}",
            "rejection": "the mean of the parameters whose outputs lie within a tolerance of y: "
            f"{len(SHARES)} fixed ones from {SHARES[0]:g} to {SHARES[-1]:g} of the outputs' median "
            f"distance, and the distances of the nearest {COUNTS[0]} to {COUNTS[-1]:,}; for each "
            "budget the best in hindsight",
            "seconds": f"simulating, learning and answering {plan.timed} observations, one "
            "thread; rejection with one tolerance",
        },
        tables=(
            *(error_table(plan, d, errors) for d in plan.dimensions),
            *(far_table(plan, d, errors, chosen) for d in plan.dimensions),
            *(seconds_table(plan, d, seconds) for d in plan.dimensions),
            coverage_table(plan, covered),
            answer_table(plan, answers),
            rank_table(plan, ranks),
        ),
        verdict=verdict(plan, errors, seconds, covered, answers),
        quick=quick,
        seed=seed,
        picture=Panels(plan, errors, seconds),
    )


# --- rejection ------------------------------------------------------------------------------------


def accepted_mean(
    theta: np.ndarray, outputs: np.ndarray, y: np.ndarray, tolerance: float
) -> np.ndarray:
    """The mean of the parameters whose outputs lie within a tolerance of y (4.4, i to iv).

    If no output does, the parameter of the nearest one.
    """
    gap = outputs - y
    squares = np.einsum("ij,ij->i", gap, gap)
    accepted = squares < tolerance**2
    if not accepted.any():
        return np.asarray(theta[squares.argmin()])
    return np.asarray(theta[accepted].mean(axis=0))


def all_means(
    theta: np.ndarray, outputs: np.ndarray, y: np.ndarray, fixed: np.ndarray
) -> np.ndarray:
    """The means of `accepted_mean` for all tolerances of both grids, (tolerances, d).

    First those at which the nearest 1, 2, 5, … are accepted, which differ from one observation to
    the next, then the fixed ones. At most 100,000 are accepted.
    """
    gap = outputs - y
    squares = np.einsum("ij,ij->i", gap, gap)
    most = min(COUNTS[-1], len(theta))
    near = np.argpartition(squares, most - 1)[:most]
    near = near[np.argsort(squares[near])]
    means = np.cumsum(theta[near], axis=0) / np.arange(1, most + 1)[:, None]
    within = np.searchsorted(squares[near], fixed**2)
    accepted = np.clip([*COUNTS, *within], 1, most)
    return means[accepted - 1]


def tolerance_words(at: int, n: int) -> str:
    """Which of the tolerances it is, with n simulations."""
    if at < len(COUNTS):
        return f"the nearest {min(COUNTS[at], n):,}"
    return f"{SHARES[at - len(COUNTS)]:.2f} × median"


# --- incomplete Cholesky --------------------------------------------------------------------------


def greedy_ranks(
    points: np.ndarray, bandwidth: float, tol: float = TOLERANCE, longest: int = LONGEST
) -> tuple[int | None, int | None]:
    """Ranks of a Gaussian Gram matrix, pivots at the largest residual (Fine and Scheinberg 2001).

    The ranks at which the largest residual and the sum of residuals fall below `tol`, None where
    that takes more than `longest` columns.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(200, 1))
    >>> greedy_ranks(x, 1.0)
    (8, 9)
    """
    n = len(points)
    left = np.ones(n)
    rows = np.empty((min(64, n), n))
    by_largest: int | None = None
    for r in range(min(longest, n) + 1):
        if by_largest is None and left.max() < tol:
            by_largest = r
        if left.sum() < tol:
            return by_largest, r
        if r == min(longest, n):
            break
        if r == len(rows):
            rows = np.concatenate([rows, np.empty_like(rows)])
        pivot = int(left.argmax())
        squares = squared_distances(points[pivot : pivot + 1], points)[0]
        column = np.exp(-squares / (2 * bandwidth**2)) - rows[:r, pivot] @ rows[:r]
        rows[r] = column / np.sqrt(left[pivot])
        left = np.maximum(left - rows[r] ** 2, 0.0)
        left[pivot] = 0.0
    return by_largest, None


def factor_ranks(d: int, n: int, index: int, seed: int) -> tuple[int | None, ...]:
    """Ranks by both rules of the parameters' Gram matrix, then of the outputs'."""
    rng = np.random.default_rng((seed, 2, d, n, index))
    model = LinearGaussian.drawn(d, rng)
    theta = model.prior(n, rng)
    outputs = model.simulate(theta, rng)
    stops: list[int | None] = []
    for points in (theta, outputs):
        stops += greedy_ranks(points, median_distance(points))
    return tuple(stops)


# --- runs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """What one run found, by method and simulations."""

    errors: dict[tuple[str, int], float]
    seconds: dict[tuple[str, int], float]
    covered: dict[tuple[str, int], float]
    trials: dict[int, np.ndarray]  # the errors of rejection with every tolerance
    milliseconds: dict[str, float]


def one_run(plan: Plan, d: int, index: int, seed: int) -> Found:
    """Every method on one model and the same observations."""
    rng = np.random.default_rng((seed, 1, d, index))
    model = LinearGaussian.drawn(d, rng)
    truth = model.prior(plan.tests, rng)
    y = model.simulate(truth, rng)
    exact = model.posterior_mean(y)
    some = y[: plan.timed]
    found = Found({}, {}, {}, {}, {})

    def error(means: np.ndarray) -> float:
        return float(((means - exact) ** 2).mean())

    for n in (*plan.sizes, *plan.budgets):
        (theta, outputs), simulating = clocked(simulations, model, n, rng)
        for method, learn in ((KBR, rule), (COND, conditional)):
            if n in plan.sizes:
                answer, learning = clocked(learn, theta, outputs)
                _, answering = clocked(answer, some)
                found.seconds[method, n] = simulating + learning + answering
                found.errors[method, n] = error(answer(y))
        fixed = np.array(SHARES) * median_distance(outputs)
        tried = np.stack([all_means(theta, outputs, value, fixed) for value in y])
        found.trials[n] = ((tried - exact[:, None]) ** 2).mean(axis=(0, 2))
        _, answering = clocked(rejection, theta, outputs, some, fixed[len(fixed) // 2])
        found.seconds[REJECTION, n] = simulating + answering

    state = int(rng.integers(2**31))
    for n in plan.sizes:
        own = KernelABC(model.simulate, model.prior, random_state=state, progress=False)
        _, learning = clocked(own.fit, n)
        _, answering = clocked(own_mean, own, some)
        found.seconds[OWN, n] = learning + answering
        posterior = own.posterior(y)
        found.errors[OWN, n] = error(np.asarray(posterior.mean()))
        low, high = posterior.interval(LEVEL)
        found.covered[OWN, n] = float(((low <= truth) & (truth <= high)).mean())
        if n == plan.sizes[-1]:
            for what, ask in ((MEANS, own_mean), (INTERVALS, own_interval)):
                took = [clocked(ask, own, value)[1] for value in y[:20]]
                found.milliseconds[what] = 1e3 * float(np.median(took))
    return found


def clocked(work: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """What some work gives, and the seconds it takes."""
    began = time.perf_counter()
    result = work(*arguments)
    return result, time.perf_counter() - began


def simulations(
    model: LinearGaussian, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Parameters from the prior, and an output for each."""
    theta = model.prior(n, rng)
    return theta, model.simulate(theta, rng)


def rejection(
    theta: np.ndarray, outputs: np.ndarray, y: np.ndarray, tolerance: float
) -> np.ndarray:
    """The posterior mean of each observation from the same simulations."""
    return np.stack([accepted_mean(theta, outputs, value, tolerance) for value in y])


def own_mean(own: KernelABC, y: np.ndarray) -> Any:
    return own.posterior(y).mean()


def own_interval(own: KernelABC, y: np.ndarray) -> Any:
    return own.posterior(y).interval(LEVEL)


def rule(theta: np.ndarray, outputs: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Kernel Bayes' rule (eq. 12) with the paper's settings; the prior is the sample itself."""
    n = len(theta)
    basis = PivotedCholesky(TOLERANCE / n)  # residual trace, relative to a trace of n
    model = ConditionalEmbedding(Gaussian(), Gaussian(), 0.01 / n, basis).fit(theta, outputs)
    posterior = model.posterior(theta, "squared", 0.02 / n)
    return lambda y: np.asarray(posterior.predict(y))


def conditional(theta: np.ndarray, outputs: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The conditional mean (eq. 19) with the paper's settings."""
    n = len(theta)
    basis = PivotedCholesky(TOLERANCE / n)
    model = ConditionalEmbedding(Gaussian(), Gaussian(), 0.01 / n**0.5, basis).fit(outputs, theta)
    return lambda y: np.asarray(model.predict(y))


# --- what is reported -----------------------------------------------------------------------------


def error_table(plan: Plan, d: int, errors: Values) -> Table:
    rows: list[tuple[Any, ...]] = [
        (method, *(Figure.of(errors[d, method, n]) for n in plan.sizes))
        for method in (*KERNEL, REJECTION)
    ]
    headings = ("method", *(f"n = {n:,}" for n in plan.sizes))
    return Table(f"Squared error at equal budgets, d = {d}", headings, tuple(rows))


def far_table(plan: Plan, d: int, errors: Values, chosen: dict[tuple[int, int], str]) -> Table:
    rows: list[tuple[Any, ...]] = [
        (f"{n:,}", Figure.of(errors[d, REJECTION, n]), chosen[d, n])
        for n in (*plan.sizes, *plan.budgets)
    ]
    headings = ("simulations", "error", "accepted")
    return Table(f"Rejection at its best tolerance, d = {d}", headings, tuple(rows))


def seconds_table(plan: Plan, d: int, seconds: Values) -> Table:
    budgets = (*plan.sizes, *plan.budgets)
    rows: list[tuple[Any, ...]] = [
        (m, *(Figure.of(v) if (v := seconds.get((d, m, n))) else None for n in budgets))
        for m in (*KERNEL, REJECTION)
    ]
    headings = ("method", *(f"n = {n:,}" for n in budgets))
    return Table(f"Seconds for {plan.timed} observations, d = {d}", headings, tuple(rows))


def coverage_table(plan: Plan, covered: Values) -> Table:
    rows: list[tuple[Any, ...]] = [
        (f"d = {d}", *(Figure.of(covered[d, OWN, n]) for n in plan.sizes)) for d in plan.dimensions
    ]
    headings = ("model", *(f"n = {n:,}" for n in plan.sizes))
    title = f"Share of parameters in KernelABC's {LEVEL:.0%} intervals"
    return Table(title, headings, tuple(rows))


def answer_table(plan: Plan, answers: dict[tuple[int, str], list[float]]) -> Table:
    rows: list[tuple[Any, ...]] = [
        (what, *(Figure.of(answers[d, what]) for d in plan.dimensions))
        for what in (MEANS, INTERVALS)
    ]
    headings = ("a new observation", *(f"d = {d}" for d in plan.dimensions))
    return Table(f"Milliseconds after a fit of n = {plan.sizes[-1]:,}", headings, tuple(rows))


def rank_table(plan: Plan, ranks: dict[tuple[int, int], list[tuple[int | None, ...]]]) -> Table:
    rows: list[tuple[Any, ...]] = []
    published: list[int | None] = []
    for d in plan.dimensions:
        for n in plan.ranks:
            columns = zip(*ranks[d, n], strict=True)
            rows.append((f"d = {d}, n = {n:,}", *map(mean_rank, columns)))
            published.append(PUBLISHED.get((d, n)))
    headings = ("Gram matrix", "θ, largest", "θ, trace", "y, largest", "y, trace")
    title = f"Ranks where the largest residual, or the residual trace, falls below {TOLERANCE:g}"
    return Table(title, headings, tuple(rows), tuple(published))


def mean_rank(stops: tuple[int | None, ...]) -> int | str:
    """The mean over runs, where all of them stopped."""
    known = [stop for stop in stops if stop is not None]
    return round(float(np.mean(known))) if len(known) == len(stops) else f"> {LONGEST:,}"


def listed(numbers: Iterable[float], form: str = ".2f") -> str:
    return ", ".join(f"{number:{form}}" for number in numbers)


def verdict(
    plan: Plan,
    errors: Values,
    seconds: Values,
    covered: Values,
    answers: dict[tuple[int, str], list[float]],
) -> tuple[Claim, ...]:
    mean = {key: float(np.mean(values)) for key, values in errors.items()}
    took = {key: float(np.mean(values)) for key, values in seconds.items()}
    sizes = ", ".join(f"{n:,}" for n in plan.sizes)
    lines = []
    for d in plan.dimensions:
        against = {n: mean[d, OWN, n] / mean[d, REJECTION, n] for n in plan.sizes}
        lost = [f"{n:,}" for n, share in against.items() if share >= 1]
        text = (
            f"d = {d}: KernelABC's error over that of rejection at its best tolerance, with equal "
            f"simulations: {listed(against.values())} at n = {sizes}; "
            + (f"not below it at n = {', '.join(lost)}." if lost else "below it at every budget.")
        )
        lines.append(Claim(text, not lost))
    for d in plan.dimensions:
        if AT not in plan.sizes or d not in FLOORS:
            continue
        words = [
            f"{method} {mean[d, method, AT]:.4f} "
            + ("(reached)" if mean[d, method, AT] <= FLOORS[d] else "(not reached)")
            for method in KERNEL
        ]
        reached = all(mean[d, method, AT] <= FLOORS[d] for method in KERNEL)
        text = f"d = {d}, n = {AT:,}, to be at most {FLOORS[d]:g}: {'; '.join(words)}."
        lines.append(Claim(text, reached, mean[d, OWN, AT]))
    for d in plan.dimensions:
        n = AT if AT in plan.sizes else plan.sizes[-1]
        goal = mean[d, OWN, n]
        enough = [b for b in (*plan.sizes, *plan.budgets) if mean[d, REJECTION, b] <= goal]
        said = f"d = {d}: KernelABC's error with n = {n:,}, in {took[d, OWN, n]:.2g} s, "
        if enough:
            least = min(enough)
            quicker = took[d, REJECTION, least]
            said += f"takes rejection {least:,} simulations and {quicker:.2g} s; "
            # the price of a simulation at which the fewer of them make up for the learning
            price = (took[d, OWN, n] - quicker) / (least - n) if least > n else np.inf
            said += (
                f"KernelABC is the quicker where one simulation costs {1e6 * price:.2g} µs more."
                if 0 < price < np.inf
                else f"KernelABC is {'never' if price > 0 else 'always'} the quicker."
            )
        else:
            most = max((*plan.sizes, *plan.budgets))
            said += f"is not reached by rejection with {most:,}, which gives "
            said += f"{mean[d, REJECTION, most]:.3g} against {goal:.3g}."
        lines.append(Claim(said))
    shares = {(d, n): float(np.mean(values)) for (d, _, n), values in covered.items()}
    outside = [f"d = {d}, n = {n:,}" for (d, n), s in shares.items() if not LEAST <= s <= MOST]
    text = (
        f"{LEVEL:.0%} intervals of KernelABC hold {min(shares.values()):.1%} to "
        f"{max(shares.values()):.1%}; "
        + ("outside" if outside else "within")
        + f" {LEAST:.0%} to {MOST:.0%} {'at ' + '; '.join(outside) if outside else 'everywhere'}."
    )
    lines.append(Claim(text, not outside))
    slowest = max(float(np.mean(answers[d, MEANS])) for d in plan.dimensions)
    text = (
        f"A new posterior after n = {plan.sizes[-1]:,} takes at most {slowest:.2g} ms, "
        + ("within" if slowest <= LIMIT else "beyond")
        + f" {LIMIT:g} ms."
    )
    lines.append(Claim(text, slowest <= LIMIT, slowest))
    better = [
        f"d = {d}, n = {n:,}"
        for d in plan.dimensions
        for n in plan.sizes
        if mean[d, COND, n] < mean[d, KBR, n]
    ]
    text = (
        "With the paper's settings the conditional mean is better than KBR at "
        f"{'; '.join(better) if better else 'no budget'}."
    )
    quoted = (
        '"the conditional kernel mean yields the best results", "kernel methods achieve more '
        'accurate results than ABC at a given computational cost" (no figures).'
    )
    lines += [Claim(text), Claim.quote(quoted)]
    return tuple(lines)


@dataclass(frozen=True)
class Panels:
    """Errors against simulations and against seconds, a row of panels for each dimension."""

    plan: Plan
    errors: Values
    seconds: Values

    def __call__(self, axes: Any = None) -> Any:
        """Draw on a grid of axes, (dimensions, 2), or on a new one, which is returned."""
        plan = self.plan
        count = len(plan.dimensions)
        if axes is None:
            figure = plots.axes().figure
            figure.clear()
            figure.set_size_inches(10, 3.6 * count)
            axes = plots.sheets(figure, count, 2, sharey="row", squeeze=False)
        grid = np.asarray(axes, dtype=object).reshape(count, 2)
        for d, (left, right) in zip(plan.dimensions, grid, strict=True):
            for ax, seconds, label in (
                (left, False, "simulations"),
                (right, True, f"seconds for {plan.timed} observations"),
            ):
                Curves(f"d = {d}", label, "squared error", self.curves(d, seconds), logy=True)(ax)
                ax.set_xscale("log")
        return grid

    def curves(
        self, d: int, seconds: bool
    ) -> tuple[tuple[str, tuple[float, ...], tuple[Figure, ...]], ...]:
        """Every method's errors, by its simulations or by its seconds."""
        plan = self.plan
        curves = []
        for method in (*KERNEL, REJECTION):
            more = plan.budgets if method == REJECTION else ()
            budgets = sorted((*plan.sizes, *more))
            x = [float(np.mean(self.seconds[d, method, n])) if seconds else n for n in budgets]
            figures = tuple(Figure.of(self.errors[d, method, n]) for n in budgets)
            curves.append((method, tuple(map(float, x)), figures))
        return tuple(curves)
