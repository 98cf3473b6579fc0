"""Watching streams: tests and monitors that may be looked at whenever one likes."""

from meanmap.monitoring.conditional import SequentialConditionalTest
from meanmap.monitoring.drift import Alarm, DriftMonitor, DriftResult
from meanmap.monitoring.records import SequentialResult, Witness
from meanmap.monitoring.sequential import SequentialIndependenceTest, SequentialTwoSampleTest

__all__ = [
    "Alarm", "DriftMonitor", "DriftResult", "SequentialConditionalTest",
    "SequentialIndependenceTest", "SequentialResult", "SequentialTwoSampleTest", "Witness",
]  # fmt: skip
