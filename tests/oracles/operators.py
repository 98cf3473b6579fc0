"""Operators on explicit features; rows are points."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from oracles.linalg import Array, pseudo_inverse, regularised_inverse, sample_weights
from oracles.rules import positive_part


def operator_mean(A: Array, w: ArrayLike | None = None) -> Array:
    """Mean embedding ``sum w_i phi(x_i)`` (000, eq. 4). Any weights, not only probabilities."""
    w = np.full(len(A), 1 / len(A)) if w is None else np.asarray(w, float)
    mean = np.zeros(A.shape[1])
    for w_i, a in zip(w, A, strict=True):
        mean += w_i * a
    return mean


def operator_joint(
    features: Sequence[Array], w: ArrayLike | None = None, centred: bool = False
) -> Array:
    """``sum w_i phi(x_i) (x) psi(y_i) (x) ...`` (000, eq. 5), each variable centred first if asked.

    Two feature matrices give ``C_XY`` (r_x, r_y) and three ``C_XYZ`` (r_x, r_y, r_z). Centred, two
    give 001's eq. 3.
    """
    w = np.full(len(features[0]), 1 / len(features[0])) if w is None else np.asarray(w, float)
    parts = [A - operator_mean(A, w) if centred else A for A in features]
    total = np.zeros([A.shape[1] for A in parts])
    for i, w_i in enumerate(w):
        term = np.asarray(w_i)
        for A in parts:
            term = np.multiply.outer(term, A[i])
        total += term
    return total


def operator_conditional(PX: Array, PY: Array, lam: float, w: ArrayLike | None = None) -> Array:
    """``C_Y|X = C_YX (C_XX + lam I)^-1`` (000, eqs. 8, 10; 004, section 4.1, in its right order).

    004 prints ``C_XX (C_YX + lam I)^-1``. Returns (r_y, r_x).
    """
    return operator_joint([PY, PX], w) @ regularised_inverse(operator_joint([PX, PX], w), lam)


def operator_centred_conditional(
    PX: Array, PY: Array, px: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """``mu_Y + C_YX (C_XX + lam I)^-1 (phi(x) - mu_X)``, centred covariances (001, Theorem 5).

    ``px`` is one row of features (r_x,) or several (q, r_x); returns (r_y,) or (q, r_y).
    """
    C_YX = operator_joint([PY, PX], w, centred=True)
    C_XX = operator_joint([PX, PX], w, centred=True)
    query = px - operator_mean(PX, w)
    return operator_mean(PY, w) + query @ regularised_inverse(C_XX, lam) @ C_YX.T


def operator_sum_a(
    PX: Array, PY: Array, prior: Array, alpha: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """Sum rule (a): ``C_Y|X mu_prior`` (000, eq. 12). ``prior`` holds the features of its atoms."""
    return operator_conditional(PX, PY, lam, w) @ operator_mean(prior, alpha)


def operator_sum_b(
    PX: Array, PY: Array, prior: Array, alpha: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """Sum rule (b): ``C_(YY)X (C_XX + lam I)^-1 mu_prior`` (000, eq. 13), (r_y, r_y)."""
    inverse = regularised_inverse(operator_joint([PX, PX], w), lam)
    return operator_joint([PY, PY, PX], w) @ (inverse @ operator_mean(prior, alpha))


def operator_chain_a(
    PX: Array, PY: Array, prior: Array, alpha: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """Chain rule (a): ``C_Y|X C_XX^prior`` (000, eq. 16), (r_y, r_x); transpose for (X, Y)."""
    return operator_conditional(PX, PY, lam, w) @ operator_joint([prior, prior], alpha)


def operator_chain_b(
    PX: Array, PY: Array, prior: Array, alpha: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """Chain rule (b): ``C_(YX)X (C_XX + lam I)^-1 mu_prior`` (000, section 4.2), (r_y, r_x)."""
    inverse = regularised_inverse(operator_joint([PX, PX], w), lam)
    return operator_joint([PY, PX, PX], w) @ (inverse @ operator_mean(prior, alpha))


def operator_bayes_squared(
    PX: Array,
    PY: Array,
    prior: Array,
    alpha: Array,
    py: Array,
    lam: float,
    delta: float,
    form: str = "b",
    w: ArrayLike | None = None,
) -> Array:
    """``C_ZW (C_WW^2 + delta I)^-1 C_WW psi(y)`` (002, eq. 12; 000, eqs. 21 to 24), in H_X.

    ``C_WW`` is the sum rule (b), ``C_ZW`` the chain rule of ``form``. ``py`` is (r_y,) or (q, r_y);
    returns (r_x,) or (q, r_x).
    """
    chain = operator_chain_a if form == "a" else operator_chain_b
    C_ZW = chain(PX, PY, prior, alpha, lam, w).T
    C_WW = operator_sum_b(PX, PY, prior, alpha, lam, w)
    C_WW = (C_WW + C_WW.T) / 2  # symmetric up to rounding
    if delta == 0:
        inverse = pseudo_inverse(C_WW)
    else:
        inverse = np.linalg.solve(C_WW @ C_WW + delta * np.eye(len(C_WW)), C_WW)
    return py @ (C_ZW @ inverse).T


def operator_prior_weights(
    PX: Array, prior: Array, alpha: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """``u_i = w_i <phi(x_i), (C_XX + lam I)^-1 mu_prior>``: the prior as weights on the sample."""
    inverse = regularised_inverse(operator_joint([PX, PX], w), lam)
    return sample_weights(w, len(PX)) * (PX @ (inverse @ operator_mean(prior, alpha)))


def operator_bayes_importance(
    PX: Array,
    PY: Array,
    prior: Array,
    alpha: Array,
    py: Array,
    lam: float,
    delta: float,
    w: ArrayLike | None = None,
) -> Array:
    """``C_ZW (C_WW + delta I)^-1 psi(y)`` with u+ (Xu, Chen, Doucet and Gretton 2022), in H_X."""
    u = positive_part(operator_prior_weights(PX, prior, alpha, lam, w))
    C_ZW, C_WW = operator_joint([PX, PY], u), operator_joint([PY, PY], u)
    return py @ (C_ZW @ regularised_inverse(C_WW, delta)).T


def operator_conditional_cross_covariance(
    PX: Array, PY: Array, PZ: Array, px: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """``C_YZ|x = mu_YZ|x - mu_Y|x (x) mu_Z|x`` (001, eq. 9), (r_y, r_z), at one point x."""
    h = regularised_inverse(operator_joint([PX, PX], w), lam) @ px
    mu_y, mu_z = operator_joint([PY, PX], w) @ h, operator_joint([PZ, PX], w) @ h
    return operator_joint([PY, PZ, PX], w) @ h - np.outer(mu_y, mu_z)
