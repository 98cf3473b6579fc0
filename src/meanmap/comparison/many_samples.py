"""Do several samples come from one distribution?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import Points, concatenate, count, take
from meanmap.comparison import ordering
from meanmap.comparison.column_effects import InWords
from meanmap.comparison.corrections import read_correction
from meanmap.comparison.effects import EffectSize, choose_rows, jackknife_error, safe_ratio
from meanmap.comparison.independence import independence_test
from meanmap.comparison.results import TestResult
from meanmap.comparison.two_sample import two_sample_test
from meanmap.frames import in_order, is_frame
from meanmap.kernels import Kernel
from meanmap.kernels.defaults import as_kernel
from meanmap.statistics.centring import Centred
from meanmap.statistics.gates import require_points, row_labels
from meanmap.statistics.tiles import diagonal_of, on_host

NULLS = ("permutation", "full", "gamma", "spectral", "sequential")
ROWS = 10_000  # of all samples together that the effect is found from


@dataclass(frozen=True, eq=False)
class GroupedPoints:
    """Rows of a table, or points, with the group of each."""

    data: Any  # as given, all groups one after the other
    groups: np.ndarray

    @classmethod
    def read(cls, samples: Any, groups: Any) -> GroupedPoints:
        """A list or dict of samples, or one table and the group of each of its rows."""
        if groups is not None:
            points = as_kernel(None, samples, "samples").check(samples, "samples")
            labels = row_labels(groups, count(points), "groups", "samples")
            return cls(samples if hasattr(samples, "iloc") else points, labels)
        if not isinstance(samples, Mapping | list | tuple) or len(samples) < 2:
            raise ValueError(
                "samples: expected a list or dict of two or more samples, or one table and "
                f"groups=, the group of each of its rows; got {checks.describe(samples)}."
            )
        pairs = samples.items() if isinstance(samples, Mapping) else enumerate(samples)
        named = {str(name): sample for name, sample in pairs}
        if len(named) < len(samples):
            raise ValueError(f"samples: two of them have one name; got {list(samples)!r:.200}.")
        points = read_alike(named)
        data = stack_frames(named) if is_frame(next(iter(named.values()))) else concatenate(points)
        return cls(data, np.repeat(list(named), [count(part) for part in points]))

    @property
    def names(self) -> list[Any]:
        """The groups, in the order they come in."""
        values, first = np.unique(self.groups, return_index=True)
        return list(values[np.argsort(first)].tolist())

    def shuffled(self, rng: np.random.Generator) -> GroupedPoints:
        """The same rows in random order."""
        order = rng.permutation(len(self.groups))
        return GroupedPoints(self._rows(order), self.groups[order])

    def checked(self, name: Any) -> Points:
        """The rows of one group as points."""
        part = self.part(name)
        return as_kernel(None, part, "samples").check(part, "samples")

    def _rows(self, rows: np.ndarray) -> Any:
        return self.data.iloc[rows] if hasattr(self.data, "iloc") else take(self.data, rows)

    def part(self, name: Any) -> Any:
        """The rows of one group, in the kind they were given in."""
        return self._rows(np.flatnonzero(self.groups == name))


def read_alike(named: Mapping[str, Any]) -> list[Points]:
    """Samples of one kind through the gate of the first."""
    names, samples = [f"sample {name}" for name in named], list(named.values())
    kernel = as_kernel(None, samples[0], names[0]).bind(samples[0])
    first = kernel.check(samples[0], names[0])
    pairs = zip(names[1:], samples[1:], strict=True)
    return [first, *(kernel.check(part, name, first, names[0]) for name, part in pairs)]


def stack_frames(named: Mapping[str, Any]) -> Any:
    """Samples one after the other, with the columns of the first, which is a frame."""
    import pandas as pd

    columns = next(iter(named.values())).columns
    parts = [
        pd.DataFrame(in_order(s, columns, name))
        if is_frame(s)
        else pd.DataFrame(checks.plain(s, name), columns=columns)
        for name, s in named.items()
    ]
    return pd.concat(parts, ignore_index=True)


def k_sample_test(
    samples: Any,
    groups: Any = None,
    kernel: Any = None,
    null: Any = "permutation",
    n_permutations: int = 999,
    rng: Any = None,
) -> KSampleResult:
    """Test whether several samples come from one distribution.

    The statistic is HSIC between the points and the number of their sample, which is a weighted sum
    of the MMDs of all pairs of samples. Permutations of the points make the level exact.

    Parameters
    ----------
    samples : list or dict of samples, or one table with `groups`
        Two or more, each with two points or more.
    groups : array with the group of each row of one table, or None
    kernel : None, Kernel, list, Collection, "median" or "collection"
        As in `independence_test`, for the points.
    null : {"permutation", "full", "gamma", "sequential"} or null object
        As in `independence_test`.
    n_permutations : int
    rng : int, numpy Generator or None

    Returns
    -------
    KSampleResult
        A `TestResult` with `.pairs()`, which compares all pairs of samples after it. The effect is
        the share of the variance in the kernel's space that lies between the samples.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.comparison import k_sample_test
    >>> rng = np.random.default_rng(0)
    >>> samples = {"a": rng.normal(size=(50, 2)), "b": rng.normal(size=(60, 2))}
    >>> samples["c"] = rng.normal(1.0, 1.0, size=(40, 2))
    >>> result = k_sample_test(samples, rng=0)
    >>> result.pvalue
    0.001
    >>> pairs = result.pairs(rng=0)
    >>> sorted(pairs[pairs["adjusted"] <= 0.05][["first", "second"]].values.tolist())
    [['a', 'c'], ['b', 'c']]
    """
    given = GroupedPoints.read(samples, groups)
    names = given.names
    if len(names) < 2:
        raise ValueError(f"groups: expected two or more groups, got {len(names)}: {names}.")
    sizes = {str(name): int(np.sum(given.groups == name)) for name in names}
    for name, size in sizes.items():
        require_points(size, f"sample {name}", 2)
    kind = null if isinstance(null, str) else type(null).__name__.lower()
    checks.option(kind, "null", NULLS)
    rng = checks.random_generator(rng)
    ordered = ordering.note_on_samples([(str(name), given.checked(name)) for name in names])
    # samples one after the other look like rows in the order of time
    mixed = given.shuffled(rng)
    found = independence_test(mixed.data, mixed.groups, (kernel, None), null, n_permutations, rng)
    words = found.method.replace("Independence test", f"Test of {len(names)} samples")
    chosen = found.kernel[0] if isinstance(found.kernel, tuple) else found.kernel
    measure = found.explanation.plain[0].resolve(found.explanation.X)
    ordering.warn_if_significant(ordered, found.pvalue)
    return KSampleResult(
        statistic=found.statistic,
        pvalue=found.pvalue,
        null=found.null,
        kernel=chosen,
        method=words,
        hypothesis="the samples come from different distributions",
        sizes={f"n({name})": size for name, size in sizes.items()},
        notes=(*ordered, *found.notes),
        explanation=GroupShare(measure, found.explanation.X, mixed.groups),
        samples=given,
        settings=(kernel, n_permutations),
    )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class KSampleResult(TestResult):
    """What a test of several samples found.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.comparison import k_sample_test
    >>> rng = np.random.default_rng(0)
    >>> samples = [rng.normal(size=(50, 1)), rng.normal(size=(40, 1)), 2 + rng.normal(size=(30, 1))]
    >>> result = k_sample_test(samples, rng=0)
    >>> result.sizes
    {'n(0)': 50, 'n(1)': 40, 'n(2)': 30}
    >>> result.pairs(rng=0)["second"].to_list()[-1]  # of the pair that differs least
    '1'
    """

    samples: GroupedPoints
    settings: tuple[Any, int]

    def pairs(self, correction: str | None = "holm", rng: Any = None) -> Any:
        """All pairs of samples compared by `two_sample_test`, as a pandas frame.

        Parameters
        ----------
        correction : {"holm", "fdr", None}
            Of the p-values in the column "adjusted".
        rng : int, numpy Generator or None

        Returns
        -------
        DataFrame
            One row per pair, the least p-value first.
        """
        import pandas as pd

        adjust, rng = read_correction(correction), checks.random_generator(rng)
        kernel, draws = self.settings
        rows = []
        for a, b in combinations(self.samples.names, 2):
            first, second = self.samples.part(a), self.samples.part(b)
            found = two_sample_test(first, second, kernel, n_permutations=draws, rng=rng)
            rows.append((a, b, found.statistic, found.effect.value, found.pvalue))
        columns = ["first", "second", "statistic", "effect", "pvalue"]
        frame = pd.DataFrame(rows, columns=columns)
        frame["adjusted"] = adjust(frame["pvalue"].to_numpy())
        return frame.sort_values(["adjusted", "effect"], ascending=[True, False], ignore_index=True)


@dataclass(frozen=True, eq=False, repr=False)
class GroupShare(InWords):
    """The share of a kernel's variance that lies between groups."""

    kernel: Kernel
    points: Points
    groups: np.ndarray

    def effect(self) -> EffectSize:
        """1 - V_within/V, both without bias, with an interval by the jackknife."""
        rows = choose_rows(len(self.groups), ROWS)
        points = on_host(take(self.points, rows))
        names, where = np.unique(self.groups[rows], return_inverse=True)
        n, sizes = len(rows), np.bincount(where).astype(float)
        kernel = Centred.of(self.kernel, points)
        sums = np.asarray(kernel.gram_times(points, points, np.eye(len(names))[where]))
        d = diagonal_of(kernel, points)
        own = sums[np.arange(n), where] - d
        every = sums.sum(axis=1) - d
        within, diagonals = np.bincount(where, own), np.bincount(where, d)

        def variance(n: Any, diagonal: Any, off: Any) -> Any:
            return diagonal / np.maximum(n, 1) - off / np.maximum(n * (n - 1), 1)

        spreads = sizes * variance(sizes, diagonals, within)
        value = 1 - safe_ratio(spreads.sum() / n, variance(n, d.sum(), every.sum()))
        error = math.nan
        if sizes.min() > 2:
            m = sizes[where] - 1
            left = m * variance(m, diagonals[where] - d, within[where] - 2 * own)
            inside = (spreads.sum() - spreads[where] + left) / (n - 1)
            without = 1 - safe_ratio(inside, variance(n - 1, d.sum() - d, every.sum() - 2 * every))
            error = jackknife_error(*(without[where == g] for g in range(len(names))))
        return EffectSize.of("variance between samples", float(value), error, n)
