"""Two samples as a report needs them: rows as points, and columns by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Points, concatenate, count, is_array, is_chunked, take, to_numpy
from meanmap.frames import is_frame, list_names
from meanmap.kernels import Columns, Delta, Gaussian, Kernel
from meanmap.kernels.defaults import as_kernel
from meanmap.statistics.columns import column_moments, label_indicators, random_ranks
from meanmap.statistics.gates import looks_like_classes, require_points
from meanmap.statistics.tiles import on_host
from meanmap.streams.chunks import SAMPLE, Chunks


@dataclass(frozen=True, eq=False)
class ColumnPair:
    """A column in both samples: numbers (n, 1), or anything else that its kernel takes."""

    name: Any
    kernel: Kernel
    train: np.ndarray
    test: np.ndarray
    given: bool = False  # whether the caller chose the kernel

    @property
    def is_number(self) -> bool:
        return self.train.ndim == 2 and self.train.shape[1] == 1 and self.train.dtype.kind == "f"

    @property
    def is_label(self) -> bool:
        return self.train.ndim == 1 and self.kernel.discrete

    @property
    def is_constant(self) -> bool:
        """Whether all values in both samples are equal."""
        if not (self.is_number or self.is_label):
            return False
        first = self.train[:1]
        return bool((self.train == first).all() and (self.test == first).all())

    def take_rows(self, train: np.ndarray, test: np.ndarray) -> ColumnPair:
        """The column at some rows."""
        parts = take(self.train, train), take(self.test, test)
        return ColumnPair(self.name, self.kernel, *parts, self.given)


@dataclass(frozen=True, eq=False)
class Samples:
    """Training and test rows; `kernel` is None if the rows are vectors made from the columns."""

    train: Points
    test: Points
    kernel: Kernel | None
    fields: tuple[ColumnPair, ...]
    sizes: tuple[int, int]  # before a sample of the rows was drawn
    drawn_of: tuple[int | None, int | None] = (None, None)  # the number of rows in chunks

    @property
    def movable(self) -> np.ndarray | None:
        """Which coordinates of the rows can change location and scale."""
        if self.kernel is None:
            widths = [column_coordinates(field)[0].shape[1] for field in self.fields]
            mask = np.repeat([field.is_number for field in self.fields], widths)
            return mask if mask.any() else None
        array = self.train
        if isinstance(array, np.ndarray) and array.ndim == 2 and array.dtype.kind == "f":
            return np.ones(array.shape[1], dtype=bool)
        return None

    @property
    def used(self) -> tuple[int, int]:
        return count(self.train), count(self.test)

    @property
    def whole(self) -> tuple[int, int]:
        """The numbers of all rows, including those in chunks."""
        return self.drawn_of[0] or self.sizes[0], self.drawn_of[1] or self.sizes[1]

    @property
    def words(self) -> list[str]:
        """A note if the report is based on a sample of rows in chunks."""
        parts = [
            f"{few:,} of {size:,} {name} rows"
            for few, size, name in zip(self.used, self.drawn_of, ("training", "test"), strict=True)
            if size is not None and few < size
        ]
        drawn = "drawn chunk by chunk with equal probability."
        both = " and ".join(parts)
        return [f"The report is based on a sample of {both}, {drawn}"] if parts else []


def in_memory(
    rows: Any, targets: Any, names: tuple[str, str], most: int | None, rng: np.random.Generator
) -> tuple[Any, Any, int | None]:
    """A random sample of rows and targets in Dask collections, and the number of all rows.

    Data in memory are returned unchanged, with None.
    """
    if not is_chunked(rows, targets):
        return rows, targets, None
    chunks, seed = Chunks.of(**dict(zip(names, (rows, targets), strict=True))), rng.integers(2**31)
    # test rows may lack a target
    found = chunks.draw(most or SAMPLE, int(seed), ("y_test",))
    return found.rows[0], None if targets is None else found.rows[1], found.total


def read_samples(
    train: Any, test: Any, kernel: Any, max_samples: int | None, rng: np.random.Generator
) -> tuple[Samples, np.ndarray, np.ndarray]:
    """Both samples, checked, and the indices of the rows in use."""
    tables = as_table(train, "train", kernel), as_table(test, "test", kernel)
    fields: list[ColumnPair] = []
    points: tuple[Points, Points] | None = None
    if tables[0] is not None and tables[1] is not None:
        tables = by_position(tables[0], train, tables[1], test)
        given = isinstance(kernel, Kernel) and kernel.domain == "tables"
        by_column = (kernel if given else Columns()).bind(tables[0], "train")
        check_same_columns(tables[0], tables[1])
        parts = by_column.check(tables[0], "train")
        others = by_column.check(tables[1], "test", parts, "train")
        trios = zip(by_column.names or (), by_column.factors, parts, others, strict=True)
        fields = [ColumnPair(c, k, on_host(a), on_host(b), given) for c, k, a, b in trios]
    plain = bool(fields) and all(field.is_number or field.is_label for field in fields)
    if kernel is not None or not plain:
        kernel = as_kernel(kernel, train, "train")
        first = on_host(kernel.check(train, "train"))
        points = first, on_host(kernel.check(test, "test", first, "train"))
    sizes = (
        (count(points[0]), count(points[1]))
        if points is not None
        else (len(fields[0].train), len(fields[0].test))
    )
    for name, size in zip(("train", "test"), sizes, strict=True):
        require_points(size, name, 2)
    rows = [rows_at_random(size, max_samples, rng) for size in sizes]
    kept = tuple(field.take_rows(*rows) for field in fields)
    if points is None:
        points = row_coordinates(kept)
        return Samples(*points, None, kept, sizes), rows[0], rows[1]
    a, b = (take(part, index) for part, index in zip(points, rows, strict=True))
    return Samples(a, b, kernel, kept, sizes), rows[0], rows[1]


def rows_at_random(size: int, most: int | None, rng: np.random.Generator) -> np.ndarray:
    """Random rows in their order; all of them if there are not too many."""
    if most is None or size <= most:
        return np.arange(size)
    return np.sort(rng.choice(size, most, replace=False))


def as_table(data: Any, name: str, kernel: Any) -> dict[Any, Any] | None:
    """The columns of a frame, a dict or an array by name; None for other points."""
    if isinstance(data, Mapping):
        return dict(data)
    if is_frame(data):
        names = list(data.columns)
        twice = sorted({str(column) for column in names if names.count(column) > 1})
        if twice:
            raise ValueError(f"{name}: columns appear twice: {', '.join(twice)}. Rename them.")
        return {column: data[column] for column in names}
    if isinstance(data, tuple) or (isinstance(kernel, Kernel) and not kernel.on_vectors):
        return None
    if isinstance(data, list) and data and not np.isscalar(data[0]) and not is_array(data[0]):
        try:
            np.asarray(data, dtype=float)
        except (TypeError, ValueError):
            return None  # graphs, sets, series: their kernel reports errors
    array = to_numpy(checks.any_points(data, name))
    if array.ndim == 1 and kernel is None and array.dtype.kind in "USObT":
        return {"value": array}
    if array.ndim != 2:
        return None
    return {f"x{j}": array[:, j] for j in range(array.shape[1])}


def by_position(
    first: dict[Any, Any], train: Any, second: dict[Any, Any], test: Any
) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Both tables by column; an array takes the names of the other table."""
    named = [is_frame(data) or isinstance(data, Mapping) for data in (train, test)]
    if named[0] == named[1] or len(first) != len(second):
        return first, second
    names = first if named[0] else second
    renamed = [dict(zip(names, one.values(), strict=True)) for one in (first, second)]
    return renamed[0], renamed[1]


