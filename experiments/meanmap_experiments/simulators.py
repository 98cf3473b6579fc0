"""Standard simulators: posteriors without a likelihood against exact ones (Lueckmann et al. 2021).

Their tasks and their figure, the accuracy of a classifier that tells draws of an answer from draws
of the exact posterior. Observations are drawn anew here and the paper draws its figures as curves,
so that what it says of them stands in the place of published figures.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meanmap import plots
from meanmap.kernels import Gaussian
from meanmap.statistics import mmd
from meanmap_experiments import learners
from meanmap_experiments.results import COLOURS, MARKS, Claim, Figure, Outcome, Table, ahead, paired
from meanmap_experiments.runs import each
from meanmap_experiments.tasks import TASKS, c2st

KERNEL, ROUNDS = "KernelABC", "KernelABC in two rounds"
NPE, PYABC = "NPE of sbi", "pyABC"
ADJUSTED, REJECTION = "adjusted rejection", "rejection"
AGAIN = "exact, drawn again"
OURS, PEERS = (KERNEL, ROUNDS), (NPE, PYABC, ADJUSTED, REJECTION)
METHODS = (*OURS, *PEERS)
ALONE = (ROUNDS, PYABC)  # these simulate for each observation
SOONER = (NPE, PYABC)  # peers that have to learn before they answer
HASTY = {"folds": 2, "iterations": 60}  # a C2ST that ranks as the whole one does, in a twentieth
LEARNERS: dict[str, Callable[..., learners.Learned]] = {
    KERNEL: learners.kernel,
    ROUNDS: learners.rounds,
    NPE: learners.neural,
    PYABC: learners.sequential,
    ADJUSTED: learners.adjusted,
    REJECTION: learners.rejection,
}


@dataclass(frozen=True)
class Plan(learners.Amount):
    """How much is done."""

    tasks: tuple[str, ...] = tuple(TASKS)
    sizes: tuple[int, ...] = (1000, 10_000)  # simulations
    observations: int = 5
    iterations: int = 1000  # of training a classifier


FULL = Plan()
QUICK = Plan(
    tasks=("two_moons",),
    sizes=(300,),
    observations=2,
    draws=300,
    flow="maf",
    epochs=100,
    iterations=50,
)


@dataclass(frozen=True)
class Answer:
    """What a method makes of one observation."""

    #: by candidate: draws, a hasty C2ST to choose among them by, seconds once y is known
    candidates: dict[str, tuple[np.ndarray, float, float]]
    before: float  # seconds before an observation has to be known
    refused: bool = False  # a second round found too few draws where the posterior is


@dataclass
class Found:
    """Figures by task, method and simulations: one value an observation."""

    c2st: dict[tuple[str, str, int], list[float]] = field(default_factory=dict)
    mmd: dict[tuple[str, str, int], list[float]] = field(default_factory=dict)
    first: dict[tuple[str, str, int], list[float]] = field(default_factory=dict)
    later: dict[tuple[str, str, int], list[float]] = field(default_factory=dict)
    chosen: dict[tuple[str, str, int], str] = field(default_factory=dict)
    refused: int = 0


def run(
    quick: bool = False,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: bool | None = None,
    plan: Plan | None = None,
) -> Outcome:
    """Answer observations of standard simulators, and compare with their exact posteriors.

    Needs sbi and pyABC: `pip install sbi pyabc`.

    Parameters
    ----------
    quick, seed, n_jobs, progress : as in `meanmap_experiments.run`
    plan : Plan or None
        How much is done, if neither the quick nor the full experiment.
    """
    require()
    plan = plan or (QUICK if quick else FULL)
    everything = range(plan.observations)
    slowest_first = sorted(plan.tasks, key=lambda name: TASKS[name].outputs, reverse=True)
    pairs = [(name, i) for name in slowest_first for i in everything]
    exact = each(
        references, [(plan, *p, seed) for p in pairs], "exact posteriors", n_jobs, progress
    )
    known = dict(zip(pairs, exact, strict=True))
    jobs = [
        (plan, name, method, size, which, [known[name, i][0] for i in which], seed)
        for size in sorted(plan.sizes, reverse=True)
        for method in sorted(METHODS, key=lambda m: m not in SOONER)
        for name in slowest_first
        for which in ([(i,) for i in everything] if method in ALONE else [tuple(everything)])
    ]
    answers: dict[tuple[str, str, int], list[Answer]] = {}
    for job, answer in zip(jobs, each(answered, jobs, "answers", n_jobs, progress), strict=True):
        answers.setdefault((job[1], job[2], job[3]), []).extend(answer)
    found, judged = Found(), []
    for key, given in answers.items():
        best = min(given[0].candidates, key=lambda c: np.mean([a.candidates[c][1] for a in given]))
        found.chosen[key] = best
        found.later[key] = [a.candidates[best][2] for a in given]
        found.first[key] = [a.before + a.candidates[best][2] for a in given]
        found.refused += sum(a.refused for a in given)
        judged += [(key, known[key[0], i][0], a.candidates[best][0]) for i, a in enumerate(given)]
    judged += [((name, AGAIN, 0), *known[name, i]) for name, i in pairs]
    pairings = [(plan, exact, draws, seed) for _, exact, draws in judged]
    scores = each(judge, pairings, "classifiers", n_jobs, progress)
    for (key, *_), (score, distance) in zip(judged, scores, strict=True):
        found.c2st.setdefault(key, []).append(score)
        found.mmd.setdefault(key, []).append(distance)
    return Outcome(
        name="simulators",
        title="Standard simulators: posteriors without a likelihood",
        citation="Lueckmann, Boelts, Greenberg, Gonçalves and Macke (2021), Benchmarking "
        "simulation-based inference",
        settings=settings(plan),
        tables=tuple(t for name in plan.tasks for t in tables(plan, name, found)),
        verdict=verdict(plan, found),
        quick=quick,
        seed=seed,
        picture=picture(plan, found),
    )


def require() -> None:
    """An error if what the experiment compares with is not installed."""
    try:
        import pyabc  # noqa: F401
        import sbi  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "the experiment 'simulators' compares with sbi and pyABC, and there is no "
            f"{error.name or 'such package'}: pip install sbi pyabc"
        ) from error


# --- what is run ----------------------------------------------------------------------------------


def references(plan: Plan, name: str, i: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws from the exact posterior, and as many from an independent run."""
    task = TASKS[name]
    return task.reference(i, plan.draws, seed), task.reference(i, plan.draws, seed, repeat=1)


