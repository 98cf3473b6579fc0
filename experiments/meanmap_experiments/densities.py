"""Densities from embeddings against kernel density estimates and mixtures, by points held out.

Known densities in one to ten dimensions, judged by the divergence from the truth, and five tables
of measurements with at most ten columns, judged by the log-density of rows held out. Data sets and
settings were chosen before any result was seen. Every method chooses its bandwidth or its number of
components in the same training rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import logsumexp

from meanmap.density import EmbeddingDensity
from meanmap_experiments.geyser import eruptions
from meanmap_experiments.results import Claim, Curves, Figure, Outcome, Table, ahead, paired
from meanmap_experiments.runs import each

DEFAULT, ENTROPY, KL, QUADRATIC = "default", "entropy", "KL to a normal", "quadratic"
HERDING, PLAIN = "herding, 100 points", "plain, whitened"
COLUMNS, ROUND = "KernelDensity", "KernelDensity, whitened"
BIC, CV = "GaussianMixture, BIC", "GaussianMixture, CV"
OURS = (DEFAULT, ENTROPY, KL, QUADRATIC, HERDING, PLAIN)
PEERS = (COLUMNS, ROUND, BIC, CV)
METHODS = (*OURS, *PEERS)


@dataclass(frozen=True)
class Plan:
    """How much is done."""

    runs: int = 5
    n: int = 500
    dimensions: tuple[int, ...] = (1, 2, 3, 5, 7, 10)
    known: tuple[str, ...] = ("mixture", "skewed", "ring", "heavy tails")
    tables: tuple[str, ...] = ("geyser", "iris", "diabetes", "breast cancer", "wine")
    splits: int = 10
    held: float = 0.25  # the share of rows held out
    tests: int = 2000
    most: int = 8  # components of a mixture


FULL = Plan()
QUICK = Plan(
    runs=2,
    n=150,
    dimensions=(1, 3),
    known=("mixture", "skewed", "heavy tails"),
    tables=("geyser",),
    splits=2,
    tests=500,
    most=5,
)

Scores = dict[tuple[str, int, str], list[float]]  # by data, dimension and method, one per run


def run(
    quick: bool = False,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: bool | None = None,
    plan: Plan | None = None,
) -> Outcome:
    """Densities from embeddings, against kernel density estimates and mixtures.

    Parameters
    ----------
    quick, seed, n_jobs, progress : as in `meanmap_experiments.run`
    plan : Plan or None
        How much is done, if neither the quick nor the full experiment.
    """
    plan = plan or (QUICK if quick else FULL)
    known = [
        (plan, name, d, i, seed)
        for name in plan.known
        for d in plan.dimensions
        if d > 1 or name != "ring"
        for i in range(plan.runs)
    ]
    tables = [
        (plan, name, columns(name).shape[1], i, seed)
        for name in plan.tables
        for i in range(plan.splits)
    ]
    jobs = [*known, *tables]
    scores: Scores = {}
    sizes: Scores = {}
    for (_, name, d, *_), (found, kept) in zip(
        jobs, each(one, jobs, "densities", n_jobs, progress), strict=True
    ):
        for method in METHODS:
            scores.setdefault((name, d, method), []).append(found[method])
            sizes.setdefault((name, d, method), []).append(kept[method])
    return Outcome(
        name="densities",
        title="Densities from embeddings, judged by points held out",
        citation="the method of Song, Zhang, Smola, Gretton and Schölkopf (2008); no paper's data",
        settings={
            "known densities": f"{plan.n} points, {plan.runs} runs, {plan.tests:,} test points; "
            "columns of mixture (three round Gaussians), skewed (gamma of shape 2), ring (radius "
            "3, other columns normal) and heavy tails (t with 4 degrees, columns correlated 0.5)",
            "tables": f"{', '.join(plan.tables)}: columns of numbers, at most ten, {plan.splits} "
            f"splits with {plan.held:.0%} of the rows held out",
            DEFAULT: "EmbeddingDensity(): the entropy's programme and mixtures of up to twelve "
            "Gaussians, averaged by five folds",
            f"{ENTROPY}, {KL}, {QUADRATIC}": "the programme with this regularizer, else "
            "defaults: 200 candidates at three scales, bandwidth and ε by five folds",
            PLAIN: "Gaussians on all points, of the sample's covariance in small; width by folds",
            COLUMNS: "columns standardised; 15 bandwidths around Silverman's, five folds",
            ROUND: "the same after whitening with the covariance of the training rows",
            "GaussianMixture": f"full covariances, up to {plan.most} components, by BIC or by five "
            "folds, on standardised columns",
        },
        tables=(
            *(
                known_table(plan, name, scores)
                for name in plan.known
                if any((name, d, ENTROPY) in scores for d in plan.dimensions)
            ),
            *([score_table(plan, scores)] if plan.tables else []),
            component_table(plan, sizes),
        ),
        verdict=verdict(plan, scores),
        quick=quick,
        seed=seed,
        picture=picture(plan, scores),
    )


# --- data -----------------------------------------------------------------------------------------


def drawn(name: str, n: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Points of a known density."""
    if name == "mixture":
        means, scales = _mixture(d)
        which = rng.integers(3, size=n)
        return means[which] + scales[which, None] * rng.normal(size=(n, d))
    if name == "skewed":
        return rng.gamma(2.0, size=(n, d))
    if name == "heavy tails":
        return np.asarray(_heavy(d).rvs(size=n, random_state=rng)).reshape(n, d)
    turn, radius = rng.uniform(0, 2 * np.pi, size=n), 3 + 0.3 * rng.normal(size=n)
    circle = np.stack([radius * np.cos(turn), radius * np.sin(turn)], axis=1)
    return np.concatenate([circle, rng.normal(size=(n, d - 2))], axis=1)


