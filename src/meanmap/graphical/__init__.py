"""Graphical models whose edges are conditional embeddings."""

from meanmap.graphical.model import KernelGraphicalModel
from meanmap.graphical.structure import chow_liu_tree

__all__ = ["KernelGraphicalModel", "chow_liu_tree"]
