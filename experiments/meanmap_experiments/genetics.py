"""The history of populations from their sequences: likelihood-free inference with msprime.

Fukumizu, Song and Gretton (2013, 4.4 and 5.2) compare with rejection on Gaussian models and name
population genetics as where such methods are used (Nakagome, Fukumizu and Mano 2013). Here the
simulator is a real one. No exact posterior is known, so that methods are judged over draws (θ, y)
of prior and simulator by proper scores, which none beats in the mean who does not know the
posterior better.

msprime is under the GPL: this experiment alone uses it, and no other part of the package does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap.decoding import Distribution, draw
from meanmap.likelihood_free import KernelABC
from meanmap_experiments.histories import HISTORIES, LENGTH, MUTATION, RECOMBINATION, History
from meanmap_experiments.likelihood_free_peers import (
    crps,
    deviations,
    energy_score,
    nearest,
    pyabc_smc,
    regression_adjusted,
)
from meanmap_experiments.results import Claim, Curves, Figure, Outcome, Table, ahead
from meanmap_experiments.runs import each

KERNEL, REJECTION, ADJUSTED, PYABC = "KernelABC", "rejection", "regression-adjusted", "pyABC"
SHARED = (KERNEL, REJECTION, ADJUSTED)  # one set of simulations for all observations
METHODS = (*SHARED, PYABC)
LEVEL = 0.9  # of the intervals
DRAWS = 500  # that the energy score is computed with, at most
LEVELS = 200  # quantiles that the CRPS is computed with
FEW = 4  # runs from which a difference is told from chance


@dataclass(frozen=True)
class Plan:
    """How much is done."""

    models: tuple[str, ...] = ("growth", "split")
    budgets: tuple[int, ...] = (500, 1000, 3000, 10_000)  # simulations
    runs: int = 6  # sets of simulations, each with observations of its own
    tests: int = 100  # observations of a run
    alone: int = 4  # of them that pyABC answers, each with simulations of its own
    alone_budgets: tuple[int, ...] = (500, 1000, 3000)
    kept: tuple[int, ...] = (10, 20, 50, 100, 200, 500)  # simulations that rejection accepts
    adjusted: tuple[int, ...] = (30, 50, 100, 200, 500, 1000, 2000)  # and with a regression


FULL = Plan()
QUICK = Plan(
    ("growth",), (200, 600), 2, 40, 2, (200,), kept=(5, 10, 20, 50), adjusted=(30, 50, 100, 200)
)

Scores = dict[str, np.ndarray]  # one row an observation
Key = tuple[str, int, int]  # method, budget, simulations kept (0 where there is no such choice)


def run(
    quick: bool = False,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: bool | None = None,
    plan: Plan | None = None,
) -> Outcome:
    """Infer sizes, growth and the time of a split from summary statistics of sequences.

    Needs msprime and pyABC: `pip install msprime pyabc`.

    Parameters
    ----------
    quick, seed, n_jobs, progress : as in `meanmap_experiments.run`
    plan : Plan or None
        How much is done, if neither the quick nor the full experiment.
    """
    require()
    plan = plan or (QUICK if quick else FULL)
    sets = [(name, i) for name in plan.models for i in range(plan.runs)]
    jobs = [(plan, name, i, seed) for name, i in sets]
    banks = dict(
        zip(sets, each(one_run, jobs, "shared simulations", n_jobs, progress), strict=True)
    )
    single = [
        (name, i, j, budget, seed)
        for budget in sorted(plan.alone_budgets, reverse=True)  # the longest first
        for name, i in sets
        for j in range(plan.alone)
    ]
    answers = each(one_by_pyabc, single, "simulations by pyABC", n_jobs, progress)
    for (name, i, _, budget, _), scores in zip(single, answers, strict=True):
        banks[name, i].setdefault((PYABC, budget, 0), []).append(scores)
    found = {name: gathered([banks[name, i] for i in range(plan.runs)]) for name in plan.models}
    return Outcome(
        name="genetics",
        title="The history of populations from their sequences",
        citation="Fukumizu, Song and Gretton (2013), sections 4.4 and 5.2, with msprime as the "
        "simulator; no published figures",
        settings=settings(plan),
        tables=tuple(t for name in plan.models for t in tables(plan, name, found[name])),
        verdict=tuple(line for name in plan.models for line in verdict(plan, name, found[name])),
        quick=quick,
        seed=seed,
        picture=picture(plan, found),
    )


def require() -> None:
    """An error if what the experiment runs is not installed."""
    try:
        import msprime  # noqa: F401
        import pyabc  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"the experiment 'genetics' simulates with msprime and compares with pyABC, and there "
            f"is no {error.name or 'such package'}: pip install msprime pyabc"
        ) from error


# --- the methods ----------------------------------------------------------------------------------


class Timed:
    """A simulator that knows how long it has run."""

    def __init__(self, simulate: Callable[[np.ndarray, np.random.Generator], Any]) -> None:
        self.simulate = simulate
        self.seconds = 0.0

    def __call__(self, theta: np.ndarray, rng: np.random.Generator) -> Any:
        began = time.perf_counter()
        found = self.simulate(theta, rng)
        self.seconds += time.perf_counter() - began
        return found


def stream(seed: int, what: int, name: str, *index: int) -> np.random.Generator:
    """Random numbers of their own for each purpose: 0 simulations, 1 observations, 2 pyABC."""
    return np.random.default_rng((seed, what, list(HISTORIES).index(name), *index))


def observation(name: str, i: int, j: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The j-th parameters and statistics that the methods are tested with in run i."""
    rng = stream(seed, 1, name, i, j)
    theta = HISTORIES[name].draw(rng)
    return theta, HISTORIES[name].observe(theta, rng)


