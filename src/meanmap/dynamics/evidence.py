"""How likely an observation was: its density given those before it, over its density given none.

`D(o) = Σ uᵢ ℓᵢ(o) / Σ wᵢ ℓᵢ(o)` with the predicted belief's weights u on the training states, their
own weights w, and the likelihood `ℓᵢ(o)` of o at training state i. With non-negative u it is
positive. Observations that are vectors have Gaussian likelihoods, about E[o|sᵢ] and with the
covariance of the residuals; they are as sharp as the observation noise, where the kernel of the
observations is not. The density below the line has one row more, with twice the spread of all
observations: what no training state explains is then unlikely, wherever the belief is. For labels
and other points `D(o) = ψ(o)ᵀ E m` is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from scipy.special import logsumexp

from meanmap.arrays import Array, spans, to_numpy
from meanmap.conditional.ranges import or_one
from meanmap.dynamics.sequences import Steps
from meanmap.linalg import Spectrum

LEAST = 1e-6  # the share of all training states in a belief: it does not resolve less
EXACT = (
    1e-8  # of the largest eigenvalue: how closely numbers are written in the observation's space
)
NOISE = 1e-6  # of a column's variance: the noise is taken to be at least this
TAIL = 2.0  # times the spread of all observations: where the row more may lie
NEVER = 1 << 30  # steps without an observation: nothing was seen yet
CHUNK = 1 << 20  # numbers in memory at once


class Evidence(Protocol):
    """log D of observations, from the predictions made before they came."""

    def log(self, predicted: Array, features: Array, values: Any, unseen: np.ndarray) -> np.ndarray:
        """One number for each row.

        Coordinates of predicted beliefs, of observations, the observations themselves if they are
        vectors (else None), and how many steps before were not observed.
        """


@dataclass(frozen=True, eq=False)
class LinearEvidence:
    """`D(o) = ψ(o)ᵀ E m`, cut off below: estimates of small ratios may be negative."""

    matrix: Array  # E, (r_o, r_s)

    def log(self, predicted: Array, features: Array, values: Any, unseen: np.ndarray) -> np.ndarray:
        ratio = ((to_numpy(features) @ to_numpy(self.matrix)) * to_numpy(predicted)).sum(axis=-1)
        return np.asarray(np.log(np.maximum(ratio, LEAST)))


@dataclass(frozen=True, eq=False)
class Decoder:
    """Vectors as functions in the observations' space: `o ≈ centre + ψ(o) A`."""

    centre: np.ndarray  # (d,)
    coefficients: np.ndarray  # A, (r_o, d)

    @classmethod
    def of(cls, points: Any, phi: Array) -> Decoder:
        """From the training observations and their coordinates."""
        values, rows = vector_rows(points), to_numpy(phi).astype(np.float64)
        centre = values.mean(axis=0)
        spectrum = Spectrum.of(rows.T @ rows / len(rows))
        inverse = spectrum.inverse(EXACT * float(spectrum.values[-1]))
        return cls(centre, inverse @ (rows.T @ (values - centre) / len(rows)))


