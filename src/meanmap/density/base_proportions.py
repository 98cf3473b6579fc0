"""Base proportions: what the mixture is to be near to."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from meanmap import checks
from meanmap.arrays import to_numpy
from meanmap.density.candidates import NormalCandidates, RoundFrame


def log_base(
    kind: str, base: Any, candidates: NormalCandidates, frame: RoundFrame, moments: Any
) -> np.ndarray:
    """log q up to a constant, with which `Σ αₖ log(αₖ/qₖ)` is minus the entropy of the mixture, or
    its divergence from a base density, where candidates do not overlap.

    `H(p) ≤ -Σ αₖ log αₖ + Σ αₖ H(pₖ)`, so that log qₖ is H(pₖ), plus the mean of the base's
    log-density under pₖ. `moments` are mean and covariance of the sample in the frame.
    """
    d = candidates.centres.shape[1]
    entropies = d * np.log(candidates.deviations)
    if kind == "entropy":
        return entropies
    if base is None:
        return entropies + _normal_means(candidates, *moments)
    if hasattr(base, "logpdf") or hasattr(base, "score_samples"):
        return entropies + _mean_log_densities(base, candidates, frame)
    return _proportions(base, candidates)


def _normal_means(
    candidates: NormalCandidates, mean: np.ndarray, covariance: np.ndarray
) -> np.ndarray:
    """E log N(z; m, S) for z ~ N(c, h²I): -((c - m)ᵀS⁻¹(c - m) + h² tr S⁻¹)/2."""
    factor = cho_factor(covariance, lower=True)
    gap = candidates.means - mean
    trace = float(np.trace(cho_solve(factor, np.eye(len(mean)))))
    squares = (gap * cho_solve(factor, gap.T).T).sum(axis=1)
    return -(squares + candidates.deviations**2 * trace) / 2


def _mean_log_densities(base: Any, candidates: NormalCandidates, frame: RoundFrame) -> np.ndarray:
    """The mean of a log-density under each candidate, by the 2d points c ± √d h eᵢ.

    Exact for polynomials of degree three, hence for a normal base.
    """
    d = candidates.centres.shape[1]
    function = base.logpdf if hasattr(base, "logpdf") else base.score_samples
    total = np.zeros(len(candidates))
    for axis in np.concatenate([np.eye(d), -np.eye(d)]):
        at = candidates.means + d**0.5 * candidates.deviations[:, None] * axis
        points = frame.back(at)
        values = to_numpy(function(points[:, 0] if d == 1 and hasattr(base, "logpdf") else points))
        total += np.asarray(values, dtype=np.float64).reshape(len(total))
    if np.isnan(total).any():
        raise ValueError("base: its log-density is NaN at some candidates.")
    if not np.isfinite(total).any():
        raise ValueError("base: its density is 0 at every candidate. Choose one that covers them.")
    return np.where(np.isfinite(total), total / (2 * d), -1e3)


def _proportions(base: Any, candidates: NormalCandidates) -> np.ndarray:
    try:
        q = np.asarray(to_numpy(base), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            "base: expected None, proportions, or a density with logpdf (scipy.stats) or "
            f"score_samples (scikit-learn); got {checks.describe(base)}."
        ) from error
    if q.shape != (len(candidates),) or not (q > 0).all() or not np.isfinite(q).all():
        raise ValueError(
            f"base: expected {len(candidates)} positive proportions, one per candidate "
            f"({len(candidates.centres)} centres at {len(candidates.widths)} scales); got "
            f"{checks.describe(base)}."
        )
    return np.log(q)