def one_run(plan: Plan, name: str, i: int, seed: int) -> dict[Key, list[Scores]]:
    """All methods that share simulations, on the same simulations and observations."""
    history = HISTORIES[name]
    tests = [observation(name, i, j, seed) for j in range(plan.tests)]
    simulator = Timed(history.observe)
    model = KernelABC(
        simulator,
        history.prior,
        vectorized=False,
        random_state=stream(seed, 0, name, i),
        progress=False,
    )
    found: dict[Key, list[Scores]] = {}
    for budget in plan.budgets:
        before = simulator.seconds
        began = time.perf_counter()
        model.fit(budget)
        fitting = time.perf_counter() - began - (simulator.seconds - before)
        found[KERNEL, budget, 0] = by_kernel(model, history, tests, fitting, simulator.seconds)
        simulations = model.theta_[:budget], model.outputs_[:budget]
        for keep in plan.kept:
            if keep <= budget // 2:
                found[REJECTION, budget, keep] = by_rejection(history, *simulations, tests, keep)
        for keep in plan.adjusted:
            if len(tests[0][1]) + 1 < keep <= budget:
                found[ADJUSTED, budget, keep] = by_rejection(
                    history, *simulations, tests, keep, adjust=True
                )
    return found


def by_kernel(
    model: KernelABC, history: History, tests: list[Any], fitting: float, simulating: float
) -> list[Scores]:
    """Our posteriors: means, intervals and draws as they are offered."""
    found = []
    for j, (theta, y) in enumerate(tests):
        began = time.perf_counter()
        posterior = model.posterior(y)
        mean = np.asarray(posterior.mean())
        low, high = (np.asarray(end) for end in posterior.interval(LEVEL))
        seconds = time.perf_counter() - began
        draws = np.asarray(posterior.sample(DRAWS, j))
        scores = scored(history, theta, draws, np.full(DRAWS, 1 / DRAWS), (mean, low, high))
        marginals = np.asarray(posterior.quantile((np.arange(LEVELS) + 0.5) / LEVELS))
        scores["crps"] = crps(marginals / history.scale, theta / history.scale)
        measured = {"seconds": seconds, "fitting": fitting, "simulating": simulating}
        found.append(scores | {key: np.array(value) for key, value in measured.items()})
    return found


