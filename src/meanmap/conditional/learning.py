"""Learned kernels: a scale for each column, chosen with λ by leave-one-out.

The conditional embedding is a ridge regression of features of y, `targets`, on ψ(x). In the
coordinates of m landmarks p, with `K = k(X, P)`, `W = k(P, P)` and weights `D = diag(w)`,

    a = (KᵀDK + λW)⁻¹ KᵀD T,    hᵢ = wᵢ kᵢᵀ (KᵀDK + λW)⁻¹ kᵢ,    eᵢ = (tᵢ - kᵢᵀa)/(1 - hᵢ),

and `Σ wᵢ ‖eᵢ‖²` is the error of leaving one out. Its gradient in the scales and in λ costs as much
as the error itself: with G its derivative in K, that in a scale needs, of one column,
`Σᵢⱼ (G ∘ k′)ᵢⱼ (xᵢ - pⱼ)²`, which is three matrix products.

Targets in which y itself is half, and coordinates of an energy kernel on y the other half, score
the mean and the whole distribution: the error in the latter is the continuous ranked probability
score of the conditional weights. For the mean alone the marginal likelihood of a Gaussian process
is the better loss where it holds: at n = 200 the distributions that it leads to are closer to the
truth, by a tenth in CRPS on smooth functions of several columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import LinAlgError
from scipy.linalg.blas import dtrmm
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtri
from scipy.optimize import minimize, minimize_scalar

from meanmap.conditional.selection import copy_groups
from meanmap.kernels import Energy
from meanmap.kernels.bandwidths import OpenScales, column_scales
from meanmap.linalg import covariance
from meanmap.spaces import PivotedCholesky
from meanmap.spaces.space import fit_space_quietly

MANY = 10_000  # rows that copies are looked for in
ROWS, LANDMARKS = 500, 150  # that scales are learned on
FINE_ROWS, FINE_LANDMARKS, FINE_STEPS = 3000, 600, 12  # that they are refined on, at last
START_ROWS, START_LANDMARKS = 250, 80  # of the first look
FACTORS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)  # of the median distance, looked at first
START = (1e-6, 1e-4, 1e-2)  # λ, looked at first
REACH = 7.0  # of the logarithm of λ, around the best of these
LEAST, MOST = 0.02, 1e4  # times the median distance: a scale
WIDEST = 0.3  # of the range of a single column: wider kernels extrapolate like polynomials
PER_SCALE = 10  # rows for every single scale, at least
SLACK = 1.5  # of the logarithm of a scale: where its pull is strongest
STEP = 0.01  # of the logarithm of a scale: finer differences are chance
LAMBDA = (-16.1, 2.0)  # logarithms of λ
SETTLED = 1e-4  # of the logarithm of an error, that a step must gain
STEPS = 60
FIRST_STEPS, MORE_STEPS = 5, 15  # of a rougher kernel, and more where it comes near
LIKELIER = 2.0  # logarithm of the likelihood ratio that a rougher kernel must have
CLIP = 30.0  # median deviations, at which y is clipped as a target
COORDINATES = 30  # of targets in the energy kernel
JITTER = 1e-8  # added to the landmarks' kernel matrix, whose determinant is needed
ROUNDING = 1e-10  # of the trace, added to the operator that is factorised
ALONE = 1e-6  # 1 - hᵢ of a row that alone decides the answer at its own point

#: Derivatives in k(X, P) and in log λ, computed when called.
Slopes = Callable[[], tuple[np.ndarray, float]]


def standardize_targets(y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Columns about their means, clipped, over their deviations; constant ones are left out."""
    away = y - np.median(y, axis=0)
    scale = np.median(abs(away), axis=0)  # of a normal, two thirds of its deviation
    away = np.where(scale > 0, np.clip(away, -CLIP * scale, CLIP * scale), away)
    away = away - w @ away
    deviation = np.sqrt(w @ (away * away))
    varies = deviation > ROUNDING * abs(y).max(axis=0, initial=0.0)
    return away[:, varies] / deviation[varies]


