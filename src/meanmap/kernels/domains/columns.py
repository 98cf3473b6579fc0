"""Kernels on tables whose columns are of different kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import clone

from meanmap import checks
from meanmap.arrays import Array, Points, count, is_array, to_numpy
from meanmap.frames import is_frame
from meanmap.kernels.algebra import TensorProduct
from meanmap.kernels.bandwidths import (
    LEARNED,
    SCALED,
    OpenScales,
    column_scales,
    median_distance,
    parse_bandwidth,
    scaled_columns,
    some_rows,
)
from meanmap.kernels.discrete import Delta
from meanmap.kernels.protocol import Kernel
from meanmap.kernels.radial import Radial
from meanmap.kernels.vectors import Gaussian


class Columns(TensorProduct):
    """A product of kernels over the columns of a DataFrame, or of a dict of columns.

    Points become the tuple of the columns, in the kernel's order: numbers as (n, 1), the rest as
    labels (n,). A table must have exactly the columns that the kernel names.

    Parameters
    ----------
    columns : dict from column to Kernel, or None
        A kernel of None is the default for the column's dtype: a Gaussian for numbers, a delta
        kernel for text, categories and booleans. Their widths are found together, at the median
        distance of rows whose columns are on a common scale ("scaled median"), two different
        labels at distance 1. `Columns()` takes all columns of the table that it meets first, by
        default.

    Examples
    --------
    >>> import pandas as pd
    >>> from meanmap import embed
    >>> from meanmap.kernels import Columns, Laplace
    >>> people = pd.DataFrame({"age": [31.0, 45.0, 62.0], "city": ["Oslo", "Rome", "Oslo"]})
    >>> embed(people, kernel=Columns()).kernel
    Columns({'age': Gaussian(bandwidth=34.0147), 'city': Delta(other=0.660143)})
    >>> kernel = Columns({"age": Laplace(20.0), "city": Delta()})
    >>> kernel(people).round(2)
    array([[1.  , 0.  , 0.21],
           [0.  , 1.  , 0.  ],
           [0.21, 0.  , 1.  ]])
    """

    domain = "tables"

    def __init__(self, columns: Mapping[Any, Kernel | None] | None = None) -> None:
        self.columns = columns

    # --- which columns ------------------------------------------------------------------------

    @property
    def kernels(self) -> tuple[Kernel, ...]:  # type: ignore[override]
        """The kernel of each column."""
        known = self._named()
        if self.columns is None or any(kernel is None for kernel in known.values()):
            raise ValueError(
                f"{self!r} does not know the kinds of its columns yet: use kernel.resolve(table), "
                "or the kernel of a fitted model."
            )
        return tuple(kernel for kernel in known.values() if kernel is not None)

    def with_parts(self, *parts: Kernel) -> Columns:
        """Other kernels on the same columns."""
        return Columns(dict(zip(self._named(), parts, strict=True)))

    def _named(self) -> dict[Any, Kernel | None]:
        """The kernels by column, checked."""
        columns = {} if self.columns is None else self.columns
        if not isinstance(columns, Mapping) or (self.columns is not None and not columns):
            raise TypeError(
                "Columns takes a dict from column names to kernels, or nothing for the default of "
                f"every column; got {self.columns!r:.60}."
            )
        for name, kernel in columns.items():
            if kernel is not None and not isinstance(kernel, Kernel):
                raise TypeError(
                    f"Columns: the kernel of column {name!r} must be a kernel of meanmap.kernels "
                    f"or None, got {kernel!r:.60}. Functions go with kernels.Function(f), "
                    "scikit-learn's kernels with kernels.ScikitLearn(kernel)."
                )
        return dict(columns)

    def bind(self, points: Any, name: str = "points", rule: str = SCALED) -> Columns:
        """A copy that names every column of a table; a tuple of columns tells no names.

        The rule is for the widths of columns that have no kernel yet.
        """
        known = self._named()
        if isinstance(points, tuple) or (known and None not in known.values()):
            return self
        table = _read_table(points, name)
        if not known:
            known = dict.fromkeys(table)
        _same_names(known, table, name)
        return Columns(
            {
                column: default_for(table[column], f"{name}[{column!r}]", rule) if k is None else k
                for column, k in known.items()
            }
        )

    @property
    def names(self) -> tuple[Any, ...] | None:
        """The columns, in the order of the tuples that points become."""
        return None if self.columns is None else tuple(self._named())

    # --- points -------------------------------------------------------------------------------

    def named_parts(self, points: Any, name: str) -> list[tuple[Kernel, Any, str]]:
        kernels = self.kernels
        if not isinstance(points, tuple):
            table = _read_table(points, name)
            _same_names(self._named(), table, name)
            points = tuple(
                _values(table[column], kernel.on_vectors)
                for column, kernel in zip(self._named(), kernels, strict=True)
            )
        labels = [f"{name}[{column!r}]" for column in self._named()]
        parts = super().named_parts(points, name)
        return [(k, part, label) for (k, part, _), label in zip(parts, labels, strict=True)]

    def read_points(self, points: Any, name: str) -> Points:
        kernel = self.bind(points, name)
        return (
            kernel.read_points(points, name)
            if kernel is not self
            else super().read_points(points, name)
        )

    def rows(self, x: Any, like: Points, name: str = "x") -> tuple[Points, bool]:
        if not hasattr(x, "columns") and hasattr(x, "to_dict"):
            x = x.to_dict()  # a row of a frame
        return super().rows(x, like, name)

    def resolve(self, points: Points, weights: Array | None = None) -> Columns:
        kernel = self.bind(points)
        points = points if isinstance(points, tuple) else kernel.read_points(points, "points")
        parts = kernel.kernels
        found = _common_scale(parts, points, weights)
        resolved = [found.get(i) or k.resolve(points[i], weights) for i, k in enumerate(parts)]
        return kernel.with_parts(*resolved)

    @property
    def learns(self) -> bool:
        """Whether a column's width is "loo", and no other's is a number."""
        parts = list(self._named().values())
        return any(part is not None and _is_learned(part) for part in parts) and all(
            isinstance(part, Delta | Gaussian) and (_is_learned(part) or _is_scaled(part))
            for part in parts
        )

    def open_scales(self, points: Points, weights: Array | None) -> OpenScales | None:
        parts = self.kernels
        if not all(isinstance(part, Delta | Gaussian) for part in parts):
            return None
        columns: list[np.ndarray] = []
        scales: list[np.ndarray | None] = []
        for part, values in zip(parts, points, strict=True):
            if part.discrete:
                columns.append(label_columns(values))
                scales.append(None)
            else:
                column, scale = scaled_columns(values, weights)
                columns.append(column)
                scales.append(scale)

        def kernel(sigma: np.ndarray) -> Columns:
            opened = [k.replace(**{k.choices[0]: SCALED}) for k in parts]
            pairs = zip(opened, sigma, scales, strict=True)
            return self.with_parts(*(k.at_scale(float(s), scale) for k, s, scale in pairs))

        groups = np.repeat(np.arange(len(parts)), [column.shape[1] for column in columns])
        return OpenScales(np.hstack(columns), groups, Gaussian(1.0), kernel)

    def relevance(self, points: Points) -> list[float]:
        return [k.relevance(part)[0] for k, part in zip(self.kernels, points, strict=True)]

    # --- parameters ---------------------------------------------------------------------------

    @property
    def bounded(self) -> bool:  # type: ignore[override]
        """Whether k(x, x) stays bounded on the whole domain; the default kernels are."""
        return all(kernel.bounded for kernel in self._named().values() if kernel is not None)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The dict of kernels, and with `deep` each by its column, with its parameters."""
        out: dict[str, Any] = {"columns": self.columns}
        if deep:
            for column, kernel in self._named().items():
                out[str(column)] = kernel
                if kernel is not None:
                    out.update({f"{column}__{key}": v for key, v in kernel.get_params().items()})
        return out

    def set_params(self, **parameters: Any) -> Columns:
        """Set all (`columns=`), a column's kernel (`age=`) or its parameter (`age__bandwidth=`)."""
        if "columns" in parameters:
            self.columns = parameters.pop("columns")
        known = self._named()
        for key, value in parameters.items():
            if key in map(str, known):
                column = next(column for column in known if str(column) == key)
                known[column] = value
                continue
            column = next((c for c in known if key.startswith(f"{c}__")), None)
            kernel = known.get(column)
            if kernel is None:
                names = ["columns", *map(str, known)]
                raise ValueError(
                    f"Invalid parameter {key!r} for {self!r}. Valid parameters are: {names!r}."
                )
            kernel.set_params(**{key.removeprefix(f"{column}__"): value})
        if parameters:
            self.columns = known
        return self

    def __sklearn_clone__(self) -> Columns:
        if self.columns is None:
            return Columns()
        return Columns({c: clone(k) if k is not None else None for c, k in self._named().items()})

    def __eq__(self, other: object) -> bool:
        # in order: it is that of the tuples that points become
        if not isinstance(other, Columns):
            return False
        if self.columns is None or other.columns is None:
            return self.columns is other.columns
        return list(self._named().items()) == list(other._named().items())

    __hash__ = Kernel.__hash__

    def __repr__(self) -> str:
        return "Columns()" if self.columns is None else f"Columns({dict(self.columns)!r})"

    def __matmul__(self, other: Kernel) -> Kernel:
        return Kernel.__matmul__(self, other)  # a table stays one variable


