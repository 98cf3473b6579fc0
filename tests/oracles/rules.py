"""The sum, chain and Bayes rules on Gram matrices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.optimize
from numpy.typing import ArrayLike

from oracles.conditional import conditional_weights
from oracles.linalg import RANK_TOLERANCE, Array, as_columns, pseudo_inverse, sample_weights
from oracles.statistics import mmd_squared


def sum_rule_weights(
    K: Array, K_prior: Array, alpha: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """Sum rule (a), 000, Algorithm I, eq. 14; 002, eq. 11 without its factor n.

    Weights ``u = (W K + lam I)^-1 W K_prior alpha``: the embedding of Q(Y) is ``sum u_i psi(y_i)``.
    The same u is the prior expressed on the sample, used by every form (b).
    """
    return conditional_weights(K, K_prior @ np.asarray(alpha, float), lam, w)


def sum_rule_b_weights(
    K: Array, K_prior: Array, alpha: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """Sum rule (b), 000, Algorithm I, eq. 15: weights on pairs ``(y_i, y_j)``, ``diag(u)``, (n, n).

    ``C_WW = sum_ij M_ij psi(y_i) (x) psi(y_j)``.
    """
    return np.diag(sum_rule_weights(K, K_prior, alpha, lam, w))


def chain_rule_a_weights(
    K: Array, K_prior: Array, alpha: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """Chain rule (a), 000, Algorithm II, eq. 18: weights on pairs ``(y_i, x~_j)``, (n, m).

    ``C_YX = C_Y|X C_XX^prior = sum_ij M_ij psi(y_i) (x) phi(x~_j)``; transpose for (X, Y).
    """
    return conditional_weights(K, K_prior, lam, w) @ np.diag(np.asarray(alpha, float))


def chain_rule_b_weights(
    K: Array, K_prior: Array, alpha: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """Chain rule (b), 000, Algorithm II, eq. 19: weights on pairs ``(y_i, x_j)``, ``diag(u)``."""
    return np.diag(sum_rule_weights(K, K_prior, alpha, lam, w))


def _squared_factor(u: Array, G: Array, k_y: Array, delta: float) -> Array:
    """``G ((D G)^2 + delta I)^-1 D k_y``: the function h of 002's Proposition 4 at the y_i."""
    D = np.diag(u)
    if delta == 0:
        # In coordinates: G = L L^T, C_WW = L^T D L, and the query is L^+ k_y.
        values, vectors = np.linalg.eigh(G)
        keep = values > RANK_TOLERANCE * values.max()
        L = vectors[:, keep] * np.sqrt(values[keep])
        return L @ pseudo_inverse(L.T @ D @ L) @ np.linalg.pinv(L) @ k_y
    DG = D @ G
    return G @ np.linalg.solve(DG @ DG + delta * np.eye(len(G)), D @ k_y)


def bayes_squared_b(
    K: Array,
    G: Array,
    K_prior: Array,
    alpha: Array,
    k_y: Array,
    lam: float,
    delta: float,
    w: ArrayLike | None = None,
) -> Array:
    """Bayes' rule, squared, form (b): posterior weights on the sample's x_i.

    002, eq. 13, and 000, eq. 24: ``Lambda G ((Lambda G)^2 + delta I)^-1 Lambda k_y`` with
    ``Lambda = diag(u)``, ``u`` from 002's eq. 11 without its factor n. ``k_y = I`` gives the matrix
    ``R_X|Y`` of 002's Figure 1.
    """
    u = sum_rule_weights(K, K_prior, alpha, lam, w)
    return np.diag(u) @ _squared_factor(u, G, k_y, delta)


def bayes_squared_a(
    K: Array,
    G: Array,
    K_prior: Array,
    alpha: Array,
    k_y: Array,
    lam: float,
    delta: float,
    w: ArrayLike | None = None,
) -> Array:
    """Bayes' rule, squared, form (a): posterior weights on the prior's atoms x~_j, (m,) or (m, q).

    000, eq. 23, corrected: ``Lambda^T K ((D K)^2 + lambda~ I)^-1 D K_:x`` in that paper's letters,
    where ``Lambda`` is the matrix of the chain rule (a) and ``D`` the diagonal of the sum rule (b).
    """
    u = sum_rule_weights(K, K_prior, alpha, lam, w)
    Lambda = chain_rule_a_weights(K, K_prior, alpha, lam, w)
    return Lambda.T @ _squared_factor(u, G, k_y, delta)


