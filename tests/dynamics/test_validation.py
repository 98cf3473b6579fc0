"""Half-split validation: what it tries, what it chooses, what it survives."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from meanmap import AdditiveFilter, ConditionalEmbedding, DataWarning, KernelBayesFilter
from meanmap.dynamics import Validation
from meanmap.dynamics.sequences import Sequences
from meanmap.dynamics.training import Training
from meanmap.dynamics.validation import training_folds
from meanmap.kernels import Chordal, Delta, Gaussian, Laplace, Trace
from meanmap.kernels.bandwidths import column_scales
from meanmap.kernels.domains.matrices import nearest_rotations
from meanmap_experiments.camera import load
from meanmap_experiments.systems import ROTATION

STATES, OBSERVATIONS = ROTATION.simulate(120, rng=0)
FILTERS = [KernelBayesFilter, AdditiveFilter]
both = pytest.mark.parametrize("kind", FILTERS)
METHODS = ["squared", "importance", "reweighted"]


def small(kind: Any, **changes: Any) -> Any:
    """A filter with a grid of a few candidates."""
    grid: dict[str, Any] = {
        "state": [0.3, 0.6],
        "observation": [0.5],
        "regularization": [1e-3, 1e-2],
    }
    if kind is KernelBayesFilter:
        grid |= {"posterior_regularization": [1e-2, 1e-1], "power": [0.0, 0.5, 1.0]}
    return kind(**({"grid": grid, "progress": False, "validation": "half"} | changes))


def by_hand(learner: Any, states: Any, observations: Any, candidate: dict[str, Any]) -> float:
    """Learn from one half, filter the other; both ways round."""
    middle = len(states) // 2
    one, other = slice(0, middle), slice(middle, None)
    errors = []
    for train, test in ((one, other), (other, one)):
        again = type(learner)(**(learner.get_params(deep=False) | candidate | {"grid": None}))
        again.set_params(validation=None)
        track = again.fit(states[train], observations[train]).filter(observations[test])
        errors.append(ranked([track.beliefs.weights], states[train], states[test]))
    return float(np.mean(errors))


def ranked(weights: Any, atoms: Any, truth: Any) -> float:
    """The score of normal beliefs whose intervals hold 90% of what is true, by quadrature."""
    p = np.concatenate(weights)
    p = p / p.sum(axis=1, keepdims=True)
    unit = column_scales(atoms)
    mean = p @ atoms
    variance = p @ (atoms - atoms.mean(axis=0)) ** 2 - (mean - atoms.mean(axis=0)) ** 2
    usual = np.median(variance, axis=0)
    variance = np.where(variance > 0.01 * usual, variance, usual)
    deviation = np.sqrt(np.maximum(variance, (1e-3 * unit) ** 2)) / unit
    off = (truth - mean) / unit
    deviation = deviation * np.quantile(abs(off) / deviation, 0.9) / norm.ppf(0.95)
    t = np.linspace(-40, 40, 100_001)
    found = []
    for z, s in zip((off / deviation).ravel(), deviation.ravel(), strict=True):
        square = (norm.cdf(t) - (t >= z)) ** 2
        found.append(s * np.trapezoid(square, t))
    return float(np.mean(found))


@pytest.mark.slow
@both
@pytest.mark.parametrize("method", METHODS)
def test_errors_are_those_of_the_other_half(kind: Any, method: str) -> None:
    if kind is AdditiveFilter and method != "reweighted":
        pytest.skip("no methods")
    changes = {"method": method} if kind is KernelBayesFilter else {}
    learner = small(kind, **changes)
    if method != "reweighted":
        learner.grid = learner.grid | {"power": [1.0], "state": [0.5]}
    found = learner.fit(STATES, OBSERVATIONS).validation_
    assert isinstance(found, Validation)
    assert len(found.candidates) == len(found.errors)
    sizes = [len(values) for values in learner.grid.values()]
    assert len(found.candidates) == np.prod(sizes)
    for i in {0, len(found.errors) // 3, len(found.errors) - 1, int(np.argmin(found.errors))}:
        expected = by_hand(learner, STATES, OBSERVATIONS, found.candidates[i])
        assert_allclose(found.errors[i], expected, rtol=1e-3)
    assert found.least == found.errors.min()
    assert found.best == found.candidates[int(np.argmin(found.errors))]


@both
def test_the_best_is_what_is_used(kind: Any) -> None:
    learner = small(kind).fit(STATES, OBSERVATIONS)
    best = dict(learner.validation_.best)
    fixed = kind(**(best | {"validation": None})).fit(STATES, OBSERVATIONS)
    assert_allclose(
        learner.filter(OBSERVATIONS[:20]).mean, fixed.filter(OBSERVATIONS[:20]).mean, atol=1e-10
    )
    assert learner.regularization_ == best["regularization"]
    assert learner.kernel_state_ == best["kernel_state"].resolve(STATES)
    if kind is KernelBayesFilter:
        assert learner.posterior_regularization_ == best["posterior_regularization"]
        assert learner.power_ == best["power"]


@both
def test_what_is_given_is_not_searched(kind: Any) -> None:
    learner = kind(Gaussian(0.5), Gaussian(0.7), progress=False).fit(STATES, OBSERVATIONS)
    kernels = {(c["kernel_state"], c["kernel_observation"]) for c in learner.validation_.candidates}
    assert kernels == {(Gaussian(0.5), Gaussian(0.7))}
    assert learner.kernel_state_ == Gaussian(0.5)
    fixed = {"regularization": 1e-3}
    if kind is KernelBayesFilter:
        fixed |= {"posterior_regularization": 1e-2, "power": 0.5}
    everything = kind(Gaussian(0.5), Gaussian(0.7), **fixed).fit(STATES, OBSERVATIONS)
    assert everything.validation_ is None
    assert everything.regularization_ == 1e-3
    none = kind(validation=None).fit(STATES, OBSERVATIONS)
    assert none.validation_ is None
    if kind is KernelBayesFilter:
        assert none.power_ == 1.0
        part: Any = kind(Gaussian(0.5), Gaussian(0.7), power=0.25, progress=False)
        part.fit(STATES, OBSERVATIONS)
        assert {c["power"] for c in part.validation_.candidates} == {0.25}


@both
def test_kernels_in_the_grid(kind: Any) -> None:
    grid = {"state": [Laplace(1.0), 0.5], "observation": [Gaussian(0.7)], "regularization": [1e-3]}
    learner = kind(grid=grid, progress=False).fit(STATES, OBSERVATIONS)
    tried = [c["kernel_state"] for c in learner.validation_.candidates]
    assert Laplace(1.0) in tried
    assert any(isinstance(k, Gaussian) for k in tried)
    assert learner.kernel_observation_ == Gaussian(0.7)


@both
def test_jobs_and_runs_agree(kind: Any) -> None:
    one = small(kind, n_jobs=1).fit(STATES, OBSERVATIONS)
    two = small(kind, n_jobs=2).fit(STATES, OBSERVATIONS)
    again = small(kind).fit(STATES, OBSERVATIONS)
    assert_allclose(two.validation_.errors, one.validation_.errors, rtol=1e-9)
    assert_array_equal(again.validation_.errors, one.validation_.errors)
    assert two.validation_.best == one.validation_.best
    assert_allclose(two.filter(OBSERVATIONS).mean, one.filter(OBSERVATIONS).mean, atol=1e-10)


@both
def test_several_sequences_are_dealt_out(kind: Any) -> None:
    cuts = [slice(0, 30), slice(30, 70), slice(70, 95), slice(95, 120)]
    states, observations = [STATES[c] for c in cuts], [OBSERVATIONS[c] for c in cuts]
    learner = small(kind).fit(states, observations)
    i = int(np.argmin(learner.validation_.errors))
    candidate = learner.validation_.candidates[i]
    errors = []
    for train, test in (((0, 2), (1, 3)), ((1, 3), (0, 2))):
        model = kind(**(candidate | {"validation": None}))
        model.fit([states[j] for j in train], [observations[j] for j in train])
        weights = [model.filter(observations[j]).beliefs.weights for j in test]
        truth = np.concatenate([states[j] for j in test])
        errors.append(ranked(weights, np.concatenate([states[j] for j in train]), truth))
    assert_allclose(learner.validation_.errors[i], np.mean(errors), rtol=1e-3)


@both
def test_a_candidate_that_fails_is_survived(kind: Any) -> None:
    grid = {"state": [Gaussian(0.5), Chordal(0.5)], "observation": [0.5], "regularization": [1e-3]}
    learner = kind(grid=grid, progress=False).fit(STATES, OBSERVATIONS)
    assert learner.kernel_state_ == Gaussian(0.5)
    errors = learner.validation_.errors
    assert np.isinf(errors).any()
    assert np.isfinite(errors).any()
    assert "Gaussian" in repr(learner.validation_)


@both
def test_too_little_to_split(kind: Any) -> None:
    """Fewer than twenty steps: the closed-form choices, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner = kind(progress=False).fit(STATES[:12], OBSERVATIONS[:12])
    assert learner.validation_ is None
    assert np.isfinite(learner.filter(OBSERVATIONS[:5]).mean).all()


