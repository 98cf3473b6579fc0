"""How well conditional distributions foretell outcomes: proper scores, and calibrated intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from meanmap import checks, plots
from meanmap.arrays import Array, asarray, float_like, to_numpy
from meanmap.conditional.predictive import Predictive
from meanmap.decoding import quantiles
from meanmap.kernels.defaults import as_target

if TYPE_CHECKING:
    from meanmap.conditional.estimator import ConditionalEmbedding


def distributions(model: ConditionalEmbedding, X: Any) -> Predictive:
    """The answers to rows of X, or an error if targets are not numbers."""
    answers = model.given(X)
    if not isinstance(answers, Predictive):
        raise TypeError(
            "densities, quantiles and their scores are for targets that are rows of numbers, of a "
            f"model that keeps rows; these are {checks.describe(answers.atoms)} under "
            f"{model.kernel_y_!r}. Use predict_proba for labels, and loss(X, Y) for other targets."
        )
    return answers


def outcomes(model: ConditionalEmbedding, Y: Any, answers: Predictive) -> np.ndarray:
    """Outcomes (b, k) of as many rows as there are answers."""
    target = as_target(Y, model.kernel_y)[0]
    points = model.kernel_y_.check(target, "y", model.sides()[1].points)
    checks.same_length([("X", answers.weights), ("y", points)])
    return to_numpy(points).astype(np.float64)


def mean_crps(model: ConditionalEmbedding, X: Any, Y: Any, sample_weight: Any = None) -> float:
    """The continuous ranked probability score, averaged over columns and rows."""
    answers = distributions(model, X)
    found = answers.shape.scores(outcomes(model, Y, answers)).mean(axis=1)
    return float(checks.sample_weights(sample_weight, found, found) @ found)


def mean_log_score(model: ConditionalEmbedding, X: Any, Y: Any, sample_weight: Any = None) -> float:
    """The logarithm of the density of outcomes, averaged over rows."""
    answers = distributions(model, X)
    found = answers.shape.log_densities(outcomes(model, Y, answers))
    return float(checks.sample_weights(sample_weight, found, found) @ found)


@dataclass(frozen=True, eq=False)
class CalibratedIntervals:
    """Intervals that hold a new outcome with at least the probability asked for.

    Rows that the model has not seen say by how much its intervals miss: with
    `eᵢ = max(lowᵢ - yᵢ, yᵢ - highᵢ)/sᵢ`, s the standard deviation, an interval is widened at either
    end by s times the ⌈(n + 1) level⌉-th smallest of them (or narrowed, if that is negative). If
    those n rows and the new one are exchangeable, the coverage is between `level` and
    `level + 1/(n + 1)`, whatever the model (Romano, Patterson and Candès 2019, Theorem 1).

    Where queries follow another distribution than those rows, pass the ratio of the densities of x
    at the rows to `calibrate` and at queries to `interval`: the quantile is then weighted, and
    covers as well (Tibshirani, Barber, Candès and Ramdas 2019, Corollary 1).

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import ConditionalEmbedding
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(600, 1))
    >>> y = np.sin(X[:, 0]) + 0.2 * rng.normal(size=600)
    >>> model = ConditionalEmbedding().fit(X[:400], y[:400])
    >>> calibrated = model.calibrate(X[400:], y[400:])
    >>> low, high = calibrated.interval([[1.5]], 0.9)
    >>> low.round(1), high.round(1)
    (array([0.7]), array([1.3]))
    """

    model: ConditionalEmbedding
    X: Any  # rows that the model has not seen
    Y: np.ndarray  # (n, k)
    weights: np.ndarray  # (n,), ratios of densities; equal ones without a shift

    @classmethod
    def of(
        cls, model: ConditionalEmbedding, X: Any, Y: Any, sample_weight: Any
    ) -> CalibratedIntervals:
        """From rows that the model has not seen."""
        answers = distributions(model, X)
        y = outcomes(model, Y, answers)
        w = to_numpy(checks.sample_weights(sample_weight, y, y)).astype(np.float64)
        return cls(model, X, y, w * checks.total_weight(sample_weight, len(y)))

    def errors(self, level: float) -> np.ndarray:
        """By how many deviations outcomes miss their intervals, (n, k); negative inside."""
        low, high, s = self._plain(self.X, level)
        return np.maximum(low - self.Y, self.Y - high) / s

    def _plain(self, X: Any, level: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        answers = distributions(self.model, X)
        low, high = (to_numpy(end).astype(np.float64) for end in answers.interval(level))
        s = to_numpy(answers.std()).astype(np.float64)
        return low, high, np.where(s > 0, s, 1.0)

    def interval(self, X: Any, level: float = 0.9, weights: Any = None) -> tuple[Array, Array]:
        """The lower and the upper end at each row of X, shaped like the targets.

        `weights` are ratios of densities at these rows, where the rows of the calibration have
        some; a factor that all ratios share does not matter.
        """
        level = quantiles.read_level(level)
        errors = self.errors(level)
        low, high, s = self._plain(X, level)
        own = np.ones(len(low)) if weights is None else to_numpy(checks.numbers(weights, "weights"))
        if weights is None and np.ptp(self.weights) > 0:
            raise ValueError(
                "the rows of the calibration have weights, ratios of two densities of x: pass "
                "weights= with the ratios at these queries too."
            )
        checks.same_length([("X", low), ("weights", own)])
        wider = np.stack([self._quantiles(column, own, level) for column in errors.T], axis=1)
        like = float_like(self.model.sides()[1].points)
        low, high = low - wider * s, high + wider * s
        if self.model.flat_:
            low, high = low[:, 0], high[:, 0]
        return asarray(low, like), asarray(high, like)

    def _quantiles(self, errors: np.ndarray, own: np.ndarray, level: float) -> np.ndarray:
        """For each query the least error that rows of a share `level` do not exceed."""
        order = np.argsort(errors)
        total = np.cumsum(self.weights[order])
        needed = level * (total[-1] + own)  # the query itself counts, with an unbounded error
        at = np.searchsorted(total, needed * (1 - 1e-12))
        if (at >= len(errors)).any():
            least = int(np.ceil(level / (1 - level) - 1e-9))
            raise ValueError(
                f"{len(errors)} rows are too few to calibrate intervals of {level:.0%}: at least "
                f"{least} of equal weight are needed. Pass more rows, or a lower level."
            )
        return errors[order][at]

    def __repr__(self) -> str:
        shift = ", weighted" if np.ptp(self.weights) > 0 else ""
        return f"CalibratedIntervals({len(self.Y)} rows{shift})"


@dataclass(frozen=True)
class Relevance:
    """How much each column of x matters: how often its scale goes into its spread.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap import ConditionalEmbedding
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 3))
    >>> y = np.sin(3 * X[:, 1]) + 0.1 * rng.normal(size=400)
    >>> found = ConditionalEmbedding().fit(X, y).relevance()
    >>> max(zip(found.values, found.columns))[1]
    'column 1'
    """

    columns: tuple[str, ...]
    values: np.ndarray

    def plot(self, ax: Any = None) -> Any:
        """Draw the relevance of each column as a bar."""
        return plots.bars(np.array(self.columns), self.values, "relevance (spread / scale)", ax)

    def __repr__(self) -> str:
        ordered = np.argsort(-self.values)[:10]
        words = ", ".join(f"{self.columns[i]} {self.values[i]:.3g}" for i in ordered)
        return f"Relevance({words}{', ...' if len(self.values) > 10 else ''})"
