"""Scales learned by leave-one-out: the gradient, what is learned, what it does not depend on."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from meanmap import ApproximationWarning, ConditionalEmbedding, embed
from meanmap.conditional.beliefs import LeftOutScores
from meanmap.conditional.fitting import Pairs, fit_pairs, scale_scores
from meanmap.conditional.learning import (
    LANDMARKS,
    LeaveOneOutLoss,
    LikelihoodLoss,
    ScaleSearch,
    distinct_rows,
    energy_targets,
    law_targets,
    standardize_targets,
)
from meanmap.conditional.shape import choose_shape
from meanmap.kernels import Columns, Delta, Gaussian, Laplace, Linear, Matern, RationalQuadratic
from meanmap.spaces import PivotedCholesky

Array = np.ndarray


def wavy(n: int, d: int = 4, seed: int = 0) -> tuple[Array, Array]:
    """y depends on the first two of d columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] ** 2 + 0.2 * rng.normal(size=n)


def uneven(n: int) -> Array:
    w = np.random.default_rng(3).dirichlet(np.ones(n)) + 0.5 / n
    return w / w.sum()


def differences(loss: LeaveOneOutLoss, place: Array, step: float = 1e-3) -> list[float]:
    """The gradient by differences between five points."""

    def along(e: Array) -> float:
        near, far = (loss(place + a * e)[0] - loss(place - a * e)[0] for a in (step, 2 * step))
        return float((8 * near - far) / (12 * step))

    return [along(e) for e in np.eye(len(place))]


# --- the loss -------------------------------------------------------------------------------------


def loss_of(kernel: Any, pull: float = 0.0, kind: Any = LeaveOneOutLoss) -> Any:
    X, y = wavy(60)
    w = uneven(60)
    return kind(kernel.open_scales(X, w), law_targets(y[:, None], w)[:, :3], w, 25, pull, 0.4)


@pytest.mark.parametrize(
    "kernel",
    [
        Gaussian("loo"),
        Matern(1.5, "loo"),
        Matern(2.5, "loo"),
        RationalQuadratic(1.0, "loo"),
        Laplace("loo"),
    ],
    ids=repr,
)
def test_the_loss_is_that_of_fits_without_each_row(kernel: Any) -> None:
    """Each row left out and the rest fitted again, in the coordinates of the same landmarks."""
    loss = loss_of(kernel)
    logs, lam = np.array([-0.2, 0.1, 0.3, 0.0]), 1e-3
    made = kernel.open_scales(wavy(60)[0], loss.weights).kernel(np.exp(logs))
    X = wavy(60)[0]
    K, W = made(X, X[:25]), made(X[:25])
    w, T = loss.weights, loss.targets
    errors = []
    for i in range(60):
        rest = np.arange(60) != i
        A = (w[rest, None] * K[rest]).T @ K[rest] + lam * W
        a = np.linalg.solve(A, (w[rest, None] * K[rest]).T @ T[rest])
        errors.append(((T[i] - K[i] @ a) ** 2).sum())
    expected = np.log(w @ np.array(errors) / (w @ (T**2).sum(axis=1)))
    assert_allclose(loss(np.append(logs, np.log(lam)))[0], expected, rtol=1e-5)


def test_the_likelihood_is_that_of_a_gaussian_process() -> None:
    """-2 log p/n of every target, its variance the likeliest, up to a constant."""
    loss = loss_of(Gaussian("loo"), kind=LikelihoodLoss)
    X, w, T = wavy(60)[0], loss.weights, loss.targets
    found, expected = [], []
    for logs, lam in [([-0.2, 0.1, 0.3, 0.0], 1e-3), ([0.3, 0.1, 0.0, 0.2], 1e-2)]:
        found.append(loss(np.append(logs, np.log(lam)))[0])
        made = Gaussian("loo").open_scales(X, w).kernel(np.exp(logs))
        K, W = made(X, X[:25]), made(X[:25]) + 1e-8 * np.eye(25)
        C = K @ np.linalg.solve(W, K.T) + lam * np.diag(1 / w)
        quadratic = np.einsum("iq,iq->q", T, np.linalg.solve(C, T))
        expected.append(np.log(quadratic).sum() + T.shape[1] * np.linalg.slogdet(C)[1] / 60)
    assert_allclose(found[1] - found[0], expected[1] - expected[0], rtol=1e-6)


