"""Posteriors that explain themselves, and what tells whether to trust them."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from meanmap import checks, plots
from meanmap.arrays import Array, in_kind, is_array, to_numpy
from meanmap.conditional.predictive import Predictive
from meanmap.conditional.ranges import TargetScale
from meanmap.conditional.shape import ShapeAt
from meanmap.decoding import quantiles
from meanmap.embeddings import Embedding
from meanmap.likelihood_free.priors import in_box
from meanmap.likelihood_free.regression import smooth_draws


@dataclass(frozen=True, eq=False)
class Origin:
    """What posteriors were asked with, and what they can be compared with."""

    _functions: ClassVar[tuple[str, ...]] = ("prior", "simulate")

    observed: np.ndarray  # (b, ...), as the simulator gives outputs
    prior: Callable[[int, np.random.Generator], np.ndarray] | None  # n draws (n, d)
    simulate: Callable[[np.ndarray, np.random.Generator], np.ndarray] | None  # NaN where it failed

    def take(self, rows: Any) -> Origin:
        """That of some of the posteriors."""
        return replace(self, observed=self.observed[rows])

    def without_functions(self) -> Origin:
        """What can be pickled of it."""
        return replace(self, prior=None, simulate=None)


class Posterior(Predictive):
    """The posterior of parameters, whose columns have names.

    An `Embedding`: the weights of eq. 19 or of kernel Bayes' rule on the parameters that were
    drawn, which expectations, norms and distances are of. What asks for probabilities (`quantile`,
    `interval`, `std`, `density`, `sample`, the plot) is answered by draws with positive weights: by
    a learned likelihood (`by_likelihood`), which the mean is then of as well, or what the
    conditional mean leaves of parameters whose outputs were like the observation, put around the
    mean of this posterior. They lie between the prior's draws, not only on them.

    Examples
    --------
    >>> from scipy import stats
    >>> from meanmap import KernelABC
    >>> def simulator(theta, rng):
    ...     return theta + 0.5 * rng.normal(size=theta.shape)
    >>> model = KernelABC(simulator, {"place": stats.norm()}, random_state=0).fit(1000)
    >>> posterior = model.posterior([1.0])
    >>> posterior.mean().round(1), posterior.sample(100, rng=0).shape
    (array([0.8]), (100, 1))
    >>> bool(posterior.effective_size > 100)  # of the 1,000 simulations
    True
    """

    names: tuple[str, ...] = ()
    _means: np.ndarray | None  # (b, d); None if they are those of the points
    _scale: TargetScale
    _asked: Any = None  # an empty array of the kind that answers are in; None is NumPy's
    _origin: Origin | None = None

    def describe(
        self,
        names: tuple[str, ...],
        means: np.ndarray | None,
        scale: TargetScale,
        asked: Any = None,
    ) -> Self:
        """The same with names, means (b, d) and a scale; answers in the kind of array `asked`."""
        foreign = is_array(asked) and not isinstance(asked, np.ndarray)
        self.names, self._means, self._scale = names, means, scale
        self._asked = in_kind(np.empty(0), asked) if foreign else None
        return self

    @cached_property
    def shape(self) -> ShapeAt:
        """The distributions as points with weights ≥ 0; the means may be those of the points."""
        return self._shape(np.empty(0))

    def with_origin(self, origin: Origin | None) -> Self:
        """The same, with the observation, the prior and the simulator behind it."""
        self._origin = origin
        return self

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if self._origin is not None:
            state["_origin"] = self._origin.without_functions()
        return state

    def part(self, answer: Embedding, rows: Any = slice(None)) -> Posterior:
        found = Posterior.of(answer, lambda _: self.shape[rows])
        means = None if self._means is None else self._means[rows]
        found.describe(self.names, means, self._scale, self._asked)
        return found.with_origin(None if self._origin is None else self._origin.take(rows))

    def with_weights(self, weights: Any, coordinates: Any = None) -> Posterior:
        return self.part(super().with_weights(weights, coordinates))

    def rename(self, names: tuple[str, ...]) -> Posterior:
        """The same with other names for its columns."""
        if len(names) != len(self.names):
            raise ValueError(f"names: expected {len(self.names)} of them, got {tuple(names)!r}.")
        return copy(self).describe(tuple(names), self._means, self._scale, self._asked)

    @property
    def kind(self) -> Array:
        """An array of the kind that answers have."""
        return super().kind if self._asked is None else self._asked

    # --- the distribution ---------------------------------------------------------------------

    def mean(self) -> Array:
        """The posterior mean, by weights normalised to one.

        Far from all simulations, where there is nothing to normalise, it is that of the prior.
        """
        if self._means is None:
            return self._answer(np.stack([p @ points for points, p in self.beliefs()]))
        return self._answer(self._means)

    @property
    def by_likelihood(self) -> bool:
        """Whether draws, and the mean, are by a learned likelihood rather than by residuals."""
        return self._means is None

    @property
    def effective_size(self) -> Any:
        """How many simulations are like the observation: (Σw)²/Σw², for a batch an array.

        It is for the weights of eq. 19 what it is for the mean of so many independent draws: chance
        moves a mean by these weights by about `std()/√effective_size`. A likelihood is learned from
        all simulations.
        """
        weights = to_numpy(self.weights)
        total = np.maximum(weights.sum(axis=-1), 0.0)
        found = total**2 / np.maximum((weights**2).sum(axis=-1), np.finfo(float).tiny)
        return found if self.is_batch else float(found)

    def sample(self, n: int, rng: Any = None) -> Any:
        """n draws (n, d); of a batch (b, n, d). `rng` is a seed or a NumPy Generator."""
        return self._answer(self._draws(n, rng))

    def _draws(self, n: int, rng: Any) -> np.ndarray:
        n, random = checks.whole(n), checks.random_generator(rng)
        return np.stack([smooth_draws(b, self._scale, n, random) for b in self.beliefs()])

    def share(self, low: Any, high: Any) -> Any:
        """The probability of a box, from `low` to `high`, numbers or one per parameter."""
        low, high = (self._corner(end, name) for end, name in ((low, "low"), (high, "high")))
        found = [weights @ in_box(points, low, high) for points, weights in self.beliefs()]
        return np.array(found) if self.is_batch else float(found[0])

    def _corner(self, end: Any, name: str) -> np.ndarray:
        try:
            return np.broadcast_to(np.asarray(to_numpy(end), dtype=float), (len(self.names),))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{name}: expected a number, or one for each of {', '.join(self.names)}; got "
                f"{end!r:.60}."
            ) from error

    # --- for people ---------------------------------------------------------------------------

    def _one(self, what: str) -> None:
        if self.is_batch:
            raise TypeError(f"this is a batch of posteriors; {what} one of them: p[0].")

    def summary(self, level: float = 0.9) -> dict[str, dict[str, float]]:
        """Mean, standard deviation and credible interval of each parameter."""
        self._one("summarise")
        low, high = self.interval(level)
        rows = zip(self.names, self.mean(), self.std(), low, high, strict=True)
        return {
            name: {"mean": float(m), "std": float(s), "low": float(a), "high": float(b)}
            for name, m, s, a, b in rows
        }

    def to_arviz(self, n: int = 1000, rng: Any = None, predictive: bool = True) -> Any:
        """n draws as ArviZ' InferenceData, one variable a parameter, one chain.

        Beside the group `posterior` there are `prior`, n draws of it; `observed_data`; and, unless
        `predictive` is False, `posterior_predictive`: n new simulations, one with each draw of the
        posterior, NaN where one failed. A posterior that was read from a file has neither its prior
        nor its simulator: two groups remain.
        """
        self._one("export")
        try:
            import arviz
        except ImportError as error:
            raise ImportError("to_arviz needs ArviZ: pip install arviz") from error
        random = checks.random_generator(rng)
        draws = self._draws(n, random)[0]
        groups = {"posterior": self._variables(draws)}
        if self._origin is not None:
            origin = self._origin
            groups["observed_data"] = {"y": origin.observed[0]}
            if callable(origin.prior):
                groups["prior"] = self._variables(origin.prior(n, random))
            if predictive and callable(origin.simulate):
                groups["posterior_predictive"] = {"y": origin.simulate(draws, random)[None]}
        if int(arviz.__version__.split(".")[0]) < 1:  # then groups are named arguments
            return arviz.from_dict(**groups)
        return arviz.from_dict(groups)

    def _variables(self, draws: np.ndarray) -> dict[str, np.ndarray]:
        """Draws (n, d) by the parameters' names, one chain."""
        return {name: column[None] for name, column in zip(self.names, draws.T, strict=True)}

    def plot(  # type: ignore[override]
        self, ax: Any = None, *, truth: Any = None, n: int = 2000, rng: Any = 0
    ) -> Any:
        """A corner plot: each parameter by itself on the diagonal, each pair below it."""
        self._one("plot")
        d = len(self.names)
        known = None if truth is None else np.asarray(to_numpy(truth), dtype=float).ravel()
        if known is not None and len(known) != d:
            raise ValueError(f"truth: expected {d} numbers, {self.names}, got {len(known)}.")
        if ax is not None and np.size(ax) != d * d:
            raise ValueError(f"ax: expected {d} × {d} axes for {d} parameters, got {np.size(ax)}.")
        return plots.corner(self._draws(n, rng)[0], list(self.names), known, ax)

    def __repr__(self) -> str:
        if self.is_batch:
            return f"Posterior(batch of {len(self)}, of {', '.join(self.names)})"
        rows = [
            f"{name} {row['mean']:.3g} ± {row['std']:.2g}" for name, row in self.summary().items()
        ]
        n = self._weights.shape[-1]
        used = f"rests on about {self.effective_size:,.0f} of {n:,} simulations"
        if self.by_likelihood:
            used = f"by a likelihood learned from {n:,} simulations"
        return f"Posterior({', '.join(rows)}; {used})"


