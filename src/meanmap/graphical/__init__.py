"""Graphical models whose edges are conditional embeddings."""

from meanmap.graphical.beliefs import Beliefs
from meanmap.graphical.loops import BeliefPropagation
from meanmap.graphical.model import KernelGraphicalModel
from meanmap.graphical.structure import chow_liu_tree

__all__ = ["BeliefPropagation", "Beliefs", "KernelGraphicalModel", "chow_liu_tree"]
