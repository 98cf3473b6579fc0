"""Maps with colours: digits and views of a turning object, neighbours kept by five methods.

Song, Smola, Borgwardt and Gretton (2008) claim that a map which depends on side information keeps
neighbours better than maximum variance unfolding without it, and better than principal components
with it. Both are tried here, on data chosen before results were seen, and with rows held out whose
side information no method sees: they are placed on the map of the others, and judged by the
neighbours that they get there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter
from sklearn.decomposition import PCA
from sklearn.manifold import Isomap, trustworthiness
from sklearn.model_selection import KFold
from sklearn.neighbors import NearestNeighbors

from meanmap import plots
from meanmap.kernels import Delta, Gaussian, Kernel
from meanmap.learning import ColoredUnfolding
from meanmap_experiments.results import COLOURS, MARKS, Claim, Figure, Outcome, Table, ahead, paired
from meanmap_experiments.runs import each

COLOURED, PLAIN = "coloured unfolding", "maximum variance unfolding"
COLOURED_PCA, PRINCIPAL, ISOMAP = "coloured PCA", "PCA", "Isomap"
METHODS = (COLOURED, PLAIN, COLOURED_PCA, PRINCIPAL, ISOMAP)
DIGITS, TURNING = "digits", "turning object"
HELD, KNOWN, TRUST = "held out", "learned from", "trust"
SIDE = 20  # pixels of a view
NEAR = 5  # neighbours on the map that are asked


@dataclass(frozen=True)
class Plan:
    """How much is done."""

    runs: int = 10
    data: tuple[str, ...] = (DIGITS, TURNING)
    digits: int = 1000
    views: int = 400
    held: float = 0.3
    neighbours: tuple[int, ...] = (6, 10, 15)  # of the graph
    stiffness: tuple[float, ...] = (0.1, 1.0, 5.0)
    folds: int = 3  # that choose among them


FULL = Plan()
QUICK = Plan(runs=2, digits=300, views=200, neighbours=(10,), stiffness=(0.1, 1.0), folds=2)

Scores = dict[tuple[str, str, str], list[float]]  # by data, measure and method, one per run


def run(
    quick: bool = False,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: bool | None = None,
    plan: Plan | None = None,
) -> Outcome:
    """Maps with colours.

    Parameters
    ----------
    quick, seed, n_jobs, progress : as in `meanmap_experiments.run`
    plan : Plan or None
        How much is done, if neither the quick nor the full experiment.

    Examples
    --------
    >>> plan = Plan(runs=1, data=(TURNING,), views=60, neighbours=(8,), stiffness=(1.0,))
    >>> run(plan=plan).name
    'unfolding'
    """
    plan = plan or (QUICK if quick else FULL)
    jobs = [(plan, name, i, seed) for name in plan.data for i in range(plan.runs)]
    scores: Scores = {}
    for (_, name, *_), found in zip(
        jobs, each(one_run, jobs, "unfolding", n_jobs, progress), strict=True
    ):
        for (measure, method), value in found.items():
            scores.setdefault((name, measure, method), []).append(value)
    return Outcome(
        name="unfolding",
        title="Maps with colours: neighbours kept",
        citation="Song, Smola, Borgwardt and Gretton (2008), Colored maximum variance unfolding",
        settings={
            DIGITS: f"{plan.digits} of scikit-learn's, side information the class (delta kernel)",
            TURNING: f"{plan.views} views of an object, a cloud of points in space, turned by any "
            f"angle and tilted by up to 25 degrees, {SIDE} × {SIDE} pixels with noise; side "
            "information the angle of turning, as a point on the circle (Gaussian kernel)",
            "held out": f"{plan.held:.0%} of the rows: neither they nor their side information are "
            "learned from; each is placed on the map and asks its "
            f"{NEAR} nearest neighbours among the others there",
            "learned from": "the same for rows learned from, which ask each other. Methods with "
            "colours have seen what they are asked: read it with that in mind",
            "trust": "scikit-learn's trustworthiness of the map, for the points without colours",
            "maps": "two coordinates each",
            "settings": f"neighbours of the graph among {plan.neighbours}, stiffness of both "
            f"unfoldings among {plan.stiffness}: by {plan.folds} folds of the rows learned from, "
            "for each method by itself",
            "unfoldings": "on 20 eigenvectors of the graph's Laplacian",
            COLOURED_PCA: "directions u that maximise uᵀXᵀHLHXu (Barshan and others 2011)",
        },
        tables=tuple(score_table(name, scores) for name in plan.data),
        verdict=verdict(plan, scores),
        quick=quick,
        seed=seed,
        picture=picture(plan, scores),
    )


# --- data -----------------------------------------------------------------------------------------


def views(
    turn: np.ndarray, tilt: np.ndarray, rng: np.random.Generator, noise: float = 0.05
) -> np.ndarray:
    """Pictures of an object without symmetry, a cloud of bright points, turned and tilted."""
    cloud = rng.normal(size=(25, 3)) * [0.35, 0.3, 0.35]
    light = rng.uniform(0.3, 1.0, size=25)
    found = np.empty((len(turn), SIDE * SIDE))
    for i, (a, b) in enumerate(zip(turn, tilt, strict=True)):
        x = np.cos(a) * cloud[:, 0] + np.sin(a) * cloud[:, 2]
        z = np.cos(a) * cloud[:, 2] - np.sin(a) * cloud[:, 0]
        y = np.cos(b) * cloud[:, 1] - np.sin(b) * z
        depth = np.cos(b) * z + np.sin(b) * cloud[:, 1]
        canvas = np.zeros((SIDE, SIDE))
        rows, columns = (np.clip((p + 1) / 2 * SIDE, 0, SIDE - 1).astype(int) for p in (y, x))
        np.add.at(canvas, (rows, columns), light * (1.5 + depth))  # nearer is brighter
        found[i] = gaussian_filter(canvas, 1.2).ravel()
    return found / found.std() + noise * rng.normal(size=found.shape)


def drawn(name: str, plan: Plan, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, Kernel]:
    """Points, side information and its kernel."""
    if name == TURNING:
        turn = rng.uniform(0, 2 * np.pi, plan.views)
        X = views(turn, np.radians(rng.uniform(-25, 25, plan.views)), rng)
        return X, np.stack([np.cos(turn), np.sin(turn)], axis=1), Gaussian()
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    rows = rng.permutation(len(y))[: plan.digits]
    return X[rows] / 16, y[rows], Delta()


# --- methods --------------------------------------------------------------------------------------


class ColouredPCA:
    """Directions in which a linear map depends most on side information."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def fit(self, X: np.ndarray, y: np.ndarray) -> ColouredPCA:
        self.mean = X.mean(axis=0)
        L = self.kernel.resolve(y)(y)
        L = L - L.mean(axis=0) - L.mean(axis=1)[:, None] + L.mean()
        centred = X - self.mean
        self.directions = np.linalg.eigh(centred.T @ L @ centred)[1][:, :-3:-1]
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        return (X - self.mean) @ self.directions


