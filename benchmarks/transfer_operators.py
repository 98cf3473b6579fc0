"""`TransferOperator` beside kooplearn's reduced-rank regression, on processes of known spectrum.

    python benchmarks/transfer_operators.py peers [--systems ou prinz wells logistic] [--runs 5]
    python benchmarks/transfer_operators.py runs [--runs 100] [--seconds 240]
    python benchmarks/transfer_operators.py long [--steps 1000000]

in an environment with meanmap and, for `peers`, kooplearn. The truth is computed on a grid from the
same discrete process that is simulated. Ours is `TransferOperator().fit(X)`. The peer is
`kooplearn.kernel.KernelRidge` with a Gaussian kernel on standardised columns, over a grid of
bandwidths, regularisations and ranks, fitted to three quarters of the record, judged on the rest
by its `score` (R² of the next state) and by its `risk`, and fitted again to all of it; beside that
the setting that is best in hindsight, separately for eigenvalues and for eigenfunctions.

The error of eigenvalues is the mean |λ̂ - λ| of the leading ones without the constant's, that of
eigenfunctions the mean sine of the angle to the true ones (to their span where eigenvalues are
equal) in L² of the stationary distribution. `runs` counts how often an estimate beyond those of the
second eigenvalue is larger than it ("spurious"), and how often the 95% bound covers it.
"""

from __future__ import annotations

import argparse
import math
import resource
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from meanmap.dynamics import TransferOperator

BANDWIDTHS, ALPHAS, RANKS = (0.2, 0.4, 0.8, 1.6), (1e-2, 1e-4, 1e-6), (4, 8)


@dataclass(frozen=True)
class Process:
    """A process with its leading eigenvalues, and eigenfunctions on a weighted grid."""

    simulate: Callable[[int, np.random.Generator], np.ndarray]
    values: np.ndarray
    functions: np.ndarray
    grid: np.ndarray
    weights: np.ndarray
    multiplicity: int  # of the second eigenvalue, by magnitude


