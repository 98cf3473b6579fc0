"""Squared distances between distributions, and what they say of dependence, as plain functions."""

from meanmap.statistics.compression import Compression, compress
from meanmap.statistics.conditional import conditional_mmd, hscic
from meanmap.statistics.dependence import hsic, joint_hsic
from meanmap.statistics.distance import mmd
from meanmap.statistics.stein import stein_discrepancy

__all__ = [
    "Compression",
    "compress",
    "conditional_mmd",
    "hscic",
    "hsic",
    "joint_hsic",
    "mmd",
    "stein_discrepancy",
]
