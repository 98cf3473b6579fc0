"""Causal functions beside econml and doubleml, on published designs and on one like IHDP.

    python benchmarks/causal.py sigmoid 1000 40     # kernel IV's sigmoid design: rows, runs
    python benchmarks/causal.py demand 1000 40      # the demand design of Hartford et al., ρ = .5
    python benchmarks/causal.py dose 500 40         # Colangelo and Lee, 100 covariates
    python benchmarks/causal.py binary 747 40       # effects on rows like those of IHDP
    python benchmarks/causal.py scale 100000        # one fit of a dose response, and one by IV

`dose` and `binary` run econml and doubleml too, in an environment that has them (`--alone` leaves
them out). Settings are the defaults. Run r draws its data with seed r. Errors are mean squared
errors of the curve for `sigmoid` and `demand` (medians over runs, as in their paper), and roots of
mean squared errors for the others; `coverage` is that of 95% intervals at the points of the grid.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable

import numpy as np
from scipy.stats import norm

from meanmap.causal import DoseResponse, InstrumentalRegression

Found = dict[str, tuple[float, float]]  # squared error and coverage, by method


# --- designs --------------------------------------------------------------------------------------


def jump(x: np.ndarray) -> np.ndarray:
    return np.log(abs(16 * x - 8) + 1) * np.sign(x - 0.5)


def sigmoid_design(n: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Treatment, outcome and instrument of Chen and Christensen (2018)."""
    e, V = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], size=n).T
    W = rng.normal(size=n)
    X = norm.cdf((W + V) / 2**0.5)
    return X, jump(X) + e, norm.cdf(W)


def season(t: np.ndarray) -> np.ndarray:
    return 2 * ((t - 5) ** 4 / 600 + np.exp(-4 * (t - 5) ** 2) + t / 10 - 2)


def demand(p: np.ndarray, t: np.ndarray, s: np.ndarray) -> np.ndarray:
    return 100 + (10 + p) * s * season(t) - 2 * p


def demand_design(n: int, rng: np.random.Generator, rho: float = 0.5) -> tuple[np.ndarray, ...]:
    """Price, sales, a cost that moves prices, (time, customers) of Hartford et al. (2017)."""
    S, T = rng.integers(1, 8, n).astype(float), rng.uniform(0, 10, n)
    C, V = rng.normal(size=(2, n))
    P = 25 + (C + 3) * season(T) + V
    e = rho * V + np.sqrt(1 - rho**2) * rng.normal(size=n)
    return P, demand(P, T, S) + e, C, np.column_stack([T, S])


def dose_design(n: int, rng: np.random.Generator, d: int = 100) -> tuple[np.ndarray, ...]:
    """Colangelo and Lee (2020): the average outcome at t is 1.2 t + t²."""
    S = np.eye(d) + 0.5 * (np.eye(d, k=1) + np.eye(d, k=-1))
    X = rng.normal(size=(n, d)) @ np.linalg.cholesky(S).T
    index = X @ (1 / np.arange(1, d + 1) ** 2)
    T = norm.cdf(3 * index) + 0.75 * rng.normal(size=n) - 0.5
    return T, 1.2 * T + 1.2 * index + T**2 + T * X[:, 0] + rng.normal(size=n), X


