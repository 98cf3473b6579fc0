"""Beliefs by moments: against a filter written out by hand, Kalman's, and what can go wrong."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from meanmap import KernelBayesFilter, load, save
from meanmap.dynamics.belief_shapes import NormalShape, normal_cloud
from meanmap.dynamics.system import LearnedFunction, MomentBelief, SigmaPoints, least_squares
from meanmap.embeddings import embed
from meanmap.kernels import Delta, Gaussian
from meanmap_experiments.systems import ROTATION

A = 0.95 * np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])
NOISE = 0.5


def simulate(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A damped rotation of variance 1, seen in its first coordinate."""
    rng = np.random.default_rng(seed)
    x, states = rng.normal(size=2), []
    for _ in range(n):
        states.append(x)
        x = A @ x + np.sqrt(1 - 0.95**2) * rng.normal(size=2)
    s = np.array(states)
    return s, s[:, :1] + NOISE * rng.normal(size=(n, 1))


def kalman(observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Filtered and smoothed means by the true equations."""
    C, Q, R = np.array([[1.0, 0.0]]), (1 - 0.95**2) * np.eye(2), NOISE**2
    x, P, kept = np.zeros(2), np.eye(2), []
    for t, y in enumerate(observations):
        if t:
            x, P = A @ x, A @ P @ A.T + Q
        ahead = x, P
        gain = P @ C.T / (C @ P @ C.T + R)
        x, P = x + (gain * (y - C @ x)).ravel(), P - gain @ C @ P
        kept.append((x, P, *ahead))
    later, found = kept[-1][0], [kept[-1][0]]
    for (x, P, *_), (*_, ahead_x, ahead_P) in zip(kept[-2::-1], kept[:0:-1], strict=True):
        later = x + P @ A.T @ np.linalg.solve(ahead_P, later - ahead_x)
        found.append(later)
    return np.array([part[0] for part in kept]), np.array(found[::-1])


STATES, OBSERVATIONS = simulate(400, 0)
TRUTH, NEW = simulate(200, 1)


@pytest.fixture(scope="module")
def model() -> Any:
    return KernelBayesFilter(method="moments", validation=None).fit(STATES, OBSERVATIONS)


def by_hand(system: Any, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One sequence, one point after another: means and covariances."""
    d = 2
    w = np.array([1 - d / 3] + [1 / 6] * 2 * d)
    v = w.copy()
    v[0] += 2

    def through(f: LearnedFunction, x: np.ndarray, P: np.ndarray) -> Any:
        steps = np.sqrt(3) * np.linalg.cholesky(P).T
        points = [x, *(x + step for step in steps), *(x - step for step in steps)]
        images, growth = [], []
        for point in points:
            mean, more = f.at(point[None])
            images.append(mean[0])
            growth.append(more[0])
        mean = sum(a * y for a, y in zip(w, images, strict=True))
        S = sum(a * np.outer(y - mean, y - mean) for a, y in zip(v, images, strict=True))
        S = S + f.noise * (w @ growth)
        cross = sum(
            a * np.outer(p - x, y - mean) for a, p, y in zip(v, points, images, strict=True)
        )
        return mean, S, cross

    x, P = system.states.mean(axis=0), np.cov(system.states.T, bias=True)
    means, spreads = [], []
    for t, y in enumerate(observations):
        if t:
            x, P, _ = through(system.transition, x, P)
        expected, S, cross = through(system.observation, x, P)
        gain = cross @ np.linalg.inv(S)
        x, P = x + gain @ (y - expected), P - gain @ S @ gain.T
        means.append(x)
        spreads.append(P)
    return np.array(means), np.array(spreads)


def test_filter_by_hand(model: Any) -> None:
    means, spreads = by_hand(model._model.system, NEW[:30])
    track = model.filter(NEW[:30])
    assert_allclose(track.mean, means, atol=1e-7)
    variances = np.diagonal(spreads, axis1=1, axis2=2)
    assert_allclose(track.std, np.sqrt(variances), rtol=1e-6)


def test_near_the_kalman_filter_and_smoother(model: Any) -> None:
    filtered, smoothed = kalman(NEW)

    def error(mean: np.ndarray) -> float:
        return float(((mean - TRUTH) ** 2).mean())

    # measured: 1.02 and 1.03; fixed seeds
    track, back = model.filter(NEW), model.smooth(NEW)
    assert error(track.mean) < 1.12 * error(filtered)
    assert error(back.mean) < 1.2 * error(smoothed)
    assert error(back.mean) < error(track.mean)
    low, high = track.interval(0.9)
    assert 0.8 < np.mean((low <= TRUTH) & (high >= TRUTH)) < 0.97


def test_beliefs_streams_and_tracks_agree(model: Any) -> None:
    track = model.filter(NEW[:20])
    assert_allclose(track.beliefs.mean(), track.mean, atol=1e-9)
    assert_allclose(track.beliefs.std(), track.std, rtol=1e-9)
    assert_allclose(track.beliefs.weights.sum(axis=1), 1, atol=1e-9)
    assert_allclose(track.beliefs.weights @ STATES, track.mean, atol=1e-9)
    assert_allclose(track.beliefs.quantile(0.05), track.interval(0.9)[0])
    stream = model.start()
    for row in NEW[:20]:
        belief = stream.step(row)
    assert_allclose(belief.mean(), track.mean[-1], atol=1e-9)
    assert_allclose(belief.std(), track.std[-1], rtol=1e-9)
    assert_allclose(stream.log_evidence, track.log_evidence.sum(), rtol=1e-9)
    assert_allclose(stream.predict(3).mean, model.predict(NEW[:20], 3).mean, atol=1e-9)
    every = model.predict(NEW[:20], 2, origin="every")
    assert_allclose(every.mean[-1], model.predict(NEW[:20], 2).mean[-1], atol=1e-9)
    alone = model.filter([NEW[:20], NEW[20:35]])
    assert_allclose(alone[0].mean, track.mean, atol=1e-9)
    assert_allclose(alone[1].interval(0.9)[1], model.filter(NEW[20:35]).interval(0.9)[1])
    assert np.isnan(alone.quantile(0.5)[1, 15:]).all()
    short = model.filter(NEW[:20], beliefs=False)
    assert_allclose(short.std, track.std)


def test_gaps_widen_a_belief_up_to_all_states(model: Any) -> None:
    rows = NEW[:80].copy()
    rows[10:] = np.nan
    track = model.filter(rows)
    assert (track.std[12] > track.std[9]).all()
    assert (track.std <= 1.5 * STATES.std(axis=0)).all()
    assert track.log_evidence[10:].sum() == 0


def test_a_stream_goes_through_unobserved_steps(model: Any) -> None:
    _, seen = simulate(4, 7)
    seen[[0, 2, 3]] = np.nan
    stream = model.start()
    beliefs = [stream.step(row) for row in (None, seen[1], None, seen[3])]
    track = model.filter(seen)
    assert_allclose([belief.mean() for belief in beliefs], track.mean)
    assert_allclose(stream.log_evidence, track.log_evidence.sum())


def test_a_prior_is_its_moments(model: Any) -> None:
    rng = np.random.default_rng(0)
    sample = np.array([1.0, -1.0]) + 0.1 * rng.normal(size=(500, 2))
    for prior in (sample, embed(sample, model.kernel_state_)):
        belief = model.start(prior).predict(1)
        assert_allclose(belief.mean[0], sample.mean(axis=0), atol=0.02)
        assert_allclose(belief.std[0], sample.std(axis=0), rtol=0.1)


def test_a_lost_track_is_found_again(model: Any) -> None:
    """After a jump that the dynamics exclude, a belief starts anew."""
    system = model._model.system
    far = np.array([[40.0, 40.0]])
    belief = MomentBelief(far, 1e-4 * np.eye(2)[None])
    for row in NEW[:8]:
        belief = system.condition(system.predict(belief, None)[0], row[None])[0]
    assert (abs(belief.mean) < 5).all()


def test_controls() -> None:
    rng = np.random.default_rng(0)
    push = rng.choice([-0.5, 0.5], size=(400, 1))
    place = np.zeros((400, 1))
    for t in range(399):
        place[t + 1] = 0.6 * place[t] + push[t] + 0.1 * rng.normal()
    reading = place + 0.3 * rng.normal(size=(400, 1))
    driven = KernelBayesFilter(method="moments", validation=None)
    driven.fit(place[:300], reading[:300], push[:300])
    right, left = (
        driven.predict(reading[300:], 1, np.vstack([push[300:399], [[u]]])).mean[0, 0]
        for u in (0.5, -0.5)
    )
    assert_allclose(right - left, 1.0, atol=0.1)
    after = driven.filter(reading[300:], push[300:])
    assert np.mean((after.mean - place[300:]) ** 2) < 0.2 * np.mean((reading - place)[300:] ** 2)


@pytest.mark.slow
def test_chosen_unless_weights_score_better() -> None:
    found = KernelBayesFilter(progress=False).fit(STATES, OBSERVATIONS)
    assert found.method_ == "moments"
    assert found.validation_.moments < found.validation_.least
    assert "by moments" in repr(found.validation_)
    given = KernelBayesFilter(Gaussian(0.5), Gaussian(0.5), power=1.0, progress=False)
    assert given.fit(STATES, OBSERVATIONS).method_ == "reweighted"
    assert given.validation_.moments is None


def test_only_vectors_have_moments() -> None:
    labels = np.where(STATES[:100, 0] > 0, "r", "l")
    with pytest.raises(ValueError, match="vectors"):
        KernelBayesFilter(Delta(), method="moments").fit(labels, OBSERVATIONS[:100])
    with pytest.raises(ValueError, match="moments"):
        KernelBayesFilter(method="best").fit(STATES, OBSERVATIONS)
    fine = KernelBayesFilter(progress=False).fit(labels, OBSERVATIONS[:100])
    assert fine.method_ == "reweighted"


def test_saving(model: Any, tmp_path: Any) -> None:
    save(model, tmp_path / "filter")
    again = load(tmp_path / "filter")
    assert_allclose(again.filter(NEW[:20]).mean, model.filter(NEW[:20]).mean, atol=1e-12)
    track = model.filter(NEW[:20])
    save(track, tmp_path / "track")
    assert_allclose(load(tmp_path / "track").interval(0.9)[0], track.interval(0.9)[0])


def test_a_trend_goes_on_outside_the_data() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 1))
    y = 2 * x + 1 + 0.1 * rng.normal(size=(200, 1))
    found = LearnedFunction.learn(x, y)
    mean, growth = found.at(np.array([[0.0], [6.0]]))
    assert_allclose(mean[:, 0], [1, 13], atol=0.5)
    assert growth[0] < 1.1
    assert growth[1] >= growth[0]
    assert_allclose(np.sqrt(found.noise), 0.1, rtol=0.2)


