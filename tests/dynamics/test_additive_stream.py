"""An additive filter that takes sequences one after the other: the same as one fit on all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from array_libraries import INSTALLED, Library, host
from meanmap import AdditiveFilter, load, save
from meanmap.kernels import Delta, Gaussian
from meanmap.spaces import PivotedCholesky, Space
from meanmap_experiments.systems import ROTATION
from oracles import Array

LENGTHS = (200, 150, 2, 300)


def runs(seed: int = 0) -> tuple[list[Array], list[Array], list[Array]]:
    """States, observations and controls, of which the state's second number knows."""
    rng = np.random.default_rng(seed)
    pairs = [ROTATION.simulate(n, rng) for n in LENGTHS]
    controls = [rng.normal(size=(n, 1)) for n in LENGTHS]
    return [p[0] for p in pairs], [p[1] for p in pairs], controls


def spaces(states: list[Array], observations: list[Array]) -> tuple[Space, Space]:
    basis = PivotedCholesky(tol=1e-7)
    return (
        Space(Gaussian(0.8), basis).fit(np.concatenate(states)),
        Space(Gaussian(1.0), basis).fit(np.concatenate(observations)),
    )


def learner(basis: Any, **changes: Any) -> AdditiveFilter:
    plain: dict[str, Any] = {
        "kernel_state": Gaussian(0.8),
        "kernel_observation": Gaussian(1.0),
        "regularization": 1e-4,
        "basis": basis,
        "validation": None,
    }
    return AdditiveFilter(**(plain | changes))


def same_tracks(found: Any, expected: Any) -> None:
    assert_allclose(found.mean, expected.mean, rtol=0, atol=1e-10)
    # likelihoods stand on the states that are kept, here both ends of each transition
    assert_allclose(found.log_evidence.sum(), expected.log_evidence.sum(), rtol=0.03)


@pytest.mark.parametrize("centered", [False, True])
def test_sequences_in_batches_are_all_of_them_at_once(centered: bool) -> None:
    states, observations, _ = runs()
    basis = spaces(states, observations)
    whole = learner(basis, centered=centered).fit(states, observations)
    parts = learner(basis, centered=centered).partial_fit(states[0], observations[0])
    parts.partial_fit(states[1:3], observations[1:3]).partial_fit(states[3], observations[3])
    test = ROTATION.simulate(60, np.random.default_rng(9))[1]
    test[[5, 20, 21]] = np.nan
    same_tracks(parts.filter(test), whole.filter(test))
    ahead = parts.predict(test, 7).mean, whole.predict(test, 7).mean
    assert_allclose(*ahead, rtol=0, atol=1e-10)
    squares = [m.filter(test).beliefs.expect(lambda s: s * s) for m in (parts, whole)]
    assert_allclose(*squares, rtol=0, atol=1e-10)
    step = parts.transition_.predict(states[0][:9]), whole.transition_.predict(states[0][:9])
    assert_allclose(*step, rtol=0, atol=1e-10)


def test_merging_adds_what_both_have_seen() -> None:
    states, observations, _ = runs()
    basis = spaces(states, observations)
    whole = learner(basis).fit(states, observations)
    left = learner(basis).fit(states[:2], observations[:2])
    right = learner(basis).fit(states[2], observations[2]).partial_fit(states[3], observations[3])
    test = observations[0][:50]
    before = right.filter(test).mean
    same_tracks(left.merge(right).filter(test), whole.filter(test))
    assert_array_equal(right.filter(test).mean, before)


def test_with_controls() -> None:
    states, observations, controls = runs()
    basis = spaces(states, observations)
    known = {"kernel_control": Gaussian(1.0)}
    first = learner(basis, **known).fit(states[0], observations[0], controls[0])
    test = observations[1][:40], controls[1][:40]
    alone = first.filter(*test).mean
    parts = first.partial_fit(states[1:], observations[1:], controls[1:])
    # pairs of state and control have a space of their own, that of the first call: the dense
    # formula in its coordinates
    move = parts.transition_
    before = [(s[:-1], c[:-1]) for s, c in zip(states, controls, strict=True)]
    source = np.concatenate([move.space_x_.transform(pair) for pair in before])
    after = np.concatenate([basis[0].transform(s[1:]) for s in states])
    seen = np.concatenate([basis[1].transform(o[1:]) for o in observations])
    omega = np.concatenate([source, seen], axis=1)
    C = omega.T @ omega / len(omega) + 1e-4 * np.eye(omega.shape[1])
    expected = np.linalg.solve(C, omega.T @ after / len(omega)).T
    assert_allclose(parts._model.matrix, expected, rtol=0, atol=1e-8)
    assert not np.allclose(parts.filter(*test).mean, alone)