def energy_targets(y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Coordinates in an energy kernel: the squared error there is the ranked probability score."""
    kernel = Energy(tuple(np.median(y, axis=0)), tuple(column_scales(y, w)))
    _, psi = fit_space_quietly(kernel.resolve(y), PivotedCholesky(1e-4, COORDINATES), y, w)
    psi = psi - w @ psi
    return psi / max(float(np.sqrt(w @ (psi * psi).sum(axis=1))), np.finfo(float).tiny)


def distinct_rows(columns: np.ndarray, y: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, Any]:
    """Different rows in random order, no more than scales are learned on, with their weights."""
    group = copy_groups(columns, y, 2.0**-52)
    rows = np.arange(len(w))
    if group is not None:
        rows = np.sort(np.unique(group, return_index=True)[1])
        w = np.bincount(group, w)[group]
    rows = rows[np.random.default_rng(0).permutation(len(rows))[:FINE_ROWS]]
    return rows, w[rows] / w[rows].sum()


def law_targets(y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Targets of which y itself is half, and its distribution the other half."""
    z = standardize_targets(y, w)
    return np.hstack([z / max(z.shape[1], 1) ** 0.5, energy_targets(y, w)])


@dataclass
class LandmarkLoss(ABC):
    """A loss with its gradient at (log scales, log λ), in the coordinates of landmarks.

    `pull` draws log scales towards `anchor`, less and less the further off they are: a column that
    does not matter may have any scale that is large enough.
    """

    scales: OpenScales
    targets: np.ndarray  # (n, q), of mean 0
    weights: np.ndarray  # (n,), of sum 1
    landmarks: int  # the first rows, which are in random order
    pull: float = 0.0
    anchor: float = 0.0
    #: Times the number of rows, the pull that scales need.
    shrink: ClassVar[float] = 0.5

    def __post_init__(self) -> None:
        self.x = self.scales.columns
        self.x2 = self.x * self.x
        self.p, self.p2 = self.x[: self.landmarks], self.x2[: self.landmarks]
        self.w = self.weights[:, None]
        self.wT = self.w * self.targets
        # fresh memory would cost as much as what is computed in it
        self.room = np.empty((4, len(self.x), self.landmarks))
        self._kept: tuple[bytes, Any] = b"", None

    @abstractmethod
    def prepare(self, K: np.ndarray) -> Any:
        """What does not depend on λ; `W = k(P, P)` is the first rows of K."""

    @abstractmethod
    def of(self, K: np.ndarray, prepared: Any, lam: float) -> tuple[float, Slopes]:
        """The loss, and its derivatives in K and in log λ, if they are needed before the next."""

    def solve(self, place: np.ndarray) -> tuple[float, Slopes | None]:
        """The loss, scales drawn together, and derivatives; infinite where it is undefined."""
        logs = place[:-1]
        try:
            value, slopes = self.of(*self.at(logs)[:2], float(np.exp(place[-1])))
        except LinAlgError:
            return np.inf, None
        away = (logs - self.anchor) / SLACK
        return value + self.pull * SLACK**2 * float(np.log1p(away * away).sum()), slopes

    def value(self, place: np.ndarray) -> float:
        """The loss alone, which costs a fraction of its gradient."""
        return self.solve(place)[0]

    def __call__(self, place: np.ndarray) -> tuple[float, np.ndarray]:
        logs = place[:-1]
        value, slopes = self.solve(place)
        if slopes is None:
            return value, np.zeros_like(place)
        dK, own = slopes()
        dK *= self.at(logs)[2]
        groups = np.zeros_like(self.scales.groups) if len(logs) == 1 else self.scales.groups
        by_column = self.by_column(dK) * self.sharpness(logs)
        gradient = np.append(np.bincount(groups, by_column, len(logs)), own)
        away = logs - self.anchor
        gradient[:-1] += 2 * self.pull * away / (1 + (away / SLACK) ** 2)
        return value, gradient

    def sharpness(self, logs: np.ndarray) -> np.ndarray:
        """1/σ² of every column."""
        g = np.exp(-2 * (logs if len(logs) == 1 else logs[self.scales.groups]))
        return np.broadcast_to(g, self.x.shape[1:])

    def at(self, logs: np.ndarray) -> tuple[np.ndarray, Any, np.ndarray]:
        """K, what is prepared of it, and its slopes; kept, as several λ are tried with the same."""
        if self._kept[0] != logs.tobytes():
            g = self.sharpness(logs)
            squared = np.matmul(self.x * (-2 * g), self.p.T, out=self.room[0])
            squared += (self.x2 @ g)[:, None]
            squared += self.p2 @ g
            K, slope = self.scales.unit.tangent(np.maximum(squared, 0.0, out=squared))
            self._kept = logs.tobytes(), (K, self.prepare(K), slope)
        return self._kept[1]

    def by_column(self, G: np.ndarray) -> np.ndarray:
        """`Σᵢⱼ Gᵢⱼ (xᵢ - pⱼ)²` of each column."""
        cross = np.einsum("id,id->d", self.x, G @ self.p)
        return self.x2.T @ G.sum(axis=1) + self.p2.T @ G.sum(axis=0) - 2 * cross


class LeaveOneOutLoss(LandmarkLoss):
    """The logarithm of the leave-one-out error, over that of the mean alone."""

    shrink = 4.0  # it adapts more to chance than a likelihood does

    def prepare(self, K: np.ndarray) -> Any:
        return covariance(K, self.weights, self.room[1])

    def of(self, K: np.ndarray, prepared: Any, lam: float) -> tuple[float, Slopes]:
        T, w, m = self.targets, self.w, self.landmarks
        total = float(np.vdot(self.wT, T))
        A = prepared + lam * K[:m]
        A.flat[:: m + 1] += ROUNDING * np.trace(A) / m
        J = inverse_factor(lower_factor(A))
        V = times_triangle(K, J, self.room[1], transpose=True)
        b = V.T @ self.wT
        R = T - V @ b
        inverse = 1 / np.maximum(1 - w * np.einsum("ij,ij->i", V, V)[:, None], ALONE)
        E = inverse * R
        squares = np.einsum("ij,ij->i", E, E)[:, None]
        error = max(float(np.vdot(w, squares)), np.finfo(float).tiny)

        def slopes() -> tuple[np.ndarray, float]:
            # derivatives in R and in h, then in K, in the operator A and in W
            U, v = w * inverse * E, w * w * squares * inverse
            Z, a = times_triangle(V, J, self.room[2]), J.T @ b
            B = Z.T @ U
            S, M = B @ a.T, covariance(Z, v[:, 0], self.room[3])
            dA = (S + S.T) / 2 - M
            rounding = ROUNDING * np.trace(dA) / m
            dA.flat[:: m + 1] += rounding
            S -= 2 * M
            S.flat[:: m + 1] += 2 * rounding
            dK = np.matmul(K, S, out=self.room[3])
            dK *= w
            Z *= 2 * v
            dK += Z
            dK -= np.matmul(np.hstack([U, w * R]), np.hstack([a, B]).T, out=Z)
            dK[:m] += lam * dA
            dK *= 2 / error
            return dK, 2 / error * lam * float(np.vdot(dA, K[:m]))

        return float(np.log(error / total)), slopes


class LikelihoodLoss(LandmarkLoss):
    """`-2 log p(T)/n` of a Gaussian process with noise λ, its variance the likeliest.

    With `W = LLᵀ` and `V = K L⁻ᵀ`, `log |VVᵀ + nλI|` is `log |VᵀDV + λI| - m log λ` but for a
    constant, and `tᵀ(VVᵀ + nλI)⁻¹t` the product of t with what the regression leaves of it.
    """

    def prepare(self, K: np.ndarray) -> Any:
        W = K[: self.landmarks].copy()
        W.flat[:: self.landmarks + 1] += JITTER
        Q = inverse_factor(lower_factor(W))
        V = times_triangle(K, Q, self.room[1], transpose=True)
        return Q, V, covariance(V, self.weights, self.room[2]), V.T @ self.wT

    def of(self, K: np.ndarray, prepared: Any, lam: float) -> tuple[float, Slopes]:
        (Q, V, C, b), m, share = prepared, self.landmarks, self.targets.shape[1] / len(K)
        C = C.copy()
        C.flat[:: m + 1] += lam
        factor = lower_factor(C)
        a = dpotrs(factor, b, lower=True)[0]
        R = self.targets - V @ a
        left = np.maximum((self.wT * R).sum(axis=0), np.finfo(float).tiny)
        size = 2 * np.log(factor.diagonal()).sum() - m * np.log(lam)

        def slopes() -> tuple[np.ndarray, float]:
            # derivatives in V and in L, then in K and in W
            J, over = inverse_factor(factor), a / left
            H = share * (J.T @ J)
            dK = np.matmul(V, H @ Q, out=self.room[2])
            dK -= np.matmul(R, (Q.T @ over).T, out=self.room[3])
            dK *= 2 * self.w
            dC = lam * (a @ over.T + H)
            own = float(np.trace(dC)) - share * m
            dC.flat[:: m + 1] -= share
            dK[:m] += Q.T @ dC @ Q
            return dK, own

        return float(np.log(left).sum() + share * size), slopes


def lower_factor(matrix: np.ndarray) -> np.ndarray:
    """L, the Cholesky factor of a symmetric matrix, which is overwritten.

    Straight from LAPACK: what SciPy does around it takes as long as a hundred rows.
    """
    factor, failed = dpotrf(matrix.T, lower=True, overwrite_a=True)
    if failed:
        raise LinAlgError
    return factor


def inverse_factor(factor: np.ndarray) -> np.ndarray:
    """L⁻¹: products with it round about as solves do, and take half the time."""
    return dtrtri(factor, lower=True)[0]


def times_triangle(
    rows: np.ndarray, J: np.ndarray, out: np.ndarray, transpose: bool = False
) -> np.ndarray:
    """`rows J`, or `rows Jᵀ`, for a lower triangular J, written into `out`."""
    np.copyto(out, rows)
    dtrmm(1.0, J, out.T, lower=True, trans_a=not transpose, overwrite_b=True)
    return out


@dataclass(frozen=True)
class ScaleSearch:
    """The search for scales of least loss, given the targets that they are learned from.

    The median distance, unless a better shared scale is worth it, and that unless single ones are:
    the loss must fall by more than chance makes it fall, by Akaike's criterion. Single ones start
    from the shared one and are drawn towards it.
    """

    kind: type[LandmarkLoss]
    scales: OpenScales  # rows in random order
    targets: np.ndarray
    weights: np.ndarray
    unit: float  # the median distance of rows
    regularization: float | None  # λ, if it is given

    def loss(self, rows: int, landmarks: int, anchor: float | None = None) -> LandmarkLoss:
        """The loss on the first rows; log scales are drawn to that of the median distance."""
        v = self.weights[:rows] / self.weights[:rows].sum()
        T = self.targets[:rows] - v @ self.targets[:rows]
        part = replace(self.scales, columns=self.scales.columns[:rows])
        pull = self.kind.shrink / min(len(self.weights), ROWS)
        anchor = float(np.log(self.unit)) if anchor is None else anchor
        return self.kind(part, T, v, min(landmarks, len(v)), pull, anchor)

    @cached_property
    def _bounds(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Of the logarithms of scales, and of λ."""
        most = self.unit * MOST
        if self.scales.size == 1:
            most = max(self.unit, WIDEST * float(np.ptp(self.scales.columns)))
        own = self.regularization
        lam = LAMBDA if own is None else (float(np.log(max(own, 1e-300))),) * 2
        return (float(np.log(self.unit * LEAST)), float(np.log(most))), lam

    def descend(
        self, loss: LandmarkLoss, start: np.ndarray, steps: int = STEPS
    ) -> tuple[float, np.ndarray]:
        """The least loss from a start on, and its place."""
        reach, lam = self._bounds
        found = minimize(
            loss,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=[reach] * (len(start) - 1) + [lam],
            options={"maxiter": steps, "ftol": SETTLED},
        )
        return float(found.fun), found.x

    def settle(self, loss: LandmarkLoss, start: np.ndarray) -> tuple[float, np.ndarray]:
        """The least loss near a start with its scales as they are, and its place."""
        low, high = np.clip((start[-1] - REACH, start[-1] + REACH), *self._bounds[1])

        def place(log_lambda: float) -> np.ndarray:
            return np.append(start[:-1], log_lambda)

        if low < high:
            found = minimize_scalar(
                lambda at: loss.value(place(at)), bounds=(low, high), options={"xatol": REACH / 50}
            )
            start = place(found.x)
        return loss.value(start), start

    def first_places(self) -> tuple[np.ndarray, np.ndarray]:
        """The best of a few values of λ with the median distance, and with multiples of it too."""
        (_, most), lam = self._bounds
        widths = np.minimum(np.log(self.unit) + np.log(FACTORS), most)
        lambdas = np.unique(np.clip(np.log(START), *lam))
        tried = np.array([[(width, at) for at in lambdas] for width in widths])
        loss = self.loss(START_ROWS, START_LANDMARKS)
        values = np.apply_along_axis(loss.value, 2, tried)
        own = FACTORS.index(1.0)
        return tried[own][values[own].argmin()], tried.reshape(-1, 2)[values.argmin()]

    def run(self) -> np.ndarray:
        """Logarithms of the scales, one if they are shared, and of λ."""
        if not self.targets.any():  # a constant has nothing to learn from
            return np.array([np.log(self.unit), 0.0])
        n, size = min(len(self.weights), ROWS), self.scales.size
        loss = self.loss(ROWS, LANDMARKS)
        usual, shared = self.first_places()
        error, best = self.settle(loss, usual)
        lower, shared = self.descend(loss, shared)
        if n / 2 * (error - lower) > 1:
            error, best = lower, shared
        if 1 < size <= n / PER_SCALE:
            loss.anchor = shared[0]
            start = np.append(np.full(size, shared[0]), shared[-1])
            lower, single = self.descend(loss, start)
            best = single if n / 2 * (error - lower) > size - 1 else best
        return best

    def run_rougher(self, place: np.ndarray) -> tuple[ScaleSearch, np.ndarray]:
        """This search and its place, or those of a kernel that is less smooth and likelier."""
        rough = self.scales.rougher
        if rough is None or not self.targets.any():
            return self, place
        rival, anchor = replace(self, scales=rough), float(np.median(place[:-1]))
        n = min(len(self.weights), ROWS)
        bar = self.loss(ROWS, LANDMARKS, anchor).value(place) - 2 * LIKELIER / n
        loss = rival.loss(ROWS, LANDMARKS, anchor)
        lower, at = rival.descend(loss, place, FIRST_STEPS)
        if n / 2 * (lower - bar) < 2 * LIKELIER:
            lower, at = rival.descend(loss, at, MORE_STEPS)
        return (rival, at) if lower < bar else (self, place)

    def refine(self, place: np.ndarray) -> np.ndarray:
        """A few more steps on more rows, where there are more."""
        if len(self.weights) <= ROWS or place[0] == np.log(self.unit):
            return place
        anchor = float(np.median(place[:-1]))
        rows = min(len(self.weights), FINE_ROWS)
        loss = self.loss(rows, int(np.clip(rows / 4, LANDMARKS, FINE_LANDMARKS)), anchor)
        return self.descend(loss, place, FINE_STEPS)[1]

    def scales_at(self, place: np.ndarray) -> np.ndarray:
        """The scales of all groups."""
        steps = np.round((place[:-1] - np.log(self.unit)) / STEP)
        return np.broadcast_to(self.unit * np.exp(STEP * steps), self.scales.size)