def check_same_columns(train: Mapping[Any, Any], test: Mapping[Any, Any]) -> None:
    """Refuse tables that do not have the same columns."""
    words = missing_columns((train, test), ("train", "test"))
    if words:
        raise ValueError(
            f"train and test must have the same columns: {words}. Drop or add those columns, so "
            "that the same things are compared."
        )


def missing_columns(tables: Sequence[Collection[Any]], names: Sequence[str]) -> str:
    """Which columns each of two tables lacks, in words."""
    words = []
    for here, there, name in ((*tables, names[1]), (*tables[::-1], names[0])):
        lacking = [repr(column) for column in here if column not in there]
        if lacking:
            words.append(f"{name} lacks {list_names(lacking)}")
    return "; ".join(words)


# --- coordinates ----------------------------------------------------------------------------------


def column_coordinates(field: ColumnPair) -> tuple[np.ndarray, np.ndarray]:
    """A column as coordinates in which two random rows have a mean squared distance of 2.

    Numbers are standardised and labels become indicators, on both samples together: exchanging
    rows between the samples changes nothing, so that permutation tests stay exact.
    """
    n = len(field.train)
    both = np.concatenate([field.train, field.test])
    if field.is_number:
        mean, scale = (float(moment[0]) for moment in column_moments(both))
        spread = scale > 1e-12 * max(abs(mean), 1e-300)
        z = (both - mean) / scale if spread else np.zeros_like(both)
        z = z.astype(np.float64)
    else:
        values, height = label_indicators(both)
        z = height * (both[:, None] == values[None, :])
    return z[:n], z[n:]


