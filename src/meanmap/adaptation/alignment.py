"""Rows that are moved and stretched, as functions of their targets, until they look like others.

    z'ᵢ = cᵢ + (zᵢ - cᵢ) ⊙ w(yᵢ) + b(yᵢ),    w = 1 + Σ_a f_a(y) G_a,    b = Σ_a f_a(y) H_a

for features f of the targets (one per class, or coordinates of a kernel on y) and centres c, the
mean of z given y, about which a stretch leaves the location alone. G and H minimise

    ‖Σ αᵢ φ(z'ᵢ) - μ_test‖² + ρ E[(β - 1)²] + λ (‖G‖² + ‖H‖²)

where ‖G‖ and ‖H‖ are the norms of w - 1 and b as functions of y, and α = AᵀE[β(y) f(y)] makes
Σ αᵢ φ(z'ᵢ) the conditional embedding of z' applied to that of the reweighted targets (Zhang,
Schölkopf, Muandet and Wang 2013, sections 4 and 5). The best β solves a quadratic programme of as
many coordinates as there are features. It is found anew wherever the objective is asked for: by the
envelope theorem the gradient is that for β held fixed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import minimize

from meanmap.adaptation.weight_programme import WeightProgramme, WeightSolution, solve_dual
from meanmap.linalg import symmetric_part
from meanmap.statistics.columns import positive_ratio

WIDTHS = (3.0, 1.7)  # multiples of the bandwidth that a search starts with: wide kernels see far
EXPLORED = 300  # rows of each sample that restarts look at


@dataclass(frozen=True, eq=False)
class Alignment:
    """Both samples on one scale, the features of targets, and what is paid for what."""

    Z: np.ndarray  # (n, d) training rows
    F: np.ndarray  # (n, r) features of their targets
    T: np.ndarray  # (m, d) test rows
    bandwidth: np.ndarray  # (d,)
    penalty: float  # λ
    ridge: float | None  # ρ; None for β = 1
    most: float  # the largest β
    shrinkage: float = 0.0  # of the regression on the features
    reach: int | None = None  # leading features that w and b are functions of; None for all
    A: np.ndarray = field(init=False)  # (r, n)
    moves: np.ndarray = field(init=False)  # (n, q) the features of w and b
    projection: np.ndarray = field(init=False)  # (q, n) the regression on these
    centres: np.ndarray = field(init=False)  # (n, d)

    def __post_init__(self) -> None:
        moves = self.F[:, : self.reach]
        A = feature_regression(self.F, self.shrinkage)
        B = A if moves.shape == self.F.shape else feature_regression(moves, self.shrinkage)
        object.__setattr__(self, "A", A)
        object.__setattr__(self, "moves", moves)
        object.__setattr__(self, "projection", B)
        object.__setattr__(self, "centres", moves @ (B @ self.Z))

    @property
    def shape(self) -> tuple[int, int, int]:
        return 2, self.moves.shape[1], self.Z.shape[1]

    @property
    def size(self) -> tuple[int, int]:
        return len(self.Z), len(self.T)

    def move(self, parameters: np.ndarray) -> np.ndarray:
        """z' of the training rows."""
        G, H = parameters.reshape(self.shape)
        return self.Z + (self.Z - self.centres) * (self.moves @ G) + self.moves @ H

    def programme(
        self, K: np.ndarray, towards: np.ndarray, F: np.ndarray
    ) -> tuple[WeightProgramme, WeightSolution]:
        """The quadratic programme for β of rows with features F, and its solution.

        E[φ(z')|y] has coefficients in r features, so that r coordinates are enough for all of
        them: a root of their Gram matrix A K Aᵀ, and the projection of μ_test.
        """
        M = self.A @ K @ self.A.T
        s, V = nonzero_spectrum(symmetric_part(M))
        target = (V.T @ (self.A @ towards)) / np.sqrt(s)
        psi, w = F @ (V * np.sqrt(s)), np.full(len(F), 1 / len(F))
        programme = WeightProgramme(
            psi, w, target, float(self.ridge or 0), self.most, 1.0, 1.0, 1.0
        )
        return programme, solve_dual(programme)

    def weights(self, K: np.ndarray, towards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """β of the rows and α, from the Gram matrix of z' and its means over the test rows."""
        n = len(self.Z)
        if self.ridge is None:
            return np.ones(n), np.full(n, 1 / n)
        beta = self.programme(K, towards, self.F)[1].beta
        return beta, self.A.T @ (self.F.T @ beta / n)

    def value(self, parameters: np.ndarray) -> tuple[float, np.ndarray]:
        """What is minimised, less ‖μ_test‖², and its gradient."""
        Z = self.move(parameters)
        K, C = self.gram(Z, Z), self.gram(Z, self.T)
        towards = C.mean(axis=1)
        beta, alpha = self.weights(K, towards)
        pulled = K @ alpha
        value = float(alpha @ pulled - 2 * alpha @ towards)
        value += self.penalty * float(parameters @ parameters)
        if self.ridge is not None:
            value += self.ridge * float(((beta - 1) ** 2).mean())
        # ∂k(z, z')/∂z = k(z, z')(z' - z)/σ²
        inner = K @ (alpha[:, None] * Z) - pulled[:, None] * Z
        outer = C @ self.T / len(self.T) - towards[:, None] * Z
        slope = 2 * alpha[:, None] * (inner - outer) / self.bandwidth**2
        M = self.moves
        gradient = np.stack([M.T @ (slope * (self.Z - self.centres)), M.T @ slope])
        return value, gradient.ravel() + 2 * self.penalty * parameters

    def gram(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """The Gaussian kernel."""
        a, b = left / self.bandwidth, right / self.bandwidth
        exponent = a @ b.T
        exponent -= (a**2).sum(axis=1)[:, None] / 2
        exponent -= (b**2).sum(axis=1) / 2
        np.minimum(exponent, 0, out=exponent)
        return np.exp(exponent, out=exponent)

    def square(self) -> float:
        """‖μ_test‖²."""
        return float(self.gram(self.T, self.T).mean())

    def distance(self, parameters: np.ndarray, weighted: bool = True) -> float:
        """‖Σ αᵢ φ(z'ᵢ) - μ_test‖."""
        Z = self.move(parameters)
        K, towards = self.gram(Z, Z), self.gram(Z, self.T).mean(axis=1)
        alpha = self.weights(K, towards)[1] if weighted else np.full(len(Z), 1 / len(Z))
        return math.sqrt(max(float(alpha @ (K @ alpha - 2 * towards)) + self.square(), 0.0))

    def weights_at(self, parameters: np.ndarray, F: np.ndarray) -> np.ndarray:
        """β for all of the rows, of which these may be a part, given their features."""
        if self.ridge is None:
            return np.ones(len(F))
        Z = self.move(parameters)
        return self.programme(self.gram(Z, Z), self.gram(Z, self.T).mean(axis=1), F)[1].beta

    def part(self, rows: np.ndarray, test: np.ndarray) -> Alignment:
        """The same problem on some of the rows."""
        return replace(self, Z=self.Z[rows], F=self.F[rows], T=self.T[test])


def feature_regression(F: np.ndarray, shrinkage: float) -> np.ndarray:
    """A = (FᵀF/n + λI)⁻¹Fᵀ/n, the regression of anything on features; for classes the means."""
    s, V = nonzero_spectrum(F.T @ F / len(F))  # features may depend on each other
    return (V / (s + shrinkage)) @ (V.T @ F.T) / len(F)


def nonzero_spectrum(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues above rounding, and their eigenvectors."""
    s, V = np.linalg.eigh(matrix)
    kept = s > 1e-12 * max(float(s[-1]), 1e-300)
    return s[kept], V[:, kept]


@dataclass(frozen=True, eq=False)
class Descent:
    """Where a search ended, and how."""

    parameters: np.ndarray
    value: float
    history: np.ndarray
    steps: int
    converged: bool
    status: str


def descend(problem: Alignment, start: np.ndarray, max_iter: int) -> Descent:
    """A minimum near the start, by L-BFGS."""
    values = [problem.value(start)[0]]
    found = minimize(
        problem.value,
        start,
        jac=True,
        method="L-BFGS-B",
        callback=lambda intermediate_result: values.append(float(intermediate_result.fun)),
        options={"maxiter": max_iter, "maxfun": 4 * max_iter, "ftol": 1e-10, "gtol": 1e-7},
    )
    # status 2: the line search finds nothing lower than what rounding leaves
    settled = found.status == 0 or (found.status == 2 and abs(found.jac).max() < 1e-5)
    return Descent(
        found.x, float(found.fun), np.array(values), int(found.nit), settled, str(found.message)
    )


def anneal(problem: Alignment, start: np.ndarray, max_iter: int) -> Descent:
    """A minimum that is followed from wide kernels, which see far, to that of the problem."""
    steps = 0
    for factor in WIDTHS:
        wider = replace(problem, bandwidth=factor * problem.bandwidth)
        found = descend(wider, start, max_iter)
        start, steps = upright(problem, found.parameters), steps + found.steps
    found = descend(problem, start, max_iter)
    return replace(found, steps=steps + found.steps)


def upright(problem: Alignment, parameters: np.ndarray) -> np.ndarray:
    """The parameters without mirror images, unless those are better by more than noise.

    To a symmetric distribution a scale of -w is as good as w, and a search can end in it.
    """
    G, H = parameters.reshape(problem.shape)
    w = 1 + problem.moves @ G
    if (w >= 0).all():
        return parameters
    there = np.stack([problem.projection @ (np.abs(w) - 1), H]).ravel()
    noise = 1 / len(problem.Z) + 1 / len(problem.T)
    return there if problem.value(there)[0] <= problem.value(parameters)[0] + noise else parameters


def moments_start(problem: Alignment) -> np.ndarray:
    """The start that gives all rows together the means and deviations of the test rows."""
    Z, T = problem.Z, problem.T
    deviation = Z.std(axis=0)
    gain = positive_ratio(T.std(axis=0), deviation, 1.0)
    there = (Z - Z.mean(axis=0)) * gain + T.mean(axis=0)
    rest = there - Z - (Z - problem.centres) * (gain - 1)
    P = problem.projection
    return np.stack([P @ np.tile(gain - 1, (len(Z), 1)), P @ rest]).ravel()


def starts(problem: Alignment, number: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Nothing moved, overall moments matched, and others at random about these."""
    first = [np.zeros(int(np.prod(problem.shape))), moments_start(problem)]
    while len(first) < number:
        noise = rng.normal(size=problem.shape) * np.array([0.3, 0.5])[:, None, None]
        first.append(first[len(first) % 2] + noise.ravel())
    return first[:number]


def stratified_rows(groups: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Rows at random, of each group about its share."""
    n = len(groups)
    if n <= size:
        return np.arange(n)
    order = np.lexsort((rng.random(n), groups))
    return np.sort(order[((np.arange(size) + rng.random()) * n / size).astype(int)])
