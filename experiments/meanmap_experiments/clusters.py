"""Clusters by dependence: where it is k-means, where it is more, and labels that come in order.

Song, Smola, Gretton and Borgwardt (2007) see clustering as the search for labels that depend on
the points as much as they can. Here: the linear kernel against scikit-learn's k-means; rings; views
of an object turned by unknown angles, whose labels are to go round with the angle; a curve, whose
labels are to follow it; and three tables of scikit-learn's, all chosen before results were seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.ndimage import rotate
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.metrics import adjusted_rand_score

from meanmap import hsic, plots
from meanmap.kernels import Gaussian, Linear, Precomputed
from meanmap.learning import HSICClustering
from meanmap.spaces import PivotedCholesky
from meanmap_experiments.results import COLOURS, Claim, Figure, Outcome, Table, ahead, paired
from meanmap_experiments.runs import each
from meanmap_experiments.unfolding import views

LINEAR, KERNEL = "by dependence, linear kernel", "by dependence, Gaussian kernel"
MEANS, SPECTRAL = "k-means", "spectral clustering"
RING, CHAIN = "by dependence, labels on a ring", "by dependence, labels on a chain"
TWICE = "labels on a ring that go round twice"
SORTED, NAMED = "k-means, put in order by principal coordinates", "k-means, as it names clusters"
BANDWIDTHS = (0.2, 0.3, 0.4, 0.6, 1.0)  # of the median distance
SAME, ORDERS = "k-means itself", ("turning object", "turned digits", "noisy circle", "curve")
GROUPS = ("rings, 1 : 4", "rings, 1 : 3", "rings, 1 : 2", "iris", "wine", "digits")


@dataclass(frozen=True)
class Plan:
    """How much is done."""

    runs: int = 20
    groups: tuple[str, ...] = GROUPS
    orders: tuple[str, ...] = ORDERS
    n: int = 300  # points of what is drawn
    share: float = 0.8  # of a table's rows, drawn anew for every run
    labels: int = 12  # that are to come in order


FULL = Plan()
QUICK = Plan(runs=4, n=200, groups=GROUPS[:-1])

Scores = dict[tuple[str, str], list[float]]  # by data and method, one per run


def run(
    quick: bool = False,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: bool | None = None,
    plan: Plan | None = None,
) -> Outcome:
    """Clusters by dependence.

    Parameters
    ----------
    quick, seed, n_jobs, progress : as in `meanmap_experiments.run`
    plan : Plan or None
        How much is done, if neither the quick nor the full experiment.

    Examples
    --------
    >>> run(plan=Plan(runs=1, n=60, groups=("iris",), orders=("curve",))).name
    'clusters'
    """
    plan = plan or (QUICK if quick else FULL)
    names = (SAME, *plan.groups, *plan.orders)
    jobs = [(plan, name, i, seed) for name in names for i in range(plan.runs)]
    scores: Scores = {}
    for (_, name, *_), found in zip(
        jobs, each(one_run, jobs, "clusters", n_jobs, progress), strict=True
    ):
        for method, value in found.items():
            scores.setdefault((name, method), []).append(value)
    return Outcome(
        name="clusters",
        title="Clusters by dependence",
        citation="Song, Smola, Gretton and Borgwardt (2007), A dependence maximization view of "
        "clustering",
        settings={
            SAME: f"{plan.n} points around 5 centres in 4 dimensions; ten starts for both",
            "rings": f"{plan.n} points on two circles, radii 1 and 4, 3 or 2, noise 0.2",
            "tables": f"{plan.share:.0%} of the rows, drawn anew in every run; columns of iris and "
            "wine over their deviations",
            "Gaussian kernel": f"bandwidth one of {BANDWIDTHS} times the median distance, that "
            "with the largest normalised HSIC of points and labels: classes are not looked at",
            SPECTRAL: "scikit-learn's, on ten nearest neighbours",
            "turning object": f"{plan.n} views of a cloud of points in space, turned by random "
            "angles; another object in every run",
            "turned digits": f"a digit of scikit-learn's, turned by {plan.n} random angles, noise",
            "noisy circle": f"{plan.n} points on a circle in 10 dimensions, noise 0.3",
            "curve": f"{plan.n} points on a curve (t, sin t, cos t), noise 0.1",
            "order": f"{plan.labels} labels; correlation of the label with the place on the curve, "
            "or |mean exp(i(label - angle))| in either direction for circles: 1 is perfect",
            TWICE: "the same score for twice the angle: high where half a turn leaves a picture "
            "much as it was",
            SORTED: "clusters of k-means, put in order by their centres: by the angle in the plane "
            "of two principal components, or along the first",
        },
        tables=(same_table(scores), group_table(plan, scores), order_table(plan, scores)),
        verdict=verdict(plan, scores),
        quick=quick,
        seed=seed,
        picture=picture(plan, scores),
    )


# --- data -----------------------------------------------------------------------------------------


def on_circle(angle: np.ndarray) -> np.ndarray:
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def grouped(name: str, plan: Plan, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points and the classes that are to be found."""
    if name == SAME:
        y = rng.integers(5, size=plan.n)
        return 3 * rng.normal(size=(5, 4))[y] + rng.normal(size=(plan.n, 4)), y
    if name.startswith("rings"):
        y = np.arange(plan.n) % 2
        radius = np.where(y == 0, 1.0, float(name.split()[-1]))[:, None]
        X = radius * on_circle(rng.uniform(0, 2 * np.pi, plan.n))
        return X + 0.2 * rng.normal(size=X.shape), y
    from sklearn import datasets

    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    rows = rng.permutation(len(y))[: round(plan.share * len(y))]
    X, y = X[rows].astype(float), y[rows]
    return (X if name == "digits" else (X - X.mean(axis=0)) / X.std(axis=0)), y


