"""The gate that every input passes: kinds, shapes, lengths, NaN.

Each function returns the input as the library uses it, or raises an error that names what was
expected, what was given, and the remedy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from numbers import Real
from typing import Any

import numpy as np

from meanmap.arrays import (
    Array,
    Points,
    asarray,
    count,
    epsilon,
    is_array,
    is_chunked,
    is_floating,
    namespace,
    to_float,
    to_library,
    to_numpy,
)
from meanmap.frames import column_names

#: The largest numbers taken: products of their squares still fit (in single precision, squares).
LARGEST, LARGEST_SINGLE = 1e75, 1e17
SMALLEST = 1e-300  # the least positive parameter: the inverse of a smaller one overflows


def describe(value: Any) -> str:
    """A few words on what `value` is, for error messages."""
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"{type(value).__name__} of shape {tuple(shape)}"
    return type(value).__name__


def plain(value: Any, name: str) -> Array:
    """An array of any supported library, from arrays, data frames and nested sequences."""
    if hasattr(value, "toarray") and hasattr(value, "nnz"):
        raise TypeError(
            f"{name} is a sparse matrix; dense data is required. "
            f"Use {name}.toarray() to convert it to a dense array."
        )
    if np.ma.is_masked(value):
        raise TypeError(f"{name} is a masked array; fill or drop the masked values first.")
    if isinstance(value, tuple) and value and not np.isscalar(value[0]):
        raise TypeError(
            f"{name}: got a tuple of {len(value)} samples where one sample is expected. Pairs go "
            "with a tensor product of kernels, kernels.TensorProduct(kx, ky) or kx @ ky."
        )
    if is_chunked(value):
        raise TypeError(
            f"{name} is a Dask collection, which this function does not read in chunks. Pass "
            f"{name}.compute() if it fits into memory; ConditionalEmbedding, RunningEmbedding, "
            "two_sample_test, independence_test, mmd and hsic take chunks."
        )
    if isinstance(value, np.ndarray):
        if value.dtype.names:
            raise TypeError(
                f"{name}: an array with named fields, {', '.join(value.dtype.names)}, where one "
                "array is expected. Stack the fields as columns, or pass a pandas.DataFrame."
            )
        return np.asarray(value)
    if is_array(value):
        return value
    if hasattr(value, "to_numpy"):  # pandas, polars
        return np.asarray(value.to_numpy())
    if value is None or isinstance(value, (str, bytes, dict, set)):
        raise TypeError(
            f"{name}: expected an array of points, got {value!r:.60}. Pass a 2-D array, one point "
            "a row (or a 1-D array of labels with a discrete kernel)."
        )
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ValueError(
            f"{name} could not be read as an array ({error}). Rows must have one length."
        ) from error


def numbers(value: Any, name: str) -> Array:
    """A floating-point array without NaN or infinities."""
    array = plain(value, name)
    if isinstance(array, np.ndarray):
        if array.dtype.kind == "c":
            raise ValueError(f"Complex data not supported: {name} is {describe(array)}.")
        if array.dtype.kind in "mM":
            raise TypeError(
                f"{name}: a kernel on numbers does not take {array.dtype}, whose unit would decide "
                f"the answer. Pass days, say: ({name} - {name}.min()) / np.timedelta64(1, 'D')."
            )
        if array.dtype.kind not in "fiub":
            try:
                array = array.astype(np.float64)
            except (TypeError, ValueError, OverflowError) as error:
                text = "argument must be" in str(error) or "not" in str(error)
                kind = TypeError if text and not isinstance(error, ValueError) else ValueError
                raise kind(
                    f"{name} does not fit a kernel on numbers: {error}. Labels go with "
                    "kernels.Delta(), pairs with kernels.TensorProduct(...)."
                ) from error
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        if array.dtype == np.longdouble:
            with np.errstate(over="ignore"):
                array = array.astype(np.float64)
        if not (array.flags.c_contiguous or array.flags.f_contiguous):
            array = array.copy()  # products with strided rows may round in another way
    array = to_float(array)
    finite(array, name, column_names(value))
    return array


def finite(
    array: Array, name: str, columns: Sequence[Any] | None = None, like: Array | None = None
) -> None:
    """Refuse NaN and infinities, by the cells that have them, and what overflows when squared.

    In the precision of `like`, if it is given.
    """
    xp = namespace(array)
    if 0 in array.shape:
        return
    like = array if like is None else like
    most = LARGEST if epsilon(like) < 1e-10 else LARGEST_SINGLE
    if not float(xp.max(xp.abs(array))) <= most:  # nor is NaN
        host = to_numpy(array)
        bad = ~np.isfinite(host)
        if not bad.any():
            cell: Sequence[Any] = np.unravel_index(int(np.argmax(np.abs(host))), host.shape)
            raise ValueError(
                f"{name} holds numbers as large as {abs(float(host[cell])):.3g} "
                f"({_place(cell, host.shape, columns)}), whose squares overflow in {like.dtype}; "
                f"expected at most {most:g}. Fix it, or divide them by their scale first"
                + (", or pass double precision." if most == LARGEST_SINGLE else ".")
            )
        rows = np.unique(np.nonzero(bad)[0]) if bad.ndim else np.zeros(1, dtype=int)
        cell = tuple(index[0] for index in np.nonzero(bad)) if bad.ndim else ()
        raise ValueError(
            f"{name} contains NaN or infinity in {rows.size} of {len(bad) if bad.ndim else 1} "
            f"rows (the first is {_place(cell, host.shape, columns)}). Drop or impute those rows "
            "before."
        )


def _place(cell: Sequence[Any], shape: tuple[int, ...], columns: Sequence[Any] | None) -> str:
    """Where a number stands, in words."""
    row = f"row {int(cell[0]) if len(cell) else 0}"
    if len(shape) != 2 or (shape[1] == 1 and columns is None):
        return row
    column = int(cell[1])
    return f"{row}, column {column if columns is None else columns[column]!r}"


def refuse_empty(array: Array, name: str) -> None:
    """Refuse a single number, an empty sample, and rows without columns."""
    if array.ndim == 0:
        raise ValueError(
            f"{name}: expected 2D array of points, or 1D of labels, got scalar array instead. "
            f"Reshape your data: np.reshape({name}, (1, 1)) for one point with one coordinate."
        )
    for size, what, lack in zip(
        array.shape, ("sample(s)", "feature(s)"), ("is empty", "has no columns"), strict=False
    ):
        if size == 0:
            raise ValueError(
                f"Found array with 0 {what} (shape={tuple(array.shape)}) while a minimum of 1 is "
                f"required: {name} {lack}."
            )


def any_points(value: Any, name: str = "points") -> Array:
    """Points of any kind: an array with at least one row."""
    array = plain(value, name)
    refuse_empty(array, name)
    return array


def vectors(value: Any, name: str = "points") -> Array:
    """Points of R^d: a floating array of shape (n, d). A 1-D array is n points of R."""
    array = numbers(value, name)
    refuse_empty(array, name)
    if array.ndim <= 2:
        return array[:, None] if array.ndim == 1 else array
    raise ValueError(
        f"{name}: expected 2D array (n points, d coordinates), got {describe(array)}. Flatten each "
        f"point with {name}.reshape(len({name}), -1); rotations and permutations go with "
        "kernels.Trace()."
    )


def labels(value: Any, name: str = "points") -> Array:
    """Points of a discrete set: labels of shape (n,), or rows (n, d) that are equal or not."""
    array = plain(value, name)
    if array.ndim not in (1, 2):
        raise ValueError(
            f"{name}: expected labels of shape (n,) or rows of shape (n, d), got {describe(array)}."
        )
    refuse_empty(array, name)
    if isinstance(array, np.ndarray):
        empty = missing_rows(array)
        if empty.any():
            raise ValueError(
                f"{name} contains NaN or missing labels in {int(empty.sum())} rows (the first is "
                f"row {int(np.flatnonzero(empty)[0])}). Give them a label of their own or drop "
                "those rows."
            )
        if array.dtype.kind == "O":
            array = _one_type(array, name)
    elif namespace(array).isdtype(array.dtype, "real floating"):
        numbers(array, name)
    return array


def missing_rows(array: np.ndarray) -> np.ndarray:
    """Which rows hold a missing value: NaN, None or pandas' NA."""
    if array.dtype.kind == "f":
        bad = np.isnan(array)
    elif array.dtype.kind in "mM":
        bad = np.isnat(array)
    elif array.dtype.kind == "O":
        bad = np.frompyfunc(lambda v: v is None or type(v).__name__ == "NAType" or v != v, 1, 1)(
            array
        ).astype(bool)
    else:
        return np.zeros(len(array), dtype=bool)
    return bad if bad.ndim == 1 else bad.any(axis=1)