def by_rejection(
    history: History,
    theta: np.ndarray,
    outputs: np.ndarray,
    tests: list[Any],
    keep: int,
    adjust: bool = False,
) -> list[Scores]:
    """The nearest simulations, as they are or moved along a regression."""
    scale = deviations(outputs)
    bounds = np.column_stack([history.low, history.high])
    found = []
    for truth, y in tests:
        began = time.perf_counter()
        if adjust:
            draws, weights = regression_adjusted(theta, outputs, y, keep, bounds, scale)
        else:
            draws = theta[nearest(outputs, y, keep, scale)[0]]
            weights = np.full(keep, 1 / keep)
        answer = described(draws, weights)
        seconds = np.array(time.perf_counter() - began)
        found.append(scored(history, truth, draws, weights, answer) | {"seconds": seconds})
    return found


def one_by_pyabc(name: str, i: int, j: int, budget: int, seed: int) -> Scores:
    """One observation, answered by pyABC with simulations of its own."""
    history = HISTORIES[name]
    theta, y = observation(name, i, j, seed)
    require()  # imported before the clock runs
    own = int(stream(seed, 2, name, i, j).integers(2**31))
    began = time.perf_counter()
    draws, weights, _ = pyabc_smc(history.observe, history.prior, y, budget, own)
    answer = described(draws, weights)
    seconds = np.array(time.perf_counter() - began)
    return scored(history, theta, draws, weights, answer) | {"seconds": seconds}


Answer = tuple[np.ndarray, np.ndarray, np.ndarray]  # mean, and the ends of the interval, (d,) each


