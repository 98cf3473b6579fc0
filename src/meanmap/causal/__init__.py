"""Causal functions in closed form: curves and distributions of what would be."""

from meanmap.causal.curves import CausalCurve, Overlap
from meanmap.causal.dose_response import DoseResponse
from meanmap.causal.instruments import InstrumentalRegression, InstrumentStrength
from meanmap.causal.mediation import Mediation
from meanmap.causal.proxies import ProxyEffect

__all__ = [
    "CausalCurve",
    "DoseResponse",
    "InstrumentStrength",
    "InstrumentalRegression",
    "Mediation",
    "Overlap",
    "ProxyEffect",
]