def _one_type(array: np.ndarray, name: str) -> np.ndarray:
    """Object labels as one sortable type, so that categories have an order."""
    try:
        np.unique(array)
    except TypeError as error:
        raise TypeError(
            f"{name} mixes labels that cannot be compared ({error}). Use one type, for example "
            f"np.asarray({name}).astype(str)."
        ) from error
    kinds = {type(v) for v in array.flat}
    if kinds <= {str}:
        return array.astype(str)
    if all(issubclass(kind, (bool, int, float, np.number)) for kind in kinds):
        number = np.float64 if any(issubclass(k, float) for k in kinds) else np.int64
        with suppress(OverflowError):  # whole numbers beyond it are compared as they are
            return array.astype(number)
    if array.ndim > 1:
        words = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise TypeError(
            f"{name}: rows of labels that are {words} have no order. Use one type, for example "
            f"np.asarray({name}).astype(str), or a column at a time (kernels.Columns)."
        )
    return array


def same_kind(points: Array, like: Array, name: str, like_name: str = "the sample") -> Array:
    """`points` with the trailing shape of `like`, in its array library."""
    if isinstance(points, tuple) or isinstance(like, tuple):
        parts, others = (v if isinstance(v, tuple) else (v,) for v in (points, like))
        if len(parts) != len(others):
            raise ValueError(
                f"{name}: expected {describe(like)} like {like_name}, got {describe(points)}."
            )
        pairs = enumerate(zip(parts, others, strict=True))
        return tuple(same_kind(a, b, f"{name}[{i}]", f"{like_name}[{i}]") for i, (a, b) in pairs)
    if points.shape[1:] != like.shape[1:]:
        if points.ndim == 2 and like.ndim == 2:
            one = ", for example reshape(1, -1) for one point" if points.shape[1] == 1 else ""
            raise ValueError(
                f"{name} has {points.shape[1]} features, but {like_name} has {like.shape[1]} "
                f"features. Points are rows. Reshape your data to (m, {like.shape[1]}){one}."
            )
        raise ValueError(
            f"{name}: expected points of shape {tuple(like.shape[1:])} like {like_name}, got "
            f"{tuple(points.shape[1:])}."
        )
    points = to_library(points, like)
    kinds = {getattr(array.dtype, "kind", "f") for array in (points, like)}
    if kinds & set("US") and kinds & set("fiub"):
        text, numeric = (name, like_name) if points.dtype.kind in "US" else (like_name, name)
        raise TypeError(
            f"{text} holds text labels and {numeric} holds numbers, which are never equal. "
            "Use one type for both."
        )
    if points.dtype != like.dtype and is_floating(points) and is_floating(like):
        finite(points, name, like=like)
        return namespace(points).astype(points, like.dtype)
    return points


