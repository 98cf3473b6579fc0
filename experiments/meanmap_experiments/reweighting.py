"""Weights for rows and for targets, where the truth is known.

Covariate shift as Huang, Smola, Gretton, Borgwardt and Schölkopf (2007) made it: breast cancer
samples biased by a feature, by all of them, by the class, and their toy regression. Target shift:
digits in other proportions, against black-box corrections, and numbers with another density. How
samples are made was settled before results were seen; models' settings are chosen by folds of the
unweighted training rows, the same for every weighting, so that only weights make a difference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap import plots
from meanmap_experiments.results import (
    COLOURS,
    MARKS,
    Cell,
    Claim,
    Figure,
    Outcome,
    Table,
    ahead,
    paired,
)
from meanmap_experiments.runs import each
from meanmap_experiments.shifted_samples import (
    BENT,
    BIASES,
    DIABETES,
    FEATURE,
    JOINT,
    LABEL,
    NUMBERS,
    SHIFTS,
)
from meanmap_experiments.weighted_fits import (
    ADJUSTED,
    BOX,
    BOX_SVC,
    CORRECTIONS,
    CORRELATION,
    COUNTED,
    COVERED,
    CURVE,
    EMBEDDING,
    ERROR,
    L1,
    LEVEL,
    LIKELIEST,
    LINE,
    LOGISTIC,
    MACHINE,
    MATCHING,
    NONE,
    OF_NUMBERS,
    PREDICTIVE,
    REFITTED,
    SIZE,
    TEXTBOOK,
    TRUE,
    WEIGHTINGS,
    Found,
    classes,
    covariate,
    numbers,
    toy,
)

TOLERATED = 0.01  # more error than without weights, in points or as a share


@dataclass(frozen=True)
class Plan:
    """How much is done."""

    runs: int = 100  # of each bias
    biases: tuple[str, ...] = BIASES
    toys: tuple[int, ...] = (100, 1000)  # rows
    digits_runs: int = 30
    shifts: tuple[str, ...] = SHIFTS
    noises: tuple[float, ...] = (0.0, 0.5)
    numbers_runs: int = 60
    numbers: tuple[str, ...] = NUMBERS
    folds: int = 5


FULL = Plan()
QUICK = Plan(5, BIASES, (100,), 2, SHIFTS[:1], (0.5,), 3)

Scores = dict[tuple[str, str, str], list[float]]  # of all, by case, measure and method


def run(
    quick: bool = False,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: bool | None = None,
    plan: Plan | None = None,
) -> Outcome:
    """Weights of rows and of targets.

    Parameters
    ----------
    quick, seed, n_jobs, progress : as in `meanmap_experiments.run`
    plan : Plan or None
        How much is done, if neither the quick nor the full experiment.

    Examples
    --------
    >>> tiny = Plan(2, (), (50,), 1, (), (), 1, (), 2)
    >>> run(plan=tiny).name
    'reweighting'
    """
    plan = plan or (QUICK if quick else FULL)
    jobs = [(plan, *case, i, seed) for case, runs in cases(plan) for i in range(runs)]
    scores: Scores = {}
    found = each(one_run, jobs, "samples", n_jobs, progress)
    for (_, kind, name, *_), values in zip(jobs, found, strict=True):
        for (measure, method), value in values.items():
            scores.setdefault((case_name(kind, name), measure, method), []).append(value)
    return Outcome(
        name="reweighting",
        title="Weights for rows and for targets",
        citation="Huang, Smola, Gretton, Borgwardt and Schölkopf (2007), Correcting sample "
        "selection bias by unlabeled data; Zhang, Schölkopf, Muandet and Wang (2013), Domain "
        "adaptation under target and conditional shift",
        settings=settings(plan),
        tables=tuple(tables(plan, scores)),
        verdict=verdict(plan, scores),
        quick=quick,
        seed=seed,
        picture=Panels(plan, scores),
    )


def settings(plan: Plan) -> dict[str, str]:
    return {
        "breast cancer": "scikit-learn's, 569 rows of 30 real columns over their deviations (the "
        "paper has 9 columns of whole numbers); half of the rows are test rows, of the others a "
        "row is kept for training with a chance that depends on",
        FEATURE: "one column, another in every run: .2 up to its median and .8 above (the paper: "
        "up to 5, of 10)",
        JOINT: "exp(-σ‖x - mean‖²), σ one over the median of ‖x - mean‖² (the paper: 1/20)",
        LABEL: "class 1 (benign) .1, class 0 .9: not covariate shift, but in the paper",
        "toy": "x from N(.5, .5²) to N(0, .3²), y = -x + x³ + N(0, .3²), a straight line by "
        "weighted least squares, as in the paper; errors on 5,000 other test rows",
        "digits": "scikit-learn's, 600 rows for training, 200 others for the test, by class in "
        "proportions that are drawn; noise: its deviation, pixels are between 0 and 1",
        BENT: "x = y + 3 tanh(y) + N(0, 1.5²), 400 rows each; y from N(0, 2²) to N(1.5, 1)",
        DIABETES: "221 rows for training, of the others those with large y by preference",
        MATCHING: "defaults; ridge 0 is the textbook's programme with the median bandwidth",
        BOX: "the confusion matrix of 5 folds inverted (Lipton, Wang and Smola 2018)",
        LIKELIEST: "proportions of highest likelihood (Saerens, Latinne and Decaestecker 2002)",
        "error of weights": "distance from the true ratio over that of equal weights",
        "models": "logistic regression and SVC, C of .01 to 10, ridge and kernel ridge, by "
        f"{plan.folds} folds of training rows without weights, the same for all weightings; for "
        "digits logistic regression by its log-likelihood, since probabilities are adjusted",
    }


# --- runs -----------------------------------------------------------------------------------------

COVARIATE, TOY, CLASSES, SHIFTED_NUMBERS = "breast cancer", "toy", "digits", "numbers"
TASKS: dict[str, Callable[..., Found]] = {
    COVARIATE: covariate,
    TOY: toy,
    CLASSES: classes,
    SHIFTED_NUMBERS: numbers,
}


def cases(plan: Plan) -> list[tuple[tuple[str, Any], int]]:
    """Kinds of data with a name each, and how many runs they get."""
    return [
        *(((COVARIATE, bias), plan.runs) for bias in plan.biases),
        *(((TOY, rows), plan.runs) for rows in plan.toys),
        *(((CLASSES, (s, e)), plan.digits_runs) for e in plan.noises for s in plan.shifts),
        *(((SHIFTED_NUMBERS, name), plan.numbers_runs) for name in plan.numbers),
    ]


def case_name(kind: str, name: Any) -> str:
    """As tables have it."""
    if kind == TOY:
        return f"toy, {name} rows"
    if kind == CLASSES:
        return f"{name[0]}, noise {name[1]:g}" if name[1] else str(name[0])
    return str(name)


def one_run(plan: Plan, kind: str, name: Any, index: int, seed: int) -> Found:
    """All figures of one pair of samples."""
    rng = np.random.default_rng((seed, *map(ord, case_name(kind, name)), index))
    return TASKS[kind](plan.folds, name, index, rng)


# --- what is reported -----------------------------------------------------------------------------


def judged(plan: Plan) -> list[tuple[str, str]]:
    """Cases of covariate shift, with the models that are fitted there."""
    biased = [(case_name(COVARIATE, b), m) for b in plan.biases for m in (MACHINE, LOGISTIC)]
    return biased + [(case_name(TOY, rows), LINE) for rows in plan.toys]


def digits_cases(plan: Plan) -> list[str]:
    return [case_name(*case) for case, _ in cases(plan) if case[0] == CLASSES]


def figure(scores: Scores, *key: str) -> Cell:
    return Figure.of(scores[key]) if key in scores else None


def more(scores: Scores, case: str, model: str, method: str) -> np.ndarray:
    """Error above that without weights, run by run: in points, for numbers as a share."""
    ours, plain = (np.array(scores[case, model, m]) for m in (method, NONE))
    return (ours - plain) / (plain.mean() if model in (LINE, CURVE) else 1.0)


def tables(plan: Plan, scores: Scores) -> list[Table]:
    found: list[Table] = []
    methods: tuple[str, ...]
    covariates = list(dict.fromkeys(case for case, _ in judged(plan)))
    of_rows = [(c, m) for c in covariates for m in (MATCHING, TEXTBOOK)]
    of_targets = [(c, m) for c in plan.numbers for m in (PREDICTIVE, EMBEDDING)]
    for title, pairs in (("rows", of_rows), ("numbers", of_targets)):
        rows: list[tuple[Cell, ...]] = [
            (c, m, *(figure(scores, c, what, m) for what in (CORRELATION, ERROR, SIZE)))
            for c, m in pairs
        ]
        headings: tuple[str, ...] = ("shift", "weights", CORRELATION, ERROR, SIZE)
        if rows:
            found.append(Table(f"weights of {title} against the true ratio", headings, tuple(rows)))
    of_numbers = [(name, m) for name in plan.numbers for m in (LINE, CURVE)]
    for title, methods, fits in (
        ("rows: test errors of models", WEIGHTINGS, judged(plan)),
        ("numbers: squared test errors of models", OF_NUMBERS, of_numbers),
    ):
        rows = [(c, m, *(figure(scores, c, m, w) for w in methods)) for c, m in fits]
        if rows:
            found.append(Table(title, ("shift", "model", *methods), tuple(rows)))
    rows = []
    for c, m in judged(plan):
        gaps = [more(scores, c, m, w) for w in WEIGHTINGS[1:]]
        shares = [f"{np.mean(gap > TOLERATED):.0%}" for gap in gaps]
        rows.append((c, m, *(Figure.of(gap) for gap in gaps), *shares))
    headings = ("shift", "model", *WEIGHTINGS[1:], *(f"{w}, runs" for w in WEIGHTINGS[1:]))
    title = "error above that without weights (lines: as a share of it), and runs by more than 1%"
    found.append(Table(title, headings, tuple(rows)))
    columns = digits_cases(plan)
    for what, title in (
        (L1, "digits: L1 error of the proportions of classes"),
        (ADJUSTED, "digits: accuracy of logistic regression, its probabilities adjusted"),
        (REFITTED, "digits: accuracy of logistic regression, fitted with weights"),
    ):
        methods = (*CORRECTIONS[:-1], COUNTED) if what == L1 else CORRECTIONS
        rows = [(m, *(figure(scores, c, what, m) for c in columns)) for m in methods]
        if columns:
            found.append(Table(title, ("proportions", *columns), tuple(rows)))
    columns = [*digits_cases(plan), *plan.numbers]
    if columns:
        rows = [
            (m, *(figure(scores, c, COVERED, m) for c in columns)) for m in (PREDICTIVE, EMBEDDING)
        ]
        title = f"share of the {LEVEL:.0%} intervals that cover the truth (digits: ten in a run)"
        found.append(Table(title, ("method", *columns), tuple(rows)))
    return found


def against_zero(gaps: Any) -> str:
    """Below, above or level with, by paired differences."""
    return paired(gaps, np.zeros(len(gaps)))[0]


def told(gaps: Any, rival: str, better: str = "below") -> str:
    """A paired difference in words."""
    how, gap, se = paired(list(gaps), [0.0] * len(gaps))
    word = "not told apart from" if how == "level with" else "worse than"
    if how == better:
        word = "better than"
    return f"{word} {rival} ({gap:+.3f} ± {se:.3f})"


def verdict(plan: Plan, scores: Scores) -> tuple[Claim, ...]:
    """By paired differences over runs."""
    lines = []
    cases_of_rows = list(dict.fromkeys(case for case, _ in judged(plan)))
    nearer = [c for c in cases_of_rows if _nearer(scores, c)]
    text = (
        f"{MATCHING} is nearer to the true ratio than with ridge 0 in {len(nearer)} of "
        f"{len(cases_of_rows)} shifts, by paired runs."
    )
    lines.append(Claim(text))
    broken, open_ = [], []
    for case, model in judged(plan):
        gap = Figure.of(more(scores, case, model, MATCHING))
        low, high = (gap.mean + s * 2 * gap.standard_error for s in (-1, 1))
        where = f"{case} ({model}: {gap.mean:+.1%} ± {gap.standard_error:.1%})"
        if low > TOLERATED:
            broken.append(where)
        elif not high <= TOLERATED:
            open_.append(where)
    parts = [f"does not hold for {', '.join(broken)}"] if broken else []
    parts += [f"not decided for {', '.join(open_)}"] if open_ else []
    rest = len(judged(plan)) - len(broken) - len(open_)
    text = (
        f"{MATCHING} no more than {TOLERATED:.0%} worse than no weights, on average: "
        f"{'; '.join([f'holds in {rest} of {len(judged(plan))} cases', *parts])}."
    )
    lines.append(Claim(text, False if broken else True if rest else None))
    for case, model in judged(plan):
        gaps = {w: more(scores, case, model, w) for w in WEIGHTINGS[1:]}
        runs = ", ".join(f"{np.mean(gap > TOLERATED):.0%} with {w}" for w, gap in gaps.items())
        text = (
            f"{case}, {model}: {MATCHING} is {told(gaps[MATCHING], NONE)}, the {TRUE} is "
            f"{told(gaps[TRUE], NONE)}, {TEXTBOOK}, is "
            f"{told(gaps[TEXTBOOK] - gaps[MATCHING], MATCHING)}; runs worse by more than "
            f"{TOLERATED:.0%}: {runs}."
        )
        hows = [against_zero(gaps[MATCHING]), against_zero(gaps[MATCHING] - gaps[TEXTBOOK])]
        lines.append(Claim(text, ahead(hows, "below"), Figure.of(gaps[MATCHING])))
    for case in digits_cases(plan):
        ours = np.array(scores[case, L1, PREDICTIVE])
        rivals = (NONE, EMBEDDING, BOX, BOX_SVC, LIKELIEST)
        said = [told(ours - scores[case, L1, rival], rival) for rival in rivals]
        gain = np.subtract(scores[case, ADJUSTED, PREDICTIVE], scores[case, ADJUSTED, NONE])
        text = (
            f"digits, {case}: L1 error of {PREDICTIVE} {ours.mean():.3f}: {', '.join(said)}; "
            f"accuracy after adjusting is {told(gain, 'before', 'above')}."
        )
        hows = [against_zero(ours - scores[case, L1, rival]) for rival in rivals]
        hows.append(against_zero(-gain))
        lines.append(Claim(text, ahead(hows, "below"), Figure.of(ours)))
    for name in plan.numbers:
        said, hows = [], []
        for model in (LINE, CURVE):
            gaps = {w: more(scores, name, model, w) for w in OF_NUMBERS[1:]}
            said.append(
                f"{model} with {PREDICTIVE} {told(gaps[PREDICTIVE], NONE)}, with the {TRUE} "
                f"{told(gaps[TRUE], NONE)}"
            )
            hows.append(against_zero(gaps[PREDICTIVE]))
        text = f"{name}, squared error as a share: {'; '.join(said)}."
        lines.append(Claim(text, ahead(hows, "below")))
    groups = [(digits_cases(plan), "proportions"), *(([c], f"E[y], {c}") for c in plan.numbers)]
    for columns, what in groups:
        for method in (PREDICTIVE, EMBEDDING) if columns else ():
            lines.append(covering(scores, columns, what, method))
    return tuple(lines)


def covering(scores: Scores, columns: list[str], what: str, method: str) -> Claim:
    """How often intervals cover, and whether that is what they promise."""
    share = Figure.of(np.concatenate([scores[c, COVERED, method] for c in columns]))
    word = f"not told apart from {LEVEL:.0%}"
    if abs(share.mean - LEVEL) > 2 * share.standard_error:
        word = "too often" if share.mean > LEVEL else "too seldom"
    text = (
        f"{LEVEL:.0%} intervals of {what}, {method}: they cover in {share.mean:.1%} ± "
        f"{share.standard_error:.1%}, {word}."
    )
    return Claim(text, ours=share)


def _nearer(scores: Scores, case: str) -> bool:
    return paired(scores[case, ERROR, MATCHING], scores[case, ERROR, TEXTBOOK])[0] == "below"


@dataclass(frozen=True)
class Panels:
    """Errors of weights, of models, of proportions, and coverage."""

    plan: Plan
    scores: Scores

    def __call__(self, axes: Any = None) -> Any:
        """Draw on four axes, or on new ones, which are returned as a grid."""
        if axes is None:
            drawn = plots.axes().figure
            drawn.clear()
            drawn.set_size_inches(13, 11)
            axes = plots.sheets(drawn, 2, 2)
        grid = np.asarray(axes, dtype=object).reshape(2, 2)
        fits = judged(self.plan)
        rows = list(dict.fromkeys(case for case, _ in fits))
        targets = digits_cases(self.plan)
        left, right, below, last = grid.ravel()
        values = [
            (m, [self.of(c, ERROR, m) for c in [*rows, *self.plan.numbers]])
            for m in (MATCHING, TEXTBOOK, PREDICTIVE, EMBEDDING)
        ]
        dots(left, [*rows, *self.plan.numbers], values, 1.0)
        left.set(
            title="Error of weights (line: equal weights)", xlabel="over that of equal weights"
        )
        fits += [(name, m) for name in self.plan.numbers for m in (LINE, CURVE)]
        values = [
            (w, [self.relative(c, m, w) for c, m in fits])
            for w in (MATCHING, TEXTBOOK, PREDICTIVE, EMBEDDING, TRUE)
        ]
        dots(right, [f"{c}: {m}" for c, m in fits], values, 1.0)
        right.set(title="Test errors (line: no weights)", xlabel="over that without weights")
        values = [(m, [self.of(c, L1, m) for c in targets]) for m in (*CORRECTIONS[:-1], COUNTED)]
        dots(below, targets, values, None)
        below.set(title="Proportions of digits", xlabel="L1 error", xlim=(0, 1.4))
        values = [
            (m, [self.of(c, COVERED, m) for c in [*targets, *self.plan.numbers]])
            for m in (PREDICTIVE, EMBEDDING)
        ]
        dots(last, [*targets, *self.plan.numbers], values, LEVEL)
        last.set(title=f"Coverage of {LEVEL:.0%} intervals", xlabel="share", xlim=(0, 1.05))
        return grid

    def of(self, *key: str) -> Figure | None:
        return Figure.of(self.scores[key]) if key in self.scores else None

    def relative(self, case: str, model: str, method: str) -> Figure | None:
        """Mean error over that without weights, with the paired difference's standard error."""
        if (case, model, method) not in self.scores:
            return None
        plain = np.array(self.scores[case, model, NONE])
        gap = Figure.of((np.array(self.scores[case, model, method]) - plain) / plain.mean())
        return Figure(1 + gap.mean, gap.standard_error, gap.runs)