def log_truth(name: str, X: np.ndarray) -> np.ndarray:
    """Its log-density."""
    d = X.shape[1]
    if name == "mixture":
        parts = [
            stats.norm.logpdf(X, mean, scale).sum(axis=1)
            for mean, scale in zip(*_mixture(d), strict=True)
        ]
        return np.asarray(logsumexp(parts, axis=0) - np.log(3))
    if name == "skewed":
        return np.asarray(stats.gamma.logpdf(X, 2.0).sum(axis=1))
    if name == "heavy tails":
        return np.atleast_1d(_heavy(d).logpdf(X))
    radius = np.hypot(X[:, 0], X[:, 1])
    # a negative radius is that of the opposite side, ten deviations away
    ring = stats.norm.logpdf(radius, 3, 0.3) - np.log(2 * np.pi * radius)
    return np.asarray(ring + stats.norm.logpdf(X[:, 2:]).sum(axis=1))


def _mixture(d: int) -> tuple[np.ndarray, np.ndarray]:
    means = np.zeros((3, d))
    means[0, 0], means[1, 0] = -3.0, 3.0
    means[2, -1] = 3.0 if d > 1 else 0.0
    return means, np.array([0.5, 1.0, 0.7])


def _heavy(d: int) -> Any:
    return stats.multivariate_t(np.zeros(d), 0.5 * np.eye(d) + 0.5, df=4)


@cache
def columns(name: str) -> np.ndarray:
    """The columns of numbers of a table, at most ten."""
    from sklearn import datasets

    if name == "geyser":
        return eruptions()
    if name == "diabetes":  # without sex, a label
        found = datasets.load_diabetes(scaled=False).data
        return np.delete(found, 1, axis=1)
    loaders = {
        "iris": datasets.load_iris,
        "wine": datasets.load_wine,
        "breast cancer": datasets.load_breast_cancer,  # its first ten columns are the means
    }
    return loaders[name]().data[:, :10]


# --- runs -----------------------------------------------------------------------------------------


