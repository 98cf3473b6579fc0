"""What "similar" means: positive definite kernels, one file per domain, and their algebra.

| points | kernels |
|---|---|
| vectors (n, d) | `Gaussian` `Laplace` `Matern` `RationalQuadratic` `Energy` |
| vectors (n, d), moments only | `Polynomial` `Linear` |
| labels (n,), or rows (n, d) of them | `Delta` (as a whole), `Hamming` (column by column) |
| matrices (n, p, q): rotations, permutations | `Trace` `Chordal` `Mallows` |
| strings | `NGrams` |
| networkx graphs | `WeisfeilerLehman` |
| time series of any lengths | `GlobalAlignment` |
| bags: samples of any sizes, `Weighted`, `Normal` | `Expected` `OnEmbeddings` |
| data frames, dicts of columns | `Columns` |
| tuples of samples | `TensorProduct`, written `kx @ ky` |
| vectors, any function of a distance | subclasses of `Radial` or `Rough` |
| anything | `Function`, `ScikitLearn`, `Precomputed`, `Constant` |

Kernels on the same points add (`k1 + k2`, `k + 1`), multiply (`k1 * k2`) and scale (`2.0 * k`).
Each says whether it is `bounded`, and on what it is `characteristic` and `universal`.
"""

from meanmap.kernels.algebra import Constant, TensorProduct
from meanmap.kernels.defaults import default_kernel
from meanmap.kernels.discrete import Delta
from meanmap.kernels.domains.bags import Expected, OnEmbeddings
from meanmap.kernels.domains.columns import Columns
from meanmap.kernels.domains.custom import Function, Precomputed, ScikitLearn
from meanmap.kernels.domains.graphs import WeisfeilerLehman
from meanmap.kernels.domains.matrices import Chordal, Mallows, Trace
from meanmap.kernels.domains.normals import Normal
from meanmap.kernels.domains.packed_bags import Weighted
from meanmap.kernels.domains.rows import Hamming
from meanmap.kernels.domains.series import GlobalAlignment
from meanmap.kernels.domains.strings import NGrams
from meanmap.kernels.protocol import Kernel
from meanmap.kernels.radial import Radial, Rough
from meanmap.kernels.vectors import (
    Energy,
    Gaussian,
    Laplace,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
)

__all__ = [
    "Chordal",
    "Columns",
    "Constant",
    "Delta",
    "Energy",
    "Expected",
    "Function",
    "Gaussian",
    "GlobalAlignment",
    "Hamming",
    "Kernel",
    "Laplace",
    "Linear",
    "Mallows",
    "Matern",
    "Normal",
    "OnEmbeddings",
    "Polynomial",
    "Precomputed",
    "Radial",
    "RationalQuadratic",
    "Rough",
    "ScikitLearn",
    "NGrams",
    "TensorProduct",
    "Trace",
    "Weighted",
    "WeisfeilerLehman",
    "default_kernel",
]
