"""What a shift could be explained by: fitted on one half of the rows, tested on the other.

A change that explains a shift, applied to training rows, leaves nothing to see. Weights are applied
by rejection: a row is kept with a probability proportional to its weight. Rows that are kept are
independent draws from the weighted distribution, so that the two-sample test keeps its level, which
rows drawn with replacement would not let it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meanmap.adaptation import KernelMeanMatching, TargetShift
from meanmap.arrays import Points, count, take
from meanmap.comparison import two_sample_test
from meanmap.conditional.selection import effective_size
from meanmap.exceptions import quiet
from meanmap.kernels import Gaussian, Kernel
from meanmap.report.samples import Samples, Targets, all_rows, pair_rows
from meanmap.statistics.columns import positive_ratio

LEAST = 40  # rows of a sample without which halves say nothing
KEPT = 15  # rows that a test of what is left needs
ENOUGH = 0.5  # of the squared distance that an explanation must remove
#: Of it removed, an explanation is good enough whatever a test still sees in large samples. Weights
#: on rows are shrunk, and so always leave something.
NEARLY = {"weights on rows": 0.8, "weights on targets": 0.95, "location and scale": 0.95}
FAR = 0.99  # share of training rows whose nearest neighbour is nearer than what is called far
SCARCE = 0.05
TIED = (
    2.33  # standard errors by which an explanation must be worse than the best: one chance in 100
)
EDGE, PRESENT = (
    0.02,
    0.05,
)  # a share of a class that is called gone, and one in training that is not
DRAWS = 100  # bootstrap draws of the proportions of classes


@dataclass(frozen=True)
class Explanation:
    """How much of a shift one kind of change explains, on rows that it was not fitted on."""

    name: str
    #: The share of the squared MMD that it removes; NaN where there was none to remove.
    explained: float
    #: Of a two-sample test of what is left; NaN where too few rows are left to test.
    pvalue: float
    #: Unweighted training rows that say as much as the weighted ones, of how many.
    effective_size: float
    size: int
    #: What it found, in words.
    found: str = ""
    #: By how many standard errors it leaves more than the best explanation.
    behind: float = 0.0
    #: Whether it lies at the edge of what it can do: a class that is gone, weights at their bound.
    at_edge: bool = False
    #: The same test of rows with their targets, NaN where test rows have none: small if the targets
    #: differ where the rows do not any more.
    with_targets: float = math.nan

    def holds(self, level: float) -> bool:
        """Whether it explains the shift: most of it, and what is left could be chance."""
        if self.at_edge:
            return False
        if not self.explained >= ENOUGH or self.effective_size < max(5, SCARCE * self.size):
            return False
        return self.explained >= NEARLY[self.name] or bool(self.pvalue > level)

    @property
    def is_tied(self) -> bool:
        """Whether it cannot be told from the best explanation, or is nearly as good."""
        if self.at_edge:
            return False
        return self.behind <= TIED or self.explained >= NEARLY[self.name]


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
        cuts = [len(order) // 2 for order in orders]
        seen, unseen = (
            tuple(np.sort(part) for part in parts)
            for parts in (
                [order[:cut] for order, cut in zip(orders, cuts, strict=True)],
                [order[cut:] for order, cut in zip(orders, cuts, strict=True)],
            )
        )
        return cls(samples, seen, unseen, kernel, rng)  # type: ignore[arg-type]

    def fit_on(self) -> tuple[Points, Points]:
        return take(self.samples.train, self.seen[0]), take(self.samples.test, self.seen[1])

    def test_on(self) -> tuple[Points, Points]:
        return take(self.samples.train, self.unseen[0]), take(self.samples.test, self.unseen[1])

    def swapped(self) -> Halves:
        return Halves(self.samples, self.unseen, self.seen, self.kernel, self.rng)

    def judged(self, weights: np.ndarray, rows: Points, targets: Targets | None = None) -> Trial:
        """What weighted training rows, perhaps transformed, leave of the shift."""
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
        """The p-value of rows with targets, of those training rows that were kept."""
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
    at_rows: np.ndarray  # what every training row and every test row adds to `left`, to first order
    at_test: np.ndarray


Trials = tuple[Trial, Trial]


def both_ways(halves: Halves, attempt: Any) -> Trials | None:
    """Each half in its turn to fit on."""
    trials = attempt(halves), attempt(halves.swapped())
    return None if None in trials else trials


def standard_errors_behind(trials: Trials, best: Trials) -> float:
    """By how many standard errors one explanation leaves more than another, on the same rows."""
    more = sum(t.left for t in trials) - sum(t.left for t in best)
    variance = 0.0
    for mine, other in zip(trials, best, strict=True):
        for a, b in ((mine.at_rows, other.at_rows), (mine.at_test, other.at_test)):
            variance += float(np.var(a - b)) / len(a)
    return more / math.sqrt(variance) if variance > 0 else 0.0


def summarize(name: str, trials: Trials, best: Trials) -> Explanation:
    """One explanation beside the best; twice the mean of p-values is one (Vovk and Wang 2020)."""
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
    """A kernel to measure distances of rows with."""
    kernel = samples.kernel if samples.kernel is not None else Gaussian("scaled median")
    return kernel.resolve(all_rows(samples))


def squared_distance(
    kernel: Kernel, rows: Points, others: Points, weights: np.ndarray | None = None
) -> float:
    """MMD² without bias, the rows weighted by weights that sum to one."""
    n, m = count(rows), count(others)
    w = np.full(n, 1 / n) if weights is None else weights
    v = np.full(m, 1 / m)

    def within(points: Points, w: np.ndarray) -> float:
        total = float(w @ kernel.matmul(points, points, w[:, None])[:, 0])
        own = float(w**2 @ kernel.diagonal(points))
        rest = 1 - float(w @ w)
        return (total - own) / rest if rest > 1e-12 else total

    cross = float(w @ kernel.matmul(rows, others, v[:, None])[:, 0])
    return within(rows, w) + within(others, v) - 2 * cross


def distance_and_influence(
    kernel: Kernel, rows: Points, test: Points, w: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """MMD² of weighted rows and test rows, and what each row of either adds to it.

    To first order, Σ wᵢ φ(xᵢ) = μ and ν the embedding of the test rows: the derivative of ‖μ - ν‖²
    is 2nwᵢ⟨φ(xᵢ) - μ, μ - ν⟩ in the i-th row and 2⟨φ(t) - ν, ν - μ⟩ in a test row t. The variance
    of their differences is that of the difference of two distances on the same rows.
    """
    n, m = count(rows), count(test)
    v = np.full(m, 1 / m)

    def values(at: Points) -> np.ndarray:  # of μ - ν
        found = kernel.matmul(at, rows, w[:, None]) - kernel.matmul(at, test, v[:, None])
        return np.asarray(found)[:, 0]

    on_rows, on_test = values(rows), values(test)
    at_rows = 2 * n * w * (on_rows - w @ on_rows)
    at_test = -2 * (on_test - on_test.mean())
    return squared_distance(kernel, rows, test, w), at_rows, at_test


def by_weights(halves: Halves, targets: Targets | None) -> Trial:
    """Covariate shift: training rows weighted by how likely they are among the test rows."""
    matching = KernelMeanMatching(halves.samples.kernel, random_state=halves.rng)
    train, test = halves.fit_on()
    rows = halves.test_on()[0]
    with quiet():  # the report says it in figures
        weights = matching.fit(train, X_test=test).weights(rows)
    return halves.judged(weights, rows, targets)


def by_targets(halves: Halves, targets: Targets) -> Trial | None:
    """Target shift: training rows weighted by their targets; None where targets do not vary."""
    y = targets.plain
    seen, unseen = y[halves.seen[0]], y[halves.unseen[0]]
    if len(np.unique(seen)) < 2:
        return None
    model = TargetShift(
        halves.samples.kernel,
        targets.kernel,
        n_bootstrap=0,
        random_state=halves.rng,
    )
    train, test = halves.fit_on()
    rows = halves.test_on()[0]
    with quiet():
        model.fit(train, seen, X_test=test)
    if not targets.classes:
        return halves.judged(model.weights(unseen), rows)
    known = np.isin(unseen, model.classes_)  # a class that one half has not seen has no weight
    weights = np.zeros(len(unseen))
    weights[known] = model.weights(unseen[known])
    return halves.judged(weights, rows)


def shifted_targets(
    samples: Samples, targets: Targets, rng: np.random.Generator
) -> tuple[str, bool]:
    """What target shift makes of the targets, on all rows, and whether it is at its edge."""
    model = TargetShift(
        samples.kernel,
        targets.kernel,
        n_bootstrap=DRAWS if targets.classes else 0,
        random_state=rng,
    )
    with quiet():
        model.fit(samples.train, targets.plain, X_test=samples.test)
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
    """Another location and scale of each column of numbers; None where there is none."""
    movable = halves.samples.movable
    if movable is None:
        return None
    train, test = (np.asarray(part)[:, movable] for part in halves.fit_on())
    rows = np.array(halves.test_on()[0], dtype=np.float64)
    W = positive_ratio(test.std(axis=0), train.std(axis=0), 1.0)
    rows[:, movable] = (rows[:, movable] - train.mean(axis=0)) * W + test.mean(axis=0)
    return halves.judged(np.ones(len(rows)), rows)


def share_outside(samples: Samples) -> float:
    """The share of test rows farther from all training rows than those are from each other.

    Farther than the nearest neighbours of 99% of the training rows, in the kernel's distance with
    the scale that training rows have. Without a shift it is about 1%.
    """
    kernel = samples.kernel if samples.kernel is not None else Gaussian("scaled median")
    train, test = samples.train, samples.test
    movable = samples.movable
    if samples.kernel is None and movable is not None:
        # in deviations of the training rows: a gap between the samples widens those of both
        spread = train.std(axis=0)
        spread = np.where(movable & (spread > 0), spread, 1.0)
        train, test = train / spread, test / spread
    kernel = kernel.resolve(train)
    own = nearest_distances(kernel, train, train, True)
    return float((nearest_distances(kernel, test, train, False) > np.quantile(own, FAR)).mean())


def nearest_distances(kernel: Kernel, points: Points, others: Points, same: bool) -> np.ndarray:
    """‖φ(x) - φ(x')‖² to the nearest of other points, itself left out if they are the same."""
    diagonal = np.asarray(kernel.diagonal(others))
    own = np.asarray(kernel.diagonal(points))
    out = np.empty(count(points))
    for start in range(0, len(out), 500):
        block = slice(start, min(start + 500, len(out)))
        gram = np.asarray(kernel(take(points, block), others))
        distance = own[block, None] + diagonal - 2 * gram
        if same:
            distance[np.arange(len(gram)), np.arange(block.start, block.stop)] = np.inf
        out[block] = distance.min(axis=1)
    return out


def explanations(
    samples: Samples, targets: Targets | None, kernel: Any, rng: np.random.Generator
) -> tuple[Explanation, ...]:
    """All that can be tried with these samples; none where they are too small.

    Distances are measured with a kernel that sees the difference: the one that the test chose.
    """
    if min(samples.used) < LEAST:
        return ()
    halves = Halves.of(samples, kernel, rng)
    tried: dict[str, Trials | None] = {
        "weights on rows": both_ways(halves, lambda h: by_weights(h, targets))
    }
    words, at_edge = "", False
    if targets is not None:
        tried["weights on targets"] = both_ways(halves, lambda h: by_targets(h, targets))
        if tried["weights on targets"] is not None:
            words, at_edge = shifted_targets(samples, targets, rng)
    tried["location and scale"] = both_ways(halves, by_location_and_scale)
    trials = {name: found for name, found in tried.items() if found is not None}
    free = [name for name in trials if not (at_edge and name == "weights on targets")]
    best = trials[min(free, key=lambda name: sum(t.left for t in trials[name]))]
    found = {name: summarize(name, one, best) for name, one in trials.items()}
    if "weights on targets" in found:
        one = found["weights on targets"]
        found["weights on targets"] = replace(one, found=words, at_edge=at_edge)
    return tuple(found.values())
