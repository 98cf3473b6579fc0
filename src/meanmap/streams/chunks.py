"""Data in chunks that Dask holds: what is done to each, and how it adds up.

Every statistic of the core is a sum over rows in coordinates that a sample fixes. So a fit takes
two passes: one draws the sample, the other adds up small arrays, chunk by chunk and pair by pair up
a tree. No task sees more than a chunk, and a task that is lost is done again with the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import concatenate, is_chunked, take

SAMPLE = 20_000  # rows that kernels, coordinates and λ are chosen on
TOGETHER = 8  # results that are added up in one task


@dataclass(frozen=True)
class Chunks:
    """Variables in chunks of the same rows."""

    names: tuple[str, ...]
    pieces: list[Any]  # delayed tuples

    @classmethod
    def of(cls, **variables: Any) -> Chunks:
        """Arrays and data frames of Dask, all cut at the same rows; None is left out."""
        import dask

        given = {name: value for name, value in variables.items() if value is not None}
        first = next(name for name, value in given.items() if is_chunked(value))
        for name, value in given.items():
            if not is_chunked(value):
                raise TypeError(
                    f"{name} is {type(value).__name__} and {first} is a collection of Dask; pass "
                    f"both in chunks, for example dask.array.from_array({name}, chunks=...)."
                )
        parts = cls._delayed(given)
        pieces = [dask.delayed(tuple)(list(rows)) for rows in zip(*parts, strict=True)]
        return cls(tuple(given), pieces)

    @staticmethod
    def _delayed(given: dict[str, Any]) -> list[list[Any]]:
        """The chunks of every variable, arrays cut again where they differ."""
        (first, value), *others = given.items()
        given = {first: _whole_rows(value, first)}
        for name, other in others:
            other = _whole_rows(other, name)
            lengths, wanted = _lengths(other), _lengths(given[first])
            if lengths is not None and wanted is not None and lengths != wanted:
                if sum(lengths) != sum(wanted):
                    raise ValueError(
                        f"{first} has {sum(wanted)} rows and {name} {sum(lengths)}; row i of one "
                        "goes with row i of the other."
                    )
                if not hasattr(other, "rechunk"):
                    raise ValueError(
                        f"{first} and {name} are cut at different rows. Take both from one data "
                        "frame, or cut them alike with repartition."
                    )
                other = other.rechunk({0: wanted})
            given[name] = other
        parts = [_delayed_pieces(value) for value in given.values()]
        for name, part in zip(given, parts, strict=True):
            if len(part) != len(parts[0]):
                raise ValueError(
                    f"{first} has {len(parts[0])} chunks and {name} {len(part)}, and their lengths "
                    "are not known. Call .compute_chunk_sizes(), or cut both alike."
                )
        return parts

    def reduce(self, work: Callable[..., Any], *shared: Any) -> Any:
        """work(number, rows, *shared) of every chunk, added up; chunks without rows are left out.

        What is shared is sent once per worker, not once per chunk.
        """
        import dask

        constants = [dask.delayed(value, traverse=False) for value in shared]
        level = [
            dask.delayed(_work_on)(work, self.names, i, piece, *constants)
            for i, piece in enumerate(self.pieces)
        ]
        while len(level) > 1:
            level = [
                dask.delayed(_add_up)(level[i : i + TOGETHER])
                for i in range(0, len(level), TOGETHER)
            ]
        (found,) = dask.compute(level[0])
        if found is None:
            raise ValueError(f"{' and '.join(self.names)}: all chunks are empty.")
        return found

    def sample(self, size: int = SAMPLE, seed: int = 0) -> tuple[Any, ...]:
        """Rows drawn without replacement, every one as likely as any other."""
        return self.draw(size, seed).rows

    def draw(self, size: int = SAMPLE, seed: int = 0, gaps: tuple[str, ...] = ()) -> Drawn:
        """The same, with how many rows there are; variables named in `gaps` may have NaN."""
        return self.reduce(_draw_rows, self.names, size, seed, gaps)


def sample_rows(value: Any) -> Any:
    """Rows of a collection, drawn evenly; anything else as it is."""
    return Chunks.of(rows=value).sample()[0] if is_chunked(value) else value


def _whole_rows(value: Any, name: str) -> Any:
    """A collection cut between rows only."""
    if hasattr(value, "rechunk"):
        if value.ndim == 0:
            raise ValueError(f"{name} has no rows.")
        return value.rechunk({axis: -1 for axis in range(1, value.ndim)})
    if not (hasattr(value, "dtypes") or hasattr(value, "dtype")):
        raise TypeError(
            f"{name}: expected an array, data frame or series of Dask, got {type(value).__name__}."
        )
    return value


def _delayed_pieces(value: Any) -> list[Any]:
    """The chunks of a collection, as many as it says it has."""
    if hasattr(value, "simplify"):
        # optimised in full, a data frame would read small files together, one column of a table
        # more of them than another; simplified it reads the columns that are asked for, no more
        return list(value.simplify().to_delayed(optimize_graph=False))
    return list(np.ravel(value.to_delayed()))


def _lengths(value: Any) -> tuple[int, ...] | None:
    """The rows of every chunk, or None where Dask does not know."""
    chunks = getattr(value, "chunks", None)
    if chunks is None or any(np.isnan(length) for length in chunks[0]):
        return None
    return tuple(int(length) for length in chunks[0])


def _work_on(
    work: Callable[..., Any], names: Sequence[str], number: int, rows: Any, *shared: Any
) -> Any:
    sizes = [len(part) for part in rows]
    where = f"chunk {number} of {' and '.join(names)}"
    if len(set(sizes)) > 1:
        raise ValueError(f"{where}: the variables have {sizes} rows. Cut them at the same rows.")
    if sizes[0] == 0:
        return None
    try:
        return work(number, rows, *shared)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{where}: {error}") from error


def _add_up(parts: list[Any]) -> Any:
    """The sum of those that are there, in their order."""
    there = [part for part in parts if part is not None]
    if not there:
        return None
    total = there[0]
    for part in there[1:]:
        total = total + part
    return total


@dataclass(frozen=True)
class Drawn:
    """Some rows with random keys, of which the largest are kept."""

    rows: tuple[Any, ...]
    keys: np.ndarray
    size: int
    number: int  # the first chunk that they come from
    total: int  # rows that they were drawn of

    def __add__(self, other: Drawn) -> Drawn:
        for mine, theirs in zip(self.rows, other.rows, strict=True):
            if mine.shape[1:] != theirs.shape[1:]:
                raise ValueError(
                    f"chunk {other.number} has rows of shape {theirs.shape[1:]}, chunk "
                    f"{self.number} of shape {mine.shape[1:]}; all must be alike."
                )
        keys = np.concatenate([self.keys, other.keys])
        rows = tuple(join_pieces([a, b]) for a, b in zip(self.rows, other.rows, strict=True))
        return Drawn(rows, keys, self.size, self.number, self.total + other.total).trimmed()

    def trimmed(self) -> Drawn:
        """No more rows than were asked for."""
        if len(self.keys) <= self.size:
            return self
        kept = np.sort(np.argpartition(-self.keys, self.size)[: self.size])
        return replace(
            self, rows=tuple(rows_at(part, kept) for part in self.rows), keys=self.keys[kept]
        )


def _draw_rows(
    number: int,
    rows: tuple[Any, ...],
    names: tuple[str, ...],
    size: int,
    seed: int,
    gaps: tuple[str, ...],
) -> Drawn:
    for name, part in zip(names, rows, strict=True):
        if name in gaps:
            continue
        numbers = part.select_dtypes("number").to_numpy() if hasattr(part, "columns") else part
        numbers = np.asarray(numbers)
        if numbers.dtype.kind == "f":  # said here, where the chunk has a number
            checks.finite(numbers, name)
    keys = np.random.default_rng([seed, number]).uniform(size=len(rows[0]))
    return Drawn(rows, keys, size, number, len(keys)).trimmed()


def join_pieces(parts: list[Any]) -> Any:
    """Pieces of a variable one after the other."""
    if hasattr(parts[0], "iloc"):
        import pandas as pd

        return pd.concat(parts, ignore_index=True)
    return concatenate(parts)


def rows_at(part: Any, index: np.ndarray) -> Any:
    """Some rows of a piece."""
    return part.iloc[index] if hasattr(part, "iloc") else take(part, index)


def answer_chunks(X: Any, answer: Callable[[Any], Any], example: Any) -> Any:
    """The answers for every chunk of X, as an array of Dask that computes nothing yet.

    `example` is an answer, of which shape beyond the rows and dtype are taken.
    """
    import dask.array as da

    example = np.asarray(example)
    if hasattr(X, "rechunk"):
        X = _whole_rows(X, "X")
        drop = list(range(1, X.ndim))
        new = list(range(1, example.ndim))
        chunks = (X.chunks[0], *((length,) for length in example.shape[1:]))
        return X.map_blocks(
            _host_answer, answer, dtype=example.dtype, drop_axis=drop, new_axis=new, chunks=chunks
        )
    meta = np.empty((0, *example.shape[1:]), dtype=example.dtype)
    parts = [
        da.from_delayed(
            _delayed_answer(piece, answer), (np.nan, *example.shape[1:]), example.dtype, meta=meta
        )
        for piece in _delayed_pieces(X)
    ]
    return da.concatenate(parts, allow_unknown_chunksizes=True)


def _delayed_answer(piece: Any, answer: Callable[[Any], Any]) -> Any:
    import dask

    return dask.delayed(_host_answer)(piece, answer)


def _host_answer(rows: Any, answer: Callable[[Any], Any]) -> np.ndarray:
    return np.asarray(answer(rows))
