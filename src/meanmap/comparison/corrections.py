"""P-values of many tests together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meanmap import checks


def holm(pvalues: Sequence[float] | np.ndarray) -> list[float]:
    """P-values corrected for multiple testing (Holm 1979): the chance of any false discovery."""
    order = np.argsort(pvalues, kind="stable")
    steps = np.array(pvalues, dtype=float)[order] * np.arange(len(pvalues), 0, -1)
    adjusted = np.empty(len(pvalues))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return [float(p) for p in adjusted]


def false_discovery_rate(pvalues: Sequence[float] | np.ndarray) -> list[float]:
    """The share of false discoveries (Benjamini and Hochberg 1995)."""
    order = np.argsort(pvalues, kind="stable")
    n = len(pvalues)
    steps = np.array(pvalues, dtype=float)[order] * n / np.arange(1, n + 1)
    adjusted = np.empty(n)
    adjusted[order] = np.minimum(np.minimum.accumulate(steps[::-1])[::-1], 1.0)
    return [float(p) for p in adjusted]


#: By name.
CORRECTIONS: dict[str | None, Callable[[Any], list[float]]] = {
    "holm": holm,
    "fdr": false_discovery_rate,
    None: lambda pvalues: [float(p) for p in pvalues],
}


def read_correction(value: Any) -> Callable[[Any], list[float]]:
    """A correction by its name."""
    if value is not None:
        checks.option(value, "correction", [word for word in CORRECTIONS if word is not None])
    return CORRECTIONS[value]
