"""Eigenfunctions of a conditional distribution from a space to itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meanmap import checks, plots
from meanmap.arrays import (
    Array,
    asarray,
    count,
    epsilon,
    float_like,
    in_kind,
    namespace,
    to_numpy,
)
from meanmap.conditional import ConditionalEmbedding
from meanmap.spaces import Space


@dataclass(frozen=True)
class OperatorSpectrum:
    """Eigenvalues of `f ↦ E[f(Y)|x]`, largest first, and the timescales that they stand for.

    Attributes
    ----------
    eigenvalues : complex where the process turns, real where it relaxes
    timescales : `-lag / log|λ|`, infinite for what is conserved
    """

    eigenvalues: Array
    timescales: Array
    _space: Space = field(repr=False)
    _vectors: np.ndarray = field(repr=False)

    def __len__(self) -> int:
        return len(self.eigenvalues)

    def functions(self, x: Any) -> Array:
        """The eigenfunctions at points, one per column, of mean square one on the sample."""
        points = self._space.kernel_.check(x, "x", self._space.example_)
        psi = self._space.coordinates(points)
        return as_complex(to_numpy(psi) @ self._vectors, psi)

    def plot(self, ax: Any = None, **style: Any) -> Any:
        """Draw the eigenvalues in the unit circle."""
        return plots.complex_plane(to_numpy(self.eigenvalues), ax, **style)

    def __repr__(self) -> str:
        shown = ", ".join(f"{value:.3g}" for value in self.eigenvalues[:4])
        return f"OperatorSpectrum({len(self)} eigenvalues: {shown}{', …' if len(self) > 4 else ''})"


def operator_spectrum(
    model: ConditionalEmbedding, n: int | None = None, lag: float = 1.0
) -> OperatorSpectrum:
    """Eigenfunctions and timescales of a process, from pairs of states (x_t, x_{t + lag}).

    The model is P(x_{t + lag} | x_t), fitted. With f(y) = c·ψ(y), E[f(Y)|x] = c·A ψ(x) and
    A ψ(x) = E[ψ(Y)|x]: an eigenfunction has Aᵀc = λc, one r × r eigenproblem.

    Parameters
    ----------
    model : ConditionalEmbedding
        With Y in the space of X.
    n : int or None
        How many eigenvalues, the largest ones; None is all of them.
    lag : float
        The time between x and y.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import ConditionalEmbedding
    >>> from meanmap.dynamics import operator_spectrum
    >>> rng, x = np.random.default_rng(0), [0.0]
    >>> for _ in range(3000):
    ...     x.append(0.8 * x[-1] + 0.6 * rng.normal())
    >>> x = np.array(x)[:, None]
    >>> model = ConditionalEmbedding(regularization=1e-5).fit(x[:-1], x[1:])
    >>> operator_spectrum(model, 3).eigenvalues.round(1)  # the truth is 1, 0.8, 0.64
    array([1. , 0.8, 0.6])
    """
    operator, sample = model.fitted_operator(), model.sides()[0].points
    if n is not None:
        n = checks.whole(n, "n", 1, "It counts eigenvalues; None gives all of them.")
    lag = checks.positive(lag, "lag", "It is the time between x and y.")
    space = operator.source
    atoms: Array = space.kernel_.check(
        operator.atoms, "the atoms of Y", space.example_, "the space of X"
    )
    A = to_numpy(operator.image(space.coordinates(atoms)))[:, : space.rank_]
    values, vectors = np.linalg.eig(A.T)
    order = np.argsort(-abs(values))[: len(values) if n is None else n]
    values, vectors = values[order], vectors[:, order]
    if abs(values.imag).max(initial=0.0) <= 1e-12 * abs(values).max(initial=1.0):
        values, vectors = values.real, vectors.real
    seen = to_numpy(space.coordinates(sample)) @ vectors
    size = np.sqrt((abs(seen) ** 2).sum(axis=0) / count(sample))
    vectors = vectors / np.where(size > 0, size, 1.0)
    magnitude = np.clip(abs(values), 1e-300, None)
    with np.errstate(divide="ignore"):
        timescales = np.where(magnitude < 1, -lag / np.log(np.minimum(magnitude, 1.0)), np.inf)
    numbers = float_like(space.example_)
    return OperatorSpectrum(
        as_complex(values, numbers), as_complex(timescales, numbers), space, vectors
    )


def as_complex(values: np.ndarray, numbers: Array) -> Array:
    """Values that may be complex, in the kind and precision of an array of real numbers."""
    if isinstance(numbers, np.ndarray) or values.dtype.kind != "c":
        return in_kind(values, numbers)
    xp = namespace(numbers)
    return asarray(values, numbers, xp.complex64 if epsilon(numbers) > 1e-10 else xp.complex128)
