"""Belief propagation on loopy lattices: kernels, bins, particles and mixtures against the truth.

Neighbours are equal or a step apart, nodes have two modes, and what is seen at a node may lack the
sign: beliefs of one node have many modes, and only the neighbours tell which. On a lattice of three
columns the truth is exact, on a torus it comes from long Gibbs sampling. Methods that learn see
samples of the whole lattice; others are given the true potentials, which is more than the data say.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from meanmap import plots
from meanmap.graphical import BeliefPropagation
from meanmap_experiments.fields import Bins, Densities, Field, Tabulated
from meanmap_experiments.lattices import SPAN, Gibbs, Lattice, Sightings, Strip, Truth
from meanmap_experiments.mixtures import MixtureBP
from meanmap_experiments.propagation import DiscreteBP, ParticleBP
from meanmap_experiments.results import (
    Claim,
    Figure,
    Outcome,
    Table,
    against_seconds,
    ahead,
    paired,
)
from meanmap_experiments.runs import each

KERNEL, PLAIN, TREES = "kernel BP", "kernel BP, edges in full", "kernel BP, trees"
COARSE, PARTICLES, MIXTURES = "discrete BP, learned", "particle BP, learned", "mixture BP, learned"
OURS = (KERNEL, PLAIN, TREES)
PEERS = (COARSE, PARTICLES, MIXTURES)
LEARNED = (*OURS, *PEERS)
LIMIT = "fine discrete BP, the data's potentials"
FINE, KNOWN, GAUSSIAN = "fine discrete BP", "particle BP", "mixture BP"
ALONE = "local evidence only"
GIVEN = (LIMIT, FINE, KNOWN, GAUSSIAN, ALONE)  # the truth, or something of it
MEASURES = {
    "variation": "total variation",
    "mean": "error of the mean",
    "deviations": "in deviations",
    "seconds": "seconds",
    "learning": "seconds to learn",
}
WORDS = {**MEASURES, "deviations": "error of the mean in deviations"}
SHARP = "3 x 3, sharp edges"
FINER = 128  # cells of a learned density
# a first draft of kernel belief propagation on a lattice of 3 x 3, learned from 1000 rows
DRAFTED = "3 x 3"
REACH = {"variation": 0.13, "mean": 0.10, "deviations": 0.10}  # in which unit, it did not say


@dataclass(frozen=True)
class Case:
    """A lattice, and how much of it is seen."""

    name: str
    rows: int
    columns: int
    closed: bool
    sizes: tuple[int, ...]  # rows of data
    runs: int  # each with potentials of its own
    tests: int  # sets of evidence, a run
    cells: int  # of the truth
    noise: tuple[float, float] = (0.45, 0.6)  # of edges, from and to; the less, the stronger


@dataclass(frozen=True)
class Plan:
    """How much is done."""

    cases: tuple[Case, ...] = (
        Case(DRAFTED, 3, 3, False, (200, 500, 1000), runs=30, tests=4, cells=120),
        Case(SHARP, 3, 3, False, (200, 500, 1000), runs=20, tests=4, cells=120, noise=(0.3, 0.4)),
        Case("torus, 8 x 8", 8, 8, True, (8, 32), runs=12, tests=3, cells=96),
    )
    chains: int = 64  # of the torus
    sweeps: int = 600  # after as many that are not counted
    iterations: int = 15  # of particles and mixtures
    particles: int = 100
    components: int = 10
    bins: int = 30


FULL = Plan()
QUICK = Plan(
    cases=(
        Case(DRAFTED, 3, 3, False, (200, 1000), runs=4, tests=2, cells=80),
        Case(SHARP, 3, 3, False, (1000,), runs=3, tests=1, cells=80, noise=(0.3, 0.4)),
        Case("torus, 8 x 8", 8, 8, True, (16,), runs=2, tests=1, cells=64),
    ),
    chains=32,
    sweeps=120,
)


def run(
    quick: bool = False,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: bool | None = None,
    plan: Plan | None = None,
) -> Outcome:
    """Beliefs on lattices whose truth is known.

    Parameters
    ----------
    quick, seed, n_jobs, progress : as in `meanmap_experiments.run`
    plan : Plan or None
        How much is done, if neither the quick nor the full experiment.

    Examples
    --------
    >>> case = Case("3 x 3", 3, 3, False, (50,), runs=1, tests=1, cells=30)
    >>> run(plan=Plan(cases=(case,), iterations=2, particles=20, components=3)).name
    'loopy'
    """
    plan = plan or (QUICK if quick else FULL)
    jobs = [(plan, case, i, seed) for case in reversed(plan.cases) for i in range(case.runs)]
    found: Errors = {}
    for (_, case, *_), errors in zip(
        jobs, each(one_run, jobs, "loopy", n_jobs, progress), strict=True
    ):
        for key, value in errors.items():
            found.setdefault((case.name, *key), []).append(value)
    return Outcome(
        name="loopy",
        title="Belief propagation on loopy lattices",
        citation="after Song, Fukumizu and Gretton (2013), section 5.1 and Fig. 7; potentials are "
        "ours, no paper's figures",
        settings={
            "lattices": "neighbours are equal or a step of 1.6 to 2.4 apart, with noise; nodes "
            "have two modes; drawn anew for every run. "
            + "; ".join(words(case) for case in plan.cases),
            "evidence": "of a node's value with noise of deviation 0.3: nothing at 30% of the "
            "nodes, the value at 40%, its size without the sign at 30%",
            "truth": "on three columns by summing out a node at a time over cells; on a torus by "
            f"{plan.chains} Gibbs chains of {plan.sweeps} sweeps after as many that are not "
            "counted, averages of conditional probabilities",
            "errors": "total variation of a node's belief, averaged over nodes; root mean square "
            "error of the nodes' means, also in units of each node's deviation before evidence",
            KERNEL: "BeliefPropagation with its defaults; knows neither the potentials nor their "
            "family",
            PLAIN: "the same with reweighting=1, as in the paper",
            TREES: 'the same with reweighting="trees": an edge counts as often as it is in a '
            "spanning tree",
            COARSE: f"{plan.bins} bins of equal width over the data, ratios of smoothed counts",
            PARTICLES: f"Ihler and McAllester (2009): {plan.particles} particles a node, "
            f"{plan.iterations} iterations, redrawn by a Metropolis step after each, "
            f"means over the last {LAST}; ratios of "
            "kernel densities of the pairs, bandwidths by held-out likelihood, tabulated",
            MIXTURES: f"messages of {plan.components} Gaussians (Sudderth et al. 2003), "
            f"{plan.iterations} iterations; potentials of as many Gaussians fitted to the same "
            "ratios; products exact two at a time, then merged",
            LIMIT: "p(s, t) / (p(s) p(t)) from the true marginals on the truth's cells: what "
            "learning from endless data would give",
            f"{FINE}; {KNOWN}; {GAUSSIAN}": "given the true potentials",
            ALONE: "a node's true marginal times what is seen there",
        },
        tables=tuple(
            table
            for case in plan.cases
            for table in (
                summary(case, found),
                *(by_size(case, found, measure) for measure in ("variation", "mean")),
            )
        ),
        verdict=verdict(plan, found),
        quick=quick,
        seed=seed,
        picture=Scatter(plan.cases, found),
    )


def words(case: Case) -> str:
    shape = "a torus, all edges across alike and all down" if case.closed else "every edge apart"
    low, high = case.noise
    return (
        f"{case.name}: {shape}, noise of deviation {low:g} to {high:g}, {case.runs} runs with "
        f"{case.tests} sets of evidence each"
    )


# --- runs -----------------------------------------------------------------------------------------

Errors = dict[tuple[str, str, str, int], list[float]]  # lattice, measure, method, rows of data
ANY = 0  # rows of data, where none are used


def one_run(plan: Plan, case: Case, index: int, seed: int) -> dict[tuple[str, str, int], float]:
    """Averages over sets of evidence, by measure, method and rows of data."""
    rng = np.random.default_rng((seed, list(plan.cases).index(case), index))
    lattice = Lattice.drawn(case.rows, case.columns, case.closed, rng, case.noise)
    bins = Bins.even(-SPAN, SPAN, case.cells)
    prior, sample = before(plan, case, lattice, bins, rng)
    tests, data = sample[: case.tests], sample[case.tests :]
    values: dict[tuple[str, str, int], list[float]] = {("doubt", ALONE, ANY): [prior.doubt]}
    methods = {(method, ANY): run for method, run in given(plan, lattice, prior).items()}
    for m in case.sizes:
        for method, learn in LEARNERS.items():
            began = time.perf_counter()
            methods[method, m] = learn(plan, lattice, data[:m])
            values["learning", method, m] = [time.perf_counter() - began]
    for row in tests:
        seen = Sightings.of(row, rng)
        truth = after(plan, case, lattice, bins, rng, seen)
        values["doubt", ALONE, ANY].append(truth.doubt)
        for (method, m), run_with in methods.items():
            answer = run_with(seen, bins.centres)
            for measure, value in answer.errors(truth, prior.deviation).items():
                values.setdefault((measure, method, m), []).append(value)
    return {key: float(np.mean(each_value)) for key, each_value in values.items()}


def before(
    plan: Plan, case: Case, lattice: Lattice, bins: Bins, rng: np.random.Generator
) -> tuple[Truth, np.ndarray]:
    """Marginals without evidence, and rows of values: those of the tests, then of the data."""
    rows = case.tests + max(case.sizes)
    if not case.closed:
        strip = Strip(lattice, bins)
        return strip.truth(pairs=True), strip.sample(rows, rng)
    chains = Gibbs(lattice, bins, max(rows, plan.chains), rng)
    chains.sweep(plan.sweeps)
    return chains.marginals(plan.sweeps), chains.sample()[:rows]


def after(
    plan: Plan,
    case: Case,
    lattice: Lattice,
    bins: Bins,
    rng: np.random.Generator,
    seen: Sightings,
) -> Truth:
    """Marginals given what is seen."""
    if not case.closed:
        return Strip(lattice, bins, seen).truth()
    chains = Gibbs(lattice, bins, plan.chains, rng, seen)
    chains.sweep(plan.sweeps)
    return chains.marginals(plan.sweeps)


@dataclass(frozen=True, eq=False)
class Answer:
    """Beliefs of a method: means, densities at the cells' centres, and how long it took."""

    mean: np.ndarray
    densities: np.ndarray
    seconds: float

    def errors(self, truth: Truth, deviation: np.ndarray) -> dict[str, float]:
        p = self.densities * truth.bins.widths
        # what a belief has outside the cells, where the truth has nothing, counts as well
        outside = np.maximum(1 - p.sum(axis=1), 0.0)
        gap = self.mean - truth.mean
        return {
            "variation": float((abs(p - truth.nodes).sum(axis=1) + outside).mean() / 2),
            "mean": float(np.sqrt(np.mean(gap**2))),
            "deviations": float(np.sqrt(np.mean((gap / deviation) ** 2))),
            "seconds": self.seconds,
        }


