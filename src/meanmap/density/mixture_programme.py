"""The programme: proportions near to a base ones whose mixture matches an embedding."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.optimize import brentq
from scipy.special import entr, logsumexp
from sklearn.exceptions import ConvergenceWarning

from meanmap.decoding import nearest_probability
from meanmap.exceptions import warn
from meanmap.linalg import Spectrum

RANK = 1e-12  # eigenvalues below this share of the largest are rounding
ITERATIONS = 200
DECREMENT = 1e-16  # Newton's decrement squared, at which the dual is solved
ROUGH = 1e-9  # that above which an answer is worth a warning
LEAST, MOST = 1e-12, 1e8  # penalties between which that of a constraint is sought


class Infeasible(ValueError):
    """No proportions satisfy the constraint."""


@dataclass(frozen=True)
class Match:
    """`‖μ̂ - Σ αₖ μₖ‖² = ρ² + ‖t - Lᵀα‖²` for any proportions α, with Q = LLᵀ.

    Q holds the inner products of the candidates' embeddings, t is μ̂ in coordinates of their span,
    and ρ² what lies outside it. Some rows of L are the same match with fewer candidates.
    """

    rows: np.ndarray  # L, (m, r)
    target: np.ndarray  # t, (r,)
    rest: float = 0.0  # ρ²

    def distance(self, alpha: np.ndarray) -> float:
        """`‖μ̂ - μ[p]‖`."""
        gap = alpha @ self.rows - self.target
        return float(np.sqrt(max(self.rest + gap @ gap, 0.0)))


@dataclass(frozen=True)
class Span:
    """The span of the candidates' embeddings, factorised once for any μ̂."""

    rows: np.ndarray
    vectors: np.ndarray
    roots: np.ndarray

    @classmethod
    def of(cls, Q: np.ndarray, least: float = 0.0) -> Span:
        """Of the inner products Q, without directions of an eigenvalue below `least`.

        What is left out of Q, over the penalty, is how far it may move a log-proportion.
        """
        spectrum = Spectrum.of(Q)
        kept = spectrum.values > max(RANK * spectrum.values[-1], least)
        kept[-1] = True
        vectors, roots = spectrum.vectors[:, kept], np.sqrt(spectrum.values[kept])
        return cls(vectors * roots, vectors, roots)

    def match(self, b: np.ndarray, square: float | None = None) -> Match:
        """That of μ̂ with `bₖ = ⟨μ̂, μₖ⟩` and `‖μ̂‖²`, without which ρ² is left out."""
        t = (b @ self.vectors) / self.roots
        rest = 0.0 if square is None else max(float(square - t @ t), 0.0)
        return Match(self.rows, t, rest)


@dataclass(frozen=True)
class MixtureSolution:
    """Proportions, and how they were found."""

    proportions: np.ndarray
    penalty: float
    dual: np.ndarray | None = None
    trouble: str = ""  # what the solver says where it did not finish


class Regularizer(ABC):
    """What keeps proportions near to a base: a convex R(α) on the simplex.

    The dual of `min R(α) + ‖μ̂ - μ[p]‖²/2λ` has no constraints: it is a vector v of the candidates'
    span with the least `R*(Lv) - ⟨v, μ̂⟩ + λ‖v‖²/2`, R* the conjugate (Dudík and Schapire 2006).
    Newton's method, with a step that is halved until the value falls.
    """

    decrement: float  # squared, at which the dual is solved

    @abstractmethod
    def base(self) -> np.ndarray:
        """argmin R."""

    @abstractmethod
    def conjugate(self, scores: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, float]:
        """R* and its gradient, the proportions; its Hessian `diag(g) - c g gᵀ` as g and c."""

    def solve(
        self, match: Match, penalty: float, start: MixtureSolution | None = None
    ) -> MixtureSolution:
        """argmin `R(α) + ‖μ̂ - μ[p]‖²/2λ` over the simplex, from another penalty's answer."""
        L, t = match.rows, match.target
        known = None if start is None else start.dual
        v = np.zeros(len(t)) if known is None else known

        def look(v: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, float]:
            value, alpha, g, c = self.conjugate(L @ v)
            return float(value - t @ v + penalty / 2 * (v @ v)), alpha, g, c

        now, alpha, g, c = look(v)
        squared = np.inf
        for _ in range(ITERATIONS):
            gradient = alpha @ L - t + penalty * v
            along = g @ L
            hessian = (L.T * g) @ L - c * np.outer(along, along)
            hessian[np.diag_indices_from(hessian)] += penalty
            try:
                step = cho_solve(cho_factor(hessian, lower=True), -gradient)
            except (LinAlgError, ValueError):
                break  # the penalty is too small for it
            squared = float(-gradient @ step)
            if squared <= self.decrement:
                break
            length = 1.0
            while length > 1e-12:
                there = look(v + length * step)
                # near the end rounding hides what a step gains
                if there[0] <= now - 1e-4 * length * squared + 1e-14 * (1 + abs(now)):
                    break
                length /= 2
            else:
                break  # as far as rounding lets it go
            v = v + length * step
            now, alpha, g, c = there
        good = squared <= max(ROUGH, self.decrement)
        trouble = "" if good else f"Newton's decrement is {squared**0.5:.1e}"
        return MixtureSolution(alpha / alpha.sum(), penalty, v, trouble)


