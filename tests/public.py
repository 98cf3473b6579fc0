"""The public names that users call: those of `meanmap`, and those in its packages."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import meanmap
from meanmap.comparison import nulls

#: Packages with more names than the top level shows. Kernels, bases and streams have their suites.
PACKAGES = (
    "adaptation",
    "causal",
    "comparison",
    "density",
    "dynamics",
    "graphical",
    "learning",
    "likelihood_free",
    "monitoring",
    "report",
    "statistics",
)

#: Names with other suites: settings of tests, results of one function, and tests of streams.
ELSEWHERE = {
    *nulls.__all__,
    "Alarm",
    "Bootstrap",
    "Collection",
    "DriftResult",
    "SequentialResult",
    "Subsample",
    "Witness",
    "ConditionalTestResult",
    "FitQuality",
    "RunningIndependenceTest",
    "RunningTwoSampleTest",
}


def public_names() -> dict[str, Any]:
    """Every public name with its value."""
    found = {name: getattr(meanmap, name) for name in meanmap.__all__}
    for package in PACKAGES:
        module = import_module(f"meanmap.{package}")
        found |= {name: getattr(module, name) for name in module.__all__}
    found["JointEmbedding"] = meanmap.embeddings.JointEmbedding
    return {name: value for name, value in found.items() if name not in ELSEWHERE}