def weights(
    value: Any, points: Points, like: Array, name: str = "weights", batch: bool = False
) -> Array:
    """Weights for points: finite numbers of shape (n,), or (b, n) where they may be a `batch`.

    None means uniform ones that sum to one.
    """
    n = count(points)
    if value is None:
        return asarray(np.full(n, 1.0 / n), like)
    array = numbers(value, name)
    if is_floating(like) and epsilon(like) > epsilon(array):
        finite(array, name, like=like)
    array = asarray(array, like)
    rows = batch and array.ndim == 2 and len(array) > 0
    shape = tuple(array.shape[1:] if rows else array.shape)
    rows_too = f" or (b, {n})" if batch else ""
    if shape != (n,):
        raise ValueError(
            f"{name}: expected one weight per point, shape ({n},){rows_too}, got shape {shape}."
        )
    return array


def total_weight(value: Any, n: int, name: str = "sample_weight") -> float:
    """The sum of the weights of n points before they are scaled to one; n without weights."""
    if value is None:
        return float(n)
    return float(np.sum(to_numpy(to_float(plain(value, name))), dtype=np.float64))


def sample_weights(value: Any, points: Points, like: Array, name: str = "sample_weight") -> Array:
    """Weights of a sample, scaled to sum to one: not negative, not all zero."""
    array = weights(value, points, like, name)
    host = to_numpy(array)
    if (host < 0).any():
        raise ValueError(
            f"{name} must not be negative; {int((host < 0).sum())} of {host.size} are (the least "
            f"is {host.min():.4g}). Signed weights belong to embeddings: embed(..., weights=...)."
        )
    total = float(host.sum())
    if total <= 0:
        raise ValueError(f"{name} is zero everywhere; at least one weight must be positive.")
    if not math.isfinite(total):
        raise ValueError(f"{name} sums to infinity; divide the weights by their maximum first.")
    largest = array / float(host.max())  # the least numbers have no inverse
    return largest / namespace(largest).sum(largest)


