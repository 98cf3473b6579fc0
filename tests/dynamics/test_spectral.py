"""The spectral filter: its oracle, exact forward probabilities, guards and bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import meanmap
import oracles as o
from meanmap import ConditionalEmbedding, DataWarning, SpectralFilter
from meanmap.dynamics.observable_operators import FLOOR, MassEvidence
from meanmap.kernels import Delta, Gaussian, Linear
from optional_packages import require
from oracles import Array

TRANSITION = np.array([[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.3, 0.1, 0.6]])
EMISSION = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.1, 0.2], [0.05, 0.05, 0.6, 0.3]])


def hidden_markov(n: int, seed: int) -> Array:
    """Symbols of a hidden Markov model with three states."""
    rng = np.random.default_rng(seed)
    cuts, symbols = TRANSITION.cumsum(axis=1), EMISSION.cumsum(axis=1)
    u = rng.random((n, 2))
    state, out = 0, np.empty(n, dtype=int)
    for t in range(n):
        out[t] = np.searchsorted(symbols[state], u[t, 0])
        state = np.searchsorted(cuts[state], u[t, 1])
    return out


def oscillation(n: int, seed: int, noise: float = 0.1) -> Array:
    """One coordinate of a noisy rotation: from one observation alone it may go up or down."""
    rng = np.random.default_rng(seed)
    phase = rng.uniform(0, 6) + np.cumsum(rng.normal(0.5, 0.05, size=n))
    return np.sin(phase)[:, None] + noise * rng.normal(size=(n, 1))


def rotation(n: int, seed: int) -> Array:
    """A noisy rotation in the plane."""
    rng = np.random.default_rng(seed)
    phase = rng.uniform(0, 6) + np.cumsum(rng.normal(0.4, 0.1, size=n))
    return np.stack([np.cos(phase), np.sin(phase)], axis=1) + 0.2 * rng.normal(size=(n, 2))


def next_error(track: Any, observations: Array) -> float:
    return float(np.mean((track.mean[:-1] - observations[1:]) ** 2))


@pytest.fixture(scope="module")
def model() -> SpectralFilter:
    """A filter of the oscillation, with everything fixed but the kernel's bandwidth."""
    fixed = SpectralFilter(Gaussian("0.5*median"), n_states=8, window=2, regularization=0.1)
    return fixed.fit(oscillation(400, 0))


# --------------------------------------------------------------------------------------
# What it should be
# --------------------------------------------------------------------------------------


def oracle_case(kind: str) -> tuple[Any, Any, Any, int, float]:
    """Training and test observations, kernel, number of states, regularisation."""
    if kind == "delta":
        return hidden_markov(300, 1), hidden_markov(30, 2), Delta(), 3, 1e-3
    return rotation(200, 3), rotation(30, 4), Gaussian(1.0), 4, 1e-2


@pytest.mark.parametrize("kind", ["delta", "gaussian"])
def test_is_its_oracle(kind: str) -> None:
    train, test, kernel, N, lam = oracle_case(kind)
    model = SpectralFilter(kernel, n_states=N, regularization=lam).fit(train)
    seen = ~np.isin(np.arange(len(test)), [4, 5, 11])
    gaps = test.astype(float)
    gaps[~seen] = np.nan
    track = model.filter(gaps)

    space = track.space
    P = space.transform(train)
    observed: list[Array | None] = list(space.transform(test))
    observed = [x if there else None for x, there in zip(observed, seen, strict=True)]
    path = o.spectral_filter(P[:-2], P[1:-1], P[2:], observed, rank=N, lam=lam)
    assert_allclose(track.coordinates[0], path.predictions[1:], atol=1e-8)
    weights = track.beliefs.weights
    assert_allclose(weights[:, 1:-1], path.weights[1:], atol=1e-8)
    assert_array_equal(weights[:, [0, -1]], 0)
    assert_allclose(weights.sum(axis=1), 1, atol=1e-10)

    # the evidence is the ratio of the masses from this belief and from the stationary one, whose
    # own mass the oracle leaves as it is
    C_21, mu = P[1:-1].T @ P[:-2] / (len(P) - 2), P[:-2].mean(axis=0)
    eta = np.linalg.pinv(C_21.T @ np.linalg.svd(C_21)[0][:, :N]) @ mu
    first = [
        np.nan if x is None else o.spectral_filter(P[:-2], P[1:-1], P[2:], [x], N, lam).ratios[0]
        for x in observed
    ]
    evidence = path.ratios / np.array(first)
    evidence[1:] *= eta @ path.beliefs[0]
    assert np.nanmin(evidence) > FLOOR  # the guard is not active
    states = track.log_evidence_.predicted[0][seen]
    features = np.array([x for x in observed if x is not None])
    logs = MassEvidence(model._model).log(states, features, None, np.zeros(0))
    assert_allclose(np.exp(logs), evidence[seen], atol=1e-8)
    if kind == "delta":  # vectors have densities
        assert_allclose(track.log_evidence, np.where(seen, np.log(evidence), 0), atol=1e-8)