def positive_part(u: Array) -> Array:
    """``u+ = max(u, 0)`` normalised to sum one (Xu, Chen, Doucet and Gretton 2022)."""
    positive = np.maximum(u, 0.0)
    if positive.sum() <= 0:
        raise ValueError("the prior has no positive weight on the sample")
    return positive / positive.sum()


def bayes_importance(
    K: Array,
    G: Array,
    K_prior: Array,
    alpha: Array,
    k_y: Array,
    lam: float,
    delta: float,
    w: ArrayLike | None = None,
) -> Array:
    """Bayes' rule by importance weighting: posterior weights on the sample's x_i.

    Xu, Chen, Doucet and Gretton (2022), "Importance weighting approach in kernel Bayes' rule", with
    u+ normalised: ``C_ZW (C_WW + delta I)^-1 psi(y)`` with ``C_ZW = Phi D Psi^T``,
    ``C_WW = Psi D Psi^T``, ``D = diag(u+)``. From
    ``D Psi^T (Psi D Psi^T + delta I)^-1 = D (G D + delta I)^-1 Psi^T`` the weights are
    ``u+ o [(G diag(u+) + delta I)^-1 k_y]``.
    """
    u = positive_part(sum_rule_weights(K, K_prior, alpha, lam, w))
    if delta == 0:
        root = np.diag(np.sqrt(u))
        return root @ pseudo_inverse(root @ G @ root) @ root @ k_y
    D = np.diag(u)
    return D @ np.linalg.solve(G @ D + delta * np.eye(len(G)), k_y)


