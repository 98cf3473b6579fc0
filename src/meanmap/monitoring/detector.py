"""How far the latest rows are from a reference: weighted means of features, per row, by component.

A component is a group of features: the means and the spread of all columns, a kernel on whole rows,
and each column by itself. Its statistic is the squared length of an exponentially weighted mean of
features, centred and whitened on the reference, for several rates at once: a kernel version of the
multivariate control chart (Lowry et al. 1992). Every statistic is put on the scale of a standard
normal variable (Wilson and Hilferty 1931), so that one threshold serves all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from meanmap.arrays import Points, count, spans, take
from meanmap.exceptions import ApproximationWarning, DataWarning, quiet, warn
from meanmap.frames import list_names
from meanmap.kernels import Kernel
from meanmap.kernels.defaults import default_kernel
from meanmap.monitoring.views import (
    Column,
    ColumnMoments,
    FeatureView,
    OneVariable,
    column_features,
)
from meanmap.spaces import PivotedCholesky
from meanmap.spaces.space import fit_space

TOGETHER = 64  # rows whose means are computed by one product
RATES = (1 / 4, 1 / 16, 1 / 64, 1 / 256)  # of forgetting: rows of influence are twice the inverse
SHARE = 8  # a mean forgets faster than this part of the reference
INSIDE = 0.9  # of the reference's rows, beyond which rows are pulled in
RIDGE = 0.1  # of the largest variance: how far small directions are whitened
FITTED = 2000  # rows of the reference that landmarks are chosen from
BASIS = PivotedCholesky(1e-3, max_rank=24)


@dataclass(frozen=True, eq=False)
class Component:
    """Some features, the column that they are of (None: of all), and how far they are whitened."""

    view: FeatureView
    column: int | None
    ridge: float
    width: int  # features


@dataclass(frozen=True, eq=False)
class Whitening:
    """Features in directions of the reference, far rows pulled in, and how large they are there."""

    mean: np.ndarray
    directions: np.ndarray
    members: np.ndarray  # which direction belongs to which component: ones and zeros
    radii: np.ndarray  # by component, how long a row can be
    middle: np.ndarray  # what is left of the mean when rows are pulled in
    total: np.ndarray  # by component: Σ w, the mean of its statistic, w the variances
    degrees: np.ndarray  # (Σ w)² / Σ w²

    @classmethod
    def of(cls, raw: np.ndarray, components: Sequence[Component], counts: np.ndarray) -> Whitening:
        """Of features of reference rows, each of which counts so often."""
        p = counts / counts.sum()
        mean = p @ raw
        centred, start = raw - mean, 0
        blocks = []
        for component in components:
            own, ridge = centred[:, start : start + component.width], component.ridge
            values, axes = np.linalg.eigh((own * p[:, None]).T @ own)
            kept = values > 1e-9 * max(values[-1], 1e-300)
            values, axes = values[kept], axes[:, kept]
            blocks.append(axes / np.sqrt(values + ridge * values[-1]))
            start += component.width
        members = block_diag(*[np.ones((block.shape[1], 1)) for block in blocks])
        rows = centred @ block_diag(*blocks)
        lengths = np.sqrt(rows**2 @ members)
        # rarer rows are all alike: a reference knows little of how far they go
        radii = np.array([_quantile(own, p, INSIDE) for own in lengths.T])
        rows *= np.minimum(1, radii / np.maximum(lengths, 1e-300)) @ members.T
        middle = p @ rows
        covariance = ((rows - middle) * p[:, None]).T @ (rows - middle)
        total = np.diagonal(covariance) @ members
        squares = np.diagonal(members.T @ covariance**2 @ members)
        return cls(mean, block_diag(*blocks), members, radii, middle, total, total**2 / squares)

    def apply(self, raw: np.ndarray) -> np.ndarray:
        """The features of rows on the scale of the reference."""
        rows = (raw - self.mean) @ self.directions
        lengths = np.sqrt(rows**2 @ self.members)
        rows *= np.minimum(1, self.radii / np.maximum(lengths, 1e-300)) @ self.members.T
        return rows - self.middle

    def scores(self, means: np.ndarray, rate: float) -> np.ndarray:
        """Squared lengths of weighted means (…, features), as normal scores by component."""
        lengths = ((2 - rate) / rate) * (means * means) @ self.members.astype(means.dtype)
        c = 2 / (9 * self.degrees)
        return (np.cbrt(lengths / self.total) - (1 - c)) / np.sqrt(c)


def _quantile(values: np.ndarray, p: np.ndarray, q: float) -> float:
    """The quantile of values with these probabilities."""
    order = np.argsort(values)
    return float(values[order][np.searchsorted(np.cumsum(p[order]), q * (1 - 1e-12))])


def weighted_means(
    rows: np.ndarray, rate: float, before: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Exponentially weighted means along the first axis, and the last one, which goes on."""
    out = np.empty_like(rows)
    for block in spans(len(rows), TOGETHER):
        part = rows[block]
        weights, fading = _weights(rate, rows.dtype.char)
        k = len(part)
        found = weights[:k, :k] @ part.reshape(k, -1) + fading[:k, None] * before.reshape(1, -1)
        out[block] = found.reshape(part.shape)
        before = out[block.stop - 1]
    return out, before


