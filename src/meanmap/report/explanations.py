"""What could explain a shift: fitted on one half of the rows, tested on the other.

If a change explains a shift, training rows with the change applied look like test rows. Weights are
applied by rejection: a row is kept with a probability proportional to its weight. The rows that are
kept are independent draws from the weighted distribution, so that the two-sample test keeps its
level, which it would not with rows drawn with replacement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meanmap.adaptation import KernelMeanMatching, TargetShift
from meanmap.arrays import Points, take
from meanmap.comparison import two_sample_test
from meanmap.conditional.selection import effective_size
from meanmap.exceptions import quiet
from meanmap.kernels import Gaussian, Kernel
from meanmap.report.samples import Samples, Targets, all_rows, pair_rows
from meanmap.statistics.columns import positive_ratio
from meanmap.statistics.weighted import distance_and_influence, nearest_distances, squared_distance

LEAST = 40  # rows per sample that halves need
KEPT = 15  # rows that a test of the rest needs
ENOUGH = 0.5  # share of the squared distance that an explanation must remove
#: Shares that are enough whatever a test still detects in large samples. Weights on rows are
#: shrunk, and so always leave something.
NEARLY = {"weights on rows": 0.8, "weights on targets": 0.95, "location and scale": 0.95}
FAR = 0.99  # share of training rows with a nearest neighbour closer than what is called far
SCARCE = 0.05  # share of the rows that weights must rest on
#: Standard errors by which an explanation must be worse than the best: a chance of one in 100.
TIED = 2.33
#: The share of a class below which it has vanished, and the share in training that it had before.
EDGE, PRESENT = 0.02, 0.05
DRAWS = 100  # bootstrap draws of the proportions of classes


@dataclass(frozen=True)
class Explanation:
    """How much of a shift one kind of change explains, on rows that it was not fitted on."""

    name: str
    #: The share of the squared MMD that it removes; NaN if the squared MMD is not positive.
    explained: float
    #: Of a two-sample test of the rest; NaN if too few rows are left to test.
    pvalue: float
    #: The effective number of weighted training rows, and their number.
    effective_size: float
    size: int
    #: What it found, in words.
    found: str = ""
    #: By how many standard errors it leaves more than the best explanation.
    behind: float = 0.0
    #: Whether it is at its limit: a class that has vanished, or weights at their bound.
    at_edge: bool = False
    #: The same test of rows with their targets, NaN if test rows have none: small if the targets
    #: still differ when the rows no longer do.
    with_targets: float = math.nan

    def holds(self, level: float) -> bool:
        """Whether it explains most of the shift, and the rest could be chance."""
        enough = self.explained >= ENOUGH and self.effective_size >= max(5, SCARCE * self.size)
        if self.at_edge or not enough:
            return False
        return self.explained >= NEARLY[self.name] or bool(self.pvalue > level)

    @property
    def is_tied(self) -> bool:
        """Whether it is about as good as the best explanation."""
        near = self.behind <= TIED or self.explained >= NEARLY[self.name]
        return near and not self.at_edge


@dataclass(frozen=True, eq=False)
class Halves:
    """Rows to fit on and rows to test on, of both samples, and a kernel to measure with."""

    samples: Samples
    seen: tuple[np.ndarray, np.ndarray]
    unseen: tuple[np.ndarray, np.ndarray]
    kernel: Kernel
    rng: np.random.Generator

    @classmethod
    def of(cls, samples: Samples, kernel: Kernel, rng: np.random.Generator) -> Halves:
        orders = [rng.permutation(size) for size in samples.used]
        (a, b), (c, d) = (map(np.sort, np.split(order, [len(order) // 2])) for order in orders)
        return cls(samples, (a, c), (b, d), kernel, rng)

    def fit_on(self) -> tuple[Points, Points]:
        return take(self.samples.train, self.seen[0]), take(self.samples.test, self.seen[1])

    def test_on(self) -> tuple[Points, Points]:
        return take(self.samples.train, self.unseen[0]), take(self.samples.test, self.unseen[1])

    def swapped(self) -> Halves:
        return Halves(self.samples, self.unseen, self.seen, self.kernel, self.rng)

    def judge(self, weights: np.ndarray, rows: Points, targets: Targets | None = None) -> Trial:
        """What is left of the shift with weighted, perhaps transformed, training rows."""
        before, test = self.test_on()
        whole = squared_distance(self.kernel, before, test)
        weights = np.maximum(weights, 0.0)
        w = weights / weights.sum() if weights.any() else np.full(len(weights), 1 / len(weights))
        left, at_rows, at_test = distance_and_influence(self.kernel, rows, test, w)
        kept = np.flatnonzero(self.rng.random(len(w)) * w.max() < w)
        pvalue = math.nan
        if len(kept) >= KEPT:
            pvalue = two_sample_test(
                take(rows, kept), test, self.samples.kernel, rng=self.rng
            ).pvalue
        other = math.nan if targets is None else self.with_targets(kept, targets)
        size = effective_size(w)
        return Trial(whole, left, pvalue, size, len(w), other, at_rows, at_test)

    def with_targets(self, kept: np.ndarray, targets: Targets) -> float:
        """The p-value of rows with targets, for the training rows that were kept."""
        labelled = np.flatnonzero(np.isin(targets.labelled, self.unseen[1]))
        if min(len(kept), len(labelled)) < KEPT:
            return math.nan
        train, test, kernel = pair_rows(self.samples, targets)
        train, test = take(train, self.unseen[0][kept]), take(test, labelled)
        return two_sample_test(train, test, kernel, rng=self.rng).pvalue


@dataclass(frozen=True, eq=False)
class Trial:
    """What is left of a shift on one half of the rows."""

    whole: float
    left: float
    pvalue: float
    effective_size: float
    size: int
    with_targets: float
    at_rows: np.ndarray  # what each training row adds to `left`, to first order
    at_test: np.ndarray  # what each test row adds


Trials = tuple[Trial, Trial]


def both_ways(halves: Halves, attempt: Any) -> Trials | None:
    """Fit on each half in turn."""
    trials = attempt(halves), attempt(halves.swapped())
    return None if None in trials else trials


def standard_errors_behind(trials: Trials, best: Trials) -> float:
    """The number of standard errors by which one explanation leaves more than another."""
    more = sum(t.left for t in trials) - sum(t.left for t in best)
    variance = 0.0
    for mine, other in zip(trials, best, strict=True):
        for a, b in ((mine.at_rows, other.at_rows), (mine.at_test, other.at_test)):
            variance += float(np.var(a - b)) / len(a)
    return more / math.sqrt(variance) if variance > 0 else 0.0


def summarize(name: str, trials: Trials, best: Trials) -> Explanation:
    """One explanation; twice the mean of p-values is a p-value (Vovk and Wang 2020)."""
    whole, left = sum(t.whole for t in trials), sum(t.left for t in trials)
    return Explanation(
        name,
        min(1.0, 1 - left / whole) if whole > 0 else math.nan,
        min(1.0, sum(t.pvalue for t in trials)),
        sum(t.effective_size for t in trials),
        sum(t.size for t in trials),
        behind=max(standard_errors_behind(trials, best), 0.0),
        with_targets=min(1.0, sum(t.with_targets for t in trials)),
    )


def measure(samples: Samples) -> Kernel:
    """A kernel that measures distances between rows."""
    kernel = samples.kernel if samples.kernel is not None else Gaussian("scaled median")
    return kernel.resolve(all_rows(samples))


def fit_quietly(model: Any, test: Points, *train: Any) -> Any:
    """Fit a model of a shift without its warnings: the report has figures for them."""
    with quiet():
        return model.fit(*train, X_test=test)


def by_weights(halves: Halves, targets: Targets | None) -> Trial:
    """Covariate shift: training rows weighted by how likely they are among the test rows."""
    matching = KernelMeanMatching(halves.samples.kernel, random_state=halves.rng)
    train, test, rows = *halves.fit_on(), halves.test_on()[0]
    weights = fit_quietly(matching, test, train).weights(rows)
    return halves.judge(weights, rows, targets)


def by_targets(halves: Halves, targets: Targets) -> Trial | None:
    """Target shift: training rows weighted by their targets; None if targets do not vary."""
    y = targets.plain
    seen, unseen = y[halves.seen[0]], y[halves.unseen[0]]
    if len(np.unique(seen)) < 2:
        return None
    train, test, rows = *halves.fit_on(), halves.test_on()[0]
    kernels = halves.samples.kernel, targets.kernel
    model = TargetShift(*kernels, n_bootstrap=0, random_state=halves.rng)
    fit_quietly(model, test, train, seen)
    if not targets.classes:
        return halves.judge(model.weights(unseen), rows)
    known = np.isin(unseen, model.classes_)  # a class that one half has not seen has no weight
    weights = np.zeros(len(unseen))
    weights[known] = model.weights(unseen[known])
    return halves.judge(weights, rows)


def shifted_targets(
    samples: Samples, targets: Targets, rng: np.random.Generator
) -> tuple[str, bool]:
    """The targets under target shift, fitted to all rows, and whether it is at its limit."""
    draws = DRAWS if targets.classes else 0
    model = TargetShift(samples.kernel, targets.kernel, n_bootstrap=draws, random_state=rng)
    fit_quietly(model, samples.test, samples.train, targets.plain)
    if not targets.classes:
        mean = float(np.average(targets.plain, weights=model.weights_))
        edge = bool(model.weights_.max() >= 0.99 * model.bound_)
        return f"mean target {targets.plain.mean():.3g} → {mean:.3g}", edge
    before, after, interval = model.proportions_train_, model.proportions_, model.interval()
    words = ", ".join(
        f"{model.classes_[i]} {before[i]:.0%} → {after[i]:.0%} "
        f"({interval[i, 0]:.0%} to {interval[i, 1]:.0%})"
        for i in np.argsort(-np.abs(after - before), kind="stable")[:3]
    )
    return words, bool(((before >= PRESENT) & (after < EDGE)).any())


def by_location_and_scale(halves: Halves) -> Trial | None:
    """Another location and scale of each numeric column; None without such columns."""
    movable = halves.samples.movable
    if movable is None:
        return None
    train, test = (np.asarray(part)[:, movable] for part in halves.fit_on())
    rows = np.array(halves.test_on()[0], dtype=np.float64)
    W = positive_ratio(test.std(axis=0), train.std(axis=0), 1.0)
    rows[:, movable] = (rows[:, movable] - train.mean(axis=0)) * W + test.mean(axis=0)
    return halves.judge(np.ones(len(rows)), rows)


def share_outside(samples: Samples) -> float:
    """The share of test rows that are farther from training rows than these are from each other.

    Farther, that is, than the nearest neighbours of 99% of the training rows, in the kernel's
    distance on the scale of the training rows. Without a shift it is about 1%.
    """
    kernel = samples.kernel if samples.kernel is not None else Gaussian("scaled median")
    train, test = samples.train, samples.test
    movable = samples.movable
    if samples.kernel is None and movable is not None:
        # standard deviations of the training rows: a gap between the samples widens those of both
        spread = train.std(axis=0)
        spread = np.where(movable & (spread > 0), spread, 1.0)
        train, test = train / spread, test / spread
    kernel = kernel.resolve(train)
    own = nearest_distances(kernel, train, train, True)
    return float((nearest_distances(kernel, test, train, False) > np.quantile(own, FAR)).mean())


def explanations(
    samples: Samples, targets: Targets | None, kernel: Any, rng: np.random.Generator
) -> tuple[Explanation, ...]:
    """Everything that can be tried with these samples; nothing if they are too small.

    Distances are measured with the kernel that the test chose, which detects the difference.
    """
    if min(samples.used) < LEAST:
        return ()
    halves = Halves.of(samples, kernel, rng)
    trials = {"weights on rows": both_ways(halves, lambda h: by_weights(h, targets))}
    words, at_edge = "", False
    if targets is not None:
        trials["weights on targets"] = both_ways(halves, lambda h: by_targets(h, targets))
        if trials["weights on targets"] is not None:
            words, at_edge = shifted_targets(samples, targets, rng)
    trials["location and scale"] = both_ways(halves, by_location_and_scale)
    tried = {name: found for name, found in trials.items() if found is not None}
    free = [name for name in tried if not (at_edge and name == "weights on targets")]
    best = tried[min(free, key=lambda name: sum(t.left for t in tried[name]))]
    own: dict[str, Any] = {"weights on targets": {"found": words, "at_edge": at_edge}}
    return tuple(
        replace(summarize(name, one, best), **own.get(name, {})) for name, one in tried.items()
    )
