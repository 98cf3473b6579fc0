"""From atoms and weights back to points: modes, quantiles, samples, densities."""

from meanmap.decoding.densities import density, highest, widths
from meanmap.decoding.preimages import best, preimage
from meanmap.decoding.probabilities import probabilities
from meanmap.decoding.projection import nearest_probability
from meanmap.decoding.quantiles import Distribution
from meanmap.decoding.sampling import draw, herd

__all__ = [
    "Distribution",
    "best",
    "density",
    "draw",
    "herd",
    "highest",
    "nearest_probability",
    "preimage",
    "probabilities",
    "widths",
]
