"""Reading tables: one column per variable, with missing values."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import (
    Points,
    asarray,
    epsilon,
    float_like,
    in_kind,
    is_array,
    is_floating,
    take,
    to_numpy,
)
from meanmap.frames import is_frame
from meanmap.kernels import Gaussian, Kernel
from meanmap.kernels.bandwidths import LEARNED, SCALED
from meanmap.kernels.domains.columns import default_for

Name = Hashable


@dataclass(frozen=True, eq=False)
class Variable:
    """A variable's kernel, its values, and the rows that have one."""

    kernel: Kernel
    points: Points
    rows: np.ndarray  # the row numbers, in order
    open: Kernel | None = None  # the kernel with scales to be learned, unless it was named
    flat: bool = False  # whether the values came as a flat column

    def at(self, rows: np.ndarray) -> Points:
        """Its values in some of its rows."""
        return take(self.points, np.searchsorted(self.rows, rows))


def read_columns(data: Any) -> dict[Name, Any]:
    """The columns of a data frame, a dict of arrays, or an array with named fields."""
    if isinstance(data, Mapping):
        found = dict(data)
    elif is_frame(data):
        names = list(data.columns)
        if len(set(names)) < len(names):
            twice = sorted({str(name) for name in names if names.count(name) > 1})
            raise ValueError(f"data: columns appear twice: {', '.join(twice)}. Rename them.")
        found = {name: data[name] for name in names}
    elif isinstance(data, np.ndarray) and data.dtype.names:
        found = {name: data[name] for name in data.dtype.names}
    else:
        raise TypeError(
            "data: expected a DataFrame, a dict of arrays or an array with named fields, got "
            f"{checks.describe(data)}. Name the columns: pandas.DataFrame(X, columns=[...])."
        )
    if not found:
        raise ValueError("data has no columns.")
    flat = [
        name
        for name, values in found.items()
        if not hasattr(values, "__len__") or getattr(values, "ndim", 1) == 0
    ]
    if flat:
        raise TypeError(f"data: column {flat[0]!r} is {found[flat[0]]!r:.40}, expected an array.")
    lengths = {name: len(values) for name, values in found.items()}
    if not min(lengths.values()):
        raise ValueError(f"data: columns have no rows: {lengths}.")
    if len(set(lengths.values())) > 1:
        raise ValueError(f"data: columns have different lengths: {lengths}.")
    return in_one_library(found)


def in_one_library(table: dict[Name, Any]) -> dict[Name, Any]:
    """The columns in one array library: if one is not a NumPy array, all numbers become like it.

    In one precision, too: other libraries do not mix precisions as NumPy does.
    """
    like = next((v for v in table.values() if is_array(v) and not isinstance(v, np.ndarray)), None)
    if like is None:
        return table
    arrays = {name: in_kind(v, like) for name, v in table.items() if is_array(v)}
    # labels are compared in double precision, and so are numbers
    wide = min((float_like(v) for v in arrays.values()), key=epsilon)
    same = {name: asarray(v, wide) if is_floating(v) else v for name, v in arrays.items()}
    return {**table, **same}


def column_values(values: Any) -> Any:
    """The array, or list, in a column of a data frame."""
    return values.to_numpy() if hasattr(values, "to_numpy") and not is_array(values) else values


def read_variable(values: Any, kernel: Kernel | None, name: str) -> Variable:
    """A column as points of its kernel, without NaN and None."""
    named = kernel is not None
    if kernel is None:
        kernel = default_for(values, name)
        kernel = Gaussian(SCALED) if kernel.radial else kernel
    kernel = kernel.bind(values, name)
    plain = column_values(values)
    if kernel.on_vectors:
        plain = number_column(plain, name)
        here = ~np.isnan(to_numpy(plain).reshape(len(plain), -1)).any(axis=1)
    elif is_array(plain) and not isinstance(plain, np.ndarray):
        empty = np.isnan(to_numpy(plain)) if is_floating(plain) else np.zeros(plain.shape, bool)
        here = ~empty.reshape(len(empty), -1).any(axis=1)
    else:
        here = np.array([not is_missing(value) for value in plain], dtype=bool)
        plain = plain if is_array(plain) else np.asarray(plain, dtype=object)
    rows = np.flatnonzero(here)
    if not len(rows):
        raise ValueError(f"{name}: all of its {len(plain)} values are missing.")
    points = take(plain, rows)
    if isinstance(points, np.ndarray) and points.dtype == object and not kernel.on_vectors:
        points = np.array(points.tolist())
    learns = not named and kernel.radial
    opened = kernel.replace(bandwidth=LEARNED) if learns else None
    return Variable(kernel, kernel.check(points, name), rows, opened, np.ndim(values) == 1)


def number_column(values: Any, name: str) -> Any:
    """A column of numbers as rows, (n, 1) where it was flat."""
    array = checks.plain(values, name)
    if isinstance(array, np.ndarray) and array.dtype == object:
        array = np.array([np.nan if is_missing(value) else value for value in array], dtype=object)
    if isinstance(array, np.ndarray) and array.dtype.kind != "f":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(
                f"{name}: expected numbers for a kernel on vectors ({error}). Use "
                "kernels.Delta() for labels."
            ) from error
    return array[:, None] if array.ndim == 1 else array


def is_missing(value: Any) -> bool:
    """Whether a cell is empty: None, NaN, or a data frame's own missing value."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value


def rows_in_both(a: Variable, b: Variable) -> np.ndarray:
    """The rows in which two variables have a value."""
    return np.intersect1d(a.rows, b.rows, assume_unique=True)


def table_length(table: Mapping[Any, Any]) -> int:
    """The number of rows."""
    return len(next(iter(table.values())))


def row_weights(given: Any, table: Mapping[Any, Any]) -> np.ndarray:
    """The weight of each row; they sum to one."""
    every = np.zeros((table_length(table), 1))
    return to_numpy(checks.sample_weights(given, every, every))


def first_names(names: Any) -> str:
    """Names in words, the first few."""
    words = [repr(name) for name in list(names)[:6]]
    return ", ".join(words) + (", …" if len(names) > len(words) else "")


def require_names(
    given: Iterable[Any], known: Collection[Any], what: str, word: str = "node"
) -> None:
    """Refuse names that are not known."""
    here = set(known)
    unknown = [name for name in given if name not in here]
    if unknown:
        raise ValueError(
            f"{what}: there is no {word} {first_names(unknown)}; there are {first_names(known)}."
        )


def kernels_of(given: Any, names: tuple[Any, ...]) -> dict[Any, Kernel | None]:
    """A kernel for each node, None for the default."""
    if isinstance(given, Mapping):
        require_names(given, names, "kernel")
        kernels = {name: given.get(name) for name in names}
    else:
        kernels = dict.fromkeys(names, given)
    for name, kernel in kernels.items():
        if kernel is not None and not isinstance(kernel, Kernel):
            raise TypeError(f"kernel: expected a Kernel for {name!r}, got {kernel!r:.60}.")
    return kernels