@pytest.mark.parametrize("kind", [LeaveOneOutLoss, LikelihoodLoss])
@pytest.mark.parametrize("pull", [0.0, 0.3])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    "kernel", [Gaussian("loo"), Matern(2.5, "loo"), RationalQuadratic(1.0, "loo")], ids=repr
)
def test_the_gradient_is_that_of_differences(
    kernel: Any, shared: bool, pull: float, kind: Any
) -> None:
    loss = loss_of(kernel, pull, kind)
    place = np.append([0.1] if shared else [-0.2, 0.1, 0.3, 0.0], np.log(1e-3))
    assert_allclose(loss(place)[1], differences(loss, place), atol=1e-6)


@pytest.mark.parametrize("kind", [LeaveOneOutLoss, LikelihoodLoss])
def test_values_without_a_gradient_are_the_same(kind: Any) -> None:
    """Also where scales were kept from before, or others were looked at in between."""
    loss = loss_of(Gaussian("loo"), 0.3, kind)
    one, two = np.array([0.1, -7.0]), np.array([-0.2, 0.1, 0.3, 0.0, -5.0])
    expected = [loss_of(Gaussian("loo"), 0.3, kind)(place)[0] for place in (one, one + 1, two)]
    for _ in range(2):
        assert_allclose([loss.value(place) for place in (one, one + 1, two)], expected, rtol=1e-13)
        assert_allclose([loss(place)[0] for place in (two, one)], expected[::-2], rtol=1e-13)


def test_a_likelihood_of_wide_kernels_is_smooth() -> None:
    """Where landmarks are all rows, and their kernel matrix is singular to working precision."""
    X, y = wavy(100)
    X, w = X[:, :1], np.full(100, 1 / 100)
    scales = Gaussian("loo").open_scales(X, w)
    loss = LikelihoodLoss(scales, standardize_targets(y[:, None], w), w, 100)
    place = np.array([0.5, np.log(1e-5)])
    assert_allclose(loss(place)[1], differences(loss, place), atol=1e-6)


def test_scales_are_compared_by_the_answers_that_they_give() -> None:
    """The score is that of the shape of a conditional in the same coordinates."""
    X, y = wavy(200)
    w = uneven(200)
    scales = Gaussian("loo").open_scales(X, w)
    search = ScaleSearch(LikelihoodLoss, scales, standardize_targets(y[:, None], w), w, 2.0, None)
    place = np.array([-0.1, 0.2, 1.0, 1.5, -7.0])
    x = scales.divided(search.scales_at(place))
    basis = (PivotedCholesky(1e-6, LANDMARKS), None)
    pairs = Pairs(x, y[:, None], scales.unit, Linear(), basis, w)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ApproximationWarning)
        operator = fit_pairs(pairs).operator
    expected = choose_shape(operator.evidence())[1]
    scores = scale_scores(search, place, y[:, None])
    assert_allclose(scores.values, expected.values, rtol=1e-9)
    assert_allclose(scores.mean, expected.mean, rtol=1e-9)


def test_scores_of_the_same_rows_are_compared_in_pairs() -> None:
    rng = np.random.default_rng(0)
    common, w = rng.normal(size=400), np.full(400, 1 / 400)
    mine, others = common + 0.1 + 0.01 * rng.normal(size=400), common
    excess, error = LeftOutScores(mine, w).excess(LeftOutScores(others, w))
    assert_allclose(excess, (mine - others).mean(), rtol=1e-12)
    assert_allclose(error, (mine - others).std() / 20, rtol=1e-12)


def test_a_column_that_does_not_matter_has_hardly_any_part() -> None:
    """The pull towards a shared scale gives way; a quadratic one held it at a hundred times."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(600, 3))
    y = np.sin(4 * X[:, 0]) + 0.3 * X[:, 1] + 0.05 * rng.normal(size=600)
    a, b, c = ConditionalEmbedding().fit(X, y).kernel_x_.bandwidth
    assert a < b < c and c > 200 * a


def test_columns_of_labels_share_a_scale() -> None:
    table = pd.DataFrame({"a": wavy(60)[0][:, 0], "b": list("xyz") * 20})
    kernel = Columns({"a": Gaussian("loo"), "b": Delta("loo")})
    points = kernel.check(table, "X")
    scales = kernel.open_scales(points, None)
    assert scales.groups.tolist() == [0, 1, 1, 1]
    loss = LeaveOneOutLoss(scales, wavy(60)[1][:, None], np.full(60, 1 / 60), 30)
    place = np.array([-0.3, 0.2, np.log(1e-3)])
    assert_allclose(loss(place)[1], differences(loss, place), atol=1e-5)
    made = scales.kernel(np.array([0.7, 0.5]))
    assert made.columns["b"] == Delta(float(np.exp(-0.5 / 0.5**2)))


def test_the_error_of_energy_targets_is_the_ranked_probability_score() -> None:
    """½‖φ(y) - Σ pᵢ φ(yᵢ)‖² in the energy kernel is E|Y - y| - ½ E|Y - Y'|, but for a constant."""
    rng = np.random.default_rng(0)
    y, w = rng.normal(size=(25, 1)), np.full(25, 1 / 25)
    psi = energy_targets(y, w)
    p = rng.dirichlet(np.ones(25), size=4)
    found = ((psi[:4] - p @ psi) ** 2).sum(axis=1)
    D = abs(y - y.T)
    score = (p * D[:4]).sum(axis=1) - 0.5 * np.einsum("ki,ij,kj->k", p, D, p)
    assert_allclose(found / score, np.full(4, (found / score)[0]), rtol=1e-2)


