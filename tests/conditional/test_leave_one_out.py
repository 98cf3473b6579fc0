"""Answers at the sample's own points by the other rows: against refits without each row."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from meanmap import ConditionalEmbedding, embed
from meanmap.conditional.fitting import StreamedOperator
from meanmap.conditional.operator import ConditionalOperator
from meanmap.embeddings.element import Deferred
from meanmap.kernels import Delta, Gaussian, Laplace, Linear, Polynomial
from meanmap.spaces import Nystroem, PivotedCholesky, RandomFourier
from optional_packages import require
from oracles.kernels import gaussian
from oracles.likelihood_free import leave_one_out_answers
from oracles.linalg import Array

FULL = PivotedCholesky(1e-15)  # nothing is left out


def pairs(n: int = 40, d: int = 2, seed: int = 0) -> tuple[Array, Array, Array]:
    """X (n, d), Y (n, 2) and weights that sum to one."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    Y = np.column_stack([np.sin(X[:, 0]), X.sum(axis=1)]) + 0.3 * rng.normal(size=(n, 2))
    w = rng.uniform(0.2, 3.0, size=n)
    return X, Y, w / w.sum()


def refits(operator: ConditionalOperator, values: Array, lam: float, centred: bool = False) -> Any:
    """The oracle, on the Gram matrix of the operator's own rows."""
    rows = np.asarray(operator.rows)
    psi = rows[:, :-1] if centred else rows
    return leave_one_out_answers(psi @ psi.T, values, lam, np.asarray(operator.scale), centred)


# --- conditionals ---------------------------------------------------------------------------------


@pytest.mark.parametrize("centered", [False, True, None])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("lam", [1.0, 1e-2, 1e-4])
@pytest.mark.parametrize("kernel", [Gaussian(1.0), Laplace(0.8), Polynomial(2), Linear()])
def test_refits_without_each_row(
    kernel: Any, lam: float, weighted: bool, centered: bool | None
) -> None:
    X, Y, w = pairs()
    w = w if weighted else np.full(len(X), 1 / len(X))
    model = ConditionalEmbedding(kernel, Gaussian(1.0), lam, FULL, centered).fit(X, Y, w)
    values = np.column_stack([Y, np.cos(Y[:, 0]), np.ones(len(Y))])
    both = True if centered is None and not kernel.bounded else centered
    expected = leave_one_out_answers(kernel(X), values, lam, w, both)
    assert_allclose(model.operator_.leave_one_out(values), expected, atol=1e-7)


def test_with_an_intercept_a_constant_is_itself() -> None:
    X, Y, w = pairs()
    model = ConditionalEmbedding(Gaussian(1.0), regularization=1e-2, centered=True).fit(X, Y, w)
    found = model.operator_.leave_one_out(np.full((len(X), 1), 3.0))
    assert_allclose(found, 3.0, rtol=1e-9)


@pytest.mark.parametrize(
    "basis", [Nystroem(12, random_state=0), PivotedCholesky(1e-2), RandomFourier(30)]
)
@pytest.mark.parametrize("centered", [False, True])
def test_in_a_basis_that_leaves_something_out(basis: Any, centered: bool) -> None:
    """The refit keeps the basis: the regression is one in its coordinates."""
    X, Y, w = pairs(60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ConditionalEmbedding(Gaussian(1.0), Gaussian(1.0), 1e-2, basis, centered)
        operator = model.fit(X, Y, w).operator_
    assert operator.source.rank_ < 60
    assert_allclose(
        operator.leave_one_out(Y), refits(operator, Y, model.regularization_, centered), atol=1e-9
    )


@pytest.mark.parametrize("centered", [False, True])
def test_of_a_large_sample(centered: bool) -> None:
    """Coordinates that are not stored: compared with refits in 50 features, for some rows."""
    n = 170_000
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 1))
    Y = np.sin(2 * X) + 0.3 * rng.normal(size=(n, 1))
    # a few rows weigh as much as thousands, so that leaving them out is felt
    w = np.where(np.arange(n) % 17_000 == 5, 5000.0, 1.0)
    w = w / w.sum()
    basis = (Nystroem(50, random_state=0), PivotedCholesky(1e-3, 20))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ConditionalEmbedding(Gaussian(0.5), Gaussian(1.0), 1e-3, basis, centered)
        operator = model.fit(X, Y, w).operator_
    assert isinstance(operator, StreamedOperator) and isinstance(operator.known_rows, Deferred)
    found = operator.leave_one_out(Y)
    assert found.shape == (n, 1)
    rows = operator.known_rows.array()
    penalty = 1e-3 * np.eye(rows.shape[1])
    if centered:
        penalty[-1, -1] = 0.0
    A, B = rows.T @ (w[:, None] * rows) + penalty, rows.T @ (w[:, None] * Y)
    for i in (0, 5, 4096, 17_005, n - 1):
        A_i = A - w[i] * np.outer(rows[i], rows[i])
        expected = rows[i] @ np.linalg.solve(A_i, B - w[i] * np.outer(rows[i], Y[i]))
        assert_allclose(found[i], expected, atol=1e-6)
    # a heavy row does decide the answer at its own place
    own = operator.predict(X[5:6])[0]
    assert abs(own - found[5]) > 1e-3


