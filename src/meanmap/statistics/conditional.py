"""Distances between conditional distributions, and dependence given a variable."""

from __future__ import annotations

from typing import Any

import numpy as np

from meanmap.arrays import TILE, Points, concatenate, count, in_kind, spans
from meanmap.conditional import ConditionalEmbedding
from meanmap.kernels import Kernel, TensorProduct
from meanmap.spaces import Space
from meanmap.spaces.space import fit_space
from meanmap.statistics.centring import center_kernel
from meanmap.statistics.gates import one_each, pair_samples, read_paired_samples

LEAST = 2  # points: fewer do not determine a conditional distribution


def conditional_mmd(
    X1: Any,
    Y1: Any,
    X2: Any,
    Y2: Any,
    at: Any = None,
    kernel_x: Any = None,
    kernel_y: Any = None,
    regularization: float | str = "auto",
    basis: Any = None,
) -> Any:
    """The squared distance between two conditional distributions, `‖μ_Y1|x - μ_Y2|x‖²`.

    The conditional MMD of Park and Muandet (2020): zero for every x where both samples have the
    same P(Y|X) and, with characteristic kernels, only there. The marginals of X may differ.

    Parameters
    ----------
    X1, Y1 : paired points, the first sample
    X2, Y2 : paired points, the second
    at : points x, a single one, or None
        Where to compare. None averages over all X of both samples.
    kernel_x, kernel_y : Kernel, callable or None
        Shared by the samples, and resolved on both together.
    regularization : "auto" or float
        λ of each conditional embedding; "auto" is the least leave-one-out error.
    basis : a basis, a pair of them (x, y), or None

    Returns
    -------
    float, or an array with one value per point of `at`

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.statistics.conditional import conditional_mmd
    >>> rng = np.random.default_rng(0)
    >>> X1, X2 = rng.normal(0, 1, size=(300, 1)), rng.normal(1, 1, size=(300, 1))
    >>> Y1, Y2 = (x + 0.3 * rng.normal(size=x.shape) for x in (X1, X2))
    >>> conditional_mmd(X1, Y1, X2, Y2) < 0.05  # one conditional, two marginals
    True
    >>> low, high = conditional_mmd(X1, Y1, X2, Y2 * np.sign(X2), at=[[-1.0], [1.0]])
    >>> bool(low > 1.0 > 0.05 > high)  # they differ for negative x
    True
    """
    pairs = read_paired_conditionals(X1, Y1, X2, Y2, kernel_x, kernel_y)
    (kernel_x, kernel_y), (X1, Y1), (X2, Y2) = pairs
    bases = basis if isinstance(basis, tuple) else (basis, basis)
    if bases[1] is None:  # the same difference, of smaller embeddings
        kernel_y = center_kernel(kernel_y, concatenate([Y1, Y2]))
    spaces = (
        shared_space(kernel_x, (X1, X2), bases[0]),
        shared_space(kernel_y, (Y1, Y2), bases[1]),
    )

    def operator(X: Points, Y: Points) -> np.ndarray:
        model = ConditionalEmbedding(kernel_x, kernel_y, regularization, spaces, centered=False)
        return model.fit(X, Y).operator_.matrix

    difference = operator(X1, Y1) - operator(X2, Y2)  # of the operators: C₁ - C₂

    def values(points: Points) -> np.ndarray:
        shifts = spaces[0].coordinates(points) @ difference.T
        return np.einsum("ij,ij->i", shifts, shifts)

    if at is None:
        return float(np.mean(values(concatenate([X1, X2]))))
    points, single = kernel_x.rows(at, X1, "at")
    return float(values(points)[0]) if single else in_kind(values(points), at)


def read_paired_conditionals(
    X1: Any, Y1: Any, X2: Any, Y2: Any, kernel_x: Any, kernel_y: Any, least: int = LEAST
) -> tuple[tuple[Kernel, Kernel], tuple[Points, Points], tuple[Points, Points]]:
    """Two samples of pairs, and kernels on X and on Y resolved on both samples together."""
    (kx, ky), (X1, Y1) = read_paired_samples([("X1", X1, kernel_x), ("Y1", Y1, kernel_y)], least)
    second = [kx.check(X2, "X2", X1, "X1"), ky.check(Y2, "Y2", Y1, "Y1")]
    X2, Y2 = pair_samples(["X2", "Y2"], second, least)
    kernels = kx.resolve(concatenate([X1, X2])), ky.resolve(concatenate([Y1, Y2]))
    return kernels, (X1, Y1), (X2, Y2)


