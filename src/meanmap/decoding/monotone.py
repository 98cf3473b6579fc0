"""Spreads of beliefs under distribution functions made monotone, where their arrays live."""

from __future__ import annotations

import numpy as np

from meanmap.arrays import Array, in_precision, namespace, spans, to_double

BLOCK = 1 << 22  # heights in memory at a time


def monotone_variance(weights: Array, values: Array) -> Array:
    """Variances of beliefs (m, n) in each column of values (n, q), (m, q).

    F of weights that swing need not increase. Half way between the least function above it and the
    greatest below that do increase is nearly the isotonic regression that quantiles are read from,
    and is found for all beliefs at once. The positive part of the weights would be far too wide:
    they swing everywhere.
    """
    xp, like = namespace(weights), weights
    weights, values, parts = to_double(weights), to_double(values), []
    for rows in spans(weights.shape[0], max(1, BLOCK // weights.shape[1])):
        some = weights[rows]
        some = xp.where(xp.sum(some, axis=1, keepdims=True) > 0, some, abs(some))
        columns = []
        for j in range(values.shape[1]):
            column = values[:, j]
            order = xp.argsort(column, stable=True)
            F = xp.cumulative_sum(xp.take(some, order, axis=1), axis=1)
            top = F[:, -1:]
            one = xp.ones_like(top)
            F = F / xp.where(top > 0, top, one)
            below = -xp.flip(running_maximum(-xp.flip(F, axis=1)), axis=1)
            F = xp.clip((running_maximum(F) + below) / 2, 0.0, 1.0)[:, :-1]
            p = xp.concat([F, one], axis=1) - xp.concat([0 * one, F], axis=1)
            found = _variance_under(p, xp.take(column, order))
            # all of F on one value: the weights know less than that
            known = _variance_under(xp.clip(some, min=0), column)
            columns.append(xp.where(found > 0, found, known))
        parts.append(xp.stack(columns, axis=1))
    return in_precision(xp.concat(parts), like)


def _variance_under(p: Array, x: Array) -> Array:
    """The variance of x (n,) under each row of weights p ≥ 0."""
    xp = namespace(p)
    p = p / xp.sum(p, axis=1, keepdims=True)
    return xp.sum(p * (x - (p @ x)[:, None]) ** 2, axis=1)


def running_maximum(rows: Array) -> Array:
    """The largest of the numbers so far, along rows (m, n)."""
    if isinstance(rows, np.ndarray):
        return np.asarray(np.maximum.accumulate(rows, axis=1))
    xp, step = namespace(rows), 1
    while step < rows.shape[1]:  # the standard has no such scan, this takes few operations
        further = xp.maximum(rows[:, step:], rows[:, :-step])
        rows, step = xp.concat([rows[:, :step], further], axis=1), 2 * step
    return rows
