"""Kernels on strings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from meanmap import checks
from meanmap.arrays import Array, Points
from meanmap.kernels.domains.objects import CountKernel


class NGrams(CountKernel):
    """The p-spectrum kernel on strings: how many substrings of length p two strings share.

    Its features are the counts of the substrings (Leslie, Eskin and Noble 2002). It tells
    distributions apart by those counts alone, so it is not characteristic. A string shorter than p
    has none: its k is 0 with every string, with itself too.

    Parameters
    ----------
    p : int
        The length of the substrings.
    normalized : bool
        Whether to divide by the counts' lengths, so that k(x, x) = 1 whatever a string's length.

    Examples
    --------
    >>> from meanmap.kernels import NGrams
    >>> NGrams(p=2, normalized=False)(["banana", "bandana"])  # ba, 2 an, 2 na; ba, 2 an, nd, ...
    array([[9., 7.],
           [7., 8.]])
    """

    domain = "strings"

    def __init__(self, p: int = 3, normalized: bool = True) -> None:
        self.p = p
        self.normalized = normalized

    def read_points(self, points: Any, name: str) -> Points:
        return read_strings(points, name)

    def is_point(self, x: Any, like: Points) -> bool:
        return isinstance(x, str)

    def resolve(self, points: Points, weights: Array | None = None) -> Self:
        remedy = "It is the length of the substrings; try 3."
        return self.replace(p=checks.whole(self.p, "p", 1, remedy))

    def count_parts(self, point: str) -> Mapping[str, int]:
        p, text = self.p, str(point)
        return Counter(text[i : i + p] for i in range(len(text) - p + 1))


def read_strings(value: Any, name: str) -> np.ndarray:
    """Points that are strings: a 1-D NumPy array of them."""
    if isinstance(value, str | bytes):
        raise TypeError(
            f"{name}: expected a list of strings, got one, {value!r:.40}. Pass [{name}]."
        )
    if isinstance(value, tuple) and value and not np.isscalar(value[0]):
        checks.plain(value, name)  # refuses a tuple of samples in its own words
    items = list(value) if isinstance(value, list | tuple) else checks.plain(value, name)
    if not isinstance(items, list) and (not isinstance(items, np.ndarray) or items.ndim != 1):
        raise TypeError(f"{name}: expected strings of shape (n,), got {checks.describe(items)}.")
    for i, item in enumerate(items):
        if not isinstance(item, str):
            raise TypeError(
                f"{name}: a kernel on strings compares strings, got {item!r:.40} of type "
                f"{type(item).__name__} in row {i}. Numbers go with kernels.Gaussian() as rows "
                "(n, d) or with kernels.Delta() as labels; digits that are meant as text with "
                f"np.asarray({name}).astype(str)."
            )
    array = np.asarray(items, dtype=str)
    checks.refuse_empty(array, name)
    return array
