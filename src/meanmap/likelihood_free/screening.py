"""Which outputs of a simulator depend on the parameters at all.

Of many outputs some are noise, and a likelihood of all of them would be learned mostly from these.
HSIC of each output with the parameters is compared with the largest of all outputs when the rows of
the parameters are permuted, so that noise is seldom kept (Westfall and Young 1993).
"""

from __future__ import annotations

import numpy as np
from scipy.stats import norm, rankdata

from meanmap.conditional.ranges import or_one
from meanmap.kernels import Gaussian
from meanmap.kernels.bandwidths import median_distance
from meanmap.spaces import PivotedCholesky
from meanmap.statistics.dependence import centred_coordinates

ROWS = 2000  # that are looked at
BASIS = PivotedCholesky(1e-2, 100)  # of the parameters, and of each output
PERMUTATIONS = 99  # noise is kept in one case of a hundred


def dependent_columns(theta: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """Which outputs (n, p) have a distribution that depends on the parameters (n, d)."""
    some = np.linspace(0, len(theta) - 1, min(len(theta), ROWS)).astype(int)
    x, n = theta[some] / or_one(theta.std(axis=0)), len(some)
    psi, _ = centred_coordinates(Gaussian(median_distance(x)), x, BASIS)
    rng = np.random.default_rng(0)
    orders = [np.arange(n), *(rng.permutation(n) for _ in range(PERMUTATIONS))]
    # normal scores: a few extreme values decide nothing
    scores = norm.ppf(rankdata(outputs[some], axis=0) / (n + 1))
    parts = [centred_coordinates(Gaussian(1.0), u[:, None], BASIS)[0] for u in scores.T]
    sizes = np.array([np.linalg.norm(phi.T @ phi) or 1.0 for phi in parts])
    hsic = [[((moved.T @ phi) ** 2).sum() for phi in parts] for moved in (psi[i] for i in orders)]
    seen, *by_chance = np.array(hsic) / sizes
    return np.flatnonzero(seen > np.max(by_chance))
