"""What comes out of a filter: records, streams, pictures, files, tensors."""

from __future__ import annotations

import dataclasses
import warnings
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.transform import Rotation
from sklearn.base import clone

import meanmap
import oracles as o
from interrupts import interrupt_at
from meanmap import AdditiveFilter, DataWarning, Embedding, KernelBayesFilter, SpectralFilter
from meanmap.dynamics import Track, model
from meanmap.kernels import Chordal, Delta, Gaussian
from meanmap_experiments.systems import ROTATION
from optional_packages import require
from oracles import Array

STATES, OBSERVATIONS = ROTATION.simulate(150, rng=0)
NEW = ROTATION.simulate(30, rng=1)[1]
GAPS = NEW.copy()
GAPS[[0, 7, 8, 29]] = np.nan
FILTERS = [KernelBayesFilter, AdditiveFilter]
both = pytest.mark.parametrize("kind", FILTERS)


def plain(kind: Any, **changes: Any) -> Any:
    common: dict[str, Any] = {
        "kernel_state": Gaussian(0.5),
        "kernel_observation": Gaussian(0.7),
        "regularization": 1e-3,
        "validation": None,
    }
    if kind is KernelBayesFilter:
        common |= {"posterior_regularization": 1e-2, "power": 1.0}
    return kind(**(common | changes))


@cache
def fitted(kind: Any) -> Any:
    return plain(kind).fit(STATES, OBSERVATIONS)


@cache
def labelled(kind: Any) -> Any:
    names = np.where(STATES[:, 0] > 0, "right", "left")
    return plain(kind, kernel_state=Delta()).fit(names, OBSERVATIONS)


def dense(weights: Any) -> Array:
    return np.asarray(weights.dense() if hasattr(weights, "dense") else weights)


# --------------------------------------------------------------------------------------
# The record
# --------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("what", ["filter", "smooth", "predict"])
def test_moments_are_those_of_the_beliefs(kind: Any, what: str) -> None:
    learner = fitted(kind)
    track = learner.predict(GAPS, 30) if what == "predict" else getattr(learner, what)(GAPS)
    assert len(track) == 30
    beliefs = track.beliefs
    assert isinstance(beliefs, Embedding)
    assert len(beliefs) == 30
    weights = dense(beliefs.weights)
    assert weights.shape == (30, 150)
    assert_allclose(weights.sum(axis=1), 1, atol=1e-10)
    assert_allclose(track.mean, weights @ STATES, atol=1e-10)
    variance = weights @ STATES**2 - (weights @ STATES) ** 2
    # where negative weights make a variance negative, that of F made monotone
    other = np.array([[o.monotone_variance(w, column) for column in STATES.T] for w in weights])
    assert_allclose(track.std, np.sqrt(np.where(variance < 0, other, variance)), atol=1e-8)
    for t in (0, 8, 29):
        assert_allclose(beliefs[t].mean(), track.mean[t], atol=1e-9)
        assert_allclose(beliefs[t].std(), track.std[t], atol=1e-6)
        # coordinates and weights are one belief
        assert_allclose(
            track.coordinates[0, t], weights[t] @ beliefs.space.transform(STATES), atol=1e-7
        )
    low, high = track.interval(0.8)
    assert low.shape == high.shape == track.mean.shape
    assert (low <= high).all()
    narrow = track.interval(0.5)
    assert (low <= narrow[0] + 1e-12).all()
    assert (narrow[1] <= high + 1e-12).all()
    assert_allclose(track.quantile(0.1), low)
    assert track.mode.shape == (30, 2)
    assert np.isfinite(track.mode).all()


@both
def test_evidence_and_support(kind: Any) -> None:
    track = fitted(kind).filter(GAPS)
    missing = np.isnan(GAPS).any(axis=1)
    assert track.log_evidence.shape == track.support.shape == (30,)
    assert (track.log_evidence[missing] == 0).all()
    assert np.isfinite(track.log_evidence).all()
    assert_array_equal(np.isnan(track.support), missing)
    seen = track.support[~missing]
    assert ((seen > 0) & (seen <= 1 + 1e-9)).all()
    # what is likely is likelier than what is not
    backwards = fitted(kind).filter(NEW[::-1]).log_evidence.sum()
    assert fitted(kind).filter(NEW).log_evidence.sum() > backwards + 5
    for other in (fitted(kind).smooth(NEW), fitted(kind).predict(NEW, 3)):
        with pytest.raises(TypeError, match="filter"):
            _ = other.log_evidence
        with pytest.raises(TypeError, match="filter"):
            _ = other.support


