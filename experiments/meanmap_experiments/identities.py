"""Who is on which track: hidden permutations from noisy sightings (Song et al. 2009, section 5).

The paper names the problem and its decoding, trace kernel and linear assignment, but has no
experiment. A filter on whole permutations has to generalise over k! states from a sample that
visits few of them. A filter that follows one object at a time has k states, learns from all objects
at once, and leaves it to the assignment that no two of them share a track.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from meanmap.dynamics import AdditiveFilter, KernelBayesFilter
from meanmap.kernels import Chordal, Delta, Gaussian, Linear, Mallows, Trace
from meanmap.spaces import PivotedCholesky
from meanmap_experiments.peers import bootstrap_particles, exact_identities
from meanmap_experiments.results import Claim, Curves, Figure, Outcome, Table
from meanmap_experiments.runs import each
from meanmap_experiments.systems import Identities

EXACT, PARTICLES, ALONE = "exact filter", "particle filter", "one sighting alone"
GIVEN = (EXACT, PARTICLES)  # these are given the true dynamics and the true noise
OBJECTWISE = "kernel Bayes, an object at a time"
ADDITIVE = "additive, trace and linear"
TRACE = "kernel Bayes, trace"
CHORDAL = "kernel Bayes, chordal"
MALLOWS = "kernel Bayes, Mallows"
WHOLE = (TRACE, CHORDAL, MALLOWS, ADDITIVE)
LEARNED = (OBJECTWISE, *WHOLE)


@dataclass(frozen=True)
class Plan:
    """How much is done."""

    objects: tuple[int, ...] = (5, 6, 7, 8)
    sizes: tuple[int, ...] = (500, 1000, 2000, 4000)  # training steps
    runs: int = 5
    tests: int = 10  # test sequences a run
    length: int = 50  # steps of a sequence, in training and in testing
    tuning: int = 1000  # steps that settings are chosen on; half of them for single objects
    particles: int = 10_000


FULL = Plan()
QUICK = Plan(objects=(5, 7), sizes=(500, 1000), runs=3, tests=5, tuning=300, particles=2_000)


def run(
    quick: bool = False,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: bool | None = None,
    plan: Plan | None = None,
) -> Outcome:
    """Track 5 to 8 objects and count how many are rightly named.

    Parameters
    ----------
    quick, seed, n_jobs, progress : as in `meanmap_experiments.run`
    plan : Plan or None
        How much is done, if neither the quick nor the full experiment.

    Examples
    --------
    >>> plan = Plan(objects=(3,), sizes=(100,), runs=2, tests=2, length=10, tuning=50)
    >>> outcome = run(plan=plan)
    >>> outcome.name
    'identities'
    """
    plan = plan or (QUICK if quick else FULL)
    # a stream of its own for every k: the first is for choosing settings, then one per run
    seeds = {k: np.random.SeedSequence((seed, k)).spawn(plan.runs + 1) for k in plan.objects}
    choices = [(plan, k, method, seeds[k][0]) for k in plan.objects for method in LEARNED]
    settings = each(chosen, choices, "choosing settings", n_jobs, progress)
    tuned = {(k, method): s for (_, k, method, _), s in zip(choices, settings, strict=True)}
    jobs = [
        (plan, k, seeds[k][1 + i], {method: tuned[k, method] for method in LEARNED})
        for k in reversed(plan.objects)  # the longest first
        for i in range(plan.runs)
    ]
    found = each(one_run, jobs, "identities", n_jobs, progress)
    scores: dict[tuple[int, str, int], list[float]] = {}
    for (_, k, _, _), result in zip(jobs, found, strict=True):
        for (method, size), score in result.items():
            scores.setdefault((k, method, size), []).append(score)
    figures = {key: Figure.of(values) for key, values in scores.items()}
    system = Identities()
    return Outcome(
        name="identities",
        title="Identities: which object is on which track",
        citation="Song, Huang, Smola and Fukumizu (2009), section 5; the paper has no figures",
        settings={
            "system": f"{', '.join(map(str, plan.objects))} objects; two neighbouring tracks swap "
            f"with probability {system.mixing}; scores are the permutation matrix with noise of "
            f"deviation {system.observation_noise}",
            "data": f"training on sequences of {plan.length} steps, {plan.runs} runs of "
            f"{plan.tests} test sequences of {plan.length} steps",
            "score": "fraction of objects rightly named, the mean matrix decoded by assignment",
            "choices": "regularisation, bandwidth and power by half-split validation, once for "
            f"each k on {plan.tuning} other training steps",
            "given": f"{' and '.join(GIVEN)} ({plan.particles:,} particles) know the true dynamics",
        },
        tables=tuple(table(plan, k, figures) for k in plan.objects),
        verdict=verdict(plan, figures),
        quick=quick,
        seed=seed,
        picture=picture(plan, figures),
    )


# --- the filters ----------------------------------------------------------------------------------


def untuned(method: str) -> Any:
    """A filter with what validation has to choose left open."""
    basis = PivotedCholesky(max_rank=400)  # with 100 or 400, single objects come out the same
    grid: dict[str, Any] = {
        "regularization": [1e-5, 1e-3],
        "posterior_regularization": [1e-3, 1e-2],
        "power": [0.5, 0.75, 1.0],
        "observation": [1.0, 2.0],
    }
    if method == OBJECTWISE:
        basis = PivotedCholesky(max_rank=100)
        grid |= {"regularization": [1e-5, 1e-2], "power": [0.75, 1.0]}
        return KernelBayesFilter(Delta(), basis=basis, grid=grid, progress=False)
    if method == ADDITIVE:
        grid = {"regularization": [1e-3, 1e-2, 1e-1, 1.0, 10.0]}
        return AdditiveFilter(Trace(), Linear(), grid=grid, progress=False)
    if method == CHORDAL:
        grid["state"] = [Chordal(f"{factor}*median") for factor in (0.5, 1.0, 2.0)]
        return KernelBayesFilter(None, basis=basis, grid=grid, progress=False)
    kernel = Trace() if method == TRACE else Mallows()
    return KernelBayesFilter(kernel, basis=basis, grid=grid, progress=False)


def chosen(plan: Plan, k: int, method: str, seed: np.random.SeedSequence) -> Any:
    """The filter with the settings that half-split validation chose."""
    # each object is a sequence of its own: k times the data
    steps = plan.tuning // 2 if method == OBJECTWISE else plan.tuning
    sequences = max(2, steps // plan.length)
    data = Identities(k).simulate(plan.length, np.random.default_rng(seed), runs=sequences)
    model = untuned(method).fit(*prepared(method, *data))
    best = {} if model.validation_ is None else dict(model.validation_.best)
    if method == ADDITIVE and best:
        best["kernel_observation"] = Linear()
    elif not best:  # too little data to validate: median bandwidths and closed forms
        best = {"kernel_observation": Gaussian()}
        best |= {"kernel_state": Chordal()} if method == CHORDAL else {}
    return model.set_params(**best, validation=None, grid=None)


def prepared(
    method: str, states: np.ndarray, sightings: np.ndarray
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Sequences as a filter takes them.

    For a filter that follows one object: its track, one-hot, and its scores on all tracks.
    """
    if method != OBJECTWISE:
        return list(states), list(sightings)
    scores = sightings.reshape(states.shape)
    return list(by_object(states)), list(by_object(scores))