def judge(plan: Plan, exact: np.ndarray, draws: np.ndarray, seed: int) -> tuple[float, float]:
    """C2ST, and the squared MMD in units of the exact posterior's deviations."""
    X, Y = exact / exact.std(axis=0), draws / exact.std(axis=0)
    return c2st(X, Y, seed, iterations=plan.iterations), mmd(X, Y, Gaussian().resolve(X))


def answered(
    plan: Plan,
    name: str,
    method: str,
    size: int,
    which: tuple[int, ...],
    exact: list[np.ndarray],
    seed: int,
) -> list[Answer]:
    """One method's answers to some observations, with so many simulations."""
    task = TASKS[name]
    rng = np.random.default_rng((seed, task.number, size, METHODS.index(method), which[0]))
    observed = [task.observation(i, seed) for i in which]
    began = time.perf_counter()
    answer = LEARNERS[method](plan, task, size, rng)
    before = time.perf_counter() - began
    found = []
    for y, reference in zip(observed, exact, strict=True):
        refused, candidates = False, {}
        began = time.perf_counter()
        asks = answer(y)
        shared = time.perf_counter() - began
        for candidate, ask in asks.items():
            began = time.perf_counter()
            try:
                draws = ask()
            except learners.Refused as refusal:
                draws, refused = refusal.draws, True
            seconds = shared + time.perf_counter() - began
            score = c2st(reference, draws, seed, **HASTY) if len(asks) > 1 else 0.0
            candidates[candidate] = (draws, score, seconds)
        found.append(Answer(candidates, before, refused))
    return found