Asked = Callable[[Sightings, np.ndarray], Answer]  # what is seen, and where densities are wanted


def asked(method: DiscreteBP | ParticleBP | MixtureBP, **how: Any) -> Asked:
    """A method that is ready, asked with evidence."""

    def answer(seen: Sightings, x: np.ndarray) -> Answer:
        found = method.run(evidence=seen, **how)
        densities = np.array([found.density(i, x) for i in range(len(found.mean))])
        return Answer(found.mean, densities, found.seconds)

    return answer


LAST = 5  # iterations whose particles give the mean
FINELY: dict[str, Any] = {"iterations": 60, "tolerance": 1e-4}


def given(plan: Plan, lattice: Lattice, prior: Truth) -> dict[str, Asked]:
    """Methods that know the potentials, or the marginals."""
    marginals = prior.nodes / prior.bins.widths
    nodes = np.arange(lattice.count)

    def alone(seen: Sightings, x: np.ndarray) -> Answer:
        began = time.perf_counter()
        p = marginals * np.exp(seen(nodes, np.broadcast_to(x, marginals.shape)))
        p /= (p * prior.bins.widths).sum(axis=1, keepdims=True)
        return Answer((p * prior.bins.widths) @ x, p, time.perf_counter() - began)

    known, steps = lattice.field, plan.iterations
    return {
        LIMIT: asked(DiscreteBP(prior.field(lattice), prior.bins), **FINELY),
        FINE: asked(DiscreteBP(known, prior.bins), **FINELY),
        KNOWN: asked(ParticleBP(known, plan.particles, average=LAST), iterations=steps),
        GAUSSIAN: asked(MixtureBP(known, plan.components), iterations=steps),
        ALONE: alone,
    }


