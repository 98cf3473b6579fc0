"""A monitor of a stream: an alarm when rows no longer look like a reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtri

from meanmap import checks, plots
from meanmap.arrays import count, spans, take
from meanmap.kernels.defaults import as_kernel
from meanmap.monitoring.calibration import find_limits
from meanmap.monitoring.detector import Detector
from meanmap.monitoring.records import Gate
from meanmap.monitoring.wealth import Path
from meanmap.statistics.gates import require_points
from meanmap.statistics.tiles import on_host

KEPT = 1024  # rows that are kept to find when a change began, and to start again from
PIECES = 64  # blocks that they are kept in
LEAST = 50  # rows of a reference
USED = 20_000  # at most
BLOCK = 1 << 12  # rows whose features are in memory at a time
SURE = 0.01  # the level at which a column is said to have changed, over all columns


@dataclass(frozen=True, eq=False)
class Alarm:
    """A change that was found.

    Attributes
    ----------
    row : int
        The row at which the alarm was raised, counted from 1 over the whole stream.
    change : int
        The row that the change began with, by maximum likelihood over the latest 1,024 rows.
    score : float
        What exceeded 1.
    columns : dict
        The score of every column since the change, largest first; standard normal without drift.
    changed : tuple
        The columns that changed: a score beyond what any column without drift has once in 100.
    """

    row: int
    change: int
    score: float
    columns: dict[str, float]
    changed: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The figures under plain names, for JSON."""
        return {**vars(self), "changed": list(self.changed)}

    def sentence(self) -> str:
        """What happened, in words."""
        where = f" in {', '.join(map(repr, self.changed))}" if self.changed else ""
        return f"Drift{where}: alarm at row {self.row:,}, change from about row {self.change:,}."


@dataclass(frozen=True, eq=False, repr=False)
class DriftResult:
    """What a monitor says after a batch.

    Attributes
    ----------
    rows : int
        Rows so far.
    score : float
        How far the latest rows are from the reference; above 1 an alarm is raised.
    alarms : tuple of Alarm
        Those of this batch.
    recent : tuple of Alarm
        The latest of the whole stream, 100 at most.
    times, scores : arrays
        The score over time, at up to 1,024 places.

    Examples
    --------
    See `DriftMonitor`.
    """

    rows: int
    score: float
    alarms: tuple[Alarm, ...]
    recent: tuple[Alarm, ...]
    times: np.ndarray
    scores: np.ndarray

    @property
    def drift_detected(self) -> bool:
        """Whether this batch raised an alarm."""
        return bool(self.alarms)

    def to_dict(self) -> dict[str, Any]:
        """The figures under plain names, for JSON."""
        return {
            "rows": self.rows,
            "score": self.score,
            "drift_detected": self.drift_detected,
            "alarms": [alarm.to_dict() for alarm in self.alarms],
        }

    def plot(self, ax: Any = None) -> Any:
        """The score over time, the threshold, alarms, and when each change began."""
        marks = [(alarm.change, alarm.row) for alarm in self.recent]
        return plots.drift(self.times, self.scores, 1.0, marks, ax)

    def __repr__(self) -> str:
        told = " ".join(alarm.sentence() for alarm in self.alarms[-3:]) or "no drift"
        return f"{self.rows:,} rows, score {self.score:.2f} (alarm above 1): {told}"


@dataclass(frozen=True, eq=False)
class Watch:
    """Everything that a batch changes, in one piece."""

    means: tuple[np.ndarray, ...]
    latest: tuple[np.ndarray, ...] = ()  # features of the latest rows, since the last alarm
    rows: int = 0
    score: float = -np.inf
    recent: tuple[Alarm, ...] = ()
    path: Path = Path(np.zeros(0))


