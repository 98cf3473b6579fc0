"""Depth from one picture by belief propagation (Song, Fukumizu and Gretton 2013, 5.1.3).

A grid of log-depths, a node a patch, each joined to 273 features of its patch; every picture is
predicted by what the others teach. The scenes are ours, so that errors cannot be compared with the
published ones: what can be is who is nearer, and who is sooner.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from meanmap import plots
from meanmap.experiments.bayes import paired
from meanmap.experiments.depth import SIZES, ensure, load
from meanmap.experiments.depth.methods import (
    ALONE,
    DISCRETE,
    KERNEL,
    METHODS,
    MIXTURES,
    PAPER,
    PARTICLES,
    RIDGE,
    ROW,
    TEMPERED,
    TREES,
    Lesson,
    Scale,
    Setting,
)
from meanmap.experiments.results import COLOURS, MARKS, Cell, Figure, Outcome, Table
from meanmap.experiments.runs import each

PUBLISHED: dict[str, Cell] = {
    KERNEL: 0.145,
    DISCRETE: "largest",
    PARTICLES: "between",
    MIXTURES: "between",
}
SOON: dict[str, Cell] = {
    KERNEL: 1,
    DISCRETE: "about 1",
    PARTICLES: "about 100",
    MIXTURES: "about 100",
}
SLOW = (PARTICLES, MIXTURES)
HALVES = ("first half", "second half")


@dataclass(frozen=True)
class Plan:
    """How much is done."""

    size: str = "full"
    tests: tuple[int, ...] | None = None  # the pictures that are predicted; None for all
    scale: Scale = Scale()
    edges: tuple[float, ...] = (0.01, 0.03, 0.1)  # what validation chooses from: λ between depths,
    looks: tuple[float, ...] = (0.02, 0.1, 0.5)  # λ from features to depths,
    trusts: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4, 1.0)  # powers of evidence,
    powers: tuple[float, ...] = (0.5, 0.25, 0.1, 0.05)  # of potentials,
    ridges: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)  # and λ of the regression
    validation: int = 6  # pictures
    validation_slow: int = 2  # for methods that take long


FULL = Plan()
QUICK = Plan(
    size="small",
    tests=(2, 9, 20),
    scale=Scale(samples=200, particles=25, components=3),
    edges=(0.1,),
    looks=(0.5,),
    trusts=(0.1, 0.5),
    powers=(0.25, 0.1),
    validation=2,
    validation_slow=1,
)


def run(
    quick: bool = False,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: bool | None = None,
    plan: Plan | None = None,
) -> Outcome:
    """Predict depths of pictures, each by what the others teach.

    Parameters
    ----------
    quick, seed, n_jobs, progress : as in `meanmap.experiments.run`
    plan : Plan or None
        How much is done, if neither the quick nor the full experiment.
    """
    plan = plan or (QUICK if quick else FULL)
    ensure(plan.size, progress=progress)  # rendered once, before the processes look for it
    tests = range(SIZES[plan.size].scenes) if plan.tests is None else plan.tests
    chosen = settings(plan, seed, n_jobs, progress)
    half = halves(plan, seed)
    jobs = [(plan, k, chosen[int(k in half[1])], seed, k == tests[0]) for k in tests]
    found = each(one_picture, jobs, "depth", n_jobs, progress)
    errors = {m: [one.errors[m] for one in found] for m in METHODS}
    seconds = {m: [one.seconds[m] for one in found] for m in METHODS}
    learning = {m: [one.learning[m] for one in found] for m in METHODS}
    rows, columns = SIZES[plan.size][1:]
    return Outcome(
        name="depth",
        title="Depth from one picture",
        citation="Song, Fukumizu and Gretton (2013), section 5.1.3 and Figure 7",
        settings={
            "data": f"{SIZES[plan.size].scenes} scenes rendered by POV-Ray with the true depth of "
            f"{rows} × {columns} patches, 273 features each (filters of texture and colour, of "
            f"the patch and around it), standardised row by row; {len(tests)} of the scenes are "
            "predicted, each by what all the others teach. The paper has 274 photographs with "
            "depths by laser",
            "error": "mean absolute error of the logarithm of the depth in metres, over a "
            "picture's patches; natural, and also to base 10, which the published 0.145 probably "
            "is. Mean ± standard error over pictures",
            "graph": "each depth has four neighbours and its features; pairs in a row share a "
            f"potential, and so do those from a row to the next; {plan.scale.iterations} "
            "iterations",
            "evidence": "what features say of a depth is the same for all kinds of belief "
            "propagation, a regularised estimate with a linear kernel on features and a Gaussian "
            "on depths; each raises it to a power (trust) of its own, for features of neighbouring "
            "patches overlap and count several times",
            KERNEL: f"BeliefPropagation, {plan.scale.samples} values a row, Gaussian kernel at "
            "half the median distance, the default (the paper has the median)",
            TREES: 'the same with reweighting="trees", its trust chosen with the λ of the former. '
            "Not in the paper",
            DISCRETE: f"{plan.scale.bins} bins; potentials are ratios of counts from all pairs",
            PARTICLES: f"{plan.scale.particles} particles (Ihler and McAllester 2009), redrawn by "
            "a Metropolis step after each iteration; ratios of densities, bandwidths by "
            "held-out likelihood",
            MIXTURES: f"{plan.scale.components} Gaussians a message (Sudderth et al. 2003); the "
            "same ratios, fitted by as many",
            TEMPERED: "potentials raised to a power below 1, chosen like the trust: "
            "loops count what neighbours say several times too. Not in the paper",
            ALONE: "a row's depths weighed by what features say, no neighbours",
            RIDGE: "with an intercept, row by row, clipped to the depths that there are",
            "choices": "powers and λ by validation: for each half of the pictures by the error on "
            f"{plan.validation} pictures ({plan.validation_slow} for particles and mixtures) of "
            "the other half, learned from three quarters of it; λ of features by the evidence "
            "alone, so that it favours no kind of propagation",
            "seconds": "on one thread; of inference from features to depths. What is shared is "
            f"learned once: evidence with {KERNEL}, densities of pairs with {PARTICLES}",
        },
        tables=(
            accuracy(errors),
            duration(seconds, learning),
            choices(chosen),
        ),
        verdict=verdict(errors, seconds),
        quick=quick,
        seed=seed,
        picture=Panels(plan.size, tests[0], found[0].maps, errors, seconds),
    )


# --- settings -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chosen:
    """What validation chose for half of the pictures."""

    edges: float
    look: float
    methods: dict[str, Setting]


def halves(plan: Plan, seed: int) -> list[np.ndarray]:
    """The pictures' numbers, two random halves."""
    n = SIZES[plan.size].scenes
    order = np.random.default_rng((seed, 513)).permutation(n)
    return [order[: n // 2], order[n // 2 :]]


def settings(
    plan: Plan, seed: int, n_jobs: int | None, progress: bool | None
) -> tuple[Chosen, Chosen]:
    """For the pictures of each half what is best within the other half."""
    first = [(plan, seed, half, plan.edges[0], look) for half in (0, 1) for look in plan.looks]
    tasks = [job + (tries(plan, (ALONE, RIDGE)),) for job in first]
    alone = each(validated, tasks, "depth: choosing λ of features", n_jobs, progress)
    scores: list[Scores] = [{}, {}]
    for (_, _, half, _, look), found in zip(first, alone, strict=True):
        for (method, setting), error in found.items():
            scores[half][method, setting, look] = error
    looks = [best(scores[half], ALONE)[1] for half in (0, 1)]
    jobs = []
    for half in (0, 1):
        # a setting a job where it takes long, and those first
        for method in (*SLOW, KERNEL, DISCRETE, TEMPERED):
            wanted = tries(plan, (KERNEL, TREES) if method == KERNEL else (method,))
            parts = [(one,) for one in wanted] if method in SLOW else [wanted]
            lambdas = plan.edges if method == KERNEL else plan.edges[:1]
            jobs += [
                (plan, seed, half, edges, looks[half], part) for part in parts for edges in lambdas
            ]
    jobs.sort(key=lambda job: (job[-1][0][0] not in SLOW, job[3]))
    more = each(validated, jobs, "depth: choosing powers", n_jobs, progress)
    for (_, _, half, edges, _, _), found in zip(jobs, more, strict=True):
        for (method, setting), error in found.items():
            scores[half][method, setting, edges] = error
    chosen = []
    for half in (0, 1):
        methods = {m: best(scores[half], m)[0] for m in METHODS if m not in (TREES, ROW)}
        edges = best(scores[half], KERNEL)[1]
        methods[TREES] = best({k: v for k, v in scores[half].items() if k[2] == edges}, TREES)[0]
        chosen.append(Chosen(edges, looks[half], {**methods, ROW: Setting()}))
    return chosen[0], chosen[1]


Try = tuple[str, Setting]
Scores = dict[tuple[str, Setting, float], float]  # method, what it was told, λ


def tries(plan: Plan, methods: Iterable[str]) -> tuple[Try, ...]:
    """What is tried of methods."""
    found: list[Try] = []
    for method in methods:
        if method == RIDGE:
            found += [(RIDGE, Setting(ridge=ridge)) for ridge in plan.ridges]
            continue
        powers = plan.powers if method == TEMPERED else (1.0,)
        found += [(method, Setting(trust, power)) for power in powers for trust in plan.trusts]
    return tuple(found)


def validated(
    plan: Plan, seed: int, half: int, edges: float, look: float, wanted: tuple[Try, ...]
) -> dict[Try, float]:
    """Errors within the half that is not to be predicted."""
    other = halves(plan, seed)[1 - half]
    split = 3 * len(other) // 4
    lesson = taught(plan.size, tuple(sorted(other[:split])), edges, look, plan.scale, seed)
    found = {}
    for method, setting in wanted:
        count = plan.validation_slow if method in SLOW else plan.validation
        held = other[split : split + count]
        found[method, setting] = float(
            np.mean([error(lesson, k, lesson.answer(method, k, setting).depths) for k in held])
        )
    return found


@lru_cache(maxsize=2)
def taught(
    size: str, train: tuple[int, ...], edges: float, look: float, scale: Scale, seed: int
) -> Lesson:
    """A lesson, the last two kept: the next task of a process often wants one of them."""
    return Lesson(size, np.array(train), edges, look, scale, seed)


def best(scores: Scores, method: str) -> tuple[Setting, float]:
    """What a method did best with, and λ then."""
    mine = {key: value for key, value in scores.items() if key[0] == method}
    _, setting, lam = min(mine, key=lambda key: mine[key])
    return setting, lam


# --- pictures -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Found:
    """Of one picture, by method: errors, seconds of inference and of learning, and depths."""

    errors: dict[str, float]
    seconds: dict[str, float]
    learning: dict[str, float]
    maps: dict[str, np.ndarray]


def error(lesson: Lesson, picture: int, depths: np.ndarray) -> float:
    """Mean absolute error of log-depths."""
    return float(np.abs(depths - lesson.data.depths[picture]).mean())


def one_picture(plan: Plan, picture: int, chosen: Chosen, seed: int, shown: bool) -> Found:
    """All methods, learned from all other pictures."""
    taught.cache_clear()
    others = np.delete(np.arange(SIZES[plan.size].scenes), picture)
    lesson = Lesson(plan.size, others, chosen.edges, chosen.look, plan.scale, seed)
    found = Found({}, {}, {}, {})
    for method in METHODS:
        found.learning[method] = lesson.learn(method)
        answer = lesson.answer(method, picture, chosen.methods[method])
        found.errors[method] = error(lesson, picture, answer.depths)
        found.seconds[method] = answer.seconds
        if shown:
            found.maps[method] = answer.depths
    return found


# --- what is shown --------------------------------------------------------------------------------

Values = dict[str, list[float]]


def accuracy(errors: Values) -> Table:
    rows: list[tuple[Any, ...]] = []
    for method in METHODS:
        gap = Figure.of(np.subtract(errors[method], errors[KERNEL])) if method != KERNEL else None
        tens = Figure.of(np.divide(errors[method], np.log(10)))
        rows.append((method, Figure.of(errors[method]), tens, gap))
    headings = ("method", "MAE of ln depth", "MAE of log₁₀ depth", f"more than {KERNEL} (ln)")
    published = tuple(PUBLISHED.get(method) for method in METHODS)
    return Table("Errors of log-depth", headings, tuple(rows), published)


def duration(seconds: Values, learning: Values) -> Table:
    rows: list[tuple[Any, ...]] = []
    ours = float(np.mean(seconds[KERNEL]))
    for method in METHODS:
        took = float(np.mean(seconds[method]))
        learned = (
            Figure.of(learning[method]) if method not in (TREES, TEMPERED, ALONE, ROW) else None
        )
        rows.append((method, learned, Figure.of(seconds[method]), took / ours))
    headings = ("method", "seconds to learn", "seconds of inference", f"times {KERNEL}")
    published = tuple(SOON.get(method) for method in METHODS)
    return Table("Seconds a picture, on one thread", headings, tuple(rows), published)


def choices(chosen: tuple[Chosen, Chosen]) -> Table:
    rows: list[tuple[Any, ...]] = [
        (f"{KERNEL}: λ of edges", *(one.edges for one in chosen)),
        ("all: λ of features", *(one.look for one in chosen)),
    ]
    for method in (*PAPER, TREES, TEMPERED, ALONE):
        rows.append((f"{method}: trust", *(one.methods[method].trust for one in chosen)))
    rows.append(
        (f"{TEMPERED}: power of edges", *(one.methods[TEMPERED].power for one in chosen)),
    )
    rows.append((f"{RIDGE}: λ", *(one.methods[RIDGE].ridge for one in chosen)))
    headings = ("setting", *(f"for the {half}" for half in HALVES))
    return Table("What validation chose", headings, tuple(rows))


def verdict(errors: Values, seconds: Values) -> tuple[str, ...]:
    mean = {method: float(np.mean(errors[method])) for method in METHODS}
    lines = []
    for method in PAPER[1:]:
        how, _, _ = paired(errors[KERNEL], errors[method])
        lines.append(
            f"Error: {KERNEL} {mean[KERNEL]:.3f}, {how} {method} ({mean[method]:.3f}) by paired "
            "differences; below as published "
            f"{'holds' if how == 'below' else 'does not hold'}."
        )
    worst = max(PAPER, key=lambda method: mean[method])
    lines.append(
        f"Of the paper's four the largest error is that of {worst}; that it is {DISCRETE}'s "
        f"{'holds' if worst == DISCRETE else 'does not hold'}."
    )
    for method in (RIDGE, ALONE, TEMPERED):
        how, _, _ = paired(errors[KERNEL], errors[method])
        lines.append(
            f"Error: {KERNEL} {mean[KERNEL]:.3f}, {how} {method} ({mean[method]:.3f}) by paired "
            "differences; the paper does not have it."
        )
    soon = {method: float(np.mean(seconds[method])) for method in PAPER}
    times = soon[KERNEL] / soon[DISCRETE]
    lines.append(
        f"Inference: {KERNEL} takes {soon[KERNEL]:.2g} s, {times:.2g} times as long as {DISCRETE} "
        f"({soon[DISCRETE]:.2g} s); a similar time (at most twice as long) "
        f"{'holds' if times <= 2 else 'does not hold'}."
    )
    for method in SLOW:
        times = soon[method] / soon[KERNEL]
        lines.append(
            f"Inference: {method} takes {soon[method]:.2g} s, {times:.2g} times as long as "
            f"{KERNEL}; two orders of magnitude (at least 30 times) "
            f"{'holds' if times >= 30 else 'does not hold'}."
        )
    return tuple(lines)


@dataclass(frozen=True, eq=False)
class Panels:
    """A picture with its depths, true and as found, and errors against seconds."""

    size: str
    number: int
    maps: dict[str, np.ndarray]
    errors: Values
    seconds: Values

    def __call__(self, ax: Any = None) -> Any:
        """On new axes a picture and its depths as well; on axes that are given errors only."""
        if ax is not None:
            return self.errors_against_seconds(ax)
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError("plots need matplotlib: pip install 'meanmap[plot]'") from error
        count = -(-(len(METHODS) + 2) // 2)  # a picture, the truth, methods but one, errors
        places = plt.subplots(2, count, figsize=(3 * count, 8), layout="constrained")[1].ravel()
        images, depths = load(self.size)
        truth = np.log(depths[self.number])
        places[0].imshow(images[self.number])
        places[0].set(title="picture")
        shown = [("true depth", truth), *((method, self.maps[method]) for method in METHODS[:-1])]
        for place, (name, values) in zip(places[1:], shown, strict=False):
            # one scale for all, that of the truth
            drawn = place.imshow(
                values, cmap=plots.MAP, vmin=truth.min(), vmax=truth.max(), interpolation="nearest"
            )
            gap = "" if values is truth else f"\n{np.abs(values - truth).mean():.3f}"
            place.set(title=f"{name}{gap}")
        for place in places[:-1]:
            place.set(xticks=[], yticks=[])
            place.set_axis_on() if place.get_title() else place.set_axis_off()
        bar = places[0].figure.colorbar(drawn, ax=list(places), location="left", shrink=0.6)
        bar.set_label("ln of depth in metres")
        self.errors_against_seconds(places[-1])
        return places

    def errors_against_seconds(self, ax: Any) -> Any:
        for i, method in enumerate(m for m in METHODS if m != ROW):
            near = Figure.of(self.errors[method])
            ax.errorbar(
                float(np.mean(self.seconds[method])),
                near.mean,
                2 * near.standard_error,
                linestyle="",
                marker=MARKS[i % len(MARKS)],
                color=COLOURS[i % len(COLOURS)],
                fillstyle="full" if method in PAPER else "none",
                capsize=2,
                label=method,
            )
        ax.axhline(float(np.mean(self.errors[ROW])), color=plots.GREY, linestyle=":", label=ROW)
        ax.set_xscale("log")
        # room for the names above the points
        ax.set_ylim(0, 2 * max(float(np.mean(values)) for values in self.errors.values()))
        ax.set(xlabel="seconds of inference", ylabel="MAE of ln depth")
        ax.legend(fontsize="x-small", loc="upper left")
        return ax
