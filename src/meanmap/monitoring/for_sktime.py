"""The drift monitor as a detector of sktime, which must be installed: pip install sktime."""

from __future__ import annotations

from typing import Any, ClassVar

from sktime.detection.base import BaseDetector

from meanmap.monitoring.drift import DriftMonitor


class DriftDetector(BaseDetector):
    """Change points of a series, against the series that it was fitted to.

    `fit(X)` takes rows without drift, `predict(X)` says at which rows of another series a change
    began, one for each alarm of a `DriftMonitor` with these settings.

    Examples
    --------
    ::

        from meanmap.monitoring.for_sktime import DriftDetector

        changes = DriftDetector(expected_run_length=1000).fit(reference).predict(series)
    """

    _tags: ClassVar[dict[str, Any]] = {
        "task": "change_point_detection",
        "learning_type": "semi_supervised",
        "capability:multivariate": True,
        "X_inner_mtype": "pd.DataFrame",
    }

    def __init__(
        self, expected_run_length: int = 10_000, kernel: Any = None, random_state: Any = 0
    ) -> None:
        self.expected_run_length = expected_run_length
        self.kernel = kernel
        self.random_state = random_state
        super().__init__()

    def _fit(self, X: Any, y: Any = None) -> DriftDetector:
        self.monitor_ = DriftMonitor(
            X, self.expected_run_length, self.kernel, random_state=self.random_state
        )
        return self

    def _predict(self, X: Any) -> Any:
        import pandas as pd

        alarms = self.monitor_.restart().update(X).alarms
        return pd.Series(sorted({alarm.change - 1 for alarm in alarms}), dtype="int64")
