"""What a test found: immutable records that explain themselves."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any, Self, TypeVar

import numpy as np
from scipy import stats

from meanmap import checks, plots
from meanmap.arrays import in_kind
from meanmap.kernels import Kernel

DIFFERENT = "the two samples come from different distributions"
DEPENDENT = "the two variables depend on each other"
ALTERNATIVES = ("greater", "less", "two-sided")
TINY = float(np.finfo(float).tiny)
TIE = 1e-9  # relative: a permuted statistic this near to the observed one counts as equal to it


Function = TypeVar("Function", bound=Callable[..., Any])


def row_groups(groups: bool | tuple[tuple[int, ...], ...]) -> Callable[[Function], Function]:
    """Declares a function a test, and which of its samples have rows that belong together.

    True is all of them (independence), False none (two samples), ((0, 1), (2, 3)) the first two and
    the last two. `power_analysis` draws samples by it.
    """

    def declare(test: Function) -> Function:
        test.row_groups = groups  # type: ignore[attr-defined]
        return test

    return declare


def tie_scale(size: Any, rounding: Any) -> Any:
    """The scale of which TIE is the difference between equal statistics.

    `size` is that of the terms of a statistic, `rounding` what its own evaluation may be off by.
    """
    return size + rounding / TIE


def product_scale(sizes: tuple[Any, Any], roundings: tuple[Any, Any]) -> Any:
    """The same for a mean product of two matrices, of these sizes and roundings an element."""
    (a, b), (x, y) = sizes, roundings
    return tie_scale(a * b, a * y + x * b + x * y)


class Null:
    """The distribution of the statistic if the null hypothesis were true."""

    #: How it was found, in a word or two.
    kind: str

    def pvalue(self, statistic: float, alternative: str = "greater") -> float:
        """The probability of a statistic at least as extreme as this one."""
        above, below = self._tails(statistic)
        if alternative == "two-sided":
            return min(1.0, max(2 * min(above, below), TINY))
        # a p-value is never 0, however small
        return max(above if alternative == "greater" else below, TINY)

    def quantile(self, q: Any) -> Any:
        """The value that the statistic stays below with probability q."""
        raise TypeError(f"{type(self).__name__} has no quantiles.")

    def density(self, x: Any) -> np.ndarray | None:
        """The probability density at x, or None where there are draws instead."""
        return None

    def _tails(self, statistic: float) -> tuple[float, float]:
        raise TypeError(f"{type(self).__name__} has no tails.")


@dataclass(frozen=True, eq=False)
class Draws(Null):
    """A null distribution as draws: permuted, or simulated, statistics.

    The observed statistic counts as one of them: p = (1 + #{draws ≥ statistic}) / (1 + #draws),
    never 0, and exact where permuting leaves the null distribution as it is.
    """

    kind: str
    values: np.ndarray
    #: The size of the sums that rounding acts on; differences below TIE times this are ties.
    scale: float = 0.0
    #: Whether drawing ended when enough values had reached the statistic: p is then their share.
    stopped: bool = False

    def _tails(self, statistic: float) -> tuple[float, float]:
        slack = TIE * max(abs(statistic), self.scale)
        own = 0 if self.stopped else 1  # the observed statistic is a draw itself
        above = own + int(np.count_nonzero(self.values >= statistic - slack))
        below = own + int(np.count_nonzero(self.values <= statistic + slack))
        return above / (own + len(self.values)), below / (own + len(self.values))

    def quantile(self, q: Any) -> Any:
        return np.quantile(self.values, q)

    def __len__(self) -> int:
        return len(self.values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype=dtype)

    def __repr__(self) -> str:
        return f"Draws({self.kind!r}, {len(self.values)} values)"


@dataclass(frozen=True)
class LawNull(Null):
    """A null distribution of a known kind, with this mean and variance."""

    kind: str
    mean: float
    variance: float

    @cached_property
    def _law(self) -> Any:
        """As scipy.stats has it."""
        raise TypeError(f"{type(self).__name__} has no law.")

    def _tails(self, statistic: float) -> tuple[float, float]:
        if self.variance <= 0:
            return 1.0, 1.0  # a statistic that cannot vary says nothing
        return float(self._law.sf(statistic)), float(self._law.cdf(statistic))

    def quantile(self, q: Any) -> Any:
        return self._law.ppf(q)

    def density(self, x: Any) -> np.ndarray | None:
        return self._law.pdf(x)


class GammaNull(LawNull):
    """A gamma distribution with the null's first two moments."""

    @cached_property
    def _law(self) -> Any:
        return stats.gamma(a=self.mean**2 / self.variance, scale=self.variance / self.mean)

    def _tails(self, statistic: float) -> tuple[float, float]:
        return super()._tails(statistic) if self.mean > 0 else (1.0, 1.0)


class NormalNull(LawNull):
    """A normal distribution."""

    @cached_property
    def _law(self) -> Any:
        return stats.norm(self.mean, self.variance**0.5)


@dataclass(frozen=True, eq=False, repr=False)
class TestResult:
    """What a test found.

    It unpacks to `statistic, pvalue`, as the results of `scipy.stats` do.

    Attributes
    ----------
    statistic, pvalue : float
    null : Draws, GammaNull or Normal
        The distribution of the statistic under the null hypothesis.
    kernel : Kernel or a tuple of them, one per variable
        With its parameters resolved; of several kernels, the one under which the effect stands out
        most.
    method : str
        The statistic and the null, in words.
    hypothesis : str
        What a small p-value is evidence for, in words.
    sizes : dict of str to int
        How many points there were.
    notes : tuple of str
        What else a reader should know.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import two_sample_test
    >>> rng = np.random.default_rng(0)
    >>> result = two_sample_test(rng.normal(size=(100, 1)), rng.normal(1, 1, size=(100, 1)), rng=0)
    >>> statistic, pvalue = result
    >>> pvalue == result.pvalue, pvalue < 0.01
    (True, True)
    """

    __test__ = False  # not a test of pytest's

    statistic: float
    pvalue: float
    null: Null
    kernel: Kernel | tuple[Kernel, ...] | None
    method: str
    hypothesis: str
    sizes: dict[str, int]
    notes: tuple[str, ...] = ()
    explanation: Any = None

    @classmethod
    def of(cls, found: Any, method: str, alternative: str = "greater", **more: Any) -> Self:
        """The result for a statistic and its null: the p-value, and both in the words of `method`.

        `found` has a `statistic` and a `null`.
        """
        null, pvalue = found.null, found.null.pvalue(found.statistic, alternative)
        method = f"{method}, {describe_null(null)}"
        return cls(statistic=found.statistic, pvalue=pvalue, null=null, method=method, **more)

    def __iter__(self) -> Iterator[float]:
        return iter((self.statistic, self.pvalue))

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: Any) -> Any:
        return (self.statistic, self.pvalue)[index]

    def rejects(self, level: float = 0.05) -> bool:
        """Whether the null hypothesis is rejected at this level."""
        return bool(self.pvalue <= probability(level, "level"))

    @cached_property
    def effect(self) -> Any:
        """How large the effect is: an `EffectSize` between 0 and 1, with an interval.

        Computed when it is first asked for, with one kernel: the one that was given, or the default
        one for the kind of points. Of more than 5,000 rows of a sample so many are used.
        """
        return self._explain("effect", "effect size")

    def columns(self) -> Any:
        """Which columns the effect is in: a `ColumnEffects`, the largest first.

        For two samples every column is compared by itself; for dependence, every column with all of
        the other variable; for a density, by how far points should move in it.
        """
        return self._explain("columns", "effects by column")

    @property
    def _has_effect(self) -> bool:
        return getattr(self.explanation, "effect", None) is not None

    def _explain(self, what: str, words: str) -> Any:
        find = getattr(self.explanation, what, None)
        if find is None:
            raise TypeError(f"a {self.method.split(',')[0]} has no {words}.")
        return find()

    def to_dict(self) -> dict[str, Any]:
        """The figures under plain names, for JSON; the effect size where there is one."""
        kernels = self.kernel if isinstance(self.kernel, tuple) else (self.kernel,)
        found: dict[str, Any] = {
            "method": self.method,
            "hypothesis": self.hypothesis,
            "statistic": self.statistic,
            "pvalue": self.pvalue,
            "sizes": dict(self.sizes),
            "kernel": [repr(kernel) for kernel in kernels if kernel is not None],
            "notes": list(self.notes),
        }
        if self._has_effect:
            found["effect"] = self.effect.to_dict()
        return found

    def to_frame(self) -> Any:
        """A pandas frame of one row, so that the results of several tests can be put together."""
        import pandas as pd

        found = self.to_dict()
        row = {"statistic": self.statistic, "pvalue": self.pvalue, **self.sizes}
        row |= {
            {"name": "effect", "value": "size"}.get(key, key): value
            for key, value in found.get("effect", {}).items()
            if key != "rows"
        }
        return pd.DataFrame([row | {"method": self.method}])

    def sentence(self) -> str:
        """The result as a sentence that can go into a paper.

        Examples
        --------
        >>> import numpy as np
        >>> from meanmap import two_sample_test
        >>> X, Y = np.random.default_rng(0).normal(size=(2, 100, 1))
        >>> result = two_sample_test(X, Y + 1, "median", rng=0)
        >>> print(result.sentence())
        A two-sample test by MMD (permutation null, 999 draws) found strong evidence that the two
        samples come from different distributions, n = 100, m = 100, p = .001, normalised MMD = .16,
        95% CI [.085, .29].
        """
        head = self.method.split(", ")[0].removesuffix(f", {describe_null(self.null)}")
        head = head[0].lower() + head[1:]
        article = "An" if head[0] in "aeiou" else "A"
        drawn = describe_null(self.null).replace(" (", ", ").removesuffix(")")
        if drawn[0].isdigit():  # it says itself how many draws there were
            drawn = self.null.kind
        sizes = [f"{name} = {value:,}" for name, value in self.sizes.items()]
        figures = [*sizes, f"p {show_paper_pvalue(self.pvalue)}"]
        if self._has_effect:
            figures.append(str(self.effect))
        text = f"{article} {head} ({drawn}) found {self._verdict()}, {', '.join(figures)}."
        return text.replace(") (", "; ")

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        cells = {"p-value": show_pvalue(self.pvalue), "statistic": f"{self.statistic:.4g}"}
        if self._has_effect:
            effect = self.effect
            cells[effect.name] = str(effect).removeprefix(f"{effect.name} = ")
        cells |= {name: f"{value:,}" for name, value in self.sizes.items()}
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th>"
            f"<td style='text-align:left'>{escape(words)}</td></tr>"
            for name, words in cells.items()
        )
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        verdict = f"<b>{escape(self.method)}</b><br>{escape(self._verdict().capitalize())}."
        return f"<div><p>{verdict}</p><table>{rows}</table>{notes}</div>"

    def witness(self, *points: Any) -> Any:
        """The function that tells the hypotheses apart best, at points.

        For two samples it is μ_X - μ_Y: positive where X has more mass. For independence it takes a
        point of each variable and is the joint embedding minus the product of the marginals':
        positive where the two go together more than independence allows.
        """
        if not callable(self.explanation):
            raise TypeError(f"a {self.method.split(',')[0]} test has no witness function.")
        return in_kind(self.explanation(*points), points)

    def plot(self, ax: Any = None) -> Any:
        """The null distribution with the statistic and, where it can be drawn, the witness.

        Parameters
        ----------
        ax : one or two matplotlib axes, or None

        Returns
        -------
        the axes
        """
        draw = getattr(self.explanation, "plot", None)
        panels = plots.panels(ax, 2 if draw is not None else 1)
        values, density = self._null_curve()
        plots.null(values, density, self.statistic, self.pvalue, panels[0])
        if draw is not None and len(panels) > 1:
            draw(panels[1])
        return panels

    def _null_curve(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Draws, or points and the density there."""
        if isinstance(self.null, Draws):
            return self.null.values, None
        if isinstance(self.null, LawNull) and not self.null.variance > 0:
            return np.array([self.null.mean]), None
        low, high = self.null.quantile([0.001, 0.999])
        at = np.linspace(min(low, self.statistic), max(high, self.statistic), 300)
        return at, self.null.density(at)

    def _verdict(self) -> str:
        """What the p-value says, in words."""
        strength = (
            "strong evidence"
            if self.pvalue <= 0.01
            else "some evidence"
            if self.pvalue <= 0.05
            else "no evidence"
        )
        return f"{strength} that {self.hypothesis}"

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} = {value:,}" for name, value in self.sizes.items())
        text = (
            f"{self.method} ({sizes}): statistic {self.statistic:.4g}, p-value "
            f"{show_pvalue(self.pvalue)}: {self._verdict()}."
        )
        if self.kernel is not None:
            kernels = self.kernel if isinstance(self.kernel, tuple) else (self.kernel,)
            shown = ", ".join(repr(kernel) for kernel in kernels)
            text += f" Kernel{'s' if len(kernels) > 1 else ''}: {shown}."
        return fill_lines(" ".join([text, *self.notes]))


def describe_null(null: Null) -> str:
    """How a null distribution was found, in words."""
    if isinstance(null, Draws):
        return f"{null.kind} null ({len(null):,} draws)"
    return f"{null.kind} null"


def fill_lines(text: str, width: int = 79) -> str:
    """A text in lines that fit a terminal."""
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def show_paper_pvalue(value: float) -> str:
    """A p-value as journals print it, with its sign: "= .03", "< .001"."""
    if value < 0.001:
        return "< .001"
    return "= " + f"{value:.{3 if value < 0.1 else 2}f}".removeprefix("0")


def show_pvalue(value: float) -> str:
    """A p-value to three digits that count."""
    return f"{value:.3g}" if value < 0.1 else f"{value:.2f}"


def probability(value: Any, name: str) -> float:
    """A number strictly between 0 and 1."""
    number = checks.number(value, name)
    if not 0 < number < 1:
        raise ValueError(
            f"{name} must lie strictly between 0 and 1, got {value!r}. The usual one is 0.05."
        )
    return number
