"""Density estimates with a bandwidth of their own."""

from __future__ import annotations

from math import pi, prod
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Array, asarray, namespace
from meanmap.kernels import Gaussian


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
