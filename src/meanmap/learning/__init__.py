"""Learning with distributions as examples, and with dependence as the objective."""

from meanmap.learning.canonical_correlation import KernelCCA
from meanmap.learning.clustering import HSICClustering
from meanmap.learning.dimension_reduction import KernelDimensionReduction
from meanmap.learning.distribution_ridge import DistributionRidge
from meanmap.learning.feature_search import SelectionPath
from meanmap.learning.feature_selection import HSICSelector
from meanmap.learning.principal_components import KernelPCA
from meanmap.learning.support_measures import SupportMeasureClassifier, SupportMeasureRegressor
from meanmap.learning.unfolding import ColoredUnfolding

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
