"""Which shift is it? How often `shift_report` without targets of test rows names it right.

Four mechanisms, several laws each, written down before the report was tuned. Answers are right, a
tie that has the right one among its candidates ("cannot tell"), or wrong.

    python benchmarks/shift_kinds.py [runs a law] [rows]
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from meanmap.report import ShiftReport

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]  # training rows, their targets, test rows
Law = Callable[[int, np.random.Generator], Rows]
Random = np.random.Generator


def halfplane(x: np.ndarray, rng: Random, noise: float = 0.5) -> np.ndarray:
    """Two classes on either side of a line through the first two columns."""
    return (x[:, 0] - x[:, 1] + noise * rng.normal(size=len(x)) > 0).astype(int)


def two_clouds(n: int, share: float, rng: Random) -> tuple[np.ndarray, np.ndarray]:
    """Two classes, two deviations apart in one column and one in another."""
    y = (rng.random(n) < share).astype(int)
    return y[:, None] * [2.0, 1.0, 0.0] + rng.normal(size=(n, 3)), y


# --- no shift -------------------------------------------------------------------------------------


def same_normal(n: int, rng: Random) -> Rows:
    X, T = rng.normal(size=(2, n, 3))
    return X, halfplane(X, rng), T


def same_skewed(n: int, rng: Random) -> Rows:
    X, T = rng.gamma(2.0, size=(2, n, 4))
    return X, X[:, 0] + 0.5 * rng.normal(size=n), T


# --- covariate shift: P(y|x) is the same ----------------------------------------------------------


def other_mean(n: int, rng: Random) -> Rows:
    X, T = rng.normal(size=(2, n, 3))
    T[:, 0] += 1.0
    return X, halfplane(X, rng), T


def selection(n: int, rng: Random) -> Rows:
    """Rows with a large first column are more likely to be met."""
    X, many = rng.normal(size=(n, 3)), rng.normal(size=(8 * n, 3))
    kept = rng.random(len(many)) < 1 / (1 + np.exp(-3 * many[:, 0]))
    return X, halfplane(X, rng), many[kept][:n]


def segments(n: int, rng: Random) -> Rows:
    """Three groups of customers in other shares; classes lie across the groups."""
    centres = np.array([[0.0, 0.0], [4.0, 0.0], [2.0, 3.5]])

    def drawn(shares: list[float]) -> np.ndarray:
        return centres[rng.choice(3, size=n, p=shares)] + 0.7 * rng.normal(size=(n, 2))

    X, T = drawn([0.6, 0.3, 0.1]), drawn([0.2, 0.3, 0.5])
    return X, (np.sin(3 * X[:, 0]) + 0.3 * rng.normal(size=n) > 0).astype(int), T


def narrower(n: int, rng: Random) -> Rows:
    """Numbers as targets; the test rows lie in a part of the training rows' range."""
    X, T = rng.uniform(-2, 2, size=(n, 3)), rng.uniform(-2, 2, size=(n, 3))
    T[:, 0] = 2 * rng.beta(4, 2, size=n) * rng.choice([-1, 1], size=n, p=[0.2, 0.8])
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n), T


def along_the_target(n: int, rng: Random) -> Rows:
    """The column that moves is the one that the classes depend on."""
    X, T = rng.normal(size=(2, n, 2))
    T[:, 0] += 1.0
    return X, (X[:, 0] + 0.5 * rng.normal(size=n) > 0).astype(int), T


# --- target shift: P(x|y) is the same -------------------------------------------------------------


def more_of_one(n: int, rng: Random) -> Rows:
    X, y = two_clouds(n, 0.3, rng)
    return X, y, two_clouds(n, 0.7, rng)[0]


def three_classes(n: int, rng: Random) -> Rows:
    centres = 1.8 * np.eye(3, 4)
    y, z = rng.choice(3, n, p=[0.6, 0.3, 0.1]), rng.choice(3, n, p=[0.2, 0.3, 0.5])
    X, T = (centres[c] + rng.normal(size=(n, 4)) for c in (y, z))
    return X, y, T


def numbers(n: int, rng: Random) -> Rows:
    y, z = rng.normal(size=n), rng.normal(0.9, 0.7, size=n)
    X, T = (
        np.column_stack([v + 0.4 * rng.normal(size=n), v**2 + 0.4 * rng.normal(size=n)])
        for v in (y, z)
    )
    return X, y, T


def skewed_classes(n: int, rng: Random) -> Rows:
    y, z = rng.random(n) < 0.5, rng.random(n) < 0.85
    X, T = (rng.gamma(np.where(c[:, None], 5.0, 1.5), size=(n, 3)) for c in (y, z))
    return X, y.astype(int), T


# --- location-scale shift: the same things, measured otherwise ------------------------------------


def another_gain(n: int, rng: Random) -> Rows:
    X, T = rng.normal(size=(2, n, 3))
    T[:, 0] = 1.5 * T[:, 0] + 1.0
    return X, halfplane(X, rng), T


def skewed_gain(n: int, rng: Random) -> Rows:
    X, T = rng.gamma(2.0, size=(2, n, 4))
    T[:, :2] = 1.4 * T[:, :2] + 0.7
    return X, X[:, 0] + X[:, 2] + 0.5 * rng.normal(size=n), T


def another_zero(n: int, rng: Random) -> Rows:
    """Two clouds, both moved: by half their distance, across the line between them."""
    X, y = two_clouds(n, 0.5, rng)
    return 1.5 * X, y, 1.5 * two_clouds(n, 0.5, rng)[0] + [1.0, -1.5, 1.0]


def another_unit(n: int, rng: Random) -> Rows:
    X, T = 10 + rng.normal(size=(2, n, 3))
    return X, halfplane(X, rng), 2.54 * T


LAWS: dict[str, tuple[Law, ...]] = {
    "no shift": (same_normal, same_skewed),
    "covariate shift": (other_mean, selection, segments, narrower, along_the_target),
    "target shift": (more_of_one, three_classes, numbers, skewed_classes),
    "location-scale shift": (another_gain, skewed_gain, another_zero, another_unit),
}


def judged(truth: str, report: ShiftReport) -> str:
    """Right, a tie with the right one in it, or wrong."""
    if report.kind == truth:
        return "right"
    return "cannot tell" if truth in report.candidates else "wrong"


def main(runs: int = 5, n: int = 400) -> None:
    from meanmap.report import shift_report

    for truth, laws in LAWS.items():
        each = runs * 4 // len(laws)  # about as many of each mechanism
        total: Counter[str] = Counter()
        for law in laws:
            found: Counter[str] = Counter()
            for seed in range(each):
                X, y, T = law(n, np.random.default_rng(seed))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    report = shift_report(X, T, y, rng=seed, progress=False)
                found[" or ".join(report.candidates) or report.kind] += 1
                total[judged(truth, report)] += 1
            print(f"  {law.__name__}: {dict(found)}", flush=True)
        print(f"{truth}, n = {n}: {dict(total)} of {sum(total.values())}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
