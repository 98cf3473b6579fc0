"""Learning with distributions as examples, and with dependence as the objective."""

from meanmap.learning.clustering import HSICClustering
from meanmap.learning.components import KernelPCA
from meanmap.learning.feature_selection import HSICSelector
from meanmap.learning.reduction import KernelDimensionReduction
from meanmap.learning.ridge import DistributionRidge
from meanmap.learning.searches import SelectionPath
from meanmap.learning.support_measures import SupportMeasureClassifier, SupportMeasureRegressor
from meanmap.learning.unfolding import ColoredUnfolding
from meanmap.learning.views import KernelCCA

__all__ = [
    "ColoredUnfolding",
    "DistributionRidge",
    "HSICClustering",
    "HSICSelector",
    "KernelCCA",
    "KernelDimensionReduction",
    "KernelPCA",
    "SelectionPath",
    "SupportMeasureClassifier",
    "SupportMeasureRegressor",
]
