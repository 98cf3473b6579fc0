"""What goes into a filter: one sequence or many, gaps, controls, every domain, and bad input."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.transform import Rotation
from sklearn.exceptions import NotFittedError

from meanmap import AdditiveFilter, DataWarning, KernelBayesFilter
from meanmap.kernels import (
    Chordal,
    Delta,
    Gaussian,
    Linear,
    Mallows,
    NGrams,
    Trace,
    WeisfeilerLehman,
)
from meanmap_experiments.systems import ROTATION, Identities
from oracles import Array

STATES, OBSERVATIONS = ROTATION.simulate(160, rng=0)
NEW = ROTATION.simulate(40, rng=1)[1]
FILTERS = [KernelBayesFilter, AdditiveFilter]
both = pytest.mark.parametrize("kind", FILTERS)


def plain(kind: Any, **changes: Any) -> Any:
    """A filter with everything given."""
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


def masses(track: Any) -> Array:
    batches = [track.beliefs] if track.single else track.beliefs
    return np.concatenate([np.asarray(batch.weights.sum(axis=-1)).ravel() for batch in batches])


def missing(n: int = 5, d: int = 2) -> Array:
    return np.full((n, d), np.nan)


# --------------------------------------------------------------------------------------
# One, several, many
# --------------------------------------------------------------------------------------


@both
def test_training_forms_are_the_same(kind: Any) -> None:
    parts = [slice(0, 40), slice(40, 80), slice(80, 120), slice(120, 160)]
    states, observations = [STATES[p] for p in parts], [OBSERVATIONS[p] for p in parts]
    expected = plain(kind).fit(states, observations).filter(NEW).mean
    forms: list[tuple[Any, Any]] = [
        (np.stack(states), np.stack(observations)),
        ([s.tolist() for s in states], [p.tolist() for p in observations]),
        (tuple_free(states), tuple_free(observations)),
    ]
    for s, p in forms:
        assert_allclose(plain(kind).fit(s, p).filter(NEW).mean, expected, atol=1e-10)
    one = plain(kind).fit(STATES, OBSERVATIONS).filter(NEW).mean
    assert_allclose(plain(kind).fit([STATES], [OBSERVATIONS]).filter(NEW).mean, one)
    assert_allclose(plain(kind).fit(STATES.tolist(), OBSERVATIONS.tolist()).filter(NEW).mean, one)
    assert np.abs(one - expected).max() > 1e-6  # the transitions across the cuts are not there


def tuple_free(parts: list[Array]) -> list[Array]:
    return [np.asfortranarray(part) for part in parts]


@both
def test_an_array_with_one_more_axis_without_kernels(kind: Any) -> None:
    """(sequences, steps, d) is not taken for a sample of matrices when no kernel is named."""
    states, observations = STATES.reshape(4, 40, 2), OBSERVATIONS.reshape(4, 40, 2)
    model = kind(validation=None)
    try:
        model.fit(states, observations)
    except ValueError as error:
        assert "list" in str(error)  # either it works, or it says what to pass
        return
    assert model.filter(NEW).mean.shape == (40, 2)


@both
def test_forms_of_observations(kind: Any) -> None:
    model = fitted(kind)
    expected = model.filter(NEW)
    assert expected.mean.shape == (40, 2)
    assert_allclose(model.filter(NEW.tolist()).mean, expected.mean)
    for several in ([NEW, NEW], np.stack([NEW, NEW]), [NEW.tolist(), NEW.tolist()]):
        track = model.filter(several)
        assert track.mean.shape == (2, 40, 2)
        assert_allclose(track.mean[1], expected.mean, atol=1e-10)
    assert model.filter([NEW]).mean.shape == (1, 40, 2)
    assert model.filter(NEW[:1]).mean.shape == (1, 2)


@both
@pytest.mark.parametrize("what", ["filter", "smooth", "every", "last"])
def test_ragged_batches_are_one_by_one(kind: Any, what: str) -> None:
    model = fitted(kind)
    parts = [NEW[:7], NEW[7:8], NEW[8:20], NEW[20:23].copy()]
    parts[3][1] = np.nan

    def run(observations: Any) -> Any:
        if what in ("every", "last"):
            return model.predict(observations, 3, origin=what)
        return getattr(model, what)(observations)

    batch = run(parts)
    length = 3 if what == "last" else 12
    assert batch.mean.shape == (4, length, 2)
    for i, part in enumerate(parts):
        alone, here = run(part), batch[i]
        n = 3 if what == "last" else len(part)
        assert here.mean.shape == alone.mean.shape == (n, 2)
        assert_allclose(here.mean, alone.mean, atol=1e-9)
        assert_allclose(here.std, alone.std, atol=1e-6)
        assert_allclose(batch.mean[i, :n], alone.mean, atol=1e-9)
        assert np.isnan(batch.mean[i, n:]).all()
        assert np.isnan(batch.std[i, n:]).all()
        if what == "filter":
            assert_allclose(here.log_evidence, alone.log_evidence, atol=1e-8)
            assert_allclose(here.support, alone.support, atol=1e-12)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    kind=st.sampled_from(FILTERS),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    gaps=st.lists(st.integers(0, 44), max_size=12),
    method=st.sampled_from(["filter", "smooth"]),
)
def test_a_batch_is_one_by_one(kind: Any, lengths: list[int], gaps: list[int], method: str) -> None:
    model = fitted(kind)
    rows = NEW.copy()
    rows[[g for g in gaps if g < 40]] = np.nan
    parts, at = [], 0
    for n in lengths:
        parts.append(rows[at % 30 : at % 30 + n])
        at += n
    parts = [part if not np.isnan(part).all() else NEW[: len(part)] for part in parts]
    batch = getattr(model, method)(parts)
    for i, part in enumerate(parts):
        alone = getattr(model, method)(part)
        assert_allclose(batch[i].mean, alone.mean, atol=1e-8)
        assert_allclose(batch[i].coordinates[0], alone.coordinates[0], atol=1e-8)
    assert_allclose(masses(batch), 1, atol=1e-9)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(kind=st.sampled_from(FILTERS), order=st.permutations(range(4)))
def test_the_order_of_training_sequences_does_not_matter(kind: Any, order: list[int]) -> None:
    cuts = [0, 30, 75, 110, 160]
    states = [STATES[a:b] for a, b in zip(cuts[:-1], cuts[1:], strict=True)]
    observations = [OBSERVATIONS[a:b] for a, b in zip(cuts[:-1], cuts[1:], strict=True)]
    expected = plain(kind).fit(states, observations)
    found = plain(kind).fit([states[i] for i in order], [observations[i] for i in order])
    assert_allclose(found.filter(NEW).mean, expected.filter(NEW).mean, atol=1e-5)
    assert_allclose(found.smooth(NEW).mean, expected.smooth(NEW).mean, atol=1e-5)


# --------------------------------------------------------------------------------------
# Missing observations
# --------------------------------------------------------------------------------------


@both
def test_a_sequence_without_observations_among_others(kind: Any) -> None:
    model = fitted(kind)
    last = model.filter([NEW[:6], missing()])
    first = model.filter([missing(), NEW[:6]])
    assert first.mean.shape == last.mean.shape == (2, 6, 2)
    assert_allclose(first[0].mean, last[1].mean, atol=1e-12)
    assert_allclose(first[1].mean, last[0].mean, atol=1e-12)


@both
def test_missing_steps_are_predictions(kind: Any) -> None:
    model = fitted(kind)
    gap = np.concatenate([NEW[:5], missing(4), NEW[5:8]])
    track = model.filter(gap)
    assert_allclose(track.mean[5:9], model.predict(NEW[:5], 4).mean, atol=1e-10)
    assert np.isnan(track.support[5:9]).all()
    assert (track.log_evidence[5:9] == 0).all()
    assert np.isfinite(track.support[[0, 4, 9]]).all()
    first = model.filter(np.concatenate([missing(2), NEW[:5]]))
    assert np.isfinite(first.mean).all()


def test_before_any_observation_a_stream_predicts_what_it_would_step_to() -> None:
    """`predict` tells what the next steps will be: those that `step(None)` takes."""
    for kind in FILTERS:
        for prior in (None, STATES[:3]):
            ahead = fitted(kind).start(prior).predict(3).mean
            stream = fitted(kind).start(prior)
            stepped = np.stack([stream.step(None).mean() for _ in range(3)])
            assert_allclose(ahead, stepped, atol=1e-9, err_msg=kind.__name__)


# --------------------------------------------------------------------------------------
# Controls
# --------------------------------------------------------------------------------------


@cache
def driven() -> tuple[Array, Array, Array]:
    """x' = 0.8 x + 0.5 u + noise, u a coin."""
    rng = np.random.default_rng(1)
    u, x = rng.choice([-1.0, 1.0], size=(500, 1)), np.zeros((500, 1))
    for t in range(499):
        x[t + 1] = 0.8 * x[t] + 0.5 * u[t] + 0.1 * rng.normal(size=1)
    return x, x + 0.5 * rng.normal(size=x.shape), u