#: Colours and marks of methods; those that share one never meet in a panel.
STYLES = {PREDICTIVE: 0, EMBEDDING: 1, MATCHING: 2, TEXTBOOK: 3, TRUE: 4, NONE: 6}
STYLES |= {BOX: 2, BOX_SVC: 3, LIKELIEST: 4, COUNTED: 5}


def dots(
    ax: Any,
    rows: list[str],
    values: list[tuple[str, list[Figure | None]]],
    line: float | None,
) -> None:
    """A row a case, a mark a method, bars of two standard errors."""
    if line is not None:
        ax.axvline(line, color=plots.GREY, linewidth=1)
    there = [[m for m, figures in values if figures[i] is not None] for i in range(len(rows))]
    for method, figures in values:
        shown = [(i, f) for i, f in enumerate(figures) if f is not None]
        if not shown:
            continue
        place = [i + 0.7 * ((there[i].index(method) + 0.5) / len(there[i]) - 0.5) for i, _ in shown]
        ax.errorbar(
            [f.mean for _, f in shown],
            place,
            xerr=[2 * f.standard_error for _, f in shown],
            color=COLOURS[STYLES[method]],
            marker=MARKS[STYLES[method]],
            markersize=4.5,
            linestyle="",
            capsize=2,
            label=method,
        )
    for i in range(1, len(rows)):
        ax.axhline(i - 0.5, color=plots.GREY, linewidth=0.3)
    ax.set_yticks(range(len(rows)), rows)
    ax.invert_yaxis()
    if ax.get_legend_handles_labels()[0]:
        ax.legend(fontsize="x-small")
