"""Weights for targets that are distributed otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import NotFittedError

import oracles as o
from meanmap import DataWarning, TargetShift, load, save
from meanmap.adaptation.mean_matching import fit_host_space
from meanmap.adaptation.target_mixtures import Ridges, TargetPredictor, predict_targets, regression
from meanmap.kernels import Delta, Gaussian, NGrams
from meanmap.spaces import PivotedCholesky, Space


def labelled(seed: int = 0, n: int = 300, before: float = 0.2, after: float = 0.6) -> Any:
    rng = np.random.default_rng(seed)
    y, unseen = (rng.permutation(n) < share * n for share in (before, after))
    X, T = (2 * z[:, None] + rng.normal(size=(n, 2)) for z in (y, unseen))
    return X, y, T


def numbers(seed: int = 0, n: int = 300) -> Any:
    rng = np.random.default_rng(seed)
    y, unseen = rng.normal(size=n), 0.8 + 0.5 * rng.normal(size=n)
    X, T = (np.stack([z, np.sin(z)], 1) + 0.3 * rng.normal(size=(n, 2)) for z in (y, unseen))
    return X, y, T


def test_proportions_are_those_of_the_dense_formula() -> None:
    X, y, T = labelled(n=80)
    kernel = Gaussian(1.5)
    model = TargetShift(kernel, metric="embedding", ridge=1e-12, n_bootstrap=0).fit(X, y, X_test=T)
    truth = o.class_proportions(kernel(X), kernel(X, T).mean(axis=1), y)
    assert_allclose(model.proportions_, truth, atol=2e-4)
    assert_allclose(model.weights_[y], model.proportions_[1] / model.proportions_train_[1])


def test_predictions_leave_each_row_out() -> None:
    X, y, T = labelled(n=40)
    both = np.vstack([X, T])
    kernel = Gaussian(1.5)
    space = Space(kernel, PivotedCholesky(1e-14)).fit(both)
    psi = space.transform(both)
    found = predict_targets(psi, space, X, y.astype(float)[:, None], Gaussian(1.0), 1e-2)[0]
    phi = Space(Gaussian(1.0)).fit(y.astype(float)[:, None]).transform(y.astype(float)[:, None])
    for i in (0, 7):
        rest = np.arange(40) != i
        # weights stay 1/40: the ridge does not change when a row goes
        A = np.hstack([psi[:40][rest], np.ones((39, 1))])
        G = A.T @ A / 40 + np.diag([1e-2] * psi.shape[1] + [0.0])
        answer = np.append(psi[i], 1) @ np.linalg.solve(G, A.T @ phi[rest] / 40)
        assert_allclose(answer @ phi.T, found[i] @ phi.T, atol=1e-5)


@pytest.mark.parametrize("metric", ["predictive", "embedding"])
def test_classes_are_counted_without_labels(metric: str) -> None:
    X, y, T = labelled(n=1000)
    model = TargetShift(metric=metric, n_bootstrap=100, random_state=0).fit(X, y, X_test=T)
    assert_allclose(model.proportions_, [0.4, 0.6], atol=0.1)
    low, high = model.interval(0.999).T
    assert (low < [0.4, 0.6]).all()
    assert (high > [0.4, 0.6]).all()
    assert model.weights_.mean() == pytest.approx(1, abs=1e-6)
    assert_allclose(model.weights([True, False]), model.weights_[[y.argmax(), y.argmin()]])
    assert model.distribution_.kernel == Delta()


@pytest.mark.parametrize("metric", ["predictive", "embedding"])
def test_numbers_have_a_smooth_weight(metric: str) -> None:
    X, y, T = numbers(n=800)
    model = TargetShift(metric=metric, n_bootstrap=50, random_state=0).fit(X, y, X_test=T)
    ratio = np.exp((y**2 - ((y - 0.8) / 0.5) ** 2) / 2) / 0.5
    assert np.corrcoef(model.weights_, ratio)[0, 1] > 0.85
    assert model.distribution_.mean()[0] == pytest.approx(0.8, abs=0.15)
    low, high = model.interval(0.99)[0]
    assert low < model.distribution_.mean()[0] < high
    assert_allclose(model.weights(y[:5]), model.weights_[:5], atol=1e-6)
    assert abs(np.diff(model.weights(np.linspace(0.5, 0.6, 11)))).max() < 0.2


def test_draws_for_numbers_have_images_and_a_ridge_of_their_own() -> None:
    X, y, T = numbers()
    model = TargetShift(n_bootstrap=0, random_state=0).fit(X, y, X_test=T)
    mix = model._mix
    again = regression(mix.coordinates, mix.features, mix.w, mix.model.regularization_)[0]
    assert_allclose(again, mix.images, atol=1e-9)  # equal weights give the images back
    # rounds that disagree: drawn again, they choose now this ρ and now that
    errors = np.array([[2.0, 1.0]] * 4 + [[1.0, 1.2]] * 4) + 1e-3 * np.arange(8)[:, None]
    ridges = Ridges(np.array([1.0, 0.1]), errors)
    rng = np.random.default_rng(0)
    assert {ridges.draw(rng) for _ in range(50)} == {1.0, 0.1}
    assert Ridges.single(0.3).draw(rng) == Ridges.single(0.3).best() == 0.3


@pytest.mark.slow
def test_draws_for_numbers_are_as_wide_as_answers_of_new_samples() -> None:
    found = []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        y, unseen = 2 * rng.normal(size=150), 1.5 + rng.normal(size=150)
        X, T = (z[:, None] + 1.5 * rng.normal(size=(150, 1)) for z in (y, unseen))
        model = TargetShift(n_bootstrap=30, random_state=0).fit(X, y, X_test=T)
        found.append([model.weights_ @ y / 150, model.draws_.std()])
    answers, spread = np.transpose(found)
    assert 0.7 < spread.mean() / answers.std() < 1.5


def test_every_draw_has_its_own_regression_on_x() -> None:
    """Answers of rows left out for any weights: rows repeated so often, all copies left out."""
    rng = np.random.default_rng(0)
    psi, phi, times = (
        rng.normal(size=(12, 3)),
        rng.normal(size=(9, 2)),
        rng.multinomial(9, [1 / 9] * 9),
    )
    found = TargetPredictor(psi, phi, 0.1).answers(times / 9)
    for i in range(12):
        w = times / 9 * (np.arange(9) != i)
        mean, centre = w @ phi / w.sum(), w @ psi[:9] / w.sum()
        C = (psi[:9] - centre).T @ (w[:, None] * (psi[:9] - centre)) + 0.1 * np.eye(3)
        B = np.linalg.solve(C, (psi[:9] - centre).T @ (w[:, None] * (phi - mean)))
        assert_allclose(found[i], mean + (psi[i] - centre) @ B, atol=1e-9)


def test_draws_are_less_their_bias_and_wider_by_it() -> None:
    X, y, T = numbers()
    model = TargetShift(n_bootstrap=0, random_state=0).fit(X, y, X_test=T)
    m = float(model.weights_ @ y / len(y))
    raw = m - 0.3 + 0.1 * np.random.default_rng(0).normal(size=(500, 1))
    found = model._mix.correct(model._solution, raw)
    bias = raw.mean() - m
    assert found.mean() == pytest.approx(m - bias)
    assert found.std() == pytest.approx(np.hypot(raw.std(), bias))


def many(seed: int, shares: Any, n: int = 600, noise: float = 1.0) -> Any:
    """Six classes in the plane, in equal shares for training and in these for the test."""
    rng = np.random.default_rng(seed)
    angle = np.arange(6) * np.pi / 3
    centres = 2 * np.stack([np.cos(angle), np.sin(angle)], 1)
    y, unseen = np.arange(n) % 6, rng.choice(6, n // 2, p=shares)
    X, T = (centres[z] + noise * rng.normal(size=(len(z), 2)) for z in (y, unseen))
    return X, y, T


def test_the_variance_of_proportions_is_that_of_the_bootstrap() -> None:
    X, y, T = many(0, [0.3, 0.3, 0.1, 0.1, 0.1, 0.1])
    for metric in ("predictive", "embedding"):
        model = TargetShift(metric=metric, n_bootstrap=300, random_state=0).fit(X, y, X_test=T)
        mix = model._mix
        Z = predicted_or_embedded(model, X, y, T)
        plain = mix.solve(Z[len(X) :].mean(axis=0), model.ridge_, model.bound_)
        ratio = mix.variance(plain, Z[len(X) :], model.ridge_) / model.draws_.var(axis=0).sum()
        assert 0.75 < ratio < 1.33
        drawn = mix.shrink(plain, Z[len(X) :], model.ridge_)
        assert_allclose(mix.w * drawn.beta, model.proportions_, atol=1e-9)
        share = (1 - drawn.beta) / (1 - plain.beta)  # all go the same part of the way
        assert_allclose(share, share[0])
        assert 0 < share[0] < 1


def predicted_or_embedded(model: Any, X: Any, y: Any, T: Any) -> np.ndarray:
    both = np.vstack([X, T])
    space, psi = fit_host_space(model.kernel_x_, both, PivotedCholesky(1e-5, max_rank=1000))
    if model.metric == "embedding":
        return psi
    return predict_targets(psi, space, X, y, model.kernel_y_, "auto")[0]


def test_noise_without_a_shift_changes_little() -> None:
    equal = np.full(6, 1 / 6)
    away = []
    for seed in range(10):
        X, y, T = many(seed, equal, noise=2.0)
        model = TargetShift(n_bootstrap=0).fit(X, y, X_test=T)
        plain = model._mix.solve(
            predicted_or_embedded(model, X, y, T)[600:].mean(axis=0), model.ridge_, model.bound_
        )
        away.append(
            [abs(model._mix.w * beta - equal).sum() for beta in (model._solution.beta, plain.beta)]
        )
    shrunk, plain_away = np.mean(away, axis=0)
    assert shrunk < 0.6 * plain_away


def test_two_and_three_classes_are_not_shrunk() -> None:
    X, y, T = many(0, np.full(6, 1 / 6))
    for fewer in (y % 2, y % 3):
        model = TargetShift(n_bootstrap=0).fit(X, fewer, X_test=T)
        assert not model._moved.any()


def test_classes_that_look_alike_keep_their_proportions() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(400) % 4
    X, T = (np.where(z < 2, 0.0, 3.0)[:, None] + rng.normal(size=(400, 1)) for z in (y, y))
    X[y % 2 == 1] = X[y % 2 == 0]  # nothing tells 0 from 1, nor 2 from 3
    model = TargetShift(ridge=1e-12, metric="embedding", n_bootstrap=5).fit(X, y, X_test=T)
    assert_allclose(model.proportions_, 0.25, atol=0.1)


def test_shrunk_proportions_have_intervals_about_them() -> None:
    shares = np.array([0.0, 0.12, 0.22, 0.22, 0.22, 0.22])
    covered = []
    for seed in range(10):
        X, y, T = many(seed, shares)
        model = TargetShift(n_bootstrap=100, random_state=0).fit(X, y, X_test=T)
        low, high = model.interval(0.9).T
        assert model.proportions_.sum() == pytest.approx(1)
        assert (low >= 0).all()
        assert (high <= 1).all()
        assert ((low <= model.proportions_) & (model.proportions_ <= high)).all()
        covered.append((low <= shares) & (shares <= high))
    assert np.mean(covered) > 0.8
    assert np.mean(covered, axis=0)[0] > 0.8  # the class that is gone, too


def test_targets_without_a_shift_keep_their_weights() -> None:
    X, y, _ = labelled()
    model = TargetShift(n_bootstrap=0).fit(X, y, X_test=X)
    assert_allclose(model.weights_, 1, atol=0.2)


def test_words_have_targets_too() -> None:
    words = ["abab"] * 30 + ["cdcd"] * 10
    test = ["abab"] * 10 + ["cdcd"] * 30
    model = TargetShift(NGrams(2), n_bootstrap=0).fit(words, ["m"] * 30 + ["n"] * 10, X_test=test)
    assert_allclose(model.proportions_, [0.25, 0.75], atol=0.02)


def test_a_class_that_is_gone_has_no_weight() -> None:
    X, y, T = labelled(after=0.0)
    model = TargetShift(n_bootstrap=0).fit(X, y, X_test=T)
    assert model.proportions_[1] < 0.08


def test_what_no_mixture_explains_is_said() -> None:
    X, y, T = labelled()
    with pytest.warns(DataWarning, match="no change of the targets"):
        TargetShift(Gaussian(1.0), metric="embedding", n_bootstrap=0).fit(X, y, X_test=T + 5)


@pytest.mark.parametrize(
    ("model", "y", "T", "message"),
    [
        (TargetShift(), None, [[0.0, 0.0]], "requires y to be passed"),
        (TargetShift(), np.arange(300) > 9, None, "X_test=None"),
        (TargetShift(), np.zeros(300, dtype=int), [[0.0, 0.0]], "one class"),
        (TargetShift(), np.arange(5) > 2, [[0.0, 0.0]], "inconsistent numbers of samples"),
        (TargetShift(metric="mean"), np.arange(300) > 9, [[0.0, 0.0]], "metric"),
        (TargetShift(bound=0.5), np.arange(300) > 9, [[0.0, 0.0]], "cannot be met"),
        (TargetShift(ridge=0), np.arange(300) > 9, [[0.0, 0.0]], "must be positive"),
        (TargetShift(n_bootstrap=-1), np.arange(300) > 9, [[0.0, 0.0]], "n_bootstrap"),
        (TargetShift(), np.full(300, np.nan), [[0.0, 0.0]], "NaN"),
    ],
)
def test_bad_input_is_explained(model: Any, y: Any, T: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(labelled()[0], y, X_test=T)
    assert not hasattr(model, "weights_")


def test_questions_that_cannot_be_answered() -> None:
    X, y, T = labelled()
    model = TargetShift(n_bootstrap=0).fit(X, y.astype(int), X_test=T)
    with pytest.raises(ValueError, match="7 is not a class"):
        model.weights([0, 7])
    with pytest.raises(ValueError, match="n_bootstrap=0"):
        model.interval()
    with pytest.raises(ValueError, match="between 0 and 1"):
        model.interval(2)
    with pytest.raises(NotFittedError):
        TargetShift().weights([0])


def test_probabilities_are_adjusted_by_bayes_rule() -> None:
    X, y, T = labelled()
    model = TargetShift(n_bootstrap=0).fit(X, y, X_test=T)
    beta = model.proportions_ / model.proportions_train_
    given = np.array([[0.9, 0.1], [0.5, 0.5]])
    truth = given * beta / (given * beta).sum(axis=1, keepdims=True)
    assert_allclose(model.adjust(given), truth)
    with pytest.raises(ValueError, match="rows of 2 numbers"):
        model.adjust(np.ones((3, 5)))
    X, y, T = numbers(n=40)
    with pytest.raises(ValueError, match="adjust is for classes"):
        TargetShift(n_bootstrap=0).fit(X, y, X_test=T).adjust(given)


def test_files_and_pictures(tmp_path: Any) -> None:
    for X, y, T in (labelled(n=60), numbers(n=60)):
        model = TargetShift(n_bootstrap=5, random_state=0).fit(X, y, X_test=T)
        save(model, tmp_path / "shift.npz")
        again = load(tmp_path / "shift.npz")
        assert_allclose(again.weights(y[:3]), model.weights(y[:3]))
        assert_allclose(again.interval(), model.interval())
        assert model.plot() is not None


def test_targets_that_are_strings_have_weights_and_no_interval() -> None:
    rng = np.random.default_rng(4)
    words = np.array(["aab", "abb", "bbb", "aaa"])
    at = rng.integers(4, size=80)
    X = np.array([0.0, 1.0, 2.0, 3.0])[at][:, None] + 0.2 * rng.normal(size=(80, 1))
    shift = TargetShift(kernel_y=NGrams(2), random_state=0).fit(X, words[at], X_test=X[:30])
    assert shift.weights_.shape == (80,) and len(shift.draws_) == 0
    with pytest.raises(ValueError, match="does not consist of numbers, so it has no mean"):
        shift.interval()
