"""Tests: do samples differ, do variables depend, does a model fit."""

from meanmap.comparison.candidates import Collection
from meanmap.comparison.column_effects import ColumnEffects
from meanmap.comparison.column_pairs import DependenceMatrix, dependence_matrix
from meanmap.comparison.conditional import (
    conditional_independence_test,
    conditional_two_sample_test,
)
from meanmap.comparison.conditional_table import ConditionalIndependence
from meanmap.comparison.counterfactual import CounterfactualEffect, counterfactual_effect
from meanmap.comparison.effects import EffectSize
from meanmap.comparison.fit_quality import ConditionalTestResult, FitQuality
from meanmap.comparison.goodness import goodness_of_fit_test
from meanmap.comparison.group_distances import GroupDistances, pairwise
from meanmap.comparison.independence import independence_test
from meanmap.comparison.joint import joint_independence_test
from meanmap.comparison.many_samples import KSampleResult, k_sample_test
from meanmap.comparison.nulls import *  # noqa: F403
from meanmap.comparison.nulls import __all__ as null_names
from meanmap.comparison.pilot import Bootstrap, Subsample
from meanmap.comparison.power import PowerAnalysis, power_analysis
from meanmap.comparison.results import TestResult
from meanmap.comparison.running import RunningIndependenceTest, RunningTwoSampleTest
from meanmap.comparison.two_sample import two_sample_test

__all__ = [
    "Bootstrap", "Collection", "ColumnEffects", "ConditionalIndependence",
    "ConditionalTestResult", "CounterfactualEffect",
    "DependenceMatrix", "EffectSize", "FitQuality", "GroupDistances", "KSampleResult",
    "PowerAnalysis", "RunningIndependenceTest", "RunningTwoSampleTest", "Subsample", "TestResult",
    "conditional_independence_test", "conditional_two_sample_test", "counterfactual_effect",
    "dependence_matrix", "goodness_of_fit_test", "independence_test", "joint_independence_test",
    "k_sample_test", "pairwise", "power_analysis",
    "two_sample_test", *null_names,
]  # fmt: skip
