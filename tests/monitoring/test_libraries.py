"""Tensors of other libraries give the figures of NumPy's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from array_libraries import OTHERS, library
from meanmap.monitoring import (
    DriftMonitor,
    SequentialConditionalTest,
    SequentialIndependenceTest,
    SequentialTwoSampleTest,
)

RNG = np.random.default_rng(0)
X, Y, Z = (RNG.normal(size=(120, 2)) for _ in "XYZ")

ASKED = {
    "two samples": lambda x, y, z: SequentialTwoSampleTest().update(x, y).log_evalue,
    "independence": lambda x, y, z: SequentialIndependenceTest().update(x, y).log_evalue,
    "conditional": lambda x, y, z: SequentialConditionalTest(warm_up=50).update(x, y, z).log_evalue,
    "drift": lambda x, y, z: DriftMonitor(x, 50).update(y).score,
}


@pytest.mark.parametrize("of", OTHERS)
@pytest.mark.parametrize("asked", ASKED)
def test_tensors(asked: str, of: str) -> None:
    def tensors(values: np.ndarray) -> Any:
        return library(of).asarray(values)

    found = ASKED[asked](*map(tensors, (X, Y, Z)))
    assert_allclose(found, ASKED[asked](X, Y, Z), rtol=1e-4, atol=1e-4)
