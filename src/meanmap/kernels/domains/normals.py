"""Normal distributions as points, and kernels averaged over them in closed form.

A point is a normal distribution without spread, so that one formula per kernel serves points,
normal distributions and mixtures of both. Spreads come in three forms: one variance for all
coordinates (n,), one per coordinate (n, d), or a matrix (n, d, d); each pair is compared in the
simplest that fits both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, factorial
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Points, spans, to_numpy
from meanmap.kernels.algebra import Constant, Scaled, Sum
from meanmap.kernels.protocol import Kernel
from meanmap.kernels.vectors import Gaussian, Linear, Polynomial

MEMORY = 1 << 21  # numbers in memory at a time, with one matrix per pair
CLOSED = "Gaussian, Linear, Polynomial, Constant, and sums and multiples of these"


@dataclass(frozen=True, eq=False)
class Normal:
    """A normal distribution on R^d, to stand for a bag of points in closed form.

    `Expected` and `OnEmbeddings` take it in place of a sample, alone or among samples.

    Parameters
    ----------
    mean : array of shape (d,)
    covariance : float, array of shape (d,) or (d, d)
        A variance (not a deviation) for all coordinates, one for each, or a matrix; 0 is a point.

    Examples
    --------
    >>> from meanmap.kernels import Expected, Gaussian, Normal
    >>> bags = [Normal([0.0], 1.0), [[0.0]], Normal([2.0, 1.0], [[1.0, 0.5], [0.5, 2.0]])]
    >>> Expected(Gaussian(1.0))(bags[:2]).round(3)
    array([[0.577, 0.707],
           [0.707, 1.   ]])
    >>> bags[2].sample(3, rng=0).shape
    (3, 2)
    """

    mean: Any
    covariance: Any = 1.0

    def __post_init__(self) -> None:
        mean = np.asarray(to_numpy(checks.numbers(self.mean, "mean")), dtype=np.float64)
        if mean.ndim != 1 or not len(mean):
            raise ValueError(
                f"mean: expected the d coordinates of a point, shape (d,), got shape {mean.shape}. "
                "One Normal is one distribution: pass a list of them for several."
            )
        spread = np.asarray(
            to_numpy(checks.numbers(self.covariance, "covariance")), dtype=np.float64
        )
        d = len(mean)
        if spread.shape not in ((), (d,), (d, d)):
            raise ValueError(
                f"covariance: expected a variance, {d} of them, or a matrix {d} × {d}, as the mean "
                f"has {d} coordinates; got shape {spread.shape}."
            )
        if spread.ndim == 2:
            if not np.allclose(spread, spread.T, rtol=1e-8, atol=1e-12 * abs(spread).max()):
                raise ValueError("covariance: the matrix is not symmetric.")
            spread = (spread + spread.T) / 2
            least = np.linalg.eigvalsh(spread)[0]
            if least < -1e-10 * max(float(np.trace(spread)), 0.0):
                raise ValueError(
                    f"covariance: the matrix has a negative eigenvalue, {least:.3g}: it is the "
                    "covariance of nothing. Was it estimated from missing values?"
                )
        elif (spread < 0).any():
            raise ValueError(
                f"covariance: a variance is never negative, got {float(spread.min()):.4g}."
            )
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "covariance", float(spread) if spread.ndim == 0 else spread)

    def sample(self, n: int, rng: Any = None) -> np.ndarray:
        """`n` points drawn from it, rows of an array."""
        z = np.random.default_rng(rng).normal(size=(n, len(self.mean)))
        if np.ndim(self.covariance) == 2:
            return self.mean + z @ _root(self.covariance).T
        return self.mean + z * np.sqrt(self.covariance)

    def __repr__(self) -> str:
        d = len(self.mean)
        if d > 4:
            return f"Normal(<{d} coordinates>)"
        shown = ", ".join(f"{value:.4g}" for value in self.mean)
        kind = np.ndim(self.covariance)
        spread = (
            f"<{d}×{d} matrix>"
            if kind == 2
            else np.array2string(np.asarray(self.covariance), precision=4, separator=", ")
        )
        return f"Normal([{shown}], {spread})"


def _root(matrix: np.ndarray) -> np.ndarray:
    """R with R Rᵀ the matrix, which may be singular."""
    values, vectors = np.linalg.eigh(matrix)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def sigma_points(normals: Sequence[Normal]) -> tuple[np.ndarray, np.ndarray]:
    """2d points each, m ± √d times the columns of a root, and the index of the one they stand for.

    They have the mean and the covariance: where a bandwidth is chosen by distances between points,
    they are the points of a normal distribution.
    """
    d = len(normals[0].mean)
    parts = []
    for normal in normals:
        c = normal.covariance
        root = _root(c) if np.ndim(c) == 2 else np.diag(np.broadcast_to(np.sqrt(c), d))
        parts += [normal.mean + d**0.5 * root.T, normal.mean - d**0.5 * root.T]
    return np.concatenate(parts), np.repeat(np.arange(len(normals)), 2 * d)


# --- components: points and normal distributions, one after the other -----------------------------


@dataclass(frozen=True)
class Components:
    """Points, or normal distributions whose spreads have one form."""

    means: np.ndarray
    spread: np.ndarray | None = None  # None: points

    def __len__(self) -> int:
        return len(self.means)

    @property
    def form(self) -> int:
        """1 for one variance, 2 for one variance per coordinate, 3 for matrices."""
        return 1 if self.spread is None else self.spread.ndim

    def spreads(self, form: int) -> np.ndarray:
        """The spread in this form or a richer one."""
        s = np.zeros(len(self)) if self.spread is None else self.spread
        if s.ndim == 1 and form > 1:
            s = np.broadcast_to(s[:, None], self.means.shape)
        return s[:, :, None] * np.eye(s.shape[1]) if s.ndim == 2 and form == 3 else s


Groups = list[tuple[np.ndarray, Components]]  # each with its places in the whole


def group_parts(parts: Sequence[Points | Normal]) -> Groups:
    """Samples and normal distributions, one after the other, gathered by the form of spread."""
    found: dict[int, list[tuple[np.ndarray, Any, Any]]] = {}
    start = 0
    for part in parts:
        if isinstance(part, Normal):
            form, means, spread = np.ndim(part.covariance) + 1, part.mean[None], part.covariance
        else:
            form, means, spread = 0, np.asarray(to_numpy(part), dtype=np.float64), None
        found.setdefault(form, []).append((np.arange(start, start + len(means)), means, spread))
        start += len(means)
    groups = []
    for form, members in found.items():
        places, means, spreads = zip(*members, strict=True)
        spread = np.stack([np.asarray(s) for s in spreads]) if form else None
        groups.append((np.concatenate(places), Components(np.concatenate(means), spread)))
    return groups


def compare_groups(kernel: Kernel, A: Groups, B: Groups) -> np.ndarray:
    """E k(x, y) for every component x of A and y of B, independent of each other."""
    shape = tuple(sum(len(places) for places, _ in side) for side in (A, B))
    out = np.empty(shape)
    for rows, a in A:
        for columns, b in B:
            out[np.ix_(rows, columns)] = expectation(kernel, a, b)
    return out


def has_closed_form(kernel: Kernel) -> bool:
    """Whether the kernel can be averaged over normal distributions without sampling."""
    if isinstance(kernel, Sum | Scaled):
        return all(map(has_closed_form, kernel.parts))
    return type(kernel) in (Gaussian, Linear, Polynomial, Constant)


def expectation(kernel: Kernel, a: Components, b: Components) -> np.ndarray:
    """E k(x, y) for every pair of components."""
    if a.spread is None and b.spread is None:
        return to_numpy(kernel.gram_matrix(a.means, b.means))
    if isinstance(kernel, Sum):
        return expectation(kernel.left, a, b) + expectation(kernel.right, a, b)
    if isinstance(kernel, Scaled):
        return kernel.factor * expectation(kernel.kernel, a, b)
    if isinstance(kernel, Gaussian):
        return average_gaussian(kernel, a, b)
    if isinstance(kernel, Polynomial):
        return average_polynomial(a, b, kernel.degree, kernel.offset)
    # ⟨x, y⟩ and constants need the means alone
    return to_numpy(kernel.gram_matrix(a.means, b.means))


# --- the Gaussian kernel --------------------------------------------------------------------------


def average_gaussian(kernel: Gaussian, a: Components, b: Components) -> np.ndarray:
    """|I + S|^(-1/2) exp(-½ (m - m')ᵀ (I + S)⁻¹ (m - m')), S = Σ + Σ', lengths in bandwidths.

    Muandet, Fukumizu, Dinuzzo and Schölkopf (2012, Table 1); with one bandwidth per column too.
    """
    a, b = _in_bandwidths(kernel, a), _in_bandwidths(kernel, b)
    form = max(a.form, b.form)
    v, w = a.spreads(form), b.spreads(form)
    if form == 3:
        return _gaussian_matrices(a.means, v, b.means, w)
    d = a.means.shape[1]
    if form == 1:
        exponent = -_half_squares(a, b)
        s = 1 + v[:, None] + w[None, :]
        exponent /= s
        exponent -= (d / 2) * np.log(s)
        return np.exp(exponent, out=exponent)
    exponent = np.zeros((len(a), len(b)))
    for c in range(d):
        s = 1 + v[:, c, None] + w[None, :, c]
        gap = a.means[:, c, None] - b.means[None, :, c]
        exponent -= gap * gap / s + np.log(s)
    exponent /= 2
    return np.exp(exponent, out=exponent)


def _in_bandwidths(kernel: Gaussian, x: Components) -> Components:
    """Lengths over σ and variances over σ²."""
    sigma = np.asarray(kernel.bandwidth, dtype=float)
    s = x.spread
    if s is not None and sigma.ndim:
        s = x.spreads(max(x.form, 2))
        s = s / (sigma**2 if s.ndim == 2 else sigma[:, None] * sigma[None, :])
    elif s is not None:
        s = s / sigma**2
    return Components(x.means / sigma, s)


def _half_squares(a: Components, b: Components) -> np.ndarray:
    """‖m - m'‖²/2 for every pair."""
    centre = b.means.mean(axis=0)  # smaller numbers, smaller rounding
    x, y = a.means - centre, b.means - centre
    squares = (x * x).sum(axis=1)[:, None] / 2 + (y * y).sum(axis=1)[None, :] / 2 - x @ y.T
    return np.maximum(squares, 0.0, out=squares)


