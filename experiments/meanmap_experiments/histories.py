"""Histories of populations, simulated by msprime, and statistics of the sequences.

msprime is licensed under the GPL: it is imported here when it is asked for, and by nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

MUTATION, RECOMBINATION = 1.5e-8, 1e-8  # a base and generation, about those of humans
LENGTH = 1e5  # bases
DIPLOIDS = 20  # in the sample
ANCESTORS = 10_000  # diploids of the population that split
CLASSES = (1, 2, 3, 6, 11)  # minor alleles that a class of the spectrum begins with


@dataclass(frozen=True)
class History:
    """A simulator of sequences, what is inferred, and what is seen."""

    words: str
    low: tuple[float, ...]
    high: tuple[float, ...]
    names: tuple[str, ...]
    simulate: Callable[[np.ndarray, np.random.Generator], Any]
    summary: Callable[[Any], np.ndarray]

    @property
    def prior(self) -> dict[str, Any]:
        """Uniform and independent."""
        parts = zip(self.names, self.low, self.high, strict=True)
        return {name: stats.uniform(low, high - low) for name, low, high in parts}

    @property
    def scale(self) -> np.ndarray:
        """The prior's standard deviations."""
        return (np.array(self.high) - np.array(self.low)) / np.sqrt(12)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Parameters from the prior, (d,)."""
        return rng.uniform(self.low, self.high)

    def observe(self, theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Summary statistics of simulated sequences."""
        return self.summary(self.simulate(theta, rng))


def growth(theta: np.ndarray, rng: np.random.Generator) -> Any:
    """Sequences from a population that has grown by e^(10^θ₂) a generation to 10^θ₁ diploids."""
    import msprime

    demography = msprime.Demography()
    demography.add_population(
        name="A", initial_size=10 ** float(theta[0]), growth_rate=10 ** float(theta[1])
    )
    return _sequences(demography, {"A": DIPLOIDS}, rng)


def split(theta: np.ndarray, rng: np.random.Generator) -> Any:
    """Sequences from two populations of 10^θ₁ and 10^θ₂ that were one 10^θ₃ generations ago."""
    import msprime

    demography = msprime.Demography()
    demography.add_population(name="A", initial_size=10 ** float(theta[0]))
    demography.add_population(name="B", initial_size=10 ** float(theta[1]))
    demography.add_population(name="C", initial_size=ANCESTORS)
    demography.add_population_split(time=10 ** float(theta[2]), derived=["A", "B"], ancestral="C")
    return _sequences(demography, {"A": DIPLOIDS // 2, "B": DIPLOIDS // 2}, rng)


def _sequences(demography: Any, samples: dict[str, int], rng: np.random.Generator) -> Any:
    import msprime

    seeds = [int(s) for s in rng.integers(1, 2**31, size=2)]
    ancestry = msprime.sim_ancestry(
        samples,
        demography=demography,
        sequence_length=LENGTH,
        recombination_rate=RECOMBINATION,
        random_seed=seeds[0],
    )
    return msprime.sim_mutations(ancestry, rate=MUTATION, random_seed=seeds[1])


def growth_statistics(sequences: Any) -> np.ndarray:
    """Sites that vary, diversity, Tajima's D, and shares of classes of the folded spectrum."""
    sites = float(sequences.segregating_sites(span_normalise=False))
    diversity = float(sequences.diversity(span_normalise=False))
    spectrum = sequences.allele_frequency_spectrum(polarised=False, span_normalise=False)
    classes = np.add.reduceat(spectrum[: DIPLOIDS + 1], CLASSES)
    shares = classes[:-1] / max(classes.sum(), 1.0)  # the last is what they leave
    skew = float(sequences.Tajimas_D()) if sites else 0.0
    return np.array([np.log1p(sites), np.log1p(diversity), skew, *shares])


def split_statistics(sequences: Any) -> np.ndarray:
    """Diversity, Tajima's D, divergence and F_ST, and sites shared, private and fixed."""
    sets = [sequences.samples(population=p) for p in (0, 1)]
    within = sequences.diversity(sets, span_normalise=False)
    between = float(sequences.divergence(sets, span_normalise=False))
    fixation = 1 - within.mean() / between if between else 0.0
    joint = sequences.allele_frequency_spectrum(sets, polarised=True, span_normalise=False)
    varies = slice(1, -1)
    sites = [
        joint[varies, varies].sum(),
        joint[varies, 0].sum() + joint[varies, -1].sum(),
        joint[0, varies].sum() + joint[-1, varies].sum(),
        joint[0, -1] + joint[-1, 0],
    ]
    skew = np.nan_to_num(sequences.Tajimas_D(sets))  # NaN where nothing varies
    return np.array([*np.log1p(within), *skew, np.log1p(between), fixation, *np.log1p(sites)])


HISTORIES = {
    "growth": History(
        f"one population that grows exponentially; {DIPLOIDS} diploids",
        (3.5, -5.0),
        (5.0, -2.5),
        ("log10 size", "log10 growth"),
        growth,
        growth_statistics,
    ),
    "split": History(
        f"two populations that were one of {ANCESTORS:,}; {DIPLOIDS // 2} diploids of each",
        (3.0, 3.0, 2.5),
        (4.5, 4.5, 4.5),
        ("log10 size A", "log10 size B", "log10 time"),
        split,
        split_statistics,
    ),
}
