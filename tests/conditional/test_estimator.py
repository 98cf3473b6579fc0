"""Answers of a conditional: they move with Y, agree with each other, and say where they end."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.datasets import load_diabetes
from sklearn.model_selection import cross_val_score

from meanmap import ConditionalEmbedding, DataWarning, SettingWarning, embed
from meanmap.conditional.selection import LeaveOneOut, RegressionSample, merge_equal_rows
from meanmap.kernels import Delta, Gaussian, Laplace, Linear, Polynomial
from meanmap.spaces import Nystroem, PivotedCholesky, RandomFourier
from oracles import Array, completed_conditional_weights

KERNELS = [None, Gaussian(0.7), Laplace(), Linear(), Linear() + 1, Polynomial(2)]


def pairs(n: int = 80, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    Y = np.column_stack([np.sin(2 * X[:, 0]), X.sum(axis=1)]) + 0.2 * rng.normal(size=(n, 2))
    return X, Y


# --- shifted and scaled targets -------------------------------------------------------------------


@pytest.mark.parametrize("kernel_y", [None, Linear()])
@pytest.mark.parametrize("kernel_x", KERNELS, ids=repr)
def test_predictions_move_with_the_target(kernel_x: Any, kernel_y: Any) -> None:
    X, Y = pairs()
    at = pairs(20, 1)[0]
    plain = ConditionalEmbedding(kernel_x, kernel_y).fit(X, Y).predict(at)
    for a, b in [(1.0, 1e4), (-3.0, 0.0), (1e-3, 1e6), (1e5, -7.0)]:
        moved = ConditionalEmbedding(kernel_x, kernel_y).fit(X, a * Y + b).predict(at)
        size = abs(a) * np.ptp(Y) + abs(b)
        assert_allclose(moved, a * plain + b, atol=1e-8 * size)


@pytest.mark.parametrize("basis", [Nystroem(20, random_state=0), RandomFourier(40, random_state=0)])
def test_predictions_of_other_bases_move_with_the_target(basis: Any) -> None:
    X, Y = pairs()
    plain, moved = (
        ConditionalEmbedding(Gaussian(0.7), Linear(), 1e-3, (basis, None)).fit(X, target).predict(X)
        for target in (Y, 1e3 * Y + 1e5)
    )
    assert_allclose((moved - 1e5) / 1e3, plain, atol=1e-7)


def test_predictions_of_a_stream_move_with_the_target() -> None:
    X, Y = pairs()

    def predicted(target: Array) -> Array:
        model = ConditionalEmbedding(Gaussian(0.7), Gaussian(1.0), 1e-3).fit(X[:40], target[:40])
        return model.partial_fit(X[40:], target[40:]).predict(X[:10])

    # a shift, under which a Gaussian kernel on Y stays what it was
    assert_allclose(predicted(Y + 1e4) - 1e4, predicted(Y), atol=1e-7)


@pytest.mark.slow
def test_predictions_of_a_posterior_move_with_x() -> None:
    X, Y = pairs(100)
    prior = 0.5 * X[:50] + 0.2

    def predicted(shift: float) -> Array:
        model = ConditionalEmbedding().fit(X + shift, Y)
        return model.posterior(prior + shift).predict(Y[:5])

    assert_allclose(predicted(1e4) - 1e4, predicted(0.0), atol=1e-6)


@pytest.mark.slow
def test_shifting_the_target_changes_no_score() -> None:
    data = load_diabetes()
    plain, shifted = (
        cross_val_score(ConditionalEmbedding(), data.data, data.target + b, cv=5).mean()
        for b in (0.0, 1e4)
    )
    assert plain > 0.45
    assert_allclose(shifted, plain, atol=1e-8)


# --- answers agree --------------------------------------------------------------------------------


@pytest.mark.parametrize("centered", [None, True, False])
@pytest.mark.parametrize("kernel_x", KERNELS, ids=repr)
def test_prediction_expectation_and_mean_agree(kernel_x: Any, centered: bool | None) -> None:
    X, Y = pairs()
    at = np.vstack([X[:5], [[3.0, 3.0], [40.0, -40.0]]])
    model = ConditionalEmbedding(kernel_x, regularization=1e-3, centered=centered).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predicted, answer = model.predict(at), model.given(at)
        assert_allclose(model.expect(lambda y: y, at), predicted, atol=1e-8)
        assert_allclose(answer.expect(lambda y: y), predicted, atol=1e-8)
        if centered is not False:
            assert_allclose(answer.mass, 1.0, atol=1e-9)
            assert_allclose(answer.mean(), predicted, atol=1e-8)


def test_a_posterior_predicts_its_mean() -> None:
    X, Y = pairs(100)
    model = ConditionalEmbedding().fit(X, Y)
    for method in ("importance", "squared", "reweighted"):
        posterior = model.posterior(embed(0.5 * X[:50] + 0.2), method)
        assert_allclose(posterior.predict(Y[:5]), posterior.given(Y[:5]).mean(), atol=1e-8)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    n=st.integers(2, 25),
    lam=st.floats(1e-4, 10.0),
    bandwidth=st.floats(0.3, 3.0),
    seed=st.integers(0, 999),
)
def test_weights_are_those_of_the_oracle(n: int, lam: float, bandwidth: float, seed: int) -> None:
    X, Y = pairs(n, seed)
    w = np.random.default_rng(seed).dirichlet(np.ones(n)) + 1e-3
    w /= w.sum()
    kernel, at = Gaussian(bandwidth), pairs(4, seed + 1)[0]
    basis = PivotedCholesky(1e-15)
    model = ConditionalEmbedding(kernel, kernel, lam, basis).fit(X, Y, w)
    truth = completed_conditional_weights(kernel(X), kernel(X, at), lam, w)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        answer = model.given(at)
        assert_allclose(answer.weights, truth.T, atol=1e-7)
        # coordinates, expectations and pushed priors say the same
        assert_allclose(answer.coordinates, truth.T @ model.space_y_.transform(Y), atol=1e-7)
        prior = embed(at, kernel=kernel)
        pushed = model.push(prior)
        assert_allclose(pushed.weights, truth.mean(axis=1), atol=1e-7)
        assert_allclose(pushed.coordinates, answer.coordinates.mean(axis=0), atol=1e-7)


# --- outside the data -----------------------------------------------------------------------------


def line(n: int, seed: int = 0) -> tuple[Array, Array]:
    """X uniform on (-1, 1), E[y|x] = 2 + x."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 1))
    return X, 2 + X + 0.3 * rng.normal(size=(n, 1))