def _gaussian_matrices(m: np.ndarray, v: np.ndarray, n: np.ndarray, w: np.ndarray) -> np.ndarray:
    d = m.shape[1]
    out = np.empty((len(m), len(n)))
    for i in spans(len(m), max(1, MEMORY // max(len(n) * d * d, 1))):
        S = v[i, None] + w[None] + np.eye(d)
        try:
            L = np.linalg.cholesky(S)
        except np.linalg.LinAlgError as error:
            raise ValueError(
                "covariance: some are so large beside the squared bandwidth that rounding makes "
                "their sum singular. Use a wider bandwidth, or smaller covariances."
            ) from error
        gap = m[i, None] - n[None]
        z = np.empty_like(gap)  # L⁻¹ of the gap, forward
        for c in range(d):
            known = (L[..., c, :c] * z[..., :c]).sum(axis=-1)
            z[..., c] = (gap[..., c] - known) / L[..., c, c]
        logs = np.log(np.diagonal(L, axis1=-2, axis2=-1)).sum(axis=-1)
        out[i] = np.exp(-(z * z).sum(axis=-1) / 2 - logs)
    return out


# --- polynomials ----------------------------------------------------------------------------------


def average_polynomial(a: Components, b: Components, degree: int, offset: float) -> np.ndarray:
    """E (⟨x, y⟩ + c)^p from the cumulants of ⟨x, y⟩.

    ⟨x, y⟩ = zᵀAz is a quadratic form of the normal z = (x, y), whose cumulants are
    2^(r-1) (r-1)! [tr (AV)^r + r mᵀ A (VA)^(r-1) m] (Mathai and Provost 1992). Degrees 2 and 3 are
    Muandet et al. (2012, Table 1).
    """
    cumulants = [cumulant + 0.0 for cumulant in _cumulants(a, b, degree)]
    cumulants[0] += offset
    moments = [np.ones_like(cumulants[0])]
    for p in range(1, degree + 1):
        terms = [comb(p - 1, r - 1) * cumulants[r - 1] * moments[p - r] for r in range(1, p + 1)]
        moments.append(sum(terms[1:], terms[0]))
    return moments[degree]


def _cumulants(a: Components, b: Components, degree: int) -> list[np.ndarray]:
    """The cumulants of ⟨x, y⟩ of order 1 to `degree`, an array of pairs each.

    Written out in blocks: κ of order 2k is (2k-1)! tr (SS')^k + (2k)!/2 [mᵀS'(SS')^(k-1)m +
    m'ᵀS(S'S)^(k-1)m'], and κ of order 2k + 1 is (2k+1)! mᵀ(S'S)^k m'.
    """
    if max(a.form, b.form) == 3:
        return _cumulants_of_matrices(a, b, degree)
    m, n = a.means, b.means
    s, t = a.spreads(2), b.spreads(2)
    found = []
    for r in range(1, degree + 1):
        k = r // 2
        if r % 2:
            found.append(factorial(r) * ((m * s**k) @ (n * t**k).T))
            continue
        ends = (m * m * s ** (k - 1)) @ (t**k).T + (s**k) @ (n * n * t ** (k - 1)).T
        found.append(factorial(r - 1) * (s**k @ (t**k).T) + factorial(r) / 2 * ends)
    return found


def _cumulants_of_matrices(a: Components, b: Components, degree: int) -> list[np.ndarray]:
    d = a.means.shape[1]
    found = [np.empty((len(a), len(b))) for _ in range(degree)]
    every = a.spreads(3)
    n, T = b.means, b.spreads(3)[None]
    for i in spans(len(a), max(1, MEMORY // max(len(b) * d * d, 1))):
        m, S = a.means[i], every[i][:, None]
        power = np.broadcast_to(np.eye(d), (len(m), len(b), d, d))  # (SS')^(k-1)
        for r in range(1, degree + 1):
            if r % 2:  # mᵀ(S'S)^k m' = m'ᵀ(SS')^k m, with k = (r-1)/2
                found[r - 1][i] = factorial(r) * np.einsum("jx,ijxy,iy->ij", n, power, m)
                continue
            ahead = power @ S @ T  # (SS')^k
            trace = np.einsum("ijxx->ij", ahead)
            ends = np.einsum("ix,ijxy,iy->ij", m, T @ power, m)
            ends += np.einsum("jx,ijxy,jy->ij", n, power @ S, n)
            found[r - 1][i] = factorial(r - 1) * trace + factorial(r) / 2 * ends
            power = ahead
    return found
