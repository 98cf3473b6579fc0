"""The density of residuals as a mixture of normal distributions, whose tails go on beyond them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp

from meanmap.arrays import one_blas_thread

PARTS = (1, 2, 3, 4, 6, 9, 13, 19)  # of the mixture that the noise is
FLOOR = 1e-4  # of the noise's variance, added to that of every part
GAIN = 2e-3  # of a left-out score, that more parts must gain
HELD = 0.2  # of the residuals, which choose their number


@dataclass(frozen=True, eq=False)
class NoiseMixture:
    """A mixture of normal distributions."""

    logs: np.ndarray  # (k,), logarithms of the parts' weights
    means: np.ndarray  # (k, p)
    factors: np.ndarray  # (k, p, p), F with FFᵀ the inverse covariance

    @classmethod
    def of(cls, noise: np.ndarray, sure: float = 0.0) -> NoiseMixture:
        """With as many parts as left-out rows ask for, by so many standard errors."""
        n, p = noise.shape
        order = np.random.default_rng(0).permutation(n)
        held, rest = np.split(noise[order], [int(HELD * n)])
        best, parts = np.full(len(held), -np.inf), 1
        for k in PARTS:
            if k > parts * 2 + 1 or k * (p + 1) * (p + 2) / 2 > len(rest) / 2:
                break
            score = normal_mixture(rest, k).score_samples(held)
            gain = score - best
            if k == 1 or gain.mean() > GAIN + sure * gain.std() / np.sqrt(len(gain)):
                best, parts = score, k
        found = normal_mixture(noise, parts)
        return cls(np.log(found.weights_), found.means_, found.precisions_cholesky_)

    def log_density(self, e: np.ndarray) -> np.ndarray:
        """At points (n, p)."""
        parts = [
            log - 0.5 * (((e - m) @ F) ** 2).sum(axis=1) + np.log(np.diagonal(F)).sum()
            for log, m, F in zip(self.logs, self.means, self.factors, strict=True)
        ]
        return logsumexp(np.stack(parts), axis=0) - 0.5 * e.shape[1] * np.log(2 * np.pi)


def normal_mixture(noise: np.ndarray, parts: int) -> Any:
    from sklearn.mixture import GaussianMixture  # loads most of scikit-learn

    with one_blas_thread():  # its k-means would set a limit by itself
        return GaussianMixture(parts, reg_covar=FLOOR, random_state=0).fit(noise)
