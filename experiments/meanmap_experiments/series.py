"""Two measured series forecast by kernel filters and by tuned autoregressions.

Yearly sunspot numbers, 1700 to 2008: the classical nonlinear cycle, and the division into 1700 to
1920 for learning and the years after for testing that much of its literature uses. Monthly sea
surface temperatures of the eastern Pacific (El Niño), 1950 to 2010: longer, seasonal, irregular.
Both come with statsmodels, and were chosen before any result was seen.

The kernel filters see the last d values (a delay vector) at each step. Either the state is the
delay vector itself, and forecasts are made by the transition, step by step ("iterated"); or the
state consists of the values at the horizons, still unobserved, and the filtered mean is the
forecast ("direct").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from meanmap.dynamics import AdditiveFilter, KernelBayesFilter
from meanmap.kernels import Gaussian
from meanmap.spaces import PivotedCholesky
from meanmap_experiments.results import Claim, Curves, Figure, Outcome, Table, ahead
from meanmap_experiments.runs import each

BAYES, DIRECT = "kernel Bayes, iterated", "kernel Bayes, direct"
ADDITIVE = "additive, iterated"
KERNELS = (BAYES, DIRECT, ADDITIVE)
AIC, VALIDATED = "autoregression, order by AIC", "autoregression, order by validation"
PERSISTENCE, CYCLE, LEVEL = "the last value", "one cycle ago", "the mean"
METHODS = (*KERNELS, AIC, VALIDATED, PERSISTENCE, CYCLE, LEVEL)
TUNED = (AIC, VALIDATED)
BASIS = PivotedCholesky(tol=1e-8, max_rank=150)


@dataclass(frozen=True)
class Series:
    """Values with their division into a part for learning and a part for testing."""

    name: str
    unit: str
    values: np.ndarray
    learning: int  # how many values are for learning
    cycle: int  # steps in a cycle; also of a block that standard errors are computed from
    horizons: tuple[int, ...]
    words: str

    @property
    def known(self) -> np.ndarray:
        """The part for learning."""
        return self.values[: self.learning]


@dataclass(frozen=True)
class Plan:
    """Which candidates are tried."""

    delays: tuple[int, ...] = (2, 3, 4, 6, 9, 12)
    bandwidths: tuple[float, ...] = (1.0, 2.0, 4.0)
    regularizations: tuple[float, ...] = (1e-5, 1e-4, 1e-3)
    posteriors: tuple[float, ...] = (1e-4, 1e-3)
    powers: tuple[float, ...] = (0.0, 0.5, 1.0)
    orders: int = 24  # the longest autoregression


FULL = Plan()
QUICK = Plan(
    delays=(3, 9),
    bandwidths=(1.0, 2.0),
    regularizations=(1e-4,),
    posteriors=(1e-3,),
    powers=(0.0, 1.0),
)


def run(
    quick: bool = False,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: bool | None = None,
    plan: Plan | None = None,
) -> Outcome:
    """Forecast sunspots and sea temperatures. Nothing here is random: `seed` changes nothing."""
    plan = plan or (QUICK if quick else FULL)
    everything = (sunspots(), temperatures())
    jobs = [(plan, series, method) for series in everything for method in METHODS]
    found = each(assessed, jobs, "series", n_jobs, progress)
    errors = {
        (series.name, method): e for (_, series, method), (e, _) in zip(jobs, found, strict=True)
    }
    words = {
        (series.name, method): w for (_, series, method), (_, w) in zip(jobs, found, strict=True)
    }
    return Outcome(
        name="series",
        title="Measured series: sunspots and the temperature of the sea",
        citation="data of the statsmodels package; no paper's experiment",
        settings={
            **{series.name: series.words for series in everything},
            "forecasts": "rolling, from every step of the testing part; models learned once",
            "choices": "all settings by the squared error of the same forecasts on the last third "
            "of the learning part, then learned again from all of it",
            "errors": "root mean squared error; standard errors from blocks of one cycle",
        },
        tables=tuple(
            table
            for series in everything
            for table in (error_table(series, errors), choice_table(series, words))
        ),
        verdict=tuple(line for series in everything for line in verdict(series, errors)),
        quick=quick,
        seed=seed,
        picture=picture(everything[0], errors),
    )


# --- data -----------------------------------------------------------------------------------------


def datasets() -> Any:
    try:
        from statsmodels import datasets as found
    except ImportError as error:
        raise ImportError("the series come with statsmodels: pip install statsmodels") from error
    return found


def sunspots() -> Series:
    """Yearly sunspot numbers."""
    table = datasets().sunspots.load_pandas().data
    years = table["YEAR"].to_numpy(dtype=float)
    learning = int((years <= 1920).sum())
    words = (
        f"{len(years)} yearly sunspot numbers, {years[0]:.0f} to {years[-1]:.0f}; learning up to "
        "1920"
    )
    values = table["SUNACTIVITY"].to_numpy(dtype=float)
    return Series("sunspots", "spots", values, learning, 11, (1, 2, 3, 5), words)


def temperatures() -> Series:
    """Monthly sea surface temperatures as deviations from the learning part's monthly means."""
    table = datasets().elnino.load_pandas().data
    years = table["YEAR"].to_numpy(dtype=float)
    months = table.drop(columns="YEAR").to_numpy(dtype=float)
    early = years < 1990
    deviations = months - months[early].mean(axis=0)
    words = (
        f"{months.size} monthly sea surface temperatures (El Niño), {years[0]:.0f} to "
        f"{years[-1]:.0f}, less the month's mean; learning up to 1989"
    )
    learning = 12 * int(early.sum())
    return Series("temperatures", "°C", deviations.ravel(), learning, 12, (1, 3, 6, 12), words)


