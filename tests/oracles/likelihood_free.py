"""Bayesian inference by densities, by rejection (002, sections 4.4, 5.1, 5.2), by simulations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from oracles.conditional import ESTIMATORS, conditional_weights
from oracles.linalg import Array, sample_weights


def normal_density(difference: ArrayLike, h: float) -> float:
    """``K_h(x) = h^-d K(x / h)`` with K the standard normal density on R^d."""
    z = np.asarray(difference, float) / h
    return float(np.exp(-(z @ z) / 2) / ((2 * np.pi) ** (len(z) / 2) * h ** len(z)))


def kde_conditional_density(X: Array, Y: Array, h: float, x: ArrayLike, y: ArrayLike) -> float:
    """002, 5.1: ``p^(y|x) = sum_j K_h(x - X_j) K_h(y - Y_j) / sum_j K_h(x - X_j)``."""
    near = [normal_density(x - Xj, h) for Xj in X]
    return sum(k * normal_density(y - Yj, h) for k, Yj in zip(near, Y, strict=True)) / sum(near)


def kde_importance_mean(X: Array, Y: Array, U: Array, h: float, y: ArrayLike) -> Array:
    """002, 5.1: the mean of the prior's sample U with ``zeta_i = p^(y|U_i) / sum_j p^(y|U_j)``."""
    zeta = np.array([kde_conditional_density(X, Y, h, u, y) for u in U])
    return (zeta / zeta.sum()) @ U


def least_squares_cross_validation(Z: Array, h: float) -> float:
    """``int p^2 - 2/n sum_i p_-i(z_i)`` (Rudemo 1982; Bowman 1984), up to a constant in h the ISE.

    Two normal densities of variance h^2 overlap in one of variance 2 h^2.
    """
    n = len(Z)
    square = sum(normal_density(a - b, np.sqrt(2) * h) for a in Z for b in Z) / n**2
    left_out = [
        sum(normal_density(Z[i] - Z[j], h) for j in range(n) if j != i) / (n - 1) for i in range(n)
    ]
    return float(square - 2 * np.mean(left_out))


def rejection_mean(theta: Array, outputs: Array, y: ArrayLike, tolerance: float) -> Array:
    """002, 4.4, steps (i) to (iv): the mean of the draws with ``D(y, Y_t) < tau``, D Euclidean."""
    accepted = [
        draw
        for draw, output in zip(theta, outputs, strict=True)
        if np.linalg.norm(output - y) < tolerance
    ]
    return np.mean(accepted, axis=0)


def incomplete_cholesky_ranks(K: Array, tol: float) -> tuple[int, int]:
    """Ranks at which greedy pivoting (Fine and Scheinberg 2001) leaves less than ``tol``.

    First by the largest diagonal element of the residual ``K - L L^T``, then by its trace.
    """
    residual = np.array(K, float)
    rank, largest, trace = 0, None, None
    while largest is None or trace is None:
        diagonal = np.diag(residual)
        if largest is None and diagonal.max() < tol:
            largest = rank
        if trace is None and diagonal.sum() < tol:
            trace = rank
        i = int(diagonal.argmax())
        residual = residual - np.outer(residual[:, i], residual[i]) / residual[i, i]
        rank += 1
    return largest, trace


def leave_one_out_answers(
    K: Array, F: Array, lam: float, w: ArrayLike | None = None, centred: bool | None = False
) -> Array:
    """``E[f|x_i]`` (n, q) by n refits, each without its row: see `leave_one_out_error`.

    The others keep their weights, which is the ordinary estimator with weights ``w / (1 - w_i)``
    and regularisation ``lam / (1 - w_i)``. ``F`` (n, q) is f at the sample's points.
    """
    n = len(K)
    w = sample_weights(w, n)
    estimator = ESTIMATORS[centred]
    answers = []
    for i in range(n):
        rest = np.delete(np.arange(n), i)
        scale = 1.0 - w[i]
        K_rest = K[np.ix_(rest, rest)]
        answers.append(estimator(K_rest, K[rest, i], lam / scale, w[rest] / scale) @ F[rest])
    return np.stack(answers)


