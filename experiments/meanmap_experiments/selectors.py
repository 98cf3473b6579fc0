"""Features chosen by dependence: problems whose features are known, and tables with probes.

Six problems with 100 columns of noise beside the features that matter, among them the XOR and the
nonlinear problem of Song, Smola, Gretton, Bedo and Borgwardt (2012), rings, and those of Chen,
Stern, Wainwright and Jordan (2017); and four tables that come with scikit-learn, each with as many
probes as it has columns: copies whose rows are shuffled. Problems, tables and numbers of features
were chosen before any result was seen. The default bandwidth was chosen among multiples of the
median on other draws of the problems, and on rows of digits without probes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from meanmap import plots
from meanmap.kernels import Gaussian
from meanmap.learning import HSICSelector
from meanmap_experiments.results import COLOURS, Claim, Figure, Outcome, Table, ahead, paired
from meanmap_experiments.runs import each
from meanmap_experiments.selecting import (
    ALL,
    BACKWARD,
    DEFAULT,
    FIXED,
    FOREST,
    LASSO,
    LINEAR,
    MEDIAN,
    MUTUAL,
    NOISE,
    OURS,
    PEER,
    PROBLEMS,
    TREES,
    best,
    eliminated,
    forest,
    installed,
    ranked,
)


@dataclass(frozen=True)
class Case:
    """A problem with so many rows, so many times."""

    problem: str
    n: int
    runs: int

    @property
    def name(self) -> str:
        return f"{self.problem}, n = {self.n:,}"


@dataclass(frozen=True)
class Plan:
    """How much is done."""

    cases: tuple[Case, ...] = (
        Case("XOR", 200, 20),
        Case("XOR", 400, 20),
        Case("nonlinear", 400, 20),
        Case("rings", 400, 20),
        Case("rings", 1000, 10),
        Case("orange skin", 400, 20),
        Case("additive", 400, 20),
        Case("additive", 1000, 10),
        Case("Friedman", 300, 20),
        Case("Friedman", 400, 20),
        Case("Friedman", 1000, 10),
    )
    tables: tuple[str, ...] = ("breast cancer", "wine", "digits", "diabetes")
    splits: int = 6
    sizes: tuple[int, ...] = (12, 6, 3)  # features to select, falling
    trees: int = 100


FULL = Plan()
QUICK = Plan(
    cases=(Case("XOR", 400, 3),),
    tables=("wine",),
    splits=2,
    sizes=(6, 3),
    trees=30,
)

Found = dict[tuple[str, str], list[Any]]  # by case (or table and size) and method, one per run


def run(
    quick: bool = False,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: bool | None = None,
    plan: Plan | None = None,
) -> Outcome:
    """Features chosen by dependence.

    Parameters
    ----------
    quick, seed, n_jobs, progress : as in `meanmap_experiments.run`
    plan : Plan or None
        How much is done, if neither the quick nor the full experiment.

    Examples
    --------
    >>> run(plan=Plan(cases=(Case("XOR", 60, 1),), tables=())).name
    'selectors'
    """
    plan = plan or (QUICK if quick else FULL)
    drawn = [(plan, case, i, seed) for case in plan.cases for i in range(case.runs)]
    split = [(plan, name, i, seed) for name in plan.tables for i in range(plan.splits)]
    jobs = [(one_problem, *job) for job in drawn] + [(one_split, *job) for job in split]
    answers = each(one_job, jobs, "selectors", n_jobs, progress)
    known: Found = {}
    for (_, case, *_), shares in zip(drawn, answers, strict=False):
        for method, share in shares.items():
            known.setdefault((case.name, method), []).append(share)
    scores: Found = {}
    for (_, name, *_), found in zip(split, answers[len(drawn) :], strict=True):
        for (size, method), value in found.items():
            scores.setdefault((f"{name}, {size}", method), []).append(value)
    return Outcome(
        name="selectors",
        title="Features chosen by dependence",
        citation="Song, Smola, Gretton, Bedo and Borgwardt (2012), Yamada et al. (2014); problems "
        "of theirs and of Chen et al. (2017), tables of the scikit-learn package",
        settings=settings(plan),
        tables=tuple(tables(plan, known, scores)),
        verdict=verdict(plan, known, scores),
        quick=quick,
        seed=seed,
        picture=picture(plan, known),
    )


def settings(plan: Plan) -> dict[str, str]:
    return {
        "problems": f"{NOISE} columns of noise beside those that matter, whose number is given",
        DEFAULT: "HSICSelector with its defaults: the best of backward and lasso, judged again by "
        "the error of rows left out",
        BACKWARD: "method='backward': 0.7 of the median distance of the features "
        "in play, a tenth of them removed at a time",
        MEDIAN: "the median itself",
        FIXED: "0.7 of the median distance of all features, kept throughout",
        FOREST: f"the largest importances of {plan.trees} trees",
        "tables": f"as many probes as columns: copies, each with its rows shuffled; {plan.splits} "
        "random halves to learn from, the other half to judge",
        "judged by": "a support vector machine with a Gaussian kernel on the selected columns, "
        "C and width by cross-validation in the learning half; accuracy, or R² for diabetes",
        LINEAR: "scikit-learn's RFE with a linear SVM (ridge regression), a tenth at a time",
        TREES: f"the same with a forest of {plan.trees} trees",
        PEER: "block HSIC lasso, B = 20, M = 3, as its authors advise",
    }


def one_job(task: Callable[..., Any], *arguments: Any) -> Any:
    return task(*arguments)


# --- problems whose features are known ------------------------------------------------------------


def one_problem(plan: Plan, case: Case, index: int, seed: int) -> dict[str, float]:
    """The share of the right features that each method finds."""
    where = list(PROBLEMS).index(case.problem)
    rng = np.random.default_rng((seed, where, case.n, index))
    X, y, k = PROBLEMS[case.problem](case.n, rng)
    order = rng.permutation(X.shape[1])  # the place of a column must say nothing
    X, right = X[:, order], np.flatnonzero(order < k)
    chosen = {method: ranked(method, X, y, k, index)[:k] for method in OURS}
    settled: dict[str, Any] = {"method": "backward", "progress": False}
    chosen[MEDIAN] = best(HSICSelector(k, Gaussian(), **settled).fit(X, y))[:k]
    wide = Gaussian("0.7*median").resolve((X - X.mean(axis=0)) / X.std(axis=0))
    chosen[FIXED] = best(HSICSelector(k, wide, **settled).fit(X, y))[:k]
    chosen[MUTUAL] = ranked(MUTUAL, X, y, k, index)[:k]
    chosen[FOREST] = np.argsort(-forest(y, plan.trees, index).fit(X, y).feature_importances_)[:k]
    if installed():
        chosen[PEER] = ranked(PEER, X, y, k, index)
    return {m: len(set(right.tolist()) & set(c.tolist())) / k for m, c in chosen.items()}


# --- tables with probes ---------------------------------------------------------------------------


@cache
def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """A table's columns that vary, and its target."""
    from sklearn import datasets

    loaders = {"breast cancer": "breast_cancer", "wine": "wine", "digits": "digits"}
    found = getattr(datasets, f"load_{loaders.get(name, name)}")()
    X, y = np.asarray(found.data, dtype=float), np.asarray(found.target)
    X = X[:, X.std(axis=0) > 0]
    return X, y.astype(float) if name == "diabetes" else y.astype(int)