# --- forecasting ----------------------------------------------------------------------------------

#: From all values, the number of them to learn from, and the horizons: forecasts
#: (origins, horizons) made at the values learning - 1, learning, …
Forecaster = Callable[[np.ndarray, int, tuple[int, ...]], np.ndarray]


def assessed(plan: Plan, series: Series, method: str) -> tuple[np.ndarray, str]:
    """Squared errors (origins, horizons) on the testing part, and the choice in words."""
    choices = candidates(plan, series, method)
    best = list(choices)[0]
    if len(choices) > 1:
        part = 2 * series.learning // 3
        losses = {}
        for words, forecaster in choices.items():
            loss = float(squared_errors(forecaster, series.known, part, series.horizons).mean())
            losses[words] = loss if np.isfinite(loss) else np.inf
        best = min(losses, key=lambda words: losses[words])
    return squared_errors(choices[best], series.values, series.learning, series.horizons), best


def squared_errors(
    forecaster: Forecaster, values: np.ndarray, learning: int, horizons: tuple[int, ...]
) -> np.ndarray:
    """Of forecasts from every origin that all horizons can be checked for."""
    forecasts = forecaster(values, learning, horizons)
    origins = np.arange(learning - 1, len(values) - max(horizons))
    truth = values[origins[:, None] + np.array(horizons)]
    return (forecasts[: len(origins)] - truth) ** 2


def candidates(plan: Plan, series: Series, method: str) -> dict[str, Forecaster]:
    """The forecasters to choose from, by what they are in words."""
    if method == PERSISTENCE:
        return {"": lambda x, n, h: np.tile(x[n - 1 :, None], len(h))}
    if method == LEVEL:
        return {"": lambda x, n, h: np.full((len(x) - n + 1, len(h)), x[:n].mean())}
    if method == CYCLE:
        return {"": cycle_ago(series.cycle)}
    if method == AIC:
        from statsmodels.tsa.ar_model import ar_select_order

        order = max(ar_select_order(series.known, plan.orders, ic="aic").ar_lags or [1])
        return {f"order {order}": autoregression(order)}
    if method == VALIDATED:
        return {f"order {p}": autoregression(p) for p in range(1, plan.orders + 1)}
    found: dict[str, Forecaster] = {}
    for d, factor, epsilon in product(plan.delays, plan.bandwidths, plan.regularizations):
        words = f"{d} values, {factor:g} × median, ε = {epsilon:g}"
        if method == ADDITIVE:
            found[words] = iterated(d, additive(factor, epsilon))
            continue
        for delta, power in product(plan.posteriors, plan.powers):
            model = bayes(factor, epsilon, delta, power)
            make = iterated if method == BAYES else direct
            found[f"{words}, δ = {delta:g}, power {power:g}"] = make(d, model)
    return found


def cycle_ago(cycle: int) -> Forecaster:
    def forecast(x: np.ndarray, learning: int, horizons: tuple[int, ...]) -> np.ndarray:
        origins = np.arange(learning - 1, len(x))
        return x[origins[:, None] + (np.array(horizons) - 1) % cycle + 1 - cycle]

    return forecast


def autoregression(order: int) -> Forecaster:
    """statsmodels' AutoReg with a constant."""

    def forecast(x: np.ndarray, learning: int, horizons: tuple[int, ...]) -> np.ndarray:
        from statsmodels.tsa.ar_model import AutoReg

        constant, *a = AutoReg(x[:learning], order).fit().params
        origins = np.arange(learning - 1, len(x))
        path = x[origins[:, None] - np.arange(order)]  # the newest first
        for _ in range(max(horizons)):
            following = constant + path[:, :order] @ np.asarray(a)
            path = np.concatenate([following[:, None], path], axis=1)
        return path[:, max(horizons) - np.array(horizons)]

    return forecast


