"""The filters' oracles agree with each other, with the operators and with exact algorithms."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose

from oracles.dynamics import (
    additive_filter,
    evidence_ratio,
    filter_evidence,
    filter_prediction,
    filter_smoother,
    hmm_forward_backward,
    kalman_filter_smoother,
    kernel_bayes_filter,
    normalised_weights,
    on_states,
    spectral_filter,
)
from oracles.errata import printed_001_theorem5, printed_001_theorem9
from oracles.kernels import delta as delta_kernel
from oracles.kernels import delta_features, gaussian, polynomial, polynomial_features
from oracles.linalg import Array
from oracles.normals import linear_gaussian_posterior, linear_gaussian_predictive
from oracles.operators import (
    operator_bayes_importance,
    operator_bayes_squared,
    operator_centred_conditional,
    operator_conditional,
    operator_joint,
    operator_mean,
    operator_prior_weights,
)
from oracles.rules import positive_part

METHODS = ["squared", "importance", "reweighted"]

# A hidden Markov model whose probabilities are quarters: 16 atoms a state hold every combination of
# an observation and a successor exactly.
TRANSITION = np.array([[2, 1, 1], [0, 3, 1], [1, 1, 2]]) / 4
EMISSION = np.array([[3, 0, 1, 0], [1, 1, 0, 2], [0, 1, 2, 1]]) / 4
COPIES = np.array([1, 3, 2])  # of each state's atoms: the training marginal is not uniform
OBSERVED: list[int | None] = [0, 2, None, 1, 3, 3, None, None, 2, 0]


class Training(NamedTuple):
    """A training set, as the filters' oracles want it, and the test observations' columns."""

    x: Array
    y: Array
    K: Array
    G: Array
    first: Array
    second: Array
    columns: list[Array | None]


def table_training(observed: list[int | None] = OBSERVED) -> Training:
    """Training pairs repeated in proportion to the model's exact probabilities, delta kernels."""
    atoms = [
        (s, symbol, successor)
        for s in range(3)
        for symbol, successor in itertools.product(range(4), range(3))
        for _ in range(COPIES[s] * round(16 * EMISSION[s, symbol] * TRANSITION[s, successor]))
    ]
    x, y, successors = np.array(atoms).T
    # A successor is any atom of its state, each in turn.
    turns = [itertools.cycle(np.nonzero(x == s)[0]) for s in range(3)]
    second = np.array([next(turns[s]) for s in successors])
    columns = [None if v is None else delta_kernel(y, [v])[:, 0] for v in observed]
    return Training(
        x, y, delta_kernel(x, x), delta_kernel(y, y), np.arange(len(x)), second, columns
    )


def by_state(weights: Array, x: Array) -> Array:
    """Total weight of each of the three states."""
    return np.stack([weights[..., x == s].sum(axis=-1) for s in range(3)], axis=-1)


def series_training(
    kernel: str = "gaussian", lengths: tuple[int, ...] = (9, 12, 7), steps: int = 8
) -> tuple[Training, Array, Array, Array]:
    """Sequences of a noisy rotation laid end to end; also the features of x, y and the test's y."""
    rng = np.random.default_rng(3)
    angle = np.concatenate([rng.uniform(0, 6) + 0.4 * np.arange(n) for n in (*lengths, steps)])
    x = np.column_stack([np.cos(angle), np.sin(angle)]) + 0.1 * rng.normal(size=(len(angle), 2))
    y = x + 0.3 * rng.normal(size=x.shape)
    T = sum(lengths)
    starts = np.cumsum((0, *lengths))[:-1]
    first = np.concatenate([np.arange(s, s + n - 1) for s, n in zip(starts, lengths, strict=True)])
    if kernel == "gaussian":
        K, G = gaussian(x[:T], x[:T], 0.4), gaussian(y[:T], y, 0.8)
    else:
        K, G = polynomial(x[:T], x[:T]), polynomial(y[:T], y)
    columns: list[Array | None] = list(G[:, T:].T)
    data = Training(x[:T], y[:T], K, G[:, :T], first, first + 1, columns)
    features = [polynomial_features(a) for a in (x[:T], y[:T], y[T:])]
    return data, features[0], features[1], features[2]


