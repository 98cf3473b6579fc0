"""How accurate filters and smoothers are, against those that are given the equations.

`python benchmarks/filter_accuracy.py [--systems NAME …] [--methods NAME …] [--seeds 3] [--first 0]
[--steps T]`

Systems have additive Gaussian noise, x' = f(x) + N(0, Q) and o = h(x) + N(0, R). On linear ones the
Kalman filter and smoother are exact; elsewhere 5,000 particles stand for the exact filter. A
learned filter sees a recording of `--steps` steps of states and observations, and is tested on
other runs. The columns:

- error: mean squared error over that of the exact filter (smoother), states over their deviations;
- coverage of the 90% intervals, and their width over that of the exact ones;
- seconds of `fit`, and milliseconds per step of `filter`.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from scipy.stats import norm

PARTICLES = 5000
LEVEL = 0.9
TESTS, LENGTH = 5, 200  # runs that are filtered, and their steps
Z = float(norm.ppf((1 + LEVEL) / 2))


# --- systems --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class System:
    """x' = f(x) + N(0, Q) and o = h(x) + N(0, R), for states (…, d)."""

    f: Callable[[np.ndarray], np.ndarray]
    h: Callable[[np.ndarray], np.ndarray]
    Q: np.ndarray
    R: np.ndarray
    first: tuple[np.ndarray, np.ndarray]  # mean and covariance of the first state
    linear: bool = False
    length: int | None = None  # of a training sequence; None is one that is as long as asked for
    burn: int = 0  # steps before the first
    draw: Callable[[int, np.random.Generator], np.ndarray] | None = None  # first states

    def simulate(
        self, runs: int, n: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """States (runs, n, d) and observations."""
        x, path = self.initial(runs, rng), []
        noise = root(self.Q)
        for _ in range(self.burn + n):
            path.append(x)
            x = self.f(x) + rng.normal(size=x.shape) @ noise
        states = np.stack(path[self.burn :], axis=1)
        o = self.h(states)
        return states, o + rng.normal(size=o.shape) @ root(self.R)

    def initial(self, n: int, rng: np.random.Generator) -> np.ndarray:
        if self.draw is not None:
            return self.draw(n, rng)
        mean, covariance = self.first
        return mean + rng.normal(size=(n, len(mean))) @ root(covariance)

    def recording(self, n: int, rng: np.random.Generator) -> tuple[list[Any], list[Any]]:
        """Sequences of n steps in all."""
        length = self.length or n
        states, observations = self.simulate(max(1, n // length), length, rng)
        return list(states), list(observations)


def root(covariance: np.ndarray) -> np.ndarray:
    """U with UᵀU = C."""
    values, vectors = np.linalg.eigh(covariance)
    return np.sqrt(np.maximum(values, 0))[:, None] * vectors.T


def turn(angle: float) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s], [s, c]])


def linear(A: np.ndarray, C: np.ndarray, noise: float) -> System:
    """A stationary linear system of covariance 1, for A that is a contraction times a rotation."""
    d = len(A)
    Q = np.eye(d) - A @ A.T
    return System(
        lambda x: x @ A.T,
        lambda x: x @ C.T,
        Q,
        noise**2 * np.eye(len(C)),
        (np.zeros(d), np.eye(d)),
        True,
    )


def four() -> np.ndarray:
    """Two damped rotations, seen in other axes."""
    U = np.linalg.qr(np.random.default_rng(4).normal(size=(4, 4)))[0]
    A = np.zeros((4, 4))
    A[:2, :2], A[2:, 2:] = 0.95 * turn(0.3), 0.9 * turn(0.8)
    return U @ A @ U.T


def on_curve(system: Any) -> System:
    """One of the rotations of Fukumizu, Song and Gretton (2013, 5.3)."""
    return System(
        system.transition,
        lambda x: x,
        system.process_covariance,
        system.observation_covariance,
        (np.zeros(2), system.initial_covariance),
        draw=system.initial,
    )