def test_of_categories() -> None:
    """Delta kernel without regularisation: the mean of the others of the same category."""
    rng = np.random.default_rng(0)
    labels, Y = rng.integers(3, size=50), rng.normal(size=(50, 1))
    model = ConditionalEmbedding(Delta(), regularization=0).fit(labels, Y)
    found = model.operator_.leave_one_out(Y)
    for i in range(50):
        others = (labels == labels[i]) & (np.arange(50) != i)
        assert_allclose(found[i], Y[others].mean(axis=0), atol=1e-9)


def test_of_a_row_that_is_alone() -> None:
    """A category of one row: no other row says anything; the answer is finite."""
    labels = np.array([0, 0, 0, 1])
    Y = np.array([[1.0], [2.0], [3.0], [10.0]])
    model = ConditionalEmbedding(Delta(), regularization=0).fit(labels, Y)
    found = model.operator_.leave_one_out(Y)
    assert_allclose(found[:3, 0], [2.5, 2.0, 1.5])
    assert np.isfinite(found).all()


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    n=st.integers(2, 12),
    lam=st.floats(1e-4, 10),
    bandwidth=st.floats(0.3, 5),
    centered=st.sampled_from([False, True, None]),
    copies=st.booleans(),
    seed=st.integers(0, 999),
)
def test_of_any_small_sample(
    n: int, lam: float, bandwidth: float, centered: bool | None, copies: bool, seed: int
) -> None:
    X, Y, w = pairs(n, 1, seed)
    if copies:
        X = np.round(X)  # rows that are the same
    kernel = Gaussian(bandwidth)
    model = ConditionalEmbedding(kernel, Gaussian(1.0), lam, FULL, centered).fit(X, Y, w)
    expected = leave_one_out_answers(kernel(X), Y, lam, w, centered)
    assert_allclose(model.operator_.leave_one_out(Y), expected, atol=1e-6)