@both
def test_far_observations_are_told_and_passed_over(kind: Any) -> None:
    rows = NEW[:6].copy()
    rows[3] = [60.0, -60.0]
    with pytest.warns(DataWarning, match="1 of 6 observations.*step 3.*passed over") as found:
        track = fitted(kind).filter(rows)
    assert found[0].filename == __file__
    assert track.support[3] < 1e-3
    rows[3] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gap = fitted(kind).filter(rows)
    assert_allclose(track.mean, gap.mean, atol=1e-12)
    with pytest.warns(DataWarning, match="step 1 of sequence 1"):
        fitted(kind).filter([NEW[:4], np.array([[0.0, 1.0], [60.0, 60.0]])])
    stream = fitted(kind).start()
    with pytest.warns(DataWarning) as found:
        stream.step([60.0, 60.0])
    assert found[0].filename == __file__


@both
def test_several_sequences(kind: Any) -> None:
    track = fitted(kind).filter([NEW[:10], NEW[10:14]])
    assert len(track) == 2
    assert [len(part) for part in track] == [10, 4]
    assert len(track.beliefs) == 2
    assert [len(batch) for batch in track.beliefs] == [10, 4]
    assert track.mean.shape == track.std.shape == (2, 10, 2)
    assert track.log_evidence.shape == track.support.shape == (2, 10)
    for padded in (track.mean, track.std, track.log_evidence, track.support, *track.interval()):
        assert np.isnan(padded[1, 4:]).all()
        assert np.isfinite(padded[1, :4]).all()
    assert [part.shape for part in track.mode] == [(10, 2), (4, 2)]
    assert isinstance(track[1], Track)
    assert_allclose(track[-1].mean, track[1].mean)
    assert_allclose(track[1].interval()[0], track.interval()[0][1, :4])
    with pytest.raises(IndexError):
        track[2]
    with pytest.raises(TypeError, match="one sequence"):
        track[0][0]
    even = fitted(kind).filter([NEW[:5], NEW[5:10]])
    assert even.mode.shape == (2, 5, 2)
    with pytest.raises(TypeError, match=r"track\[0\]"):
        track.plot()


@both
def test_repr_says_what_it_is(kind: Any) -> None:
    learner = fitted(kind)
    one = repr(learner.filter(NEW))
    assert "filtered, 30 steps" in one
    assert "log evidence" in one
    assert "150 atoms" in one
    assert "2 sequences of 10 steps" in repr(learner.filter([NEW[:10], NEW[10:20]]))
    assert "2 sequences of 4 to 10 steps" in repr(learner.smooth([NEW[:10], NEW[10:14]]))
    assert "predicted, 3 steps" in repr(learner.predict(NEW, 3))
    stream = learner.start()
    stream.step(NEW[0])
    assert f"Stream({kind.__name__}, 1 steps" in repr(stream)
    assert repr(learner).startswith(kind.__name__)


@both
def test_a_record_is_immutable(kind: Any) -> None:
    track = fitted(kind).filter(NEW)
    with pytest.raises(dataclasses.FrozenInstanceError):
        track.kind = "smoothed"


