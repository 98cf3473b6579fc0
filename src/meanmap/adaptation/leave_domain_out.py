"""Settings judged on domains that were left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone

from meanmap import checks
from meanmap.adaptation.domains import DomainProblem
from meanmap.arrays import to_numpy
from meanmap.kernels import Kernel
from meanmap.statistics.gates import looks_like_classes

SEARCHED = 2000  # rows that are looked at
FOLDS = 10  # domains are left out in groups if there are more
NEIGHBOURS = 10

Judge = Callable[[np.ndarray, np.ndarray], float]  # a score of rows that were not seen


def search_left_out(
    kernels: Sequence[tuple[float, Kernel]],
    make: Callable[[Kernel], DomainProblem],
    directions: Callable[[DomainProblem, float], tuple[np.ndarray, float]],
    multiples: Sequence[float],
    judge: Judge,
) -> tuple[Kernel, float, np.ndarray]:
    """The kernel and multiple of t with the best score on domains left out, and all scores.

    `directions(problem, multiple)` are W and t. The first of equal scores is taken.
    """
    table: list[tuple[float, float, float]] = []
    for factor, kernel in kernels:
        whole = make(kernel)
        seen = folds(whole.code)
        scores = np.mean([fold(whole, s, directions, multiples, judge) for s in seen], 0)
        trade_offs = [directions(whole, multiple)[1] for multiple in multiples]
        table += [(factor, *row) for row in zip(trade_offs, scores, strict=True)]
    best = int(np.argmax([score for *_, score in table]))
    place, multiple = divmod(best, len(multiples))
    return kernels[place][1], multiples[multiple], np.array(table)


def fold(
    whole: DomainProblem,
    seen: np.ndarray,
    directions: Callable[[DomainProblem, float], tuple[np.ndarray, float]],
    multiples: Sequence[float],
    judge: Judge,
) -> np.ndarray:
    """Scores on the rows that were not seen, one per multiple."""
    mean, phi = whole.psi[seen].mean(axis=0), whole.phi
    if phi is not None:
        phi = phi[seen] - phi[seen].mean(axis=0)
    code = np.unique(whole.code[seen], return_inverse=True)[1]
    problem = replace(whole, psi=whole.psi[seen] - mean, code=code, phi=phi)
    scores = []
    for multiple in multiples:
        W, _ = directions(problem, multiple)
        if not W.shape[1]:
            scores.append(-np.inf)
            continue
        Z = (whole.psi - mean) @ W
        Z /= max(float(Z[seen].std()), 1e-300)
        scores.append(judge(Z, seen))
    return np.array(scores)


def judge_of(estimator: Any, y: Any, rows: np.ndarray) -> Judge | None:
    """What judges components of these rows by y; None if y is nothing for it."""
    if y is None or isinstance(y, tuple):
        return None
    labels = to_numpy(checks.plain(y, "y"))[rows]
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if estimator is not None:
        return lambda Z, seen: float(
            clone(estimator).fit(Z[seen], labels[seen]).score(Z[~seen], labels[~seen])
        )
    if looks_like_classes(labels):
        code = np.unique(labels, return_inverse=True)[1]
        table = np.eye(code.max() + 1)[code]
        return lambda Z, seen: float(
            (neighbours(Z, table, seen).argmax(axis=1) == code[~seen]).mean()
        )
    if labels.dtype.kind in "fiub" and labels.ndim <= 2:
        numbers = labels.reshape(len(labels), -1).astype(float)
        numbers = numbers - numbers.mean(axis=0)
        total = max(float((numbers**2).mean()), 1e-300)
        return lambda Z, seen: float(
            1 - ((neighbours(Z, numbers, seen) - numbers[~seen]) ** 2).mean() / total
        )
    return None


def neighbours(Z: np.ndarray, table: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """The mean of the table over the nearest rows seen, for every other row."""
    known, new = Z[seen], Z[~seen]
    k = min(NEIGHBOURS, len(known))
    far = (known**2).sum(axis=1) - 2 * new @ known.T
    near = np.argpartition(far, k - 1, axis=1)[:, :k]
    return table[seen][near].mean(axis=1)


def rows_of_every_domain(code: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """At most 2,000 rows, as many of every domain where it has them."""
    if len(code) <= SEARCHED:
        return np.arange(len(code))
    each = max(SEARCHED // (int(code.max()) + 1), 2)
    parts = [rng.permutation(np.flatnonzero(code == i))[:each] for i in range(code.max() + 1)]
    return np.sort(np.concatenate(parts))


def folds(code: np.ndarray) -> list[np.ndarray]:
    """Which rows are seen when a domain, or a group of domains, is left out."""
    return [code % FOLDS != k for k in range(min(int(code.max()) + 1, FOLDS))]
