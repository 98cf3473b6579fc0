"""Tests that may be looked at after every row, stopped at any time and continued at will."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import exp, log, sqrt
from typing import Any

import numpy as np
from numpy.random import Generator
from sklearn.base import BaseEstimator

from meanmap import checks
from meanmap.arrays import Points, concatenate, count, spans, take
from meanmap.kernels import Kernel
from meanmap.kernels.defaults import as_kernel
from meanmap.monitoring.bets import GROUP, MatchBettor, SwapBettor
from meanmap.monitoring.horizon import BETS, DRAWS, FINE, rank_pairs
from meanmap.monitoring.records import Gate, SequentialResult, Witness
from meanmap.monitoring.views import FeatureView, choose_views
from meanmap.monitoring.wealth import Wealth
from meanmap.spaces import Basis, Space
from meanmap.statistics.gates import one_each
from meanmap.statistics.tiles import on_host

BLOCK = 1 << 13  # rows whose features are in memory at a time
TINY = 1e-300


@dataclass(frozen=True, eq=False)
class StreamSide:
    """One of several streams: its kernel, what a row looks like, rows that wait, its features."""

    kernel: Any = None
    example: Points = None
    waiting: Points = None
    views: tuple[FeatureView, ...] = ()

    @property
    def gate(self) -> Gate:
        """What reads points of this stream."""
        return Gate(self.kernel, self.example)

    @property
    def ready(self) -> int:
        """How many rows wait."""
        return 0 if self.waiting is None else count(self.waiting)

    def extend(self, points: Points) -> StreamSide:
        """With more rows, which have passed the gate."""
        rows = points if self.waiting is None else concatenate([self.waiting, points])
        example = take(points, slice(0, 1)) if self.example is None else self.example
        return replace(self, waiting=rows, example=example)

    def drop(self, rows: int) -> StreamSide:
        """Without the rows that have waited longest."""
        left = self.ready - rows
        return replace(self, waiting=take(self.waiting, slice(rows, None)) if left else None)


Sides = tuple[StreamSide, ...]


@dataclass(frozen=True, eq=False)
class Progress:
    """Everything that a batch changes, in one piece."""

    sides: Sides = (StreamSide(), StreamSide())
    wealth: Wealth | None = None
    last: float | None = None  # what the last e-value is compared with, once the stream has ended
    horizon: int = 0
    kept: Sides | None = None  # all rows, until there are as many as the horizon
    looked: float | None = None  # the p-value of all of them; 1 before


class SequentialTest(BaseEstimator, ABC):
    """What the tests have in common: rows wait until there are enough, then they are bet on."""

    _name: str
    _unit: int  # rows of each stream in a bet
    _progress: Progress = Progress()

    def __init__(
        self,
        kernel: Any = None,
        basis: Any = None,
        alpha: float = 0.05,
        warm_up: int = 20,
        horizon: int | None = None,
        random_state: Any = 0,
    ) -> None:
        self.kernel = kernel
        self.basis = basis
        self.alpha = alpha
        self.warm_up = warm_up
        self.horizon = horizon
        self.random_state = random_state

    def update(self, X: Any = None, Y: Any = None) -> SequentialResult:
        """Take in new rows and return the evidence so far.

        Rows that cannot be read raise an error that says why, and change nothing.
        """
        return self._advance(X, Y)

    def _advance(self, *rows: Any) -> SequentialResult:
        checks.fraction(self.alpha, "alpha", "Try 0.05.")
        warm = checks.whole(self.warm_up, "warm_up", 4, "Bets start after so many rows; try 20.")
        horizon = getattr(self, "horizon", None)  # files of earlier versions have none
        if horizon is not None:
            remedy = "It is how many rows a stream will have; None if that is not known."
            checks.whole(horizon, "horizon", warm, remedy)
        now = self._progress
        if now.last is not None:
            raise ValueError("the test was stopped: stop() was its last look. Start a new one.")
        sides = self._read(now.sides, *rows)
        wealth, ready = now.wealth, min(side.ready for side in sides)
        if wealth is None and ready >= warm:
            sides, wealth = self._start(sides, warm)
            if horizon is not None:
                kept = tuple(replace(side, waiting=None) for side in sides)
                most = horizon - horizon % self._unit
                now = replace(now, horizon=most, kept=kept, looked=1.0)
            ready = min(side.ready for side in sides)
        if wealth is not None:
            units = ready // self._unit
            for block in spans(units, BLOCK // self._unit):
                part = slice(block.start * self._unit, block.stop * self._unit)
                features = self._features(sides, part)
                wealth = wealth.advance(features, block.stop - block.start)
            now = self._keep(now, sides, units * self._unit)
            sides = tuple(side.drop(units * self._unit) for side in sides)
        after = replace(now, sides=sides, wealth=wealth)
        answer = self._record(after)
        # one assignment, once everything has worked: an interrupt leaves the test before or after
        self._progress = after
        return answer

    def _keep(self, now: Progress, sides: Sides, rows: int) -> Progress:
        """With so many more rows for the look at the horizon, or with its p-value."""
        if now.kept is None or not rows:
            return now
        new = slice(0, min(rows, now.horizon - now.kept[0].ready))
        pairs = zip(now.kept, sides, strict=True)
        kept = tuple(old.extend(take(side.waiting, new)) for old, side in pairs)
        if kept[0].ready < now.horizon:
            return replace(now, kept=kept)
        rng = checks.random_generator(self.random_state, "random_state")
        looked = self._look(kept, now.horizon, max(DRAWS, int(FINE / self.alpha)), rng)
        return replace(now, kept=None, looked=looked)

    def result(self) -> SequentialResult:
        """The evidence so far."""
        return self._record(self._progress)

    def stop(self, rng: Any = None) -> SequentialResult:
        """The last look: a record with a p-value that is smaller, and valid if no row follows.

        Where a stream ends, Ville's inequality leaves something over. With U uniform on (0, 1),
        U over the last e-value is a p-value as well, together with all earlier ones (Ramdas and
        Manole 2023). It is drawn once: after this the test takes no rows.

        Examples
        --------
        >>> import numpy as np
        >>> from meanmap.monitoring import SequentialTwoSampleTest
        >>> rng = np.random.default_rng(0)
        >>> test = SequentialTwoSampleTest()
        >>> before = test.update(rng.normal(size=(40, 1)), rng.normal(0.7, 1, size=(40, 1)))
        >>> test.stop(rng=0).pvalue <= before.pvalue
        True
        """
        now = self._progress
        if now.last is None:
            now = replace(now, last=float(checks.random_generator(rng).uniform()))
        answer = self._record(now)
        self._progress = now
        return answer

    def _record(self, now: Progress) -> SequentialResult:
        wealth = Wealth.start([(0, _IDLE)]) if now.wealth is None else now.wealth
        log_p = -wealth.best
        if now.last is not None:
            log_p = min(log_p, log(max(now.last, TINY)) - wealth.log_mean)
        pvalue, share = exp(log_p), 1.0
        if now.looked is not None:
            pvalue, share = min(pvalue / BETS, now.looked / (1 - BETS), 1.0), BETS
        sizes, path = self._sizes(now.sides, wealth.units), wealth.path
        seen = sizes, self._unit * path.times, path.values, self._witness(now)
        evidence = self._name, wealth.log_mean, max(pvalue, TINY), self.alpha
        return SequentialResult(*evidence, *seen, share)

    @abstractmethod
    def _read(self, sides: Sides, *rows: Any) -> Sides:
        """The streams with new rows that have passed the gate."""

    @abstractmethod
    def _start(self, sides: Sides, warm: int) -> tuple[Sides, Wealth]:
        """The features that are bet on, chosen on the first rows, and wealth of 1."""

    @abstractmethod
    def _features(self, sides: Sides, rows: slice) -> list[Any]:
        """The features of some of the rows."""

    def _look(self, sides: Sides, rows: int, draws: int, rng: Generator) -> float:
        """The p-value of all rows, among rearrangements that the null hypothesis allows.

        A test that takes no horizon has none to make.
        """
        return 1.0

    @abstractmethod
    def _sizes(self, sides: Sides, units: int) -> dict[str, int]:
        """How many rows there were, by name."""

    @abstractmethod
    def _witness(self, now: Progress) -> Witness | None:
        """What the bets have learned."""


_IDLE = SwapBettor.start(1, 1.0)


class SequentialTwoSampleTest(SequentialTest):
    """Do two streams have one distribution? A test to look at whenever one likes.

    Testing by betting (Shekhar and Ramdas 2023): rows of X and of Y are paired as they come, and
    a bettor who has learned a witness function from earlier pairs says which of the two rows is
    X's. If both have one distribution no bet wins in the mean, and the probability that the wealth
    ever reaches 1/α is at most α, over all times. So the test may be stopped or continued at will,
    and its p-value is valid at any time.

    Several bettors look at different features: means, squares and products of columns, and the
    kernel at two bandwidths. The e-value is their mean wealth. What is kept does not grow with the
    number of rows, except for rows of one stream that wait for the other, and up to a horizon.

    The freedom to look at any time costs power at the end. If it is known how many rows a stream
    will have, say so by `horizon`: the bets then have a fifth of alpha, so that they reject at an
    e-value of 5/alpha, and one look at all pairs has four fifths, whose p-value is the rank of
    the data among 999 random choices of pairs to swap. Both levels hold, and so does their sum.

    Parameters
    ----------
    kernel : Kernel, callable or None
        None chooses one for the kind of rows and adds features of the columns themselves; a kernel
        is bet on alone.
    basis : a basis, a fitted Space, or None
        Coordinates of the kernel. None fits pivoted Cholesky to the first rows.
    alpha : float
    warm_up : int
        Pairs that wait until scales, bandwidths and landmarks are chosen on them. They are bet on
        afterwards: the choice does not depend on which row is X's.
    horizon : int or None
        Pairs after which there is a look at all of them; rows are kept until then. To be given
        before the first row, with no regard to what was seen.
    random_state : int, generator or None
        Of the swaps at the horizon.

    See Also
    --------
    meanmap.two_sample_test : for samples that are complete; it has more power, for one look.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.monitoring import SequentialTwoSampleTest
    >>> rng = np.random.default_rng(0)
    >>> test = SequentialTwoSampleTest()
    >>> for day in range(1, 100):
    ...     found = test.update(rng.normal(size=(10, 3)), rng.normal(0.5, 1, size=(12, 3)))
    ...     if found.rejects:
    ...         break
    >>> day < 10, found.pvalue <= 0.05, found.sizes["pairs"] == 10 * day
    (True, True, True)
    >>> before, after = found.witness([[-1.0, -1.0, -1.0], [1.5, 1.5, 1.5]])
    >>> bool(before > after)  # X has more mass at the first point
    True
    """

    _name = "Sequential two-sample test"
    _unit = 1

    def _read(self, sides: Sides, X: Any = None, Y: Any = None) -> Sides:
        kernel, example = sides[0].kernel, sides[0].example
        if example is None:
            example = sides[1].example
        found = list(sides)
        for i, (name, rows) in enumerate((("X", X), ("Y", Y))):
            if rows is None:
                continue
            if kernel is None:
                kernel = as_kernel(own_kernel(self.kernel, self.basis), rows, name)
            points = on_host(kernel.check(rows, name, example, "earlier rows"))
            if example is None:
                example = take(points, slice(0, 1))
            found[i] = found[i].extend(points)
        return replace(found[0], kernel=kernel), replace(found[1], kernel=kernel)

    def _start(self, sides: Sides, warm: int) -> tuple[Sides, Wealth]:
        pooled = concatenate([take(side.waiting, slice(0, warm)) for side in sides])
        mixed = self.kernel is None and self.basis is None
        views = choose_views(sides[0].kernel, self.basis, pooled, mixed)
        sizes = [view.coordinates(take(pooled, slice(0, 1))).shape[1] for view in views]
        bettors = [
            (i, SwapBettor.start(sizes[i], width))
            for i, view in enumerate(views)
            for width in view.widths
        ]
        return (replace(sides[0], views=views), sides[1]), Wealth.start(bettors)

    def _features(self, sides: Sides, rows: slice) -> list[Any]:
        x, y = (take(side.waiting, rows) for side in sides)
        return [view.coordinates(x) - view.coordinates(y) for view in sides[0].views]

    def _look(self, sides: Sides, rows: int, draws: int, rng: Generator) -> float:
        def rows_and_samples(part: slice) -> list[Any]:
            found = self._features(sides, slice(part.start // 2, part.stop // 2))
            sample = np.tile([[1.0], [-1.0]], (len(found[0]), 1))
            return [(np.repeat(z, 2, axis=0) * sample, sample) for z in found]

        return rank_pairs(rows_and_samples, 2 * rows, 2, draws, rng)

    def _sizes(self, sides: Sides, units: int) -> dict[str, int]:
        waiting = {f"{name}_waiting": side.ready for name, side in zip("xy", sides, strict=True)}
        return {"pairs": units, **waiting}

    def _witness(self, now: Progress) -> Witness | None:
        x = now.sides[0]
        return None if now.wealth is None else Witness((x.gate,), (x.views,), now.wealth)


class AlignedTest(SequentialTest):
    """Tests of variables whose rows belong together."""

    _variables = "XY"

    def _read(self, sides: Sides, *rows: Any) -> Sides:
        if all(part is None for part in rows):
            return sides
        found = []
        for side, name, part, (own, basis) in zip(
            sides, self._variables, rows, self._settings(), strict=True
        ):
            kernel = side.kernel or as_kernel(own_kernel(own, basis), part, name)
            points = on_host(kernel.check(part, name, side.example, "earlier rows"))
            found.append(replace(side, kernel=kernel).extend(points))
        new = [after.ready - side.ready for side, after in zip(sides, found, strict=True)]
        if len(set(new)) > 1:
            text = " and ".join(f"{name} {n}" for name, n in zip(self._variables, new, strict=True))
            raise ValueError(
                f"numbers of rows differ: {text}; row i of one goes with row i of the others."
            )
        return tuple(found)

    def _settings(self) -> Iterator[tuple[Any, Any]]:
        """The kernel and the basis that were asked for, by variable."""
        names = self._variables.lower()
        return zip(
            one_each(self.kernel, "kernel", names),
            one_each(self.basis, "basis", names),
            strict=True,
        )

    def _choose(self, sides: Sides, warm: int) -> Sides:
        """The variables with features that are chosen on the first rows."""
        found = []
        for side, (own, basis) in zip(sides, self._settings(), strict=True):
            rows, mixed = take(side.waiting, slice(0, warm)), own is None and basis is None
            found.append(replace(side, views=choose_views(side.kernel, basis, rows, mixed)))
        return tuple(found)


class SequentialIndependenceTest(AlignedTest):
    """Are the two variables of a stream of pairs independent? To look at whenever one likes.

    Among four consecutive pairs, a bettor who has learned how X and Y go together says which y
    belongs to which x (Podkopaev et al. 2023 do so with two pairs, of which half as much can be
    learned as from all rows together, and three quarters from four). If they are independent, all
    24 arrangements are equally likely, and the wealth ever reaches 1/α with probability α at most.

    Parameters
    ----------
    kernel : one for both variables, or a tuple (x, y); None as in `SequentialTwoSampleTest`
    basis : one for both, a pair of bases or fitted Spaces, or None
    alpha : float
    warm_up : int
        Pairs that wait until scales, bandwidths and landmarks are chosen on them.
    horizon, random_state
        As in `SequentialTwoSampleTest`; the look rearranges Y among `warm_up` consecutive pairs,
        which must be exchangeable if X and Y are independent, as the four of a bet.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.monitoring import SequentialIndependenceTest
    >>> rng = np.random.default_rng(0)
    >>> test = SequentialIndependenceTest()
    >>> for day in range(1, 100):
    ...     X = rng.normal(size=(20, 1))
    ...     found = test.update(X, X**2 + rng.normal(size=(20, 1)))
    ...     if found.rejects:
    ...         break
    >>> day < 20, found.pvalue <= 0.05
    (True, True)
    """

    _name = "Sequential independence test"
    _unit = GROUP

    def _start(self, sides: Sides, warm: int) -> tuple[Sides, Wealth]:
        sides = self._choose(sides, warm - warm % GROUP)  # rows are rearranged in whole groups
        features = self._features(sides, slice(0, GROUP))
        bettors = [
            (k, MatchBettor.start(x.shape[1], y.shape[1], sqrt(a * b)))
            for k, ((x, y), widths) in enumerate(zip(features, self._widths(sides), strict=True))
            for a, b in zip(*widths, strict=False)
        ]
        return sides, Wealth.start(bettors)

    def _widths(self, sides: Sides) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
        """How large weights may be on either side, by the features that are bet on together."""
        x, y = (side.views for side in sides)
        return [(x[i].widths, y[j].widths) for i, j in matched_views(len(x), len(y))]

    def _features(self, sides: Sides, rows: slice) -> list[Any]:
        x, y = (
            [view.coordinates(take(side.waiting, rows)) for view in side.views] for side in sides
        )
        return [(x[i], y[j]) for i, j in matched_views(len(x), len(y))]

    def _look(self, sides: Sides, rows: int, draws: int, rng: Generator) -> float:
        length = self.warm_up - self.warm_up % GROUP
        return rank_pairs(partial(self._features, sides), rows, length, draws, rng)

    def _sizes(self, sides: Sides, units: int) -> dict[str, int]:
        return {"pairs": self._unit * units, "waiting": sides[0].ready}

    def _witness(self, now: Progress) -> Witness | None:
        x, y = now.sides
        if now.wealth is None:
            return None
        pairs = matched_views(len(x.views), len(y.views))
        views = tuple(x.views[i] for i, _ in pairs), tuple(y.views[j] for _, j in pairs)
        return Witness((x.gate, y.gate), views, now.wealth)


def matched_views(n: int, m: int) -> list[tuple[int, int]]:
    """Views of X and of Y that are bet on together, the last ones with each other."""
    most = max(n, m)
    return [(max(k - most + n, 0), max(k - most + m, 0)) for k in range(most)]


def own_kernel(kernel: Any, basis: Basis | Space | None) -> Kernel | Any:
    """The kernel that was given, or that of a fitted space."""
    if kernel is None and isinstance(basis, Space) and basis.is_fitted:
        return basis.kernel_
    return kernel
