"""What stands for a bag, and how a learner on bags chooses its settings: every method alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC

from meanmap.kernels import Expected, Gaussian, Kernel, OnEmbeddings, Weighted
from meanmap.learning import SupportMeasureClassifier

NONLINEAR, LINEAR = "support measures, Gaussian", "support measures, linear"
MEANS, MOMENTS, SETS, PIXELS = "means", "means and covariances", "set kernel", "pixels as a vector"
OURS = (NONLINEAR, LINEAR)
PEERS = (MEANS, MOMENTS, SETS)

# the middle first: of settings that do as well the first is taken
WIDTHS = (1.0, 0.5, 2.0, 0.25)  # times the median distance between points
OUTER = (1.0, 0.5, 2.0)  # times that between embeddings
COSTS = (1e2, 1e3, 10.0, 1e4, 1.0, 1e5)
STEPS = 20_000  # of the solver, at most: what is far from separable would take for ever at 1e5


def second_levels(method: str, X: Any) -> list[Kernel]:
    """The kernels between bags that a method chooses from, bandwidths those of its bags."""
    base = Expected(Gaussian())
    bags = base.check(singles(X))
    inner = base.resolve(bags, np.full(len(bags), 1 / len(bags))).kernel
    assert isinstance(inner, Gaussian)
    within = [Gaussian(factor * inner.bandwidth) for factor in WIDTHS]
    if method != NONLINEAR:
        return [Expected(kernel) for kernel in within]
    outer = [Gaussian(f"{factor}*median") for factor in OUTER]
    return [OnEmbeddings(kernel, profile) for kernel, profile in product(within, outer)]


def represented(method: str, bags: Sequence[Any]) -> Any:
    """What stands for the bags."""
    if method in OURS:
        return list(bags)
    if method == SETS:
        return [Weighted(*summed(bag)) for bag in bags]
    if method == PIXELS:
        return np.array([bag.weights for bag in bags])
    rows = []
    for bag in bags:
        points, w = summed(bag)
        w = w / w.sum()
        mean = w @ points
        spread = (points - mean).T @ (w[:, None] * (points - mean))
        rest = spread[np.triu_indices(len(mean))] if method == MOMENTS else []
        rows.append(np.concatenate([mean, rest]))
    return np.array(rows)


def summed(bag: Any) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights that do not sum to one: one per point, or a picture's ink in tenths."""
    if isinstance(bag, Weighted):
        return bag.points, 10 * bag.weights / bag.weights.max()
    return bag, np.ones(len(bag))


@dataclass(frozen=True)
class Held:
    """What settings are judged by: examples, their classes, and which of the folds they are in."""

    examples: Any
    y: np.ndarray
    fold: np.ndarray


def folded(y: np.ndarray, seed: int) -> np.ndarray:
    """One of three folds for each."""
    fold = np.empty(len(y), dtype=int)
    splits = StratifiedKFold(3, shuffle=True, random_state=seed)
    for i, (_, held) in enumerate(splits.split(y, y)):
        fold[held] = i
    return fold


def chosen(
    levels: Sequence[Kernel], X: Any, y: np.ndarray, fold: np.ndarray, held: Held | None = None
) -> tuple[float, Kernel, float]:
    """The best accuracy in folds, its kernel and its cost; each Gram matrix computed once.

    Judged by the examples of the fold left out, or by others that are held out for them.
    """
    best: tuple[float, Kernel, float] | None = None
    for level in levels:
        bags = level.check(singles(X))
        kernel, K = level.resolve_gram(bags, np.full(len(bags), 1 / len(bags)))
        Q, yq, fq = K, y, fold
        if held is not None:
            Q, yq, fq = kernel(singles(held.examples), bags), held.y, held.fold
        for cost in COSTS:
            right = []
            for i in range(3):
                train, test = fold != i, fq == i
                machine = SVC(C=cost, kernel="precomputed", max_iter=STEPS)
                machine.fit(K[np.ix_(train, train)], y[train])
                right.append(machine.score(Q[np.ix_(test, train)], yq[test]))
            if best is None or np.mean(right) > best[0]:
                best = float(np.mean(right)), level, cost
    assert best is not None
    return best


def singles(X: Any) -> Any:
    """Rows as bags of one."""
    return X[:, None] if isinstance(X, np.ndarray) else X


def accuracy(
    method: str, train: tuple[Any, np.ndarray], test: tuple[Any, np.ndarray], fold: np.ndarray
) -> float:
    """Settings chosen in folds of the training bags, and the accuracy on the others."""
    X, Q = (represented(method, bags) for bags, _ in (train, test))
    y = train[1]
    if method in (MEANS, MOMENTS):
        level, scale = X.mean(axis=0), X.std(axis=0)
        X, Q = ((Z - level) / np.where(scale > 0, scale, 1.0) for Z in (X, Q))
    _, level2, cost = chosen(second_levels(method, X), X, y, fold)
    model = SupportMeasureClassifier(level2=level2, C=cost, max_iter=STEPS)
    return float(model.fit(X, y).score(Q, test[1]))
