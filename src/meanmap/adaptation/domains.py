"""Samples from several domains: how much their embeddings vary, and directions that do not."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg

from meanmap import checks
from meanmap.arrays import concatenate, count, one_blas_thread, to_numpy
from meanmap.kernels.defaults import as_kernel
from meanmap.linalg import Spectrum
from meanmap.statistics.gates import row_labels


def distributional_variance(samples: Any, domains: Any = None, kernel: Any = None) -> float:
    """How far apart domains are: the variance of their embeddings.

    The mean squared distance of the embeddings μ₁ … μ_N from their average, tr(G)/N - ΣG/N² for
    G = ⟨μᵢ, μⱼ⟩ (Muandet, Balduzzi and Schölkopf 2013, eq. 3). For two domains it is a quarter of
    their squared maximum mean discrepancy (`mmd` with "V"). It is zero for a characteristic kernel
    if and only if all domains are distributed alike; finite samples leave about
    Σᵢ (1 - ‖μᵢ‖²)/(N nᵢ) of it for k(x, x) = 1.

    Parameters
    ----------
    samples : list of samples, or one sample of all rows
    domains : labels of shape (n,), or None
        The domain of each row, if `samples` is one sample.
    kernel : Kernel, callable or None
        None chooses for the kind of points; a bandwidth is resolved on all samples together.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.adaptation import distributional_variance
    >>> rng = np.random.default_rng(0)
    >>> alike = [rng.normal(size=(300, 2)) for _ in range(5)]
    >>> apart = [rng.normal(i, 1.0, size=(300, 2)) for i in range(5)]
    >>> round(distributional_variance(alike), 3), round(distributional_variance(apart), 2)
    (0.002, 0.22)
    """
    if domains is None:
        if not isinstance(samples, list) or not samples or np.isscalar(samples[0]):
            raise TypeError(
                "distributional_variance takes a list of samples, one per domain, or one sample "
                f"and domains=labels; got {checks.describe(samples)} and domains=None."
            )
        kernel = as_kernel(kernel, samples[0], "samples[0]")
        parts = [kernel.check(samples[0], "samples[0]")]
        parts += [
            kernel.check(part, f"samples[{i}]", parts[0], "samples[0]")
            for i, part in enumerate(samples[1:], 1)
        ]
        points = concatenate(parts)
        code = np.repeat(np.arange(len(parts)), [count(part) for part in parts])
    else:
        kernel = as_kernel(kernel, samples, "samples")
        points = kernel.check(samples, "samples")
        code = domain_codes(domains, count(points), "samples")[1]
    E = averages(code)
    G = E.T @ to_numpy(kernel.resolve(points).matmul(points, points, E))
    return max(float(np.trace(G) / len(G) - G.mean()), 0.0)


def domain_codes(domains: Any, n: int, name: str = "X") -> tuple[np.ndarray, np.ndarray]:
    """The domains there are, sorted, and the place of every row's among them."""
    labels = row_labels(domains, n, "domains", name)
    names, code = np.unique(labels, return_inverse=True)
    return names, code


def averages(code: np.ndarray) -> np.ndarray:
    """(n, N) such that its transpose times rows are the domains' means."""
    sizes = np.bincount(code)
    E = np.zeros((len(code), len(sizes)))
    E[np.arange(len(code)), code] = 1 / sizes[code]
    return E


