"""The semidefinite programme of unfolding, its solvers, and a certificate of what they found.

Points are B V with K = B V Vᵀ Bᵀ, B a basis of smooth functions on the neighbour graph. The
programme is

    maximise tr(A C) - ν Σₑ (bₑᵀ A bₑ - dₑ²)²  over  A ⪰ 0,

C = BᵀHLHB, bₑ the difference of B along edge e and dₑ the distance to keep; without ν distances are
kept exactly (Song, Smola, Borgwardt and Gretton 2008, eq. 5). Its dual has a number yₑ, the tension
of the edge: minimise Σ dₑ²yₑ + yₑ²/(4ν) where Σ yₑbₑbₑᵀ - C ⪰ 0. B is scaled so that Σ bₑbₑᵀ = I:
then adding one number to all tensions makes any y feasible, and every answer comes with a bound on
how far it is from the best there is.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import scipy.linalg
from scipy.optimize import minimize

from meanmap.linalg import Spectrum

SMALL = 25  # up to this size an interior-point method is fast
CHUNK = 250  # steps between two looks at the certificate
PROJECTIONS = 200  # of a matrix, to keep distances
ROUNDS = 100  # of tensions, for distances kept exactly


@dataclass(frozen=True)
class UnfoldedFactor:
    """A factor V of A = VVᵀ; the gap is relative, between what it reaches and the dual's bound."""

    factor: np.ndarray
    status: str
    gap: float
    violation: float
    iterations: int