Settings = tuple[int, float]  # neighbours and stiffness


def fitted(
    method: str, X: np.ndarray, y: np.ndarray, kernel: Kernel, settings: Settings, seed: int
) -> Any:
    """A map of X that places other points too."""
    k, stiffness = settings
    if method in (COLOURED, PLAIN):
        side = (kernel, y) if method == COLOURED else (None, None)
        model = ColoredUnfolding(
            2, k, side[0], stiffness=stiffness, method="laplacian", random_state=seed
        )
        return model.fit(X, side[1])
    if method == COLOURED_PCA:
        return ColouredPCA(kernel).fit(X, y)
    return PCA(2).fit(X) if method == PRINCIPAL else Isomap(n_neighbors=k).fit(X)


def asked(
    places: np.ndarray, y: np.ndarray, others: np.ndarray | None = None, truth: Any = None
) -> float:
    """What neighbours on the map know of side information: accuracy, or minus degrees.

    Without others the places ask each other.
    """
    near = NearestNeighbors(n_neighbors=NEAR).fit(places).kneighbors(others, return_distance=False)
    truth = y if truth is None else truth
    if y.ndim == 1:
        votes = np.array([np.bincount(row, minlength=10) for row in y[near]])
        return float(np.mean(votes.argmax(axis=1) == truth))
    mean = y[near].mean(axis=1)
    told, real = (np.arctan2(p[:, 1], p[:, 0]) for p in (mean, truth))
    return -float(np.degrees(np.mean(abs(np.angle(np.exp(1j * (told - real)))))))