@cache
def controlled(kind: Any) -> Any:
    x, o, u = driven()
    return plain(kind, kernel_observation=Gaussian(0.8), kernel_control=Gaussian(1.0)).fit(
        x[:350], o[:350], u[:350]
    )


@both
def test_knowing_the_control_helps(kind: Any) -> None:
    x, o, u = driven()
    known = controlled(kind)
    ignorant = plain(kind, kernel_observation=Gaussian(0.8)).fit(x[:350], o[:350])

    def error(track: Any) -> float:
        return float(((track.mean - x[350:]) ** 2).mean())

    # measured: below half for both filters, filtered and smoothed
    assert error(known.filter(o[350:], u[350:])) < 0.7 * error(ignorant.filter(o[350:]))
    assert error(known.smooth(o[350:], u[350:])) < 0.7 * error(ignorant.smooth(o[350:]))
    ahead = known.predict(o[350:450], 3, u[350:452], origin="every")
    blind = ignorant.predict(o[350:450], 3, origin="every")
    truth = x[353:453]
    assert ((ahead.mean - truth) ** 2).mean() < 0.7 * ((blind.mean - truth) ** 2).mean()


@both
def test_controls_in_streams_batches_and_predictions(kind: Any) -> None:
    _, o, u = driven()
    o, u, model = o[350:], u[350:], controlled(kind)
    track, stream = model.filter(o[:10], u[:10]), model.start()
    for t in range(10):
        belief = stream.step(o[t], None if t == 0 else u[t - 1])
        assert_allclose(belief.mean(), track.mean[t], atol=1e-9)
    assert_allclose(stream.predict(2, u[9:11]).mean, model.predict(o[:10], 2, u[:11]).mean)
    last = model.predict(o[:10], 3, u[:12])
    every = model.predict(o[:10], 3, u[:12], origin="every")
    assert_allclose(every.mean[-1], last.mean[-1], atol=1e-10)
    batch = model.filter([o[:10], o[10:14]], [u[:10], u[10:14]])
    assert_allclose(batch[0].mean, track.mean, atol=1e-9)
    assert_allclose(batch[1].mean, model.filter(o[10:14], u[10:14]).mean, atol=1e-9)
    smoothed = model.smooth([o[:10], o[10:14]], [u[:10], u[10:14]])
    assert_allclose(smoothed[1].mean, model.smooth(o[10:14], u[10:14]).mean, atol=1e-9)
    # a control acts after its step: the last one changes nothing yet
    other = u[:10].copy()
    other[9] *= -1
    assert_allclose(model.filter(o[:10], other).mean, track.mean)
    other[8] *= -1
    assert np.abs(model.filter(o[:10], other).mean[9] - track.mean[9]).max() > 0.01


