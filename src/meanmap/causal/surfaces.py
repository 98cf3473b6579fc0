"""The kernel of a response surface, learned by its marginal likelihood.

A function of several variables (a treatment, covariates, …) is a Gaussian process whose kernel is a
product with one factor per variable,

    k_g(x, x') = 1 + Σ wⱼ xⱼ xⱼ' + b p(Σ vⱼ (xⱼ - xⱼ')²),    p(q) = exp(-q/2),

so that constants, lines, smooth functions and all their interactions are in it. Weights w and v
of every column, the heights b and the noise maximise the marginal likelihood of a few hundred rows,
with a weak pull to a smooth start. A variable that is only known through an instrument enters by
its conditional mean: its factor K becomes `H K Hᵀ`, with H the weights of the first regression, and
the likelihood is that of the outcome given the instrument. The data then say little about how sharp
the function is, and p is Matérn's of order 5/2, which does not rule out sharp bends as a Gaussian
does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky
from scipy.optimize import minimize

from meanmap.arrays import Array, Points
from meanmap.kernels import Kernel
from meanmap.kernels.protocol import Comparison

LINEAR, SHARP, HEIGHT, NOISE = 0.05, 0.5, 1.0, 0.5  # the start: w and v are over the columns
PULL, SLACK = 4.0, 3.0  # of logarithms towards the start, and where it is strongest
REACH = (-14.0, 5.0)  # of the logarithms
STEPS = 40


@dataclass(frozen=True)
class Factor:
    """The factor of one variable: a constant, lines and a bump around every point."""

    linear: np.ndarray  # w
    sharpness: np.ndarray  # v
    height: float  # b
    rough: bool = False  # Matérn's profile of order 5/2 in place of a Gaussian

    @classmethod
    def at(cls, logs: np.ndarray, rough: bool = False) -> Factor:
        """From logarithms of w, v and b."""
        c = len(logs) // 2
        found = np.exp(logs)
        return cls(found[:c], found[c:-1], float(found[-1]), rough)

    def squares(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
        """`Σ vⱼ (aⱼ - bⱼ)²`."""
        v = self.sharpness
        found = (A * (-2 * v)) @ B.T
        found += ((A * A) @ v)[:, None]
        found += (B * B) @ v
        return np.maximum(found, 0.0, out=found)

    def bumps(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
        """`b p(q)` of the squares q."""
        q = self.squares(A, B)
        if self.rough:
            r = np.sqrt(5 * q)
            return np.asarray(self.height * (1 + r + r * r / 3) * np.exp(-r))
        q *= -0.5
        np.exp(q, out=q)
        q *= self.height
        return q

    def bends(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
        """`b p'(q)`."""
        if self.rough:
            r = np.sqrt(5 * self.squares(A, B))
            return np.asarray(-5 / 6 * self.height * (1 + r) * np.exp(-r))
        return -0.5 * self.bumps(A, B)

    def gram(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
        found = (A * self.linear) @ B.T
        found += self.bumps(A, B)
        found += 1
        return found

    def squared_norms(self, A: np.ndarray) -> np.ndarray:
        return 1 + (A * A) @ self.linear + self.height

    def slope(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
        """The derivative in the first argument, for variables of one column."""
        return self.linear * B.T + 2 * self.bends(A, B) * self.sharpness * (A - B.T)


class ResponseKernel(Kernel):
    """The product of factors, on rows that hold the columns of all variables side by side."""

    domain = "vectors"
    bounded = False

    def __init__(self, variables: tuple[Factor, ...]) -> None:
        self.variables = variables

    def __repr__(self) -> str:
        return f"ResponseKernel({len(self.variables)} variables)"

    def split(self, rows: np.ndarray) -> list[np.ndarray]:
        """The columns of each variable."""
        ends = np.cumsum([len(factor.linear) for factor in self.variables])
        return np.split(rows, ends[:-1], axis=1)

    def against(self, B: Points) -> Comparison:
        right = self.split(B)

        def compare(A: Points, columns: Any, out: Any) -> Array:
            triples = zip(self.variables, self.split(A), right, strict=True)
            return np.prod([k.gram(a, b[columns]) for k, a, b in triples], axis=0)

        return compare

    def squared_norms(self, A: Points) -> Array:
        pairs = zip(self.variables, self.split(A), strict=True)
        return np.prod([k.squared_norms(a) for k, a in pairs], axis=0)


@dataclass
class VariableLikelihood:
    """The factor of one variable among rows, and the derivatives of the likelihood in its logs."""

    columns: np.ndarray
    through: np.ndarray | None = None  # H, of a variable known through an instrument

    def __post_init__(self) -> None:
        c = self.columns.shape[1]
        start = [LINEAR / c] * c + [SHARP / c] * c + [HEIGHT]
        self.start = np.log(start)

    @property
    def rough(self) -> bool:
        return self.through is not None

    def forward(self, logs: np.ndarray) -> np.ndarray:
        """`H K Hᵀ`, or K."""
        x, H = self.columns, self.through
        self.factor = Factor.at(logs, self.rough)
        self.bumps = self.factor.bumps(x, x)
        K = 1 + (x * self.factor.linear) @ x.T + self.bumps
        return K if H is None else H @ K @ H.T

    def backward(self, G: np.ndarray) -> np.ndarray:
        """From derivatives in the factor to those in logarithms of w, v and b."""
        x, H = self.columns, self.through
        if H is not None:
            G = H.T @ G @ H
        dw = np.einsum("ij,ij->j", x, G @ x)
        db = float((G * self.bumps).sum())
        G = G * self.factor.bends(x, x)
        dv = 2 * (G.sum(axis=1) @ (x * x) - np.einsum("ij,ij->j", x, G @ x))  # Σ G (xᵢ - xⱼ)²
        return np.concatenate([self.factor.linear * dw, self.factor.sharpness * dv, [db]])


@dataclass
class MarginalLikelihood:
    """`-2 log p(y)/n` of the rows' process, its variance the likeliest, and the pull."""

    variables: list[VariableLikelihood]
    y: np.ndarray

    def __post_init__(self) -> None:
        starts = [variable.start for variable in self.variables]
        self.start = np.concatenate([*starts, [np.log(NOISE)]])
        self.ends = np.cumsum([len(start) for start in starts])

    def __call__(self, logs: np.ndarray) -> tuple[float, np.ndarray]:
        n, eta = len(self.y), float(np.exp(logs[-1]))
        pairs = zip(self.variables, np.split(logs, self.ends), strict=False)
        parts = [variable.forward(own) for variable, own in pairs]
        A = np.prod(parts, axis=0)
        A.flat[:: n + 1] += eta
        try:
            L = cholesky(A, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            return np.inf, np.zeros_like(logs)
        inverse = cho_solve((L, True), np.eye(n), overwrite_b=True, check_finite=False)
        a = inverse @ self.y
        square = max(float(self.y @ a), n * np.finfo(float).tiny)
        value = n * np.log(square / n) + 2 * np.log(L.diagonal()).sum()
        G = inverse - np.outer(a, a) * (n / square)
        slopes = []
        for i, variable in enumerate(self.variables):
            others = [part for j, part in enumerate(parts) if j != i]
            slopes.append(variable.backward(np.prod([G, *others], axis=0)))
        away = (logs - self.start) / SLACK
        away[-1] = 0.0
        slope = np.concatenate([*slopes, [eta * np.trace(G)]])
        value += PULL * SLACK**2 * float(np.log1p(away * away).sum())
        slope += 2 * PULL * SLACK * away / (1 + away * away)
        return value / n, slope / n


def learn_factors(
    columns: Sequence[np.ndarray], y: np.ndarray, through: np.ndarray | None = None
) -> tuple[Factor, ...]:
    """The factors of all variables that are likeliest for these rows.

    `through` are the weights H of a first regression, for the first variable.
    """
    variables = [VariableLikelihood(x) for x in columns]
    variables[0].through = through
    loss = MarginalLikelihood(variables, y)
    found = minimize(
        loss,
        loss.start,
        jac=True,
        method="L-BFGS-B",
        bounds=[REACH] * len(loss.start),
        options={"maxiter": STEPS, "ftol": 1e-6},
    )
    logs = np.split(found.x, loss.ends)[:-1]
    return tuple(Factor.at(own, one.rough) for own, one in zip(logs, variables, strict=True))