def kernel(
    plan: Plan, lattice: Lattice, data: np.ndarray, reweighting: float | str = "halfway"
) -> Asked:
    """Kernel belief propagation."""
    names = lattice.names
    columns = {name: data[:, i] for i, name in enumerate(names)}
    model = BeliefPropagation(lattice.graph, reweighting=reweighting).fit(columns)

    def answer(seen: Sightings, x: np.ndarray) -> Answer:
        began = time.perf_counter()
        found = model.run(seen.callables(names))
        mean = np.array([float(np.squeeze(found.mean[name])) for name in names])
        seconds = time.perf_counter() - began
        densities = np.array([np.ravel(found.density(name, x[:, None])) for name in names])
        return Answer(mean, densities, seconds)

    return answer


def coarse(plan: Plan, lattice: Lattice, data: np.ndarray) -> Asked:
    """Counts of bins."""
    bins = Bins.even(float(data.min()), float(data.max()), plan.bins)
    prior = Densities.counted(bins, lattice.samples(data), lattice.group)
    potentials = [Tabulated.counted(bins, a, b) for a, b in lattice.pairs(data)]
    return asked(DiscreteBP(lattice.learned(potentials, prior), bins, inside=4), **FINELY)


def smoothed(lattice: Lattice, data: np.ndarray) -> Field:
    """Kernel densities of pairs and nodes, in cells."""
    bins = Bins.even(-SPAN, SPAN, FINER)
    prior = Densities.smoothed(bins, lattice.samples(data), lattice.group)
    return lattice.learned([Tabulated.smoothed(bins, a, b) for a, b in lattice.pairs(data)], prior)


