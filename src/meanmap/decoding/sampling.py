"""Points drawn from a belief, and points chosen to stand for it."""

from __future__ import annotations

import numpy as np

from meanmap.arrays import Array, Points, take, to_numpy
from meanmap.kernels import Kernel
from meanmap.kernels.protocol import ALL


def draw(probabilities: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Indices drawn with replacement, shape (b, n), from probabilities (b, atoms)."""
    uniform = rng.random((len(probabilities), n))
    edges = np.cumsum(probabilities, axis=1)
    edges /= edges[:, -1:]
    return np.stack(
        [np.searchsorted(e, u, side="right") for e, u in zip(edges, uniform, strict=True)]
    )


def herd(kernel: Kernel, atoms: Points, values: Array, n: int) -> np.ndarray:
    """Atoms whose plain average stays as near to e as each next atom can bring it: (b, n) indices.

    The next one is argmax_x (t + 1) e(x) - Σ_{s ≤ t} k(x, x_s) - k(x, x)/2. Where k(x, x) is
    constant that is kernel herding (Chen, Welling and Smola 2010). `values` is e at the atoms.
    """
    e = to_numpy(values).astype(np.float64)
    compare = kernel.against(atoms)
    taken = np.broadcast_to(to_numpy(kernel.squared_norms(atoms)) / 2, e.shape).copy()
    out = np.empty((len(e), n), dtype=int)
    for t in range(n):
        out[:, t] = (((t + 1) * e) - taken).argmax(axis=1)
        chosen, back = np.unique(out[:, t], return_inverse=True)
        taken += to_numpy(compare(take(atoms, chosen), ALL, None))[back]
    return out