def test_a_trend_by_hand() -> None:
    """Columns that repeat each other share their coefficient; leverages are the projection's."""
    rng = np.random.default_rng(0)
    D, y = rng.normal(size=(30, 3)), rng.normal(size=(30, 2))
    D = np.hstack([D, D[:, :1]])
    coefficients, leverages = least_squares(D, y)
    assert_allclose(coefficients, np.linalg.lstsq(D, y, rcond=1e-12)[0], atol=1e-12)
    Q = np.linalg.qr(D[:, :3])[0]
    assert_allclose(leverages, np.diagonal(Q @ Q.T), atol=1e-12)


def test_sigma_points_have_the_moments() -> None:
    rng = np.random.default_rng(0)
    for d in (1, 2, 3, 5):
        root = rng.normal(size=(4, d, d))
        belief = MomentBelief(rng.normal(size=(4, d)), root @ root.swapaxes(1, 2))
        points = SigmaPoints(d)
        at = points.around(belief)
        assert_allclose(np.einsum("p,bpd->bd", points.weights, at), belief.mean)
        away = at - belief.mean[:, None]
        covariance = np.einsum("p,bpd,bpe->bde", points.weights, away, away)
        assert_allclose(covariance, belief.covariance, atol=1e-9)
        assert (points.weights >= 0).all()


