"""What a shift could be explained by: fitted on one half of the rows, tested on the other.

A change that explains a shift, applied to training rows, leaves nothing to see. Weights are applied
by rejection: a row is kept with a probability proportional to its weight. Rows that are kept are
independent draws from the weighted distribution, so that the two-sample test keeps its level, which
rows drawn with replacement would not let it.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meanmap.adaptation import KernelMeanMatching, TargetShift
from meanmap.arrays import Points, count, take
from meanmap.comparison import two_sample_test
from meanmap.kernels import Gaussian, Kernel
from meanmap.report.samples import Samples, Targets, pair_rows, together
from meanmap.selection import effective_size

LEAST = 40  # rows of a sample without which halves say nothing
KEPT = 15  # rows that a test of what is left needs
ENOUGH = 0.5  # of the squared distance that an explanation must remove
#: Of it removed, an explanation is good enough whatever a test still sees in large samples. Weights
#: on rows are shrunk, and so always leave something.
NEARLY = {"weights on rows": 0.8, "weights on targets": 0.95, "location and scale": 0.95}
FAR = 0.99  # share of training rows whose nearest neighbour is nearer than what is called far
SCARCE = 0.05
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
    #: The same test of rows with their targets, NaN where test rows have none: small if the targets
    #: differ where the rows do not any more.
    with_targets: float = math.nan

    def holds(self, level: float) -> bool:
        """Whether it explains the shift: most of it, and what is left could be chance."""
        if not self.explained >= ENOUGH or self.effective_size < max(5, SCARCE * self.size):
            return False
        return self.explained >= NEARLY[self.name] or bool(self.pvalue > level)


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
        left = squared_distance(self.kernel, rows, test, w)
        kept = np.flatnonzero(self.rng.random(len(w)) * w.max() < w)
        pvalue = math.nan
        if len(kept) >= KEPT:
            pvalue = two_sample_test(
                take(rows, kept), test, self.samples.kernel, rng=self.rng
            ).pvalue
        other = math.nan if targets is None else self.with_targets(kept, targets)
        return Trial(whole, left, pvalue, effective_size(w), len(w), other)

    def with_targets(self, kept: np.ndarray, targets: Targets) -> float:
        """The p-value of rows with targets, of those training rows that were kept."""
        labelled = np.flatnonzero(np.isin(targets.labelled, self.unseen[1]))
        if min(len(kept), len(labelled)) < KEPT:
            return math.nan
        train, test, kernel = pair_rows(self.samples, targets)
        train, test = take(train, self.unseen[0][kept]), take(test, labelled)
        return two_sample_test(train, test, kernel, rng=self.rng).pvalue


@dataclass(frozen=True)
class Trial:
    """What is left of a shift on one half of the rows."""

    whole: float
    left: float
    pvalue: float
    effective_size: float
    size: int
    with_targets: float


def both_ways(name: str, halves: Halves, attempt: Any) -> Explanation | None:
    """Each half in its turn to fit on; twice the mean of p-values is one (Vovk and Wang 2020)."""
    trials = [attempt(halves), attempt(halves.swapped())]
    if None in trials:
        return None
    whole, left = sum(t.whole for t in trials), sum(t.left for t in trials)
    return Explanation(
        name,
        min(1.0, 1 - left / whole) if whole > 0 else math.nan,
        min(1.0, sum(t.pvalue for t in trials)),
        sum(t.effective_size for t in trials),
        sum(t.size for t in trials),
        with_targets=min(1.0, sum(t.with_targets for t in trials)),
    )


def measure(samples: Samples) -> Kernel:
    """A kernel to measure distances of rows with."""
    kernel = samples.kernel if samples.kernel is not None else Gaussian("scaled median")
    return kernel.resolve(together(samples))


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


def by_weights(halves: Halves, targets: Targets | None) -> Trial:
    """Covariate shift: training rows weighted by how likely they are among the test rows."""
    matching = KernelMeanMatching(halves.samples.kernel, random_state=halves.rng)
    train, test = halves.fit_on()
    rows = halves.test_on()[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the report says it in figures
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(train, seen, X_test=test)
    if not targets.classes:
        return halves.judged(model.weights(unseen), rows)
    known = np.isin(unseen, model.classes_)  # a class that one half has not seen has no weight
    weights = np.zeros(len(unseen))
    weights[known] = model.weights(unseen[known])
    return halves.judged(weights, rows)


def shifted_targets(samples: Samples, targets: Targets, rng: np.random.Generator) -> str:
    """What target shift makes of the targets, estimated on all rows, in words."""
    model = TargetShift(
        samples.kernel,
        targets.kernel,
        n_bootstrap=DRAWS if targets.classes else 0,
        random_state=rng,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(samples.train, targets.plain, X_test=samples.test)
    if not targets.classes:
        mean = float(np.average(targets.plain, weights=model.weights_))
        return f"mean target {targets.plain.mean():.3g} → {mean:.3g}"
    before, after, interval = model.proportions_train_, model.proportions_, model.interval()
    return ", ".join(
        f"{model.classes_[i]} {before[i]:.0%} → {after[i]:.0%} "
        f"({interval[i, 0]:.0%} to {interval[i, 1]:.0%})"
        for i in np.argsort(-np.abs(after - before), kind="stable")[:3]
    )


def by_location_and_scale(halves: Halves) -> Trial | None:
    """Another location and scale of each column of numbers; None where there is none."""
    movable = halves.samples.movable
    if movable is None:
        return None
    train, test = (np.asarray(part)[:, movable] for part in halves.fit_on())
    rows = np.array(halves.test_on()[0], dtype=np.float64)
    spread, other = train.std(axis=0), test.std(axis=0)
    W = np.where(spread > 0, other / np.where(spread > 0, spread, 1.0), 1.0)
    rows[:, movable] = (rows[:, movable] - train.mean(axis=0)) * W + test.mean(axis=0)
    return halves.judged(np.ones(len(rows)), rows)


def outside(samples: Samples) -> float:
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
    own = nearest(kernel, train, train, True)
    return float((nearest(kernel, test, train, False) > np.quantile(own, FAR)).mean())


def nearest(kernel: Kernel, points: Points, others: Points, same: bool) -> np.ndarray:
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
    found = [both_ways("weights on rows", halves, lambda h: by_weights(h, targets))]
    if targets is not None:
        one = both_ways("weights on targets", halves, lambda h: by_targets(h, targets))
        if one is not None:
            found.append(replace(one, found=shifted_targets(samples, targets, rng)))
    found.append(both_ways("location and scale", halves, by_location_and_scale))
    return tuple(one for one in found if one is not None)
