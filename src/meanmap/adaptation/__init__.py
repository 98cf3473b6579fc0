"""When training and deployment differ: weights, transformations and components that make up."""

from meanmap.adaptation.domains import distributional_variance
from meanmap.adaptation.invariant_components import InvariantComponents
from meanmap.adaptation.location_scale import LocationScaleShift
from meanmap.adaptation.mean_matching import KernelMeanMatching
from meanmap.adaptation.reweighted import Reweighted
from meanmap.adaptation.target_shift import TargetShift

__all__ = [
    "InvariantComponents",
    "KernelMeanMatching",
    "LocationScaleShift",
    "Reweighted",
    "TargetShift",
    "distributional_variance",
]
