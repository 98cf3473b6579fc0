"""Posteriors from a simulator: fitting, and answering a new observation, against eq. 19 as it is.

The simulator is the Gaussian model of Fukumizu, Song and Gretton (2013, 5.1), d = 6, which costs
nothing, so that the time is that of inference. The dense peer has the kernels and λ that ours has
chosen, and factorises once; what is not to be had densely has a bar of its own.
"""

from __future__ import annotations

import time
from itertools import cycle
from typing import Any

import numpy as np
import scipy.linalg
from harness import Contestant, Row, child, imported, main, peer_threads, race, say

D = 6


def gaussian_model(seed: int) -> Any:
    from meanmap_experiments.bayes import LinearGaussian

    return LinearGaussian.drawn(D, np.random.default_rng(seed))


def fitted(n: int, **options: Any) -> tuple[Any, np.ndarray]:
    """Ours after n simulations, and new observations."""
    from meanmap import KernelABC

    model = gaussian_model(0)
    ours = KernelABC(model.simulate, model.prior, random_state=0, progress=False, **options)
    rng = np.random.default_rng(1)
    return ours.fit(n), model.simulate(model.prior(100, rng), rng)


class Dense:
    """`v = (G_Y + nλI)⁻¹ k_Y(y)` (eq. 19) with a Cholesky factor that is kept."""

    def __init__(self, theta: np.ndarray, outputs: np.ndarray, bandwidth: Any, lam: float) -> None:
        self.theta, self.scaled, self.unit = theta, outputs / bandwidth, np.asarray(bandwidth)
        G = self.gram(self.scaled)
        G.flat[:: len(G) + 1] += len(G) * lam
        self.factor = scipy.linalg.cho_factor(G, lower=True, overwrite_a=True, check_finite=False)

    def gram(self, points: np.ndarray) -> np.ndarray:
        squares = (self.scaled**2).sum(1)[:, None] + (points**2).sum(1) - 2 * self.scaled @ points.T
        return np.exp(np.maximum(squares, 0.0) / -2)

    def mean(self, y: np.ndarray) -> np.ndarray:
        k = self.gram((y / self.unit)[None])[:, 0]
        v = scipy.linalg.cho_solve(self.factor, k, check_finite=False)
        return v @ self.theta / v.sum()


def answer_row() -> Row:
    n = 6000
    say(f"n = {n}: fits")
    ours, new = fitted(n)
    settings = ours.model_.kernel_x_.bandwidth, ours.model_.regularization_
    dense = Dense(ours.theta_, ours.outputs_, *settings)
    gap = max(float(abs(ours.posterior(y).mean() - dense.mean(y)).max()) for y in new[:20])
    mine, theirs = cycle(new), cycle(new)
    say("answers")
    best = race(
        {
            "mean": Contestant(lambda: ours.posterior(next(mine)).mean(), calls=20),
            "interval": Contestant(lambda: ours.posterior(next(mine)).interval(0.9), calls=10),
            "dense": Contestant(lambda: dense.mean(next(theirs)), peer_threads(), calls=5),
        },
        rounds=5,
    )
    whole = max(best["mean"].seconds, best["interval"].seconds)
    return Row(
        f"KernelABC: a new observation after {n:,} simulations, d = {D}",
        "eq. 19, a Cholesky factor kept",
        best["mean"].seconds,
        best["dense"].seconds,
        peer_threads=best["dense"].threads,
        note=f"same mean to {gap:.1e}; with 90% intervals {best['interval'].seconds * 1e3:.1f} ms",
        bar="≤ 20 ms",
        holds=bool(whole <= 0.02),
    )


def fit_row() -> Row:
    n = 50_000
    say(f"n = {n}: fit")
    report, memory = child("inference.py", "large", str(n))
    return Row(
        f"KernelABC: a fit of {n:,} simulations, d = {D}",
        "",
        report["seconds"],
        ours_memory=memory,
        note=f"a Gram matrix would be {8 * n * n / 1e9:.0f} GB",
        bar="≤ 120 s, ≤ 2 GB",
        holds=bool(report["seconds"] <= 120 and memory.peak <= 2e9),
    )


def run() -> list[Row]:
    return [answer_row(), fit_row()]


def large(n: str) -> dict[str, float]:
    """A large fit, for its time and the peak of memory."""
    import meanmap  # noqa: F401

    imported()
    start = time.perf_counter()
    fitted(int(n))
    return {"seconds": time.perf_counter() - start}


JOBS = {"large": large}

if __name__ == "__main__":
    main(__file__, "posteriors from a simulator", run, JOBS)