def test_of_a_single_row() -> None:
    """No other row is there: the answer is finite."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ConditionalEmbedding(Gaussian(1.0), Gaussian(1.0), 1e-2).fit([[0.0]], [[3.0]])
    assert np.isfinite(model.operator_.leave_one_out(np.array([[3.0]]))).all()


def test_rows_without_weight_change_nothing() -> None:
    X, Y, w = pairs(30)
    model = ConditionalEmbedding(Gaussian(1.0), Gaussian(1.0), 1e-2, FULL).fit(X, Y, w)
    plain = model.operator_.leave_one_out(Y)
    more = ConditionalEmbedding(Gaussian(1.0), Gaussian(1.0), 1e-2, FULL)
    more.fit(np.vstack([X, X[:5]]), np.vstack([Y, -Y[:5]]), np.r_[w, np.zeros(5)])
    values = Y if len(more.operator_.scale) == 30 else np.vstack([Y, -Y[:5]])
    assert_allclose(more.operator_.leave_one_out(values)[:30], plain, atol=1e-9)


def test_residuals_are_those_of_the_noise() -> None:
    rng = np.random.default_rng(3)
    X = rng.uniform(-3, 3, size=(400, 1))
    noise = 0.2 * rng.normal(size=(400, 1))
    model = ConditionalEmbedding().fit(X, np.sin(X) + noise)
    Y = np.sin(X) + noise
    left_out = Y - model.operator_.leave_one_out(Y)
    within = Y - model.predict(X)
    assert left_out.std() > within.std()
    # measured: 1.03
    assert_allclose(left_out.std() / noise.std(), 1.0, atol=0.08)


# --- posteriors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [1e-1, 1e-2, 1e-3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("centered", [False, None])
def test_of_a_posterior_by_importance(centered: bool | None, delta: float, weighted: bool) -> None:
    """Ridge regression of X on Y with the prior's weights, many of which are zero."""
    X, Y, w = pairs(60)
    model = ConditionalEmbedding(Gaussian(1.0), Gaussian(1.0), 1e-2, FULL, centered)
    model.fit(X, Y, w if weighted else None)
    prior = embed(0.3 * X + 0.5, kernel=Gaussian(1.0))
    operator = model.posterior(prior, "importance", delta)
    u = np.asarray(operator.scale)
    assert_allclose(u.sum(), 1) and (u >= 0).all()
    assert (u == 0).any()
    K = gaussian(Y, Y, 1.0)
    expected = leave_one_out_answers(K, X, delta, u, centered)
    assert_allclose(operator.leave_one_out(X), expected, atol=1e-6)


def test_the_scale_is_that_of_the_weights() -> None:
    X, Y, w = pairs(30)
    model = ConditionalEmbedding(Gaussian(1.0), Gaussian(1.0), 1e-2, FULL).fit(X, Y, w)
    assert_allclose(model.operator_.scale, w)
    operator = model.posterior(embed(X, kernel=Gaussian(1.0)), "importance", 1e-2)
    # scale ∘ rows H ψ(y) are the weights of the answer
    at = operator.source.transform(Y[:3])
    v = operator.scale * ((at @ operator.inverse.T) @ np.asarray(operator.rows).T)
    v /= np.maximum(v.sum(axis=1), 0.5)[:, None]  # over their mass
    v += (1 - v.sum(axis=1))[:, None] * operator.scale  # and what is missing of one
    assert_allclose(operator.weights(Y[:3]), v, atol=1e-12)


@pytest.mark.parametrize("method", ["squared", "reweighted"])
def test_what_is_no_ridge_regression_is_refused(method: str) -> None:
    """The closed form holds for ridge regression alone: elsewhere it is another number."""
    X, Y, _ = pairs(40)
    model = ConditionalEmbedding(Gaussian(1.0), Gaussian(1.0), 1e-2, FULL).fit(X, Y)
    operator = model.posterior(embed(0.5 * X + 0.3, kernel=Gaussian(1.0)), method, 1e-2)
    with pytest.raises(TypeError, match="leave|ridge|importance"):
        operator.leave_one_out(X)


def test_rows_that_are_gone_are_refused() -> None:
    """Of a stream only sums are kept: there is no row to leave out."""
    X, Y, _ = pairs(60)
    basis = (RandomFourier(30), RandomFourier(30))
    model = ConditionalEmbedding(Gaussian(1.0), Gaussian(1.0), 1e-2, basis)
    model.partial_fit(X[:30], Y[:30]).partial_fit(X[30:], Y[30:])
    operator = model.operator_
    with pytest.raises((TypeError, ValueError), match="leave|rows|stream|partial_fit"):
        operator.leave_one_out(np.zeros((len(operator.scale), 1)))


# --- arrays of other kinds ------------------------------------------------------------------------


def test_of_torch_tensors() -> None:
    torch = require("torch")
    X, Y, w = pairs()
    both = []
    for convert in (np.asarray, torch.tensor):
        model = ConditionalEmbedding(Gaussian(1.0), Gaussian(1.0), 1e-2)
        model.fit(convert(X), convert(Y), convert(w))
        both.append(model.operator_.leave_one_out(convert(Y)))
    assert isinstance(both[1], torch.Tensor)
    assert_allclose(both[1].numpy(), both[0], atol=1e-9)
