"""Embeddings as functions: from all their atoms, or through coordinates that are good enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from meanmap.arrays import (
    Array,
    Points,
    assign,
    count,
    namespace,
    spans,
    take,
    to_numpy,
    transpose,
)
from meanmap.embeddings.values import root
from meanmap.kernels import Kernel
from meanmap.spaces import PivotedCholesky, Space
from meanmap.spaces.space import fit_space_quietly

EXACT = 1 << 26  # kernel values that e(x) computes one by one rather than through coordinates
CERTAIN = 1e-7  # the error, relative to sup k, up to which coordinates stand for the atoms
BLOCK = 1 << 12  # points whose coordinates are in memory at a time


def evaluate_coordinates(space: Space, element: Array, points: Points) -> Array:
    """`m·ψ(x)` at the points, (m,) or (b, m)."""
    blocks = list(spans(count(points), 1 << 14))
    parts = [element @ space.coordinates(take(points, block)).T for block in blocks]
    return namespace(parts[0]).concat(parts, axis=-1)


def evaluate_atoms(element: Any, points: Points) -> Array:
    """`Σ wᵢ k(xᵢ, x)` at the points, through certified coordinates where there are many."""
    kernel, atoms, weights = element.kernel, element.atoms, element.weights
    if count(points) * count(atoms) <= EXACT or element.certified is None:
        return transpose(kernel.gram_times(points, atoms, transpose(weights)))
    return element.certified.evaluate(points, atoms, weights)


@dataclass(frozen=True)
class Certified:
    """Coordinates of which it is known at every point how well they stand for some atoms.

    With P the projection on the span of some pivots, the error |⟨m - Pm, k_x - Pk_x⟩| is at most
    `Σ|wᵢ| r(xᵢ) · r(x)`, r(x)² = k(x, x) - ‖ψ(x)‖², and r comes with ψ.
    """

    space: Space
    element: Array  # m, (r,) or (b, r)
    missed: float  # Σ|wᵢ| r(xᵢ)
    scale: float  # Σ|wᵢ| times the largest k(xᵢ, xᵢ)

    @classmethod
    def of(cls, kernel: Kernel, atoms: Points, weights: Array) -> Self | None:
        """Coordinates that are good to `CERTAIN`; None if there are none of a moderate rank.

        The pivots come from a part of the atoms, and all the atoms are streamed past them, so that
        memory does not grow with the sample.
        """
        n, xp = count(atoms), namespace(weights)
        chosen = np.linspace(0, n - 1, min(n, 2 * BLOCK)).astype(int)
        # a hundredth of what is needed on average leaves room for points at the sample's edge
        rank = min(BLOCK // 2, int(2 * n**0.5))  # beyond it the atoms themselves are faster
        basis = PivotedCholesky(CERTAIN / 100, rank)
        space, _ = fit_space_quietly(kernel, basis, take(atoms, chosen))
        if space.residual_ > CERTAIN / 100:
            return None
        size = abs(weights)
        blocks = list(spans(n, BLOCK))
        parts = [size[..., b] @ _coordinates_and_rest(space, take(atoms, b))[1] for b in blocks]
        missed = float(xp.max(sum(parts[1:], parts[0])))
        largest = float(xp.max(kernel.squared_norms(atoms)))
        scale = float(xp.max(xp.sum(size, axis=-1) * largest))
        return cls(space, space.mean_coordinates(atoms, weights), missed, scale)

    def evaluate(self, points: Points, atoms: Points, weights: Array) -> Array:
        """`e(x)` through coordinates where they are proven good enough, else from the atoms."""
        values = []
        for block in spans(count(points), BLOCK):
            part = take(points, block)
            psi, rest = _coordinates_and_rest(self.space, part)
            value = self.element @ psi.T
            doubtful = to_numpy(self.missed * rest > CERTAIN * self.scale)
            if doubtful.any():
                far = take(part, doubtful)
                exact = self.space.kernel_.gram_times(far, atoms, transpose(weights))
                value = assign(value, (..., doubtful), transpose(exact))
            values.append(value)
        return namespace(self.element).concat(values, axis=-1)


def _coordinates_and_rest(space: Space, points: Points) -> tuple[Array, Array]:
    """ψ(x), and the length √(k(x, x) - ‖ψ(x)‖²) of what it misses."""
    psi = space.coordinates(points)
    xp = namespace(psi)
    return psi, root(space.kernel_.squared_norms(points) - xp.sum(psi * psi, axis=1))
