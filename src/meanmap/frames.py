"""Data frames: columns are matched by name, wherever a second table of the same variable comes.

What was fitted first remembers the names of its columns, as `feature_names_in_` (the convention of
scikit-learn). A later frame with the same names in another order is put in order, one with other
names is refused, and an array is taken by position. Kernels remember names for everything that they
compare (`Kernel.bind`, `Kernel.check`); estimators use `seen_columns`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from meanmap.arrays import Points


def is_frame(points: Any) -> bool:
    """Whether it is a data frame: of pandas, polars, and their like."""
    return hasattr(points, "columns") and hasattr(points, "to_numpy")


def column_names(points: Any) -> tuple[Any, ...] | None:
    """The names of a frame's columns; None without any, or where several have one name."""
    return _plain_names(points.columns) if is_frame(points) else None


def _plain_names(names: Iterable[Any]) -> tuple[Any, ...] | None:
    found = tuple(name.item() if isinstance(name, np.generic) else name for name in names)
    known = all(isinstance(name, str | int | tuple) for name in found)
    return found if known and len(set(found)) == len(found) else None


def column_order(
    known: tuple[Any, ...] | None, found: tuple[Any, ...] | None, name: str, of: str = "the sample"
) -> list[int] | None:
    """Where each of the known columns stands among those that came; None if they are in order.

    Numbers (0, 1, …, the default names) are matched if both frames have the same ones.
    """
    if known is None or found is None or known == found:
        return None
    if len(known) == len(found) and set(known) == set(found):
        places = {column: place for place, column in enumerate(found)}
        return [places[column] for column in known]
    if not all(isinstance(column, str | tuple) for column in (*known, *found)):
        return None
    words = []
    for title, one, other in (("missing", known, found), ("unexpected", found, known)):
        odd = [repr(column) for column in one if column not in set(other)]
        words += [f"{title}: {list_names(odd)}"] if odd else []
    raise ValueError(
        f"{name} has other columns than {of}; the feature names should match. "
        f"{'; '.join(words).capitalize()}. Rename or select columns, or pass "
        f"{name}.to_numpy() to match them by position."
    )


def list_names(names: Sequence[str], most: int = 10) -> str:
    """Names one after the other, the first ten of many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def in_order(points: Any, known: Iterable[Any] | None, name: str, of: str = "the sample") -> Any:
    """A frame with its columns in the known order; other points unchanged."""
    if known is None or not is_frame(points):
        return points
    order = column_order(tuple(known), column_names(points), name, of)
    return points if order is None else points[[points.columns[i] for i in order]]


def row_in_order(row: Any, known: Iterable[Any] | None, name: str) -> Any:
    """One row of a pandas frame with its entries in the known order; other points unchanged."""
    if known is None or is_frame(row) or not hasattr(row, "iloc"):
        return row
    order = column_order(tuple(known), _plain_names(row.index), name)
    return row if order is None else row.iloc[order]


def reorder_columns(points: Points, order: list[int] | None) -> Points:
    """Checked points with their columns in another order."""
    if order is None:
        return points
    return tuple(points[i] for i in order) if isinstance(points, tuple) else points[:, order]


def seen_columns(estimator: Any, X: Any, name: str = "X") -> Any:
    """New rows for a fitted estimator: as many columns as it was fitted to, in their order."""
    X = in_order(X, getattr(estimator, "feature_names_in_", None), name, "the training data")
    if not is_flat(X):
        validate_data(estimator, X=X, reset=False, skip_check_array=True)
    return X


def is_flat(X: Any) -> bool:
    """Whether it has a single axis, as a Series, a list of numbers or a 1-D array."""
    return getattr(X, "ndim", 0) == 1 or (isinstance(X, list) and np.isscalar(X[0] if X else None))


def require_table(X: Any, name: str = "X") -> None:
    """Refuse a 1-D array of numbers, as estimators of scikit-learn do; tests take it."""
    if is_flat(X):
        raise ValueError(
            f"{name}: expected 2D array (n points, d coordinates), got 1D array instead. Reshape "
            f"your data: np.reshape({name}, (-1, 1)) for n points with one coordinate, "
            f"np.reshape({name}, (1, -1)) for one point; labels go with kernel=kernels.Delta()."
        )


def remember_columns(estimator: Any, X: Any) -> None:
    """Sets `n_features_in_`, and `feature_names_in_` for a frame, as scikit-learn does."""
    require_table(X)
    if isinstance(X, np.ndarray) and X.ndim == 2 and not hasattr(estimator, "feature_names_in_"):
        estimator.n_features_in_ = X.shape[1]  # scikit-learn's own way takes a tenth of a small fit
    else:
        validate_data(estimator, X=X, reset=True, skip_check_array=True)