@dataclass(frozen=True, eq=False)
class MixtureEvidence:
    """The ratio of two mixtures of Gaussians about what is expected at each training state."""

    decoder: Decoder
    ratio: Array  # Ψ_S (C_SS + εI)⁻¹, (n, r_s): a belief's density ratio at the training states
    means: np.ndarray  # E[o|s] at the training states, whitened, (n, d)
    scale: NoiseScale

    @classmethod
    def of(cls, moments: Array, inverse: Array, psi: Array, decoder: Decoder) -> MixtureEvidence:
        """From E[v vᵀ] of v = (ψ(s), ψ(o)), (C_SS + εI)⁻¹ and the training states' ψ."""
        C, H = to_numpy(moments).astype(np.float64), to_numpy(inverse).astype(np.float64)
        rows, r, A = to_numpy(psi).astype(np.float64), len(H), decoder.coefficients
        C_SS, C_SO, C_OO = C[:r, :r], C[:r, r:] @ A, A.T @ C[r:, r:] @ A
        B = H @ C_SO
        residual = C_OO - C_SO.T @ B - B.T @ C_SO + B.T @ C_SS @ B
        free = max(1 - float((C_SS * H).sum()) / len(rows), 0.1)  # of the degrees of freedom
        scale = NoiseScale.of(residual / free**2, C_OO, len(rows))
        return cls(decoder, rows @ H, rows @ B @ scale.whitening, scale)

    def log(self, predicted: Array, features: Array, values: Any, unseen: np.ndarray) -> np.ndarray:
        ratio, m = to_numpy(self.ratio), to_numpy(predicted)
        found = np.empty(len(m))
        for rows in spans(len(m), max(1, CHUNK // len(ratio))):
            u = np.maximum(m[rows] @ ratio.T, 0.0)
            total = u.mean(axis=1, keepdims=True)
            u = np.where(total > 0, u / np.where(total > 0, total, 1.0), 1.0)
            o = (values[rows] - self.decoder.centre) @ self.scale.whitening
            likely = -distances(o, self.means) / 2
            top = likely.max(axis=1, keepdims=True)
            likely = np.exp(likely - top)
            given = np.log(((u + LEAST) * likely).mean(axis=1)) + top[:, 0]
            whole = np.log(likely.mean(axis=1)) + top[:, 0]
            found[rows] = given - self.scale.with_tail(whole, o, len(ratio))
        return found


@dataclass(frozen=True, eq=False)
class ForecastEvidence:
    """The density about the forecast, over its mean about the forecasts made in training.

    For filters without states to condition on. After steps that were not observed, forecasts that
    looked as far ahead are compared.
    """

    image: np.ndarray  # E[o] - centre is `b @ image` for a belief b
    centre: np.ndarray
    beliefs: tuple[Any, ...]  # beliefs (k, N) before each training step, as far ahead
    values: tuple[np.ndarray, ...]  # the observations of those steps, (k, d)

    def log(self, predicted: Array, features: Array, values: Any, unseen: np.ndarray) -> np.ndarray:
        ahead = np.where(unseen < NEVER, np.minimum(unseen, len(self.beliefs) - 1), NEVER)
        found, b = np.zeros(len(ahead)), to_numpy(predicted)
        for k in np.unique(ahead[ahead < NEVER]):
            means, scale = self._forecasts[k]
            for block in spans(int((ahead == k).sum()), max(1, CHUNK // len(means))):
                rows = np.flatnonzero(ahead == k)[block]
                o = (values[rows] - self.centre) @ scale.whitening
                mine = -((o - b[rows] @ self.image @ scale.whitening) ** 2).sum(axis=1) / 2
                whole = log_mean_density(o, means)
                given = np.logaddexp(mine, whole + np.log(LEAST))
                found[rows] = given - scale.with_tail(whole, o, len(means))
        return found

    @cached_property
    def _forecasts(self) -> list[tuple[np.ndarray, NoiseScale]]:
        """Whitened means of the forecasts in training, and their scale, by steps ahead."""
        found = []
        for beliefs, values in zip(self.beliefs, self.values, strict=True):
            means, about = to_numpy(beliefs) @ self.image, values - self.centre
            gap = about - means
            scale = NoiseScale.of(gap.T @ gap / len(gap), about.T @ about / len(gap), len(gap))
            found.append((means @ scale.whitening, scale))
        return found


@dataclass(frozen=True, eq=False)
class NoiseScale:
    """Observations on the scale of their noise, and how far all of them spread on it."""

    whitening: np.ndarray  # W with `Wᵀ C W = I` for the covariance C of the noise
    axes: np.ndarray  # of the spread of all observations
    spread: np.ndarray  # standard deviations along them

    @classmethod
    def of(cls, noise: np.ndarray, whole: np.ndarray, n: int) -> NoiseScale:
        """C is drawn towards its diagonal where columns are many for n rows."""
        d, variances = len(noise), np.diagonal(whole)
        unit = np.sqrt(or_one(variances))
        C = (1 - d / (d + n)) * noise / np.outer(unit, unit)
        C[np.diag_indices(d)] = np.maximum(np.diagonal(noise) / unit**2, NOISE)
        values, vectors = np.linalg.eigh(C)
        W = vectors / np.sqrt(np.maximum(values, NOISE)) / unit[:, None]
        squares, axes = np.linalg.eigh(W.T @ whole @ W)
        return cls(W, axes, TAIL * np.sqrt(np.maximum(squares, 1.0)))

    def with_tail(self, logs: np.ndarray, o: np.ndarray, n: int) -> np.ndarray:
        """The log density of n rows at whitened o, and of one more that is spread wide."""
        tail = -(((o @ self.axes) / self.spread) ** 2).sum(axis=1) / 2 - np.log(self.spread).sum()
        return np.asarray(np.logaddexp(np.log(n) + logs, tail) - np.log(n + 1))


def distances(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Squared distances between rows."""
    squares = (A * A).sum(axis=1)[:, None] + (B * B).sum(axis=1) - 2 * A @ B.T
    return np.asarray(np.maximum(squares, 0.0))


def log_mean_density(o: np.ndarray, means: np.ndarray) -> np.ndarray:
    """The log density of whitened rows o, averaged over normal distributions about the means."""
    return np.asarray(logsumexp(-distances(o, means) / 2, axis=1) - np.log(len(means)))


def vector_rows(points: Any) -> np.ndarray:
    """Vectors as rows of float64 numbers."""
    return np.asarray(to_numpy(points), dtype=np.float64).reshape(len(points), -1)


@dataclass(frozen=True, eq=False)
class PendingEvidence:
    """log D of the steps of sequences, computed on first use."""

    evidence: Evidence
    predicted: Any  # before each step, (b, steps, …)
    steps: Steps

    @cached_property
    def logs(self) -> np.ndarray:
        """(b, steps); 0 where nothing was observed."""
        found = np.zeros(self.steps.seen.shape)
        there = ~np.isnan(self.steps.support)
        if there.any():
            values = self.steps.values
            found[there] = self.evidence.log(
                self.predicted[there],
                to_numpy(self.steps.features)[there],
                None if values is None else values[there],
                unseen_before(self.steps.seen)[there],
            )
        return found

    def __getitem__(self, index: Any) -> np.ndarray:
        return self.logs[index]


def unseen_before(seen: np.ndarray) -> np.ndarray:
    """How many steps right before each were not observed, (b, steps); NEVER or more if none was."""
    found = np.full(seen.shape, NEVER)
    for t in range(1, seen.shape[1]):
        found[:, t] = np.where(seen[:, t - 1], 0, found[:, t - 1] + 1)
    return found