@dataclass(frozen=True, eq=False)
class Calibration:
    """Simulation-based calibration: where true parameters fall in their own posteriors.

    If posteriors are right, the ranks are uniform between 0 and 1 (Talts et al. 2018), and an
    interval of 90% holds the truth in 90% of the runs.

    Examples
    --------
    >>> from scipy import stats
    >>> from meanmap import KernelABC
    >>> def simulator(theta, rng):
    ...     return theta + 0.5 * rng.normal(size=theta.shape)
    >>> model = KernelABC(simulator, {"place": stats.norm()}, random_state=0).fit(500)
    >>> found = model.calibrate(200)
    >>> bool(0.8 < found.coverage(0.9)[0] < 0.98)
    True
    """

    ranks: np.ndarray  # (runs, parameters), in [0, 1]
    names: tuple[str, ...]

    def coverage(self, level: float = 0.9) -> np.ndarray:
        """The share of runs in which the central interval holds the truth, for each parameter."""
        tail = (1 - quantiles.read_level(level)) / 2
        return ((self.ranks >= tail) & (self.ranks <= 1 - tail)).mean(axis=0)

    def plot(self, ax: Any = None) -> Any:
        """Draw coverage against the level, one curve per parameter; the diagonal is the ideal."""
        levels = np.linspace(0.02, 0.98, 49)
        curves = np.stack([self.coverage(float(level)) for level in levels])
        return plots.coverage(levels, curves, list(self.names), len(self.ranks), ax)

    def __repr__(self) -> str:
        error = float(np.sqrt(0.09 / len(self.ranks)))
        shares = ", ".join(
            f"{name} {share:.0%}" for name, share in zip(self.names, self.coverage(), strict=True)
        )
        return f"Calibration({len(self.ranks)} runs; 90% intervals hold {shares}, ± {error:.0%})"


