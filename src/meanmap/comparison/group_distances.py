"""How far all groups of a table are from each other: one pass over the rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape
from itertools import islice
from typing import Any

import numpy as np

from meanmap import checks, plots
from meanmap.arrays import (
    Points,
    asarray,
    count,
    float_like,
    for_each_thread,
    in_blocks,
    on_accelerator,
    spans,
    take,
    to_numpy,
)
from meanmap.comparison.column_pairs import clustered_order
from meanmap.comparison.corrections import read_correction
from meanmap.comparison.nulls import Permutation
from meanmap.comparison.results import fill_lines, probability
from meanmap.comparison.sources import read_draws
from meanmap.comparison.two_sample import two_sample_test
from meanmap.kernels import Energy, Kernel
from meanmap.kernels.defaults import as_kernel
from meanmap.spaces import Basis
from meanmap.spaces.space import fit_space_moments
from meanmap.statistics.gates import near_origin, row_labels
from meanmap.statistics.tiles import SIDE, Buffers, ThreadSums, on_host

FITTED = 5000  # rows that coordinates are fitted to
TESTED = 2000  # rows of a group, drawn at random, that a p-value is found from
SHOWN = 50  # groups in a notebook
BINS = 128  # that are exchanged between a group and the control


@dataclass(frozen=True, eq=False, repr=False)
class GroupDistances:
    """The distances between all groups, and p-values against a control.

    Attributes
    ----------
    names : tuple
        Of the groups.
    distances : array (groups, groups)
        Squared MMDs, or energy distances.
    sizes : array
        How many rows each group has.
    control : the group that others were tested against, or None
    pvalues, adjusted : arrays (groups,) or None
        Against the control, alone and corrected for all groups; not a number for the control.
    metric : str
    kernel : Kernel

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.comparison import pairwise
    >>> rng = np.random.default_rng(0)
    >>> drug = rng.choice(["none", "a", "b"], 300)
    >>> cells = rng.normal(size=(300, 5)) + 0.8 * (drug == "b")[:, None]
    >>> table = pairwise(cells, drug, kernel="energy").to_frame()
    >>> bool(table.loc["none", "b"] > 5 * table.loc["none", "a"])
    True
    """

    names: tuple[Any, ...]
    distances: np.ndarray
    sizes: np.ndarray
    metric: str
    kernel: Kernel
    control: Any = None
    pvalues: np.ndarray | None = None
    adjusted: np.ndarray | None = None

    def to_frame(self) -> Any:
        """The distances as a square pandas frame."""
        import pandas as pd

        return pd.DataFrame(self.distances, index=self.names, columns=self.names)

    def to_dict(self) -> dict[str, Any]:
        """The figures under plain names, for JSON; by group, p-values where there is a control."""
        found: dict[str, Any] = {
            "metric": self.metric,
            "groups": [str(name) for name in self.names],
            "sizes": self.sizes.tolist(),
            "distances": self.distances.tolist(),
        }
        if self.pvalues is not None:
            table = self.against_control()
            found["control"] = str(self.control)
            for column in ("pvalue", "adjusted"):
                found[column] = {str(name): float(p) for name, p in table[column].items()}
        return found

    def _repr_html_(self) -> str:
        """A table, for notebooks: groups against the control, or all distances of up to 50."""
        frame = self.to_frame() if self.pvalues is None else self.against_control()
        shown = frame.iloc[:SHOWN, :SHOWN]
        return f"<div><p>{escape(' '.join(repr(self).split()))}</p>{shown.to_html()}</div>"

    def against_control(self) -> Any:
        """A pandas frame with a row per group: its size, distance to the control, p-values."""
        import pandas as pd

        if self.pvalues is None:
            raise TypeError("there is no control: pass control= to pairwise().")
        frame = pd.DataFrame(
            {
                "rows": self.sizes,
                "distance": self.distances[self.names.index(self.control)],
                "pvalue": self.pvalues,
                "adjusted": self.adjusted,
            },
            index=list(self.names),
        ).drop(index=self.control)
        return frame.sort_values(["adjusted", "distance"], ascending=[True, False])

    def plot(self, ax: Any = None, level: float = 0.05) -> Any:
        """The distances as a matrix, near groups side by side.

        Groups that differ from the control at this level, after the correction, have *.
        """
        order, level = clustered_order(self.distances), probability(level, "level")
        marked = np.zeros(len(order), bool) if self.adjusted is None else self.adjusted <= level
        names = [f"{self.names[i]} *" if marked[i] else str(self.names[i]) for i in order]
        return plots.matrix(self.distances[np.ix_(order, order)], names, self.metric, None, ax)

    def __repr__(self) -> str:
        text = (
            f"{self.metric} between {len(self.names):,} groups of {self.sizes.min():,} to "
            f"{self.sizes.max():,} rows"
        )
        if self.adjusted is not None:
            different = int(np.sum(self.adjusted <= 0.05))
            text += (
                f"; {different:,} of {len(self.names) - 1:,} differ from {self.control} at the "
                "0.05 level after the correction"
            )
        return fill_lines(f"{text}.")


def pairwise(
    data: Any,
    groups: Any,
    control: Any = None,
    kernel: Any = None,
    basis: Basis | None = None,
    correction: str | None = "holm",
    n_permutations: int = 999,
    rng: Any = None,
) -> GroupDistances:
    """The distances between all groups of rows, with p-values against a control.

    Parameters
    ----------
    data : table or points, one row after the other
    groups : array with the group of each row
    control : one of the groups, or None
        The group that all others are tested against, each by permutations of the rows of both (of
        2,000 of either, drawn at random, where there are more), with exact level.
    kernel : Kernel, "energy" or None
        None is the default for the kind of points, a Gaussian at the median distance for numbers:
        distances are squared MMDs ("V" estimates). "energy" are energy distances, 2E|X - Y| -
        E|X - X'| - E|Y - Y'| with the Euclidean distance of rows as they are.
    basis : RandomFourier, Nystroem, PivotedCholesky, Explicit or None
        Compute in coordinates, one mean per group, in O(n r): for very many rows. None is exact, in
        one pass over all pairs of rows.
    correction : {"holm", "fdr", None}
        Of p-values against the control, for the number of groups.
    n_permutations : int
    rng : int, numpy Generator or None

    Returns
    -------
    GroupDistances
        `.distances`, `.to_frame()`, `.against_control()`, `.plot()`.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.comparison import pairwise
    >>> rng = np.random.default_rng(0)
    >>> drug = rng.choice(["none", "a", "b"], 300)
    >>> cells = rng.normal(size=(300, 5)) + 0.8 * (drug == "b")[:, None]
    >>> found = pairwise(cells, drug, control="none", kernel="energy", rng=0)
    >>> found.against_control().round(3)
       rows  distance  pvalue  adjusted
    b   115     1.039   0.001     0.002
    a    95     0.081   0.210     0.210
    """
    adjust, draws = read_correction(correction), read_draws(n_permutations)
    rng = checks.random_generator(rng)
    energy = isinstance(kernel, str) and kernel == "energy"
    if isinstance(kernel, str) and not energy:
        raise ValueError(f'kernel: expected a kernel, None or "energy", got {kernel!r}.')
    rows = SortedRows.read(data, groups, Energy() if energy else kernel)
    names, at = rows.names, None if control is None else rows.place(control)
    if basis is None:
        inner = group_sums(rows.kernel, rows.points, rows.starts)
        inner = inner / np.outer(rows.sizes, rows.sizes)
    else:
        means = group_means(rows.kernel, rows.points, rows.starts, basis, rng)
        inner = means @ means.T
    own = np.diagonal(inner)
    distances = np.maximum(own[:, None] + own - 2 * inner, 0.0)
    np.fill_diagonal(distances, 0.0)
    found = GroupDistances(
        names=names,
        distances=2 * distances if energy else distances,
        sizes=rows.sizes,
        metric="energy distance" if energy else "squared MMD",
        kernel=rows.kernel,
    )
    if at is None:
        return found
    pvalues = control_pvalues(rows, at, draws, rng)
    others = np.arange(len(names)) != at
    adjusted = np.full(len(names), np.nan)
    adjusted[others] = adjust(pvalues[others])
    return replace(found, control=names[at], pvalues=pvalues, adjusted=adjusted)


@dataclass(frozen=True, eq=False)
class SortedRows:
    """The points of a table group by group, near the origin where that changes nothing."""

    points: Points
    names: tuple[Any, ...]
    starts: np.ndarray  # where each group begins, and the end
    kernel: Kernel  # resolved

    @classmethod
    def read(cls, data: Any, groups: Any, kernel: Any) -> SortedRows:
        """The arguments, checked once."""
        chosen = as_kernel(kernel, data, "data")
        points = chosen.check(data, "data")
        labels = row_labels(groups, count(points), "groups")
        names, where = np.unique(labels, return_inverse=True)
        if len(names) < 2:
            raise ValueError(f"groups: expected two or more groups, got {len(names)}.")
        points = take(points, np.argsort(where, kind="stable"))
        starts = np.concatenate([[0], np.cumsum(np.bincount(where))])
        resolved = chosen.resolve(points)
        (points,) = near_origin([resolved], points)
        return cls(points, tuple(names.tolist()), starts, resolved)

    @property
    def sizes(self) -> np.ndarray:
        """How many rows each group has."""
        return np.diff(self.starts)

    def place(self, name: Any) -> int:
        """The number of a group."""
        try:  # in a dict: values such as pandas.NA do not compare as true or false
            return {one: i for i, one in enumerate(self.names)}[name]
        except (KeyError, TypeError):
            shown = ", ".join(map(repr, self.names[:5])) + (", …" if len(self.names) > 5 else "")
            raise ValueError(
                f"control: expected one of the groups, {shown}; got {name!r:.40}."
            ) from None

    def some(self, group: int, rng: np.random.Generator) -> Points:
        """The rows of a group, or so many that a test is quick."""
        inside = np.arange(self.starts[group], self.starts[group + 1])
        most = min(len(inside), TESTED)
        return take(self.points, np.sort(rng.choice(inside, most, replace=False)))


def group_sums(kernel: Kernel, points: Points, starts: np.ndarray) -> np.ndarray:
    """Σ k over the pairs of points of every two groups, which follow each other in the rows."""
    if on_accelerator(points):
        return in_blocks(lambda side: _group_sums(kernel, points, starts, side), 1 << 13)
    return _group_sums(kernel, on_host(points), starts, SIDE)


def _group_sums(kernel: Kernel, points: Points, starts: np.ndarray, side: int) -> np.ndarray:
    n, groups = count(points), len(starts) - 1
    strips = list(spans(n, side))
    compare, buffers = kernel.against(points), Buffers(points)
    total = ThreadSums((groups, groups))
    ends = starts[1:]

    def inside(strip: slice) -> tuple[slice, np.ndarray]:
        """The groups that a strip meets, and where they begin in it."""
        first = int(np.searchsorted(ends, strip.start, side="right"))
        last = int(np.searchsorted(starts, strip.stop, side="left"))
        return slice(first, last), np.maximum(starts[first:last] - strip.start, 0)

    def share(thread: int, of: int) -> None:
        (sums,) = total.of(thread)
        pairs = ((p, q) for i, p in enumerate(strips) for q in strips[i:])
        for p, q in islice(pairs, thread, None, of):
            (buffer,) = buffers.of(thread, p, q)
            tile = to_numpy(compare(take(points, p), q, buffer))
            (here, at_here), (there, at_there) = inside(p), inside(q)
            if len(at_here) == 1:  # a plain sum is many times as fast
                part = tile.sum(axis=0, dtype=np.float64)[None]
            else:
                part = np.add.reduceat(tile, at_here, axis=0, dtype=np.float64)
            part = np.add.reduceat(part, at_there, axis=1)
            sums[here, there] += part
            if p != q:
                sums[there, here] += part.T

    if len(strips) == 1 or on_accelerator(points):
        share(0, 1)
    else:
        for_each_thread(share)
    return total.total()[0]


def group_means(
    kernel: Kernel, points: Points, starts: np.ndarray, basis: Basis, rng: np.random.Generator
) -> np.ndarray:
    """The mean coordinates of every group, the coordinates fitted to some of the rows."""
    n, groups = count(points), len(starts) - 1
    some = np.sort(rng.choice(n, min(n, FITTED), replace=False))
    fitted = take(points, some)
    weights = asarray(np.full(len(some), 1 / len(some)), float_like(fitted))
    ones = asarray(np.ones((len(some), 1)), float_like(fitted))
    space, _, _ = fit_space_moments(kernel, basis, fitted, weights, ones)
    sums = ThreadSums((groups, space.rank_))

    def work(thread: int, block: slice, psi: np.ndarray) -> None:
        first = int(np.searchsorted(starts[1:], block.start, side="right"))
        last = int(np.searchsorted(starts, block.stop, side="left"))
        at = np.maximum(starts[first:last] - block.start, 0)
        sums.of(thread)[0][first:last] += np.add.reduceat(to_numpy(psi), at, axis=0)

    space.map_.for_each_block(points, work)
    means = sums.total()[0] / np.diff(starts)[:, None]
    return means - means.mean(axis=0)


def control_pvalues(
    rows: SortedRows, control: int, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """The p-value of every group against the control, not a number for itself.

    A group of a single row says nothing: 1.
    """
    found = np.ones(len(rows.sizes))
    found[control] = np.nan
    theirs, null = rows.some(control, rng), Permutation(bins=BINS)
    for group in np.flatnonzero(rows.sizes > 1):
        if group != control:
            mine = rows.some(int(group), rng)
            result = two_sample_test(mine, theirs, rows.kernel, null, draws, rng, estimator="V")
            found[group] = result.pvalue
    return found
