"""As estimators of DoWhy, where it is installed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

PLACE = "meanmap.causal.dowhy_estimator.MeanmapEstimator"


def test_an_unknown_name_is_an_attribute_error() -> None:
    from meanmap.causal import dowhy_estimator

    with pytest.raises(AttributeError, match="no attribute 'Other'"):
        _ = dowhy_estimator.Other


@pytest.mark.needs("dowhy")
def test_backdoor_and_instrument() -> None:
    from dowhy import CausalModel

    rng = np.random.default_rng(0)
    n = 500
    z, x, hidden = rng.normal(size=(3, n))
    t = z + 0.7 * x
    frame = pd.DataFrame({"z": z, "x": x, "t": t + 0.5 * rng.normal(size=n)})
    frame["y"] = 2 * frame["t"] + x + 0.3 * rng.normal(size=n)
    graph = "digraph {x -> t; x -> y; t -> y; z -> t;}"
    model = CausalModel(frame, "t", "y", graph=graph)
    estimand = model.identify_effect(proceed_when_unidentifiable=True)
    found = model.estimate_effect(estimand, method_name=f"backdoor.{PLACE}")
    assert abs(found.value - 2) < 0.2
    low, high = found.get_confidence_intervals()
    assert low < found.value < high and high - low < 0.5
    assert found.get_standard_error() > 0

    frame["t"] = z + hidden
    frame["y"] = 2 * frame["t"] + 2 * hidden + 0.3 * rng.normal(size=n)

    graph = "digraph {u; u -> t; u -> y; t -> y; z -> t;}"
    model = CausalModel(frame[["z", "t", "y"]], "t", "y", graph=graph)
    estimand = model.identify_effect(proceed_when_unidentifiable=True)
    found = model.estimate_effect(estimand, method_name=f"iv.{PLACE}")
    assert abs(found.value - 2) < 0.6
