"""From atoms and weights back to points: modes, quantiles, samples, densities."""

from meanmap.decoding.densities import density
from meanmap.decoding.modes import best, mode
from meanmap.decoding.projection import nearest_probability
from meanmap.decoding.quantiles import Distribution
from meanmap.decoding.sampling import draw, herd
from meanmap.decoding.thinning import thinned

__all__ = [
    "Distribution",
    "best",
    "density",
    "draw",
    "herd",
    "mode",
    "nearest_probability",
    "thinned",
]
