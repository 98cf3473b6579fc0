"""Points drawn from a belief, and points chosen to stand for it."""

from __future__ import annotations

from typing import Any

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


def whole(value: Any, name: str = "n") -> int:
    """How many points to give: a whole number ≥ 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} must be a whole number ≥ 1, got {value!r:.60}.")
    return int(value)


def generator(rng: Any) -> np.random.Generator:
    """A NumPy generator from a seed, a generator, or None (which is not repeatable)."""
    if isinstance(rng, np.random.RandomState):
        rng = rng.randint(2**31)
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"rng must be None, a seed or a NumPy Generator, got {rng!r:.60} ({error})."
        ) from error
