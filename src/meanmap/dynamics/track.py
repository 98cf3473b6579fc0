"""What a filter found: beliefs over time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from meanmap import checks, plots
from meanmap.arrays import (
    Array,
    Points,
    count,
    device,
    each_part,
    in_kind,
    namespace,
    take,
    to_numpy,
)
from meanmap.conditional.predictive import Predictive
from meanmap.conditional.shape import ShapeAt
from meanmap.decoding import quantiles
from meanmap.dynamics.belief_shapes import known_shape, stretch_beliefs
from meanmap.dynamics.transition import dense_weights
from meanmap.embeddings import Embedding
from meanmap.embeddings.element import numeric, root
from meanmap.embeddings.single import embedding_of
from meanmap.spaces import Space


@dataclass(frozen=True, eq=False)
class Track:
    """Beliefs over time, of one sequence or of several.

    Arrays are (steps, …) for one sequence and (sequences, steps, …) for several, in the state's
    own shape; where sequences are shorter than the longest, NaN fills the rest. `track[i]` is the
    track of sequence i by itself.

    Attributes
    ----------
    mean, std : the belief's mean and standard deviation, by weights that sum to one
    mode : the likeliest state of each belief, in the state's own domain (a rotation is a rotation,
        a permutation a permutation), by `Embedding.mode`; computed when asked for
    beliefs : the beliefs themselves, a batch of embeddings (for several sequences a list of them)
    log_evidence : the logarithm of the density ratio D(o) of each observation: given those before
        it, over that of the training observations; 0 where nothing was observed. For vectors it has
        Gaussian noise about what each training state leads to expect, and an observation outside
        the training data is the less likely the farther it is
    support : how near each observation is to the training observations, 1 near and 0 far; NaN where
        nothing was observed

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import AdditiveFilter
    >>> rng = np.random.default_rng(0)
    >>> angle = np.cumsum(rng.normal(0.3, 0.1, size=300))
    >>> states = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    >>> seen = states + 0.2 * rng.normal(size=states.shape)
    >>> track = AdditiveFilter(validation=None).fit(states[:250], seen[:250]).filter(seen[250:])
    >>> track.mean.shape, track.interval(0.9)[0].shape
    ((50, 2), (50, 2))
    """

    kind: str  # "filtered", "smoothed" or "predicted"
    space: Space
    atoms: Points
    coordinates: Array  # (b, steps, r)
    weights: Any  # (b, steps, n), an array or FactoredWeights; None if they were not kept
    first: Any  # the means Σ w s, (b, steps, …), a tuple for pairs; None for labels
    spread: Any  # the variances, like `first`
    lengths: tuple[int, ...]
    single: bool
    log_evidence_: Any = None  # (b, steps), an array or PendingEvidence
    support_: np.ndarray | None = None
    shape: ShapeAt | None = None  # of b·steps beliefs, which probabilities are read from
    stretch: float = 1.0  # what deviations are multiplied with, where there is no shape

    # --- one sequence or several --------------------------------------------------------------

    def __len__(self) -> int:
        return self.lengths[0] if self.single else len(self.lengths)

    def __getitem__(self, index: int) -> Track:
        """The track of one of several sequences."""
        if self.single:
            raise TypeError(
                "this is the track of one sequence; its steps are in .mean, .std, .beliefs."
            )
        i = range(len(self.lengths))[index]
        steps = slice(0, self.lengths[i])

        def one(part: Any) -> Any:
            return None if part is None else part[i : i + 1, steps]

        return replace(
            self,
            coordinates=one(self.coordinates),
            weights=one(self.weights),
            first=None if self.first is None else each_part(self.first, one),
            spread=None if self.spread is None else each_part(self.spread, one),
            log_evidence_=one(self.log_evidence_),
            support_=one(self.support_),
            shape=None if self.shape is None else self.shape[self._rows(i)],
            lengths=(self.lengths[i],),
            single=True,
        )

    def _rows(self, i: int) -> slice:
        """The beliefs of sequence i among those of all."""
        return slice(i * self._steps, i * self._steps + self.lengths[i])

    def __iter__(self) -> Iterator[Track]:
        return (self[i] for i in range(len(self)))

    def _show(self, part: Any) -> Any:
        """An array (b, steps, …) as the user sees it."""
        if self.single:
            return part[0]
        if min(self.lengths) == max(self.lengths):
            return part
        xp = namespace(part)
        beyond = np.arange(part.shape[1])[None, :] >= np.array(self.lengths)[:, None]
        shape = (*beyond.shape, *(1,) * (part.ndim - 2))
        mask = xp.asarray(beyond.reshape(shape), device=device(part))
        return xp.where(mask, xp.full_like(part, float("nan")), part)

    # --- what a belief says -------------------------------------------------------------------

    @cached_property
    def mean(self) -> Any:
        """The mean of each belief."""
        return each_part(self._numbers(self.first), self._show)

    @cached_property
    def std(self) -> Any:
        """The standard deviation of each coordinate."""
        spread = self._numbers(self.spread)
        return each_part(spread, lambda part: self.stretch * self._show(root(part)))

    def _numbers(self, moments: Any) -> Any:
        """Moments of the beliefs, or an error where states are labels."""
        if moments is None:
            each_part(self.atoms, numeric)  # says why labels have none
            raise TypeError("these states have no mean; use .mode.")
        return moments

    @cached_property
    def mode(self) -> Any:
        """The state that decodes each belief, found in the state's own domain."""
        beliefs = self._dense_weights()
        flat = beliefs.reshape(-1, beliefs.shape[-1])
        there = np.concatenate([np.arange(n) + i * self._steps for i, n in enumerate(self.lengths)])
        found = embedding_of(self.space, self.space.kernel_, self.atoms, flat[there], None).mode()
        if self.single:
            return found
        if min(self.lengths) == max(self.lengths):
            batch = (len(self.lengths), self._steps)
            return each_part(found, lambda part: part.reshape(*batch, *part.shape[1:]))
        ends = np.cumsum(self.lengths)[:-1]
        return [take(found, at) for at in _slices(ends, len(there))]

    @property
    def _steps(self) -> int:
        return int(self.coordinates.shape[1])

    def _dense_weights(self) -> Array:
        if self.weights is None:
            raise ValueError(
                "the beliefs were not kept (beliefs=False), only their means, standard deviations "
                "and coordinates. Filter again with beliefs=True."
            )
        return dense_weights(self.weights)

    @cached_property
    def beliefs(self) -> Any:
        """The beliefs, a batch of embeddings over the steps; a list of batches for several."""
        if self.weights is None:
            self._dense_weights()
        batches = []
        for i, n in enumerate(self.lengths):
            weights, m = self.weights[i], self.coordinates[i]
            weights = weights[slice(0, n)]
            found = embedding_of(self.space, self.space.kernel_, self.atoms, weights, m[:n])
            if self.shape is not None:
                found = Predictive.of(found, partial(known_shape, self.shape[self._rows(i)]))
            batches.append(stretch_beliefs(found, self.stretch))
        return batches[0] if self.single else batches

    def interval(self, level: float = 0.9) -> tuple[Any, Any]:
        """The central credible interval of each coordinate: its lower and its upper end."""
        tail = (1 - quantiles.read_level(level)) / 2
        return self.quantile(tail), self.quantile(1 - tail)

    def quantile(self, q: float) -> Any:
        """A quantile of each coordinate, shaped like `mean`."""
        batches: list[Embedding] = [self.beliefs] if self.single else self.beliefs
        values = [self._quantiles(batch, q) for batch in batches]
        if self.single:
            return values[0]

        def pad(parts: list[Array]) -> Array:
            xp = namespace(parts[0])
            rows = []
            for part in parts:
                rest = (self._steps - part.shape[0], *part.shape[1:])
                nothing = xp.full(rest, float("nan"), dtype=part.dtype, device=device(part))
                rows.append(xp.concat([part, nothing]))
            return xp.stack(rows)

        if isinstance(values[0], tuple):
            return tuple(pad(list(parts)) for parts in zip(*values, strict=True))
        return pad(values)

    def _quantiles(self, batch: Embedding, q: float) -> Any:
        """Quantiles of beliefs; those that are not stretched themselves are stretched here."""
        found = batch.quantile(q)
        if self.stretch == 1 or isinstance(batch, Predictive) or isinstance(found, tuple):
            return found
        mean = batch.mean()
        return mean + self.stretch * (found - mean)

    @property
    def log_evidence(self) -> Array:
        """log D(o) of each observation given those before it."""
        if self.log_evidence_ is None:
            raise TypeError(f"a {self.kind} track has no evidence; that of .filter has.")
        return in_kind(self._show(self._logs), self.coordinates)

    @property
    def _logs(self) -> np.ndarray:
        given = self.log_evidence_
        return np.asarray(getattr(given, "logs", given))

    @property
    def support(self) -> Array:
        """How near each observation is to the training observations."""
        if self.support_ is None:
            raise TypeError(f"a {self.kind} track has no observations; that of .filter has.")
        return in_kind(self._show(self.support_), self.coordinates)

    # --- people -------------------------------------------------------------------------------

    def plot(self, truth: Any = None, ax: Any = None, level: float = 0.9) -> Any:
        """Draw one track: means with credible intervals over time, beside the truth if given.

        One panel per coordinate (the first six); labels are drawn as probabilities over time.
        """
        if not self.single:
            raise TypeError("plot draws one sequence: track[0].plot().")
        if isinstance(self.atoms, tuple):
            raise TypeError("plot draws states that are arrays; these are tuples of variables.")
        host = to_numpy(self.atoms)
        if host.dtype.kind not in "fiu" or host.ndim == 1:
            labels = np.unique(host)
            table = to_numpy(self.beliefs(labels)).T
            return plots.label_probabilities(labels, table, truth, ax)
        steps = self._steps
        mean = to_numpy(self.mean).reshape(steps, -1)
        if self.weights is None:
            low = high = None
        else:
            ends = self.interval(level)
            low, high = (to_numpy(end).reshape(steps, -1) for end in ends)
        shown = None if truth is None else to_numpy(truth).reshape(len(truth), -1)
        return plots.tracks(mean, low, high, shown, f"{self.kind}, {level:.0%} interval", ax)

    def __repr__(self) -> str:
        lengths = self.lengths
        if self.single:
            what = f"{lengths[0]} steps"
        elif min(lengths) == max(lengths):
            what = f"{len(lengths)} sequences of {lengths[0]} steps"
        else:
            what = f"{len(lengths)} sequences of {min(lengths)} to {max(lengths)} steps"
        evidence = ""
        if self.log_evidence_ is not None:
            total = sum(float(row[:n].sum()) for row, n in zip(self._logs, lengths, strict=True))
            evidence = f", log evidence {total:.4g}"
        shape = checks.describe(self.atoms)
        return f"Track({self.kind}, {what}{evidence}; states: {shape}, {count(self.atoms)} atoms)"


def _slices(ends: np.ndarray, total: int) -> list[slice]:
    edges = [0, *map(int, ends), total]
    return [slice(a, b) for a, b in zip(edges[:-1], edges[1:], strict=True)]
