"""Exact discrete tables: P is P(x, y), (s_x, s_y), and prior is pi(x), (s_x,)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from oracles.linalg import Array


def table_marginals(P: Array) -> tuple[Array, Array]:
    """``P(x)`` and ``P(y)``."""
    return P.sum(axis=1), P.sum(axis=0)


def table_conditional(P: Array) -> Array:
    """``P(y|x)``, rows x, (s_x, s_y) (000, eq. 9, which has it transposed)."""
    result = np.empty_like(P)
    for x in range(P.shape[0]):
        result[x] = P[x] / P[x].sum()
    return result


def table_chain(P: Array, prior: Array) -> Array:
    """``Q(x, y) = P(y|x) pi(x)``, (s_x, s_y) (000, eq. 17)."""
    return table_conditional(P) * np.asarray(prior)[:, None]


def table_sum(P: Array, prior: Array) -> Array:
    """``Q(y) = sum_x P(y|x) pi(x)``, (s_y,) (000, section 4.1)."""
    return table_chain(P, prior).sum(axis=0)


def table_bayes(P: Array, prior: Array) -> Array:
    """``Q(x|y) = P(y|x) pi(x) / Q(y)``, (s_x, s_y): columns sum to one (000, section 4.3)."""
    Q = table_chain(P, prior)
    result = np.empty_like(Q)
    for y in range(P.shape[1]):
        result[:, y] = Q[:, y] / Q[:, y].sum()
    return result


def random_table(
    rng: np.random.Generator,
    states_x: int,
    states_y: int,
    minimum: float = 0.01,
    concentration: float = 1.0,
) -> Array:
    """Draw a table P(x, y) whose marginals are all at least ``minimum``.

    A small ``concentration`` gives tables near zero in many cells.
    """
    while True:
        cells = rng.gamma(concentration, size=(states_x, states_y))
        P = cells / cells.sum()
        if min(P.sum(axis=0).min(), P.sum(axis=1).min()) >= minimum:
            return P


def random_prior(rng: np.random.Generator, states: int, minimum: float = 0.01) -> Array:
    """Draw a distribution whose probabilities are all at least ``minimum``."""
    return minimum + (1 - minimum * states) * rng.dirichlet(np.ones(states))


def random_counts(
    rng: np.random.Generator, states_x: int, states_y: int, n: int, minimum: float = 0.01
) -> NDArray[np.int64]:
    """Draw a table of n integer counts whose marginals are all at least ``minimum * n``."""
    while True:
        P = random_table(rng, states_x, states_y, minimum)
        counts = rng.multinomial(n, P.ravel()).reshape(P.shape)
        if min(counts.sum(axis=0).min(), counts.sum(axis=1).min()) >= minimum * n:
            return counts


def table_to_cells(P: Array) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
    """Express a table as weighted cells ``(x, y, w)``, one point per nonzero cell."""
    x, y = np.nonzero(P)
    return x, y, P[x, y]


def counts_to_sample(
    counts: NDArray[np.int64], rng: np.random.Generator | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Express a table of counts as a sample ``(x, y)`` with exactly these counts.

    Ordered by cell, or shuffled where ``rng`` is given; its table is ``counts / counts.sum()``.
    """
    x, y = np.nonzero(counts)
    x, y = np.repeat(x, counts[x, y]), np.repeat(y, counts[x, y])
    if rng is not None:
        order = rng.permutation(len(x))
        x, y = x[order], y[order]
    return x, y
