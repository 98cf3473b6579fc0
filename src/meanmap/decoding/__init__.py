"""From atoms and weights back to points: modes, quantiles, samples, densities."""

from meanmap.decoding.densities import density, highest, widths
from meanmap.decoding.preimages import best, preimage
from meanmap.decoding.probabilities import draw, herd, nearest_probability, probabilities
from meanmap.decoding.quantiles import Distribution

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