def particles(plan: Plan, lattice: Lattice, data: np.ndarray) -> Asked:
    """Particles that look potentials up."""
    method = ParticleBP(smoothed(lattice, data), plan.particles, average=LAST)
    return asked(method, iterations=plan.iterations)


def mixtures(plan: Plan, lattice: Lattice, data: np.ndarray) -> Asked:
    """Gaussians fitted to the same potentials."""
    method = MixtureBP(smoothed(lattice, data), plan.components)
    return asked(method, iterations=plan.iterations)


LEARNERS: dict[str, Callable[[Plan, Lattice, np.ndarray], Asked]] = {
    KERNEL: kernel,
    PLAIN: partial(kernel, reweighting=1.0),
    TREES: partial(kernel, reweighting="trees"),
    COARSE: coarse,
    PARTICLES: particles,
    MIXTURES: mixtures,
}


# --- what is shown --------------------------------------------------------------------------------


def rows_of(case: Case, method: str) -> int:
    """The most rows of data that a method was given."""
    return max(case.sizes) if method in LEARNED else ANY


def values(case: Case, found: Errors, measure: str, method: str) -> list[float]:
    return found[case.name, measure, method, rows_of(case, method)]


def summary(case: Case, found: Errors) -> Table:
    rows: list[tuple[Any, ...]] = []
    for method in (*LEARNED, *GIVEN):
        figures: list[Any] = [
            Figure.of(values(case, found, measure, method))
            if (case.name, measure, method, rows_of(case, method)) in found
            else None
            for measure in MEASURES
        ]
        rows.append((method, "data" if method in LEARNED else "the truth", *figures))
    title = f"Beliefs on {case.name}, learned from {max(case.sizes)} rows"
    return Table(title, ("method", "potentials from", *MEASURES.values()), tuple(rows))