def test_targets_are_clipped_and_constant_ones_left_out() -> None:
    y = np.column_stack([np.arange(50.0), np.full(50, 3.0)])
    y[0, 0] = 1e9
    z = standardize_targets(y, np.full(50, 1 / 50))
    assert z.shape == (50, 1) and abs(z).max() < 8


def test_copies_count_once() -> None:
    X, y = wavy(40)
    rows, w = distinct_rows(
        np.repeat(X, 3, axis=0), np.repeat(y[:, None], 3, axis=0), np.full(120, 1 / 120)
    )
    assert len(rows) == 40
    assert_allclose(w, np.full(40, 1 / 40))


# --- what is learned ------------------------------------------------------------------------------


def test_columns_that_do_not_matter_get_wide_scales() -> None:
    X, y = wavy(600, 6)
    model = ConditionalEmbedding().fit(X, y)
    relevance = model.relevance()
    assert relevance.values[:2].min() > 3 * relevance.values[2:].max()
    assert "column 0" in repr(relevance)
    assert len(relevance.plot().patches) == 6


def test_shared_scales_stay_where_single_ones_earn_nothing() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5))
    y = np.sin(X.sum(axis=1)) + 0.5 * rng.normal(size=300)
    relevance = ConditionalEmbedding().fit(X, y).relevance().values
    assert_allclose(relevance, np.full(5, relevance[0]), rtol=1e-9)


@pytest.mark.parametrize("n", [100, 1000])
def test_learned_scales_beat_the_median(n: int) -> None:
    X, y = wavy(n, 8)
    T, _ = wavy(500, 8, 1)
    truth = np.sin(2 * T[:, 0]) + 0.5 * T[:, 1] ** 2
    errors = [
        np.sqrt(np.mean((ConditionalEmbedding(kernel).fit(X, y).predict(T) - truth) ** 2))
        for kernel in (None, "median")
    ]
    assert errors[0] < 0.75 * errors[1]


def test_the_word_median_is_the_kernel_without_learning() -> None:
    X, y = wavy(100)
    word = ConditionalEmbedding("median").fit(X, y)
    assert word.kernel_x_ == Gaussian("scaled median").resolve(X)
    assert word.kernel_x_ == ConditionalEmbedding(Gaussian("scaled median")).fit(X, y).kernel_x_
    with pytest.raises(TypeError, match="expected a kernel"):
        ConditionalEmbedding("wide").fit(X, y)


def test_a_kernel_that_is_given_stays_as_it_is() -> None:
    X, y = wavy(100)
    assert ConditionalEmbedding(Gaussian(0.7)).fit(X, y).kernel_x_ == Gaussian(0.7)


def test_the_same_rows_give_the_same_scales() -> None:
    X, y = wavy(900)
    one, two = (ConditionalEmbedding().fit(X, y) for _ in range(2))
    assert one.kernel_x_ == two.kernel_x_ and one.regularization_ == two.regularization_


def test_units_and_shifts_do_not_matter() -> None:
    X, y = wavy(300)
    T, _ = wavy(50, 4, 1)
    factor, shift = np.array([1e4, 1e-3, 1.0, 7.0]), np.array([0.0, 5.0, -1e3, 1.0])
    plain = ConditionalEmbedding().fit(X, y)
    moved = ConditionalEmbedding().fit(X * factor + shift, 30 * y - 4)
    # scales of columns that do not matter are flat directions: rounding moves them by a percent
    assert_allclose(moved.predict(T * factor + shift), 30 * plain.predict(T) - 4, atol=0.1)
    ends = zip(
        moved.given(T * factor + shift).interval(0.9), plain.given(T).interval(0.9), strict=True
    )
    for a, b in ends:
        assert_allclose(a, 30 * b - 4, atol=0.3)
    assert_allclose(moved.kernel_x_.bandwidth / factor, plain.kernel_x_.bandwidth, rtol=0.011)


