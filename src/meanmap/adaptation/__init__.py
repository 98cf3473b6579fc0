"""When training and deployment differ: weights, transformations and components that make up."""

from meanmap.adaptation.components import InvariantComponents
from meanmap.adaptation.domains import distributional_variance
from meanmap.adaptation.matching import KernelMeanMatching
from meanmap.adaptation.reweighted import Reweighted
from meanmap.adaptation.targets import TargetShift
from meanmap.adaptation.transformations import LocationScaleShift

__all__ = [
    "InvariantComponents",
    "KernelMeanMatching",
    "LocationScaleShift",
    "Reweighted",
    "TargetShift",
    "distributional_variance",
]