def chosen(
    method: str, X: np.ndarray, y: np.ndarray, kernel: Kernel, plan: Plan, seed: int
) -> Settings:
    """Settings by folds of the rows learned from."""
    tried = [(k, s) for k in plan.neighbours for s in plan.stiffness]
    if method in (COLOURED_PCA, PRINCIPAL):
        return tried[0]  # there is nothing to choose
    if method == ISOMAP:
        tried = [(k, 1.0) for k in plan.neighbours]
    folds = list(KFold(plan.folds, shuffle=True, random_state=seed).split(X))

    def score(settings: Settings) -> float:
        found = 0.0
        for train, test in folds:
            model = fitted(method, X[train], y[train], kernel, settings, seed)
            places = model.transform(X[train])
            found += asked(places, y[train], model.transform(X[test]), y[test])
        return found

    return max(tried, key=score) if len(tried) > 1 else tried[0]


def one_run(plan: Plan, name: str, index: int, seed: int) -> dict[tuple[str, str], float]:
    """Scores by measure and method."""
    rng = np.random.default_rng((seed, len(name), index))
    X, y, kernel = drawn(name, plan, rng)
    held, known = np.split(rng.permutation(len(X)), [round(plan.held * len(X))])
    state = int(rng.integers(2**31))
    found = {}
    for method in METHODS:
        settings = chosen(method, X[known], y[known], kernel, plan, state)
        model = fitted(method, X[known], y[known], kernel, settings, state)
        places = model.transform(X[known])
        found[HELD, method] = asked(places, y[known], model.transform(X[held]), y[held])
        found[KNOWN, method] = asked(places, y[known])
        found[TRUST, method] = float(trustworthiness(X[known], places, n_neighbors=10))
    return found


# --- what is reported -----------------------------------------------------------------------------


def shown(name: str, measure: str, values: list[float]) -> Figure:
    """Accuracies as they are, degrees without the sign."""
    sign = -1.0 if name == TURNING and measure != TRUST else 1.0
    return Figure.of(sign * np.array(values))


def score_table(name: str, scores: Scores) -> Table:
    what = "error of the angle (degrees)" if name == TURNING else "accuracy of the class"
    rows: list[tuple[Any, ...]] = [
        (method, *(shown(name, m, scores[name, m, method]) for m in (HELD, KNOWN, TRUST)))
        for method in METHODS
    ]
    headings = ("map", f"{what}, held out", f"{what}, learned from", "trust")
    return Table(f"{name}: what neighbours on the map know", headings, tuple(rows))


def verdict(plan: Plan, scores: Scores) -> tuple[Claim, ...]:
    """By paired differences over runs."""
    lines = []
    for name in plan.data:
        for measure in (HELD, TRUST):
            ours, said, hows = scores[name, measure, COLOURED], [], []
            for rival in METHODS[1:]:
                theirs = scores[name, measure, rival]
                how, gap, se = paired(ours, theirs)
                word = {"above": "better than", "below": "worse than"}.get(how)
                said.append(f"{word or 'not told apart from'} {rival} ({gap:+.3f} ± {se:.3f})")
                hows.append(how)
            figure = shown(name, measure, ours)
            text = f"{name}, {measure}: {COLOURED} {figure}: {', '.join(said)}."
            lines.append(Claim(text, ahead(hows), figure))
    text = "Differences are larger-is-better: accuracies, minus degrees, trustworthiness."
    lines.append(Claim(text))
    return tuple(lines)


def picture(plan: Plan, scores: Scores) -> Callable[[Any], Any]:
    """Trust against what held-out rows learn from their neighbours, the first data set."""
    name = plan.data[0]

    def draw(ax: Any = None) -> Any:
        ax = plots.axes(ax)
        for i, method in enumerate(METHODS):
            x, y = (shown(name, m, scores[name, m, method]) for m in (TRUST, HELD))
            ax.errorbar(
                x.mean,
                y.mean,
                2 * y.standard_error,
                2 * x.standard_error,
                color=COLOURS[i],
                marker=MARKS[i],
                linestyle="",
                capsize=2,
                label=method,
            )
        what = "error of the angle (degrees)" if name == TURNING else "accuracy of the class"
        ax.set(title=f"Maps of {name}", xlabel="trustworthiness", ylabel=f"{what}, held out")
        ax.legend(fontsize="small")
        return ax

    return draw
