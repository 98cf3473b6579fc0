"""Fit and 1,000 conditional means, against scikit-learn's kernel ridge regression.

y = sin(2x₁) + x₂x₃ + noise in d = 10, one Gaussian kernel at the median distance and one
regularisation for all (a conditional embedding's mean under λ is kernel ridge regression with
alpha = nλ, Song, Huang, Smola and Fukumizu 2009, section 6). At n = 20,000 both sides see the
sample from 1,000 landmarks drawn uniformly.

The row with the bar does the peer's work and no more: `kernel_y=Linear()` makes the embedding of
P(y|x) the mean of y. The rows below it fit the whole conditional distribution, and choose λ too.
gpytorch's exact GP, without a bar, has the same kernel and its noise given: the posterior mean is
kernel ridge regression's with noise nλ.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from harness import (
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

D, QUERIES, LANDMARKS = 10, 1_000, 1_000
LAMBDA = 1e-6
DENSE = 2_000  # up to this size the peer is KernelRidge, and ours chooses its own basis
SPEED, MEMORY = 2.0, 300e6  # the bars
GPYTORCH = ("torch==2.13.0", "gpytorch==1.15.2", "numpy")
SOLVERS = {"cholesky": "by Cholesky", "default": "as it comes (conjugate gradients)"}
SAME = 1e-6  # of the largest mean

TASKS = {
    "mean": f"conditional mean only, λ = {LAMBDA:g}",
    "whole": f"whole distribution, λ = {LAMBDA:g}",
    "auto": "whole distribution, λ by leave-one-out",
}


def truth(X: np.ndarray) -> np.ndarray:
    """E[y|x]."""
    return np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]


def data(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """X, y, queries, bandwidth."""
    rng = np.random.default_rng(0)
    X, Q = rng.normal(size=(n, D)), rng.normal(size=(QUERIES, D))
    some = X[:1000]
    squares = ((some[:, None, :] - some[None, :, :]) ** 2).sum(axis=2)
    bandwidth = float(np.sqrt(np.median(squares[np.triu_indices(1000, 1)])))
    return X, truth(X) + 0.3 * rng.normal(size=n), Q, bandwidth


def ours(n: int, task: str) -> Any:
    """A function that fits and predicts."""
    from meanmap import ConditionalEmbedding
    from meanmap.kernels import Gaussian, Linear
    from meanmap.spaces import Nystroem

    X, y, Q, bandwidth = data(n)
    basis = None if n <= DENSE else (Nystroem(LANDMARKS, random_state=0), None)
    model = ConditionalEmbedding(
        Gaussian(bandwidth),
        Linear() if task == "mean" else None,
        regularization="auto" if task == "auto" else LAMBDA,
        basis=basis,
    )
    return lambda: model.fit(X, y).predict(Q)


def peer(n: int) -> Any:
    """KernelRidge where its n × n matrix is reasonable, Nystroem and Ridge beyond."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    X, y, Q, bandwidth = data(n)
    gamma, alpha = 1 / (2 * bandwidth**2), n * LAMBDA

    def work() -> np.ndarray:
        if n <= DENSE:
            return KernelRidge(alpha=alpha, kernel="rbf", gamma=gamma).fit(X, y).predict(Q)
        features = Nystroem(gamma=gamma, n_components=LANDMARKS, random_state=0)
        ridge = Ridge(alpha=alpha, fit_intercept=False)
        return make_pipeline(features, ridge).fit(X, y).predict(Q)

    return work


def run() -> list[Row]:
    return [row for n, rounds in ((DENSE, 5), (20_000, 3)) for row in compare(n, rounds)]


