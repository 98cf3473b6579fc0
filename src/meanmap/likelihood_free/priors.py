"""Priors that can be drawn from: distributions of SciPy, dicts of them, functions, samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.stats import multivariate_normal, norm

from meanmap import checks
from meanmap.arrays import is_array, to_numpy
from meanmap.persistence import LeftOut

Sampler = Callable[[int, np.random.Generator], Any]

BLOCK = 1000  # draws that share a seed
TRIES = 100  # times the wanted draws that are tried before a truncated prior is given up
KNOTS = np.linspace(-6.0, 6.0, 4001)  # at which quantiles are kept
MASS = 100_000  # draws that the mass of a box is estimated with, where it is not known exactly


@dataclass(frozen=True, eq=False)
class NormalMap:
    """A prior as a function of independent standard normal numbers: θ = θ(z).

    Either each parameter is a function of its own number, kept as quantiles, or all are linear.
    """

    quantiles: np.ndarray | None  # (knots, d)
    whole: np.ndarray  # (d,), which parameters are whole numbers
    mean: np.ndarray | None = None  # (d,)
    factor: np.ndarray | None = None  # (d, d), L with LLᵀ the covariance

    @property
    def d(self) -> int:
        """The number of parameters."""
        return len(self.whole)

    def draw(self, n: int, box: np.ndarray | None, rng: np.random.Generator) -> np.ndarray:
        """Normal numbers (n, d) whose parameters lie in a box [low, high]."""
        if box is None:
            return rng.normal(size=(n, self.d))
        if self.quantiles is not None:
            ends = [
                np.interp(end, values, KNOTS)
                for end, values in zip(box.T, self.quantiles.T, strict=True)
            ]
            low, high = norm.cdf(np.array(ends).T)
            return np.asarray(norm.ppf(rng.uniform(low, high, size=(n, self.d))))
        kept: list[np.ndarray] = []
        for _ in range(TRIES):
            z = rng.normal(size=(n, self.d))
            kept.append(z[in_box(self.points(z), *box)])
            if sum(map(len, kept)) >= n:
                break
        found = np.concatenate(kept)
        if not len(found):
            raise ValueError(empty_box_message("no draw lies"))
        return found[rng.integers(len(found), size=n)] if len(found) < n else found[:n]

    def points(self, z: np.ndarray) -> np.ndarray:
        """Parameters (n, d) at normal numbers (n, d)."""
        if self.quantiles is None:
            assert self.mean is not None and self.factor is not None
            return np.asarray(self.mean + z @ self.factor.T)
        columns = []
        for column, values, whole in zip(z.T, self.quantiles.T, self.whole, strict=True):
            # whole numbers change at knots; others are linear between them
            at = np.searchsorted(KNOTS[:-1], column) if whole else None
            columns.append(np.interp(column, KNOTS, values) if at is None else values[at])
        return np.column_stack(columns)


@dataclass(frozen=True)
class Prior:
    """Something to draw parameters from, one row per draw, with a name for each column."""

    draw: Sampler
    names: tuple[str, ...] | None

    @property
    def block(self) -> int:
        """How many draws are made at a time."""
        return BLOCK

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """n draws, (n, d)."""
        draws = self.draw(n, rng)
        draws = np.asarray(to_numpy(draws) if is_array(draws) else draws)
        if draws.dtype.kind not in "fiub":
            raise TypeError(
                f"prior: expected draws that are numbers, got {draws.dtype}. Code labels as whole "
                "numbers, or let the simulator translate them."
            )
        draws = draws.astype(np.float64)
        draws = draws[:, None] if draws.ndim == 1 else draws
        if draws.ndim != 2 or len(draws) != n or not draws.shape[1]:
            raise ValueError(
                f"prior: asked for {n} draws, expected an array ({n}, d) or ({n},), got shape "
                f"{np.shape(draws)}. A function is called as prior(n, rng)."
            )
        if not np.isfinite(draws).all():
            row = int(np.flatnonzero(~np.isfinite(draws).all(axis=1))[0])
            raise ValueError(f"prior: draw {row} is not finite: {draws[row]!r:.80}.")
        return draws

    @property
    def support(self) -> tuple[Any, Any]:
        """The ends of each parameter's range, infinite where they are not known."""
        return -np.inf, np.inf

    def normal_map(self) -> NormalMap | None:
        """The prior as a function of normal numbers; None if it is known by its draws alone."""
        return None

    def rows(self, start: int, stop: int, seeds: Callable[[int], Any]) -> np.ndarray:
        """Draws number `start` to `stop` of an endless sequence, whatever was asked for before."""
        blocks = range(start // self.block, (stop - 1) // self.block + 1)
        drawn = [self.sample(self.block, np.random.default_rng(seeds(i))) for i in blocks]
        first = start - blocks[0] * self.block
        return np.concatenate(drawn)[first : first + stop - start]

    def within(self, low: np.ndarray, high: np.ndarray) -> Prior:
        """The prior truncated to a box: draws outside are drawn again."""

        def draw(n: int, rng: np.random.Generator) -> np.ndarray:
            kept: list[np.ndarray] = []
            found = tried = 0
            while found < n:
                if tried > TRIES * max(n, 100):
                    raise ValueError(empty_box_message(f"of {tried:,} draws only {found} lie"))
                draws = self.sample(max(n, 100), rng)
                tried += len(draws)
                kept.append(draws[in_box(draws, low, high)])
                found += len(kept[-1])
            return np.concatenate(kept)[:n]

        return Prior(draw, self.names)

    def mass(self, low: np.ndarray, high: np.ndarray, rng: np.random.Generator) -> float:
        """The probability of a box."""
        share = in_box(self.sample(MASS, rng), low, high).mean()
        return max(float(share), 1 / MASS)


class Univariate(Protocol):
    """What is needed of a distribution of one number."""

    def rvs(self, size: int, random_state: Any) -> Any: ...

    def cdf(self, x: Any) -> Any: ...

    def ppf(self, q: Any) -> Any: ...

    def support(self) -> Any: ...


@dataclass(frozen=True)
class Independent(Prior):
    """Independent parameters whose distribution functions are known: boxes are exact."""

    parts: Sequence[Univariate]

    @property
    def support(self) -> tuple[Any, Any]:
        low, high = np.array([part.support() for part in self.parts], dtype=float).T
        return low, high

    def normal_map(self) -> NormalMap | None:
        at = norm.cdf(KNOTS)
        table = np.column_stack([np.asarray(part.ppf(at), dtype=float) for part in self.parts])
        if not np.isfinite(table).all():
            return None
        return NormalMap(table, (table == np.round(table)).all(axis=0))

    def within(self, low: np.ndarray, high: np.ndarray) -> Prior:
        ends = [levels(p, a, b) for p, a, b in zip(self.parts, low, high, strict=True)]
        if not all(end > start for start, end in ends):
            raise ValueError(empty_box_message("no draw lies"))

        def draw(n: int, rng: np.random.Generator) -> np.ndarray:
            columns = [
                np.clip(part.ppf(rng.uniform(start, end, size=n)), a, b)
                for part, (start, end), a, b in zip(self.parts, ends, low, high, strict=True)
            ]
            return np.column_stack(columns)

        return Prior(draw, self.names)

    def mass(self, low: np.ndarray, high: np.ndarray, rng: np.random.Generator) -> float:
        ends = [levels(p, a, b) for p, a, b in zip(self.parts, low, high, strict=True)]
        return float(np.prod([end - start for start, end in ends]))


@dataclass(frozen=True)
class NormalPrior(Prior):
    """A normal distribution of several numbers."""

    of: Any

    def normal_map(self) -> NormalMap | None:
        mean, covariance = np.atleast_1d(self.of.mean), np.atleast_2d(self.of.cov)
        values, vectors = np.linalg.eigh(covariance)
        factor = vectors * np.sqrt(np.maximum(values, 0.0))
        return NormalMap(None, np.zeros(len(mean), dtype=bool), mean, factor)


@dataclass(frozen=True)
class SamplePrior(Prior):
    """A sample: each of its rows comes once before any comes again."""

    values: np.ndarray

    @property
    def block(self) -> int:
        return len(self.values)

    def within(self, low: np.ndarray, high: np.ndarray) -> Prior:
        kept = self.values[in_box(self.values, low, high)]
        if not len(kept):
            raise ValueError(empty_box_message(f"of {len(self.values):,} draws none lies"))
        return sample_of(kept, self.names)

    def mass(self, low: np.ndarray, high: np.ndarray, rng: np.random.Generator) -> float:
        return float(in_box(self.values, low, high).mean())


def in_box(draws: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Which draws lie in a box."""
    return np.asarray(((draws >= low) & (draws <= high)).all(axis=1))


def levels(part: Univariate, low: float, high: float) -> tuple[float, float]:
    """P(X < low) and P(X ≤ high)."""
    below = float(part.cdf(np.nextafter(low, -np.inf)))
    return below, float(part.cdf(high))


def empty_box_message(what: str) -> str:
    return (
        f"prior: {what} where the posterior is. Simulate more from the prior first, so that the "
        "posterior is less narrow, or give a narrower prior."
    )


def prior_of(value: Any) -> Prior:
    """A prior from what a user passed."""
    if isinstance(value, Prior):
        return value
    if isinstance(value, LeftOut):
        value()
    if isinstance(value, Mapping):
        return _independent_columns(value)
    if hasattr(value, "rvs"):  # a frozen distribution of scipy.stats
        if has_quantiles(value):
            return Independent(Rvs(value), None, (value,))
        if isinstance(value, type(multivariate_normal(0))):
            return NormalPrior(Rvs(value), None, value)
        return Prior(Rvs(value), None)
    if hasattr(value, "to_numpy"):  # pandas, polars
        names = getattr(value, "columns", None)
        named = None if names is None else tuple(map(str, names))
        return sample_of(to_numpy(checks.numbers(value, "prior")), named)
    if isinstance(value, list | tuple) and any(callable(getattr(v, "rvs", v)) for v in value):
        names = ", ".join(f'"theta{i}": …' for i in range(1, len(value) + 1))
        raise TypeError(
            f"prior: expected a dict of distributions by name, got a {type(value).__name__} of "
            f"{len(value)}. Name the parameters: prior={{{names}}}."
        )
    if isinstance(value, list | tuple) or hasattr(value, "shape"):
        return sample_of(to_numpy(checks.numbers(value, "prior")), None)
    if callable(value):
        return Prior(value, None)
    raise TypeError(
        "prior: expected a frozen distribution of scipy.stats, a dict of them by name, a function "
        f"prior(n, rng), or an array of draws; got {checks.describe(value)}."
    )


def has_quantiles(value: Any) -> bool:
    """Whether this is a distribution of one number with a distribution function and its inverse."""
    if not all(hasattr(value, name) for name in ("cdf", "ppf", "support")):
        return False
    return np.ndim(value.ppf(0.5)) == 0


@dataclass(frozen=True)
class Rvs:
    """Draws of a distribution of scipy.stats. A class, so that pickle finds it."""

    of: Any

    def __call__(self, n: int, rng: np.random.Generator) -> np.ndarray:
        draws = np.asarray(self.of.rvs(size=n, random_state=rng))
        # a single draw of several numbers, or of one, comes without its axis
        return draws.reshape(n, -1) if n == 1 or draws.ndim < 2 else draws


@dataclass(frozen=True)
class Beside:
    """Draws of several distributions, side by side."""

    samplers: Mapping[Any, Sampler]

    def __call__(self, n: int, rng: np.random.Generator) -> np.ndarray:
        columns = {name: sampler(n, rng) for name, sampler in self.samplers.items()}
        for name, column in columns.items():
            if column.shape != (n, 1):
                raise ValueError(
                    f"prior[{name!r}]: expected a distribution of one number, got draws of shape "
                    f"{column.shape[1:]}. Several numbers at once go as prior=, not in a dict."
                )
        return np.hstack(list(columns.values()))


@dataclass(frozen=True)
class Turns:
    """Rows of a sample, all of them before any comes again."""

    values: np.ndarray

    def __call__(self, n: int, rng: np.random.Generator) -> np.ndarray:
        turns = -(-n // len(self.values))
        order = np.concatenate([rng.permutation(len(self.values)) for _ in range(turns)])
        return self.values[order[:n]]


def _independent_columns(parts: Mapping[Any, Any]) -> Prior:
    """Independent parameters by name, one distribution each."""
    if not parts:
        raise ValueError("prior: the dict is empty; name at least one parameter.")
    for name, part in parts.items():
        if not hasattr(part, "rvs"):
            raise TypeError(
                f"prior[{name!r}]: expected a frozen distribution with rvs, such as "
                f"scipy.stats.norm(0, 1), got {checks.describe(part)}."
            )
    draw = Beside({name: Rvs(part) for name, part in parts.items()})
    names = tuple(map(str, parts))
    if all(has_quantiles(part) for part in parts.values()):
        return Independent(draw, names, tuple(parts.values()))
    return Prior(draw, names)


def sample_of(values: np.ndarray, names: tuple[str, ...] | None) -> SamplePrior:
    """A sample to be drawn from."""
    # a copy: what its owner does with it later is not our prior
    values = checks.vectors(values[:, None] if values.ndim == 1 else values, "prior").copy()
    return SamplePrior(Turns(values), names, values)
