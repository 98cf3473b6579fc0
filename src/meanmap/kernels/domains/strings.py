"""Kernels on strings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from meanmap import checks
from meanmap.arrays import Array, Points
from meanmap.kernels.domains.objects import CountKernel
from meanmap.kernels.protocol import Kernel


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

    def __init__(self, p: int = 3, normalized: bool = True) -> None:
        self.p = p
        self.normalized = normalized

    def read_points(self, points: Any, name: str) -> Points:
        return checks.strings(points, name)

    def _is_point(self, x: Any, like: Points) -> bool:
        return isinstance(x, str)

    def resolve(self, points: Points, weights: Array | None = None) -> Kernel:
        self._length()
        return super().resolve(points, weights)

    def _length(self) -> int:
        return checks.whole(self.p, "p", 1, "It is the length of the substrings; try 3.")

    def _parts(self, point: str) -> Mapping[str, int]:
        p, text = self._length(), str(point)
        return Counter(text[i : i + p] for i in range(len(text) - p + 1))