# --------------------------------------------------------------------------------------
# Exact references, against brute force
# --------------------------------------------------------------------------------------


def test_forward_backward_is_enumeration() -> None:
    observed = [0, 2, None, 1, 3]
    initial = np.array([0.2, 0.5, 0.3])
    result = hmm_forward_backward(TRANSITION, EMISSION, initial, observed, steps=3)

    def posterior(known: int, about: int) -> tuple[Array, float]:
        """P(s_about, o_1..known) by summing over every path of states."""
        totals = np.zeros(3)
        for path in itertools.product(range(3), repeat=max(known, about + 1)):
            p = initial[path[0]]
            for a, b in itertools.pairwise(path):
                p *= TRANSITION[a, b]
            for s, symbol in zip(path, observed[:known], strict=False):
                p *= 1.0 if symbol is None else EMISSION[s, symbol]
            totals[path[about]] += p
        return totals / totals.sum(), totals.sum()

    for t in range(len(observed)):
        assert_allclose(result.filtered[t], posterior(t + 1, t)[0], atol=1e-14)
        assert_allclose(result.smoothed[t], posterior(len(observed), t)[0], atol=1e-14)
        assert_allclose(result.predicted[t], posterior(t, t)[0], atol=1e-14)
        assert_allclose(result.ahead[t], posterior(t + 1, t + 3)[0], atol=1e-14)
    assert_allclose(np.exp(result.log_evidence), posterior(5, 0)[1], rtol=1e-13)


def test_kalman_is_conditioning_the_joint_gaussian() -> None:
    rng = np.random.default_rng(0)
    n, d = 5, 2
    A = np.array([[0.9, 0.4], [-0.3, 0.8]])
    H = np.array([[1.0, 0.5]])
    Q, R, m0 = np.diag([0.3, 0.2]), np.array([[0.4]]), np.array([1.0, -1.0])
    P0 = np.array([[1.0, 0.3], [0.3, 0.5]])
    ys = rng.normal(size=(n, 1))
    ys[2] = np.nan
    path = kalman_filter_smoother(A, Q, H, R, m0, P0, ys)

    # All states at once: x = F (x_1, noise_2, ..., noise_n), a Gaussian of dimension n d.
    F = np.zeros((n * d, n * d))
    for t in range(n):
        for s in range(t + 1):
            F[t * d : (t + 1) * d, s * d : (s + 1) * d] = np.linalg.matrix_power(A, t - s)
    noise = np.kron(np.eye(n), Q)
    noise[:d, :d] = P0
    mean = F @ np.concatenate([m0, np.zeros((n - 1) * d)])
    covariance = F @ noise @ F.T
    seen = ~np.isnan(ys[:, 0])

    def conditioned(known: int) -> tuple[Array, Array]:
        rows = [t for t in range(known) if seen[t]]
        if not rows:
            return mean, covariance
        B = np.kron(np.eye(n)[rows], H)
        S = np.kron(np.eye(len(rows)), R)
        return linear_gaussian_posterior(ys[rows, 0], B, np.zeros(len(rows)), S, mean, covariance)

    for t in range(n):
        block = slice(t * d, (t + 1) * d)
        for known, m, P in [
            (t, path.predicted_mean[t], path.predicted_covariance[t]),
            (t + 1, path.mean[t], path.covariance[t]),
            (n, path.smoothed_mean[t], path.smoothed_covariance[t]),
        ]:
            exact_mean, exact_covariance = conditioned(known)
            assert_allclose(m, exact_mean[block], atol=1e-12)
            assert_allclose(P, exact_covariance[block, block], atol=1e-12)
    B = np.kron(np.eye(n)[seen], H)
    m_y, S_y = linear_gaussian_predictive(B, np.zeros(4), np.kron(np.eye(4), R), mean, covariance)
    residual = ys[seen, 0] - m_y
    quadratic = residual @ np.linalg.solve(S_y, residual)
    expected = -(quadratic + np.log(np.linalg.det(2 * np.pi * S_y))) / 2
    assert_allclose(path.log_evidence, expected, rtol=1e-12)


