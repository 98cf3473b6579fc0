"""A pilot sample, and the smaller ones that are drawn from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from meanmap import checks
from meanmap.arrays import is_array, take, to_numpy

SMALLEST = 8  # points that a simulated sample has at least


@dataclass(frozen=True)
class Subsample:
    """Draw parts of the pilot without replacement.

    Each part is a sample of the truth, so that its power is estimated without bias. Sizes beyond
    the pilot are read off the curve.

    Parameters
    ----------
    progress : bool
        Whether to show a progress bar.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import two_sample_test
    >>> from meanmap.comparison import power_analysis
    >>> from meanmap.comparison import Subsample
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(60, 1)), rng.normal(2.0, 1.0, size=(60, 1))
    >>> options = {"n_simulations": 20, "kernel": "median", "rng": 0}
    >>> found = power_analysis(
    ...     two_sample_test, X, Y, sizes=[8, 20], resampling=Subsample(), **options
    ... )
    >>> bool(found.powers[1] > 0.9)
    True
    """

    progress: bool = False

    replace: ClassVar[bool] = False
    smoothing: ClassVar[float] = 0.0


@dataclass(frozen=True)
class Bootstrap:
    """Draw from the pilot with replacement, at any size.

    This takes the pilot's chance differences for real ones and so overstates power, the more so the
    weaker the effect.

    Parameters
    ----------
    smoothing : float
        Jitter for rows of numbers, as a multiple of Silverman's bandwidth, so that no two points
        are equal; means and variances are kept.
    progress : bool
        Whether to show a progress bar.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import two_sample_test
    >>> from meanmap.comparison import power_analysis
    >>> from meanmap.comparison import Bootstrap
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(40, 1)), rng.normal(2.0, 1.0, size=(40, 1))
    >>> options = {"n_simulations": 20, "kernel": "median", "rng": 0}
    >>> smooth = Bootstrap(smoothing=1.0)
    >>> found = power_analysis(two_sample_test, X, Y, sizes=[8, 80], resampling=smooth, **options)
    >>> bool(found.powers[1] > 0.9)
    True
    """

    smoothing: float = 0.0
    progress: bool = False

    replace: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.not_negative(self.smoothing, "smoothing", "1 is Silverman's bandwidth.")


RESAMPLING = {"subsample": Subsample, "bootstrap": Bootstrap}


def read_resampling(value: Any) -> Subsample | Bootstrap:
    """A word or an object."""
    if isinstance(value, Subsample | Bootstrap):
        return value
    return RESAMPLING[checks.option(value, "resampling", tuple(RESAMPLING))]()


@dataclass(frozen=True, eq=False)
class Pilot:
    """The pilot sample, and how smaller ones are drawn from it."""

    samples: tuple[Any, ...]
    groups: tuple[tuple[int, ...], ...]
    rows: tuple[int, ...]  # of every group
    replace: bool
    smoothing: float

    @classmethod
    def of(
        cls, test: Any, samples: Sequence[Any], paired: Any, resampling: Subsample | Bootstrap
    ) -> Pilot:
        """The pilot, checked."""
        if not samples:
            raise ValueError("power_analysis takes the pilot after the test: (test, X, Y).")
        if not callable(test):
            raise TypeError(
                f"test: expected a function such as two_sample_test, got {checks.describe(test)}."
            )
        held = tuple(_indexable(sample, i) for i, sample in enumerate(samples))
        groups = _row_groups(test, len(held), paired)
        rows = []
        for group in groups:
            lengths = {len(held[i]) for i in group}
            if len(lengths) > 1:
                raise ValueError(
                    f"samples {', '.join(str(i + 1) for i in group)} belong together row by row, "
                    f"but have {', '.join(str(len(held[i])) for i in group)} rows. Two samples of "
                    "their own go with paired=False."
                )
            rows.append(lengths.pop())
        if min(rows) < 2 * SMALLEST:
            raise ValueError(
                f"the pilot: expected at least {2 * SMALLEST} points a sample, got {min(rows)}. "
                "Fewer say next to nothing about power."
            )
        return cls(held, groups, tuple(rows), resampling.replace, resampling.smoothing)

    @property
    def size(self) -> int:
        """Points of the first sample."""
        return self.rows[0]

    def sizes(self, n: int) -> tuple[int, ...]:
        """Points of every group, where the first has n."""
        return tuple(max(2, round(n * rows / self.rows[0])) for rows in self.rows)

    @property
    def least(self) -> int:
        """The smallest size of the first sample."""
        return math.ceil(SMALLEST * self.rows[0] / min(self.rows))

    def draw(self, n: int, rng: np.random.Generator) -> list[Any]:
        """Samples of this size."""
        out: list[Any] = list(self.samples)
        for group, rows, size in zip(self.groups, self.rows, self.sizes(n), strict=True):
            chosen = rng.choice(rows, size, replace=self.replace)
            for i in group:
                out[i] = _take_rows(self.samples[i], chosen)
                if self.smoothing:
                    out[i] = _add_jitter(out[i], self.samples[i], self.smoothing, rng)
        return out


def _row_groups(test: Any, count: int, paired: Any) -> tuple[tuple[int, ...], ...]:
    if paired is None:
        inner = test
        while isinstance(inner, partial):
            inner = inner.func
        paired = getattr(inner, "row_groups", True if count == 1 else None)
        if paired is None:
            raise ValueError(
                f"paired: {getattr(inner, '__name__', test)!s} is not a test of this package. Say "
                "whether the rows of its samples belong together: paired=True for independence, "
                "paired=False for separate samples."
            )
    if paired is True:
        return (tuple(range(count)),)
    if paired is False:
        return tuple((i,) for i in range(count))
    groups = tuple(tuple(int(i) for i in group) for group in paired)
    if sorted(i for group in groups for i in group) != list(range(count)) or groups[0][0] != 0:
        raise ValueError(
            f"paired={paired!r} does not fit {count} samples: every one, numbered from 0, must "
            "stand in one group, the first in the first."
        )
    return groups


def _indexable(sample: Any, i: int) -> Any:
    if isinstance(sample, list):
        flat = sample and checks.plain([sample[0]], f"sample {i + 1} of the pilot").ndim < 3
        array = checks.plain(sample, f"sample {i + 1} of the pilot") if flat else None
        return sample if array is None or array.dtype.kind == "O" else array
    if hasattr(sample, "iloc"):
        return sample
    if is_array(sample) and sample.ndim:
        return checks.plain(sample, f"sample {i + 1} of the pilot")
    raise TypeError(
        f"sample {i + 1} of the pilot: expected an array, a list or a data frame, got "
        f"{checks.describe(sample)}. Options of the test are passed by name."
    )


def _take_rows(sample: Any, rows: np.ndarray) -> Any:
    if isinstance(sample, list):
        return [sample[i] for i in rows]
    return sample.iloc[rows] if hasattr(sample, "iloc") else take(sample, rows)


def _add_jitter(drawn: Any, sample: Any, smoothing: float, rng: np.random.Generator) -> Any:
    """Rows drawn with noise, moved towards the mean so that the variance stays what it was."""
    if not is_array(sample) or sample.ndim != 2 or to_numpy(sample).dtype.kind not in "fiu":
        raise TypeError("smoothing is for rows of numbers; leave it out for other points.")
    whole, x = to_numpy(sample).astype(float), to_numpy(drawn).astype(float)
    n, d = whole.shape
    h = smoothing * (4 / ((d + 2) * n)) ** (1 / (d + 4))  # Silverman (1986, eq. 4.14)
    noise = h * whole.std(axis=0) * rng.standard_normal(x.shape)
    return whole.mean(axis=0) + (x - whole.mean(axis=0) + noise) / (1 + h * h) ** 0.5
