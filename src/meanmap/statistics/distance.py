"""How far apart two distributions are: the maximum mean discrepancy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Points, concatenate, count, epsilon, float_like, is_chunked, spans, take
from meanmap.kernels import Kernel
from meanmap.kernels.defaults import as_kernel
from meanmap.spaces import Basis, Space
from meanmap.spaces.space import fit_space
from meanmap.statistics import moments
from meanmap.statistics.gates import near_origin, read_two_samples, require_points
from meanmap.statistics.tiles import ROUNDINGS, diagonal_of, gram_sums

ESTIMATORS = ("U", "V", "linear", "block", "incomplete")
Five = tuple[float, float, float, float, float]
PAIRS = 1 << 16  # pairs of points that are held at a time
NEAR = 64  # points whose cross-Gram is computed to read its diagonal


def mmd(
    X: Any,
    Y: Any,
    kernel: Any = None,
    estimator: str = "U",
    *,
    size: int | None = None,
    basis: Basis | Space | None = None,
) -> float:
    """The squared maximum mean discrepancy ‖μ_X - μ_Y‖² of two samples.

    Parameters
    ----------
    X, Y : samples of one kind of points
        Collections of Dask are read chunk by chunk, in coordinates ("U" and "V" only).
    kernel : Kernel, callable or None
        None chooses for the kind of points; a bandwidth is resolved on both samples together.
    estimator : {"U", "V", "linear", "block", "incomplete"}
        "V" is the squared distance of the two embeddings; "U" leaves out the pairs of a point with
        itself and is unbiased, so that it can be negative (Gretton et al. 2012, eqs. 3 and 5).
        "linear" uses each point once, "block" averages over blocks of points, "incomplete" over
        some of the pairs: cheaper, unbiased, noisier. These three take X and Y as pairs of rows in
        random order, and ignore what is left over in the longer sample.
    size : int or None
        "block": points in a block, √n by default. "incomplete": how many partners each point has,
        √n by default.
    basis : PivotedCholesky, Nystroem, RandomFourier, Explicit, a fitted Space or None
        Compute in coordinates instead of exactly ("U" and "V" only), in O((n + m) r) memory.
        None is exact, but for collections of Dask: then coordinates are fitted to a sample, by
        pivoted Cholesky to 1e-6 and no more than 500; where these miss more, a warning says so.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import mmd
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(500, 2)), rng.normal(0.5, 1.0, size=(500, 2))
    >>> round(mmd(X, Y), 3)
    0.068
    >>> abs(mmd(X, rng.normal(size=(500, 2)))) < 0.005
    True

    With the energy kernel twice the "V" estimate is the energy distance of Székely and Rizzo.

    >>> from meanmap.kernels import Energy
    >>> round(2 * mmd([[0.0], [1.0]], [[3.0], [3.0]], Energy(), "V"), 6)
    4.5
    """
    checks.option(estimator, "estimator", ESTIMATORS)
    exact = estimator in ("U", "V") and basis is None
    least = 1 if estimator == "V" else 2
    if is_chunked(X, Y):
        return _of_chunks(X, Y, kernel, estimator, basis, least)
    kernel = as_kernel(moments.kernel_of_space(kernel, basis), X, "X")
    X, Y = read_two_samples(X, Y, kernel, least, stay=exact)
    kernel = kernel.resolve(concatenate([X, Y]))  # on both, so that exchanges change nothing
    if basis is None:
        X, Y = near_origin([kernel], X, Y)
    if estimator in ("U", "V"):
        sums = _sums(kernel, X, Y) if basis is None else _coordinate_sums(kernel, X, Y, basis)
        return float(from_sums(*sums, count(X), count(Y), estimator))
    if basis is not None:
        raise ValueError(f'estimator="{estimator}" has no form in coordinates; leave out basis=.')
    return float(np.mean(pair_terms(kernel, X, Y, estimator, size).values))


def from_sums(xx: Any, yy: Any, xy: Any, dx: Any, dy: Any, n: Any, m: Any, estimator: str) -> Any:
    """The estimate from Σ k over pairs within X, within Y and across, and the diagonals' sums."""
    if estimator == "V":
        return xx / (n * n) + yy / (m * m) - 2 * xy / (n * m)
    # a single point has no pairs: its sum is 0 already
    pairs_x, pairs_y = np.maximum(n * (n - 1), 1), np.maximum(m * (m - 1), 1)
    return (xx - dx) / pairs_x + (yy - dy) / pairs_y - 2 * xy / (n * m)