@both
@pytest.mark.parametrize("part", ["numbers", "labels"])
def test_states_of_several_parts_are_validated_too(kind: Any, part: str) -> None:
    other: Any = STATES[:, :1] if part == "numbers" else np.where(STATES[:, 0] > 0, "r", "l")
    learner = small(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.fit((STATES, other), OBSERVATIONS)
    assert learner.validation_ is not None
    assert np.isfinite(learner.validation_.errors).all()


@both
def test_numbers_as_labels_are_labels(kind: Any) -> None:
    """With a delta kernel the number of a label means nothing, for validation either."""
    rng = np.random.default_rng(0)
    state = np.cumsum(rng.random(150) < 0.3) % 3
    noisy = np.where(rng.random(150) < 0.2, rng.integers(3, size=150), state)
    grid = {"regularization": [1e-4, 1e-2, 1.0]}
    errors = []
    for names in (np.array([0, 1, 2]), np.array([10, -3, 1]), np.array(["a", "b", "c"])):
        learner = kind(Delta(), Delta(), grid=grid, progress=False).fit(names[state], noisy)
        errors.append(learner.validation_.errors)
    assert_allclose(errors[1], errors[0], rtol=1e-6)
    assert_allclose(errors[2], errors[0], rtol=1e-6)


def test_rotations_try_chordal_and_trace() -> None:
    angle = np.cumsum(np.full(80, 0.2))
    R = np.zeros((80, 3, 3))
    R[:, 0, 0] = R[:, 1, 1] = np.cos(angle)
    R[:, 1, 0], R[:, 0, 1], R[:, 2, 2] = np.sin(angle), -np.sin(angle), 1.0
    o = R[:, 0] + 0.1 * np.random.default_rng(0).normal(size=(80, 3))
    for kind in FILTERS:
        grid = {"observation": [0.5], "regularization": [1e-3]}
        learner = kind(grid=grid, progress=False).fit(R, o)
        tried = {type(c["kernel_state"]) for c in learner.validation_.candidates}
        assert Chordal in tried
        found = learner.filter(o[:10]).mode
        assert_allclose(np.swapaxes(found, 1, 2) @ found, np.tile(np.eye(3), (10, 1, 1)), atol=1e-9)
        given = kind(Trace(), grid={"observation": [0.5]}, progress=False).fit(R, o)
        assert given.kernel_state_ == Trace()


@both
def test_controls_are_validated_with(kind: Any) -> None:
    rng = np.random.default_rng(0)
    u, x = rng.choice([-1.0, 1.0], size=(120, 1)), np.zeros((120, 1))
    for t in range(119):
        x[t + 1] = 0.8 * x[t] + 0.5 * u[t] + 0.1 * rng.normal(size=1)
    o = x + 0.4 * rng.normal(size=x.shape)
    known = small(kind).fit(x, o, u).validation_
    blind = small(kind).fit(x, o).validation_
    assert known.least < 0.9 * blind.least


@both
def test_progress_and_repr_and_picture(kind: Any, capsys: pytest.CaptureFixture[str]) -> None:
    learner = small(kind).fit(STATES, OBSERVATIONS)
    assert capsys.readouterr() == ("", "")
    found = learner.validation_
    assert f"{len(found.errors)} candidates" in repr(found)
    assert "regularization=" in repr(found)
    small(kind, progress=True).fit(STATES[:60], OBSERVATIONS[:60])
    shown = "".join(capsys.readouterr())
    assert "validation" in shown
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    assert found.plot() is not None


def test_validation_is_no_worse_than_most_of_what_it_tried() -> None:
    """Chosen on the training data, judged on new ones: among the better third of candidates."""
    states, observations = ROTATION.simulate(400, rng=3)
    grid = {
        "state": [0.25, 0.5],
        "observation": [0.5],
        "regularization": [1e-4, 1e-2],
        "posterior_regularization": [1e-3, 1e-1],
        "power": [0.0, 0.5, 1.0],
    }
    chosen: Any = KernelBayesFilter(grid=grid, progress=False).fit(states[:200], observations[:200])

    def error(model: Any) -> float:
        gap = model.filter(observations[200:]).mean - states[200:]
        return float((gap**2).sum(axis=1).mean())

    others = []
    for values in itertools.islice(chosen.validation_.candidates, 0, None, 2):
        others.append(
            error(
                KernelBayesFilter(**values, validation=None).fit(states[:200], observations[:200])
            )
        )
    assert error(chosen) <= np.quantile(others, 1 / 3)


def turned(angles: Any) -> Any:
    """Rotations about the z axis."""
    R = np.zeros((len(angles), 3, 3))
    R[:, 0, 0] = R[:, 1, 1] = np.cos(angles)
    R[:, 1, 0], R[:, 0, 1], R[:, 2, 2] = np.sin(angles), -np.sin(angles), 1.0
    return R


def test_short_recordings_are_left_out_in_pieces() -> None:
    """Halves of a short recording may have nothing in common; pieces from all over it do."""

    def numbered(*lengths: int) -> Training:
        rows = np.arange(float(sum(lengths)))[:, None]
        sequences = Sequences(rows, lengths, len(lengths) == 1)
        return Training(sequences, sequences, None)

    parts = training_folds("auto", numbered(100))
    assert len(parts) == 5
    for train, test in parts:
        left = np.asarray(test.states.points).ravel()
        rest = np.asarray(train.states.points).ravel()
        assert_array_equal(np.sort(np.concatenate([left, rest])), np.arange(100))
        assert test.states.lengths == (10, 10)
        assert left.max() - left.min() > 50
    assert len(training_folds("auto", numbered(50, 50))) == 2
    assert len(training_folds("auto", numbered(500))) == 2
    assert len(training_folds("half", numbered(100))) == 2
    assert len(training_folds(4, numbered(100))) == 4


def test_a_state_without_dynamics_is_regressed_on_its_observation() -> None:
    """The kernel of the observations and λ are those that the conditional by itself learns."""
    rng = np.random.default_rng(0)
    angles = rng.uniform(0, 2 * np.pi, size=80)
    R = turned(angles)
    o = np.stack([np.cos(angles), np.sin(angles), rng.normal(size=80)], axis=1)
    o[:, :2] += 0.2 * rng.normal(size=(80, 2))
    learner = KernelBayesFilter(progress=False).fit(R, o)
    regression = ConditionalEmbedding().fit(o, R)
    assert learner.power_ == 0.0
    assert learner.kernel_observation_ == regression.kernel_x_
    assert learner.posterior_regularization_ == regression.regularization_
    assert learner.validation_.regression <= 1.2 * learner.validation_.least
    assert "by regression" in repr(learner.validation_)
    # far from all observations too, where a filter with dynamics would predict
    far = np.array([[50.0, 50.0, 0.0]])
    with pytest.warns(DataWarning):
        found = learner.filter(np.concatenate([o[:3], far])).mean
        expected = regression.predict(np.concatenate([o[:3], far]))
    assert_allclose(found, expected, atol=1e-8)
    # with a setting of one's own there is no other way than the one asked for
    given = KernelBayesFilter(power=1.0, progress=False).fit(R, o)
    assert given.power_ == 1.0
    assert given.validation_.regression is None


@pytest.mark.slow
@pytest.mark.parametrize("noise", [1e-3, 1e-1])
def test_few_frames_of_a_camera_are_no_worse_than_regression(noise: float) -> None:
    """Halves of 100 frames show different places: the filter that they chose was 1.6 to 1.9 × as
    far off."""
    rotations, frames = load("room")
    frames = frames + np.sqrt(noise) * np.random.default_rng((0, 2009)).normal(size=frames.shape)
    train, test = slice(0, 100), slice(1800, 1900)
    found = KernelBayesFilter(progress=False).fit(rotations[train], frames[train])
    regression = ConditionalEmbedding().fit(frames[train], rotations[train])

    def error(means: Any) -> float:
        gap = nearest_rotations(means) - rotations[test]
        return float(np.sqrt((gap**2).sum(axis=(1, 2))).mean())

    filtered = error(found.filter(frames[test], beliefs=False).mean)
    assert filtered <= 1.05 * error(regression.predict(frames[test]))