def test_normal_shape() -> None:
    covariance = np.array([[[1.0, 0.6], [0.6, 2.0]]])
    shape = NormalShape(np.array([[1.0, -1.0]]), covariance)
    points, p = shape.belief(0)
    assert_allclose(p @ points, [1, -1], atol=1e-9)
    assert_allclose(np.cov(points.T, bias=True), covariance[0], atol=1e-9)
    assert_allclose(normal_cloud(2).T @ normal_cloud(2) / len(p), np.eye(2), atol=1e-9)
    assert_allclose(shape.quantile(np.array([0.5]))[0], shape.mean)
    assert_allclose(
        shape.density(0, np.array([[1.0, -1.0]]), None),
        1 / (2 * np.pi * np.sqrt(np.linalg.det(covariance[0]))),
    )


def test_intervals_of_weights_are_calibrated() -> None:
    """On the papers' rotation intervals by weights alone hold 98% instead of 90."""
    states, observations = ROTATION.simulate(300, rng=0)
    truth, new = ROTATION.simulate(400, rng=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        track = KernelBayesFilter(method="reweighted", progress=False)
        track = track.fit(states, observations).filter(new)
    low, high = track.interval(0.9)
    assert 0.85 < np.mean((low <= truth) & (truth <= high)) < 0.96
    assert_allclose(track.beliefs.std(), track.std, rtol=1e-6)
    assert_allclose(track.beliefs.quantile(0.05), low, atol=1e-9)


def test_fifty_steps_of_noise_are_followed_along_a_line() -> None:
    """Left-out errors of so few rows differ by chance: they once chose a function that swings."""
    rng = np.random.default_rng(0)
    state = np.zeros((250, 1))
    state[0] = rng.normal()
    for t in range(249):
        state[t + 1] = 0.95 * state[t] + (1 - 0.95**2) ** 0.5 * rng.normal()
    seen = state + rng.normal(size=state.shape)
    system = KernelBayesFilter(method="moments", progress=False).fit(state[:50], seen[:50])
    learned = system._model.system
    assert learned.observation.trend is not None
    assert learned.transition.trend is not None
