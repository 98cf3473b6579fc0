"""Density estimates with a bandwidth of their own."""

from __future__ import annotations

from math import pi, prod
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Array, asarray, namespace, take, to_numpy
from meanmap.kernels import Gaussian

SHARES = (1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.125)  # of Silverman's bandwidth
LOOKED = 1000  # points at which the others are judged
TINY = 1e-12  # the density of a point far from all others


def density(atoms: Array, p: np.ndarray, x: Array, bandwidth: Any = None) -> Array:
    """`Σ pᵢ N(x; xᵢ, diag(h²))` at the points x, for one row of probabilities p."""
    h = scales(atoms, p) if bandwidth is None else given(bandwidth, atoms.shape[1])
    total = prod(width * (2 * pi) ** 0.5 for width in h)
    return Gaussian(tuple(h))._matmul(x, atoms, asarray(p, atoms)) / total


def scales(atoms: Array, p: np.ndarray) -> list[float]:
    """Silverman's rule, a bandwidth a column: σ (4/(d + 2)n)^(1/(d + 4)), n = 1/Σp²."""
    xp = namespace(atoms)
    n, d = 1 / float((p * p).sum()), atoms.shape[1]
    weights = asarray(p, atoms)
    deviation = _deviation(atoms, weights)
    # a belief on one point has no scale of its own: then the sample's
    everyone = _deviation(atoms, xp.full_like(weights, 1 / len(p)))
    deviation = np.where(deviation > 1e-12 * everyone, deviation, everyone)
    if not (deviation > 0).all():
        raise ValueError(
            f"column {int(np.flatnonzero(~(deviation > 0))[0])} of the atoms is constant, so there "
            "is no scale to choose a bandwidth by. Pass bandwidth=, or leave the column out."
        )
    return [float(s) for s in deviation * (4 / ((d + 2) * n)) ** (1 / (d + 4))]


def likeliest_scales(atoms: Array, p: np.ndarray) -> list[float]:
    """The share of Silverman's bandwidths under which points are likeliest by all others.

    A sample of several modes needs less than its deviation suggests.
    """
    h, n = scales(atoms, p), len(p)
    looked = np.arange(n) if n <= LOOKED else np.linspace(0, n - 1, LOOKED).astype(int)
    weights = asarray(p, atoms)
    best, found = -np.inf, h
    for share in SHARES:
        widths = [share * width for width in h]
        sums = to_numpy(Gaussian(tuple(widths))._matmul(take(atoms, looked), atoms, weights))
        others = np.maximum(sums - p[looked], 0.0) / np.maximum(1 - p[looked], TINY)
        score = float(p[looked] @ np.log(others / share ** len(h) + TINY))
        if score > best:
            best, found = score, widths
    return found


def _deviation(atoms: Array, weights: Array) -> np.ndarray:
    centred = atoms - (weights @ atoms)[None, :]
    return np.sqrt(np.asarray((weights @ (centred * centred)).tolist(), dtype=np.float64))


def given(bandwidth: Any, d: int) -> list[float]:
    """A bandwidth as the caller gave it, a number or one a column."""
    remedy = "It is the standard deviation of the smoothing; None chooses it."
    if np.ndim(bandwidth) == 0:
        return [checks.positive(bandwidth, "bandwidth", remedy)] * d
    numbers = [checks.positive(value, "bandwidth", remedy) for value in np.asarray(bandwidth)]
    if len(numbers) != d:
        raise ValueError(f"bandwidth has {len(numbers)} entries for {d} columns. {remedy}")
    return numbers