def _sums(kernel: Kernel, X: Points, Y: Points) -> Five:
    dx, dy = (float(diagonal_of(kernel, part).sum()) for part in (X, Y))
    return gram_sums(kernel, X), gram_sums(kernel, Y), gram_sums(kernel, X, Y), dx, dy


def _of_chunks(X: Any, Y: Any, kernel: Any, estimator: str, basis: Any, least: int) -> float:
    """The estimate from sums over chunks."""
    if estimator not in ("U", "V"):
        raise ValueError(
            f'estimator="{estimator}" takes rows two by two, which rows in chunks are not read by. '
            'Use "U" or "V", which are sums over rows, or call .compute() on a sample of the rows.'
        )
    _, sums = moments.sum_two_samples(X, Y, kernel, basis)
    for name, part in zip(("X", "Y"), sums, strict=True):
        require_points(part.n, name, least)
    return moments.mmd_of(*sums, estimator)


def _coordinate_sums(kernel: Kernel, X: Points, Y: Points, basis: Basis | Space) -> Five:
    n = count(X)
    pooled = concatenate([X, Y])
    _, psi = fit_space(kernel, basis, pooled)
    psi = psi - psi.mean(axis=0)
    a, b = psi[:n].sum(axis=0), psi[n:].sum(axis=0)
    return a @ a, b @ b, a @ b, float(np.sum(psi[:n] ** 2)), float(np.sum(psi[n:] ** 2))


@dataclass(frozen=True)
class Terms:
    """h(i, j) for some pairs i ≠ j, of which an estimate is the mean.

    h(i, j) = k(xᵢ, xⱼ) + k(yᵢ, yⱼ) - k(xᵢ, yⱼ) - k(xⱼ, yᵢ) (Gretton et al. 2012, eq. 4), which
    exchanging xᵢ with yᵢ turns into its negative.
    """

    first: np.ndarray  # i
    second: np.ndarray  # j
    values: np.ndarray
    blocks: int  # stretches of equal length that share no point
    rounding: float  # what a value may be off by


def pair_terms(
    kernel: Kernel, X: Points, Y: Points, estimator: str, size: int | None = None
) -> Terms:
    """The pairs of the linear, block and incomplete estimates.

    Neighbours; all pairs within a block (Zaremba et al. 2013); the first subdiagonals (Schrab et
    al. 2022).
    """
    n = min(count(X), count(Y))
    root = max(2, round(n**0.5))
    blocks = 1
    if estimator == "linear":
        first = np.arange(0, n - 1, 2)
        second, blocks = first + 1, len(first)
    elif estimator == "block":
        size = root if size is None else checks.whole(size, "size", 2, "Two points make a pair.")
        size = min(size, n)
        i, j = np.triu_indices(size, k=1)
        blocks = n // size
        starts = size * np.arange(blocks)[:, None]
        first, second = (starts + i).ravel(), (starts + j).ravel()
    else:
        size = root if size is None else checks.whole(size, "size", 1, "Partners of each point.")
        steps = range(1, min(size, n - 1) + 1)
        first = np.concatenate([np.arange(n - r) for r in steps])
        second = np.concatenate([np.arange(r, n) for r in steps])
    values = np.concatenate(
        [
            _h(kernel, *(take(part, at[s]) for at in (first, second) for part in (X, Y)))
            for s in spans(len(first), PAIRS)
        ]
    )
    whole = float(np.mean([np.mean(np.abs(diagonal_of(kernel, part))) for part in (X, Y)]))
    return Terms(first, second, values, blocks, ROUNDINGS * epsilon(float_like(X)) * whole)


def _h(kernel: Kernel, X: Points, Y: Points, X2: Points, Y2: Points) -> np.ndarray:
    return (
        row_by_row(kernel, X, X2)
        + row_by_row(kernel, Y, Y2)
        - row_by_row(kernel, X, Y2)
        - row_by_row(kernel, X2, Y)
    )


def row_by_row(kernel: Kernel, A: Points, B: Points) -> np.ndarray:
    """k(aᵢ, bᵢ) for every i."""
    compare = kernel.against(B)
    return np.concatenate(
        [np.diagonal(compare(take(A, s), s, None)) for s in spans(count(A), NEAR)]
    )