def test_states_that_are_labels() -> None:
    rng = np.random.default_rng(3)
    states = [np.array(list("abc"))[rng.integers(0, 3, size=n)] for n in (80, 60)]
    observations = [(s == "a")[:, None] + 0.3 * rng.normal(size=(len(s), 1)) for s in states]
    space = Space(Gaussian(0.5), PivotedCholesky(1e-7)).fit(np.concatenate(observations))
    labels = Space(Delta()).fit(np.concatenate(states))
    plain = {"kernel_state": Delta(), "kernel_observation": Gaussian(0.5)}
    whole = learner((labels, space), **plain).fit(states, observations)
    parts = learner((labels, space), **plain).fit(states[0], observations[0])
    parts.partial_fit(states[1], observations[1])
    for letter in "abc":
        found, expected = (
            m.filter(observations[0][:20]).beliefs.expect(lambda s, a=letter: (s == a) * 1.0)
            for m in (parts, whole)
        )
        assert_allclose(found, expected, rtol=0, atol=1e-9)


def test_quantiles_and_smoothing_stand_on_a_sample() -> None:
    rng = np.random.default_rng(5)
    train, test = ROTATION.simulate(6000, rng), ROTATION.simulate(150, rng)
    basis = spaces([train[0][:500]], [train[1][:500]])
    whole = learner(basis).fit(train[0][:3000], train[1][:3000])
    parts = learner(basis)
    for rows in np.array_split(np.arange(3000), 6):
        parts.partial_fit(train[0][rows], train[1][rows])
    widths = [np.diff(m.filter(test[1]).interval(0.9), axis=0).mean() for m in (parts, whole)]
    assert widths[0] == pytest.approx(widths[1], rel=0.1)
    errors = [((m.smooth(test[1]).mean - test[0]) ** 2).mean() for m in (parts, whole)]
    assert errors[0] < 1.2 * errors[1]


def test_a_stream_is_saved_and_goes_on(tmp_path: Path) -> None:
    states, observations, _ = runs()
    model = learner(spaces(states, observations)).fit(states[0], observations[0])
    model.partial_fit(states[1], observations[1])
    save(model, tmp_path / "filter.npz")
    again = load(tmp_path / "filter.npz")
    for one in (model, again):
        one.partial_fit(states[3], observations[3])
    test = observations[0][:30]
    assert_array_equal(again.filter(test).mean, model.filter(test).mean)


def test_what_has_begun_keeps_its_model() -> None:
    states, observations, _ = runs()
    model = learner(spaces(states, observations)).fit(states[0], observations[0])
    expected = model.filter(observations[1][:4]).mean
    live = model.start()
    live.step(observations[1][0])
    model.partial_fit(states[3], observations[3])
    for row in observations[1][1:4]:
        belief = live.step(row)
    assert_allclose(belief.mean(), expected[3], atol=1e-12)


@pytest.mark.parametrize(
    "name", [n if n != "jax" else pytest.param(n, marks=pytest.mark.slow) for n in INSTALLED]
)
def test_arrays_of_every_library(name: str) -> None:
    there = Library(name)
    states, observations, _ = runs()
    small = [(s[:60], o[:60]) for s, o in zip(states, observations, strict=True) if len(s) > 60]
    own = AdditiveFilter(regularization=1e-4, validation=None)
    for s, o in small:
        own.partial_fit(s, o)
    theirs = AdditiveFilter(regularization=1e-4, validation=None)
    for s, o in small:
        theirs.partial_fit(there.asarray(s), there.asarray(o))
    test = observations[0][60:90]
    found = theirs.filter(there.asarray(test)).mean
    assert there.owns(found)
    assert_allclose(host(found), own.filter(test).mean, atol=1e-6)


def test_what_does_not_go_together_is_refused_and_nothing_changes() -> None:
    states, observations, controls = runs()
    basis = spaces(states, observations)
    model = learner(basis).fit(states[0], observations[0])
    before = model.filter(observations[1][:9]).mean
    with pytest.raises(ValueError, match="fitted without them"):
        model.partial_fit(states[1], observations[1], controls[1])
    with pytest.raises(ValueError, match="1 features, but the training data has 2"):
        model.partial_fit(states[1][:, :1], observations[1])
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(np.full((5, 2), np.nan), observations[1][:5])
    with pytest.raises(ValueError, match="at least 2"):
        model.partial_fit(states[1][:1], observations[1][:1])
    with pytest.raises(TypeError, match="AdditiveFilter"):
        model.merge(42)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="coordinates for the states"):
        model.merge(learner(spaces(states[1:], observations)).fit(states[0], observations[0]))
    with pytest.raises(ValueError, match="regularization_"):
        model.merge(learner(basis, regularization=1e-3).fit(states[0], observations[0]))
    with pytest.raises(ValueError, match="centered"):
        model.merge(learner(basis, centered=True).fit(states[0], observations[0]))
    assert_array_equal(model.filter(observations[1][:9]).mean, before)