def test_is_near_the_forward_algorithm() -> None:
    train, test = hidden_markov(20_000, 5), hidden_markov(2000, 6)
    p = np.linalg.matrix_power(TRANSITION, 200)[0]
    exact = o.hmm_forward_backward(TRANSITION, EMISSION, p, [*test, None], steps=3)
    model = SpectralFilter(Delta(), n_states=3, regularization=1e-4).fit(train)
    track = model.filter(test)
    predicted = track.beliefs(np.arange(4))
    truth = exact.predicted[1:] @ EMISSION
    # Total variation, measured over ten seeds: 0.011 to 0.020 one step ahead, 0.005 to 0.014 three;
    # the last symbol alone leaves 0.053, the marginal 0.143. The score was off by 0.003 at most.
    assert np.abs(predicted - truth).sum(axis=1).mean() / 2 < 0.035
    marginal = np.log((p @ EMISSION)[test]).mean()
    assert abs(model.score(test) - (exact.log_evidence / len(test) - marginal)) < 0.01
    ahead = model.predict(test, 3, origin="every").beliefs(np.arange(4))
    assert np.abs(ahead - exact.ahead[:-1] @ EMISSION).sum(axis=1).mean() / 2 < 0.03


def test_windows_are_features_side_by_side() -> None:
    train, test, N, lam, w = rotation(200, 3), rotation(30, 4), 4, 1e-2, 3
    model = SpectralFilter(Gaussian(1.0), N, window=w, regularization=lam).fit(train)
    track = model.filter(test)
    P = track.space.transform(train)
    t = np.arange(w, len(P) - w)
    past, future, later = (np.hstack([P[t + s + i] for i in range(w)]) for s in (-w, 0, 1))
    middle, m = P[t], len(t)
    C_21 = future.T @ past / m
    U = np.linalg.svd(C_21)[0][:, :N]
    inverse = np.linalg.pinv(U.T @ C_21)
    eta = inverse.T @ past.mean(axis=0)
    b = U.T @ past.mean(axis=0)
    for x, found in zip(track.space.transform(test), track.coordinates[0], strict=True):
        beta = o.conditional_weights(middle @ middle.T, middle @ x, lam)
        b = U.T @ (later.T @ (beta[:, None] * past)) @ inverse @ b
        b = b / (eta @ b)
        assert_allclose(found, middle.T @ past @ inverse @ b / m, atol=1e-8)


