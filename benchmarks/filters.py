"""One step of a filter, against the papers' dense updates, a particle and a Kalman filter.

The data are the rotation (b) of Fukumizu, Song and Gretton (2013, 5.3). A dense peer has its Gram
matrices, and everything else that does not change from step to step, outside the clock; ours is
`stream.step(o)`, input checks and all. Beliefs and predictions are normalised in both. The particle
filter and the unscented Kalman filter are given the true model, ours a sample of 800 steps.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
from harness import (
    HERE,
    Contestant,
    Failure,
    Memory,
    Row,
    child,
    imported,
    interpreter,
    main,
    peer_threads,
    race,
    say,
    why,
)

EPSILON, DELTA, LAMBDA = 1e-3, 1e-6, 1e-3
SEQUENCES, STEPS = 100, 100
PARTICLES, RUNS, TRAINING, TEST = 10_000, 5, 800, 200
FILTERPY = ("filterpy==2.0.0", "numpy")
WORK = f"KernelBayesFilter: a step on (b), T = {TRAINING}"


def simulated(n: int, seed: int, runs: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """States and observations of (b)."""
    from meanmap_experiments.systems import OSCILLATION

    return OSCILLATION.simulate(n, seed, runs=runs)


def gaussian(A: np.ndarray, B: np.ndarray, bandwidth: float) -> np.ndarray:
    """The peer's own Gram matrix."""
    squares = (A * A).sum(1)[:, None] + (B * B).sum(1)[None, :] - 2 * A @ B.T
    return np.exp(np.maximum(squares, 0.0) / (-2 * bandwidth**2))


class Dense:
    """Equations 17 and 18 of Fukumizu, Song and Gretton (2013)."""

    def __init__(self, states: np.ndarray, observations: np.ndarray, sigmas: Any) -> None:
        T = len(states)
        self.sigma, self.observations = sigmas[1], observations
        self.G_X = gaussian(states, states, sigmas[0])
        self.G_Y = gaussian(observations, observations, sigmas[1])
        first, after = slice(0, T - 1), slice(1, T)
        shifted = self.G_X[first, first] + (T - 1) * EPSILON * np.eye(T - 1)
        # the prediction as weights on the successors, then the prior on the sample
        self.predict = scipy.linalg.solve(shifted, self.G_X[first], assume_a="pos")
        whole = self.G_X + T * EPSILON * np.eye(T)
        self.prior = scipy.linalg.solve(whole, self.G_X[:, after], assume_a="pos")

    def k_Y(self, y: np.ndarray) -> np.ndarray:
        difference = self.observations - y
        return np.exp(np.einsum("ij,ij->i", difference, difference) / (-2 * self.sigma**2))

    def first(self, y: np.ndarray) -> np.ndarray:
        """α⁽¹⁾, without its factor T."""
        T = len(self.G_Y)
        shifted = self.G_Y + T * DELTA**0.5 * np.eye(T)
        alpha = scipy.linalg.solve(shifted, self.k_Y(y), assume_a="pos")
        return alpha / alpha.sum()

    def step(self, alpha: np.ndarray, y: np.ndarray) -> np.ndarray:
        """α⁽ᵗ⁺¹⁾ from α⁽ᵗ⁾."""
        predicted = self.predict @ alpha
        mu = self.prior @ (predicted / predicted.sum())  # (17)
        LG = mu[:, None] * self.G_Y
        M = LG @ LG
        M.flat[:: len(mu) + 1] += DELTA
        right = mu * self.k_Y(y)
        alpha = LG @ scipy.linalg.solve(M, right, overwrite_a=True, check_finite=False)  # (18)
        return alpha / alpha.sum()


def squared_filter(states: np.ndarray, observations: np.ndarray) -> Any:
    """Ours with the same settings."""
    from meanmap import KernelBayesFilter
    from meanmap.kernels import Gaussian

    return KernelBayesFilter(
        Gaussian(),
        Gaussian(),
        method="squared",
        regularization=EPSILON,
        posterior_regularization=DELTA,
        validation=None,
    ).fit(states, observations)


def bayes_rows(T: int, bar: float, rounds: int) -> Row:
    states, observations = simulated(T, seed=0)
    _, new = simulated(200, seed=1)
    say(f"T = {T}: Gram matrices and fit")
    ours = squared_filter(states, observations)
    sigmas = ours.kernel_state_.bandwidth, ours.kernel_observation_.bandwidth
    dense = Dense(states, observations, sigmas)
    stream = ours.start()
    stream.step(new[0])
    alpha, agreement = dense.first(new[0]), 0.0
    for y in new[1 : 6 if T > 2000 else 21]:
        belief, alpha = stream.step(y), dense.step(alpha, y)
        difference = belief.weights - alpha
        error = difference @ dense.G_X @ difference / (alpha @ dense.G_X @ alpha)
        agreement = max(agreement, float(max(error, 0.0)) ** 0.5)
    turns = cycle(new)
    say(f"T = {T}: steps")
    best = race(
        {
            "ours": Contestant(lambda: stream.step(next(turns)).weights, calls=20),
            "dense": Contestant(lambda: dense.step(alpha, next(turns)), peer_threads()),
        },
        rounds=rounds,
    )
    say(f"T = {T}: memory")
    memory = child("filters.py", "memory", str(T))[1]
    whole = 8 * T * T
    ratio = best["dense"].seconds / best["ours"].seconds
    small = T < 2000 or memory.increment < whole
    return Row(
        f"KernelBayesFilter, squared: a step, T = {T}, d = 2",
        "dense update, eqs. 17 and 18",
        best["ours"].seconds,
        best["dense"].seconds,
        peer_threads=best["dense"].threads,
        ours_memory=memory,
        note=f"same embedding to {agreement:.1e} (≤ 1e-6); a T × T matrix is {whole / 1e6:.0f} MB",
        bar=f"≥ {bar:g}×" + (", never a T × T matrix" if T > 2000 else ""),
        holds=bool(ratio >= bar and agreement <= 1e-6 and small),
    )