def spectrum_on_grid(transitions: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Eigenvalues, eigenfunctions and stationary distribution of a transition matrix."""
    P = transitions / transitions.sum(axis=1, keepdims=True)
    values, functions = np.linalg.eig(P)
    order = np.argsort(-abs(values))[:n]
    level, left = np.linalg.eig(P.T)
    stationary = abs(left[:, np.argmax(level.real)].real)
    return values[order], functions[:, order], stationary / stationary.sum()


def langevin_steps(
    force: Callable[[np.ndarray], np.ndarray], grid: np.ndarray, dt: float, noise: float, every: int
) -> np.ndarray:
    """The transition matrix of an Euler scheme after so many steps."""
    P = np.exp(-0.5 * ((grid[None] - (grid + dt * force(grid))[:, None]) / noise) ** 2)
    return np.linalg.matrix_power(P / P.sum(axis=1, keepdims=True), every)


def simulate_langevin(
    n: int,
    rng: np.random.Generator,
    force: Callable[[np.ndarray], np.ndarray],
    start: np.ndarray,
    dt: float,
    noise: float,
    every: int,
) -> np.ndarray:
    """Every so many steps of an Euler scheme, after 500 steps."""
    x, seen = start, np.empty((n, len(start)))
    steps = n * every + 500
    for t in range(steps):
        if t % 10_000 == 0:
            draws = noise * rng.normal(size=(10_000, len(start)))
        x = x + dt * force(x) + draws[t % 10_000]
        if t >= 500 and (t - 500) % every == 0:
            seen[(t - 500) // every] = x
    return seen


def prinz_force(x: np.ndarray) -> np.ndarray:
    return (
        128 * np.exp(-80 * (x - 0.5) ** 2) * (x - 0.5)
        + 512 * np.exp(-80 * x**2) * x
        - 32 * x**7
        + 160 * np.exp(-40 * (x + 0.5) ** 2) * (x + 0.5)
    )


def well_force(x: np.ndarray) -> np.ndarray:
    return -4 * x * (x * x - 1)


def ornstein_uhlenbeck() -> Process:
    """Observed every 0.2 time constants: eigenvalues exp(-0.2 k)."""
    a = math.exp(-0.2)

    def simulate(n: int, rng: np.random.Generator) -> np.ndarray:
        noise, x = math.sqrt(1 - a * a) * rng.normal(size=n), np.empty(n)
        x[0] = rng.normal()
        for t in range(1, n):
            x[t] = a * x[t - 1] + noise[t]
        return x[:, None]

    grid = np.linspace(-5, 5, 801)
    hermite = [np.ones_like(grid), grid, grid**2 - 1, grid**3 - 3 * grid]
    functions = np.stack([h / math.sqrt(math.factorial(k)) for k, h in enumerate(hermite)], axis=1)
    density = np.exp(-(grid**2) / 2)
    return Process(
        simulate, a ** np.arange(4), functions, grid[:, None], density / density.sum(), 1
    )


def prinz() -> Process:
    """Diffusion in the four-well potential of Prinz et al. (2011), kT = 1, lag 0.05."""
    dt, every = 1e-3, 50
    noise, grid = math.sqrt(2 * dt), np.linspace(-1.5, 1.5, 1001)
    values, functions, weights = spectrum_on_grid(
        langevin_steps(prinz_force, grid, dt, noise, every), 4
    )

    def simulate(n: int, rng: np.random.Generator) -> np.ndarray:
        start = rng.uniform(-0.8, 0.8, size=1)
        return simulate_langevin(n, rng, prinz_force, start, dt, noise, every)

    return Process(simulate, values.real, functions.real, grid[:, None], weights, 1)


def wells() -> Process:
    """Diffusion in the plane among four wells, (x² - 1)² + (y² - 1)², kT = 0.6, lag 0.5."""
    dt, every = 0.01, 50
    noise, line = math.sqrt(2 * 0.6 * dt), np.linspace(-2.4, 2.4, 121)
    values, functions, weights = spectrum_on_grid(
        langevin_steps(well_force, line, dt, noise, every), 2
    )
    one, slow = functions.real.T
    pairs = [(one, one), (slow, one), (one, slow), (slow, slow)]
    second = values[1].real

    def simulate(n: int, rng: np.random.Generator) -> np.ndarray:
        start = rng.choice([-1.0, 1.0], size=2)
        return simulate_langevin(n, rng, well_force, start, dt, noise, every)

    return Process(
        simulate,
        np.array([1.0, second, second, second**2]),
        np.stack([np.kron(a, b) for a, b in pairs], axis=1),
        np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2),
        np.kron(weights, weights),
        2,
    )


def logistic() -> Process:
    """4x(1 - x) plus noise of density cos²⁰(πξ), modulo 1 (Ostruszka et al. 2000)."""
    grid = (np.arange(800) + 0.5) / 800
    gap = grid[None] - 4 * grid[:, None] * (1 - grid[:, None])
    values, functions, weights = spectrum_on_grid(np.cos(np.pi * gap) ** 20, 3)

    def simulate(n: int, rng: np.random.Generator) -> np.ndarray:
        turn = np.arcsin(np.sqrt(rng.beta(0.5, 10.5, size=n + 50))) / np.pi
        noise, x, seen = turn * rng.choice([-1, 1], size=n + 50), rng.uniform(), np.empty(n + 50)
        for t in range(n + 50):
            seen[t] = x = (4 * x * (1 - x) + noise[t]) % 1.0
        return seen[50:, None]

    return Process(simulate, values, functions, grid[:, None], weights, 2)


PROCESSES = {"ou": ornstein_uhlenbeck, "prinz": prinz, "wells": wells, "logistic": logistic}


def errors(values: np.ndarray, functions: np.ndarray, truth: Process) -> tuple[float, float]:
    """Of eigenvalues and of eigenfunctions, both largest first with the constant."""
    m = len(truth.values)
    short = m - len(values)
    if short > 0:  # a model with fewer eigenvalues takes the others for zero
        values = np.concatenate([values, np.zeros(short)])
        functions = np.hstack([functions, np.ones((len(functions), short))])
    values, functions = values[:m], functions[:, :m]
    if np.iscomplexobj(truth.values):
        apart = np.mean([abs(values[1:] - value).min() for value in truth.values[1:]])
    else:
        apart = np.mean(abs(np.sort(abs(values[1:])) - np.sort(abs(truth.values[1:]))))
    root, sines, i = np.sqrt(truth.weights)[:, None], [], 1
    while i < m:
        equal = abs(abs(truth.values) - abs(truth.values[i])) < 1e-6
        bases = [np.linalg.qr(part[:, equal] * root)[0] for part in (functions, truth.functions)]
        cosines = np.linalg.svd(bases[0].conj().T @ bases[1])[1]
        sines += list(np.sqrt(np.maximum(1 - cosines**2, 0)))
        i += int(equal[i:].sum())
    return float(apart), float(np.mean(sines))


def peer_errors(x: np.ndarray, truth: Process) -> dict[str, tuple[float, float]]:
    """Errors of kooplearn by its score, by its risk, and in hindsight."""
    from kooplearn.kernel import KernelRidge

    unit = x.std(axis=0)
    z, grid, cut = x / unit, truth.grid / unit, len(x) * 3 // 4
    rows = []
    for width, alpha, rank in product(BANDWIDTHS, ALPHAS, RANKS):
        make = partial(
            KernelRidge, rank, kernel="rbf", gamma=0.5 / width**2, alpha=alpha, random_state=0
        )
        part = make().fit(z[:cut])
        values, functions = make().fit(z).eig(eval_right_on=grid)
        order = np.argsort(-abs(values))
        found = errors(values[order], functions[:, order], truth)
        rows.append((part.score(z[cut:]), -part.risk(z[cut:]), found))
    return {
        "kooplearn by score": max(rows, key=lambda row: row[0])[2],
        "kooplearn by risk": max(rows, key=lambda row: row[1])[2],
        "kooplearn in hindsight": (
            min(row[2][0] for row in rows),
            min(row[2][1] for row in rows),
        ),
    }


def compare(systems: list[str], n: int, runs: int) -> None:
    for name in systems:
        truth = PROCESSES[name]()
        table: dict[str, list[tuple[float, float]]] = {}
        seconds = np.zeros(2)
        for run in range(runs):
            x = truth.simulate(n, np.random.default_rng([run, n]))
            start = time.perf_counter()
            model = TransferOperator().fit(x)
            seconds[0] += time.perf_counter() - start
            ours = errors(model.eigenvalues_, model.eigenfunctions(truth.grid), truth)
            start = time.perf_counter()
            found = {"meanmap, default": ours, **peer_errors(x, truth)}
            seconds[1] += time.perf_counter() - start
            for method, pair in found.items():
                table.setdefault(method, []).append(pair)
                print(f"run {run}: {method} {pair[0]:.3f} {pair[1]:.3f}", flush=True)
        for method, pairs in table.items():
            value, function = np.mean(pairs, axis=0)
            print(f"| {name}, {n} | {method} | {value:.3f} | {function:.3f} |", flush=True)
        print(f"seconds a run: {seconds[0] / runs:.1f}, peer's grid {seconds[1] / runs:.1f}")


def repeat(systems: list[str], n: int, runs: int, seconds: float) -> None:
    for name in systems:
        start = time.perf_counter()
        truth, spurious, covered, found = PROCESSES[name](), 0, 0, []
        for run in range(runs):
            if time.perf_counter() - start > seconds:
                break
            x = truth.simulate(n, np.random.default_rng([run, n]))
            model = TransferOperator().fit(x)
            second, beyond = abs(truth.values[1]), 1 + truth.multiplicity
            values = abs(model.eigenvalues_)
            spurious += len(values) > beyond and bool(values[beyond] > second)
            gap = abs(model.eigenvalues_[1:beyond] - truth.values[1]).min()
            covered += bool(gap <= model.bounds()[1])
            found.append(errors(model.eigenvalues_, model.eigenfunctions(truth.grid), truth))
        value, function = np.mean(found, axis=0)
        print(
            f"| {name} | {n} | {len(found)} | {spurious} | {covered / len(found):.2f} "
            f"| {value:.3f} | {function:.3f} |",
            flush=True,
        )


def long_record(steps: int) -> None:
    truth = ornstein_uhlenbeck()
    x = truth.simulate(steps, np.random.default_rng(0))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    model = TransferOperator().fit(x)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    value, function = errors(model.eigenvalues_, model.eigenfunctions(truth.grid), truth)
    print(
        f"{steps} steps, rank of the coordinates {model.space_.rank_}: {seconds:.1f} s, peak "
        f"{peak / 1024:.0f} MB ({before / 1024:.0f} MB before), errors {value:.4f} {function:.4f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["peers", "runs", "long"])
    parser.add_argument("--systems", nargs="+", default=list(PROCESSES), choices=list(PROCESSES))
    parser.add_argument("--n", type=int, default=500)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=math.inf, help="per process, of `runs`")
    parser.add_argument("--steps", type=int, default=1_000_000)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.what == "peers":
        compare(given.systems, given.n, given.runs)
    elif given.what == "runs":
        repeat(given.systems, given.n, given.runs, given.seconds)
    else:
        long_record(given.steps)


if __name__ == "__main__":
    main()