class DriftMonitor:
    """Raise an alarm when a stream no longer looks like a reference.

    Each row updates exponentially weighted means of features, at several rates: of the kernel, of
    all columns, and of each column by itself. Their distances from the reference are compared with
    limits that are found by simulation, so that streams without drift exceed any of them once in
    `expected_run_length` rows in the mean, for all columns together. After an alarm it begins
    again, against the same reference; `restart` takes another one.

    What is kept does not grow with the number of rows.

    Parameters
    ----------
    reference : rows without drift
        At least 50; several hundred make the run length what was asked for.
    expected_run_length : int
        Rows from one false alarm to the next, in the mean.
    kernel : Kernel, callable or None
        On whole rows; None is the default for the kind of rows.
    callback : function of an `Alarm`, or None
        Called at each alarm. It is not saved with the monitor.
    random_state : int, generator or None
        Of the simulation that finds the limits.

    Attributes
    ----------
    drift_detected : bool
        Whether the last call of `update` raised an alarm.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.monitoring import DriftMonitor
    >>> rng = np.random.default_rng(0)
    >>> monitor = DriftMonitor(rng.normal(size=(500, 3)), expected_run_length=1000)
    >>> monitor.update(rng.normal(size=(200, 3))).drift_detected
    False
    >>> found = monitor.update(rng.normal(size=(100, 3)) + [0.0, 1.5, 0.0])
    >>> found.drift_detected, found.alarms[0].changed, 195 < found.alarms[0].change < 215
    (True, ('1',), True)
    """

    _functions: ClassVar[tuple[str, ...]] = ("callback",)

    def __init__(
        self,
        reference: Any,
        expected_run_length: int = 10_000,
        kernel: Any = None,
        callback: Callable[[Alarm], Any] | None = None,
        random_state: Any = 0,
    ) -> None:
        remedy = "It is the mean number of rows from one false alarm to the next; try 10_000."
        self.expected_run_length = checks.whole(
            expected_run_length, "expected_run_length", 20, remedy
        )
        self.kernel = kernel
        self.callback = _check_callback(callback)
        self.random_state = random_state
        self._fitted = self._fit(reference)
        self._watch = self._begin()

    def _fit(self, reference: Any) -> tuple[Gate, Detector]:
        kernel = as_kernel(self.kernel, reference, "reference")
        points = on_host(kernel.check(reference, "reference"))
        require_points(count(points), "reference", LEAST)
        rng = checks.random_generator(self.random_state, "random_state")
        if count(points) > USED:
            points = take(points, np.sort(rng.permutation(count(points))[:USED]))
        gate = Gate(kernel, take(points, slice(0, 1)))
        detector, raw = Detector.fit(kernel, points, _column_names(kernel, points))
        limits = find_limits(detector, raw, self.expected_run_length, rng)
        return gate, detector.with_limits(limits)

    def _begin(self) -> Watch:
        detector = self._fitted[1]
        return Watch(detector.start())

    @property
    def drift_detected(self) -> bool:
        """Whether the last call of `update` raised an alarm."""
        return self._last

    _last: bool = False

    def update(self, X: Any) -> DriftResult:
        """Take in new rows, or one as a dict; alarms then call `callback`.

        Rows that cannot be read raise an error that says why, and change nothing.
        """
        gate, detector = self._fitted
        if isinstance(X, Mapping) and all(map(np.isscalar, X.values())):
            import pandas as pd

            X = pd.DataFrame([X])
        points = on_host(gate.check(X, "X"))
        watch, alarms = self._watch, []
        for block in spans(count(points), BLOCK):
            features = detector.features(take(points, block))
            while len(features):
                watch, used, alarm = _advance(detector, watch, features)
                features = features[used:]
                alarms += [alarm] if alarm is not None else []
        answer = DriftResult(
            watch.rows,
            watch.score,
            tuple(alarms),
            watch.recent,
            watch.path.times,
            watch.path.values,
        )
        # one assignment, once everything has worked: an interrupt leaves it before or after
        self.__dict__.update(_watch=watch, _last=bool(alarms))
        if self.callback is not None:
            for alarm in alarms:
                self.callback(alarm)
        return answer

    def restart(self, reference: Any = None) -> DriftMonitor:
        """Begin again: against the same reference, or after a change against rows since then."""
        fitted = self._fitted if reference is None else self._fit(reference)
        fresh = object.__new__(type(self))
        fresh.__dict__.update(self.__dict__, _fitted=fitted)
        self.__dict__.update(_fitted=fitted, _watch=fresh._begin(), _last=False)
        return self

    def __repr__(self) -> str:
        return (
            f"DriftMonitor(expected_run_length={self.expected_run_length:,}: "
            f"{self._watch.rows:,} rows, {len(self._watch.recent)} alarms)"
        )


def _advance(
    detector: Detector, watch: Watch, features: np.ndarray
) -> tuple[Watch, int, Alarm | None]:
    """After some rows, up to the first alarm; how many those are."""
    features = features[: KEPT if watch.latest else 256]  # alarms may follow each other
    scores, means = detector.scores(features, watch.means)
    above = np.flatnonzero(scores.max(axis=1) > 1)
    used = int(above[0]) + 1 if len(above) else len(features)
    score = scores[:used].max(axis=1)
    after = replace(
        watch,
        means=means,
        latest=_remember(watch.latest, features[:used]),
        rows=watch.rows + used,
        score=float(score[-1]),
        path=watch.path.extend(watch.rows, score),
    )
    if not len(above):
        return after, used, None
    alarm = _describe(detector, after, scores[used - 1])
    begun = replace(after, means=detector.start(), latest=())
    return replace(begun, recent=(*after.recent, alarm)[-100:]), used, alarm


def _remember(blocks: tuple[np.ndarray, ...], rows: np.ndarray) -> tuple[np.ndarray, ...]:
    """The latest rows and some before them, in a few blocks."""
    blocks = (*blocks, rows)
    few = len(blocks) < PIECES and sum(map(len, blocks)) < 4 * KEPT
    return blocks if few else (np.concatenate(blocks)[-KEPT:],)


def _describe(detector: Detector, watch: Watch, scores: np.ndarray) -> Alarm:
    latest = np.concatenate(watch.latest)[-KEPT:]
    since = detector.change_point(latest, int(np.argmax(scores)))
    columns = detector.columns_of(latest[-since:])
    limit = -ndtri(SURE / max(len(columns), 1))
    changed = tuple(name for name, score in columns.items() if score > limit)
    return Alarm(watch.rows, watch.rows - since + 1, float(scores.max()), columns, changed)


def _check_callback(callback: Any) -> Any:
    if callback is not None and not callable(callback):
        raise TypeError(f"callback: expected a function of an Alarm or None, got {callback!r:.60}.")
    return callback


def _column_names(kernel: Any, points: Any) -> list[str]:
    """The columns of a frame, or their numbers."""
    if kernel.names is not None:
        return [str(name) for name in kernel.names]
    several = len(points) if isinstance(points, tuple) else points.shape[1:]
    columns = several if isinstance(several, int) else (*several, 1)[0]
    return [str(j) for j in range(columns)]