@dataclass(frozen=True)
class UnfoldingProgramme:
    """`gain` is C, `slopes` has a row bₑ an edge, `squares` the dₑ²; no stiffness: exactly."""

    gain: np.ndarray
    slopes: np.ndarray
    squares: np.ndarray
    stiffness: float | None

    def solve(
        self, solver: str, tol: float, max_iter: int | None, rng: np.random.RandomState
    ) -> UnfoldedFactor:
        """By cvxpy where it is small, else, or where that gives no answer, by factors."""
        if solver == "cvxpy":
            return self._by_cvxpy(tol, max_iter)
        if solver == "auto" and len(self.gain) <= SMALL and find_spec("cvxpy"):
            try:
                return self._by_cvxpy(tol, max_iter)
            except RuntimeError:
                pass  # exact distances can leave no room for interior points
        return self._by_factors(tol, max_iter or 5000, rng)

    def certify(
        self, V: np.ndarray, tension: np.ndarray, status: str, tol: float, steps: int
    ) -> UnfoldedFactor:
        """The answer with its bound; "optimal" is what the bound says, not what a solver does."""
        b, d2, nu = self.slopes, self.squares, self.stiffness
        off = np.sum((b @ V) ** 2, axis=1) - d2
        reached = float(np.sum(V * (self.gain @ V)))
        slack = (b * tension[:, None]).T @ b - self.gain
        y = tension + max(0.0, -float(np.linalg.eigvalsh(slack)[0]))
        bound = float(d2 @ y)
        if nu is not None:
            reached -= nu * float(off @ off)
            bound += float(y @ y) / (4 * nu)
        gap = abs(bound - reached) / max(abs(bound), 1e-300)
        worst = float(abs(off).max())
        good = gap <= tol and (nu is not None or worst <= tol)
        if good:
            status = "optimal"
        elif status == "optimal":
            status = "optimal_inaccurate"
        return UnfoldedFactor(V, status, gap, worst, steps)

    # --- interior points --------------------------------------------------------------------------

    def _by_cvxpy(self, tol: float, max_iter: int | None) -> UnfoldedFactor:
        try:
            import cvxpy as cp
        except ImportError as error:
            raise ImportError(
                "ColoredUnfolding needs cvxpy: pip install 'meanmap[convex]'; or pass "
                'solver="factors", which does not.'
            ) from error

        b, d2, nu, m = self.slopes, self.squares, self.stiffness, len(self.gain)
        upper = np.triu_indices(m)
        M = b[:, upper[0]] * b[:, upper[1]] * np.where(upper[0] == upper[1], 1.0, 2.0)
        A = cp.Variable((m, m), PSD=True)
        a = cp.vec(A, order="C")[upper[0] * m + upper[1]]
        gain = cp.sum(cp.multiply(self.gain, A))
        kept: list[Any] = []
        if nu is None:
            kept = [M @ a == d2]
            problem = cp.Problem(cp.Minimize(-gain), kept)
        else:
            # ‖Ma - d²‖² = ‖Ra - r‖² + a constant: no larger than A, however many edges there are
            R = scipy.linalg.qr(np.column_stack([M, d2]), mode="r")[0][: M.shape[1] + 1]
            problem = cp.Problem(cp.Minimize(nu * cp.sum_squares(R[:, :-1] @ a - R[:, -1]) - gain))
        settings = {} if max_iter is None else {"max_iter": max_iter}
        # the steps of problem.solve, which warns of what the status says as well
        try:
            data, chain, inverse = problem.get_problem_data(cp.CLARABEL, solver_opts=settings)
            found = chain.invert(chain.solve_via_data(problem, data, solver_opts=settings), inverse)
        except cp.SolverError as error:
            raise RuntimeError(_no_answer("solver_error")) from error
        if found.status not in cp.settings.SOLUTION_PRESENT:
            raise RuntimeError(_no_answer(found.status))
        problem.unpack(found)
        assert A.value is not None
        V = _nearest_factor((A.value + A.value.T) / 2)
        if nu is None:
            V = self._keep_distances(V, M, upper, tol)
        if nu is None:
            tension = np.ravel(kept[0].dual_value)
        else:
            tension = 2 * nu * (np.sum((b @ V) ** 2, axis=1) - d2)
        return self.certify(
            V, tension, found.status, tol, found.attr.get(cp.settings.NUM_ITERS) or 0
        )

    def _keep_distances(self, V: np.ndarray, M: np.ndarray, upper: Any, tol: float) -> np.ndarray:
        """A factor near V whose distances are kept to a tenth of tol, by alternating projections.

        A programme without an interior leaves an interior-point method a few digits short.
        """
        inverse = Spectrum.of(M.T @ M).inverse(0)  # edges may repeat each other
        for _ in range(PROJECTIONS):
            K = V @ V.T
            off = self.squares - M @ K[upper]
            if abs(off).max() <= tol / 10:
                break
            K[upper] += inverse @ (M.T @ off)
            K.T[upper] = K[upper]
            V = _nearest_factor(K)
        return V

    # --- factors ----------------------------------------------------------------------------------

    def _by_factors(self, tol: float, max_iter: int, rng: np.random.RandomState) -> UnfoldedFactor:
        """Over V with √(2 edges) columns, where no local optimum is worse (Burer and Monteiro)."""
        e, m = self.slopes.shape
        r = min(m, int(np.ceil(np.sqrt(2 * e))) + 1)
        V = rng.normal(size=(m, r)) / np.sqrt(r)
        y = np.zeros(e)
        nu = self.stiffness if self.stiffness is not None else 50.0
        steps, found = 0, None
        for _ in range(ROUNDS if self.stiffness is None else 10**6):
            V, taken = self._steps(V, y, nu, min(CHUNK, max_iter - steps))
            steps += taken
            tension = y + 2 * nu * (np.sum((self.slopes @ V) ** 2, axis=1) - self.squares)
            status = "user_limit" if steps >= max_iter else "optimal_inaccurate"
            found = self.certify(V, tension, status, tol, steps)
            if found.status == "optimal" or steps >= max_iter:
                break
            if self.stiffness is None:
                y = tension  # augmented Lagrangian: what pulls is learned, ν need not grow
            elif taken < CHUNK:
                break  # it stands still: rounding
        assert found is not None
        return found

    def _steps(self, V: np.ndarray, y: np.ndarray, nu: float, most: int) -> tuple[np.ndarray, int]:
        b, d2, C, shape = self.slopes, self.squares, self.gain, V.shape

        def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
            V = flat.reshape(shape)
            Z, CV = b @ V, C @ V
            off = np.sum(Z * Z, axis=1) - d2
            value = -np.sum(V * CV) + y @ off + nu * off @ off
            slope = 2 * (b.T @ ((y + 2 * nu * off)[:, None] * Z) - CV)
            return float(value) / len(d2), slope.ravel() / len(d2)

        options = {"maxiter": most, "maxfun": 2 * most, "ftol": 1e-14, "gtol": 1e-9, "maxcor": 20}
        found = minimize(loss, V.ravel(), jac=True, method="L-BFGS-B", options=options)
        return found.x.reshape(shape), int(found.nit)


def _nearest_factor(K: np.ndarray) -> np.ndarray:
    """V with VVᵀ the nearest positive semidefinite matrix."""
    s, Q = np.linalg.eigh(K)
    return Q * np.sqrt(np.maximum(s, 0.0))


def _no_answer(status: str) -> str:
    return (
        f"the semidefinite programme has no answer: the solver ended with status {status!r}. Use "
        'a number as stiffness, change n_neighbors, or pass solver="factors".'
    )


__all__ = ["UnfoldingProgramme", "UnfoldedFactor"]
