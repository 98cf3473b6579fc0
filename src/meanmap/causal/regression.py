"""One regression behind all causal functions: of the outcome on several variables.

The variables' kernel is a product, so that whatever is linear in the regression function is read
off landmarks p: `Σ β_p Π_g a_g(p)`. Here `a_g(p)` is `k_g(t, p_g)` for a variable that is set to t,
its mean over rows for one that is averaged over, and its conditional mean for one that follows
from others. Each such functional has an influence of every row, from which its variance follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from meanmap.arrays import one_blas_thread, solve_triangular
from meanmap.causal.surfaces import ResponseKernel, learn_factors
from meanmap.conditional import ConditionalEmbedding
from meanmap.exceptions import quiet
from meanmap.linalg import Spectrum, covariance
from meanmap.spaces import PivotedCholesky, Space
from meanmap.spaces.space import fit_space_quietly

ROWS = 400  # that kernels are learned on
MANY = 2000  # rows, from which on there are fewer landmarks
LOOKED = 4000  # rows that the first variable's sharpness is checked on
LANDMARKS, FEWER = 1000, 400  # of few rows and of many, at most
NOISES = np.logspace(-6, 7, 261)  # noise over variance, tried for all rows
SHARPER = (0.5, 1.0, 2.0, 4.0)  # of the first variable's sharpness, by more rows
ALONE = 1e-6  # 1 - hᵢ of a row that alone decides the answer at its own point


def usual_basis(n: int) -> PivotedCholesky:
    """The landmarks for n rows."""
    return PivotedCholesky(1e-9, min(n, LANDMARKS if n <= MANY else FEWER))


@dataclass(frozen=True, eq=False)
class FirstStage:
    """E[f | z] for any f of the same rows: a conditional embedding, with a free constant."""

    space: Space
    z: np.ndarray
    regularization: float

    @classmethod
    def of(cls, z: np.ndarray, target: np.ndarray, basis: Any = None) -> FirstStage:
        """Scales and λ are learned from the target."""
        if basis is None and len(z) > MANY:
            basis = usual_basis(len(z))
        with quiet():
            model = ConditionalEmbedding(basis=(basis, None)).fit(z, target)
        return cls(model.space_x_, z, model.regularization_)

    def of_rows(self, rows: np.ndarray) -> FirstStage:
        """The same space and λ on some of the rows."""
        return FirstStage(self.space, self.z[rows], self.regularization)

    @cached_property
    def _known(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """ψ less its mean, the mean, ψ(C + λI)⁻¹/n, and the share of each row in its own answer."""
        n = len(self.z)
        psi = self.space.coordinates(self.z)
        mu = psi.mean(axis=0)
        psi = psi - mu
        C = covariance(psi, np.full(n, 1 / n))
        half = psi @ Spectrum.of(C).ridge(self.regularization) / n
        return psi, mu, half, np.einsum("ij,ij->i", psi, half) + 1 / n

    @property
    def freedom(self) -> float:
        """The degrees of freedom, the constant left out."""
        return float(self._known[3].sum()) - 1

    def left_out(self, values: np.ndarray) -> np.ndarray:
        """E[f | z] at every row, by all other rows."""
        psi, _, half, h = self._known
        fitted = psi @ (half.T @ values) + values.mean(axis=0)
        return (fitted - h[:, None] * values) / np.maximum(1 - h, ALONE)[:, None]

    def weights(self, z: np.ndarray) -> np.ndarray:
        """The weights of all rows in the answers at new points, one row per point."""
        _, mu, half, _ = self._known
        return (self.space.coordinates(z) - mu) @ half.T + 1 / len(self.z)

    def at(self, z: np.ndarray, values: np.ndarray) -> np.ndarray:
        """E[f | z] at new points."""
        _, mu, half, _ = self._known
        return (self.space.coordinates(z) - mu) @ (half.T @ values) + values.mean(axis=0)

    def explained(self, target: np.ndarray) -> float:
        """The share of the target's variance that left-out rows are predicted with."""
        left = ((target - self.left_out(target)) ** 2).sum()
        return 1 - float(left / np.maximum(((target - target.mean(axis=0)) ** 2).sum(), 1e-300))


