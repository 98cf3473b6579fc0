"""The public names and where they are defined. `__init__.py` imports them from here when asked."""

from meanmap import adaptation as adaptation
from meanmap import causal as causal
from meanmap import comparison as comparison
from meanmap import conditional as conditional
from meanmap import density as density
from meanmap import dynamics as dynamics
from meanmap import embeddings as embeddings
from meanmap import graphical as graphical
from meanmap import kernels as kernels
from meanmap import learning as learning
from meanmap import likelihood_free as likelihood_free
from meanmap import monitoring as monitoring
from meanmap import report as report
from meanmap import spaces as spaces
from meanmap import statistics as statistics
from meanmap import streams as streams
from meanmap.adaptation import InvariantComponents as InvariantComponents
from meanmap.adaptation import KernelMeanMatching as KernelMeanMatching
from meanmap.adaptation import LocationScaleShift as LocationScaleShift
from meanmap.adaptation import TargetShift as TargetShift
from meanmap.comparison import conditional_independence_test as conditional_independence_test
from meanmap.comparison import conditional_two_sample_test as conditional_two_sample_test
from meanmap.comparison import goodness_of_fit_test as goodness_of_fit_test
from meanmap.comparison import independence_test as independence_test
from meanmap.comparison import joint_independence_test as joint_independence_test
from meanmap.comparison import two_sample_test as two_sample_test
from meanmap.conditional import ConditionalEmbedding as ConditionalEmbedding
from meanmap.conditional import ConditionalOperator as ConditionalOperator
from meanmap.conditional import bayes_rule as bayes_rule
from meanmap.conditional import chain_rule as chain_rule
from meanmap.conditional import sum_rule as sum_rule
from meanmap.density import EmbeddingDensity as EmbeddingDensity
from meanmap.dynamics import AdditiveFilter as AdditiveFilter
from meanmap.dynamics import KernelBayesFilter as KernelBayesFilter
from meanmap.dynamics import SpectralFilter as SpectralFilter
from meanmap.embeddings import Embedding as Embedding
from meanmap.embeddings import embed as embed
from meanmap.exceptions import ApproximationWarning as ApproximationWarning
from meanmap.exceptions import DataWarning as DataWarning
from meanmap.exceptions import SettingWarning as SettingWarning
from meanmap.graphical import BeliefPropagation as BeliefPropagation
from meanmap.graphical import KernelGraphicalModel as KernelGraphicalModel
from meanmap.learning import ColoredUnfolding as ColoredUnfolding
from meanmap.learning import HSICClustering as HSICClustering
from meanmap.learning import HSICSelector as HSICSelector
from meanmap.learning import SupportMeasureClassifier as SupportMeasureClassifier
from meanmap.learning import SupportMeasureRegressor as SupportMeasureRegressor
from meanmap.likelihood_free import KernelABC as KernelABC
from meanmap.persistence import load as load
from meanmap.persistence import save as save
from meanmap.statistics import hsic as hsic
from meanmap.statistics import mmd as mmd

__version__: str
__all__: list[str]
