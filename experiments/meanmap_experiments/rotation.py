"""A rotating and an oscillating point (Fukumizu, Song and Gretton 2013, 5.3; Song et al. 2013).

The kernel filters see training sequences only; the competitors are given the true dynamics and the
true noise. The paper draws its errors (Figure 4) and prints none, so that what it says of them
stands in the place of published figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap.dynamics import AdditiveFilter, KernelBayesFilter
from meanmap_experiments.peers import bootstrap_particles, extended_kalman, unscented_kalman
from meanmap_experiments.results import Claim, Curves, Figure, Outcome, Table
from meanmap_experiments.runs import each
from meanmap_experiments.systems import (
    OSCILLATION,
    QUIET_OSCILLATION,
    QUIET_ROTATION,
    ROTATION,
    Rotation,
)

SYSTEMS = {
    "(a) rotation": ROTATION,
    "(b) oscillation": OSCILLATION,
    "(b) by the clock": Rotation(increment=0.4, swing=0.4, reading="clock"),
    "(a) without process noise": QUIET_ROTATION,
    "(b) without process noise": QUIET_OSCILLATION,
}
REWEIGHTED, SQUARED, ADDITIVE = "kernel Bayes", "kernel Bayes, squared", "additive"
EKF, UKF, NARROW, PARTICLES = "EKF", "UKF, α = 1", "UKF, α = 0.001", "particle filter"
LEARNED, GIVEN = (REWEIGHTED, SQUARED, ADDITIVE), (EKF, UKF, NARROW, PARTICLES)


@dataclass(frozen=True)
class Plan:
    """How much is done."""

    systems: tuple[str, ...] = tuple(SYSTEMS)
    sizes: tuple[int, ...] = (100, 200, 400, 800)  # training steps
    runs: int = 30
    steps: int = 200  # of a test sequence
    particles: int = 10_000
    squared: int = 100  # training steps up to which the papers' rule takes part: it is slow


FULL = Plan()
QUICK = Plan(tuple(SYSTEMS)[:2], sizes=(100, 200), runs=4, particles=2000, squared=100)


def run(
    quick: bool = False,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: bool | None = None,
    plan: Plan | None = None,
) -> Outcome:
    """Filter both systems, with training sequences of several lengths.

    Parameters
    ----------
    quick, seed, n_jobs, progress : as in `meanmap_experiments.run`
    plan : Plan or None
        How much is done, if neither the quick nor the full experiment.
    """
    plan = plan or (QUICK if quick else FULL)
    jobs = [(plan, name, i, seed) for name in plan.systems for i in range(plan.runs)]
    found = each(one_run, jobs, "rotation", n_jobs, progress)
    errors: dict[tuple[str, str, int], list[float]] = {}
    for (_, name, _, _), result in zip(jobs, found, strict=True):
        for (method, size), error in result.items():
            errors.setdefault((name, method, size), []).append(error)
    return Outcome(
        name="rotation",
        title="Rotation and oscillation: filtering with unknown dynamics",
        citation="Fukumizu, Song and Gretton (2013), section 5.3; Song, Fukumizu and Gretton "
        "(2013), Figure 8",
        settings={
            "systems": "η = 0.3 (a), η = 0.4, b = 0.4, M = 8 (b), noise 0.2 and 0.2; θ of the "
            "noisy state, or by the clock; and observation noise of variance 0.08 without process "
            "noise",
            "data": f"training sequences of {', '.join(map(str, plan.sizes))} steps, "
            f"{plan.runs} runs of {plan.steps} test steps",
            "error": "squared distance of the filtered mean to the state, averaged over steps",
            "choices": "bandwidths, regularisation and power by half-split validation on each "
            "training sequence",
            "given": f"{', '.join(GIVEN)} ({plan.particles:,} particles) know the true dynamics",
        },
        tables=tuple(table(plan, name, errors) for name in plan.systems),
        verdict=verdict(plan, errors),
        quick=quick,
        seed=seed,
        picture=picture(plan, errors),
    )


def one_run(plan: Plan, name: str, index: int, seed: int) -> dict[tuple[str, int], float]:
    """Every method on the same test sequence; size 0 for those that do not learn."""
    system = SYSTEMS[name]
    rng = np.random.default_rng((seed, list(SYSTEMS).index(name), index))
    truth, observations = system.simulate(plan.steps, rng)

    def error(means: np.ndarray) -> float:
        return float(((means - truth) ** 2).sum(axis=1).mean())

    found = {
        (EKF, 0): error(extended_kalman(system, observations)),
        (UKF, 0): error(unscented_kalman(system, observations, alpha=1.0)),
        (NARROW, 0): error(unscented_kalman(system, observations, alpha=1e-3)),
        (PARTICLES, 0): error(bootstrap_particles(system, observations, plan.particles, rng=rng)),
    }
    states, seen = system.simulate(max(plan.sizes), rng)
    for size in plan.sizes:
        for method in LEARNED:
            if method == SQUARED and size > plan.squared:
                continue
            model = filter_of(method).fit(states[:size], seen[:size])
            found[method, size] = error(model.filter(observations, beliefs=False).mean)
    return found


def filter_of(method: str) -> Any:
    """A filter that chooses its settings by itself."""
    if method == ADDITIVE:
        return AdditiveFilter(progress=False)
    if method == REWEIGHTED:
        return KernelBayesFilter(progress=False)
    return KernelBayesFilter(method="squared", progress=False)


# --- what is reported -----------------------------------------------------------------------------


def figure(errors: dict[tuple[str, str, int], list[float]], *key: Any) -> Figure | None:
    values = errors.get(key)
    return None if values is None else Figure.of(values)


def table(plan: Plan, name: str, errors: dict[tuple[str, str, int], list[float]]) -> Table:
    rows = []
    for method in (*LEARNED, *GIVEN):
        if method in LEARNED:
            cells = [figure(errors, name, method, size) for size in plan.sizes]
        else:
            cells = [figure(errors, name, method, 0), *(None for _ in plan.sizes[1:])]
        rows.append((method, *cells))
    headings = ("filter", *(f"T = {size}" for size in plan.sizes))
    return Table(f"Mean squared error, {name}", headings, tuple(rows))


def verdict(plan: Plan, errors: dict[tuple[str, str, int], list[float]]) -> tuple[Claim, ...]:
    lines = []
    for name in plan.systems:
        means = {key[1:]: float(np.mean(v)) for key, v in errors.items() if key[0] == name}
        ekf, ukf = means[EKF, 0], means[UKF, 0]
        ours = {size: means[REWEIGHTED, size] for size in plan.sizes}
        ratios = ", ".join(f"{ours[size] / ekf:.2f}" for size in plan.sizes)
        text = (
            f"{name}: kernel Bayes over EKF {ratios} at T = {', '.join(map(str, plan.sizes))}; "
            f"over UKF {ours[plan.sizes[-1]] / ukf:.2f} (α = 1) and "
            f"{ours[plan.sizes[-1]] / means[NARROW, 0]:.2f} (α = 0.001) at T = {plan.sizes[-1]}."
        )
        lines.append(Claim(text))
    quoted = (
        '"KBR has slightly worse MSE than EKF and UKF" on (a), "outperforms the nonlinear Kalman '
        'filter for T > 200" on (b).'
    )
    lines.append(Claim.quote(quoted))
    return tuple(lines)


def picture(plan: Plan, errors: dict[tuple[str, str, int], list[float]]) -> Curves:
    name = plan.systems[min(1, len(plan.systems) - 1)]
    sizes = tuple(map(float, plan.sizes))
    curves: list[tuple[str, tuple[float, ...], tuple[Figure, ...]]] = [
        (m, sizes, tuple(Figure.of(errors[name, m, size]) for size in plan.sizes))
        for m in (REWEIGHTED, ADDITIVE)
    ]
    curves += [(m, (0.0,), (Figure.of(errors[name, m, 0]),)) for m in (EKF, UKF, PARTICLES)]
    return Curves(name, "training steps", "mean squared error", tuple(curves), logx=True)
