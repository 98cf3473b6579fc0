"""What the statistics are computed from: checked samples and resolved kernels."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from meanmap import checks
from meanmap.arrays import (
    Array,
    Points,
    concatenate,
    count,
    is_floating,
    namespace,
    on_accelerator,
    to_numpy,
)
from meanmap.frames import list_names
from meanmap.kernels import Kernel
from meanmap.kernels.defaults import as_kernel
from meanmap.statistics.tiles import on_host


def read_two_samples(
    X: Any, Y: Any, kernel: Kernel, least: int = 2, stay: bool = False
) -> tuple[Points, Points]:
    """Two samples of the kernel's domain with at least `least` points each.

    Those of an accelerator come to the host unless they may `stay`.
    """
    X = kernel.check(X, "X")
    X, Y = on_one_device([X, kernel.check(Y, "Y", X, "X")], stay)
    for name, points in (("X", X), ("Y", Y)):
        require_points(count(points), name, least)
    return X, Y


def on_one_device(samples: list[Points], stay: bool) -> list[Points]:
    """The samples on the host, or where they are if they may `stay` on an accelerator."""
    if stay and all(on_accelerator(points) for points in samples):
        return samples
    return [on_host(points) for points in samples]


def read_paired_samples(
    named: list[tuple[str, Any, Any]], least: int, stay: bool = False
) -> tuple[list[Kernel], list[Points]]:
    """For (name, points, kernel) a variable: the kernels, and samples of one length.

    Those of an accelerator come to the host unless they may `stay` and all live there.
    """
    kernels = [as_kernel(kernel, points, name) for name, points, kernel in named]
    checked = [k.check(points, name) for k, (name, points, _) in zip(kernels, named, strict=True)]
    return kernels, pair_samples([name for name, _, _ in named], checked, least, stay)


def pair_samples(
    names: list[str], checked: list[Points], least: int, stay: bool = False
) -> list[Points]:
    """Checked samples on one device, if they are of one length and large enough."""
    samples = on_one_device(checked, stay)
    n = checks.same_length(list(zip(names, samples, strict=True)))
    require_points(n, " and ".join([", ".join(names[:-1]), names[-1]]), least)
    return samples


def one_each(value: Any, name: str, variables: str) -> tuple[Any, ...]:
    """A value per variable: a tuple as it is, anything else for all of them alike."""
    values = value if isinstance(value, tuple) else (value,) * len(variables)
    if len(values) != len(variables):
        raise ValueError(
            f"{name}: expected one, or a tuple ({', '.join(variables)}), got {len(values)}."
        )
    return values


def require_points(n: int, name: str, least: int) -> None:
    """Refuse a sample that is too small to say anything."""
    if n < least:
        raise ValueError(
            f"{name}: expected at least {least} points, got {n}. Fewer do not determine a "
            "distribution; collect more, or compare single points with kernel(x, y)."
        )


def require_target(y: Any, why: str) -> None:
    """Refuse to fit without targets, in scikit-learn's words and why they are needed."""
    if y is None:
        raise ValueError(
            f"This estimator requires y to be passed, but the target y is None: {why}."
        )


def require_two_rows(n: int, why: str) -> None:
    """Refuse a sample of one row, in scikit-learn's words and why it is not enough."""
    if n < 2:
        raise ValueError(f"Found array with {n} sample(s) while a minimum of 2 is required: {why}.")


def near_origin(kernels: Sequence[Kernel], *samples: Points) -> list[Points]:
    """The samples moved so that their mean is 0, where that leaves distances as they are."""
    if not movable(kernels):
        return list(samples)
    pooled = concatenate(list(samples)) if len(samples) > 1 else samples[0]
    middle = middle_of(pooled)
    return [points - middle for points in samples]


def middle_of(points: Array) -> Array:
    """The mean of rows, without rounding where they are all equal."""
    first = points[0]
    return first + namespace(points).mean(points - first, axis=0)


def movable(kernels: Sequence[Kernel]) -> bool:
    """Whether moving all points changes the kernels, by f(x) + f(x') at most.

    Bounded ones that allow it are functions of differences, and stay as they are.
    """
    allowed = all(kernel.translates and kernel.on_vectors for kernel in kernels)
    return allowed and not all(kernel.bounded for kernel in kernels)


def constant_notes(points: Points, kernel: Kernel, name: str) -> list[str]:
    """What to say of a variable, or of columns of it, that never vary: a test cannot see them."""
    parts = points if isinstance(points, tuple) else (points,)
    flat = [_is_constant(part) for part in parts]
    same = [bool(value) for part in flat for value in part]
    if all(same):
        return [
            f"All {count(points)} rows of {name} are equal, so that the test has nothing to see."
        ]
    names = kernel.names if kernel.names is not None and len(kernel.names) == len(same) else None
    odd = [repr(names[i]) if names else str(i) for i, equal in enumerate(same) if equal]
    if not odd:
        return []
    many = len(odd) > 1
    words = f"Columns {list_names(odd)}" if many else f"Column {odd[0]}"
    verbs = ("are", "have") if many else ("is", "has")
    return [f"{words} of {name} {verbs[0]} constant and {verbs[1]} no part in the test."]


def _is_constant(part: Any) -> list[Any]:
    """For each column of some points, whether all its values are equal."""
    host = to_numpy(part)
    if host.dtype.kind == "O" or host.ndim not in (1, 2):
        return [False]
    return list(np.atleast_1d((host == host[:1]).all(axis=0)))


def looks_like_classes(y: Any) -> bool:
    """Whether a target is classes: one column of text, truth values or whole numbers.

    Floating-point numbers are numbers, whatever their values.
    """
    if checks.holds_objects(y) and not all(isinstance(v, str | Integral) for v in y.flat):
        return False
    if isinstance(y, tuple):
        return False
    array = checks.any_points(y, "y")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    return array.ndim == 1 and not is_floating(array)


def read_random_state(value: Any, name: str = "random_state") -> np.random.RandomState:
    """The same as scikit-learn's kind of state, for what scikit-learn draws."""
    try:
        return check_random_state(value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be None, a whole number from 0 to 2**32 - 1 or a NumPy RandomState, got "
            f"{value!r:.60}."
        ) from error


def row_labels(value: Any, n: int, name: str, of: str = "data") -> np.ndarray:
    """One label for each of n rows, on the host."""
    found = to_numpy(checks.labels(value, name))
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.ndim != 1:
        raise ValueError(
            f"{name}: expected one label per row, shape ({n},), got shape {found.shape}."
        )
    if len(found) != n:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: {of} has {n}, {name} "
            f"has {len(found)}. Rows that belong together must stand at the same place."
        )
    return found
