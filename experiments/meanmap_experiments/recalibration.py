"""Other gains and offsets: are they found, and does a classifier get over them?

Zhang, Schölkopf, Muandet and Wang (2013) move training rows, as X ⊙ W(y) + B(y), until they look
like test rows without targets. Here W and B are drawn and known: in the plane, with classes or
numbers as targets, to see how the error falls with the number of rows; and on measurements that
come with scikit-learn, half of which are seen by an instrument that has drifted, to see whether a
classifier gains. Drifts and data were chosen before results were seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import scipy.linalg
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from meanmap import plots
from meanmap.adaptation import LocationScaleShift
from meanmap_experiments.results import COLOURS, Claim, Figure, Outcome, Table, ahead, paired
from meanmap_experiments.runs import each

CLASSES, NUMBERS = "classes", "numbers"
ONE, MANY = "one drift", "drift by y"
SAME, CHANGED = "P(y) as before", "P(y) changed"
CASES = tuple(product((ONE, MANY), (SAME, CHANGED)))
BAR = 0.05

UNTOUCHED, STANDARD, CORAL = "untouched", "standardised", "covariance matched"
MOVED, FIXED = "moved and weighted", "moved, shares kept"
TRUTH = "true gains and shares"
METHODS = (UNTOUCHED, STANDARD, CORAL, FIXED, MOVED, TRUTH)

# three classes in the plane
MEANS = np.array([[0.0, 0.0], [3.0, 1.0], [0.0, 3.0]])
SPREADS = np.array([[0.6, 0.8], [0.7, 0.5], [0.5, 0.6]])
SHARES = {SAME: (0.4, 0.3, 0.3), CHANGED: (0.2, 0.5, 0.3)}
KEPT = {2: (1.0, 0.2), 3: (1.0, 0.5, 0.2)}  # of the test rows of each class, in any order


@dataclass(frozen=True)
class Plan:
    """How much is done."""

    draws: int = 10
    classes: tuple[int, ...] = (250, 500, 1000, 2000, 4000)  # rows of each sample
    numbers: tuple[int, ...] = (250, 500, 1000)
    splits: int = 20
    data: tuple[str, ...] = ("wine", "iris", "breast cancer")
    searches: int = 3  # of each shift


FULL = Plan()
QUICK = Plan(2, (250, 500), (250,), 2, ("wine", "iris"), 2)

Line = tuple[np.ndarray, np.ndarray]
Found = dict[tuple[str, str, str, int], list[dict[str, float]]]
Scores = dict[tuple[str, str, str], dict[str, list[float]]]


def run(
    quick: bool = False,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: bool | None = None,
    plan: Plan | None = None,
) -> Outcome:
    """Gains and offsets that are known.

    Parameters
    ----------
    quick, seed, n_jobs, progress : as in `meanmap_experiments.run`
    plan : Plan or None
        How much is done, if neither the quick nor the full experiment.

    Examples
    --------
    >>> run(plan=Plan(1, (60,), (), 1, ("iris",), 1)).name
    'recalibration'
    """
    plan = plan or (QUICK if quick else FULL)
    sizes = ((CLASSES, plan.classes), (NUMBERS, plan.numbers))
    cells = [(kind, *case, n) for kind, ns in sizes for case in CASES for n in ns]
    jobs = [(plan, *cell, i, seed) for cell in cells for i in range(plan.draws)]
    answers = each(one_draw, jobs, "draws", n_jobs, progress)
    found: Found = {cell: [] for cell in cells}
    for (_, *cell, _, _), answer in zip(jobs, answers, strict=True):
        found[tuple(cell)].append(answer)  # type: ignore[index]

    places = [(name, *case) for name in plan.data for case in CASES]
    splits = [(plan, *place, i, seed) for place in places for i in range(plan.splits)]
    shares = each(one_split, splits, "splits", n_jobs, progress)
    scores: Scores = {place: {method: [] for method in METHODS} for place in places}
    for (_, name, drift, share, *_), right in zip(splits, shares, strict=True):
        for method in METHODS:
            scores[name, drift, share][method].append(right[method])
    return Outcome(
        name="recalibration",
        title="Other gains and offsets",
        citation="Zhang, Schölkopf, Muandet and Wang (2013), Domain adaptation under target and "
        "conditional shift",
        settings={
            CLASSES: "three normal classes in the plane; gains exp(0.3 N), offsets 0.5 N with N "
            "standard normal, one per column, or one per column and class",
            NUMBERS: "y uniform in [-1, 1], rows (2y, 3y² - 1) + 0.4 N; gains exp(0.3 g(y)), "
            "offsets 0.5 h(y), constant or combinations of cos and sin of πy/2",
            CHANGED: "shares 0.2, 0.5, 0.3 in place of 0.4, 0.3, 0.3; numbers have the density "
            "(1 + y)/2. Measurements: of one class of the test rows all are kept, of another 20%, "
            "of the third 50%",
            "errors": "of W ‖Ŵ - W‖/‖W‖, of B where the rows given y have their middle, in "
            "deviations of the column, both over the test rows' targets",
            "with labels": "ratios of deviations, for which test rows must have labels",
            "drift": "half of the rows, about the mean of a column: gains exp(0.3 N), offsets 0.7 N"
            " deviations; by y exp(0.2 N) and 0.3 N more for each class",
            "classifier": "logistic regression on standardised columns",
            STANDARD: "each column by its mean and deviation, of either half for itself",
            CORAL: "mean and covariance (Sun, Feng and Saenko 2016)",
            FIXED: "LocationScaleShift(target_shift=False)",
            MOVED: "LocationScaleShift(), the classifier weighted",
        },
        tables=(
            *(recovery(plan, found, kind) for kind, ns in sizes if ns),
            *(accuracy(scores, name) for name in plan.data),
        ),
        verdict=(*verdict_found(plan, found), *verdict_scores(scores)),
        quick=quick,
        seed=seed,
        picture=picture(plan, found, scores),
    )


# --- known gains and offsets ----------------------------------------------------------------------


def planar(
    kind: str, drift: str, share: str, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Line, np.ndarray]:
    """X, y, test rows, their targets; W and B and the undrifted middle at these."""
    draws = rng.normal(size=(2, 3, 2))
    y: np.ndarray
    hidden: np.ndarray
    middle: np.ndarray
    if drift == ONE:
        draws[:] = draws[:, :1]
    if kind == CLASSES:
        y, hidden = rng.choice(3, n, p=SHARES[SAME]), rng.choice(3, n, p=SHARES[share])
        W, B = np.exp(0.3 * draws[0])[hidden], 0.5 * draws[1][hidden]
        middle = MEANS[hidden]
        X, T = (MEANS[z] + SPREADS[z] * rng.normal(size=(n, 2)) for z in (y, hidden))
    else:
        y = rng.uniform(-1, 1, n)
        hidden = (2 * rng.beta(2, 1, n) - 1) if share == CHANGED else rng.uniform(-1, 1, n)
        turn = np.pi / 2 * hidden
        f = np.stack([np.cos(turn), np.sin(turn)], 1) if drift == MANY else np.eye(2)[[0] * n]
        W, B = np.exp(0.3 * f @ draws[0, :2]), 0.5 * f @ draws[1, :2]
        X, T = (np.stack([2 * z, 3 * z**2 - 1], 1) for z in (y, hidden))
        middle = T
        X, T = (rows + 0.4 * rng.normal(size=(n, 2)) for rows in (X, T))
    return X, y, T * W + B, hidden, (W, B), middle


def one_draw(
    plan: Plan, kind: str, drift: str, share: str, n: int, index: int, seed: int
) -> dict[str, float]:
    """Errors of W and B of one draw."""
    rng = np.random.default_rng((seed, 1, index))  # the same W and B at every n
    X, y, T, hidden, (W, B), middle = planar(kind, drift, share, n, rng)
    shift = LocationScaleShift(n_init=plan.searches, max_samples=max(n, 2), random_state=index).fit(
        X, y, X_test=T
    )
    b = shift.transform(np.zeros_like(T), hidden)
    w = shift.transform(np.ones_like(T), hidden) - b
    moved = (middle * (w - W) + b - B) / T.std(axis=0)
    answer = {"W": relative(w, W), "B": float((moved**2).mean() ** 0.5)}
    answer["moments"] = relative(T.std(axis=0) / X.std(axis=0), W)
    answer["labels"] = float("nan")
    if kind == CLASSES:
        ratios = [T[hidden == k].std(axis=0) / X[y == k].std(axis=0) for k in range(3)]
        answer["labels"] = relative(np.array(ratios)[hidden], W)
    return answer


def relative(found: np.ndarray, truth: np.ndarray) -> float:
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))


# --- drifted measurements -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Drifted:
    """Training rows with classes, drifted test rows with theirs, and W and B of each class."""

    X: np.ndarray
    y: np.ndarray
    T: np.ndarray
    hidden: np.ndarray
    gain: np.ndarray  # (classes, columns)
    offset: np.ndarray


def sample(name: str, drift: str, share: str, rng: np.random.Generator) -> Drifted:
    """Half of a data set as it is, the other half as a drifted instrument sees it."""
    from sklearn import datasets

    load = {"wine": "load_wine", "iris": "load_iris", "breast cancer": "load_breast_cancer"}[name]
    bunch = getattr(datasets, load)()
    rows, target = bunch.data, bunch.target
    state = int(rng.integers(2**31))
    old, new = train_test_split(
        np.arange(len(target)), test_size=0.5, stratify=target, random_state=state
    )
    k, d = int(target.max()) + 1, rows.shape[1]
    common, own, kept = rng.normal(size=(2, d)), rng.normal(size=(2, k, d)), rng.permutation(k)
    if drift == ONE:
        own[:] = 0
    if share == CHANGED:
        new = np.concatenate(
            [
                (of := rng.permutation(new[target[new] == c]))[: round(KEPT[k][kept[c]] * len(of))]
                for c in range(k)
            ]
        )
    middle, deviation = rows.mean(axis=0), rows.std(axis=0)
    gain = np.exp(0.3 * common[0] + 0.2 * own[0])
    offset = (0.7 * common[1] + 0.3 * own[1]) * deviation + middle * (1 - gain)
    hidden = target[new]
    T = rows[new] * gain[hidden] + offset[hidden]
    return Drifted(rows[old], target[old], T, hidden, gain, offset)


def moments(X: np.ndarray, T: np.ndarray) -> np.ndarray:
    """Rows with mean and deviation of others: the same as to standardise both."""
    return (X - X.mean(axis=0)) / X.std(axis=0) * T.std(axis=0) + T.mean(axis=0)


def covariance_matched(X: np.ndarray, T: np.ndarray) -> np.ndarray:
    """Rows with mean and covariance of others, in units of their deviations."""
    unit = T.std(axis=0)
    s, t = ((rows - rows.mean(axis=0)) / unit for rows in (moments(X, T), T))
    there = s @ root(np.cov(s.T), -0.5) @ root(np.cov(t.T), 0.5)
    return there * unit + T.mean(axis=0)


def root(C: np.ndarray, power: float) -> np.ndarray:
    """A power of a correlation matrix, to which a little of the identity is added."""
    values, vectors = scipy.linalg.eigh(C + 1e-2 * np.eye(len(C)))
    return (vectors * values**power) @ vectors.T


def one_split(
    plan: Plan, name: str, drift: str, share: str, index: int, seed: int
) -> dict[str, float]:
    """Shares of drifted rows that are right, by method."""
    data = sample(name, drift, share, np.random.default_rng((seed, 2, index)))
    X, y, T = data.X, data.y, data.T
    given: dict[str, tuple[np.ndarray, np.ndarray | None]] = {
        UNTOUCHED: (X, None),
        STANDARD: (moments(X, T), None),
        CORAL: (covariance_matched(X, T), None),
    }
    for method, kept in ((FIXED, {"target_shift": False}), (MOVED, {})):
        shift = LocationScaleShift(n_init=plan.searches, random_state=index, **kept).fit(
            X, y, X_test=T
        )
        given[method] = shift.X_new_, shift.weights_
    ratio = np.bincount(data.hidden) / len(data.hidden) / (np.bincount(y) / len(y))
    given[TRUTH] = X * data.gain[y] + data.offset[y], ratio[y]
    return {method: right(*given[method], y, data) for method in METHODS}


def right(rows: np.ndarray, weights: np.ndarray | None, y: np.ndarray, data: Drifted) -> float:
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    model.fit(rows, y, logisticregression__sample_weight=weights)
    return float(model.score(data.T, data.hidden))


# --- what is reported -----------------------------------------------------------------------------


def recovery(plan: Plan, found: Found, kind: str) -> Table:
    rows: list[tuple[Any, ...]] = []
    for (which, drift, share, n), draws in found.items():
        if which != kind:
            continue
        W = [d["W"] for d in draws]
        rows.append(
            (
                f"{drift}, {share}",
                n,
                Figure.of(W),
                float(np.median(W)),
                f"{sum(w <= BAR for w in W)} of {len(W)}",
                Figure.of([d["B"] for d in draws]),
                float(np.median([d["B"] for d in draws])),
                Figure.of([d["moments"] for d in draws]),
                Figure.of([d["labels"] for d in draws]) if kind == CLASSES else None,
            )
        )
    headings = (
        "shift",
        "n",
        "error of W",
        "median",
        "W within 5%",
        "error of B",
        "median of B",
        "W, moments matched",
        "W, with labels",
    )
    return Table(f"{kind}: errors of gains and offsets", headings, tuple(rows))


def accuracy(scores: Scores, name: str) -> Table:
    rows: list[tuple[Any, ...]] = [
        (method, *(Figure.of(scores[name, *case][method]) for case in CASES)) for method in METHODS
    ]
    headings = ("training rows", *(f"{drift}, {share}" for drift, share in CASES))
    return Table(f"{name}: share of drifted rows that is right", headings, tuple(rows))


def verdict_found(plan: Plan, found: Found) -> tuple[Claim, ...]:
    """Errors at the largest n, and how they fall with it."""
    lines = []
    for kind, sizes in ((CLASSES, plan.classes), (NUMBERS, plan.numbers)):
        for drift, share in CASES if sizes else ():
            medians = [
                float(np.median([d["W"] for d in found[kind, drift, share, n]])) for n in sizes
            ]
            last = found[kind, drift, share, sizes[-1]]
            W, B = ([d[key] for d in last] for key in "WB")
            held = "holds" if np.mean(W) <= BAR else "does not hold"
            line = (
                f"{kind}, {drift}, {share}, n = {sizes[-1]}: W within 5% {held} on average "
                f"({np.mean(W):.1%}, median {np.median(W):.1%}, {sum(w <= BAR for w in W)} of "
                f"{len(W)} draws); B {np.mean(B):.3f} deviations (median {np.median(B):.3f})"
            )
            if len(sizes) > 1:
                slope = np.polyfit(np.log(sizes), np.log(medians), 1)[0]
                line += f"; the median goes with n to the power {slope:.2f}"
            lines.append(Claim(line + ".", bool(np.mean(W) <= BAR), float(np.mean(W))))
    return tuple(lines)


def verdict_scores(scores: Scores) -> tuple[Claim, ...]:
    """By paired differences over splits."""
    lines = []
    for (name, drift, share), values in scores.items():
        said, hows = [], []
        for rival in (UNTOUCHED, STANDARD, CORAL, FIXED):
            how, gap, se = paired(values[MOVED], values[rival])
            word = {"above": "better than", "below": "worse than"}.get(how, "not told apart from")
            said.append(f"{word} {rival} ({gap:+.3f} ± {se:.3f})")
            hows.append(how)
        text = (
            f"{name}, {drift}, {share}: {MOVED} {np.mean(values[MOVED]):.3f}, {', '.join(said)}; "
            f"{TRUTH} {np.mean(values[TRUTH]):.3f}."
        )
        lines.append(Claim(text, ahead(hows), Figure.of(values[MOVED])))
    return tuple(lines)


def picture(plan: Plan, found: Found, scores: Scores) -> Callable[[Any], Any]:
    """Accuracies by the kind of shift, on average over the data sets."""

    def draw(ax: Any = None) -> Any:
        ax = plots.axes(ax)
        width = 0.8 / len(METHODS)
        for i, method in enumerate(METHODS):
            place = [j + (i - (len(METHODS) - 1) / 2) * width for j in range(len(CASES))]
            figures = [
                Figure.of(np.mean([scores[name, *case][method] for name in plan.data], axis=0))
                for case in CASES
            ]
            ax.bar(
                place,
                [figure.mean for figure in figures],
                width,
                yerr=[2 * figure.standard_error for figure in figures],
                color=COLOURS[i],
                label=method,
                capsize=2,
            )
        ax.set(title=", ".join(plan.data), ylabel="share of drifted rows right", ylim=(0, 1.4))
        ax.set_yticks(np.linspace(0, 1, 6))
        ax.set_xticks(range(len(CASES)), [f"{drift},\n{share}" for drift, share in CASES])
        ax.legend(fontsize="small", loc="upper center", ncols=3)
        return ax

    return draw