@dataclass(frozen=True)
class Entropy(Regularizer):
    """`R(α) = Σ αₖ log(αₖ/qₖ)`, the divergence from q: then `αₖ ∝ qₖ exp⟨v, μₖ⟩`.

    The dual is the regularised likelihood of an exponential family.
    """

    log_base: np.ndarray  # log q, (m,)
    decrement: float = DECREMENT

    def base(self) -> np.ndarray:
        return np.exp(self.log_base - logsumexp(self.log_base))

    def conjugate(self, scores: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, float]:
        logs = self.log_base + scores
        total = float(logsumexp(logs))
        alpha = np.exp(logs - total)
        return total, alpha, alpha, 1.0


@dataclass(frozen=True)
class Quadratic(Regularizer):
    """`R(α) = ‖α‖²/2` (Song, Zhang, Smola, Gretton and Schölkopf 2008): many proportions are 0.

    Then α is the point of the simplex nearest to the scores `⟨v, μₖ⟩`.
    """

    size: int
    decrement: float = DECREMENT

    def base(self) -> np.ndarray:
        return np.full(self.size, 1 / self.size)

    def conjugate(self, scores: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, float]:
        ordered = np.sort(scores)[::-1]
        levels = (np.cumsum(ordered) - 1) / np.arange(1, len(scores) + 1)
        level = levels[np.flatnonzero(ordered > levels)[-1]]
        alpha = np.maximum(scores - level, 0.0)
        inside = (alpha > 0).astype(np.float64)
        return float(scores @ alpha - alpha @ alpha / 2), alpha, inside, 1 / inside.sum()


def reach(match: Match) -> float:
    """The least `‖μ̂ - μ[p]‖` that any proportions have."""
    m = len(match.rows)
    return match.distance(nearest_probability(match.rows, match.target, np.full(m, 1 / m)))


def solve_constrained(match: Match, regularizer: Regularizer, epsilon: float) -> MixtureSolution:
    """argmin R(α) subject to `‖μ̂ - μ[p]‖ ≤ ε`: the penalised problem whose answer is that far.

    The distance grows with the penalty, so that it is found as a root.
    """
    if match.distance(regularizer.base()) <= epsilon:
        return MixtureSolution(regularizer.base(), np.inf)
    least = reach(match)
    if epsilon < least:
        raise Infeasible(
            f"epsilon={epsilon:.6g} cannot be reached: no mixture of these {len(match.rows)} "
            f"candidates is nearer to the embedding than {least:.6g}. Pass a larger epsilon, "
            "narrower candidates (bandwidth), more of them (n_candidates), or epsilon='auto'."
        )
    last: list[MixtureSolution] = []

    def gap(log_penalty: float) -> float:
        start = last[-1] if last else None
        last.append(regularizer.solve(match, float(np.exp(log_penalty)), start))
        return match.distance(last[-1].proportions) - epsilon

    high = 0.0
    while gap(high) < 0 and high < np.log(MOST):
        high += 2.0
    low = high
    while gap(low) > 0:
        low -= 2.0
        if low < np.log(LEAST):
            far = match.distance(last[-1].proportions)
            trouble = f"the nearest found is {far:.6g} away, the nearest there is {least:.6g}"
            return MixtureSolution(last[-1].proportions, last[-1].penalty, last[-1].dual, trouble)
    if low < high:
        found = brentq(gap, low, min(low + 2.0, high), xtol=1e-11)
        gap(found)
    return last[-1]


def by_cvxpy(
    match: Match, regularizer: Regularizer, epsilon: float | None, penalty: float = np.nan
) -> MixtureSolution:
    """The constrained programme as it is written (penalised without ε), by a general solver."""
    try:
        import cvxpy as cp
    except ImportError as error:
        raise ImportError("solver='cvxpy' needs cvxpy: pip install 'meanmap[convex]'") from error

    alpha = cp.Variable(len(match.rows), nonneg=True)
    if isinstance(regularizer, Entropy):
        least = -cp.sum(cp.entr(alpha)) - regularizer.log_base @ alpha
    else:
        least = cp.sum_squares(alpha) / 2
    far = alpha @ match.rows - match.target
    constraints: list[Any] = [cp.sum(alpha) == 1]
    if epsilon is None:
        least = least + cp.sum_squares(far) / (2 * penalty)
    else:
        rest = np.array([match.rest**0.5])
        constraints.append(cp.norm(cp.hstack([far, rest])) <= epsilon)
    problem = cp.Problem(cp.Minimize(least), constraints)
    problem.solve(solver=cp.CLARABEL)
    if alpha.value is None:
        raise Infeasible(
            f"epsilon={epsilon} cannot be reached (the solver says {problem.status!r}): the least "
            f"distance of these candidates is {reach(match):.6g}."
        )
    found = np.maximum(np.asarray(alpha.value, dtype=np.float64), 0.0)
    trouble = "" if problem.status == "optimal" else f"the solver says {problem.status!r}"
    if epsilon is not None:
        # far/λ is the dual vector, and the multiplier of ‖far‖ ≤ ε its length
        multiplier = float(np.ravel(constraints[1].dual_value)[0])
        penalty = epsilon / multiplier if multiplier > 0 else np.inf
    return MixtureSolution(found / found.sum(), penalty, None, trouble)


def warn_if_unsolved(solution: MixtureSolution) -> MixtureSolution:
    """Say so if the solver did not finish."""
    if solution.trouble:
        warn(
            f"the programme did not converge: {solution.trouble}. Pass a larger epsilon or fewer "
            "candidates.",
            ConvergenceWarning,
        )
    return solution


def effective_count(proportions: np.ndarray) -> float:
    """The number of equal proportions with the same entropy."""
    return float(np.exp(entr(proportions).sum()))
