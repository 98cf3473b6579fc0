"""How likely test rows are under an alignment, so that alignments of other freedom can be compared.

The distance of embeddings that an alignment minimises says little about which of two good ones is
right: classes that are moved for themselves imitate other proportions, and the other way round. The
likelihood of the test rows under the moved and weighted training rows tells them apart in far fewer
rows. Each class has its own density estimate, normal kernels of the width that is likeliest
for rows left out. Freedom costs what it does in Schwarz's criterion (1978), where the noise of two
samples counts: (1 + m/n)/2 · log m per parameter. Other proportions need very strong evidence.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

from meanmap.adaptation.alignment import Alignment

WIDTHS = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of kernels, in deviations
LEAST = 1e-2  # deviation of a class in a column, in units of the test rows
STRONG = 5.0  # very strong evidence (Kass and Raftery 1995), which other proportions must have
FAR, SPREAD = 0.01, 2.0  # of the mass lies anywhere, so that no lonely row decides


def penalized_likelihood(problem: Alignment, parameters: np.ndarray, groups: np.ndarray) -> float:
    """The log-likelihood of the test rows, less what the freedom of the alignment costs."""
    (n, d), m = problem.Z.shape, len(problem.T)
    used = 2 * d * freedom(problem.moves, problem.shrinkage)
    likelihood = float(row_log_likelihoods(problem, parameters, groups).sum())
    if problem.ridge is not None:
        used += freedom(problem.F, problem.shrinkage) - 1
        likelihood -= STRONG
    return likelihood - (1 + m / n) / 2 * math.log(m) * used


def row_log_likelihoods(
    problem: Alignment, parameters: np.ndarray, groups: np.ndarray
) -> np.ndarray:
    """The log density of each test row, up to a constant that all alignments share."""
    Z, T = problem.move(parameters), problem.T
    shares = problem.weights_at(parameters, problem.F) / len(Z)
    d = Z.shape[1]
    anywhere = -((T / SPREAD) ** 2).sum(axis=1) / 2 - d * math.log(SPREAD) + math.log(FAR)
    parts = [anywhere]
    for group in np.unique(groups):
        centres, h = likeliest_kernels(Z[groups == group])
        exponents = -cdist(T / h, centres / h, "sqeuclidean") / 2
        with np.errstate(divide="ignore"):  # a class may be gone
            mass = np.log((1 - FAR) * shares[groups == group])
        parts.append(logsumexp(exponents + mass, axis=1) - np.log(h).sum())
    return np.asarray(logsumexp(parts, axis=0))


def likeliest_kernels(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centres and widths of normal kernels under which each row is likely by the others.

    Centres lie nearer to the mean than the rows, by so much that the estimate has the deviations of
    the rows: smoothing would otherwise widen it, the more so the more columns there are, and rows
    that were moved too close together would seem likelier.
    """
    n, d = rows.shape
    deviation, mean = np.maximum(rows.std(axis=0), LEAST), rows.mean(axis=0)
    best = -math.inf
    for share in WIDTHS:
        h = share * deviation
        near = mean + math.sqrt(1 - share**2) * (rows - mean)
        squares = cdist(rows / h, near / h, "sqeuclidean") / 2
        if n > 1:
            np.fill_diagonal(squares, np.inf)
        score = float(logsumexp(-squares, axis=1).mean()) - d * math.log(share)
        if score > best:
            best, found = score, (near, h)
    return found


def freedom(F: np.ndarray, shrinkage: float) -> float:
    """How many of the features a regression on them makes use of."""
    s = np.linalg.eigvalsh(F.T @ F / len(F))
    s = s[s > 1e-12 * max(float(s[-1]), 1e-300)]
    return float((s / (s + shrinkage)).sum())