def in_order(name: str, plan: Plan, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points and their places on a curve, or their angles."""
    if name == "curve":
        t = rng.uniform(0, 1, plan.n)
        X = np.stack([3 * t, np.sin(5 * t), np.cos(7 * t)], axis=1)
        return X + 0.1 * rng.normal(size=X.shape), t
    angle = rng.uniform(0, 2 * np.pi, plan.n)
    if name == "noisy circle":
        X = on_circle(angle) @ rng.normal(size=(2, 10))
        return X + 0.3 * rng.normal(size=X.shape), angle
    if name == "turning object":
        return views(angle, np.zeros(plan.n), rng), angle
    from sklearn.datasets import load_digits

    images = load_digits().images
    picture = np.pad(images[rng.integers(len(images))], 3)
    turned = [rotate(picture, np.degrees(a), reshape=False, order=1).ravel() for a in angle]
    return np.array(turned) + rng.normal(size=(plan.n, picture.size)), angle


# --- methods --------------------------------------------------------------------------------------


def by_kernel(X: np.ndarray, k: int, seed: int, structure: str | None = None) -> np.ndarray:
    """The labels with the largest share of dependence over bandwidths."""
    best, labels = -np.inf, np.zeros(len(X), dtype=int)
    basis = PivotedCholesky(1e-6)
    for factor in BANDWIDTHS:
        model = HSICClustering(
            k, Gaussian(f"{factor}*median"), structure, basis=basis, random_state=seed
        ).fit(X)
        alike = Precomputed(model.label_kernel_)
        share = hsic(X, model.labels_, model.kernel_, alike, "normalized", basis=(basis, None))
        if share > best:
            best, labels = share, model.labels_
    return labels


def sorted_clusters(X: np.ndarray, model: KMeans, round_: bool) -> np.ndarray:
    """The clusters' ranks, by principal coordinates of their centres."""
    centres = model.cluster_centers_ - X.mean(axis=0)
    V = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:2]
    P = centres @ V.T
    key = np.arctan2(P[:, 1], P[:, 0]) if round_ else P[:, 0]
    return np.argsort(np.argsort(key))[model.labels_]


def ordered_score(labels: np.ndarray, place: np.ndarray, k: int, round_: bool) -> float:
    """How well labels follow the place."""
    if not round_:
        return float(abs(np.corrcoef(labels, place)[0, 1]))
    named, truth = np.exp(2j * np.pi * labels / k), np.exp(1j * place)
    return float(max(abs(np.mean(named * truth)), abs(np.mean(named * truth.conj()))))


def one_run(plan: Plan, name: str, index: int, seed: int) -> dict[str, float]:
    """Scores by method."""
    rng = np.random.default_rng((seed, sum(map(ord, name)), index))
    state = int(rng.integers(2**31))
    if name in plan.orders:
        X, place = in_order(name, plan, rng)
        round_, k = name != "curve", plan.labels
        means = KMeans(k, n_init=10, random_state=state).fit(X)
        structure, method = ("ring", RING) if round_ else ("chain", CHAIN)
        ours = by_kernel(X, k, state, structure)
        return {
            method: ordered_score(ours, place, k, round_),
            **({TWICE: ordered_score(ours, 2 * place, k, True)} if round_ else {}),
            SORTED: ordered_score(sorted_clusters(X, means, round_), place, k, round_),
            NAMED: ordered_score(means.labels_, place, k, round_),
        }
    X, y = grouped(name, plan, rng)
    k = len(np.unique(y))
    linear = HSICClustering(k, Linear(), random_state=state).fit(X)
    means = KMeans(k, n_init=10, random_state=state).fit(X)
    if name == SAME:
        total = float(np.sum((X - X.mean(axis=0)) ** 2))
        return {
            "excess": linear.objective_ * len(X) / (total - means.inertia_) - 1,
            "agreement": adjusted_rand_score(linear.labels_, means.labels_),
        }
    spectral = SpectralClustering(
        k, affinity="nearest_neighbors", n_neighbors=10, random_state=state
    )
    labels = {
        KERNEL: by_kernel(X, k, state),
        LINEAR: linear.labels_,
        MEANS: means.labels_,
        SPECTRAL: spectral.fit_predict(X),
    }
    return {method: float(adjusted_rand_score(y, found)) for method, found in labels.items()}


