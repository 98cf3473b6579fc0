"""Backward feature selection of 2,000 rows and 500 features, against the dense formula and peers.

The dense loop takes eq. 5 of Song, Smola, Gretton, Bedo and Borgwardt (2012) for every candidate:
the Gram matrix of the features without one, and its products with that of the labels. It is timed
on some candidates of one step and scaled to all that the search judges. RFE with a linear support
vector machine and pyHSICLasso, in an environment of its own, choose as many features of the same
data; they do something else, and no bar is set for them.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from harness import (
    Contestant,
    Row,
    blas_threads,
    child,
    environment,
    imported,
    main,
    peer_threads,
    race,
    say,
)

ROWS, FEATURES, CHOSEN = 2000, 500, 10
SOME = 4  # candidates that the dense loop is timed on


def data() -> tuple[np.ndarray, np.ndarray]:
    """An exclusive or of two columns among noise, and two that matter by themselves."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, FEATURES))
    y = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + X[:, 3] ** 2
    return X, (y > np.median(y)).astype(int)


def dense(X: np.ndarray, L: np.ndarray, columns: np.ndarray, sigma: float, some: int) -> np.ndarray:
    """HSIC without each of the first columns, from full matrices (eq. 5)."""
    n = len(X)
    L = L - np.diag(np.diag(L))
    rows = L.sum(axis=1)
    found = []
    for j in columns[:some]:
        x = X[:, columns[columns != j]]
        squares = (x * x).sum(axis=1)
        K = np.exp(-(squares[:, None] + squares[None, :] - 2 * x @ x.T) / (2 * sigma**2))
        np.fill_diagonal(K, 0.0)
        value = (K * L).sum() + K.sum() * rows.sum() / ((n - 1) * (n - 2))
        found.append((value - 2 / (n - 2) * K.sum(axis=1) @ rows) / (n * (n - 3)))
    return np.array(found)


def judged() -> int:
    """How many candidates the search judges."""
    from meanmap.learning.feature_search import rounds
    from meanmap.learning.feature_selection import step_size

    return sum(rounds(FEATURES, CHOSEN, step_size(0.1), "backward"))


def run() -> list[Row]:
    from meanmap import HSICSelector
    from meanmap.kernels import Gaussian
    from meanmap.learning.subset_dependence import Subsets
    from meanmap.learning.targets import target_of

    X, y = data()
    say(f"backward, {ROWS:,} × {FEATURES}")
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        selector = HSICSelector(CHOSEN, method="backward", random_state=0, progress=False)
        selector.fit(X, y)
        seconds.append(time.perf_counter() - start)
    ours = min(seconds)
    right = sorted(np.argsort(selector.ranking_)[:4].tolist())
    x = (X - X.mean(axis=0)) / X.std(axis=0)
    target, every = target_of(y, None), np.arange(ROWS)
    kernel = Gaussian("0.7*median").resolve(x)
    sets = Subsets(x, kernel, target, "U", [every], None, every, lambda n: None)
    L, columns = target.gram(every), np.arange(FEATURES)
    say("the dense loop")
    best = race(
        {
            "dense": Contestant(
                lambda: dense(x, L, columns, float(kernel.bandwidth), SOME), peer_threads()
            )
        },
        rounds=2,
    )["dense"]
    theirs = dense(x, L, columns, float(kernel.bandwidth), SOME)
    mine = sets.without(columns, kernel)[:SOME]
    error = float(abs(mine - theirs).max() / abs(theirs).max())
    work = f"backward, {ROWS:,} × {FEATURES}, to {CHOSEN} and on to 1"
    count = judged()
    scaled = best.seconds / SOME * count
    note = f"{count:,} candidates, scaled from {SOME}; same HSIC to {error:.0e}"
    return [
        Row(work, "", ours, note=f"first four: {right}", bar="≤ 180 s", holds=ours <= 180),
        Row(
            work,
            "a dense loop, eq. 5",
            ours,
            scaled,
            peer_threads=best.threads,
            note=note,
            bar="≥ 10×, same to 1e-8",
            holds=bool(scaled >= 10 * ours and error < 1e-8),
        ),
        *other_rows(X, y),
    ]


def other_rows(X: np.ndarray, y: np.ndarray) -> list[Row]:
    """Our other methods, and scikit-learn's elimination."""
    from sklearn.feature_selection import RFE
    from sklearn.svm import LinearSVC

    from meanmap import HSICSelector

    found: dict[str, tuple[float, Any]] = {}
    models = {
        "forward": HSICSelector(CHOSEN, method="forward", random_state=0, progress=False),
        "lasso": HSICSelector(CHOSEN, method="lasso", random_state=0, progress=False),
        "RFE": RFE(LinearSVC(random_state=0), n_features_to_select=CHOSEN, step=0.1),
    }
    for name, model in models.items():
        say(name)
        start = time.perf_counter()
        model.fit(X, y)
        right = np.flatnonzero(model.support_[:4]).tolist()
        found[name] = time.perf_counter() - start, f"of the first four: {right}"
    work = f"{CHOSEN} of {FEATURES} features, {ROWS:,} rows"
    return [
        Row(f"{work}: forward", "", found["forward"][0], note=found["forward"][1]),
        Row(f"{work}: RFE, linear", "", None, found["RFE"][0], note=found["RFE"][1]),
        peer_row(X, y, f"{work}: lasso", *found["lasso"]),
    ]


def peer_row(X: np.ndarray, y: np.ndarray, work: str, ours: float, note: str) -> Row:
    """pyHSICLasso beside our lasso."""
    say("pyHSICLasso")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        np.savez(path, X=X, y=y)
        try:
            python = environment("pyhsiclasso", "pyHSICLasso", "threadpoolctl")
            report, _ = child(Path(__file__).name, "peer", path, python=python)
        except Exception as error:  # not to be had here
            return Row(work, "pyHSICLasso", ours, note=f"{note}; not run: {error!r:.60}")
    note = f"{note}; its own: {report['right']}"
    return Row(work, "pyHSICLasso, B = 20, M = 3", ours, report["seconds"], note=note)


def peer(path: str) -> dict[str, Any]:
    """The peer's job, in its own environment."""
    import contextlib
    import io

    from pyHSICLasso import HSICLasso

    imported()
    with np.load(path) as data:
        X, y = data["X"], data["y"]
    start = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()), blas_threads(None):
        model = HSICLasso()
        model.input(X, y)
        model.classification(CHOSEN, B=20, M=3, n_jobs=-1)
    seconds = time.perf_counter() - start
    right = sorted(int(j) for j in model.get_index() if j < 4)
    return {"seconds": seconds, "right": right}


if __name__ == "__main__":
    main(__file__, "feature selection by dependence", run, {"peer": peer})