class Adjustment(NamedTuple):
    """What eq. 19 says of n simulations, each answered without its own row."""

    residuals: Array  # r_i = theta_i - m(y_i), (n, d)
    log_scales: Array  # log s(y_i), (n, d)
    centre: Array  # the prior's mean, (d,)
    logs: Array  # log |r_i|, less its average, (n, d)
    means: Array  # m(y_i), (n, d)


def normalised_mean(v_theta: Array, v_one: Array, centre: Array) -> Array:
    """``sum v_i theta_i / sum v_i``; of mass below 1/2 the prior's mean makes up the rest."""
    mass = np.maximum(v_one, 0.5)[:, None]
    return centre + (v_theta - v_one[:, None] * centre) / mass


def regression_adjustment(
    G: Array, theta: Array, lam: float, w: ArrayLike | None = None
) -> Adjustment:
    """Residuals and scales of the regression adjustment (Beaumont, Zhang and Balding 2002).

    ``m`` is the normalised mean of 002, eq. 19, and ``log s`` its conditional expectation of
    ``log |r|`` (Blum and Francois 2010), |r| at least a thousandth of its median.
    """
    n = len(theta)
    w = sample_weights(w, n)
    centre = w @ theta
    v_theta = leave_one_out_answers(G, theta, lam, w)
    v_one = leave_one_out_answers(G, np.ones((n, 1)), lam, w)[:, 0]
    means = normalised_mean(v_theta, v_one, centre)
    residuals = theta - means
    median = np.median(abs(residuals), axis=0)
    floor = 1e-3 * np.where(median > 0, median, 1.0)
    logs = np.log(np.maximum(abs(residuals), floor))
    logs = logs - w @ logs
    log_scales = leave_one_out_answers(G, logs, lam, w)
    return Adjustment(residuals, log_scales, centre, logs, means)


def adjusted_draws(
    theta: Array,
    outputs: Array,
    G: Array,
    k_y: Array,
    y: Array,
    lam: float,
    share: float,
    w: ArrayLike | None = None,
) -> tuple[Array, Array]:
    """``theta*_i = m(y) + r_i s(y)/s(y_i)`` with weights ``w_i kappa(y - y_i)``, all n of them.

    kappa is a Gaussian in outputs standardised by their interquartile range, its deviation half
    the distance to the k-th nearest of the simulations, k a share of them and at least 20. A scale
    changes by at most e^2; draws are reflected at the ends of the prior's draws, and columns of
    whole numbers stay as they are.
    """
    n = len(theta)
    w = sample_weights(w, n)
    found = regression_adjustment(G, theta, lam, w)
    v = conditional_weights(G, k_y, lam, w)
    m = normalised_mean((v @ theta)[None], np.array([v.sum()]), found.centre)[0]
    growth = np.exp(np.clip(v @ found.logs - found.log_scales, -2, 2))
    draws = m + found.residuals * growth
    for j in range(theta.shape[1]):
        low, high = theta[:, j].min(), theta[:, j].max()
        for i in range(n):
            if all(value == int(value) for value in theta[:, j]):
                draws[i, j] = theta[i, j]
            if draws[i, j] < low:
                draws[i, j] = low + (low - draws[i, j])
            if draws[i, j] > high:
                draws[i, j] = high - (draws[i, j] - high)
            draws[i, j] = min(max(draws[i, j], low), high)
    spread = np.empty(outputs.shape[1])
    for j in range(outputs.shape[1]):  # quartiles, each value at the middle of its weight
        order = np.argsort(outputs[:, j])
        middle = np.cumsum(w[order]) - w[order] / 2
        low, high = np.interp([0.25, 0.75], middle, outputs[order, j])
        spread[j] = (high - low) / 1.349
    distances = np.array([np.linalg.norm((row - y) / spread) for row in outputs])
    k = max(int(share * n), 20)
    kappa = (
        np.ones(n) if k >= n else np.exp(-(distances**2) / (2 * (np.sort(distances)[k] / 2) ** 2))
    )
    return draws, w * kappa / (w @ kappa)
