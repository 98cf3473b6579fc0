"""Weights for targets that are distributed otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import NotFittedError

import oracles as o
from meanmap import ConflictWarning, TargetShift, load, save
from meanmap.adaptation.targets import predicted
from meanmap.kernels import Delta, Gaussian, Spectrum
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
    found = predicted(psi, space, X, y.astype(float)[:, None], Gaussian(1.0), 1e-2)
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


def test_targets_without_a_shift_keep_their_weights() -> None:
    X, y, _ = labelled()
    model = TargetShift(n_bootstrap=0).fit(X, y, X_test=X)
    assert_allclose(model.weights_, 1, atol=0.2)


def test_words_have_targets_too() -> None:
    words = ["abab"] * 30 + ["cdcd"] * 10
    test = ["abab"] * 10 + ["cdcd"] * 30
    model = TargetShift(Spectrum(2), n_bootstrap=0).fit(words, ["m"] * 30 + ["n"] * 10, X_test=test)
    assert_allclose(model.proportions_, [0.25, 0.75], atol=0.02)


def test_a_class_that_is_gone_has_no_weight() -> None:
    X, y, T = labelled(after=0.0)
    model = TargetShift(n_bootstrap=0).fit(X, y, X_test=T)
    assert model.proportions_[1] < 0.08


def test_what_no_mixture_explains_is_said() -> None:
    X, y, T = labelled()
    with pytest.warns(ConflictWarning, match="no change of the targets"):
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
    with pytest.raises(ValueError, match="7 is no class"):
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