def binary_design(n: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """6 numbers and 19 indicators, few treated, a curved response and an effect that varies."""
    root = np.linalg.cholesky(0.3 + 0.7 * np.eye(6))
    kinds = rng.random((n, 19)) < rng.uniform(0.1, 0.6, 19)
    X = np.hstack([rng.normal(size=(n, 6)) @ root.T, kinds])
    logit = -1.8 + 0.6 * X[:, 0] - 0.5 * X[:, 1] + 0.8 * X[:, 7]
    T = (rng.random(n) < 1 / (1 + np.exp(-logit))).astype(float)
    beta = rng.choice([0, 0.1, 0.2, 0.3, 0.4], p=[0.6, 0.1, 0.1, 0.1, 0.1], size=25)
    base, gain = np.exp((X + 0.5) @ beta / 2), X @ beta
    effect = gain - base
    effect = effect - effect.mean() + 4
    return T, base + T * effect + rng.normal(size=n), X, effect


# --- one run each ---------------------------------------------------------------------------------


def score(mean: np.ndarray, ends: tuple | None, truth: np.ndarray) -> tuple[float, float]:
    error = float(((mean - truth) ** 2).mean())
    if ends is None:
        return error, np.nan
    return error, float(((ends[0] <= truth) & (truth <= ends[1])).mean())


def run_sigmoid(n: int, rng: np.random.Generator, peers: bool) -> Found:
    X, Y, Z = sigmoid_design(n, rng)
    grid = np.linspace(0, 1, 1000)
    curve = InstrumentalRegression(random_state=0).fit(X, Y, Z).effect(grid)
    return {"InstrumentalRegression": score(curve.mean, curve.interval(), jump(grid))}


def run_demand(n: int, rng: np.random.Generator, peers: bool) -> Found:
    P, Y, Z, X = demand_design(n, rng)
    axes = np.linspace(10, 25, 20), np.linspace(0, 10, 20), np.arange(1.0, 8)
    p, t, s = (axis.ravel() for axis in np.meshgrid(*axes))
    model = InstrumentalRegression(random_state=0).fit(P, Y, Z, X)
    curve = model.effect(p, np.column_stack([t, s]))
    return {"InstrumentalRegression": score(curve.mean, curve.interval(), demand(p, t, s))}


def run_dose(n: int, rng: np.random.Generator, peers: bool) -> Found:
    T, Y, X = dose_design(n, rng)
    grid = np.linspace(-1, 1, 21)
    truth = 1.2 * grid + grid**2
    curve = DoseResponse(random_state=0).fit(T, Y, X).effect(grid)
    found = {"DoseResponse": score(curve.mean, curve.interval(), truth)}
    return found | (dose_peers(T, Y, X, grid, truth) if peers else {})


def dose_peers(
    T: np.ndarray, Y: np.ndarray, X: np.ndarray, grid: np.ndarray, truth: np.ndarray
) -> Found:
    """A quadratic curve by econml's linear DML and causal forest, and bins by doubleml.

    econml gives effects, not levels: these are placed at the mean outcome of the sample. doubleml's
    potential outcomes are those of five bins of the treatment, interpolated between their means.
    """
    from doubleml import DoubleMLAPOS, DoubleMLData
    from econml.dml import CausalForestDML, LinearDML
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
    from sklearn.linear_model import LassoCV, MultiTaskLassoCV
    from sklearn.preprocessing import PolynomialFeatures

    found = {}
    square = PolynomialFeatures(2, include_bias=False)
    options = {"treatment_featurizer": square, "random_state": 0}
    lasso = {"model_y": LassoCV(), "model_t": MultiTaskLassoCV()}
    for name, model in (
        ("econml LinearDML, t and t²", LinearDML(**lasso, **options)),
        ("econml CausalForestDML, t and t²", CausalForestDML(**lasso, **options)),
    ):
        linear = name.startswith("econml Linear")
        model.fit(Y, T[:, None], X=None if linear else X, W=X if linear else None)
        rows = None if linear else X
        slope, bend = np.mean(model.const_marginal_effect(rows), axis=0).ravel()
        level = Y.mean() - np.mean(slope * T + bend * T**2)
        curve = level + slope * grid + bend * grid**2
        found[name] = score(curve, None, truth)
    edges = np.quantile(T, [0.2, 0.4, 0.6, 0.8])
    bins = np.searchsorted(edges, T)
    data = DoubleMLData.from_arrays(X, Y, bins.astype(float))
    forests = RandomForestRegressor(random_state=0), RandomForestClassifier(random_state=0)
    apos = DoubleMLAPOS(data, *forests, treatment_levels=[0, 1, 2, 3, 4]).fit()
    middle = np.array([T[bins == k].mean() for k in range(5)])
    curve = np.interp(grid, middle, np.ravel(apos.coef))
    found["doubleml APOS, five bins"] = score(curve, None, truth)
    return found


def run_binary(n: int, rng: np.random.Generator, peers: bool) -> Found:
    T, Y, X, effect = binary_design(n, rng)
    truth = np.array([effect.mean()])
    model = DoseResponse(random_state=0).fit(T, Y, X)
    curve = model.effect([0.0, 1.0]).difference()
    low, high = curve.interval()
    found = {"DoseResponse, average": score(curve.mean[1:], (low[1:], high[1:]), truth)}
    rows = model.row_effects(1.0, 0.0)
    found["DoseResponse, each row"] = score(rows.mean, rows.interval(), effect)
    return found | (binary_peers(T, Y, X, effect, truth) if peers else {})


def binary_peers(
    T: np.ndarray, Y: np.ndarray, X: np.ndarray, effect: np.ndarray, truth: np.ndarray
) -> Found:
    """econml's causal forest and doubly robust learner, doubleml's interactive model."""
    from doubleml import DoubleMLData, DoubleMLIRM
    from econml.dml import CausalForestDML
    from econml.dr import DRLearner
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    found = {}
    forest = CausalForestDML(discrete_treatment=True, random_state=0)
    for name, model in (
        ("econml CausalForestDML", forest),
        ("econml DRLearner", DRLearner(random_state=0)),
    ):
        model.fit(Y, T, X=X)
        rows = np.ravel(model.effect(X))
        average = np.array([rows.mean()])
        ends = None
        if model is forest:
            ends = tuple(np.ravel(end) for end in model.ate_interval(X, alpha=0.05))
        found[f"{name}, average"] = score(average, ends, truth)
        found[f"{name}, each row"] = score(rows, None, effect)
    data = DoubleMLData.from_arrays(X, Y, T)
    forests = RandomForestRegressor(random_state=0), RandomForestClassifier(random_state=0)
    irm = DoubleMLIRM(data, *forests).fit()
    ends = tuple(np.ravel(irm.confint().to_numpy()).reshape(2, 1))
    found["doubleml IRM, average"] = score(np.ravel(irm.coef), ends, truth)
    return found


def run_scale(n: int) -> None:
    """Seconds for n rows with five covariates, and the error of the curve."""
    rng = np.random.default_rng(0)
    T, Y, X = dose_design(n, rng, 5)
    grid = np.linspace(-1, 1, 21)
    start, busy = time.perf_counter(), time.process_time()
    curve = DoseResponse(random_state=0).fit(T, Y, X).effect(grid)
    took, busy = time.perf_counter() - start, time.process_time() - busy
    error = float(((curve.mean - 1.2 * grid - grid**2) ** 2).mean()) ** 0.5
    print(f"dose response, {n:,} rows: {took:.1f} s, {busy:.1f} s of one core, error {error:.4f}")
    P, S, Z, X = demand_design(n, rng)
    start, busy = time.perf_counter(), time.process_time()
    InstrumentalRegression(random_state=0).fit(P, S, Z, X).effect(np.linspace(10, 25, 20))
    took, busy = time.perf_counter() - start, time.process_time() - busy
    print(f"by an instrument, {n:,} rows: {took:.1f} s, {busy:.1f} s of one core")


DESIGNS: dict[str, Callable[[int, np.random.Generator, bool], Found]] = {
    "sigmoid": run_sigmoid,
    "demand": run_demand,
    "dose": run_dose,
    "binary": run_binary,
}


def main() -> None:
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    design, n = words[0], int(words[1])
    if design == "scale":
        run_scale(n)
        return
    warnings.simplefilter("ignore")
    runs, peers = int(words[2]), "--alone" not in sys.argv
    start, found = time.perf_counter(), []
    for r in range(runs):
        found.append(DESIGNS[design](n, np.random.default_rng(r), peers))
        if (r + 1) % 5 == 0:
            print(f"  {r + 1} runs, {time.perf_counter() - start:.0f} s", file=sys.stderr)
    print(f"{design}, n = {n:,}, {runs} runs")
    for name in found[0]:
        errors, coverage = np.array([run[name] for run in found]).T
        print(
            f"  {name:35s} median MSE {np.median(errors):9.4f}  root of mean MSE "
            f"{errors.mean() ** 0.5:8.4f}  coverage {coverage.mean():.3f}"
        )


if __name__ == "__main__":
    main()
