"""Training and test samples of different distributions, with the ratio of their densities."""

from __future__ import annotations

import numpy as np
from scipy.stats import norm
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.model_selection import cross_val_predict

# --- P(x) differs ---------------------------------------------------------------------------------

FEATURE, JOINT, LABEL = "one feature", "all features", "the class"
BIASES = (FEATURE, JOINT, LABEL)
RARE, FREQUENT = (0.2, 0.8), (0.1, 0.9)  # chances of Huang and others, by feature and by class

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def breast_cancer_split(
    bias: str, rng: np.random.Generator, column: int | None = None, test: float = 0.5
) -> Split:
    """X, y, test X, test y and the ratio at the rows of X.

    Test rows are drawn at random. A row of the others is kept for training with a chance that
    depends on a feature (is it above its median?), on all of them (exp(-σ‖x - mean‖²), σ one over
    the median of ‖x - mean‖²), or on the class.

    Examples
    --------
    >>> X, y, T, z, ratio = breast_cancer_split("one feature", np.random.default_rng(0), column=3)
    >>> X.shape[1], len(T), np.unique(ratio).tolist()
    (30, 284, [0.625, 2.5])
    """
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    if bias == FEATURE:
        i = int(rng.integers(X.shape[1])) if column is None else column
        chance = np.where(np.median(X[:, i]) >= X[:, i], *RARE)
        overall = float(np.mean(RARE))
    elif bias == JOINT:
        squared = (X**2).sum(axis=1)
        chance = np.exp(-squared / np.median(squared))
        overall = float(chance.mean())
    elif bias == LABEL:
        chance = np.where(y == 1, *FREQUENT)
        overall = float(chance.mean())
    else:
        raise ValueError(f"there is no bias {bias!r}. There are: {', '.join(BIASES)}.")
    order = rng.permutation(len(X))
    held, rest = np.split(order, [round(test * len(X))])
    kept = rest[rng.random(len(rest)) < chance[rest]]
    return X[kept], y[kept], X[held], y[held], overall / chance[kept]


def toy_regression(
    rng: np.random.Generator, rows: int = 100, test_rows: int | None = None
) -> Split:
    """Huang and others' curve, x - x³ upside down: x, y, test x, test y, ratio at x.

    Examples
    --------
    >>> X, y, T, z, ratio = toy_regression(np.random.default_rng(0), 5000)
    >>> X.shape, bool(abs(ratio.mean() - 1) < 0.1)
    ((5000, 1), True)
    """
    before, after = norm(0.5, 0.5), norm(0.0, 0.3)
    x = before.rvs(rows, random_state=rng)
    t = after.rvs(test_rows or rows, random_state=rng)
    y, z = (-v + v**3 + 0.3 * rng.normal(size=len(v)) for v in (x, t))
    return x[:, None], y, t[:, None], z, after.pdf(x) / before.pdf(x)


# --- P(y) differs ---------------------------------------------------------------------------------

SPREAD, MILD, ONE, SAME = "Dirichlet(1)", "Dirichlet(10)", "one class half", "no shift"
SHIFTS = (SPREAD, MILD, ONE, SAME)


def proportions(shift: str, classes: int, rng: np.random.Generator) -> np.ndarray:
    """Shares of classes, none above a half."""
    if shift == SAME:
        return np.full(classes, 1 / classes)
    if shift == ONE:
        p = np.full(classes, 0.5 / (classes - 1))
        p[rng.integers(classes)] = 0.5
        return p
    if shift not in SHIFTS:
        raise ValueError(f"there is no shift {shift!r}. There are: {', '.join(SHIFTS)}.")
    while True:
        p = rng.dirichlet(np.full(classes, 1.0 if shift == SPREAD else 10.0))
        if p.max() <= 0.5:
            return p