@both
def test_labels_as_controls(kind: Any) -> None:
    x, o, u = driven()
    names = np.where(u[:, 0] > 0, "up", "down")
    model = plain(kind, kernel_observation=Gaussian(0.8), kernel_control=Delta())
    model.fit(x[:350], o[:350], names[:350])
    track = model.filter(o[350:360], names[350:360])
    assert_allclose(model.filter(o[350:360], list(names[350:360])).mean, track.mean)
    ragged = model.filter([o[350:360], o[360:363]], [names[350:360], names[360:363]])
    assert_allclose(ragged[0].mean, track.mean, atol=1e-10)
    numbers = controlled(kind).filter(o[350:360], u[350:360]).mean
    assert np.abs(track.mean - numbers).max() < 0.1


@both
def test_controls_of_several_parts(kind: Any) -> None:
    """A control is any point that the library has a kernel for, also a pair or a data frame."""
    pd = pytest.importorskip("pandas")
    x, o, u = driven()
    names = np.where(u[:, 0] > 0, "up", "down")
    model = plain(kind, kernel_control=Gaussian(1.0) @ Delta())
    model.fit(x[:350], o[:350], (u[:350], names[:350]))
    track = model.filter(o[350:360], (u[350:360], names[350:360]))
    assert track.mean.shape == (10, 1)
    assert model.smooth(o[350:360], (u[350:360], names[350:360])).mean.shape == (10, 1)
    ahead = model.predict(o[350:360], 2, (u[350:361], names[350:361]), origin="every")
    assert ahead.mean.shape == (10, 1)
    frame = pd.DataFrame({"u": u[:, 0], "name": names})
    model = plain(kind).fit(x[:350], o[:350], frame[:350])
    assert model.filter(o[350:360], frame[350:360]).mean.shape == (10, 1)


