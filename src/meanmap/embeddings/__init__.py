"""Distributions as points of a reproducing kernel Hilbert space."""

from meanmap.embeddings.element import (
    Deferred,
    FactoredWeights,
    as_rows,
    function_values,
    numeric,
    row_blocks,
)
from meanmap.embeddings.joint import GridEmbedding, JointEmbedding
from meanmap.embeddings.single import Embedding, embed, embedding_of

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