@pytest.mark.parametrize("n", [100, 1000])
def test_far_from_the_data_the_answer_is_the_marginal(n: int) -> None:
    X, Y = line(n)
    model = ConditionalEmbedding().fit(X, Y)
    marginal = embed(Y)
    with pytest.warns(DataWarning, match="outside the data"):
        answer = model.given([30.0])
    assert_allclose(answer.mean(), marginal.mean(), atol=1e-6)
    assert_allclose(answer.std(), marginal.std(), atol=1e-6)
    assert_allclose(answer.interval(0.9), marginal.interval(0.9), atol=1e-6)


@pytest.mark.parametrize("n", [100, 1000, 5000])
@pytest.mark.parametrize("seed", range(5))
def test_queries_outside_the_data_warn(n: int, seed: int) -> None:
    X, Y = line(n, seed)
    model = ConditionalEmbedding().fit(X, Y)
    for x in (1.5, -1.5, 2.0, 3.0, 6.0):
        with pytest.warns(DataWarning, match="outside the data"):
            model.given([x])
        with pytest.warns(DataWarning, match="outside the data"):
            model.predict([[x]])
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        model.given(np.linspace(-0.95, 0.95, 50)[:, None])


@pytest.mark.parametrize("d", [1, 3, 8])
@pytest.mark.parametrize("centered", [None, True, False])
def test_new_rows_of_the_same_law_hardly_warn(d: int, centered: bool | None) -> None:
    rng = np.random.default_rng(d)
    X, new = rng.normal(size=(2, 400, d))
    Y = X[:, :1] + 0.5 * rng.normal(size=(400, 1))
    model = ConditionalEmbedding(centered=centered).fit(X, Y)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.predict(new)
    told = [str(w.message) for w in found if w.category is DataWarning]
    assert not told or int(told[0].split(" of ")[0]) <= 20  # of 400


@pytest.mark.slow
@pytest.mark.parametrize("n", [1000, 30_000])  # coordinates kept, and computed when needed
@pytest.mark.parametrize("landmarks", [20, 50, 300])
def test_a_coarse_basis_does_not_put_rows_of_the_same_law_outside(n: int, landmarks: int) -> None:
    """Landmarks miss as much of the training rows as of new ones; far away they miss all."""
    rng = np.random.default_rng(0)
    X, new = rng.uniform(-2, 2, size=(n, 3)), rng.uniform(-2, 2, size=(1000, 3))
    Y = np.sin(2 * X[:, :1]) + 0.5 * rng.normal(size=(n, 1))
    basis = (Nystroem(landmarks, random_state=0), PivotedCholesky(1e-6))
    model = ConditionalEmbedding(basis=basis, regularization=1e-7).fit(X, Y)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.predict(new)
    told = [str(w.message) for w in found if w.category is DataWarning]
    assert not told or int(told[0].split(" of ")[0]) <= 20  # of 1000; it was nearly all
    with pytest.warns(DataWarning, match="1 of 1 query points lie outside the data"):
        model.given([9.0, 9.0, 9.0])