@both
def test_a_control_far_from_all_others_leaves_a_belief(kind: Any) -> None:
    _, o, _ = driven()
    model, far = controlled(kind), np.full((12, 1), 100.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        assert_allclose(masses(model.predict(o[350:360], 3, far)), 1, atol=1e-9)


@both
def test_wrong_controls(kind: Any) -> None:
    x, o, u = driven()
    model = controlled(kind)
    with pytest.raises(ValueError, match="fitted with controls and needs them"):
        model.filter(o[:5])
    with pytest.raises(ValueError, match="fitted without any"):
        fitted(kind).filter(NEW, NEW)
    with pytest.raises(ValueError, match="fitted without any"):
        fitted(kind).start().step(NEW[0], NEW[0])
    with pytest.raises(ValueError, match="expected 5 rows.*got 4"):
        model.filter(o[:5], u[:4])
    with pytest.raises(ValueError, match="expected 7 rows.*got 6"):
        model.predict(o[:5], 3, u[:6])
    with pytest.raises(ValueError, match="1 sequences and observations 2"):
        model.filter([o[:5], o[:5]], [u[:5]])
    with pytest.raises(ValueError, match="2 features.*1 feature"):
        model.filter(o[:5], np.zeros((5, 2)))
    with pytest.raises(ValueError, match="controls.*NaN"):
        model.filter(o[:5], np.full((5, 1), np.nan))
    with pytest.raises(ValueError, match="states has 20 and controls has 19"):
        plain(kind).fit(x[:20], o[:20], u[:19])
    stream = model.start()
    stream.step(o[0])
    with pytest.raises(ValueError, match="control"):
        stream.step(o[1])
    assert stream.steps == 1
    with pytest.raises(ValueError, match="two-step"):
        model.smooth(o[:5], u[:5], transfer="one-step")
    if kind is KernelBayesFilter:
        with pytest.raises(ValueError, match="two-step"):
            plain(kind, transfer="one-step").fit(x, o, u)


# --------------------------------------------------------------------------------------
# Domains
# --------------------------------------------------------------------------------------


def turning(n: int = 200) -> tuple[Array, Array]:
    """A camera that turns, and two noisy rows of its rotation matrix."""
    rng = np.random.default_rng(3)
    turns = Rotation.from_rotvec(rng.normal(scale=0.05, size=(n, 3)) + [0.15, 0.05, 0.0])
    path = [Rotation.identity()]
    for turn in turns[1:]:
        path.append(turn * path[-1])
    R = np.stack([r.as_matrix() for r in path])
    return R, R[:, :2].reshape(n, 6) + 0.1 * rng.normal(size=(n, 6))


@both
@pytest.mark.parametrize("kernel", [Trace(), Chordal(0.5), None], ids=["trace", "chordal", "none"])
def test_a_rotation_is_a_rotation(kind: Any, kernel: Any) -> None:
    R, o = turning()
    model = kind(kernel, Gaussian("median"), validation=None).fit(R[:160], o[:160])
    test = o[160:].copy()
    test[[5, 6, 20]] = np.nan
    for track in (model.filter(test), model.smooth(test), model.predict(test, 5)):
        found = track.mode
        n = len(track)
        assert track.mean.shape == track.std.shape == found.shape == (n, 3, 3)
        assert_allclose(np.swapaxes(found, 1, 2) @ found, np.tile(np.eye(3), (n, 1, 1)), atol=1e-9)
        assert (np.linalg.det(found) > 0.99).all()
    gap = np.linalg.norm(model.filter(test).mode - R[160:], axis=(1, 2)).mean()
    assert gap < 0.9, gap  # 2.4 is the mean distance of two random rotations
    several = model.filter([test[:8], test[8:12]])
    assert several.mean.shape == (2, 8, 3, 3)
    assert several[1].mode.shape == (4, 3, 3)


def test_arrays_of_rotation_sequences() -> None:
    R, o = turning()
    model = plain(KernelBayesFilter, kernel_state=Chordal(0.5), kernel_observation=Gaussian(1.0))
    model.fit(R.reshape(2, 100, 3, 3), o.reshape(2, 100, 6))
    assert model.filter(o[:20].reshape(2, 10, 6)).mode.shape == (2, 10, 3, 3)
    turned = plain(KernelBayesFilter, kernel_state=Chordal(0.5), kernel_observation=Chordal(0.5))
    turned.fit(R, R)
    assert turned.filter(R[:20].reshape(2, 10, 3, 3)).mode.shape == (2, 10, 3, 3)


@both
@pytest.mark.parametrize("kernel", [Trace(), Mallows(3.0)], ids=["trace", "mallows"])
def test_a_permutation_is_a_permutation(kind: Any, kernel: Any) -> None:
    P, sightings = Identities(objects=4, observation_noise=0.5).simulate(280, rng=0)
    model = kind(kernel, Gaussian("median"), validation=None).fit(P[:240], sightings[:240])
    found = model.filter(sightings[240:]).mode
    assert_array_equal(found.sum(axis=1), 1)
    assert_array_equal(found.sum(axis=2), 1)
    assert set(np.unique(found)) == {0.0, 1.0}
    right = (found == P[240:]).all(axis=(1, 2)).mean()
    assert right > 0.3, right  # 1/24 by chance; measured, 0.6 to 0.8


@both
def test_labels_in_every_form(kind: Any) -> None:
    rng = np.random.default_rng(0)
    state = np.cumsum(rng.random(200) < 0.2) % 3
    names, signs = np.array(["a", "bb", "ccc"])[state], np.array(["x", "yy", "zzz"])[state]
    model = plain(kind, kernel_state=Delta(), kernel_observation=Delta()).fit(names, signs)
    expected = model.filter(["x", None, "yy"])
    assert list(expected.mode)[::2] == ["a", "bb"]
    assert_allclose(masses(expected), 1, atol=1e-9)
    forms: list[Any] = [
        np.array(["x", None, "yy"], dtype=object),
        np.array(["x", np.nan, "yy"], dtype=object),
    ]
    for form in forms:
        assert_allclose(model.filter(form).coordinates, expected.coordinates)
    several = model.filter([["x", None], ["zzz"]])
    assert len(several) == 2
    assert list(several[1].mode) == ["ccc"]
    numbers = plain(kind, kernel_state=Delta(), kernel_observation=Delta()).fit(state, state)
    for form in ([0, None, 1], np.array([0, np.nan, 1])):
        assert list(numbers.filter(form).mode)[::2] == [0, 1]
    assert list(numbers.filter([[0, 1], [2]])[0].mode) == [0, 1]
    with pytest.warns(DataWarning, match="far from all training"):
        unknown = model.filter(["x", "never seen", "yy"])
    assert unknown.support[1] == 0
    assert_allclose(unknown.coordinates, expected.coordinates, atol=1e-12)


@both
def test_a_series_of_labels_with_gaps(kind: Any) -> None:
    pd = pytest.importorskip("pandas")
    names = np.array(["a", "b"])[np.arange(60) // 5 % 2]
    model = plain(kind, kernel_state=Delta(), kernel_observation=Delta()).fit(
        pd.Series(names), pd.Series(names)
    )
    expected = model.filter(["a", None, "b"]).coordinates
    for dtype in (object, "string", "category"):
        found = model.filter(pd.Series(["a", None, "b"], dtype=dtype))
        assert_allclose(found.coordinates, expected)


@both
def test_one_more_axis_of_labels(kind: Any) -> None:
    """Observations may be "an array with one more axis", also of labels."""
    names = np.array(["a", "b"])[np.arange(60) // 5 % 2]
    model = plain(kind, kernel_state=Delta(), kernel_observation=Delta()).fit(names, names)
    track = model.filter(np.array([["a", "b", "b"], ["b", "b", "a"]]))
    assert track.mode.shape == (2, 3)


@both
def test_strings_and_graphs_as_observations(kind: Any) -> None:
    nx = pytest.importorskip("networkx")
    state = np.arange(90) // 3 % 3
    names = np.array(["A", "B", "C"])[state]
    words = ["aaab", "abbb", "bccc"]
    model = plain(kind, kernel_state=Delta(), kernel_observation=NGrams(2))
    model.fit(names, [words[s] for s in state])
    assert list(model.filter(["aaab", None, "bccc"]).mode)[::2] == ["A", "C"]
    assert len(model.filter([["aaab", "abbb"], ["bccc"]])) == 2
    assert model.start().step("abbb").mode() == "B"
    assert list(model.filter(np.array(["aaab", "abbb"])).mode) == ["A", "B"]
    shapes = [nx.path_graph(5), nx.cycle_graph(4), nx.star_graph(4)]
    model = plain(kind, kernel_state=Delta(), kernel_observation=WeisfeilerLehman(2, label=None))
    model.fit(names, [shapes[s] for s in state])
    assert list(model.filter([shapes[0], None, shapes[2]]).mode)[::2] == ["A", "C"]
    assert len(model.filter([shapes[:2], shapes[:1]])) == 2
    assert model.start().step(shapes[1]).mode() == "B"
    # states that are strings
    model = plain(kind, kernel_state=NGrams(2), kernel_observation=Delta())
    model.fit([words[s] for s in state], names)
    assert list(model.filter(["A", "B"]).mode) == ["aaab", "abbb"]


@both
def test_states_and_observations_of_several_parts(kind: Any) -> None:
    side = np.where(STATES[:, 0] > 0, "right", "left")
    model = plain(kind, kernel_state=Gaussian(0.5) @ Gaussian(0.5))
    track = model.fit((STATES, STATES[:, :1]), OBSERVATIONS).filter(NEW)
    assert isinstance(track.mean, tuple)
    assert [part.shape for part in track.mean] == [(40, 2), (40, 1)]
    assert [part.shape for part in track.std] == [(40, 2), (40, 1)]
    assert [part.shape for part in track.mode] == [(40, 2), (40, 1)]
    assert track.interval()[0][1].shape == (40, 1)
    assert_allclose(track.mean[0][:, :1], track.mean[1], atol=1e-12)
    ragged = model.filter([NEW[:5], NEW[5:8]])
    assert ragged.mean[1].shape == (2, 5, 1)
    assert np.isnan(ragged.mean[1][1, 3:]).all()
    model = plain(kind, kernel_state=Gaussian(0.5) @ Delta()).fit((STATES, side), OBSERVATIONS)
    track = model.filter(NEW)
    assert set(track.mode[1]) <= {"left", "right"}
    with pytest.raises(TypeError, match="no mean"):
        _ = track.mean
    model = plain(kind, kernel_observation=Gaussian(0.7) @ Delta())
    model.fit(STATES, (OBSERVATIONS, side))
    seen = NEW[:6].copy()
    sides = np.where(seen[:, 0] > 0, "right", "left").astype(object)
    full = model.filter((seen, sides))
    assert full.mean.shape == (6, 2)
    assert_allclose(model.start().step((seen[0], sides[0])).mean(), full.mean[0], atol=1e-10)
    seen[3], sides[3] = np.nan, None
    assert np.isnan(model.filter((seen, sides)).support[3])
    sides[3] = "left"
    with pytest.raises(ValueError, match="missing in one variable and not in the other"):
        model.filter((seen, sides))


@both
def test_data_frames(kind: Any) -> None:
    pd = pytest.importorskip("pandas")
    states, observations = pd.DataFrame(STATES), pd.DataFrame(OBSERVATIONS, columns=["p", "q"])
    model = plain(kind).fit(states, observations)
    new = pd.DataFrame(NEW, columns=["p", "q"])
    expected = fitted(kind).filter(NEW).mean
    assert_allclose(model.filter(new).mean, expected, atol=1e-12)
    assert_allclose(model.start().step(new.iloc[0]).mean(), expected[0], atol=1e-12)
    assert model.filter([new[:5], new[5:8]]).mean.shape == (2, 5, 2)
    gap = new.copy()
    gap.iloc[4] = np.nan
    assert np.isnan(model.filter(gap).support[4])
    gap.iloc[6, 0] = np.nan
    with pytest.raises(ValueError, match="row 6 is NaN in 1 of 2 columns"):
        model.filter(gap)
    mixed = observations.assign(side=np.where(OBSERVATIONS[:, 0] > 0, "right", "left"))
    model = kind(Gaussian(0.5), validation=None).fit(STATES, mixed)
    gap = mixed[:6].copy()
    gap.iloc[3] = np.nan
    assert_array_equal(np.isnan(model.filter(gap).support), np.arange(6) == 3)


@both
def test_single_precision(kind: Any) -> None:
    single = plain(kind).fit(STATES.astype(np.float32), OBSERVATIONS.astype(np.float32))
    track = single.filter(NEW.astype(np.float32))
    assert track.mean.dtype == np.float32
    assert_allclose(track.mean, fitted(kind).filter(NEW).mean, atol=5e-3)


@both
def test_a_kernel_without_constants_keeps_its_mass(kind: Any) -> None:
    """Beliefs are weights that sum to one, whatever the kernel and however long the gap."""
    model = plain(kind, kernel_state=Linear()).fit(STATES, OBSERVATIONS)
    rows = np.concatenate([NEW[:5], missing(10), NEW[5:8]])
    assert_allclose(masses(model.filter(rows)), 1, atol=1e-6)
    assert_allclose(masses(model.predict(NEW[:5], 10)), 1, atol=1e-6)


# --------------------------------------------------------------------------------------
# Little to learn from
# --------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("validation", ["half", None])
def test_next_to_nothing(kind: Any, validation: str | None) -> None:
    def belief(states: Any, observations: Any, new: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = kind(validation=validation, progress=False).fit(states, observations)
            track = model.filter(new)
            smoothed, ahead = model.smooth(new), model.predict(new, 50)
        for found in (track, smoothed, ahead):
            assert_allclose(masses(found), 1, atol=1e-8)
        return track

    assert np.isfinite(belief(STATES[:2], OBSERVATIONS[:2], NEW[:4]).mean).all()
    pairs = [STATES[i : i + 2] for i in range(6)], [OBSERVATIONS[i : i + 2] for i in range(6)]
    assert np.isfinite(belief(*pairs, NEW[:4]).mean).all()
    ones = np.ones((40, 2))
    assert_allclose(belief(ones, OBSERVATIONS[:40], NEW[:4]).mean, 1, atol=1e-9)
    assert np.isfinite(belief(STATES[:40], ones, ones[:4]).mean).all()
    twice = np.repeat(STATES[:30], 3, axis=0), np.repeat(OBSERVATIONS[:30], 3, axis=0)
    assert np.isfinite(belief(*twice, NEW[:4]).mean).all()
    one = np.full(30, "a")
    assert list(belief(one, np.where(STATES[:30, 0] > 0, "x", "y"), ["x", "y"]).mode) == ["a", "a"]
    mixed = [STATES[:30], STATES[30:31]], [OBSERVATIONS[:30], OBSERVATIONS[30:31]]
    assert np.isfinite(belief(*mixed, NEW[:4]).mean).all()


@pytest.mark.slow
def test_additive_filter_over_ten_thousand_steps() -> None:
    _, test = ROTATION.simulate(10_000, rng=1)
    rng = np.random.default_rng(2)
    test[rng.random(10_000) < 0.05] = np.nan
    test[5_000:6_000] = np.nan
    outliers = rng.random(10_000) < 0.02
    test[outliers] += rng.normal(scale=20, size=(int(outliers.sum()), 2))
    test[2_500:] *= -1
    for centred in (False, True):
        model = plain(AdditiveFilter, centered=centred).fit(STATES, OBSERVATIONS)
        with pytest.warns(DataWarning):
            track = model.filter(test)
        assert np.isfinite(track.mean).all()
        assert_allclose(masses(track), 1, atol=1e-9)
        assert np.abs(track.mean).max() < 2 * np.abs(STATES).max()


# --------------------------------------------------------------------------------------
# Bad input
# --------------------------------------------------------------------------------------


def spoilt(rows: Array, value: float) -> Array:
    return np.where(np.arange(len(rows))[:, None] == 7, value, rows)


BAD_TRAINING: list[tuple[Any, Any, str]] = [
    (STATES[:10], OBSERVATIONS[:9], "states has 10 and observations has 9 steps"),
    ([STATES[:9], STATES[:5]], [OBSERVATIONS[:9], OBSERVATIONS[:4]], "in sequence 1"),
    ([STATES[:9], STATES[:5]], [OBSERVATIONS[:9]], "2 sequences and observations 1"),
    (STATES[:1], OBSERVATIONS[:1], "1 step; at least 2.*pairs"),
    ([STATES[:1]] * 3, [OBSERVATIONS[:1]] * 3, "at least 2"),
    (STATES[None, None], OBSERVATIONS[None, None], "2D"),
    (spoilt(STATES, np.nan), OBSERVATIONS, "states.*row 7"),
    (STATES, spoilt(OBSERVATIONS, np.nan), "observations.*row 7"),
    (STATES, spoilt(OBSERVATIONS, np.inf), "infinity"),
    (np.full((160, 2), "north"), OBSERVATIONS, "states.*number"),
    ([STATES[:9], STATES[:9, :1]], [OBSERVATIONS[:9]] * 2, r"states\[1\]"),
    ([], [], "states"),
    (None, OBSERVATIONS, "states"),
    (STATES, None, "observations"),
    (np.zeros((0, 2)), np.zeros((0, 2)), "states"),
]


@both
@pytest.mark.parametrize("case", range(len(BAD_TRAINING)))
def test_bad_training_data(kind: Any, case: int) -> None:
    states, observations, message = BAD_TRAINING[case]
    model = plain(kind)
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(states, observations)
    with pytest.raises(NotFittedError):
        model.filter(NEW)
    assert not [name for name in vars(model) if name.endswith("_")]


BAD_OBSERVATIONS: dict[str, tuple[Any, str]] = {
    "all missing": (missing(), r"every step is missing.*start\(prior\).predict"),
    "all of two missing": ([missing(), missing()], "every step is missing"),
    "too narrow": (NEW[:, :1], "1 features.*2 features"),
    "too wide": (np.zeros((3, 3)), "3 features.*2 features"),
    "second too narrow": ([NEW, NEW[:, :1]], r"observations\[1\]"),
    "partly missing": (np.array([[0.0, np.nan]]), "row 0 is NaN in 1 of 2 columns.*throughout"),
    "infinite": (np.array([[0.0, np.inf]]), "infinity"),
    "text": (np.full((3, 2), "north"), "number"),
    "one row": (NEW[0], "1 features"),
    "no rows": (np.zeros((0, 2)), "observations"),
    "no sequences": ([], "observations"),
    "second without rows": ([NEW, NEW[:0]], r"observations\[1\]"),
    "nothing": (None, "observations"),
    "a number": (3.0, "observations"),
}


@both
@pytest.mark.parametrize("case", BAD_OBSERVATIONS)
def test_bad_observations(kind: Any, case: str) -> None:
    observations, message = BAD_OBSERVATIONS[case]
    model = fitted(kind)
    for call in (model.filter, model.smooth, lambda value: model.predict(value, 2)):
        with pytest.raises((ValueError, TypeError), match=message):
            call(observations)


@both
def test_bad_questions(kind: Any) -> None:
    model = fitted(kind)
    with pytest.raises(ValueError, match="steps must be a whole number"):
        model.predict(NEW, 0)
    with pytest.raises(ValueError, match="steps must be a whole number"):
        model.predict(NEW, 1.5)
    with pytest.raises(ValueError, match="origin must be one of"):
        model.predict(NEW, 2, origin="first")
    with pytest.raises(ValueError, match="transfer must be one of"):
        model.smooth(NEW, transfer="three-step")


@both
def test_a_state_that_is_no_rotation(kind: Any) -> None:
    R, o = turning(60)
    for kernel in (Trace(), Chordal(0.5), None):
        for wrong in (1.5 * R[7], np.diag([1.0, 1.0, -1.0]) @ R[7]):
            states = R.copy()
            states[7] = wrong
            with pytest.raises(ValueError, match=r"states: row 7 is not a rotation.*from_matrix"):
                kind(kernel, validation=None).fit(states, o)
    # matrices far from any rotation are accepted as plain matrices
    kind(Trace(), validation=None).fit(np.random.default_rng(0).normal(size=(60, 3, 3)), o)


COMMON: list[tuple[dict[str, Any], str]] = [
    ({"regularization": -1.0}, "regularization must be a number"),
    ({"regularization": "small"}, "regularization must be one of"),
    ({"regularization": np.nan}, "regularization"),
    ({"validation": "third"}, "validation must be one of"),
    ({"grid": {"regularisation": [1e-3]}}, "grid must be one of.*regularization"),
    ({"grid": {"regularization": []}}, "list of candidates"),
    ({"grid": {"regularization": 1e-3}}, "list of candidates"),
    ({"grid": {"regularization": [-1.0, -2.0]}}, "regularization"),
    ({"grid": {"regularization": ["much", "little"]}}, "regularization"),
    ({"basis": (None, None, None)}, "pair"),
    ({"initial": "frist"}, "initial must be one of"),
    ({"initial": np.zeros((3, 5))}, "5 features|initial|prior"),
]
BAD_SETTINGS: list[tuple[Any, dict[str, Any], str]] = [
    *((kind, changes, message) for kind in FILTERS for changes, message in COMMON),
    (KernelBayesFilter, {"method": "cubed"}, "method must be one of"),
    (KernelBayesFilter, {"transfer": "three-step"}, "transfer must be one of"),
    (KernelBayesFilter, {"posterior_regularization": -1e-3}, "posterior_regularization must be"),
    (KernelBayesFilter, {"power": -0.5}, "power must be a number"),
    (AdditiveFilter, {"initial": "first"}, "initial must be"),
]


@pytest.mark.parametrize("case", range(len(BAD_SETTINGS)))
@pytest.mark.parametrize("validation", ["half", None])
def test_bad_settings(case: int, validation: str | None) -> None:
    kind, changes, message = BAD_SETTINGS[case]
    model = kind(**({"validation": validation, "progress": False} | changes))
    # at once, or at least before anything is answered with it; a warning is not enough
    with warnings.catch_warnings(), pytest.raises((ValueError, TypeError), match=message):
        warnings.simplefilter("ignore")
        model.fit(STATES[:60], OBSERVATIONS[:60]).filter(NEW[:3])


@both
def test_a_failing_refit_leaves_the_filter_as_it_was(kind: Any) -> None:
    model = plain(kind).fit(STATES, OBSERVATIONS)
    before, kept = model.filter(NEW).mean, dict(vars(model))
    for states, observations in [
        (STATES[:10], OBSERVATIONS[:9]),
        (STATES[:1], OBSERVATIONS[:1]),
        (missing(20), OBSERVATIONS[:20]),
    ]:
        with pytest.raises(ValueError):
            model.fit(states, observations)
        assert vars(model) == kept
    model.set_params(regularization=-1.0)
    with pytest.raises(ValueError):
        model.fit(STATES, OBSERVATIONS)
    assert_array_equal(model.filter(NEW).mean, before)
