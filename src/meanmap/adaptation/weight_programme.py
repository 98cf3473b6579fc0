"""Weights whose embedding is nearest to a given one: a quadratic programme, solved in its dual.

    minimise  ½‖Σ wᵢβᵢψᵢ - m‖² + (ρ/2) Σ wᵢ(βᵢ - β₀)²   subject to  0 ≤ βᵢ ≤ B,  l ≤ Σ wᵢβᵢ ≤ u

for row weights w that sum to one. Its dual has one variable a coordinate, however many rows there
are. It is concave and once differentiable, and its gradient is piecewise linear: Newton's method
(Qi and Sun 1993) ends after a few steps, each a solve with the covariance of the rows whose β is
strictly between the bounds. Where ρ > 0 the answer is a function, β(ψ) = clip(β₀ - (ψ·y + ν)/ρ),
that new rows have too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

LEAST_RIDGE = 1e-14  # of k(x, x), about 1: less is rounding
ARMIJO = 1e-4
HALVINGS = 40
PROXIMAL = 1e-3  # ρ of the steps that lead to the solution for ρ = 0


def default_bound(n: int) -> float:
    """The largest weight of n rows where none is given."""
    return min(max(n**0.5, 10.0), 1000.0)


def enough_ridge(value: float, remedy: str) -> float:
    """A ridge that rounding does not swallow, or none."""
    if 0 < value < LEAST_RIDGE:
        raise ValueError(f"ridge must be at least {LEAST_RIDGE:g}, got {value!r}. {remedy}")
    return value


@dataclass(frozen=True)
class WeightProgramme:
    """Rows of coordinates, the embedding to match, and the constraints."""

    psi: np.ndarray  # (n, r)
    w: np.ndarray  # (n,)
    target: np.ndarray  # (r,)
    ridge: float  # ρ > 0
    most: float  # B
    least_mean: float  # l
    most_mean: float  # u
    centre: np.ndarray | float = 0.0  # β₀

    def at(self, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, float, bool]:
        """-D(y), its gradient, β, ν/ρ, and whether the mean is at one of its bounds."""
        free = self.centre - self.psi @ y / self.ridge
        shift, bound = self.shift(free)
        beta = np.clip(free - shift, 0, self.most)
        nu = shift * self.ridge
        gradient = y + self.target - (self.w * beta) @ self.psi
        inner = (self.psi @ y + nu) * beta + self.ridge / 2 * (beta - self.centre) ** 2
        support = max(self.least_mean * nu, self.most_mean * nu)
        value = 0.5 * y @ y + y @ self.target + support - self.w @ inner
        return float(value), gradient, beta, shift, bound

    def shift(self, free: np.ndarray) -> tuple[float, bool]:
        """s with mean clip(free - s) between l and u: 0 if it is so already."""
        mean = float(self.w @ np.clip(free, 0, self.most))
        if self.least_mean <= mean <= self.most_mean:
            return 0.0, False
        goal = self.least_mean if mean < self.least_mean else self.most_mean
        # the mean falls along pieces of straight lines; they meet where a weight leaves a bound
        at = np.concatenate([free - self.most, free])
        order = np.argsort(at)
        slope = np.cumsum(np.concatenate([self.w, -self.w])[order])
        at = at[order]
        means = self.most - np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(at))])
        k = int(np.clip(np.searchsorted(-means, -goal), 1, len(at) - 1))
        s = at[k - 1] + (means[k - 1] - goal) / max(slope[k - 1], np.finfo(float).tiny)
        return float(np.clip(s, at[k - 1], at[k])), True

    def objective(self, beta: np.ndarray) -> float:
        """What is minimised."""
        gap = (self.w * beta) @ self.psi - self.target
        return float(0.5 * gap @ gap + self.ridge / 2 * (self.w @ (beta - self.centre) ** 2))

    def elsewhere(self, solution: WeightSolution, psi: np.ndarray) -> np.ndarray:
        """β of other rows, for a β₀ that is one number."""
        free = self.centre - psi @ solution.dual / self.ridge
        return np.clip(free - solution.shift, 0, self.most)


@dataclass(frozen=True)
class WeightSolution:
    """Weights, the dual point that they come from, and how far they may be from the best."""

    beta: np.ndarray
    dual: np.ndarray
    shift: float  # ν/ρ, of the constraint on the mean
    gap: float  # of the objective, certified
    steps: int
    converged: bool


def solve_dual(
    programme: WeightProgramme,
    start: np.ndarray | None = None,
    tolerance: float = 1e-9,
    max_iter: int = 100,
) -> WeightSolution:
    """Newton's method on the dual, to a gap of `tolerance` times ½‖m‖²."""
    y = np.zeros(programme.psi.shape[1]) if start is None else start
    value, gradient, beta, shift, bound = programme.at(y)
    scale = max(0.5 * float(programme.target @ programme.target), np.finfo(float).tiny)
    gap, step = np.inf, 0
    for step in range(1, max_iter + 1):
        gap = programme.objective(beta) + value  # primal less dual
        if gap <= tolerance * scale:
            return WeightSolution(beta, y, shift, gap, step, True)
        between = (beta > 0) & (beta < programme.most)
        U, w = programme.psi[between], programme.w[between]
        if bound and len(U):
            U = U - (w / w.sum()) @ U  # the mean of β stays
        direction = -_ridge_solve(np.sqrt(w)[:, None] * U, programme.ridge, gradient)
        slope, length = float(gradient @ direction), 1.0
        for _ in range(HALVINGS):
            there = programme.at(y + length * direction)
            if there[0] <= value + ARMIJO * length * slope:
                break
            length /= 2
        else:  # no progress but rounding
            break
        y = y + length * direction
        value, gradient, beta, shift, bound = there
    gap = programme.objective(beta) + value
    return WeightSolution(beta, y, shift, gap, step, gap <= tolerance * scale)