def digits_split(
    shift: str,
    rng: np.random.Generator,
    rows: int = 600,
    test_rows: int = 200,
    noise: float = 0.0,
) -> Split:
    """X, y, test X, test y and the classes' true proportions in the test distribution.

    Training rows are drawn at random, test rows from the others by class, none twice. Pixels are
    between 0 and 1; noise is the deviation of what is added to each.

    Examples
    --------
    >>> X, y, T, z, p = digits_split("one class half", np.random.default_rng(0))
    >>> X.shape, T.shape, float(p.max())
    ((600, 64), (200, 64), 0.5)
    """
    X, y = load_digits(return_X_y=True)
    X = X / 16 + noise * rng.normal(size=X.shape)
    order = rng.permutation(len(X))
    train, rest = np.split(order, [rows])
    there = np.bincount(y[rest], minlength=10)
    p = proportions(shift, 10, rng)
    wanted = rng.multinomial(test_rows, p)
    while (wanted > there).any():
        wanted = rng.multinomial(test_rows, p)
    parts = [rest[y[rest] == c][:k] for c, k in enumerate(wanted)]
    test = rng.permutation(np.concatenate(parts))
    return X[train], y[train], X[test], y[test], p


BENT, DIABETES = "bent line", "diabetes"
NUMBERS = (BENT, DIABETES)


def numbers_split(
    name: str, rng: np.random.Generator, rows: int = 400
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
    """X, y, test X, test y, the ratio at the targets y, and the mean of y where it has shifted.

    The bent line is x = y + 3 tanh(y) + noise of deviation 1.5, as in Zhang and others (2013), and
    y goes from N(0, 2²) to N(1.5, 1). Diabetes: half of the rows for training, and of the others
    the severe cases are kept with a larger chance, logistic in y.

    Examples
    --------
    >>> X, y, T, z, ratio, mean = numbers_split("diabetes", np.random.default_rng(0))
    >>> X.shape, bool(z.mean() > y.mean()), bool(0.7 < ratio.mean() < 1.3)
    ((221, 10), True, True)
    """
    if name == BENT:
        before, after = norm(0, 2), norm(1.5, 1)
        y, z = before.rvs(rows, random_state=rng), after.rvs(rows, random_state=rng)
        X, T = ((v + 3 * np.tanh(v) + 1.5 * rng.normal(size=len(v)))[:, None] for v in (y, z))
        return X, y, T, z, after.pdf(y) / before.pdf(y), 1.5
    if name != DIABETES:
        raise ValueError(f"there is no data {name!r}. There are: {', '.join(NUMBERS)}.")
    X, y = load_diabetes(return_X_y=True)
    X, y = X / X.std(axis=0), (y - y.mean()) / y.std()
    chance = 1 / (1 + np.exp(-3 * (y - 0.5)))
    train, rest = np.array_split(rng.permutation(len(X)), 2)
    test = rest[rng.random(len(rest)) < chance[rest]]
    ratio = chance[train] / chance.mean()
    return X[train], y[train], X[test], y[test], ratio, float(chance @ y / chance.sum())


# --- what others do -------------------------------------------------------------------------------


def black_box(model: object, X: np.ndarray, y: np.ndarray, T: np.ndarray) -> np.ndarray:
    """Proportions of classes by inverting the confusion matrix (Lipton, Wang and Smola 2018).

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y, T, z, p = digits_split("one class half", np.random.default_rng(0))
    >>> q = black_box(LogisticRegression(max_iter=200), X, y, T)
    >>> bool(abs(q - p).sum() < 0.4)
    True
    """
    classes, row = np.unique(y, return_inverse=True)
    k = len(classes)
    said = np.searchsorted(classes, cross_val_predict(model, X, y, cv=5))
    confusion = np.bincount(k * said + row, minlength=k * k).reshape(k, k) / len(y)
    fresh = np.searchsorted(classes, model.fit(X, y).predict(T))  # type: ignore[attr-defined]
    seen = np.bincount(fresh, minlength=k) / len(T)
    w = np.linalg.lstsq(confusion, seen, rcond=None)[0].clip(min=0)  # their eq. 5, cut at 0
    p: np.ndarray = w * np.bincount(row) / len(y)
    return p / p.sum()


def likeliest(table: np.ndarray, before: np.ndarray, steps: int = 500) -> np.ndarray:
    """Proportions of highest likelihood given P(y|x) of test rows (Saerens and others 2002).

    Examples
    --------
    >>> likeliest(np.eye(2)[[0, 0, 0, 1]], np.array([0.5, 0.5])).tolist()
    [0.75, 0.25]
    """
    p = before
    for _ in range(steps):
        scaled = table * (p / before)
        p = (scaled / scaled.sum(axis=1, keepdims=True)).mean(axis=0)
    return p
