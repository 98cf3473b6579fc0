"""Pairwise fields of numbers: values in bins, potentials known or learned, who neighbours whom.

A field has a number at every node, potentials along its edges, which share them by templates, and
at every node what is known there; evidence comes with a run of one of the methods that take a
field: `propagation` by bins and by particles, `mixtures` by Gaussians.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from scipy.ndimage import gaussian_filter, gaussian_filter1d
from scipy.sparse import csr_array

#: Logarithms of what is known at nodes: (nodes, values (len(nodes), k)) -> (len(nodes), k).
Unary = Callable[[np.ndarray, np.ndarray], np.ndarray]
FLOOR = 1e-300  # of what a logarithm is taken


# --- values and potentials ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Bins:
    """Intervals side by side.

    Examples
    --------
    >>> bins = Bins.even(0.0, 1.0, 4)
    >>> bins.index(np.array([-3.0, 0.3, 0.5, 2.0]))
    array([0, 1, 2, 3])
    """

    edges: np.ndarray

    @classmethod
    def even(cls, low: float, high: float, count: int) -> Bins:
        """Bins of equal width."""
        return cls(np.linspace(low, high, count + 1))

    @classmethod
    def quantiles(cls, values: np.ndarray, count: int) -> Bins:
        """Bins of equal frequency."""
        return cls(np.unique(np.quantile(values, np.linspace(0, 1, count + 1))))

    def __len__(self) -> int:
        return len(self.edges) - 1

    @property
    def widths(self) -> np.ndarray:
        return np.diff(self.edges)

    @property
    def centres(self) -> np.ndarray:
        return (self.edges[1:] + self.edges[:-1]) / 2

    @cached_property
    def _even(self) -> bool:
        return bool(np.allclose(self.widths, self.widths.mean(), rtol=1e-9))

    def index(self, values: np.ndarray) -> np.ndarray:
        """The bin that each value is in, the outermost for what lies outside."""
        if self._even:
            places = (values - self.edges[0]) * (len(self) / (self.edges[-1] - self.edges[0]))
            return np.clip(places, 0, len(self) - 1).astype(np.intp)
        return np.searchsorted(self.edges[1:-1], values, side="right")


class Potential(Protocol):
    """ψ(a, b) of the values at an edge's two ends."""

    def values(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """At values that broadcast, not negative."""
        ...


@dataclass(frozen=True)
class Jumps:
    """With probability `shares[k]` the ends differ by `steps[k]`, and by noise.

    Examples
    --------
    >>> Jumps((0.5, 0.5), (-1.0, 1.0), 0.1).values(np.array(0.0), np.array([0.0, 1.0])).round(3)
    array([0.   , 1.995])
    """

    shares: tuple[float, ...]
    steps: tuple[float, ...]
    noise: float

    def values(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        apart = np.asarray(b - a)
        total = np.zeros(apart.shape)
        scale = 1 / (np.sqrt(2 * np.pi) * self.noise)
        for share, step in zip(self.shares, self.steps, strict=True):
            part = apart - step
            part *= part
            part *= -0.5 / self.noise**2
            np.exp(part, out=part)
            part *= share * scale
            total += part
        return total


@dataclass(frozen=True, eq=False)
class Tabulated:
    """A potential that is constant on pairs of bins; looked up, which costs less than computing it.

    The learned ones are p(s, t) / (p(s) p(t)), with `marginals` the probabilities of the bins at
    the two ends.
    """

    bins: Bins
    table: np.ndarray
    marginals: tuple[np.ndarray, np.ndarray] | None = None

    @classmethod
    def of(cls, potential: Potential, bins: Bins) -> Tabulated:
        """A known potential at the bins' centres."""
        x = bins.centres
        return cls(bins, potential.values(x[:, None], x[None, :]))

    @classmethod
    def ratio(cls, bins: Bins, joint: np.ndarray) -> Tabulated:
        """From the probabilities of pairs."""
        p = joint / joint.sum()
        rows, columns = p.sum(axis=1), p.sum(axis=0)
        return cls(bins, p / np.maximum(np.outer(rows, columns), FLOOR), (rows, columns))

    @classmethod
    def counted(
        cls, bins: Bins, a: np.ndarray, b: np.ndarray, smoothing: float = 0.15
    ) -> Tabulated:
        """From pairs of values: counts, and as many more as `smoothing` for each pair of bins.

        Those are spread as if the ends were independent, so where nothing was seen the ratio is
        low but not zero.
        """
        k = len(bins)
        pairs = np.bincount(bins.index(a) * k + bins.index(b), minlength=k * k).reshape(k, k)
        rows, columns = (pairs.sum(axis=i) + 1 / k for i in (1, 0))
        alone = np.outer(rows / rows.sum(), columns / columns.sum())
        return cls.ratio(bins, pairs + smoothing * k * k * alone)

    @classmethod
    def smoothed(cls, bins: Bins, a: np.ndarray, b: np.ndarray) -> Tabulated:
        """From pairs of values: a kernel density of the pairs, over those of the ends.

        The bandwidth has the largest likelihood of the pairs left out: two halves, each by the
        other.
        """
        k = len(bins)
        places = bins.index(a) * k + bins.index(b)
        halves = [np.bincount(places[i::2], minlength=k * k).reshape(k, k) for i in (0, 1)]
        spread = np.array([a.std(), b.std()]) * len(a) ** (-1 / 6)  # Silverman's, two dimensions
        best, most = 1.0, -np.inf
        for factor in FACTORS:
            found = [blur(half, bins, factor * spread * 2 ** (1 / 6)) for half in halves]
            score = sum(
                float((halves[1 - i] * np.log(density + OUTLIERS / k**2)).sum())
                for i, density in enumerate(found)
            )
            if score > most:
                best, most = factor, score
        joint = blur(halves[0] + halves[1], bins, best * spread)
        alone = np.outer(joint.sum(axis=1), joint.sum(axis=0))
        return cls.ratio(bins, (1 - OUTLIERS) * joint + OUTLIERS * alone)

    def values(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if self.table.flags.c_contiguous:
            places = self.bins.index(a) * self.table.shape[1] + self.bins.index(b)
            return self.table.ravel().take(places)
        return self.table[self.bins.index(a), self.bins.index(b)]


FACTORS = (0.1, 0.15, 0.25, 0.4, 0.6, 1.0)  # of Silverman's bandwidth
OUTLIERS = 1e-3  # the share of pairs that come as if independent


def blur(counts: np.ndarray, bins: Bins, bandwidth: Any) -> np.ndarray:
    """Counts smoothed by a normal density, as probabilities; nothing leaves the bins."""
    sigma = np.maximum(np.asarray(bandwidth) / bins.widths.mean(), 0.3)
    return gaussian_filter(counts / counts.sum(), sigma, mode="reflect", truncate=5)


@dataclass(frozen=True, eq=False)
class Densities:
    """Densities constant on bins, one per group of nodes: the unary potential of a prior.

    Examples
    --------
    >>> bins = Bins.even(0.0, 1.0, 2)
    >>> prior = Densities(bins, np.array([[0.5, 1.5]]), np.zeros(3, dtype=int))
    >>> np.exp(prior(np.array([2]), np.array([[0.1, 0.9]])))
    array([[0.5, 1.5]])
    """

    bins: Bins
    heights: np.ndarray  # (groups, bins)
    group: np.ndarray  # (nodes,)

    @classmethod
    def counted(cls, bins: Bins, samples: list[np.ndarray], group: np.ndarray) -> Densities:
        """From a sample a group: counts, and one more altogether."""
        counts = np.array([np.bincount(bins.index(x), minlength=len(bins)) for x in samples])
        p = counts + 1 / len(bins)
        return cls(bins, p / p.sum(axis=1, keepdims=True) / bins.widths, group)

    @classmethod
    def smoothed(cls, bins: Bins, samples: list[np.ndarray], group: np.ndarray) -> Densities:
        """From a sample a group: kernel densities, half of Silverman's bandwidth."""
        heights = []
        for x in samples:
            p = np.bincount(bins.index(x), minlength=len(bins)) / len(x)
            sigma = max(0.45 * x.std() * len(x) ** (-1 / 5) / bins.widths.mean(), 0.3)
            p = gaussian_filter1d(p, sigma, mode="reflect", truncate=5)
            p = (1 - OUTLIERS) * p / p.sum() + OUTLIERS / len(bins)
            heights.append(p / bins.widths)
        return cls(bins, np.array(heights), group)

    def __call__(self, nodes: np.ndarray, values: np.ndarray) -> np.ndarray:
        return self._logs[self.group[nodes][:, None], self.bins.index(values)]

    @cached_property
    def _logs(self) -> np.ndarray:
        return np.log(np.maximum(self.heights, FLOOR))


# --- fields ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Template:
    """Edges that share a potential: ψ(value at `tails[i]`, value at `heads[i]`)."""

    tails: np.ndarray
    heads: np.ndarray
    potential: Potential


@dataclass(frozen=True, eq=False)
class Field:
    """A pairwise Markov random field of numbers between `low` and `high`.

    Attributes
    ----------
    count : int
        Nodes are 0 to count - 1.
    templates : tuple of Template
    unary : callable or tuple of callables
        Logarithms of what is known at nodes (several are multiplied): a prior, a likelihood.

    Examples
    --------
    >>> near = Template(np.array([0]), np.array([1]), Jumps((1.0,), (0.0,), 0.5))
    >>> def likelihood(nodes, values):
    ...     return np.where(nodes[:, None] == 0, -((values - 1.0) ** 2) / 2, -(values**2) / 8)
    >>> field = Field(2, (near,), likelihood, -5.0, 5.0)
    >>> from meanmap_experiments.propagation import DiscreteBP
    >>> DiscreteBP(field, Bins.even(-5.0, 5.0, 200)).run(3).mean.round(3)
    array([0.81, 0.762])
    """

    count: int
    templates: tuple[Template, ...]
    unary: Unary | tuple[Unary, ...]
    low: float
    high: float

    def local(
        self, nodes: np.ndarray, values: np.ndarray, evidence: Unary | None = None
    ) -> np.ndarray:
        """The logarithm of all that is known at nodes, with evidence that came later."""
        parts = self.unary if isinstance(self.unary, tuple) else (self.unary,)
        if evidence is not None:
            parts = (*parts, evidence)
        return np.asarray(sum(part(nodes, values) for part in parts))

    def everywhere(self, values: np.ndarray, evidence: Unary | None = None) -> np.ndarray:
        """`local` of all nodes at the same values, (nodes, k)."""
        every = np.broadcast_to(values, (self.count, len(values)))
        return self.local(np.arange(self.count), every, evidence)

    @cached_property
    def links(self) -> Links:
        return Links.of(self)


@dataclass(frozen=True, eq=False)
class Links:
    """Both directions of every edge: message e goes from `source[e]` to `target[e]`."""

    source: np.ndarray
    target: np.ndarray
    reverse: np.ndarray  # the message that goes the other way
    parts: tuple[tuple[slice, Potential, bool], ...]  # messages, potential, from tail to head
    into: Any  # (nodes, messages), sums what arrives

    @classmethod
    def of(cls, field: Field) -> Links:
        source, target, reverse, parts, at = [], [], [], [], 0
        for template in field.templates:
            tails, heads = np.asarray(template.tails), np.asarray(template.heads)
            n = len(tails)
            source += [tails, heads]
            target += [heads, tails]
            reverse += [np.arange(at + n, at + 2 * n), np.arange(at, at + n)]
            parts.append((slice(at, at + n), template.potential, True))
            parts.append((slice(at + n, at + 2 * n), template.potential, False))
            at += 2 * n
        none = np.zeros(0, dtype=np.intp)
        s, t, r = (np.concatenate([none, *x]).astype(np.intp) for x in (source, target, reverse))
        into = csr_array((np.ones(at), (t, np.arange(at))), shape=(field.count, at))
        return cls(s, t, r, tuple(parts), into)

    def cavity(self, logs: np.ndarray, local: np.ndarray) -> np.ndarray:
        """What each message starts from: all that its source knows but from the target."""
        total = local + self.into @ logs
        return np.asarray(total[self.source] - logs[self.reverse])


@dataclass(frozen=True, eq=False)
class Beliefs:
    """What belief propagation found.

    Attributes
    ----------
    mean : (nodes,) array
    seconds : float
    change : float
        The largest difference that the last iteration made to a node's mean.
    density : callable
        `density(node, values)`: the belief at values.
    """

    mean: np.ndarray
    seconds: float
    iterations: int
    change: float
    density: Callable[[int, np.ndarray], np.ndarray]


def scaled(logs: np.ndarray) -> np.ndarray:
    """Exponentials of rows, the largest one."""
    return np.exp(logs - logs.max(axis=-1, keepdims=True))
