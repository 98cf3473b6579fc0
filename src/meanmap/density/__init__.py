"""Densities from embeddings: mixtures that match one, and are else as even as can be."""

from meanmap.density.estimator import EmbeddingDensity

__all__ = ["EmbeddingDensity"]
