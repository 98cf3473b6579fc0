"""The drift monitor as a detector of sktime."""

from __future__ import annotations

import numpy as np
import pandas as pd

from optional_packages import require


def test_change_points() -> None:
    require("sktime")
    from meanmap.monitoring.for_sktime import DriftDetector

    rng = np.random.default_rng(0)
    reference = pd.DataFrame(rng.normal(size=(300, 2)), columns=["a", "b"])
    series = pd.DataFrame(rng.normal(size=(120, 2)), columns=["a", "b"])
    series.loc[60:, "b"] += 4.0
    detector = DriftDetector(expected_run_length=1000).fit(reference)
    found = detector.predict(series).to_numpy().ravel()
    assert abs(found[0] - 60) <= 5
    assert len(detector.predict(reference[:100])) <= 2
    assert DriftDetector().clone().expected_run_length == 10_000