# --- tables ---------------------------------------------------------------------------------------


def _read_table(points: Any, name: str) -> dict[Any, Any]:
    """The columns of a frame or dict by name."""
    if isinstance(points, Mapping):
        return dict(points)
    if not is_frame(points):
        raise TypeError(
            f"{name}: Columns takes a DataFrame or a dict of columns, got "
            f"{checks.describe(points)}. Name the columns with pandas.DataFrame({name}, "
            "columns=[...])."
        )
    names = list(points.columns)
    twice = sorted({str(column) for column in names if names.count(column) > 1})
    if twice:
        raise ValueError(f"{name}: columns appear twice: {', '.join(twice)}. Rename them.")
    return {column: points[column] for column in names}


def _same_names(known: Mapping[Any, Any], table: Mapping[Any, Any], name: str) -> None:
    """Refuse a table that lacks a column of the kernel's, or has one it does not name."""
    missing = [repr(column) for column in known if column not in table]
    if missing:
        raise ValueError(
            f"{name} lacks {_list_columns(missing)}, which the kernel compares. Its columns are "
            f"{', '.join(map(repr, table))}."
        )
    unknown = [repr(column) for column in table if column not in known]
    if unknown:
        raise ValueError(
            f"{name} has {_list_columns(unknown)} that the kernel does not name. Name a kernel for "
            "it, Columns({column: None, ...}) for the default one, or drop it from the table."
        )


