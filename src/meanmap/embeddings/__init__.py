"""Distributions as points of a reproducing kernel Hilbert space."""

from meanmap.embeddings.joint import GridEmbedding, JointEmbedding
from meanmap.embeddings.single import Embedding, embed

__all__ = ["Embedding", "GridEmbedding", "JointEmbedding", "embed"]
