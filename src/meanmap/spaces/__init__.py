"""A kernel given coordinates: `Space` is the transformer, a basis says how.

| basis | ψ(x) | exact |
|---|---|---|
| `PivotedCholesky(tol, max_rank)` | L⁻¹ k(P, x) with pivots P | on the sample, to `tol` |
| `Nystroem(n, sampling)` | the same with n sampled landmarks | no; `error_bound` says how far |
| `RandomFourier(n)` | cosines and sines at random frequencies | no; as 1/√n |
| `Explicit()` | the kernel's own finite features | yes |
"""

from meanmap.spaces.bases import Basis, Coordinates, Explicit
from meanmap.spaces.cholesky import PivotedCholesky
from meanmap.spaces.fourier import RandomFourier
from meanmap.spaces.nystroem import Nystroem
from meanmap.spaces.space import Space

__all__ = [
    "Basis",
    "Coordinates",
    "Explicit",
    "Nystroem",
    "PivotedCholesky",
    "RandomFourier",
    "Space",
]
