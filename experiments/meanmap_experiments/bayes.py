"""Kernel Bayes' rule against densities and importance weights (Fukumizu, Song, Gretton 2013, 5.1).

Both see a sample of the joint distribution and a sample of the prior, and estimate the mean of the
posterior for new observations. The paper draws its errors (Figure 2) and prints none. Its grid of
bandwidths for densities begins at h = 2, which at d = 2 is as wide as the data; a fine grid from
h = 1/4 is tried as well. Its settings of ε and δ are printed for section 5.2 only. Its
cross-validation (4.2) compares posteriors in the space of the candidate, where the widest kernel
wins always; here one reference kernel measures them all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import logsumexp

from meanmap.conditional import ConditionalEmbedding
from meanmap.embeddings import embed
from meanmap.kernels import Gaussian
from meanmap.kernels.bandwidths import median_distance
from meanmap_experiments.results import Claim, Curves, Figure, Outcome, Table, ahead, paired
from meanmap_experiments.runs import each

MEDIAN, MEDIAN_N = "KBR, median, ε = 0.01, δ = 0.0001", "KBR, median, ε = 0.01/n, δ = 2ε"
CHOSEN, CHOSEN_N = "KBR, cross-validated, ε = 0.01, δ = 0.0001", "KBR, cross-validated, ε = 0.01/n"
DEFAULT, NONNEGATIVE = "KBR, the default", "KBR, non-negative weights, automatic"
IMPORTANCE, REWEIGHTED = "KBR, importance-weighted, automatic", "KBR, reweighted, automatic"
PRIOR = "the prior's mean"
KERNEL = (MEDIAN, MEDIAN_N, CHOSEN, CHOSEN_N, DEFAULT, NONNEGATIVE, IMPORTANCE, REWEIGHTED)
RULES = {
    DEFAULT: None,
    NONNEGATIVE: "nonnegative",
    IMPORTANCE: "importance",
    REWEIGHTED: "reweighted",
}
AUTOMATIC = tuple(RULES)

COARSE = tuple(2.0 * i for i in range(1, 11))  # the paper's bandwidths of densities
FINE = tuple(float(h) for h in 2 ** np.arange(-2, 5.01, 0.25))
BEST, LSCV = "KDE + IW, best h of the paper's grid", "KDE + IW, LSCV, the paper's grid"
BEST_FINE, LSCV_FINE = "KDE + IW, best h of a fine grid", "KDE + IW, LSCV, a fine grid"
DENSITY = (BEST, LSCV, BEST_FINE, LSCV_FINE)
GRIDS = {BEST: COARSE, LSCV: COARSE, BEST_FINE: FINE, LSCV_FINE: FINE}

FACTORS = (0.35, 0.5, 0.7, 1.0, 1.4, 2.0)  # times the median: the bandwidths cross-validated
REACH = {4: 0.6, 8: 0.35, 16: 0.45, 32: 0.65, 64: 0.8}  # of KBR over the best KDE

Errors = dict[tuple[int, int, str], list[float]]  # by d, n and method, one per run


@dataclass(frozen=True)
class Plan:
    """How much is done."""

    dimensions: tuple[int, ...] = (2, 4, 8, 16, 32, 64)
    n: int = 200  # of the joint sample, and of the prior's
    runs: int = 20
    tests: int = 1000  # observations a run
    sizes: tuple[int, ...] = (100, 200, 400, 800)  # n at one dimension
    growing: int = 8  # that dimension
    folds: int = 10  # of cross-validation


FULL = Plan()
QUICK = Plan(dimensions=(2, 8, 32), runs=4, tests=200, sizes=(100, 200, 400), folds=3)


def run(
    quick: bool = False,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: bool | None = None,
    plan: Plan | None = None,
) -> Outcome:
    """Posterior means of Gaussians of 2 to 64 dimensions, from samples alone.

    Parameters
    ----------
    quick, seed, n_jobs, progress : as in `meanmap_experiments.run`
    plan : Plan or None
        How much is done, if neither the quick nor the full experiment.

    Examples
    --------
    >>> plan = Plan(dimensions=(2,), n=50, runs=2, tests=20, sizes=(), folds=2)
    >>> run(plan=plan).name
    'bayes'
    """
    plan = plan or (QUICK if quick else FULL)
    jobs = [(plan, d, plan.n, i, seed) for d in plan.dimensions for i in range(plan.runs)]
    more = [n for n in plan.sizes if n != plan.n or plan.growing not in plan.dimensions]
    jobs += [(plan, plan.growing, n, i, seed) for n in more for i in range(plan.runs)]
    jobs.sort(key=lambda job: -job[2])  # the longest first
    errors: Errors = {}
    trials: dict[tuple[int, int, str], list[np.ndarray]] = {}
    found = each(one_run, jobs, "bayes", n_jobs, progress)
    for (_, d, n, *_), (result, tried) in zip(jobs, found, strict=True):
        for method, error in result.items():
            errors.setdefault((d, n, method), []).append(error)
        for method, values in tried.items():
            trials.setdefault((d, n, method), []).append(values)
    widths: dict[tuple[int, int, str], float] = {}
    for (d, n, method), rows in trials.items():
        # the paper's "best mean performance": the h whose mean over runs is least
        at = int(np.mean(rows, axis=0).argmin())
        widths[d, n, method] = GRIDS[method][at]
        errors[d, n, method] = [float(row[at]) for row in rows]
    tables = [by_dimension(plan, errors), ratios(plan, errors), bandwidths(plan, widths)]
    if plan.sizes:
        tables.append(by_size(plan, errors))
    return Outcome(
        name="bayes",
        title="Kernel Bayes' rule against kernel density estimation with importance weights",
        citation="Fukumizu, Song and Gretton (2013), section 5.1 and Figure 2",
        settings={
            "model": "(X, Y) ~ N((0, 1), V), V = AᵀA + 2I of size 2d, A standard normal in each "
            "run; the prior N(0, V_XX/2)",
            "data": f"{plan.n} pairs and {plan.n} draws of the prior, {plan.runs} runs of "
            f"{plan.tests:,} observations y ~ N(0, V_YY)",
            "error": "squared distance of the posterior mean to the exact one, summed over "
            "coordinates, averaged over observations",
            "KBR": "the paper's squared rule with Gaussian kernels, bandwidths at the median "
            f"distance or by {plan.folds}-fold cross-validation (σ_X at σ_Y = median, then σ_Y), "
            "and this library's own rules and choices",
            "KDE + IW": "p(y|x) by kernel densities, weights p(y|Uᵢ) on the prior's draws; h by "
            "least-squares cross-validation, or the best in hindsight: that of the least mean "
            f"error on the test observations. Grids: 2, 4, …, 20 (the paper's), {FINE[0]:g} to "
            f"{FINE[-1]:g} in steps of 2^¼ (fine)",
        },
        tables=tuple(tables),
        verdict=verdict(plan, errors),
        quick=quick,
        seed=seed,
        picture=picture(plan, errors),
    )


# --- the model ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LinearGaussian:
    """(X, Y) ~ N((0, 1), V) on 2d dimensions, with N(0, V_XX/2) as the prior on X.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> model = LinearGaussian.drawn(3, rng)
    >>> x = model.prior(1000, rng)
    >>> y = model.simulate(x, rng)
    >>> y.shape, model.posterior_mean(y).shape
    ((1000, 3), (1000, 3))
    """

    V: np.ndarray

    @classmethod
    def drawn(cls, d: int, rng: np.random.Generator) -> LinearGaussian:
        """V = AᵀA + 2I with a random A."""
        A = rng.normal(size=(2 * d, 2 * d))
        return cls(A.T @ A + 2 * np.eye(2 * d))

    @property
    def d(self) -> int:
        return len(self.V) // 2

    @cached_property
    def _parts(self) -> tuple[np.ndarray, ...]:
        """B, S of P(Y|x) = N(Bx + 1, S), the prior's covariance, and the posterior mean's gain."""
        d, V = self.d, self.V
        B = np.linalg.solve(V[:d, :d], V[:d, d:]).T
        S = V[d:, d:] - B @ V[:d, d:]
        P = V[:d, :d] / 2
        gain = np.linalg.solve(B @ P @ B.T + S, B @ P).T
        return B, S, P, gain

    def joint(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """n pairs of P, whose X does not follow the prior."""
        Z = normal(self.V, n, rng)
        return Z[:, : self.d], 1 + Z[:, self.d :]

    def prior(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """n draws of the prior."""
        return normal(self._parts[2], n, rng)

    def simulate(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A draw of P(Y|x) for each x."""
        B, S, _, _ = self._parts
        return x @ B.T + 1 + normal(S, len(x), rng)

    def observations(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """The paper's test points, y ~ N(0, V_YY)."""
        return normal(self.V[self.d :, self.d :], n, rng)

    def posterior_mean(self, y: np.ndarray) -> np.ndarray:
        """The exact mean of X given each y, under the prior."""
        return (y - 1) @ self._parts[3].T


def normal(covariance: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """n draws of N(0, covariance)."""
    return rng.normal(size=(n, len(covariance))) @ np.linalg.cholesky(covariance).T


# --- kernel Bayes' rule ---------------------------------------------------------------------------


def kernel_means(
    method: str, X: np.ndarray, Y: np.ndarray, U: np.ndarray, y: np.ndarray, folds: int
) -> np.ndarray:
    """Posterior means of a variant of kernel Bayes' rule."""
    if method in AUTOMATIC:
        posterior = ConditionalEmbedding().fit(X, Y).posterior(U, RULES[method])
        return np.asarray(posterior.given(y).mean())
    epsilon, delta = (1e-2, 1e-4) if method in (MEDIAN, CHOSEN) else (0.01 / len(X), 0.02 / len(X))
    kernels = Gaussian(), Gaussian()
    if method in (CHOSEN, CHOSEN_N):
        kernels = cross_validated(X, Y, epsilon, delta, folds)
    model = ConditionalEmbedding(*kernels, regularization=epsilon, centered=False).fit(X, Y)
    return np.asarray(model.posterior(U, "squared", delta).predict(y))  # raw weights, as printed


def cross_validated(
    X: np.ndarray, Y: np.ndarray, epsilon: float, delta: float, folds: int
) -> tuple[Gaussian, Gaussian]:
    """Bandwidths under which posteriors average best to the marginal of X (section 4.2)."""
    wide_x, wide_y = median_distance(X), median_distance(Y)
    reference = Gaussian(wide_x)

    def discrepancy(sigma_x: float, sigma_y: float) -> float:
        model = ConditionalEmbedding(Gaussian(sigma_x), Gaussian(sigma_y), epsilon, centered=False)
        total = 0.0
        for fold in range(folds):
            held = np.arange(len(X)) % folds == fold
            posterior = model.fit(X[~held], Y[~held]).posterior(X[~held], "squared", delta)
            average = posterior.push(Y[held])
            m = embed(X[~held], reference, average.weights)
            total += float(m.distance(embed(X[held], reference))) ** 2
        return total

    sigma_x = min((f * wide_x for f in FACTORS), key=lambda s: discrepancy(s, wide_y))
    sigma_y = min((f * wide_y for f in FACTORS), key=lambda s: discrepancy(sigma_x, s))
    return Gaussian(sigma_x), Gaussian(sigma_y)


# --- densities and importance weights -------------------------------------------------------------


def squared_distances(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """‖a - b‖² for every pair."""
    centre = B.mean(axis=0)
    A, B = A - centre, B - centre
    squares = (A * A).sum(axis=1)[:, None] + (B * B).sum(axis=1) - 2 * A @ B.T
    return np.maximum(squares, 0.0)


def density_means(
    X: np.ndarray, Y: np.ndarray, U: np.ndarray, y: np.ndarray, widths: Iterable[float]
) -> list[np.ndarray]:
    """Posterior means from weights `ζᵢ ∝ p̂(y|Uᵢ)` on the prior's draws, for each h = h_X = h_Y."""
    from_prior, from_test = squared_distances(U, X), squared_distances(y, Y)
    nearest = from_test.min(axis=1, keepdims=True)
    means = []
    for h in widths:
        # log K(Uᵢ - Xⱼ)/Σⱼ K(Uᵢ - Xⱼ), and log K(y - Yⱼ) up to a constant of each y
        shares = -from_prior / (2 * h * h)
        shares -= logsumexp(shares, axis=1, keepdims=True)
        likely = -(from_test - nearest) / (2 * h * h)
        zeta = np.exp(likely) @ np.exp(shares).T
        # where a narrow kernel leaves nothing but underflow, in logarithms
        for i in np.flatnonzero(zeta.sum(axis=1) < 1e-200):
            logs = logsumexp(shares + likely[i], axis=1)
            zeta[i] = np.exp(logs - logs.max())
        means.append(zeta @ U / zeta.sum(axis=1, keepdims=True))
    return means


def least_squares_width(Z: np.ndarray, widths: tuple[float, ...]) -> float:
    """The h of the least `∫ p̂² - 2/n Σ p̂₋ᵢ(zᵢ)` (Rudemo 1982; Bowman 1984).

    In 128 dimensions densities range over hundreds of orders of magnitude: signs and logarithms.
    """
    n, dimension = Z.shape
    squares = squared_distances(Z, Z)
    np.fill_diagonal(squares, 0.0)
    others = squares[~np.eye(n, dtype=bool)]
    ranks = []
    for h in widths:
        constant = dimension * np.log(2 * np.pi * h * h) / 2
        # ∫ p̂² = 1/n² Σᵢⱼ N(zᵢ - zⱼ; 0, 2h²I)
        square = logsumexp(-squares / (4 * h * h)) - 2 * np.log(n)
        square -= constant + dimension * np.log(2) / 2
        cross = logsumexp(-others / (2 * h * h)) - constant + np.log(2 / (n * (n - 1)))
        gap = -abs(square - cross)
        size = max(square, cross) + (np.log(-np.expm1(gap)) if gap < 0 else -np.inf)
        ranks.append((0, -size) if cross > square else (1, size))  # the most negative first
    return widths[ranks.index(min(ranks))]


# --- runs -----------------------------------------------------------------------------------------


def one_run(
    plan: Plan, d: int, n: int, index: int, seed: int
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """The error of every method, and of KDE with every h of its grids."""
    rng = np.random.default_rng((seed, d, index))
    model = LinearGaussian.drawn(d, rng)
    y = model.observations(plan.tests, rng)
    truth = model.posterior_mean(y)
    X, Y = model.joint(n, rng)
    U = model.prior(n, rng)

    def error(means: np.ndarray) -> float:
        return float(((means - truth) ** 2).sum(axis=1).mean())

    methods = KERNEL if n == plan.n else (MEDIAN, *AUTOMATIC)
    found = {method: error(kernel_means(method, X, Y, U, y, plan.folds)) for method in methods}
    found[PRIOR] = error(np.zeros_like(truth))
    tried = {}
    for best, crossed in ((BEST, LSCV), (BEST_FINE, LSCV_FINE)):
        grid = GRIDS[best]
        tried[best] = np.array([error(means) for means in density_means(X, Y, U, y, grid)])
        chosen = least_squares_width(np.concatenate([X, Y], axis=1), grid)
        found[crossed] = float(tried[best][grid.index(chosen)])
    return found, tried


# --- what is reported -----------------------------------------------------------------------------


def by_dimension(plan: Plan, errors: Errors) -> Table:
    rows: list[tuple[Any, ...]] = [
        (method, *(Figure.of(errors[d, plan.n, method]) for d in plan.dimensions))
        for method in (*KERNEL, *DENSITY, PRIOR)
    ]
    headings = ("method", *(f"d = {d}" for d in plan.dimensions))
    return Table(f"Squared error of the posterior mean, n = {plan.n}", headings, tuple(rows))


def mean(errors: Errors, d: int, n: int, method: str) -> float:
    return float(np.mean(errors[d, n, method]))


def best_density(errors: Errors, d: int, n: int) -> str:
    """The KDE of the least mean error, whatever its grid."""
    return min(DENSITY, key=lambda method: mean(errors, d, n, method))


def ratio(errors: Errors, d: int, n: int, method: str) -> float:
    """A method's error over that of the best KDE."""
    return mean(errors, d, n, method) / mean(errors, d, n, best_density(errors, d, n))


def ratios(plan: Plan, errors: Errors) -> Table:
    rows: list[tuple[Any, ...]] = [
        (method, *(ratio(errors, d, plan.n, method) for d in plan.dimensions)) for method in KERNEL
    ]
    rows.append(("at most", *(REACH.get(d) for d in plan.dimensions)))
    headings = ("KBR over the best KDE of either grid", *(f"d = {d}" for d in plan.dimensions))
    return Table("Ratio to the best KDE + IW", headings, tuple(rows))


def bandwidths(plan: Plan, widths: dict[tuple[int, int, str], float]) -> Table:
    rows: list[tuple[Any, ...]] = [
        (m, *(widths[d, plan.n, m] for d in plan.dimensions)) for m in (BEST, BEST_FINE)
    ]
    headings = ("bandwidth", *(f"d = {d}" for d in plan.dimensions))
    return Table("h of the least mean error", headings, tuple(rows))


def by_size(plan: Plan, errors: Errors) -> Table:
    d = plan.growing
    rows: list[tuple[Any, ...]] = [
        (method, *(Figure.of(errors[d, n, method]) for n in plan.sizes))
        for method in (MEDIAN, *AUTOMATIC, *DENSITY)
    ]
    headings = ("method", *(f"n = {n}" for n in plan.sizes))
    return Table(f"Squared error as samples grow, d = {d}", headings, tuple(rows))


def verdict(plan: Plan, errors: Errors) -> tuple[Claim, ...]:
    lines = []
    judged = [d for d in plan.dimensions if d in REACH]
    for method in (NONNEGATIVE, IMPORTANCE, REWEIGHTED, MEDIAN):
        if not judged:
            break
        values = {d: ratio(errors, d, plan.n, method) for d in judged}
        missed = [str(d) for d in judged if values[d] > REACH[d]]
        outcome = f"does not hold at d = {', '.join(missed)}" if missed else "holds at every d"
        text = (
            f"{method}, over the best KDE of either grid: "
            f"{', '.join(f'{value:.2f}' for value in values.values())} at d = "
            f"{', '.join(map(str, judged))}; at most {', '.join(f'{REACH[d]:g}' for d in judged)} "
            f"{outcome}."
        )
        lines.append(Claim(text, not missed))
    if 2 in plan.dimensions:
        best = best_density(errors, 2, plan.n)
        theirs = errors[2, plan.n, best]
        words, hows = [], []
        for method in (MEDIAN, IMPORTANCE):
            how, gap, se = paired(errors[2, plan.n, method], theirs)
            words.append(f"{method} is {how} it by paired differences ({gap:+.3f} ± {se:.3f})")
            hows.append(how)
        text = (
            f"At d = 2 the best KDE is “{best}”, {np.mean(theirs):.3f} against "
            f"{mean(errors, 2, plan.n, BEST):.3f} on the paper's grid; {'; '.join(words)}."
        )
        lines.append(Claim(text, ahead(hows, "below")))
    if len(plan.sizes) > 1:
        d, (least, *_, most) = plan.growing, plan.sizes
        spans = [
            f"{method} from {mean(errors, d, least, method):.2f} to "
            f"{mean(errors, d, most, method):.2f}"
            for method in (MEDIAN, *AUTOMATIC, best_density(errors, d, most))
        ]
        lines.append(Claim(f"As n grows from {least} to {most} at d = {d}: {'; '.join(spans)}."))
        series = [[mean(errors, d, n, m) for n in plan.sizes] for m in (MEDIAN, *AUTOMATIC)]
        falling = all(b < a for values in series for a, b in zip(values, values[1:], strict=False))
        word = "falls at every step" if falling else "does not fall at every step"
        lines.append(Claim(f"The error of kernel Bayes' rule {word} in n.", falling))
    lines.append(Claim.quote('"KBR significantly outperforms the KDE+IW approach" (no figures).'))
    return tuple(lines)


def picture(plan: Plan, errors: Errors) -> Curves:
    dimensions = tuple(map(float, plan.dimensions))
    curves = tuple(
        (m, dimensions, tuple(Figure.of(errors[d, plan.n, m]) for d in plan.dimensions))
        for m in (IMPORTANCE, MEDIAN, CHOSEN, BEST, LSCV, BEST_FINE, PRIOR)
    )
    title = "Posterior means of Gaussians"
    return Curves(title, "dimension", "squared error", curves, logx=True, logy=True)
