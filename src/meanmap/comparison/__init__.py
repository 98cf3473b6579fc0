"""Tests: do samples differ, do variables depend, does a model fit."""

from meanmap.comparison.independence import independence_test
from meanmap.comparison.joint import joint_independence_test
from meanmap.comparison.results import TestResult
from meanmap.comparison.two_sample import two_sample_test

__all__ = ["TestResult", "independence_test", "joint_independence_test", "two_sample_test"]
