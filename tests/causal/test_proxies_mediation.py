"""Effects by two proxies, and through a mediator."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import meanmap as mm
from meanmap.causal import DoseResponse, Mediation, ProxyEffect
from meanmap.exceptions import DataWarning


def test_proxies_remove_what_is_not_measured(tmp_path: object) -> None:
    rng = np.random.default_rng(0)
    hidden, a, b, c, e = rng.normal(size=(5, 500))
    z, w, t = hidden + a, hidden + b, hidden + c
    y = np.sin(t) + 3 * hidden + 0.3 * e
    model = ProxyEffect(random_state=0).fit(t, y, z, w)
    found = model.effect([-1.0, 1.0]).difference()
    adjusted = DoseResponse(random_state=0).fit(t, y, np.column_stack([z, w]))
    other = adjusted.effect([-1.0, 1.0]).difference()
    truth = 2 * np.sin(1.0)
    assert abs(found.mean[1] - truth) < 0.8 < abs(other.mean[1] - truth)
    assert abs(found.mean[1] - truth) < 5 * found.standard_error[1]
    mm.save(model, f"{tmp_path}/model.zip")
    assert_allclose(mm.load(f"{tmp_path}/model.zip").effect([0.5]).mean, model.effect([0.5]).mean)
    with pytest.warns(DataWarning, match="weak proxies"):
        ProxyEffect(random_state=0).fit(t, y, a, w)


def test_an_average_over_rows_is_that_of_a_loop() -> None:
    rng = np.random.default_rng(1)
    hidden, z, w, t, x = rng.normal(size=(5, 60))
    z, w, t = z + hidden, w + hidden, t + hidden
    model = ProxyEffect(random_state=0).fit(t, t + hidden, z, w, x)
    r = model.response_
    at = model.codings_["treatment"].read([0.3], "t")
    each = [
        r.answer(r.grams(0, r.variables[0][i : i + 1]) * r.grams(1, at)
                 * r.grams(2, r.variables[2][i : i + 1])).mean[0]
        for i in range(60)
    ]  # fmt: skip
    assert_allclose(model.effect([0.3]).mean[0], np.mean(each) + r.centre, rtol=1e-8)


def test_direct_and_indirect_effects_add_up_to_the_total() -> None:
    rng = np.random.default_rng(2)
    x, a, b, c = rng.normal(size=(4, 500))
    t = 0.5 * x + a
    m = np.sin(t) + 0.5 * x + 0.5 * b
    y = t + 2 * m + x + 0.3 * c
    model = Mediation(random_state=0).fit(t, y, m, x)
    direct, indirect = model.direct([1.0], 0.0), model.indirect([1.0], 0.0)
    total = model.effect([0.0, 1.0]).difference().mean[1]
    assert_allclose(direct.mean[0] + indirect.mean[0], total, rtol=1e-9)
    assert abs(direct.mean[0] - 1) < 0.4 and abs(indirect.mean[0] - 2 * np.sin(1)) < 0.5
    for curve, truth in ((direct, 1.0), (indirect, 2 * np.sin(1))):
        assert abs(curve.mean[0] - truth) < 5 * curve.standard_error[0]
    with pytest.raises(ValueError, match="one treatment for the mediator"):
        model.effect([0.0], mediator_at=[0.0, 1.0])
