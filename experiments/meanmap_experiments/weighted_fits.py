"""One pair of samples: weights, proportions, and what models make of them."""

from __future__ import annotations

import numpy as np
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

from meanmap.adaptation import KernelMeanMatching, TargetShift
from meanmap_experiments.shifted_samples import (
    black_box,
    breast_cancer_split,
    digits_split,
    likeliest,
    numbers_split,
    toy_regression,
)

NONE, TRUE = "no weights", "true ratio"
MATCHING, TEXTBOOK = "mean matching", "mean matching, ridge 0"
PREDICTIVE, EMBEDDING = "target shift", "target shift, in the embedding"
BOX, BOX_SVC = "black box, logistic", "black box, SVC"
LIKELIEST = "maximum likelihood, logistic"
COUNTED = "test labels counted"
WEIGHTINGS = (NONE, MATCHING, TEXTBOOK, TRUE)
CORRECTIONS = (NONE, PREDICTIVE, EMBEDDING, BOX, BOX_SVC, LIKELIEST, TRUE)
OF_NUMBERS = (NONE, PREDICTIVE, EMBEDDING, TRUE)

CORRELATION, ERROR, SIZE = "correlation", "error of weights", "effective size"
MACHINE, LOGISTIC, LINE, CURVE = "SVC", "logistic regression", "line", "kernel ridge"
L1, ADJUSTED, REFITTED, COVERED = "L1 error", "adjusted", "refitted", "covered"
CS = (0.01, 0.1, 1.0, 10.0)
LEVEL = 0.9  # of intervals

Found = dict[tuple[str, str], float]  # by measure and method


def matched(X: np.ndarray, T: np.ndarray, ratio: np.ndarray, state: int) -> dict[str, np.ndarray]:
    """Weights by method."""
    return {
        NONE: np.ones(len(X)),
        MATCHING: KernelMeanMatching(random_state=state).fit(X, X_test=T).weights_,
        TEXTBOOK: KernelMeanMatching(ridge=0, random_state=state).fit(X, X_test=T).weights_,
        TRUE: ratio,
    }


def of_weights(weights: dict[str, np.ndarray], ratio: np.ndarray) -> Found:
    """How near weights are to the true ratio, and how many rows they leave."""
    found = {}
    for method, w in weights.items():
        found[SIZE, method] = float(w.sum() ** 2 / (w @ w) / len(w))
        if method not in (NONE, TRUE):
            found[CORRELATION, method] = float(np.corrcoef(w, ratio)[0, 1]) if w.std() else 0.0
            found[ERROR, method] = float(np.linalg.norm(w - ratio) / np.linalg.norm(1 - ratio))
    return found


def covariate(folds: int, bias: str, index: int, rng: np.random.Generator) -> Found:
    column = index % 30
    while True:
        X, y, T, z, ratio = breast_cancer_split(bias, rng, column)
        if np.bincount(y, minlength=2).min() >= folds:
            break
    weights = matched(X, T, ratio, index)
    found = of_weights(weights, ratio)
    for label, plain in ((MACHINE, SVC()), (LOGISTIC, LogisticRegression(max_iter=1000))):
        model = GridSearchCV(plain, {"C": CS}, cv=folds).fit(X, y).best_estimator_
        for method, w in weights.items():
            found[label, method] = 1 - float(model.fit(X, y, sample_weight=w).score(T, z))
    return found


def toy(folds: int, rows: int, index: int, rng: np.random.Generator) -> Found:
    X, y, T, _, ratio = toy_regression(rng, rows)
    _, _, fresh, z, _ = toy_regression(rng, 1, 5000)
    weights = matched(X, T, ratio, index)
    found = of_weights(weights, ratio)
    for method, w in weights.items():
        line = LinearRegression().fit(X, y, sample_weight=w)
        found[LINE, method] = float(np.mean((line.predict(fresh) - z) ** 2))
    return found


def classes(folds: int, name: tuple[str, float], index: int, rng: np.random.Generator) -> Found:
    X, y, T, z, truth = digits_split(name[0], rng, noise=name[1])
    logistic, machine = (
        GridSearchCV(plain, {"C": CS}, cv=folds, scoring=scoring).fit(X, y).best_estimator_
        for plain, scoring in (
            (LogisticRegression(max_iter=500), "neg_log_loss"),  # its probabilities are used
            (SVC(), "accuracy"),
        )
    )
    table = logistic.predict_proba(T)
    before = np.bincount(y, minlength=10) / len(y)
    found: Found = {(L1, COUNTED): float(abs(np.bincount(z, minlength=10) / len(z) - truth).sum())}
    shares = {NONE: before, TRUE: truth, LIKELIEST: likeliest(table, before)}
    shares |= {BOX: black_box(logistic, X, y, T), BOX_SVC: black_box(machine, X, y, T)}
    for method, metric in ((PREDICTIVE, "predictive"), (EMBEDDING, "embedding")):
        shift = TargetShift(metric=metric, random_state=index).fit(X, y, X_test=T)
        low, high = shift.interval(LEVEL).T
        found[COVERED, method] = float(np.mean((low <= truth) & (truth <= high)))
        shares[method] = shift.proportions_
    for method, p in shares.items():
        found[L1, method] = float(abs(p - truth).sum())
        ratio = p / before
        found[ADJUSTED, method] = float(np.mean((table * ratio).argmax(axis=1) == z))
        again = logistic.fit(X, y, sample_weight=np.maximum(ratio, 1e-6)[y])
        found[REFITTED, method] = float(again.score(T, z))
    return found


def numbers(folds: int, name: str, index: int, rng: np.random.Generator) -> Found:
    X, y, T, z, ratio, mean = numbers_split(name, rng)
    weights = {NONE: np.ones(len(y)), TRUE: ratio}
    found: Found = {}
    for method, metric in ((PREDICTIVE, "predictive"), (EMBEDDING, "embedding")):
        shift = TargetShift(metric=metric, random_state=index).fit(X, y, X_test=T)
        low, high = shift.interval(LEVEL)[0]
        found[COVERED, method] = float(low <= mean <= high)
        weights[method] = shift.weights_
    found |= of_weights(weights, ratio)
    ridges = {"alpha": np.logspace(-3, 2, 6)}
    widths = {"gamma": np.array([0.02, 0.1, 0.5]) / X.var(axis=0).sum()}
    for label, plain, grid in (
        (LINE, Ridge(), ridges),
        (CURVE, KernelRidge(kernel="rbf"), ridges | widths),
    ):
        centre = y.mean()  # kernel ridge has no intercept
        model = GridSearchCV(plain, grid, cv=folds, scoring="neg_mean_squared_error")
        best = model.fit(X, y - centre).best_estimator_
        for method, w in weights.items():
            best.fit(X, y - centre, sample_weight=w)
            found[label, method] = float(np.mean((best.predict(T) + centre - z) ** 2))
    return found