def by_size(case: Case, found: Errors, measure: str) -> Table:
    rows: list[tuple[Any, ...]] = [
        (method, *(Figure.of(found[case.name, measure, method, m]) for m in case.sizes))
        for method in LEARNED
    ]
    headings = ("method", *(f"m = {m}" for m in case.sizes))
    title = f"{MEASURES[measure].capitalize()} by rows of data: {case.name}"
    return Table(title, headings, tuple(rows))


def verdict(plan: Plan, found: Errors) -> tuple[Claim, ...]:
    lines = []
    for case in plan.cases:
        most = max(case.sizes)
        for measure, method in product(REACH, OURS):
            ours = values(case, found, measure, method)
            peers = {peer: values(case, found, measure, peer) for peer in PEERS}
            best = min(peers, key=lambda peer: float(np.mean(peers[peer])))
            how, _, _ = paired(ours, peers[best])
            limit, alone = (
                float(np.mean(values(case, found, measure, other))) for other in (LIMIT, ALONE)
            )
            text = (
                f"{case.name}, {WORDS[measure]}, m = {most}: {method} {np.mean(ours):.3f}, "
                f"{how} the best peer that learns from the same data ({best}, "
                f"{np.mean(peers[best]):.3f}) by paired differences; endless data {limit:.3f}, "
                f"{ALONE} {alone:.3f}."
            )
            holds = ahead([how], "below")
            if case.name == DRAFTED:
                reached = bool(np.mean(ours) <= REACH[measure])
                text += f" At most {REACH[measure]:g} {'holds' if reached else 'does not hold'}."
                holds = reached and holds is not False
            lines.append(Claim(text, holds, float(np.mean(ours))))
        soon = {
            method: float(np.mean(values(case, found, "seconds", method))) for method in LEARNED
        }
        longer = ", ".join(f"{method} {soon[method] / soon[KERNEL]:.3g}" for method in LEARNED[1:])
        text = (
            f"{case.name}, seconds of inference, m = {most}: {KERNEL} {soon[KERNEL]:.2g} (times as "
            f"long: {longer})."
        )
        lines.append(Claim(text, ours=soon[KERNEL]))
        if case.closed:
            doubt = float(np.mean(found[case.name, "doubt", ALONE, ANY]))
            text = (
                f"{case.name}: two halves of the chains that the truth is taken from differ by a "
                f"total variation of {doubt:.3f}."
            )
            lines.append(Claim(text))
    return tuple(lines)


@dataclass(frozen=True, eq=False)
class Scatter:
    """How near, against how soon: a point a method, on the first lattice."""

    cases: tuple[Case, ...]
    found: Errors

    def __call__(self, ax: Any = None) -> Any:
        """Draw, and return the axes."""
        ax = plots.axes(ax)
        case = self.cases[0]
        points = [
            (
                method,
                float(np.mean(values(case, self.found, "seconds", method))),
                Figure.of(values(case, self.found, "variation", method)),
            )
            for method in (*LEARNED, *GIVEN)
        ]
        against_seconds(ax, points, LEARNED)
        ax.set_ylim(bottom=0)
        title = f"Beliefs on {case.name}, learned from {max(case.sizes)} rows (filled)"
        ax.set(title=title, ylabel="total variation to the truth")
        # ten names would hide points: below the axes
        ax.legend(fontsize="x-small", ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.2))
        return ax