def described(draws: np.ndarray, weights: np.ndarray) -> Answer:
    """Mean and interval of weighted draws."""
    ends = np.array([(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    low, high = np.asarray(Distribution(draws, weights[None]).quantile(ends))[:, 0]
    return weights @ draws, low, high


def scored(
    history: History, truth: np.ndarray, draws: np.ndarray, weights: np.ndarray, answer: Answer
) -> Scores:
    """How good an answer is, in units of the prior's standard deviations."""
    mean, low, high = answer
    scale = history.scale
    some = draws
    if len(draws) > DRAWS:
        some = draws[draw(weights[None], DRAWS, np.random.default_rng(0))[0]]
        weights = np.full(DRAWS, 1 / DRAWS)
    return {
        "error": ((mean - truth) / scale) ** 2,
        "covered": ((low <= truth) & (truth <= high)).astype(float),
        "crps": crps(some / scale, truth / scale, weights),
        "energy": np.array(energy_score(some / scale, truth / scale, weights)),
        "mean": mean,
        "low": low,
        "high": high,
        "truth": truth,
    }


# --- what is reported -----------------------------------------------------------------------------

Found = dict[tuple[str, int], list[Scores]]  # of each run, a row an observation


def gathered(banks: list[dict[Key, list[Scores]]]) -> Found:
    """Scores by method and budget, each of rejection's at the tolerance that turned out best."""
    tried: dict[tuple[str, int], list[list[Scores]]] = {}
    for key in banks[0]:
        runs = []
        for bank in banks:
            rows = bank[key]
            run = {what: np.stack([row[what] for row in rows]) for what in rows[0]}
            runs.append(run | {"kept": np.full(len(rows), float(key[2]))})
        tried.setdefault(key[:2], []).append(runs)
    found: Found = {}
    for at, choices in tried.items():
        best = {what: least(choices, what) for what in ("error", "crps", "energy")}
        # other figures are those of the draws with the best energy score
        found[at] = [
            run | {what: best[what][i][what] for what in best}
            for i, run in enumerate(best["energy"])
        ]
    return found


def least(choices: list[list[Scores]], what: str) -> list[Scores]:
    """Of several tolerances, the runs with the one of the least mean score."""
    return min(choices, key=lambda runs: overall(runs, what).mean)


def overall(
    runs: list[Scores], what: str, first: int | None = None, column: int | None = None
) -> Figure:
    """A score over runs: of all observations or the first few, all parameters or one."""
    return Figure.of(by_run(runs, what, first, column))


def by_run(
    runs: list[Scores], what: str, first: int | None = None, column: int | None = None
) -> np.ndarray:
    values = [run[what][:first] for run in runs]
    return np.array([(v if column is None else v[:, column]).mean() for v in values])


def settings(plan: Plan) -> dict[str, str]:
    words = {name: described_history(HISTORIES[name]) for name in plan.models}
    return words | {
        "simulator": f"msprime: {LENGTH / 1000:.0f} kb, mutation {MUTATION:g} and recombination "
        f"{RECOMBINATION:g} a base and generation",
        "test": f"{plan.runs} sets of simulations with {plan.tests} observations of the prior's "
        f"draws each; of these {PYABC} answers {plan.alone}",
        "scores": "in units of the prior's variance (error) or deviation; of the energy score and "
        f"the CRPS a method's draws, {DRAWS} at most, of {KERNEL}'s CRPS its quantiles",
        "budgets": f"{', '.join(SHARED)}: one set of simulations for all observations; {PYABC}: as "
        "many again for each observation, the last complete population within them",
        "choices": f"{KERNEL} chooses for itself; rejection and its regression have, for each "
        f"score, the tolerance that turned out best, of {listed(plan.kept)} and "
        f"{listed(plan.adjusted)} accepted; outputs in units of their median absolute deviation; "
        f"{PYABC}: adaptive distance, a sixtieth of the budget as particles, but 30 at least",
    }


def described_history(history: History) -> str:
    parts = zip(history.names, history.low, history.high, strict=True)
    prior = ", ".join(f"{name} in ({low:g}, {high:g})" for name, low, high in parts)
    return f"{history.words}; {prior}, uniform"


def listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(f"{n:,}" for n in numbers)


def tables(plan: Plan, name: str, found: Found) -> list[Table]:
    budgets = sorted({budget for _, budget in found})
    largest = {m: max((b for n, b in found if n == m), default=0) for m in METHODS}
    methods = [m for m in METHODS if largest[m]]

    def at_budgets(title: str, what: str) -> Table:
        rows = tuple(
            (m, *(overall(found[m, b], what) if (m, b) in found else None for b in budgets))
            for m in methods
        )
        return Table(f"{title}, {name}", ("method", *(f"n = {b:,}" for b in budgets)), rows)

    parameters: list[tuple[Any, ...]] = []
    costs: list[tuple[Any, ...]] = []
    one: list[tuple[Any, ...]] = []
    names = HISTORIES[name].names
    simulating = {b: overall(found[KERNEL, b], "simulating").mean for b in plan.budgets}
    for m in methods:
        best = found[m, largest[m]]
        for k, parameter in enumerate(names):
            figures = (overall(best, what, column=k) for what in ("error", "crps", "covered"))
            parameters.append((m, largest[m], parameter, *figures))
        kept = int(best[0]["kept"][0]) or None
        fitting = overall(best, "fitting").mean if m == KERNEL else None
        answering = overall(best, "seconds").mean
        own, before = (largest[m], None) if m == PYABC else (0, simulating[largest[m]])
        costs.append((m, largest[m], own, kept, before, fitting, answering))
        ends = zip(*(best[0][what][0] for what in ("mean", "low", "high")), strict=True)
        one.append((m, largest[m], *(f"{a:.2f} ({b:.2f}, {c:.2f})" for a, b, c in ends)))
    truth = (f"{value:.2f}" for value in found[KERNEL, largest[KERNEL]][0]["truth"][0])
    return [
        at_budgets("Squared error of the mean", "error"),
        at_budgets("Energy score", "energy"),
        at_budgets(f"Coverage of {LEVEL:.0%} intervals", "covered"),
        Table(
            f"By parameter, {name}",
            ("method", "simulations", "parameter", "error", "CRPS", "coverage"),
            tuple(parameters),
        ),
        Table(
            f"Cost, {name}",
            (
                "method",
                "simulations",
                "anew each time",
                "accepted",
                "s to simulate",
                "s to fit",
                "s to answer",
            ),
            tuple(costs),
        ),
        Table(
            f"One observation: means and {LEVEL:.0%} intervals, {name}",
            ("method", "simulations", *names),
            (("truth", None, *truth), *one),
        ),
    ]


def verdict(plan: Plan, name: str, found: Found) -> list[Claim]:
    lines = []
    words = {"error": "squared error", "energy": "energy score"}
    for other in METHODS[1:]:
        first = plan.alone if other == PYABC else None
        shared = sorted(b for m, b in found if m == other and (KERNEL, b) in found)
        for what, score in words.items():
            if shared:
                compared = [compare(found, other, b, what, first) for b in shared]
                signs = {0: "level with", -1: "below", 1: "above"}
                holds = ahead([signs[sign] for _, sign in compared], "below")
                text = f"{name}: {score} {told(other, shared, compared, plan.runs)}."
                lines.append(Claim(text, holds))
    most = max(b for m, b in found if m == KERNEL)
    covered = [overall(found[KERNEL, b], "covered").mean for b in plan.budgets]
    shares = ", ".join(f"{share:.0%}" for share in covered)
    text = (
        f"{name}: {LEVEL:.0%} intervals of {KERNEL} hold {shares} of the parameters with "
        f"{listed(plan.budgets)} simulations; with {most:,} simulations a new observation takes "
        f"{1000 * overall(found[KERNEL, most], 'seconds').mean:.0f} ms{alone_takes(found)}."
    )
    lines.append(Claim(text))
    return lines


def compare(
    found: Found, other: str, budget: int, what: str, first: int | None
) -> tuple[float, int]:
    """The ratio of our score to another's on the same observations, and who is ahead.

    -1 if we are by more than two standard errors of the difference over runs, 1 if they are, 0 if
    the difference is smaller or there are only a few runs.
    """
    ours, theirs = (by_run(found[m, budget], what, first) for m in (KERNEL, other))
    difference = Figure.of(ours - theirs)
    clear = difference.runs >= FEW and abs(difference.mean) > 2 * difference.standard_error
    return float(ours.mean() / theirs.mean()), int(np.sign(difference.mean)) if clear else 0


def told(other: str, budgets: list[int], compared: list[tuple[float, int]], runs: int) -> str:
    """Ratios of our scores to another's in words."""
    ratios = ", ".join(f"{ratio:.2f}" for ratio, _ in compared)
    line = f"{ratios} × that of {other} with {listed(tuple(budgets))} simulations"
    if runs < FEW:
        return f"{line}; too few runs to tell what is chance"
    clear = []
    for word, sign in (("less", -1), ("more", 1)):
        at = tuple(b for b, (_, s) in zip(budgets, compared, strict=True) if s == sign)
        if at:
            clear.append(f"{word} by over two standard errors with {listed(at)}")
    return f"{line}; {'; '.join(clear) or 'no difference over two standard errors'}"


def alone_takes(found: Found) -> str:
    """What pyABC takes, if it was run."""
    budgets = [b for m, b in found if m == PYABC]
    if not budgets:
        return ""
    seconds = overall(found[PYABC, max(budgets)], "seconds").mean
    return f", by {PYABC} {seconds:.0f} s with {max(budgets):,} of its own"


def picture(plan: Plan, found: dict[str, Found]) -> Curves:
    name = plan.models[-1]
    curves = []
    for m in METHODS:
        budgets = sorted(b for n, b in found[name] if n == m)
        if budgets:
            figures = tuple(overall(found[name][m, b], "energy") for b in budgets)
            curves.append((m, tuple(map(float, budgets)), figures))
    return Curves(name, "simulations", "energy score", tuple(curves), logx=True)
