"""Regression of the future on the present in coordinates: singular and eigenfunctions.

With centred moments C, an operator estimate is `G = W Wᵀ C_XY` for directions W that are
orthonormal: `Wᵀ(C_XX + λI)W = I`. All of them are ridge regression, the leading ones of C_XX are
principal-component regression, and those along which most of the future is predicted are
reduced-rank regression (Kostic, Novelli, Maurer, Ciliberto, Rosasco and Pontil 2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
import scipy.stats

from meanmap.arrays import one_blas_thread
from meanmap.dynamics.transition_sums import FOLDS, TransitionMoments, TransitionSums
from meanmap.linalg import Spectrum

PART = 1e-12  # of the largest eigenvalue of an operator: what is smaller is rounding
STEPS = 10.0 ** -np.arange(1, 9.0)  # multiples of the trace of C_XX that λ is chosen from


def principal_directions(M: np.ndarray, most: int) -> np.ndarray:
    """The leading eigenvectors of C_XX, which M's rows are sorted by."""
    return np.eye(len(M), min(most, len(M)))


def predictive_directions(M: np.ndarray, most: int) -> np.ndarray:
    """The left singular vectors of `(C_XX + λI)^(-1/2) C_XY`: an eigenproblem of its square."""
    size = len(M)
    if size == 0:  # nothing varies
        return np.zeros((0, 0))
    last = size - min(most, size)
    vectors = scipy.linalg.eigh(M @ M.T, subset_by_index=[last, size - 1])[1]
    return vectors[:, ::-1]


#: How directions are chosen, and whether the operator is fitted anew, without λ, on their span.
METHODS = {
    "reduced-rank": (predictive_directions, True),
    "principal": (principal_directions, True),
    "ridge": (principal_directions, False),
}


@dataclass(frozen=True)
class WhitenedTransitions:
    """Centred moments with C_XX and C_YY factorised, for every λ."""

    x: np.ndarray  # means that are taken off
    y: np.ndarray
    moments: TransitionMoments  # the centred ones

    @classmethod
    def of(cls, moments: TransitionMoments) -> WhitenedTransitions:
        """Take the means off."""
        return cls(moments.x, moments.y, moments.about(moments.x, moments.y))

    @cached_property
    def _present(self) -> tuple[np.ndarray, np.ndarray]:
        return leading_pairs(Spectrum.of(self.moments.xx))

    @cached_property
    def _future(self) -> tuple[np.ndarray, np.ndarray]:
        return leading_pairs(Spectrum.of(self.moments.yy))

    def whitener(self, regularization: float) -> np.ndarray:
        """W with `Wᵀ(C_XX + λI)W = I`, the largest eigenvalue of C_XX first."""
        s, V = self._present
        return V / np.sqrt(s + regularization)

    def directions(self, method: str, regularization: float, most: int) -> np.ndarray:
        """The directions of a method, the most important first."""
        W = self.whitener(regularization)
        return W @ METHODS[method][0](W.T @ self.moments.xy, most)

    def future(self, W: np.ndarray, regularization: float) -> np.ndarray:
        """`(C_YY + λI)⁻¹ C_YX W`: what the directions predict, as functions of y."""
        s, V = self._future
        return (V / (s + regularization)) @ (V.T @ (self.moments.xy.T @ W))


def leading_pairs(spectrum: Spectrum) -> tuple[np.ndarray, np.ndarray]:
    """The eigenvalues that are not rounding, the largest first, and their vectors."""
    s, V = spectrum.values[::-1], spectrum.vectors[:, ::-1]
    kept = s > PART * s.max(initial=0.0)
    return s[kept], V[:, kept]


def vamp_scores(
    train: WhitenedTransitions, test: TransitionMoments, W: np.ndarray, regularization: float
) -> np.ndarray:
    """The VAMP-E score (Wu and Noé 2020) on other data of the first 1, 2, … directions.

    They estimate p(x, y)/(p(x)p(y)) by `h = 1 + Σ wᵢ(x) lᵢ(y)`; the score is
    `2 E[h(x, y)] - E E[h(x, y')²]`, whose largest value is Σσ² of the true operator.
    """
    L = train.future(W, regularization)
    m = test.about(train.x, train.y)
    pairs = np.einsum("iq,iq->q", W, m.xy @ L)
    squares = (W.T @ m.xx @ W) * (L.T @ m.yy @ L)
    alone = (m.x @ W) * (m.y @ L)
    each = 2 * pairs - 2 * alone - squares.diagonal() - 2 * np.triu(squares, 1).sum(axis=0)
    return 1 + np.cumsum(each)


def cross_validate(
    sums: TransitionSums, method: str, reversible: bool, lambdas: np.ndarray, most: int
) -> np.ndarray:
    """VAMP-E scores on what was left out: (parts, λ, number of directions), NaN for none."""
    parts = [
        part
        for part in np.arange(FOLDS).reshape(-1, 2)
        if 0 < sums.counts[part].sum() < sums.counts.sum()
    ]
    scores = np.full((max(len(parts), 1), len(lambdas), most), np.nan)
    with one_blas_thread():
        for i, part in enumerate(parts):
            train = WhitenedTransitions.of(
                sums.moments(np.delete(np.arange(FOLDS), part), reversible)
            )
            test = sums.moments(part, False)
            for j, value in enumerate(lambdas):
                W = train.directions(method, value, most)
                found = vamp_scores(train, test, W, value)
                scores[i, j, : len(found)] = found
                if method == "ridge" and len(found):  # all of the directions, or none
                    scores[i, j] = found[-1]
    return scores


