"""Support measure machines: bags, groups, jitter, and numbers from samples.

Distributions as examples against what people do without them: the mean of a bag, its moments, a
kernel summed over pairs of points; and for pictures, many moved copies of each. Tables and tasks
were fixed before any result was seen. After a first small run the range of costs was widened, for
the best lay at its end, folds were given rows of their own, and bags of wine made smaller. Every
method chooses its settings on the same grid by cross-validation within its training data.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold

from meanmap import plots
from meanmap.kernels import Normal
from meanmap.learning import DistributionRidge, SupportMeasureClassifier
from meanmap_experiments import groups
from meanmap_experiments.bag_methods import (
    COSTS,
    LINEAR,
    MEANS,
    MOMENTS,
    NONLINEAR,
    OURS,
    OUTER,
    PEERS,
    PIXELS,
    SETS,
    STEPS,
    WIDTHS,
    Held,
    accuracy,
    chosen,
    folded,
    represented,
    second_levels,
)
from meanmap_experiments.results import COLOURS, Claim, Figure, Outcome, Table, ahead, paired
from meanmap_experiments.runs import each

DIGITS, WINE, MODES = "digits as places", "wine, shuffled", "two modes"
SHARE = "breast cancer, above half"
PLAIN, COPIES = "plain", "copies"
BAGS, BOTH, NORMALS, ROUND = "bags", "bags, test too", "normal, by pixel", "normal, round"
MOVES = {"moved a little": (5.0, 0.4), "moved more": (15.0, 1.0)}  # by degrees and pixels at most
JITTER = {
    PLAIN: "an SVM on the pictures as they are",
    COPIES: "an SVM on all moved copies (augmentation)",
    BAGS: "each training picture a bag of its copies",
    BOTH: "each test picture a bag of copies of its own as well",
    NORMALS: "a normal distribution of the copies' mean and variance by pixel",
    ROUND: "a normal distribution around the picture, one variance for all",
}
RIDGE, RIDGE_LINEAR, RIDGE_MOMENTS = "ridge, Gaussian", "ridge, linear", "ridge on moments"
PLUG, MEAN = "the sample's variance", "mean of the training bags"


@dataclass(frozen=True)
class Plan:
    """How much is done."""

    digits: int = 1797  # pictures
    folds: int = 5  # of the digits
    runs: int = 20  # of groups, jitter and regression
    bags: int = 150  # for learning, and as many for judging
    sizes: tuple[int, int] = (20, 35)  # of a bag
    pictures: int = 200  # that are jittered, for learning
    copies: int = 10  # of each
    tests: int = 400  # jittered pictures to judge by
    samples: tuple[int, ...] = (10, 30, 100)  # of a bag, in regression


FULL = Plan()
QUICK = Plan(
    digits=250, folds=2, runs=2, bags=50, pictures=50, copies=5, tests=200, samples=(10, 50)
)
Scores = dict[tuple[str, str, str], list[float]]  # by task, measure and method, one per run


def run(
    quick: bool = False,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: bool | None = None,
    plan: Plan | None = None,
) -> Outcome:
    """Distributions as examples.

    Parameters
    ----------
    quick, seed, n_jobs, progress : as in `meanmap_experiments.run`
    plan : Plan or None
        How much is done, if neither the quick nor the full experiment.

    Examples
    --------
    >>> tiny = Plan(100, 2, 2, 16, (5, 9), 20, 2, 20, (10,))
    >>> run(plan=tiny).name
    'measures'
    """
    plan = plan or (QUICK if quick else FULL)
    jobs: list[tuple[Any, ...]] = [(t, plan, i, seed) for t in MOVES for i in range(plan.runs)]
    jobs += [(DIGITS, plan, i, seed) for i in range(plan.folds)]
    jobs += [(name, plan, i, seed) for name in GROUPS for i in range(plan.runs)]
    jobs += [("regression", plan, i, seed) for i in range(plan.runs)]
    scores: Scores = {}
    for found in each(one_run, jobs, "measures", n_jobs, progress):
        for key, value in found.items():
            scores.setdefault(key, []).append(value)
    return Outcome(
        name="measures",
        title="Support measure machines: distributions as examples",
        citation="after Muandet, Fukumizu, Dinuzzo and Schölkopf (2012, section 5) and Szabó, "
        "Sriperumbudur, Póczos and Gretton (2016); the data are others, no paper's figures",
        settings=settings(plan),
        tables=(
            accuracies(scores),
            jitter_table(scores),
            *(regression_table(plan, scores, task) for task in ("entropy", "share")),
        ),
        verdict=verdict(plan, scores),
        quick=quick,
        seed=seed,
        picture=picture(scores),
    )


def settings(plan: Plan) -> dict[str, str]:
    low, high = plan.sizes
    return {
        DIGITS: f"{plan.digits} digits of scikit-learn, each a bag of pixels' places weighted by "
        f"ink; {plan.folds} folds",
        WINE: f"bags of {low // 3} to {(high - 1) // 3} wines; in half of them columns are "
        "shuffled within the bag: equal means and columns, no dependence",
        MODES: "one cluster or two of equal mean and covariance, generated, 3 coordinates",
        SHARE: "bags of patients; is the share of malignant tumours above one half?",
        "groups": f"{plan.bags} bags for learning and as many for judging, of different rows of "
        f"the table, and so are the folds that settings are chosen in; {plan.runs} runs",
        "settings of all": f"a Gaussian kernel, bandwidth {listed(WIDTHS)} times the median; C "
        f"{listed(COSTS)}; by 3 folds of the training bags; {STEPS:,} steps of the solver at most",
        NONLINEAR: f"besides, bandwidth between embeddings {listed(OUTER)} times the median",
        MOMENTS: "columns scaled to unit deviation",
        SETS: "the kernel summed, not averaged, over pairs of points (Gärtner et al. 2002)",
        **{
            task: f"{plan.pictures} digits for learning, {plan.copies} copies each, turned by up "
            f"to {turn:g}° and moved by up to {move:g} pixel; {plan.tests} test digits turned and "
            "moved once"
            for task, (turn, move) in MOVES.items()
        },
        **{f"moved, {name}": words for name, words in JITTER.items()},
        "entropy": "of the first coordinate of a turned normal distribution, from a sample of it; "
        f"{plan.bags} bags for learning",
        "share": "of malignant tumours in a bag of patients; root mean squared errors",
        "ridge": "regularisation by leaving one out; bandwidths median",
        PLUG: "log(2πe s²)/2, which knows that the distribution is normal",
    }


def listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in sorted(values))


# --- runs -----------------------------------------------------------------------------------------


def one_run(task: str, plan: Plan, index: int, seed: int) -> dict[tuple[str, str, str], float]:
    """Figures by task, measure and method."""
    rng = np.random.default_rng((seed, index, sum(map(ord, task))))
    if task in MOVES:
        return one_jitter(plan, task, rng)
    if task == "regression":
        return one_regression(plan, rng)
    methods: tuple[str, ...] = (*OURS, *PEERS)
    if task == DIGITS:
        X, y = groups.table("digits")
        some = np.random.default_rng(seed).permutation(len(X))[: plan.digits]
        X, y = X[some], y[some]
        folds = StratifiedKFold(plan.folds, shuffle=True, random_state=seed)
        known, held = list(folds.split(X, y))[index]
        bags = groups.pixel_bags(X)
        train = [bags[i] for i in known], y[known]
        test = [bags[i] for i in held], y[held]
        methods, fold = (*methods, PIXELS), None
    else:
        both = GROUPS[task](plan.bags, rng, plan.sizes)
        train, test, fold = both.train, both.test, both.fold
        if task == SHARE:
            train, test = ((bags, (share > 0.5).astype(int)) for bags, share in (train, test))
    fold = folded(train[1], seed) if fold is None else fold
    return {(task, "accuracy", method): accuracy(method, train, test, fold) for method in methods}


GROUPS: dict[str, Callable[..., groups.Groups]] = {
    WINE: groups.shuffled,
    MODES: groups.two_modes,
    SHARE: groups.composed,
}


def one_jitter(
    plan: Plan, task: str, rng: np.random.Generator
) -> dict[tuple[str, str, str], float]:
    """Accuracy on moved digits, and seconds to fit and predict once settings are chosen.

    Settings of all are judged by moved copies of the pictures left out.
    """
    X, y = groups.table("digits")
    order = rng.permutation(len(X))
    known, held = order[: plan.pictures], order[plan.pictures :][: plan.tests]
    X, y, truth, most = X[known], y[known], y[held], MOVES[task]
    copies = groups.jittered(X, plan.copies, rng, most)
    tests = groups.jittered(groups.table("digits")[0][held], 1, rng, most)[:, 0]
    again = groups.jittered(tests, plan.copies, rng, most)  # what is known of a test picture
    fold = folded(y, 0)
    bags = np.concatenate([X[:, None], copies], axis=1)
    ways: dict[str, list[Any]] = {
        PLAIN: [X],
        COPIES: [bags.reshape(-1, X.shape[1])],
        BAGS: [list(bags)],
        BOTH: [list(bags)],
        NORMALS: [[Normal(bag.mean(axis=0), bag.var(axis=0)) for bag in bags]],
        ROUND: [
            [Normal(x, factor * float(bags.var(axis=1).mean())) for x in X]
            for factor in (0.25, 1.0, 4.0)
        ],
    }
    moved = groups.jittered(X, 1, rng, most)[:, 0]
    queries = Held(moved, y, fold)
    as_bags = Held(list(groups.jittered(moved, plan.copies, rng, most)), y, fold)
    found = {}
    for method, versions in ways.items():
        times = bags.shape[1] if method == COPIES else 1
        classes, folds = np.repeat(y, times), np.repeat(fold, times)
        judged = as_bags if method == BOTH else queries
        tried = [
            chosen(second_levels(LINEAR, version), version, classes, folds, judged)
            for version in versions
        ]
        at = int(np.argmax([right for right, *_ in tried]))
        _, level, cost = tried[at]
        began = time.perf_counter()
        model = SupportMeasureClassifier(level2=level, C=cost, max_iter=STEPS)
        model.fit(versions[at], classes)
        right = model.score(list(again) if method == BOTH else tests, truth)
        found[task, "accuracy", method] = float(right)
        found[task, "seconds", method] = time.perf_counter() - began
    return found


def one_regression(plan: Plan, rng: np.random.Generator) -> dict[tuple[str, str, str], float]:
    """Root mean squared errors of numbers told from samples."""
    found = {}
    problems = {f"entropy, {m}": groups.entropies(plan.bags, m, rng) for m in plan.samples}
    problems["share"] = groups.composed(plan.bags, rng, plan.sizes)
    for task, both in problems.items():
        (X, y), (Q, truth) = both.train, both.test
        moments = [represented(MOMENTS, bags) for bags in (X, Q)]
        scale = moments[0].std(axis=0)
        answers = {
            RIDGE: DistributionRidge().fit(X, y).predict(Q),
            RIDGE_LINEAR: DistributionRidge(level2="linear").fit(X, y).predict(Q),
            RIDGE_MOMENTS: DistributionRidge(level2="linear")
            .fit(moments[0] / scale, y)
            .predict(moments[1] / scale),
            MEAN: np.full(len(truth), y.mean()),
        }
        if task != "share":
            variances = [bag[:, 0].var(ddof=1) for bag in Q]
            answers[PLUG] = np.log(2 * np.pi * np.e * np.array(variances)) / 2
        for method, answer in answers.items():
            error = float(np.sqrt(np.mean((answer - truth) ** 2)))
            found[task, "error", method] = error
    return found


# --- what is reported -----------------------------------------------------------------------------

CLASSES = (DIGITS, WINE, MODES, SHARE)


def accuracies(scores: Scores) -> Table:
    rows: list[tuple[Any, ...]] = []
    for method in (*OURS, *PEERS, PIXELS):
        values = [scores.get((task, "accuracy", method)) for task in CLASSES]
        rows.append((method, *(None if v is None else Figure.of(v) for v in values)))
    return Table("Accuracy", ("method", *CLASSES), tuple(rows))


def jitter_table(scores: Scores) -> Table:
    rows: list[tuple[Any, ...]] = []
    for name in JITTER:
        both = [Figure.of(scores[t, m, name]) for t in MOVES for m in ("accuracy", "seconds")]
        rows.append((name, *both))
    headings = [heading for task in MOVES for heading in (task, "seconds")]
    return Table("Accuracy on moved digits", ("training", *headings), tuple(rows))


def regression_table(plan: Plan, scores: Scores, task: str) -> Table:
    entropy = task == "entropy"
    tasks = [f"entropy, {m}" for m in plan.samples] if entropy else ["share"]
    methods = [RIDGE, RIDGE_LINEAR, RIDGE_MOMENTS, *([PLUG] if entropy else []), MEAN]
    rows: list[tuple[Any, ...]] = [
        (m, *(Figure.of(scores[t, "error", m]) for t in tasks)) for m in methods
    ]
    headings = [f"m = {m}" for m in plan.samples] if entropy else ["error"]
    title = "Error of the entropy, by points a bag" if entropy else "Error of the malignant share"
    return Table(title, ("method", *headings), tuple(rows))


def verdict(plan: Plan, scores: Scores) -> tuple[Claim, ...]:
    """By paired differences over runs or folds, against the best peer and the plain one."""
    lines = []

    def mean(task: str, method: str, measure: str = "accuracy") -> float:
        return float(np.mean(scores[task, measure, method]))

    for task in CLASSES:
        rivals = (*PEERS, PIXELS) if task == DIGITS else PEERS
        best = max(rivals, key=lambda method: mean(task, method))
        said, hows = [], []
        for ours in OURS:
            how, gap, se = paired(*(scores[task, "accuracy", m] for m in (ours, best)))
            word = {"level with": "not told apart from"}.get(how, how)
            said.append(f"{ours} {mean(task, ours):.3f}, {word} it ({gap:+.3f} ± {se:.3f})")
            hows.append(how)
        text = (
            f"{task}: of the others “{best}” is best, {mean(task, best):.3f}; {'; '.join(said)}; "
            f"means alone {mean(task, MEANS):.3f}."
        )
        lines.append(Claim(text, ahead(hows), mean(task, OURS[0])))
    for task, name in product(MOVES, (BAGS, BOTH, NORMALS, ROUND)):
        how, gap, se = paired(*(scores[task, "accuracy", m] for m in (name, COPIES)))
        word = {"level with": "not told apart from"}.get(how, how)
        took, theirs = (mean(task, m, "seconds") for m in (name, COPIES))
        text = (
            f"digits {task}, {JITTER[name]}: {mean(task, name):.3f}, {word} augmentation "
            f"({mean(task, COPIES):.3f}; {gap:+.3f} ± {se:.3f}), in {took:.2g} s against "
            f"{theirs:.2g} s; pictures as they are {mean(task, PLAIN):.3f}."
        )
        lines.append(Claim(text, ahead([how]), mean(task, name)))
    for task in (*(f"entropy, {m}" for m in plan.samples), "share"):
        peers = [RIDGE_MOMENTS] + ([PLUG] if task != "share" else [])
        best = min(peers, key=lambda method: mean(task, method, "error"))
        how, gap, se = paired(*(scores[task, "error", m] for m in (RIDGE, best)))
        text = (
            f"{task}, error: {RIDGE} {mean(task, RIDGE, 'error'):.3f}, {how} “{best}” "
            f"({mean(task, best, 'error'):.3f}; {gap:+.3f} ± {se:.3f})."
        )
        lines.append(Claim(text, ahead([how], "below"), mean(task, RIDGE, "error")))
    return tuple(lines)


def picture(scores: Scores) -> Callable[[Any], Any]:
    """Accuracies, a group of bars a task."""
    methods = (*OURS, *PEERS)
    figures = {m: [Figure.of(scores[task, "accuracy", m]) for task in CLASSES] for m in methods}

    def draw(ax: Any = None) -> Any:
        ax = plots.axes(ax)
        width = 0.8 / len(methods)
        for i, (method, found) in enumerate(figures.items()):
            place = [j + (i - (len(methods) - 1) / 2) * width for j in range(len(found))]
            ax.bar(
                place,
                [figure.mean for figure in found],
                width,
                yerr=[2 * figure.standard_error for figure in found],
                color=COLOURS[i % len(COLOURS)],
                label=method,
                capsize=2,
            )
        ax.set(title="Bags told apart", ylabel="accuracy", ylim=(0, 1.35))
        ax.set_xticks(range(len(CLASSES)), [task.replace(", ", ",\n") for task in CLASSES])
        ax.legend(fontsize="small", ncols=2, loc="upper center")
        return ax

    return draw