# --- what is reported -----------------------------------------------------------------------------


def settings(plan: Plan) -> dict[str, str]:
    stop = "sbi's early stopping"
    stop += "" if plan.epochs is None else f" or {plan.epochs} epochs"
    return {
        "tasks": ", ".join(
            f"{TASKS[name].title} ({len(TASKS[name].prior)} parameters, {TASKS[name].outputs} "
            "outputs)"
            for name in plan.tasks
        ),
        "data": f"{', '.join(f'{n:,}' for n in plan.sizes)} simulations; {plan.observations} "
        "observations of the prior predictive distribution; one set of simulations for all of "
        f"them, but for {' and '.join(ALONE)}, which simulate for each",
        "figures": f"C2ST, the held-out accuracy of a classifier between {plan.draws:,} draws and "
        "as many of the exact posterior: 0.5 is the best, 1 the worst; squared MMD at the median "
        "distance of the exact draws",
        "exact": "draws in closed form for two moons, by tempered Monte Carlo with the likelihood "
        f"for the others; {AGAIN!r} is a second, independent run",
        "seconds": "on one core with simulation: to the first answer, and to one more observation",
        NPE: f"flow {plan.flow!r}, {stop}, other settings sbi's own",
        "in hindsight": f"{REJECTION} and {ADJUSTED} have the number of simulations kept, and "
        f"with {PYABC} the smoothing of draws, that have the least mean C2ST of a hasty classifier",
    }


def tables(plan: Plan, name: str, found: Found) -> tuple[Table, Table]:
    """Distances to the exact posterior, and seconds."""

    def figures(values: dict[tuple[str, str, int], list[float]], method: str) -> list[Any]:
        return [Figure.of(values[name, method, n]) for n in plan.sizes]

    near: list[tuple[Any, ...]] = []
    for method in METHODS:
        near.append((method, *figures(found.c2st, method), *figures(found.mmd, method)))
    floor = [Figure.of(values[name, AGAIN, 0]) for values in (found.c2st, found.mmd)]
    near.append((AGAIN, *(f for f in floor for _ in plan.sizes)))
    quick = [(m, *figures(found.first, m), *figures(found.later, m)) for m in METHODS]
    sizes = [f"{n:,}" for n in plan.sizes]
    title = TASKS[name].title
    return (
        Table(
            f"{title}: distance to the exact posterior",
            ("method", *(f"C2ST, {n}" for n in sizes), *(f"MMD², {n}" for n in sizes)),
            tuple(near),
        ),
        Table(
            f"{title}: seconds",
            ("method", *(f"first answer, {n}" for n in sizes), *(f"next, {n}" for n in sizes)),
            tuple(quick),
        ),
    )