def by_object(tables: np.ndarray) -> np.ndarray:
    """(runs, n, track, object) as (runs · objects, n, track)."""
    runs, n, k, _ = tables.shape
    return np.moveaxis(tables, 3, 1).reshape(runs * k, n, k)


def learned_means(
    method: str, model: Any, train: tuple[np.ndarray, np.ndarray], sightings: np.ndarray, k: int
) -> np.ndarray:
    """The filtered means (runs, n, k, k) of a filter that learns from data."""
    model = model.fit(*prepared(method, *train))
    runs, n = sightings.shape[:2]
    shape = runs, n, k, k
    observed = prepared(method, np.empty(shape), sightings)[1]
    means = np.asarray(model.filter(observed, beliefs=False).mean)
    if method != OBJECTWISE:
        return means
    return np.moveaxis(means.reshape(runs, k, n, k), 1, 3)


def right(means: np.ndarray, truth: np.ndarray) -> float:
    """The fraction of objects rightly named: each mean decoded by linear assignment."""
    k = truth.shape[-1]
    score = 0.0
    for mean, order in zip(means.reshape(-1, k, k), truth.reshape(-1, k, k), strict=True):
        score += order[linear_sum_assignment(mean, maximize=True)].sum()
    return float(score) / (k * (truth.size // k**2))


def one_run(
    plan: Plan, k: int, seed: np.random.SeedSequence, models: dict[str, Any]
) -> dict[tuple[str, int], float]:
    """Every method on the same data; size 0 for those that do not learn."""
    rng = np.random.default_rng(seed)
    system = Identities(k)
    truth, sightings = system.simulate(plan.length, rng, runs=plan.tests)
    states, seen = system.simulate(plan.length, rng, runs=max(2, max(plan.sizes) // plan.length))
    particles = bootstrap_particles(system, sightings, n_particles=plan.particles, rng=rng)
    scores = {
        (EXACT, 0): right(exact_identities(system, sightings), truth),
        (PARTICLES, 0): right(particles, truth),
        (ALONE, 0): right(sightings.reshape(truth.shape), truth),
    }
    for size in plan.sizes:
        some = slice(0, max(2, size // plan.length))
        for method, model in models.items():
            means = learned_means(method, model, (states[some], seen[some]), sightings, k)
            scores[method, size] = right(means, truth)
    return scores


# --- what is reported -----------------------------------------------------------------------------


def table(plan: Plan, k: int, figures: dict[tuple[int, str, int], Figure]) -> Table:
    rows: list[tuple[Any, ...]] = []
    nothing = (None,) * (len(plan.sizes) - 1)
    for method in (*GIVEN, *LEARNED, ALONE):
        if method in LEARNED:
            rows.append((method, *(figures[k, method, size] for size in plan.sizes)))
        else:
            rows.append((method, figures[k, method, 0], *nothing))
    headings = ("method", *(f"{size:,} steps" for size in plan.sizes))
    return Table(f"Fraction rightly named, {k} objects", headings, tuple(rows))


def verdict(plan: Plan, figures: dict[tuple[int, str, int], Figure]) -> tuple[Claim, ...]:
    most = plan.sizes[-1]

    def span(method: str) -> str:
        size = most if method in LEARNED else 0
        return listed([figures[k, method, size].mean for k in plan.objects])

    text = (
        f"Rightly named with {', '.join(map(str, plan.objects))} objects, {most:,} training steps: "
        f"exact filter {span(EXACT)}; an object at a time {span(OBJECTWISE)}; one sighting alone "
        f"{span(ALONE)}."
    )
    lines = [Claim(text)]
    for method in WHOLE:
        losing = [
            f"{k} objects at {size:,}"
            for k in plan.objects
            for size in plan.sizes
            if figures[k, method, size].mean < figures[k, ALONE, 0].mean
        ]
        beaten = f"; worse than one sighting alone: {', '.join(losing)} steps" if losing else ""
        text = f"Whole permutations, {method}: {span(method)}{beaten}."
        lines.append(Claim(text, False if losing else None))
    share = [figures[k, OBJECTWISE, most].mean / figures[k, EXACT, 0].mean for k in plan.objects]
    behind = [
        figures[k, OBJECTWISE, most].mean - max(figures[k, m, most].mean for m in WHOLE)
        for k in plan.objects
    ]
    gained = {
        name: [figures[k, m, most].mean - figures[k, m, plan.sizes[0]].mean for k in plan.objects]
        for name, m in (("an object at a time", OBJECTWISE), (ADDITIVE, ADDITIVE))
    }
    text = (
        f"An object at a time reaches {listed(share)} of the exact filter, above the best filter "
        f"on whole permutations by {listed(behind)}."
    )
    lines.append(Claim(text))
    if len(plan.sizes) > 1:
        grown = "; ".join(f"{name} {listed(gains)}" for name, gains in gained.items())
        lines.append(Claim(f"Gained from {plan.sizes[0]:,} to {most:,} training steps: {grown}."))
    return tuple(lines)


def listed(values: list[float]) -> str:
    """Numbers side by side."""
    return " ".join(f"{value:.2f}" for value in values)


def picture(plan: Plan, figures: dict[tuple[int, str, int], Figure]) -> Curves:
    k = plan.objects[-1]
    curves: list[tuple[str, tuple[float, ...], tuple[Figure, ...]]] = [
        (m, tuple(map(float, plan.sizes)), tuple(figures[k, m, size] for size in plan.sizes))
        for m in (OBJECTWISE, CHORDAL, ADDITIVE)
    ]
    curves += [(m, (0.0,), (figures[k, m, 0],)) for m in (EXACT, ALONE)]
    return Curves(
        f"{k} objects", "training steps", "fraction rightly named", tuple(curves), logx=True
    )