@dataclass(frozen=True, eq=False)
class PredictiveCheck:
    """What the simulator makes of draws from the posterior, beside what was observed.

    Examples
    --------
    >>> from scipy import stats
    >>> from meanmap import KernelABC
    >>> def simulator(theta, rng):
    ...     return theta + 0.5 * rng.normal(size=theta.shape)
    >>> model = KernelABC(simulator, {"place": stats.norm()}, random_state=0).fit(500)
    >>> model.check([0.5]).pvalues.shape
    (1,)
    """

    simulated: np.ndarray  # (draws, outputs)
    observed: np.ndarray  # (outputs,)

    @property
    def pvalues(self) -> np.ndarray:
        """Two-sided: how far out the observation lies among the simulations, for each output."""
        n = len(self.simulated)
        above = (1 + (self.simulated >= self.observed).sum(axis=0)) / (1 + n)
        below = (1 + (self.simulated <= self.observed).sum(axis=0)) / (1 + n)
        return np.minimum(1.0, 2 * np.minimum(above, below))

    def plot(self, ax: Any = None) -> Any:
        """Draw the spread of each output, standardised, with the observed values."""
        return plots.predictive(self.simulated, self.observed, ax)

    def __repr__(self) -> str:
        p = self.pvalues
        worst = int(np.argmin(p))
        return (
            f"PredictiveCheck({len(self.simulated)} simulations of {len(p)} outputs; the least "
            f"p-value is {p[worst]:.3g}, of output {worst})"
        )