def additive(factor: float, epsilon: float) -> Any:
    kernel = Gaussian(f"{factor}*median")
    return AdditiveFilter(kernel, kernel, regularization=epsilon, basis=BASIS, validation=None)


def bayes(factor: float, epsilon: float, delta: float, power: float) -> Any:
    kernel = Gaussian(f"{factor}*median")
    return KernelBayesFilter(
        kernel,
        kernel,
        regularization=epsilon,
        posterior_regularization=delta,
        power=power,
        basis=BASIS,
        validation=None,
    )


def delayed(x: np.ndarray, d: int) -> np.ndarray:
    """The last d values at each step from d - 1 on, the newest first."""
    return np.lib.stride_tricks.sliding_window_view(x, d)[:, ::-1].copy()


def iterated(d: int, model: Any) -> Forecaster:
    """State and observation are the delay vector; forecasts by the transition."""

    def forecast(x: np.ndarray, learning: int, horizons: tuple[int, ...]) -> np.ndarray:
        seen = delayed(x, d)
        first = learning - d  # the row of the first origin
        model.fit(seen[: first + 1], seen[: first + 1])
        tracks = [model.predict(seen, h, origin="every").mean for h in horizons]
        return np.stack([track[first:, 0] for track in tracks], axis=1)

    return forecast


def direct(d: int, model: Any) -> Forecaster:
    """The state is what comes next, the observation the delay vector; a forecast is the mean."""

    def forecast(x: np.ndarray, learning: int, horizons: tuple[int, ...]) -> np.ndarray:
        seen = delayed(x, d)
        first = learning - d
        known = first + 1 - max(horizons)  # rows whose next values all lie in the learning part
        later = x[d - 1 + np.arange(known)[:, None] + np.array(horizons)]
        model.fit(later, seen[:known])
        return model.filter(seen, beliefs=False).mean[first:]

    return forecast


# --- what is reported -----------------------------------------------------------------------------


def blocks(series: Series, errors: np.ndarray) -> np.ndarray:
    """Mean squared errors of blocks of one cycle; what is left at the end joins the last."""
    count = max(1, len(errors) // series.cycle)
    edges = [*range(0, count * series.cycle, series.cycle), len(errors)]
    return np.array([errors[a:b].mean(axis=0) for a, b in zip(edges[:-1], edges[1:], strict=True)])


def rooted(values: np.ndarray) -> Figure:
    """The root of a mean squared error; its standard error by the delta method."""
    squared = Figure.of(values)
    root = squared.mean**0.5
    return Figure(root, squared.standard_error / (2 * root), squared.runs)


def error_table(series: Series, errors: dict[tuple[str, str], np.ndarray]) -> Table:
    rows: list[tuple[Any, ...]] = []
    for method in METHODS:
        parts = blocks(series, errors[series.name, method])
        rows.append((method, *map(rooted, parts.T)))
    headings = ("method", *(f"{h} ahead" for h in series.horizons))
    return Table(f"Error of {series.name} ({series.unit})", headings, tuple(rows))


def choice_table(series: Series, words: dict[tuple[str, str], str]) -> Table:
    rows = tuple((m, words[series.name, m]) for m in METHODS if words[series.name, m])
    return Table(f"Chosen for {series.name}", ("method", "settings"), rows)


def verdict(series: Series, errors: dict[tuple[str, str], np.ndarray]) -> list[Claim]:
    """Each kernel filter against the autoregression that is best on the testing part."""

    def best_at(at: int) -> str:
        return min(TUNED, key=lambda method: float(errors[series.name, method][:, at].mean()))

    lines = []
    for method in KERNELS:
        said, hows = [], []
        for at, h in enumerate(series.horizons):
            rival = best_at(at)
            ours, theirs = errors[series.name, method][:, at], errors[series.name, rival][:, at]
            gap = Figure.of(blocks(series, (ours - theirs)[:, None]))
            how = "level with"  # by two standard errors of the paired difference
            if abs(gap.mean) > 2 * gap.standard_error:
                how = "below" if gap.mean < 0 else "above"
            hows.append(how)
            word = {"below": "better", "above": "worse"}.get(how, "not told apart")
            said.append(f"{np.sqrt(ours.mean() / theirs.mean()):.2f} at {h} ahead ({word})")
        text = f"{series.name}, {method}: error over the better autoregression's {', '.join(said)}."
        lines.append(Claim(text, ahead(hows, "below")))
    return lines


def picture(series: Series, errors: dict[tuple[str, str], np.ndarray]) -> Curves:
    curves = []
    for method in (*KERNELS, AIC, PERSISTENCE, LEVEL):
        figures = tuple(map(rooted, blocks(series, errors[series.name, method]).T))
        curves.append((method, tuple(map(float, series.horizons)), figures))
    return Curves(series.name, "steps ahead", f"error ({series.unit})", tuple(curves))
