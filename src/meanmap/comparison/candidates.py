"""Which kernels a test tries when it is not given one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from scipy.linalg import LinAlgError, eigh

from meanmap import checks
from meanmap.arrays import Points, concatenate, count, one_blas_thread, take, to_numpy
from meanmap.comparison.sources import COMBINATIONS
from meanmap.kernels import Energy, Gaussian, Kernel
from meanmap.kernels.defaults import as_kernel
from meanmap.kernels.domains.whitened import Whitened
from meanmap.linalg import Spectrum, too_large
from meanmap.statistics.tiles import on_host

RULES = ("median", "collection", "optimized")
#: For dependence: a Gaussian so broad, in medians of the distance, that it sees lines, as Pearson's
#: correlation does, and a narrow one.
BROAD, NARROW = 8.0, 2.0**-2.5
#: How much each kernel of X counts with that of Y: energy, broad, whitened, narrow. Chosen on eight
#: alternatives at n = 60 to 150, 250 runs each.
PAIRED_WEIGHTS = np.array([1.0, 5.0, 6.0, 3.0])
#: Variance, as a share of the kernel's whole, above which directions count alike when whitened.
SHARE = 0.1
LANDMARKS = 200


@dataclass(frozen=True)
class Collection:
    """Several kernels that make one statistic, for a test by permutations.

    A test with several kernels is exact: whatever combines them is applied to every permutation.

    Parameters
    ----------
    kernels : list of Kernel, or None
        None is the default collection for the kind of points.
    combine : {"soft", "max", "fuse", "min-p"}
        With p the p-value of each kernel by its own moments, "soft" is Σ p^-0.8, near the best of
        them, to which others that point the same way add. "max" is the largest statistic in
        standard deviations of its own permutations, "fuse" the soft maximum of these of MMD-FUSE
        (Biggs, Schrab and Gretton 2023), and "min-p" the least p-value of MMDAgg and HSICAgg
        (Schrab et al. 2023).

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import two_sample_test
    >>> from meanmap.comparison import Collection
    >>> from meanmap.kernels import Gaussian, Laplace
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(100, 1)), rng.normal(1.0, 1.0, size=(100, 1))
    >>> kernels = Collection([Gaussian(0.5), Laplace(1.0)], combine="fuse")
    >>> two_sample_test(X, Y, kernels, rng=0).pvalue
    0.001
    """

    kernels: Sequence[Any] | None = None
    combine: str = "soft"

    def __post_init__(self) -> None:
        checks.option(self.combine, "combine", COMBINATIONS)


@dataclass(frozen=True)
class Candidates:
    """Kernels as given, or a rule that makes them from the data."""

    kernels: tuple[Kernel, ...]
    rule: str = ""
    combine: str = ""  # as a `Collection` says

    @classmethod
    def of(cls, kernel: Any, points: Any, single: bool, name: str) -> Candidates:
        """What the user asked for; one kernel only where `single` says so."""
        if isinstance(kernel, Collection):
            given = None if kernel.kernels is None else list(kernel.kernels)
            return replace(cls.of(given, points, single, name), combine=kernel.combine)
        if isinstance(kernel, str):
            if kernel not in RULES:
                raise ValueError(
                    f"kernel: the words are {', '.join(map(repr, RULES))}; got {kernel!r}. "
                    "Or pass a kernel, for example kernels.Gaussian()."
                )
            default = as_kernel(None, points, name)
            rule = "" if kernel == "median" else kernel
            if rule and not default.radial:
                raise ValueError(
                    f"kernel={kernel!r} chooses among widths, for rows of numbers; {name} has the "
                    f"kernel {default!r}. Pass a list of kernels instead."
                )
            if rule == "collection" and single:
                _refuse_many("the collection")
            return cls((default,), rule)
        if isinstance(kernel, list):
            if not kernel:
                raise ValueError("kernel: got an empty list; pass one kernel or more.")
            if single and len(kernel) > 1:
                _refuse_many(f"{len(kernel)}")
            return cls(tuple(as_kernel(k, points, name) for k in kernel))
        found = as_kernel(kernel, points, name)
        rule = ""
        if kernel is None and not single:
            several = found.radial or found.domain == "tables"
            rule = "collection" if several else "whitened" if found.discrete else ""
        return cls((found,), rule)

    def resolve(
        self, points: Points, rng: np.random.Generator, paired: bool = False
    ) -> list[Kernel]:
        """The kernels with their widths, resolved on points; `paired` for a test of dependence."""
        kernels = [kernel.resolve(points) for kernel in self.kernels]
        if self.rule == "whitened":
            return [whiten(kernels[0], points, rng)]
        if self.rule != "collection" or not paired:
            return kernels
        first = wide = kernels[0]
        if wide.radial:  # the energy kernel is at its best on lines
            centre = tuple(float(v) for v in to_numpy(points).mean(axis=0))
            first = Energy(centre, cast(Gaussian, wide).bandwidth).with_names(wide.names)
        broad, narrow = wide.rescaled(BROAD), wide.rescaled(NARROW)
        return [first, broad, whiten(wide, points, rng), narrow]


def shared_combination(*sides: Candidates) -> str:
    """How the kernels of all variables are combined, which their collections must agree on."""
    said = {one.combine for one in sides if one.combine}
    if len(said) > 1:
        raise ValueError(
            f"kernel: all variables' kernels make one statistic, but the collections say "
            f"{' and '.join(map(repr, sorted(said)))}. Give both the same `combine`."
        )
    return said.pop() if said else "soft"


def paired_weights(x: Candidates, y: Candidates) -> np.ndarray:
    """How much each pair of kernels counts, those of Y changing fastest."""
    of_x, of_y = (
        PAIRED_WEIGHTS if one.rule == "collection" else np.ones(len(one.kernels)) for one in (x, y)
    )
    if x.rule == y.rule == "collection":
        return np.diag(PAIRED_WEIGHTS).ravel()
    return np.outer(of_x, of_y).ravel()


def whiten(kernel: Kernel, points: Points, rng: np.random.Generator) -> Kernel:
    """The kernel in the inner product with (C + λI)⁻¹, λ a tenth of the trace of C.

    C is the covariance of all points. Its eigenfunctions are sought among those that random
    landmarks span; which they are does not depend on who belongs to which sample, so that a
    permutation test stays exact.
    """
    points = on_host(points)
    n = count(points)
    if n <= LANDMARKS:
        P, (variances, weights, trace) = points, _principal_functions(kernel, points)
    else:
        P = take(points, np.sort(rng.choice(n, LANDMARKS, replace=False)))
        root = orthonormal_functions(kernel, P)
        psi = kernel.gram_times(points, P, root)  # the coordinates of all points
        mean = psi.mean(axis=0)
        centred = psi - mean
        covariance = Spectrum.of(centred.T @ centred / n)
        variances, weights = covariance.values, root @ covariance.vectors
        trace = float(np.mean(kernel.squared_norms(points))) - mean @ mean
    ridge = SHARE * trace
    strong = variances > SHARE * ridge  # what is weaker is hardly changed
    if trace <= 0 or not strong.any():
        return kernel
    s = variances[strong]
    return Whitened(kernel, P, weights[:, strong] * np.sqrt(s / (s + ridge)))


def _principal_functions(kernel: Kernel, points: Points) -> tuple[np.ndarray, np.ndarray, float]:
    """Strong eigenfunctions of a sample's covariance: variances, weights on k(xᵢ, ·), the trace.

    Those of variance s are Σ uᵢ k(xᵢ, ·)/√(ns), with u an eigenvector of the centred Gram matrix.
    """
    K = kernel.gram_matrix(points, points)
    if not np.isfinite(K).all():
        raise too_large()
    n, means = len(K), K.mean(axis=0)
    C = (K - means - means[:, None] + means.mean()) / n
    trace = float(np.trace(C))
    least = max(SHARE * SHARE * trace, 64 * np.finfo(float).eps * float(np.trace(K)) / n)
    with one_blas_thread():
        try:
            s, u = eigh(C, subset_by_value=(least, np.inf), check_finite=False)
        except LinAlgError:  # it may fail where many are equal; all of them take a little longer
            s, u = eigh(C, driver="evd", check_finite=False)
            s, u = s[s > least], u[:, s > least]
    return s, u / np.sqrt(n * s), trace


def orthonormal_functions(kernel: Kernel, P: Points) -> np.ndarray:
    """Weights on the functions k(p, ·) that make them orthonormal, a column per function."""
    gram = Spectrum.of(kernel.gram_matrix(P, P))
    kept = gram.values > max(gram.cutoff, 0.0)
    return gram.vectors[:, kept] / np.sqrt(gram.values[kept])


def _refuse_many(what: str) -> None:
    raise ValueError(
        f"kernel: {what} kernels were given, and this null, estimator or basis takes one. Pass "
        'kernel="median" or a kernel, or use null="permutation".'
    )


def optimize_kernel(
    X: Points, Y: Points, rng: np.random.Generator
) -> tuple[Kernel, Points, Points]:
    """A Gaussian whose width promises most power on half of the data, and the other halves.

    Power grows with MMD over its standard deviation under the alternative (Sutherland et al. 2017,
    eq. 3), which is estimated on the first halves.
    """
    halves = []
    for points in (X, Y):
        order = rng.permutation(count(points))
        cut = max(2, len(order) // 2)
        if len(order) - cut < 2:
            raise ValueError(
                f'kernel="optimized" tests on half of the data and needs 4 points a sample, got '
                f"{len(order)}. Use kernel=None, which splits nothing."
            )
        halves.append((take(points, order[:cut]), take(points, order[cut:])))
    (A, X), (B, Y) = halves
    wide = Gaussian("scaled median").resolve(concatenate([A, B]))
    n = min(count(A), count(B))
    A, B = take(A, slice(0, n)), take(B, slice(0, n))
    ratios = []
    grid = [wide.rescaled(2.0**power) for power in np.arange(-5, 2.01, 0.5)]
    for kernel in grid:
        H = kernel.gram_matrix(A, A) + kernel.gram_matrix(B, B)
        cross = kernel.gram_matrix(A, B)
        H -= cross + cross.T
        ratios.append(_power_ratio(H))
    return grid[int(np.argmax(ratios))], X, Y


def _power_ratio(H: np.ndarray) -> float:
    """MMD over its standard deviation under the alternative, from hᵢⱼ (Liu et al. 2020, eq. 5)."""
    n = len(H)
    mmd = (H.sum() - np.trace(H)) / (n * (n - 1)) if n > 1 else 0.0
    rows = H.mean(axis=1)
    variance = 4 * (np.mean(rows**2) - rows.mean() ** 2)
    return float(mmd / np.sqrt(max(variance, 0.0) + 1e-8))
