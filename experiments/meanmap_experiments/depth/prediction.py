"""Depth from one picture by belief propagation (Song, Fukumizu and Gretton 2013, 5.1.3).

A grid of log-depths, a node a patch, each joined to 273 features of its patch; every picture is
predicted by what the others teach. The scenes are ours, so that errors cannot be compared with the
published ones: what can be is who is nearer, and who is sooner.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from meanmap import plots
from meanmap_experiments.depth import SIZES, ensure, load
from meanmap_experiments.depth.methods import (
    ALONE,
    DISCRETE,
    KERNEL,
    METHODS,
    MIXTURES,
    PAPER,
    PARTICLES,
    PLAIN,
    REWEIGHTING,
    RIDGE,
    ROW,
    TEMPERED,
    TREES,
    Lesson,
    Scale,
    Setting,
)
from meanmap_experiments.results import (
    Cell,
    Claim,
    Figure,
    Outcome,
    Table,
    against_seconds,
    ahead,
    paired,
)
from meanmap_experiments.runs import each

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
    trusts: tuple[float, ...] = (0.1, 0.2, 0.4, 1.0)  # powers of evidence,
    trusts_slow: tuple[float, ...] = (0.2, 1.0)  # for methods that take long,
    powers: tuple[float, ...] = (0.5, 0.25, 0.1)  # of potentials,
    ridges: tuple[float, ...] = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # and λ of the regression
    folds: int = 3  # of the pictures that are not predicted
    validation: int = 4  # pictures of each
    validation_slow: int = 1  # for methods that take long


FULL = Plan()
QUICK = Plan(
    size="small",
    tests=(2, 9),
    scale=Scale(samples=200, particles=25, components=3),
    edges=(0.1,),
    looks=(0.5,),
    trusts=(0.2, 1.0),
    trusts_slow=(0.2,),
    powers=(0.25,),
    folds=2,
    validation=1,
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
    quick, seed, n_jobs, progress : as in `meanmap_experiments.run`
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
            KERNEL: "BeliefPropagation with its defaults: a Gaussian kernel at half the median "
            "distance (the paper has the median), a grid of values for each row, all pairs of "
            "neighbours, and edges that count halfway between once and their share of trees",
            PLAIN: "the same with reweighting=1, as in the paper",
            TREES: 'the same with reweighting="trees". Not in the paper',
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
            "choices": "powers and λ of every method by cross-validation: for each half of the "
            f"pictures by the error on {plan.validation} pictures ({plan.validation_slow} for "
            f"particles and mixtures) of each of {plan.folds} folds of the other half",
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


Chosen = dict[str, Setting]  # what validation chose for a method


def halves(plan: Plan, seed: int) -> list[np.ndarray]:
    """The pictures' numbers, two random halves."""
    n = SIZES[plan.size].scenes
    order = np.random.default_rng((seed, 513)).permutation(n)
    return [order[: n // 2], order[n // 2 :]]


def settings(
    plan: Plan, seed: int, n_jobs: int | None, progress: bool | None
) -> tuple[Chosen, Chosen]:
    """For the pictures of each half what every method does best with, within the other half."""
    jobs = [
        (plan, seed, half, fold, lesson, part)
        for half in (0, 1)
        for fold in range(plan.folds)
        for lesson, parts in lessons(plan).items()
        for part in parts
    ]
    jobs.sort(key=lambda job: job[-1][0][0] not in SLOW)  # what takes long goes first
    scores: list[dict[Try, list[float]]] = [{}, {}]
    found = each(validated, jobs, "depth: choosing settings", n_jobs, progress)
    for (_, _, half, *_), errors in zip(jobs, found, strict=True):
        for one, values in errors.items():
            scores[half].setdefault(one, []).extend(values)
    chosen = []
    for half in (0, 1):
        mean = {one: float(np.mean(values)) for one, values in scores[half].items()}
        best = {m: min((t for t in mean if t[0] == m), key=mean.__getitem__)[1] for m in TUNED}
        chosen.append({**best, ROW: Setting()})
    return chosen[0], chosen[1]


Try = tuple[str, Setting]
TUNED = tuple(method for method in METHODS if method != ROW)


def tries(plan: Plan, method: str) -> list[Try]:
    """What is tried of a method."""
    if method == RIDGE:
        return [(RIDGE, Setting(ridge=ridge)) for ridge in plan.ridges]
    edges = plan.edges if method in REWEIGHTING else plan.edges[:1]
    powers = plan.powers if method == TEMPERED else (1.0,)
    trusts = plan.trusts_slow if method in SLOW else plan.trusts
    return [
        (method, Setting(trust, power, 0.0, lam, look))
        for trust, power, lam, look in product(trusts, powers, edges, plan.looks)
    ]


def lessons(plan: Plan) -> dict[tuple[float, float], list[tuple[Try, ...]]]:
    """What is tried by the λs that it is taught with, in parts: one a try where it takes long."""
    found: dict[tuple[float, float], list[tuple[Try, ...]]] = {}
    quick: dict[tuple[float, float], list[Try]] = {}
    for method in TUNED:
        for one in tries(plan, method):
            lesson = taught_with(plan, one)
            if method in SLOW:
                found.setdefault(lesson, []).append((one,))
            else:
                quick.setdefault(lesson, []).append(one)
    for lesson, several in quick.items():
        found.setdefault(lesson, []).append(tuple(several))
    return found


def taught_with(plan: Plan, one: Try) -> tuple[float, float]:
    """The λs of a lesson: the regression has none of its own."""
    method, setting = one
    return (plan.edges[0], plan.looks[0]) if method == RIDGE else (setting.edges, setting.look)


def validated(
    plan: Plan,
    seed: int,
    half: int,
    fold: int,
    lesson: tuple[float, float],
    wanted: tuple[Try, ...],
) -> dict[Try, list[float]]:
    """Errors on some pictures of a fold of the half that is not predicted."""
    other = halves(plan, seed)[1 - half]
    held, train = other[fold :: plan.folds], np.setdiff1d(other, other[fold :: plan.folds])
    teacher = taught(plan.size, tuple(train.tolist()), *lesson, plan.scale, seed)
    found = {}
    for method, setting in wanted:
        some = held[: plan.validation_slow if method in SLOW else plan.validation]
        found[method, setting] = [
            error(teacher, k, teacher.answer(method, k, setting).depths) for k in some
        ]
    return found


@lru_cache(maxsize=2)
def taught(
    size: str, train: tuple[int, ...], edges: float, look: float, scale: Scale, seed: int
) -> Lesson:
    """A lesson, the last two kept: the next task of a process often wants one of them."""
    return Lesson(size, np.array(train), edges, look, scale, seed)


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
    others = tuple(np.delete(np.arange(SIZES[plan.size].scenes), picture).tolist())
    found = Found({}, {}, {}, {})
    by_lesson = sorted(METHODS, key=lambda m: taught_with(plan, (m, chosen[m])))
    for method in by_lesson:
        setting = chosen[method]
        lesson = taught(plan.size, others, *taught_with(plan, (method, setting)), plan.scale, seed)
        found.learning[method] = lesson.learn(method)
        answer = lesson.answer(method, picture, setting)
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
            Figure.of(learning[method])
            if method not in (PLAIN, TREES, TEMPERED, ALONE, ROW)
            else None
        )
        rows.append((method, learned, Figure.of(seconds[method]), took / ours))
    headings = ("method", "seconds to learn", "seconds of inference", f"times {KERNEL}")
    published = tuple(SOON.get(method) for method in METHODS)
    return Table("Seconds a picture, on one thread", headings, tuple(rows), published)


def choices(chosen: tuple[Chosen, Chosen]) -> Table:
    rows: list[tuple[Any, ...]] = []
    for method in (*PAPER, PLAIN, TREES, TEMPERED, ALONE):
        rows.append((f"{method}: trust", *(one[method].trust for one in chosen)))
        rows.append((f"{method}: λ of features", *(one[method].look for one in chosen)))
        if method in REWEIGHTING:
            rows.append((f"{method}: λ of edges", *(one[method].edges for one in chosen)))
    rows.append((f"{TEMPERED}: power of edges", *(one[TEMPERED].power for one in chosen)))
    rows.append((f"{RIDGE}: λ", *(one[RIDGE].ridge for one in chosen)))
    headings = ("setting", *(f"for the {half}" for half in HALVES))
    return Table("What validation chose", headings, tuple(rows))


def verdict(errors: Values, seconds: Values) -> tuple[Claim, ...]:
    mean = {method: float(np.mean(errors[method])) for method in METHODS}
    lines = []
    for method in PAPER[1:]:
        how, _, _ = paired(errors[KERNEL], errors[method])
        text = (
            f"Error: {KERNEL} {mean[KERNEL]:.3f}, {how} {method} ({mean[method]:.3f}) by paired "
            "differences; below as published "
            f"{'holds' if how == 'below' else 'does not hold'}."
        )
        lines.append(Claim(text, how == "below", mean[KERNEL], f"below {method}"))
    worst = max(PAPER, key=lambda method: mean[method])
    text = (
        f"Of the paper's four the largest error is that of {worst}; that it is {DISCRETE}'s "
        f"{'holds' if worst == DISCRETE else 'does not hold'}."
    )
    lines.append(Claim(text, worst == DISCRETE, worst, DISCRETE))
    for ours, method in (
        *product((KERNEL, TREES), (RIDGE, ALONE, TEMPERED)),
        *product((PLAIN, TREES), PAPER),
    ):
        how, _, _ = paired(errors[ours], errors[method])
        text = (
            f"Error: {ours} {mean[ours]:.3f}, {how} {method} ({mean[method]:.3f}) by paired "
            "differences; the paper does not have it."
        )
        lines.append(Claim(text, ahead([how], "below"), mean[ours]))
    soon = {method: float(np.mean(seconds[method])) for method in PAPER}
    times = soon[KERNEL] / soon[DISCRETE]
    text = (
        f"Inference: {KERNEL} takes {soon[KERNEL]:.2g} s, {times:.2g} times as long as {DISCRETE} "
        f"({soon[DISCRETE]:.2g} s); a similar time (at most twice as long) "
        f"{'holds' if times <= 2 else 'does not hold'}."
    )
    lines.append(Claim(text, times <= 2, times, "a similar time"))
    for method in SLOW:
        times = soon[method] / soon[KERNEL]
        text = (
            f"Inference: {method} takes {soon[method]:.2g} s, {times:.2g} times as long as "
            f"{KERNEL}; two orders of magnitude (at least 30 times) "
            f"{'holds' if times >= 30 else 'does not hold'}."
        )
        lines.append(Claim(text, times >= 30, times, "two orders of magnitude"))
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
        count = -(-(len(METHODS) + 2) // 2)  # a picture, the truth, methods but one, errors
        places = plots.new_sheets(2, count, (3 * count, 8)).ravel()
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
        points = [(m, float(np.mean(self.seconds[m])), Figure.of(self.errors[m])) for m in TUNED]
        against_seconds(ax, points, PAPER)
        ax.axhline(float(np.mean(self.errors[ROW])), color=plots.GREY, linestyle=":", label=ROW)
        # room for the names above the points
        ax.set_ylim(0, 2 * max(float(np.mean(values)) for values in self.errors.values()))
        ax.set(ylabel="MAE of ln depth")
        ax.legend(fontsize="x-small", loc="upper left")
        return ax