@both
def test_without_beliefs(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = fitted(kind)
    full = learner.filter([GAPS, NEW[:9]])
    monkeypatch.setattr(model, "CHUNK", 1000)  # moments are taken many times on the way
    lean = learner.filter([GAPS, NEW[:9]], beliefs=False)
    assert lean.weights is None
    assert_allclose(lean.mean, full.mean, atol=1e-12)
    assert_allclose(lean.std, full.std, atol=1e-9)
    assert_allclose(lean.coordinates, full.coordinates)
    assert_allclose(lean.log_evidence, full.log_evidence)
    for name in ("beliefs", "mode"):
        with pytest.raises(ValueError, match="beliefs=True"):
            getattr(lean, name)
    with pytest.raises(ValueError, match="beliefs=True"):
        lean.interval()
    assert lean[1].mean.shape == (9, 2)
    assert "2 sequences" in repr(lean)


@both
def test_labels_have_modes_and_no_means(kind: Any) -> None:
    track = labelled(kind).filter(GAPS)
    assert set(track.mode) <= {"left", "right"}
    assert_allclose(track.beliefs(np.array(["left", "right"])).sum(axis=1), 1, atol=1e-8)
    for name in ("mean", "std"):
        with pytest.raises(TypeError, match="mode"):
            getattr(track, name)
    right = (track.mode == np.where(NEW[:, 0] > 0, "right", "left")).mean()
    assert right > 0.6
    with pytest.raises(TypeError):
        track.interval()


# --------------------------------------------------------------------------------------
# Pictures
# --------------------------------------------------------------------------------------


def test_plots() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    for kind in FILTERS:
        learner = fitted(kind)
        for track in (learner.filter(GAPS), learner.smooth(NEW), learner.predict(NEW, 5)):
            track.plot()
        track = learner.filter(NEW)
        track.plot(truth=NEW, level=0.5)
        learner.filter(NEW, beliefs=False).plot()
        learner.filter([NEW, NEW[:4]])[1].plot()
        labelled(kind).filter(GAPS).plot(truth=np.where(NEW[:, 0] > 0, "right", "left"))
        R = Rotation.from_rotvec(np.linspace([0, 0, 0], [1, 2, 3], 60)).as_matrix()
        turning = plain(kind, kernel_state=Chordal(0.5)).fit(R, OBSERVATIONS[:60])
        turning.filter(NEW[:5]).plot(truth=R[:5])
        pair = plain(kind, kernel_state=Gaussian(0.5) @ Gaussian(0.5))
        with pytest.raises(TypeError, match="tuples"):
            pair.fit((STATES, STATES), OBSERVATIONS).filter(NEW).plot()
        plt.close("all")


# --------------------------------------------------------------------------------------
# Streams
# --------------------------------------------------------------------------------------


@both
def test_a_stream_is_the_filter(kind: Any) -> None:
    learner = fitted(kind)
    track = learner.filter(GAPS)
    stream: Any = learner.start()
    nothing = stream.belief
    assert nothing is None
    assert stream.steps == 0
    for t, row in enumerate(GAPS):
        observation = [None, row, row.tolist()][t % 3] if np.isnan(row).any() else row
        belief = stream.step(observation)
        assert_allclose(belief.mean(), track.mean[t], atol=1e-10)
        assert_allclose(belief.std(), track.std[t], atol=1e-6)
        assert_allclose(stream.belief.mean(), track.mean[t], atol=1e-10)
    assert stream.steps == 30
    assert_allclose(stream.log_evidence, track.log_evidence.sum(), atol=1e-9)
    ahead = stream.predict(4)
    assert_allclose(ahead.mean, learner.predict(GAPS, 4).mean, atol=1e-10)
    assert stream.steps == 30  # predicting does not advance the stream
    assert_allclose(stream.belief.mean(), track.mean[-1], atol=1e-12)


@both
def test_a_bad_observation_leaves_the_stream_as_it_was(kind: Any) -> None:
    stream: Any = fitted(kind).start()
    stream.step(NEW[0])
    stream.step(NEW[1])
    before, evidence = stream.belief.mean(), stream.log_evidence
    bad: list[Any] = [
        np.zeros(3),
        [1.0],
        np.array([1.0, np.nan]),
        [1.0, np.inf],
        "north",
        ["a", "b"],
        NEW[:5],
        np.zeros((2, 2, 2)),
        {},
    ]
    for observation in bad:
        with pytest.raises((ValueError, TypeError)) as error:
            stream.step(observation)
        assert "observation" in str(error.value), observation
        assert stream.steps == 2
        assert stream.log_evidence == evidence
        assert_array_equal(stream.belief.mean(), before)
    with pytest.raises(ValueError, match="steps"):
        stream.predict(0)
    stream.step(NEW[2])
    assert_allclose(stream.belief.mean(), fitted(kind).filter(NEW[:3]).mean[-1], atol=1e-10)


@pytest.mark.parametrize("kind", ["moments", "reweighted", "additive", "spectral"])
def test_an_interrupted_step_is_taken_or_not(kind: str) -> None:
    """Ctrl-C at every line of a step: the state is the one before it or the one after it."""
    learner: Any = {
        "moments": lambda: KernelBayesFilter(method="moments", validation=None),
        "reweighted": lambda: plain(KernelBayesFilter),
        "additive": lambda: plain(AdditiveFilter),
        "spectral": lambda: SpectralFilter(Gaussian(0.7), 3, validation=None),
    }[kind]()
    rows = () if kind == "spectral" else (STATES[:60],)
    begun = learner.fit(*rows, OBSERVATIONS[:60]).start()
    begun.step(NEW[0])

    def state(stream: Any) -> tuple[Any, ...]:
        return stream.steps, stream.log_evidence, *stream.belief.mean()

    after = copy(begun)
    answer = after.step(NEW[1]).mean()
    before_it, after_it = state(begun), state(after)
    taken, line = 0, 1
    while True:
        stream = copy(begun)
        if not interrupt_at(line, lambda stream=stream: stream.step(NEW[1])):
            break
        if state(stream) == before_it:
            assert_array_equal(stream.step(NEW[1]).mean(), answer)
        taken += stream.steps == 2 and state(stream) == after_it
        line += 1
    assert line > 20 and taken == line - 1


@both
def test_streams_do_not_know_of_each_other(kind: Any) -> None:
    one, other = fitted(kind).start(), fitted(kind).start()
    for row, back in zip(NEW[:5], NEW[5:10], strict=True):
        one.step(row)
        other.step(back)
    assert_allclose(one.belief.mean(), fitted(kind).filter(NEW[:5]).mean[-1], atol=1e-10)
    assert_allclose(other.belief.mean(), fitted(kind).filter(NEW[5:10]).mean[-1], atol=1e-10)


@both
def test_priors(kind: Any) -> None:
    learner = fitted(kind)
    near = STATES[np.argsort(((STATES - STATES[20]) ** 2).sum(axis=1))[:10]]
    forms = [near, meanmap.embed(near, kernel=Gaussian(0.5)), meanmap.embed(near)]
    means = [learner.start(prior).step(NEW[0]).mean() for prior in forms]
    for mean in means[1:]:
        assert_allclose(mean, means[0], atol=1e-9)
    given = plain(kind, initial=near).fit(STATES, OBSERVATIONS)
    assert_allclose(given.filter(NEW[:3]).mean[0], means[0], atol=1e-9)
    assert np.abs(learner.filter(NEW[:3]).mean[0] - means[0]).max() > 1e-3


# --------------------------------------------------------------------------------------
# Files, parameters, tensors
# --------------------------------------------------------------------------------------


@both
def test_files(kind: Any, tmp_path: Path) -> None:
    names = tmp_path / "filter.npz", tmp_path / "track.npz", tmp_path / "validation.npz"
    controls = np.where(np.arange(150) % 3 == 0, "a", "b")
    driven = plain(kind).fit(STATES, OBSERVATIONS, controls)
    assert_allclose_after_file(driven, names[0], lambda m: m.filter(NEW, controls[:30]).mean)
    for learner in (fitted(kind), labelled(kind)):
        assert_allclose_after_file(learner, names[0], lambda m: m.filter(GAPS).coordinates)
        assert_allclose_after_file(learner, names[0], lambda m: m.smooth(GAPS).coordinates)
        for track in (learner.filter([GAPS, NEW[:4]]), learner.predict(GAPS, 3)):
            meanmap.save(track, names[1])
            again = meanmap.load(names[1])
            assert repr(again) == repr(track)
            assert_array_equal(again.coordinates, track.coordinates)
            for mode, same in zip(again.mode, track.mode, strict=True):
                assert_array_equal(mode, same)
    lean = fitted(kind).filter(NEW, beliefs=False)
    meanmap.save(lean, names[1])
    assert_array_equal(meanmap.load(names[1]).mean, lean.mean)
    grid = {"state": [0.5], "observation": [0.5], "regularization": [1e-3, 1e-2]}
    found = kind(grid=grid, progress=False).fit(STATES[:80], OBSERVATIONS[:80])
    meanmap.save(found.validation_, names[2])
    again = meanmap.load(names[2])
    assert repr(again) == repr(found.validation_)
    assert_array_equal(again.errors, found.validation_.errors)
    assert_allclose_after_file(found, names[0], lambda m: m.validation_.errors)
    meanmap.save(kind(), names[0])
    assert repr(meanmap.load(names[0])) == repr(kind())


def assert_allclose_after_file(learner: Any, path: Path, answer: Any) -> None:
    meanmap.save(learner, path)
    assert_array_equal(answer(meanmap.load(path)), answer(learner))


@both
def test_parameters(kind: Any) -> None:
    learner = plain(kind).fit(STATES, OBSERVATIONS)
    params = learner.get_params()
    assert params["regularization"] == 1e-3
    assert "kernel_state__bandwidth" in params
    copy = clone(learner)
    assert not hasattr(copy, "transition_")
    assert_array_equal(copy.fit(STATES, OBSERVATIONS).filter(NEW).mean, learner.filter(NEW).mean)
    copy.set_params(kernel_state__bandwidth=0.9)
    assert copy.kernel_state == Gaussian(0.9)
    assert learner.kernel_state == Gaussian(0.5)
    assert learner.kernel_state_ == Gaussian(0.5)
    # what was given is never changed
    median = kind(Gaussian("median"), validation=None).fit(STATES, OBSERVATIONS)
    assert median.kernel_state == Gaussian("median")
    assert isinstance(median.kernel_state_.bandwidth, float)
    assert median.regularization == "auto"
    assert median.regularization_ > 0


@both
def test_the_input_is_not_changed(kind: Any) -> None:
    states, observations, new = STATES.copy(), OBSERVATIONS.copy(), GAPS.copy()
    learner = plain(kind).fit(states, observations)
    for call in (learner.filter, learner.smooth, lambda rows: learner.predict(rows, 3)):
        call(new)
    assert_array_equal(states, STATES)
    assert_array_equal(observations, OBSERVATIONS)
    assert_array_equal(new, GAPS)


@both
def test_tensors_in_tensors_out(kind: Any) -> None:
    torch = require("torch")
    learner = plain(kind).fit(torch.tensor(STATES), torch.tensor(OBSERVATIONS))
    rows, same = torch.tensor(GAPS), fitted(kind)
    pairs = [
        (learner.filter(rows), same.filter(GAPS)),
        (learner.smooth(rows), same.smooth(GAPS)),
        (learner.predict(rows, 4), same.predict(GAPS, 4)),
        (learner.predict(rows, 4, origin="every"), same.predict(GAPS, 4, origin="every")),
        (learner.filter([rows, rows[:5]]), same.filter([GAPS, GAPS[:5]])),
    ]
    for found, expected in pairs:
        for name in ("mean", "std"):
            value = getattr(found, name)
            assert isinstance(value, torch.Tensor)
            assert_allclose(value.numpy(), getattr(expected, name), atol=1e-6)
        assert isinstance(found.interval()[0], torch.Tensor)
        assert_allclose(found.interval()[0].numpy(), expected.interval()[0], atol=1e-6)
    assert_allclose(pairs[0][0].mean.numpy(), pairs[0][1].mean, atol=1e-9)
    assert_allclose(pairs[0][0].log_evidence, pairs[0][1].log_evidence, atol=1e-8)
    assert isinstance(pairs[0][0].mode, torch.Tensor)
    assert isinstance(pairs[-1][0].mode[1], torch.Tensor)
    belief = learner.start().step(torch.tensor(NEW[0]))
    assert isinstance(belief.mean(), torch.Tensor)
    assert learner.start().step(torch.full((2,), float("nan"))).mean().shape == (2,)
    lean = learner.filter(rows, beliefs=False)
    assert_allclose(lean.mean.numpy(), pairs[0][1].mean, atol=1e-9)
    single = plain(kind).fit(torch.tensor(STATES).float(), torch.tensor(OBSERVATIONS).float())
    assert single.filter(torch.tensor(NEW).float()).mean.dtype == torch.float32


def test_a_stream_outlives_a_new_fit() -> None:
    states, observations = ROTATION.simulate(150, rng=0)
    model = KernelBayesFilter(
        Gaussian(1.0), Gaussian(1.0), regularization=1e-3, power=1.0, validation=None
    ).fit(states[:100], observations[:100])
    expected = model.filter(observations[100:110]).mean
    stream = model.start()
    means = [stream.step(o).mean() for o in observations[100:105]]
    model.fit(states[:60], observations[:60])
    means += [stream.step(o).mean() for o in observations[105:110]]
    assert_allclose(np.stack(means), expected, atol=1e-10)


def test_a_prior_outside_the_training_states_is_told() -> None:
    states, observations = ROTATION.simulate(100, rng=0)
    model = KernelBayesFilter(
        Gaussian(0.5), Gaussian(1.0), regularization=1e-3, power=1.0, validation=None
    ).fit(states, observations)
    with pytest.warns(DataWarning, match="outside the training states"):
        model.start(np.full((5, 2), 30.0))