def pendulum() -> System:
    """Angle and speed of a damped pendulum that is pushed at random; seen is the sine."""
    dt, noise = 0.05, 0.4

    def f(x: np.ndarray) -> np.ndarray:
        angle, speed = x[..., 0], x[..., 1]
        speed = speed - dt * (9.8 * np.sin(angle) + 0.5 * speed)
        return np.stack([angle + dt * speed, speed], axis=-1)

    return System(
        f,
        lambda x: np.sin(x[..., :1]),
        np.diag([1e-6, noise**2]),
        np.array([[0.1**2]]),
        (np.zeros(2), np.diag([0.3, 3.0])),
        burn=200,
    )


def radar() -> System:
    """Position, speed and altitude of an aircraft; seen is the slant range. 20 flights."""
    dt = 0.5
    A = np.array([[1, dt, 0], [0, 1, 0], [0, 0, 1.0]])
    return System(
        lambda x: x @ A.T,
        lambda x: np.sqrt(x[..., :1] ** 2 + x[..., 2:] ** 2),
        np.diag([1.0, 0.5, 1.0]),
        np.array([[5.0**2]]),
        (np.array([500.0, 100.0, 1000.0]), np.diag([200.0, 10.0, 50.0]) ** 2),
        length=25,
    )


def bearings() -> System:
    """Place and velocity of a target; seen are two bearings. 20 tracks."""
    dt = 1.0
    A = np.eye(4)
    A[0, 2] = A[1, 3] = dt
    posts = np.array([[-50.0, 0.0], [50.0, 0.0]])

    def h(x: np.ndarray) -> np.ndarray:
        away = x[..., None, :2] - posts
        return np.arctan2(away[..., 1], away[..., 0])

    return System(
        lambda x: x @ A.T,
        h,
        np.diag([0.1, 0.1, 0.05, 0.05]) ** 2,
        0.01**2 * np.eye(2),
        (np.array([0.0, 100.0, 0.0, 0.0]), np.diag([20.0, 20.0, 1.0, 1.0]) ** 2),
        length=25,
    )


def xu_systems() -> dict[str, System]:
    """The easy and the difficult system of Xu et al. (2022)."""
    from meanmap_experiments.systems import Rotation

    return {
        "xu easy": on_curve(Rotation(increment=0.3, swing=0.0)),
        "xu difficult": on_curve(Rotation(increment=0.4, swing=0.4)),
    }


def systems() -> dict[str, System]:
    from meanmap_experiments.systems import OSCILLATION, ROTATION

    eye = np.eye
    return {
        "ar .3": linear(0.95 * eye(1), eye(1), 0.3),
        "ar 1": linear(0.95 * eye(1), eye(1), 1.0),
        "2d": linear(0.95 * turn(0.3), eye(2), 0.5),
        "2d of 1": linear(0.97 * turn(0.3), eye(2)[:1], 0.5),
        "4d": linear(four(), eye(4), 0.7),
        "4d of 2": linear(four(), eye(4)[:2], 0.5),
        "a": on_curve(ROTATION),
        "b": on_curve(OSCILLATION),
        "pendulum": pendulum(),
        "radar": radar(),
        "bearings": bearings(),
    }


# --- filters that are given the equations ---------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """Means and ends of the 90% intervals, each (runs, n, d)."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def normal(cls, mean: np.ndarray, variance: np.ndarray) -> Found:
        half = Z * np.sqrt(np.maximum(variance, 0))
        return cls(mean, mean - half, mean + half)