def batch_row() -> Row:
    from meanmap import KernelBayesFilter

    states, observations = simulated(1000, seed=0)
    _, new = simulated(STEPS, seed=1, runs=SEQUENCES)
    say("100 sequences")
    settings = {"regularization": 1e-3, "posterior_regularization": 1e-3, "power": 1.0}
    ours = KernelBayesFilter(**settings, validation=None).fit(states, observations)
    sequences = list(new)
    together = ours.filter(sequences, beliefs=False).mean
    alone = np.stack([ours.filter(part, beliefs=False).mean for part in sequences])
    gap = float(abs(together - alone).max())
    best = race(
        {
            "at once": Contestant(lambda: ours.filter(sequences, beliefs=False)),
            "one by one": Contestant(
                lambda: [ours.filter(part, beliefs=False) for part in sequences]
            ),
        },
        rounds=5,
    )
    mine, theirs = best["at once"].seconds, best["one by one"].seconds
    return Row(
        f"KernelBayesFilter: {SEQUENCES} sequences of {STEPS} steps at once, T = 1000",
        "the same, one after another",
        mine,
        theirs,
        note=f"means equal to {gap:.1e}",
        bar="≥ 20×",
        holds=bool(theirs / mine >= 20 and gap < 1e-8),
    )


def additive_row() -> Row:
    from meanmap import AdditiveFilter
    from meanmap.kernels import Gaussian

    T = 5000
    states, observations = simulated(T, seed=0)
    _, new = simulated(200, seed=1)
    say("additive filter: Gram matrices and fit")
    ours = AdditiveFilter(Gaussian(), Gaussian(), regularization=LAMBDA, validation=None)
    ours.fit(states, observations)
    sigma, sigma_o = ours.kernel_state_.bandwidth, ours.kernel_observation_.bandwidth
    before, after, seen = states[:-1], states[1:], observations[1:]
    m = T - 1
    G = gaussian(before, before, sigma) + gaussian(seen, seen, sigma_o)
    G.flat[:: m + 1] += m * LAMBDA
    T2 = scipy.linalg.inv(G, overwrite_a=True, check_finite=False)  # Algorithm 1 keeps it
    T1 = T2 @ gaussian(before, after, sigma)

    def dense(beta: np.ndarray, o: np.ndarray) -> np.ndarray:
        difference = seen - o
        u = np.exp(np.einsum("ij,ij->i", difference, difference) / (-2 * sigma_o**2))
        beta = T1 @ beta + T2 @ u
        return beta / beta.sum()

    stream = ours.start(states[1:])
    beta, agreement = np.full(m, 1 / m), 0.0
    G_X = gaussian(after, after, sigma)
    for o in new[:20]:
        belief, beta = stream.step(o), dense(beta, o)
        difference = belief.weights[1:] - beta
        error = difference @ G_X @ difference / (beta @ G_X @ beta)
        agreement = max(agreement, float(max(error, 0.0)) ** 0.5)
    turns = cycle(new)
    best = race(
        {
            "ours": Contestant(lambda: stream.step(next(turns)), calls=50),
            "dense": Contestant(lambda: dense(beta, next(turns)), peer_threads(), calls=5),
        },
        rounds=5,
    )
    mine, theirs = best["ours"].seconds, best["dense"].seconds
    return Row(
        f"AdditiveFilter: a step, T = {T}",
        "dense matrix-vector form, Theorem 9",
        mine,
        theirs,
        peer_threads=best["dense"].threads,
        note=f"same embedding to {agreement:.1e} (≤ 1e-6)",
        bar="≤ 1 ms and ≥ 20×",
        holds=bool(mine <= 1e-3 and theirs / mine >= 20 and agreement <= 1e-6),
    )


@dataclass(frozen=True)
class Oscillation:
    """Ours on the oscillation (b), trained on 800 steps, and what its peers are given."""

    truth: np.ndarray  # (runs, n, 2)
    observations: np.ndarray
    seconds: float  # a step
    error: float
    memory: Memory

    def save(self, folder: str) -> Path:
        """The test runs, as the peers read them."""
        path = Path(folder) / "runs.npz"
        np.savez(path, truth=self.truth, observations=self.observations)
        return path


