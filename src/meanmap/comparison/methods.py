"""The table of nulls of a test: which words and objects it takes, and what each of them does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.comparison.nulls import Sequential
from meanmap.comparison.sources import Outcome, Source, read_draws, simulate


@dataclass(frozen=True)
class NullMethod:
    """One way to find the null distribution of a test: a row of the test's table of nulls."""

    #: The class of its settings, one of `comparison.nulls`.
    null: type
    #: From the data and a `Request` to the statistic and its null.
    find: Callable[..., Any]
    #: The estimate whose null it is, whichever was asked for; None where it is for any.
    estimator: str | None = None
    #: Whether it can be computed in the coordinates of a basis.
    basis: bool = True
    #: Whether several kernels may be combined.
    several: bool = True
    #: Whether any order of the rows is as likely as theirs, if the null hypothesis is true.
    exchangeable: bool = True
    #: Whether points of an accelerator may stay there.
    stays: bool = True
    #: The fewest points it needs.
    least: int = 2


Table = Mapping[str, NullMethod]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a test was asked for, checked once: everything below takes it as it is."""

    null: Any  # the settings, an object of `comparison.nulls`
    method: NullMethod
    stop: int | None  # draws that reach the statistic, after which a sequential test ends
    draws: int
    rng: np.random.Generator
    estimator: str
    basis: Any

    @classmethod
    def read(
        cls,
        table: Table,
        null: Any,
        n_permutations: Any,
        rng: Any,
        *,
        sequential: Table | None = None,
        estimator: str = "U",
        basis: Any = None,
    ) -> Request:
        """The arguments of a test; `sequential` is the table of what `Sequential` may wrap."""
        stop = None
        if sequential and (isinstance(null, Sequential) or null == "sequential"):
            wrapper = null if isinstance(null, Sequential) else Sequential()
            (method, null), stop = _look_up(wrapper.null, sequential, "Sequential: "), wrapper.stop
        else:
            method, null = _look_up(null, table, "", bool(sequential))
        if basis is not None and not method.basis:
            fitting = ", ".join(repr(word) for word, one in table.items() if one.basis)
            raise ValueError(
                f"basis= goes with permutations and limits, not with {null!r:.60}. "
                + (f"Use one of {fitting}, or leave it out." if fitting else "Leave it out.")
            )
        draws, rng = read_draws(n_permutations), checks.random_generator(rng)
        return cls(
            null=null, method=method, stop=stop, draws=draws, rng=rng, estimator=estimator,
            basis=basis,
        )  # fmt: skip

    def simulate(self, source: Source, combine: str = "soft") -> Outcome:
        """The statistic of a source and draws of it."""
        source.progress = getattr(self.null, "progress", False)
        return simulate(source, self.draws, self.rng, combine, self.stop)


def _look_up(
    null: Any, table: Table, where: str, sequential: bool = False
) -> tuple[NullMethod, Any]:
    """The row of a null and its settings, or an error that lists what there is."""
    if isinstance(null, str) and null in table:
        return table[null], table[null].null()
    for method in table.values():
        if type(null) is method.null:
            return method, null
    words = [*table, "sequential"] if sequential else list(table)
    classes = dict.fromkeys(method.null.__name__ for method in table.values())
    classes |= {"Sequential": None} if sequential else {}
    raise (ValueError if isinstance(null, str) else TypeError)(
        f"{where}null must be one of {', '.join(map(repr, words))}, or an object of "
        f"{', '.join(classes)}; got {null!r:.80}."
    )