@pytest.mark.parametrize("noise", [0.1, 1.0, 10.0])
def test_noise_does_not_hide_that_a_query_is_outside(noise: float) -> None:
    """With much noise λ is large, and the variance of an answer has no room to grow."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 1))
    model = ConditionalEmbedding().fit(X, X + noise * rng.normal(size=(1000, 1)))
    with pytest.warns(DataWarning, match="outside the data"):
        model.given([7.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        model.given(np.linspace(-2, 2, 50)[:, None])


def test_answers_between_are_consistent_with_each_other() -> None:
    X, Y = line(500)
    model = ConditionalEmbedding().fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        for x in (1.2, 1.5, 2.0, 3.0):
            answer = model.given([x])
            low, high = answer.interval(0.9)
            assert low < answer.mean() < high
            assert 1.8 < answer.mean() < 3.3  # the truth of the nearest row is 3
            assert_allclose(answer.mean(), model.predict([[x]])[0], atol=1e-8)


# --- copies of rows -------------------------------------------------------------------------------


@pytest.mark.parametrize("copies", [2, 5])
def test_every_row_several_times_changes_nothing(copies: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(150, 1))
    Y = np.sin(X) + 0.3 * rng.normal(size=(150, 1))
    once = ConditionalEmbedding().fit(X, Y)
    often = ConditionalEmbedding().fit(np.repeat(X, copies, axis=0), np.repeat(Y, copies, axis=0))
    assert_allclose(often.regularization_, once.regularization_)
    assert_allclose(often.leave_one_out_.errors, once.leave_one_out_.errors, rtol=1e-4)
    assert_allclose(often.predict(X), once.predict(X), atol=1e-3)  # the tolerance of the basis


def test_a_bootstrap_sample_keeps_the_regularisation() -> None:
    """Of 300 rows about 190 are different: the error grows like theirs, and no more."""
    errors = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-3, 3, size=(300, 1))
        Y = np.sin(2 * X) + 0.5 * rng.normal(size=(300, 1))
        rows, at = rng.integers(300, size=300), np.linspace(-2.8, 2.8, 100)[:, None]
        pair = [(X, Y), (X[rows], Y[rows])]
        fits = [ConditionalEmbedding(Gaussian(0.7)).fit(*each).predict(at) for each in pair]
        errors.append([np.sqrt(np.mean((fit - np.sin(2 * at)) ** 2)) for fit in fits])
    once, again = np.mean(errors, axis=0)
    assert again < 1.7 * once


def test_labels_and_rounded_numbers_are_no_copies() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.integers(5, size=200), np.full(200, 1 / 200)
    one_hot = np.eye(5)[x]
    y = (x[:, None] + rng.integers(2, size=(200, 1))).astype(float)
    assert len(merge_equal_rows(RegressionSample(one_hot, y, w, y[:, 0]))[0]) == 200
    # the same few values with one target each are a table, not copies
    assert len(merge_equal_rows(RegressionSample(one_hot, one_hot, w, y[:, 0]))[0]) == 200
    # three draws of almost every row have targets of their own
    many = np.repeat(rng.normal(size=(70, 3)), 3, axis=0)
    own = rng.normal(size=(210, 1))
    sample = RegressionSample(many, own, np.full(210, 1 / 210), own[:, 0])
    assert len(merge_equal_rows(sample)[0]) == 210


def test_copies_are_merged_with_their_weights() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(30, 3)), rng.normal(size=(30, 2))
    rows = np.r_[np.arange(30), 4, 4, 17]
    w = np.arange(1.0, 34.0)
    x, y, total, norms = merge_equal_rows(RegressionSample(X[rows], Y[rows], w, Y[rows, 0]))
    assert_allclose(x, X) and assert_allclose(y, Y) and assert_allclose(norms, Y[:, 0])
    expected = w[:30].copy()
    expected[4] += w[30] + w[31]
    expected[17] += w[32]
    assert_allclose(total, expected)


# --- the edge of the grid -------------------------------------------------------------------------


def test_the_edge_of_a_grid_is_named_where_errors_still_fall() -> None:
    grid = np.array([1e-3, 1e-2, 1e-1])
    assert LeaveOneOut(grid, np.array([1.0, 1.5, 2.0])).edge == "smallest"
    assert LeaveOneOut(grid, np.array([2.0, 1.5, 1.0])).edge == "largest"
    assert LeaveOneOut(grid, np.array([2.0, 1.0, 1.5])).edge == ""
    assert LeaveOneOut(grid, np.array([1.0, 1.0001, 2.0])).edge == ""  # flat: nothing is lost
    assert LeaveOneOut(grid[:1], np.array([1.0])).edge == ""


def test_a_choice_at_the_edge_of_its_grid_warns() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(400, 1))
    with pytest.warns(SettingWarning, match="smallest regularisation"):
        ConditionalEmbedding(Gaussian(1.0)).fit(X, np.sin(5 * X))
    with warnings.catch_warnings():
        warnings.simplefilter("error", SettingWarning)
        ConditionalEmbedding().fit(X, np.sin(X) + rng.normal(size=X.shape))
        ConditionalEmbedding(Delta(), Delta()).fit(np.arange(60) % 3, np.arange(60) % 2)
