"""What "similar" means: positive definite kernels, one file a domain, and their algebra.

| points | kernels |
|---|---|
| vectors (n, d) | `Gaussian` `Laplace` `Matern` `RationalQuadratic` `Energy` |
| vectors (n, d), moments only | `Polynomial` `Linear` |
| labels (n,), or rows (n, d) of them | `Delta` (as a whole), `Hamming` (column by column) |
| matrices (n, p, q): rotations, permutations | `Trace` `Chordal` `Mallows` |
| strings | `Spectrum` |
| networkx graphs | `WeisfeilerLehman` |
| time series of any lengths | `GlobalAlignment` |
| bags: samples of any sizes, `Weighted`, `Normal` | `Expected` `OnEmbeddings` |
| data frames, dicts of columns | `Columns` |
| tuples of samples | `TensorProduct`, written `kx @ ky` |
| anything | `Function`, `ScikitLearn`, `Precomputed`, `Constant`, `Whitened` |

Kernels on the same points add (`k1 + k2`, `k + 1`), multiply (`k1 * k2`) and scale (`2.0 * k`).
Each says whether it is `bounded`, and on what it is `characteristic` and `universal`.
"""

from meanmap.kernels.base import Kernel
from meanmap.kernels.columns import Columns
from meanmap.kernels.composite import Constant, Product, Scaled, Sum, TensorProduct
from meanmap.kernels.custom import Function, Precomputed, ScikitLearn
from meanmap.kernels.defaults import as_kernel, default_kernel
from meanmap.kernels.discrete import Delta, Hamming
from meanmap.kernels.graphs import WeisfeilerLehman
from meanmap.kernels.matrices import Chordal, Mallows, Trace
from meanmap.kernels.normals import Normal
from meanmap.kernels.packs import Weighted
from meanmap.kernels.series import GlobalAlignment
from meanmap.kernels.sets import Expected, OnEmbeddings
from meanmap.kernels.strings import Spectrum
from meanmap.kernels.vectors import (
    Energy,
    Gaussian,
    Laplace,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
)
from meanmap.kernels.whitened import Whitened

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
    "Product",
    "RationalQuadratic",
    "Scaled",
    "ScikitLearn",
    "Spectrum",
    "Sum",
    "TensorProduct",
    "Trace",
    "Weighted",
    "WeisfeilerLehman",
    "Whitened",
    "as_kernel",
    "default_kernel",
]
