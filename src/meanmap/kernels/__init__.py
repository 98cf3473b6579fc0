"""What "similar" means: positive definite kernels, one file a domain, and their algebra.

| points | kernels |
|---|---|
| vectors (n, d) | `Gaussian` `Laplace` `Matern` `RationalQuadratic` `Polynomial` `Linear` |
| labels (n,), or rows compared as a whole | `Delta` |
| matrices (n, p, q): rotations, permutations | `Trace` |
| tuples of samples | `TensorProduct`, written `kx @ ky` |
| anything | `Function`, `Precomputed`, `Constant` |

Kernels on the same points add (`k1 + k2`, `k + 1`), multiply (`k1 * k2`) and scale (`2.0 * k`).
"""

from meanmap.kernels.base import Kernel
from meanmap.kernels.composite import Constant, Product, Scaled, Sum, TensorProduct
from meanmap.kernels.custom import Function, Precomputed
from meanmap.kernels.defaults import as_kernel, default_kernel
from meanmap.kernels.discrete import Delta
from meanmap.kernels.matrices import Trace
from meanmap.kernels.vectors import (
    Gaussian,
    Laplace,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
)

__all__ = [
    "Constant",
    "Delta",
    "Function",
    "Gaussian",
    "Kernel",
    "Laplace",
    "Linear",
    "Matern",
    "Polynomial",
    "Precomputed",
    "Product",
    "RationalQuadratic",
    "Scaled",
    "Sum",
    "TensorProduct",
    "Trace",
    "as_kernel",
    "default_kernel",
]
