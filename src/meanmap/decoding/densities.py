"""Density estimates with a bandwidth of their own, and where they are highest."""

from __future__ import annotations

from typing import Any

import numpy as np

from meanmap.arrays import Array, asarray, to_numpy
from meanmap.kernels import Gaussian
from meanmap.kernels.bandwidths import bandwidth_numbers

NOTHING = 1e-6  # of the largest probability: such atoms are left out
GRID = 1024  # places at which a column's density is tried
TRIED = 0.7 ** np.arange(12)  # bandwidths, as shares of Silverman's
JUDGED = 4096  # numbers whose likelihood is looked at
TAIL = 0.005  # of the mass at either end says nothing of the bandwidth
FLAT = 1e-3  # of the mass is taken to lie anywhere, that no lonely point decides
CANDIDATES = 64  # atoms by which the highest place is looked for
CLIMBS = 2  # of the best of them are climbed from
STEPS = 100  # of a climb
WIDER = (16.0, 8.0, 4.0, 2.8, 2.0, 1.4)  # bandwidths under which a peak is looked for
ERRORS = 1.5  # standard errors by which a peak may be lower than the highest
WIDE = 32  # columns beyond which a climb does without second derivatives


def density(atoms: Array, p: np.ndarray, x: Array, bandwidth: Any = None) -> Array:
    """`Σ pᵢ N(x; xᵢ, diag(h²))` at the points x, for one row of probabilities p."""
    h = scales(atoms, p) if bandwidth is None else density_bandwidths(bandwidth, atoms.shape[1])
    total = float(np.prod(h * (2 * np.pi) ** 0.5))
    return Gaussian(tuple(map(float, h))).gram_times(x, atoms, asarray(p, atoms)) / total


def scales(atoms: Array, p: np.ndarray) -> np.ndarray:
    """The bandwidths of a density estimate, one per column: see `widths`."""
    h = widths(to_numpy(atoms).astype(np.float64), p)
    if not (h > 0).all():
        raise ValueError(
            f"column {int(np.flatnonzero(~(h > 0))[0])} of the atoms is constant, so a "
            "bandwidth cannot be chosen from its scale. Pass bandwidth=, or leave the column out."
        )
    return h


def widths(values: np.ndarray, p: np.ndarray) -> np.ndarray:
    """A bandwidth for each column of values (n, d), 0 for a constant one.

    Each column's own by `likeliest_width`, then widened from one dimension to d as Silverman's rule
    is: (4/(d + 2)n)^(1/(d + 4)), n = 1/Σp².
    """
    n, d = 1 / float(p @ p), values.shape[1]
    more = (4 / ((d + 2) * n)) ** (1 / (d + 4)) / (4 / (3 * n)) ** 0.2
    there = p > NOTHING * p.max()
    found = [likeliest_width(column[there], p[there]) for column in values.T]
    if min(found) == 0:  # a belief on one point has no scale: the sample's is used
        alike = np.full(len(p), 1 / len(p))
        found = [
            own or likeliest_width(column, alike)
            for own, column in zip(found, values.T, strict=True)
        ]
    return more * np.array(found)


def likeliest_width(x: np.ndarray, p: np.ndarray) -> float:
    """The bandwidth of numbers under which each is likely by all others; 0 if all are equal.

    Likelihood cross-validation between Silverman's bandwidth and a fiftieth of it, since a sample
    of several modes needs far less than its deviation suggests. Equal numbers are left out
    together, a flat part of the density stands for what lies far out, and the widest is taken that
    is less likely than the best by no more than a standard error. Densities come from one Fourier
    transform on a grid.
    """
    x, mass = merge_equal(x, p)
    n = 1 / float(p @ p)
    F = np.cumsum(mass)
    ends = np.searchsorted(F, [TAIL, 1 - TAIL])
    low, high = x[np.minimum(ends, len(x) - 1)]
    inner = (x >= low) & (x <= high)
    spread = deviation(x[inner], mass[inner]) or deviation(x, mass)
    if spread == 0:
        return 0.0
    top = spread * (4 / (3 * n)) ** 0.2
    start, step = low - 3 * top, (high - low + 6 * top) / (GRID - 1)
    h = top * TRIED
    h = h[h > step]
    if inner.sum() < 3 or len(h) == 0:
        return top
    at = x[inner]
    place = (at - start) / step
    cell = np.minimum(place.astype(int), GRID - 2)
    part = place - cell
    m = mass[inner]
    bins = np.bincount(cell, m * (1 - part), GRID) + np.bincount(cell + 1, m * part, GRID)
    frequencies = 2 * np.pi * np.fft.rfftfreq(GRID, step)
    damping = np.exp(-((frequencies * h[:, None]) ** 2) / 2)
    curves = np.fft.irfft(damping * np.fft.rfft(bins), GRID, axis=1) / step
    some = np.linspace(0, len(at) - 1, min(len(at), JUDGED)).astype(int)
    cell, part, m = cell[some], part[some], m[some]
    values = curves[:, cell] * (1 - part) + curves[:, cell + 1] * part
    # a number's own share of that, as the grid has it
    here, beside = np.fft.irfft(damping, GRID, axis=1)[:, :2].T[:, :, None] / step
    own = m * (here * (part**2 + (1 - part) ** 2) + beside * (2 * part * (1 - part)))
    others = np.maximum(values - own, 0.0) / np.maximum(1 - m, 1e-12)
    logs = np.log((1 - FLAT) * others + FLAT / (high - low or 6 * top))
    best = int((logs @ m).argmax())
    lost = logs[best] - logs
    share = m / m.sum()
    average = lost @ share
    error = np.sqrt(((lost - average[:, None]) ** 2 @ share) / n)
    return float(h[int((average <= error).argmax())])