def shared_space(kernel: Kernel, samples: tuple[Points, Points], basis: Any) -> Space:
    """One space for two samples."""
    if isinstance(basis, Space) and hasattr(basis, "kernel_"):
        return basis
    return fit_space(kernel, basis, concatenate(list(samples)))[0]


def hscic(
    X: Any,
    Y: Any,
    Z: Any,
    at: Any = None,
    kernel_x: Any = None,
    kernel_y: Any = None,
    kernel_z: Any = None,
    regularization: float | str = "auto",
    basis: Any = None,
) -> Any:
    """The dependence of X and Y given z, `‖μ_XY|z - μ_X|z ⊗ μ_Y|z‖²`.

    The conditional HSIC of Park and Muandet (2020): zero for every z where X and Y are independent
    given Z = z and, with characteristic kernels, only there. An estimate is never quite zero; use
    `conditional_independence_test` to judge it.

    Parameters
    ----------
    X, Y, Z : points, rows at the same place
    at : points z, a single one, or None
        Where to measure. None averages over the sample's Z.
    kernel_x, kernel_y, kernel_z : Kernel, callable or None
    regularization : "auto" or float
        λ of the embedding of P(X, Y|Z); "auto" is the least leave-one-out error.
    basis : a basis, a triple of them (x, y, z), or None

    Returns
    -------
    float, or an array with one value per point of `at`

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.statistics.conditional import hscic
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.uniform(-1, 1, size=(500, 1))
    >>> X = rng.normal(size=(500, 1))
    >>> Y = np.where(Z > 0, X, 0) + 0.3 * rng.normal(size=(500, 1))  # dependent for z > 0
    >>> low, high = hscic(X, Y, Z, at=[[-0.5], [0.5]])
    >>> bool(high > 5 * low)
    True
    """
    named = [("X", X, kernel_x), ("Y", Y, kernel_y), ("Z", Z, kernel_z)]
    (kx, ky, kz), (X, Y, Z) = read_paired_samples(named, LEAST)
    kx, ky, kz = kx.resolve(X), ky.resolve(Y), kz.resolve(Z)
    bases = one_each(basis, "basis", "xyz")
    kx, ky = (
        center_kernel(k, points) if one is None else k
        for k, points, one in zip((kx, ky), (X, Y), bases[:2], strict=True)
    )
    joint = TensorProduct(kx, ky)
    model = ConditionalEmbedding(kz, joint, regularization, (bases[2], None), centered=False)
    model.fit(Z, (X, Y))
    w = np.full(count(X), 1 / count(X))
    _, phi_x = fit_space(kx, bases[0], X, w)
    _, phi_y = fit_space(ky, bases[1], Y, w)
    points, single = (Z, False) if at is None else kz.rows(at, Z, "at")
    values = covariance_norms(np.asarray(model.weights(points)), phi_x, phi_y)
    if at is None:
        return float(np.mean(values))
    return float(values[0]) if single else in_kind(values, at)


def covariance_norms(weights: np.ndarray, phi_x: np.ndarray, phi_y: np.ndarray) -> np.ndarray:
    """‖Φ_xᵀ diag(w) Φ_y - (Φ_xᵀ w)(Φ_yᵀ w)ᵀ‖² for every row w of weights."""
    mean_x, mean_y = weights @ phi_x, weights @ phi_y
    out = np.empty(len(weights))
    p, q = phi_x.shape[1], phi_y.shape[1]
    for block in spans(len(weights), max(1, 8 * TILE // max(1, p * max(q, len(phi_x))))):
        scaled = weights[block][:, None, :] * phi_x.T
        joint = scaled @ phi_y
        joint -= mean_x[block][:, :, None] * mean_y[block][:, None, :]
        out[block] = np.einsum("mpq,mpq->m", joint, joint)
    return out


__all__ = ["conditional_mmd", "hscic"]
