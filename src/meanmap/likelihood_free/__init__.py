"""Bayesian answers without a likelihood: a simulator, or data, and the rules of probability."""

from meanmap.likelihood_free.inference import KernelABC
from meanmap.likelihood_free.results import Calibration, Posterior, PredictiveCheck
from meanmap.likelihood_free.update import bayes_update

__all__ = [
    "Calibration",
    "KernelABC",
    "Posterior",
    "PredictiveCheck",
    "bayes_update",
]