def test_subspace_iteration_finds_the_leading_triplets(monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = rotation(300, 3), rotation(50, 4)
    one = SpectralFilter(Gaussian(0.5), 6, window=2, regularization=0.1).fit(train)
    monkeypatch.setattr("meanmap.dynamics.observable_operators.SMALL", 0)
    two = SpectralFilter(Gaussian(0.5), 6, window=2, regularization=0.1).fit(train)
    assert len(two.singular_values_) < len(one.singular_values_)
    assert_allclose(two.singular_values_[:6], one.singular_values_[:6], rtol=1e-10)
    assert_allclose(two.filter(test).mean, one.filter(test).mean, atol=1e-8)


# --------------------------------------------------------------------------------------
# What it is good for
# --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_longer_windows_see_what_one_observation_hides() -> None:
    train, test = oscillation(500, 1), oscillation(1000, 2)
    errors = {}
    for window in (1, 2):
        model = SpectralFilter(window=window).fit(train)
        errors[window] = next_error(model.filter(test), test)
    last = ConditionalEmbedding().fit(train[:-1], train[1:]).predict(test[:-1])
    alone = np.mean((last - test[1:]) ** 2)
    # measured: 0.131 from the last observation, 0.081, 0.015; the noise itself is 0.010
    assert errors[1] < 0.8 * alone
    assert errors[2] < 0.2 * alone


def test_validation_chooses() -> None:
    train, test = oscillation(300, 1), oscillation(300, 2)
    model = SpectralFilter(grid={"window": [1, 2], "n_states": [2, 8]}, progress=False).fit(train)
    found = model.validation_
    assert found is not None
    assert len(found.candidates) == 4 * 2 * 2 * 5
    assert (model.window_, model.n_states_) == (2, 8)
    assert model.window_ == found.best["window"]
    assert model.regularization_ == found.best["regularization"]
    again = SpectralFilter(n_jobs=2, progress=False, **found.best).fit(train)
    assert again.validation_ is None
    assert_allclose(again.filter(test).mean, model.filter(test).mean)
    # the errors of all numbers of states at once are those of one by one
    one = SpectralFilter(grid={"window": [1, 2], "n_states": [8]}, progress=False).fit(train)
    assert one.validation_ is not None
    assert_allclose(one.validation_.least, found.least)


def test_closed_form_choices_without_validation() -> None:
    train, test = oscillation(400, 1), oscillation(400, 2)
    model = SpectralFilter(window=2, validation=None).fit(train)
    assert model.validation_ is None
    assert 5 <= model.n_states_ <= 15
    assert next_error(model.filter(test), test) < 0.03  # measured: 0.017; the noise is 0.010


def test_labels_are_not_numbers() -> None:
    """Validation compares labels as labels: their names make no difference."""
    symbols = hidden_markov(600, 7)
    names = np.array(["b", "d", "a", "c"])
    one = SpectralFilter(Delta(), progress=False).fit(symbols)
    two = SpectralFilter(progress=False).fit(names[symbols])
    assert one.validation_ is not None
    assert two.validation_ is not None
    assert_allclose(one.validation_.errors, two.validation_.errors, rtol=1e-6)
    track = two.filter(names[symbols[:20]])
    assert set(track.mode) <= set(names)
    assert_allclose(track.beliefs(names).sum(axis=1), 1)


# --------------------------------------------------------------------------------------
# The record
# --------------------------------------------------------------------------------------


def test_rows_are_about_the_next_observation(model: SpectralFilter) -> None:
    test = oscillation(60, 8)
    track = model.filter(test)
    assert track.kind == "predicted"
    assert track.mean.shape == track.std.shape == track.mode.shape == (60, 1)
    low, high = track.interval(0.9)
    inside = (low[:-1] <= test[1:]) & (test[1:] <= high[:-1])
    assert inside.mean() > 0.7
    assert track.support.shape == track.log_evidence.shape == (60,)
    assert_allclose(track.log_evidence[0], 0, atol=1e-12)  # nothing came before
    assert_allclose(model.score(test), track.log_evidence.mean())
    assert model.score(test) > 0.3


def test_prediction_begins_with_the_next(model: SpectralFilter) -> None:
    test = oscillation(60, 8)
    ahead = model.predict(test, 4)
    assert ahead.mean.shape == (4, 1)
    track = model.filter(test)
    assert_allclose(ahead.mean[0], track.mean[-1])
    every = model.predict(test, 4, origin="every")
    assert_allclose(every.mean[-1], ahead.mean[-1])
    assert_allclose(model.predict(test, 1, origin="every").mean, track.mean)
    # filtering an unobserved step is predicting one step ahead
    gaps = np.concatenate([test, np.full((3, 1), np.nan)])
    assert_allclose(model.filter(gaps).mean[-4:], ahead.mean)
    assert_allclose(model.filter(gaps).log_evidence[-3:], 0)
    # and far ahead lies the stationary distribution
    far = model.predict(test, 400).mean[-1]
    assert_allclose(far, oscillation(400, 0).mean(axis=0), atol=0.15)


def test_a_batch_is_one_by_one(model: SpectralFilter) -> None:
    parts = [oscillation(n, 20 + n) for n in (30, 12, 21)]
    parts[0][5] = np.nan
    parts[1][0] = np.nan
    together = model.filter(parts)
    assert len(together) == 3
    ahead = model.predict(parts, 3)
    for part, track, later in zip(parts, together, ahead, strict=True):
        alone = model.filter(part)
        assert_allclose(track.mean, alone.mean, atol=1e-12)
        assert_allclose(track.log_evidence, alone.log_evidence, atol=1e-10)
        assert_allclose(later.mean, model.predict(part, 3).mean, atol=1e-12)
    equal = np.stack([oscillation(10, 1), oscillation(10, 2)])
    assert model.filter(equal).mean.shape == (2, 10, 1)


def test_several_training_sequences_have_no_windows_across() -> None:
    parts = [oscillation(60, i) for i in range(4)]
    options: dict[str, Any] = {"n_states": 6, "window": 2, "regularization": 0.1}
    model = SpectralFilter(Gaussian(0.5), **options).fit(parts)
    weights = model.filter(parts[0]).beliefs.weights
    used = np.flatnonzero(np.abs(weights).max(axis=0) > 0)
    assert_array_equal(used, np.concatenate([np.arange(60 * i + 2, 60 * i + 58) for i in range(4)]))


def test_a_stream_is_the_filter(model: SpectralFilter) -> None:
    test = oscillation(25, 9)
    test[7] = np.nan
    track = model.filter(test)
    stream = model.start()
    assert stream.belief is None
    assert stream.predict(2).mean.shape == (2, 1)
    for t, row in enumerate(test):
        belief = stream.step(row)
        assert_allclose(belief.mean(), track.mean[t], atol=1e-12)
    assert_allclose(stream.log_evidence, track.log_evidence.sum())
    assert_allclose(stream.predict(3).mean, model.predict(test, 3).mean)

    before = stream.belief
    assert before is not None
    with pytest.raises(ValueError, match="expected one, got 2 rows"):
        stream.step([0.1, 0.2])
    with pytest.raises(ValueError, match="controls"):
        stream.step([0.1], control=[1.0])
    assert stream.steps == 25
    assert stream.belief is not None
    assert_array_equal(stream.belief.coordinates, before.coordinates)


# --------------------------------------------------------------------------------------
# Guards
# --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("n_states", [2, 5, 20])
def test_ten_thousand_steps_stay_finite(n_states: int) -> None:
    # hardly regularised, and trained on little: without guards these beliefs grow to 95, 1,400 and
    # 42,000 times the length that one can have
    fragile = SpectralFilter(Gaussian(0.3), n_states, regularization=1e-6)
    fragile.fit(oscillation(120, 0))
    test = oscillation(10_000, 1, noise=0.3)
    test[::7] = np.nan
    track = fragile.filter(test)
    assert np.isfinite(track.mean).all()
    assert np.isfinite(track.log_evidence).all()
    b = track.weights.vector
    assert_allclose(b @ fragile._model.eta, 1, atol=1e-6)
    assert np.linalg.norm(b, axis=-1).max() <= fragile._model.radius * (1 + 1e-9)


def test_an_impossible_observation_starts_anew(model: SpectralFilter) -> None:
    test = oscillation(200, 3)
    # jump to another phase: soon all is as if it had begun there
    jumped = np.concatenate([test[:100], oscillation(100, 14)])
    fresh = model.filter(oscillation(100, 14)).mean
    assert_allclose(model.filter(jumped).mean[120:], fresh[20:], atol=0.02)


def test_a_far_observation_is_passed_over(model: SpectralFilter) -> None:
    test = oscillation(30, 3)
    away, missing = test.copy(), test.copy()
    away[10], missing[10] = 50.0, np.nan
    with pytest.warns(DataWarning, match="step 10"):
        track = model.filter(away)
    assert_allclose(track.mean, model.filter(missing).mean)
    with pytest.warns(DataWarning):
        assert model.score(away) < model.score(missing)


# --------------------------------------------------------------------------------------
# Files, arrays, bad input
# --------------------------------------------------------------------------------------


def test_save_and_load(model: SpectralFilter, tmp_path: Path) -> None:
    test = oscillation(40, 5)
    meanmap.save(model, tmp_path / "model.npz")
    again = meanmap.load(tmp_path / "model.npz")
    assert_array_equal(again.filter(test).mean, model.filter(test).mean)
    assert again.n_states_ == model.n_states_
    track = model.filter(test)
    meanmap.save(track, tmp_path / "track.npz")
    assert_array_equal(meanmap.load(tmp_path / "track.npz").mean, track.mean)


def test_tensors_in_tensors_out(model: SpectralFilter) -> None:
    torch = require("torch")
    options: dict[str, Any] = {"n_states": 8, "window": 2, "regularization": 0.1}
    train, test = oscillation(400, 0), oscillation(50, 5)
    test[3] = np.nan
    tensors = SpectralFilter(Gaussian("0.5*median"), **options).fit(torch.asarray(train))
    mean = tensors.filter(torch.asarray(test)).mean
    assert isinstance(mean, torch.Tensor)
    assert_allclose(mean.numpy(), model.filter(test).mean, atol=1e-6)
    SpectralFilter(window=2, progress=False).fit(torch.asarray(train[:100]))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n_states": "many"}, "n_states must be one of 'auto'"),
        ({"n_states": 2.5}, "n_states must be a whole number"),
        ({"n_states": 0}, "n_states must be a whole number"),
        ({"n_states": 50}, "more than the rank of C_21"),
        ({"window": 0}, "window must be a whole number"),
        ({"window": 20}, "window=20 needs 41"),
        ({"regularization": -1}, "regularization must be a number"),
        ({"validation": "all"}, "validation must be one of"),
        ({"grid": {"states": [1]}}, "a key of grid must be one of"),
        ({"grid": {"n_states": []}}, "must be a list of candidates"),
        ({"grid": {"window": [1, "2"]}}, r"grid\['window'\] must be a whole number"),
        ({"kernel": Linear(), "n_states": 1}, r"kernel \+ 1"),
    ],
)
def test_bad_settings(settings: dict[str, Any], words: str) -> None:
    data = np.sin(0.7 * np.arange(40))[:, None]
    with pytest.raises(ValueError, match=words):
        SpectralFilter(**{"validation": None, **settings}).fit(data - data.mean())