def solve_without_ridge(
    programme: WeightProgramme, tolerance: float = 1e-9, max_iter: int = 100
) -> WeightSolution:
    """ρ = 0, by proximal points: each problem keeps near to the last one's answer."""
    scale = max(0.5 * float(programme.target @ programme.target), np.finfo(float).tiny)
    current = replace(programme, ridge=PROXIMAL * scale, centre=1.0)
    found = solve_dual(current, tolerance=tolerance / 10, max_iter=max_iter)
    steps = found.steps
    gap = _plain_gap(programme, found.beta)
    for _ in range(max_iter):
        if gap <= tolerance * scale:
            break
        current = replace(current, ridge=max(current.ridge / 3, 1e-9 * scale), centre=found.beta)
        found = solve_dual(current, found.dual, tolerance / 10, max_iter)
        steps += found.steps
        gap = _plain_gap(programme, found.beta)
    return replace(found, gap=gap, steps=steps, converged=gap <= tolerance * scale)


def _plain_gap(programme: WeightProgramme, beta: np.ndarray) -> float:
    """How much the best corner promises, a bound of the objective's excess (Frank and Wolfe)."""
    w, most = programme.w, programme.most
    slope = programme.psi @ ((w * beta) @ programme.psi - programme.target)
    order = np.argsort(slope)
    # B for the rows of the lowest slopes, up to u where they are negative, else up to l
    goal = np.where(slope[order] < 0, programme.most_mean, programme.least_mean)
    filled = most * np.cumsum(w[order])
    mass = np.clip(goal - (filled - most * w[order]), 0, most * w[order])
    return float(slope @ (w * beta) - slope[order] @ mass)


def _ridge_solve(U: np.ndarray, scale: float, g: np.ndarray) -> np.ndarray:
    """(I + UᵀU/scale)⁻¹ g, by the smaller of two systems."""
    rows, r = U.shape
    # less would be lost beside UUᵀ; it is the direction of a step alone that rests on it
    scale = max(scale, float(np.finfo(float).eps) * float(np.sum(U * U)))
    if rows < r:
        A = U @ U.T
        A[np.diag_indices(rows)] += scale
        return g - U.T @ scipy.linalg.solve(A, U @ g, assume_a="pos")
    A = U.T @ U / scale
    A[np.diag_indices(r)] += 1
    return np.asarray(scipy.linalg.solve(A, g, assume_a="pos"))
