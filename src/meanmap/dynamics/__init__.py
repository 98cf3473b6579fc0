"""Filters, smoothers and predictors for hidden states with unknown dynamics."""

from meanmap.dynamics.additive import AdditiveFilter
from meanmap.dynamics.bayes import KernelBayesFilter
from meanmap.dynamics.spectral import SpectralFilter
from meanmap.dynamics.stream import Stream
from meanmap.dynamics.track import Track
from meanmap.dynamics.transfer_operator import TransferOperator
from meanmap.dynamics.validation import Validation

__all__ = [
    "AdditiveFilter",
    "KernelBayesFilter",
    "SpectralFilter",
    "Stream",
    "Track",
    "TransferOperator",
    "Validation",
]