@dataclass(frozen=True, eq=False)
class Estimates:
    """Values of functionals of a regression, with what each row and the smoothness add to them."""

    mean: np.ndarray  # (q,)
    influence: np.ndarray  # (n, q): the sum of their squares is the variance
    prior: np.ndarray  # (r, q): what smoothing hides, likewise

    def covariance(self, more: np.ndarray | float = 0.0) -> np.ndarray:
        """With influences that the rows have apart from their noise."""
        rows = self.influence + more
        found: np.ndarray = rows.T @ rows + self.prior.T @ self.prior
        return found


@dataclass(frozen=True, eq=False)
class Response:
    """The regression of an outcome on variables that are columns of numbers.

    A Gaussian process in the coordinates of landmarks. The first variable may be known through a
    smoother only: then it enters by its conditional mean (two stages), each row's by the others.
    """

    space: Space
    variables: tuple[np.ndarray, ...]
    outcome: np.ndarray
    given: float | None = None  # η = nλ; None for the likeliest
    smoother: FirstStage | None = None

    @classmethod
    def of(
        cls,
        variables: Sequence[np.ndarray],
        outcome: np.ndarray,
        rng: np.random.Generator,
        smoother: FirstStage | None = None,
        basis: Any = None,
        regularization: float | str = "auto",
    ) -> Response:
        """Learn the kernel on a few hundred rows, and the noise on all."""
        n = len(outcome)
        some = np.arange(n) if n <= ROWS else np.sort(rng.choice(n, ROWS, replace=False))
        y = (outcome - outcome.mean()) / (outcome.std() or 1.0)
        through = None if smoother is None else smoother.of_rows(some).left_out(np.eye(len(some)))
        with one_blas_thread():
            first, *others = learn_factors([x[some] for x in variables], y[some], through)
        given = None if regularization == "auto" else n * float(regularization)

        def fit(times: float, rows: np.ndarray) -> Response:
            kernel = ResponseKernel((replace(first, sharpness=times * first.sharpness), *others))
            chosen = usual_basis(len(rows)) if basis is None else basis
            parts = tuple(x[rows] for x in variables)
            space, _ = fit_space_quietly(kernel, chosen, np.hstack(parts))
            stage = None if smoother is None else smoother.of_rows(rows)
            return cls(space, parts, outcome[rows], given, stage)

        if n <= 4 * ROWS:
            return fit(1.0, np.arange(n))
        look = np.sort(rng.permutation(n)[:LOOKED])
        least = [float(fit(times, look).likelihoods.min()) for times in SHARPER]
        return fit(SHARPER[int(np.argmin(least))], np.arange(n))

    # --- what follows from the sample ---------------------------------------------------------

    @property
    def kernel(self) -> ResponseKernel:
        kernel: ResponseKernel = self.space.kernel_
        return kernel

    @cached_property
    def landmarks(self) -> list[np.ndarray]:
        """The columns of each variable at the landmarks."""
        return self.kernel.split(self._pivots[0])

    @property
    def _pivots(self) -> tuple[np.ndarray, np.ndarray]:
        """The landmarks, and the Cholesky factor of their kernel."""
        found = self.space.map_.landmarks
        if found is None:
            raise TypeError("basis: expected PivotedCholesky(...) or Nystroem(n), with landmarks.")
        return found

    def grams(self, which: int, columns: np.ndarray) -> np.ndarray:
        """One variable's factor between points and landmarks."""
        return self.kernel.variables[which].gram(columns, self.landmarks[which])

    def coordinates(self, products: np.ndarray) -> np.ndarray:
        """Coordinates of functionals, from their values at the landmarks' k(p, ·)."""
        found: np.ndarray = solve_triangular(self._pivots[1], products.T).T
        return found

    @cached_property
    def rows(self) -> np.ndarray:
        """Φ, the coordinates of every row; of two stages, those of its conditional mean."""
        parts = [self.grams(i, x) for i, x in enumerate(self.variables)]
        if self.smoother is not None:
            parts[0] = self.smoother.left_out(parts[0])
        return self.coordinates(np.prod(parts, axis=0))

    @cached_property
    def spectrum(self) -> Spectrum:
        """That of ΦᵀΦ."""
        return Spectrum.of(self.rows.T @ self.rows)

    @property
    def centre(self) -> float:
        return float(self.outcome.mean())

    @property
    def scale(self) -> float:
        return float(self.outcome.std()) or 1.0

    @cached_property
    def _right(self) -> np.ndarray:
        """VᵀΦᵀy for the standardised outcome."""
        y = (self.outcome - self.centre) / self.scale
        found: np.ndarray = self.spectrum.vectors.T @ (self.rows.T @ y)
        return found

    @cached_property
    def likelihoods(self) -> np.ndarray:
        """`-2 log p(y)` but for a constant, for every noise that is tried, from one spectrum."""
        n, s = len(self.outcome), np.maximum(self.spectrum.values, 0.0)
        total = n if self.outcome.std() else 0.0
        f = 1 / (s[:, None] + NOISES)
        square = np.maximum(total - self._right**2 @ f, 1e-12 * n) / NOISES
        return n * np.log(square) - np.log(f).sum(axis=0) + (n - len(s)) * np.log(NOISES)

    @property
    def noise_ratio(self) -> float:
        """η, the variance of the noise over that of the process."""
        own = self.given
        return float(NOISES[int(np.argmin(self.likelihoods))]) if own is None else own

    def regress(self, values: np.ndarray) -> np.ndarray:
        """Coefficients of other values of the same rows, with the likeliest noise of their own."""
        other = Response(self.space, self.variables, values)
        other.__dict__.update(rows=self.rows, spectrum=self.spectrum)
        return other.coefficients

    @cached_property
    def inverse(self) -> np.ndarray:
        """(ΦᵀΦ + ηI)⁻¹."""
        found: np.ndarray = self.spectrum.ridge(self.noise_ratio)
        return found

    @cached_property
    def coefficients(self) -> np.ndarray:
        """Of the outcome less its mean, in its units."""
        V = self.spectrum.vectors
        found: np.ndarray = self.scale * (self.inverse @ (V @ self._right))
        return found

    @cached_property
    def leverage(self) -> np.ndarray:
        return np.einsum("ij,ij->i", self.rows @ self.inverse, self.rows)

    @cached_property
    def residuals(self) -> np.ndarray:
        """Of every row, by all other rows."""
        left = self.outcome - self.centre - self.rows @ self.coefficients
        return left / np.maximum(1 - self.leverage, ALONE)

    @property
    def noises(self) -> np.ndarray:
        """Residuals whose squares have the noise's variance in the mean."""
        found: np.ndarray = self.residuals * np.sqrt(np.maximum(1 - self.leverage, ALONE))
        return found

    @cached_property
    def noise(self) -> float:
        """The standard deviation of the outcome about the regression."""
        left = self.outcome - self.centre - self.rows @ self.coefficients
        y = (self.outcome - self.centre) @ left
        return float(np.sqrt(max(y, 0.0) / len(left)))

    # --- answers ------------------------------------------------------------------------------

    def answer(self, products: np.ndarray, debiased: bool = False) -> Estimates:
        """Functionals of the regression function, one per row of `products`.

        With `debiased` the residuals of left-out rows, weighted by what the functional asks of each
        row, are added: what smoothing took away is returned (one step of Newton's method).
        """
        psi = self.coordinates(products)
        Z = self.inverse @ psi.T
        alpha = self.rows @ Z
        mean = psi @ self.coefficients
        influence = alpha * self.noises[:, None]
        if debiased:
            alpha = alpha / np.maximum(1 - self.leverage, ALONE)[:, None]
            mean = mean + alpha.T @ self.residuals
            influence = alpha * self.residuals[:, None]
        prior = self.noise * self.noise_ratio**0.5 * Z
        return Estimates(mean, influence, prior)

    def values(self, first: np.ndarray, others: np.ndarray) -> np.ndarray:
        """The function where a variable is set, at rows of the others: (rows, points).

        `first` are factors (points, landmarks), `others` the product of the others' (rows, …).
        """
        beta = solve_triangular(self._pivots[1], self.coefficients, transpose=True)
        found: np.ndarray = others @ (first * beta).T
        return found

    def variances(self, products: np.ndarray, norms: np.ndarray) -> np.ndarray:
        """The variance of answers at points, in units of the noise's, with what landmarks miss."""
        psi = self.coordinates(products)
        inside = np.einsum("ij,ij->i", psi @ self.inverse, psi)
        missed = np.maximum(norms - np.einsum("ij,ij->i", psi, psi), 0.0)
        return np.asarray(inside + missed / self.noise_ratio)