@dataclass(frozen=True)
class FittedOperator:
    """The operator on the functions `1, e₁, …, e_q` with `e = (ψ - mean)ᵀ W`, as a matrix T.

    `K e_j = Σᵢ T_ij eᵢ`. The constant is known to be an eigenfunction: T = [[1, d], [0, K]].
    """

    mean: np.ndarray  # (r,)
    W: np.ndarray  # (r, q)
    T: np.ndarray  # (q + 1, q + 1)

    @classmethod
    def of(cls, whitened: WhitenedTransitions, W: np.ndarray, refit: bool) -> FittedOperator:
        """Project on directions; `refit` drops λ there, which would shrink the eigenvalues."""
        m = whitened.moments
        if refit:
            s, V = leading_pairs(Spectrum.of(W.T @ m.xx @ W))
            W = W @ (V / np.sqrt(s))
        T = np.eye(W.shape[1] + 1)
        T[1:, 1:] = W.T @ m.xy @ W
        T[0, 1:] = (whitened.y - whitened.x) @ W
        return cls(whitened.x, W, T)

    def features(self, psi: np.ndarray) -> np.ndarray:
        """1, e₁, …, e_q of points with these coordinates."""
        return np.hstack([np.ones((len(psi), 1)), (psi - self.mean) @ self.W])

    def eigen(self) -> EigenSystem:
        """Eigenvalues with right and left vectors in these functions."""
        K, d = self.T[1:, 1:], self.T[0, 1:]
        if np.abs(K - K.T).max(initial=0.0) <= 1e-13 * np.abs(K).max(initial=1.0):
            values, right = np.linalg.eigh((K + K.T) / 2)
            left = right
        else:
            values, right = np.linalg.eig(K)
            left = np.linalg.lstsq(right, np.eye(len(K)), rcond=None)[0].conj().T
        order = np.argsort(-abs(values), kind="stable")
        values, right, left = values[order], right[:, order], left[:, order]
        gap = values - 1
        constant = np.where(gap != 0, (d @ right) / np.where(gap != 0, gap, 1.0), 0.0)
        size = np.sqrt((abs(right) ** 2).sum(axis=0) + abs(constant) ** 2)
        size = np.where(size > 0, size, 1.0)
        full = np.zeros((len(K) + 1, len(K) + 1), dtype=right.dtype)
        full[0, 0], full[0, 1:], full[1:, 1:] = 1.0, constant / size, right / size
        return EigenSystem(np.concatenate([[1.0], values]), full, left * size)


@dataclass(frozen=True)
class EigenSystem:
    """The constant first, then the eigenvalues by magnitude.

    `right` has a column per eigenfunction, `left` those of the adjoint without the constant, with
    `left[:, i]ᴴ right[1:, j] = δᵢⱼ`.
    """

    values: np.ndarray  # (q + 1,)
    right: np.ndarray  # (q + 1, q + 1)
    left: np.ndarray  # (q, q)

    def errors(self, sums: TransitionSums, fitted: FittedOperator, reversible: bool) -> np.ndarray:
        """Standard errors of the eigenvalues: the jackknife to first order, fold by fold.

        λ̂ - λ is about the mean of `g(x)(f(y) - λf(x))` with the adjoint's eigenfunction g, whose
        sum over all of the data is zero; what it is in each fold tells its variance.
        """
        there = np.flatnonzero(sums.counts)
        R, values = self.right, self.values[1:]
        if len(there) < 2:
            return np.full(len(self.values), np.nan)
        shares, moved = sums.counts[there] / sums.total, []
        for k in there:
            m = sums.moments(np.array([k]), reversible).about(fitted.mean, fitted.mean)
            xx, xy = (fitted.W.T @ part @ fitted.W for part in (m.xx, m.xy))
            gap = xy @ R[1:, 1:] - (xx @ R[1:, 1:]) * values
            gap = gap + np.outer(m.x @ fitted.W, R[0, 1:] * (1 - values))
            moved.append(np.einsum("iq,iq->q", self.left.conj(), gap))
        apart = shares[:, None] * (np.array(moved) - shares @ np.array(moved))
        total = (abs(apart) ** 2).sum(axis=0) * len(there) / (len(there) - 1)
        return np.concatenate([[0.0], np.sqrt(total)])

    def residuals(
        self, sums: TransitionSums, fitted: FittedOperator, reversible: bool, whitener: np.ndarray
    ) -> np.ndarray:
        """‖Kf - λf‖ for functions of mean square one, on all coordinates.

        The square is the mean product of estimates from different folds, from which noise drops
        out; what rounding or noise makes negative is zero.
        """
        there = np.flatnonzero(sums.counts)
        R, values = self.right, self.values[1:]
        if len(there) < 2:
            return np.full(len(self.values), np.nan)
        parts = []
        for k in there:
            m = sums.moments(np.array([k]), reversible).about(fitted.mean, fitted.mean)
            c = fitted.W @ R[1:, 1:]
            gap = whitener.T @ (m.xy @ c - (m.xx @ c) * values)
            rest = whitener.T @ m.x
            gap = gap + np.outer(rest, R[0, 1:] * (1 - values))
            parts.append(sums.counts[k] / sums.total * gap)
        weights = sums.counts[there] / sums.total
        square = abs(sum(parts)) ** 2 - sum(abs(part) ** 2 for part in parts)
        found = square.sum(axis=0) / (1 - weights @ weights)
        return np.concatenate([[0.0], np.sqrt(np.maximum(found, 0.0))])


def bound_factor(confidence: float, folds: int) -> float:
    """How many standard errors make a bound."""
    return float(scipy.stats.t.ppf((1 + confidence) / 2, max(folds - 1, 1)))