def one(
    plan: Plan, name: str, d: int, index: int, seed: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Mean log-densities of test points, less the truth's if known, and numbers of components."""
    rng = np.random.default_rng((seed, index, d, sum(map(ord, name))))
    level = 0.0
    if name in plan.known:
        X, T = drawn(name, plan.n, d, rng), drawn(name, plan.tests, d, rng)
        level = float(log_truth(name, T).mean())
    else:
        rows = rng.permutation(columns(name))
        T, X = np.split(rows, [round(plan.held * len(rows))])
    found, kept = {}, {}
    for method in METHODS:
        logs, size = fitted(plan, method, X, T, index)
        found[method], kept[method] = float(logs.mean()) - level, size
    return found, kept


def fitted(
    plan: Plan, method: str, X: np.ndarray, T: np.ndarray, seed: int
) -> tuple[np.ndarray, float]:
    """Log-densities at the test points, and how many components there are."""
    if method in OURS:
        settings: dict[str, dict[str, Any]] = {
            DEFAULT: {},
            ENTROPY: {"method": "programme"},
            KL: {"regularizer": "kl"},
            QUADRATIC: {"regularizer": "quadratic"},
            HERDING: {"method": "herding", "n_candidates": 100},
            PLAIN: {"method": "plain"},
        }
        model = EmbeddingDensity(random_state=seed, **settings[method]).fit(X)
        return model.score_samples(T), float(len(model.proportions_))
    mean, scale = X.mean(axis=0), np.diag(X.std(axis=0))
    if method == ROUND:
        scale = np.linalg.cholesky(np.atleast_2d(np.cov(X.T)) + 1e-9 * scale**2)
    Z, at = (np.linalg.solve(scale, (part - mean).T).T for part in (X, T))
    volume = np.log(np.diagonal(scale)).sum()
    peer = kernel_density(Z, seed) if method in (COLUMNS, ROUND) else mixture(plan, method, Z, seed)
    size = getattr(peer, "n_components", len(X))
    return peer.score_samples(at) - volume, float(size)


def kernel_density(Z: np.ndarray, seed: int) -> Any:
    """scikit-learn's, its bandwidth by five folds."""
    from sklearn.model_selection import GridSearchCV, KFold
    from sklearn.neighbors import KernelDensity

    n, d = Z.shape
    rule = (4 / ((d + 2) * n)) ** (1 / (d + 4))
    grid = {"bandwidth": rule * np.geomspace(0.15, 2.4, 15)}
    folds = KFold(5, shuffle=True, random_state=seed)
    return GridSearchCV(KernelDensity(), grid, cv=folds).fit(Z).best_estimator_


def mixture(plan: Plan, method: str, Z: np.ndarray, seed: int) -> Any:
    """scikit-learn's, its number of components by BIC or by five folds."""
    from sklearn.mixture import GaussianMixture
    from sklearn.model_selection import KFold, cross_val_score

    def model(k: int) -> Any:
        return GaussianMixture(k, n_init=2, reg_covar=1e-4, random_state=seed)

    counts = range(1, plan.most + 1)
    if method == BIC:
        return min((model(k).fit(Z) for k in counts), key=lambda m: m.bic(Z))
    folds = KFold(5, shuffle=True, random_state=seed)
    best = max(counts, key=lambda k: cross_val_score(model(k), Z, cv=folds).mean())
    return model(best).fit(Z)


# --- what is reported -----------------------------------------------------------------------------


def known_table(plan: Plan, name: str, scores: Scores) -> Table:
    """Divergences from the truth: minus the mean log-density less the truth's."""
    shown = [d for d in plan.dimensions if (name, d, ENTROPY) in scores]
    rows: list[tuple[Any, ...]] = [
        (method, *(Figure.of(-np.array(scores[name, d, method])) for d in shown))
        for method in METHODS
    ]
    return Table(
        f"{name}: divergence of the truth from the estimate",
        ("method", *(f"d = {d}" for d in shown)),
        tuple(rows),
    )


def score_table(plan: Plan, scores: Scores) -> Table:
    sizes = {name: columns(name).shape for name in plan.tables}
    rows: list[tuple[Any, ...]] = [
        (method, *(Figure.of(scores[name, sizes[name][1], method]) for name in plan.tables))
        for method in METHODS
    ]
    headings = [f"{name} ({n} × {d})" for name, (n, d) in sizes.items()]
    return Table("Log-density of rows held out", ("method", *headings), tuple(rows))


def component_table(plan: Plan, sizes: Scores) -> Table:
    """How many components the estimates have, over all that was done."""
    rows = []
    for method in METHODS:
        values = [v for (_, _, m), found in sizes.items() if m == method for v in found]
        rows.append(
            (method, float(np.median(values)), float(np.min(values)), float(np.max(values)))
        )
    return Table("Components", ("method", "median", "least", "most"), tuple(rows))


def verdict(plan: Plan, scores: Scores) -> tuple[Claim, ...]:
    """By paired differences over runs or splits, and two standard errors of them."""
    places = sorted({(name, d) for name, d, _ in scores})
    lines = []
    for ours in (DEFAULT, ENTROPY, QUADRATIC):
        for rival in (*PEERS, PLAIN):
            told: dict[str, list[str]] = {"above": [], "level with": [], "below": []}
            for name, d in places:
                how, _, _ = paired(scores[name, d, ours], scores[name, d, rival])
                told[how].append(f"{name} {d}" if name in plan.known else name)
            lost = f" (worse on {', '.join(told['below'])})" if told["below"] else ""
            text = (
                f"“{ours}” against “{rival}”: better on {len(told['above'])} of {len(places)}, not "
                f"told apart on {len(told['level with'])}, worse on {len(told['below'])}{lost}."
            )
            lines.append(Claim(text, ahead(how for how, where in told.items() if where)))
    best = {p: max(METHODS, key=lambda m: float(np.mean(scores[(*p, m)]))) for p in places}
    counts = {m: sum(winner == m for winner in best.values()) for m in METHODS}
    firsts = ", ".join(f"“{m}” {c}" for m, c in counts.items() if c)
    lines.append(Claim(f"Highest mean on {len(places)} data sets: {firsts}."))
    if plan.tables:
        text = "Splits of a table share rows, so that their standard errors are too small."
        lines.append(Claim(text))
    return tuple(lines)


def picture(plan: Plan, scores: Scores) -> Callable[[Any], Any]:
    """Divergences against the dimension, averaged over the densities that have all of them."""
    names = [
        name for name in plan.known if all((name, d, PLAIN) in scores for d in plan.dimensions)
    ]
    chosen = (DEFAULT, ENTROPY, KL, QUADRATIC, PLAIN, COLUMNS, BIC)
    curves = []
    for method in chosen:
        figures = [
            Figure.of(-np.mean([scores[name, d, method] for name in names], axis=0))
            for d in plan.dimensions
        ]
        curves.append((method, tuple(map(float, plan.dimensions)), tuple(figures)))
    title = f"Known densities ({', '.join(names)}), {plan.n} points"
    return Curves(title, "dimension", "divergence from the truth", tuple(curves), logy=True)