def _list_columns(columns: list[str]) -> str:
    return ("column " if len(columns) == 1 else "columns ") + ", ".join(columns)


def _values(column: Any, on_vectors: bool) -> Any:
    """A column as points: (n, 1) for a kernel on vectors, (n,) for another; a cell as it is."""
    if hasattr(column, "to_numpy") and not is_array(column):
        column = column.to_numpy()
    if not on_vectors:
        return column
    if isinstance(column, list | tuple):
        column = np.asarray(column)
    if is_array(column) and column.ndim == 1:
        column = column[:, None]
        if isinstance(column, np.ndarray) and column.dtype == np.float32:
            return column.astype(np.float64)  # the columns of a table have one precision
    return column


def _kind(column: Any) -> str:
    """What a column holds: "number", "label", or the dtype of something else."""
    dtype = str(getattr(column, "dtype", "")).lower()
    if dtype.startswith(("categor", "enum")):
        return "label"
    values = _values(column, False)
    values = checks.plain(values, "a column")
    if not isinstance(values, np.ndarray):
        return "number"
    if values.dtype.kind in "fiu":
        return "number"
    if values.dtype.kind == "O" and dtype.startswith(("int", "uint", "float")):
        return "number"  # a nullable column: its gate says what is missing
    if values.dtype.kind in "bUST":
        return "label"
    if values.dtype.kind != "O":
        return str(values.dtype)
    held = [v for v in values if v is not None and type(v).__name__ != "NAType"]
    if held and all(isinstance(v, Real) and not isinstance(v, bool) for v in held):
        return "number"  # in a frame of mixed rows pandas holds them as objects
    plain = all(np.isscalar(value) for value in held)
    return "label" if plain else str(values.dtype)


def default_for(column: Any, name: str, rule: str | None = None) -> Kernel:
    """The kernel for a column by its dtype; a rule is for the width of either kind."""
    kind = _kind(column)
    if kind == "number":
        return Gaussian(rule or "median")
    if kind == "label":
        return Delta(rule or 0.0)
    raise TypeError(
        f"{name}: there is no default kernel for a column of {kind}. Name one, such as "
        "kernels.Delta() or one on strings, graphs or series, or turn the column into numbers "
        "(dates into days since the first)."
    )


def _common_scale(
    kernels: Sequence[Kernel], points: tuple[Points, ...], weights: Array | None
) -> dict[int, Kernel]:
    """The kernels whose width is a multiple of the "scaled median", resolved together."""
    chosen = {i: kernel for i, kernel in enumerate(kernels) if _is_scaled(kernel)}
    if not chosen:
        return {}
    w = np.ones(count(points)) if weights is None else to_numpy(weights).astype(np.float64)
    rows = some_rows(w)
    columns, scales = [], {}
    for i, kernel in chosen.items():
        if kernel.discrete:
            columns.append(label_columns(to_numpy(points[i])[rows]))
            continue
        x = to_numpy(points[i]).astype(np.float64)
        scales[i] = column_scales(x, w)
        columns.append(x[rows] / scales[i])
    sigma = median_distance(np.concatenate(columns, axis=1), w[rows])
    return {i: kernel.at_scale(sigma, scales.get(i)) for i, kernel in chosen.items()}


def _is_scaled(kernel: Kernel) -> bool:
    """Whether a width is to be found together with those of other columns."""
    rule = _rule(kernel)
    return rule is not None and rule != LEARNED and parse_bandwidth(rule)[1] == SCALED


def _is_learned(kernel: Kernel) -> bool:
    """Whether a width is to be learned by leave-one-out."""
    return _rule(kernel) == LEARNED


def _rule(kernel: Kernel) -> str | None:
    """The rule for the width of a column's kernel, or None if it is a number."""
    if not isinstance(kernel, Delta | Radial):
        return None
    value = getattr(kernel, kernel.choices[0])
    return value if isinstance(value, str) else None


def all_numbers(frame: Any) -> bool:
    """Whether every column of a frame holds numbers."""
    return all(_kind(column) == "number" for column in _read_table(frame, "points").values())


def label_columns(points: Points) -> np.ndarray:
    """Labels as columns in which two different ones are at distance 1."""
    labels = np.unique(to_numpy(points), return_inverse=True)[1].ravel()
    return np.eye(labels.max(initial=0) + 1)[labels] / 2**0.5