def compare(n: int, rounds: int) -> list[Row]:
    """Every task at one size."""
    say(f"n = {n:,}")
    works = {task: ours(n, task) for task in TASKS} | {"peer": peer(n)}
    target = truth(data(n)[2])
    values = {name: work() for name, work in works.items()}  # warms up as well
    errors = {name: float(np.mean((v - target) ** 2)) for name, v in values.items()}
    best = race(
        {
            name: Contestant(work, peer_threads() if name == "peer" else (None,))
            for name, work in works.items()
        },
        rounds=rounds,
        warm_up=0,
    )
    memory = {task: child("fit.py", "ours", n, task)[1] for task in TASKS}
    memory["peer"] = child("fit.py", "peer", n)[1]
    name = "KernelRidge" if n <= DENSE else f"Nystroem({LANDMARKS}) + Ridge"
    rows = []
    for task, words in TASKS.items():
        seconds, against = best[task].seconds, best["peer"].seconds
        barred = task == "mean" and n > DENSE
        fast, small = against >= SPEED * seconds, memory[task].peak < MEMORY
        rows.append(
            Row(
                f"fit + {QUERIES:,} predictions, n = {n:,}, d = {D}, {words}",
                f"scikit-learn {name}, alpha = nλ",
                seconds,
                against,
                peer_threads=best["peer"].threads,
                ours_memory=memory[task],
                peer_memory=memory["peer"],
                note=f"MSE {errors[task]:.4f}, peer {errors['peer']:.4f}",
                bar=f"≥ {SPEED:g}×, < {MEMORY / 1e6:.0f} MB" if barred else "",
                holds=fast and small if barred else None,
            )
        )
    if n <= DENSE:
        rows += gp_rows(n, rounds, best["mean"].seconds, memory["mean"], values["peer"])
    return rows


def gp_rows(n: int, rounds: int, seconds: float, memory: Memory, ridge: np.ndarray) -> list[Row]:
    """The mean only, against gpytorch's exact GP, whose means are compared with KernelRidge's."""
    work = f"fit + {QUERIES:,} predictions, n = {n:,}, d = {D}, {TASKS['mean']}"
    python, missing = interpreter("gpytorch", *GPYTORCH)
    if python is None:
        return [Row(work, missing, seconds, ours_memory=memory)]
    X, y, Q, bandwidth = data(n)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "data.npz"
        np.savez(file, X=X, y=y, Q=Q, bandwidth=bandwidth, noise=n * LAMBDA)
        for solver, words in SOLVERS.items():
            arguments = ("peers/exact_gp.py", "mean", file, solver)
            try:
                found, _ = child(*arguments, rounds, python=python)
                peer_memory = child(*arguments, 0, python=python)[1]  # of doing it once
            except Failure as error:
                name = f"gpytorch, {words}, did not run: {why(error)}"
                rows.append(Row(work, name, seconds, ours_memory=memory))
                continue
            say(f"gpytorch {solver} {found}, memory {peer_memory}")
            means = np.load(f"{file}.{solver}.npy")
            gap = float(abs(means - ridge).max() / abs(ridge).max())
            verb = "equal" if gap <= SAME else "do not equal"
            error = float(np.mean((means - truth(Q)) ** 2))
            note = f"peer's means {verb} KernelRidge's to {SAME:g}: {gap:.1e} of the largest"
            rows.append(
                Row(
                    work,
                    f"gpytorch {found['gpytorch']} exact GP, noise nλ, {words}",
                    seconds,
                    found["seconds"],
                    peer_threads=found["threads"],
                    ours_memory=memory,
                    peer_memory=peer_memory,
                    note=f"{note}; its MSE {error:.4f}",
                )
            )
    return rows


def ours_once(n: str, task: str) -> None:
    import meanmap  # noqa: F401

    imported()
    ours(int(n), task)()


def peer_once(n: str) -> None:
    import sklearn.kernel_approximation
    import sklearn.kernel_ridge
    import sklearn.linear_model  # noqa: F401

    imported()
    peer(int(n))()


JOBS = {"ours": ours_once, "peer": peer_once}

if __name__ == "__main__":
    main(__file__, "fit and conditional means", run, JOBS)