def test_a_step_gets_a_rougher_kernel_and_a_wave_a_smooth_one() -> None:
    """The default finds the smoothness; the left-out score of a step is better for it."""
    rng = np.random.default_rng(0)
    X, new = rng.uniform(-1, 1, size=(2, 300, 1))
    noise, new_noise = 0.1 * rng.normal(size=(2, 300))
    step = ConditionalEmbedding().fit(X, (X[:, 0] > 0) + noise)
    assert step.kernel_x_ == Matern(1.5, step.kernel_x_.bandwidth)
    smooth = ConditionalEmbedding(Gaussian("loo")).fit(X, (X[:, 0] > 0) + noise)
    truth = (new[:, 0] > 0) + new_noise
    assert step.crps(new, truth) < 0.98 * smooth.crps(new, truth)
    wave = ConditionalEmbedding().fit(X, np.sin(4 * X[:, 0]) + noise)
    assert wave.kernel_x_ == Gaussian(wave.kernel_x_.bandwidth)


def test_smoothness_is_open_only_together_with_the_scales() -> None:
    """A smoothness that is given stays; a learned one is refused where nothing learns it."""
    X, y = wavy(60)
    assert ConditionalEmbedding(Matern(2.5, "loo")).fit(X, y).kernel_x_.nu == 2.5
    for kernel in (Matern("loo"), Matern("loo", 1.0)):
        with pytest.raises(ValueError, match='both nu and bandwidth .* are "loo"'):
            ConditionalEmbedding(kernel).fit(X, y)
    with pytest.raises(ValueError, match="nu must be 0.5, 1.5 or 2.5; got 'loo'"):
        embed(X, Matern("loo", "median"))


def test_a_mixed_table_learns_a_scale_for_each_column() -> None:
    rng = np.random.default_rng(0)
    n = 500
    table = pd.DataFrame(
        {
            "area": rng.gamma(4, 20, n),
            "town": rng.choice(["Oslo", "Rome", "Bern"], n),
            "noise": rng.normal(size=n),
        }
    )
    price = np.sin(table.area / 15) * 40 + 50 * (table.town == "Rome") + 5 * rng.normal(size=n)
    model = ConditionalEmbedding().fit(table, price)
    found = dict(zip(model.relevance().columns, model.relevance().values, strict=True))
    assert found["area"] > 2 * found["noise"]
    assert model.score(table, price) > 0.95
    median = ConditionalEmbedding("median").fit(table, price)
    assert model.crps(table, price) < 0.5 * median.crps(table, price)


@pytest.mark.parametrize("n", [2, 3, 10, 19, 20])
def test_small_samples_are_fitted(n: int) -> None:
    X, y = wavy(n)
    model = ConditionalEmbedding().fit(X, y)
    assert np.isfinite(model.predict(X)).all()
    low, high = model.given(X).interval(0.9)
    assert (low <= high).all()


def test_degenerate_columns_are_fitted() -> None:
    X, y = wavy(80)
    X[:, 2] = 5.0
    assert np.isfinite(ConditionalEmbedding().fit(X, y).predict(X)).all()
    assert_allclose(ConditionalEmbedding().fit(X, np.full(80, 2.0)).predict(X), 2.0)
    same = np.ones((80, 2))
    assert_allclose(ConditionalEmbedding().fit(same, y).predict(same), y.mean(), atol=1e-8)


def test_a_number_for_the_regularisation_is_kept() -> None:
    X, y = wavy(200)
    assert ConditionalEmbedding(regularization=1e-3).fit(X, y).regularization_ == 1e-3


def test_labels_are_learned_from_and_predicted() -> None:
    X, y = wavy(600)
    labels = np.where(y > np.median(y), "high", "low")
    model = ConditionalEmbedding().fit(X[:400], labels[:400])
    assert model.classes_.tolist() == ["high", "low"]
    p = model.predict_proba(X[400:])
    assert p.shape == (200, 2) and (p >= 0).all()
    assert_allclose(p.sum(axis=1), 1.0)
    assert set(model.predict(X[400:])) <= {"high", "low"}
    accuracy = (model.predict(X[400:]) == labels[400:]).mean()
    assert_allclose(model.score(X[400:], labels[400:]), accuracy)
    assert accuracy > 0.85
    with pytest.raises(AttributeError, match="predict_proba"):
        ConditionalEmbedding().fit(X, y).predict_proba(X)


def test_a_constant_target_is_learned_without_a_word() -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = ConditionalEmbedding().fit(X, np.ones(60))
    assert_allclose(model.predict(X[:3]), 1.0)
    assert_allclose(model.given(X[:3]).std(), 0.0, atol=1e-12)