def verdict(plan: Plan, found: Found) -> tuple[Claim, ...]:
    lines = []
    for name in plan.tasks:
        for size in plan.sizes:
            score = {m: float(np.mean(found.c2st[name, m, size])) for m in METHODS}
            order = sorted(METHODS, key=lambda m: score[m])
            against = {ours: compared(ours, name, size, found) for ours in OURS}
            text = (
                f"{TASKS[name].title}, {size:,} simulations: C2ST "
                + ", ".join(f"{m} {score[m]:.2f}" for m in order)
                + "; "
                + "; ".join(told(ours, hows) for ours, hows in against.items())
                + "."
            )
            every = [how for hows in against.values() for how in hows.values()]
            lines.append(Claim(text, ahead(every, "below"), score[OURS[0]]))
    for size in plan.sizes:
        lines += [
            Claim(sooner(plan, size, found, values, words))
            for values, words in (
                (found.first, "The first answer"),
                (found.later, "One more answer"),
            )
        ]
    floor = [v for name in plan.tasks for v in found.c2st[name, AGAIN, 0]]
    text = (
        f"Two independent runs of the exact posterior have a C2ST of {np.mean(floor):.2f} in the "
        f"mean, {max(floor):.2f} at most."
    )
    lines.append(Claim(text))
    quoted = (
        '"neural network-based approaches generally exhibit better performance, but there is no '
        'uniformly best algorithm".'
    )
    lines.append(Claim.quote(quoted))
    if plan.epochs is not None or plan.iterations < FULL.iterations:
        text = (
            f"Training was cut short, of {NPE} after {plan.epochs} epochs and of the classifiers "
            f"after {plan.iterations} iterations: these figures show how the experiment goes, and "
            "rank no one."
        )
        lines.append(Claim(text))
    if found.refused:
        text = (
            f"For {found.refused} observations the second round of {ROUNDS} found too few draws of "
            "the prior where the posterior is; the first round's answer, of half the simulations, "
            "counts."
        )
        lines.append(Claim(text))
    return tuple(lines)


def compared(ours: str, name: str, size: int, found: Found) -> dict[str, str]:
    """How one of our methods compares with each peer, with paired observations."""
    mine = found.c2st[name, ours, size]
    return {peer: paired(mine, found.c2st[name, peer, size])[0] for peer in PEERS}


def told(ours: str, hows: dict[str, str]) -> str:
    """A sentence that says which peers one of our methods differs from."""
    nearer, farther = ([m for m, how in hows.items() if how == w] for w in ("below", "above"))
    parts = [f"nearer than {', '.join(nearer)}"] if nearer else []
    parts += [f"farther than {', '.join(farther)}"] if farther else []
    return f"{ours} is " + (" and ".join(parts) or "not told apart from any")


def sooner(
    plan: Plan,
    size: int,
    found: Found,
    values: dict[tuple[str, str, int], list[float]],
    words: str,
) -> str:
    """Seconds of KernelABC, and how many times as long others take."""
    parts = []
    for name in plan.tasks:
        mine = float(np.mean(values[name, KERNEL, size]))
        ratios = ", ".join(
            f"{m} {np.mean(values[name, m, size]) / mine:.3g}" for m in METHODS if m != KERNEL
        )
        parts.append(f"{TASKS[name].title} {mine:.2g} s (times as long: {ratios})")
    return f"{words} of {KERNEL} with {size:,} simulations: " + "; ".join(parts) + "."


def picture(plan: Plan, found: Found) -> Callable[[Any], Any]:
    """How near, against how soon: a task, a point a method and number of simulations."""
    name = plan.tasks[min(1, len(plan.tasks) - 1)]
    points = {
        m: [
            (float(np.mean(found.first[name, m, n])), Figure.of(found.c2st[name, m, n]))
            for n in plan.sizes
        ]
        for m in METHODS
    }
    sizes = " and ".join(f"{n:,}" for n in plan.sizes)

    def draw(ax: Any = None) -> Any:
        ax = plots.axes(ax)
        for i, (method, found_here) in enumerate(points.items()):
            seconds = [second for second, _ in found_here]
            means = [figure.mean for _, figure in found_here]
            bars = [2 * figure.standard_error for _, figure in found_here]
            style = {"color": COLOURS[i % len(COLOURS)], "marker": MARKS[i % len(MARKS)]}
            ax.errorbar(seconds, means, bars, capsize=2, linewidth=1, label=method, **style)
        ax.axhline(0.5, color=plots.GREY, linewidth=1, linestyle=":")
        ax.set(title=f"{TASKS[name].title}, {sizes} simulations", xscale="log")
        ax.set(xlabel="seconds to the first answer", ylabel="C2ST (0.5 is exact)", ylim=(0.4, 1.02))
        ax.legend(fontsize="x-small", ncols=2, loc="lower left")
        return ax

    return draw
