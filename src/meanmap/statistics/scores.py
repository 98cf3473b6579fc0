"""Scores ∇log p of densities: given as they are, or found for distributions of scipy.stats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Array, to_numpy

# of central differences of sixth order, and the steps to try, as parts of the density's scale
STENCIL = ((1, 45 / 60), (2, -9 / 60), (3, 1 / 60))
STEPS = (3e-2, 1e-2, 2e-3, 3e-4)
EDGE = 1e-6  # a density above this part of its largest value at the end of its support has an edge

# the scores of standard distributions; z is (x - loc)/scale, what follows are shape parameters
STANDARD: dict[str, Callable[..., np.ndarray]] = {
    "norm": lambda z: -z,
    "t": lambda z, df: -(df + 1) * z / (df + z * z),
    "cauchy": lambda z: -2 * z / (1 + z * z),
    "logistic": lambda z: -np.tanh(z / 2),
    "gumbel_r": lambda z: np.exp(-z) - 1,
    "gumbel_l": lambda z: 1 - np.exp(z),
}


def score_values(score: Any, points: Array, name: str = "score") -> np.ndarray:
    """∇log p at the points, shape (n, d).

    `points` are of the caller's array library: a score function is called with them as they are.
    """
    if is_distribution(score):
        values = _of_distribution(score, to_numpy(points).astype(np.float64), name)
    elif callable(score):
        values = score(points)
    else:
        values = score
    array = to_numpy(checks.plain(values, name))
    n, d = points.shape
    if array.shape == (n,) and d == 1:
        array = array[:, None]
    if array.shape != (n, d):
        raise ValueError(
            f"{name}: expected the gradient of log p at each of the {n} points, shape ({n}, {d}); "
            f"got shape {array.shape}. A score function takes all points at once, rows of an "
            "array, and returns as many rows."
        )
    if array.dtype.kind == "O":
        array = to_numpy(checks.numbers(array, name))
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name}: expected real numbers, got dtype {array.dtype}.")
    array = array.astype(np.float64)
    bad = ~np.isfinite(array).all(axis=1)
    if bad.any():
        raise ValueError(
            f"{name} is not finite at {int(bad.sum())} of {n} points (the first is row "
            f"{int(np.flatnonzero(bad)[0])}). The density must be positive and differentiable at "
            "every point; a sample outside its support does not come from it."
        )
    checks.finite(array, name)  # nor too large to be squared
    return array


def is_distribution(score: Any) -> bool:
    """Whether this is a distribution, as scipy.stats has them, rather than a score."""
    return not isinstance(score, np.ndarray) and any(
        hasattr(score, name) for name in ("logpdf", "logpmf")
    )


def sampler_of(
    score: Any, dimension: int
) -> Callable[[int, np.random.Generator], np.ndarray] | None:
    """A function that draws n points from a distribution of scipy.stats; None for a score."""
    draws = any(hasattr(score, name) for name in ("rvs", "sample", "resample"))
    if not is_distribution(score) or not draws:
        return None

    def draw(n: int, rng: np.random.Generator) -> np.ndarray:
        if hasattr(score, "resample"):  # a kernel density estimate
            return score.resample(n, seed=rng).T
        if hasattr(score, "sample"):  # scipy.stats.Normal() and its like
            return np.reshape(score.sample((n, dimension), rng=rng), (n, dimension))
        size = (n, dimension) if hasattr(score, "dist") else n
        return np.reshape(score.rvs(size, random_state=rng), (n, dimension))

    return draw


def _of_distribution(law: Any, x: np.ndarray, name: str) -> np.ndarray:
    if isinstance(law, type) or (hasattr(law, "freeze") and hasattr(law, "shapes")):
        raise TypeError(
            f"{name}: got the family {getattr(law, 'name', law)!r}; pass one distribution of it, "
            "for example scipy.stats.norm(loc=0, scale=1)."
        )
    kind = type(law).__name__
    if not hasattr(law, "logpdf") or "Discrete" in "".join(c.__name__ for c in type(law).__mro__):
        raise TypeError(
            f"{name}: {kind} is a discrete distribution, which has no density and so no score. "
            "Draw a sample of it and use two_sample_test."
        )
    if kind == "multivariate_normal_frozen":
        _same_dimension(law.dim, x, name)
        centred = x - law.mean
        return -_precision(law.cov_object.covariance, centred, name)
    if kind == "multivariate_t_frozen":
        _same_dimension(law.dim, x, name)
        centred = x - law.loc
        pulled = _precision(law.shape, centred, name)
        squared = np.sum(centred * pulled, axis=1, keepdims=True)
        return -pulled * (law.df + x.shape[1]) / (law.df + squared)
    if hasattr(law, "dist") and hasattr(law, "kwds"):
        return _univariate(law, x, name)
    if hasattr(law, "support") and hasattr(law, "standard_deviation"):  # scipy.stats.Normal()
        _no_edge(law.support(), law.pdf, x, name)
        width = np.broadcast_to(law.standard_deviation(), x.shape[1:])
        return _elementwise(law.logpdf, x, np.where(np.isfinite(width), width, x.std(axis=0)))
    return _numerical(law, x, name)


def _univariate(law: Any, x: np.ndarray, name: str) -> np.ndarray:
    """Independent columns, each from a univariate distribution (or all from one)."""
    named = (law.dist.shapes or "").replace(",", " ").split()
    given = dict(zip([*named, "loc", "scale"], law.args, strict=False)) | law.kwds
    loc, scale = given.get("loc", 0.0), given.get("scale", 1.0)
    shapes = [given[name] for name in named]
    if np.ndim(law.mean()) > 1 or np.size(law.mean()) not in (1, x.shape[1]):
        raise ValueError(
            f"{name}: a distribution of {np.size(law.mean())} independent columns does not fit "
            f"points of {x.shape[1]} coordinates."
        )
    _no_edge(law.support(), law.pdf, x, name)
    if law.dist.name in STANDARD:
        z = (x - np.asarray(loc)) / np.asarray(scale)
        return STANDARD[law.dist.name](z, *map(np.asarray, shapes)) / np.asarray(scale)
    width = np.broadcast_to(law.ppf(0.75) - law.ppf(0.25), x.shape[1:])
    low, high = law.support()
    room = np.minimum(x - low, high - x)
    return _elementwise(law.logpdf, x, np.minimum(width, room))


def _no_edge(support: Any, pdf: Callable[[Any], Any], x: np.ndarray, name: str) -> None:
    """Refuse densities that do not vanish at the ends of their support.

    Stein's identity integrates by parts: what the density is at an edge would be left over, and the
    discrepancy of the distribution to itself would not be 0.
    """
    low, high = support
    outside = (x <= low) | (x >= high)
    if outside.any():
        raise ValueError(
            f"{name}: {int(outside.any(axis=1).sum())} of {len(x)} points lie outside the support "
            f"of the distribution (the first is row {int(np.argmax(outside.any(axis=1)))}); they "
            "cannot come from it."
        )
    largest = np.max(pdf(x))
    for end, towards in ((low, 1.0), (high, -1.0)):
        if not np.isfinite(end).all():
            continue
        near = np.abs(x - end).min(axis=0) * 1e-12
        if (np.asarray(pdf(end + towards * near)) > EDGE * largest).any():
            raise ValueError(
                f"{name}: the density is not 0 at the end {np.ravel(end)[0]:g} of its support, "
                "where Stein's identity needs it to be. Test a transformed variable without an "
                "edge (log x, or the logit), or compare with a sample by two_sample_test."
            )


def _elementwise(logpdf: Callable[[Any], Any], x: np.ndarray, scale: Any) -> np.ndarray:
    """d log p/dx of independent columns."""
    return _best(lambda h: _central(lambda shift: logpdf(x + shift * h), h), scale)


def _numerical(law: Any, x: np.ndarray, name: str) -> np.ndarray:
    """∇log p of a joint density, a coordinate at a time."""
    rows = "dataset" not in vars(law)  # a kernel density estimate takes columns

    def logpdf(points: np.ndarray) -> np.ndarray:
        values = np.asarray(law.logpdf(points if rows else points.T))
        if values.shape != (len(x),):
            raise ValueError(
                f"{name}: {type(law).__name__} gives log densities of shape {values.shape} for "
                f"{len(x)} points; pass a function that returns the gradient instead."
            )
        return values

    scale = x.std(axis=0)
    scale[scale == 0] = 1.0
    out = np.empty_like(x)
    for j in range(x.shape[1]):
        unit = np.eye(x.shape[1])[j]

        def slope(h: Any, unit: np.ndarray = unit) -> np.ndarray:
            return _central(lambda shift: logpdf(x + shift * h * unit), h)

        out[:, j] = _best(slope, scale[j])
    return out


def _central(at: Callable[[int], Any], h: Any) -> np.ndarray:
    with np.errstate(all="ignore"):
        return sum(w * (np.asarray(at(i)) - np.asarray(at(-i))) for i, w in STENCIL) / h


def _best(slope: Callable[[Any], np.ndarray], scale: Any) -> np.ndarray:
    """The slope by the step that agrees best with the next smaller one, element by element."""
    tries = [slope(step * scale) for step in STEPS]
    gaps = np.stack([np.abs(a - b) for a, b in zip(tries, tries[1:], strict=False)])
    gaps[np.isnan(gaps)] = np.inf
    best = np.argmin(gaps, axis=0)
    # of the two that agree the larger step has the smaller rounding
    return np.take_along_axis(np.stack(tries), best[None], axis=0)[0]


def _same_dimension(dimension: int, x: np.ndarray, name: str) -> None:
    if dimension != x.shape[1]:
        raise ValueError(
            f"{name}: a distribution on {dimension} coordinates does not fit points of "
            f"{x.shape[1]}."
        )


def _precision(covariance: Any, centred: np.ndarray, name: str) -> np.ndarray:
    """Σ⁻¹ (x - μ), row by row."""
    matrix = np.atleast_2d(covariance)
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"{name}: the covariance matrix is singular, so that there is no density on all of "
            "R^d. Leave out the coordinates that are functions of others."
        ) from error
    return np.linalg.solve(matrix, centred.T).T