def row_coordinates(fields: tuple[ColumnPair, ...]) -> tuple[np.ndarray, np.ndarray]:
    """All columns side by side."""
    parts = [column_coordinates(field) for field in fields]
    return np.hstack([a for a, _ in parts]), np.hstack([b for _, b in parts])


def rank_columns(
    fields: tuple[ColumnPair, ...], rng: np.random.Generator
) -> tuple[ColumnPair, ...]:
    """Replace numbers by their ranks within their own sample, with ties in random order.

    Every column then has the same distribution in both samples, and only the dependence between
    columns can differ.
    """
    out = []
    for field in fields:
        if field.is_number:
            parts = [random_ranks(part[:, 0], rng)[:, None] for part in (field.train, field.test)]
            field = ColumnPair(field.name, Gaussian(), parts[0], parts[1])
        out.append(field)
    return tuple(out)


# --- targets --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Targets:
    """Targets of training rows and of labelled test rows."""

    field: ColumnPair  # its test part has the labelled rows only
    labelled: np.ndarray  # indices among the test rows in use
    classes: bool

    @property
    def kernel(self) -> Kernel | None:
        return Delta() if self.classes else None

    @property
    def plain(self) -> np.ndarray:
        """Those of the training rows, as estimators take them."""
        return self.field.train if self.classes else self.field.train[:, 0]


def read_targets(
    y: Any, y_test: Any, sizes: tuple[int, int], rows: tuple[np.ndarray, np.ndarray]
) -> Targets | None:
    """Targets of the rows in use, checked; None without targets."""
    if y is None:
        if y_test is not None:
            raise ValueError(
                "y_test was given without y. Pass both: the targets of test rows are compared with "
                "those of training rows."
            )
        return None
    values = flat_targets(y, "y", sizes[0], "train")
    classes = looks_like_classes(values)
    values = np.asarray(checks.labels(values, "y")) if classes else column(values, "y")
    labelled = np.empty(0, dtype=int)
    others = values[:0]
    if y_test is not None:
        found = flat_targets(y_test, "y_test", sizes[1], "test")
        known = ~checks.missing_rows(found)
        labelled = np.flatnonzero(known[rows[1]])
        found = found[rows[1]][labelled]
        if len(found):
            found = checks.labels(np.array(found.tolist(), dtype=object), "y_test")  # a plain type
            others = as_classes(values, found) if classes else column(found, "y_test")
    field = ColumnPair("target", Delta() if classes else Gaussian(), values[rows[0]], others)
    return Targets(field, labelled, classes)


def flat_targets(y: Any, name: str, size: int, of: str) -> np.ndarray:
    """Targets as an array (n,), one per row."""
    array = to_numpy(checks.plain(y, name))
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"{name}: expected one target per row, shape (n,), got {array.shape}.")
    if len(array) != size:
        more = " Use None or NaN for test rows without a target." if name == "y_test" else ""
        raise ValueError(
            f"{name} has {len(array)} targets, but {of} has {size} rows; there must be one per row."
            + more
        )
    return array


def column(values: np.ndarray, name: str) -> np.ndarray:
    """Numbers as one column."""
    return np.asarray(checks.vectors(values.reshape(-1, 1), name), dtype=np.float64)


def as_classes(values: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Classes of test rows in the type of those of training rows."""
    found = np.asarray(checks.labels(found, "y_test"))
    # text, dates and numbers are never equal to one another
    kinds = [
        next(k for k in ("US", "mM", "fiub", array.dtype.kind) if array.dtype.kind in k)
        for array in (values, found)
    ]
    if kinds[0] != kinds[1]:
        raise TypeError(
            f"y holds classes like {values[0]!r} and y_test like {found[0]!r}, which are never "
            "equal. Use the same type in both."
        )
    return found.astype(np.result_type(values, found))


def pair_rows(samples: Samples, targets: Targets) -> tuple[Points, Points, Kernel | None]:
    """Rows with their targets in both samples, and the kernel that compares them."""
    test = take(samples.test, targets.labelled)
    field = targets.field
    if samples.kernel is None:
        a, b = column_coordinates(field)
        return np.hstack([samples.train, a]), np.hstack([test, b]), None
    kernel = samples.kernel @ field.kernel
    return (samples.train, field.train), (test, field.test), kernel


def all_rows(samples: Samples) -> Points:
    """All rows, training first."""
    return concatenate([samples.train, samples.test])
