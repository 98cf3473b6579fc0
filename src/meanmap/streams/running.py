"""Streams of rows: add a batch, merge two streams, stop and go on, keep nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sized
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from meanmap import checks
from meanmap.arrays import (
    Array,
    Points,
    concatenate,
    count,
    float_like,
    is_array,
    is_chunked,
    spans,
    take,
    to_numpy,
)
from meanmap.embeddings import Embedding
from meanmap.embeddings.single import embedding_of
from meanmap.kernels import Kernel, TensorProduct
from meanmap.kernels.algebra import require_same_kernel, variables
from meanmap.kernels.defaults import as_kernel
from meanmap.persistence import fingerprint, load, save
from meanmap.progress import progress_bar
from meanmap.spaces import Space
from meanmap.spaces.space import fit_space
from meanmap.streams.chunks import Chunks
from meanmap.streams.sums import BLOCK, SpanningPoints, require_same_space


def feed(
    model: Any,
    batches: Iterable[Any],
    save_to: str | os.PathLike[str] | None = None,
    every: int = 10,
    progress: bool | None = None,
) -> Any:
    """Give a model one batch after the other, and go on where an interrupted run left off.

    Parameters
    ----------
    model : anything with `partial_fit`
    batches : iterable
        Of arrays, or of tuples: the arguments of `partial_fit`. After an interruption it must give
        the same batches in the same order; those that were seen are passed over.
    save_to : file name or None
        Where the model and the number of batches are kept. If the file is there, the model in it
        goes on, not the one that is given. A model with other settings, or other batches than
        those that the model in the file has seen, are refused.
    every : int
        Batches between two savings.
    progress : bool or None
        Show a progress bar; None on a terminal only.

    Returns
    -------
    The model that has seen all batches.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.streams import RunningEmbedding, feed
    >>> rng = np.random.default_rng(0)
    >>> feed(RunningEmbedding(), (rng.normal(size=(100, 2)) for _ in range(5))).total_
    500.0
    """
    every = checks.whole(every, "every", 1, "Batches between two savings.")
    path = None if save_to is None else Path(save_to)
    seen, told = 0, ""
    if path is not None and path.exists():
        model, seen, told = _resume(model, path)
    found = ""  # of the batches so far
    number = -1
    total = len(batches) if isinstance(batches, Sized) else None
    with progress_bar(total, "batches", progress, "batch") as done:
        for number, batch in enumerate(batches):
            if path is not None:
                found = fingerprint([found, *_contents(batch)])
            if number == seen - 1 and path is not None and found != told:
                raise ValueError(
                    f"the first {seen} batches are not those that the model in {path.name} has "
                    f"seen. {_remedy(path)}"
                )
            if number >= seen:
                _feed_batch(model, batch, number)
                if path is not None and (number + 1) % every == 0:
                    save({"model": model, "seen": number + 1, "batches": found}, path)
            done(1)
    if path is not None and number + 1 < seen:
        raise ValueError(
            f"the model in {path.name} has seen {seen} batches, but only {number + 1} were given. "
            f"{_remedy(path)}"
        )
    if path is not None:
        save({"model": model, "seen": number + 1, "batches": found}, path)
    return model


def _remedy(path: Path) -> str:
    return (
        "Give all batches again, in the same order; to begin anew name another file, or remove "
        f"this one; to add other batches, feed them to load({path.name!r})['model']."
    )


def _resume(model: Any, path: Path) -> tuple[Any, int, str]:
    """The model in a file, which must be like the given one, and the batches that it has seen."""
    state = load(path)
    if not isinstance(state, dict) or set(state) != {"model", "seen", "batches"}:
        raise ValueError(f"{path.name} holds no stream that `feed` saved. Name another file.")
    kept = state["model"]
    if type(kept) is not type(model):
        raise ValueError(
            f"{path.name} holds a {type(kept).__name__}, not a {type(model).__name__}. Name "
            "another file, or remove it to begin anew."
        )
    settings = kept.get_params(deep=False)
    for name, value in model.get_params(deep=False).items():
        if fingerprint(value) != fingerprint(settings[name]):
            raise ValueError(
                f"{path.name} holds a {type(kept).__name__} with {name}={settings[name]!r:.80}, "
                f"but the one given has {name}={value!r:.80}. Give the settings of the file, name "
                "another file, or remove it to begin anew."
            )
    return kept, int(state["seen"]), state["batches"]


def _contents(batch: Any) -> list[Any]:
    """What is in a batch, as far as is known without computing it."""
    return [_content(part) for part in (batch if isinstance(batch, tuple) else (batch,))]


def _content(part: Any) -> Any:
    """Plain data that are the same for equal rows, whatever holds them."""
    if is_chunked(part):
        return type(part).__name__
    if is_array(part):
        part = np.array(to_numpy(part), order="C")
    elif hasattr(part, "columns"):  # a data frame
        part = [[str(name), np.asarray(part[name])] for name in part.columns]
    elif hasattr(part, "to_numpy"):  # one of its columns
        part = np.asarray(part)
    try:
        return fingerprint(part)
    except TypeError:  # objects of the user's own
        return type(part).__name__


def _feed_batch(model: Any, batch: Any, number: int) -> None:
    """One batch, whose number an error names."""
    try:
        model.partial_fit(*(batch if isinstance(batch, tuple) else (batch,)))
    except (TypeError, ValueError) as error:
        raise type(error)(f"batch {number}: {error}") from error


def sum_over(spaces: tuple[Space, ...], points: Points, w: Array) -> Array:
    """`Σ w ψ(x)`, or `Σ w ψ(x) ψ(y)ᵀ` for pairs, a block at a time."""
    if len(spaces) == 1:
        return spaces[0].mean_coordinates(points, w)
    sums = []
    for block in spans(count(points), BLOCK):
        pairs = zip(spaces, take(points, block), strict=True)
        left, right = (space.coordinates(part) for space, part in pairs)
        sums.append(left.T @ (w[block][:, None] * right))
    return sum(sums[1:], sums[0])


@dataclass(frozen=True)
class Total:
    """What a running embedding keeps of some rows, and a few of them, to span spaces with."""

    sum: Array
    total: float
    points: tuple[Points, ...]

    def __add__(self, other: Total) -> Total:
        pairs = zip(self.points, other.points, strict=True)
        points = tuple(
            take(concatenate(pair), slice(0, max(count(part) for part in pair))) for pair in pairs
        )
        return Total(self.sum + other.sum, self.total + other.total, points)


def _total_of_chunk(
    number: int, rows: tuple[Any, ...], kernel: Kernel, spaces: tuple[Space, ...], paired: bool
) -> Total:
    parts, w = rows[: len(spaces)], rows[len(spaces) :]
    like = tuple(space.example_ for space in spaces)
    points = kernel.check(parts if paired else parts[0], "X", like if paired else like[0])
    given = w[0] if w else None
    weights = checks.sample_weights(given, points, float_like(points))
    total = checks.total_weight(given, count(points))
    few = tuple(
        take(part, slice(0, space.rank_))
        for part, space in zip(points if paired else (points,), spaces, strict=True)
    )
    return Total(total * sum_over(spaces, points, weights), total, few)


class RunningEmbedding(BaseEstimator):
    """The embedding (or covariance operator) of a stream, batch by batch.

    Parameters
    ----------
    kernel : Kernel or None
    basis : a basis, a fitted Space, a tuple of them for pairs, or None
        Chosen on the first batch, then kept. To merge two streams give both the same fitted Space.

    Attributes
    ----------
    embedding_ : the Embedding so far, on points that span its space
    total_ : the weight seen

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import embed
    >>> from meanmap.spaces import PivotedCholesky
    >>> from meanmap.streams import RunningEmbedding
    >>> X = np.random.default_rng(0).normal(size=(3000, 2))
    >>> stream = RunningEmbedding(basis=PivotedCholesky(tol=1e-8))
    >>> for batch in np.array_split(X, 10):
    ...     stream = stream.partial_fit(batch)
    >>> whole = embed(X, basis=stream.space_)
    >>> bool(abs(stream.embedding_.coordinates - whole.coordinates).max() < 1e-10)
    True
    """

    kernel_: Kernel
    total_: float
    spaces_: tuple[Space, ...]
    _sum: Array
    _frames: tuple[SpanningPoints, ...]

    def __init__(self, kernel: Any = None, basis: Any = None) -> None:
        self.kernel = kernel
        self.basis = basis

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Start anew with this batch."""
        settings = self.get_params(deep=False)
        fresh = type(self)(**settings).partial_fit(X, sample_weight=sample_weight)
        self.__dict__.update(fresh.__dict__)
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Add a batch: points, or a tuple of samples for a covariance operator."""
        if is_chunked(*(X if isinstance(X, tuple) else (X,))):
            return self._add_chunks(X, sample_weight)
        first = not hasattr(self, "total_")
        kernel = as_kernel(self._given_kernel(), X, "X") if first else self.kernel_
        points = kernel.check(X, "X", None if first else self._frame_points())
        w = checks.sample_weights(sample_weight, points, float_like(points))
        total = checks.total_weight(sample_weight, count(points))
        if first:
            kernel = kernel.resolve(points, w)
            spaces = self._placed(kernel, points, w)
            pairs = zip(spaces, self._parts(kernel, points), strict=True)
            frames = tuple(SpanningPoints.of(space, part) for space, part in pairs)
            added = total * sum_over(spaces, points, w)
            self.__dict__.update(
                kernel_=kernel, spaces_=spaces, _frames=frames, _sum=added, total_=total
            )
            return self
        added = total * sum_over(self.spaces_, points, w)
        return self._add(added, total, self._parts(kernel, points))

    def _add(self, added: Array, total: float, points: tuple[Points, ...]) -> Self:
        """More rows, in one assignment: an interrupt leaves all or nothing of them."""
        triples = zip(self._frames, self.spaces_, points, strict=True)
        frames = tuple(frame.extend(space, part) for frame, space, part in triples)
        self.__dict__.update(_frames=frames, _sum=self._sum + added, total_=self.total_ + total)
        return self

    def _add_chunks(self, X: Any, sample_weight: Any) -> Self:
        """Add every chunk of Dask; the first time spaces are fitted to a sample of them all."""
        parts = X if isinstance(X, tuple) else (X,)
        names = [f"X[{i}]" for i in range(len(parts))] if len(parts) > 1 else ["X"]
        given = dict(zip(names, parts, strict=True))
        chunks = Chunks.of(**given, sample_weight=sample_weight)
        reader = copy(self)
        if not hasattr(self, "total_"):
            drawn = chunks.sample()
            rows, w = drawn[: len(parts)], drawn[len(parts) :]
            reader.partial_fit(
                rows if len(parts) > 1 else rows[0], sample_weight=w[0] if w else None
            )
            reader._sum, reader.total_ = 0 * reader._sum, 0.0
        found = chunks.reduce(_total_of_chunk, reader.kernel_, reader.spaces_, len(parts) > 1)
        self.__dict__.update(reader._add(found.sum, found.total, found.points).__dict__)
        return self

    def _bases(self) -> tuple[Any, ...]:
        return self.basis if isinstance(self.basis, tuple) else (self.basis,)

    def _given_kernel(self) -> Any:
        bases = self._bases()
        if self.kernel is not None or not all(isinstance(basis, Space) for basis in bases):
            return self.kernel
        for basis in bases:
            check_is_fitted(basis)
        kernels = [basis.kernel_ for basis in bases]
        return kernels[0] if len(kernels) == 1 else TensorProduct(*kernels)

    def _parts(self, kernel: Kernel, points: Points) -> tuple[Points, ...]:
        """The variables: those of a plain tensor product, unless one Space holds them all."""
        split = len(variables(kernel)) > 1 and not isinstance(self.basis, Space)
        return points if split else (points,)

    def _placed(self, kernel: Kernel, points: Points, w: Array) -> tuple[Space, ...]:
        parts = self._parts(kernel, points)
        kernels = variables(kernel) if len(parts) > 1 else (kernel,)
        if len(parts) > 2:
            raise ValueError(f"a stream of {len(parts)} variables; one or two are supported.")
        bases = self._bases() if isinstance(self.basis, tuple) else self._bases() * len(parts)
        if len(bases) != len(parts):
            raise ValueError(f"basis: expected {len(parts)}, one per variable, got {len(bases)}.")
        spaces = []
        for k, basis, part in zip(kernels, bases, parts, strict=True):
            if isinstance(basis, Space):
                check_is_fitted(basis)
                require_same_kernel(basis.kernel_, k)
                k.check(part, "X", basis.example_, "the given space")
                spaces.append(basis)
            else:
                spaces.append(fit_space(k, basis, part, w)[0])
        return tuple(spaces)

    def _frame_points(self) -> Points:
        points = tuple(take(frame.points, slice(0, 1)) for frame in self._frames)
        return points if len(points) > 1 else points[0]

    def merge(self, other: RunningEmbedding) -> Self:
        """Add what another stream has seen, given the same coordinates."""
        if not isinstance(other, RunningEmbedding):
            raise TypeError(f"expected a RunningEmbedding, got {checks.describe(other)}.")
        check_is_fitted(self, "total_")
        check_is_fitted(other, "total_")
        if len(self.spaces_) != len(other.spaces_):
            raise ValueError("the two streams have different numbers of variables.")
        for i, (mine, theirs) in enumerate(zip(self.spaces_, other.spaces_, strict=True)):
            require_same_space(mine, theirs, f"variable {i}")
        return self._add(other._sum, other.total_, tuple(f.points for f in other._frames))

    @property
    def space_(self) -> Space:
        """The space of a single variable."""
        check_is_fitted(self, "total_")
        return self.spaces_[0]

    @property
    def operator_(self) -> Array:
        """The (uncentred) covariance operator `C_XY` of a pair."""
        check_is_fitted(self, "total_")
        return self._sum / self.total_

    @property
    def embedding_(self) -> Embedding:
        """The embedding so far."""
        check_is_fitted(self, "total_")
        if len(self.spaces_) > 1:
            raise TypeError("a stream of pairs is an operator; see .operator_.")
        coordinates = self._sum / self.total_
        weights = self._frames[0].weights(coordinates)
        return embedding_of(self.space_, self.kernel_, self._frames[0].points, weights, coordinates)
