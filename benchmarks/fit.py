"""Fit and 1,000 conditional means, against scikit-learn's kernel ridge regression.

No bar yet. y = sin(2x₁) + x₂x₃ + noise in d = 5, one Gaussian kernel at the median distance and one
regularisation for all (a conditional embedding's mean under λ is kernel ridge regression with
alpha = nλ, Song, Huang, Smola and Fukumizu 2009, section 6). Ours fits the whole conditional
distribution, the peers its mean alone. The last row of each size lets ours choose λ as well.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from harness import Contestant, Row, child, imported, main, peer_threads, race, say

D, QUERIES, RANK = 5, 1_000, 1_000
LAMBDA = 1e-6


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


def ours(n: int, regularization: float | str = LAMBDA) -> Any:
    """A function that fits and predicts."""
    from meanmap import ApproximationWarning, ConditionalEmbedding
    from meanmap.kernels import Gaussian
    from meanmap.spaces import PivotedCholesky

    X, y, Q, bandwidth = data(n)
    basis = PivotedCholesky(max_rank=RANK) if n > 2_000 else None

    def work() -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ApproximationWarning)  # the rank is capped on purpose
            model = ConditionalEmbedding(Gaussian(bandwidth), regularization=regularization)
            return model.set_params(basis=basis).fit(X, y).predict(Q)

    return work


def peer(n: int) -> Any:
    """KernelRidge where its n × n matrix is reasonable, Nystroem and Ridge beyond."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    X, y, Q, bandwidth = data(n)
    gamma, alpha = 1 / (2 * bandwidth**2), n * LAMBDA

    def work() -> np.ndarray:
        if n <= 2_000:
            return KernelRidge(alpha=alpha, kernel="rbf", gamma=gamma).fit(X, y).predict(Q)
        features = Nystroem(gamma=gamma, n_components=RANK, random_state=0)
        ridge = Ridge(alpha=alpha, fit_intercept=False)
        return make_pipeline(features, ridge).fit(X, y).predict(Q)

    return work


def run() -> list[Row]:
    rows = []
    for n, rounds in ((2_000, 5), (20_000, 2)):
        say(f"n = {n}")
        works = {"fixed": ours(n), "auto": ours(n, "auto"), "peer": peer(n)}
        target = truth(data(n)[2])
        values = {name: work() for name, work in works.items()}  # warms up as well
        errors = {name: float(np.mean((v - target) ** 2)) for name, v in values.items()}
        best = race(
            {
                "fixed": Contestant(works["fixed"]),
                "auto": Contestant(works["auto"]),
                "peer": Contestant(works["peer"], peer_threads()),
            },
            rounds=rounds,
            warm_up=0,
        )
        memory = {name: child("fit.py", name, n)[1] for name in JOBS}
        name = "KernelRidge" if n <= 2_000 else f"Nystroem({RANK}) + Ridge"
        for which, how in (("fixed", f"λ = {LAMBDA:g}"), ("auto", "λ by leave-one-out")):
            rows.append(
                Row(
                    f"fit + {QUERIES:,} predictions, n = {n:,}, {how}",
                    f"scikit-learn {name}, alpha = nλ",
                    best[which].seconds,
                    best["peer"].seconds,
                    peer_threads=best["peer"].threads,
                    ours_memory=memory[which],
                    peer_memory=memory["peer"],
                    note=f"MSE {errors[which]:.4f}, peer {errors['peer']:.4f}",
                )
            )
    return rows


def fixed_once(n: str) -> None:
    import meanmap  # noqa: F401

    imported()
    ours(int(n))()


def auto_once(n: str) -> None:
    import meanmap  # noqa: F401

    imported()
    ours(int(n), "auto")()


def peer_once(n: str) -> None:
    import sklearn.kernel_approximation
    import sklearn.kernel_ridge
    import sklearn.linear_model  # noqa: F401

    imported()
    peer(int(n))()


JOBS = {"fixed": fixed_once, "auto": auto_once, "peer": peer_once}

if __name__ == "__main__":
    main(__file__, "fit and conditional means", run, JOBS)
