"""Tests: do samples differ, do variables depend, does a model fit."""

from meanmap.comparison.candidates import Collection
from meanmap.comparison.conditional import (
    conditional_independence_test,
    conditional_two_sample_test,
)
from meanmap.comparison.counterfactual import CounterfactualEffect, counterfactual_effect
from meanmap.comparison.fit_quality import ConditionalTestResult, FitQuality
from meanmap.comparison.goodness import goodness_of_fit_test
from meanmap.comparison.independence import independence_test
from meanmap.comparison.joint import joint_independence_test
from meanmap.comparison.nulls import *  # noqa: F403
from meanmap.comparison.nulls import __all__ as null_names
from meanmap.comparison.pilot import Bootstrap, Subsample
from meanmap.comparison.power import PowerAnalysis, power_analysis
from meanmap.comparison.results import TestResult
from meanmap.comparison.running import RunningIndependenceTest, RunningTwoSampleTest
from meanmap.comparison.two_sample import two_sample_test

__all__ = [
    "Bootstrap", "Collection", "ConditionalTestResult", "CounterfactualEffect", "FitQuality",
    "PowerAnalysis", "RunningIndependenceTest", "RunningTwoSampleTest", "Subsample", "TestResult",
    "conditional_independence_test", "conditional_two_sample_test", "counterfactual_effect",
    "goodness_of_fit_test", "independence_test", "joint_independence_test", "power_analysis",
    "two_sample_test", *null_names,
]  # fmt: skip