# --------------------------------------------------------------------------------------
# Delta kernels: the exact algorithms
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("transfer", ["two-step", "one-step"])
@pytest.mark.parametrize("initial", ["first", "uniform", "prior"])
def test_delta_filter_is_the_forward_algorithm(method: str, transfer: str, initial: str) -> None:
    # One-step passes weights along the training sequences. Without a conditioning between two such
    # steps they are not spread again over the atoms of a state, so it is asked no gaps here.
    observed = [v for v in OBSERVED if v is not None or transfer == "two-step"]
    data = table_training(observed)
    p = COPIES / COPIES.sum()
    start: str | Array = initial
    if initial == "prior":
        p = np.array([0.5, 0.2, 0.3])
        start = p[data.x] / np.bincount(data.x)[data.x]
    exact = hmm_forward_backward(TRANSITION, EMISSION, p, observed)
    beliefs, predictions = kernel_bayes_filter(
        *data[2:], eps=0, delta=0, method=method, transfer=transfer, initial=start
    )
    assert_allclose(beliefs.sum(axis=1), 1)
    assert_allclose(by_state(beliefs, data.x), exact.filtered, atol=1e-12)
    assert_allclose(by_state(predictions, data.x), exact.predicted, atol=1e-12)

    ratios = filter_evidence(data.K, data.G, predictions, data.columns, 0, 0)
    seen = [v for v in observed if v is not None]
    marginal = COPIES / COPIES.sum() @ EMISSION
    log_evidence = np.nansum(np.log(ratios)) + np.log(marginal[seen]).sum()
    assert_allclose(log_evidence, exact.log_evidence, atol=1e-10)


@pytest.mark.parametrize("method", METHODS)
def test_delta_filter_at_tiny_regularisation(method: str) -> None:
    data = table_training()
    exact = hmm_forward_backward(TRANSITION, EMISSION, COPIES / COPIES.sum(), OBSERVED)
    for size in (1e-4, 1e-6):
        delta = size**2 if method == "squared" else size
        beliefs, predictions = kernel_bayes_filter(
            *data[2:], eps=size, delta=delta, method=method, initial="uniform"
        )
        # Linear in the regularisation: measured, 1.6 times it for filtering, 2.5 for smoothing.
        assert_allclose(by_state(beliefs, data.x), exact.filtered, atol=5 * size)
        smoothed = filter_smoother(
            data.K, data.first, data.second, beliefs, eps=size, delta=delta, method=method
        )
        assert_allclose(by_state(smoothed, data.x), exact.smoothed, atol=5 * size)


@pytest.mark.parametrize("method", METHODS)
def test_delta_smoother_is_the_forward_backward_algorithm(method: str) -> None:
    data = table_training()
    exact = hmm_forward_backward(TRANSITION, EMISSION, COPIES / COPIES.sum(), OBSERVED)
    filtered, _ = kernel_bayes_filter(*data[2:], eps=0, delta=0, method=method)
    smoothed = filter_smoother(
        data.K, data.first, data.second, filtered, eps=0, delta=0, method=method
    )
    assert_allclose(by_state(smoothed, data.x), exact.smoothed, atol=1e-12)
    assert np.abs(by_state(smoothed - filtered, data.x)).max() > 0.1


def test_delta_prediction_several_steps_ahead() -> None:
    data = table_training()
    p = COPIES / COPIES.sum()
    exact = hmm_forward_backward(TRANSITION, EMISSION, p, OBSERVED[:4], steps=5)
    beliefs, _ = kernel_bayes_filter(*data[2:6], data.columns[:4], eps=0, delta=0)
    for belief, ahead in zip(beliefs, exact.ahead, strict=True):
        for _ in range(5):
            belief = filter_prediction(data.K, data.first, data.second, belief, 0)
        assert_allclose(by_state(belief, data.x), ahead, atol=1e-12)
    # k missing observations at the end are the same k steps.
    gap: list[Array | None] = [*data.columns[:4], *[None] * 5]
    beliefs, _ = kernel_bayes_filter(*data[2:6], gap, eps=0, delta=0)
    assert_allclose(by_state(beliefs[-1], data.x), exact.ahead[-1], atol=1e-12)


def test_all_observations_missing_leaves_the_chain() -> None:
    data = table_training([None] * 6)
    p = COPIES / COPIES.sum()
    for initial in ("first", "uniform"):
        beliefs, predictions = kernel_bayes_filter(*data[2:], eps=0, delta=0, initial=initial)
        assert_allclose(beliefs, predictions)
        for t in range(6):
            expected = p @ np.linalg.matrix_power(TRANSITION, t)
            assert_allclose(by_state(beliefs[t], data.x), expected, atol=1e-12)


