"""Filters and smoothers, as the papers write them.

The T training states and their observations are one sample (x_i, y_i), all sequences
laid end to end; state second[i] follows state first[i], in no pair across two sequences. Weights
are on the T states, (T,) or (steps, T). A test observation is its column k_y against the training
observations, (T,), or None where it is missing. Every belief and prediction sums to one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import multivariate_normal

from oracles.conditional import ESTIMATORS, conditional_weights
from oracles.linalg import RANK_TOLERANCE, Array, sample_weights
from oracles.operators import operator_joint, operator_mean
from oracles.rules import (
    bayes_importance,
    bayes_reweighted,
    bayes_squared_b,
    positive_part,
    sum_rule_weights,
)


def initial_filter_weights(G: Array, k_y: Array, lam: float, w: ArrayLike | None = None) -> Array:
    """First belief of 002's filter, section 4.3, without the factor T: ``(G_Y + T eps I)^-1 k_y``.

    It is ``C_XY (C_YY + eps I)^-1 psi(y_1)``, the plain conditional embedding.
    """
    return conditional_weights(G, k_y, lam, w)


Indices = Sequence[int] | NDArray[np.int64]


def on_states(weights: Array, indices: Indices, T: int) -> Array:
    """Weights on the states ``indices``, repeats allowed, as weights on all T; rows are kept."""
    result = np.zeros((*np.shape(weights)[:-1], T))
    for i, index in enumerate(indices):
        result[..., index] += weights[..., i]
    return result


def normalised_weights(v: Array, threshold: float = 0.2) -> Array:
    """``v / sum(v)``; where ``kappa = sum(v) / sum(|v|)`` is below the threshold, of ``max(v, 0)``.

    The guard of :func:`bayes_reweighted`, for the weights of any method. A threshold of 0 leaves
    every positive total alone, however the weights oscillate.
    """
    if v.sum() < threshold * np.abs(v).sum():
        return positive_part(v)
    return v / v.sum()


def filter_prediction(
    K_states: Array,
    first: Indices,
    second: Indices,
    belief: Array,
    eps: float,
    transfer: str = "two-step",
    threshold: float = 0.2,
) -> Array:
    """One step ahead: weights of ``P(x_t+1 | y_1..t)`` on the T states.

    "two-step", 002, section 4.3: ``C_X+1X (C_XX + eps I)^-1 m``, that is
    ``(G_X + n eps I)^-1 G alpha`` on the successors, with the Gram matrix of the n states that have
    one. (002 has a state T + 1, so that each of its T atoms has a successor, and n = T.)

    "one-step", 000, eq. 35, where ``G~ alpha`` has ``G~_ij = k(s_i, s_j+1)``: each atom hands its
    weight to its successor, to several in equal shares. The weight of atoms without a successor is
    dropped, and the rest scaled to the same total.
    """
    first, second, T = np.asarray(first), np.asarray(second), len(K_states)
    if transfer == "two-step":
        K_first = K_states[np.ix_(first, first)]
        moved = sum_rule_weights(K_first, K_states[first], belief, eps)
    elif transfer == "one-step":
        moved = np.array([belief[i] / np.sum(first == i) for i in first])
    else:
        raise ValueError(f"transfer must be 'two-step' or 'one-step', got {transfer!r}")
    return normalised_weights(on_states(moved, second, T), threshold)


def filter_conditioning(
    K_states: Array,
    K_observations: Array,
    prior: Array,
    k_y: Array,
    eps_observation: float,
    delta: float,
    method: str = "squared",
    power: float = 1.0,
    threshold: float = 0.2,
) -> Array:
    """Kernel Bayes' rule with the prediction as prior: weights of ``P(x_t | y_1..t)``.

    "squared" is 002, eq. 18, and 000, eq. 36; "importance" and "reweighted" put another rule in
    its place. ``delta`` is on the scale of ``C_WW^2``, ``C_WW`` and ``C_YY``.
    """
    arguments = (K_states, K_observations, K_states, prior, k_y, eps_observation, delta)
    if method == "squared":
        posterior = bayes_squared_b(*arguments)
    elif method == "importance":
        posterior = bayes_importance(*arguments)
    elif method == "reweighted":
        posterior = bayes_reweighted(*arguments, power, threshold=threshold)
    else:
        raise ValueError(f"unknown method {method!r}")
    return normalised_weights(posterior, threshold)


def kernel_bayes_filter(
    K_states: Array,
    K_observations: Array,
    first: Indices,
    second: Indices,
    columns: Sequence[Array | None],
    eps: float,
    delta: float,
    eps_observation: float | None = None,
    method: str = "squared",
    power: float = 1.0,
    transfer: str = "two-step",
    initial: str | ArrayLike = "first",
    eps_initial: float | None = None,
    threshold: float = 0.2,
) -> tuple[Array, Array]:
    """Kernel Bayes filter (002, eqs. 16 to 18; 000, Algorithm VII): beliefs and predictions.

    Row t of the beliefs, (steps, T), has the weights of ``P(x_t | y_1..t)``, row t of the
    predictions those of ``P(x_t | y_1..t-1)``. ``eps`` regularises the transition,
    ``eps_observation`` the prior's weights on the sample (``None``: the same, as 002 has it).

    ``initial`` is about the first state: "first", 002's ``(G_Y + T eps I)^-1 k_y`` without its
    factor T, where eps is ``eps_initial`` (``None``: ``eps_observation``); "uniform", the
    prediction 1/T conditioned as any other; or the prior's weights on the T states. "first" is the
    plain conditional under the training marginal, so that its prediction is 1/T too.

    ``threshold`` is that of :func:`normalised_weights`, for beliefs and predictions.
    """
    if isinstance(initial, str) and initial not in ("first", "uniform"):
        raise ValueError(f"initial must be 'first', 'uniform' or weights, got {initial!r}")
    T = len(K_states)
    eps_observation = eps if eps_observation is None else eps_observation
    eps_initial = eps_observation if eps_initial is None else eps_initial
    beliefs, predictions = np.empty((len(columns), T)), np.empty((len(columns), T))
    for t, k_y in enumerate(columns):
        if t > 0:
            prior = filter_prediction(
                K_states, first, second, beliefs[t - 1], eps, transfer, threshold
            )
        elif isinstance(initial, str):
            prior = np.full(T, 1 / T)
        else:
            prior = normalised_weights(np.asarray(initial, float), threshold)
        predictions[t] = prior
        if k_y is None:
            beliefs[t] = prior
        elif t == 0 and isinstance(initial, str) and initial == "first":
            start = initial_filter_weights(K_observations, k_y, eps_initial)
            beliefs[t] = normalised_weights(start, threshold)
        else:
            beliefs[t] = filter_conditioning(
                *(K_states, K_observations, prior, k_y, eps_observation, delta),
                method=method,
                power=power,
                threshold=threshold,
            )
    return beliefs, predictions


def filter_smoother(
    K_states: Array,
    first: Indices,
    second: Indices,
    filtered: Array,
    eps: float,
    delta: float,
    method: str = "importance",
    power: float = 1.0,
    threshold: float = 0.2,
) -> Array:
    """Smoothed weights on the T states, (steps, T), from filtered ones.

    ``P(x_t | y_1..n) = int P(x_t | x_t+1, y_1..t) P(x_t+1 | y_1..n) dx_t+1``, and the first factor
    is Bayes' rule for the transition P(x_t+1 | x_t) with the belief ``P(x_t | y_1..t)`` as prior.
    "squared" and "importance" are linear in the query, which is the embedding of the smoothed
    x_t+1. "reweighted" is asked at each atom x_j, and the answers
    ``Gamma_ij = beta_i(x_j) rho_i / sum_i beta_i(x_j) rho_i``, ``rho = (u+ / w)^power``, are mixed
    by the smoothed weights. 002 says in section 4.3 that it can be done, not how.
    """
    first, second, T = np.asarray(first), np.asarray(second), len(K_states)
    K, G = K_states[np.ix_(first, first)], K_states[np.ix_(second, second)]
    smoothed = np.array(filtered, float)
    for t in range(len(smoothed) - 2, -1, -1):
        ahead = smoothed[t + 1]
        arguments = (K, G, K_states[first], np.asarray(filtered[t], float))
        if method == "squared":
            weights = bayes_squared_b(*arguments, K_states[second] @ ahead, eps, delta)
        elif method == "importance":
            weights = bayes_importance(*arguments, K_states[second] @ ahead, eps, delta)
        elif method == "reweighted":
            Gamma = bayes_reweighted(
                *arguments, K_states[second], eps, delta, power, threshold=threshold
            )
            weights = Gamma @ ahead
        else:
            raise ValueError(f"unknown method {method!r}")
        smoothed[t] = normalised_weights(on_states(weights, first, T), threshold)
    return smoothed


def evidence_ratio(
    K_observations: Array, u: Array, k_y: Array, lam: float, w: ArrayLike | None = None
) -> Array:
    """``D(y) = <m_W, (C_YY + lam I)^-1 psi(y)>``, about ``q(y) / p(y)``: a number a query.

    ``m_W = sum u_i psi(y_i)`` embeds the predicted Q(Y), C_YY the training marginal P(Y). With
    ``C_YY = Psi W Psi^T`` and ``Psi^T (Psi W Psi^T + lam I)^-1 = (G W + lam I)^-1 Psi^T``,
    ``D = u^T (G W + lam I)^-1 k_y``, which is ``n u^T (G + n lam I)^-1 k_y`` for uniform weights
    and ``sum_i (u_i / w_i) beta_i(y)`` in the conditional weights beta. The part of psi(y)
    orthogonal to the sample does not enter: m_W lies in the sample's span.
    """
    n = len(K_observations)
    w = sample_weights(w, n)
    if lam == 0:
        return (u / w) @ conditional_weights(K_observations, k_y, 0.0, w)
    return u @ np.linalg.solve(K_observations @ np.diag(w) + lam * np.eye(n), k_y)


def filter_evidence(
    K_states: Array,
    K_observations: Array,
    predictions: Array,
    columns: Sequence[Array | None],
    eps_observation: float,
    lam: float,
    clipped: bool = True,
) -> Array:
    """``D(y_t)`` along a sequence, about ``p(y_t | y_1..t-1) / p(y_t)``, NaN where y_t is missing.

    Its u are the prediction's weights on the sample, u+ where ``clipped``. The sum of logarithms is
    the log-evidence less the sum of ``log p(y_t)``, p the training marginal.
    """
    ratios = np.full(len(columns), np.nan)
    for t, k_y in enumerate(columns):
        if k_y is not None:
            u = sum_rule_weights(K_states, K_states, predictions[t], eps_observation)
            u = positive_part(u) if clipped else u
            ratios[t] = evidence_ratio(K_observations, u, k_y, lam)
    return ratios


def mixture_evidence(
    K_states: Array, observations: Any, predictions: Array, test: Array, eps: float
) -> Array:
    """``log p(y_t | y_1..t-1) / p(y_t)`` by Gaussian likelihoods, 0 where y_t is missing.

    The likelihood of training state i is ``N(y; E[y|s_i], S)``, S the residuals' covariance (its
    off-diagonal part shrunk by ``d/(d + n)``) over the squared share of free degrees. The
    prediction's positive weights on the states are above the line; below it all states and one
    more row, with twice the spread of the observations.
    """
    whole = np.concatenate(observations) if isinstance(observations, list) else observations
    n, d = whole.shape
    centre = whole.mean(axis=0)
    Y = whole - centre
    hat = K_states @ np.linalg.inv(K_states + n * eps * np.eye(n))
    means = hat @ Y
    S = (Y - means).T @ (Y - means) / n / (1 - np.trace(hat) / n) ** 2
    S = np.where(np.eye(d) > 0, S, S * n / (d + n))
    wide = 4 * Y.T @ Y / n
    found = np.zeros(len(test))
    for t, y in enumerate(test):
        if np.isnan(y).any():
            continue
        u = positive_part(sum_rule_weights(K_states, K_states, predictions[t], eps))
        likely = multivariate_normal(np.zeros(d), S).pdf(y - centre - means)
        tail = multivariate_normal(np.zeros(d), wide).pdf(y - centre)
        below = (likely.sum() + tail) / (n + 1)
        found[t] = np.log((u / u.sum() * likely).sum() + 1e-6 * likely.mean()) - np.log(below)
    return found


def additive_filter(
    K_states: Array,
    K_observations: Array,
    first: Indices,
    second: Indices,
    columns: Sequence[Array | None],
    lam: float,
    centred: bool = False,
    lam_transition: float | None = None,
    initial: ArrayLike | None = None,
    threshold: float = 0.0,
) -> tuple[Array, Array]:
    """Additive filter (001, Theorem 9, Algorithms 1 and 2): beliefs and predictions, (steps, m).

    Weights are on the m successors ``second``: :func:`on_states` moves them to the T states.
    Uncentred, ``beta <- (K + U + lam m I)^-1 (G beta + u_o)``; centred, with the mean added back
    (as printed the weights sum to zero),
    ``beta <- 1/m + (H K + H U + lam m I)^-1 H (G beta + u_o - (K + U) 1/m)``. Both are normalised.

    A missing observation leaves the transition alone (Theorem 7): the same with neither U nor u_o
    and ``lam_transition`` (``None``: lam); the predictions are that too. ``initial`` (``None``:
    1/m, as Algorithm 2) is the belief on the successors *before* the first step, about the state
    that precedes the first observation. Regression weights oscillate about zero with a total near
    one, kappa below 0.2 at small lam without any conflict, so that ``threshold`` is 0 here.
    """
    first, second = np.asarray(first), np.asarray(second)
    m = len(first)
    K = K_states[np.ix_(first, first)]  # Upsilon^T Upsilon
    U = K_observations[np.ix_(second, second)]  # Psi^T Psi
    transfer = K_states[np.ix_(first, second)]  # G = Upsilon^T Phi
    lam_transition = lam if lam_transition is None else lam_transition
    estimator = ESTIMATORS[centred]
    beta = np.full(m, 1 / m) if initial is None else np.asarray(initial, float)
    beta = beta / beta.sum()
    beliefs, predictions = np.empty((len(columns), m)), np.empty((len(columns), m))
    for t, k_y in enumerate(columns):
        prediction = estimator(K, transfer @ beta, lam_transition)
        predictions[t] = normalised_weights(prediction, threshold)
        if k_y is None:
            beta = predictions[t]
        else:
            update = estimator(K + U, transfer @ beta + k_y[second], lam)
            beta = normalised_weights(update, threshold)
        beliefs[t] = beta
    return beliefs, predictions


class SpectralPath(NamedTuple):
    """What :func:`spectral_filter` returns; row t knows the observations before t."""

    beliefs: Array  # b_t, (steps + 1, rank)
    predictions: Array  # embedding of P(o_t | o_1..t-1), (steps + 1, r)
    weights: Array  # the same as weights on the middle observations, (steps + 1, n)
    ratios: Array  # P(o_t | o_1..t-1) / P_2(o_t), (steps,), NaN where o_t is missing


def spectral_filter(
    P1: Array,
    P2: Array,
    P3: Array,
    observed: Sequence[Array | None],
    rank: int,
    lam: float,
    w: ArrayLike | None = None,
) -> SpectralPath:
    """Hidden Markov model from observations alone (Song, Boots, Siddiqi, Gordon and Smola 2010).

    ``P1``, ``P2`` and ``P3`` are the features of n triples of consecutive observations, one row a
    triple, ``observed`` those of the test sequence (``None``: missing), ``rank`` the number of
    states N. With ``C_21 = E[phi(o_2) (x) phi(o_1)]`` and U its first N left singular vectors:

    * ``b_1 = U^T mu_1``,
    * ``b_inf = C_21 (U^T C_21)^+``, which takes a belief to the next observation's embedding,
    * ``B_x = (U^T C_3x1) (U^T C_21)^+``, ``C_3x1 = sum_i beta_i(x) phi(o_3i) (x) phi(o_1i)``, beta
      the conditional weights given the middle observation, regularised by ``lam``.

    ``C_3x1`` is the joint of Hsu, Kakade and Zhang (2009) divided by P_2(x), which cancels in
    ``b_t+1 = B_x b_t / (eta^T B_x b_t)``. Their scalar normaliser, ``eta = (C_12 U)^+ mu_1``, gives
    total mass: in a model with states h, ``U^T O h -> 1^T h``. A missing observation is integrated
    out: ``C_31`` for ``C_3x1``. Nothing guards against a normaliser near zero.
    """
    n = len(P1)
    w = sample_weights(w, n)
    C_21 = operator_joint([P2, P1], w)
    mu_1 = operator_mean(P1, w)
    U = np.linalg.svd(C_21)[0][:, :rank]
    inverse = np.linalg.pinv(U.T @ C_21, RANK_TOLERANCE)  # (r, N)
    eta = np.linalg.pinv(C_21.T @ U, RANK_TOLERANCE) @ mu_1
    beliefs, ratios = [U.T @ mu_1], np.full(len(observed), np.nan)
    for t, x in enumerate(observed):
        beta = w if x is None else conditional_weights(P2 @ P2.T, P2 @ x, lam, w)
        C_3x1 = operator_joint([P3, P1], beta)
        b = U.T @ C_3x1 @ inverse @ beliefs[-1]
        if x is not None:
            ratios[t] = eta @ b
        beliefs.append(b / (eta @ b))
    b = np.array(beliefs)
    weights = (w[:, None] * (P1 @ inverse)) @ b.T  # C_21 = sum_i w_i phi(o_2i) (x) phi(o_1i)
    return SpectralPath(b, b @ (C_21 @ inverse).T, weights.T, ratios)


class HiddenMarkovPath(NamedTuple):
    """What :func:`hmm_forward_backward` returns; rows are times, columns states."""

    filtered: Array  # P(s_t | o_1..t)
    smoothed: Array  # P(s_t | o_1..n)
    predicted: Array  # P(s_t | o_1..t-1)
    ahead: Array  # P(s_t+k | o_1..t)
    log_evidence: float  # log P(o_1..n)


def hmm_forward_backward(
    transition: Array,
    emission: Array,
    initial: Array,
    observations: Sequence[int | None],
    steps: int = 1,
) -> HiddenMarkovPath:
    """Forward-backward algorithm (Rabiner 1989), scaled; ``None`` is a missing observation.

    ``transition[i, j] = P(s_t+1 = j | s_t = i)``, ``emission[i, o] = P(o | i)``, ``initial`` is
    the law of the first state, ``steps`` the k of ``ahead``.
    """
    n, states = len(observations), len(initial)
    likelihood = np.ones((n, states))
    for t, observation in enumerate(observations):
        if observation is not None:
            likelihood[t] = emission[:, observation]
    filtered, predicted = np.empty((n, states)), np.empty((n, states))
    log_evidence = 0.0
    for t in range(n):
        predicted[t] = initial if t == 0 else filtered[t - 1] @ transition
        joint = predicted[t] * likelihood[t]
        filtered[t] = joint / joint.sum()
        log_evidence += float(np.log(joint.sum()))
    backward = np.ones((n, states))  # P(o_t+1..n | s_t), scaled
    for t in range(n - 2, -1, -1):
        backward[t] = transition @ (likelihood[t + 1] * backward[t + 1])
        backward[t] /= backward[t].sum()
    smoothed = filtered * backward
    smoothed /= smoothed.sum(axis=1, keepdims=True)
    ahead = filtered @ np.linalg.matrix_power(transition, steps)
    return HiddenMarkovPath(filtered, smoothed, predicted, ahead, log_evidence)


class KalmanPath(NamedTuple):
    """What :func:`kalman_filter_smoother` returns; means (n, d), covariances (n, d, d)."""

    mean: Array
    covariance: Array
    smoothed_mean: Array
    smoothed_covariance: Array
    predicted_mean: Array
    predicted_covariance: Array
    log_evidence: float


def kalman_filter_smoother(
    A: Array, Q: Array, H: Array, R: Array, m0: Array, P0: Array, ys: Array
) -> KalmanPath:
    """Kalman filter and Rauch-Tung-Striebel smoother (Sarkka 2013, Theorems 4.2 and 8.2).

    ``x_t+1 = A x_t + N(0, Q)``, ``y_t = H x_t + N(0, R)``; N(m0, P0) is the law of the *first*
    state, the one that ``ys[0]`` observes. A row of NaN is a missing observation.
    """
    n, d = len(ys), len(m0)
    mean, covariance = np.empty((n, d)), np.empty((n, d, d))
    predicted_mean, predicted_covariance = np.empty((n, d)), np.empty((n, d, d))
    log_evidence = 0.0
    for t in range(n):
        m, P = (m0, P0) if t == 0 else (A @ mean[t - 1], A @ covariance[t - 1] @ A.T + Q)
        predicted_mean[t], predicted_covariance[t] = m, P
        if not np.isnan(ys[t]).any():
            residual, S = ys[t] - H @ m, H @ P @ H.T + R
            gain = P @ H.T @ np.linalg.inv(S)
            m, P = m + gain @ residual, P - gain @ S @ gain.T
            quadratic = residual @ np.linalg.solve(S, residual)
            log_evidence -= float(quadratic + np.log(np.linalg.det(2 * np.pi * S))) / 2
        mean[t], covariance[t] = m, P
    smoothed_mean, smoothed_covariance = mean.copy(), covariance.copy()
    for t in range(n - 2, -1, -1):
        m, P = predicted_mean[t + 1], predicted_covariance[t + 1]
        gain = covariance[t] @ A.T @ np.linalg.inv(P)
        smoothed_mean[t] += gain @ (smoothed_mean[t + 1] - m)
        smoothed_covariance[t] += gain @ (smoothed_covariance[t + 1] - P) @ gain.T
    return KalmanPath(
        mean,
        covariance,
        smoothed_mean,
        smoothed_covariance,
        predicted_mean,
        predicted_covariance,
        log_evidence,
    )