def derivative(f: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> np.ndarray:
    """Jacobians (runs, out, in) by central differences."""
    columns = []
    for j in range(x.shape[-1]):
        step = np.zeros(x.shape[-1])
        step[j] = 1e-5 * (1 + abs(x[..., j]).mean())
        columns.append((f(x + step) - f(x - step)) / (2 * step[j]))
    return np.stack(columns, axis=-1)


def first_guess(system: System, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The law of the first state, by its moments."""
    mean, covariance = system.first
    if system.burn:
        states = system.simulate(2000, 1, np.random.default_rng(0))[0][:, 0]
        mean, covariance = states.mean(axis=0), np.cov(states.T)
    runs = len(y)
    return np.tile(mean, (runs, 1)), np.tile(covariance, (runs, 1, 1))


def extended(system: System, y: np.ndarray) -> tuple[np.ndarray, ...]:
    """Means and covariances, filtered and predicted, and Jacobians; Kalman's on a linear system."""
    x, P = first_guess(system, y)
    kept: list[list[np.ndarray]] = [[], [], [], [], []]
    F = np.tile(np.eye(x.shape[1]), (len(y), 1, 1))
    for t in range(y.shape[1]):
        if t:
            F = derivative(system.f, x)
            x, P = system.f(x), F @ P @ F.swapaxes(1, 2) + system.Q
        for part, value in zip(kept[2:], (x, P, F), strict=True):
            part.append(value)
        H = derivative(system.h, x)
        gain = np.linalg.solve(H @ P @ H.swapaxes(1, 2) + system.R, H @ P).swapaxes(1, 2)
        x = x + np.einsum("bij,bj->bi", gain, y[:, t] - system.h(x))
        P = P - gain @ H @ P
        kept[0].append(x)
        kept[1].append(P)
    return tuple(np.stack(part, axis=1) for part in kept)


def smoothed(parts: tuple[np.ndarray, ...]) -> Found:
    """Rauch, Tung and Striebel's smoother."""
    x, P, ahead, spread, F = parts
    mean, variance = x.copy(), P.copy()
    for t in range(x.shape[1] - 2, -1, -1):
        G = np.linalg.solve(spread[:, t + 1], F[:, t + 1] @ P[:, t]).swapaxes(1, 2)
        mean[:, t] += np.einsum("bij,bj->bi", G, mean[:, t + 1] - ahead[:, t + 1])
        variance[:, t] += G @ (variance[:, t + 1] - spread[:, t + 1]) @ G.swapaxes(1, 2)
    return Found.normal(mean, np.diagonal(variance, axis1=2, axis2=3))


def unscented(system: System, y: np.ndarray) -> Found:
    """α = 1, β = 2, κ = 3 - d."""
    x, P = first_guess(system, y)
    d = x.shape[1]
    scale = 3.0
    w = np.full(2 * d + 1, 1 / (2 * scale))
    w[0] = 1 - d / scale
    v = w.copy()
    v[0] += 2.0

    def sigma(x: np.ndarray, P: np.ndarray) -> np.ndarray:
        U = np.stack([root(scale * (one + one.T) / 2) for one in P])
        return np.concatenate([x[:, None], x[:, None] + U, x[:, None] - U], axis=1)

    means, spreads = [], []
    for t in range(y.shape[1]):
        if t:
            points = system.f(sigma(x, P))
            x = w @ points
            away = points - x[:, None]
            P = np.einsum("i,bij,bik->bjk", v, away, away) + system.Q
        points = sigma(x, P)
        away, seen = points - x[:, None], system.h(points)
        o = w @ seen
        off = seen - o[:, None]
        S = np.einsum("i,bij,bik->bjk", v, off, off) + system.R
        cross = np.einsum("i,bij,bik->bjk", v, away, off)
        gain = np.linalg.solve(S, cross.swapaxes(1, 2)).swapaxes(1, 2)
        x = x + np.einsum("bij,bj->bi", gain, y[:, t] - o)
        P = P - gain @ S @ gain.swapaxes(1, 2)
        means.append(x)
        spreads.append(np.diagonal(P, axis1=1, axis2=2))
    return Found.normal(np.stack(means, axis=1), np.stack(spreads, axis=1))


def particles(system: System, y: np.ndarray, n: int = PARTICLES) -> Found:
    """The bootstrap filter, resampled at every step; the first state takes ten times as many."""
    rng = np.random.default_rng(0)
    noise, inverse = root(system.Q), np.linalg.inv(system.R)
    rows = []
    for one in y:
        x = system.simulate(10 * n, 1, rng)[0][:, 0]
        for t, o in enumerate(one):
            if t:
                x = system.f(x) + rng.normal(size=x.shape) @ noise
            off = o - system.h(x)
            log = -0.5 * np.einsum("ij,jk,ik->i", off, inverse, off)
            p = np.exp(log - log.max())
            x = x[rng.choice(len(x), n, p=p / p.sum())]
            rows.append(
                [x.mean(axis=0), *np.quantile(x, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)]
            )
    shape = (len(y), y.shape[1], -1)
    return Found(*(np.array([row[i] for row in rows]).reshape(shape) for i in range(3)))


# --- filters that learn ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Learned:
    """What a filter that learned found."""

    filtered: Found
    smoothed: Found | None
    fit: float  # seconds
    step: float  # milliseconds


def least_squares(states: list[Any], observations: list[Any], y: np.ndarray) -> Learned:
    """A linear state-space model fitted to the recording: where EM ends when states are known."""
    start = time.perf_counter()
    before = np.concatenate([s[:-1] for s in states])
    after = np.concatenate([s[1:] for s in states])
    S, seen = np.concatenate(states), np.concatenate(observations)
    (A, Q), (C, R) = regress(before, after), regress(S, seen)
    model = System(
        lambda x: x @ A[:-1] + A[-1],
        lambda x: x @ C[:-1] + C[-1],
        Q,
        R,
        (S.mean(axis=0), np.atleast_2d(np.cov(S.T))),
        True,
    )
    fitted = time.perf_counter() - start
    parts = extended(model, y)
    return Learned(of_extended(parts), smoothed(parts), fitted, 0.0)


def regress(X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    X = np.hstack([X, np.ones((len(X), 1))])
    B = np.linalg.lstsq(X, Y, rcond=None)[0]
    off = Y - X @ B
    return B, off.T @ off / (len(X) - X.shape[1])


def of_extended(parts: tuple[np.ndarray, ...]) -> Found:
    return Found.normal(parts[0], np.diagonal(parts[1], axis1=2, axis2=3))


def recurrent(states: list[Any], observations: list[Any], y: np.ndarray) -> Learned:
    """An LSTM of 32 cells with means and deviations; 10% of the pieces decide when to stop."""
    import torch

    torch.manual_seed(0)
    start = time.perf_counter()
    S, o = np.concatenate(states), np.concatenate(observations)
    centre, scale, seen, size = S.mean(0), S.std(0), o.mean(0), o.std(0)
    piece = min(50, min(len(s) for s in states))

    def pieces(parts: list[Any], middle: np.ndarray, unit: np.ndarray) -> Any:
        cut = [p[i : i + piece] for p in parts for i in range(0, len(p) - piece + 1, piece // 2)]
        return torch.tensor((np.stack(cut) - middle) / unit, dtype=torch.float32)

    X, T = pieces(observations, seen, size), pieces(states, centre, scale)
    held = max(1, len(X) // 10)
    d = S.shape[1]
    cells = torch.nn.LSTM(o.shape[1], 32, batch_first=True)
    last = torch.nn.Linear(32, 2 * d)
    weights = [*cells.parameters(), *last.parameters()]
    optimizer = torch.optim.Adam(weights, 1e-2)

    def loss(a: Any, b: Any) -> Any:
        out = last(cells(a)[0])
        return (((b - out[..., :d]) * torch.exp(-out[..., d:])) ** 2 / 2 + out[..., d:]).mean()

    best, kept, waited = np.inf, [], 0
    for _ in range(600):
        optimizer.zero_grad()
        loss(X[:-held], T[:-held]).backward()
        optimizer.step()
        with torch.no_grad():
            now = float(loss(X[-held:], T[-held:]))
        waited += 1
        if now < best:
            best, kept, waited = now, [w.detach().clone() for w in weights], 0
        if waited > 60:
            break
    with torch.no_grad():
        for weight, value in zip(weights, kept, strict=True):
            weight.copy_(value)
        fitted = time.perf_counter() - start
        out = last(cells(torch.tensor((y - seen) / size, dtype=torch.float32))[0]).numpy()
    found = Found.normal(out[..., :d] * scale + centre, (np.exp(out[..., d:]) * scale) ** 2)
    return Learned(found, None, fitted, 0.0)


def ours(make: Callable[[], Any]) -> Callable[..., Learned]:
    """One of our filters."""

    def run(states: list[Any], observations: list[Any], y: np.ndarray) -> Learned:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            start = time.perf_counter()
            model = make().fit(states, observations)
            fitted = time.perf_counter() - start
            start = time.perf_counter()
            track = model.filter(list(y))
            found = Found(track.mean, *track.interval(LEVEL))
            step = 1e3 * (time.perf_counter() - start) / y.shape[0] / y.shape[1]
            smooth = model.smooth(list(y))
            later = Found(smooth.mean, *smooth.interval(LEVEL))
        return Learned(found, later, fitted, step)

    return run


def contestants() -> dict[str, Callable[..., Learned]]:
    from meanmap import AdditiveFilter, KernelBayesFilter

    return {
        "bayes": ours(lambda: KernelBayesFilter(progress=False)),
        "additive": ours(lambda: AdditiveFilter(progress=False)),
        "importance": ours(lambda: KernelBayesFilter(method="importance", progress=False)),
        "linear": least_squares,
        "lstm": recurrent,
    }


# --- the table ------------------------------------------------------------------------------------


def error(found: Found, truth: np.ndarray, scale: np.ndarray) -> float:
    return float((((found.mean - truth) / scale) ** 2).mean())


def judge(found: Found, exact: Found, truth: np.ndarray) -> np.ndarray:
    """Error over that of the exact filter, coverage, and width over the exact one."""
    scale = truth.std(axis=(0, 1))
    inside = (found.low <= truth) & (truth <= found.high)
    width = (found.high - found.low).mean(axis=(0, 1)) / (exact.high - exact.low).mean(axis=(0, 1))
    ratio = error(found, truth, scale) / error(exact, truth, scale)
    return np.array([ratio, inside.mean(), width.mean()])


def measure(
    system: System, methods: list[str], steps: int, seed: int
) -> dict[str, tuple[np.ndarray, np.ndarray | None, np.ndarray]]:
    """The figures of every method on one recording."""
    rng = np.random.default_rng(seed)
    states, observations = system.recording(steps, rng)
    truth, y = system.simulate(TESTS, system.length or LENGTH, rng)
    if system.length:
        truth, y = system.simulate(TESTS * LENGTH // system.length, system.length, rng)
    parts = extended(system, y)
    if system.linear:
        exact, back = of_extended(parts), smoothed(parts)
    else:
        exact, back = particles(system, y), None
    peers = {
        "EKF": lambda: of_extended(parts),
        "UKF": lambda: unscented(system, y),
        "particles": lambda: particles(system, y),
    }
    table = contestants()
    rows: dict[str, Any] = {}
    nothing = np.full(2, np.nan)
    for name in methods:
        if name in peers:
            rows[name] = judge(peers[name](), exact, truth), None, nothing
            continue
        found = table[name](states, observations, y)
        later = None
        if found.smoothed is not None:
            if back is None:  # against what was filtered: below one, or smoothing does harm
                later = judge(found.smoothed, exact, truth)
                later[0] = judge(found.smoothed, found.filtered, truth)[0]
            else:
                later = judge(found.smoothed, back, truth)
        rows[name] = judge(found.filtered, exact, truth), later, np.array([found.fit, found.step])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    known = systems() | xu_systems()
    parser.add_argument("--systems", nargs="+", default=list(systems()), choices=list(known))
    parser.add_argument("--methods", nargs="+", default=["bayes", "additive"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--steps", type=int, default=500)
    options = parser.parse_args()
    print(
        f"{'system':10} {'method':10}   filter: error cover width   smoother: error cover width"
        "    fit s  ms/step"
    )
    for name in options.systems:
        runs = [
            measure(known[name], options.methods, options.steps, seed)
            for seed in range(options.first, options.first + options.seeds)
        ]
        for method in options.methods:
            parts = [run[method] for run in runs]
            filtered = np.mean([part[0] for part in parts], axis=0)
            cells = "   ".join([f"{name:10} {method:10}", "      " + numbers(filtered)])
            later = [part[1] for part in parts if part[1] is not None]
            cells += "            " + (numbers(np.mean(later, axis=0)) if later else " " * 17)
            seconds = np.mean([part[2] for part in parts], axis=0)
            print(cells + f"   {seconds[0]:6.2f} {seconds[1]:7.3f}", flush=True)
    print("Smoothers of systems that are not linear: error over that of filtering.")


def numbers(values: np.ndarray) -> str:
    return " ".join(f"{value:5.2f}" for value in values)


if __name__ == "__main__":
    main()
