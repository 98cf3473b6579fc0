"""Labels that depend on the points as much as they can: sweeps, single moves and starts.

In centred coordinates ψᵢ with weights wᵢ let S_c = Σ wᵢψᵢ over the points of label c, and W_c their
weight. With features F of the labels, A = FFᵀ, the dependence tr(HKH ΠAΠᵀ) of Song, Smola, Gretton
and Borgwardt (2007) is Σ_q ‖S̃_q‖², S̃ = FᵀS. Normalised it is Σ_q ‖S̃_q‖²/W̃_q, W̃ = |F|ᵀW: k-means
for F = I, the sum of the scatters that all branches of a tree leave, or the energy of a
self-organising map (Heskes 1999) for labels on a graph. Both are convex functions of the assignment
Π. A convex function lies above its tangents, so putting every point at once where the tangent is
highest never lowers it: for F = I that is a step of k-means. When no point wants to move by the
tangent, single points are moved by the exact gain, which is larger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.optimize import quadratic_assignment
from sklearn.utils.extmath import randomized_svd

from meanmap.arrays import TILE, spans
from meanmap.exceptions import SettingWarning, quiet
from meanmap.learning.neighbour_graph import NeighbourGraph

ROUNDING = 1e-12  # of the points' scatter: a smaller gain is rounding error
EMPTY = 1e-12  # of all weight: a cluster with less is empty

Sums = tuple[np.ndarray, np.ndarray]  # S and W


class Objective(Protocol):
    """A dependence of points and labels, as a function of the labels' sums."""

    F: np.ndarray

    def value(self, S: np.ndarray, W: np.ndarray) -> float:
        """The dependence."""

    def tangent(self, S: np.ndarray, W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Slopes T and levels t: a point scores T_c·ψ + t_c with label c."""

    def gains(
        self, Z: np.ndarray, w: np.ndarray, at: np.ndarray, S: np.ndarray, W: np.ndarray
    ) -> np.ndarray:
        """What is gained exactly if one of the points moves from its label `at` to each other."""


class Plain:
    """Σ ‖S̃_q‖², which is Σ A_cd S_c·S_d."""

    def __init__(self, F: np.ndarray) -> None:
        self.F = F
        self.A = F @ F.T

    def value(self, S: np.ndarray, W: np.ndarray) -> float:
        return float(np.sum(self.A * (S @ S.T)))

    def tangent(self, S: np.ndarray, W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.A @ S, np.zeros(len(S))

    def gains(
        self, Z: np.ndarray, w: np.ndarray, at: np.ndarray, S: np.ndarray, W: np.ndarray
    ) -> np.ndarray:
        P = Z @ (self.A @ S).T
        here = np.arange(len(Z)), at
        own = np.diag(self.A)
        apart = own[at][:, None] + own - 2 * self.A[at]
        size = np.einsum("ij,ij->i", Z, Z)
        return 2 * w[:, None] * (P - P[here][:, None]) + (w * w * size)[:, None] * apart


class BySize:
    """Σ ‖S̃_q‖²/W̃_q: what the features explain of the points' scatter."""

    def __init__(self, F: np.ndarray) -> None:
        self.F = F
        self.share = abs(F)

    def value(self, S: np.ndarray, W: np.ndarray) -> float:
        squares, over = self._parts(S, W)[1:]
        return float(squares @ over)

    def _parts(self, S: np.ndarray, W: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """S̃, ‖S̃_q‖² and 1/W̃_q, nothing where no point has the feature."""
        sums, weight = self.F.T @ S, self.share.T @ W
        there = weight > EMPTY
        over = np.where(there, 1 / np.where(there, weight, 1.0), 0.0)
        return sums, np.einsum("ij,ij->i", sums, sums), over

    def tangent(self, S: np.ndarray, W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sums, squares, over = self._parts(S, W)
        return (self.F * over) @ sums, -0.5 * self.share @ (squares * over * over)

    def gains(
        self, Z: np.ndarray, w: np.ndarray, at: np.ndarray, S: np.ndarray, W: np.ndarray
    ) -> np.ndarray:
        sums, squares, over = self._parts(S, W)
        weight, before = self.share.T @ W, squares @ over
        P, size = Z @ sums.T, np.einsum("ij,ij->i", Z, Z)
        found = np.empty((len(Z), len(self.F)))
        for rows in spans(len(Z), max(1, TILE // self.F.size)):
            v = w[rows, None, None]
            f = v * (self.F - self.F[at[rows], None])  # how much of ψ each feature gets
            ahead = weight + v * (self.share - self.share[at[rows], None])
            top = squares + 2 * f * P[rows, None] + f * f * size[rows, None, None]
            there = ahead > EMPTY
            share = np.where(there, top / np.where(there, ahead, 1.0), 0.0)
            found[rows] = share.sum(axis=2) - before
        found[np.arange(len(Z)), at] = 0.0
        return found


@dataclass(frozen=True)
class Ascent:
    """Where a start led: labels, the objective after every sweep, whether it had come to rest."""

    labels: np.ndarray
    history: tuple[float, ...]
    converged: bool


def sums(Z: np.ndarray, w: np.ndarray, labels: np.ndarray, k: int) -> Sums:
    """S and W of every label."""
    hot = np.zeros((len(Z), k))
    hot[np.arange(len(Z)), labels] = w
    return hot.T @ Z, hot.sum(axis=0)


def ascend(
    Z: np.ndarray,
    w: np.ndarray,
    labels: np.ndarray,
    objective: Objective,
    max_iter: int,
    tol: float = 0.0,
) -> Ascent:
    """Sweep until no point wants another label, or the objective grows by less than `tol` of it."""
    labels, k = labels.copy(), len(objective.F)
    scatter = float(w @ np.einsum("ij,ij->i", Z, Z))
    S, W = sums(Z, w, labels, k)
    history = [objective.value(S, W)]
    rows = np.arange(len(Z))
    for _ in range(max_iter):
        T, level = objective.tangent(S, W)
        scores = Z @ T.T + level
        best = scores.argmax(axis=1)
        better = scores[rows, best] > scores[rows, labels] + ROUNDING * scatter
        moved = int(better.sum())
        if moved:
            labels = np.where(better, best, labels)
            S, W = sums(Z, w, labels, k)
        else:
            moved = _single_moves(Z, w, labels, S, W, objective, ROUNDING * scatter)
            S, W = sums(Z, w, labels, k)  # afresh, so that rounding does not add up
        history.append(objective.value(S, W))
        if not moved or history[-1] - history[-2] < tol * abs(history[-1]):
            return Ascent(labels, tuple(history), True)
    return Ascent(labels, tuple(history), False)


def _single_moves(
    Z: np.ndarray,
    w: np.ndarray,
    labels: np.ndarray,
    S: np.ndarray,
    W: np.ndarray,
    objective: Objective,
    least: float,
) -> int:
    """Move points one by one, by what is gained exactly; labels, S and W change in place."""
    gains = objective.gains(Z, w, labels, S, W).max(axis=1)
    moved = 0
    for i in np.argsort(-gains)[: int((gains > least).sum())]:
        at = labels[i : i + 1]
        found = objective.gains(Z[i : i + 1], w[i : i + 1], at, S, W)[0]  # others have moved since
        a, b = int(at[0]), int(found.argmax())
        if found[b] <= least:
            continue
        step = w[i] * Z[i]
        S[a] -= step
        S[b] += step
        W[a] -= w[i]
        W[b] += w[i]
        labels[i] = b
        moved += 1
    return moved


# --- starts ---------------------------------------------------------------------------------------


def spread_labels(Z: np.ndarray, w: np.ndarray, k: int, rng: np.random.RandomState) -> np.ndarray:
    """Labels by the nearest of k points far from each other (Arthur and Vassilvitskii 2007)."""
    size = np.einsum("ij,ij->i", Z, Z)
    near = np.full(len(Z), np.inf)
    labels = np.zeros(len(Z), dtype=np.int64)
    chance = w
    for c in range(k):
        total = chance.sum()
        if not total > 0:  # no more points that differ
            break
        at = int(np.searchsorted(np.cumsum(chance), rng.uniform() * total, side="right"))
        at = min(at, len(Z) - 1)
        distance = np.maximum(size - 2 * Z @ Z[at] + size[at], 0.0)
        distance[distance < 1e-12 * (size + size[at])] = 0.0
        closer = distance < near
        labels[closer] = c
        near = np.where(closer, distance, near)
        chance = w * near
    return labels


def principal(Z: np.ndarray, w: np.ndarray, q: int, rng: np.random.RandomState) -> np.ndarray:
    """The q principal coordinates of the points."""
    root = np.sqrt(w)[:, None]
    _, _, V = randomized_svd(Z * root, max(1, min(q, *Z.shape)), random_state=rng)
    return Z @ V.T


def order_labels(labels: np.ndarray, Z: np.ndarray, w: np.ndarray, A: np.ndarray) -> np.ndarray:
    """Clusters named so that near ones get similar labels: a quadratic assignment."""
    S, _ = sums(Z, w, labels, len(A))
    scale = float(abs(S @ S.T).max()) or 1.0
    # from the barycentre nothing is left to chance; a generator keeps SciPy from the global one
    options = {"maximize": True, "rng": np.random.default_rng(0)}
    return quadratic_assignment(S @ S.T / scale, A, options=options).col_ind[labels]


def align_labels(
    P: np.ndarray, w: np.ndarray, A: np.ndarray, turn: bool, rng: np.random.RandomState
) -> np.ndarray:
    """Labels by principal coordinates of points and of labels, laid over each other.

    The labels' coordinates are those of the centred A, which is what dependence sees of it;
    `turn` lays them over each other in a random way, and in all directions.
    """
    centred = A - A.mean(axis=0) - A.mean(axis=1)[:, None] + A.mean()
    s, V = np.linalg.eigh(centred)
    # the direction in which labels differ most: one along a chain, two equal ones on a ring
    least = (1e-9 if turn else 0.9) * max(float(s[-1]), 1e-300)
    q = min(P.shape[1], int((s > least).sum()))
    if not q:
        return np.zeros(len(P), dtype=np.int64)
    B = (V * np.sqrt(np.maximum(s, 0)))[:, ::-1][:, :q]
    B = B / np.sqrt((B * B).mean(axis=0))
    spread_of = np.sqrt(w @ (P[:, :q] ** 2))
    points = P[:, :q] / np.where(spread_of > 0, spread_of, 1.0)
    if turn:
        Q, R = np.linalg.qr(rng.normal(size=(q, q)))
        points = points @ (Q * np.sign(np.diag(R)))
    return np.argmax(points @ B.T - 0.5 * np.sum(B * B, axis=1), axis=1)


def along(P: np.ndarray, neighbours: int, rng: np.random.RandomState) -> np.ndarray:
    """The two smoothest functions on the graph of near points: along curves, however bent."""
    with quiet(SettingWarning):  # parts are joined: good enough to start from
        graph = NeighbourGraph.of(P, min(neighbours, len(P) - 1))
    return graph.smooth(min(2, len(P) - 1), rng)[1]


def fill_labels(labels: np.ndarray, Z: np.ndarray, w: np.ndarray, k: int) -> np.ndarray:
    """Labels without points get one each, the farthest from the centre of its cluster."""
    labels = labels.copy()
    for c in np.setdiff1d(np.arange(k), labels):
        S, W = sums(Z, w, labels, k)
        far = np.sum((Z - (S / np.where(W > 0, W, 1.0)[:, None])[labels]) ** 2, axis=1)
        far[np.bincount(labels, minlength=k)[labels] < 2] = -1.0
        if far.max() <= ROUNDING * np.sum(Z * Z, axis=1).max():
            break  # all points that differ have labels of their own
        labels[int(far.argmax())] = c
    return labels


def start(
    Z: np.ndarray, w: np.ndarray, objective: Objective, turn: int, rng: np.random.RandomState
) -> np.ndarray:
    """Labels to start from: principal coordinates, curves, points far apart and chance, in turn."""
    A, k = objective.F @ objective.F.T, len(objective.F)
    flat = BySize(np.eye(k))
    ordinary = np.array_equal(A, flat.F)  # no label is nearer to one than to another
    if not ordinary and turn % 4 < 2 and len(Z) > 2:
        if turn % 4 == 0:
            P = principal(Z, w, 2, rng)
        else:
            P = along(principal(Z, w, 2 * k, rng), (10, 5, 20)[turn // 4 % 3], rng)
        return fill_labels(align_labels(P, w, A, turn > 1, rng), Z, w, k)
    if not ordinary and turn % 4 == 3:
        return fill_labels(rng.randint(k, size=len(Z)), Z, w, k)
    where = Z
    if turn == 0:
        where = principal(Z, w, k - 1, rng)
    elif ordinary and turn % 3 == 2:  # along one coordinate, which tells a ring from what is inside
        P = principal(Z, w, 2 * k, rng)
        where = P[:, rng.randint(P.shape[1])][:, None]
    labels = ascend(where, w, spread_labels(where, w, k, rng), flat, 20).labels
    return labels if ordinary else order_labels(labels, Z, w, A)


__all__ = ["Ascent", "BySize", "Objective", "Plain", "ascend", "start", "sums"]
