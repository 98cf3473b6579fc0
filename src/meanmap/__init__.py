"""Probability as linear algebra: kernel embeddings of distributions and their rules."""

from meanmap import kernels, spaces
from meanmap.adaptation import (
    InvariantComponents,
    KernelMeanMatching,
    LocationScaleShift,
    Reweighted,
    TargetShift,
    distributional_variance,
)
from meanmap.comparison import (
    CounterfactualEffect,
    PowerAnalysis,
    TestResult,
    conditional_independence_test,
    conditional_two_sample_test,
    counterfactual_effect,
    goodness_of_fit_test,
    independence_test,
    joint_independence_test,
    power_analysis,
    two_sample_test,
)
from meanmap.conditional import ConditionalEmbedding
from meanmap.density import EmbeddingDensity
from meanmap.dynamics import (
    AdditiveFilter,
    KernelBayesFilter,
    SpectralFilter,
    Stream,
    Track,
    Validation,
)
from meanmap.embeddings import Embedding, JointEmbedding, embed
from meanmap.graphical import BeliefPropagation, Beliefs, KernelGraphicalModel, chow_liu_tree
from meanmap.learning import (
    ColoredUnfolding,
    DistributionRidge,
    HSICClustering,
    HSICSelector,
    KernelCCA,
    KernelDimensionReduction,
    KernelPCA,
    SelectionPath,
    SupportMeasureClassifier,
    SupportMeasureRegressor,
)
from meanmap.likelihood_free import (
    Calibration,
    KernelABC,
    Posterior,
    PredictiveCheck,
    SimulationWarning,
    bayes_update,
)
from meanmap.linalg import ConflictWarning, RegularizationWarning
from meanmap.operators import ConditionalOperator
from meanmap.persistence import load, save
from meanmap.report import ShiftReport, shift_report
from meanmap.rules import bayes_rule, chain_rule, sum_rule
from meanmap.spaces import ApproximationWarning
from meanmap.statistics import (
    Compression,
    compress,
    conditional_mmd,
    hscic,
    hsic,
    joint_hsic,
    mmd,
    stein_discrepancy,
)

__version__ = "0.1.0"

__all__ = [
    "AdditiveFilter",
    "ApproximationWarning",
    "BeliefPropagation",
    "Beliefs",
    "Calibration",
    "ColoredUnfolding",
    "Compression",
    "ConditionalEmbedding",
    "ConditionalOperator",
    "ConflictWarning",
    "CounterfactualEffect",
    "DistributionRidge",
    "Embedding",
    "EmbeddingDensity",
    "HSICClustering",
    "HSICSelector",
    "InvariantComponents",
    "JointEmbedding",
    "KernelABC",
    "KernelBayesFilter",
    "KernelCCA",
    "KernelDimensionReduction",
    "KernelGraphicalModel",
    "KernelMeanMatching",
    "KernelPCA",
    "LocationScaleShift",
    "Posterior",
    "PowerAnalysis",
    "PredictiveCheck",
    "RegularizationWarning",
    "Reweighted",
    "SelectionPath",
    "ShiftReport",
    "SimulationWarning",
    "SpectralFilter",
    "Stream",
    "SupportMeasureClassifier",
    "SupportMeasureRegressor",
    "TargetShift",
    "TestResult",
    "Track",
    "Validation",
    "bayes_rule",
    "bayes_update",
    "chain_rule",
    "chow_liu_tree",
    "compress",
    "conditional_independence_test",
    "conditional_mmd",
    "conditional_two_sample_test",
    "counterfactual_effect",
    "distributional_variance",
    "embed",
    "goodness_of_fit_test",
    "hscic",
    "hsic",
    "independence_test",
    "joint_hsic",
    "joint_independence_test",
    "kernels",
    "load",
    "mmd",
    "power_analysis",
    "save",
    "shift_report",
    "spaces",
    "stein_discrepancy",
    "sum_rule",
    "two_sample_test",
]
