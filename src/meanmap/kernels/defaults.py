"""The default kernel for each kind of points."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Points, is_array
from meanmap.frames import is_frame
from meanmap.kernels.algebra import TensorProduct
from meanmap.kernels.bandwidths import LEARNED, MEDIAN, SCALED
from meanmap.kernels.discrete import Delta
from meanmap.kernels.domains.columns import Columns, all_numbers
from meanmap.kernels.domains.custom import Function, ScikitLearn, is_scikit_learn
from meanmap.kernels.domains.matrices import Trace
from meanmap.kernels.protocol import Kernel
from meanmap.kernels.vectors import Gaussian, Matern


def default_kernel(points: Any, name: str = "points", rule: str = SCALED) -> Kernel:
    """A kernel for this kind of points.

    Rows of numbers, and 1-D arrays of them, get a Gaussian with one bandwidth per column (by
    default "scaled median", which does not depend on the units of the columns), labels (strings,
    booleans) a delta kernel, stacks of matrices the trace kernel, a tuple of samples the tensor
    product, a data frame with columns that are not numbers the product of its columns' kernels.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.kernels import default_kernel
    >>> default_kernel(np.zeros((3, 2)))
    Gaussian(bandwidth='scaled median')
    """
    if isinstance(points, tuple):
        if not points:
            raise ValueError(f"{name}: got an empty tuple; pass a sample, or a tuple (X, Y).")
        parts = [default_kernel(part, f"{name}[{i}]") for i, part in enumerate(points)]
        return TensorProduct(*parts)
    if is_frame(points) and not all_numbers(points):
        return Columns().bind(points, name, rule)
    if isinstance(points, list) and points and hasattr(points[0], "adj"):
        raise TypeError(
            f"{name}: graphs have no default kernel. Pass kernel=kernels.WeisfeilerLehman(), which "
            "compares them by a label of their nodes (label=None by their degrees)."
        )
    array = checks.any_points(points, name)
    if array.ndim == 3:
        return Trace()
    kind = array.dtype.kind if isinstance(array, np.ndarray) else "f"
    if kind == "O" and all(isinstance(v, Real) and not isinstance(v, bool) for v in array.flat):
        kind = "f"  # numbers, as a column of a frame may hold them
    if kind in ("USObT" if array.ndim == 1 else "US"):
        return Delta()
    if kind == "O" and all(isinstance(v, str) for v in array.flat):
        return Delta()
    return Matern(LEARNED, LEARNED) if rule == LEARNED else Gaussian(rule)


def as_kernel(kernel: Any, points: Any, name: str = "points") -> Kernel:
    """A kernel from what a user passed: None, ours or scikit-learn's, a function, a tuple.

    "median" is the default, and "loo" the default with scales and smoothness that a conditional
    learns.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.kernels.defaults import as_kernel
    >>> as_kernel(None, np.array(["sun", "rain"]))
    Delta()
    """
    if kernel is None:
        return default_kernel(points, name).bind(points, name)
    if isinstance(kernel, str) and kernel in (MEDIAN, LEARNED):
        rule = SCALED if kernel == MEDIAN else LEARNED
        return default_kernel(points, name, rule).bind(points, name)
    if isinstance(kernel, Kernel):
        return kernel.bind(points, name)
    if is_scikit_learn(kernel):
        return ScikitLearn(kernel).bind(points, name)
    if isinstance(kernel, tuple) and isinstance(points, tuple) and len(kernel) == len(points):
        pairs = enumerate(zip(kernel, points, strict=True))
        return TensorProduct(*(as_kernel(k, part, f"{name}[{i}]") for i, (k, part) in pairs))
    if is_array(kernel):
        raise TypeError(
            "a Gram matrix is passed as kernel=kernels.Precomputed(gram), with integer indices as "
            "points."
        )
    if isinstance(kernel, type) and issubclass(kernel, Kernel):
        raise TypeError(f"kernel: got the class {kernel.__name__}; pass {kernel.__name__}().")
    if callable(kernel):
        return Function(kernel).bind(points, name)
    raise TypeError(
        "kernel: expected a kernel of meanmap.kernels (or of sklearn.gaussian_process), a function "
        f"k(x, y) or None, got {kernel!r}."
    )


def as_target(Y: Any, kernel: Any) -> tuple[Any, bool]:
    """Y as points, and whether it was a 1-D array of numbers, which stands for one column.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.kernels.defaults import as_target
    >>> Y, flat = as_target(np.array([1.0, 2.0, 3.0]), None)
    >>> Y.shape, flat
    ((3, 1), True)
    """
    on_vectors = kernel is None or (isinstance(kernel, Kernel) and kernel.on_vectors)
    if isinstance(Y, tuple) or not on_vectors:
        return Y, False
    array = checks.any_points(Y, "y")
    text = isinstance(array, np.ndarray) and (
        array.dtype.kind not in "fiuO"
        or (array.dtype.kind == "O" and any(isinstance(v, str) for v in array.flat))
    )
    return (array[:, None], True) if array.ndim == 1 and not text else (Y, False)


def reference_kernel(kernel: Kernel, points: Points) -> Kernel:
    """A kernel to measure losses in that does not depend on the model's choice of one.

    The default for the kind of points; for labels and indices, which have none, the model's own.
    """
    if kernel.factors:
        pairs = zip(kernel.factors, points, strict=True)
        return TensorProduct(*(reference_kernel(part, p) for part, p in pairs))
    return kernel if points.ndim == 1 else default_kernel(points, "y")