def nonnegative_prior_weights(
    K: Array, K_prior: Array, alpha: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """Weights p >= 0 of the least ``||Phi p - mu_pi||^2 + lam sum(p^2 / w)``, normalised.

    Least squares in the features of the sample under the rows ``sqrt(lam / w)``, by the active-set
    method of Lawson and Hanson.
    """
    w = sample_weights(w, len(K))
    values, vectors = np.linalg.eigh((K + K.T) / 2)
    kept = values > 1e-13 * values.max()
    root = np.sqrt(values[kept])
    system = np.vstack([(vectors[:, kept] * root).T, np.diag(np.sqrt(lam / w))])
    target = np.concatenate([(vectors[:, kept] / root).T @ (K_prior @ alpha), np.zeros(len(K))])
    p, _ = scipy.optimize.nnls(system, target, maxiter=100 * len(K))
    return p / p.sum()


def bayes_nonnegative(
    K: Array,
    G: Array,
    K_prior: Array,
    alpha: Array,
    k_y: Array,
    lam: float,
    delta: float,
    w: ArrayLike | None = None,
) -> Array:
    """Bayes' rule with non-negative prior weights p: posterior weights on the sample's x_i.

    ``p o [Psi^T (Psi diag(p) Psi^T + delta(y) I)^-1 psi(y)]`` in the features of the sample's y.
    The leverage of y is ``psi(y)^T (C_WW + delta I)^-1 psi(y) sum(p^2)``. Where it exceeds 1/8 and
    three times its mean ``tr(C_WW (C_WW + delta I)^-1) sum(p^2)``, ``delta(y)`` is the ridge at
    which it does not, and elsewhere delta. The total of the weights stays that of delta, if both
    are positive. Not in the papers.
    """
    p = nonnegative_prior_weights(K, K_prior, alpha, lam, w)
    values, vectors = np.linalg.eigh((G + G.T) / 2)
    kept = values > 1e-13 * values.max()
    root = np.sqrt(values[kept])
    Psi, queries = vectors[:, kept] * root, (vectors[:, kept] / root).T @ as_columns(k_y)
    C, one = Psi.T @ np.diag(p) @ Psi, np.eye(int(kept.sum()))
    share = p @ p
    most = max(1 / 8, 3 * share * np.trace(np.linalg.solve(C + delta * one, C)))

    def leverage(psi: Array, ridge: float) -> float:
        return float(share * psi @ np.linalg.solve(C + ridge * one, psi))

    def weights(psi: Array, ridge: float) -> Array:
        return p * (Psi @ np.linalg.solve(C + ridge * one, psi))

    result = []
    for psi in queries.T:
        plain = found = weights(psi, delta)
        if leverage(psi, delta) > most:
            ridge = scipy.optimize.brentq(
                lambda log, psi=psi: leverage(psi, np.exp(log)) - most,
                np.log(delta),
                np.log(delta + share * psi @ psi / most),
                xtol=1e-13,
            )
            found = weights(psi, np.exp(ridge))
            if plain.sum() > 0 and found.sum() > 0:
                found = found * plain.sum() / found.sum()
        result.append(found)
    return np.stack(result, axis=1).reshape(len(K), *np.shape(k_y)[1:])


def bayes_reweighted(
    K: Array,
    G: Array,
    K_prior: Array,
    alpha: Array,
    k_y: Array,
    lam: float,
    delta: float,
    power: float = 1.0,
    w: ArrayLike | None = None,
    threshold: float = 0.2,
) -> Array:
    """Bayes' rule by reweighting the plain conditional: posterior weights on x_i, summing to one.

    ``beta(y) o (u+ / w)^power``, normalised, where ``beta(y) = (W G + delta I)^-1 W k_y`` are the
    plain conditional weights of P(X|Y) (001, Theorem 5, uncentred): ``delta`` is on the scale of
    ``C_YY``. Not in the papers. Where ``kappa = sum(v) / sum(|v|)`` of the unnormalised weights v
    is below ``threshold``, prior and observation conflict and ``max(beta, 0)`` is used.
    A point of weight zero has ``u = beta = 0`` and keeps weight zero.
    """
    n = len(K)
    w = sample_weights(w, n)
    u = positive_part(sum_rule_weights(K, K_prior, alpha, lam, w))
    ratio = np.zeros(n)
    for i in range(n):
        if w[i] > 0:
            ratio[i] = (u[i] / w[i]) ** power
    beta = conditional_weights(G, k_y, delta, w)
    result = np.empty(as_columns(beta).shape)
    for q, column in enumerate(as_columns(beta).T):
        v = column * ratio
        kappa = v.sum() / np.abs(v).sum()
        if kappa < threshold:
            v = np.maximum(column, 0.0) * ratio
        result[:, q] = v / v.sum()
    return result.reshape(beta.shape)


def bayes_average(beta: Array, G_tilde: Array, alpha: Array) -> float:
    """Kernel Bayes average, 000, Algorithm IV, eq. 25: ``E[g]`` for ``g = sum alpha_j k(y_j, .)``.

    ``beta`` are the posterior's weights, ``G_tilde`` the Gram matrix of its atoms (rows) against
    those of the function (columns).
    """
    total = 0.0
    for i in range(len(beta)):
        for j in range(len(alpha)):
            total += beta[i] * G_tilde[i, j] * alpha[j]
    return total


def marginal_discrepancy(
    K: Array,
    G: Array,
    folds: Sequence[ArrayLike],
    lam: float,
    delta: float,
    reference: Array | None = None,
) -> float:
    """Cross-validation of 002, section 4.2: posteriors averaged over held-out y against P_X.

    With the training marginal as prior, posteriors averaged over y give the marginal back. The
    paper measures ``||average - m_X^[a]||^2`` in the candidate's own space (``reference=None``),
    where it shrinks as the bandwidth grows, whatever the quality; ``reference`` is the Gram matrix
    of X under one fixed kernel instead.
    """
    n = len(K)
    R = K if reference is None else reference
    total = 0.0
    for fold in folds:
        held = np.asarray(fold)
        train = np.setdiff1d(np.arange(n), held)
        K_train, G_train = K[np.ix_(train, train)], G[np.ix_(train, train)]
        prior = np.full(len(train), 1 / len(train))
        posteriors = bayes_squared_b(
            K_train, G_train, K_train, prior, G[np.ix_(train, held)], lam, delta
        )
        total += mmd_squared(
            R[np.ix_(train, train)],
            R[np.ix_(held, held)],
            R[np.ix_(train, held)],
            posteriors.mean(axis=1),
        )
    return total
