"""Problems whose features are known, and ways to select features, for `selectors`."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from meanmap.learning import HSICSelector

NOISE = 100
DEFAULT, BACKWARD, FORWARD, LASSO = "default", "HSIC backward", "HSIC forward", "HSIC lasso"
MEDIAN, FIXED = "HSIC backward, the median", "HSIC backward, bandwidth fixed"
MUTUAL, FOREST = "mutual information", "forest"
LINEAR, TREES, PEER, ALL = "RFE, linear", "RFE, forest", "pyHSICLasso", "every column"
OURS = (DEFAULT, BACKWARD, FORWARD, LASSO)

Problem = tuple[np.ndarray, np.ndarray, int]  # X with the right columns first, y, how many


# --- problems -------------------------------------------------------------------------------------


def xor(n: int, rng: np.random.Generator) -> Problem:
    """The sign of a product: neither factor says anything alone."""
    X = rng.normal(size=(n, 2 + NOISE))
    return X, (X[:, 0] * X[:, 1] > 0).astype(int), 2


def nonlinear(n: int, rng: np.random.Generator) -> Problem:
    """Two classes of two clusters each in two of the columns (Weston et al. 2000)."""
    X = 20 * rng.normal(size=(n, 2 + NOISE))
    y, first = rng.integers(2, size=n), rng.integers(2, size=n).astype(bool)
    one = np.where(first[:, None], (-0.75, -3.0), (0.75, 3.0))
    two = np.where(first[:, None], (3.0, -3.0), (-3.0, 3.0))
    X[:, :2] = np.where((y == 1)[:, None], one, two) + rng.normal(size=(n, 2))
    return X, y, 2


def rings(n: int, rng: np.random.Generator) -> Problem:
    """Three classes on three circles."""
    X = rng.normal(size=(n, 2 + NOISE))
    y, angle = rng.integers(3, size=n), rng.uniform(0, 2 * np.pi, n)
    radius = 1 + y + 0.15 * rng.normal(size=n)
    X[:, 0], X[:, 1] = radius * np.cos(angle), radius * np.sin(angle)
    return X, y, 2


def orange(n: int, rng: np.random.Generator) -> Problem:
    """Orange skin (Chen et al. 2017): normal points, or such with a squared norm of 9 to 16."""
    X, y = rng.normal(size=(n, 4 + NOISE)), np.arange(n) % 2
    shell: list[np.ndarray] = []
    while len(shell) < (y == 1).sum():
        Z = rng.normal(size=(20 * n, 4))
        size = (Z**2).sum(axis=1)
        shell.extend(Z[(size > 9) & (size < 16)])
    X[y == 1, :4] = shell[: int((y == 1).sum())]
    return X, y, 4


def additive(n: int, rng: np.random.Generator) -> Problem:
    """-2 sin(2a) + b² + c + exp(-d) and noise (Chen et al. 2017)."""
    X = rng.normal(size=(n, 4 + NOISE))
    y = -2 * np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + X[:, 2] + np.exp(-X[:, 3])
    return X, y + 0.5 * rng.normal(size=n), 4


def friedman(n: int, rng: np.random.Generator) -> Problem:
    """Friedman's first problem (1991)."""
    X = rng.uniform(size=(n, 5 + NOISE))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
    return X, y + 10 * X[:, 3] + 5 * X[:, 4] + rng.normal(size=n), 5


PROBLEMS: dict[str, Callable[[int, np.random.Generator], Problem]] = {
    "XOR": xor,
    "nonlinear": nonlinear,
    "rings": rings,
    "orange skin": orange,
    "additive": additive,
    "Friedman": friedman,
}


# --- ways to select -------------------------------------------------------------------------------


def ranked(method: str, X: np.ndarray, y: np.ndarray, k: int, seed: int) -> np.ndarray:
    """At least k features, best first."""
    if method in OURS:
        words = {DEFAULT: "auto", BACKWARD: "backward", FORWARD: "forward", LASSO: "lasso"}
        model = HSICSelector(k, method=words[method], random_state=seed, progress=False)
        return best(model.fit(X, y))
    if method == MUTUAL:
        from sklearn.feature_selection import mutual_info_classif, mutual_info_regression

        score = mutual_info_classif if y.dtype.kind == "i" else mutual_info_regression
        return np.argsort(-score(X, y, random_state=seed), kind="stable")
    return hsic_lasso_peer(X, y, k)


def best(selector: HSICSelector) -> np.ndarray:
    return np.argsort(selector.ranking_)


def forest(y: np.ndarray, trees: int, seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    kind = RandomForestClassifier if y.dtype.kind == "i" else RandomForestRegressor
    return kind(trees, random_state=seed)


def eliminated(
    model: Any, X: np.ndarray, y: np.ndarray, sizes: tuple[int, ...]
) -> dict[int, np.ndarray]:
    """Recursive feature elimination, each size from what the one before left."""
    from sklearn.feature_selection import RFE

    left, found = np.arange(X.shape[1]), {}
    for size in sizes:
        left = left[RFE(model, n_features_to_select=size, step=0.1).fit(X[:, left], y).support_]
        found[size] = left
    return found


@cache
def installed() -> bool:
    """Whether the peer is there."""
    try:
        _peer()
    except ImportError:
        return False
    return True


def _peer() -> Any:
    try:
        return import_module("pyHSICLasso")
    except ImportError as error:
        raise ImportError("this peer is pyHSICLasso: pip install pyHSICLasso") from error


def hsic_lasso_peer(X: np.ndarray, y: np.ndarray, k: int) -> np.ndarray:
    """pyHSICLasso's block lasso; it may find fewer than k."""
    state = np.random.get_state()  # noqa: NPY002  (it seeds NumPy's global generator)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # rows beyond whole blocks are left out
            model = _peer().HSICLasso()
            model.input(X, y)
            fit = model.classification if y.dtype.kind == "i" else model.regression
            fit(k, B=20, M=3, n_jobs=1)
    finally:
        np.random.set_state(state)  # noqa: NPY002
    return np.array(model.get_index(), dtype=int)
