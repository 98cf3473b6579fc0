"""The drift monitor: scores against a slow oracle, run length, where and when, hostile rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import meanmap
from meanmap.exceptions import DataWarning
from meanmap.monitoring import Alarm, DriftMonitor
from meanmap.monitoring.detector import Whitening, weighted_means
from meanmap.monitoring.drift import KEPT

LENGTH = 200  # a short run length is calibrated quickly


def frames(rng: np.random.Generator, n: int, rate: float = 0.2) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "temperature": rng.normal(20, 3, n),
            "load": rng.exponential(2.0, n),
            "state": np.where(rng.random(n) < rate, "idle", "busy"),
        }
    )


@pytest.fixture(scope="module")
def reference() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(400, 2))


@pytest.fixture
def monitor(reference: np.ndarray) -> DriftMonitor:
    return DriftMonitor(reference, LENGTH)


def test_scores_follow_the_formulas(monitor: DriftMonitor) -> None:
    """Weighted means row by row, and the normal score of a weighted sum of squares."""
    _, detector = monitor.__dict__["_fitted"]
    rng = np.random.default_rng(1)
    features = detector.features(rng.normal(size=(40, 2)))
    found, _ = detector.scores(features, detector.start())
    best = np.full(found.shape, -np.inf)
    for i, rate in enumerate(detector.rates):
        mean = np.zeros(features.shape[1])
        for t, row in enumerate(features):
            mean = rate * row + (1 - rate) * mean
            for c, inside in enumerate(detector.whitening.members.T > 0):
                length = np.sum(mean[inside] ** 2) * (2 - rate) / rate
                total, c9 = detector.whitening.total[c], 2 / (9 * detector.whitening.degrees[c])
                score = ((length / total) ** (1 / 3) - (1 - c9)) / np.sqrt(c9)
                best[t, c] = max(best[t, c], score / detector.limits[i, c])
    assert_allclose(found, best, rtol=1e-9)


def test_features_are_centred_and_have_the_variances_that_scores_assume(
    reference: np.ndarray, monitor: DriftMonitor
) -> None:
    _, detector = monitor.__dict__["_fitted"]
    features = detector.features(reference)
    assert_allclose(features.mean(axis=0), 0, atol=1e-9)
    squares = (features**2).mean(axis=0) @ detector.whitening.members
    assert_allclose(squares, detector.whitening.total, rtol=1e-9)
    lengths = np.sqrt((features + detector.whitening.middle) ** 2 @ detector.whitening.members)
    far = (lengths > detector.whitening.radii * (1 - 1e-9)).mean(axis=0)
    assert (lengths <= detector.whitening.radii * (1 + 1e-9)).all() and (
        abs(far - 0.1) < 0.01
    ).all()


def test_weighted_means_go_on() -> None:
    rows = np.random.default_rng(0).normal(size=(30, 4))
    whole, last = weighted_means(rows, 0.1, np.zeros(4))
    first, middle = weighted_means(rows[:11], 0.1, np.zeros(4))
    second, end = weighted_means(rows[11:], 0.1, middle)
    assert_allclose(np.vstack([first, second]), whole, rtol=1e-12)
    assert_allclose(end, last, rtol=1e-12)


def test_scores_of_sums_of_squares_are_standard_normal() -> None:
    rng = np.random.default_rng(0)
    members = np.repeat(np.eye(2), [2, 3], axis=0)
    sizes = np.array([2.0, 3.0])
    whitening = Whitening(
        np.zeros(5), np.eye(5), members, np.full(2, 9.0), np.zeros(5), sizes, sizes
    )
    scores = whitening.scores(rng.normal(size=(20_000, 5)), 1.0)
    assert_allclose(scores.mean(axis=0), 0, atol=0.06)
    assert_allclose(scores.std(axis=0), 1, atol=0.06)


def test_batches_do_not_change_the_answer(reference: np.ndarray) -> None:
    rng = np.random.default_rng(2)
    X = np.vstack([rng.normal(size=(700, 2)), rng.normal(1, 1, size=(200, 2))])
    once, parts = DriftMonitor(reference, LENGTH), DriftMonitor(reference, LENGTH)
    found = once.update(X)
    alarms: list[Alarm] = []
    for start in range(0, 900, 7):
        alarms += parts.update(X[start : start + 7]).alarms
    assert len(alarms) >= 2
    assert [alarm.row for alarm in alarms] == [alarm.row for alarm in found.alarms]
    assert [alarm.change for alarm in alarms] == [alarm.change for alarm in found.alarms]
    assert_allclose(parts.update(X[:1]).score, once.update(X[:1]).score, rtol=1e-6)


def test_a_change_is_found_and_localised(reference: np.ndarray) -> None:
    told: list[Alarm] = []
    monitor = DriftMonitor(reference, 1000, callback=told.append)
    rng = np.random.default_rng(3)
    monitor.update(rng.normal(size=(60, 2)))
    assert not monitor.drift_detected
    found = monitor.update(rng.normal(size=(40, 2)) + [0.0, 3.0])
    assert monitor.drift_detected and found.drift_detected
    first = found.alarms[0]
    assert 61 <= first.row <= 75 and abs(first.change - 61) <= 8 and first.changed == ("1",)
    assert told == list(found.alarms)
    assert "alarm at row" in repr(found) and first.sentence() in repr(found) or len(told) > 3
    assert found.plot().get_xlabel() == "row"
    figures = found.to_dict()
    assert figures["drift_detected"] is True and figures["alarms"][0]["changed"] == ["1"]


def test_frames_with_labels() -> None:
    rng = np.random.default_rng(4)
    monitor = DriftMonitor(frames(rng, 400), 1000)
    found = monitor.update(pd.concat([frames(rng, 50), frames(rng, 250, rate=0.9)]))
    assert found.alarms[0].changed == ("state",)
    assert 51 <= found.alarms[0].row < 120
    shuffled = frames(rng, 20)[["state", "load", "temperature"]]
    assert monitor.update(shuffled).rows == 320
    assert monitor.update({"load": 1.0, "temperature": 20.0, "state": "busy"}).rows == 321


def test_a_change_of_spread_and_of_shape(reference: np.ndarray) -> None:
    rng = np.random.default_rng(5)
    for changed in (
        rng.normal(0, 2.5, size=(200, 2)),
        np.sign(rng.normal(size=(200, 2))) + 0.1 * rng.normal(size=(200, 2)),
        np.repeat(rng.normal(size=(200, 1)), 2, axis=1),
    ):
        assert DriftMonitor(reference, 1000).update(changed).drift_detected


def test_restart_takes_another_reference(monitor: DriftMonitor) -> None:
    rng = np.random.default_rng(6)
    assert monitor.update(rng.normal(5, 1, size=(100, 2))).drift_detected
    again = monitor.restart(rng.normal(5, 1, size=(400, 2)))
    assert again is monitor and not monitor.drift_detected
    assert monitor.update(rng.normal(5, 1, size=(30, 2))).rows == 30
    assert monitor.update(rng.normal(0, 1, size=(30, 2))).drift_detected


def test_bad_batches_change_nothing(monitor: DriftMonitor) -> None:
    rng = np.random.default_rng(7)
    before = monitor.update(rng.normal(size=(20, 2))).to_dict()
    for rows, words in (
        (np.full((3, 2), np.nan), "NaN"),
        (np.zeros((3, 3)), "features"),
        (np.array([["a", "b"]]), "X"),
        (np.zeros((0, 2)), "X"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            monitor.update(rows)
    twin = DriftMonitor(np.random.default_rng(0).normal(size=(400, 2)), LENGTH)
    twin.update(np.random.default_rng(7).normal(size=(20, 2)))
    assert monitor.update(np.zeros((1, 2))).score == twin.update(np.zeros((1, 2))).score
    assert before["rows"] == 20


def test_few_rows_are_kept_of_large_batches(reference: np.ndarray) -> None:
    monitor = DriftMonitor(reference, 10**6, random_state=0)
    rng = np.random.default_rng(12)
    for _ in range(12):
        monitor.update(rng.normal(size=(1000, 2)))
        assert sum(map(len, monitor.__dict__["_watch"].latest)) <= 4 * KEPT


def test_one_huge_value_is_no_drift(reference: np.ndarray) -> None:
    rng = np.random.default_rng(8)
    monitor = DriftMonitor(reference, 2000)
    X = rng.normal(size=(60, 2))
    X[30] = 1e70
    found = monitor.update(X)
    assert np.isfinite(found.scores).all() and len(found.alarms) <= 1
    assert np.isfinite(monitor.update(rng.normal(size=(60, 2))).score)


def test_hostile_references() -> None:
    rng = np.random.default_rng(9)
    with pytest.raises(ValueError, match="at least 50"):
        DriftMonitor(rng.normal(size=(20, 2)))
    with pytest.raises(ValueError, match="all rows are equal"):
        DriftMonitor(np.ones((100, 2)), LENGTH)
    with pytest.raises(ValueError, match="expected_run_length"):
        DriftMonitor(rng.normal(size=(100, 2)), 3)
    with pytest.raises(TypeError, match="callback"):
        DriftMonitor(rng.normal(size=(100, 2)), LENGTH, callback="mail me")  # type: ignore[arg-type]
    flat = np.hstack([rng.normal(size=(100, 2)), np.ones((100, 1))])
    with pytest.warns(DataWarning, match="Not watched.*'2'"):
        monitor = DriftMonitor(flat, LENGTH)
    assert monitor.update(flat + [3.0, 0, 0]).drift_detected


def test_files_resume(reference: np.ndarray, tmp_path: Any) -> None:
    rng = np.random.default_rng(10)
    X, told = rng.normal(size=(80, 2)), []
    monitor = DriftMonitor(reference, LENGTH, callback=told.append)
    monitor.update(X[:30])
    meanmap.save(monitor, tmp_path / "monitor.npz")
    loaded = meanmap.load(tmp_path / "monitor.npz")
    loaded.callback = None
    assert loaded.update(X[30:]).to_dict() == monitor.update(X[30:]).to_dict()


@pytest.mark.slow
@pytest.mark.parametrize("length", [500, 3000])
def test_run_length(length: int) -> None:
    """Over references and streams, the mean is that asked for, within four standard errors."""
    alarms = rows = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        monitor = DriftMonitor(rng.normal(size=(1000, 2)), length, random_state=seed)
        for _ in range(10):
            alarms += len(monitor.update(rng.normal(size=(3 * length, 2))).alarms)
            rows += 3 * length
    assert abs(rows / alarms / length - 1) < 0.1 + 5 / np.sqrt(alarms)


def test_labels_without_columns(recwarn: pytest.WarningsRecorder) -> None:
    rng = np.random.default_rng(11)
    monitor = DriftMonitor(rng.choice(["a", "b", "c"], 200, p=[0.6, 0.3, 0.1]), LENGTH)
    assert not [str(one.message) for one in recwarn if "Not watched" in str(one.message)]
    assert monitor.update(np.repeat(["c"], 30)).drift_detected