# --------------------------------------------------------------------------------------
# The papers' formulas
# --------------------------------------------------------------------------------------


def test_squared_two_step_is_the_papers_update() -> None:
    # 002 has T atoms, each with a successor: here the last is followed by the first.
    data = series_training(lengths=(20,))[0]
    T, eps, delta = 20, 1e-3, 1e-4
    second = (np.arange(T) + 1) % T
    beliefs, _ = kernel_bayes_filter(
        data.K, data.G, np.arange(T), second, data.columns, eps=eps, delta=delta
    )
    inverse = np.linalg.inv(data.K + T * eps * np.eye(T))
    columns = np.array(data.columns)
    alpha = np.linalg.inv(data.G + T * eps * np.eye(T)) @ columns[0]
    alpha /= alpha.sum()
    for t, k_y in enumerate(columns):
        if t > 0:
            transfer = data.K[:, second]  # 002: k(X_i, X_j+1)
            prediction = inverse @ data.K @ alpha
            mu = inverse @ transfer @ (prediction / prediction.sum())  # 002, eq. 17
            LG = np.diag(mu) @ data.G
            alpha = LG @ np.linalg.inv(LG @ LG + delta * np.eye(T)) @ np.diag(mu) @ k_y  # eq. 18
            alpha /= alpha.sum()
        assert_allclose(beliefs[t], alpha, atol=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_filter_and_smoother_are_operators_on_features(method: str) -> None:
    """Every step on explicit polynomial features, whose last is one: it reads the mass."""
    data, PX, PY, py = series_training("polynomial")
    eps, eps_observation, delta, power = 0.02, 0.05, 0.1, 0.7
    PF, PS = PX[data.first], PX[data.second]
    options: dict[str, Any] = {"eps": eps, "delta": delta, "method": method, "power": power}
    uniform = np.full(len(PX), 1 / len(PX))
    beliefs, predictions = kernel_bayes_filter(
        *data[2:], eps_observation=eps_observation, initial="uniform", **options
    )
    smoothed = filter_smoother(data.K, data.first, data.second, beliefs, **options)

    def bayes(P: Array, R: Array, prior: Array, query: Array, lam: float) -> Array:
        """The posterior embedding for a prior and a query known by their features alone."""
        one = np.ones(1)
        if method == "squared":
            return operator_bayes_squared(P, R, prior[None], one, query, lam, delta)
        if method == "importance":
            return operator_bayes_importance(P, R, prior[None], one, query, lam, delta)
        u = positive_part(operator_prior_weights(P, prior[None], one, lam))
        C = operator_joint([R, R]) + delta * np.eye(R.shape[1])
        v = R @ np.linalg.solve(C, query) / len(R) * (u * len(R)) ** power
        return normalised_weights(v) @ P

    transition = operator_conditional(PF, PS, eps)
    mu = np.empty((len(py), PX.shape[1]))
    for t, psi in enumerate(py):
        prediction = uniform @ PX if t == 0 else transition @ mu[t - 1]
        prediction = prediction / prediction[-1]
        assert_allclose(predictions[t] @ PX, prediction, atol=1e-9)
        mu[t] = bayes(PX, PY, prediction, psi, eps_observation)
        mu[t] /= mu[t][-1]
        assert_allclose(beliefs[t] @ PX, mu[t], atol=1e-9)
    for t in range(len(py) - 2, -1, -1):
        if method == "reweighted":  # asked at each atom
            answers = [bayes(PF, PS, mu[t], atom, eps) for atom in PX]
            back = smoothed[t + 1] @ np.array(answers)
        else:
            back = bayes(PF, PS, mu[t], smoothed[t + 1] @ PX, eps)
        assert_allclose(smoothed[t] @ PX, back / back[-1], atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_one_step_is_the_limit_of_two_steps(method: str) -> None:
    data = series_training(lengths=(20,))[0]
    second = (np.arange(20) + 1) % 20  # each of the distinct atoms has a successor

    def beliefs(eps: float, transfer: str) -> Array:
        return kernel_bayes_filter(
            *(data.K, data.G, np.arange(20), second, data.columns),
            eps=eps,
            eps_observation=1e-3,
            delta=1e-2,
            method=method,
            transfer=transfer,
        )[0]

    one = beliefs(0.0, "one-step")  # which has no use for eps
    larger, smaller = beliefs(1e-8, "two-step"), beliefs(1e-9, "two-step")
    # The gap is linear in eps, so that extrapolation to zero closes it.
    assert_allclose(np.abs(larger - one).max() / np.abs(smaller - one).max(), 10, rtol=1e-2)
    assert_allclose((10 * smaller - larger) / 9, one, atol=1e-7)


def test_one_step_drops_atoms_without_a_successor() -> None:
    belief = np.array([0.1, 0.2, 0.3, -0.1, 0.5])  # sequences 0 1 2 and 3 4
    moved = filter_prediction(np.eye(5), [0, 1, 3], [1, 2, 4], belief, 0.1, "one-step")
    assert_allclose(moved, np.array([0, 0.1, 0.2, 0, -0.1]) / 0.2)
    # Two pairs from one atom share its weight.
    moved = filter_prediction(np.eye(5), [0, 0, 1], [1, 2, 4], belief, 0.1, "one-step")
    assert_allclose(moved, np.array([0, 0.05, 0.05, 0, 0.2]) / 0.3)


def test_pairs_of_several_sequences_stay_apart() -> None:
    data = series_training()[0]
    prediction = filter_prediction(data.K, data.first, data.second, np.eye(28)[3], 1e-6)
    starts = [0, 9, 21]
    assert_allclose(prediction[starts], 0)
    assert prediction[4] > 0.9


def test_power_zero_is_plain_regression() -> None:
    data = series_training()[0]
    beliefs, _ = kernel_bayes_filter(
        *data[2:], eps=1e-3, delta=1e-2, method="reweighted", power=0.0
    )
    for belief, k_y in zip(beliefs[1:], np.array(data.columns)[1:], strict=True):
        plain = np.linalg.solve(data.G + 28 * 1e-2 * np.eye(28), k_y)
        assert_allclose(belief, plain / plain.sum(), atol=1e-12)


def test_cancelling_weights_use_their_positive_part() -> None:
    v = np.array([1.0, -0.9, 0.2])
    assert_allclose(normalised_weights(v), [1 / 1.2, 0, 0.2 / 1.2])
    v = np.array([1.0, -0.5, 0.2])
    assert_allclose(normalised_weights(v), v / 0.7)


def test_filters_track_better_than_the_marginal() -> None:
    # All methods, all forms, on the rotation: no divergence, and the truth is near.
    rng = np.random.default_rng(5)
    angle = 0.4 * np.arange(240)
    x = np.column_stack([np.cos(angle), np.sin(angle)])
    y = x + 0.2 * rng.normal(size=x.shape)
    T, first = 120, np.arange(119)
    K, G = gaussian(x[:T], x[:T], 0.5), gaussian(y[:T], y[:T], 0.7)
    columns: list[Array | None] = list(gaussian(y[:T], y[T:160], 0.7).T)
    columns[10] = columns[11] = None
    settings = {"squared": 1e-4, "importance": 1e-3, "reweighted": 1e-2}
    for method, transfer in itertools.product(METHODS, ["two-step", "one-step"]):
        delta = settings[method]
        beliefs, _ = kernel_bayes_filter(
            K, G, first, first + 1, columns, 1e-4, delta, method=method, transfer=transfer
        )
        error = ((beliefs @ x[:T] - x[T:160]) ** 2).sum(axis=1)[5:]
        assert error.mean() < 0.05  # measured, at most 0.020; the marginal mean has 1
        smoothed = filter_smoother(K, first, first + 1, beliefs, 1e-4, delta, method)
        error = ((smoothed @ x[:T] - x[T:160]) ** 2).sum(axis=1)
        assert error.mean() < 0.05
    for centred in (False, True):
        beliefs, _ = additive_filter(
            K, G, first, first + 1, columns, 1e-3, centred=centred, lam_transition=1e-4
        )
        error = ((beliefs @ x[1:T] - x[T:160]) ** 2).sum(axis=1)[5:]
        assert error.mean() < 0.05


# --------------------------------------------------------------------------------------
# The evidence
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("lam", [0.0, 0.03])
def test_evidence_ratio_is_the_operators(weighted: bool, lam: float) -> None:
    data, _, PY, py = series_training("polynomial")
    rng = np.random.default_rng(1)
    w = rng.dirichlet(np.ones(28)) if weighted else None
    u = rng.normal(size=28)  # signs and a total of their own
    C = operator_joint([PY, PY], w)
    inverse = np.linalg.pinv(C, 1e-10) if lam == 0 else np.linalg.inv(C + lam * np.eye(len(C)))
    expected = [operator_mean(PY, u) @ inverse @ psi for psi in py]
    columns = np.array(data.columns).T
    assert_allclose(evidence_ratio(data.G, u, columns, lam, w), expected, rtol=1e-7)


def test_evidence_ratio_ignores_what_is_orthogonal_to_the_sample() -> None:
    # Three categories, one of them never seen: k_y = 0, and so is the ratio.
    y = np.array([0, 0, 1, 0])
    PY, G = delta_features(y, [0, 1, 2]), delta_kernel(y, y)
    u = np.array([0.1, 0.1, 0.7, 0.1])
    columns = delta_kernel(y, [0, 1, 2])
    C = operator_joint([PY, PY]) + 0.01 * np.eye(3)
    expected = operator_mean(PY, u) @ np.linalg.inv(C)
    assert_allclose(evidence_ratio(G, u, columns, 0.01), expected, atol=1e-14)
    # q = (0.3, 0.7), p = (0.75, 0.25)
    assert_allclose(evidence_ratio(G, u, columns, 0.0), [0.4, 2.8, 0], atol=1e-14)


# --------------------------------------------------------------------------------------
# The additive filter
# --------------------------------------------------------------------------------------


def test_additive_filter_is_theorem_9() -> None:
    data, PX, PY, py = series_training("polynomial")
    lam, m = 0.01, len(data.first)
    beliefs, predictions = additive_filter(
        data.K, data.G, data.first, data.second, data.columns, lam
    )
    PF, PS, PO = PX[data.first], PX[data.second], PY[data.second]
    both = np.hstack([PF, PO])  # the concatenated features of 001, eq. 10
    operator = operator_conditional(both, PS, lam)
    T1, T2 = operator[:, : PX.shape[1]], operator[:, PX.shape[1] :]
    T7 = operator_conditional(PF, PS, lam)
    mu = np.full(m, 1 / m) @ PS
    for t, psi in enumerate(py):
        prediction = T7 @ mu
        assert_allclose(predictions[t] @ PS, prediction / prediction[-1], atol=1e-9)
        mu = T1 @ mu + T2 @ psi
        mu /= mu[-1]
        assert_allclose(beliefs[t] @ PS, mu, atol=1e-9)


def test_centred_additive_filter_restores_the_mean() -> None:
    data, PX, PY, py = series_training("polynomial")
    lam, m = 0.01, len(data.first)
    beliefs, _ = additive_filter(
        data.K, data.G, data.first, data.second, data.columns, lam, centred=True
    )
    PF, PS, PO = PX[data.first], PX[data.second], PY[data.second]
    both = np.hstack([PF, PO])
    beta = np.full(m, 1 / m)
    K, U = PF @ PF.T, PO @ PO.T
    for t, psi in enumerate(py):
        query = np.concatenate([beta @ PS, psi])
        expected = operator_centred_conditional(both, PS, query, lam)
        assert_allclose(beliefs[t] @ PS, expected, atol=1e-9)
        # As printed the weights sum to zero; less the fixed offset they are the same.
        printed = printed_001_theorem9(K, U, PF @ PS.T, beta, PO @ psi, lam)
        offset = printed_001_theorem5(K + U, (K + U).mean(axis=1), lam)
        assert_allclose(printed.sum(), 0, atol=1e-10)
        assert_allclose(beliefs[t], 1 / m + printed - offset, atol=1e-10)
        beta = beliefs[t]


@pytest.mark.parametrize("centred", [False, True])
def test_additive_filter_without_observations_is_the_transition(centred: bool) -> None:
    data = table_training([None] * 5)
    beliefs, predictions = additive_filter(*data[2:], 0.0, centred=centred)
    assert_allclose(beliefs, predictions)
    p = np.bincount(data.x[data.second], minlength=3) / len(data.second)
    for t in range(5):
        p = p @ TRANSITION
        state = by_state(on_states(beliefs[t], data.second, len(data.x)), data.x)
        assert_allclose(state, p, atol=1e-12)
    # A start of one's own, and the smoother on its beliefs: nothing seen, nothing learnt.
    start = (data.x[data.second] == 1).astype(float)
    beliefs, _ = additive_filter(*data[2:], 0.0, centred=centred, initial=start)
    filtered = on_states(beliefs, data.second, len(data.x))
    assert_allclose(by_state(filtered[0], data.x), TRANSITION[1], atol=1e-12)
    smoothed = filter_smoother(data.K, data.first, data.second, filtered, 0, 0)
    assert_allclose(by_state(smoothed, data.x), by_state(filtered, data.x), atol=1e-12)


def test_additive_forms_agree_where_a_constant_is_a_feature() -> None:
    """A large constant added to the kernel is a free intercept: the uncentred form centres."""
    data = series_training()[0]
    lam = 1e-3
    centred, _ = additive_filter(*data[2:], lam, centred=True)
    gaps = []
    for constant in (1e3, 1e4, 1e5):
        plain, _ = additive_filter(data.K + constant, data.G, *data[4:], lam)
        gaps.append(np.abs(plain - centred).max())
    assert gaps[0] < 1e-4
    assert_allclose(gaps, gaps[0] * np.array([1, 0.1, 0.01]), rtol=0.02)


# --------------------------------------------------------------------------------------
# The spectral filter
# --------------------------------------------------------------------------------------


def population_triples() -> tuple[Array, Array, Array, Array]:
    """Every triple of symbols and its exact probability, started from the training marginal."""
    p = COPIES / COPIES.sum()
    joint = np.einsum(
        "i,ij,jk,ia,jb,kc->abc", p, TRANSITION, TRANSITION, EMISSION, EMISSION, EMISSION
    )
    one, two, three = np.nonzero(joint)
    return one, two, three, joint[one, two, three]


def test_spectral_filter_is_the_forward_algorithm() -> None:
    one, two, three, w = population_triples()
    assert_allclose(w.sum(), 1)
    P1, P2, P3 = (delta_features(a, np.arange(4)) for a in (one, two, three))
    p = COPIES / COPIES.sum()
    exact = hmm_forward_backward(TRANSITION, EMISSION, p, [*OBSERVED, None])
    eye = np.eye(4)
    observed = [None if v is None else eye[v] for v in OBSERVED]
    path = spectral_filter(P1, P2, P3, observed, rank=3, lam=0.0, w=w)
    assert_allclose(path.predictions, exact.predicted @ EMISSION, atol=1e-8)
    assert_allclose(path.weights @ P2, path.predictions, atol=1e-10)
    # The ratios are against the law of the middle observation, and make up the evidence.
    marginal = p @ TRANSITION @ EMISSION
    seen = [v for v in OBSERVED if v is not None]
    log_evidence = np.nansum(np.log(path.ratios)) + np.log(marginal[seen]).sum()
    assert_allclose(log_evidence, exact.log_evidence, atol=1e-8)
    # A little regularisation bends it a little.
    bent = spectral_filter(P1, P2, P3, observed, rank=3, lam=1e-6, w=w)
    assert_allclose(bent.predictions, path.predictions, atol=1e-4)


def test_spectral_filter_on_other_features() -> None:
    # Any invertible features of the symbols give the same predictions: eta needs no constant.
    one, two, three, w = population_triples()
    B = np.random.default_rng(2).normal(size=(4, 4)) + 2 * np.eye(4)  # row v: features of v
    observed = [None if v is None else B[v] for v in OBSERVED]
    path = spectral_filter(B[one], B[two], B[three], observed, rank=3, lam=0.0, w=w)
    p = COPIES / COPIES.sum()
    exact = hmm_forward_backward(TRANSITION, EMISSION, p, [*OBSERVED, None])
    assert_allclose(path.predictions @ np.linalg.inv(B), exact.predicted @ EMISSION, atol=1e-8)