@dataclass(frozen=True, eq=False)
class DomainProblem:
    """Rows of several domains in coordinates that are centred.

    Dual coefficients B of the papers stand for directions W = ΨᵀB of the space, K = ΨΨᵀ, so that
    BᵀK²B/n = WᵀCW, BᵀKQKB = WᵀSW and BᵀKB = WᵀW, with C the covariance of the rows and S that of
    the domains' means. BᵀB is WᵀC⁻¹W/n for the smallest B. So E = tS + ηI + λC⁻¹ below stands for
    tKQK + ηK + nλI.
    """

    psi: np.ndarray  # (n, r), centred
    code: np.ndarray  # the domain of each row
    phi: np.ndarray | None = None  # (n, s): coordinates of targets, centred
    epsilon: float = 0.0  # on their covariance

    @cached_property
    def axes(self) -> tuple[np.ndarray, np.ndarray]:
        """Variances along uncorrelated axes, and the axes as columns: C = V diag(d) Vᵀ."""
        spectrum = Spectrum.of(self.psi.T @ self.psi / len(self.psi))
        kept = spectrum.values > max(spectrum.cutoff, 1e-14 * spectrum.values[-1])
        return spectrum.values[kept][::-1], spectrum.vectors[:, kept][:, ::-1]

    @cached_property
    def means(self) -> np.ndarray:
        """(q, N), the domains' means from their average, with S = MMᵀ."""
        E = averages(self.code)
        M = (E.T @ self.psi) @ self.axes[1]
        return (M - M.mean(axis=0)).T / E.shape[1] ** 0.5

    @cached_property
    def relation(self) -> np.ndarray:
        """F with FFᵀ = C_xy (C_yy + εI)⁻¹ C_yx, the covariance of E[φ(X)|Y]."""
        assert self.phi is not None
        n, s = self.phi.shape
        cross = (self.psi.T @ self.phi / n).T @ self.axes[1]
        root = np.linalg.cholesky(self.phi.T @ self.phi / n + self.epsilon * np.eye(s))
        return scipy.linalg.solve_triangular(root, cross, lower=True).T

    @property
    def noise(self) -> float:
        """The largest variance of the domains' means along a direction that chance alone gives."""
        d = self.axes[0]
        return float(d[0] * np.mean(1 / np.bincount(self.code))) if len(d) else 0.0

    def penalty(self, t: float, eta: float, lam: float) -> Penalty:
        """E of these weights."""
        delta = (eta + lam / self.axes[0]) ** -0.5
        U, s, _ = np.linalg.svd(delta[:, None] * self.means, full_matrices=False)
        kept = s > 1e-12 * max(s.max(initial=0.0), 1e-300)
        U, s = U[:, kept], s[kept]
        shrunk = np.zeros_like(s) if np.isinf(t) else (1 + t * s**2) ** -0.5
        return Penalty(delta, U, shrunk)

    def solve(
        self, m: int, t: float, eta: float = 1.0, lam: float = 0.0, relation: str = "covariance"
    ) -> tuple[np.ndarray, np.ndarray]:
        """W (r, m or fewer) with WᵀEW = I, and what it keeps along each, most first."""
        d, V = self.axes
        E = self.penalty(t, eta, lam)
        with one_blas_thread():
            if self.phi is None:
                Z, kept = E.variance(d, m, None)
            elif relation == "inverse":
                Z, kept = E.inverse(d, self.relation, m)
            else:
                Z, kept = E.between(self.relation, m)
            if self.phi is not None and 0 < Z.shape[1] < m:
                # the targets have no more to say: what varies most beside
                more, _ = E.variance(d, m - Z.shape[1], np.linalg.qr(Z)[0])
                Z = np.hstack([Z, more])
                kept = np.concatenate([kept, np.zeros(more.shape[1])])
            return V @ E.back(Z), kept


@dataclass(frozen=True, eq=False)
class Penalty:
    """E = tS + ηI + λC⁻¹ on uncorrelated axes, as Δ⁻¹(I + tΔSΔ)Δ⁻¹ with Δ diagonal.

    I + tΔSΔ is one but for as many directions as there are domains, so that its root costs nothing
    and t may be infinite.
    """

    delta: np.ndarray
    U: np.ndarray
    shrunk: np.ndarray  # (1 + ts²)^-½ along U

    def half(self, x: np.ndarray) -> np.ndarray:
        """(I + tΔSΔ)^-½ x."""
        return x + self.U @ ((self.shrunk - 1)[:, None] * (self.U.T @ x))

    def back(self, Z: np.ndarray) -> np.ndarray:
        """Directions with ZᵀZ = I as those with WᵀEW = I."""
        return self.delta[:, None] * self.half(Z)

    def variance(
        self, d: np.ndarray, m: int, beside: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Leading directions of C against E, orthogonal to others."""
        G = self.half(np.diag(d**0.5 * self.delta))
        if beside is not None:
            G = G - beside @ (beside.T @ G)
        size = len(d)
        if m == 0 or size == 0:
            return np.zeros((size, 0)), np.zeros(0)
        values, vectors = scipy.linalg.eigh(
            G @ G.T, subset_by_index=(max(size - m, 0), size - 1), check_finite=False
        )
        values, vectors = values[::-1], vectors[:, ::-1]
        good = values > 1e-12 * float(np.max(d * self.delta**2))
        return vectors[:, good], values[good]

    def between(self, F: np.ndarray, m: int) -> tuple[np.ndarray, np.ndarray]:
        """Leading directions of FFᵀ against E."""
        Z, s, _ = np.linalg.svd(self.half(self.delta[:, None] * F), full_matrices=False)
        good = s > 1e-9 * max(s.max(initial=0.0), 1e-300)
        return Z[:, good][:, :m], s[good][:m] ** 2

    def inverse(self, d: np.ndarray, F: np.ndarray, m: int) -> tuple[np.ndarray, np.ndarray]:
        """Leading directions of C⁻¹FFᵀC against E, which is the paper's and not symmetric.

        E⁻¹C⁻¹F · FᵀC has the nonzero eigenvalues of FᵀC E⁻¹ C⁻¹F, of the targets' size. Complex
        pairs stand for the plane of their real and imaginary parts.
        """
        X = self.half(self.delta[:, None] * (F / d[:, None]))  # E⁻¹C⁻¹F = back(X)
        T = (d[:, None] * F).T @ self.back(X)
        values, vectors = np.linalg.eig(T)
        order = np.lexsort((-values.imag, -values.real))
        top = max(abs(values).max(initial=0.0), 1e-300)
        found, kept = [], []
        for i in order:
            if values[i].real <= 1e-9 * top:
                break
            # of a pair the one above the real axis comes first and gives its real part
            part = vectors[:, i].imag if values[i].imag < 0 else vectors[:, i].real
            z = X @ part
            found.append(z / np.linalg.norm(z))
            kept.append(values[i].real)
        Z = np.array(found[:m]).T.reshape(len(d), -1)
        return Z, np.array(kept[:m])
