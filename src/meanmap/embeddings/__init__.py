"""Distributions as points of a reproducing kernel Hilbert space."""

from meanmap.embeddings.joint import GridEmbedding, JointEmbedding
from meanmap.embeddings.make import embed, embedding_of
from meanmap.embeddings.single import Embedding
from meanmap.embeddings.values import (
    Deferred,
    FactoredWeights,
    as_rows,
    function_values,
    numeric,
    row_blocks,
)

__all__ = [
    "Deferred",
    "Embedding",
    "FactoredWeights",
    "GridEmbedding",
    "JointEmbedding",
    "as_rows",
    "embed",
    "embedding_of",
    "function_values",
    "numeric",
    "row_blocks",
]
