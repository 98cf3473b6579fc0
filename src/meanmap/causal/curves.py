"""Answers at a grid of treatments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from meanmap import checks, plots
from meanmap.decoding.quantiles import read_level

DRAWS = 4000  # of the curve's error, for bands that hold everywhere at once
SHOWN = 6  # treatments in a repr


@dataclass(frozen=True, eq=False, repr=False)
class CausalCurve:
    """What an outcome would be on average, at each of several treatments.

    Attributes
    ----------
    treatments : array
        As they were asked for, one per row.
    mean : array of shape (q,)
    covariance : array of shape (q, q)
        Of the means: from the influence of every row (its leave-one-out residual, robust to unequal
        noise), and from what smoothing hides, as a Gaussian process has it.
    kind : str
        What is averaged over whom, in words.
    support : array of shape (q,) or None
        The share of the rows averaged over that have similar rows with such a treatment.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.causal import CausalCurve
    >>> curve = CausalCurve(np.array([0.0, 1.0]), np.array([1.0, 3.0]), np.diag([0.01, 0.04]), "E")
    >>> curve.difference().mean, curve.interval(0.95)[0].round(2)
    (array([0., 2.]), array([0.8 , 2.61]))
    """

    treatments: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    kind: str
    names: tuple[str, str] = ("treatment", "outcome")
    support: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.mean)

    @property
    def standard_error(self) -> np.ndarray:
        found: np.ndarray = np.sqrt(np.maximum(self.covariance.diagonal(), 0.0))
        return found

    def interval(
        self, level: float = 0.95, simultaneous: bool = False, rng: Any = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends: at each treatment, or a band around the whole curve.

        The band is that of a multiplier bootstrap: with normal multipliers the influences of all
        rows add up to a normal draw with their covariance, which is drawn directly.
        """
        level, error = read_level(level), self.standard_error
        width = float(stats.norm.ppf((1 + level) / 2))
        if simultaneous and len(self) > 1:
            values, vectors = np.linalg.eigh(self.covariance)
            root = vectors * np.sqrt(np.maximum(values, 0.0))
            normal = checks.random_generator(rng).normal(size=(DRAWS, len(self)))
            sizes = abs(normal @ root.T) / np.where(error > 0, error, np.inf)
            width = max(width, float(np.quantile(sizes.max(axis=1), level)))
        return self.mean - width * error, self.mean + width * error

    def difference(self, reference: int = 0) -> CausalCurve:
        """The effect of each treatment against one of them, by its place in the grid."""
        i = checks.whole(reference, "reference", -len(self), "It is a place in the grid.")
        if i >= len(self):
            raise ValueError(f"reference={i}: the grid has {len(self)} treatments.")
        C = self.covariance
        C = C - C[i] - C[:, [i]] + C[i, i]
        against = f"{self.kind}, against {_show(self.treatments[i])}"
        return replace(self, mean=self.mean - self.mean[i], covariance=C, kind=against)

    def pvalue(self, value: float = 0.0) -> np.ndarray:
        """Two-sided p-values of each mean being `value`, after `difference` of no effect."""
        error = self.standard_error
        z = abs(self.mean - value) / np.where(error > 0, error, np.nan)
        return np.where(error > 0, 2 * stats.norm.sf(z), 1.0)

    def sentence(self) -> str:
        """The ends of the curve in words."""
        low, high = self.interval()
        parts = [
            f"{self.mean[i]:.4g} (95% interval {low[i]:.4g} to {high[i]:.4g}) at "
            f"{self.names[0]} {_show(self.treatments[i])}"
            for i in sorted({0, len(self) - 1})
        ]
        return f"{self.kind[:1].upper()}{self.kind[1:]}: {', '.join(parts)}."

    def to_dict(self) -> dict[str, Any]:
        """The figures under plain names, for JSON."""
        low, high = self.interval()
        found: dict[str, Any] = {"kind": self.kind, "treatments": self.treatments.tolist()}
        found |= {"mean": self.mean.tolist(), "standard_error": self.standard_error.tolist()}
        found |= {"low": low.tolist(), "high": high.tolist()}
        return found if self.support is None else found | {"support": self.support.tolist()}

    def to_frame(self, level: float = 0.95) -> Any:
        """A pandas frame with a row per treatment."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_frame needs pandas: pip install pandas") from error
        low, high = self.interval(level)
        labels = [_label(t) for t in self.treatments]
        columns = {self.names[0]: labels, "mean": self.mean}
        columns |= {"standard_error": self.standard_error, "low": low, "high": high}
        columns |= {} if self.support is None else {"support": self.support}
        return pd.DataFrame(columns)

    def plot(self, ax: Any = None, level: float = 0.95) -> Any:
        """Draw the curve with its intervals; labels as points."""
        at = np.asarray([_label(t) for t in self.treatments])
        bands = (self.interval(level), self.interval(level, simultaneous=True))
        return plots.causal_curve(at, self.mean, bands, level, self.names, ax)

    def __repr__(self) -> str:
        low, high = self.interval()
        some = np.unique(np.linspace(0, len(self) - 1, min(len(self), SHOWN)).astype(int))
        shown = [
            f"  {_show(self.treatments[i])}: {self.mean[i]:.4g} ({low[i]:.4g} to {high[i]:.4g})"
            for i in some
        ]
        more = f", {len(some)} of {len(self)} treatments" if len(some) < len(self) else ""
        return "\n".join([f"CausalCurve: {self.kind} with 95% intervals{more}", *shown])


def _label(treatment: Any) -> Any:
    """A treatment as a cell of a table."""
    row = np.asarray(treatment)
    return row.reshape(-1)[0] if row.size == 1 else ", ".join(map(_show, row))


def _show(treatment: Any) -> str:
    value = _label(treatment)
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)


@dataclass(frozen=True, eq=False, repr=False)
class Overlap:
    """Where treatments were given to rows of all kinds, and where the curve is extrapolated.

    Attributes
    ----------
    treatments : array
    support : array of shape (q,)
        The share of rows whose counterfactual at this treatment has data near by: the variance of
        the regression is there at most four times that at 99 of 100 observed rows.
    predictable : float
        The share of the treatment's variance that covariates predict for left-out rows. Near 1
        the treatment is a function of the covariates, and no method can tell their effects apart.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.causal import Overlap
    >>> Overlap(np.array([0.0, 1.0]), np.array([1.0, 0.4]), predictable=0.2).support.min()
    np.float64(0.4)
    """

    treatments: np.ndarray
    support: np.ndarray
    predictable: float
    names: tuple[str, str] = ("treatment", "outcome")

    def __repr__(self) -> str:
        least = int(np.argmin(self.support))
        return (
            f"Overlap: {self.support.min():.0%} to {self.support.max():.0%} of rows have similar "
            f"rows with the treatments asked for (least at {_show(self.treatments[least])}); "
            f"covariates predict {self.predictable:.0%} of the treatment"
        )

    def to_frame(self) -> Any:
        """A pandas frame with a row per treatment."""
        import pandas as pd

        labels = [_label(t) for t in self.treatments]
        return pd.DataFrame({self.names[0]: labels, "support": self.support})

    def plot(self, ax: Any = None) -> Any:
        """Draw the share of rows with support at each treatment."""
        at = np.asarray([_label(t) for t in self.treatments])
        return plots.support_curve(at, self.support, self.names[0], ax)
