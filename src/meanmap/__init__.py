"""Probability as linear algebra: kernel embeddings of distributions and their rules."""

from meanmap import kernels, spaces
from meanmap.conditional import ConditionalEmbedding
from meanmap.embeddings import Embedding, JointEmbedding, embed
from meanmap.linalg import ConflictWarning, RegularizationWarning
from meanmap.operators import ConditionalOperator
from meanmap.persistence import load, save
from meanmap.rules import bayes_rule, chain_rule, sum_rule
from meanmap.spaces import ApproximationWarning

__version__ = "0.1.0"

__all__ = [
    "ApproximationWarning",
    "ConditionalEmbedding",
    "ConditionalOperator",
    "ConflictWarning",
    "Embedding",
    "JointEmbedding",
    "RegularizationWarning",
    "bayes_rule",
    "chain_rule",
    "embed",
    "kernels",
    "load",
    "save",
    "spaces",
    "sum_rule",
]
