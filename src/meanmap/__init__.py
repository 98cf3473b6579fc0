"""Probability as linear algebra: kernel embeddings of distributions and their rules."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meanmap import kernels, spaces
    from meanmap.adaptation import (
        InvariantComponents,
        KernelMeanMatching,
        LocationScaleShift,
        Reweighted,
        TargetShift,
        distributional_variance,
    )
    from meanmap.arrays import MemoryWarning, PrecisionWarning
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
    from meanmap.conditional.calculus import bayes_rule, chain_rule, sum_rule
    from meanmap.conditional.operator import ConditionalOperator
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
    from meanmap.persistence import load, save
    from meanmap.report import ShiftReport, shift_report
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

__version__ = "0.2.0"

#: The public names by module. Nothing is imported before it is asked for: the command line answers
#: Ctrl-C from its first moment on.
_LATER: dict[str, tuple[str, ...]] = {
    "arrays": ("MemoryWarning", "PrecisionWarning"),
    "conditional": ("ConditionalEmbedding",),
    "conditional.calculus": ("bayes_rule", "chain_rule", "sum_rule"),
    "conditional.operator": ("ConditionalOperator",),
    "embeddings": ("Embedding", "JointEmbedding", "embed"),
    "kernels": (),
    "linalg": ("ConflictWarning", "RegularizationWarning"),
    "persistence": ("load", "save"),
    "spaces": ("ApproximationWarning",),
    "adaptation": (
        "InvariantComponents",
        "KernelMeanMatching",
        "LocationScaleShift",
        "Reweighted",
        "TargetShift",
        "distributional_variance",
    ),
    "comparison": (
        "CounterfactualEffect",
        "PowerAnalysis",
        "TestResult",
        "conditional_independence_test",
        "conditional_two_sample_test",
        "counterfactual_effect",
        "goodness_of_fit_test",
        "independence_test",
        "joint_independence_test",
        "power_analysis",
        "two_sample_test",
    ),
    "density": ("EmbeddingDensity",),
    "dynamics": (
        "AdditiveFilter",
        "KernelBayesFilter",
        "SpectralFilter",
        "Stream",
        "Track",
        "Validation",
    ),
    "graphical": ("BeliefPropagation", "Beliefs", "KernelGraphicalModel", "chow_liu_tree"),
    "learning": (
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
    ),
    "likelihood_free": (
        "Calibration",
        "KernelABC",
        "Posterior",
        "PredictiveCheck",
        "SimulationWarning",
        "bayes_update",
    ),
    "report": ("ShiftReport", "shift_report"),
    "statistics": (
        "Compression",
        "compress",
        "conditional_mmd",
        "hscic",
        "hsic",
        "joint_hsic",
        "mmd",
        "stein_discrepancy",
    ),
}
_PACKAGE = {name: package for package, names in _LATER.items() for name in names}

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
    "MemoryWarning",
    "Posterior",
    "PowerAnalysis",
    "PrecisionWarning",
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


def __getattr__(name: str) -> Any:
    """Import a name when it is first asked for."""
    if name in _LATER:
        return import_module(f"meanmap.{name}")
    if name not in _PACKAGE:
        raise AttributeError(f"module 'meanmap' has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(f"meanmap.{_PACKAGE[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *(name for name in _LATER if "." not in name)})