def test_bad_sequences(model: SpectralFilter) -> None:
    with pytest.raises(ValueError, match="longest sequence has 2 steps; window=1 needs 3"):
        SpectralFilter().fit([np.zeros((2, 1)), np.ones((2, 1))])
    with pytest.raises(ValueError, match="NaN"):
        SpectralFilter().fit(np.full((30, 1), np.nan))
    with pytest.raises(ValueError, match="features"):
        model.filter(np.zeros((5, 2)))
    with pytest.raises(ValueError, match="every step is missing"):
        model.filter(np.full((5, 1), np.nan))
    with pytest.raises(ValueError, match="steps must be a whole number"):
        model.predict(oscillation(5, 0), 0)
    with pytest.raises(ValueError, match="origin"):
        model.predict(oscillation(5, 0), 1, origin="first")
    with pytest.raises(Exception, match="not fitted"):
        SpectralFilter().filter(np.zeros((5, 1)))


@pytest.mark.parametrize("validation", ["half", None])
@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("value", [0.0, 3.0, 1e6])
def test_a_constant_series_stays_constant(value: float, window: int, validation: Any) -> None:
    """Every belief is the stationary one, which is as long as a belief can be."""
    series = np.full((60, 1), value)
    model = SpectralFilter(window=window, validation=validation).fit(series)
    track = model.filter(series[:10])
    assert_allclose(track.mean, value, rtol=1e-6, atol=1e-9)
    assert_allclose(track.std, 0, atol=1e-6 * max(value, 1))
    assert np.isfinite(track.log_evidence).all()
    assert_allclose(model.predict(series[:10], 3).mean, value, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_very_short_series_give_numbers_or_an_error(window: int, seed: int) -> None:
    for n in range(2 * window + 1, 12):
        series = np.random.default_rng(seed).normal(size=(n, 1))
        try:
            model = SpectralFilter(window=window).fit(series)
        except ValueError as error:
            assert "too few" in str(error)
            continue
        track = model.filter(series)
        for found in (track.mean, track.std, track.log_evidence, model.predict(series, 3).mean):
            assert np.isfinite(found).all()