def oscillation() -> Oscillation:
    from meanmap import KernelBayesFilter
    from meanmap_experiments.systems import OSCILLATION

    say("the oscillation (b)")
    rng = np.random.default_rng(0)
    errors, per_step = [], []
    tests = [OSCILLATION.simulate(TEST, rng) for _ in range(RUNS)]
    for truth, observations in tests:
        ours = KernelBayesFilter(progress=False).fit(*OSCILLATION.simulate(TRAINING, rng))
        means = ours.filter(observations).mean
        errors.append(float(((means - truth) ** 2).sum(axis=1).mean()))
        stream, turns = ours.start(), cycle(observations)
        timing = race(
            {"ours": Contestant(lambda s=stream, o=turns: s.step(next(o)).mean(), calls=50)}, 5
        )  # type: ignore[misc]
        per_step.append(timing["ours"].seconds)
    truth, observations = (np.stack(part) for part in zip(*tests, strict=True))
    memory = child("filters.py", "oscillation")[1]
    return Oscillation(
        truth, observations, float(np.mean(per_step)), float(np.mean(errors)), memory
    )


def kalman(ours: Oscillation) -> tuple[dict[str, Any], Memory | None, str]:
    """filterpy on the same runs: what it reports, its memory, or why there is nothing."""
    say("against filterpy")
    python, missing = interpreter("filterpy", *FILTERPY)
    if python is None:
        return {}, None, missing
    with tempfile.TemporaryDirectory() as folder:
        arguments = ("filters", ours.save(folder))
        try:
            return *child("peers/kalman_filters.py", *arguments, python=python), ""
        except Failure as error:
            return {}, None, f"filterpy did not run: {why(error)}"


def kalman_row(ours: Oscillation, found: Any, peer_memory: Memory | None, missing: str) -> Row:
    """The unscented filter, which is given the true model where ours learns it."""
    note = f"error {ours.error:.4f}"
    if not missing:
        note += f", peer {found['unscented']['error']:.4f} with the true model, {RUNS} runs"
    return Row(
        WORK,
        missing or f"filterpy {found['filterpy']}, UnscentedKalmanFilter",
        ours.seconds,
        None if missing else found["unscented"]["seconds"],
        ours_memory=ours.memory,
        peer_memory=peer_memory,
        note=note,
    )


def particle_row(ours: Oscillation, ekf: float | None) -> Row:
    """The bootstrap filter; `ekf` is the error of the extended Kalman filter, for the bar."""
    say("against particles")
    python, missing = interpreter("particles", "particles==0.4", "numpy<2")
    found: dict[str, Any] = {}
    if python is not None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "observations.npz"
            np.savez(path, truth=ours.truth[0], observations=ours.observations[0])
            script = HERE / "peers" / "particle_filter.py"
            done = subprocess.run(
                [str(python), str(script), str(path), str(PARTICLES)],
                capture_output=True,
                text=True,
            )
        if done.returncode:
            missing = f"particles did not run: {(done.stderr.splitlines() or ['?'])[-1]}"
        else:
            found = json.loads(done.stdout)
    mine, theirs = ours.seconds, found.get("seconds")
    known = theirs is not None and ekf is not None
    limit = "not known (filterpy)" if ekf is None else f"{ekf:.4f}"
    return Row(
        WORK,
        missing or f"particles, {PARTICLES:,} particles",
        mine,
        theirs,
        ours_memory=ours.memory,
        note=f"error {ours.error:.4f}, EKF's {limit}, {RUNS} runs",
        bar="faster, at an error below EKF's",
        holds=bool(mine < theirs and ours.error < ekf) if known else None,
    )


def run() -> list[Row]:
    return [*steps_rows(), *oscillation_rows()]


def oscillation_rows() -> list[Row]:
    ours = oscillation()
    found, peer_memory, missing = kalman(ours)
    ekf = found["extended"]["error"] if found else None
    return [particle_row(ours, ekf), kalman_row(ours, found, peer_memory, missing)]


def steps_rows() -> list[Row]:
    return [
        bayes_rows(1000, bar=20, rounds=5),
        bayes_rows(5000, bar=200, rounds=1),
        batch_row(),
        additive_row(),
    ]


def memory(T: str) -> None:
    """Fit and take steps, for the peak of memory."""
    import meanmap  # noqa: F401

    states, observations = simulated(int(T), seed=0)
    _, new = simulated(20, seed=1)
    imported()
    stream = squared_filter(states, observations).start()
    for y in new:
        stream.step(y)


def oscillation_once() -> None:
    """The filter of (b) with its settings chosen, and its steps, for the peak of memory."""
    from meanmap import KernelBayesFilter

    states, observations = simulated(TRAINING, seed=0)
    _, new = simulated(TEST, seed=1)
    imported()
    stream = KernelBayesFilter(progress=False).fit(states, observations).start()
    for y in new:
        stream.step(y).mean()


JOBS = {"memory": memory, "oscillation": oscillation_once}

if __name__ == "__main__":
    main(__file__, "a step of a filter, against dense updates, particles and Kalman", run, JOBS)