def merge_equal(x: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Different numbers in order, and the mass of each."""
    order = np.argsort(x, kind="stable")
    ordered = x[order]
    first = np.flatnonzero(np.append(True, ordered[1:] > ordered[:-1]))
    return ordered[first], np.add.reduceat(p[order], first)


def deviation(x: np.ndarray, p: np.ndarray) -> float:
    """The standard deviation of numbers with masses, 0 where it is rounding."""
    share = p / p.sum()
    found = float(np.sqrt(share @ (x - share @ x) ** 2))
    return found if found > 1e-12 * float(np.ptp(x)) and np.ptp(x) > 0 else 0.0


def highest(values: np.ndarray, p: np.ndarray, candidates: np.ndarray | None = None) -> np.ndarray:
    """Where the density of values (n, d) with probabilities p is highest, at its own bandwidth.

    Among candidates if there are any. Else the best of some atoms, chosen as their probabilities
    say, are climbed from.
    """
    values = values.astype(np.float64)
    h = widths(values, p)
    h = np.where(h > 0, h, 1.0)
    there = p > NOTHING * p.max()
    p = p[there] / p[there].sum()
    centre = values[there].mean(axis=0)
    z = (values[there] - centre) / h
    if candidates is not None:
        tried = (candidates.astype(np.float64) - centre) / h
        return candidates[int(Gaussian(1.0).gram_times(tried, z, p).argmax())]
    edges = np.cumsum(p)
    chosen = np.searchsorted(edges, (np.arange(CANDIDATES) + 0.5) / CANDIDATES * edges[-1])
    x = z[np.unique(np.minimum(chosen, len(z) - 1))]
    heights = Gaussian(1.0).gram_times(x, z, p)
    ends = [climb(z, p, start) for start in x[np.argsort(-heights)[:CLIMBS]]]
    top = max(ends, key=lambda end: end[1])[0]
    return smoothest(z, p, top) * h + centre


def smoothest(z: np.ndarray, p: np.ndarray, top: np.ndarray) -> np.ndarray:
    """The peak of a wider density that is as high as the top, but for a standard error or two.

    The place of a maximum is found badly by the bandwidth that is best for heights: that of a
    hundred normal draws is off by a quarter of a deviation. Peaks above the same start are looked
    at under wider bandwidths, and the first taken whose height in the given density, compared with
    that of the top, is within the error `(Σ pᵢ² (kᵢ - kᵢ′)²)^½` of their difference.
    """

    highest = pulls(z, p, top)
    for wider in WIDER:
        x = climb(z / wider, p, top / wider)[0] * wider
        lost = highest - pulls(z, p, x)
        if lost.sum() <= ERRORS * np.sqrt(lost @ lost):
            return x
    return top


def pulls(z: np.ndarray, p: np.ndarray, x: np.ndarray) -> np.ndarray:
    """`pᵢ exp(-‖x - zᵢ‖²/2)` for every atom."""
    off = z - x
    return p * np.exp(-np.einsum("ij,ij->i", off, off) / 2)


def climb(z: np.ndarray, p: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, float]:
    """The peak of `Σ pᵢ exp(-‖x - zᵢ‖²/2)` above a start, and its height.

    The weighted mean of the atoms around is never lower (mean shift); where the logarithm curves
    downwards Newton's step is tried first.
    """

    pull = pulls(z, p, x)
    height = float(pull.sum())
    for _ in range(STEPS):
        share = pull / height
        shift = share @ z - x
        trials = [shift]
        if z.shape[1] <= WIDE:
            off = z - x - shift
            curvature = np.eye(len(x)) - (off * share[:, None]).T @ off
            values, vectors = np.linalg.eigh(curvature)
            if values[0] > 0:
                trials = [vectors @ ((shift @ vectors) / values), shift]
        for step in trials:
            there = pulls(z, p, x + step)
            above = float(there.sum())
            if above >= height:
                break
        else:
            break  # rounding
        x, height, pull = x + step, above, there
        if abs(step).max() < 1e-8:
            break
    return x, height


def density_bandwidths(bandwidth: Any, d: int) -> np.ndarray:
    """A bandwidth as the caller gave it, a number or one per column, for each column."""
    remedy = "It is the standard deviation of the smoothing; None chooses it."
    return np.broadcast_to(bandwidth_numbers(bandwidth, d, remedy), d)
