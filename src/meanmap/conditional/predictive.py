"""Answers of a conditional that are distributions of numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Self

import numpy as np

from meanmap import checks, decoding
from meanmap.arrays import Array, Points, asarray, float_like, to_numpy
from meanmap.conditional.shape import ShapeAt
from meanmap.decoding import quantiles
from meanmap.embeddings import Embedding


class Predictive(Embedding):
    """A conditional distribution of numbers, as a conditional answers with.

    An `Embedding`: the weights of the operator on the training targets, which expectations, norms
    and distances are of. What asks for probabilities (`quantile`, `interval`, `std`, `density`,
    `mode`, `sample`) is answered by points with positive weights: residuals of the conditional
    mean, put around its value at the query.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import ConditionalEmbedding
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(500, 1))
    >>> Y = np.sin(X) + 0.2 * rng.normal(size=(500, 1))
    >>> low, high = ConditionalEmbedding().fit(X, Y).given([1.5]).interval(0.9)
    >>> low.round(1), high.round(1)  # the truth is 0.67 and 1.33
    (array([0.7]), array([1.3]))
    """

    _shape: Callable[[np.ndarray], ShapeAt]
    _known: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        answer: Embedding,
        shape: Callable[[np.ndarray], ShapeAt],
        mean: np.ndarray | None = None,
    ) -> Self:
        """An answer, with its shape as a function of its means (b, k), and the mean if known."""
        made = cls(**answer.made_of())
        made._shape, made._known = shape, mean
        return made

    def mean(self) -> Array:
        """The mean, by weights normalised to one."""
        return super().mean() if self._known is None else asarray(self._known, self.kind)

    @cached_property
    def shape(self) -> ShapeAt:
        """The distributions as points with weights ≥ 0."""
        means = to_numpy(self.mean()).astype(np.float64)
        return self._shape(means if self.is_batch else means[None, :])

    def __getstate__(self) -> dict[str, Any]:
        state = {**vars(self), "shape": self.shape}
        state.pop("_shape", None)
        return state

    def with_weights(self, weights: Any, coordinates: Any = None) -> Any:
        return Embedding(**{**self.made_of(), "weights": weights, "coordinates": coordinates})

    def on_atoms(self, *made_of: Any) -> Embedding:
        return Embedding(*made_of)

    def __getitem__(self, index: Any) -> Predictive:
        rows = np.atleast_1d(np.arange(len(self))[index])
        return self.part(super().__getitem__(index), rows)

    def part(self, answer: Embedding, rows: np.ndarray) -> Predictive:
        """Some of the distributions, whose weights are those of `answer`."""
        return Predictive.of(answer, lambda _: self.shape[rows])

    @property
    def kind(self) -> Array:
        """An array of the kind that answers have."""
        return float_like(self.atoms)

    def _answer(self, values: np.ndarray, axis: int = 0) -> Array:
        """Values of a batch, or of its only member."""
        values = values if self.is_batch else np.take(values, 0, axis=axis)
        return asarray(values, self.kind)[()]

    def std(self) -> Array:
        """The standard deviation of each coordinate."""
        return self._answer(self.shape.std())

    def quantile(self, q: Any) -> Any:
        """Quantiles of each coordinate; an array q comes first, then the batch."""
        levels = quantiles.read_levels(q)
        found = to_numpy(self.shape.quantile(levels.ravel()))
        found = found.reshape(*levels.shape, *found.shape[1:])
        return self._answer(found, axis=levels.ndim)

    def beliefs(self) -> Iterator[tuple[Array, np.ndarray]]:
        """Points and their probabilities, of each distribution."""
        return (self.shape.belief(i) for i in range(len(self.shape)))

    has_mass = True

    def sample(self, n: int, rng: Any = None) -> Points:
        """n draws (n, k); of a batch (b, n, k). `rng` is a seed or a NumPy Generator."""
        n, random = checks.whole(n), checks.random_generator(rng)
        found = []
        for points, p in self.beliefs():
            found.append(points[decoding.draw(p[None, :], n, random)[0]])
        return self._answer(np.stack(found))

    def density(self, x: Any, bandwidth: Any = None) -> Array:
        """A density estimate at the points x: (m,), or (b, m) for a batch."""
        points, single = self.kernel.rows(x, self.atoms)
        host = to_numpy(points).astype(np.float64)
        rows = [self.shape.density(i, host, bandwidth) for i in range(len(self.shape))]
        values = np.stack(rows)
        return self._answer(values[:, 0] if single else values)
