"""Learned scales: the default kernel of a variable is chosen by its edges.

A message to a variable s is a function of x_s, the density of something beyond a neighbour t given
x_s. How fast it varies depends on the edge. Scales minimise the leave-one-out error in a fine
kernel on t (`meanmap.conditional.learning`); a variable with several edges has the smallest scale
of all of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from meanmap.arrays import Points, asarray, float_like, one_blas_thread, to_numpy
from meanmap.conditional.fitting import FEWEST
from meanmap.conditional.learning import ROWS, LeaveOneOutLoss, ScaleSearch, distinct_rows
from meanmap.graphical.tables import Variable
from meanmap.kernels import Columns, Delta, Kernel
from meanmap.kernels.bandwidths import LEARNED, median_distance
from meanmap.spaces import PivotedCholesky
from meanmap.spaces.space import fit_space_quietly

FINE = 0.25  # of the median distance: bandwidth on the neighbour when learning scales
COARSE = PivotedCholesky(1e-3, 60)  # coordinates of targets


def fine_targets(t: Variable, points: Points, weights: np.ndarray) -> np.ndarray:
    """Centred coordinates (n, q) of a neighbour's points, from which scales are learned."""
    v = asarray(weights, float_like(points))
    kernel = t.kernel if t.open is None else t.kernel.rescaled(FINE)
    _, psi = fit_space_quietly(kernel, COARSE, points, v)
    host = to_numpy(psi).astype(np.float64)
    return np.asarray(host - weights @ host)


def narrowest_kernel(kernels: list[Any]) -> Kernel:
    """The radial kernel with the smallest bandwidth of each column."""
    found: Kernel = kernels[0]
    if len(kernels) == 1:
        return found
    least = np.min([np.atleast_1d(one.bandwidth) for one in kernels], axis=0)
    found = kernels[0].replace(
        bandwidth=float(least[0]) if len(least) == 1 else tuple(map(float, least))
    )
    return found


def edge_kernel(
    kernel: Kernel, points: Points, targets: np.ndarray, weights: np.ndarray
) -> Kernel | None:
    """The kernel with the best scales for one edge; None if there are few rows."""
    if len(weights) < FEWEST:
        return None
    scales = kernel.open_scales(points, asarray(weights, float_like(points)))
    assert scales is not None
    rows, w = distinct_rows(scales.columns, targets, weights)
    if len(rows) < FEWEST:
        return None
    part = replace(scales, columns=scales.columns[rows])
    T = targets[rows] - w @ targets[rows]
    with one_blas_thread():
        unit = median_distance(part.columns[:ROWS], w[:ROWS])
        search = ScaleSearch(LeaveOneOutLoss, part, T, w, unit, None)
        found: Kernel = scales.kernel(search.scales_at(search.run()))
    return found


def family_kernel(parts: list[Variable]) -> Kernel | None:
    """The product of parents' kernels with scales to be learned; None if one was named."""
    if all(part.open is None for part in parts):
        return None
    if any(part.open is None and not part.kernel.discrete for part in parts):
        return None
    kernels = [part.open or Delta(LEARNED) for part in parts]
    return Columns({str(i): kernel for i, kernel in enumerate(kernels)})