# --- what is reported -----------------------------------------------------------------------------


def same_table(scores: Scores) -> Table:
    excess, agreement = scores[SAME, "excess"], scores[SAME, "agreement"]
    rows: list[tuple[Any, ...]] = [
        ("scatter between clusters, over that of k-means, less 1", min(excess), max(excess)),
        ("adjusted Rand index of the two", min(agreement), max(agreement)),
    ]
    return Table("The linear kernel and k-means", ("", "least", "largest"), tuple(rows))


def group_table(plan: Plan, scores: Scores) -> Table:
    rows: list[tuple[Any, ...]] = [
        (method, *(Figure.of(scores[name, method]) for name in plan.groups))
        for method in (KERNEL, LINEAR, MEANS, SPECTRAL)
    ]
    headings = ("method", *plan.groups)
    return Table("Classes found: adjusted Rand index, 1 is perfect", headings, tuple(rows))


def order_table(plan: Plan, scores: Scores) -> Table:
    rows: list[tuple[Any, ...]] = []
    for method in (RING, CHAIN, SORTED, NAMED, TWICE):
        cells = [scores.get((name, method)) for name in plan.orders]
        if any(cells):
            rows.append((method, *(Figure.of(c) if c else None for c in cells)))
    return Table("Order of labels, 1 is perfect", ("method", *plan.orders), tuple(rows))


def verdict(plan: Plan, scores: Scores) -> tuple[Claim, ...]:
    """By paired differences over runs."""
    excess, agreement = scores[SAME, "excess"], scores[SAME, "agreement"]
    same = sum(value == 1.0 for value in agreement)
    text = (
        f"With a linear kernel the clusters are those of k-means in {same} of {len(agreement)} "
        f"runs; the scatter between clusters differs by {max(map(abs, excess)):.1g} of it at most."
    )
    lines = [Claim(text)]
    for name in plan.groups:
        lines.append(compared(scores, name, KERNEL, (MEANS, SPECTRAL)))
    for name in plan.orders:
        ours = CHAIN if name == "curve" else RING
        lines.append(compared(scores, name, ours, (SORTED, NAMED)))
    return tuple(lines)


def compared(scores: Scores, name: str, method: str, rivals: tuple[str, ...]) -> Claim:
    ours, said, hows = scores[name, method], [], []
    for rival in rivals:
        how, gap, se = paired(ours, scores[name, rival])
        word = {"above": "better than", "below": "worse than"}.get(how, "not told apart from")
        said.append(f"{word} {rival} ({np.mean(scores[name, rival]):.3f}; {gap:+.3f} ± {se:.3f})")
        hows.append(how)
    text = f"{name}: {method} {np.mean(ours):.3f}, {' and '.join(said)}."
    return Claim(text, ahead(hows), Figure.of(ours))


def picture(plan: Plan, scores: Scores) -> Callable[[Any], Any]:
    """Adjusted Rand indices, a group of bars a data set."""
    methods = (KERNEL, MEANS, SPECTRAL)
    figures = {m: [Figure.of(scores[name, m]) for name in plan.groups] for m in methods}

    def draw(ax: Any = None) -> Any:
        ax = plots.axes(ax)
        width = 0.8 / len(methods)
        for i, (method, found) in enumerate(figures.items()):
            place = [j + (i - (len(methods) - 1) / 2) * width for j in range(len(found))]
            bars = [2 * figure.standard_error for figure in found]
            ax.bar(
                place,
                [figure.mean for figure in found],
                width,
                yerr=bars,
                color=COLOURS[i],
                label=method,
                capsize=2,
            )
        ax.set(title="Classes found", ylabel="adjusted Rand index", ylim=(-0.05, 1.35))
        ax.set_xticks(range(len(plan.groups)), [name.replace(", ", "\n") for name in plan.groups])
        ax.legend(fontsize="small", loc="upper center", ncols=2)
        return ax

    return draw