def one_split(plan: Plan, name: str, index: int, seed: int) -> dict[tuple[Any, str], Any]:
    """Scores by number of features and method, ("seconds", method) and ("probes", method)."""
    X, y = table(name)
    rng = np.random.default_rng((seed, X.shape[1], index))
    X = np.column_stack([X, rng.permuted(X, axis=0)])
    halves = np.array_split(rng.permutation(len(X)), 2)
    X = (X - X[halves[0]].mean(axis=0)) / np.maximum(X[halves[0]].std(axis=0), 1e-9)
    (A, B), (a, b) = ([v[half] for half in halves] for v in (X, y))
    methods: list[str] = [*OURS, MUTUAL, LINEAR, TREES, *([PEER] if installed() else [])]
    found: dict[tuple[Any, str], Any] = {}
    for method in methods:
        began = time.perf_counter()
        chosen = selected(plan, method, A, a, index)
        found["seconds", method] = time.perf_counter() - began
        for size, columns in chosen.items():
            found[size, method] = judged(A[:, columns], a, B[:, columns], b)
            if size == plan.sizes[0]:
                share = float(np.mean(np.asarray(columns) >= X.shape[1] // 2))
                found["probes", method] = share
    for size in plan.sizes:
        found[size, ALL] = found.get((plan.sizes[0], ALL)) or judged(A, a, B, b)
    return found


def selected(
    plan: Plan, method: str, X: np.ndarray, y: np.ndarray, seed: int
) -> dict[int, np.ndarray]:
    """The columns of every size."""
    sizes = plan.sizes
    if method in (LINEAR, TREES):
        from sklearn.linear_model import Ridge
        from sklearn.svm import LinearSVC

        line = LinearSVC(random_state=seed) if y.dtype.kind == "i" else Ridge()
        return eliminated(line if method == LINEAR else forest(y, plan.trees, seed), X, y, sizes)
    if method in (DEFAULT, LASSO, PEER):  # their features of one size are not the first of another
        return {size: ranked(method, X, y, size, seed)[:size] for size in sizes}
    order = ranked(method, X, y, sizes[0], seed)
    return {size: order[:size] for size in sizes}


def judged(X: np.ndarray, y: np.ndarray, X_new: np.ndarray, y_new: np.ndarray) -> float:
    """The score on new rows of a support vector machine tuned on the old ones."""
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC, SVR

    label = y.dtype.kind == "i"
    centre, spread = (0.0, 1.0) if label else (y.mean(), y.std())
    width = 1 / X.shape[1]
    grid = {"C": [1.0, 10.0, 100.0], "gamma": [0.1 * width, 0.3 * width, width]}
    search = GridSearchCV(SVC() if label else SVR(), grid, cv=3)
    search.fit(X, y if label else (y - centre) / spread)
    return float(search.score(X_new, y_new if label else (y_new - centre) / spread))


# --- results --------------------------------------------------------------------------------------


def methods_of(found: Found) -> list[str]:
    return list(dict.fromkeys(method for _, method in found))


def tables(plan: Plan, known: Found, scores: Found) -> list[Table]:
    made = []
    rows: list[tuple[Any, ...]]
    if plan.cases:
        headings = ("problem", *methods_of(known))
        rows = [
            (case.name, *(round(whole(known[case.name, m]), 3) for m in headings[1:]))
            for case in plan.cases
        ]
        made.append(Table("Share of runs that find all the right features", headings, tuple(rows)))
        rows = [
            (case.name, *(round(float(np.mean(known[case.name, m])), 3) for m in headings[1:]))
            for case in plan.cases
        ]
        made.append(Table("Share of the right features found", headings, tuple(rows)))
    for name in plan.tables:
        sizes = [*plan.sizes, "probes", "seconds"]
        headings = (
            "method",
            *(f"{size} columns" for size in plan.sizes),
            f"probes among {plan.sizes[0]}",
            "seconds",
        )
        rows = [
            (
                method,
                *(
                    Figure.of(values) if (values := scores.get((f"{name}, {s}", method))) else None
                    for s in sizes
                ),
            )
            for method in methods_of(scores)
        ]
        made.append(Table(f"{name}: score on new rows", headings, tuple(rows)))
    return made


def whole(shares: list[float]) -> float:
    """The share of runs in which everything was found."""
    return float(np.mean(np.asarray(shares) == 1))


def verdict(plan: Plan, known: Found, scores: Found) -> tuple[Claim, ...]:
    lines = []
    if plan.cases:
        reached = [c.name for c in plan.cases if whole(known[c.name, BACKWARD]) >= 0.95]
        missed = [
            f"{c.name} ({whole(known[c.name, BACKWARD]):.0%} of runs, "
            f"{np.mean(known[c.name, BACKWARD]):.0%} of features)"
            for c in plan.cases
            if c.name not in reached
        ]
        text = (
            f"{BACKWARD} finds all the right features in at least 95% of runs: "
            f"{'; '.join(reached) or 'nowhere'}. Not so: {'; '.join(missed) or 'nowhere'}."
        )
        lines.append(Claim(text, not missed))
        for method in (m for m in methods_of(known) if m != BACKWARD):
            at = [c for c in plan.cases if whole(known[c.name, method]) >= 0.95]
            more = [c for c in plan.cases if gap(known, c, method) > 0]
            less = [c for c in plan.cases if gap(known, c, method) < 0]
            said = f"{len(at)} of {len(plan.cases)} cases at 95%"
            text = (
                f"{method}: {said}; finds more than {BACKWARD} in {len(more)}, less in {len(less)}."
            )
            lines.append(Claim(text))
        for case in (c for c in plan.cases if c.problem == "XOR"):
            kept, follows = (
                round(case.runs * whole(known[case.name, m])) for m in (FIXED, BACKWARD)
            )
            text = (
                f"{case.name}: found in {kept} of {case.runs} runs with the bandwidth fixed, in "
                f"{follows} with bandwidths that follow."
            )
            lines.append(Claim(text))
    for name in plan.tables:
        for size in plan.sizes:
            lines.append(compared(scores, name, size))
    if not installed():
        lines.append(Claim(f"{PEER} is not installed, and was left out: pip install pyHSICLasso."))
    return tuple(lines)


def gap(known: Found, case: Case, method: str) -> float:
    return whole(known[case.name, method]) - whole(known[case.name, BACKWARD])


def compared(scores: Found, name: str, size: int) -> Claim:
    """Ours against the best peer, by paired differences over splits."""
    key = f"{name}, {size}"
    mean = {m: float(np.mean(scores[key, m])) for m in methods_of(scores)}
    peers = [m for m in mean if m not in OURS and m != ALL]
    rival = max(peers, key=lambda m: mean[m])
    said, hows = [], []
    for ours in OURS:
        how, difference, error = paired(scores[key, ours], scores[key, rival])
        said.append(f"{ours} {mean[ours]:.3f} ({how} it: {difference:+.3f} ± {error:.3f})")
        hows.append(how)
    text = (
        f"{name}, {size} columns: the best peer is “{rival}” at {mean[rival]:.3f}; "
        f"{', '.join(said)}; {ALL} {mean[ALL]:.3f}."
    )
    return Claim(text, ahead(hows), mean[OURS[0]])


def picture(plan: Plan, known: Found) -> Callable[[Any], Any] | None:
    """The share of runs in which everything was found, a group of bars a case."""
    if not plan.cases:
        return None
    shares = {m: [whole(known[c.name, m]) for c in plan.cases] for m in methods_of(known)}

    def draw(ax: Any = None) -> Any:
        ax = plots.axes(ax)
        height = 0.8 / len(shares)
        for i, (method, values) in enumerate(shares.items()):
            place = [j + (i - (len(shares) - 1) / 2) * height for j in range(len(values))]
            style = {"color": (*COLOURS, "black")[i % 8], "label": method}
            ax.barh(place, values, height, **style)
        ax.axvline(0.95, color="black", linewidth=0.8)
        ax.set(title="All the right features found", xlabel="share of runs", xlim=(0, 1.02))
        ax.set_yticks(range(len(plan.cases)), [c.name for c in plan.cases])
        ax.invert_yaxis()
        ax.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
        return ax

    return draw