@lru_cache
def _weights(rate: float, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """What rows of a block, and the mean before it, weigh in each of its means."""
    age = np.arange(TOGETHER)[:, None] - np.arange(TOGETHER)
    weights = np.where(age >= 0, rate * (1 - rate) ** np.maximum(age, 0), 0.0)
    return weights.astype(kind), ((1 - rate) ** np.arange(1, TOGETHER + 1)).astype(kind)


@dataclass(frozen=True, eq=False)
class Detector:
    """Features chosen on a reference, and the limits of its scores."""

    components: tuple[Component, ...]
    names: tuple[str, ...]  # of the columns
    whitening: Whitening
    rates: tuple[float, ...]
    limits: np.ndarray  # of scores, by rate and component

    @classmethod
    def fit(cls, kernel: Kernel, points: Points, columns: Sequence[str]) -> tuple[Detector, Any]:
        """With features of the reference, from which a threshold is found."""
        n = count(points)
        some = np.sort(np.random.default_rng(0).permutation(n)[:FITTED])
        found, blocks = [], []
        for view, column, ridge in choose_components(kernel, take(points, some)):
            block = view.coordinates(points)
            if np.ptp(block, axis=0).any():
                found.append(Component(view, column, ridge, block.shape[1]))
                blocks.append(block)
        watched = {component.column for component in found}
        if not watched:
            raise ValueError("reference: all rows are equal, so that any other row is new.")
        flat = [
            repr(name) for i, name in enumerate(columns) if len(columns) > 1 and i not in watched
        ]
        if flat:
            warn(
                f"Not watched, as they are constant in the reference: {list_names(flat)}.",
                DataWarning,
            )
        raw = np.hstack(blocks)
        rates = tuple(rate for rate in RATES if SHARE / rate <= n) or RATES[:1]
        whitening = Whitening.of(raw, found, np.ones(n))
        limits = np.ones((len(rates), len(found)))
        return cls(tuple(found), tuple(columns), whitening, rates, limits), raw

    def with_limits(self, limits: np.ndarray) -> Detector:
        """The same with limits of its scores, by rate and component."""
        return replace(self, limits=limits)

    def features(self, points: Points) -> np.ndarray:
        """Features of points on the scale of the reference."""
        parts = [component.view.coordinates(points) for component in self.components]
        return self.whitening.apply(np.hstack(parts))

    def start(self) -> tuple[np.ndarray, ...]:
        """The weighted means before the first row."""
        return tuple(np.zeros(self.whitening.directions.shape[1]) for _ in self.rates)

    def scores(
        self, features: np.ndarray, means: tuple[np.ndarray, ...]
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """By row and component the largest part of its limit over all rates, and the last means."""
        best, after = np.full((len(features), len(self.components)), -np.inf), []
        for rate, before, limits in zip(self.rates, means, self.limits, strict=True):
            found, last = weighted_means(features, rate, before)
            best = np.maximum(best, self.whitening.scores(found, rate) / limits)
            after.append(last)
        return best, tuple(after)

    def change_point(self, features: np.ndarray, component: int) -> int:
        """How many of the latest rows are most unlike the reference together, by likelihood."""
        own = features[::-1, self.whitening.members[:, component] > 0]
        rows = np.arange(1, len(own) + 1)
        return int(np.argmax(np.sum(np.cumsum(own, axis=0) ** 2, axis=1) / rows)) + 1

    def columns_of(self, features: np.ndarray) -> dict[str, float]:
        """The score of each column in some rows, all with the same weight, largest first."""
        means = features.mean(axis=0)
        scores = self.whitening.scores(means, 2 / (1 + len(features)))
        found = {
            self.names[component.column]: float(score)
            for component, score in zip(self.components, scores, strict=True)
            if component.column is not None
        }
        return dict(sorted(found.items(), key=lambda item: -item[1]))


Choice = tuple[FeatureView, int | None, float]  # features, their column, and how far to whiten


def choose_components(kernel: Kernel, points: Points) -> list[Choice]:
    """What is watched: features with their columns and ridges."""
    with quiet(ApproximationWarning):
        own = fit_space(kernel.resolve(points), BASIS, points)[0]
        found: list[Choice] = [(FeatureView("kernel", (own,), ()), None, RIDGE)]
        if kernel.on_vectors:
            found.append((FeatureView("means", (ColumnMoments.of(points, False),), ()), None, 0.0))
            d = points.shape[1]
            columns: list[tuple[OneVariable, Kernel]] = [
                (Column(j), default_kernel(points[:, j : j + 1])) for j in range(d)
            ]
        else:
            columns = [(OneVariable(j), part) for j, part in enumerate(kernel.factors)]
        if len(columns) > 1:
            for j, (part, alone) in enumerate(columns):
                view = FeatureView("column", (column_features(alone, part.of(points), part),), ())
                found.append((view, j, RIDGE))
    return found