def same_length(named: Sequence[tuple[str, Points]]) -> int:
    """The common number of points of several samples."""
    lengths = [count(points) for _, points in named]
    if len(set(lengths)) > 1:
        text = ", ".join(f"{name} has {n}" for (name, _), n in zip(named, lengths, strict=True))
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: {text}. "
            "Rows that belong together must stand at the same place."
        )
    return lengths[0]


def is_finite_number(value: Any) -> bool:
    """Whether it is a finite number: not a truth value, nor a whole number beyond all floats."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def number(value: Any, name: str) -> float:
    """A finite number."""
    value = value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value
    if not isinstance(value, bool) and not is_finite_number(value):
        raise TypeError(f"{name} must be a finite number, got {value!r:.60}.")
    if abs(float(value)) > LARGEST:
        raise ValueError(f"{name} must be at most {LARGEST:g} in size, got {value!r:.40}.")
    return float(value)


def positive(value: Any, name: str, remedy: str) -> float:
    """A positive finite number."""
    if not is_finite_number(value) or value <= 0:
        kind = "positive" if is_finite_number(value) else "a positive number"
        raise ValueError(f"{name} must be {kind}, got {value!r}. {remedy}")
    if not SMALLEST <= float(value) <= LARGEST:  # no room for squares and inverses
        raise ValueError(
            f"{name} must lie between {SMALLEST:g} and {LARGEST:g}, got {value!r}. {remedy}"
        )
    return float(value)


def not_negative(value: Any, name: str, remedy: str) -> float:
    """A finite number that is zero or more."""
    if not is_finite_number(value) or value < 0:
        raise ValueError(f"{name} must be a number ≥ 0, got {value!r}. {remedy}")
    return positive(value, name, remedy) if value else 0.0


def fraction(value: Any, name: str, remedy: str = "") -> float:
    """A number between 0 and 1, neither of them."""
    if not is_finite_number(value) or not SMALLEST <= value < 1:
        tiny = is_finite_number(value) and 0 < value < 1
        ends = f"{SMALLEST:g} and 1" if tiny else "0 and 1"
        words = f"{name} must lie between {ends}, got {value!r:.60}. {remedy}"
        raise ValueError(words.rstrip())
    return float(value)


def number_or_auto(
    value: Any, name: str, check: Callable[[Any, str, str], float], example: str
) -> float | None:
    """A number that passes the check, or None for "auto"."""
    if isinstance(value, str):
        option(value, name, ["auto"])
        return None
    return check(value, name, f'Use "auto" or a number like {example}.')


def option(value: Any, name: str, allowed: Sequence[str]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}.")
    return value


def holds_objects(value: Any) -> bool:
    """Whether it is a NumPy array of Python objects."""
    return isinstance(value, np.ndarray) and value.dtype.kind == "O"


def whole(value: Any, name: str = "n", least: int = 1, remedy: str = "") -> int:
    """A whole number that is not below `least`."""
    ok = isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64)
    if not ok or value < least:
        words = f"{name} must be a whole number ≥ {least}, got {value!r:.60}. {remedy}"
        raise ValueError(words.rstrip())
    return int(value)


def random_generator(value: Any, name: str = "rng") -> np.random.Generator:
    """A NumPy generator from a seed, a generator, scikit-learn's kind of state, or None.

    A wrong `random_state` is a ValueError, as scikit-learn's are; other arguments are TypeErrors.
    """
    if isinstance(value, np.random.RandomState):
        value = value.randint(2**31)
    try:
        return np.random.default_rng(value)
    except (TypeError, ValueError) as error:
        kind = ValueError if name == "random_state" else TypeError
        raise kind(
            f"{name} must be None, a seed or a NumPy Generator, got {value!r:.60} ({error})."
        ) from error
